"""Reductions whose neighbours in memory belong to different results: whole lines are added up, several at a time.

for part of the results in parallel:       wins where   results are contiguous along the same axis as the operand
    for lines, 8 at a time:                             and the operand is hardly reused
        for vector: part[vector] += 8 lines[vector]
                                           costs        operations or bytes, whichever takes longer
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ....ir.expr import Var
from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import LoopRV
from ...cost.table import Table
from ...program.facts import Axis, Facts, extent_of
from ...program.patterns import contiguous_axis, main_read, reuses
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .lanes import fused
from .simple import Way, Work, bytes_of, gather_stalls, left_beside, schedule_copy, simple_table, way_of

__all__ = ["Stream"]

_TOGETHER = 8  # lines that are added up at a time
_CHAINS = 4  # independent vectors of results, which hide the latency of an addition
_HELD = 16  # the most vectors of results that are kept in registers


class Stream:
    """Whole lines are added up."""

    name = "stream"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        if not stage.single or f.kind != "reduction":
            return Refusal("it is not a single reduction")
        line = contiguous_axis(f)
        if line is not None and line.reduce:
            return Refusal("neighbours in memory belong to the same result")
        return Match(stage, target.cpu)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        return simple_table(match, machine, _work(match.stage, machine), only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        return Applied(_schedule(sch, match.stage.facts, way_of(match, row)), "rows")


def _work(stage: Stage, machine: CpuMachine) -> Work:
    """A load, the arithmetic, and the results, which are read and written once for some lines."""
    f, fit = stage.facts, machine.fit
    if not reuses(f):
        return Work(f.points * (f.work + 1), f.bits, bytes_of(f))
    main, line = main_read(f), f.spatial[-1].extent
    # a register tile reads constants in panels; strips of other operands are in a cache when it reads them again
    constants, l2 = stage.program.constants, machine.cache_sizes.l2
    strips = main is not None and main.buffer not in constants and f.touched(main) > l2
    # the sum of some lines waits for each of them, unless other vectors of the line are between
    waits = _TOGETHER * machine.fma_latency if line < _CHAINS * machine.lanes(f.bits) else 0
    passes = f.points / max(1, line) / _TOGETHER
    # threads share the lines of results, and parts of a line if there is one; results that share a line stay together
    others = math.prod(a.extent for a in f.spatial[:-1] if main is None or main.moves(a))
    return Work(
        f.points * (f.work / (2 * machine.fma_ports) + 1 / machine.loads_per_cycle + 1 / _TOGETHER),
        f.bits,
        bytes_of(f),
        stalls=passes * (fit.stream_entry + waits) + gather_stalls(f, f.spatial[-1], machine),
        units=others if others > 1 else max(1, line // machine.lanes(f.bits)),
        prefetched=False,
        prior=fit.stream_gain if strips else 1.0,
        **left_beside(stage),
    )


def _schedule(sch: Schedule, f: Facts, way: Way) -> dict[str, object]:
    """Add up whole lines, several at a time, into a part of the results that stays in the L1 cache."""
    lanes = f.lanes(way)
    loops = dict(zip([a.var for a in f.axes], sch.get_loops(f.rv), strict=True))
    line = contiguous_axis(f)
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
        return _stream_held(sch, f, loops, line, lanes, way.parallel)
    room = max(lanes, way.machine.cache_sizes.l1d // 2 // max(1, f.bits // 8))
    width = min(room, -(-line.extent // (way.machine.num_cores if way.parallel and not others else 1)))
    width = max(lanes, -(-width // lanes) * lanes)
    part, vectors, lane = sch.split(loops[line.var], [None, width // lanes, lanes])
    size = extent_of(sch, reduces[-1])
    together = _TOGETHER if size is None or size >= 2 * _TOGETHER else 1
    if together > 1:
        many, few = sch.split(reduces[-1], [None, together])
        sch.reorder(*others, part, *reduces[:-1], many, vectors, *again, few, lane)
        sch.unroll(few)
        _fetch_next_lines(sch, f, vectors, together, lanes, way)
    else:
        sch.reorder(*others, part, *reduces, vectors, *again, lane)
    for loop in again:
        if (extent_of(sch, loop) or 9) <= 8:
            sch.unroll(loop)
    sch.vectorize(lane)
    around = fused(sch, [*others, part])
    if way.parallel and extent_of(sch, around) != 1:
        sch.parallel(around)
    return {"lanes": lanes, "results at a time": width, "lines at a time": together, "parallel": way.parallel}


def _fetch_next_lines(sch: Schedule, f: Facts, vectors: LoopRV, together: int, lanes: int, way: Way) -> None:
    """Prefetch the next lines while some are added up: hardware prefetchers follow a line, but not past its end. Only
    for operands that come from memory, and lines that the L2 cache holds until they are used."""
    main = main_read(f)
    step = together * (main.stride(f.reduce[-1]) or 0) if main is not None else 0
    if main is None or step < lanes or step * main.bytes > way.machine.cache_sizes.l2 // 4:
        return
    if f.touched(main) > way.machine.cache_sizes.l3 // 2:
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
    around = fused(sch, others) if others else sch.add_unit_loop(sch.get_loops(f.rv)[0])
    sch.reverse_compute_at(copy, around)
    schedule_copy(sch, copy, lanes, skip=1)
    if parallel and others:
        sch.parallel(around)
    return {"lanes": lanes, "vectors in registers": count, "parallel": parallel and bool(others)}
