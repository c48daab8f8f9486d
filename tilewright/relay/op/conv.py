"""Convolutions: of one to three dimensions, transposed, packed, deformable, Winograd's; correlation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..expr import Call
from ..ty import TensorType, Type
from . import layouts
from .attributes import Attr, flag, integer, padding, text, window
from .gradients import windows as grads
from .registry import FUSABLE, Constructor, Dtype, Ints, Pair, Sides, Tensor, alike, operator, refuse
from .shapes import add, ceildiv, differ, is_known, mul, need_dtype, need_rank, same_size, sub, unlike
from .spatial import conv_rel, conv_weights, transposed_rel, transposed_weights, windows
from .traits import SMALL, Traits

__all__ = [
    "contrib_conv2d_nchwc",
    "contrib_conv2d_winograd_weight_transform",
    "contrib_conv2d_winograd_without_weight_transform",
    "contrib_depthwise_conv2d_nchwc",
    "conv1d",
    "conv1d_transpose",
    "conv2d",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "correlation",
    "deformable_conv2d",
]


def _windows(rank: int) -> dict[str, Attr]:
    """The attributes that have a number for each spatial dimension."""
    each = {name: window(rank) for name in ("strides", "dilation", "kernel_size")}
    return {**each, "padding": padding(rank)}


def _conv(rank: int) -> Callable[[Constructor], Constructor]:
    return operator(
        f"nn.conv{rank}d",
        attrs=_windows(rank),
        rel=conv_rel,
        compute="nn.conv2d" if rank == 2 else "nn.conv",
        pattern=FUSABLE,
        traits=Traits(
            product=True,
            precision=SMALL,
            quantised="qnn.conv2d" if rank == 2 else "centred",
            weights=conv_weights,
            gradient=grads.conv,
        ),
    )


@_conv(2)
def conv2d(
    data: Tensor,
    weight: Tensor,
    strides: Ints = (1, 1),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Ints = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: Dtype = "",
) -> Call:
    """A two-dimensional convolution."""


conv1d = _conv(1)(alike(conv2d, "conv1d", "A one-dimensional convolution.", 1))
conv3d = _conv(3)(alike(conv2d, "conv3d", "A three-dimensional convolution.", 3))


def _transposed(rank: int) -> Callable[[Constructor], Constructor]:
    return operator(
        f"nn.conv{rank}d_transpose",
        attrs={**_windows(rank), "output_padding": window(rank)},
        rel=transposed_rel,
        compute="nn.conv_transpose",
        pattern=FUSABLE,
        traits=Traits(
            product=True,
            precision=SMALL,
            quantised="qnn.conv2d_transpose" if rank == 2 else "",
            weights=transposed_weights,
            gradient=grads.conv_transpose,
        ),
    )


@_transposed(2)
def conv2d_transpose(
    data: Tensor,
    weight: Tensor,
    strides: Ints = (1, 1),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    channels: int | None = None,
    kernel_size: Ints = None,
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str = "",
    output_padding: Ints = (0, 0),
    out_dtype: Dtype = "",
) -> Call:
    """A two-dimensional transposed convolution: each element is spread over a window of the result."""


conv1d_transpose = _transposed(1)(
    alike(
        conv2d_transpose,
        "conv1d_transpose",
        "A one-dimensional transposed convolution: each element is spread over a window of the result.",
        1,
    )
)


@_transposed(3)
def conv3d_transpose(
    data: Tensor,
    weight: Tensor,
    strides: Ints = (1, 1, 1),
    padding: Ints = (0, 0, 0),
    dilation: Ints = (1, 1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Ints = None,
    data_layout: str = "NCDHW",
    kernel_layout: str = "IODHW",
    out_layout: str = "",
    output_padding: Ints = (0, 0, 0),
    out_dtype: Dtype = "",
) -> Call:
    """A three-dimensional transposed convolution: each element is spread over a window of the result."""


# ---------------------------------------------------------------------------- channels in blocks
def _packed_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    """Blocked channels of data and result; the result is written in its layout directly."""
    from ...topi.nn.conv import Layouts, convolve

    how = Layouts(attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)
    return [
        convolve(
            "nn.contrib_conv2d_NCHWc", ins[0], ins[1], attrs.strides, attrs.padding, attrs.dilation,
            attrs.groups, how, out.dtype, "conv2d_NCHWc",
        )
    ]  # fmt: skip


def _packed(name: str) -> Callable[[Constructor], Constructor]:
    return operator(
        name,
        attrs=_windows(2),
        rel=conv_rel,
        compute=_packed_compute,
        pattern=FUSABLE,
        traits=Traits(weights=conv_weights, gradient=grads.conv),
    )


@_packed("nn.contrib_conv2d_NCHWc")
def contrib_conv2d_nchwc(
    data: Tensor,
    kernel: Tensor,
    strides: Ints = (1, 1),
    padding: Ints = (0, 0),
    dilation: Ints = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Ints = None,
    data_layout: str = "NCHW8c",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: Dtype = "",
) -> Call:
    """A convolution with blocked channels, for example NCHW16c data with an OIHW16i16o kernel."""


contrib_depthwise_conv2d_nchwc = _packed("nn.contrib_depthwise_conv2d_NCHWc")(
    alike(
        contrib_conv2d_nchwc,
        "contrib_depthwise_conv2d_nchwc",
        "A depthwise convolution with blocked channels, for example an OIHW1i16o kernel.",
    )
)


# ---------------------------------------------------------------------------- deformable
def _deformable_rel(types: list[Any], attrs: Any) -> Type:
    data, offset, weight = types
    if (attrs.data_layout, attrs.kernel_layout) not in (("NCHW", "OIHW"), ("NHWC", "HWIO")):
        raise refuse(
            f"{attrs.data_layout} with {attrs.kernel_layout}: it is NCHW with OIHW or NHWC with HWIO",
            "data_layout",
        )
    out = conv_rel([data, weight], attrs)
    assert isinstance(out, TensorType)
    o, w = (
        layouts.sizes(attrs.data_layout, offset.shape, "offset"),
        layouts.sizes(attrs.kernel_layout, weight.shape),
    )
    named = layouts.sizes(attrs.out_layout or attrs.data_layout, out.shape)
    if any(differ(o[letter], named[letter]) for letter in "NHW"):
        raise refuse(f"is {offset} and the result is {out}", "offset")
    wanted = mul(mul(w["H"], w["W"]), 2 * attrs.deformable_groups)
    if differ(o["C"], wanted):
        raise refuse(
            f"has {o['C']} channels and must have {wanted}: two for each element of the kernel and group",
            "offset",
        )
    return out


def _deformable_weights(data: TensorType, attrs: Any) -> list[TensorType | None]:
    """The types of offset and weight, where the attributes say the channels and the window."""
    (weight,) = conv_weights(data, attrs)
    if weight is None:
        return [None, None]
    out = conv_rel([data, weight], attrs)
    assert isinstance(out, TensorType)
    named = layouts.sizes(attrs.out_layout or attrs.data_layout, out.shape)
    named["C"] = mul(mul(*attrs.kernel_size), 2 * attrs.deformable_groups)
    return [TensorType(layouts.shape_in(attrs.data_layout, named), data.dtype), weight]


@operator(
    "nn.deformable_conv2d",
    rel=_deformable_rel,
    compute="nn.deformable_conv2d_{data_layout}",
    pattern=FUSABLE,
    traits=Traits(weights=_deformable_weights),
)
def deformable_conv2d(
    data: Tensor,
    offset: Tensor,
    weight: Tensor,
    strides: Pair = (1, 1),
    padding: Sides = (0, 0),
    dilation: Pair = (1, 1),
    deformable_groups: int = 1,
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Pair = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: Dtype = "",
) -> Call:
    """A convolution that reads each element of its windows where `offset` moves it."""


# ---------------------------------------------------------------------------- Winograd
def _winograd_weight_rel(types: list[Any], attrs: Any) -> Type:
    weight = types[0]
    need_rank(weight, 4, "weight")
    outputs, inputs, rows, columns = weight.shape
    if not is_known(rows) or same_size(rows, columns) is not True:
        raise refuse(f"must have a square kernel of known size and is {weight}", "weight")
    alpha = attrs.tile_size + rows - 1
    return TensorType((alpha, alpha, outputs, inputs), weight.dtype)


@operator(
    "nn.contrib_conv2d_winograd_weight_transform",
    rel=_winograd_weight_rel,
    compute="nn.conv2d_winograd_weight_transform",
)
def contrib_conv2d_winograd_weight_transform(weight: Tensor, tile_size: int) -> Call:
    """An OIHW kernel as Winograd's products need it, (alpha, alpha, O, I) with alpha = tile + kernel - 1."""


def _winograd_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types
    need_rank(weight, 4, "weight")
    if attrs.groups != 1 or set(attrs.strides) != {1} or set(attrs.dilation) != {1}:
        raise refuse("strides, dilation and groups must be 1 for Winograd's convolution; use nn.conv2d")
    alpha, other, outputs, inputs = weight.shape
    if not is_known(alpha) or same_size(alpha, other) is not True or alpha < attrs.tile_size:
        raise refuse(f"is {weight}; with tile_size {attrs.tile_size} it is (alpha, alpha, O, I)", "weight")
    kernel = alpha - attrs.tile_size + 1
    d = layouts.sizes(attrs.data_layout, data.shape)
    if differ(d["C"], inputs):
        raise refuse(f"takes {inputs} input channels and data has {d['C']}", "weight")
    top, left, bottom, right = attrs.padding
    named = {"N": d["N"], "C": outputs}
    named["H"] = windows(d["H"], kernel, 1, 1, top + bottom)
    named["W"] = windows(d["W"], kernel, 1, 1, left + right)
    return TensorType(
        layouts.shape_in(attrs.out_layout or attrs.data_layout, named), attrs.out_dtype or data.dtype
    )


@operator(
    "nn.contrib_conv2d_winograd_without_weight_transform",
    rel=_winograd_rel,
    compute="nn.conv2d_winograd_without_weight_transform",
    pattern=FUSABLE,
)
def contrib_conv2d_winograd_without_weight_transform(
    data: Tensor,
    weight: Tensor,
    tile_size: int,
    strides: Pair = (1, 1),
    padding: Sides = (0, 0),
    dilation: Pair = (1, 1),
    groups: int = 1,
    channels: int | None = None,
    kernel_size: Pair = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: Dtype = "",
) -> Call:
    """A Winograd convolution, with a kernel from contrib_conv2d_winograd_weight_transform."""


# ---------------------------------------------------------------------------- correlation
def _correlation_rel(types: list[Any], attrs: Any) -> Type:
    first, second = types
    if attrs.layout != "NCHW":
        raise refuse(f"is {attrs.layout} and must be NCHW", "layout")
    need_rank(first, 4, "data1")
    need_rank(second, 4, "data2")
    need_dtype(second, first.dtype, "data2")
    if unlike(first.shape, second.shape):
        raise refuse(f"is {second} and data1 is {first}", "data2")
    if attrs.kernel_size < 1 or attrs.kernel_size % 2 == 0:
        raise refuse(f"is {attrs.kernel_size} and must be odd", "kernel_size")
    border = attrs.max_displacement + (attrs.kernel_size - 1) // 2
    top, left, bottom, right = attrs.padding
    out = []
    for size, around in ((first.shape[2], top + bottom), (first.shape[3], left + right)):
        count = ceildiv(sub(add(size, around), 2 * border), attrs.stride1)
        if isinstance(count, int) and count < 1:
            raise refuse(
                f"of {size} elements with {around} of padding nothing is left inside a border of {border}"
            )
        out.append(count)
    side = 2 * (attrs.max_displacement // attrs.stride2) + 1
    return TensorType((first.shape[0], side * side, *out), first.dtype)


@operator(
    "nn.correlation",
    attrs={
        "kernel_size": integer(1),
        "max_displacement": integer(1),
        "stride1": integer(1),
        "stride2": integer(1),
        "padding": padding(2, (0, 0, 0, 0)),
        "is_multiply": flag(True),
        "layout": text("NCHW"),
    },
    rel=_correlation_rel,
    compute="nn.correlation_nchw",
    pattern=FUSABLE,
)
def correlation(
    data1: Tensor,
    data2: Tensor,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Sides,
    is_multiply: bool,
    layout: str,
) -> Call:
    """The correlation of patches of one image with displaced patches of another."""
