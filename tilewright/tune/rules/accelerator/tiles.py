"""What the rules for accelerators share: accesses by dimension, transfers of tiles in cycles, stages around a tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....arith import detect_linear_equation
from ....ir.expr import BufferLoad, Cast, Var, const_value
from ....ir.stmt import BufferStore
from ....target.accelerator import Accelerator, Scope
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ...cost.table import Array
from ...program.facts import Access, Axis, Facts

DMA, VECTOR, VERSIONS = PRAGMAS = ("pragma_dma_copy", "pragma_vector_unit", "pragma_buffer_versions")


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
    whole: Any = True  # all dimensions behind are taken whole
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


def mark(sch: Schedule, block: BlockRV, below: LoopRV, pragma: str, value: int = 1) -> None:
    """Mark a stage at its outermost loop below a loop."""
    around = sch.state.index.loops_of(sch.realize(block))
    depth = next(i for i, n in enumerate(around) if n.loop_var is sch.loop(below).loop_var)
    sch.annotate(sch.get_loops(block)[depth + 1], pragma, value)


def place(sch: Schedule, block: BlockRV, at: LoopRV, scope: str, pragma: str) -> None:
    """Compute a stage under a loop, in a memory of the chip, by an engine."""
    sch.compute_at(block, at, preserve_unit_loops=True)
    sch.set_scope(block, 0, scope)
    mark(sch, block, at, pragma)


def divisors(n: int) -> list[int]:
    """The numbers that divide `n`."""
    return [d for d in range(1, n + 1) if n % d == 0]
