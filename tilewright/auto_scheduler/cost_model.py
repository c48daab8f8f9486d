"""Cost models under the classic names: scores of candidates, the higher the better."""

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
        """As the engine takes it."""
        raise NotImplementedError

    def update(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from measurements."""
        raise NotImplementedError

    def predict(self, task: SearchTask, states: Sequence[State]) -> Array:
        """The scores of states."""
        raise NotImplementedError


class _Engines(CostModel):
    """A model of the engine."""

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
    """Knows nothing: a baseline."""

    def __init__(self, seed: int | None = None) -> None:
        super().__init__(seed)

    def _make(self, target: Any, seed: int) -> EngineModel:
        return cost_model("random", seed)


class XGBModel(_Engines):
    """Trees that learn the errors of the machine model.

    They begin with those of `model_file`, else with those that come with the package where the target is near. Without
    xgboost the model of the machine goes on alone.
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
        from .measure_record import RecordReader  # which is of tasks, and those come after models

        self.update(*RecordReader(file_name).read_lines(n_lines))

    def save(self, file_name: str) -> None:
        """Save the trained model."""
        if not isinstance(self._model, TreeModel):
            raise TuneError(f"{file_name}: there is nothing to save: the model has learned nothing yet")
        with _any_name():
            self._model.save(file_name)

    def load(self, file_name: str) -> None:
        """Load a trained model."""
        if not os.path.exists(file_name):
            raise TuneError(f"{file_name}: there is no such file; XGBModel.save makes one")
        self.model_file, self._model = file_name, None


@contextmanager
def _any_name() -> Iterator[None]:
    """xgboost warns of names that do not end in .json or .ubj, and does the right thing."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*(UBJSON|file format).*", UserWarning)
        yield


class PythonBasedModel(CostModel):
    """To be derived from: `update(inputs, results)` and `predict(task, states)`, scores the higher the better."""

    def predict_stages(self, task: SearchTask, states: Sequence[State]) -> Array:
        """The scores of states and of their stages: the former alone, one after the other."""
        return self.predict(task, states)

    def engine(self, target: Any, seed: int = 0) -> EngineModel:
        return Watched(self)


class Watched:
    """A model written in Python, as the engine takes it: it is shown states in place of features."""

    name = "python"

    def __init__(self, model: PythonBasedModel) -> None:
        self.model = model
        self._task: Any = None
        self._shown: tuple[Array, list[State]] | None = None  # the features that were asked for last
        self._best = math.inf

    def watch(self, task: SearchTask, sketches: Sketches) -> None:
        """Know which candidates the features of a space are of."""
        space, plain = sketches.space, sketches.space.features
        self._task = task

        def features(candidates: Array, zero: float | None = None) -> Array:
            made = plain(candidates, zero)
            self._shown = (made, states_of(task, sketches, candidates))
            return made

        space.features = features  # type: ignore[method-assign]

    def predict(self, features: Array) -> Array:
        if self._shown is None or self._shown[0] is not features:  # before it watches
            return np.asarray(features[:, 0], np.float64)
        scores = np.asarray(self.model.predict(self._task, self._shown[1]), np.float64)
        # Of any scale, and the higher the better; the engine wants logarithms of seconds.
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
    """Candidates of a space as states, which are scheduled when they are looked at."""
    space = sketches.space
    out = []
    for rows in candidates:
        decisions = space.decisions(rows)
        find = lambda decided=decisions: sketches.apply(decided)
        out.append(State.found(task.compute_dag, find, ("decisions", decisions)))
    return out


def features_of(task: SearchTask, states: Sequence[State]) -> Array:
    """What a model sees of states of the search; one written by hand is none of it."""
    space: Space = Sketches(task.task).space
    found = []
    for state in states:
        kind, what = state.candidate
        rows = space.rows(what) if kind == "decisions" else None
        if rows is None:
            raise TuneError(
                "a state that was written by hand is not of the space that the models know; they score the states of "
                "SketchPolicy"
            )
        found.append(rows)
    return space.features(np.stack(found))
