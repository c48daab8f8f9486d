"""The arithmetic of single values: how they are held, rounded, converted, and the functions on them.

int8 … int64, uint8 … uint64   Python int, kept within the type's range by wrapping
bool                           Python bool
float64                        Python float
float16, float32, bfloat16, …  NumPy scalar: each operation rounds to the type
handle                         Pointer, array, text or None
vectors                        list of lanes
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from ...ir.dtype import DataType
from ...ir.fold import odd_float32
from .report import InterpreterError


@cache
def numpy_type(kind: DataType) -> np.dtype[Any]:
    """The NumPy type of one lane of `kind` in memory."""
    one = kind.element
    if one.is_bool:
        return np.dtype(np.bool_)
    if one.is_handle:
        return np.dtype(object)
    if one.code == "bfloat" or one.code.startswith("float8") or one.bits in (2, 4):
        import ml_dtypes

        found = getattr(ml_dtypes, str(one), None)
        if found is not None:
            return np.dtype(found)
    elif one.bits >= 8:
        return np.dtype(str(one))
    raise InterpreterError("unsupported", f"the interpreter has no values of type {kind}")


# ---------------------------------------------------------------------------- integers
def wrapped(kind: DataType, text: str) -> str:
    """Python source that wraps the integer `text` to the range of `kind`."""
    mask = (1 << kind.bits) - 1
    if not kind.is_int:
        return f"({text} & {mask})"
    half = 1 << (kind.bits - 1)
    return f"(({text} + {half} & {mask}) - {half})"


def wrap_to(kind: DataType, x: int) -> int:
    """`x` modulo two to the bits of `kind`."""
    x &= (1 << kind.bits) - 1
    return x - (1 << kind.bits) if kind.is_int and x >> (kind.bits - 1) else x


def floor_div(a: int, b: int) -> int:
    """The quotient rounded down; by zero it is 0."""
    return a // b if b else 0


def floor_mod(a: int, b: int) -> int:
    """The remainder of `floor_div`, except that by zero it is 0 too."""
    return a % b if b else 0


def trunc_div(a: int, b: int) -> int:
    """The quotient rounded towards zero; by zero it is 0."""
    if not b:
        return 0
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def trunc_mod(a: int, b: int) -> int:
    """The remainder of `trunc_div`, except that by zero it is 0 too."""
    return a - trunc_div(a, b) * b if b else 0


def shift_left(a: int, b: int, bits: int) -> int:
    """`a << b`, not yet wrapped."""
    if not 0 <= b < bits:
        raise InterpreterError("shift", f"shift by {b} of a value of {bits} bits is undefined")
    return a << b


def shift_right(a: int, b: int, bits: int) -> int:
    """`a >> b`, keeping the sign."""
    if not 0 <= b < bits:
        raise InterpreterError("shift", f"shift by {b} of a value of {bits} bits is undefined")
    return a >> b


def count_leading_zeros(a: int, bits: int) -> int:
    """The zero bits above the highest one bit."""
    return bits - (a & ((1 << bits) - 1)).bit_length()


def fixed_point(x: int, y: int, q: int, left: int, right: int) -> int:
    """round(x · 2^left · y / 2^(q + right)), halves up: the product of numbers with `q` fractional bits."""
    shift = q + right
    product = wrap_to(DataType("int64"), (x << left) * y)
    return wrap_to(DataType("int32"), (product + (1 << (shift - 1))) >> shift)


def float_to_int(x: Any, low: int, high: int) -> int:
    """`x` truncated; NaN and values out of range give the least value of the type, as on x86."""
    value = float(x)
    if value != value or value in (math.inf, -math.inf):
        return low
    whole = int(value)
    return whole if low <= whole <= high else low


# ---------------------------------------------------------------------------- rounding
def _to_odd(x: Any) -> float:
    """The exact `x` rounded to odd: a double whose last bit is set if the result is inexact. Rounding it to a narrower
    type is the same as rounding `x`."""
    near = float(x)
    if math.isinf(near) or Fraction(near) == x:
        return near
    (bits,) = struct.unpack("<Q", struct.pack("<d", near))
    if abs(Fraction(near)) > abs(x):
        bits -= 1
    (odd,) = struct.unpack("<d", struct.pack("<Q", bits | 1))
    return float(odd)


@cache
def rounding(kind: DataType) -> Callable[[Any], Any]:
    """The function from a Python number to the nearest value of a float type, ties to even."""
    name = str(kind.element)
    if name == "float64":
        return float
    make = numpy_type(kind).type
    if name in ("float32", "float16"):
        return lambda x: make(_to_odd(x) if x.__class__ is int and not -(1 << 53) <= x <= 1 << 53 else x)

    def narrow(x: Any) -> Any:
        exact = _to_odd(x) if x.__class__ is int else float(x)
        return make(np.float32(odd_float32(exact)))

    return narrow


def fused(kind: DataType, a: Any, b: Any, c: Any) -> Any:
    """a · b + c, rounded once."""
    x, y, z = float(a), float(b), float(c)
    finite = math.isfinite(x) and math.isfinite(y) and math.isfinite(z)
    exact = Fraction(x) * Fraction(y) + Fraction(z) if finite else Fraction(0)
    if exact == 0:
        return rounding(kind)(x * y + z)  # infinities, NaN, and the sign of zero
    try:
        near = float(exact) if kind.bits == 64 else _to_odd(exact)
    except OverflowError:
        near = math.inf if exact > 0 else -math.inf
    return rounding(kind)(near)


# ---------------------------------------------------------------------------- functions of doubles
def divide(a: float, b: float) -> float:
    """`a / b` of doubles with IEEE results for a zero divisor."""
    try:
        return a / b
    except ZeroDivisionError:
        if a != a or a == 0:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _guarded(exact: Callable[..., float], special: Callable[..., Any]) -> Callable[..., float]:
    """`exact`, or NumPy's result (infinity or NaN) where Python's math module raises."""

    def f(*args: Any) -> float:
        try:
            return exact(*args)
        except (OverflowError, ValueError, ZeroDivisionError):
            return float(special(*(np.float64(a) for a in args)))

    return f


def _whole(round_it: Callable[[float], int]) -> Callable[[Any], float]:
    """Rounding to integers that keeps infinities, NaN and the sign of zero."""

    def f(x: Any) -> float:
        x = float(x)
        return math.copysign(float(round_it(x)), x) if math.isfinite(x) else x

    return f


def _rsqrt(x: Any) -> float:
    x = float(x)
    return math.nan if x < 0 else divide(1.0, math.sqrt(x) if x else x)


def _sigmoid(x: Any) -> float:
    x = float(x)
    return 1.0 / (1.0 + math.exp(-x)) if x > -700.0 else (x if x != x else math.exp(max(x, -800.0)))


def _ldexp(x: Any, exponent: int) -> float:
    try:
        return math.ldexp(float(x), int(exponent))
    except OverflowError:
        return math.copysign(math.inf, float(x))


def _cbrt(x: Any) -> float:
    return math.cbrt(float(x))


# Functions on floats: evaluated on doubles, then rounded to the type.
FUNCTIONS: dict[str, Callable[..., float]] = {
    "exp": _guarded(math.exp, np.exp),
    "exp2": _guarded(math.exp2, np.exp2),
    "fast_exp2": _guarded(math.exp2, np.exp2),
    "exp10": _guarded(lambda x: math.pow(10.0, x), lambda x: np.power(10.0, x)),
    "expm1": _guarded(math.expm1, np.expm1),
    "log": _guarded(math.log, np.log),
    "log2": _guarded(math.log2, np.log2),
    "log10": _guarded(math.log10, np.log10),
    "log1p": _guarded(math.log1p, np.log1p),
    "sqrt": _guarded(math.sqrt, np.sqrt),
    "cbrt": _cbrt,
    "rsqrt": _rsqrt,
    "sin": _guarded(math.sin, np.sin),
    "cos": _guarded(math.cos, np.cos),
    "tan": _guarded(math.tan, np.tan),
    "asin": _guarded(math.asin, np.arcsin),
    "acos": _guarded(math.acos, np.arccos),
    "atan": _guarded(math.atan, np.arctan),
    "sinh": _guarded(math.sinh, np.sinh),
    "cosh": _guarded(math.cosh, np.cosh),
    "tanh": math.tanh,
    "asinh": math.asinh,
    "acosh": _guarded(math.acosh, np.arccosh),
    "atanh": _guarded(math.atanh, np.arctanh),
    "erf": math.erf,
    "erfc": math.erfc,
    "sigmoid": _sigmoid,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "trunc": _whole(math.trunc),
    "round": _whole(round),
    "nearbyint": _whole(round),
    "rint": _whole(round),
    "fabs": math.fabs,
    "pow": _guarded(math.pow, np.power),
    "fmod": _guarded(math.fmod, np.fmod),
    "hypot": math.hypot,
    "atan2": math.atan2,
    "copysign": math.copysign,
    "ldexp": _ldexp,
}


def next_after(kind: DataType, a: Any, b: Any) -> Any:
    """The neighbour of `a` towards `b` among the values of `kind`."""
    held = numpy_type(kind)
    if kind.bits >= 16 and kind.code == "float":
        made = np.nextafter(held.type(a), held.type(b))
        return float(made) if kind.bits == 64 else made
    x, y = float(a), float(b)
    if x != x or y != y or x == y:
        return b if x == y else held.type(math.nan)
    unsigned = np.dtype(f"uint{kind.bits}")
    if x == 0:
        return np.copysign(np.array(1, unsigned).view(held)[()], held.type(y))
    bits = int(np.array(a, held).view(unsigned)[()])
    bits += 1 if (y > x) == (x > 0) else -1
    return np.array(bits, unsigned).view(held)[()]


def reinterpret(values: Sequence[Any], source: DataType, target: DataType) -> list[Any]:
    """The lanes of a vector whose bits, in order, are those of `values`."""
    raw = np.array(list(values), numpy_type(source)).tobytes()
    lanes = np.frombuffer(raw, numpy_type(target))
    if target.is_float and target.bits < 64:
        return list(lanes)
    return [v.item() if hasattr(v, "item") else int(v) for v in lanes]
