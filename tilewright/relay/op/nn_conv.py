"""Convolutions beside conv2d: of one and three dimensions, transposed, packed, deformable, Winograd's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..expr import Call
from ..ty import TensorType, Type
from . import layouts
from .computes import Layouts, convolve, topi
from .registry import Attr, OpPattern, dtype, flag, integer, ints, named, refuse, register, text
from .shapes import add, ceildiv, differ, is_known, mul, need_dtype, need_rank, same_size, sub
from .spatial import conv_rel, each, four, sides, transposed_rel, windows

__all__ = [
    "contrib_conv2d_nchwc",
    "contrib_conv2d_winograd_weight_transform",
    "contrib_conv2d_winograd_without_weight_transform",
    "contrib_depthwise_conv2d_nchwc",
    "conv1d",
    "conv1d_transpose",
    "conv2d_transpose",
    "conv3d",
    "conv3d_transpose",
    "correlation",
    "deformable_conv2d",
]

FUSABLE = OpPattern.OUT_ELEMWISE_FUSABLE


def _attrs(rank: int, data_layout: str, kernel_layout: str) -> dict[str, Attr]:
    return {
        "strides": ints((1,) * rank),
        "padding": ints((0,) * (2 * rank)),
        "dilation": ints((1,) * rank),
        "groups": integer(1),
        "channels": integer(None),
        "kernel_size": ints(None),
        "data_layout": text(data_layout),
        "kernel_layout": text(kernel_layout),
        "out_layout": text(""),
        "out_dtype": dtype(None),
    }


def _in_out_layout(made: Any, attrs: Any) -> list[Any]:
    if attrs.out_layout and attrs.out_layout != attrs.data_layout:
        made = topi.layout_transform(made, attrs.data_layout, attrs.out_layout)
    return [made]


def _conv_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    made = topi.nn.conv(
        ins[0], ins[1], attrs.strides, attrs.padding, attrs.dilation, attrs.groups,
        attrs.data_layout, attrs.kernel_layout, out.dtype,
    )  # fmt: skip
    return _in_out_layout(made, attrs)


def _transposed_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    made = topi.nn.conv_transpose(
        ins[0], ins[1], attrs.strides, attrs.padding, attrs.dilation, attrs.groups,
        attrs.output_padding, attrs.data_layout, attrs.kernel_layout, out.dtype,
    )  # fmt: skip
    return _in_out_layout(made, attrs)


def _formed(rank: int, strides: Any, padding: Any, dilation: Any, kernel_size: Any) -> dict[str, Any]:
    """The numbers of a window, one for each dimension."""
    return {
        "strides": each(strides, rank),
        "padding": sides(padding, rank),
        "dilation": each(dilation, rank),
        "kernel_size": None if kernel_size is None else each(kernel_size, rank),
    }


def _straight(
    name: str,
    rank: int,
    data_layout: str,
    kernel_layout: str,
    doc: str,
    compute: Any = _conv_compute,
    second: str = "weight",
) -> Callable[..., Call]:
    """Make a convolution known, and give its constructor."""
    op = register(
        name,
        inputs=("data", second),
        attrs=_attrs(rank, data_layout, kernel_layout),
        rel=conv_rel,
        compute=compute,
        pattern=FUSABLE,
    )

    def build(
        data: Any,
        weight: Any,
        strides: Any = (1,) * rank,
        padding: Any = (0,) * rank,
        dilation: Any = (1,) * rank,
        groups: int = 1,
        channels: Any = None,
        kernel_size: Any = None,
        data_layout: str = data_layout,
        kernel_layout: str = kernel_layout,
        out_layout: str = "",
        out_dtype: Any = "",
    ) -> Call:
        return op(
            data,
            weight,
            **_formed(rank, strides, padding, dilation, kernel_size),
            groups=groups,
            channels=channels,
            data_layout=data_layout,
            kernel_layout=kernel_layout,
            out_layout=out_layout,
            out_dtype=out_dtype,
        )

    return named(build, name.removeprefix("nn.").lower(), __name__, doc)


def _transposed(rank: int, data_layout: str, kernel_layout: str, doc: str) -> Callable[..., Call]:
    """Make a transposed convolution known, and give its constructor."""
    name = f"nn.conv{rank}d_transpose"
    op = register(
        name,
        inputs=("data", "weight"),
        attrs={**_attrs(rank, data_layout, kernel_layout), "output_padding": ints((0,) * rank)},
        rel=transposed_rel,
        compute=_transposed_compute,
        pattern=FUSABLE,
    )

    def build(
        data: Any,
        weight: Any,
        strides: Any = (1,) * rank,
        padding: Any = (0,) * rank,
        dilation: Any = (1,) * rank,
        channels: Any = None,
        kernel_size: Any = None,
        groups: int = 1,
        data_layout: str = data_layout,
        kernel_layout: str = kernel_layout,
        out_layout: str = "",
        output_padding: Any = (0,) * rank,
        out_dtype: Any = "",
    ) -> Call:
        return op(
            data,
            weight,
            **_formed(rank, strides, padding, dilation, kernel_size),
            groups=groups,
            channels=channels,
            data_layout=data_layout,
            kernel_layout=kernel_layout,
            out_layout=out_layout,
            output_padding=each(output_padding, rank),
            out_dtype=out_dtype,
        )

    return named(build, name.removeprefix("nn."), __name__, doc)


_TURNED = "-dimensional convolution turned around: each element is spread over a window of the result."
conv1d = _straight("nn.conv1d", 1, "NCW", "OIW", "A one-dimensional convolution.")
conv3d = _straight("nn.conv3d", 3, "NCDHW", "OIDHW", "A three-dimensional convolution.")
conv1d_transpose = _transposed(1, "NCW", "IOW", f"A one{_TURNED}")
conv2d_transpose = _transposed(2, "NCHW", "IOHW", f"A two{_TURNED}")
_conv3d_transpose = _transposed(3, "NCDHW", "IODHW", f"A three{_TURNED}")


def conv3d_transpose(
    data: Any,
    weight: Any,
    strides: Any = (1, 1, 1),
    padding: Any = (0, 0, 0),
    dilation: Any = (1, 1, 1),
    groups: int = 1,
    channels: Any = None,
    kernel_size: Any = None,
    *more: Any,
    **options: Any,
) -> Call:
    """A three-dimensional convolution turned around; its groups come before its channels, as ever."""
    return _conv3d_transpose(
        data, weight, strides, padding, dilation, channels, kernel_size, groups, *more, **options
    )


# ---------------------------------------------------------------------------- channels in blocks
def _packed_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    """Any blocks of channels on both sides; the result is written in its layout at once."""
    how = Layouts(attrs.data_layout, attrs.kernel_layout, attrs.out_layout or attrs.data_layout)
    return [
        convolve(
            "nn.contrib_conv2d_NCHWc", ins[0], ins[1], attrs.strides, attrs.padding, attrs.dilation,
            attrs.groups, how, out.dtype, "conv2d_NCHWc",
        )
    ]  # fmt: skip


def _packed(name: str, doc: str) -> Callable[..., Call]:
    straight = _straight(name, 2, "NCHW8c", "OIHW", doc, _packed_compute, "kernel")

    def build(data: Any, kernel: Any, *window: Any, **options: Any) -> Call:
        return straight(data, kernel, *window, **options)

    return named(build, straight.__name__, __name__, doc)


contrib_conv2d_nchwc = _packed(
    "nn.contrib_conv2d_NCHWc",
    "A convolution whose channels lie in blocks: NCHW16c data with an OIHW16i16o kernel, say.",
)
contrib_depthwise_conv2d_nchwc = _packed(
    "nn.contrib_depthwise_conv2d_NCHWc",
    "A convolution of each channel on its own, the channels in blocks: an OIHW1i16o kernel, say.",
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
    named = layouts.sizes(attrs.data_layout, out.shape)
    if any(differ(o[letter], named[letter]) for letter in "NHW"):
        raise refuse(f"is {offset} and the result is {out}", "offset")
    wanted = mul(mul(w["H"], w["W"]), 2 * attrs.deformable_groups)
    if differ(o["C"], wanted):
        raise refuse(
            f"has {o['C']} channels and must have {wanted}: two for each element of the kernel and group",
            "offset",
        )
    return out


def _deformable_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    work = topi.nn.deformable_conv2d_nchw if attrs.data_layout == "NCHW" else topi.nn.deformable_conv2d_nhwc
    made = work(
        ins[0], ins[1], ins[2], attrs.strides, attrs.padding, attrs.dilation,
        attrs.deformable_groups, attrs.groups, out.dtype,
    )  # fmt: skip
    return _in_out_layout(made, attrs)


_deformable_conv2d = register(
    "nn.deformable_conv2d",
    inputs=("data", "offset", "weight"),
    attrs={**_attrs(2, "NCHW", "OIHW"), "deformable_groups": integer(1)},
    rel=_deformable_rel,
    compute=_deformable_compute,
    pattern=FUSABLE,
)


def deformable_conv2d(
    data: Any,
    offset: Any,
    weight: Any,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    deformable_groups: int = 1,
    groups: int = 1,
    channels: Any = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: Any = "",
) -> Call:
    """A convolution that reads each element of its windows where `offset` moves it."""
    return _deformable_conv2d(
        data,
        offset,
        weight,
        **_formed(2, strides, padding, dilation, kernel_size),
        deformable_groups=deformable_groups,
        groups=groups,
        channels=channels,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_layout=out_layout,
        out_dtype=out_dtype,
    )


# ---------------------------------------------------------------------------- Winograd
def _winograd_weight_rel(types: list[Any], attrs: Any) -> Type:
    weight = types[0]
    need_rank(weight, 4, "weight")
    outputs, inputs, rows, columns = weight.shape
    if not is_known(rows) or same_size(rows, columns) is not True:
        raise refuse(f"must have a square kernel of known size and is {weight}", "weight")
    alpha = attrs.tile_size + rows - 1
    return TensorType((alpha, alpha, outputs, inputs), weight.dtype)


_winograd_weight = register(
    "nn.contrib_conv2d_winograd_weight_transform",
    inputs=("weight",),
    attrs={"tile_size": integer()},
    rel=_winograd_weight_rel,
    compute=lambda attrs, ins, out: [topi.nn.conv2d_winograd_weight_transform(ins[0], attrs.tile_size)],
)


def contrib_conv2d_winograd_weight_transform(weight: Any, tile_size: int) -> Call:
    """An OIHW kernel as Winograd's products need it, (alpha, alpha, O, I) with alpha = tile + kernel - 1."""
    return _winograd_weight(weight, tile_size=tile_size)


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


def _winograd_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    made = topi.nn.conv2d_winograd_without_weight_transform(
        ins[0], ins[1], attrs.strides, attrs.padding, attrs.dilation,
        attrs.data_layout, out.dtype, attrs.tile_size,
    )  # fmt: skip
    return _in_out_layout(made, attrs)


_winograd = register(
    "nn.contrib_conv2d_winograd_without_weight_transform",
    inputs=("data", "weight"),
    attrs={"tile_size": integer(), **_attrs(2, "NCHW", "OIHW")},
    rel=_winograd_rel,
    compute=_winograd_compute,
    pattern=FUSABLE,
)


def contrib_conv2d_winograd_without_weight_transform(
    data: Any,
    weight: Any,
    tile_size: int,
    strides: Any = (1, 1),
    padding: Any = (0, 0),
    dilation: Any = (1, 1),
    groups: int = 1,
    channels: Any = None,
    kernel_size: Any = None,
    data_layout: str = "NCHW",
    kernel_layout: str = "OIHW",
    out_layout: str = "",
    out_dtype: Any = "",
) -> Call:
    """A convolution by Winograd's way, with a kernel that contrib_conv2d_winograd_weight_transform made."""
    return _winograd(
        data,
        weight,
        tile_size=tile_size,
        **_formed(2, strides, padding, dilation, kernel_size),
        groups=groups,
        channels=channels,
        data_layout=data_layout,
        kernel_layout=kernel_layout,
        out_layout=out_layout,
        out_dtype=out_dtype,
    )


# ---------------------------------------------------------------------------- correlation
def _correlation_rel(types: list[Any], attrs: Any) -> Type:
    first, second = types
    if attrs.layout != "NCHW":
        raise refuse(f"is {attrs.layout} and must be NCHW", "layout")
    need_rank(first, 4, "data1")
    need_rank(second, 4, "data2")
    need_dtype(second, first.dtype, "data2")
    if any(differ(a, b) for a, b in zip(first.shape, second.shape, strict=True)):
        raise refuse(f"is {second} and data1 is {first}", "data2")
    if attrs.kernel_size < 1 or attrs.kernel_size % 2 == 0:
        raise refuse(f"is {attrs.kernel_size} and must be odd", "kernel_size")
    border = attrs.max_displacement + (attrs.kernel_size - 1) // 2
    top, left, bottom, right = attrs.padding
    out = []
    for size, padding in ((first.shape[2], top + bottom), (first.shape[3], left + right)):
        count = ceildiv(sub(add(size, padding), 2 * border), attrs.stride1)
        if isinstance(count, int) and count < 1:
            raise refuse(
                f"of {size} elements with {padding} of padding nothing is left inside a border of {border}"
            )
        out.append(count)
    side = 2 * (attrs.max_displacement // attrs.stride2) + 1
    return TensorType((first.shape[0], side * side, *out), first.dtype)


_correlation = register(
    "nn.correlation",
    inputs=("data1", "data2"),
    attrs={
        "kernel_size": integer(1),
        "max_displacement": integer(1),
        "stride1": integer(1),
        "stride2": integer(1),
        "padding": ints((0, 0, 0, 0)),
        "is_multiply": flag(True),
        "layout": text("NCHW"),
    },
    rel=_correlation_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.correlation_nchw(
            ins[0], ins[1], attrs.kernel_size, attrs.max_displacement,
            attrs.stride1, attrs.stride2, attrs.padding, attrs.is_multiply,
        )
    ],
    pattern=FUSABLE,
)  # fmt: skip


def correlation(
    data1: Any,
    data2: Any,
    kernel_size: int,
    max_displacement: int,
    stride1: int,
    stride2: int,
    padding: Any,
    is_multiply: bool,
    layout: str,
) -> Call:
    """How well patches of one image fit those of another that are moved a little."""
    return _correlation(
        data1,
        data2,
        kernel_size=kernel_size,
        max_displacement=max_displacement,
        stride1=stride1,
        stride2=stride2,
        padding=four(padding),
        is_multiply=is_multiply,
        layout=layout,
    )
