"""The rows of a rule: decisions, and counts of what each of them does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

__all__ = ["Array", "Table", "joined_tables"]

Array = Any


@dataclass(frozen=True, slots=True)
class Table:
    """A row for each way in which a rule can schedule a stage.

        vectors  tile0  threads │ steps  multiply_adds  vector_loads  near_bytes  …
              2     14        0 │   512             28             2      131072
              2     14        1 │   512             28             2      131072

    `points` are the decisions, whole numbers by `columns`. `counts` are arrays by the names that the cost function
    documents; a count that is absent is 0. `operands` are the bytes that each operand has in all, and `left` names the
    counts of stages that the rule leaves to others: they count where rules are compared, and not in the time of this
    stage. `margins` names the counts that are no time at all, but the doubt with which an estimate competes. `finer`
    makes the same table with decisions that only measurements can tell apart.
    """

    columns: tuple[str, ...]
    points: Array
    counts: Mapping[str, Array]
    operands: Sequence[int] = ()
    left: tuple[str, ...] = ()
    margins: tuple[str, ...] = ()
    shape: Callable[[Mapping[str, Array]], Array] | None = (
        None  # features for a learned model, from the figures
    )
    effort: Array | float = (
        3.0  # the logarithm (base 2) of the size of the code, which the time to build it follows
    )
    finer: Callable[[], Table] | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.points)

    def count(self, name: str) -> Array:
        return np.broadcast_to(np.asarray(self.counts.get(name, 0.0), np.float64), (len(self.points),))

    def column(self, name: str) -> Array:
        return self.points[:, self.columns.index(name)]

    def values(self, row: int) -> dict[str, int]:
        """The decisions of a row by their names."""
        return dict(zip(self.columns, map(int, self.points[row]), strict=True))

    def alone(self) -> Table:
        """The table without the work that is left to other stages, and without margins."""
        return self.without((*self.left, *self.margins))

    def without(self, names: Sequence[str]) -> Table:
        """The table without some counts."""
        kept = {k: v for k, v in self.counts.items() if k not in names}
        return replace(self, counts=kept) if names else self

    def whole(self) -> Table:
        """The table with all decisions that can be tuned."""
        return self if self.finer is None else self.finer()


def joined_tables(tables: Sequence[Table]) -> Table:
    """The rows of several tables with the same columns, one after the other."""
    first = tables[0]
    if len(tables) == 1:
        return first
    names = dict.fromkeys(name for t in tables for name in t.counts)
    counts = {name: np.concatenate([t.count(name) for t in tables]) for name in names}
    return replace(first, points=np.concatenate([t.points for t in tables]), counts=counts)
