"""Chains of reductions over rows that exceed the caches ("online" softmax): each part of a row is read once, and its
sums are rescaled at the end.

for row, part in parallel:                  a part stays in the L1 cache
    largest of the part                     ┐ sums are relative to the part's own largest value (or mean),
    sum of exp(x - largest of the part)     ┘ so that they need not wait for that of the row
for row: largest and sum, from the parts    then the stages after them, row by row or all at once
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV
from ...cost.table import Table
from ...program.facts import Facts, Vectors, facts_of
from ...program.patterns import can_be_fused, contiguous_axis
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .lanes import in_lanes, lanes_of, place_lanes
from .simple import Way, Work, bytes_of, simple_table, way_of

__all__ = ["Online"]

_SHARE = 2  # a part takes at most 1 / _SHARE of the L1 cache, so that the next stage still finds it there
_MANY = 16  # the least number of parts of a row that is worth combining


class Online:
    """Parts of rows, each with sums of its own. The combination of the parts and the stages after it are left to other
    rules.

        wins where   no cache holds a row, or there are fewer rows than cores
        costs        the stages between the reductions are computed again for each of them
    """

    name = "online"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        machine = target.cpu
        chain = [f for f in stage.chain if f.kind == "reduction"]
        if len(chain) < 2 or not all(_along(f) and _axes(f) == _axes(chain[0]) for f in chain):
            return Refusal("there are not several reductions along the same contiguous rows")
        size = _part(chain, machine, machine)
        if math.prod(a.extent for a in chain[0].reduce) < _MANY * size:
            return Refusal(f"its rows have fewer than {_MANY} parts of {size} elements")
        return Match(stage, machine, chain)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        stage, sums = match.stage, match.found
        between = [f for f in stage.chain if f.kind == "injective"]
        whole, made = sums[0], {f.write.buffer for f in stage.chain if f.write is not None}
        outside = {r.buffer: f.touched(r) for f in stage.chain for r in f.reads if r.buffer not in made}
        # a part is read from memory by the first reduction; the others find it in the L1 cache
        part = _part(sums, machine, machine) * whole.bits // 8
        own = sum(f.points * (f.work + 1) for f in sums)
        own += sum(f.points * f.work for f in between if f is not stage.facts)
        read = {r.buffer for r in stage.facts.reads}
        before = [
            f for f in between if f is not stage.facts and f.write is not None and f.write.buffer in read
        ]
        after = [*before, stage.facts] if stage.facts.kind == "injective" else []
        work = Work(
            own,
            whole.bits,
            sum(outside.values()),
            held=float(sum(bytes_of(f) for f in sums)),
            held_set=2 * part,
            left_operations=sum(f.points * (f.work + 1) for f in after),
            left_bytes=sum(bytes_of(f) for f in after),
            left_launches=1,
        )
        return simple_table(match, machine, work, only)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied | Refusal:
        note = _in_parts(sch, list(match.stage.chain), way_of(match, row))
        return note if isinstance(note, Refusal) else Applied(note, "rows", opened=True)


def _along(f: Facts) -> bool:
    """Whether a reduction runs along contiguous memory."""
    line = contiguous_axis(f)
    return line is not None and line.reduce and can_be_fused(f, f.reduce)


def _axes(f: Facts) -> list[list[int]]:
    return [[a.extent for a in axes if a.extent > 1] for axes in (f.spatial, f.reduce)]


def _part(chain: list[Facts], vectors: Vectors, machine: CpuMachine) -> int:
    """The elements of a part: whole vectors that fit the L1 cache."""
    widest = max(chain, key=lambda f: f.bits)
    wide = 4 * widest.lanes(vectors)
    return max(wide, machine.cache_sizes.l1d // _SHARE // (widest.bits // 8) // wide * wide)


def _in_parts(sch: Schedule, group: list[Facts], way: Way) -> dict[str, object] | Refusal:
    """Reduce the parts of all rows. The combination of the parts and the stages after it are left to be scheduled."""
    chain = [f for f in group if f.kind == "reduction"]
    size = _part(chain, way, way.machine)
    _inline_between(sch, group)
    parts: list[tuple[BlockRV, BlockRV]] = []  # the whole and its parts
    for f in chain:
        parts.append((f.rv, _parts_of(sch, facts_of(sch, f.rv), size)))
        made = parts[-1][1]
        before = [b.key for b in sch.get_producers(made)]
        for whole, partial in parts[:-1]:
            if whole.key in before:
                sch.rebase(made, partial)
    around = len(chain[0].spatial) + 1
    lanes = [lanes_of(sch, facts_of(sch, p), sch.get_loops(p)[-1], way, around)[0] for _, p in parts]
    first = parts[0][1]
    at = sch.get_loops(first)[around - 1]
    for (_, part), some in zip(parts, lanes, strict=True):
        no: Refusal | None = None
        if part is first:
            no = place_lanes(sch, some, part, at)
        elif some is not None:
            sch.reverse_compute_at(some, at)
            sch.reverse_compute_at(part, at)
            no = in_lanes(sch, some, part)
        if no is not None:
            return no
    loops = sch.get_loops(first)[:around]
    outer = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    if way.parallel:
        sch.parallel(outer)
    return {"parts of rows": size, "lanes": chain[0].lanes(way), "parallel": way.parallel}


def _inline_between(sch: Schedule, group: list[Facts]) -> None:
    """Inline the stages between the reductions into those that read them: no intermediate row is stored."""
    chain = {f.rv.key for f in group if f.kind == "reduction"}
    for f in group:
        if f.kind == "injective" and any(c.key in chain for c in sch.get_consumers(f.rv)):
            sch.compute_inline(f.rv)


def _parts_of(sch: Schedule, f: Facts, size: int) -> BlockRV:
    reduces = sch.get_loops(f.rv)[len(f.spatial) :]
    whole = sch.fuse(*reduces) if len(reduces) > 1 else reduces[0]
    part, _ = sch.split(whole, [None, size])
    return sch.rfactor(part, factor_axis=len(f.spatial))
