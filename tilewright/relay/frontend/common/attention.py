"""Attention over heads, and what its masks are made of."""

from __future__ import annotations

from typing import Any

import numpy as np

from .build import R, cast, constant, dtype_of, reshape, scalar, shape_of
from .matrices import matmul


def count_up(size: Any) -> Any:
    """0, 1, … of int32, for a size that may be dynamic."""
    if isinstance(size, int):
        return constant(np.arange(size, dtype=np.int32))
    ones = R.ones((size,), "int32")
    return R.subtract(R.cumsum(ones, axis=0), constant(np.int32(1)))


def heads_of(x: Any, heads: int) -> Any:
    """(batch, length, heads · width) as (batch, heads, length, width)."""
    batch, length, width = shape_of(x)
    return R.transpose(reshape(x, (batch, length, heads, width // heads)), [0, 2, 1, 3])


def joined_heads(x: Any) -> Any:
    """(batch, heads, length, width) as (batch, length, heads · width)."""
    batch, heads, length, width = shape_of(x)
    return reshape(R.transpose(x, [0, 2, 1, 3]), (batch, length, heads * width))


def lowest(like: Any) -> float:
    """The score of a masked key: the lowest number of the element type, finite as an average of such is."""
    return -65504.0 if dtype_of(like) == "float16" else -3.4028234663852886e38


def attend(
    query: Any,
    key: Any,
    value: Any,
    scale: float,
    bias: Any = None,
    seen: Any = None,
    softcap: float = 0.0,
    sink: Any = None,
) -> Any:
    """softmax(query · keyᵀ · scale + bias where seen) · value over (batch, heads, length, width).

    Each head of keys serves as many heads of queries as there are more of these. `softcap` bounds the scores by
    cap · tanh(score / cap); `sink`, which broadcasts to (batch, heads, length, 1), is a score without a value.
    """
    groups = shape_of(query)[1] // shape_of(key)[1]
    if groups > 1:
        key, value = (R.repeat(e, groups, 1) for e in (key, value))
    scores = matmul(R.multiply(query, scalar(scale, query)), R.transpose(key, [0, 1, 3, 2]))
    if softcap:
        cap = scalar(softcap, scores)
        scores = R.multiply(cap, R.tanh(R.divide(scores, cap)))
    if bias is not None:
        scores = R.add(scores, cast(bias, dtype_of(scores)))
    if seen is not None:
        scores = R.where(seen, scores, scalar(lowest(scores), scores))
    weights = R.nn.softmax(scores, 3) if sink is None else _with_sink(scores, sink)
    return matmul(weights, value)


def _with_sink(scores: Any, sink: Any) -> Any:
    """The softmax over the scores and one more, whose share is lost."""
    wide, extra = cast(scores, "float32"), cast(sink, "float32")
    top = R.maximum(R.max(wide, axis=[3], keepdims=True), extra)
    parts = R.exp(R.subtract(wide, top))
    total = R.add(R.sum(parts, axis=[3], keepdims=True), R.exp(R.subtract(extra, top)))
    return cast(R.divide(parts, total), dtype_of(scores))
