"""Chains of reductions over rows that a vector holds: a row for each lane, though neighbours belong to the same row.

for rows, as many as a vector has lanes:          softmax of [4096, 10] on vectors of 16:
    for element of a row:                             row chain    10 of 16 lanes, two sums over lanes a row
        vector of that element of each row            short rows   16 of 16 lanes, no sum over lanes

wins where   rows are not longer than a vector
costs        vectors whose elements are a row apart
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ...cost.table import Table
from ...program.patterns import rows_of
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .lane_chain import rows_in_lanes
from .row_chain import chain_work, runs_along_rows
from .simple import simple_table, way_of

__all__ = ["ShortRows"]


class ShortRows:
    """A row for each lane, with strided accesses."""

    name = "short rows"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if stage.single or not runs_along_rows(stage.chain):
            return Refusal("it is not a chain of stages along rows")
        rows, columns = rows_of(stage.facts, list(stage.chain))
        lanes = target.cpu.lanes(stage.facts.bits)
        if not columns or math.prod(a.extent for a in columns) > lanes or not all(a.known for a in columns):
            return Refusal("its rows are longer than a vector")
        if math.prod(a.extent for a in rows) < lanes:
            return Refusal("it has fewer rows than a vector has lanes")
        return Match(stage, target.cpu)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        stage = match.stage
        lanes = machine.lanes(stage.facts.bits)
        made = {f.write.buffer for f in stage.chain if f.write is not None and f is not stage.facts}
        strided = sum(f.points for f in stage.chain for r in f.accesses if r.buffer not in made)
        work = replace(chain_work(stage, lanes), stalls=machine.fit.strided_lane * strided)
        return simple_table(match, machine, work, only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        stage, way = match.stage, way_of(match, row)
        last, group = stage.program.in_groups(stage.facts, list(stage.chain))
        rows, columns = rows_of(last, group)
        return Applied(rows_in_lanes(sch, last, group, rows, columns, way), "rows")
