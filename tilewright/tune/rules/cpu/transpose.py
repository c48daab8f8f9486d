"""Copies from rows to columns, and stages that read one operand across: tiles are transposed in registers.

for tile of lanes x lanes:                 wins where   source and result are contiguous along different axes
    load `lanes` vectors, transpose, store `lanes` vectors
                                           costs        some shuffles for each vector, instead of single loads
"""

from __future__ import annotations

from collections.abc import Mapping

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import LoopRV
from ...cost.table import Table
from ...program.facts import Access, Facts, extent_of
from ...program.patterns import axis_of_transpose, transposed_axis
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .simple import Work, bytes_of, gather_stalls, given_out, simple_table, way_of

__all__ = ["Transpose", "TransposedOperand"]


class Transpose:
    """A copy whose source is contiguous along another axis than its result."""

    name = "transpose"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        across = axis_of_transpose(f) if stage.single and f.kind == "injective" else None
        if across is None:
            return Refusal("it is not a copy from rows to columns")
        return Match(stage, target.cpu, across)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        f = match.stage.facts
        return simple_table(match, machine, _work(f, f.reads[0], machine), only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        f, way = match.stage.facts, way_of(match, row)
        lanes, loops = f.lanes(way), sch.get_loops(f.rv)
        around, note = _transpose_tiles(sch, f, loops, match.found, lanes, way.machine)
        return Applied({"lanes": lanes, **note, **given_out(sch, f, around, way)}, "elementwise")


class TransposedOperand:
    """A stage that computes something, with one operand that is contiguous along another axis than the result."""

    name = "transposed operand"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        plain = stage.single and f.kind == "injective" and axis_of_transpose(f) is None
        found = _read_across(f) if plain else None
        if found is None:
            return Refusal("it does not read exactly one transposed operand")
        return Match(stage, target.cpu, found)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        return simple_table(match, machine, _work(match.stage.facts, match.found[0], machine), only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        f, way = match.stage.facts, way_of(match, row)
        lanes, loops = f.lanes(way), sch.get_loops(f.rv)
        read, across = match.found
        around, note = _transpose_operand(sch, f, loops, read, across, lanes)
        return Applied({"lanes": lanes, **note, **given_out(sch, f, around, way)}, "elementwise")


def _work(f: Facts, turned: Access, machine: CpuMachine) -> Work:
    """An elementwise stage whose vectors of one read are transposed in registers."""
    lost = gather_stalls(f, f.spatial[-1], machine, but=(turned,))
    return Work(
        f.points * (f.work + 1),
        f.bits,
        bytes_of(f),
        stalls=lost + machine.fit.transposed_lane * f.points,
    )


def _read_across(facts: Facts) -> tuple[Access, int] | None:
    """The only transposed read of a stage that computes something, and the axis along which it is contiguous."""
    found = [(r, at) for r in facts.reads if (at := transposed_axis(facts, r)) is not None]
    if len(found) != 1 or facts.guarded:
        return None
    read, at = found[0]
    once = sum(r.buffer is read.buffer for r in facts.reads) == 1
    return found[0] if once and facts.spatial[at].extent >= 8 and facts.spatial[-1].extent >= 8 else None


def _transpose_operand(
    sch: Schedule, facts: Facts, loops: list[LoopRV], read: Access, across: int, lanes: int
) -> tuple[list[LoopRV], dict[str, object]]:
    """Transpose the transposed operand tile by tile in registers, and compute from there."""
    buffers = [r.buffer for r in sch.realize(facts.rv).block.reads]
    copy = sch.reindex(facts.rv, ("read", buffers.index(read.buffer)))
    sch.set_scope(copy, 0, "local")
    others = [x for i, x in enumerate(loops) if i not in (across, len(loops) - 1)]
    far, near = sch.split(loops[across], [None, lanes])
    most, line = sch.split(loops[-1], [None, lanes])
    sch.reorder(*others, far, most, near, line)
    sch.compute_at(copy, most)
    *_, turned, vector = sch.get_loops(copy)
    sch.annotate(turned, "transpose_lanes", 1)
    sch.vectorize(vector)
    sch.unroll(near)
    sch.vectorize(line)
    return [*others, far, most], {"tile": f"{read.buffer.name} {lanes} x {lanes}, transposed in registers"}


def _transpose_tiles(
    sch: Schedule, facts: Facts, loops: list[LoopRV], across: int, lanes: int, machine: CpuMachine
) -> tuple[list[LoopRV], dict[str, object]]:
    """Transpose tiles of lanes x lanes in registers."""
    others = [x for i, x in enumerate(loops) if i not in (across, len(loops) - 1)]
    far, near = sch.split(loops[across], [None, lanes])
    size = extent_of(sch, loops[-1])
    most, few, line = sch.split(loops[-1], [None, 4 if size is None or size >= 16 * lanes else 1, lanes])
    # Tiles follow each other along the rows that are read; a few are side by side, so that longer pieces of rows are
    # written.
    sch.reorder(*others, most, far, few, near, line)
    sch.annotate(near, "transpose_lanes", 1)
    if facts.touched(facts.reads[0]) > machine.cache_sizes.l2:
        # These are more streams than the hardware prefetcher of the CPU follows.
        sch.annotate(near, "transpose_ahead", 4)
    sch.vectorize(line)
    return [*others, most], {"tile": f"{lanes} x {lanes}, transposed in registers"}
