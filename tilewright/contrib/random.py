"""Tensors of random numbers, drawn each time that the program runs."""

from __future__ import annotations

from typing import Any

from .. import te
from ..ir.ops import call_packed
from ..runtime.registry import get_global_func


def _filled(name: str, size: Any, dtype: str, *figures: Any) -> Any:
    return te.extern(
        size, [], lambda ins, outs: call_packed(f"tvm.contrib.random.{name}", *figures, outs[0]), dtype=dtype
    )


def randint(low: int, high: int, size: Any, dtype: str = "int32") -> Any:
    """Integers from `low` up to `high`, which is excluded."""
    if "int" not in dtype:
        raise ValueError(f"contrib.random.randint gives integers, not {dtype}")
    return _filled("randint", size, dtype, int(low), int(high))


def uniform(low: float, high: float, size: Any) -> Any:
    """Numbers from `low` up to `high`, which is excluded, all equally likely."""
    return _filled("uniform", size, "float32", float(low), float(high))


def normal(loc: float, scale: float, size: Any) -> Any:
    """Numbers around `loc` with the standard deviation `scale`."""
    return _filled("normal", size, "float32", float(loc), float(scale))


def seed(value: int) -> None:
    """Start the random numbers anew."""
    get_global_func("tvm.contrib.random.seed")(value)
