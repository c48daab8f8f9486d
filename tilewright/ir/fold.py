"""Types and constants: the common type of two operands, conversion, and constant folding with machine arithmetic."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

from .dtype import FLOAT32, FLOAT64, INT32, DataType
from .errors import OperandTypeError
from .expr import Broadcast, Cast, FloatImm, IntImm, PrimExpr, StringImm, const, convert


# ---------------------------------------------------------------------------- types
def _as_type(value: int | float, other: PrimExpr) -> PrimExpr:
    """A Python number as the other operand takes the type of the expression, unless that would lose its fraction."""
    kind = other.dtype
    if isinstance(value, bool) and kind.is_bool:
        return const(value, kind)
    if isinstance(value, float) and not kind.is_float:
        return const(value, FLOAT32.with_lanes(kind.lanes))
    if kind.is_bool:
        kind = INT32.with_lanes(kind.lanes)
    if kind.is_handle:
        return const(value)
    if kind.is_integral and not kind.low <= value <= kind.high:
        return const(value, DataType("int64").with_lanes(kind.lanes))
    return const(value, kind)


def _plain_number(value: Any) -> Any:
    """A scalar of NumPy as the other operand counts as a Python number."""
    if isinstance(value, (PrimExpr, int, float)) or getattr(value, "ndim", None) != 0:
        return value
    return value.item() if hasattr(value, "item") and not hasattr(value, "__prim_expr__") else value


def match(a: Any, b: Any) -> tuple[PrimExpr, PrimExpr]:
    """Both operands in a common type: vectors over scalars, floats over integers, wide over narrow, unsigned over
    signed."""
    if isinstance(a, PrimExpr) and isinstance(b, PrimExpr) and a.dtype is b.dtype:
        return a, b
    if isinstance(a, PrimExpr):
        b = _plain_number(b)
    elif isinstance(b, PrimExpr):
        a = _plain_number(a)
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return match(convert(a), convert(b))
    if isinstance(a, (int, float)):
        b = convert(b)
        a = _as_type(a, b)
    elif isinstance(b, (int, float)):
        a = convert(a)
        b = _as_type(b, a)
    else:
        a, b = convert(a), convert(b)
    if a.dtype is b.dtype:
        return a, b
    if a.dtype.lanes != b.dtype.lanes:
        if a.dtype.lanes == 1:
            a = Broadcast(a, b.dtype.lanes)
        elif b.dtype.lanes == 1:
            b = Broadcast(b, a.dtype.lanes)
        else:
            raise OperandTypeError(
                f"vectors of {a.dtype.lanes} and {b.dtype.lanes} lanes do not go together: `{a}`, `{b}`"
            )
    x, y = a.dtype, b.dtype
    if x is y:
        return a, b
    common = common_type(x, y)
    if common is None:
        raise OperandTypeError(
            f"no common type for {x} and {y}: `{a}` and `{b}`; cast one of them with .astype(…)"
        )
    return cast(common, a), cast(common, b)


def common_type(x: DataType, y: DataType) -> DataType | None:
    """The common type of both operands of an operator, or None if there is none."""
    if x.is_handle or y.is_handle or x.code == "void" or y.code == "void":
        return None
    if x.is_float and y.is_float:
        if x.bits != y.bits:
            return x if x.bits > y.bits else y
        return None  # bfloat16 with float16
    if x.is_float or y.is_float:
        return x if x.is_float else y
    if x.is_bool or y.is_bool:
        return y if x.is_bool else x
    if x.bits != y.bits:
        return x if x.bits > y.bits else y
    return x if x.is_uint else y  # of one width, unsigned over signed


def cast(dtype: str, value: Any, span: Any = None) -> PrimExpr:
    """`value` as `dtype`; constants are converted at once."""
    kind = DataType(dtype)
    value = convert(value)
    if value.dtype is kind:
        return value
    if kind.lanes != value.dtype.lanes:
        if value.dtype.lanes == 1:
            return Broadcast(cast(kind.element, value), kind.lanes)
        raise OperandTypeError(f"cannot cast {value.dtype} to {kind}: the lanes differ")
    cls = value.__class__
    if cls is StringImm:
        raise OperandTypeError(
            f"Can't cast a handle to other types: {value} is a text, and {kind} was asked for"
        )
    if cls is IntImm and not kind.is_handle:
        number = value.value  # type: ignore[attr-defined]
        if kind.is_float:
            return FloatImm(kind, float(number))
        if kind.is_bool:
            return IntImm(kind, int(number != 0))
        return IntImm(kind, wrap(number, kind))
    if cls is FloatImm:
        held = value.value  # type: ignore[attr-defined]
        if kind.is_float:
            # A narrower type rounds by itself; a wider one shows what the narrow one had rounded away.
            return FloatImm(kind, held if kind.bits < value.dtype.bits else rounded(held, value.dtype))
        if kind.is_bool and not math.isnan(held):
            return IntImm(kind, int(held != 0))
        if kind.is_integral and math.isfinite(held) and kind.low <= int(held) <= kind.high:
            return IntImm(kind, int(held))
    if cls is Broadcast:
        inner: PrimExpr = value.value  # type: ignore[attr-defined]
        return Broadcast(cast(kind.with_lanes(inner.dtype.lanes), inner), value.lanes)  # type: ignore[attr-defined]
    return Cast(kind, value)


def wrap(number: int, kind: DataType) -> int:
    """`number` wrapped to the range of `kind`."""
    number &= (1 << kind.bits) - 1
    return number - (1 << kind.bits) if kind.is_int and number >> (kind.bits - 1) else number


# ---------------------------------------------------------------------------- folding
def int_value(e: PrimExpr) -> int | None:
    return e.value if e.__class__ is IntImm else None  # type: ignore[attr-defined, no-any-return]


def _fold(a: PrimExpr, b: PrimExpr, f: Callable[[Any, Any], Any]) -> PrimExpr | None:
    """The constant `f(a, b)` of two constants, if it is representable without double rounding."""
    if a.__class__ is IntImm and b.__class__ is IntImm:
        value = f(a.value, b.value)  # type: ignore[attr-defined]
        kind = a.dtype
        return IntImm(kind, value) if kind.low <= value <= kind.high else None
    if a.__class__ is FloatImm and b.__class__ is FloatImm and a.dtype in (FLOAT32, FLOAT64):
        # Rounding the float64 result once more gives the float32 result exactly: 53 bits >= 2·24 + 2.
        x, y = rounded(a.value, a.dtype), rounded(b.value, b.dtype)  # type: ignore[attr-defined]
        return FloatImm(a.dtype, rounded(f(x, y), a.dtype))
    if a.__class__ is FloatImm and b.__class__ is FloatImm:
        # Machines compute with more digits than a 16-bit type has, so that only an exact result is the same on all.
        from fractions import Fraction

        x, y = rounded(a.value, a.dtype), rounded(b.value, b.dtype)  # type: ignore[attr-defined]
        if math.isfinite(x) and math.isfinite(y):
            value = f(x, y)
            if rounded(value, a.dtype) == value and f(Fraction(x), Fraction(y)) == value:
                return FloatImm(a.dtype, value)
    return None


def odd_float32(value: float) -> float:
    """A float64 as a float32, rounded to odd: the last bit is set if the result is inexact. Rounding it to a narrower
    type is the same as rounding `value`."""
    try:
        (bits,) = struct.unpack("<I", struct.pack("<f", value))
    except OverflowError:
        return value
    (near,) = struct.unpack("<f", struct.pack("<I", bits))
    if near != value and value == value:
        bits = (bits - (abs(near) > abs(value))) | 1
    return struct.unpack("<f", struct.pack("<I", bits))[0]  # type: ignore[no-any-return]


def rounded(value: float, kind: DataType) -> float:
    """The value of the float type `kind` that is nearest to `value`."""
    if kind.bits == 64 or not math.isfinite(value):
        return float(value)
    try:
        if kind.code == "float":
            code = "<f" if kind.bits == 32 else "<e"
            return struct.unpack(code, struct.pack(code, value))[0]  # type: ignore[no-any-return]
        if kind.code == "bfloat":
            bits = struct.unpack("<I", struct.pack("<f", odd_float32(value)))[0]
            bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
            return struct.unpack("<f", struct.pack("<I", bits))[0]  # type: ignore[no-any-return]
    except OverflowError:
        return math.copysign(math.inf, value)
    return value


def folded(cls: type, a: PrimExpr, b: PrimExpr, f: Callable[[Any, Any], Any]) -> PrimExpr:
    """The constant if both are constants, else the node."""
    made = _fold(a, b, f)
    return cls(a, b) if made is None else made  # type: ignore[no-any-return]
