"""The tuning tasks of a model: the programs that `relay.build`, or the virtual machine, would schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.deep import deep_programs
from ...ir.transform import PassContext
from ...tune.auto import unasked
from ...tune.records.database import Record
from ...tune.records.history import History
from ...tune.workload import Task
from ..binding import bind_params_in_module
from ..build_module import as_graph_module, as_target, to_compile
from . import vm as machine


class _Census(History):
    """A history that only counts the requested tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[Task, int]] = {}

    def find(self, task: Task) -> Record | None:
        first, times = self.found.get(task.workload, (task, 0))
        self.found[task.workload] = (first, times + 1)
        return None


def extract(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    target: Any = None,
    opt_level: int = 3,
    vm: bool = False,
) -> list[tuple[Task, int]]:
    """The tasks of a model, each once, with how often the model calls it.

    The tasks are the requests of a build to the histories: `relay.build` at the same level finds their records. `vm` is
    for programs of `relay.vm.compile`: branches, loops, dynamic shapes.
    """
    graph, chosen = as_graph_module(mod), as_target(target)
    census = _Census()
    with deep_programs(), chosen, _level(opt_level), unasked(), census:
        if not vm:
            to_compile(graph, chosen, params)
        else:
            machine.to_compile(bind_params_in_module(graph, params or {}), chosen)
    return list(census.found.values())


def _level(opt_level: int) -> PassContext:
    """The current context, at another level."""
    ctx = PassContext.current()
    return PassContext(
        opt_level, ctx.required_pass, ctx.disabled_pass, instruments=ctx.instruments, config=ctx.config
    )
