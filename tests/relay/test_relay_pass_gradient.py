"""Gradients of functions: branches, lets, tuples, functions that call themselves, and what has no gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relay_eval import count, evaluate

import tilewright as tvm
from tilewright import relay
from tilewright.relay.testing import check_grad, count_ops
from tilewright.relay.transform import FirstOrderGradient, LazyGradientInit, gradient
from tilewright.relay.transform.gradient import _need_known

X = np.array([0.5, -2.0, 3.0], "float32")


def tensor(name: str = "x", shape: Any = (3,), dtype: str = "float32") -> relay.Var:
    return relay.var(name, shape=shape, dtype=dtype)


def grads(func: Any, *args: Any, mod: Any = None, mode: str = "higher_order") -> list[Any]:
    """The gradients of the parameters at some values."""
    made = gradient(func, mod, mode)
    program = tvm.IRModule.from_expr(made) if mod is None else mod
    if mod is not None:
        program = tvm.IRModule({gv: f for gv, f in mod.functions.items() if gv.name_hint != "main"})
        program["main"] = made
    return evaluate(program, *args)[1]


def test_the_result_and_the_gradients_are_a_graph() -> None:
    x, w = tensor("x", (2, 3)), tensor("w", (4, 3))
    made = gradient(relay.Function([x, w], relay.tanh(relay.nn.dense(x, w))))
    assert str(made).splitlines()[1:] == [
        "  %0 = nn.dense(%x, %w) /* ty=Tensor[(2, 4), float32] */;",
        "  %1 = tanh(%0) /* ty=Tensor[(2, 4), float32] */;",
        "  %2 = ones(shape=[2, 4]) /* ty=Tensor[(2, 4), float32] */;",
        "  %3 = multiply(%1, %1) /* ty=Tensor[(2, 4), float32] */;",
        "  %4 = subtract(1f /* ty=float32 */, %3) /* ty=Tensor[(2, 4), float32] */;",
        "  %5 = multiply(%2, %4) /* ty=Tensor[(2, 4), float32] */;",
        "  %6 = transpose(%w, axes=None) /* ty=Tensor[(3, 4), float32] */;",
        "  %7 = nn.dense(%5, %6) /* ty=Tensor[(2, 3), float32] */;",
        "  %8 = transpose(%5, axes=None) /* ty=Tensor[(4, 2), float32] */;",
        "  %9 = transpose(%x, axes=None) /* ty=Tensor[(3, 2), float32] */;",
        "  %10 = nn.dense(%8, %9) /* ty=Tensor[(4, 3), float32] */;",
        "  (%1, (%7, %10))",
        "}",
    ]


def test_values_are_shared_not_computed_again() -> None:
    x, y = tensor("x", (4, 4)), tensor("y", (4, 4))
    xy = relay.nn.dense(x, y)
    made = gradient(relay.Function([x, y], relay.sum(xy - relay.sum(xy, keepdims=True))), mode="first_order")
    assert count_ops(made)["nn.dense"] == 3  # one forward, two backward
    assert count(gradient(relay.Function([x], relay.exp(x))), "exp") == 1


def test_modes_differ_for_tuples_only() -> None:
    x = tensor()
    both = relay.Function([x], relay.Tuple([x * x, relay.exp(x)]))
    np.testing.assert_allclose(grads(both, X)[0], 2 * X)
    np.testing.assert_allclose(grads(both, X, mode="first_order")[0], 2 * X + np.exp(X), rtol=1e-6)
    t = relay.var("t", relay.TupleType([relay.TensorType((3,)), relay.TensorType((3,))]))
    fields = relay.Function([t], relay.TupleGetItem(t, 0) * relay.TupleGetItem(t, 1))
    made = relay.create_executor().evaluate(gradient(fields, mode="first_order"))
    (found,) = made((X, X + 1))[1]
    np.testing.assert_allclose(found[0].numpy(), X + 1)
    np.testing.assert_allclose(found[1].numpy(), X)


def test_integers_have_zeros() -> None:
    x, i = tensor(), tensor("i", (2,), "int32")
    found = grads(relay.Function([x, i], relay.take(x, i)), X, np.array([2, 2], "int32"))
    np.testing.assert_array_equal(found[0], [0, 0, 2])
    np.testing.assert_array_equal(found[1], [0, 0])
    assert found[1].dtype == np.int32
    compared = relay.Function([x], relay.less(x, relay.const(1.0)))
    np.testing.assert_array_equal(grads(compared, X)[0], np.zeros(3))


def test_lets_and_branches() -> None:
    x, k, a = tensor(), tensor("k", (), "bool"), relay.var("a")
    body = relay.Let(a, x * x, relay.If(k, a * x, relay.exp(a)) + a)
    func = relay.Function([k, x], body)
    np.testing.assert_allclose(grads(func, np.array(True), X)[1], 3 * X**2 + 2 * X, rtol=1e-5)
    wanted = 2 * X * np.exp(X**2) + 2 * X
    np.testing.assert_allclose(grads(func, np.array(False), X)[1], wanted, rtol=1e-5)
    made = relay.create_executor("vm").evaluate(gradient(func))
    np.testing.assert_allclose(made(np.array(True), X)[1][1].numpy(), 3 * X**2 + 2 * X, rtol=1e-5)


def test_a_branch_computes_only_what_it_needs() -> None:
    x, k = tensor(), tensor("k", (), "bool")
    made = gradient(relay.Function([k, x], relay.If(k, relay.exp(x), relay.log(x))))
    branches = [e for e in relay.analysis.post_order(made) if isinstance(e, relay.If)]
    assert len(branches) == 2
    for b in branches:
        assert count(b.true_branch, "log") == 0 and count(b.false_branch, "exp") == 0


def test_functions_are_inlined() -> None:
    x, y, f = tensor(), tensor("y"), relay.var("f")
    square = relay.Function([y], y * y * x)  # captures x
    func = relay.Function([x], relay.Let(f, square, f(f(x))))
    np.testing.assert_allclose(grads(func, X)[0], 7 * X**6, rtol=1e-5)
    apply, g = (
        relay.var("apply"),
        relay.var("g", relay.FuncType([relay.TensorType((3,))], relay.TensorType((3,)))),
    )
    z = tensor("z")
    twice = relay.Function([g, z], g(g(z)))
    higher = relay.Function([x], relay.Let(apply, twice, apply(relay.Function([y], y * y), x)))
    np.testing.assert_allclose(grads(higher, X)[0], 4 * X**3, rtol=1e-5)


def test_second_order() -> None:
    x, y = tensor(), tensor("y")
    first = gradient(relay.Function([x], x * x * x))
    slope = relay.Function([y], relay.TupleGetItem(relay.TupleGetItem(first(y), 1), 0))
    np.testing.assert_allclose(grads(slope, X)[0], 6 * X, rtol=1e-6)


def test_a_function_that_calls_itself() -> None:
    """x times w, n times: the gradient of w, which the function captures, is n w^(n-1) x."""
    scalar = relay.TensorType((), "int32")
    kind = relay.TensorType((3,))
    n, x, w = relay.var("n", scalar), tensor(), tensor("w")
    loop = relay.var("loop", relay.FuncType([scalar, kind], kind))
    i, acc = relay.var("i", scalar), tensor("acc")
    body = relay.If(relay.less(i, n), loop(i + relay.const(1), acc * w), acc)
    func = relay.Function(
        [n, x, w], relay.Let(loop, relay.Function([i, acc], body, kind), loop(relay.const(0), x))
    )
    w_value = np.array([2.0, 0.5, 1.0], "float32")
    _, by_x, by_w = grads(func, np.array(3, "int32"), X, w_value)
    np.testing.assert_allclose(by_x, w_value**3, rtol=1e-5)
    np.testing.assert_allclose(by_w, 3 * w_value**2 * X, rtol=1e-5)
    made = relay.create_executor("vm").evaluate(gradient(func))
    np.testing.assert_allclose(
        made(np.array(3, "int32"), X, w_value)[1][2].numpy(), 3 * w_value**2 * X, rtol=1e-5
    )


def test_functions_of_the_module() -> None:
    kind, scalar = relay.TensorType((3,)), relay.TensorType((), "int32")
    power, i, x = tvm.ir.GlobalVar("power"), relay.var("i", scalar), tensor()
    body = relay.If(relay.less(i, relay.const(1)), relay.ones_like(x), power(i - relay.const(1), x) * x)
    mod = tvm.IRModule({power: relay.Function([i, x], body, kind)})
    double, y = tvm.ir.GlobalVar("double"), tensor("y")
    mod[double] = relay.Function([y], y + y)
    z = tensor("z")
    mod["main"] = relay.Function([z], power(relay.const(4), double(z)))
    mod = relay.transform.InferType()(mod)
    np.testing.assert_allclose(grads(mod["main"], X, mod=mod)[0], 16 * 4 * X**3, rtol=1e-5)
    assert "power_grad" in [gv.name_hint for gv in mod.functions]
    name = mod.get_global_var("main")
    np.testing.assert_allclose(grads(name, X, mod=mod)[0], 64 * X**3, rtol=1e-5)


def test_passes() -> None:
    x = tensor()
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.sqrt(x)))
    made = FirstOrderGradient()(mod)["main"]
    tvm.ir.assert_structural_equal(made, gradient(mod["main"], mode="first_order"))
    lazy = LazyGradientInit()(tvm.IRModule.from_expr(relay.Function([x], x + relay.zeros_like(x))))["main"]
    assert lazy.body is lazy.params[0]


def test_a_rule_of_the_user() -> None:
    op = relay.op.get("unravel_index")
    before = op.traits
    x = tensor()
    func = relay.Function([x], relay.sqrt(x))
    sqrt = relay.op.get("sqrt")
    kept = sqrt.get_attr("FPrimalGradient")
    try:
        relay.op.register_gradient("sqrt", lambda call, grad: [grad * relay.const(7.0)], level=11)
        np.testing.assert_array_equal(grads(func, np.abs(X))[0], [7, 7, 7])
    finally:
        sqrt.set_attr("FPrimalGradient", kept, 11)
    np.testing.assert_allclose(grads(func, np.abs(X))[0], 0.5 / np.sqrt(np.abs(X)), rtol=1e-6)
    assert op.traits is before


def test_what_has_no_gradient_is_named() -> None:
    x, rois = tensor("x", (1, 1, 4, 4)), tensor("rois", (1, 5))
    pooled = relay.Function([x, rois], relay.vision.roi_pool(x, rois, (2, 2), 1.0))
    with pytest.raises(
        tvm.TVMError, match=r"the operator vision\.roi_pool has none; .*register_gradient\('vision"
    ):
        gradient(pooled)
    with pytest.raises(ValueError, match="mode is 'second' and may be"):
        gradient(pooled, mode="second")
    with pytest.raises(TypeError, match=r"a relay\.Function was expected, not Var"):
        gradient(x)
    f = relay.var("f", relay.FuncType([relay.TensorType((3,))], relay.TensorType((3,))))
    with pytest.raises(tvm.TVMError, match="parameter %f is a function"):
        gradient(relay.Function([f], f(tensor("y"))))

    class Other(relay.Expr):
        """A kind of expression that the pass does not know."""

    with pytest.raises(tvm.TVMError, match="a Other has no gradient here"):
        _need_known(Other())
    relay.op.register_gradient("vision.roi_pool", lambda call, grad: [None])
    try:
        with pytest.raises(
            tvm.TVMError, match=r"the rule of vision\.roi_pool returns 1 gradients for 2 arguments"
        ):
            gradient(pooled)
    finally:
        relay.op.get("vision.roi_pool").reset_attr("FPrimalGradient")


def test_check_grad_compares_with_differences() -> None:
    x = tensor("x", (2, 3), "float64")
    check_grad(relay.Function([x], relay.tanh(x)))
    kept = relay.op.get("tanh").get_attr("FPrimalGradient")
    relay.op.register_gradient("tanh", lambda call, grad: [grad * call], level=11)
    try:
        with pytest.raises(AssertionError, match="Not equal to tolerance"):
            check_grad(relay.Function([x], relay.tanh(x)))
    finally:
        relay.op.get("tanh").set_attr("FPrimalGradient", kept, 11)


def test_gradients_of_windows_are_operators() -> None:
    grad, data = tensor("grad", (2, 4, 3, 3)), tensor("data", (2, 6, 5, 5))
    made = relay.infer_type(relay.nn.conv2d_backward_weight(grad, data, kernel_size=(3, 3), groups=2))
    assert made.checked_type == relay.TensorType((4, 3, 3, 3))
    with pytest.raises(tvm.TVMError, match="kernel_size: must be given"):
        relay.infer_type(relay.nn.conv2d_backward_weight(grad, data))
    with pytest.raises(tvm.TVMError, match=r"grad: is .* and data is .*: the batches differ"):
        relay.infer_type(relay.nn.conv2d_backward_weight(grad, tensor("data", (1, 4, 5, 5)), kernel_size=3))
    pooled = relay.infer_type(relay.nn.max_pool2d_grad(grad, tensor("data", (2, 4, 6, 6)), 2, 2))
    assert pooled.checked_type == relay.TensorType((2, 4, 6, 6))
    with pytest.raises(tvm.TVMError, match=r"out_grad: is .* and the windows make Tensor\[\(2, 6, 5, 5\)"):
        relay.infer_type(relay.nn.avg_pool2d_grad(grad, data))
