"""The length of scalable vectors: conditions decided for each that hardware has, programs with one of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..ir.dtype import DataType
from ..ir.expr import Broadcast, Call, Cast, Let, PrimExpr, Ramp, Var, const
from ..ir.functor import Mutator, pre_order
from ..ir.op import Op
from ..ir.ops import LARGEST_VSCALE
from ..ir.stmt import LetStmt

_VSCALE = Op.get("tir.vscale")
_N = TypeVar("_N")


def has_vscale(root: Any) -> bool:
    """Whether an expression or a statement has scalable vectors, or their length factor."""
    for n in pre_order(root):
        cls = n.__class__
        if (cls is Call and n.op is _VSCALE) or ((cls is Ramp or cls is Broadcast) and n.dtype.is_scalable):
            return True
    return False


def with_vscale(n: _N, value: int) -> _N:
    """An expression or a statement where scalable vectors have this length factor.

    A[T.ramp(0, 1, T.vscale() * 4)]  ->  A[T.ramp(0, 1, 8)]     # value = 2
    """
    return _Fixed(value).visit(n)  # type: ignore[no-any-return]


def for_each_vscale(cond: PrimExpr, proves: Callable[[Any], bool], largest: int = LARGEST_VSCALE) -> bool:
    """Whether a condition is proved for each length factor: a power of two, up to the largest that there is."""
    return all(proves(with_vscale(cond, 1 << i)) for i in range(largest.bit_length()))


class _Fixed(Mutator):
    def __init__(self, value: int) -> None:
        self.value = value
        self.table: dict[Var, Var] = {}

    def type_of(self, kind: DataType) -> DataType:
        return kind.with_lanes(-kind.lanes * self.value) if kind.is_scalable else kind

    def visit_Call(self, n: Call) -> PrimExpr:
        if n.op is _VSCALE:
            return const(self.value, n.dtype)
        made = self.visit_children(n)
        return Call(self.type_of(n.dtype), n.op, made.args, n.span) if n.dtype.is_scalable else made

    def visit_Cast(self, n: Cast) -> PrimExpr:
        made = self.visit_children(n)
        return Cast(self.type_of(n.dtype), made.value) if n.dtype.is_scalable else made

    def visit_Ramp(self, n: Ramp) -> PrimExpr:
        base, stride = self.visit(n.base), self.visit(n.stride)
        return Ramp(base, stride, self.visit_lanes(n.lanes))

    def visit_Broadcast(self, n: Broadcast) -> PrimExpr:
        return Broadcast(self.visit(n.value), self.visit_lanes(n.lanes))

    def visit_lanes(self, lanes: Any) -> Any:
        """The number of lanes: an int, or the expression `T.vscale() * number`."""
        return lanes if isinstance(lanes, int) else lanes.b.value * self.value

    def visit_Var(self, n: Var) -> Var:
        if not n.dtype.is_scalable:
            return n
        if n not in self.table:
            self.table[n] = Var(n.name, self.type_of(n.dtype))
        return self.table[n]

    def visit_Let(self, n: Let) -> PrimExpr:
        return Let(self.visit_Var(n.var), self.visit(n.value), self.visit(n.body))

    def visit_LetStmt(self, n: LetStmt) -> LetStmt:
        return n.replace(var=self.visit_Var(n.var), value=self.visit(n.value), body=self.visit(n.body))
