"""Allocations shrunk to what is used inside their block."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Block
from tilewright.script import tir as T

Compact = tir.transform.CompactBufferAllocation()
Opaque = tir.transform.ConvertBlocksToOpaque()


def compacted(func):
    mod = Opaque(tvm.IRModule({"main": func}))
    return Compact(mod)["main"]


def shapes(func):
    out = {}
    for m in pre_order(func.body):
        if isinstance(m, Block):
            out.update({b.name: [str(d) for d in b.shape] for b in m.alloc_buffers})
    return out


def data(*sizes):
    rng = np.random.default_rng(3)
    return [rng.integers(-9, 9, s).astype("int32") for s in sizes]


@T.prim_func
def rows(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
    for i in range(4):
        with T.block(""):
            T.reads(A[i, 0:8])
            T.writes(C[i, 0:8])
            B = T.alloc_buffer((4, 8), "int32")
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + 1
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] * 2


def test_one_row_at_a_time(expect, agree):
    made = compacted(rows)
    expect(
        made,
        """
        @T.prim_func
        def rows(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
            # with T.block("root"):
            for i in range(4):
                with T.block(""):
                    T.reads(A[i, 0:8])
                    T.writes(C[i, 0:8])
                    B = T.alloc_buffer((1, 8), "int32")
                    for j in range(8):
                        with T.block("B"):
                            T.reads(A[i, j])
                            T.writes(B[0, j])
                            B[0, j] = A[i, j] + 1
                    for j in range(8):
                        with T.block("C"):
                            T.reads(B[0, j])
                            T.writes(C[i, j])
                            C[i, j] = B[0, j] * 2
        """,
    )
    agree(rows, made, *data((4, 8), (4, 8)))
    agree(rows, tvm.lower(rows)["rows"], *data((4, 8), (4, 8)))


def test_a_region_that_starts_elsewhere(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((20,), "int32"), C: T.Buffer((16,), "int32")):
        for i in range(4):
            with T.block(""):
                T.reads(A[i * 4 : i * 4 + 6])
                T.writes(C[i * 4 : i * 4 + 4])
                B = T.alloc_buffer((20,), "int32")
                for j in range(2, 8):
                    with T.block("B"):
                        vj = T.axis.spatial(20, i * 4 + j - 2)
                        B[vj] = A[vj] + 1
                for j in range(4):
                    with T.block("C"):
                        vj = T.axis.spatial(16, i * 4 + j)
                        C[vj] = B[vj] + B[vj + 1] + B[vj + 2]

    made = compacted(before)
    assert shapes(made) == {"B": ["6"]}
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((20,), "int32"), C: T.Buffer((16,), "int32")):
            # with T.block("root"):
            for i in range(4):
                with T.block(""):
                    T.reads(A[i * 4:i * 4 + 6])
                    T.writes(C[i * 4:i * 4 + 4])
                    B = T.alloc_buffer((6,), "int32")
                    for j in T.serial(2, 8):
                        with T.block("B"):
                            T.reads(A[i * 4 + j - 2])
                            T.writes(B[j - 2])
                            B[j - 2] = A[i * 4 + j - 2] + 1
                    for j in range(4):
                        with T.block("C"):
                            T.reads(B[j:j + 3])
                            T.writes(C[i * 4 + j])
                            C[i * 4 + j] = B[j] + B[j + 1] + B[j + 2]
        """,
    )
    agree(before, made, *data((20,), (16,)))


def test_tails_are_cut_off_at_the_end_of_the_buffer(agree):
    @T.prim_func
    def before(A: T.Buffer((10,), "int32"), C: T.Buffer((10,), "int32")):
        for i in range(3):
            with T.block(""):
                T.reads(A[i * 4 : i * 4 + 4])
                T.writes(C[i * 4 : i * 4 + 4])
                B = T.alloc_buffer((10,), "int32")
                for j in range(4):
                    with T.block("B"):
                        vj = T.axis.spatial(10, i * 4 + j)
                        T.where(i * 4 + j < 10)
                        B[vj] = A[vj] + 1
                for j in range(4):
                    with T.block("C"):
                        vj = T.axis.spatial(10, i * 4 + j)
                        T.where(i * 4 + j < 10)
                        C[vj] = B[vj] * 2

    made = compacted(before)
    assert shapes(made) == {"B": ["4"]}
    agree(before, made, *data((10,), (10,)))
    agree(before, tvm.lower(before)["before"], *data((10,), (10,)))


def test_symbolic_shapes(agree):
    @T.prim_func
    def before(a: T.handle, c: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 8), "int32")
        C = T.match_buffer(c, (n, 8), "int32")
        for i in range(n):
            with T.block(""):
                T.reads(A[i, 0:8])
                T.writes(C[i, 0:8])
                B = T.alloc_buffer((n, 8), "int32")
                for j in range(8):
                    with T.block("B"):
                        B[i, j] = A[i, j] + 1
                for j in range(8):
                    with T.block("C"):
                        C[i, j] = B[i, j] * 2

    made = compacted(before)
    assert shapes(made) == {"B": ["1", "8"]}
    agree(before, made, *data((5, 8), (5, 8)))


def test_a_symbolic_region_that_cannot_be_bounded_stays(agree):
    @T.prim_func
    def before(a: T.handle, c: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, n), "int32")
        C = T.match_buffer(c, (n,), "int32")
        for i in range(n):
            with T.block(""):
                T.reads(A[i, 0:n])
                T.writes(C[i])
                B = T.alloc_buffer((n, n), "int32")
                for j in range(n):
                    with T.block("B"):
                        B[i, j] = A[i, j] + 1
                with T.block("C"):
                    C[i] = B[i, n - 1] * 2

    made = compacted(before)
    assert shapes(made)["B"] == ["1", "n"]
    agree(before, made, *data((5, 5), (5,)))


def test_dependent_loops(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block(""):
                T.reads(A[0:8])
                T.writes(C[i])
                B = T.alloc_buffer((8,), "int32")
                for j in range(i + 1):
                    with T.block("B"):
                        B[j] = A[j] + 1
                with T.block("C"):
                    C[i] = B[i] * 2 + B[0]

    made = compacted(before)
    agree(before, made, *data((8,), (8,)))


def test_conditions_around_accesses(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block(""):
                T.reads(A[0:8])
                T.writes(C[i])
                B = T.alloc_buffer((8,), "int32")
                if i > 0:
                    with T.block("B"):
                        B[i - 1] = A[i - 1]
                with T.block("B1"):
                    B[i] = A[i]
                with T.block("C"):
                    C[i] = B[i] + T.if_then_else(i > 0, B[i - 1], 0)

    made = compacted(before)
    assert shapes(made) == {"B": ["2"]}
    agree(before, made, *data((8,), (8,)))


def unshrunk(func, agree, *sizes):
    assert compacted(func).script() == Opaque(tvm.IRModule({"main": func}))["main"].script()
    agree(func, tvm.lower(func), *data(*sizes))


def test_data_dependent_accesses_leave_it_alone(agree):
    @T.prim_func
    def before(X: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block(""):
                T.reads(X[i])
                T.writes(C[i])
                B = T.alloc_buffer((32,), "int32")
                with T.block("B"):
                    B[X[i] + 10] = i
                with T.block("C"):
                    C[i] = B[X[i] + 10]

    unshrunk(before, agree, (4,), (4,))


def test_accesses_through_bindings_leave_it_alone(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block(""):
                T.reads(A[0:8])
                T.writes(C[i])
                B = T.alloc_buffer((16,), "int32")
                x: T.int32 = i * i % 5
                y: T.int32 = i + 5
                with T.block("B"):
                    B[x] = A[i]
                with T.block("B1"):
                    B[y] = A[i]
                with T.block("C"):
                    C[i] = B[x] + B[y]

    unshrunk(before, agree, (8,), (8,))


def test_addresses_leave_it_alone():
    @T.prim_func
    def before(C: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block(""):
                T.reads()
                T.writes(C[i])
                B = T.alloc_buffer((32,), "int32")
                T.evaluate(T.call_extern("int32", "fill", T.address_of(B[0]), 32))
                C[i] = B[i]

    assert shapes(compacted(before)) == {"B": ["32"]}


def test_pointers_leave_it_alone():
    @T.prim_func
    def before(C: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block(""):
                T.reads()
                T.writes(C[i])
                B = T.alloc_buffer((32,), "int32")
                T.evaluate(T.call_extern("int32", "fill", B.data, 32))
                C[i] = B[i]

    assert shapes(compacted(before)) == {"B": ["32"]}


def test_another_view_of_the_memory_leaves_it_alone(agree):
    @T.prim_func
    def before(C: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block(""):
                T.reads()
                T.writes(C[i])
                B = T.alloc_buffer((32,), "int32")
                D = T.decl_buffer((4, 8), "int32", data=B.data)
                D[i, 7] = i + 3
                B[0] = 1
                C[i] = D[i, 7] + B[0]

    assert shapes(compacted(before)) == {"B": ["32"]}
    agree(before, tvm.lower(before), *data((4,)))


def test_predicates_and_bindings_of_blocks_are_accesses(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block(""):
                T.reads(A[0:8])
                T.writes(C[i])
                B = T.alloc_buffer((8,), "int32")
                for j in range(8):
                    with T.block("B"):
                        vj = T.axis.spatial(8, j)
                        B[vj] = A[vj]
                with T.block("C"):
                    T.where(B[7] > 0)
                    C[i] = B[i]

    agree(before, compacted(before), *data((8,), (8,)))


def test_strided_buffers_are_left_alone(agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
        for i in range(4):
            with T.block(""):
                T.reads(A[i, 0:8])
                T.writes(C[i, 0:8])
                B = T.alloc_buffer((4, 8), "int32", strides=[10, 1])
                for j in range(8):
                    with T.block("B"):
                        B[i, j] = A[i, j] + 1
                for j in range(8):
                    with T.block("C"):
                        C[i, j] = B[i, j] * 2

    unshrunk(before, agree, (4, 8), (4, 8))


def test_regions_of_match_buffers_count(agree):
    @T.prim_func
    def before(A: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
        for i in range(4):
            with T.block(""):
                T.reads(A[i * 4 : i * 4 + 4])
                T.writes(C[i * 4 : i * 4 + 4])
                B = T.alloc_buffer((16,), "int32")
                with T.block("B"):
                    T.reads(A[i * 4 : i * 4 + 4])
                    T.writes(B[i * 4 : i * 4 + 4])
                    V = T.match_buffer(B[i * 4 : i * 4 + 4], (4,), "int32", offset_factor=1)
                    for j in range(4):
                        V[j] = A[i * 4 + j]
                for j in range(4):
                    with T.block("C"):
                        C[i * 4 + j] = B[i * 4 + j]

    made = compacted(before)
    assert shapes(made) == {"B": ["4"]}
    agree(before, tvm.lower(before), *data((16,), (16,)))


@pytest.mark.parametrize(("scope", "size"), [("shared", "32"), ("local", "1"), ("global", "32")])
def test_threads_share_memory_by_its_scope(scope, size):
    @T.prim_func
    def before(A: T.Buffer((32,), "int32"), C: T.Buffer((32,), "int32")):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            with T.block(""):
                T.reads(A[t])
                T.writes(C[t])
                B = T.alloc_buffer((32,), "int32", scope=scope)
                with T.block("B"):
                    B[t] = A[t]
                with T.block("C"):
                    C[t] = B[t]

    assert shapes(compacted(before)) == {"B": [size]}


def test_shared_memory_is_one_for_each_block_of_threads():
    @T.prim_func
    def before(A: T.Buffer((128,), "int32"), C: T.Buffer((128,), "int32")):
        for b in T.thread_binding(4, thread="blockIdx.x"):
            for t in T.thread_binding(32, thread="threadIdx.x"):
                with T.block(""):
                    T.reads(A[b * 32 + t])
                    T.writes(C[b * 32 + t])
                    B = T.alloc_buffer((128,), "int32", scope="shared")
                    with T.block("B"):
                        B[b * 32 + t] = A[b * 32 + t]
                    with T.block("C"):
                        C[b * 32 + t] = B[b * 32 + t]

    assert shapes(compacted(before)) == {"B": ["32"]}


def test_nothing_to_do_is_the_same_object():
    @T.prim_func
    def plain(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((8,), "int32")
        for i in range(8):
            with T.block("B"):
                B[i] = A[i]
        for i in range(8):
            with T.block("C"):
                C[i] = B[i]

    mod = tvm.IRModule({"main": plain})
    assert Compact(mod) is mod


@T.prim_func
def fetched(A: T.Buffer((32, 9), "int32"), C: T.Buffer((4, 72), "int32")):
    """Tiles of 8 rows, by 32 threads that fetch 72 elements in three turns."""
    for b in T.thread_binding(4, thread="blockIdx.x"):
        for t in T.thread_binding(32, thread="threadIdx.x"):
            with T.block(""):
                B = T.alloc_buffer((32, 9), "int32", scope="shared")
                for k in range(3):
                    with T.block("B"):
                        v = T.axis.spatial(32, b * 8 + (k * 32 + t) // 9)
                        w = T.axis.spatial(9, (k * 32 + t) % 9)
                        T.where(k * 32 + t < 72)
                        B[v, w] = A[v, w]
                for k in range(3):
                    with T.block("C"):
                        vb = T.axis.spatial(4, b)
                        v = T.axis.spatial(72, k * 32 + t)
                        T.where(k * 32 + t < 72)
                        C[vb, v] = B[vb * 8 + v // 9, v % 9]


def test_threads_that_have_nothing_to_fetch_need_no_room(agree):
    made = compacted(fetched)
    assert shapes(made) == {"B": ["8", "9"]}
    agree(fetched, made, *data((32, 9), (4, 72)))
