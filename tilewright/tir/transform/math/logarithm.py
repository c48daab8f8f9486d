"""Logarithms: log, log2, log10, log1p, and the inverse hyperbolic functions.

    log(x) = e·ln 2 + log(1 + f)     x = 2^e · (1 + f),  -1/3 ≤ f < 1/3

The coefficients are minimax fits of the relative error (a linear program over Chebyshev points), rounded to
float32 one after the other from the lowest, the others fitted anew.
"""

from __future__ import annotations

import math

from ....ir.expr import PrimExpr, Select, const
from .builder import Builder, expansion
from .constants import LN2, LN2_SHORT, LOG2E, LOG10_2, LOG10_2_SHORT, LOG10E

# log_b(1 + f) = f·log_b(e) + f²·Q(f) on |f| ≤ 1/3: 2^-27.7 each.
_LOG = (
    -0.5,
    0.33333215,
    -0.24999805,
    0.20010431,
    -0.1668025,
    0.14005624,
    -0.12186847,
    0.13985252,
    -0.12882492,
)
_LOG2 = (
    -0.7213475,
    0.4808967,
    -0.3606715,
    0.28868657,
    -0.24063377,
    0.20209667,
    -0.17592089,
    0.20160595,
    -0.18552333,
)
_LOG10 = (
    -0.21714725, 0.14476429, -0.10857241, 0.08690538, -0.07244996, 0.060808737, -0.052844934, 0.06081185,
    -0.056224257,
)  # fmt: skip

_TWO_THIRDS = 0x3F2AAAAB  # the bits of 2/3
_MANTISSA = 0x7FFFFF


def split_exponent(b: Builder, x: PrimExpr, low: int = _TWO_THIRDS) -> tuple[PrimExpr, PrimExpr]:
    """The exponent e as an int32 and m = x / 2^e, with m from the float of bits `low` to twice that."""
    shift: PrimExpr | None = None
    if not b.fast:
        tiny = b.let(x < 2.0**-126, "tiny")  # subnormal numbers are made normal first
        x = Select(tiny, x * 8388608.0, x)
        shift = Select(tiny, const(-23, b.i32), const(0, b.i32))
    i = b.let(b.bits(x) - low, "i")
    e = i >> 23
    m = b.float_of((i & _MANTISSA) + low)
    return b.let(e if shift is None else e + shift, "e"), b.let(m, "m")


def _guarded(b: Builder, x: PrimExpr, value: PrimExpr, pole: float = 0.0) -> PrimExpr:
    """`value`, with the special cases of a logarithm: infinity, the pole, below it, and NaN."""
    if b.fast:
        return value
    value = Select(x < math.inf, value, x)
    outside = Select(x.equal(pole), b.const(-math.inf, x), b.const(math.nan, x))
    return Select(x > pole, value, outside)


def _natural(b: Builder, e: PrimExpr, f: PrimExpr) -> PrimExpr:
    """e·ln 2 + log(1 + f)."""
    z = b.let(f * f, "z")
    tail = b.fma(z, b.halves(f, z, _LOG), f)
    if b.has_fma:
        return b.fma(e, LN2[0], tail)
    return e * LN2_SHORT[0] + (e * LN2_SHORT[1] + tail)


@expansion("log", ulp=1.1)
def expand_log(b: Builder, x: PrimExpr) -> PrimExpr:
    """The natural logarithm: exponent and mantissa by bits, a polynomial of degree 10.

    Fast: x must be a normal, finite, positive number.
    """
    e, m = split_exponent(b, x)
    value = _natural(b, b.to(b.f32, e), b.let(m - 1.0, "f"))
    return _guarded(b, x, value)


@expansion("log2", ulp=2.0)
def expand_log2(b: Builder, x: PrimExpr) -> PrimExpr:
    """The logarithm to base 2; exact for powers of two."""
    e, m = split_exponent(b, x)
    f = b.let(m - 1.0, "f")
    z = b.let(f * f, "z")
    low = b.fma(f, LOG2E[1], z * b.halves(f, z, _LOG2))
    return _guarded(b, x, b.to(b.f32, e) + b.fma(f, LOG2E[0], low))


@expansion("log10", ulp=2.0)
def expand_log10(b: Builder, x: PrimExpr) -> PrimExpr:
    """The logarithm to base 10."""
    exponent, m = split_exponent(b, x)
    f, e = b.let(m - 1.0, "f"), b.let(b.to(b.f32, exponent), "ef")
    z = b.let(f * f, "z")
    low = b.fma(f, LOG10E[1], z * b.halves(f, z, _LOG10))
    step = LOG10_2 if b.has_fma else LOG10_2_SHORT
    value = b.fma(e, step[0], b.fma(f, LOG10E[0], b.fma(e, step[1], low)))
    return _guarded(b, x, value)


def _log1p(b: Builder, x: PrimExpr, double: PrimExpr | None = None) -> PrimExpr:
    """log(1 + x) for -1 < x < infinity; twice the argument of the logarithm where `double` holds.

    With 1 + x = 2^e·m, f = m - 1 is x·2^-e + (2^-e - 1): x loses no digit to the sum 1 + x. The scaling
    of x is a subtraction from its exponent bits; 2^-e is carried as 4·2^-e, which never underflows.
    """
    i = b.let((b.bits(x + 1.0) - _TWO_THIRDS) & -0x800000, "i")
    quadruple = b.float_of(b.const(0x40800000, i) - i)
    f = b.float_of(b.bits(x) - i) + b.fma(quadruple, 0.25, -1.0)
    if b.fast and not b.has_fma:  # reassociated, the sum would lose the digits of a small x
        f = Select(i.equal(0), x, f)
    f = b.let(f, "f")
    e = i >> 23
    if double is not None:
        e = e + Select(double, b.const(1, i), b.const(0, i))
    return _natural(b, b.let(b.to(b.f32, e), "e"), f)


@expansion("log1p", ulp=2.0)
def expand_log1p(b: Builder, x: PrimExpr) -> PrimExpr:
    """log(1 + x) without forming 1 + x; keeps the sign of zero."""
    return _guarded(b, x, b.copysign(_log1p(b, x), x), pole=-1.0)


# Beyond this, asinh and acosh of x are log(2x) in float32, and x² stays finite up to it.
_LARGE = 2.0**40


@expansion("asinh", ulp=2.5)
def expand_asinh(b: Builder, x: PrimExpr) -> PrimExpr:
    """log1p(a + a² / (1 + √(1 + a²))) with the sign of x, for a = |x|."""
    a = b.let(b.fabs(x), "a")
    large = b.let(a > _LARGE, "large")
    z = b.let(a * a, "z")
    inner = a + z / (b.sqrt(z + 1.0) + 1.0)
    value = _log1p(b, b.let(Select(large, a, inner), "u"), large)
    return b.copysign(Select(a < math.inf, value, a), x)


@expansion("acosh", ulp=2.5)
def expand_acosh(b: Builder, x: PrimExpr) -> PrimExpr:
    """log1p(t + √(t·(t + 2))) for t = x - 1; NaN below 1."""
    t = b.let(x - 1.0, "t")
    large = b.let(x > _LARGE, "large")
    value = _log1p(b, b.let(Select(large, x, t + b.sqrt(t * (t + 2.0))), "u"), large)
    value = Select(x < math.inf, value, x)
    return Select(x < 1.0, b.const(math.nan, x), value)


@expansion("atanh", ulp=2.5)
def expand_atanh(b: Builder, x: PrimExpr) -> PrimExpr:
    """log1p(2a / (1 - a)) / 2 with the sign of x, for a = |x|; infinite at 1, NaN beyond."""
    a = b.let(b.fabs(x), "a")
    u = b.let((a + a) / (b.const(1.0, x) - a), "u")
    value = Select(
        a < 1.0, _log1p(b, u) * 0.5, Select(a.equal(1.0), b.const(math.inf, x), b.const(math.nan, x))
    )
    return b.copysign(value, x)
