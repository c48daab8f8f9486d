"""The weights with which neighbouring pixels mix."""

from __future__ import annotations

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr


def _near(d: PrimExpr, alpha: float) -> PrimExpr:
    """Keys' cubic at a distance up to 1."""
    a2, a3, one = (te.const(v, d.dtype) for v in (alpha + 2, alpha + 3, 1))
    return (a2 * d - a3) * d * d + one


def _far(d: PrimExpr, alpha: float) -> PrimExpr:
    """Keys' cubic at a distance from 1 to 2."""
    a, a5, a8, a4 = (te.const(v * alpha, d.dtype) for v in (1, 5, 8, 4))
    return ((a * d - a5) * d + a8) * d - a4


def cubic_weights(t: PrimExpr, alpha: float) -> list[PrimExpr]:
    """The weights of the pixels at -1, 0, 1 and 2, seen from t between 0 and 1."""
    one, two = te.const(1, t.dtype), te.const(2, t.dtype)
    return [_far(t + one, alpha), _near(t, alpha), _near(one - t, alpha), _far(two - t, alpha)]


def cubic_at(distance: PrimExpr, alpha: float) -> PrimExpr:
    """Keys' cubic at any distance."""
    one, two, zero = (te.const(v, distance.dtype) for v in (1, 2, 0))
    outer = ops.select(distance < two, _far(distance, alpha), zero)
    return ops.select(distance <= one, _near(distance, alpha), outer)


def linear_at(distance: PrimExpr) -> PrimExpr:
    """A triangle: 1 at distance 0, 0 from distance 1 on."""
    return ops.max_of(te.const(1, distance.dtype) - distance, te.const(0, distance.dtype))
