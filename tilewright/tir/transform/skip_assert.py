"""Programs without their assertions."""

from __future__ import annotations

from ...ir.function import PrimFunc
from ...ir.functor import LeafKeeper
from ...ir.stmt import AssertStmt, Stmt


def skip_assert(func: PrimFunc) -> PrimFunc:
    """Remove assertions.

        assert n < 8, "too large"        ->        A[n] = 0
        A[n] = 0

    Needs: nothing. Gives: no AssertStmt.
    """
    return _Skip().run(func)


class _Skip(LeafKeeper):
    def visit_AssertStmt(self, n: AssertStmt) -> Stmt:
        return self.visit(n.body)  # type: ignore[no-any-return]
