"""The iterators of blocks: transform_block_layout, reorder_block_iter_var."""

from __future__ import annotations

import pytest
from schedule_checks import keeps_meaning
from schedule_programs import chain, copy2d, matmul

from tilewright import tir
from tilewright.script import tir as T


def on(func, block):
    sch = tir.Schedule(func)
    return sch, sch.get_block(block)


def test_transform_block_layout(expect):
    sch, b = on(copy2d, "B")
    sch.transform_block_layout(b, lambda i, j: (i * 12 + j,))
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for ax0 in range(96):
                with T.block("B"):
                    v_ax0 = T.axis.spatial(96, ax0)
                    T.reads(A[v_ax0 // 12, v_ax0 % 12])
                    T.writes(B[v_ax0 // 12, v_ax0 % 12])
                    B[v_ax0 // 12, v_ax0 % 12] = A[v_ax0 // 12, v_ax0 % 12] + T.float32(1)
        """,
    )
    keeps_meaning(copy2d, sch)


def test_reduction_iterators_stay_reduction_iterators(expect):
    sch, c = on(matmul, "C")
    sch.transform_block_layout(c, lambda i, j, k: (k, i * 6 + j))
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            for ax0, ax1 in T.grid(5, 42):
                with T.block("C"):
                    v_ax0, v_ax1 = T.axis.remap("RS", [ax0, ax1])
                    T.reads(A[v_ax1 // 6, v_ax0], B[v_ax0, v_ax1 % 6])
                    T.writes(C[v_ax1 // 6, v_ax1 % 6])
                    with T.init():
                        C[v_ax1 // 6, v_ax1 % 6] = T.float32(0)
                    C[v_ax1 // 6, v_ax1 % 6] = C[v_ax1 // 6, v_ax1 % 6] + A[v_ax1 // 6, v_ax0] * B[v_ax0, v_ax1 % 6]
        """,
    )
    keeps_meaning(matmul, sch)


def test_iterators_may_be_split_and_turned_round():
    sch, b = on(copy2d, "B")
    sch.transform_block_layout(b, lambda *v: (v[1] // 4, 7 - v[0], v[1] % 4))
    keeps_meaning(copy2d, sch)
    sch.vectorize(sch.get_loops(b)[2])
    keeps_meaning(copy2d, sch)


def test_the_old_loops_are_gone(expect, refused):
    sch, b = on(copy2d, "B")
    i, _j = sch.get_loops(b)
    sch.transform_block_layout(b, lambda i, j: (j, i))
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): loop `i` no longer exists: it was removed by transform_block_layout(B, …)
          at test_block_iters.py:LINE

          | …
        """,
    )


def test_kinds_are_not_mixed(expect, refused):
    sch, c = on(matmul, "C")
    expect(
        refused(sch, lambda: sch.transform_block_layout(c, lambda i, j, k: (i, j * 5 + k))),
        """
        transform_block_layout(C, index_map=lambda i, j, k: (i, j * 5 + k)): `j * 5 + k` mixes the spatial and the reduction iterators of block C
          at test_block_iters.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: keep each new index to one kind
        """,
    )


def test_the_map_must_be_one_to_one(expect, refused):
    sch, b = on(copy2d, "B")
    expect(
        refused(sch, lambda: sch.transform_block_layout(b, lambda i, j: (i,))),
        """
        transform_block_layout(B, index_map=lambda i, j: (i,)): lambda i, j: (i,) maps several values of `j` to the same index, so the points of block B cannot be told from it
          at test_block_iters.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: use a map that gives each point an index of its own and leaves none out
        """,
    )
    expect(
        refused(sch, lambda: sch.transform_block_layout(b, lambda i, j: (i // 3, i % 3, j))),
        """
        transform_block_layout(B, index_map=lambda i, j: (i // 3, i % 3, j)): lambda i, j: (i // 3, i % 3, j) is not onto over the shape (8, 12): nothing is mapped to where `axis0 * 3 + axis1 >= 8`, so the points of block B cannot be told from it
          at test_block_iters.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: use a map that gives each point an index of its own and leaves none out
        """,
    )
    expect(
        refused(sch, lambda: sch.transform_block_layout(b, lambda i, j: (i + j,))),
        """
        transform_block_layout(B, index_map=lambda i, j: (i + j,)): lambda i, j: (i + j,) cannot be inverted: iterators overlap or leave gaps: their scales do not follow from their extents, so the points of block B cannot be told from it
          at test_block_iters.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: use a map that gives each point an index of its own and leaves none out
        """,
    )


def test_the_number_of_iterators(expect, refused):
    sch, b = on(copy2d, "B")
    expect(
        refused(sch, lambda: sch.transform_block_layout(b, lambda i: (i,))),
        """
        transform_block_layout(B, index_map=lambda i: (i,)): the map takes 1 indices, and block B has 2 iterators
          at test_block_iters.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_loops_must_be_the_iterators(expect, refused):
    sch, b = on(copy2d, "B")
    i, _j = sch.get_loops(b)
    sch.split(i, [2, 4])
    expect(
        refused(sch, lambda: sch.transform_block_layout(b, lambda i, j: (j, i))),
        """
        transform_block_layout(B, index_map=lambda i, j: (j, i)): iterator `vi` of block B is `i_0 * 4 + i_1`, not all of one loop of its own
          at test_block_iters.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: transform_block_layout before the loops are split, fused or moved
        """,
    )


def test_loops_must_be_plain(expect, refused):
    sch, b = on(copy2d, "B")
    sch.parallel(sch.get_loops(b)[0])
    expect(
        refused(sch, lambda: sch.transform_block_layout(b, lambda i, j: (j, i))),
        """
        transform_block_layout(B, index_map=lambda i, j: (j, i)): loop `i` is marked or annotated, which transform_block_layout would lose
          at test_block_iters.py:LINE

          | …
          |     for i in T.parallel(8):    # <-- here
          | …

          hint: transform_block_layout first, then mark the loops
        """,
    )


def test_a_loop_that_holds_more(expect, refused):
    sch, b = on(chain, "B")
    c = sch.get_block("C")
    sch.reverse_compute_at(c, sch.get_loops(b)[0])
    expect(
        refused(sch, lambda: sch.transform_block_layout(c, lambda i: (i,))),
        """
        transform_block_layout(C, index_map=lambda i: (i,)): loop `i` holds more than block C
          at test_block_iters.py:LINE

          | …
          |     for i in range(10):    # <-- here
          | …

          hint: transform_block_layout before other blocks are moved under the loop
        """,
    )


def test_ordered_iterators(expect, refused):
    @T.prim_func
    def ordered(A: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.scan(4, i)
                A[vi] = vi

    sch, a = on(ordered, "A")
    expect(
        refused(sch, lambda: sch.transform_block_layout(a, lambda i: (3 - i,))),
        """
        transform_block_layout(A, index_map=lambda i: (3 - i,)): iterator `vi` of block A must run in order
          at test_block_iters.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …
        """,
    )


# ---------------------------------------------------------------------------- reorder_block_iter_var
def test_reorder_block_iter_var(expect):
    sch, c = on(matmul, "C")
    sch.reorder_block_iter_var(c, [2, 1, 0])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            for i, j, k in T.grid(7, 6, 5):
                with T.block("C"):
                    vk, vj, vi = T.axis.remap("RSS", [k, j, i])
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    keeps_meaning(matmul, sch)


def test_the_order_there_is_already():
    sch, c = on(matmul, "C")
    before = sch.mod
    sch.reorder_block_iter_var(c, [0, 1, 2])
    assert sch.mod is before


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], [0, 1, 2, 3], []])
def test_what_is_no_order(order, expect, refused):
    sch, c = on(matmul, "C")
    text = refused(sch, lambda: sch.reorder_block_iter_var(c, order))
    expect(
        text.replace(str(order), "ORDER"),
        """
        reorder_block_iter_var(C, new_order=ORDER): new_order=ORDER is not an order of the 3 iterators, 0 to 2
          at test_block_iters.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )
