"""The sketch for int8 products on GPUs without tensor cores for them: dot products of four elements (`dp4a`).

thread block   rows x columns of the results; both operands are in shared memory, contiguous along the reduction. The
               stride of their rows is an odd number of words, so that a column of words is spread over all banks
thread         a register tile of high x wide results: neighbouring rows, columns 16 apart
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..ir.errors import ScheduleError
from ..target import Target
from ..target.gpu_machine import GpuMachine
from ..tir.schedule.primitive import BlockRV, LoopRV
from ..tir.tensor_intrin.dot_product_common import DP4A_S8S8S32_INTRIN
from .cost.gpu import Counts, cycles_of
from .gpu_space import Table, product_table
from .gpu_tensor import Product, Sketch, Tile, across, applied, contiguous
from .program.facts import Facts

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = ["by_dots", "dp4a_estimate"]

_WORD = 4  # elements of int8 that one `dp4a` multiplies
_SIDE = 16  # threads along a side of a tile
_DEPTH = 64  # depth of a tile: steps of the reduction that are copied at once
_SIZES = ((128, 128), (64, 128), (64, 64), (32, 64), (32, 32))  # rows and columns of tiles


def by_dots(g: GpuFunction, f: Facts, p: Product, after: BlockRV | None = None) -> dict[str, Any]:
    """Schedule a product of int8 by `dp4a`, four steps of the reduction at a time."""
    gpu = g.target.gpu
    _check(g.target, p)
    transposed = across(p)
    if transposed:
        f, p = contiguous(g, f, p, lambda made: cycles_of(counts(made, None, gpu), gpu))
    tile = g.choose(f, "dots", _tile(p, gpu), lambda: _table(p, gpu))
    note = applied(Dots, g, f, p, tile, after)
    return {"sketch": "dot products", **note, **({"transposed": transposed} if transposed else {})}


def _check(target: Target, p: Product) -> None:
    if p.kind != "int8" or not target.has("dp4a"):
        raise ScheduleError(f"{target.gpu.arch or target.kind.name} has no dot products of four {p.kind}")


def dp4a_estimate(target: Target, p: Product) -> Counts:
    """The work of the tile that the rule takes; refused if there are no such dot products."""
    _check(target, p)
    return counts(p, _tile(p, target.gpu), target.gpu)


@dataclass(frozen=True, slots=True)
class DotTile(Tile):
    """A tile of results for 16 x 16 threads."""

    @property
    def threads(self) -> int:
        return _SIDE * _SIDE

    @property
    def high(self) -> int:
        return self.rows // _SIDE

    @property
    def wide(self) -> int:
        return self.columns // _SIDE


def _tile(p: Product, gpu: GpuMachine) -> DotTile:
    """The largest tile that leaves at least one for each SM."""
    for rows, columns in _SIZES:
        tiles = -(-p.m.extent // rows) * -(-p.n.extent // columns) * p.batch
        if tiles >= gpu.multiprocessors and rows < 2 * p.m.extent and columns < 2 * p.n.extent:
            break
    return DotTile(rows, columns, 1, 1, 1, _DEPTH)


def _table(p: Product, gpu: GpuMachine) -> Table:
    """All tiles for the tuner."""
    tiles = [DotTile(r, c, 1, 1, 1, d) for r, c in _SIZES for d in (_DEPTH // 2, _DEPTH)]
    return product_table(tiles, p, gpu, lambda t: counts(p, t, gpu), gpu.dp4a.speedup * gpu.fma_per_cycle)


def counts(p: Product, t: DotTile | None, gpu: GpuMachine) -> Counts:
    """The work of a product by `dp4a`; without a tile, as if all SMs had the same and operands cost nothing."""
    flops = 2 * p.batch * p.m.extent * p.n.extent * p.k.extent
    cycles = flops / (gpu.dp4a.speedup * gpu.peak_flops) * gpu.clock * 1e9
    if t is None:
        return Counts(compute=cycles)
    blocks = -(-p.m.extent // t.rows) * -(-p.n.extent // t.columns) * p.batch
    even = -(-blocks // gpu.multiprocessors) * gpu.multiprocessors / blocks
    steps, fetched = -(-p.k.extent // t.depth), (t.rows + t.columns) * t.depth
    return Counts(
        compute=cycles * even * (1 + (1 / t.high + 1 / t.wide) / 2),
        dram=p.batch * p.k.extent * (p.m.extent // p.windows + p.n.extent),
        blocks=blocks,
        threads=t.threads,
        registers=gpu.tile.other_registers + t.high * t.wide + t.high + t.wide,
        shared_bytes=fetched,
        l2_bytes=fetched * steps * blocks,
    )


class Dots(Sketch):
    fragment = "local"
    tile: DotTile

    def counts(self) -> Counts:
        return counts(self.p, self.tile, self.g.target.gpu)

    def apply(self) -> dict[str, Any]:
        sch, p, t = self.sch, self.p, self.tile
        epilogue, loops = self.prepare()
        i, i1, i2 = sch.split(loops[p.m.var], [None, _SIDE, t.high])
        j, j2, j1 = sch.split(loops[p.n.var], [None, t.wide, _SIDE])
        depth, k1, k2 = sch.split(loops[p.k.var], [None, t.depth // _WORD, _WORD])
        blocks = self.tiles(i, j, loops, j2, i1, j1, depth, k1, i2, k2)
        for loop, name in (
            (blocks, "blockIdx.x"),
            (j2, "vthread.x"),
            (i1, "threadIdx.y"),
            (j1, "threadIdx.x"),
        ):
            sch.bind(loop, name)
        for which in (0, 1):
            self.fetch(which, depth)
        sch.unroll(i2)
        sch.reverse_compute_at(epilogue, j1, preserve_unit_loops=True)
        sch.unroll(sch.get_loops(epilogue)[-2])
        sch.decompose_reduction(self.block, depth)
        sch.tensorize(k2, DP4A_S8S8S32_INTRIN)
        return {
            "tile": f"{t.rows} x {t.columns} x {t.depth}",
            "threads": _SIDE * _SIDE,
            "instructions": DP4A_S8S8S32_INTRIN,
        }

    def fetch(self, which: int, depth: LoopRV) -> None:
        """Copy the tile of an operand for a step to shared memory, by all threads together, a word for each."""
        sch = self.sch
        copy = self.inputs(which, "shared")
        sch.compute_at(copy, depth, preserve_unit_loops=True)
        own = sch.get_loops(copy)[len(sch.get_loops(self.block)) - 3 :]
        several, y, x, word = sch.split(self.g.fused(own, copy), [None, _SIDE, _SIDE, _WORD])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.unroll(several)
        sch.vectorize(word)
        sch.storage_align(copy, 0, -2, 2 * _WORD, _WORD)
