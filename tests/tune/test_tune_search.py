"""The search, with times that are given: it finds the best, repeats itself, goes on, and is never worse."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from tune_fakes import Fake, odd

from tilewright import te, topi
from tilewright.ir.equal import structural_equal
from tilewright.tune.errors import TuneError
from tilewright.tune.measure.measurer import MeasureInput, Status
from tilewright.tune.records.database import Database
from tilewright.tune.search.allocate import tune_tasks
from tilewright.tune.search.cost_models import AnalyticalModel, RandomModel, TreeModel, cost_model
from tilewright.tune.search.pretrain import train_model
from tilewright.tune.search.search import SearchOptions, Tuner, tune_task
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task, task_of

TARGET = "llvm -mcpu=skylake-avx512 -num-cores=4"
PLAIN = SearchOptions(model="analytical", batch=8)


@pytest.fixture(scope="module")
def task() -> Task:
    A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    return task_of([A, B, topi.matmul(A, B)], TARGET)


@pytest.fixture(scope="module")
def sketches(task: Task) -> Sketches:
    return Sketches(task)


def few_rows(inp: MeasureInput) -> float:
    """A machine that likes tiles of six rows, and nothing else."""
    if inp.what is None:
        return 2e-3
    d = inp.what[0]
    rows = math.prod(t for k, t in d.items() if k.startswith("tile") and t)
    return 1e-3 * (1 + 0.2 * abs(rows - 6) + 0.1 * abs(d["vectors"] - 2) + 0.01 * odd(inp))


@pytest.mark.slow
def test_a_learned_model_finds_what_the_machine_likes(task: Task, sketches: Sketches) -> None:
    space = sketches.space
    every = [few_rows(MeasureInput.of(task, space.decisions(r))) for r in space.everything()]
    fake = Fake(few_rows)
    with Database(":memory:") as db:
        tune_task(task, trials=64, database=db, measure=fake, options=SearchOptions(model="trees", batch=8))
        best = db.best(task)
    assert best is not None
    better = sum(t < best.time for t in every)
    assert better < 0.01 * len(every)  # among the best hundredth, of thousands, with 64 measured


@pytest.mark.parametrize("model", ["analytical", "trees", "random"])
def test_the_same_seed_gives_the_same_sequence(task: Task, model: str) -> None:
    runs = []
    for seed in (3, 3, 4):
        fake = Fake(few_rows)
        tune_task(task, trials=24, seed=seed, measure=fake, options=SearchOptions(model=model, batch=8))
        runs.append(fake.seen)
    assert runs[0] == runs[1] and runs[0] != runs[2]


def test_nothing_is_measured_twice_and_the_zero_trial_schedule_comes_first(task: Task) -> None:
    fake = Fake(few_rows)
    tune_task(task, trials=40, measure=fake, options=PLAIN)
    assert fake.seen[0] is None
    assert len({str(w) for w in fake.seen}) == len(fake.seen) == 40


def test_it_is_never_worse_than_without(task: Task, sketches: Sketches) -> None:
    def zero_is_best(inp: MeasureInput) -> float:
        return 1e-3 if inp.what is None else 2e-3 + odd(inp) * 1e-3

    with Database(":memory:") as db:
        sch = tune_task(task, trials=16, database=db, measure=Fake(zero_is_best), options=PLAIN)
        winner = db.best(task)
    assert structural_equal(sch.mod, sketches.apply(None).mod)
    assert winner is not None and winner.origin == "winner" and winner.decisions is None


def test_the_duel_has_the_last_word(task: Task, sketches: Sketches) -> None:
    """A candidate that looked faster in the search, and is slower in turns with the zero-trial schedule."""

    class Lucky(Fake):
        def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Any:
            found = super().duel(first, second, rounds)
            return found if first.what is not None and second.what is not None else replaced(found)

    def replaced(duel: Any) -> Any:
        return type(duel)(duel.first, duel.second, 1.2)

    sch = tune_task(task, trials=16, measure=Lucky(few_rows), options=PLAIN)
    assert structural_equal(sch.mod, sketches.apply(None).mod)


def test_a_zero_trial_schedule_that_is_wrong_is_not_chosen_and_said(task: Task) -> None:
    fake = Fake(lambda inp: math.inf if inp.what is None else few_rows(inp), Status.WRONG)
    with Database(":memory:") as db:
        with pytest.warns(RuntimeWarning, match="the zero-trial schedule of main computes something else"):
            tune_task(task, trials=16, database=db, measure=fake, options=PLAIN)
        best = db.best(task)
    assert best is not None and best.decisions is not None


def test_what_fails_in_the_duel_is_not_chosen(task: Task, sketches: Sketches) -> None:
    class Moody(Fake):
        def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Any:
            self.times = lambda inp: math.inf if inp.what is not None else 1e-3
            return super().duel(first, second, rounds)

    sch = tune_task(task, trials=16, measure=Moody(few_rows), options=PLAIN)
    assert structural_equal(sch.mod, sketches.apply(None).mod)


def test_failures_are_counted_and_never_chosen(task: Task) -> None:
    def some_fail(inp: MeasureInput) -> float:
        return math.inf if inp.what is not None and odd(inp) < 0.5 else few_rows(inp)

    seen = []
    with Database(":memory:") as db:
        tune_task(task, trials=32, database=db, measure=Fake(some_fail), options=PLAIN, callback=seen.append)
        records = db.records(task)
        best = db.best(task)
    assert best is not None and best.ok
    assert seen[-1].statuses["crash"] + seen[-1].statuses["ok"] == 32 == seen[-1].trials
    assert {r.status for r in records} == {"ok", "crash"}


def test_if_nothing_could_be_measured_the_causes_are_told(task: Task) -> None:
    with pytest.raises(TuneError) as error:
        tune_task(task, trials=8, measure=Fake(lambda inp: math.inf), options=PLAIN)
    assert str(error.value) == (
        "tuning main: none of 8 candidates could be measured\n"
        "  count  status  cause\n"
        "      8  crash   ended by SIGSEGV"
    )


@pytest.mark.slow
def test_a_search_goes_on_from_the_database(task: Task) -> None:
    whole, parts = Fake(few_rows), Fake(few_rows)
    options = SearchOptions(model="trees", batch=8)
    tune_task(task, trials=32, measure=whole, options=options)
    with Database(":memory:") as db:
        for trials in (8, 16, 32):
            with_parts = tune_task(task, trials=trials, database=db, measure=parts, options=options)
        assert parts.seen == whole.seen  # the same candidates, as if it had never stopped
        assert len([r for r in db.records(task) if r.origin == "trial"]) == 32
        before = len(parts.seen)
        again = tune_task(task, trials=32, database=db, measure=parts, options=options)
        assert len(parts.seen) == before  # it is all there already
        assert structural_equal(again.mod, with_parts.mod)
        without = tune_task(task, trials=0, database=db)
        assert structural_equal(without.mod, with_parts.mod)


def test_what_other_machines_measured_is_not_used_and_that_is_said(task: Task, sketches: Sketches) -> None:
    with Database(":memory:") as db:
        tune_task(task, trials=16, database=db, measure=Fake(few_rows), options=PLAIN)
        db._db.execute("UPDATE records SET machine = 'another'")
        with pytest.warns(
            RuntimeWarning, match="17 records of main are of other machines and are not used here"
        ):
            sch = tune_task(task, trials=0, database=db)
    assert structural_equal(sch.mod, sketches.apply(None).mod)


def test_it_ends_by_itself_when_little_is_to_be_won(task: Task, sketches: Sketches) -> None:
    def as_expected(inp: MeasureInput) -> float:
        rows = sketches.space.rows(inp.what)
        return float(sketches.space.seconds(rows[None])[0])

    fake, options = Fake(as_expected), SearchOptions(model="analytical", batch=16)
    with Database(":memory:") as db:
        first = tune_task(task, trials=1000, database=db, measure=fake, options=options)
        measured, duels = len(fake.seen), fake.duels
        assert measured < 200
        again = tune_task(task, trials=1000, database=db, measure=fake, options=options)
    assert (len(fake.seen), fake.duels) == (measured, duels)  # it had ended
    assert structural_equal(first.mod, again.mod)


@pytest.mark.parametrize("limit", [1.0, 40.0, 100.0])
def test_a_time_limit_leaves_time_for_the_end(
    task: Task, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(few_rows)  # and a clock by which each trial takes a second
    monkeypatch.setattr("tilewright.tune.search.search.time.monotonic", lambda: float(len(fake.seen)))
    for many in (False, True):
        fake.seen.clear()
        options = SearchOptions(model="analytical", batch=16, patience=1000, limit=limit)
        if many:
            tune_tasks([task], 1000, options=options, measure=fake)
        else:
            tune_task(task, trials=1000, measure=fake, options=options)
        assert len(fake.seen) == max(8, limit - 8)


def test_a_program_without_choices_is_measured_once(sketches: Sketches) -> None:
    A = te.placeholder((4,), name="A")
    func = te.create_prim_func([A, te.compute((4,), lambda i: A[i] + 1.0, name="B")])
    fake = Fake(lambda inp: 1e-6 * (1 + (inp.what is not None)))
    tune_task(func, "llvm -num-cores=1 -mcpu=core2", trials=8, measure=fake, options=PLAIN)
    assert fake.seen[0] is None and len(fake.seen) <= 3


def test_steps_of_a_tuner(task: Task) -> None:
    tuner = Tuner(task, Fake(few_rows), None, PLAIN)
    assert tuner.best is None and tuner.expected_gain == 1.0
    assert tuner.step(5) == 5 and len(tuner.trials) == 5
    assert tuner.best is not None and tuner.best[1] <= tuner.zero == 2e-3
    assert tuner.step() == 8
    assert 0 < tuner.expected_gain < 1
    assert tuner.finish().trace


# ---------------------------------------------------------------------------- models
def test_models_rank_as_they_should(sketches: Sketches) -> None:
    space = sketches.space
    some = space.sample(np.random.default_rng(0), 400)
    features = space.features(some)
    seconds = space.seconds(some)
    analytical = AnalyticalModel()
    assert (np.argsort(analytical.predict(features)) == np.argsort(features[:, 0])).all()
    analytical.update(features, 2 * seconds)
    assert np.allclose(analytical.predict(features), np.log(2 * seconds), atol=1e-4)
    # a machine that the model does not know: large tiles are slow
    truth = seconds * (1 + 0.3 * features[:, 14 + 2])
    trees = TreeModel()
    trees.update(features[:300], truth[:300])
    assert _agreement(trees.predict(features[300:]), truth[300:]) > 0.9
    assert _agreement(RandomModel().predict(features), truth) < 0.3


def _agreement(scores: Any, seconds: Any) -> float:
    ranks = [np.argsort(np.argsort(x)) for x in (scores, seconds)]
    return float(np.corrcoef(ranks)[0, 1])


def test_trees_keep_away_from_what_failed(sketches: Sketches) -> None:
    space = sketches.space
    some = space.sample(np.random.default_rng(0), 200)
    features, seconds = space.features(some), space.seconds(some)
    wide = space.stages[0].points[some[:, 0], -5] > 2  # many vectors: they all crash
    trees = TreeModel()
    trees.update(features, np.where(wide, np.inf, seconds))
    off = trees.predict(features) - features[:, 0]
    assert off[wide].mean() > off[~wide].mean() + 0.2


def test_a_model_begins_with_what_another_learned(sketches: Sketches, tmp_path: Any) -> None:
    space = sketches.space
    some = space.sample(np.random.default_rng(0), 400)
    features = space.features(some)
    truth = space.seconds(some) * (1 + 0.3 * features[:, 16])
    first = TreeModel()
    with pytest.raises(TuneError, match="too few measurements"):
        first.save(str(tmp_path / "m.json"))
    first.update(features, truth)
    first.save(str(tmp_path / "m.json"))
    second = TreeModel(pretrained=str(tmp_path / "m.json"))
    before = _agreement(second.predict(features), truth)
    assert before > 0.9
    second.update(features[:20], truth[:20])
    assert _agreement(second.predict(features), truth) > 0.9
    (tmp_path / "bad.json").write_text("nothing")
    with pytest.raises(TuneError, match="this is not a cost model"):
        TreeModel(pretrained=str(tmp_path / "bad.json"))


@pytest.mark.slow
def test_a_model_is_trained_from_a_database(tmp_path: Any) -> None:
    def square(n: int) -> Task:
        A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
        return task_of([A, B, topi.matmul(A, B)], TARGET)

    path = str(tmp_path / "model.json")
    with Database(":memory:") as db:
        with pytest.raises(TuneError, match="there is nothing to learn from"):
            train_model(db, path)
        for n in (32, 64, 96):
            options = SearchOptions(model="random", batch=32, patience=200)
            tune_task(square(n), trials=128, database=db, measure=Fake(few_rows), options=options)
        train_model(db, path)
    task = square(80)
    space = Sketches(task).space
    some = space.sample(np.random.default_rng(0), 200)
    truth = [few_rows(MeasureInput.of(task, space.decisions(r))) for r in some]
    before, after = (
        _agreement(m.predict(space.features(some)), truth)
        for m in (cost_model("analytical"), cost_model(path))
    )
    assert after > 0.8 > before  # of a program that it has never seen


def test_without_xgboost_the_analytical_model_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xgboost", None)
    with pytest.warns(RuntimeWarning, match=r"pip install 'tilewright\[tune\]'"):
        assert isinstance(cost_model("auto"), AnalyticalModel)
    with pytest.raises(TuneError, match="needs xgboost"):
        cost_model("trees")
    with pytest.raises(TuneError, match="there is no cost model 'oracle'"):
        cost_model("oracle")


def test_statuses_have_the_texts_that_records_hold() -> None:
    assert Status("ok") is Status.OK and str(Status.BUILD_ERROR) == "build error"
