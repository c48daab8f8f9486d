"""Reductions, positions of the greatest and the least, scans along a dimension."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...expr import Expr
from ..common.build import R, converted, dtype_of, is_float, rank, scalar, static_shape
from ..common.pads import padded
from .table import Refusal, Site, primitive, rows


def _over(build: Any, x: Expr, axes: Sequence[int]) -> Expr:
    return build(x, [int(a) for a in axes], False) if axes else x


def _as_flags(n: Site, build: Any, x: Expr, axes: Sequence[int]) -> Expr:
    if n.dtype != "bool":
        raise Refusal(f"bits of {n.dtype} are not reduced; only bool is supported")
    return _over(build, x, axes)


def comparable(x: Expr) -> Expr:
    """Flags as numbers: operators that compare take these."""
    return converted(x, "int8") if dtype_of(x) == "bool" else x


rows(
    {
        "reduce_sum": lambda n, x, *, axes: _over(R.sum, x, axes),
        "reduce_prod": lambda n, x, *, axes: _over(R.prod, x, axes),
        "reduce_max": lambda n, x, *, axes: _over(R.max, comparable(x), axes),
        "reduce_min": lambda n, x, *, axes: _over(R.min, comparable(x), axes),
        "reduce_and": lambda n, x, *, axes: _as_flags(n, R.all, x, axes),
        "reduce_or": lambda n, x, *, axes: _as_flags(n, R.any, x, axes),
        "argmax": lambda n, x, *, axes, index_dtype: R.argmax(comparable(x), list(axes), False),
        "argmin": lambda n, x, *, axes, index_dtype: R.argmin(comparable(x), list(axes), False),
    }
)


_MONOIDS = {"add": R.sum, "mul": R.prod, "max": R.max, "min": R.min, "and": R.all, "or": R.any}


def monoid_of(jaxpr: Any) -> str:
    """The primitive that combines two elements, if a jaxpr is just that."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    eqns = inner.eqns
    if len(eqns) != 1 or eqns[0].primitive.name not in _MONOIDS or len(inner.outvars) != 1:
        raise Refusal(f"elements are combined by {inner}, which is none of {', '.join(_MONOIDS)}")
    return str(eqns[0].primitive.name)


@primitive("reduce")
def reduce(n: Site, x: Expr, init: Expr, *, jaxpr: Any, dimensions: Sequence[int]) -> Expr:
    name = monoid_of(jaxpr)
    if name in ("and", "or"):
        made = _as_flags(n, _MONOIDS[name], x, dimensions)
        return {"and": R.logical_and, "or": R.logical_or}[name](made, init)
    made = _over(_MONOIDS[name], x, dimensions)
    return {"add": R.add, "mul": R.multiply, "max": R.maximum, "min": R.minimum}[name](made, init)


# ---------------------------------------------------------------------------- scans
def _reversed(work: Callable[[Expr], Expr], x: Expr, axis: int, reverse: bool) -> Expr:
    return R.reverse(work(R.reverse(x, axis)), axis) if reverse else work(x)


rows(
    {
        "cumsum": lambda n, x, *, axis, reverse: _reversed(
            lambda e: R.cumsum(e, axis, n.dtype), x, axis, reverse
        ),
        "cumprod": lambda n, x, *, axis, reverse: _reversed(
            lambda e: R.cumprod(e, axis, n.dtype), x, axis, reverse
        ),
        "cummax": lambda n, x, *, axis, reverse: _doubled(R.maximum, x, axis, reverse, lowest(n.dtype)),
        "cummin": lambda n, x, *, axis, reverse: _doubled(R.minimum, x, axis, reverse, greatest(n.dtype)),
        "cumlogsumexp": lambda n, x, *, axis, reverse: _doubled(_log_add, x, axis, reverse, -math.inf),
    }
)


def lowest(dtype: str) -> Any:
    """The identity of the maximum."""
    return -math.inf if is_float(dtype) else False if dtype == "bool" else int(np.iinfo(dtype).min)


def greatest(dtype: str) -> Any:
    """The identity of the minimum."""
    return math.inf if is_float(dtype) else True if dtype == "bool" else int(np.iinfo(dtype).max)


def _doubled(combine: Any, x: Expr, axis: int, reverse: bool, nothing: Any) -> Expr:
    """Each element combined with all before it, in steps of 1, 2, 4, …"""
    size, step = static_shape(x, "a scan: the data")[axis], 1
    while step < size:
        widths = [(0, 0)] * rank(x)
        widths[axis] = (-step, step) if reverse else (step, -step)
        x = combine(x, padded(x, widths, value=scalar(nothing, x)))
        step *= 2
    return x


def _log_add(a: Expr, b: Expr) -> Expr:
    """log(exp(a) + exp(b))."""
    top = R.maximum(a, b)
    safe = R.where(R.isfinite(top), top, scalar(0, a))
    total = R.add(R.exp(R.subtract(a, safe)), R.exp(R.subtract(b, safe)))
    return R.add(R.log(total), safe)
