"""The interface of a rule: it matches a stage, counts the work of each candidate schedule, and applies one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...target import Target
from ...tir.schedule import Schedule
from ...tir.schedule.primitive import BlockRV
from ..cost.table import Table
from ..program.stages import Stage

__all__ = ["Applied", "Match", "Refusal", "Row", "Rule"]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a rule does not apply to a stage, as a sentence without its full stop.

    With `near`, the rule is for such stages, and only the target or a size prevents it: `explain()` gives the reason.
    """

    why: str
    near: bool = False


@dataclass(frozen=True)
class Match:
    """A stage that a rule can schedule on a machine, with the facts that the rule has found.

    If `simpler` is given, it is tried with the same row where a primitive refuses this match (without the epilogue, for
    instance).
    """

    stage: Stage
    machine: Any
    found: Any = None
    simpler: Callable[[], Match | Refusal] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table: its decisions, the components of its predicted cost, the time with which it competes, the
    predicted time without margins, and the predicted time of this stage alone, in seconds."""

    values: Mapping[str, int]
    figures: Mapping[str, float]
    seconds: float
    predicted: float
    own: float
    candidates: int = 1  # the rows that it was chosen from


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying a rule: a note for `explain()`, and the stages that are still to be scheduled.

    `next` are scheduled at once, and `finish` is called after that. Those `beside` get their cheapest row without a
    decision of their own: whether they are left depends on the row. `keys` are new blocks at the root that are left to
    the other rules; with `opened`, so are the stages of the chain that still have their plain loops. Of these,
    `undecided` too get their cheapest row without a decision: other rules may move them into their loops.
    """

    note: Mapping[str, object]
    sketch: str = ""  # the name that `explain()` gives it: that of the rule, unless it is given
    next: tuple[BlockRV, ...] = ()
    beside: tuple[BlockRV, ...] = ()
    finish: Callable[[Schedule], None] | None = None
    keys: tuple[object, ...] = ()
    undecided: tuple[object, ...] = ()
    opened: bool = False
    done: tuple[object, ...] = ()  # keys of blocks that need no schedule of their own
    figures: Mapping[str, object] = field(
        default_factory=dict
    )  # figures of the kernel, if they differ from those of the row


class Rule(Protocol):
    """One way to schedule a stage.

    `match` is pure: it does not change the schedule, and a Refusal gives the reason. `table` counts with arrays; with
    `only`, just the row with these decisions. `apply` calls primitives. If one of them refuses, or if `apply` returns a
    Refusal, all its steps are undone, and the rows of the rule are masked.
    """

    @property
    def name(self) -> str: ...

    @property
    def needs(self) -> frozenset[str]:
        """The capabilities of a target that it uses."""

    def match(self, stage: Stage, target: Target) -> Match | Refusal: ...

    def table(self, match: Match, machine: Any, only: Mapping[str, int] | None = None) -> Table: ...

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied | Refusal: ...
