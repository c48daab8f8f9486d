"""Records around `auto_schedule`: which are taken, which are not, and what is said of those."""

from __future__ import annotations

import json
import re
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.equal import structural_equal
from tilewright.ir.module import IRModule
from tilewright.tune import auto_schedule
from tilewright.tune.errors import RecordError
from tilewright.tune.measure.machines import describe_machine, fingerprint
from tilewright.tune.measure.measurer import MeasureInput, MeasureResult, Status
from tilewright.tune.records.database import Database, Record
from tilewright.tune.records.history import History, current, lookup
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task, task_of

TARGET = "llvm -mcpu=skylake-avx512 -num-cores=4"


def product(name: str = "main", n: int = 48) -> Any:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    return te.create_prim_func([A, B, topi.matmul(A, B)]).with_attr("global_symbol", name)


@pytest.fixture(scope="module")
def task() -> Task:
    return task_of(product(), TARGET)


@pytest.fixture(scope="module")
def sketches(task: Task) -> Sketches:
    return Sketches(task)


def record_of(
    sketches: Sketches, row: int, seconds: float, origin: str = "trial", steps: bool = True
) -> Record:
    """A record of some row of the table."""
    space = sketches.space
    candidate = space.default.copy()
    candidate[0] = row
    decisions = space.decisions(candidate)
    trace = sketches.apply(decisions).trace.as_json() if steps else None
    result = MeasureResult(Status.OK, (seconds,) * 3, trace=trace)
    return Record.of(MeasureInput.of(sketches.task, decisions), result, origin=origin)


def test_a_record_decides(task: Task, sketches: Sketches) -> None:
    record = record_of(sketches, 3, 1e-3)
    zero = auto_schedule(task.mod, TARGET).mod
    with History([record]) as history:
        assert current() is history
        sch = auto_schedule(task.mod, TARGET)
    assert current() is None
    assert structural_equal(sch.mod, sketches.apply(record.decisions).mod)
    assert not structural_equal(sch.mod, zero)
    assert structural_equal(auto_schedule(task.mod, TARGET).mod, zero)  # as before, when the block is left
    assert history.used == {task.workload: record}
    assert history.summary() == "1 of 1 programs were built by their records"


def test_explain_says_so(task: Task, sketches: Sketches, capsys: pytest.CaptureFixture[str]) -> None:
    record = record_of(sketches, 3, 1e-3)
    with History([record]):
        text = auto_schedule(task.mod, TARGET).explain()
    assert text.splitlines()[1] == "main: by a record"
    assert record.uid in text and "1000.0" in text and record.machine in text
    told = json.loads(auto_schedule(task.mod, TARGET, record=record).explain(as_json=True))
    assert told["stages"][0]["record"] == record.uid
    capsys.readouterr()


def test_the_name_of_the_function_does_not_matter(task: Task, sketches: Sketches) -> None:
    record = record_of(sketches, 5, 1e-3)
    both = IRModule({"one": product("one"), "other": product("other", 32)})
    with History([record]) as history:
        made = auto_schedule(both, TARGET).mod
    wanted = sketches.apply(record.decisions).mod["main"].with_attr("global_symbol", "one")
    assert structural_equal(made["one"], wanted)
    assert structural_equal(made["other"], auto_schedule(both, TARGET).mod["other"])
    assert list(history.missed.values()) == ["other"]
    assert history.summary() == "1 of 2 programs were built by their records; without one: other"


@pytest.mark.parametrize("steps", [True, False], ids=["trace", "decisions"])
def test_stages_may_be_called_otherwise(steps: bool, task: Task, sketches: Sketches) -> None:
    record = record_of(sketches, 5, 1e-3, steps=steps)
    A, B = te.placeholder((48, 48), name="X"), te.placeholder((48, 48), name="Y")
    k = te.reduce_axis((0, 48), "k")
    like = te.compute((48, 48), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="something")
    func = te.create_prim_func([A, B, like])
    assert task_of(func, TARGET).workload == task.workload
    with History([record]), warnings.catch_warnings():
        warnings.simplefilter("error")
        made = auto_schedule(func, TARGET).mod
    assert structural_equal(made, sketches.apply(record.decisions).mod)


def test_of_several_the_last_winner_counts_else_the_fastest(task: Task, sketches: Sketches) -> None:
    slow, fast = record_of(sketches, 3, 2e-3), record_of(sketches, 4, 1e-3)
    assert History([slow, fast]).find(task) is fast
    won = replace(slow, origin="winner")
    assert History([won, fast]).find(task) is won
    assert History([fast], [won]).find(task) is won
    assert History([slow], lambda t: fast).find(task) is fast
    assert History([replace(fast, status="wrong"), slow]).find(task) is slow
    assert History(None).find(task) is None


def test_histories_are_asked_from_within(task: Task, sketches: Sketches) -> None:
    outer, inner = record_of(sketches, 3, 1e-3), record_of(sketches, 4, 2e-3)
    with History([outer]) as around:
        with History([inner]):
            assert lookup(task) is inner
        with History() as empty:
            assert lookup(task) is outer
        assert around.used == empty.used == {task.workload: outer}


def test_a_history_is_of_its_thread(task: Task, sketches: Sketches) -> None:
    found: list[Any] = []
    with History([record_of(sketches, 3, 1e-3)]) as history:
        thread = threading.Thread(target=lambda: found.append(lookup(task)))
        thread.start()
        thread.join()
        assert found == [None]

        def within() -> None:
            with history:
                found.append(lookup(task))

        thread = threading.Thread(target=within)
        thread.start()
        thread.join()
    assert found[1] is not None


@pytest.mark.parametrize("form", ["path", "database", "memory", "lines"])
def test_files(form: str, task: Task, sketches: Sketches, tmp_path: Path) -> None:
    record = record_of(sketches, 3, 1e-3)
    db = Database(":memory:" if form == "memory" else tmp_path / "tune.db")
    db.add(record, task)
    db.export_json(tmp_path / "log.json")
    source = {"path": tmp_path / "tune.db", "lines": str(tmp_path / "log.json")}.get(form, db)
    found = History(source).find(task)
    assert found is not None and (found.uid, found.decisions) == (record.uid, record.decisions)
    db.close()


def test_records_of_another_machine_are_named_and_left(
    task: Task, sketches: Sketches, tmp_path: Path
) -> None:
    other = {**describe_machine(), "cpu": "Abacus 9", "cores": 640}
    foreign = replace(record_of(sketches, 3, 1e-3), machine=fingerprint(other))
    with Database(tmp_path / "tune.db") as db:
        db.take([], {fingerprint(other): other}, [foreign])
    history = History(tmp_path / "tune.db")
    with pytest.warns(RuntimeWarning) as caught:
        assert history.find(task) is None
    (text,) = [str(w.message) for w in caught]
    assert text.startswith(
        f"{tmp_path / 'tune.db'}: its records of main, and perhaps of others, are of another machine"
    )
    assert "cpu Abacus 9 instead of" in text and f"machine='{fingerprint(other)}'" in text
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert history.find(task) is None  # said once
        for machine in (fingerprint(other), "any"):
            found = History(tmp_path / "tune.db", machine=machine).find(task)
            assert found is not None and found.uid == foreign.uid


@pytest.mark.parametrize("form", ["path", "lines"])
def test_records_of_other_numbers_of_threads_are_named_and_left(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`llvm` in a process of one core, and in one of two."""
    monkeypatch.setattr("tilewright.target.machine.host_cores", lambda: 1)
    one = Sketches(task_of(product(), "llvm"))
    record = record_of(one, 3, 1e-3)
    source = tmp_path / ("log.json" if form == "lines" else "tune.db")
    with Database(tmp_path / "tune.db") as db:
        db.add(record, one.task)
        db.export_json(tmp_path / "log.json")
    assert (found := History(source).find(one.task)) is not None and found.uid == record.uid
    monkeypatch.setattr("tilewright.target.machine.host_cores", lambda: 2)
    two = task_of(product(), "llvm")
    with pytest.warns(RuntimeWarning) as caught:
        assert History(source).find(two) is None
    assert str(caught[0].message) == (
        f"{source}: its records of main, and perhaps of others, are for `llvm -keys=cpu -num-cores=1` and are not "
        "applied to `llvm -keys=cpu -num-cores=2`; tune for that too, or compile for "
        "Target('llvm -keys=cpu -num-cores=1')"
    )
    for machine in (fingerprint(), "any"):  # a machine by name is what is meant
        found = History(source, machine=machine).find(two)
        assert found is not None and found.uid == record.uid


def test_a_record_that_applies_no_more_is_named(task: Task, sketches: Sketches) -> None:
    good = record_of(sketches, 3, 1e-3)
    steps = [*good.trace["steps"], {"step": "turn_round", "kwargs": {}}]
    broken = replace(
        good, trace={**good.trace, "steps": steps}, decisions=[{"stage": "gone", "sketch": "tile"}]
    )
    zero = auto_schedule(task.mod, TARGET).mod
    with History([broken]), pytest.warns(RuntimeWarning, match="does not apply any more") as caught:
        sch = auto_schedule(task.mod, TARGET)
    text = str(caught[0].message)
    assert broken.uid in text and "'turn_round', which is not a primitive" in text and "tune it again" in text
    assert caught[0].filename == __file__
    assert structural_equal(sch.mod, zero)
    assert "by a record" not in str(sch.explanation)


def test_a_record_is_a_rule_and_a_row(task: Task, sketches: Sketches) -> None:
    """There is one way to replay it: its steps are not asked."""
    good = record_of(sketches, 3, 1e-3)
    assert good.decisions is not None and {"stage", "rule", "threads"} <= set(good.decisions[0])
    odd = replace(good, trace={"format": 1, "steps": [{"step": "nothing"}]})
    sch = tvm.auto_schedule(task.mod, task.target, record=odd)
    assert structural_equal(sch.mod, sketches.apply(good.decisions).mod)


def test_records_from_before_there_were_rules_are_replayed_by_their_steps(
    task: Task, sketches: Sketches
) -> None:
    good = record_of(sketches, 3, 1e-3)
    old = replace(good, decisions=[{"stage": "T_matmul", "sketch": "tile", "vector": 1, "lanes": 16}])
    sch = tvm.auto_schedule(task.mod, task.target, record=old)
    assert structural_equal(sch.mod, sketches.apply(good.decisions).mod)


def test_unlike_targets_and_programs_are_not_found(task: Task, sketches: Sketches) -> None:
    with History([record_of(sketches, 3, 1e-3)]) as history:
        auto_schedule(task.mod, "llvm -mcpu=skylake-avx512 -num-cores=2")
        auto_schedule(product(n=47), TARGET)
        auto_schedule(product(), TARGET, constants=["B"])
    assert (len(history.used), len(history.missed)) == (0, 3)
    assert History().summary() == "no program was looked up"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, r"there is no such file; `tilewright tune MODEL --db .*x\.db` makes one"),
        (b"", "the file is empty: nothing was tuned into it"),
        (b"PK\x03\x04 something else", "this is neither a database of tuning records nor lines of JSON"),
        (b"SQLite format 3\0 and then nothing", "this is not a file of tuning records, or a damaged one"),
        (b'{"format": "tilewright-records-7"}\n', "line 1: .*the format is 'tilewright-records-7'"),
        (b'{"input": [], "config": {}}\n', "line 1: .*autotvm.apply_history_best"),
        (b'{"a": 1}\n{"b": 2}\n', "line 1: this is not a tuning record: it names no record"),
        (b"{]\n", "line 1: this is not a tuning record"),
    ],
    ids=["absent", "empty", "foreign", "damaged", "newer", "autotvm", "else", "no JSON"],
)
def test_files_that_are_none(content: bytes | None, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecordError, match=said) as caught:
        History(path)
    assert str(path) in str(caught.value)
    with pytest.raises(RecordError, match="is a folder"):
        History(tmp_path)


def test_a_line_that_was_cut_off(task: Task, sketches: Sketches, tmp_path: Path) -> None:
    with Database(":memory:") as db:
        for seconds in (1e-3, 2e-3):
            db.add(record_of(sketches, 3, seconds), task)
        db.export_json(tmp_path / "log.json")
    text = (tmp_path / "log.json").read_text()
    (tmp_path / "log.json").write_text(text[:-40])
    with pytest.warns(RuntimeWarning, match=r"log\.json, line \d+: the line was cut off"):
        history = History(tmp_path / "log.json")
    found = history.find(task)
    assert found is not None and found.time == 1e-3


def test_what_a_history_is_made_of() -> None:
    with pytest.raises(TypeError, match=re.escape("not of int")):
        History([1])
    with pytest.raises(TypeError, match="not of float"):
        History(1.5)


def test_compile_takes_records(task: Task, sketches: Sketches) -> None:
    """`tvm.compile` schedules by them too, on this machine's own target."""
    here = Sketches(task_of(product(), "llvm"))
    with History([record_of(here, 3, 1e-3)]) as history:
        tvm.compile(product(), "llvm")
    assert list(history.used) == [task.workload]
