"""Layers whose weights are sparse matrices, in the CSR form or in blocks (BSR).

[[1, 0, 2],        data    1 2 3
 [0, 0, 0],   ->   indices 0 2 1      the column of each value
 [0, 3, 0]]        indptr  0 2 2 3    where each row begins, and the end
"""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import ops
from ...tir import ir_builder
from ..checks import check_run
from ..sparse.csr import checked, csrmm, row_range
from ..transform import expand_dims, reshape, transpose
from ..utils import (
    as_place,
    clamped,
    extern,
    fail,
    get_const_tuple,
    injective,
    prod,
    shape_text,
    tensor_arg,
)

__all__ = [
    "sparse_add",
    "sparse_conv2d",
    "sparse_dense",
    "sparse_dense_sp_lhs",
    "sparse_dense_sp_rhs",
    "sparse_transpose",
]


def sparse_dense_sp_rhs(
    data: te.Tensor,
    weight_data: te.Tensor,
    weight_indices: te.Tensor,
    weight_indptr: te.Tensor,
    *,
    node: str = "",
) -> te.Tensor:
    """`data @ weight.T`, the weight sparse."""
    return transpose(csrmm(weight_data, weight_indices, weight_indptr, transpose(data), node=node))


def sparse_dense_sp_lhs(
    data_data: te.Tensor,
    data_indices: te.Tensor,
    data_indptr: te.Tensor,
    weight: te.Tensor,
    *,
    node: str = "",
) -> te.Tensor:
    """`data @ weight.T`, the data sparse."""
    return csrmm(data_data, data_indices, data_indptr, transpose(weight), node=node)


def sparse_dense(
    dense_data: te.Tensor,
    sparse_data: te.Tensor,
    sparse_indices: te.Tensor,
    sparse_indptr: te.Tensor,
    sparse_lhs: bool = False,
    *,
    node: str = "",
) -> te.Tensor:
    """`dense @ sparse.T`, or `sparse @ dense.T`. Bad columns are clamped, or are an error of the `node`."""
    if sparse_lhs:
        return sparse_dense_sp_lhs(sparse_data, sparse_indices, sparse_indptr, dense_data, node=node)
    return sparse_dense_sp_rhs(dense_data, sparse_data, sparse_indices, sparse_indptr, node=node)


def _patches(data: te.Tensor, layout: str) -> te.Tensor:
    """The 3 by 3 windows of a padded image as columns: (kernel row, kernel column, channel) of NHWC, channel first of
    NCHW; a column for each pixel."""
    last = layout == "NHWC"
    n, *sizes = get_const_tuple(data.shape)
    h, w, c = sizes if last else (*sizes[1:], sizes[0])

    def element(k: Any, pixel: Any) -> Any:
        channel, tap = (k % c, k // c) if last else (k // 9, k % 9)
        row, column = pixel // w % h + tap // 3 - 1, pixel % w + tap % 3 - 1
        image = pixel // (h * w)
        value = data(image, row, column, channel) if last else data(image, channel, row, column)
        inside = ops.all(row >= 0, row < h, column >= 0, column < w)
        return ops.if_then_else(inside, value, te.const(0, data.dtype))

    return injective("nn.sparse_conv2d", (9 * c, n * h * w), element, name="im2col")


def sparse_conv2d(
    dense_data: te.Tensor,
    sparse_data: te.Tensor,
    sparse_indices: te.Tensor,
    sparse_indptr: te.Tensor,
    layout: str = "NHWC",
    kernel_size: int = 1,
    *,
    node: str = "",
) -> te.Tensor:
    """Convolution with a sparse weight of 1 by 1, or of 3 by 3 with a padding of 1; a row for each output channel."""
    what = "nn.sparse_conv2d"
    data = tensor_arg(what, "dense_data", dense_data)
    if data.ndim != 4 or layout not in ("NHWC", "NCHW") or kernel_size not in (1, 3):
        raise fail(
            what,
            f"data has shape {shape_text(data.shape)}, layout is {layout!r} and kernel_size {kernel_size}",
            "give NHWC or NCHW data and a kernel of 1 or 3",
        )
    values = tensor_arg(what, "sparse_data", sparse_data)
    values = expand_dims(values, -1) if values.ndim == 2 else values
    last = layout == "NHWC"
    order = (3, 0, 1, 2) if last else (1, 0, 2, 3)
    n, h, w = [data.shape[d] for d in order[1:]]
    columns = _patches(data, layout)
    if kernel_size == 1:
        columns = reshape(transpose(data, order), (data.shape[order[0]], prod((n, h, w))))
    made = csrmm(values, sparse_indices, sparse_indptr, columns, node=node)
    made = reshape(made, (made.shape[0], n, h, w))
    return transpose(made, (1, 2, 3, 0) if last else (1, 0, 2, 3))


def sparse_transpose(
    sparse_data: te.Tensor, sparse_indices: te.Tensor, sparse_indptr: te.Tensor, *, node: str = ""
) -> list[te.Tensor]:
    """The transpose of a square matrix in the CSR form, in that form."""
    what = "nn.sparse_transpose"
    values, columns, begins = checked(what, sparse_data, sparse_indices, sparse_indptr)
    if values.ndim != 1:
        raise fail(what, f"data has shape {shape_text(values.shape)} and must be a list: there are no blocks")
    count, n = values.shape[0], ops.sub(begins.shape[0], 1)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        value, column, begin = (ib.buffer_ptr(b) for b in ins)
        out, rows, starts = (ib.buffer_ptr(b) for b in outs)

        def place(at: Any) -> Any:
            return as_place(column[at], n) if node else clamped(column[at], n)

        if node:
            check_run(ib, column, as_place(te.const(0), count), count, n, node)
        with ib.for_range(0, n + 1, "i") as i:
            starts[i] = te.const(0, "int32")
        with ib.for_range(0, count, "i") as i:  # how many are in each column, one place later
            starts[place(i) + 1] = starts[place(i) + 1] + 1
        with ib.for_range(0, n, "i") as i:
            starts[i + 1] = starts[i + 1] + starts[i]
        with ib.for_range(0, n, "row") as row:
            low, high = row_range(begin, row, count)
            with ib.for_range(0, high - low, "k") as k:
                to = ib.let("to", as_place(starts[place(low + k)], count))
                out[to] = value[low + k]
                rows[to] = ops.cast("int32", row)
                starts[place(low + k)] = ops.cast("int32", to + 1)
        with ib.for_range(0, n, "i") as i:  # each start has moved to the next one
            starts[n - i] = starts[n - i - 1]
        starts[0] = te.const(0, "int32")
        return ib.get()

    shapes = [(count,), (count,), (n + 1,)]
    return extern(
        "sparse_transpose", shapes, [values, columns, begins], build, [values.dtype, "int32", "int32"]
    )


def sparse_add(
    dense_data: te.Tensor,
    sparse_data: te.Tensor,
    sparse_indices: te.Tensor,
    sparse_indptr: te.Tensor,
    *,
    node: str = "",
) -> te.Tensor:
    """A matrix plus a sparse one in the CSR form."""
    what = "nn.sparse_add"
    matrix = tensor_arg(what, "dense_data", dense_data)
    values, columns, begins = checked(what, sparse_data, sparse_indices, sparse_indptr)
    if matrix.ndim != 2 or values.ndim != 1 or values.dtype is not matrix.dtype:
        raise fail(
            what,
            f"dense_data {shape_text(matrix.shape)} of {matrix.dtype} and sparse_data {shape_text(values.shape)} "
            f"of {values.dtype} must be a matrix and a list of one type",
        )
    height, width = matrix.shape

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source, value, column, begin = (ib.buffer_ptr(b) for b in ins)
        result = ib.buffer_ptr(outs[0])
        with ib.for_range(0, height, "row", kind="parallel") as row:
            with ib.for_range(0, width, "j") as j:
                result[row, j] = source[row, j]
            low, high = row_range(begin, row, values.shape[0])
            if node:
                check_run(ib, column, low, high - low, width, node)
            with ib.for_range(0, high - low, "k") as k:
                at = as_place(column[low + k], width) if node else clamped(column[low + k], width)
                to = ib.let("to", at)
                result[row, to] = result[row, to] + value[low + k]
        return ib.get()

    return extern("sparse_add", [matrix.shape], [matrix, values, columns, begins], build, [matrix.dtype])[0]
