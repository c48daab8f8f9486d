"""A sparse check for overflow: integers of a lowered program, exactly, at a few iterations of each loop.

A program over 2^31 elements is too long for the interpreter. But its index arithmetic can be evaluated with Python's
integers at chosen iterations (first, last, some between), and each value compared with the type that should hold it. What comes
out of memory is unknown; sums and products that are an address are exact in every backend.
"""

from __future__ import annotations

import random
from typing import Any

from tilewright.ir import expr as E
from tilewright.ir import stmt as S
from tilewright.ir.expr import PrimExpr, Var
from tilewright.ir.function import PrimFunc

_ADDRESS = (E.Add, E.Sub, E.Mul)


class Overflow(AssertionError):
    """A value that its type does not hold, or an address outside of its buffer."""


def check(func: PrimFunc, *, seed: int = 0, samples: int = 60, **sizes: int) -> None:
    """Raise Overflow if an index does not fit its type, or lies outside, at one of some sampled iterations."""
    for n in range(samples):
        _Sample(func, random.Random(f"{seed}:{n}"), sizes, extremes=n < 2 * samples // 3).stmt(func.body)


class _Sample:
    """One walk through a program: one iteration of each loop. Vectors are their first and last lanes."""

    def __init__(self, func: PrimFunc, rng: random.Random, sizes: dict[str, int], extremes: bool):
        self.rng, self.sizes, self.extremes = rng, sizes, extremes
        self.env: dict[Var, Any] = {}

    # -- statements ------------------------------------------------------------------------------
    def stmt(self, s: Any) -> None:
        match s:
            case S.SeqStmt():
                for part in s.seq:
                    self.stmt(part)
            case S.For():
                self.loop(s.loop_var, self.value(s.min), self.value(s.extent), s.body)
            case S.AttrStmt() if isinstance(s.node, E.IterVar):
                self.loop(s.node.var, 0, self.value(s.value), s.body)
            case S.LetStmt():
                self.env[s.var] = self.address(s.value)  # a common part of addresses
                self.stmt(s.body)
            case S.IfThenElse():
                holds = self.value(s.condition)
                if holds is None or holds:
                    self.stmt(s.then_case)
                if s.else_case is not None and not holds:
                    self.stmt(s.else_case)
            case S.BufferStore():
                if self.wanted(s):
                    self.value(s.value)
                    self.access(s)
            case S.Evaluate():
                self.value(s.value)
            case S.AssertStmt() | S.While():
                self.value(s.condition)
                self.stmt(s.body)
            case _:
                for c in s.children():
                    self.stmt(c) if isinstance(c, S.Stmt) else self.value(c)

    def loop(self, var: Var, low: Any, extent: Any, body: Any) -> None:
        if low is None or extent is None:
            self.env[var] = None
        elif extent <= 0:
            return
        else:
            last = low + extent - 1
            some = self.rng.choice((low, last)) if self.extremes else self.rng.randint(low, last)
            self.env[var] = some
            self.fits(var, some)
        self.stmt(body)

    def wanted(self, n: Any) -> bool:
        """Whether a lane of a masked access is active, as far as is known."""
        if n.predicate is None:
            return True
        mask = self.value(n.predicate)
        return mask is None or any(x is None or x for x in (mask if isinstance(mask, tuple) else (mask,)))

    def access(self, n: Any) -> None:
        (index,) = n.indices
        where = self.address(index)
        mask = None if n.predicate is None else self.value(n.predicate)
        size = self.address(n.buffer.shape[0])  # a size is not computed, but known
        lanes = where if isinstance(where, tuple) else (where,)
        for k, at in enumerate(lanes):
            active = mask is None or (mask[k] if isinstance(mask, tuple) else mask)
            if active and None not in (at, size) and n.buffer.scope_name == "global" and not 0 <= at < size:
                raise Overflow(f"{n.buffer.name}[{at}] of {size} elements: {n}")

    # -- expressions -----------------------------------------------------------------------------
    def address(self, e: PrimExpr) -> Any:
        if isinstance(e, _ADDRESS) and e.dtype.lanes == 1:
            return _each(_OPS[e.__class__], self.address(e.a), self.address(e.b))
        if isinstance(e, E.Ramp):
            base, stride = self.address(e.base), self.address(e.stride)
            return None if base is None or stride is None else (base, base + stride * (e.lanes - 1))
        return self.value(e)

    def fits(self, e: PrimExpr, value: Any) -> Any:
        kind = e.dtype.element
        if kind.is_integral:
            for x in value if isinstance(value, tuple) else (value,):
                if x is not None and not kind.low <= x <= kind.high:
                    raise Overflow(f"{x} is no {kind}: {e}")
        return value

    def value(self, e: Any) -> Any:
        """The exact value, or None if memory decides."""
        match e:
            case E.IntImm():
                return e.value
            case Var():
                if e in self.env:
                    return self.env[e]
                return self.sizes.get(e.name) if e.dtype.is_int else None
            case E.BufferLoad():
                if self.wanted(e):
                    self.access(e)
                return None
            case E.Ramp():
                base, stride = self.value(e.base), self.value(e.stride)
                made = None if None in (base, stride) else (base, base + stride * (e.lanes - 1))
                return self.fits(e, made)
            case E.Broadcast():
                held = self.value(e.value)
                return held if held is None or isinstance(held, tuple) else (held, held)
            case E.And() | E.Or():
                return self.logic(e)
            case E.Not():
                return _each(lambda x, _: not x, self.value(e.a), 0)
            case E.Select():
                return self.chosen(self.value(e.condition), e.true_value, e.false_value)
            case E.Cast():
                held = self.value(e.value)
                known = e.dtype.is_integral and e.value.dtype.is_integral
                return self.fits(e, held) if known else None
            case E.Let():
                self.env[e.var] = self.value(e.value)
                return self.value(e.body)
            case E.Call():
                return self.call(e)
            case E.BinaryOp() | E.CmpOp():
                a, b = self.value(e.a), self.value(e.b)
                if not e.a.dtype.is_integral or a is None or b is None:
                    return None
                return self.fits(e, _each(_OPS[e.__class__], a, b))
        for c in e.children():
            self.value(c)
        return None

    def logic(self, e: Any) -> Any:
        a = self.value(e.a)
        stop = isinstance(e, E.Or)
        if a is not None and not isinstance(a, tuple) and bool(a) is stop:
            return stop
        b = self.value(e.b)
        return _each((lambda x, y: x or y) if stop else (lambda x, y: x and y), a, b)

    def chosen(self, holds: Any, a: PrimExpr, b: PrimExpr) -> Any:
        if holds is None or isinstance(holds, tuple):
            self.value(a), self.value(b)
            return None
        return self.value(a if holds else b)

    def call(self, e: E.Call) -> Any:
        name = getattr(e.op, "name", "")
        if name == "tir.if_then_else":
            return self.chosen(self.value(e.args[0]), e.args[1], e.args[2])
        if name == "tir.likely":
            return self.value(e.args[0])
        if name == "tir.address_of":  # a prefetch may ask for what lies behind the end
            self.address(e.args[0].indices[0])
            return None
        if name == "tir.tvm_access_ptr":
            self.address(e.args[2])
            return None
        copied = name == "tir.ptx_cp_async"  # a predicate says whether the address that it takes is one
        for i, a in enumerate(e.args):
            if isinstance(a, PrimExpr):
                self.address(a) if copied and i in (2, 4) else self.value(a)
        return None


def _each(f: Any, a: Any, b: Any) -> Any:
    if a is None or b is None:
        return None
    if isinstance(a, tuple) or isinstance(b, tuple):
        x = a if isinstance(a, tuple) else (a, a)
        y = b if isinstance(b, tuple) else (b, b)
        return tuple(_each(f, p, q) for p, q in zip(x, y, strict=True))
    return f(a, b)


def _truncated(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


_OPS: dict[type, Any] = {
    E.Add: lambda a, b: a + b,
    E.Sub: lambda a, b: a - b,
    E.Mul: lambda a, b: a * b,
    E.Div: _truncated,
    E.Mod: lambda a, b: a - _truncated(a, b) * b,
    E.FloorDiv: lambda a, b: a // b,
    E.FloorMod: lambda a, b: a % b,
    E.Min: min,
    E.Max: max,
    E.EQ: lambda a, b: a == b,
    E.NE: lambda a, b: a != b,
    E.LT: lambda a, b: a < b,
    E.LE: lambda a, b: a <= b,
    E.GT: lambda a, b: a > b,
    E.GE: lambda a, b: a >= b,
}
