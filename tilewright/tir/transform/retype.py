"""The base of the passes that change the bit width of index arithmetic."""

from __future__ import annotations

from typing import Any

from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.expr import BinaryOp, Cast, CmpOp, Let, PrimExpr, Var
from ...ir.functor import Mutator
from ...ir.stmt import DeclBuffer, LetStmt
from ..renew import Substituter


class Retyper(Mutator):
    """Rewrites bottom up: an integer expression may come back in another type than it had."""

    def __init__(self) -> None:
        self.table: dict[Var, Var] = {}
        self.buffers = Substituter({})

    def same(self, e: PrimExpr) -> PrimExpr:
        """The rewritten expression in the type that the original has."""
        raise NotImplementedError

    def binary(self, n: Any) -> PrimExpr:
        raise NotImplementedError

    def compared(self, n: Any) -> PrimExpr:
        raise NotImplementedError

    def bound(self, n: Let | LetStmt) -> tuple[PrimExpr, Var]:
        """The new value of a definition, and a variable of its type."""
        raise NotImplementedError

    def visit(self, n: Any) -> Any:
        handler = self._table.get(n.__class__.__name__)
        if handler is not None:
            return handler(self, n)
        if isinstance(n, BinaryOp):
            return self.binary(n)
        if isinstance(n, CmpOp):
            return self.compared(n)
        if isinstance(n, PrimExpr):
            return n.map_children(lambda c: self.same(c) if isinstance(c, PrimExpr) else c)
        return n.map_children(self.visit)

    def visit_Var(self, n: Var) -> Var:
        return self.table.get(n, n)

    def define(self, v: Var, dtype: DataType) -> Var:
        """The variable of this type that replaces `v` from here on; shapes of buffers keep their type.

        Sibling loops may share a variable and have different types.
        """
        held = self.table.get(v)
        made = (
            v
            if dtype is v.dtype
            else held
            if held is not None and held.dtype is dtype
            else Var(v.name, dtype)
        )
        if made is not held and not (made is v and held is None):
            self.buffers.buffers = {}
            self.table[v], self.buffers.table[v] = made, v if made is v else Cast(v.dtype, made)
        return made

    def visit_Let(self, n: Let) -> PrimExpr:
        value, var = self.bound(n)
        body = self.visit(n.body)
        return n if var is n.var and value is n.value and body is n.body else Let(var, value, body)

    def visit_LetStmt(self, n: LetStmt) -> LetStmt:
        value, var = self.bound(n)
        body = self.visit(n.body)
        return n.updated(var=var, value=value, body=body)

    def buffer(self, b: Buffer) -> Buffer:
        """The buffer over the new variables; its shape keeps its type."""
        return self.buffers.visit_buffer(b)

    def visit_DeclBuffer(self, n: DeclBuffer) -> DeclBuffer:
        buffer, body = self.buffer(n.buffer), self.visit(n.body)
        return n.updated(buffer=buffer, body=body)
