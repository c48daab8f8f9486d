"""Reductions, positions, order, scans."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...expr import Expr
from ...op.shapes import product
from .build import R, cast, constant, dtype_of, full, is_float, literal, rank, reshape, shape_of, sizes_of
from .table import Refusal, Site, aten, rows


def _axes(x: Expr, dim: Any) -> list[int]:
    """The dimensions that `dim` names; None and [] are all."""
    if dim is None or dim == []:
        return list(range(rank(x)))
    return [d % max(rank(x), 1) for d in (dim if isinstance(dim, list) else [dim])] if rank(x) else []


def _over(build: Any, x: Expr, dim: Any, keepdim: bool) -> Expr:
    axes = _axes(x, dim)
    return build(x, axes, keepdim) if axes else x


rows(
    {
        "sum": lambda n, x, dim=None, keepdim=False, dtype=None: _over(R.sum, n.to(x), dim, keepdim),
        "mean": lambda n, x, dim=None, keepdim=False, dtype=None: _over(R.mean, n.to(x), dim, keepdim),
        "prod": lambda n, x, dim=None, keepdim=False, dtype=None: _over(R.prod, n.to(x), dim, keepdim),
        "max.dim": lambda n, x, dim, keepdim=False: [amax(n, x, dim, keepdim), argmax(n, x, dim, keepdim)],
        "min.dim": lambda n, x, dim, keepdim=False: [amin(n, x, dim, keepdim), argmin(n, x, dim, keepdim)],
        "aminmax": lambda n, x, dim=None, keepdim=False: [amin(n, x, dim, keepdim), amax(n, x, dim, keepdim)],
        "any": lambda n, x, dim=None, keepdim=False: _over(R.any, cast(x, "bool"), dim, keepdim),
        "all": lambda n, x, dim=None, keepdim=False: _over(R.all, cast(x, "bool"), dim, keepdim),
        "logsumexp": lambda n, x, dim, keepdim=False: _over(R.logsumexp, n.to(x), dim, keepdim),
        "count_nonzero": lambda n, x, dim=None: _over(R.sum, cast(cast(x, "bool"), "int64"), dim, False),
    }
)


@aten("amax", "max")
def amax(n: Site, x: Expr, dim: Any = None, keepdim: bool = False) -> Expr:
    return _over(R.max, _comparable(x), dim, keepdim)


@aten("amin", "min")
def amin(n: Site, x: Expr, dim: Any = None, keepdim: bool = False) -> Expr:
    return _over(R.min, _comparable(x), dim, keepdim)


@aten("histc")
def histc(n: Site, x: Expr, bins: int = 100, min: Any = 0, max: Any = 0) -> Expr:
    """How many elements are in each of `bins` equal parts of a range; without a range, of the range of the elements."""
    flat = reshape(x, (product(shape_of(x)),))
    if min == max:
        low, high = R.min(flat), R.max(flat)
        same = R.equal(low, high)
        one = literal(1, n.dtype)
        low, high = R.where(same, R.subtract(low, one), low), R.where(same, R.add(high, one), high)
    else:
        low, high = literal(min, n.dtype), literal(max, n.dtype)
    part = R.divide(R.multiply(R.subtract(flat, low), literal(bins, n.dtype)), R.subtract(high, low))
    place = R.minimum(cast(part, "int32"), literal(bins - 1, "int32"))  # the last part includes its end
    inside = R.logical_and(R.greater_equal(flat, low), R.less_equal(flat, high))
    place = R.where(inside, place, literal(-1, "int32"))
    hit = R.equal(R.expand_dims(place, 0), constant(np.arange(bins, dtype="int32")[:, None]))
    return R.sum(cast(hit, n.dtype), [1], False)


def _comparable(x: Expr) -> Expr:
    return cast(x, "int8") if dtype_of(x) == "bool" else x


@aten("argmax")
def argmax(n: Site, x: Expr, dim: Any = None, keepdim: bool = False) -> Expr:
    return _position(R.argmax, x, dim, keepdim)


@aten("argmin")
def argmin(n: Site, x: Expr, dim: Any = None, keepdim: bool = False) -> Expr:
    return _position(R.argmin, x, dim, keepdim)


def _position(build: Any, x: Expr, dim: Any, keepdim: bool) -> Expr:
    x = _comparable(x)
    if not rank(x):
        return literal(0, "int64")
    if dim is None:
        found = build(reshape(x, (_count(x, range(rank(x))),)), [0], False)
        return reshape(found, (1,) * rank(x)) if keepdim else found
    return build(x, [dim % rank(x)], keepdim)


def _count(x: Expr, axes: Any) -> Any:
    """How many elements some dimensions hold."""
    return product([shape_of(x)[d] for d in axes])


def _variance(n: Site, x: Expr, dim: Any, correction: Any, keepdim: bool) -> tuple[Expr, Expr]:
    """(variance, average)."""
    axes = _axes(x, dim)
    middle = R.mean(x, axes, True)
    apart = R.subtract(x, middle)
    total = R.sum(R.multiply(apart, apart), axes, keepdim)
    count = _count(x, axes)
    if not isinstance(count, int):
        raise Refusal("the variance over a dynamic size is not supported")
    left = count - (1 if correction is None else correction)
    spread = R.divide(total, literal(float(left if left > 0 else 0), n.dtype))
    shape = shape_of(spread)
    return spread, reshape(middle, shape)


@aten("var", "std", "var_mean", "std_mean")
def spread(n: Site, x: Expr, dim: Any = None, correction: Any = 1, keepdim: bool = False) -> Any:
    """The variance or its root, and the average beside it where the name has it."""
    variance, middle = _variance(n, x, dim, correction, keepdim)
    word = n.name.split(".")[1]
    made = R.sqrt(variance) if word.startswith("std") else variance
    return [made, middle] if word.endswith("mean") else made


@aten("var.dim", "std.dim", "var.default", "std.default", "var_mean.default", "var_mean.dim", "std_mean.default",
      "std_mean.dim")  # fmt: skip
def spread_unbiased(n: Site, x: Expr, dim: Any = None, unbiased: bool = True, keepdim: bool = False) -> Any:
    return spread(n, x, dim, int(unbiased), keepdim)


@aten("linalg_vector_norm", "norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype")
def vector_norm(
    n: Site, x: Expr, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None, p: Any = None
) -> Expr:
    power = float(ord if p is None else p)
    x = R.abs(n.to(x))
    if power == float("inf"):
        return _over(R.max, x, dim, keepdim)
    if power == float("-inf"):
        return _over(R.min, x, dim, keepdim)
    if power == 0:
        return _over(R.sum, cast(cast(x, "bool"), n.dtype), dim, keepdim)
    if power == 1:
        return _over(R.sum, x, dim, keepdim)
    if power == 2:
        return R.sqrt(_over(R.sum, R.multiply(x, x), dim, keepdim))
    total = _over(R.sum, R.power(x, literal(power, n.dtype)), dim, keepdim)
    return R.power(total, literal(1 / power, n.dtype))


# ---------------------------------------------------------------------------- order
@aten("topk")
def topk(n: Site, x: Expr, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    if not rank(x):
        return [x, literal(0, "int64")]
    if k == 0:
        return [full(0, n.shape, n.dtype), full(0, n.shape, "int64")]
    return R.topk(x, k, dim % rank(x), "both", not largest, "int32")


@aten("sort")
def sort(n: Site, x: Expr, dim: int = -1, descending: bool = False) -> Any:
    if not rank(x):
        return [x, literal(0, "int64")]
    at = dim % rank(x)
    size = shape_of(x)[at]
    if isinstance(size, int):
        return R.topk(x, size, at, "both", not descending, "int32")
    order = R.argsort(x, at, not descending, "int32")
    return [R.gather(x, at, order, negative=False), order]


@aten("kthvalue")
def kthvalue(n: Site, x: Expr, k: int, dim: int = -1, keepdim: bool = False) -> list[Any]:
    values, places = sort(n, x, dim)
    at = dim % rank(x)
    return [_row(v, k - 1, at, keepdim) for v in (values, places)]


@aten("median.dim", "nanmedian.dim")
def median_dim(n: Site, x: Expr, dim: int, keepdim: bool = False) -> list[Any]:
    size = sizes_of(x, "the median")[dim]
    return kthvalue(n, x, (size - 1) // 2 + 1, dim, keepdim)


@aten("median")
def median(n: Site, x: Expr) -> Expr:
    flat = reshape(x, (_count(x, range(rank(x))),))
    return median_dim(n, flat, 0)[0]


def _row(x: Expr, index: int, axis: int, keepdim: bool) -> Expr:
    made = R.strided_slice(x, [index], [index + 1], [1], axes=[axis])
    return made if keepdim else R.squeeze(made, [axis])


@aten("bucketize.Tensor")
def bucketize(n: Site, x: Expr, boundaries: Expr, right: bool = False) -> Expr:
    flat = reshape(x, (_count(x, range(rank(x))),))
    found = R.searchsorted(boundaries, cast(flat, dtype_of(boundaries)), right)
    return reshape(found, shape_of(x))


# ---------------------------------------------------------------------------- scans
rows(
    {
        "cumsum": lambda n, x, dim, dtype=None: R.cumsum(n.to(x), dim, n.dtype) if rank(x) else n.to(x),
        "cumprod": lambda n, x, dim, dtype=None: R.cumprod(n.to(x), dim, n.dtype) if rank(x) else n.to(x),
        "argsort": lambda n, x, dim=-1, descending=False: R.argsort(x, dim % rank(x), not descending),
        "searchsorted.Tensor": lambda n, sorted_sequence, x, right=False, side=None: R.searchsorted(
            sorted_sequence, x, right or side == "right"
        ),
    }
)


@aten("logcumsumexp")
def logcumsumexp(n: Site, x: Expr, dim: int) -> Expr:
    if not rank(x) or not is_float(n.dtype):
        return n.to(x)
    top = R.max(x, [dim % rank(x)], True)
    return R.add(R.log(R.cumsum(R.exp(R.subtract(x, top)), dim, n.dtype)), top)
