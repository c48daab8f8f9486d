"""Simplification of a whole program."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ...arith import Analyzer
from ...ir.expr import FloatImm, IntImm, IterVar, PrimExpr, StringImm, Var
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, substitute
from ...ir.ops import is_one, is_zero, logical_not
from ...ir.stmt import (
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
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

__all__ = ["AnalyzedMutator", "simplify"]


def simplify(func: PrimFunc, *, done: Set[Stmt] = frozenset(), keep_trivial_loops: bool = False) -> PrimFunc:
    """Bring every expression to its normal form, knowing the loops and conditions around it.

        for i in range(8):
            if i < 10:                       for i in range(8):
                A[i * 4 // 2] = 0     ->         A[i * 2] = 0

    The statements `done`, which a pass before has left as they were, are in normal form already.
    Gives: no condition that is known, no loop of extent 0 and, unless `keep_trivial_loops`, no serial loop of extent 1.
    """
    return _Simplify(done, keep_trivial_loops).run(func)


class AnalyzedMutator(Mutator):
    """A rewrite that knows the ranges of loops, the iterators of blocks and the conditions around it."""

    def __init__(self) -> None:
        self.ana = Analyzer()

    def visit_For(self, n: For) -> Stmt:
        low, size = self.visit(n.min), self.visit(n.extent)
        with self.ana.scope():
            self.ana.bind_loop(n.loop_var, low, size)
            body = self.visit(n.body)
        return self.rebuild_for(n, low, size, body)

    def rebuild_for(self, n: For, low: PrimExpr, size: PrimExpr, body: Stmt) -> Stmt:
        if low is n.min and size is n.extent and body is n.body:
            return n
        return n.replace(min=low, extent=size, body=body)

    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        condition = self.visit(n.condition)
        with self.ana.constraint_scope(condition):
            then_case = self.visit(n.then_case)
        else_case = None
        if n.else_case is not None:
            with self.ana.constraint_scope(logical_not(condition)):
                else_case = self.visit(n.else_case)
        return self.rebuild_if(n, condition, then_case, else_case)

    def rebuild_if(self, n: IfThenElse, condition: PrimExpr, then_case: Stmt, else_case: Any) -> Stmt:
        if condition is n.condition and then_case is n.then_case and else_case is n.else_case:
            return n
        return IfThenElse(condition, then_case, else_case)

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        value = self.visit(n.value)
        with self.ana.scope():
            if isinstance(n.node, IterVar) and n.attr_key in ("thread_extent", "virtual_thread"):
                self.ana.bind_loop(n.node.var, IntImm(n.node.var.dtype, 0), value)
            body = self.visit(n.body)
        return n if value is n.value and body is n.body else n.replace(value=value, body=body)

    def visit_BlockRealize(self, n: BlockRealize) -> Stmt:
        values = tuple([self.visit(v) for v in n.iter_values])
        predicate = self.visit(n.predicate)
        with self.ana.scope():
            for iv in n.block.iter_vars:
                self.ana.bind_loop(iv.var, iv.dom.min, iv.dom.extent)
            block: Block = self.visit(n.block)
        same = all(a is b for a, b in zip(values, n.iter_values, strict=True))
        if same and predicate is n.predicate and block is n.block:
            return n
        return BlockRealize(values, predicate, block, span=n.span)


class _Simplify(AnalyzedMutator):
    def __init__(self, done: Set[Stmt], keep_trivial_loops: bool) -> None:
        super().__init__()
        self.done, self.keep_trivial_loops = done, keep_trivial_loops

    def visit(self, n: Any) -> Any:
        if isinstance(n, PrimExpr):
            return self.ana.simplify(n)
        return n if n in self.done else super().visit(n)

    def visit_For(self, n: For) -> Stmt:
        low, size = self.visit(n.min), self.visit(n.extent)
        if is_zero(size):
            return Evaluate(IntImm("int32", 0))
        once = is_one(size) and not self.keep_trivial_loops
        if once and n.kind not in (ForKind.THREAD_BINDING, ForKind.PARALLEL) and not n.annotations:
            return self.visit(substitute(n.body, {n.loop_var: low}))
        with self.ana.scope():
            self.ana.bind_loop(n.loop_var, low, size)
            body = self.visit(n.body)
        return self.rebuild_for(n, low, size, body)

    def visit_IfThenElse(self, n: IfThenElse) -> Stmt:
        condition = self.visit(n.condition)
        if isinstance(condition, IntImm):
            if condition.value:
                return self.visit(n.then_case)
            return Evaluate(IntImm("int32", 0)) if n.else_case is None else self.visit(n.else_case)
        return super().visit_IfThenElse(n)

    def visit_AssertStmt(self, n: AssertStmt) -> Stmt:
        condition = self.visit(n.condition)
        with self.ana.constraint_scope(condition):
            body = self.visit(n.body)
        if is_one(condition):
            return body
        return n if condition is n.condition and body is n.body else n.replace(condition=condition, body=body)

    def visit_LetStmt(self, n: LetStmt) -> Stmt:
        value = self.visit(n.value)
        if isinstance(value, (IntImm, FloatImm, StringImm, Var)):
            return self.visit(substitute(n.body, {n.var: value}))
        with self.ana.scope():
            if value.dtype.is_int and value.dtype.lanes == 1:
                bound = self.ana.const_int_bound(value)
                if bound.min_value >= 0:
                    self.ana.update(n.var, bound)
            body = self.visit(n.body)
        return n if value is n.value and body is n.body else n.replace(value=value, body=body)

    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        parts = [self.visit(s) for s in n.seq]
        if all(a is b for a, b in zip(parts, n.seq, strict=True)):
            return n
        return seq(*parts)

    def visit_While(self, n: While) -> Stmt:
        # The condition changes while the loop runs, so only its form may be simplified.
        return n.map_children(self.visit)
