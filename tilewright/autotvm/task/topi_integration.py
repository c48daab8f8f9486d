"""Templates of two functions, as in operator libraries: one that computes, and one that schedules.

@autotvm.register_topi_compute("dense.mine")
def dense(cfg, data, weight): …
@autotvm.register_topi_schedule("dense.mine")
def schedule_dense(cfg, outs): …

out = dense(data, weight); s = schedule_dense([out])     # within a target, with its best record
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from ...ir.errors import TVMError
from ...target import Target
from ...te.tensor import Tensor
from .args import args_to_workload
from .dispatcher import DispatchContext
from .task import Task, create, register_template

_ATTR = "workload"


class TaskExtractEnv:
    """Collects the calls of templates in a `with` block, as tasks."""

    current: ClassVar[TaskExtractEnv | None] = None

    def __init__(self, allow_duplicate: bool = False) -> None:
        self.allow_duplicate = allow_duplicate
        self.wanted: set[str] | None = None
        self.task_collection: list[tuple[str, tuple[Any, ...]]] = []
        self.tracing = False

    def __enter__(self) -> TaskExtractEnv:
        self.task_collection, self.tracing = [], True
        return self

    def __exit__(self, *ignored: object) -> None:
        self.tracing = False

    def reset(self, wanted_relay_ops: Sequence[str] | None = None) -> None:
        """Remove all calls, and collect only those of the templates `wanted_relay_ops` from now on."""
        self.task_collection = []
        self.wanted = None if wanted_relay_ops is None else set(wanted_relay_ops)

    def add_task(self, task_name: str, args: Sequence[Any]) -> None:
        """Add the call of a template."""
        key = (task_name, args_to_workload(args))
        if self.wanted is not None and task_name not in self.wanted:
            return
        if self.allow_duplicate or key not in self.task_collection:
            self.task_collection.append(key)

    def get_tasks(self, target: Any = None) -> list[Task]:
        """The tasks of the calls."""
        return [create(name, args, target) for name, args in self.task_collection]

    @staticmethod
    def get(allow_duplicate: bool = False) -> TaskExtractEnv:
        """The collection of this process."""
        if TaskExtractEnv.current is None:
            TaskExtractEnv.current = TaskExtractEnv(allow_duplicate)
        TaskExtractEnv.current.allow_duplicate = allow_duplicate
        return TaskExtractEnv.current


def register_topi_compute(task_name: str, func: Callable[..., Any] | None = None) -> Any:
    """Make a function `compute(cfg, *args)` the compute function of a template."""

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def computed(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                raise TypeError(f"the template {task_name} takes its arguments by position only")
            workload = args_to_workload(args, task_name)
            env = TaskExtractEnv.current
            if env is not None and env.tracing:
                env.add_task(task_name, args)
            cfg = DispatchContext.current.query(Target.current(allow_none=True), workload)
            made = f(cfg, *args)
            for out in made if isinstance(made, (tuple, list)) else [made]:
                out.op.attrs[_ATTR] = workload
            return made

        register_template(task_name, "fcompute", computed)
        return computed

    return decorate if func is None else decorate(func)


def register_topi_schedule(task_name: str, func: Callable[..., Any] | None = None) -> Any:
    """Make a function `schedule(cfg, outs)` the schedule function of a template."""

    def decorate(f: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(f)
        def scheduled(outs: Any, *args: Any, **kwargs: Any) -> Any:
            listed = [outs] if isinstance(outs, Tensor) else list(outs)
            workload = get_workload(listed, task_name)
            if workload is None:
                raise TVMError(
                    f"the tensors to schedule are not those of the template {task_name}: compute them with the "
                    f"function of register_topi_compute({task_name!r})"
                )
            cfg = DispatchContext.current.query(Target.current(allow_none=True), workload)
            return f(cfg, listed, *args, **kwargs)

        register_template(task_name, "fschedule", scheduled)
        return scheduled

    return decorate if func is None else decorate(func)


def get_workload(outs: Sequence[Tensor], task_name: str | None = None) -> tuple[Any, ...] | None:
    """The workload of the template that computes some tensors; None if there is none."""
    waiting, seen = [t.op for t in outs], set()
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        found = op.attrs.get(_ATTR)
        if found is not None and (task_name is None or found[0] == task_name):
            return tuple(found)
        waiting += [t.op for t in op.input_tensors]
    return None
