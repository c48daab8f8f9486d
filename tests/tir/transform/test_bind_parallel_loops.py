"""Parallel loops as threads: where they stand, how many there are, what stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.compiler.lower import lower_kernels
from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T
from tilewright.tir.transform.bind_parallel_loops import bind_parallel_loops


def test_an_iteration_is_a_thread():
    @T.prim_func(private=True)
    def before(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,))
        B = T.match_buffer(b, (n,))
        for i in T.parallel(n):
            with T.block("B"):
                v = T.axis.spatial(n, i)
                B[v] = A[v] * T.float32(2)

    @T.prim_func(private=True)
    def after(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,))
        B = T.match_buffer(b, (n,))
        for i_block in T.thread_binding((n + 63) // 64, thread="blockIdx.x"):
            for i_thread in T.thread_binding(64, thread="threadIdx.x"):
                with T.block("B"):
                    v = T.axis.spatial(n, i_block * 64 + i_thread)
                    T.where(i_block * 64 + i_thread < n)
                    B[v] = A[v] * T.float32(2)

    assert_structural_equal(bind_parallel_loops(before), after)


def test_without_blocks_the_guard_is_a_condition():
    @T.prim_func(private=True)
    def before(A: T.Buffer((100,), "int32")):
        for i in T.parallel(2, 72):
            A[i] = i

    @T.prim_func(private=True)
    def after(A: T.Buffer((100,), "int32")):
        for i_block in T.thread_binding(2, thread="blockIdx.x"):
            for i_thread in T.thread_binding(64, thread="threadIdx.x"):
                if i_block * 64 + i_thread < 70:
                    A[2 + (i_block * 64 + i_thread)] = 2 + (i_block * 64 + i_thread)

    assert_structural_equal(bind_parallel_loops(before), after)


def test_few_iterations_are_as_many_threads():
    @T.prim_func(private=True)
    def before(A: T.Buffer((12,), "int32")):
        for i in T.parallel(12):
            A[i] = i

    text = bind_parallel_loops(before).script()
    assert 'T.thread_binding(1, thread="blockIdx.x")' in text
    assert 'T.thread_binding(12, thread="threadIdx.x")' in text and "if " not in text


def test_loops_of_kernels_stay():
    @T.prim_func(private=True)
    def inside(A: T.Buffer((8, 8), "int32")):
        for i in T.thread_binding(8, thread="threadIdx.x"):
            for j in T.parallel(8):
                A[i, j] = i

    @T.prim_func(private=True)
    def around(A: T.Buffer((8, 8), "int32")):
        for j in T.parallel(8):
            for i in T.thread_binding(8, thread="threadIdx.x"):
                A[i, j] = i

    @T.prim_func(private=True)
    def without(A: T.Buffer((8,), "int32")):
        for j in range(8):
            A[j] = j

    for func in (inside, around, without):
        assert bind_parallel_loops(func) is func


@pytest.mark.parametrize("size", [1, 64, 100])
def test_a_schedule_for_a_processor_as_kernels(size):
    """Two stages, each with its parallel loop; one keeps a row of the other in memory of its own."""
    A = te.placeholder((size, 6), "int32", name="A")
    B = te.compute((size, 6), lambda i, j: A[i, j] * 3, name="B")
    C = te.compute((size, 6), lambda i, j: B[i, 5 - j] + 1, name="C")
    s = te.create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[0])
    s[C].parallel(C.op.axis[0])
    s[C].vectorize(C.op.axis[1])
    with tvm.target.Target("opencl"):
        lowered = lower_kernels(tvm.IRModule({"main": s.to_prim_func([A, C])}))["main"]
    assert 'T.launch_thread("threadIdx.x"' in lowered.script()
    a = np.arange(size * 6, dtype="int32").reshape(size, 6)
    out = np.zeros_like(a)
    tir.interpret(lowered, a, out)
    np.testing.assert_array_equal(out, a[:, ::-1] * 3 + 1)
