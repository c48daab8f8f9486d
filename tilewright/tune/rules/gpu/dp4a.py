"""Products of int8 without tensor cores: dot products of four elements (`dp4a`).

thread block   rows x columns of the results; both operands are in shared memory, contiguous along the reduction. The
               stride of their rows is an odd number of words, so that a column of words is spread over all banks
thread         a register tile of high x wide results: neighbouring rows, columns 16 apart
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule.primitive import LoopRV
from ....tir.tensor_intrin.dot_product_common import DP4A_S8S8S32_INTRIN
from ...cost.gpu import Counts
from .product import Product, Sketch, Tile, across
from .product_rule import ProductRule, Source, Way, transposed

__all__ = ["Dp4a"]

_WORD = 4  # elements of int8 that one `dp4a` multiplies
_SIDE = 16  # threads along a side of a tile
_DEPTH = 64  # depth of a tile: steps of the reduction that are copied at once
_SIZES = ((128, 128), (64, 128), (64, 64), (32, 64), (32, 32))  # rows and columns of tiles


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


class Dp4a(ProductRule):
    """Tiles of 16 x 16 threads, four steps of the reduction at a time."""

    name = "dp4a"
    sketch = "dot products"
    needs = frozenset({"dp4a", "shared_memory"})
    types = ("int8",)
    tile = DotTile

    def ways(self, p: Product, target: Target) -> list[Way]:
        sides = across(p)
        return [transposed(p, sides)] if sides else [Way(p)]

    def tiles(self, p: Product, target: Target, source: Source, finer: bool) -> list[DotTile]:
        if finer:
            return [DotTile(r, c, 1, 1, 1, d) for r, c in _SIZES for d in (_DEPTH, _DEPTH // 2)]
        return [_largest(p, target.gpu)]

    def counts(self, p: Product, t: Any, gpu: GpuMachine) -> Counts:
        return counts(p, t, gpu)

    def steps(self, *given: Any) -> Sketch:
        return Dots(*given)


def _largest(p: Product, gpu: GpuMachine) -> DotTile:
    """The largest tile that leaves at least one for each SM."""
    for rows, columns in _SIZES:
        tiles = -(-p.m.extent // rows) * -(-p.n.extent // columns) * p.batch
        if tiles >= gpu.multiprocessors and rows < 2 * p.m.extent and columns < 2 * p.n.extent:
            break
    return DotTile(rows, columns, 1, 1, 1, _DEPTH)


def counts(p: Product, t: DotTile, gpu: GpuMachine) -> Counts:
    """The work of a product by `dp4a`."""
    flops = 2 * p.batch * p.m.extent * p.n.extent * p.k.extent
    cycles = flops / (gpu.dp4a.speedup * gpu.peak_flops) * gpu.clock * 1e9
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
