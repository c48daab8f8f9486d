"""Who may import whom: folders are layers, and imports go down only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import pytest

import tilewright

PACKAGE = Path(tilewright.__file__).parent

# A room is a folder or file directly under the package; a longer path is a finer rule for a part of one.
# "room" allows all of the room, "room.module" one module of it.
_BELOW_RELAY = {
    "ir",
    "arith",
    "te",
    "topi",
    "tir",
    "tune",
    "target",
    "codegen",
    "runtime",
    "config",
    "forks",
    "files",
    "absent",
}
LAYERS: dict[str, set[str]] = {
    "version": set(),
    "config": set(),
    "forks": set(),
    "files": set(),
    "runtime": {"config", "forks", "files"},
    "ir": {"config", "forks", "files", "runtime.errors", "runtime.recursion", "absent"},
    # programs of strangers, and everything else that is JSON, are read by one function
    "ir.serialize": {"ir", "runtime.json_reader"},
    # functions by name, and the paths of differences
    "ir.base": {"ir", "runtime.registry", "runtime.object_path"},
    "arith": {"ir"},
    "tir": {"ir", "arith", "absent"},
    # the sizes that a call lets through
    "tir.transform.widen_indices": {"ir", "arith", "runtime.limits"},
    "tir.schedule.report": {"ir", "arith", "files"},
    # programs call Python: the interpreter looks the functions up and hands them arrays
    # `sch.verify` compiles what is too large to be interpreted
    "tir.schedule.verify": {"ir", "arith", "driver.build", "driver.lower"},
    "tir.interpret": {"ir", "arith", "runtime.registry", "runtime.ndarray"},
    "te": {"ir", "arith", "absent"},
    # whether the steps of a reduction may run in any order
    "te.create_prim_func": {"ir", "arith", "tir.analysis"},
    "te.schedule": {"ir", "arith", "tir.schedule"},
    "te.stage": {"ir", "arith", "tir.schedule"},
    # loops that somebody wrote out
    "te.hybrid": {"ir", "arith", "tir.ir_builder", "absent"},
    "script": {"ir", "tir", "absent"},
    "target": {"ir", "absent"},
    # this machine is measured with loops that are compiled and run here, and its figures are kept
    "target.measure": {"ir", "config", "files", "version"},
    # what was measured belongs to the user, and is found in a folder of theirs
    "target.calibration": {"ir", "config", "files", "version"},
    "target.probes": {"ir", "codegen.llvm.engine"},
    "codegen": {"ir", "arith", "target", "runtime", "config", "forks", "files", "version"},
    "tune": {"ir", "arith", "te", "tir", "target", "codegen", "runtime", "config", "forks", "files"},
    "contrib": {"runtime", "files", "ir.errors", "absent"},
    # what is compiled for is asked of the target in scope
    "contrib.nvcc": {"runtime", "contrib", "target"},
    # onnx's own test suite drives the whole compiler
    "contrib.onnx_backend": {"runtime", "ir", "relay", "contrib", "nd"},
    "driver": {
        "ir",
        "arith",
        "te",
        "tir",
        "tune",
        "script",
        "target",
        "codegen",
        "runtime",
        "config",
        "files",
        "absent",
    },
    # whole models, from the file to the result
    "driver.tvmc": _BELOW_RELAY | {"relay", "contrib", "driver", "autotvm", "rpc"},
    "__main__": {"driver.tvmc"},
    # the classic home of the command line
    "driver.tvmc.main": {"__main__"},
    # the classic homes of names that live elsewhere
    "error": {"ir.errors"},
    "instrument": {"ir.instrument"},
    "_ffi": {"runtime"},
    "support": {"runtime.devices"},
    # the table of names that are absent, and those that it is made of
    "absent": {"absent_names", "runtime.errors"},
    "absent_names": set(),
    # the graph compiler stands on everything that makes kernels
    "relay": _BELOW_RELAY,
    # kernels are compiled as anybody compiles them
    "relay.backend": _BELOW_RELAY | {"driver.build", "driver.lower"},
    "relay.transform.run_now": _BELOW_RELAY | {"driver.build"},
    # a few operators are loops with stores, written with the builder
    "topi": {"ir", "arith", "te", "tir.ir_builder", "absent"},
    # other machines run what was compiled, and need the runtime alone
    "rpc": {"runtime", "forks", "files"},
    "exec": {"rpc"},
    "autotvm": _BELOW_RELAY | {"relay", "rpc"},
    "testing.autotvm": {"te", "target", "autotvm"},
    "auto_scheduler": _BELOW_RELAY | {"relay", "rpc", "driver.build"},
    "testing.auto_scheduler": {"te", "topi", "auto_scheduler"},
    "testing": {"runtime", "target", "contrib.nvcc"},
}
# The front door opens to every room.
FREE = {"__init__"}


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


# An import begins a line (ruff sees to that). So does some prose, which does not parse, and some of an example in a
# docstring, which does.
IMPORT = re.compile(r"^[ \t]*(import\b.*|from\b.*\bimport\b(?:[ \t]*\([^)]*\)|.*))", re.MULTILINE)


def _imports(text: str) -> Iterator[ast.AST]:
    """What looks like imports in a file, without the time that it takes to parse all of it."""
    for found in IMPORT.finditer(text):
        with suppress(SyntaxError):
            yield from ast.parse(found[1]).body


def imports_of(path: Path, quick: bool = False) -> list[tuple[int, str]]:
    """Our modules that a file imports, wherever in the file, as (line, path below the package); with `quick` without
    the right lines, and perhaps some that examples in docstrings import."""
    relative = path.relative_to(PACKAGE)
    folder = relative.parent.parts
    found: list[tuple[int, str]] = []
    text = path.read_text(encoding="utf-8")
    for n in _imports(text) if quick else _statements(ast.parse(text)):
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
    return found


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


def rule_for(module: str) -> tuple[str, set[str]] | None:
    """The finest rule that covers a module."""
    parts = module.split(".")
    for size in range(len(parts), 0, -1):
        name = ".".join(parts[:size])
        if name in LAYERS:
            return name, LAYERS[name]
    return None


def fits(wanted: str, room: str, allowed: set[str]) -> bool:
    if wanted.split(".")[0] == room.split(".")[0]:
        return True
    return any(wanted == a or wanted.startswith(a + ".") for a in allowed)


def violations(package: Path = PACKAGE) -> list[str]:
    out: list[str] = []
    for path in sorted(package.rglob("*.py")):
        module = module_of(path)
        if module in FREE:
            continue
        rule = rule_for(module)
        where = path.relative_to(package.parent)
        if rule is None:
            out.append(f"{where}:1: room {module.split('.')[0]!r} is not in the table of layers")
            continue
        room, allowed = rule
        if all(fits(wanted, room, allowed) for _, wanted in imports_of(path, quick=True)):
            continue
        for line, wanted in imports_of(path):
            if not fits(wanted, room, allowed):
                out.append(f"{where}:{line}: {room} may not import {wanted}")
    return out


def test_imports_go_down_only() -> None:
    found = violations()
    assert not found, "\n".join(["imports against the table of layers:", *found])


def test_the_table_has_no_cycle() -> None:
    """What makes it a table of layers: some order of the rooms has every import pointing backwards."""
    below = {
        room: {a.split(".")[0] for a in allowed} - {room}
        for room, allowed in LAYERS.items()
        if "." not in room
    }
    # An error class has no room below it: these modules import nothing and may be imported by anyone.
    below["ir"] -= {"runtime"}
    done: set[str] = set()
    while len(done) < len(below):
        ready = {room for room, needs in below.items() if room not in done and needs <= done}
        assert ready, f"these rooms import each other: {sorted(set(below) - done)}"
        done |= ready


def test_the_errors_module_imports_nothing() -> None:
    assert imports_of(PACKAGE / "runtime" / "errors.py") == []


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("ir/bad.py", "from ..tir import transform\n", "ir may not import tir.transform"),
        ("ir/bad.py", "def f():\n    from ..runtime import ndarray\n", "ir may not import runtime.ndarray"),
        ("ir/fine.py", "from ..runtime.errors import TVMError\nfrom . import stmt\n", None),
        ("te/operation.py", "from ..tir.schedule import Schedule\n", "te may not import tir.schedule"),
        ("te/schedule.py", "from ..tir.schedule import Schedule\n", None),
        ("runtime/bad.py", "import tilewright.ir.expr\n", "runtime may not import ir.expr"),
        ("runtime/bad.py", "from tilewright import arith\n", "runtime may not import arith"),
    ],
)
def test_the_test_finds_what_it_should(
    file: str, text: str, expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ir/stmt", "ir/expr", "tir/transform", "tir/schedule", "arith/__init__"):
        (tmp_path / "tilewright" / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tilewright" / f"{name}.py").write_text("")
    for name in ("runtime/ndarray", "runtime/errors"):
        (tmp_path / "tilewright" / f"{name}.py").parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tilewright" / f"{name}.py").write_text("")
    path = tmp_path / "tilewright" / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path / "tilewright")
    found = violations(tmp_path / "tilewright")
    assert [f.split(": ", 1)[1] for f in found] == ([expected] if expected else [])
