"""Small things that programs and tuners share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np

from ..ir.expr import const_value

_PREFIXES = {"n": 1e-9, "u": 1e-6, "m": 1e-3, "": 1.0, "K": 1e3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class EmptyContext:
    """A `with` block that changes nothing."""

    def __enter__(self) -> EmptyContext:
        return self

    def __exit__(self, *ignored: object) -> None:
        pass


def format_si_prefix(value: float, si_prefix: str) -> float:
    """A number in units of a prefix: 2e9 with "G" is 2."""
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
    """m different integers from `low` to below `high`, at random."""
    return (rng or Random()).sample(range(low, high), m)


def get_const_int(expr: Any) -> int:
    """An integer of something that is one."""
    value = expr if isinstance(expr, int) else const_value(expr)
    if value is None:
        raise ValueError(f"a constant is expected, not `{expr}`")
    return int(value)


def get_const_tuple(shape: Iterable[Any]) -> tuple[int, ...]:
    """A shape in numbers."""
    return tuple(get_const_int(d) for d in shape)


def get_func_name(func: Any) -> str:
    """What a function is called."""
    return str(getattr(func, "func_name", None) or getattr(func, "__name__", func))
