"""Attention in one kernel: scores, softmax and the product with the values, by `wgmma`.

a thread block   tiles of rows of the queries, one after the other
a warpgroup      64 rows: scores in registers, their softmax as the operand of the second product, accumulators in
                 registers
another          copies parts of the keys and values by TMA, ahead of the others
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

from ....ir.expr import BufferLoad, const_value
from ....ir.function import PrimFunc
from ....target import Target
from ....target.gpu_machine import GpuMachine, register_split
from ....tir.schedule import Schedule
from ....tir.schedule.library.attention import Attention, attention_of
from ....tir.schedule.library.stream import ROLES
from ....tir.schedule.primitive import BlockRV, LoopRV
from ....tir.tensor_intrin.cuda import get_wgmma_intrin, get_wgmma_rows_intrin
from ....tir.transform.lower_bulk_copies import BULK_COPY
from ....tir.transform.specialize_warps import EARLY, OVERLAP, PERSISTENT, SPECIALIZE
from ...cost.gpu import Counts
from ...cost.table import Table
from ...program.facts import Facts, facts_of
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .attention_parts import FEW, AttentionParts
from .figures import kernel_figures, kernel_table
from .kernel import Kernel
from .product import can_be_copied

__all__ = ["AttentionApart", "FusedAttention", "Parts", "best_parts", "refusal"]

_LINE = 64  # elements of 16 bits in a row of a TMA tile
_LANES = 4  # threads that share a row
_FRAGMENT, _LANE, _OPERAND = "wgmma.accumulator", "wgmma.lanes", "wgmma.matrix_a"


@dataclass(frozen=True, slots=True)
class Parts:
    """The warpgroups that compute, the keys of a step, and the stages of the pipeline."""

    groups: int
    columns: int
    stages: int
    overlap: int  # 1 if the second product of a step overlaps with the softmax of the next step
    queries: int = 1  # tiles of queries that shared memory has room for


_COLUMNS = tuple(x.name for x in fields(Parts))


def _decided(values: Mapping[str, int]) -> Parts:
    return Parts(**{name: int(values[name]) for name in _COLUMNS})


def best_parts(a: Attention, gpu: GpuMachine) -> Parts | str:
    """The sizes for an attention, within the limits of registers and shared memory; a sentence if there are none."""
    deep, across = (_up(a.size(iv)) for iv in (a.deep, a.column))
    if max(deep, across) > 256:
        return f"heads of {max(a.size(a.deep), a.size(a.column))} are too wide for a warpgroup"
    # Wide heads leave no registers for more than two warpgroups, and very wide ones leave none to overlap the product
    # of one step with the scores of the next. In narrow heads the exponentials take longer than the products: more
    # warpgroups hide that. If there are few tiles, smaller ones keep all SMs busy.
    groups = 1 if a.size(a.row) <= 64 or _rounds(a, 1, gpu) == 1 else 2
    columns, overlap = (128, 1) if across <= 128 else (64, 0)
    if (
        deep == across == _LINE
        and a.logit is a.score
        and _rounds(a, 4, gpu) * 4 * gpu.attention.four_warpgroups < _rounds(a, groups, gpu) * groups
    ):
        groups, columns = 4, 64
    part, tile = columns * (deep + across) * 2, groups * 64 * deep * 2
    room = gpu.dynamic_shared_memory_per_block - gpu.wgmma.reserved_shared - tile
    stages = min(4, room // part, max(2, -(-a.size(a.key) // columns)))
    if stages < 2:
        return "shared memory has no room for two parts of the keys and values"
    return Parts(groups, columns, stages, overlap, 2 if stages * part + tile <= room else 1)


def _rounds(a: Attention, groups: int, gpu: GpuMachine) -> int:
    """The number of tiles of rows that an SM processes, one after the other."""
    tiles = -(-a.size(a.row) // (64 * groups)) * math.prod(a.size(iv) for iv in a.others)
    return -(-tiles // gpu.multiprocessors)


def _up(size: int) -> int:
    return -(-size // _LINE) * _LINE


def refusal(target: Target, func: PrimFunc | None = None) -> str | None:
    """Why a target has no attention kernel, or none for the attention in `func`; None if it has one."""
    if not all(map(target.has, ("wgmma", "tma"))):
        return f"{target} has no `wgmma`"
    if func is None:
        return None
    sch = Schedule(func)
    why = "nothing in it adds up"
    for rv in sch.get_child_blocks(sch.get_block("root")):
        if sch.get(rv).init is None:
            continue
        found = _fitting(attention_of(sch, sch.realize(rv)), target)
        if not isinstance(found, str):
            return None
        why = found
    return why


def _fitting(found: Attention | str, target: Target) -> tuple[Attention, Parts] | str:
    """An attention that the kernel can compute, and its sizes; a sentence if it cannot."""
    if isinstance(found, str):
        return found
    if found.q.dtype.bits != 16:
        return "its operands are not floats of 16 bits"
    if not all(can_be_copied(x.buffer) for x in (found.q, found.k, found.v)):
        return "TMA cannot copy its operands"
    parts = best_parts(found, target.gpu)
    return parts if isinstance(parts, str) else (found, parts)


def _matched(stage: Stage, target: Target) -> Match | Refusal:
    f, sch = stage.facts, stage.program.sch
    if f.kind != "reduction" or len(f.reduce) != 1 or len(f.spatial) < 2:
        return Refusal("it is not a product")
    if not all(map(target.has, ("wgmma", "tma"))):
        return Refusal("the target has no tma, wgmma")
    found = _fitting(attention_of(sch, sch.realize(f.rv)), target)
    return Refusal(found) if isinstance(found, str) else Match(stage, target.gpu, found)


class FusedAttention:
    """One kernel for the scores, their softmax and the product with the values.

    wins where   the scores are larger than the queries, keys and values
    costs        registers: wide heads leave none for more than two warpgroups
    """

    name = "attention"
    needs = frozenset({"wgmma", "tma", "shared_memory"})

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        return _matched(stage, target)

    def table(self, match: Match, machine: GpuMachine, only: Mapping[str, int] | None = None) -> Table:
        a, best = match.found
        every = [replace(best, stages=n) for n in range(best.stages, 1, -1)]

        def made(parts: Sequence[Parts], finer: Callable[[], Table] | None = None) -> Table:
            work = [counts(a, p, machine) for p in parts]
            # The figure is of whole tiles; a few queries leave most of one empty, and read as much.
            full = 2 * a.size(a.row) > 64 * best.groups
            points, prior = [astuple(p) for p in parts], machine.attention.prior if full else 1.0
            return kernel_table(match.stage, _COLUMNS, points, work, finer=finer, prior=prior)

        if only is not None:
            return made([p for p in every if p == _decided(only)])
        return made([best], lambda: made(every))

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        (a, _), gpu, k = match.found, match.machine, Kernel(match.stage)
        p = _decided(row.values)
        note = _Sketch(k, match.stage.facts, a, p).apply()
        c = counts(a, p, gpu)
        figures = kernel_figures(c, int(c.flop), int(c.dram), gpu)
        return Applied(note, done=tuple(k.finished), figures=figures)


class AttentionApart:
    """Three kernels: the scores are written, read and written by the softmax, and read again by the second product.

    costs        the bytes of the scores, four times
    """

    name = "attention apart"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        fused = _matched(stage, target)
        if isinstance(fused, Match):
            return Match(stage, target.gpu, fused.found[0])
        # Without an attention in one or two kernels that it competes with, nothing is to be decided.
        parts = AttentionParts().match(stage, target)
        return fused if isinstance(parts, Refusal) else parts

    def table(self, match: Match, machine: GpuMachine, only: Mapping[str, int] | None = None) -> Table:
        kernels = 3 if only is None else only["kernels"]
        work = [_apart(match.found, machine, match.stage.program.target.has("wgmma"))] if kernels == 3 else []
        return kernel_table(match.stage, ("kernels",), [(3,)] if work else [], work, launches=3.0)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        return Applied({}, opened=True)


def counts(a: Attention, p: Parts, gpu: GpuMachine) -> Counts:
    """The work of an attention in one kernel: two products by `wgmma`, with the softmax between them hidden."""
    heads, (rows, keys) = math.prod(a.size(iv) for iv in a.others), (a.size(iv) for iv in (a.row, a.key))
    deep, across = (_up(a.size(iv)) for iv in (a.deep, a.column))
    # A `wgmma` multiplies 64 rows, a column and 16 elements along the reduction.
    per_cycle = 64 * 16 / gpu.wgmma.cycles_per_column * gpu.wgmma.rate
    tiles, steps = -(-rows // (64 * p.groups)) * heads, -(-keys // p.columns)
    fetched = p.columns * (deep + across) * 2
    rounds = -(-tiles // gpu.multiprocessors)
    return Counts(
        rounds=rounds,
        steps=steps,
        compute=64 * p.groups * p.columns * (deep + across) / per_cycle,
        shared=fetched / gpu.wgmma.tma_bytes,
        l2=fetched / (gpu.dram_bytes * gpu.wgmma.kernel.l2_ratio),
        latency=gpu.wgmma.latency / p.stages,
        ends=across * gpu.wgmma.store_column + gpu.wgmma.store,
        launch=gpu.wgmma.kernel.launch,
        dram=2 * heads * (rows + keys) * (a.size(a.deep) + a.size(a.column)),
        dram_rate=gpu.wgmma.kernel.dram_rate,
        flop=2 * heads * rows * keys * (a.size(a.deep) + a.size(a.column)),
        blocks=tiles,
        threads=128 * (p.groups + 1),
        registers=register_split(p.groups, 1)[1],
        shared_bytes=fetched * p.stages + p.queries * p.groups * 64 * deep * 2,
        l2_bytes=fetched * steps * tiles,
    )


def _apart(a: Attention, gpu: GpuMachine, wgmma: bool) -> Counts:
    """The work of three kernels."""
    heads, (rows, keys) = math.prod(a.size(iv) for iv in a.others), (a.size(iv) for iv in (a.row, a.key))
    each = a.k.dtype.nbytes
    own = each * heads * (rows + keys) * (a.size(a.deep) + a.size(a.column))
    moved = own + 4 * each * heads * rows * keys
    rate = 64 * 16 / gpu.wgmma.cycles_per_column * gpu.wgmma.rate
    per_cycle = (rate if wgmma and each == 2 else gpu.fma_per_cycle) * gpu.multiprocessors
    compute = heads * rows * keys * (a.size(a.deep) + a.size(a.column)) / per_cycle
    if 1 < rows <= FEW:
        compute = max(compute, keys * gpu.attention.apart_key)
    return Counts(
        compute=compute,
        launch=3 * gpu.wgmma.kernel.launch,
        dram=moved,
        dram_rate=gpu.wgmma.kernel.dram_rate,
        dram_launch=3 * gpu.wgmma.kernel.launch,
    )


class _Sketch:
    def __init__(self, g: Kernel, f: Facts, a: Attention, parts: Parts) -> None:
        self.g, self.sch, self.f, self.a, self.parts = g, g.sch, f, a, parts
        self.row: int | None = None  # the dimension of the rows in the result, if an epilogue transposes it

    def apply(self) -> dict[str, Any]:
        sch, p, kind = self.sch, self.parts, str(self.a.q.buffer.dtype)
        after = self.after()
        self.before = {b.key for b in sch.get_child_blocks(self.g.root)}
        blocks = dict(zip(ROLES, sch.stream(self.f.rv, 64, p.columns, p.groups, _LANES), strict=True))
        scores, product, out = (blocks[r] for r in ("scores", "product", "out"))
        across = int(const_value(sch.get(product).writes[0].buffer.shape[-1]) or 0)
        first = get_wgmma_intrin(p.columns, kind, False, True)
        second = get_wgmma_intrin(across, kind)
        rows = get_wgmma_rows_intrin(p.columns, across, kind)
        block, group, part = self.tiles(blocks)
        made = self.store([out, *after], group, across, second)
        self.fetch(scores, 1, part)
        self.fetch(product, 2, part)
        sch.bind(block, "blockIdx.x")
        sch.bind(group, "threadIdx.y")
        self.fetch(scores, 0, group)  # the queries, for all warpgroups together
        self.scopes(blocks)
        self.spread(blocks)
        self.spread_results(made, second)
        self.products(blocks, first, second, rows)
        sch.annotate(part, SPECIALIZE, p.stages)
        sch.annotate(part, EARLY, p.queries)
        if p.overlap:
            sch.annotate(part, OVERLAP, 1)
        return {
            "tile": f"{64 * p.groups} x {p.columns}",
            "stages": p.stages,
            "threads": 128 * (p.groups + 1),
            "instructions": [first["compute"], rows["compute"]],
        }

    def tiles(self, blocks: dict[str, BlockRV]) -> tuple[LoopRV, LoopRV, LoopRV]:
        """The loops over all tiles of rows, over warpgroups, and over parts of the keys."""
        sch = self.sch
        *others, tile, part = sch.get_loops(blocks["scores"])[:-3]
        tile, group = sch.split(tile, [None, self.parts.groups])
        edges = self.a.edges()[0]
        if others and edges and all(sign > 0 for sign, _ in edges):
            # A mask such as the causal one: later rows see more keys. Tiles of the same rows follow each other, so that
            # all SMs have about the same work.
            heads = sch.fuse(*others) if len(others) > 1 else others[0]
            outer, inner = sch.split(heads, [None, self.heads(edges)])
            sch.reorder(outer, tile, inner)
            block = sch.fuse(outer, tile, inner)
        else:
            block = sch.fuse(*others, tile) if others else tile
        grid = int(const_value(sch.get(block).extent) or 1)
        if grid > self.g.gpu.multiprocessors:
            sch.annotate(part, PERSISTENT, self.g.gpu.multiprocessors)
        return block, group, part

    def heads(self, edges: list[tuple[int, int]]) -> int:
        """The number of heads that are processed together, so that the busiest SM has the least work, and the L2 cache
        holds their keys and values."""
        import numpy as np

        a, p = self.a, self.parts
        count = math.prod(a.size(iv) for iv in a.others)
        last = np.arange(1, -(-a.size(a.row) // (64 * p.groups)) + 1) * 64 * p.groups + min(
            e for _, e in edges
        )
        parts = np.clip(-(-last // p.columns), 1, -(-a.size(a.key) // p.columns))
        each = a.size(a.key) * (a.size(a.deep) + a.size(a.column)) * 2
        most = max(1, int(self.g.gpu.l2_cache * self.g.gpu.attention.l2_fraction) // each)
        place = np.arange(count * len(parts)) % self.g.gpu.multiprocessors

        def longest(n: int) -> float:
            return float(np.bincount(place, np.tile(np.repeat(parts, n), count // n)).max())

        return min((n for n in range(1, min(count, most) + 1) if count % n == 0), key=longest)

    def fetch(self, reader: BlockRV, which: int, at: LoopRV) -> None:
        """Copy an operand to shared memory by TMA, with the stages inlined that pad it."""
        sch = self.sch
        copy = sch.cache_read(reader, which, "shared.dyn")
        for producer in sch.get_producers(copy):
            if producer.key not in self.before:
                sch.compute_inline(producer)
        sch.compute_at(copy, at, preserve_unit_loops=True)
        rank = len(sch.get(copy).writes[0].buffer.shape)
        sch.annotate(sch.blockize(sch.get_loops(copy)[-rank]), BULK_COPY, 1)

    def scopes(self, blocks: dict[str, BlockRV]) -> None:
        for role, scope in (
            *(
                (r, _LANE)
                for r in ("start_highest", "start_total", "highest", "correction", "shift", "total", "share")
            ),
            *((r, _FRAGMENT) for r in ("start_sum", "scores", "logits", "weights")),
            ("narrow", _OPERAND),
        ):
            self.sch.set_scope(blocks[role], 0, scope)

    def spread(self, blocks: dict[str, BlockRV]) -> None:
        """Bind the elementwise stages to the threads that hold the elements."""
        sch = self.sch
        for role in ("highest", "total"):
            init = sch.decompose_reduction(blocks[role], sch.get_loops(blocks[role])[-3])
            self.rows(init)
        for role in (
            "start_highest",
            "start_total",
            "correction",
            "shift",
            "keep_highest",
            "keep_total",
            "share",
        ):
            self.rows(blocks[role])
        for role in ("logits", "weights", "corrected"):
            self.pairs(blocks[role])

    def rows(self, block: BlockRV) -> None:
        """Bind a value for each row to threads: each has rows eight apart, and four threads hold the same row."""
        sch = self.sch
        i, lane = sch.get_loops(block)[-2:]
        warp, half, row = sch.split(i, [4, 2, 8])
        sch.reorder(warp, row, lane, half)
        sch.bind(sch.fuse(warp, row, lane), "threadIdx.x")

    def pairs(self, block: BlockRV, wide: int = 2, vector: bool = False) -> None:
        """Bind elements to threads: each has pairs (or `wide` neighbours), in rows eight apart."""
        sch = self.sch
        i, j = sch.get_loops(block)[-2:]
        warp, half, row = sch.split(i, [4, 2, 8])
        eight, quad, pair = sch.split(j, [None, 4, wide])
        sch.reorder(warp, row, quad, eight, half, pair)
        sch.bind(sch.fuse(warp, row, quad), "threadIdx.x")
        if vector:
            sch.vectorize(pair)

    def after(self) -> list[BlockRV]:
        """The stages of the epilogue: one that computes, and one that transposes the results."""
        consumer = self.g.fusable_consumer(self.f)
        last = self.f if consumer is None else facts_of(self.sch, consumer)
        out = [] if consumer is None else [consumer]
        readers = [] if self.g.is_output(last) else self.sch.get_consumers(last.rv)
        c = facts_of(self.sch, readers[0]) if len(readers) == 1 else None
        if c is None or c.kind != "injective" or len(c.reads) != 1 or c.write is None:
            return out
        moved = [i for i in c.reads[0].indices if i in {a.var for a in c.spatial}]
        same = len(moved) == len(c.spatial) == len(set(moved)) == len(c.reads[0].indices)
        body: Any = c.block.body
        if not same or not isinstance(body.value, BufferLoad) or body.indices[-1] is not moved[-1]:
            return out
        self.row = list(body.indices).index(moved[-2])
        return [*out, readers[0]]

    def store(
        self, chain: list[BlockRV], group: LoopRV, across: int, intrinsics: dict[str, str]
    ) -> list[BlockRV]:
        """Move the blocks that make the results under the loop over warpgroups. 16-bit results are transposed between
        threads first, so that each stores eight at a time."""
        sch = self.sch
        last = chain[-1]
        written = sch.get(last).writes[0].buffer
        whole = (
            self.a.size(self.a.row) % (64 * self.parts.groups) == 0 and self.a.size(self.a.column) == across
        )
        transposed = str(written.dtype) == str(self.a.q.buffer.dtype) and whole and "turn" in intrinsics
        moved = self.row is not None
        kept = chain[-2] if transposed and moved and len(chain) > 1 else last
        for block in chain[: chain.index(kept)] if transposed and moved else chain[:-1]:
            sch.compute_inline(block)
        made = [last]
        if transposed and moved:
            sch.set_scope(kept, 0, _FRAGMENT)
            made = [kept, sch.cache_read(last, 0, "wgmma.rows"), last]
        elif transposed:
            out = sch.cache_write(last, 0, _FRAGMENT)
            made = [last, sch.cache_read(out, 0, "wgmma.rows"), out]
        for block in made:
            sch.reverse_compute_at(block, group, preserve_unit_loops=True)
        if self.row is not None:
            rank = len(written.shape)
            loops = sch.get_loops(last)[-rank:]
            sch.reorder(
                *(x for n, x in enumerate(loops) if n not in (self.row, rank - 1)), loops[self.row], loops[-1]
            )
        return made

    def spread_results(self, made: list[BlockRV], intrinsics: dict[str, str]) -> None:
        epilogue, *transposed = made
        if not transposed:
            return self.pairs(epilogue, vector=self.a.size(self.a.column) % 2 == 0)
        rows, out = transposed
        self.pairs(epilogue)
        self.sch.tensorize(self.sch.get_loops(rows)[-2], intrinsics["turn"])
        return self.pairs(out, 8, vector=True)

    def products(
        self, blocks: dict[str, BlockRV], first: dict[str, str], second: dict[str, str], rows: dict[str, str]
    ) -> None:
        sch = self.sch
        sch.tensorize(sch.get_loops(blocks["start_sum"])[-2], second["init"])
        for role, what in (("highest", "max"), ("total", "sum")):
            sch.tensorize(sch.get_loops(blocks[role])[-3], rows[what])
        sch.tensorize(sch.get_loops(blocks["narrow"])[-2], rows["narrow"])
        for role, intrinsic in (("scores", first["compute"]), ("product", rows["compute"])):
            i, j, k = sch.get_loops(blocks[role])[-3:]
            steps, inner = sch.split(k, [None, _LINE])
            sch.reorder(steps, i, j, inner)
            if role == "scores":
                init = sch.decompose_reduction(blocks[role], steps)
                sch.tensorize(sch.get_loops(init)[-2], first["init"])
            sch.unroll(steps)
            sch.tensorize(i, intrinsic)
