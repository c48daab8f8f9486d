"""Three-dimensional convolutions."""

from __future__ import annotations

from typing import Any

from ... import te
from .conv import Layouts, convolve, kernel_layout_for

__all__ = ["conv3d", "conv3d_ncdhw", "conv3d_ndhwc"]


def conv3d(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: Any = 1,
    data_layout: str = "NCDHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """A three-dimensional convolution in the layouts named."""
    layouts = Layouts(data_layout, kernel_layout or kernel_layout_for(data_layout), data_layout)
    tag = f"conv3d_{data_layout.lower()}"
    return convolve("nn.conv3d", data, kernel, strides, padding, dilation, groups, layouts, out_dtype, tag)


def conv3d_ncdhw(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any = 1,
    out_dtype: str | None = None,
) -> te.Tensor:
    """A convolution of NCDHW data with an OIDHW kernel."""
    return conv3d(Input, Filter, stride, padding, dilation, groups, "NCDHW", "OIDHW", out_dtype)


def conv3d_ndhwc(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any = 1,
    out_dtype: str | None = "float32",
) -> te.Tensor:
    """A convolution of NDHWC data with a DHWIO kernel."""
    return conv3d(Input, Filter, stride, padding, dilation, groups, "NDHWC", "DHWIO", out_dtype)
