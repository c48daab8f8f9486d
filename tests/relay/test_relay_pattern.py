"""relay.dataflow_pattern: matching, rewriting, partitioning."""

from __future__ import annotations

import numpy as np
import pytest
from relay_eval import count, evaluate, inputs, rand

import tilewright as tvm
from tilewright import relay
from tilewright.relay.dataflow_pattern import (
    DFPatternCallback,
    FunctionPattern,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_function,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    rewrite,
    wildcard,
)

nn = relay.nn
X = relay.var("x", shape=(2, 3))
Y = relay.var("y", shape=(2, 3))


# ---------------------------------------------------------------------------- matching
def test_calls():
    pattern = is_op("nn.relu")(is_op("add")(wildcard(), is_constant()))
    assert pattern.match(nn.relu(X + relay.const(1.0)))
    assert not pattern.match(nn.relu(X + Y))
    assert not pattern.match(X + relay.const(1.0))
    assert is_op("add")(None).match(X + Y)
    assert (is_var("x") + is_var("y")).match(X + Y)
    with pytest.raises(ValueError, match=r"no graph operator is named 'nn\.rely'"):
        is_op("nn.rely")


def test_sums_match_either_way_round_and_differences_do_not():
    assert is_op("add")(is_var("y"), is_var("x")).match(X + Y)
    assert is_op("multiply")(is_constant(), wildcard()).match(X * relay.const(2.0))
    assert not is_op("subtract")(is_var("y"), is_var("x")).match(X - Y)


def test_one_pattern_in_two_places_is_one_expression():
    a = wildcard()
    assert is_op("add")(a, a).match(X + X)
    assert not is_op("add")(a, a).match(X + Y)
    sigmoid = is_op("multiply")(a, is_op("sigmoid")(a))
    assert sigmoid.match(X * relay.sigmoid(X)) and sigmoid.match(relay.sigmoid(X) * X)
    assert not sigmoid.match(X * relay.sigmoid(Y))


def test_variables_constants_expressions():
    assert is_var().match(X) and is_var("x").match(X) and not is_var("y").match(X)
    assert is_constant().match(relay.const(1.0)) and not is_constant().match(X)
    assert is_expr(X).match(X) and not is_expr(X).match(Y)
    assert is_expr(relay.const(1.0)).match(relay.const(1.0))


def test_tuples():
    assert is_tuple([is_var("x"), wildcard()]).match(relay.Tuple([X, Y]))
    assert not is_tuple([is_var("x")]).match(relay.Tuple([X, Y]))
    assert is_tuple(None).match(relay.Tuple([X, Y]))
    split = relay.split(X, 3, axis=1)
    assert is_tuple_get_item(is_op("split")(is_var()), 1).match(split[1])
    assert not is_tuple_get_item(wildcard(), 2).match(split[1])
    assert is_tuple_get_item(wildcard()).match(split[1])
    joined = is_op("concatenate")([is_tuple([wildcard(), wildcard()])])
    assert joined.match(relay.concatenate([X, Y], axis=0))


def test_choices_lets_functions():
    c, v = relay.var("c", shape=(), dtype="bool"), relay.var("v")
    assert is_if(is_var("c"), is_op("exp")(wildcard()), wildcard()).match(relay.If(c, relay.exp(X), X))
    assert is_let(is_var("v"), is_op("exp")(is_var()), wildcard()).match(relay.Let(v, relay.exp(X), v))
    f = relay.Function([X, Y], X + Y)
    assert is_function([is_var("x"), is_var("y")], wildcard() + wildcard()).match(f)
    assert FunctionPattern(None, is_op("add")(None)).match(f)
    assert not is_function([wildcard()], wildcard()).match(f)
    assert is_function(None, wildcard())(wildcard(), wildcard()).match(f(X, Y))


def test_attributes():
    data, weight = relay.var("d", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    conv = nn.conv2d(data, weight, strides=(2, 2))
    pattern = is_op("nn.conv2d")(wildcard(), wildcard())
    assert pattern.has_attr({"strides": [2, 2], "data_layout": "NCHW"}).match(conv)
    assert not pattern.has_attr({"strides": [1, 1]}).match(conv)
    elementwise = wildcard().has_attr({"TOpPattern": 0})(None)
    assert elementwise.match(nn.relu(X)) and not elementwise.match(conv)
    assert has_attr({"TOpPattern": 4}).match(conv)
    assert wildcard().has_attr({"Composite": "a"}).match(relay.Function([X], X, attrs={"Composite": "a"}))


def test_types():
    expr = relay.transform.infer_type(X + Y)
    assert has_dtype("float32").match(expr) and not has_dtype("int8").match(expr)
    assert has_shape((2, 3)).match(expr) and not has_shape((2, 4)).match(expr)
    assert has_type(relay.TensorType((2, 3), "float32")).match(expr)
    assert wildcard().has_shape((2, 3)).has_dtype("float32").match(X + Y)  # found where it is asked for


def test_alternatives_and_options():
    pattern = is_op("exp")(wildcard()) | is_op("sqrt")(wildcard())
    assert pattern.match(relay.exp(X)) and pattern.match(relay.sqrt(X)) and not pattern.match(relay.log(X))
    bias = is_op("nn.dense")(wildcard(), wildcard()).optional(lambda p: is_op("add")(p, wildcard()))
    dense = nn.dense(X, relay.var("w", shape=(4, 3)))
    assert bias.match(dense) and bias.match(dense + relay.const(1.0)) and not bias.match(relay.exp(dense))


def test_a_failed_attempt_leaves_nothing_behind():
    a, b = wildcard(), wildcard()
    pattern = (is_op("exp")(a) | is_op("exp")(b)) + is_op("sqrt")(b)
    assert not is_op("add")(is_op("exp")(a), is_op("sqrt")(a)).match(relay.exp(X) + relay.sqrt(Y))
    assert pattern.match(relay.exp(X) + relay.sqrt(Y))


def test_dominators():
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    elementwise = wildcard().has_attr({"TOpPattern": 0})(None) | wildcard().has_attr({"TOpPattern": 1})(None)
    pattern = dominates(conv, elementwise, is_op("nn.relu")(wildcard()))
    d, w = relay.var("d", shape=(1, 3, 8, 8)), relay.var("w", shape=(3, 3, 3, 3))
    c = nn.conv2d(d, w, padding=(1, 1))
    assert pattern.match(nn.relu(c))
    assert pattern.match(nn.relu(relay.exp(c) + relay.sqrt(c)))
    assert pattern.match(nn.relu(c + relay.const(1.0)))
    assert not pattern.match(nn.relu(relay.exp(nn.softmax(c))))
    assert not pattern.match(nn.relu(relay.exp(d)))
    assert is_op("nn.relu")(wildcard()).dominates(conv).match(nn.relu(nn.softmax(c)))


# ---------------------------------------------------------------------------- rewriting
class Swish(DFPatternCallback):
    def __init__(self, **options):
        super().__init__(**options)
        self.x = wildcard()
        self.pattern = self.x * is_op("sigmoid")(self.x)

    def callback(self, pre, post, node_map):
        return relay.tanh(node_map[self.x][0])


def test_rewrite():
    f = relay.Function([X], relay.exp(X * relay.sigmoid(X)) * relay.sigmoid(relay.exp(X * relay.sigmoid(X))))
    e = relay.exp(relay.tanh(X))
    g = relay.exp(relay.tanh(X))
    made = rewrite(Swish(), f)
    assert count(made, "sigmoid") == 1  # the two exp are two expressions
    shared = relay.exp(X * relay.sigmoid(X))
    made = rewrite(Swish(), relay.Function([X], shared * relay.sigmoid(shared)))
    tvm.ir.assert_structural_equal(made, relay.Function([X], relay.tanh(relay.exp(relay.tanh(X)))))
    del e, g


def test_rewrite_goes_on_until_nothing_changes():
    class Less(DFPatternCallback):
        def __init__(self, once):
            super().__init__(rewrite_once=once)
            self.x = wildcard()
            self.pattern = is_op("abs")(is_op("negative")(self.x))

        def callback(self, pre, post, node_map):
            return relay.negative(relay.abs(node_map[self.x][0]))

    expr = relay.abs(relay.abs(relay.negative(relay.negative(X))))
    assert Less(False).rewrite(expr).op.name == "negative"
    once = rewrite(Less(True), expr)
    assert count(once, "abs") == 2
    full = rewrite([Less(False)], expr)
    tvm.ir.assert_structural_equal(full, relay.negative(relay.negative(relay.abs(relay.abs(X)))))


def test_rewrite_with_types_and_without_a_match():
    class Typed(DFPatternCallback):
        def __init__(self):
            super().__init__(require_type=True)
            self.pattern = is_op("exp")(wildcard())

        def callback(self, pre, post, node_map):
            assert tuple(pre.checked_type.shape) == (2, 3)
            return relay.log(pre.args[0])

    assert count(rewrite(Typed(), relay.Function([X], relay.exp(X))), "log") == 1
    same = relay.Function([X], relay.sqrt(X))
    assert rewrite(Swish(), same) is same


def test_a_callback_needs_a_pattern():
    with pytest.raises(ValueError, match="DFPatternCallback has no pattern"):
        rewrite(DFPatternCallback(), X)


# ---------------------------------------------------------------------------- partitioning
def test_partition():
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    pattern = is_op("nn.relu")(is_op("nn.bias_add")(conv, wildcard()))
    d, w, b = (relay.var(n, shape=s) for n, s in (("d", (1, 3, 8, 8)), ("w", (4, 3, 3, 3)), ("b", (4,))))
    before = relay.Function([d, w, b], relay.exp(nn.relu(nn.bias_add(nn.conv2d(d, w), b))))
    after = pattern.partition(before, {"Composite": "conv_bias_relu"})
    p, q, r = (relay.var(n) for n in "pqr")
    inner = relay.Function(
        [p, q, r],
        nn.relu(nn.bias_add(nn.conv2d(p, q), r)),
        attrs={"PartitionedFromPattern": "nn.conv2d_nn.bias_add_nn.relu_", "Composite": "conv_bias_relu"},
    )
    tvm.ir.assert_structural_equal(after, relay.Function([d, w, b], relay.exp(inner(d, w, b))))
    typed = relay.transform.infer_type(after)
    arrays = inputs(before)
    np.testing.assert_allclose(evaluate(before, *arrays), evaluate(typed, *arrays), rtol=1e-5)


def test_partition_keeps_constants_inside():
    pattern = is_op("add")(is_op("nn.relu")(wildcard()), is_constant())
    after = pattern.partition(relay.Function([X], nn.relu(X) + rand(2, 3)))
    assert len(after.body.op.params) == 1 and len(after.body.args) == 1


def test_partition_leaves_what_others_use():
    pattern = is_op("exp")(is_op("nn.relu")(wildcard()))
    inner = nn.relu(X)
    before = relay.Function([X], relay.exp(inner) + inner)
    assert pattern.partition(before) is before


def test_partition_by_a_check():
    pattern = is_op("clip")(wildcard())
    before = relay.Function([X], relay.clip(relay.clip(X, 0, 6), 0, 3))
    after = pattern.partition(before, check=lambda e: e.attrs.a_max == 6)
    assert isinstance(after.body.op, tvm.ir.Op) and isinstance(after.body.args[0].op, relay.Function)


def test_partitions_do_not_overlap():
    pattern = is_op("nn.relu")(is_op("nn.relu")(wildcard()))
    y = X
    for _ in range(4):
        y = nn.relu(y)
    after = pattern.partition(relay.Function([X], y))
    assert isinstance(after.body.op, relay.Function) and isinstance(after.body.args[0].op, relay.Function)


def test_partition_a_diamond():
    elementwise = wildcard().has_attr({"TOpPattern": 0})(None) | wildcard().has_attr({"TOpPattern": 1})(None)
    pattern = dominates(is_op("nn.relu")(wildcard()), elementwise, is_op("multiply")(wildcard(), wildcard()))
    r = nn.relu(X)
    before = relay.Function([X], relay.exp(r) * relay.sqrt(r))
    after = pattern.partition(before)
    assert isinstance(after.body.op, relay.Function) and len(after.body.args) == 1
    assert count(after.body.op, "exp") == 1
    arrays = inputs(before)
    typed = relay.transform.infer_type(after)
    np.testing.assert_allclose(evaluate(before, *arrays), evaluate(typed, *arrays), rtol=1e-5)


def test_deep_graphs():
    y = X
    for _ in range(2000):
        y = relay.exp(y)
    f = relay.Function([X], y)
    assert rewrite(Swish(), f) is f


# ---------------------------------------------------------------------------- as a pass
def test_merge_composite():
    d, w = relay.var("d", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    conv = is_op("nn.conv2d")(wildcard(), wildcard())
    mod = tvm.IRModule.from_expr(relay.Function([d, w], relay.exp(nn.relu(nn.conv2d(d, w)))))
    table = [("refused", is_op("exp")(wildcard()), lambda e: False), ("conv_relu", is_op("nn.relu")(conv))]
    after = relay.transform.MergeComposite(table)(mod)["main"]
    assert after.body.args[0].op.attrs["Composite"] == "conv_relu"
    arrays = inputs(mod["main"])
    np.testing.assert_allclose(evaluate(mod, *arrays), evaluate(after, *arrays), rtol=1e-5)
    with pytest.raises(tvm.TVMError, match="a row is"):
        relay.transform.MergeComposite([("a",)])(mod)


def test_composites_are_left_alone_by_other_passes():
    table = [("double", is_op("negative")(is_op("negative")(wildcard())))]
    mod = tvm.IRModule.from_expr(relay.Function([X], relay.negative(relay.negative(X))))
    after = relay.transform.SimplifyExpr()(relay.transform.MergeComposite(table)(mod))
    assert count(after, "negative") == 2


def test_spans_from_text():
    mod = relay.transform.AnnotateSpans()(tvm.IRModule.from_expr(relay.Function([X], relay.exp(nn.relu(X)))))
    assert "GeneratedSource" in str(mod["main"].body.span)


def test_what_is_left_out_says_what_to_do():
    with pytest.raises(tvm.TVMError, match=r"relay\.transform\.ToCPS is not part of tilewright: "):
        relay.transform.ToCPS(X)
