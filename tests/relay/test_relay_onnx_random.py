"""Random operators of ONNX, by their distributions: numbers cannot be compared with another's generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_beside import one_node

from tilewright import relay
from tilewright.contrib import onnx_backend
from tilewright.ir.errors import FrontendError


def drawn(op: str, inputs: Any, attrs: Any, outputs: Any = ("y",)) -> list[Any]:
    model = one_node(op, "", inputs, attrs, outputs, constants=("ratio", "training"))
    feeds = {k: v for k, v in inputs.items() if k not in ("ratio", "training")}
    return list(onnx_backend.run_model(model, feeds))


def test_uniform_and_normal_have_their_moments() -> None:
    (x,) = drawn("RandomUniform", {}, {"shape": [100, 40], "low": -2.0, "high": 4.0, "seed": 3.0})
    assert x.shape == (100, 40) and x.dtype == np.float32 and x.min() >= -2 and x.max() < 4
    assert abs(x.mean() - 1) < 0.1 and abs(x.std() - 6 / np.sqrt(12)) < 0.1
    (x,) = drawn("RandomNormal", {}, {"shape": [4000], "mean": 2.0, "scale": 3.0, "seed": 3.0, "dtype": 11})
    assert x.dtype == np.float64 and abs(x.mean() - 2) < 0.2 and abs(x.std() - 3) < 0.2


@pytest.mark.parametrize("op", ["RandomUniformLike", "RandomNormalLike"])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_random_like_an_input(op: str, kind: str) -> None:
    (x,) = drawn(op, {"x": np.zeros((5, 7), kind)}, {})
    assert x.shape == (5, 7) and x.dtype == kind and np.isfinite(x).all() and x.std() > 0.1


def test_seeds() -> None:
    first, again, other = (
        drawn("RandomUniform", {}, {"shape": [8], "seed": s})[0] for s in (0.25, 0.25, 0.5)
    )
    np.testing.assert_array_equal(first, again)
    assert (first != other).all()
    np.random.seed(1)
    a, b = (drawn("RandomUniform", {}, {"shape": [8]})[0] for _ in range(2))
    np.random.seed(1)
    c = drawn("RandomUniform", {}, {"shape": [8]})[0]
    assert (a != b).all() and (a == c).all()


@pytest.mark.slow
def test_bernoulli_and_multinomial_follow_their_probabilities() -> None:
    p = np.repeat(np.array([[0.0], [0.2], [1.0]], np.float32), 4000, 1)
    (x,) = drawn("Bernoulli", {"p": p}, {"dtype": 6, "seed": 1.0})
    assert x.dtype == np.int32 and set(np.unique(x)) == {0, 1}
    np.testing.assert_allclose(x.mean(1), [0, 0.2, 1], atol=0.03)
    logs = np.log(np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 1e-30]], np.float32))
    (x,) = drawn("Multinomial", {"p": logs}, {"sample_size": 4000, "dtype": 7, "seed": 1.0})
    assert x.shape == (2, 4000) and x.dtype == np.int64
    share = np.stack([(x == c).mean(1) for c in range(3)], 1)
    np.testing.assert_allclose(share, [[0.1, 0.2, 0.7], [0.5, 0.5, 0]], atol=0.03)


@pytest.mark.parametrize("ratio", [0.0, 0.25, 0.75])
def test_dropout_in_training(ratio: float) -> None:
    x = np.random.default_rng(0).standard_normal((50, 80)).astype(np.float32)
    inputs = {"x": x, "ratio": np.float32(ratio), "training": np.asarray(True)}
    y, mask = drawn("Dropout", inputs, {"seed": 5}, ("y", "m"))
    assert mask.dtype == bool and abs(mask.mean() - (1 - ratio)) < 0.03
    np.testing.assert_allclose(y, np.where(mask, x / (1 - ratio), 0), rtol=1e-6)
    again, _ = drawn("Dropout", inputs, {"seed": 5}, ("y", "m"))
    np.testing.assert_array_equal(y, again)


def test_integers_are_not_drawn() -> None:
    model = one_node("RandomUniform", "", {}, {"shape": [2], "dtype": 6})
    with pytest.raises(FrontendError, match="numbers of int32 cannot be drawn; float16, bfloat16, float32"):
        relay.frontend.from_onnx(model)
