"""Equations whose operands are known at import, computed with NumPy: index arithmetic, masks, counts.

Other equations over constants become expressions over constants, which FoldConstant computes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from .values import is_uniform

# Most elements of a folded result; one repeated element takes no memory.
_LIMIT = 1 << 22


def _iota(*, dimension: int, dtype: Any, shape: Sequence[int]) -> Any:
    line = np.arange(shape[dimension], dtype=dtype)
    return np.broadcast_to(line.reshape([-1 if d == dimension else 1 for d in range(len(shape))]), shape)


def _broadcast(x: Any, *, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Any:
    view = [1] * len(shape)
    for size, d in zip(x.shape, broadcast_dimensions, strict=True):
        view[d] = size
    return np.broadcast_to(x.reshape(view), shape)


def _select(which: Any, *cases: Any) -> Any:
    if len(cases) == 2:
        return np.where(which.astype(bool), cases[1], cases[0])
    return np.choose(which, cases)


def _div(a: Any, b: Any) -> Any:
    if np.issubdtype(np.result_type(a), np.integer):
        whole = np.abs(a) // np.abs(b)
        return (whole * np.sign(a) * np.sign(b)).astype(np.result_type(a))
    return a / b


def _slice(x: Any, *, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = strides or [1] * x.ndim
    return x[tuple(slice(*part) for part in zip(start_indices, limit_indices, steps, strict=True))]


_FOLDS: dict[str, Callable[..., Any]] = {
    "iota": _iota,
    "broadcast_in_dim": _broadcast,
    "reshape": lambda x, new_sizes: x.reshape(new_sizes),
    "squeeze": lambda x, dimensions: np.squeeze(x, tuple(dimensions)),
    "transpose": lambda x, permutation: x.transpose(permutation),
    "rev": lambda x, dimensions: np.flip(x, tuple(dimensions)),
    "slice": _slice,
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "stack": lambda *xs, axis: np.stack(xs, axis),
    "tile": lambda x, reps: np.tile(x, reps),
    "convert_element_type": lambda x, new_dtype: x.astype(new_dtype),
    "stop_gradient": lambda x: x,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "select_n": _select,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _div,
    "rem": np.fmod,
    "max": np.maximum,
    "min": np.minimum,
    "neg": np.negative,
    "sign": np.sign,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "sqrt": np.sqrt,
    "square": np.square,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "pow": np.power,
    "integer_pow": lambda x, y: np.power(x, y),
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "reduce_sum": lambda x, axes: np.sum(x, axis=tuple(axes), dtype=x.dtype),
    "reduce_max": lambda x, axes: np.max(x, axis=tuple(axes)),
    "reduce_min": lambda x, axes: np.min(x, axis=tuple(axes)),
    "reduce_and": lambda x, axes: np.bitwise_and.reduce(x, axis=tuple(axes)),
    "reduce_or": lambda x, axes: np.bitwise_or.reduce(x, axis=tuple(axes)),
    "cumsum": lambda x, axis: np.cumsum(x, axis, dtype=x.dtype),
}


def folded(name: str, arrays: Sequence[Any], params: Mapping[str, Any], kind: Any) -> Any:
    """The result of an equation over known arrays; None if it is not computed here."""
    work = _FOLDS.get(name)
    if work is None or not all(isinstance(d, int) for d in kind.shape):
        return None
    if name != "broadcast_in_dim" and math.prod(kind.shape) > _LIMIT:
        return None
    taken = dict(params)
    for word in ("sharding", "out_sharding", "accuracy", "weak_type", "out_dtype"):
        taken.pop(word, None)
    if taken.pop("reverse", False) or (name == "reshape" and taken.pop("dimensions", None) is not None):
        return None
    with np.errstate(all="ignore"):
        made = np.asarray(work(*arrays, **taken))
    return _one_element(made.astype(str(kind.dtype), copy=False), arrays)


def _one_element(made: Any, arrays: Sequence[Any]) -> Any:
    """An elementwise result of repeated elements as a view of one element."""
    if made.ndim and made.size > 1 and not is_uniform(made) and all(is_uniform(a) for a in arrays) and arrays:
        first = made.reshape(-1)[:1]
        if np.array_equal(made, np.broadcast_to(first.reshape([1] * made.ndim), made.shape), equal_nan=False):
            return np.broadcast_to(first.reshape([1] * made.ndim), made.shape)
    return made
