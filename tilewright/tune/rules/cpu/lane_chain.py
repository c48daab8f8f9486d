"""Chains of reductions whose neighbours in memory belong to different rows: each lane of a vector has a row of its own.

for rows, as many as a vector has lanes, in parallel:
    all stages of the chain, for these rows at once

wins where   the reduced axis is not the contiguous one
costs        the operations of all stages; what the caches do not hold comes from memory for each stage
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import LoopRV
from ...cost.table import Table
from ...program.facts import Axis, Facts
from ...program.patterns import rows_of
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .lanes import fused
from .row_chain import chain_work, runs_along_rows
from .simple import Way, in_vectors, simple_table, way_of

__all__ = ["LaneChain", "rows_in_lanes"]

_PIECE = 96  # the least number of contiguous elements to read together


class LaneChain:
    """A row for each lane."""

    name = "lane chain"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if stage.single:
            return Refusal("it is not a chain of stages")
        if runs_along_rows(stage.chain):
            return Refusal("neighbours in memory belong to the same row")
        if not rows_of(stage.facts, list(stage.chain))[0]:
            return Refusal("no axis distinguishes the rows")
        return Match(stage, target.cpu)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        lanes = machine.lanes(match.stage.facts.bits)
        return simple_table(match, machine, chain_work(match.stage, lanes), only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        stage, way = match.stage, way_of(match, row)
        last, group = stage.program.in_groups(stage.facts, list(stage.chain))
        rows, columns = rows_of(last, group)
        return Applied(rows_in_lanes(sch, last, group, rows, columns, way), "rows")


def rows_in_lanes(
    sch: Schedule,
    last: Facts,
    group: list[Facts],
    rows: list[Axis],
    columns: list[Axis],
    way: Way,
) -> dict[str, object]:
    """Neighbours in memory belong to different rows: each lane of a vector works on a row of its own."""
    lanes = way.lanes(last.bits)
    loops = dict(zip([a.var for a in last.axes], sch.get_loops(last.rv), strict=True))
    around = [loops[a.var] for a in rows]
    along = [loops[a.var] for a in columns]
    beside = _beside(group, rows, columns, way)
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
    row = fused(sch, around)
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
            in_vectors(sch, fused(sch, spatial[count - len(within) :]), lanes)
    if beside:
        in_vectors(sch, fused(sch, within), lanes)
    elif within:
        sch.vectorize(within[0])
    if way.parallel:
        sch.parallel(row)
    note = {"lines of rows at a time": beside} if beside else {}
    return {"rows": [a.var.name for a in rows], "rows in lanes": lanes, **note, "parallel": way.parallel}


def _beside(group: list[Facts], rows: list[Axis], columns: list[Axis], way: Way) -> int:
    """How many values of the last but one row axis to take together, so that vectors are full and contiguous reads
    are longer; 0 for single vectors."""
    if len(rows) < 2 or not all(a.known for a in (*rows, *columns)):
        return 0
    outer, line = rows[-2], rows[-1]
    for f in group:
        pair = [a for a in f.spatial if a.extent in (outer.extent, line.extent)][-2:]
        if len(pair) != 2 or [a.extent for a in pair] != [outer.extent, line.extent]:
            return 0
        if not all(r.contiguous(*pair) for r in f.accesses):
            return 0
    lanes, room = way.lanes(group[-1].bits), way.machine.cache_sizes.l2 // 2
    deep = math.prod(a.extent for a in columns) * group[-1].bits // 8
    fitting = [
        g for g in range(1, outer.extent + 1) if outer.extent % g == 0 and g * line.extent * deep <= room
    ]
    whole = [g for g in fitting if g * line.extent % lanes == 0 and g * line.extent >= _PIECE]
    return min(whole, default=0)
