"""Refusals of programs that one has to look for: bare statements, pointers, strides, conditions, odd starts."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_programs import copy2d

from tilewright import te, tir
from tilewright.ir.errors import ScheduleError
from tilewright.script import tir as T


def said(refused, sch, step, *names, more=()):
    """What is said to a step on blocks, given by name, before other arguments."""
    blocks = [sch.get_block(x) for x in names]
    return refused(sch, lambda: getattr(sch, step)(*blocks, *more))


# ---------------------------------------------------------------------------- buffers
def test_strides_of_a_parameter(expect, refused):
    @T.prim_func
    def strided(a: T.handle, B: T.Buffer((4, 4), "float32")):
        A = T.match_buffer(a, (4, 4), strides=(8, 1))
        for i, j in T.grid(4, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]

    sch = tir.Schedule(strided)
    expect(
        said(refused, sch, "transform_layout", "B", more=("A", lambda i, j: (j, i))),
        """
        transform_layout(B, buffer='A', index_map=lambda i, j: (j, i)): A has strides of its own, which another layout would lose
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_vectors(expect, refused):
    @T.prim_func
    def vectors(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi * 4 : vi * 4 + 4] = A[vi * 4 : vi * 4 + 4]

    sch = tir.Schedule(vectors)
    expect(
        said(refused, sch, "transform_layout", "B", more=("A", lambda i: (i // 4, i % 4))),
        """
        transform_layout(B, buffer='A', index_map=lambda i: (i // 4, i % 4)): A is used by vectors already
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_memory_with_two_names(expect, refused):
    @T.prim_func
    def named(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        A_1 = T.Buffer((4, 4), data=A.data)
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = A[vi] + A_1[vi // 4, vi % 4]

    sch = tir.Schedule(named)
    expect(
        said(refused, sch, "transform_layout", "B", more=("A", lambda i: (i // 4, i % 4))),
        """
        transform_layout(B, buffer='A', index_map=lambda i: (i // 4, i % 4)): the memory of A is seen as A_1 too
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


# ---------------------------------------------------------------------------- copies
def test_a_part_that_is_made_elsewhere(expect, refused):
    @T.prim_func
    def halves(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(4):
            with T.block("low"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
        for i in range(4):
            with T.block("high"):
                vi = T.axis.spatial(4, i)
                B[vi + 4] = A[vi]
            with T.block("D"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi + 4]
        for i in range(4):
            with T.block("E"):
                vi = T.axis.spatial(4, i)
                C[vi + 4] = B[vi]

    sch = tir.Schedule(halves)
    d, e = sch.get_block("D"), sch.get_block("E")
    expect(
        refused(sch, lambda: sch.cache_read(d, "B", "local", [d, e])),
        """
        cache_read(D, read_buffer_index='B', storage_scope='local', consumer_blocks=[D, E]): block low makes a part of B elsewhere, which would not be copied
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("low"):    # <-- here
          | …

          hint: cache_write block low, or bring both makers under one loop
        """,
    )


def test_a_stride_that_the_copy_would_take_on(expect, refused):
    sch = tir.Schedule(te.create_prim_func(_stages()))
    sch.storage_align("B", 0, 0, 8, 4)
    expect(
        said(refused, sch, "reindex_cache_write", "B", more=(0, "local", lambda i, j: (j, i))),
        """
        reindex_cache_write(B, write_buffer_index=0, storage_scope='local', index_map=lambda i, j: (j, i)): block B has storage_align, which the copy of B would take on with other dimensions
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: storage_align comes after
        """,
    )


def test_a_stride_that_the_reindexed_copy_would_take_on(expect, refused):
    """Its axis would be another dimension of the copy: the last one where the copy has fewer."""
    sch = tir.Schedule(te.create_prim_func(_stages()))
    sch.storage_align("B", 0, 0, 8, 4)
    expect(
        said(refused, sch, "reindex", "B", more=(("write", 0),)),
        """
        reindex(B, buffer=['write', 0]): block B has storage_align, which the copy of B would take on with other dimensions
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: storage_align comes after
        """,
    )
    sch.reindex("B", ("read", 0))


def _stages():
    A = te.placeholder((8, 6), name="A")
    B = te.compute((8, 6), lambda i, j: A[i, j] * 2, name="B")
    return [A, te.compute((8, 6), lambda i, j: B[i, j] + 1, name="C")]


@T.prim_func
def plain_places(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
    for i in T.serial(1, 5):
        with T.block("shifted"):
            vi = T.axis.spatial((1, 5), i)
            B[vi] = A[vi]
    with T.block("one"):
        B[0] = A[0]
    for i in range(2):
        with T.block("outer"):
            vo = T.axis.spatial(2, i)
            for j in range(1):
                with T.block("inner"):
                    vi = T.axis.spatial(1, j)
                    B[vo + vi + 5] = A[vo + vi + 5]
    with T.block("called"):
        T.reads(A[0:8])
        T.writes(B[0:8])
        T.evaluate(T.call_extern("int32", "f", A.data, B.data))


def test_reindex_of_what_is_no_plain_place(expect, refused):
    sch = tir.Schedule(plain_places)
    expect(
        said(refused, sch, "reindex", "shifted", more=(("read", 0),)),
        """
        reindex(shifted, buffer=['read', 0]): iterator `vi` of block shifted does not start at 0
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("shifted"):    # <-- here
          | …
        """,
    )
    expect(
        said(refused, sch, "reindex", "one", more=(("read", 0),)),
        """
        reindex(one, buffer=['read', 0]): block one has no iterators
          at test_rare_refusals.py:LINE

          | …
          |     with T.block("one"):    # <-- here
          | …
        """,
    )
    expect(
        said(refused, sch, "reindex", "outer", more=(("read", 0),)),
        """
        reindex(outer, buffer=['read', 0]): block outer holds blocks of its own
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("outer"):    # <-- here
          | …

          hint: reindex the block inside
        """,
    )
    expect(
        said(refused, sch, "reindex", "called", more=(("read", 0),)),
        """
        reindex(called, buffer=['read', 0]): there is no plain access of A in block called
          at test_rare_refusals.py:LINE

          | …
          |     with T.block("called"):    # <-- here
          | …
        """,
    )


def test_pad_einsum_of_iterators_that_start_elsewhere(expect, refused):
    @T.prim_func
    def late(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in T.serial(1, 5):
            with T.block("B"):
                vi = T.axis.spatial((1, 5), i)
                B[vi] = A[vi]

    sch = tir.Schedule(late)
    expect(
        said(refused, sch, "pad_einsum", "B", more=([4],)),
        """
        pad_einsum(B, padding=[4]): iterator `vi` of block B does not start at 0
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


# ---------------------------------------------------------------------------- places
def test_producers_behind_consumers(expect, refused):
    @T.prim_func
    def crossed(A: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32"), E: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        C = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi]
        for i in range(4):
            with T.block("D"):
                vi = T.axis.spatial(4, i)
                D[vi] = C[vi]
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
                E[vi] = A[vi]

    sch = tir.Schedule(crossed)
    i = sch.get_loops("D")[0]
    expect(
        said(refused, sch, "compute_at", "C", more=(i,)),
        """
        compute_at(C, loop=i): block B writes B after block C has read it, and there it would read the new values
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: choose a loop before that block, or cache_read B for this block first
        """,
    )


def test_a_reader_that_comes_first(expect, refused):
    @T.prim_func
    def delayed(A: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
        C = T.alloc_buffer((4,))
        for t in range(2):
            for i in range(4):
                with T.block("D"):
                    vi = T.axis.spatial(4, i)
                    D[vi] = T.if_then_else(t > 0, C[vi], T.float32(0))
            for i in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(4, i)
                    C[vi] = A[vi] + T.Cast("float32", t)

    sch = tir.Schedule(delayed)
    i = sch.get_loops("D")[1]
    expect(
        said(refused, sch, "compute_at", "C", more=(i,)),
        """
        compute_at(C, loop=i): block D reads what was there before block C writes
          at test_rare_refusals.py:LINE

          | …
          |             with T.block("D"):    # <-- here
          | …

          hint: cache_read for block D first, so that it reads a copy
        """,
    )


def test_a_block_that_is_all_of_a_condition(expect, refused):
    @T.prim_func
    def maybe(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32"), n: T.int32):
        B = T.alloc_buffer((4,))
        if n > 1:
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi]
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi]

    sch = tir.Schedule(maybe)
    i = sch.get_loops("C")[0]
    for step, more, call in (
        ("compute_inline", (), "compute_inline(B)"),
        ("compute_at", (i,), "compute_at(B, loop=i)"),
    ):
        expect(
            said(refused, sch, step, "B", more=more).replace(call, "STEP"),
            """
            STEP: nothing would be left under the statement around block B
              at test_rare_refusals.py:LINE

              | …
              |         for i in range(4):    # <-- here
              | …

              hint: put what is around it into the block: a condition into the value that it stores
            """,
        )


def test_steps_of_a_reduction_several_times(expect, refused):
    @T.prim_func
    def again(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4,), "float32")):
        for t, i, k in T.grid(2, 4, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                T.where(t < 2)
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk]

    sch = tir.Schedule(again)
    t, i, k = sch.get_loops("C")
    expect(
        refused(sch, lambda: sch.reorder(k, i, t)),
        """
        reorder(k, i, t): loop `t` computes block C anew in each iteration, and inside of `k` it would take each step of the reduction several times
          at test_rare_refusals.py:LINE

          | …
          |     for t, i, k in T.grid(2, 4, 6):    # <-- here
          | …

          hint: keep `t` outside of `k`
        """,
    )


def test_rolling_under_a_condition(expect, refused):
    @T.prim_func
    def sometimes(A: T.Buffer((10,), "float32"), C: T.Buffer((8,), "float32"), n: T.int32):
        B = T.alloc_buffer((10,))
        for o in range(4):
            if n > 3:
                for i in range(4):
                    with T.block("B"):
                        vi = T.axis.spatial(10, o * 2 + i)
                        B[vi] = A[vi]
            for i in range(2):
                with T.block("C"):
                    vi = T.axis.spatial(8, o * 2 + i)
                    C[vi] = B[vi] + B[vi + 2]

    sch = tir.Schedule(sometimes)
    expect(
        said(refused, sch, "rolling_buffer", "B", more=(0,)),
        """
        rolling_buffer(B, write_buffer_index=0): block B is under a condition
          at test_rare_refusals.py:LINE

          | …
          |         if n > 3:    # <-- here
          | …
        """,
    )


# ---------------------------------------------------------------------------- blockize and tensorize
def test_blockize_of_blocks_in_several_places(expect, refused):
    sch = tir.Schedule(te.create_prim_func(_stages()))
    b, c = sch.get_block("B"), sch.get_block("C")
    sch.blockize(sch.get_loops(c)[1])
    expect(
        refused(sch, lambda: sch.blockize([b, c])),
        """
        blockize([B, C]): the blocks are not next to each other in one scope
          at test_rare_refusals.py:LINE

          | …
          |                 with T.block("C"):    # <-- here
          | …

          hint: bring them under one loop with compute_at or reverse_compute_at
        """,
    )


def test_blockize_under_loops_that_belong_together(expect, refused):
    @T.prim_func
    def triangle(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i in range(8):
            for j in range(i + 1):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj]

    sch = tir.Schedule(triangle)
    j = sch.get_loops("B")[1]
    expect(
        refused(sch, lambda: sch.blockize(j)),
        """
        blockize(j): the bounds of loop `j` depend on a loop outside
          at test_rare_refusals.py:LINE

          | …
          |         for j in range(i + 1):    # <-- here
          | …

          hint: choose that loop, so that both are inside
        """,
    )

    @T.prim_func
    def tied(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(i + j < 9)
                B[vi, vj] = A[vi, vj]

    sch = tir.Schedule(tied)
    j = sch.get_loops("B")[1]
    expect(
        refused(sch, lambda: sch.blockize(j)),
        """
        blockize(j): the iterators of block B (vi = i, vj = j where i + j < 9) do not fall into a part over `j` and a part over the loops outside
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: split by a factor that divides the extent, or pad_einsum first
        """,
    )


def test_an_intrinsic_that_leaves_a_buffer_aside(expect, refused):
    @T.prim_func
    def idle(a: T.handle, c: T.handle):
        _A = T.match_buffer(a, (12,), offset_factor=1)
        C = T.match_buffer(c, (12,), offset_factor=1)
        with T.block("root"):
            T.reads()
            T.writes(C[0:12])
            for i in range(12):
                with T.block("one"):
                    vi = T.axis.spatial(12, i)
                    C[vi] = T.float32(0)

    @T.prim_func
    def zeros(B: T.Buffer((8, 12), "float32")):
        for i, j in T.grid(8, 12):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = T.float32(0)

    tir.TensorIntrin.register("test.idle", idle, idle, override=True)
    sch = tir.Schedule(zeros)
    j = sch.get_loops("B")[1]
    expect(
        refused(sch, lambda: sch.tensorize(j, "test.idle")),
        """
        tensorize(j, tensor_intrin='test.idle'): the desc of the intrinsic does not use _A, so there is nothing to give it
          at test_rare_refusals.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )


def test_blockize_of_a_condition_on_loops_inside_and_outside(expect, refused):
    @T.prim_func
    def bare(A: T.Buffer((8, 8), "float32"), B: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("B"):
                T.where(i + j < 9)
                T.reads(A[0:8, 0:8])
                T.writes(B[0:8, 0:8])
                B[i, j] = A[i, j]

    sch = tir.Schedule(bare)
    i, j = sch.get_loops("B")
    expect(
        refused(sch, lambda: sch.blockize(j)),
        """
        blockize(j): the condition `i + j < 9` ties loops inside and outside of the block together
          at test_rare_refusals.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: choose the outermost of these loops, so that all of them are inside
        """,
    )
    sch.blockize(i)
    assert sch.verify()


def test_an_intrinsic_that_takes_more_than_there_is(expect, refused):
    @T.prim_func
    def wide(a: T.handle, c: T.handle):
        A = T.match_buffer(a, (16,), offset_factor=1)
        C = T.match_buffer(c, (12,), offset_factor=1)
        with T.block("root"):
            T.reads(A[0:12])
            T.writes(C[0:12])
            for i in range(12):
                with T.block("one"):
                    vi = T.axis.spatial(12, i)
                    C[vi] = A[vi] + T.float32(1)

    tir.TensorIntrin.register("test.wide", wide, wide, override=True)
    sch = tir.Schedule(copy2d)
    j = sch.get_loops("B")[1]
    expect(
        refused(sch, lambda: sch.tensorize(j, "test.wide")),
        """
        tensorize(j, tensor_intrin='test.wide'): the intrinsic takes all of A, and the region of A from 0 on may not have 16 elements
          at test_rare_refusals.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: pad the buffer to whole tiles with pad_einsum or transform_layout
        """,
    )


# ---------------------------------------------------------------------------- verify
def test_verify_with_a_size_that_is_not_known(expect):
    n = te.var("n")
    A = te.placeholder((tir.popcount(n),), name="A")
    B = te.compute((4,), lambda i: A[i] * 2, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B, n]))
    sch.parallel(sch.get_loops("B")[0])
    with pytest.raises(ScheduleError) as caught:
        sch.verify()
    expect(
        str(caught.value),
        """
        the size `T.popcount(n)` of A is not known, so no arguments can be drawn: pass arrays=
        """,
    )
    assert sch.verify(arrays=[np.ones(4, "float32"), np.zeros(4, "float32"), 15])


def test_verify_of_what_cannot_be_compiled(expect):
    A = te.placeholder((400, 400), name="A")
    B = te.compute((400, 400), lambda i, j: tir.call_extern("float32", "no_such_function", A[i, j]), name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    sch.parallel(sch.get_loops("B")[0])
    with pytest.raises(ScheduleError) as caught:
        sch.verify()
    expect(
        str(caught.value),
        """
        the origin of main cannot be compiled: main calls the C function no_such_function, which is not in this process: load the library that has it with ctypes.CDLL(path, ctypes.RTLD_GLOBAL) first
        """,
    )


# ---------------------------------------------------------------------------- traces
def test_a_trace_without_its_first_step(expect):
    sch = tir.Schedule(copy2d)
    i, _ = sch.get_loops("B")
    sch.parallel(i)
    short = sch.trace
    del short.insts[:2]
    with pytest.raises(ScheduleError) as caught:
        short.apply_to_schedule(tir.Schedule(copy2d))
    expect(
        str(caught.value),
        """
        the trace uses `i`, which none of its steps gave
        """,
    )
