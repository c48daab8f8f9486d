"""Reductions along contiguous memory, each element read once.

    for row in parallel(rows):                 wins where   neighbours in memory belong to the same result
        sums[lanes] over the row, in vectors
        out[row] = sum of the lanes            costs        operations or bytes, whichever takes longer

With few rows, threads share each row: they reduce parts of it, which are then combined.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ...cost.table import Table
from ...program.facts import Facts, facts_of
from ...program.patterns import can_be_fused, contiguous_axis, reuses
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .lanes import CHAINS, fused, fused_ends, lanes_of, place_lanes, vector_reduction
from .simple import Way, Work, bytes_of, left_beside, row_end, simple_table, way_of

__all__ = ["RowParts", "Rows", "along_line", "reduce_rows"]


def along_line(f: Facts) -> bool:
    """Whether a reduction runs along contiguous memory."""
    line = contiguous_axis(f)
    return f.kind == "reduction" and line is not None and line.reduce


def _results(f: Facts) -> int:
    return math.prod(a.extent for a in f.spatial)


def _row_work(stage: Stage, machine: CpuMachine) -> Work:
    """The operations on lines of contiguous elements, and the sums over lanes that end them."""
    f = stage.facts
    lanes, whole = machine.lanes(f.bits), math.prod(a.extent for a in f.reduce)
    length = whole if can_be_fused(f, f.reduce) else f.reduce[-1].extent
    full = -(-length // lanes) * lanes / length  # the last vector of a line may be hardly filled
    return Work(
        f.points * (f.work + 1) * full,
        f.bits,
        bytes_of(f),
        stalls=_results(f) * row_end(f, machine),
        prefetched=not reuses(f),
        **left_beside(stage),
    )


class Rows:
    """A row for each thread."""

    name = "rows"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if not stage.single or not along_line(stage.facts):
            return Refusal("it is not a single reduction along contiguous memory")
        return Match(stage, target.cpu)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        work = replace(_row_work(match.stage, machine), units=_results(match.stage.facts))
        return simple_table(match, machine, work, only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied | Refusal:
        f, way = match.stage.facts, way_of(match, row)
        no = reduce_rows(sch, f, way)
        return no or Applied({"lanes": way.lanes(f.bits), "parallel": way.parallel})


def reduce_rows(sch: Schedule, f: Facts, way: Way, chains: int = CHAINS) -> Refusal | None:
    """Reduce row by row, in lanes of `chains` vectors. Returns the refusal, if there is one."""
    partial, final = vector_reduction(sch, f, way, chains)
    loops = sch.get_loops(final)
    around = loops[: len(f.spatial)]
    first, last = fused_ends(sch, around) if around else [sch.add_unit_loop(loops[0])] * 2
    no = place_lanes(sch, partial, final, last)
    if no is None and way.parallel and around:
        sch.parallel(first)
    return no


class RowParts:
    """Few results, each of many elements: threads reduce parts of them, which are then combined."""

    name = "row parts"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if not stage.single or not along_line(stage.facts):
            return Refusal("it is not a single reduction along contiguous memory")
        if target.cpu.num_cores == 1:
            return Refusal("there is one core")
        return Match(stage, target.cpu)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        f = match.stage.facts
        parts = 4 * machine.num_cores
        # one thread reads the partial results, one by one
        work = replace(
            _row_work(match.stage, machine), serial=machine.fit.partial_result * _results(f) * parts
        )
        return simple_table(match, machine, work, only, shares=(1,))

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied | Refusal:
        f, way = match.stage.facts, way_of(match, row)
        loops, parts = sch.get_loops(f.rv), 4 * way.machine.num_cores
        reduces = loops[len(f.spatial) :]
        whole = fused(sch, reduces) if can_be_fused(f, f.reduce) else reduces[0]
        part, _ = sch.split(whole, [parts, None])
        partial = sch.rfactor(part, factor_axis=0)
        inner = facts_of(sch, partial)
        some, final = lanes_of(sch, inner, sch.get_loops(partial)[-1], way, len(f.spatial) + 1)
        around = sch.get_loops(final)[: len(f.spatial) + 1]
        first = fused(sch, around)
        no = place_lanes(sch, some, final, first)
        if no is not None:
            return no
        sch.parallel(first)
        return Applied({"lanes": way.lanes(f.bits), "parts": parts, "parallel": True}, "rows")
