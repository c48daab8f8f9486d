"""The features of states for cost models."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .cost_model import features_of
from .loop_state import State
from .measure import MeasureInput, MeasureResult, time_of
from .measure_record import RecordReader

if TYPE_CHECKING:
    from .search_task import SearchTask

Array = Any


def get_per_store_features_from_states(states: Sequence[State], task: SearchTask) -> list[Array]:
    """The features of states of the search: one row for the whole program of each."""
    return [row[None] for row in features_of(task, states)] if states else []


def get_per_store_features_from_measure_pairs(
    inputs: Sequence[MeasureInput],
    results: Sequence[MeasureResult],
    skip_first_n_feature_extraction: int = 0,
) -> tuple[list[Array], Array, Array]:
    """The features of measured candidates, their speeds relative to the fastest of each program, and the numbers of
    their programs. The first `skip_first_n_feature_extraction`, and states made by hand, have no features."""
    features: list[Array] = []
    keys = [inp.task.task.workload for inp in inputs]
    numbers = {key: n for n, key in enumerate(dict.fromkeys(keys))}
    times = np.array([time_of(r) for r in results])
    fastest = {k: min(t for t, own in zip(times, keys, strict=True) if own == k) for k in numbers}
    for i, inp in enumerate(inputs):
        known = i >= skip_first_n_feature_extraction and inp.state.candidate[0] == "decisions"
        features.append(features_of(inp.task, [inp.state]) if known else np.zeros((0, 0)))
    speeds = [fastest[k] / t if np.isfinite(t) else 0.0 for t, k in zip(times, keys, strict=True)]
    return features, np.array(speeds), np.array([numbers[k] for k in keys])


def get_per_store_features_from_file(
    filename: str | os.PathLike[str], max_lines: int | None = None, max_n_bufs: int | None = None
) -> tuple[list[Array], Array, Array]:
    """`get_per_store_features_from_measure_pairs` of the first `max_lines` records of a file."""
    return get_per_store_features_from_measure_pairs(*RecordReader(filename).read_lines(max_lines))
