"""C to LLVM IR with the system's clang or zig's, for intrinsics that are written in C."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence

from ..runtime.errors import TVMError
from .utils import tempdir


def find_clang(required: bool = True) -> list[str]:
    """The clang programs on the path, the plain one first, then the newest."""
    names = ["clang", *(f"clang-{version}" for version in range(30, 9, -1))]
    found = [name for name in names if shutil.which(name)]
    if not found and required:
        raise TVMError(
            "clang was not found on the path; install it, or `pip install ziglang`, to compile C to LLVM IR"
        )
    return found


def _command(cc: str | None) -> list[str]:
    """The compiler to call: the one that was named, the system's clang, else the clang inside of zig."""
    if cc:
        return [cc] if shutil.which(cc) else shlex.split(cc)
    found = find_clang(required=False)
    if found:
        return [found[0]]
    if importlib.util.find_spec("ziglang") is None:
        return find_clang()[:1]  # says what to install
    # Plain code: without the traps and the debug information that zig adds.
    return [sys.executable, "-m", "ziglang", "cc", "-fno-sanitize=undefined", "-g0"]


def create_llvm(
    inputs: str | Sequence[str],
    output: str | None = None,
    options: Sequence[str] | None = None,
    cc: str | None = None,
) -> str:
    """The LLVM IR (as text) of C code: source text, or the names of source files."""
    compiler = _command(cc)
    sources = [inputs] if isinstance(inputs, str) else list(inputs)
    temporary = tempdir()
    files = []
    for index, source in enumerate(sources):
        if os.path.isfile(source):
            files.append(source)
            continue
        name = temporary.relpath(f"input{index}.cc")
        with open(name, "w", encoding="utf-8") as file:
            file.write(source)
        files.append(name)
    target = output or temporary.relpath("output.ll")
    command = [*compiler, "-S", "-emit-llvm", *(options or ("-O3",)), "-o", target, *files]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise TVMError(f"clang failed:\n{(done.stderr + done.stdout).strip()}")
    with open(target, encoding="utf-8") as file:
        return file.read()
