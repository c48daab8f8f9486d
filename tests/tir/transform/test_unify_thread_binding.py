"""Thread axes opened once around a kernel."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.compiler.lower import lower_kernels
from tilewright.ir.errors import LoweringError
from tilewright.script import tir as T
from tilewright.tir.transform.unify_thread_binding import unify_thread_binding


@T.prim_func
def three(A: T.Buffer((8, 6), "float32"), D: T.Buffer((8, 6), "float32"), E: T.Buffer((8,), "float32")):
    S = T.alloc_buffer((8, 6), scope="shared")
    for i in T.thread_binding(8, thread="blockIdx.x"):
        for j in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("S"):
                vi, vj = T.axis.remap("SS", [i, j])
                S[vi, vj] = A[vi, vj]
        for j in T.thread_binding(2, thread="threadIdx.x"):
            with T.block("S_end"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(6, j + 4)
                S[vi, vj] = A[vi, vj] * T.float32(2)
        for j in T.thread_binding(6, thread="threadIdx.x"):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = S[vi, 5 - vj]
        with T.block("E"):
            vi = T.axis.spatial(8, i)
            E[vi] = S[vi, 0]


def test_axes_once_around_a_kernel(expect):
    expect(
        unify_thread_binding(three),
        """
        @T.prim_func
        def three(A: T.Buffer((8, 6), "float32"), D: T.Buffer((8, 6), "float32"), E: T.Buffer((8,), "float32")):
            # with T.block("root"):
            S = T.alloc_buffer((8, 6), scope="shared")
            for i in T.thread_binding(8, thread="blockIdx.x"):
                for j in T.thread_binding(6, thread="threadIdx.x"):
                    with T.block("S"):
                        vi = T.axis.spatial(8, i)
                        vj = T.axis.spatial(4, j)
                        T.where(j < 4)
                        T.reads(A[vi, vj])
                        T.writes(S[vi, vj])
                        S[vi, vj] = A[vi, vj]
                    with T.block("S_end"):
                        vi = T.axis.spatial(8, i)
                        vj = T.axis.spatial(6, j + 4)
                        T.where(j < 2)
                        T.reads(A[vi, vj])
                        T.writes(S[vi, vj])
                        S[vi, vj] = A[vi, vj] * T.float32(2)
                    with T.block("D"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(S[vi, 5 - vj])
                        T.writes(D[vi, vj])
                        D[vi, vj] = S[vi, 5 - vj]
                    with T.block("E"):
                        vi = T.axis.spatial(8, i)
                        T.where(j == 0)
                        T.reads(S[vi, 0])
                        T.writes(E[vi])
                        E[vi] = S[vi, 0]
        """,
    )


def test_kernels_of_threads_that_are_not_all_needed():
    rng = np.random.default_rng(0)
    a = rng.integers(0, 9, (8, 6)).astype("float32")
    want = [a.copy(), np.zeros((8, 6), "float32"), np.zeros(8, "float32")]
    got = [x.copy() for x in want]
    tir.interpret(three, *want)
    lowered = lower_kernels(tir.Schedule(three).mod)["main"]
    tir.interpret(lowered, *got)
    for x, y in zip(want, got, strict=True):
        np.testing.assert_array_equal(x, y)
    assert lowered.script().count("T.tvm_storage_sync") == 1


def test_what_a_block_of_threads_computes_for_itself_each_one_computes():
    """Local memory is filled by each thread; memory that all see, by one."""
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4,), lambda i: A[i, 0] + 1, name="B")
    C = te.compute((4, 8), lambda i, j: A[i, j] * B[i], name="C")
    for scope, guarded in (("local", 0), ("shared", 1)):
        sch = tir.Schedule(te.create_prim_func([A, C]))
        i, j = sch.get_loops("C")
        sch.bind(i, "blockIdx.x")
        sch.bind(j, "threadIdx.x")
        sch.set_scope("B", 0, scope)
        sch.compute_at("B", i)
        assert sch.verify().kernels == "agree"
        assert unify_thread_binding(sch.mod["main"]).script().count("T.where(j == 0)") == guarded


def test_one_kernel_after_another():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[7 - i], name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    for name in "BC":
        sch.bind(sch.get_loops(name)[0], "threadIdx.x")
    assert unify_thread_binding(sch.mod["main"]) is sch.mod["main"]
    assert sch.verify().kernels == "agree"


def test_nothing_to_do():
    func = te.create_prim_func([te.placeholder((8,), name="A")])
    assert unify_thread_binding(func) is func


def refusal(func: tir.PrimFunc) -> str:
    with pytest.raises(LoweringError) as caught:
        unify_thread_binding(func)
    return str(caught.value)


def test_refuse_a_number_of_threads_that_changes(expect):
    @T.prim_func
    def grows(A: T.Buffer((4, 4), "float32")):
        for i in T.thread_binding(4, thread="blockIdx.x"):
            for j in T.thread_binding(i + 1, thread="threadIdx.x"):
                with T.block("A"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    A[vi, vj] = T.float32(1)

    expect(
        refusal(grows),
        """
        loop `j` is bound to threadIdx.x and has i + 1 iterations, which changes inside the kernel: the number of threads is fixed when it is launched; split off a loop of constant extent, and bind that
        """,
    )


def test_refuse_numbers_of_threads_that_cannot_be_compared(expect):
    @T.prim_func
    def two(a: T.handle, b: T.handle):
        n, m = T.int32(), T.int32()
        A = T.match_buffer(a, (n,))
        B = T.match_buffer(b, (m,))
        for i in T.thread_binding(2, thread="blockIdx.x"):
            for j in T.thread_binding(n, thread="threadIdx.x"):
                with T.block("A"):
                    vj = T.axis.spatial(n, j)
                    T.where(i == 0)
                    A[vj] = T.float32(1)
            for j in T.thread_binding(m, thread="threadIdx.x"):
                with T.block("B"):
                    vj = T.axis.spatial(m, j)
                    T.where(i == 1)
                    B[vj] = T.float32(1)

    expect(
        refusal(two),
        """
        threadIdx.x has n threads in loop `j` and m in loop `j` of one kernel; bind loops of one extent, or of constant ones
        """,
    )


def test_refuse_an_exchange_between_blocks_of_threads(expect):
    @T.prim_func
    def passes_on(A: T.Buffer((4, 8), "float32"), C: T.Buffer((4, 8), "float32")):
        B = T.alloc_buffer((8,))
        for t in T.thread_binding(4, thread="threadIdx.x"):
            for j in T.thread_binding(8, thread="blockIdx.x"):
                with T.block("B"):
                    vt, vj = T.axis.remap("SS", [t, j])
                    B[vj] = A[vt, vj]
            for j in T.thread_binding(8, thread="blockIdx.x"):
                with T.block("C"):
                    vt, vj = T.axis.remap("SS", [t, j])
                    C[vt, vj] = B[7 - vj]

    expect(
        refusal(passes_on),
        """
        B carries data from one thread block of blockIdx.x to another inside a kernel (loop `j`), where they cannot wait for each other; let each block compute what it reads (compute_at), or use two kernels
        """,
    )
