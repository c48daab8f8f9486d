"""The memory plan of a program: every intermediate tensor gets an offset in one arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...target import Target

ALIGNMENT = 64
_SMALL = 8  # a tensor is small if this many of them fit the arena
DEVICE_ALIGNMENT = 512  # alignment of offsets that suffices for every device


@dataclass(frozen=True, slots=True)
class Lifetime:
    """The size of a tensor, and its live range from the step that writes it to the last that reads it."""

    size: int
    first: int
    last: int


def round_up(size: int, alignment: int = ALIGNMENT) -> int:
    """The size rounded up to the alignment."""
    return -(-size // alignment) * alignment


def alignment_of(target: Target) -> int:
    """The alignment of tensors in the memory of a model: an element of a chip's memory must not straddle."""
    if target.has("aot_executor"):
        return ALIGNMENT
    elements = [s.element_bytes for s in target.accelerator.scopes] if target.is_accelerator else []
    return max(DEVICE_ALIGNMENT, *(round_up(n, DEVICE_ALIGNMENT) for n in (0, *elements)))


def plan_arena(
    values: Sequence[Lifetime], alignment: int = ALIGNMENT, spread: bool = False
) -> tuple[list[int], int]:
    """An offset for each tensor, such that tensors with overlapping live ranges do not overlap, and the arena's size.

        step      0 1 2 3          offset 0 ┌─────┬───┐
        a  512    ━━━                       │  a  │ c │
        b  256      ━━━      ->         512 ├───┬─┴───┤
        c  512        ━━━                   │   │  b  │

    Large tensors come first; each takes the smallest sufficient gap between the tensors that are live at the same time
    (best fit). With `spread`, small ones are then placed round-robin in the space that the large ones need: memory that
    all cores have just read is slow to write, since each core's cached copy must be invalidated first.
    """
    plan = _Plan(values, alignment)
    for i in sorted(range(len(values)), key=lambda k: (-values[k].size, values[k].first)):
        if values[i].size:
            plan.put(i, _hole(plan.beside(i), plan.room(i)))
    if spread:
        plan = _spread(plan) or plan
    return plan.offsets, plan.total


class _Plan:
    """The offsets of tensors, and the live tensors at each step."""

    def __init__(self, values: Sequence[Lifetime], alignment: int) -> None:
        self.values, self.alignment = values, alignment
        self.offsets, self.total = [0] * len(values), 0
        self._busy: list[list[int]] = [[] for _ in range(max((v.last for v in values), default=-1) + 1)]

    def room(self, i: int) -> int:
        return round_up(self.values[i].size, self.alignment)

    def beside(self, i: int) -> list[tuple[int, int]]:
        """Offsets and sizes of the tensors that are live at the same time as a tensor, in order."""
        v = self.values[i]
        found = {j for step in range(v.first, v.last + 1) for j in self._busy[step]}
        return sorted((self.offsets[j], self.room(j)) for j in found)

    def put(self, i: int, at: int) -> None:
        self.offsets[i] = at
        self.total = max(self.total, at + self.room(i))
        for step in range(self.values[i].first, self.values[i].last + 1):
            self._busy[step].append(i)


def _spread(plan: _Plan) -> _Plan | None:
    """The plan with small tensors placed round-robin; None if the arena would grow."""
    made = _Plan(plan.values, plan.alignment)
    small: list[int] = []
    for i, v in enumerate(plan.values):
        if v.size * _SMALL <= plan.total:
            small.append(i)
        else:
            made.put(i, plan.offsets[i])
    end = 0
    for i in sorted(small, key=lambda k: (plan.values[k].first, -plan.values[k].size)):
        if not plan.values[i].size:
            continue
        beside, room = made.beside(i), made.room(i)
        at = _free_from(beside, room, end)
        if at + room > plan.total:
            at = _free_from(beside, room, 0)
        if at + room > plan.total:
            return None
        made.put(i, at)
        end = at + room
    return made


def _free_from(taken: list[tuple[int, int]], size: int, at: int) -> int:
    """The first free offset from `at` on with room for `size`."""
    for start, length in taken:
        if start - at >= size:
            break
        at = max(at, start + length)
    return at


def _hole(taken: list[tuple[int, int]], size: int) -> int:
    """The start of the smallest gap with room for `size`, else the end of the used space."""
    best, room, end = -1, 0, 0
    for start, length in taken:
        gap = start - end
        if gap >= size and (best < 0 or gap < room):
            best, room = end, gap
        end = max(end, start + length)
    return end if best < 0 else best


def arena_peak(values: Sequence[Lifetime]) -> int:
    """The most bytes that are live at once: a lower bound of every plan."""
    steps = max((v.last for v in values), default=-1) + 2
    change = [0] * steps
    for v in values:
        change[v.first] += round_up(v.size)
        change[v.last + 1] -= round_up(v.size)
    most = now = 0
    for c in change:
        now += c
        most = max(most, now)
    return most
