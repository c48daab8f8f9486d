"""Random numbers in graphs: generators go in and come out, so that a graph has no state.

key = relay.random.threefry_key(7)
key, x = relay.TupleWrapper(relay.random.uniform(key, (2, 3)), 2)
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ..expr import Call, Constant, Expr, const
from ..ty import TensorType, TupleType, Type
from .computes import topi
from .registry import Constructor, Dtype, Sizes, Tensor, given, operator, refuse
from .shapes import need_dtype, need_rank, need_scalar

__all__ = ["multinomial", "normal", "threefry_generate", "threefry_key", "threefry_split", "uniform"]


def threefry_key(seed: int) -> Constant:
    """The generator of a number of up to 256 bits."""
    words = np.frombuffer(int(seed).to_bytes(32, sys.byteorder), "uint64")
    return const(np.concatenate([words, np.array([0, 0, 0, 0, 1 << 63, 0], "uint64")]))


def _need_key(key: TensorType) -> TensorType:
    if tuple(key.shape) != (10,) or key.dtype != "uint64":
        raise refuse(f"is {key} and must be a generator, ten words of uint64: use threefry_key", "key")
    return key


@operator(
    "random.threefry_generate",
    rel=lambda types, attrs: TupleType((_need_key(types[0]), TensorType(attrs.shape, "uint64"))),
    compute=lambda attrs, ins, out: topi.random.threefry_generate(ins[0], attrs.shape),
)
def threefry_generate(key: Tensor, shape: Sizes) -> Call:
    """The generator after, and random words of 64 bits."""


@operator(
    "random.threefry_split",
    rel=lambda types, attrs: TupleType((_need_key(types[0]),) * 2),
    compute="random.threefry_split",
)
def threefry_split(key: Tensor) -> Call:
    """Two generators of one, which is not to be used again."""


def _drawn_rel(types: list[Any], attrs: Any) -> Type:
    key, *numbers = types
    if attrs.dtype not in ("float32", "float64"):
        raise refuse(f"is {attrs.dtype} and must be float32 or float64", "dtype")
    for kind in numbers:
        need_scalar(kind, "a parameter")
        need_dtype(kind, attrs.dtype, "a parameter")
    return TupleType((_need_key(key), TensorType(attrs.shape, attrs.dtype)))


def _drawn(name: str, *parameters: str) -> Callable[[Constructor], Constructor]:
    """A distribution with two parameters."""
    return operator(
        f"random.{name}",
        rel=_drawn_rel,
        compute=lambda attrs, ins, out: list(getattr(topi.random, name)(*ins, attrs.shape, str(attrs.dtype))),
        inputs=("key", *parameters),
    )


def _scalar(value: Any, dtype: Any) -> Any:
    return value if isinstance(value, Expr) else const(value, str(dtype))


@_drawn("uniform", "low", "high")
def uniform(
    key: Tensor, shape: Sizes, dtype: Dtype = "float32", low: Tensor = 0.0, high: Tensor = 1.0
) -> Call:
    """The generator after, and numbers from `low` (inclusive) to `high` (exclusive)."""
    return given(low=_scalar(low, dtype), high=_scalar(high, dtype))


@_drawn("normal", "mean", "scale")
def normal(
    key: Tensor, shape: Sizes, dtype: Dtype = "float32", mean: Tensor = 0.0, scale: Tensor = 1.0
) -> Call:
    """The generator after, and numbers around `mean` with the standard deviation `scale`."""
    return given(mean=_scalar(mean, dtype), scale=_scalar(scale, dtype))


def _multinomial_rel(types: list[Any], attrs: Any) -> Type:
    key, probs = types
    if not probs.shape:
        need_rank(probs, 1, "probs")
    shape = (*probs.shape[:-1], attrs.num_samples)
    return TupleType((_need_key(key), TensorType(shape, "int32")))


@operator(
    "random.multinomial",
    rel=_multinomial_rel,
    compute="random.multinomial",
)
def multinomial(key: Tensor, probs: Tensor, num_samples: int) -> Call:
    """The generator after, and indices of the last axis, each as likely as its share of `probs`."""
