"""Files of records: everything to build again, at once on the disk, and never the end of a program."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from scheduler_fakes import TARGET, Fake, matmul_task, odd, options

import tilewright as tvm
from tilewright import auto_scheduler
from tilewright.auto_scheduler import MeasureErrorNo, MeasureResult, measure_record, workload_registry
from tilewright.testing.auto_scheduler import matmul_auto_scheduler_test
from tilewright.tune.errors import RecordError
from tilewright.tune.measure.machines import describe_machine, fingerprint
from tilewright.tune.measure.measurer import MeasureResult as Measured
from tilewright.tune.measure.measurer import Status
from tilewright.tune.records.database import Database
from tilewright.tune.records.files import read_lines


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of ten trials."""
    path = tmp_path_factory.mktemp("records") / "matmul.json"
    matmul_task().tune(options(10, None, auto_scheduler.RecordToFile(path)))
    return path


def test_one_line_is_one_record(log: Path) -> None:
    first, *lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert first["format"] == "tilewright-records-1" and first["machine"] == fingerprint()
    assert [line["record"]["origin"] for line in lines] == ["trial"] * 10 + ["winner"]
    assert ["workload" in line for line in lines] == [True] + [False] * 10  # the program, once
    assert {line["record"]["extra"]["workload_key"] for line in lines} == {matmul_task().workload_key}


def test_records_come_back(log: Path) -> None:
    pairs = list(auto_scheduler.load_records(log))
    assert len(pairs) == 10
    inp, res = pairs[3]
    assert inp.task.workload_key == matmul_task().workload_key and res.error_no == 0
    assert [c.value for c in res.costs] == list(res.costs) and len(res.costs) == 3
    again = auto_scheduler.recover_measure_input(inp, rebuild_state=True)
    assert again.state.schedule.mod.functions and "C = ..." in str(again.state)
    inputs, results = auto_scheduler.RecordReader(log).read_lines(4, 2)
    assert [r.costs for r in results] == [r.costs for _, r in pairs[2:6]] and len(inputs) == 4
    best, measured = auto_scheduler.load_best_record(log, matmul_task().workload_key, TARGET)
    assert best is not None and measured is not None
    assert min(measured.costs) == min(c for _, r in pairs for c in r.costs)
    assert auto_scheduler.load_best_record(log, "another") == (None, None)
    assert auto_scheduler.load_best_record(log, target="llvm") == (None, None)


def test_the_best_is_applied(log: Path) -> None:
    sch, args = matmul_task().apply_best(log)
    best, _ = auto_scheduler.load_best_record(log)
    assert best is not None
    tvm.ir.assert_structural_equal(sch.mod, best.state.schedule.mod)
    mod = tvm.lower(sch, args, simple_mode=True)
    assert [gv.name_hint for gv in mod.functions] == ["main"]
    named = tvm.lower(sch, args, name="mine")
    assert [gv.name_hint for gv in named.functions] == ["mine"]
    code = matmul_task().print_best(log)
    fresh = tvm.tir.Schedule(tvm.te.create_prim_func(list(matmul_auto_scheduler_test(64, 64, 64))))
    exec(code + "\napply_trace(sch)", {"tir": tvm.tir, "sch": fresh})
    tvm.ir.assert_structural_equal(fresh.mod["main"], sch.mod["main"])
    with pytest.raises(ValueError, match='print_mode is "schedule" or "cuda"'):
        matmul_task().print_best(log, "c")
    with pytest.raises(ValueError, match="for cuda targets, and this one is llvm"):
        matmul_task().print_best(log, "cuda")


def test_what_a_file_does_not_have(log: Path, tmp_path: Path) -> None:
    with pytest.raises(
        RuntimeError, match=r"matmul.json: it has no valid schedule for .*32, 32, 32.* tune it"
    ):
        matmul_task(32).apply_best(log)
    with pytest.raises(RecordError, match=r"none.json: there is no such file"):
        matmul_task().apply_best(tmp_path / "none.json")
    (tmp_path / "other.json").write_text("tuning went well\n")
    with pytest.raises(RecordError, match=r"other.json: this is neither a database"):
        list(auto_scheduler.load_records(tmp_path / "other.json"))


def test_nothing_yet(tmp_path: Path) -> None:
    """A program that goes on by itself, when it runs for the first time."""
    empty, none = tmp_path / "empty.json", tmp_path / "none.json"
    empty.touch()
    assert auto_scheduler.load_best_record(empty) == (None, None) and not list(
        auto_scheduler.load_records(empty)
    )
    for path in (empty, none):
        task, fake = matmul_task(16), Fake()
        before = [auto_scheduler.PreloadMeasuredStates(path)]
        policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), init_search_callbacks=before)
        given = options(2, fake, auto_scheduler.RecordToFile(path))
        if path is none:
            with pytest.warns(RuntimeWarning, match="none.json: there is no such file yet"):
                task.tune(given, policy)
        else:
            task.tune(given, policy)
        assert len(list(auto_scheduler.load_records(path))) == len(fake.seen) == 2


def test_half_a_line_at_the_end(log: Path, tmp_path: Path) -> None:
    """A process that was killed while it wrote."""
    path = tmp_path / "cut.json"
    lines = log.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:6]) + lines[6][:200])
    with pytest.warns(RuntimeWarning, match="cut.json, line 7: the line was cut off"):
        assert len(list(auto_scheduler.load_records(path))) == 5
    with pytest.warns(RuntimeWarning, match="cut off"):
        matmul_task().apply_best(path)
    # who goes on writing does not mend it into a wrong record
    with pytest.warns(RuntimeWarning, match="cut off"):
        pairs = list(auto_scheduler.load_records(path))
    with pytest.warns(RuntimeWarning, match="cut off"):
        auto_scheduler.save_records(path, [pairs[0][0]], [pairs[0][1]])
    assert len(list(auto_scheduler.load_records(path))) == 6
    path.write_text("".join(lines[:3]) + lines[3][:200] + "\n" + lines[4])
    with pytest.raises(RecordError, match="line 4: this is not a tuning record"):
        list(auto_scheduler.load_records(path))


def test_files_of_something_else_are_left_alone(tmp_path: Path) -> None:
    notes = tmp_path / "notes.json"
    for text in ('["a list", 3]', "remember\nthe milk", '{"i": [["key"]]}\n'):
        notes.write_text(text)
        with pytest.raises(RecordError, match=r"notes.json: this is not a file of records"):
            matmul_task(16).tune(options(2, None, auto_scheduler.RecordToFile(notes)))
        assert notes.read_text() == text
    begun = tmp_path / "begun.json"  # killed while it wrote the first line
    begun.write_text('{"format": "tilewr')
    matmul_task(16).tune(options(2, None, auto_scheduler.RecordToFile(begun)))
    assert len(list(auto_scheduler.load_records(begun))) == 2


def test_a_record_as_a_line(log: Path) -> None:
    (inp, res), *_ = auto_scheduler.load_records(log)
    line = measure_record.dump_record_to_string(inp, res)
    held = dict(workload_registry.WORKLOAD_FUNC_REGISTRY)
    workload_registry.WORKLOAD_FUNC_REGISTRY.clear()  # as in a process that has never heard of it
    try:
        again, result = measure_record.load_record_from_string(line)
        tvm.ir.assert_structural_equal(again.state.schedule.mod, inp.state.schedule.mod)
        assert result.costs == res.costs and again.task.workload_key == inp.task.workload_key
        without = json.dumps({"record": json.loads(line)["record"]})
        workload_registry.WORKLOAD_FUNC_REGISTRY.clear()
        with pytest.raises(RecordError, match="is neither with it nor registered here"):
            measure_record.load_record_from_string(without)
    finally:
        workload_registry.WORKLOAD_FUNC_REGISTRY.update(held)
    with pytest.raises(RecordError, match="this is not a line of a tuning record"):
        measure_record.load_record_from_string("[]")


def test_a_state_by_hand_in_a_file(tmp_path: Path) -> None:
    task = matmul_task(16)
    C = task.compute_dag.tensors[2]
    state = task.compute_dag.get_init_state()
    o, i = state.split(C, state[C].iters[0], [4])
    state.parallel(C, o)
    inp = auto_scheduler.MeasureInput(task, state)
    for seconds, error in ((2e-3, 0), (1e-3, 4)):
        res = auto_scheduler.MeasureResult([seconds], error, "it failed" if error else "", 0.2, 1.0)
        auto_scheduler.save_records(tmp_path / "hand.json", [inp], [res])
    (back, first), (_, second) = auto_scheduler.load_records(tmp_path / "hand.json")
    assert (first.costs, second.costs, second.error_no, second.error_msg) == ([2e-3], [], 4, "error 4")
    assert first.timestamp == 1.0 and back.serialize()[:2] == [task.workload_key, str(task.target)]
    sch, _ = task.apply_best(tmp_path / "hand.json")
    tvm.ir.assert_structural_equal(sch.mod, state.schedule.mod)


def test_the_kernel_of_a_state_by_hand(tmp_path: Path) -> None:
    task = matmul_task(16, "cuda")
    C = task.compute_dag.tensors[2]
    state = task.compute_dag.get_init_state()
    state.bind(C, state[C].iters[0], "blockIdx.x")
    state.bind(C, state[C].iters[1], "threadIdx.x")
    path, measured = tmp_path / "kernel.json", MeasureResult([1e-3])
    auto_scheduler.save_records(path, [auto_scheduler.MeasureInput(task, state)], [measured])
    source = task.print_best(path, print_mode="cuda")
    assert source.count("__global__") == 1 and "blockIdx.x" in source and "__launch_bounds__(16)" in source


def test_a_database_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "tune.db"  # folders are made
    task = matmul_task(16)
    task.tune(options(4, None, auto_scheduler.RecordToFile(path)))
    with Database(path) as db:
        assert len(db.records(task.task)) == 5
    assert len(list(auto_scheduler.load_records(path))) == 4
    assert task.apply_best(path)[0].mod.functions
    measure_record.distill_record_file(path, tmp_path / "best.json")
    assert [r.origin for r in read_lines(tmp_path / "best.json").records] == ["winner"]
    ((best, _),) = auto_scheduler.load_records(tmp_path / "best.json")
    tvm.ir.assert_structural_equal(best.state.schedule.mod, task.apply_best(path)[0].mod)


def test_records_of_other_machines_are_not_taken_silently(log: Path, tmp_path: Path) -> None:
    other = fingerprint({**describe_machine(), "cpu": "Another"})
    path = tmp_path / "foreign.json"
    path.write_text(log.read_text().replace(fingerprint(), other))
    with (
        pytest.warns(RuntimeWarning, match="are of another machine and are not applied"),
        pytest.raises(RuntimeError, match="it has no valid schedule"),
    ):
        matmul_task().apply_best(path)
    assert matmul_task().apply_best(path, include_compatible=True)[0].mod.functions


@pytest.mark.slow
def test_a_search_that_is_killed_goes_on(tmp_path: Path) -> None:
    """kill -9 in the middle of a round: what was measured is in the file, and is not measured again."""
    path = tmp_path / "killed.json"
    script = f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from scheduler_fakes import *

        class Killed(Fake):
            def result(self, inp):
                if len(self.seen) == 4:
                    os.kill(os.getpid(), signal.SIGKILL)
                return super().result(inp)

        matmul_task().tune(options(8, Killed(), auto_scheduler.RecordToFile({str(path)!r})))
    """
    ended = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True)
    assert ended.returncode == -9, ended.stderr
    assert len(list(auto_scheduler.load_records(path))) == 3
    fake = Fake()
    preload = auto_scheduler.PreloadMeasuredStates(path)
    policy = auto_scheduler.SketchPolicy(matmul_task(), init_search_callbacks=[preload])
    policy.search_task.tune(options(5, fake, auto_scheduler.RecordToFile(path)), policy)
    assert len(fake.seen) == 5
    records = read_lines(path).records
    assert len(records) == 9 and len({json.dumps(r.decisions) for r in records[:8]}) == 8
    alone = Fake()
    task = matmul_task()
    task.tune(options(8, alone, auto_scheduler.RecordToFile(tmp_path / "whole.json")))
    first, second = matmul_task().apply_best(path)[0], task.apply_best(tmp_path / "whole.json")[0]
    assert [odd(i) for i in alone.seen][:3] == [r.time for r in records[:3]]
    tvm.ir.assert_structural_equal(first.mod, second.mod)


def test_two_write_at_once(tmp_path: Path) -> None:
    path = tmp_path / "both.json"
    one, other = auto_scheduler.RecordToFile(path), auto_scheduler.RecordToFile(path)
    done: list[Any] = []

    class Other(auto_scheduler.PythonBasedMeasureCallback):
        def callback(self, policy: Any, inputs: Any, results: Any) -> None:
            done.extend(inputs)
            other.callback(policy, inputs, results)

    matmul_task(16).tune(options(4, None, one, Other()))
    assert len(done) == 4 and len(list(auto_scheduler.load_records(path))) == 8
    assert len({r.uid for r in read_lines(path).records}) == 9


def test_results_by_number() -> None:
    numbers = {s: MeasureResult.of(Measured(s)).error_no for s in Status}
    assert numbers[Status.WRONG] == MeasureErrorNo.WRONG_ANSWER == 5
    assert numbers[Status.TIMEOUT] == MeasureErrorNo.RUN_TIMEOUT == 7
    assert numbers[Status.OK] == 0 and all(numbers[s] for s in Status if s is not Status.OK)
    for status, number in numbers.items():
        back = MeasureResult([1.0], number).result
        assert back.ok == (status is Status.OK) and bool(back.seconds) == back.ok
