"""Linking for Android: with the compiler of the NDK that the environment variable TVM_NDK_CC names."""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..runtime.errors import TVMError
from .cc import create_shared as _create_shared
from .cc import create_staticlib as _create_staticlib
from .cc import get_target_by_dump_machine


def _compiler() -> str:
    found = os.environ.get("TVM_NDK_CC")
    if not found:
        raise TVMError(
            "contrib.ndk: there is no compiler for Android; set the environment variable TVM_NDK_CC to that of the "
            "NDK, such as …/toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android30-clang"
        )
    return found


def create_shared(
    output: str | os.PathLike[str], objects: str | Sequence[str], options: Sequence[str] | None = None
) -> None:
    """Link object files to a shared library for Android: `mod.export_library("net.so", fcompile=ndk.create_shared)`."""
    _create_shared(output, objects, options, _compiler())


def create_staticlib(output: str | os.PathLike[str], inputs: str | Sequence[str]) -> None:
    """Collect object files in a static library."""
    _create_staticlib(output, inputs)


def get_target_triple() -> str | None:
    """The triple that the NDK's compiler makes code for."""
    return get_target_by_dump_machine(_compiler())()


create_shared.output_format = "so"  # type: ignore[attr-defined]
create_shared.get_target_triple = get_target_triple  # type: ignore[attr-defined]
create_staticlib.output_format = "a"  # type: ignore[attr-defined]
