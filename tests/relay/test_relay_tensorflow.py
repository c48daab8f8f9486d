"""Models of TensorFlow: graphs, SavedModels, functions; what is refused and how."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
pytest.importorskip("tf2onnx", reason="needs tf2onnx: pip install 'tilewright[tensorflow]'")
pytest.importorskip("tensorflow", reason="needs tensorflow: pip install 'tilewright[tensorflow]'")

import tensorflow as tf

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import FrontendError

W = np.random.default_rng(5).standard_normal((4, 3)).astype(np.float32)
X = np.random.default_rng(6).standard_normal((2, 4)).astype(np.float32)


def evaluate(mod: Any, params: Any, *values: np.ndarray) -> list[np.ndarray]:
    found = relay.create_executor("graph", mod, tvm.cpu(), "llvm", params).evaluate()(*values)
    return [found.numpy()] if hasattr(found, "numpy") else [a.numpy() for a in found]


def dense_graph() -> Any:
    """softmax(x W) as programs of the first TensorFlow have it: placeholders and nodes by name."""
    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, 4), name="input")
        y = tf.nn.relu(tf.matmul(x, tf.constant(W)), name="inner")
        tf.nn.softmax(y, name="scores")
    return graph.as_graph_def()


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def test_a_graph() -> None:
    mod, params = relay.frontend.from_tensorflow(dense_graph(), shape={"input": X.shape})
    assert [p.name_hint for p in mod["main"].params if p.name_hint not in params] == ["input"]
    (found,) = evaluate(mod, params, X)
    np.testing.assert_allclose(found, softmax(np.maximum(X @ W, 0)), rtol=1e-5)


def test_results_may_be_chosen() -> None:
    mod, params = relay.frontend.from_tensorflow(
        dense_graph(), layout="NCHW", shape={"input": X.shape}, outputs=["inner", "scores:0"]
    )
    inner, scores = evaluate(mod, params, X)
    np.testing.assert_allclose(inner, np.maximum(X @ W, 0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores, softmax(inner), rtol=1e-5)


def test_a_graph_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "frozen.pb"
    path.write_bytes(dense_graph().SerializeToString())
    mod, params = relay.frontend.from_tensorflow(path, shape={"input": X.shape})
    assert evaluate(mod, params, X)[0].shape == (2, 3)


class Counter(tf.Module):
    """A module with a variable, a branch and a loop."""

    def __init__(self) -> None:
        self.w = tf.Variable(W)

    @tf.function(input_signature=[tf.TensorSpec((None, 4), tf.float32, name="x")])
    def dense(self, x: Any) -> Any:
        return {"product": tf.matmul(x, self.w), "sum": tf.reduce_sum(x, axis=1)}

    @tf.function(input_signature=[tf.TensorSpec((2, 4), tf.float32, name="x")])
    def loop(self, x: Any) -> Any:
        total = tf.zeros((2, 3))
        for _ in tf.range(4):
            total = tf.tanh(total + tf.matmul(x, self.w))
        return total

    @tf.function(input_signature=[tf.TensorSpec((2, 4), tf.float32, name="x")])
    def branch(self, x: Any) -> Any:
        return tf.matmul(x, self.w) if tf.reduce_sum(x) > 0 else tf.zeros((2, 3))


COUNTER = Counter()  # functions hold their module weakly


def test_a_concrete_function_keeps_its_variables() -> None:
    mod, params = relay.frontend.from_tensorflow(COUNTER.dense.get_concrete_function(), shape={"x": X.shape})
    product, total = evaluate(mod, params, X)
    np.testing.assert_allclose(product, X @ W, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, X.sum(1), rtol=1e-5, atol=1e-6)


def test_results_of_a_function_may_be_chosen() -> None:
    mod, params = relay.frontend.from_tensorflow(
        COUNTER.dense.get_concrete_function(), shape={"x": X.shape}, outputs=["sum"]
    )
    (total,) = evaluate(mod, params, X)
    np.testing.assert_allclose(total, X.sum(1), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["loop", "branch"])
def test_control_flow(name: str) -> None:
    mod, params = relay.frontend.from_tensorflow(getattr(COUNTER, name).get_concrete_function())
    call = relay.create_executor("vm", mod, tvm.cpu(), "llvm", params).evaluate()
    for x in (X, -np.abs(X)):
        np.testing.assert_allclose(call(x).numpy(), getattr(COUNTER, name)(x).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_saved_model(tmp_path: Path) -> None:
    tf.saved_model.save(COUNTER, str(tmp_path / "saved"), signatures=COUNTER.dense)
    mod, params = relay.frontend.from_tensorflow(str(tmp_path / "saved"), shape={"x": X.shape})
    product, total = evaluate(mod, params, X)
    np.testing.assert_allclose(product, X @ W, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(total, X.sum(1), rtol=1e-5, atol=1e-6)


def test_refusals(tmp_path: Path) -> None:
    (tmp_path / "bad.pb").write_bytes(b"\xff" * 40)
    (tmp_path / "folder").mkdir()
    concrete = COUNTER.dense.get_concrete_function()
    for work, reason in [
        (lambda f: f(dense_graph(), layout="WHC"), "layout='WHC': it must be one of"),
        (lambda f: f(dense_graph(), shape={"x": (1, 4)}), "shape has 'x', and the inputs are input"),
        (lambda f: f(dense_graph(), outputs=["none"]), "there is no node 'none:0'"),
        (lambda f: f(concrete, outputs=["none"]), "the results of the function are product, sum"),
        (lambda f: f(concrete, shape={"x": (1, 5)}), "shape['x'] is [1, 5], and the model takes (None, 4)"),
        (lambda f: f(tf.function(lambda x: x)), "give function.get_concrete_function(tf.TensorSpec("),
        (lambda f: f(3), "takes a GraphDef, the folder of a SavedModel or a concrete function, not int"),
        (lambda f: f(tmp_path / "bad.pb"), "bad.pb: is not a GraphDef, or a damaged one"),
        (lambda f: f(tmp_path / "no.pb"), "no.pb: there is no such file or folder"),
        (lambda f: f(tmp_path / "folder"), "folder: is not a SavedModel, or a damaged one"),
    ]:
        with pytest.raises(FrontendError) as caught:
            work(relay.frontend.from_tensorflow)
        assert reason in str(caught.value)
