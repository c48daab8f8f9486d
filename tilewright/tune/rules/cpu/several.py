"""Reductions with several results, such as the largest value and its index."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ....ir.expr import BufferLoad
from ....ir.functor import pre_order, statements
from ....ir.stmt import BufferStore, LetStmt
from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ...cost.table import Table
from ...program.facts import Axis, Facts, Vectors, extent_of
from ...program.patterns import contiguous_axis
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .lanes import fused
from .simple import Way, Work, bytes_of, simple_table, way_of

__all__ = ["Several", "combined_by_one", "operations_of"]


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
        if _vector_axis(f, machine) is not None:
            work = Work(f.points * operations_of(f), f.bits, bytes_of(f))
        else:
            one_by_one, rows = combined_by_one(f) * f.lanes(machine), math.prod(a.extent for a in f.spatial)
            work = Work(f.points * one_by_one, f.bits, bytes_of(f), units=rows)
        return simple_table(match, machine, work, only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        return Applied(_schedule(sch, match.stage.facts, way_of(match, row)), "rows")


def operations_of(f: Facts) -> int:
    """The operations with which a point is combined with the results so far: comparisons, logic and selections, each
    different one once."""
    stores = [m for m in statements(f.block.body) if isinstance(m, BufferStore)]
    lets = [m.value for m in statements(f.block.body) if isinstance(m, LetStmt)]
    values = [*(s.value for s in stores), *lets]
    found = {str(m) for v in values for m in pre_order(v) if m.children() and not isinstance(m, BufferLoad)}
    return max(1, len(found))


def combined_by_one(f: Facts) -> int:
    """The cycles for combining a single point: the conditions of its selections overlap with those of the next one."""
    return f.work + 1


def _vector_axis(f: Facts, vectors: Vectors) -> Axis | None:
    """The contiguous axis, if its neighbours belong to different results and fill a vector."""
    line = contiguous_axis(f)
    return line if line is not None and not line.reduce and line.extent >= f.lanes(vectors) else None


def _schedule(sch: Schedule, f: Facts, way: Way) -> dict[str, object]:
    """A reduction with several results: vectorized along the contiguous axis if that is spatial, else result by
    result."""
    loops = dict(zip([a.var for a in f.axes], sch.get_loops(f.rv), strict=True))
    line, lanes = _vector_axis(f, way), f.lanes(way)
    around, note = [loops[a.var] for a in f.spatial], {}
    if line is not None:
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
