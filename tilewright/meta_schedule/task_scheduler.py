"""Task schedulers: which task of several gets the next batch of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tune.search.allocate import Allocation, largest_promise


class TaskScheduler:
    """Chooses the task of each batch; `tasks_`, `database_` and `measure_callbacks_` are those of a running search."""

    def __init__(self, *, seed: int = -1) -> None:
        self.tasks_: list[Any] = []
        self.database_: Any = None
        self.measure_callbacks_: list[Any] = []

    def choose(self, shares: Sequence[Allocation]) -> Allocation:
        """The task that gets the next batch, of those that are not finished."""
        return largest_promise(shares)

    @staticmethod
    def create(kind: Any = "gradient", *args: Any, **kwargs: Any) -> TaskScheduler:
        """A task scheduler by its name: gradient or round-robin."""
        if isinstance(kind, TaskScheduler):
            return kind
        made: dict[str, type[TaskScheduler]] = {"gradient": GradientBased, "round-robin": RoundRobin}
        if kind not in made:
            raise ValueError(f"there is no task scheduler {kind!r}; there are {', '.join(made)}")
        return made[kind](*args, **kwargs)


class GradientBased(TaskScheduler):
    """The task with the largest expected gain; `alpha` and `window_size` are decided by the search."""

    def __init__(self, *, alpha: float = 0.2, window_size: int = 3, seed: int = -1) -> None:
        super().__init__(seed=seed)


class RoundRobin(TaskScheduler):
    """One task after the other."""

    def __init__(self) -> None:
        super().__init__()
        self._next = 0

    def choose(self, shares: Sequence[Allocation]) -> Allocation:
        self._next += 1
        return shares[(self._next - 1) % len(shares)]


class PyTaskScheduler(TaskScheduler):
    """A scheduler of your own: override `next_task_id()`, the number of a task in `tasks_`."""

    def next_task_id(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must override next_task_id()")

    def choose(self, shares: Sequence[Allocation]) -> Allocation:
        wanted = self.tasks_[self.next_task_id()].task.workload
        return next((s for s in shares if s.tuner.task.workload == wanted), shares[0])


create = TaskScheduler.create
