"""FoldConstant: what depends on constants alone is computed now."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import apply, check, count, rand

import tilewright as tvm
from tilewright import relay

FoldConstant = relay.transform.FoldConstant


def test_a_constant_part_is_computed():
    x = relay.var("x", shape=(2, 3))
    before = relay.Function([x], x + relay.exp(relay.const(np.float32(2))) * relay.const(np.float32(3)))
    after = check(before, FoldConstant())
    assert isinstance(after.body.args[1], relay.Constant)
    np.testing.assert_allclose(after.body.args[1].numpy(), np.exp(np.float32(2)) * 3, rtol=1e-6)


def test_expected_is_the_sum():
    x = relay.var("x", shape=(3,), dtype="int32")
    one, two = relay.const(np.array([1, 2, 3], "int32")), relay.const(np.array([4, 5, 6], "int32"))
    check(
        relay.Function([x], x + (one + two)),
        FoldConstant(),
        relay.Function([x], x + relay.const(np.array([5, 7, 9], "int32"))),
    )


def test_sizes_that_are_known_are_constants():
    x = relay.var("x", shape=(2, 3))
    before = relay.Function([x], relay.Tuple([relay.shape_of(x), relay.ndarray_size(x)]))
    expected = relay.Function([x], relay.Tuple([relay.const(np.array([2, 3], "int32")), relay.const(6)]))
    tvm.ir.assert_structural_equal(apply(before, FoldConstant()), relay.transform.infer_type(expected))


def test_sizes_that_are_not_known_stay():
    x = relay.var("x", shape=(relay.Any(), 3))
    before = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.shape_of(x))))
    assert FoldConstant()(before) is before


def test_tuples_of_constants():
    parts = relay.split(relay.const(np.arange(6, dtype="float32")), 2)
    x = relay.var("x", shape=(3,))
    joined = relay.concatenate([parts[1], parts[0]], axis=0)
    after = check(relay.Function([x], relay.concatenate([x, joined], axis=0)), FoldConstant())
    assert count(after, "split") == 0 and count(after, "concatenate") == 1


def test_lets_of_constants_go_and_branches_are_chosen():
    x, v = relay.var("x", shape=(2,)), relay.var("v")
    two = relay.const(np.float32(1)) + relay.const(np.float32(1))
    body = relay.If(relay.const(True), relay.nn.relu(x) * v, relay.exp(x))
    before = relay.Function([x], relay.Let(v, two, body))
    check(before, FoldConstant(), relay.Function([x], relay.nn.relu(x) * relay.const(np.float32(2))))


def test_creation_and_large_repetition_stay():
    big = relay.broadcast_to(relay.const(np.ones((1, 1), "float32")), (1024, 1024))
    before = relay.Function([], relay.Tuple([relay.zeros((4,), "float32"), big]))
    typed = relay.transform.InferType()(tvm.IRModule.from_expr(before))
    assert FoldConstant()(typed) is typed


def test_nothing_to_do_is_the_same_module():
    x = relay.var("x", shape=(2,))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.nn.relu(x))))
    assert FoldConstant()(mod) is mod


def test_fused_groups_are_left_alone():
    a = relay.var("a", shape=(2,))
    group = relay.Function([a], a + relay.exp(relay.const(np.float32(1)))).with_attr("Primitive", 1)
    x = relay.var("x", shape=(2,))
    after = apply(relay.Function([x], group(x)), FoldConstant())
    assert count(after, "exp") == 1


@pytest.mark.slow
def test_a_long_chain():
    expr = relay.const(np.float32(0))
    x = relay.var("x", shape=())
    for _ in range(2000):
        expr = expr + relay.const(np.float32(1))
    out = x
    for _ in range(2000):
        out = relay.nn.relu(out)
    after = apply(relay.Function([x], out + expr), FoldConstant())
    assert float(after.body.args[1].numpy()) == 2000


@pytest.mark.parametrize("disabled", [False, True])
def test_it_can_be_switched_off(disabled):
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.Function([x], x + relay.exp(rand(2))))
    with tvm.transform.PassContext(opt_level=3, disabled_pass=["FoldConstant"] if disabled else []):
        after = tvm.transform.Sequential([FoldConstant()])(mod)
    assert count(after, "exp") == int(disabled)


def test_instruments_see_the_passes_over_the_program_alone():
    seen = []

    @tvm.instrument.pass_instrument
    class Watch:
        def run_before_pass(self, mod, info):
            seen.append(info.name)

    x = relay.const(np.arange(6, dtype="float32").reshape(2, 3) + 0.625)
    mod = tvm.IRModule.from_expr(relay.Function([], relay.exp(relay.transpose(x))))
    with tvm.transform.PassContext(opt_level=3, instruments=[Watch()]):
        relay.transform.FoldConstant()(mod)
    assert seen and not [name for name in seen if name.startswith("tir.")]
