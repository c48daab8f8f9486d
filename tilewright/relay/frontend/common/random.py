"""Random numbers of a compiled graph, which has no state: each draw has a generator that is a constant of the graph, so
that each run gives the same numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...expr import TupleGetItem
from .build import R, cast


def generator(seed: int | None) -> Any:
    """The generator of a seed, or of one that is drawn from `numpy.random` now."""
    return R.random.threefry_key(int(np.random.randint(1 << 31)) if seed is None else seed)


def _drawn(work: Any, key: Any, shape: Sequence[Any], kind: str, first: float, second: float) -> Any:
    """The numbers of a draw, beside which is the generator after it; of a narrow type, drawn as float32."""
    wide = "float64" if kind == "float64" else "float32"
    return cast(TupleGetItem(work(key, tuple(shape), wide, first, second), 1), kind)


def uniform(key: Any, shape: Sequence[Any], kind: str, low: float = 0.0, high: float = 1.0) -> Any:
    """Numbers from `low` to `high`."""
    return _drawn(R.random.uniform, key, shape, kind, low, high)


def normal(key: Any, shape: Sequence[Any], kind: str, mean: float = 0.0, scale: float = 1.0) -> Any:
    """Numbers around `mean` with the standard deviation `scale`."""
    return _drawn(R.random.normal, key, shape, kind, mean, scale)
