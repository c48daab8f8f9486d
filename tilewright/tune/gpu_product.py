"""A sketch for float32 matrix products on GPUs without tensor cores: large register tiles.

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
from typing import TYPE_CHECKING, Any

from ..ir.errors import ScheduleError
from ..ir.expr import const_value
from ..target.machine import GpuMachine
from ..tir.schedule.primitive import BlockRV, LoopRV
from ..tir.transform.inject_permuted_layout import PERMUTED
from ..tir.transform.inject_software_pipeline import GUARDED
from ..tir.transform.run_back_and_forth import BACK_AND_FORTH
from .gpu_space import Table, product_table
from .gpu_tensor import Product, Sketch, Tile
from .program.facts import Facts

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = [
    "PARTS",
    "ThreadTile",
    "Threads",
    "applied",
    "best_thread_tile",
    "by_threads",
    "can_run",
    "cycles_of",
    "thread_cycles",
    "thread_table",
    "tiles_of",
]

_WIDE = 4  # elements of a vector load: 16 bytes
_BEST = 0.7  # fraction of the peak multiply-adds of an SM that is reached at best
_HIDING = 2.4  # warps with 8 x 8 results for each thread, at which 1 - 1/e of `_BEST` is reached
_FEW = 4096  # results for each SM, below which there are few tiles
_RESULTS = 4096  # results of a product that is worth register tiles, at least
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


def by_threads(g: GpuFunction, f: Facts, p: Product, after: BlockRV | None = None) -> dict[str, Any]:
    """Schedule a product with register tiles, whose threads copy operands some steps ahead."""
    can_run(g, p)
    gpu = g.target.gpu
    tile = g.choose(f, "threads", best_thread_tile(p, gpu, 16), lambda: thread_table(p, gpu, 16))
    return applied(Threads, g, f, p, tile, after)


def applied(
    sketch: type[Threads], g: GpuFunction, f: Facts, p: Product, tile: ThreadTile, after: BlockRV | None
) -> dict[str, Any]:
    """Apply a sketch; without split-K if that is refused (threads that add the parts would write the same result)."""
    try:
        with g.sch.all_or_nothing():
            return sketch(g, f, p, tile, after).apply()
    except ScheduleError:
        if tile.parts == 1:
            raise
    tile = best_thread_tile(p, g.target.gpu, tile.depth, (1,))
    return sketch(g, f, p, tile, after).apply()


def can_run(g: GpuFunction, p: Product) -> None:
    """Refuse targets without asynchronous copies to shared memory, and products that are too small."""
    number = int("".join(filter(str.isdigit, g.target.gpu.arch)) or 0)
    if g.target.kind.name != "cuda" or number < 80:
        raise ScheduleError("it has no asynchronous copies")
    if p.m.extent * p.n.extent * p.batch < _RESULTS or min(p.m.extent, p.n.extent) < 8 or p.k.extent < 32:
        raise ScheduleError("there are too few results for tiles in registers")


# ---------------------------------------------------------------------------- sizes
def thread_table(p: Product, gpu: GpuMachine, depth: int) -> Table:
    """All tiles for a product, with their predicted times: more than the zero-trial scheduler chooses from."""
    tiles: list[Tile] = list(possible_thread_tiles(p, gpu, depth))
    seen = set(tiles)
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
                    tiles.append(tile)
    return product_table(tiles, p, gpu, lambda t: thread_cycles(p, t, gpu) / (gpu.clock * 1e9), 128.0)


def best_thread_tile(p: Product, gpu: GpuMachine, depth: int, parts: Sequence[int] = PARTS) -> ThreadTile:
    """The tile with the fewest estimated cycles."""
    possible = possible_thread_tiles(p, gpu, depth, parts)
    if not possible:
        raise ScheduleError(f"no tile can be fetched in steps of {depth}")
    return min(possible, key=lambda t: thread_cycles(p, t, gpu))


def possible_thread_tiles(
    p: Product, gpu: GpuMachine, depth: int, possible: Sequence[int] = PARTS
) -> list[ThreadTile]:
    """Tiles that are not much larger than the results, with each split-K whose parts are long enough."""
    found: list[ThreadTile] = []
    steps = -(-p.k.extent // depth)
    for rows, columns, high, wide in _SHAPES:
        if rows > 2 * max(32, p.m.extent) or columns > 2 * max(64, p.n.extent):
            continue
        for parts in possible:
            if parts > 1 and steps < 4 * parts:
                break
            large = rows * columns >= 128 * 128  # as measured on an H200
            stages = max(2, min(4 if large else 3, steps // parts))
            tile = ThreadTile(rows, columns, stages, parts, 2, depth, high, wide)
            if tile.can_fetch and tile.shared <= gpu.dynamic_shared_memory_per_block:
                found.append(tile)
    return found


def thread_cycles(p: Product, t: Tile, gpu: GpuMachine) -> float:
    """Estimated time of a product, in cycles of an SM."""
    assert isinstance(t, ThreadTile)
    # Thread blocks that an SM holds at once, by registers, shared memory and threads.
    registers = 24 + t.high * t.wide + 2 * (t.high + t.wide)
    at_once = max(1, min(65536 // (registers * t.threads), 220 * 1024 // t.shared, 2048 // t.threads))
    rounds = -(-tiles_of(p, t) // gpu.multiprocessors)
    at_once = min(at_once, rounds)
    warps = at_once * t.threads / 32
    # Few warps, or small register tiles, do not hide the latency of shared memory. Even at best some instructions do
    # not multiply, and registers have bank conflicts. With few tiles the latency of DRAM has to be hidden, by warps
    # alone (seen on an H200).
    own = t.high * t.wide
    if p.m.extent * p.n.extent * p.batch < _FEW * gpu.multiprocessors:
        hidden = min(1.0, 0.45 + 0.07 * warps)
    else:
        hidden = _BEST * (1 - math.exp(-warps * min(96, own) / 64 / _HIDING))
    hidden /= 1 + 0.3 * (t.high + t.wide) / own  # the instructions that load
    return cycles_of(p, t, gpu, hidden, at_once, rounds)


def tiles_of(p: Product, t: Tile) -> int:
    return -(-p.m.extent // t.rows) * -(-p.n.extent // t.columns) * p.batch * t.parts


def cycles_of(p: Product, t: Tile, gpu: GpuMachine, hidden: float, at_once: int, rounds: float) -> float:
    """Estimated cycles of a product: `hidden` is the fraction of the peak multiply-adds that is reached, `rounds` the
    number of tiles of the busiest SM, `at_once` how many of them it works on at the same time."""
    steps = -(-p.k.extent // (t.depth * t.parts))
    # bytes in a cycle for one SM, mostly from the L2 cache
    near = gpu.bandwidth / gpu.clock / gpu.multiprocessors * 1.5
    step = t.depth * max(t.rows * t.columns / 128 / hidden, (t.rows + t.columns) * 4 / near) + 40
    total = rounds * (steps * step + t.rows * t.columns / 32 + 1500 / at_once) + 2500
    unique = 4 * p.batch * (p.m.extent * p.k.extent + p.k.extent * p.n.extent / p.windows)
    total = max(total, unique / (gpu.bandwidth * 0.7) * gpu.clock + 3000)
    if t.parts > 1:  # split-K: partial sums are written, and another kernel reads and adds them
        sums = 8 * p.batch * p.m.extent * p.n.extent * t.parts
        total += 4500 + sums / (gpu.bandwidth * 1.5) * gpu.clock
    return total


# ---------------------------------------------------------------------------- the sketch
class Threads(Sketch):
    fragment = "local"
    asynchronous = True  # copies to shared memory overlap with arithmetic
    tile: ThreadTile

    def apply(self) -> dict[str, Any]:
        sch, p, t = self.sch, self.p, self.tile
        reads = [r.buffer for r in self.f.block.reads]
        self.operands = reads.index(p.a), reads.index(p.b)
        tail, loops = self.prepare()
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
        sch.reverse_compute_at(tail, lane, preserve_unit_loops=True)
        self.out(tail)
        sch.decompose_reduction(self.block, depth)
        for which, copy in enumerate(copies):
            self.lay(which, copy)
        return {
            "tile": f"{t.rows} x {t.columns} x {t.depth}",
            "stages": t.stages,
            "threads": t.threads,
            **({"parts of the sum": t.parts} if t.parts > 1 else {}),
            "results of a thread": f"{t.high} x {t.wide}",
        }

    def along(self, which: int) -> bool:
        """Whether an operand is contiguous along the reduction."""
        return self.p.trans_b if which else not self.p.trans_a

    def in_line(self, which: int) -> bool:
        """Whether an operand can be copied in vectors of four."""
        b = self.p.b if which else self.p.a
        sizes = [const_value(s) for s in b.dense_strides()[:-1]]
        return all(s is not None and int(s) % _WIDE == 0 for s in sizes)

    def fetch(self, which: int, depth: LoopRV) -> BlockRV:
        """Copy the tile of an operand for a step to shared memory, by all threads of the block together."""
        sch = self.sch
        whole = self.in_line(which)
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
        """Lay an operand out in shared memory: elements that are read together lie in different banks."""
        sch, along = self.sch, self.along(which)
        own, size = (self.tile.wide, self.tile.columns) if which else (self.tile.high, self.tile.rows)
        if not along and self.in_line(which) and own > _WIDE and size % 32 == 0:
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

    def out(self, tail: BlockRV) -> None:
        sch = self.sch
        *_, i, j = sch.get_loops(tail)
        some, wide = sch.split(j, [None, _WIDE])
        if self.p.n.extent % _WIDE == 0:
            sch.vectorize(wide)
        sch.unroll(i)
        sch.unroll(some)
