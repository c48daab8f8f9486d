"""Products with sparse matrices in the CSR form: values, columns, and where each row begins."""

from __future__ import annotations

from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from ...tir import ir_builder
from ..checks import check_run
from ..indexing import index_tensor
from ..math import cast
from ..reduction import accumulator
from ..utils import as_place, clamped, extern, fail, is_empty_shape, same_size, shape_text, tensor_arg


def _checked(name: str, data: Any, indices: Any, indptr: Any) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    values = tensor_arg(name, "data", data)
    columns, begins = index_tensor(name, "indices", indices), index_tensor(name, "indptr", indptr)
    if values.ndim != 1 or columns.ndim != 1 or begins.ndim != 1:
        raise fail(name, "data, indices and indptr of a sparse matrix are lists")
    if not same_size(values.shape[0], columns.shape[0]):
        raise fail(name, f"there are {values.shape[0]} values and {columns.shape[0]} columns")
    return values, columns, begins


def csrmm(
    data: te.Tensor,
    indices: te.Tensor,
    indptr: te.Tensor,
    weight: te.Tensor,
    bias: te.Tensor | None = None,
    *,
    node: str = "",
) -> te.Tensor:
    """A sparse matrix times a dense one, plus a bias for each row; rows run in parallel.

    Out-of-bounds columns are clamped, or are an error of the `node`, if it has a name.
    """
    values, columns, begins = _checked("csrmm", data, indices, indptr)
    dense = tensor_arg("csrmm", "weight", weight)
    if dense.ndim != 2 or dense.dtype is not values.dtype:
        raise fail("csrmm", f"weight of shape {shape_text(dense.shape)} must be a matrix of {values.dtype}")
    rows, width = ops.sub(begins.shape[0], 1), dense.shape[1]
    held = accumulator(values.dtype)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        value, column, begin, matrix = (ib.buffer_ptr(b) for b in ins[:4])
        start = ib.buffer_ptr(ins[4]) if bias is not None else None
        result = ib.buffer_ptr(outs[0])
        with ib.for_range(0, rows, "row", kind="parallel") as row:
            first: PrimExpr = start[row] if start is not None else te.const(0, held)
            with ib.for_range(0, width, "j") as j:
                result[row, j] = ops.cast(held, first)
            # out-of-bounds row pointers are clamped
            count, height = values.shape[0], dense.shape[0]
            low, high = (as_place(ops.max_of(ops.min_of(begin[r], count), 0), count) for r in (row, row + 1))
            if node:
                check_run(ib, column, low, high - low, height, node)
            with ib.for_range(0, high - low, "k") as k:
                at = ib.let("at", low + k)
                place = as_place(column[at], height) if node else clamped(column[at], height)
                with ib.for_range(0, width, "j") as j:
                    factor = matrix[place, j]
                    result[row, j] = result[row, j] + ops.cast(held, value[at]) * ops.cast(held, factor)
        return ib.get()

    inputs = [values, columns, begins, dense] + ([bias] if bias is not None else [])
    return cast(extern("csrmm", [(rows, width)], inputs, build, [held])[0], values.dtype)


def csrmv(
    data: te.Tensor, indices: te.Tensor, indptr: te.Tensor, weight: te.Tensor, bias: te.Tensor | None = None
) -> te.Tensor:
    """A sparse matrix times a column."""
    dense = tensor_arg("csrmv", "weight", weight)
    if dense.ndim != 2 or is_empty_shape(dense.shape):
        raise fail("csrmv", f"weight has shape {shape_text(dense.shape)} and must be a column (n, 1)")
    return csrmm(data, indices, indptr, dense, bias)
