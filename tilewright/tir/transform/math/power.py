"""Powers, roots and what belongs to the float format: pow, rsqrt, hypot, fmod, ldexp, nextafter.

pow, hypot, fmod and ldexp compute in float64: its range holds every intermediate result of float32
arguments, and the conversion back rounds once, into the subnormal numbers too.
"""

from __future__ import annotations

import math

from ....ir.dtype import DataType
from ....ir.expr import PrimExpr, Select, const, const_value
from ....ir.ops import bitwise_and, logical_and, logical_not, logical_or, reinterpret
from .builder import EXPANSIONS, MAX_ULP, Builder, expansion
from .logarithm import split_exponent

# log2((1 + s)/(1 - s)) = s·L(s²) on |s| ≤ 3 - √8: 2^-36.3; 2^r on |r| ≤ 1/2: 2^-29.0. Minimax fits of the
# relative error by Remez exchange.
_LOG2 = (2.8853900817900926, 0.961796673333305, 0.5770835865914822, 0.4116726188256859, 0.3407320279652708)
_EXP2 = (
    1.000000000553866, 0.6931472057439227, 0.24022646891963273, 0.05550328766007545, 0.009618488827977974,
    0.0013399935117554761, 0.00015345853725633006,
)  # fmt: skip
_ROOT_HALF = 0x3F3504F3  # the bits of √½


@expansion("rsqrt", ulp=1.5)
def expand_rsqrt(b: Builder, x: PrimExpr) -> PrimExpr:
    """1 / √x: two correctly rounded operations."""
    return b.const(1.0, x) / b.sqrt(x)


def _log2_wide(b: Builder, a: PrimExpr) -> PrimExpr:
    """log2 of a float32 `a` ≥ 0 in float64."""
    e, m = split_exponent(b, a, _ROOT_HALF)
    wide = b.let(b.to(b.f64, m), "m")
    s = b.let((wide - 1.0) / (wide + 1.0), "s")
    z = b.let(s * s, "z")
    value = b.fma(s, b.horner(z, _LOG2), b.to(b.f64, e))
    value = Select(a < math.inf, value, const(math.inf, b.f64))
    return b.let(Select(a > 0.0, value, const(-math.inf, b.f64)), "log2")


def _exp2_wide(b: Builder, p: PrimExpr) -> PrimExpr:
    """2^p of a float64 as a float32."""
    p = b.clamp(p, -160.0, 130.0)
    n, word = b.round_scaled(p, 1.0)
    power = b.float_of((word << 52) + (1023 << 52))
    return b.to(b.f32, b.horner(b.let(p - n, "r"), _EXP2) * power)


def _special_power(b: Builder, x: PrimExpr, exponent: float) -> PrimExpr | None:
    """Constant exponents with a shorter expansion of the same accuracy."""
    if exponent == 0.0:
        return b.const(1.0, x)
    if exponent == 1.0:
        return x
    if exponent == 2.0:
        return x * x
    if exponent == -1.0:
        return b.const(1.0, x) / x
    if exponent == 0.5:  # unlike √, of -0 it is 0 and of -∞ it is ∞
        return Select(x.equal(-math.inf), b.const(math.inf, x), b.sqrt(x + 0.0))
    return None


@expansion("pow", ulp=0.6)
def expand_pow(b: Builder, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """x^y = 2^(y·log2|x|) in float64, with the sign and the special cases of IEEE 754."""
    exponent = const_value(y)
    if exponent is not None:
        short = _special_power(b, x, exponent)
        if short is not None:
            return short
    a = b.let(b.fabs(x), "a")
    product = b.to(b.f64, y) * _log2_wide(b, a)
    # 1^∞ is 1, where 0·∞ would give NaN.
    size = _exp2_wide(b, b.let(Select(a.equal(1.0), const(0.0, b.f64), product), "p"))

    half = b.let(y * 0.5, "half")
    whole = b.let(b.floor(y).equal(y), "whole")
    odd = logical_and(whole, logical_not(b.floor(half).equal(half)))
    sign = Select(odd, b.bits(x) & -0x80000000, const(0, b.i32))
    value = b.float_of(b.bits(size) ^ sign)

    no_root = logical_and(logical_and(x < 0.0, x > -math.inf), logical_not(whole))
    value = Select(no_root, b.const(math.nan, x), value)
    value = Select(logical_and(x.equal(x), y.equal(y)), value, x + y)
    return Select(logical_or(y.equal(0.0), x.equal(1.0)), b.const(1.0, x), value)


@expansion("hypot", ulp=0.51)
def expand_hypot(b: Builder, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """√(x² + y²); infinite if either is, even beside NaN."""
    wide_x, wide_y = b.let(b.to(b.f64, x), "wx"), b.let(b.to(b.f64, y), "wy")
    value = b.to(b.f32, b.sqrt(b.fma(wide_x, wide_x, wide_y * wide_y)))
    infinite = logical_or(b.fabs(x).equal(math.inf), b.fabs(y).equal(math.inf))
    return Select(infinite, b.const(math.inf, x), value)


_FMOD_BITS = 26


@expansion("fmod", ulp=0.0)
def expand_fmod(b: Builder, x: PrimExpr, y: PrimExpr) -> PrimExpr:
    """The exact remainder of x / y with the sign of x, by long division, 26 bits of quotient a step.

    r < y·2^(26(k+1)) on entry to step k. The quotient digit q is below 2^26 and y has 24 bits, so q·y and
    r - q·y are exact in float64, and r / y is never close enough below an integer to be rounded up to it.
    2^277, the greatest quotient, takes 11 steps.
    """
    ax, ay = b.let(b.fabs(x), "ax"), b.let(b.fabs(y), "ay")
    finite = b.let(ay < math.inf, "finite")
    divisor = b.let(b.to(b.f64, Select(finite, ay, b.const(1.0, y))), "divisor")
    rest = b.let(b.to(b.f64, ax), "rest")
    for k in reversed(range(11)):
        step = b.let(divisor * 2.0 ** (_FMOD_BITS * k), "step")
        digit = b.trunc(rest / step)
        rest = b.let(rest - digit * step, "rest")
    value = b.copysign(b.to(b.f32, rest), x)
    kept = logical_and(y.equal(y), ax < math.inf)
    beyond = Select(kept, x, b.const(math.nan, x))  # the remainder by ∞ is x itself
    return Select(finite, value, beyond)


@expansion("ldexp", ulp=0.5)
def expand_ldexp(b: Builder, x: PrimExpr, exponent: PrimExpr) -> PrimExpr:
    """x · 2^exponent, rounded once."""
    n = b.let(b.to(b.i64, exponent), "n")
    n = b.let(Select(n < -300, b.const(-300, n), n), "n")
    n = Select(n > 300, b.const(300, n), n)
    return b.to(b.f32, b.to(b.f64, x) * b.float_of((n + 1023) << 52))


def expand_nextafter(x: PrimExpr, y: PrimExpr, **_: bool) -> PrimExpr:
    """The next number from x towards y, in any float type: one more or one less in the bits of x."""
    kind = x.dtype
    word = DataType(f"int{kind.bits}").with_lanes(kind.lanes)
    b = Builder(kind.lanes)
    x, y = b.let(x, "x"), b.let(y, "y")
    i = b.let(reinterpret(word, x), "i")
    away = logical_or(logical_and(x > 0.0, y > x), logical_and(x < 0.0, y < x))
    moved = reinterpret(kind, i + Select(away, const(1, word), const(-1, word)))
    lowest = word.element.low
    from_zero = reinterpret(kind, bitwise_and(reinterpret(word, y), const(lowest, word)) + const(1, word))
    value = Select(x.equal(y), y, Select(x.equal(0.0), from_zero, moved))
    return b.close(Select(logical_and(x.equal(x), y.equal(y)), value, x + y))


EXPANSIONS["nextafter"], MAX_ULP["nextafter"] = expand_nextafter, 0.0
