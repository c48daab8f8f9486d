"""Random numbers: uniform, normal, Bernoulli, multinomial, and dropout in training.

The generator of a node is made of its seed, or drawn from `numpy.random` at import if it has none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...expr import TupleGetItem
from ..common.random import generator, normal, uniform
from .build import R, cast, constant, dtype_of, is_float, scalar, shape_of
from .context import Node, converter
from .load import storage_dtype


def _generator(n: Node) -> Any:
    """The generator of a node. Of a seed its bits count, as seeds may differ only behind the point."""
    seed = n.attr("seed")
    return generator(None if seed is None else int(np.float32(seed).view(np.uint32)))


def _drawn(n: Node, shape: Any, kind: str) -> Any:
    if n.op_type.startswith("RandomNormal"):
        return normal(_generator(n), shape, kind, float(n.attr("mean", 0.0)), float(n.attr("scale", 1.0)))
    return uniform(_generator(n), shape, kind, float(n.attr("low", 0.0)), float(n.attr("high", 1.0)))


def _element(n: Node, like: str) -> str:
    """The element type that the attribute dtype gives, by default that of an input; it must be of floats."""
    kind = storage_dtype(n.attr("dtype")) if n.attr("dtype") else like
    if "float" not in kind:
        raise n.refuse(f"numbers of {kind} cannot be drawn; float16, bfloat16, float32 and float64 can")
    return kind


@converter("RandomNormal", "RandomUniform")
def random_of_shape(n: Node) -> Any:
    shape = n.attr("shape")
    if shape is None:
        raise n.refuse("the attribute shape is missing")
    return _drawn(n, shape, _element(n, "float32"))


@converter("RandomNormalLike", "RandomUniformLike")
def random_like(n: Node) -> Any:
    return _drawn(n, n.shape(0), _element(n, n.dtype(0)))


@converter("Bernoulli")
def bernoulli(n: Node) -> Any:
    """1 with the probability that the input has there, else 0."""
    kind = storage_dtype(n.attr("dtype")) if n.attr("dtype") else n.dtype(0)
    wide = "float64" if n.dtype(0) == "float64" else "float32"
    return cast(R.less(uniform(_generator(n), n.shape(0), wide), cast(n[0], wide)), kind)


@converter("Multinomial")
def multinomial(n: Node) -> Any:
    """Classes of each row, drawn by probabilities that are given as logarithms, not normalised."""
    count = int(n.attr("sample_size", 1))
    if count < 1:
        raise n.refuse(f"sample_size is {count}")
    share = R.nn.softmax(cast(n[0], "float32"), n.rank(0) - 1)
    made = TupleGetItem(R.random.multinomial(_generator(n), share, count), 1)
    return cast(made, storage_dtype(n.attr("dtype", 6)))


@converter("Dropout")
def dropout(n: Node) -> Any:
    """The input; in training mode a share `ratio` of its elements is 0 and the others grow by 1 / (1 - ratio)."""
    x = n[0]
    # Operators before opset 12 have no training mode that models are exported with.
    training = n.opset >= 12 and n.has(2) and bool(n.need(2).reshape(()))
    if not training:
        return [x, R.broadcast_to(constant(np.ones((), bool)), shape_of(x))]
    if not is_float(x):
        raise n.refuse(f"its input is {dtype_of(x)} and must be of floats")
    if n.has(1):
        ratio = R.reshape(n[1], ())
        ratio = cast(ratio, "float32") if dtype_of(ratio) != "float64" else ratio
    else:
        ratio = constant(np.float32(0.5))
    kept = R.greater_equal(uniform(_generator(n), shape_of(x), dtype_of(ratio)), ratio)
    larger = cast(R.divide(scalar(1, ratio), R.subtract(scalar(1, ratio), ratio)), dtype_of(x))
    return [R.where(kept, R.multiply(x, larger), scalar(0, x)), kept]
