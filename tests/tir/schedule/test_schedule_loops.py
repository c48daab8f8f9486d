"""Loops reshaped: split, fuse, reorder, tile, unit loops."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_programs import arrays, chain, copy2d, matmul, symbolic

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T


def loops_of(func, block):
    sch = tir.Schedule(func)
    return sch, sch.get_loops(sch.get_block(block))


def extents(sch, block):
    return [str(sch.get(x).extent) for x in sch.get_loops(sch.get_block(block))]


# ---------------------------------------------------------------------------- split
def test_split_that_divides(expect, agree):
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.split(j, [None, 4])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i, j_0, j_1 in T.grid(8, 3, 4):
                with T.block("B"):
                    vi = T.axis.spatial(8, i)
                    vj = T.axis.spatial(12, j_0 * 4 + j_1)
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_split_that_does_not_divide_is_guarded(expect, agree):
    sch, (i, _j, k) = loops_of(matmul, "C")
    sch.split(i, [None, 4])
    sch.split(k, [2, None])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            for i_0, i_1, j, k_0, k_1 in T.grid(2, 4, 6, 2, 3):
                with T.block("C"):
                    vi = T.axis.spatial(7, i_0 * 4 + i_1)
                    vj = T.axis.spatial(6, j)
                    vk = T.axis.reduce(5, k_0 * 3 + k_1)
                    T.where(i_0 * 4 + i_1 < 7 and k_0 * 3 + k_1 < 5)
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    agree(matmul, sch.mod["main"], *arrays(matmul))


@pytest.mark.parametrize(
    ("factors", "sizes"),
    [
        ([None, 2, 3], ["2", "2", "3"]),
        ([2, None, 3], ["2", "2", "3"]),
        ([2, 3, None], ["2", "3", "2"]),
        ([2, 2, 3], ["2", "2", "3"]),
        ([None], ["12"]),
        ([12], ["12"]),
        ([None, 5], ["3", "5"]),
        ([5, None], ["5", "3"]),
        ([None, 24], ["1", "24"]),
        ([3, 5], ["3", "5"]),
        ([1, None, 1], ["1", "12", "1"]),
    ],
)
def test_split_sizes(factors, sizes, agree):
    sch, (_i, j) = loops_of(copy2d, "B")
    made = sch.split(j, factors)
    assert [str(sch.get(x).extent) for x in made] == sizes
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_split_of_a_symbolic_extent(expect, agree):
    sch, (i, _j) = loops_of(symbolic, "B")
    sch.split(i, [None, 4])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def symbolic(a: T.handle, b: T.handle):
            n = T.int32()
            A = T.match_buffer(a, (n, 8))
            B = T.match_buffer(b, (n, 8))
            # with T.block("root"):
            for i_0, i_1, j in T.grid((n + 3) // 4, 4, 8):
                with T.block("B"):
                    vi = T.axis.spatial(n, i_0 * 4 + i_1)
                    vj = T.axis.spatial(8, j)
                    T.where(i_0 * 4 + i_1 < n)
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
        """,
    )
    for n in (1, 4, 5, 8):
        agree(symbolic, sch.mod["main"], *arrays(symbolic, n))


def test_split_by_a_symbolic_number_of_parts(agree):
    sch, (i, _j) = loops_of(symbolic, "B")
    sch.split(i, [4, None])
    assert extents(sch, "B") == ["4", "(n + 3) // 4", "8"]
    for n in (1, 4, 5, 8):
        agree(symbolic, sch.mod["main"], *arrays(symbolic, n))


def test_split_by_a_symbol(expect, agree):
    sch, (i, j) = loops_of(symbolic, "B")
    n = sch.get(i).extent
    sch.split(sch.fuse(i, j), [None, n])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def symbolic(a: T.handle, b: T.handle):
            n = T.int32()
            A = T.match_buffer(a, (n, 8))
            B = T.match_buffer(b, (n, 8))
            # with T.block("root"):
            for i_j_fused_0, i_j_fused_1 in T.grid(-1 // n + 9, n):
                with T.block("B"):
                    vi = T.axis.spatial(n, (i_j_fused_0 * n + i_j_fused_1) // 8)
                    vj = T.axis.spatial(8, (i_j_fused_0 * n + i_j_fused_1) % 8)
                    T.where(i_j_fused_0 * n + i_j_fused_1 < n * 8)
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] * T.float32(2)
        """,
    )
    for size in (1, 3):
        agree(symbolic, sch.mod["main"], *arrays(symbolic, size))


@T.prim_func
def from_three(A: T.Buffer((20,), "int32")):
    for i in range(3, 13):
        with T.block("A"):
            vi = T.axis.spatial(20, i)
            A[vi] = vi


def test_split_of_a_loop_that_starts_elsewhere(expect, agree):
    sch, (i,) = loops_of(from_three, "A")
    sch.split(i, [None, 4])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def from_three(A: T.Buffer((20,), "int32")):
            # with T.block("root"):
            for i_0, i_1 in T.grid(3, 4):
                with T.block("A"):
                    vi = T.axis.spatial(20, i_0 * 4 + i_1 + 3)
                    T.where(i_0 * 4 + i_1 < 10)
                    T.reads()
                    T.writes(A[vi])
                    A[vi] = vi
        """,
    )
    agree(from_three, sch.mod["main"], np.zeros(20, "int32"))


def test_split_of_a_fused_loop_simplifies_the_bindings(expect, agree):
    sch, (i, j) = loops_of(copy2d, "B")
    fused = sch.fuse(i, j)
    sch.split(fused, [None, 12])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i_j_fused_0, i_j_fused_1 in T.grid(8, 12):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i_j_fused_0, i_j_fused_1])
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_split_without_predicates():
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.split(j, [None, 5], disable_predication=True)
    assert "T.where" not in sch.mod.script()


def test_split_of_int64_loops(agree):
    A = te.placeholder((te.const(10, "int64"),), name="A")
    B = te.compute(A.shape, lambda i: A[i] + 1, name="B")
    func = te.create_prim_func([A, B])
    sch, (i,) = loops_of(func, "B")
    outer, inner = sch.split(i, [None, 4])
    assert sch.get(outer).loop_var.dtype == sch.get(inner).extent.dtype == "int64"
    agree(func, sch.mod["main"], *arrays(func))


@T.prim_func
def triangle(A: T.Buffer((8, 8), "int32")):
    for i in range(8):
        for j in range(i + 1):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = vi + vj


def test_split_inside_and_outside_of_dependent_bounds(agree):
    sch, (i, j) = loops_of(triangle, "A")
    sch.split(i, [None, 3])
    sch.split(j, [None, 3])
    agree(triangle, sch.mod["main"], np.zeros((8, 8), "int32"))


@T.prim_func
def beside_a_block(A: T.Buffer((10,), "int32"), B: T.Buffer((10,), "int32"), C: T.Buffer((4,), "int32")):
    for i in range(10):
        with T.block("A"):
            vi = T.axis.spatial(10, i)
            A[vi] = vi
        B[i] = i
        if B[i] > 5:
            C[i // 4] = i


def test_split_guards_statements_outside_of_blocks_too(expect, agree):
    sch, (i,) = loops_of(beside_a_block, "A")
    sch.split(i, [None, 4])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def beside_a_block(A: T.Buffer((10,), "int32"), B: T.Buffer((10,), "int32"), C: T.Buffer((4,), "int32")):
            # with T.block("root"):
            for i_0, i_1 in T.grid(3, 4):
                with T.block("A"):
                    vi = T.axis.spatial(10, i_0 * 4 + i_1)
                    T.where(i_0 * 4 + i_1 < 10)
                    T.reads()
                    T.writes(A[vi])
                    A[vi] = vi
                if i_0 * 4 + i_1 < 10:
                    B[i_0 * 4 + i_1] = i_0 * 4 + i_1
                if i_0 * 4 + i_1 < 10:
                    if B[i_0 * 4 + i_1] > 5:
                        C[(i_0 * 4 + i_1) // 4] = i_0 * 4 + i_1
        """,
    )
    agree(beside_a_block, sch.mod["main"], *(np.zeros(n, "int32") for n in (10, 10, 4)))


def test_split_refuses_factors_that_are_too_small(expect, refused):
    sch, (_i, j) = loops_of(copy2d, "B")
    expect(
        refused(sch, lambda: sch.split(j, [2, 4])),
        """
        split(j, factors=[2, 4]): the factors make 8 iterations and loop `j` has 12
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: leave one factor None to have it inferred
        """,
    )


def test_split_refuses_factors(expect, refused):
    sch, (_i, j) = loops_of(copy2d, "B")
    expect(
        refused(sch, lambda: sch.split(j, [None, None])),
        """
        split(j, factors=[None, None]): more than one factor is None, so they cannot be inferred
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: leave at most one open
        """,
    )
    expect(
        refused(sch, lambda: sch.split(j, [])),
        """
        split(j, factors=[]): there are no factors to split by
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.split(j, [None, 0])),
        """
        split(j, factors=[None, 0]): a factor is 0; factors are at least 1
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.split(j, [-2, None])),
        """
        split(j, factors=[-2, None]): a factor is -2; factors are at least 1
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.split(j, [None, 2.5])),
        """
        split(j, factors=[None, 2.5]): a factor is `T.float32(2.5)`, which is no integer
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )


def test_split_refuses_marked_loops(expect, refused):
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.parallel(j)
    expect(
        refused(sch, lambda: sch.split(j, [None, 4])),
        """
        split(j, factors=[None, 4]): loop `j` is already marked parallel
          at test_schedule_loops.py:LINE

          | …
          |         for j in T.parallel(12):    # <-- here
          | …

          hint: split first, then parallel the part you want
        """,
    )
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.vectorize(j)
    expect(
        refused(sch, lambda: sch.split(j, [None, 4])),
        """
        split(j, factors=[None, 4]): loop `j` is already marked vectorize
          at test_schedule_loops.py:LINE

          | …
          |         for j in T.vectorized(12):    # <-- here
          | …

          hint: split first, then vectorize the part you want
        """,
    )
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.unroll(j)
    expect(
        refused(sch, lambda: sch.split(j, [None, 4])),
        """
        split(j, factors=[None, 4]): loop `j` is already marked unroll
          at test_schedule_loops.py:LINE

          | …
          |         for j in T.unroll(12):    # <-- here
          | …

          hint: split first, then unroll the part you want
        """,
    )


def test_split_refuses_annotated_loops(expect, refused):
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.annotate(j, "pragma_x", 1)
    expect(
        refused(sch, lambda: sch.split(j, [None, 4])),
        """
        split(j, factors=[None, 4]): loop `j` has annotations (pragma_x), which would be lost
          at test_schedule_loops.py:LINE

          | …
          |         for j in T.serial(12, annotations={"pragma_x": 1}):    # <-- here
          | …

          hint: split first, then annotate
        """,
    )


def test_split_takes_loops_only(refused):
    sch, (_i, _j) = loops_of(copy2d, "B")
    before = sch.mod
    with pytest.raises(TypeError) as caught:
        sch.split("j", [None, 4])
    assert str(caught.value) == "a loop is given by what get_loops or split returned, not by 'j'"
    assert sch.mod is before


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
        fuse(i, k): loop `k` does not stand directly inside `i`
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
        fuse(j, i): loop `i` does not stand directly inside `j`
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
        fuse(i, i): loop `i` does not stand directly inside `i`
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


# ---------------------------------------------------------------------------- reorder
def test_reorder_all(expect, agree):
    sch, (i, j, k) = loops_of(matmul, "C")
    sch.reorder(k, j, i)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            for k, j, i in T.grid(5, 6, 7):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    agree(matmul, sch.mod["main"], *arrays(matmul))


@pytest.mark.parametrize("order", ["ijk", "ikj", "jik", "jki", "kij", "kji"])
def test_reorder_permutations(order, agree):
    sch, loops = loops_of(matmul, "C")
    named = dict(zip("ijk", loops, strict=True))
    sch.reorder(*[named[x] for x in order])
    assert "".join(x.name for x in sch.get_loops("C")) == order
    agree(matmul, sch.mod["main"], *arrays(matmul))


def test_reorder_of_some_leaves_the_others_in_place():
    sch, (i, _j, k) = loops_of(matmul, "C")
    sch.reorder(k, i)
    assert [x.name for x in sch.get_loops("C")] == ["k", "j", "i"]


def test_reorder_of_one_or_none_or_the_same_order():
    sch, (i, j, k) = loops_of(matmul, "C")
    before = sch.mod
    sch.reorder(i)
    sch.reorder()
    assert sch.mod is before
    sch.reorder(i, j, k)
    assert_structural_equal(sch.mod, before)


def test_reorder_keeps_marks():
    sch, (i, j) = loops_of(copy2d, "B")
    sch.vectorize(j)
    sch.annotate(i, "note", "x")
    sch.reorder(j, i)
    assert [int(sch.get(x).kind) for x in (j, i)] == [2, 0]
    assert sch.get(i).annotations == {"note": "x"}


def test_reorder_refuses_a_loop_named_twice(expect, refused):
    sch, (i, j) = loops_of(copy2d, "B")
    expect(
        refused(sch, lambda: sch.reorder(j, i, j)),
        """
        reorder(j, i, j): loop `j` is named twice
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: name each loop once
        """,
    )


def test_reorder_refuses_loops_of_different_nests(expect, refused):
    sch = tir.Schedule(chain)
    (x,), (y,) = sch.get_loops("B"), sch.get_loops("C")
    expect(
        refused(sch, lambda: sch.reorder(x, y)),
        """
        reorder(i, i): loop `i` is not in the nest of the others
          at test_schedule_loops.py:LINE

          | …
          |     for i in range(10):    # <-- here
          | …

          hint: reorder loops of one nest, each standing directly in the one before
        """,
    )


@T.prim_func
def imperfect(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = vi
        for j in range(4):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = vi + vj


def test_reorder_refuses_a_nest_with_more_in_it(expect, refused):
    sch, (i, j) = loops_of(imperfect, "A")
    expect(
        refused(sch, lambda: sch.reorder(j, i)),
        """
        reorder(j, i): loops `i` and `j` are not in one perfect nest: `i` holds more than a loop
          at test_schedule_loops.py:LINE

          | …
          |     for i in range(4):    # <-- here
          | …

          hint: move what else it holds away with compute_at or reverse_compute_at
        """,
    )


def test_reorder_refuses_dependent_bounds(expect, refused):
    sch, (i, j) = loops_of(triangle, "A")
    expect(
        refused(sch, lambda: sch.reorder(j, i)),
        """
        reorder(j, i): the bounds of loop `j` depend on `i`, which would be inside it
          at test_schedule_loops.py:LINE

          | …
          |         for j in range(i + 1):    # <-- here
          | …

          hint: keep `i` outside of `j`
        """,
    )


def test_reorder_refuses_iterators_whose_order_counts(expect, refused):
    @T.prim_func
    def before(A: T.Buffer((4, 4), "int32")):
        for i, j in T.grid(4, 4):
            with T.block("A"):
                vi = T.axis.opaque(4, i)
                vj = T.axis.spatial(4, j)
                A[vi, vj] = vi + vj

    sch, (i, j) = loops_of(before, "A")
    expect(
        refused(sch, lambda: sch.reorder(j, i)),
        """
        reorder(j, i): iterator `vi` of block A is neither spatial nor a reduction, so its order must stay
          at test_schedule_loops.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: leave the loops that drive it where they are
        """,
    )


def test_reorder_refuses_a_block_that_reads_what_earlier_iterations_wrote(expect, refused):
    @T.prim_func
    def before(A: T.Buffer((5, 6), "int32")):
        for i, j in T.grid(4, 4):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi + 1, vj] = A[vi, vj + 1] + 1

    sch, (i, j) = loops_of(before, "A")
    expect(
        refused(sch, lambda: sch.reorder(j, i)),
        """
        reorder(j, i): an iteration of loop `i` may use elements of A that another one writes (block A)
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(4, 4):    # <-- here
          | …

          hint: leave loop `i` where it stands
        """,
    )


@T.prim_func
def two_in_one(A: T.Buffer((6, 6), "int32"), B: T.Buffer((6, 6), "int32")):
    C = T.alloc_buffer((6, 6), "int32")
    for i, j in T.grid(6, 6):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] + 1
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = C[vi, vj] * 2


def test_reorder_of_a_producer_and_its_consumer_in_one_nest(agree):
    sch, (i, j) = loops_of(two_in_one, "B")
    sch.reorder(j, i)
    agree(two_in_one, sch.mod["main"], *arrays(two_in_one))


def test_reorder_refuses_a_consumer_of_earlier_iterations(expect, refused):
    @T.prim_func
    def before(A: T.Buffer((6, 6), "int32"), B: T.Buffer((6, 6), "int32")):
        C = T.alloc_buffer((7, 7), "int32")
        for i, j in T.grid(6, 6):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi + 1, vj] = A[vi, vj] + 1
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.where(i > 0)
                B[vi, vj] = C[vi, vj + 1] * 2

    sch, (i, j) = loops_of(before, "B")
    expect(
        refused(sch, lambda: sch.reorder(j, i)),
        """
        reorder(j, i): an iteration of loop `i` may use elements of C that another one writes (blocks C and B)
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(6, 6):    # <-- here
          | …

          hint: leave loop `i` where it stands
        """,
    )


def test_reorder_refuses_statements_outside_of_blocks(expect, refused):
    @T.prim_func
    def before(A: T.Buffer((4, 4), "int32"), B: T.Buffer((1,), "int32")):
        for i, j in T.grid(4, 4):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = vi + vj
            B[0] = i

    sch, (i, j) = loops_of(before, "A")
    expect(
        refused(sch, lambda: sch.reorder(j, i)),
        """
        reorder(j, i): B is used outside of blocks inside loop `j`, so there is no telling which iterations need which
          at test_schedule_loops.py:LINE

          | …
          |     for i, j in T.grid(4, 4):    # <-- here
          | …

          hint: put the statement into a block
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
