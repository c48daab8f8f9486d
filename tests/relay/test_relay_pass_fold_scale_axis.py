"""FoldScaleAxis: factors of channels go into weights."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import check, count, rand

import tilewright as tvm
from tilewright import relay

T = relay.transform
nn = relay.nn


def _ops(func):
    return relay.analysis.list_op_freqs(tvm.IRModule.from_expr(func))


def test_backward_written_out():
    x, w, s = (
        relay.var("x", shape=(1, 3, 8, 8)),
        relay.var("w", shape=(4, 3, 3, 3)),
        relay.var("s", shape=(4,)),
    )
    before = relay.Function([x, w, s], nn.conv2d(x, w) * relay.expand_dims(s, 1, 2))
    expected = relay.Function([x, w, s], nn.conv2d(x, w * relay.expand_dims(s, 1, 3)))
    check(before, T.BackwardFoldScaleAxis(), expected, rtol=1e-4, atol=1e-4)


def test_forward_written_out():
    x, w, s = (
        relay.var("x", shape=(1, 3, 8, 8)),
        relay.var("w", shape=(4, 3, 3, 3)),
        relay.var("s", shape=(3,)),
    )
    before = relay.Function([x, w, s], nn.conv2d(x * relay.expand_dims(s, 1, 2), w))
    expected = relay.Function([x, w, s], nn.conv2d(x, w * relay.expand_dims(s, 1, 2)))
    check(before, T.ForwardFoldScaleAxis(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("depthwise", [False, True])
def test_backward_through_relu_sum_and_pooling(layout, depthwise):
    nchw = layout == "NCHW"
    x = relay.var("x", shape=(1, 4, 8, 8) if nchw else (1, 8, 8, 4))
    inputs = 1 if depthwise else 4
    w = rand(4, inputs, 3, 3) if nchw else rand(3, 3, inputs, 4)
    along = (4, 1, 1) if nchw else (4,)
    y = nn.conv2d(
        x, w, groups=4 if depthwise else 1, data_layout=layout, kernel_layout="OIHW" if nchw else "HWIO"
    )
    y = nn.relu(y + rand(*along, seed=2))
    y = nn.max_pool2d(y, (2, 2), (2, 2), layout=layout)
    before = relay.Function([x], y * rand(*along, seed=3, positive=True))
    after = check(before, [T.FoldScaleAxis(), T.FoldConstant()], rtol=1e-4, atol=1e-4)
    assert _ops(after) == {"nn.conv2d": 1, "add": 1, "nn.relu": 1, "nn.max_pool2d": 1}


def test_batch_norm_folds_into_the_convolution():
    x = relay.var("x", shape=(1, 3, 8, 8))
    y = nn.batch_norm(nn.conv2d(x, rand(4, 3, 3, 3)), *(rand(4, seed=i, positive=True) for i in range(4)))[0]
    before = relay.Function([x], nn.relu(y))
    passes = [T.SimplifyInference(), T.FoldConstant(), T.FoldScaleAxis(), T.FoldConstant()]
    after = check(before, passes, rtol=1e-4, atol=1e-4)
    assert _ops(after) == {"nn.conv2d": 1, "add": 1, "nn.relu": 1}


def test_a_factor_that_may_be_negative_stays_behind_relu():
    x = relay.var("x", shape=(1, 3, 8, 8))
    before = relay.Function([x], nn.relu(nn.conv2d(x, rand(4, 3, 3, 3))) * rand(4, 1, 1, seed=5))
    after = check(before, T.FoldScaleAxis(), before)
    assert count(after, "multiply") == 1


def test_a_result_that_is_used_elsewhere_stays():
    x = relay.var("x", shape=(1, 3, 8, 8))
    y = nn.conv2d(x, rand(4, 3, 3, 3))
    before = relay.Function([x], relay.Tuple([y * rand(4, 1, 1), y]))
    check(before, T.FoldScaleAxis(), before)


def test_two_convolutions_in_a_sum():
    x = relay.var("x", shape=(1, 3, 8, 8))
    y = nn.conv2d(x, rand(4, 3, 3, 3)) + nn.conv2d(x, rand(4, 3, 3, 3, seed=2))
    before = relay.Function([x], y * rand(4, 1, 1, seed=3))
    after = check(before, [T.BackwardFoldScaleAxis(), T.FoldConstant()], rtol=1e-4, atol=1e-4)
    assert _ops(after) == {"nn.conv2d": 2, "add": 1}


def test_a_sum_with_a_tensor_that_cannot_take_the_factor_stays():
    x, z = relay.var("x", shape=(1, 3, 8, 8)), relay.var("z", shape=(1, 4, 6, 6))
    before = relay.Function([x, z], (nn.conv2d(x, rand(4, 3, 3, 3)) + z) * rand(4, 1, 1))
    check(before, T.BackwardFoldScaleAxis(), before)


def test_dense_and_bias_add():
    x = relay.var("x", shape=(2, 8))
    before = relay.Function([x], nn.bias_add(nn.dense(x, rand(4, 8)), rand(4, seed=2)) * rand(4, seed=3))
    after = check(before, [T.FoldScaleAxis(), T.FoldConstant()])
    assert _ops(after) == {"nn.dense": 1, "nn.bias_add": 1}
    forward = relay.Function([x], nn.dense(x * rand(8, seed=4), rand(4, 8)))
    assert _ops(check(forward, [T.FoldScaleAxis(), T.FoldConstant()])) == {"nn.dense": 1}


def test_transposed_convolution():
    x = relay.var("x", shape=(1, 3, 5, 5))
    y = nn.conv2d_transpose(x, rand(3, 4, 3, 3), channels=4, kernel_size=(3, 3))
    before = relay.Function([x], y * rand(4, 1, 1, seed=2))
    after = check(before, [T.BackwardFoldScaleAxis(), T.FoldConstant()], rtol=1e-4, atol=1e-4)
    assert _ops(after) == {"nn.conv2d_transpose": 1}


def test_forward_through_relu_and_a_shift():
    x = relay.var("x", shape=(1, 3, 8, 8))
    y = nn.relu(x * rand(3, 1, 1, positive=True) + rand(3, 1, 1, seed=2))
    before = relay.Function([x], nn.conv2d(y, rand(4, 3, 3, 3)))
    after = check(before, [T.ForwardFoldScaleAxis(), T.FoldConstant()], rtol=1e-4, atol=1e-4)
    assert _ops(after) == {"add": 1, "nn.relu": 1, "nn.conv2d": 1}


def test_forward_into_a_depthwise_convolution():
    x = relay.var("x", shape=(1, 4, 8, 8))
    before = relay.Function([x], nn.conv2d(x * rand(4, 1, 1), rand(4, 1, 3, 3), groups=4))
    assert _ops(check(before, [T.FoldScaleAxis(), T.FoldConstant()], rtol=1e-4, atol=1e-4)) == {
        "nn.conv2d": 1
    }


def test_grouped_convolutions_take_factors_of_results_only():
    x = relay.var("x", shape=(1, 4, 8, 8))
    before = relay.Function([x], nn.conv2d(x * rand(4, 1, 1), rand(6, 2, 3, 3), groups=2) * rand(6, 1, 1))
    after = check(before, [T.FoldScaleAxis(), T.FoldConstant()], rtol=1e-4, atol=1e-4)
    assert _ops(after) == {"multiply": 1, "nn.conv2d": 1}


@pytest.mark.slow
def test_a_long_chain_is_not_walked_forever():
    x = relay.var("x", shape=(1, 4, 2, 2))
    y, s = x, rand(4, 1, 1, positive=True)
    for _ in range(3000):
        y = nn.relu(y * s)
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x], y)))
    assert T.FoldScaleAxis()(mod) is mod


def test_one_half_can_be_switched_off():
    x = relay.var("x", shape=(1, 3, 8, 8))
    mod = tvm.IRModule.from_expr(relay.Function([x], nn.conv2d(x, rand(4, 3, 3, 3)) * rand(4, 1, 1)))
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["BackwardFoldScaleAxis"]):
        after = T.FoldScaleAxis()(mod)
    assert (
        isinstance(after["main"].body.args[1], relay.Constant)
        and np.ndim(after["main"].body.args[1].numpy()) == 3
    )


@pytest.mark.parametrize("turned", [False, True])
def test_products_of_many_matrices(turned):
    x = relay.var("x", shape=(2, 3, 4) if turned else (2, 4, 3))
    y = nn.matmul(x, rand(3, 4), transpose_a=turned) * rand(4, seed=3, positive=True)
    after = check(relay.Function([x], y), [T.FoldScaleAxis(), T.FoldConstant()], rtol=1e-4, atol=1e-4)
    assert _ops(after) == {"nn.matmul": 1}


def test_weights_that_are_constants_are_computed() -> None:
    x = relay.var("x", shape=(1, 3, 6, 6))
    conv = relay.nn.conv2d(x, relay.const(np.ones((2, 3, 3, 3))))
    y = relay.multiply(conv, relay.const(np.array([2.0, 3.0]).reshape(2, 1, 1)))
    with tvm.transform.PassContext(opt_level=3):
        body = relay.transform.FoldScaleAxis()(tvm.IRModule.from_expr(relay.Function([x], y)))["main"].body
    assert body.op.name == "nn.conv2d" and isinstance(body.args[1], relay.Constant)
    np.testing.assert_array_equal(body.args[1].numpy()[:, 0, 0, 0], [2, 3])
