"""Chains of reductions over rows that exceed the caches ("online" softmax): each part of a row is read once, and its
sums are rescaled at the end.

for row, part in parallel:                  a part stays in the L1 cache
    largest of the part                     ┐ sums are relative to the part's own largest value (or mean),
    sum of exp(x - largest of the part)     ┘ so that they need not wait for that of the row
for row: largest and sum, from the parts    then the stages after them, row by row or all at once
"""

from __future__ import annotations

import math

from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV
from ...program.facts import Facts, facts_of
from ...program.patterns import in_line, one_line
from .rows import in_lanes, lanes_of, place_lanes

__all__ = ["in_parts", "wants_parts"]

_SHARE = 2  # a part takes at most 1 / _SHARE of the L1 cache, so that the next stage still finds it there
_MANY = 16  # the least number of parts of a row that is worth combining


def wants_parts(group: list[Facts], machine: CpuMachine, parallel: bool) -> bool:
    """Whether rows are so long, or so few, that it is better to reduce parts of them independently."""
    chain = [f for f in group if f.kind == "reduction"]
    if len(chain) < 2 or not all(_along(f) and _axes(f) == _axes(chain[0]) for f in chain):
        return False
    size = math.prod(a.extent for a in chain[0].reduce)
    if size < _MANY * _part(chain, machine):
        return False
    few = parallel and math.prod(a.extent for a in chain[0].spatial) < machine.num_cores
    # each core holds a row of the input and one of intermediate results
    held = 2 * size * max(f.bits for f in chain) // 8
    caches = machine.cache_sizes
    return few or held > max(caches.l2, caches.l3 // machine.num_cores)


def _along(f: Facts) -> bool:
    """Whether a reduction runs along contiguous memory."""
    line = in_line(f)
    return line is not None and line.reduce and one_line(f, f.reduce)


def _axes(f: Facts) -> list[list[int]]:
    return [[a.extent for a in axes if a.extent > 1] for axes in (f.spatial, f.reduce)]


def _part(chain: list[Facts], machine: CpuMachine) -> int:
    """The elements of a part: whole vectors that fit the L1 cache."""
    widest = max(chain, key=lambda f: f.bits)
    wide = 4 * widest.lanes(machine)
    return max(wide, machine.cache_sizes.l1d // _SHARE // (widest.bits // 8) // wide * wide)


def in_parts(sch: Schedule, group: list[Facts], machine: CpuMachine, parallel: bool) -> dict[str, object]:
    """Reduce the parts of all rows. The combination of the parts and the stages after it are left to be scheduled."""
    chain = [f for f in group if f.kind == "reduction"]
    size = _part(chain, machine)
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
    lanes = [lanes_of(sch, facts_of(sch, p), sch.get_loops(p)[-1], machine, around)[0] for _, p in parts]
    first = parts[0][1]
    at = sch.get_loops(first)[around - 1]
    for (_, part), some in zip(parts, lanes, strict=True):
        if part is first:
            place_lanes(sch, some, part, at)
        elif some is not None:
            sch.reverse_compute_at(some, at)
            sch.reverse_compute_at(part, at)
            in_lanes(sch, some, part)
    loops = sch.get_loops(first)[:around]
    outer = sch.fuse(*loops) if len(loops) > 1 else loops[0]
    if parallel:
        sch.parallel(outer)
    return {"parts of rows": size, "lanes": chain[0].lanes(machine), "parallel": parallel}


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
