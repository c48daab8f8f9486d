"""Tiles of results with their operands in shared memory: for any reduction whose operands are reused.

thread block   a tile of results; its threads copy the operands of a step of the reduction to shared memory together
thread         some of the results, in registers
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any

import numpy as np

from ....arith import Analyzer
from ....ir.expr import const, const_value
from ....ir.functor import substitute, vars_used
from ....ir.ops import add, sub
from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ....tir.transform.storage_rewrite import SMALL
from ...cost.gpu import Counts, counts_of
from ...cost.table import Array, Table
from ...program.facts import Access, Axis, Facts, extent_of, facts_of
from ...program.patterns import is_contiguous, is_pooling, reuses
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .figures import bytes_of, gpu_features, kernel_figures, operations
from .kernel import Kernel, power
from .product_rule import hardly_reused

__all__ = ["SharedTile", "SharedTiles"]

_DEPTH = 16  # depth of a tile: steps of the reduction that are copied at once


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


_COLUMNS = tuple(x.name for x in fields(SharedTile))


@dataclass(frozen=True)
class _Found:
    """The two sides of a tile (`high` may be absent), and the accesses that are worth a copy in shared memory."""

    wide: Axis
    high: Axis | None
    shared: tuple[Access, ...]


class SharedTiles:
    """A tile of results in registers, operands in shared memory."""

    name = "shared tile"
    needs = frozenset({"shared_memory"})

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        windows = is_pooling(f) and not is_contiguous(f)
        if not stage.single or f.kind != "reduction" or not (reuses(f) or windows):
            return Refusal("no element is reused for several results")
        if hardly_reused(f, target.gpu):
            return Refusal("it is the product of a matrix with a few vectors")
        found = _sides(f)
        if found is None:
            return Refusal("there is no axis to make tiles of", near=True)
        reads = [r for i in range(len(f.block.reads)) if _is_worth(f, i) for r in _reads_of(f, i)]
        return Match(stage, target.gpu, _Found(*found, tuple(reads)))

    def table(self, match: Match, machine: GpuMachine, only: Mapping[str, int] | None = None) -> Table:
        f, found = match.stage.facts, match.found
        own = _usual_tile(f, found)
        if only is None:
            return _table(match, machine, np.array([[getattr(own, c) for c in _COLUMNS]]), coarse=True)
        points = np.array([[int(only[c]) for c in _COLUMNS]], np.int64)
        if (points[0] == [getattr(own, c) for c in _COLUMNS]).all():
            return _table(match, machine, points)
        every = _every(f, found, machine)
        return _table(match, machine, every[(every == points).all(axis=1)])

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        k, t = Kernel(match.stage), SharedTile(**row.values)
        note = _applied(k, match.stage.facts, match.found, t)
        group, counts = [match.stage.facts], match.stage.facts
        c = _counts(counts, match.found, {n: np.array([getattr(t, n)]) for n in _COLUMNS}, match.machine)
        one = Counts(**{n: float(np.ravel(v)[0]) for n, v in counts_of(c).items()})
        figures = kernel_figures(one, operations(group), bytes_of(group), match.machine)
        return Applied(note, figures=figures)


def _table(match: Match, gpu: GpuMachine, points: Array, coarse: bool = False) -> Table:
    f, found, stage = match.stage.facts, match.found, match.stage
    t = dict(zip(_COLUMNS, points.T, strict=True))
    c = _counts(f, found, t, gpu)
    mine = t["own_high"] * t["groups_high"] * t["own_wide"] * t["groups_wide"]
    written = np.where(t["unroll"] > 0, t["depth"] * math.prod(a.extent for a in f.reduce[1:]), 1)
    made = Table(
        _COLUMNS,
        points,
        {**counts_of(c), "margin": gpu.tile.margin},
        margins=("margin",),
        shape=lambda figures: gpu_features(stage.heavy, made, figures["seconds"]),
        effort=2.0 + 0.5 * np.log2(8 + mine * written),
        finer=(lambda: _table(match, gpu, _every(f, found, gpu, points))) if coarse else None,
    )
    return made


def _sides(f: Facts) -> tuple[Axis, Axis | None] | None:
    """The two axes of a tile: the contiguous one of the results, and one along which an operand is reused."""
    assert f.write is not None
    spatial = [a for a in f.spatial if a.extent > 1 and a.known]
    if not spatial:
        return None
    wide = next((a for a in reversed(spatial) if f.write.stride(a) == 1), spatial[-1])
    rest = [a for a in spatial if a is not wide and any(not r.moves(a) for r in f.reads)]
    rest = rest or [a for a in spatial if a is not wide]
    return wide, max(rest, key=lambda a: a.extent, default=None)


def _usual_tile(f: Facts, found: _Found) -> SharedTile:
    """The tile of the zero-trial schedule: small if there are few results, with up to 16 threads along a side."""
    sizes = [_tile_of(found.high), _tile_of(found.wide)]
    y, x = (min(16, size) for size in sizes)
    depth = max(1, min(_DEPTH // math.prod(a.extent for a in f.reduce[1:]), f.reduce[0].extent))
    return SharedTile(y, x, sizes[0] // y, sizes[1] // x, 1, 1, depth, 1, 0)


def _tile_of(axis: Axis | None) -> int:
    """The size of a tile along an axis: small if the axis is short."""
    size = 1 if axis is None else axis.extent
    return 64 if size >= 512 else 32 if size >= 64 else min(16, power(size))


def _is_worth(f: Facts, index: int) -> bool:
    """Whether an operand is worth a copy in shared memory: several threads of a tile read the same elements."""
    reads = _reads_of(f, index)
    if any(r.gathered for r in reads):
        return False  # data-dependent indices: the elements may be anywhere
    return bool(reads) and all(
        any(not r.moves(a) for a in f.spatial if a.extent > 1) or any(r.moves(a) for a in f.reduce)
        for r in reads
    )


def _reads_of(f: Facts, index: int) -> list[Access]:
    """The accesses by which a block reads one of its buffers."""
    buffer = f.block.reads[index].buffer
    return [r for r in f.reads if r.buffer is buffer]


# ---------------------------------------------------------------------------- steps
def _applied(k: Kernel, f: Facts, found: _Found, t: SharedTile) -> dict[str, object]:
    sch, wide, high = k.sch, found.wide, found.high
    consumer = k.fusable_consumer(f)
    if consumer is not None:
        sch.set_scope(f.rv, 0, "local")
    epilogue = consumer if consumer is not None else sch.cache_write(f.rv, 0, "local")
    f = facts_of(sch, f.rv)
    copies = [_copy(k, f, i) for i in range(len(f.block.reads)) if _is_worth(f, i)]
    loops = dict(zip([a.var for a in f.axes], sch.get_loops(f.rv), strict=True))
    x = list(sch.split(loops[wide.var], [None, t.groups_wide, t.wide, t.own_wide]))
    y = (
        list(sch.split(loops[high.var], [None, t.groups_high, t.high, t.own_high]))
        if high is not None
        else []
    )
    others = [loops[a.var] for a in f.spatial if a.var not in (wide.var, None if high is None else high.var)]
    reduces = [loops[a.var] for a in f.reduce]
    outer, *deep = reduces[0], *reduces[1:]
    size = extent_of(sch, reduces[0])
    within: list[LoopRV] = []
    step = t.depth if size is None else min(t.depth, size)
    if size is None or size > step or step > 1:
        outer, some = sch.split(reduces[0], [None, step])
        within = [some]
    parts = [y, x] if y else [x]
    spread = [p[n] for n in (0, 1, 2) for p in parts]
    sch.reorder(*others, *spread, outer, *within, *deep, *[p[3] for p in parts])
    names = ["x", "y"] if len(parts) == 1 else ["y", "x"]
    threads = [extent_of(sch, p[2]) or 1 for p in parts]
    if others:
        sch.bind(k.fused(others, f.rv), "blockIdx.z")
    for p, name in zip(parts, names, strict=False):
        for loop, axis in zip(p, ("blockIdx", "vthread", "threadIdx"), strict=False):
            if axis == "blockIdx" or loop is parts[-1][2] or (extent_of(sch, loop) or 2) > 1:
                sch.bind(loop, f"{axis}.{name}")
    sch.reverse_compute_at(epilogue, parts[-1][2], preserve_unit_loops=True)
    for loop in [*(within + deep if t.unroll else []), *[p[3] for p in parts]]:
        sch.unroll(loop)
    shares = {n: x for n, x in zip(names, threads, strict=False) if x > 1 or n == names[len(parts) - 1]}
    for copy in copies:
        sch.compute_at(copy, outer, preserve_unit_loops=False)
        own = sch.get_loops(copy)[len(sch.get_loops(f.rv)) - len(within) - len(deep) - len(parts) :]
        _fetch(k, copy, own, shares, t.fetch)
    return {
        "tile": " x ".join(str(t.side(a is wide)) for a in (high, wide) if a is not None),
        "threads": math.prod(threads),
        "shared": [sch.realize(c).block.name_hint for c in copies],
    }


def _copy(k: Kernel, f: Facts, index: int) -> BlockRV:
    """A copy of an operand in shared memory, with the stages inlined that prepare it (padding)."""
    copy = k.sch.cache_read(f.rv, index, "shared")
    for producer in k.sch.get_producers(copy):
        if not k.is_done(producer):
            k.inlines(producer)
    return copy


def _fetch(k: Kernel, copy: BlockRV, own: list[LoopRV], threads: dict[str, int], wide: int) -> None:
    """Bind a copy to shared memory to all threads of a block, in vectors of `wide` elements."""
    sch = k.sch
    loop = k.fused(own, copy) if own else sch.add_unit_loop(copy)
    size = extent_of(sch, loop)
    inner = [wide] if wide > 1 and size is not None and size % wide == 0 else []
    _, *shares = sch.split(loop, [None, *threads.values(), *inner])
    for share, name in zip(shares, threads, strict=False):
        sch.bind(share, f"threadIdx.{name}")
    if inner:
        sch.vectorize(shares[-1])


# ---------------------------------------------------------------------------- sizes
_SIDES = ((1, 2, 4, 8, 16, 32), (4, 8, 16, 32, 64))  # threads along the two sides
_OWN = (1, 2, 4, 8)  # contiguous results of a thread along a side
_GROUPS = (1, 2, 4)
_STEPS = (1, 2, 4, 8, 16, 32)
_FETCHES = (1, 4)


def _every(f: Facts, found: _Found, gpu: GpuMachine, first: Array | None = None) -> Array:
    """All tiles that the hardware can run, and the tile `first`, which the rule chooses without measurements."""
    wide, high = found.wide, found.high
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
    points = np.array(list(product(*sides, *own, *groups, depths, _FETCHES, unrolls)), np.int64)
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
    c = _counts(f, found, t, gpu)
    # A loop whose first and last iterations differ becomes three loops, and each has its own copy of small buffers.
    sizes = _copied(f, found.shared, _spans(f, found, t))
    most = sum((np.where(size <= SMALL["shared"], 3 * size, size) for size in sizes), start=np.zeros(1))
    fits = (most <= gpu.shared_memory_per_block) & (c.registers <= gpu.limits.registers_per_thread)
    fits &= c.registers * c.threads <= gpu.registers_per_block
    points = points[fits]
    if first is not None and not (points == first).all(axis=1).any():
        points = np.concatenate([first, points])
    return points


def _spans(f: Facts, found: _Found, t: Mapping[str, Array]) -> dict[Any, Array]:
    """The iterations of each axis that a step of a tile has."""
    across = t["wide"] * t["own_wide"] * t["groups_wide"]
    spans = {found.wide.var: across, f.reduce[0].var: t["depth"]}
    if found.high is not None:
        spans[found.high.var] = t["high"] * t["own_high"] * t["groups_high"]
    return spans | {a.var: np.full(len(across), a.extent) for a in f.reduce[1:]}


def _counts(f: Facts, found: _Found, t: Mapping[str, Array], gpu: GpuMachine) -> Counts:
    """The work of tiles. As many thread blocks as fit share an SM: while one waits, the others compute. The last wave
    of thread blocks may leave SMs idle. Only other warps hide the latency of instructions."""
    wide, high, w, limits = found.wide, found.high, gpu.tile, gpu.limits
    deep = math.prod(a.extent for a in f.reduce[1:])
    room = sum(_copied(f, found.shared, _spans(f, found, t)), start=np.zeros(1))
    threads = t["high"] * t["wide"]
    mine = t["own_high"] * t["groups_high"], t["own_wide"] * t["groups_wide"]
    results, operands = mine[0] * mine[1], mine[0] + mine[1]
    down, across = t["high"] * mine[0], t["wide"] * mine[1]
    others = math.prod(a.extent for a in f.spatial if a is not wide and a is not high)
    blocks = others * -(-wide.extent // across) * (1 if high is None else -(-high.extent // down))
    depth = np.minimum(t["depth"], f.reduce[0].extent)
    steps = -(-f.reduce[0].extent // depth)
    registers = float(w.other_registers) + results + operands + t["fetch"] * 2
    # neighbours in a warp read words that are own_wide apart
    bank = np.where(t["own_wide"] > 4, t["own_wide"] / 4, 1.0) * np.where(t["own_wide"] > 1, w.strided, 1.0)
    compute = threads * results * depth * deep / gpu.fma_per_cycle * np.where(t["unroll"] == 1, 1.0, w.rolled)
    near = threads * operands * bank * depth * deep * 4 / w.shared_bytes
    far = room / (gpu.dram_bytes * w.l2_ratio) * (1 + w.element_fetch / t["fetch"])
    resident = np.minimum(limits.threads // threads, limits.registers // np.maximum(1, registers * threads))
    resident = np.clip(np.minimum(resident, limits.blocks_by_shared(np.maximum(1, room))), 1, limits.blocks)
    at_once = np.minimum(resident, np.maximum(1, -(-blocks // gpu.multiprocessors)))
    if gpu.warp_size > 1:
        warps = at_once * np.maximum(1, threads / gpu.warp_size)
        slow = w.issue * np.maximum(1.0, w.enough_warps / warps) ** w.exposed
        compute, near = compute * slow, near * slow
    exact = blocks / (gpu.multiprocessors * at_once)
    return Counts(
        rounds=np.maximum(1.0, 0.5 * (np.ceil(exact) + exact)), steps=steps, compute=at_once * compute,
        shared=at_once * near, l2=at_once * far,
        # a thread block alone waits for memory, then computes
        latency=w.latency + compute + near * w.serial_shared, ends=results * w.store * at_once + w.block,
        blocks=blocks, at_once=at_once, threads=threads, registers=registers, shared_bytes=room,
        l2_bytes=blocks * steps * room, dram=bytes_of([f]), dram_rate=w.copy_rate,
    )  # fmt: skip


def _copied(f: Facts, shared: Sequence[Access], spans: Mapping[Any, Array]) -> list[Array]:
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
