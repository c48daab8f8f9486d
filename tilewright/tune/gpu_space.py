"""The decisions of sketches for GPUs, as tables: sizes of tiles, threads, stages of pipelines.

    kind         rows  columns  stages  parts  depth          kind          high  wide  own_high  …  depth  fetch
    warpgroups    128      256       4      1     64          shared tile     16    16         4  …     16      1
    warps         128      128       4      1     32          …

A decision is an object (`Tile`, `SharedTile`) whose default is the zero-trial scheduler's choice. Decisions that the
hardware cannot run (too many threads or registers, too much shared memory) are not in a table. The time of a kernel is
predicted for whole tables at once, from waves of thread blocks, bytes at each level of memory, and occupancy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arith import Analyzer
from ..ir.expr import const, const_value
from ..ir.functor import substitute, vars_used
from ..ir.ops import add, sub
from ..target.gpu_machine import GpuMachine
from ..tir.transform.storage_rewrite import SMALL
from .cost.gpu import Count, Counts, seconds_of
from .program.facts import Access, Axis, Facts

if TYPE_CHECKING:
    from .gpu_tensor import Product, Tile

__all__ = [
    "FIGURES",
    "SIMPLE_COLUMNS",
    "SharedTile",
    "Table",
    "bytes_of",
    "product_table",
    "shared_tile_counts",
    "shared_tile_table",
    "simple_table",
    "stage_counts",
    "stage_features",
]

Array = Any
# The figures of a candidate; the same for every kind of sketch.
FIGURES = (
    "seconds", "compute", "near", "far", "latency", "waves", "tail", "occupancy", "threads", "registers", "shared",
    "blocks", "results", "depth", "stages", "parts", "fetch", "unroll", "groups", "bank",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Table:
    """All decisions of a kind of sketch: a row of `points` for each, in the order of the fields of the decision, and
    their `figures`."""

    points: Array
    figures: Mapping[str, Array]

    def __len__(self) -> int:
        return len(self.points)


@dataclass(frozen=True, slots=True)
class SharedTile:
    """A tile of results: the threads along its two sides, the register tile of each, and how operands are copied.

     wide · own_wide · groups_wide results
    ┌──────────────┬──────────────┐
    │ t t t t      │ t t t t      │   groups: a thread has results at several places (virtual threads),
    │              │              │   so that the loads of a warp are contiguous
    └──────────────┴──────────────┘
    """

    high: int
    wide: int
    own_high: int
    own_wide: int
    groups_high: int
    groups_wide: int
    depth: int  # iterations of the outermost reduction whose operands are copied at once
    fetch: int  # elements of the vectors by which a thread copies
    unroll: int  # whether the iterations of a step are unrolled

    def side(self, along_wide: bool) -> int:
        """The number of results along a side."""
        if along_wide:
            return self.wide * self.own_wide * self.groups_wide
        return self.high * self.own_high * self.groups_high

    @property
    def threads(self) -> int:
        return self.high * self.wide


# ---------------------------------------------------------------------------- tiles in shared memory
_SIDES = ((1, 2, 4, 8, 16, 32), (4, 8, 16, 32, 64))  # threads along the two sides
_OWN = (1, 2, 4, 8)  # contiguous results of a thread along a side
_GROUPS = (1, 2, 4)
_STEPS = (1, 2, 4, 8, 16, 32)
_FETCHES = (1, 4)


def _grid(*values: Sequence[int]) -> Array:
    return np.array(list(product(*values)), np.int64).reshape(-1, len(values))


def shared_tile_table(
    f: Facts, wide: Axis, high: Axis | None, shared: Sequence[Access], gpu: GpuMachine
) -> Table:
    """All tiles of a reduction with its operands in shared memory."""
    deep = math.prod(a.extent for a in f.reduce[1:])
    sides = [
        [s for s in known if s < 2 * a.extent] or [1] if a is not None else [1]
        for a, known in zip((high, wide), _SIDES, strict=True)
    ]
    own = [_OWN if a is not None else (1,) for a in (high, wide)]
    groups = [_GROUPS if a is not None else (1,) for a in (high, wide)]
    whole = f.reduce[0].extent
    depths = [d for d in (*[s for s in _STEPS if s < whole], whole) if d * deep <= 128] or [1]
    unrolls = (0, 1)
    points = _grid(*sides, *own, *groups, depths, _FETCHES, unrolls)
    t = dict(zip([x.name for x in fields(SharedTile)], points.T, strict=True))
    threads = t["high"] * t["wide"]
    down = t["high"] * t["own_high"] * t["groups_high"]
    across = t["wide"] * t["own_wide"] * t["groups_wide"]
    results = down * across // threads
    keep = (threads >= min(32, gpu.max_threads_per_block)) & (threads <= gpu.max_threads_per_block)
    keep &= (results <= 64) & (down <= 256) & (across <= 256)
    keep &= (t["own_high"] * t["groups_high"] <= 16) & (t["own_wide"] * t["groups_wide"] <= 16)
    keep &= (t["groups_high"] < 4) | (t["own_high"] <= 2)
    keep &= (t["groups_wide"] < 4) | (t["own_wide"] <= 4)
    keep &= down < 2 * (1 if high is None else high.extent)
    keep &= across < 2 * wide.extent
    keep &= (t["unroll"] == 0) | ((t["depth"] * deep * results <= 1024) & (t["depth"] * deep > 1))
    points, t = points[keep], {k: v[keep] for k, v in t.items()}
    spans = {wide.var: across[keep], f.reduce[0].var: t["depth"]}
    if high is not None:
        spans[high.var] = down[keep]
    spans |= {a.var: np.full(len(points), a.extent) for a in f.reduce[1:]}
    held = _held(f, shared, spans)
    room = sum(held, start=np.zeros(1))
    figures = _shared_figures(f, wide, high, t, deep, room, gpu)
    # A loop whose first and last iterations differ becomes three loops, and each has its own copy of small buffers.
    most = sum((np.where(size <= SMALL["shared"], 3 * size, size) for size in held), start=np.zeros(1))
    fits = (most <= gpu.shared_memory_per_block) & (figures["registers"] <= gpu.limits.registers_per_thread)
    fits &= figures["registers"] * figures["threads"] <= gpu.registers_per_block
    return Table(points[fits], {k: v[fits] for k, v in figures.items()})


def shared_tile_counts(
    f: Facts, wide: Axis, high: Axis | None, shared: Sequence[Access], tile: SharedTile, gpu: GpuMachine
) -> Counts:
    """The work of one tile."""
    t = {x.name: np.array([getattr(tile, x.name)]) for x in fields(SharedTile)}
    deep = math.prod(a.extent for a in f.reduce[1:])
    spans: dict[Any, Array] = {wide.var: np.array([tile.side(True)]), f.reduce[0].var: t["depth"]}
    if high is not None:
        spans[high.var] = np.array([tile.side(False)])
    spans |= {a.var: np.array([a.extent]) for a in f.reduce[1:]}
    room = sum(_held(f, shared, spans), start=np.zeros(1))
    c, _ = tile_counts(gpu, **_shared_work(f, wide, high, t, deep, room, gpu))
    return Counts(**{x.name: float(np.ravel(getattr(c, x.name))[0]) for x in fields(Counts)})


def _shared_figures(
    f: Facts, wide: Axis, high: Axis | None, t: Mapping[str, Array], deep: int, room: Array, gpu: GpuMachine
) -> dict[str, Array]:
    return counted(gpu, **_shared_work(f, wide, high, t, deep, room, gpu))


def _shared_work(
    f: Facts, wide: Axis, high: Axis | None, t: Mapping[str, Array], deep: int, room: Array, gpu: GpuMachine
) -> dict[str, Any]:
    threads = t["high"] * t["wide"]
    mine = t["own_high"] * t["groups_high"], t["own_wide"] * t["groups_wide"]
    results, operands = mine[0] * mine[1], mine[0] + mine[1]
    down, across = t["high"] * mine[0], t["wide"] * mine[1]
    others = math.prod(a.extent for a in f.spatial if a is not wide and a is not high)
    blocks = others * -(-wide.extent // across) * (1 if high is None else -(-high.extent // down))
    depth = np.minimum(t["depth"], f.reduce[0].extent)
    steps = -(-f.reduce[0].extent // depth)
    w = gpu.tile
    registers = float(w.other_registers) + results + operands + t["fetch"] * 2
    # neighbours in a warp read words that are own_wide apart
    bank = np.where(t["own_wide"] > 4, t["own_wide"] / 4, 1.0) * np.where(t["own_wide"] > 1, w.strided, 1.0)
    compute = threads * results * depth * deep / gpu.fma_per_cycle * np.where(t["unroll"] == 1, 1.0, w.rolled)
    near = threads * operands * bank * depth * deep * 4 / w.shared_bytes
    far = room / (gpu.dram_bytes * w.l2_ratio) * (1 + w.element_fetch / t["fetch"])
    return {
        "threads": threads, "registers": registers, "shared": room, "blocks": blocks, "steps": steps,
        "compute": compute, "near": near, "far": far, "ends": results * w.store, "results": results,
        "depth": depth * deep, "fetch": t["fetch"], "unroll": t["unroll"],
        "groups": t["groups_high"] * t["groups_wide"], "bank": bank, "plain": gpu.warp_size > 1,
    }  # fmt: skip


def tile_counts(
    gpu: GpuMachine,
    *,
    threads: Array,
    registers: Array,
    shared: Array,
    blocks: Array,
    steps: Array,
    compute: Array,
    near: Array,
    far: Array,
    ends: Array,
    ahead: Any = 1,
    plain: bool = False,
    **_: Any,
) -> tuple[Counts, Array]:
    """The work of candidates, from the cycles of a thread block in a step: of arithmetic (`compute`), of shared memory
    (`near`) and of global memory (`far`); and the thread blocks that an SM could hold.

    As many thread blocks as fit share an SM: while one waits, the others compute. The last wave of thread blocks may
    leave SMs idle. Operands are copied `ahead` steps before they are needed. In `plain` kernels only other warps hide
    the latency of instructions.
    """
    w, limits = gpu.tile, gpu.limits
    held = np.minimum(limits.threads // threads, limits.registers // np.maximum(1, registers * threads))
    held = np.clip(np.minimum(held, limits.blocks_by_shared(np.maximum(1, shared))), 1, limits.blocks)
    at_once = np.minimum(held, np.maximum(1, -(-blocks // gpu.multiprocessors)))
    if plain:
        warps = at_once * np.maximum(1, threads / gpu.warp_size)
        slow = w.issue * np.maximum(1.0, w.enough_warps / warps) ** w.exposed
        compute, near = compute * slow, near * slow
    exact = blocks / (gpu.multiprocessors * at_once)
    made = Counts(
        rounds=np.maximum(1.0, 0.5 * (np.ceil(exact) + exact)), steps=steps, compute=at_once * compute,
        shared=at_once * near, l2=at_once * far,
        # a thread block alone waits for memory, then computes
        latency=w.latency / ahead + compute + near * w.serial_shared, ends=ends * at_once + w.block,
        blocks=blocks, at_once=at_once, threads=threads, registers=registers, shared_bytes=shared,
        l2_bytes=blocks * steps * shared / ahead,
    )  # fmt: skip
    return made, held


def counted(gpu: GpuMachine, **given: Any) -> dict[str, Array]:
    """The figures of candidates, from what `tile_counts` takes."""
    c, held = tile_counts(gpu, **given)
    n, ahead = len(c.threads), given.pop("ahead", 1)
    exact = c.blocks / (gpu.multiprocessors * c.at_once)
    warps = np.maximum(1, c.threads // gpu.warp_size)
    made = {
        **given, "seconds": seconds_of(c, gpu), "compute": c.compute / c.at_once, "near": c.shared / c.at_once,
        "far": c.l2 / c.at_once, "latency": gpu.tile.latency / ahead, "waves": c.rounds,
        "tail": np.ceil(exact) / np.maximum(exact, 1e-9), "occupancy": held * warps, "stages": ahead,
        "parts": given.get("parts", 1),
    }  # fmt: skip
    return {name: np.broadcast_to(np.asarray(made.get(name, 0), np.float64), (n,)) for name in FIGURES}


def _held(f: Facts, shared: Sequence[Access], spans: Mapping[Any, Array]) -> list[Array]:
    """The bytes of shared memory that a step needs: for each buffer the bounding box of its reads."""
    spans = {a.var: np.minimum(spans[a.var], a.extent) for a in f.axes if a.var in spans}
    ana = Analyzer()
    boxes: dict[Any, list[tuple[Array, Array, Any]]] = {}
    for r in shared:
        first = next(x for x in shared if x.buffer is r.buffer)
        sides = []
        for index, start, dim in zip(r.indices, first.indices, r.buffer.shape, strict=True):
            apart = const_value(ana.simplify(sub(index, start))) or 0
            low = high = np.full(1, int(apart))
            for var, factor in _factors(index, f).items():
                reach = factor * (spans.get(var, 1) - 1)
                low, high = low + np.minimum(reach, 0), high + np.maximum(reach, 0)
            sides.append((low, high, const_value(dim)))
        if r is not first:
            sides = [
                (np.minimum(low, a), np.maximum(high, b), dim)
                for (low, high, dim), (a, b, _) in zip(sides, boxes[r.buffer], strict=True)
            ]
        boxes[r.buffer] = sides
    out = []
    for buffer, sides in boxes.items():
        size: Any = max(1, buffer.dtype.nbytes)
        for low, high, most in sides:
            size = size * (high - low + 1 if most is None else np.minimum(high - low + 1, int(most)))
        out.append(size)
    return out


def _factors(index: Any, f: Facts) -> dict[Any, int]:
    """The step of an index along each axis; 1 if the index is not linear."""
    ana, out = Analyzer(), {}
    used = vars_used(index)
    for a in f.axes:
        if a.var in used:
            moved = substitute(index, {a.var: add(a.var, const(1, a.var.dtype))})
            step = const_value(ana.simplify(sub(moved, index)))
            out[a.var] = 1 if step is None else int(step)
    return out


# ---------------------------------------------------------------------------- products of matrices
def product_table(
    tiles: Sequence[Tile], p: Product, gpu: GpuMachine, counts: Callable[[Any], Counts], rate: float
) -> Table:
    """The table of a product: its tiles with the predicted time, from the `counts` of each; `rate` is multiply-adds of
    an SM in a cycle."""
    points = np.array([astuple(t) for t in tiles], np.int64).reshape(len(tiles), -1)
    t = {x.name: points[:, i] for i, x in enumerate(fields(tiles[0]))} if tiles else {}
    if not tiles:
        return Table(points, {name: np.zeros(0) for name in FIGURES})
    size = p.a.dtype.nbytes
    down, across = -(-p.m.extent // t["rows"]), -(-p.n.extent // t["columns"])
    step = (t["rows"] + t["columns"]) * t["depth"] * size
    threads = np.array([x.threads for x in tiles])
    own = t["rows"] * t["columns"] / threads
    made = counted(
        gpu, threads=np.minimum(threads, 1024), registers=gpu.tile.product_other_registers + own,
        shared=step * t["stages"], blocks=down * across * p.batch * t["parts"],
        steps=-(-p.k.extent // (t["depth"] * t["parts"])), compute=t["rows"] * t["columns"] * t["depth"] / rate,
        near=step / gpu.tile.shared_bytes, far=step / (gpu.dram_bytes * gpu.tile.l2_ratio),
        ends=t["rows"] * t["columns"] / gpu.tile.product_store_rate, ahead=np.maximum(1, t["stages"]),
        results=t["rows"] * t["columns"] / threads, depth=t["depth"], parts=t["parts"],
        unroll=float(p.kind == "float32"), groups=t.get("high", 0), bank=t.get("lanes", 0),
    )  # fmt: skip
    made["seconds"] = np.array([seconds_of(counts(x), gpu) for x in tiles])
    made["stages"] = np.asarray(t["stages"], np.float64)
    return Table(points, made)


# ---------------------------------------------------------------------------- other stages
SIMPLE_COLUMNS = ("threads", "wide")  # 0 stands for the choice of the rules, which is the first row


def simple_table(f: Facts, gpu: GpuMachine, in_vectors: bool) -> tuple[Array, Array]:
    """The decisions of a simple stage (threads of a block and, if `in_vectors`, the width of vectors) and their
    figures."""
    threads = [n for n in (32, 64, 128, 256, 512, 1024) if n <= gpu.max_threads_per_block]
    widest = max(1, 16 * 8 // max(8, f.bits))
    wide = [w for w in (1, 2, 4, 8, 16) if w <= widest] if in_vectors else []
    points = np.array([(0, 0), *product(threads, [0, *wide])], np.int64)
    each = np.where(points[:, 0] == 0, gpu.elementwise.plain_threads, points[:, 0])
    taken = np.where(points[:, 1] == 0, widest, points[:, 1])
    results = max(1, math.prod(a.extent for a in f.spatial))
    blocks = np.maximum(1, -(-results // (each * taken)))
    seconds = seconds_of(stage_counts([f], gpu, blocks, taken / widest), gpu)
    # Of equal candidates the choice of the rules comes first.
    seconds = seconds * np.where(points[:, 0] == 0, 1.0, gpu.tile.rival)
    made: dict[str, Any] = {
        "seconds": seconds,
        "threads": each,
        "fetch": taken,
        "blocks": blocks,
        "results": taken,
    }
    return points, np.stack([np.broadcast_to(made.get(n, 0.0), (len(points),)) for n in FIGURES], axis=1)


def stage_counts(group: Sequence[Facts], gpu: GpuMachine, blocks: Count, width: Count = 1.0) -> Counts:
    """The work of a kernel for some stages without reuse, in `blocks` thread blocks; its loads have a `width` relative
    to the widest vectors. DRAM reaches its full bandwidth if all SMs load, and load wide vectors."""
    w = gpu.tile
    full = np.minimum(1.0, blocks / (w.busy_blocks * gpu.multiprocessors)) ** w.busy_exponent
    full = full * (w.scalar_rate + (1 - w.scalar_rate) * width)
    work = sum(f.points * (1 + f.work) for f in group) / (gpu.fma_per_cycle * gpu.multiprocessors)
    compute = np.full(full.shape, float(work)) if np.ndim(full) else float(work)
    return Counts(compute=compute, dram=bytes_of(group), dram_rate=full)


def bytes_of(group: Sequence[Facts]) -> int:
    """The bytes that one kernel for some stages reads and writes; those between the stages stay inside."""
    if len(group) == 1:
        return sum(group[0].touched(r) for r in group[0].accesses)
    inside = {f.write.buffer for f in group[:-1] if f.write is not None}
    most: dict[Any, int] = {}
    for f in group:
        for r in f.accesses:
            if r.buffer not in inside:
                most[r.buffer] = max(most.get(r.buffer, 0), f.touched(r))
    return sum(most.values())


def stage_features(f: Facts, counts: Array, kinds: Array) -> Array:
    """The features of each row for a learned model: its figures, their ratios, its kind, and the sizes of the stage."""
    column = {name: counts[:, i] for i, name in enumerate(FIGURES)}
    logs = np.log2(1.0 + np.maximum(counts, 0.0) * np.where(np.array(FIGURES) == "seconds", 1e9, 1.0))

    def by(one: str, other: str) -> Array:
        return np.log2((1.0 + column[one]) / (1.0 + column[other]))

    ratios = [by("near", "compute"), by("far", "compute"), by("latency", "compute"), by("threads", "results")]
    read = sum(f.touched(r) for r in f.reads)
    written = f.touched(f.write) if f.write is not None else 0
    spatial, reduced = math.prod(a.extent for a in f.spatial), math.prod(a.extent for a in f.reduce)
    work = [math.log2(1 + x) for x in (spatial, reduced, read, written, f.work, len(f.reads))]
    made = [logs, np.stack([*ratios, kinds], axis=1), np.tile(work, (len(counts), 1))]
    return np.concatenate(made, axis=1).astype(np.float32)
