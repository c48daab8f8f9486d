"""Depthwise convolutions: each channel of the data has kernels of its own."""

from __future__ import annotations

from typing import Any

from ... import te
from ...absent import attributes
from ..utils import fail, get_const_tuple, tensor_arg
from .conv import Layouts, convolve
from .utils import layout_of

__all__ = ["depthwise_conv2d_nchw", "depthwise_conv2d_NCHWc", "depthwise_conv2d_nhwc"]


def _depthwise(
    tag: str,
    data: te.Tensor,
    kernel: te.Tensor,
    windows: tuple[Any, Any, Any],
    layout: str,
    kernel_layout: str,
    out_dtype: str | None,
) -> te.Tensor:
    """Output channel c*M + m is channel c of the data under kernel m of the M that it has.

    To the convolution beneath, the kernel's channels are one coordinate O in the two digits c and m.
    """
    what = f"nn.{tag}"
    layout_of(what, "layout", layout, "NCHW", "NHW")
    kernel = tensor_arg(what, "kernel", kernel)
    sizes = dict(zip(kernel_layout, get_const_tuple(kernel.shape), strict=False))
    data_layout = layout_of(what, "data_layout", layout, "NCHW", "NHW")
    channels = data_layout.size("C", data_layout.checked_shape(what, "data", data))
    if kernel.ndim == 4 and isinstance(channels, int) and sizes["O"] != channels:
        raise fail(
            what,
            f"the data has {channels} channels and the kernel has kernels for {sizes['O']}",
            f"the kernel's layout is {kernel_layout}: O counts channels of the data, I kernels for each",
        )
    layouts = Layouts(layout, kernel_layout.replace("I", "o"), layout)
    return convolve(what, data, kernel, *windows, channels, layouts, out_dtype, tag, "DepthwiseConv2d")


def depthwise_conv2d_nchw(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = None,
) -> te.Tensor:
    """A depthwise convolution of NCHW data; the kernel is (channel, multiplier, height, width)."""
    windows = (stride, padding, dilation)
    return _depthwise("depthwise_conv2d_nchw", Input, Filter, windows, "NCHW", "OIHW", out_dtype)


def depthwise_conv2d_nhwc(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    kernel_layout: str = "HWOI",
    out_dtype: str | None = None,
) -> te.Tensor:
    """A depthwise convolution of NHWC data; the kernel is (height, width, channel, multiplier)."""
    layout_of("nn.depthwise_conv2d_nhwc", "kernel_layout", kernel_layout, "OIHW", "OIHW")
    windows = (stride, padding, dilation)
    return _depthwise("depthwise_conv2d_nhwc", Input, Filter, windows, "NHWC", kernel_layout, out_dtype)


def depthwise_conv2d_NCHWc(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    out_layout: str,
    out_dtype: str | None = None,
) -> te.Tensor:
    """A depthwise convolution of NCHW16c data with an OIHW1i16o kernel, for any block sizes."""
    what = "nn.depthwise_conv2d_NCHWc"
    blocked = layout_of(what, "layout", layout, "NCHW", "NHW")
    channels = blocked.size("C", blocked.checked_shape(what, "data", Input))
    layouts = Layouts(layout, "OIHW1io", out_layout or layout)
    return convolve(
        what, Input, Filter, stride, padding, dilation, channels, layouts, out_dtype, "depthwise_conv2d_NCHWc"
    )


__getattr__ = attributes(__name__)
