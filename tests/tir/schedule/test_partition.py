"""Loops cut into pieces and joined: loop_partition, merge; and get_output_blocks."""

from __future__ import annotations

import pytest
from schedule_checks import keeps_meaning
from schedule_programs import arrays, chain, copy2d, matmul, symbolic

from tilewright import tir
from tilewright.script import tir as T


def on(func, block):
    sch = tir.Schedule(func)
    return sch, sch.get_loops(sch.get_block(block))


# ---------------------------------------------------------------------------- loop_partition
def test_loop_partition(expect):
    sch, (i, _j) = on(copy2d, "B")
    parts = sch.loop_partition(i, [2, 4])
    assert [p.name for p in parts] == ["i0", "i1", "i2"]
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i0, j in T.grid(2, 12):
                with T.block("B_i0"):
                    vi = T.axis.spatial(8, i0)
                    vj = T.axis.spatial(12, j)
                    T.reads(A[vi, vj])
                    T.writes(B[vi, vj])
                    B[vi, vj] = A[vi, vj] + T.float32(1)
            for i1 in T.serial(2, 6):
                for j in range(12):
                    with T.block("B_i1"):
                        vi = T.axis.spatial(8, i1)
                        vj = T.axis.spatial(12, j)
                        T.reads(A[vi, vj])
                        T.writes(B[vi, vj])
                        B[vi, vj] = A[vi, vj] + T.float32(1)
            for i2 in T.serial(6, 8):
                for j in range(12):
                    with T.block("B_i2"):
                        vi = T.axis.spatial(8, i2)
                        vj = T.axis.spatial(12, j)
                        T.reads(A[vi, vj])
                        T.writes(B[vi, vj])
                        B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    keeps_meaning(copy2d, sch)


@pytest.mark.parametrize(
    ("factors", "extents"),
    [([2, None], [2, 6]), ([None, 3], [5, 3]), ([1, None, 1], [1, 6, 1]), ([8], [8]), ([3, 5], [3, 5])],
)
def test_pieces(factors, extents):
    sch, (i, _j) = on(copy2d, "B")
    parts = sch.loop_partition(i, factors)
    assert [int(sch.get(p).extent) for p in parts] == extents
    keeps_meaning(copy2d, sch)


def test_pieces_are_loops_of_their_own():
    sch, (_i, j) = on(copy2d, "B")
    a, b = sch.loop_partition(j, [8, None])
    sch.vectorize(sch.split(a, [None, 4])[1])
    sch.unroll(b)
    assert [x.name for x in sch.get_child_blocks(sch.get_block("root"))] == ["B_j0", "B_j1"]
    keeps_meaning(copy2d, sch)


def test_a_piece_of_a_piece():
    sch, (i, _j) = on(copy2d, "B")
    _a, b = sch.loop_partition(i, [4, 4])
    sch.loop_partition(b, [1, None])
    assert [x.name for x in sch.get_child_blocks(sch.get_block("root"))] == ["B_i0", "B_i1_i10", "B_i1_i11"]
    keeps_meaning(copy2d, sch)


def test_a_spatial_loop_of_a_reduction():
    sch, (i, _j, _k) = on(matmul, "C")
    sch.loop_partition(i, [3, None])
    keeps_meaning(matmul, sch)


def test_a_reduction_loop_without_its_init():
    sch, (i, _j, k) = on(matmul, "C")
    sch.decompose_reduction("C", i)
    sch.loop_partition(k, [2, None])
    keeps_meaning(matmul, sch)


def test_a_reduction_loop_with_its_init(expect, refused):
    sch, (_i, _j, k) = on(matmul, "C")
    expect(
        refused(sch, lambda: sch.loop_partition(k, [2, None])),
        """
        loop_partition(k, factors=[2, None]): loop `k` carries the reduction of block C, and each piece would start it anew
          at test_partition.py:LINE

          | …
          |     for i, j, k in T.grid(7, 6, 5):    # <-- here
          | …

          hint: decompose_reduction first
        """,
    )


def test_what_was_there_is_gone(expect, refused):
    sch, (i, j) = on(copy2d, "B")
    b = sch.get_block("B")
    sch.loop_partition(i, [2, None])
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): loop `i` no longer exists: it was removed by loop_partition(i, …)
          at test_partition.py:LINE

          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.parallel(j)),
        """
        parallel(j): loop `j` no longer exists: it was removed by loop_partition(i, …)
          at test_partition.py:LINE

          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.get_loops(b)),
        """
        get_loops(B): block B no longer exists: it was removed by loop_partition(i, …)
          at test_partition.py:LINE

          | …
        """,
    )


def test_more_than_there_is(expect, refused):
    sch, (i, _j) = on(copy2d, "B")
    expect(
        refused(sch, lambda: sch.loop_partition(i, [4, 5])),
        """
        loop_partition(i, factors=[4, 5]): the pieces have 9 iterations and loop `i` has 8
          at test_partition.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: choose smaller pieces
        """,
    )
    expect(
        refused(sch, lambda: sch.loop_partition(i, [8, None])),
        """
        loop_partition(i, factors=[8, None]): nothing of loop `i` is left for the piece that is None
          at test_partition.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: omit the None, or choose smaller pieces
        """,
    )
    expect(
        refused(sch, lambda: sch.loop_partition(i, [None, None])),
        """
        loop_partition(i, factors=[None, None]): more than one factor is None, so they cannot be inferred
          at test_partition.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: leave at most one open
        """,
    )
    expect(
        refused(sch, lambda: sch.loop_partition(i, [0, None])),
        """
        loop_partition(i, factors=[0, None]): a factor is 0; factors are at least 1
          at test_partition.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …
        """,
    )


def test_a_loop_that_is_marked(expect, refused):
    sch, (i, _j) = on(copy2d, "B")
    sch.parallel(i)
    expect(
        refused(sch, lambda: sch.loop_partition(i, [2, None])),
        """
        loop_partition(i, factors=[2, None]): loop `i` is already marked parallel
          at test_partition.py:LINE

          | …
          |     for i in T.parallel(8):    # <-- here
          | …

          hint: loop_partition first, then parallel the part you want
        """,
    )


def test_a_size_that_is_not_known(expect, refused):
    sch, (i, j) = on(symbolic, "B")
    expect(
        refused(sch, lambda: sch.loop_partition(i, [2, None])),
        """
        loop_partition(i, factors=[2, None]): the pieces have 2 iterations and loop `i` has n
          at test_partition.py:LINE

          | …
          |     for i, j in T.grid(n, 8):    # <-- here
          | …

          hint: choose smaller pieces
        """,
    )
    sch.loop_partition(j, [2, None])
    keeps_meaning(symbolic, sch)


# ---------------------------------------------------------------------------- merge
def test_merge(expect):
    sch = tir.Schedule(chain)
    loops = [sch.get_loops(sch.get_block(b))[0] for b in "BCD"]
    merged = sch.merge(*loops)
    assert merged.name == "i_m"
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def chain(A: T.Buffer((10,), "float32"), D: T.Buffer((10,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((10,))
            C = T.alloc_buffer((10,))
            for i_m in range(10):
                with T.block("B"):
                    vi = T.axis.spatial(10, i_m)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    B[vi] = A[vi] + T.float32(1)
                with T.block("C"):
                    vi = T.axis.spatial(10, i_m)
                    T.reads(B[vi])
                    T.writes(C[vi])
                    C[vi] = B[vi] * T.float32(2)
                with T.block("D"):
                    vi = T.axis.spatial(10, i_m)
                    T.reads(C[vi], B[vi])
                    T.writes(D[vi])
                    D[vi] = C[vi] + B[vi]
        """,
    )
    keeps_meaning(chain, sch)


@T.prim_func
def squares(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4, 6), "float32"), D: T.Buffer((4, 6), "float32")):
    for i, j in T.grid(4, 6):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * A[vi, vj]
    for i, j in T.grid(4, 6):
        with T.block("D"):
            vi, vj = T.axis.remap("SS", [i, j])
            D[vi, vj] = C[vi, vj] + A[vi, vj]


def test_merge_takes_the_loops_around_along(expect):
    sch = tir.Schedule(squares)
    c, d = (sch.get_loops(sch.get_block(b)) for b in "CD")
    sch.merge(c[1], d[1])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def squares(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4, 6), "float32"), D: T.Buffer((4, 6), "float32")):
            # with T.block("root"):
            for i_m, j_m in T.grid(4, 6):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i_m, j_m])
                    T.reads(A[vi, vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = A[vi, vj] * A[vi, vj]
                with T.block("D"):
                    vi, vj = T.axis.remap("SS", [i_m, j_m])
                    T.reads(C[vi, vj], A[vi, vj])
                    T.writes(D[vi, vj])
                    D[vi, vj] = C[vi, vj] + A[vi, vj]
        """,
    )
    keeps_meaning(squares, sch)


def test_merge_of_outer_loops_only():
    sch = tir.Schedule(squares)
    c, d = (sch.get_loops(sch.get_block(b)) for b in "CD")
    merged = sch.merge(c[0], d[0])
    sch.parallel(merged)
    keeps_meaning(squares, sch)


def test_merge_of_what_needs_later_iterations(expect, refused):
    @T.prim_func
    def flip(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[7 - vi]

    sch = tir.Schedule(flip)
    loops = [sch.get_loops(sch.get_block(b))[0] for b in "BC"]
    expect(
        refused(sch, lambda: sch.merge(*loops)),
        """
        merge(i, i): an iteration may use elements of B that a later one of another loop makes (blocks B and C)
          at test_partition.py:LINE

          | …

          hint: compute_at or reverse_compute_at computes what an iteration needs inside it
        """,
    )


def test_merge_of_a_reduction_with_its_reader(expect, refused):
    @T.prim_func
    def total(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((1,))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.reduce(8, i)
                with T.init():
                    B[0] = T.float32(0)
                B[0] = B[0] + A[vi]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[0]

    sch = tir.Schedule(total)
    loops = [sch.get_loops(sch.get_block(b))[0] for b in "BC"]
    expect(
        refused(sch, lambda: sch.merge(*loops)),
        """
        merge(i, i): an iteration may use elements of B that a later one of another loop makes (blocks B and C)
          at test_partition.py:LINE

          | …

          hint: compute_at or reverse_compute_at computes what an iteration needs inside it
        """,
    )


@T.prim_func
def three_nests(A: T.Buffer((8,), "float32"), B: T.Buffer((6,), "float32"), C: T.Buffer((2, 4), "float32")):
    for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi] = T.float32(1)
    for j in range(6):
        with T.block("B"):
            vj = T.axis.spatial(6, j)
            B[vj] = T.float32(2)
    for k, m in T.grid(2, 4):
        with T.block("C"):
            vk, vm = T.axis.remap("SS", [k, m])
            C[vk, vm] = T.float32(3)


def nests():
    sch = tir.Schedule(three_nests)
    return sch, *(sch.get_loops(b) for b in "ABC")


def test_merge_of_loops_that_differ(expect, refused):
    sch, (i,), (j,), (_k, m) = nests()
    expect(
        refused(sch, lambda: sch.merge(i, j)),
        """
        merge(i, j): loop `i` has 8 iterations and `j` 6
          at test_partition.py:LINE

          | …
          |     for j in range(6):    # <-- here
          | …

          hint: merge loops with the same number of iterations; loop_partition cuts one into such pieces
        """,
    )
    expect(
        refused(sch, lambda: sch.merge(j, m)),
        """
        merge(j, m): loop `m` is 2 loops deep and `j` 1
          at test_partition.py:LINE

          | …
          |     for k, m in T.grid(2, 4):    # <-- here
          | …

          hint: choose loops of the same depth, or make it the same with add_unit_loop
        """,
    )


def test_merge_of_loops_that_do_not_follow_each_other(expect, refused):
    sch, (i,), (j,), (k, m) = nests()
    expect(
        refused(sch, lambda: sch.merge(i, k)),
        """
        merge(i, k): the loops must follow each other directly, in the order given
          at test_partition.py:LINE

          | …
          |     for k, m in T.grid(2, 4):    # <-- here
          | …

          hint: name them as they stand, and move what is between away with compute_at or reverse_compute_at
        """,
    )
    expect(
        refused(sch, lambda: sch.merge(j, i)),
        """
        merge(j, i): the loops must follow each other directly, in the order given
          at test_partition.py:LINE

          | …
          |     for i in range(8):    # <-- here
          | …

          hint: name them as they stand, and move what is between away with compute_at or reverse_compute_at
        """,
    )
    expect(
        refused(sch, lambda: sch.merge(k, m)),
        """
        merge(k, m): loop `m` is inside loop `k`
          at test_partition.py:LINE

          | …
          |     for k, m in T.grid(2, 4):    # <-- here
          | …

          hint: fuse makes one loop of a nest
        """,
    )


def test_merge_of_a_single_loop(expect, refused):
    sch, (i,), _, _ = nests()
    expect(
        refused(sch, lambda: sch.merge(i)),
        """
        merge(i): it takes at least two loops to merge
          at test_partition.py:LINE

          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.merge(i, i)),
        """
        merge(i, i): loop `i` is named twice
          at test_partition.py:LINE

          | …
          |     for i in range(8):    # <-- here
          | …
        """,
    )


def test_merge_of_loops_with_annotations(expect, refused):
    sch, (i,), (j,), _ = nests()
    sch.annotate(j, "a", 1)
    expect(
        refused(sch, lambda: sch.merge(i, j)),
        """
        merge(i, j): loop `j` has annotations (a), which would be lost
          at test_partition.py:LINE

          | …
          |     for j in T.serial(6, annotations={"a": 1}):    # <-- here
          | …

          hint: merge first, then annotate
        """,
    )


# ---------------------------------------------------------------------------- get_output_blocks
def test_get_output_blocks():
    sch = tir.Schedule(chain)
    assert [b.name for b in sch.get_output_blocks("root")] == ["D"]
    sch = tir.Schedule(squares)
    root = sch.get_block("root")
    assert [b.name for b in sch.get_output_blocks(root)] == ["C", "D"]
    sch.parallel(sch.get_loops(sch.get_output_blocks(root)[1])[0])
    keeps_meaning(squares, sch)


@pytest.mark.parametrize("keep, bound", [(True, "j0"), (False, "0")])
def test_parts_of_one_iteration_name_their_variable_or_their_position(agree, keep, bound):
    sch, (_i, j) = on(copy2d, "B")
    sch.loop_partition(j, [1, None], preserve_unit_iters=keep)
    realize = sch.realize(sch.get_block("B_j0"))
    assert str(realize.iter_values[1]) == bound
    agree(copy2d, sch.mod["main"], *arrays(copy2d))
