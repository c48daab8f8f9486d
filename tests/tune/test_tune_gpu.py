"""Tuning for GPUs: what is free to be decided, and the search with OpenCL on a processor."""

from __future__ import annotations

import json
import sqlite3
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faulty_gpu_build
import numpy as np
import pytest
from how_many import examples
from tune_fakes import Fake

import tilewright as tvm
from tilewright import auto_scheduler, autotvm, relay, te, topi
from tilewright.contrib import graph_executor
from tilewright.ir.errors import ScheduleError
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Allocate
from tilewright.relay.backend.tasks import extract
from tilewright.target.machine import GpuMachine
from tilewright.tir.analysis.measure import bytes_of, scope_of
from tilewright.tir.transform.storage_rewrite import SMALL
from tilewright.tune.errors import TuneError
from tilewright.tune.measure import machines
from tilewright.tune.measure.measurer import (
    MeasureInput,
    MeasureOptions,
    Measurer,
    Status,
    Timing,
    references,
)
from tilewright.tune.plan import plan_of
from tilewright.tune.records.database import Database
from tilewright.tune.records.history import History
from tilewright.tune.rules.gpu.shared_tile import SharedTile
from tilewright.tune.search import cost_models
from tilewright.tune.search.cost_models import CorrectedModel, cost_model
from tilewright.tune.search.search import SearchOptions, tune_task
from tilewright.tune.space import Sketches, Structures
from tilewright.tune.workload import task_of

needs_opencl = pytest.mark.needs("opencl")
QUICK = Timing(repeats=2, sample_seconds=1e-4, seconds=1e-3, rounds=2)
H200 = "cuda -model=h200"


def matmul(n: int = 32, dtype: str = "float32") -> list[Any]:
    a, b = te.placeholder((n, n), dtype, name="a"), te.placeholder((n, n), dtype, name="b")
    return [a, b, topi.matmul(a, b)]


def conv(c: int = 4, h: int = 8) -> list[Any]:
    x, w = te.placeholder((1, c, h, h), name="x"), te.placeholder((8, c, 3, 3), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1))]


def softmax() -> list[Any]:
    x = te.placeholder((16, 64), name="x")
    return [x, topi.nn.softmax(x, axis=1)]


# ---------------------------------------------------------------------------- spaces
PROGRAMS = {
    "product": (matmul(1024), H200),
    "small": (matmul(), "opencl"),
    "convolution": (conv(64, 28), H200),
    "small convolution": (conv(), "opencl"),
    "rows": (softmax(), "opencl"),
    "elementwise": ([(x := te.placeholder((64, 64), name="x")), topi.tanh(x)], "opencl"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_free_to_be_decided(name: str) -> None:
    task = task_of(*PROGRAMS[name])
    sketches = Sketches(task)
    space = sketches.space
    assert space.size >= 5
    default = space.decisions(space.default)
    assert str(sketches.apply(default).mod) == str(sketches.apply().mod), (
        "the default is the zero-trial schedule"
    )
    assert space.rows(default) is not None and (space.rows(default) == space.default).all()
    rng = np.random.default_rng(0)
    some = space.sample(rng, 16)
    features = space.features(some)
    assert np.isfinite(features).all() and (space.seconds(some) > 0).all()
    other = Sketches(task_of(matmul(8), "opencl")).space
    assert features.shape[1] == other.features(other.beginnings).shape[1]
    for rows in some:
        assert (space.rows(space.decisions(rows)) == rows).all()
    first = space.first
    some = first.sample(rng, 16)
    children = first.mutate(rng, first.cross(rng, some, some[::-1]))
    assert (children >= 0).all() and (children < [len(s) for s in first.stages]).all()
    assert len(set(map(int, space.varied(space.sample(rng, 16), 8)))) == 8


@pytest.mark.slow
def test_rules_that_could_be_as_fast_are_searched_too() -> None:
    space = Sketches(task_of(matmul(1024, "float16"), H200)).space
    assert isinstance(space, Structures) and space.names == [("wgmma",), ("mma",)]
    for rows, rule in zip(space.beginnings, ("wgmma", "mma"), strict=True):
        (decision,) = space.decisions(rows) or []
        assert decision["rule"] == rule
    assert (space.default == space.beginnings[0]).all()


def test_limits_of_the_hardware_are_kept() -> None:
    task = task_of(matmul(256), "opencl")
    (stage,) = Sketches(task).space.first.stages
    gpu = task.target.gpu
    assert isinstance(gpu, GpuMachine)
    rows = range(0, len(stage), 97)
    for decision in map(stage.decision, rows):
        t = SharedTile(**{k: v for k, v in decision.items() if k not in ("stage", "rule")})
        assert t.threads <= gpu.max_threads_per_block
        assert (t.side(True) + t.side(False)) * t.depth * 4 <= gpu.shared_memory_per_block


def conv_of(c: int, h: int, f: int, window: int, stride: int, pad: int) -> list[Any]:
    x, w = te.placeholder((1, c, h, h), name="x"), te.placeholder((f, c, window, window), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d(x, w, stride, pad, 1))]


def ragged() -> list[Any]:
    a, b = te.placeholder((4, 33, 40), name="a"), te.placeholder((4, 50, 40), name="b")
    return [a, b, topi.nn.batch_matmul(a, b)]


def neighbours() -> list[Any]:
    """One buffer that is read at several places."""
    a, b = te.placeholder((64, 68), name="a"), te.placeholder((40, 64), name="b")
    k = te.reduce_axis((0, 64), name="k")
    return [a, b, te.compute((40, 64), lambda i, j: te.sum(b[i, k] * (a[k, j] + a[k, j + 4]), k), name="c")]


SHARED = {
    "convolution": conv_of(64, 28, 32, 3, 1, 1),
    "strides": conv_of(8, 21, 16, 3, 2, 0),
    "wide windows": conv_of(3, 28, 16, 5, 2, 2),
    "odd": conv_of(5, 13, 7, 3, 1, 1),
    "products": ragged(),
    "neighbours": neighbours(),
}


@pytest.mark.parametrize(
    "name", [n if n == "neighbours" else pytest.param(n, marks=pytest.mark.slow) for n in SHARED]
)
def test_shared_memory_is_what_the_table_says(name: str) -> None:
    """Random decisions, and those that need most: what kernels declare is what was counted, and none has too much."""
    task = task_of(SHARED[name], "opencl")
    sketches = Sketches(task)
    choice = plan_of(task.func, task.target).choices[0]
    table = choice.winner.table.whole()
    said = table.count("shared_bytes")
    rows = np.random.default_rng(2).choice(len(table), examples(2), replace=False)
    for row in {*map(int, rows), int(np.argmax(said))}:
        decision = {"stage": choice.stage.name, "rule": "shared tile", **table.values(row)}
        (lowered,) = tvm.lower(sketches.apply([decision]).mod).functions.values()
        found: list[tuple[str, int]] = []
        for m in pre_order(lowered.body):
            if isinstance(m, Allocate) and scope_of(m.buffer_var) == "shared":
                found.append((m.buffer_var.name, bytes_of(m.dtype, m.extents) or 0))
        # a small one may be there for each of the loops that a loop becomes
        assert sum(dict(found).values()) == said[row], (decision, found)
        assert all(size <= SMALL["shared"] for n, size in found if [x for x, _ in found].count(n) > 1)
        assert sum(size for _, size in found) <= task.target.gpu.shared_memory_per_block


@pytest.mark.slow
def test_what_is_decided_is_done_or_refused() -> None:
    sketches = Sketches(task_of(matmul(64), "opencl"))
    decision = {
        "stage": "T_matmul", "rule": "shared tile", "high": 4, "wide": 8, "own_high": 2, "own_wide": 1,
        "groups_high": 1, "groups_wide": 2, "depth": 8, "fetch": 4, "unroll": 1,
    }  # fmt: skip
    sch = sketches.apply([decision])
    text = str(sch.mod)
    assert 'T.thread_binding(4, thread="threadIdx.y")' in text and 'thread="vthread.x"' in text
    assert sch.verify()
    for wrong, why in (
        ({**decision, "rule": "mma"}, "mma cannot schedule T_matmul as decided: the target has no mma.f16"),
        ({**decision, "rule": "warps"}, "names the rule 'warps'; there are wgmma, mma, SIMT with TMA,"),
        ({**decision, "high": 0}, "shared tile has no such row for T_matmul"),
        ({**decision, "stage": "other"}, "the decision is for other, and the stage is T_matmul"),
        ({"stage": "T_matmul", "rule": "shared tile"}, "the decision for T_matmul is damaged: 'high'"),
    ):
        with pytest.raises(tvm.TVMError, match=why):
            sketches.apply([wrong])
    with pytest.raises(tvm.TVMError, match="2 decisions for the 1 stages"):
        sketches.apply([decision, decision])


def test_a_decision_names_any_rule_that_matches() -> None:
    sketches = Sketches(task_of(matmul(256, "float16"), H200))
    other = plan_of(sketches.task.func, sketches.task.target, forced={0: "mma"}).choices[0]
    decision = {"stage": "T_matmul", "rule": "mma", **other.row.values}
    assert sketches.apply([decision]).explanation.records[-1]["rule"] == "mma"
    for rows in (3, 0):
        with pytest.raises(ScheduleError, match="mma has no such row for T_matmul"):
            sketches.apply([{**decision, "rows": rows}])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["small", "small convolution", "rows", "elementwise"])
def test_whatever_is_decided_means_the_same(name: str) -> None:
    sketches = Sketches(task_of(*PROGRAMS[name]))
    for rows in sketches.space.sample(np.random.default_rng(1), 1 if "conv" in name else 2):
        assert sketches.apply(sketches.space.decisions(rows)).verify()


# ---------------------------------------------------------------------------- models
def test_errors_are_like_those_of_neighbours() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((200, 5))
    seconds = np.exp(x[:, 0] + np.sin(3 * x[:, 1]))  # the first column is what the machine's model expects
    model = CorrectedModel()
    plain = np.std(np.log(seconds[100:]) - model.predict(x[100:]))
    model.update(x[:100], np.where(np.arange(100) == 7, np.inf, seconds[:100]))
    assert np.std(np.log(seconds[100:]) - model.predict(x[100:])) < 0.5 * plain
    far = x[:1] + 100.0
    assert model.predict(far)[0] - far[0, 0] == pytest.approx(model._shift, abs=1e-6)


def test_without_xgboost_one_message_and_a_corrected_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "xgboost", None)
    monkeypatch.setattr(cost_models, "_warned", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = [cost_model("auto", 0, tvm.target.Target("opencl")) for _ in range(3)]
    assert [type(m) for m in made] == [CorrectedModel] * 3
    assert len(caught) == 1 and "corrected by measurements" in str(caught[0].message)


# ---------------------------------------------------------------------------- records of GPUs
class Device(Fake):
    """Gives every candidate a time by its threads, without running it."""

    def __init__(self) -> None:
        super().__init__(lambda inp: 1e-3 if inp.what is None else 1e-3 / (1 + inp.what[0].get("high", 1)))


def test_records_name_the_gpu_and_are_not_applied_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"kind": "cuda", "gpu": "One", "arch": "9.0", "driver": "13.0", "processors": 132, "versions": {}}
    monkeypatch.setattr(machines, "_device", lambda kind: told)
    task = task_of(matmul(16), H200)
    with Database(tmp_path / "tune.db") as db:
        tune_task(task, trials=3, database=db, measure=Device())
        assert {r.machine for r in db.records()} == {machines.fingerprint(told)}
        assert db.machines() == {machines.fingerprint(told): told}
        assert db.best(task) is not None
    with History(tmp_path / "tune.db") as history:
        tvm.auto_schedule(matmul(16), H200)
    assert len(history.used) == 1
    monkeypatch.setattr(machines, "_device", lambda kind: {**told, "gpu": "Other"})
    with (
        History(tmp_path / "tune.db") as history,
        pytest.warns(RuntimeWarning, match="gpu One instead of Other"),
    ):
        tvm.auto_schedule(matmul(16), H200)
    assert not history.used


def test_a_gpu_that_is_not_there() -> None:
    if tvm.cuda(0).exist:
        pytest.skip("there is one")
    task = task_of(matmul(), "cuda")
    with pytest.raises(
        TuneError, match=r"does not run in a process of this machine: there is no device cuda\(0\)"
    ):
        tune_task(task, trials=2)
    assert machines.describe_machine("cuda")["gpu"] == "none"
    assert machines.fingerprint(target="cuda -arch=sm_90") != machines.fingerprint()


# ---------------------------------------------------------------------------- the search
@pytest.fixture(scope="module")
def faults(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("faults") / "faults.json"
    path.write_text("{}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TILEWRIGHT_TEST_GPU_FAULTS", str(path))
        yield path


@pytest.fixture(scope="module")
def measurer(faults: Path) -> Iterator[Measurer]:
    """One for all: its processes take a while to start."""
    build = f"{faulty_gpu_build.__name__}:build"
    with Measurer(MeasureOptions(builders=1, run_limit=1.5, timing=QUICK, build=build)) as made:
        yield made


def tile(high: int, wide: int, **more: int) -> dict[str, Any]:
    base = {
        "own_high": 1,
        "own_wide": 1,
        "groups_high": 1,
        "groups_wide": 1,
        "depth": 8,
        "fetch": 1,
        "unroll": 0,
    }
    return {"stage": "T_matmul", "rule": "shared tile", "high": high, "wide": wide, **base, **more}


def test_what_is_right_belongs_to_the_task_also_if_it_has_constants() -> None:
    """Or its data would not be found."""
    task = task_of(matmul(), "opencl", constants=("b",))
    assert [r.task.workload for r in references(task)] == [task.workload]


@needs_opencl
@pytest.mark.slow
def test_faults_are_statuses_and_the_next_candidate_is_measured(measurer: Measurer, faults: Path) -> None:
    task = task_of(matmul(32), "opencl")
    kinds = {"8x4x1": "crash", "16x4x1": "outside", "4x16x1": "nan"}
    faults.write_text(json.dumps(kinds))
    sides = [(4, 8), (16, 4), (4, 16), (8, 8)]
    try:
        results = measurer.measure([MeasureInput.of(task, [tile(*s)]) for s in sides])
    finally:
        faults.write_text("{}")
    found = [r.status for r in results]
    assert found[0] is Status.CRASH, results[0]
    assert found[1:3] == [Status.WRONG, Status.WRONG]
    assert "NaN" in results[1].error and "outside of its parameter" in results[2].error
    assert found[3] is Status.OK and results[3].seconds


@needs_opencl
@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "trials"), [(matmul(32), 4), (conv(), 3)], ids=["product", "convolution"]
)
def test_a_search_ends_with_what_is_right_and_no_worse(
    program: list[Any], trials: int, tmp_path: Path, measurer: Measurer
) -> None:
    database, told = tmp_path / "tune.db", []
    options = SearchOptions(duel_rounds=4)
    sch = tune_task(
        program, "opencl", trials, database, measure=measurer, options=options, callback=told.append
    )
    assert sch.verify()
    assert told[-1].trials == trials and told[-1].statuses["ok"] >= 2
    with Database(database) as db:
        records = db.records()
    winner = records[-1]
    assert winner.origin == "winner"
    assert winner.decisions is None or (winner.ratio is not None and winner.ratio < 1)
    assert {r.machine for r in records} == {machines.fingerprint(target="opencl")}
    # the same call with as many trials measures nothing more
    again = tune_task(program, "opencl", trials, database, measure=measurer)
    assert str(again.mod) == str(sch.mod)
    with sqlite3.connect(database) as raw:
        assert raw.execute("SELECT count(*) FROM records").fetchone() == (len(records),)


@needs_opencl
@pytest.mark.slow
def test_a_model_is_tuned_and_built_by_its_records(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = relay.var("data", shape=(1, 4, 8, 8))
    kernel = relay.const(rng.standard_normal((8, 4, 3, 3)).astype("float32"))
    net = relay.nn.relu(relay.nn.conv2d(data, kernel, padding=(1, 1)))
    mod = tvm.IRModule.from_expr(relay.Function([data], net))
    tasks, weights = auto_scheduler.extract_tasks(mod["main"], {}, target="opencl")
    assert len(tasks) == 1 and weights == [1]
    log = str(tmp_path / "model.json")
    scheduler = auto_scheduler.TaskScheduler(tasks, weights, callbacks=[])
    runner = auto_scheduler.LocalRunner(repeat=1, timeout=60)
    scheduler.tune(
        auto_scheduler.TuningOptions(
            num_measure_trials=2,
            runner=runner,
            verbose=0,
            measure_callbacks=[auto_scheduler.RecordToFile(log)],
        )
    )
    x = rng.standard_normal((1, 4, 8, 8)).astype("float32")
    wanted = _run(relay.build(mod, target="opencl"), x)
    with auto_scheduler.ApplyHistoryBest(log):
        lib = relay.build(mod, target="opencl")
    np.testing.assert_allclose(_run(lib, x), wanted, rtol=1e-4, atol=1e-4)
    with History(log) as history:
        relay.build(mod, target="opencl")
    assert len(history.used) == 1 and not history.missed
    assert [t.workload for t, _ in extract(mod, {}, "opencl")] == list(history.used)


def _run(lib: Any, x: Any) -> Any:
    module = graph_executor.GraphModule(lib["default"](tvm.opencl(0)))
    module.run(data=x)
    return module.get_output(0).numpy()


# ---------------------------------------------------------------------------- templates
@autotvm.template("testing/gpu_matmul")
def gpu_matmul(n: int) -> Any:
    """Tiles in shared memory, virtual threads, cooperative fetching: what a template for GPUs decides."""
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    cfg = autotvm.get_config()
    AA, BB = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    CL = s.cache_write(C, "local")
    y, x = s[C].op.axis
    cfg.define_split("tile_y", y, num_outputs=4, filter=lambda e: e.size[2] <= 8)
    cfg.define_split("tile_x", x, num_outputs=4, filter=lambda e: e.size[2] <= 8)
    cfg.define_split("tile_k", cfg.axis(n), num_outputs=2)
    cfg.define_knob("auto_unroll_max_step", [0, 64])
    by, vy, ty, yi = cfg["tile_y"].apply(s, C, y)
    bx, vx, tx, xi = cfg["tile_x"].apply(s, C, x)
    s[C].bind(by, te.thread_axis("blockIdx.y"))
    s[C].bind(bx, te.thread_axis("blockIdx.x"))
    s[C].bind(vy, te.thread_axis("vthread"))
    s[C].bind(vx, te.thread_axis("vthread"))
    s[C].bind(ty, te.thread_axis("threadIdx.y"))
    s[C].bind(tx, te.thread_axis("threadIdx.x"))
    s[C].reorder(by, bx, vy, vx, ty, tx, yi, xi)
    s[CL].compute_at(s[C], tx)
    yl, xl = s[CL].op.axis
    (kl,) = s[CL].op.reduce_axis
    ko, ki = cfg["tile_k"].apply(s, CL, kl)
    s[CL].reorder(ko, ki, yl, xl)
    for load in (AA, BB):
        s[load].compute_at(s[CL], ko)
        fused = s[load].fuse(*s[load].op.axis)
        tz, fused = s[load].split(fused, nparts=cfg["tile_y"].size[2])
        tw, _ = s[load].split(fused, nparts=cfg["tile_x"].size[2])
        s[load].bind(tz, te.thread_axis("threadIdx.y"))
        s[load].bind(tw, te.thread_axis("threadIdx.x"))
    s[CL].pragma(ko, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    cfg.add_flop(2 * n**3)
    return s, [A, B, C]


@needs_opencl
@pytest.mark.slow
def test_a_template_with_blocks_and_virtual_threads(tmp_path: Path) -> None:
    task = autotvm.task.create("testing/gpu_matmul", args=(16,), target="opencl")
    log = str(tmp_path / "gpu.log")
    tuner = autotvm.tuner.RandomTuner(task)
    tuner.tune(
        n_trial=2,
        measure_option=autotvm.measure_option(
            builder=autotvm.LocalBuilder(n_parallel=1),
            runner=autotvm.LocalRunner(number=1, repeat=1, timeout=60),
        ),
        callbacks=[autotvm.callback.log_to_file(log)],
    )
    lines = [json.loads(line) for line in Path(log).read_text().splitlines()]
    assert len(lines) == 2 and {line["machine"] for line in lines} == {machines.fingerprint(target="opencl")}
    assert any(line["result"][1] == 0 for line in lines), lines
    with autotvm.apply_history_best(log), tvm.target.Target("opencl"):
        func = tvm.build(*gpu_matmul(16), target="opencl")
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((16, 16)).astype("float32") for _ in range(2))
    dev = tvm.opencl(0)
    c = tvm.nd.empty((16, 16), device=dev)
    func(tvm.nd.array(a, dev), tvm.nd.array(b, dev), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-4, atol=1e-4)
