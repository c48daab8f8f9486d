"""recast: layers in another type."""

from __future__ import annotations

from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import relay

X, W = relay.var("x", shape=(1, 4, 6, 6)), relay.var("w", shape=(4, 4, 1, 1))


def conv(y: Any, **options: Any) -> Any:
    return relay.nn.conv2d(y, W, **options)


def narrow(y: Any) -> Any:
    inner = relay.nn.conv2d(relay.cast(y, "int8"), relay.cast(W, "int8"), out_dtype="int32")
    return relay.cast(inner, "float32")


def check(before: Any, expected: Any, **options: Any) -> None:
    made = relay.transform.recast(relay.Function([X, W], before), "int8", "int32", **options)
    tvm.ir.assert_structural_equal(made, relay.transform.infer_type(relay.Function([X, W], expected)))


def test_each_convolution() -> None:
    check(relay.nn.relu(conv(conv(X))), relay.nn.relu(narrow(narrow(X))))


def test_layers_are_skipped_by_number() -> None:
    check(conv(conv(conv(X))), conv(narrow(conv(X))), skip_layers=[0, -1])


def test_chosen_operators_and_tuples() -> None:
    y = relay.concatenate([X, X], axis=1)
    low = relay.cast(X, "int8")
    expected = relay.cast(relay.concatenate([low, low], axis=1), "float32")
    made = relay.transform.recast(relay.Function([X], y), "int8", "int8", ops=["concatenate"])
    array = np.arange(144, dtype="float32").reshape(1, 4, 6, 6) % 100
    wanted = relay.create_executor("debug", tvm.IRModule.from_expr(relay.Function([X], expected))).evaluate()
    found = relay.create_executor("debug", tvm.IRModule.from_expr(made)).evaluate()
    np.testing.assert_array_equal(found(array).numpy(), wanted(array).numpy())
    assert relay.analysis.count_calls(made, "cast") >= 2


def test_a_module_stays_one() -> None:
    mod = tvm.IRModule.from_expr(relay.Function([X, W], conv(X)))
    made = relay.transform.recast(mod, "int8", "int32")
    tvm.ir.assert_structural_equal(
        made["main"].body,
        relay.transform.infer_type(relay.Function([X, W], narrow(X))).body,
        map_free_vars=True,
    )
