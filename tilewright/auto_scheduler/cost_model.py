"""Cost models under the classic names; they predict scores of candidates, of which higher is better."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from ..tune.errors import TuneError
from ..tune.search.cost_models import CostModel as EngineModel
from ..tune.search.cost_models import TreeModel, cost_model
from ..tune.space import Sketches, Space
from .loop_state import State
from .measure import MeasureInput, MeasureResult, time_of

if TYPE_CHECKING:
    from .search_task import SearchTask

Array = Any
_SPREAD = 0.3  # assumed standard deviation of the logarithms of candidates' times


class CostModel:
    """Scores states, and learns from measurements."""

    def engine(self, target: Any, seed: int) -> EngineModel:
        """The cost model of the engine."""
        raise NotImplementedError

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measurements."""
        raise NotImplementedError

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        """The scores of states."""
        raise NotImplementedError


class _Engines(CostModel):
    """A cost model of the engine, made on first use."""

    def __init__(self, seed: int | None) -> None:
        self._seed = seed
        self._model: EngineModel | None = None

    def _make(self, target: Any, seed: int) -> EngineModel:
        raise NotImplementedError

    def engine(self, target: Any, seed: int = 0) -> EngineModel:
        if self._model is None:
            self._model = self._make(target, seed if self._seed is None else self._seed)
        return self._model

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        features = features_of(task, states)
        return -np.asarray(self.engine(task.target).predict(features))

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        groups: dict[str, list[int]] = {}
        for i, inp in enumerate(inputs):
            if inp.state.candidate[0] == "decisions":
                groups.setdefault(inp.task.task.workload, []).append(i)
        for numbers in groups.values():
            task = inputs[numbers[0]].task
            features = features_of(task, [inputs[i].state for i in numbers])
            seconds = np.array([time_of(results[i]) for i in numbers])
            self.engine(task.target).update(features, seconds)


class RandomModel(_Engines):
    """Random scores, as a baseline."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)

    def _make(self, target: Any, seed: int) -> EngineModel:
        return cost_model("random", seed)


class XGBModel(_Engines):
    """Gradient-boosted trees that learn the errors of the analytical model.

    They start from `model_file`, else from the pretrained model of the package for a similar target, if there is one.
    Without xgboost, the analytical model is used alone. `verbose_eval`, `num_warmup_sample` and `adaptive_training`
    change nothing.
    """

    def __init__(
        self,
        verbose_eval: int = 25,
        num_warmup_sample: int = 100,
        seed: int | None = None,
        model_file: str | None = None,
        adaptive_training: bool = False,
    ) -> None:
        super().__init__(seed)
        self.model_file = model_file

    def _make(self, target: Any, seed: int) -> EngineModel:
        if self.model_file is not None and os.path.exists(self.model_file):
            with _any_name():
                return TreeModel(seed, pretrained=self.model_file)
        return cost_model("auto", seed, target)

    def update_from_file(self, file_name: str, n_lines: int | None = None) -> None:
        """Learn from the records of a file."""
        from .measure_record import RecordReader  # which imports this module

        self.update(*RecordReader(file_name).read_lines(n_lines))

    def save(self, file_name: str) -> None:
        """Save the trained model."""
        if not isinstance(self._model, TreeModel):
            raise TuneError(f"{file_name}: the model has not been trained yet, so there is nothing to save")
        with _any_name():
            self._model.save(file_name)

    def load(self, file_name: str) -> None:
        """Load a trained model."""
        if not os.path.exists(file_name):
            raise TuneError(f"{file_name}: there is no such file; XGBModel.save makes one")
        self.model_file, self._model = file_name, None


@contextmanager
def _any_name() -> Iterator[None]:
    """Suppress warnings of xgboost about file names that do not end in .json or .ubj."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(UBJSON|file format).*", UserWarning)
        yield


class PythonBasedModel(CostModel):
    """A base class: `update(inputs, results)` learns, and `predict(task, states)` returns scores, higher is better."""

    def predict_stages(self, task: SearchTask, states: Sequence[State]) -> Array:
        """The scores of states; there are none of their stages."""
        return self.predict(task, states)

    def engine(self, target: Any, seed: int = 0) -> EngineModel:
        return Watched(self)


class Watched:
    """The adapter of a `PythonBasedModel` for the engine: it passes states to the model instead of features."""

    name = "python"

    def __init__(self, model: PythonBasedModel) -> None:
        self.model = model
        self._task: Any = None
        self._shown: tuple[Array, list[State]] | None = None  # the last features, and their states
        self._best = math.inf

    def watch(self, task: SearchTask, sketches: Sketches) -> None:
        """Record the states of all features that the space of a task computes from now on."""
        space, plain = sketches.space, sketches.space.features
        self._task = task

        def features(candidates: Array, zero: float | None = None) -> Array:
            made = plain(candidates, zero)
            self._shown = (made, states_of(task, sketches, candidates))
            return made

        space.features = features  # type: ignore[method-assign]

    def predict(self, features: Array) -> Array:
        if self._shown is None or self._shown[0] is not features:  # features of another space
            return np.asarray(features[:, 0], np.float64)
        scores = np.asarray(self.model.predict(self._task, self._shown[1]), np.float64)
        # Scores have any scale; the engine expects logarithms of seconds.
        around = math.log(self._best) if math.isfinite(self._best) else 0.0
        return around - _SPREAD * (scores - scores.mean()) / max(float(scores.std()), 1e-30)

    def update(self, features: Array, seconds: Array) -> None:
        if self._shown is None or self._shown[0] is not features:
            return
        self._best = min(self._best, *seconds)
        inputs = [MeasureInput(self._task, s) for s in self._shown[1]]
        results = [
            MeasureResult([s], 0, "") if np.isfinite(s) else MeasureResult([], 8, "it failed")
            for s in seconds
        ]
        self.model.update(inputs, results)


def states_of(task: SearchTask, sketches: Sketches, candidates: Array) -> list[State]:
    """The states of candidates of a space; their schedules are made on demand."""
    space = sketches.space
    out = []
    for rows in candidates:
        decisions = space.decisions(rows)
        find = lambda decided=decisions: sketches.apply(decided)
        out.append(State.found(task.compute_dag, find, ("decisions", decisions)))
    return out


def features_of(task: SearchTask, states: Sequence[State]) -> Array:
    """The features of states of the search; a state made by hand has none."""
    space: Space = Sketches(task.task).space
    found = []
    for state in states:
        kind, what = state.candidate
        rows = space.rows(what) if kind == "decisions" else None
        if rows is None:
            raise TuneError(
                "a state that was made by hand is not in the search space; cost models predict states of SketchPolicy"
            )
        found.append(rows)
    return space.features(np.stack(found))
