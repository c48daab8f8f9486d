"""Padding taken out of blocks and put around them: decompose_padding, pad_einsum."""

from __future__ import annotations

import numpy as np
from schedule_checks import keeps_meaning
from schedule_programs import copy2d, matmul

from tilewright import tir
from tilewright.script import tir as T


def on(func, block):
    sch = tir.Schedule(func)
    b = sch.get_block(block)
    return sch, b, sch.get_loops(b)


@T.prim_func
def pad1d(x: T.Buffer((128,), "int32"), y: T.Buffer((140,), "int32")):
    for i in range(140):
        with T.block("block"):
            vi = T.axis.spatial(140, i)
            y[vi] = T.if_then_else(vi >= 6 and vi < 134, x[vi - 6], 0)


@T.prim_func
def pad2d(x: T.Buffer((6, 5), "float32"), z: T.Buffer((6, 9), "float32")):
    y = T.alloc_buffer((8, 9))
    for i, j in T.grid(8, 9):
        with T.block("pad"):
            vi, vj = T.axis.remap("SS", [i, j])
            y[vi, vj] = T.if_then_else(
                vi >= 1 and vi < 7 and vj >= 2 and vj < 7, x[vi - 1, vj - 2], T.float32(-3)
            )
    for i, j in T.grid(6, 9):
        with T.block("z"):
            vi, vj = T.axis.remap("SS", [i, j])
            z[vi, vj] = y[vi, vj] + y[vi + 2, vj]


# ---------------------------------------------------------------------------- decompose_padding
def test_decompose_padding(expect):
    sch, b, (i,) = on(pad1d, "block")
    assert sch.can_decompose_padding(b, i)
    assert sch.decompose_padding(b, i).name == "block_pad_const"
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def pad1d(x: T.Buffer((128,), "int32"), y: T.Buffer((140,), "int32")):
            # with T.block("root"):
            for i in range(140):
                with T.block("block_pad_const"):
                    vi = T.axis.spatial(140, i)
                    T.reads()
                    T.writes(y[vi])
                    y[vi] = 0
            for i in range(128):
                with T.block("block"):
                    vi = T.axis.spatial(128, i)
                    T.reads(x[vi])
                    T.writes(y[vi + 6])
                    y[vi + 6] = x[vi]
        """,
    )
    keeps_meaning(pad1d, sch)


def test_a_box_in_two_dimensions(expect):
    sch, b, (i, _j) = on(pad2d, "pad")
    sch.decompose_padding(b, i)
    expect(
        sch.mod["main"].body.block.body.seq[1],
        """
        x = T.Buffer((6, 5))
        y = T.Buffer((8, 9))
        for i, j in T.grid(6, 5):
            with T.block("pad"):
                vi, vj = T.axis.remap("SS", [i, j])
                T.reads(x[vi, vj])
                T.writes(y[vi + 1, vj + 2])
                y[vi + 1, vj + 2] = x[vi, vj]
        """,
    )
    keeps_meaning(pad2d, sch)


def test_at_an_inner_loop_the_outer_condition_stays(expect):
    sch, b, (_i, j) = on(pad2d, "pad")
    sch.decompose_padding(b, j)
    expect(
        sch.mod["main"].body.block.body.seq[0],
        """
        y = T.Buffer((8, 9))
        x = T.Buffer((6, 5))
        for i in range(8):
            for j in range(9):
                with T.block("pad_pad_const"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads()
                    T.writes(y[vi, vj])
                    y[vi, vj] = T.float32(-3)
            for j in range(5):
                with T.block("pad"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.where(i >= 1 and i < 7)
                    T.reads(x[vi - 1, vj])
                    T.writes(y[vi, vj + 2])
                    y[vi, vj + 2] = x[vi - 1, vj]
        """,
    )
    keeps_meaning(pad2d, sch)


def test_loops_that_are_not_the_iterators(expect):
    sch, b, (i, j) = on(pad2d, "pad")
    _j_0, j_1 = sch.split(j, [None, 4])
    sch.vectorize(j_1)
    sch.decompose_padding(b, i)
    expect(
        sch.mod["main"].body.block.body.seq[1],
        """
        x = T.Buffer((6, 5))
        y = T.Buffer((8, 9))
        for i, j_0 in T.grid(6, 3):
            for j_1 in T.vectorized(4):
                with T.block("pad"):
                    vi = T.axis.spatial(6, i)
                    vj = T.axis.spatial(9, j_0 * 4 + j_1)
                    T.where(j_0 * 4 + j_1 < 9 and j_0 * 4 + j_1 >= 2 and j_0 * 4 + j_1 < 7)
                    T.reads(x[vi, vj - 2])
                    T.writes(y[vi + 1, vj])
                    y[vi + 1, vj] = x[vi, vj - 2]
        """,
    )
    keeps_meaning(pad2d, sch)


def test_after_compute_at():
    for at in (0, 1):
        sch, b, _ = on(pad2d, "pad")
        z = sch.get_loops(sch.get_block("z"))
        sch.compute_at(b, z[0])
        sch.decompose_padding(b, sch.get_loops(b)[at])
        keeps_meaning(pad2d, sch)


def test_conditions_that_are_no_box():
    @T.prim_func
    def triangle(x: T.Buffer((8, 8), "float32"), y: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("y"):
                vi, vj = T.axis.remap("SS", [i, j])
                y[vi, vj] = T.if_then_else(vi + vj < 8 and vj >= 2, x[vi, vj], T.float32(0))

    sch, b, (i, _j) = on(triangle, "y")
    sch.decompose_padding(b, i)
    assert "T.where(i + (j + 2) < 8)" in str(sch.mod)
    keeps_meaning(triangle, sch)


def test_padding_without_an_inside():
    @T.prim_func
    def never(x: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("y"):
                vi = T.axis.spatial(8, i)
                y[vi] = T.if_then_else(vi < 3 and vi >= 5, x[vi], T.float32(2))

    sch, b, (i,) = on(never, "y")
    sch.decompose_padding(b, i)
    keeps_meaning(never, sch)


def test_a_block_that_is_no_padding(expect, refused):
    sch, b, (i, _j) = on(copy2d, "B")
    assert not sch.can_decompose_padding(b, i)
    expect(
        refused(sch, lambda: sch.decompose_padding(b, i)),
        """
        decompose_padding(B, loop=i): block B stores `A[vi, vj] + T.float32(1)`, which is not if_then_else(inside, value, constant)
          at test_padding.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_refuse_a_loop_of_another_block(expect, refused):
    sch, b, (i, _j) = on(pad2d, "pad")
    z = sch.get_loops(sch.get_block("z"))
    expect(
        refused(sch, lambda: sch.decompose_padding(b, z[0])),
        """
        decompose_padding(pad, loop=i): loop `i` is not around block pad
          at test_padding.py:LINE

          | …
          |     for i, j in T.grid(6, 9):    # <-- here
          | …
        """,
    )


def test_refuse_padding_of_a_reduction(expect, refused):
    sch, c, loops = on(matmul, "C")
    expect(
        refused(sch, lambda: sch.decompose_padding(c, loops[0])),
        """
        decompose_padding(C, loop=i): iterator `vk` of block C is not spatial
          at test_padding.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_refuse_padding_that_is_not_constant(expect, refused):
    @T.prim_func
    def moving(x: T.Buffer((8,), "float32"), p: T.Buffer((8,), "float32"), y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("y"):
                vi = T.axis.spatial(8, i)
                y[vi] = T.if_then_else(vi < 4, x[vi], p[vi])

    sch, b, (i,) = on(moving, "y")
    expect(
        refused(sch, lambda: sch.decompose_padding(b, i)),
        """
        decompose_padding(y, loop=i): block y stores `T.if_then_else(vi < 4, x[vi], p[vi])`, which is not if_then_else(inside, value, constant)
          at test_padding.py:LINE

          | …
          |         with T.block("y"):    # <-- here
          | …
        """,
    )


def test_refuse_padding_that_is_not_written_at_iterators(expect, refused):
    @T.prim_func
    def diagonal(x: T.Buffer((8,), "float32"), y: T.Buffer((8, 8), "float32")):
        for i in range(8):
            with T.block("y"):
                vi = T.axis.spatial(8, i)
                y[vi, vi] = T.if_then_else(vi < 4, x[vi], T.float32(0))

    sch, b, (i,) = on(diagonal, "y")
    expect(
        refused(sch, lambda: sch.decompose_padding(b, i)),
        """
        decompose_padding(y, loop=i): block y does not write y at its iterators
          at test_padding.py:LINE

          | …
          |         with T.block("y"):    # <-- here
          | …
        """,
    )


def test_refuse_padding_of_what_is_written(expect, refused):
    @T.prim_func
    def same(y: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("y"):
                vi = T.axis.spatial(8, i)
                y[vi] = T.if_then_else(vi < 4, y[vi], T.float32(0))

    sch, b, (i,) = on(same, "y")
    expect(
        refused(sch, lambda: sch.decompose_padding(b, i)),
        """
        decompose_padding(y, loop=i): block y reads what it writes
          at test_padding.py:LINE

          | …
          |         with T.block("y"):    # <-- here
          | …
        """,
    )


# ---------------------------------------------------------------------------- pad_einsum
def test_pad_einsum(expect):
    sch, c, _ = on(matmul, "C")
    sch.pad_einsum(c, [4, 4, 4])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            A_pad = T.alloc_buffer((8, 8))
            B_pad = T.alloc_buffer((8, 8))
            C_pad = T.alloc_buffer((8, 8))
            for ax0, ax1 in T.grid(8, 8):
                with T.block("A_pad"):
                    v0, v1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(A[v0, v1])
                    T.writes(A_pad[v0, v1])
                    A_pad[v0, v1] = T.if_then_else(v0 < 7 and v1 < 5, A[v0, v1], T.float32(0))
            for ax0, ax1 in T.grid(8, 8):
                with T.block("B_pad"):
                    v0, v1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(B[v0, v1])
                    T.writes(B_pad[v0, v1])
                    B_pad[v0, v1] = T.if_then_else(v0 < 5 and v1 < 6, B[v0, v1], T.float32(0))
            for i, j, k in T.grid(8, 8, 8):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(A_pad[vi, vk], B_pad[vk, vj])
                    T.writes(C_pad[vi, vj])
                    with T.init():
                        C_pad[vi, vj] = T.float32(0)
                    C_pad[vi, vj] = C_pad[vi, vj] + A_pad[vi, vk] * B_pad[vk, vj]
            for ax0, ax1 in T.grid(7, 6):
                with T.block("C_pad"):
                    v0, v1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(C_pad[v0, v1])
                    T.writes(C[v0, v1])
                    C[v0, v1] = C_pad[v0, v1]
        """,
    )
    keeps_meaning(matmul, sch)


def test_only_what_grows_is_copied():
    sch, c, _ = on(matmul, "C")
    sch.pad_einsum(c, [4, 3, 1])
    assert [b.name for b in sch.mod["main"].body.block.alloc_buffers] == ["A_pad", "C_pad"]
    keeps_meaning(matmul, sch)
    sch.vectorize(sch.split(sch.get_loops(c)[0], [None, 4])[1])
    keeps_meaning(matmul, sch)


def test_padding_that_divides_changes_nothing():
    sch, c, _ = on(matmul, "C")
    before = sch.mod
    sch.pad_einsum(c, [7, 3, 5])
    assert sch.mod is before


def test_constant_indices_and_no_reduction():
    @T.prim_func
    def outer(A: T.Buffer((2, 5), "int32"), B: T.Buffer((3,), "int32"), C: T.Buffer((5, 3, 2), "int32")):
        for i, j in T.grid(5, 3):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj, 1] = A[1, vi] * B[vj]

    sch, c, _ = on(outer, "C")
    sch.pad_einsum(c, [4, 4])
    keeps_meaning(outer, sch)


def test_other_types_and_casts():
    @T.prim_func
    def dot(A: T.Buffer((5,), "int8"), B: T.Buffer((5,), "int8"), C: T.Buffer((1,), "int32")):
        for i, k in T.grid(1, 5):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = 0
                C[vi] = C[vi] + T.Cast("int32", A[vk]) * T.Cast("int32", B[vk])

    sch, c, _ = on(dot, "C")
    sch.pad_einsum(c, [1, 4])
    keeps_meaning(dot, sch)


def test_infinity_stays_where_it_is():
    sch, c, _ = on(matmul, "C")
    sch.pad_einsum(c, [4, 4, 4])
    a, b = np.full((7, 5), np.inf, "float32"), np.ones((5, 6), "float32")
    got = np.zeros((7, 6), "float32")
    tir.interpret(sch.mod["main"], a, b, got)
    assert np.isposinf(got).all()


def test_what_the_padding_would_add(expect, refused):
    @T.prim_func
    def scaled(A: T.Buffer((7, 5), "float32"), W: T.Buffer((7,), "float32"), C: T.Buffer((7,), "float32")):
        for i, k in T.grid(7, 5):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = C[vi] + A[vi, vk] * W[vi]

    sch, c, _ = on(scaled, "C")
    expect(
        refused(sch, lambda: sch.pad_einsum(c, [1, 4])),
        """
        pad_einsum(C, padding=[1, 4]): the padding of reduction iterator `vk` would change the sum: `C[vi] + A[vi, vk] * W[vi]` does not add zero where the elements are zero
          at test_padding.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: leave the padding of `vk` at 1
        """,
    )
    sch.pad_einsum(c, [4, 1])
    keeps_meaning(scaled, sch)


def test_arguments_of_pad_einsum(expect, refused):
    sch, c, _ = on(matmul, "C")
    expect(
        refused(sch, lambda: sch.pad_einsum(c, [4, 4])),
        """
        pad_einsum(C, padding=[4, 4]): padding=[4, 4]: block C has 3 iterators
          at test_padding.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.pad_einsum(c, [4, 4, 0])),
        """
        pad_einsum(C, padding=[4, 4, 0]): padding=[4, 4, 0]: they must be at least 1
          at test_padding.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_refuse_pad_einsum_of_windows(expect, refused):
    @T.prim_func
    def conv(A: T.Buffer((10,), "float32"), C: T.Buffer((8,), "float32")):
        for i, k in T.grid(8, 3):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(0)
                C[vi] = T.max(C[vi], A[vi + vk])

    sch, c, loops = on(conv, "C")
    expect(
        refused(sch, lambda: sch.pad_einsum(c, [3, 1])),
        """
        pad_einsum(C, padding=[3, 1]): block C uses A at `vi + vk`, which is neither an iterator nor a constant
          at test_padding.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_refuse_pad_einsum_of_quotients(expect, refused):
    @T.prim_func
    def divide(A: T.Buffer((7,), "int32"), B: T.Buffer((7,), "int32"), C: T.Buffer((7,), "int32")):
        for i in range(7):
            with T.block("C"):
                vi = T.axis.spatial(7, i)
                C[vi] = A[vi] // B[vi]

    sch, c, _ = on(divide, "C")
    expect(
        refused(sch, lambda: sch.pad_einsum(c, [4])),
        """
        pad_einsum(C, padding=[4]): block C computes `A[vi] // B[vi]`: in an einsum there are only sums and products of elements
          at test_padding.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_refuse_padding_that_would_change_a_sum(expect, refused):
    @T.prim_func
    def largest(A: T.Buffer((7, 5), "float32"), C: T.Buffer((7,), "float32")):
        for i, k in T.grid(7, 5):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.float32(-1000)
                C[vi] = T.max(C[vi], A[vi, vk])

    sch, c, _loops = on(largest, "C")
    expect(
        refused(sch, lambda: sch.pad_einsum(c, [1, 4])),
        """
        pad_einsum(C, padding=[1, 4]): the padding of reduction iterator `vk` would change the sum: `T.max(C[vi], A[vi, vk])` does not add zero where the elements are zero
          at test_padding.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: leave the padding of `vk` at 1
        """,
    )
    sch.pad_einsum(c, [4, 1])
    keeps_meaning(largest, sch)


def test_refuse_pad_einsum_after_a_split(expect, refused):
    sch, c, (i, _j, _k) = on(matmul, "C")
    sch.split(i, [None, 4])
    expect(
        refused(sch, lambda: sch.pad_einsum(c, [4, 4, 4])),
        """
        pad_einsum(C, padding=[4, 4, 4]): block C runs only where `i_0 * 4 + i_1 < 7`
          at test_padding.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: pad_einsum before the loops are split
        """,
    )


def test_pad_einsum_copies_only_the_part_that_a_constant_index_chooses():
    """The rest of the buffer may not have been written."""

    @T.prim_func
    def main(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
        W = T.alloc_buffer((3, 4, 4), "int32")
        for i, k in T.grid(4, 4):
            with T.block("W"):
                vi, vk = T.axis.remap("SS", [i, k])
                W[2, vk, vi] = A[vi, vk]
        for i, k in T.grid(4, 4):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + W[2, vk, vi]

    sch = tir.Schedule(main)
    sch.pad_einsum(sch.get_block("B"), [5, 4])
    a, b = np.arange(16, dtype="int32").reshape(4, 4), np.zeros(4, "int32")
    tir.interpret(sch.mod["main"], a, b)
    np.testing.assert_array_equal(b, a.sum(1))
