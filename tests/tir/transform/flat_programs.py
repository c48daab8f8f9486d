"""Small flat programs made by hypothesis, and the comparison of two of them by the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.ir import ops
from tilewright.ir.buffer import Buffer, decl_buffer
from tilewright.ir.expr import FloorDiv, PrimExpr, Select, Var, const
from tilewright.ir.function import PrimFunc
from tilewright.ir.stmt import (
    Allocate,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
    seq,
)
from tilewright.tir.interpret import interpret

SIZE = 12


def allocated(buffer: Buffer, body: Any, declare: bool = True) -> Stmt:
    """`body` with memory for `buffer`."""
    inner = DeclBuffer(buffer, body) if declare else body
    return Allocate(buffer.data, buffer.dtype, buffer.shape, const(True, "bool"), inner)


class _Maker:
    """Draws statements and expressions; names and buffers in scope are kept on stacks."""

    def __init__(self, draw: Any, unrolled: bool, parallel: bool) -> None:
        self.draw, self.unrolled, self.parallel = draw, unrolled, parallel
        self.source = decl_buffer((SIZE,), "int32", "A")
        self.target = decl_buffer((SIZE,), "int32", "B")
        self.n = Var("n", "int32")
        self.scalars: list[PrimExpr] = [self.n]
        self.buffers: list[Buffer] = [self.source, self.target]
        self.pool: list[PrimExpr] = []
        self.count = 0

    def pick(self, items: Any) -> Any:
        return self.draw(st.sampled_from(list(items)))

    def name(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    # -- expressions -----------------------------------------------------------------------
    def expr(self, depth: int = 2) -> PrimExpr:
        if self.pool and self.pick((False, False, True)):
            return self.pick(self.pool)
        made = self._expr(depth)
        if made.children():
            self.pool.append(made)
        return made

    def _expr(self, depth: int) -> PrimExpr:
        if depth == 0 or self.pick((True, False, False)):
            return self.pick([*self.scalars, const(self.pick(range(-3, 8)))])
        a, b = self.expr(depth - 1), self.expr(depth - 1)
        kind = self.pick(("add", "sub", "mul", "div", "mod", "min", "select", "load", "trap"))
        if kind == "div":
            return ops.floordiv(a, const(self.pick((2, 3, 4))))
        if kind == "mod":
            return ops.floormod(a, const(self.pick((2, 3, 5))))
        if kind == "select":
            return Select(ops.less(a, b), a, b)
        if kind == "load":
            return self.load()
        if kind == "trap":  # a division that is guarded
            return ops.if_then_else(ops.not_equal(b, 0), FloorDiv(a, b), a)
        if kind == "mul":
            return ops.mul(ops.floormod(a, const(7)), const(self.pick((2, 3, -1))))
        return {"add": ops.add, "sub": ops.sub, "min": ops.min_of}[kind](a, b)

    def load(self) -> PrimExpr:
        b = self.pick(self.buffers)
        value = b[self.index(b)]
        return value if b.dtype == "int32" else ops.floormod(value.astype("int32"), const(64))

    def index(self, b: Buffer) -> PrimExpr:
        return ops.floormod(self.expr(1), b.shape[0])

    # -- statements ------------------------------------------------------------------------
    def block(self, depth: int) -> Stmt:
        return seq(*[self.stmt(depth) for _ in range(self.pick((1, 2, 3)))])

    def scoped(self, make: Callable[[], Stmt]) -> Stmt:
        held = list(self.scalars), list(self.buffers), list(self.pool)
        made = make()
        self.scalars, self.buffers, self.pool = held
        return made

    def stmt(self, depth: int) -> Stmt:
        kinds = ["store", "store", "self"]
        if depth:
            kinds += ["for", "for", "if", "let", "alloc", "alloc", "alloc"]
        return getattr(self, f"_{self.pick(kinds)}")(depth)

    def _store(self, depth: int) -> Stmt:
        b = self.pick(self.buffers[1:])
        value = ops.floormod(self.expr(), const(97))
        return BufferStore(b, value.astype(b.dtype), [self.index(b)])

    def _self(self, depth: int) -> Stmt:
        b = self.pick(self.buffers[1:])
        where = self.index(b)
        return self.pick((BufferStore(b, b[where], [where]), Evaluate(self.expr())))

    def _for(self, depth: int) -> Stmt:
        v = Var(self.name("i"))
        kind = self.pick([ForKind.SERIAL, ForKind.UNROLLED] if self.unrolled else [ForKind.SERIAL])
        extent = self.pick((0, 1, 2, 3, 3))
        low = self.pick((0, 0, 1, self.n))

        def body() -> Stmt:
            self.scalars += [v, v]
            return self.block(depth - 1)

        return For(v, low, extent, kind, self.scoped(body))

    def _if(self, depth: int) -> Stmt:
        compare = self.pick((ops.less, ops.equal, ops.greater_equal))
        condition = compare(self.expr(1), self.expr(1))
        then = self.scoped(lambda: self.block(depth - 1))
        other = self.scoped(lambda: self.block(depth - 1)) if self.pick((True, False)) else None
        return IfThenElse(condition, then, other)

    def _let(self, depth: int) -> Stmt:
        v, value = Var(self.name("x")), self.expr()

        def body() -> Stmt:
            self.scalars.append(v)
            return self.block(depth - 1)

        return LetStmt(v, value, self.scoped(body))

    def _alloc(self, depth: int) -> Stmt:
        kind = self.pick(("int32", "int32", "float32"))
        t = decl_buffer((self.pick((4, 8)),), kind, self.name("t"))
        f = Var(self.name("f"))
        start = self.pick((0, 1, 5))
        fill = For(f, 0, t.shape[0], ForKind.SERIAL, BufferStore(t, ops.add(f, start).astype(kind), [f]))

        def body() -> Stmt:
            self.buffers += [t, t]
            return self.block(depth - 1)

        declare = self.pick((True, False))
        return allocated(t, seq(fill, self.scoped(body)), declare)

    def func(self) -> PrimFunc:
        if self.parallel:
            v = Var("p")
            own = decl_buffer((SIZE,), "int32", "own")
            fill, copy = Var("z"), Var("c")
            self.buffers = [self.source, own]
            self.scalars.append(v)
            body = seq(
                For(fill, 0, SIZE, ForKind.SERIAL, BufferStore(own, 0, [fill])),
                self.block(3),
                For(copy, 0, 3, ForKind.SERIAL, BufferStore(self.target, own[copy * 4], [v * 3 + copy])),
            )
            body = For(v, 0, 4, ForKind.PARALLEL, allocated(own, body))
        else:
            body = self.block(3)
        return PrimFunc([self.source, self.target, self.n], body)


@st.composite
def flat_programs(draw: Any, unrolled: bool = False, parallel: bool = False) -> PrimFunc:
    """A function of (A, B, n): loops, conditions, bindings and memory of its own over int32 data."""
    return _Maker(draw, unrolled, parallel).func()


def results(func: PrimFunc, n: int = 3) -> np.ndarray:
    """What the program leaves in B."""
    a = np.arange(5, 5 + SIZE, dtype="int32") * 7 % 23
    b = np.arange(SIZE, dtype="int32")
    interpret(func, a, b, n)
    return b


def assert_same(before: PrimFunc, after: PrimFunc) -> None:
    """Both programs leave the same behind."""
    for n in (0, 3):
        want, got = results(before, n), results(after, n)
        assert np.array_equal(want, got), f"{before}\n{after}\n{want}\n{got}"
