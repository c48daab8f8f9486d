"""Small helpers of programs and tuners, under their classic names."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from ..tune.arguments import get_const_int, get_const_tuple

__all__ = [
    "EmptyContext",
    "format_si_prefix",
    "get_const_int",
    "get_const_tuple",
    "get_func_name",
    "get_rank",
    "sample_ints",
]

_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class EmptyContext:
    """A `with` block that changes nothing."""

    def __enter__(self) -> EmptyContext:
        return self

    def __exit__(self, *ignored: object) -> None:
        pass


def format_si_prefix(value: float, si_prefix: str) -> float:
    """A number in units of an SI prefix: 2e9 with "G" is 2."""
    if si_prefix not in _PREFIXES:
        raise ValueError(f"there is no prefix {si_prefix!r}; there are {', '.join(filter(None, _PREFIXES))}")
    return value / _PREFIXES[si_prefix]


def get_rank(values: Sequence[float]) -> list[int]:
    """The rank of each number: 0 for the largest."""
    order = np.argsort(-np.asarray(values, float), kind="stable")
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return [int(r) for r in ranks]


def sample_ints(low: int, high: int, m: int, rng: Random | None = None) -> list[int]:
    """`m` different random integers from `low` up to, but not including, `high`."""
    return (rng or Random()).sample(range(low, high), m)


def get_func_name(func: Any) -> str:
    """The name of a function."""
    return str(getattr(func, "func_name", None) or getattr(func, "__name__", func))
