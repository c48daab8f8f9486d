"""Outlining: loop nests become functions, which can be compiled separately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.buffer import Buffer
from ...ir.dtype import INT32
from ...ir.expr import BufferLoad, Call, Var
from ...ir.function import PrimFunc
from ...ir.functor import pre_order, undefined_vars
from ...ir.module import GlobalVar
from ...ir.stmt import Allocate, BufferStore, DeclBuffer, Evaluate, For, ForKind, LetStmt, SeqStmt, Stmt
from ..analysis.measure import scope_of

_ACCESSES: frozenset[Any] = frozenset((BufferLoad, BufferStore))
_AROUND = (Allocate, DeclBuffer, LetStmt)


def outline_nests(func: PrimFunc, name: Callable[[PrimFunc], str]) -> tuple[PrimFunc, dict[str, PrimFunc]]:
    """Outline the top-level loops of a function, if there are several; `name` gives the name of the function of a loop.

        for i in parallel(8): S(i, A, B)             main:   nest0(A, B); nest1(B, C)
        for j in parallel(8): T(j, B, C)     ->      nest0:  for i in parallel(8): S(i, A, B)
                                                     nest1:  for j in parallel(8): T(j, B, C)

    A loop is not outlined if it uses thread-local memory or is inside an attribute; a serial loop also if pointers may
    alias, as `noalias` holds for arguments only.
    Needs: flat loops with planned memory. Gives: the same program in several functions; identical loops share one.
    """
    outline = _Outline(func, name)
    if len(outline.loops(func.body)) < 2:
        return func, {}
    return func.updated(body=outline.visit(func.body)), outline.made


class _Outline:
    """Walks the statements outside of loops."""

    def __init__(self, func: PrimFunc, name: Callable[[PrimFunc], str]) -> None:
        self.func, self.name = func, name
        self.made: dict[str, PrimFunc] = {}
        self.shared: set[Var] = {b.data for b in func.buffer_map.values()}  # memory that all threads see
        self.declared: set[Buffer] = set()

    def loops(self, s: Stmt) -> list[For]:
        """The loops that may be outlined."""
        if isinstance(s, For):
            apart = bool(self.func.attrs.get("tir.noalias"))
            return [s] if s.kind is ForKind.PARALLEL or (apart and s.kind is ForKind.SERIAL) else []
        if isinstance(s, SeqStmt):
            return [loop for one in s.seq for loop in self.loops(one)]
        return self.loops(s.body) if isinstance(s, _AROUND) else []

    def visit(self, s: Stmt) -> Stmt:
        if isinstance(s, For):
            return self.cut(s) if self.loops(s) else s
        if isinstance(s, SeqStmt):
            return s.map_children(self.visit)
        if not isinstance(s, _AROUND):
            return s
        if isinstance(s, Allocate) and scope_of(s.buffer_var) == "global":
            self.shared.add(s.buffer_var)
        if isinstance(s, DeclBuffer):
            self.declared.add(s.buffer)
        return s.updated(body=self.visit(s.body))

    def cut(self, loop: For) -> Stmt:
        params = undefined_vars(loop)
        if any(v not in self.shared if v.dtype.is_handle else v.dtype.is_bool for v in params):
            return loop
        body: Stmt = loop
        nodes = list(pre_order(loop))
        stores = [m.buffer for m in nodes if m.__class__ is BufferStore]
        own = {b.data: b for b in (*stores, *(m.buffer for m in nodes if m.__class__ is BufferLoad))}
        for b in dict.fromkeys(m.buffer for m in nodes if m.__class__ in _ACCESSES):
            if b in self.declared:
                body = DeclBuffer(b, body)
        changed = {b.data for b in stores} | {m for m in nodes if m.__class__ is Var}
        given = [v if v in changed else own[v].access_ptr("r", offset=0 - own[v].elem_offset) for v in params]
        nest = PrimFunc(params, body, attrs={k: v for k, v in self.func.attrs.items() if k == "tir.noalias"})
        symbol = self.name(nest)
        self.made[symbol] = nest.with_attr("global_symbol", symbol)
        return Evaluate(Call(INT32, GlobalVar(symbol), tuple(given)))
