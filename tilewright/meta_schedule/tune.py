"""`tune_tasks`: the engine's search (`tune.search`) over tasks with spaces of their own.

tasks ──▶ schedules of users' functions and rules: measured, recorded
      ──▶ tilewright's rules: tune.search.allocate ──▶ records in the database; a faster schedule of the user wins
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

from ..absent import attributes
from ..tune.measure.measurer import MeasureInput, MeasureOptions, Measurer, MeasureResult, Measures
from ..tune.records.database import Record
from ..tune.search.allocate import tune_tasks as tune_together
from ..tune.search.search import SearchOptions, apply_record
from .arg_info import ArgInfo
from .builder import Builder, BuilderResult, LocalBuilder
from .cost_model import CostModel
from .database import Database
from .decided import decided
from .measure_callback import MeasureCallback
from .profiler import Profiler
from .runner import LocalRunner, Others, Runner, RunnerResult
from .search_strategy import MeasureCandidate
from .task_scheduler import TaskScheduler
from .tune_context import TuneContext

_BATCH = 16  # the most candidates between two trainings of the model
_UNBOUNDED = 1 << 30
_CLEARLY = 0.99  # a schedule of the user wins if its time is below this fraction of the other's


def tune_tasks(
    *,
    tasks: Sequence[TuneContext],
    task_weights: Sequence[float],
    work_dir: str,
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    builder: Any = "local",
    runner: Any = "local",
    database: Any = "json",
    cost_model: Any = "xgb",
    measure_callbacks: Any = "default",
    task_scheduler: Any = "gradient",
    module_equality: str = "structural",
    post_optimization: bool = False,
    seed: int | None = None,
) -> Database:
    """Tune tasks together, with at most `max_trials_global` measurements. Returns the database of the records.

    With `database="json"` it is in the folder `work_dir`, and its existing records count as trials.
    `post_optimization` changes nothing: the best candidates are measured again in any case.
    """
    if not tasks:
        raise ValueError("tune_tasks: there are no tasks to tune")
    kept = Database.create(database, work_dir=work_dir) if database == "json" else Database.create(database)
    if module_equality != "structural":
        Database(module_equality)  # which refuses it
    scheduler = TaskScheduler.create(task_scheduler)
    told = _Told(scheduler, tasks, kept, MeasureCallback.create(measure_callbacks))
    options = SearchOptions(
        seed=0 if seed is None else seed,
        model=CostModel.create(cost_model).engine,
        batch=max(1, min(_BATCH, num_trials_per_iter)),
    )
    limit = _UNBOUNDED if max_trials_per_task is None else max_trials_per_task
    with _measurer(Builder.create(builder), Runner.create(runner), tasks[0]) as measurer:
        used = [
            _own_schedules(ctx, kept, measurer, min(limit, max_trials_global // len(tasks)), told)
            for ctx in tasks
        ]
        left = max_trials_global - sum(used)
        if left > 0:
            _search(
                tasks,
                list(task_weights),
                kept,
                measurer,
                options,
                scheduler,
                min(left, limit * len(tasks)),
                told,
            )
    for ctx in tasks:
        _crown(ctx, kept)
    return kept


@contextmanager
def _measurer(builder: Builder, runner: Runner, first: TuneContext) -> Iterator[Measures]:
    if isinstance(builder, LocalBuilder) and isinstance(runner, LocalRunner) and builder.own:
        options = runner.options(builder.options())
        if isinstance(first.num_threads, int) and options.builders is None:
            options = replace(options, builders=first.num_threads)
        with closing(Measurer(options)) as made:
            yield made
    else:
        yield Others(builder, runner)


def _own_schedules(ctx: TuneContext, kept: Database, measurer: Measures, most: int, told: _Told) -> int:
    """Measure the schedules that a user's function or rules make: those of different random choices, each once. They
    get half of the trials if tilewright's rules take part. Returns how many were measured."""
    most = max(1, most // 2) if ctx.space.searched else most
    found: dict[str, Any] = {}
    with Profiler.timeit("SpaceGenerator"):
        for number in range(4 * most):
            for sch in ctx.space.drawn(ctx.task.mod, number):
                steps = decided(sch.trace.as_json())
                found.setdefault(json.dumps(steps, sort_keys=True), steps)
            if len(found) >= most or not found:
                break
    inputs = [MeasureInput(ctx.task, "trace", steps) for steps in list(found.values())[:most]]
    if not inputs:
        return 0

    def each(i: int, inp: MeasureInput, result: MeasureResult) -> None:
        made = replace(result, trace=inp.what)
        kept.store.add(Record.of(inp, made, origin="by hand", extra={"face": "meta_schedule"}), ctx.task)

    with Profiler.timeit("Measure"):
        measurer.measure(inputs, None, each)
    told.tell()
    return len(inputs)


def _search(
    tasks: Sequence[TuneContext],
    weights: list[float],
    kept: Database,
    measurer: Measures,
    options: SearchOptions,
    scheduler: TaskScheduler,
    trials: int,
    told: _Told,
) -> None:
    """Let tilewright's rules propose, for the tasks whose spaces include them."""
    open_ones = [(ctx, w) for ctx, w in zip(tasks, weights, strict=True) if ctx.space.searched]
    if not open_ones:
        return
    chosen = open_ones[0][0].strategy.options(options)
    with Profiler.timeit("Search"):
        tune_together(
            [ctx.task for ctx, _ in open_ones],
            trials,
            kept.store,
            [w for _, w in open_ones],
            options=chosen,
            measure=measurer,
            callback=lambda shares, progress: told.tell(),
            choose=scheduler.choose,
        )
    told.tell()


def _crown(ctx: TuneContext, kept: Database) -> None:
    """Make a user's schedule the winner if it is clearly faster than the winner of the search."""
    records = kept.store.records(ctx.task)
    winner = next((r for r in reversed(records) if r.origin == "winner"), None)
    own = min((r for r in records if r.origin == "by hand" and r.ok), key=lambda r: r.time, default=None)
    if winner is not None and own is not None and own.time < _CLEARLY * winner.time:
        kept.store.add(replace(own, origin="winner", uid=""), ctx.task)


class _Told:
    """Tells users' callbacks of the records since the last time."""

    def __init__(
        self,
        scheduler: TaskScheduler,
        tasks: Sequence[TuneContext],
        kept: Database,
        callbacks: Sequence[MeasureCallback],
    ) -> None:
        self.scheduler, self.kept = scheduler, kept
        scheduler.tasks_, scheduler.database_ = list(tasks), kept
        scheduler.measure_callbacks_ = list(callbacks)
        own = "tilewright.meta_schedule.measure_callback"
        self.callbacks = [c for c in callbacks if type(c).__module__ != own]
        self._seen = len(kept.store)

    def tell(self) -> None:
        if not self.callbacks:
            return
        records = self.kept.store.records()
        fresh, self._seen = [r for r in records[self._seen :] if r.origin != "winner"], len(records)
        for number, ctx in enumerate(self.scheduler.tasks_):
            mine = [r for r in fresh if r.workload == ctx.task.workload]
            if not mine:
                continue
            args = ArgInfo.from_prim_func(ctx.task.func)
            candidates = [MeasureCandidate(apply_record(ctx.task, r), args) for r in mine]
            built = [BuilderResult("" if r.status != "build error" else None, r.error or None) for r in mine]
            ran = [RunnerResult(list(r.seconds) if r.ok else None, r.error or None) for r in mine]
            for callback in self.callbacks:
                callback.apply(self.scheduler, number, candidates, built, ran)


def seconds_of(database: Database, ctx: TuneContext) -> float:
    """The time of the best record of a task; infinite if there is none."""
    found = database.best(ctx.task)
    return math.inf if found is None else found.time


__all__ = ["MeasureOptions", "seconds_of", "tune_tasks"]

__getattr__ = attributes(__name__)
