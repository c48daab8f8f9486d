"""A family of machines: the rules that schedule for it, and the cost function that compares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from ...target import Target
from ..cost.table import Array, Table
from .rule import Rule

__all__ = ["Cost", "Family"]


class Cost(Protocol):
    """The cost function of a family: a module of `tune/cost/`."""

    def evaluate(self, table: Table, machine: Any) -> dict[str, Array]:
        """The predicted `seconds` of each row, and their components."""

    def seconds(self, table: Table, machine: Any) -> Array: ...

    def best_row(self, table: Table, machine: Any, figures: Mapping[str, Array]) -> int: ...


@dataclass(frozen=True)
class Family:
    """CPUs, GPUs or accelerators.

    The `early` rules are asked before stages are inlined: they take whole groups of stages. `features` gives the
    columns of a machine for a learned model. `fine` names the decisions that the cost function hardly distinguishes: a
    search measures one candidate of each coarse choice first.
    """

    rules: tuple[Rule, ...]
    cost: Cost
    machine: Callable[[Target], Any]
    capabilities: Callable[[Target], frozenset[str]]
    features: Callable[[Any], Array]
    doubt: str  # why a row with a lower prediction loses
    early: tuple[Rule, ...] = ()
    fine: tuple[str, ...] = ()
