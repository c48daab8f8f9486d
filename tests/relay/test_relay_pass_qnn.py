"""qnn.transform: quantised operators as plain arithmetic; Legalize."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import apply, check, evaluate

import tilewright as tvm
from tilewright import relay

T = relay.transform
qnn = relay.qnn
Q = relay.var("q", shape=(2, 4), dtype="int8")
U = relay.var("u", shape=(2, 4), dtype="uint8")
X = relay.var("x", shape=(2, 4))
IMAGE = relay.var("i", shape=(1, 3, 6, 6), dtype="uint8")


def ints(*shape, dtype="int8", seed=3):
    return relay.const(np.random.default_rng(seed).integers(-20, 20, shape).astype(dtype))


def vector(*values):
    return relay.const(np.array(values, "float32"))


W = ints(5, 4)
K = ints(4, 3, 3, 3)
CASES = {
    "quantize": (X, qnn.op.quantize(X, 0.05, 3)),
    "quantize along an axis": (X, qnn.op.quantize(X, vector(0.1, 0.2, 0.3, 0.4), 0, out_dtype="uint8")),
    "quantize to int32": (X, qnn.op.quantize(X, 0.001, 7, out_dtype="int32")),
    "dequantize": (Q, qnn.op.dequantize(Q, 0.05, 3)),
    "dequantize along an axis": (Q, qnn.op.dequantize(Q, vector(0.1, 0.2, 0.3, 0.4), 0, axis=1)),
    "requantize": (Q, qnn.op.requantize(Q, 0.5, 1, 0.25, 3)),
    "requantize to nearest": (Q, qnn.op.requantize(Q, 0.5, 0, 1.0, 3, rounding="TONEAREST")),
    "requantize to even": (
        Q,
        qnn.op.requantize(Q, 0.5, 0, 1.0, 3, rounding="TONEAREST_EVEN", out_dtype="uint8"),
    ),
    "dense": (Q, qnn.op.dense(Q, W, 0, 0, 0.5, 0.5)),
    "dense with zero points": (U, qnn.op.dense(U, W, 7, 2, 0.5, 0.5)),
    "conv2d": (IMAGE, qnn.op.conv2d(IMAGE, K, 5, 0, 0.5, 0.5, padding=(1, 1))),
    "add": (Q, qnn.op.add(Q, Q, 0.5, 1, 0.25, 2, 0.5, 3)),
    "mul": (Q, qnn.op.mul(Q, Q, 0.5, 1, 0.25, 2, 0.5, 3)),
    "sigmoid": (Q, qnn.op.sigmoid(Q, 0.1, 1, 0.01, -100)),
    "hardswish": (Q, qnn.op.hardswish(Q, 0.1, 1, 0.05, 0)),
    "leaky_relu": (Q, qnn.op.leaky_relu(Q, 0.1, 0.1, 1, 0.05, 0)),
    "softmax": (Q, qnn.op.softmax(Q, 0.1, 1, 0.01, 0)),
    "concatenate": (Q, qnn.op.concatenate([Q, Q], [0.5, 0.25], [1, 2], 0.5, 0, axis=1)),
    "batch_matmul": (Q, qnn.op.batch_matmul(relay.expand_dims(Q, 0), ints(1, 5, 4), 1, 2, 0.5, 0.5)),
}


@pytest.mark.parametrize("shift", [1, 2, 5, 16, 31])
@pytest.mark.parametrize("zero", [0, 3])
def test_a_ratio_that_is_a_power_of_two_is_a_shift(shift, zero):
    """In whole numbers, also at the ends of their range, where a rounding term must not overflow."""
    ends = np.array([0, 1 << 30, (1 << 31) - 20, -(1 << 31) + 20], "int64")
    near = np.arange(-20, 20)
    halves = np.array([-3, -2, -1, 0, 1, 2, 3], "int64")[:, None] * (1 << shift - 1) + near
    data = np.concatenate([(ends[:, None] + near).ravel(), halves.ravel()])
    data = np.clip(data, -(1 << 31), (1 << 31) - 1).astype("int32")
    x = relay.var("x", shape=data.shape, dtype="int32")
    body = qnn.op.requantize(x, 2.0**-shift, 0, 1.0, zero, out_dtype="int8")
    after = apply(relay.Function([x], body), qnn.transform.CanonicalizeOps())
    wanted = np.clip(np.floor(data.astype("float64") * 2.0**-shift + 0.5) + zero, -128, 127).astype("int8")
    np.testing.assert_array_equal(evaluate(after, data), wanted)
    floats = "float64" in str(after)
    assert floats == (shift == 1)


@pytest.mark.parametrize("name", list(CASES))
def test_the_same_numbers(name):
    param, body = CASES[name]
    after = check(relay.Function([param], body), qnn.transform.CanonicalizeOps(), rtol=0, atol=1e-6)
    found = relay.analysis.list_op_freqs(tvm.IRModule.from_expr(after))
    assert not any(n.startswith("qnn.") for n in found)


def test_dequantize_written_out():
    before = relay.Function([Q], qnn.op.dequantize(Q, 0.5, 3))
    centred = relay.cast(Q, "int32") - relay.const(3, "int32")
    scale = relay.cast(relay.const(0.5, "float32"), "float32")
    expected = relay.Function([Q], relay.cast(centred, "float32") * scale)
    check(before, qnn.transform.CanonicalizeOps(), expected)


def test_products_without_zero_points_stay_in_8_bits():
    after = apply(relay.Function([Q], qnn.op.dense(Q, W, 0, 0, 0.5, 0.5)), qnn.transform.CanonicalizeOps())
    assert after.body.op.name == "nn.dense" and after.body.args[0] is after.params[0]


def test_legalize():
    op = relay.op.get("nn.relu")
    op.set_attr(
        "FTVMLegalize", lambda attrs, inputs, types: relay.maximum(inputs[0], relay.const(np.float32(0)))
    )
    try:
        check(
            relay.Function([X], relay.nn.relu(X)),
            T.Legalize(),
            relay.Function([X], relay.maximum(X, relay.const(np.float32(0)))),
        )
        op.set_attr("FTVMLegalize", lambda attrs, inputs, types: None)
        mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([X], relay.nn.relu(X))))
        assert T.Legalize()(mod) is mod
    finally:
        op.reset_attr("FTVMLegalize")


def test_an_operators_own_form_goes_first():
    op = relay.op.get("qnn.quantize")
    op.set_attr("FTVMQnnCanonicalize", lambda attrs, inputs, types: relay.cast(inputs[0], "int8"))
    try:
        after = apply(relay.Function([X], qnn.op.quantize(X, 1.0, 0)), qnn.transform.CanonicalizeOps())
        assert after.body.op.name == "cast"
    finally:
        op.reset_attr("FTVMQnnCanonicalize")
    np.testing.assert_array_equal(
        evaluate(after, np.array([[1.0, 2, 3, 4]] * 2, "float32")), [[1, 2, 3, 4]] * 2
    )
