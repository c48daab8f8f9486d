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
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from ....ir.expr import const_value
from ....target import Target
from ....target.gpu_machine import ROWS, GpuMachine, RowFigures
from ....tir.analysis.combiner import NotACombination, combination_of
from ....tir.schedule.primitive import BlockRV, LoopRV
from ...cost.gpu import Counts
from ...cost.table import Array
from ...program.facts import Axis, Facts, facts_of, fused_index, with_fused_axes
from ...program.patterns import contiguous_axis, is_contiguous, is_pooling, reuses
from ...program.stages import Stage
from ..rule import Match, Refusal
from .figures import SimpleRule, stage_counts
from .kernel import Kernel, power
from .product_rule import hardly_reused

__all__ = [
    "InForms", "Rows", "Shares", "combines", "factored", "fuse_reduced_axes", "has_contiguous_axes", "joined_axes",
    "lone_reduction", "place", "reduce_rows", "share", "shares_across", "shares_in_cluster", "shares_of",
    "vector_lanes",
]  # fmt: skip

_WIDE = 16  # bytes of a vector load
_WARP = 32


@dataclass(frozen=True, slots=True)
class Shares:
    """The distribution of rows over threads: `chunks` x `threads` x `lanes` elements of a row for each of the `blocks`
    thread blocks of a cluster, or `rows` rows for one thread block."""

    chunks: int
    threads: int
    lanes: int
    rows: int
    across: bool = False  # rows are not contiguous: neighbours in memory belong to different rows
    blocks: int = 1

    @property
    def per_thread(self) -> int:
        """The elements of a row that a thread has."""
        return self.chunks * self.lanes

    @property
    def size(self) -> int:
        """The elements of a row that a thread block has."""
        return self.per_thread * self.threads

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


def joined_axes(sizes: Sequence[int]) -> Callable[..., list[Any]]:
    """The index map that fuses the last axes, which have these sizes."""

    def mapped(*index: Any) -> list[Any]:
        first = len(index) - len(sizes)
        return [*index[:first], fused_index(index[first:], sizes)]

    return mapped


class InForms(SimpleRule):
    """A rule with several forms of a kernel, the best first. The first one that the facts of a stage allow competes;
    where a primitive refuses it, the next one takes its place."""

    needs = frozenset({"shared_memory"})

    def blocks(self, stage: Stage, form: Any) -> int | str:
        """The thread blocks of a form; a sentence if the stage cannot have it."""
        raise NotImplementedError

    def made(self, k: Kernel, stage: Stage, form: Any) -> dict[str, Any] | str:
        """Make the kernel. Returns the notes for `explain()`; a sentence with the reason if it is not possible."""
        raise NotImplementedError

    def first_of(self, stage: Stage, forms: Sequence[Any], why: str = "") -> Match | Refusal:
        for at, form in enumerate(forms):
            blocks = self.blocks(stage, form)
            if not isinstance(blocks, str):
                simpler = partial(self.first_of, stage, forms[at + 1 :], why) if forms[at + 1 :] else None
                return Match(stage, stage.program.target.gpu, (form, blocks), simpler)
            why = why or blocks
        return Refusal(why, near=True)

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        blocks = np.full(len(threads), max(1, match.found[1]))
        return stage_counts(match.stage.chain, match.machine, blocks)

    def steps(self, k: Kernel, match: Match) -> dict[str, Any] | Refusal:
        note = self.made(k, match.stage, match.found[0])
        return Refusal(note, near=True) if isinstance(note, str) else note


def lone_reduction(stage: Stage, gpu: GpuMachine) -> str:
    """Why a stage is not a reduction whose operands serve one result each; empty if it is."""
    f = stage.facts
    if not stage.single or f.kind not in ("reduction", "several") or not f.reduce:
        return "it is not a single reduction"
    if f.kind == "reduction" and not hardly_reused(f, gpu):
        if reuses(f):
            return "its operands are reused for several results"
        if is_pooling(f) and not is_contiguous(f):
            return "it reduces windows"
    return ""


class Rows(InForms):
    """A thread block for each contiguous row, or for several short ones; two kernels for a few long rows."""

    name = "rows"

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        why = lone_reduction(stage, target.gpu)
        if why:
            return Refusal(why)
        line = contiguous_axis(stage.facts)
        if line is None or not line.reduce:
            return Refusal("it does not reduce along contiguous memory")
        return self.first_of(stage, _forms(stage, target.gpu))

    def blocks(self, stage: Stage, form: _Form) -> int | str:
        from .row_chain import Chain  # it imports this file

        f, k = stage.facts, Kernel(stage)
        if form.straight:
            return combines(k, f.rv) or (_results(f) if all(a.known for a in f.spatial) else 1)
        f = with_fused_axes(f, len(f.reduce)) if has_contiguous_axes(f) else f
        if form.parts > 1:
            shares = _shares_of_parts(k, f, form.parts)
            return combines(k, f.rv) or -(-_results(f) * form.parts // shares.rows)
        chain = Chain(k, *_with_epilogue(k, f, stage, form), form.keep)
        return chain.refusal() or chain.blocks

    def made(self, k: Kernel, stage: Stage, form: _Form) -> dict[str, Any] | str:
        from .row_chain import Chain  # as above

        f = fuse_reduced_axes(k, stage.facts)
        if form.straight:
            return _straight(k, f)
        if form.parts > 1:
            return _in_parts(k, f, form, k.fusable_consumer(f))
        return Chain(k, *_with_epilogue(k, f, stage, form), form.keep).made()


def _with_epilogue(k: Kernel, f: Facts, stage: Stage, form: _Form) -> tuple[Facts, list[Facts]]:
    """The last stage of the kernel for a reduction, and all its stages."""
    consumer = k.fusable_consumer(stage.facts) if form.epilogue else None
    group = [f] if consumer is None else [f, facts_of(k.sch, consumer)]
    return group[-1], group


def _results(f: Facts) -> int:
    return math.prod(a.extent for a in f.spatial)


@dataclass(frozen=True)
class _Form:
    """The form of a reduction: its rows in parts, with or without the epilogue in the same kernel, and with the rows in
    registers or straight from memory."""

    parts: int = 1
    epilogue: bool = True
    keep: bool = True
    straight: bool = False


def _forms(stage: Stage, gpu: GpuMachine) -> list[_Form]:
    """The forms of a reduction, the best first."""
    f, w = stage.facts, gpu.rows
    size, count = (math.prod(a.extent for a in axes) for axes in (f.reduce, f.spatial))
    known, fused = all(a.known for a in f.axes), stage.program.fusable_consumer(f) is not None
    if known and count < w.few_rows and size >= w.long_row:
        axes = [replace(f.reduce[-1], extent=size)] if has_contiguous_axes(f) else f.reduce
        lanes = vector_lanes(f, axes, max((r.buffer.dtype.bits for r in f.reads), default=32))
        parts = _parts(size, count, lanes if len(axes) == 1 else 1, w)
        if parts > 1:
            return [_Form(parts), _Form(parts, epilogue=False)]
    groups = (True, False) if fused else (False,)
    return [*(_Form(1, e, k) for e, k in product(groups, (True, False))), _Form(straight=True)]


def _in_parts(g: Kernel, f: Facts, form: _Form, consumer: BlockRV | None) -> dict[str, Any] | str:
    """Two kernels: the parts of each row, then their combination, with the epilogue if possible."""
    from .row_chain import Chain  # as above

    sch, spatial, w, parts = g.sch, len(f.spatial), g.gpu.rows, form.parts
    first = _shares_of_parts(g, f, parts)
    part, _ = sch.split(g.fused(sch.get_loops(f.rv)[spatial:], f.rv), [parts, None])
    first_sums = sch.rfactor(part, factor_axis=spatial)
    reduce_rows(g, first_sums, first)
    if form.epilogue:
        group = [facts_of(sch, rv) for rv in (f.rv, consumer) if rv is not None]
        second = Chain(g, group[-1], group).made()
        if isinstance(second, str):
            return second
    else:
        reduce_rows(g, f.rv, shares_of(parts, _results(f), 1, g.limit, w=w))
    return {
        "threads": first.threads * first.rows,
        "parts": parts,
        "vector": first.lanes,
        "kernel": first_sums,
    }


def _shares_of_parts(g: Kernel, f: Facts, parts: int) -> Shares:
    """The shares of the equal parts of rows."""
    count, length = _results(f) * parts, math.prod(a.extent for a in f.reduce) // parts
    lanes = vector_lanes(f, f.reduce, max((r.buffer.dtype.bits for r in f.reads), default=32))
    lanes = lanes if len(f.reduce) == 1 and length % lanes == 0 else 1
    return shares_of(length, count, lanes, g.limit, g.threads, w=g.gpu.rows)


def _straight(g: Kernel, f: Facts) -> dict[str, Any]:
    """A reduction straight from memory, a thread block for each row."""
    sch, spatial = g.sch, len(f.spatial)
    loops, known = sch.get_loops(f.rv), all(a.known for a in f.axes)
    size = math.prod(a.extent for a in f.reduce)
    s = shares_of(size, 1, 1, g.limit, w=g.gpu.rows) if known else Shares(1 << 20, g.most, 1, 1)
    row = g.fused(loops[:spatial], f.rv)
    share(g, g.fused(loops[spatial:], f.rv), s, vector=False)
    sch.bind(row, "blockIdx.x")
    return {"threads": s.threads}


def has_contiguous_axes(f: Facts, dynamic: bool = False) -> bool:
    """Whether the axes of a reduction can be fused: they are the last ones, and contiguous with each other. With
    `dynamic`, the sizes of the results and of the outermost reduced axis may be dynamic."""
    known = all(a.known for a in (f.reduce[1:] if dynamic else f.axes))
    plain = f.kind == "reduction" and len(f.axes) == len(f.block.iter_vars) and known
    if len(f.reduce) < 2 or not plain or list(f.axes[-len(f.reduce) :]) != f.reduce:
        return False
    return not any(r.gathered or not all(map(r.contiguous, f.reduce, f.reduce[1:])) for r in f.reads)


def fuse_reduced_axes(g: Kernel, f: Facts, dynamic: bool = False) -> Facts:
    """Fuse the axes of a reduction, if they are contiguous with each other."""
    if not has_contiguous_axes(f, dynamic):
        return f
    g.sch.transform_block_layout(f.rv, joined_axes([a.extent for a in f.reduce]))
    return facts_of(g.sch, f.rv)


def reduce_rows(g: Kernel, rv: BlockRV, s: Shares, guarded: bool = False) -> None:
    """A kernel for a reduction over the last loop that does not keep rows in registers. If each step of the reduction
    is `guarded`, as beyond the end of a row, threads reduce their shares before these are combined."""
    sch = g.sch
    *around, inner = sch.get_loops(rv)
    some = factored(g, rv, inner, s) if s.lanes > 1 or guarded else None
    row = block = g.fused(around, rv)
    if s.rows > 1:
        block, row = sch.split(row, [None, s.rows])
    if some is None:
        share(g, inner, s, vector=False)
    else:
        place(g, some, rv, row, s, once=True)
    sch.bind(block, "blockIdx.x")
    if s.rows > 1:
        sch.bind(row, s.row_tag)


def _parts(size: int, count: int, lanes: int, w: RowFigures) -> int:
    """The number of equal parts of a long row, so that all SMs have work: parts of whole vectors, if that gives enough
    of them."""
    most = max(1, min(4 * w.few_rows // count, size // (w.long_row // 4)))
    for unit in (lanes, 1):
        found = max(p for p in range(1, most + 1) if size % (p * unit) == 0 or p == 1)
        if found * 4 >= most:
            return found
    return found


def vector_lanes(f: Facts, axes: Sequence[Axis], bits: int) -> int:
    """The width of the vectors of a row: the elements of a vector must be contiguous in each access."""
    if f.guarded or not axes:
        return 1
    last, apart = axes[-1], [r for r in f.reads if r.stride(axes[-1]) not in (0, 1)]
    if not all(r.contiguous(*pair) for pair in zip(axes, axes[1:]) for r in f.reads if r.moves(last)):
        return 1  # the row is not contiguous everywhere
    if not f.reduce and f.write is not None and f.write.stride(last) != 1:
        return 1
    lanes = max(1, _WIDE * 8 // max(8, bits))
    while lanes > 1 and (last.extent % lanes or not all(r.steady(last, lanes) for r in apart)):
        lanes //= 2
    return lanes


def share(
    g: Kernel, loop: LoopRV, s: Shares, vector: bool, inside: Callable[[LoopRV], None] | None = None
) -> LoopRV:
    """Distribute a row over threads. Returns the loop over the vectors of a thread; `inside` is called with it before
    the threads are bound."""
    sch, w = g.sch, g.target.gpu.rows
    if s.blocks > 1:
        part, chunk, thread, lane = sch.split(loop, [s.blocks, None, s.threads, s.lanes])
    else:
        chunk, thread, lane = sch.split(loop, [None, s.threads, s.lanes])
    sch.reorder(thread, chunk, lane)
    if s.per_thread > w.held_registers:
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


def combines(g: Kernel, rv: BlockRV) -> str:
    """Why threads cannot combine the parts of a reduction; empty if they can."""
    block = g.sch.realize(rv).block
    try:
        combination_of(block)
    except NotACombination as why:
        return f"{block.name_hint} {why}"
    return ""


def factored(g: Kernel, rv: BlockRV, loop: LoopRV, s: Shares) -> BlockRV:
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


def place(g: Kernel, partial: BlockRV, rv: BlockRV, row: LoopRV, s: Shares, once: bool = False) -> None:
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
    if s.per_thread > w.held_registers:
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
