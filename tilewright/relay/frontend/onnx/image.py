"""Images: resizing in all modes of ONNX, sampling on a grid, regions, boxes, deformable convolution."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from ...op.shapes import floordiv, mul, same_size
from ...ty import Any as AnySize
from ..common.matrices import matmul
from ..common.resize import resized
from .build import (
    R,
    cast,
    constant,
    dtype_of,
    is_static,
    literal,
    rank,
    scalar,
    shape_of,
    static_shape,
    take_rows,
)
from .context import Node, converter
from .windows import windows_of

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic", "bilinear": "linear"}


# ---------------------------------------------------------------------------- resize
@converter("Resize")
def resize_scales(n: Node) -> Any:
    """Opset 10: scales only, asymmetric."""
    return _resized_by(n, [float(v) for v in n.need(1).reshape(-1)])


def _resized_by(n: Node, scales: list[float]) -> Any:
    axes = list(range(n.rank(0)))
    if len(scales) != len(axes):
        raise n.refuse(f"{len(scales)} scales for {len(axes)} axes")
    if not is_static(n[0]):
        return _resized_symbols(n, axes, scales, "asymmetric", "floor")
    sizes = [math.floor(s * k) for s, k in zip(n.static(0), scales, strict=True)]
    return _resized(n, axes, scales, sizes, "asymmetric", "floor", None)


@converter("Upsample")
def upsample(n: Node) -> Any:
    if n.opset < 9:
        found = n.attr("scales")
        scales = (
            [float(v) for v in found]
            if found is not None
            else [1.0, 1.0, n.attr("height_scale"), n.attr("width_scale")]
        )
    else:
        scales = [float(v) for v in n.need(1).reshape(-1)]
    return _resized_by(n, scales)


@converter("Resize", since=11)
def resize(n: Node) -> Any:
    ndim = n.rank(0)
    axes = n.fronts(n.attr("axes", list(range(ndim))), ndim)
    if not is_static(n[0]) or (n.has(3) and n.value(3).symbolic):
        mode = n.attr("coordinate_transformation_mode", "half_pixel")
        sized = n.has(3) and len(n.value(3).shape) and n.value(3).shape != (0,)
        scales = None if sized else [float(v) for v in n.need(2).reshape(-1)]
        return _resized_symbols(n, axes, scales, mode, n.attr("nearest_mode", "round_prefer_floor"))
    have = [n.static(0)[d] for d in axes]
    mode = n.attr("coordinate_transformation_mode", "half_pixel")
    sized = n.has(3) and len(n.need(3).reshape(-1)) > 0
    if sized:
        sizes = n.ints(3)
        if len(sizes) != len(axes):
            raise n.refuse(f"{len(sizes)} sizes for {len(axes)} axes")
        policy = n.attr("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            best = (min if policy == "not_larger" else max)(s / h for s, h in zip(sizes, have, strict=True))
            sizes = [int(np.floor(h * best + 0.5)) for h in have]
            scales = [best] * len(axes)
        else:
            scales = [s / h for s, h in zip(sizes, have, strict=True)]
    else:
        scales = [float(v) for v in n.need(2).reshape(-1)]
        if len(scales) != len(axes):
            raise n.refuse(f"{len(scales)} scales for {len(axes)} axes")
        sizes = [math.floor(h * s) for h, s in zip(have, scales, strict=True)]
    roi = None
    if mode == "tf_crop_and_resize":
        roi = [float(v) for v in n.need(1).reshape(-1)]
        if not sized:
            spans = [roi[i + len(axes)] - roi[i] for i in range(len(axes))]
            sizes = [math.floor(h * p * s) for h, p, s in zip(have, spans, scales, strict=True)]
    rounding = n.attr("nearest_mode", "round_prefer_floor")
    return _resized(n, axes, scales, sizes, mode, rounding, roi)


def _resized_symbols(n: Node, axes: list[int], scales: list[float] | None, mode: str, rounding: str) -> Any:
    """A resize of an image whose size is not known at import: its height and width by factors, or to given sizes."""
    x = n[0]
    method = _METHODS.get(n.attr("mode", "nearest"), "")
    if (
        not method
        or mode == "tf_crop_and_resize"
        or n.attr("keep_aspect_ratio_policy", "stretch") != "stretch"
    ):
        raise n.refuse("of a tensor whose sizes are not known at import, in this mode: give shape=")
    have = [shape_of(x)[d] for d in axes]
    factors = None if scales is None else [Fraction(s).limit_denominator(64) for s in scales]
    if len(axes) != len(factors if factors is not None else n.ints(3, symbols=True)):
        raise n.refuse(f"there is not one scale or size for each of {len(axes)} axes")
    if factors is not None and any(f <= 0 for f in factors):
        raise n.refuse(f"scales {scales} are not positive")
    if factors is not None and _repeats(method, mode, rounding) and all(f.denominator == 1 for f in factors):
        for d, f in zip(axes, factors, strict=True):
            x = x if f == 1 else R.repeat(x, int(f), d)
        return x if x is not n[0] else R.copy(x)
    if factors is not None:
        sizes = [_times(h, f) for h, f in zip(have, factors, strict=True)]
        rows = [(d, s) for d, s, f in zip(axes, sizes, factors, strict=True) if f != 1]
    else:
        rows = [
            (d, s)
            for d, s, h in zip(axes, n.ints(3, symbols=True), have, strict=True)
            if not (s is h or same_size(s, h) is True)
        ]
    if not rows:
        return R.copy(x)
    if rank(x) != 4 or any(d < 2 for d, _ in rows):
        raise n.refuse(
            "of a tensor whose sizes are not known at import: only the height and width of NCHW; give shape="
        )
    wanted: Any = list(shape_of(x)[2:])
    for d, s in rows:
        wanted[d - 2] = s
    if any(isinstance(s, AnySize) for s in wanted):
        if factors is None:
            raise n.refuse("to a dynamic size: give shape=")
        by = dict(zip(axes, factors, strict=True))
        wanted = _sizes_when_run(x, wanted, [by.get(d, Fraction(1)) for d in (2, 3)])
    return R.image.resize2d(
        x,
        wanted,
        method=method,
        coordinate_transformation_mode=mode,
        rounding_method=rounding if method == "nearest_neighbor" else "",
        cubic_alpha=n.attr("cubic_coeff_a", -0.75),
        cubic_exclude=int(n.attr("exclude_outside", 0)),
    )


def _repeats(method: str, mode: str, rounding: str) -> bool:
    """Does a resize by an integer k take pixel i // k?"""
    if method != "nearest_neighbor":
        return False
    # Half pixels never lie between two pixels here: (i + 1/2) / k is not an integer.
    return (
        rounding == "floor" if mode == "asymmetric" else mode == "half_pixel" and rounding.startswith("round")
    )


def _sizes_when_run(x: Any, sizes: list[Any], factors: list[Fraction]) -> Any:
    """A dynamic height and width, from those of the image."""
    have = cast(R.shape_of(x), "int64")
    parts = []
    for i, (size, f) in enumerate(zip(sizes, factors, strict=True)):
        if isinstance(size, int):
            parts.append(literal([size], "int64"))
            continue
        at = R.strided_slice(have, [2 + i], [3 + i])
        up = R.multiply(at, literal([f.numerator], "int64"))
        parts.append(R.floor_divide(up, literal([f.denominator], "int64")))
    return R.concatenate(parts, 0)


def _times(size: Any, factor: Fraction) -> Any:
    """floor(size · factor)."""
    return floordiv(mul(size, factor.numerator), factor.denominator)


def _resized(
    n: Node,
    axes: list[int],
    scales: list[float],
    sizes: list[int],
    mode: str,
    rounding: str,
    roi: list[float] | None,
) -> Any:
    """Axes brought to other sizes, up to three at once; the others are moved in front of them."""
    method = n.attr("mode", "nearest")
    if method not in _METHODS:
        raise n.refuse(f"mode {method!r} is unknown")
    if any(s <= 0 for s in scales) or any(s < 0 or s >= 1 << 31 for s in sizes):
        raise n.refuse(f"scales {scales} or sizes {sizes} are not positive")
    x = n[0]
    have = static_shape(x)
    rows = [
        (d, sizes[i], scales[i], None if roi is None else (roi[i], roi[i + len(axes)]))
        for i, d in enumerate(axes)
        if sizes[i] != have[d]
        or scales[i] != 1.0
        or (roi is not None and (roi[i], roi[i + len(axes)]) != (0.0, 1.0))
    ]
    if not rows:
        return R.copy(x)
    if mode == "align_corners" and any(scale * have[d] % 1 for d, _, scale, _ in rows):
        for d, size, scale, _ in rows:
            x = _between_corners(n, x, d, size, scale, method, rounding)
        return x
    while rows:
        now, rows = rows[:3], rows[3:]
        x = _some_resized(n, x, now, _METHODS[method], mode, rounding)
    return x


def _some_resized(n: Node, x: Any, rows: list[Any], method: str, mode: str, rounding: str) -> Any:
    roi = None if rows[0][3] is None else [r[3][side] for side in (0, 1) for r in rows]
    return resized(
        x,
        [d for d, *_ in rows],
        [size for _, size, *_ in rows],
        roi=roi,
        method=method,
        coordinate_transformation_mode=mode,
        rounding_method=rounding if method == "nearest_neighbor" else "",
        cubic_alpha=n.attr("cubic_coeff_a", -0.75),
        cubic_exclude=int(n.attr("exclude_outside", 0)),
        extrapolation_value=n.attr("extrapolation_value", 0.0),
        scales=[scale for _, _, scale, _ in rows],
        antialias=n.flag("antialias", 0),
    )


def _cubic(distance: Any, a: float) -> Any:
    """The weight of a pixel at a distance, for cubic interpolation."""
    d = distance
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _between_corners(n: Node, x: Any, axis: int, size: int, scale: float, method: str, rounding: str) -> Any:
    """align_corners where scale · size is not an integer: the last pixel is not the last corner, as ONNX has it.

    The places are the same for all rows of the axis, so that its resize is a product with a constant matrix.
    """
    have = static_shape(x)[axis]
    span = have * scale - 1
    at = np.zeros(size) if span == 0 else np.arange(size) * (have - 1) / span
    if method == "nearest":
        rounds = {
            "floor": np.floor(at),
            "ceil": np.ceil(at),
            "round_prefer_floor": np.ceil(at - 0.5),
            "round_prefer_ceil": np.floor(at + 0.5),
        }
        return take_rows(x, np.clip(rounds[rounding], 0, have - 1).astype(int).tolist(), axis)
    base = np.floor(at)
    t = at - base
    if method == "cubic":
        a = n.attr("cubic_coeff_a", -0.75)
        taps = [(step, _cubic(np.abs(t - step), a)) for step in (-1, 0, 1, 2)]
    else:
        taps = [(0, 1 - t), (1, t)]
    weights = np.zeros((have, size))
    for step, part in taps:
        place = (base + step).astype(int)
        inside = (place >= 0) & (place < have)
        if method == "cubic" and n.attr("exclude_outside", 0):
            part = part * inside
        np.add.at(weights, (np.clip(place, 0, have - 1), np.arange(size)), part)
    if n.attr("exclude_outside", 0):
        weights /= weights.sum(0)
    order = [d for d in range(rank(x)) if d != axis] + [axis]
    made = matmul(R.transpose(x, order), constant(weights.astype(dtype_of(x))))
    return R.transpose(made, [order.index(d) for d in range(len(order))])


# ---------------------------------------------------------------------------- sampling
@converter("GridSample")
def grid_sample(n: Node) -> Any:
    x, grid = n[0], n[1]
    dims = rank(x) - 2
    modes = {
        "linear": "bilinear",
        "bilinear": "bilinear",
        "nearest": "nearest",
        "cubic": "bicubic",
        "bicubic": "bicubic",
    }
    mode = modes.get(n.attr("mode", "linear"))
    if mode is None or dims not in (2, 3):
        raise n.refuse(f"mode {n.attr('mode')!r} over {dims} dimensions is not supported")
    grid = cast(R.transpose(grid, [0, dims + 1, *range(1, dims + 1)]), dtype_of(x))
    return R.image.grid_sample(
        x,
        grid,
        method=mode,
        layout="NCHW" if dims == 2 else "NCDHW",
        padding_mode=n.attr("padding_mode", "zeros"),
        align_corners=n.flag("align_corners", 0),
    )


@converter("RoiAlign")
def roi_align(n: Node) -> Any:
    x, rois, which = n[0], n[1], n[2]
    kind = dtype_of(x)
    rows = R.concatenate([R.expand_dims(cast(which, kind), 1), cast(rois, kind)], 1)
    aligned = n.opset >= 16 and n.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    if n.attr("mode", "avg") == "max":
        return _roi_max(n, x, cast(rois, kind), which, aligned)
    return R.vision.roi_align(
        x,
        rows,
        pooled_size=[int(n.attr("output_height", 1)), int(n.attr("output_width", 1))],
        spatial_scale=n.attr("spatial_scale", 1.0),
        sample_ratio=int(n.attr("sampling_ratio", 0)),
        mode=n.attr("mode", "avg"),
        aligned=aligned,
    )


def _roi_max(n: Node, x: Any, rois: Any, which: Any, aligned: bool) -> Any:
    """The greatest weighted pixel around the samples of each bin: ONNX does not add the four before it compares."""
    batch, channels, *sizes = static_shape(x)
    count, samples = static_shape(rois)[0], int(n.attr("sampling_ratio", 0))
    bins = [int(n.attr("output_height", 1)), int(n.attr("output_width", 1))]
    if samples < 1:
        raise n.refuse("mode max needs a sampling_ratio: how many samples there are would depend on data")
    scale, shift = n.attr("spatial_scale", 1.0), 0.5 if aligned else 0.0
    sides = []  # for y and x: (index, weight) of the pixel before and after, (count, bins · samples)
    for d in range(2):
        low, high = (
            R.subtract(
                R.multiply(R.strided_slice(rois, [c], [c + 1], axes=[1]), scalar(scale, x)), scalar(shift, x)
            )
            for c in (1 - d, 3 - d)
        )
        span = R.subtract(high, low)
        if not aligned:
            span = R.maximum(span, scalar(1, x))
        steps = (np.arange(bins[d] * samples) + 0.5) / (samples * bins[d])
        at = R.add(low, R.multiply(span, constant(steps.astype(dtype_of(x))[None])))
        out = R.logical_or(R.less(at, scalar(-1, x)), R.greater(at, scalar(sizes[d], x)))
        at = R.clip(at, 0.0, float(sizes[d] - 1))
        base = R.floor(at)
        t = R.subtract(at, base)
        after = R.minimum(R.add(base, scalar(1, x)), scalar(sizes[d] - 1, x))
        gone = R.where(out, scalar(0, x), scalar(1, x))
        sides.append(
            [
                (cast(base, "int32"), R.multiply(R.subtract(scalar(1, x), t), gone)),
                (cast(after, "int32"), R.multiply(t, gone)),
            ]
        )
    pixels = R.reshape(R.transpose(x, [0, 2, 3, 1]), [batch * sizes[0] * sizes[1], channels])
    # an image that does not exist is found here, before it is part of a sum
    numbers = constant(np.arange(batch, dtype=np.int32))
    image = R.reshape(R.take(numbers, which, axis=0, mode="fast"), [count, 1, 1])
    best = None
    for yi, yw in sides[0]:
        for xi, xw in sides[1]:
            row = R.add(R.multiply(image, scalar(sizes[0], image)), R.expand_dims(yi, 2))
            place = R.add(R.multiply(row, scalar(sizes[1], image)), R.expand_dims(xi, 1))
            weight = R.multiply(R.expand_dims(yw, 2), R.expand_dims(xw, 1))
            value = R.multiply(R.take(pixels, place, axis=0), R.expand_dims(weight, 3))
            best = value if best is None else R.maximum(best, value)
    parted = R.reshape(best, [count, bins[0], samples, bins[1], samples, channels])
    return R.transpose(R.max(parted, axis=[2, 4]), [0, 3, 1, 2])


@converter("MaxRoiPool")
def max_roi_pool(n: Node) -> Any:
    pooled = [int(v) for v in n.attr("pooled_shape", [])]
    return R.vision.roi_pool(n[0], n[1], pooled_size=pooled, spatial_scale=n.attr("spatial_scale", 1.0))


@converter("NonMaxSuppression")
def non_max_suppression(n: Node) -> Any:
    """As many rows as boxes stay: known when the program runs."""
    boxes, scores = n[0], n[1]
    most = cast(R.reshape(n[2], ()), "int32") if n.has(2) else constant(np.int32(0))
    iou = cast(R.reshape(n[3], ()), "float32") if n.has(3) else constant(np.float32(0))
    low = cast(R.reshape(n[4], ()), "float32") if n.has(4) else constant(np.float32(-np.inf))
    made = R.vision.all_class_non_max_suppression(
        boxes,
        scores,
        most,
        iou,
        low,
        output_format="onnx",
        center_point_box=int(n.attr("center_point_box", 0)),
    )
    rows, count = made[0], made[1]
    end = R.concatenate([R.reshape(cast(count, "int64"), [1]), constant(np.asarray([3], np.int64))], 0)
    return cast(
        R.dyn.strided_slice(rows, constant(np.zeros(2, np.int64)), end, constant(np.ones(2, np.int64))),
        "int64",
    )


# ---------------------------------------------------------------------------- deformable convolution
def deformable(n: Node) -> Any:
    """Each window reads the image at places that another tensor shifts, between the pixels."""
    x, w, offset = n[0], n[1], n[2]
    batch, channels, *sizes = n.static(0)
    outputs, per_group, *kernel = n.static(1)
    if len(kernel) != 2:
        raise n.refuse("only over two spatial dimensions")
    found = windows_of(n, kernel, sizes)
    groups, shifts = int(n.attr("group", 1)), int(n.attr("offset_group", 1))
    taps = kernel[0] * kernel[1]
    oh, ow = found.counts(sizes)
    place = R.reshape(offset, [batch, shifts, taps, 2, oh, ow])
    grids = []
    for d in range(2):
        k = (np.arange(taps) // kernel[1]) if d == 0 else (np.arange(taps) % kernel[1])
        line = np.arange((oh, ow)[d]) * found.strides[d] - found.before[d]
        base = k[:, None] * found.dilations[d] + line[None, :]
        view = [1, 1, taps, oh, 1] if d == 0 else [1, 1, taps, 1, ow]
        moved = R.squeeze(R.strided_slice(place, [d], [d + 1], axes=[3]), [3])
        at = R.add(moved, constant(base.reshape(view).astype(dtype_of(x))))
        # From pixels to -1…1 between the centres of the outermost pixels.
        span = max(sizes[d] - 1, 1)
        grids.append(R.subtract(R.multiply(at, scalar(2.0 / span, x)), scalar(1, x)))
    grid = R.stack([grids[1], grids[0]], 2)  # x first: (batch, shifts, 2, taps, oh, ow)
    flat = R.reshape(grid, [batch * shifts, 2, taps, oh * ow])
    image = R.reshape(x, [batch * shifts, channels // shifts, *sizes])
    read = R.image.grid_sample(image, flat, method="bilinear", padding_mode="zeros", align_corners=True)
    read = R.reshape(read, [batch, channels, taps, oh * ow])
    if n.has(4):
        mask = R.reshape(n[4], [batch, shifts, 1, taps, oh * ow])
        parted = R.multiply(R.reshape(read, [batch, shifts, channels // shifts, taps, oh * ow]), mask)
        read = R.reshape(parted, [batch, channels, taps, oh * ow])
    columns = R.reshape(read, [batch * groups, channels // groups * taps, oh * ow])
    weight = R.reshape(w, [1, groups, outputs // groups, per_group * taps])
    weight = R.reshape(
        R.broadcast_to(weight, [batch, groups, outputs // groups, per_group * taps]),
        [batch * groups, outputs // groups, per_group * taps],
    )
    made = R.nn.batch_matmul(weight, columns, transpose_a=False, transpose_b=False)
    made = R.reshape(made, [batch, outputs, oh, ow])
    return R.nn.bias_add(made, n[3]) if n.has(3) else made
