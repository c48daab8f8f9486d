"""Rows on a GPU: reductions, chains of them and what is between, each row read once and kept in registers.

    block of threads for a row            thread t of 256, each with vectors of 4
        x_local = row of x                x_local[k, 0:4] = x[row, (k * 256 + t) * 4 + 0:4]    for k in 0..3
        maximum of x_local                each thread its part, then shuffles: all threads know it
        e_local = exp(x_local - maximum)  in registers
        out[row] = e_local / sum          written in vectors

Short rows share a block of threads; long ones are read again, from the caches; a few very long ones are shared out
among blocks, which needs a second kernel. Where neighbours in memory are of different rows, a warp goes along them,
and the threads that share a row lie across it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..ir.buffer import Buffer
from ..ir.errors import ScheduleError
from ..tir.schedule.primitive import BlockRV, LoopRV
from .elementwise import extent_of
from .facts import Access, Axis, Facts
from .rows import in_line, rows_of

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = ["Shares", "power", "reduce_rows", "row_by_row", "shares_of"]

_WIDE = 16  # bytes that a thread takes at once
_VECTORS = 4  # that a thread should have of a row, all of them under way at once
_HELD = 64  # 32-bit registers of a thread for what it keeps of a row
_BLOCK = 128  # threads of a block, at least, where there are rows for them
_WARP = 32
_FEW = 256  # rows that do not keep all processors busy
_LONG = 1 << 14  # elements of a row that are worth a second kernel


@dataclass(frozen=True, slots=True)
class Shares:
    """How a row is shared out: `chunks` times `threads` times `lanes` elements; `rows` rows for a block."""

    chunks: int
    threads: int
    lanes: int
    rows: int
    across: bool = False  # neighbours in memory are of different rows

    @property
    def held(self) -> int:
        """Elements of a row that a thread has."""
        return self.chunks * self.lanes

    @property
    def tag(self) -> str:
        """The axis of the threads that share a row."""
        return "threadIdx.y" if self.across else "threadIdx.x"

    @property
    def row_tag(self) -> str:
        """The axis of the threads of different rows."""
        return "threadIdx.x" if self.across else "threadIdx.y"


def shares_of(size: int, count: int, lanes: int, most: int) -> Shares:
    """The shares of rows that lie in line: `count` of them, of so many elements, in vectors of so many lanes."""
    vectors = -(-size // lanes)
    threads = min(most, _WARP) if vectors > _WARP // 2 else power(vectors)
    while threads < most and vectors > threads * _VECTORS:
        threads *= 2
    rows = 1
    while threads * rows < _BLOCK and threads <= _WARP and count % (2 * rows) == 0:
        rows *= 2
    return Shares(-(-vectors // threads), threads, lanes, rows)


def shares_across(size: int, count: int, most: int) -> Shares:
    """The shares of rows that lie across: a warp goes along neighbours, which are of different rows."""
    rows = min(_WARP, power(count))
    threads = 1
    while threads * rows < most and size > threads * 4 * _VECTORS:
        threads *= 2
    return Shares(-(-size // threads), threads, 1, rows, across=True)


def power(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(0, (n - 1).bit_length())


def row_by_row(g: GpuFunction, last: Facts, group: list[Facts]) -> dict[str, object]:
    """One kernel for a chain of stages."""
    return _Chain(g, last, group).schedule()


def reduce_rows(g: GpuFunction, f: Facts) -> dict[str, object]:
    """A reduction along what lies in line, on its own: one kernel, or two where there are few long rows."""
    size = math.prod(a.extent for a in f.reduce)
    count = math.prod(a.extent for a in f.spatial)
    if not all(a.known for a in f.axes) or count >= _FEW or size < _LONG:
        return _Chain(g, f, [f]).schedule()
    sch, spatial = g.sch, len(f.spatial)
    parts = 1
    while count * parts < 4 * _FEW and size // (2 * parts) >= _LONG // 4:
        parts *= 2
    lanes = _lanes(f, f.reduce, max((r.buffer.dtype.bits for r in f.reads), default=32))
    loops = sch.get_loops(f.rv)
    part, rest = sch.split(g.fused(loops[spatial:], f.rv), [parts, None])
    partial = sch.rfactor(part, factor_axis=spatial)
    length = extent_of(sch, rest) or size // parts
    first = shares_of(length, count * parts, lanes if length % lanes == 0 else 1, g.limit)
    for rv, s in ((partial, first), (f.rv, shares_of(parts, count, 1, g.limit))):
        *around, inner = sch.get_loops(rv)
        row = g.fused(around, rv)
        _share_reduction(g, rv, inner, s)
        if s.rows > 1:
            row, within = sch.split(row, [None, s.rows])
            sch.bind(within, s.row_tag)
        sch.bind(row, "blockIdx.x")
    return {"threads": first.threads * first.rows, "parts": parts, "elements at a time": first.lanes}


def _lanes(f: Facts, axes: Sequence[Axis], bits: int) -> int:
    """How many neighbours of a row a thread takes at once: they are neighbours in memory for each access."""
    if f.guarded or not axes or any(r.stride(axes[-1]) not in (0, 1) for r in f.reads):
        return 1
    if f.kind == "injective" and f.write is not None and f.write.stride(axes[-1]) != 1:
        return 1
    run = 1
    for i in range(len(axes) - 1, -1, -1):
        run *= axes[i].extent
        if i and not all(r.in_line(axes[i - 1], axes[i]) for r in f.accesses if r.moves(axes[i])):
            break
    lanes = max(1, _WIDE * 8 // max(8, bits))
    while lanes > 1 and run % lanes:
        lanes //= 2
    return lanes


def _share(g: GpuFunction, loop: LoopRV, s: Shares, vector: bool) -> LoopRV:
    """Share a row out among threads; the loop of the vectors of a thread."""
    sch = g.sch
    chunk, thread, lane = sch.split(loop, [None, s.threads, s.lanes])
    sch.bind(thread, s.tag)
    sch.reorder(thread, chunk, lane)
    if s.held > _HELD:
        _, chunk = sch.split(chunk, [None, _VECTORS])
    sch.unroll(chunk)
    if s.lanes > 1 and vector:
        sch.vectorize(lane)
    elif s.lanes > 1:
        sch.unroll(lane)
    return chunk


def _share_reduction(g: GpuFunction, rv: BlockRV, loop: LoopRV, s: Shares) -> None:
    """The same for a reduction, which fetches vectors of what it reads from memory."""
    sch = g.sch
    chunk = _share(g, loop, s, vector=False)
    for i, r in enumerate(sch.realize(rv).block.reads if s.lanes > 1 else ()):
        if r.buffer.scope() != "global":
            continue
        copy = sch.cache_read(rv, i, "local")
        sch.compute_at(copy, chunk, preserve_unit_loops=False)
        depth = len(sch.get_loops(rv)) - 1
        own = sch.get_loops(copy)[depth:]
        if own:
            sch.vectorize(g.fused(own, copy))


class _Chain:
    """The stages of a chain, sorted by what they are for a row."""

    def __init__(self, g: GpuFunction, last: Facts, group: list[Facts]) -> None:
        self.g, self.sch, self.last, self.group = g, g.sch, last, group
        if not all(a.known for f in group for a in f.axes):
            raise ScheduleError("a row whose length is not known cannot be kept in registers")
        self.rows, self.columns = (last.spatial, last.reduce) if last.reduce else rows_of(last, group)
        self.count = max(1, math.prod(a.extent for a in self.rows))
        self.size = math.prod(a.extent for a in self.columns)
        self.made = {f.write.buffer for f in group if f.write is not None}
        if any(self.length(f) not in (1, self.size) for f in group):
            raise ScheduleError("the stages of a row have different lengths")
        if self.count < _FEW // 4 and self.size > 4 * _LONG and len(group) > 1:
            raise ScheduleError("so few long rows leave processors without work")
        line = in_line(max((f for f in group if f.reduce), key=lambda f: f.points))
        if line is not None and not line.reduce and len(self.rows) > 0:
            self.shares = shares_across(self.size, self.count, g.limit)
        else:
            long = [f for f in group if self.length(f) > 1]
            bits = max((r.buffer.dtype.bits for f in long for r in f.accesses if r.strides), default=32)
            lanes = min((_lanes(f, self.axes(f), bits) for f in long), default=1)
            self.shares = shares_of(self.size, self.count, lanes, g.limit)

    def length(self, f: Facts) -> int:
        """The elements of a row that a stage has or goes over."""
        if f.reduce:
            return math.prod(a.extent for a in f.reduce)
        return math.prod(a.extent for a in f.spatial) // self.count

    def axes(self, f: Facts) -> list[Axis]:
        """The axes of a stage that lie along a row."""
        if f.reduce:
            return f.reduce
        if f is self.last:
            return self.columns
        return f.spatial[len(f.spatial) - len(self.columns) :] if self.length(f) > 1 else []

    def kept(self) -> list[Buffer]:
        """What more than one stage reads of a row: it is copied into registers."""
        readers: dict[Buffer, int] = {}
        for f in self.group:
            axes = self.axes(f)
            for b in {r.buffer for r in f.reads if r.buffer not in self.made and axes}:
                reads = [r for r in f.reads if r.buffer is b]
                whole = len(reads) == 1 and self.is_row(f, reads[0], axes)
                readers[b] = readers.get(b, 0) + (1 if whole else -len(self.group))
        return [b for b, n in readers.items() if n > 1]

    def is_row(self, f: Facts, r: Access, axes: Sequence[Axis]) -> bool:
        """Whether an access is the row as it lies in memory, all of it and nothing else."""
        if f.guarded or not all(r.in_line(a, b) for a, b in zip(axes, axes[1:])):
            return False
        rest = [a for a in f.axes if a not in axes and a.extent > 1]
        return r.stride(axes[-1]) not in (0, None) and all(r.moves(a) for a in rest)

    def schedule(self) -> dict[str, object]:
        sch, last, s = self.sch, self.last, self.shares
        long = [f for f in self.group if f is not last and self.length(f) > 1 and not f.reduce]
        kept = self.kept()
        size = sum(b.dtype.nbytes for b in kept) + sum(f.bits // 8 for f in long)
        if s.held * size > _HELD * 4:  # too long for registers: everything is read and computed again
            for f in long:
                sch.compute_inline(f.rv)
            self.group, kept, long = [f for f in self.group if f not in long], [], []
        copies = [self.copy(b) for b in kept]
        loops = dict(zip([a.var for a in last.axes], sch.get_loops(last.rv), strict=True))
        around = [loops[a.var] for a in self.rows]
        along = [loops[a.var] for a in self.columns]
        sch.reorder(*around, *along)
        row = block = self.g.fused(around, last.rv)
        if s.rows > 1:
            block, row = sch.split(row, [None, s.rows])
        depth = 2 if s.rows > 1 else 1
        for f in reversed(self.group):
            if f is last:
                continue
            sch.compute_at(f.rv, row, preserve_unit_loops=True)
            sch.set_scope(f.rv, 0, "local")
            own = sch.get_loops(f.rv)[depth:]
            if f.reduce:
                _share_reduction(self.g, f.rv, self.g.fused(own[-len(f.reduce) :], f.rv), s)
            elif self.length(f) > 1:
                self.lay_out(f.rv)
                _share(self.g, self.g.fused(own, f.rv), s, vector=True)
        for rv in copies:
            sch.compute_at(rv, row, preserve_unit_loops=True)
            self.lay_out(rv)
            _share(self.g, self.g.fused(sch.get_loops(rv)[depth:], rv), s, vector=True)
        whole = self.g.fused(along, last.rv)
        if last.reduce:
            _share_reduction(self.g, last.rv, whole, s)
        else:
            _share(self.g, whole, s, vector=True)
        # Only now: what is computed for a row would be computed for all rows of loops that are bound already.
        sch.bind(block, "blockIdx.x")
        if s.rows > 1:
            sch.bind(row, s.row_tag)
        return {
            "rows": [a.var.name for a in self.rows],
            "threads": s.threads * s.rows,
            "in registers": [b.name for b in kept] + [f.name for f in long],
            "elements at a time": s.lanes,
        }

    def copy(self, buffer: Buffer) -> BlockRV:
        """A copy of an input in registers, which all stages of the chain read."""
        readers = [f for f in self.group if any(r.buffer is buffer for r in f.reads)]
        at = [r.buffer for r in self.sch.realize(readers[0].rv).block.reads].index(buffer)
        return self.sch.cache_read(readers[0].rv, at, "local", [f.rv for f in readers])

    def lay_out(self, rv: BlockRV) -> None:
        """Let a thread's part of a row be elements of its own: the thread that has an element is an index of it."""
        s = self.shares
        region = self.sch.realize(rv).block.writes[0]
        shape = [int(d) for d in region.buffer.shape]
        inner = self.inner(shape)

        def placed(*index: Any) -> list[Any]:
            at: Any = 0
            for i in inner:
                at = at * shape[i] + index[i]
            head = [x for i, x in enumerate(index) if i not in inner]
            return [*head, at // (s.threads * s.lanes), at // s.lanes % s.threads, at % s.lanes]

        self.sch.transform_layout(rv, ("write", 0), placed, assume_injective_transform=True)

    def inner(self, shape: Sequence[int]) -> list[int]:
        """The dimensions of a buffer that lie along a row."""
        sizes = [a.extent for a in self.columns]
        for first in range(len(shape) - len(sizes), -1, -1):
            rest = [*shape[:first], *shape[first + len(sizes) :]]
            if list(shape[first : first + len(sizes)]) == sizes and math.prod(rest) == self.count:
                return list(range(first, first + len(sizes)))
        raise ScheduleError("what a row is made of does not lie as the row does")
