"""Points of sparse tensors: a row of coordinates each."""

from __future__ import annotations

from typing import Any

from .. import te
from ..ir import ops
from ..tir import ir_builder
from .indexing import index_tensor
from .utils import as_place, extern, fail, shape_text, tensor_arg

__all__ = ["sparse_fill_empty_rows", "sparse_reshape"]


def sparse_fill_empty_rows(
    sparse_indices: te.Tensor,
    sparse_values: te.Tensor,
    dense_shape: te.Tensor,
    default_value: te.Tensor,
    new_sparse_indices_shape: Any,
    new_sparse_values_shape: Any,
    empty_row_indicator_shape: Any,
) -> list[te.Tensor]:
    """Points with one more, of the default value in column 0, for each row without any; and which rows these are.

    The points are in order of their rows.
    """
    name = "sparse_fill_empty_rows"
    points, values = (
        index_tensor(name, "sparse_indices", sparse_indices),
        tensor_arg(name, "sparse_values", sparse_values),
    )
    default = tensor_arg(name, "default_value", default_value)
    kind, count, ndim = points.dtype, points.shape[0], points.shape[1]
    rows = empty_row_indicator_shape[0]

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        point, value, _, other = (ib.buffer_ptr(b) for b in ins)
        new, filled, empty = (ib.buffer_ptr(b) for b in outs)
        taken = ib.allocate(
            "int32", (2,), "taken", scope="local"
        )  # points that were read, points that were written
        taken[0] = te.const(0)
        taken[1] = te.const(0)

        def write(first: Any, rest: Any, number: Any) -> None:
            at = ib.let("at", taken[1])
            new[at, 0] = first
            with ib.for_range(1, ndim, "k") as k:
                new[at, k] = rest(k)
            filled[at] = number
            taken[1] = taken[1] + 1

        with ib.for_range(0, rows, "row") as row:
            here = ops.cast(kind, row)
            empty[row] = te.const(True, "bool")
            with ib.for_range(0, count, "i") as i, ib.if_scope(ops.equal(point[i, 0], here)):
                empty[row] = te.const(False, "bool")
                write(here, lambda k, i=i: point[i, k], value[i])
            with ib.if_scope(empty[row]):
                write(here, lambda k: te.const(0, kind), other[0] if default.ndim else other[()])
        return ib.get()

    shapes = [
        tuple(new_sparse_indices_shape),
        tuple(new_sparse_values_shape),
        tuple(empty_row_indicator_shape),
    ]
    inputs = [points, values, tensor_arg(name, "dense_shape", dense_shape), default]
    return extern(name, shapes, inputs, build, [kind, values.dtype, "bool"])


def sparse_reshape(
    sparse_indices: te.Tensor,
    prev_shape: te.Tensor,
    new_shape: te.Tensor,
    new_sparse_indices_shape: Any,
    new_shape_shape: Any,
) -> list[te.Tensor]:
    """The points of a sparse tensor in another shape, and that shape, of which one size may be -1."""
    name = "sparse_reshape"
    points = index_tensor(name, "sparse_indices", sparse_indices)
    old, wanted = index_tensor(name, "prev_shape", prev_shape), index_tensor(name, "new_shape", new_shape)
    if points.ndim != 2 or old.ndim != 1 or wanted.ndim != 1:
        raise fail(
            name, f"sparse_indices {shape_text(points.shape)} must be rows of coordinates, and shapes lists"
        )
    kind, size = points.dtype, wanted.dtype

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        point, before, asked = (ib.buffer_ptr(b) for b in ins)
        new, shape = (ib.buffer_ptr(b) for b in outs)
        held = ib.allocate(
            size, (2,), "held", scope="local"
        )  # all elements, and those of the sizes that are known
        held[0] = te.const(1, size)
        held[1] = te.const(1, size)
        with ib.for_range(0, old.shape[0], "d") as d:
            held[0] = held[0] * ops.cast(size, before[d])
        with ib.for_range(0, wanted.shape[0], "d") as d, ib.if_scope(asked[d] > te.const(0, size)):
            held[1] = held[1] * asked[d]
        with ib.for_range(0, wanted.shape[0], "d") as d:
            shape[d] = ops.select(
                asked[d] < te.const(0, size), ops.floordiv(held[0], ops.max_of(held[1], 1)), asked[d]
            )
        same = ib.allocate(
            "int32", (1,), "same", scope="local"
        )  # points stay as they are, even those outside
        same[0] = ops.cast("int32", ops.equal(old.shape[0], wanted.shape[0]))
        shared = ops.min_of(old.shape[0], wanted.shape[0])
        with (
            ib.for_range(0, shared, "d") as d,
            ib.if_scope(ops.not_equal(ops.cast(size, before[d]), shape[d])),
        ):
            same[0] = te.const(0)
        with ib.for_range(0, points.shape[0], "i") as i:
            held[0] = te.const(0, size)
            with ib.for_range(0, old.shape[0], "d") as d:
                held[0] = held[0] * ops.cast(size, before[d]) + ops.cast(size, point[i, d])
            with ib.for_range(0, wanted.shape[0], "d") as d:
                at = wanted.shape[0] - 1 - d
                by = ib.let("by", ops.max_of(shape[as_place(at, wanted.shape[0])], te.const(1, size)))
                # the first coordinate is all that is left
                digit = ops.select(ops.equal(at, 0), held[0], ops.floormod(held[0], by))
                new[i, at] = ops.cast(kind, digit)
                with ib.if_scope(ops.equal(same[0], 1)):
                    new[i, at] = point[i, at]
                held[0] = ops.floordiv(held[0], by)
        return ib.get()

    shapes = [tuple(new_sparse_indices_shape), tuple(new_shape_shape)]
    return extern(name, shapes, [points, old, wanted], build, [kind, size])
