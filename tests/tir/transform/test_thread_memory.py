"""Memory of threads: where it is allocated, and what it is refused for."""

from __future__ import annotations

import pytest

from tilewright import te, tir
from tilewright.compiler.lower import lower_kernels
from tilewright.ir.errors import LoweringError
from tilewright.script import tir as T
from tilewright.tir.transform.plan_allocations import plan_buffer_allocation
from tilewright.tir.transform.thread_memory import place_thread_memory
from tilewright.tir.transform.unify_thread_binding import unify_thread_binding


def reversed_rows(scope: str, threads: bool = True) -> tir.Schedule:
    """Two stages in one kernel, the second of which reads what another thread wrote."""
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((4, 8), lambda i, j: B[i, 7 - j], name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    i, j = sch.get_loops("C")
    sch.set_scope("B", 0, scope)
    if threads:
        sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    sch.compute_at("B", i)
    sch.bind(sch.get_loops("B")[-1], "threadIdx.x")
    return sch


def placed(sch: tir.Schedule) -> tir.PrimFunc:
    return place_thread_memory(plan_buffer_allocation(unify_thread_binding(sch.mod["main"])))


def test_shared_memory_goes_into_its_kernel(expect):
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[7 - i], name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    (i,) = sch.get_loops("C")
    sch.bind(sch.add_unit_loop(i), "threadIdx.y")
    sch.bind(i, "threadIdx.x")
    sch.set_scope("B", 0, "shared")
    sch.compute_at("B", sch.get_loops("C")[0])
    sch.bind(sch.get_loops("B")[-1], "threadIdx.x")
    assert sch.verify().kernels == "agree"
    expect(
        placed(sch),
        """
        @T.prim_func
        def main(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            for u in T.thread_binding(1, thread="threadIdx.y"):
                for ax0 in T.thread_binding(8, thread="threadIdx.x"):
                    with T.block(""):
                        T.reads()
                        T.writes()
                        B = T.alloc_buffer((8,), scope="shared")
                        with T.block("B"):
                            v_i = T.axis.spatial(8, ax0)
                            T.reads(A[v_i])
                            T.writes(B[v_i])
                            B[v_i] = A[v_i] + T.float32(1)
                        with T.block("C"):
                            v_i = T.axis.spatial(8, ax0)
                            T.reads(B[7 - v_i])
                            T.writes(C[v_i])
                            C[v_i] = B[7 - v_i]
        """,
    )


def test_what_is_in_place_stays():
    sch = reversed_rows("shared")
    planned = plan_buffer_allocation(unify_thread_binding(sch.mod["main"]))
    assert place_thread_memory(planned) is planned
    plain = te.create_prim_func([te.placeholder((8,), name="A")])
    assert place_thread_memory(plain) is plain


def refusal(sch: tir.Schedule) -> str:
    with pytest.raises(LoweringError) as caught:
        placed(sch)
    report = sch.verify()
    assert report.kernels.startswith(str(caught.value))  # the block form is right all the same
    return str(caught.value)


def test_refuse_local_memory_that_another_thread_reads(expect):
    expect(
        refusal(reversed_rows("local")),
        """
        B is in local memory, which is private to a thread, and a thread of threadIdx.x reads elements that another one wrote; set_scope(B, 'shared'), or 'global' if it is in another block
        """,
    )


def test_refuse_global_memory_inside_a_kernel(expect):
    expect(
        refusal(reversed_rows("global")),
        """
        B is written by a thread and used by another one of the kernel of loop `i`, and thread blocks cannot wait for each other; compute it in a kernel of its own, or keep it in shared memory (set_scope or cache_write with 'shared', and compute_at under the loop that is bound to blockIdx)
        """,
    )


def test_refuse_shared_memory_between_two_kernels(expect):
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[7 - i], name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    for name in "BC":
        sch.bind(sch.get_loops(name)[0], "threadIdx.x")
    sch.set_scope("B", 0, "shared")
    expect(
        refusal(sch),
        """
        B is in shared memory, which is private to a thread block, and carries data from one block to another, or out of its kernel; compute it under the loop that is bound to blockIdx (compute_at), or set_scope global and use two kernels
        """,
    )


def test_refuse_an_output_that_another_thread_reads(expect):
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((4, 8), lambda i, j: B[i, 7 - j], name="C")
    sch = tir.Schedule(te.create_prim_func([A, B, C]))
    i, j = sch.get_loops("B")
    sch.bind(i, "blockIdx.x")
    sch.reverse_compute_at("C", i)
    sch.bind(j, "threadIdx.x")
    sch.bind(sch.get_loops("C")[-1], "threadIdx.x")
    expect(
        refusal(sch),
        """
        B is written by a thread and used by another one of the kernel of loop `i`, and thread blocks cannot wait for each other; compute it in a kernel of its own, or keep it in shared memory (set_scope or cache_write with 'shared', and compute_at under the loop that is bound to blockIdx)
        """,
    )


def test_an_output_that_the_same_thread_reads():
    A = te.placeholder((4, 8), name="A")
    B = te.compute((4, 8), lambda i, j: A[i, j] + 1, name="B")
    C = te.compute((4, 8), lambda i, j: B[i, j] * 2, name="C")
    sch = tir.Schedule(te.create_prim_func([A, B, C]))
    i, j = sch.get_loops("B")
    sch.bind(i, "blockIdx.x")
    sch.reverse_compute_at("C", i)
    sch.bind(j, "threadIdx.x")
    sch.bind(sch.get_loops("C")[-1], "threadIdx.x")
    assert sch.verify().kernels == "agree"
    assert "storage_sync" not in lower_kernels(sch.mod).script()


def test_reads_under_the_condition_of_the_write():
    """The rest of a row that vectors do not divide: a block reads, under a condition inside it, what its thread has
    written under the same one."""

    @T.prim_func
    def func(A: T.Buffer((4, 22), "float32"), C: T.Buffer((4, 8, 4), "float32")) -> None:
        B = T.alloc_buffer((4, 8, 4), scope="local")
        for row in T.thread_binding(4, thread="threadIdx.y"):
            for quad in T.thread_binding(8, thread="threadIdx.x"):
                for lane in range(4):
                    with T.block("B"):
                        v, q, e = T.axis.remap("SSS", [row, quad, lane])
                        T.where(quad * 4 + lane < 20)
                        B[v, q, e] = A[v, q * 4 + e]
            for quad in T.thread_binding(8, thread="threadIdx.x"):
                for lane in range(4):
                    with T.block("C"):
                        v, q, e = T.axis.remap("SSS", [row, quad, lane])
                        C[v, q, e] = T.float32(0)
                        if q < 5:
                            C[v, q, e] = B[v, q, e]

    (text,) = [line for line in str(placed(tir.Schedule(func))).splitlines() if "alloc_buffer" in line]
    assert text.startswith(" " * 16)  # inside all loops over threads


def test_refuse_reads_beyond_the_condition_of_the_write(expect):
    @T.prim_func
    def func(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")) -> None:
        B = T.alloc_buffer((8,), scope="local")
        for i in T.thread_binding(8, thread="threadIdx.x"):
            with T.block("B"):
                v = T.axis.spatial(8, i)
                T.where(i < 4)
                B[v] = A[v]
        for i in T.thread_binding(8, thread="threadIdx.x"):
            with T.block("C"):
                v = T.axis.spatial(8, i)
                C[v] = T.float32(0)
                if v < 5:
                    C[v] = B[v]

    with pytest.raises(LoweringError) as caught:
        placed(tir.Schedule(func))
    expect(
        str(caught.value),
        """
        B is in local memory, which is private to a thread, and a thread of threadIdx.x reads elements that another one wrote; set_scope(B, 'shared'), or 'global' if it is in another block
        """,
    )
