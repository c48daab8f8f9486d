"""16-bit floats: kept as bits, computed in float32, rounded to nearest even.

CPUs that convert float16 in hardware get LLVM's own conversion; others get integer arithmetic, so that
no compiler runtime library is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.dtype import BOOL, FLOAT32, INT32, DataType
from .types import constant, reg_type, vector_type

if TYPE_CHECKING:
    from .emit import FunctionEmitter


class _Bits:
    """Straight-line integer arithmetic on 32 bits, for any number of lanes."""

    def __init__(self, emitter: FunctionEmitter, lanes: int) -> None:
        self.f, self.lanes = emitter, lanes
        self.i32, self.i16 = INT32.with_lanes(lanes), DataType("int16").with_lanes(lanes)
        self.f32, self.mask = FLOAT32.with_lanes(lanes), reg_type(BOOL.with_lanes(lanes))
        self.text = reg_type(self.i32)

    def k(self, value: int) -> str:
        value &= 0xFFFFFFFF
        return constant(self.i32, value - (1 << 32) if value >> 31 else value)

    def op(self, name: str, a: str, b: int | str) -> str:
        return self.f.tmp(f"{name} {self.text} {a}, {self.k(b) if isinstance(b, int) else b}")

    def pick(self, test: str, a: str, b: str) -> str:
        return self.f.tmp(f"select {self.mask} {test}, {self.text} {a}, {self.text} {b}")

    def as_float(self, bits: str) -> str:
        return self.f.tmp(f"bitcast {self.text} {bits} to {reg_type(self.f32)}")

    def as_bits(self, value: str) -> str:
        return self.f.tmp(f"bitcast {reg_type(self.f32)} {value} to {self.text}")

    def widen(self, half: str) -> str:
        return self.f.tmp(f"zext {reg_type(self.i16)} {half} to {self.text}")

    def narrow(self, bits: str) -> str:
        return self.f.tmp(f"trunc {self.text} {bits} to {reg_type(self.i16)}")


def to_float(f: FunctionEmitter, kind: DataType, value: str) -> str:
    """16 bits as a float32; exact."""
    b = _Bits(f, kind.lanes)
    if kind.code == "bfloat":
        return b.as_float(b.op("shl", b.widen(value), 16))
    if f.module.native_half:
        half = vector_type("half", kind.lanes)
        held = f.tmp(f"bitcast {reg_type(kind)} {value} to {half}")
        return f.tmp(f"fpext {half} {held} to {reg_type(b.f32)}")
    bits = b.widen(value)
    shifted = b.op("shl", b.op("and", bits, 0x7FFF), 13)
    exponent = b.op("and", shifted, 0x0F800000)
    moved = b.op("add", shifted, (127 - 15) << 23)
    infinite = b.op("add", moved, (128 - 16) << 23)
    # A subnormal: let the float unit normalise it.
    small = b.as_float(b.op("add", moved, 1 << 23))
    magic = constant(b.f32, 2.0**-14)
    small = b.as_bits(f.tmp(f"fsub {reg_type(b.f32)} {small}, {magic}"))
    is_inf = b.op("icmp eq", exponent, 0x0F800000)
    is_small = b.op("icmp eq", exponent, 0)
    merged = b.pick(is_inf, infinite, b.pick(is_small, small, moved))
    sign = b.op("shl", b.op("and", bits, 0x8000), 16)
    return b.as_float(b.op("or", merged, sign))


def from_float(f: FunctionEmitter, kind: DataType, value: str) -> str:
    """A float32 rounded to 16 bits, ties to even."""
    b = _Bits(f, kind.lanes)
    is_nan = f.tmp(f"fcmp uno {reg_type(b.f32)} {value}, {value}")
    bits = b.as_bits(value)
    if kind.code == "bfloat":
        odd = b.op("and", b.op("lshr", bits, 16), 1)
        rounded = b.op("lshr", b.op("add", b.op("add", bits, odd), 0x7FFF), 16)
        quiet = b.op("or", b.op("lshr", bits, 16), 0x40)
        return b.narrow(b.pick(is_nan, quiet, rounded))
    if f.module.native_half:
        half = vector_type("half", kind.lanes)
        held = f.tmp(f"fptrunc {reg_type(b.f32)} {value} to {half}")
        return f.tmp(f"bitcast {half} {held} to {reg_type(kind)}")
    sign = b.op("lshr", b.op("and", bits, 0x80000000), 16)
    magnitude = b.op("and", bits, 0x7FFFFFFF)
    # Normal numbers: rebias the exponent and round the mantissa; overflow carries into infinity.
    odd = b.op("and", b.op("lshr", magnitude, 13), 1)
    normal = b.op("add", b.op("add", magnitude, ((15 - 127) << 23) + 0xFFF), odd)
    normal = b.op("lshr", normal, 13)
    # Subnormals: adding 0.5 puts the bits in place and the float unit rounds.
    half_one = constant(b.f32, 0.5)
    lifted = f.tmp(f"fadd {reg_type(b.f32)} {b.as_float(magnitude)}, {half_one}")
    small = b.op("sub", b.as_bits(lifted), 0x3F000000)
    is_small = b.op("icmp ult", magnitude, 0x38800000)
    is_large = b.op("icmp uge", magnitude, 0x47800000)
    special = b.pick(is_nan, b.k(0x7E00), b.k(0x7C00))
    merged = b.pick(is_large, special, b.pick(is_small, small, normal))
    return b.narrow(b.op("or", merged, sign))
