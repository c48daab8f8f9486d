"""Operators that move elements: values against NumPy, types against computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.relay.testing import run_infer_type, te_outputs

X = np.arange(24, dtype="float32").reshape(2, 3, 4)


def cases() -> list[tuple[Any, Any]]:
    x = relay.var("x", shape=(2, 3, 4))
    i = relay.const([2, 0])
    return [
        (relay.reshape(x, (4, 6)), X.reshape(4, 6)),
        (relay.transpose(x, (2, 0, -2)), X.transpose(2, 0, 1)),
        (relay.transpose(x), X.T),
        (relay.expand_dims(x, 1, 2), X[:, None, None]),
        (relay.expand_dims(x, -1), X[..., None]),
        (relay.squeeze(relay.expand_dims(x, 0)), X),
        (relay.concatenate([x, x * relay.const(2.0)], 1), np.concatenate([X, 2 * X], 1)),
        (relay.stack([x, x], -1), np.stack([X, X], -1)),
        (relay.strided_slice(x, [0, 1], [2, 3]), X[0:2, 1:3]),
        (relay.strided_slice(x, [3], [-5], [-2], axes=[2]), X[:, :, 3::-2]),
        (relay.strided_slice(x, [0, 1, 1], [-1, 2, -1], slice_mode="size"), X[:, 1:3, 1:]),
        (relay.strided_slice(x, [-2], [None], axes=[-1]), X[..., -2:]),
        (relay.take(x, i, axis=2), X[:, :, [2, 0]]),
        (relay.take(x, i), X.reshape(-1)[[2, 0]]),
        (relay.tile(x, (2, 1, 1, 3)), np.tile(X, (2, 1, 1, 3))),
        (relay.repeat(x, 2, 1), np.repeat(X, 2, 1)),
        (relay.broadcast_to(relay.const([1.0, 2.0]), (3, 2)), np.broadcast_to([1.0, 2.0], (3, 2))),
        (relay.reverse(x, 1), X[:, ::-1]),
        (relay.layout_transform(x, "NHW", "NHW2w"), X.reshape(2, 3, 2, 2)),
        (relay.reshape_like(x, relay.const(np.zeros((6, 4), "float32"))), X.reshape(6, 4)),
        (
            relay.reshape_like(
                x, relay.const(np.zeros((5, 6, 1), "float32")), lhs_end=-1, rhs_begin=1, rhs_end=2
            ),
            X.reshape(6, 4),
        ),
        (relay.slice_like(x, relay.const(np.zeros((1, 2, 9), "float32")), axes=(0, 1)), X[:1, :2]),
        (relay.gather(x, 2, relay.const(np.zeros((2, 3, 1)), "int64")), X[:, :, :1]),
        (relay.gather_nd(x, relay.const([[1, 0], [2, 1]])), X[[1, 0], [2, 1]]),
        (relay.collapse_sum_to(x, (3, 1)), X.sum((0, 2), keepdims=True)[0]),
        (relay.arange(1, 7, 2, "int32"), np.arange(1, 7, 2)),
        (relay.one_hot(i, relay.const(5.0), relay.const(0.0), 3, -1, "float32"), np.eye(3)[[2, 0]] * 5),
    ]


def test_values(run_graph: Any) -> None:
    listed = cases()
    got = run_graph(relay.Tuple([e for e, _ in listed]), x=X)
    for (e, want), y in zip(listed, got, strict=True):
        np.testing.assert_array_equal(y, want, err_msg=e.op.name)


def test_split_gives_parts(run_graph: Any) -> None:
    x = relay.var("x", shape=(2, 3, 4))
    parts = relay.split(x, 2, axis=2)
    assert len(parts) == 2
    for got, want in zip(run_graph(parts, x=X), np.split(X, 2, 2), strict=True):
        np.testing.assert_array_equal(got, want)
    for got, want in zip(run_graph(relay.split(x, (1, 3), 2), x=X), np.split(X, [1, 3], 2), strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("newshape", "want"),
    [
        ((0, -1), (2, 12)),
        ((-1,), (24,)),
        ((-2,), (2, 3, 4)),
        ((0, -3), (2, 12)),
        ((-3, 0), (6, 4)),
        ((0, 0, -4, 2, -1), (2, 3, 2, 2)),
        ((-4, -1, 2, -2), (1, 2, 3, 4)),
    ],
)
def test_codes_of_reshape(newshape: tuple[int, ...], want: tuple[int, ...]) -> None:
    x = relay.var("x", shape=(2, 3, 4))
    call = relay.reshape(x, newshape)
    assert run_infer_type(call).checked_type.shape == want
    te_outputs(call)


def test_sizes_that_are_not_known() -> None:
    n = te.size_var("n")
    x = relay.var("x", shape=(n, 8))
    y = relay.var("y", shape=(relay.Any(), 8))
    for call in (
        relay.reshape(x, (-1, 4)),
        relay.transpose(x),
        relay.expand_dims(x, 0),
        relay.concatenate([x, x], 1),
        relay.strided_slice(x, [1], [-1], axes=[0]),
        relay.tile(x, (2, 1)),
    ):
        te_outputs(call)
    for call, want in (
        (relay.strided_slice(y, [0], [3], axes=[0]), (relay.Any(), 8)),
        (relay.take(y, relay.const([0, 1]), axis=0), (2, 8)),
        (relay.concatenate([y, y], 0), (relay.Any(), 8)),
        (relay.split(y, 2, axis=1)[0], (relay.Any(), 4)),
    ):
        assert run_infer_type(call).checked_type.shape == want


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda x: relay.reshape(x, (5, -1)), "cannot be reshaped"),
        (lambda x: relay.reshape(x, (-1, -1)), "has -1 twice"),
        (lambda x: relay.squeeze(x, 0), "dimension 0 of"),
        (lambda x: relay.concatenate([x, relay.const(1.0)], 0), "data[1]"),
        (lambda x: relay.split(x, 3, axis=2), "cannot be split into 3"),
        (lambda x: relay.strided_slice(x, [0], [1], [0]), "strides: has a 0"),
        (lambda x: relay.broadcast_to(x, (2, 3)), "does not broadcast"),
        (lambda x: relay.layout_transform(x, "NHW", "NHC"), "different axes"),
    ],
)
def test_refusals(build: Any, reason: str) -> None:
    made = build(relay.var("x", shape=(2, 3, 4)))
    made = made.tuple_value if isinstance(made, relay.TupleWrapper) else made
    with pytest.raises(relay.RelayTypeError) as caught:
        run_infer_type(made)
    assert reason in str(caught.value)


def test_reshape_of_some_dimensions_like_others() -> None:
    n = te.size_var("n")
    x, y = relay.var("x", shape=(n, 2, 3)), relay.var("y", shape=(7, 6))
    made = run_infer_type(relay.reshape_like(x, y, lhs_begin=1, rhs_begin=-1))
    assert made.checked_type == relay.TensorType((n, 6))
    with pytest.raises(tvm.TVMError, match=r"\(2, 3\) of .* has another number of elements than \(7,\)"):
        run_infer_type(relay.reshape_like(x, y, lhs_begin=1, rhs_end=1))
    with pytest.raises(tvm.TVMError, match="lhs_begin: is 2 and lhs_end is 1: they are no dimensions"):
        run_infer_type(relay.reshape_like(x, y, lhs_begin=2, lhs_end=1))
