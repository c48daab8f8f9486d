"""Models of Keras 3 on JAX and on PyTorch, each in a process of its own: Keras has one backend."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest

PROGRAM = """
import keras, numpy as np, tilewright
a, b = keras.Input((4,), name="a"), keras.Input((4,), name="b")
two = keras.Model({"a": a, "b": b}, keras.layers.Dense(3, activation="softmax")(a * b))
one = keras.Sequential([keras.Input((5, 5, 2)), keras.layers.Conv2D(3, 3), keras.layers.GlobalAveragePooling2D()])
x = {n: np.linspace(i, 1, 8, dtype="float32").reshape(2, 4) for i, n in enumerate("ab")}
net = tilewright.compile(two, x)
assert [str(t) for t in net.inputs] == ["a: float32[2, 4]", "b: float32[2, 4]"], net.inputs
np.testing.assert_allclose(net(**x), two.predict(x, verbose=0), rtol=1e-5, atol=1e-6)
net = tilewright.compile(one)
assert net.inputs[0].shape[0] == "batch", net.inputs
image = np.linspace(-1, 1, 100, dtype="float32").reshape(2, 5, 5, 2)
np.testing.assert_allclose(net(image), one.predict(image, verbose=0), rtol=1e-5, atol=1e-6)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_models_run_by_the_framework_of_keras(backend: str) -> None:
    for package in ("keras", backend):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"needs the Python package {package}")
    made = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, "KERAS_BACKEND": backend}, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-2000:]
