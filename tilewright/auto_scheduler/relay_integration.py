"""The tasks of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.expr import IterVar
from ..ir.functor import pre_order
from ..ir.stmt import Block
from ..ir.transform import PassContext
from ..relay.backend.tasks import extract
from ..target import Target
from ..tune.workload import Task
from .search_task import HardwareParams, SearchTask


def extract_tasks(
    mod: Any,
    params: Mapping[str, Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | None = None,
    opt_level: int = 3,
    other_targets: Any = None,
) -> tuple[list[SearchTask], list[int]]:
    """The tasks of a model, without repetitions, and the number of calls of each.

    The tasks are the functions that `relay.build` schedules for the target. Tasks without a reduction are simple: the
    zero-trial schedule suits them, so they are left out unless `include_simple_tasks`. The programs are written to the
    file `dump_workload_to_dag_log` if it is given. `other_targets` changes nothing.
    """
    chosen = Target.current(allow_none=True) if target is None else target
    found = extract(
        mod, params, Target(chosen if chosen is not None else "llvm", host=target_host), opt_level
    )
    tasks, weights = [], []
    for task, weight in found:
        if include_simple_tasks or reduces(task):
            tasks.append(SearchTask.of(task, task.name, hardware_params))
            weights.append(weight)
    if dump_workload_to_dag_log is not None:
        with open(dump_workload_to_dag_log, "w", encoding="utf-8") as file:
            for made in tasks:
                file.write(f"# {made.desc}\n# {made.workload_key}\n{made.compute_dag}\n\n")
    return tasks, weights


def reduces(task: Task) -> bool:
    """Whether a program has a reduction."""
    return any(
        iv.iter_type == IterVar.CommReduce
        for m in pre_order(task.func.body)
        if isinstance(m, Block)
        for iv in m.iter_vars
    )


def is_auto_scheduler_enabled() -> bool:
    """Whether the pass context enables the automatic scheduler, which `relay.build` uses in any case."""
    return bool(PassContext.current().config.get("relay.backend.use_auto_scheduler", False))
