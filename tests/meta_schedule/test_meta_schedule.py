"""MetaSchedule's names over the one search: databases, spaces, builders, runners, tuning of programs and models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import meta_schedule as ms
from tilewright import relay, te
from tilewright.contrib import graph_executor
from tilewright.ir.errors import UnsupportedError
from tilewright.meta_schedule.arg_info import ArgInfo, TensorInfo
from tilewright.meta_schedule.builder import BuilderInput, BuilderResult, LocalBuilder, PyBuilder
from tilewright.meta_schedule.database import (
    JSONDatabase,
    MemoryDatabase,
    OrderedUnionDatabase,
    PyDatabase,
    TuningRecord,
    UnionDatabase,
    Workload,
)
from tilewright.meta_schedule.runner import (
    EvaluatorConfig,
    LocalRunner,
    PyRunner,
    RPCRunner,
    RunnerFuture,
    RunnerInput,
    RunnerResult,
)
from tilewright.meta_schedule.schedule_rule import MultiLevelTiling, PyMutator, PyScheduleRule
from tilewright.meta_schedule.space_generator import PostOrderApply, ScheduleFn

TARGET = tvm.target.Target("llvm -num-cores=1")


def matmul(n: int = 16) -> tvm.IRModule:
    A, B = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((n, n), lambda i, j: te.sum(A[i, k] * B[k, j], axis=[k]), name="C")
    return tvm.IRModule({"main": te.create_prim_func([A, B, C])})


def tiled(sch: tvm.tir.Schedule) -> None:
    i, _, _ = sch.get_loops(sch.get_block("C"))
    sch.split(i, sch.sample_perfect_tile(i, n=2))


def record(mod: tvm.IRModule, seconds: float, factor: int) -> TuningRecord:
    sch = tvm.tir.Schedule(mod)
    sch.split(sch.get_loops(sch.get_block("C"))[0], [None, factor])
    return TuningRecord(sch.trace, Workload(mod), [seconds], TARGET, ArgInfo.from_entry_func(mod))


class Lengths(PyRunner):
    """Pretends that a library runs as many seconds as its file is long, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def run(self, runner_inputs: Any) -> list[RunnerFuture]:
        self.count += len(runner_inputs)
        seconds = [Path(i.artifact_path).stat().st_size * 1e-6 for i in runner_inputs]
        return [RunnerFuture(lambda: True, lambda s=s: RunnerResult([s])) for s in seconds]


# -- databases ----------------------------------------------------------------------------------------
def test_records_in_memory() -> None:
    mod, db = matmul(), ms.Database.create("memory")
    assert not db.has_workload(mod) and len(db) == 0
    workload = db.commit_workload(mod)
    assert db.has_workload(matmul()) and db.commit_workload(matmul()) is workload
    for seconds, factor in ((3.0, 2), (1.0, 4), (2.0, 8)):
        db.commit_tuning_record(record(mod, seconds, factor))
    assert [r.run_secs for r in db.get_top_k(workload, 2)] == [[1.0], [2.0]]
    assert len(db) == 3 and isinstance(db, MemoryDatabase)
    best = db.query_tuning_record(mod, TARGET, "main")
    assert (
        best is not None and best.run_secs == [1.0] and best.args_info[0] == TensorInfo("float32", (16, 16))
    )
    sch = db.query_schedule(mod, TARGET, "main")
    expected = record(mod, 1.0, 4).as_measure_candidate().sch
    tvm.ir.assert_structural_equal(sch.mod, expected.mod)
    tvm.ir.assert_structural_equal(db.query(mod, TARGET, kind="ir_module"), expected.mod)
    assert db.query_schedule(matmul(8), TARGET) is None
    again = TuningRecord.from_json(best.as_json(), Workload.from_json(workload.as_json()))
    assert again.as_json() == best.as_json()
    with pytest.raises(ValueError, match="kind is one of schedule, record, ir_module"):
        db.query(mod, TARGET, kind="text")


def test_records_in_files(tmp_path: Path) -> None:
    mod, db = matmul(), JSONDatabase(work_dir=tmp_path)
    db.commit_workload(mod)
    db.commit_tuning_record(record(mod, 1.0, 4))
    again = JSONDatabase(
        str(tmp_path / "database_workload.json"), str(tmp_path / "database_tuning_record.json")
    )
    assert again.has_workload(mod) and len(again) == 1
    tvm.ir.assert_structural_equal(again.query_ir_module(mod, TARGET), db.query_ir_module(mod, TARGET))
    pruned = MemoryDatabase()
    again.commit_tuning_record(record(mod, 2.0, 8))
    again.dump_pruned(pruned)
    assert len(again) == 2 and [r.run_secs for r in pruned.get_all_tuning_records()] == [[1.0]]
    with pytest.raises(FileNotFoundError, match="there is no such file of records"):
        JSONDatabase(work_dir=tmp_path / "none", allow_missing=False)


def test_unions_and_functions_of_schedules() -> None:
    mod, fast, slow = matmul(), MemoryDatabase(), MemoryDatabase()
    fast.commit_tuning_record(record(mod, 1.0, 4))
    slow.commit_tuning_record(record(mod, 2.0, 8))
    assert UnionDatabase(slow, fast).query_tuning_record(mod, TARGET).run_secs == [1.0]
    assert OrderedUnionDatabase(slow, fast).query_tuning_record(mod, TARGET).run_secs == [2.0]

    def by_hand(sch: tvm.tir.Schedule) -> bool:
        sch.parallel(sch.get_loops(sch.get_block("C"))[0])
        return True

    made = ms.Database.create(by_hand)
    assert "T.parallel" in made.query_ir_module(mod, TARGET).script()


def test_a_database_is_asked_in_its_block() -> None:
    mod, db = matmul(), MemoryDatabase()
    db.commit_tuning_record(record(mod, 1.0, 4))
    assert ms.Database.current() is None
    with db:
        assert ms.Database.current() is db
        found = tvm.auto_schedule(mod, TARGET)
    assert ms.Database.current() is None
    tvm.ir.assert_structural_equal(found.mod, db.query_ir_module(mod, TARGET))


def test_a_database_of_your_own() -> None:
    class Mine(PyDatabase):
        def __init__(self) -> None:
            super().__init__()
            self.kept: list[TuningRecord] = []

        def commit_tuning_record(self, given: TuningRecord) -> None:
            self.kept.append(given)

        def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
            return sorted(self.kept, key=lambda r: r.run_secs[0])[:top_k]

    db = Mine()
    assert db.query_schedule(matmul(), TARGET) is None
    db.commit_tuning_record(record(matmul(), 1.0, 2))
    assert db.query_schedule(matmul(), TARGET) is not None


def test_drawn_choices_are_decided_in_records() -> None:
    mod, db = matmul(), MemoryDatabase()
    sch = tvm.tir.Schedule(mod, seed=7)
    i, j, _ = sch.get_loops(sch.get_block("C"))
    sch.split(i, sch.sample_perfect_tile(i, n=2))
    sch.unroll(sch.split(j, [None, sch.sample_categorical([2, 4], [0.5, 0.5])])[1])
    db.commit_tuning_record(TuningRecord(sch.trace, Workload(mod), [1.0], TARGET))
    assert "sample" not in str(db.get_all_tuning_records()[0].as_json())
    tvm.ir.assert_structural_equal(db.query_ir_module(mod, TARGET), sch.mod)


# -- builders and runners -----------------------------------------------------------------------------
def test_a_library_is_built_and_run() -> None:
    (built,) = LocalBuilder().build([BuilderInput(matmul(), TARGET)])
    assert built.error_msg is None
    runner = LocalRunner(evaluator_config=EvaluatorConfig(number=1, repeat=2, min_repeat_ms=0))
    (future,) = runner.run([RunnerInput(built.artifact_path, "cpu", ArgInfo.from_entry_func(matmul()))])
    assert future.done() and len(future.result().run_secs) == 2
    (missing,) = runner.run([RunnerInput("/nowhere.so", "cpu", [])])
    assert missing.result().run_secs is None and "nowhere" in missing.result().error_msg
    with pytest.raises(UnsupportedError, match="workers of a Dask cluster"):
        RPCRunner()


# -- tuning -------------------------------------------------------------------------------------------
def test_a_function_of_your_own_is_a_space(tmp_path: Path) -> None:
    runner = Lengths()
    db = ms.tune_tir(matmul(), TARGET, str(tmp_path), 4, runner=runner, space=tiled)
    assert 1 <= runner.count <= 4 and len(db) == runner.count
    sch = ms.tir_integration.compile_tir(db, matmul(), TARGET)
    assert sch is not None and len(sch.get_loops(sch.get_block("C"))) == 4
    data = [np.random.default_rng(i).random((16, 16)).astype("float32") for i in range(2)]
    a, b, c = (tvm.nd.array(x) for x in (*data, np.zeros((16, 16), "float32")))
    tvm.build(sch.mod, target=TARGET)(a, b, c)
    np.testing.assert_allclose(c.numpy(), data[0] @ data[1], rtol=1e-5)


@pytest.mark.slow
def test_the_search_with_callbacks_and_a_runner_of_your_own(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []

    class Note(ms.measure_callback.PyMeasureCallback):
        def apply(
            self,
            task_scheduler: Any,
            task_id: int,
            measure_candidates: Any,
            builder_results: Any,
            runner_results: Any,
        ) -> None:
            assert task_scheduler.database_ is not None and len(builder_results) == len(runner_results)
            assert all(isinstance(c.sch, tvm.tir.Schedule) for c in measure_candidates)
            told.append((task_id, len(measure_candidates)))

    with ms.Profiler() as profiler:
        db = ms.tune_tir(
            matmul(), TARGET, str(tmp_path), 3, runner=Lengths(), cost_model="random", strategy="replay-trace",
            measure_callbacks=["default", Note()], task_scheduler="round-robin", num_trials_per_iter=2,
        )  # fmt: skip
    assert sum(n for _, n in told) == 3 and {i for i, _ in told} == {0}
    assert db.query_schedule(matmul(), TARGET) is not None
    assert "Search" in profiler.get() and "Total" in profiler.table()


@pytest.mark.slow
def test_rules_of_your_own_beside_the_plan(tmp_path: Path) -> None:
    class Halves(PyScheduleRule):
        def apply(self, sch: tvm.tir.Schedule, block: Any) -> list[tvm.tir.Schedule]:
            other = sch.copy()
            other.split(other.get_loops(block)[0], [2, None])
            return [sch, other]

    space = PostOrderApply(sch_rules=[Halves()])
    context = ms.TuneContext(matmul(), target=TARGET, space_generator=space)
    assert len(context.generate_design_space()) == 3  # two of the rule, one of the plan
    db = ms.tune_tir(matmul(), TARGET, str(tmp_path), 4, runner=Lengths(), space=space)
    assert {r.origin for r in db.store.records()} >= {"by hand", "trial"}
    assert db.query_schedule(matmul(), TARGET) is not None


@pytest.mark.slow
def test_a_model_is_tuned_and_compiled(tmp_path: Path) -> None:
    x, w = relay.var("x", shape=(4, 16)), relay.var("w", shape=(8, 16))
    mod = tvm.IRModule.from_expr(relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w))))
    weights = np.random.default_rng(0).standard_normal((8, 16)).astype("float32")
    found = ms.relay_integration.extract_tasks(mod, TARGET, {"w": weights})
    assert ["dense" in t.task_name for t in found] == [True] and found[0].weight == 1
    db = ms.relay_integration.tune_relay(mod, {"w": weights}, TARGET, str(tmp_path), 2, runner=Lengths())
    lib = ms.relay_integration.compile_relay(db, mod, TARGET, {"w": weights})
    made = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    data = np.random.default_rng(1).standard_normal((4, 16)).astype("float32")
    made.run(x=data)
    np.testing.assert_allclose(
        made.get_output(0).numpy(), np.maximum(data @ weights.T, 0), rtol=1e-4, atol=1e-5
    )


def test_a_builder_that_fails_is_told(tmp_path: Path) -> None:
    class Broken(PyBuilder):
        def build(self, build_inputs: Any) -> list[BuilderResult]:
            return [BuilderResult(None, "no compiler today") for _ in build_inputs]

    with pytest.raises(tvm.TVMError, match="no compiler today"):
        ms.tune_tir(matmul(), TARGET, str(tmp_path), 2, builder=Broken())


# -- refusals -----------------------------------------------------------------------------------------
def test_what_is_refused(tmp_path: Path) -> None:
    class Own(PyMutator):
        pass

    class Search(ms.search_strategy.PySearchStrategy):
        pass

    class Model(ms.cost_model.PyCostModel):
        pass

    with pytest.raises(UnsupportedError, match="rows of a table"):
        PostOrderApply(mutator_probs={Own(): 0.5})
    with pytest.warns(RuntimeWarning, match="decides its arguments by itself"):
        PostOrderApply(sch_rules=[MultiLevelTiling(structure="SSRSRS")])
    with pytest.raises(UnsupportedError, match="not applied one by one"):
        MultiLevelTiling(structure="SSRSRS").apply(tvm.tir.Schedule(matmul()), None)
    for options, why in (
        ({"strategy": Search()}, "there is one search"),
        ({"cost_model": Model()}, "scored as rows of a table"),
        ({"cost_model": "mlp"}, "there is no cost model of this kind"),
        ({"module_equality": "anchor-block"}, "programs are compared by structure"),
    ):
        with pytest.raises(UnsupportedError, match=why):
            ms.tune_tir(matmul(), TARGET, str(tmp_path), 2, runner=Lengths(), **options)
    with pytest.raises(ValueError, match="there is no space 'nothing'"):
        ms.TuneContext(matmul(), target=TARGET, space_generator="nothing")
    with pytest.raises(TypeError, match=r"returns nothing, a tir\.Schedule, or a list"):
        ScheduleFn(lambda sch: [1]).drawn(matmul(), 0)


def test_arguments_of_built_in_rules_say_that_they_do_nothing() -> None:
    with pytest.warns(UserWarning, match="the arguments of RandomComputeLocation do nothing here"):
        ms.schedule_rule.RandomComputeLocation("anywhere")
