"""Many tasks, the tasks of models, and records at work in `relay.build`."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scheduler_fakes import TARGET, Fake, matmul_task, odd, options

import tilewright as tvm
from tilewright import auto_scheduler, relay
from tilewright.auto_scheduler.loop_state import State
from tilewright.tune.errors import TuneError
from tilewright.tune.measure import fleet
from tilewright.tune.measure.measurer import MeasureOptions
from tilewright.tune.records.history import current

Scheduler = auto_scheduler.TaskScheduler


@pytest.fixture
def tasks() -> list[auto_scheduler.SearchTask]:
    return [matmul_task(n) for n in (16, 24, 32)]


class Rounds(auto_scheduler.TaskSchedulerCallback):
    """Whose turn it was."""

    def __init__(self) -> None:
        self.before: list[int] = []
        self.after: list[int] = []

    def pre_tune(self, task_scheduler: Any, task_id: int) -> None:
        self.before.append(task_id)

    def post_tune(self, task_scheduler: Any, task_id: int) -> None:
        self.after.append(task_id)


@pytest.mark.slow
def test_trials_go_where_they_save_the_most(tasks: list[Any]) -> None:
    rounds = Rounds()
    scheduler = Scheduler(tasks, [1, 100, 1], callbacks=[rounds])
    scheduler.tune(options(40, num_measures_per_round=4))
    assert rounds.before == rounds.after and rounds.after[:3] == [0, 1, 2]
    assert scheduler.ct == sum(scheduler.task_trials) == 40
    assert scheduler.task_trials[1] == max(scheduler.task_trials) > 20
    assert scheduler.cur_score == pytest.approx(
        sum(c * w for c, w in zip(scheduler.best_costs, [1, 100, 1], strict=True))
    )
    assert scheduler.task_cts == [rounds.after.count(i) for i in range(3)]


def test_round_robin(tasks: list[Any]) -> None:
    rounds = Rounds()
    scheduler = Scheduler(tasks, strategy="round-robin", callbacks=[rounds])
    scheduler.tune(options(36, num_measures_per_round=4), "sketch.random")
    assert rounds.after == [0, 1, 2] * 3


@pytest.mark.slow
def test_an_objective_of_ones_own(tasks: list[Any]) -> None:
    rounds = Rounds()
    scheduler = Scheduler(tasks, objective_func=lambda costs: costs[2], callbacks=[rounds])
    scheduler.tune(options(36, num_measures_per_round=4))
    assert set(rounds.after[3:]) == {2} and scheduler.cur_score == scheduler.best_costs[2]


def test_the_whole_ends_early(tasks: list[Any]) -> None:
    scheduler = Scheduler(tasks, callbacks=[])
    steady = Fake(lambda inp: 1e-3)
    given = options(300, steady, early_stopping=12, num_measures_per_round=4)
    scheduler.tune(given, "sketch.random")
    assert 12 <= scheduler.ct <= 40
    given = options(300, steady, num_measures_per_round=4)
    scheduler.tune(given, "sketch.random", per_task_early_stopping=5)
    assert 15 <= scheduler.ct <= 30


def test_the_table_and_the_file(tasks: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for task in tasks:
        task.desc = f"product of {task.workload_key}"
    log = tmp_path / "latency.tsv"
    log.write_text("of another search\n")
    shown = [auto_scheduler.PrintTableInfo(), auto_scheduler.LogEstimatedLatency(log)]
    given = auto_scheduler.TuningOptions(12, runner=Fake(lambda inp: 1e-3), verbose=1)
    Scheduler(tasks, callbacks=shown).tune(given, "sketch.random")
    table = capsys.readouterr().out
    assert table.count("Task Description") == 4  # before each of the three rounds, and at the end
    last = table.rstrip().splitlines()[-5:]
    assert [cell.strip() for cell in last[0].split("|")[1:-1]] == [
        "0", tasks[0].desc, "1.0000", f"{tasks[0].compute_dag.flop_ct / 1e6:.2f}", "4"
    ]  # fmt: skip
    assert last[-1].startswith("Estimated total latency: 3.0000 ms\tTrials: 12\t")
    lines = log.read_text().splitlines()
    assert len(lines) == 3 and lines[-1].split("\t")[2:] == [
        "EstimatedLatency(ms)", "3.0000", "Trials", "12"
    ]  # fmt: skip
    assert lines[0].split("\t")[3] == "N/A"  # not all of them were measured by then


def test_usual_callbacks(tasks: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert [type(c).__name__ for c in Scheduler(tasks).callbacks] == ["PrintTableInfo", "LogEstimatedLatency"]


def test_it_goes_on_from_a_file(tasks: list[Any], tmp_path: Path) -> None:
    path, fake = tmp_path / "log.json", Fake()
    Scheduler(tasks, callbacks=[]).tune(options(12, fake, auto_scheduler.RecordToFile(path)), "sketch.random")
    again = Fake()
    scheduler = Scheduler(tasks, load_log_file=path, callbacks=[])
    scheduler.tune(options(9, again), "sketch.random")
    assert len(again.seen) == scheduler.ct == 9
    assert not {i.token for i in again.seen} & {i.token for i in fake.seen}
    assert sum(scheduler.task_trials) == 21
    best = {
        i.task.workload: min(odd(j) for j in fake.seen if j.task.workload == i.task.workload)
        for i in fake.seen
    }
    for task, seconds in zip(tasks, scheduler.best_costs, strict=True):
        assert seconds <= best[task.task.workload]


def test_a_task_that_fails_stops_no_other(tasks: list[Any]) -> None:
    one = Fake(lambda inp: math.inf if inp.task is tasks[0].task else odd(inp))
    scheduler = Scheduler(tasks, callbacks=[])
    scheduler.tune(options(24, one), "sketch.random")
    assert scheduler.dead_tasks == {0} and all(math.isfinite(c) for c in scheduler.best_costs[1:])
    with pytest.raises(TuneError, match=r"no task could be tuned\n.*none of 8 candidates could be measured"):
        Scheduler(tasks, callbacks=[]).tune(options(24, Fake(lambda inp: math.inf)), "sketch.random")


def test_schedulers_are_checked(tasks: list[Any]) -> None:
    with pytest.raises(ValueError, match='strategy is "gradient" or "round-robin"'):
        Scheduler(tasks, strategy="greedy")
    with pytest.raises(ValueError, match="there are 1 weights for 3 tasks"):
        Scheduler(tasks, [1.0])
    with pytest.raises(ValueError, match="task_weights or an objective_func"):
        Scheduler(tasks, [1.0] * 3, sum)
    scheduler = Scheduler(tasks, callbacks=[])
    with pytest.raises(ValueError, match='search_policy is "default"'):
        scheduler.tune(options(3), "evolution")
    with pytest.raises(ValueError, match="search_policy_params: there is no speed"):
        scheduler.tune(options(3), search_policy_params={"speed": 1})
    rule = auto_scheduler.PreloadCustomSketchRule(lambda *a: 0, lambda *a: [])
    with pytest.raises(ValueError, match=r"custom sketch rules are for SearchTask.tune"):
        scheduler.tune(options(3), [auto_scheduler.SketchPolicy(tasks[0], init_search_callbacks=[rule])])
    policies = [auto_scheduler.SketchPolicy(t, auto_scheduler.RandomModel(seed=1)) for t in tasks]
    scheduler.tune(options(3), policies)
    scheduler.tune(options(3), "sketch.random", {"seed": 3, "eps_greedy": 0.5})
    assert scheduler.ct == 3


def test_other_machines_measure_through_a_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, Any] = {}

    def pretend(address: str, device: str, options: MeasureOptions) -> Any:
        made.update(address=address, device=device, limit=options.run_limit)
        return SimpleNamespace(
            measure=Fake().measure, duel=Fake().duel, close=lambda: made.update(closed=True)
        )

    runner = auto_scheduler.RPCRunner("pi", "board.local", 9190, timeout=3)
    with monkeypatch.context() as m:
        m.setattr(fleet, "Fleet", pretend)
        matmul_task(16).tune(options(2, runner))
    assert made == {"address": "tcp://board.local:9190", "device": "pi", "limit": 3.0, "closed": True}
    monkeypatch.setitem(sys.modules, "tilewright.tune.measure.fleet", None)
    with pytest.raises(TuneError, match=r"RPCRunner\('pi', .*pip install 'tilewright\[fleet\]'.*LocalRunner"):
        matmul_task(16).tune(options(2, runner))


# ---------------------------------------------------------------------------- models
def model() -> tuple[Any, dict[str, Any]]:
    x = relay.var("x", shape=(4, 32))
    rng = np.random.default_rng(0)
    params = {n: rng.standard_normal((32, 32)).astype("float32") for n in ("w1", "w2")}
    w1, w2 = (relay.var(n, shape=(32, 32)) for n in ("w1", "w2"))
    body = relay.nn.relu(relay.nn.dense(relay.nn.relu(relay.nn.dense(x, w1)), w2))
    return tvm.IRModule.from_expr(relay.Function([x, w1, w2], relay.exp(body) + relay.const(1.0))), params


def test_the_tasks_of_a_model(tmp_path: Path) -> None:
    mod, params = model()
    found, weights = auto_scheduler.extract_tasks(
        mod["main"], params, TARGET, dump_workload_to_dag_log=str(tmp_path / "dags.txt")
    )
    assert len(found) == len(weights) and sum(weights) == 2
    assert all("dense" in t.desc and t.compute_dag.flop_ct > 2 * 4 * 32 * 32 for t in found)
    assert (tmp_path / "dags.txt").read_text().count("# fused_nn_dense") == len(found)
    again = auto_scheduler.SearchTask(workload_key=found[0].workload_key, target=TARGET)
    assert again.task.workload == found[0].task.workload  # what is constant in it is known by the key too


def test_simple_tasks_are_left_out() -> None:
    x = relay.var("x", shape=(4, 32))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(x)))
    assert auto_scheduler.extract_tasks(mod, {}, TARGET) == ([], [])
    (task,), weights = auto_scheduler.extract_tasks(mod, {}, TARGET, include_simple_tasks=True)
    assert weights == [1] and "exp" in task.desc


def run(lib: Any, x: np.ndarray) -> np.ndarray:
    from tilewright.contrib import graph_executor

    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    module.set_input("x", x)
    module.run()
    return module.get_output(0).numpy()


@pytest.mark.slow
def test_records_at_work_in_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.json"
    mod, params = model()
    found, weights = auto_scheduler.extract_tasks(mod, params, "llvm")
    # of the times a function of the decisions, so that something other than the usual schedule wins
    Scheduler(found, weights, callbacks=[]).tune(options(24, Fake(), auto_scheduler.RecordToFile(path)))
    x = np.random.default_rng(1).standard_normal((4, 32)).astype("float32")
    wanted = run(relay.build(mod, "llvm", params=params), x)
    assert not auto_scheduler.is_auto_scheduler_enabled()
    with auto_scheduler.ApplyHistoryBest(path):
        history = current()
        with tvm.transform.PassContext(3, config={"relay.backend.use_auto_scheduler": True}):
            assert auto_scheduler.is_auto_scheduler_enabled()
            lib = relay.build(mod, "llvm", params=params)
    assert history is not None and set(history.used) == {t.task.workload for t in found}
    assert current() is None
    np.testing.assert_allclose(run(lib, x), wanted, rtol=1e-4)


def test_histories_answer_and_nest(tmp_path: Path) -> None:
    task, path = matmul_task(16), tmp_path / "log.json"
    task.tune(options(6, None, auto_scheduler.RecordToFile(path)))
    pairs = list(auto_scheduler.load_records(path))
    query = lambda ctx: ctx.query(TARGET, task.workload_key)
    by_file = query(auto_scheduler.ApplyHistoryBest(path))
    by_pairs = query(auto_scheduler.ApplyHistoryBest(pairs))
    by_list = query(auto_scheduler.ApplyHistoryBest([str(path), path]))
    assert isinstance(by_file, State) and str(by_file) == str(by_pairs) == str(by_list)
    assert query(auto_scheduler.ApplyHistoryBest(None)) is None
    first = query(auto_scheduler.ApplyHistoryBest(path, n_lines=1))
    assert str(first) == str(pairs[0][0].state)
    sch, _ = auto_scheduler.auto_schedule(task)
    with auto_scheduler.ApplyHistoryBest(path) as outer, auto_scheduler.ApplyHistoryBest(None) as inner:
        assert auto_scheduler.DispatchContext.current is inner
        assert str(query(inner)) == str(by_file)  # of the one around it
        applied, _ = auto_scheduler.auto_schedule(task)
        tvm.ir.assert_structural_equal(applied.mod, by_file.schedule.mod)
        outer.update(TARGET, task.workload_key, pairs[0][0].state)
        assert str(query(outer)) == str(pairs[0][0].state)
    assert auto_scheduler.DispatchContext.current is None
    tvm.ir.assert_structural_equal(auto_scheduler.auto_schedule(task)[0].mod, sch.mod)


@pytest.mark.slow
def test_what_has_no_record_is_tuned_on_the_spot(tmp_path: Path) -> None:
    task = matmul_task(16, "llvm")
    with auto_scheduler.ApplyHistoryBestOrSample(None, num_measure=1) as sampling:
        first, _ = auto_scheduler.auto_schedule(task)
        record = sampling.find(task.task)
        assert record is not None and record.origin == "winner"
        assert sampling.find(task.task) is record  # once
    assert auto_scheduler.ApplyHistoryBestOrSample(None).find(task.task) is None
    with pytest.warns(RuntimeWarning, match="is scheduled without trials"):
        foreign = matmul_task(16, "llvm -mtriple=aarch64-linux-gnu")
        assert auto_scheduler.ApplyHistoryBestOrSample(None, num_measure=2).find(foreign.task) is None
