"""Counts of the register tiles of a space: loads, multiply-adds, stalls and bytes, as arrays of candidates."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ....target.machine import CpuMachine
from ...cost.table import Array
from ...program.facts import Access, Axis
from .tile_space import TileSpace, last_part, thread_share

__all__ = ["tile_counts"]


def tile_counts(space: TileSpace, machine: CpuMachine, threads: bool) -> dict[str, Array]:
    """The counts of all candidates of a space, by the names of the cost function."""
    share = thread_share(space, machine, machine.num_cores if threads else 1)
    every = np.ones(len(space.vectors))
    return {
        "tiles": _tiles(space, machine),
        "steps": every * _steps(space),
        "chained": every,
        "finish": _finish(space, machine),
        "threads": every * threads,
        "longest": share.longest,
        "launches": every,
        "units": share.turns,
        "prior": _streams(space, machine),
        **_step(space, machine),
        **_traffic(space),
        **_packing(space, machine),
    }


def _steps(space: TileSpace) -> int:
    """The number of reduction steps of a tile."""
    count = 1
    for a in space.facts.reduce:
        count *= a.extent if a is not space.vector else -(-a.extent // space.lanes)
    return count


def _step(space: TileSpace, machine: CpuMachine) -> dict[str, Array]:
    """The counts of one step of the reduction for a whole tile."""
    nv, rows = space.vectors, space.tiles.prod(axis=1)
    vector_loads, scalar_loads = np.zeros(len(nv)), np.zeros(len(nv))
    stalls = np.zeros(len(nv))
    for r in space.facts.reads:
        count = _in_tile(space, r)
        if not r.moves(space.vector):
            scalar_loads = scalar_loads + count
            stalls = stalls + _strips(space, machine, r) + _row_conflicts(space, machine, r)
            continue
        if space.window:
            count = machine.fit.split_load * _loads_of_window(space, r) / _steps(space)
        vector_loads = vector_loads + count * nv
        if space.dot:
            stalls = stalls + _row_conflicts(space, machine, r)
        if r is not space.packed:
            stalls = stalls + _far_apart(space, machine, r) + count * nv * _gather(space, machine, r)
    # The fewer of the two kinds of operands stay in registers while the others are loaded one by one.
    fewer = np.where(scalar_loads > 0, np.minimum(vector_loads, scalar_loads), np.minimum(nv, rows))
    return {
        "multiply_adds": rows * nv,
        "vector_loads": vector_loads,
        "scalar_loads": scalar_loads,
        "registers": rows * nv + fewer + 1,
        "stalls": stalls,
    }


def _in_tile(space: TileSpace, r: Access) -> Array:
    """How many different addresses of a read the rows of a tile have."""
    count = np.ones(len(space.vectors))
    for a, axis in enumerate(space.rows):
        if r.moves(axis):
            count = count * space.tiles[:, a]
    return count


def _gather(space: TileSpace, machine: CpuMachine, r: Access) -> float:
    """The extra cycles of a vector load whose lanes are not contiguous."""
    step, fit = abs(r.stride(space.vector) or 1), machine.fit
    if r.buffer in space.views:
        return fit.overlapping_words
    return 0.0 if step == 1 else fit.pair_load if step == 2 else fit.gather_lane * space.lanes


def _finish(space: TileSpace, machine: CpuMachine) -> Array:
    """The cycles for entering a tile and writing it out."""
    rows, fit = space.tiles.prod(axis=1), machine.fit
    cycles = rows * space.vectors * fit.tile_store + fit.tile_entry
    if space.dot:
        return cycles + rows * (fit.lane_sum * space.lanes)
    return cycles + rows * space.vectors * space.lanes * fit.lane_transpose if space.transposes else cycles


def _traffic(space: TileSpace) -> dict[str, Array]:
    """The bytes that a tile reads, and the sizes of the sets within which they are reused.

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
    return {"near_bytes": moved_v, "near_set": sweep_v, "far_bytes": moved_r, "far_set": sweep_r}


def _streams(space: TileSpace, machine: CpuMachine) -> Array:
    """The factor of the time if the rows of a tile are streams from beyond the L2 cache, each in pages of its own."""
    rows = np.ones(len(space.vectors))
    for r in space.facts.reads if space.dot else ():
        apart = max((abs(r.stride(a) or 0) * r.bytes for a in space.rows), default=0)
        if apart >= machine.fit.page and space.facts.touched(r) > machine.cache_sizes.l2:
            rows = np.maximum(rows, _in_tile(space, r))
    return 1 + machine.fit.row_stream * (rows - 1)


def _tiles(space: TileSpace, machine: CpuMachine) -> Array:
    """The number of tiles; partial tiles count by their cost relative to a whole one."""
    tiles = np.ones(len(space.vectors))
    for a, axis in enumerate(space.rows):
        tiles = tiles * _parts(axis, space.tiles[:, a], machine.fit.partial_tile)
    if space.dot:
        return tiles
    vectors = replace(space.vector, extent=-(-space.vector.extent // space.lanes))
    return tiles * _parts(vectors, space.vectors, machine.fit.partial_tile)


def _parts(axis: Axis, tile: Array, least: float) -> Array:
    """The tiles along an axis, a partial one by its cost; if the size is dynamic, the mean over all remainders."""
    if axis.known:
        return axis.extent // tile + last_part(axis, tile, least)
    return axis.extent / tile + np.where(tile > 1, least * least / 2, 0.0)


def _far_apart(space: TileSpace, machine: CpuMachine, r: Access) -> Array:
    """The extra cycles of a step because the next one is in another page.

    The wider the piece of a row that is read, the more of it the hardware prefetches.
    """
    fit, line = machine.fit, machine.cache_sizes.line
    width = space.vectors * space.lanes * r.bytes
    steps = [
        abs(r.stride(a) or 0) * r.bytes for a in space.facts.reduce if r.moves(a) and a is not space.vector
    ]
    if not steps or min(steps) < fit.near_page:
        return np.zeros(len(width))
    waits = np.where(width <= 2 * line, fit.page_wait_pair, fit.page_wait_more)
    waits = np.where(width <= line, fit.page_wait_line, waits)
    return waits if min(steps) >= fit.page else fit.near_page_wait * waits


def _strips(space: TileSpace, machine: CpuMachine, r: Access) -> Array:
    """The cycles that a step waits for a read along a column of long rows.

    Each step reads another page, which no prefetcher foresees; only elements that stay in a cache arrive in time.
    """
    fit, line = machine.fit, machine.cache_sizes.line
    steps = [abs(r.stride(a) or 0) * r.bytes for a in space.facts.reduce if r.moves(a)]
    if not steps or min(steps) < fit.page:
        return np.zeros(len(space.vectors))
    lines = np.full(len(space.vectors), float(np.prod([a.extent for a in space.facts.reduce if r.moves(a)])))
    for a, axis in enumerate(space.rows):
        if r.moves(axis):
            lines = lines * np.where(space.outer == 1, axis.extent, space.tiles[:, a]) / (line / 4)
    missed = lines * line > fit.cache_fill * machine.cache_sizes.l2
    return np.where(missed, fit.strip_wait * machine.l3_latency, fit.strip_hit)


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
    fit, line = machine.fit, machine.cache_sizes.line
    ways = max(2, machine.cache_sizes.l1d // (fit.l1_sets * line))
    most = int(rows.max(initial=1))
    lost = np.zeros(most + 1)
    used: dict[int, int] = {}
    for r in range(most):
        place = (r * stride // line) % fit.l1_sets
        used[place] = used.get(place, 0) + 1
        over = sum(max(0, n - ways - 1) for n in used.values())
        lost[r + 1] = fit.conflict * over + fit.conflict_square * over * over
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


def _packing(space: TileSpace, machine: CpuMachine) -> dict[str, Array]:
    r, fit = space.packed, machine.fit
    if r is None or space.pack_free:
        return {}
    every = np.ones(len(space.vectors))
    contiguous = r.stride(space.vector) == 1
    cycles = every * (fit.packed_vector / space.lanes if contiguous else fit.packed_element)
    for i, axis in enumerate(space.rows):
        # tiles of lanes x lanes are transposed, of which a loop that packs for itself has only some lines
        if not contiguous and r.stride(axis) == 1 and space.shared(axis):
            cycles = cycles * space.lanes / np.minimum(space.lanes, space.tiles[:, i])
    return {
        "packed": every * r.footprint({a.var: a.extent for a in space.facts.axes}),
        "packed_bytes": every * r.bytes,
        "packed_cycles": cycles,
    }
