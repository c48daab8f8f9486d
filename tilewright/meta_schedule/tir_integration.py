"""Tuning of TIR programs and tensor expressions."""

from __future__ import annotations

from typing import Any

from ..ir.function import PrimFunc
from ..ir.module import IRModule
from ..te.create_prim_func import create_prim_func
from ..tir.schedule import Schedule
from .database import Database
from .tune import tune_tasks
from .tune_context import TuneContext


def tune_tir(
    mod: IRModule | PrimFunc,
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
    num_tuning_cores: int | str = "physical",
    seed: int | None = None,
    module_equality: str = "structural",
    special_space: Any = None,
    post_optimization: bool = False,
) -> Database:
    """Tune each function of a module. Returns the database of the records, for `compile_tir`.

    `space` is tilewright's plan, a function of a tir.Schedule, or a SpaceGenerator; `special_space` has those of
    functions by name.
    """
    if isinstance(mod, PrimFunc):
        mod = IRModule({"main": mod})
    special = dict(special_space or {})
    functions = {gv.name_hint: f for gv, f in mod.functions.items() if isinstance(f, PrimFunc)}
    if unknown := set(special) - set(functions):
        raise ValueError(
            f"special_space: there is no function {', '.join(sorted(unknown))}; there are {', '.join(functions)}"
        )
    tasks = [
        TuneContext(
            IRModule({name: func}),
            target=target,
            space_generator=special.get(name, space),
            search_strategy=strategy,
            task_name=name,
            num_threads=num_tuning_cores,
        )
        for name, func in functions.items()
    ]
    return tune_tasks(
        tasks=tasks,
        task_weights=[1.0] * len(tasks),
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
        module_equality=module_equality,
        post_optimization=post_optimization,
        seed=seed,
    )


def tune_te(tensors: Any, target: Any, work_dir: str, max_trials_global: int, **options: Any) -> Database:
    """Tune a tensor expression, given by its inputs and results; the options are those of `tune_tir`."""
    return tune_tir(create_prim_func(list(tensors)), target, work_dir, max_trials_global, **options)


def compile_tir(database: Database, mod: IRModule | PrimFunc, target: Any) -> Schedule | None:
    """The best schedule of a program in a database, to be built with `tvm.build(sch.mod, target)`; None without one."""
    if isinstance(mod, PrimFunc):
        mod = IRModule({"main": mod})
    return database.query_schedule(mod, target, "main")
