"""Model-based tuning: configurations with good predictions are measured, and the model learns from the results.

    measured ──fit──▶ cost model ──find_maximums──▶ a plan of configurations ──▶ measured …

One configuration in seven is random. The first plans are short, so that the model is used after a few trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..measure import MeasureInput, MeasureResult
from .sa_model_optimizer import ModelOptimizer
from .tuner import Tuner, flops_of

_EPSILON = 0.15  # the fraction of random configurations
_FIRST = 8  # measurements before the first training of the model


class CostModel:
    """Predicts the speed of configurations: the higher the better."""

    costly = False  # whether the features of a configuration require an instantiation
    informed = False  # whether predictions mean something before the first training

    def fit(self, xs: Sequence[int], ys: Sequence[float], plan_size: int) -> None:
        """Learn from the speeds `ys` of the configurations `xs`, in operations per second; 0 for failures."""
        raise NotImplementedError

    def fit_log(
        self,
        records: Iterable[tuple[MeasureInput, MeasureResult]],
        plan_size: int,
        min_seed_records: int = 8,
    ) -> bool:
        """Learn from records of other tasks. Returns whether there were enough of them."""
        raise NotImplementedError

    def predict(self, xs: Any, output_margin: bool = False) -> Any:
        """The predicted scores of configurations."""
        raise NotImplementedError


class ModelBasedTuner(Tuner):
    """Measures plans of `plan_size` configurations, which an optimizer finds by a cost model.

    With `diversity_filter_ratio`, a plan is chosen from that many times as many configurations, so that it has many
    different values of each knob.
    """

    def __init__(
        self,
        task: Any,
        cost_model: CostModel,
        model_optimizer: ModelOptimizer,
        plan_size: int,
        diversity_filter_ratio: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(task, seed)
        if diversity_filter_ratio is not None and diversity_filter_ratio < 1:
            raise ValueError(f"diversity_filter_ratio={diversity_filter_ratio} must be 1 or more")
        self.cost_model, self.model_optimizer = cost_model, model_optimizer
        self.plan_size, self.diversity_filter_ratio = plan_size, diversity_filter_ratio
        self._start()

    def _start(self) -> None:
        self.visited: set[int] = set()
        self.xs: list[int] = []
        self.ys: list[float] = []
        self.flops_max = 0.0
        self.trials: list[int] = []
        self.trial_pt = 0
        self.train_ct = 0
        self._due = min(_FIRST, self.plan_size)

    def has_next(self) -> bool:
        return len(self.visited) < len(self.space)

    def next_batch(self, batch_size: int) -> list[Any]:
        out: list[Any] = []
        if not self.visited and not self.trials and self.cost_model.informed:
            self.visited.update(self.space.known)
            self._plan()
        while len(out) < batch_size and self.has_next():
            index = None
            if self.rng.random() >= _EPSILON:
                index = self._planned()
            if index is None:
                index = self.space.sample_except(self.visited, self.rng)
            if index is None:
                break
            self.visited.add(index)
            out.append(self.space.get(index))
        return out

    def _planned(self) -> int | None:
        while self.trial_pt < len(self.trials):
            index = self.trials[self.trial_pt]
            self.trial_pt += 1
            if index not in self.visited:
                return index
        return None

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, result in zip(inputs, results, strict=True):
            flops = flops_of(inp, result)
            self.xs.append(inp.config.index)
            self.ys.append(flops)
            self.flops_max = max(self.flops_max, flops)
        if len(self.xs) >= self._due and self.flops_max > 0:
            self.cost_model.fit(self.xs, self.ys, self.plan_size)
            self._plan()
            self._due = len(self.xs) + min(self.plan_size, max(_FIRST, len(self.xs)))

    def _plan(self) -> None:
        """Choose the next configurations by the model."""
        if self.diversity_filter_ratio is None:
            self.trials = self.model_optimizer.find_maximums(self.cost_model, self.plan_size, self.visited)
        else:
            wanted = int(self.plan_size * self.diversity_filter_ratio)
            found = np.array(
                self.model_optimizer.find_maximums(self.cost_model, wanted, self.visited), np.int64
            )
            scores = self.cost_model.predict(found) if len(found) else np.zeros(0)
            chosen = submodular_pick(scores, self.space.points(found), self.plan_size)
            self.trials = [int(found[i]) for i in chosen]
        self.trial_pt = 0
        self.train_ct += 1

    def load_history(
        self, data_set: Iterable[tuple[MeasureInput, MeasureResult]], min_seed_records: int = 8
    ) -> None:
        """Train the model on records of this task, or of others of its template, and begin with a plan by it."""
        if self.cost_model.fit_log(data_set, self.plan_size, min_seed_records):
            self._plan()
            self.train_ct = 0

    def reset(self) -> None:
        super().reset()
        self._start()


def point2knob(p: int, dims: Sequence[int]) -> list[int]:
    """An index as the number of a candidate for each knob."""
    out = []
    for n in dims:
        p, digit = divmod(p, n)
        out.append(digit)
    return out


def submodular_pick(scores: Any, knobs: Any, n_pick: int, knob_weight: float = 1.0) -> list[int]:
    """The candidates to take, one after the other: those with high scores, and with new values of knobs.

    A new value counts as much as the standard deviation of the scores, times `knob_weight`.
    """
    scores, knobs = np.asarray(scores, float), np.asarray(knobs)
    spread = (float(np.std(scores)) if len(scores) else 0.0) or 1.0
    seen: list[set[int]] = [set() for _ in range(knobs.shape[1] if knobs.ndim == 2 else 0)]
    left = list(range(len(scores)))
    chosen: list[int] = []
    while left and len(chosen) < n_pick:
        new = [sum(int(v) not in s for v, s in zip(knobs[i], seen, strict=True)) for i in left]
        best = int(np.argmax(scores[left] / spread + knob_weight * np.array(new, float)))
        i = left.pop(best)
        chosen.append(i)
        for v, s in zip(knobs[i], seen, strict=True):
            s.add(int(v))
    return chosen
