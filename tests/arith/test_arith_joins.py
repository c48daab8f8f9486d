"""Terms that meet in a sum, a minimum or a comparison: the text they become, and the same value at every point."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from arith_evaluate import evaluate
from how_many import examples

from tilewright.arith import Analyzer
from tilewright.ir import ops
from tilewright.ir.expr import (
    CommReducer,
    Div,
    Max,
    Min,
    Mod,
    Or,
    Ramp,
    Range,
    Reduce,
    Select,
    SizeVar,
    Var,
    const,
)
from tilewright.ir.expr import IterVar as Axis

x, y, z, j = (Var(name) for name in "xyzj")
n = SizeVar("n")
BOX = {x: range(-13, 14), y: range(-7, 8), z: range(-4, 5), j: range(8), n: range(1, 6)}


def select(a: Any, b: Any) -> Select:
    return Select(x < 0, a, b)


def analyzer() -> Analyzer:
    made = Analyzer()
    made.bind(j, Range(0, 8))
    return made


def agree(e: Any, made: Any, box: Any) -> None:
    """Both have the same value at every point of the box."""
    for point in product(*box.values()):
        env = dict(zip(box, point))
        assert evaluate(e, env) == evaluate(made, env), (
            f"{e}\n -> {made}\n at { {v.name: c for v, c in env.items()} }"
        )


CASES: list[tuple[Any, str]] = [
    # a quotient with its remainder
    (x - x // 3 * 3, "x % 3"),
    (x // 3 * 6 - x * 2, "x % 3 * -2"),
    (x - (x + y) // 5 * 5, "(x + y) % 5 - y"),
    (x - x % 4, "x // 4 * 4"),
    ((x - x % 21) // 21, "x // 21"),
    (x - x % n, "x // n * n"),
    ((x + 5) // 3 - x // 3, "(x % 3 + 2) // 3 + 1"),
    (x // 3 + (x % 3 + 2) // 3, "(x + 2) // 3"),
    (x % 2 + (x + 1) % 2, "1"),
    (x // 2 + x % 2, "(x + 1) // 2"),
    ((x + 1) // 2 - x % 2, "x // 2"),
    ((x + 5) // 2 - (x - 2) // 2, "x % 2 + 3"),
    # the same, rounded towards zero
    (Div(x, const(8)) * 8 + Mod(x, const(8)), "x"),
    (x - Div(x, const(3)) * 3, "T.truncmod(x, 3)"),
    (x - Mod(x, const(4)), "T.Div(x, 4) * 4"),
    (Div(Div(x, const(2)), const(3)), "T.Div(x, 6)"),
    (Div(x * 2, const(4)), "T.Div(x, 2)"),
    (Mod(x * 8, const(16)), "T.truncmod(x, 2) * 8"),
    (Mod(Div(Mod(x, const(20)), const(2)), const(2)), "T.Div(T.truncmod(x, 4), 2)"),
    (Div(x * n * 6, n * 3), "x * 2"),
    (Mod(x * n * y, n * y), "0"),
    # minima and maxima
    (x - Min(x, y), "T.max(0, x - y)"),
    (x - Max(y, x + z), "T.min(x - y, 0 - z)"),
    (Min(x, y) + Max(y, x), "x + y"),
    (Min(x, y) * Max(x, y), "x * y"),
    (Min(x + 10, y + 1) - Min(x, y - 9), "10"),
    (Min(Max(x, y), Max(z, x)), "T.max(x, T.min(y, z))"),
    (Min(x // 4, y // 4), "T.min(x, y) // 4"),
    (Max(x * 6, y) // 2, "T.max(x * 3, y // 2)"),
    # selects with one condition
    (select(y, const(0)) + select(const(1), z), "T.Select(x < 0, y + 1, z)"),
    (select(y, z) - y, "T.Select(x < 0, 0, z - y)"),
    (Min(select(y, const(3)), select(z, const(4))), "T.Select(x < 0, T.min(y, z), 3)"),
    # comparisons
    (x * 8 + j < 16, "x < 2"),
    (x * -8 + j < 16, "-2 < x"),
    (x * 16 + y * 8 + j >= 24, "x * 2 + y >= 3"),
    (x * 8 + j - y < 16, "x * 8 + j < y + 16"),
    (Min(x, const(11)) < 10, "x < 10"),
    (Max(const(8), x) > 10, "x > 10"),
    (Div(x, const(3)) < 2, "x < 6"),
    (Div(x, const(3)) > -2, "x > -6"),
    (Div(x, const(3)) >= 1, "x >= 3"),
    (x // 4 * 4 < x - y, "y < x % 4"),
    (Or(x.equal(1), Or(y.equal(1), z.equal(1))), "x == 1 or y == 1 or z == 1"),
]


@pytest.mark.parametrize(("e", "text"), CASES, ids=[str(e) for e, _ in CASES])
def test_join(e: Any, text: str) -> None:
    ana = analyzer()
    made = ana.simplify(e)
    assert str(made) == text
    assert ana.simplify(made) is made
    used = [v for v in BOX if v.name in str(e).replace("T.", "").replace("min", "").replace("max", "")]
    whole = {v: BOX[v] for v in used}
    agree(e, made, {**whole, y: range(1, 8)} if "n * y" in str(e) else whole)


def _part(rnd: Random) -> Any:
    """A quotient, a remainder or an extreme of a few sums, so that like ones meet often."""
    d = const(rnd.choice([2, 2, 3, 4, 6]))
    e = rnd.choice([x, x, x + 1, x - 1, x + 2, x * 2, x + y, x - y, -x, x + z])
    kind = rnd.randrange(10)
    if kind < 3:
        return e // d * rnd.choice([1, d, -d])
    if kind < 5:
        return e % d
    if kind == 5:
        return Div(e, d) * rnd.choice([1, d, -d])
    if kind == 6:
        return Mod(e, d)
    if kind == 7:
        return rnd.choice([Min, Max])(e, y + rnd.randint(-1, 1))
    return select(e, y) if kind == 8 else e


def test_sums_of_like_parts_keep_their_values() -> None:
    rnd = Random(5)
    box = {x: range(-9, 10), y: range(-3, 4), z: range(-2, 3)}
    for _ in range(examples(250)):
        e = sum(
            [_part(rnd) * rnd.choice([1, 1, -1, -1, 2]) for _ in range(rnd.randint(2, 4))],
            const(rnd.randint(-2, 2)),
        )
        if rnd.random() < 0.4:
            e = rnd.choice([e // 2, e % 3, Div(e, const(2)), Min(e, _part(rnd)), e < _part(rnd) * 2])
        ana = Analyzer()
        made = ana.simplify(e)
        agree(e, made, box)
        assert ana.simplify(made) is made


def test_product_below_a_sum() -> None:
    """A bilinear form takes its extremes at the corners of the box."""
    ana = Analyzer()
    ana.bind(x, Range(1, 4096))
    ana.bind(y, Range(1, 4096))
    assert ana.can_prove(x * y < (x + y) * 2048)
    assert not ana.can_prove(x * y < (x + y) * 2047)


def test_sums_leave_their_casts_where_they_cancel() -> None:
    a, b = Var("a", "int64"), Var("b", "int64")
    ana = Analyzer()
    wide = ops.cast("int64", x + y + 1) - ops.cast("int64", x)
    assert str(ana.simplify(wide)) == 'T.Cast("int64", y) + T.int64(1)'
    narrow = ops.cast("int32", a + b + 1) - ops.cast("int32", a)
    assert ana.simplify(narrow) is narrow  # a may not fit
    ana.bind(a, Range(0, 10))
    ana.bind(b, Range(0, 10))
    assert str(ana.simplify(narrow)) == 'T.Cast("int32", b) + 1'


def test_quotient_by_a_size() -> None:
    """A number that is not negative, of no known bound, is a size and not 0; a loop's variable may be 0."""
    ana = Analyzer()
    with ana.constraint_scope(x >= 0):
        assert str(ana.simplify((x + y) // x)) == "y // x + 1"
    ana.bind(j, Range(0, 8))
    assert str(ana.simplify((j + y) // j)) == "(j + y) // j"


def test_bits_of_constants() -> None:
    ana = analyzer()
    call = ops.call_intrin
    assert str(ana.simplify(call("int32", "tir.shift_left", 1, 10))) == "1024"
    assert str(ana.simplify(call("int32", "tir.clz", const(2, "int64")))) == "62"
    assert str(ana.simplify(call("int32", "tir.bitwise_and", j // 8 + 13, 7))) == "5"
    odd = call("int32", "tir.shift_left", 1, 40)
    assert ana.simplify(odd) is odd


def test_vectors_rounded_towards_zero() -> None:
    ana = Analyzer()
    e = Div(Ramp(x * 8 + 1, const(1), 4), ops.const(8, "int32x4"))
    assert ana.simplify(e) is e  # -7 / 8 is 0 and not -1
    with ana.constraint_scope(x >= 0):
        assert str(ana.simplify(e)) == "T.Broadcast(x, 4)"


def test_reduction_of_indices_knows_its_axes() -> None:
    a, b, r = Var("a"), Var("b"), Var("r")
    axis = Axis(Range(0, 10), r, Axis.CommReduce)
    total = Reduce(
        CommReducer((a,), (b,), (a + b,), (const(0),)), (r // 10 + x - x,), (axis,), const(True), 0, ()
    )
    assert str(analyzer().simplify(total).source[0]) == "0"


def test_bounds_through_a_float() -> None:
    ana, small = Analyzer(), Var("small", "int8")
    rest = Mod(small, const(3, "int8"))
    assert ana.const_int_bound(rest) == (-2, 2)
    assert ana.const_int_bound(ops.cast("int32", ops.cast("float32", rest))) == (-2, 2)
    ana.bind(y, Range(0, 1 << 20))
    assert (
        ana.const_int_bound(ops.cast("int32", ops.cast("float16", y)))[1] > 1 << 20
    )  # rounded up, or infinite


def test_quotients_of_quotients_are_equal() -> None:
    ana, by = Analyzer(), range(1, 9)
    assert ana.can_prove_equal((x * 32 + y // 8) // 56 % 56, (x * 256 + y) // 448 % 56)
    assert not ana.can_prove_equal((x * 32 + y // 8) // 56, (x * 256 + y) // 440)
    for a, b, c in product(by, by, by):
        e, other = (x + y // a) // b % c, (x * a + y) // (a * b) % c
        assert ana.can_prove_equal(e, other)
        assert not ana.can_prove_equal(e, other + 1)
