"""SimplifyExpr: chains and arithmetic that do nothing."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import check, rand

import tilewright as tvm
from tilewright import relay

T = relay.transform
X = relay.var("x", shape=(2, 3, 4))
BLOCKS = relay.var("b", shape=(4, 2, 1, 3))
I8, I32 = relay.var("i", shape=(2, 3), dtype="int8"), relay.var("j", shape=(2, 3), dtype="int32")


def f32(value):
    return relay.const(np.float32(value))


CASES = {
    "reshape twice": (relay.reshape(relay.reshape(X, (6, 4)), (3, 8)), relay.reshape(X, (3, 8))),
    "reshape and back": (relay.reshape(relay.reshape(X, (24,)), (2, 3, 4)), X),
    "squeeze of expand_dims": (relay.squeeze(relay.expand_dims(X, 1), [1]), X),
    "flatten of reshape": (relay.nn.batch_flatten(relay.reshape(X, (2, 4, 3))), relay.reshape(X, (2, 12))),
    "transpose and back": (relay.transpose(relay.transpose(X, (2, 0, 1)), (1, 2, 0)), X),
    "transpose twice": (relay.transpose(relay.transpose(X, (2, 0, 1))), relay.transpose(X, (1, 0, 2))),
    "transpose of nothing": (relay.transpose(X, (0, 1, 2)), X),
    "layout and back": (relay.layout_transform(relay.layout_transform(X, "NCW", "NWC"), "NWC", "NCW"), X),
    "layout of layout": (
        relay.layout_transform(relay.layout_transform(X, "NCW", "NWC"), "NWC", "CNW"),
        relay.layout_transform(X, "NCW", "CNW"),
    ),
    "collapse_sum_like": (
        relay.collapse_sum_like(X, relay.var("like", shape=(4,))),
        relay.collapse_sum_to(X, (4,)),
    ),
    "clip of all that a type has": (relay.clip(I8, -128.0, 127.0), I8),
    "clip of less": (relay.clip(I8, -127.0, 127.0), None),
    "casts of clipped numbers": (
        relay.cast(relay.cast(relay.clip(I32, 0.0, 127.0), "uint8"), "int8"),
        relay.cast(relay.clip(I32, 0.0, 127.0), "int8"),
    ),
    "a narrow type between wide ones": (
        relay.cast(relay.cast(relay.clip(X, 0.0, 255.0), "uint8"), "int32"),
        None,
    ),
    "a fraction that is cut off": (relay.cast(relay.cast(relay.clip(X, 0.0, 9.0), "uint8"), "float32"), None),
    "a type that clipped numbers do not fit": (
        relay.cast(relay.cast(relay.clip(I32, 0.0, 255.0), "int8"), "int32"),
        None,
    ),
    "argmax of dequantized": (
        relay.argmax(relay.qnn.dequantize(I8, f32(0.5), relay.const(3)), axis=1),
        relay.argmax(I8, axis=1),
    ),
    "argsort of dequantized": (
        relay.argsort(relay.qnn.dequantize(I8, f32(0.5), relay.const(3)), axis=1),
        relay.argsort(I8, axis=1),
    ),
    "argmin with a negative scale": (
        relay.argmin(relay.qnn.dequantize(I8, f32(-0.5), relay.const(3)), axis=1),
        None,
    ),
    "transposes around a plain layout": (
        relay.transpose(relay.layout_transform(relay.transpose(X, (2, 0, 1)), "ABC", "CAB"), (0, 2, 1)),
        relay.transpose(X, (1, 0, 2)),
    ),
    "blocks of a transpose": (
        relay.layout_transform(relay.transpose(X, (2, 0, 1)), "CNW", "CNW3w"),
        relay.layout_transform(X, "NWC", "CNW3w"),
    ),
    "transpose of what was blocks": (
        relay.transpose(relay.layout_transform(BLOCKS, "CNW3w", "CNW"), (1, 2, 0)),
        relay.layout_transform(BLOCKS, "CNW3w", "NWC"),
    ),
    "cast to itself": (relay.cast(X, "float32"), X),
    "cast there and back": (relay.cast(relay.cast(X, "float64"), "float32"), X),
    "cast that loses": (relay.cast(relay.cast(X, "int32"), "float32"), None),
    "times one": (X * f32(1), X),
    "one times": (f32(1) * X, X),
    "plus zeros": (X + relay.zeros((2, 3, 4), "float32"), X),
    "minus nothing": (X - f32(0), X),
    "nothing minus": (f32(0) - X, None),
    "over one": (X / f32(1), X),
    "one over": (f32(1) / X, None),
    "times a larger one": (X * relay.ones((5, 2, 3, 4), "float32"), None),
    "plus ones": (X + relay.ones((2, 3, 4), "float32"), X + f32(1)),
    "times full": (relay.full(f32(3), (3, 4)) * X, f32(3) * X),
    "join of one": (relay.concatenate([X], axis=1), X),
    "join of parts": (relay.concatenate(relay.split(X, 3, axis=1).astuple(), axis=1), X),
    "join of parts, other axis": (relay.concatenate(relay.split(X, 2, axis=2).astuple(), axis=1), None),
    "join of slices": (
        relay.concatenate(
            [relay.strided_slice(X, [0, 0, 0], [2, 3, 1]), relay.strided_slice(X, [0, 0, 1], [2, 3, 4])],
            axis=2,
        ),
        X,
    ),
    "full slice": (relay.strided_slice(X, [0, 0, 0], [2, 3, 4]), X),
    "part of a join": (
        relay.strided_slice(relay.concatenate([relay.exp(X), X], axis=1), [0, 3, 0], [2, 6, 4]),
        X,
    ),
    "clip twice": (relay.clip(relay.clip(X, -2, 3), 0, 6), relay.clip(X, 0, 3)),
    "clip apart": (relay.clip(relay.clip(X, -2, -1), 0, 6), relay.clip(X, 0, 0)),
    "clip of relu": (relay.clip(relay.nn.relu(X), -1, 6), relay.clip(X, 0, 6)),
    "relu twice": (relay.nn.relu(relay.nn.relu(X)), relay.nn.relu(X)),
    "minus minus": (relay.negative(relay.negative(X)), X),
    "broadcast to itself": (relay.broadcast_to(X, (2, 3, 4)), X),
    "padding by nothing": (relay.nn.pad(X, ((0, 0), (0, 0), (0, 0))), X),
    "padding that shifts": (relay.nn.pad(X, ((0, 0), (1, -1), (0, 0))), None),
    "where always": (relay.where(relay.const(np.ones((2, 3, 4), "bool")), X, relay.exp(X)), X),
    "tile once": (relay.tile(X, (1, 1, 1)), X),
}


@pytest.mark.parametrize("name", list(CASES))
def test_expressions(name):
    before, expected = CASES[name]
    expected = before if expected is None else expected
    # as operands of something, so that a bare variable is seen too
    if name == "padding that shifts":
        mod = T.SimplifyExpr()(tvm.IRModule.from_expr(relay.Function([X], relay.nn.relu(before))))
        tvm.ir.assert_structural_equal(
            mod["main"], T.infer_type(relay.Function([X], relay.nn.relu(expected)))
        )
        return
    params = relay.analysis.free_vars(before) or [X]
    check(
        relay.Function(params, relay.abs(before)),
        T.SimplifyExpr(),
        relay.Function(params, relay.abs(expected)),
    )


def test_integers_are_added_up_and_floats_are_not():
    i = relay.var("i", shape=(3,), dtype="int32")
    check(
        relay.Function([i], i + relay.const(2) + relay.const(3)),
        T.SimplifyExpr(),
        relay.Function([i], i + relay.const(5)),
    )
    before = relay.Function([X], X + f32(2) + f32(3))
    check(before, T.SimplifyExpr(), before)


def test_an_integer_bias_is_added_up():
    x = relay.var("x", shape=(1, 2, 3, 3), dtype="int32")
    first, bias = np.array([[[1]], [[2]]], "int32"), np.array([10, 20], "int32")
    before = relay.nn.bias_add(x + relay.const(first), relay.const(bias))
    check(
        relay.Function([x], before),
        T.SimplifyExpr(),
        relay.Function([x], x + relay.const(np.array([[[11]], [[22]]], "int32"))),
    )


def test_unknown_sizes_are_not_taken_for_equal():
    x = relay.var("x", shape=(relay.Any(), 3))
    y = relay.var("y", shape=(relay.Any(), 3))
    before = relay.Function([x, y], relay.broadcast_to_like(x, y))
    mod = T.InferType()(tvm.IRModule.from_expr(before))
    assert T.SimplifyExpr()(mod) is mod


def test_a_chain_of_casts_to_wider_types():
    x = relay.var("x", shape=(4,), dtype="int8")
    before = relay.Function([x], relay.cast(relay.cast(relay.cast(x, "int16"), "int32"), "float32"))
    check(before, T.SimplifyExpr(), relay.Function([x], relay.cast(x, "float32")))
    u = relay.var("u", shape=(4,), dtype="int8")
    signed = relay.Function([u], relay.cast(relay.cast(u, "uint8"), "int32"))
    check(signed, T.SimplifyExpr(), signed)


def test_constants_of_one_value_with_more_dimensions_stay():
    x = relay.var("x", shape=(3,))
    before = relay.Function([x], x * relay.const(np.ones((2, 3), "float32")))
    check(before, T.SimplifyExpr(), before)
    assert rand(2).numpy().shape == (2,)
