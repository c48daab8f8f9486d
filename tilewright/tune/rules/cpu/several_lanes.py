"""Reductions with several results along contiguous memory, such as the largest value of a row and its index.

for row in parallel(rows):                      wins where   rows are several vectors long
    (value, index)[lanes] over the row, in vectors
    out[row] = the best of the lanes            costs        every comparison of the combiner, as vectors; the
                                                             lanes are combined one by one at the end of a row
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ...cost.table import Table
from ...program.patterns import contiguous_axis
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .lanes import lane_count
from .rows import reduce_rows
from .several import combined_by_one, operations_of
from .simple import Work, bytes_of, simple_table, way_of

__all__ = ["SeveralLanes"]

_CHAINS = 2  # independent vectors of each partial result: their masks and indices need registers too


class SeveralLanes:
    """Partial results for each lane of two vectors, which are then combined."""

    name = "several in lanes"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        if not stage.single or f.kind != "several":
            return Refusal("it has one result")
        line = contiguous_axis(f)
        if line is None or not line.reduce:
            return Refusal("neighbours in memory belong to different results")
        if line.known and line.extent <= f.lanes(target.cpu):
            return Refusal("its rows are not longer than a vector")
        return Match(stage, target.cpu, line)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        f, line = match.stage.facts, match.found
        width = lane_count(line.extent if line.known else None, f.lanes(machine), _CHAINS)
        rows = math.prod(a.extent for a in f.spatial)
        full = (
            -(-line.extent // width) * width / line.extent
        )  # the last vectors of a row may be hardly filled
        work = Work(
            f.points * full * operations_of(f),
            f.bits,
            bytes_of(f),
            units=rows,
            stalls=rows * (machine.fit.row_entry + width * combined_by_one(f)),
        )
        return simple_table(match, machine, work, only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied | Refusal:
        f, way = match.stage.facts, way_of(match, row)
        no = reduce_rows(sch, f, way, _CHAINS)
        return no or Applied({"lanes": f.lanes(way), "parallel": way.parallel}, "rows")
