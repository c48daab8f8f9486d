"""Loop-invariant code motion of conditions and bindings."""

from __future__ import annotations

from ...ir.expr import IterVar, PrimExpr, Var
from ...ir.function import PrimFunc
from ...ir.functor import LeafKeeper, uses_var
from ...ir.stmt import (
    Allocate,
    AllocateConst,
    AttrStmt,
    DeclBuffer,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
)
from ..analysis.effects import can_trap, is_pure
from ..renew import renewed
from .remove_no_op import is_no_op

_WRAPPERS = (LetStmt, Allocate, AllocateConst, DeclBuffer)


def hoist_expression(
    func: PrimFunc, *, conditionals: bool = True, lets: bool = True, block_scope: bool = False
) -> PrimFunc:
    """Move loop-invariant conditions and bindings in front of the loop.

        for i in range(n):                     x = m * 4
            x = m * 4                          if m < 8:
            if m < 8: S(i, x)         ->           for i in range(n): S(i, x)
            else: T(i)                         else:
                                                   for i in range(n): T(i)

    A statement moves only if it is the whole body of the loop, so that nothing is duplicated, and only if it can be
    evaluated even when the trip count is 0. With `block_scope`, conditions on hardware threads move too.

    Needs: `verify_ssa`. Gives: `verify_ssa`.
    """
    return _Hoist(conditionals, lets, block_scope).run(func)


class _Hoist(LeafKeeper):
    """Inner loops first, so that a condition moves out as far as possible."""

    def __init__(self, conditionals: bool, lets: bool, block_scope: bool) -> None:
        self.conditionals, self.lets, self.block_scope = conditionals, lets, block_scope
        self.threads: set[Var] = set()

    def visit_AttrStmt(self, n: AttrStmt) -> AttrStmt:
        if isinstance(n.node, IterVar):
            self.threads.add(n.node.var)
        return self.visit_children(n)

    def visit_For(self, n: For) -> Stmt:
        made = n.updated(body=self.visit(n.body))
        if n.kind is ForKind.THREAD_BINDING:
            return made
        return self.out_of(made)

    def out_of(self, loop: For) -> Stmt:
        """The loop with the leading statements of its body moved in front of it, where that is allowed."""
        body = loop.body
        if self.lets and isinstance(body, LetStmt) and self.invariant(body.value, {loop.loop_var}):
            return body.replace(body=self.out_of(loop.replace(body=body.body)))
        if not self.conditionals:
            return loop
        opening: list[Stmt] = []
        bound = {loop.loop_var}
        while isinstance(body, _WRAPPERS):
            if isinstance(body, LetStmt):
                if not is_pure(body.value):
                    return loop
                bound.add(body.var)
            opening.append(body)
            body = body.body
        if not isinstance(body, IfThenElse) or not self.invariant(body.condition, bound):
            return loop
        if not self.block_scope and uses_var(body.condition, lambda v: v in self.threads):
            return loop
        then_case = self.out_of(_around(loop, opening, body.then_case))
        other = None
        if body.else_case is not None and not is_no_op(body.else_case):
            other = self.out_of(_copy(_around(loop, opening, body.else_case)))
        return body.replace(then_case=then_case, else_case=other)

    def invariant(self, e: PrimExpr, bound: set[Var]) -> bool:
        return is_pure(e) and not can_trap(e) and not uses_var(e, lambda v: v in bound)


def _around(loop: For, opening: list[Stmt], body: Stmt) -> For:
    for s in reversed(opening):
        body = s.replace(body=body)
    return loop.replace(body=body)


def _copy(loop: For) -> For:
    made = renewed(loop)
    assert isinstance(made, For)
    return made
