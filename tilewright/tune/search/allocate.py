"""Trials for many tasks: each batch goes to the task where it is expected to save the most.

    what a batch saves = weight of the task · its time now · the fraction of it that one more round is expected to save

A weight is how often a program runs the task, so that the sum of weight · time is the time of the program.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ...ir.errors import TVMError
from ...tir.schedule import Schedule
from ..errors import RecordError, TuneError
from ..measure.measurer import MeasureOptions, Measurer, Measures
from ..records.database import Database
from ..workload import Task
from .cost_models import cost_model
from .search import Deadline, Progress, SearchOptions, Tuner


@dataclass
class Allocation:
    """The share of one task: its tuner, its weight, and its schedule at the end.

    `error` says why it has none; the other tasks go on.
    """

    tuner: Tuner
    weight: float
    schedule: Schedule | None = None
    error: str = ""

    @property
    def promise(self) -> float:
        """The seconds of the whole program that another batch is expected to save."""
        best = self.tuner.best
        return 0.0 if best is None else self.weight * best[1] * self.tuner.expected_gain

    @property
    def open(self) -> bool:
        return not self.error and not self.tuner.should_stop


Choose = Callable[[Sequence[Allocation]], Allocation | None]  # one of the open tasks; None ends the search


def largest_promise(shares: Sequence[Allocation]) -> Allocation:
    """The task where a batch is expected to save the most."""
    return max(shares, key=lambda s: s.promise)


def tune_tasks(
    tasks: Sequence[Task],
    trials: int,
    database: str | os.PathLike[str] | Database | None = None,
    weights: Sequence[float] | None = None,
    *,
    options: SearchOptions | None = None,
    measure: MeasureOptions | Measures | None = None,
    callback: Callable[[Sequence[Allocation], Progress], None] | None = None,
    choose: Choose = largest_promise,
) -> list[Allocation]:
    """Tune tasks together with `trials` measurements in all; one cost model learns from all of them.

    Each task is measured once before any gets more; then `choose` picks the task of each batch. Trials that are
    already in the database count.
    """
    if measure is None or isinstance(measure, MeasureOptions):
        with Measurer(measure) as measurer:
            return tune_tasks(
                tasks,
                trials,
                database,
                weights,
                options=options,
                measure=measurer,
                callback=callback,
                choose=choose,
            )
    chosen = options or SearchOptions()
    shared = replace(chosen, model=cost_model(chosen.model, chosen.seed, tasks[0].target if tasks else None))
    kept = database if isinstance(database, Database) else Database(database or ":memory:")
    try:
        shares = [
            Allocation(Tuner(task, measure, kept, shared), weight)
            for task, weight in zip(tasks, weights or [1.0] * len(tasks), strict=True)
        ]
        _spend(shares, trials, Deadline(chosen.limit), callback, choose)
        for share in shares:
            _finish(share)
    finally:
        if kept is not database:
            kept.close()
    if shares and all(s.error for s in shares):
        raise TuneError("no task could be tuned\n" + "\n".join(s.error for s in shares))
    return shares


def _spend(
    shares: Sequence[Allocation],
    trials: int,
    deadline: Deadline,
    callback: Callable[[Sequence[Allocation], Progress], None] | None,
    choose: Choose,
) -> None:
    before = {id(s): len(s.tuner.trials) for s in shares}
    first = sum(before.values())
    while (left := trials - (done := sum(len(s.tuner.trials) for s in shares))) > 0:
        room = deadline.room(done - first, sum(1 for s in shares if s.tuner.trials))
        if not room:
            return
        waiting = [s for s in shares if not s.error and not s.tuner.trials]
        running = [s for s in shares if s.open]
        if not waiting and not running:
            return
        share = waiting[0] if waiting else choose(running)
        if share is None:
            return
        # too few trials for a batch each are shared equally
        left = min(left, room)
        fair = max(1, left // max(1, len(waiting))) if waiting else left
        try:
            measured = share.tuner.step(min(left, fair))
        except RecordError:  # the file is at fault: measurements of the other tasks would be lost
            raise
        except TVMError as error:
            share.error = str(error)
            continue
        if measured and callback is not None:
            callback(shares, share.tuner.progress(trials, deadline.began, before[id(share)]))


def _finish(share: Allocation) -> None:
    if share.error:
        return
    try:
        share.schedule = share.tuner.finish() if share.tuner.trials else share.tuner.sketches.apply()
    except RecordError:
        raise
    except TVMError as error:
        share.error = str(error)
