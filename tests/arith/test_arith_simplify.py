"""The text that expressions simplify to."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.arith import Analyzer
from tilewright.ir import decl_buffer, ops
from tilewright.ir.dtype import DataType
from tilewright.ir.expr import (
    And,
    Broadcast,
    BufferLoad,
    Cast,
    CommReducer,
    Div,
    FloatImm,
    FloorDiv,
    IterVar,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    PrimExpr,
    Ramp,
    Range,
    Reduce,
    Select,
    SizeVar,
    Var,
    const,
)

x, y, z, i, j, k = (Var(name) for name in "xyzijk")
n, m = SizeVar("n"), SizeVar("m")
u = Var("u", "uint8")
p = Var("p", "bool")
f = Var("f", "float32")


@pytest.fixture
def ana() -> Analyzer:
    """i in [0, 16), j in [0, 4), k in [0, n)."""
    made = Analyzer()
    made.bind(i, Range(0, 16))
    made.bind(j, Range(0, 4))
    made.bind(k, Range(0, n))
    return made


CASES: list[tuple[Any, str]] = [
    # sums and products
    (x + y + x, "x * 2 + y"),
    ((x + 1) - (x - 2), "3"),
    ((x + y * 2) * 3 - y, "x * 3 + y * 5"),
    (const(3) + x, "x + 3"),
    (5 - x, "5 - x"),
    (y - x - 1 + 0, "y - x - 1"),
    ((x - y) * -1, "y - x"),
    ((x * n + y) * 2, "x * n * 2 + y * 2"),
    ((x + 1) * (n + 1) - x * n, "x + n + 1"),
    # quotients and remainders by constants
    ((x * 4 + y) // 4, "x + y // 4"),
    ((x * 4 + j) // 4, "x"),
    ((x * 4 + y) % 4, "y % 4"),
    ((x * 4 + j) % 4, "j"),
    ((x // 4) * 4 + x % 4, "x"),
    ((x // 32) * 32 + (x % 32 // 4) * 4 + x % 4, "x"),
    ((x // 4 % 8) * 4 + x % 4, "x % 32"),
    ((x // 4) // 8, "x // 32"),
    ((x // 4 + 3) // 2, "(x + 4) // 8 + 1"),
    ((x % 8) % 4, "x % 4"),
    ((x % 32) // 4, "x // 4 % 8"),
    ((x * 6) // 4, "x * 3 // 2"),
    ((x * 6) % 4, "x % 2 * 2"),
    ((x * 8 + j * 2 + 1) // 8, "x"),
    ((x * 8 + j * 2 + 1) % 8, "j * 2 + 1"),
    ((i * 16 + x * 64 + j) // 32, "x * 2 + i // 2"),
    ((i * 4 + j) // 8 * 8 + (i * 4 + j) % 8, "i * 4 + j"),
    ((x + 7) // 4, "(x + 3) // 4 + 1"),
    ((x - 1) % 4, "(x + 3) % 4"),
    (FloorDiv(x, const(-4)), "x // -4"),
    (x % 1, "0"),
    ((x % 8 + y) % 4, "(y + x) % 4"),
    # symbolic divisors
    ((x * n) // n, "x"),
    ((x * n + k) // n, "x"),
    ((x * n + k) % n, "k"),
    ((x * n + y) // n, "x + y // n"),
    ((x // n) * n + x % n, "x"),
    ((x * (n + 1) + k) // (n + 1), "x"),
    (((x * n + k) * 4 + j) // (n * 4), "x"),
    # rounding towards zero
    (Div(i * 4 + j, const(4)), "i"),
    (Mod(i * 4 + j, const(4)), "j"),
    (Div(x * 4, const(4)), "x"),
    (Div(-i, const(4)), "0 - i // 4"),
    # minima and maxima
    (Min(x + 1, x + 3), "x + 1"),
    (Max(i, const(15)), "15"),
    (Min(Min(x, y), x), "T.min(x, y)"),
    (Max(Min(x, y), x), "x"),
    (Min(x * 4 + 4, n) - x * 4, "T.min(4, n - x * 4)"),
    (Min(x + y, x + z), "x + T.min(y, z)"),
    # choices
    (Select(i < 16, x, y), "x"),
    (Select(x < 5, Min(x, 5), Max(x, 5)), "x"),
    (ops.if_then_else(j >= 4, x, y), "y"),
    (Select(x < y, z + 1, z + 1), "z + 1"),
    # casts
    (Cast("int32", Cast("int64", x)), "x"),
    (Cast("int64", const(3)), "T.int64(3)"),
    (Cast("int32", i < 20), "1"),
    # let
    (Let(z, const(3), z + x), "x + 3"),
]

CONDITIONS: list[tuple[PrimExpr, str]] = [
    (i * 4 + j < 64, "T.bool(True)"),
    (i * 4 + j >= 64, "T.bool(False)"),
    (i * 4 < 30, "i < 8"),
    (x * 4 <= 30, "x <= 7"),
    (x * 4 > 30, "x > 7"),
    (x + y < y + 5, "x < 5"),
    (x // 4 < 3, "x < 12"),
    (x * 2 == y * 2 + 1, "T.bool(False)"),
    (x * 2 == 6, "x == 3"),
    (x * 2 + 4 == y * 2, "x + 2 == y"),
    (x % 4 == 0, "x % 4 == 0"),
    (x != x, "T.bool(False)"),
    (k < n, "T.bool(True)"),
    (k * m + m <= n * m, "T.bool(True)"),
    ((n + 3) // 4 * 4 >= n, "T.bool(True)"),
    (Not(x < y), "x >= y"),
    (ops.all(x < 5, x < 7), "x < 5"),
    (ops.all(x < 7, x < 5), "x < 5"),
    (ops.all(x < 5, x > 6), "T.bool(False)"),
    (ops.any(x < 5, x >= 5), "T.bool(True)"),
    (ops.any(x < 5, x < 7), "x < 7"),
    (ops.all(p, x < 3, p), "p and x < 3"),
    (ops.all(p, Not(p)), "T.bool(False)"),
    (ops.any(p, Not(p)), "T.bool(True)"),
    (Not(ops.all(x < y, p)), "x >= y or not p"),
    (ops.likely(i < 16), "T.bool(True)"),
    (ops.likely(i < 15), "T.likely(i < 15)"),
    (ops.all(x >= 0, x < 8, x // 8 == 0), "x >= 0 and x < 8"),
]

EXACT: list[tuple[Any, str]] = [
    # unsigned arithmetic wraps around: only what holds anyhow
    (u + const(200, "uint8") - const(200, "uint8") < u, None),
    (u - u, 'T.uint8(0)'),
    (u < const(0, "uint8"), "T.bool(False)"),
    (u % const(1, "uint8"), "T.uint8(0)"),
    # floats: only exact rules
    (Mul(f, FloatImm("float32", 1.0)), "f"),
    (f + 0.0, None),
    (f - f, None),
    (Mul(f, FloatImm("float32", 0.0)), None),
    (f < f, None),
]  # fmt: skip

VECTORS: list[tuple[Any, str]] = [
    (Broadcast(x, 4) + Broadcast(y, 4), "T.Broadcast(x + y, 4)"),
    (Ramp(i, 1, 4) + Broadcast(x, 4), "T.Ramp(i + x, 1, 4)"),
    (Ramp(i, 1, 4) * Broadcast(const(4), 4), "T.Ramp(i * 4, 4, 4)"),
    (Ramp(i * 4, 1, 4) // Broadcast(const(4), 4), "T.Broadcast(i, 4)"),
    (Ramp(i * 4, 1, 4) % Broadcast(const(4), 4), "T.Ramp(0, 1, 4)"),
    (Ramp(x, 4, 4) // Broadcast(const(4), 4), "T.Ramp(x // 4, 1, 4)"),
    (Ramp(i, 1, 4) < Broadcast(const(19), 4), "T.Broadcast(T.bool(True), 4)"),
    (Select(Ramp(i, 1, 4) < Broadcast(const(19), 4), Broadcast(x, 4), Broadcast(y, 4)), "T.Broadcast(x, 4)"),
]


@pytest.mark.parametrize(("e", "text"), CASES + CONDITIONS + VECTORS, ids=lambda v: str(v))
def test_text(ana: Analyzer, e: PrimExpr, text: str) -> None:
    made = ana.simplify(e)
    assert str(made) == text
    assert ana.simplify(made) is made


@pytest.mark.parametrize(("e", "text"), EXACT, ids=lambda v: str(v))
def test_only_what_is_exact(ana: Analyzer, e: PrimExpr, text: str | None) -> None:
    made = ana.simplify(e)
    if text is None:
        assert made is e
    else:
        assert str(made) == text


def test_unchanged_comes_back_itself(ana: Analyzer) -> None:
    a = decl_buffer((16, 16), "float32", "A")
    for e in (
        x * 4 + y,
        (x + 3) // 4,
        x // 4 % 8,
        Min(x, y) + 1,
        ops.all(x < 3, p),
        Select(x < 3, y, z),
        BufferLoad(a, (x, y + 1)),
        ops.exp(BufferLoad(a, (x, y))),
        ops.cast("float32", x + 1),
        Ramp(x, 1, 4),
    ):
        assert ana.simplify(e) is e


def test_inside_loads_and_calls(ana: Analyzer) -> None:
    a = decl_buffer((16, 16), "float32", "A")
    assert str(ana.simplify(a[(x * 4 + j) // 4, y + 1 - 1])) == "A[x, y]"
    assert str(ana.simplify(ops.exp(a[x, y + 0 * x]))) == str(ops.exp(a[x, y]))
    index = decl_buffer((16,), "int32", "B")
    assert str(ana.simplify(index[x + 0] * 2 - index[x])) == "B[x]"


def test_calls_with_effects_are_never_the_same(ana: Analyzer) -> None:
    def call() -> PrimExpr:
        return ops.call_extern("int32", "next")

    e = call() - call()
    assert ana.simplify(e) is e


def test_constants_that_do_not_fit_leave_the_expression() -> None:
    e = Mul(Mul(x, const(65536)), const(65536))
    assert Analyzer().simplify(e) is e
    wide = Var("w", "int64")
    made = Analyzer().simplify(wide * const(65536, "int64") * const(65536, "int64"))
    assert str(made) == str(wide * const(1 << 32, "int64"))


def test_division_by_zero_stays() -> None:
    e = FloorDiv(x, const(0))
    assert Analyzer().simplify(e) is e


def test_guards_are_kept_before_what_they_guard() -> None:
    a = decl_buffer((16,), "int32", "A")
    e = And(And(x < 7, a[x] > 0), x < 5)
    assert str(Analyzer().simplify(e)) == "x < 5 and A[x] > 0"


def test_types_are_kept(ana: Analyzer) -> None:
    for dtype in ("int32", "int64"):
        v = Var("v", dtype)
        for e in (v + 1 - 1, v * 0, v // 1 % 1, Min(v, v + 1)):
            assert ana.simplify(e).dtype is DataType(dtype)


def test_reductions_know_their_axes() -> None:
    a = decl_buffer((64,), "float32", "A")
    left, right = Var("left", "float32"), Var("right", "float32")
    plus = CommReducer((left,), (right,), (left + right,), (FloatImm("float32", 0.0),))
    axis = IterVar(Range(0, 4), "r", IterVar.CommReduce)
    e = Reduce(plus, (a[(x * 4 + axis.var) // 4],), (axis,), axis.var < 4, 0)
    made = Analyzer().simplify(e)
    assert str(made.source[0]) == "A[x]"
    assert str(made.condition) == "T.bool(True)"
