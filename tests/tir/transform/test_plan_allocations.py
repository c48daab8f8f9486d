"""Where buffers are allocated: as deep as their uses allow, never inside a loop they carry something over."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import te, tir
from tilewright.script import tir as T

Plan = tir.transform.PlanAndUpdateBufferAllocationLocation()


def planned(func):
    return Plan(tvm.IRModule({"main": func}))["main"]


def data(*shapes):
    rng = np.random.default_rng(2)
    return [rng.integers(-9, 9, s).astype("int32") for s in shapes]


def test_into_the_loop_that_holds_all_uses(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
        B = T.alloc_buffer((4, 8), "int32")
        for i in range(4):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + 1
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] * 2

    made = planned(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
            # with T.block("root"):
            for i in range(4):
                with T.block(""):
                    T.reads()
                    T.writes()
                    B = T.alloc_buffer((4, 8), "int32")
                    for j in range(8):
                        with T.block("B"):
                            vi = T.axis.spatial(4, i)
                            vj = T.axis.spatial(8, j)
                            T.reads(A[vi, vj])
                            T.writes(B[vi, vj])
                            B[vi, vj] = A[vi, vj] + 1
                    for j in range(8):
                        with T.block("C"):
                            vi = T.axis.spatial(4, i)
                            vj = T.axis.spatial(8, j)
                            T.reads(B[vi, vj])
                            T.writes(C[vi, vj])
                            C[vi, vj] = B[vi, vj] * 2
        """,
    )
    agree(before, made, *data((4, 8), (4, 8)))


def test_each_buffer_at_its_own_depth(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), D: T.Buffer((4, 8), "int32")):
        B = T.alloc_buffer((4, 8), "int32")
        C = T.alloc_buffer((4, 8), "int32")
        for i in range(4):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] + 1
            for j in range(8):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vi, vj] * 2
                with T.block("D"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    D[vi, vj] = C[vi, vj] - B[vi, vj]

    made = planned(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((4, 8), "int32"), D: T.Buffer((4, 8), "int32")):
            # with T.block("root"):
            for i in range(4):
                with T.block(""):
                    T.reads()
                    T.writes()
                    B = T.alloc_buffer((4, 8), "int32")
                    for j in range(8):
                        with T.block("B"):
                            vi = T.axis.spatial(4, i)
                            vj = T.axis.spatial(8, j)
                            T.reads(A[vi, vj])
                            T.writes(B[vi, vj])
                            B[vi, vj] = A[vi, vj] + 1
                    for j in range(8):
                        with T.block(""):
                            T.reads()
                            T.writes()
                            C = T.alloc_buffer((4, 8), "int32")
                            with T.block("C"):
                                vi = T.axis.spatial(4, i)
                                vj = T.axis.spatial(8, j)
                                T.reads(B[vi, vj])
                                T.writes(C[vi, vj])
                                C[vi, vj] = B[vi, vj] * 2
                            with T.block("D"):
                                vi = T.axis.spatial(4, i)
                                vj = T.axis.spatial(8, j)
                                T.reads(C[vi, vj], B[vi, vj])
                                T.writes(D[vi, vj])
                                D[vi, vj] = C[vi, vj] - B[vi, vj]
        """,
    )
    agree(before, made, *data((4, 8), (4, 8)))


def unmoved(func, agree, *shapes):
    assert planned(func) is func
    agree(func, tvm.lower(func), *data(*shapes))


def test_what_two_nests_share_stays(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((8,), "int32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + 1
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi] * 2

    unmoved(before, agree, (8,), (8,))


def test_what_an_iteration_leaves_for_the_next_stays(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((9,), "int32")
        with T.block("first"):
            B[0] = 5
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi + 1] = A[vi] + 1
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi] * 2

    unmoved(before, agree, (8,), (8,))


def test_a_window_over_earlier_iterations_stays(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((8,), "int32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + 1
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                T.where(i >= 1)
                C[vi] = B[vi] - B[vi - 1]

    unmoved(before, agree, (8,), (8,))


def test_what_fewer_points_write_in_each_iteration_stays(agree):
    """The condition ends before the domain does: the rest is what an iteration before wrote."""

    @T.prim_func
    def before(A: T.Buffer((4, 4), "int32"), C: T.Buffer((4, 4), "int32")):
        B = T.alloc_buffer((4,), "int32")
        for i in range(4):
            for j0, j1 in T.grid(2, 2):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    vj = T.axis.spatial(4, j0 * 2 + j1)
                    T.where(j0 * 2 + j1 < 4 - i)
                    B[vj] = A[vi, vj]
            for j in range(4):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    C[vi, vj] = B[vj]

    unmoved(before, agree, (4, 4), (4, 4))


def test_a_running_sum_stays(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((1,), "int32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.reduce(8, i)
                if vi == 0:
                    B[0] = 0
                B[0] = B[0] + A[vi]
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[0]

    unmoved(before, agree, (8,), (8,))


def test_what_only_the_first_iteration_writes_stays(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((1,), "int32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                T.where(i < 1)
                B[0] = A[vi]
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[0] + vi

    unmoved(before, agree, (8,), (8,))


def test_uses_that_a_block_does_not_declare_count(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((8,), "int32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + 1
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi] * 2
        with T.block("hidden"):
            T.reads()
            T.writes(C[0])
            C[0] = B[7]

    unmoved(before, agree, (8,), (8,))


def test_uses_outside_of_blocks_count(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((8,), "int32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] + 1
            C[i] = B[i // 2]

    unmoved(before, agree, (8,), (8,))


def test_tiles_with_tails_move(agree):
    @T.prim_func
    def before(A: T.Buffer((10,), "int32"), C: T.Buffer((10,), "int32")):
        B = T.alloc_buffer((10,), "int32")
        for i in range(3):
            for j in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(10, i * 4 + j)
                    T.where(i * 4 + j < 10)
                    B[vi] = A[vi] + 1
            for j in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(10, i * 4 + j)
                    T.where(i * 4 + j < 10)
                    C[vi] = B[vi] * 2

    made = planned(before)
    assert made is not before
    agree(before, made, *data((10,), (10,)))
    agree(before, tvm.lower(before), *data((10,), (10,)))


def test_reductions_inside_an_iteration_move(agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4,), "int32")):
        B = T.alloc_buffer((4,), "int32")
        for i in range(4):
            for k in range(8):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = 0
                    B[vi] = B[vi] + A[vi, vk]
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi] * 2

    made = planned(tir.transform.LowerInitBlock()(tvm.IRModule({"main": before}))["main"])
    assert made.script().index("for i in") < made.script().index("B = T.alloc_buffer")
    agree(before, made, *data((4, 8), (4,)))


def test_into_a_block(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
        B = T.alloc_buffer((8,), "int32")
        for i in range(4):
            with T.block("outer"):
                vi = T.axis.spatial(4, i)
                T.reads(A[vi, 0:8])
                T.writes(C[vi, 0:8])
                for j in range(8):
                    with T.block("B"):
                        vj = T.axis.spatial(8, j)
                        B[vj] = A[vi, vj] + 1
                for j in range(8):
                    with T.block("C"):
                        vj = T.axis.spatial(8, j)
                        C[vi, vj] = B[vj] * 2

    made = planned(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
            # with T.block("root"):
            for i in range(4):
                with T.block("outer"):
                    vi = T.axis.spatial(4, i)
                    T.reads(A[vi, 0:8])
                    T.writes(C[vi, 0:8])
                    B = T.alloc_buffer((8,), "int32")
                    for j in range(8):
                        with T.block("B"):
                            vj = T.axis.spatial(8, j)
                            T.reads(A[vi, vj])
                            T.writes(B[vj])
                            B[vj] = A[vi, vj] + 1
                    for j in range(8):
                        with T.block("C"):
                            vj = T.axis.spatial(8, j)
                            T.reads(B[vj])
                            T.writes(C[vi, vj])
                            C[vi, vj] = B[vj] * 2
        """,
    )
    agree(before, made, *data((4, 8), (4, 8)))


def test_what_one_run_of_a_block_leaves_for_the_next_stays(agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
        B = T.alloc_buffer((8,), "int32")
        for i in range(4):
            with T.block("outer"):
                vi = T.axis.opaque(4, i)
                T.reads(A[vi, 0:8])
                T.writes(C[vi, 0:8])
                for j in range(8):
                    with T.block("B"):
                        vj = T.axis.spatial(8, j)
                        T.where(i < 1)
                        B[vj] = A[0, vj] + 1
                for j in range(8):
                    with T.block("C"):
                        vj = T.axis.spatial(8, j)
                        C[vi, vj] = B[vj] * 2

    unmoved(before, agree, (4, 8), (4, 8))


def test_iterations_that_run_at_once_have_their_own():
    """No proof is asked for that each writes what it reads: if one read what another wrote, they could not."""

    @T.prim_func
    def before(A: T.Buffer((9,), "int32"), X: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
        B = T.alloc_buffer((9,), "int32")
        for i in T.parallel(4):
            for j in range(3):
                with T.block("B"):
                    vj = T.axis.spatial(9, i * 2 + j)
                    B[vj] = A[vj]
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                T.reads(X[vi], B[0:9])
                T.writes(C[vi])
                C[vi] = B[vi * 2 + X[vi]]

    made = planned(before)
    assert made.script().index("for i in") < made.script().index("B = T.alloc_buffer")
    a, c = data((9,), (4,))
    x = np.array([2, 0, 1, 2], "int32")
    tir.interpret(made, a, x, c)
    np.testing.assert_array_equal(c, a[np.arange(4) * 2 + x])


def test_memory_of_a_block_goes_deeper_inside_of_it(agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
        for i in range(4):
            with T.block("outer"):
                vi = T.axis.spatial(4, i)
                T.reads(A[vi, 0:8])
                T.writes(C[vi, 0:8])
                B = T.alloc_buffer((8,), "int32")
                for j in range(8):
                    with T.block("B"):
                        vj = T.axis.spatial(8, j)
                        B[vj] = A[vi, vj] + 1
                    with T.block("C"):
                        vj = T.axis.spatial(8, j)
                        C[vi, vj] = B[vj] * 2

    made = planned(before)
    assert made.script().index("for j in") < made.script().index("B = T.alloc_buffer")
    agree(before, made, *data((4, 8), (4, 8)))


def stays_outside(func, agree, *shapes):
    made = planned(func)
    assert made.script().index("W = T.alloc_buffer") < made.script().index("for s in")
    agree(func, made, *data(*shapes))


def test_a_block_writes_what_its_stores_come_to_and_not_what_it_declares(agree):
    @T.prim_func
    def before(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        W = T.alloc_buffer((2, 4), "int32")
        for s in range(4):
            with T.block("W"):
                vs = T.axis.spatial(4, s)
                T.reads(A[0:4])
                T.writes(W[0:2, 0:4])
                for q in range(4):
                    W[(vs + q) // 4, (vs + q) % 4] = A[q]
            with T.block("B"):
                vs = T.axis.spatial(4, s)
                B[vs] = W[0, 0]

    stays_outside(before, agree, (4,), (4,))


def test_a_condition_that_changes_with_the_loop_may_leave_out_what_is_read(agree):
    @T.prim_func
    def before(A: T.Buffer((3,), "int32"), B: T.Buffer((3,), "int32")):
        W = T.alloc_buffer((3,), "int32")
        for s in range(3):
            for a, b in T.grid(5, 8):
                with T.block("W"):
                    v = T.axis.spatial(3, a * 8 + b)
                    T.where(s + a * 8 + b <= 2 and a * 8 + b < 3)
                    W[v] = A[v] + s
            with T.block("B"):
                vs = T.axis.spatial(3, s)
                B[vs] = W[vs // 2]

    stays_outside(before, agree, (3,), (3,))


def test_a_stride_leaves_gaps(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), B: T.Buffer((2,), "int32")):
        W = T.alloc_buffer((8,), "int32")
        for s in range(2):
            for i in range(4):
                with T.block("V"):
                    v = T.axis.spatial(8, i * 2)
                    W[v] = A[v] + s
            for i in range(4 - 4 * s):
                with T.block("W"):
                    v = T.axis.spatial(8, i * 2 + 1)
                    W[v] = A[v]
            with T.block("B"):
                vs = T.axis.spatial(2, s)
                B[vs] = W[vs * 2 + 1]

    stays_outside(before, agree, (8,), (2,))


def test_what_a_later_iteration_writes_is_not_there_yet(agree):
    @T.prim_func
    def before(A: T.Buffer((4,), "int32"), B: T.Buffer((2, 4), "int32")):
        W = T.alloc_buffer((4,), "int32")
        for s in range(2):
            for i in range(4):
                with T.block("V"):
                    vi = T.axis.spatial(4, i)
                    T.where(s == 0)
                    W[vi] = A[vi]
            for i in range(4):
                with T.block("W"):
                    vs, vi = T.axis.remap("SS", [s, i])
                    W[vi] = A[vi] + vs
                with T.block("B"):
                    vs, vi = T.axis.remap("SS", [s, i])
                    B[vs, vi] = W[3 - vi]

    stays_outside(before, agree, (4,), (2, 4))


def test_what_earlier_iterations_wrote_is_there(agree):
    @T.prim_func
    def before(A: T.Buffer((9,), "int32"), B: T.Buffer((2, 4), "int32")):
        W = T.alloc_buffer((2, 5), "int32")
        for s in range(2):
            for i in range(5):
                with T.block("W"):
                    vs, vi = T.axis.remap("SS", [s, i])
                    W[vs, vi] = A[vs * 4 + vi]
                with T.block("B"):
                    vs = T.axis.spatial(2, s)
                    vi = T.axis.spatial(4, i - 1)
                    T.where(i >= 1)
                    B[vs, vi] = W[vs, vi] + W[vs, vi + 1]

    made = planned(before)
    assert made.script().index("for s in") < made.script().index("W = T.alloc_buffer")
    agree(before, made, *data((9,), (2, 4)))


def test_several_blocks_may_write_what_is_read(agree):
    @T.prim_func
    def before(A: T.Buffer((9, 11), "int32"), B: T.Buffer((99,), "int32")):
        W = T.alloc_buffer((9, 11), "int32")
        for s in range(13):
            for i in range(9):
                for j in range(5):
                    with T.block("V"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        W[vi, vj] = A[vi, vj] + 1
                for j in T.serial(5, 11):
                    with T.block("W"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        W[vi, vj] = A[vi, vj] - 1
            for i in range(8):
                with T.block("B"):
                    v = T.axis.spatial(99, s * 8 + i)
                    T.where(s * 8 + i < 99)
                    B[v] = W[v // 11, v % 11]

    made = planned(before)
    assert made.script().index("for s in") < made.script().index("W = T.alloc_buffer")
    agree(before, made, *data((9, 11), (99,)))


def test_nothing_to_do_is_the_same_object():
    A = te.placeholder((8,), name="A")
    B = te.compute((8,), lambda i: A[i] + 1, name="B")
    C = te.compute((8,), lambda i: B[i] * 2, name="C")
    func = te.create_prim_func([A, C])
    mod = tvm.IRModule({"main": func})
    assert Plan(mod) is mod
