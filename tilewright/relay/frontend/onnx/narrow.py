"""Narrow element types: float8 and float4 stored as bytes, 4- and 2-bit integers in 8 bits.

A float8 is read through a table of its 256 values, and written by comparing with the midpoints between them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from .build import R, cast, constant, dtype_of, is_float, scalar
from .context import Refusal, Value

_INTEGERS = {21: (0, 15), 22: (-8, 7), 25: (0, 3), 26: (-2, 1)}
_FLOATS = {
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    23: "float4_e2m1fn",
    24: "float8_e8m0fnu",
}
_NAMES = {21: "uint4", 22: "int4", 25: "uint2", 26: "int2", **_FLOATS}


def numpy_type(elem: int) -> Any:
    """The NumPy type of a narrow element type, for arrays that leave the program."""
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, _NAMES[elem]))


@cache
def _values(elem: int) -> Any:
    """The float32 value of each byte."""
    count = 16 if elem == 23 else 256
    return np.arange(count, dtype=np.uint8).view(numpy_type(elem)).astype(np.float32)


def decode(value: Value) -> Any:
    """A tensor of a narrow type as floats or plain integers."""
    if value.elem in _FLOATS:
        return R.take(constant(_values(value.elem)), cast(value.expr, "int32"))
    return value.expr


def encode(x: Any, elem: int, saturate: bool, round_mode: str) -> Value:
    """A tensor rounded to a narrow type."""
    if elem in _INTEGERS:
        return Value(_to_small_int(x, *_INTEGERS[elem]), elem=elem)
    if dtype_of(x) not in ("float32", "float64"):
        x = cast(x, "float32")
    return Value(_to_small_float(cast(x, "float32"), elem, saturate, round_mode), elem=elem)


def _to_small_int(x: Any, low: int, high: int) -> Any:
    """The lowest bits, as a conversion in C keeps them; a float is rounded towards zero first."""
    if is_float(x):
        x = R.trunc(x)
    wide = cast(x, "int32")
    span = high - low + 1
    kept = R.bitwise_and(wide, scalar(span - 1, wide))
    if low < 0:
        kept = R.where(R.greater(kept, scalar(high, kept)), R.subtract(kept, scalar(span, kept)), kept)
    return cast(kept, "int8" if low < 0 else "uint8")


def _int(value: int) -> Any:
    return constant(np.int32(value))


def _to_small_float(x: Any, elem: int, saturate: bool, round_mode: str) -> Any:
    """The nearest value (ties to the even byte) by counting the midpoints below |x|."""
    if elem == 24:
        return _to_exponent(x, saturate, round_mode)
    values = _values(elem)
    half = len(values) // 2
    positive = values[:half]
    finite = positive[np.isfinite(positive)].astype(np.float64)
    top = len(finite) - 1
    unsigned_zero = elem in (18, 20)
    size = R.abs(x)
    wide = cast(size, "float64")
    # One byte more than the last finite one stands for what lies beyond the midpoint after it.
    beyond = finite[-1] + (finite[-1] - finite[-2])
    grid = np.append(finite, beyond)
    middles = (grid[:-1] + grid[1:]) / 2
    even = np.arange(len(middles)) % 2 == 0  # a tie goes down from an even byte, up from an odd one
    limits = np.where(even, np.nextafter(middles, np.inf), middles)
    byte = R.searchsorted(constant(limits), wide, right=True, dtype="int32")
    return _finish(x, byte, elem, top, half, saturate, unsigned_zero)


def _finish(x: Any, byte: Any, elem: int, top: int, half: int, saturate: bool, unsigned_zero: bool) -> Any:
    """The byte with its sign, and what overflow, infinity and NaN become."""
    nan = 0x80 if unsigned_zero else {17: 0x7F, 19: 0x7E}.get(elem, top)
    inf = 0x7C if elem == 19 else nan
    over = R.greater(byte, _int(top))
    if elem == 23 or saturate:
        made = R.where(over, _int(top), byte)
    else:
        made = R.where(over, _int(inf), byte)
    negative = R.less(R.reinterpret(x, "int32"), _int(0))
    signed = R.where(negative, R.bitwise_or(made, _int(half)), made)
    if unsigned_zero:
        signed = R.where(R.equal(made, _int(0)), _int(0), signed)
        signed = R.where(R.equal(made, _int(0x80)), _int(0x80), signed)
    # float4 has no NaN: it becomes -0.
    return cast(R.where(R.isnan(x), _int(half if elem == 23 else nan), signed), "uint8")


def _to_exponent(x: Any, saturate: bool, round_mode: str) -> Any:
    """float8e8m0: a power of two, which is the exponent of the float32."""
    bits = R.reinterpret(x, "int32")
    exponent = R.bitwise_and(R.right_shift(bits, _int(23)), _int(0xFF))
    fraction = R.bitwise_and(bits, _int(0x7FFFFF))
    if round_mode == "up":
        more = R.greater(fraction, _int(0))
    elif round_mode == "nearest":
        more = R.greater_equal(fraction, _int(0x400000))
    elif round_mode == "down":
        more = R.less(fraction, _int(0))
    else:
        raise Refusal(f"round_mode {round_mode!r} is unknown")
    made = R.add(exponent, cast(more, "int32"))
    made = R.minimum(made, _int(254 if saturate else 255))
    return cast(R.where(R.isnan(x), _int(255), made), "uint8")
