"""The functions that saturate: tanh, erf and the logistic function, all through e^x - 1 or e^x.

    tanh(a) = t / (t + 2)         t = e^2a - 1
    erf(a)  = 1 - e^-g(a)         g(a) = -log(1 - erf(a)),  nearly a parabola

Both are right near 0 too, since e^x - 1 is computed without cancellation:

    e^x - 1 = 2^n·q + (2^n - 1)         q = e^r - 1 = r + r²·Q(r)
"""

from __future__ import annotations

from ....ir.expr import PrimExpr, Select
from .builder import Builder, expansion
from .exponential import exp_parts, expm1_bounded, scaled

# g(a) = a + a·G(a) on a ≤ 3.95, fitted (a linear program over Chebyshev points, coefficients rounded to
# float32 one after the other) for the least relative error of erf: 2^-27.8.
_ERF = (
    0.12837917, 0.63661957, 0.102776304, -0.019147824, -0.00016949371, 0.0016756557, -0.0006373453,
    0.000118854085, -9.38689e-06,
)  # fmt: skip


@expansion("tanh", ulp=2.75)
def expand_tanh(b: Builder, x: PrimExpr) -> PrimExpr:
    """t / (t + 2) for t = e^2a - 1, with the sign of x; 1 from a = 10 on."""
    a = b.let(b.fabs(x), "a")
    t = b.let(expm1_bounded(b, b.let(b.at_most(a + a, 20.0), "u")), "t")
    return b.copysign(t / (t + 2.0), x)


@expansion("erf", ulp=2.0)
def expand_erf(b: Builder, x: PrimExpr) -> PrimExpr:
    """1 - e^-g(a) for a = |x|, with the sign of x; 1 from a = 4 on."""
    a = b.let(b.at_most(b.fabs(x), 4.0), "a")
    minus = tuple(-c for c in _ERF)
    minus_g = b.fma(a, b.horner(a, minus), b.const(0.0, x) - a)
    return b.copysign(expm1_bounded(b, b.let(minus_g, "g")), x)


@expansion("sigmoid", ulp=2.5)
def expand_sigmoid(b: Builder, x: PrimExpr) -> PrimExpr:
    """1 / (1 + e^-x), from e^-|x| so that nothing overflows and small results keep their digits."""
    a = b.let(b.fabs(x), "a")
    minus = b.const(0.0, x) - b.at_most(a, 104.0)
    p, word = exp_parts(b, b.let(minus, "minus"))
    e = b.let(scaled(b, p, word, 64, 2.0**-64), "e")
    return Select(x < 0.0, e, b.const(1.0, x)) / (e + 1.0)
