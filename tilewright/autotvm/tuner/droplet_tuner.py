"""Coordinate descent: from a configuration to its fastest neighbour, as a droplet flows downhill."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..measure import MeasureInput, MeasureResult
from .tuner import Tuner


class DropletTuner(Tuner):
    """Measures the neighbours of the best configuration, which differ by one step up or down in one knob.

    If a neighbour is faster, significantly at the level `pvalue`, the search continues from there with a longer step.
    It ends at a configuration without a faster neighbour. `start_position` has the candidate of each knob to begin
    with; the first one of each by default.
    """

    def __init__(
        self, task: Any, start_position: Sequence[int] | None = None, pvalue: float = 0.05, seed: int = 0
    ) -> None:
        super().__init__(task, seed)
        self.dims = [int(n) for n in self.space.dims]
        begin = [0] * len(self.dims) if start_position is None else [int(x) for x in start_position]
        if len(begin) != len(self.dims) or any(not 0 <= x < n for x, n in zip(begin, self.dims, strict=True)):
            raise ValueError(f"start_position={begin} is not within the knobs of {self.dims} candidates")
        self.start, self.pvalue = begin, pvalue
        self._start()

    def _start(self) -> None:
        self.at, self.costs = list(self.start), np.array([math.inf])
        self.step = 1
        self.visited: set[int] = set()
        self.queue: list[int] = []
        self._ask(self.space.knob2point(self.start))
        if not self.queue:  # the filter of the space excludes it
            self._ask(int(self.space.sample_ints(1, self.rng)[0]))
        self._measured: list[tuple[list[int], Any]] = []

    def _ask(self, index: int) -> None:
        if index not in self.visited and self.space.is_index_valid(index):
            self.visited.add(index)
            self.queue.append(index)

    def has_next(self) -> bool:
        return bool(self.queue)

    def next_batch(self, batch_size: int) -> list[Any]:
        chosen, self.queue = self.queue[:batch_size], self.queue[batch_size:]
        return [self.space.get(i) for i in chosen]

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            costs = np.array([math.inf]) if result.error_no else np.asarray(result.costs, float)
            self._measured.append((self.space.point2knob(inp.config.index), costs))
        if not self.queue:  # all neighbours are measured
            self._flow()

    def _flow(self) -> None:
        """Move to the best neighbour if it is faster, with a longer step; else shorten the step, and end after that."""
        place, costs = min(self._measured, key=lambda m: float(m[1].mean()))
        self._measured = []
        if _faster(costs, self.costs, self.pvalue):
            self.at, self.costs, self.step = place, costs, 2 if self.step == 1 else 2 * self.step
        else:
            self.step = 1 if self.step > 1 else 0
        while self.step and not self.queue:
            self._neighbours()
            if not self.queue:
                self.step = 1 if self.step > 1 else 0

    def _neighbours(self) -> None:
        for k, n in enumerate(self.dims):
            for way in (self.step, -self.step):
                moved = list(self.at)
                moved[k] = min(n - 1, max(0, moved[k] + way))
                self._ask(self.space.knob2point(moved))

    def load_history(self, data_set: Any, min_seed_records: int = 8) -> None:
        """Ignore records: this tuner does not learn."""

    def reset(self) -> None:
        super().reset()
        self._start()


def _faster(new: Any, old: Any, pvalue: float) -> bool:
    """Whether times are significantly lower than others, by Welch's test with the normal distribution."""
    if not np.isfinite(old).all():
        return bool(np.isfinite(new).all())
    if not np.isfinite(new).all() or new.mean() >= old.mean():
        return False
    if len(new) < 2 or len(old) < 2:
        return True
    error = math.sqrt(new.var(ddof=1) / len(new) + old.var(ddof=1) / len(old))
    if error == 0:
        return True
    z = float((old.mean() - new.mean()) / error)
    return 0.5 * math.erfc(z / math.sqrt(2)) <= pvalue
