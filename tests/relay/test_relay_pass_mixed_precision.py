"""ToMixedPrecision."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from relay_eval import apply, check, count, rand

import tilewright as tvm
from tilewright import relay

T = relay.transform
nn = relay.nn


def half(expr):
    return relay.cast(expr, "float16")


def single(expr):
    return relay.cast(expr, "float32")


def test_convolution_relu_softmax():
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    before = relay.Function([x, w], nn.softmax(nn.relu(nn.conv2d(x, w))))
    y = half(nn.conv2d(half(x), half(w), out_dtype="float32"))
    expected = relay.Function([x, w], nn.softmax(single(nn.relu(y))))
    check(before, T.ToMixedPrecision(), expected, rtol=1e-2, atol=1e-2)


def test_others_follow_where_one_operand_is_small():
    x, b = relay.var("x", shape=(2, 8)), relay.var("b", shape=(4,))
    w = rand(4, 8)
    before = relay.Function([x, b], nn.bias_add(nn.dense(x, w), b, axis=1) * relay.const(2.0))
    y = half(nn.dense(half(x), half(w), out_dtype="float32"))
    expected = relay.Function([x, b], nn.bias_add(y, half(b), axis=1) * half(relay.const(2.0)))
    check(before, T.ToMixedPrecision(), expected, rtol=1e-2, atol=2e-2)


def test_a_large_operand_draws_the_other_up():
    x = relay.var("x", shape=(2, 4))
    before = relay.Function([x], nn.dense(x, rand(4, 4)) + relay.exp(x))
    after = check(before, T.ToMixedPrecision(), rtol=2e-2, atol=2e-2)
    assert after.body.op.name == "add" and str(after.ret_type.dtype) == "float32"


def test_what_has_no_product_stays():
    x = relay.var("x", shape=(2, 4))
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x], nn.relu(relay.exp(x)))))
    assert T.ToMixedPrecision()(mod) is mod


def test_the_result_can_keep_its_type():
    x = relay.var("x", shape=(2, 8))
    mod = tvm.IRModule.from_expr(relay.Function([x], nn.dense(x, rand(4, 8))))
    assert str(T.ToMixedPrecision()(mod)["main"].ret_type.dtype) == "float16"
    with tvm.transform.PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
        assert str(T.ToMixedPrecision()(mod)["main"].ret_type.dtype) == "float32"


def test_bfloat16_and_other_types():
    x = relay.var("x", shape=(2, 8))
    after = apply(relay.Function([x], nn.dense(x, rand(4, 8))), T.ToMixedPrecision("bfloat16"))
    assert str(after.ret_type.dtype) == "bfloat16"
    with pytest.raises(tvm.TVMError, match="float16, bfloat16 or float64, not 'int8'"):
        apply(relay.Function([x], x), T.ToMixedPrecision("int8"))


def test_joins_and_branches():
    x, c = relay.var("x", shape=(2, 8)), relay.var("c", shape=(), dtype="bool")
    y, z = nn.dense(x, rand(4, 8)), nn.dense(x, rand(4, 8, seed=2))
    joined = relay.concatenate([y, z], axis=1)
    before = relay.Function([x, c], relay.If(c, joined, relay.exp(joined)))
    after = check(before, T.ToMixedPrecision(), rtol=5e-2, atol=5e-2)
    assert str(after.ret_type.dtype) == "float32"


def test_integers_are_left_alone():
    x = relay.var("x", shape=(2, 8), dtype="int8")
    w = relay.const(np.ones((4, 8), "int8"))
    before = relay.Function([x], nn.dense(x, w, out_dtype="int32"))
    check(before, T.ToMixedPrecision(), before)


def test_an_operator_can_say_itself():
    x = relay.var("x", shape=(2, 8))
    op = relay.op.get("nn.dense")
    op.set_attr("FTVMMixedPrecisionConversionType", lambda call, kind: [2, "float32", "float32"])
    try:
        mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x], nn.dense(x, rand(4, 8)))))
        assert T.ToMixedPrecision()(mod) is mod
    finally:
        op.reset_attr("FTVMMixedPrecisionConversionType")


def test_operators_that_nothing_is_said_of():
    x = relay.var("x", shape=(2, 8))
    before = relay.Function([x], relay.sort(x))
    with pytest.raises(tvm.TVMError, match="sort has no conversion rule"):
        apply(before, T.ToMixedPrecision("float16", 0))
    with pytest.warns(UserWarning, match="sort is left in float32"):
        apply(before, T.ToMixedPrecision("float16", 1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert count(apply(before, T.ToMixedPrecision("float16", 2)), "cast") == 0


def test_a_larger_type() -> None:
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
    before = relay.Function([x, w], nn.relu(nn.dense(x, w)))
    double = [relay.cast(v, "float64") for v in (x, w)]
    expected = relay.Function([x, w], nn.relu(nn.dense(*double, out_dtype="float64")))
    check(before, T.ToMixedPrecision("float64"), expected, rtol=1e-5, atol=1e-5)
