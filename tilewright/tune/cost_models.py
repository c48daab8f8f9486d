"""Cost models: which candidates are worth measuring.

    scores = model.predict(features)          # the logarithm of the seconds expected; lower is better
    model.update(features, seconds)           # what was measured; infinite for what failed

The first column of the features is the logarithm of what the analytical model expects (see space.Space.features), so
that a learned model begins where that one ends.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ..target import Target
from .errors import TuneError
from .features import layout

__all__ = [
    "SHIPPED",
    "AnalyticalModel",
    "CorrectedModel",
    "CostModel",
    "RandomModel",
    "TreeModel",
    "cost_model",
    "has_xgboost",
    "shipped_model",
]

SHIPPED = (
    Path(__file__).parent / "pretrained"
)  # the models that come with the package, and what they are near to

Array = Any
_told: set[str] = set()  # what is missing, and was said


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


class CorrectedModel(AnalyticalModel):
    """The model of the machine, and what is known of its errors from candidates that are alike.

    An error is taken to be like those of the candidates near by, by the distance of their features (a Gaussian process
    whose prior is the model of the machine): far from all that was measured it says what that one says.
    """

    name = "corrected"

    def __init__(self) -> None:
        super().__init__()
        self._features: list[Array] = []
        self._errors: list[Array] = []
        self._known: tuple[Array, ...] | None = None  # columns, middle, scale, places, weights

    def predict(self, features: Array) -> Array:
        out = np.asarray(features[:, 0], np.float64) + self._shift
        if self._known is None:
            return out
        used, middle, scale, places, weights = self._known
        at = ((features[:, used] - middle) / scale).astype(np.float32)
        for start in range(0, len(at), _PIECE):
            out[start : start + _PIECE] += _alike(at[start : start + _PIECE], places) @ weights
        return out

    def update(self, features: Array, seconds: Array) -> None:
        x, y = np.asarray(features, np.float64), np.asarray(seconds, np.float64)
        error = np.full(len(y), np.nan)
        good = np.isfinite(y)
        error[good] = np.log(y[good]) - x[good, 0]
        self._features.append(x)
        self._errors.append(error)
        x, error = np.concatenate(self._features)[-_KEPT:], np.concatenate(self._errors)[-_KEPT:]
        good = np.isfinite(error)
        if not good.any():
            return
        self._shift = float(np.median(error[good]))
        # what failed is as bad as the worst, and more
        error = np.where(good, error, error[good].max() + 0.5) - self._shift
        used = np.flatnonzero(x.std(axis=0) > 1e-9)  # what never differed tells nothing apart
        x = x[:, used]
        middle, scale = x.mean(axis=0), x.std(axis=0)
        at = ((x - middle) / scale).astype(np.float32)
        spread = _alike(at, at) + _NOISE * np.eye(len(at))
        weights = np.linalg.solve(spread, error).astype(np.float32)
        self._known = used, middle, scale, at, weights


_KEPT = 256  # of the last measurements
_PIECE = 8192  # candidates at a time
_NOISE = 0.1  # of a measurement, by how much candidates differ


def _alike(one: Array, other: Array) -> Array:
    """How much two candidates have in common: 1 for the same, little beyond the usual distance of two."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None] - 2 * one @ other.T
    usual = 0.5 * max(1.0, float((other**2).sum(axis=1).mean()))
    return np.exp(-np.maximum(squares, 0.0) / (2 * usual))


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

    They are grown anew from all that was measured, which takes some milliseconds. Where a `pretrained` model is given
    (a file of xgboost's) they are grown over what that one gets wrong.
    """

    name = "trees"

    def __init__(
        self,
        seed: int = 0,
        rounds: int = 60,
        pretrained: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._xgboost = _xgboost()
        self._seed, self._rounds, self._settings = seed, rounds, dict(settings or {})
        self._features: list[Array] = []
        self._weights: list[Array] = []
        self._seconds: list[Array] = []
        self._first: Any = None
        self._shift = 0.0
        if pretrained is not None:
            self._first = self._xgboost.Booster()
            try:
                self._first.load_model(pretrained)
            except self._xgboost.core.XGBoostError as error:
                raise TuneError(f"{pretrained}: this is no cost model: {error}") from None
            if self._first.attr("layout") not in (None, layout()):
                raise TuneError(
                    f"{pretrained}: this model was trained on features that another tilewright had; train it anew from "
                    "the records"
                )
            self._first.set_param({"nthread": 1})
        self._trees: Any = None
        self._data: Any = None

    def predict(self, features: Array) -> Array:
        x = np.ascontiguousarray(features, np.float32)
        out = np.asarray(features[:, 0], np.float64) + self._shift
        for trees in (self._first, self._trees):
            if trees is not None:
                out += trees.inplace_predict(x)
        return out

    def update(self, features: Array, seconds: Array, weights: Array | None = None) -> None:
        """Learn from more; `weights` tell how much each of it counts."""
        self._features.append(np.asarray(features, np.float32))
        self._seconds.append(np.asarray(seconds, np.float64))
        self._weights.append(np.ones(len(seconds)) if weights is None else np.asarray(weights, np.float64))
        x, y = np.concatenate(self._features), np.concatenate(self._seconds)
        good = np.isfinite(y)
        if good.sum() < 4:
            return
        known = np.zeros(len(x)) if self._first is None else self._first.inplace_predict(x).astype(np.float64)
        off = np.log(y[good]) - x[good, 0] - known[good]
        self._shift = float(np.median(off))
        # what failed is as bad as the worst, and more
        label = np.full(len(x), float((off + known[good] - self._shift).max()) + 0.5) - known
        label[good] = off - self._shift
        weight = np.concatenate(self._weights) * np.where(good, 1.0, 0.5)
        self._data = (x, label, weight)
        self._trees = self._grown(label, None)

    def _grown(self, label: Array, begun: Any) -> Any:
        x, _, weight = self._data
        data = self._xgboost.DMatrix(x, label=label, weight=weight)
        settings = {
            "max_depth": 5, "eta": 0.15, "min_child_weight": 1, "subsample": 0.9, "colsample_bynode": 0.6,
            "lambda": 1.0, "base_score": 0.0, "seed": self._seed, "nthread": 1, "verbosity": 0,
            **self._settings,
        }  # fmt: skip
        return self._xgboost.train(settings, data, self._rounds, xgb_model=begun)

    def save(self, path: str) -> None:
        """Write the trees, with those that they began with, for other tasks and machines to begin with."""
        if self._trees is None:
            raise TuneError("there is nothing to save: the model has seen too few measurements")
        made = self._trees
        if self._first is not None:
            x, label, _ = self._data
            made = self._grown(label + self._first.inplace_predict(x), self._first)
        made.set_attr(layout=layout())
        made.save_model(path)


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


def shipped_model(target: Any) -> str | None:
    """The model of the package for a target that is near to what it was trained on: the same architecture, and vectors
    as wide as those that its programs were measured with."""
    chosen = Target(target)
    if chosen.kind.name not in ("llvm", "c"):
        return None
    here = [chosen.cpu.arch, chosen.cpu.preferred_vector_bits]
    try:
        known = json.loads((SHIPPED / "index.json").read_text())
    except (OSError, ValueError):
        return None
    for name, about in known.items():
        if here in about["near"] and about["layout"] == layout():
            return str(SHIPPED / name)
    return None


def cost_model(name: str | CostModel = "auto", seed: int = 0, target: Any = None) -> CostModel:
    """A model by name: pretrained, trees, corrected, analytical, random, or a file (.json, .ubj) of trees.

    `auto` is pretrained where the target is near to what the package has a model of, else trees; without xgboost,
    corrected.
    """
    if not isinstance(name, str):
        return name
    if name.endswith((".json", ".ubj")):
        return TreeModel(seed, pretrained=name)
    if name in ("auto", "pretrained", "trees", "xgb"):
        near = shipped_model(target) if name in ("auto", "pretrained") and target is not None else None
        if name == "pretrained" and near is None:
            raise TuneError(
                f"no model of the package is near to the target `{target}`; the model trees begins with nothing, and "
                "a file with what was learned from records"
            )
        try:
            return TreeModel(seed, pretrained=near)
        except TuneError as error:
            if name != "auto":
                raise
            if "xgboost" not in _told:
                _told.add("xgboost")
                text = f"{error}; the analytical model goes on, corrected by what is measured"
                warnings.warn(text, RuntimeWarning, stacklevel=2)
            return CorrectedModel()
    if name == "corrected":
        return CorrectedModel()
    if name == "analytical":
        return AnalyticalModel()
    if name == "random":
        return RandomModel(seed)
    raise TuneError(
        f"there is no cost model {name!r}; there are: auto, pretrained, trees, corrected, analytical, random, or a file"
    )
