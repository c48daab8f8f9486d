"""Copies of statements: variables substituted, definitions renamed, constants folded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..ir import ops
from ..ir.expr import (
    Add,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Mul,
    Not,
    PrimExpr,
    Select,
    Sub,
    Var,
)
from ..ir.functor import Renaming, Substitution
from ..ir.op import Op
from ..ir.stmt import Allocate, AllocateConst, DeclBuffer, For, Stmt

_SUMS, _NUMBERS = frozenset((Add, Sub, Mul)), frozenset((IntImm, FloatImm))
_IF_THEN_ELSE, _LIKELY = Op.get("tir.if_then_else"), Op.get("tir.likely")


def folded(e: Any) -> Any:
    """The node built again by the folding functions, if its operands have become constants."""
    cls = e.__class__
    if cls in _SUMS and e.a.__class__ not in _NUMBERS:
        if e.b.__class__ is not IntImm or not 0 <= e.b.value <= 1:
            return e  # as most are
    fold = ops.BINARY.get(cls)
    try:
        if fold is not None:
            made = fold(e.a, e.b)
            return e if made.__class__ is cls else made
        if cls is Not:
            made = ops.logical_not(e.a)
            return e if made.__class__ is Not else made
        if cls is Select:
            made = ops.select(e.condition, e.true_value, e.false_value)
            return e if made.__class__ is Select else made
        if cls is Cast:
            made = ops.cast(e.dtype, e.value)
            return e if made.__class__ is Cast else made
        if cls is Call and e.op is _IF_THEN_ELSE:
            made = ops.if_then_else(*e.args)
            return e if made.__class__ is Call else made
        if cls is Call and e.op is _LIKELY:
            return e.args[0] if not e.args[0].children() and not isinstance(e.args[0], Var) else e
    except ZeroDivisionError:
        return e  # it is never reached; if it is, it traps at run time
    return e


class Substituter(Substitution):
    """Variables replaced by expressions, in buffers too, with constants folded on the way."""

    def __init__(self, table: Mapping[Var, PrimExpr]) -> None:
        super().__init__(dict(table))

    def visit(self, n: Any) -> Any:
        handler = self._table.get(n.__class__.__name__)
        if handler is not None:
            return handler(self, n)
        made = n.map_children(self.visit)
        return made if made is n else folded(made)


class Renewer(Substituter, Renaming):
    """A copy in which every variable that the statement defines is a new one.

    Hardware axes (`thread_extent`) are not: every mention of one means the same axis.
    """

    def visit_For(self, n: For) -> For:
        low, extent = self.visit(n.min), self.visit(n.extent)
        return n.replace(loop_var=self.fresh(n.loop_var), min=low, extent=extent, body=self.visit(n.body))

    def visit_Allocate(self, n: Allocate | AllocateConst) -> Allocate | AllocateConst:
        extents = tuple([self.visit(e) for e in n.extents])
        var = self.fresh(n.buffer_var)
        return n.replace(buffer_var=var, extents=extents, body=self.visit(n.body))

    visit_AllocateConst = visit_Allocate

    def visit_DeclBuffer(self, n: DeclBuffer) -> DeclBuffer:
        made = self.visit_buffer(n.buffer)
        if made is n.buffer:
            self.buffers[made] = made = made.replace()
        return n.replace(buffer=made, body=self.visit(n.body))


class _Copier(Renewer):
    """One of several copies. Expressions that the first copy left unchanged are shared by all of them."""

    def __init__(self, table: Mapping[Var, PrimExpr], same: set[int]) -> None:
        super().__init__(table)
        self.same = same  # by id: the original is kept alive meanwhile

    def visit(self, n: Any) -> Any:
        if id(n) in self.same:
            return n
        handler = self._table.get(n.__class__.__name__)
        made = n.map_children(self.visit) if handler is None else handler(self, n)
        if made is not n:
            return made if handler is not None else folded(made)
        if isinstance(n, PrimExpr):
            self.same.add(id(n))
        return n


def copies(stmt: Stmt, v: Var, values: Iterable[PrimExpr]) -> list[Stmt]:
    """Copies of `stmt`, as `renewed`, one for each value of `v`."""
    same: set[int] = set()
    return [_Copier({v: value}, same).visit(stmt) for value in values]


def renewed(stmt: Stmt, table: Mapping[Var, PrimExpr] | None = None) -> Stmt:
    """A copy of `stmt` that defines nothing that `stmt` defines, with the variables of `table` replaced."""
    return Renewer(table or {}).visit(stmt)  # type: ignore[no-any-return]
