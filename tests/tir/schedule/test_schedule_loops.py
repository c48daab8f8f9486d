"""Loops reshaped: fuse, tile, unit loops."""

from __future__ import annotations

import numpy as np
from loop_programs import extents, loops_of, triangle
from schedule_programs import arrays, copy2d, matmul, symbolic

import tilewright as tvm
from tilewright import tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T


# ---------------------------------------------------------------------------- fuse
def test_fuse_two(expect, agree):
    sch, (i, j) = loops_of(copy2d, "B")
    sch.fuse(i, j)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i_j_fused in range(96):
                with T.block("B"):
                    vi = T.axis.spatial(8, i_j_fused // 12)
                    vj = T.axis.spatial(12, i_j_fused % 12)
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_fuse_three_of_a_reduction(expect, agree):
    sch, (i, j, k) = loops_of(matmul, "C")
    sch.fuse(i, j, k)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            for i_j_k_fused in range(210):
                with T.block("C"):
                    vi = T.axis.spatial(7, i_j_k_fused // 30)
                    vj = T.axis.spatial(6, i_j_k_fused // 5 % 6)
                    vk = T.axis.reduce(5, i_j_k_fused % 5)
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    agree(matmul, sch.mod["main"], *arrays(matmul))


def test_fuse_one_changes_nothing():
    sch, (i, _j) = loops_of(copy2d, "B")
    before = sch.mod
    assert sch.fuse(i).var is i.var
    assert sch.mod is before


def test_fuse_symbolic_extents(expect, agree):
    sch, (i, j) = loops_of(symbolic, "B")
    sch.fuse(i, j)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def symbolic(a: T.handle, b: T.handle):
            n = T.int32()
            A = T.match_buffer(a, (n, 8))
            B = T.match_buffer(b, (n, 8))
            # with T.block("root"):
            for i_j_fused in range(n * 8):
                with T.block("B"):
                    vi = T.axis.spatial(n, i_j_fused // 8)
                    vj = T.axis.spatial(8, i_j_fused % 8)
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
        """,
    )
    agree(symbolic, sch.mod["main"], *arrays(symbolic, 3))


def test_fuse_of_loops_that_start_elsewhere(agree):
    @T.prim_func
    def before(A: T.Buffer((20, 9), "int32")):
        for i, j in T.grid((3, 13), (2, 7)):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = vi * 10 + vj

    sch, (i, j) = loops_of(before, "A")
    sch.fuse(i, j)
    assert extents(sch, "A") == ["50"]
    agree(before, sch.mod["main"], np.zeros((20, 9), "int32"))


def test_fuse_undoes_split():
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.fuse(*sch.split(j, [None, 4]))
    assert_structural_equal(sch.mod["main"], copy2d)


def test_fuse_refuses_loops_that_are_not_adjacent(expect, refused):
    sch, (i, _j, k) = loops_of(matmul, "C")
    expect(
        refused(sch, lambda: sch.fuse(i, k)),
        """
        fuse(i, k): loop `k` is not directly inside `i`
          at test_schedule_loops.py:LINE

          | …
          |     for i, j, k in T.grid(7, 6, 5):    # <-- here
          | …

          hint: reorder them to be adjacent, outermost first, with nothing else between
        """,
    )


def test_fuse_refuses_the_wrong_order(expect, refused):
    sch, (i, j) = loops_of(copy2d, "B")
    expect(
        refused(sch, lambda: sch.fuse(j, i)),
        """
        fuse(j, i): loop `i` is not directly inside `j`
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: reorder them to be adjacent, outermost first, with nothing else between
        """,
    )
    expect(
        refused(sch, lambda: sch.fuse(i, i)),
        """
        fuse(i, i): loop `i` is not directly inside `i`
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: reorder them to be adjacent, outermost first, with nothing else between
        """,
    )
    expect(
        refused(sch, lambda: sch.fuse()),
        """
        fuse(): there is nothing to fuse
          at test_schedule_loops.py:LINE

          | …
        """,
    )


def test_fuse_refuses_an_extent_that_depends_on_the_outer_loop(expect, refused):
    sch, (i, j) = loops_of(triangle, "A")
    expect(
        refused(sch, lambda: sch.fuse(i, j)),
        """
        fuse(i, j): the bounds of loop `j` depend on a loop it is fused with
          at test_schedule_loops.py:LINE

          | …
          |         for j in range(i + 1):    # <-- here
          | …

          hint: fuse loops whose bounds do not change
        """,
    )


def test_fuse_refuses_a_start_that_depends_on_the_outer_loop(expect, refused):
    @T.prim_func
    def before(A: T.Buffer((8, 16), "int32")):
        for i in range(8):
            for j in range(i, i + 4):
                with T.block("A"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    A[vi, vj] = vi + vj

    sch, (i, j) = loops_of(before, "A")
    expect(
        refused(sch, lambda: sch.fuse(i, j)),
        """
        fuse(i, j): the bounds of loop `j` depend on a loop it is fused with
          at test_schedule_loops.py:LINE

          | …
          |         for j in T.serial(i, i + 4):    # <-- here
          | …

          hint: fuse loops whose bounds do not change
        """,
    )


def test_fuse_refuses_marked_and_annotated_loops(expect, refused):
    sch, (i, j) = loops_of(copy2d, "B")
    sch.parallel(i)
    expect(
        refused(sch, lambda: sch.fuse(i, j)),
        """
        fuse(i, j): loop `i` is already marked parallel
          at test_schedule_loops.py:LINE

          | …
          |     for i in T.parallel(8):    # <-- here
          | …

          hint: fuse first, then parallel the part you want
        """,
    )
    sch, (i, j) = loops_of(copy2d, "B")
    sch.annotate(j, "pragma_x", 1)
    expect(
        refused(sch, lambda: sch.fuse(i, j)),
        """
        fuse(i, j): loop `j` has annotations (pragma_x), which would be lost
          at test_schedule_loops.py:LINE

          | …
          |         for j in T.serial(12, annotations={"pragma_x": 1}):    # <-- here
          | …

          hint: fuse first, then annotate
        """,
    )


# ---------------------------------------------------------------------------- tile, unit loops
def test_tile(expect, agree):
    sch, (i, j) = loops_of(copy2d, "B")
    names = [x.name for x in sch.tile(i, j, 4, 5)]
    assert names == ["i_0", "j_0", "i_1", "j_1"]
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i_0, j_0, i_1, j_1 in T.grid(2, 3, 4, 5):
                with T.block("B"):
                    vi = T.axis.spatial(8, i_0 * 4 + i_1)
                    vj = T.axis.spatial(12, j_0 * 5 + j_1)
                    T.where(j_0 * 5 + j_1 < 12)
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_tile_is_done_as_a_whole_or_not_at_all(refused):
    sch, (i, j) = loops_of(copy2d, "B")
    refused(sch, lambda: sch.tile(i, j, 4, 0))
    assert [x.name for x in sch.get_loops("B")] == ["i", "j"]
    sch.tile(i, j, 4, 4)  # the handles are still good
    sch, (i, j) = loops_of(triangle, "A")
    refused(sch, lambda: sch.tile(i, j, 3, 4))
    assert sch.mod["main"] is triangle


def test_unit_loops_around_blocks_and_loops(expect, agree):
    sch, (i, _j) = loops_of(copy2d, "B")
    sch.add_unit_loop(sch.get_block("B"))
    sch.add_unit_loop(i)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for u, i, j, u_1 in T.grid(1, 8, 12, 1):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_unit_loop_around_the_root_is_refused(expect, refused):
    sch = tir.Schedule(copy2d)
    root = sch.get_block("root")
    expect(
        refused(sch, lambda: sch.add_unit_loop(root)),
        """
        add_unit_loop(root): the root block stands for the whole function and has no loops around it
          at test_schedule_loops.py:LINE

          | …
        """,
    )


def test_unit_loop_makes_a_loop_where_there_is_none(agree):
    @T.prim_func
    def before(A: T.Buffer((1,), "int32")):
        with T.block("A"):
            vi = T.axis.spatial(1, 0)
            A[vi] = 3

    sch = tir.Schedule(before)
    assert sch.get_loops("A") == []
    sch.add_unit_loop(sch.get_block("A"))
    assert extents(sch, "A") == ["1"]
    agree(before, sch.mod["main"], np.zeros(1, "int32"))


def test_scheduled_programs_compile_to_the_same():
    sch, (i, j, k) = loops_of(matmul, "C")
    io, jo, ii, ji = sch.tile(i, j, 4, 4)
    ko, ki = sch.split(k, [None, 2])
    sch.reorder(io, jo, ko, ii, ki, ji)
    sch.parallel(io)
    sch.vectorize(ji)
    sch.unroll(ki)
    a, b, c = arrays(matmul)
    tvm.build(sch.mod["main"], target="llvm")(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-6)
