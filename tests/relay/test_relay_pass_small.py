"""Passes of a few lines: DivToMul, ChangeBatch."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay import transform as T


def test_divisions_by_constants_become_products() -> None:
    x, y = relay.var("x", shape=(3,)), relay.var("y", shape=(3,))
    mod = tvm.IRModule.from_expr(relay.Function([x, y], x / relay.const(np.float32(1.5)) + x / y))
    made = T.DivToMul()(mod)["main"].body
    product, quotient = made.args
    assert product.op.name == "multiply" and quotient.op.name == "divide"
    np.testing.assert_allclose(product.args[1].numpy(), 1 / 1.5, rtol=1e-6)
    whole = relay.var("i", shape=(3,), dtype="int32") / relay.const(2)
    assert T.DivToMul()(tvm.IRModule.from_expr(whole))["main"].body.op.name == "divide"


def test_the_batch_of_a_model_is_changed() -> None:
    x, w = relay.var("x", shape=(1, 3)), relay.var("w", shape=(4, 3))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(x, w)))
    for key in (mod["main"].params[0], "x"):
        made = T.ChangeBatch({key: 0}, batch_size=16)(mod)["main"]
        assert made.checked_type.ret_type.shape == (16, 4)
        assert made.params[1].checked_type.shape == (4, 3)
    with pytest.raises(tvm.TVMError, match="ChangeBatch: the function has no parameter 'z'; it has x, w"):
        T.ChangeBatch({"z": 0})(mod)
    with pytest.raises(tvm.TVMError, match=r"parameter 'x' is .* and has no axis 2"):
        T.ChangeBatch({"x": 2})(mod)
