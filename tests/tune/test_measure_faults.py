"""Candidates that crash, hang, exit, eat memory or compute garbage: each is a status, and the search ends as without them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tune_fakes import Steady, odd

from tilewright import te
from tilewright.tune.measure import pool
from tilewright.tune.measure.measurer import MeasureInput, MeasureOptions, Measurer, Status, Timing
from tilewright.tune.records.database import Database
from tilewright.tune.search.search import SearchOptions, tune_task
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task, stable_key, task_of

SIZE = 32
QUICK = Timing(repeats=2, sample_seconds=1e-4, seconds=1e-3, rounds=2)
# what each fault may be called
EXPECTED = {
    "segfault": {Status.CRASH},
    "abort": {Status.CRASH},
    "exit": {Status.CRASH},
    "spin": {Status.TIMEOUT},
    "hang": {Status.TIMEOUT},
    "eat": {Status.CRASH, Status.MEMORY},
    "nan": {Status.WRONG},
    "garbage": {Status.WRONG},
    "outside": {Status.WRONG},
    "input": {Status.CRASH, Status.RUN_ERROR},  # inputs cannot be written
    "refuse": {Status.BUILD_ERROR},
    "die": {Status.BUILD_CRASH},
    "stay": {Status.BUILD_TIMEOUT},
    "swell": {Status.BUILD_MEMORY},
}


def matmul(n: int = SIZE) -> list[Any]:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    return [A, B, te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


@pytest.fixture(scope="module")
def task() -> Task:
    return task_of(matmul(), "llvm -num-cores=1")


@pytest.fixture
def faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "faults.json"
    path.write_text("{}")
    monkeypatch.setenv("TILEWRIGHT_TEST_FAULTS", str(path))
    return path


@pytest.fixture
def measurer(tmp_path: Path, faults: Path) -> Iterator[Measurer]:
    options = MeasureOptions(
        builders=1,
        build_limit=3.0,
        run_limit=2.0,  # for 512 MB that are touched page by page, on a machine that is busy
        memory=512,
        timing=QUICK,
        build="faulty_build:build",
        reproducers=str(tmp_path / "wrong"),
    )
    with Measurer(options) as made:
        yield made


def candidates(task: Task, count: int) -> list[MeasureInput]:
    space = Sketches(task).space
    rows = space.sample(np.random.default_rng(0), count)
    return [MeasureInput.of(task, space.decisions(r)) for r in rows]


def key_of(inp: MeasureInput) -> str:
    return stable_key(Sketches(inp.task).apply(inp.what).mod)


@pytest.mark.long
@pytest.mark.slow
def test_every_fault_is_a_status_and_the_pool_goes_on(
    task: Task, measurer: Measurer, faults: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "_PATIENCE", 3.0)  # two of them only wait
    inputs = candidates(task, 2 * len(EXPECTED))
    plan = dict(zip(EXPECTED, inputs[::2], strict=True))
    faults.write_text(json.dumps({key_of(inp): kind for kind, inp in plan.items()}))
    told: list[int] = []
    results = measurer.measure(inputs, each=lambda i, inp, result: told.append(i))
    assert sorted(told) == list(range(len(inputs)))
    found = {kind: results[2 * n] for n, kind in enumerate(EXPECTED)}
    assert [(k, r.status, r.error) for k, r in found.items() if r.status not in EXPECTED[k]] == []
    # a candidate after a fault is as any other
    assert [(r.status, r.error) for r in results[1::2] if not r.ok or not r.seconds] == []
    assert "SIGSEGV" in found["segfault"].error and "SIGABRT" in found["abort"].error
    assert "exit code 0" in found["exit"].error
    assert f"{SIZE * SIZE} of them NaN" in found["nan"].error
    assert "12345.0 instead of" in found["garbage"].error
    assert "RuntimeError: this cannot be built" in found["refuse"].error
    assert all(r.time == float("inf") for r in found.values())


@pytest.mark.slow
def test_a_search_with_faults_ends_with_the_same_best(
    task: Task, measurer: Measurer, faults: Path, tmp_path: Path
) -> None:
    def times(inp: MeasureInput) -> float:
        return 1e-3 * (1 + odd(inp))

    options = SearchOptions(model="analytical", batch=12)
    ends = []
    for spoil in (False, True):
        steady = Steady(measurer, times)
        path = tmp_path / f"{spoil}.db"
        if spoil:
            ranked = sorted((w for w in ends[0][1]), key=lambda w: times(MeasureInput.of(task, w)))
            kinds = ("segfault", "exit", "nan", "garbage", "spin", "eat", "refuse")
            bad = [w for w in ranked[1:] if w is not None][: len(kinds)]
            keys = {key_of(MeasureInput.of(task, w)): k for w, k in zip(bad, kinds, strict=True)}
            faults.write_text(json.dumps(keys))
        with Database(path) as db:
            tune_task(task, trials=12, database=db, measure=steady, options=options)
            best = db.best(task)
            statuses = {r.status for r in db.records(task)}
        assert best is not None
        ends.append((best.decisions, steady.seen, statuses))
    assert ends[0][2] == {"ok"} and {"crash", "wrong", "build error"} < ends[1][2]
    assert ends[0][0] == ends[1][0]


@pytest.mark.slow
def test_a_wrong_candidate_leaves_a_script_that_shows_it(
    task: Task, measurer: Measurer, faults: Path, tmp_path: Path
) -> None:
    (inp,) = candidates(task, 1)
    faults.write_text(json.dumps({key_of(inp): "garbage"}))
    (result,) = measurer.measure([inp])
    assert result.status is Status.WRONG and Path(result.reproducer).parent == tmp_path / "wrong"
    # built as everybody builds, the candidate is right: the script says so
    ran = subprocess.run([sys.executable, result.reproducer], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout) == (0, "both compute the same\n"), ran.stderr
    # and it says what is wrong of a program that is: here one that another was written into
    data = json.loads(Path(result.reproducer).with_suffix(".json").read_text())
    from faulty_build import spoiled

    from tilewright.ir.module import IRModule
    from tilewright.ir.serialize import save_json

    data["candidate"] = {"program": save_json(IRModule({"main": spoiled(task.func, "garbage")}))}
    Path(result.reproducer).with_suffix(".json").write_text(json.dumps(data))
    ran = subprocess.run([sys.executable, result.reproducer], capture_output=True, text=True)
    assert ran.returncode == 1 and "C: 1024 of 1024 elements are wrong" in ran.stdout


KILLED = """
import sys
from tilewright import te
from tilewright.tune.measure.measurer import MeasureOptions, Timing
from tilewright.tune.search.search import SearchOptions, tune_task
sys.path.insert(0, {folder!r})
from test_measure_faults import QUICK, matmul
tune_task(matmul(), "llvm -num-cores=1", trials=200, database={path!r}, seed=5,
          options=SearchOptions(model="analytical", batch=4, min_gain=0.0),
          measure=MeasureOptions(builders=1, timing=QUICK))
"""


def children_of(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_search_loses_nothing_and_leaves_nobody_behind(tmp_path: Path) -> None:
    path = str(tmp_path / "tune.db")
    program = KILLED.format(folder=str(Path(__file__).parent), path=path)
    search = subprocess.Popen([sys.executable, "-c", program])
    task = task_of(matmul(), "llvm -num-cores=1")
    try:
        while search.poll() is None and (not os.path.exists(path) or count(path, task) < 5):
            time.sleep(0.05)
        assert search.poll() is None
        workers = children_of(search.pid)
        assert workers
    finally:
        search.send_signal(signal.SIGKILL)
        search.wait()
    end = time.monotonic() + 120
    while any(os.path.exists(f"/proc/{w}") and not is_zombie(w) for w in workers):
        assert time.monotonic() < end, "workers outlive the search"
        time.sleep(0.05)
    left = Path(tempfile.gettempdir())
    assert list(left.glob(f"tilewright-measure-{search.pid}-*"))
    with Database(path) as db:
        before = db.records(task)
        assert len(before) >= 5
        options = SearchOptions(model="analytical", batch=4)
        with Measurer(MeasureOptions(builders=1, timing=QUICK)) as measurer:
            tune_task(task, trials=len(before) + 4, database=db, measure=measurer, options=options, seed=5)
        after = db.records(task)
    trials = [r for r in after if r.origin == "trial"]
    assert after[: len(before)] == before and len(trials) == len(before) + 4
    assert len({json.dumps(r.decisions) for r in trials}) == len(trials), "nothing is measured twice"
    assert [r.origin for r in after].count("winner") == 1
    assert not list(left.glob(f"tilewright-measure-{search.pid}-*")), "the next one clears up"


def count(path: str, task: Task) -> int:
    with Database(path) as db:
        return len(db.records(task))


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True
