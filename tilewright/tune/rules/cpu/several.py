"""Reductions with several results, such as the largest value and its index."""

from __future__ import annotations

from collections.abc import Mapping

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ...cost.table import Table
from ...program.facts import Facts, extent_of
from ...program.patterns import in_line
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .lanes import fused
from .simple import Way, Work, bytes_of, simple_table, way_of

__all__ = ["Several"]


class Several:
    """Vectors along the contiguous axis if that is spatial, else result by result."""

    name = "several results"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if not stage.single or stage.facts.kind != "several":
            return Refusal("it has one result")
        return Match(stage, target.cpu)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        f = match.stage.facts
        return simple_table(match, machine, Work(f.points * (f.work + 1), f.bits, bytes_of(f)), only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        return Applied(_schedule(sch, match.stage.facts, way_of(match, row)), "rows")


def _schedule(sch: Schedule, f: Facts, way: Way) -> dict[str, object]:
    """A reduction with several results: vectorized along the contiguous axis if that is spatial, else result by
    result."""
    loops = dict(zip([a.var for a in f.axes], sch.get_loops(f.rv), strict=True))
    line, lanes = in_line(f), f.lanes(way)
    around, note = [loops[a.var] for a in f.spatial], {}
    if line is not None and not line.reduce and line.extent >= lanes:
        others = [loops[a.var] for a in f.spatial if a is not line]
        part, vectors, lane = sch.split(loops[line.var], [None, min(16, -(-line.extent // lanes)), lanes])
        sch.reorder(*others, part, *[loops[a.var] for a in f.reduce], vectors, lane)
        sch.vectorize(lane)
        around, note = [*others, part], {"lanes": lanes}
    if way.parallel and around:
        first = fused(sch, around)
        if extent_of(sch, first) != 1:
            sch.parallel(first)
    return {**note, "parallel": way.parallel and bool(around)}
