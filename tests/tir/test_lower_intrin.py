"""Lowering of floor division, mathematical functions and fixed-point products to plain operations."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir import PrimExpr, PrimFunc, decl_buffer, expr, ops
from tilewright.ir.expr import BufferLoad, Call, Div, FloorDiv, FloorMod, Mod, SizeVar, Var, const
from tilewright.ir.functor import pre_order
from tilewright.ir.ops import wrap
from tilewright.ir.stmt import BufferStore, Evaluate, For, ForKind, IfThenElse
from tilewright.tir.transform.lower_intrin import lower_intrin


def _lowered(value: PrimExpr, **options: bool) -> PrimExpr:
    made = lower_intrin(PrimFunc([], Evaluate(value)), **options).body
    assert isinstance(made, Evaluate)
    return made.value


def _kinds(n: Any) -> set[str]:
    return {m.op.short_name if isinstance(m, Call) else type(m).__name__ for m in pre_order(n)}


def _trunc_div(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "Div": _trunc_div,
    "Mod": lambda a, b: a - _trunc_div(a, b) * b,
    "Max": max,
    "LT": operator.lt,
    "GE": operator.ge,
    "NE": operator.ne,
    "And": lambda a, b: a and b,
    "Or": lambda a, b: a or b,
    "EQ": operator.eq,
    "shift_left": operator.lshift,
    "shift_right": operator.rshift,
    "bitwise_and": operator.and_,
    "bitwise_xor": operator.xor,
}


def _value(e: PrimExpr, env: dict[Var, int]) -> Any:
    """The value of an integer expression, wrapped to its type as the machine does."""
    if isinstance(e, Var):
        return env[e]
    if isinstance(e, expr.IntImm):
        return e.value
    if isinstance(e, expr.Let):
        return _value(e.body, {**env, e.var: _value(e.value, env)})
    if isinstance(e, expr.Select):
        return _value(e.true_value if _value(e.condition, env) else e.false_value, env)
    if isinstance(e, expr.Cast):
        return wrap(_value(e.value, env), e.dtype)
    name, args = (e.op.short_name, e.args) if isinstance(e, Call) else (type(e).__name__, e.children())
    made = _OPERATORS[name](*[_value(a, env) for a in args])
    return made if e.dtype.is_bool else wrap(made, e.dtype)


# ---------------------------------------------------------------------------- floor division
_ANY = st.integers(-(2**31) + 1, 2**31 - 1)


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(
    _ANY, st.one_of(_ANY, st.integers(-9, 9)).filter(bool), st.booleans(), st.sampled_from(["int32", "int64"])
)
def test_division_rounds_down_for_every_sign(x: int, y: int, fixed: bool, dtype: str) -> None:
    a, b = Var("a", dtype), Var("b", dtype)
    divisor = const(y, dtype) if fixed else b
    for node, want in ((FloorDiv, x // y), (FloorMod, x % y)):
        made = _lowered(node(a, divisor))
        assert not _kinds(made) & {"FloorDiv", "FloorMod"}
        assert _value(made, {a: x, b: y}) == want


@pytest.mark.parametrize("dtype", ["int32", "int64", "uint8", "int32x4"])
def test_powers_of_two_become_shifts_and_masks(dtype: str) -> None:
    a = Var("a", dtype)
    assert _kinds(_lowered(FloorDiv(a, const(8, dtype)))) <= {"shift_right", "Var", "IntImm", "Broadcast"}
    assert _kinds(_lowered(FloorMod(a, const(8, dtype)))) <= {"bitwise_and", "Var", "IntImm", "Broadcast"}


def test_unsigned_division_is_plain_but_for_a_divisor_that_may_be_zero() -> None:
    a, b, size = Var("a", "uint32"), Var("b", "uint32"), SizeVar("n", "uint32")
    for by in (const(7, "uint32"), size):
        assert isinstance(_lowered(FloorDiv(a, by)), Div)
        assert isinstance(_lowered(FloorMod(a, by)), Mod)
    assert str(_lowered(FloorMod(a, b))) == (
        "T.Let(T.truncmod(a, safe), where={safe: T.Select(b == T.uint32(0), T.uint32(1), b)})"
    )


def _store_in_loop(index: Callable[[Var], PrimExpr], start: int) -> PrimFunc:
    buffer = decl_buffer((1000,), "float32", name="A")
    i = Var("i", "int32")
    body = For(i, start, 300, ForKind.SERIAL, BufferStore(buffer, 1.0, (index(i),)))
    return PrimFunc([buffer], body)


def test_a_loop_that_starts_at_zero_needs_no_correction() -> None:
    kinds = _kinds(lower_intrin(_store_in_loop(lambda i: i // 3 * 7 + (i + 5) % 7, 0)).body)
    assert {"Div", "Mod"} <= kinds
    assert not kinds & {"Let", "Select", "FloorDiv", "FloorMod"}


def test_a_loop_that_starts_below_zero_needs_correction() -> None:
    kinds = _kinds(lower_intrin(_store_in_loop(lambda i: i // 3 + 100, -9)).body)
    assert "Select" in kinds
    assert not kinds & {"FloorDiv", "FloorMod"}


def test_sizes_and_conditions_are_known() -> None:
    n, i = SizeVar("n", "int32"), Var("i", "int32")
    buffer = decl_buffer((1000,), "float32", name="A")
    inner = IfThenElse(i >= 0, BufferStore(buffer, 1.0, (i // n,)))
    assert "Select" not in _kinds(lower_intrin(PrimFunc([buffer, n, i], inner)).body)
    assert "Select" in _kinds(lower_intrin(PrimFunc([buffer, n, i], inner.then_case)).body)


def test_division_in_the_index_of_a_load() -> None:
    buffer = decl_buffer((1000,), "float32", name="A")
    i = Var("i", "int32")
    body = For(i, 0, 9, ForKind.SERIAL, BufferStore(buffer, BufferLoad(buffer, (i % 3,)), (i,)))
    assert not _kinds(lower_intrin(PrimFunc([buffer], body)).body) & {"FloorMod", "Let"}


def test_nothing_to_lower_gives_the_same_function() -> None:
    buffer = decl_buffer((8,), "float32", name="A")
    i = Var("i", "int32")
    value = ops.sqrt(ops.fabs(BufferLoad(buffer, (i,)))) + ops.floor(BufferLoad(buffer, (i,)))
    func = PrimFunc([buffer], For(i, 0, 8, ForKind.SERIAL, BufferStore(buffer, value, (i,))))
    assert lower_intrin(func) is func


# ---------------------------------------------------------------------------- operators
def test_functions_nested_in_functions() -> None:
    x = Var("x", "float32x8")
    kinds = _kinds(_lowered(ops.exp(ops.tanh(x) * ops.sigmoid(x))))
    assert not kinds & {"exp", "tanh", "sigmoid"}


@pytest.mark.parametrize("has_fma", [True, False])
def test_fused_products_only_where_the_target_has_them(has_fma: bool) -> None:
    assert ("fma" in _kinds(_lowered(ops.exp(Var("x", "float32")), has_fma=has_fma))) == has_fma


@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
def test_classification_becomes_comparison(name: str) -> None:
    for dtype in ("float32", "float16", "float32x4"):
        x = Var("x", dtype)
        made = _lowered(Call(expr.EQ(x, x).dtype, f"tir.{name}", (x,)))
        assert _kinds(made) <= {"EQ", "NE", "LT", "fabs", "Var", "FloatImm", "Broadcast"}
        assert made.dtype.is_bool


def test_abs_of_integers() -> None:
    x = Var("x", "int32")
    made = _lowered(Call("int32", "tir.abs", (x + 1,)))
    assert [_value(made, {x: v}) for v in (-5, -1, 0, 7)] == [4, 0, 1, 8]


def _rounded_shift(product: int, amount: int) -> int:
    return (product + (1 << (amount - 1))) >> amount if amount > 0 else product << -amount


@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1), st.integers(-3, 8), st.booleans())
def test_q_multiply_shift(x: int, y: int, s: int, fixed: bool) -> None:
    a, b, shift = Var("a", "int32"), Var("b", "int32"), Var("s", "int32")
    args = (a, b, const(31), const(s) if fixed else shift)
    made = _lowered(Call("int32", "tir.q_multiply_shift", args))
    assert _value(made, {a: x, b: y, shift: s}) == wrap(_rounded_shift(x * y, 31 + s), a.dtype)


@settings(max_examples=examples(100), derandomize=True, deadline=None)
@given(st.integers(-(2**20), 2**20), st.integers(0, 2**31 - 1), st.integers(0, 8), st.integers(0, 8))
def test_q_multiply_shift_per_axis(x: int, y: int, left: int, right: int) -> None:
    a, b, l, r = (Var(n, "int32") for n in "ablr")
    args = (a, b, l, r, const(31), const(True), const(True))
    made = _lowered(Call("int32", "tir.q_multiply_shift_per_axis", args))
    want = wrap(_rounded_shift((x << left) * y, 31 + right), a.dtype)
    assert _value(made, {a: x, b: y, l: left, r: right}) == want
