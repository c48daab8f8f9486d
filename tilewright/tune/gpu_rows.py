"""Rows on a GPU: reductions, chains of them and the stages between, each row read once and kept in registers.

    thread block for a row                thread t of 256, each with vectors of 4
        x_local = row of x                x_local[k, 0:4] = x[row, (k * 256 + t) * 4 + 0:4]    for k in 0..3
        maximum of x_local                each thread its part, then shuffles: all threads know it
        e_local = exp(x_local - maximum)  in registers
        out[row] = e_local / sum          written in vectors

Short rows share a thread block. Long ones are distributed over the thread blocks of a cluster, which combine their
parts through each other's shared memory. Without clusters every stage reads them again, from the caches; if they are
longer still, there is a kernel for each stage. A few very long rows are reduced by many thread blocks, which needs a
second kernel. If rows are not contiguous, the threads of a warp take neighbouring rows (so that loads are coalesced),
and the threads that share a row are those along threadIdx.y.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

from ..ir.buffer import Buffer
from ..ir.errors import ScheduleError
from ..ir.expr import const_value
from ..target.gpu_machine import ROWS, RowFigures
from ..tir.analysis.combiner import NotACombination, combination_of
from ..tir.schedule.primitive import BlockRV, LoopRV
from .program.facts import Access, Axis, Facts, facts_of
from .program.patterns import in_line, rows_of
from .program.stages import reason_of

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = ["Shares", "TooLong", "power", "reduce_rows", "row_by_row", "shares_in_cluster", "shares_of"]

_WIDE = 16  # bytes of a vector load
_WARP = 32


class TooLong(ScheduleError):
    """A row is too long for one kernel: every stage reads it again."""


@dataclass(frozen=True, slots=True)
class Shares:
    """How rows are distributed: `chunks` x `threads` x `lanes` elements of a row for each of the `blocks` thread blocks
    of a cluster, or `rows` rows for one thread block."""

    chunks: int
    threads: int
    lanes: int
    rows: int
    across: bool = False  # rows are not contiguous: neighbours in memory belong to different rows
    blocks: int = 1

    @property
    def held(self) -> int:
        """The elements of a row that a thread has."""
        return self.chunks * self.lanes

    @property
    def tag(self) -> str:
        """The axis of the threads that share a row."""
        return "threadIdx.y" if self.across else "threadIdx.x"

    @property
    def row_tag(self) -> str:
        """The axis of the threads that have different rows."""
        return "threadIdx.x" if self.across else "threadIdx.y"


def shares_of(
    size: int,
    count: int,
    lanes: int,
    most: int,
    decided: int = 0,
    even: bool = False,
    heavy: bool = False,
    w: RowFigures = ROWS,
) -> Shares:
    """The shares of `count` contiguous rows of `size` elements, in vectors of `lanes`, with at most `most` threads.

    A rule chooses the threads of a row, unless they are `decided`. With `even` all have the same share if possible.
    If values are `heavy` to combine, there are fewer threads.
    """
    vectors, each = -(-size // lanes), max(w.vectors, w.elements // lanes)
    threads = min(most, _WARP) if vectors > _WARP // 2 else power(vectors)
    while threads < most and vectors > threads * (each if threads < w.many_threads else 2 * each):
        threads *= 2
    many = w.many_threads
    if not heavy and threads == many // 2 and vectors >= 2 * many and most >= many:
        threads = many
    if decided:
        threads = min(most, decided, power(vectors))
    fewer = threads
    while even and fewer > _WARP and vectors % fewer:
        fewer //= 2
    threads = fewer if vectors % fewer == 0 else threads
    rows = 1
    while threads * rows < w.block and (count % (2 * rows) == 0 or count >= 32 * rows):
        rows *= 2
    return Shares(-(-vectors // threads), threads, lanes, rows)


def shares_in_cluster(
    size: int, lanes: int, most: int, clusters: int, decided: int = 0, w: RowFigures = ROWS
) -> Shares:
    """The shares of a row that a cluster of up to `clusters` thread blocks has. The blocks have few threads, unless
    their number is `decided`, and each thread keeps as much of the row as it can: so one block of an SM computes while
    another waits for the other parts of its row."""
    threads, blocks = min(most, decided or w.cluster_threads), 2
    while blocks < clusters and size > blocks * threads * w.held_registers:
        blocks *= 2
    vectors = -(-size // (lanes * blocks))
    while threads < most and vectors * lanes > threads * w.held_registers:
        threads *= 2
    return Shares(-(-vectors // threads), threads, lanes, 1, blocks=blocks)


def shares_across(size: int, count: int, most: int, w: RowFigures = ROWS) -> Shares:
    """The shares of rows that are not contiguous: the threads of a warp take neighbours, which belong to different
    rows."""
    rows = min(_WARP, power(count))
    threads = 1
    while threads * rows < most and size > threads * 4 * w.vectors:
        threads *= 2
    return Shares(-(-size // threads), threads, 1, rows, across=True)


def power(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(0, (n - 1).bit_length())


def _joined(sizes: Sequence[int]) -> Callable[..., list[Any]]:
    """The index map that fuses the last axes, which have these sizes."""

    def mapped(*index: Any) -> list[Any]:
        *around, at = index[: len(index) - len(sizes) + 1]
        for i, size in zip(index[len(index) - len(sizes) + 1 :], sizes[1:], strict=True):
            at = at * size + i
        return [*around, at]

    return mapped


def _by_rows(shape: Sequence[int], size: int) -> Callable[..., list[Any]]:
    """The index map that reshapes a tensor into contiguous rows of `size` elements."""
    inner, first = 1, len(shape)
    while inner < size and first:
        first -= 1
        inner *= shape[first]
    if inner % size or (inner // shape[first]) * (shape[first] // (inner // size)) != size:
        raise ScheduleError("what a row is made of does not lie as the row does")
    many = inner // size  # rows that share the first dimension of a row

    def mapped(*index: Any) -> list[Any]:
        each = shape[first] // many
        at = index[first] % each if many > 1 else index[first]
        for i, n in zip(index[first + 1 :], shape[first + 1 :], strict=True):
            at = at * n + i
        return [*index[:first], *([index[first] // each] if many > 1 else []), at]

    return mapped


def row_by_row(
    g: GpuFunction, last: Facts, group: list[Facts], beside: Sequence[BlockRV] = ()
) -> dict[str, object]:
    """One kernel for a chain of stages, and for the elementwise results `beside` that are computed from its result."""
    return _Chain(g, last, group, beside=beside).schedule()


def reduce_rows(g: GpuFunction, f: Facts) -> dict[str, object]:
    """Schedule a reduction along a contiguous axis, alone: one kernel, or two for a few long rows."""
    f = _in_one_axis(g, f)
    size = math.prod(a.extent for a in f.reduce)
    count = math.prod(a.extent for a in f.spatial)
    known = all(a.known for a in f.axes)
    lanes = _lanes(f, f.reduce, max((r.buffer.dtype.bits for r in f.reads), default=32))
    lanes = lanes if len(f.reduce) == 1 else 1
    w = g.target.gpu.rows
    parts = _parts(size, count, lanes, w) if known and count < w.few_rows and size >= w.long_row else 1
    if parts == 1:
        return _alone(g, f, size, count, known)
    sch, spatial, consumer = g.sch, len(f.spatial), g.fusable_consumer(f)
    part, _ = sch.split(g.fused(sch.get_loops(f.rv)[spatial:], f.rv), [parts, None])
    partial = sch.rfactor(part, factor_axis=spatial)
    length = size // parts
    first = shares_of(length, count * parts, lanes if length % lanes == 0 else 1, g.limit, g.threads, w=w)
    _reduce(g, partial, first)
    try:
        with sch.all_or_nothing():  # with the epilogue in the same kernel
            group = [facts_of(sch, rv) for rv in (f.rv, consumer) if rv is not None]
            row_by_row(g, group[-1], group)
    except ScheduleError:
        _reduce(g, f.rv, shares_of(parts, count, 1, g.limit, w=w))
    return {
        "threads": first.threads * first.rows,
        "parts": parts,
        "vector": first.lanes,
        "kernel": partial,
    }


def _in_one_axis(g: GpuFunction, f: Facts) -> Facts:
    """Fuse the axes of a reduction, if they are contiguous with each other."""
    plain = f.kind == "reduction" and len(f.axes) == len(f.block.iter_vars) and all(a.known for a in f.axes)
    if len(f.reduce) < 2 or not plain or list(f.axes[-len(f.reduce) :]) != f.reduce:
        return f
    if any(r.gathered or not all(map(r.in_line, f.reduce, f.reduce[1:])) for r in f.reads):
        return f
    g.sch.transform_block_layout(f.rv, _joined([a.extent for a in f.reduce]))
    return facts_of(g.sch, f.rv)


def _reduce(g: GpuFunction, rv: BlockRV, s: Shares) -> None:
    """A kernel for a reduction over the last loop that does not keep rows in registers."""
    sch = g.sch
    *around, inner = sch.get_loops(rv)
    some = _factored(g, rv, inner, s) if s.lanes > 1 else None
    row = block = g.fused(around, rv)
    if s.rows > 1:
        block, row = sch.split(row, [None, s.rows])
    if some is None:
        _share_reduction(g, rv, inner, s)
    else:
        _place(g, some, rv, row, s, once=True)
    sch.bind(block, "blockIdx.x")
    if s.rows > 1:
        sch.bind(row, s.row_tag)


def _alone(g: GpuFunction, f: Facts, size: int, count: int, known: bool) -> dict[str, object]:
    """A reduction in one kernel: with its rows in registers, or straight from memory if that is refused."""
    sch, consumer = g.sch, g.fusable_consumer(f)
    reason = ""
    groups = [[f]] if consumer is None else [[f, facts_of(sch, consumer)], [f]]
    for group, keep in product(groups, (True, False)):
        try:
            with sch.all_or_nothing():
                return _Chain(g, group[-1], group, keep).schedule()
        except ScheduleError as why:
            reason = reason_of(why)
    else:
        loops, spatial = sch.get_loops(f.rv), len(f.spatial)
        s = shares_of(size, 1, 1, g.limit, w=g.target.gpu.rows) if known else Shares(1 << 20, g.most, 1, 1)
        row = g.fused(loops[:spatial], f.rv)
        _share_reduction(g, f.rv, g.fused(loops[spatial:], f.rv), s)
        sch.bind(row, "blockIdx.x")
        return {"threads": s.threads, "instead": reason}


def _parts(size: int, count: int, lanes: int, w: RowFigures) -> int:
    """The number of equal parts of a long row, so that all SMs have work: parts of whole vectors, if that gives enough
    of them."""
    most = max(1, min(4 * w.few_rows // count, size // (w.long_row // 4)))
    for unit in (lanes, 1):
        found = max(p for p in range(1, most + 1) if size % (p * unit) == 0 or p == 1)
        if found * 4 >= most:
            return found
    return found


def _lanes(f: Facts, axes: Sequence[Axis], bits: int) -> int:
    """The width of the vectors of a row: the elements of a vector must be contiguous in each access."""
    if f.guarded or not axes:
        return 1
    last, apart = axes[-1], [r for r in f.reads if r.stride(axes[-1]) not in (0, 1)]
    if not all(r.in_line(*pair) for pair in zip(axes, axes[1:]) for r in f.reads if r.moves(last)):
        return 1  # the row is not contiguous everywhere
    if not f.reduce and f.write is not None and f.write.stride(last) != 1:
        return 1
    lanes = max(1, _WIDE * 8 // max(8, bits))
    while lanes > 1 and (last.extent % lanes or not all(r.steady(last, lanes) for r in apart)):
        lanes //= 2
    return lanes


def _share(
    g: GpuFunction, loop: LoopRV, s: Shares, vector: bool, inside: Callable[[LoopRV], None] | None = None
) -> LoopRV:
    """Distribute a row over threads. Returns the loop over the vectors of a thread; `inside` is called with it before
    the threads are bound."""
    sch, w = g.sch, g.target.gpu.rows
    if s.blocks > 1:
        part, chunk, thread, lane = sch.split(loop, [s.blocks, None, s.threads, s.lanes])
    else:
        chunk, thread, lane = sch.split(loop, [None, s.threads, s.lanes])
    sch.reorder(thread, chunk, lane)
    if s.held > w.held_registers:
        _, chunk = sch.split(chunk, [None, w.vectors])
    if inside is not None:
        inside(chunk)
    if s.blocks > 1:
        sch.bind(part, "clusterCtaIdx.x")
    sch.bind(thread, s.tag)
    sch.unroll(chunk)
    if s.lanes > 1 and vector:
        sch.vectorize(lane)
    elif s.lanes > 1:
        sch.unroll(lane)
    return chunk


def _share_reduction(g: GpuFunction, rv: BlockRV, loop: LoopRV, s: Shares) -> None:
    """Distribute a reduction over threads, which combine their values in the end."""
    block = g.sch.realize(rv).block
    try:
        combination_of(block)
    except NotACombination as why:
        raise ScheduleError(f"{block.name_hint} {why}") from why
    _share(g, loop, s, vector=False)


def _factored(g: GpuFunction, rv: BlockRV, loop: LoopRV, s: Shares) -> BlockRV:
    """Factor the part that each thread reduces by itself out of a reduction (rfactor)."""
    sch = g.sch
    part, chunk, thread, lane = sch.split(loop, [s.blocks, None, s.threads, s.lanes])
    sch.reorder(part, thread, chunk, lane)
    thread = sch.fuse(part, thread)
    return sch.rfactor(thread, factor_axis=len(sch.get_loops(rv)) - 3)


def _fetch(sch: Any, partial: BlockRV, i: int, chunk: LoopRV) -> tuple[BlockRV, list[LoopRV]]:
    """A copy in registers of the operand of one chunk of a reduction, and the loops of the copy."""
    copy = sch.cache_read(partial, i, "local")
    sch.compute_at(copy, chunk, preserve_unit_loops=False)
    return copy, sch.get_loops(copy)[len(sch.get_loops(partial)) - 1 :]


def _place(g: GpuFunction, partial: BlockRV, rv: BlockRV, row: LoopRV, s: Shares, once: bool = False) -> None:
    """Move the partial results of the threads to their combination, and load vectors from memory for them. With `once`,
    for operands that are read once, the loads are non-temporal and start early."""
    sch, w = g.sch, g.target.gpu.rows
    sch.compute_at(partial, row, preserve_unit_loops=True)
    for i in range(len(sch.realize(partial).block.writes)):
        sch.set_scope(partial, i, "local")
    thread, *_, chunk, lane = sch.get_loops(partial)[2 if s.rows > 1 else 1 :]
    for loop in (thread, sch.get_loops(rv)[-1]):
        if s.blocks > 1:
            part, loop = sch.split(loop, [s.blocks, s.threads])
            sch.bind(part, "clusterCtaIdx.x")
        sch.bind(loop, s.tag)
    if s.held > w.held_registers:
        _, chunk = sch.split(chunk, [None, w.vectors])
    sch.unroll(chunk)
    sch.unroll(lane)
    gathered = {r.buffer for r in facts_of(sch, partial).reads if r.gathered}
    for i, r in enumerate(sch.realize(partial).block.reads):
        if r.buffer.scope() == "global" and r.buffer not in gathered:
            with sch.tried():
                count = math.prod(
                    int(const_value(sch.get(x).extent) or 0) for x in _fetch(sch, partial, i, chunk)[1]
                )
                contiguous = 0 < count <= s.lanes
            if not contiguous:  # a vector that crosses the end of a row is read element by element
                continue
            copy, own = _fetch(sch, partial, i, chunk)
            if own:
                sch.vectorize(g.fused(own, copy))
            if once:
                sch.annotate(copy, "pragma_nontemporal", 1)
                g.fetch_early(copy, s.threads * s.rows)


class _Chain:
    """A chain of stages in one kernel, with each row kept by the threads that share it."""

    def __init__(
        self,
        g: GpuFunction,
        last: Facts,
        group: list[Facts],
        keep: bool = True,
        beside: Sequence[BlockRV] = (),
    ) -> None:
        self.g, self.sch, self.last, self.group, self.keep = g, g.sch, last, group, keep
        self.beside, self.w = list(beside), g.target.gpu.rows
        if not all(a.known for f in group for a in f.axes):
            raise ScheduleError("a row whose length is not known cannot be kept in registers")
        self.rows, self.columns = (last.spatial, last.reduce) if last.reduce else rows_of(last, group)
        largest = max((f for f in group if f.reduce), key=lambda f: f.points)
        self.scalar = not last.reduce and math.prod(a.extent for a in self.columns) == 1
        if self.scalar:  # it has one value for each row
            self.rows, self.columns = last.spatial, largest.reduce
        self.count = max(1, math.prod(a.extent for a in self.rows))
        self.size = math.prod(a.extent for a in self.columns)
        self.made = {f.write.buffer for f in group if f.write is not None}
        if any(self.length(f) not in (1, self.size) for f in group):
            raise ScheduleError("the stages of a row have different lengths")
        line = in_line(largest)
        if len(self.columns) > 1 and line is not None and line.reduce and self.in_one_line():
            self.flatten()
        if line is not None and not line.reduce and len(self.rows) > 0:
            if self.scalar:
                raise ScheduleError("columns are reduced better on their own")
            self.shares = shares_across(self.size, self.count, g.limit, self.w)
        else:
            long = [f for f in self.group if self.length(f) > 1]
            bits = max((r.buffer.dtype.bits for f in long for r in f.accesses if r.strides), default=32)
            lanes = min((_lanes(f, self.axes(f), bits) for f in long), default=1)
            alone = (last.reduce or self.scalar) and sum(bool(f.reduce) for f in group) == 1
            # Vectors of a thread: a reduction alone has little work for a short row.
            few = max(2, self.w.elements // lanes)
            short = alone and 2 * self.size <= few * lanes * _WARP
            decided = g.threads or (power(-(-self.size // (few * lanes))) if short else 0)
            even, heavy = len(self.columns) > 1, any(f.kind == "several" for f in self.group)
            self.shares = shares_of(self.size, self.count, lanes, g.limit, decided, even, heavy, self.w)
            self.share_among_blocks()
        busy = self.count * self.shares.blocks
        few = busy < self.w.few_rows // 4 and self.size > 4 * self.w.long_row
        if few and len(group) > 1 and not self.fits():
            raise TooLong("so few long rows leave SMs idle")

    def in_one_line(self) -> bool:
        """Whether the axes of a row are the last ones of each stage, and contiguous with each other in each access that
        depends on all of them."""
        for f in self.group:
            axes = self.axes(f)
            if axes and (list(f.axes[-len(axes) :]) != axes or len(f.axes) != len(f.block.iter_vars)):
                return False
            whole = [r for r in f.accesses if axes and all(r.moves(a) for a in axes)]
            if any(r.gathered or not all(map(r.in_line, axes, axes[1:])) for r in whole):
                return False
        return True

    def flatten(self) -> None:
        """Fuse the axes of a row, which is then like the row of a matrix.

        sum[n, c] += x[n, c, h, w]     ->     sum[n, c] += x[n, c, k // 56, k % 56]
        """
        sch, sizes, stages = self.sch, [a.extent for a in self.columns], [f.rv for f in self.group]
        for f in self.group:
            if self.length(f) > 1:
                sch.transform_block_layout(f.rv, _joined(sizes))
                if f is not self.last and not f.reduce:
                    sch.transform_layout(f.rv, ("write", 0), _joined(sizes))
        self.group = [facts_of(sch, rv) for rv in stages]
        self.last = self.group[stages.index(self.last.rv)]
        self.made = {f.write.buffer for f in self.group if f.write is not None}
        if self.scalar:
            self.columns = max(self.group, key=lambda f: f.points).reduce
        else:
            self.rows, self.columns = list(self.last.axes[:-1]), list(self.last.axes[-1:])

    def share_among_blocks(self) -> None:
        """Give a row to a cluster, if one thread block cannot keep it in registers. If a cluster cannot either, each
        stage reads the row again: the rows in flight are then about as large as the L2 cache, or larger."""
        clusters = self.g.target.gpu.blocks_per_cluster
        if clusters == 1 or self.last.reduce or self.fits():
            return
        self.shares = shares_in_cluster(
            self.size, self.shares.lanes, self.g.limit, clusters, self.g.threads, self.w
        )
        if not self.fits():
            raise TooLong(f"a row of {self.size} elements is more than {clusters} blocks can keep")

    def long(self) -> list[Facts]:
        """The intermediate stages that have all elements of a row."""
        return [f for f in self.group if f is not self.last and self.length(f) > 1 and not f.reduce]

    def fits(self) -> bool:
        """Whether the registers of a thread block hold the values of its rows."""
        kept = self.kept() if self.keep else []
        room = min(self.w.held_registers, self.w.block_registers // (self.shares.threads * self.shares.rows))
        return self.words(kept, self.long()) <= room

    def length(self, f: Facts) -> int:
        """The number of elements of a row that a stage writes, or reduces."""
        if f.reduce:
            return math.prod(a.extent for a in f.reduce)
        return math.prod(a.extent for a in f.spatial) // self.count

    def axes(self, f: Facts) -> list[Axis]:
        """The axes of a stage along a row."""
        if f.reduce:
            return f.reduce
        if f is self.last:
            return [] if self.scalar else self.columns
        return f.spatial[len(f.spatial) - len(self.columns) :] if self.length(f) > 1 else []

    def kept(self) -> list[Buffer]:
        """The inputs that are copied into registers: more than one stage reads them as rows, or a reduction reads them
        in vectors."""
        readers: dict[Buffer, int] = {}
        for f in self.group:
            axes = self.axes(f)
            for b in dict.fromkeys(r.buffer for r in f.reads if r.buffer not in self.made and axes):
                reads = [r for r in f.reads if r.buffer is b]
                whole = len(reads) == 1 and self.is_row(f, reads[0], axes)
                worth = 2 if f.reduce and self.shares.lanes > 1 else 1
                readers[b] = readers.get(b, 0) + (worth if whole else -2 * len(self.group))
        return [b for b, n in readers.items() if n > 1]

    def is_row(self, f: Facts, r: Access, axes: Sequence[Axis]) -> bool:
        """Whether an access reads each row in the order of memory, all of it and nothing else."""
        if f.guarded or not all(r.in_line(a, b) for a, b in zip(axes, axes[1:])):
            return False
        rest = [a for a in f.axes if a not in axes and a.extent > 1]
        return r.stride(axes[-1]) not in (0, None) and all(r.moves(a) for a in rest)

    def schedule(self) -> dict[str, object]:
        sch, last, s = self.sch, self.last, self.shares
        long, kept = self.long(), self.kept() if self.keep else []
        if not self.fits():
            # Too long for registers: each stage reads its inputs and computes the intermediate stages again.
            for f in long:
                sch.compute_inline(f.rv)
            self.group, kept, long = [f for f in self.group if f not in long], [], []
        copies = [self.copy(b) for b in kept]
        parts = self.factored()
        own = sch.get_loops(last.rv)
        if last.reduce:
            around, along = own[: len(self.rows)], own[len(self.rows) :]
        else:
            loops = dict(zip([a.var for a in last.axes], own, strict=True))
            around = [loops[a.var] for a in self.rows]
            along = [] if self.scalar else [loops[a.var] for a in self.columns]
            sch.reorder(*around, *along)
        row = block = self.g.fused(around, last.rv)
        if s.rows > 1:
            block, row = sch.split(row, [None, s.rows])
        depth = 2 if s.rows > 1 else 1
        for f in reversed(self.group):
            if f is last:
                continue
            sch.compute_at(f.rv, row, preserve_unit_loops=True)
            for i in range(len(sch.realize(f.rv).block.writes)):
                sch.set_scope(f.rv, i, "local")
            own = sch.get_loops(f.rv)[depth:]
            if f.rv.key in parts:
                _place(self.g, parts[f.rv.key], f.rv, row, s)
            elif f.reduce:
                _share_reduction(self.g, f.rv, self.g.fused(own[-len(f.reduce) :], f.rv), s)
            elif self.length(f) > 1:
                self.lay_out(f.rv)
                _share(self.g, self.g.fused(own, f.rv), s, vector=True)
        if last.rv.key in parts:
            _place(self.g, parts[last.rv.key], last.rv, row, s, once=len(parts) == 1)
        for rv in copies:
            sch.compute_at(rv, row, preserve_unit_loops=True)
            self.lay_out(rv)
            chunk = _share(self.g, self.g.fused(sch.get_loops(rv)[depth:], rv), s, vector=True)
            self.g.fetch_early(chunk, s.threads * s.rows)
            if self.length(last) == 1 or last.reduce:  # the kernel reads more than it writes
                sch.annotate(chunk, "pragma_nontemporal", 1)
        if last.reduce and last.rv.key not in parts:
            _share_reduction(self.g, last.rv, self.g.fused(along, last.rv), s)
        elif along and not last.reduce:
            inside = self.write_beside if self.beside else None
            _share(self.g, self.g.fused(along, last.rv), s, True, inside)
        self.unread()
        words = self.words(kept, long) + self.w.other_registers
        half = self.g.target.gpu.limits.registers // 2 // (s.threads * s.rows)
        if words <= half <= words * 9 // 8:
            # Two thread blocks for each SM, so that one computes while the other waits, though the compiler would use
            # a few more registers.
            sch.annotate(last.rv, "pragma_min_blocks", 2)
        # Bind only now: under loops that are bound already, a stage would be computed for all their rows.
        sch.bind(block, "blockIdx.x")
        if s.rows > 1:
            sch.bind(row, s.row_tag)
        return {
            "rows": [a.var.name for a in self.rows],
            "threads": s.threads * s.rows,
            **({"cluster": s.blocks} if s.blocks > 1 else {}),
            **({"beside": [sch.realize(b).block.name_hint for b in self.beside]} if self.beside else {}),
            "in registers": [b.name for b in kept] + [f.name for f in long],
            "registers": words,
            "vector": s.lanes,
        }

    def write_beside(self, chunk: LoopRV) -> None:
        """Keep each vector of results in registers until the results `beside` are computed from it and written.

        out[k] = …          ->     x = …; out[k] = x; half[k] = cast(x)
        half[k] = cast(out[k])
        """
        sch, s = self.sch, self.shares
        copy = sch.cache_write(self.last.rv, 0, "local", self.beside)
        for rv in (copy, *self.beside):
            sch.reverse_compute_at(rv, chunk, preserve_unit_loops=True)
            own = sch.get_loops(rv)[len(sch.get_loops(self.last.rv)) - 1 :]
            inner = self.g.fused(own, rv)
            if s.lanes > 1:
                sch.vectorize(inner)
        self.lay_out(self.last.rv)

    def unread(self) -> None:
        """Move results of the last stage that nothing reads into registers of each thread."""
        for i, w in enumerate(self.sch.realize(self.last.rv).block.writes):
            others = [
                r for c in self.sch.get_consumers(self.last.rv) for r in self.sch.realize(c).block.reads
            ]
            if w.buffer not in self.g.outputs and all(r.buffer is not w.buffer for r in others):
                self.sch.set_scope(self.last.rv, i, "local")

    def words(self, kept: list[Buffer], long: list[Facts]) -> int:
        """The greatest number of registers of a thread that hold parts of the row at one time."""
        made = {f.write.buffer: i for i, f in enumerate(self.group) if f in long and f.write is not None}
        born = {**dict.fromkeys(kept, 0), **made}
        used = {b: max(i for i, f in enumerate(self.group) if self.reads(f, b)) for b in born}
        most = 0
        for i in range(len(self.group)):
            # A value that is read for the last time gives its registers to the results.
            own = [sum(b.dtype.nbytes for b in born if born[b] == i and made.get(b) == i)]
            own.append(sum(b.dtype.nbytes for b in born if used[b] == i and made.get(b) != i))
            rest = sum(b.dtype.nbytes for b in born if used[b] > i and born[b] <= i and made.get(b) != i)
            most = max(most, max(own) + rest)
        return -(-most * self.shares.held // 4)

    def reads(self, f: Facts, buffer: Buffer) -> bool:
        return any(r.buffer is buffer for r in f.reads)

    def factored(self) -> dict[object, BlockRV]:
        """The partial reductions of the threads, for reductions that read vectors from memory, by the key of the
        reduction."""
        out: dict[object, BlockRV] = {}
        for f in self.group if self.shares.lanes > 1 else ():
            reads = self.sch.realize(f.rv).block.reads if f.reduce else ()
            if any(r.buffer not in self.made and r.buffer.scope() == "global" for r in reads):
                if len(f.reduce) > 1:  # the vectors of a thread would not be contiguous
                    raise ScheduleError(f"{f.name} goes over several axes, which are not read in vectors")
                loops = self.sch.get_loops(f.rv)[len(f.spatial) :]
                out[f.rv.key] = _factored(self.g, f.rv, self.g.fused(loops, f.rv), self.shares)
        return out

    def copy(self, buffer: Buffer) -> BlockRV:
        """A copy of an input in registers, which all stages of the chain read."""
        readers = [f for f in self.group if self.reads(f, buffer)]
        at = [r.buffer for r in self.sch.realize(readers[0].rv).block.reads].index(buffer)
        made = self.sch.cache_read(readers[0].rv, at, "local", [f.rv for f in readers])
        shape = [int(const_value(d) or 0) for d in buffer.shape]
        stride = next(r.stride(self.axes(readers[0])[-1]) for r in readers[0].reads if r.buffer is buffer)
        lies = any(n == self.size and stride == math.prod(shape[i + 1 :]) for i, n in enumerate(shape))
        if len(self.columns) == 1 and not lies:
            by_rows = _by_rows(shape, self.size)
            self.sch.transform_block_layout(made, by_rows)
            self.sch.transform_layout(made, ("write", 0), by_rows)
        return made

    def lay_out(self, rv: BlockRV) -> None:
        """Make the thread that holds an element a dimension of its buffer: each thread then has a part of its own."""
        s = self.shares
        region = self.sch.realize(rv).block.writes[0]
        shape = [int(const_value(d) or 0) for d in region.buffer.shape]
        inner = self.inner(shape)

        def placed(*index: Any) -> list[Any]:
            at: Any = 0
            for i in inner:
                at = at * shape[i] + index[i]
            head = [x for i, x in enumerate(index) if i not in inner]
            chunk, rest = at // (s.threads * s.lanes), (at // s.lanes % s.threads, at % s.lanes)
            return [*head, *((chunk // s.chunks, chunk % s.chunks) if s.blocks > 1 else (chunk,)), *rest]

        self.sch.transform_layout(rv, ("write", 0), placed, assume_injective_transform=True)

    def inner(self, shape: Sequence[int]) -> list[int]:
        """The dimensions of a buffer along a row."""
        sizes = [a.extent for a in self.columns]
        for first in range(len(shape) - len(sizes), -1, -1):
            rest = [*shape[:first], *shape[first + len(sizes) :]]
            if list(shape[first : first + len(sizes)]) == sizes and math.prod(rest) == self.count:
                return list(range(first, first + len(sizes)))
        raise ScheduleError("what a row is made of does not lie as the row does")
