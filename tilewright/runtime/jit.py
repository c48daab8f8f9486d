"""Object code linked into this process by LLVM, so that no C compiler is needed to run it."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..forks import held_by_forks
from . import elf
from .errors import LoadError
from .library import METADATA, Library
from .link import merged_metadata

lock = threading.RLock()
_BY_LINKER = ("_GLOBAL_OFFSET_TABLE_",)  # symbols that a linker defines


# Tiles end in hundreds of stores in one basic block, and two of LLVM's passes compare each with all others:
# seconds without any result.
_LIMITS = (
    "-combiner-store-merging=false",
    "-dse-memoryssa-scanlimit=20",
    "-dse-memoryssa-walklimit=20",
    "-dse-memoryssa-partial-store-limit=2",
    "-dse-memoryssa-defs-per-block-limit=200",
)


@lru_cache(maxsize=1)
def llvm() -> Any:
    """The binding of LLVM, initialised."""
    import llvmlite.binding as binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    for option in _LIMITS:
        binding.set_option("tilewright", option)
    # A fork while another thread is in LLVM would copy LLVM in an inconsistent state, with its lock held.
    held_by_forks(lock, binding.ffi.lib._lock._lock)
    return binding


class _Linker:
    """LLVM's JIT linker for this process. It leaks 9 KiB per library, so each linker serves a limited number of
    libraries, and is freed with the last of them."""

    _SERVES = 32
    served = _SERVES
    jit: Any = None

    @classmethod
    def next(cls) -> tuple[Any, str]:
        """A linker, and the name of the next library in it."""
        if cls.served == cls._SERVES:
            binding = llvm()
            target = binding.Target.from_default_triple()
            machine = target.create_target_machine(jit=True, codemodel="default", reloc="pic")
            cls.jit, cls.served = binding.create_lljit_compiler(machine, use_jit_link=True), 0
        cls.served += 1
        return cls.jit, f"tilewright{cls.served}"


class JitLibrary:
    """Object code linked into this process. Keeps the code alive as long as it lives."""

    def __init__(
        self,
        code: bytes | Sequence[bytes],
        *,
        exports: tuple[str, ...],
        imports: dict[str, int] | None = None,
    ) -> None:
        self.symbols = frozenset(exports)
        with lock:
            builder = llvm().JITLibraryBuilder().add_current_process()
            for one in [code] if isinstance(code, bytes) else code:
                builder.add_object_img(one)
            for name, address in (imports or {}).items():
                builder.import_symbol(name, address)
            for name in exports:
                builder.export_symbol(name)
            try:
                self._tracker = builder.link(*_Linker.next())  # it holds the linker
            except RuntimeError as err:
                raise LoadError(f"the compiled code could not be linked: {err}") from None

    def address(self, symbol: str) -> int:
        try:
            return int(self._tracker[symbol])
        except KeyError:
            raise LoadError(f"the compiled code has no symbol {symbol}") from None


def object_of_llvm(file: str, output: str) -> None:
    """Compile LLVM's text (`.ll`) or bitcode for the machine that it names; its functions name their CPU."""
    data = Path(file).read_bytes()
    with lock:
        binding = llvm()
        try:
            if data[:4] in (b"BC\xc0\xde", b"\xde\xc0\x17\x0b"):
                module = binding.parse_bitcode(data)
            else:
                module = binding.parse_assembly(data.decode())
            module.verify()
            target = binding.Target.from_triple(module.triple or binding.get_process_triple())
            machine = target.create_target_machine(opt=3, reloc="pic", codemodel="default")
            code = machine.emit_object(module)
        except (RuntimeError, UnicodeDecodeError) as error:
            raise LoadError(f"{file}: LLVM cannot read it: {error}") from None
    Path(output).write_bytes(code)


class ObjectLibrary(Library):
    """Object files that form a whole library, linked into this process."""

    def __init__(self, path: str, objects: Sequence[str]) -> None:
        self.path, self.name = path, os.path.basename(path)
        defined: dict[str, None] = {}
        needed: dict[str, None] = {}
        for file in objects:
            made, wanted = elf.object_symbols(file)
            defined.update(dict.fromkeys(made))
            needed.update(dict.fromkeys(wanted))
        if METADATA not in defined:
            raise LoadError(f"it has no symbol {METADATA}")
        here = ctypes.CDLL(None)
        known = {*defined, *_BY_LINKER}
        missing = [n for n in needed if n not in known and not hasattr(here, n)]
        if missing:
            raise LoadError(
                f"{path}: it calls {', '.join(missing)}, which is not in this process: load the library that has it "
                "with ctypes.CDLL(path, ctypes.RTLD_GLOBAL) first"
            )
        self._described = merged_metadata(objects)
        self._linked = JitLibrary([Path(o).read_bytes() for o in objects], exports=tuple(defined))

    def address(self, symbol: str) -> int:
        return self._linked.address(symbol) if symbol in self._linked.symbols else 0

    def metadata(self) -> bytes:
        if self._described is not None:
            return self._described.rstrip(b"\0")
        return ctypes.string_at(self.address(METADATA))
