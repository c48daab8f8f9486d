"""Spaces of schedules: tilewright's plan, a function of your own, or rules of your own beside the plan."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir.errors import ScheduleError, UnsupportedError
from ..tir.schedule import Schedule
from ..tune.auto import auto_schedule
from .postproc import PyPostproc
from .schedule_rule import PyMutator, PyScheduleRule


class SpaceGenerator:
    """A space of schedules. `sch_rules`, `postprocs` and `mutator_probs` may be "from-target", the plan's own."""

    searched = True  # whether tilewright's own rules propose candidates

    def __init__(
        self, sch_rules: Any = "from-target", postprocs: Any = "from-target", mutator_probs: Any = None
    ) -> None:
        self.sch_rules = _own(sch_rules, PyScheduleRule)
        self.postprocs = _own(postprocs, PyPostproc)
        self.mutator_probs = _mutators(mutator_probs)
        self.target: Any = None

    def initialize_with_tune_context(self, context: Any) -> None:
        """Tell the rules and postprocessors which task they are for."""
        self.target = context.target
        for each in (*self.sch_rules, *self.postprocs):
            each._initialize_with_tune_context(context)

    def drawn(self, mod: Any, seed: int) -> list[Schedule]:
        """Schedules of your own, with the random choices of a seed."""
        return []

    def generate_design_space(self, mod: Any) -> list[Schedule]:
        """The schedules of a program: your own, and the zero-trial one if tilewright's rules take part."""
        own = self.drawn(mod, 0)
        return [*own, auto_schedule(mod, self.target)] if self.searched else own

    def clone(self) -> SpaceGenerator:
        return self

    def finished(self, schedules: Sequence[Schedule]) -> list[Schedule]:
        """The schedules that the postprocessors allow."""
        return [s for s in schedules if all(p.apply(s) for p in self.postprocs)]

    @staticmethod
    def create(kind: Any = "post-order-apply", *args: Any, **kwargs: Any) -> SpaceGenerator:
        """A space: post-order-apply, union, or a function of a schedule."""
        if isinstance(kind, SpaceGenerator):
            return kind
        if callable(kind):
            return ScheduleFn(kind, *args, **kwargs)
        made: dict[str, type[SpaceGenerator]] = {
            "post-order-apply": PostOrderApply,
            "union": SpaceGeneratorUnion,
        }
        if kind not in made:
            raise ValueError(
                f"there is no space {kind!r}; there are {', '.join(made)}, and functions of a schedule"
            )
        return made[kind](*args, **kwargs)


def _own(given: Any, kind: type) -> list[Any]:
    """The rules of users among some; those of tilewright are in its plan in any case."""
    every = list(given) if isinstance(given, (list, tuple)) else []
    for each in every:
        if not isinstance(each, kind) and (each.args or each.kwargs):
            warnings.warn(
                f"{type(each).__name__}(…) is part of tilewright's plan, which decides its arguments by itself",
                RuntimeWarning,
                stacklevel=4,
            )
    return [each for each in every if isinstance(each, kind)]


def _mutators(given: Any) -> Mapping[Any, float]:
    found: Mapping[Any, float] = given if isinstance(given, Mapping) else {}
    if own := next((m for m in found if isinstance(m, PyMutator)), None):
        raise UnsupportedError(
            f"{type(own).__name__}: candidates are rows of a table, which the search changes by itself; leave it out"
        )
    return found


class PySpaceGenerator(SpaceGenerator):
    """A space of your own: override `generate_design_space(mod)`, which returns schedules."""

    searched = False

    def drawn(self, mod: Any, seed: int) -> list[Schedule]:
        return self.finished(self.generate_design_space(mod)) if seed == 0 else []

    def generate_design_space(self, mod: Any) -> list[Schedule]:
        raise NotImplementedError(f"{type(self).__name__} must override generate_design_space(mod)")


class ScheduleFn(SpaceGenerator):
    """The schedules of a function, called with a new tir.Schedule for each candidate; its random choices
    (`sch.sample_perfect_tile` and the like) differ. It returns nothing, a schedule, or several."""

    searched = False

    def __init__(
        self,
        sch_fn: Callable[[Schedule], Any],
        sch_rules: Any = "from-target",
        postprocs: Any = "from-target",
        mutator_probs: Any = None,
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.sch_fn = sch_fn

    def drawn(self, mod: Any, seed: int) -> list[Schedule]:
        sch = Schedule(mod, seed=seed + 1)
        made = self.sch_fn(sch)
        schedules = [sch] if made is None else [made] if isinstance(made, Schedule) else list(made)
        if not all(isinstance(s, Schedule) for s in schedules):
            raise TypeError("ScheduleFn: the function returns nothing, a tir.Schedule, or a list of them")
        return self.finished(schedules)


class PostOrderApply(SpaceGenerator):
    """Tilewright's plan, and beside it the schedules that rules of your own make, block after block, producers first.

    `f_block_filter` says of a block whether your rules are applied to it.
    """

    def __init__(
        self,
        f_block_filter: Callable[[Any], bool] | None = None,
        sch_rules: Any = "from-target",
        postprocs: Any = "from-target",
        mutator_probs: Any = None,
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.f_block_filter = f_block_filter

    def drawn(self, mod: Any, seed: int) -> list[Schedule]:
        if not self.sch_rules:
            return []
        first = Schedule(mod, seed=seed + 1)
        names = [first.get(b).name_hint for b in first.get_child_blocks(first.get_block("root"))]
        schedules = [first]
        for name in names:
            for rule in self.sch_rules:
                schedules = [made for sch in schedules for made in self._applied(rule, sch, name)]
        return self.finished(schedules)

    def _applied(self, rule: PyScheduleRule, sch: Schedule, name: str) -> list[Schedule]:
        try:
            block = sch.get_block(name)
        except ScheduleError:  # an earlier rule has inlined it
            return [sch]
        if self.f_block_filter is not None and not self.f_block_filter(sch.get(block)):
            return [sch]
        return list(rule.apply(sch, block))


class SpaceGeneratorUnion(SpaceGenerator):
    """The schedules of several spaces."""

    def __init__(
        self,
        space_generators: Sequence[SpaceGenerator],
        sch_rules: Any = "from-target",
        postprocs: Any = "from-target",
        mutator_probs: Any = None,
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.space_generators = list(space_generators)
        self.searched = any(s.searched for s in self.space_generators)

    def initialize_with_tune_context(self, context: Any) -> None:
        super().initialize_with_tune_context(context)
        for each in self.space_generators:
            each.initialize_with_tune_context(context)

    def drawn(self, mod: Any, seed: int) -> list[Schedule]:
        return self.finished([s for each in self.space_generators for s in each.drawn(mod, seed)])


create = SpaceGenerator.create
