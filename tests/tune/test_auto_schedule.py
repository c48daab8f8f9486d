"""What `auto_schedule` makes of programs: which stages are inlined, fused, tiled, packed, turned."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Block, For, ForKind
from tilewright.target import Target
from tilewright.tir import ScheduleError

# Figures of a machine that is always the same, so that the decisions are.
MACHINE = Target("llvm -mcpu=skylake-avx512 -num-cores=4")


def schedule(args: list[Any], **figures: Any) -> Any:
    return tvm.auto_schedule(te.create_prim_func(args), MACHINE.with_machine(figures) if figures else MACHINE)


def records(sch: Any) -> dict[str, Any]:
    """What is told of each stage."""
    return {r["stage"]: r for r in sch.explanation.records}


def loops_of(sch: Any, name: str) -> list[For]:
    return [sch.loop(x) for x in sch.get_loops(sch.get_block(name))]


def kinds_of(sch: Any, name: str) -> list[ForKind]:
    return [x.kind for x in loops_of(sch, name)]


def blocks(sch: Any) -> list[str]:
    return [
        n.name_hint for n in pre_order(sch.mod["main"].body) if isinstance(n, Block) and n.name_hint != "root"
    ]


def matmul(n: int = 128, m: int = 128, k: int = 128, dtype: str = "float32") -> tuple[Any, Any, Any]:
    A, B = te.placeholder((n, k), dtype, name="A"), te.placeholder((k, m), dtype, name="B")
    r = te.reduce_axis((0, k), "k")
    return A, B, te.compute((n, m), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")


# ---------------------------------------------------------------------------- inlining
def test_elementwise_stages_become_one() -> None:
    A = te.placeholder((1000,), name="A")
    B = te.compute((1000,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((1000,), lambda i: tir.exp(B[i]), name="C")
    D = te.compute((1000,), lambda i: C[i] + 1.0, name="D")
    sch = schedule([A, D])
    assert blocks(sch) == ["D"]
    assert records(sch)["B"] == {"stage": "B", "sketch": "inline", "into": ["C"]}
    assert records(sch)["C"]["into"] == ["D"]


def test_an_output_is_stored_even_if_another_stage_reads_it() -> None:
    A = te.placeholder((1000,), name="A")
    B = te.compute((1000,), lambda i: A[i] * 2.0, name="B")
    C = te.compute((1000,), lambda i: B[i] + 1.0, name="C")
    assert blocks(schedule([A, B, C])) == ["B", "C"]


def test_what_is_dear_is_not_computed_for_each_of_its_readers() -> None:
    A = te.placeholder((1000,), name="A")
    B = te.compute((1000,), lambda i: tir.exp(A[i]), name="B")
    C = te.compute((1000,), lambda i: B[i] + 1.0, name="C")
    D = te.compute((1000,), lambda i: B[i] * C[i], name="D")
    sch = schedule([A, C, D])
    assert "B" in blocks(sch)


def test_what_a_product_reads_again_and_again_is_not_inlined_into_it() -> None:
    A, B = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    E = te.compute((64, 64), lambda i, j: tir.exp(A[i, j]), name="E")
    k = te.reduce_axis((0, 64), "k")
    C = te.compute((64, 64), lambda i, j: te.sum(E[i, k] * B[k, j], axis=k), name="C")
    assert "E" in blocks(schedule([A, B, C]))


# ---------------------------------------------------------------------------- tiles
def test_a_product_is_a_tile_of_accumulators_in_registers() -> None:
    sch = schedule(list(matmul()))
    told = records(sch)["C"]
    assert told["sketch"] == "tile"
    assert told["lanes"] == MACHINE.cpu.lanes(32)
    assert 1 < told["registers"] <= MACHINE.cpu.vector_registers
    assert told["flop"] == 2 * 128**3
    (held,) = [b for b in sch.mod["main"].body.block.alloc_buffers if b.scope() == "local"]
    assert held.dtype == "float32"
    nest = loops_of(sch, "C")
    assert nest[-1].kind is ForKind.VECTORIZED
    reduction = [x.loop_var.name for x in nest].index("k")
    assert all(x.kind in (ForKind.UNROLLED, ForKind.VECTORIZED) for x in nest[reduction + 1 :])


def test_threads_take_tiles_where_that_pays() -> None:
    large, small = schedule(list(matmul(512, 512, 512))), schedule(list(matmul(16, 16, 16)))
    assert kinds_of(large, "C")[0] is ForKind.PARALLEL
    assert records(large)["C"]["parallel_units"] >= 4
    assert ForKind.PARALLEL not in kinds_of(small, "C")


def test_what_takes_the_results_is_computed_in_the_tile() -> None:
    A, B, C = matmul()
    bias = te.placeholder((128,), name="bias")
    zero = tir.const(0, "float32")
    D = te.compute((128, 128), lambda i, j: tir.max(C[i, j] + bias[j], zero), name="D")
    sch = schedule([A, B, bias, D])
    shared = loops_of(sch, "C")[0]
    assert loops_of(sch, "D")[0] is shared
    assert blocks(sch) == ["C", "D"]  # no copy of the results


def test_a_product_by_rows_of_both_has_lanes_of_partial_sums_or_panels() -> None:
    """Of x · wᵀ neighbours in memory are along the reduction."""
    x, w = te.placeholder((4, 256), name="x"), te.placeholder((64, 256), name="w")
    k = te.reduce_axis((0, 256), "k")
    y = te.compute((4, 64), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), name="y")
    told = records(schedule([x, w, y]))["y"]
    assert told["sketch"] == "dot" or told["packed"] == "w"


def test_constant_weights_lie_in_panels_before_the_program_runs() -> None:
    A, B, C = matmul(96, 128, 64)
    func = te.create_prim_func([A, B, C])
    sch = tvm.auto_schedule(func, MACHINE, constants=["B"])
    told = records(sch)["C"]
    assert told["packed"] == "B" and told["packed_before"]
    first = sch.mod["main"].body.block.body.seq[0]
    assert next(b for b in pre_order(first) if isinstance(b, Block)).name_hint.startswith("B")
    a, b = (
        np.random.default_rng(0).random((96, 64), "float32"),
        np.random.default_rng(1).random((64, 128), "float32"),
    )
    got = np.zeros((96, 128), "float32")
    bound = tvm.compile(func, constants={"B": b})
    bound(a, got)
    np.testing.assert_allclose(got, a @ b, rtol=1e-5)
    with pytest.raises(TypeError, match="takes 2 arguments, not 3: its constants were bound by compile"):
        bound(a, b, got)


def test_constants_that_no_tile_packs_are_passed_along() -> None:
    A, B = te.placeholder((100,), name="A"), te.placeholder((100,), name="B")
    C = te.compute((100,), lambda i: A[i] + B[i], name="C")
    b, got = np.arange(100, dtype="float32"), np.zeros(100, "float32")
    tvm.compile([A, B, C], constants={"B": b})(np.ones(100, "float32"), got)
    np.testing.assert_array_equal(got, b + 1)


def test_a_wrong_name_of_a_constant() -> None:
    with pytest.raises(ScheduleError, match="'W' is not a parameter; there are A, B, C"):
        tvm.auto_schedule(te.create_prim_func(list(matmul())), MACHINE, constants=["W"])


# ---------------------------------------------------------------------------- rows
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "layer_norm", "rms_norm"])
def test_a_chain_along_rows_is_one_parallel_loop_over_rows(name: str) -> None:
    x = te.placeholder((512, 1024), name="x")
    g, b = te.placeholder((1024,), name="g"), te.placeholder((1024,), name="b")
    args = {"layer_norm": [x, g, b], "rms_norm": [x, g]}.get(name, [x])
    out = getattr(topi.nn, name)(*args, **({"axis": [1]} if "norm" in name else {}))
    sch = schedule([*args, out])
    body = sch.mod["main"].body.block.body
    assert isinstance(body, For) and body.kind is ForKind.PARALLEL
    assert body.extent.value == 512
    assert sum(isinstance(n, Block) for n in pre_order(body)) >= 3


def test_a_softmax_over_an_outer_axis_has_rows_in_lanes() -> None:
    x = te.placeholder((64, 1024), name="x")
    sch = schedule([x, topi.nn.softmax(x, axis=0)])
    told = sch.explanation.records[-1]
    assert told["rows in lanes"] == MACHINE.cpu.lanes(32)
    assert isinstance(sch.mod["main"].body.block.body, For)


def test_a_sum_along_a_line_has_lanes_of_partial_sums() -> None:
    x = te.placeholder((300, 1000), name="x")
    sch = schedule([x, topi.sum(x, axis=1)])
    assert any(name.endswith("_rf") for name in blocks(sch))


def test_few_sums_of_many_elements_are_shared_out_to_threads() -> None:
    x = te.placeholder((1 << 20,), name="x")
    sch = schedule([x, topi.sum(x, axis=0)])
    body = sch.mod["main"].body.block.body
    assert any(isinstance(n, For) and n.kind is ForKind.PARALLEL for n in pre_order(body))


def test_a_sum_over_lines_adds_up_whole_lines() -> None:
    x = te.placeholder((1000, 300), name="x")
    sch = schedule([x, topi.sum(x, axis=0)])
    assert blocks(sch) == ["T_sum"]
    assert loops_of(sch, "T_sum")[-1].kind is ForKind.VECTORIZED


def test_sums_over_other_rows_are_no_chain() -> None:
    """What is summed twice, over different axes, is not a row-by-row program."""
    x = te.placeholder((64, 64, 64), name="x")
    inner = topi.sum(x, axis=2)
    sch = schedule([x, topi.sum(inner, axis=1)])
    assert sorted(r["stage"] for r in sch.explanation.records) == ["T_sum", "T_sum_1"]


# ---------------------------------------------------------------------------- movement
def test_a_transpose_goes_across_in_registers(expect: Any) -> None:
    x = te.placeholder((64, 128), name="x")
    y = te.compute((128, 64), lambda i, j: x[j, i], name="y")
    sch = schedule([x, y])
    lanes = MACHINE.cpu.lanes(32)
    assert records(sch)["y"]["tile"] == f"{lanes} x {lanes}, transposed in registers"
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def main(x: T.Buffer((64, 128), "float32"), y: T.Buffer((128, 64), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for j_0, i_0, j_1 in T.grid(4, 8, 1):
                for i_1 in T.serial(16, annotations={"transpose_lanes": 1}):
                    for j_2 in T.vectorized(16):
                        with T.block("y"):
                            v_i = T.axis.spatial(128, i_0 * 16 + i_1)
                            v_j = T.axis.spatial(64, j_0 * 16 + j_2)
                            T.reads(x[v_j, v_i])
                            T.writes(y[v_i, v_j])
                            y[v_i, v_j] = x[v_j, v_i]
        """,
    )


def test_vectors_go_along_the_axis_before_one_of_a_single_element() -> None:
    A, I = te.placeholder((1000, 1), name="A"), te.placeholder((4096,), "int64", name="I")
    taken = topi.take(A, I, 0)
    sch = schedule([A, I, taken])
    (vector,) = [x for x in loops_of(sch, taken.op.name) if x.kind == ForKind.VECTORIZED]
    assert vector.extent.value == 8
    rng = np.random.default_rng(0)
    a, i = rng.standard_normal((1000, 1)).astype("float32"), rng.integers(0, 1000, 4096)
    out = tvm.nd.empty((4096, 1), "float32")
    tvm.build(sch.mod, target="llvm")(tvm.nd.array(a), tvm.nd.array(i), out)
    np.testing.assert_array_equal(out.numpy(), a[i])


def test_an_elementwise_program(expect: Any) -> None:
    x, b = te.placeholder((100, 70), name="x"), te.placeholder((70,), name="b")
    y = te.compute((100, 70), lambda i, j: x[i, j] + b[j], name="y")
    expect(
        schedule([x, b, y]).mod["main"],
        """
        @T.prim_func
        def main(x: T.Buffer((100, 70), "float32"), b: T.Buffer((70,), "float32"), y: T.Buffer((100, 70), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i, j_0 in T.grid(100, 5):
                for j_1 in T.vectorized(16):
                    with T.block("y"):
                        v_i = T.axis.spatial(100, i)
                        v_j = T.axis.spatial(70, j_0 * 16 + j_1)
                        T.where(j_0 * 16 + j_1 < 70)
                        T.reads(x[v_i, v_j], b[v_j])
                        T.writes(y[v_i, v_j])
                        y[v_i, v_j] = x[v_i, v_j] + b[v_j]
        """,
    )


def test_a_sum_of_each_row(expect: Any) -> None:
    x = te.placeholder((10, 100), name="x")
    k = te.reduce_axis((0, 100), "k")
    y = te.compute((10,), lambda i: te.sum(x[i, k], axis=k), name="y")
    expect(
        schedule([x, y]).mod["main"],
        """
        @T.prim_func
        def main(x: T.Buffer((10, 100), "float32"), y: T.Buffer((10,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            y_rf = T.alloc_buffer((10, 16), scope="local")
            for i in range(10):
                for ax2 in range(7):
                    for ax0 in T.vectorized(16):
                        with T.block("y_rf"):
                            vk_1, v_i, vk_0 = T.axis.remap("SSR", [ax0, i, ax2])
                            T.reads(x[v_i, vk_0 * 16 + vk_1])
                            T.writes(y_rf[v_i, vk_1])
                            with T.init():
                                y_rf[v_i, vk_1] = T.float32(0)
                            if vk_0 * 16 + vk_1 < 100:
                                y_rf[v_i, vk_1] = y_rf[v_i, vk_1] + x[v_i, vk_0 * 16 + vk_1]
                for k_1 in T.serial(16, annotations={"reduce_lanes": 1}):
                    with T.block("y"):
                        v_i, vk_1 = T.axis.remap("SR", [i, k_1])
                        T.reads(y_rf[v_i, vk_1])
                        T.writes(y[v_i])
                        with T.init():
                            y[v_i] = T.float32(0)
                        y[v_i] = y[v_i] + y_rf[v_i, vk_1]
        """,
    )


def test_large_results_go_past_the_caches() -> None:
    x = te.placeholder((1 << 24,), name="x")
    sch = schedule([x, te.compute((1 << 24,), lambda i: x[i] + 1.0, name="y")], l3=1 << 20)
    assert records(sch)["y"]["stores"] == "past the caches"


# ---------------------------------------------------------------------------- what is told
def test_explain_tells_the_decisions_in_numbers(capsys: Any) -> None:
    sch = schedule(list(matmul()))
    text = sch.explain()
    assert capsys.readouterr().out == text + "\n"
    for part in (
        "C: tile",
        "register tile",
        "accumulators",
        "intensity",
        "bound by",
        "GFLOP/s",
        "candidates",
    ):
        assert part in text
    told = json.loads(sch.explain(as_json=True))
    assert told["target"] == str(MACHINE)
    (stage,) = told["stages"]
    assert stage["stage"] == "C"
    assert stage["predicted_us"] > 0 and stage["candidates"] > 100
    assert stage["bound"] in ("compute", "loads from L1", "L1", "L2", "L3", "memory")


def test_a_schedule_by_hand_explains_itself_too(capsys: Any) -> None:
    A, B, C = matmul(8, 8, 8)
    assert "written by hand" in tir.Schedule(te.create_prim_func([A, B, C])).explain()


def test_trials_are_the_tuners(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr("tilewright.tune.search.search.tune_task", lambda *a, **k: asked.append((a, k)))
    args = list(matmul())
    tvm.auto_schedule(args, MACHINE, trials=8, constants=("B",), database="x.db", seed=3)
    assert asked == [((args, MACHINE, 8, "x.db", 3), {"constants": ("B",)})]


def test_a_program_that_no_rule_of_a_chip_takes() -> None:
    with pytest.raises(ScheduleError) as refused:
        tvm.auto_schedule(list(matmul()), "ext_dev")
    assert str(refused.value) == (
        "no rule for `ext_dev` schedules the stage C, and the chip runs no plain loops\n"
        "  matrix: its innermost axes are 128 x 128 x 128, and the unit multiplies 1 x 16 x 16\n"
        "  vector: its last axes do not have the 16 lanes of an element of local.acc_buffer\n"
        "  hint: write the program in elements of the chip, or compile it for a processor"
    )


def test_something_else() -> None:
    with pytest.raises(TypeError, match="takes tensors, a PrimFunc or an IRModule, not int"):
        tvm.auto_schedule(7)


def test_tensors_functions_and_modules_are_taken() -> None:
    args = list(matmul(20, 20, 20))
    func = te.create_prim_func(args)
    for given in (args, tuple(args), func, tvm.IRModule({"main": func})):
        assert records(tvm.auto_schedule(given, MACHINE))["C"]["sketch"] == "tile"


# ---------------------------------------------------------------------------- sameness
def programs() -> list[list[Any]]:
    x = te.placeholder((1, 16, 14, 14), name="x")
    w = te.placeholder((32, 16, 3, 3), name="w")
    s = te.placeholder((33, 65), name="s")
    return [
        list(matmul(37, 50, 19)),
        [x, w, topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1))],
        [s, topi.nn.softmax(s)],
        [s, topi.transpose(s)],
    ]


@pytest.mark.parametrize("which", range(4))
def test_the_same_program_gets_the_same_schedule(which: int) -> None:
    args = programs()[which]
    one, two = schedule(args), schedule(args)
    assert str(one.trace) == str(two.trace)
    tvm.ir.assert_structural_equal(one.mod, two.mod)
    assert one.explain() == two.explain()


@pytest.mark.parametrize("which", range(4))
def test_the_trace_gives_the_schedule_again(which: int) -> None:
    func = te.create_prim_func(programs()[which])
    sch = tvm.auto_schedule(func, MACHINE)
    again = tir.Schedule(func)
    sch.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, sch.mod)


@pytest.mark.parametrize("which", range(4))
def test_it_computes_the_same(which: int) -> None:
    assert schedule(programs()[which]).verify()


# ---------------------------------------------------------------------------- what no sketch takes
def test_a_function_with_nothing_to_compute_is_left_alone() -> None:
    x = te.placeholder((0, 4), name="x")
    func = te.create_prim_func([x, te.compute((0, 4), lambda i, j: x[i, j] + 1.0, name="y")])
    sch = tvm.auto_schedule(func, MACHINE)
    assert sch.mod["main"] is func
    assert "a size is 0" in sch.explain()


def test_a_refused_sketch_gives_way_to_a_simpler_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.tune.rules.cpu import rows, stream, tile

    def refuse(*args: Any) -> None:
        raise ScheduleError("not today")

    func = te.create_prim_func(list(matmul(32, 32, 32)))
    monkeypatch.setattr(tile, "apply_tile", refuse)
    sch = tvm.auto_schedule(func, MACHINE)
    told = records(sch)["C"]
    assert told["sketch"] == "rows" and told["instead"] == "not today"
    assert "C_local" not in str(sch.mod)  # what was begun is taken back
    assert sch.verify()
    monkeypatch.setattr(stream, "_schedule", refuse)
    monkeypatch.setattr(rows, "place_lanes", refuse)
    sch = tvm.auto_schedule(func, MACHINE)
    assert records(sch)["C"] == {"stage": "C", "sketch": "as it is", "instead": "not today"}
    assert sch.mod["main"] is func


def test_a_refused_chain_comes_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.tune.rules.cpu import row_chain

    def refuse(*args: Any) -> None:
        raise ScheduleError("not today")

    monkeypatch.setattr(row_chain, "_row_by_row", refuse)
    x = te.placeholder((16, 100), name="x")
    sch = schedule([x, topi.nn.softmax(x)])
    assert [r["sketch"] for r in sch.explanation.records if r.get("instead") == "not today"] == ["apart"]
    assert len(sch.mod["main"].body.block.body.seq) > 2
    assert sch.verify()


# ---------------------------------------------------------------------------- edges
def test_expressions_do_not_grow_without_bound() -> None:
    """Each stage reads the one before at two places: written out, the last would have 2 ** 40 terms."""
    x = te.placeholder((64,), name="x")
    y = x
    for i in range(40):
        y = te.compute((64,), lambda j, y=y: y[j] * y[63 - j] + 1.0, name=f"y{i}")
    sch = schedule([x, y])
    assert 1 < len(blocks(sch)) < 40
    assert len(sch.mod["main"].script()) < 100_000


SIZES = [(0, 5), (5, 0), (1, 1), (3, 70), (70, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul", "map", "transpose", "rows", "columns", "softmax", "all"])
def test_sizes_that_are_known_when_it_runs_may_be_anything(name: str) -> None:
    n, m = te.var("n"), te.var("m")
    A, B = te.placeholder((n, m), name="A"), te.placeholder((m, 33), name="B")
    args, result = {
        "matmul": ([A, B, topi.matmul(A, B)], lambda a: a @ np.ones((a.shape[1], 33), "float32")),
        "map": ([A, topi.add(A, tir.const(1, "float32"))], lambda a: a + 1),
        "transpose": ([A, topi.transpose(A)], lambda a: a.T),
        "rows": ([A, topi.sum(A, axis=1)], lambda a: a.sum(1)),
        "columns": ([A, topi.sum(A, axis=0)], lambda a: a.sum(0)),
        "softmax": ([A, topi.nn.softmax(A)], lambda a: np.exp(a) / np.exp(a).sum(1, keepdims=True)),
        "all": ([A, topi.sum(A)], lambda a: a.sum()),
    }[name]
    func = te.create_prim_func(args)
    here = Target("llvm").with_machine(
        {"num_cores": 4, "launch_us": 0.0, "l1d": 1024, "l2": 2048, "l3": 4096}
    )
    module = tvm.build(tvm.auto_schedule(func, here).mod)
    for shape in SIZES:
        a = np.random.default_rng(0).random(shape, "float32")
        want = np.asarray(result(a), "float32")
        got = np.full(want.shape, 9, "float32")
        module(a, *([np.ones((shape[1], 33), "float32")] if name == "matmul" else []), got)
        np.testing.assert_allclose(got, want, rtol=1e-4, err_msg=str(shape))


def test_indices_of_64_bits() -> None:
    A, B = te.placeholder((9, 11), name="A"), te.placeholder((11, 17), name="B")
    func = te.create_prim_func([A, B, topi.nn.softmax(topi.matmul(A, B))], index_dtype_override="int64")
    assert tvm.auto_schedule(func, MACHINE).verify()


def test_bools_lie_in_bytes() -> None:
    P, Q = (te.placeholder((100, 100), "bool", name=n) for n in "PQ")
    sch = schedule([P, Q, te.compute((100, 100), lambda i, j: tir.all(P[i, j], Q[i, j]), name="both")])
    assert records(sch)["both"]["lanes"] == MACHINE.cpu.lanes(8)
    assert sch.verify()


def test_a_long_sum_of_a_prime_number_of_elements_is_shared_out() -> None:
    """Parts of parts: both splits have a rest, and each step counts under a condition."""
    x = te.placeholder((99991,), name="x")
    sch = schedule([x, topi.sum(x, axis=0)], launch_us=0.0)
    assert records(sch)["T_sum"]["parts"] == 16
    assert sch.verify()
