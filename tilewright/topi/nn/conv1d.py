"""One-dimensional convolutions."""

from __future__ import annotations

from typing import Any

from ... import te
from ..utils import variant
from .conv import Layouts, convolve, kernel_layout_for

__all__ = ["conv1d", "conv1d_ncw", "conv1d_nwc", "group_conv1d_ncw", "group_conv1d_nwc"]


def conv1d(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: Any = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """A one-dimensional convolution in the layouts named."""
    layouts = Layouts(data_layout, kernel_layout or kernel_layout_for(data_layout), data_layout)
    tag = f"conv1d_{data_layout.lower()}"
    return convolve("nn.conv1d", data, kernel, strides, padding, dilation, groups, layouts, out_dtype, tag)


def _plain(
    layouts: tuple[str, str],
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    out_dtype: str | None = None,
) -> te.Tensor:
    return conv1d(data, kernel, strides, padding, dilation, 1, *layouts, out_dtype)


def _grouped(
    layouts: tuple[str, str],
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: Any = 1,
    out_dtype: str | None = None,
) -> te.Tensor:
    return conv1d(data, kernel, strides, padding, dilation, groups, *layouts, out_dtype)


_NCW, _NWC = ("NCW", "OIW"), ("NWC", "WIO")
conv1d_ncw = variant("conv1d_ncw", _plain, _NCW, "A convolution of NCW data with an OIW kernel.")
conv1d_nwc = variant("conv1d_nwc", _plain, _NWC, "A convolution of NWC data with a WIO kernel.")
group_conv1d_ncw = variant(
    "group_conv1d_ncw", _grouped, _NCW, "A grouped convolution of NCW data with an OIW kernel."
)
group_conv1d_nwc = variant(
    "group_conv1d_nwc", _grouped, _NWC, "A grouped convolution of NWC data with a WIO kernel."
)
