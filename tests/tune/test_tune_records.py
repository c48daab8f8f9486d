"""The database: what goes in comes out, several may write, and what is foreign or damaged is named."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tilewright import te
from tilewright.tune.errors import RecordError
from tilewright.tune.machines import describe_machine, fingerprint
from tilewright.tune.measure import MeasureInput, MeasureResult, Status
from tilewright.tune.records import Database, Record
from tilewright.tune.workload import Task, task_of


@pytest.fixture
def task() -> Task:
    A = te.placeholder((8, 8), name="A")
    return task_of([A, te.compute((8, 8), lambda i, j: A[i, j] * 2.0, name="B")], "llvm")


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


def test_fingerprints_tell_versions_apart() -> None:
    old = describe_machine()
    assert fingerprint(old) == fingerprint()
    assert fingerprint({**old, "versions": {**old["versions"], "llvm": "1.0"}}) != fingerprint()


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
        assert head.split() == ["name", "workload", "target", "machine", "records", "ok", "best"]
        assert line.split()[0] == "main" and line.split()[-4:] == ["2", "1", "1000.0", "us"]


@pytest.mark.parametrize(
    "text, told",
    [
        (
            b"this is no database at all, and long enough to be looked at",
            "no file of tuning records, or a damaged",
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
        (["{"], "line 1: this is no tuning record"),
        (['{"format": "other"}'], "line 1: this is no tuning record: the first line must say"),
        (['{"format": "tilewright-records-1"}', '{"record": {}}'], "line 2: this is no tuning record"),
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
from tilewright.tune.records import Database, Record
with Database(sys.argv[1]) as db:
    for n in range(200):
        db.add(Record("w", "llvm", "m", "ok", seconds=(1e-3,), seed=n))
"""
    path = str(tmp_path / "a.db")
    several = [subprocess.Popen([sys.executable, "-c", program, path]) for _ in range(3)]
    assert [p.wait() for p in several] == [0, 0, 0]
    with Database(path) as db:
        assert sorted(r.seed for r in db.records("w")) == sorted([*range(200)] * 3)
