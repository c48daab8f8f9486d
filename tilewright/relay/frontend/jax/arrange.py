"""Shapes: broadcast, reshape, transpose, joins, slices, pads, counting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...expr import Expr
from ..common.attention import count_up
from ..common.build import R, constant, converted, permute, rank, reshape, shape_of
from ..common.pads import padded
from .table import Refusal, Site, primitive, rows
from .values import Value

rows(
    {
        "squeeze": lambda n, x, *, dimensions: R.squeeze(x, list(dimensions)) if dimensions else x,
        "expand_dims": lambda n, x, *, dimensions: reshape(x, n.shape),
        "transpose": lambda n, x, *, permutation: permute(x, permutation),
        "concatenate": lambda n, *xs, dimension: R.concatenate(xs, dimension) if len(xs) > 1 else xs[0],
        "stack": lambda n, *xs, axis: R.stack(xs, axis % len(n.shape)),
        "tile": lambda n, x, *, reps: R.tile(x, reps),
        "rev": lambda n, x, *, dimensions: R.flip(x, list(dimensions)) if dimensions else x,
        "reshape": lambda n, x, *, new_sizes: reshape(x, n.shape),
    }
)


@primitive("broadcast_in_dim")
def broadcast_in_dim(
    n: Site, x: Expr, *sizes: Expr, broadcast_dimensions: Sequence[int], shape: Any
) -> Value:
    """New dimensions, then repeated ones; operators that broadcast do without the second step."""
    view: list[Any] = [1] * len(n.shape)
    for size, d in zip(shape_of(x), broadcast_dimensions, strict=True):
        view[d] = size
    laid = reshape(x, view)
    if all(a is b or str(a) == str(b) for a, b in zip(view, n.shape, strict=True)):
        return Value(laid)
    return Value(R.broadcast_to(laid, n.shape), narrow=laid)


@primitive("split")
def split(n: Site, x: Expr, *, sizes: Sequence[int], axis: int) -> Any:
    if len(sizes) == 1:
        return [x]
    return R.split(x, [int(s) for s in np.cumsum(sizes)[:-1]], axis)


@primitive("unstack")
def unstack(n: Site, x: Expr, *, axis: int) -> Any:
    if len(n.kinds) == 1:
        return [R.squeeze(x, [axis])]
    parts = R.split(x, len(n.kinds), axis)
    return [R.squeeze(parts[i], [axis]) for i in range(len(n.kinds))]


@primitive("slice")
def slice_(n: Site, x: Expr, *, start_indices: Any, limit_indices: Any, strides: Any) -> Expr:
    steps = strides or [1] * rank(x)
    axes = [
        d
        for d, size in enumerate(shape_of(x))
        if not _is_zero(start_indices[d]) or str(limit_indices[d]) != str(size) or steps[d] != 1
    ]
    if not axes:
        return x
    begin, end, step = ([part[d] for d in axes] for part in (start_indices, limit_indices, steps))
    return R.strided_slice(x, begin, end, step, axes=axes)


def _is_zero(size: Any) -> bool:
    return isinstance(size, int) and size == 0


@primitive("pad")
def pad(n: Site, x: Expr, value: Expr, *, padding_config: Sequence[tuple[int, int, int]]) -> Expr:
    """Padding around, cropping where it is negative, and between the elements."""
    for d, (_, _, inner) in enumerate(padding_config):
        if inner:
            x = spread(x, d, inner, value)
    return padded(x, [(low, high) for low, high, _ in padding_config], value=value)


def spread(x: Expr, axis: int, inner: int, value: Any) -> Expr:
    """The rows of an axis with `inner` rows of a value between them."""
    size = shape_of(x)[axis]
    if isinstance(size, int) and size <= 1:
        return x
    widths = [(0, 0)] * (rank(x) + 1)
    widths[axis + 1] = (0, inner)
    whole = R.nn.pad(R.expand_dims(x, axis + 1), widths, value)
    shape = list(shape_of(x))
    shape[axis] = size * (inner + 1)
    return R.strided_slice(reshape(whole, shape), [0], [size * (inner + 1) - inner], axes=[axis])


@primitive("iota")
def iota(n: Site, *sizes: Expr, dimension: int, dtype: Any, shape: Any) -> Value:
    """Of a dynamic size; others are known at import."""
    line = converted(count_up(n.shape[dimension]), n.dtype)
    view = [s if d == dimension else 1 for d, s in enumerate(n.shape)]
    laid = reshape(line, view)
    return Value(laid if len(view) == 1 else R.broadcast_to(laid, n.shape), narrow=laid)


@primitive("dim_as_value")
def dim_as_value(n: Site, *, dim: Any) -> Expr:
    if isinstance(dim, int):
        return constant(np.asarray(dim, n.dtype))
    total = R.sum(R.ones((dim,), "int32"), axis=[0])  # a size as a number: counted
    return converted(total, n.dtype)


@primitive("empty", "empty2")
def empty(n: Site, *, shape: Any = (), dtype: Any = None) -> Expr:
    if any(not isinstance(d, int) for d in n.shape):
        raise Refusal("an uninitialised array of a dynamic size is not supported")
    return R.zeros(n.shape, n.dtype)
