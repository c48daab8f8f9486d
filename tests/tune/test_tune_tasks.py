"""Many tasks: trials go where they save the most, and one that fails stops no other."""

from __future__ import annotations

import math
from typing import Any

import pytest
from tune_fakes import Fake, odd

from tilewright import te, topi
from tilewright.tune.errors import RecordError, TuneError
from tilewright.tune.measure.measurer import MeasureInput
from tilewright.tune.records.database import Database
from tilewright.tune.search.allocate import tune_tasks
from tilewright.tune.search.search import SearchOptions
from tilewright.tune.workload import Task, task_of

TARGET = "llvm -mcpu=skylake-avx512 -num-cores=4"
OPTIONS = SearchOptions(model="analytical", batch=8)


def product_of(n: int) -> Task:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    return task_of([A, B, topi.matmul(A, B)], TARGET)


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return [product_of(n) for n in (32, 48, 64)]


def times(inp: MeasureInput) -> float:
    return 1e-3 * (1 + odd(inp))


def test_the_heaviest_task_gets_most(tasks: list[Task]) -> None:
    told: list[Any] = []
    shares = tune_tasks(
        tasks,
        96,
        weights=[1, 100, 1],
        options=OPTIONS,
        measure=Fake(times),
        callback=lambda s, p: told.append(p),
    )
    counts = [len(s.tuner.trials) for s in shares]
    assert sum(counts) == 96 and counts[1] > 2 * max(counts[0], counts[2]) and min(counts) >= 8
    assert all(s.schedule is not None and not s.error for s in shares)
    assert told[-1].wanted == 96


def test_few_trials_are_shared_out(tasks: list[Task]) -> None:
    shares = tune_tasks(tasks, 4, options=OPTIONS, measure=Fake(times))
    assert [len(s.tuner.trials) for s in shares] == [1, 1, 2]
    assert all(s.schedule is not None for s in shares)
    (alone,) = tune_tasks(tasks[:1], 0, options=OPTIONS, measure=Fake(times))
    assert alone.schedule is not None and not alone.tuner.trials


def test_a_task_that_fails_stops_no_other(tasks: list[Task]) -> None:
    def one_fails(inp: MeasureInput) -> float:
        return math.inf if inp.task is tasks[0] else times(inp)

    shares = tune_tasks(tasks, 64, options=OPTIONS, measure=Fake(one_fails))
    assert shares[0].schedule is None and "could be measured" in shares[0].error
    assert all(s.schedule is not None for s in shares[1:])
    with pytest.raises(TuneError, match="no task could be tuned"):
        tune_tasks(tasks, 24, options=OPTIONS, measure=Fake(lambda inp: math.inf))


def test_a_database_that_cannot_be_written_stops_all_of_them(tasks: list[Task]) -> None:
    fake = Fake(times)
    with Database(":memory:") as db:
        db._db.execute("PRAGMA query_only=1")
        with pytest.raises(RecordError, match="readonly database"):
            tune_tasks(tasks, 24, db, options=OPTIONS, measure=fake)
    assert len(fake.seen) == 1  # the first of the first: no other is measured for nothing


@pytest.mark.slow
def test_it_goes_on_from_the_database(tasks: list[Task]) -> None:
    fake = Fake(times)
    with Database(":memory:") as db:
        tune_tasks(tasks, 24, db, options=OPTIONS, measure=fake)
        assert len(fake.seen) == 24
        tune_tasks(tasks, 40, db, options=OPTIONS, measure=fake)
        assert len(fake.seen) == 40
        duels = fake.duels
        tune_tasks(tasks, 40, db, options=OPTIONS, measure=fake)
        assert (len(fake.seen), fake.duels) == (40, duels)
