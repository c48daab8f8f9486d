"""Data copied to other memory before it is read: cache_read."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_programs import arrays, chain
from stage_programs import (
    argmax,
    backwards,
    batched,
    blur,
    conv2d,
    fork,
    levels,
    matmul_relu,
    padded,
    refusal,
    same,
    same_again,
    stencil,
    symbolic_stencil,
)

import tilewright as tvm
from tilewright import tir
from tilewright.ir.errors import ScheduleError
from tilewright.script import tir as T


# ---------------------------------------------------------------------------- cache_read: expect
def test_an_input_is_copied_first(expect):
    sch = tir.Schedule(backwards)
    copy = sch.cache_read("B", 0, "shared")
    assert copy.name == "A_shared"
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def backwards(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((8,))
            A_shared = T.alloc_buffer((8,), scope="shared")
            for ax0 in range(8):
                with T.block("A_shared"):
                    v0 = T.axis.spatial(8, ax0)
                    T.reads(A[v0])
                    T.writes(A_shared[v0])
                    A_shared[v0] = A[v0]
            for i in range(8):
                with T.block("B"):
                    vi = T.axis.spatial(8, i)
                    T.reads(A_shared[vi])
                    T.writes(B[vi])
                    B[vi] = A_shared[vi] * T.float32(2)
            for i in range(8):
                with T.block("C"):
                    vi = T.axis.spatial(8, i)
                    T.reads(B[7 - vi])
                    T.writes(C[vi])
                    C[vi] = B[7 - vi]
        """,
    )
    same(backwards, sch)


def test_only_what_is_read_is_copied(expect):
    @T.prim_func
    def part(A: T.Buffer((8, 8), "float32"), C: T.Buffer((3, 4), "float32")):
        for i, j in T.grid(3, 4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi + 2, vj * 2]

    sch = tir.Schedule(part)
    sch.cache_read("C", "A", "local")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def part(A: T.Buffer((8, 8), "float32"), C: T.Buffer((3, 4), "float32")):
            # with T.block("root"):
            A_local = T.alloc_buffer((8, 8), scope="local")
            for ax0, ax1 in T.grid(3, 7):
                with T.block("A_local"):
                    v0 = T.axis.spatial(8, 2 + ax0)
                    v1 = T.axis.spatial(8, ax1)
                    T.reads(A[v0, v1])
                    T.writes(A_local[v0, v1])
                    A_local[v0, v1] = A[v0, v1]
            for i, j in T.grid(3, 4):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A_local[vi + 2, vj * 2])
                    T.writes(C[vi, vj])
                    C[vi, vj] = A_local[vi + 2, vj * 2]
        """,
    )
    same(part, sch)
    same_again(part, sch)


def test_behind_the_block_that_makes_it(expect):
    sch = tir.Schedule(levels)
    sch.cache_read("D", "B", "local")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def levels(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32"), D: T.Buffer((8, 4), "float32"), E: T.Buffer((8, 4), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((8, 4))
            B_local = T.alloc_buffer((8, 4), scope="local")
            for i in range(8):
                for j in range(4):
                    with T.block("B"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(A[vi, vj])
                        T.writes(B[vi, vj])
                        B[vi, vj] = A[vi, vj] * T.float32(2)
                for ax0, ax1 in T.grid(1, 4):
                    with T.block("B_local"):
                        v0 = T.axis.spatial(8, i + ax0)
                        v1 = T.axis.spatial(4, ax1)
                        T.reads(B[v0, v1])
                        T.writes(B_local[v0, v1])
                        B_local[v0, v1] = B[v0, v1]
                for j in range(4):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(B[vi, vj], A[vi, vj])
                        T.writes(C[vi, vj])
                        C[vi, vj] = B[vi, vj] + A[vi, vj]
                for j in range(4):
                    with T.block("D"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(B_local[vi, vj], A[vi, vj])
                        T.writes(D[vi, vj])
                        D[vi, vj] = B_local[vi, vj] + A[vi, vj] + T.float32(1)
            for i, j in T.grid(8, 4):
                with T.block("E"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(B[vi, vj], A[vi, vj])
                    T.writes(E[vi, vj])
                    E[vi, vj] = B[vi, vj] * A[vi, vj]
        """,
    )
    same(levels, sch)


def test_one_copy_for_several_readers(expect):
    sch = tir.Schedule(fork)
    sch.cache_read("D", 0, "global", ["C", "D"])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def fork(A: T.Buffer((12,), "float32"), C: T.Buffer((12,), "float32"), D: T.Buffer((12,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((12,))
            B_global = T.alloc_buffer((12,))
            for i in range(12):
                with T.block("B"):
                    vi = T.axis.spatial(12, i)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    B[vi] = A[vi] * T.float32(2)
            for ax0 in range(12):
                with T.block("B_global"):
                    v0 = T.axis.spatial(12, ax0)
                    T.reads(B[v0])
                    T.writes(B_global[v0])
                    B_global[v0] = B[v0]
            for i in range(12):
                with T.block("C"):
                    vi = T.axis.spatial(12, i)
                    T.reads(B_global[vi])
                    T.writes(C[vi])
                    C[vi] = B_global[vi] + T.float32(1)
                with T.block("D"):
                    vi = T.axis.spatial(12, i)
                    T.reads(B_global[vi + 2])
                    T.writes(D[vi])
                    D[vi] = T.if_then_else(vi < 10, B_global[vi + 2], T.float32(0))
        """,
    )
    same(fork, sch)


def test_a_cache_under_a_loop_of_its_reader(expect):
    sch = tir.Schedule(matmul_relu)
    copy = sch.cache_read("C", 1, "shared")
    i, j, k = sch.get_loops("C")
    ko, ki = sch.split(k, [None, 4])
    sch.reorder(ko, i, j, ki)
    sch.compute_at(copy, ko)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul_relu(A: T.Buffer((7, 10), "float32"), B: T.Buffer((10, 6), "float32"), D: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            C = T.alloc_buffer((7, 6))
            B_shared = T.alloc_buffer((10, 6), scope="shared")
            for k_0 in range(3):
                for ax0, ax1 in T.grid(4, 6):
                    with T.block("B_shared"):
                        v0 = T.axis.spatial(10, k_0 * 4 + ax0)
                        v1 = T.axis.spatial(6, ax1)
                        T.where(k_0 * 4 + ax0 < 10)
                        T.reads(B[v0, v1])
                        T.writes(B_shared[v0, v1])
                        B_shared[v0, v1] = B[v0, v1]
                for i, j, k_1 in T.grid(7, 6, 4):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        vk = T.axis.reduce(10, k_0 * 4 + k_1)
                        T.where(k_0 * 4 + k_1 < 10)
                        T.reads(A[vi, vk], B_shared[vk, vj])
                        T.writes(C[vi, vj])
                        with T.init():
                            C[vi, vj] = T.float32(0)
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B_shared[vk, vj]
            for i, j in T.grid(7, 6):
                with T.block("D"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(C[vi, vj])
                    T.writes(D[vi, vj])
                    D[vi, vj] = T.max(C[vi, vj], T.float32(0))
        """,
    )
    same(matmul_relu, sch)
    same_again(matmul_relu, sch)


# ---------------------------------------------------------------------------- cache_read: meaning
@pytest.mark.parametrize("buffer", ["A", "B"])
@pytest.mark.parametrize("readers", [c for n in (1, 2, 3) for c in itertools.permutations("CDE", n)])
def test_readers_at_different_levels(buffer, readers):
    sch = tir.Schedule(levels)
    sch.cache_read(readers[0], buffer, "global", list(readers))
    same(levels, sch, build=False)
    same_again(levels, sch)


@pytest.mark.parametrize(
    ("func", "block"),
    [(stencil, "C"), (blur, "D"), (conv2d, "S"), (batched, "C"), (padded, "C"), (chain, "D")],
)
@pytest.mark.parametrize("scope", ["global", "local"])
def test_every_buffer_that_a_block_reads(func, block, scope):
    sch = tir.Schedule(func)
    for index in range(len(sch.get(sch.get_block(block)).reads)):
        sch.cache_read(block, index, scope)
    same(func, sch, build=scope == "local")
    same_again(func, sch)


@pytest.mark.parametrize("factor", [1, 3, 4])
def test_a_halo_through_a_cache(factor):
    sch = tir.Schedule(stencil)
    copy = sch.cache_read("C", "B", "local")
    outer, inner = sch.split(sch.get_loops("C")[0], [None, factor])
    sch.compute_at(copy, outer)
    sch.compute_at("B", outer)
    assert [b.name for b in sch.get_child_blocks(outer)] == ["B", "B_local", "C"]
    same(stencil, sch)
    same_again(stencil, sch)


def test_two_levels_of_memory():
    sch = tir.Schedule(matmul_relu)
    shared = sch.cache_read("C", 0, "shared")
    local = sch.cache_read("C", 0, "local")
    assert (shared.name, local.name) == ("A_shared", "A_shared_local")
    i, j, k = sch.get_loops("C")
    io, ii = sch.split(i, [None, 4])
    ko, ki = sch.split(k, [None, 4])
    sch.reorder(io, ko, ki, ii, j)
    sch.compute_at(local, ki)
    sch.compute_at(shared, ko)
    same(matmul_relu, sch)
    same_again(matmul_relu, sch)


@pytest.mark.slow
def test_a_symbolic_shape():
    sch = tir.Schedule(symbolic_stencil)
    copy = sch.cache_read("C", "B", "local")
    sch.compute_at(copy, sch.split(sch.get_loops("C")[0], [None, 4])[0])
    for n in (1, 4, 6):
        same(symbolic_stencil, sch, n=n, build=n == 6)


def test_a_buffer_that_is_overwritten_later():
    @T.prim_func
    def swap(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = A[7 - vi]
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                A[vi] = T.float32(0)

    sch = tir.Schedule(swap)
    sch.cache_read("C", "A", "local")
    same(swap, sch)


def test_copies_of_one_buffer_have_names_of_their_own():
    sch = tir.Schedule(fork)
    names = [sch.cache_read(b, "B", "local").name for b in "CD"]
    assert names == ["B_local", "B_local_1"]
    same(fork, sch)
    same_again(fork, sch)


# ---------------------------------------------------------------------------- cache_read: refuse
def test_refuse_an_unknown_memory(expect, refused):
    sch = tir.Schedule(backwards)
    expect(
        refusal(refused, sch, "cache_read", "B", 0, "cupboard"),
        """
        cache_read(B, read_buffer_index=0, storage_scope='cupboard'): there is no memory named 'cupboard'
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: known are global, shared, shared.dyn, local, warp
        """,
    )


def test_refuse_what_the_block_does_not_read(expect, refused):
    sch = tir.Schedule(backwards)
    (buffer,) = (w.buffer for w in sch.get(sch.get_block("C")).writes)
    expect(
        refusal(refused, sch, "cache_read", "B", 2, "local"),
        """
        cache_read(B, read_buffer_index=2, storage_scope='local'): block B reads 1 regions, and 2 is none of them
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )
    expect(
        refusal(refused, sch, "cache_read", "B", "C", "local"),
        """
        cache_read(B, read_buffer_index='C', storage_scope='local'): block B does not read 'C'; it reads A
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )
    expect(
        refusal(refused, sch, "cache_read", "B", buffer, "local"),
        """
        cache_read(B, read_buffer_index=Buffer(C, (8), float32), storage_scope='local'): block B does not read C
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_refuse_a_reader_that_does_not_read_it(expect, refused):
    sch = tir.Schedule(chain)
    others = [sch.get_block("D")]
    expect(
        refusal(refused, sch, "cache_read", "B", "A", "local", others),
        """
        cache_read(B, read_buffer_index='A', storage_scope='local', consumer_blocks=[D]): block D does not read A
          at stage_programs.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …
        """,
    )


def test_refuse_a_reader_that_writes_it(expect, refused):
    @T.prim_func
    def add_one(A: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                A[vi] = A[vi] + T.float32(1)

    expect(
        refusal(refused, tir.Schedule(add_one), "cache_read", "A", 0, "local"),
        """
        cache_read(A, read_buffer_index=0, storage_scope='local'): block A writes A too, and the copy would take its writes
          at stage_programs.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: cache_inplace copies it before and back after
        """,
    )
    expect(
        refusal(refused, tir.Schedule(add_one), "cache_write", "A", 0, "local"),
        """
        cache_write(A, write_buffer_index=0, storage_scope='local'): block A also reads A, which the other memory does not hold yet
          at stage_programs.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: cache_inplace copies it before and back after
        """,
    )


def test_refuse_a_write_between_readers(expect, refused):
    @T.prim_func
    def between(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = A[vi]
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                A[vi] = T.float32(0)
        for i in range(8):
            with T.block("D"):
                vi = T.axis.spatial(8, i)
                D[vi] = A[vi]

    sch = tir.Schedule(between)
    others = [sch.get_block("C"), sch.get_block("D")]
    expect(
        refusal(refused, sch, "cache_read", "C", 0, "local", others),
        """
        cache_read(C, read_buffer_index=0, storage_scope='local', consumer_blocks=[C, D]): block A writes A between its readers, so one copy does not do for all of them
          at stage_programs.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: take two copies, with consumer_blocks: one for the readers before it, one for those after
        """,
    )
    sch.cache_read("C", 0, "local")
    sch.cache_read("D", 0, "local")
    same(between, sch)


def test_refuse_a_pointer(expect, refused):
    @T.prim_func
    def pointer(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                T.reads(A[vi])
                T.writes(C[vi])
                T.evaluate(T.call_extern("int32", "copy", T.address_of(C[vi]), T.address_of(A[vi])))

    expect(
        refusal(refused, tir.Schedule(pointer), "cache_read", "C", 0, "local"),
        """
        cache_read(C, read_buffer_index=0, storage_scope='local'): block C uses A through a pointer, so its reads cannot be redirected to the copy
          at stage_programs.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: take this step before tensorize, or before the call that takes the pointer is made
        """,
    )
    expect(
        refusal(refused, tir.Schedule(pointer), "cache_write", "C", 0, "local"),
        """
        cache_write(C, write_buffer_index=0, storage_scope='local'): block C uses C through a pointer, so its writes cannot be redirected to other memory
          at stage_programs.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: take this step before tensorize, or before the call that takes the pointer is made
        """,
    )


def test_refuse_a_reader_of_another_scope(expect, refused):
    @T.prim_func
    def inside(
        A: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32"), D: T.Buffer((4, 4), "float32")
    ):
        for i, j in T.grid(4, 4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj]
        for i in range(4):
            with T.block("D"):
                vi = T.axis.spatial(4, i)
                T.reads(A[vi, 0:4])
                T.writes(D[vi, 0:4])
                for j in range(4):
                    with T.block("inner"):
                        vj = T.axis.spatial(4, j)
                        D[vi, vj] = A[vi, vj]

    sch = tir.Schedule(inside)
    others = [sch.get_block("inner")]
    expect(
        refusal(refused, sch, "cache_read", "C", 0, "local", others),
        """
        cache_read(C, read_buffer_index=0, storage_scope='local', consumer_blocks=[inner]): block inner is not in the scope of block C
          at stage_programs.py:LINE

          | …
          |                 with T.block("inner"):    # <-- here
          | …
        """,
    )
    sch.cache_read("D", 0, "local", ["C", "D"])
    sch.cache_read("inner", 0, "local")
    same(inside, sch)
    same_again(inside, sch)


# ---------------------------------------------------------------------------- memory that threads share
def threaded(func, block, scope="shared"):
    """A reader under threads, and the copy that it reads from inside them."""
    sch = tir.Schedule(func)
    copy = sch.cache_read(block, 0, scope)
    outer, inner = sch.split(sch.get_loops(block)[0], [None, 4])
    sch.bind(outer, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    sch.compute_at(copy, inner)
    return sch, copy


def test_shared_memory_holds_what_all_threads_need(expect):
    sch, copy = threaded(blur, "D")
    loops = [str(sch.get(x).extent) for x in sch.get_loops(copy)[2:]]
    assert loops == ["6", "9"]
    sch, copy = threaded(blur, "D", "local")
    assert [str(sch.get(x).extent) for x in sch.get_loops(copy)[2:]] == ["3", "9"]
    same(blur, sch, build=False)


def test_threads_fill_shared_memory_together(expect):
    sch, copy = threaded(blur, "D")
    _, _, x, y = sch.get_loops(copy)
    _, tx = sch.split(sch.fuse(x, y), [None, 4])
    sch.bind(tx, "threadIdx.x")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def blur(A: T.Buffer((9, 11), "float32"), D: T.Buffer((7, 9), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((9, 9))
            B_shared = T.alloc_buffer((9, 9), scope="shared")
            for i, j in T.grid(9, 9):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vi, vj:vj + 3])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + A[vi, vj + 1] + A[vi, vj + 2]
            for i_0 in T.thread_binding(2, thread="blockIdx.x"):
                for i_1 in T.thread_binding(4, thread="threadIdx.x"):
                    for ax0_ax1_fused_0 in range(14):
                        for ax0_ax1_fused_1 in T.thread_binding(4, thread="threadIdx.x"):
                            with T.block("B_shared"):
                                v0 = T.axis.spatial(9, i_0 * 4 + (ax0_ax1_fused_0 * 4 + ax0_ax1_fused_1) // 9)
                                v1 = T.axis.spatial(9, (ax0_ax1_fused_0 * 4 + ax0_ax1_fused_1) % 9)
                                T.where(i_0 * 4 + (ax0_ax1_fused_0 * 4 + ax0_ax1_fused_1) // 9 < 9 and ax0_ax1_fused_0 * 4 + ax0_ax1_fused_1 < 54)
                                T.reads(B[v0, v1])
                                T.writes(B_shared[v0, v1])
                                B_shared[v0, v1] = B[v0, v1]
                    for j in range(9):
                        with T.block("D"):
                            vi = T.axis.spatial(7, i_0 * 4 + i_1)
                            vj = T.axis.spatial(9, j)
                            T.where(i_0 * 4 + i_1 < 7)
                            T.reads(B_shared[vi:vi + 3, vj])
                            T.writes(D[vi, vj])
                            D[vi, vj] = B_shared[vi, vj] + B_shared[vi + 1, vj] + B_shared[vi + 2, vj]
        """,
    )
    same_again(blur, sch)
    start = arrays(blur)
    want, got, lowered = ([a.copy() for a in start] for _ in range(3))
    tir.interpret(blur, *want)
    tir.interpret(sch.mod["main"], *got, check_regions=True)
    mod = tir.transform.ThreadSync("shared")(tvm.lower(sch.mod))
    tir.interpret(next(iter(mod.functions.values())), *lowered)
    np.testing.assert_array_equal(got[1], want[1])
    np.testing.assert_array_equal(lowered[1], want[1])


def test_refuse_to_share_out_what_each_thread_needs(expect, refused):
    sch, copy = threaded(blur, "D", "local")  # memory of its own for each thread
    _, _, x, y = sch.get_loops(copy)
    _, tx = sch.split(sch.fuse(x, y), [None, 4])
    expect(
        refused(sch, lambda: sch.bind(tx, "threadIdx.x")),
        """
        bind(ax0_ax1_fused_1, thread_axis='threadIdx.x'): loop `i_1` around it is bound to threadIdx.x already
          at test_cache.py:LINE

          | …
          |         for i_1 in T.thread_binding(4, thread="threadIdx.x"):    # <-- here
          | …

          hint: bind this one to another axis
        """,
    )
    sch, copy = threaded(blur, "D")
    _, _, x, y = sch.get_loops(copy)  # another number of threads
    expect(
        refused(sch, lambda: sch.bind(y, "threadIdx.x")),
        """
        bind(ax1, thread_axis='threadIdx.x'): loop `i_1` around it is bound to threadIdx.x already
          at test_cache.py:LINE

          | …
          |         for i_1 in T.thread_binding(4, thread="threadIdx.x"):    # <-- here
          | …

          hint: threads share out a loop inside theirs that has as many iterations as there are of them, 4 and not 9: split it, and bind the part
        """,
    )


# ---------------------------------------------------------------------------- at random
@settings(max_examples=examples(40), deadline=None, derandomize=True)
@given(st.data())
def test_random_caches_mean_the_same_or_are_refused(data):
    func = data.draw(st.sampled_from([stencil, blur, conv2d, matmul_relu, fork, levels, chain, argmax]))
    sch = tir.Schedule(func)
    for _ in range(data.draw(st.integers(1, 5))):
        names = [b.name for b in sch.get_child_blocks(sch.get_block("root"))]
        block, other = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
        scope = data.draw(st.sampled_from(["global", "local"]))
        step = data.draw(st.sampled_from(["read", "read", "write", "split", "at", "back"]))
        before = sch.mod
        try:
            if step == "read":
                readers = data.draw(st.sampled_from([None, [other], [other, block]]))
                sch.cache_read(block, data.draw(st.integers(0, 1)), scope, readers)
            elif step == "write":
                readers = data.draw(st.sampled_from([None, None, [other]]))
                sch.cache_write(block, 0, scope, readers)
            elif step == "split":
                sch.split(
                    data.draw(st.sampled_from(sch.get_loops(block))), [None, data.draw(st.integers(2, 5))]
                )
            elif step == "at":
                sch.compute_at(block, data.draw(st.sampled_from(sch.get_loops(other))))
            else:
                sch.reverse_compute_at(block, data.draw(st.sampled_from(sch.get_loops(other))))
        except ScheduleError:
            assert sch.mod is before
    same(func, sch, build=False)
    same_again(func, sch)


def test_a_copy_of_a_constant_stands_behind_its_definition():
    @T.prim_func
    def table(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
        K = T.allocate_const([1, 2, 3, 4], "int32", [4])
        K_1 = T.Buffer((4,), "int32", data=K)
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi] + K_1[vi]

    sch = tir.Schedule(table)
    sch.cache_read("C", 1, "local")
    sch.cache_read("C", 0, "local")
    sch.cache_write("C", 0, "local")
    text = sch.mod["main"].script()
    assert text.index("allocate_const") < text.index("K_1_local[v0] = K_1[v0]")
    same(table, sch)
