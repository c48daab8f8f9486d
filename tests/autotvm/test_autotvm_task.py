"""Templates, tasks and the contexts that say which configuration is taken."""

from __future__ import annotations

import logging
from typing import Any

import how_many
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import autotvm, te, topi
from tilewright.autotvm.measure import MeasureInput, MeasureResult
from tilewright.autotvm.task.space import FallbackConfigEntity, InstantiationError
from tilewright.autotvm.task.task import FlopCalculationError, compute_flop
from tilewright.testing.autotvm import bad_matmul, get_sample_task, matmul
from tilewright.tir.interpret import interpret


@autotvm.template("test/scaled")
def scaled(n: int, factor: float) -> Any:
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * factor, name="B")
    s = te.create_schedule(B.op)
    cfg = autotvm.get_config()
    cfg.define_split("tile", B.op.axis[0], num_outputs=2)
    cfg.define_knob("vec", [False, True])
    _, inner = cfg["tile"].apply(s, B, B.op.axis[0])
    if cfg["vec"].val:
        if cfg["tile"].size[-1] > 16:
            cfg.raise_error("too wide")
        s[B].vectorize(inner)
    return s, [A, B]


def record(task: Any, index: int, time: float, error: int = 0) -> tuple[MeasureInput, MeasureResult]:
    config = task.config_space.get(index)
    return MeasureInput(task.target, task, config), MeasureResult((time,), error, 0.1, 1.0)


# ---------------------------------------------------------------------------- tasks
def test_a_task_knows_what_is_open() -> None:
    task, target = get_sample_task(64)
    assert task.name == "testing/matmul" and task.target == target
    assert task.args == (64, 64, 64, "float32") and task.kwargs == {}
    assert task.workload == ("testing/matmul", 64, 64, 64, "float32")
    assert task.config_space.dims == [7, 7] and task.flop == 2 * 64**3
    assert str(task).startswith("Task(func_name=testing/matmul, args=(64, 64, 64, 'float32'), kwargs={}")
    by_function = autotvm.task.create(matmul, args=(64, 64, 64, "float32"), target="llvm")
    assert by_function.workload == task.workload


@pytest.mark.parametrize("index", [0, 1, 7, 13])
def test_every_configuration_computes_the_same(index: int) -> None:
    task = autotvm.task.create("test/scaled", args=(64, 3.0), target="llvm")
    sch, args = task.instantiate(task.config_space.get(index))
    arrays = [np.arange(64, dtype="float32"), np.zeros(64, "float32")]
    interpret(tvm.lower(sch, args)["main"], *arrays)
    assert (arrays[1] == 3 * arrays[0]).all()


def test_a_candidate_is_a_program_of_the_same_parameters() -> None:
    task = autotvm.task.create("test/scaled", args=(64, 3.0), target="llvm")
    mod = task.candidate(task.config_space.get(3))
    assert "for i_outer, i_inner in T.grid(8, 8)" in mod.script()
    assert "for i in range(64)" in task.engine_task.mod.script()
    refused = task.config_space.knob2point([6, 1])
    with pytest.raises(InstantiationError, match=r"^too wide$"):
        task.candidate(task.config_space.get(refused))


def test_a_template_whose_parameters_depend_on_the_configuration() -> None:
    @autotvm.template("test/padded")
    def padded(n: int) -> Any:
        cfg = autotvm.get_config()
        cfg.define_knob("pad", [0, 8])
        A = te.placeholder((n + cfg["pad"].val,), name="A")
        B = te.compute((n,), lambda i: A[i] + 1, name="B")
        return te.create_schedule(B.op), [A, B]

    task = autotvm.task.create("test/padded", args=(8,), target="llvm")
    task.candidate(task.config_space.get(0))
    with pytest.raises(InstantiationError, match=r"takes \(A\[16\]:float32.*the first one \(A\[8\]:float32"):
        task.candidate(task.config_space.get(1))


def test_a_template_may_return_a_tir_schedule() -> None:
    @autotvm.template("test/tir")
    def by_blocks(n: int) -> Any:
        A = te.placeholder((n,), name="A")
        B = te.compute((n,), lambda i: A[i] + 1, name="B")
        sch = tvm.tir.Schedule(te.create_prim_func([A, B]))
        (loop,) = sch.get_loops(sch.get_block("B"))
        cfg = autotvm.get_config()
        cfg.define_split("tile", cfg.axis(n), num_outputs=2)
        sch.split(loop, [None, cfg["tile"].size[1]])
        return sch, [A, B]

    task = autotvm.task.create("test/tir", args=(32,), target="llvm")
    assert task.config_space.dims == [6] and task.flop == 32
    assert "T.grid(8, 4)" in task.candidate(task.config_space.get(2)).script()


def test_what_is_wrong_with_a_task_is_said() -> None:
    with pytest.raises(
        tvm.TVMError, match=r"there is no template 'testing/matmull'; did you mean testing/matmul"
    ):
        autotvm.task.create("testing/matmull", args=(1,), target="llvm")
    with pytest.raises(
        TypeError, match="an argument of a template or a workload is a set; it must be a number"
    ):
        autotvm.task.create("test/scaled", args=({1},), target="llvm")
    with pytest.raises(TypeError, match="takes its arguments by position only"):
        matmul(N=1, L=2, M=3, dtype="float32")

    @autotvm.template("test/nothing")
    def nothing() -> None:
        pass

    with pytest.raises(TypeError, match=r"a template returns a schedule and its tensors, \(s, \[A, B, C\]\)"):
        autotvm.task.create("test/nothing", args=(), target="llvm")
    with pytest.raises(ValueError, match="there is another template 'test/nothing' already"):
        autotvm.template("test/nothing", lambda: None)


def test_the_target_is_there_for_the_template() -> None:
    with pytest.raises(tvm.TVMError):
        autotvm.task.create("testing/bad_matmul", args=(8, 8, 8, "float32"), target="nonsense")
    good = autotvm.task.create("testing/bad_matmul", args=(8, 8, 8, "float32"), target="llvm")
    bad = autotvm.task.create(
        "testing/bad_matmul", args=(8, 8, 8, "float32"), target="llvm -keys=cpu,bad_device"
    )
    assert good.flop == 2 * 8**3 and bad.flop == 2 * 8 * 8 * 7
    assert bad_matmul.__name__ == "bad_matmul"


@autotvm.template("test/rich")
def rich(m: int, n: int, k: int) -> Any:
    """Tiles that do not divide, loops in any order, unrolled or in vectors."""
    A, B = te.placeholder((m, k), name="A"), te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), name="r")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    s = te.create_schedule(C.op)
    y, x = s[C].op.axis
    cfg = autotvm.get_config()
    cfg.define_split("y", y, policy="verbose", num_outputs=2)
    cfg.define_split("x", x, policy="power2", num_outputs=3)
    loops = [*cfg["y"].apply(s, C, y), *cfg["x"].apply(s, C, x)]
    cfg.define_reorder("order", [*loops[1:4], s[C].op.reduce_axis[0]], policy="all")
    cfg["order"].apply(s, C, [*loops[1:4], s[C].op.reduce_axis[0]])
    cfg.define_annotate("ann", [loops[1], loops[4]], policy="try_unroll_vec")
    cfg["ann"].apply(s, C, [loops[1], loops[4]])
    return s, [A, B, C]


@settings(max_examples=how_many.examples(16), derandomize=True, deadline=None)
@given(st.data())
def test_any_configuration_of_a_rich_template_computes_the_same(data: st.DataObject) -> None:
    task = autotvm.task.create("test/rich", args=(6, 11, 5), target="llvm")
    config = task.config_space.get(data.draw(st.integers(0, len(task.config_space) - 1)))
    rng = np.random.default_rng(0)
    a, b = rng.random((6, 5), "float32"), rng.random((5, 11), "float32")
    c = np.zeros((6, 11), "float32")
    mod = task.candidate(config)
    interpret(mod["main"], a, b, c, check_regions=True)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    c[:] = 0
    interpret(tvm.lower(mod)["main"], a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


# ---------------------------------------------------------------------------- operations
@pytest.mark.parametrize("dtypes", [("float32", "float32"), ("int8", "int32")])
def test_operations_of_a_convolution_are_counted(dtypes: tuple[str, str]) -> None:
    data = te.placeholder((2, 8, 14, 14), dtypes[0], name="data")
    weight = te.placeholder((16, 8, 3, 3), dtypes[0], name="weight")
    out = topi.nn.conv2d(data, weight, 1, 1, 1, out_dtype=dtypes[1])
    assert compute_flop(te.create_schedule(out.op)) == 2 * 2 * 16 * 14 * 14 * 8 * 9


def test_operations_of_chains_are_counted() -> None:
    A = te.placeholder((8, 8), name="A")
    B = te.compute((8, 8), lambda i, j: te.exp(A[i, j]) + A[j, i] * te.const(2.0, "float32"), name="B")
    r = te.reduce_axis((0, 8), name="r")
    C = te.compute((8,), lambda i: te.max(B[i, r], axis=r), name="C")
    assert compute_flop(te.create_schedule(C.op)) == 64 * 3 + 64


def test_operations_that_cannot_be_counted() -> None:
    A = te.placeholder((8,), name="A")
    moved = te.compute((8,), lambda i: A[7 - i], name="B")
    with pytest.raises(RuntimeError, match=r"computes nothing that could be counted: use cfg\.add_flop"):
        compute_flop(te.create_schedule(moved.op))
    n = te.var("n")
    X = te.placeholder((n,), name="X")
    with pytest.raises(
        FlopCalculationError, match=r"the operations of Y cannot be counted.*cfg\.add_flop\(n\)"
    ):
        compute_flop(te.create_schedule(te.compute((n,), lambda i: X[i] + 1, name="Y").op))

    @autotvm.template("test/told")
    def told() -> Any:
        autotvm.get_config().add_flop(1234)
        return te.create_schedule(moved.op), [A, moved]

    assert autotvm.task.create("test/told", args=(), target="llvm").flop == 1234


# ---------------------------------------------------------------------------- contexts
def test_a_template_takes_the_best_record() -> None:
    task = autotvm.task.create("test/scaled", args=(64, 3.0), target="llvm")
    slow, best, wrong = record(task, 1, 2.0), record(task, 4, 1.0), record(task, 6, 0.5, error=5)
    with autotvm.apply_history_best([slow, best, wrong]) as context, tvm.target.Target("llvm"):
        s, _ = scaled(64, 3.0)
        assert autotvm.DispatchContext.current is context
        assert int(s[s.outputs[0].output(0)].leaf_iter_vars[-1].dom.extent) == 16
        context.update(tvm.target.Target("llvm"), task.workload, task.config_space.get(2))
        s, _ = scaled(64, 3.0)
        assert int(s[s.outputs[0].output(0)].leaf_iter_vars[-1].dom.extent) == 4
    assert isinstance(autotvm.DispatchContext.current, autotvm.FallbackContext)


def test_records_are_of_a_model_before_they_are_of_a_kind() -> None:
    task = autotvm.task.create("test/scaled", args=(64, 3.0), target="llvm -model=mine")
    with autotvm.apply_history_best([record(task, 4, 1.0)]) as context:
        for name in ("llvm -model=mine", "llvm"):
            assert context.query(tvm.target.Target(name), task.workload).index == 4
        assert context.query(tvm.target.Target("cuda"), task.workload).is_fallback
        with pytest.raises(tvm.TVMError, match=r"none is set: `with tvm\.target\.Target\(…\):` around it"):
            context.query(None, task.workload)


def test_contexts_pass_on_what_they_do_not_know(caplog: pytest.LogCaptureFixture) -> None:
    task = autotvm.task.create("test/scaled", args=(64, 3.0), target="llvm")
    other = autotvm.task.create("test/scaled", args=(32, 3.0), target="llvm")
    with (
        tvm.target.Target("llvm"),
        autotvm.apply_history_best([record(task, 4, 1.0)]),
        autotvm.apply_history_best([record(other, 3, 1.0)]) as inner,
        caplog.at_level(logging.WARNING, "autotvm"),
    ):
        target = tvm.target.Target.current()
        assert inner.query(target, task.workload).index == 4
        assert inner.query(target, other.workload).index == 3
        for _ in range(2):
            scaled(16, 5.0)
    (line,) = caplog.records  # said once
    assert (
        "no record for target=llvm" in line.getMessage() and "('test/scaled', 16, 5.0)" in line.getMessage()
    )


def test_the_fallback_remembers() -> None:
    context = autotvm.FallbackContext()
    target, workload = tvm.target.Target("llvm"), ("w", 1)
    with context:
        first = context.query(target, workload)
        assert isinstance(first, FallbackConfigEntity) and context.query(target, workload) is first
        autotvm.task.clear_fallback_cache(target, workload)
        assert context.query(target, workload) is not first
        context.update(target, workload, first)
        assert context.query(target, workload) is first


def test_one_configuration_for_all() -> None:
    task = autotvm.task.create("test/scaled", args=(64, 3.0), target="llvm")
    with autotvm.ApplyConfig(task.config_space.get(5)) as context:
        assert autotvm.get_config().index == 5
        scaled(64, 3.0)
        context.update(task.target, task.workload, task.config_space.get(6))
        assert autotvm.get_config().index == 6
    with autotvm.ApplyFixedConfig([task], ["test/scaled"]) as fixed:
        assert fixed.query(task.target, task.workload).cost == 0
        assert fixed.query(task.target, ("another", 1)).is_fallback


def test_a_graph_has_a_record_for_each_node() -> None:
    tasks = [autotvm.task.create("test/scaled", args=(n, 3.0), target="llvm") for n in (64, 32)]
    with autotvm.apply_graph_best([record(tasks[0], 4, 1.0), record(tasks[1], 2, 1.0)]) as context:
        found = [context.query(t.target, t.workload).index for t in (tasks[1], tasks[0], tasks[1])]
    assert found == [2, 4, 2]


def test_a_reference_of_other_sizes() -> None:
    tasks = [autotvm.task.create("testing/matmul", args=(n, n, n, "float32"), target="llvm") for n in (96, 7)]
    log = [record(tasks[0], tasks[0].config_space.knob2point([5, 4]), 1.0), record(tasks[1], 0, 1.0)]
    cfg = FallbackConfigEntity()
    cfg.define_split("tile_y", cfg.axis(48), num_outputs=2)
    cfg.define_split("tile_x", cfg.axis(10), num_outputs=2)
    cfg.define_knob("other", [1, 2])
    cfg.fallback_with_reference_log(log)
    assert (cfg["tile_y"].size, cfg["tile_x"].size, cfg["other"].val) == ([6, 8], [2, 5], 1)


# ---------------------------------------------------------------------------- in two functions
@autotvm.register_topi_compute("test/dense")
def dense(cfg: Any, data: te.Tensor, weight: te.Tensor) -> te.Tensor:
    k = te.reduce_axis((0, data.shape[1]), name="k")
    cfg.define_split("tile", cfg.axis(weight.shape[0]), num_outputs=2)
    return te.compute(
        (data.shape[0], weight.shape[0]), lambda i, j: te.sum(data[i, k] * weight[j, k], axis=k), name="dense"
    )


@autotvm.register_topi_schedule("test/dense")
def schedule_dense(cfg: Any, outs: list[te.Tensor]) -> Any:
    s = te.create_schedule([t.op for t in outs])
    (out,) = outs
    source = out if out.op.name == "dense" else out.op.input_tensors[0]
    cfg["tile"].apply(s, source, s[source].op.axis[1])
    return s


def test_a_template_in_two_functions() -> None:
    shapes = [te.placeholder((8, 16), name="data"), te.placeholder((32, 16), name="weight")]
    task = autotvm.task.create("test/dense", args=shapes, target="llvm")
    assert task.args == (("TENSOR", (8, 16), "float32"), ("TENSOR", (32, 16), "float32"))
    assert task.config_space.dims == [6] and task.flop == 2 * 8 * 32 * 16
    assert "T.grid(8, 8, 4, 16)" in task.candidate(task.config_space.get(2)).script()
    with tvm.target.Target("llvm"), autotvm.apply_history_best([record(task, 3, 1.0)]):
        out = topi.nn.relu(dense(*shapes))  # what comes after it hides nothing
        assert autotvm.task.get_workload([out]) == task.workload
        s = schedule_dense([out])
        assert "T.grid(8, 4, 8, 16)" in tvm.driver.build_module.schedule_to_module(s, [*shapes, out]).script()
    with pytest.raises(
        tvm.TVMError, match=r"not those of the template test/dense: compute them with the function"
    ):
        schedule_dense([topi.nn.relu(shapes[0])])


def test_templates_that_are_called_become_tasks() -> None:
    env = autotvm.task.TaskExtractEnv.get()
    shapes = [te.placeholder((8, 16), name="data"), te.placeholder((32, 16), name="weight")]
    with env, tvm.target.Target("llvm"):
        dense(*shapes)
        dense(*shapes)
    (task,) = env.get_tasks("llvm")
    assert task.name == "test/dense"
    env.reset(["other"])
    env.add_task("test/dense", shapes)
    assert env.task_collection == []
    env.reset()


def test_a_template_may_be_called_with_variables() -> None:
    @autotvm.template("test/dynamic")
    def doubled(n: Any) -> Any:
        A = te.placeholder((n,), name="A")
        B = te.compute((n,), lambda i: A[i] * 2, name="B")
        s = te.create_schedule(B.op)
        cfg = autotvm.get_config()
        cfg.define_knob("tile", [4, 8])
        s[B].split(B.op.axis[0], cfg["tile"].val)
        return s, [A, B]

    n = te.var("n")
    assert doubled(n)[1][0].shape[0] is n
    (plain,) = autotvm.task.serialize_args((n,))
    (restored,) = autotvm.task.deserialize_args((plain,))
    assert plain == ("VAR", "n", "int32") and (restored.name, restored.dtype) == ("n", "int32")
