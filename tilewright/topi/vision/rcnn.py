"""Regions of interest cut out of a feature map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from ...tir import ir_builder
from .. import tag
from ..utils import (
    clamped,
    equal_const_int,
    extern,
    fail,
    injective,
    int_list,
    shape_text,
    static_int,
    tensor_arg,
    variant,
)
from .proposal import proposal as proposal

# ---------------------------------------------------------------------------- regions
# The places of channels, rows and columns.
_ORDERS = {"nchw": (1, 2, 3), "nhwc": (3, 1, 2)}


class _Regions:
    """The arguments, checked, and how to read them."""

    def __init__(self, name: str, layout: str, data: Any, rois: Any, pooled: Any, scale: float) -> None:
        self.name, order = f"vision.{name}_{layout}", _ORDERS[layout]
        self.data, self.rois = tensor_arg(self.name, "data", data), tensor_arg(self.name, "rois", rois)
        if len(self.data.shape) != 4 or not self.data.dtype.is_float:
            shape = shape_text(self.data.shape)
            raise fail(
                self.name, f"data is {self.data.dtype} of shape {shape} and must be floats of 4 dimensions"
            )
        if len(self.rois.shape) != 2 or not equal_const_int(self.rois.shape[1], 5):
            raise fail(self.name, f"rois has shape {shape_text(self.rois.shape)} and must be (regions, 5)")
        size = int_list(self.name, "pooled_size", pooled)
        size = size * 2 if len(size) == 1 else size
        if len(size) != 2 or any(not isinstance(s, int) or s < 1 for s in size):
            raise fail(self.name, f"pooled_size is {pooled!r} and must be one or two positive integers")
        self.bins: tuple[int, int] = (size[0], size[1])
        self.scale, self.order = float(scale), order
        self.kind = "float64" if self.data.dtype.bits == 64 else "float32"
        c, h, w = order
        self.height, self.width = self.data.shape[h], self.data.shape[w]
        shape_: list[Any] = [self.rois.shape[0]] * 4
        shape_[c], shape_[h], shape_[w] = self.data.shape[c], *self.bins
        self.shape = tuple(shape_)

    def number(self, value: float) -> PrimExpr:
        return te.const(value, self.kind)

    def point(self, i: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
        """Region, channel, row of bins and column of bins of an output's index."""
        c, h, w = self.order
        return i[0], i[c], i[h], i[w]

    def at(self, image: Any, channel: Any, y: Any, x: Any) -> tuple[Any, ...]:
        c, h, w = self.order
        out = [image] * 4
        out[c], out[h], out[w] = channel, y, x
        return tuple(out)

    def image(self, rois: Any, region: Any) -> PrimExpr:
        """The image of a region, one that exists."""
        last = self.data.shape[0] - 1
        return ops.min_of(ops.max_of(ops.cast("int32", rois[region, 0]), te.const(0, "int32")), last)

    def side(self, rois: Any, region: Any, column: int) -> PrimExpr:
        return ops.cast(self.kind, rois[region, column]) * self.number(self.scale)


def _averages(name: str, mode: Any) -> bool:
    """Whether bins are averaged, not maximised."""
    text = mode.decode() if isinstance(mode, bytes) else mode
    if text in ("avg", 0):
        return True
    if text in ("max", 1):
        return False
    raise fail(name, f"mode is {mode!r}", "it is avg (0) or max (1)")


# ---------------------------------------------------------------------------- align
class _Bins:
    """One region's bins: where they start, how large they are, how many points each has."""

    def __init__(self, r: _Regions, rois: Any, region: Any, ratio: int, aligned: bool) -> None:
        half, one = r.number(0.5), r.number(1)
        x1, y1, x2, y2 = (r.side(rois, region, k) - (half if aligned else r.number(0)) for k in (1, 2, 3, 4))
        height, width = y2 - y1, x2 - x1
        if not aligned:
            height, width = ops.max_of(height, one), ops.max_of(width, one)
        self.start = (y1, x1)
        self.step = (height / r.number(r.bins[0]), width / r.number(r.bins[1]))
        if ratio > 0:
            self.points: tuple[Any, Any] = (te.const(ratio, "int32"), te.const(ratio, "int32"))
        else:
            self.points = tuple(
                ops.max_of(ops.cast("int32", te.ceil(s)), te.const(0, "int32")) for s in self.step
            )  # type: ignore[assignment]

    def place(self, r: _Regions, axis: int, bin_: Any, point: Any) -> PrimExpr:
        """The place of a point of a bin along an axis."""
        step, half = self.step[axis], r.number(0.5)
        part = (ops.cast(r.kind, point) + half) * step / ops.cast(r.kind, self.points[axis])
        return self.start[axis] + ops.cast(r.kind, bin_) * step + part


def _bilinear(
    r: _Regions, load: Callable[..., PrimExpr], image: Any, channel: Any, y: PrimExpr, x: PrimExpr
) -> PrimExpr:
    """The map between four pixels; 0 where the place is more than a pixel outside."""
    zero, one = r.number(0), r.number(1)
    sizes = (r.height, r.width)
    outside = [c for v, s in zip((y, x), sizes, strict=True) for c in (v < -one, v > ops.cast(r.kind, s))]
    low, high, part = [], [], []
    for v, size in zip((y, x), sizes, strict=True):
        last = ops.cast(r.kind, size - 1)
        held = ops.min_of(ops.max_of(v, zero), last)
        floor = clamped(ops.cast("int32", te.floor(held)), size)  # of NaN it may be anything
        low.append(floor)
        high.append(ops.min_of(floor + 1, size - 1))
        part.append(held - ops.cast(r.kind, floor))

    def row(i: PrimExpr) -> PrimExpr:
        left, right = (ops.cast(r.kind, load(*r.at(image, channel, i, j))) for j in (low[1], high[1]))
        return left * (one - part[1]) + right * part[1]

    value = row(low[0]) * (one - part[0]) + row(high[0]) * part[0]
    return ops.if_then_else(te.any(*outside), zero, value)


def _roi_align(
    layout: str,
    data: Any,
    rois: Any,
    pooled_size: Any,
    spatial_scale: float,
    mode: Any,
    sample_ratio: int = -1,
    aligned: bool = False,
) -> te.Tensor:
    r = _Regions("roi_align", layout, data, rois, pooled_size, spatial_scale)
    average = _averages(r.name, mode)
    ratio = static_int(r.name, "sample_ratio", sample_ratio)
    if ratio > 0:
        return _align_fixed(r, ratio, average, aligned)
    return _align_adaptive(r, average, aligned)


roi_align_nchw = variant(
    "roi_align_nchw",
    _roi_align,
    "nchw",
    """Each region (image, x1, y1, x2, y2) divided into bins: the average or maximum of points sampled in each.

    Points lie between pixels and are interpolated. A bin has sample_ratio² of them, or as many as it has pixels if
    the ratio is not positive. `aligned` counts places from the middles of pixels, and takes regions as small as
    they are.
    """,
)
roi_align_nhwc = variant("roi_align_nhwc", _roi_align, "nhwc", "roi_align_nchw with the channels last.")


def _align_fixed(r: _Regions, ratio: int, average: bool, aligned: bool) -> te.Tensor:
    """As many points in each bin: a reduction over them."""
    name = r.name.removeprefix("vision.")
    ry, rx = te.reduce_axis((0, ratio), "ry"), te.reduce_axis((0, ratio), "rx")

    def element(*i: Any) -> PrimExpr:
        region, channel, bin_y, bin_x = r.point(i)
        bins = _Bins(r, r.rois, region, ratio, aligned)
        y, x = bins.place(r, 0, bin_y, ry.var), bins.place(r, 1, bin_x, rx.var)
        value = _bilinear(r, r.data, r.image(r.rois, region), channel, y, x)
        if average:
            return te.sum(value * r.number(1 / ratio**2), axis=[ry, rx])
        return te.max(value, axis=[ry, rx])

    wide = injective(r.name, r.shape, element, tag.COMM_REDUCE, name)
    if wide.dtype is r.data.dtype:
        return wide
    return injective(
        r.name, r.shape, lambda *i: ops.cast(r.data.dtype, wide(*i)), tag.ELEMWISE, f"{name}_cast"
    )


def _align_adaptive(r: _Regions, average: bool, aligned: bool) -> te.Tensor:
    """As many points as the region asks for: loops whose length is data."""

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        data, rois, out = (ib.buffer_ptr(b) for b in (*ins, outs[0]))
        with ib.for_range(0, r.shape[0], "region", kind="parallel") as region:
            bins = _Bins(r, rois, region, -1, aligned)
            rows, columns = (ib.let(n, p) for n, p in zip(("rows", "columns"), bins.points, strict=True))
            bins.points = (rows, columns)
            image = ib.let("image", r.image(rois, region))
            total = ib.allocate(r.kind, (1,), "total", scope="local")
            sizes = [(n, r.shape[k]) for n, k in zip(("channel", "y", "x"), r.order, strict=True)]
            with (
                ib.for_range(0, sizes[0][1], "channel") as c,
                ib.for_range(0, sizes[1][1], "y") as y,
                ib.for_range(0, sizes[2][1], "x") as x,
            ):
                total[0] = r.number(0) if average else te.const(float("-inf"), r.kind)
                with ib.for_range(0, rows, "ry") as ry, ib.for_range(0, columns, "rx") as rx:
                    value = _bilinear(
                        r, lambda *i: data[i], image, c, bins.place(r, 0, y, ry), bins.place(r, 1, x, rx)
                    )
                    total[0] = total[0] + value if average else ops.max_of(total[0], value)
                count = rows * columns
                if average:
                    result = total[0] / ops.cast(r.kind, ops.max_of(count, te.const(1, "int32")))
                else:
                    result = ops.select(count > 0, total[0], r.number(0))
                out[r.at(region, c, y, x)] = ops.cast(r.data.dtype, result)
        return ib.get()

    return extern(r.name, [r.shape], [r.data, r.rois], build, [r.data.dtype])[0]


# ---------------------------------------------------------------------------- pool
def _roi_pool(layout: str, data: Any, rois: Any, pooled_size: Any, spatial_scale: float) -> te.Tensor:
    r = _Regions("roi_pool", layout, data, rois, pooled_size, spatial_scale)
    kind = r.data.dtype

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source, regions, out = (ib.buffer_ptr(b) for b in (*ins, outs[0]))
        with ib.for_range(0, r.shape[0], "region", kind="parallel") as region:
            image = ib.let("image", r.image(regions, region))
            sides = [
                ib.let(n, ops.cast("int32", te.floor(r.side(regions, region, k) + r.number(0.5))))
                for k, n in enumerate(("x1", "y1", "x2", "y2"), 1)
            ]
            best = ib.allocate(kind, (1,), "best", scope="local")
            c_, h_, w_ = r.order
            with (
                ib.for_range(0, r.shape[c_], "channel") as c,
                ib.for_range(0, r.shape[h_], "y") as y,
                ib.for_range(0, r.shape[w_], "x") as x,
            ):
                top, bottom = _span(r, y, sides[1], sides[3], r.bins[0], r.height)
                left, right = _span(r, x, sides[0], sides[2], r.bins[1], r.width)
                best[0] = te.const(float("-inf"), kind)
                with ib.for_range(top, bottom, "i") as i, ib.for_range(left, right, "j") as j:
                    best[0] = ops.max_of(best[0], source[r.at(image, c, i, j)])
                empty = te.any(bottom <= top, right <= left)
                out[r.at(region, c, y, x)] = ops.select(empty, te.const(0, kind), best[0])
        return ib.get()

    return extern(r.name, [r.shape], [r.data, r.rois], build, [kind])[0]


roi_pool_nchw = variant(
    "roi_pool_nchw",
    _roi_pool,
    "nchw",
    "Each region (image, x1, y1, x2, y2), rounded to pixels, divided into bins: the maximum of each.",
)
roi_pool_nhwc = variant("roi_pool_nhwc", _roi_pool, "nhwc", "roi_pool_nchw with the channels last.")


def _span(r: _Regions, bin_: Any, start: Any, end: Any, bins: int, size: Any) -> tuple[PrimExpr, PrimExpr]:
    """The pixels of a bin, from the first to before the last, held inside of the map."""
    length = ops.max_of(end - start + 1, te.const(1, "int32"))

    def inside(v: PrimExpr) -> PrimExpr:
        return ops.min_of(ops.max_of(v + start, te.const(0, "int32")), size)

    first = ops.floordiv(bin_ * length, bins)
    after = ops.floordiv((bin_ + 1) * length + (bins - 1), bins)
    return inside(first), inside(after)
