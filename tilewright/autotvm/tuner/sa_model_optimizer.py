"""Simulated annealing: random walks through a space, guided by a model.

t = 1 ──────▶ 0        a step to a better score is always taken, one to a worse score with the probability e^(gain / t)
"""

from __future__ import annotations

import heapq
from collections.abc import Collection
from typing import Any

import numpy as np

_WHOLE = 2048  # the largest space whose configurations are all scored, if features cost little


class ModelOptimizer:
    """Finds the configurations with the highest predicted scores."""

    def find_maximums(self, model: Any, num: int, exclusive: Collection[int]) -> list[int]:
        """The indices of up to `num` configurations, the best first, none of `exclusive`."""
        raise NotImplementedError


class SimulatedAnnealingOptimizer(ModelOptimizer):
    """Makes `parallel_size` walks of `n_iter` steps, with a temperature that falls from `temp[0]` to `temp[1]`.

    If `persistent`, walks continue where the last ones ended. They end early after `early_stop` steps without a change
    of the best configurations. `log_interval` changes nothing.
    """

    def __init__(
        self,
        task: Any,
        n_iter: int = 500,
        temp: float | tuple[float, float] = (1.0, 0.0),
        persistent: bool = True,
        parallel_size: int = 128,
        early_stop: int = 50,
        log_interval: int = 50,
        seed: int = 0,
    ) -> None:
        self.space = task.config_space
        self.n_iter, self.temp, self.persistent = n_iter, temp, persistent
        self.parallel_size = min(parallel_size, len(self.space))
        self.early_stop, self.log_interval = early_stop or n_iter, log_interval
        self.rng = np.random.default_rng(seed)
        self.points: Any = None

    def find_maximums(self, model: Any, num: int, exclusive: Collection[int]) -> list[int]:
        if self.space.range_length <= _WHOLE and not getattr(model, "costly", False):
            every = np.arange(self.space.range_length)
            every = every[self.space.are_valid(every)]
            best = _Best(num, set(exclusive))
            best.add(every, model.predict(every))
            return best.ranked()
        points = self.points
        if points is None or not self.persistent:
            points = self.space.sample_ints(self.parallel_size, self.rng)
        scores = model.predict(points)
        spread = max(float(np.std(scores)), 1e-6)  # the unit of temperatures
        best = _Best(num, set(exclusive))
        best.add(points, scores)
        changed = 0
        for k in range(self.n_iter):
            temperature = spread * self._temperature(k)
            steps = self.space.random_walks(points, self.rng)
            new = model.predict(steps)
            gain = np.minimum((new - scores) / (temperature + 1e-5 * spread), 0.0)
            accepted = self.rng.random(len(points)) < np.exp(gain)
            points, scores = np.where(accepted, steps, points), np.where(accepted, new, scores)
            if best.add(steps, new):
                changed = k
            elif k - changed >= self.early_stop:
                break
        if self.persistent:
            self.points = points
        return best.ranked()

    def _temperature(self, k: int) -> float:
        if isinstance(self.temp, (int, float)):
            return float(self.temp)
        high, low = self.temp
        return high + (low - high) * k / max(1, self.n_iter - 1)


class _Best:
    """The best configurations so far, without repetitions."""

    def __init__(self, num: int, gone: set[int]) -> None:
        self.num, self.gone = num, gone
        self.heap: list[tuple[float, int]] = []  # the worst of them first
        self.inside: set[int] = set()

    def add(self, indices: Any, scores: Any) -> bool:
        """Add the configurations that are good enough. Returns whether there were any."""
        changed = False
        worst = self.heap[0][0] if len(self.heap) >= self.num else -np.inf
        for i in np.flatnonzero(scores > worst):
            index, entry = int(indices[i]), (float(scores[i]), -int(indices[i]))
            if index in self.inside or index in self.gone:
                continue
            if len(self.heap) < self.num:
                heapq.heappush(self.heap, entry)
            elif entry > self.heap[0]:
                self.inside.discard(-heapq.heapreplace(self.heap, entry)[1])
            else:
                continue
            self.inside.add(index)
            changed = True
        return changed

    def ranked(self) -> list[int]:
        """The best first; of equal scores, the lower index first."""
        return [-index for _, index in sorted(self.heap, reverse=True)]
