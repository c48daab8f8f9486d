"""Checks of the data of several stores, done before the first of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.expr import BufferLoad, Call, Cast, Let, PrimExpr, Var
from ...ir.function import PrimFunc
from ...ir.functor import LeafKeeper, Mutator, pre_order
from ...ir.op import Op
from ...ir.stmt import BufferStore, LetStmt, SeqStmt, Stmt, seq

_CHECKED, _IF = Op.get("tir.checked"), Op.get("tir.if_then_else")


def check_first(func: PrimFunc) -> PrimFunc:
    """Check the indices of stores that follow each other before the first of them.

        A[0:8] = B[checked(I[0:8])]                 p0 = checked(I[0:8])
        A[8:16] = B[checked(I[8:16])]       ->      p1 = checked(I[8:16])
                                                    A[0:8] = B[p0]
                                                    A[8:16] = B[p1]

    A failing check returns from the function, so no later statement can be moved before it: without this pass, no index
    is loaded while elements of the previous vector are in flight, and each load waits for the addresses of the previous
    stores. Data under a condition stays where it is, and so does data that one of the stores may change.
    Needs: flat buffers, unrolled loops.
    """
    if not any(m.__class__ is Call and m.op is _CHECKED and m.dtype.is_vector for m in pre_order(func.body)):
        return func
    return _CheckFirst().run(func)


class _CheckFirst(LeafKeeper):
    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        parts: list[Stmt] = []
        run: list[BufferStore] = []
        for s in n.seq:
            if isinstance(s, BufferStore):
                run.append(s)
                continue
            parts += [_checked_first(run), self.visit(s)] if run else [self.visit(s)]
            run = []
        if run:
            parts.append(_checked_first(run))
        return n if all(a is b for a, b in zip(parts, n.seq)) and len(parts) == len(n.seq) else seq(*parts)


def _checked_first(stores: Sequence[BufferStore]) -> Stmt:
    """The stores inside let bindings of the checked vectors."""
    found = _Named({s.buffer.data for s in stores})
    made: Stmt = seq(*(s.map_children(found.visit) for s in stores))
    if len(stores) == 1 or not found.values:
        return seq(*stores)
    for var, value in reversed(found.values):
        made = LetStmt(var, value, made)
    return made


class _Named(Mutator):
    """Binds checked values to names."""

    def __init__(self, written: set[Var]) -> None:
        self.written = written
        self.values: list[tuple[Var, PrimExpr]] = []

    def visit_Let(self, n: Let) -> PrimExpr:
        return n

    def visit_Call(self, n: Call) -> PrimExpr:
        if n.op is _IF:
            return n
        return self.named(n) if _is_checked(n) else n.map_children(self.visit)

    def visit_Cast(self, n: Cast) -> PrimExpr:
        return self.named(n) if _is_checked(n.value) else n.map_children(self.visit)

    def named(self, n: Any) -> Any:
        if any(isinstance(m, BufferLoad) and m.buffer.data in self.written for m in pre_order(n)):
            return n
        var = Var("place", n.dtype)
        self.values.append((var, n))
        return var


def _is_checked(e: PrimExpr) -> bool:
    return isinstance(e, Call) and e.op is _CHECKED and e.dtype.is_vector
