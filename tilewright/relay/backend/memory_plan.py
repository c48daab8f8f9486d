"""Memory of a program: every intermediate tensor gets a place in one arena."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["ALIGNMENT", "DEVICE_ALIGNMENT", "Lifetime", "arena_peak", "plan_arena", "round_up"]

ALIGNMENT = 64
DEVICE_ALIGNMENT = 512  # where a part of a device's memory may begin, whosever device it is


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A tensor of so many bytes that lives from the step that writes it to the last that reads it."""

    size: int
    first: int
    last: int


def round_up(size: int, alignment: int = ALIGNMENT) -> int:
    """The size with what is needed for the next thing to be aligned."""
    return -(-size // alignment) * alignment


def plan_arena(values: Sequence[Lifetime], alignment: int = ALIGNMENT) -> tuple[list[int], int]:
    """An offset for each tensor, such that no two that live at once overlap, and the size of the whole.

        step      0 1 2 3          offset 0 ┌─────┬───┐
        a  512    ━━━                       │  a  │ c │
        b  256      ━━━      ->         512 ├───┬─┴───┤
        c  512        ━━━                   │   │  b  │

    The large come first; each takes the least hole that holds it among those that live at the same time.
    """
    steps = max((v.last for v in values), default=-1) + 1
    busy: list[list[int]] = [[] for _ in range(steps)]  # for each step the tensors that have a place
    offsets = [0] * len(values)
    total = 0
    for i in sorted(range(len(values)), key=lambda k: (-values[k].size, values[k].first)):
        v = values[i]
        if v.size == 0:
            continue
        beside = {j for step in range(v.first, v.last + 1) for j in busy[step]}
        taken = sorted((offsets[j], round_up(values[j].size, alignment)) for j in beside)
        room = round_up(v.size, alignment)
        offsets[i] = _hole(taken, room)
        total = max(total, offsets[i] + room)
        for step in range(v.first, v.last + 1):
            busy[step].append(i)
    return offsets, total


def _hole(taken: list[tuple[int, int]], size: int) -> int:
    """The start of the least gap that holds `size`, else the end of what is taken."""
    best, room, end = -1, 0, 0
    for start, length in taken:
        gap = start - end
        if gap >= size and (best < 0 or gap < room):
            best, room = end, gap
        end = max(end, start + length)
    return end if best < 0 else best


def arena_peak(values: Sequence[Lifetime]) -> int:
    """The most bytes that live at once: no plan can be smaller."""
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
