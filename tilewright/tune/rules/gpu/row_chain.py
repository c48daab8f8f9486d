"""Chains of stages along rows: in one kernel with each row in registers, or in shared memory, or stage by stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import is_
from typing import Any

import numpy as np

from ....ir.buffer import Buffer
from ....ir.expr import const_value
from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ...cost.gpu import Counts, seconds_of
from ...cost.table import Array
from ...program.facts import Access, Axis, Facts, extent_of, facts_of, fused_index, number, with_fused_axes
from ...program.patterns import contiguous_axis, rows_of
from ...program.stages import Stage, facts_in_groups
from ..rule import Applied, Match, Refusal, Row
from .figures import SimpleRule, stage_counts
from .kernel import Kernel, power
from .rows import (
    InForms,
    Shares,
    combines,
    factored,
    joined_axes,
    place,
    share,
    shares_across,
    shares_in_cluster,
    shares_of,
    vector_lanes,
)

__all__ = ["Apart", "Chain", "RowChain", "SharedChain"]

_WARP = 32


class RowChain(InForms):
    """One kernel for a chain of stages, with each row in the registers of the threads that share it. Results that are
    computed elementwise from its result are part of the same kernel if possible."""

    name = "row chain"
    sketch = "rows"

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if stage.single:
            return Refusal("it is not a chain of stages")
        beside = _beside(stage)
        return self.first_of(stage, [beside, []] if beside else [[]])

    def blocks(self, stage: Stage, form: Sequence[BlockRV]) -> int | str:
        chain = _chain_of(stage, form)
        return chain.refusal() or chain.blocks

    def made(self, k: Kernel, stage: Stage, form: Sequence[BlockRV]) -> dict[str, Any] | str:
        last, group = stage.program.in_groups(stage.facts, list(stage.chain))
        return Chain(k, last, group, beside=form).made()


def _chain_of(stage: Stage, beside: Sequence[BlockRV] = ()) -> Chain:
    """The chain of a stage, as it will be in one kernel; nothing is scheduled."""
    return Chain(Kernel(stage), *facts_in_groups(stage.facts, list(stage.chain)), beside=beside)


def _beside(stage: Stage) -> list[BlockRV]:
    """The outputs that are computed elementwise from the last stage of a chain, an output, and from nothing else."""
    program, last = stage.program, stage.facts
    if not program.is_output(last) or last.write is None or last.reduce:
        return []
    found = []
    for rv in program.consumers(last.rv):
        f = facts_of(program.sch, rv)
        own = [a.var for a in f.axes]
        same = all(len(a.indices) == len(own) and all(map(is_, a.indices, own)) for a in f.accesses)
        alike = [a.extent for a in f.axes] == [a.extent for a in last.axes]
        if f.kind == "injective" and program.is_output(f) and same and alike and not f.guarded:
            found.append(rv)
    return found


class SharedChain(SimpleRule):
    """One kernel for a chain, a thread block for each row, with the intermediate values in shared memory.

    costs        the intermediate values of a row, written to shared memory and read, with a barrier for each stage
    """

    name = "row chain in shared memory"
    sketch = "rows"
    needs = frozenset({"shared_memory"})

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if stage.single:
            return Refusal("it is not a chain of stages")
        group = stage.chain
        line = contiguous_axis(max((f for f in group if f.reduce), key=lambda f: f.points))
        if line is not None and not line.reduce:
            return Refusal("loads of threads along a row would not be coalesced", near=True)
        if not all(a.known for f in group for a in f.axes):
            return Refusal("a row whose length is not known cannot be kept in shared memory", near=True)
        rows, _ = rows_of(stage.facts, list(group))
        count = max(1, math.prod(a.extent for a in rows))
        between = sum(
            math.prod(a.extent for a in f.spatial) // count * f.bits // 8
            for f in group
            if f is not stage.facts
        )
        if between > target.gpu.rows.shared_memory:
            return Refusal(
                f"{between} bytes between the stages of a row are too much for shared memory", near=True
            )
        return Match(stage, target.gpu, count)

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        # Short rows have small thread blocks, which have less in flight.
        size = max(f.points for f in match.stage.chain) // match.found
        full = min(1.0, power(size) / match.machine.elementwise.plain_threads)
        return stage_counts(match.stage.chain, match.machine, np.full(len(threads), full * match.found), 0.0)

    def more(self, match: Match) -> dict[str, float]:
        return {"prior": match.machine.rows.shared_prior}

    def steps(self, k: Kernel, match: Match) -> dict[str, Any]:
        stage, sch = match.stage, k.sch
        last, group = stage.program.in_groups(stage.facts, list(stage.chain))
        rows, columns = rows_of(last, group)
        loops = dict(zip([a.var for a in last.axes], sch.get_loops(last.rv), strict=True))
        around = [loops[a.var] for a in rows]
        along = [loops[a.var] for a in (columns if last.kind != "reduction" else last.reduce)]
        sch.reorder(*around, *along)
        row = k.fused(around, last.rv)
        widest = max((extent_of(sch, x) or 1 for f in group for x in sch.get_loops(f.rv)), default=1)
        for f in reversed(group):
            if f is last:
                continue
            sch.compute_at(f.rv, row, preserve_unit_loops=True)
            sch.set_scope(f.rv, 0, "shared")
            own = sch.get_loops(f.rv)[1:]
            _across(k, k.fused(own[-len(f.reduce) :] if f.kind == "reduction" else own, f.rv))
        _across(k, k.fused(along, last.rv))
        sch.bind(row, "blockIdx.x")
        return {"rows": [a.var.name for a in rows], "threads": min(k.most, power(widest))}


def _across(k: Kernel, loop: LoopRV) -> None:
    """Bind a loop along a row to threads."""
    size = extent_of(k.sch, loop)
    _, thread = k.sch.split(loop, [None, k.most if size is None else min(k.most, power(size))])
    k.sch.bind(thread, "threadIdx.x")


class Apart(SimpleRule):
    """The stages of a chain, a kernel for each.

    wins where   rows are too long for the registers of a cluster, or too few for all SMs
    costs        the bytes of every intermediate result, written and read once more; if rows are too long, every kernel
                 computes the elementwise stages that it reads again
    """

    name = "apart"
    free = False

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if stage.single:
            return Refusal("it is not a chain of stages")
        chain = _chain_of(stage)
        chain.prepare()
        return Match(stage, target.gpu, chain.too_long)

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        return Counts(compute=np.zeros(len(threads)))

    def more(self, match: Match) -> dict[str, float]:
        gpu = match.machine
        each = [seconds_of(stage_counts([f], gpu, _blocks(f, gpu)), gpu) for f in match.stage.chain]
        return {"left": float(sum(each)), "launches": 0.0}

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        stage, k = match.stage, Kernel(match.stage)
        last, left = stage.facts, []
        for f in stage.chain:
            again = match.found and f is not last and f.kind == "injective" and f.points == last.points
            readers = [sch.realize(c).block.name_hint for c in sch.get_consumers(f.rv)] if again else []
            if again and k.inlines(f.rv):
                stage.program.notes.inlined(f.name, readers)
            else:
                left.append(f.rv)
        return Applied({}, next=tuple(left))


def _blocks(f: Facts, gpu: GpuMachine) -> int:
    """The estimated number of thread blocks of a kernel for one stage: one for each row of a reduction."""
    results = math.prod(a.extent for a in f.spatial)
    return max(1, results if f.reduce else results // gpu.elementwise.threads)


class Chain:
    """A chain of stages in one kernel, with each row kept by the threads that share it.

    `prepare` distributes the rows, from facts alone; `made` schedules the kernel.
    """

    def __init__(
        self,
        g: Kernel,
        last: Facts,
        group: list[Facts],
        keep: bool = True,
        beside: Sequence[BlockRV] = (),
    ) -> None:
        self.g, self.sch, self.last, self.group, self.keep = g, g.sch, last, group, keep
        self.beside, self.w = list(beside), g.gpu.rows
        self.too_long = False
        self.rows, self.columns = (last.spatial, last.reduce) if last.reduce else rows_of(last, group)
        self.scalar = not last.reduce and math.prod(a.extent for a in self.columns) == 1
        self.count = self.size = 1
        self.made_here: set[Buffer] = set()
        self.shares = Shares(1, 1, 1, 1)
        self.fused: list[int] = []  # the sizes of the axes of a row that are fused

    def made(self) -> dict[str, Any] | str:
        """Make the kernel. Returns the notes for `explain()`; a sentence with the reason if it is not possible."""
        why = self.refusal()
        if why:
            return why
        if self.fused:
            self.flatten()
        return self.schedule()

    def refusal(self) -> str:
        """Why there is no such kernel; empty if there is. Nothing is scheduled."""
        return self.prepare() or self.misplaced()

    @property
    def blocks(self) -> int:
        """The thread blocks of the kernel."""
        return -(-self.count // self.shares.rows) * self.shares.blocks

    def prepare(self) -> str:
        """Distribute the rows over threads. Returns why that is not possible; empty if it is."""
        g, last, group = self.g, self.last, self.group
        why = [x for f in group if f.reduce and (x := combines(g, f.rv))]
        if why:
            return why[0]
        largest = max((f for f in group if f.reduce), key=lambda f: f.points)
        if self.scalar:  # it has one value for each row
            self.rows, self.columns = last.spatial, largest.reduce
        self.count = max(1, math.prod(a.extent for a in self.rows))
        self.size = math.prod(a.extent for a in self.columns)
        if not all(a.known for f in group for a in (*self.columns, *self.axes(f))):
            return "a row whose length is not known cannot be kept in registers"
        self.made_here = {f.write.buffer for f in group if f.write is not None}
        if any(self.length(f) not in (1, self.size) for f in group):
            return "the stages of a row have different lengths"
        line = contiguous_axis(largest)
        if len(self.columns) > 1 and line is not None and line.reduce and self.rows_are_contiguous():
            self.fused = [a.extent for a in self.columns]
            joined = [with_fused_axes(f, len(self.fused)) if self.length(f) > 1 else f for f in group]
            self.regroup(joined, next(j for f, j in zip(group, joined, strict=True) if f is last))
        if line is not None and not line.reduce and len(self.rows) > 0:
            if self.scalar:
                return "columns are reduced better on their own"
            self.shares = shares_across(self.size, self.count, g.limit, self.w)
        else:
            self.share_threads()
            why_not = self.share_among_blocks()
            if why_not:
                return why_not
        several = [f for f in self.group if self.is_in_vectors(f) and len(f.reduce) > 1]
        if several:  # the vectors of a thread would not be contiguous
            return f"{several[0].name} goes over several axes, which are not read in vectors"
        busy = self.count * self.shares.blocks
        few = busy < self.w.few_rows // 4 and self.size > 4 * self.w.long_row
        self.too_long = few and len(group) > 1 and not self.fits()
        return "so few long rows leave SMs idle" if self.too_long else ""

    def share_threads(self) -> None:
        """Distribute contiguous rows over the threads of a block."""
        g, last, group = self.g, self.last, self.group
        long = [f for f in self.group if self.length(f) > 1]
        bits = max((r.buffer.dtype.bits for f in long for r in f.accesses if r.strides), default=32)
        lanes = min((vector_lanes(f, self.axes(f), bits) for f in long), default=1)
        alone = (last.reduce or self.scalar) and sum(bool(f.reduce) for f in group) == 1
        # Vectors of a thread: a reduction alone has little work for a short row.
        few = max(2, self.w.elements // lanes)
        short = alone and 2 * self.size <= few * lanes * _WARP
        decided = g.threads or (power(-(-self.size // (few * lanes))) if short else 0)
        even, heavy = len(self.columns) > 1, any(f.kind == "several" for f in self.group)
        self.shares = shares_of(self.size, self.count, lanes, g.limit, decided, even, heavy, self.w)

    def rows_are_contiguous(self) -> bool:
        """Whether the axes of a row are the last ones of each stage, and contiguous with each other in each access that
        depends on all of them."""
        for f in self.group:
            axes = self.axes(f)
            if axes and (list(f.axes[-len(axes) :]) != axes or len(f.axes) != len(f.block.iter_vars)):
                return False
            whole = [r for r in f.accesses if axes and all(r.moves(a) for a in axes)]
            if any(r.gathered or not all(map(r.contiguous, axes, axes[1:])) for r in whole):
                return False
        return True

    def flatten(self) -> None:
        """Fuse the axes of a row, which is then like the row of a matrix.

        sum[n, c] += x[n, c, h, w]     ->     sum[n, c] += x[n, c, k // 56, k % 56]
        """
        sch, stages = self.sch, [f.rv for f in self.group]
        for f in self.group:
            if self.length(f) > 1:
                sch.transform_block_layout(f.rv, joined_axes(self.fused))
                if f is not self.last and not f.reduce:
                    sch.transform_layout(f.rv, ("write", 0), joined_axes(self.fused))
        group = [facts_of(sch, rv) for rv in stages]
        self.regroup(group, group[stages.index(self.last.rv)])

    def regroup(self, group: list[Facts], last: Facts) -> None:
        """Take the facts of the stages with the axes of a row fused."""
        self.group, self.last = group, last
        self.made_here = {f.write.buffer for f in group if f.write is not None}
        if self.scalar:
            self.columns = max(group, key=lambda f: f.points).reduce
        else:
            self.rows, self.columns = list(last.axes[:-1]), list(last.axes[-1:])

    def share_among_blocks(self) -> str:
        """Give a row to a cluster, if one thread block cannot keep it in registers. If a cluster cannot either, each
        stage reads the row again: the rows in flight are then about as large as the L2 cache, or larger."""
        clusters = self.g.gpu.blocks_per_cluster
        if clusters == 1 or self.last.reduce or self.fits():
            return ""
        self.shares = shares_in_cluster(
            self.size, self.shares.lanes, self.g.limit, clusters, self.g.threads, self.w
        )
        self.too_long = not self.fits()
        return (
            f"a row of {self.size} elements is more than {clusters} blocks can keep" if self.too_long else ""
        )

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
            for b in dict.fromkeys(r.buffer for r in f.reads if r.buffer not in self.made_here and axes):
                reads = [r for r in f.reads if r.buffer is b]
                whole = len(reads) == 1 and self.is_row(f, reads[0], axes)
                worth = 2 if f.reduce and self.shares.lanes > 1 else 1
                readers[b] = readers.get(b, 0) + (worth if whole else -2 * len(self.group))
        return [b for b, n in readers.items() if n > 1]

    def is_row(self, f: Facts, r: Access, axes: Sequence[Axis]) -> bool:
        """Whether an access reads each row in the order of memory, all of it and nothing else."""
        if f.guarded or not all(r.contiguous(a, b) for a, b in zip(axes, axes[1:])):
            return False
        rest = [a for a in f.axes if a not in axes and a.extent > 1]
        return r.stride(axes[-1]) not in (0, None) and all(r.moves(a) for a in rest)

    def schedule(self) -> dict[str, Any]:
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
                place(self.g, parts[f.rv.key], f.rv, row, s)
            elif f.reduce:
                share(self.g, self.g.fused(own[-len(f.reduce) :], f.rv), s, vector=False)
            elif self.length(f) > 1:
                self.lay_out(f.rv)
                share(self.g, self.g.fused(own, f.rv), s, vector=True)
        if last.rv.key in parts:
            place(self.g, parts[last.rv.key], last.rv, row, s, once=len(parts) == 1)
        for rv in copies:
            sch.compute_at(rv, row, preserve_unit_loops=True)
            self.lay_out(rv)
            chunk = share(self.g, self.g.fused(sch.get_loops(rv)[depth:], rv), s, vector=True)
            self.g.fetch_early(chunk, s.threads * s.rows)
            if self.length(last) == 1 or last.reduce:  # the kernel reads more than it writes
                sch.annotate(chunk, "pragma_nontemporal", 1)
        if last.reduce and last.rv.key not in parts:
            share(self.g, self.g.fused(along, last.rv), s, vector=False)
        elif along and not last.reduce:
            inside = self.write_beside if self.beside else None
            share(self.g, self.g.fused(along, last.rv), s, True, inside)
        self.unread()
        words = self.words(kept, long) + self.w.other_registers
        half = self.g.gpu.limits.registers // 2 // (s.threads * s.rows)
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
        return -(-most * self.shares.per_thread // 4)

    def reads(self, f: Facts, buffer: Buffer) -> bool:
        return any(r.buffer is buffer for r in f.reads)

    def factored(self) -> dict[object, BlockRV]:
        """The partial reductions of the threads, for reductions that read vectors from memory, by the key of the
        reduction."""
        out: dict[object, BlockRV] = {}
        for f in self.group:
            if self.is_in_vectors(f):
                loops = self.sch.get_loops(f.rv)[len(f.spatial) :]
                out[f.rv.key] = factored(self.g, f.rv, self.g.fused(loops, f.rv), self.shares)
        return out

    def is_in_vectors(self, f: Facts) -> bool:
        """Whether a reduction reads vectors from memory."""
        reads = self.sch.realize(f.rv).block.reads if f.reduce and self.shares.lanes > 1 else ()
        return any(r.buffer not in self.made_here and r.buffer.scope() == "global" for r in reads)

    def copy(self, buffer: Buffer) -> BlockRV:
        """A copy of an input in registers, which all stages of the chain read."""
        readers = [f for f in self.group if self.reads(f, buffer)]
        at = [r.buffer for r in self.sch.realize(readers[0].rv).block.reads].index(buffer)
        made = self.sch.cache_read(readers[0].rv, at, "local", [f.rv for f in readers])
        by_rows = self.by_rows(buffer)
        if by_rows is not None:
            self.sch.transform_block_layout(made, by_rows.index)
            self.sch.transform_layout(made, ("write", 0), by_rows.index)
        return made

    def by_rows(self, buffer: Buffer) -> _ByRows | None:
        """The reshaping of an input into rows; None if one of its dimensions is a row."""
        reader = next(f for f in self.group if self.reads(f, buffer))
        shape = _shape_of(buffer)
        stride = next(r.stride(self.axes(reader)[-1]) for r in reader.reads if r.buffer is buffer)
        found = any(n == self.size and stride == math.prod(shape[i + 1 :]) for i, n in enumerate(shape))
        return None if found or len(self.columns) > 1 else _ByRows(shape, self.size)

    def misplaced(self) -> str:
        """Why the threads cannot hold the rows of a tensor in the order in which they are computed; empty if they
        can."""
        shapes: dict[str, list[int] | None] = {}
        for b in self.kept() if self.keep and self.fits() else ():
            by_rows = self.by_rows(b)
            shapes[b.name] = _shape_of(b) if by_rows is None else by_rows.shape
        stages = [
            *(self.long() if self.fits() else ()),
            *([self.last] if self.beside and not self.scalar else ()),
        ]
        for f in stages:
            assert f.write is not None
            shape = _shape_of(f.write.buffer)
            fused = self.fused and f is not self.last and shape[-len(self.fused) :] == self.fused
            shapes[f.name] = [*shape[: -len(self.fused)], self.size] if fused else shape
        wrong = [name for name, shape in shapes.items() if shape is None or self.inner(shape) is None]
        return f"the elements of a row of {wrong[0]} are in another order" if wrong else ""

    def lay_out(self, rv: BlockRV) -> None:
        """Make the thread that holds an element a dimension of its buffer: each thread then has a part of its own."""
        s = self.shares
        region = self.sch.realize(rv).block.writes[0]
        shape = _shape_of(region.buffer)
        inner = self.inner(shape)
        assert inner is not None  # `misplaced` has checked it

        def placed(*index: Any) -> list[Any]:
            at: Any = 0
            for i in inner:
                at = at * shape[i] + index[i]
            head = [x for i, x in enumerate(index) if i not in inner]
            chunk, rest = at // (s.threads * s.lanes), (at // s.lanes % s.threads, at % s.lanes)
            return [*head, *((chunk // s.chunks, chunk % s.chunks) if s.blocks > 1 else (chunk,)), *rest]

        self.sch.transform_layout(rv, ("write", 0), placed, assume_injective_transform=True)

    def inner(self, shape: Sequence[int]) -> list[int] | None:
        """The dimensions of a buffer along a row, if there are such dimensions. A dynamic size is negative."""
        sizes = [a.extent for a in self.columns]
        for first in range(len(shape) - len(sizes), -1, -1):
            rest = [*shape[:first], *shape[first + len(sizes) :]]
            if list(shape[first : first + len(sizes)]) == sizes and abs(math.prod(rest)) == self.count:
                return list(range(first, first + len(sizes)))
        return None


def _shape_of(b: Buffer) -> list[int]:
    """The shape of a buffer; a dynamic size is its likely value, negative, and equals no other size."""
    return [-number(d) if const_value(d) is None else number(d) for d in b.shape]


class _ByRows:
    """The reshaping of a tensor into contiguous rows of `size` elements.

    x[8, 4, 6] into rows of 12     ->     rows[8, 2, 12]
    """

    def __init__(self, shape: Sequence[int], size: int) -> None:
        inner, first = 1, len(shape)
        while inner < size and first and shape[first - 1] > 0:
            first -= 1
            inner *= shape[first]
        self.given, self.first = shape, first
        self.many = inner // size  # rows that share the first dimension of a row
        whole = inner % size == 0 and (inner // shape[first]) * (shape[first] // self.many) == size
        many = [self.many] if self.many > 1 else []
        self.shape = [*shape[:first], *many, size] if whole else None  # None if rows are not whole

    def index(self, *index: Any) -> list[Any]:
        """An index of the tensor as an index of the rows."""
        first, shape, many = self.first, self.given, self.many
        each = shape[first] // many
        at = index[first] % each if many > 1 else index[first]
        at = fused_index([at, *index[first + 1 :]], shape[first:])
        return [*index[:first], *([index[first] // each] if many > 1 else []), at]
