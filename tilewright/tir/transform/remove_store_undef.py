"""Stores of values that nobody defined."""

from __future__ import annotations

from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, IntImm, PrimExpr, Var
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order
from ...ir.op import Op
from ...ir.stmt import BufferStore, Evaluate, LetStmt, Stmt


def remove_store_undef(func: PrimFunc) -> PrimFunc:
    """Remove each store of a value that is made from `T.undef()`.

        A[0] = 1 + T.undef(dtype="int32")      ->      pass

    Refused: an index that is undefined.
    """
    return func.updated(body=_RemoveUndef().visit(func.body))


class _RemoveUndef(Mutator):
    def __init__(self) -> None:
        self.undefined: set[Var] = set()

    def is_undefined(self, e: PrimExpr) -> bool:
        for n in pre_order(e):
            if isinstance(n, BufferLoad):
                self.check(n)
            called = n.op if isinstance(n, Call) else None
            if n in self.undefined or (isinstance(called, Op) and called.short_name == "undef"):
                return True
        return False

    def check(self, n: BufferLoad | BufferStore) -> None:
        for i in n.indices:
            if self.is_undefined(i):
                raise LoweringError(
                    f"RemoveStoreUndef: index `{i}` of buffer {n.buffer.name} is undefined; give it a value"
                )

    def visit_LetStmt(self, n: LetStmt) -> Stmt:
        if not self.is_undefined(n.value):
            return n.updated(body=self.visit(n.body))
        self.undefined.add(n.var)
        return self.visit(n.body)  # type: ignore[no-any-return]

    def visit_BufferStore(self, n: BufferStore) -> Stmt:
        self.check(n)
        return Evaluate(IntImm("int32", 0)) if self.is_undefined(n.value) else n
