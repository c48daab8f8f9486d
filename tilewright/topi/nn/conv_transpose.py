"""Transposed convolutions of one, two and three dimensions."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import ops
from .. import tag as _tag
from ..math import cast
from ..reduction import accumulator
from ..utils import dtype_of, fail, get_const_tuple, injective, simplify, static_int, variant
from .conv import Layouts, convolve, kernel_layout_for
from .phases import Operands, Spread, form_of
from .utils import Layout, layout_of, paddings, spatial, spatial_letters

__all__ = [
    "conv1d_transpose_ncw",
    "conv1d_transpose_nwc",
    "conv2d_transpose_nchw",
    "conv2d_transpose_nhwc",
    "conv3d_transpose_ncdhw",
    "conv3d_transpose_ndhwc",
    "conv_transpose",
    "group_conv1d_transpose_ncw",
    "group_conv2d_transpose_nchw",
    "group_conv3d_transpose_ncdhw",
]


def conv_transpose(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    output_padding: Any = 0,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """The gradient of a convolution by its data: each element is spread over a window of the result.

    size of the result = (size - 1)*stride - before - after + (kernel - 1)*dilation + 1 + output_padding
    """
    what = "nn.conv_transpose"
    space = spatial_letters(what, "data_layout", data_layout, "")
    straight = kernel_layout_for(data_layout)
    if not kernel_layout:
        kernel_layout = straight.replace("OI", "IO") if "OI" in straight else straight.replace("IO", "OI")
    layout = layout_of(what, "data_layout", data_layout, f"NC{space}", f"NC{space}")
    weights = layout_of(what, "kernel_layout", kernel_layout, f"IO{space}", f"IO{space}")
    shape = layout.checked_shape(what, "data", data)
    kernel_shape = weights.checked_shape(what, "kernel", kernel)
    rank, split = len(space), static_int(what, "groups", groups)
    _check_channels(what, layout.size("C", shape), weights.size("I", kernel_shape), split)
    steps, spread = spatial(what, "strides", strides, rank), spatial(what, "dilation", dilation, rank)
    covered = [simplify((weights.size(c, kernel_shape) - 1) * d) for c, d in zip(space, spread, strict=True)]
    before, after = paddings(what, padding, [simplify(c + 1) for c in covered])
    extra = spatial(what, "output_padding", output_padding, rank, 0)
    sizes, offsets = {}, {}
    for c, full, b, a, e, s in zip(space, covered, before, after, extra, steps, strict=True):
        size = layout.size(c, shape)
        sizes[c] = simplify((size - 1) * s + 1 + 2 * full - b - a + e)
        offsets[c] = simplify(full - b)
        if isinstance(sizes[c], int) and sizes[c] <= full:
            raise fail(
                what,
                f"nothing is left of dimension {c}: it has {size} elements and the padding is {b} and {a}",
            )
    tag = f"{'group_' if split > 1 else ''}conv{rank}d_transpose_{data_layout.lower()}"
    kind = dtype_of(what, out_dtype or data.dtype)
    dims = {
        c: Spread(layout.size(c, shape), weights.size(c, kernel_shape), s, d, b, simplify(sizes[c] - full))
        for c, s, d, b, full in zip(space, steps, spread, before, covered, strict=True)
    }
    given = Operands(data, kernel, layout, weights, split, accumulator(kind))
    form = form_of(given, dims)
    if form is not None:
        return cast(form(given, dims, tag), kind)
    room = _spread(data, layout, sizes, offsets, dict(zip(space, steps, strict=True)))
    flipped = _flipped(kernel, weights, layout_of(what, "kernel_layout", straight, f"OI{space}"), split)
    layouts = Layouts(data_layout, straight, data_layout)
    return convolve(what, room, flipped, 1, 0, spread, split, layouts, kind, tag)


def _check_channels(what: str, inputs: Any, taken: Any, groups: int) -> None:
    if groups < 1 or (isinstance(inputs, int) and inputs % groups):
        raise fail(what, f"{inputs} input channels cannot be split into {groups} groups")
    if isinstance(inputs, int) and isinstance(taken, int) and inputs != taken:
        raise fail(
            what,
            f"the data has {inputs} channels and the kernel takes {taken}",
            "a transposed kernel is (input channels, output channels of a group, height, width)",
        )


def _spread(
    data: te.Tensor, layout: Layout, sizes: dict[str, Any], offsets: dict[str, Any], steps: dict[str, int]
) -> te.Tensor:
    """The data dilated by `stride`, with the padding that the kernel needs.

    A negative offset crops elements: a padding that is larger than the kernel.
    """
    shape = [sizes.get(c, d) for c, d in zip(layout.letters, get_const_tuple(data.shape), strict=True)]
    if all(steps[c] == 1 and sizes[c] is layout.size(c, data.shape) for c in sizes):
        return data

    def element(*at: Any) -> Any:
        hit, source = [], []
        for c, i, size in zip(layout.letters, at, data.shape, strict=True):
            if c not in sizes:
                source.append(i)
                continue
            where = ops.sub(i, offsets[c])
            hit += [ops.greater_equal(where, 0), ops.less(where, simplify((size - 1) * steps[c] + 1))]
            if steps[c] > 1:
                hit.append(ops.equal(ops.floormod(where, steps[c]), 0))
            source.append(ops.floordiv(where, steps[c]))
        return ops.if_then_else(ops.all(*hit), data(*source), te.const(0, data.dtype))

    return injective("nn.conv_transpose", shape, element, f"{_tag.INJECTIVE},dilate,pad", "data_spread")


def _flipped(kernel: te.Tensor, given: Layout, wanted: Layout, groups: int) -> te.Tensor:
    """The flipped kernel for the direct convolution: (I, O/groups) becomes (O, I/groups)."""
    shape = get_const_tuple(kernel.shape)
    outputs, inputs = given.size("O", shape), given.size("I", shape)
    each = inputs // groups if isinstance(inputs, int) else simplify(te.floordiv(inputs, groups))
    sizes = {"O": simplify(outputs * groups), "I": each}
    sizes |= {c: given.size(c, shape) for c in given.spatial}

    def element(*at: Any) -> Any:
        index = dict(zip(wanted.letters, at, strict=True))
        group = ops.floordiv(index["O"], outputs) if groups > 1 else 0
        source = {c: ops.sub(sizes[c] - 1, index[c]) for c in given.spatial}
        source["O"] = ops.floormod(index["O"], outputs) if groups > 1 else index["O"]
        source["I"] = ops.add(ops.mul(group, each), index["I"]) if groups > 1 else index["I"]
        return given.read(kernel, source)

    return injective(
        "nn.conv_transpose", [sizes[c] for c in wanted.letters], element, name="kernel_transform"
    )


def conv1d_transpose_ncw(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    out_dtype: str | None,
    output_padding: Any,
    dilation: Any = 1,
) -> te.Tensor:
    """A transposed convolution of NCW data with an IOW kernel."""
    return conv_transpose(data, kernel, stride, padding, dilation, 1, output_padding, "NCW", "IOW", out_dtype)


def conv1d_transpose_nwc(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    out_dtype: str | None,
    output_padding: Any,
    groups: Any = 1,
    dilation: Any = 1,
) -> te.Tensor:
    """A transposed convolution of NWC data with a WOI kernel."""
    return conv_transpose(
        data, kernel, stride, padding, dilation, groups, output_padding, "NWC", "WOI", out_dtype
    )


def _grouped(
    layouts: tuple[str, str],
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    out_dtype: str | None,
    output_padding: Any,
    groups: Any,
    dilation: Any = 1,
) -> te.Tensor:
    return conv_transpose(
        data, kernel, stride, padding, dilation, groups, output_padding, *layouts, out_dtype
    )


group_conv1d_transpose_ncw = variant(
    "group_conv1d_transpose_ncw",
    _grouped,
    ("NCW", "IOW"),
    "A grouped transposed convolution of NCW data with an IOW kernel.",
)
group_conv2d_transpose_nchw = variant(
    "group_conv2d_transpose_nchw",
    _grouped,
    ("NCHW", "IOHW"),
    "A grouped transposed convolution of NCHW data with an IOHW kernel.",
)


def _plain(
    layouts: tuple[str, str],
    Input: te.Tensor,
    Filter: te.Tensor,
    strides: Any,
    padding: Any,
    out_dtype: str | None,
    output_padding: Any,
    dilation: Any = 1,
) -> te.Tensor:
    return conv_transpose(Input, Filter, strides, padding, dilation, 1, output_padding, *layouts, out_dtype)


conv2d_transpose_nchw = variant(
    "conv2d_transpose_nchw",
    _plain,
    ("NCHW", "IOHW"),
    "A transposed convolution of NCHW data with an IOHW kernel.",
)
conv3d_transpose_ncdhw = variant(
    "conv3d_transpose_ncdhw",
    _plain,
    ("NCDHW", "IODHW"),
    "A transposed convolution of NCDHW data with an IODHW kernel.",
)


def conv2d_transpose_nhwc(
    Input: te.Tensor,
    Filter: te.Tensor,
    strides: Any,
    padding: Any,
    out_dtype: str | None,
    output_padding: Any,
    groups: Any = 1,
    dilation: Any = 1,
    kernel_layout: str = "HWOI",
) -> te.Tensor:
    """A transposed convolution of NHWC data with an HWOI kernel."""
    return conv_transpose(
        Input, Filter, strides, padding, dilation, groups, output_padding, "NHWC", kernel_layout, out_dtype
    )


def group_conv3d_transpose_ncdhw(
    Input: te.Tensor,
    Filter: te.Tensor,
    strides: Any,
    padding: Any,
    out_dtype: str | None,
    output_padding: Any,
    groups: Any,
    dilation: Any = 1,
) -> te.Tensor:
    """A grouped transposed convolution of NCDHW data with an IODHW kernel."""
    return conv_transpose(
        Input, Filter, strides, padding, dilation, groups, output_padding, "NCDHW", "IODHW", out_dtype
    )


def conv3d_transpose_ndhwc(
    Input: te.Tensor,
    Filter: te.Tensor,
    strides: Any,
    padding: Any,
    out_dtype: str | None,
    output_padding: Any,
    groups: Any = 1,
    dilation: Any = 1,
) -> te.Tensor:
    """A transposed convolution of NDHWC data with a DHWOI kernel."""
    return conv_transpose(
        Input, Filter, strides, padding, dilation, groups, output_padding, "NDHWC", "DHWOI", out_dtype
    )
