"""EliminateCommonSubexpr, DeadCodeElimination, CombineParallel*, CanonicalizeCast, SplitArgs."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import apply, check, count, rand

import tilewright as tvm
from tilewright import relay

T = relay.transform
nn = relay.nn


# ---------------------------------------------------------------------------- common subexpressions
def test_equal_calls_are_one():
    x = relay.var("x", shape=(2, 3))
    one = nn.relu(x)
    before = relay.Function([x], relay.exp(nn.relu(x)) + relay.exp(nn.relu(x)))
    e = relay.exp(one)
    check(before, T.EliminateCommonSubexpr(), relay.Function([x], e + e))


def test_attributes_and_constants_tell_calls_apart():
    x = relay.var("x", shape=(2, 3))
    before = relay.Function([x], relay.clip(x, 0, 1) + relay.clip(x, 0, 2))
    check(before, T.EliminateCommonSubexpr(), before)


def test_small_constants_are_compared_by_value():
    x = relay.var("x", shape=(2, 3))
    before = relay.Function([x], (x * relay.const(np.float32(2))) + (x * relay.const(np.float32(2))))
    m = x * relay.const(np.float32(2))
    check(before, T.EliminateCommonSubexpr(), relay.Function([x], m + m))


def test_tuple_items_are_one():
    x = relay.var("x", shape=(4, 3))
    before = relay.Function([x], relay.split(x, 2)[0] + relay.split(x, 2)[0])
    s = relay.split(x, 2)[0]
    check(before, T.EliminateCommonSubexpr(), relay.Function([x], s + s))


def test_fskip():
    x = relay.var("x", shape=(2, 3))
    before = relay.Function([x], relay.exp(x) + relay.exp(x))
    after = apply(
        before, T.EliminateCommonSubexpr(lambda e: isinstance(e, relay.Call) and e.op.name == "exp")
    )
    assert count(after, "exp") == 2


def test_branches_share_nothing_with_each_other():
    x, c = relay.var("x", shape=(2,)), relay.var("c", shape=(), dtype="bool")
    before = relay.Function([x, c], relay.If(c, relay.exp(x), relay.exp(x) + x))
    after = check(before, T.EliminateCommonSubexpr())
    assert count(after, "exp") == 2
    shared = relay.Function([x, c], relay.exp(x) + relay.If(c, relay.exp(x), x))
    assert count(check(shared, T.EliminateCommonSubexpr()), "exp") == 1


@pytest.mark.slow
def test_common_subexpressions_of_a_deep_graph():
    x = relay.var("x", shape=(2,))
    a, b = x, x
    for _ in range(4000):
        a, b = nn.relu(a), nn.relu(b)
    assert count(apply(relay.Function([x], a + b), T.EliminateCommonSubexpr()), "nn.relu") == 4000


# ---------------------------------------------------------------------------- dead code
def test_unused_lets_go():
    x, a, b, c = relay.var("x", shape=(2,)), relay.var("a"), relay.var("b"), relay.var("c")
    body = relay.Let(a, relay.exp(x), relay.Let(b, relay.sqrt(a), relay.Let(c, nn.relu(x), c + c)))
    d = relay.var("d")
    check(
        relay.Function([x], body),
        T.DeadCodeElimination(),
        relay.Function([x], relay.Let(d, nn.relu(x), d + d)),
    )


def test_used_lets_stay_and_nothing_to_do_is_the_same():
    x, a = relay.var("x", shape=(2,)), relay.var("a")
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x], relay.Let(a, relay.exp(x), a + a))))
    assert T.DeadCodeElimination()(mod) is mod


def test_inline_once():
    x, a, b = relay.var("x", shape=(2,)), relay.var("a"), relay.var("b")
    body = relay.Let(a, relay.exp(x), relay.Let(b, nn.relu(a), b + b))
    d = relay.var("d")
    expected = relay.Function([x], relay.Let(d, nn.relu(relay.exp(x)), d + d))
    check(relay.Function([x], body), T.DeadCodeElimination(inline_once=True), expected)


def test_a_function_that_calls_itself_and_is_not_used_goes():
    kind = relay.FuncType([relay.scalar_type("int32")], relay.scalar_type("int32"))
    f, n, x = (
        relay.var("f", kind),
        relay.var("n", shape=(), dtype="int32"),
        relay.var("x", shape=(), dtype="int32"),
    )
    fn = relay.Function(
        [n], relay.If(n < relay.const(1), n, f(n - relay.const(1))), relay.scalar_type("int32")
    )
    check(relay.Function([x], relay.Let(f, fn, x + x)), T.DeadCodeElimination(), relay.Function([x], x + x))
    used = relay.Function([x], relay.Let(f, fn, f(x)))
    check(used, T.DeadCodeElimination(), used)


def test_a_long_chain_of_lets():
    x = relay.var("x", shape=(2,))
    names = [relay.var(f"v{i}") for i in range(3000)]
    body = names[-2]
    for i in reversed(range(3000)):
        body = relay.Let(names[i], nn.relu(x if i == 0 else names[i - 1]), body)
    after = apply(relay.Function([x], body), T.DeadCodeElimination())
    assert count(after, "nn.relu") == 2999


# ---------------------------------------------------------------------------- parallel branches
@pytest.mark.slow
def test_parallel_convolutions_with_what_follows():
    x = relay.var("x", shape=(1, 3, 8, 8))
    outs = [nn.relu(nn.conv2d(x, rand(c, 3, 3, 3, seed=c)) + rand(c, 1, 1, seed=c)) for c in (2, 4, 6)]
    before = relay.Function([x], relay.Tuple(outs))
    after = check(before, T.CombineParallelConv2D(min_num_branches=2), rtol=1e-4, atol=1e-4)
    assert [count(after, n) for n in ("nn.conv2d", "add", "nn.relu", "strided_slice")] == [1, 1, 1, 3]
    assert count(check(before, T.CombineParallelConv2D(min_num_branches=4), rtol=1e-4), "nn.conv2d") == 3


def test_parallel_convolutions_written_out():
    x, w1, w2 = relay.var("x", shape=(1, 3, 8, 8)), rand(2, 3, 1, 1), rand(4, 3, 1, 1, seed=2)
    before = relay.Function([x], relay.Tuple([nn.conv2d(x, w1), nn.conv2d(x, w2)]))
    whole = nn.conv2d(x, relay.concatenate([w1, w2], axis=0), channels=6)
    parts = [
        relay.strided_slice(whole, [0], [2], [1], axes=[1]),
        relay.strided_slice(whole, [2], [6], [1], axes=[1]),
    ]
    expected = relay.Function([x], relay.Tuple(parts))
    check(before, T.CombineParallelConv2D(2), expected, rtol=1e-4, atol=1e-4)


def test_convolutions_that_differ_stay_apart():
    x = relay.var("x", shape=(1, 3, 8, 8))
    outs = [
        nn.conv2d(x, rand(2, 3, 1, 1)),
        nn.conv2d(x, rand(2, 3, 1, 1), strides=(2, 2)),
        nn.conv2d(x, rand(2, 3, 3, 3)),
    ]
    before = relay.Function([x], relay.Tuple(outs))
    check(before, T.CombineParallelConv2D(2), before)


def test_a_weight_made_from_another_branch_is_not_joined():
    x = relay.var("x", shape=(4, 4))
    first = nn.dense(x, rand(4, 4))
    before = relay.Function([x], relay.Tuple([first, nn.dense(x, first)]))
    check(before, T.CombineParallelDense(2, to_batch=False), before)


@pytest.mark.parametrize("to_batch", [True, False])
def test_parallel_dense(to_batch):
    x = relay.var("x", shape=(3, 8))
    outs = [nn.relu(nn.bias_add(nn.dense(x, rand(4, 8, seed=i)), rand(4, seed=i), axis=1)) for i in range(3)]
    after = check(relay.Function([x], relay.Tuple(outs)), T.CombineParallelDense(3, to_batch))
    assert count(after, "nn.batch_matmul") == int(to_batch) and count(after, "nn.dense") == int(not to_batch)


def test_parallel_batch_matmul():
    x = relay.var("x", shape=(2, 3, 8))
    outs = [nn.batch_matmul(x, rand(2, n, 8, seed=n)) for n in (4, 5, 6)]
    after = check(relay.Function([x], relay.Tuple(outs)), T.CombineParallelBatchMatmul())
    assert count(after, "nn.batch_matmul") == 1


# ---------------------------------------------------------------------------- small ones
def test_each_user_converts_for_itself():
    x = relay.var("x", shape=(4,), dtype="int8")
    c = relay.cast(x, "int32")
    after = check(
        relay.Function([x], relay.Tuple([c + relay.const(1), c + relay.const(2)])), T.CanonicalizeCast()
    )
    assert count(after, "cast") == 2


def test_joins_of_many_in_parts():
    xs = [relay.var(f"x{i}", shape=(2,)) for i in range(7)]
    after = check(relay.Function(xs, relay.concatenate(xs, axis=0)), T.SplitArgs(3))
    assert all(len(c.args[0].fields) <= 2 for c in relay.analysis.call_graph_order(after))
    with pytest.raises(tvm.TVMError, match="too few"):
        apply(relay.Function(xs, relay.concatenate(xs, axis=0)), T.SplitArgs(2))
