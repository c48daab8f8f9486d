"""Recurrent layers as operators: against the same layer step by step in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.op import recurrent
from tilewright.relay.transform.infer_type import infer_type

STEPS, BATCH, WIDTH, HIDDEN = 3, 2, 4, 5


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def arrays(gates: int) -> list[Any]:
    rng = np.random.default_rng(1)
    rows = gates * HIDDEN
    shapes = [(STEPS, BATCH, WIDTH), (rows, WIDTH), (rows, HIDDEN), (rows,), (rows,), (BATCH, HIDDEN)]
    shapes += [(BATCH, HIDDEN)] * (gates == 4)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def run(body: Any, params: list[Any], values: list[Any]) -> list[Any]:
    mod = tvm.IRModule.from_expr(relay.Function(params, body))
    found = relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(*values)
    return [found.numpy()] if hasattr(found, "numpy") else [found[i].numpy() for i in range(len(found))]


def variables(values: list[Any]) -> list[Any]:
    return [relay.var(f"p{i}", shape=v.shape, dtype="float32") for i, v in enumerate(values)]


@pytest.mark.parametrize("reverse", [False, True])
def test_lstm(reverse: bool) -> None:
    values = arrays(4)
    params = variables(values)
    made = recurrent.lstm(*params, reverse=reverse, weight_layout="IOFG")
    hidden, cells = run(relay.Tuple([made[0], made[1]]), params, values)
    x, wi, wh, bi, bh, h, c = values
    for t in range(STEPS):
        step = x[STEPS - 1 - t] if reverse else x[t]
        i, o, f, g = np.split(step @ wi.T + bi + h @ wh.T + bh, 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        np.testing.assert_allclose(hidden[t], h, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(cells[t], c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("before", [False, True])
def test_gru(before: bool) -> None:
    values = arrays(3)
    params = variables(values)
    made = recurrent.gru(*params, linear_before_reset=before, weight_layout="ZRN")
    (hidden,) = run(made, params, values)
    x, wi, wh, bi, bh, h = values
    for t in range(STEPS):
        gx, gh = np.split(x[t] @ wi.T + bi, 3, 1), np.split(h @ wh.T + bh, 3, 1)
        z, r = sigmoid(gx[0] + gh[0]), sigmoid(gx[1] + gh[1])
        inner = r * gh[2] if before else (r * h) @ wh[2 * HIDDEN :].T + bh[2 * HIDDEN :]
        h = (1 - z) * np.tanh(gx[2] + inner) + z * h
        np.testing.assert_allclose(hidden[t], h, rtol=1e-4, atol=1e-5)


def test_types() -> None:
    steps = relay.Any()
    kinds = [(steps, 2, 4), (20, 4), (20, 5), (20,), (20,), (2, 5), (2, 5)]
    params = [relay.var(f"p{i}", shape=s) for i, s in enumerate(kinds)]
    made = infer_type(recurrent.lstm(*params).tuple_value)
    assert str(made.checked_type.fields[0]) == "Tensor[(?, 2, 5), float32]"
    params[1] = relay.var("w", shape=(20, 3))
    with pytest.raises(
        relay.RelayTypeError, match=r"weight_in: is Tensor.* and data has 4 elements for each step"
    ):
        infer_type(recurrent.lstm(*params).tuple_value)
