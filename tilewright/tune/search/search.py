"""The search: a model proposes candidates, batches of them are measured, and the best meets the zero-trial schedule.

    seed, measurements ──▶ propose: from all candidates, or by evolution; the model's favourites, and some at random
                                   │
                                   ▼ measure ──▶ database ──▶ model ──▶ … until little gain is expected
    finish: the best against the zero-trial schedule, in turns; the winner is recorded

The same seed, database and measurements give the same sequence. Every measurement is written to the database at once,
so that a search that was killed continues where it was.
"""

from __future__ import annotations

import math
import os
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...ir.expr import IterVar
from ...ir.functor import pre_order
from ...ir.stmt import Block
from ...tir.schedule import Schedule
from ...tir.schedule.from_files import UntrustedStep
from ..errors import RecordError, TuneError, causes_table
from ..measure.building import schedule_of
from ..measure.machines import fingerprint, machine_of
from ..measure.measurer import (
    Duel,
    MeasureInput,
    MeasureOptions,
    Measurer,
    MeasureResult,
    Measures,
    Status,
    is_exact,
)
from ..program.facts import number
from ..records.database import Database, Record
from ..records.history import steps_of
from ..space import Sketches
from ..workload import Task, task_of
from .cost_models import CostModel, cost_model
from .evolution import evolve, unique_rows

Array = Any
_EFFORT = 0.02  # the fraction of the time to run that doubling the effort to build is worth
_AHEAD = 4  # the candidates to choose from for a batch, as a multiple of its size
_RECENT = 48  # the last predictions, by which the error of a model is estimated
_LAST = 8  # the duels that finish a task take about as long as this many trials
_CLEARLY = 0.99  # of two candidates measured in turns, the new one wins if its time is below this fraction


@dataclass(frozen=True)
class SearchOptions:
    """The options of a search: `batch` candidates at a time, a fraction `epsilon` of them random. It ends when there
    was nothing better for `patience` trials and a round is expected to save less than the fraction `min_gain` of the
    time, and after about `limit` seconds in all."""

    seed: int = 0
    model: str | CostModel = "auto"
    batch: int = 16
    epsilon: float = 0.1
    min_gain: float = 0.01
    patience: int = 32
    limit: float = math.inf
    population: int = 1024
    generations: int = 4
    exhaustive: int = 60_000  # all candidates of spaces up to this size are scored
    duel_rounds: int = 12


@dataclass(frozen=True)
class Progress:
    """The progress of a search."""

    task: Task
    trials: int
    wanted: int
    best: float  # seconds
    zero: float  # of the zero-trial schedule
    flop: int
    statuses: Mapping[str, int]
    seconds: float  # since it began
    measured: int  # since it began
    expected_gain: float

    @property
    def rate(self) -> float:
        """Trials per second."""
        return self.measured / self.seconds if self.seconds > 0 else 0.0


class Deadline:
    """The time limit of a search, and how many more trials fit it at the rate so far."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.began = seconds, time.monotonic()

    def room(self, measured: int, tasks: int = 1) -> int:
        """How many more trials fit after `measured` trials, if `tasks` tasks are to be finished; 0: finish them now."""
        if math.isinf(self.seconds):
            return sys.maxsize
        if not measured:
            return _LAST  # to find the rate
        spent = time.monotonic() - self.began
        return max(0, math.floor((self.seconds - spent) * measured / spent) - _LAST * tasks)


@dataclass
class _Trial:
    """A measured candidate, with the time by which it is ranked."""

    rows: Array
    result: MeasureResult
    score: float


@dataclass
class _Errors:
    """The errors of predictions that were made before the model had seen the measurement."""

    recent: list[float] = field(default_factory=list)

    def add(self, predicted: Array, seconds: Array) -> None:
        good = np.isfinite(seconds)
        self.recent = (self.recent + list(np.log(seconds[good]) - predicted[good]))[-_RECENT:]

    @property
    def spread(self) -> float:
        return max(0.02, float(np.std(self.recent))) if len(self.recent) >= 4 else 0.3


class Tuner:
    """The search over the space of one task."""

    def __init__(
        self,
        task: Task,
        measurer: Measures,
        database: Database | None = None,
        options: SearchOptions | None = None,
    ) -> None:
        self.task, self.measurer, self.options = task, measurer, options or SearchOptions()
        self.database = database
        self.machine = machine_of(measurer, task.target)
        # Of two candidates, the new one wins if its time is below this fraction.
        self._clearly = 1.0 if is_exact(task.target) else _CLEARLY
        self._where = fingerprint(self.machine)
        self.sketches = Sketches(task)
        self.space = self.sketches.space
        self.model = cost_model(self.options.model, self.options.seed, task.target)
        self.trials: list[_Trial] = []
        self.statuses: Counter[str] = Counter()
        self._causes: Counter[tuple[str, str]] = Counter()
        self._measured: set[bytes] = set()
        self._incumbent: _Trial | None = None
        self._since = 0  # trials since the last better one
        self._errors = _Errors()
        self._gain = 1.0
        self._nothing_left = False
        self._load()

    # -- state -----------------------------------------------------------------------------------
    def _load(self) -> None:
        """Continue from the records of this task on the machine that measures."""
        if self.database is None:
            return
        for record in self.database.records(self.task, machine=self._where):
            rows = self.space.rows(record.decisions) if record.origin == "trial" else None
            if rows is not None and rows.tobytes() not in self._measured:
                self._take(rows, record.result, record.extra.get("against"))
        self._relearn()

    def _take(self, rows: Array, result: MeasureResult, against: float | None) -> _Trial:
        """Count a result and rank it: relative to the time of the incumbent, if it was measured in turns with that."""
        incumbent = self._incumbent
        trial = _Trial(rows, result, result.score(against) if result.ok else math.inf)
        self.trials.append(trial)
        self._measured.add(rows.tobytes())
        self.statuses[str(result.status)] += 1
        if not result.ok:
            self._causes[str(result.status), _first_line(result.error)] += 1
        self._since += 1
        limit = _CLEARLY if result.ratio is not None else 1.0
        if result.ok and (incumbent is None or trial.score < limit * incumbent.score):
            self._incumbent, self._since = trial, 0
        return trial

    def _learn(self, trials: list[_Trial]) -> None:
        if not trials or not self.space.stages:
            return
        features = self.space.features(np.stack([t.rows for t in trials]))
        self.model.update(features, np.array([t.score for t in trials]))

    def _relearn(self) -> None:
        """Learn from the records that were loaded. How well the last ones would have been predicted tells the expected
        gain."""
        if not self.trials or not self.space.stages:
            return
        known = max(0, len(self.trials) - _RECENT)
        self._learn(self.trials[:known])
        for start in range(known, len(self.trials), self.options.batch):
            part = self.trials[start : start + self.options.batch]
            predicted = self.model.predict(self.space.features(np.stack([t.rows for t in part])))
            self._errors.add(predicted, np.array([t.score for t in part]))
            self._learn(part)
        self.propose(1)

    @property
    def best(self) -> tuple[MeasureInput, float] | None:
        """The fastest correct candidate so far, and its time."""
        if self._incumbent is None:
            return None
        return self._input(self._incumbent.rows), self._incumbent.score

    @property
    def winner(self) -> Record | None:
        """The winner that a finished search has recorded, if nothing was measured after it."""
        if self.database is None:
            return None
        records = self.database.records(self.task, machine=self._where)
        return records[-1] if records and records[-1].origin == "winner" else None

    @property
    def causes(self) -> Mapping[tuple[str, str], int]:
        """Why candidates failed: the status and the first line of the error, with counts."""
        return self._causes

    @property
    def zero(self) -> float:
        """The time of the zero-trial schedule; infinite before it was measured."""
        key = self.space.default.tobytes()
        return next((t.score for t in self.trials if t.rows.tobytes() == key), math.inf)

    @property
    def exhausted(self) -> bool:
        """Whether every candidate was measured, or no others are found."""
        return self._nothing_left or len(self._measured) >= self.space.size

    @property
    def expected_gain(self) -> float:
        """The fraction of the time that one more round is expected to save."""
        return 0.0 if self.exhausted else self._gain

    @property
    def should_stop(self) -> bool:
        """Whether to end: no candidate is left, or little gain is expected and there was none for a while."""
        if self._incumbent is None:
            return self.exhausted or self._since >= 2 * self.options.patience
        little = self._since >= self.options.patience and self.expected_gain < self.options.min_gain
        return self.exhausted or little

    def progress(self, wanted: int, began: float, before: int) -> Progress:
        best = self._incumbent.score if self._incumbent is not None else math.inf
        return Progress(
            self.task,
            len(self.trials),
            wanted,
            best,
            self.zero,
            flop_of(self.task),
            dict(self.statuses),
            time.monotonic() - began,
            len(self.trials) - before,
            self.expected_gain,
        )

    # -- proposing -------------------------------------------------------------------------------
    def _input(self, rows: Array) -> MeasureInput:
        same = bool((rows == self.space.default).all())
        return MeasureInput.of(self.task, None if same else self.space.decisions(rows))

    def propose(self, count: int) -> Array:
        """The candidates to measure next: the zero-trial schedule first of all."""
        rng = np.random.default_rng([self.options.seed, len(self.trials)])
        first = self.space.beginnings
        if self.space.stages:
            first = first[np.array([row.tobytes() not in self._measured for row in first], bool)]
        rest = self._favourites(rng, count - len(first), exclude={row.tobytes() for row in first})
        return np.concatenate([first, rest])[:count]

    def _favourites(self, rng: Any, count: int, exclude: set[bytes]) -> Array:
        empty = self.space.beginnings[:0]
        if count <= 0 or not self.space.stages:
            return empty
        pool = self._pool(rng)
        gone = self._measured | exclude
        pool = pool[np.array([row.tobytes() not in gone for row in pool], bool)] if len(pool) else pool
        if not len(pool):
            return empty
        scores = self.model.predict(self.space.features(pool))
        self._estimate(scores)
        scores = scores + _EFFORT * self.space.effort(pool)
        by_chance = min(len(pool), round(self.options.epsilon * count)) if len(self.trials) else 0
        order = np.argsort(scores, kind="stable")
        ahead = order[: _AHEAD * count]
        chosen = list(ahead[self.space.varied(pool[ahead], count - by_chance)])
        if by_chance:
            # at random among candidates that are not hopeless by the analytical model
            rest = np.setdiff1d(np.arange(len(pool)), chosen)
            expected = self.space.seconds(pool[rest])
            likely = rest[np.argsort(expected, kind="stable")][: max(by_chance, len(rest) // 4)]
            chosen += list(rng.permutation(likely)[:by_chance])
        return pool[np.array(chosen[:count], np.int64)]

    def _pool(self, rng: Any) -> Array:
        """All candidates, or those that evolution finds."""
        if self.space.size <= self.options.exhaustive:
            return self.space.everything()
        ranked = sorted((t for t in self.trials if t.result.ok), key=lambda t: t.score)
        elite = [t.rows for t in ranked[: self.options.population // 4]]
        begin = np.stack([self.space.default, *elite])
        return evolve(
            self.space,
            self.model,
            rng,
            begin,
            self.options.population,
            self.options.generations,
            self._measured,
        )

    def _estimate(self, scores: Array) -> None:
        """Update the expected gain: the expected improvement by the best of the candidates that are left."""
        if self._incumbent is None or not len(scores):
            return
        spread, best = self._errors.spread, math.log(self._incumbent.score)
        gaps = (best - np.sort(scores)[: self.options.batch]) / spread
        normal = np.exp(-0.5 * gaps**2) / math.sqrt(2 * math.pi)
        below = np.array([0.5 * (1 + math.erf(g / math.sqrt(2))) for g in gaps])
        self._gain = float(np.max(spread * (gaps * below + normal)))

    # -- measuring -------------------------------------------------------------------------------
    def step(self, count: int | None = None) -> int:
        """Measure a batch. Returns how many were measured; 0 if no candidate is left."""
        wide = getattr(self.measurer, "at_once", None)
        batch = max(self.options.batch, wide(self.task) if wide is not None else 1)
        rows = unique_rows(self.propose(min(count or batch, batch)))
        if not len(rows):
            self._nothing_left = True
            return 0
        before = len(self.trials)
        if self._incumbent is None and len(rows) > 1:
            self._measure(rows[:1])  # the others are measured against it
            rows = rows[1:]
        self._measure(rows)
        self._learn(self.trials[before:])
        return len(self.trials) - before

    def _measure(self, rows: Array) -> None:
        """Measure candidates, record and rank the results."""
        known = bool(self.space.stages)
        if known:  # those that take longest to build begin first, so that none is waited for at the end
            rows = rows[np.argsort(-self.space.effort(rows), kind="stable")]
        predicted = self.model.predict(self.space.features(rows)) if known else np.zeros(len(rows))
        begin, fixed = len(self.trials), self._incumbent
        incumbent = None if fixed is None else self._input(fixed.rows)
        against = None if fixed is None else fixed.score
        done: list[tuple[int, MeasureResult]] = []

        def each(i: int, inp: MeasureInput, result: MeasureResult) -> None:
            done.append((i, result))
            if self.database is not None:
                record = Record.of(inp, result, self.options.seed, extra={"against": against})
                self.database.add(record, self.task, self.machine)

        self.measurer.measure([self._input(r) for r in rows], incumbent, each)
        for i, result in done:
            self._take(rows[i], result, against)
        scores = np.array([t.score for t in self.trials[begin:]])
        self._errors.add(predicted[[i for i, _ in done]], scores)

    # -- the end ---------------------------------------------------------------------------------
    def finish(self) -> Schedule:
        """Measure the best against the zero-trial schedule, record the winner, and return its schedule.

        If that was already done and nothing was measured since, the recorded winner is returned.
        """
        if (done := self.winner) is not None:
            return apply_record(self.task, done)
        if self._incumbent is None:
            raise TuneError(
                f"tuning {self.task.name}: none of {len(self.trials)} candidates could be measured\n"
                f"{causes_table(self._causes)}"
            )
        zero = MeasureInput.of(self.task)
        first = next((t.result for t in self.trials if self._input(t.rows).what is None), None)
        if first is not None and first.status is Status.WRONG:
            warnings.warn(
                f"the zero-trial schedule of {self.task.name} computes something else, which is a bug in tilewright: "
                f"{first.error} {first.reproducer}".rstrip(),
                RuntimeWarning,
                stacklevel=3,
            )
        ranked = sorted((t for t in self.trials if t.result.ok), key=lambda t: t.score)
        for trial in self._playoff(ranked):
            best = self._input(trial.rows)
            if best.what is None:
                break
            if first is None or not first.ok:  # there is no zero-trial schedule to measure against
                return self._win(best, trial.result)
            duel = self._duel((best, trial.result), (zero, first), self.options.duel_rounds)
            if duel.first.ok and duel.second.ok:
                if duel.ratio < self._clearly:
                    return self._win(best, replace(duel.first, ratio=duel.ratio, trace=trial.result.trace))
                first = replace(duel.second, ratio=1 / duel.ratio, trace=first.trace)
                break
            alone = self.measurer.measure([best, zero])  # which of the two failed?
            if alone[0].ok and not alone[1].ok:
                return self._win(best, alone[0])
        return self._win(zero, first or MeasureResult(Status.OK))

    def _playoff(self, ranked: list[_Trial]) -> list[_Trial]:
        """The fastest few with the best first; that is found by measuring those that are about as fast in turns."""
        near = [t for t in ranked[:3] if t.score < 1.03 * ranked[0].score]
        best, others = near[0], near[1:]
        for other in others:
            sides = [(self._input(t.rows), t.result) for t in (other, best)]
            duel = self._duel(sides[0], sides[1], self.options.duel_rounds // 2)
            if duel.first.ok and duel.ratio < self._clearly:
                best = other
        return [best, *(t for t in ranked[:4] if t is not best)]

    def _duel(
        self,
        one: tuple[MeasureInput, MeasureResult],
        other: tuple[MeasureInput, MeasureResult],
        rounds: int,
    ) -> Duel:
        """Two measured candidates, measured in turns; where times are exact, they are known already."""
        if is_exact(self.task.target):
            return Duel(one[1], other[1], one[1].time / other[1].time)
        return self.measurer.duel(one[0], other[0], rounds)

    def _win(self, inp: MeasureInput, result: MeasureResult) -> Schedule:
        if self.database is not None and result.seconds:
            self.database.add(Record.of(inp, result, self.options.seed, "winner"), self.task, self.machine)
        return self.sketches.apply(inp.what)


def _first_line(text: str) -> str:
    return text.splitlines()[0][:200] if text else ""


def flop_of(task: Task) -> int:
    """The estimated number of operations of a run: two for each point of a reduction, one for each other point."""
    total = 0
    for m in pre_order(task.func.body):
        if isinstance(m, Block) and m.iter_vars:
            points = math.prod(number(iv.dom.extent) for iv in m.iter_vars)
            total += points * (2 if any(iv.iter_type == IterVar.CommReduce for iv in m.iter_vars) else 1)
    return total


def apply_record(task: Task, record: Record) -> Schedule:
    """The schedule of a record."""
    if record.workload != task.workload:
        raise TuneError(f"the record is of another program than {task.name}")
    try:
        return schedule_of(task, "trace", steps_of(task, record), trusted=record.trusted)
    except UntrustedStep as error:
        raise RecordError(f"record {record.uid or '(without a name)'} of {task.name}: {error}") from None


def tune_task(
    func_or_tensors: Any,
    target: Any = None,
    trials: int = 64,
    database: str | os.PathLike[str] | Database | None = None,
    seed: int = 0,
    *,
    constants: Collection[str] = (),
    inputs: Mapping[str, Any] | None = None,
    reference: Callable[..., Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    options: SearchOptions | None = None,
    measure: MeasureOptions | Measures | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> Schedule:
    """Search with up to `trials` measured candidates, including those in the database; never worse than without.

    With 0 trials the result is the best schedule of the database, else the zero-trial one.
    """
    task = task_of(func_or_tensors, target, constants, inputs, reference, sizes)
    kept = database if isinstance(database, Database) else Database(database or ":memory:")
    chosen = replace(options or SearchOptions(), seed=seed)
    try:
        where = fingerprint(machine_of(measure, task.target))
        found = kept.best(task, where)
        foreign = kept.elsewhere(task) if found is None and where == fingerprint(target=task.target) else ""
        if foreign:
            warnings.warn(foreign, RuntimeWarning, stacklevel=2)
        if trials <= 0:
            return apply_record(task, found) if found is not None else Sketches(task).apply()
        if isinstance(measure, MeasureOptions) or measure is None:
            settings = measure or MeasureOptions()
            if settings.reproducers is None and kept.path != ":memory:":
                settings = replace(settings, reproducers=f"{kept.path}.wrong")
            with Measurer(settings) as measurer:
                measurer.expect(task)
                return _search(Tuner(task, measurer, kept, chosen), trials, callback)
        return _search(Tuner(task, measure, kept, chosen), trials, callback)
    finally:
        if kept is not database:
            kept.close()


def _search(tuner: Tuner, trials: int, callback: Callable[[Progress], None] | None) -> Schedule:
    deadline, before = Deadline(tuner.options.limit), len(tuner.trials)
    while (left := trials - len(tuner.trials)) > 0 and not tuner.should_stop:
        room = deadline.room(len(tuner.trials) - before)
        if not room or not tuner.step(min(left, room)):
            break
        if callback is not None:
            callback(tuner.progress(trials, deadline.began, before))
    return tuner.finish()
