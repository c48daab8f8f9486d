"""What tests need of the machine: a test says it by name, and is skipped by that name where it is not there.

    @pytest.mark.needs("opencl")                    or `pytestmark = pytest.mark.needs("opencl", "oclgrind")`
    def test_kernels() -> None: ...

    needs.skip_without("qemu-riscv64")              where only the running test knows
    needs.compiler()                                the command of the C compiler, or a skip

`pytest --hide` checks that nothing is forgotten. It takes away what packages of the system bring and runs the files that
speak of them: every quick test, and each slow one that reaches a word of them. It must end without a failure.
"""

from __future__ import annotations

import importlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest

HERE = Path(__file__).parent


def _device(kind: str) -> Callable[[], bool]:
    def found() -> bool:
        import tilewright

        return bool(getattr(tilewright, kind)(0).exist)

    return found


def _command(*names: str) -> Callable[[], bool]:
    return lambda: any(map(shutil.which, names))


def _nvrtc() -> bool:
    try:
        return int(importlib.import_module("cuda.bindings.nvrtc").nvrtcVersion()[0]) == 0
    except (ImportError, RuntimeError):
        return False


def _dnnl() -> bool:
    from tilewright.runtime.dnnl_path import find

    return find() is not None


def _linker() -> bool:
    from tilewright.runtime.link import find_cc

    return find_cc() is not None


@dataclass(frozen=True)
class Need:
    """Something of the machine, in words, the packages that bring it, and whether it is there."""

    what: str
    packages: str
    found: Callable[[], bool]

    @property
    def reason(self) -> str:
        return f"needs {self.what}: {self.packages}"


COMPILERS = ("cc", "gcc", "clang")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
NEEDS = {
    "opencl": Need(
        "an OpenCL device", "apt package pocl-opencl-icd, pip package pyopencl", _device("opencl")
    ),
    "oclgrind": Need("oclgrind", "apt package oclgrind", _command("oclgrind")),
    "chromium": Need("chromium", "apt package chromium", _command(*BROWSERS)),
    "cuda": Need("a CUDA device", "pip package cuda-bindings", _device("cuda")),
    "nvrtc": Need("NVRTC", "pip packages cuda-bindings and nvidia-cuda-nvrtc", _nvrtc),
    "cc": Need("a C compiler", "apt package gcc", _command(*COMPILERS)),
    "linker": Need("a C compiler", "apt package gcc, or pip package ziglang", _linker),
    "dnnl": Need("oneDNN", "pip package onednn-cpu-gomp", _dnnl),
    "strip": Need("strip", "apt package binutils", _command("strip")),
} | {
    f"qemu-{arch}": Need(f"qemu-{arch}", "apt package qemu-user", _command(f"qemu-{arch}"))
    for arch in ("aarch64", "riscv64")
}


@cache
def found(name: str) -> bool:
    """Whether the machine has what is named."""
    return NEEDS[name].found()


def skip_without(*names: str) -> None:
    """Skip the running test where the machine lacks something."""
    for name in names:
        if not found(name):
            pytest.skip(NEEDS[name].reason)


def compiler() -> str:
    """The command of the C compiler; without one the running test is skipped."""
    skip_without("cc")
    return next(filter(None, map(shutil.which, COMPILERS)))


def browser() -> str:
    """The command of the browser; without one the running test is skipped."""
    skip_without("chromium")
    return next(filter(None, map(shutil.which, BROWSERS)))


def named_by(item: pytest.Item) -> list[str]:
    """What a test says that it needs."""
    return [name for mark in item.iter_markers("needs") for name in mark.args]


def check_names(items: Sequence[pytest.Item]) -> None:
    for item in items:
        for name in named_by(item):
            if name not in NEEDS:
                raise pytest.UsageError(
                    f"{item.nodeid}: nothing is called {name!r}; there are {', '.join(NEEDS)}"
                )


# ---------------------------------------------------------------------------- what was skipped
def skipped(reports: Sequence[pytest.TestReport]) -> list[tuple[int, str]]:
    """How many tests were skipped for which reason, the most frequent first."""
    counts: dict[str, int] = {}
    for report in reports:
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reason = text.removeprefix("Skipped: ")
        absent = re.match(r"could not import '([\w.]+)'", reason)
        if absent is not None:
            reason = f"needs the Python package {absent[1]}"
        counts[reason] = counts.get(reason, 0) + 1
    return sorted(((n, reason) for reason, n in counts.items()), key=lambda pair: (-pair[0], pair[1]))


# ---------------------------------------------------------------------------- hiding
_COMMANDS = re.compile(r"qemu-|oclgrind|chrom(e|ium)|google-chrome")
_WORDS = re.compile(r"opencl|oclgrind|qemu|chromium|playwright", re.IGNORECASE)
HIDDEN = ("opencl", "oclgrind", "chromium", "qemu-aarch64", "qemu-riscv64")
# They run programs that stand elsewhere: in README and docs, in examples.
_ELSEWHERE = ("test_docs.py", "test_docs_models.py", "test_examples.py")


_FOLDER = tempfile.TemporaryDirectory(prefix="tilewright-hidden-")


def hide() -> None:
    """Take away, from this process and those that it starts, what packages of the system bring."""
    folder = Path(_FOLDER.name)
    (folder / "vendors").mkdir()
    for variable in ("OCL_ICD_VENDORS", "OPENCL_VENDOR_PATH"):  # two loaders of OpenCL drivers
        os.environ[variable] = str(folder / "vendors")
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(
        _without_commands(Path(p), folder / str(i)) for i, p in enumerate(places)
    )
    left = [name for name in HIDDEN if found(name)]
    if left:
        raise pytest.UsageError(f"--hide: {', '.join(left)} can still be found")


def _without_commands(place: Path, mirror: Path) -> str:
    """A folder of commands without those that are hidden: a mirror made of links, or the folder itself."""
    files = list(place.iterdir()) if place.is_dir() else []
    if not any(_COMMANDS.match(f.name) for f in files):
        return str(place)
    mirror.mkdir()
    for f in files:
        if not _COMMANDS.match(f.name):
            (mirror / f.name).symlink_to(f)
    return str(mirror)


@cache
def speaks_of_packages(path: Path) -> bool:
    """Whether a file of tests, or one of the modules in this folder that it imports, speaks of what is hidden."""
    seen, waiting = set[Path](), [path]
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        text = file.read_text(encoding="utf-8")
        if _WORDS.search(text) or file.name in _ELSEWHERE:
            return True
        for name in re.findall(r"^(?:from|import) (\w+)", text, re.MULTILINE):
            waiting += _modules().get(name, ())
    return False


@cache
def _modules() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in HERE.rglob("*.py"):
        if path != Path(__file__):  # which speaks of everything
            found.setdefault(path.stem, []).append(path)
    return found


def reaches_packages(item: pytest.Item) -> bool:
    """Whether a test, its parameters, its fixtures or the helpers that they call speak of what is hidden."""
    test: Any = item
    params = test.callspec.params.values() if hasattr(test, "callspec") else ()
    fixtures = [f.func for found in test._fixtureinfo.name2fixturedefs.values() for f in found]
    waiting = [*named_by(item), *params, test.function, *fixtures]
    seen = set[int]()
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        if isinstance(value, str | Path) and _WORDS.search(_text_of(value)):
            return True
        value = getattr(value, "__wrapped__", value)
        if isinstance(value, FunctionType) and HERE in Path(value.__code__.co_filename).parents:
            codes = [value.__code__]
            for code in codes:
                waiting += code.co_names
                waiting += [value.__globals__[name] for name in code.co_names if name in value.__globals__]
                waiting += code.co_consts
                codes += [c for c in code.co_consts if isinstance(c, CodeType)]
    return False


def _text_of(value: str | Path) -> str:
    """A text; of a page or a program, what is in it."""
    if isinstance(value, Path):
        return value.read_text(encoding="utf-8") if value.is_file() else ""
    example = HERE.parent / "examples" / f"{value}.py"
    return _text_of(example) if value.isidentifier() and example.is_file() else value
