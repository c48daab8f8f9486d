"""The space of register tiles of a reduction block, and its cost as a function of arrays of decisions.

A tile is a set of accumulators that stay in registers while the reduction runs:

                 nv vectors of the vector axis
               ┌────────┬────────┬────────┐
      t rows   │        │        │        │      for each point of the reduction:
      of other │  acc   │  acc   │  acc   │        every read that moves with the vector axis is a vector load,
      axes     │        │        │        │        every other read a broadcast,
               └────────┴────────┴────────┘        t · nv multiply-adds

The vector axis is a spatial one, or a reduction axis ("dot": each accumulator is a vector of partial sums).
Everything here is arithmetic on arrays: a candidate is a row, and nothing is scheduled or lowered for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..ir.buffer import Buffer
from ..target.machine import CpuMachine
from .facts import Access, Axis, Facts

__all__ = ["Best", "TileSpace", "best_tile", "tile_spaces"]

Array = Any  # an array of candidates
_MAX_ROWS = 32
_WINDOW = 32  # points of a window that is unrolled, at most
_WINDOW_TILE = 8  # and accumulators beside it: the neighbours that are read again want registers too
_LOOP_CYCLES = 30.0  # entering a tile: addresses, the first loads, the loop


@dataclass(frozen=True, slots=True)
class TileSpace:
    """The decisions that are free for one vector axis, extracted once.

    `rows` are the other spatial axes; `tiles[i, a]` is the number of values of `rows[a]` in a tile of candidate i,
    `vectors[i]` the number of vectors, `outer[i]` 1 if the loop over vectors goes around the loops over rows.
    """

    facts: Facts
    vector: Axis
    lanes: int
    dot: bool
    rows: tuple[Axis, ...]
    packed: Access | None  # the read that is copied into panels
    pack_free: bool  # … before the program runs
    transposes: bool  # results lie across the vectors
    window: bool  # the reduction is a small window over what all rows move with: it is unrolled
    tiles: Array
    vectors: Array
    outer: Array


@dataclass(slots=True)
class Best:
    """The choice of a space and the figures that led to it."""

    space: TileSpace
    index: int
    cycles: float
    candidates: int
    figures: dict[str, float] = field(default_factory=dict)

    @property
    def tile(self) -> list[int]:
        return [int(t) for t in self.space.tiles[self.index]]

    @property
    def vectors(self) -> int:
        return int(self.space.vectors[self.index])

    @property
    def vector_outer(self) -> bool:
        return bool(self.space.outer[self.index])


def _row_tiles(rows: tuple[Axis, ...]) -> Array:
    """All tiles of at most two axes, of at most 32 rows together."""
    found = {(1,) * len(rows)}
    for a, axis in enumerate(rows):
        for t in range(1, min(axis.extent, _MAX_ROWS) + 1):
            one = [1] * len(rows)
            one[a] = t
            found.add(tuple(one))
            for b, other in enumerate(rows):
                if b == a:
                    continue
                for u in range(2, min(other.extent, _MAX_ROWS // t, 8) + 1):
                    two = list(one)
                    two[b] = u
                    found.add(tuple(two))
    return np.array(sorted(found), dtype=np.int64).reshape(len(found), len(rows))


def tile_spaces(facts: Facts, machine: CpuMachine, constants: frozenset[Buffer]) -> list[TileSpace]:
    """One space for each axis that can be the vector axis."""
    assert facts.write is not None
    out: list[TileSpace] = []
    widest = max(r.buffer.dtype.element.bits for r in (*facts.reads, facts.write))
    lanes = machine.lanes(max(widest, 8))
    for axis in facts.axes:
        if axis.extent == 1:
            continue
        width = lanes
        while width > 2 and width // 2 >= axis.extent:
            width //= 2
        moving = [r for r in facts.reads if r.moves(axis)]
        if any(r.stride(axis) is None for r in moving):
            continue
        rows = tuple(a for a in facts.spatial if a is not axis)
        far = [r for r in moving if r.stride(axis) != 1]
        if axis.reduce:
            if far or not moving or axis.extent < width:
                continue
            spaces: list[tuple[Access | None, bool]] = [(None, False)]
            transposes = False
        else:
            across = facts.write.stride(axis)
            if across is None:
                continue
            transposes = across != 1
            spaces = _packings(facts, axis, moving, far, constants)
        tiles = _row_tiles(rows)
        for packed, free in spaces:
            most = 1 if axis.reduce else min(8, -(-axis.extent // width))
            counts = np.arange(1, most + 1)
            orders = np.array([0, 1]) if not axis.reduce else np.array([0])
            t, v, o = _product(tiles, counts, orders)
            size = t.prod(axis=1) * v
            window = packed is None and not transposes and _is_window(facts, axis)
            keep = size <= (_WINDOW_TILE if window else 2 * machine.vector_registers)
            if window:
                keep &= o == 0
            if packed is not None and not free:
                keep &= o == 1
            out.append(
                TileSpace(
                    facts, axis, width, axis.reduce, rows, packed, free, transposes, window, t[keep], v[keep], o[keep]
                )
            )
    return out


def _is_window(facts: Facts, vector: Axis) -> bool:
    """Whether only neighbours share what is read, as in a depthwise convolution or a pooling."""
    if vector.reduce or any(not a.known for a in facts.reduce):
        return False
    points = int(np.prod([a.extent for a in facts.reduce], dtype=np.int64))
    moving = [r for r in facts.reads if r.moves(vector)]
    return 1 < points <= _WINDOW and all(
        r.moves(a) for r in moving for a in facts.spatial if a.extent > 1
    )


def _packings(
    facts: Facts, axis: Axis, moving: list[Access], far: list[Access], constants: frozenset[Buffer]
) -> list[tuple[Access | None, bool]]:
    """Which of the reads that move with the vector axis may be copied into panels."""
    if len(far) > 1:
        return []
    if far:
        if not any(e is axis.var for e in far[0].indices):
            return [(None, False)]  # a copy would lie no better
        return [(far[0], far[0].buffer in constants)]
    # a copy pays only for what rows use again
    shared = [r for r in moving if any(not r.moves(a) for a in facts.spatial if a is not axis)]
    free = [r for r in shared if r.buffer in constants]
    if free:
        return [(free[0], True)]
    return [(None, False)] + ([(shared[0], False)] if shared else [])


def _product(tiles: Array, counts: Array, orders: Array) -> tuple[Array, Array, Array]:
    n, c, o = len(tiles), len(counts), len(orders)
    t = np.repeat(tiles, c * o, axis=0)
    v = np.tile(np.repeat(counts, o), n)
    return t, v, np.tile(orders, n * c)


# ---------------------------------------------------------------------------- the model
def _level_bandwidth(machine: CpuMachine, size: Array, cores: int) -> Array:
    """Bytes in a cycle that one core gets of something of `size` bytes that it reads again and again."""
    caches = machine.cache_sizes
    memory = machine.bandwidth(cores) / cores / machine.clock
    return np.where(
        size <= 0.8 * caches.l1d,
        machine.l1_bandwidth,
        np.where(
            size <= 0.8 * caches.l2,
            machine.l2_bandwidth,
            np.where(size <= 0.8 * caches.l3 / cores, machine.l3_bandwidth, memory),
        ),
    )


def _parts(extent: int, tile: Array) -> Array:
    """How many tiles cover an axis; the last, smaller one counts for what it costs."""
    full, rest = extent // tile, extent % tile
    return full + np.where(rest > 0, np.maximum(rest / tile, 0.35), 0.0)


def _conflicts(machine: CpuMachine, stride: int, rows: Array) -> Array:
    """Cycles lost because of `rows` lines, `stride` bytes apart, some find no place in the first cache."""
    sets, line = 64, machine.cache_sizes.line
    ways = max(2, machine.cache_sizes.l1d // (sets * line))
    most = int(rows.max(initial=1))
    lost = np.zeros(most + 1)
    used: dict[int, int] = {}
    for r in range(most):
        place = (r * stride // line) % sets
        used[place] = used.get(place, 0) + 1
        over = sum(max(0, n - ways - 1) for n in used.values())
        lost[r + 1] = 0.8 * over + 0.27 * over * over
    return lost[rows]


def _loads_of_window(space: TileSpace, r: Access) -> Array:
    """Vectors that a whole window reads for each vector of results, what rows share counted once."""
    count = np.ones(len(space.vectors))
    used: list[Axis] = []
    for a, axis in enumerate(space.rows):
        step = r.stride(axis)
        if not r.moves(axis):
            continue
        along = [k for k in space.facts.reduce if step and r.stride(k) and abs(r.stride(k) or 0) * 2 > abs(step)
                 and k not in used and abs(r.stride(k) or 0) <= abs(step)]
        if along:
            k = along[0]
            used.append(k)
            count = count * (space.tiles[:, a] + k.extent - 1)
        else:
            count = count * space.tiles[:, a]
    for k in space.facts.reduce:
        if k not in used and r.moves(k):
            count = count * k.extent
    return count


def _strips(space: TileSpace, machine: CpuMachine, r: Access) -> Array:
    """Cycles a point of the reduction waits for a read that goes down a column of large lines.

    Each point finds it in another page, which no prefetcher foresees; only what stays in a cache is there in time.
    """
    steps = [abs(r.stride(a) or 0) * r.bytes for a in space.facts.reduce if r.moves(a)]
    if not steps or min(steps) < 4096:
        return np.zeros(len(space.vectors))
    lines = np.full(len(space.vectors), float(np.prod([a.extent for a in space.facts.reduce if r.moves(a)])))
    for a, axis in enumerate(space.rows):
        if r.moves(axis):
            lines = lines * np.where(space.outer == 1, axis.extent, space.tiles[:, a]) / 16.0
    return np.where(lines * 64 > 0.8 * machine.cache_sizes.l2, 0.4 * machine.l3_latency, 0.5)


def _row_conflicts(space: TileSpace, machine: CpuMachine, r: Access) -> Array:
    """Cycles lost because the rows of a tile fall on the same places of the first cache."""
    lost = np.zeros(len(space.vectors))
    for a, axis in enumerate(space.rows):
        step = r.stride(axis)
        if step and abs(step) * r.bytes > machine.cache_sizes.line:
            lost = lost + _conflicts(machine, abs(step) * r.bytes, space.tiles[:, a])
    return lost


def evaluate(space: TileSpace, machine: CpuMachine, cores: int) -> dict[str, Array]:
    """The cost of all candidates of a space, in cycles, and what it consists of."""
    facts, lanes, line = space.facts, space.lanes, machine.cache_sizes.line
    write = facts.write
    assert write is not None
    t, nv, outer = space.tiles, space.vectors, space.outer
    rows_in_tile = t.prod(axis=1)
    others = [a for a in facts.reduce if a is not space.vector]
    points = int(np.prod([a.extent for a in others], dtype=np.int64)) if others else 1
    if space.dot:
        points *= -(-space.vector.extent // lanes)
    # -- one point of the reduction in a tile
    vector_loads, scalar_loads = np.zeros(len(nv)), np.zeros(len(nv))
    conflicts = np.zeros(len(nv))
    strided = np.zeros(len(nv))
    for r in facts.reads:
        count = np.ones(len(nv))
        for a, axis in enumerate(space.rows):
            if r.moves(axis):
                count = count * t[:, a]
        if r.moves(space.vector):
            if space.window:
                count = 1.7 * _loads_of_window(space, r) / points  # most of them across two lines
            vector_loads = vector_loads + count * nv
            if space.dot:
                conflicts = conflicts + _row_conflicts(space, machine, r)
            if r is not space.packed:
                strided = strided + _far_apart(facts, space, r, nv * lanes * r.bytes)
                step = abs(r.stride(space.vector) or 1)
                if step > 1:
                    strided = strided + count * nv * (5.0 if step == 2 else 2.0 * lanes)
        else:
            scalar_loads = scalar_loads + count
            strided = strided + _strips(space, machine, r)
            conflicts = conflicts + _row_conflicts(space, machine, r)
    fma = rows_in_tile * nv / machine.fma_ports
    loads = (vector_loads + 0.5 * scalar_loads) / machine.loads_per_cycle
    held = rows_in_tile * nv + np.minimum(nv, rows_in_tile) + 1
    spills = np.maximum(0, held - machine.vector_registers) * 2.0
    point = np.maximum(np.maximum(fma, loads + 0.25 * fma), machine.fma_latency) + spills + conflicts + strided
    point = point + 0.01 * scalar_loads
    # -- a tile
    finish = rows_in_tile * nv * 2.0 + _LOOP_CYCLES
    if space.dot:
        finish = finish + rows_in_tile * (2.0 * lanes)
    elif space.transposes:
        finish = finish + rows_in_tile * nv * lanes * 1.0
    compute = points * point + finish
    # -- the memory behind it
    element = write.bytes
    moved_v = np.zeros(len(nv))
    moved_r = np.zeros(len(nv))
    sweep_v, sweep_r = np.zeros(len(nv)), np.zeros(len(nv))
    for r in facts.reads:
        inner = np.full(len(nv), float(np.prod([a.extent for a in facts.reduce if r.moves(a)], dtype=np.float64)))
        all_rows = inner.copy()
        for a, axis in enumerate(space.rows):
            if r.moves(axis):
                inner = inner * t[:, a]
                all_rows = all_rows * axis.extent
        if r.moves(space.vector) and not space.dot:
            moved_v = moved_v + inner * nv * lanes * r.bytes
            sweep_v = sweep_v + np.where(
                outer == 1, inner * nv * lanes, all_rows * 0 + inner * space.vector.extent
            ) * r.bytes
        else:
            moved_r = moved_r + inner * r.bytes
            sweep_r = sweep_r + np.where(outer == 1, all_rows, inner) * r.bytes
    traffic = moved_v / _level_bandwidth(machine, sweep_v, cores) + moved_r / _level_bandwidth(
        machine, sweep_r, cores
    )
    tile_cycles = np.maximum(compute, traffic) + 0.3 * np.minimum(compute, traffic)
    # -- all tiles
    tiles_r = np.ones(len(nv))
    units_r = np.ones(len(nv))
    for a, axis in enumerate(space.rows):
        tiles_r = tiles_r * _parts(axis.extent, t[:, a])
        units_r = units_r * -(-axis.extent // t[:, a])
    if space.dot:
        tiles_v, units_v = np.ones(len(nv)), np.ones(len(nv))
    else:
        total = -(-space.vector.extent // lanes)
        tiles_v, units_v = _parts(total, nv), -(-total // nv)
    units = np.where(outer == 1, units_v * _batch(space, t), units_r)
    if cores > 1:
        imbalance = np.ceil(units / cores) * cores / units
        serial = tile_cycles * tiles_r * tiles_v
        whole = serial * imbalance / cores + machine.launch_us * 1e3 * machine.clock
    else:
        whole = tile_cycles * tiles_r * tiles_v
    first = _first_touch(facts, machine, cores)
    whole = np.maximum(whole, first) + 0.3 * np.minimum(whole, first)
    whole = whole + _packing_cycles(space, machine, cores)
    return {
        "cycles": whole,
        "point": point,
        "fma": fma,
        "loads": loads,
        "registers": held,
        "compute": compute,
        "traffic": traffic,
        "first_touch": np.full(len(nv), first),
        "units": units,
        "panel": sweep_v,
        "streamed": sweep_r,
        "spills": spills,
    }


def _first_touch(facts: Facts, machine: CpuMachine, cores: int) -> float:
    """Cycles until everything has come once from where it lies, with all cores at it."""
    everywhere = {a.var: a.extent for a in facts.axes}
    total = 0.0
    for r in (*facts.reads, *([facts.write] if facts.write else [])):
        size = r.footprint(everywhere) * r.bytes
        if size > machine.cache_sizes.l2:
            total += size / float(_level_bandwidth(machine, np.array(size), cores)) / cores
    return total


def _batch(space: TileSpace, t: Array) -> Array:
    """How many times the loop over vectors is run: once for each value of the axes that all reads move with."""
    out = np.ones(len(t))
    for a, axis in enumerate(space.rows):
        if all(r.moves(axis) for r in space.facts.reads):
            out = out * -(-axis.extent // t[:, a])
    return out


def _far_apart(facts: Facts, space: TileSpace, r: Access, width: Array) -> Array:
    """Cycles a point of the reduction costs more because the next one is in another page.

    The wider the piece of a line that is read, the more of it comes along unasked.
    """
    steps = [abs(r.stride(a) or 0) * r.bytes for a in facts.reduce if r.moves(a) and a is not space.vector]
    if not steps or min(steps) < 2048:
        return np.zeros(len(width))
    waits = np.where(width <= 64, 3.0, np.where(width <= 128, 0.9, 0.3))
    return waits if min(steps) >= 4096 else 0.1 * waits


def _packing_cycles(space: TileSpace, machine: CpuMachine, cores: int) -> float:
    r = space.packed
    if r is None or space.pack_free:
        return 0.0
    size = r.footprint({a.var: a.extent for a in space.facts.axes})
    copy = 2.0 / space.lanes if r.stride(space.vector) == 1 else 1.0
    source = 2 * r.bytes / float(_level_bandwidth(machine, np.array(size * r.bytes), cores))
    return size * (copy + source) / cores


def best_tile(
    facts: Facts, machine: CpuMachine, cores: int, constants: frozenset[Buffer] = frozenset()
) -> Best | None:
    """The candidate with the least cost; the first of several. None if no axis can be a vector."""
    best: Best | None = None
    seen = 0
    for space in tile_spaces(facts, machine, constants):
        if not len(space.vectors):
            continue
        costs = evaluate(space, machine, cores)
        seen += len(space.vectors)
        i = int(np.argmin(costs["cycles"]))
        if best is None or costs["cycles"][i] < best.cycles:
            figures = {k: float(v[i]) for k, v in costs.items()}
            best = Best(space, i, float(costs["cycles"][i]), 0, dict(figures))
    if best is not None:
        best.candidates = seen
    return best
