"""Walks over graph expressions, and questions about them."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright import relay
from tilewright.ir import IRModule
from tilewright.ir.errors import TVMError
from tilewright.relay import analysis
from tilewright.relay.op import get

DEEP = 20_000


def chain(n: int = DEEP) -> tuple[relay.Var, Any]:
    x = relay.var("x", shape=(2,))
    e: Any = x
    for _ in range(n):
        e = relay.Call(get("nn.relu"), [e])
    return x, e


class ReluToExp(relay.ExprMutator):
    def visit_call(self, call: relay.Call) -> Any:
        new = super().visit_call(call)
        return relay.exp(new.args[0]) if new.op.name == "nn.relu" else new


@pytest.mark.slow
def test_a_mutator_walks_a_long_chain() -> None:
    x, e = chain()
    f = relay.Function([x], e)
    made = ReluToExp().visit(f)
    assert analysis.count_calls(made, "exp") == DEEP
    assert analysis.count_calls(made, "nn.relu") == 0


@pytest.mark.slow
@pytest.mark.parametrize("count", [2_000, pytest.param(DEEP, marks=pytest.mark.slow)])
def test_a_mutator_walks_a_long_chain_of_lets(count: int) -> None:
    x = relay.var("x", shape=(2,))
    rows = []
    at: Any = x
    for i in range(count):
        v = relay.var(f"v{i}")
        rows.append((v, relay.Call(get("nn.relu"), [at])))
        at = v
    body: Any = at
    for v, value in reversed(rows):
        body = relay.Let(v, value, body)
    f = relay.Function([x], body)
    assert relay.ExprMutator().visit(f) is f
    typed = relay.infer_type(f)
    assert typed.ret_type == relay.TensorType((2,))
    assert analysis.count_calls(ReluToExp().visit(typed), "exp") == count
    assert relay.parse_expr(typed.astext()).params[0].name_hint == "x"


def test_nothing_to_do_gives_the_same_object() -> None:
    x = relay.var("x", shape=(2,))
    f = relay.Function([x], relay.If(relay.const(True), relay.Tuple([x])[0], relay.exp(x)))
    assert relay.ExprMutator().visit(f) is f


def test_a_visitor_sees_each_node_once_and_an_overridden_visit_sees_all() -> None:
    seen: list[Any] = []

    class Count(relay.ExprVisitor):
        def visit(self, expr: Any) -> Any:
            if expr not in self.memo_map:
                seen.append(expr)
            return super().visit(expr)

    x = relay.var("x", shape=(2,))
    e = relay.exp(x)
    Count().visit(e + e)
    calls = [s for s in seen if isinstance(s, relay.Call)]
    assert len(calls) == 2 and x in seen


def test_let_visitors_see_each_let() -> None:
    names: list[str] = []

    class Names(relay.ExprVisitor):
        def visit_let(self, let: relay.Let) -> Any:
            names.append(let.var.name_hint)
            super().visit_let(let)

    a, b = relay.var("a"), relay.var("b")
    Names().visit(relay.Let(a, relay.const(1), relay.Let(b, a, b)))
    assert names == ["a", "b"]


def test_variables_free_and_bound() -> None:
    x, y, v = relay.var("x", shape=(2,)), relay.var("y", shape=(2,)), relay.var("v")
    e = relay.Let(v, x + y, relay.Function([y], y + v)(x))
    assert analysis.free_vars(x + y) == [x, y]
    assert analysis.free_vars(e) == [x]
    assert set(analysis.bound_vars(e)) == {v, y}
    assert set(analysis.all_vars(e)) == {x, y, v}
    t = relay.TypeVar("t")
    p = relay.Var("p", t)
    assert analysis.free_type_vars(relay.Function([p], p)) == [t]
    assert analysis.free_type_vars(relay.Function([p], p, t, [t])) == []


def test_well_formed() -> None:
    x, v = relay.var("x", shape=(2,)), relay.var("v")
    good = relay.Function([x], relay.Let(v, x, v))
    assert analysis.well_formed(good) and analysis.well_formed(IRModule.from_expr(good))
    assert not analysis.well_formed(relay.Let(v, x, relay.Let(v, x, v)))
    with pytest.raises(TVMError, match="%v is used out of its scope"):
        analysis.check_well_formed(relay.Function([x], relay.Tuple([relay.Let(v, x, v), v])))


def test_counts() -> None:
    x = relay.var("x", shape=(2,))
    e = relay.exp(x)
    assert analysis.use_counts(e + e)[e] == 2
    assert analysis.list_op_freqs(IRModule.from_expr(e + e)) == {"exp": 1, "add": 1}


def test_types_are_walked() -> None:
    class Half(relay.TypeMutator):
        def visit_tensor_type(self, tt: relay.TensorType) -> relay.TensorType:
            return relay.TensorType(tt.shape, "float16")

    pair = relay.TupleType(
        [relay.TensorType((2,)), relay.FuncType([relay.TensorType((3,))], relay.TensorType(()))]
    )
    assert (
        str(Half().visit(pair))
        == "(Tensor[(2,), float16], fn (Tensor[(3,), float16]) -> Tensor[(), float16])"
    )
