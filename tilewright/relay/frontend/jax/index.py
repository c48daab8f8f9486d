"""Indexing: gather, scatter, and slices at positions that are computed.

A gather or scatter reads or writes a window for each index. Windows that are whole dimensions stay whole; each other
element has an index of its own, start + offset in the window, so that `take`, `gather_nd` and `scatter_nd` do it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...expr import Expr
from ..common.build import (
    R,
    cast,
    constant,
    dtype_of,
    is_float,
    literal,
    permute,
    rank,
    reshape,
    scalar,
    shape_of,
)
from ..common.pads import padded
from .reduction import greatest, lowest
from .table import Refusal, Site, primitive
from .values import Value

Index = Any  # an array that is known at import, or an expression


class _Grid:
    """Positions of elements: dimensions of indices (`batch`), then those of windows (`widths`, by dimension)."""

    def __init__(self, x: Expr, batch: Sequence[Any], widths: Mapping[int, int]) -> None:
        self.x, self.batch, self.widths = x, list(batch), dict(widths)
        self.shape = [*batch, *widths.values()]

    def positions(self, d: int, start: Index) -> Index:
        """start + offset along a dimension; the shape broadcasts to that of the grid."""
        known = isinstance(start, np.ndarray)
        shape = [*(start.shape if known else shape_of(start)), *[1] * len(self.widths)]
        laid = start.reshape(shape) if known else reshape(start, shape)
        if d not in self.widths:
            return laid
        view = [1] * len(shape)
        view[len(self.batch) + list(self.widths).index(d)] = self.widths[d]
        steps = np.arange(self.widths[d], dtype=np.int32).reshape(view)
        return laid + steps if known else R.add(laid, constant(steps.astype(dtype_of(laid))))

    def stacked(self, starts: Mapping[int, Index]) -> Expr:
        """The coordinates of all elements, (dimensions, …)."""
        found = [self.positions(d, s) for d, s in starts.items()]
        if all(isinstance(p, np.ndarray) for p in found):
            return constant(np.stack([np.broadcast_to(p, self.shape) for p in found]).astype(np.int32))
        exprs = [constant(p.astype(np.int32)) if isinstance(p, np.ndarray) else p for p in found]
        wide = "int64" if any(dtype_of(e) == "int64" for e in exprs) else "int32"
        return R.stack([R.broadcast_to(cast(e, wide), self.shape) for e in exprs], 0)


def _columns(value: Value, count: int) -> list[Index]:
    """The starts along each dimension: the last dimension of an index taken apart."""
    if value.known is not None:
        return [np.asarray(value.known[..., k], np.int64) for k in range(count)]
    index = _signed(value.expr)
    lead = shape_of(index)[:-1]
    if count == 1:
        return [reshape(index, lead)]
    axis = rank(index) - 1
    return [reshape(R.strided_slice(index, [k], [k + 1], axes=[axis]), lead) for k in range(count)]


def _signed(index: Expr) -> Expr:
    kind = dtype_of(index)
    return (
        index
        if kind in ("int32", "int64")
        else cast(index, "int64" if kind in ("uint32", "uint64") else "int32")
    )


def _last(x: Expr, d: int, width: int, like: Expr) -> Expr:
    """The last start of a window along a dimension."""
    size = shape_of(x)[d]
    if isinstance(size, int):
        return scalar(size - width, like)
    whole = R.take(R.shape_of(x, dtype_of(like)), constant(np.int32(d)), 0)
    return R.subtract(whole, scalar(width, like))


def _clamped(x: Expr, d: int, start: Index, width: int) -> Index:
    """A start moved so that its window is within a dimension."""
    if isinstance(start, np.ndarray):
        size = shape_of(x)[d]
        if isinstance(size, int):
            return np.asarray(np.clip(start, 0, max(size - width, 0)))
        start = constant(start.astype(np.int32))
    return R.maximum(R.minimum(start, _last(x, d, width, start)), scalar(0, start))


def _inside(x: Expr, starts: Mapping[int, Index], widths: Mapping[int, int]) -> Expr | None:
    """Whether each window is within the tensor; None if all are."""
    found: Expr | None = None
    for d, start in starts.items():
        size, width = shape_of(x)[d], widths.get(d, 1)
        if isinstance(start, np.ndarray):
            if isinstance(size, int) and ((start >= 0) & (start <= size - width)).all():
                continue
            start = constant(start.astype(np.int32))
        here = R.logical_and(
            R.greater_equal(start, scalar(0, start)), R.less_equal(start, _last(x, d, width, start))
        )
        found = here if found is None else R.logical_and(found, here)
    return found


def _counted(batch: Sequence[Any], axis: int) -> Any:
    """The position along a dimension of the indices."""
    if not isinstance(batch[axis], int):
        raise Refusal("batches of indices of a dynamic size are not supported")
    view = [1] * len(batch)
    view[axis] = batch[axis]
    return np.arange(batch[axis], dtype=np.int64).reshape(view)


# ---------------------------------------------------------------------------- gather
@primitive("gather")
def gather(
    n: Site, x: Expr, index: Expr, *, dimension_numbers: Any, slice_sizes: Any, mode: Any, fill_value: Any
) -> Expr:
    dn, ndim = dimension_numbers, rank(x)
    fills = "FILL" in str(mode)
    mapped = list(dn.start_index_map)
    batching = dict(zip(dn.operand_batching_dims, dn.start_indices_batching_dims, strict=True))
    for d in range(ndim):
        if d not in mapped and d not in batching and str(slice_sizes[d]) != str(shape_of(x)[d]):
            x = R.strided_slice(x, [0], [slice_sizes[d]], axes=[d])
    batch = shape_of(index)[:-1]
    starts = dict(zip(mapped, _columns(n.values[1], len(mapped)), strict=True))
    if not batch and all(isinstance(s, np.ndarray) for s in starts.values()) and not fills:
        return _sliced(n, x, starts, slice_sizes)
    if any(not isinstance(slice_sizes[d], int) for d in mapped):
        raise Refusal("a window of a dynamic size at a computed position is not supported")
    widths = {d: int(slice_sizes[d]) for d in sorted(mapped) if slice_sizes[d] != 1}
    kept = [d for d in range(ndim) if d not in dn.collapsed_slice_dims and d not in batching]
    inside = _inside(x, starts, widths) if fills else None
    where = {d: _clamped(x, d, s, widths.get(d, 1)) for d, s in starts.items()}
    axis = _axis_along(x, starts, batching, kept, batch)
    if axis is not None:
        made = R.gather(x, axis, where[axis], negative=False)
    else:
        where.update({d: _counted(batch, at) for d, at in batching.items()})
        picked, labels = _picked(x, _Grid(x, batch, widths), where)
        made = _laid(picked, labels, dn.offset_dims, kept, n.shape)
    if inside is None:
        return made
    others = [d for d in range(len(n.shape)) if d not in dn.offset_dims]
    view = [1] * len(n.shape)
    for d, size in zip(others, batch, strict=True):
        view[d] = size
    return R.where(reshape(inside, view), made, literal(_fill(fill_value, n.dtype), n.dtype))


def _sliced(n: Site, x: Expr, starts: Mapping[int, Any], sizes: Sequence[Any]) -> Expr:
    """One window at a known position."""
    for d, start in starts.items():
        size = shape_of(x)[d]
        known = isinstance(size, int) and isinstance(sizes[d], int)
        at = min(max(int(start), 0), size - sizes[d]) if known else int(start)
        x = R.strided_slice(x, [at], [at + sizes[d]], axes=[d])
    return reshape(x, n.shape)


def _fill(value: Any, dtype: str) -> Any:
    """The result of an index that is out of bounds."""
    if value is not None:
        return value
    if is_float(dtype):
        return float("nan")
    return True if dtype == "bool" else greatest(dtype) if dtype.startswith("uint") else lowest(dtype)


def _axis_along(
    x: Expr,
    starts: Mapping[int, Index],
    batching: Mapping[int, int],
    kept: Sequence[int],
    batch: Sequence[Any],
) -> int | None:
    """The axis of a `take_along_axis`: the other dimensions of the tensor are those of the indices, in their order."""
    plain = len(starts) == 1 and len(batching) == rank(x) - 1 and len(batch) == rank(x) and not kept
    if not plain or any(batching[d] != d for d in batching):
        return None
    ((axis, start),) = starts.items()
    return None if isinstance(start, np.ndarray) else axis


def _picked(x: Expr, grid: _Grid, starts: Mapping[int, Index]) -> tuple[Expr, list[tuple[str, int]]]:
    """The elements at the positions of a grid, and what the dimensions of the result are."""
    labels = [*(("batch", i) for i in range(len(grid.batch))), *(("window", d) for d in grid.widths)]
    rest = [d for d in range(rank(x)) if d not in starts]
    if len(starts) > 1:
        order = [*starts, *rest]
        return R.gather_nd(permute(x, order), grid.stacked(starts)), [*labels, *(("window", d) for d in rest)]
    if not starts:
        return R.broadcast_to(x, [*grid.shape, *shape_of(x)]), [*labels, *(("window", d) for d in rest)]
    ((axis, start),) = starts.items()
    at = grid.positions(axis, start)
    whole = [*(("window", d) for d in rest if d < axis), *labels, *(("window", d) for d in rest if d > axis)]
    if isinstance(at, np.ndarray):
        sliced = _as_slice(x, axis, at.reshape(-1))
        if sliced is not None:
            shape = shape_of(x)
            return reshape(sliced, [*shape[:axis], *grid.shape, *shape[axis + 1 :]]), whole
        at = constant(at.astype(np.int32))
    return R.take(x, at, axis=axis, mode="clip"), whole


def _as_slice(x: Expr, axis: int, rows: Any) -> Expr | None:
    """Rows at equal distances as a slice."""
    steps = np.diff(rows)
    if not rows.size or (steps.size and (steps[0] <= 0 or (steps != steps[0]).any())):
        return None
    step = int(steps[0]) if steps.size else 1
    return R.strided_slice(x, [int(rows[0])], [int(rows[-1]) + 1], [step], axes=[axis])


def _laid(
    made: Expr,
    labels: list[tuple[str, int]],
    offsets: Sequence[int],
    kept: Sequence[int],
    shape: Sequence[Any],
) -> Expr:
    """The dimensions in the order of the result; windows of one element become dimensions of size 1."""
    batch = iter(range(len(shape)))
    at = {d: ("window", k) for d, k in zip(offsets, kept, strict=True)}
    wanted = [at[d] if d in at else ("batch", next(batch)) for d in range(len(shape))]
    order = [labels.index(w) for w in wanted if w in labels]
    singles = [i for i in range(len(labels)) if i not in order]  # collapsed, of size 1
    return reshape(permute(made, [*order, *singles]), shape)


# ---------------------------------------------------------------------------- scatter
_HOW = {"scatter": "update", "scatter-add": "add", "scatter-sub": "add", "scatter-mul": "mul", "scatter-min": "min",
        "scatter-max": "max", "scatter_add": "add", "scatter_mul": "mul", "scatter_min": "min",
        "scatter_max": "max", "scatter_sub": "add"}  # fmt: skip


@primitive(*_HOW)
def scatter(
    n: Site, x: Expr, index: Expr, updates: Expr, *, dimension_numbers: Any, mode: Any, update_jaxpr: Any,
    update_consts: Any
) -> Expr:  # fmt: skip
    dn, ndim, how = dimension_numbers, rank(x), _HOW[n.name]
    if how == "update" and update_jaxpr is not None:
        raise Refusal("a function of the elements at indices (x.at[i].apply(f)) is not supported")
    if n.name.endswith("sub"):
        updates = R.negative(updates)
    batching = dict(zip(dn.operand_batching_dims, dn.scatter_indices_batching_dims, strict=True))
    kept = [d for d in range(ndim) if d not in dn.inserted_window_dims and d not in batching]
    sizes = {d: shape_of(updates)[u] for d, u in zip(kept, dn.update_window_dims, strict=True)}
    mapped = list(dn.scatter_dims_to_operand_dims)
    starts = dict(zip(mapped, _columns(n.values[1], len(mapped)), strict=True))
    batch = shape_of(index)[:-1]
    for d in range(ndim):  # a window that is a part of a dimension without a start begins at 0
        if d not in starts and d not in batching and str(sizes.get(d, 1)) != str(shape_of(x)[d]):
            starts[d] = np.zeros([1] * len(batch), np.int64)
    widths = {d: int(sizes[d]) for d in sorted(starts) if d in sizes and sizes[d] != 1}
    inside = _inside(x, starts, widths) if "FILL" in str(mode) else None
    if inside is None or how != "update":
        where = {d: _clamped(x, d, s, widths.get(d, 1)) for d, s in starts.items()}
    else:
        where = starts
    where.update({d: _counted(batch, at) for d, at in batching.items()})
    if inside is not None and how != "update":
        view = [1] * rank(updates)
        others = [d for d in range(rank(updates)) if d not in dn.update_window_dims]
        for d, size in zip(others, batch, strict=True):
            view[d] = size
        updates = R.where(reshape(inside, view), updates, literal(_neutral(how, n.dtype), n.dtype))
        inside = None
    others = [d for d in range(rank(updates)) if d not in dn.update_window_dims]
    spots = dict(zip(kept, dn.update_window_dims, strict=True))
    return _written(x, updates, where, _Grid(x, batch, widths), others, spots, how, inside)


def _neutral(how: str, dtype: str) -> Any:
    return {"add": 0, "mul": 1, "max": lowest(dtype), "min": greatest(dtype)}[how]


def _written(
    x: Expr,
    updates: Expr,
    starts: Mapping[int, Index],
    grid: _Grid,
    others: Sequence[int],
    spots: Mapping[int, int],
    how: str,
    inside: Expr | None = None,
) -> Expr:
    """The tensor with the elements at the positions of a grid replaced or combined.

    `others` are the dimensions of the updates that the indices have, `spots` those of the windows. Where `inside` does
    not hold, the window goes to rows behind the tensor, which are cut off.
    """
    rest = [d for d in range(rank(x)) if d not in starts]
    order = [*starts, *rest]
    laid = [*others, *(spots[d] for d in grid.widths), *(spots[d] for d in rest if d in spots)]
    singles = [d for d in range(rank(updates)) if d not in laid]
    parts = permute(updates, [*laid, *singles])
    parts = reshape(parts, [*grid.shape, *(shape_of(x)[d] for d in rest)])
    data = permute(x, order)
    if inside is None:
        made = R.scatter_nd(data, grid.stacked(starts), parts, how, negative=False)
        return permute(made, [order.index(d) for d in range(rank(x))])
    first = order[0]
    width = grid.widths.get(first, 1)
    size = shape_of(x)[first]
    away = {}
    for d, s in starts.items():
        s = constant(s.astype(np.int32)) if isinstance(s, np.ndarray) else s
        outside = _last(x, first, 0, s) if d == first else scalar(0, s)
        away[d] = R.where(inside, s, outside)
    more = padded(data, [(0, width), *[(0, 0)] * (rank(x) - 1)])
    made = R.scatter_nd(more, grid.stacked(away), parts, how, negative=False)
    made = R.strided_slice(made, [0], [size], axes=[0])
    return permute(made, [order.index(d) for d in range(rank(x))])


# ---------------------------------------------------------------------------- slices
def _start(value: Value) -> Index:
    return np.asarray(value.known).astype(np.int64) if value.known is not None else _signed(value.expr)


@primitive("dynamic_slice")
def dynamic_slice(n: Site, x: Expr, *starts: Expr, slice_sizes: Sequence[int]) -> Expr:
    for d, width in enumerate(n.shape):
        if str(width) == str(shape_of(x)[d]):
            continue
        if not isinstance(width, int):
            raise Refusal("a slice of a dynamic size at a computed position is not supported")
        start = _clamped(x, d, _start(n.values[1 + d]), width)
        rows = _Grid(x, (), {d: width}).positions(d, start)
        if isinstance(rows, np.ndarray):
            x = R.strided_slice(x, [int(rows[0])], [int(rows[-1]) + 1], axes=[d]) if width else x
        else:
            x = R.take(x, rows, axis=d, mode="clip")
    return x


@primitive("dynamic_update_slice")
def dynamic_update_slice(n: Site, x: Expr, update: Expr, *starts: Expr) -> Expr:
    part = [d for d in range(rank(x)) if str(shape_of(x)[d]) != str(shape_of(update)[d])]
    if not part:
        return update
    sizes = shape_of(update)
    if any(not isinstance(sizes[d], int) for d in part):
        raise Refusal("an update of a dynamic size at a computed position is not supported")
    where = {d: _clamped(x, d, _start(n.values[2 + d]), sizes[d]) for d in part}
    widths = {d: sizes[d] for d in part if sizes[d] != 1}
    return _written(x, update, where, _Grid(x, (), widths), [], {d: d for d in range(rank(x))}, "update")
