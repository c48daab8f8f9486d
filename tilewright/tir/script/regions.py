"""Which regions of which buffers a block reads and writes, for blocks that do not say it themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...ir.buffer import Buffer, BufferRegion, MatchBufferRegion
from ...ir.expr import (
    Add,
    BufferLoad,
    Call,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Ramp,
    Range,
    Sub,
    Var,
    const,
    const_value,
)
from ...ir.functor import Visitor, pre_order, substitute
from ...ir.op import Op
from ...ir.ops import add, cast, floordiv, max_of, min_of, mul, sub
from ...ir.printer_ranges import difference
from ...ir.stmt import Block, BlockRealize, BufferStore, DeclBuffer, For, LetStmt, Stmt

__all__ = ["as_load", "block_accesses", "region_of"]

Bounds = tuple[PrimExpr, PrimExpr]
Box = list[Bounds | None]


def region_of(value: Any) -> BufferRegion:
    """A buffer, a load or a slice as a region."""
    if isinstance(value, BufferRegion):
        return value
    if isinstance(value, Buffer):
        return BufferRegion.full(value)
    if isinstance(value, BufferLoad):
        ranges = []
        for i in value.indices:
            if isinstance(i, Ramp) and i.base.dtype.lanes == 1:
                ranges.append(Range.from_min_extent(i.base, mul(i.stride, const(i.lanes, i.base.dtype))))
            else:
                ranges.append(Range.from_min_extent(i, const(1, i.dtype)))
        return BufferRegion(value.buffer, tuple(ranges))
    raise TypeError(f"`{value}` is no region of a buffer; write A, A[i, j] or A[0:n, j]")


def as_load(region: BufferRegion) -> BufferLoad:
    """The vector that a slice in the last place reads; other slices are no values."""
    indices: list[PrimExpr] = [r.min for r in region.region]
    for k, r in enumerate(region.region):
        lanes = const_value(r.extent)
        if lanes == 1:
            continue
        if lanes is None or k != len(indices) - 1:
            raise TypeError(
                f"`{region.buffer.name}` is sliced where a value must stand: "
                "only the last index may be a slice, and of constant length"
            )
        indices[k] = Ramp(r.min, const(1, r.min.dtype), int(lanes))
    return BufferLoad(region.buffer, tuple(indices))


def block_accesses(
    body: Stmt,
    init: Stmt | None,
    owners: Mapping[Var, Buffer],
    local: Iterable[Buffer],
    matches: Iterable[MatchBufferRegion],
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """The regions read and written by a block with this body; `owners` tells which buffer a pointer is of."""
    walk = _Accesses(owners, matches)
    if init is not None:
        walk.visit(init)
    walk.visit(body)
    hidden = set(local) | {m.buffer for m in matches}
    # What a reduction reads of its own output is part of the reduction.
    own = set(walk.writes) if init is not None else set()
    reads = tuple(_region(b, box) for b, box in walk.reads.items() if b not in hidden and b not in own)
    writes = tuple(_region(b, box) for b, box in walk.writes.items() if b not in hidden)
    return reads, writes


def _region(buffer: Buffer, box: Box) -> BufferRegion:
    ranges = []
    for dim, bounds in zip(buffer.shape, box, strict=True):
        if bounds is None:
            ranges.append(Range.from_min_extent(const(0, dim.dtype), dim))
        else:
            low, high = bounds
            ranges.append(Range.from_min_extent(low, add(difference(high, low), const(1, low.dtype))))
    return BufferRegion(buffer, tuple(ranges))


class _Accesses(Visitor):
    """Collects one box for each buffer read and one for each written."""

    def __init__(self, owners: Mapping[Var, Buffer], matches: Iterable[MatchBufferRegion]) -> None:
        self.owners = owners
        self.sources = {m.buffer: m.source for m in matches}
        self.reads: dict[Buffer, Box] = {}
        self.writes: dict[Buffer, Box] = {}
        self.loops: dict[Var, Bounds] = {}
        self.lets: dict[Var, PrimExpr] = {}

    # -- loops and names -----------------------------------------------------------------------
    def visit_For(self, n: For) -> None:
        self.visit(n.min)
        self.visit(n.extent)
        low, high = self.bounds(n.min), self.bounds(sub(add(n.min, n.extent), const(1, n.min.dtype)))
        if low is None or high is None:
            low = high = (n.min, n.min)
        self.loops[n.loop_var] = (low[0], high[1])
        self.visit(n.body)
        del self.loops[n.loop_var]

    def visit_LetStmt(self, n: LetStmt) -> None:
        self.visit(n.value)
        self.lets[n.var] = substitute(n.value, self.lets)
        self.visit(n.body)

    visit_Let = visit_LetStmt

    # -- accesses ------------------------------------------------------------------------------
    def visit_BufferLoad(self, n: BufferLoad) -> None:
        self.touch(self.reads, n.buffer, [self.bounds(i) for i in n.indices])
        self.visit_children(n)

    def visit_BufferStore(self, n: BufferStore) -> None:
        self.visit_children(n)
        self.touch(self.writes, n.buffer, [self.bounds(i) for i in n.indices])

    def visit_BlockRealize(self, n: BlockRealize) -> None:
        for v in n.iter_values:
            self.visit(v)
        self.visit(n.predicate)
        table = {iv.var: v for iv, v in zip(n.block.iter_vars, n.iter_values, strict=True)}
        hidden = set(n.block.alloc_buffers)
        for regions, out in ((n.block.reads, self.reads), (n.block.writes, self.writes)):
            for r in regions:
                if r.buffer not in hidden:
                    self.touch_region(out, substitute(r, table))

    def visit_Block(self, n: Block) -> None:
        for out, regions in ((self.reads, n.reads), (self.writes, n.writes)):
            for r in regions:
                self.touch_region(out, r)

    def visit_DeclBuffer(self, n: DeclBuffer) -> None:
        # A view made inside the block stands outside for the buffer whose memory it shows.
        owner = self.owners.get(n.buffer.data)
        if owner is not None and owner is not n.buffer:
            self.sources[n.buffer] = BufferRegion.full(owner)
        self.visit(n.body)

    def visit_Var(self, n: Var) -> None:
        buffer = self.owners.get(n)
        if buffer is not None:
            self.touch(self.reads, buffer, [None] * len(buffer.shape))
            self.touch(self.writes, buffer, [None] * len(buffer.shape))

    def visit_Call(self, n: Call) -> None:
        name = n.op.name if isinstance(n.op, Op) else ""
        if name == "tir.tvm_access_ptr" and len(n.args) == 5 and isinstance(n.args[1], Var):
            buffer, mask = self.owners.get(n.args[1]), const_value(n.args[4])
            if buffer is not None and isinstance(mask, int):
                for bit, out in ((1, self.reads), (2, self.writes)):
                    if mask & bit:
                        self.touch(out, buffer, [None] * len(buffer.shape))
                self.visit(n.args[2])
                self.visit(n.args[3])
                return
        if name == "tir.address_of" and isinstance(n.args[0], BufferLoad):
            # Behind the address lies as much of the buffer as the callee likes.
            for i in n.args[0].indices:
                self.visit(i)
            for out in (self.reads, self.writes):
                self.touch(out, n.args[0].buffer, [None] * len(n.args[0].indices))
            return
        self.visit_children(n)

    def touch_region(self, out: dict[Buffer, Box], r: BufferRegion) -> None:
        box: Box = []
        for part in r.region:
            low = self.bounds(part.min)
            high = self.bounds(sub(add(part.min, part.extent), const(1, part.min.dtype)))
            box.append(None if low is None or high is None else (low[0], high[1]))
        self.touch(out, r.buffer, box)

    def touch(self, out: dict[Buffer, Box], buffer: Buffer, box: Box) -> None:
        source = self.sources.get(buffer)
        if source is not None:
            self.touch_region(out, source)
            return
        have = out.get(buffer)
        if have is None:
            out[buffer] = box
        else:
            out[buffer] = [
                None if x is None or y is None else _hull(x, y) for x, y in zip(have, box, strict=True)
            ]

    # -- bounds --------------------------------------------------------------------------------
    def bounds(self, e: PrimExpr) -> Bounds | None:
        """The least and the greatest value of `e` while the inner loops run; None if there is no telling."""
        if self.lets:
            e = substitute(e, self.lets)
        if any(m.__class__ is BufferLoad for m in pre_order(e)):
            return None
        return self._bounds(e)

    def _bounds(self, e: Any) -> Bounds | None:
        kind = e.__class__
        if isinstance(e, Var):
            return self.loops.get(e, (e, e))
        if kind is IntImm:
            return e, e
        if kind is Ramp:
            base = self._bounds(e.base)
            step = const_value(e.stride)
            if base is None or not isinstance(step, int) or step < 0:
                return None
            return base[0], add(base[1], const(step * (e.lanes - 1), e.base.dtype))
        if e.dtype.lanes == 1 and not any(m in self.loops for m in pre_order(e) if isinstance(m, Var)):
            return e, e
        if kind in (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max):
            a, b = self._bounds(e.a), self._bounds(e.b)
            return None if a is None or b is None else _combine(kind, a, b)
        if kind is Cast and e.dtype.is_integral and e.value.dtype.is_integral:
            inner = self._bounds(e.value)
            return None if inner is None else (cast(e.dtype, inner[0]), cast(e.dtype, inner[1]))
        return None


def _combine(kind: type, a: Bounds, b: Bounds) -> Bounds | None:
    if kind is Add:
        return add(a[0], b[0]), add(a[1], b[1])
    if kind is Sub:
        return sub(a[0], b[1]), sub(a[1], b[0])
    if kind is Min:
        return min_of(a[0], b[0]), min_of(a[1], b[1])
    if kind is Max:
        return max_of(a[0], b[0]), max_of(a[1], b[1])
    if kind is Mul and const_value(a[0]) is not None and const_value(b[0]) is None:
        a, b = b, a
    c = const_value(b[0])
    if not isinstance(c, int) or const_value(b[1]) != c:
        return None
    by = b[0]
    if kind is Mul:
        low, high = mul(a[0], by), mul(a[1], by)
        return (low, high) if c >= 0 else (high, low)
    if c <= 0:
        return None
    if kind is FloorDiv:
        return floordiv(a[0], by), floordiv(a[1], by)
    low_value, high_value = const_value(a[0]), const_value(a[1])
    if isinstance(low_value, int) and isinstance(high_value, int) and low_value // c == high_value // c:
        return const(low_value % c, by.dtype), const(high_value % c, by.dtype)
    return const(0, by.dtype), const(c - 1, by.dtype)


def _hull(x: Bounds, y: Bounds) -> Bounds:
    return _pick(x[0], y[0], least=True), _pick(x[1], y[1], least=False)


def _pick(a: PrimExpr, b: PrimExpr, least: bool) -> PrimExpr:
    if a.dtype is not b.dtype:
        return min_of(a, b) if least else max_of(a, b)
    gap = const_value(difference(a, b))
    if gap is None:
        return min_of(a, b) if least else max_of(a, b)
    return a if (gap <= 0) == least else b
