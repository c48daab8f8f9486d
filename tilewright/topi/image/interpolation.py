"""Interpolation between pixels: the options of a resize, and the computation of one element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import te
from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import PrimExpr
from ..utils import as_place, dtype_of, fail
from .coordinates import MODES, ROUNDINGS, Axis, Measured, Place, clamp, place_of
from .filters import cubic_weights

_METHODS = {
    **dict.fromkeys(("nearest_neighbor", "nearest"), "nearest"),
    **dict.fromkeys(("linear", "bilinear", "trilinear"), "linear"),
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), "cubic"),
}
# A pixel of the original and its weight; None is 1.
Tap = tuple[PrimExpr, PrimExpr | None]


@dataclass
class Interpolation:
    """The options of a resize for all axes, with normalized names."""

    name: str
    method: str
    mode: str
    rounding: str = ""
    alpha: float = -0.5
    exclude: bool = False
    fill: float = 0.0

    def __post_init__(self) -> None:
        given, rounding = self.method, self.rounding
        self.method = _METHODS.get(str(given).lower(), "")
        self.rounding = rounding or ("round" if self.mode == "align_corners" else "floor")
        if not self.method:
            raise fail(self.name, f"method is {given!r}", f"it is one of {', '.join(_METHODS)}")
        if self.mode not in MODES:
            reason = f"coordinate_transformation_mode is {self.mode!r}"
            raise fail(self.name, reason, f"it is one of {', '.join(MODES)}")
        if self.rounding not in ROUNDINGS:
            raise fail(self.name, f"rounding_method is {rounding!r}", f"it is one of {', '.join(ROUNDINGS)}")

    def kind(self, data: te.Tensor) -> DataType:
        """The type in which weights and sums are computed."""
        return data.dtype if data.dtype.is_float and data.dtype.bits >= 32 else DataType("float32")

    def out_type(self, data: te.Tensor, out_dtype: str | None) -> DataType:
        return data.dtype if out_dtype is None else dtype_of(self.name, out_dtype)

    def finish(self, value: PrimExpr, wanted: DataType) -> PrimExpr:
        """The value in the type of the output; integers are the nearest ones, held in their range."""
        if wanted.is_float or not value.dtype.is_float:
            return ops.cast(wanted, value)
        low, high = (ops.cast(value.dtype, v) for v in (te.min_value(wanted), te.max_value(wanted)))
        return ops.cast(wanted, ops.min_of(ops.max_of(te.round(value), low), high))

    def taps(self, place: Place, size: Any, kind: DataType) -> list[Tap]:
        """The taps: the pixels and weights of a coordinate."""
        if self.method == "nearest":
            at = place.nearest(self.rounding)
            above = 0 if self.rounding == "floor" else 1
            return [(at if place.inside(size, 0, above) else clamp(at, size), None)]
        if place.whole:
            at = place.floor()
            return [(at if place.inside(size, 0, 0) else clamp(at, size), None)]
        floor, t = place.floor(), place.fraction(kind)
        if self.method == "linear":
            weights, first = [te.const(1, kind) - t, t], 0
        else:
            weights, first = cubic_weights(t, self.alpha), -1
        places = [floor + (first + k) for k in range(len(weights))]
        inside = place.inside(size, -first, len(weights) - 1 + first)
        if self.exclude and self.method == "cubic" and not inside:
            weights = _only_inside(weights, places, size)
        return [(p if inside else clamp(p, size), w) for p, w in zip(places, weights, strict=True)]

    def element(
        self, data: te.Tensor, axes: Sequence[Axis], i: Sequence[Any], at: Sequence[Any], out_type: DataType
    ) -> PrimExpr:
        """The output at `i`, from `data` at the point `at` with the resized axes replaced."""
        kind = self.kind(data)
        places = [place_of(self.name, i[a.position], a, self.mode, kind) for a in axes]
        taps = [self.taps(p, a.size, kind) for p, a in zip(places, axes, strict=True)]
        plain = all(w is None for t in taps for _, w in t)
        point = list(at)

        def value(axis: int) -> PrimExpr:
            if axis == len(axes):
                return data(*point) if plain else ops.cast(kind, data(*point))
            total: PrimExpr | None = None
            for index, weight in taps[axis]:
                d = axes[axis].position
                point[d] = as_place(index, data.shape[d])
                inner = value(axis + 1)
                part = inner if weight is None else inner * weight
                total = part if total is None else total + part
            assert total is not None
            return total

        out = self.finish(value(0), out_type)
        outside: list[PrimExpr] = []
        for p, a in zip(places, axes, strict=True):
            if isinstance(p, Measured):
                outside += [p.value < te.const(0, kind), p.value > ops.cast(kind, a.size - 1)]
        if not outside:
            return out
        fill = te.const(self.fill if out.dtype.is_float else int(self.fill), out.dtype)
        return ops.if_then_else(te.any(*outside), fill, out)


def _only_inside(weights: list[PrimExpr], places: list[PrimExpr], size: Any) -> list[PrimExpr]:
    """Weights of pixels out of bounds are 0, the others are normalized to a sum of 1."""
    held = [
        ops.select(te.all(p >= 0, p < ops.cast(p.dtype, size)), w, te.const(0, w.dtype))
        for p, w in zip(places, weights, strict=True)
    ]
    total = held[0]
    for w in held[1:]:
        total = total + w
    return [w / total for w in held]
