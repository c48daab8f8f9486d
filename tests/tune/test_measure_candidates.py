"""Measuring: what a candidate computes is compared with what is right, by programs of many kinds."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.ir.errors import ScheduleError
from tilewright.tune.errors import TuneError
from tilewright.tune.measure.checking import make_inputs, plain_program, tolerance_of
from tilewright.tune.measure.compare import Tolerance, compare
from tilewright.tune.measure.measurer import (
    MeasureInput,
    MeasureOptions,
    Measurer,
    MeasureResult,
    Status,
    Timing,
    _processes,
    with_reproducer,
)
from tilewright.tune.measure.running import Runner, _agree
from tilewright.tune.space import Sketches
from tilewright.tune.workload import task_of

TARGET = "llvm -num-cores=1"
QUICK = Timing(repeats=2, sample_seconds=1e-4, seconds=1e-3, rounds=2)


@pytest.fixture(scope="module")
def measurer() -> Iterator[Measurer]:
    with Measurer(MeasureOptions(builders=1, timing=QUICK)) as made:
        yield made


def matmul(n: int = 48, dtype: str = "float32") -> list[Any]:
    A, B = te.placeholder((n, n), dtype, name="A"), te.placeholder((n, n), dtype, name="B")
    return [A, B, topi.matmul(A, B)]


# ---------------------------------------------------------------------------- files
def test_a_script_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    options = MeasureOptions(reproducers=str(tmp_path / "file" / "wrong"))
    inp = MeasureInput.of(task_of(matmul(4), TARGET), task_of(matmul(4), TARGET).mod)
    told = with_reproducer(inp, MeasureResult(Status.WRONG, error="C: it is wrong"), options)
    assert told.error.startswith("C: it is wrong; the script that shows it cannot be written: [Errno 20]")
    right = MeasureResult(Status.OK, (1e-3,))
    assert with_reproducer(inp, right, options) is right


def test_where_data_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with Measurer(MeasureOptions(builders=1)) as pool:
        pool._folder.rmdir()
        monkeypatch.setattr(pool, "expect", lambda task: None)
        with pytest.raises(
            TuneError, match=r"its data \(0 KiB\) cannot be written to .*; make room there, or set TMP"
        ):
            pool.measure([MeasureInput.of(task_of(matmul(4), TARGET))])
    (tmp_path / "gone").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone" / "x"))
    with pytest.raises(TuneError, match=r"no folder for data can be made: .*; set TMPDIR to one"):
        Measurer(MeasureOptions(builders=1))


def test_a_planted_lock_file_is_not_opened(tmp_path, monkeypatch):
    """Others may write to the folder of temporary files: a link there must not empty a file of the user's."""
    mine = tmp_path / "mine"
    mine.write_text("dear")
    (tmp_path / f"tilewright-measure-{os.getuid()}.lock").symlink_to(mine)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    said = pytest.raises(TuneError, match="set TMPDIR to another folder")
    with Measurer(MeasureOptions(builders=1)) as pool, said, pool._alone():
        pass
    assert mine.read_text() == "dear"


@pytest.mark.slow
def test_a_full_temporary_folder_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the process that writes the reference says of it is no reason to ask for other inputs."""
    answer = {"status": "run error", "error": "OSError: 16 requested and 0 written"}
    with Measurer(MeasureOptions(builders=1)) as pool:
        monkeypatch.setattr(pool, "_run", lambda *ignored: answer)
        inp = MeasureInput.of(task_of(matmul(4), TARGET))
        with pytest.raises(TuneError, match=r"16 requested and 0 written; give reference=, or inputs="):
            pool.measure([inp])
        monkeypatch.setattr("shutil.disk_usage", lambda place: SimpleNamespace(free=3000))
        with pytest.raises(TuneError) as caught:
            pool.measure([inp])
    assert str(caught.value).endswith(
        f"the temporary folder {pool._folder} is full (2 KiB are left of the 1024 KiB that the data and the code "
        "need): OSError: 16 requested and 0 written; make room there, or set TMPDIR to another folder"
    )


def test_that_no_process_can_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*ignored: Any, **more: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", none)
    with (
        Measurer(MeasureOptions(builders=1)) as pool,
        pytest.raises(
            TuneError, match=r"that builds candidates could not be started: .*; end others, or let fewer"
        ),
    ):
        pool.measure([MeasureInput.of(task_of(matmul(4), TARGET))])


def test_folders_of_processes_that_are_gone_go_and_others_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine, absent = _processes(), 2**22 + 1  # more than there are
    names = [f"tilewright-measure-{absent}-{mine}-a", f"tilewright-measure-{absent}-elsewhere-b"]
    for name in names:
        (tmp_path / name).mkdir()
    with Measurer(MeasureOptions(builders=1)) as pool:
        assert pool._folder.is_dir()
        assert [(tmp_path / name).exists() for name in names] == [False, True]
    assert [p.name for p in tmp_path.iterdir()] == names[1:]


# ---------------------------------------------------------------------------- what is right
@pytest.mark.parametrize(
    ("second", "told"),
    [
        ("C: 1 is wrong", "C: 1 is wrong"),
        ("", "C: 1 is wrong; run again it is right: threads race, or memory is"),
    ],
)
def test_what_is_wrong_only_sometimes_is_wrong_and_that_is_said(
    second: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = ["C: 1 is wrong", second]
    monkeypatch.setattr(Runner, "_load", lambda self, artifact: None)
    monkeypatch.setattr(Runner, "_check", lambda self, loaded: checks.pop(0))
    answer = Runner().run(("token", None, QUICK, None))  # type: ignore[arg-type]
    assert (answer["status"], answer["spoiled"], checks) == ("wrong", False, [])
    assert answer["error"].startswith(told) and (answer["error"] == told) == bool(second)


def test_tolerances_follow_types_and_lengths() -> None:
    short, long, half, whole = (
        tolerance_of(te.create_prim_func(p))
        for p in (matmul(4), matmul(1024), matmul(4, "float16"), matmul(4, "int32"))
    )
    assert short.relative < long.relative < 1e-4 < half.relative
    assert whole == Tolerance(0.0, 0.0)
    assert short.mismatches > 0  # integers that come of comparisons


@pytest.mark.parametrize(
    "got, want, told",
    [
        ([1.0, 2.0], [1.0, 2.0], ""),
        ([1.0, 2.00001], [1.0, 2.0], ""),
        ([1.0, 2.1], [1.0, 2.0], "1 of 2 elements are wrong; the first at [1]: 2.1 instead of 2.0"),
        (
            [np.nan, 2.0],
            [1.0, 2.0],
            "1 of 2 elements are wrong, 1 of them NaN; the first at [0]: nan instead of 1.0",
        ),
        ([np.nan, np.inf], [np.nan, np.inf], ""),
        ([np.inf, 1.0], [-np.inf, 1.0], "1 of 2 elements are wrong; the first at [0]: inf instead of -inf"),
        ([1e-9, 2.0], [0.0, 2.0], ""),
    ],
)
def test_floats_are_compared_with_a_tolerance(got: list[float], want: list[float], told: str) -> None:
    arrays = [np.array(x, np.float32) for x in (got, want)]
    assert compare(*arrays, Tolerance(1e-4, 0.0)) == told


def test_integers_are_compared_exactly() -> None:
    a, b = np.array([1, 2, 3]), np.array([1, 5, 3])
    assert compare(a, b, Tolerance(1.0, 0.0)) == "1 of 3 elements differ; the first at [1]: 2 instead of 5"
    assert compare(a, a, Tolerance(0.0, 0.0)) == ""
    assert compare(a, b, Tolerance(0.0, 0.5)) == ""
    assert compare(np.zeros((0, 3)), np.zeros((0, 3)), Tolerance(0.0, 0.0)) == ""


def test_inputs_are_repeatable_and_fit_the_program() -> None:
    x, i = te.placeholder((5, 7), name="x"), te.placeholder((9,), "int32", name="i")
    task = task_of([x, i, te.compute((9, 7), lambda a, b: tir.log(x[i[a], b]), name="y")], TARGET)
    first, again, other = (make_inputs(task, seed) for seed in (0, 0, 1))
    assert all((a == b).all() for a, b in zip(first, again, strict=True))
    assert not (first[0] == other[0]).all()
    assert first[0].min() > 0  # there is a logarithm
    assert first[1].min() >= 0 and first[1].max() < 5 and len(set(first[1])) > 1  # indices
    given = task_of(task.mod, TARGET, inputs={"i": np.full(9, 3)})
    assert (make_inputs(given)[1] == 3).all()
    with pytest.raises(ValueError, match=r"inputs\['i'\] has the shape \(2,\), the parameter \(9,\)"):
        make_inputs(task_of(task.mod, TARGET, inputs={"i": np.zeros(2)}))


def test_the_reference_is_the_program_as_it_is_written() -> None:
    task = task_of(matmul(), TARGET)
    assert plain_program(task)["main"] is task.func
    large = plain_program(task_of(matmul(512), TARGET)).script()
    assert "T.parallel(512)" in large and "vectorized" not in large


def test_times_and_noise() -> None:
    result = MeasureResult(Status.OK, (4.0, 1.0, 1.2, 1.1))
    assert result.time == pytest.approx(1.05) and result.noise > 0.2
    assert MeasureResult(Status.CRASH, (1.0,)).time == float("inf")
    assert MeasureResult(Status.OK, (1.0,)).noise == 0.0


def test_what_does_not_run_here_is_not_measured() -> None:
    for target in ("cuda", "llvm -mtriple=aarch64-linux-gnu"):
        task = task_of(matmul(), target)
        with (
            Measurer() as measurer,
            pytest.raises(TuneError, match="does not run in a process of this machine"),
        ):
            measurer.measure([MeasureInput.of(task)])
    with pytest.raises(ScheduleError, match="no rule for `ext_dev` schedules the stage"):
        Sketches(task_of(matmul(), "ext_dev")).space  # noqa: B018


def test_no_two_measurers_run_candidates_at_once() -> None:
    order: list[str] = []
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with Measurer() as measurer, measurer._alone():
            order.append("first in")
            inside.set()
            leave.wait()
            order.append("first out")

    def second() -> None:
        inside.wait()
        with Measurer() as measurer:
            leave.set()
            with measurer._alone():
                order.append("second in")

    threads = [threading.Thread(target=f) for f in (first, second)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert order == ["first in", "first out", "second in"]


# ---------------------------------------------------------------------------- real measurements
@pytest.mark.slow
def test_candidates_of_all_kinds(measurer: Measurer) -> None:
    task = task_of(matmul(), TARGET)
    space = Sketches(task).space
    sch = tvm.auto_schedule(task.mod, task.target)
    inputs = [
        MeasureInput.of(task),
        MeasureInput.of(task, space.decisions(space.sample(np.random.default_rng(0), 1)[0])),
        MeasureInput.of(task, sch.trace.as_json()),
        MeasureInput.of(task, sch.mod),
    ]
    assert [inp.kind for inp in inputs] == ["decisions", "decisions", "trace", "program"]
    results = measurer.measure(inputs, incumbent=inputs[0])
    assert [(r.status, r.error) for r in results] == [(Status.OK, "")] * 4
    assert all(len(r.seconds) >= 2 and 0 < r.time < 1 and r.build_seconds > 0 for r in results)
    assert results[0].ratio is not None and results[0].trace == sch.trace.as_json()
    assert len({inp.token for inp in inputs}) == 4
    duel = measurer.duel(inputs[0], inputs[2], rounds=3)
    assert duel.first.ok and duel.second.ok and len(duel.first.seconds) == len(duel.second.seconds) == 3
    assert duel.ratio > 0


def softmax() -> list[Any]:
    x = te.placeholder((8, 100), name="x")
    return [x, topi.nn.softmax(x)]


def conv() -> list[Any]:
    x, w = te.placeholder((1, 8, 9, 9), name="x"), te.placeholder((16, 8, 3, 3), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1))]


def quantized() -> list[Any]:
    A, B = te.placeholder((16, 24), "uint8", name="A"), te.placeholder((24, 16), "int8", name="B")
    k = te.reduce_axis((0, 24), "k")
    body = lambda i, j: te.sum(A[i, k].astype("int32") * B[k, j].astype("int32"), axis=k)
    return [A, B, te.compute((16, 16), body, name="C")]


def symbolic() -> list[Any]:
    n = te.var("n")
    x = te.placeholder((n, 32), name="x")
    return [x, te.compute((n, 32), lambda i, j: x[i, j] * 2.0, name="y")]


def numbers() -> list[Any]:
    """Results without dimensions."""
    x, y = te.placeholder((40,), name="x"), te.placeholder((), "int32", name="y")
    k = te.reduce_axis((0, 40), "k")
    z = te.compute((), lambda: te.sum(x[k], axis=k), name="z")
    return [x, y, z, te.compute((), lambda: y() + 1, name="u")]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make, options",
    [
        (numbers, {}),
        (softmax, {}),
        (conv, {}),
        (conv, {"constants": ("w",)}),
        (quantized, {}),
        (symbolic, {"sizes": {"n": 17}}),
        (lambda: matmul(32, "float16"), {}),
        (matmul, {"reference": lambda A, B, **others: A @ B}),
    ],
    ids=["numbers", "softmax", "conv", "constants", "quantized", "symbolic", "half", "numpy"],
)
def test_programs_of_all_kinds(measurer: Measurer, make: Any, options: dict[str, Any]) -> None:
    task = task_of(make(), TARGET, **options)
    space = Sketches(task).space
    rows = space.sample(np.random.default_rng(2), 2)
    inputs = [MeasureInput.of(task), *(MeasureInput.of(task, space.decisions(r)) for r in rows)]
    results = measurer.measure(inputs)
    assert [(r.status, r.error) for r in results] == [(Status.OK, "")] * 3


@pytest.mark.slow
def test_what_a_reference_disagrees_with_is_wrong(measurer: Measurer) -> None:
    task = task_of(matmul(40), TARGET, reference=lambda A, B, **others: A @ B + 1)
    (result,) = measurer.measure([MeasureInput.of(task)])
    assert result.status is Status.WRONG and "1600 of 1600 elements are wrong" in result.error


@pytest.mark.slow
def test_what_is_read_and_written_begins_anew(measurer: Measurer) -> None:
    from tilewright.script import tir as T

    @T.prim_func
    def add_one(x: T.Buffer((64,), "float32")) -> None:
        for i in range(64):
            with T.block("x"):
                v = T.axis.spatial(64, i)
                x[v] = x[v] + T.float32(1)

    (result,) = measurer.measure([MeasureInput.of(task_of(add_one, TARGET))])
    assert (result.status, result.error) == (Status.OK, "")


@pytest.mark.slow
def test_refusals_and_hopeless_programs(measurer: Measurer) -> None:
    task = task_of(matmul(), TARGET)
    (result,) = measurer.measure([MeasureInput.of(task, [{"stage": "other", "sketch": "tile"}])])
    assert result.status is Status.REFUSED and "the decision is for other" in result.error
    from tilewright.script import tir as T

    @T.prim_func
    def nothing(x: T.Buffer((4,), "float32")) -> None:
        T.evaluate(x[0])

    with pytest.raises(TuneError, match="it writes none of its parameters"):
        measurer.measure([MeasureInput.of(task_of(nothing, TARGET))])


@pytest.mark.slow
def test_a_build_function_that_is_not_there_is_named() -> None:
    options = MeasureOptions(builders=1, build="no_such_module:build")
    with Measurer(options) as measurer, pytest.raises(TuneError, match="No module named 'no_such_module'"):
        measurer.measure([MeasureInput.of(task_of(matmul(), TARGET))])


@pytest.mark.slow
def test_caches_are_flushed_where_that_is_asked_for() -> None:
    task = task_of(matmul(), TARGET)
    timing = Timing(repeats=2, seconds=1e-3, flush_bytes=1 << 22)
    with Measurer(MeasureOptions(builders=1, timing=timing)) as measurer:
        (result,) = measurer.measure([MeasureInput.of(task)])
    assert result.ok and len(result.seconds) >= 2


def test_one_sample_agrees_with_nothing() -> None:
    """With `repeat=1`, a sample that was disturbed is taken again."""
    assert not _agree([1e-3]) and _agree([1e-3, 5e-3, 1.001e-3])
