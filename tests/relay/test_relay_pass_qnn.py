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
CONV = ([IMAGE], qnn.op.conv2d(IMAGE, K, 5, 0, 0.5, 0.5, padding=(1, 1)))
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
    "conv2d": (IMAGE, CONV[1]),
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


def operand(kind, shape, constant, name):
    x = relay.var(name, shape=shape, dtype=kind)
    info = np.iinfo(kind)
    array = np.random.default_rng(len(name)).integers(info.min, info.max, shape, endpoint=True).astype(kind)
    array.flat[::7], array.flat[3::7] = info.min, info.max
    return (relay.const(array), []) if constant else (x, [x])


def products(before):
    """The types of the operands of the products after the pass."""
    after = T.FoldConstant()(qnn.transform.CanonicalizeOps()(T.InferType()(tvm.IRModule.from_expr(before))))
    calls = [e for e in relay.analysis.post_order(T.InferType()(after)["main"]) if isinstance(e, relay.Call)]
    found = [c for c in calls if c.op.name in ("nn.conv2d", "nn.dense", "nn.batch_matmul")]
    return [[str(a.checked_type.dtype) for a in c.args] for c in found]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(
    ("kinds", "zeros", "found"),
    [
        (("uint8", "int8"), (130, 0), [["uint8", "int8"]]),
        (("int8", "int8"), (-3, 0), [["int8", "int8"]]),
        (("uint8", "uint8"), (0, 128), [["uint8", "int8"]]),  # the zero point of a constant weight moves to 0
        (("uint8", "uint8"), (7, 100), [["uint8", "int8"]] * 2),  # one product with ones
        (("uint8", "int8"), (200, (3, 0, -2, 1)), [["uint8", "int8"]] * 2),
    ],
)
@pytest.mark.parametrize("layouts", [("NCHW", "OIHW"), ("NHWC", "HWIO")])
def test_a_convolution_of_any_zero_points(kinds, zeros, found, constant, layouts):
    shapes = ((2, 3, 7, 6), (4, 3, 3, 3)) if layouts[0] == "NCHW" else ((2, 7, 6, 3), (3, 3, 3, 4))
    x, params = operand(kinds[0], shapes[0], False, "x")
    w, more = operand(kinds[1], shapes[1], constant, "weight")
    body = qnn.op.conv2d(
        x, w, zeros[0], relay.const(np.array(zeros[1], "int32")), 0.5, 0.5, channels=4, kernel_size=(3, 3),
        padding=(1, 0, 2, 1), strides=(1, 2), data_layout=layouts[0], kernel_layout=layouts[1],
    )  # fmt: skip
    before = relay.Function([*params, *more], body)
    check(before, qnn.transform.CanonicalizeOps(), rtol=0, atol=0)
    if constant:
        assert products(before) == found


@pytest.mark.parametrize("weight_zero", [0, 5, (1, 2, 3, 4, 5, 6)])
def test_a_depthwise_convolution_of_any_zero_points(weight_zero):
    x, params = operand("uint8", (1, 6, 5, 5), False, "x")
    w, _ = operand("int8", (6, 1, 3, 3), True, "w")
    zero = relay.const(np.array(weight_zero, "int32"))
    body = qnn.op.conv2d(x, w, 9, zero, 0.5, 0.5, groups=6, channels=6, kernel_size=(3, 3), padding=(1, 1))
    check(relay.Function(params, body), qnn.transform.CanonicalizeOps(), rtol=0, atol=0)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("zero", ["number", "scalar"])
@pytest.mark.parametrize("weight_zero", [0, 2, (4, -1, 0, 2, 7)])
def test_a_product_of_any_zero_points(constant, zero, weight_zero):
    """Zero points of the data may be results of the program."""
    x, params = operand("uint8", (3, 8), False, "x")
    w, more = operand("int8", (5, 8), constant, "weight")
    point = relay.const(11) if zero == "number" else relay.max(relay.cast(x, "int32"))
    body = qnn.op.dense(x, w, point, relay.const(np.array(weight_zero, "int32")), 0.5, 0.5)
    check(relay.Function([*params, *more], body), qnn.transform.CanonicalizeOps(), rtol=0, atol=0)


@pytest.mark.parametrize("zeros", [(0, 0), (3, 0), (0, 4), (120, 130)])
def test_products_of_matrices_of_any_zero_points(zeros):
    x, params = operand("uint8", (2, 3, 8), False, "x")
    y, more = operand("uint8", (2, 5, 8), False, "other")
    before = relay.Function([*params, *more], qnn.op.batch_matmul(x, y, *zeros, 0.5, 0.5))
    check(before, qnn.transform.CanonicalizeOps(), rtol=0, atol=0)
    assert products(before) == [["uint8", "uint8"]]


def test_a_border_of_zero_points_is_in_the_kernel_of_the_convolution():
    after = apply(
        relay.Function(*CONV), qnn.transform.CanonicalizeOps(), T.FoldConstant(), T.InferType(), T.FuseOps()
    )
    kernels = [
        e for e in relay.analysis.post_order(after) if isinstance(e, relay.Function) and e is not after
    ]
    assert len(kernels) == 1
    assert "nn.pad" in str(kernels[0])


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
