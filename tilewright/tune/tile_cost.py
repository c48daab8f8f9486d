"""What a register tile costs: a model of the processor, evaluated for arrays of candidates.

    cycles of a point   = max(multiply-adds, loads, latency) + what spills, conflicts in the cache and far reads cost
    cycles of a tile    = points · cycles of a point + writing it out, or the way of its bytes, whichever is longer
    cycles of the whole = tiles · cycles of a tile / threads, and everything comes from memory at least once

The constants were read off measured kernels; where one shape is slow, one of them, or a sketch, is wrong.
"""

from __future__ import annotations

import numpy as np

from ..target.machine import CpuMachine
from .facts import Access, Axis, Facts
from .tile_space import LAST_TILE, Array, TileSpace, thread_share

__all__ = ["evaluate"]

_LOOP_CYCLES = 30.0  # entering a tile: addresses, the first loads, the loop
_OVERLAP = 0.3  # of two things that go on at once, how much of the shorter one shows
_SPILL = 10.0  # a register that is not there, in each point: what goes to memory and back waits for itself
_ACROSS_LINES = 1.7  # loads that lie across two lines


def evaluate(space: TileSpace, machine: CpuMachine, cores: int) -> dict[str, Array]:
    """The cost of all candidates of a space, in cycles, and what it consists of."""
    point = _point(space, machine)
    compute = _points(space) * point["point"] + _finish(space)
    memory = _traffic(space, machine, cores)
    tile = _together(compute, memory["traffic"])
    share = thread_share(space, cores)
    whole = tile * _tiles(space)
    if cores > 1:
        whole = whole * share.longest + machine.launch_us * 1e3 * machine.clock
    first = np.full(len(tile), _first_touch(space.facts, machine, cores))
    whole = _together(whole, first) + _packing_cycles(space, machine, cores)
    return {
        "cycles": whole,
        "compute": compute,
        "first_touch": first,
        "units": share.turns,
        **point,
        **memory,
    }


def _together(x: Array, y: Array) -> Array:
    return np.maximum(x, y) + _OVERLAP * np.minimum(x, y)


def _points(space: TileSpace) -> int:
    """How often a tile is updated."""
    count = 1
    for a in space.facts.reduce:
        count *= a.extent if a is not space.vector else -(-a.extent // space.lanes)
    return count


def _point(space: TileSpace, machine: CpuMachine) -> dict[str, Array]:
    """One point of the reduction for a whole tile."""
    nv, rows = space.vectors, space.tiles.prod(axis=1)
    vector_loads, scalar_loads = np.zeros(len(nv)), np.zeros(len(nv))
    waits = np.zeros(len(nv))
    for r in space.facts.reads:
        count = _in_tile(space, r)
        if not r.moves(space.vector):
            scalar_loads = scalar_loads + count
            waits = waits + _strips(space, machine, r) + _row_conflicts(space, machine, r)
            continue
        if space.window:
            count = _ACROSS_LINES * _loads_of_window(space, r) / _points(space)
        vector_loads = vector_loads + count * nv
        if space.dot:
            waits = waits + _row_conflicts(space, machine, r)
        if r is not space.packed:
            waits = waits + _far_apart(space, r) + count * nv * _gather(space, r)
    fma = rows * nv / machine.fma_ports
    loads = (vector_loads + 0.5 * scalar_loads) / machine.loads_per_cycle
    # Of what is multiplied, the fewer stay in registers while the others pass by.
    fewer = np.where(scalar_loads > 0, np.minimum(vector_loads, scalar_loads), np.minimum(nv, rows))
    held = rows * nv + fewer + 1
    spills = np.maximum(0, held - machine.vector_registers) * _SPILL
    busy = np.maximum(np.maximum(fma, loads + 0.25 * fma), machine.fma_latency)
    point = busy + spills + waits + 0.01 * scalar_loads
    return {"point": point, "fma": fma, "loads": loads, "registers": held, "spills": spills}


def _in_tile(space: TileSpace, r: Access) -> Array:
    """How many places of a read the rows of a tile want."""
    count = np.ones(len(space.vectors))
    for a, axis in enumerate(space.rows):
        if r.moves(axis):
            count = count * space.tiles[:, a]
    return count


def _gather(space: TileSpace, r: Access) -> float:
    """Cycles a vector costs more whose lanes do not lie in line."""
    step = abs(r.stride(space.vector) or 1)
    return 0.0 if step == 1 else 5.0 if step == 2 else 2.0 * space.lanes


def _finish(space: TileSpace) -> Array:
    """Entering a tile and writing it out."""
    rows = space.tiles.prod(axis=1)
    cycles = rows * space.vectors * 2.0 + _LOOP_CYCLES
    if space.dot:
        return cycles + rows * (2.0 * space.lanes)
    return cycles + rows * space.vectors * space.lanes if space.transposes else cycles


def _traffic(space: TileSpace, machine: CpuMachine, cores: int) -> dict[str, Array]:
    """Bytes that a tile reads, from the cache in which they are found again.

    The loops around decide that: the inner one goes over all rows (or all vectors) before anything comes again.
    """
    facts, nv, lanes = space.facts, space.vectors, space.lanes
    moved_v, moved_r, sweep_v, sweep_r = (np.zeros(len(nv)) for _ in range(4))
    for r in facts.reads:
        deep = float(np.prod([a.extent for a in facts.reduce if r.moves(a)], dtype=np.float64)) * r.bytes
        tile = deep * _in_tile(space, r)
        if r.moves(space.vector) and not space.dot:
            moved_v = moved_v + tile * nv * lanes
            sweep_v = sweep_v + tile * np.where(space.outer == 1, nv * lanes, space.vector.extent)
            continue
        rows = deep * float(np.prod([a.extent for a in space.rows if r.moves(a)], dtype=np.float64))
        moved_r = moved_r + tile
        sweep_r = sweep_r + np.where(space.outer == 1, rows, tile)
    cycles = moved_v / _level_bandwidth(machine, sweep_v, cores)
    cycles = cycles + moved_r / _level_bandwidth(machine, sweep_r, cores)
    return {"traffic": cycles, "panel": sweep_v, "streamed": sweep_r}


def _tiles(space: TileSpace) -> Array:
    """How many tiles there are, the smaller ones counted for what they cost."""
    tiles = np.ones(len(space.vectors))
    for a, axis in enumerate(space.rows):
        tiles = tiles * _parts(axis.extent, space.tiles[:, a])
    if space.dot:
        return tiles
    return tiles * _parts(-(-space.vector.extent // space.lanes), space.vectors)


def _far_apart(space: TileSpace, r: Access) -> Array:
    """Cycles a point of the reduction costs more because the next one is in another page.

    The wider the piece of a line that is read, the more of it comes along unasked.
    """
    width = space.vectors * space.lanes * r.bytes
    steps = [
        abs(r.stride(a) or 0) * r.bytes for a in space.facts.reduce if r.moves(a) and a is not space.vector
    ]
    if not steps or min(steps) < 2048:
        return np.zeros(len(width))
    waits = np.where(width <= 64, 3.0, np.where(width <= 128, 0.9, 0.3))
    return waits if min(steps) >= 4096 else 0.1 * waits


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
        along = [
            k
            for k in space.facts.reduce
            if step
            and r.stride(k)
            and abs(r.stride(k) or 0) * 2 > abs(step)
            and k not in used
            and abs(r.stride(k) or 0) <= abs(step)
        ]
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
    return full + np.where(rest > 0, np.maximum(rest / tile, LAST_TILE), 0.0)


def _first_touch(facts: Facts, machine: CpuMachine, cores: int) -> float:
    """Cycles until everything has come once from where it lies, with all cores at it."""
    total = 0.0
    for r in facts.accesses:
        size = facts.touched(r)
        if size > machine.cache_sizes.l2:
            total += size / float(_level_bandwidth(machine, np.array(size), cores)) / cores
    return total


def _packing_cycles(space: TileSpace, machine: CpuMachine, cores: int) -> float:
    r = space.packed
    if r is None or space.pack_free:
        return 0.0
    size = r.footprint({a.var: a.extent for a in space.facts.axes})
    copy = 2.0 / space.lanes if r.stride(space.vector) == 1 else 1.0
    source = 2 * r.bytes / float(_level_bandwidth(machine, np.array(size * r.bytes), cores))
    return size * (copy + source) / cores
