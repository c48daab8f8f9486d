"""Schedule rules and mutators.

The rules of tilewright compete in one plan (`tune/rules`). A `PyScheduleRule` of your own proposes further schedules,
which are measured beside them. The built-in rules of TVM stand for tilewright's own: they are names without a life of
their own, and cannot be applied one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.errors import UnsupportedError
from ..tir.schedule import Schedule
from .named import Named


class ScheduleRule(Named):
    """A rule of tilewright's plan, under a classic name; the plan decides what its arguments would say."""

    def apply(self, sch: Schedule, block: Any) -> list[Schedule]:
        """The schedules that the rule makes of a block."""
        raise UnsupportedError(
            f"{type(self).__name__}.apply: the rules of tilewright compete in one plan and are not applied one by one; "
            "tilewright.auto_schedule(mod, target) applies the best, and a PyScheduleRule of your own adds to them"
        )

    def clone(self) -> ScheduleRule:
        return self

    @staticmethod
    def create(kind: Any) -> list[ScheduleRule]:
        """The rules for a kind of target that are not in the plan: none."""
        return []


class PyScheduleRule(ScheduleRule):
    """A rule of your own: override `apply(sch, block)`, which returns schedules."""

    def initialize_with_tune_context(self, context: Any) -> None:
        """Called once before a search."""

    _initialize_with_tune_context = initialize_with_tune_context


class AddRFactor(ScheduleRule):
    """Sums in parallel parts: the plan's rules for reductions."""


class ApplyCustomRule(ScheduleRule):
    """Rules that blocks name; give a PyScheduleRule instead."""


class AutoBind(ScheduleRule):
    """Loops on the threads of a GPU: part of each of the plan's rules for GPUs."""


class AutoInline(ScheduleRule):
    """Elementwise stages in their consumers: what the plan begins with."""


class InlineConstantScalars(AutoInline):
    """Constants in their consumers."""


class CrossThreadReduction(ScheduleRule):
    """Sums by the threads of a block: a rule of the plan for GPUs."""


class MultiLevelTiling(ScheduleRule):
    """Tiles for registers and caches: rules of the plan for CPUs and GPUs."""


class MultiLevelTilingWithIntrin(MultiLevelTiling):
    """Tiles of a tensor intrinsic: rules of the plan that need its capability."""


class MultiLevelTilingTensorCore(MultiLevelTiling):
    """Tiles of tensor cores: rules of the plan for GPUs."""


class MultiLevelTilingWideVector(MultiLevelTiling):
    """Tiles of wide vectors: a figure of the target."""


class ParallelizeVectorizeUnroll(ScheduleRule):
    """Threads, vectors and unrolling: columns of the tables of the plan."""


class RandomComputeLocation(ScheduleRule):
    """Where a stage is computed: decided by the plan."""


class ReuseType:
    """How a tile is reused."""

    def __init__(self, req: str, levels: Any = (), scope: str = "") -> None:
        self.req, self.levels, self.scope = req, list(levels), scope


class Mutator(Named):
    """A change of a candidate; the search changes rows of its tables by itself."""

    def apply(self, trace: Any) -> Any:
        """The changed steps."""
        raise UnsupportedError(
            f"{type(self).__name__}.apply: candidates are rows of a table, which the search changes, and not steps; "
            "leave mutators out"
        )

    @staticmethod
    def create(kind: Any) -> Mapping[Mutator, float]:
        """The mutators for a kind of target: none."""
        return {}


class PyMutator(Mutator):
    """A mutator of your own, which no search calls."""


class MutateComputeLocation(Mutator):
    """Another place of a stage."""


class MutateParallel(Mutator):
    """Another number of parallel tasks."""


class MutateThreadBinding(Mutator):
    """Other threads."""


class MutateTileSize(Mutator):
    """Other tiles."""


class MutateUnroll(Mutator):
    """Another limit of unrolling."""
