"""Simplification of a whole program."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, FloatImm, IntImm, PrimExpr, StringImm, Var
from ...ir.function import PrimFunc
from ...ir.functor import substitute, written_out
from ...ir.ops import is_one, is_zero
from ...ir.stmt import (
    AssertStmt,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from ..analysis.analyzed import AnalyzedMutator
from ..analysis.effects import is_pure


def simplify(
    func: PrimFunc, *, done: Set[Stmt] = frozenset(), keep_trivial_loops: bool = False, **more: bool
) -> PrimFunc:
    """Bring every expression to its normal form, knowing the loops and conditions around it.

        for i in range(8):
            if i < 10:                       for i in range(8):
                A[i * 4 // 2] = 0     ->         A[i * 2] = 0

    The statements `done`, which the previous pass left unchanged, are in normal form already.
    Gives: no condition with a known value, no store of an element to its own place, no loop of extent 0 and, unless
    `keep_trivial_loops`, no serial loop of extent 1. `more` are the fields of the option `tir.Simplify` that act.
    """
    if any(more.values()):
        from .simplify_more import SimplifyMore

        apart = bool(func.attrs.get("tir.noalias", True))
        return SimplifyMore(keep_trivial_loops, aliases=not apart, **more).run(func)
    return SimplifyMutator(done, keep_trivial_loops).run(func)


class SimplifyMutator(AnalyzedMutator):
    """The simplifier, with nothing but the loops and conditions around."""

    def __init__(self, done: Set[Stmt], keep_trivial_loops: bool) -> None:
        super().__init__()
        self.done, self.keep_trivial_loops = done, keep_trivial_loops
        self.truths: dict[Var, PrimExpr] = {}  # variables around that stand for a condition

    def run(self, func: PrimFunc) -> PrimFunc:
        for buffer in func.buffer_map.values():
            for size in buffer.shape:
                if size.__class__ is not IntImm:
                    self.ana.assume(size >= 0, reads=False)
        return super().run(func)

    def visit(self, n: Any) -> Any:
        if isinstance(n, PrimExpr):
            return self.ana.simplify(n)
        return n if n in self.done else super().visit(n)

    def visit_For(self, n: For) -> Stmt:
        low, size = self.visit(n.min), self.visit(n.extent)
        if is_zero(size):
            return Evaluate(IntImm("int32", 0))
        if self.runs_once(n, size):
            return self.visit(substitute(n.body, {n.loop_var: low}))
        return super().visit_For(n)

    def runs_once(self, n: For, size: PrimExpr) -> bool:
        """Whether a loop is to be replaced by its body."""
        once = is_one(size) and not self.keep_trivial_loops
        return once and n.kind not in (ForKind.THREAD_BINDING, ForKind.PARALLEL) and not n.annotations

    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        condition = self.condition(n.condition)
        if isinstance(condition, IntImm):
            if condition.value:
                return self.visit(n.then_case)
            return Evaluate(IntImm("int32", 0)) if n.else_case is None else self.visit(n.else_case)
        return super().visit_IfThenElse(n)

    def condition(self, e: PrimExpr) -> PrimExpr:
        """The condition of a statement, with its value if the definitions of its variables prove it."""
        made: PrimExpr = self.visit(e)
        if self.truths and not isinstance(made, IntImm):
            found = self.ana.simplify(written_out(made, self.truths))
            return found if isinstance(found, IntImm) else made
        return made

    def visit_AssertStmt(self, n: AssertStmt) -> Stmt:
        condition = self.visit(n.condition)
        body = self.assert_body(n, condition)
        if is_one(condition):
            return body
        return n.updated(condition=condition, body=body)

    def assert_body(self, n: AssertStmt, condition: PrimExpr) -> Stmt:
        with self.ana.constraint_scope(condition):
            body: Stmt = self.visit(n.body)
        return body

    def visit_LetStmt(self, n: LetStmt) -> Stmt:
        value = self.visit(n.value)
        if isinstance(value, (IntImm, FloatImm, StringImm, Var)):
            return self.visit(substitute(n.body, {n.var: value}))
        with self.ana.scope():
            if value.dtype.is_int and value.dtype.lanes == 1:
                bound = self.ana.const_int_bound(value)
                if bound.min_value >= 0:
                    self.ana.update(n.var, bound)
            elif value.dtype.is_bool and value.dtype.lanes == 1 and is_pure(value):
                self.truths[n.var] = value
            body = self.visit(n.body)
        self.truths.pop(n.var, None)
        return n.updated(value=value, body=body)

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        made: BufferStore = n.map_children(self.visit)
        value = made.value
        if isinstance(value, BufferLoad) and value.buffer is made.buffer and value.predicate is None:
            if all(map(structural_equal, value.indices, made.indices)):  # it stores what is there
                return Evaluate(IntImm("int32", 0))
        return made

    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        parts = [self.visit(s) for s in n.seq]
        if all(a is b for a, b in zip(parts, n.seq, strict=True)):
            return n
        return seq(*parts)

    def visit_While(self, n: While) -> Stmt:
        # The condition changes while the loop runs, so only its form may be simplified.
        return n.map_children(self.visit)
