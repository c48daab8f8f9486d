"""The passes of `relay.build` in their order, all of them and each one left out: the same answers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from relay_eval import count, evaluate, inputs, rand

import tilewright as tvm
from tilewright import relay
from tilewright.relay.build_module import PIPELINE

nn = relay.nn
T = relay.transform


def convolutional():
    """Two convolutions with batch normalisation beside each other, joined, pooled, classified."""
    x = relay.var("x", shape=(1, 3, 16, 16))
    y = nn.conv2d(x, rand(16, 3, 3, 3), padding=(1, 1))
    y = nn.relu(nn.batch_norm(y, *(rand(16, seed=i, positive=True) for i in range(4)))[0])
    a = nn.bias_add(nn.conv2d(y, rand(16, 16, 3, 3), padding=(1, 1)), rand(16))
    b = nn.conv2d(y, rand(16, 1, 3, 3), padding=(1, 1), groups=16) * rand(16, 1, 1, positive=True)
    y = relay.concatenate([nn.relu(a + y), nn.relu(b)], axis=1)
    y = nn.dropout(nn.max_pool2d(y, (2, 2), (2, 2)))
    y = relay.reshape(nn.global_avg_pool2d(y), relay.const(np.array([1, -1])))
    logits = nn.dense(y, rand(10, 32)) * relay.const(np.float32(0.01))
    return relay.Function([x], nn.softmax(logits + relay.exp(rand(10))))


def attention():
    """Three products of the same data, softmax, a layer norm."""
    x = relay.var("x", shape=(6, 8))
    q, k, v = (nn.dense(x, rand(8, 8, seed=i)) + rand(8, seed=i) for i in range(3))
    weights = nn.softmax(nn.dense(q, k) * relay.const(np.float32(0.35)))
    y = relay.transpose(relay.transpose(nn.dense(weights, relay.transpose(v))))
    return relay.Function([x], nn.layer_norm(x + y, rand(8), rand(8, seed=2)))


MODELS = {"convolutional": convolutional(), "attention": attention()}
FEW = ("FoldConstant", "FoldScaleAxis", "AlterOpLayout", "SimplifyInference")


@cache
def answer(name):
    return evaluate(MODELS[name], *inputs(MODELS[name]))


def optimised(name, level=4, **options):
    with tvm.transform.PassContext(opt_level=level, **options):
        passes = [getattr(T, p)() for p in PIPELINE if p in vars(T)]
        return tvm.transform.Sequential(passes)(tvm.IRModule.from_expr(MODELS[name]))


def check(name, mod):
    made = evaluate(mod, *inputs(MODELS[name]))
    np.testing.assert_allclose(made, answer(name), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("level", [0, pytest.param(1, marks=pytest.mark.slow), 2, 3, 4])
def test_each_level(name, level):
    check(name, optimised(name, level))


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize(
    "left_out", [p if p in FEW else pytest.param(p, marks=pytest.mark.slow) for p in sorted(set(PIPELINE))]
)
def test_each_pass_left_out(name, left_out):
    check(name, optimised(name, disabled_pass=[left_out]))


def test_what_becomes_of_a_convolutional_network():
    mod = optimised("convolutional", 3)
    names = ("nn.batch_norm", "nn.dropout", "exp", "reshape", "multiply")
    assert [count(mod, n) for n in names] == [0, 0, 0, 1, 1]  # the product with 0.01 is none of channels
    assert count(mod, "layout_transform") <= 3


@pytest.mark.slow
def test_to_nhwc_and_back_in_half_precision():
    mod = optimised("convolutional", 3, disabled_pass=["AlterOpLayout"])
    mod = T.ConvertLayout({"nn.conv2d": ["NHWC", "default"]})(mod)
    check("convolutional", mod)
    half = T.ToMixedPrecision()(mod)
    made = evaluate(half, *inputs(MODELS["convolutional"]))
    np.testing.assert_allclose(made.astype("float32"), answer("convolutional"), rtol=0.1, atol=0.05)
