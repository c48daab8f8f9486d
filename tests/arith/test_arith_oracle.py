"""z3 as the judge: whatever the analyzer says it has proved is true."""

from __future__ import annotations

from typing import Any

import pytest
from arith_generate import Generator, i, j, m, n, x, y
from how_many import examples

from tilewright.arith import Analyzer
from tilewright.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Range,
    Select,
    Sub,
    Var,
    const,
)

z3 = pytest.importorskip("z3")


def to_z3(e: Any, names: dict[Var, Any]) -> Any:
    cls = e.__class__
    if isinstance(e, Var):
        return names[e]
    if cls is IntImm:
        return z3.BoolVal(bool(e.value)) if e.dtype.is_bool else z3.IntVal(e.value)
    parts = [to_z3(c, names) for c in e.children()]
    if cls is Select or cls is Call:
        return z3.If(*parts)
    if cls is Not:
        return z3.Not(parts[0])
    a, b = parts
    if cls in (FloorDiv, FloorMod, Div, Mod):
        return _division(cls, a, e.b.value)
    return {
        Add: lambda: a + b,
        Sub: lambda: a - b,
        Mul: lambda: a * b,
        Min: lambda: z3.If(a < b, a, b),
        Max: lambda: z3.If(a > b, a, b),
        EQ: lambda: a == b,
        NE: lambda: a != b,
        LT: lambda: a < b,
        LE: lambda: a <= b,
        GT: lambda: a > b,
        GE: lambda: a >= b,
        And: lambda: z3.And(a, b),
        Or: lambda: z3.Or(a, b),
    }[cls]()


def _division(cls: type, a: Any, d: int) -> Any:
    """z3 divides so that the remainder is never negative; ours round down or towards zero."""
    if cls is FloorDiv:
        return a / d if d > 0 else (-a) / -d
    if cls is FloorMod:
        return a % d if d > 0 else -((-a) % -d)
    quotient = z3.If(a >= 0, a / abs(d), -((-a) / abs(d)))
    return (quotient if d > 0 else -quotient) if cls is Div else a - quotient * abs(d)


def test_proofs_are_true() -> None:
    proved, count = 0, examples(900)
    for seed in range(count):
        g = Generator(seed, symbolic=False)
        ana = Analyzer()
        names = {v: z3.Int(v.name) for v in (x, y, i, j, n, m)}
        known = [names[n] >= 0, names[m] >= 0]
        for v in (x, y, i):
            low, size = g.rnd.choice([0, 0, -5, 3]), g.rnd.choice([2, 4, 8, 7, 30])
            ana.bind(v, Range.from_min_extent(low, size))
            known += [names[v] >= low, names[v] < low + size]
        ana.bind(j, Range.from_min_extent(0, n))
        known += [names[j] >= 0, names[j] < names[n]]
        assumed = g.truth(2) if g.rnd.random() < 0.4 else const(True)
        cond = g.truth(3)
        with ana.constraint_scope(assumed):
            if not ana.can_prove(cond):
                continue
        proved += 1
        solver = z3.Solver()
        solver.set("timeout", 2000)
        solver.add(*known, to_z3(assumed, names), z3.Not(to_z3(cond, names)))
        assert solver.check() != z3.sat, f"seed {seed}: {cond} given {assumed}, but {solver.model()}"
    assert proved > count // 8


@pytest.mark.slow
def test_bounds_are_true() -> None:
    for seed in range(150):
        g = Generator(seed, symbolic=False)
        ana = Analyzer()
        names = {v: z3.Int(v.name) for v in (x, y, i, j, n, m)}
        known = []
        for v in (x, y, i, j, n, m):
            low, size = g.rnd.choice([0, 0, 3]), g.rnd.choice([2, 4, 8, 7, 30])
            ana.bind(v, Range.from_min_extent(low, size))
            known += [names[v] >= low, names[v] < low + size]
        e = g.number(3)
        low, high = ana.const_int_bound(e)
        solver = z3.Solver()
        solver.set("timeout", 1000)
        value = to_z3(e, names)
        solver.add(*known, z3.Or(value < low, value > high))
        assert solver.check() != z3.sat, f"seed {seed}: {e} in [{low}, {high}], but {solver.model()}"
