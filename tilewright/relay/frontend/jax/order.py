"""Sorting, and the greatest elements."""

from __future__ import annotations

from typing import Any

from ...expr import Expr
from ..common.build import R
from .reduction import comparable
from .table import Site, primitive


@primitive("sort")
def sort(n: Site, *xs: Expr, dimension: int, num_keys: int) -> Any:
    """Arrays ordered by the first, among equals by the second, … of the keys."""
    if len(xs) == 1:
        return R.sort(comparable(xs[0]), dimension)
    order: Any = None
    for key in reversed(xs[:num_keys]):  # each sort is stable: the last key first
        now = comparable(key) if order is None else R.gather(comparable(key), dimension, order)
        step = R.argsort(now, dimension)
        order = step if order is None else R.gather(order, dimension, step)
    return [R.gather(x, dimension, order) for x in xs]


@primitive("top_k")
def top_k(n: Site, x: Expr, *, k: int, axis: int = -1) -> Any:
    if k == 0:
        return [R.zeros(kind.shape, str(kind.dtype)) for kind in n.kinds]
    return R.topk(comparable(x), int(k), axis, "both", False, "int32")


@primitive("approx_top_k")
def approx_top_k(
    n: Site,
    x: Expr,
    *,
    k: int,
    reduction_dimension: int,
    is_max_k: bool,
    recall_target: float,
    aggregate_to_topk: bool,
    reduction_input_size_override: int,
) -> Any:
    """Exactly, which any target of recall allows."""
    return R.topk(x, int(k), reduction_dimension, "both", not is_max_k, "int32")
