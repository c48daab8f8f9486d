"""Images: resizing, cropping, sampling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..expr import Call
from ..ty import Any as AnySize
from ..ty import TensorType, Type
from . import dyn, layouts
from .attributes import text, window
from .computes import topi
from .gradients import windows as grads
from .registry import (
    FUSABLE,
    INJECTIVE,
    Constructor,
    Dtype,
    Ints,
    Pair,
    Place,
    Sides,
    Tensor,
    Value,
    alike,
    given,
    operator,
    refuse,
)
from .shapes import differ, is_known, mul, need_dtype, need_one_of, need_rank
from .spatial import windows
from .traits import Traits

__all__ = ["affine_grid", "crop_and_resize", "dilation2d", "grid_sample", "resize1d", "resize2d", "resize3d"]


# ---------------------------------------------------------------------------- resize
_METHODS = ("nearest_neighbor", "linear", "cubic", "bilinear", "bicubic", "trilinear")


def _resized(layout: str, shape: Sequence[Any], axes: str, size: Sequence[Any]) -> tuple[Any, ...]:
    named = layouts.sizes(layout, shape)
    missing = [v for v in axes if v not in named]
    if missing:
        raise refuse(f"{layout} has no axis {missing[0]}", "layout")
    if len(size) != len(axes):
        raise refuse(f"is {tuple(size)} and {len(axes)} dimensions are resized", "size")
    if any(isinstance(s, int) and s < 0 for s in size):
        raise refuse(f"is {tuple(size)} and cannot be negative", "size")
    return layouts.shape_in(layout, {**named, **dict(zip(axes, size, strict=True))})


def _resize(axes: str) -> Callable[[Constructor], Constructor]:
    """The resizing of these axes."""
    name = f"resize{len(axes)}d"

    def rel(types: list[Any], attrs: Any) -> Type:
        data = types[0]
        if attrs.method not in _METHODS:
            raise refuse(f"is {attrs.method!r} and may be nearest_neighbor, linear or cubic", "method")
        return TensorType(_resized(attrs.layout, data.shape, axes, attrs.size), attrs.out_dtype or data.dtype)

    def compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
        return [
            getattr(topi.image, name)(
                ins[0], attrs.roi, attrs.size, attrs.layout, attrs.method, attrs.coordinate_transformation_mode,
                attrs.rounding_method, attrs.cubic_alpha, attrs.cubic_exclude, attrs.extrapolation_value,
                out.dtype, scales=attrs.scales, antialias=attrs.antialias,
            )
        ]  # fmt: skip

    def computed(*args: Any, scales: Any = None, antialias: bool = False, **how: Any) -> Call:
        if len(axes) != 2:
            raise TypeError(f"image.{name}: a computed size is supported by resize2d only")
        if scales is not None or antialias:
            raise TypeError("image.resize2d: scales and antialias need a size that is known")
        return dyn.resize2d(*args, **how)

    return operator(
        f"image.{name}",
        attrs={"size": window(len(axes))},
        rel=rel,
        compute=compute,
        pattern=INJECTIVE,
        traits=Traits(rearranges=True, layout="attribute" if axes == "HW" else "", gradient=grads.resize),
        dynamic=computed,
    )


@_resize("HW")
def resize2d(
    data: Tensor,
    size: Ints,
    roi: Value = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Dtype = None,
    *,
    scales: Value = None,
    antialias: bool = False,
) -> Call:
    """An image in another size: nearest_neighbor, linear or cubic.

    The coordinates are half_pixel, align_corners, asymmetric, … ; `scales` says by which factors, where the sizes
    alone are rounded; `antialias` widens the filter when the image gets smaller.
    """


resize1d = _resize("W")(alike(resize2d, "resize1d", "A line of pixels in another size. See resize2d.", 1))
resize3d = _resize("DHW")(alike(resize2d, "resize3d", "A volume in another size. See resize2d.", 3))


def _times(size: Any, scale: float) -> Any:
    """A size made larger by a factor, rounded to the nearest."""
    if scale <= 0:
        raise refuse(f"{scale} must be positive", "scale")
    if float(scale).is_integer():
        return mul(size, int(scale))
    return round(size * scale) if is_known(size) else AnySize()


def _upsampling(name: str, axes: str, dynamic: Any) -> Callable[[Constructor], Constructor]:
    def rel(types: list[Any], attrs: Any) -> Type:
        named = layouts.sizes(attrs.layout, types[0].shape)
        for letter in axes:
            if letter not in named:
                raise refuse(f"{attrs.layout} has no axis {letter}", "layout")
            named[letter] = _times(named[letter], attrs[f"scale_{letter.lower()}"])
        return TensorType(layouts.shape_in(attrs.layout, named), types[0].dtype)

    return operator(
        name,
        rel=rel,
        compute=name,
        pattern=INJECTIVE,
        traits=Traits(rearranges=True, layout="attribute" if axes == "HW" else "", gradient=grads.resize),
        dynamic=dynamic,
    )


@_upsampling("nn.upsampling", "HW", dyn.upsampling)
def upsampling(
    data: Tensor,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
) -> Call:
    """An image made larger by factors: nearest_neighbor, bilinear or bicubic."""


@_upsampling("nn.upsampling3d", "DHW", dyn.upsampling3d)
def upsampling3d(
    data: Tensor,
    scale_d: float = 1,
    scale_h: float = 1,
    scale_w: float = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Call:
    """A volume made larger by factors: nearest_neighbor or trilinear."""


# ---------------------------------------------------------------------------- parts
def _crop_rel(types: list[Any], attrs: Any) -> Type:
    data, boxes, indices = types
    need_rank(boxes, 2, "boxes")
    need_rank(indices, 1, "box_indices")
    if differ(boxes.shape[1], 4):
        raise refuse(f"must have rows (y1, x1, y2, x2) and is {boxes}", "boxes")
    if differ(boxes.shape[0], indices.shape[0]):
        raise refuse(f"is {indices} for {boxes.shape[0]} boxes", "box_indices")
    shape = list(_resized(attrs.layout, data.shape, "HW", attrs.crop_size))
    shape[layouts.letters(attrs.layout).index("N")] = boxes.shape[0]
    return TensorType(shape, attrs.out_dtype or data.dtype)


@operator(
    "image.crop_and_resize",
    attrs={"layout": text("NCHW")},
    rel=_crop_rel,
    compute="image.crop_and_resize",
    pattern=INJECTIVE,
    places=lambda types, attrs: [Place(2, "position", 0, (attrs.layout.index("N"),))],
)
def crop_and_resize(
    data: Tensor,
    boxes: Tensor,
    box_indices: Tensor,
    crop_size: Pair,
    layout: str,
    method: str = "bilinear",
    extrapolation_value: float = 0,
    out_dtype: Dtype = None,
) -> Call:
    """Boxes cut out of images, each brought to one size; a box is (y1, x1, y2, x2) as parts of the image."""


def _of_space(steps: Any, layout: str, argument: str) -> Any:
    """Of one number for each dimension of a layout those of H and W."""
    if not isinstance(steps, (tuple, list)) or len(steps) != len(layout):
        return steps
    named = dict(zip(layout, steps, strict=True))
    if any(int(named[letter]) != 1 for letter in "NC" if letter in named):
        raise refuse(f"is {tuple(steps)} in {layout}, and that of N and C can only be 1", argument)
    return [named[letter] for letter in "HW" if letter in named]


def _dilation_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types
    if (attrs.data_layout, attrs.kernel_layout) not in (("NCHW", "IHW"), ("NHWC", "HWI")):
        raise refuse(
            f"{attrs.data_layout} with {attrs.kernel_layout}: it is NCHW with IHW or NHWC with HWI",
            "data_layout",
        )
    d = layouts.sizes(attrs.data_layout, data.shape, "data")
    w = layouts.sizes(attrs.kernel_layout, weight.shape, "weight")
    need_dtype(weight, data.dtype, "weight")
    if differ(d["C"], w["I"]):
        raise refuse(f"has {w['I']} channels and data {d['C']}", "weight")
    top, left, bottom, right = attrs.padding
    named = {"N": d["N"], "C": d["C"]}
    named["H"] = windows(d["H"], w["H"], attrs.strides[0], attrs.dilations[0], top + bottom)
    named["W"] = windows(d["W"], w["W"], attrs.strides[1], attrs.dilations[1], left + right)
    return TensorType(layouts.shape_in(attrs.data_layout, named), attrs.out_dtype or data.dtype)


@operator("image.dilation2d", rel=_dilation_rel, compute="image.dilation2d_{data_layout}", pattern=FUSABLE)
def dilation2d(
    data: Tensor,
    weight: Tensor,
    strides: Pair = (1, 1),
    padding: Sides = (0, 0),
    dilations: Pair = (1, 1),
    data_layout: str = "NCHW",
    kernel_layout: str = "IHW",
    out_dtype: Dtype = "",
) -> Call:
    """The maximum of image plus weight over each window, for each channel on its own.

    Strides and dilations may also be given for all four dimensions of the layout; those of N and C are 1."""
    return given(
        strides=_of_space(strides, data_layout, "strides"),
        dilations=_of_space(dilations, data_layout, "dilations"),
    )


# ---------------------------------------------------------------------------- reading at places
def _affine_rel(types: list[Any], attrs: Any) -> Type:
    data = types[0]
    need_rank(data, 3, "data")
    if differ(data.shape[1], 2) or differ(data.shape[2], 3):
        raise refuse(f"must be (batch, 2, 3) and is {data}", "data")
    if len(attrs.target_shape) != 2:
        raise refuse(f"is {attrs.target_shape} and must be a height and a width", "target_shape")
    return TensorType((data.shape[0], 2, *attrs.target_shape), data.dtype)


@operator(
    "image.affine_grid",
    traits=Traits(gradient=grads.affine_grid),
    rel=_affine_rel,
    compute="image.affine_grid",
    pattern=INJECTIVE,
)
def affine_grid(data: Tensor, target_shape: Ints = None, align_corners: bool = True) -> Call:
    """The source coordinates of each pixel of an image of `target_shape` under affine maps, [batch, 2, 3]."""
    if target_shape is None:
        raise TypeError("image.affine_grid: target_shape is missing: a height and a width")
    return given()


def _grid_rel(types: list[Any], attrs: Any) -> Type:
    data, grid = types
    if attrs.layout not in ("NCHW", "NCDHW"):
        raise refuse(f"is {attrs.layout} and must be NCHW or NCDHW", "layout")
    count = len(attrs.layout) - 2
    need_rank(data, count + 2, "data")
    need_rank(grid, count + 2, "grid")
    if differ(grid.shape[1], count):
        raise refuse(f"must have {count} coordinates and is {grid}", "grid")
    if differ(grid.shape[0], data.shape[0]):
        raise refuse(f"is {grid} and data is {data}: the batches differ", "grid")
    need_one_of(attrs.padding_mode, ("zeros", "border", "reflection"), "padding_mode")
    return TensorType((*data.shape[:2], *grid.shape[2:]), data.dtype)


@operator("image.grid_sample", rel=_grid_rel, compute="image.grid_sample", pattern=INJECTIVE)
def grid_sample(
    data: Tensor,
    grid: Tensor,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = True,
) -> Call:
    """An image or volume sampled at the coordinates of a grid, from -1 to 1, x first."""
