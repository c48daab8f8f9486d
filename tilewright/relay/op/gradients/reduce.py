"""Gradients of reductions, broadcasts and scans."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...expr import Call, const
from ..computes import R
from ..shapes import axes_of
from .parts import is_static, ndim, number, shape, shaped_as, sizes, summed_to


def _axes(call: Call) -> tuple[int, ...]:
    rank, attrs = ndim(call.args[0]), call.attrs
    found = axes_of(attrs.axis, rank)
    return tuple(sorted(set(range(rank)) - set(found) if attrs.exclude else found))


def _kept(value: Any, call: Call) -> Any:
    """A result of a reduction, or its gradient, with the dimensions that were reduced as 1."""
    if call.attrs.keepdims:
        return value
    for d in _axes(call):
        value = R.expand_dims(value, axis=d)
    return value


def _spread(value: Any, call: Call) -> Any:
    """A result of a reduction, or its gradient, in the shape of the data."""
    data = call.args[0]
    kept = _kept(value, call)
    return R.broadcast_to(kept, shape(data)) if is_static(data) else R.broadcast_to_like(kept, data)


def _count(call: Call) -> Any:
    """The number of elements that are reduced to one."""
    data, axes = call.args[0], _axes(call)
    dims = [shape(data)[d] for d in axes]
    if all(isinstance(d, int) for d in dims):
        return number(math.prod(dims), data)
    ratio = R.divide(
        R.cast(R.ndarray_size(data, "int64"), "float64"), R.cast(R.ndarray_size(call, "int64"), "float64")
    )
    return R.cast(ratio, str(data.checked_type.dtype))


def sum(call: Call, grad: Any) -> list[Any]:
    return [_spread(grad, call)]


def mean(call: Call, grad: Any) -> list[Any]:
    return [_spread(grad / _count(call), call)]


def extreme(call: Call, grad: Any) -> list[Any]:
    """The rule of the greatest and of the smallest element: equal ones share the gradient."""
    data = call.args[0]
    same = R.cast(R.equal(data, _kept(call, call)), str(data.checked_type.dtype))
    ties = R.sum(same, axis=_axes(call), keepdims=True)
    return [same * (_kept(grad, call) / ties)]


def logsumexp(call: Call, grad: Any) -> list[Any]:
    return [_kept(grad, call) * R.exp(call.args[0] - _kept(call, call))]


def prod(call: Call, grad: Any) -> list[Any]:
    """The product of all others, from both sides, so that zeros are no exception."""
    data, dims, axes = call.args[0], sizes(call), _axes(call)
    rest = [d for d in range(len(dims)) if d not in axes]
    order = [*rest, *axes]
    inner = math.prod(dims[d] for d in axes)
    rows = R.reshape(R.transpose(data, order), (-1, inner))
    below = R.cumprod(rows, axis=1, exclusive=True)
    above = R.reverse(R.cumprod(R.reverse(rows, axis=1), axis=1, exclusive=True), axis=1)
    others = R.reshape(below * above, [dims[d] for d in order])
    back = R.transpose(others, [order.index(d) for d in range(len(dims))])
    return [_kept(grad, call) * back]


def variance(call: Call, grad: Any) -> list[Any]:
    data, middle = call.args
    count = _count(call)
    if call.attrs.unbiased:
        count = count - number(1, data)
    slope = _kept(grad, call) * (data - middle) * (number(2, data) / count)
    return [slope, R.negative(summed_to(slope, data, middle))]


# ---------------------------------------------------------------------------- broadcasts
def broadcast_to(call: Call, grad: Any) -> list[Any]:
    data = call.args[0]
    made = summed_to(grad, call, data)
    if call.checked_type.dtype != data.checked_type.dtype:
        made = R.cast(made, str(data.checked_type.dtype))
    return [made, *[None] * (len(call.args) - 1)]


def collapse_sum(call: Call, grad: Any) -> list[Any]:
    data = call.args[0]
    made = R.broadcast_to(grad, shape(data)) if is_static(data) else R.broadcast_to_like(grad, data)
    return [made, *[None] * (len(call.args) - 1)]


def tile(call: Call, grad: Any) -> list[Any]:
    dims, reps = sizes(call), call.attrs.reps
    rank = max(len(dims), len(reps))
    full = (1,) * (rank - len(dims)) + dims
    times = (1,) * (rank - len(reps)) + tuple(reps)
    parted = [v for pair in zip(times, full, strict=True) for v in pair]
    total = R.sum(R.reshape(grad, parted), axis=[2 * d for d in range(rank)])
    return [shaped_as(total, call.args[0])]


def repeat(call: Call, grad: Any) -> list[Any]:
    dims, axis, times = sizes(call), call.attrs.axis, call.attrs.repeats
    if axis is None:
        return [shaped_as(R.sum(R.reshape(grad, (-1, times)), axis=1), call.args[0])]
    at = axis % len(dims)
    parted = (*dims[: at + 1], times, *dims[at + 1 :])
    return [R.sum(R.reshape(grad, parted), axis=at + 1)]


# ---------------------------------------------------------------------------- scans
def _scanned(call: Call) -> tuple[int, Any]:
    """The axis of a scan, and its data with that axis."""
    data = call.args[0]
    if call.attrs.axis is None:
        return 0, R.reshape(data, (-1,))
    return call.attrs.axis[0] % ndim(data), data


def cumsum(call: Call, grad: Any) -> list[Any]:
    data = call.args[0]
    axis, _ = _scanned(call)
    made = R.cumsum(R.reverse(grad, axis=axis), axis=axis, exclusive=call.attrs.exclusive)
    return [shaped_as(R.cast(R.reverse(made, axis=axis), str(data.checked_type.dtype)), data)]


def cumprod(call: Call, grad: Any) -> list[Any]:
    """For each element the products without it, summed: zeros are no exception, and the work is quadratic."""
    dims, data = sizes(call), call.args[0]
    axis, line = _scanned(call)
    if call.attrs.axis is None:
        dims = (math.prod(dims),)
    count, dtype = dims[axis], str(data.checked_type.dtype)
    after = len(dims) - axis - 1
    own = const(np.eye(count, dtype=bool).reshape(count, count, *(1,) * after))
    rows = R.expand_dims(R.cast(line, str(call.checked_type.dtype)), axis=axis)
    without = R.where(own, R.ones_like(rows), rows)
    products = R.cumprod(without, axis=axis + 1, exclusive=call.attrs.exclusive)
    later = np.triu(np.ones((count, count)), 1 if call.attrs.exclusive else 0)
    weights = const(later.reshape(count, count, *(1,) * after), str(call.checked_type.dtype))
    total = R.sum(products * weights * R.expand_dims(grad, axis=axis), axis=axis + 1)
    return [shaped_as(R.cast(total, dtype), data)]
