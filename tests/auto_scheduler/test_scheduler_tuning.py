"""Tuning: the engine searches, and the face says with what, from where, and to whom it is told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scheduler_fakes import TARGET, Fake, matmul_task, odd, options

import tilewright as tvm
from tilewright import auto_scheduler, te
from tilewright.auto_scheduler import feature
from tilewright.auto_scheduler.loop_state import State
from tilewright.testing.auto_scheduler import matmul_auto_scheduler_test
from tilewright.tune.errors import TuneError
from tilewright.tune.measure.measurer import MeasureInput, MeasureOptions, Status
from tilewright.tune.records.files import read_lines

Rule = auto_scheduler.PreloadCustomSketchRule


def test_callbacks_are_told_each_round() -> None:
    told: list[tuple[Any, list[Any], list[Any]]] = []

    class Mine(auto_scheduler.PythonBasedMeasureCallback):
        def callback(self, policy: Any, inputs: Any, results: Any) -> None:
            told.append((policy, inputs, results))

    fake = Fake()
    policy = auto_scheduler.SketchPolicy(matmul_task())
    policy.search_task.tune(options(12, fake, Mine(), num_measures_per_round=4), policy)
    assert [len(inputs) for _, inputs, _ in told] == [4, 4, 4] and all(p is policy for p, *_ in told)
    measured = [r.costs[0] for _, _, results in told for r in results]
    assert measured == [odd(inp) for inp in fake.seen]
    assert all(isinstance(inp.state, State) for _, inputs, _ in told for inp in inputs)


def test_without_trials_nothing_is_measured() -> None:
    fake = Fake()
    task = matmul_task()
    task.tune(options(0, fake))
    assert not fake.seen
    sch, args = auto_scheduler.auto_schedule(task)
    tvm.ir.assert_structural_equal(
        sch.mod, tvm.auto_schedule(te.create_prim_func(task.compute_dag.tensors), TARGET).mod
    )
    tuned, _ = auto_scheduler.auto_schedule(task, tuning_options=options(6, fake))
    assert len(fake.seen) == 6 and tuned.mod.functions


def test_the_same_seed_gives_the_same_search() -> None:
    seen = []
    for seed in (1, 1, 2):
        fake = Fake()
        task = matmul_task()
        model = auto_scheduler.RandomModel(seed=seed)
        task.tune(options(8, fake), auto_scheduler.SketchPolicy(task, model, seed=seed))
        seen.append([inp.what for inp in fake.seen])
    assert seen[0] == seen[1] != seen[2]


def test_it_ends_early() -> None:
    fake = Fake(lambda inp: 1e-3)  # nothing is ever better
    matmul_task().tune(options(200, fake, early_stopping=10, num_measures_per_round=4))
    assert 10 <= len(fake.seen) <= 16


def test_if_nothing_could_be_measured_it_says_why(tmp_path: Path) -> None:
    log = auto_scheduler.RecordToFile(tmp_path / "failed.json")
    with pytest.raises(TuneError) as caught:
        matmul_task().tune(options(6, Fake(lambda inp: math.inf), log))
    assert str(caught.value).splitlines() == [
        "tuning main: none of 6 candidates could be measured",
        "  count  status  cause",
        "      6  crash   ended by SIGSEGV",
    ]
    assert [r.error_no for _, r in auto_scheduler.load_records(tmp_path / "failed.json")] == [4] * 6
    with pytest.raises(TuneError, match="nothing could be measured"):
        task = matmul_task()
        task.tune(options(1, Fake(lambda inp: math.inf)), auto_scheduler.EmptyPolicy(task))


@pytest.mark.slow
@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a GPU")
def test_gpus_say_what_is_missing() -> None:
    task = matmul_task(target="cuda")
    with pytest.raises(TuneError, match=r"there is no device cuda\(0\), so it cannot be measured here"):
        task.tune(auto_scheduler.TuningOptions(8, verbose=0))
    with pytest.raises(TuneError, match=r"there is no device cuda\(0\)"):
        auto_scheduler.TaskScheduler([task], callbacks=[]).tune(auto_scheduler.TuningOptions(8, verbose=0))
    sch, args = auto_scheduler.auto_schedule(task)
    assert "blockIdx.x" in str(tvm.lower(sch, args))


def test_policies_and_options_are_checked() -> None:
    with pytest.raises(ValueError, match="there is no parameter population; there are eps_greedy"):
        auto_scheduler.SketchPolicy(matmul_task(), params={"population": 3})
    with pytest.raises(ValueError, match='runner= takes "local"'):
        auto_scheduler.TuningOptions(runner="remote")
    with pytest.raises(ValueError, match='builder= takes "local"'):
        auto_scheduler.TuningOptions(builder=3)
    with pytest.raises(ValueError, match="num_measure_trials must be at least 0"):
        auto_scheduler.TuningOptions(-1)
    with pytest.raises(NotImplementedError, match="build_func='ndk'"):
        auto_scheduler.LocalBuilder(build_func="ndk")
    with pytest.raises(ValueError, match=r"the policy is for .*64, 64, 64.*, not for .*32, 32, 32"):
        matmul_task(32).tune(options(1), auto_scheduler.SketchPolicy(matmul_task(64)))
    with pytest.raises(ValueError, match=r"the policy is for .*, not for .*llvm -keys=cpu\)"):
        matmul_task(64, "llvm").tune(options(1), auto_scheduler.SketchPolicy(matmul_task(64)))


def test_options_reach_the_engine() -> None:
    context = auto_scheduler.LocalRPCMeasureContext(
        repeat=5, min_repeat_ms=300, timeout=7, enable_cpu_cache_flush=True
    )
    builder = auto_scheduler.LocalBuilder(timeout=9, n_parallel=1, build_func="somewhere:build")
    found = context.runner.change(builder.change(MeasureOptions()))
    assert (found.build_limit, found.run_limit, found.builders) == (9.0, 7.0, 1)
    assert found.build == "somewhere:build"
    assert found.timing.repeats == 5 and found.timing.sample_seconds == 0.3
    assert found.timing.flush_bytes >= 1 << 25
    with auto_scheduler.LocalRPCMeasureContext() as usual:
        timing = usual.runner.change(MeasureOptions()).timing
    assert timing == MeasureOptions().timing


# ---------------------------------------------------------------------------- parts of the search
@pytest.mark.slow
def test_sketches_and_populations(capsys: pytest.CaptureFixture[str]) -> None:
    task = matmul_task()
    policy = auto_scheduler.SketchPolicy(task, params={"sample_init_min_population": 20})
    sketches = policy.generate_sketches(print_for_debug=True)
    assert len(sketches) == 3  # vectors along columns, with and without panels of B, and along rows
    assert capsys.readouterr().out.count("=== Sketch") == 3
    assert len({str(s) for s in sketches}) == 3 and all(s.schedule.verify() for s in sketches[:1])
    population = policy.sample_initial_population()
    assert 10 < len(population) <= 20 and population != policy.sample_initial_population()
    best = policy.evolutionary_search(population, 5)
    scores = policy.program_cost_model.predict(task, best)
    assert len(best) == 5 and (np.diff(scores) <= 0).all()
    assert scores.min() >= np.median(policy.program_cost_model.predict(task, population))


@pytest.mark.slow
def test_models_learn_from_files(tmp_path: Path) -> None:
    task, path = matmul_task(), tmp_path / "log.json"
    task.tune(options(12, None, auto_scheduler.RecordToFile(path)))
    pytest.importorskip("xgboost")
    model = auto_scheduler.XGBModel(seed=0)
    states = auto_scheduler.SketchPolicy(task).sample_initial_population()
    before = model.predict(task, states)
    with pytest.raises(TuneError, match="no such file"):
        model.load(str(tmp_path / "none.json"))
    model.update_from_file(str(path))
    after = model.predict(task, states)
    assert (before != after).any()
    model.save(str(tmp_path / "model"))
    model.load(str(tmp_path / "model"))
    again = auto_scheduler.XGBModel(model_file=str(tmp_path / "model"))
    assert (again.predict(task, states) == model.predict(task, states)).all()
    features, speeds, numbers = feature.get_per_store_features_from_file(path)
    assert len(features) == 12 and features[0].shape[0] == 1
    assert speeds.max() == 1.0 and set(numbers) == {0}
    assert len(feature.get_per_store_features_from_states(states[:2], task)) == 2


def test_a_model_written_in_python() -> None:
    shown: list[int] = []
    learned: list[float] = []

    class Mine(auto_scheduler.PythonBasedModel):
        """Knows the answer."""

        def update(self, inputs: Any, results: Any) -> None:
            assert all(isinstance(i, auto_scheduler.MeasureInput) for i in inputs)
            learned.extend(float(r.costs[0]) for r in results)

        def predict(self, task: Any, states: Any) -> Any:
            shown.append(len(states))
            return [-odd(MeasureInput(task.task, *s.candidate)) for s in states]

    task, fake = matmul_task(), Fake()
    policy = auto_scheduler.SketchPolicy(task, Mine(), params={"eps_greedy": 0.0})
    task.tune(options(8, fake), policy)
    assert max(shown) < 400 and learned == [odd(inp) for inp in fake.seen]
    # after the zero-trial schedule come its favourites
    times = [odd(inp) for inp in fake.seen[1:]]
    assert max(times) < 1.1e-3
    assert len(policy.evolutionary_search([], 3)) == 3


# ---------------------------------------------------------------------------- rules
def tiled(policy: Any, state: Any, stage_id: int) -> list[Any]:
    made = []
    s = State(state, policy.search_task.compute_dag)
    C = s.stage_ops[stage_id]
    i, j, k = s[C].iters
    i0, i1 = s.split(C, i, [None])
    s.reorder(C, [i0, j, k, i1])
    s.unroll(C, i1)
    made.append([s.state_object, -1])
    return made


def for_the_product(answer: int) -> Any:
    def meet(policy: Any, state: Any, stage_id: int) -> int:
        return answer if State(state).stages[stage_id].op.name == "C" else Rule.PASS

    return meet


@pytest.mark.slow
def test_states_of_rules_are_measured_among_the_others(tmp_path: Path) -> None:
    path, fake = tmp_path / "rule.json", Fake()
    task = matmul_task()
    rule = Rule(for_the_product(Rule.APPLY), tiled, "tiled")
    policy = auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule])
    task.tune(options(12, fake, auto_scheduler.RecordToFile(path)), policy)
    kinds = [inp.kind for inp in fake.seen]
    assert kinds == ["trace"] * 6 + ["decisions"] * 6
    assert len({inp.token for inp in fake.seen}) == 12  # sizes are drawn, none twice
    origins = [r.origin for r in read_lines(path).records]
    # the engine's winner, and that of the rules if it is faster
    assert origins[:12] == ["rule"] * 6 + ["trial"] * 6 and set(origins[12:]) == {"winner"}
    assert policy.generate_sketches()[0].by_hand
    # what they were measured by is not mistaken for a trial of the search
    again = Fake()
    policy = auto_scheduler.SketchPolicy(
        task, init_search_callbacks=[auto_scheduler.PreloadMeasuredStates(path)]
    )
    task.tune(options(4, again), policy)
    assert len(again.seen) == 4 and not {i.token for i in again.seen} & {i.token for i in fake.seen}


@pytest.mark.parametrize("faster", [True, False])
def test_a_rule_wins_only_if_it_is_faster(faster: bool, tmp_path: Path) -> None:
    path = tmp_path / "rule.json"
    fake = Fake(lambda inp: (0.5 if (inp.kind == "trace") == faster else 1.0) * 1e-3)
    task = matmul_task()
    rule = Rule(for_the_product(Rule.APPLY_AND_SKIP_REST), tiled)
    policy = auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule])
    task.tune(options(5, fake, auto_scheduler.RecordToFile(path)), policy)
    # nothing else is measured but the schedule without trials, which it must not be worse than
    assert [inp.kind for inp in fake.seen] == ["trace"] * 4 + ["decisions"] and fake.seen[-1].what is None
    sch, args = task.apply_best(path)
    zero, _ = auto_scheduler.auto_schedule(task)
    assert tvm.ir.structural_equal(sch.mod, zero.mod) != faster
    assert policy.best_record is not None and policy.best_record.time == 0.5e-3


def test_rules_may_give_schedules_of_tensor_ir() -> None:
    def own(policy: Any, state: Any, stage_id: int) -> list[Any]:
        sch = tvm.tir.Schedule(policy.search_task.compute_dag.mod)
        i, j, k = sch.get_loops(sch.get_block("C"))
        sch.reorder(i, k, j)
        sch.vectorize(j)
        return [sch]

    fake, task = Fake(), matmul_task(16)
    rule = Rule(for_the_product(Rule.APPLY), own)
    task.tune(options(4, fake), auto_scheduler.SketchPolicy(task, init_search_callbacks=[rule]))
    assert [inp.kind for inp in fake.seen].count("trace") == 1
    pair = Rule(for_the_product(Rule.APPLY), lambda policy, state, stage: tiled(policy, state, stage)[0])
    states = auto_scheduler.SketchPolicy(task, init_search_callbacks=[pair]).generate_sketches()
    assert states[0].by_hand and not states[1].by_hand
    nonsense = Rule(for_the_product(Rule.APPLY), lambda *args: [3], "nonsense")
    with pytest.raises(TypeError, match="the rule nonsense returned int"):
        task.tune(options(4), auto_scheduler.SketchPolicy(task, init_search_callbacks=[nonsense]))


# ---------------------------------------------------------------------------- for real
@pytest.mark.slow
def test_states_by_hand_are_built_and_run() -> None:
    task = matmul_task(32, "llvm")
    C = task.compute_dag.tensors[2]
    good, bad = task.compute_dag.get_init_state(), task.compute_dag.get_init_state()
    good.vectorize(C, good.split(C, good[C].iters[1], [8])[1])
    inputs = [auto_scheduler.MeasureInput(task, good)]
    with pytest.raises(tvm.TVMError, match="vectorize"):
        bad.vectorize(C, bad[C].iters[2])  # lanes of a sum
        auto_scheduler.MeasureInput(task, bad).candidate  # noqa: B018 - it is scheduled when it is asked for
    built = auto_scheduler.LocalBuilder().build(inputs)
    assert [b.error_no for b in built] == [0] and built[0].time_cost > 0
    (result,) = auto_scheduler.LocalRunner(timeout=60).run(inputs, built)
    assert result.error_no == 0 and result.costs
    failed = auto_scheduler.measure.BuildResult(None, [], 2, "no", 0.1)
    (given,) = auto_scheduler.LocalRunner().run(inputs, [failed])
    assert (given.error_no, given.error_msg) == (2, "no")


@pytest.mark.slow
def test_the_program_as_it_is_written(tmp_path: Path) -> None:
    path, task = tmp_path / "plain.json", matmul_task(16, "llvm")
    record = auto_scheduler.RecordToFile(path)
    task.tune(
        auto_scheduler.TuningOptions(1, measure_callbacks=[record], verbose=0),
        auto_scheduler.EmptyPolicy(task),
    )
    sch, _ = task.apply_best(path)
    tvm.ir.assert_structural_equal(
        sch.mod["main"], te.create_prim_func(list(matmul_auto_scheduler_test(16, 16, 16)))
    )
    (found,) = read_lines(path).records
    assert found.status == Status.OK and found.seconds
