"""Linear equations and bounds of variables."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from arith_evaluate import evaluate

from tilewright.arith import (
    deduce_bound,
    detect_clip_bound,
    detect_linear_equation,
    solve_linear_equations,
)
from tilewright.arith.int_set import neg_inf, pos_inf
from tilewright.ir import ops
from tilewright.ir.expr import EQ, Range, SizeVar, Var, const

x, y, z = (Var(name) for name in "xyz")
n = SizeVar("n")


def test_detect_linear_equation() -> None:
    def texts(e: Any, variables: Any) -> list[str]:
        return [str(c) for c in detect_linear_equation(e, variables)]

    assert texts(x * 4 + y * n + 3, [x, y]) == ["4", "n", "3"]
    assert texts((x + y) * 2 - y, [x, y]) == ["2", "1", "0"]
    assert texts(y + 1, [x]) == ["0", "y + 1"]
    assert texts(x * y, [x]) == ["y", "0"]
    assert texts(x * y, [x, y]) == []
    assert texts(x // 2, [x]) == []
    assert texts(const(7), []) == ["7"]


def test_detect_clip_bound() -> None:
    def texts(e: Any, variables: Any) -> list[str | None]:
        return [None if b is None else str(b) for b in detect_clip_bound(e, variables)]

    assert texts(ops.all(x * 4 < 30, x >= 3), [x]) == ["3", "7"]
    assert texts(x <= y + 2, [x]) == [None, "y + 2"]
    assert texts(ops.all(x > 0, y < n), [x, y]) == ["1", None, None, "n - 1"]
    assert texts(ops.all(x >= y, x >= 2), [x]) == ["T.max(y, 2)", None]
    assert texts(x + y < 3, [x, y]) == []
    assert texts(x != 3, [x]) == []


@pytest.mark.parametrize("seed", range(40))
def test_deduce_bound_against_every_point(seed: int) -> None:
    """The deduced values are those for which the condition holds whatever the relaxed variable is."""
    rnd = Random(seed)
    k = rnd.choice([-4, -3, -1, 1, 2, 3, 5])
    left = x * k + y * rnd.choice([-2, 1, 3]) + rnd.randint(-9, 9)
    right = const(rnd.randint(-20, 20))
    cond = rnd.choice([ops.less, ops.less_equal, ops.greater, ops.greater_equal])(left, right)
    size = rnd.choice([1, 3, 4])
    found = deduce_bound(x, cond, {x: Range(-50, 50)}, {y: Range(0, size)})
    low = -50 if found.min_value is neg_inf() else evaluate(found.min_value, {})
    high = 50 if found.max_value is pos_inf() else evaluate(found.max_value, {})
    for a in range(-50, 51):
        assert (low <= a <= high) == all(evaluate(cond, {x: a, y: b}) for b in range(size))


def test_deduce_bound_refuses() -> None:
    assert deduce_bound(x, x * x < 4, {}, {}).is_nothing()
    assert deduce_bound(x, ops.not_equal(x, 4), {}, {}).is_nothing()
    assert deduce_bound(x, x * z < 4, {}, {}).is_nothing()  # the sign of z is not known
    assert str(deduce_bound(x, x * n <= y, {n: Range(1, 9)}, {}).max_value) == "y // n"
    both = deduce_bound(x, ops.all(x >= 2, x < y), {}, {})
    assert (str(both.min_value), str(both.max_value)) == ("2", "y - 1")


def test_solve() -> None:
    made = solve_linear_equations([EQ(x + y, const(20)), EQ(x - y, const(10))], [x, y])
    assert {v.name: str(e) for v, e in made.src_to_dst.items()} == {"x": "15", "y": "5"}
    assert made.dst.variables == []
    impossible = solve_linear_equations(EQ(x * 2 + y * 4, const(7)), [x, y])
    assert [str(r) for r in impossible.dst.relations] == ["T.bool(False)"]
    ranged = solve_linear_equations(EQ(x, y + 2), [x, y], {x: Range(0, 10), y: Range(0, 10)})
    assert len(ranged.dst.variables) == 1
    with pytest.raises(ValueError, match="not an equation or inequality"):
        solve_linear_equations(x + y, [x, y])


def test_solve_keeps_inequalities() -> None:
    made = solve_linear_equations([EQ(x, const(3)), x * 2 < y], [x, y])
    assert {v.name: str(e) for v, e in made.src_to_dst.items()} == {"x": "3", "y": "y"}
    assert [str(r) for r in made.dst.relations] == ["6 < y"]
    nothing = solve_linear_equations(EQ(x + y, const(20)))
    assert nothing.dst is nothing.src and not nothing.src_to_dst and not nothing.dst_to_src


def test_solutions_are_all_and_only_the_solutions() -> None:
    """Free variables over a box against brute force; the way forth and back is the identity."""
    rnd = Random(5)
    for _ in range(60):
        a, b, c = (rnd.choice([-6, -4, -3, -2, 1, 2, 3, 5, 7]) for _ in range(3))
        d = rnd.randint(-12, 12)
        equation = EQ(x * a + y * b + z * c, const(d))
        made = solve_linear_equations(equation, [x, y, z])
        points = [p for p in product(range(-6, 7), repeat=3) if a * p[0] + b * p[1] + c * p[2] == d]
        if not made.src_to_dst:
            assert not points
            continue
        assert len(made.dst.variables) == 2 and not made.dst.relations
        for p in points:
            env = dict(zip((x, y, z), p, strict=True))
            free = {v: evaluate(e, env) for v, e in made.dst_to_src.items()}
            assert {v: evaluate(e, free) for v, e in made.src_to_dst.items()} == env
        for values in product(range(-3, 4), repeat=2):
            free = dict(zip(made.dst.variables, values, strict=True))
            env = {v: evaluate(e, free) for v, e in made.src_to_dst.items()}
            assert evaluate(equation, env) == 1
