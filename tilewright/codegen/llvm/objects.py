"""Machine code of modules, made by LLVM or taken from the cache on disk."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from ... import config
from ...forks import is_interruptible, result_of_child
from ...ir.errors import BuildError
from ...ir.transform import PassContext
from ...runtime.cache import DiskCache, compiled_code, digest
from ...version import VERSION
from .engine import Machine, llvm_version

__all__ = ["VERSION", "Compiled", "cache_of_this_build", "compiled", "keep_code", "made_by_llvm"]


class Compiled(NamedTuple):
    """An object file, and the C functions that it calls without having them."""

    code: bytes
    needs: tuple[str, ...]

    def packed(self) -> bytes:
        return json.dumps(self.needs).encode() + b"\n" + self.code

    @staticmethod
    def unpacked(data: bytes) -> Compiled:
        head, _, code = data.partition(b"\n")
        return Compiled(code, tuple(json.loads(head)))


def cache_of_this_build() -> DiskCache | None:
    """Where the code that is built now is kept, as the knobs and the context say."""
    if config.debug.value >= 3 or not PassContext.current().option("codegen.cache"):
        return None
    return compiled_code()


@lru_cache(maxsize=1)
def _versions() -> tuple[str, ...]:
    """What made the code: another version may make other code of the same text."""
    return (VERSION, *llvm_version())


def compiled(
    cache: DiskCache | None, machine: Machine, sources: Sequence[str], optimized: Callable[[], Any]
) -> Compiled:
    """The object code of `optimized()`, which the texts `sources` and the machine determine."""
    if cache is None:
        return made_by_llvm(machine, sources, optimized)
    settings = (machine.triple, machine.cpu, machine.features, machine.opt_level, machine.abi)
    key = digest("object code", *_versions(), *settings, repr(config.code_key()), *sources)
    found = cache.get(key)
    if found is not None:
        return Compiled.unpacked(found)
    made = made_by_llvm(machine, sources, optimized)
    cache.put(key, made.packed())
    return made


# Bytes of text that LLVM works on for a second or so. A fork takes a hundredth of that, and can be interrupted.
_LARGE = 3 << 16


def made_by_llvm(machine: Machine, sources: Sequence[str], optimized: Callable[[], Any]) -> Compiled:
    """The object code of `optimized()`; large programs are compiled in a child, so that Ctrl-C ends it at once."""
    if sum(map(len, sources)) < _LARGE or not is_interruptible():
        return _compile(machine, optimized())
    answer = result_of_child(lambda: _compile(machine, optimized()).packed())
    if isinstance(answer, bytes):
        return Compiled.unpacked(answer)
    if answer > 0:  # it was refused: here, it says why
        return _compile(machine, optimized())
    raise BuildError(f"LLVM was ended by {signal.Signals(-answer).name} (out of memory, or a fault in LLVM)")


def _compile(machine: Machine, module: Any) -> Compiled:
    if config.debug.value >= 3:
        machine.verify(module)
    needs = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
    return Compiled(machine.object_code(module), tuple(needs))


_kept: dict[Path, int] = {}


def keep_code(name: str, text: str, machine: Machine, optimized: Callable[[], Any]) -> None:
    """Write what LLVM gets, what it makes of it, and the assembly, under TILEWRIGHT_DEBUG=2 and above."""
    folder = config.dump.value or Path("tilewright_debug")
    times = _kept[folder / name] = _kept.get(folder / name, 0) + 1
    stem = name if times == 1 else f"{name}_{times}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{stem}.ll").write_text(text)
        (folder / f"{stem}.opt.ll").write_text(str(optimized()))
        (folder / f"{stem}.s").write_text(machine.assembly(optimized()))
    except OSError as error:
        raise ValueError(
            f"{config.debug.variable}={config.debug.value}: the code of {name} cannot be written to {folder}: "
            f"{error.strerror or error}; name another folder in {config.dump.variable}"
        ) from None
