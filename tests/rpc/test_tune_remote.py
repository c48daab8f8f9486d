"""Tuning on the servers of a tracker, over loopback: real sessions, libraries and times."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import autotvm, relay, rpc, te, tvmc
from tilewright.rpc.client import Leases
from tilewright.target import Target
from tilewright.tune.errors import MachineError
from tilewright.tune.measure import remote as measure_remote
from tilewright.tune.measure.machines import fingerprint
from tilewright.tune.measure.measurer import MeasureInput, MeasureOptions, MeasureResult, Status, Timing
from tilewright.tune.measure.remote import Remote
from tilewright.tune.records.database import Database, Record
from tilewright.tune.records.history import History
from tilewright.tune.space import Sketches
from tilewright.tune.workload import stable_key, task_of
from tilewright.tvmc.model import TVMCModel

QUICK = Timing(repeats=2, sample_seconds=1e-3, seconds=1e-3, rounds=2)


@pytest.fixture(scope="module")
def boards() -> Iterator[Leases]:
    with (
        rpc.Tracker(port=9500, port_end=9900) as tracker,
        rpc.Server(port=9500, port_end=9900, key="board", tracker_addr=("127.0.0.1", tracker.port)),
    ):
        leases = Leases("127.0.0.1", tracker.port, "board")
        deadline = time.monotonic() + 20
        while not leases.there and time.monotonic() < deadline:  # the server registers when it has started
            time.sleep(0.05)
        yield leases


def matmul(n: int = 32) -> list[Any]:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    return [A, B, te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")]


@pytest.mark.slow
def test_times_and_turns_with_the_incumbent(boards: Leases) -> None:
    task = task_of(matmul(), "llvm -num-cores=1", constants=("B",))
    plain = MeasureInput.of(task)
    with Remote(boards.session, boards.key, MeasureOptions(builders=1, timing=QUICK)) as measure:
        (first,) = measure.measure([plain])
        assert first.ok and 1e-8 < first.time < 1.0 and first.ratio is None, first.error
        assert first.machine == fingerprint(measure.machine) != fingerprint()
        (again,) = measure.measure([plain], plain)
        assert again.ok and again.ratio is not None and len(again.seconds) == 2 + QUICK.rounds
        duel = measure.duel(plain, MeasureInput(task, "plain", None), rounds=2)
        assert duel.first.ok and duel.second.ok and duel.ratio < 1.5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "status"),
    [
        ("garbage", Status.WRONG),
        ("segfault", Status.CRASH),
        ("hang", Status.TIMEOUT),
        ("refuse", Status.BUILD_ERROR),
    ],
)
def test_faults(
    boards: Leases, fault: str, status: Status, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = Path(__file__).parents[1] / "tune"
    monkeypatch.syspath_prepend(str(faulty))
    monkeypatch.setattr(measure_remote, "_PATIENCE", 1.5)
    task = task_of(matmul(), "llvm -num-cores=1")
    bad = MeasureInput.of(task)
    place = tmp_path / "faults.json"
    place.write_text(json.dumps({stable_key(Sketches(task).apply(None).mod): fault}))
    monkeypatch.setenv("TILEWRIGHT_TEST_FAULTS", str(place))
    options = MeasureOptions(builders=1, run_limit=0.5, timing=QUICK, build="faulty_build:build")
    with Remote(boards.session, boards.key, options) as measure:
        wrong, right = measure.measure([bad, MeasureInput(task, "plain", None)])
    assert wrong.status is status, wrong.error
    assert right.ok, right.error


@pytest.mark.slow
def test_a_tracker_that_is_gone() -> None:
    tracker = rpc.Tracker()
    gone = Leases("127.0.0.1", tracker.port, "board")
    tracker.terminate()
    assert not gone.there
    task = task_of(matmul(8), "llvm -num-cores=1")
    with (
        Remote(gone.session, "board", MeasureOptions(builders=1, timing=QUICK)) as measure,
        pytest.raises(MachineError, match="no server of the key 'board' measures"),
    ):
        measure.measure([MeasureInput.of(task)])


@pytest.mark.slow
def test_the_doors(boards: Leases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tvmc.tune and autotvm.RPCRunner measure there, and the records are those of the key."""
    assert boards.there and not Leases(boards.host, boards.port, "other").there
    x, w = relay.var("x", shape=(4, 64)), relay.var("w", shape=(32, 64))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    weights = {"w": tvm.nd.array(np.ones((32, 64), "float32"))}
    model, path = TVMCModel(mod, weights, "net"), str(tmp_path / "tune.db")
    where = {"hostname": boards.host, "port": boards.port, "rpc_key": boards.key}
    tvmc.tune(
        model, "llvm -num-cores=1", path, trials=2, parallel=1, min_repeat_ms=1, tuner="analytical", **where
    )
    with Database(path) as database:
        (machine,) = {r.machine for r in database.records()}
        assert database.machines()[machine]["rpc"] == "board"
        assert any(r.ok for r in database.records())
    with pytest.raises(tvmc.TVMCException, match=r"which needs rpc_key= \(--rpc-key\) too"):
        tvmc.tune(model, "llvm", hostname="board")
    monkeypatch.setattr(autotvm.measure.measure_methods, "servers_here", lambda *place: False)
    runner = autotvm.RPCRunner("board", boards.host, boards.port, number=1, repeat=1)
    opened = runner._open()
    try:
        assert isinstance(opened, Remote) and opened.machine["rpc"] == "board"
    finally:
        opened.close()


def test_records_of_a_board_are_applied_when_compiling_for_it() -> None:
    """For a machine that is not this one, records count that were measured there."""
    task = task_of(matmul(), "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72")
    record = Record.of(
        MeasureInput.of(task), MeasureResult(Status.OK, (1e-3,), machine="0123456789abcdef"), 0
    )
    assert History([record]).find(task) is record
    here = replace(task, target=Target("llvm"))
    other = replace(record, target=str(Target("llvm")))
    with pytest.warns(RuntimeWarning, match="are of another machine and are not applied"):
        assert History([other]).find(here) is None
