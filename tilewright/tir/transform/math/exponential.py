"""Exponentials: exp, exp2, exp10, sinh, cosh, and the logistic function.

    exp(x) = 2^n · e^r     n = round(x / ln 2),  r = x - n·ln 2,  |r| ≤ ln 2 / 2

The coefficients are minimax fits of the relative error on the reduced interval (a linear program over
Chebyshev points), rounded to float32 one after the other from the lowest, the others fitted anew.
"""

from __future__ import annotations

from ....ir.expr import PrimExpr, Select
from .builder import Builder, expansion
from .constants import LN2, LN2_SHORT, LOG10_2, LOG10_2_SHORT

# e^r = 1 + r + r²·Q(r) on |r| ≤ ln2/2: 2^-28.0 with degree 4, 2^-23.2 with degree 3.
_EXP = (1.0, 1.0, 0.5, 0.16666533, 0.04166722, 0.008367582, 0.0013865444)
_EXP_FAST = (1.0, 1.0, 0.49999228, 0.16667113, 0.041890603, 0.008312772)
# 2^r = 1 + r·Q(r) on |r| ≤ 1/2: 2^-28.1.
_EXP2 = (1.0, 0.6931472, 0.24022643, 0.055503644, 0.00961895, 0.001338884, 0.00015218767)
# 10^r = 1 + r·Q(r) on |r| ≤ log10(2)/2: 2^-28.4.
_EXP10 = (1.0, 2.3025851, 2.6509485, 2.0346565, 1.171321, 0.54180324, 0.20548229)
# sinh(x) = x + x³·Q(x²) on |x| ≤ 1: 2^-25.3.
_SINH = (0.16666716, 0.008330271, 0.0002037334)

_LOG2E, _LOG2_10 = 1.442695041, 3.321928095


def _reduce(
    b: Builder, x: PrimExpr, n: PrimExpr, step: tuple[float, float], short: tuple[float, float]
) -> PrimExpr:
    """`x - n * step`, exact but for the last rounding."""
    high, low = step if b.has_fma else short
    return b.let(b.fma(n, -low, b.fma(n, -high, x)), "r")


def exp_parts(b: Builder, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """e^r and a word with n in its low bits, for an `x` that is small enough for n to fit a float."""
    p, _, word = _pieces(b, x)
    return p, word


def _pieces(b: Builder, x: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """e^r, n as a float, and a word with n in its low bits."""
    n, word = b.round_scaled(x, _LOG2E)
    r = _reduce(b, x, n, LN2, LN2_SHORT)
    return b.horner(r, _EXP_FAST if b.fast else _EXP), n, word


def expm1_bounded(b: Builder, x: PrimExpr) -> PrimExpr:
    """e^x - 1 for |x| < 80, near 0 too."""
    n, word = b.round_scaled(x, _LOG2E)
    r = _reduce(b, x, n, LN2, LN2_SHORT)
    q = b.fma(r * r, b.horner(r, _EXP[2:]), r)
    power = b.let(b.float_of((word << 23) + (127 << 23)), "power")
    return b.fma(power, q, power - 1.0)


def scaled(b: Builder, p: PrimExpr, word: PrimExpr, shift: int, rest: float) -> PrimExpr:
    """`p · 2^(n + shift) · rest` with n in the low bits of `word`; the result is rounded once."""
    power = b.float_of((word << 23) + ((127 + shift) << 23))
    return p * power if rest == 1.0 else p * power * rest


def _scaled_both_ways(b: Builder, x: PrimExpr, p: PrimExpr, n: PrimExpr, word: PrimExpr) -> PrimExpr:
    """`p · 2^n` in two steps, since 2^n itself may be too small or too great for a float32.

    x < 0:   (p · 2^(n+64)) · 2^-64        else:   (p · 2^(n-1)) · 2

    Some processors have an instruction that does it in one.
    """
    if b.scales(p):
        return b.scale(p, n)
    if b.fast:
        return scaled(b, p, word, 0, 1.0)
    below = b.let(x < 0.0, "below")
    bias = Select(below, b.const(191 << 23, word), b.const(126 << 23, word))
    return p * b.float_of((word << 23) + bias) * Select(below, b.const(2.0**-64, x), b.const(2.0, x))


@expansion("exp", ulp=1.25)
def expand_exp(b: Builder, x: PrimExpr) -> PrimExpr:
    """e^x: two fused steps of reduction, a polynomial of degree 6, scaling by exponent bits.

    Fast: degree 5, and results below 2^-126 or above 2^127 are wrong by their exponent's saturation.
    """
    x = b.clamp(x, *((-87.0, 88.0) if b.fast else (-104.0, 89.0)))
    p, n, word = _pieces(b, x)
    return _scaled_both_ways(b, x, p, n, word)


@expansion("exp2", ulp=1.25)
def expand_exp2(b: Builder, x: PrimExpr) -> PrimExpr:
    """2^x: as exp, with a reduction that is exact."""
    x = b.clamp(x, *((-126.0, 127.0) if b.fast else (-151.0, 129.0)))
    n, word = b.round_scaled(x, 1.0)
    p = b.horner(b.let(x - n, "r"), _EXP2)
    return _scaled_both_ways(b, x, p, n, word)


@expansion("exp10", ulp=1.4)
def expand_exp10(b: Builder, x: PrimExpr) -> PrimExpr:
    """10^x: as exp, over log10(2)."""
    x = b.clamp(x, *((-37.9, 38.2) if b.fast else (-46.0, 38.6)))
    n, word = b.round_scaled(x, _LOG2_10)
    p = b.horner(_reduce(b, x, n, LOG10_2, LOG10_2_SHORT), _EXP10)
    return _scaled_both_ways(b, x, p, n, word)


def _half_exp(b: Builder, a: PrimExpr) -> PrimExpr:
    """e^a / 2 for a ≥ 0, infinite only where sinh and cosh are."""
    p, word = exp_parts(b, b.let(b.at_most(a, 90.0), "u"))
    return b.let(scaled(b, p, word, -2, 2.0), "half")


@expansion("sinh", ulp=2.0)
def expand_sinh(b: Builder, x: PrimExpr) -> PrimExpr:
    """(e^a - e^-a) / 2 for a = |x| > 1, a polynomial below."""
    a = b.let(b.fabs(x), "a")
    half = _half_exp(b, a)
    z = b.let(x * x, "z")
    small = b.fma(x * z, b.horner(z, _SINH), x)
    return Select(a < 1.0, small, b.copysign(half - 0.25 / half, x))


@expansion("cosh", ulp=2.0)
def expand_cosh(b: Builder, x: PrimExpr) -> PrimExpr:
    """(e^a + e^-a) / 2."""
    half = _half_exp(b, b.let(b.fabs(x), "a"))
    return half + 0.25 / half
