"""The database: what goes in comes out, several may write, and what is foreign or damaged is named."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright import te
from tilewright.target import Target
from tilewright.tune.errors import RecordError
from tilewright.tune.measure.machines import alike, describe_machine, fingerprint, record_target
from tilewright.tune.measure.measurer import MeasureInput, MeasureResult, Status
from tilewright.tune.records.database import Database, Record
from tilewright.tune.workload import Task, task_of


def double() -> list[te.Tensor]:
    A = te.placeholder((8, 8), name="A")
    return [A, te.compute((8, 8), lambda i, j: A[i, j] * 2.0, name="B")]


@pytest.fixture
def task() -> Task:
    return task_of(double(), "llvm")


def record(task: Task, seconds: float, **changes: Any) -> Record:
    inp = MeasureInput.of(task, [{"stage": "B", "bits": int(seconds * 1e6)}])
    return replace(Record.of(inp, MeasureResult(Status.OK, (seconds, 1.1 * seconds))), **changes)


def test_records_come_back_as_they_were_added(task: Task, tmp_path: Path) -> None:
    given = [
        record(task, 2e-3, extra={"template": "mine"}, ratio=0.9),
        replace(record(task, 1e-3), status="wrong", seconds=(), error="B: 3 elements are wrong"),
    ]
    with Database(tmp_path / "a.db") as db:
        for r in given:
            db.add(r, task)
    with Database(tmp_path / "a.db") as db:
        assert db.records(task) == given
        assert db.records(task, status="wrong") == given[1:]
        assert db.records("another") == []
        again = db.task(task.workload, "llvm")
    assert again.workload == task.workload and again.name == task.name


def test_best_is_the_last_winner_else_the_fastest_right_one(task: Task) -> None:
    with Database(":memory:") as db:
        assert db.best(task) is None
        db.add(record(task, 3e-3), task)
        db.add(record(task, 2e-3), task)
        db.add(replace(record(task, 1e-3), status="wrong"), task)
        assert (found := db.best(task)) is not None and found.time == 2e-3
        db.add(record(task, 3e-3, origin="winner"), task)
        assert (found := db.best(task)) is not None and found.origin == "winner"


def test_records_of_other_machines_are_not_used(task: Task) -> None:
    other = {**describe_machine(), "cpu": "Another CPU", "cores": 96}
    foreign = record(task, 1e-6, machine=fingerprint(other))
    with Database(":memory:") as db:
        db.add(foreign, task)
        db.take([], {foreign.machine: other}, [])
        assert db.best(task) is None
        assert "1 records of main are of other machines" in db.elsewhere(task)
        assert "cpu Another CPU instead of" in db.elsewhere(task) and "cores 96 instead" in db.elsewhere(task)
        assert db.best(task, machine=foreign.machine) == foreign
        db.add(record(task, 2e-3), task)
        assert (found := db.best(task)) is not None and found.time == 2e-3


@pytest.fixture
def two_of_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of four cores, of which this process may use two."""
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    monkeypatch.setattr("tilewright.target.machine.host_cores", lambda: 2)


def test_what_a_process_may_use_is_of_the_target_and_not_of_the_machine(
    two_of_four: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert describe_machine()["cores"] == 4
    assert record_target("llvm") == "llvm -keys=cpu -num-cores=2" == record_target("llvm -num-cores=2")
    assert record_target("llvm -num-cores=1") == "llvm -keys=cpu -num-cores=1"
    for fixed in ("opencl", "llvm -mtriple=aarch64-linux-gnu"):  # as they are, in any process
        assert record_target(fixed) == str(Target(fixed))
    assert alike("llvm -keys=cpu -num-cores=2", "llvm") and alike("llvm -keys=cpu", "llvm")
    assert not alike("llvm -keys=cpu -num-cores=2", "llvm -num-cores=4")
    monkeypatch.setenv("TILEWRIGHT_NUM_THREADS", "1")
    assert describe_machine()["cores"] == 4


def test_records_of_other_numbers_of_threads_are_not_used_and_that_is_said(
    two_of_four: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = double()
    two = task_of(program, "llvm")
    with Database(":memory:") as db:
        db.add(record(two, 1e-3), two)
        monkeypatch.setattr("tilewright.target.machine.host_cores", lambda: 4)
        four, named = task_of(program, "llvm"), task_of(program, "llvm -num-cores=2")
        assert db.best(four) is None and db.records(four, machine=fingerprint()) == []
        assert db.best(named) == db.best(named, machine=fingerprint()) == db.records()[0]
        assert db.elsewhere(four) == (
            "1 records of main are for `llvm -keys=cpu -num-cores=2` and are not used for "
            "`llvm -keys=cpu -num-cores=4`; tune for that too, or build for theirs"
        )
        assert db.best(four, machine="any") is not None and db.best(four, loosely=True) is not None
        db.add(record(four, 2e-3), four)
        assert (found := db.best(four)) is not None and found.time == 2e-3
        assert [t["target"][-1] for t in db.tasks()] == ["2", "4"]


def test_records_of_before_targets_had_threads_are_found(
    two_of_four: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the machine had as many cores as the process."""
    task = task_of(double(), "llvm")
    there = {cores: fingerprint({**describe_machine(), "cores": cores}) for cores in (2, 4)}
    old = [record(task, c * 1e-3, target=str(task.target), machine=name) for c, name in there.items()]
    with Database(":memory:") as db:
        for r in old:
            db.add(r, task)
        assert db.best(task) == old[0] and db.records(task, machine=fingerprint()) == old[:1]
        monkeypatch.setattr("tilewright.target.machine.host_cores", lambda: 4)
        whole = task_of(double(), "llvm")
        assert db.best(whole) == old[1] and db.records(whole, machine=fingerprint()) == old[1:]


def test_fingerprints_tell_versions_apart() -> None:
    old = describe_machine()
    assert fingerprint(old) == fingerprint()
    assert fingerprint({**old, "versions": {**old["versions"], "llvm": "1.0"}}) != fingerprint()


def test_what_may_only_be_read_is_read(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, given = tmp_path / "a.db", record(task, 1e-3)
    with Database(path) as db:
        db.add(given, task)
    monkeypatch.setattr(
        "os.access", lambda place, mode: False
    )  # as on a disc, or in a folder of somebody else
    with Database(path) as db:
        assert db.readonly and db.best(task) == given and db.task(task.workload, "llvm").name == "main"
        with pytest.raises(RecordError, match=r"readonly database; copy the file to where you may write$"):
            db.add(record(task, 2e-3), task)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.db"]  # nor is anything left beside it


def test_a_disk_that_is_full_is_named_and_what_was_added_is_kept(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Database(path) as db:
        db.add(record(task, 1e-3), task)
        (pages,) = db._db.execute("PRAGMA page_count").fetchone()
        db._db.execute(f"PRAGMA max_page_count={pages}")
        with pytest.raises(RecordError) as error:
            for _ in range(100):
                db.add(record(task, 2e-3, error="x" * 1000), task)
    assert str(error.value) == (
        f"{path}: the records cannot be read or written: database or disk is full; make room there: earlier "
        "records are kept, and a search resumes from them (--resume)"
    )
    with Database(path) as db:
        assert db.records(task)[0].time == 1e-3
        db.add(record(task, 3e-3), task)


def test_merging_takes_each_record_once(task: Task, tmp_path: Path) -> None:
    with Database(tmp_path / "a.db") as a, Database(tmp_path / "b.db") as b:
        a.add(record(task, 1e-3), task)
        b.add(record(task, 2e-3), task)
        assert a.merge(b) == 1
        assert a.merge(tmp_path / "b.db") == 0
        assert len(a.records(task)) == 2
    with Database(":memory:") as db, pytest.raises(RecordError, match="there is no such file"):
        db.merge(tmp_path / "c.db")


def test_json_lines_there_and_back(task: Task, tmp_path: Path) -> None:
    with Database(":memory:") as a, Database(":memory:") as b:
        a.add(record(task, 1e-3, extra={"k": [1]}), task)
        a.add(replace(record(task, 1e-3), status="crash", seconds=(), error="SIGSEGV"), task)
        assert a.export_json(tmp_path / "r.jsonl") == 2
        assert b.import_json(tmp_path / "r.jsonl") == 2
        assert b.import_json(tmp_path / "r.jsonl") == 0
        assert b.records() == a.records() and b.machines() == a.machines()
        assert b.task(task.workload, "llvm").workload == task.workload


def test_lines_are_written_as_a_whole_or_not_at_all(
    task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("as it was")
    os.symlink(path, tmp_path / "link.jsonl")

    def full(part: Any, place: Any) -> None:
        raise OSError(28, "No space left on device")

    with Database(":memory:") as db:
        db.add(record(task, 1e-3), task)
        with monkeypatch.context() as patch:
            patch.setattr("os.replace", full)
            with pytest.raises(
                RecordError, match=r"r\.jsonl: the records cannot be written: .*:memory: has them"
            ):
                db.export_json(path)
        assert path.read_text() == "as it was"
        assert db.export_json(tmp_path / "link.jsonl") == 1 and path.read_text().startswith('{"format"')
        assert db.export_json("/dev/null") == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.jsonl", "r.jsonl"]


def test_pruning_leaves_the_fastest_and_the_winner(task: Task) -> None:
    with Database(":memory:") as db:
        for n in range(6):
            db.add(record(task, (n + 1) * 1e-3), task)
        db.add(replace(record(task, 1e-3), status="timeout", seconds=()), task)
        for seconds in (9e-3, 8e-3):
            db.add(record(task, seconds, origin="winner"), task)
        assert db.prune(keep=2) == 6
        assert [r.time for r in db.records()] == [1e-3, 2e-3, 8e-3]


def test_the_table(task: Task) -> None:
    with Database(":memory:") as db:
        db.add(record(task, 1e-3), task)
        db.add(replace(record(task, 1e-3), status="crash", seconds=()), task)
        head, line = db.show().splitlines()
        assert head.split() == ["name", "workload", "target", "machine", "records", "ok", "best", "nodes"]
        assert line.split()[0] == "main" and line.split()[-4:] == ["2", "1", "1000.0", "us"]


@pytest.mark.parametrize(
    "text, told",
    [
        (
            b"this is not a database at all, and long enough to be looked at",
            "not a file of tuning records, or a damaged",
        ),
        (None, "a database of something else"),
    ],
)
def test_foreign_files_are_refused(text: bytes | None, told: str, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    if text is None:
        with sqlite3.connect(path) as other:
            other.execute("CREATE TABLE songs (name TEXT)")
        other.close()
    else:
        path.write_bytes(text * 100)
    with pytest.raises(RecordError, match=told) as error:
        Database(path)
    assert str(path) in str(error.value)


def test_damaged_and_newer_files_are_refused(task: Task, tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with Database(path) as db:
        for n in range(200):
            db.add(record(task, (n + 1) * 1e-3, error="x" * 500), task)
        db._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[8192:-4096] = b"\x55" * (len(data) - 12288)
    path.write_bytes(bytes(data))
    with pytest.raises(RecordError, match="damaged"), Database(path) as db:
        db.records()
    with Database(tmp_path / "new.db") as db:
        db._db.execute("PRAGMA user_version=99")
    with pytest.raises(RecordError, match="its format is 99"):
        Database(tmp_path / "new.db")
    with pytest.raises(RecordError, match="is a folder"):
        Database(tmp_path)


@pytest.mark.parametrize(
    "lines, told",
    [
        ([], "the file is empty"),
        (["{"], "line 1: this is not a tuning record"),
        (['{"format": "other"}'], "line 1: this is not a tuning record: the format is 'other'"),
        (['{"format": "tilewright-records-1"}', '{"record": {}}'], "line 2: this is not a tuning record"),
    ],
)
def test_bad_json_lines_are_refused(lines: list[str], told: str, tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("".join(f"{line}\n" for line in lines))
    with Database(":memory:") as db, pytest.raises(RecordError, match=told):
        db.import_json(tmp_path / "r.jsonl")


def test_times_from_outside_are_checked(task: Task, tmp_path: Path) -> None:
    with Database(":memory:") as db:
        db.add(record(task, 1e-3), task)
        db.export_json(tmp_path / "r.jsonl")
        lines = (tmp_path / "r.jsonl").read_text().splitlines()
        data = json.loads(lines[-1])
        data["record"]["seconds"] = [-1.0]
        (tmp_path / "r.jsonl").write_text("\n".join([*lines[:-1], json.dumps(data)]))
        with pytest.raises(RecordError, match="times are positive numbers"):
            db.import_json(tmp_path / "r.jsonl")
        assert len(db.records()) == 1


@pytest.mark.slow
def test_several_processes_write_at_once(tmp_path: Path) -> None:
    program = """
import sys
from tilewright.tune.records.database import Database, Record
with Database(sys.argv[1]) as db:
    for n in range(200):
        db.add(Record("w", "llvm", "m", "ok", seconds=(1e-3,), seed=n))
"""
    path = str(tmp_path / "a.db")
    several = [subprocess.Popen([sys.executable, "-c", program, path]) for _ in range(3)]
    assert [p.wait() for p in several] == [0, 0, 0]
    with Database(path) as db:
        assert sorted(r.seed for r in db.records("w")) == sorted([*range(200)] * 3)


def test_names_in_a_model(task: Task) -> None:
    named = replace(task, nodes=("fc1",), names=("fc1", "act1", "fused_nn_dense_1"))
    assert named == task and named.workload == task.workload
    assert named.title == f"{task.name} (fc1)" and task.title == task.name
    assert named.is_called("act1") and named.is_called(task.workload[:8]) and not named.is_called("fc2")
    with Database(":memory:") as db:
        made = record(task, 1e-3)
        db.add(replace(made, uid="", extra={"nodes": ["fc1"], "names": list(named.names)}), named)
        db.add(
            replace(made, uid="", extra={"nodes": 3, "names": None}), named
        )  # a damaged file is no error here
        (line,) = db.tasks()
        assert line["nodes"] == ["fc1"] and line["names"] == list(named.names)
