"""The regions of buffers that a block reads and writes, in terms of its iterators."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...arith import Analyzer, IntervalSet, IntSet, eval_set
from ...arith.int_set import union
from ...ir.buffer import Buffer, BufferRegion, MatchBufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, Call, IntImm, IterVar, Let, PrimExpr, Range, Var, const_value
from ...ir.functor import Visitor, pre_order, substitute
from ...ir.op import Op
from ...ir.ops import add, sub
from ...ir.stmt import AttrStmt, Block, BlockRealize, BufferStore, For, LetStmt

_ACCESS_PTR = Op.get("tir.tvm_access_ptr")
_Sets = list[IntervalSet]


def get_block_access_region(
    block: Block, buffer_var_map: Mapping[Var, Buffer] | None = None
) -> list[list[BufferRegion]]:
    """The regions that a block's body reads, those it writes, and the buffers it uses through pointers.

    Loops inside the block are relaxed over their whole range. The update of a reduction does not count as a read of
    its accumulator if the block has an `init`. Only buffers whose pointer is in `buffer_var_map` count; without it, all
    that are defined outside of the block.
    """
    found = _collect(block, buffer_var_map)
    skip = set() if block.init is None else {b for b in found.writes if not reads_elsewhere(block, b)}
    reads = [found.region(b, sets) for b, sets in found.reads.items() if b not in skip]
    writes = [found.region(b, sets) for b, sets in found.writes.items()]
    return [reads, writes, [BufferRegion.full(b) for b in found.opaque]]


def get_block_read_write_region(
    block: Block, buffer_var_map: Mapping[Var, Buffer] | None = None
) -> list[list[BufferRegion]]:
    """The regions that a block reads and writes; a buffer used through a pointer is both read and written as a
    whole."""
    reads, writes, opaque = get_block_access_region(block, buffer_var_map)
    for region in opaque:
        for regions in (reads, writes):
            kept = [r for r in regions if r.buffer is not region.buffer]
            regions[:] = [*kept, region]
    return [reads, writes]


def reads_elsewhere(block: Block, b: Buffer) -> bool:
    """Whether a block reads a buffer that it writes in its `init`, or at other elements than those that it stores
    to."""
    if block.init is not None:
        if any(isinstance(m, BufferLoad) and m.buffer is b for m in pre_order(block.init)):
            return True
    uses = [m for m in pre_order(block.body) if isinstance(m, (BufferLoad, BufferStore)) and m.buffer is b]
    stored = [m for m in uses if isinstance(m, BufferStore)]
    return not all(any(_same_place(m, s) for s in stored) for m in uses if isinstance(m, BufferLoad))


def _same_place(a: BufferLoad | BufferStore, b: BufferLoad | BufferStore) -> bool:
    return all(x is y or structural_equal(x, y) for x, y in zip(a.indices, b.indices, strict=True))


def _collect(block: Block, buffer_var_map: Mapping[Var, Buffer] | None) -> _Accesses:
    walk = _Accesses(buffer_var_map, block.alloc_buffers, block.match_buffers)
    for iv in block.iter_vars:
        if const_value(iv.dom.extent) != 1:  # an iterator of one value is still an iterator
            walk.ana.bind_loop(iv.var, iv.dom.min, iv.dom.extent)
    if block.init is not None:
        walk.visit(block.init)
    walk.visit(block.body)
    return walk


class _Accesses(Visitor):
    """Accesses in order of their first appearance, each dimension as an interval."""

    def __init__(
        self,
        pointers: Mapping[Var, Buffer] | None,
        own: Iterable[Buffer],
        matches: Iterable[MatchBufferRegion],
    ) -> None:
        self.pointers = pointers
        self.own = {b.data for b in own}
        self.matches = {m.buffer: m.source for m in matches}
        self.domains: dict[Var, Range] = {}
        self.lets: dict[Var, PrimExpr] = {}
        self.ana = Analyzer()
        self.reads: dict[Buffer, _Sets] = {}
        self.writes: dict[Buffer, _Sets] = {}
        self.opaque: dict[Buffer, None] = {}

    # -- what was found --------------------------------------------------------------------
    def region(self, b: Buffer, sets: _Sets) -> BufferRegion:
        ranges = []
        for s, dim in zip(sets, b.shape, strict=True):
            found = s.as_range()
            if found is None:
                found = Range.from_min_extent(IntImm(dim.dtype, 0), dim)
            elif not s.is_single_point():
                found = _inside(found, dim)
            ranges.append(found)
        return BufferRegion(b, tuple(ranges))

    def counts(self, b: Buffer) -> bool:
        if self.pointers is not None:
            return b.data in self.pointers
        return b.data not in self.own

    def add(self, table: dict[Buffer, _Sets], b: Buffer, sets: _Sets) -> None:
        source = self.matches.get(b)
        if source is not None:
            self.add_region(table, source)
            return
        if not self.counts(b):
            return
        held = table.get(b)
        if held is None:
            table[b] = sets
        else:
            table[b] = [_joined(x, y, self.ana) for x, y in zip(held, sets, strict=True)]

    def add_region(self, table: dict[Buffer, _Sets], r: BufferRegion) -> None:
        self.add(table, r.buffer, [self.range_set(x) for x in r.region])

    # -- intervals -------------------------------------------------------------------------
    def point(self, index: PrimExpr) -> IntervalSet:
        if self.lets:
            index = substitute(index, self.lets)
        if index.dtype.is_vector:
            lanes = IntSet.vector(index)
            if lanes.as_range() is None or not self.domains:
                return lanes
            low, high = self.over(lanes.min_value), self.over(lanes.max_value)
            return IntervalSet(low.min_value, high.max_value)
        return self.over(index)

    def over(self, e: PrimExpr) -> IntervalSet:
        """The values of an expression while the loops inside the block run."""
        used = {v: self.domains[v] for v in pre_order(e) if isinstance(v, Var) and v in self.domains}
        if not used:
            return IntSet.single_point(self.ana.simplify(e))
        waiting = list(used.values())
        while waiting:  # ranges of inner loops may mention outer ones
            dom = waiting.pop()
            for m in (*pre_order(dom.min), *pre_order(dom.extent)):
                if isinstance(m, Var) and m in self.domains and m not in used:
                    used[m] = self.domains[m]
                    waiting.append(used[m])
        return eval_set(e, used, self.ana)

    def range_set(self, r: Range) -> IntervalSet:
        if isinstance(r.extent, IntImm) and r.extent.value == 1:
            return self.point(r.min)
        low = self.point(r.min)
        high = self.point(sub(add(r.min, r.extent), IntImm(r.min.dtype, 1)))
        return IntervalSet(low.min_value, high.max_value)

    # -- the walk --------------------------------------------------------------------------
    def visit_For(self, n: For) -> None:
        self.visit(n.min)
        self.visit(n.extent)
        self.domains[n.loop_var] = Range.from_min_extent(
            substitute(n.min, self.lets), substitute(n.extent, self.lets)
        )
        self.visit(n.body)
        del self.domains[n.loop_var]

    def visit_AttrStmt(self, n: AttrStmt) -> None:
        self.visit(n.value)
        axis = n.node if n.attr_key in ("thread_extent", "virtual_thread") else None
        if isinstance(axis, IterVar):
            self.domains[axis.var] = Range(n.value)
        self.visit(n.body)
        if isinstance(axis, IterVar):
            del self.domains[axis.var]

    def visit_LetStmt(self, n: LetStmt | Let) -> None:
        self.visit(n.value)
        self.lets[n.var] = substitute(n.value, self.lets)
        self.visit(n.body)
        del self.lets[n.var]

    visit_Let = visit_LetStmt

    def visit_BufferLoad(self, n: BufferLoad) -> None:
        self.add(self.reads, n.buffer, [self.point(i) for i in n.indices])
        self.visit_children(n)

    def visit_BufferStore(self, n: BufferStore) -> None:
        self.add(self.writes, n.buffer, [self.point(i) for i in n.indices])
        self.visit_children(n)

    def visit_Var(self, n: Var) -> None:
        """A pointer by itself: its uses are unknown."""
        b = self.buffer_of(n)
        if b is not None:
            self.opaque.setdefault(b)

    def buffer_of(self, v: Var) -> Buffer | None:
        if not v.dtype.is_handle:
            return None
        for b in self.matches:
            if b.data is v:
                return self.matches[b].buffer
        return None if self.pointers is None else self.pointers.get(v)

    def visit_Call(self, n: Call) -> None:
        if n.op is not _ACCESS_PTR or not isinstance(n.args[1], Var):
            self.visit_children(n)
            return
        b = self.buffer_of(n.args[1])
        mask = int(const_value(n.args[4]) or 3)
        if b is not None:
            whole = [IntSet.from_range(r) for r in BufferRegion.full(b).region]
            if mask & 1:
                self.add(self.reads, b, whole)
            if mask & 2:
                self.add(self.writes, b, whole)
        for arg in n.args[2:]:
            self.visit(arg)

    def visit_BlockRealize(self, n: BlockRealize) -> None:
        for v in (*n.iter_values, n.predicate):
            self.visit(v)
        inner = n.block
        table: dict[Any, Any] = {iv.var: v for iv, v in n.bindings}
        for regions, into in ((inner.reads, self.reads), (inner.writes, self.writes)):
            for r in regions:
                ranges = [
                    Range.from_min_extent(substitute(x.min, table), substitute(x.extent, table))
                    for x in r.region
                ]
                self.add(into, r.buffer, [self.range_set(x) for x in ranges])


def _joined(x: IntervalSet, y: IntervalSet, ana: Analyzer) -> IntervalSet:
    same = x.min_value is y.min_value and x.max_value is y.max_value
    return x if same else union([x, y], ana)


def _inside(r: Range, dim: PrimExpr) -> Range:
    """The part of a range within the buffer, as far as constants show; the rest is never accessed."""
    low, size, most = const_value(r.min), const_value(r.extent), const_value(dim)
    if low is None or size is None:
        return r
    first, last = max(int(low), 0), int(low + size)
    if most is not None:
        last = min(last, int(most))
    if (first, last) == (low, low + size) or first >= last:
        return r
    return Range.from_min_extent(IntImm(r.min.dtype, first), IntImm(r.min.dtype, last - first))
