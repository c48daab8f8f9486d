"""Circular functions and their inverses.

The argument is reduced in float64: with k = x·(2/π), n = round(k), r = (k - n)·π/2 the polynomials see
|r| ≤ π/4. A float32 beyond 2^40 is a multiple of a large power of two, so the leading bits of 2/π only add
multiples of 4 to k; leaving them out keeps k below 2^47, and one reduction serves every argument:

    |x| <  2^40    2/π
    |x| <  2^62    2/π mod 2^-15         (x is a multiple of 2^17)
    |x| <  2^84    2/π mod 2^-37                             … and so on

The coefficients are minimax fits of the relative error (a linear program over Chebyshev points), rounded to
float32 one after the other from the lowest, the others fitted anew.
"""

from __future__ import annotations

import math

from ....ir.expr import PrimExpr, Select
from .builder import ROUND64, Builder, expansion
from .constants import HALF_PI, PI

# sin(r) = r + r³·S(r²), cos(r) = 1 - r²/2 + r⁴·C(r²) on |r| ≤ π/4: 2^-27.9 and 2^-33.0.
_SIN = (-0.16666655, 0.008332188, -0.00019518095)
_COS = (0.041666646, -0.001388731, 2.4432327e-05)
# asin(s) = s + s³·A(s²) on s² ≤ 1/4: 2^-27.6.
_ASIN = (0.16666752, 0.074953064, 0.045469772, 0.024180772, 0.04216642)
# atan(t) = t + t³·B(t²) on t ≤ 1: 2^-28.5.
_ATAN = (
    -0.333333, 0.1999853, -0.14264016, 0.109508775, -0.0839928, 0.0578805, -0.031095514, 0.01086751,
    -0.0017824571,
)  # fmt: skip

_HALF_PI_64 = 1.5707963267948966

# Where each range of |x| begins, and its part of 2/π: as the sum of two float64; and as three, the first
# two of 29 bits, whose products with a float32 are exact.
_BEGIN = (0.0, 2.0**40, 2.0**62, 2.0**84, 2.0**106)
_FUSED = tuple(
    tuple(float.fromhex(w) for w in row)
    for row in (
        ("0x1.45f306dc9c883p-1", "-0x1.6b01ec5417056p-55"),
        ("0x1.836e4e44152a0p-16", "-0x1.ec54170565912p-71"),
        ("0x1.91054a7f09d5fp-38", "0x1.1f534ddc0db63p-92"),
        ("0x1.3f84eafa3ea6ap-61", "-0x1.11f924eb53362p-115"),
        ("0x1.5f47d4d377037p-82", "-0x1.3ad4cd8778df8p-137"),
    )
)
_PLAIN = tuple(
    tuple(float.fromhex(w) for w in row)
    for row in (
        ("0x1.45f306dp-1", "0x1.9391054p-30", "0x1.4fe13abe8fa9ap-59"),
        ("0x1.836e4e4p-16", "0x1.054a7fp-46", "0x1.3abe8fa9a6ee0p-75"),
        ("0x1.91054a7p-38", "0x1.e13abe8p-67", "0x1.f534ddc0db629p-96"),
        ("0x1.3f84eafp-61", "0x1.47d4d37p-90", "0x1.c0db6295993c4p-120"),
        ("0x1.5f47d4dp-82", "0x1.bb81b6cp-113", "0x1.4acc9e21c8210p-143"),
    )
)


def _parts_of_two_over_pi(b: Builder, a: PrimExpr) -> list[PrimExpr]:
    """The part of 2/π that matters for `a`, highest word first. Fast: that for |x| < 2^40."""
    table = _FUSED if b.has_fma else _PLAIN
    words = [b.const(w, a) for w in table[0]]
    if b.fast:
        return words
    for begin, row in zip(_BEGIN[1:], table[1:], strict=True):
        beyond = b.let(a >= begin, "beyond")
        words = [Select(beyond, b.const(new, a), old) for new, old in zip(row, words, strict=True)]
    return [b.let(w, "w") for w in words]


def _quadrant(b: Builder, a: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The remainder r of a float32 `a` ≥ 0 as float32, and an int32 with the quadrant in its low two bits."""
    wide = b.let(b.to(b.f64, a), "wide")
    words = _parts_of_two_over_pi(b, wide)
    if b.has_fma:
        high, low = words
        shifted = b.let(b.fma(wide, high, ROUND64), "shifted")
        k = b.fma(wide, low, b.fma(wide, high, b.const(ROUND64, wide) - shifted))
        count = b.to(b.i32, b.bits(shifted))
    else:
        products = [b.let(wide * w, "part") for w in words]
        n0, c0 = b.round_scaled(products[0], 1.0)
        n1, c1 = b.round_scaled(products[1], 1.0)
        both = b.let((products[0] - n0) + (products[1] - n1), "both")
        n2, c2 = b.round_scaled(both + products[2], 1.0)
        k = (both - n2) + products[2]
        count = (b.to(b.i32, c0) & 3) + (b.to(b.i32, c1) & 3) + (b.to(b.i32, c2) & 3)
    r = b.let(b.to(b.f32, k * _HALF_PI_64), "r")
    return r, b.let(count, "count")


def _sin_cos(b: Builder, r: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """sin(r) and cos(r) for |r| ≤ π/4."""
    z = b.let(r * r, "z")
    sine = b.fma(r * z, b.horner(z, _SIN), r)
    cosine = b.fma(z * z, b.horner(z, _COS), b.fma(z, -0.5, 1.0))
    return b.let(sine, "sine"), b.let(cosine, "cosine")


def _odd(b: Builder, count: PrimExpr) -> PrimExpr:
    return b.let((count & 1).equal(1), "odd")


@expansion("sin", ulp=1.75)
def expand_sin(b: Builder, x: PrimExpr) -> PrimExpr:
    """The sine, of every float32. Fast: for |x| < 2^40."""
    r, count = _quadrant(b, b.let(b.fabs(x), "a"))
    sine, cosine = _sin_cos(b, r)
    sign = ((count & 2) << 30) ^ (b.bits(x) & -0x80000000)
    return b.float_of(b.bits(Select(_odd(b, count), cosine, sine)) ^ sign)


@expansion("cos", ulp=1.75)
def expand_cos(b: Builder, x: PrimExpr) -> PrimExpr:
    """The cosine, of every float32. Fast: for |x| < 2^40."""
    r, count = _quadrant(b, b.let(b.fabs(x), "a"))
    sine, cosine = _sin_cos(b, r)
    sign = (((count << 1) ^ count) & 2) << 30
    return b.float_of(b.bits(Select(_odd(b, count), sine, cosine)) ^ sign)


@expansion("tan", ulp=4.0)
def expand_tan(b: Builder, x: PrimExpr) -> PrimExpr:
    """sin(r) / cos(r), or -cos(r) / sin(r) in the odd quadrants. Fast: for |x| < 2^40."""
    r, count = _quadrant(b, b.let(b.fabs(x), "a"))
    sine, cosine = _sin_cos(b, r)
    odd = _odd(b, count)
    ratio = Select(odd, cosine, sine) / Select(odd, sine, cosine)
    sign = ((count & 1) << 31) ^ (b.bits(x) & -0x80000000)
    return b.float_of(b.bits(ratio) ^ sign)


def _asin_parts(b: Builder, a: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Is a > 1/2, and asin(s) for s = a up to 1/2, s = √((1 - a)/2) beyond (asin(a) = π/2 - 2·asin(s))."""
    big = b.let(a > 0.5, "big")
    z = b.let(Select(big, (b.const(1.0, a) - a) * 0.5, a * a), "z")
    s = b.let(Select(big, b.sqrt(z), a), "s")
    return big, b.let(b.fma(s * z, b.horner(z, _ASIN), s), "arc")


@expansion("asin", ulp=2.5)
def expand_asin(b: Builder, x: PrimExpr) -> PrimExpr:
    """A polynomial up to 1/2, the half-angle formula beyond; NaN beyond 1."""
    big, arc = _asin_parts(b, b.let(b.fabs(x), "a"))
    beyond = b.const(HALF_PI[0], x) - (arc + arc - HALF_PI[1])
    return b.copysign(Select(big, beyond, arc), x)


@expansion("acos", ulp=1.5)
def expand_acos(b: Builder, x: PrimExpr) -> PrimExpr:
    """π/2 - asin(x) up to 1/2, twice the half-angle's arc sine beyond; NaN beyond 1."""
    big, arc = _asin_parts(b, b.let(b.fabs(x), "a"))
    twice = b.let(arc + arc, "twice")
    negative = b.let(x < 0.0, "negative")
    near = Select(negative, b.const(PI[0], x) - (twice - PI[1]), twice)
    signed = b.let(b.copysign(arc, x), "signed")
    return Select(big, near, b.const(HALF_PI[0], x) - (signed - HALF_PI[1]))


def _atan_unit(b: Builder, t: PrimExpr) -> PrimExpr:
    """atan(t) for 0 ≤ t ≤ 1."""
    z = b.let(t * t, "z")
    return b.let(b.fma(t * z, b.halves(z, b.let(z * z, "z2"), _ATAN), t), "arc")


@expansion("atan", ulp=2.5)
def expand_atan(b: Builder, x: PrimExpr) -> PrimExpr:
    """A polynomial up to 1, π/2 - atan(1/a) beyond."""
    a = b.let(b.fabs(x), "a")
    big = b.let(a > 1.0, "big")
    arc = _atan_unit(b, b.let(Select(big, b.const(1.0, x) / a, a), "t"))
    beyond = b.const(HALF_PI[0], x) - (arc - HALF_PI[1])
    return b.copysign(Select(big, beyond, arc), x)


@expansion("atan2", ulp=2.5)
def expand_atan2(b: Builder, y: PrimExpr, x: PrimExpr) -> PrimExpr:
    """The angle of (x, y): the arc tangent of the lesser over the greater, turned into its octant."""
    ax, ay = b.let(b.fabs(x), "ax"), b.let(b.fabs(y), "ay")
    steep = b.let(ay > ax, "steep")
    greater = b.let(Select(steep, ay, ax), "greater")
    lesser = b.let(Select(steep, ax, ay), "lesser")
    # 0/0 counts as 0 and ∞/∞ as 1; NaN propagates through the division.
    ratio = Select(greater.equal(0.0), lesser, lesser / greater)
    ratio = Select(lesser.equal(math.inf), b.const(1.0, x), ratio)
    arc = _atan_unit(b, b.let(ratio, "t"))
    arc = b.let(Select(steep, b.const(HALF_PI[0], x) - (arc - HALF_PI[1]), arc), "arc")
    left = (b.bits(x) & -0x80000000).equal(-0x80000000)  # -0 counts as left
    arc = Select(left, b.const(PI[0], x) - (arc - PI[1]), arc)
    return b.copysign(Select(x.equal(x), arc, x), y)
