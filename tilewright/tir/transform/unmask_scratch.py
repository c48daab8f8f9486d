"""Unpredicated vectors in private memory."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ...arith import eval_set
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, Let, PrimExpr, Ramp, Range, Var, const_value
from ...ir.function import PrimFunc
from ...ir.functor import LeafKeeper, Mutator, pre_order, vars_used
from ...ir.stmt import Allocate, BufferStore, DeclBuffer, For, LetStmt, Stmt

Access = BufferLoad | BufferStore
_ACCESSES: frozenset[Any] = frozenset((BufferLoad, BufferStore))


def unmask_scratch(func: PrimFunc) -> PrimFunc:
    """Drop the predicates of vectors in allocated memory that all have the same one: other lanes are never used.

        s = allocate(16)                                        s = allocate(16)
        s[0:16] if lane < n = 0                                 s[0:16] = 0
        for k in range(100):                           ->       for k in range(100):
            s[0:16] if lane < n = s[0:16] + A[k, 0:n]               s[0:16] = s[0:16] + A[k, 0:n]
        B[0:n] = s[0:16]                                        B[0:n] = s[0:16]

    A vector that is stored as a whole can stay in a register; a masked store goes through memory, and delays the next
    load of it.
    Needs: flat loops, vectors; allocations inside the loops that their predicates depend on.
    """
    masked: set[Var] = set()
    whole: set[Var] = set()
    for m in pre_order(func.body):
        if m.__class__ in _ACCESSES:
            (whole if m.predicate is None else masked).add(m.buffer.data)
    return _Unmask(masked - whole).run(func) if masked - whole else func


class _Unmask(LeafKeeper):
    def __init__(self, masked: Set[Var]) -> None:
        self.masked = masked  # allocations that are accessed under predicates only

    def visit_Allocate(self, n: Allocate) -> Stmt:
        made = n.map_children(self.visit)
        if n.buffer_var not in self.masked:
            return made
        return made.replace(body=_Whole(made.buffer_var).visit(made.body)) if _masked_alike(made) else made


class _Whole(Mutator):
    """All accesses of some memory without their predicates."""

    def __init__(self, data: Var) -> None:
        self.data = data

    def _plain(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        return made.replace(predicate=None) if made.buffer.data is self.data else made

    visit_BufferLoad = visit_BufferStore = _plain


def _masked_alike(n: Allocate) -> bool:
    """Whether all accesses of an allocation are vectors in bounds, under one predicate that is constant in its live
    range."""
    size = 1
    for extent in n.extents:
        known = const_value(extent)
        if known is None:
            return False
        size *= int(known)
    if not n.dtype.is_float or n.dtype.is_vector:  # an integer in an unused lane may be a divisor
        return False
    accesses: list[Access] = []
    inner: dict[Var, Range] = {}
    bound: set[Var] = set()
    for m in pre_order(n.body):
        if isinstance(m, (BufferLoad, BufferStore)) and m.buffer.data is n.buffer_var:
            if m.predicate is None:
                return False
            accesses.append(m)
        elif isinstance(m, DeclBuffer) and m.buffer.data is n.buffer_var:
            if m.buffer.dtype is not n.dtype:
                return False
        elif isinstance(m, For):
            inner[m.loop_var] = Range.from_min_extent(m.min, m.extent)
            bound.add(m.loop_var)
        elif isinstance(m, (LetStmt, Let)):
            bound.add(m.var)
        elif m is n.buffer_var:
            return False  # its address escapes
    if not accesses:
        return False
    first: Any = accesses[0].predicate
    return not vars_used(first) & bound and all(
        structural_equal(m.predicate, first) and _inside(m, inner, size) for m in accesses
    )


def _inside(m: Access, inner: dict[Var, Range], size: int) -> bool:
    """Whether all lanes of a vector are in bounds."""
    if len(m.indices) != 1:
        return False
    (index,) = m.indices
    if not isinstance(index, Ramp) or const_value(index.stride) != 1 or index.dtype.is_scalable:
        return False
    box = eval_set(index.base, inner)
    if not isinstance(box.min_value, PrimExpr) or not isinstance(box.max_value, PrimExpr):
        return False
    low, high = const_value(box.min_value), const_value(box.max_value)
    return low is not None and high is not None and low >= 0 and high + index.lanes <= size
