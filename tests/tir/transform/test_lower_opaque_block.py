"""Blocks dissolved into loops, conditions and allocations."""

from __future__ import annotations

import numpy as np

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Block, BlockRealize
from tilewright.script import tir as T

Lower = tir.transform.LowerOpaqueBlock()


def lowered(func):
    mod = tir.transform.ConvertBlocksToOpaque()(tvm.IRModule({"main": func}))
    made = Lower(mod)["main"]
    assert not [m for m in pre_order(made.body) if isinstance(m, (Block, BlockRealize))]
    return made


def data(*sizes):
    rng = np.random.default_rng(5)
    return [rng.integers(-9, 9, s).astype("int32") for s in sizes]


def test_predicates_and_allocations(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((10,), "int32"), C: T.Buffer((10,), "int32")):
        for i_0, i_1 in T.grid(3, 4):
            with T.block(""):
                T.where(i_0 * 4 + i_1 < 10)
                T.reads(A[i_0 * 4 + i_1])
                T.writes(C[i_0 * 4 + i_1])
                B = T.alloc_buffer((2, 3), "int32")
                B[1, 2] = A[i_0 * 4 + i_1]
                C[i_0 * 4 + i_1] = B[1, 2] + 1

    made = lowered(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((10,), "int32"), C: T.Buffer((10,), "int32")):
            for i_0, i_1 in T.grid(3, 4):
                if T.likely(i_0 * 4 + i_1 < 10):
                    B = T.decl_buffer((2, 3), "int32")
                    B[1, 2] = A[i_0 * 4 + i_1]
                    C[i_0 * 4 + i_1] = B[1, 2] + 1
        """,
    )
    agree(before, made, *data((10,), (10,)))


def test_loops_that_run_once_go_unless_they_say_something(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((4,), "int32")):
        for u in range(1):
            for p in T.parallel(1):
                for v in T.vectorized(1):
                    for a in T.serial(1, annotations={"note": 1}):
                        for i in range(3, 4):
                            with T.block("A"):
                                A[u + p + v + a + i] = 7

    made = lowered(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((4,), "int32")):
            for p in T.parallel(1):
                for a in T.serial(1, annotations={"note": 1}):
                    A[T.Add(T.Add(0, p), 0) + a + 3] = 7
        """,
    )
    agree(before, made, *data((4,)))


def test_pragmas_become_attributes(expect):
    @T.prim_func
    def before(A: T.Buffer((4, 4), "int32")):
        for i in T.serial(4, annotations={"pragma_auto_unroll_max_step": 8, "keep": 2}):
            for j in range(4):
                with T.block("A"):
                    T.block_attr({"pragma_text": "x", "tir.attr.mine": 3, "other": 4})
                    A[i, j] = i

    expect(
        lowered(before),
        """
        @T.prim_func
        def before(A: T.Buffer((4, 4), "int32")):
            T.attr(0, "pragma_auto_unroll_max_step", 8)
            for i in T.serial(4, annotations={"keep": 2}):
                for j in range(4):
                    T.attr(0, "mine", 3)
                    T.attr(0, "pragma_text", "x")
                    A[i, j] = i
        """,
    )


def test_bound_loops_become_thread_extents(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
        for i in T.thread_binding(4, thread="blockIdx.x"):
            for v in T.thread_binding(2, thread="vthread"):
                for t in T.thread_binding(4, thread="threadIdx.x"):
                    with T.block("C"):
                        C[i, v * 4 + t] = A[i, v * 4 + t] + 1

    made = lowered(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4, 8), "int32")):
            i = T.launch_thread("blockIdx.x", 4)
            v = T.launch_thread("vthread", 2)
            t = T.launch_thread("threadIdx.x", 4)
            C[i, v * 4 + t] = A[i, v * 4 + t] + 1
        """,
    )
    agree(before, made, *data((4, 8), (4, 8)))


def test_an_axis_bound_twice_in_one_nest_is_the_same_thread(expect):
    @T.prim_func
    def before(A: T.Buffer((4, 4), "int32")):
        for i in T.thread_binding(4, thread="threadIdx.x"):
            for j in T.thread_binding(4, thread="threadIdx.x"):
                with T.block("A"):
                    A[i, j] = i + j

    expect(
        lowered(before),
        """
        @T.prim_func
        def before(A: T.Buffer((4, 4), "int32")):
            i = T.launch_thread("threadIdx.x", 4)
            A[i, i] = i + i
        """,
    )


def test_two_kernels_one_after_the_other(agree):
    @T.prim_func
    def before(A: T.Buffer((4,), "int32"), C: T.Buffer((8,), "int32")):
        for i in T.thread_binding(4, thread="threadIdx.x"):
            with T.block("A"):
                A[i] = i
        for i in T.thread_binding(8, thread="threadIdx.x"):
            with T.block("C"):
                C[i] = A[i // 2]

    made = lowered(before)
    assert made.script().count("T.launch_thread") == 2
    agree(before, made, *data((4,), (8,)))


def test_threads_count_from_zero(agree):
    @T.prim_func
    def before(A: T.Buffer((10,), "int32")):
        for i in T.thread_binding(3, 8, thread="threadIdx.x"):
            with T.block("A"):
                A[i] = i

    made = lowered(before)
    assert 'T.launch_thread("threadIdx.x", 5)' in made.script()
    agree(before, made, *data((10,)))


def test_strided_allocations_have_room_for_their_strides(agree):
    @T.prim_func
    def before(A: T.Buffer((4, 6), "int32"), C: T.Buffer((4, 6), "int32")):
        B = T.alloc_buffer((4, 6), "int32", strides=[8, 1])
        for i, j in T.grid(4, 6):
            with T.block("B"):
                B[i, j] = A[i, j]
        for i, j in T.grid(4, 6):
            with T.block("C"):
                C[i, j] = B[i, j] + 1

    made = lowered(before)
    assert "T.allocate([4, 8]" in made.script()
    agree(before, made, *data((4, 6), (4, 6)))
    agree(before, tvm.lower(before), *data((4, 6), (4, 6)))


def test_allocations_with_their_last_dimension_first(agree):
    @T.prim_func
    def before(A: T.Buffer((4, 6), "int32"), C: T.Buffer((4, 6), "int32")):
        B = T.alloc_buffer((4, 6), "int32", strides=[1, 5])
        for i, j in T.grid(4, 6):
            with T.block("B"):
                B[i, j] = A[i, j]
        for i, j in T.grid(4, 6):
            with T.block("C"):
                C[i, j] = B[i, j] + 1

    made = lowered(before)
    assert "T.allocate([29]" in made.script()
    agree(before, tvm.lower(before), *data((4, 6), (4, 6)))


def test_allocations_whose_last_dimension_has_gaps(agree):
    @T.prim_func
    def before(A: T.Buffer((4, 6), "int32"), C: T.Buffer((4, 6), "int32")):
        B = T.alloc_buffer((4, 6), "int32", strides=[30, 5])
        for i, j in T.grid(4, 6):
            with T.block("B"):
                B[i, j] = A[i, j]
        for i, j in T.grid(4, 6):
            with T.block("C"):
                C[i, j] = B[i, j] + 1

    made = lowered(before)
    assert "T.allocate([4, 30]" in made.script()
    agree(before, made, *data((4, 6), (4, 6)))
    agree(before, tvm.lower(before), *data((4, 6), (4, 6)))


def test_allocations_whose_rows_overlap(agree):
    @T.prim_func
    def before(A: T.Buffer((9,), "int32"), C: T.Buffer((4, 6), "int32")):
        B = T.alloc_buffer((4, 6), "int32", strides=[1, 1])
        for i, j in T.grid(4, 6):
            with T.block("B"):
                B[i, j] = A[i + j]
        for i, j in T.grid(4, 6):
            with T.block("C"):
                C[i, j] = B[i, j] + 1

    made = lowered(before)
    assert "T.allocate([9]" in made.script()
    agree(before, tvm.lower(before), *data((9,), (4, 6)))


def test_scopes_and_types_are_kept():
    @T.prim_func
    def before(C: T.Buffer((4,), "float16")):
        B = T.alloc_buffer((4,), "float16", scope="shared")
        for i in range(4):
            with T.block("B"):
                B[i] = T.float16(1)
        for i in range(4):
            with T.block("C"):
                C[i] = B[i]

    assert 'B = T.decl_buffer((4,), "float16", scope="shared")' in lowered(before).script()


def test_nothing_to_do_is_the_same_object():
    @T.prim_func
    def plain(A: T.Buffer((4,), "int32")):
        for i in range(4):
            A[i] = i

    mod = Lower(tvm.IRModule({"main": plain}))
    assert Lower(mod) is mod


def test_pragmas_of_loops_that_are_threads():
    """What a schedule says of a loop holds for its body, threads or not."""
    A = te.placeholder((32, 4), name="A")
    B = te.compute((32, 4), lambda i, j: A[i, j] + 1.0, name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], te.thread_axis("threadIdx.x"))
    s[B].pragma(B.op.axis[0], "auto_unroll_max_step", 8)
    s[B].pragma(B.op.axis[0], "unroll_explicit", True)
    text = tvm.lower(s, [A, B])["main"].script()
    assert "for " not in text and text.count("B_1[") == 4, text
