"""float32 products without tensor cores, whose operands TMA copies to shared memory.

    thread block   rows x columns of the results; a warpgroup of its own starts the TMA copies of both operands, in the
                   layout that they have in memory, some steps of the reduction ahead
    warp           lanes x 32 / lanes threads
    thread         a register tile of high x wide results

An operand that is contiguous along the results is read in vectors of four results: a thread has several such vectors,
and those of neighbouring threads are contiguous. An operand that is contiguous along the reduction is read in vectors
of four steps: neighbouring threads have neighbouring rows, and the copies swizzle these to avoid bank conflicts. That
is slower, so a separate kernel transposes such an operand where this takes less time than it saves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from ....arith import Analyzer
from ....ir.expr import Var, const_value
from ....ir.stmt import Block, BufferStore
from ....target import Target
from ....target.gpu_machine import GpuMachine, TileRate, register_split
from ....tir.schedule.primitive import BlockRV, LoopRV
from ....tir.transform.bulk_views import guarded_load, only_ends
from ....tir.transform.lower_bulk_copies import BULK_COPY, THREADS
from ....tir.transform.run_back_and_forth import BACK_AND_FORTH
from ....tir.transform.specialize_warps import MIN_BLOCKS, SPECIALIZE
from ...cost.gpu import Counts
from ..rule import Refusal
from .product import Product, Sketch, Tile, can_be_copied
from .product_rule import ProductRule, Source, Way
from .simt import PARTS, ThreadTile, simt_counts, tiles_of, too_small

__all__ = ["SimtTma", "TmaThreads", "possible_tma_tiles"]

_WIDE = 4  # elements of a vector load: 16 bytes
_STAGES = (4, 3, 2)  # stages of the pipeline, the best first
_DEPTH = 16  # depth of a tile: rows of 64 bytes of an operand that is contiguous along the reduction


# The sides of a tile, the register tile of a thread, and how many threads of a warp are above each other.
_SHAPES = ((256, 128, 16, 8, 4), (128, 64, 8, 8, 8), (64, 128, 8, 8, 8), (64, 64, 8, 4, 8))


class SimtTma(ProductRule):
    """Register tiles, with a warpgroup of its own that starts the TMA copies."""

    name = "SIMT with TMA"
    sketch = "large tile"
    needs = frozenset({"cp.async", "tma", "setmaxnreg", "shared_memory"})
    types = ("float32",)
    tile = ThreadTile
    no_way = "TMA cannot copy its operands"

    def refusal(self, p: Product, target: Target) -> str:
        small = min(p.m.extent, p.n.extent) <= target.gpu.tma_simt.least_side
        return too_small(p, target.gpu) or ("most of a tile would be padding" if small else "")

    def ways(self, p: Product, target: Target) -> list[Way]:
        """The product as it is, and with the operands transposed that are contiguous along the reduction."""
        out = []
        for a, b in product((False, True), repeat=2):
            if (a and p.trans_a) or (b and not p.trans_b):
                continue
            made = replace(p, trans_a=p.trans_a or a, trans_b=p.trans_b and not b)
            sides = tuple(x for x, transposed in ((p.a, a), (p.b, b)) if transposed)
            if _copied(made):
                out.append(Way(made, sides, False))
        return out

    def tiles(self, p: Product, target: Target, source: Source, finer: bool) -> list[ThreadTile]:
        possible = possible_tma_tiles(p, target.gpu)
        if not finer:
            return possible
        return [replace(t, stages=n) for t, n in product(possible, _STAGES) if n <= t.stages]

    def counts(self, p: Product, t: Any, gpu: GpuMachine) -> Counts:
        return tma_counts(p, t, gpu)

    def steps(self, *given: Any) -> Sketch:
        return TmaThreads(*given)


def _copied(p: Product) -> bool:
    """Whether TMA can copy both operands: the rows of transposed ones must begin at multiples of 16 bytes as well."""
    sizes = (p.m.extent if p.trans_a else p.k.extent, p.k.extent if p.trans_b else p.n.extent)
    return all(n % _WIDE == 0 for n in sizes) and can_be_copied(p.a) and can_be_copied(p.b)


# ---------------------------------------------------------------------------- sizes
def possible_tma_tiles(p: Product, gpu: GpuMachine) -> list[ThreadTile]:
    """Tiles that are not much larger than the results, with each split-K whose parts are long enough."""
    found = []
    steps = -(-p.k.extent // _DEPTH)
    for rows, columns, high, wide, lanes in _SHAPES:
        small = (rows, columns) == _SHAPES[-1][:2]
        if not small and (rows >= 2 * max(64, p.m.extent) or columns >= 2 * max(64, p.n.extent)):
            continue
        stages = next((n for n in _STAGES if _fits(rows, columns, n, gpu)), 0)
        for parts in PARTS if stages else ():
            if parts > 1 and steps < 4 * parts:
                break
            blocks = _reached(rows, columns, gpu).blocks
            found.append(ThreadTile(rows, columns, stages, parts, blocks, _DEPTH, high, wide, lanes))
    return found


def _reached(rows: int, columns: int, gpu: GpuMachine) -> TileRate:
    """The rate that tiles of a shape reach."""
    return next(r for r in gpu.tma_simt.tiles if (r.rows, r.columns) == (rows, columns))


def _fits(rows: int, columns: int, stages: int, gpu: GpuMachine) -> bool:
    """Whether a thread block has the shared memory that it needs. If so, an SM has room for `blocks` of them on every
    known GPU."""
    need = stages * _DEPTH * (rows + columns) * 4 + gpu.tma_simt.reserved_shared
    return need <= gpu.dynamic_shared_memory_per_block


def tma_counts(p: Product, t: Tile, gpu: GpuMachine) -> Counts:
    """The work of a product whose operands TMA copies."""
    assert isinstance(t, ThreadTile)
    w, shape = gpu.tma_simt, _reached(t.rows, t.columns, gpu)
    rounds = _rounds(p, t, gpu)
    at_once = min(t.per_processor, math.ceil(rounds))
    warps = at_once * t.threads / 32
    rate = shape.slower if p.trans_b or not p.trans_a else shape.rate
    # few warps do not hide the latency of shared memory
    reached = rate * min(1.0, w.rate + w.rate_per_warp * warps)
    # A warpgroup of its own copies.
    registers = register_split(t.threads // 128, t.per_processor)[1]
    return simt_counts(p, t, gpu, reached, at_once, rounds, t.threads + 128, registers)


def _rounds(p: Product, t: Tile, gpu: GpuMachine) -> float:
    """The number of tiles of the busiest SM. If more tiles are left than there are SMs, an SM with room for several
    gets several though others are idle; a tile that runs alone at the end takes longer."""
    whole, left = divmod(tiles_of(p, t), t.per_processor * gpu.multiprocessors)
    alone = 1.0 if t.per_processor == 1 or not whole else gpu.tma_simt.lone_tile
    last = t.per_processor if left > gpu.multiprocessors else alone if left else 0
    return whole * t.per_processor + last


# ---------------------------------------------------------------------------- the sketch
def _not_a_box(copy: Block) -> str:
    """Why TMA cannot make a copy of an operand, with the stages that pad it inlined; empty if it can."""
    loaded = guarded_load(copy.body.value) if isinstance(copy.body, BufferStore) else "it copies nothing"
    if isinstance(loaded, str):
        return f"{copy.name_hint} cannot be copied by TMA: {loaded}"
    load, conditions = loaded
    if not all(isinstance(e, Var) or const_value(e) is not None for e in load.indices):
        return f"{copy.name_hint} cannot be copied by TMA: it gathers elements of {load.buffer.name}"
    beyond = only_ends(Analyzer(), conditions, load.indices, load.buffer.shape)
    if beyond is not None:
        return f"{copy.name_hint} cannot be copied by TMA: `{beyond}` is not where a tensor ends"
    return ""


class TmaThreads(Sketch):
    fragment = "local"
    tile: ThreadTile

    def apply(self) -> dict[str, Any] | Refusal:
        sch, p, t = self.sch, self.p, self.tile
        reads = [r.buffer for r in self.f.block.reads]
        self.operands = reads.index(p.a), reads.index(p.b)
        epilogue, loops = self.prepare()
        copies = []
        for at in self.operands:
            copy = self.copied(at)
            if isinstance(copy, Refusal):
                return copy
            copies.append(copy)
        in_registers = [self.in_registers(which) for which in (0, 1)]
        (i, i1, *i_own), i_lane = self.divided(loops[p.m.var], 0)
        (j, j1, *j_own), j_lane = self.divided(loops[p.n.var], 1)
        depth, quad, k = sch.split(loops[p.k.var], [None, t.depth // _WIDE, _WIDE])
        # The short side is the innermost, as in products whose threads do the copies (simt.py).
        own = [*i_own, *j_own] if t.high > t.wide else [*j_own, *i_own]
        lanes = [i_lane[0], *j_lane, i_lane[1]]
        blocks = self.tiles(i, j, loops, i1, j1, *lanes, depth, quad, k, *own)
        self.bind([i1, j1], lanes)
        sch.bind(blocks, "blockIdx.x")
        for which, copy in enumerate(in_registers):
            sch.compute_at(copy, quad if self.along(which) else k, preserve_unit_loops=True)
            *_, some, four = sch.get_loops(copy)
            sch.vectorize(four)
            sch.unroll(some)
        for copy in copies:
            sch.compute_at(copy, depth, preserve_unit_loops=True)
            sch.annotate(sch.blockize(sch.get_loops(copy)[-2]), BULK_COPY, THREADS)
        for x in (quad, k, *own):
            sch.unroll(x)
        sch.annotate(own[-1], BACK_AND_FORTH, 1)
        # CUDA's compiler unrolls this loop: the source would grow by thousands of lines.
        sch.annotate(quad, "pragma_unroll_explicit", 0)
        sch.annotate(depth, SPECIALIZE, t.stages)
        sch.reverse_compute_at(epilogue, blocks, preserve_unit_loops=True)
        self.out(epilogue)
        if t.per_processor > 1:
            sch.annotate(epilogue, MIN_BLOCKS, t.per_processor)
        sch.decompose_reduction(self.block, depth)
        sch.transform_layout(self.block, ("write", 0), self.placed)
        return {
            "tile": f"{t.rows} x {t.columns} x {t.depth}",
            "stages": t.stages,
            "threads": t.threads + 128,
            **({"split-K": t.parts} if t.parts > 1 else {}),
            "register tile": f"{t.high} x {t.wide}",
            "copies": "TMA",
        }

    def copied(self, operand: int) -> BlockRV | Refusal:
        """A copy of an operand in shared memory; refused if TMA cannot make it."""
        copy = self.inputs(operand, "shared.dyn")
        why = _not_a_box(self.sch.get(copy))
        return Refusal(why, near=True) if why else copy

    def along(self, which: int) -> bool:
        """Whether an operand is contiguous along the reduction."""
        return self.p.trans_b if which else not self.p.trans_a

    def side(self, which: int) -> tuple[int, int, int]:
        """For a side of the results: the size of a tile, the size of a register tile, and the threads of a warp."""
        t = self.tile
        return (t.columns, t.wide, 32 // t.lanes) if which else (t.rows, t.high, t.lanes)

    def divided(self, x: LoopRV, which: int) -> tuple[list[LoopRV], list[LoopRV]]:
        """Split a side of the results: the loops over tiles, warps and the register tile; and those over threads."""
        size, own, lanes = self.side(which)
        warps = size // (own * lanes)
        beside = [lanes] if which else [lanes // 2, 2]
        if self.along(which):
            outer, warp, each, *threads = self.sch.split(x, [None, warps, own, *beside])
            return [outer, warp, each], threads
        outer, warp, some, *threads, four = self.sch.split(x, [None, warps, own // _WIDE, *beside, _WIDE])
        return [outer, warp, some, four], threads

    def bind(self, warps: Sequence[LoopRV], lanes: Sequence[LoopRV]) -> None:
        """Bind warps and lanes. Neighbouring lanes share a column, lanes two apart a row: each is read from shared
        memory once."""
        self.sch.bind(self.sch.fuse(*warps), "threadIdx.y")
        self.sch.bind(self.sch.fuse(*lanes), "threadIdx.x")

    def place(self, which: int, x: Any) -> tuple[Any, ...]:
        """The index of a row or a column as warp, thread and position in the register tile."""
        _, own, lanes = self.side(which)
        if self.along(which):
            return x // (own * lanes), x % lanes, x // lanes % own
        some = lanes * _WIDE
        return x // (own * lanes), x % some // _WIDE, x // some % (own // _WIDE), x % _WIDE

    def placed(self, *at: Any) -> tuple[Any, ...]:
        """The index of a result by the thread that holds it."""
        *others, i, j = at
        return (*others, *self.place(0, i), *self.place(1, j))

    def in_registers(self, which: int) -> BlockRV:
        """A copy of an operand in registers, laid out by thread."""
        sch, along = self.sch, self.along(which)
        copy = sch.cache_read(self.block, self.operands[which], "local")

        def place(*its: Any) -> tuple[Any, ...]:
            *others, a, b = its
            return (*others, *self.place(which, a), b) if along else (*others, a, *self.place(which, b))

        sch.transform_layout(copy, ("write", 0), place)
        sch.transform_block_layout(copy, place)
        return copy

    def out(self, epilogue: BlockRV) -> None:
        """Schedule the epilogue: each thread stores the results that it holds."""
        sch = self.sch
        i, j = sch.get_loops(epilogue)[-2:]
        (i, i1, *i_own), i_lane = self.divided(i, 0)
        (j, j1, *j_own), j_lane = self.divided(j, 1)
        lanes = [i_lane[0], *j_lane, i_lane[1]]
        sch.reorder(i, j, i1, j1, *lanes, *i_own, *j_own)
        self.bind([i1, j1], lanes)
        if not self.along(1) and self.p.n.extent % _WIDE == 0:
            sch.vectorize(j_own.pop())
        for x in (*i_own, *j_own):
            sch.unroll(x)
