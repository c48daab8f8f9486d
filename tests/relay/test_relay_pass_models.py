"""The passes of `relay.build` in their order, all of them and each one left out: the same answers."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from relay_eval import count, evaluate, inputs, rand

import tilewright as tvm
from tilewright import relay
from tilewright.relay.build_module import PIPELINE, pipeline
from tilewright.relay.op.recurrent import gru

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


def transformer():
    """Words looked up by numbers of 64 bits, heads as batches of matrices, a feed-forward part with gelu."""
    ids = relay.var("ids", shape=(1, 5), dtype="int64")
    table, places = rand(5, 8), rand(5, 8, seed=1)
    x = relay.take(table, ids, axis=0) + relay.expand_dims(places, axis=0)
    rows = relay.reshape(x, (5, 8))

    def heads(seed):
        made = relay.reshape(nn.matmul(rows, rand(8, 8, seed=seed)) + rand(8, seed=seed), (5, 2, 4))
        return relay.transpose(made, (1, 0, 2))

    scores = nn.batch_matmul(heads(2), heads(3)) / relay.sqrt(relay.const(np.float32(4)))
    mixed = nn.batch_matmul(nn.softmax(scores), heads(4), transpose_b=False)
    y = rows + nn.dense(relay.reshape(relay.transpose(mixed, (1, 0, 2)), (5, 8)), rand(8, 8, seed=5))
    y = nn.layer_norm(y, rand(8), rand(8, seed=6))
    h = nn.dense(y, rand(16, 8, seed=7)) + rand(16, seed=8)
    half = relay.const(np.float32(0.5))
    h = half * h * (relay.erf(h * relay.const(np.float32(0.70710677))) + relay.const(np.float32(1)))
    return relay.Function([ids], y + nn.dense(h, rand(8, 16, seed=9)))


def recurrent():
    """An LSTM of three steps written out, and a GRU as one operator."""
    x = relay.var("x", shape=(3, 1, 4))
    wi, wh, bi, bh = rand(20, 4), rand(20, 5, seed=1), rand(20, seed=2), rand(20, seed=3)
    h, c = relay.zeros((1, 5), "float32"), relay.zeros((1, 5), "float32")
    rows = []
    for row in relay.split(x, 3, axis=0):
        z = nn.dense(relay.squeeze(row, [0]), wi) + nn.dense(h, wh) + (bi + bh)
        i, f, g, o = (relay.strided_slice(z, [0, k * 5], [1, k * 5 + 5]) for k in range(4))
        c = relay.sigmoid(f) * c + relay.sigmoid(i) * relay.tanh(g)
        h = relay.sigmoid(o) * relay.tanh(c)
        rows.append(h)
    states = relay.stack(rows, axis=0)
    again = gru(states, rand(15, 5), rand(15, 5, seed=4), rand(15), rand(15, seed=5), rand(1, 5))
    return relay.Function([x], relay.Tuple([states, again]))


def quantised():
    """Convolutions, a sum and a product between quantisations, scales for each channel."""
    x = relay.var("x", shape=(1, 4, 8, 8))

    def number(value, kind="float32"):
        return relay.const(np.array(value, kind))

    def held(y, scale, zero=3):
        q = relay.qnn.op.quantize(y, number(scale), number(zero, "int32"), out_dtype="uint8")
        return relay.qnn.op.dequantize(q, number(scale), number(zero, "int32"))

    def weight(*shape, seed=0, scales=None):
        q = np.random.default_rng(seed).integers(-100, 100, shape).astype("int8")
        made = number(0.01) if scales is None else relay.const(scales)
        return relay.qnn.op.dequantize(relay.const(q), made, number(0, "int32"), axis=0)

    y = held(x, 0.05, 120)
    many = np.linspace(0.002, 0.01, 8, dtype="float32")
    a = held(nn.relu(nn.conv2d(y, weight(8, 4, 3, 3, scales=many), padding=(1, 1))), 0.05)
    b = held(relay.clip(nn.bias_add(nn.conv2d(a, weight(8, 8, 1, 1, seed=1)), rand(8)), 0.0, 6.0), 0.04)
    y = held(nn.max_pool2d(held(a + b, 0.08), (2, 2), (2, 2)), 0.08)
    y = held(nn.batch_flatten(nn.global_avg_pool2d(y)), 0.02)
    y = held(nn.dense(y, weight(10, 8, seed=2)), 0.05, 100)
    return relay.Function([x], nn.softmax(y))


MODELS = {f.__name__: f() for f in (convolutional, attention, transformer, recurrent, quantised)}
FEW = ("FoldConstant", "FoldScaleAxis", "AlterOpLayout", "SimplifyInference", "FakeQuantizationToInteger")


@cache
def answer(name):
    return evaluate(MODELS[name], *inputs(MODELS[name]))


def optimised(name, level=4, **options):
    with tvm.transform.PassContext(opt_level=level, **options):
        return pipeline()(tvm.IRModule.from_expr(MODELS[name]))


def close(name, made):
    steps = name == "quantised"  # a value between two numbers may go to the other one, which is a step
    expected = answer(name)
    for a, b in zip(made, expected, strict=True) if isinstance(expected, list) else [(made, expected)]:
        np.testing.assert_allclose(a, b, rtol=0.05 if steps else 1e-3, atol=0.02 if steps else 1e-4)


def check(name, mod):
    close(name, evaluate(mod, *inputs(MODELS[name])))


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("level", [0, pytest.param(1, marks=pytest.mark.slow), 2, 3, 4])
def test_each_level(name, level):
    check(name, optimised(name, level))


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize(
    "left_out", [p if p in FEW else pytest.param(p, marks=pytest.mark.slow) for p in sorted(set(PIPELINE))]
)
def test_each_pass_left_out(name, left_out):
    seen = []
    count = tvm.ir.instrument.PassInstrument()
    count.run_before_pass = lambda mod, info: seen.append(info.name)
    check(name, optimised(name, disabled_pass=[left_out], instruments=[count]))
    assert left_out not in seen and set(PIPELINE) - {left_out} <= set(seen)


@pytest.mark.slow
@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.parametrize("left_out", [[], ["FuseOps"], ["FakeQuantizationToInteger", "qnn.CanonicalizeOps"]])
def test_compiled(name, left_out):
    with tvm.transform.PassContext(opt_level=3, disabled_pass=left_out):
        run = relay.create_executor("graph", tvm.IRModule.from_expr(MODELS[name])).evaluate()
        made = run(*inputs(MODELS[name]))
    close(name, [m.numpy() for m in made] if isinstance(answer(name), list) else made.numpy())


def test_without_fusion_each_operator_is_a_kernel():
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["FuseOps"]):
        mod = T.FuseOps()(optimised("attention", 3))
    kernels = [e for e in relay.analysis.post_order(mod["main"]) if isinstance(e, relay.Function) and e.attrs]
    assert kernels and all(relay.analysis.count_calls(k.body) == 1 for k in kernels)


@pytest.mark.slow
def test_what_is_quantised_runs_on_integers():
    mod = optimised("quantised", 3)
    calls = [e for e in relay.analysis.post_order(mod["main"]) if isinstance(e, relay.Call)]
    products = [c for c in calls if c.op.name in ("nn.conv2d", "nn.dense")]
    kinds = [[str(a.checked_type.dtype) for a in c.args] + [str(c.checked_type.dtype)] for c in products]
    assert kinds == [["uint8", "int8", "int32"]] * 3
    assert not any(c.op.name.startswith("qnn.") for c in calls)
    fused = [
        e.op for e in relay.analysis.post_order(T.FuseOps()(mod)["main"].body) if isinstance(e, relay.Call)
    ]
    kernels = [
        f for f in fused if isinstance(f, relay.Function) and relay.analysis.count_calls(f, "nn.conv2d")
    ]
    # what comes after a sum of products is done in the same kernel, down to the numbers that are read next
    assert len(kernels) == 2 and all(relay.analysis.count_calls(k, "round") for k in kernels)


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
