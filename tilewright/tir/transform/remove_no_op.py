"""Removal of statements without effect."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from ...ir.buffer import Buffer, BufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, IntImm, Let, PrimExpr, Var, const
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order
from ...ir.ops import logical_not
from ...ir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from ..analysis.effects import has_effect


def remove_no_op(func: PrimFunc) -> PrimFunc:
    """Remove statements without effect: empty loops and branches, unused bindings and allocations, redundant stores.

        for i in range(0):               pass
            A[i] = 1            ->
        if i < n: pass                   if not i < n: B[i] = 0
        else: B[i] = 0
        A[j] = A[j]
        x = n * 2  # not used
        # pragma_debug_skip_region
        S(i)

    A region under one of the pragmas `debug_skip_region`, `skip_dma_copy` and `skip_alu` is left out, to time the rest.

    Needs: nothing. Gives: no statement without an effect (one `0` remains if the whole body has none).
    """
    return _Remove().run(func)


def is_no_op(s: Stmt) -> bool:
    """Whether the statement is the no-op."""
    return s.__class__ is Evaluate and s.value.__class__ is IntImm


_NOTHING = Evaluate(const(0))
_LEFT_OUT: Final = frozenset({"pragma_debug_skip_region", "pragma_skip_dma_copy", "pragma_skip_alu"})


def _effect_of(*values: PrimExpr) -> Stmt:
    """A statement that evaluates the values that have an effect."""
    return seq(*[Evaluate(v) for v in values if has_effect(v)])


class _Remove(Mutator):
    """Bodies are rewritten before the expressions in front of them, and expressions only if they stay:
    so `uses` counts, when a definition is reached, the uses of its variable in what is left."""

    def __init__(self) -> None:
        self.uses: Counter[Var] = Counter()
        self.held: dict[Buffer, list[Var]] = {}

    # -- uses ------------------------------------------------------------------------------
    def visit_Var(self, n: Var) -> Var:
        self.uses[n] += 1
        return n

    def use_buffer(self, b: Buffer) -> None:
        found = self.held.get(b)
        if found is None:
            found = [
                m for e in (*b.shape, *b.strides, b.elem_offset) for m in pre_order(e) if isinstance(m, Var)
            ]
            self.held[b] = found = [b.data, *found]
        for v in found:
            self.uses[v] += 1

    def _using(self, n: Any) -> Any:
        self.use_buffer(n.buffer)
        return self.visit_children(n)

    visit_BufferLoad = visit_BufferRegion = visit_Prefetch = visit_BufferRealize = _using

    # -- definitions -----------------------------------------------------------------------
    def visit_LetStmt(self, n: LetStmt) -> Stmt:
        body = self.visit(n.body)
        if not self.uses[n.var]:
            return seq(_effect_of(n.value), body) if has_effect(n.value) else body
        return n.updated(value=self.visit(n.value), body=body)

    def visit_Let(self, n: Let) -> PrimExpr:
        body = self.visit(n.body)
        if not self.uses[n.var] and not has_effect(n.value):
            return body  # type: ignore[no-any-return]
        return n.updated(value=self.visit(n.value), body=body)

    def visit_Allocate(self, n: Allocate | AllocateConst) -> Stmt:
        body = self.visit(n.body)
        if is_no_op(body) or not self.uses[n.buffer_var]:
            return body  # type: ignore[no-any-return]
        for e in n.extents:
            self.visit(e)
        return n.updated(body=body)

    visit_AllocateConst = visit_Allocate

    def visit_DeclBuffer(self, n: DeclBuffer) -> Stmt:
        before = self.uses[n.buffer.data]
        body = self.visit(n.body)
        if is_no_op(body) or self.uses[n.buffer.data] == before:
            return body  # type: ignore[no-any-return]
        self.use_buffer(n.buffer)
        return n.updated(body=body)

    # -- control ---------------------------------------------------------------------------
    def visit_For(self, n: For) -> Stmt:
        if isinstance(n.extent, IntImm) and n.extent.value <= 0:
            return _effect_of(n.min)
        body = self.visit(n.body)
        if is_no_op(body):
            return _effect_of(n.min, n.extent)
        low, extent = self.visit(n.min), self.visit(n.extent)
        return n.updated(min=low, extent=extent, body=body)

    def visit_While(self, n: While) -> Stmt:
        if isinstance(n.condition, IntImm) and not n.condition.value:
            return _NOTHING
        return self.visit_children(n)

    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        if isinstance(n.condition, IntImm):
            chosen = n.then_case if n.condition.value else n.else_case
            return _NOTHING if chosen is None else self.visit(chosen)  # type: ignore[no-any-return]
        then = self.visit(n.then_case)
        other = None if n.else_case is None else self.visit(n.else_case)
        if other is not None and is_no_op(other):
            other = None
        if is_no_op(then):
            if other is None:
                return _effect_of(n.condition)
            return n.replace(condition=logical_not(self.visit(n.condition)), then_case=other, else_case=None)
        condition = self.visit(n.condition)
        return n.updated(condition=condition, then_case=then, else_case=other)

    def visit_AssertStmt(self, n: AssertStmt) -> Stmt:
        if isinstance(n.condition, IntImm) and n.condition.value:
            return self.visit(n.body)  # type: ignore[no-any-return]
        return self.visit_children(n)

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        if n.attr_key in _LEFT_OUT:
            return _NOTHING
        body = self.visit(n.body)
        if is_no_op(body) and not n.attr_key.startswith("async_"):
            return _effect_of(n.value)
        if isinstance(n.node, Buffer):
            self.use_buffer(n.node)
        elif isinstance(n.node, Var):
            self.uses[n.node] += 1
        return n.updated(value=self.visit(n.value), body=body)

    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        made = [self.visit(s) for s in n.seq]
        if all(a is b and not is_no_op(a) for a, b in zip(made, n.seq, strict=True)) and len(made) > 1:
            return n
        return seq(*made)

    # -- leaves ----------------------------------------------------------------------------
    def visit_leaf(self, n: Stmt) -> Stmt:
        """Count uses; only let bindings in an expression can be removed."""
        nodes = list(pre_order(n))
        if any(m.__class__ is Let for m in nodes):
            return self.visit_children(n)
        for m in nodes:
            if isinstance(m, Var):
                self.uses[m] += 1
            elif isinstance(m, (BufferLoad, BufferRegion)):
                self.use_buffer(m.buffer)
        return n

    def visit_Evaluate(self, n: Evaluate) -> Stmt:
        if not has_effect(n.value):
            return n if is_no_op(n) else _NOTHING
        return self.visit_leaf(n)

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        if _stores_itself(n):
            return _NOTHING
        self.use_buffer(n.buffer)
        return self.visit_leaf(n)


def _stores_itself(n: BufferStore) -> bool:
    value = n.value
    if value.__class__ is not BufferLoad or value.buffer is not n.buffer:  # type: ignore[attr-defined]
        return False
    where: tuple[PrimExpr, ...] = value.indices  # type: ignore[attr-defined]
    if any(has_effect(i) for i in n.indices):
        return False
    return all(structural_equal(i, j) for i, j in zip(where, n.indices, strict=True))
