"""Tiles for accelerators: accesses by dimension, transfers of tiles in cycles, sizes of tiles."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ....arith import detect_linear_equation
from ....ir.expr import BufferLoad, Cast, Var, const_value
from ....ir.stmt import BufferStore
from ....target.accelerator import Accelerator, Scope
from ...cost.table import Array
from ...program.facts import Access, Axis, Facts


@dataclass(frozen=True)
class Dims:
    """The dimensions of an operand: how far each axis moves along them, and their sizes in the array."""

    steps: tuple[dict[Var, int], ...]
    sizes: tuple[int, ...]

    def spans(self, tile: dict[Var, Array]) -> list[Array]:
        """The elements of each dimension that a tile touches."""
        out = []
        for of, size in zip(self.steps, self.sizes, strict=True):
            span: Any = 1
            for v, k in of.items():
                span = span + abs(k) * (tile[v] - 1)
            out.append(np.minimum(span, size))
        return out

    def moves(self, v: Var) -> bool:
        return any(v in of for of in self.steps)


def dims_of(r: Access, axes: Sequence[Axis]) -> Dims | None:
    """The dimensions of an access; None if an index is not linear in the axes."""
    variables = [a.var for a in axes]
    steps = []
    for i in r.indices:
        found = detect_linear_equation(i, variables)
        if not found or any(not isinstance(const_value(k), int) for k in found[:-1]):
            return None
        steps.append({v: int(const_value(k)) for v, k in zip(variables, found) if const_value(k)})  # type: ignore[arg-type]
    sizes = [const_value(n) for n in r.buffer.shape]
    if any(not isinstance(n, int) for n in sizes):
        return None
    return Dims(tuple(steps), tuple(int(n) for n in sizes))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Moved:
    """A tile that is transferred: elements of the chip's memory, cycles of the DRAM port and of its engine."""

    elements: Array
    port: Array
    engine: Array


def transfer(
    spans: Sequence[Array], sizes: Sequence[int], scope: Scope, chip: Accelerator, nbytes: int
) -> Moved:
    """The cost of a tile of elements: `spans` of `sizes` elements in each dimension, `nbytes` for an element in DRAM.

    Dimensions that are taken whole are contiguous with the one before; the rest are rows, and a command has two
    dimensions.
    """
    columns: Any = 1
    rows: Any = 1
    whole: Any = True  # all inner dimensions are taken whole
    commands: Any = 1
    taken: Any = 0  # dimensions of a command that are used: columns, then rows
    elements: Any = 1
    for span, size in zip(reversed(spans), reversed(sizes), strict=True):
        elements = elements * span
        fused = np.logical_and(whole, np.equal(taken, 0))
        columns = np.where(fused, columns * span, columns)
        fresh = np.logical_not(fused) & (np.asarray(span) > 1)
        taken = taken + fresh
        rows = np.where(fresh, rows * span, rows)
        commands = np.where(fresh & (taken > 1), commands * span, commands)
        whole = np.logical_and(whole, np.equal(span, size))
    port = rows * chip.port.row + np.ceil(elements * nbytes / chip.port.bytes_per_cycle)
    return Moved(elements, port, port + commands * chip.port.latency)


def is_copy(f: Facts) -> bool:
    """Whether a stage stores elements as they are, or converted: a transfer can do that."""
    body = f.block.body
    if not isinstance(body, BufferStore) or f.guarded:
        return False
    value = body.value
    while isinstance(value, Cast):
        value = value.value
    return isinstance(value, BufferLoad)


def divisors(n: int) -> list[int]:
    """The numbers that divide `n`."""
    return [d for d in range(1, n + 1) if n % d == 0]


def sizes_of_tiles(axes: Sequence[Axis], most: int) -> Iterator[tuple[int, ...]]:
    """At most `most` tiles of some axes: divisors of each extent. The axes with the most of them lose some first."""
    sizes = [divisors(a.extent) for a in axes]
    while math.prod(map(len, sizes)) > most:
        longest = max(sizes, key=len)
        del longest[:: max(2, len(longest) // 2)]
    return product(*sizes)


def thread_axes(outer: Sequence[Axis], tile: Sequence[int]) -> list[int]:
    """The numbers of the axes of the result whose tiles two virtual threads can share."""
    return [i for i, (a, t) in enumerate(zip(outer, tile, strict=False)) if a.extent // t % 2 == 0]


def is_tiling(axes: Sequence[Axis], outer: Sequence[Axis], row: Sequence[int]) -> bool:
    """Whether a row of decisions is the tile of each axis, then the virtual threads and their axis of the result."""
    tile, (threads, axis, *_) = row[: len(axes)], row[len(axes) :]
    if any(t < 1 or a.extent % t for t, a in zip(tile, axes, strict=True)):
        return False
    return (threads == 1 and 0 <= axis < len(outer)) or (threads == 2 and axis in thread_axes(outer, tile))
