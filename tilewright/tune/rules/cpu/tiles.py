"""The search over register tiles: the best candidate of all spaces of a block."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from ....ir.buffer import Buffer
from ....target.machine import CpuMachine
from ...cost.cpu import evaluate
from ...program.facts import Facts
from .tile_space import TileSpace, tile_spaces

__all__ = ["Best", "TileSpace", "best_of", "best_tile", "evaluate", "tile_spaces"]


@dataclass(slots=True)
class Best:
    """A candidate of a space, with the figures of the cost model that led to it."""

    space: TileSpace
    index: int
    cycles: float
    candidates: int
    figures: dict[str, float] = field(default_factory=dict)
    # Producers are placed the opposite way of what the figures suggest: the tuner tries that.
    contrary: bool = False

    @property
    def tile(self) -> list[int]:
        return [int(t) for t in self.space.tiles[self.index]]

    @property
    def vectors(self) -> int:
        return int(self.space.vectors[self.index])

    @property
    def vector_outer(self) -> bool:
        return bool(self.space.outer[self.index])


def best_tile(
    facts: Facts, machine: CpuMachine, cores: int, constants: frozenset[Buffer] = frozenset()
) -> Best | None:
    """The candidate with the least cost, the first of equals. None if no axis can be the vector axis."""
    return best_of(tile_spaces(facts, machine, constants), machine, cores)


def best_of(spaces: Iterable[TileSpace], machine: CpuMachine, cores: int) -> Best | None:
    """The candidate of all `spaces` with the least cost, as `best_tile` gives it."""
    best: Best | None = None
    seen = 0
    for space in spaces:
        if not len(space.vectors):
            continue
        costs = evaluate(space, machine, cores)
        seen += len(space.vectors)
        i = int(np.argmin(costs["cycles"]))
        if best is None or costs["cycles"][i] < best.cycles:
            figures = {k: float(v[i]) for k, v in costs.items()}
            best = Best(space, i, float(costs["cycles"][i]), 0, dict(figures))
    if best is not None:
        best.candidates = seen
    return best
