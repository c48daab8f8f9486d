"""Random expressions evaluated before and after: simplification, bounds, residues and sets are sound."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from arith_evaluate import evaluate
from arith_generate import Generator, i, j, m, n, x, y
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.arith import Analyzer, eval_set, relax_region
from tilewright.arith.int_set import neg_inf, pos_inf
from tilewright.ir.expr import Broadcast, Ramp, Range, const
from tilewright.tir import all as all_of


def points(g: Generator, values: Any, e: Any, assumed: Any, count: int = 40) -> list[Any]:
    """Points within the bindings where the assumption holds, with the value of the expression there."""
    out = []
    for _ in range(count):
        env = values()
        try:
            if evaluate(assumed, env):
                out.append((env, evaluate(e, env)))
        except ZeroDivisionError:
            continue
    return out


def check(seed: int, condition: bool, symbolic: bool = True) -> int:
    g = Generator(seed, symbolic)
    ana = Analyzer()
    values = g.bind(ana)
    e = g.truth(4) if condition else g.number(4)
    assumed = g.truth(2) if g.rnd.random() < 0.4 else const(True)
    found = points(g, values, e, assumed)
    with ana.constraint_scope(assumed):
        made = ana.simplify(e)
        again = ana.simplify(made)
        low, high = ana.const_int_bound(e)
        coeff, base = (1, 0) if condition else ana.modular_set(e)
    for env, want in found:
        where = f"seed {seed}: {e}\n -> {made}\n given {assumed} at { {v.name: c for v, c in env.items()} }"
        assert evaluate(made, env) == want, where
        assert evaluate(again, env) == want, where
        assert low <= want <= high, where
        assert (want - base) % coeff == 0 if coeff else want == base, where
    return len(found)


@settings(max_examples=examples(500), derandomize=True, deadline=None)
@given(st.integers(0, 2**40), st.booleans())
def test_simplify_bounds_and_residues(seed: int, condition: bool) -> None:
    check(seed, condition)


@pytest.mark.parametrize("block", [0, *[pytest.param(b, marks=pytest.mark.slow) for b in (1, 2, 3)]])
def test_thousands_of_expressions(block: int) -> None:
    count = examples(700)
    seeds = range(block * count, block * count + count)
    reached = sum(check(seed, seed % 3 == 0, seed % 2 == 0) for seed in seeds)
    assert reached > count * 15  # most expressions were looked at in many points


def test_nothing_known_is_undone_by_scopes() -> None:
    """A scope leaves the analyzer as it found it, whatever was bound and asked inside."""
    for seed in range(60):
        g = Generator(seed)
        ana = Analyzer()
        g.bind(ana)
        e, c = g.number(3), g.truth(3)
        before = str(ana.simplify(e)), ana.const_int_bound(e)
        with ana.constraint_scope(c):
            ana.simplify(e)
            with ana.scope():
                ana.bind(x, Range(0, 3))
                ana.bind(y, x + 1)
                ana.simplify(e)
        assert (str(ana.simplify(e)), ana.const_int_bound(e)) == before


def test_simplify_settles() -> None:
    """What was simplified once comes back as the same object."""
    changed = 0
    for seed in range(400):
        g = Generator(seed)
        ana = Analyzer()
        g.bind(ana)
        once = ana.simplify(g.number(3))
        if ana.simplify(once) is not once:
            changed += 1
    assert changed == 0


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(st.integers(0, 2**40))
def test_eval_set_holds_all_values(seed: int) -> None:
    g = Generator(seed)
    e = g.number(3)
    ana = Analyzer()
    doms = {i: Range.from_min_extent(g.rnd.randint(-4, 4), g.rnd.choice([1, 3, 4, 8]))}
    doms[j] = Range.from_min_extent(i * 2, 5) if g.rnd.random() < 0.3 else Range(0, g.rnd.choice([2, 4, 7]))
    if g.rnd.random() < 0.3:
        doms[j] = Range(0, n)
    made = eval_set(e, doms, ana)
    for _ in range(40):
        env = {v: g.rnd.randint(-20, 20) for v in (x, y)}
        env |= {v: g.rnd.randint(1, 9) for v in (n, m)}
        for v in (i, j):
            low = evaluate(doms[v].min, env)
            env[v] = g.rnd.randint(low, low + evaluate(doms[v].extent, env) - 1)
        try:
            value = evaluate(e, env)
            low = -(10**9) if made.min_value is neg_inf() else evaluate(made.min_value, env)
            high = 10**9 if made.max_value is pos_inf() else evaluate(made.max_value, env)
        except ZeroDivisionError:
            continue
        assert low <= value <= high, f"{e} in {made} at {env}"


@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(st.integers(0, 2**40))
def test_regions_hold_all_that_conditions_allow(seed: int) -> None:
    """Boxes of digits of sums, cut off by conditions on other sums of the same variables, against every point."""
    rnd = Generator(seed, False).rnd
    vs = [i, j, m]
    doms = {v: rnd.randint(1, 6) for v in vs}

    def total() -> Any:
        return sum((v * rnd.choice((0, 1, 1, 2, 4, 6, -1)) for v in vs), start=const(rnd.randint(-3, 3)))

    e, facts = total(), [total() for _ in range(rnd.randint(1, 3))]
    for _ in range(rnd.randint(0, 2)):
        by = rnd.choice((2, 3, 4, 9))
        e = rnd.choice((e // by, e % by, e // by * by + total()))
    conditions = [
        f < rnd.randint(0, 12) if rnd.random() < 0.7 else f // 2 >= rnd.randint(-4, 4) for f in facts
    ]
    predicate = all_of(*conditions)
    (made,) = relax_region(
        [Range.from_min_extent(e, 1)], {v: Range(0, k) for v, k in doms.items()}, predicate
    )
    for at in product(*(range(doms[v]) for v in vs)):
        env = dict(zip(vs, at, strict=True))
        if evaluate(predicate, env):
            value = evaluate(e, env)
            where = (
                f"seed {seed}: {e} where {predicate} is not in [{made.min_value}, {made.max_value}] at {at}"
            )
            assert evaluate(made.min_value, env) <= value <= evaluate(made.max_value, env), where


def test_vectors_lane_by_lane() -> None:
    for seed in range(400):
        g = Generator(seed)
        ana = Analyzer()
        values = g.bind(ana)
        lanes = g.rnd.choice([2, 4, 8])

        def vector(depth: int, g: Generator = g, lanes: int = lanes) -> Any:
            if depth == 0 or g.rnd.random() < 0.2:
                if g.rnd.random() < 0.5:
                    return Ramp(g.number(1), g.rnd.choice([1, 1, 2, 4, -1]), lanes)
                return Broadcast(g.number(1), lanes)
            a = vector(depth - 1)
            kind = g.rnd.choice(["add", "sub", "mul", "div", "mod"])
            by = Broadcast(const(g.rnd.choice([1, 2, 4, 8, 16])), lanes)
            if kind in ("mul", "div", "mod"):
                return {"mul": a * by, "div": a // by, "mod": a % by}[kind]
            b = vector(depth - 1)
            return a + b if kind == "add" else a - b

        e = vector(3)
        if g.rnd.random() < 0.3:
            e = e < vector(1)
        made = ana.simplify(e)
        for env, want in points(g, values, e, const(True), 15):
            assert evaluate(made, env) == want, f"seed {seed}: {e} -> {made}"
