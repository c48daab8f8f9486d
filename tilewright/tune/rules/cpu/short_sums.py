"""Sums of few products: the time goes into writing the results, as in elementwise stages.

C[i, j] = A[i, 0] * B[0, j]           for i in parallel(n):
                                          for j in range(0, m, 64):
                              ->              C[i, j : j + 64] = A[i, 0] * B[0, j : j + 64]

A register tile would reuse each element more often, but write to many lines at once, each only in part.
"""

from __future__ import annotations

import math

from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV
from ...program.facts import Facts
from .elementwise import given_out, in_lines
from .tile_sketch import prepare_tile

__all__ = ["is_short_sum", "schedule_short_sums"]

_FEW = 4  # the most products of such a sum: they are read and added while earlier results are written


def is_short_sum(facts: Facts, machine: CpuMachine) -> bool:
    """Whether sums have few terms, and reads are contiguous along the same axis as the results. Windows do not count:
    their overlapping elements are better loaded once."""
    if facts.kind != "reduction" or facts.write is None or not facts.spatial:
        return False
    line, terms = facts.spatial[-1], [a for a in facts.reduce if a.extent > 1]
    along = [r for r in facts.reads if r.moves(line)]
    return (
        math.prod(a.extent for a in terms) <= _FEW
        and all(a.known for a in facts.axes)
        and line.extent >= facts.lanes(machine)
        and facts.write.stride(line) == 1
        and all(r.stride(line) == 1 for r in along)
        and not any(r.moves(a) and abs(r.stride(a) or 0) < line.extent for r in along for a in terms)
    )


def schedule_short_sums(
    sch: Schedule, facts: Facts, consumer: BlockRV | None, machine: CpuMachine
) -> dict[str, object]:
    """Vectorize along a line of results and unroll the terms. The results stay in registers until the epilogue
    `consumer`, or a copy, stores them."""
    facts, tail = prepare_tile(sch, facts, consumer)
    lanes = facts.lanes(machine)
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
    return {"lanes": lanes, **note, **after, **given_out(sch, facts, around, machine)}
