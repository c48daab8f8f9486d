"""Cost models: which one is taken, what they are trained on, and what the one of the package knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tune_fakes import Fake

from tilewright import te, topi
from tilewright.target import Target
from tilewright.tune.errors import TuneError
from tilewright.tune.measure.measurer import MeasureInput, MeasureResult, Status
from tilewright.tune.records.database import Database, Record
from tilewright.tune.rules.features import COLUMNS, layout
from tilewright.tune.search import cost_models
from tilewright.tune.search.cost_models import SHIPPED, AnalyticalModel, TreeModel, cost_model, shipped_model
from tilewright.tune.search.pretrain import (
    Samples,
    describe_model,
    samples_of,
    train_model,
    train_trees,
)
from tilewright.tune.search.search import SearchOptions, Tuner
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task, task_of

WIDE = "llvm -mcpu=skylake-avx512 -num-cores=1"
NARROW = "llvm -mcpu=haswell -num-cores=1"
SMALL = "llvm -mcpu=core2 -num-cores=1"


def product(m: int, k: int, n: int, target: str = WIDE) -> Task:
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    return task_of([A, B, topi.matmul(A, B)], target)


@pytest.fixture(scope="module")
def task() -> Task:
    return product(48, 64, 80)


# ---------------------------------------------------------------------------- the columns
@pytest.mark.parametrize("target", [WIDE, NARROW, "llvm -mcpu=cortex-a72 -mtriple=aarch64-linux-gnu"])
def test_columns_are_those_that_are_named_for_every_program_and_machine(target: str) -> None:
    X = te.placeholder((4, 96), name="X")
    for program in (product(32, 32, 32, target), task_of([X, topi.nn.softmax(X)], target)):
        space = Sketches(program).space
        some = space.sample(np.random.default_rng(0), 16)
        features = space.features(some)
        assert features.shape == (16, len(COLUMNS)) and np.isfinite(features).all()
        machine = dict(zip(COLUMNS[-13:-1], features[0][-13:-1], strict=True))
        cpu = Target(target).cpu
        assert machine["vector bits"] == cpu.preferred_vector_bits
        assert machine["vector registers"] == cpu.vector_registers
        assert machine["L1"] == pytest.approx(np.log2(1 + cpu.cache_sizes.l1d))
        assert machine["memory bandwidth"] == pytest.approx(cpu.bandwidth(0), rel=1e-6)
    assert len(set(COLUMNS)) == len(COLUMNS)


def test_of_the_zero_trial_schedule_the_last_column_is_nothing(task: Task) -> None:
    space = Sketches(task).space
    assert space.features(space.default[None])[0, -1] == pytest.approx(0, abs=1e-6)


# ---------------------------------------------------------------------------- the model of the package
def test_the_model_of_the_package_is_small_and_fits_the_features_of_today() -> None:
    index = json.loads((SHIPPED / "index.json").read_text())
    files = {p.name for p in SHIPPED.iterdir() if p.suffix in (".ubj", ".json")} - {"index.json"}
    assert files == set(index)  # every file is described
    assert sum((SHIPPED / name).stat().st_size for name in files) < 1_000_000
    for name, about in index.items():
        assert about["layout"] == layout(), (
            "features were changed: train it anew with scripts/gather_records.py"
        )
        assert about["programs"] >= 40 and about["records"] >= 1000
        model: Any = TreeModel(pretrained=str(SHIPPED / name))
        assert model._first.num_features() == len(COLUMNS)


def test_it_is_taken_where_the_target_is_near() -> None:
    for target in (WIDE, NARROW, "llvm -mcpu=znver4"):
        assert shipped_model(target) == str(SHIPPED / "x86_64.ubj")
    for target in (SMALL, "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72", "cuda -arch=sm_80"):
        assert shipped_model(target) is None


def test_auto_is_the_nearest_and_others_are_as_asked(task: Task) -> None:
    begun = lambda model: model._first is not None  # type: ignore[attr-defined]
    assert begun(cost_model("auto", 0, WIDE)) and begun(cost_model("pretrained", 0, WIDE))
    assert not begun(cost_model("trees", 0, WIDE)) and not begun(cost_model("auto", 0, SMALL))
    assert not begun(cost_model("auto"))  # of no target nothing is near
    assert isinstance(cost_model("analytical", 0, WIDE), AnalyticalModel)
    with pytest.raises(TuneError, match="no model of the package is near to the target `llvm -mcpu=core2"):
        cost_model("pretrained", 0, SMALL)
    assert begun(Tuner(task, Fake(lambda inp: 1e-3)).model)  # a search takes it by itself
    assert not begun(Tuner(task, Fake(lambda inp: 1e-3), None, SearchOptions(model="trees")).model)


def test_a_damaged_or_outdated_index_is_no_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cost_models, "SHIPPED", tmp_path)
    assert shipped_model(WIDE) is None  # no index at all
    (tmp_path / "index.json").write_text("{")
    assert shipped_model(WIDE) is None
    (tmp_path / "index.json").write_text(json.dumps({"a.ubj": {"near": [["x86_64", 512]], "layout": "old"}}))
    assert shipped_model(WIDE) is None


def test_a_model_of_other_features_is_refused(tmp_path: Path, task: Task) -> None:
    space = Sketches(task).space
    some = space.features(space.sample(np.random.default_rng(0), 50))
    model: Any = TreeModel(rounds=2)
    model.update(some, np.exp(some[:, 0]))
    path = str(tmp_path / "m.json")
    model.save(path)
    TreeModel(pretrained=path)
    model._trees.set_attr(layout="another")
    model._trees.save_model(path)
    with pytest.raises(
        TuneError, match=r"m\.json: this model was trained on the features of another version"
    ):
        TreeModel(pretrained=path)


def test_it_prefers_what_is_faster_on_the_machines_it_knows(task: Task) -> None:
    """Not by a little: tiles that do not fit into the registers, or vectors of one row, are known to be slow."""
    space = Sketches(product(256, 256, 256)).space
    some = space.sample(np.random.default_rng(0), 3000)
    scores = cost_model("pretrained", 0, WIDE).predict(space.features(some))
    best, worst = some[np.argsort(scores)[:20]], some[np.argsort(scores)[-20:]]
    point = lambda rows: space.stages[0].points[rows[:, 0]]
    size = lambda rows: point(rows)[:, 1:3].max(axis=1) * point(rows)[:, -5]
    assert np.median(size(best)) <= 32  # accumulators, of 32 registers
    assert space.seconds(best).mean() < 0.5 * space.seconds(worst).mean()


def test_scores_of_a_pretrained_model_go_on_learning(task: Task) -> None:
    space = Sketches(task).space
    some = space.sample(np.random.default_rng(1), 300)
    features = space.features(some)
    odd = 1 + 0.5 * (space.stages[0].points[some[:, 0], -5] > 1)  # more than one vector is slow here
    truth = np.exp(features[:, 0]) * odd
    model = cost_model("pretrained", 0, WIDE)
    before = np.corrcoef(model.predict(features), np.log(truth))[0, 1]
    model.update(features[:100], truth[:100])
    after = np.corrcoef(model.predict(features)[100:], np.log(truth)[100:])[0, 1]
    assert after > max(0.9, before)


# ---------------------------------------------------------------------------- training
def test_samples_are_what_was_right_and_is_still_in_the_space(task: Task) -> None:
    space = Sketches(task).space
    rows = space.sample(np.random.default_rng(0), 12)
    good = MeasureResult(Status.OK, (2e-3, 2e-3, 2e-3))
    with Database(":memory:") as db:
        for i, r in enumerate(rows):
            result = good if i != 3 else MeasureResult(Status.CRASH, error="…")
            db.add(Record.of(MeasureInput.of(task, space.decisions(r)), result), task)
        db.add(Record.of(MeasureInput.of(task, [{"stage": "gone", "sketch": "tile"}]), good), task)
        db.add(Record.of(MeasureInput.of(task, None), good, origin="winner"), task)
        (samples,) = samples_of(db)
        assert samples.features.shape == (11, len(COLUMNS)) and (samples.seconds == 2e-3).all()
        assert samples.task.workload == task.workload
        assert samples_of(db, lambda t: t.name != "main") == []


def test_a_record_counts_as_it_did_in_turns_with_the_incumbent(task: Task) -> None:
    inp = MeasureInput.of(task)
    record = Record.of(inp, MeasureResult(Status.OK, (1.0, 1.1), ratio=0.9), extra={"against": 2.0})
    assert record.score == pytest.approx(1.8)
    lucky = Record.of(inp, MeasureResult(Status.OK, (1.0, 1.1), ratio=0.1), extra={"against": 2.0})
    assert lucky.score == 1.0  # no faster than its fastest sample
    alone = Record.of(inp, MeasureResult(Status.OK, (1.0, 1.1, 1.2)))
    assert alone.score == alone.time


@pytest.mark.slow
def test_trees_learn_across_programs_and_are_described(tmp_path: Path) -> None:
    def samples(task: Task, seed: int) -> Samples:
        space = Sketches(task).space
        some = space.sample(np.random.default_rng(seed), 120)
        features = space.features(some)
        wide = space.stages[0].points[some[:, 0], -5] > 2
        return Samples(task, features, 7.0 * (1 + seed) * np.exp(features[:, 0]) * np.where(wide, 1.5, 1.0))

    known = [samples(product(n, n, n, t), n) for n in (32, 64, 96) for t in (WIDE, NARROW)]
    model = train_trees(known, rounds=20)
    new = samples(product(80, 48, 112), 5)
    off = np.log(new.seconds) - new.features[:, 0]
    found = model.predict(new.features) - new.features[:, 0]
    assert (
        np.corrcoef(off, found)[0, 1] > 0.9
    )  # how much faster or slower the machine is as a whole says nothing
    model.save(str(tmp_path / "m.ubj"))
    describe_model(tmp_path / "m.ubj", known, "a machine")
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["m.ubj"] == {
        "near": [["x86_64", 256], ["x86_64", 512]],
        "layout": layout(),
        "programs": 6,
        "records": 720,
        "measured on": "a machine",
    }


def test_an_empty_database_trains_nothing(tmp_path: Path) -> None:
    with Database(":memory:") as db, pytest.raises(TuneError, match="there is nothing to learn from"):
        train_model(db, tmp_path / "m.json")
