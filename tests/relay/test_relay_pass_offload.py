"""Offload: the functions that an accelerator computes, what stays on the host, and that nothing changes the result."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from relay_eval import apply, check, count, evaluate

import tilewright as tvm
from tilewright import relay, vta
from tilewright.relay.analysis import free_vars, post_order
from tilewright.relay.transform.offload import Region, is_offloaded, offload

T, nn = relay.transform, relay.nn
CHIP = "ext_dev"
REFUSED = pytest.mark.filterwarnings("ignore:vta computes no part")


def number(value):
    return relay.const(value, "int32")


def weights(*shape):
    return relay.const(np.random.default_rng(sum(shape)).integers(-8, 8, shape).astype("int8"))


def image(channels=16, size=8, dtype="int8", batch=1):
    return relay.var("x", shape=(batch, channels, size, size), dtype=dtype)


def conv(x, taken, channels, kernel=3, **options):
    options.setdefault("padding", (kernel // 2, kernel // 2))
    w = weights(channels, taken // options.get("groups", 1), kernel, kernel)
    return nn.conv2d(x, w, channels=channels, kernel_size=(kernel, kernel), out_dtype="int32", **options)


def rescaled(x, low=0):
    return relay.cast(relay.clip(relay.right_shift(x, number(4)), low, 127), "int8")


def wide(x):
    return relay.cast(x, "int32")


def function(body):
    return relay.Function(free_vars(body), body)


def offloaded(body, *args):
    """The functions for the chip, as lists of operators, in order; checks that the result is the same."""
    before = function(body)
    with tvm.target.Target(CHIP):
        after = apply(before, T.Offload(*args))
    kinds = [p.type_annotation for p in before.params]
    rng = np.random.default_rng(5)
    arrays = [rng.integers(-128, 128, k.concrete_shape).astype(str(k.dtype)) for k in kinds]
    np.testing.assert_array_equal(evaluate(before, *arrays), evaluate(after, *arrays))
    return operators(after)


def operators(after):
    found = [
        e.op for e in post_order(after.body) if isinstance(e, relay.Call) and isinstance(e.op, relay.Function)
    ]
    assert all(map(is_offloaded, found))
    return [[e.op.name for e in post_order(fn.body) if isinstance(e, relay.Call)] for fn in found]


def is_call_of_chip(call):
    return isinstance(call.op, relay.Function) and is_offloaded(call.op)


def shifts():
    """Numbers of bits that are data."""
    return relay.clip(wide(relay.var("s", shape=(16, 1, 1), dtype="int8")), 0, 31)


# ---------------------------------------------------------------------------- expect
def test_written_out():
    x, w = image(), relay.var("w", shape=(24, 16, 3, 3), dtype="int8")
    y = nn.conv2d(x, w, padding=(1, 1), channels=24, kernel_size=(3, 3), out_dtype="int32")
    before = relay.Function([x, w], rescaled(y))
    p0 = relay.var("p0", shape=(1, 1, 8, 8, 1, 16), dtype="int8")
    p1 = relay.var("p1", shape=(2, 1, 3, 3, 16, 16), dtype="int8")
    y = nn.conv2d(
        p0, p1, padding=(1, 1), channels=32, kernel_size=(3, 3), data_layout="NCHW1n16c",
        kernel_layout="OIHW16o16i", out_dtype="int32",
    )  # fmt: skip
    chip = relay.Function([p0, p1], rescaled(y), attrs={"Primitive": 1, "Offloaded": 1})
    made = chip(
        relay.layout_transform(x, "NCHW", "NCHW1n16c"), relay.layout_transform(w, "OIHW", "OIHW16o16i")
    )
    plain = relay.layout_transform(made, "NCHW1n16c", "NCHW")
    plain = relay.strided_slice(plain, (0, 0, 0, 0), (1, 24, 8, 8), (1, 1, 1, 1))
    with tvm.target.Target(CHIP):
        check(before, T.Offload(), relay.Function([x, w], plain), rtol=0, atol=0)


def test_tensors_are_packed_only_between_host_and_chip():
    y = rescaled(conv(rescaled(conv(image(), 16, 32)), 32, 40, 1, strides=(2, 2)), -127)
    with tvm.target.Target(CHIP):
        after = check(function(y), T.Offload(), rtol=0, atol=0)
    assert len(operators(after)) == 2
    assert count(after, "layout_transform") == 4  # the image, two kernels, the result


# ---------------------------------------------------------------------------- what is offloaded
EPILOGUE = ["right_shift", "clip", "cast"]


def test_an_epilogue_is_part_of_its_product():
    bias = relay.const(np.arange(32, dtype="int32"))
    y = nn.relu(nn.bias_add(conv(image(), 16, 32), bias))
    y = relay.subtract(relay.multiply(relay.minimum(y, number(500)), number(3)), number(7))
    assert offloaded(rescaled(y)) == [
        ["nn.conv2d", "add", "nn.relu", "minimum", "multiply", "subtract", *EPILOGUE]
    ]


def test_a_residual_sum_joins_the_product_in_front_of_it():
    x = rescaled(conv(image(), 16, 16))
    y = rescaled(conv(x, 16, 16), -127)
    total = relay.cast(relay.clip(relay.add(wide(y), wide(x)), 0, 127), "int8")
    assert offloaded(total) == [
        ["nn.conv2d", *EPILOGUE],
        ["nn.conv2d", "right_shift", "clip", "cast", "add", "clip", "cast"],
    ]


def test_a_sum_of_truncated_numbers_is_apart():
    x = rescaled(conv(image(), 16, 16))
    y = relay.cast(relay.right_shift(conv(x, 16, 16), number(2)), "int8")  # wraps around
    total = relay.cast(relay.clip(relay.add(wide(y), wide(x)), 0, 127), "int8")
    first, second, third = offloaded(total)
    assert second == ["nn.conv2d", "right_shift", "cast"] and third == ["cast", "cast", "add", "clip", "cast"]


def test_operators_on_narrow_numbers_are_computed_with_wide_ones():
    y = rescaled(conv(image(), 16, 16), -127)
    y = relay.add(nn.relu(y), relay.const(np.arange(16, dtype="int8").reshape(16, 1, 1)))  # wraps around
    assert offloaded(y)[1:] == [["cast", "nn.relu", "cast"], ["cast", "cast", "add", "cast"]]


def test_pooling_sums_and_dense_layers():
    y = nn.max_pool2d(rescaled(conv(image(), 16, 16)), (3, 3), (2, 2), padding=(1, 1))
    y = rescaled(relay.sum(wide(y), axis=(2, 3)))
    y = nn.dense(y, weights(24, 16), out_dtype="int32")
    y = nn.bias_add(y, relay.const(np.arange(24, dtype="int32")))
    assert offloaded(nn.softmax(relay.cast(y, "float32"))) == [
        ["nn.conv2d", *EPILOGUE],
        ["nn.pad", "cast", "nn.max_pool2d", "cast"],
        ["cast", "sum", *EPILOGUE],
        ["nn.conv2d", "add"],
    ]


def test_pooling_in_front_of_the_chip():
    y = rescaled(conv(image(3), 3, 16))  # on the host: three channels
    y = nn.max_pool2d(y, (2, 2), (2, 2))
    assert offloaded(rescaled(conv(y, 16, 16)))[0] == ["cast", "nn.max_pool2d", "cast"]


def test_views_of_vectors_keep_their_blocks():
    y = relay.sum(wide(rescaled(conv(image(), 16, 24))), axis=(2, 3), keepdims=True)
    y = nn.batch_flatten(rescaled(y))
    assert len(offloaded(nn.dense(y, weights(16, 24), out_dtype="int32"))) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {"kernel": 1},
        {"kernel": 5, "strides": (2, 1)},
        {"padding": (0, 1, 2, 1)},
        {"strides": (3, 3), "padding": (0, 0)},
        {"dilation": (2, 2), "padding": (2, 2)},
    ],
    ids=str,
)
@pytest.mark.parametrize("channels", [(16, 16), (24, 40), (14, 20)], ids=str)
def test_convolutions(options, channels):
    assert len(offloaded(rescaled(conv(image(channels[0]), *channels, **options)))) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("taken", "channels", "groups", "blocks"),
    [
        (16, 16, 16, 1),
        (24, 24, 24, 2),  # the last block is half full
        (32, 32, 8, 2),
        (64, 32, 4, 2),
        (48, 48, 3, 3),
        (64, 64, 2, 1),  # two blocks of outputs in a group: one group with zeros
    ],
)
def test_convolutions_of_groups(taken, channels, groups, blocks):
    y = rescaled(conv(image(taken), taken, channels, groups=groups, strides=(2, 2)))
    assert offloaded(y) == [["nn.conv2d", *EPILOGUE]]
    with tvm.target.Target(CHIP):
        after = apply(function(y), T.Offload())
    (made,) = [c for c in post_order(after.body) if isinstance(c, relay.Call) and is_call_of_chip(c)]
    (product,) = [
        c for c in post_order(made.op.body) if isinstance(c, relay.Call) and c.op.name == "nn.conv2d"
    ]
    assert product.attrs.groups == blocks


def test_a_group_of_convolutions_says_why_it_stays():
    x = image(32)
    w = relay.const(np.zeros((64, 1, 3, 3), "int8"))
    body = nn.conv2d(x, w, groups=32, channels=64, kernel_size=(3, 3), out_dtype="int32")
    with tvm.target.Target(CHIP), pytest.warns(RuntimeWarning) as told:
        T.Offload()(tvm.IRModule.from_expr(function(body)))
    assert str(told[0].message).endswith(
        "nn.conv2d, stays on the host: its 32 groups have 1 input and 2 output channels: no number of them has one "
        "block of 16 outputs"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [{"LOG_BATCH": 1}, {"LOG_BATCH": 2, "LOG_BLOCK": 3}, {"LOG_BLOCK": 5}], ids=str
)
def test_other_blocks(sizes):
    x = rescaled(conv(image(32, 6, batch=3), 32, 24))
    y = rescaled(nn.bias_add(conv(x, 24, 24), relay.const(np.arange(24, dtype="int32"))), -127)
    total = relay.cast(relay.clip(relay.add(wide(y), wide(x)), 0, 127), "int8")
    own = {k: v for k, v in vta.Config().keys().items() if not k.startswith("LOG_BLOCK")}
    with vta.Environment({**own, "LOG_BLOCK": 4, **sizes}):
        assert len(offloaded(total)) == 2


# ---------------------------------------------------------------------------- what is not
@REFUSED
@pytest.mark.parametrize(
    ("body", "kept"),
    [
        pytest.param(lambda: conv(image(3), 3, 64), [], id="few channels"),
        pytest.param(lambda: conv(image(32), 32, 64, groups=32), [], id="two outputs of each channel"),
        pytest.param(lambda: conv(image(128), 128, 128, groups=4), [], id="two blocks of outputs in a group"),
        pytest.param(lambda: relay.add(wide(image()), number(1)), [], id="elementwise on the host"),
        pytest.param(
            lambda: relay.add(conv(image(), 16, 16), number(1 << 20)), [["nn.conv2d"]], id="long constant"
        ),
        pytest.param(
            lambda: relay.right_shift(conv(image(), 16, 16), shifts()),
            [["nn.conv2d"]],
            id="shift by data",
        ),
        pytest.param(
            lambda: nn.max_pool2d(rescaled(conv(image(), 16, 16), -127), (3, 3), padding=(1, 1)),
            [["nn.conv2d", *EPILOGUE]],
            id="padding beside negative numbers",
        ),
        pytest.param(
            lambda: relay.multiply(relay.cast(conv(image(), 16, 16), "float32"), relay.const(0.3)),
            [["nn.conv2d"]],
            id="float scales",
        ),
    ],
)
def test_the_rest_is_left_to_the_host(body, kept):
    assert offloaded(body()) == kept


def test_results_that_two_read_are_stored():
    y = relay.right_shift(conv(image(), 16, 16), number(3))
    both = relay.Tuple([relay.exp(relay.cast(y, "float32")), relay.cast(relay.clip(y, 0, 9), "int8")])
    with tvm.target.Target(CHIP):
        after = T.Offload()(tvm.IRModule.from_expr(function(both)))["main"]
    assert operators(after)[0] == ["nn.conv2d", "right_shift"]


def test_a_quantized_model_is_offloaded_as_far_as_it_is_exact():
    zero, scale = number(0), relay.const(np.float32(0.07))
    y = relay.qnn.op.conv2d(
        image(), weights(16, 16, 3, 3), zero, zero, scale, scale, kernel_size=(3, 3), channels=16
    )
    y = relay.qnn.op.requantize(y, relay.const(np.float32(0.0049)), zero, scale, zero, out_dtype="int8")
    mod = relay.qnn.transform.CanonicalizeOps()(tvm.IRModule.from_expr(function(y)))
    assert offloaded(mod["main"].body) == [["nn.conv2d"]]


@pytest.mark.slow
def test_scales_that_are_powers_of_two_are_shifts_of_the_chip():
    zero, scale = number(0), relay.const(np.float32(0.25))
    y = relay.qnn.op.conv2d(
        image(), weights(16, 16, 3, 3), zero, zero, scale, scale, kernel_size=(3, 3), channels=16
    )
    y = relay.qnn.op.requantize(
        y, relay.const(np.float32(1 / 16)), zero, relay.const(np.float32(1)), zero, out_dtype="int8"
    )
    mod = relay.qnn.transform.CanonicalizeOps()(tvm.IRModule.from_expr(function(y)))
    assert offloaded(mod["main"].body) == [["nn.conv2d", "right_shift", "add", "right_shift", "clip", "cast"]]


# ---------------------------------------------------------------------------- refuse
def test_a_model_of_floats_says_what_to_do():
    x = image(dtype="float32")
    body = nn.conv2d(x, relay.const(np.zeros((16, 16, 3, 3), "float32")))
    with tvm.target.Target(CHIP), pytest.warns(RuntimeWarning) as told:
        T.Offload()(tvm.IRModule.from_expr(function(body)))
    assert str(told[0].message) == (
        "vta computes no part of the model: it has no product that fits the chip, and the first one, nn.conv2d, stays "
        "on the host: it multiplies float32 by float32 into float32, and vta int8 by int8 into int32; quantize the "
        "model to these types first"
    )


def test_a_region_that_does_not_exist():
    with tvm.target.Target(CHIP), pytest.raises(tvm.TVMError) as error:
        T.Offload(Region("nn.dense"))(tvm.IRModule.from_expr(function(rescaled(conv(image(), 16, 16)))))
    assert str(error.value) == (
        "Offload: the operator 'nn.dense' does not occur behind call 0; these do: nn.conv2d, right_shift, clip, cast"
    )


def test_nothing_is_offloaded_outside_of_a_region():
    y = rescaled(conv(nn.max_pool2d(rescaled(conv(image(), 16, 16)), (2, 2), (2, 2)), 16, 16))
    y = relay.sum(wide(y), axis=(2, 3))
    region = Region("nn.max_pool2d", "sum")
    assert offloaded(y, region) == [["nn.conv2d", *EPILOGUE]]
    with tvm.target.Target(CHIP):
        once = T.Offload(region)(tvm.IRModule.from_expr(function(y)))
        assert T.Offload()(once)["main"] is once["main"]


# ---------------------------------------------------------------------------- identity
def test_other_targets_and_functions_are_the_same_object():
    func = T.InferType()(tvm.IRModule.from_expr(function(rescaled(conv(image(), 16, 16)))))["main"]
    assert offload(func) is func
    with tvm.target.Target("llvm"):
        assert offload(func) is func
    floats = T.InferType()(tvm.IRModule.from_expr(function(relay.exp(image(dtype="float32")))))["main"]
    with tvm.target.Target(CHIP), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert offload(floats) is floats
