"""Resizing with a filter that is widened where the image shrinks, so that no pixel is left out."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from ... import te
from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr
from .. import tag
from ..utils import fail, injective
from .coordinates import Axis, clamp, place_of
from .filters import cubic_at, linear_at
from .interpolation import Interpolation


def shrink(how: Interpolation, image: te.Tensor, axes: Sequence[Axis], wanted: DataType) -> te.Tensor:
    """One axis after the other: a table of weights, its sum, and the weighted sum of pixels."""
    if how.method == "nearest":
        raise fail(how.name, "antialias is for linear and cubic resizing")
    if how.mode == "tf_crop_and_resize":
        raise fail(how.name, "antialias does not go with tf_crop_and_resize")
    kind = how.kind(image)
    data = image
    for a in axes:
        data = _filtered(how, data, a, kind)
    if data.dtype is wanted:
        return data
    return injective(
        how.name, data.shape, lambda *i: how.finish(data(*i), wanted), tag.ELEMWISE, "resize_rounded"
    )


def _filtered(how: Interpolation, data: te.Tensor, axis: Axis, kind: DataType) -> te.Tensor:
    name, p = how.name, axis.position
    if not (isinstance(axis.size, int) and isinstance(axis.out, int)):
        raise fail(
            name, "antialias needs sizes that are known at compile time: they say how wide the filter is"
        )
    scale = 1 / axis.step if axis.step is not None else Fraction(axis.out, axis.size)
    scale = min(scale or Fraction(1), Fraction(1))
    reach = 1 if how.method == "linear" else 2
    first = (-reach / scale).__floor__() + 1
    taps = 2 - 2 * first

    def spot(x: PrimExpr, k: PrimExpr) -> PrimExpr:
        return place_of(name, x, axis, how.mode, kind).floor() + (k + first)

    def weight(x: PrimExpr, k: PrimExpr) -> PrimExpr:
        place = place_of(name, x, axis, how.mode, kind)
        distance = te.abs((ops.cast(kind, k + first) - place.fraction(kind)) * te.const(float(scale), kind))
        value = linear_at(distance) if how.method == "linear" else cubic_at(distance, how.alpha)
        if not how.exclude:
            return value
        at = spot(x, k)
        return ops.select(te.all(at >= 0, at < axis.size), value, te.const(0, kind))

    table = injective(name, (axis.out, taps), weight, tag.INJECTIVE, "resize_weights")
    k = te.reduce_axis((0, taps), "k")
    total = injective(
        name, (axis.out,), lambda x: te.sum(table(x, k.var), axis=k), tag.COMM_REDUCE, "resize_weight_sum"
    )
    shape = [axis.out if d == p else s for d, s in enumerate(data.shape)]
    r = te.reduce_axis((0, taps), "k")

    def mixed(*i: Any) -> PrimExpr:
        at = clamp(spot(i[p], r.var), axis.size)
        return te.sum(ops.cast(kind, data(*i[:p], at, *i[p + 1 :])) * table(i[p], r.var), axis=r)

    whole = injective(name, shape, mixed, tag.COMM_REDUCE, "resize_sum")
    return injective(name, shape, lambda *i: whole(*i) / total(i[p]), tag.INJECTIVE, "resize")
