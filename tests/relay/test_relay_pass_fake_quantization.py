"""FakeQuantizationToInteger: the same numbers, on integers."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import apply, check, count

import tilewright as tvm
from tilewright import relay

T = relay.transform
nn, qnn = relay.nn, relay.qnn.op


def ints(*shape, dtype="int8", low=-20, high=20, seed=3):
    return relay.const(np.random.default_rng(seed).integers(low, high, shape).astype(dtype))


def real(q, scale=0.5, zero=0, axis=-1):
    return qnn.dequantize(q, relay.const(scale, "float32") if isinstance(scale, float) else scale, zero, axis)


X = relay.var("x", shape=(1, 3, 6, 6), dtype="int8")
V = relay.var("v", shape=(2, 4), dtype="int8")
SCALES = relay.const(np.array([0.5, 0.25, 1.0, 2.0], "float32"))
B = relay.var("b", shape=(2, 3, 4), dtype="int8")
L = relay.var("l", shape=(1, 3, 8), dtype="uint8")


def per_channel(x):
    return nn.conv2d(real(x, 0.5, 2), real(ints(4, 3, 3, 3), SCALES, relay.const(np.zeros(4, "int32")), 0))


CASES = {
    "a bias for each channel, and relu": (
        X,
        qnn.quantize(
            nn.relu(
                nn.bias_add(
                    per_channel(X),
                    real(
                        ints(4, dtype="int32"),
                        relay.const(np.array([0.25, 0.125, 0.5, 1], "float32")),
                        0,
                        0,
                    ),
                )
            ),
            8.0,
            1,
        ),
    ),
    "clip after a scale for each channel": (X, qnn.quantize(relay.clip(per_channel(X), 0.0, 6.0), 0.1, 1)),
    "a bias before": (
        V,
        qnn.quantize(
            relay.const(np.arange(5, dtype="float32")) + nn.dense(real(V), real(ints(5, 4), 0.25)), 2.0, 0
        ),
    ),
    "columns with their scales": (
        V,
        qnn.quantize(nn.matmul(real(V, 0.5, 3), real(ints(4, 4), SCALES, 0, 1)), 4.0, 0),
    ),
    "a transposed weight": (
        V,
        qnn.quantize(nn.dense(real(V), relay.transpose(real(ints(4, 4), SCALES, 0, 1))), 4.0, 0),
    ),
    "batch_matmul in any order": (
        B,
        qnn.quantize(
            nn.batch_matmul(real(B, 0.5, 1), real(B, 0.25, 2), transpose_a=True, transpose_b=False), 4.0, 0
        ),
    ),
    "conv1d": (
        L,
        qnn.quantize(
            nn.relu(nn.conv1d(real(L, 0.5, 120), real(ints(4, 3, 3), 0.5), padding=(1, 1))), 20.0, 3
        ),
    ),
    "pad": (
        X,
        qnn.quantize(
            nn.conv2d(nn.pad(real(X, 0.5, 2), ((0, 0), (0, 0), (1, 1), (1, 1))), real(ints(4, 3, 3, 3), 0.5)),
            8.0,
            1,
        ),
    ),
    "conv2d": (X, qnn.quantize(nn.relu(nn.conv2d(real(X, 0.5, 2), real(ints(4, 3, 3, 3)))), 8.0, 1)),
    "conv2d with a scale for each channel": (
        X,
        qnn.quantize(nn.conv2d(real(X), real(ints(4, 3, 3, 3), SCALES, 0, 0)), 8.0, 0),
    ),
    "dense and bias": (
        V,
        qnn.quantize(
            nn.bias_add(
                nn.dense(real(V), real(ints(5, 4), 0.25)), real(ints(5, dtype="int32"), 0.125, 0), axis=1
            ),
            2.0,
            0,
        ),
    ),
    "dense and a real bias": (
        V,
        qnn.quantize(nn.dense(real(V), real(ints(5, 4), 0.25)) + relay.const(np.ones(5, "float32")), 2.0, 0),
    ),
    "add": (V, qnn.quantize(real(V, 0.5, 1) + real(V, 0.25, 2), 1.0, 3)),
    "multiply": (V, qnn.quantize(real(V, 0.5, 1) * real(V, 0.25, 2), 1.0, 3)),
    "moves": (V, qnn.quantize(relay.transpose(relay.reshape(real(V, 0.5, 1), (4, 2))), 0.5, 1)),
    "moves to another scale": (V, qnn.quantize(relay.reshape(real(V, 0.5, 1), (8,)), 1.0, 1)),
    "max_pool2d": (X, qnn.quantize(nn.max_pool2d(real(X, 0.5, 1), (2, 2)), 0.5, 1)),
    "avg_pool2d": (X, qnn.quantize(nn.avg_pool2d(real(X, 0.5, 1), (2, 2)), 0.5, 1)),
    "clip": (V, qnn.quantize(relay.clip(real(V, 0.5, 1), 0.0, 1.5), 0.5, 1)),
    "sigmoid": (V, qnn.quantize(relay.sigmoid(real(V, 0.5, 1)), 0.01, -100)),
    "take": (
        V,
        qnn.quantize(relay.take(real(V, 0.5, 1), ints(3, dtype="int32", low=0, high=2), axis=0), 0.5, 1),
    ),
    "split": (X, qnn.quantize(relay.split(real(X, 0.5, 1), 2, axis=3)[1], 0.5, 1)),
    "topk": (V, qnn.quantize(relay.topk(real(V, 0.5, 1), 2, 1, "values"), 0.5, 1)),
    "mean": (X, qnn.quantize(relay.mean(real(X, 0.5, 7), axis=[1, 3]), 0.25, 1)),
    "global_avg_pool2d": (X, qnn.quantize(nn.relu(nn.global_avg_pool2d(real(X, 0.5, 7))), 0.25, 1)),
    "adaptive_avg_pool1d": (
        L,
        qnn.quantize(nn.adaptive_avg_pool1d(real(L, 0.5, 12), 1), 0.25, 1, out_dtype="uint8"),
    ),
    "clip of channels": (
        V,
        qnn.quantize(
            relay.clip(real(V, SCALES, relay.const([1, 2, 3, 4], "int32"), 1), 0.0, 1.5),
            SCALES,
            relay.const([1, 2, 3, 4], "int32"),
            axis=1,
        ),
    ),
    "maximum": (V, qnn.quantize(relay.maximum(real(V, 0.5, 1), real(V, 0.25, 2)), 1.0, 3)),
    "minimum with a number": (V, qnn.quantize(relay.minimum(real(V, 0.5, 1), relay.const(1.5)), 0.5, 1)),
    "add a number": (V, qnn.quantize(real(V, 0.1, 1) + relay.const(1.0), 0.1, 1)),
    "subtract a number and move": (
        L,
        qnn.quantize(
            relay.transpose(real(L, 0.1, 0) - relay.const(0.5), (0, 2, 1)), 0.2, 128, out_dtype="uint8"
        ),
    ),
    "multiply by a negative number": (V, qnn.quantize(relay.const(-2.5) * real(V, 0.1, 1), 0.5, 1)),
    "concatenate": (V, qnn.quantize(relay.concatenate([real(V, 0.5), real(V, 0.25)], axis=1), 0.5, 0)),
}


@pytest.mark.parametrize("name", list(CASES))
def test_the_same_numbers(name):
    param, body = CASES[name]
    # halves may go the other way
    after = check(relay.Function([param], body), T.FakeQuantizationToInteger(), rtol=0, atol=1)
    assert count(after, "qnn.dequantize") == 0


def test_written_out():
    before = relay.Function([V], qnn.quantize(nn.relu(real(V, 0.5, 3)), 0.5, 3))
    expected = relay.Function([V], relay.maximum(V, relay.cast(relay.const(3, "int32"), "int8")))
    check(before, T.FakeQuantizationToInteger(), expected)


def test_a_chain_of_quantised_layers():
    y = V
    for i in range(3):
        y = qnn.quantize(nn.relu(nn.dense(real(y, 0.5), real(ints(4, 4, seed=i), 0.1))), 0.5, 0)
    after = check(relay.Function([V], y), T.FakeQuantizationToInteger(), rtol=0, atol=3)
    assert [count(after, n) for n in ("qnn.dense", "qnn.requantize", "qnn.dequantize")] == [3, 3, 0]


def test_a_product_is_one_of_integers_wherever_its_result_goes():
    y = nn.dense(real(V, 0.5, 1), real(ints(4, 4), 0.1))
    results = [qnn.quantize(nn.relu(y), 1.0, 0), relay.tan(y), qnn.quantize(y, 0.5, 0)]
    after = check(relay.Function([V], relay.Tuple(results)), T.FakeQuantizationToInteger(), rtol=1e-3, atol=1)
    assert [count(after, n) for n in ("qnn.dense", "nn.dense", "qnn.dequantize")] == [1, 0, 1]


def test_a_quantisation_that_changes_nothing_goes():
    before = relay.Function([V], qnn.quantize(real(V, 0.5, 3), 0.5, 3))
    check(before, T.FakeQuantizationToInteger(), relay.Function([V], V))
    other = relay.Function([V], qnn.quantize(real(V, 0.5, 3), 0.25, 3))
    check(other, T.FakeQuantizationToInteger(), other)


def test_what_has_no_integer_form_stays():
    before = relay.Function([V], qnn.quantize(relay.tan(real(V)), 0.5, 0))
    check(before, T.FakeQuantizationToInteger(), before)
    with pytest.raises(tvm.TVMError, match="tan has no integer form"):
        apply(before, T.FakeQuantizationToInteger(hard_fail=True))


def test_what_is_used_before_it_is_moved_keeps_its_precision():
    """The sum is read twice, so that it is not rounded to the scale of the quantization before both uses."""
    y = real(V, 0.5, 1) + real(V, 0.25, 2)
    before = relay.Function([V], qnn.quantize(relay.concatenate([y, relay.reverse(y, 1)], 1), 1.0, 0))
    check(before, T.FakeQuantizationToInteger(), before)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (qnn.quantize(nn.adaptive_avg_pool2d(real(X), (2, 1)), 0.5, 0), "nn.adaptive_avg_pool2d to several windows"),
        (qnn.quantize(relay.topk(real(X), 1)[0], 0.5, 0), "topk that also returns indices"),
        (qnn.quantize(relay.exp(relay.maximum(real(X), real(X, 0.25))), 0.5, 0), "maximum of different scales whose result"),
    ],
    ids=["windows", "indices", "scales"],
)  # fmt: skip
def test_what_is_refused(body, reason):
    with pytest.raises(tvm.TVMError, match=reason):
        apply(relay.Function([X], body), T.FakeQuantizationToInteger(hard_fail=True))


def test_what_is_not_quantised_stays():
    x = relay.var("x", shape=(2, 4))
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x], qnn.quantize(nn.relu(x), 0.5, 0))))
    assert T.FakeQuantizationToInteger()(mod) is mod
