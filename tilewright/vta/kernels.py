"""Loop nests of GEMM and ALU commands as instructions: two loops that the instruction runs, and a kernel of micro-ops.

    for a in range(8):                            outer=14, inner=14
        for b in range(3):                        kernel: 8 * 3 micro-ops, one for each (a, b)
            for y in range(14):          ->
                for x in range(14):
                    acc[…] += inp[…] @ wgt[…].T

The two loops are those that leave the fewest micro-ops. Where the order of the iterations matters, they are the
outermost ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import NamedTuple

_COMMUTATIVE = frozenset({"min", "max", "add", "mul"})


class Loop(NamedTuple):
    """A loop: its iterations, and what each adds to the index in each memory."""

    extent: int
    steps: tuple[int, ...]


class Piece(NamedTuple):
    """The loops of one instruction and its micro-ops, as indices in each memory relative to the command's."""

    outer: Loop
    inner: Loop
    micro_ops: tuple[tuple[int, ...], ...]


class Limits(NamedTuple):
    """The greatest extent of a loop of an instruction, and the greatest number of micro-ops of a kernel."""

    extent: int
    micro_ops: int


@lru_cache(4096)
def pieces(loops: tuple[Loop, ...], limits: Limits, reorder: bool, memories: int) -> tuple[Piece, ...]:
    """The instructions that run a nest; `reorder` says that its iterations may run in any order."""
    if any(loop.extent == 0 for loop in loops):
        return ()
    nest = [loop for loop in loops if loop.extent > 1]
    start = [0] * memories
    if reorder:
        nest = [_forward(loop, start) for loop in nest]
    return tuple(_cut(tuple(start), tuple(_merged(nest, limits.extent, reorder)), limits, reorder))


def _forward(loop: Loop, start: list[int]) -> Loop:
    """A loop that runs upwards: fields of steps have no sign."""
    if not all(step <= 0 for step in loop.steps):
        return loop
    for at, step in enumerate(loop.steps):
        start[at] += (loop.extent - 1) * step
    return Loop(loop.extent, tuple(-step for step in loop.steps))


def _merged(nest: Sequence[Loop], most: int, reorder: bool) -> list[Loop]:
    """A nest in which two loops that walk like one are one: range(4) by 8 around range(8) by 1 is range(32) by 1."""
    found = list(nest)
    again = True
    while again:
        again = False
        for i, j in product(range(len(found)), repeat=2):
            outer, inner = found[i], found[j]
            near = i != j if reorder else j == i + 1
            fits = outer.extent * inner.extent <= most
            if near and fits and all(a == b * inner.extent for a, b in zip(outer.steps, inner.steps)):
                found[j] = Loop(outer.extent * inner.extent, inner.steps)
                del found[i]
                again = True
                break
    return found


def _cut(start: tuple[int, ...], nest: tuple[Loop, ...], limits: Limits, reorder: bool) -> Iterator[Piece]:
    """The pieces of a nest from the index `start` on; a nest that is too large for one is cut at a loop."""
    long = next((at for at, loop in enumerate(nest) if loop.extent > limits.extent), None)
    if long is not None and (reorder or long == 0):
        yield from _chunks(start, nest, long, limits.extent, limits, reorder)
        return
    chosen = _chosen(nest, limits.extent, reorder)
    rest = [at for at in range(len(nest)) if at not in chosen]
    count = prod(nest[at].extent for at in rest)
    if count > limits.micro_ops:
        at = max(rest, key=lambda at: nest[at].extent) if reorder else 0
        chunk = max(1, limits.micro_ops * nest[at].extent // count) if reorder else 1
        yield from _chunks(start, nest, at, chunk, limits, reorder)
        return
    stay = Loop(1, (0,) * len(start))
    outer, inner = ([stay, stay] + [nest[at] for at in chosen])[-2:]
    micro_ops = tuple(
        tuple(
            s + sum(k * nest[at].steps[m] for k, at in zip(where, rest, strict=True))
            for m, s in enumerate(start)
        )
        for where in product(*(range(nest[at].extent) for at in rest))
    )
    yield Piece(outer, inner, micro_ops)


def _chosen(nest: Sequence[Loop], most: int, reorder: bool) -> list[int]:
    """The loops that the instruction runs, at most two."""
    fits = [loop.extent <= most and min(loop.steps) >= 0 for loop in nest]
    if reorder:
        longest = sorted((at for at in range(len(nest)) if fits[at]), key=lambda at: -nest[at].extent)
        return sorted(longest[:2])
    count = next((at for at, fit in enumerate(fits) if not fit), len(nest))
    return list(range(min(count, 2)))


def _chunks(
    start: tuple[int, ...], nest: tuple[Loop, ...], at: int, size: int, limits: Limits, reorder: bool
) -> Iterator[Piece]:
    """The pieces of a nest whose loop number `at` runs `size` iterations at a time."""
    loop = nest[at]
    for first in range(0, loop.extent, size):
        extent = min(size, loop.extent - first)
        part = (Loop(extent, loop.steps),) if extent > 1 else ()
        moved = tuple(s + first * step for s, step in zip(start, loop.steps, strict=True))
        yield from _cut(moved, nest[:at] + part + nest[at + 1 :], limits, reorder)


def bounds(base: int, loops: Sequence[Loop], memory: int) -> tuple[int, int]:
    """The least and the greatest index of a nest in a memory."""
    spans = [(loop.extent - 1) * loop.steps[memory] for loop in loops]
    return base + sum(min(0, s) for s in spans), base + sum(max(0, s) for s in spans)


def alu_reorders(op: str, immediate: bool, dst: int, src: int, loops: Sequence[Loop]) -> bool:
    """Whether the iterations of an ALU command (memories dst, src) may run in any order; False where it is unclear."""
    if dst == src and all(a == b for _, (a, b) in loops):
        return True  # an iteration changes its own element only
    low, high = bounds(dst, loops, 0)
    first, last = bounds(src, loops, 1)
    if not (high < first or last < low):
        return False  # an iteration may read a result of another one
    return (not immediate and op in _COMMUTATIVE) or _injective([(e, abs(a)) for e, (a, _) in loops])


def _injective(walk: Sequence[tuple[int, int]]) -> bool:
    """Whether loops by (extent, step) never come to the same index twice."""
    reach = 0
    for extent, step in sorted((p for p in walk if p[0] > 1), key=lambda p: p[1]):
        if step <= reach:
            return False
        reach += (extent - 1) * step
    return True
