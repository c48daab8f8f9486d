"""Programs and states that are written by hand: the classic calls do what a te.Schedule does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scheduler_fakes import matmul_task

import tilewright as tvm
from tilewright import auto_scheduler, te, topi
from tilewright.auto_scheduler import _ffi_api
from tilewright.auto_scheduler.loop_state import State
from tilewright.ir.errors import ScheduleError
from tilewright.testing.auto_scheduler import get_tiled_matmul, invalid_compute_definition
from tilewright.testing.auto_scheduler import matmul_auto_scheduler_test as matmul


def product(n: int = 16) -> tuple[auto_scheduler.ComputeDAG, Any, Any, Any]:
    A, B, C = matmul(n, n, n)
    return auto_scheduler.ComputeDAG([A, B, C]), A, B, C


def with_relu(n: int = 16) -> tuple[auto_scheduler.ComputeDAG, Any, Any]:
    A, B, C = matmul(n, n, n)
    D = te.compute((n, n), lambda i, j: tvm.te.max(C[i, j], 0.0), name="D")
    return auto_scheduler.ComputeDAG([A, B, D]), C, D


def right(dag: auto_scheduler.ComputeDAG, state: State) -> None:
    """What a state computes is what the program does, and its schedule is what it says."""
    assert state.schedule.verify()
    sch, args = dag.apply_steps_from_state(state)
    tvm.ir.assert_structural_equal(
        sch.to_prim_func(args), state.schedule.mod["main"]
    )  # the same steps, done elsewhere


def test_a_program_is_printed_and_counted() -> None:
    dag, C, D = with_relu()
    assert str(dag) == (
        "A = PLACEHOLDER [16, 16]\n"
        "B = PLACEHOLDER [16, 16]\n"
        "C(i, j) += A[i, k] * B[k, j]\n"
        "D(i, j) = T.max(C[i, j], T.float32(0))\n"
    )
    assert dag.flop_ct == 2 * 16**3 + 16**2
    padded = te.compute((18,), lambda i: te.if_then_else(te.all(i >= 1, i < 17), C[i - 1, 0], 0.0), name="P")
    assert (
        auto_scheduler.ComputeDAG([*dag.tensors[:2], padded]).flop_ct == 2 * 16**3
    )  # a copy, and conditions on indices
    n = te.var("n")
    some = te.placeholder((n,), name="S")
    assert auto_scheduler.ComputeDAG([some, te.compute((n,), lambda i: some[i] + 1)]).flop_ct == -1
    counted = te.compute((16, 16), lambda i, j: C[i, j] + 1, name="E", attrs={"FLOP": 1234})
    assert auto_scheduler.ComputeDAG([*dag.tensors[:2], counted]).flop_ct == 2 * 16**3 + 1234
    assert [op.name for op in dag.ops] == ["A", "B", "C", "D"]
    s = te.create_schedule(D.op)
    assert auto_scheduler.ComputeDAG(s).hash_key() == dag.hash_key() == dag.hash_key()
    assert auto_scheduler.ComputeDAG(te.create_prim_func(dag.tensors)).flop_ct == dag.flop_ct


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(tvm.TVMError, match="two of its axes are named `r1`"):
        auto_scheduler.SearchTask(func=invalid_compute_definition, target="llvm")
    with pytest.raises(ValueError, match="a ComputeDAG is made of a list of tensors"):
        auto_scheduler.ComputeDAG(3)
    with pytest.raises(NotImplementedError, match="a program without tensors"):
        auto_scheduler.ComputeDAG(te.create_prim_func(list(matmul(4, 4, 4)))).get_init_state()


def test_tiles() -> None:
    dag, s = get_tiled_matmul()
    assert [it.name for it in s[2].iters] == [
        "i.0", "j.0", "i.1", "j.1", "i.2", "j.2", "i.3", "j.3", "k"
    ]  # fmt: skip
    assert [int(it.range.extent) for it in s[2].iters] == [2, 4, 4, 8, 8, 4, 8, 4, 512]  # type: ignore[union-attr]
    assert str(s).splitlines()[1:3] == ["for i_outer_outer_outer (0,2)", "  for j_outer_outer_outer (0,4)"]
    code = dag.print_python_code_from_state(s)
    A, B, C = dag.tensors
    sch = te.create_schedule(C.op)
    exec(code, {"te": te, "s": sch, "A": A, "B": B, "C": C})
    tvm.ir.assert_structural_equal(sch.to_prim_func([A, B, C]), s.schedule.mod["main"])


def test_splits_from_outside_and_by_what_others_did() -> None:
    dag, C, D = with_relu()
    s = dag.get_init_state()
    parts = s.split(C, s[C].iters[0], [4, 2], inner_to_outer=False)
    assert [int(it.range.extent) for it in parts] == [4, 2, 2]  # type: ignore[union-attr]
    s.split(D, s[D].iters[0], [2, 4])
    followed = s.follow_split(D, s[D].iters[3], 1, 1)
    assert [int(it.range.extent) for it in followed] == [2, 8]  # type: ignore[union-attr]
    fused = s.follow_fused_split(C, s[C].iters[3], [1], 1, True)
    assert [int(it.range.extent) for it in fused] == [4, 4]  # type: ignore[union-attr]
    right(dag, s)
    with pytest.raises(ScheduleError, match="step 9 is not a split"):
        s.follow_split(C, s[C].iters[0], 9, 1)


def test_marks_and_fusion() -> None:
    dag, C, D = with_relu()
    s = dag.get_init_state()
    s.compute_root(C)
    outer = s.fuse(D, s[D].iters[:2])
    assert outer.name == "i@j@"
    o, i = s.split(D, outer, [16])
    assert s.parallel(D, o).annotation == State.ANNOTATION_TRANS_TABLE["parallel"]
    assert s.vectorize(D, i).annotation == State.ANNOTATION_TRANS_TABLE["vectorize"]
    assert s.unroll(C, s[C].iters[2], max_unroll=8).annotation == 0  # too long
    assert s.unroll(C, s[C].iters[2]).annotation == State.ANNOTATION_TRANS_TABLE["unroll"]
    s.pragma(C, s[C].iters[0], "auto_unroll_max_step$64")
    right(dag, s)
    assert "pragma_auto_unroll_max_step" in str(s.schedule.mod)
    with pytest.raises(ValueError, match="bind takes vthread"):
        s.bind(D, s[D].iters[0], "parallel")


def test_threads() -> None:
    dag, A, B, C = product()
    s = dag.get_init_state()
    o, i = s.split(C, s[C].iters[0], [4])
    s.bind(C, o, "blockIdx.x")
    s.bind(C, i, "threadIdx.x")
    assert str(s).splitlines()[1:3] == ["blockIdx.x i_outer (0,4)", "  threadIdx.x i_inner (0,4)"]
    assert s.stages[2].iters[1].annotation == State.ANNOTATION_TRANS_TABLE["threadIdx.x"]


def test_caches_and_places() -> None:
    dag, A, B, C = product()
    s = dag.get_init_state()
    held = s.cache_write(C, "local")
    copy = s.cache_read(A, "global", [held])
    assert [op.name for op in s.stage_ops] == ["A", "A_global", "B", "C_local", "C"]
    o, i = s.split(C, s[C].iters[0], [4])
    k = s.split(held, s[held].iters[2], [4])[0]  # before it is placed, as te lets one
    s.compute_at(held, C, o)
    s.compute_at(copy, held, k)
    assert s[held].compute_at == 2 and s[C].compute_at == 0
    right(dag, s)
    # a copy goes its own way; tensors of the first one name its stages too
    other = s.copy()
    assert other == s
    other.unroll(held, other[held].iters[-1])
    assert other != s and len(other.transform_steps) == len(s.transform_steps) + 1
    right(dag, other)


def test_loops_are_shorter_inside_others() -> None:
    dag, C, D = with_relu()
    s = dag.get_init_state()
    s.split(C, s[C].iters[0], [2])
    o, i = s.split(D, s[D].iters[0], [4])
    s.compute_at(C, D, o)
    assert [int(it.range.extent) for it in s[C].iters] == [8, 2, 16, 16]  # type: ignore[union-attr]
    known = dag.infer_bound_from_state(s)
    assert [int(it.range.extent) for it in known[C].iters] == [2, 2, 16, 16]  # type: ignore[union-attr]
    assert known == s
    right(dag, s)
    with pytest.raises(ScheduleError, match="k is a reduction axis"):
        s.vectorize(C, s[C].iters[3])
    # steps that do not go together are said when they are carried out; what is there can be printed
    s.parallel(C, s[C].iters[3])  # threads that add to one element
    assert "for i.0 (0,8)" in str(s)
    with pytest.raises(ScheduleError, match="parallel"):
        s.schedule  # noqa: B018


def test_inline_and_rfactor() -> None:
    dag, C, D = with_relu()
    s = dag.get_init_state()
    ko, ki = s.split(C, s[C].iters[2], [4])
    parts = s.rfactor(C, ko, 0)
    assert [op.name for op in s.stage_ops] == ["A", "B", "C_rf", "C", "D"]
    assert s[parts].iters[0].name == "k_outer"
    right(dag, s)
    A = te.placeholder((8, 8), name="A")
    E = te.compute((8, 8), lambda i, j: A[i, j] + 1, name="E")
    F = te.compute((8, 8), lambda i, j: E[i, j] * 2, name="F")
    dag = auto_scheduler.ComputeDAG([A, F])
    s = dag.get_init_state()
    s.compute_inline(E)
    assert s[E].compute_at == 1 and "E = ..." not in str(s)
    right(dag, s)


def test_sizes_to_be_decided() -> None:
    dag, A, B, C = product(24)
    s = dag.get_init_state()
    parts = s.split(C, s[C].iters[0], [None, 2])
    assert [it.range is None for it in parts] == [True, True, False] and not s.concrete
    assert "for i.1 (None)" in str(s)
    with pytest.raises(ScheduleError, match="extents of this state are undecided"):
        dag.apply_steps_from_state(s)
    rng = np.random.default_rng(0)
    drawn = {tuple(int(it.range.extent) for it in s.with_sizes(rng)[C].iters[:3]) for _ in range(40)}
    assert len(drawn) > 3 and all(a * b * c == 24 and c == 2 for a, b, c in drawn)
    right(dag, s.with_sizes(rng))


def test_states_of_the_search_show_their_schedule() -> None:
    task = matmul_task()
    state = auto_scheduler.SketchPolicy(task).zero_trial_state()
    assert state[2 if len(state.stages) > 2 else 0].op.name.startswith("C") and not state.by_hand
    assert state["C"].iters[0].annotation == State.ANNOTATION_TRANS_TABLE["parallel"]
    with pytest.raises(NotImplementedError, match=r"state.schedule is its tir.Schedule"):
        state.vectorize("C", state["C"].iters[0])
    with pytest.raises(ValueError, match="the state has no stage Q"):
        state["Q"]
    sch, args = task.compute_dag.apply_steps_from_state(state)
    assert sch is state.schedule and [t.op.name for t in args] == ["A", "B", "C"]
    assert task.compute_dag.infer_bound_from_state(state) == state


def test_wrong_calls_are_refused() -> None:
    dag, A, B, C = product()
    s = dag.get_init_state()
    with pytest.raises(ScheduleError, match="compute_inline: A is an input"):
        s.compute_inline(A)
    with pytest.raises(ValueError, match="there is no stage 7; there are 3"):
        s[7]
    with pytest.raises(ValueError, match="the state has no stage for 'X'"):
        s[te.placeholder((3,), name="X")]
    gone = s[C].iters[0]
    s.split(C, gone, [4])
    with pytest.raises(ValueError, match=r"i is not a loop of the stage; its loops are i.0, i.1, j, k"):
        s.unroll(C, gone)


def test_what_rules_ask() -> None:
    A = te.placeholder((8, 8), name="A")
    E = te.compute((8, 8), lambda i, j: A[i, j] + 1, name="E")
    F = topi.nn.relu(E)
    dag = auto_scheduler.ComputeDAG([A, F])
    s = dag.get_init_state()
    assert _ffi_api.SearchPolicyUtilsGetConsumers(None, s, 0) == {1: 1}
    assert _ffi_api.SearchPolicyUtilsIsElementwiseMatch(None, s, 1, 2)
    assert not _ffi_api.SearchPolicyUtilsIsElementwiseMatch(None, s, 0, 2)
    s.split(F, s[F].iters[0], [2])
    assert _ffi_api.SearchPolicyUtilsIsTiled(s, 2) and not _ffi_api.SearchPolicyUtilsIsTiled(s, 1)
    s.compute_inline(E)
    assert _ffi_api.SearchPolicyUtilsGetConsumers(None, s, 0) == {2: 2}
    s = dag.get_init_state()
    s.cache_write(F, "local")
    assert _ffi_api.SearchPolicyUtilsHasCacheWriteStage(s, 2)
    assert not _ffi_api.SearchPolicyUtilsHasCacheReadStage(s, 2)
