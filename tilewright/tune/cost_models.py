"""Cost models: which candidates are worth measuring.

    scores = model.predict(features)          # the logarithm of the seconds expected; lower is better
    model.update(features, seconds)           # what was measured; infinite for what failed

The first column of the features is the logarithm of what the analytical model expects (see space.Space.features), so
that a learned model begins where that one ends.
"""

from __future__ import annotations

import warnings
from typing import Any, Protocol

import numpy as np

from .errors import TuneError

__all__ = ["AnalyticalModel", "CostModel", "RandomModel", "TreeModel", "cost_model", "has_xgboost"]

Array = Any


class CostModel(Protocol):
    """Predicts, and learns from what was measured."""

    name: str

    def predict(self, features: Array) -> Array: ...

    def update(self, features: Array, seconds: Array) -> None: ...


class AnalyticalModel:
    """The model of the machine alone. Of what was measured it learns only by how much it is wrong on the whole."""

    name = "analytical"

    def __init__(self) -> None:
        self._shift = 0.0

    def predict(self, features: Array) -> Array:
        return np.asarray(features[:, 0], np.float64) + self._shift

    def update(self, features: Array, seconds: Array) -> None:
        good = np.isfinite(seconds)
        if good.any():
            self._shift = float(np.median(np.log(seconds[good]) - features[good, 0]))


class RandomModel:
    """Knows nothing: the baseline of the others. A candidate has the same chance whenever it is asked about."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def predict(self, features: Array) -> Array:
        mix = np.random.default_rng(self._seed).random(features.shape[1])
        return np.modf(np.abs(np.sin(features.astype(np.float64) @ mix)) * 43758.5453)[0]

    def update(self, features: Array, seconds: Array) -> None:
        """What was measured says nothing to it."""


class TreeModel:
    """Gradient-boosted trees over what the model of the machine gets wrong.

    They are grown anew from all that was measured, which takes some milliseconds. A `pretrained` model (a file of
    xgboost's) is gone on with instead of beginning from nothing.
    """

    name = "trees"

    def __init__(self, seed: int = 0, rounds: int = 60, pretrained: str | None = None) -> None:
        self._xgboost = _xgboost()
        self._seed, self._rounds = seed, rounds
        self._features: list[Array] = []
        self._seconds: list[Array] = []
        self._first: Any = None
        self._shift = 0.0
        if pretrained is not None:
            self._first = self._xgboost.Booster()
            try:
                self._first.load_model(pretrained)
            except self._xgboost.core.XGBoostError as error:
                raise TuneError(f"{pretrained}: this is no cost model: {error}") from None
        self._trees = self._first

    def predict(self, features: Array) -> Array:
        base = np.asarray(features[:, 0], np.float64)
        if self._trees is None:
            return base + self._shift
        found = self._trees.inplace_predict(np.ascontiguousarray(features, np.float32))
        return base + found.astype(np.float64) + self._shift

    def update(self, features: Array, seconds: Array) -> None:
        self._features.append(np.asarray(features, np.float32))
        self._seconds.append(np.asarray(seconds, np.float64))
        x, y = np.concatenate(self._features), np.concatenate(self._seconds)
        good = np.isfinite(y)
        if good.sum() < 4:
            return
        off = np.log(y[good]) - x[good, 0].astype(np.float64)
        self._shift = float(np.median(off - self._begun(x[good])))
        label = np.full(
            len(x), float((off - self._shift).max()) + 0.5
        )  # what failed is as bad as the worst, and more
        label[good] = off - self._shift
        data = self._xgboost.DMatrix(x, label=label, weight=np.where(good, 1.0, 0.5))
        settings = {
            "max_depth": 5, "eta": 0.15, "min_child_weight": 1, "subsample": 0.9, "colsample_bynode": 0.6,
            "lambda": 1.0, "base_score": 0.0, "seed": self._seed, "nthread": 1, "verbosity": 0,
        }  # fmt: skip
        self._trees = self._xgboost.train(settings, data, self._rounds, xgb_model=self._first)

    def _begun(self, x: Array) -> Array:
        """What the pretrained trees say; nothing without any."""
        if self._first is None:
            return np.zeros(len(x))
        return self._first.inplace_predict(np.ascontiguousarray(x, np.float32)).astype(np.float64)

    def save(self, path: str) -> None:
        """Write the trees, for other tasks and machines to begin with."""
        if self._trees is None:
            raise TuneError("there is nothing to save: the model has seen too few measurements")
        self._trees.save_model(path)


def _xgboost() -> Any:
    try:
        import xgboost
    except ImportError:
        raise TuneError(
            "the learned cost model needs xgboost: pip install 'tilewright[tune]' (or xgboost-cpu)"
        ) from None
    return xgboost


def has_xgboost() -> bool:
    """Whether the learned model can be used."""
    try:
        _xgboost()
    except TuneError:
        return False
    return True


def cost_model(name: str | CostModel = "auto", seed: int = 0) -> CostModel:
    """A model by name: trees, analytical, random; `auto` is trees where xgboost is there, else analytical. The path of
    a file (.json, .ubj) is trees that begin with those in it."""
    if not isinstance(name, str):
        return name
    if name.endswith((".json", ".ubj")):
        return TreeModel(seed, pretrained=name)
    if name in ("auto", "trees", "xgb"):
        try:
            return TreeModel(seed)
        except TuneError as error:
            if name != "auto":
                raise
            warnings.warn(f"{error}; the analytical model goes on alone", RuntimeWarning, stacklevel=2)
            return AnalyticalModel()
    if name == "analytical":
        return AnalyticalModel()
    if name == "random":
        return RandomModel(seed)
    raise TuneError(f"there is no cost model {name!r}; there are: auto, trees, analytical, random, or a file")
