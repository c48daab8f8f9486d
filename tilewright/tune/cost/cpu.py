"""The cost of a register tile: a model of the CPU, evaluated for arrays of candidates.

    cycles of a point   = max(multiply-adds, loads, latency) + spills + conflicts in the L1 cache + cache misses
    cycles of a tile    = points · cycles of a point + writing it out, or its traffic, whichever is longer
    cycles of the whole = tiles · cycles of a tile / threads, and everything comes from memory at least once

The constants were read off measured kernels; where one shape is slow, one of them, or a sketch, is wrong.
"""

from __future__ import annotations

import numpy as np

from ...target.machine import CpuMachine
from ..program.facts import Access, Axis, Facts
from ..rules.cpu.tile_space import LAST_TILE, Array, TileSpace, thread_share

__all__ = ["evaluate"]

_LOOP_CYCLES = 30.0  # entering a tile: addresses, the first loads, the loop
_OVERLAP = 0.3  # fraction of the shorter of two overlapping activities that is not hidden
_SPILL = 10.0  # cycles in each point for each register too few: a store, and a load that waits for it
_ACROSS_LINES = 1.7  # cost of a load that may cross two cache lines, relative to one that does not


def evaluate(space: TileSpace, machine: CpuMachine, cores: int) -> dict[str, Array]:
    """The cost of all candidates of a space, in cycles, and its components."""
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
    """The number of reduction steps of a tile."""
    count = 1
    for a in space.facts.reduce:
        count *= a.extent if a is not space.vector else -(-a.extent // space.lanes)
    return count


def _point(space: TileSpace, machine: CpuMachine) -> dict[str, Array]:
    """The cycles of one point of the reduction for a whole tile, with their components."""
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
    # The fewer of the two kinds of operands stay in registers while the others are loaded one by one.
    fewer = np.where(scalar_loads > 0, np.minimum(vector_loads, scalar_loads), np.minimum(nv, rows))
    held = rows * nv + fewer + 1
    spills = np.maximum(0, held - machine.vector_registers) * _SPILL
    busy = np.maximum(np.maximum(fma, loads + 0.25 * fma), machine.fma_latency)
    point = busy + spills + waits + 0.01 * scalar_loads
    return {"point": point, "fma": fma, "loads": loads, "registers": held, "spills": spills}


def _in_tile(space: TileSpace, r: Access) -> Array:
    """How many different addresses of a read the rows of a tile have."""
    count = np.ones(len(space.vectors))
    for a, axis in enumerate(space.rows):
        if r.moves(axis):
            count = count * space.tiles[:, a]
    return count


def _gather(space: TileSpace, r: Access) -> float:
    """The extra cycles of a vector load whose lanes are not contiguous."""
    step = abs(r.stride(space.vector) or 1)
    return 0.0 if step == 1 else 5.0 if step == 2 else 2.0 * space.lanes


def _finish(space: TileSpace) -> Array:
    """The cycles for entering a tile and writing it out."""
    rows = space.tiles.prod(axis=1)
    cycles = rows * space.vectors * 2.0 + _LOOP_CYCLES
    if space.dot:
        return cycles + rows * (2.0 * space.lanes)
    return cycles + rows * space.vectors * space.lanes if space.transposes else cycles


def _traffic(space: TileSpace, machine: CpuMachine, cores: int) -> dict[str, Array]:
    """The cycles for the bytes that a tile reads, by the level of cache in which they are reused.

    The order of the loops around a tile decides that: the inner loop goes over all rows (or all vectors) before an
    operand is read again.
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
    """The number of tiles; partial tiles count by their cost relative to a whole one."""
    tiles = np.ones(len(space.vectors))
    for a, axis in enumerate(space.rows):
        tiles = tiles * _parts(axis.extent, space.tiles[:, a])
    if space.dot:
        return tiles
    return tiles * _parts(-(-space.vector.extent // space.lanes), space.vectors)


def _far_apart(space: TileSpace, r: Access) -> Array:
    """The extra cycles of a point of the reduction because the next point is in another page.

    The wider the piece of a row that is read, the more of it the hardware prefetches.
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
    """The cycles that a point of the reduction waits for a read along a column of long rows.

    Each point reads another page, which no prefetcher foresees; only elements that stay in a cache arrive in time.
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
    """The cycles lost because rows of a tile fall into the same sets of the L1 cache."""
    lost = np.zeros(len(space.vectors))
    for a, axis in enumerate(space.rows):
        step = r.stride(axis)
        if step and abs(step) * r.bytes > machine.cache_sizes.line:
            lost = lost + _conflicts(machine, abs(step) * r.bytes, space.tiles[:, a])
    return lost


def _conflicts(machine: CpuMachine, stride: int, rows: Array) -> Array:
    """The cycles lost because `rows` lines, `stride` bytes apart, do not all fit into their sets of the L1 cache."""
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
    """The vectors that a whole window loads for each vector of results; those that rows share count once."""
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
    """The bandwidth of one core, in bytes in a cycle, for `size` bytes that it reads again and again."""
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
    """The number of tiles along an axis; a partial tile counts by its cost relative to a whole one."""
    full, rest = extent // tile, extent % tile
    return full + np.where(rest > 0, np.maximum(rest / tile, LAST_TILE), 0.0)


def _first_touch(facts: Facts, machine: CpuMachine, cores: int) -> float:
    """The cycles for loading every operand once from its level of memory, by all cores together."""
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
