"""The bit fields of instructions and micro-ops, as data: the encoder, the documentation and the check of a
configuration all read these tables.

Fields are packed from bit 0 upwards, in the order of the table. Widths of indices follow from the sizes of the buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

INSTRUCTION_BITS: Final = 128
MICRO_OP_BITS: Final = 32

OPCODES: Final = {"load": 0, "store": 1, "gemm": 2, "finish": 3, "alu": 4}
# The memories that LOAD and STORE name. `acc8` loads bytes into acc with their sign extended.
MEMORIES: Final = {"uop": 0, "wgt": 1, "inp": 2, "acc": 3, "out": 4, "acc8": 5}
ALU_OPS: Final = {"min": 0, "max": 1, "add": 2, "shr": 3, "mul": 4}

_EXTENT_BITS: Final = 14
_IMMEDIATE_BITS: Final = 16
_DRAM_BITS: Final = 32
_SIZE_BITS: Final = 16
_PAD_BITS: Final = 4


class Field(NamedTuple):
    """A field of an instruction: its width in bits and its meaning."""

    name: str
    width: int
    meaning: str
    signed: bool = False

    @property
    def low(self) -> int:
        """The least value."""
        return -(1 << (self.width - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """The greatest value."""
        return (1 << (self.width - self.signed)) - 1


Layout = tuple[Field, ...]

_HEAD: Final = (
    Field("opcode", 3, "which instruction: 0 LOAD, 1 STORE, 2 GEMM, 3 FINISH, 4 ALU; others are reserved"),
    Field("pop_prev", 1, "wait for a token from the previous engine before the start"),
    Field("pop_next", 1, "wait for a token from the next engine before the start"),
    Field("push_prev", 1, "send a token to the previous engine at the end"),
    Field("push_next", 1, "send a token to the next engine at the end"),
)


def _transfer(index: int) -> Layout:
    return (
        Field("memory", 3, "the buffer: 0 uop, 1 wgt, 2 inp, 3 acc, 4 out, 5 acc8; others are reserved"),
        Field("sram", index, "the first element in the buffer"),
        Field("dram", _DRAM_BITS, "the first element in DRAM: its address divided by the size of an element"),
        Field("rows", _SIZE_BITS, "rows that are transferred; 0 transfers nothing"),
        Field("columns", _SIZE_BITS, "elements of a row"),
        Field("stride", _SIZE_BITS, "elements in DRAM from the start of a row to the start of the next"),
    )


_PADS: Final = (
    Field("top", _PAD_BITS, "rows of zeros above"),
    Field("bottom", _PAD_BITS, "rows of zeros below"),
    Field("left", _PAD_BITS, "elements of zeros before each row"),
    Field("right", _PAD_BITS, "elements of zeros behind each row"),
)


def _loops(uop: int) -> Layout:
    return (
        Field("begin", uop, "the first micro-op of the kernel"),
        Field("end", uop + 1, "the micro-op behind the last one of the kernel"),
        Field("outer", _EXTENT_BITS, "iterations of the outer loop"),
        Field("inner", _EXTENT_BITS, "iterations of the inner loop"),
    )


def _steps(name: str, width: int) -> Layout:
    return (
        Field(f"{name}_outer", width, f"added to the index in {name} by an iteration of the outer loop"),
        Field(f"{name}_inner", width, f"added to the index in {name} by an iteration of the inner loop"),
    )


def layouts(index_bits: Mapping[str, int]) -> dict[str, Layout]:
    """The fields of each instruction and of a micro-op, by the width of an index in each of uop, inp, wgt and acc."""
    uop, inp, wgt, acc = (index_bits[name] for name in ("uop", "inp", "wgt", "acc"))
    transfer = _transfer(max(uop, inp, wgt, acc))
    reset = Field("reset", 1, "write zeros instead of sums")
    return {
        "load": (*_HEAD, *transfer, *_PADS),
        "store": (*_HEAD, *transfer),
        "gemm": (*_HEAD, reset, *_loops(uop), *_steps("acc", acc), *_steps("inp", inp), *_steps("wgt", wgt)),
        "alu": (
            *_HEAD,
            *_loops(uop),
            *_steps("dst", acc),
            *_steps("src", acc),
            Field("op", 3, "the operation: 0 min, 1 max, 2 add, 3 shr, 4 mul; others are reserved"),
            Field("use_imm", 1, "the second operand is `imm` and not an element of acc"),
            Field("imm", _IMMEDIATE_BITS, "the second operand, a signed number", signed=True),
        ),
        "finish": _HEAD,
        "micro-op": (
            Field("dst", acc, "the element of acc that is written"),
            Field("src", max(inp, acc), "the element of inp (GEMM) or of acc (ALU) that is read"),
            Field("wgt", wgt, "the element of wgt that is read (GEMM)"),
        ),
    }


def width_of(fields: Layout) -> int:
    """The number of bits of all fields."""
    return sum(f.width for f in fields)


def table(name: str, fields: Layout) -> str:
    """The fields of an instruction as a Markdown table."""
    lines = [f"| {name.upper()} bits | field | meaning |", "|---|---|---|"]
    at = 0
    for f in fields:
        bits = f"{at}" if f.width == 1 else f"{at}–{at + f.width - 1}"
        lines.append(f"| {bits} | `{f.name}` | {f.meaning} |")
        at += f.width
    return "\n".join(lines)
