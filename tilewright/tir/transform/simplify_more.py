"""Simplification with the options of `tir.Simplify`: known contents of buffers, and normal forms of conditions."""

from __future__ import annotations

from typing import Any, Final

from ...arith.and_of_ors import and_of_ors, without_implied
from ...ir.expr import And, Call, IntImm, Or, PrimExpr
from ...ir.functor import pre_order, statements
from ...ir.op import Op
from ...ir.ops import is_zero, logical_not
from ...ir.stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
)
from ..analysis.effects import has_effect
from ..analysis.knowns import Knowns
from .simplify import SimplifyMutator

# Statements whose order of execution is the order of the text. Contents of buffers are not followed in others.
_FOLLOWED: Final = (
    *(Allocate, AllocateConst, AssertStmt, AttrStmt, BufferStore, DeclBuffer),
    *(Evaluate, For, IfThenElse, LetStmt, SeqStmt, While),
)
_IN_ORDER: Final = (ForKind.SERIAL, ForKind.UNROLLED)


class SimplifyMore(SimplifyMutator):
    """The simplifier with options, each of which is one field of `tir.Simplify`."""

    def __init__(
        self,
        keep_trivial_loops: bool,
        *,
        propagate_knowns_to_prove_conditional: bool = False,
        propagate_knowns_to_simplify_expressions: bool = False,
        convert_boolean_to_and_of_ors: bool = False,
        apply_constraints_to_boolean_branches: bool = False,
        aliases: bool = False,
    ) -> None:
        super().__init__(frozenset(), keep_trivial_loops)
        self.prove = propagate_knowns_to_prove_conditional
        self.replace = propagate_knowns_to_simplify_expressions
        self.convert = convert_boolean_to_and_of_ors
        self.imply = apply_constraints_to_boolean_branches
        self.knowns = Knowns(self.ana)
        # how many statements around have no certain order, or pointers to the same memory
        self.unordered = int(aliases or not (self.prove or self.replace))

    def visit(self, n: Any) -> Any:
        if isinstance(n, PrimExpr):
            return self._expression(n)
        if isinstance(n, Stmt) and not _is_followed(n):
            return self._unordered(n)
        return super().visit(n)

    def _unordered(self, n: Stmt) -> Stmt:
        self.knowns.forget_all()
        self.unordered += 1
        made: Stmt = super().visit(n)
        self.unordered -= 1
        self.knowns.forget_all()
        return made

    # -- expressions -----------------------------------------------------------------------
    def _expression(self, e: PrimExpr) -> PrimExpr:
        made: PrimExpr = self.ana.simplify(e)
        if self.replace and self.knowns.held:
            with self.knowns.assumed(made):
                made = self.ana.simplify(made)
        if self.convert or self.imply:
            made = self._boolean(made)
        if not self.unordered and has_effect(made) and not _is_assume(made):
            self.knowns.forget_all()
        return made

    def _boolean(self, e: PrimExpr) -> PrimExpr:
        """The outermost conditions of an expression in the form that the options ask for."""
        if isinstance(e, (And, Or)):
            made = and_of_ors(self.ana, e) if self.convert else e
            return without_implied(self.ana, made)
        return e.map_children(lambda x: self._boolean(x) if isinstance(x, PrimExpr) else x)  # type: ignore[no-any-return]

    def condition(self, e: PrimExpr) -> PrimExpr:
        made = super().condition(e)
        if self.prove and self.knowns.held and not isinstance(made, IntImm):
            with self.knowns.assumed(made):
                found = self.ana.simplify(made)
            if isinstance(found, IntImm):
                return found
        return made

    # -- statements ------------------------------------------------------------------------
    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        condition = self.condition(n.condition)
        if isinstance(condition, IntImm):
            return super().visit_IfThenElse(n.updated(condition=condition))
        before = self.knowns.held
        negated = logical_not(condition)
        self._learn(condition)
        with self.ana.constraint_scope(condition):
            then_case = self.visit(n.then_case)
        then, self.knowns.held = self.knowns.held, before
        self._learn(negated)
        else_case = None
        if n.else_case is not None:
            with self.ana.constraint_scope(negated):
                else_case = self.visit(n.else_case)
        self.knowns.join(condition, then, self.knowns.held)
        return self.rebuild_if(n, condition, then_case, else_case)

    def visit_For(self, n: For) -> Stmt:
        low, size = self.visit(n.min), self.visit(n.extent)
        if self.unordered or is_zero(size) or self.runs_once(n, size):
            return super().visit_For(n)
        if any(not _is_followed(s) for s in statements(n.body)) or _calls_out(n.body):
            return self._unordered(n)
        with self.ana.scope():
            self.ana.bind_loop(n.loop_var, low, size)
            loop, untouched = self.knowns.enter(n.updated(min=low, extent=size), n.body)
            body = self.visit(n.body)
            self.knowns.leave(loop, untouched)
        return self.rebuild_for(n, low, size, body)

    def visit_While(self, n: While) -> Stmt:
        if not self.unordered:
            written = frozenset(s.buffer.data for s in statements(n.body) if isinstance(s, BufferStore))
            self.knowns.forget_memory(written)
            if any(not _is_followed(s) for s in statements(n.body)) or _calls_out(n):
                return self._unordered(n)
            kept = self.knowns.held
            made = super().visit_While(n)
            self.knowns.held = kept
            return made
        return super().visit_While(n)

    def assert_body(self, n: AssertStmt, condition: PrimExpr) -> Stmt:
        self._learn(condition)
        return super().assert_body(n, condition)

    def visit_LetStmt(self, n: LetStmt) -> Stmt:
        made = super().visit_LetStmt(n)
        self.knowns.forget_var(n.var)
        return made

    def visit_Allocate(self, n: Allocate) -> Stmt:
        made: Stmt = n.map_children(self.visit)
        self.knowns.forget_var(n.buffer_var)
        return made

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        made = super().visit_BufferStore(n)
        if not self.unordered and isinstance(made, BufferStore):
            self.knowns.store(made)
        return made

    def visit_Evaluate(self, n: Evaluate) -> Stmt:
        made: Stmt = n.map_children(self.visit)
        if isinstance(made, Evaluate) and _is_assume(made.value):
            self._learn(made.value.args[0])  # type: ignore[attr-defined]
        return made

    def _learn(self, condition: PrimExpr) -> None:
        if not self.unordered:
            self.knowns.learn(condition)


def _is_followed(n: Stmt) -> bool:
    if isinstance(n, AttrStmt):
        return n.attr_key not in ("thread_extent", "virtual_thread", "volatile_scope")
    if isinstance(n, For):
        return n.kind in _IN_ORDER
    if isinstance(n, LetStmt):
        return not n.var.dtype.is_handle  # a second pointer to the same memory
    return isinstance(n, _FOLLOWED)


def _is_assume(e: PrimExpr) -> bool:
    return isinstance(e, Call) and isinstance(e.op, Op) and e.op.short_name == "assume"


def _calls_out(n: Stmt) -> bool:
    """Whether a call in a statement may change memory."""
    calls = [e for e in pre_order(n) if isinstance(e, Call) and not _is_assume(e)]
    return any(has_effect(e) for e in calls)
