"""A sketch for products of float32 matrices on GPUs without help of tensor cores: large tiles in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..ir.errors import ScheduleError
from ..tir.schedule.primitive import BlockRV, LoopRV
from .facts import Facts
from .gpu_tensor import Product, Sketch, Tile

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = ["by_threads"]

_SIDE = 16  # threads along each side of a tile
_OWN = 8  # results of a thread along each side
_WIDE = 4  # numbers that a thread takes at once


def by_threads(g: GpuFunction, f: Facts, p: Product) -> dict[str, Any]:
    """Tiles of 128 x 128, fetched some steps ahead, 8 x 8 results in the registers of each of 256 threads."""
    gpu, side = g.target.gpu, _SIDE * _OWN
    number = int("".join(filter(str.isdigit, gpu.arch)) or 0)
    if g.target.kind.name != "cuda" or number < 80:
        raise ScheduleError("it has no asynchronous copies")
    tiles = -(-p.m.extent // side) * -(-p.n.extent // side) * p.batch
    if tiles < gpu.multiprocessors // 2 or p.k.extent < 64:
        raise ScheduleError("there are too few results for large tiles")
    return Threads(g, f, p, Tile(side, side, 3, 1, 1, 16)).apply()


class Threads(Sketch):
    fragment = "local"

    def apply(self) -> dict[str, Any]:
        sch, p, t = self.sch, self.p, self.tile
        tail, loops = self.prepare()
        i, i1, i2 = sch.split(loops[p.m.var], [None, _SIDE, _OWN])
        j, j1, j2 = sch.split(loops[p.n.var], [None, _SIDE, _OWN])
        depth, k1, k2 = sch.split(loops[p.k.var], [None, t.depth // _WIDE, _WIDE])
        blocks = self.tiles(i, j, loops, i1, j1, depth, k1, k2, i2, j2)
        for loop, axis in ((blocks, "blockIdx.x"), (i1, "threadIdx.y"), (j1, "threadIdx.x")):
            sch.bind(loop, axis)
        for which in (0, 1):
            self.fetch(which, depth)
            self.load(which, k1)
        for x in (k1, k2, i2, j2):
            sch.unroll(x)
        sch.annotate(depth, "software_pipeline_stage", [0, 0, t.stages - 1])
        sch.annotate(depth, "software_pipeline_order", [0, 1, 2])
        sch.annotate(depth, "software_pipeline_async_stages", [0])
        sch.reverse_compute_at(tail, j1, preserve_unit_loops=True)
        self.out(tail)
        sch.decompose_reduction(self.block, depth)
        return {
            "tile": f"{t.rows} x {t.columns} x {t.depth}",
            "stages": t.stages,
            "threads": _SIDE * _SIDE,
            "results of a thread": f"{_OWN} x {_OWN}",
        }

    def fetch(self, which: int, depth: LoopRV) -> None:
        """What a step needs, in shared memory, by all threads together."""
        sch = self.sch
        copy = self.inputs(which, "shared.dyn")
        sch.compute_at(copy, depth, preserve_unit_loops=True)
        own = sch.get_loops(copy)[len(sch.get_loops(self.block)) - 4 :]
        several, y, x, vector = sch.split(self.g.fused(own, copy), [None, _SIDE, _SIDE, _WIDE])
        sch.bind(y, "threadIdx.y")
        sch.bind(x, "threadIdx.x")
        sch.vectorize(vector)
        sch.unroll(several)
        sch.storage_align(copy, 0, axis=-2, factor=8, offset=4)  # lines in different banks

    def load(self, which: int, step: LoopRV) -> None:
        """What a thread multiplies in the next steps, in registers."""
        sch = self.sch
        copy = sch.cache_read(self.block, which, "local")
        sch.compute_at(copy, step, preserve_unit_loops=True)
        *_, i, j = sch.get_loops(copy)
        some, wide = sch.split(j, [None, _WIDE])
        sch.vectorize(wide)
        sch.unroll(i)
        sch.unroll(some)

    def out(self, tail: BlockRV) -> None:
        sch = self.sch
        *_, i, j = sch.get_loops(tail)
        some, wide = sch.split(j, [None, _WIDE])
        if self.p.n.extent % _WIDE == 0:
            sch.vectorize(wide)
        sch.unroll(i)
        sch.unroll(some)
