"""Validation of a file before the dynamic linker loads it: loading runs code, and the linker's errors are poor.

The linker trusts a file: a wrong address in its tables ends the process. So an exported library gets a checksum
(`seal.py`), and is not loaded if it does not match. A library that was linked by hand has none; the tables that the
linker follows are checked instead.
"""

from __future__ import annotations

import mmap
import os
import platform
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from .errors import LoadError
from .seal import check_seal

_MACHINES = {
    3: "x86",
    8: "mips",
    20: "ppc",
    21: "ppc64",
    22: "s390x",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    243: "riscv",
    258: "loongarch",
}
_ALIASES = {
    "amd64": "x86_64",
    "arm64": "aarch64",
    "i386": "x86",
    "i686": "x86",
    "riscv64": "riscv",
    "riscv32": "riscv",
    "ppc64le": "ppc64",
    "armv7l": "arm",
    "loongarch64": "loongarch",
}
_RELOCATABLE, _SHARED = 1, 3
_PT_LOAD, _PT_DYNAMIC = 1, 2
_SHT_SYMTAB, _STB_LOCAL = 2, 0
_DT_STRTAB, _DT_STRSZ = 5, 10
# Entries of the dynamic section that are addresses: of tables, or of functions that run at load time.
_DT_ADDRESSES = (3, 4, 5, 6, 7, 12, 13, 17, 23, 25, 26, 32, 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFE)
_DT_SIZED = {7: 8, 17: 18, 23: 2, 25: 27, 26: 28, 5: 10}  # the table's address: its size in bytes
_DT_RELAENT, _DT_SYMENT = 9, 11
_MOST = 1 << 40  # most bytes of memory that a library may map


@dataclass(frozen=True, slots=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int  # in the file
    memory: int  # in memory: never less
    align: int

    def holds(self, address: int, size: int = 1) -> bool:
        return self.address <= address and address + size <= self.address + self.memory


class _Elf:
    """The header and the program headers of an ELF file, checked against the file's length."""

    def __init__(self, path: str, data: mmap.mmap | bytes) -> None:
        self.path = path
        self.data = data
        if len(data) < 20 or data[:4] != b"\x7fELF":
            raise LoadError(f"{path}: not a shared library: the file {_describe(bytes(data[:16]))}")
        self.is64 = data[4] == 2
        self.order = "<" if data[5] == 1 else ">"
        if len(data) < (64 if self.is64 else 52):
            raise LoadError(f"{path}: the file is truncated: it ends within the ELF header")
        self.kind, self.machine = self._read("HH", 16)
        form, at = ("QQ", 32) if self.is64 else ("II", 28)
        self.program_at, self.section_at = self._read(form, at)
        sizes = self._read("HHHHH", 54 if self.is64 else 42)
        self.program_size, self.program_count, self.section_size, self.section_count, _ = sizes

    def _read(self, form: str, at: int) -> tuple[int, ...]:
        try:
            return struct.unpack_from(self.order + form, self.data, at)
        except (struct.error, OverflowError):  # past the end of the file, or of the address space
            raise self.truncated(at + struct.calcsize(self.order + form)) from None

    def truncated(self, needed: int) -> LoadError:
        return LoadError(
            f"{self.path}: the file is truncated: it has {len(self.data)} bytes, "
            f"and should have at least {needed}"
        )

    def segments(self) -> list[_Segment]:
        found = []
        for i in range(self.program_count):
            at = self.program_at + i * self.program_size
            if self.is64:
                kind, _, offset, address, _, size, memory, align = self._read("IIQQQQQQ", at)
            else:
                kind, offset, address, _, size, memory, _, align = self._read("IIIIIIII", at)
            found.append(_Segment(kind, offset, address, size, memory, align))
        return found

    def check_length(self) -> None:
        """Check that everything the headers refer to is within the file."""
        needed = self.section_at + self.section_size * self.section_count
        for segment in self.segments():
            if segment.kind == _PT_LOAD:
                needed = max(needed, segment.offset + segment.size)
        if needed > len(self.data):
            raise self.truncated(needed)

    def damaged(self, what: str) -> LoadError:
        return LoadError(f"{self.path}: the file is damaged: {what}")

    def check_layout(self) -> None:
        """Check the segments: the system maps them at their addresses, over any other mapping."""
        wanted = 56 if self.is64 else 32
        if self.program_size != wanted or not 0 < self.program_count < 256:
            raise self.damaged("its program headers have the wrong size or number")
        end = 0
        for s in self.segments():
            if s.size > s.memory or s.address + s.memory > _MOST:
                raise self.damaged("a segment has impossible sizes")
            if s.kind == _PT_LOAD:
                if s.address < end or (s.address - s.offset) % 4096 or s.align & (s.align - 1):
                    raise self.damaged("its segments overlap or are not aligned")
                end = s.address + s.memory
        if not end:
            raise self.damaged("it has no segment to load")

    def dynamic(self) -> dict[int, int]:
        """The entries of the dynamic section, the first of each kind."""
        dynamic = next((segment for segment in self.segments() if segment.kind == _PT_DYNAMIC), None)
        if dynamic is None:
            return {}
        step, form = (16, "QQ") if self.is64 else (8, "II")
        found: dict[int, int] = {}
        for at in range(dynamic.offset, dynamic.offset + dynamic.size - step + 1, step):
            tag, value = self._read(form, at)
            if tag == 0:
                break
            found.setdefault(tag, value)
        return found

    def check_dynamic(self, found: dict[int, int]) -> None:
        """Check that the dynamic section points into memory that the file fills."""
        loaded = [segment for segment in self.segments() if segment.kind == _PT_LOAD]
        for tag in _DT_ADDRESSES:
            if tag in found:
                size = found.get(_DT_SIZED.get(tag, -1), 1) or 1
                if not any(segment.holds(found[tag], size) for segment in loaded):
                    raise self.damaged(f"entry {tag:#x} of its dynamic section points outside")
        if self.is64:
            self._check_relocations(found, loaded)

    def _check_relocations(self, found: dict[int, int], loaded: list[_Segment]) -> None:
        """Check the relocations: the linker writes to their addresses."""
        if found.get(_DT_RELAENT, 24) != 24 or found.get(_DT_SYMENT, 24) != 24:
            raise self.damaged("the entries of its tables have the wrong size")
        for table, size in ((7, 8), (23, 2)):
            home = next((s for s in loaded if table in found and s.holds(found[table])), None)
            if home is None:
                continue
            start = home.offset + found[table] - home.address
            for at in range(start, start + found.get(size, 0) - 23, 24):
                place, info, _ = self._read("QQq", at)
                if not any(segment.holds(place, 8) for segment in loaded) or info & 0xFFFFFFFF > 2048:
                    raise self.damaged("a relocation points outside")

    def symbols(self) -> tuple[list[str], list[str]]:
        """The global symbols of an object file: those that it defines, and those that it needs."""
        if not self.is64:
            raise LoadError(f"{self.path}: object code of 32 bits cannot be linked into this process")
        defined: list[str] = []
        needed: list[str] = []
        for name, section, _, _ in self._global_symbols(self._sections()):
            (defined if section else needed).append(name)
        return defined, needed

    def contents(self, symbol: str) -> bytes | None:
        """The bytes that an object file of 64 bits defines under a name; None if it does not define it."""
        sections = self._sections() if self.is64 else []
        for name, section, at, size in self._global_symbols(sections):
            if name == symbol and 0 < section < len(sections):
                start = sections[section][4] + at
                return bytes(self.data[start : start + size])
        return None

    def _sections(self) -> list[tuple[int, ...]]:
        return [
            self._read("IIQQQQIIQQ", self.section_at + i * self.section_size)
            for i in range(self.section_count)
        ]

    def _global_symbols(self, sections: list[tuple[int, ...]]) -> Iterator[tuple[str, int, int, int]]:
        """The name, section, place and size of each global symbol of an object file."""
        for _, kind, _, _, at, size, link, *_ in sections:
            if kind != _SHT_SYMTAB:
                continue
            if link >= len(sections):
                raise self.damaged("its symbols have no names")
            names_at, names_size = sections[link][4:6]
            names = bytes(self.data[names_at : names_at + names_size])
            for entry in range(at, at + size - 23, 24):
                name, info, _, section, place, length = self._read("IBBHQQ", entry)
                text = names[name : names.find(b"\0", name)].decode(errors="replace")
                if info >> 4 != _STB_LOCAL and text:
                    yield text, section, place, length

    def dynamic_names(self, found: dict[int, int]) -> bytes:
        """The names of all dynamic symbols."""
        address, size = found.get(_DT_STRTAB, 0), found.get(_DT_STRSZ, 0)
        for segment in self.segments():
            if segment.kind == _PT_LOAD and segment.address <= address < segment.address + segment.size:
                start = segment.offset + address - segment.address
                return bytes(self.data[start : start + size])
        return b""


def machine_of(code: int) -> str:
    """The name of ELF's machine number."""
    return _MACHINES.get(code, f"machine number {code}")


def file_kind(path: str) -> str:
    """The kind of a file by its first bytes: `shared`, `object`, `other`."""
    with open(path, "rb") as file:
        head = file.read(18)
    if head[:4] == b"\x7fELF" and len(head) == 18:
        code = struct.unpack_from("<H" if head[5] == 1 else ">H", head, 16)[0]
        return {_SHARED: "shared", _RELOCATABLE: "object"}.get(code, "other")
    return "other"


def check_shared_object(path: str, symbol: str) -> None:
    """Refuse a file that is not a whole shared object for this machine with `symbol` in it."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: there is no such file")
    if not os.path.isfile(path):
        raise LoadError(f"{path}: not a file")
    if os.path.getsize(path) == 0:
        raise LoadError(f"{path}: the file is empty")
    if sys.platform == "darwin":
        return  # Mach-O: left to the system's loader
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        elf = _Elf(path, data)
        _check_machine(elf, "library")
        if elf.kind != _SHARED:
            raise LoadError(f"{path}: an ELF file, but not a shared library; link it first")
        elf.check_length()
        check_seal(data, path)
        _check(elf, symbol)


def check_object(path: str) -> None:
    """Refuse an object file that is not whole or not for this machine."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        elf = _Elf(path, data)
        _check_machine(elf, "object file")
        elf.check_length()
        check_seal(data, path)


def object_symbols(path: str) -> tuple[list[str], list[str]]:
    """The global symbols that an object file defines, and those that it needs."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Elf(path, data).symbols()


def object_contents(path: str, symbol: str) -> bytes | None:
    """The bytes that an object file defines under a name; None if it does not, or is not an ELF file of 64 bits."""
    if file_kind(path) != "object":
        return None
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        return _Elf(path, data).contents(symbol)


def _check(elf: _Elf, symbol: str) -> None:
    elf.check_layout()
    dynamic = elf.dynamic()
    elf.check_dynamic(dynamic)
    if b"\0" + symbol.encode() + b"\0" not in b"\0" + elf.dynamic_names(dynamic):
        raise LoadError(
            f"{elf.path}: a shared library, but not one made by tilewright: it has no symbol {symbol}"
        )


def _check_machine(elf: _Elf, what: str) -> None:
    host = platform.machine().lower()
    host = _ALIASES.get(host, host)
    machine = machine_of(elf.machine)
    if machine != host:
        raise LoadError(f"{elf.path}: the {what} is for {machine}, this machine is {host}")
    bits = struct.calcsize("P") * 8
    if elf.is64 != (bits == 64):
        raise LoadError(f"{elf.path}: the {what} has {64 if elf.is64 else 32} bits, this process has {bits}")
    if (elf.order == "<") != (sys.byteorder == "little"):
        raise LoadError(f"{elf.path}: the {what} has the other byte order")


def _describe(head: bytes) -> str:
    known = {
        b"MZ": "is a Windows program",
        b"\xcf\xfa\xed\xfe": "is a macOS library",
        b"\xca\xfe\xba\xbe": "is a macOS library",
        b"\0asm": "is a WebAssembly module",
        b"!<arch>": "is a static library (.a)",
        b"BC\xc0\xde": "is LLVM bitcode",
        b"PK\x03\x04": "is a zip archive",
    }
    for magic, text in known.items():
        if head.startswith(magic):
            return text
    if head and all(32 <= byte < 127 or byte in b"\t\r\n" for byte in head):
        return f"is text, beginning with {head.decode()!r}"
    return f"begins with {head[:4].hex(' ')}, not with the ELF magic number"
