"""Two-dimensional convolutions, grouped, in plain and blocked layouts."""

from __future__ import annotations

from typing import Any, NamedTuple

from ... import te
from ..utils import fail, get_const_tuple, tensor_arg, variant
from .conv import Layouts, convolve, kernel_layout_for
from .utils import layout_of, paddings, spatial

__all__ = [
    "Workload",
    "conv2d",
    "conv2d_alter_layout",
    "conv2d_hwcn",
    "conv2d_legalize",
    "conv2d_nchw",
    "conv2d_NCHWc",
    "conv2d_NCHWc_int8",
    "conv2d_nhwc",
    "group_conv2d_nchw",
    "group_conv2d_nhwc",
    "unpack_NCHWc_to_nchw",
]


class Workload(NamedTuple):
    """A convolution by its sizes."""

    in_dtype: str
    out_dtype: str
    height: int
    width: int
    in_filter: int
    groups: int
    out_filter: int
    kernel_h: int
    kernel_w: int
    padt: int
    padl: int
    padb: int
    padr: int
    dilation_h: int
    dilation_w: int
    stride_h: int
    stride_w: int


def _get_workload(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str,
    data_layout: str = "NCHW",
) -> Workload:
    """The sizes of a convolution."""
    what = "nn.conv2d"
    layout = layout_of(what, "data_layout", data_layout, "NCHW", "NHW")
    weights = layout_of(what, "kernel_layout", kernel_layout_for(data_layout), "OIHW")
    shape = layout.checked_shape(what, "data", data)
    kernel_shape = weights.checked_shape(what, "kernel", kernel)
    inputs, height, width = (layout.size(c, shape) for c in "CHW")
    outputs, each, rows, columns = (weights.size(c, kernel_shape) for c in "OIHW")
    step, spread = spatial(what, "stride", stride, 2), spatial(what, "dilation", dilation, 2)
    covered = [(k - 1) * d + 1 for k, d in zip((rows, columns), spread, strict=True)]
    before, after = paddings(what, padding, covered)
    return Workload(
        data.dtype, out_dtype, height, width, inputs, inputs // each, outputs, rows, columns,
        *before, *after, *spread, *step,
    )  # fmt: skip


def conv2d(
    input: te.Tensor,
    filter: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
    groups: Any = 1,
) -> te.Tensor:
    """A two-dimensional convolution in the layouts named."""
    kernel_layout = kernel_layout or kernel_layout_for(data_layout)
    if isinstance(filter, te.Tensor) and filter.ndim == 6 and kernel_layout == "OIHW":
        kernel_layout = "OIHWio"
    tag = f"conv2d_{data_layout.lower() if data_layout.isupper() else 'NCHWc'}"
    layouts = Layouts(data_layout, kernel_layout, data_layout)
    return convolve("nn.conv2d", input, filter, strides, padding, dilation, groups, layouts, out_dtype, tag)


def conv2d_nhwc(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = "float32",
) -> te.Tensor:
    """A convolution of NHWC data with an HWIO kernel."""
    return conv2d(Input, Filter, stride, padding, dilation, "NHWC", "HWIO", out_dtype)


def _plain(
    layouts: tuple[str, str],
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = None,
) -> te.Tensor:
    return conv2d(Input, Filter, stride, padding, dilation, *layouts, out_dtype)


def _grouped(
    layouts: Layouts,
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    out_dtype: str | None = None,
) -> te.Tensor:
    tag = f"group_conv2d_{layouts.data.lower()}"
    return convolve(f"nn.{tag}", Input, Filter, stride, padding, dilation, groups, layouts, out_dtype, tag)


conv2d_nchw = variant(
    "conv2d_nchw", _plain, ("NCHW", "OIHW"), "A convolution of NCHW data with an OIHW kernel."
)
conv2d_hwcn = variant(
    "conv2d_hwcn", _plain, ("HWCN", "HWIO"), "A convolution of HWCN data with an HWIO kernel."
)
group_conv2d_nchw = variant(
    "group_conv2d_nchw",
    _grouped,
    Layouts("NCHW", "OIHW", "NCHW"),
    "A grouped convolution of NCHW data with an OIHW kernel.",
)
group_conv2d_nhwc = variant(
    "group_conv2d_nhwc",
    _grouped,
    Layouts("NHWC", "HWIO", "NHWC"),
    "A grouped convolution of NHWC data with an HWIO kernel.",
)


def _groups_of(operator_name: str, data: Any, kernel: Any, data_layout: str, kernel_layout: str) -> int:
    """The number of groups of blocked channels: the data's channels over those of the kernel."""
    d = layout_of(operator_name, "layout", data_layout, "NCHW", "NHW")
    k = layout_of(operator_name, "kernel_layout", kernel_layout, "OIHW", "HW")
    inputs = d.size("C", d.checked_shape(operator_name, "data", data))
    each = k.size("I", k.checked_shape(operator_name, "kernel", kernel))
    if not isinstance(inputs, int) or not isinstance(each, int):
        return 1
    if each == 0 or inputs % each:
        raise fail(operator_name, f"the data has {inputs} channels and the kernel takes {each} in each group")
    return max(inputs // each, 1)


def conv2d_NCHWc(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    out_layout: str,
    out_dtype: str | None = "float32",
) -> te.Tensor:
    """A convolution of NCHW16c data with an OIHW16i16o kernel, for any block sizes."""
    what = "nn.conv2d_NCHWc"
    groups = _groups_of(what, data, kernel, layout, "OIHWio")
    layouts = Layouts(layout, "OIHWio", out_layout or layout)
    return convolve(what, data, kernel, stride, padding, dilation, groups, layouts, out_dtype, "conv2d_NCHWc")


def conv2d_NCHWc_int8(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    out_layout: str,
    out_dtype: str | None = "int32",
    n_elems: int = 4,
) -> te.Tensor:
    """A convolution of NCHW16c data with an OIHW4i16o4i kernel: `n_elems` input channels are contiguous."""
    what = "nn.conv2d_NCHWc_int8"
    kernel_layout = f"OIHWio{n_elems}i"
    groups = _groups_of(what, data, kernel, layout, kernel_layout)
    layouts = Layouts(layout, kernel_layout, out_layout or layout)
    return convolve(
        what, data, kernel, stride, padding, dilation, groups, layouts, out_dtype, "conv2d_NCHWc_int8"
    )


def unpack_NCHWc_to_nchw(packed_out: te.Tensor, out_dtype: str) -> te.Tensor:
    """A blocked NCHWc tensor as NCHW."""
    packed_out = tensor_arg("nn.unpack_NCHWc_to_nchw", "packed_out", packed_out)
    if packed_out.ndim != 5:
        raise fail(
            "nn.unpack_NCHWc_to_nchw",
            f"`{packed_out.name}` has {packed_out.ndim} dimensions, and NCHWc has 5",
        )
    n, chunks, height, width, block = get_const_tuple(packed_out.shape)
    return te.compute(
        (n, chunks * block, height, width),
        lambda n, c, h, w: packed_out(n, te.floordiv(c, block), h, w, te.floormod(c, block)).astype(
            out_dtype
        ),
        name="output_unpack",
        tag="injective,unpack_nchwc",
    )


def conv2d_alter_layout(attrs: Any, inputs: Any, tinfos: Any, out_type: Any) -> None:
    """The preferred layout of a convolution: None, it keeps its own; schedules pack operands."""


def conv2d_legalize(attrs: Any, inputs: Any, types: Any) -> None:
    """The legalization of a convolution: None, every one can be compiled."""
