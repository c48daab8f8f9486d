"""Models: their tasks are the programs that the graph compiler schedules, and it takes what was measured of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from autotvm_synthetic import Nothing, Told

import tilewright as tvm
from tilewright import autotvm, relay
from tilewright.autotvm.measure import MeasureInput, MeasureResult
from tilewright.contrib import graph_executor
from tilewright.tune.records import history

TARGET = "llvm -num-cores=1"


def model(hidden: int = 24) -> tuple[Any, dict[str, Any]]:
    """Two dense layers, the second of which occurs twice, and a softmax."""
    x = relay.var("x", shape=(8, 16))
    first = relay.nn.relu(relay.nn.dense(x, relay.var("w0", shape=(hidden, 16))))
    for name in ("w1", "w2"):
        first = relay.nn.relu(relay.nn.dense(first, relay.var(name, shape=(hidden, hidden))))
    y = relay.nn.softmax(first)
    mod = tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y))
    rng = np.random.default_rng(0)
    shapes = {"w0": (hidden, 16), "w1": (hidden, hidden), "w2": (hidden, hidden)}
    return mod, {k: rng.standard_normal(s).astype("float32") for k, s in shapes.items()}


def tasks_of(**kwargs: Any) -> list[Any]:
    mod, params = model()
    return autotvm.task.extract_from_program(mod["main"], target=TARGET, params=params, **kwargs)


def test_the_tasks_of_a_model() -> None:
    tasks = tasks_of()
    assert [(t.name, t.weight) for t in tasks] == [
        ("fused_nn_dense_nn_relu", 1),
        ("fused_nn_dense_nn_relu", 2),
        ("fused_nn_softmax", 1),
    ]
    assert len({t.workload for t in tasks}) == 3
    assert all(t.flop > 0 and t.target == tvm.target.Target(TARGET) for t in tasks)
    dense = tasks_of(ops=[relay.op.get("nn.dense")])
    assert len(dense) == 2 and all("dense" in t.name for t in dense)
    found = autotvm.task.relay_integration.operators_of("fused_nn_conv2d_transpose_add_nn_relu")
    assert found == {"nn.conv2d_transpose", "add", "nn.relu"}
    mod, params = model()
    both = autotvm.task.extract_from_multiple_program([mod, mod["main"]], [params, params], target=TARGET)
    assert [t.weight for t in both] == [2 * t.weight for t in tasks]


def test_the_space_is_that_of_the_sketches() -> None:
    task = tasks_of()[0]
    space = task.config_space
    engine = task.sketches.space
    assert len(space) == engine.size and space.dims == [len(s) for s in engine.stages]
    assert engine.rows(task.decisions(space.get(0))).tolist() == engine.default.tolist()
    for index in (0, 1, engine.stages[0].default, len(space) - 1):
        rows = engine.rows(task.decisions(space.get(index)))
        assert (rows == space.rows(np.array([index]))[0]).all()
    config = autotvm.ConfigEntity.from_json_dict(json.loads(json.dumps(space.get(5).to_json_dict())))
    assert config == space.get(5)
    sch, args = task.instantiate(config)
    assert args == [] and "T.vectorized" in sch.mod.script()
    assert (space.knob_features(np.arange(4)) == engine.features(space.rows(np.arange(4)))).all()


def test_a_walk_changes_one_decision() -> None:
    space = tasks_of()[0].config_space
    rng = np.random.default_rng(0)
    begin = space.sample_ints(64, rng)
    moved = space.random_walks(begin, rng)
    one, other = (space.space.stages[0].points[space.rows(x)[:, 0]] for x in (begin, moved))
    assert set((one != other).sum(axis=1)) <= {0, 1} and (begin != moved).any()
    child = space.crossed(int(begin[0]), int(begin[1]), rng)
    parents = one[:2]
    (point,) = space.space.stages[0].points[space.rows(np.array([child]))[:, 0]]
    assert ((point == parents[0]) | (point == parents[1])).all()
    assert space.mutated(5, 0.0, rng) == 5


@pytest.mark.parametrize("kind", ["RandomTuner", "GATuner", "XGBTuner", "DropletTuner"])
def test_tuning_ends_with_nothing_worse(kind: str) -> None:
    """The zero-trial schedule is the first that is measured, whoever tunes."""
    task = tasks_of()[0]
    runner = Told(lambda config: 1.0 if config.index == 0 else 2.0)
    tuner = getattr(autotvm.tuner, kind)(task)
    tuner.tune(n_trial=12, measure_option=autotvm.measure_option(Nothing(), runner))
    assert runner.seen[0] == 0 and tuner.best_config.index == 0 and len(runner.seen) <= 12
    assert len(set(runner.seen)) >= len(runner.seen) - 1


def test_a_model_begins_with_what_the_machine_says() -> None:
    task = tasks_of()[0]
    seconds = task.sketches.space.seconds(task.config_space.rows(np.arange(len(task.config_space))))
    chosen = [c.index for c in autotvm.tuner.XGBTuner(task).next_batch(8)]
    assert np.mean(seconds[chosen]) < 0.5 * np.mean(seconds)


@pytest.mark.slow
def test_a_model_is_tuned_and_built_by_its_records(tmp_path: Path) -> None:
    mod, params = model()
    tasks, log = tasks_of(), tmp_path / "log.json"
    runner = autotvm.LocalRunner(repeat=2, timeout=60)
    option = autotvm.measure_option(builder=autotvm.LocalBuilder(n_parallel=1), runner=runner)
    for task in tasks:
        tuner = autotvm.tuner.XGBTuner(task)
        tuner.tune(n_trial=4, measure_option=option, callbacks=[autotvm.callback.log_to_file(log)])
        assert tuner.best_flops > 0
    runner.close()
    with autotvm.apply_history_best(log):
        lib = relay.build(mod, TARGET, params=params)
        used = history.current()
        assert used is not None and used.summary() == "3 of 3 programs were built by their records"
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    x = np.random.default_rng(1).standard_normal((8, 16)).astype("float32")
    module.set_input("x", x)
    module.run()
    y = x
    for name in ("w0", "w1", "w2"):
        y = np.maximum(y @ params[name].T, 0)
    y = np.exp(y - y.max(axis=1, keepdims=True))
    np.testing.assert_allclose(module.get_output(0).numpy(), y / y.sum(axis=1, keepdims=True), rtol=1e-4)
    best = tmp_path / "graph.json"
    graph = autotvm.graph_tuner.DPTuner(mod["main"], {"x": (8, 16)}, log, [], TARGET, params=params)
    graph.benchmark_layout_transform(min_exec_num=1)
    graph.run()
    graph.write_opt_sch2record_file(best)
    with autotvm.apply_graph_best(best):
        relay.build(mod, TARGET, params=params)
        assert history.current().summary() == "3 of 3 programs were built by their records"


def records(tasks: list[Any]) -> list[Any]:
    out = []
    for task in tasks:
        for index in range(3):
            config = task.config_space.get(index)
            out.append((MeasureInput(task.target, task, config), MeasureResult((1.0 + index,), 0, 0.1, 1.0)))
    return out


@pytest.mark.slow
def test_records_decide_what_is_built() -> None:
    mod, params = model()
    pairs = records(tasks_of()[:1])
    chosen = (pairs[1][0], MeasureResult((1e-9,), 0, 0.1, 1.0))
    with autotvm.apply_history_best([*pairs, chosen]):
        relay.build(mod, TARGET, params=params)
        used = history.current()
    assert used is not None
    (record,) = used.used.values()
    assert record.decisions == tasks_of()[0].decisions(pairs[1][0].config) and len(used.missed) == 2


@pytest.mark.slow
def test_records_of_another_machine_are_not_applied() -> None:
    mod, params = model()
    pairs = records(tasks_of()[:1])
    for inp, _ in pairs:
        inp.config.machine = "a mainframe"
    with autotvm.apply_history_best(pairs), pytest.warns(RuntimeWarning, match="of another machine"):
        relay.build(mod, TARGET, params=params)
        used = history.current()
        assert used is not None and not used.used


def test_graphs_take_the_best_of_each_kernel(tmp_path: Path) -> None:
    mod, params = model()
    tasks = tasks_of()
    dense = [relay.op.get("nn.dense")]
    graph = autotvm.graph_tuner.PBQPTuner(mod["main"], {"x": (8, 16)}, records(tasks), dense, TARGET)
    with pytest.raises(tvm.TVMError, match="no records are chosen before run"):
        graph.get_optimal_records()
    graph.run()
    assert [(i.task.workload, i.config.index) for i, _ in graph.get_optimal_records()] == [
        (t.workload, 0) for t in tasks[:2]
    ]
    graph.write_opt_sch2record_file(tmp_path / "best.json")
    assert len(list(autotvm.record.load_from_file(tmp_path / "best.json"))) == 2
    few = autotvm.graph_tuner.DPTuner(mod["main"], {}, records(tasks[:1]), dense, TARGET, params=params)
    with pytest.raises(
        tvm.TVMError, match=rf"there is no record of {tasks[1].name} for `llvm.*: tune them first"
    ):
        few.run()
    none = autotvm.graph_tuner.DPTuner(mod["main"], {}, [], ["nn.conv2d"], TARGET)
    with pytest.raises(tvm.TVMError, match=r"none of the records is of nn\.conv2d"):
        none.run()
