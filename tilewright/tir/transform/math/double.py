"""float64: exp, exp2, log, tanh and the logistic function as expansions, the others from the C library.

The same ways as in float32 with longer polynomials; the coefficients are minimax fits of the relative error
by Remez exchange.
"""

from __future__ import annotations

import math

from ....ir.expr import PrimExpr, Select, const
from ....ir.ops import call_pure_extern
from .builder import Builder

MAX_ULP_DOUBLE = {"exp": 1.2, "exp2": 1.2, "log": 1.0, "sigmoid": 2.5, "tanh": 2.75}
"""The greatest error of each float64 expansion, in units in the last place."""

# e^r - 1 = r + r²·Q(r) on |r| ≤ ln2/2: 2^-61.5.
_EXP = (
    0.5, 0.16666666666666677, 0.04166666666666671, 0.008333333333320342, 0.0013888888888842442,
    0.00019841269889758423, 2.4801587440335798e-05, 2.7557240242263743e-06, 2.755714967543745e-07,
    2.511051086572759e-08, 2.0960327406907906e-09,
)  # fmt: skip
# log((1 + s)/(1 - s)) = 2s + s³·R(s²) on |s| ≤ 3 - √8: 2^-59.5.
_LOG = (
    0.6666666666666734, 0.3999999999941562, 0.2857142874219859, 0.22222198590560696, 0.18183563526241897,
    0.15314068441899878, 0.14795795718931481,
)  # fmt: skip
_LOG2E = 1.4426950408889634
_LN2 = (float.fromhex("0x1.62e42fefa39efp-1"), float.fromhex("0x1.abc9e3b39803fp-56"))
_LN2_SHORT = (float.fromhex("0x1.62e42fefa38p-1"), float.fromhex("0x1.ef35793c76730p-45"))
_ONE = 1023 << 52  # the bits of 1.0
_ROOT_HALF = 0x3FE6A09E667F3BCD  # the bits of √½
_INTEGER = 0x4330000000000000  # with an integer below 2^52 in its low bits: 2^52 + the integer


def expand_double(b: Builder, name: str, *args: PrimExpr) -> PrimExpr:
    """A float64 operator: its expansion if there is one, else the C library's function for each lane."""
    body = {"exp": _exp, "exp2": _exp2, "log": _log, "sigmoid": _sigmoid, "tanh": _tanh}.get(name)
    return call_library(b, name, *args) if body is None else body(b, b.let(args[0], "x"))


def call_library(b: Builder, name: str, *args: PrimExpr) -> PrimExpr:
    """The float64 operator `name` in terms of what every C library has."""
    x = args[0]
    if name == "exp10":
        return call_pure_extern(x.dtype, "pow", b.const(10.0, x), x)
    if name == "rsqrt":
        return b.const(1.0, x) / b.sqrt(x)
    if name == "ldexp":
        return call_pure_extern(x.dtype, "ldexp", x, b.to(b.i32, args[1]))
    return call_pure_extern(x.dtype, name, *args)


def _reduced(b: Builder, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """r = x - n·ln 2 and a word with n in its low bits."""
    n, word = b.round_scaled(x, _LOG2E)
    high, low = _LN2 if b.has_fma else _LN2_SHORT
    return b.let(b.fma(n, -low, b.fma(n, -high, x)), "r"), word


def _expm1(b: Builder, r: PrimExpr) -> PrimExpr:
    """e^r - 1 for |r| ≤ ln2/2."""
    r2 = b.let(r * r, "r2")
    return b.fma(r2, b.halves(r, r2, _EXP), r)


def _scaled(b: Builder, x: PrimExpr, p: PrimExpr, word: PrimExpr) -> PrimExpr:
    """p·2^n in two steps: 2^n itself may be too small or too great."""
    below = b.let(x < 0.0, "below")
    bias = Select(below, const((1023 + 512) << 52, b.i64), const(1022 << 52, b.i64))
    return p * b.float_of((word << 52) + bias) * Select(below, b.const(2.0**-512, x), b.const(2.0, x))


def _exp(b: Builder, x: PrimExpr) -> PrimExpr:
    x = b.clamp(x, -746.0, 710.0)
    r, word = _reduced(b, x)
    return _scaled(b, x, _expm1(b, r) + 1.0, word)


def _exp2(b: Builder, x: PrimExpr) -> PrimExpr:
    x = b.clamp(x, -1076.0, 1025.0)
    n, word = b.round_scaled(x, 1.0)
    d = b.let(x - n, "d")
    # d·ln 2 to twice the digits, the second part put in to first order: e^(r + t) = e^r + t·e^r.
    r = b.let(d * _LN2[0], "r")
    p = b.let(_expm1(b, r) + 1.0, "p")
    rest = b.fma(d, _LN2[0], b.const(0.0, x) - r) if b.has_fma else b.const(0.0, x)
    return _scaled(b, x, b.fma(b.fma(d, _LN2[1], rest), p, p), word)


def _log(b: Builder, x: PrimExpr) -> PrimExpr:
    """e·ln 2 + log(m): log(1 + f) = f - (f²/2 - s·(f²/2 + z·R(z))) with s = f/(2 + f), z = s²."""
    tiny = b.let(x < 2.0**-1022, "tiny")
    normal = Select(tiny, x * 2.0**52, x)
    i = b.let(b.bits(normal) + (_ONE - _ROOT_HALF), "i")
    # The exponent, biased by 1023, becomes a float by way of the low bits of 2^52.
    whole = b.float_of(((i >> 52) & 0x7FF) + _INTEGER)
    e = whole - Select(tiny, b.const(2.0**52 + 1023 + 52, x), b.const(2.0**52 + 1023, x))
    e = b.let(e, "e")
    m = b.float_of((i & ((1 << 52) - 1)) + _ROOT_HALF)
    f = b.let(m - 1.0, "f")
    s = b.let(f / (f + 2.0), "s")
    z, half = b.let(s * s, "z"), b.let(f * f * 0.5, "half")
    high, low = _LN2_SHORT  # e·high is exact
    tail = b.fma(s, b.fma(z, b.halves(z, b.let(z * z, "z2"), _LOG), half), e * low)
    value = e * high + (f - (half - tail))
    value = Select(x < math.inf, value, x)
    outside = Select(x.equal(0.0), b.const(-math.inf, x), b.const(math.nan, x))
    return Select(x > 0.0, value, outside)


def _sigmoid(b: Builder, x: PrimExpr) -> PrimExpr:
    minus = b.let(b.const(0.0, x) - b.at_most(b.fabs(x), 746.0), "minus")
    r, word = _reduced(b, minus)
    power = b.float_of((word << 52) + ((1023 + 512) << 52))
    e = b.let((_expm1(b, r) + 1.0) * power * 2.0**-512, "e")
    return Select(x < 0.0, e, b.const(1.0, x)) / (e + 1.0)


def _tanh(b: Builder, x: PrimExpr) -> PrimExpr:
    a = b.let(b.fabs(x), "a")
    r, word = _reduced(b, b.let(b.at_most(a + a, 40.0), "u"))
    power = b.let(b.float_of((word << 52) + _ONE), "power")
    t = b.let(b.fma(power, _expm1(b, r), power - 1.0), "t")
    return b.copysign(t / (t + 2.0), x)
