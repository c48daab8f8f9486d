"""A task of the search, with its space and its strategy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..forks import cached_property
from ..ir.function import PrimFunc
from ..ir.module import IRModule
from ..target import Target
from ..tir.schedule import Schedule
from ..tune.workload import Task, task_of
from .search_strategy import SearchStrategy
from .space_generator import SpaceGenerator


def _normalize_mod(mod: IRModule | PrimFunc) -> IRModule:
    """A function, or a module of one, as a module whose function is called `main`."""
    if isinstance(mod, PrimFunc):
        return IRModule({"main": mod})
    if not isinstance(mod, IRModule):
        raise TypeError(f"mod is a PrimFunc or an IRModule, not {type(mod).__name__}")
    names = [gv.name_hint for gv in mod.functions]
    if len(names) != 1:
        raise ValueError(f"mod has {len(names)} functions ({', '.join(names)}), and one is tuned at a time")
    return mod if names == ["main"] else IRModule({"main": mod[names[0]]})


class TuneContext:
    """A program to be tuned for a target, in a space, by a strategy."""

    def __init__(
        self,
        mod: IRModule | PrimFunc | None = None,
        *,
        target: Any = None,
        space_generator: Any = None,
        search_strategy: Any = None,
        task_name: str = "main",
        rand_state: int = -1,
        num_threads: int | str = "physical",
        logger: Any = None,
        constants: Sequence[str] = (),
    ) -> None:
        if isinstance(mod, PrimFunc):
            mod = _normalize_mod(mod)
        self.mod, self.task_name, self.rand_state, self.num_threads = mod, task_name, rand_state, num_threads
        self.target = Target.current(allow_none=True) if target is None else Target(target)
        self.space_generator = None if space_generator is None else SpaceGenerator.create(space_generator)
        self.search_strategy = None if search_strategy is None else SearchStrategy.create(search_strategy)
        self.logger, self._constants = logger, tuple(constants)
        if self.space_generator is not None and mod is not None:
            self.space_generator.initialize_with_tune_context(self)

    @cached_property
    def task(self) -> Task:
        """The task of the engine."""
        if self.mod is None:
            raise ValueError("TuneContext: give the program to tune, mod=")
        return task_of(self.mod, self.target, self._constants)

    @property
    def space(self) -> SpaceGenerator:
        return self.space_generator or SpaceGenerator.create()

    @property
    def strategy(self) -> SearchStrategy:
        return self.search_strategy or SearchStrategy.create()

    def generate_design_space(self) -> list[Schedule]:
        """The schedules of the space."""
        return self.space.generate_design_space(self.task.mod)

    def clone(self) -> TuneContext:
        return TuneContext(
            self.mod,
            target=self.target,
            space_generator=self.space_generator,
            search_strategy=self.search_strategy,
            task_name=self.task_name,
            rand_state=self.rand_state,
            num_threads=self.num_threads,
            logger=self.logger,
            constants=self._constants,
        )
