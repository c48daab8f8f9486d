"""Tuning of models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.transform import PassContext
from ..relay import vm
from ..relay.backend.tasks import extract
from ..relay.build_module import as_target, build
from .database import Database
from .extracted_task import ExtractedTask
from .tune import tune_tasks
from .tune_context import TuneContext


def extract_tasks(
    mod: Any,
    target: Any,
    params: Mapping[str, Any] | None = None,
    *,
    module_equality: str = "structural",
    disabled_pass: Sequence[str] | None = None,
    instruments: Sequence[Any] | None = None,
    pass_config: Mapping[str, Any] | None = None,
    opt_level: int = 3,
) -> list[ExtractedTask]:
    """The tasks of a model, without repetitions: the functions that `relay.build` schedules for the target."""
    if module_equality != "structural":
        Database(module_equality)  # which refuses it
    with _context(opt_level, pass_config, disabled_pass, instruments):
        found = extract(mod, params, as_target(target), opt_level)
    return [
        ExtractedTask(task.name, task.mod, task.target, [task.mod], weight, task.constants)
        for task, weight in found
    ]


def _context(
    opt_level: int, config: Mapping[str, Any] | None, off: Sequence[str] | None = None, watching: Any = None
) -> PassContext:
    given = {"relay.backend.use_meta_schedule": True, **(config or {})}
    return PassContext(
        opt_level, config=given, disabled_pass=list(off or ()), instruments=list(watching or ())
    )


def extracted_tasks_to_tune_contexts(
    extracted_tasks: Sequence[ExtractedTask],
    work_dir: str,
    space: Any = "post-order-apply",
    strategy: Any = "evolutionary",
    num_tuning_cores: int | str = "physical",
    seed: int | None = None,
) -> tuple[list[TuneContext], list[float]]:
    """The tasks of a model for `tune_tasks`, and their weights."""
    contexts = [
        TuneContext(
            task.dispatched[0],
            target=task.target,
            space_generator=space,
            search_strategy=strategy,
            task_name=task.task_name,
            num_threads=num_tuning_cores,
            constants=task.constants,
        )
        for task in extracted_tasks
    ]
    return contexts, [float(task.weight) for task in extracted_tasks]


def tune_relay(
    mod: Any,
    params: Mapping[str, Any],
    target: Any,
    work_dir: str,
    max_trials_global: int,
    *,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    builder: Any = "local",
    runner: Any = "local",
    database: Any = "json",
    cost_model: Any = "xgb",
    measure_callbacks: Any = "default",
    task_scheduler: Any = "gradient",
    space: Any = "post-order-apply",
    strategy: Any = "evolutionary",
    seed: int | None = None,
    module_equality: str = "structural",
    num_tuning_cores: int | str = "physical",
    disabled_pass: Sequence[str] | None = None,
    instruments: Sequence[Any] | None = None,
) -> Database:
    """Tune the kernels of a model. Returns the database of the records, for `compile_relay`."""
    found = extract_tasks(
        mod,
        target,
        params,
        module_equality=module_equality,
        disabled_pass=disabled_pass,
        instruments=instruments,
    )
    tasks, weights = extracted_tasks_to_tune_contexts(
        found, work_dir, space, strategy, num_tuning_cores, seed
    )
    return tune_tasks(
        tasks=tasks,
        task_weights=weights,
        work_dir=work_dir,
        max_trials_global=max_trials_global,
        max_trials_per_task=max_trials_per_task,
        num_trials_per_iter=num_trials_per_iter,
        builder=builder,
        runner=runner,
        database=database,
        cost_model=cost_model,
        measure_callbacks=measure_callbacks,
        task_scheduler=task_scheduler,
        seed=seed,
    )


def compile_relay(
    database: Database,
    mod: Any,
    target: Any,
    params: Mapping[str, Any] | None,
    pass_config: Mapping[str, Any] | None = None,
    executor: Any = None,
    disabled_pass: Sequence[str] | None = None,
    runtime: Any = None,
    instruments: Sequence[Any] | None = None,
    *,
    backend: str = "graph",
) -> Any:
    """Compile a model; each kernel with a record in the database is built from it. `backend` is "graph" or "vm"."""
    if backend not in ("graph", "vm"):
        raise ValueError(f'backend is "graph" or "vm", not {backend!r}')
    with database, _context(3, pass_config, disabled_pass, instruments):
        if backend == "vm":
            return vm.compile(mod, target, params=params)
        return build(mod, target, executor=executor, runtime=runtime, params=params)


def is_meta_schedule_enabled() -> bool:
    """Whether the pass context enables MetaSchedule; `relay.build` asks for records in any case."""
    return bool(PassContext.current().config.get("relay.backend.use_meta_schedule", False))
