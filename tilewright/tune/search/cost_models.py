"""Cost models: which candidates are worth measuring.

    scores = model.predict(features)          # the logarithm of the predicted seconds; lower is better
    model.update(features, seconds)           # the measured seconds; infinite for candidates that failed

The first column of the features is the logarithm of the time by the analytical model (see space.Space.features); a
learned model predicts its error.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from ...target import Target
from ..errors import TuneError
from ..rules.features import layout

# The models that come with the package, with an index of the targets that they were trained for.
SHIPPED = Path(__file__).parent / "pretrained"

Array = Any
_warned: set[str] = set()  # warnings that were already given


class CostModel(Protocol):
    """Predicts the time of candidates, and learns from measurements."""

    name: str

    def predict(self, features: Array) -> Array: ...

    def update(self, features: Array, seconds: Array) -> None: ...


class AnalyticalModel:
    """The analytical model alone. From measurements it learns only its overall error, as one factor."""

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
    """The analytical model, corrected by its errors for similar candidates that were measured.

    It is a Gaussian process over the features with the analytical model as its prior mean: far from all measured
    candidates it predicts what that model does.
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
        # failed candidates count as somewhat worse than the worst
        error = np.where(good, error, error[good].max() + 0.5) - self._shift
        used = np.flatnonzero(x.std(axis=0) > 1e-9)  # constant columns carry no information
        x = x[:, used]
        middle, scale = x.mean(axis=0), x.std(axis=0)
        at = ((x - middle) / scale).astype(np.float32)
        spread = _alike(at, at) + _NOISE * np.eye(len(at))
        weights = np.linalg.solve(spread, error).astype(np.float32)
        self._known = used, middle, scale, at, weights


_KEPT = 256  # the last measurements that are used
_PIECE = 8192  # candidates that are predicted at a time
_NOISE = 0.1  # variance of the noise of a measurement; the kernel of a candidate with itself is 1


def _alike(one: Array, other: Array) -> Array:
    """The Gaussian kernel of candidates: 1 for equal ones; its width is the usual distance of `other`."""
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)[None] - 2 * one @ other.T
    usual = 0.5 * max(1.0, float((other**2).sum(axis=1).mean()))
    return np.exp(-np.maximum(squares, 0.0) / (2 * usual))


class RandomModel:
    """Random scores, as a baseline for the others. The score of a candidate is always the same."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def predict(self, features: Array) -> Array:
        mix = np.random.default_rng(self._seed).random(features.shape[1])
        return np.modf(np.abs(np.sin(features.astype(np.float64) @ mix)) * 43758.5453)[0]

    def update(self, features: Array, seconds: Array) -> None:
        """Nothing is learned."""


class TreeModel:
    """Gradient-boosted trees that predict the error of the analytical model.

    They are trained anew from all measurements, which takes some milliseconds. With a `pretrained` model (a file of
    xgboost's) they predict the error of that one.
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
                raise TuneError(f"{pretrained}: this is not a cost model: {error}") from None
            if self._first.attr("layout") not in (None, layout()):
                raise TuneError(
                    f"{pretrained}: this model was trained on the features of another version of tilewright; train it "
                    "again from "
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
        """Learn from more measurements, each weighted by `weights`."""
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
        # failed candidates count as somewhat worse than the worst
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
        """Write the trees, including those of the pretrained model, for use as a pretrained model elsewhere."""
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


def shipped_model(target: Any) -> str | None:
    """The model of the package that was trained on machines like the target: the same architecture, and vectors of the
    same width. None if there is none."""
    chosen = Target(target)
    if not chosen.is_cpu:
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

    `auto` is pretrained if the package has a model for machines like the target, else trees; without xgboost,
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
            if "xgboost" not in _warned:
                _warned.add("xgboost")
                text = f"{error}; the analytical model is used, corrected by measurements"
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
