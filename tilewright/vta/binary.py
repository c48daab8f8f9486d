"""Programs for the chip as files: functions with their arguments, instructions, micro-ops and relocations.

    ┌───────┬─────────┬───────────┬─────────────┬─────────────────────────┬──────────────────────────────────┬──────┐
    │ magic │ version │ size of   │ size of     │ header: JSON            │ for each function: instructions, │ seal │
    │ 8     │ 4       │ header  4 │ the file  8 │ configuration, functions│ micro-ops, relocations           │      │
    └───────┴─────────┴───────────┴─────────────┴─────────────────────────┴──────────────────────────────────┴──────┘

All numbers are little-endian. A relocation is a pair of 32-bit numbers: an instruction, and the argument from whose
start its field `dram` counts elements (-1: the function's micro-ops). Nothing in a file is executed while it is loaded.
"""

from __future__ import annotations

import math
import os
import struct
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ..files import write_whole
from ..runtime.accelerator import Argument
from ..runtime.errors import LoadError
from ..runtime.json_reader import read_json
from ..runtime.module import CHIP_PROGRAM
from ..runtime.seal import MARK, check_seal, checksum, sealed
from .assembler import disassemble
from .config import SHAPE, Config
from .errors import InstructionError
from .isa import (
    INSTRUCTION_BYTES,
    MICRO_OP_BYTES,
    Instruction,
    Load,
    MicroOp,
    Store,
    decode_all,
    decode_micro_ops,
    encode_all,
    encode_micro_ops,
)

MICRO_OPS: Final = -1  # the argument of a relocation to the function's micro-ops
DIRECTIONS: Final = ("in", "out", "inout")

_VERSION: Final = 1
_START: Final = struct.Struct("<8sIIQ")
_RELOCATION: Final = struct.Struct("<ii")
_SEAL: Final = len(MARK) + len(checksum())


class Relocation(NamedTuple):
    """An instruction whose field `dram` counts elements from the start of an argument."""

    instruction: int
    argument: int


class Code(NamedTuple):
    """The code of a function: instructions, the micro-ops that they load, and the arguments that they address."""

    instructions: tuple[Instruction, ...]
    micro_ops: tuple[MicroOp, ...] = ()
    relocations: tuple[Relocation, ...] = ()


class Function(NamedTuple):
    """A function of a program."""

    name: str
    arguments: tuple[Argument, ...]
    code: Code


@dataclass
class Program:
    """Functions for one configuration of the chip."""

    config: Config
    functions: dict[str, Function] = field(default_factory=dict)

    def add(self, function: Function) -> None:
        """Add a function; its name must be new."""
        if function.name in self.functions:
            raise ValueError(f"the program already has a function {function.name!r}")
        self.functions[function.name] = function

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the program to a file, whole or not at all."""
        write_whole(path, self.encode())

    @staticmethod
    def load(path: str | os.PathLike[str], config: Config) -> Program:
        """The program in a file; refuses files that are damaged, foreign or for another configuration."""
        with open(path, "rb") as file:
            return Program.decode(file.read(), config, os.fspath(path))

    def encode(self) -> bytes:
        """The bytes of the file."""
        sections, table = [], []
        for f in self.functions.values():
            code = [
                encode_all(f.code.instructions, self.config),
                encode_micro_ops(f.code.micro_ops, self.config),
                b"".join(_RELOCATION.pack(*r) for r in f.code.relocations),
            ]
            sections += code
            arguments = [[a.name, a.dtype, list(a.shape), a.direction] for a in f.arguments]
            table.append({"name": f.name, "arguments": arguments, "sizes": [len(part) for part in code]})
        keys = self.config.keys()
        header = _json({"config": {name: keys[name] for name in SHAPE}, "functions": table})
        size = _START.size + len(header) + sum(map(len, sections)) + _SEAL
        return sealed(_START.pack(CHIP_PROGRAM, _VERSION, len(header), size) + header + b"".join(sections))

    @staticmethod
    def decode(data: bytes, config: Config, where: str = "program") -> Program:
        """The program in the bytes of a file."""
        header, body = _opened(data, where)
        _check_config(header, config, where)
        program = Program(config)
        at = 0
        listed = header.get("functions")
        for entry in listed if isinstance(listed, list) else [None]:
            name, arguments, sizes = _entry(entry, where)
            if name in program.functions:
                raise LoadError(f"{where}: damaged: two functions are called {name!r}")
            parts = [body[at : (at := at + size)] for size in sizes]
            program.add(
                Function(name, arguments, _code(parts, sizes, len(arguments), config, f"{where}: {name}"))
            )
        if at != len(body):
            raise LoadError(
                f"{where}: damaged: {len(body)} bytes of code are there, and {at} belong to functions"
            )
        return program

    def text(self, instructions: bool = True, micro_ops: bool = True) -> str:
        """The program as text: each function with its arguments, numbered instructions and micro-ops."""
        lines = [f"# configuration {self.config.fingerprint}"]
        for f in self.functions.values():
            lines.append(f"# function {f.name}")
            lines += [
                f"#   argument {i}: {a.name}: {a.dtype}[{', '.join(map(str, a.shape))}], {a.direction}"
                for i, a in enumerate(f.arguments)
            ]
            places = dict(f.code.relocations)
            for number, instruction in enumerate(f.code.instructions if instructions else ()):
                line = f"{disassemble(instruction):<88} # {number}"
                if number in places:
                    argument = places[number]
                    name = "micro-ops" if argument == MICRO_OPS else f.arguments[argument].name
                    line += f", dram counts from {name}"
                lines.append(line)
            lines += [
                f"{f'uop dst={u.dst} src={u.src} wgt={u.wgt}':<88} # micro-op {number}"
                for number, u in enumerate(f.code.micro_ops if micro_ops else ())
            ]
        return "".join(f"{line}\n" for line in lines)


def _json(value: Any) -> bytes:
    import json

    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _opened(data: bytes, where: str) -> tuple[dict[str, Any], bytes]:
    """The header and the code of a file that is whole."""
    if len(data) < _START.size and CHIP_PROGRAM.startswith(data[: len(CHIP_PROGRAM)]):
        raise LoadError(
            f"{where}: the file is truncated: it has {len(data)} bytes, not even a header; copy it again"
        )
    magic, version, length, size = _START.unpack_from(data.ljust(_START.size, b"\0"))
    if magic != CHIP_PROGRAM:
        raise LoadError(f"{where}: this is not a program for the chip: it begins with {data[:8]!r}")
    if version != _VERSION:
        raise LoadError(
            f"{where}: the file has version {version} of the format, and version {_VERSION} is read; compile it again"
        )
    if len(data) < size:
        raise LoadError(f"{where}: the file is truncated: it has {len(data)} of {size} bytes; copy it again")
    end = check_seal(data, where)
    if end != size - _SEAL or len(data) != size or _START.size + length > end:
        raise LoadError(f"{where}: the file is damaged: its sizes contradict each other; copy it again")
    header = read_json(data[_START.size : _START.size + length], f"{where}: the header is damaged")
    if not isinstance(header, dict):
        raise LoadError(f"{where}: damaged: the header is not a table")
    return header, data[_START.size + length : end]


def _check_config(header: dict[str, Any], config: Config, where: str) -> None:
    made, here = header.get("config"), config.keys()
    if not isinstance(made, dict):
        raise LoadError(f"{where}: damaged: the header has no configuration")
    differ = [name for name in SHAPE if made.get(name) != here[name]]
    if differ:
        told = ", ".join(f"{name}={made.get(name)!r} (here {here[name]})" for name in differ)
        raise LoadError(
            f"{where}: the program is for another configuration of the chip: {told}; compile it again, or set "
            "VTA_CONFIG to its configuration"
        )


def _entry(entry: Any, where: str) -> tuple[str, tuple[Argument, ...], list[int]]:
    """The name, the arguments and the sizes of the sections of a function."""
    try:
        name, given, sizes = entry["name"], entry["arguments"], entry["sizes"]
        arguments = tuple(Argument(n, d, tuple(shape), way) for n, d, shape, way in given)
    except (KeyError, TypeError, ValueError):
        raise LoadError(f"{where}: damaged: the entry of a function is incomplete") from None
    texts = [name, *(text for a in arguments for text in (a.name, a.dtype))]
    numbers = [*(sizes if isinstance(sizes, list) else [None]), *(n for a in arguments for n in a.shape)]
    if (
        not all(isinstance(text, str) for text in texts)
        or not all(type(n) is int and 0 <= n < 1 << 40 for n in numbers)
        or len(sizes) != 3
        or any(a.direction not in DIRECTIONS or math.prod(a.shape) >= 1 << 62 for a in arguments)
    ):
        raise LoadError(f"{where}: damaged: the entry of function {name!r} is not one")
    return name, arguments, sizes


def _code(parts: list[bytes], sizes: list[int], arguments: int, config: Config, where: str) -> Code:
    """The code of a function; refuses sections that are cut off and relocations that lead nowhere."""
    for part, size, unit in zip(
        parts, sizes, (INSTRUCTION_BYTES, MICRO_OP_BYTES, _RELOCATION.size), strict=True
    ):
        if len(part) != size or size % unit:
            raise LoadError(
                f"{where}: damaged: a section of {size} bytes is cut off or has a part of an entry"
            )
    try:
        instructions, micro_ops = decode_all(parts[0], config), decode_micro_ops(parts[1], config)
    except InstructionError as error:
        raise LoadError(f"{where}: damaged: {error}") from None
    relocations = [Relocation(*pair) for pair in _RELOCATION.iter_unpack(parts[2])]
    for number, argument in relocations:
        there = 0 <= number < len(instructions) and isinstance(instructions[number], (Load, Store))
        if not there or not MICRO_OPS <= argument < arguments:
            raise LoadError(
                f"{where}: damaged: a relocation of instruction {number} to argument {argument}, which do not exist or "
                "have no address"
            )
    return Code(tuple(instructions), tuple(micro_ops), tuple(relocations))
