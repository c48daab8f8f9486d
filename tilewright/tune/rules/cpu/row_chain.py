"""Chains of reductions and the stages between them (softmax, normalisations), row by row.

for row in parallel(rows):
    maximum of the row          ┐ each pass in vectors: lanes of partial results,
    exp(x - maximum)            │ combined at the end of the row
    sum of these                ┘
    out[row] = exp / sum

wins where   a row and its intermediate results stay in a cache: it is loaded from memory once
costs        the operations of all stages; what the caches do not hold comes from memory for each stage
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ...cost.table import Table
from ...program.facts import Axis, Facts
from ...program.patterns import contiguous_axis, rows_of
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .lanes import fused, place_lanes, vector_reduction
from .simple import Way, Work, past_caches, row_end, schedule_copy, simple_table, way_of

__all__ = ["RowChain", "chain_work", "row_ends", "runs_along_rows"]

_BUSY = 8  # the least work of a stage that a prefetch runs beside, in additions for each element


class RowChain:
    """All stages of a row, then the next row."""

    name = "row chain"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if stage.single:
            return Refusal("it is not a chain of stages")
        if not runs_along_rows(stage.chain):
            return Refusal("neighbours in memory belong to different rows")
        return Match(stage, target.cpu)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        stage = match.stage
        work = replace(chain_work(stage, 1), stalls=row_ends(stage, machine))
        return simple_table(match, machine, work, only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied | Refusal:
        stage, way = match.stage, way_of(match, row)
        last, group = stage.program.in_groups(stage.facts, list(stage.chain))
        rows, columns = rows_of(last, group)
        note = _row_by_row(sch, last, group, rows, columns, way)
        return note if isinstance(note, Refusal) else Applied(note, "rows")


def runs_along_rows(group: tuple[Facts, ...]) -> bool:
    """Whether the largest reduction runs along its contiguous axis."""
    line = contiguous_axis(max((f for f in group if f.kind == "reduction"), key=lambda f: f.points))
    return line is not None and line.reduce


def row_ends(stage: Stage, machine: CpuMachine) -> float:
    """The cycles at the ends of rows: each reduction sums up the lanes of a vector."""
    sums = [f for f in stage.chain if f.kind == "reduction"]
    return sum(math.prod(a.extent for a in f.spatial) * row_end(f, machine) for f in sums)


def chain_work(stage: Stage, together: int) -> Work:
    """The work of a chain of which `together` rows are computed at a time."""
    last, chain = stage.facts, stage.chain
    rows, _ = rows_of(last, list(chain))
    made = {f.write.buffer for f in chain if f.write is not None and f is not last}
    every = [(f, r) for f in chain for r in f.accesses]
    outside = {r.buffer: f.touched(r) for f, r in every if r.buffer not in made}
    number = math.prod(a.extent for a in rows)
    # between two stages a row of the operand and one of intermediate results wait in a cache
    length = max(f.points for f in chain) // max(1, number)
    deep = 2 * together * length * max(f.bits for f in chain) // 8
    return Work(
        sum(f.points * (f.work + 1) for f in chain),
        last.bits,
        sum(outside.values()),
        held=max(0, sum(f.touched(r) for f, r in every) - sum(outside.values())),
        held_set=deep,
        units=max(1, number // together),
    )


def _row_by_row(
    sch: Schedule,
    last: Facts,
    group: list[Facts],
    rows: list[Axis],
    columns: list[Axis],
    way: Way,
) -> dict[str, object] | Refusal:
    reductions = {}
    for f in group:
        if f.kind == "reduction":
            reductions[f.rv.key] = vector_reduction(sch, f, way)
    lanes = way.lanes(last.bits)
    if last.kind == "reduction":
        around, along = sch.get_loops(last.rv)[: len(rows)], []
    else:
        loops = dict(zip([a.var for a in last.axes], sch.get_loops(last.rv), strict=True))
        around, along = [loops[a.var] for a in rows], [loops[a.var] for a in columns]
        sch.reorder(*around, *along)
    first = sch.get_loops(last.rv)[:1]
    row = fused(sch, around) if around else sch.add_unit_loop(first[0] if first else last.rv)
    for f in reversed(group):
        if f is not last:
            sch.compute_at(f.rv, row, preserve_unit_loops=False)
        if f.rv.key in reductions:
            no = place_lanes(sch, *reductions[f.rv.key], row)
            if no is not None:
                return no
        elif f is not last:
            schedule_copy(sch, f.rv, lanes, skip=1)
    if along:
        schedule_copy(sch, last.rv, lanes, skip=1)
    if way.parallel and around:
        sch.parallel(row)
    if past_caches(last, way.machine):
        sch.annotate(row, "pragma_nontemporal", 1)
        _fetch_next_row(sch, last, group, columns, lanes)
    return {"rows": [a.var.name for a in rows], "lanes": lanes, "parallel": way.parallel}


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
