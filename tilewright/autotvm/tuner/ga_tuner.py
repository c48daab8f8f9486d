"""A genetic algorithm: the genes of a configuration are its knobs, and faster configurations have more children."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..measure import MeasureInput, MeasureResult
from .tuner import Tuner, flops_of

_TRIES = 32  # mutations of a child that was measured before


class GATuner(Tuner):
    """Measures a population of `pop_size` configurations, keeps the best `elite_num` as parents, and makes children.

    A child has the knobs of two parents, each mutated with the probability `mutation_prob`. The population is at most
    an eighth of the number of trials.
    """

    def __init__(
        self,
        task: Any,
        pop_size: int = 100,
        elite_num: int = 3,
        mutation_prob: float = 0.1,
        seed: int = 0,
    ) -> None:
        super().__init__(task, seed)
        if pop_size < 2 or not 0 <= elite_num <= pop_size:
            raise ValueError(
                f"GATuner: elite_num={elite_num} of pop_size={pop_size}: pop_size must be at least 2, and elite_num at "
                "most pop_size"
            )
        self.pop_size, self.elite_num, self.mutation_prob = pop_size, elite_num, mutation_prob
        self.visited: set[int] = set()
        self.genes: list[int] = []  # the indices of this generation
        self.scores: dict[int, float] = {}  # of this generation, by index
        self.elites: list[tuple[float, int]] = []
        self.trial_pt = 0

    def has_next(self) -> bool:
        return len(self.visited) < len(self.space)

    def next_batch(self, batch_size: int) -> list[Any]:
        if not self.genes:
            self.genes = [int(i) for i in self.space.sample_ints(self._population(), self.rng)]
        chosen = self.genes[self.trial_pt : self.trial_pt + batch_size]
        self.trial_pt += len(chosen)
        self.visited.update(chosen)
        return [self.space.get(i) for i in chosen]

    def _population(self) -> int:
        few = max(8, self.n_trial // 8) if self.n_trial else self.pop_size
        return min(self.pop_size, few, len(self.space))

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            self.scores[inp.config.index] = flops_of(inp, result)
        if self.trial_pt >= len(self.genes) and self.has_next():
            self._breed()

    def _breed(self) -> None:
        """Make the next generation."""
        measured = {(score, index) for index, score in self.scores.items()}
        alive = sorted({*self.elites, *measured}, key=lambda p: (-p[0], p[1]))
        self.elites = alive[: self.elite_num]
        parents = [index for _, index in alive]
        # By rank, as speeds differ by orders of magnitude.
        chances = np.arange(len(alive), 0, -1, dtype=float) ** 2
        chances /= chances.sum()
        taken = set(self.visited)
        children: list[int] = []
        for _ in range(min(self._population(), len(self.space) - len(self.visited))):
            child = self._child(parents, chances, taken)
            if child is None:
                break
            taken.add(child)
            children.append(child)
        self.genes, self.scores, self.trial_pt = children, {}, 0

    def _child(self, parents: list[int], chances: Any, taken: set[int]) -> int | None:
        one, other = (parents[i] for i in self.rng.choice(len(parents), 2, p=chances))
        child = self.space.mutated(self.space.crossed(one, other, self.rng), self.mutation_prob, self.rng)
        for _ in range(_TRIES):
            if child not in taken and self.space.is_index_valid(child):
                return int(child)
            child = self.space.random_walk(child, self.rng)
        return self.space.sample_except(taken, self.rng)

    def load_history(self, data_set: Any, min_seed_records: int = 8) -> None:
        """Ignore records: this tuner does not learn."""

    def reset(self) -> None:
        super().reset()
        self.visited, self.genes, self.scores, self.elites, self.trial_pt = set(), [], {}, [], 0
