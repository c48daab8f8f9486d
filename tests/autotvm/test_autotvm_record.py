"""Records as lines of JSON, files of them, databases, and the hub that there is not."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path

import pytest

import tilewright as tvm
from tilewright import autotvm
from tilewright.autotvm.database import DummyDatabase, RedisDatabase, filter_inputs
from tilewright.autotvm.measure import MeasureInput, MeasureResult
from tilewright.autotvm.record import (
    decode,
    encode,
    load_from_file,
    main,
    measure_str_key,
    pick_best,
    split_workload,
)
from tilewright.ir.errors import UnsupportedError
from tilewright.testing.autotvm import get_sample_records, get_sample_task
from tilewright.tune.errors import RecordError
from tilewright.tune.measure.machines import fingerprint


def write(path: Path, pairs: list[tuple[MeasureInput, MeasureResult]]) -> Path:
    path.write_text("".join(f"{encode(*pair)}\n" for pair in pairs))
    return path


def test_a_record_is_the_classic_line() -> None:
    task, target = get_sample_task()
    result = MeasureResult((2.0, 2.5), 0, 2.3, 123.0)
    row = encode(MeasureInput(target, task, task.config_space.get(9)), result)
    assert "\n" not in row
    assert json.loads(row) == {
        "input": ["llvm -keys=cpu", "testing/matmul", [128, 128, 128, "float32"], {}],
        "config": {
            "index": 9,
            "code_hash": None,
            "entity": [["tile_y", "sp", [-1, 2]], ["tile_x", "sp", [-1, 2]]],
        },
        "result": [[2.0, 2.5], 0, 2.3, 123.0],
        "version": 0.2,
        "tvm_version": tvm.__version__,
        "machine": fingerprint(),
    }
    found = decode(row)
    assert found is not None
    inp, again = found
    assert again == result and inp.target == target and inp.config == task.config_space.get(9)
    assert inp.task.workload == task.workload and inp.config.machine == fingerprint()
    assert measure_str_key(inp) == measure_str_key(MeasureInput(target, task, task.config_space.get(9)))
    assert measure_str_key(inp, include_config=False) != measure_str_key(inp)


def test_a_line_of_the_classic_stack_is_read() -> None:
    row = (
        '{"input": ["llvm -keys=cpu -link-params=0", "conv2d_NCHWc.x86", [["TENSOR", [1, 16, 14, 14], "float32"], '
        '["TENSOR", [32, 16, 3, 3], "float32"], [1, 1], [1, 1, 1, 1], [1, 1], "NCHW", "NCHW", "float32"], {}], '
        '"config": {"index": 12, "code_hash": null, "entity": [["tile_ic", "sp", [-1, 8]], ["unroll_kw", "ot", true]]}, '
        '"result": [[0.0011], 0, 0.4, 1614000000.5], "version": 0.2, "tvm_version": "0.17.0"}'
    )
    found = decode(row)
    assert found is not None
    inp, result = found
    assert inp.task.name == "conv2d_NCHWc.x86" and inp.task.args[0] == ("TENSOR", (1, 16, 14, 14), "float32")
    assert inp.config["unroll_kw"].val is True and inp.config.machine is None and result.costs == (0.0011,)
    with pytest.raises(
        tvm.TVMError, match=r"there is no template 'conv2d_NCHWc\.x86'.*their tasks come from"
    ):
        inp.task.func  # noqa: B018
    with autotvm.apply_history_best([found]) as context:
        assert context.query(tvm.target.Target("llvm"), inp.task.workload).index == 12


def test_what_failed_has_no_time() -> None:
    task, target = get_sample_task()
    inp = MeasureInput(target, task, task.config_space.get(1))
    found = decode(encode(inp, MeasureResult((RuntimeError("no"),), 4, 0.1, 1.0)))
    assert found is not None and found[1].costs == (1e9,) and found[1].error_no == 4
    assert "error_no=RUNTIME_DEVICE" in repr(found[1])


def test_damaged_and_foreign_lines(tmp_path: Path) -> None:
    good = encode(*get_sample_records(1)[0])
    path = tmp_path / "log.json"
    path.write_text(f"# a comment\n\n{good}\n{good[:40]}\n")
    records = load_from_file(path)
    next(records)
    with pytest.raises(RecordError, match=r"log\.json, line 4: this is not a record: JSONDecodeError"):
        next(records)
    with pytest.raises(RecordError, match=r"this is not a record: KeyError: 'input'"):
        decode("{}")
    assert decode('{"version": 0.1}') is None
    assert [i.config.index for i, _ in load_from_file(io.StringIO(good))] == [0]
    for call in (
        lambda: decode(good, "pickle"),
        lambda: encode(*get_sample_records(1)[0], protocol="pickle"),
    ):
        with pytest.raises(UnsupportedError, match=r'are not pickled: .* use protocol="json"'):
            call()
    with pytest.raises(ValueError, match="there is no protocol 'xml' of records"):
        decode(good, "xml")
    with pytest.raises(FileNotFoundError, match=r"there is no file of records 'nowhere\.json'"):
        autotvm.apply_history_best("nowhere.json")


def test_the_best_are_picked(tmp_path: Path) -> None:
    records = get_sample_records(20)
    task = autotvm.task.create("testing/matmul", args=(16, 16, 16, "float32"), target="llvm")
    other = MeasureInput(task.target, task, task.config_space.get(3))
    records += [(other, MeasureResult((0.5,), 5, 0.1, 1.0)), (other, MeasureResult((2.0,), 0, 0.1, 1.0))]
    log, best = write(tmp_path / "log.json", records[::-1]), tmp_path / "best.json"
    pick_best(str(log), str(best))
    assert sorted((i.task.args[0], r.costs) for i, r in load_from_file(best)) == [(16, (2.0,)), (128, (1.0,))]
    main(["--i", str(log), "--o", str(tmp_path / "again.json")])
    assert (tmp_path / "again.json").read_text() == best.read_text()


def test_records_are_split_by_workload(tmp_path: Path) -> None:
    records = get_sample_records(5)
    task = autotvm.task.create("testing/matmul", args=(16, 16, 16, "float32"), target="llvm")
    records.append((MeasureInput(task.target, task, task.config_space.get(3)), records[0][1]))
    log = write(tmp_path / "log.json", [*records, records[0]])
    split_workload(log)
    assert [len(list(load_from_file(tmp_path / f"log.{i}.json"))) for i in range(2)] == [5, 1]
    split_workload(log, clean=False)
    assert len(list(load_from_file(tmp_path / "log.0.json"))) == 6


def test_histories_from_anywhere(tmp_path: Path) -> None:
    records = get_sample_records(4)
    log = write(tmp_path / "log.json", records)
    workload = records[0][0].task.workload
    target = tvm.target.Target("llvm")
    with open(log) as opened:
        for given in (str(log), log, records, [log, str(log)], iter(records), opened):
            with autotvm.apply_history_best(given) as context:
                assert context.query(target, workload).index == 0
    with autotvm.apply_history_best(None) as context:
        assert context.query(target, workload).is_fallback
        context.load(log)
        assert not context.query(target, workload).is_fallback


def test_records_of_other_machines_are_not_applied_silently(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    row = json.loads(encode(*get_sample_records(1)[0]))
    log = tmp_path / "log.json"
    log.write_text(json.dumps({**row, "machine": "a mainframe"}))
    with caplog.at_level(logging.WARNING, "autotvm"):
        autotvm.apply_history_best(log)
    (line,) = caplog.records
    assert "records are of other machines (a mainframe)" in line.getMessage()


# ---------------------------------------------------------------------------- databases
def test_a_database_in_memory(tmp_path: Path) -> None:
    records = get_sample_records(5)
    db = DummyDatabase(records[:4])
    inp, result = records[2]
    assert db.load(inp) == result and db.load(records[4][0]) is None
    later = MeasureResult((9.0,), 4, 0.1, 2.0)
    db.save(inp, later, extend=True)
    assert db.load(inp).error_no == 4 and [r.costs for r in db.load(inp, get_all=True)] == [(3.0,), (1e9,)]
    assert [i.config.index for i, _ in db.filter(lambda i, rs: any(r.error_no for r in rs))] == [2]
    new, done = filter_inputs(db, [i for i, _ in records])
    assert [i.config.index for i in new] == [4] and len(done) == 4
    assert [i.config.index for i in filter_inputs(db, [i for i, _ in records], retry=True)[0]] == [2, 4]
    db.save(inp, result)
    assert db.load(inp, get_all=True) == [result]
    log = write(tmp_path / "log.json", records)
    assert DummyDatabase.of_file(log).load(records[4][0]) == records[4][1]
    db.flush()
    assert db.load(inp) is None


def test_redis_is_refused() -> None:
    with pytest.raises(
        UnsupportedError, match=r"RedisDatabase is not part .* kept in files and in SQLite; use "
    ):
        RedisDatabase()


# ---------------------------------------------------------------------------- the hub
def test_there_is_no_hub(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(autotvm.tophub, "_warned", set())
    records = get_sample_records(4)
    log = write(tmp_path / "log.json", records)
    target = tvm.target.Target("llvm")
    with caplog.at_level(logging.INFO, "autotvm"):
        for _ in range(2):
            with autotvm.tophub.context(target):
                assert autotvm.DispatchContext.current.query(target, records[0][0].task.workload).is_fallback
    told = [r.getMessage() for r in caplog.records if r.levelno == logging.INFO]
    assert len(told) == 1 and "there are no ready-made records" in told[0]
    with autotvm.tophub.context(target, extra_files=[log]) as context:
        assert context.query(target, records[0][0].task.workload).index == 0
    with autotvm.apply_history_best(records) as outer, autotvm.tophub.context(target):
        assert autotvm.DispatchContext.current is outer  # nothing comes before what was asked for
    assert autotvm.tophub.check_backend("", "x86") is False
    assert autotvm.tophub.load_reference_log("x86", "unknown", "conv2d") == []
    with pytest.raises(UnsupportedError, match="fit the templates of the classic stack and no others"):
        autotvm.tophub.download_package("https://…", "x86_v0.04.log")


def test_history_of_files_and_pairs_in_any_nesting(tmp_path: Path) -> None:
    task, target = get_sample_task()
    pairs = [
        (MeasureInput(target, task, task.config_space.get(i)), MeasureResult((3.0 - i,), 0, 0, 0))
        for i in range(3)
    ]
    files = [write(tmp_path / f"{i}.log", [pair]) for i, pair in enumerate(pairs)]
    best = str(task.config_space.get(2))
    for given in (
        files,
        zip(files),
        zip(pairs),
        iter(pairs),
        [pairs[:1], files[2]],
        io.StringIO(files[2].read_text()),
    ):
        assert str(autotvm.apply_history_best(given).query(target, task.workload)) == best
