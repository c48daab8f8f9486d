"""Random integer expressions, conditions and bindings, from a seeded generator."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from tilewright.arith import Analyzer
from tilewright.ir import ops
from tilewright.ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Div,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Range,
    Select,
    SizeVar,
    Sub,
    Var,
    const,
)

NUMBERS = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32]
KINDS = [
    "add",
    "add",
    "sub",
    "mulc",
    "mulc",
    "mul",
    "fd",
    "fm",
    "fd",
    "fm",
    "td",
    "tm",
    "min",
    "max",
    "sel",
    "ite",
    "fdv",
    "fmv",
]
x, y, i, j = (Var(name) for name in "xyij")
n, m = SizeVar("n"), SizeVar("m")
VARS: list[Any] = [x, y, i, j, n, m]


class Generator:
    """Expressions over a fixed set of variables; `symbolic` turns divisors that are not constants on."""

    def __init__(self, seed: int, symbolic: bool = True) -> None:
        self.rnd = Random(seed)
        self.symbolic = symbolic

    def number(self, depth: int) -> PrimExpr:
        rnd = self.rnd
        if depth <= 0 or rnd.random() < 0.12:
            if rnd.random() < 0.8:
                return rnd.choice(VARS)
            return const(rnd.choice(NUMBERS) * rnd.choice([1, 1, -1]))
        kind = rnd.choice(KINDS)
        a = self.number(depth - 1)
        if kind == "mulc" or (not self.symbolic and kind in ("mul", "fdv", "fmv")):
            return a * rnd.choice([*NUMBERS, -1, -2, -3, -4])
        if kind in ("fd", "fm", "td", "tm"):
            by = const(rnd.choice(NUMBERS) * rnd.choice([1, 1, 1, 1, -1]))
            return {"fd": FloorDiv, "fm": FloorMod, "td": Div, "tm": Mod}[kind](a, by)
        if kind in ("fdv", "fmv"):
            by = rnd.choice([n, m, n + 1, n * 4, x])
            return {"fdv": FloorDiv, "fmv": FloorMod}[kind](a, by)
        b = self.number(depth - 1)
        if kind == "sel":
            return Select(self.truth(depth - 1), a, b)
        if kind == "ite":
            return ops.if_then_else(self.truth(depth - 1), a, b)
        return {"add": Add, "sub": Sub, "mul": Mul, "min": Min, "max": Max}[kind](a, b)

    def truth(self, depth: int) -> PrimExpr:
        rnd = self.rnd
        r = rnd.random()
        if depth <= 0 or r < 0.6:
            cls = rnd.choice([LT, LE, GT, GE, EQ, NE])
            return cls(self.number(depth - 1), self.number(depth - 2))
        if r < 0.9:
            return rnd.choice([And, Or])(self.truth(depth - 1), self.truth(depth - 1))
        return Not(self.truth(depth - 1))

    def bind(self, ana: Analyzer) -> Callable[[], dict[Var, int]]:
        """Bind the variables; the result draws values that obey the bindings."""
        rnd = self.rnd
        draw: dict[Var, Callable[[dict[Var, int]], int]] = {}
        for v in (x, y, i, j):
            low, size = rnd.choice([0, 0, 0, -5, 3, -16]), rnd.choice([1, 2, 4, 4, 8, 16, 7, 30])
            if rnd.random() < 0.75:
                ana.bind(v, Range.from_min_extent(low, size))
                draw[v] = lambda env, low=low, size=size: rnd.randint(low, low + size - 1)
            else:
                draw[v] = lambda env: rnd.randint(-60, 60)
        if rnd.random() < 0.4:
            ana.bind(j, Range.from_min_extent(0, n))
            draw[j] = lambda env: rnd.randint(0, max(env[n] - 1, 0))

        def values() -> dict[Var, int]:
            env: dict[Var, int] = {n: rnd.randint(1, 12), m: rnd.randint(0, 12)}
            for v, f in draw.items():
                env[v] = f(env)
            return env

        return values
