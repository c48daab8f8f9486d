"""Tuned records in models: what is extracted is what is built, and what was measured is what is built by."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import config, relay
from tilewright.contrib import graph_executor
from tilewright.ir.transform import PassContext
from tilewright.relay import build_module
from tilewright.relay.backend import lower, te_compiler
from tilewright.relay.backend.tasks import extract
from tilewright.relay.testing import mlp
from tilewright.tune.measure.measurer import MeasureInput, MeasureResult, Status
from tilewright.tune.records.database import Database, Record
from tilewright.tune.records.history import History
from tilewright.tune.search.allocate import tune_tasks
from tilewright.tune.search.search import SearchOptions
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task

Model = tuple[Any, dict[str, Any]]


def convolutions(rng: np.random.Generator) -> Model:
    """Two convolutions of the same kind, with an addition around them, and what comes after."""
    x = relay.var("data", shape=(1, 4, 10, 10))
    w = [relay.var(f"w{i}", shape=(4, 4, 3, 3)) for i in range(3)]
    y = x
    for each in w[:2]:
        y = relay.nn.relu(relay.nn.conv2d(y, each, padding=(1, 1), kernel_size=(3, 3), channels=4))
    y = relay.nn.conv2d(y, w[2], padding=(1, 1), kernel_size=(3, 3), channels=4) + x
    y = relay.nn.softmax(relay.nn.batch_flatten(relay.nn.global_avg_pool2d(y)))
    params = {f"w{i}": rng.standard_normal((4, 4, 3, 3)).astype("float32") for i in range(3)}
    return tvm.IRModule.from_expr(relay.Function([x, *w], y)), params


def dense() -> Model:
    mod, params = mlp.get_workload(2, num_classes=6, image_shape=(1, 4, 4))
    return mod, params


def run(lib: Any, **inputs: Any) -> Any:
    m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    m.run(**inputs)
    return m.get_output(0).numpy()


class Enough(Exception):
    """All is known that a test wants to know."""


def nothing(*_: Any) -> Any:
    raise Enough


class Asked(History):
    """Knows nothing, and remembers what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[str] = []

    def find(self, task: Task) -> Record | None:
        self.keys.append(task.workload)
        return None


def slow_candidates(tasks: list[Task], row: int) -> list[Record]:
    """A record for each task, of one row of its table: not the one that would be chosen without."""
    out = []
    for task in tasks:
        sketches = Sketches(task)
        space = sketches.space.first
        decisions = space.decisions([min(row, len(s) - 1) for s in space.stages])
        result = MeasureResult(Status.OK, (1e-3,) * 3, trace=sketches.apply(decisions).trace.as_json())
        out.append(Record.of(MeasureInput.of(task, decisions), result))
    return out


@pytest.mark.parametrize("kind", ["convolutions", "dense"])
@pytest.mark.parametrize("level", [3, 0])
def test_what_is_extracted_is_what_is_asked_for(
    kind: str, level: int, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod, params = convolutions(rng) if kind == "convolutions" else dense()
    tasks = extract(mod, params, "llvm", opt_level=level)
    counts = {task.workload: times for task, times in tasks}
    assert len(counts) == len(tasks)
    monkeypatch.setattr(build_module, "compile_all", nothing)
    with PassContext(opt_level=level), Asked() as asked, pytest.raises(Enough):
        relay.build(mod, "llvm", params=params)
    assert {key: asked.keys.count(key) for key in asked.keys} == counts
    named = {task.name: times for task, times in tasks}
    if kind == "convolutions" and level == 3:
        assert named["fused_nn_conv2d_nn_relu"] == 2  # the two that are alike are one task
        assert named["fused_nn_conv2d_add"] == 1
        assert next(t for t, _ in tasks if t.name == "fused_nn_conv2d_add").constants == ("p1",)


def test_parameters_that_stay_open_make_another_task(rng: np.random.Generator) -> None:
    mod, params = convolutions(rng)
    bound, free = ({t.workload for t, _ in extract(mod, p, "llvm")} for p in (params, None))
    assert len(bound) == len(free) and len(bound & free) < len(bound)


@pytest.mark.slow
def test_a_model_is_built_by_its_records(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, and in the processes that compile."""
    mod, params = dense()
    x = rng.standard_normal((2, 1, 4, 4)).astype("float32")
    wanted = run(relay.build(mod, "llvm", params=params), data=x)
    records = slow_candidates([t for t, _ in extract(mod, params, "llvm", opt_level=2)], 7)
    seen: list[Any] = []
    inner = lower.auto_schedule

    def spy(func: Any, target: Any, constants: Any, record: Any) -> Any:
        sch = inner(func, target, constants=constants, record=record)
        seen.append((record.uid, "by a record" in str(sch.explanation)))
        return sch

    monkeypatch.setattr(lower, "auto_schedule", spy)
    for few in (100, 0):  # compiled here, and in other processes
        monkeypatch.setattr(te_compiler, "_FEW", few)
        with History(records) as history:
            got = run(relay.build(mod, "llvm", params=params), data=x)
        np.testing.assert_allclose(got, wanted, rtol=1e-5)
        assert history.summary() == f"{len(records)} of {len(records)} programs were built by their records"
    assert sorted(seen) == sorted((r.uid, True) for r in records)


@pytest.mark.slow
def test_other_records_are_other_kernels(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mod, params = dense()
    tasks = [t for t, _ in extract(mod, params, "llvm", opt_level=2)]
    made: list[str] = []
    inner = te_compiler.compile_kernel
    monkeypatch.setattr(te_compiler, "_FEW", 100)
    monkeypatch.setattr(
        te_compiler, "compile_kernel", lambda job, t: (made.append(job.key), inner(job, t))[1]
    )

    def built(*sources: Any) -> set[str]:
        made.clear()
        with History(*sources):
            relay.build(mod, "llvm", params=params)
        return set(made)

    one, other = slow_candidates(tasks, 3), slow_candidates(tasks[:1], 4)
    with config.using(cache=True, cache_dir=str(tmp_path)):
        relay.build(mod, "llvm", params=params)
        assert made
        assert built() == set()  # nothing is known, so it is the same as without
        first = built(one)
        assert len(first) == len(tasks)
        assert built(one) == set()
        again = [replace(r, uid="", seconds=(2e-3,)) for r in one]
        assert built(again) == set()  # when it was measured changes no code
        assert len(built(other, one[1:])) == 1


@pytest.mark.slow
def test_records_that_apply_no_more_are_said_once_more(
    rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the process that builds, also if another one compiled, or it comes from the cache."""
    mod, params = dense()
    records = slow_candidates([t for t, _ in extract(mod, params, "llvm", opt_level=2)], 3)
    broken = [replace(records[0], trace={"format": "old"}, decisions=[]), *records[1:]]
    monkeypatch.setattr(te_compiler, "_FEW", 0)
    with config.using(cache=True, cache_dir=str(tmp_path)):
        for _ in range(2):
            with History(broken), pytest.warns(RuntimeWarning, match=f"the record {records[0].uid} of"):
                relay.build(mod, "llvm", params=params)
        with History(records), warnings.catch_warnings():
            warnings.simplefilter("error")
            relay.build(mod, "llvm", params=params)


def test_the_virtual_machine_takes_records(rng: np.random.Generator) -> None:
    x = relay.var("x", shape=(relay.Any(), 8))
    w = relay.var("w", shape=(8, 8))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.dense(relay.tanh(x), w)))
    params = {"w": rng.standard_normal((8, 8)).astype("float32")}
    tasks = extract(mod, params, "llvm", opt_level=2, vm=True)
    with Asked() as asked:
        relay.vm.compile(mod, "llvm", params=params)
    assert set(asked.keys) == {t.workload for t, _ in tasks} and tasks


@pytest.mark.slow
def test_tuned_and_built(rng: np.random.Generator, tmp_path: Path) -> None:
    """Measured in earnest, with few trials."""
    mod, params = dense()
    found = extract(mod, params, "llvm", opt_level=3)
    tasks, weights = [t for t, _ in found], [w for _, w in found]
    options = SearchOptions(model="analytical", duel_rounds=2)
    tune_tasks(tasks, 4 * len(tasks), tmp_path / "tune.db", weights, options=options)
    x = rng.standard_normal((2, 1, 4, 4)).astype("float32")
    with PassContext(opt_level=3):
        wanted = run(relay.build(mod, "llvm", params=params), data=x)
        with History(tmp_path / "tune.db") as history:
            got = run(relay.build(mod, "llvm", params=params), data=x)
    np.testing.assert_allclose(got, wanted, rtol=1e-5)
    with Database(tmp_path / "tune.db") as db:
        best = {t.workload: db.best(t) for t in tasks}
    assert {k: r.uid for k, r in history.used.items()} == {k: r.uid for k, r in best.items() if r}
    assert not history.missed
