"""Normal forms, Inline, LambdaLift, RemoveUnusedFunctions, EtaExpand, DynamicToStatic."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from relay_eval import apply, check, count, evaluate, rand

import tilewright as tvm
from tilewright import relay
from tilewright.relay.transform.lambda_lift import lambda_lift

T = relay.transform
nn = relay.nn
INT = relay.scalar_type("int32")


def x2(name="x"):
    return relay.var(name, shape=(2,))


def countdown():
    """let f = fn (n) { if (n < 1) { n } else { f(n - 1) } }; f(m) + m"""
    f, n, m = relay.var("f", relay.FuncType([INT], INT)), relay.var("n", INT), relay.var("m", INT)
    fn = relay.Function([n], relay.If(n < relay.const(1), n, f(n - relay.const(1))), INT)
    return relay.Function([m], relay.Let(f, fn, f(m) + m))


# ---------------------------------------------------------------------------- normal forms
def test_a_normal_form():
    x, y = x2(), x2("y")
    s = x + y
    a, b, c = relay.var("a"), relay.var("b"), relay.var("c")
    expected = relay.Let(a, x + y, relay.Let(b, nn.relu(a), relay.Let(c, b * a, c)))
    check(relay.Function([x, y], nn.relu(s) * s), T.ToANormalForm(), relay.Function([x, y], expected))


def test_a_normal_form_computes_what_both_branches_use_before_them():
    x, c = x2(), relay.var("c", shape=(), dtype="bool")
    s = relay.exp(x)
    before = relay.Function([x, c], relay.If(c, s * s, s + x))
    after = check(before, T.ToANormalForm())
    assert isinstance(after.body, relay.Let) and after.body.value.op.name == "exp"
    assert count(after, "exp") == 1


def test_a_normal_form_leaves_in_a_branch_what_only_it_uses():
    x, c = x2(), relay.var("c", shape=(), dtype="bool")
    before = relay.Function([x, c], relay.If(c, relay.exp(x), relay.sqrt(x)))
    after = apply(before, T.ToANormalForm())
    assert isinstance(after.body.value, relay.If)
    assert after.body.value.true_branch.value.op.name == "exp"


def test_a_normal_form_of_a_recursive_function():
    after = check(countdown(), T.ToANormalForm())
    check(after, T.ToGraphNormalForm(), countdown())


def test_graph_normal_form():
    x, a, b = x2(), relay.var("a"), relay.var("b")
    before = relay.Function([x], relay.Let(a, relay.exp(x), relay.Let(b, a + a, b * a)))
    e = relay.exp(x)
    check(before, T.ToGraphNormalForm(), relay.Function([x], (e + e) * e))


def test_there_and_back():
    x, y = x2(), x2("y")
    s = x + y
    before = relay.Function([x, y], relay.Tuple([nn.relu(s) * s, relay.split(s, 2)[1]]))
    check(before, [T.ToANormalForm(), T.ToGraphNormalForm()], before)


def test_basic_blocks_name_what_scopes_share():
    x, c = x2(), relay.var("c", shape=(), dtype="bool")
    s, a = relay.exp(x), relay.var("a")
    before = relay.Function([x, c], relay.If(c, s * x, s + x) + nn.relu(x * x))
    expected = relay.Let(a, relay.exp(x), relay.If(c, a * x, a + x) + nn.relu(x * x))
    check(before, T.ToBasicBlockNormalForm(), relay.Function([x, c], expected))
    plain = T.infer_type(relay.Function([x], nn.relu(relay.exp(x))))
    check(plain, T.ToBasicBlockNormalForm(), plain)


def test_deep_graphs():
    x = x2()
    y = x
    for _ in range(3000):
        y = nn.relu(y)
    f = relay.Function([x], y)
    after = apply(f, T.ToANormalForm())
    assert count(after, "nn.relu") == 3000 and isinstance(after.body, relay.Let)
    tvm.ir.assert_structural_equal(apply(after, T.ToGraphNormalForm()), T.infer_type(f))


# ---------------------------------------------------------------------------- functions of modules
def two_functions(**attrs):
    x, v, y = x2(), relay.var("v"), x2("y")
    helper = relay.Function([x], relay.Let(v, relay.exp(x), v * v), attrs=attrs)
    mod = tvm.IRModule({"helper": helper})
    gv = mod.get_global_var("helper")
    mod["main"] = relay.Function([y], gv(y) + gv(nn.relu(y)))
    return mod


def test_inline():
    mod = two_functions(Inline=1)
    after = check(mod, T.Inline())
    assert [gv.name_hint for gv in after.get_global_vars()] == ["main"]
    assert relay.analysis.well_formed(after["main"]) and count(after, "exp") == 2
    unmarked = T.InferType()(two_functions())
    assert T.Inline()(unmarked) is unmarked


def test_inline_leaves_recursion():
    x = x2()
    gv = tvm.ir.GlobalVar("f") if hasattr(tvm.ir, "GlobalVar") else relay.GlobalVar("f")
    kind = relay.TensorType((2,), "float32")
    mod = tvm.IRModule({gv: relay.Function([x], gv(x), kind, attrs={"Inline": 1})})
    y = x2("y")
    mod["main"] = relay.Function([y], gv(y))
    after = T.Inline()(mod)
    assert after["main"].body.op is gv and gv in after


def test_inline_of_functions_that_are_values_or_for_other_compilers():
    x, y = x2(), x2("y")
    double, other = relay.GlobalVar("double"), relay.GlobalVar("other")
    mod = tvm.IRModule(
        {
            double: relay.Function([x], x + x, attrs={"Inline": 1}),
            other: relay.Function([x2("z")], x2("w"), attrs={"Inline": 1, "Compiler": "mine"}),
        }
    )
    mod[other] = relay.Function([x], relay.exp(x), attrs={"Inline": 1, "Compiler": "mine"})
    mod["main"] = relay.Function([y], relay.Tuple([double(y), other(y), double]))
    added, whole, value = T.Inline()(mod)["main"].body.fields
    assert added.op.name == "add"
    assert isinstance(whole.op, relay.Function) and whole.op.attrs["Compiler"] == "mine"
    assert isinstance(value, relay.Function)
    alone = T.Inline()(tvm.IRModule({double: mod[double]}))
    assert double in alone  # nothing calls it


def test_unused_functions_go():
    mod = two_functions()
    x = x2()
    mod["other"] = relay.Function([x], x)
    after = T.RemoveUnusedFunctions()(mod)
    assert sorted(gv.name_hint for gv in after.get_global_vars()) == ["helper", "main"]
    kept = T.RemoveUnusedFunctions(["other"])(mod)
    assert [gv.name_hint for gv in kept.get_global_vars()] == ["other"]
    with pytest.raises(tvm.TVMError, match="no function 'nobody'"):
        T.RemoveUnusedFunctions(["nobody"])(mod)


def test_lift_a_recursive_function():
    mod = tvm.IRModule.from_expr(countdown())
    after = check(mod, T.LambdaLift())
    assert len(after.functions) == 2 and not isinstance(after["main"].body, relay.Let)


def test_lift_what_is_captured():
    x, y, z, k = x2(), x2("y"), x2("z"), relay.var("k")
    inner = relay.Function([z], z * x + y)
    mod = tvm.IRModule.from_expr(relay.Function([x, y], relay.Let(k, inner, k(x) + k(y))))
    after = check(mod, T.LambdaLift())
    lifted = next(f for gv, f in after.functions.items() if gv.name_hint == "lifted_k")
    assert len(lifted.params) == 3 and relay.analysis.free_vars(lifted) == []


def test_eta_expand():
    mod = two_functions()
    gv = mod.get_global_var("helper")
    y, f = x2("y"), relay.var("f")
    mod["main"] = relay.Function([y], relay.Let(f, gv, f(y)))
    after = T.EtaExpand()(mod)
    assert isinstance(after["main"].body.value, relay.Function)
    value = np.array([1, 2], "float32")
    np.testing.assert_allclose(evaluate(after, value), np.exp(value) ** 2, rtol=1e-5)


# ---------------------------------------------------------------------------- shapes that turn out to be known
def test_reshape_to_the_shape_of_another():
    x, y = relay.var("x", shape=(2, 6)), relay.var("y", shape=(3, 4))
    before = relay.Function([x, y], relay.op.dyn.reshape(x, relay.shape_of(y, "int64")))
    expected = relay.Function([x, y], relay.reshape(x, (3, 4)))
    after = apply(before, T.DynamicToStatic())
    tvm.ir.assert_structural_equal(after, T.infer_type(expected))


def test_shape_arithmetic_in_steps():
    x = relay.var("x", shape=(2, 3, 4))
    size = relay.shape_of(x, "int64")
    flat = relay.op.dyn.reshape(
        x,
        relay.concatenate([relay.take(size, relay.const(np.array([0]))), relay.const([12], "int64")], axis=0),
    )
    wide = relay.op.dyn.tile(flat, relay.shape_of(flat, "int64"))
    after = apply(relay.Function([x], wide), T.DynamicToStatic())
    assert [count(after, n) for n in ("dyn.reshape", "dyn.tile", "reshape", "tile")] == [0, 0, 1, 1]
    assert tuple(after.ret_type.shape) == (4, 144)


@pytest.mark.parametrize(
    "name", ["strided_slice", "zeros", "full", "broadcast_to", "expand_dims", "squeeze", "topk"]
)
def test_other_operators(name):
    dyn, x = relay.op.dyn, relay.var("x", shape=(2, 1, 4))

    def c(*values):
        return relay.const(values, "int64")

    made = {
        "strided_slice": lambda: dyn.strided_slice(x, c(0, 0, 1), c(2, 1, 4), c(1, 1, 2)),
        "zeros": lambda: dyn.zeros(c(2, 3), "float32"),
        "full": lambda: dyn.full(relay.const(np.float32(2)), c(2, 3), "float32"),
        "broadcast_to": lambda: dyn.broadcast_to(x, c(2, 3, 4)),
        "expand_dims": lambda: dyn.expand_dims(x, relay.const(1, "int64"), 1),
        "squeeze": lambda: dyn.squeeze(x, c(1)),
        "topk": lambda: dyn.topk(x, relay.const(2, "int64"), ret_type="values"),
    }[name]()
    made = made.astuple() if hasattr(made, "astuple") else made
    after = apply(relay.Function([x], made), T.DynamicToStatic())
    names = relay.analysis.list_op_freqs(tvm.IRModule.from_expr(after))
    assert not any(n.startswith("dyn.") for n in names)


def test_computed_shapes_stay():
    x, s = relay.var("x", shape=(2, 6)), relay.var("s", shape=(2,), dtype="int64")
    mod = T.InferType()(tvm.IRModule.from_expr(relay.Function([x, s], relay.op.dyn.reshape(x, s))))
    assert count(T.DynamicToStatic()(mod), "dyn.reshape") == 1


# ---------------------------------------------------------------------------- convolutions
def test_padding_goes_into_the_convolution():
    x, w = relay.var("x", shape=(1, 3, 8, 8)), rand(4, 3, 3, 3)
    padded = nn.pad(x, ((0, 0), (0, 0), (1, 2), (0, 3)))
    expected = relay.Function([x], nn.conv2d(x, w, padding=(1, 0, 2, 3)))
    check(relay.Function([x], nn.conv2d(padded, w)), T.FoldExplicitPadding(), expected, rtol=1e-4, atol=1e-4)
    ones = relay.Function([x], nn.conv2d(nn.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), 1.0), w))
    check(ones, T.FoldExplicitPadding(), ones, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_atrous_convolution():
    x, w = relay.var("x", shape=(1, 8, 8, 4)), rand(3, 3, 4, 5)
    parted = nn.space_to_batch_nd(x, [2, 2], [[2, 2], [2, 2]])
    y = nn.conv2d(parted, w, data_layout="NHWC", kernel_layout="HWIO")
    before = relay.Function([x], nn.batch_to_space_nd(y, [2, 2], [[0, 0], [0, 0]]))
    expected = nn.conv2d(x, w, padding=(2, 2), dilation=(2, 2), data_layout="NHWC", kernel_layout="HWIO")
    check(before, T.FlattenAtrousConv(), relay.Function([x], expected), rtol=1e-4, atol=1e-4)


def closures(count):
    """Functions one after the other, each of which captures a variable and calls the one before it."""
    x, rows, before = x2(), [], None
    for _ in range(count):
        y, f = x2("y"), relay.var("f")
        rows.append((f, relay.Function([y], y + x if before is None else before(y) + x)))
        before = f
    body = before(x)
    for f, fn in reversed(rows):
        body = relay.Let(f, fn, body)
    return tvm.IRModule.from_expr(relay.Function([x], body))


def python_calls(work):
    """How many calls of Python functions some work takes: the same on every machine."""
    count = 0

    def note(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_lifting_many_closures_takes_as_many_steps_each():
    mods = {n: T.InferType()(closures(n)) for n in (40, 160)}
    assert len(T.LambdaLift()(mods[40]).functions) == 41
    few, many = (python_calls(lambda n=n: lambda_lift(mods[n])) for n in mods)
    assert many < 4.4 * few
