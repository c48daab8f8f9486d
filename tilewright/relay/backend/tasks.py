"""The tuning tasks of a model: the programs that `relay.build`, or the virtual machine, would schedule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
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
from .kernel import Job


class _Census(History):
    """A history that only counts the requested tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, tuple[Task, int]] = {}

    def find(self, task: Task) -> Record | None:
        first, times = self.found.get(task.workload, (task, 0))
        self.found[task.workload] = (first, times + 1)
        return None

    def named(self, calls: Sequence[tuple[Job, Sequence[str], str]]) -> list[tuple[Task, int]]:
        """The tasks with the names of their calls in the model."""
        nodes: dict[str, list[str]] = {}
        names: dict[str, list[str]] = {}
        for job, found, step in calls:
            task = self.tasks.get(job.key)
            if task is not None:
                nodes.setdefault(task.workload, []).extend(found[:1])
                names.setdefault(task.workload, []).extend(n for n in (*found, step, job.symbol) if n)
        return [
            (
                replace(task, nodes=_once(nodes.get(key, ())), names=_once(names.get(key, ()))),
                times,
            )
            for key, (task, times) in self.found.items()
        ]


def _once(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


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
    calls: list[tuple[Job, Sequence[str], str]]  # with its nodes, and the name of its step
    with deep_programs(), chosen, _level(opt_level), unasked(), census:
        if not vm:
            program, jobs = to_compile(graph, chosen, params)
            calls = [(job, program.steps[i].nodes, program.steps[i].name) for i, job in jobs.items()]
        else:
            assembly = machine.to_compile(bind_params_in_module(graph, params or {}), chosen)
            calls = [(assembly.jobs[id(p)], p.nodes, "") for p in assembly.emitter.pending]
    return census.named(calls)


def _level(opt_level: int) -> PassContext:
    """The current context, at another level."""
    ctx = PassContext.current()
    return PassContext(
        opt_level, ctx.required_pass, ctx.disabled_pass, instruments=ctx.instruments, config=ctx.config
    )
