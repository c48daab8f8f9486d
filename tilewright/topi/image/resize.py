"""Resizing images, with the coordinate modes of ONNX."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from ... import te
from ...ir.dtype import DataType
from ...ir.expr import ExprOp, PrimExpr
from .. import tag
from ..utils import clamped, fail, get_const_tuple, injective, shown, tensor_arg
from .antialias import shrink
from .coordinates import Axis
from .interpolation import Interpolation


# ---------------------------------------------------------------------------- public operators
def _resizing(letters: str, standard: str, doc: str) -> Callable[..., te.Tensor]:
    """The operator that resizes these axes."""
    name = f"resize{len(letters)}d"

    def resize(
        data: Any,
        roi: Any,
        size: Any,
        layout: str = standard,
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        bicubic_alpha: float = -0.5,
        bicubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: str | None = None,
        output_shape: Any = None,
        *,
        scales: Any = None,
        antialias: bool = False,
    ) -> te.Tensor:
        how = Interpolation(
            f"image.{name}",
            method,
            coordinate_transformation_mode,
            rounding_method,
            bicubic_alpha,
            bool(bicubic_exclude),
            extrapolation_value,
        )
        return _resize(how, data, letters, layout, roi, size, scales, out_dtype, output_shape, antialias)

    resize.__name__ = resize.__qualname__ = name
    resize.__doc__ = doc
    return resize


resize1d = _resizing("W", "NCW", "A line of pixels in another size. See resize2d.")
resize2d = _resizing(
    "HW",
    "NCHW",
    """An image in another size.

    The place of an output pixel in the original follows `coordinate_transformation_mode`; its value comes from
    the nearest pixel, from two neighbours along each axis (linear) or from four (cubic). Pixels beyond the edge
    count as the edge's. The region `roi` (starts, then ends, as parts of the image) belongs to tf_crop_and_resize.
    `scales` says how many output pixels stand on one of the original, where that is not size / original;
    `antialias` widens the filter where the image shrinks. Integers are rounded to the nearest.
    """,
)
resize3d = _resizing("DHW", "NCDHW", "A volume in another size. See resize2d.")


def crop_and_resize(
    data: Any,
    boxes: Any,
    box_indices: Any,
    crop_size: Any,
    layout: str = "NCHW",
    method: str = "bilinear",
    extrapolation_value: float | None = None,
    out_dtype: str | None = None,
) -> te.Tensor:
    """Boxes (y1, x1, y2, x2, as parts of the image) cut out of the images at `box_indices`, each in `crop_size`."""
    name = "image.crop_and_resize"
    how = Interpolation(name, method, "tf_crop_and_resize", "round", fill=extrapolation_value or 0.0)
    image = tensor_arg(name, "data", data)
    rects, which = tensor_arg(name, "boxes", boxes), tensor_arg(name, "box_indices", box_indices)
    if len(rects.shape) != 2 or get_const_tuple(rects.shape)[1] != 4:
        raise fail(name, f"boxes must have shape (boxes, 4), not ({', '.join(map(str, rects.shape))})")
    if len(which.shape) != 1:
        raise fail(name, f"box_indices has {len(which.shape)} dimensions and must have one")
    axes = _axes(name, image, "HW", layout, crop_size, None)
    batch = _positions(name, layout, "N", len(image.shape))[0]
    out_type = how.out_type(image, out_dtype)

    def element(*i: Any) -> PrimExpr:
        b = i[batch]
        cut = [
            Axis(a.position, a.size, a.out, None, rects(b, k), rects(b, k + 2)) for k, a in enumerate(axes)
        ]
        at = list(i)
        at[batch] = clamped(which(b), image.shape[batch])
        return how.element(image, cut, i, at, out_type)

    shape = [rects.shape[0] if d == batch else s for d, s in enumerate(_shape(image, axes))]
    return injective(name, shape, element, tag.INJECTIVE, "crop_and_resize")


# ---------------------------------------------------------------------------- stages
def _resize(
    how: Interpolation,
    data: Any,
    letters: str,
    layout: str,
    roi: Any,
    size: Any,
    scales: Any,
    out_dtype: str | None,
    output_shape: Any,
    antialias: bool,
) -> te.Tensor:
    image = tensor_arg(how.name, "data", data)
    axes = _axes(how.name, image, letters, layout, size, scales)
    if how.mode == "tf_crop_and_resize":
        _set_roi(how.name, axes, roi)
    if output_shape is not None:
        wanted = list(output_shape)
        if len(wanted) != len(image.shape):
            raise fail(
                how.name, f"output_shape has {len(wanted)} dimensions and the image {len(image.shape)}"
            )
        for a in axes:
            a.out = get_const_tuple([wanted[a.position]])[0]
    out_type = how.out_type(image, out_dtype)
    if antialias:
        return shrink(how, image, axes, out_type)
    moving = [a for a in axes if not _stays(how, a)]
    if how.method != "cubic" or how.mode == "tf_crop_and_resize" or len(moving) <= 1:
        return _stage(how, image, axes, out_type)
    # Four taps an axis: one axis after the other costs 4 + 4 products, all at once 4·4.
    kind = how.kind(image)
    for a in moving[:-1]:
        image = _stage(how, image, [a], kind)
    return _stage(how, image, moving[-1:], out_type)


def _stays(how: Interpolation, axis: Axis) -> bool:
    """Whether an axis is known to come out as it went in."""
    known = isinstance(axis.size, int) and isinstance(axis.out, int) and axis.size == axis.out
    return known and axis.step in (None, 1) and how.mode != "tf_half_pixel_for_nn"


def _stage(how: Interpolation, image: te.Tensor, axes: Sequence[Axis], out: DataType) -> te.Tensor:
    return injective(
        how.name, _shape(image, axes), lambda *i: how.element(image, axes, i, i, out), tag.INJECTIVE, "resize"
    )


def _shape(image: te.Tensor, axes: Sequence[Axis]) -> list[Any]:
    shape: list[Any] = list(image.shape)
    for a in axes:
        shape[a.position] = a.out
    return shape


def _positions(name: str, layout: str, letters: str, ndim: int) -> list[int]:
    """Where the dimensions called by `letters` stand: NCHW, NHWC, NCHW16c."""
    parts = re.findall(r"[A-Z]|\d+[a-z]", layout)
    if "".join(parts) != layout or len(parts) != ndim or any(parts.count(c) != 1 for c in letters):
        raise fail(
            name,
            f"layout is {layout!r} for an image of {ndim} dimensions",
            f"name each dimension, {', '.join(letters)} once: N, C and a split channel as in NCHW16c are free",
        )
    split = [c for c in letters if any(p.endswith(c.lower()) for p in parts if len(p) > 1)]
    if split:
        raise fail(name, f"layout {layout!r} splits dimension {split[0]}, which is resized")
    return [parts.index(c) for c in letters]


def _axes(name: str, image: te.Tensor, letters: str, layout: str, size: Any, scales: Any) -> list[Axis]:
    positions = _positions(name, layout, letters, len(image.shape))
    sizes = list(size) if isinstance(size, (tuple, list)) else [size]
    if len(sizes) != len(letters):
        raise fail(name, f"size has {len(sizes)} numbers and the image {len(letters)} axes to resize")
    sizes = list(get_const_tuple(sizes))
    if any(isinstance(s, int) and s < 0 for s in sizes):
        raise fail(name, f"size is {shown(sizes)} and cannot be negative")
    steps: list[Fraction | None] = [None] * len(letters)
    if scales is not None:
        if len(scales) != len(letters) or any(s <= 0 for s in scales):
            raise fail(name, f"scales are {shown(scales)}", f"give {len(letters)} positive numbers")
        # Scales come as 32-bit floats: 1/3 means a third.
        steps = [1 / Fraction(float(s)).limit_denominator(1 << 14) for s in scales]
    held = get_const_tuple(image.shape)
    for p, s in zip(positions, sizes, strict=True):
        if isinstance(held[p], int) and held[p] == 0 and not (isinstance(s, int) and s == 0):
            raise fail(name, f"dimension {p} of `{image.name}` is empty: there are no pixels to resize")
    return [Axis(p, held[p], s, step) for p, s, step in zip(positions, sizes, steps, strict=True)]


def _set_roi(name: str, axes: list[Axis], roi: Any) -> None:
    count = 2 * len(axes)
    values: list[Any]
    if isinstance(roi, te.Tensor):
        values = [roi(k) for k in range(count)]
    else:
        values = list(roi) if roi is not None else []
    if len(values) != count:
        raise fail(name, f"roi has {len(values)} numbers", f"give {count}: the starts, then the ends")
    for k, a in enumerate(axes):
        a.start, a.end = (
            v if isinstance(v, (ExprOp, PrimExpr)) else float(v) for v in (values[k], values[k + len(axes)])
        )
