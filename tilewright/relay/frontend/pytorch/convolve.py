"""Convolutions of one to three dimensions, straight and transposed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...expr import Expr
from .build import NN, R, permute, places, rank, reshape, shape_of, sizes_of
from .table import Site, aten

__all__: list[str] = []

_DATA = {1: "NCW", 2: "NCHW", 3: "NCDHW"}
_KERNEL = {1: "OIW", 2: "OIHW", 3: "OIDHW"}
_TRANSPOSED = {1: "IOW", 2: "IOHW", 3: "IODHW"}


def _each(value: Any, count: int) -> list[int]:
    """One number for every spatial dimension, or one for each."""
    listed = list(value) if isinstance(value, (list, tuple)) else [value]
    return listed * count if len(listed) == 1 else listed


@aten("convolution", "_convolution")
def convolution(
    n: Site,
    x: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Expr:
    dims = rank(weight) - 2
    if rank(x) == dims + 1:  # one image without a batch
        made = _convolve(
            R.expand_dims(x, 0), weight, stride, padding, dilation, transposed, output_padding, groups
        )
        made = _with_bias(made, bias)
        return R.squeeze(made, [0])  # type: ignore[no-any-return]
    return _with_bias(
        _convolve(x, weight, stride, padding, dilation, transposed, output_padding, groups), bias
    )


def _convolve(
    x: Expr,
    weight: Expr,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Expr:
    dims = rank(weight) - 2
    kernel = [int(d) for d in shape_of(weight)[2:]]
    around = _each(padding, dims)
    common: dict[str, Any] = {
        "strides": tuple(_each(stride, dims)),
        "padding": tuple(around + around),
        "dilation": tuple(_each(dilation, dims)),
        "groups": groups,
        "kernel_size": tuple(kernel),
        "data_layout": _DATA[dims],
    }
    if transposed:
        work = (NN.conv1d_transpose, NN.conv2d_transpose, NN.conv3d_transpose)[dims - 1]
        return work(  # type: ignore[no-any-return]
            x,
            weight,
            channels=shape_of(weight)[1] * groups,
            kernel_layout=_TRANSPOSED[dims],
            output_padding=tuple(_each(output_padding, dims)),
            **common,
        )
    work = (NN.conv1d, NN.conv2d, NN.conv3d)[dims - 1]
    return work(x, weight, channels=shape_of(weight)[0], kernel_layout=_KERNEL[dims], **common)  # type: ignore[no-any-return]


def _with_bias(made: Expr, bias: Expr | None) -> Expr:
    return made if bias is None else NN.bias_add(made, bias, 1)


@aten("im2col")
def im2col(
    n: Site, x: Expr, kernel_size: list[int], dilation: list[int], padding: list[int], stride: list[int]
) -> Expr:
    """The elements under a window, for each of its places: a column each."""
    if rank(x) == 3:
        return R.squeeze(  # type: ignore[no-any-return]
            im2col(n, R.expand_dims(x, 0), kernel_size, dilation, padding, stride), [0]
        )
    if any(padding):
        x = NN.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)], 0)
    batch, channels, *sizes = sizes_of(x, "im2col")
    rows, columns = (
        _places(s, k, d, by) for s, k, d, by in zip(sizes, kernel_size, dilation, stride, strict=True)
    )
    made = R.take(R.take(x, places(rows), axis=2), places(columns), axis=4)
    made = permute(
        made, [0, 1, 2, 4, 3, 5]
    )  # batch, channel, window's row and column, place's row and column
    count = rows.shape[1] * columns.shape[1]
    return reshape(made, (batch, channels * int(np.prod(kernel_size)), count))


def _places(size: int, kernel: int, dilation: int, stride: int) -> Any:
    """[element of the window, place of the window] -> the row it lies on."""
    count = (size - dilation * (kernel - 1) - 1) // stride + 1
    return np.arange(kernel)[:, None] * dilation + np.arange(count)[None, :] * stride


@aten("col2im")
def col2im(
    n: Site,
    x: Expr,
    output_size: Sequence[int],
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Expr:
    """Columns added up where the windows that they come from overlap."""
    if rank(x) == 2:
        x = R.expand_dims(x, 0)
    batch, rows, _ = sizes_of(x, "col2im")
    channels = rows // int(np.prod(kernel_size))
    sizes = [s + 2 * p for s, p in zip(output_size, padding, strict=True)]
    at = [_places(s, k, d, by) for s, k, d, by in zip(sizes, kernel_size, dilation, stride, strict=True)]
    # Where each element of a column goes, the image laid out flat.
    flat = at[0][:, None, :, None] * sizes[1] + at[1][None, :, None, :]
    source = reshape(
        permute(reshape(x, (batch * channels, flat.size)), [1, 0]), (flat.size, batch * channels)
    )
    empty = R.zeros((sizes[0] * sizes[1], batch * channels), n.dtype)
    summed = R.scatter_nd(empty, places(flat.reshape(1, -1)), source, "add")
    image = reshape(permute(summed, [1, 0]), (batch, channels, *sizes))
    ends = [p + s for p, s in zip(padding, output_size, strict=True)]
    image = R.strided_slice(image, list(padding), ends, [1, 1], axes=[2, 3]) if any(padding) else image
    return reshape(image, n.shape)
