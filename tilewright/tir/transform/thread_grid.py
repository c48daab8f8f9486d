"""The threads of a block, enumerated: the elements that each of them accesses."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import product
from operator import xor
from typing import Any

from ...ir.expr import (
    Add,
    Call,
    FloorDiv,
    FloorMod,
    IntImm,
    Not,
    PrimExpr,
    Sub,
    Var,
    const,
)
from ...ir.functor import pre_order
from ...ir.op import Op
from ...ir.ops import add, sub
from ..analysis.combiner import ON_NUMBERS

Between = tuple[float, float, int, range]  # minimum, maximum, step, and remainders modulo the step
_LIKELY, _XOR = Op.get("tir.likely"), Op.get("tir.bitwise_xor")
_MOST = 2048  # threads that are enumerated
_OPS: dict[type, Callable[[int, int], int]] = {
    **ON_NUMBERS,
    FloorDiv: lambda a, b: a // b if b else 0,
    FloorMod: lambda a, b: a % b if b else 0,
}


class ThreadGrid:
    """The thread axes of a kernel with their extents, and values of expressions at each thread."""

    def __init__(self, axes: Mapping[Var, int | None]) -> None:
        self.axes = axes
        self.clear()

    def clear(self) -> None:
        """Clear the cached values: the axes have changed."""
        self.memo: dict[PrimExpr, list[int] | None] = {}
        self.points: dict[Var, list[int]] | None = None

    def tell_apart(self, a: Any, b: Any, between: Callable[[Any, Any], Between]) -> bool:
        """Whether no two different threads access one element, one in access `a` and the other in `b`.

        `between` is the difference of the thread-independent parts of the indices: bounds, and steps.
        """
        x, y = self.split(a.index), self.split(b.index)
        if x is None or y is None:
            return False
        low, high, step, rest = between(x[1], y[1])
        alike: dict[int, list[tuple[int, int]]] = {}
        for v, t in sorted((v, t) for t, v in enumerate(x[0]) if self.enters(t, a.conditions)):
            alike.setdefault(v % step, []).append((v, t))
        for t, v in enumerate(y[0]):
            if not self.enters(t, b.conditions):
                continue
            # They conflict if v + d == w for some d in low … high that is congruent to one of `rest` modulo the step.
            for mine in (alike.get(n, []) for n in {(v + r) % step for r in rest}):
                for w, other in mine[bisect_left(mine, (v + low, -1)) :]:
                    if w > v + high:
                        break
                    if other != t:
                        return False
        return True

    def enters(self, thread: int, conditions: tuple[PrimExpr, ...]) -> bool:
        """Whether all conditions may hold in some thread."""
        for c in conditions:
            values = self.values(c)
            if values is not None and not values[thread]:
                return False
        return True

    def split(self, index: PrimExpr) -> tuple[list[int], PrimExpr] | None:
        """The index as a value per thread plus a thread-independent part, if it is such a sum."""
        own: PrimExpr = const(0, index.dtype)
        rest: PrimExpr = const(0, index.dtype)
        stack = [(index, 1)]
        while stack:
            e, sign = stack.pop()
            if isinstance(e, (Add, Sub)):
                stack += [(e.a, sign), (e.b, sign if isinstance(e, Add) else -sign)]
                continue
            names = [m for m in pre_order(e) if isinstance(m, Var)]
            if not any(v in self.axes for v in names):
                rest = (add if sign > 0 else sub)(rest, e)
            elif all(v in self.axes for v in names):
                own = (add if sign > 0 else sub)(own, e)
            else:
                return None
        values = self.values(own)
        return None if values is None else (values, rest)

    def values(self, e: PrimExpr) -> list[int] | None:
        """The value of an expression in each thread, or None if unknown."""
        if e not in self.memo:
            self.memo[e] = self.compute(e)
        return self.memo[e]

    def grid(self) -> dict[Var, list[int]] | None:
        if self.points is None:
            total = 1
            for n in self.axes.values():
                total *= _MOST + 1 if n is None else n
            if total > _MOST:
                return None
            all_points = list(product(*[range(n or 1) for n in self.axes.values()]))
            self.points = {v: [p[i] for p in all_points] for i, v in enumerate(self.axes)}
        return self.points

    def compute(self, e: PrimExpr) -> list[int] | None:
        points = self.grid()
        if points is None:
            return None
        if isinstance(e, Var):
            return points.get(e)
        if isinstance(e, IntImm):
            return [e.value] * len(next(iter(points.values())))
        if isinstance(e, Not):
            inner = self.values(e.a)
            return None if inner is None else [not v for v in inner]
        if isinstance(e, Call) and e.op is _LIKELY:
            return self.values(e.args[0])
        if isinstance(e, Call) and e.op is _XOR:
            sides, op = e.args, xor
        elif e.__class__ in _OPS:
            sides, op = (e.a, e.b), _OPS[e.__class__]  # type: ignore[attr-defined]
        else:
            return None
        a, b = self.values(sides[0]), self.values(sides[1])
        return None if a is None or b is None else [op(x, y) for x, y in zip(a, b, strict=True)]
