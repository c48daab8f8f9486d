"""Who may import whom: folders are layers, and imports go down only."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import pytest

import tilewright

PACKAGE = Path(tilewright.__file__).parent

# A room is a folder or file directly under the package. "room" allows all of a room, "room.module" one module of it.
_BASE = {"homes", "config", "cpus", "forks", "files", "absent"}
_MACHINE = {"ir", "arith", "tir", "target", "codegen", "runtime", "backends", "compiler"}
LAYERS: dict[str, set[str]] = {
    "version": set(),
    "cpus": set(),
    "config": {"cpus"},
    "forks": set(),
    "files": set(),
    # modules that have a classic name beside their own
    "moved": set(),
    # where higher rooms keep what a lower one finds by name, as the front door says
    "homes": set(),
    # the table of names that are absent, and those that it is made of
    "absent_names": set(),
    "absent": {"absent_names", "runtime.errors"},
    # what runs a compiled model needs nothing of the compiler
    "runtime": {"config", "cpus", "forks", "files", "homes"},
    "ir": {
        *_BASE, "runtime.errors", "runtime.recursion", "runtime.json_reader", "runtime.registry",
        "runtime.object_path",
    },
    "arith": {"ir"},
    # the sizes that a call lets through; programs call Python, and the interpreter hands the functions arrays
    "tir": {
        "ir", "arith", "absent", "files", "homes", "runtime.limits", "runtime.registry", "runtime.ndarray",
        "target.accelerator",
    },
    "te": {"ir", "arith", "absent", "homes", "tir", "runtime.container"},
    "script": {"ir", "tir", "homes"},
    # a few operators are loops with stores, written with the builder
    "topi": {"ir", "arith", "te", "tir.ir_builder", "absent", "homes"},
    "codegen": {"ir", "arith", "runtime", "config", "forks", "files", "version"},
    # this machine is measured with loops that are compiled and run here, and its figures are kept
    "target": {
        "ir", "absent", "homes", "config", "cpus", "files", "version", "codegen.llvm.engine", "runtime.jit", "runtime.host",
    },
    # one file for each kind of target: how programs are lowered for it, and what makes its code
    "backends": {"ir", "arith", "homes", "tir", "target", "codegen", "runtime"},
    "compiler": {"ir", "homes", "te", "tir", "target", "codegen", "runtime", "backends"},
    "tune": {*_MACHINE, *_BASE, "te"},
    # the door to the description of an accelerator of one's own
    "accelerators": _MACHINE,
    # an example accelerator; its simulator compiles its own inner loops, and `top` packs graphs
    "vta": {*_MACHINE, *_BASE, "te", "topi", "script", "relay"},
    # the graph compiler stands on everything that makes kernels
    "relay": {*_MACHINE, *_BASE, "te", "topi", "tune"},
    # other machines run what was compiled, and need the runtime alone
    "rpc": {"runtime", "forks", "files", "homes"},
    "autotvm": {*_MACHINE, *_BASE, "te", "topi", "tune", "relay", "rpc"},
    "auto_scheduler": {*_MACHINE, *_BASE, "te", "topi", "tune", "relay", "rpc"},
    "meta_schedule": {*_MACHINE, *_BASE, "te", "topi", "tune", "relay"},
    # the classic homes of names that live elsewhere
    "_ffi": {"runtime", "absent"},
    "contrib": {
        "runtime", "files", "ir", "absent", "homes", "target", "te", "tir.ir_builder", "compiler", "tune", "relay",
        "meta_schedule", "rpc",
    },
    "driver": {"compiler"},
    "error": {"ir.errors"},
    "exec": {"rpc"},
    # the facts of an installation
    "support": {"config", "cpus", "version", "runtime.devices", "runtime.link", "target", "codegen.llvm.engine"},
    "testing": {"absent", "runtime", "target", "backends", "contrib", "te", "topi", "autotvm", "auto_scheduler"},
    # a model as a function: whatever it comes as, compiled, saved and called
    "model": {*_MACHINE, *_BASE, "te", "tune", "relay"},
    # the steps of a model one by one, and the command line
    "tvmc": {
        *_MACHINE, *_BASE, "te", "topi", "tune", "relay", "contrib", "autotvm", "rpc", "model", "support",
        "version",
    },
    "__main__": {"tvmc"},
}  # fmt: skip
# A package inside a room: which of its neighbours it may import.
INSIDE: dict[str, set[str]] = {
    "tir.analysis": set(),
    "tir.interpret": {"tir.analysis"},
    "tir.script": {"tir.analysis"},
    "tir.tensor_intrin": {"tir.script"},
    "tir.transform": {"tir.analysis"},
    # a schedule knows nothing of the passes that lower it
    "tir.schedule": {"tir.analysis", "tir.interpret", "tir.tensor_intrin"},
    "codegen.llvm": set(),
    "codegen.source": {"codegen.llvm"},
}
LAYERS_BY_ROOM = {room: {a.split(".")[0] for a in allowed} for room, allowed in LAYERS.items()}
# The front door opens to every room.
FREE = {"__init__"}


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


@lru_cache(None)
def imports_of(path: Path) -> tuple[tuple[int, str], ...]:
    """Our modules that a file imports, wherever in the file and by whatever means, as (line, path below the package)."""
    folder = path.relative_to(PACKAGE).parent.parts
    found: list[tuple[int, str]] = []
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    for n in _statements(tree):
        if isinstance(n, ast.Import):
            found += [(n.lineno, a.name.removeprefix("tilewright.")) for a in n.names if _ours(a.name)]
        elif isinstance(n, ast.ImportFrom):
            if n.level:
                base = folder[: len(folder) - (n.level - 1)]
                source = ".".join([*base, *([n.module] if n.module else [])])
            elif n.module and _ours(n.module):
                source = n.module.removeprefix("tilewright").lstrip(".")
            else:
                continue
            # `from ..ir import stmt` names a module, `from ..ir import Node` a thing in one.
            for alias in n.names:
                full = f"{source}.{alias.name}" if source else alias.name
                found.append((n.lineno, full if _is_module(full) else source or full))
    if "import_module(" in text or "__import__(" in text or "tilewright." in text:
        found += _by_string(tree, folder)
    return tuple(found)


_PATH = re.compile(r"tilewright((?:\.[a-z_]\w*)+)(?::\w+)?")


def _by_string(tree: ast.Module, folder: tuple[str, ...]) -> Iterator[tuple[int, str]]:
    """Modules that are named by text: `import_module("..te")`, `"tilewright.compiler.build:build"`."""
    for n in ast.walk(tree):
        if isinstance(n, ast.Call) and getattr(n.func, "attr", getattr(n.func, "id", "")).endswith(
            "import_module"
        ):
            yield from ((n.lineno, name) for name in _named(n.args[0], folder) if name)
        elif isinstance(n, ast.Constant) and isinstance(n.value, str):
            path = _PATH.fullmatch(n.value)
            if path and _is_module(path[1][1:]):
                yield n.lineno, path[1][1:]


def _named(given: ast.expr, folder: tuple[str, ...]) -> Iterator[str]:
    """The module that an argument of `import_module` names, as far as the text goes that is written there."""
    parts = given.values if isinstance(given, ast.JoinedStr) else [given]
    own = isinstance(parts[0], ast.FormattedValue) and ast.unparse(parts[0].value) in (
        "__name__",
        "__package__",
    )
    text = ""
    for part in parts[isinstance(parts[0], ast.FormattedValue) :]:
        if not isinstance(part, ast.Constant):
            break
        text += str(part.value)
    up = 1 if own else len(text) - len(text.lstrip("."))
    name = text.strip(".")
    if own or (up and isinstance(parts[0], ast.Constant)):
        yield ".".join([*folder[: len(folder) - (up - 1)], *name.split(".")]).rstrip(".")
    elif name.split(".")[0] in LAYERS:
        yield name


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """All statements, however deep; `ast.walk` looks at every expression too, which takes five times as long."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        at = waiting.pop()
        yield at
        for part in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(at, part, [])
            waiting += reversed(inner) if isinstance(inner, list) else []


def _ours(name: str) -> bool:
    return name == "tilewright" or name.startswith("tilewright.")


def _is_module(name: str) -> bool:
    return _is_file(PACKAGE / name.replace(".", "/"))


@lru_cache(None)
def _is_file(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def package_of(module: str) -> str:
    """The package inside a room that a module is in, else the room."""
    name = ".".join(module.split(".")[:2])
    return name if (PACKAGE / name.replace(".", "/")).is_dir() else module.split(".")[0]


def refusal(module: str, wanted: str) -> str | None:
    """Why a module may not import another one."""
    room, other = module.split(".")[0], wanted.split(".")[0]
    if room != other:
        fine = any(wanted == a or wanted.startswith(a + ".") for a in LAYERS[room])
        return None if fine else f"{room} may not import {wanted}"
    here, there = package_of(module), package_of(wanted)
    fine = here == there or here not in INSIDE or there not in INSIDE or there in INSIDE[here]
    return None if fine else f"{here} may not import {wanted}"


def violations(package: Path = PACKAGE) -> list[str]:
    out: list[str] = []
    for path in sorted(package.rglob("*.py")):
        module = module_of(path)
        if module in FREE:
            continue
        where = path.relative_to(package.parent)
        if module.split(".")[0] not in LAYERS:
            out.append(f"{where}:1: room {module.split('.')[0]!r} is not in the table of layers")
            continue
        found = [(line, why) for line, wanted in imports_of(path) if (why := refusal(module, wanted))]
        out += [f"{where}:{line}: {why}" for line, why in found]
    return out


def graph(node: Callable[[str], str]) -> dict[str, set[str]]:
    """What imports what, in the files as they are."""
    edges: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        module = module_of(path)
        if module not in FREE:
            edges.setdefault(node(module), set()).update(node(wanted) for _, wanted in imports_of(path))
    return edges


def cycle_of(edges: Mapping[str, set[str]]) -> set[str]:
    """Nodes that lead to each other; none if some order has every import pointing backwards."""
    left = {node: needs - {node} for node, needs in edges.items()}
    while True:
        wanted = {need for needs in left.values() for need in needs}
        kept = {node: needs for node, needs in left.items() if needs & left.keys() and node in wanted}
        if len(kept) == len(left):
            return set(kept)
        left = kept


@pytest.mark.slow
def test_imports_go_down_only() -> None:
    found = violations()
    assert not found, "\n".join(["imports against the table of layers:", *found])


@pytest.mark.slow
def test_no_rooms_import_each_other() -> None:
    assert not cycle_of(LAYERS_BY_ROOM)
    assert not cycle_of(graph(lambda module: module.split(".")[0]))


@pytest.mark.slow
def test_no_packages_of_a_room_import_each_other() -> None:
    assert not cycle_of(INSIDE)
    edges = graph(package_of)
    inner = {a: {b for b in found if "." in b} for a, found in edges.items() if "." in a}
    assert not cycle_of(inner)


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("ir/bad.py", "from ..tir import transform\n", "ir may not import tir.transform"),
        ("ir/bad.py", "def f():\n    from ..runtime import ndarray\n", "ir may not import runtime.ndarray"),
        ("ir/fine.py", "from ..runtime.errors import TVMError\nfrom . import stmt\n", None),
        ("te/fine.py", "from ..tir.schedule import Schedule\n", None),
        ("tir/bad.py", "import_module('..te.reducer', __name__)\n", "tir may not import te.reducer"),
        ("tir/bad.py", "import_module(f'..te.{name}', __name__)\n", "tir may not import te"),
        ("tir/fine.py", "import_module(f'{__name__}.transform')\n", None),
        ("arith/bad.py", "BUILD = 'tilewright.tir.schedule:Schedule'\n", "arith may not import tir.schedule"),
        ("tir/schedule/bad.py", "from ..transform import b\n", "tir.schedule may not import tir.transform"),
        (
            "tir/schedule/bad.py",
            "def f():\n    from ..transform.a import b\n",
            "tir.schedule may not import tir.transform.a",
        ),
        ("tir/transform/fine.py", "from ..analysis import x\n", None),
        ("runtime/bad.py", "import tilewright.ir.expr\n", "runtime may not import ir.expr"),
        ("runtime/bad.py", "from tilewright import arith\n", "runtime may not import arith"),
    ],
)
def test_the_test_finds_what_it_should(
    file: str, text: str, expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in (
        *(
            "ir/stmt",
            "ir/expr",
            "tir/transform/__init__",
            "tir/transform/a",
            "tir/schedule/__init__",
            "te/reducer",
        ),
        *("tir/analysis/__init__", "arith/__init__", "runtime/ndarray", "runtime/errors"),
    ):
        (tmp_path / "tilewright" / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tilewright" / f"{name}.py").write_text("")
    path = tmp_path / "tilewright" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path / "tilewright")
    found = violations(tmp_path / "tilewright")
    assert [f.split(": ", 1)[1] for f in found] == ([expected] if expected else [])
