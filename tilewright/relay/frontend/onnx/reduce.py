"""Reductions along axes, running sums, softmax and its like."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .build import R, cast, dtype_of, is_float, rank, scalar, shape_of
from .context import Node, converter, rows


def reduced_axes(n: Node) -> list[int] | None:
    """The axes a reduction works on; None where it has nothing to do."""
    given: Any = None
    if n.has(1):
        given = n.ints(1)
    elif "axes" in n.attrs:
        given = n.attr("axes")
    if not given:
        if n.attr("noop_with_empty_axes", 0):
            return None
        return list(range(n.rank(0)))
    return n.fronts(given, n.rank(0))


def _reduction(build: Callable[[Any, list[int], bool], Any]) -> Callable[[Node], Any]:
    def run(n: Node) -> Any:
        axes = reduced_axes(n)
        return build(n[0], axes, n.flag("keepdims", 1)) if axes else _alone(n.op_type, n[0])

    return run


def _alone(name: str, x: Any) -> Any:
    """A reduction over no axes still does to each element what it does before it adds."""
    if name in ("ReduceL1", "ReduceL2"):
        return R.abs(x)
    if name == "ReduceSumSquare":
        return R.multiply(x, x)
    if name == "ReduceLogSum":
        return R.log(x)
    return R.copy(x)


def _wide(x: Any) -> Any:
    """16-bit floats are summed in 32 bits."""
    return cast(x, "float32") if dtype_of(x) in ("float16", "bfloat16") else x


def _mean(x: Any, axes: list[int], keep: bool) -> Any:
    if is_float(x):
        return R.mean(x, axis=axes, keepdims=keep)
    return cast(R.mean(cast(x, "float64"), axis=axes, keepdims=keep), dtype_of(x))


def _norm2(x: Any, axes: list[int], keep: bool) -> Any:
    wide = _wide(x) if is_float(x) else cast(x, "float64")
    return cast(R.sqrt(R.sum(R.multiply(wide, wide), axis=axes, keepdims=keep)), dtype_of(x))


def log_sum_exp(x: Any, axes: list[int], keep: bool) -> Any:
    """log(sum(exp(x))) without overflow; of nothing it is -inf."""
    wide = _wide(x) if is_float(x) else cast(x, "float64")
    if any(isinstance(shape_of(x)[d], int) and shape_of(x)[d] == 0 for d in axes):
        return cast(R.log(R.sum(R.exp(wide), axis=axes, keepdims=keep)), dtype_of(x))
    top = R.max(wide, axis=axes, keepdims=True)
    top = R.where(R.isfinite(top), top, scalar(0, top))
    total = R.sum(R.exp(R.subtract(wide, top)), axis=axes, keepdims=keep)
    base = top if keep else R.squeeze(top, axes)
    return cast(R.add(R.log(total), base), dtype_of(x))


def _extreme(work: Callable[..., Any], nothing: int) -> Callable[[Any, list[int], bool], Any]:
    """The greatest or least element; of nothing it is the least or greatest value of the type."""

    def run(x: Any, axes: list[int], keep: bool) -> Any:
        if any(isinstance(shape_of(x)[d], int) and shape_of(x)[d] == 0 for d in axes):
            return R.full(
                _limit(x, nothing),
                [1 if d in axes else s for d, s in enumerate(shape_of(x)) if keep or d not in axes],
            )
        if dtype_of(x) == "bool":
            return cast(work(cast(x, "int8"), axis=axes, keepdims=keep), "bool")
        return work(x, axis=axes, keepdims=keep)

    return run


def _limit(x: Any, sign: int) -> Any:
    kind = dtype_of(x)
    if kind == "bool":
        return scalar(sign > 0, x)
    if is_float(x):
        return scalar(sign * math.inf, x)
    facts = np.iinfo(kind)
    return scalar(int(facts.max if sign > 0 else facts.min), x)


def _place(work: Callable[..., Any]) -> Callable[[Node], Any]:
    def run(n: Node) -> Any:
        keep, last = n.flag("keepdims", 1), n.flag("select_last_index", 0)
        return cast(work(n[0], axis=n.axis(0), keepdims=keep, select_last_index=last), "int64")

    return run


def _running(work: Callable[..., Any]) -> Callable[[Node], Any]:
    def run(n: Node) -> Any:
        axis = n.front(n.ints(1)[0], n.rank(0))
        x = n[0]
        if n.attr("reverse", 0):
            x = R.reverse(x, axis)
        x = work(x, axis=axis, exclusive=n.flag("exclusive", 0))
        return R.reverse(x, axis) if n.attr("reverse", 0) else x

    return run


rows(
    {
        "ReduceSum": _reduction(lambda x, axes, keep: R.sum(x, axis=axes, keepdims=keep)),
        "ReduceProd": _reduction(lambda x, axes, keep: R.prod(x, axis=axes, keepdims=keep)),
        "ReduceMax": _reduction(_extreme(R.max, -1)),
        "ReduceMin": _reduction(_extreme(R.min, 1)),
        "ReduceMean": _reduction(_mean),
        "ReduceL1": _reduction(lambda x, axes, keep: R.sum(R.abs(x), axis=axes, keepdims=keep)),
        "ReduceL2": _reduction(_norm2),
        "ReduceSumSquare": _reduction(
            lambda x, axes, keep: R.sum(R.multiply(x, x), axis=axes, keepdims=keep)
        ),
        "ReduceLogSum": _reduction(lambda x, axes, keep: R.log(R.sum(x, axis=axes, keepdims=keep))),
        "ReduceLogSumExp": _reduction(log_sum_exp),
        "ArgMax": _place(R.argmax),
        "ArgMin": _place(R.argmin),
        "CumSum": _running(R.cumsum),
        "CumProd": _running(R.cumprod),
    }
)


# ---------------------------------------------------------------------------- softmax
def over_the_rest(x: Any, axis: int, build: Callable[[Any, int], Any]) -> Any:
    """Before opset 13: over all dimensions from `axis` on, as one."""
    shape = shape_of(x)
    if axis == rank(x) - 1:
        return build(x, axis)
    joined = R.reshape(x, [*([0] * axis), -1])
    return (
        R.reshape(build(joined, axis), shape) if is_whole(shape) else R.reshape_like(build(joined, axis), x)
    )


def is_whole(shape: Any) -> bool:
    return all(isinstance(d, int) for d in shape)


def _softmax_like(name: str, build: Callable[[Any, int], Any]) -> None:
    converter(name)(lambda n: over_the_rest(n[0], n.axis(1), build))
    converter(name, since=13)(lambda n: build(n[0], n.axis(-1)))


def hardmax_of(x: Any, axis: int) -> Any:
    """1 at the first greatest element, else 0."""
    best = R.argmax(x, axis=axis, keepdims=True)
    shape = [1] * rank(x)
    size = shape_of(x)[axis]
    shape[axis] = size
    index = R.reshape(R.arange(scalar(0, best), scalar(size, best), scalar(1, best), dtype_of(best)), shape)
    return cast(R.equal(index, best), dtype_of(x))


_softmax_like("Softmax", lambda x, axis: R.nn.softmax(x, axis))
_softmax_like("LogSoftmax", lambda x, axis: R.nn.log_softmax(x, axis))
_softmax_like("Hardmax", hardmax_of)
