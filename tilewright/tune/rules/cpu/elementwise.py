"""Stages that map elements: copies, elementwise chains.

for lines in parallel:                     wins where   every access is contiguous along the last axis
    for vectors, some unrolled:
        B[line, vector] = f(A[line, vector])    costs   operations or bytes, whichever takes longer
"""

from __future__ import annotations

from collections.abc import Mapping

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ...cost.table import Table
from ...program.patterns import fusable_axes
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .simple import Work, bytes_of, gather_stalls, given_out, in_lines, simple_table, way_of

__all__ = ["Elementwise"]


class Elementwise:
    """Vectors along the contiguous axis, threads along the others."""

    name = "elementwise"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if not stage.single or stage.facts.kind != "injective":
            return Refusal("its elements are not computed one by one")
        return Match(stage, target.cpu)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        f = match.stage.facts
        lost = gather_stalls(f, f.spatial[-1], machine) if f.spatial else 0.0
        work = Work(f.points * (f.work + 1), f.bits, bytes_of(f), stalls=lost)
        return simple_table(match, machine, work, only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        f, way = match.stage.facts, way_of(match, row)
        loops = sch.get_loops(f.rv)
        if not loops:
            return Applied({"loops": "none: a single element"})
        lanes = f.lanes(way)
        around, note = in_lines(sch, f, loops, lanes, fusable_axes(f, dynamic=True))
        return Applied({"lanes": lanes, **note, **given_out(sch, f, around, way)})
