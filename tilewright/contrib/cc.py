"""The system's C compiler: shared libraries, executables and archives from object files."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.errors import TVMError
from ..runtime.link import find_cc, link_shared, run_cc


def get_cc() -> str | None:
    """The command of the compiler that is used by default; None without any."""
    found = find_cc()
    return shlex.join(found) if found else None


def create_shared(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
    cwd: str | None = None,
    ccache_env: dict[str, str] | None = None,
) -> None:
    """Link object files (or compile C sources) to a shared library."""
    link_shared(output, objects, options, cc, cwd, ccache_env)


def create_executable(
    output: str | os.PathLike[str],
    objects: str | Sequence[str],
    options: Sequence[str] | None = None,
    cc: str | None = None,
    cwd: str | None = None,
    ccache_env: dict[str, str] | None = None,
) -> None:
    """Link object files (or compile C sources) to a program."""
    files = [objects] if isinstance(objects, (str, os.PathLike)) else list(objects)
    arguments = [*(os.fspath(file) for file in files), *(options or ()), "-lm", "-lpthread"]
    run_cc(arguments, os.fspath(output), cc, cwd, ccache_env)


def create_staticlib(
    output: str | os.PathLike[str], inputs: str | Sequence[str], ar: str | None = None
) -> None:
    """Collect object files in a static library."""
    tool = ar or next((name for name in ("ar", "llvm-ar") if shutil.which(name)), None)
    if tool is None:
        raise TVMError("no archiver was found to make a static library; install binutils or name one: ar=…")
    files = [inputs] if isinstance(inputs, (str, os.PathLike)) else list(inputs)
    target = os.fspath(output)
    if os.path.exists(target):
        os.remove(target)  # `ar` would add to the old one
    done = subprocess.run([tool, "rcs", target, *files], capture_output=True, text=True)
    if done.returncode != 0:
        raise TVMError(f"{tool} failed to make {target}:\n{(done.stderr + done.stdout).strip()}")


def get_target_by_dump_machine(compiler: str) -> Callable[[], str | None]:
    """A function that asks a compiler for the triple it makes code for."""

    def get_target_triple() -> str | None:
        try:
            done = subprocess.run([*shlex.split(compiler), "-dumpmachine"], capture_output=True, text=True)
        except OSError:
            return None
        return done.stdout.strip() or None if done.returncode == 0 else None

    return get_target_triple


class cross_compiler:  # a function of the classic API that carries attributes
    """A `fcompile` for `export_library` that links with another compiler.

    mod.export_library("net.so", fcompile=cc.cross_compiler("aarch64-linux-gnu-gcc"))
    """

    def __init__(
        self,
        compile_func: str | Callable[..., Any],
        options: Sequence[str] | None = None,
        output_format: str | None = None,
        get_target_triple: str | Callable[[], str | None] | None = None,
        add_files: Sequence[str] | None = None,
    ) -> None:
        self._compile = compile_func
        self._options = list(options or ())
        self._files = list(add_files or ())
        given = getattr(compile_func, "output_format", None)
        self.output_format: str = output_format or given or "so"
        triple = get_target_triple or getattr(compile_func, "get_target_triple", None)
        if triple is None and isinstance(compile_func, str):
            triple = get_target_by_dump_machine(compile_func)
        self._triple = triple

    def get_target_triple(self) -> str | None:
        """The triple that the compiler makes code for, None when it cannot tell."""
        return self._triple() if callable(self._triple) else self._triple

    def __call__(
        self,
        output: str | os.PathLike[str],
        objects: str | Sequence[str],
        options: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        files = [objects] if isinstance(objects, (str, os.PathLike)) else list(objects)
        files += self._files
        flags = [*self._options, *(options or ())]
        if isinstance(self._compile, str):
            create_shared(output, files, flags, self._compile, **kwargs)
        else:
            self._compile(output, files, options=flags, **kwargs)
