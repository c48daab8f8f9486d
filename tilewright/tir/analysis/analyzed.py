"""Mutators with an analyzer that knows the enclosing loops and conditions."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir.expr import IntImm, IterVar, PrimExpr
from ...ir.functor import Mutator
from ...ir.ops import logical_not
from ...ir.stmt import (
    AttrStmt,
    Block,
    BlockRealize,
    For,
    IfThenElse,
    Stmt,
)


class AnalyzedMutator(Mutator):
    """A mutator whose analyzer knows the ranges of loops, the iterators of blocks and the conditions around a node."""

    def __init__(self) -> None:
        self.ana = Analyzer()

    def visit_For(self, n: For) -> Stmt:
        low, size = self.visit(n.min), self.visit(n.extent)
        with self.ana.scope():
            self.ana.bind_loop(n.loop_var, low, size)
            body = self.visit(n.body)
        return self.rebuild_for(n, low, size, body)

    def rebuild_for(self, n: For, low: PrimExpr, size: PrimExpr, body: Stmt) -> Stmt:
        return n.updated(min=low, extent=size, body=body)

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
        return n.updated(condition=condition, then_case=then_case, else_case=else_case)

    def visit_AttrStmt(self, n: AttrStmt) -> Stmt:
        value = self.visit(n.value)
        with self.ana.scope():
            if isinstance(n.node, IterVar) and n.attr_key in ("thread_extent", "virtual_thread"):
                self.ana.bind_loop(n.node.var, IntImm(n.node.var.dtype, 0), value)
            body = self.visit(n.body)
        return n.updated(value=value, body=body)

    def visit_BlockRealize(self, n: BlockRealize) -> Stmt:
        values = tuple([self.visit(v) for v in n.iter_values])
        predicate = self.visit(n.predicate)
        with self.ana.scope():
            self.ana.bind_ranges({iv.var: iv.dom for iv in n.block.iter_vars})
            block: Block = self.visit(n.block)
        return n.updated(iter_values=values, predicate=predicate, block=block)
