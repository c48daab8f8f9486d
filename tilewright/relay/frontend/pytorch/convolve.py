"""Convolutions of one to three dimensions, straight and transposed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...expr import Expr
from ...op.arguments import each
from ..common import windows
from ..common.windows import Windows, folded
from .build import NN, R, permute, places, rank, reshape, shape_of, sizes_of
from .table import Site, aten


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
    alone = rank(x) == dims + 1  # one image without a batch
    data = R.expand_dims(x, 0) if alone else x
    around = tuple(each(padding, dims))
    kernel = tuple(int(d) for d in shape_of(weight)[2:])
    w = Windows(kernel, each(stride, dims), each(dilation, dims), around, around)
    if transposed:
        made = windows.transposed(data, weight, w, groups, each(output_padding, dims))
    else:
        made = windows.convolve(data, weight, w, groups)
    made = made if bias is None else NN.bias_add(made, bias, 1)
    return R.squeeze(made, [0]) if alone else made


@aten("im2col")
def im2col(
    n: Site, x: Expr, kernel_size: list[int], dilation: list[int], padding: list[int], stride: list[int]
) -> Expr:
    """im2col: the elements of each window position as a column."""
    if rank(x) == 3:
        return R.squeeze(im2col(n, R.expand_dims(x, 0), kernel_size, dilation, padding, stride), [0])
    if any(padding):
        x = NN.pad(x, [(0, 0), (0, 0), *((p, p) for p in padding)], 0)
    batch, channels, *sizes = sizes_of(x, "im2col")
    rows, columns = (
        _places(s, k, d, by) for s, k, d, by in zip(sizes, kernel_size, dilation, stride, strict=True)
    )
    made = R.take(R.take(x, places(rows), axis=2), places(columns), axis=4)
    # Batch, channel, row and column in the window, row and column of the window.
    made = permute(made, [0, 1, 2, 4, 3, 5])
    count = rows.shape[1] * columns.shape[1]
    return reshape(made, (batch, channels * int(np.prod(kernel_size)), count))


def _places(size: int, kernel: int, dilation: int, stride: int) -> Any:
    """[element of the window, position of the window] -> the source row."""
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
    """col2im: columns summed where their windows overlap."""
    if rank(x) == 2:
        x = R.expand_dims(x, 0)
    around = tuple(padding)
    w = Windows(tuple(kernel_size), tuple(stride), tuple(dilation), around, around)
    return reshape(folded(x, output_size, w), n.shape)
