"""The instruction set: five instructions of 128 bits, and micro-ops of 32.

    LOAD    rows of elements from DRAM into a buffer, with zeros around them     load engine (inp and wgt) or compute
    STORE   rows of elements of acc to DRAM                                      store engine
    GEMM    a kernel of micro-ops in two loops: acc += inp @ wgt.T               compute engine
    ALU     a kernel of micro-ops in two loops: acc = op(acc, acc or a number)   compute engine
    FINISH  the end of the program                                               compute engine

All instructions begin alike. The flags refer to the neighbours of the engine in the row load, compute, store:

     0     3  4  5  6  7                                                    127
    ┌──────┬──┬──┬──┬──┬──────────────────────────────────────────────────────┐
    │opcode│po│po│pu│pu│ fields of the instruction                            │
    └──────┴──┴──┴──┴──┴──────────────────────────────────────────────────────┘
            │  │  │  └ push_next: a token to the next engine at the end
            │  │  └─── push_prev: a token to the previous engine at the end
            │  └────── pop_next: wait for a token from the next engine
            └───────── pop_prev: wait for a token from the previous engine

A kernel is a range of micro-ops, each of which names three elements: those of its result and of its operands. GEMM and
ALU run the kernel in two loops that move the elements:

    for o in range(outer):
        for i in range(inner):
            for (dst, src, wgt) in uop[begin:end]:
                d = dst + o * acc_outer + i * acc_inner        # GEMM
                s = src + o * inp_outer + i * inp_inner
                w = wgt + o * wgt_outer + i * wgt_inner
                acc[d] = 0 if reset else acc[d] + inp[s] @ wgt[w].T

Widths of indices depend on the configuration: `layout.layouts` has the tables of fields, which the encoder reads. The
pictures below have the fields, lowest bits first, with their widths in the classic configuration.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final, NamedTuple

from .config import Config
from .errors import InstructionError
from .layout import ALU_OPS, INSTRUCTION_BITS, MEMORIES, MICRO_OP_BITS, OPCODES, Layout

INSTRUCTION_BYTES: Final = INSTRUCTION_BITS // 8
MICRO_OP_BYTES: Final = MICRO_OP_BITS // 8

LOAD_ENGINE, COMPUTE_ENGINE, STORE_ENGINE = 1, 2, 3
ENGINES: Final = {LOAD_ENGINE: "load", COMPUTE_ENGINE: "compute", STORE_ENGINE: "store"}
FLAGS: Final = ("pop_prev", "pop_next", "push_prev", "push_next")


class MicroOp(NamedTuple):
    """A micro-op: the elements of acc, of inp (ALU: acc) and of wgt that it works on.

    │dst:11│src:11│wgt:10│
    """

    dst: int
    src: int
    wgt: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Instruction:
    """An instruction; its fields have the names of the layout."""

    kind: ClassVar[str]
    pop_prev: int = 0
    pop_next: int = 0
    push_prev: int = 0
    push_next: int = 0

    @property
    def engine(self) -> int:
        """The engine that executes the instruction."""
        return COMPUTE_ENGINE

    @property
    def pops(self) -> tuple[int, ...]:
        """The engines whose token it waits for."""
        return (self.engine - 1,) * self.pop_prev + (self.engine + 1,) * self.pop_next

    @property
    def pushes(self) -> tuple[int, ...]:
        """The engines that get a token at its end."""
        return (self.engine - 1,) * self.push_prev + (self.engine + 1,) * self.push_next


@dataclass(frozen=True, kw_only=True, slots=True)
class Load(Instruction):
    """Rows from DRAM into a buffer, with zeros around them.

    DRAM  ··ab··     buffer  0 0 0 0     top=1, left=1, right=1,
          ··cd··  ->         0 a b 0     rows=2, columns=2
                             0 c d 0

    │opcode:3│flags:4│memory:3│sram:13│dram:32│rows:16│columns:16│stride:16│top:4│bottom:4│left:4│right:4│
    """

    kind: ClassVar[str] = "load"
    memory: int = MEMORIES["inp"]
    sram: int = 0
    dram: int = 0
    rows: int = 0
    columns: int = 0
    stride: int = 0
    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    @property
    def engine(self) -> int:
        return LOAD_ENGINE if self.memory in (MEMORIES["inp"], MEMORIES["wgt"]) else COMPUTE_ENGINE

    @property
    def elements(self) -> int:
        """The number of elements that it writes into the buffer."""
        return (self.top + self.rows + self.bottom) * (self.left + self.columns + self.right)


@dataclass(frozen=True, kw_only=True, slots=True)
class Store(Instruction):
    """Rows of acc to DRAM, as they are (memory acc) or truncated to the type of inp (memory out).

    │opcode:3│flags:4│memory:3│sram:13│dram:32│rows:16│columns:16│stride:16│
    """

    kind: ClassVar[str] = "store"
    memory: int = MEMORIES["out"]
    sram: int = 0
    dram: int = 0
    rows: int = 0
    columns: int = 0
    stride: int = 0

    @property
    def engine(self) -> int:
        return STORE_ENGINE


@dataclass(frozen=True, kw_only=True, slots=True)
class Gemm(Instruction):
    """A kernel of products in two loops: acc[d] += inp[s] @ wgt[w].T, or acc[d] = 0 with `reset`.

    │opcode:3│flags:4│reset:1│begin:13│end:14│outer:14│inner:14│acc_outer:11│acc_inner:11│
    │inp_outer:11│inp_inner:11│wgt_outer:10│wgt_inner:10│
    """

    kind: ClassVar[str] = "gemm"
    reset: int = 0
    begin: int = 0
    end: int = 0
    outer: int = 0
    inner: int = 0
    acc_outer: int = 0
    acc_inner: int = 0
    inp_outer: int = 0
    inp_inner: int = 0
    wgt_outer: int = 0
    wgt_inner: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Alu(Instruction):
    """A kernel of elementwise operations in two loops: acc[d] = op(acc[d], acc[s]), or op(acc[s], imm).

    │opcode:3│flags:4│begin:13│end:14│outer:14│inner:14│dst_outer:11│dst_inner:11│src_outer:11│src_inner:11│
    │op:3│use_imm:1│imm:16│

    `shr` is an arithmetic shift to the right, with a negative amount one to the left; it shifts by at most the width of
    a number minus 1. Numbers wrap around.
    """

    kind: ClassVar[str] = "alu"
    begin: int = 0
    end: int = 0
    outer: int = 0
    inner: int = 0
    dst_outer: int = 0
    dst_inner: int = 0
    src_outer: int = 0
    src_inner: int = 0
    op: int = 0
    use_imm: int = 0
    imm: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish(Instruction):
    """The end of the program: it comes once, as the last instruction.

    │opcode:3│flags:4│
    """

    kind: ClassVar[str] = "finish"


CLASSES: Final[dict[str, type[Instruction]]] = {c.kind: c for c in (Load, Store, Gemm, Alu, Finish)}
_BY_OPCODE: Final = {OPCODES[kind]: kind for kind in CLASSES}
FIELD_NAMES: Final = {kind: tuple(f.name for f in fields(c)) for kind, c in CLASSES.items()}


def _pack(layout: Layout, values: Any, what: str) -> int:
    """The fields of a record as one number; refuses values that do not fit."""
    word = at = 0
    for f in layout:
        value = OPCODES[values.kind] if f.name == "opcode" else getattr(values, f.name)
        if not f.low <= value <= f.high:
            raise InstructionError(
                f"{what}: {f.name}={value} does not fit its field of {f.width} bits, which holds {f.low} to {f.high}: "
                f"{f.meaning}"
            )
        word |= (value & ((1 << f.width) - 1)) << at
        at += f.width
    return word


def _unpack(layout: Layout, word: int, what: str) -> dict[str, int]:
    """The fields in a number; refuses bits beyond the last field."""
    found = {}
    for f in layout:
        value = word & ((1 << f.width) - 1)
        found[f.name] = value - (1 << f.width) if f.signed and value > f.high else value
        word >>= f.width
    if word:
        raise InstructionError(f"{what}: bits are set that belong to no field; the instruction is damaged")
    return found


def encode(instruction: Instruction, config: Config) -> bytes:
    """The 16 bytes of an instruction, least significant byte first."""
    word = _pack(config.layouts[instruction.kind], instruction, instruction.kind.upper())
    return word.to_bytes(INSTRUCTION_BYTES, "little")


def decode(data: bytes, config: Config, what: str = "instruction") -> Instruction:
    """The instruction in 16 bytes; refuses reserved opcodes, memories and operations."""
    if len(data) != INSTRUCTION_BYTES:
        raise InstructionError(
            f"{what}: {len(data)} bytes are given, and an instruction has {INSTRUCTION_BYTES}"
        )
    word = int.from_bytes(data, "little")
    kind = _BY_OPCODE.get(word & 7)
    if kind is None:
        raise InstructionError(
            f"{what}: opcode {word & 7} is reserved (bytes {data.hex()}); the chip has "
            + ", ".join(
                f"{number} {name.upper()}" for name, number in sorted(OPCODES.items(), key=lambda p: p[1])
            )
        )
    values = _unpack(config.layouts[kind], word, f"{what}: {kind.upper()}")
    if "memory" in values and values["memory"] not in MEMORIES.values():
        raise InstructionError(f"{what}: {kind.upper()} of memory {values['memory']}, which is reserved")
    if "op" in values and values["op"] not in ALU_OPS.values():
        raise InstructionError(f"{what}: ALU with operation {values['op']}, which is reserved")
    return CLASSES[kind](**{name: values[name] for name in FIELD_NAMES[kind]})


def encode_all(instructions: Iterable[Instruction], config: Config) -> bytes:
    """The bytes of instructions, one behind the other."""
    return b"".join(encode(i, config) for i in instructions)


def decode_all(data: bytes, config: Config) -> list[Instruction]:
    """The instructions in bytes; an error names the number of the instruction."""
    if len(data) % INSTRUCTION_BYTES:
        raise InstructionError(
            f"{len(data)} bytes are not a whole number of instructions of {INSTRUCTION_BYTES} bytes; "
            "the code is truncated"
        )
    return [
        decode(data[at : at + INSTRUCTION_BYTES], config, f"instruction {at // INSTRUCTION_BYTES}")
        for at in range(0, len(data), INSTRUCTION_BYTES)
    ]


def encode_micro_op(micro_op: MicroOp, config: Config) -> bytes:
    """The 4 bytes of a micro-op."""
    return _pack(config.layouts["micro-op"], micro_op, "micro-op").to_bytes(MICRO_OP_BYTES, "little")


def encode_micro_ops(micro_ops: Sequence[MicroOp], config: Config) -> bytes:
    """The bytes of micro-ops, one behind the other."""
    dst, src, wgt = config.layouts["micro-op"]
    words = []
    for u in micro_ops:  # there are thousands in a program
        if not (0 <= u.dst <= dst.high and 0 <= u.src <= src.high and 0 <= u.wgt <= wgt.high):
            encode_micro_op(u, config)  # refuses it
        words.append(u.dst | u.src << dst.width | u.wgt << (dst.width + src.width))
    return struct.pack(f"<{len(words)}I", *words)


def decode_micro_ops(data: bytes, config: Config) -> list[MicroOp]:
    """The micro-ops in bytes."""
    if len(data) % MICRO_OP_BYTES:
        raise InstructionError(
            f"{len(data)} bytes are not a whole number of micro-ops of {MICRO_OP_BYTES} bytes; the code is truncated"
        )
    layout = config.layouts["micro-op"]
    return [
        MicroOp(**_unpack(layout, int.from_bytes(data[at : at + MICRO_OP_BYTES], "little"), "micro-op"))
        for at in range(0, len(data), MICRO_OP_BYTES)
    ]
