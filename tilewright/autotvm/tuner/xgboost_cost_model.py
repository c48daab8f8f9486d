"""The learned cost model: the engine's gradient-boosted trees, over features of configurations.

feature_type   features                                                 requires
knob           the values of the knobs                                  nothing
itervar        of each loop: length, kind, arithmetic, accesses         an instantiation
curve          how much data each loop touches, sampled as a curve      an instantiation
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ...tune.search.cost_models import TreeModel, cost_model
from .. import feature
from ..measure import MeasureInput, MeasureResult
from ..task.space import ConfigSpace, flatten_entity
from .model_based_tuner import CostModel
from .tuner import flops_of

Array = Any
_FEATURES = ("knob", "itervar", "curve")
_LOSSES = ("reg", "rank", "rank-binary")


class XGBoostCostModel(CostModel):
    """Trees that are trained anew on all measurements each time.

    `loss_type` is what they predict: reg, the logarithm of the time; rank, the rank among all; rank-binary, whether a
    configuration is in the fastest quarter. `num_threads`, `log_interval` and `upper_model` change nothing.
    """

    def __init__(
        self,
        task: Any,
        feature_type: str = "knob",
        loss_type: str = "reg",
        num_threads: int | None = None,
        log_interval: int = 25,
        upper_model: Any = None,
        seed: int = 0,
    ) -> None:
        if feature_type not in _FEATURES:
            raise ValueError(f"feature_type={feature_type!r} must be one of {', '.join(_FEATURES)}")
        if loss_type not in _LOSSES:
            raise ValueError(f"loss_type={loss_type!r} must be one of {', '.join(_LOSSES)}")
        self.task, self.space = task, task.config_space
        # The space of a program of the graph compiler has its own features, the first of them the analytical model's.
        self.own = type(self.space) is not ConfigSpace
        self.feature_type = "knob" if self.own else feature_type
        self.loss_type = "reg" if self.own else loss_type
        self.num_threads, self.log_interval, self.seed = num_threads, log_interval, seed
        self.upper_model = upper_model
        self.costly, self.informed = self.feature_type != "knob", self.own
        self._trees = self._seedling()
        self._past: tuple[Array, Array] | None = None  # features and relative times of other tasks
        self._rows: dict[int, Array] = {}  # features that required an instantiation

    def _seedling(self) -> Any:
        """An untrained model; for programs of the graph compiler, one that may be pretrained."""
        return cost_model("auto", self.seed, self.task.target) if self.own else TreeModel(self.seed)

    # -- learning ----------------------------------------------------------------------------------
    def fit(self, xs: Sequence[int], ys: Sequence[float], plan_size: int = 0) -> None:
        self._grow(self.features(np.asarray(xs, np.int64)), _relative(np.asarray(ys, float)))

    def _grow(self, x: Array, seconds: Array) -> None:
        if self._past is not None:
            width = max(x.shape[1], self._past[0].shape[1])
            x = np.concatenate([_wide(self._past[0], width), _wide(x, width)])
            seconds = np.concatenate([self._past[1], seconds])
        self._trees = self._seedling()
        self.width = x.shape[1]
        self._trees.update(x, _labels(seconds, self.loss_type))

    def fit_log(
        self,
        records: Iterable[tuple[MeasureInput, MeasureResult]],
        plan_size: int = 0,
        min_seed_records: int = 8,
    ) -> bool:
        """Learn from records of the same template with any arguments; times are relative to the best of each task."""
        by_task: dict[str, list[tuple[MeasureInput, float]]] = {}
        for inp, result in records:
            if inp.task.name == self.task.name:
                by_task.setdefault(str(inp.task.workload), []).append((inp, flops_of(inp, result)))
        if sum(map(len, by_task.values())) < max(1, min_seed_records):
            return False
        parts, seconds = [], []
        for pairs in by_task.values():
            rows = [self._row_of(inp) for inp, _ in pairs]
            known = [(r, y) for r, (_, y) in zip(rows, pairs, strict=True) if r is not None]
            if known:
                parts += [r for r, _ in known]
                seconds.append(_relative(np.array([y for _, y in known])))
        if not parts:
            return False
        past = _stacked(parts), np.concatenate(seconds)
        self._past = None
        self._grow(*past)
        self._past = past
        return True

    def load_basemodel(self, base_model: XGBoostCostModel) -> None:
        """Learn from the past records of another model too."""
        self._past = base_model._past

    def spawn_base_model(self) -> XGBoostCostModel:
        """An untrained model of the same kind."""
        return XGBoostCostModel(
            self.task, self.feature_type, self.loss_type, self.num_threads, self.log_interval, self, self.seed
        )

    # -- predicting --------------------------------------------------------------------------------
    def predict(self, xs: Any, output_margin: bool = False) -> Array:
        x = self.features(np.asarray(xs, np.int64))
        return -self._trees.predict(_wide(x, getattr(self, "width", x.shape[1])))

    # -- features ----------------------------------------------------------------------------------
    def features(self, indices: Array) -> Array:
        """The features of configurations; the first column is the prediction of the analytical model, or 0."""
        if self.own:
            return self.space.knob_features(indices)
        if self.feature_type == "knob":
            return _headed(self.space.knob_features(indices))
        for i in (int(i) for i in indices):
            if i not in self._rows:
                self._rows[i] = self._seen(self.task, self.space.get(i))
        return _stacked([self._rows[int(i)] for i in indices])

    def _seen(self, task: Any, config: Any) -> Array:
        try:
            with task.target:
                sch, args = task.instantiate(config)
                if self.feature_type == "itervar":
                    found = feature.get_itervar_feature_flatten(sch, args, take_log=True)
                else:
                    found = feature.get_buffer_curve_sample_flatten(sch, args, sample_n=20)
        except Exception:  # the template refuses the configuration
            found = []
        knobs = config.get_flatten_feature()
        return np.concatenate([[0.0], knobs, np.asarray(found, float)]).astype(np.float32)

    def _row_of(self, inp: MeasureInput) -> Array | None:
        """The features of a record, perhaps of another task of the template; None if they do not compare."""
        if self.own:
            if inp.task.workload != self.task.workload:
                return None
            return np.asarray(self.space.knob_features(np.array([inp.config.index]))[0])
        if self.feature_type != "knob":
            inp.task.target = inp.task.target or inp.target
            return self._seen(inp.task, inp.config)
        parts: list[float] = []
        for (name, space), table in zip(self.space.space_map.items(), self.space._columns, strict=True):
            entity = inp.config.get_entity(name)
            numbers = [] if entity is None else flatten_entity(entity)
            place = next((i for i, e in enumerate(space) if repr(e) == repr(entity)), -1)
            row = [float(place), *numbers]
            parts += (row + [0.0] * table.shape[1])[: table.shape[1]]
        return _headed(np.array([parts], np.float32))[0]


def _headed(x: Array) -> Array:
    """Features with a first column of zeros in the place of the analytical model."""
    return np.concatenate([np.zeros((len(x), 1), np.float32), x], axis=1)


def _wide(x: Array, width: int) -> Array:
    """Rows cut or padded to a width, as configurations have different numbers of loops."""
    if x.shape[1] >= width:
        return x[:, :width]
    return np.concatenate([x, np.zeros((len(x), width - x.shape[1]), x.dtype)], axis=1)


def _stacked(rows: list[Array]) -> Array:
    """Rows of different widths as an array."""
    width = max((len(r) for r in rows), default=1)
    return np.stack([_wide(r[None], width)[0] for r in rows])


def _relative(speeds: Array) -> Array:
    """Times relative to the fastest, from speeds; infinite for failures."""
    with np.errstate(divide="ignore"):
        times = np.where(speeds > 0, 1.0 / np.maximum(speeds, 1e-300), np.inf)
    good = np.isfinite(times)
    return times / times[good].min() if good.any() else times


def _labels(seconds: Array, loss: str) -> Array:
    """The labels of the trees, in the form of times."""
    good = np.isfinite(seconds)
    if loss == "reg" or not good.any():
        return seconds
    ranks = np.argsort(np.argsort(seconds, kind="stable"), kind="stable") / max(1, len(seconds))
    if loss == "rank-binary":
        ranks = (ranks >= 0.25).astype(float)
    return np.where(good, np.exp(ranks), np.inf)
