"""Parameters of a function that may alias: what a program may compute in place.

    for i in range(n):                     for i in range(n):
        B[i] = A[i] + 1     B may be A         B[i] = A[n - 1 - i]     B may not be A: half of A is gone when it is read

A function that is marked `tir.noalias` is compiled as if its arrays did not overlap. An output may still alias an input
if each element is read only by the iteration that writes it, and before the write.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...arith import IterMapLevel, detect_iter_map
from ...ir.buffer import Buffer
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, IntImm, IterVar, PrimExpr, Ramp, Range, Var, const, convert
from ...ir.function import PrimFunc
from ...ir.functor import pre_order
from ...ir.ops import add, cast, mul
from ...ir.stmt import BlockRealize, BufferStore, For, SeqStmt, Stmt

# An attribute of functions: pairs of parameters by number, one that is written and one that may be the same array.
INPLACE = "tir.inplace"
Place = tuple[PrimExpr, ...] | None  # indices, or None if unknown


def with_inplace_pairs(func: PrimFunc) -> PrimFunc:
    """The function with its in-place pairs as an attribute, if it is compiled with `noalias`."""
    if not func.attrs.get("tir.noalias") or INPLACE in func.attrs or len(func.buffer_map) < 2:
        return func
    return func.with_attr(INPLACE, inplace_pairs(func))


def inplace_pairs(func: PrimFunc) -> tuple[tuple[int, int], ...]:
    """Pairs of parameters, one that is written and one that is only read, that may be the same array."""
    buffers = [(i, func.buffer_map[p]) for i, p in enumerate(func.params) if p in func.buffer_map]
    kinds = {(b.dtype, len(b.shape)) for _, b in buffers}
    if len(kinds) == len(buffers):  # no two have the same type and shape
        return ()
    uses = list(_Walk([b for _, b in buffers]).top(func.body))
    using: dict[Var, list[_Use]] = {}  # by data pointer; functions may have thousands of parameters
    for u in uses:
        for data in {b.data for b in (*u.reads, *u.writes)}:
            using.setdefault(data, []).append(u)
    written = {b for u in uses for b in u.writes}
    only_read = [(j, r) for j, r in buffers if r not in written]
    pairs = [(i, w, j, r) for i, w in buffers if w in written for j, r in only_read if _alike(w, r)]
    last = {data: max(u.top for u in found) for data, found in using.items()}
    found = []
    for i, w, j, r in pairs:
        of_read, of_written = using.get(r.data, []), using[w.data]
        # A later statement reads it too: an early exit for arrays that a thousand stages read.
        if len(of_read) > len(of_written) and last[r.data] >= min(u.top for u in of_written if w in u.writes):
            continue
        if _in_place(of_read, of_written, w, r):
            found.append((i, j))
    return tuple(found)


def _alike(a: Buffer, b: Buffer) -> bool:
    """Whether one array could be passed for both; strides are compared at the call."""
    same = a.dtype == b.dtype and len(a.shape) == len(b.shape)
    return same and all(structural_equal(x, y) for x, y in zip(a.shape, b.shape))


@dataclass
class _Use:
    """A statement that reads and writes memory, in the loops around it."""

    top: int  # the number of the statement of the function that it is in
    loops: tuple[For, ...]
    realize: BlockRealize | None = None
    reads: dict[Buffer, list[Place]] = field(default_factory=dict)
    writes: dict[Buffer, list[Place]] = field(default_factory=dict)


def _in_place(of_read: Sequence[_Use], of_written: Sequence[_Use], w: Buffer, r: Buffer) -> bool:
    """Whether one array may be both, from the uses of the memory of each."""
    uses = [*of_written, *(u for u in of_read if w not in u.reads and w not in u.writes)]
    if any(
        b.data is w.data or b.data is r.data for u in uses for b in (*u.reads, *u.writes) if b not in (w, r)
    ):
        return False  # another view of the same memory
    reading = [u for u in uses if r in u.reads]
    writing = [u for u in uses if w in u.writes]
    if max((u.top for u in reading), default=-1) < min(u.top for u in writing):
        return True  # all reads come before the first write
    if len(writing) != 1 or any(u is not writing[0] and (r in u.reads or w in u.reads) for u in uses):
        return False
    (use,) = writing
    first, *others = [*use.writes[w], *use.reads[r], *use.reads.get(w, [])]
    if first is None or any(o is None or not _same(first, o) for o in others):
        return False
    return _once(use, first)


def _same(a: Sequence[PrimExpr], b: Sequence[PrimExpr]) -> bool:
    return all(structural_equal(x, y) for x, y in zip(a, b, strict=True))


def _once(use: _Use, place: tuple[PrimExpr, ...]) -> bool:
    """Whether no two iterations of the statement write the same element."""
    domains = {loop.loop_var: Range(loop.min, loop.extent) for loop in use.loops}
    if use.realize is None:
        lanes: dict[Var, Range] = {}
        place = tuple(_scalar(e, lanes) for e in place)
        return _is_injective(place, domains | lanes)
    block = use.realize.block
    if block.init is not None or any(v.iter_type != IterVar.DataPar for v in block.iter_vars):
        return False
    points = {v.var: v.dom for v in block.iter_vars}
    return _is_injective(place, points) and _is_injective(
        use.realize.iter_values, domains, use.realize.predicate
    )


def _scalar(e: PrimExpr, lanes: dict[Var, Range]) -> PrimExpr:
    """An index of one lane of a vector."""
    if not isinstance(e, Ramp):
        return e
    lane = Var("lane", e.base.dtype)
    lanes[lane] = Range(const(0, e.base.dtype), cast(e.base.dtype, convert(e.lanes)))
    return add(e.base, mul(e.stride, lane))


def _is_injective(values: Sequence[PrimExpr], domains: dict[Var, Range], predicate: Any = True) -> bool:
    domains = {v: d for v, d in domains.items() if not (isinstance(d.extent, IntImm) and d.extent.value == 1)}
    if {*domains} == {*values} and len(values) == len(domains):
        return True
    if not domains:
        return True
    return not detect_iter_map(values, domains, predicate, IterMapLevel.Bijective, True).errors


class _Walk:
    """The uses of memory in a program, in order."""

    def __init__(self, params: Sequence[Buffer]) -> None:
        self.count = 0
        self.memory = {b.data: b for b in params}

    def top(self, body: Stmt) -> Iterator[_Use]:
        """The uses in the top-level statements of a function, which run in sequence."""
        if isinstance(body, BlockRealize) and not body.block.iter_vars:
            body = body.block.body
        for s in body.seq if isinstance(body, SeqStmt) else (body,):
            yield from self.uses(s, ())
            self.count += 1

    def uses(self, s: Any, loops: tuple[For, ...]) -> Iterator[_Use]:
        if isinstance(s, BlockRealize):
            yield self.block(s, loops)
        elif isinstance(s, For):
            yield from self.uses(s.body, (*loops, s))
        elif isinstance(s, SeqStmt):
            for one in s.seq:
                yield from self.uses(one, loops)
        elif isinstance(s, BufferStore):
            yield self.store(s, loops)
        else:  # conditions, calls, allocations: their accesses may be anywhere
            yield self.anything(s, loops)

    def block(self, realize: BlockRealize, loops: tuple[For, ...]) -> _Use:
        block = realize.block
        use = _Use(self.count, loops, realize)
        # Accesses in nested blocks or through another buffer are somewhere in the region.
        plain = isinstance(block.body, BufferStore) and not block.match_buffers
        plain = plain and not any(m in self.memory for m in pre_order(block.body) if isinstance(m, Var))
        for regions, told in ((block.reads, use.reads), (block.writes, use.writes)):
            for region in regions:
                points = plain and all(
                    isinstance(r.extent, IntImm) and r.extent.value == 1 for r in region.region
                )
                told.setdefault(region.buffer, []).append(
                    tuple(r.min for r in region.region) if points else None
                )
        return use

    def store(self, s: BufferStore, loops: tuple[For, ...]) -> _Use:
        use = _Use(self.count, loops, None, {}, {s.buffer: [tuple(s.indices)]})
        for e in (s.value, *s.indices):
            for m in pre_order(e):
                if isinstance(m, BufferLoad):
                    use.reads.setdefault(m.buffer, []).append(tuple(m.indices))
                elif isinstance(m, Var):
                    self.pointer(m, use)
        return use

    def pointer(self, v: Var, use: _Use) -> None:
        """The memory of a parameter passed to a function, which may access any of it."""
        if v in self.memory:
            for told in (use.reads, use.writes):
                told.setdefault(self.memory[v], []).append(None)

    def anything(self, s: Any, loops: tuple[For, ...]) -> _Use:
        use = _Use(self.count, loops)
        for m in pre_order(s):
            if isinstance(m, BufferLoad):
                use.reads.setdefault(m.buffer, []).append(None)
            elif isinstance(m, BufferStore):
                use.writes.setdefault(m.buffer, []).append(None)
            elif isinstance(m, Var):
                self.pointer(m, use)
            elif isinstance(m, BlockRealize):
                for region in m.block.reads:
                    use.reads.setdefault(region.buffer, []).append(None)
                for region in m.block.writes:
                    use.writes.setdefault(region.buffer, []).append(None)
        return use
