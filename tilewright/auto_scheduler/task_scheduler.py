"""Tuning of several tasks: each round of trials goes to the task where the largest gain is expected."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.errors import ScheduleError
from ..tune.measure.machines import fingerprint, machine_of
from ..tune.search.allocate import Allocation, tune_tasks
from ..tune.search.search import Progress
from .cost_model import CostModel, RandomModel, XGBModel
from .measure import opened
from .measure_record import Journal
from .search_policy import (
    PreloadCustomSketchRule,
    SketchPolicy,
    cannot_tune,
    reproducers_of,
    search_options,
)
from .search_task import SearchTask, TuningOptions


class TaskSchedulerCallback:
    """Callbacks before and after each round."""

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Called before a round of a task."""

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        """Called after a round of a task."""


class PrintTableInfo(TaskSchedulerCallback):
    """Prints the progress of all tasks before each round.

    |  ID  |     Task Description     | Latency (ms) | Speed (GFLOPS) | Trials |
    """

    def pre_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        if task_scheduler.verbose:
            print(table_of(task_scheduler, f"Next ID: {task_id}"), flush=True)


def table_of(ts: TaskScheduler, last: str) -> str:
    """The progress of all tasks as a table, with `last` at its end."""
    named = max([16, *(len(t.desc) for t in ts.tasks)])
    head = f"|  ID  | {'Task Description':^{named}} | Latency (ms) | Speed (GFLOPS) | Trials |"
    line = "-" * len(head)
    rows = [line, head, line]
    for i, task in enumerate(ts.tasks):
        cost, known = ts.best_costs[i], math.isfinite(ts.best_costs[i])
        latency = f"{1e3 * cost:.4f}" if known else "-"
        speed = f"{ts.flop_cts[i] / cost / 1e9:.2f}" if known else "-"
        rows.append(
            f"| {i:>4} | {task.desc:^{named}} | {latency:>12} | {speed:>14} | {ts.task_trials[i]:>6} |"
        )
    total = f"{1e3 * ts.cur_score:.4f} ms" if math.isfinite(ts.cur_score) else "-"
    spent = time.monotonic() - ts.tic
    rows += [line, f"Estimated total latency: {total}\tTrials: {ts.ct}\tUsed time: {spent:.0f} s\t{last}"]
    return "\n".join(rows)


class LogEstimatedLatency(TaskSchedulerCallback):
    """Writes the estimated time of the whole program to a file, after each round: seconds, trials, milliseconds."""

    def __init__(self, log_file: str | os.PathLike[str]) -> None:
        self.log_file = os.fspath(log_file)
        if os.path.exists(self.log_file):
            os.remove(self.log_file)

    def post_tune(self, task_scheduler: TaskScheduler, task_id: int) -> None:
        ts = task_scheduler
        score = f"{1e3 * ts.cur_score:.4f}" if math.isfinite(ts.cur_score) else "N/A"
        with open(self.log_file, "a", encoding="utf-8") as file:
            file.write(
                f"ElapsedTime(s)\t{time.monotonic() - ts.tic:.0f}\tEstimatedLatency(ms)\t{score}\tTrials\t{ts.ct}\n"
            )


class TaskScheduler:
    """Tunes tasks together, to minimize the sum of their times weighted by `task_weights`, or `objective_func(times)`.

    With the strategy "gradient", a round goes to the task where the largest gain is expected; with "round-robin", to
    each task in turn. The search starts from the cost model `load_model_file` and the records `load_log_file`, if they
    are given. `alpha`, `beta`, `gamma` and `backward_window_size` change nothing: the cost model predicts the gain.
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        task_weights: Sequence[float] | None = None,
        objective_func: Callable[[Sequence[float]], float] | None = None,
        strategy: str = "gradient",
        load_model_file: str | None = None,
        load_log_file: Any = None,
        alpha: float = 0.2,
        beta: float = 2,
        gamma: float = 0.5,
        backward_window_size: int = 3,
        callbacks: Sequence[TaskSchedulerCallback] | None = None,
    ) -> None:
        self.tasks = list(tasks)
        if objective_func is not None and task_weights is not None:
            raise ValueError("TaskScheduler takes task_weights or an objective_func, not both")
        if task_weights is not None and len(task_weights) != len(self.tasks):
            raise ValueError(f"there are {len(task_weights)} weights for {len(self.tasks)} tasks")
        if strategy not in ("gradient", "round-robin"):
            raise ValueError(f'strategy is "gradient" or "round-robin", not {strategy!r}')
        self.task_weights = (
            [float(w) for w in task_weights] if task_weights is not None else [1.0] * len(tasks)
        )
        self.objective_func = objective_func or self._sum
        self._own_objective = objective_func is not None
        self.strategy, self.load_model_file, self.load_log_file = strategy, load_model_file, load_log_file
        self.callbacks = (
            list(callbacks)
            if callbacks is not None
            else [PrintTableInfo(), LogEstimatedLatency("total_latency.tsv")]
        )
        self.best_costs = [math.inf] * len(self.tasks)
        self.flop_cts = [task.compute_dag.flop_ct for task in self.tasks]
        self.task_cts = [0] * len(self.tasks)  # rounds
        self.task_trials = [0] * len(self.tasks)
        self.ct = 0
        self.tic = time.monotonic()
        self.cur_score = math.inf
        self.dead_tasks: set[int] = set()
        self._turn = -1  # the last task of round-robin
        self._improved = (math.inf, 0)  # the best score, and the number of trials when it was found
        self.verbose = 1

    def _sum(self, costs: Sequence[float]) -> float:
        return sum(c * w for c, w in zip(costs, self.task_weights, strict=True))

    # -- tuning ----------------------------------------------------------------------------------
    def tune(
        self,
        tune_option: TuningOptions,
        search_policy: Any = "default",
        search_policy_params: dict[str, Any] | None = None,
        adaptive_training: bool = False,
        per_task_early_stopping: int | None = None,
    ) -> None:
        """Tune all tasks, with `num_measure_trials` measurements together.

        `search_policy` is "default", "sketch.xgb" or "sketch.random", or a list of one SketchPolicy for each task. A
        task ends after `per_task_early_stopping` trials without an improvement. If nothing could be measured, TuneError
        is raised, with the causes.
        """
        model, params, seed = self._policy(search_policy, search_policy_params)
        options = search_options(tune_option, seed, params, model, per_task_early_stopping)
        self.tic, self.ct, self.verbose = time.monotonic(), 0, tune_option.verbose
        self._turn, self._improved = -1, (math.inf, 0)
        self.task_cts, self.task_trials = [0] * len(self.tasks), [0] * len(self.tasks)
        with Journal(self.tasks, tune_option.measure_callbacks) as journal:
            if self.load_log_file is not None:
                journal.preload(self.load_log_file)
            with opened(tune_option.builder, tune_option.runner, reproducers_of(tune_option)) as measures:
                known = [
                    journal.measured(task.task, fingerprint(machine_of(measures, task.target)))
                    for task in self.tasks
                ]
                before = sum(known)
                if 0 in known:  # the first task without measurements begins
                    self._call("pre_tune", known.index(0))
                try:
                    shares = tune_tasks(
                        [task.task for task in self.tasks],
                        tune_option.num_measure_trials + before,
                        journal,
                        self.task_weights,
                        options=options,
                        measure=measures,
                        callback=functools.partial(self._after_round, journal, before),
                        choose=functools.partial(self._choose, tune_option.early_stopping),
                    )
                except ScheduleError as error:
                    raise cannot_tune("these tasks", self.tasks[0].target, error) from None
                finally:
                    journal.notify(self)
        for i, share in enumerate(shares):
            if share.error:
                self.dead_tasks.add(i)
        self._note(shares)
        if self.verbose and any(isinstance(c, PrintTableInfo) for c in self.callbacks):
            print(table_of(self, "Done"), flush=True)

    def _call(self, name: str, number: int) -> None:
        for callback in self.callbacks if self.tasks else ():
            getattr(callback, name)(self, number)

    def _policy(self, given: Any, params: dict[str, Any] | None) -> tuple[Any, dict[str, Any], int]:
        """The model, the parameters and the seed of a policy, given by its name, or of a list of policies."""
        params = dict(params or {})
        seed = int(params.pop("seed", 0) or 0)
        model: CostModel = XGBModel(model_file=self.load_model_file)
        if isinstance(given, (list, tuple)):
            if not given or not all(isinstance(p, SketchPolicy) for p in given):
                raise ValueError("search_policy= takes a name, or one SketchPolicy for each task")
            if any(isinstance(c, PreloadCustomSketchRule) for p in given for c in p.init_search_callbacks):
                raise ValueError("custom sketch rules are for SearchTask.tune; tune these tasks one by one")
            model, params, seed = given[0].program_cost_model, {**given[0].params, **params}, given[0].seed
        elif given not in ("default", "sketch.xgb", "sketch.random"):
            raise ValueError(f'search_policy is "default", "sketch.xgb" or "sketch.random", not {given!r}')
        elif given == "sketch.random":
            model = RandomModel()
        known = set(SketchPolicy.DEFAULT_PARAMS)
        if unknown := sorted(set(params) - known):
            raise ValueError(f"search_policy_params: there is no {', '.join(unknown)}")
        target = self.tasks[0].target if self.tasks else None
        engine = model.engine(target, seed)
        if hasattr(engine, "watch"):
            raise ValueError("a PythonBasedModel is for SearchTask.tune; tune these tasks one by one")
        return engine, params, seed

    def _choose(self, early_stopping: int | None, shares: Sequence[Allocation]) -> Allocation | None:
        """The task of the next round; None to end the search."""
        if self.cur_score < self._improved[0]:
            self._improved = (self.cur_score, self.ct)
        if early_stopping is not None and self.ct - self._improved[1] >= early_stopping:
            return None
        numbers = {id(t.task): i for i, t in enumerate(self.tasks)}
        order = sorted((numbers[id(share.tuner.task)], i) for i, share in enumerate(shares))
        if self.strategy == "gradient":
            chosen = max(order, key=lambda pair: self.promise(shares[pair[1]], pair[0]))
        else:
            chosen = next((pair for pair in order if pair[0] > self._turn), order[0])
            self._turn = chosen[0]
        self._call("pre_tune", chosen[0])
        return shares[chosen[1]]

    def _after_round(
        self, journal: Journal, before: int, shares: Sequence[Allocation], progress: Progress
    ) -> None:
        """Update the progress, and call callbacks; `before` is the number of trials of earlier searches."""
        number = next(i for i, s in enumerate(shares) if s.tuner.task is progress.task)
        self.task_trials = [len(s.tuner.trials) for s in shares]
        self.task_cts[number] += 1
        self.ct = sum(self.task_trials) - before
        self._note(shares)
        journal.notify(self)
        self._call("post_tune", number)
        waiting = next((i for i, s in enumerate(shares) if not s.tuner.trials and not s.error), None)
        if waiting is not None:
            self._call("pre_tune", waiting)

    def _note(self, shares: Sequence[Allocation]) -> None:
        """Update the best times of all tasks and the score."""
        for i, share in enumerate(shares):
            best = share.tuner.best
            self.best_costs[i] = math.inf if best is None else best[1]
        self.cur_score = self.objective_func(self.best_costs)

    def promise(self, share: Allocation, number: int) -> float:
        """The expected decrease of the score by another round of a task."""
        if not self._own_objective:
            return share.promise
        better = list(self.best_costs)
        better[number] *= 1 - share.tuner.expected_gain
        saved = self.objective_func(self.best_costs) - self.objective_func(better)
        return saved if math.isfinite(saved) else 0.0  # another task could not be measured
