"""Assumptions of a program."""

from __future__ import annotations

from operator import is_

from ...ir.expr import Call, IntImm
from ...ir.function import PrimFunc
from ...ir.functor import LeafKeeper
from ...ir.op import Op
from ...ir.stmt import Evaluate, SeqStmt, Stmt, seq


def remove_assume(func: PrimFunc) -> PrimFunc:
    """Remove the assumptions, which a compiled program does not check.

    T.evaluate(T.assume(A[0] == 0))      ->      pass
    """
    return func.updated(body=_RemoveAssume().visit(func.body))


def _is_assumption(n: Stmt) -> bool:
    called = n.value.op if isinstance(n, Evaluate) and isinstance(n.value, Call) else None
    return isinstance(called, Op) and called.short_name == "assume"


class _RemoveAssume(LeafKeeper):
    def visit_Evaluate(self, n: Evaluate) -> Stmt:
        return Evaluate(IntImm("int32", 0)) if _is_assumption(n) else n

    def visit_SeqStmt(self, n: SeqStmt) -> Stmt:
        kept = [self.visit(s) for s in n.seq if not _is_assumption(s)]
        return n if len(kept) == len(n.seq) and all(map(is_, kept, n.seq)) else seq(*kept)
