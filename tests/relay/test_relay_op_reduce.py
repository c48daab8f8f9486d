"""Reductions: values against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilewright import relay
from tilewright.relay.op import OpPattern, get
from tilewright.relay.testing import run_infer_type
from tilewright.runtime.dtypes import element


def test_values(run_graph: Any, rng: Any) -> None:
    x = rng.uniform(0.5, 2, (2, 3, 4)).astype("float32")
    v = relay.var("x", shape=x.shape)
    pairs = [
        (relay.sum(v), x.sum()),
        (relay.sum(v, axis=(0, -1)), x.sum((0, 2))),
        (relay.sum(v, axis=1, exclude=True), x.sum((0, 2))),
        (relay.max(v, axis=1, keepdims=True), x.max(1, keepdims=True)),
        (relay.min(v, axis=[2]), x.min(2)),
        (relay.prod(v, axis=0), x.prod(0)),
        (relay.mean(v, axis=2), x.mean(2)),
        (relay.argmax(v, axis=2), x.argmax(2)),
        (relay.argmin(v, axis=0, keepdims=True), x.argmin(0)[None]),
        (relay.variance(v, axis=2), x.var(2)),
        (relay.std(v, axis=(1, 2), keepdims=True), x.std((1, 2), keepdims=True)),
        (relay.variance(v, axis=2, unbiased=True), x.var(2, ddof=1)),
        (relay.mean_variance(v, axis=1)[0], x.mean(1)),
        (relay.mean_std(v, axis=1).astuple().fields[1], x.std(1)),
        (relay.logsumexp(v, axis=1), np.log(np.exp(x).sum(1))),
        (relay.cumsum(v, axis=1), x.cumsum(1)),
        (relay.all(v > relay.const(1.0), axis=2), (x > 1).all(2)),
        (relay.any(v > relay.const(1.0), axis=2), (x > 1).any(2)),
    ]
    got = run_graph(relay.Tuple([e for e, _ in pairs]), x=x)
    for (e, want), y in zip(pairs, got, strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-4, err_msg=str(e))
    assert get("sum").pattern == OpPattern.COMM_REDUCE


def test_unknown_sizes_are_reduced() -> None:
    v = relay.var("x", shape=(relay.Any(), 3))
    assert run_infer_type(relay.sum(v, axis=0)).checked_type == relay.TensorType((3,))
    assert run_infer_type(relay.sum(v, axis=1)).checked_type == relay.TensorType((relay.Any(),))
    assert run_infer_type(relay.argmax(v, axis=1)).checked_type.dtype == "int32"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_variance_of_more_elements_than_half_precision_counts(run_graph: Any, dtype: str) -> None:
    x = np.tile(np.array([0, 1], element(dtype).numpy), 40_000)
    v = relay.var("x", shape=x.shape, dtype=dtype)
    got = run_graph(relay.variance(v), x=x)
    assert str(got.dtype) == dtype and abs(float(got) - 0.25) < 1e-3
