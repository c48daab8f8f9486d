"""Reductions that read each element once, and chains of them: sums, softmax, normalisations.

A chain is computed row by row, so that a row is loaded from memory once and then found in a cache:

    for row in parallel(rows):
        maximum of the row          ┐ each pass in vectors: lanes of partial results,
        exp(x - maximum)            │ combined at the end of the row
        sum of these                ┘
        out[row] = exp / sum

Where the contiguous axis is not the one that is reduced, a vector holds as many rows as it has lanes.
"""

from __future__ import annotations

import math

from ....ir.errors import ScheduleError
from ....ir.expr import Var
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ...program.facts import Axis, Facts, extent_of, facts_of
from ...program.patterns import in_line, main_read, one_line, rows_of
from .elementwise import in_vectors, past_caches, schedule_copy, schedule_elementwise

__all__ = [
    "in_lanes",
    "lanes_of",
    "place_lanes",
    "schedule_rows",
    "schedule_several",
    "streams",
]

# Independent vectors of partial results, which hide the latency of an addition.
_CHAINS = 4
_HELD = 16  # the most vectors of results that are kept in registers
_BUSY = 8  # the least work of a stage that a prefetch runs beside, in additions for each element
_PIECE = 96  # the least number of contiguous elements to read together
_WIDEST = 256  # the most lanes of partial results: _CHAINS vectors of bytes


def schedule_rows(
    sch: Schedule, last: Facts, group: list[Facts], machine: CpuMachine, parallel: bool
) -> dict[str, object]:
    """Schedule `last` and the stages before it together."""
    if len(group) == 1:
        return _alone(sch, last, machine, parallel)
    rows, columns = rows_of(last, group)
    if _along_rows(group):
        return _row_by_row(sch, last, group, rows, columns, machine, parallel)
    return _rows_in_lanes(sch, last, group, rows, columns, machine, parallel)


def _along_rows(group: list[Facts]) -> bool:
    """Whether the largest reduction runs along its contiguous axis."""
    line = in_line(max((f for f in group if f.kind == "reduction"), key=lambda f: f.points))
    return line is not None and line.reduce


# ---------------------------------------------------------------------------- one reduction alone
def _alone(sch: Schedule, f: Facts, machine: CpuMachine, parallel: bool) -> dict[str, object]:
    if f.kind != "reduction":
        return schedule_elementwise(sch, f, machine)
    line = in_line(f)
    if line is None or not line.reduce:
        return _stream(sch, f, machine, parallel)
    if parallel and math.prod(a.extent for a in f.spatial) < 2 * machine.num_cores:
        return _in_parts(sch, f, machine)
    partial, final = vector_reduction(sch, f, machine)
    loops = sch.get_loops(final)
    around = loops[: len(f.spatial)]
    row = _fused(sch, around) if around else sch.add_unit_loop(loops[0])
    place_lanes(sch, partial, final, row)
    if parallel and around:
        sch.parallel(row)
    return {"lanes": machine.lanes(f.bits), "parallel": parallel}


def _fused(sch: Schedule, loops: list[LoopRV]) -> LoopRV:
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def _in_parts(sch: Schedule, f: Facts, machine: CpuMachine) -> dict[str, object]:
    """Few results, each of many elements: threads reduce parts of them, which are then combined."""
    loops = sch.get_loops(f.rv)
    reduces = loops[len(f.spatial) :]
    whole = _fused(sch, reduces) if one_line(f, f.reduce) else reduces[0]
    part, _ = sch.split(whole, [4 * machine.num_cores, None])
    partial = sch.rfactor(part, factor_axis=0)
    inner = facts_of(sch, partial)
    some, final = lanes_of(sch, inner, sch.get_loops(partial)[-1], machine, len(f.spatial) + 1)
    around = sch.get_loops(final)[: len(f.spatial) + 1]
    row = _fused(sch, around)
    place_lanes(sch, some, final, row)
    sch.parallel(row)
    return {"lanes": machine.lanes(f.bits), "parts": 4 * machine.num_cores, "parallel": True}


def _stream(sch: Schedule, f: Facts, machine: CpuMachine, parallel: bool) -> dict[str, object]:
    """Neighbours in memory belong to different results: add up whole lines, several at a time.

    for part of the results in parallel: for lines, 8 at a time: for vector: part[vector] += 8 lines[vector]
    """
    lanes = f.lanes(machine)
    loops = dict(zip([a.var for a in f.axes], sch.get_loops(f.rv), strict=True))
    line = in_line(f)
    spatial = f.spatial
    if line is None or line.reduce or not spatial:
        line = spatial[-1] if spatial else None
    if line is None:
        return {}
    main = main_read(f)
    again = [loops[a.var] for a in spatial if a is not line and main is not None and not main.moves(a)]
    others = [loops[a.var] for a in spatial if a is not line and loops[a.var] not in again]
    reduces = [loops[a.var] for a in f.reduce]
    if line.known and _CHAINS <= -(-line.extent // lanes) <= _HELD and not again:
        return _stream_held(sch, f, loops, line, lanes, parallel)
    # the results stay in the L1 cache
    room = max(lanes, machine.cache_sizes.l1d // 2 // max(1, f.bits // 8))
    width = min(room, -(-line.extent // (machine.num_cores if parallel and not others else 1)))
    width = max(lanes, -(-width // lanes) * lanes)
    part, vectors, lane = sch.split(loops[line.var], [None, width // lanes, lanes])
    size = extent_of(sch, reduces[-1])
    together = 8 if size is None or size >= 16 else 1
    if together > 1:
        many, few = sch.split(reduces[-1], [None, together])
        sch.reorder(*others, part, *reduces[:-1], many, vectors, *again, few, lane)
        sch.unroll(few)
        _fetch_next_lines(sch, f, vectors, together, lanes, machine)
    else:
        sch.reorder(*others, part, *reduces, vectors, *again, lane)
    for loop in again:
        if (extent_of(sch, loop) or 9) <= 8:
            sch.unroll(loop)
    sch.vectorize(lane)
    around = _fused(sch, [*others, part])
    if parallel and extent_of(sch, around) != 1:
        sch.parallel(around)
    return {"lanes": lanes, "results at a time": width, "lines at a time": together, "parallel": parallel}


def _fetch_next_lines(
    sch: Schedule, f: Facts, vectors: LoopRV, together: int, lanes: int, machine: CpuMachine
) -> None:
    """Prefetch the next lines while some are added up: hardware prefetchers follow a line, but not past its end. Only
    for operands that come from memory, and lines that the L2 cache holds until they are used."""
    main = main_read(f)
    step = together * (main.stride(f.reduce[-1]) or 0) if main is not None else 0
    if main is None or step < lanes or step * main.bytes > machine.cache_sizes.l2 // 4:
        return
    if f.touched(main) > machine.cache_sizes.l3 // 2:
        sch.annotate(vectors, f"prefetch_past_{main.buffer.name}", step // lanes)


def _stream_held(
    sch: Schedule, f: Facts, loops: dict[Var, LoopRV], line: Axis, lanes: int, parallel: bool
) -> dict[str, object]:
    """Short lines, one after the other in memory: all results of a line stay in registers.

    for others in parallel: for lines: for vectors of the line, unrolled: result[vector] += line[vector]
    """
    others = [loops[a.var] for a in f.spatial if a is not line]
    count = -(-line.extent // lanes)
    copy = sch.cache_write(f.rv, 0, "local")
    vectors, lane = sch.split(loops[line.var], [None, lanes])
    sch.reorder(*others, *[loops[a.var] for a in f.reduce], vectors, lane)
    sch.unroll(vectors)
    sch.vectorize(lane)
    around = _fused(sch, others) if others else sch.add_unit_loop(sch.get_loops(f.rv)[0])
    sch.reverse_compute_at(copy, around)
    schedule_copy(sch, copy, lanes, skip=1)
    if parallel and others:
        sch.parallel(around)
    return {"lanes": lanes, "vectors in registers": count, "parallel": parallel and bool(others)}


def schedule_several(sch: Schedule, f: Facts, machine: CpuMachine, parallel: bool) -> dict[str, object]:
    """A reduction with several results: vectorized along the contiguous axis if that is spatial, else result by
    result."""
    loops = dict(zip([a.var for a in f.axes], sch.get_loops(f.rv), strict=True))
    line, lanes = in_line(f), f.lanes(machine)
    around, note = [loops[a.var] for a in f.spatial], {}
    if line is not None and not line.reduce and line.extent >= lanes:
        others = [loops[a.var] for a in f.spatial if a is not line]
        part, vectors, lane = sch.split(loops[line.var], [None, min(16, -(-line.extent // lanes)), lanes])
        sch.reorder(*others, part, *[loops[a.var] for a in f.reduce], vectors, lane)
        sch.vectorize(lane)
        around, note = [*others, part], {"lanes": lanes}
    if parallel and around:
        first = _fused(sch, around)
        if extent_of(sch, first) != 1:
            sch.parallel(first)
    return {**note, "parallel": parallel and bool(around)}


def streams(f: Facts, machine: CpuMachine) -> bool:
    """Whether it is better to add up whole lines: the largest read exceeds the L2 cache, is hardly reused, and is
    contiguous along the same axis as the results."""
    main, line = main_read(f), in_line(f)
    if main is None or line is None or line.reduce or f.write is None or f.write.stride(line) != 1:
        return False
    again, size = math.prod(a.extent for a in f.spatial if not main.moves(a)), f.touched(main)
    windows = any(main.moves(a) and abs(main.stride(a) or 0) < line.extent for a in f.reduce)
    return again <= 4 and size > machine.cache_sizes.l2 and not windows


# ---------------------------------------------------------------------------- vectors of partial results
def vector_reduction(sch: Schedule, f: Facts, machine: CpuMachine) -> tuple[BlockRV | None, BlockRV]:
    """Rewrite a reduction along a contiguous axis as lanes of partial results and their combination."""
    loops = sch.get_loops(f.rv)
    spatial = len(f.spatial)
    reduces = loops[spatial:]
    if len(reduces) > 1 and one_line(f, f.reduce):
        reduces = [sch.fuse(*reduces)]
    return lanes_of(sch, f, reduces[-1], machine, spatial)


def lanes_of(
    sch: Schedule, f: Facts, loop: LoopRV, machine: CpuMachine, spatial: int
) -> tuple[BlockRV | None, BlockRV]:
    lanes = f.lanes(machine)
    size = extent_of(sch, loop)
    if size is not None and size <= lanes:
        sch.annotate(loop, "reduce_lanes", 1)
        return None, f.rv
    width = lanes * (_CHAINS if size is None or size >= 2 * _CHAINS * lanes else 1)
    _, lane = sch.split(loop, [None, width])
    partial = sch.rfactor(lane, factor_axis=spatial)
    sch.set_scope(partial, 0, "local")
    return partial, f.rv


def place_lanes(sch: Schedule, partial: BlockRV | None, final: BlockRV, row: LoopRV) -> None:
    """Compute the partial results of a row in its loop, vectorized."""
    if partial is not None:
        sch.compute_at(partial, row, preserve_unit_loops=False)
        in_lanes(sch, partial, final)


def in_lanes(sch: Schedule, partial: BlockRV, final: BlockRV) -> None:
    """Vectorize partial results and their combination."""
    sch.annotate(sch.get_loops(final)[-1], "reduce_lanes", 1)
    lane, *sums = sch.get_loops(partial)[len(sch.get_loops(final)) - 1 :]
    if (extent_of(sch, lane) or _WIDEST + 1) > _WIDEST:
        raise ScheduleError("rows of another kind are between the lanes of its partial results")
    sch.reorder(*sums, lane)
    sch.vectorize(lane)


# ---------------------------------------------------------------------------- chains
def _row_by_row(
    sch: Schedule,
    last: Facts,
    group: list[Facts],
    rows: list[Axis],
    columns: list[Axis],
    machine: CpuMachine,
    parallel: bool,
) -> dict[str, object]:
    if parallel and math.prod(a.extent for a in rows) < machine.num_cores:
        raise ScheduleError("so few rows leave threads without work")
    reductions = {}
    for f in group:
        if f.kind == "reduction":
            reductions[f.rv.key] = vector_reduction(sch, f, machine)
    lanes = machine.lanes(last.bits)
    if last.kind == "reduction":
        around, along = sch.get_loops(last.rv)[: len(rows)], []
    else:
        loops = dict(zip([a.var for a in last.axes], sch.get_loops(last.rv), strict=True))
        around, along = [loops[a.var] for a in rows], [loops[a.var] for a in columns]
        sch.reorder(*around, *along)
    first = sch.get_loops(last.rv)[:1]
    row = _fused(sch, around) if around else sch.add_unit_loop(first[0] if first else last.rv)
    for f in reversed(group):
        if f is not last:
            sch.compute_at(f.rv, row, preserve_unit_loops=False)
        if f.rv.key in reductions:
            place_lanes(sch, *reductions[f.rv.key], row)
        elif f is not last:
            schedule_copy(sch, f.rv, lanes, skip=1)
    if along:
        schedule_copy(sch, last.rv, lanes, skip=1)
    if parallel and around:
        sch.parallel(row)
    if past_caches(last, machine):
        sch.annotate(row, "pragma_nontemporal", 1)
        _fetch_next_row(sch, last, group, columns, lanes)
    return {"rows": [a.var.name for a in rows], "lanes": lanes, "parallel": parallel}


def _fetch_next_row(sch: Schedule, last: Facts, group: list[Facts], columns: list[Axis], lanes: int) -> None:
    """Prefetch the next row from memory while the heaviest stage computes."""
    made = {f.write.buffer for f in group if f.write is not None}
    busy = [f for f in group if f.kind == "injective" and f is not last and f.work >= _BUSY]
    if len(columns) != 1 or not busy or not columns[0].known:
        return
    stage = max(busy, key=lambda f: f.work)
    size, loops = columns[0].extent, sch.get_loops(stage.rv)
    for r in stage.reads:
        axes = [a for a in stage.spatial if r.moves(a)]
        in_rows = len(axes) > 1 and r.stride(axes[-1]) == 1 and r.stride(axes[-2]) == size
        if r.buffer not in made and in_rows and len(loops) > 2:
            sch.annotate(loops[1], f"prefetch_past_{r.buffer.name}", -(-size // lanes))


def _rows_in_lanes(
    sch: Schedule,
    last: Facts,
    group: list[Facts],
    rows: list[Axis],
    columns: list[Axis],
    machine: CpuMachine,
    parallel: bool,
) -> dict[str, object]:
    """Neighbours in memory belong to different rows: each lane of a vector works on a row of its own."""
    lanes = machine.lanes(last.bits)
    loops = dict(zip([a.var for a in last.axes], sch.get_loops(last.rv), strict=True))
    if not rows:
        raise ScheduleError("there is no axis that tells rows apart")
    around = [loops[a.var] for a in rows]
    along = [loops[a.var] for a in columns]
    beside = _beside(group, rows, columns, machine)
    within: list[LoopRV] = []
    if beside:
        around[-2], some = sch.split(around[-2], [None, beside])
        within = [some, around.pop()]
    elif rows[-1].extent > lanes or not rows[-1].known:
        around[-1], lane = sch.split(around[-1], [None, lanes])
        within = [lane]
    elif len(around) > 1:
        within = [around.pop()]
    sch.reorder(*around, *along, *within)
    row = _fused(sch, around)
    for f in reversed(group):
        if f is last:
            continue
        sch.compute_at(f.rv, row, preserve_unit_loops=False)
        own = sch.get_loops(f.rv)[1:]
        if not own or not within:
            continue
        count = len(own) - (len(f.reduce) if f.kind == "reduction" else 0)
        spatial, sums = own[:count], own[count:]
        if spatial:
            sch.reorder(*spatial[: count - len(within)], *sums, *spatial[count - len(within) :])
            in_vectors(sch, _fused(sch, spatial[count - len(within) :]), lanes)
    if beside:
        in_vectors(sch, _fused(sch, within), lanes)
    elif within:
        sch.vectorize(within[0])
    if parallel:
        sch.parallel(row)
    note = {"lines of rows at a time": beside} if beside else {}
    return {"rows": [a.var.name for a in rows], "rows in lanes": lanes, **note, "parallel": parallel}


def _beside(group: list[Facts], rows: list[Axis], columns: list[Axis], machine: CpuMachine) -> int:
    """How many values of the last but one row axis to take together, so that vectors are full and contiguous reads
    are longer; 0 for single vectors."""
    if len(rows) < 2 or not all(a.known for a in (*rows, *columns)):
        return 0
    outer, line = rows[-2], rows[-1]
    for f in group:
        pair = [a for a in f.spatial if a.extent in (outer.extent, line.extent)][-2:]
        if len(pair) != 2 or [a.extent for a in pair] != [outer.extent, line.extent]:
            return 0
        if not all(r.in_line(*pair) for r in f.accesses):
            return 0
    lanes, room = machine.lanes(group[-1].bits), machine.cache_sizes.l2 // 2
    deep = math.prod(a.extent for a in columns) * group[-1].bits // 8
    fitting = [
        g for g in range(1, outer.extent + 1) if outer.extent % g == 0 and g * line.extent * deep <= room
    ]
    whole = [g for g in fitting if g * line.extent % lanes == 0 and g * line.extent >= _PIECE]
    return min(whole, default=0)
