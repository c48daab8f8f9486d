"""Reductions whose steps are shared out among threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import te, tir
from tilewright.compiler.lower import lower_kernels
from tilewright.ir.errors import LoweringError
from tilewright.script import tir as T
from tilewright.tir.transform.lower_cross_thread_reduction import lower_cross_thread_reduction
from tilewright.tir.transform.unify_thread_binding import unify_thread_binding

EXAMPLES = examples(12)


def argmin() -> Any:
    def combine(x, y):
        first = tir.any(x[1] < y[1], tir.all(x[1] == y[1], x[0] < y[0]))
        return tir.Select(first, x[0], y[0]), tir.Select(first, x[1], y[1])

    return te.comm_reducer(combine, lambda a, b: (tir.const(999, a), te.max_value(b)), name="argmin")


REDUCERS = {
    "sum": te.sum,
    "max": te.max,
    "or": te.comm_reducer(lambda x, y: x | y, lambda t: tir.const(0, t), name="bits"),
    # what is combined occurs twice in each step
    "odd": te.comm_reducer(lambda x, y: x * y + x + y, lambda t: tir.const(0, t), name="odd"),
}


def rows(n: int, m: int, how: str, dtype: str = "int32") -> list[te.Tensor]:
    A = te.placeholder((n, m), dtype, name="A")
    k = te.reduce_axis((0, m), "k")
    return [A, te.compute((n,), lambda i: REDUCERS[how](A[i, k], axis=k), name="B")]


def checked(sch: tir.Schedule) -> tir.PrimFunc:
    """The kernels of a schedule, after they were held to its origin."""
    report = sch.verify()
    assert report.kernels == "agree", report
    return lower_kernels(sch.mod)["main"]


# ---------------------------------------------------------------------------- expect
def test_each_thread_reduces_a_part(expect):
    sch = tir.Schedule(te.create_prim_func(rows(8, 24, "sum", "float32")))
    i, k = sch.get_loops("B")
    _, ki = sch.split(k, [None, 6])
    sch.bind(i, "blockIdx.x")
    sch.bind(ki, "threadIdx.x")
    checked(sch)
    expect(
        lower_cross_thread_reduction(unify_thread_binding(sch.mod["main"])),
        """
        @T.prim_func
        def main(A: T.Buffer((8, 24), "float32"), B: T.Buffer((8,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for i in T.thread_binding(8, thread="blockIdx.x"):
                for k_1 in T.thread_binding(6, thread="threadIdx.x"):
                    with T.block(""):
                        T.reads()
                        T.writes()
                        B_part = T.alloc_buffer((1,), scope="local")
                        B_shared = T.alloc_buffer((6,), scope="shared")
                        with T.block("B_part_init"):
                            T.reads()
                            T.writes(B_part[0])
                            B_part[0] = T.float32(0)
                        for k_0 in range(4):
                            with T.block("B_part"):
                                v_i = T.axis.spatial(8, i)
                                v_k = T.axis.reduce(24, k_0 * 6 + k_1)
                                T.reads(B_part[0], A[v_i, v_k])
                                T.writes(B_part[0])
                                B_part[0] = B_part[0] + A[v_i, v_k]
                        with T.block("B_exchange"):
                            T.reads(B_part[0])
                            T.writes(B_shared[k_1])
                            B_shared[k_1] = B_part[0]
                        with T.block("B_exchange"):
                            T.reads(B_shared[k_1:k_1 + 5])
                            T.writes(B_shared[k_1])
                            if k_1 < 2:
                                B_shared[k_1] = B_shared[k_1] + B_shared[k_1 + 4]
                        with T.block("B_exchange"):
                            T.reads(B_shared[k_1:k_1 + 3])
                            T.writes(B_shared[k_1])
                            if k_1 < 2:
                                B_shared[k_1] = B_shared[k_1] + B_shared[k_1 + 2]
                        with T.block("B_exchange"):
                            T.reads(B_shared[k_1:k_1 + 2])
                            T.writes(B_shared[k_1])
                            if k_1 < 1:
                                B_shared[k_1] = B_shared[k_1] + B_shared[k_1 + 1]
                        with T.block("B"):
                            v_i = T.axis.spatial(8, i)
                            T.where(k_1 == 0)
                            T.reads(B_shared[0])
                            T.writes(B[v_i])
                            B[v_i] = B_shared[0]
        """,
    )


def test_pairs_and_a_row_for_each_thread_that_is_not_reduced(expect):
    index, value = te.placeholder((4, 3), "int32", name="index"), te.placeholder((4, 3), name="value")
    k = te.reduce_axis((0, 3), "k")
    made = te.compute((4,), lambda i: argmin()((index[i, k], value[i, k]), axis=k), name="R")
    sch = tir.Schedule(te.create_prim_func([index, value, *made]))
    i, k = sch.get_loops("R")
    sch.bind(i, "threadIdx.y")
    sch.bind(k, "threadIdx.x")
    expect(
        checked(sch),
        """
        @T.prim_func
        def main(index: T.Buffer((4, 3), "int32"), value: T.Buffer((4, 3), "float32"), R_v0: T.Buffer((4,), "int32"), R_v1: T.Buffer((4,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            index_1 = T.decl_buffer((12,), "int32", data=index.data)
            value_1 = T.decl_buffer((12,), data=value.data)
            i = T.launch_thread("threadIdx.y", 4)
            k = T.launch_thread("threadIdx.x", 3)
            R_v0_part = T.decl_buffer((1,), "int32", scope="local")
            R_v1_part = T.decl_buffer((1,), scope="local")
            R_v0_shared_1 = T.decl_buffer((12,), "int32", scope="shared")
            R_v1_shared_1 = T.decl_buffer((12,), scope="shared")
            R_v0_part[0] = 999
            R_v1_part[0] = T.float32(3.4028234663852886e+38)
            with T.LetStmt(T.Select(R_v1_part[0] < value_1[i * 3 + k] or R_v1_part[0] == value_1[i * 3 + k] and R_v0_part[0] < index_1[i * 3 + k], R_v0_part[0], index_1[i * 3 + k])) as v_R_v0_part:
                v_R_v1_part: T.float32 = T.Select(R_v1_part[0] < value_1[i * 3 + k] or R_v1_part[0] == value_1[i * 3 + k] and R_v0_part[0] < index_1[i * 3 + k], R_v1_part[0], value_1[i * 3 + k])
                R_v0_part[0] = v_R_v0_part
                R_v1_part[0] = v_R_v1_part
            R_v0_shared_1[i * 3 + k] = R_v0_part[0]
            R_v1_shared_1[i * 3 + k] = R_v1_part[0]
            T.tvm_storage_sync("shared")
            if k < 1:
                v_R_v0_shared: T.int32 = T.Select(R_v1_shared_1[i * 3] < R_v1_shared_1[i * 3 + 2] or R_v1_shared_1[i * 3] == R_v1_shared_1[i * 3 + 2] and R_v0_shared_1[i * 3] < R_v0_shared_1[i * 3 + 2], R_v0_shared_1[i * 3], R_v0_shared_1[i * 3 + 2])
                v_R_v1_shared: T.float32 = T.Select(R_v1_shared_1[i * 3] < R_v1_shared_1[i * 3 + 2] or R_v1_shared_1[i * 3] == R_v1_shared_1[i * 3 + 2] and R_v0_shared_1[i * 3] < R_v0_shared_1[i * 3 + 2], R_v1_shared_1[i * 3], R_v1_shared_1[i * 3 + 2])
                R_v0_shared_1[i * 3] = v_R_v0_shared
                R_v1_shared_1[i * 3] = v_R_v1_shared
            if k < 1:
                v_R_v0_shared: T.int32 = T.Select(R_v1_shared_1[i * 3] < R_v1_shared_1[i * 3 + 1] or R_v1_shared_1[i * 3] == R_v1_shared_1[i * 3 + 1] and R_v0_shared_1[i * 3] < R_v0_shared_1[i * 3 + 1], R_v0_shared_1[i * 3], R_v0_shared_1[i * 3 + 1])
                v_R_v1_shared: T.float32 = T.Select(R_v1_shared_1[i * 3] < R_v1_shared_1[i * 3 + 1] or R_v1_shared_1[i * 3] == R_v1_shared_1[i * 3 + 1] and R_v0_shared_1[i * 3] < R_v0_shared_1[i * 3 + 1], R_v1_shared_1[i * 3], R_v1_shared_1[i * 3 + 1])
                R_v0_shared_1[i * 3] = v_R_v0_shared
                R_v1_shared_1[i * 3] = v_R_v1_shared
            if T.likely(k == 0):
                v_R_v0: T.int32 = R_v0_shared_1[i * 3]
                v_R_v1: T.float32 = R_v1_shared_1[i * 3]
                R_v0[i] = v_R_v0
                R_v1[i] = v_R_v1
        """,
    )


# ---------------------------------------------------------------------------- meaning
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True)
@given(
    st.sampled_from(sorted(REDUCERS)),
    st.integers(1, 5),
    st.integers(1, 30),
    st.integers(1, 17),
    st.booleans(),
)
def test_any_reducer_and_any_number_of_threads(how, n, m, width, outside):
    sch = tir.Schedule(te.create_prim_func(rows(n, m, how)))
    i, k = sch.get_loops("B")
    ko, ki = sch.split(k, [None, width])
    if outside:
        sch.reorder(ki, ko)
    sch.bind(i, "blockIdx.x")
    sch.bind(ki, "threadIdx.x")
    checked(sch)


@settings(max_examples=max(1, EXAMPLES // 2), deadline=None, derandomize=True)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 5), st.integers(1, 4))
def test_two_axes_of_threads_reduce_and_one_does_not(n, m, wide, high):
    A = te.placeholder((n, m, 9), "int32", name="A")
    k0, k1 = te.reduce_axis((0, m), "k0"), te.reduce_axis((0, 9), "k1")
    B = te.compute((n,), lambda i: te.sum(A[i, k0, k1], axis=[k0, k1]), name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, k0, k1 = sch.get_loops("B")
    _, x = sch.split(k1, [None, wide])
    _, y = sch.split(k0, [None, high])
    sch.bind(i, "threadIdx.z")
    sch.bind(x, "threadIdx.x")
    sch.bind(y, "threadIdx.y")
    checked(sch)


@pytest.mark.parametrize("scope", ["local", "shared"])
def test_the_threads_go_on_with_the_result(scope):
    """In local memory each thread has it; in shared memory the first stores it for all."""
    A = te.placeholder((4, 12), "int32", name="A")
    k = te.reduce_axis((0, 12), "k")
    B = te.compute((4,), lambda i: te.max(A[i, k], axis=k), name="B")
    D = te.compute((4, 12), lambda i, j: A[i, j] - B[i], name="D")
    sch = tir.Schedule(te.create_prim_func([A, D]))
    i, j = sch.get_loops("D")
    sch.bind(i, "blockIdx.x")
    sch.bind(sch.split(j, [None, 5])[1], "threadIdx.x")
    sch.set_scope("B", 0, scope)
    sch.compute_at("B", i)
    sch.bind(sch.split(sch.get_loops("B")[-1], [None, 4])[1], "threadIdx.x")
    checked(sch)
    lowered = lower_cross_thread_reduction(unify_thread_binding(sch.mod["main"])).script()
    assert ("T.where(ax1_1 == 0)" in lowered) == (scope == "shared")


def test_a_sum_that_starts_at_something_counts_it_once():
    @T.prim_func
    def total(A: T.Buffer((6,), "int32"), C: T.Buffer((1,), "int32")):
        for k in range(6):
            with T.block("C"):
                vk = T.axis.reduce(6, k)
                with T.init():
                    C[0] = 100
                C[0] = C[0] + A[vk]

    sch = tir.Schedule(total)
    sch.bind(sch.get_loops("C")[0], "threadIdx.x")
    checked(sch)


def test_a_reduction_without_its_init():
    sch = tir.Schedule(te.create_prim_func(rows(4, 12, "max")))
    i, k = sch.get_loops("B")
    ko, ki = sch.split(k, [None, 4])
    init = sch.decompose_reduction("B", ko)
    sch.bind(i, "blockIdx.x")
    sch.bind(ki, "threadIdx.x")
    assert init.name == "B_init"
    checked(sch)


def test_a_producer_inside_the_loop_of_the_threads():
    """What each thread adds up is made beside it: the steps of the loop outside are combined one by one."""
    A = te.placeholder((4, 12), "int32", name="A")
    S = te.compute((4, 12), lambda i, j: A[i, j] * A[i, j], name="S")
    k = te.reduce_axis((0, 12), "k")
    B = te.compute((4,), lambda i: te.sum(S[i, k], axis=k), name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, k = sch.get_loops("B")
    _, ki = sch.split(k, [None, 4])
    sch.bind(i, "blockIdx.x")
    sch.bind(ki, "threadIdx.x")
    sch.set_scope("S", 0, "local")
    sch.compute_at("S", ki)
    checked(sch)


# ---------------------------------------------------------------------------- identity, refuse
def test_nothing_to_do():
    func = te.create_prim_func(rows(4, 12, "sum"))
    assert lower_cross_thread_reduction(func) is func
    sch = tir.Schedule(func)
    sch.bind(sch.get_loops("B")[0], "threadIdx.x")
    bound = sch.mod["main"]
    assert lower_cross_thread_reduction(unify_thread_binding(bound)) is bound


def refusal(func: tir.PrimFunc) -> str:
    with pytest.raises(LoweringError) as caught:
        lower_cross_thread_reduction(unify_thread_binding(func))
    return str(caught.value)


def test_refuse_steps_that_may_not_be_regrouped(expect):
    @T.prim_func
    def apart(A: T.Buffer((4,), "float32"), C: T.Buffer((1,), "float32")):
        for k in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("C"):
                vk = T.axis.reduce(4, k)
                with T.init():
                    C[0] = T.float32(0)
                C[0] = A[vk] - C[0]

    expect(
        refusal(apart),
        """
        block C is reduced by the threads of threadIdx.x, and combines by `A[vk] - C[0]`, which is not a sum, product, min, max, all or any of the element it writes and a value: its steps may not be regrouped; bind a loop that is not reduced
        """,
    )


def test_refuse_a_loop_that_is_both(expect):
    sch = tir.Schedule(te.create_prim_func(rows(4, 12, "sum")))
    both = sch.fuse(*sch.get_loops("B"))
    sch.bind(sch.split(both, [None, 8])[1], "threadIdx.x")
    expect(
        refusal(sch.mod["main"]),
        """
        loop `i_k_fused_0` drives spatial and reduction iterators of block B alike, which is reduced across threads; split it, and bind the part that is reduced
        """,
    )


def test_refuse_a_number_of_threads_that_is_not_known(expect):
    n = te.var("n")
    A = te.placeholder((4, n), name="A")
    k = te.reduce_axis((0, n), "k")
    sch = tir.Schedule(
        te.create_prim_func([A, te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")])
    )
    sch.bind(sch.get_loops("B")[1], "threadIdx.x")
    expect(
        refusal(sch.mod["main"]),
        """
        B is reduced across the threads of loop `k`, whose number is n: it must be a constant, since memory is allocated for it; split off a loop of constant extent, and bind that
        """,
    )


def test_the_passes_under_their_classic_names():
    sch = tir.Schedule(te.create_prim_func(rows(4, 12, "sum")))
    sch.bind(sch.get_loops("B")[1], "threadIdx.x")
    mod = tir.transform.LowerCrossThreadReduction()(tir.transform.UnifyThreadBinding()(sch.mod))
    assert "B_shared" in mod.script()
    out = np.zeros(4, "int32")
    a = np.arange(48, dtype="int32").reshape(4, 12)
    tir.interpret(tir.transform.ThreadSync("shared")(tvm.lower(sch.mod))["main"], a, out)
    np.testing.assert_array_equal(out, a.sum(1))
