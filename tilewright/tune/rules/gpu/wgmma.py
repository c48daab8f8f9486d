"""Products by `wgmma`: one warpgroup copies tiles by TMA, others multiply them; the results are stored from registers.

The operands are 16-bit floats, or float32 if the target allows rounding to ten bits (`-tf32`).
"""

from __future__ import annotations

import math
from typing import Any

from ....ir.expr import const_value
from ....target import Target
from ....target.gpu_machine import GpuMachine, register_split
from ....tir.schedule.primitive import BlockRV, LoopRV
from ....tir.tensor_intrin.cuda import get_wgmma_intrin
from ....tir.transform.lower_bulk_copies import BULK_COPY, TF32
from ....tir.transform.specialize_warps import PERSISTENT, SPECIALIZE
from ...cost.gpu import Counts
from .product import Product, Sketch, Tile, across, can_be_copied, split_counts, takes
from .product_rule import ProductRule, Source, Way, transposed

__all__ = ["Wgmma"]


class Wgmma(ProductRule):
    """Tiles of warpgroups, whose operands TMA copies."""

    name = "wgmma"
    sketch = "tensor cores"
    needs = frozenset({"wgmma", "tma", "shared_memory"})
    types = ("float16", "bfloat16", "float32", "int8")
    tile = Tile

    def refusal(self, p: Product, target: Target) -> str:
        if p.kind == "int8":
            return "`wgmma` multiplies floats here, no integers"
        if not target.has("wgmma") or not takes(target, p.kind):
            return f"the target has no `wgmma` for {p.kind}"
        return ""

    def ways(self, p: Product, target: Target) -> list[Way]:
        """float32 must be contiguous along the reduction."""
        sides = across(p) if p.kind == "float32" else []
        if not sides:
            return [Way(p)] if can_be_copied(p.a) and can_be_copied(p.b) else []
        rows = p.k.extent * p.a.dtype.nbytes % 16 == 0
        others = all(b in sides or can_be_copied(b) for b in (p.a, p.b))
        return [transposed(p, sides)] if rows and others and len(p.others) + 2 <= 5 else []

    no_way = "TMA cannot copy its operands"

    def tiles(self, p: Product, target: Target, source: Source, finer: bool) -> list[Tile]:
        # Of tiles with the same time the smallest comes first.
        return sorted(possible_tiles(p, target.gpu, finer), key=lambda t: t.rows * t.columns)

    def counts(self, p: Product, t: Tile, gpu: GpuMachine) -> Counts:
        return counts(p, t, gpu)

    def steps(self, *given: Any) -> Sketch:
        return Warpgroups(*given)


def possible_tiles(p: Product, gpu: GpuMachine, fewer_stages: bool = False) -> list[Tile]:
    """The tiles of warpgroups that fit, with as many pipeline stages as there is room for, or with fewer too."""
    found: list[Tile] = []
    steps, size_of = -(-p.k.extent // p.line), p.a.dtype.nbytes
    for rows, columns in ((128, 256), (128, 128), (128, 64), (64, 256), (64, 128), (64, 64)):
        if rows >= 2 * max(64, p.m.extent) or columns >= 2 * max(64, p.n.extent):
            continue
        size = (rows + columns) * p.line * size_of
        for per in (1, 2):
            kept = gpu.wgmma.reserved_shared
            room = (gpu.dynamic_shared_memory_per_block - kept) // per - (kept if per > 1 else 0)
            stages = min(8, room // size, max(2, steps))
            # Larger tiles need more accumulators than the registers of an SM can hold twice.
            if stages < 2 or (per == 2 and (rows > 64 or columns > 128)):
                continue
            for parts in (1, 2, 3, 4, 6, 8, 12, 16):
                if parts > 1 and (steps < 2 * parts or (p.windows > 1 and steps % parts)):
                    continue  # the windows of im2col cannot be padded with zeros along the reduction
                counts = range(stages, 1, -1) if fewer_stages else (stages,)
                found += [Tile(rows, columns, n, parts, per, p.line) for n in counts]
    return found


def counts(p: Product, t: Tile, gpu: GpuMachine) -> Counts:
    """The work of a product by warpgroups."""
    w = gpu.wgmma
    down, across = -(-p.m.extent // t.rows), -(-p.n.extent // t.columns)
    tiles = down * across * p.batch * t.parts
    steps, size = math.ceil(p.k.extent / p.line / t.parts), p.a.dtype.nbytes
    at_once = min(t.per_processor, -(-tiles // gpu.multiprocessors))
    # Four `wgmma` of 32 bytes for each 64 rows; or as long as their operands take out of shared memory.
    one = max(t.columns * w.cycles_per_column, w.operand_cycles + t.columns * w.operand_cycles_per_column)
    fetched = (t.rows + t.columns) * p.line * size
    # All warpgroups store at once, 64 rows each. Results of whole tiles are stored eight at a time, those of partial
    # tiles four at a time under predicates.
    whole = t.parts > 1 or (p.m.extent % t.rows == 0 and p.n.extent % t.columns == 0)
    column = w.store_column if whole else w.store_column_by_one if p.n.extent % 4 else w.store_column_by_four
    epilogue = max(1.0, (p.after if t.parts == 1 else 0) / w.hidden_epilogue)
    # Both operands come from DRAM at least once. They reach its full bandwidth only if most SMs load, and load long
    # pieces of rows.
    long = t.columns >= w.long_row or p.trans_b
    return Counts(
        rounds=-(-tiles // (gpu.multiprocessors * at_once)),
        steps=steps,
        compute=at_once * (t.rows // 64 * 4 * one / w.rate),
        shared=at_once * (fetched / w.tma_bytes),
        l2=at_once * (fetched / (gpu.dram_bytes * w.kernel.l2_ratio)),
        latency=w.latency / t.stages,  # the stages in flight must cover it
        ends=t.columns * column * epilogue + w.store,
        launch=w.kernel.launch,
        dram=size * p.batch * p.k.extent * (p.m.extent // p.windows + p.n.extent),
        dram_rate=(w.kernel.dram_rate if long else w.short_row_dram_rate)
        * min(1, tiles / (w.busy_sms * gpu.multiprocessors)),
        dram_launch=w.kernel.dram_launch,
        **split_counts(p, down * t.rows * across * t.columns, t.parts, w.kernel),
        blocks=tiles,
        at_once=at_once,
        threads=128 * (t.rows // 64 + 1),
        registers=register_split(t.rows // 64, t.per_processor)[1],
        shared_bytes=fetched * t.stages,
        l2_bytes=fetched * steps * tiles,
    )


class Warpgroups(Sketch):
    fragment, lines = "wgmma.accumulator", 64

    def apply(self) -> dict[str, Any]:
        sch, p, t = self.sch, self.p, self.tile
        epilogue, loops = self.prepare()
        i, group, i2 = sch.split(loops[p.m.var], [None, t.rows // 64, 64])
        j, j1 = sch.split(loops[p.n.var], [None, t.columns])
        depth, k1 = sch.split(loops[p.k.var], [None, t.depth])
        blocks = self.tiles(i, j, loops, group, depth, i2, j1, k1)
        sch.bind(blocks, "blockIdx.x")
        sch.bind(group, "threadIdx.y")
        for which in (0, 1):
            copy = self.inputs(which, "shared.dyn")
            sch.compute_at(copy, depth, preserve_unit_loops=True)
            around = len(sch.get_loops(self.block)) - 3
            how = TF32 if p.kind == "float32" else 1
            sch.annotate(sch.blockize(sch.get_loops(copy)[around]), BULK_COPY, how)
        sch.annotate(depth, SPECIALIZE, t.stages)
        grid = const_value(sch.get(blocks).extent)
        if t.per_processor == 1 and (grid or 0) > self.g.target.gpu.multiprocessors:
            sch.annotate(depth, PERSISTENT, self.g.target.gpu.multiprocessors)
        intrinsics = get_wgmma_intrin(t.columns, p.kind, p.trans_a, p.trans_b)
        self.store(epilogue, group, intrinsics.get("turn", ""), intrinsics.get("turn_sums", ""))
        init = sch.decompose_reduction(self.block, depth)
        sch.tensorize(sch.get_loops(init)[-2], intrinsics["init"])
        sch.tensorize(i2, intrinsics["compute"])
        return {
            "tile": f"{t.rows} x {t.columns} x {t.depth}",
            "stages": t.stages,
            "threads": 128 * (t.rows // 64 + 1),
            **({"split-K": t.parts} if t.parts > 1 else {}),
            "instructions": intrinsics["compute"],
        }

    def store(self, epilogue: BlockRV, at: LoopRV, transposing: str, first: str = "") -> None:
        """As in the base class. Results that cannot be stored eight at a time are transposed between threads as
        accumulators, before the epilogue: four are stored at once, and the epilogue reads its operands in fours too."""
        sch, t, p = self.sch, self.tile, self.p
        whole = p.m.extent % t.rows == 0 and p.n.extent % t.columns == 0
        eight = transposing and whole and str(sch.get(epilogue).writes[0].buffer.dtype) == p.kind
        if eight or not first or p.n.extent % 4:
            return super().store(epilogue, at, transposing)
        rows = sch.cache_write(self.block, 0, self.fragment)
        sch.set_scope(rows, 0, "wgmma.rows")
        for block in (rows, epilogue):
            sch.reverse_compute_at(block, at, preserve_unit_loops=True)
        sch.tensorize(sch.get_loops(rows)[-2], first)
        return self.spread(epilogue, 4)

    def spread(self, epilogue: BlockRV, wide: int = 2) -> None:
        """Bind the results of a warpgroup to the threads that hold them: pairs of neighbours, in rows eight apart."""
        sch = self.sch
        i, j = sch.get_loops(epilogue)[-2:]
        warp, half, row = sch.split(i, [4, 2, 8])
        if wide == 4:  # every second thread has the second half of 16 columns
            eight, second, quad, pair = sch.split(j, [None, 2, 2, wide])
            sch.reorder(warp, row, quad, second, eight, half, pair)
            sch.bind(sch.fuse(warp, row, quad, second), "threadIdx.x")
        else:
            eight, quad, pair = sch.split(j, [None, 4, wide])
            sch.reorder(warp, row, quad, eight, half, pair)
            sch.bind(sch.fuse(warp, row, quad), "threadIdx.x")
        for x in (eight, half):
            sch.unroll(x)
        if self.p.n.extent % 2 == 0:
            sch.vectorize(pair)
