"""Scatter operators: scatter_elements, scatter_nd, sparse_to_dense, invert_permutation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir import ops
from ..ir.dtype import INT32
from ..ir.expr import ExprOp, PrimExpr, convert
from ..te.tensor import checked_shape
from ..tir import ir_builder
from . import math as _math
from .checks import checked_index
from .indexing import from_front, index_tensor
from .utils import (
    as_place,
    beside,
    extern,
    fail,
    injective,
    is_empty_shape,
    normalize_axis,
    prod,
    same_size,
    shape_text,
    shown,
    static_int,
    tensor_arg,
)
from .utils import unravel_index as _unravel

__all__ = ["invert_permutation", "scatter_elements", "scatter_nd", "sparse_to_dense"]

_COMBINE: dict[str, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    "update": lambda old, new: new,
    "add": ops.add,
    "mul": ops.mul,
    "min": ops.min_of,
    "max": ops.max_of,
    "mean": ops.add,
}


def _combination(name: str, argument: str, mode: str) -> Callable[[PrimExpr, PrimExpr], PrimExpr]:
    if mode not in _COMBINE:
        raise fail(name, f"{argument} is {shown(mode)} and may be {', '.join(_COMBINE)}")
    return _COMBINE[mode]


def _inside(places: Sequence[PrimExpr], sizes: Sequence[Any]) -> PrimExpr:
    """Whether a point is in bounds; out-of-bounds writes are dropped."""
    return ops.all(
        *(c for p, n in zip(places, sizes) for c in (ops.greater_equal(p, 0), ops.less(p, beside(p, n))))
    )


def _copied(ib: Any, source: Any, target: Any, count: Any) -> None:
    with ib.for_range(0, count, "i", kind="parallel") as i:
        target[i] = source[i]


def _scattered(
    name: str,
    x: te.Tensor,
    inputs: Sequence[te.Tensor],
    mean: bool,
    write: Callable[[Any, list[Any], Callable[[list[Any], PrimExpr], None]], None],
    combine: Callable[[PrimExpr, PrimExpr], PrimExpr],
) -> te.Tensor:
    """A copy of `x` into which `write` puts values through the function that it is given.

    For means a second tensor counts how many values an element is the sum of.
    """
    total = prod(x.shape)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        _copied(ib, ib.buffer_ptr(ins[0], (total,)), ib.buffer_ptr(outs[0], (total,)), total)
        result = ib.buffer_ptr(outs[0])
        counts = ib.buffer_ptr(outs[1]) if mean else None
        if mean:
            flat = ib.buffer_ptr(outs[1], (total,))
            with ib.for_range(0, total, "i") as i:
                flat[i] = 1

        def put(at: list[Any], value: PrimExpr) -> None:
            point = tuple(as_place(p, n) for p, n in zip(at, x.shape, strict=True))
            with ib.if_scope(_inside(at, x.shape)):
                result[point] = ops.cast(x.dtype, combine(result[point], value))
                if counts is not None:
                    counts[point] = counts[point] + 1

        write(ib, [ib.buffer_ptr(b) for b in ins[1:]], put)
        return ib.get()

    outputs = [x.shape, x.shape] if mean else [x.shape]
    made = extern(name, outputs, [x, *inputs], build, [x.dtype, INT32] if mean else [x.dtype])
    if not mean:
        return made[0]
    sums, counted = made
    divide = ops.div if x.dtype.is_float else ops.floordiv
    return injective(name, x.shape, lambda *i: divide(sums(*i), ops.cast(x.dtype, counted(*i))), "broadcast")


def _same_types(name: str, x: te.Tensor, updates: te.Tensor) -> None:
    if x.dtype is not updates.dtype:
        raise fail(name, f"updates is {updates.dtype} and data is {x.dtype}", "cast one of them")


def scatter_elements(
    data: te.Tensor,
    indices: te.Tensor,
    updates: te.Tensor,
    axis: int = 0,
    reduction: str = "update",
    *,
    node: str = "",
    negative: bool = True,
) -> te.Tensor:
    """out[indices[i, j], j] = updates[i, j] for axis 0, from a copy of the data.

    `reduction` combines instead: add, mul, min, max, or the mean of the old value and all new ones. A negative
    index counts from the end. Lines along the axis run in parallel. Out-of-bounds indices are dropped, or are an
    error of the `node`, if it has a name; so are negative indices then, unless `negative`.
    """
    name = "scatter_elements"
    x, places = tensor_arg(name, "data", data), index_tensor(name, "indices", indices)
    new = tensor_arg(name, "updates", updates)
    _same_types(name, x, new)
    d = normalize_axis(name, axis, x.ndim)
    if places.ndim != x.ndim or new.ndim != x.ndim or not all(map(same_size, places.shape, new.shape)):
        raise fail(
            name,
            f"indices {shape_text(places.shape)} and updates {shape_text(new.shape)} must have one shape, with "
            f"the {x.ndim} dimensions of data",
        )
    combine = _combination(name, "reduction", reduction)
    if is_empty_shape(x.shape) or is_empty_shape(new.shape):
        return _math.identity(x)
    others = [dim for j, dim in enumerate(places.shape) if j != d]

    def write(ib: Any, ins: list[Any], put: Callable[[list[Any], PrimExpr], None]) -> None:
        with (
            ib.for_range(0, prod(others), "line", kind="parallel") as line,
            ib.for_range(0, places.shape[d], "k") as k,
        ):
            at = _unravel(line, others) if others else []
            at.insert(d, k)
            place = ib.let("place", _place(ins[0][tuple(at)], x.shape[d], node, at, negative))
            put([*at[:d], place, *at[d + 1 :]], ins[1][tuple(at)])

    return _scattered(name, x, [places, new], reduction == "mean", write, combine)


def _place(index: PrimExpr, size: Any, node: str, at: Sequence[Any], negative: bool) -> PrimExpr:
    """The non-negative form of an index; with the name of a node it is checked."""
    if not node:
        return from_front(index, size)
    return checked_index(index, size, node, at, "index" if negative else "position")


def scatter_nd(
    data: te.Tensor,
    indices: te.Tensor,
    updates: te.Tensor,
    mode: str = "update",
    *,
    node: str = "",
    negative: bool = True,
) -> te.Tensor:
    """Slices of a copy of the data, at the points indices[0], indices[1], …, replaced by those of `updates`.

    `mode` combines instead: add, mul, min, max or mean. The inverse of `gather_nd`. Out-of-bounds indices are
    dropped, or are an error of the `node`, if it has a name; so are negative indices then, unless `negative`.
    """
    name = "scatter_nd"
    x, points = tensor_arg(name, "data", data), index_tensor(name, "indices", indices)
    new = tensor_arg(name, "updates", updates)
    _same_types(name, x, new)
    combine = _combination(name, "mode", mode)
    if points.ndim < 1:
        raise fail(name, "indices has no dimensions; its first one counts the coordinates")
    count = static_int(name, "the first dimension of indices", points.shape[0])
    wanted = [*points.shape[1:], *x.shape[count:]]
    if count > x.ndim or len(wanted) != new.ndim or not all(map(same_size, wanted, new.shape)):
        raise fail(
            name,
            f"updates has shape {shape_text(new.shape)}; for indices {shape_text(points.shape)} into data "
            f"{shape_text(x.shape)} it is {shape_text(wanted)}",
        )
    if is_empty_shape(x.shape) or is_empty_shape(new.shape):
        return _math.identity(x)
    lead, inner = list(points.shape[1:]), list(x.shape[count:])

    def write(ib: Any, ins: list[Any], put: Callable[[list[Any], PrimExpr], None]) -> None:
        with ib.for_range(0, prod(lead), "point") as point:
            at = _unravel(point, lead) if lead else []
            coordinates = [
                (_place(ins[0][(c, *at)], x.shape[c], node, (c, *at), negative)) for c in range(count)
            ]
            place = [ib.let(f"p{c}", p) for c, p in enumerate(coordinates)]
            with ib.for_range(0, prod(inner), "j") as j:
                rest = _unravel(j, inner) if inner else []
                put([*place, *rest], ins[1][(*at, *rest)])

    return _scattered(name, x, [points, new], mode == "mean", write, combine)


def sparse_to_dense(
    sparse_indices: te.Tensor,
    output_shape: Any,
    sparse_values: te.Tensor,
    default_value: Any = 0,
    *,
    node: str = "",
) -> te.Tensor:
    """A tensor with `sparse_values` at the points `sparse_indices` (a row each) and the default elsewhere.

    For an output of one dimension the points may be a list; a single point may be a number. Out-of-bounds points
    are dropped, or are an error of the `node`, if it has a name.
    """
    name = "sparse_to_dense"
    points, values = (
        index_tensor(name, "sparse_indices", sparse_indices),
        tensor_arg(name, "sparse_values", sparse_values),
    )
    shape = checked_shape(output_shape)
    fits = points.ndim == 2 and same_size(points.shape[1], convert(len(shape)))
    if not (fits or (points.ndim < 2 and len(shape) == 1)) or values.ndim > 1:
        raise fail(
            name,
            f"sparse_indices {shape_text(points.shape)} and sparse_values {shape_text(values.shape)} do not "
            f"name points of {shape_text(shape)}",
        )
    if isinstance(default_value, te.Tensor):
        given = default_value
        base = injective(name, shape, lambda *i: ops.cast(values.dtype, given(*[0] * given.ndim)))
    else:
        number = default_value
        kind = values.dtype
        base = injective(
            name,
            shape,
            lambda *i: ops.cast(kind, number) if isinstance(number, ExprOp) else te.const(number, kind),
        )
    rows, ndim = points.shape[0] if points.ndim else 1, points.ndim
    if is_empty_shape(shape) or is_empty_shape([rows]):
        return base

    def write(ib: Any, ins: list[Any], put: Callable[[list[Any], PrimExpr], None]) -> None:
        with ib.for_range(0, rows, "row") as row:
            at = [ins[0][(row, c)] if points.ndim == 2 else ins[0][row] for c in range(len(shape))]
            if node:
                told = [((row, c) if points.ndim == 2 else (row,))[:ndim] for c in range(len(shape))]
                at = [
                    ib.let("place", checked_index(i, n, node, where, "position"))
                    for i, n, where in zip(at, shape, told, strict=True)
                ]
            put(at, ins[1][row if values.ndim else 0])

    if points.ndim == 0:
        one = points
        points = injective(name, (1,), lambda i: one())
    if values.ndim == 0:
        held = values
        values = injective(name, (rows,), lambda i: held())
    return _scattered(name, base, [points, values], False, write, _COMBINE["update"])


def invert_permutation(data: te.Tensor, *, node: str = "") -> te.Tensor:
    """The inverse of a permutation: out[data[i]] = i.

    Out-of-bounds indices are dropped, or are an error of the `node`, if it has a name.
    """
    x = index_tensor("invert_permutation", "data", data)
    if x.ndim != 1:
        raise fail("invert_permutation", f"data has shape {shape_text(x.shape)} and must be a list")
    if is_empty_shape(x.shape):
        return _math.identity(x)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source, target = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, x.shape[0], "i") as i:
            target[i] = te.const(0, x.dtype)
        with ib.for_range(0, x.shape[0], "i") as i:
            index = checked_index(source[i], x.shape[0], node, (i,), "position") if node else source[i]
            place = ib.let("place", index)
            with ib.if_scope(_inside([place], x.shape)):
                target[as_place(place, x.shape[0])] = ops.cast(x.dtype, i)
        return ib.get()

    return extern("invert_permutation", [x.shape], [x], build, [x.dtype])[0]
