"""Grid sampling and affine grids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from .. import tag
from ..utils import equal_const_int, fail, get_const_tuple, injective, same_size, shape_text, tensor_arg
from .coordinates import clamp
from .filters import cubic_weights

_ALPHA = -0.75


def affine_grid(data: Any, target_shape: Any, align_corners: bool = True) -> te.Tensor:
    """The source coordinates of each pixel of `target_shape` under affine maps: [batch, 2, 3] to [batch, 2, height,
    width].

    Coordinates are from -1 to 1, x first; maps of volumes are [batch, 3, 4] and give [batch, 3, depth, height, width].
    """
    name = "image.affine_grid"
    theta = tensor_arg(name, "data", data)
    sizes = list(get_const_tuple(target_shape))
    n = len(sizes)
    if n not in (2, 3) or len(theta.shape) != 3 or get_const_tuple(theta.shape[1:]) != (n, n + 1):
        raise fail(
            name,
            f"data has shape {shape_text(theta.shape)} for a target of {n} dimensions",
            "the maps are (batch, 2, 3) for images and (batch, 3, 4) for volumes",
        )

    def spot(i: PrimExpr, size: Any) -> PrimExpr:
        x, full = ops.cast(theta.dtype, i), ops.cast(theta.dtype, size)
        one, two = te.const(1, theta.dtype), te.const(2, theta.dtype)
        if not align_corners:
            return (x * two + one) / full - one
        return x * two / ops.max_of(full - one, one) - one

    def element(b: Any, d: Any, *at: Any) -> PrimExpr:
        out = theta(b, d, n)
        # The first column belongs to x, which is the last dimension.
        for k, (i, size) in enumerate(zip(reversed(at), reversed(sizes), strict=True)):
            out = theta(b, d, k) * spot(i, size) + out
        return out

    return injective(name, (theta.shape[0], n, *sizes), element, tag.INJECTIVE, "affine_grid")


def grid_sample(
    data: Any,
    grid: Any,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> te.Tensor:
    """An image (NCHW) or volume (NCDHW) sampled at the coordinates `grid`, [batch, 2 or 3, ...], x first.

    -1 and 1 are the centres of the outermost pixels with `align_corners`, else their outer edges. Beyond the edge
    there are zeros, the border's pixels, or the image mirrored ("reflection").
    """
    name = "image.grid_sample"
    image, places = tensor_arg(name, "data", data), tensor_arg(name, "grid", grid)
    n = {"NCHW": 2, "NCDHW": 3}.get(layout, 0)
    kinds = {
        "bilinear": "linear",
        "trilinear": "linear",
        "linear": "linear",
        "nearest": "nearest",
        "bicubic": "cubic",
    }
    if n == 0:
        raise fail(name, f"layout is {layout!r}", "it is NCHW or NCDHW")
    if method not in kinds or (method == "bicubic" and n == 3):
        raise fail(
            name, f"method is {method!r} for layout {layout}", "bilinear, nearest and, of images, bicubic"
        )
    if padding_mode not in ("zeros", "border", "reflection"):
        raise fail(name, f"padding_mode is {padding_mode!r}", "it is zeros, border or reflection")
    if not image.dtype.is_float:
        raise fail(name, f"data is {image.dtype} and must be of a float type", "cast it first")
    ndim = n + 2
    good = len(image.shape) == ndim and len(places.shape) == ndim
    if not good or not equal_const_int(places.shape[1], n) or not same_size(image.shape[0], places.shape[0]):
        shapes = f"{shape_text(image.shape)} and {shape_text(places.shape)}"
        raise fail(
            name, f"data and grid have shapes {shapes}", f"the grid is (batch, {n}, ...) with data's batch"
        )
    reader = _Reader(image, kinds[method], padding_mode, align_corners)

    def element(b: Any, c: Any, *at: Any) -> PrimExpr:
        where = [reader.unnormalise(places(b, n - 1 - d, *at), d) for d in range(n)]
        return ops.cast(image.dtype, reader.value((b, c), where))

    return injective(name, (*image.shape[:2], *places.shape[2:]), element, tag.INJECTIVE, "grid_sample")


class _Reader:
    """An image that can be read anywhere."""

    def __init__(self, image: te.Tensor, method: str, padding: str, align: bool) -> None:
        self.image, self.method, self.padding, self.align = image, method, padding, align
        self.kind = "float32" if image.dtype.bits < 32 else str(image.dtype)

    def size(self, axis: int) -> PrimExpr:
        return self.image.shape[axis + 2]

    def unnormalise(self, place: PrimExpr, axis: int) -> PrimExpr:
        """From -1…1 to pixels."""
        v, size = ops.cast(self.kind, place), ops.cast(self.kind, self.size(axis))
        one, half = te.const(1, self.kind), te.const(0.5, self.kind)
        if self.align:
            return (v + one) * half * (size - one)
        return ((v + one) * size - one) * half

    def fold(self, place: PrimExpr, axis: int) -> PrimExpr:
        """A coordinate folded into the image according to the padding mode; unchanged for zeros."""
        if self.padding == "zeros":
            return place
        top = ops.cast(self.kind, self.size(axis) - 1)
        zero = te.const(0, self.kind)
        if self.padding == "reflection":
            place = self._mirror(place, axis)
        return ops.min_of(ops.max_of(place, zero), top)

    def _mirror(self, place: PrimExpr, axis: int) -> PrimExpr:
        """A coordinate reflected at the centres of the border's pixels, or at their outer edges."""
        size = ops.cast(self.kind, self.size(axis))
        one, half, zero = (te.const(v, self.kind) for v in (1, 0.5, 0))
        low = zero if self.align else -half
        span = size - one if self.align else size
        safe = ops.max_of(span, te.const(1e-6, self.kind))
        off = te.abs(place - low)
        flips = te.floor(off / safe)
        extra = off - flips * safe
        even = ops.equal(flips - te.const(2, self.kind) * te.floor(flips * half), zero)
        out = ops.select(even, extra, safe - extra) + low
        return ops.select(span > zero, out, zero)

    def load(self, lead: tuple[Any, ...], at: Sequence[PrimExpr]) -> PrimExpr:
        """A pixel; with zeros, 0 out of bounds. Indices are clamped even for NaN coordinates."""
        held = [clamp(i, self.size(d)) for d, i in enumerate(at)]
        value = ops.cast(self.kind, self.image(*lead, *held))
        if self.padding != "zeros":
            return value
        inside = te.all(*(c for d, i in enumerate(at) for c in (i >= 0, i < self.size(d))))
        return ops.if_then_else(inside, value, te.const(0, self.kind))

    def value(self, lead: tuple[Any, ...], where: Sequence[PrimExpr]) -> PrimExpr:
        if self.method == "nearest":
            at = [ops.cast("int32", te.nearbyint(self.fold(w, d))) for d, w in enumerate(where)]
            return self.load(lead, at)
        if self.method == "linear":
            where = [self.fold(w, d) for d, w in enumerate(where)]
        floors = [te.floor(w) for w in where]
        parts = [w - f for w, f in zip(where, floors, strict=True)]
        one = te.const(1, self.kind)
        weights = [[one - t, t] if self.method == "linear" else cubic_weights(t, _ALPHA) for t in parts]
        first = 0 if self.method == "linear" else -1

        def mixed(axis: int, chosen: tuple[PrimExpr, ...]) -> PrimExpr:
            if axis == len(where):
                return self.load(lead, chosen)
            total: PrimExpr | None = None
            for k, w in enumerate(weights[axis]):
                place = floors[axis] + te.const(first + k, self.kind)
                if self.method == "cubic":  # the padding holds for each pixel, not for the place between them
                    place = self.fold(place, axis)
                part = mixed(axis + 1, (*chosen, ops.cast("int32", place))) * w
                total = part if total is None else total + part
            assert total is not None
            return total

        return mixed(0, ())
