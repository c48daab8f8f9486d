"""Blocks moved under loops of their producers: reverse_compute_at."""

from __future__ import annotations

import re

import pytest
from schedule_programs import chain
from stage_programs import (
    backwards,
    batched,
    conv2d,
    matmul_relu,
    padded,
    refusal,
    same,
    same_again,
    stencil,
    tiled,
    unread,
)

from tilewright import tir
from tilewright.script import tir as T


# ---------------------------------------------------------------------------- reverse_compute_at: expect
def test_a_consumer_behind_its_producer(expect):
    sch, (io, jo), _ = tiled(matmul_relu, "C", 4, 4)
    sch.reverse_compute_at("D", jo)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul_relu(A: T.Buffer((7, 10), "float32"), B: T.Buffer((10, 6), "float32"), D: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            C = T.alloc_buffer((7, 6))
            for i_0, j_0 in T.grid(2, 2):
                for i_1, j_1, k in T.grid(4, 4, 10):
                    with T.block("C"):
                        vi = T.axis.spatial(7, i_0 * 4 + i_1)
                        vj = T.axis.spatial(6, j_0 * 4 + j_1)
                        vk = T.axis.reduce(10, k)
                        T.where(i_0 * 4 + i_1 < 7 and j_0 * 4 + j_1 < 6)
                        T.reads(A[vi, vk], B[vk, vj])
                        T.writes(C[vi, vj])
                        with T.init():
                            C[vi, vj] = T.float32(0)
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
                for ax0, ax1 in T.grid(4, 4):
                    with T.block("D"):
                        vi = T.axis.spatial(7, i_0 * 4 + ax0)
                        vj = T.axis.spatial(6, j_0 * 4 + ax1)
                        T.where(i_0 * 4 + ax0 < 7 and j_0 * 4 + ax1 < 6)
                        T.reads(C[vi, vj])
                        T.writes(D[vi, vj])
                        D[vi, vj] = T.max(C[vi, vj], T.float32(0))
        """,
    )
    same(matmul_relu, sch)


def test_a_consumer_of_what_is_whole_in_each_iteration(expect):
    @T.prim_func
    def whole(A: T.Buffer((3, 4), "float32"), C: T.Buffer((3, 4), "float32")):
        B = T.alloc_buffer((3, 4))
        for i in range(3):
            for j in range(4):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj]
        for i, j in T.grid(3, 4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, 3 - vj] + B[vi, T.min(vj + 1, 3)]

    sch = tir.Schedule(whole)
    i, j = sch.get_loops("B")
    sch.reverse_compute_at("C", i)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def whole(A: T.Buffer((3, 4), "float32"), C: T.Buffer((3, 4), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((3, 4))
            for i in range(3):
                for j in range(4):
                    with T.block("B"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(A[vi, vj])
                        T.writes(B[vi, vj])
                        B[vi, vj] = A[vi, vj]
                for ax1 in range(4):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, ax1])
                        T.reads(B[vi, T.min(3 - vj, vj + 1):T.min(3 - vj, vj + 1) + (T.max(3 - vj, T.min(vj + 1, 3)) - T.min(2 - vj, vj))])
                        T.writes(C[vi, vj])
                        C[vi, vj] = B[vi, 3 - vj] + B[vi, T.min(vj + 1, 3)]
        """,
    )
    same(whole, sch)
    same_again(whole, sch)


# ---------------------------------------------------------------------------- reverse_compute_at: meaning
@pytest.mark.parametrize("factors", [(2, 3), (4, 4), (7, 6), (3, None), (None, 5)])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("unit", [True, False])
def test_the_end_of_a_matmul(factors, at, unit):
    sch, outer, _ = tiled(matmul_relu, "C", *factors)
    sch.reverse_compute_at("D", outer[at], preserve_unit_loops=unit)
    same(matmul_relu, sch, build=at == 1 and unit)
    same_again(matmul_relu, sch)


@pytest.mark.parametrize("at", range(3))
def test_the_end_of_a_conv2d(at):
    sch, outer, _ = tiled(conv2d, "S", 2, 2, 4)
    sch.reverse_compute_at("Y", outer[at])
    same(conv2d, sch, build=at == 2)


@pytest.mark.parametrize("at", range(3))
def test_the_end_of_a_batched_matmul(at):
    sch = tir.Schedule(batched)
    sch.reverse_compute_at("D", sch.get_loops("C")[at])
    same(batched, sch, build=at == 0)


def test_a_reduction_behind_its_producer():
    @T.prim_func
    def rows(A: T.Buffer((6, 5), "float32"), C: T.Buffer((6,), "float32")):
        B = T.alloc_buffer((6, 5))
        for i, k in T.grid(6, 5):
            with T.block("B"):
                vi, vk = T.axis.remap("SS", [i, k])
                B[vi, vk] = A[vi, vk] * A[vi, vk]
        for i, k in T.grid(6, 5):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + B[vi, vk]

    sch = tir.Schedule(rows)
    i, k = sch.get_loops("B")
    io, _ = sch.split(i, [None, 4])
    sch.reverse_compute_at("C", io)
    same(rows, sch)
    same_again(rows, sch)


def test_a_consumer_of_fewer_elements():
    @T.prim_func
    def front(A: T.Buffer((10,), "float32"), C: T.Buffer((6,), "float32")):
        B = T.alloc_buffer((10,))
        for i in range(10):
            with T.block("B"):
                vi = T.axis.spatial(10, i)
                B[vi] = A[vi] * T.float32(2)
        for i in range(6):
            with T.block("C"):
                vi = T.axis.spatial(6, i)
                C[vi] = B[vi + 2]

    for factor in (1, 3, 4):
        sch, (outer,), _ = tiled(front, "B", factor)
        sch.reverse_compute_at("C", outer)
        same(front, sch)


# ---------------------------------------------------------------------------- reverse_compute_at: refuse
def test_refuse_a_reduction_that_is_not_finished(expect, refused):
    sch = tir.Schedule(matmul_relu)
    i, j, k = sch.get_loops("C")
    expect(
        refusal(refused, sch, "reverse_compute_at", "D", k),
        """
        reverse_compute_at(D, loop=k): loop `k` carries the reduction of block C, which is not finished inside it, so D cannot read it there
          at stage_programs.py:LINE

          | …
          |     for i, j, k in T.grid(7, 6, 10):    # <-- here
          | …

          hint: it may go under i, j
        """,
    )


def test_refuse_a_block_without_producers(expect, refused):
    sch = tir.Schedule(unread)
    (i,) = sch.get_loops("B")
    expect(
        refusal(refused, sch, "reverse_compute_at", "C", i),
        """
        reverse_compute_at(C, loop=i): no block makes what block C reads
          at stage_programs.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: move a block whose inputs are computed; this one may go to its consumers with compute_at
        """,
    )


def test_another_producer_may_be_complete_before_the_loop():
    """D reads B, which is written before the loop of C starts."""
    sch = tir.Schedule(chain)
    (i,) = sch.get_loops("C")
    sch.reverse_compute_at("D", i)
    assert [x.name for x in sch.get_child_blocks(i)] == ["C", "D"]
    same(chain, sch)


def test_refuse_a_producer_elsewhere(expect, refused):
    sch = tir.Schedule(chain)
    (i,) = sch.get_loops("B")
    expect(
        refusal(refused, sch, "reverse_compute_at", "D", i),
        """
        reverse_compute_at(D, loop=i): it requires all the producers of what D reads to be under loop `i` or complete before it, and block C is not
          at stage_programs.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: its producers share no loop
        """,
    )


def test_refuse_points_that_no_iteration_computes(expect, refused):
    sch = tir.Schedule(padded)
    (i,) = sch.get_loops("B")
    expect(
        refusal(refused, sch, "reverse_compute_at", "C", i),
        """
        reverse_compute_at(C, loop=i): block C has points that read nothing of B, and no iteration of loop `i` would compute these
          at stage_programs.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: move its producer to it with compute_at instead
        """,
    )


def test_a_reader_in_the_opposite_order():
    sch = tir.Schedule(backwards)
    sch.reverse_compute_at("C", sch.get_loops("B")[0])
    same(backwards, sch)


def test_refuse_elements_that_other_iterations_make(expect, refused):
    sch = tir.Schedule(stencil)
    (i,) = sch.get_loops("B")
    text = refusal(refused, sch, "reverse_compute_at", "C", i)
    expect(
        re.sub(r"T.serial\(.*\)|range\(.*\)", "RANGE", text),
        """
        reverse_compute_at(C, loop=i): block C reads elements of B that an iteration of loop `i` does not make
          at stage_programs.py:LINE

          | …
          |     for i in RANGE:    # <-- here
          | …

          hint: choose an outer loop, or bring the producer to it with compute_at
        """,
    )


def test_refuse_a_reader_under_the_loop(expect, refused):
    @T.prim_func
    def read_back(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
            with T.block("D"):
                vi = T.axis.spatial(4, i)
                D[vi] = C[vi]
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi]

    sch = tir.Schedule(read_back)
    (i,) = sch.get_loops("B")
    expect(
        refusal(refused, sch, "reverse_compute_at", "C", i),
        """
        reverse_compute_at(C, loop=i): block D under the loop reads what C writes
          at stage_programs.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …

          hint: move block C to its readers with compute_at instead
        """,
    )


def test_refuse_to_overwrite_what_an_earlier_block_reads(expect, refused):
    @T.prim_func
    def old_values(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
        for i in range(4):
            with T.block("D"):
                vi = T.axis.spatial(4, i)
                D[vi] = C[vi]
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi]

    sch = tir.Schedule(old_values)
    (i,) = sch.get_loops("B")
    expect(
        refusal(refused, sch, "reverse_compute_at", "C", i),
        """
        reverse_compute_at(C, loop=i): block D reads what was there before block C writes
          at stage_programs.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …

          hint: cache_read for block D first, so that it reads a copy
        """,
    )


def test_refuse_a_sum_without_init(expect, refused):
    @T.prim_func
    def onto(A: T.Buffer((3, 4), "float32"), C: T.Buffer((3,), "float32")):
        B = T.alloc_buffer((3, 4))
        for i, k in T.grid(3, 4):
            with T.block("B"):
                vi, vk = T.axis.remap("SS", [i, k])
                B[vi, vk] = A[vi, vk]
        for i, k in T.grid(3, 4):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                C[vi] = C[vi] + B[vi, vk]

    sch = tir.Schedule(onto)
    i, k = sch.get_loops("B")
    expect(
        refusal(refused, sch, "reverse_compute_at", "C", i),
        """
        reverse_compute_at(C, loop=i): block C reads and writes C, so computing it again could change it twice
          at stage_programs.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_refuse_a_place_before_what_it_needs(expect, refused):
    @T.prim_func
    def two(A: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((4,))
        C = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = A[vi]
        for i in range(4):
            with T.block("D"):
                vi = T.axis.spatial(4, i)
                D[vi] = B[vi] + C[vi]

    sch = tir.Schedule(two)
    (i,) = sch.get_loops("B")
    expect(
        refusal(refused, sch, "reverse_compute_at", "D", i, index=1),
        """
        reverse_compute_at(D, loop=i, index=1): index=1, and it may stand at 2 to 2 among the loop's statements
          at stage_programs.py:LINE

          | …
          |     for i in range(4):    # <-- here
          | …
        """,
    )
    sch.reverse_compute_at("D", i)
    assert [b.name for b in sch.get_child_blocks(i)] == ["B", "C", "D"]
    same(two, sch)


def test_a_copy_of_tiles_goes_behind_the_tiles(expect):
    """A block of whole tiles makes a box that is known to the element."""
    from tensorize_programs import gemm
    from tensorize_programs import tiled as in_tiles

    sch, _, (i_0, _, _, i_1, _, _) = in_tiles(2, 4, 4)
    outer = sch.blockize(i_1)
    i, j, k = sch.get_loops(outer)
    io, ii = sch.split(i, [2, 2])
    jo, ji = sch.split(j, [2, 2])
    sch.reorder(io, jo, k, ii, ji)
    copy = sch.cache_write(outer, 0, "local")
    sch.reverse_compute_at(copy, jo)
    assert [str(sch.get(x).extent) for x in sch.get_loops(copy)] == ["2", "2", "4", "8"]
    same(gemm, sch)


@T.prim_func
def flattened(X: T.Buffer((6, 16), "int32"), Y: T.Buffer((96,), "int32")):
    B = T.alloc_buffer((6, 16), "int32")
    for i, j in T.grid(6, 16):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = X[vi, vj] + 1
    for i in range(96):
        with T.block("Y"):
            vi = T.axis.spatial(96, i)
            Y[vi] = B[vi // 16, vi % 16] * 2


@T.prim_func
def retiled(X: T.Buffer((3, 5, 16), "int32"), Y: T.Buffer((6, 5, 8), "int32")):
    B = T.alloc_buffer((3, 5, 16), "int32")
    for i, j, k in T.grid(3, 5, 16):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            B[vi, vj, vk] = X[vi, vj, vk] + 1
    for i, j, k in T.grid(6, 5, 8):
        with T.block("Y"):
            vi, vj, vk = T.axis.remap("SSS", [i, j, k])
            Y[vi, vj, vk] = B[(vi * 8 + vk) // 16, vj, (vi * 8 + vk) % 16]


@T.prim_func
def strided_copy(X: T.Buffer((32,), "int32"), Y: T.Buffer((8,), "int32")):
    B = T.alloc_buffer((32,), "int32")
    for i in range(32):
        with T.block("B"):
            vi = T.axis.spatial(32, i)
            B[vi] = X[vi] + 1
    for i in range(8):
        with T.block("Y"):
            vi = T.axis.spatial(8, i)
            Y[vi] = B[vi * 4 + 1]


@pytest.mark.parametrize(
    ("func", "factors", "extents"),
    [
        (flattened, None, ["6", "16"]),
        (flattened, [3, 2], ["3", "32"]),
        (retiled, None, ["3", "2", "5", "8"]),
        (strided_copy, [8, 4], ["8"]),
        (strided_copy, [2, 16], ["2", "4"]),
    ],
)
def test_the_points_that_read_a_row_by_division_follow_the_row(func, factors, extents):
    sch = tir.Schedule(func)
    loop = sch.get_loops("B")[0]
    if factors is not None:
        loop = sch.split(loop, factors)[0]
    sch.reverse_compute_at("Y", loop)
    assert [str(sch.get(x).extent) for x in sch.get_loops("Y")] == extents
    same(func, sch)
    same_again(func, sch)


def test_refuse_tiles_that_do_not_meet_the_steps(refused):
    """Some tiles of 3 hold one element of every fourth, some hold none: no iteration has the same number of points."""
    sch = tir.Schedule(strided_copy)
    outer, _ = sch.split(sch.get_loops("B")[0], [None, 3])
    text = refusal(refused, sch, "reverse_compute_at", "Y", outer)
    assert "block Y reads elements of B that an iteration of loop `i_0` does not make" in text


def test_few_readers_of_a_large_buffer(expect):
    @T.prim_func
    def corner(X: T.Buffer((8, 8), "int32"), D: T.Buffer((1, 2), "int32")):
        B = T.alloc_buffer((8, 8), "int32")
        for i, j_0, j_1 in T.grid(8, 2, 4):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.spatial(8, j_0 * 4 + j_1)
                B[vi, vj] = X[vi, vj] * 2
        for i, j in T.grid(1, 2):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = B[vi, vj] + 1

    sch = tir.Schedule(corner)
    sch.reverse_compute_at("D", sch.get_loops("B")[1])
    expect(
        str(sch.realize("D").predicate),
        """
        i < 1 and j_0 * 4 + ax1 < 2
        """,
    )
    same(corner, sch)


def test_refuse_accesses_whose_elements_are_made_in_different_iterations(expect, refused):
    """Iteration i makes A[i] and B[i]: it would compute only the point (i, i)."""

    @T.prim_func
    def outer(X: T.Buffer((4,), "int32"), D: T.Buffer((4, 4), "int32")):
        A = T.alloc_buffer((4,), "int32")
        B = T.alloc_buffer((4,), "int32")
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = X[vi]
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = X[vi] + 1
        for i, j in T.grid(4, 4):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = A[vi] * B[vj]

    sch = tir.Schedule(outer)
    expect(
        refusal(refused, sch, "reverse_compute_at", "D", sch.get_loops("A")[0]),
        """
        reverse_compute_at(D, loop=i): block D reads elements of B that an iteration of loop `i` does not make
          at stage_programs.py:LINE

          | …
          |     for i in range(4):    # <-- here
          | …

          hint: choose an outer loop, or bring the producer to it with compute_at
        """,
    )


def test_a_fused_loop_of_unknown_extent():
    """The parts of `f < n * 32` reach all of the 32 rows of n, so that nothing is left out, and nothing is to check."""

    @T.prim_func
    def partial_sums(a: T.handle, c: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (32, n, 16))
        C = T.match_buffer(c, (32, n))
        parts = T.alloc_buffer((16, 32, n))
        for f, p in T.grid(n * 32, 16):
            with T.block("parts"):
                vp, v0, v1 = T.axis.spatial(16, p), T.axis.spatial(32, f // n), T.axis.spatial(n, f % n)
                parts[vp, v0, v1] = A[v0, v1, vp] * T.float32(2)
        for f, p in T.grid(n * 32, 16):
            with T.block("C"):
                vp, v0, v1 = T.axis.reduce(16, p), T.axis.spatial(32, f // n), T.axis.spatial(n, f % n)
                with T.init():
                    C[v0, v1] = T.float32(0)
                C[v0, v1] = C[v0, v1] + parts[vp, v0, v1]

    sch = tir.Schedule(partial_sums)
    sch.reverse_compute_at("C", sch.get_loops("parts")[0])
    made = sch.mod["main"].script()
    assert "T.where" not in made
    assert "v0 = T.axis.spatial(32, f // n)" in made and "v1 = T.axis.spatial(n, f % n)" in made
    assert sch.verify()
