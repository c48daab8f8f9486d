"""SimplifyInference, CanonicalizeOps, FastMath."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import apply, check, count, rand

import tilewright as tvm
from tilewright import relay

T = relay.transform


@pytest.mark.parametrize(("axis", "shape"), [(1, (1, 4, 5, 5)), (3, (1, 5, 5, 4)), (-1, (2, 4))])
def test_batch_norm_is_a_factor_and_a_shift(axis, shape):
    x = relay.var("x", shape=shape)
    gamma, beta, mean = rand(4, seed=1), rand(4, seed=2), rand(4, seed=3)
    var = rand(4, seed=4, positive=True)
    before = relay.Function([x], relay.nn.batch_norm(x, gamma, beta, mean, var, axis=axis)[0])
    after = check(before, T.SimplifyInference())
    assert count(after, "nn.batch_norm") == 0
    folded = check(before, [T.SimplifyInference(), T.FoldConstant()])
    assert relay.analysis.list_op_freqs(tvm.IRModule.from_expr(folded)) == {"multiply": 1, "add": 1}


def test_batch_norm_written_out():
    x, g, b, m, v = (relay.var(n, shape=s) for n, s in zip("xgbmv", [(1, 4, 5, 5)] + [(4,)] * 4, strict=True))
    before = relay.Function([x, g, b, m, v], relay.nn.batch_norm(x, g, b, m, v, epsilon=0.5)[0])
    scale = relay.const(np.float32(1)) / relay.sqrt(v + relay.const(np.float32(0.5))) * g
    shift = relay.negative(m) * scale + b
    expected = x * relay.expand_dims(scale, 1, 2) + relay.expand_dims(shift, 1, 2)
    after = apply(before, T.SimplifyInference())
    tvm.ir.assert_structural_equal(after, T.infer_type(relay.Function([x, g, b, m, v], expected)))


def test_batch_norm_without_gamma_and_beta():
    x, c = relay.var("x", shape=(1, 4, 5, 5)), [rand(4, seed=i, positive=True) for i in range(4)]
    before = relay.Function([x], relay.nn.batch_norm(x, *c, center=False, scale=False)[0])
    check(before, T.SimplifyInference())


def test_dropout_goes():
    x = relay.var("x", shape=(2, 3))
    before = relay.Function([x], relay.nn.relu(relay.nn.dropout(x)))
    check(before, T.SimplifyInference(), relay.Function([x], relay.nn.relu(x)))


def test_layer_norm():
    x = relay.var("x", shape=(2, 3, 8))
    before = relay.Function([x], relay.nn.layer_norm(x, rand(8), rand(8, seed=2)))
    after = check(before, T.SimplifyInference())
    assert count(after, "nn.layer_norm") == 0 and count(after, "variance") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["instance_norm", "group_norm", "l2_normalize"])
def test_other_norms(name):
    x = relay.var("x", shape=(2, 4, 5, 5))
    if name == "instance_norm":
        made = relay.nn.instance_norm(x, rand(4), rand(4, seed=2))
    elif name == "group_norm":
        made = relay.nn.group_norm(x, rand(4), rand(4, seed=2), 2)
    else:
        made = relay.nn.l2_normalize(x, 1e-6, [1])
    after = check(relay.Function([x], made), T.SimplifyInference(), rtol=1e-4, atol=1e-4)
    assert count(after, f"nn.{name}") == 0


def test_bias_add_is_an_addition():
    x, b = relay.var("x", shape=(1, 4, 5, 5)), relay.var("b", shape=(4,))
    check(
        relay.Function([x, b], relay.nn.bias_add(x, b)),
        T.CanonicalizeOps(),
        relay.Function([x, b], x + relay.expand_dims(b, 1, 2)),
    )
    y, c = relay.var("y", shape=(3, 4)), relay.var("c", shape=(4,))
    check(
        relay.Function([y, c], relay.nn.bias_add(y, c, -1)),
        T.CanonicalizeOps(),
        relay.Function([y, c], y + c),
    )


def test_fast_math():
    x = relay.var("x", shape=(2, 8))
    before = relay.Function([x], relay.nn.softmax(relay.tanh(relay.exp(x))))
    expected = relay.Function([x], relay.nn.fast_softmax(relay.fast_tanh(relay.fast_exp(x))))
    check(before, T.FastMath(), expected, rtol=1e-3, atol=1e-3)


def test_fast_math_leaves_other_types():
    x = relay.var("x", shape=(2,), dtype="float64")
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.exp(x))))
    assert T.FastMath()(mod) is mod


def test_fast_math_runs_from_level_4_on():
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    for level, expected in ((3, 0), (4, 1)):
        with tvm.transform.PassContext(opt_level=level):
            assert count(tvm.transform.Sequential([T.FastMath()])(mod), "fast_exp") == expected
