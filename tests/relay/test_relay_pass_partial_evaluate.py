"""PartialEvaluate: what is known is computed, what is not stays, and programs keep their meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.relay.prelude import Prelude
from tilewright.relay.testing import make_nat_expr, run_opt_pass
from tilewright.relay.transform import DeadCodeElimination, InferType, PartialEvaluate


def evaluated(expr: Any) -> Any:
    return run_opt_pass(expr, [PartialEvaluate(), DeadCodeElimination(inline_once=True)])


def same_meaning(fn: relay.Function, *args: Any) -> relay.Function:
    """The function evaluated, which computes what it did."""
    made = run_opt_pass(fn, [PartialEvaluate(), InferType()])
    old = relay.create_executor("vm").evaluate(fn)(*args)
    new = relay.create_executor("vm").evaluate(made)(*args)
    np.testing.assert_array_equal(old.numpy(), new.numpy())
    return made


def counted() -> tuple[relay.Var, relay.Function]:
    """%f = fn (%n) { if (%n == 0) { 0 } else { %n + %f(%n - 1) } }"""
    n = relay.var("n", shape=(), dtype="int32")
    f = relay.Var("f")
    rest = n + f(n - relay.const(1))
    return f, relay.Function([n], relay.If(relay.equal(n, relay.const(0)), relay.const(0), rest))


def test_written_out() -> None:
    x = relay.var("x", shape=(2,))
    f, fn = counted()
    pair = relay.Tuple([relay.const(1.0), relay.exp(x)])
    body = relay.Let(f, fn, relay.Tuple([f(relay.const(3)), relay.TupleGetItem(pair, 1)]))
    made = evaluated(relay.Function([x], body))
    assert made.astext(show_meta_data=False) == (
        "fn (%x: Tensor[(2), float32]) -> (int32, Tensor[(2), float32]) {\n"
        "  %0 = exp(%x) /* ty=Tensor[(2), float32] */;\n"
        "  (6, %0)\n"
        "}"
    )


def test_a_recursion_over_data_stays() -> None:
    start = relay.var("start", shape=(), dtype="int32")
    f, fn = counted()
    made = same_meaning(relay.Function([start], relay.Let(f, fn, f(start))), np.array(7, "int32"))
    assert "if (" in made.astext(show_meta_data=False)


@pytest.mark.parametrize("flag", [True, False])
def test_writes_in_branches_are_not_forgotten(flag: bool) -> None:
    d = relay.var("d", shape=(), dtype="bool")
    r, u, done = relay.Var("r"), relay.Var("u"), relay.Var("done")
    twice = relay.Function([], relay.RefWrite(r, relay.RefRead(r) + relay.RefRead(r)))
    body = relay.Let(done, relay.If(d, u(), relay.Tuple([])), relay.RefRead(r))
    fn = relay.Function([d], relay.Let(r, relay.RefCreate(relay.const(1)), relay.Let(u, twice, body)))
    same_meaning(fn, np.array(flag))


def test_a_function_that_is_not_known_may_write() -> None:
    d = relay.var("d", shape=(), dtype="bool")
    r, one, two, f, done = (relay.Var(name) for name in ("r", "one", "two", "f", "done"))
    writes = [relay.Function([], relay.RefWrite(r, relay.const(n))) for n in (1, 2)]
    body: Any = relay.Let(done, f(), relay.RefRead(r))
    body = relay.Let(one, writes[0], relay.Let(two, writes[1], relay.Let(f, relay.If(d, one, two), body)))
    fn = relay.Function([d], relay.Let(r, relay.RefCreate(relay.const(0)), body))
    same_meaning(fn, np.array(True))
    same_meaning(fn, np.array(False))


@pytest.mark.slow
def test_known_values_of_data_types_are_taken_apart() -> None:
    mod = tvm.IRModule()
    p = Prelude(mod)
    p.mod.import_from_std("nat.rly")
    mod["main"] = relay.Function([], mod.get_global_var("nat_double")(make_nat_expr(p, 3)))
    passes = [PartialEvaluate(), DeadCodeElimination(inline_once=True)]
    made = tvm.transform.Sequential(passes)(mod)
    tvm.ir.assert_structural_equal(made["main"].body, make_nat_expr(p, 6))


def test_what_never_ends_is_a_call() -> None:
    mod = tvm.IRModule()
    x = relay.var("x", shape=(), dtype="int32")
    loop, grow = relay.GlobalVar("loop"), relay.GlobalVar("grow")
    mod[loop] = relay.Function([x], loop(x), relay.scalar_type("int32"))
    y = relay.var("y", shape=(), dtype="int32")
    mod[grow] = relay.Function([y], grow(y + relay.const(1)), relay.scalar_type("int32"))
    mod["main"] = relay.Function([], relay.Tuple([loop(relay.const(1)), grow(relay.const(0))]))
    text = PartialEvaluate()(mod)["main"].astext(show_meta_data=False)
    assert "@loop(1" in text and "@grow(" in text


@pytest.mark.slow
def test_functions_as_values_of_generic_functions() -> None:
    mod = tvm.IRModule()
    p = Prelude(mod)
    x = relay.var("x", shape=(2,))
    y = relay.var("y", shape=(2,))
    _, cons, nil = p.mod.get_type("List")
    listed = mod.get_global_var("map")(relay.Function([y], relay.exp(y)), cons(x, nil()))
    mod["main"] = relay.Function([x], mod.get_global_var("hd")(listed))
    made = tvm.transform.Sequential([PartialEvaluate(), DeadCodeElimination(inline_once=True)])(mod)
    assert made["main"].astext(show_meta_data=False) == (
        "fn (%x: Tensor[(2), float32]) -> Tensor[(2), float32] {\n  exp(%x) /* ty=Tensor[(2), float32] */\n}"
    )
