"""Expressions that nest more deeply than Python's parser goes are written in several lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tilewright.ir import GlobalVar, PrimFunc, assert_structural_equal, decl_buffer
from tilewright.ir import expr as E
from tilewright.ir.expr import BufferLoad, Call, Cast, PrimExpr, StringImm, Var, const
from tilewright.ir.printer import expr_text, script
from tilewright.ir.stmt import BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, SeqStmt, While
from tilewright.script import from_source

I, J, P, F = Var("i", "int32"), Var("j", "int32"), Var("p", "bool"), Var("f", "float32")
A = decl_buffer((8,), "int32", "A")

NUMBERS: dict[str, Callable[[Any], PrimExpr]] = {
    **{
        f"{cls.__name__} to the right": (lambda e, cls=cls: cls(I, e))
        for cls in (E.Add, E.Sub, E.Mul, E.Div, E.FloorDiv, E.FloorMod, E.Mod, E.Min, E.Max)
    },
    "a chain to the left": lambda e: E.Sub(e, I),
    "left and right": lambda e: E.Mul(J, E.Add(e, I)),
    "Select": lambda e: E.Select(P, I, e),
    "Cast": lambda e: Cast("int32", Cast("int64", e)),
    "BufferLoad": lambda e: BufferLoad(A, (e,)),
    "shift_left": lambda e: Call("int32", "tir.shift_left", (I, e)),
    "if_then_else": lambda e: Call("int32", "tir.if_then_else", (P, I, e)),
    "value of Let": lambda e: E.Let(Var("x", "int32"), e, I),
    "body of Let": lambda e: E.Let(Var("x", "int32"), I, e),
    "call_extern": lambda e: Call("int32", "tir.call_extern", (StringImm("g"), e)),
    "another function": lambda e: Call("int32", GlobalVar("g"), (e,)),
}
FLAGS: dict[str, Callable[[Any], PrimExpr]] = {
    "Not": E.Not,
    "And to the right": lambda e: E.And(P, e),
    "Or to the right": lambda e: E.Or(P, e),
    "And to the left": lambda e: E.And(e, P),
    "EQ": lambda e: E.EQ(P, e),
    "LT": lambda e: E.LT(Cast("int32", e), I),
}
FLOATS: dict[str, Callable[[Any], PrimExpr]] = {
    "exp": lambda e: Call("float32", "tir.exp", (e,)),
    "pow": lambda e: Call("float32", "tir.pow", (F, e)),
}
FORMS = [
    pytest.param(step, start, id=name)
    for table, start in ((NUMBERS, J), (FLAGS, P), (FLOATS, F))
    for name, step in table.items()
]


def nested(step: Callable[[Any], PrimExpr], start: PrimExpr, times: int) -> PrimExpr:
    for _ in range(times):
        start = step(start)
    return start


def function(body: Any) -> PrimFunc:
    return PrimFunc([I, J, P, F, A], body, attrs={"global_symbol": "f"})


@pytest.mark.parametrize(("step", "start"), FORMS)
def test_nesting(step: Callable[[Any], PrimExpr], start: PrimExpr) -> None:
    for times in (40, 49, 50, 51, 300):
        func = function(Evaluate(nested(step, start, times)))
        assert_structural_equal(func, from_source(func.script()))


@pytest.mark.slow
@pytest.mark.parametrize(("step", "start"), FORMS)
def test_deep_nesting(step: Callable[[Any], PrimExpr], start: PrimExpr) -> None:
    func = function(Evaluate(nested(step, start, 2000)))
    assert_structural_equal(func, from_source(func.script()))


def test_deep_expressions_in_every_kind_of_line() -> None:
    deep = nested(NUMBERS["Sub to the right"], J, 120)
    load = nested(NUMBERS["BufferLoad"], J, 120)
    v, k, x = Var("v", "int32"), Var("k"), Var("x", "int32")
    store = BufferStore(A, load, [deep])
    bodies = [
        store,
        For(k, deep, load, ForKind.SERIAL, store),
        For(k, 0, 4, ForKind.PARALLEL, For(v, 0, load, ForKind.SERIAL, store)),
        IfThenElse(E.LT(deep, load), store, Evaluate(deep)),
        While(E.LT(deep, load), store),
        LetStmt(x, deep, SeqStmt((BufferStore(A, x, [x]), store))),
        SeqStmt((LetStmt(x, deep, BufferStore(A, x, [x])), store)),
    ]
    for body in bodies:
        for sugar in (True, False):
            func = function(body)
            assert_structural_equal(func, from_source(func.script(syntax_sugar=sugar)))


def test_a_part_stands_in_a_line_before_its_use() -> None:
    func = function(BufferStore(A, nested(NUMBERS["Sub to the right"], J, 60), [const(0)]))
    first, second = func.script().splitlines()[-2:]
    assert first == "    part = T.meta_var(" + "i - (" * 51 + "i - j" + ")" * 51 + ")"
    assert second == "    A[0] = " + "i - (" * 7 + "i - part" + ")" * 7


def test_what_is_not_a_program_stays_in_one_line() -> None:
    deep = nested(NUMBERS["Sub to the right"], J, 300)
    assert expr_text(deep) == str(deep) == script(deep) == "i - (" * 299 + "i - j" + ")" * 299
    assert deep.script() == f"i = T.int32()\nj = T.int32()\n{deep}"


def test_long_sums_stay_in_one_line() -> None:
    text = function(Evaluate(nested(lambda e: E.Add(e, I), J, 600))).script()
    assert text.splitlines()[-1] == "    T.evaluate(j" + " + i" * 600 + ")"


# -- statements ------------------------------------------------------------------------------------
@pytest.mark.slow
def test_statements_that_stand_too_far_to_the_right() -> None:
    """Python reads a hundred levels of indentation."""
    for levels in (85, 95, 150, 320):
        body: Any = BufferStore(A, I, [J])
        for n in range(levels):
            if n % 3 == 0:
                body = IfThenElse(E.LT(I, const(n)), body, BufferStore(A, J, [I]) if n % 2 else None)
            else:
                k = Var("k")
                body = For(k, 0, E.Add(I, const(n)), ForKind.SERIAL, SeqStmt((BufferStore(A, k, [k]), body)))
        func = function(body)
        assert_structural_equal(func, from_source(func.script()))
        assert max(len(line) - len(line.lstrip()) for line in func.script().splitlines()) < 400


def test_text_of_a_suite_that_was_taken_out() -> None:
    body: Any = BufferStore(A, I, [J])
    for _ in range(91):
        body = While(P, body)
    lines = function(body).script().splitlines()
    assert lines[4:9] == [
        "    @T.macro(hygienic=False)",
        "    def suite_1():",
        "        while p:",
        "            A[j] = i",
        "    while p:",
    ]
    assert lines[-1].strip() == "suite_1()"


def test_macros_inside_a_function() -> None:
    made = from_source(
        "@T.prim_func\n"
        "def f(n: T.int32):\n"
        "    @T.macro(hygienic=False)\n"
        "    def free(x):\n"
        "        T.evaluate(x + k)\n"
        "    for k in range(4):\n"
        "        free(n)\n"
    )
    want = from_source(
        "@T.prim_func\ndef f(n: T.int32):\n    for k in range(4):\n        T.evaluate(n + k)\n"
    )
    assert_structural_equal(made, want)
