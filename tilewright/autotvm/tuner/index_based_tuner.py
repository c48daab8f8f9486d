"""Tuners that do not learn: all configurations in order, or in random order."""

from __future__ import annotations

from typing import Any

import numpy as np

from .tuner import Tuner

_WHOLE = 1 << 20  # the largest space that is shuffled as a whole


class IndexBaseTuner(Tuner):
    """Measures the configurations of a range of indices, including the first and the last."""

    def __init__(self, task: Any, range_idx: tuple[int, int] | None = None, seed: int = 0) -> None:
        super().__init__(task, seed)
        first, last = range_idx if range_idx is not None else (0, self.space.range_length - 1)
        if not 0 <= first <= last < self.space.range_length:
            raise ValueError(
                f"range_idx={range_idx} is not within the indices 0 to {self.space.range_length - 1}"
            )
        self.begin_idx, self.end_idx = int(first), int(last) + 1
        self.range_length = self.end_idx - self.begin_idx
        self.visited_max = self.space.subrange_length(self.begin_idx, self.end_idx)
        self.visited: list[int] = []

    def has_next(self) -> bool:
        return len(self.visited) < self.visited_max

    def _next(self) -> int | None:
        """The next index; None if there is none."""
        raise NotImplementedError

    def next_batch(self, batch_size: int) -> list[Any]:
        out: list[Any] = []
        while len(out) < batch_size and self.has_next():
            index = self._next()
            if index is None:
                break
            self.visited.append(index)
            out.append(self.space.get(index))
        return out

    def load_history(self, data_set: Any, min_seed_records: int = 8) -> None:
        """Ignore records: this tuner does not learn."""

    def reset(self) -> None:
        super().reset()
        self.visited = []


class GridSearchTuner(IndexBaseTuner):
    """Measures configurations in the order of their indices."""

    @property
    def index(self) -> int | None:
        """The next index to measure; None if there is none."""
        return self._next()

    def _next(self) -> int | None:
        at = self.visited[-1] if self.visited else self.begin_idx - 1
        found: int | None = self.space.get_next_index(at, 1, self.begin_idx, self.end_idx)
        return found


class RandomTuner(IndexBaseTuner):
    """Measures configurations in random order."""

    def __init__(self, task: Any, range_idx: tuple[int, int] | None = None, seed: int = 0) -> None:
        super().__init__(task, range_idx, seed)
        self._order: Any = None
        self._seen: set[int] = set()

    def _next(self) -> int | None:
        if self.range_length > _WHOLE:
            while True:
                index = int(self.rng.integers(self.begin_idx, self.end_idx))
                if index not in self._seen and self.space.is_index_valid(index):
                    self._seen.add(index)
                    return index
        if self._order is None:
            every = np.arange(self.begin_idx, self.end_idx)
            self._order = iter(self.rng.permutation(every[self.space.are_valid(every)]))
        found = next(self._order, None)
        return None if found is None else int(found)

    def reset(self) -> None:
        super().reset()
        self._order, self._seen = None, set()
