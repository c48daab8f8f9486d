"""Programs without their assertions."""

from __future__ import annotations

from ...ir.function import PrimFunc
from ...ir.functor import Mutator
from ...ir.stmt import AssertStmt, Stmt

__all__ = ["skip_assert"]


def skip_assert(func: PrimFunc) -> PrimFunc:
    """Remove assertions.

        assert n < 8, "too large"        ->        A[n] = 0
        A[n] = 0

    Needs: nothing. Gives: no AssertStmt.
    """
    return _Skip().run(func)


class _Skip(Mutator):
    def visit_AssertStmt(self, n: AssertStmt) -> Stmt:
        return self.visit(n.body)  # type: ignore[no-any-return]

    def visit_leaf(self, n: Stmt) -> Stmt:
        return n  # there is no assertion in an expression

    visit_BufferStore = visit_Evaluate = visit_leaf
