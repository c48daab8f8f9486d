"""Vectors of private memory that need no mask, since their extra lanes are never used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

from ...ir.equal import structural_equal
from ...ir.expr import LT, Broadcast, BufferLoad, Let, PrimExpr, Ramp, Var, const_value
from ...ir.functor import distinct, vars_used
from ...ir.stmt import Allocate, BufferStore, For, LetStmt, Stmt

_ACCESSES: frozenset[Any] = frozenset((BufferLoad, BufferStore))


class _Access(NamedTuple):
    start: int
    lanes: int
    predicate: PrimExpr | None
    write: bool

    @property
    def held(self) -> int | None:
        """The number of active lanes of a predicate, if it is constant."""
        p = self.predicate
        if p is None:
            return self.lanes
        if isinstance(p, LT) and isinstance(p.a, Ramp) and isinstance(p.b, Broadcast):
            first, step, end = const_value(p.a.base), const_value(p.a.stride), const_value(p.b.value)
            if first is not None and end is not None and step == 1:
                return int(max(0, min(self.lanes, end - first)))
        return None

    @property
    def key(self) -> tuple[Any, ...]:
        known = self.held
        return self.start, self.lanes, known if known is not None else self.predicate

    def overlaps(self, start: int, end: int, own: int) -> bool:
        return max(start, self.start) < min(end, self.start + own)


def contiguous(index: PrimExpr) -> TypeGuard[Ramp]:
    """Whether the lanes are contiguous in memory."""
    return isinstance(index, Ramp) and const_value(index.stride) == 1 and index.base.dtype.lanes == 1


def private(index: PrimExpr, buffer: Any) -> TypeGuard[Ramp]:
    """Whether all lanes are in thread-private memory, so that all may be accessed."""
    if buffer.scope_name != "local" or not contiguous(index):
        return False
    start, size = const_value(index.base), const_value(buffer.shape[0])
    if start is None or size is None or index.dtype.is_scalable:
        return False
    return start >= 0 and start + index.dtype.lanes <= size


def unmasked(body: Stmt) -> frozenset[Var]:
    """Private memory whose masked-off lanes are never read: they may hold any value.

    The last vector of a row of accumulators has fewer columns than lanes; the other lanes are never stored.
    """
    if not any(n.__class__ in _ACCESSES and n.predicate is not None for n in distinct(body)):
        return frozenset()
    found: dict[Var, list[_Access] | None] = defaultdict(list)
    for buffer, index, predicate, write, changes in _accesses(body):
        if buffer.scope_name != "local":
            continue
        held = found[buffer.data]
        start = const_value(index.base) if contiguous(index) else const_value(index)
        start = None if index.dtype.is_scalable else start
        if held is None or start is None or changes or (predicate is not None and not private(index, buffer)):
            found[buffer.data] = None
            continue
        held.append(_Access(int(start), index.dtype.lanes, predicate, write))
    return frozenset(
        v
        for v, uses in found.items()
        if uses and any(a.predicate is not None for a in uses) and _reads_active_lanes(uses)
    )


def _accesses(body: Stmt) -> Iterator[tuple[Any, PrimExpr, PrimExpr | None, bool, bool]]:
    """Each access with its mask, and whether that may be another one the next time while the memory is the same."""
    stack: list[tuple[Any, frozenset[Var]]] = [(body, frozenset())]
    outside: dict[Var, frozenset[Var]] = {}  # of an allocation: the loops around it
    behind: dict[Var, set[Var]] = {}  # for each name: the variables that its value depends on
    while stack:
        n, loops = stack.pop()
        if isinstance(n, (BufferLoad, BufferStore)) and len(n.indices) == 1:
            own = loops - outside.get(n.buffer.data, frozenset())
            used = vars_used(n.predicate) if n.predicate is not None else set()
            changes = any(own & behind.get(v, {v}) for v in used)
            yield n.buffer, n.indices[0], n.predicate, isinstance(n, BufferStore), changes
        elif isinstance(n, Allocate):
            outside[n.buffer_var] = loops
        elif isinstance(n, (LetStmt, Let)):
            behind[n.var] = set().union(*[behind.get(v, {v}) for v in vars_used(n.value)])
        inside = loops | {n.loop_var} if isinstance(n, For) else loops
        stack.extend((c, inside) for c in n.children() if isinstance(c, (Stmt, PrimExpr)))


def _reads_active_lanes(uses: list[_Access]) -> bool:
    """Whether no read uses the lanes that a masked store leaves out."""
    stores = {a.key: a for a in uses if a.write and a.predicate is not None}
    reads = {a.key: a for a in uses if not a.write}
    plain = [a for a in uses if a.write and a.predicate is None]
    for s in stores.values():
        known = s.held
        if known is None:
            for a in (*reads.values(), *plain):
                same = a.start == s.start and a.predicate is not None
                if a.overlaps(s.start, s.start + s.lanes, a.lanes) and not (
                    same and structural_equal(a.predicate, s.predicate)
                ):
                    return False
            continue
        start, end = s.start + known, s.start + s.lanes
        if any(a.overlaps(start, end, a.held if a.held is not None else a.lanes) for a in reads.values()):
            return False
    return True
