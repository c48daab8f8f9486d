"""float32 products without tensor cores: large register tiles, whose threads copy operands some steps ahead.

    thread block   rows x columns of the results; both operands are in shared memory, contiguous along the results,
                   some steps of the reduction ahead (cp.async)
    warp           lanes x 32 / lanes threads
    thread         a register tile of high x wide results, in vectors of four

Every thread reads vectors of four elements. The threads of a warp read from different banks, or the same vector. An
operand that is copied in vectors keeps its pieces of 128 bytes whole and is swizzled (`permuted_layout`). In an operand
that the copy transposes, the first vectors of all threads are contiguous, then the second ones, and so on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ....ir.expr import const_value
from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule.primitive import BlockRV, LoopRV
from ....tir.transform.inject_permuted_layout import PERMUTED
from ....tir.transform.inject_software_pipeline import GUARDED
from ....tir.transform.run_back_and_forth import BACK_AND_FORTH
from ...cost.gpu import Counts
from .product import Product, Sketch, Tile, split_counts
from .product_rule import ProductRule, Source

__all__ = ["PARTS", "Simt", "ThreadTile", "Threads", "simt_counts", "tiles_of", "too_small"]

_WIDE = 4  # elements of a vector load: 16 bytes
_SPREAD = (16, 8)  # steps that neighbouring threads transpose: the first number that divides the depth


@dataclass(frozen=True, slots=True)
class ThreadTile(Tile):
    """A tile of results with register tiles of `high` x `wide`; a warp is `lanes` threads high."""

    high: int = 8
    wide: int = 16
    lanes: int = 8

    @property
    def threads(self) -> int:
        return self.rows * self.columns // (self.high * self.wide)

    @property
    def can_fetch(self) -> bool:
        """Whether all threads copy the same number of elements in a step."""
        each = [(size, self.threads // size) for size in (self.rows, self.columns)]
        return all(
            self.depth % high == 0 if high else size * self.depth % self.threads == 0 for size, high in each
        )

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a thread block, with padding against bank conflicts."""
        return self.stages * self.depth * (self.rows + self.columns + 16) * 4


# The sides of a tile, and of the register tile of a thread.
_SHAPES = (
    (128, 128, 8, 8),
    (128, 64, 8, 8),
    (64, 128, 8, 8),
    (64, 64, 8, 8),
    (64, 64, 8, 4),
    (32, 64, 4, 8),
)

_MORE_SHAPES = (
    (128, 128, 8, 8), (128, 256, 8, 16), (256, 128, 16, 8), (64, 128, 8, 16), (64, 128, 4, 8), (32, 128, 4, 8),
    (128, 64, 8, 4), (64, 32, 8, 4), (32, 64, 4, 4), (32, 32, 4, 4),
)  # fmt: skip
PARTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)  # parts of split-K


class Simt(ProductRule):
    """Register tiles of about 8 x 8 results."""

    name = "SIMT"
    sketch = "large tile"
    needs = frozenset({"cp.async", "shared_memory"})
    types = ("float32",)
    tile = ThreadTile
    dynamic_rows = True

    def refusal(self, p: Product, target: Target) -> str:
        return too_small(p, target.gpu)

    def tiles(self, p: Product, target: Target, source: Source, finer: bool) -> list[ThreadTile]:
        coarse = possible_thread_tiles(p, target.gpu, source.depth)
        return all_thread_tiles(p, target.gpu, source.depth, coarse) if finer else coarse

    def counts(self, p: Product, t: Any, gpu: GpuMachine) -> Counts:
        return thread_counts(p, t, gpu)

    def steps(self, *given: Any) -> Sketch:
        return Threads(*given)

    def margins(self, p: Product, target: Target) -> dict[str, float]:
        return {"prior": target.gpu.simt.prior} if target.has("tma") and target.has("setmaxnreg") else {}


def too_small(p: Product, gpu: GpuMachine) -> str:
    """Why a product is too small for large register tiles; empty if it is not. A long reduction, which split-K gives to
    many thread blocks, is worth tiles that are mostly padding: other kernels go through it step by step."""
    least, results = gpu.simt, p.m.extent * p.n.extent * p.batch
    few = results < least.least_results or min(p.m.extent, p.n.extent) < least.least_side
    small = few and p.k.extent < least.long_depth
    return (
        "there are too few results for tiles in registers" if small or p.k.extent < least.least_depth else ""
    )


# ---------------------------------------------------------------------------- sizes
def all_thread_tiles(
    p: Product, gpu: GpuMachine, depth: int, tiles: Sequence[ThreadTile]
) -> list[ThreadTile]:
    """More tiles than zero-trial schedules are chosen from."""
    found = list(tiles)
    seen = set(found)
    for rows, columns, high, wide in (*_SHAPES, *_MORE_SHAPES):
        if rows >= 2 * max(32, p.m.extent) or columns >= 2 * max(64, p.n.extent):
            continue
        for deep, parts in product((depth, 2 * depth, *([depth // 2] if depth % 16 == 0 else [])), PARTS):
            steps = -(-p.k.extent // (deep * parts))
            if steps < (4 if parts > 1 else 1):
                continue
            for stages, lanes in product(range(2, max(3, min(6, steps + 1))), (8, 4)):
                tile = ThreadTile(rows, columns, stages, parts, 2, deep, high, wide, lanes)
                if tile not in seen and tile.can_fetch and tile.shared <= gpu.dynamic_shared_memory_per_block:
                    found.append(tile)
                    seen.add(tile)
    return found


def possible_thread_tiles(p: Product, gpu: GpuMachine, depth: int) -> list[ThreadTile]:
    """Tiles that are not much larger than the results, with each split-K whose parts are long enough."""
    found: list[ThreadTile] = []
    steps = -(-p.k.extent // depth)
    for rows, columns, high, wide in _SHAPES:
        if rows > 2 * max(32, p.m.extent) or columns > 2 * max(64, p.n.extent):
            continue
        for parts in PARTS:
            if parts > 1 and steps < 4 * parts:
                break
            large = rows * columns >= gpu.simt.large_tile
            most = gpu.simt.stages_of_large if large else gpu.simt.stages
            stages = max(2, min(most, steps // parts))
            tile = ThreadTile(rows, columns, stages, parts, 2, depth, high, wide)
            if tile.can_fetch and tile.shared <= gpu.dynamic_shared_memory_per_block:
                found.append(tile)
    return found


def thread_counts(p: Product, t: Tile, gpu: GpuMachine) -> Counts:
    """The work of a product by threads."""
    assert isinstance(t, ThreadTile)
    w, limits = gpu.simt, gpu.limits
    # Thread blocks that an SM holds at once, by registers, shared memory and threads.
    registers = _registers(t, gpu)
    at_once = max(
        1,
        min(
            limits.registers // (registers * t.threads),
            limits.blocks_by_shared(t.shared),
            limits.threads // t.threads,
        ),
    )
    rounds = -(-tiles_of(p, t) // gpu.multiprocessors)
    at_once = min(at_once, rounds)
    warps = at_once * t.threads / 32
    # Few warps, or small register tiles, do not hide the latency of shared memory. Even at best some instructions do
    # not multiply, and registers have bank conflicts. With few tiles the latency of DRAM has to be hidden, by warps
    # alone.
    own = t.high * t.wide
    if p.m.extent * p.n.extent * p.batch < w.few_results * gpu.multiprocessors:
        reached = min(1.0, w.few_rate + w.few_rate_per_warp * warps)
    else:
        reached = w.rate * (1 - math.exp(-warps * min(w.hiding_results, own) / 64 / w.hiding))
    reached /= 1 + w.load_cost * (t.high + t.wide) / own  # the instructions that load
    return simt_counts(p, t, gpu, reached, at_once, rounds, t.threads, registers)


def _registers(t: ThreadTile, gpu: GpuMachine) -> int:
    """The registers of a thread: its register tile, two sets of operands, and addresses."""
    return gpu.tile.other_registers + t.high * t.wide + 2 * (t.high + t.wide)


def tiles_of(p: Product, t: Tile) -> int:
    return -(-p.m.extent // t.rows) * -(-p.n.extent // t.columns) * p.batch * t.parts


def simt_counts(
    p: Product,
    t: ThreadTile,
    gpu: GpuMachine,
    reached: float,
    at_once: int,
    rounds: float,
    threads: int,
    registers: int,
) -> Counts:
    """The work of a float32 product: `reached` is the fraction of the peak multiply-adds, `rounds` the number of tiles
    of the busiest SM, `at_once` how many of them it works on at the same time; `threads` of a block and `registers`
    of a thread."""
    w = gpu.simt
    steps = -(-p.k.extent // (t.depth * t.parts))
    fetched = (t.rows + t.columns) * 4
    return Counts(
        rounds=rounds,
        steps=steps,
        compute=t.depth * (t.rows * t.columns / gpu.fma_per_cycle / reached),
        l2=t.depth * (fetched / (gpu.dram_bytes * w.kernel.l2_ratio)),
        overhead=w.step,
        ends=t.rows * t.columns / w.store_rate + w.store / at_once,
        launch=w.kernel.launch,
        dram=4 * p.batch * (p.m.extent * p.k.extent + p.k.extent * p.n.extent / p.windows),
        dram_rate=w.kernel.dram_rate,
        dram_launch=w.kernel.dram_launch,
        **split_counts(p, p.m.extent * p.n.extent, t.parts, w.kernel),
        blocks=tiles_of(p, t),
        at_once=at_once,
        threads=threads,
        registers=registers,
        shared_bytes=t.shared,
        l2_bytes=fetched * t.depth * steps * tiles_of(p, t),
    )


# ---------------------------------------------------------------------------- the sketch
class Threads(Sketch):
    fragment = "local"
    asynchronous = True  # copies to shared memory overlap with arithmetic
    tile: ThreadTile

    def apply(self) -> dict[str, Any]:
        sch, p, t = self.sch, self.p, self.tile
        reads = [r.buffer for r in self.f.block.reads]
        self.operands = reads.index(p.a), reads.index(p.b)
        epilogue, loops = self.prepare()
        down, across = t.rows // (t.high * t.lanes), t.columns // (t.wide * 32 // t.lanes)
        self.warps = down * across
        i, i1, i2, i3, i4 = sch.split(loops[p.m.var], [None, down, t.lanes // 2, 2, t.high])
        j, j1, j2, j3 = sch.split(loops[p.n.var], [None, across, 32 // t.lanes, t.wide])
        depth, k = sch.split(loops[p.k.var], [None, t.depth])
        # Neighbouring lanes share a column, lanes two apart a row: each is read from shared memory once. The short side
        # of the register tile is the innermost: the compiler then finds registers without bank conflicts.
        own = (i4, j3) if t.high > t.wide else (j3, i4)
        blocks = self.tiles(i, j, loops, i1, j1, i2, j2, i3, depth, k, *own)
        warp, lane = sch.fuse(i1, j1), sch.fuse(i2, j2, i3)
        for loop, axis in ((blocks, "blockIdx.x"), (warp, "threadIdx.y"), (lane, "threadIdx.x")):
            sch.bind(loop, axis)
        copies = [self.fetch(which, depth) for which in (0, 1)]
        for which in (0, 1):
            self.load(which, k)
        for x in (k, i4, j3):
            sch.unroll(x)
        sch.annotate(own[1], BACK_AND_FORTH, 1)
        # CUDA's compiler unrolls this loop: the source would grow by thousands of lines.
        sch.annotate(k, "pragma_unroll_explicit", 0)
        # The operands of the next step are loaded from shared memory while this one is multiplied.
        sch.annotate(k, "software_pipeline_stage", [0, 0, 1])
        sch.annotate(k, "software_pipeline_order", [0, 1, 2])
        sch.annotate(depth, "software_pipeline_stage", [0, 0, t.stages - 1])
        sch.annotate(depth, "software_pipeline_order", [0, 1, 2])
        sch.annotate(depth, GUARDED, 1)  # the code of a step is large
        if self.asynchronous:
            sch.annotate(depth, "software_pipeline_async_stages", [0])
        sch.reverse_compute_at(epilogue, lane, preserve_unit_loops=True)
        self.out(epilogue)
        sch.decompose_reduction(self.block, depth)
        for which, copy in enumerate(copies):
            self.lay(which, copy)
        return {
            "tile": f"{t.rows} x {t.columns} x {t.depth}",
            "stages": t.stages,
            "threads": t.threads,
            **({"split-K": t.parts} if t.parts > 1 else {}),
            "register tile": f"{t.high} x {t.wide}",
        }

    def along(self, which: int) -> bool:
        """Whether an operand is contiguous along the reduction."""
        return self.p.trans_b if which else not self.p.trans_a

    def contiguous(self, which: int) -> bool:
        """Whether an operand can be copied in vectors of four."""
        b = self.p.b if which else self.p.a
        sizes = [const_value(s) for s in b.dense_strides()[:-1]]
        return all(s is not None and int(s) % _WIDE == 0 for s in sizes)

    def fetch(self, which: int, depth: LoopRV) -> BlockRV:
        """Copy the tile of an operand for a step to shared memory, by all threads of the block together."""
        sch = self.sch
        whole = self.contiguous(which)
        copy = self.inputs(self.operands[which], "shared.dyn")
        sch.compute_at(copy, depth, preserve_unit_loops=True)
        a, b = sch.get_loops(copy)[-2:]
        size = self.tile.columns if which else self.tile.rows
        spread = next((n for n in _SPREAD if self.tile.depth % n == 0), 0)
        if self.along(which) and not spread:  # transposed by the copy
            if size * self.tile.depth % self.tile.threads:
                several, warp, lane = self.gathered(b, a)
            else:
                several, warp, lane = sch.split(sch.fuse(a, b), [None, self.warps, 32])
        elif self.along(which):  # short pieces of some rows, which go to different banks
            line, step = sch.split(a, [None, 32 // spread]), sch.split(b, [None, spread])
            sch.reorder(step[0], line[0], line[1], step[1])
            several, warp = sch.split(sch.fuse(step[0], line[0]), [None, self.warps])
            lane = sch.fuse(line[1], step[1])
        elif whole:
            several, warp, lane, vector = sch.split(sch.fuse(a, b), [None, self.warps, 32, _WIDE])
            sch.vectorize(vector)
        else:
            several, warp, lane = self.gathered(a, b)
        sch.bind(warp, "threadIdx.y")
        sch.bind(lane, "threadIdx.x")
        sch.unroll(several)
        return copy

    def gathered(self, k: LoopRV, x: LoopRV) -> tuple[LoopRV, LoopRV, LoopRV]:
        """Distribute a copy so that each thread stays with one column of all rows: its address is computed once."""
        sch, size = self.sch, int(const_value(self.sch.get(x).extent) or 1)
        high = self.tile.threads // size
        if high and self.tile.depth % high == 0:
            first, several = sch.split(k, [high, None])
            sch.reorder(first, x, several)
            warp, lane = sch.split(sch.fuse(first, x), [None, 32])
            return several, warp, lane
        several, warp, lane = sch.split(sch.fuse(k, x), [None, self.warps, 32])
        return several, warp, lane

    def load(self, which: int, step: LoopRV) -> None:
        """Load the operands of a thread for one step from shared memory into registers."""
        sch = self.sch
        copy = sch.cache_read(self.block, self.operands[which], "local")
        sch.compute_at(copy, step, preserve_unit_loops=True)
        a, b = sch.get_loops(copy)[-2:]
        k, x = (b, a) if self.along(which) else (a, b)
        some, vector = sch.split(x, [None, _WIDE])
        sch.reorder(k, some, vector)
        sch.vectorize(vector)
        sch.unroll(some)

    def lay(self, which: int, copy: BlockRV) -> None:
        """Lay an operand out in shared memory: elements that are read together are in different banks."""
        sch, along = self.sch, self.along(which)
        own, size = (self.tile.wide, self.tile.columns) if which else (self.tile.high, self.tile.rows)
        if not along and self.contiguous(which) and own > _WIDE and size % 32 == 0:
            # Copied in vectors: pieces of 128 bytes stay whole, because the hardware writes them at once.
            sch.annotate(copy, PERMUTED, own // _WIDE)
            return

        def place(*at: Any) -> tuple[Any, ...]:
            *others, k, x = (*at[:-2], at[-1], at[-2]) if along else at
            return (*others, k, x % own // _WIDE, x // own * _WIDE + x % _WIDE)

        sch.transform_layout(copy, ("write", 0), place)
        if along:
            sch.storage_align(copy, 0, axis=-3, factor=32, offset=4)
        elif own > 8:
            sch.storage_align(copy, 0, axis=-2, factor=32, offset=8)

    def out(self, epilogue: BlockRV) -> None:
        sch = self.sch
        *_, i, j = sch.get_loops(epilogue)
        some, wide = sch.split(j, [None, _WIDE])
        if self.p.n.extent % _WIDE == 0:
            sch.vectorize(wide)
        sch.unroll(i)
        sch.unroll(some)
