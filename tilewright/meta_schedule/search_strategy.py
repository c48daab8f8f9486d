"""Search strategies: options of the one search, and candidates as schedules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..ir.errors import UnsupportedError
from ..tir.schedule import Schedule
from ..tune.search.search import SearchOptions
from .arg_info import TensorInfo


@dataclass(eq=False)
class MeasureCandidate:
    """A schedule to be measured, and the parameters of its program."""

    sch: Schedule
    args_info: Sequence[TensorInfo]


class SearchStrategy:
    """How candidates are proposed."""

    def options(self, before: SearchOptions) -> SearchOptions:
        """The options of the search."""
        return before

    @staticmethod
    def create(kind: Any = "evolutionary", *args: Any, **kwargs: Any) -> SearchStrategy:
        """A strategy by its name: evolutionary, replay-trace or replay-func."""
        if isinstance(kind, SearchStrategy):
            return kind
        made: dict[str, type[SearchStrategy]] = {
            "evolutionary": EvolutionarySearch, "replay-trace": ReplayTrace, "replay-func": ReplayFunc,
        }  # fmt: skip
        if kind not in made:
            raise ValueError(f"there is no search strategy {kind!r}; there are {', '.join(made)}")
        return made[kind](*args, **kwargs)


@dataclass
class EvolutionarySearch(SearchStrategy):
    """Candidates that a cost model prefers, found by evolution where there are too many to score all of them."""

    population_size: int = 512
    init_measured_ratio: float = 0.2
    init_min_unmeasured: int = 50
    max_fail_count: int = 5
    genetic_num_iters: int = 4
    genetic_mutate_prob: float = 0.85
    genetic_max_fail_count: int = 10
    eps_greedy: float = 0.05

    def options(self, before: SearchOptions) -> SearchOptions:
        return replace(
            before,
            population=self.population_size,
            generations=self.genetic_num_iters,
            epsilon=self.eps_greedy,
        )


@dataclass
class ReplayTrace(SearchStrategy):
    """Random candidates."""

    max_fail_count: int = 100

    def options(self, before: SearchOptions) -> SearchOptions:
        return replace(before, model="random", epsilon=1.0)


class ReplayFunc(ReplayTrace):
    """Random candidates; a `ScheduleFn` is called anew for each in any case."""


class PySearchStrategy(SearchStrategy):
    """A search of your own, which is refused: there is one search."""

    def options(self, before: SearchOptions) -> SearchOptions:
        raise UnsupportedError(
            f"{type(self).__name__}: there is one search, whose candidates a space of your own may propose: "
            "space=ms.space_generator.ScheduleFn(function)"
        )


create = SearchStrategy.create
