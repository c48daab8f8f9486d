"""Tuning for accelerators: one exact run for each trial, checked; faults are statuses; records replay."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import chip_programs as programs
import numpy as np
import outside_chip
import pytest

import tilewright as tvm
from tilewright import te, vta
from tilewright.target.kinds import module_of_kind
from tilewright.tune.errors import RecordError, TuneError
from tilewright.tune.measure.checking import make_inputs
from tilewright.tune.measure.fleet import Fleet
from tilewright.tune.measure.machines import describe_machine, differences, fingerprint
from tilewright.tune.measure.measurer import MeasureInput, MeasureOptions, Measurer, Status
from tilewright.tune.records.database import Database
from tilewright.tune.records.history import History
from tilewright.tune.search.display import line_of
from tilewright.tune.search.search import Progress, SearchOptions, Tuner, tune_task
from tilewright.tune.workload import Task, task_of

ARGS = programs.conv(8, 2, 4, 1, 2)


def task(target: str = programs.CHIP) -> Task:
    return task_of(te.create_prim_func(ARGS), target)


def cycles(mod: Any) -> int:
    return programs.simulated(mod, programs.arrays_of(ARGS))[1].cycles


@pytest.fixture(scope="module")
def measurer() -> Any:
    with Measurer(MeasureOptions(builders=1)) as made:
        yield made


def run(script: str | Path) -> subprocess.CompletedProcess[str]:
    """A script in another process, which finds the modules of this folder."""
    there = {**os.environ, "PYTHONPATH": ":".join([str(Path(__file__).parent), *filter(None, sys.path)])}
    return subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, env=there
    )


# ---------------------------------------------------------------------------- one run, exact
@pytest.mark.slow
def test_a_trial_is_one_exact_run(measurer: Measurer) -> None:
    mine = task()
    zero = MeasureInput.of(mine)
    (first,) = measurer.measure([zero])
    (again,) = measurer.measure([zero], incumbent=zero)
    assert first.ok and first.seconds == again.seconds and len(first.seconds) == 1
    assert again.ratio is None
    assert round(first.time * 100e6) == cycles(tvm.auto_schedule(te.create_prim_func(ARGS), "ext_dev").mod)


@pytest.mark.slow
def test_a_duel_of_exact_times(measurer: Measurer) -> None:
    tuner = Tuner(task(), measurer)
    (stage,) = tuner.space.stages
    worst = MeasureInput.of(task(), [stage.decision(int(np.argmax(stage.seconds)))])
    duel = measurer.duel(worst, MeasureInput.of(task()))
    assert duel.ratio > 1 and duel.ratio == duel.first.time / duel.second.time


def test_inputs_are_not_all_alike_after_their_epilogue() -> None:
    mine = task()
    inputs = make_inputs(mine)
    assert inputs[0].min() < -100 and inputs[0].max() > 100
    assert len(np.unique(programs.reference(ARGS, inputs))) > 4


def test_the_configuration_travels_with_the_target(measurer: Measurer) -> None:
    slow = vta.Environment(vta.Config(dram_bytes_per_cycle=2))
    with slow:
        mine = task()
        (there,) = measurer.measure([MeasureInput.of(mine)])
        assert round(there.time * 100e6) == cycles(
            tvm.auto_schedule(te.create_prim_func(ARGS), "ext_dev").mod
        )
    assert str(mine.target) == "ext_dev -machine=DRAM_BYTES_PER_CYCLE:2"
    (here,) = measurer.measure([MeasureInput.of(task())])
    assert there.time > here.time


# ---------------------------------------------------------------------------- faults
@pytest.mark.parametrize(
    ("fault", "status", "why"),
    [
        ("silent", Status.WRONG, "elements differ"),
        ("ending", Status.CRASH, "SIGABRT"),
        ("staying", Status.TIMEOUT, "no answer after 1 s"),
        ("failing", Status.RUN_ERROR, "ValueError: this chip is broken"),
        ("unsendable", Status.BUILD_ERROR, "let its `run` be a function of a module, or define `__reduce__`"),
        ("unlike", Status.BUILD_ERROR, "the code generator of the chip makes a object"),
    ],
)
@pytest.mark.slow
def test_faults_are_statuses(fault: str, status: Status, why: str) -> None:
    options = MeasureOptions(builders=1, run_limit=1.0, build=f"faulty_chip_build:{fault}")
    with Measurer(options) as measurer:
        (result,) = measurer.measure([MeasureInput.of(task())])
    assert result.status is status
    assert why in result.error


@pytest.mark.parametrize("target", [programs.CHIP, "outside_chip"])
@pytest.mark.slow
def test_a_wrong_result_has_a_script(target: str, tmp_path: Path) -> None:
    options = MeasureOptions(builders=1, build="faulty_chip_build:silent", reproducers=str(tmp_path))
    with Measurer(options) as measurer:
        (result,) = measurer.measure([MeasureInput.of(task(target))])
    # the script builds with the real build function
    ran = run(result.reproducer)
    assert (ran.returncode, ran.stdout.strip()) == (0, "both compute the same"), ran.stderr


# ---------------------------------------------------------------------------- search, records, replay
@pytest.mark.slow
def test_a_search_finds_what_is_best_and_its_record_replays(tmp_path: Path) -> None:
    path, func = tmp_path / "chip.db", te.create_prim_func(ARGS)
    zero = cycles(tvm.auto_schedule(func, "ext_dev").mod)
    told: list[Progress] = []
    options = SearchOptions(min_gain=0.0, patience=1000)
    made = tune_task(func, "ext_dev", 12, path, options=options, callback=told.append)
    best = cycles(made.mod)
    assert best <= zero
    assert "12/12" in line_of(told[-1]) and told[-1].statuses == {"ok": 12}
    with Database(path) as db:
        trials = [r for r in db.records(task()) if r.origin == "trial"]
        winner = db.best(task())
    assert len(trials) == 12 and all(len(r.seconds) == 1 for r in trials)
    assert winner is not None and winner.origin == "winner"
    assert round(winner.time * 100e6) == best == min(round(r.time * 100e6) for r in trials)
    with History(path) as history:
        again = tvm.auto_schedule(func, "ext_dev")
    tvm.ir.assert_structural_equal(again.mod, made.mod)
    assert history.summary().startswith("1 of 1 programs") or winner.decisions is None
    # nothing is measured again
    tvm.ir.assert_structural_equal(tune_task(func, "ext_dev", 12, path, options=options).mod, made.mod)


@pytest.mark.slow
def test_a_record_of_decisions_is_applied(tmp_path: Path) -> None:
    made = programs.sketches(ARGS)
    (stage,) = made.space.stages
    other = int(np.argsort(stage.seconds)[40])
    with Measurer(MeasureOptions(builders=1)) as measurer:
        tuner = Tuner(task(), measurer, Database(tmp_path / "chip.db"))
        tuner._measure(np.array([[other]]))
    with History(tmp_path / "chip.db"):
        found = tvm.auto_schedule(te.create_prim_func(ARGS), "ext_dev")
    tvm.ir.assert_structural_equal(found.mod, made.apply([stage.decision(other)]).mod)
    assert "by a record" in str(found.explanation)


def test_records_are_of_a_chip(tmp_path: Path) -> None:
    slow = "ext_dev -machine=DRAM_LATENCY:99"
    here, there = describe_machine("ext_dev"), describe_machine(slow)
    assert here["chip"] == "vta" and fingerprint(target="ext_dev") == fingerprint(here)
    assert fingerprint(here) != fingerprint(there)
    assert "port" in differences(here, there) and "'latency': 99" in differences(there, here)
    # whatever the host is
    assert "cpu" not in here and "cores" not in here


@pytest.mark.slow
def test_other_steps_in_a_record_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "chip.db"
    tune_task(te.create_prim_func(ARGS), "ext_dev", 2, path)
    with Database(path, trusted=True) as db:
        text = db._db.execute("SELECT trace FROM records WHERE trace IS NOT NULL").fetchone()[0]
        assert "pragma_dma_copy" in text
        changed = text.replace("pragma_dma_copy", "pragma_import_llvm")
        db._db.execute("UPDATE records SET trace = ?", (changed,))
        db._db.commit()
    with Database(path) as db, pytest.raises(RecordError, match="pragma_import_llvm"):
        db.records(task())


# ---------------------------------------------------------------------------- chips from outside
@pytest.mark.slow
def test_a_chip_from_outside(measurer: Measurer) -> None:
    assert module_of_kind("outside_chip") == "outside_chip" and not module_of_kind("ext_dev")
    mine = task("outside_chip")
    (result,) = measurer.measure([MeasureInput.of(mine)])
    assert result.ok, result.error
    arrays = programs.arrays_of(ARGS)
    right = programs.reference(ARGS, arrays)
    module = tvm.build(
        tvm.auto_schedule(te.create_prim_func(ARGS), "outside_chip").mod, target="outside_chip"
    )
    assert pickle.loads(pickle.dumps(module)).call("main", arrays) == result.time
    np.testing.assert_array_equal(arrays[-1], right)
    (usual,) = measurer.measure([MeasureInput.of(task())])
    assert outside_chip.CONFIG.dram_latency > 24 and result.time > usual.time


SCRIPT = """
import sys
import chip_programs as programs
from tilewright import te
from tilewright.backends import backend_of, register
from tilewright.target import Target
import dataclasses, outside_chip
register(dataclasses.replace(backend_of(Target("outside_chip")), name="of_a_script"{more}))
from tilewright.tune.search.search import tune_task
tune_task(te.create_prim_func(programs.matmul()), "of_a_script", 2)
"""


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            "",
            "was registered by __main__, which the processes that measure cannot import; register it in a module",
        ),
        (
            ", measurable=False, capabilities=frozenset()",
            "does not say that its programs can be run from here",
        ),
    ],
)
@pytest.mark.slow
def test_a_chip_that_workers_cannot_know(more: str, why: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(more=more))
    ran = run(script)
    assert ran.returncode == 1
    assert why in ran.stderr.splitlines()[-1]


def test_a_fleet_has_no_simulators() -> None:
    fleet = Fleet.__new__(Fleet)
    with pytest.raises(TuneError, match="counts the same cycles everywhere"):
        fleet._check_target(task())
