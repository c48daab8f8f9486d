"""Products with sparse matrices in the CSR form: values, columns, and where each row begins."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from ...tir import ir_builder
from ..broadcast import add
from ..checks import check_run
from ..indexing import index_tensor
from ..math import cast
from ..reduction import accumulator
from ..transform import transpose
from ..utils import (
    as_place,
    clamped,
    extern,
    fail,
    get_const_tuple,
    is_empty_shape,
    same_size,
    shape_text,
    tensor_arg,
)


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse matrix: an object with `data`, `indices` and `indptr`."""
    return not isinstance(value, te.Tensor) and hasattr(value, "indptr")


def checked(name: str, data: Any, indices: Any, indptr: Any) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """The parts of a sparse matrix: values, alone (CSR) or in blocks (BSR), their columns, where each row begins."""
    values = tensor_arg(name, "data", data)
    columns, begins = index_tensor(name, "indices", indices), index_tensor(name, "indptr", indptr)
    if values.ndim not in (1, 3) or columns.ndim != 1 or begins.ndim != 1:
        raise fail(
            name,
            "data of a sparse matrix is a list of numbers, or of blocks (many, rows, columns); indices and indptr are "
            "lists",
        )
    if not same_size(values.shape[0], columns.shape[0]):
        raise fail(name, f"there are {values.shape[0]} values and {columns.shape[0]} columns")
    return values, columns, begins


def row_range(begins: Any, row: Any, count: Any) -> tuple[PrimExpr, PrimExpr]:
    """Where a row begins and ends among `count` values; out-of-bounds pointers are clamped."""
    low, high = (as_place(ops.max_of(ops.min_of(begins[r], count), 0), count) for r in (row, row + 1))
    return low, high


def csrmm(
    data: Any,
    indices: te.Tensor,
    indptr: te.Tensor | None = None,
    weight: te.Tensor | None = None,
    bias: te.Tensor | None = None,
    *,
    node: str = "",
) -> te.Tensor:
    """A sparse matrix times a dense one, plus a bias for each row; rows run in parallel.

        csrmm(data, indices, indptr, weight, bias)      csrmm(contrib.sparse.placeholder(…), weight, bias)

    The values may be blocks (many, rows, columns). Out-of-bounds columns are clamped, or are an error of the `node`, if
    it has a name.
    """
    if is_sparse(data):
        data, indices, indptr, weight, bias = data.data, data.indices, data.indptr, indices, indptr
    values, columns, begins = checked("csrmm", data, indices, indptr)
    dense = tensor_arg("csrmm", "weight", weight)
    if dense.ndim != 2 or dense.dtype is not values.dtype:
        raise fail("csrmm", f"weight of shape {shape_text(dense.shape)} must be a matrix of {values.dtype}")
    tall, wide = get_const_tuple(values.shape[1:]) if values.ndim == 3 else (1, 1)
    rows, width = ops.sub(begins.shape[0], 1), dense.shape[1]
    held = accumulator(values.dtype)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        value, column, begin, matrix = (ib.buffer_ptr(b) for b in ins[:4])
        start = ib.buffer_ptr(ins[4]) if bias is not None else None
        result = ib.buffer_ptr(outs[0])
        with ib.for_range(0, rows, "row", kind="parallel") as row:
            with ib.for_range(0, tall, "r") as r:
                first: PrimExpr = start[row * tall + r] if start is not None else te.const(0, held)
                with ib.for_range(0, width, "j") as j:
                    result[row * tall + r, j] = ops.cast(held, first)
            count, height = values.shape[0], ops.floordiv(dense.shape[0], wide)
            low, high = row_range(begin, row, count)
            if node:
                check_run(ib, column, low, high - low, height, node)
            with ib.for_range(0, high - low, "k") as k:
                at = ib.let("at", low + k)
                place = as_place(column[at], height) if node else clamped(column[at], height)
                with ib.for_range(0, tall, "r") as r, ib.for_range(0, wide, "c") as c:
                    one = value[at, r, c] if values.ndim == 3 else value[at]
                    with ib.for_range(0, width, "j") as j:
                        factor = ops.cast(held, one) * ops.cast(held, matrix[place * wide + c, j])
                        result[row * tall + r, j] = result[row * tall + r, j] + factor
        return ib.get()

    inputs = [values, columns, begins, dense] + ([bias] if bias is not None else [])
    return cast(extern("csrmm", [(rows * tall, width)], inputs, build, [held])[0], values.dtype)


def csrmv(
    data: Any,
    indices: te.Tensor,
    indptr: te.Tensor | None = None,
    weight: te.Tensor | None = None,
    bias: te.Tensor | None = None,
) -> te.Tensor:
    """A sparse matrix times a column: csrmv(data, indices, indptr, weight, bias), or csrmv(sparse, weight, bias)."""
    dense = tensor_arg("csrmv", "weight", indices if is_sparse(data) else weight)
    if dense.ndim != 2 or is_empty_shape(dense.shape):
        raise fail("csrmv", f"weight has shape {shape_text(dense.shape)} and must be a column (n, 1)")
    return csrmm(data, indices, indptr, weight, bias)


def dense(data: Any, weight: Any, bias: te.Tensor | None = None) -> te.Tensor:
    """`data @ weight.T + bias`, where one of the two is a sparse matrix."""
    if is_sparse(data) == is_sparse(weight):
        raise fail(
            "sparse.dense", "one of data and weight must be sparse, as contrib.sparse.placeholder makes it"
        )
    made = csrmm(data, transpose(weight)) if is_sparse(data) else transpose(csrmm(weight, transpose(data)))
    return made if bias is None else add(made, bias)
