"""Type inference: what it finds, what it refuses, what it keeps."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tvm
from tilewright import relay, te
from tilewright.ir import GlobalVar, IRModule
from tilewright.relay.op import get
from tilewright.relay.testing import run_infer_type

F32 = "float32"


def typed(expr: Any) -> Any:
    return run_infer_type(expr).checked_type


def test_a_function_gets_its_result_and_nodes_their_types() -> None:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    mod = relay.transform.InferType()(
        IRModule.from_expr(relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1))))
    )
    out = relay.TensorType((1, 4, 8, 8))
    assert mod["main"].ret_type == out and mod["main"].body.checked_type == out
    assert mod["main"].checked_type == relay.FuncType([x.checked_type, w.checked_type], out)
    assert relay.transform.InferType()(mod) is mod


def test_symbolic_and_unknown_sizes() -> None:
    n = te.size_var("n")
    x, y = relay.var("x", shape=(n, 4)), relay.var("y", shape=(relay.Any(), 4))
    assert typed(x + relay.const(1.0)) == relay.TensorType((n, 4))
    assert typed(y + y) == relay.TensorType((relay.Any(), 4))
    assert str(typed(relay.concatenate([x, x], 0))) == "Tensor[(n * 2, 4), float32]"
    assert typed(relay.reshape(x, (-1, 2, 2))) == relay.TensorType((n, 2, 2))
    assert typed(relay.reshape(y, (-1, 2, 2))) == relay.TensorType((relay.Any(), 2, 2))
    assert typed(x + relay.var("z", shape=(1, 4))) == relay.TensorType((n, 4))
    assert typed(y + relay.var("z", shape=(3, 4))) == relay.TensorType((3, 4))


def test_lets_ifs_tuples_and_closures() -> None:
    x, c, v = relay.var("x", shape=(2,)), relay.var("c", "bool"), relay.var("v")
    e = relay.Let(v, relay.Tuple([x, c]), relay.If(relay.TupleGetItem(v, 1), relay.TupleGetItem(v, 0), x + x))
    assert typed(e) == relay.TensorType((2,))
    p = relay.var("p", shape=(2,))
    assert typed(relay.Function([p], relay.exp(p))(x)) == relay.TensorType((2,))
    a, b = relay.var("a", shape=(2,)), relay.var("b", shape=(3,))
    assert typed(relay.If(c, a, b)) == relay.TensorType((relay.Any(),))


def test_functions_of_a_module_call_each_other() -> None:
    mod = IRModule()
    f, loop = GlobalVar("f"), GlobalVar("loop")
    x = relay.var("x", shape=(2,))
    mod[f] = relay.Function([x], relay.exp(x))
    y = relay.var("y", shape=(2,))
    mod["main"] = relay.Function([y], f(y))
    typed_mod = relay.transform.InferType()(mod)
    assert typed_mod["main"].ret_type == relay.TensorType((2,))
    z = relay.var("z", shape=(2,))
    bad = IRModule({loop: relay.Function([z], loop(z))})
    with pytest.raises(relay.RelayTypeError, match=r"@loop calls itself .*ret_type"):
        relay.transform.InferType()(bad)
    good = IRModule({loop: relay.Function([z], loop(z), relay.TensorType((2,)))})
    assert relay.transform.InferType()(good)["loop"].ret_type == relay.TensorType((2,))


def test_type_parameters_are_found_from_the_arguments() -> None:
    t = relay.TypeVar("t")
    p = relay.Var("p", t)
    same = relay.Function([p], p, t, [t])
    assert typed(same(relay.const(1))) == relay.scalar_type("int32")


def test_a_refusal_names_operator_argument_reason_and_place() -> None:
    x, w = relay.var("x", shape=(2, 3)), relay.var("w", shape=(4, 5))
    with pytest.raises(relay.RelayTypeError) as caught:
        run_infer_type(relay.nn.dense(x, w))
    lines = str(caught.value).splitlines()
    assert lines[0] == "nn.dense: weight: has 5 columns and data 3"
    assert lines[1] == (
        "  in nn.dense(%x: Tensor[(2, 3), float32], %w: Tensor[(4, 5), float32], units=None, out_dtype=None)"
    )
    assert lines[2].startswith("  at test_relay_infer_type.py:")


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda x: relay.add(x, relay.const([1, 2, 3])), "rhs: must be float32 and is int32"),
        (lambda x: relay.add(x, relay.const([1.0, 2.0])), "3 and 2 do not broadcast"),
        (lambda x: relay.exp(relay.Tuple([x])), "data: must be a tensor and is"),
        (lambda x: relay.concatenate(x, 0), "data: must be a tuple of tensors"),
        (lambda x: relay.sum(x, axis=5), "axis: is 5 and goes from -2 to 1"),
        (lambda x: relay.transpose(x, (0, 0)), "names a dimension twice"),
        (lambda x: relay.reshape(x, (4, 2)), "6 elements"),
        (lambda x: relay.TupleGetItem(x, 0), "which is not a tuple"),
        (lambda x: relay.If(x, x, x), "condition of an `if`"),
        (lambda x: relay.nn.relu(relay.var("unbound")), "%unbound has no type"),
        (lambda x: relay.Call(x, [x]), "which is not a function"),
        (lambda x: relay.Call(get("add"), [x]), "takes 2 arguments"),
        (lambda x: relay.Let(relay.var("v", "int32"), x, x), "is annotated Tensor"),
    ],
)
def test_refusals(build: Any, reason: str) -> None:
    with pytest.raises(relay.RelayTypeError) as caught:
        relay.infer_type(build(relay.var("x", shape=(2, 3))))
    assert reason in str(caught.value)


def test_a_changed_value_of_a_let_changes_the_types_after_it() -> None:
    x, v = relay.var("x", shape=(2,)), relay.var("v")
    user = relay.exp(v)
    first = relay.infer_type(relay.Let(v, x, user))
    assert first.checked_type == relay.TensorType((2,))
    second = relay.infer_type(relay.Let(v, relay.cast(x, "float16"), user))
    assert second.checked_type == relay.TensorType((2,), "float16")
    assert first.body.checked_type == relay.TensorType((2,)), "the first program is as it was"


def test_an_operator_is_no_value() -> None:
    for text in ("nn.relu.0", "(nn.relu, %x)", "let %f = nn.relu; %x", "add(%x, nn.relu)"):
        mod = relay.fromtext('#[version = "0.0.5"]\ndef @main(%x: Tensor[(2), float32]) { ' + text + " }")
        with pytest.raises(tvm.TVMError, match=r"the operator nn\.relu is used as a value"):
            relay.transform.InferType()(mod)


@pytest.mark.slow
def test_a_long_chain_is_typed_without_recursion() -> None:
    x = relay.var("x", shape=(2,))
    e: Any = x
    for _ in range(20_000):
        e = relay.Call(get("nn.relu"), [e])
    assert relay.infer_type(e).checked_type == x.checked_type


def test_numbers_take_the_type_of_what_stands_beside_them() -> None:
    x = relay.var("x", shape=(2,), dtype="float16")
    assert typed(relay.exp(x) * 2 + 1.5) == x.checked_type


def test_the_local_type_is_asked_while_building() -> None:
    e: Any = relay.var("x", shape=(2,))
    for _ in range(2000):
        e = relay.nn.relu(e)
        assert relay.transform.InferTypeLocal(e) == relay.TensorType((2,))


def test_types_of_weights_follow_from_operators() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    names = ["w", "b", "gamma", "beta", "mean", "var", "alpha", "d"]
    w, b, gamma, beta, mean, var, alpha, d = (relay.var(n) for n in names)
    y = relay.nn.bias_add(relay.nn.conv2d(x, w, channels=4, kernel_size=(3, 3)), b)
    y = relay.nn.prelu(relay.nn.batch_norm(y, gamma, beta, mean, var)[0], alpha)
    y = relay.nn.dense(relay.nn.batch_flatten(y), d, units=10)
    f = run_infer_type(relay.Function([x, w, b, gamma, beta, mean, var, alpha, d], y))
    shapes = [p.checked_type.shape for p in f.params]
    assert shapes == [(1, 3, 8, 8), (4, 3, 3, 3), *[(4,)] * 6, (10, 144)]
    assert f.ret_type == relay.TensorType((1, 10))
    assert "%w: Tensor[(4, 3, 3, 3), float32]" in f.astext()


def test_a_variable_that_nothing_determines_is_refused_and_left_as_it_was() -> None:
    x, w = relay.var("x", shape=(2, 3)), relay.var("w")
    f = relay.Function([x, w], relay.nn.dense(x, w))
    with pytest.raises(relay.RelayTypeError, match="%w has no type: it is not annotated, and its uses"):
        relay.infer_type(f)
    assert w.checked_type_ is None and f.body.checked_type_ is None


def test_functions_as_values() -> None:
    a, b = relay.TypeVar("a"), relay.TypeVar("b")
    x, y = relay.Var("x", a), relay.Var("y", b)
    same = relay.Function([x], x, a, [a])
    f = relay.Var("f", relay.FuncType([b], b))
    apply = relay.Function([f, y], f(y), b, [b])
    assert typed(apply(same, relay.const(0))) == relay.scalar_type("int32")
    name = relay.var("name")
    both = relay.Let(name, same, relay.Tuple([name(relay.const(1)), name(relay.Tuple([]))]))
    assert typed(both) == relay.TupleType([relay.scalar_type("int32"), relay.TupleType([])])
    g, n = relay.var("g"), relay.var("n", "int32")
    called = run_infer_type(relay.Function([n, g], relay.Call(g, [n]), relay.scalar_type("int32")))
    kind = relay.scalar_type("int32")
    assert called.checked_type == relay.FuncType([kind, relay.FuncType([kind], kind)], kind)


def test_a_recursion_needs_no_declared_result() -> None:
    n = relay.var("n", "int32")
    f = GlobalVar("f")
    body = relay.If(relay.equal(n, relay.const(0)), n, f(n - relay.const(1)))
    mod = relay.transform.InferType()(IRModule({f: relay.Function([n], body)}))
    assert mod["f"].ret_type == relay.scalar_type("int32")
    call = mod["f"].body.false_branch
    assert call.checked_type == relay.scalar_type("int32")
