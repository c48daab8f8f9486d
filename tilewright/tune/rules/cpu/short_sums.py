"""Sums of few products: the time goes into writing the results, as in elementwise stages.

C[i, j] = A[i, 0] * B[0, j]           for i in parallel(n):
                                          for j in range(0, m, 64):
                              ->              C[i, j : j + 64] = A[i, 0] * B[0, j : j + 64]

A register tile would reuse each element more often, but write to many lines at once, each only in part.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV
from ...cost.table import Table
from ...program.facts import Facts
from ...program.patterns import reuses
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .simple import Way, Work, bytes_of, given_out, in_lines, simple_table, way_of
from .tile_sketch import prepare_tile

__all__ = ["ShortSums"]

_FEW = 4  # the most products of such a sum: they are read and added while earlier results are written


class ShortSums:
    """Vectors along a line of results, the terms unrolled; with the epilogue, or without it if that is refused."""

    name = "short sums"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        if not stage.single or f.kind != "reduction" or not reuses(f) or not _is_short_sum(f, target.cpu):
            return Refusal(
                f"its sums have more than {_FEW} terms, or its reads are not contiguous along the results"
            )
        plain = Match(stage, target.cpu)
        consumer = stage.program.fusable_consumer(f)
        return plain if consumer is None else replace(plain, found=consumer, simpler=lambda: plain)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        f = match.stage.facts
        results = math.prod(a.extent for a in f.spatial)
        # multiply-adds, two operations each, and a store for each vector of results
        operations = f.points * f.work / (2 * machine.fma_ports) + results
        return simple_table(match, machine, Work(operations, f.bits, bytes_of(f)), only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        match.stage.program.load_words(match.stage.facts.rv)
        note = _schedule(sch, match.stage.facts, match.found, way_of(match, row))
        return Applied(note, "elementwise")


def _is_short_sum(facts: Facts, machine: CpuMachine) -> bool:
    """Whether sums have few terms, and reads are contiguous along the same axis as the results. Windows do not count:
    their overlapping elements are better loaded once."""
    if facts.write is None or not facts.spatial:
        return False
    line, terms = facts.spatial[-1], [a for a in facts.reduce if a.extent > 1]
    along = [r for r in facts.reads if r.moves(line)]
    return (
        math.prod(a.extent for a in terms) <= _FEW
        and all(a.known for a in facts.reduce)
        and line.extent >= facts.lanes(machine)
        and facts.write.stride(line) == 1
        and all(r.stride(line) == 1 for r in along)
        and not any(r.moves(a) and abs(r.stride(a) or 0) < line.extent for r in along for a in terms)
    )


def _schedule(sch: Schedule, facts: Facts, consumer: BlockRV | None, way: Way) -> dict[str, object]:
    """Vectorize along a line of results and unroll the terms. The results stay in registers until the epilogue
    `consumer`, or a copy, stores them."""
    facts, tail = prepare_tile(sch, facts, consumer)
    lanes = facts.lanes(way)
    around, note = in_lines(sch, facts, sch.get_loops(facts.rv)[: len(facts.spatial)], lanes)
    own = sch.get_loops(facts.rv)[len(around) :]
    inside, terms = own[: -len(facts.reduce)], own[-len(facts.reduce) :]
    if not around:
        around = [sch.add_unit_loop(inside[0])]
    sch.reorder(*around, *terms, *inside)
    for loop in terms:
        sch.unroll(loop)
    sch.reverse_compute_at(tail, around[-1], preserve_unit_loops=True)
    *rest, line = sch.get_loops(tail)[len(around) :]
    if len(inside) > 1:
        several, line = sch.split(line, [None, lanes])
        rest.append(several)
    for loop in rest:
        sch.unroll(loop)
    sch.vectorize(line)
    after = {} if consumer is None else {"fused": sch.realize(consumer).block.name_hint}
    return {"lanes": lanes, **note, **after, **given_out(sch, facts, around, way)}
