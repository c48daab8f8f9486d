"""Templates that are really built, run and checked: their times, and what becomes of those that go wrong."""

from __future__ import annotations

import json
import math
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import tilewright as tvm
from tilewright import autotvm, te, tir
from tilewright.autotvm.measure import MeasureErrorNo, MeasureInput
from tilewright.autotvm.measure.measure_methods import LocalBuilder, LocalRunner, set_cuda_target_arch
from tilewright.ir.errors import UnsupportedError
from tilewright.testing.autotvm import get_sample_task, matmul
from tilewright.tune.errors import TuneError
from tilewright.tune.measure.machines import fingerprint

TARGET = "llvm -num-cores=1"


@pytest.fixture(scope="module")
def option() -> Iterator[Any]:
    runner = LocalRunner(number=1, repeat=2, timeout=4.0)  # one candidate runs for ever
    yield autotvm.measure_option(builder=LocalBuilder(timeout=60, n_parallel=1), runner=runner)
    runner.close()


def sample(n: int = 32) -> Any:
    return autotvm.task.create("testing/matmul", args=(n, n, n, "float32"), target=TARGET)


@pytest.mark.slow
def test_each_tuner_tunes_a_product(option: Any, tmp_path: Path) -> None:
    task, log = sample(), tmp_path / "log.json"
    for kind in (
        autotvm.tuner.RandomTuner,
        autotvm.tuner.GridSearchTuner,
        autotvm.tuner.GATuner,
        autotvm.tuner.XGBTuner,
        autotvm.tuner.DropletTuner,
    ):
        tuner = kind(task)
        tuner.tune(n_trial=9, measure_option=option, callbacks=[autotvm.callback.log_to_file(log)])
        inp, result = tuner.best_measure_pair
        assert tuner.best_flops == pytest.approx(task.flop / np.mean(result.costs))
        assert result.error_no == 0 and all(1e-7 < c < 1 for c in result.costs)
    records = list(autotvm.record.load_from_file(log))
    assert len(records) >= 9 * 4 and all(r.error_no == 0 for _, r in records)
    best = min(records, key=lambda pair: np.mean(pair[1].costs))[0].config
    with autotvm.apply_history_best(log) as context, tvm.target.Target(TARGET):
        assert context.query(tvm.target.Target(TARGET), task.workload) == best
        func = tvm.build(*matmul(32, 32, 32, "float32"), target=TARGET)
    a, b = np.random.default_rng(0).random((2, 32, 32), "float32")
    c = tvm.nd.array(np.zeros((32, 32), "float32"))
    func(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-5)


# ---------------------------------------------------------------------------- faults
def _extern(out: te.Tensor, how: str) -> te.Tensor:
    """A copy of a tensor by statements of somebody's own, of which some do something else."""

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        source, to = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, 1 << 62 if how == "for ever" else 1) as turn:
            with ib.for_range(0, 64) as i:
                to[i] = source[i] + (tir.const(1.0, "float32") if how == "wrong" else 0.0)
            if how == "for ever":
                ib.emit(tir.call_extern("int32", "sched_yield"))
            if how == "crash":
                ib.emit(tir.call_extern("int32", "raise", 11))
            del turn
        return ib.get()

    return te.extern([(64,)], [out], body, name="copy", dtype="float32")


HOW = ("right", "wrong", "for ever", "crash", "raise", "refuse", "schedule", "fine")


@autotvm.template("test/faults")
def faulty(n: int) -> Any:
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2.0, name="B")
    cfg = autotvm.get_config()
    cfg.define_knob("how", list(HOW))
    how = cfg["how"].val
    if how == "raise":
        raise autotvm.task.InstantiationError("these sizes cannot be")
    C = _extern(B, how)
    s = te.create_schedule(C.op)
    if how == "refuse":
        cfg.raise_error("too much shared memory")
    if how == "schedule":
        i = s[B].op.axis[0]
        s[B].vectorize(i)
        s[B].split(i, 4)
    return s, [A, C]


@pytest.mark.slow
def test_what_goes_wrong_is_a_number_and_never_the_best(option: Any) -> None:
    task = autotvm.task.create("test/faults", args=(64,), target=TARGET)
    results: dict[str, Any] = {}

    def keep(tuner: Any, inputs: Any, measured: Any) -> None:
        results.update({i.config["how"].val: r for i, r in zip(inputs, measured, strict=True)})

    tuner = autotvm.tuner.GridSearchTuner(task)
    tuner.tune(n_trial=len(HOW), measure_option=option, callbacks=[keep])
    numbers = {how: MeasureErrorNo(r.error_no).name for how, r in results.items()}
    assert numbers == {
        "right": "NO_ERROR",
        "wrong": "WRONG_ANSWER",
        "for ever": "RUN_TIMEOUT",
        "crash": "RUNTIME_DEVICE",
        "raise": "INSTANTIATION_ERROR",
        "refuse": "INSTANTIATION_ERROR",
        "schedule": "INSTANTIATION_ERROR",
        "fine": "NO_ERROR",
    }
    told = {how: str(r.costs[0]) for how, r in results.items() if r.error_no}
    assert "64 of 64 elements are wrong; the first at [0]" in told["wrong"]
    assert "SIGSEGV" in told["crash"]
    assert told["raise"] == "these sizes cannot be" and told["refuse"] == "too much shared memory"
    assert "vectorize" in told["schedule"]
    assert tuner.best_config["how"].val in ("right", "fine")


@pytest.mark.slow
def test_a_template_that_does_not_come_to_an_end() -> None:
    @autotvm.template("test/endless")
    def endless(n: int) -> Any:
        cfg = autotvm.get_config()
        cfg.define_knob("x", [0, 1])
        A = te.placeholder((n,), name="A")
        while cfg["x"].val:
            pass
        B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
        return te.create_schedule(B.op), [A, B]

    task = autotvm.task.create("test/endless", args=(8,), target=TARGET)
    builder = LocalBuilder(timeout=0.5, n_parallel=1)
    inputs = [MeasureInput(task.target, task, task.config_space.get(i)) for i in range(2)]
    made, late = builder.build(inputs)
    assert made.error is None and made.candidate is not None
    assert late.error_no == MeasureErrorNo.BUILD_TIMEOUT
    assert str(late.costs[0]) == "the template ran for more than its limit of 0.5 s"
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.extend(builder.build(inputs[:1])))
    thread.start()  # where there are no signals there is no limit
    thread.join()
    assert found[0].error is None


@pytest.mark.slow
def test_a_template_of_which_nothing_works(option: Any) -> None:
    @autotvm.template("test/hopeless")
    def hopeless(n: int) -> Any:
        cfg = autotvm.get_config()
        cfg.define_knob("x", [0, 1, 2])
        A = te.placeholder((n,), name="A")
        B = te.compute((n,), lambda i: A[i] + 1.0, name="B")
        cfg.raise_error("it never fits")
        return te.create_schedule(B.op), [A, B]

    task = autotvm.task.create("test/hopeless", args=(8,), target=TARGET)
    with pytest.raises(TuneError) as caught:
        autotvm.tuner.RandomTuner(task).tune(n_trial=5, measure_option=option)
    assert str(caught.value) == (
        "tuning test/hopeless: none of 3 configurations could be measured\n"
        "  count  status               cause\n"
        "      3  INSTANTIATION_ERROR  it never fits"
    )


def test_a_target_that_does_not_run_here() -> None:
    task = autotvm.task.create("testing/matmul", args=(8, 8, 8, "float32"), target="cuda")
    with pytest.raises(TuneError, match="does not run in a process of this machine"):
        autotvm.tuner.RandomTuner(task).tune(2, autotvm.measure_option("local", "local"))


# ---------------------------------------------------------------------------- settings
def by_hand(mod: Any, target: Any = None) -> Any:
    """A function that compiles, as processes find it."""
    return tvm.build(mod, target=target)


def test_settings_reach_the_engine() -> None:
    builder = LocalBuilder(timeout=3, n_parallel=2, build_func=by_hand)
    runner = LocalRunner(timeout=4, repeat=5, min_repeat_ms=10, enable_cpu_cache_flush=True, memory=777)
    runner.attach(builder)
    options = runner._options
    assert options is not None
    assert (options.build_limit, options.run_limit, options.builders, options.memory) == (3, 4, 2, 777)
    assert options.build == "test_autotvm_measure:by_hand"
    assert (options.timing.repeats, options.timing.sample_seconds) == (5, 0.01)
    assert options.timing.flush_bytes > 1 << 22
    first = runner.measurer
    runner.attach(builder)
    assert runner.measurer is first  # nothing has changed
    runner.close()


@pytest.mark.parametrize(
    ("make", "error", "told"),
    [
        (lambda: LocalBuilder(build_func="ndk"), UnsupportedError, "are built for and run on this machine"),
        (
            lambda: LocalBuilder(build_func=lambda mod: mod),
            ValueError,
            "cannot be imported by other processes",
        ),
        (lambda: LocalRunner(module_loader=print), UnsupportedError, "loaded by the engine alone"),
        (lambda: set_cuda_target_arch("sm_70"), UnsupportedError, "name the architecture in the target"),
        (lambda: autotvm.measure_option("tvm", "local"), ValueError, "there is no builder 'tvm'"),
    ],
)
def test_settings_that_are_refused(make: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        make()


def test_times_are_by_those_of_the_best() -> None:
    from tilewright.autotvm.measure.measure_methods import _result
    from tilewright.tune.measure.measurer import MeasureResult, Status

    fine = MeasureResult(Status.OK, (4.0, 1.0, 2.0, 9.0), build_seconds=0.5, run_seconds=0.25)
    result, seconds = _result(fine, 0.25, math.inf)
    assert result.costs == (1.0, 2.0) and seconds == 1.5 and result.all_cost == 1.0  # the faster half
    beside = MeasureResult(Status.OK, (4.0, 2.0), ratio=0.5)
    result, seconds = _result(beside, 0.0, 3.0)
    assert result.costs == (1.5,) and seconds == 1.5  # half of what the best takes
    for status in Status:
        if status is not Status.OK:
            result, seconds = _result(MeasureResult(status, error="why"), 0.0, 3.0)
            assert result.error_no and seconds == math.inf and str(result.costs[0]) == f"{status}: why"


def test_the_sample_task_is_of_all_cores() -> None:
    task, target = get_sample_task(16)
    assert str(target) == "llvm -keys=cpu" and task.engine_task.target == target


def test_other_machines_are_those_of_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.tune.measure import fleet
    from tilewright.tune.measure.measurer import MeasureResult, Status

    class Cluster:
        machine: ClassVar[dict[str, Any]] = {"cpu": "another"}

        def __init__(self, *args: Any, **kwargs: Any) -> None:
            made.append(args)

        def measure(self, inputs: Any, incumbent: Any = None, each: Any = None) -> list[Any]:
            return [MeasureResult(Status.OK, (1e-3,)) for _ in inputs]

        def close(self) -> None:
            pass

    made: list[Any] = []
    monkeypatch.setattr(fleet, "Fleet", Cluster)
    runner = autotvm.RPCRunner("cpu", "10.0.0.7", 8786, repeat=2)
    tuner = autotvm.tuner.RandomTuner(sample())
    tuner.tune(4, autotvm.measure_option(LocalBuilder(n_parallel=1), runner))
    ((address, device, options),) = made
    assert (address, device, options.timing.repeats) == ("tcp://10.0.0.7:8786", "cpu", 2)
    row = json.loads(autotvm.record.encode(*tuner.best_measure_pair))
    assert row["machine"] == fingerprint({"cpu": "another"}) != fingerprint()
    assert autotvm.measure.check_remote("llvm", "cpu", "10.0.0.7", 8786)


@pytest.mark.slow
def test_inputs_of_ones_own(option: Any) -> None:
    """Where random numbers say nothing: the right answer is that for the arrays that are given."""

    @autotvm.template("test/lookup")
    def lookup(n: int) -> Any:
        cfg = autotvm.get_config()
        cfg.define_knob("off", [0, 1])
        A = te.placeholder((n,), name="A")
        B = te.compute((n,), lambda i: te.if_then_else(A[i] > 5.0, A[i] + cfg["off"].val, 0.0), name="B")
        return te.create_schedule(B.op), [A, B]

    results: dict[int, str] = {}

    def keep(tuner: Any, inputs: Any, measured: Any) -> None:
        for inp, result in zip(inputs, measured, strict=True):
            results[inp.config["off"].val] = MeasureErrorNo(result.error_no).name

    runner = option["runner"]
    for given, wrong in ((None, "NO_ERROR"), (np.full(8, 7.0, "float32"), "WRONG_ANSWER")):
        runner.ref_input = None if given is None else [given, np.zeros(8, "float32")]
        task = autotvm.task.create("test/lookup", args=(8,), target=TARGET)
        autotvm.tuner.GridSearchTuner(task).tune(2, option, callbacks=[keep])
        assert results == {0: "NO_ERROR", 1: wrong}
    runner.ref_input = [np.zeros(8)]
    with pytest.raises(ValueError, match=r"test/lookup takes 2 arrays \(A, B\), and 1 were given"):
        autotvm.tuner.GridSearchTuner(task).tune(2, option)
    runner.ref_input = None
