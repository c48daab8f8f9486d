"""Products by `mma`: every warp copies, loads fragments and multiplies.

threads     cp.async ──▶ tiles of later steps in shared memory, swizzled
a warp      ldmatrix ──▶ fragments of the next 16 of k │ mma ──▶ register tile of 64 x 64 ──▶ results

A fragment has 32 bytes along the reduction: 16 elements of 16 bits, 32 of int8, or 8 of float32 (tf32).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule.primitive import BlockRV, LoopRV
from ....tir.tensor_intrin.cuda import get_wmma_intrin_group, get_wmma_turn_intrin
from ....tir.transform.inject_permuted_layout import PERMUTED
from ...cost.gpu import Counts
from .product import Product, Sketch, Tile, across, split_counts, takes
from .product_rule import ProductRule, Source, Way, transposed

__all__ = ["Mma"]

_SMALL = (64, 64, 32, 32)
# rows and columns of a thread block, and of each of its warps
_SIZES = (
    (128, 256, 64, 64),
    (256, 128, 64, 64),
    (128, 128, 64, 64),
    (128, 128, 64, 32),
    (128, 64, 64, 32),
    (64, 128, 32, 64),
    (96, 128, 48, 64),
    (96, 64, 48, 32),
    _SMALL,
    (32, 128, 32, 32),
    (16, 128, 16, 32),
)
_LINE = 32  # bytes of an operand along the reduction that one `mma` takes
_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32", "int8": "s8"}


# ---------------------------------------------------------------------------- sizes
@dataclass(frozen=True, slots=True)
class WarpTile(Tile):
    """A tile of results, of which each warp computes `high` x `wide`."""

    high: int = 64
    wide: int = 64

    @property
    def threads(self) -> int:
        return 32 * self.rows * self.columns // (self.high * self.wide)


def _tiles(p: Product, target: Target, fewer_stages: bool) -> list[WarpTile]:
    """The tiles that fit, with as many pipeline stages as are useful, or with every smaller number of stages too."""
    gpu = target.gpu
    # Without asynchronous copies, one step ahead is enough.
    useful, least = (gpu.mma.stages, 2) if target.has("cp.async") else (2, 2)
    passing = _registered(p) if target.has("cp.async") else 0
    if passing:  # one stage more for the registers; alone they are filled one step ahead
        useful, least = (min(useful, 4) if passing == 2 else useful), 3
    found: list[WarpTile] = []
    m, n = 2 * max(16, p.m.extent), 2 * max(64, p.n.extent)
    for rows, columns, high, wide in [s for s in _SIZES if s[0] < m and s[1] < n] or [_SMALL]:
        for line in (64, 128):  # bytes
            depth, size = line // p.a.dtype.nbytes, (rows + columns) * line
            steps = -(-p.k.extent // depth)
            kept = _stored(WarpTile(rows, columns, 0, 1, 1, depth, high, wide), p)
            most = min(useful, (gpu.dynamic_shared_memory_per_block - kept) // size, max(least, steps))
            counts = range(least, most + 1) if fewer_stages else {most, min(4, most), min(3, most)}
            # Of equally fast tiles the first one is taken: stages that gain nothing are only more code.
            for stages in sorted((n for n in counts if n >= least), key=lambda n: (n < 4, n)):
                tile = WarpTile(rows, columns, stages, 1, 1, depth, high, wide)
                per = _at_once(tile, p, gpu)
                shared_out = all(side * line // 16 % tile.threads == 0 for side in (rows, columns))
                for parts in (1, 2, 4, 8, 16) if per and shared_out else ():
                    if parts == 1 or steps >= 2 * parts:
                        found.append(replace(tile, parts=parts, per_processor=per))
    return found


def _registered(p: Product) -> int:
    """The number of operands that pass registers on their way to shared memory."""
    return p.by_registers(0) + p.by_registers(1)


def _at_once(t: WarpTile, p: Product, gpu: GpuMachine) -> int:
    """The number of thread blocks that an SM holds at the same time: each thread holds its part of the register tile,
    and two sets of fragments. 0 if a thread has too few registers for its peak, which includes values that are being
    rounded to tf32 and the addresses of pieces of an im2col window."""
    size = p.a.dtype.nbytes
    own = _registers(t, gpu)
    gathered = 2 * t.rows * t.depth * size // 16 // t.threads if p.windows > 1 else 0
    # Elements on their way to shared memory have a register each.
    gathered += sum(
        side * t.depth // t.threads for which, side in enumerate((t.rows, t.columns)) if p.by_registers(which)
    )
    if own + gathered + (16 if size == 4 else 0) > gpu.mma.registers_per_thread:
        return 0
    registers = -(-own // 8) * 8
    shared = (t.rows + t.columns) * t.depth * size * t.stages + _stored(t, p)
    return int(min(gpu.limits.registers // (t.threads * registers), gpu.limits.blocks_by_shared(shared)))


def _registers(t: WarpTile, gpu: GpuMachine) -> int:
    """The registers of a thread: its part of the register tile, two sets of fragments, and addresses."""
    return t.high * t.wide // 32 + (t.high + t.wide) // 2 + gpu.mma.other_registers


def _rate(p: Product, gpu: GpuMachine) -> float:
    """Multiply-adds that the tensor cores of an SM do in a cycle, by `mma`."""
    return gpu.mma_per_cycle * 2 / p.a.dtype.nbytes


def _copying(p: Product, t: WarpTile, gpu: GpuMachine) -> float:
    """The cycles of a step for copies that take more instructions than those of aligned pieces of 16 bytes."""
    w, size, cycles = gpu.mma, p.a.dtype.nbytes, 0.0
    for which, side in enumerate((t.rows, t.columns)):
        vector, gathered = p.vector(which), p.windows > 1 and which == p.view
        if p.by_registers(which):
            cycles += side * t.depth / vector / (w.gathered_per_cycle if gathered else w.elements_per_cycle)
        elif gathered:  # the addresses of the pieces of im2col windows
            cycles += side * t.depth * size / 16 / w.pieces_per_cycle
        if 4 <= vector * size < 16:
            cycles += side * t.depth / vector / w.short_copies_per_cycle
    return cycles


def counts(p: Product, t: WarpTile, gpu: GpuMachine) -> Counts:
    """The work of a product by `mma`."""
    w = gpu.mma
    down, across = -(-p.m.extent // t.rows), -(-p.n.extent // t.columns)
    tiles = down * across * p.batch * t.parts
    steps = math.ceil(p.k.extent / t.depth / t.parts)
    size = p.a.dtype.nbytes
    line = t.depth * size
    fetched = (t.rows + t.columns) * line
    # in and out of shared memory
    near = (fetched + t.threads // 32 * (t.high + t.wide) * line) / gpu.tile.shared_bytes
    if size == 4:
        near *= w.tf32_shared if p.trans_b and not p.trans_a else w.tf32_strided_shared
    at_once = max(1, min(t.per_processor, -(-tiles // gpu.multiprocessors)))
    # `mma` and accesses to shared memory overlap for the most part: the more of them are in flight, the less they wait.
    filled = 1 - math.exp(-t.rows * t.columns * at_once / w.hiding)
    work = (w.product * t.rows * t.columns * t.depth / _rate(p, gpu) + w.shared * near + w.step) / filled
    work += _copying(p, t, gpu)
    sides = (p.m.extent, p.n.extent)
    read = [n // p.windows if which == p.view else n for which, n in enumerate(sides)]
    # With more than two stages, fragments are already loaded from the oldest of those in flight.
    ahead = max(1, t.stages - 2) if t.stages > 2 else 0.5
    rounds = max(1.0, tiles / gpu.multiprocessors)
    if rounds < w.few_rounds and tiles > gpu.multiprocessors:
        rounds = -(-tiles // (gpu.multiprocessors * at_once)) * at_once
    whole = p.m.extent % t.rows == 0 and p.n.extent % t.columns == 0
    rate = w.store_rate if whole else w.partial_store_rate
    epilogue = max(1.0, (p.after if t.parts == 1 else 0) / w.hidden_epilogue)
    ends = t.rows * t.columns * (1 if size == 2 else 2) / rate * epilogue + w.store / at_once
    return Counts(
        rounds=rounds,
        steps=steps,
        compute=work,
        l2=fetched / (gpu.dram_bytes * w.kernel.l2_ratio),
        latency=w.latency / (ahead * at_once),
        ends=ends / math.sqrt(at_once),  # other thread blocks compute while one stores
        launch=w.kernel.launch,
        dram=size * p.batch * p.k.extent * sum(read),
        dram_rate=w.kernel.dram_rate,
        dram_launch=w.kernel.dram_launch,
        **split_counts(p, down * t.rows * across * t.columns, t.parts, w.kernel),
        blocks=tiles,
        at_once=at_once,
        threads=t.threads,
        registers=_registers(t, gpu),
        shared_bytes=fetched * t.stages + _stored(t, p),
        l2_bytes=fetched * steps * tiles,
    )


_PAD = 8  # elements after a row of results in shared memory, against bank conflicts


def _stored(t: Tile, p: Product) -> int:
    """The bytes of shared memory for the results of a thread block. They pass it on their way out from partial tiles,
    which no thread could store eight at a time, if the pieces of a row that a warp holds are shorter than 32 bytes."""
    whole = p.m.known and p.m.extent % t.rows == 0 and p.n.extent % t.columns == 0
    pair = 2 if p.n.extent % 2 == 0 else 1
    return 0 if whole or t.parts > 1 or 4 * pair * p.stored >= 32 else t.rows * (t.columns + _PAD) * p.stored


class Mma(ProductRule):
    """Tiles of warps, which copy their operands by themselves."""

    name = "mma"
    sketch = "tensor cores"
    needs = frozenset({"mma.f16", "shared_memory"})
    types = tuple(_TYPES)
    dynamic_rows = True
    tile = WarpTile
    no_way = "its operands are too short to be transposed"

    def refusal(self, p: Product, target: Target) -> str:
        if not target.has(f"mma.{_TYPES[p.kind]}"):
            return f"{target.gpu.arch or target.kind.name} has no `mma` for {p.kind}"
        if not takes(target, p.kind):
            return "the target does not let float32 be rounded: cuda -tf32=1 does"
        return ""

    def ways(self, p: Product, target: Target) -> list[Way]:
        """Fragments of int8 must be contiguous along the reduction; those of float32 are loaded element by element if
        they are not."""
        sides = across(p) if p.kind in ("int8", "float32") else []
        as_it_is = [] if sides and p.kind == "int8" else [Way(p)]
        return [*as_it_is, *([transposed(p, sides)] if sides else [])]

    def tiles(self, p: Product, target: Target, source: Source, finer: bool) -> list[WarpTile]:
        return _tiles(p, target, finer)

    def counts(self, p: Product, t: Any, gpu: GpuMachine) -> Counts:
        return counts(p, t, gpu)

    def steps(self, *given: Any) -> Sketch:
        return Warps(*given)


# ---------------------------------------------------------------------------- the sketch
class Warps(Sketch):
    fragment, lines = "wmma.accumulator", 16
    tile: WarpTile

    def apply(self) -> dict[str, Any]:
        sch, p, t = self.sch, self.p, self.tile
        reads = [r.buffer for r in self.f.block.reads]
        self.operands = reads.index(p.a), reads.index(p.b)
        high, wide = t.high, t.wide
        # Shrink the tile if some of its warps would have no results.
        rows = high if p.m.extent <= high else t.rows
        t = self.tile = replace(t, rows=rows, columns=wide if p.n.extent <= wide else t.columns)
        epilogue, loops = self.prepare()
        down, across = t.rows // high, t.columns // wide
        i, i1, i2, i3 = sch.split(loops[p.m.var], [None, down, high // 16, 16])
        j, j1, j2, j3 = sch.split(loops[p.n.var], [None, across, wide // 16, 16])
        deep = _LINE // p.a.dtype.nbytes
        depth, k1, k2 = sch.split(loops[p.k.var], [None, t.depth // deep, deep])
        blocks = self.tiles(i, j, loops, i1, j1, depth, k1, i2, j2, i3, j3, k2)
        warps = sch.fuse(i1, j1)
        sch.bind(blocks, "blockIdx.x")
        sch.bind(warps, "threadIdx.y")
        sums = "int32" if p.kind == "int8" else "float32"
        group = get_wmma_intrin_group("shared.dyn", "global", p.kind, sums, p.trans_b, p.trans_a, deep)
        by_registers = [self.by_registers(which) for which in (0, 1)]
        for which, name, across_k in ((0, "a", p.trans_a), (1, "b", not p.trans_b)):
            self.fetch(which, depth, down * across)
            tile = (deep, 16) if across_k else (16, deep)
            self.load(which, k1, f"wmma.matrix_{name}", group[f"load_{name}"], tile)
        sch.unroll(k1)
        self.overlap(depth, k1, t.depth // deep, by_registers)
        turns = wide % 32 == 0 and p.kind in ("float16", "bfloat16") and p.m.known
        turn = get_wmma_turn_intrin(wide, p.kind) if turns else ""
        p = self.p = replace(p, stored=sch.get(epilogue).writes[0].buffer.dtype.nbytes)
        if _stored(t, p):
            self.store_together(epilogue, warps, blocks, down * across)
        else:
            self.store(epilogue, warps, turn)
        init = sch.decompose_reduction(self.block, depth)
        sch.tensorize(sch.get_loops(init)[-2], group["init"])
        sch.tensorize(i3, group["compute"])
        return {
            "tile": f"{t.rows} x {t.columns} x {t.depth}",
            "stages": t.stages,
            "threads": 32 * down * across,
            **({"split-K": t.parts} if t.parts > 1 else {}),
            "instructions": group["compute"],
        }

    def by_registers(self, which: int) -> bool:
        """Whether an operand passes registers on its way to shared memory: copies too short to be asynchronous."""
        return self.g.target.has("cp.async") and self.p.by_registers(which)

    def overlap(self, depth: LoopRV, step: LoopRV, products: int, by_registers: Sequence[bool]) -> None:
        """Pipeline the loops: copies for later steps are in flight while this step is multiplied. Fragments are loaded
        one product ahead, the first ones of a step before the last product of the previous step. An operand that
        passes registers is loaded in one iteration, and stored to shared memory in the next one."""
        sch, late = self.sch, self.tile.stages - 1
        fetches = [stage for passes in by_registers for stage in ((0, 1) if passes else (0,))]
        count = len(fetches)
        # What the second stage stores is read behind a barrier, by the third stage or by later ones.
        early = late > (2 if any(by_registers) else 1)
        stages = [*fetches, late]
        # Registers are emptied before they are filled again.
        copies = sorted(range(count), key=lambda i: -fetches[i])
        order = [*(copies.index(i) for i in range(count)), count]
        if early:
            sch.annotate(step, "software_pipeline_stage", [0, 0, 1])
            sch.annotate(step, "software_pipeline_order", [0, 1, 2])
            # The copies come after the first loads of fragments: the compiler keeps the order of memory instructions.
            rest = 3 * products - 2
            stages = [*fetches, late - 1, late - 1, *[late] * rest]
            first, then = rest + count - 1, range(2 + count, rest + count - 1)
            order = [*(2 + copies.index(i) for i in range(count)), first, first + 1, 0, 1, *then, first + 2]
        sch.annotate(depth, "software_pipeline_stage", stages)
        sch.annotate(depth, "software_pipeline_order", order)
        sch.annotate(depth, "software_pipeline_async_stages", [0])
        if any(by_registers):
            sch.annotate(depth, "software_pipeline_by_registers", [i for i in (0, 1) if by_registers[i]])

    def fetch(self, which: int, depth: LoopRV, warps: int) -> None:
        """Copy the tile of an operand for a step to shared memory, by all threads of the block together."""
        sch, wide = self.sch, self.p.vector(which)
        if self.p.by_registers(which) and not self.by_registers(which):
            wide = 16 // self.p.a.dtype.nbytes
        copy = self.inputs(self.operands[which], "shared.dyn")
        sch.compute_at(copy, depth, preserve_unit_loops=True)
        around = len(sch.get_loops(self.block)) - 6
        own = sch.get_loops(copy)[around:]
        several, warp, lane, vector = sch.split(self.g.fused(own, copy), [None, warps, 32, wide])
        sch.bind(warp, "threadIdx.y")
        sch.bind(lane, "threadIdx.x")
        sch.vectorize(vector)
        sch.unroll(several)
        # Swizzled: eight consecutive rows are in different banks, and `ldmatrix` loads them without conflicts.
        sch.annotate(copy, PERMUTED, 1)

    def load(self, which: int, step: LoopRV, scope: str, intrinsic: str, tile: tuple[int, int]) -> None:
        sch = self.sch
        copy = sch.cache_read(self.block, self.operands[which], scope)
        sch.compute_at(copy, step, preserve_unit_loops=True)
        i, j = sch.get_loops(copy)[-2:]
        (i0, i1), (j0, j1) = (sch.split(x, [None, n]) for x, n in zip((i, j), tile, strict=True))
        sch.reorder(i0, j0, i1, j1)
        for x in (i0, j0):
            sch.unroll(x)
        sch.tensorize(i1, intrinsic)

    def store_together(self, epilogue: BlockRV, warps: LoopRV, blocks: LoopRV, count: int) -> None:
        """Store results by all threads of the block together, from shared memory, in whole lines of the tile: a warp
        holds short pieces of many rows."""
        sch, p = self.sch, self.p
        written = sch.get(epilogue).writes[0].buffer
        out = sch.reindex_cache_write(epilogue, 0, "shared.dyn", lambda *its: its)
        sch.reverse_compute_at(epilogue, warps, preserve_unit_loops=True)
        sch.reverse_compute_at(out, blocks, preserve_unit_loops=True)
        self.spread(epilogue)
        sch.storage_align(epilogue, 0, axis=-2, factor=64, offset=_PAD)
        own = sch.get_loops(out)[1:]
        flat = len(written.shape) == len(p.others) + 2
        wide = math.gcd(16 // written.dtype.nbytes, p.n.extent) if flat else 1
        several, warp, lane, vector = sch.split(self.g.fused(own, out), [None, count, 32, wide])
        sch.bind(warp, "threadIdx.y")
        sch.bind(lane, "threadIdx.x")
        sch.vectorize(vector)
        sch.unroll(several)

    def spread(self, epilogue: BlockRV, wide: int = 2) -> None:
        """Bind the results of a warp to the threads that hold them."""
        sch = self.sch
        i, j = sch.get_loops(epilogue)[-2:]
        tiles, half, row = sch.split(i, [None, 2, 8])
        eight, quad, pair = sch.split(j, [None, 4, wide])
        sch.reorder(row, quad, tiles, eight, half, pair)
        sch.bind(sch.fuse(row, quad), "threadIdx.x")
        for x in (tiles, eight, half):
            sch.unroll(x)
        if self.p.n.extent % 2 == 0:
            sch.vectorize(pair)
