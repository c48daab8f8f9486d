"""Indexing by tensors: gather and scatter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...expr import Constant, Expr
from ...op.shapes import broadcast, product
from .build import R, cast, dtype_of, full, literal, permute, places, rank, reshape, scatter_rows, shape_of
from .table import Refusal, Site, aten, rows


# ---------------------------------------------------------------------------- several indices
def _places(x: Expr, indices: list[Any]) -> tuple[list[int], list[Expr], tuple[Any, ...]]:
    """(the dimensions that are indexed, the indices of one shape, that shape)."""
    axes = [d for d, i in enumerate(indices) if i is not None]
    found = [places(indices[d]) for d in axes]
    kinds = {dtype_of(i) for i in found}
    found = found if len(kinds) == 1 else [cast(i, "int64") for i in found]
    shape: tuple[Any, ...] = ()
    for i in found:
        shape = broadcast(shape, shape_of(i))
    return axes, [i if shape_of(i) == shape else R.broadcast_to(i, shape) for i in found], shape


def _has_mask(indices: list[Any]) -> bool:
    return any(i is not None and dtype_of(i) in ("bool", "uint8") for i in indices)


def _known_masks(indices: list[Any]) -> list[Any]:
    """Masks whose values are known, as the places where they hold."""
    out: list[Any] = []
    for i in indices:
        if i is not None and dtype_of(i) in ("bool", "uint8") and isinstance(i, Constant):
            out += [places(p) for p in np.nonzero(i.numpy())]
        else:
            out.append(i)
    return out


@aten("index", "_unsafe_index")
def index(n: Site, x: Expr, indices: list[Any]) -> Expr:
    indices = _known_masks(indices)
    if _has_mask(indices):
        raise Refusal("the number of elements that a mask selects is dynamic; use torch.where")
    axes, found, shape = _places(x, indices)
    if len(axes) == 1:
        return R.take(x, found[0], axis=axes[0], mode="fast")
    rest = [d for d in range(rank(x)) if d not in axes]
    picked = R.gather_nd(permute(x, [*axes, *rest]), R.stack(found, 0))
    if axes != list(range(axes[0], axes[-1] + 1)):
        return picked
    k, before = len(shape), axes[0]  # neighbours: their result stands where they stood
    order = [*range(k, k + before), *range(k), *range(k + before, k + len(rest))]
    return permute(picked, order)


@aten("index_put", "_unsafe_index_put", "_index_put_impl")
def index_put(n: Site, x: Expr, indices: list[Any], values: Expr, accumulate: bool = False) -> Expr:
    indices = _known_masks(indices)
    if _has_mask(indices):
        return _masked_put(n, x, indices, values, accumulate)
    axes, found, shape = _places(x, indices)
    rest = [d for d in range(rank(x)) if d not in axes]
    order = [*axes, *rest]
    moved = permute(x, order)
    tail = [shape_of(x)[d] for d in rest]
    before = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    # values broadcast to the shape that reading would give; then the indexed dimensions come first
    read = (*tail[:before], *shape, *tail[before:])
    updates = n.to(values)
    if shape_of(updates) != read:
        updates = R.broadcast_to(updates, read)
    k = len(shape)
    updates = permute(updates, [*range(before, before + k), *range(before), *range(before + k, len(read))])
    made = R.scatter_nd(moved, R.stack(found, 0), updates, "add" if accumulate else "update")
    return permute(made, [order.index(d) for d in range(rank(x))])


def _masked_put(n: Site, x: Expr, indices: list[Any], values: Expr, accumulate: bool) -> Expr:
    """One mask over the first dimensions, and values that do not depend on how often it holds."""
    given = [i for i in indices if i is not None]
    if len(given) != 1 or indices[0] is None or len(indices) != 1:
        raise Refusal("a mask together with other indices is not supported; use torch.where")
    mask = cast(given[0], "bool")
    if rank(values) and any(d != 1 for d in shape_of(values)[: max(rank(values) - rank(x) + rank(mask), 0)]):
        raise Refusal("values for each element that a mask selects are not supported; use torch.where")
    mask = reshape(mask, (*shape_of(mask), *[1] * (rank(x) - rank(mask))))
    value = n.to(values)
    if rank(value) > rank(x) - rank(given[0]):
        value = reshape(value, shape_of(value)[rank(value) - (rank(x) - rank(given[0])) :])
    return R.where(mask, R.add(x, value) if accumulate else value, x)


@aten("masked_scatter")
def masked_scatter(n: Site, x: Expr, mask: Expr, source: Expr) -> Expr:
    """Where the mask holds, the next element of `source`."""
    total, given = product(n.shape), product(shape_of(source))
    mask = R.broadcast_to(cast(mask, "bool"), n.shape)
    rank_of = R.cumsum(cast(reshape(mask, (total,)), "int64"), 0, "int64")
    at = R.maximum(R.subtract(rank_of, literal(1, "int64")), literal(0, "int64"))
    found = R.take(reshape(source, (given,)), at, axis=0, mode="fast", negative=False)
    return R.where(mask, reshape(found, n.shape), R.broadcast_to(x, n.shape))


@aten("nonzero")
def nonzero(n: Site, x: Expr) -> Expr:
    return R.argwhere(x)


# ---------------------------------------------------------------------------- along a dimension
@aten("index_select")
def index_select(n: Site, x: Expr, dim: int, index: Expr) -> Expr:
    if not rank(x):
        return x
    listed = reshape(places(index), (shape_of(index)[0] if rank(index) else 1,))
    return R.take(x, listed, axis=dim % rank(x), mode="fast", negative=False)


@aten("take")
def take(n: Site, x: Expr, index: Expr) -> Expr:
    total = product(shape_of(x))
    return R.take(reshape(x, (total,)), places(index), axis=0, mode="fast")


def _front_part(src: Expr, index: Expr) -> Expr:
    """torch reads as much of `src` as there are indices."""
    if shape_of(src) == shape_of(index):
        return src
    ends = list(shape_of(index))
    return R.strided_slice(src, [0] * len(ends), ends, [1] * len(ends))


def _scattered(n: Site, x: Expr, dim: int, index: Expr, src: Any, how: str) -> Expr:
    updates = _front_part(n.to(src), index) if isinstance(src, Expr) and rank(src) else None
    if updates is None:
        value = n.to(src)
        updates = R.broadcast_to(value, shape_of(index)) if rank(index) else value
    if not rank(x):
        return reshape(updates, ())
    return R.scatter_elements(x, places(index), updates, dim % rank(x), how, negative=False)


@aten("scatter")
def scatter(
    n: Site, x: Expr, dim: int, index: Expr, src: Any = None, value: Any = None, reduce: Any = None
) -> Expr:
    how = {None: "update", "add": "add", "multiply": "mul"}[reduce]
    return _scattered(n, x, dim, index, value if src is None else src, how)


rows(
    {
        "scatter_add": lambda n, x, dim, index, src: _scattered(n, x, dim, index, src, "add"),
        "index_copy": lambda n, x, dim, index, source: _rows(n, x, dim, index, source, "update"),
        "gather": lambda n, x, dim, index: (
            R.gather(x, dim % rank(x), places(index), negative=False) if rank(x) else reshape(x, n.shape)
        ),
    }
)


@aten("scatter_reduce")
def scatter_reduce(
    n: Site, x: Expr, dim: int, index: Expr, src: Expr, reduce: str, include_self: bool = True
) -> Expr:
    how = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "mean"}[reduce]
    if how == "mean" or not include_self:
        return _scatter_counted(n, x, dim, index, src, how, include_self)
    return _scattered(n, x, dim, index, src, how)


def _scatter_counted(
    n: Site, x: Expr, dim: int, index: Expr, src: Expr, how: str, include_self: bool
) -> Expr:
    """Where something is written, the combination without what was there, or the average."""
    one = full(1, shape_of(index), n.dtype)
    counts = _scattered(n, R.zeros_like(x), dim, index, one, "add")
    hit = R.greater(counts, literal(0, n.dtype))
    if how == "mean":
        base = x if include_self else R.where(hit, literal(0, n.dtype), x)
        total = _scattered(n, base, dim, index, src, "add")
        number = R.add(counts, literal(1 if include_self else 0, n.dtype))
        return R.where(hit, R.divide(total, R.maximum(number, literal(1, n.dtype))), x)
    start = {"add": 0, "mul": 1, "max": float("-inf"), "min": float("inf")}[how]
    base = R.where(hit, literal(start, n.dtype), x)
    return _scattered(n, base, dim, index, src, how)


def _rows(n: Site, x: Expr, dim: int, index: Expr, source: Expr, how: str, negative: bool = False) -> Expr:
    """Whole slices along a dimension written or combined."""
    flat = reshape(places(index), (1, shape_of(index)[0] if rank(index) else 1))
    return scatter_rows(x, n.to(source), dim % rank(x), flat, how, negative)


@aten("index_add")
def index_add(n: Site, x: Expr, dim: int, index: Expr, source: Expr, alpha: Any = 1) -> Expr:
    scaled = source if alpha == 1 else R.multiply(n.to(source), n.to(alpha))
    return _rows(n, x, dim, index, scaled, "add")


@aten("index_fill")
def index_fill(n: Site, x: Expr, dim: int, index: Expr, value: Any) -> Expr:
    at = dim % rank(x)
    count = shape_of(index)[0] if rank(index) else 1
    shape = [count if d == at else s for d, s in enumerate(shape_of(x))]
    rows = R.broadcast_to(n.to(value), shape) if isinstance(value, Expr) else full(value, shape, n.dtype)
    return _rows(n, x, dim, index, rows, "update", negative=True)


@aten("one_hot")
def one_hot(n: Site, x: Expr, num_classes: int = -1) -> Expr:
    one, zero = literal(1, n.dtype), literal(0, n.dtype)
    return R.one_hot(places(x), one, zero, n.shape[-1], -1, n.dtype)
