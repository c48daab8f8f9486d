"""Loops in another order: reorder."""

from __future__ import annotations

import pytest
from loop_programs import loops_of, triangle
from schedule_programs import arrays, chain, copy2d, matmul

from tilewright import tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T


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
          at test_reorder.py:LINE

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
          at test_reorder.py:LINE

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
          at test_reorder.py:LINE

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
          at test_reorder.py:LINE

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
          at test_reorder.py:LINE

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
          at test_reorder.py:LINE

          | …
          |     for i, j in T.grid(4, 4):    # <-- here
          | …

          hint: leave loop `i` where it is
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
          at test_reorder.py:LINE

          | …
          |     for i, j in T.grid(6, 6):    # <-- here
          | …

          hint: leave loop `i` where it is
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
        reorder(j, i): B is used outside of blocks inside loop `j`, so the dependences between its iterations are not known
          at test_reorder.py:LINE

          | …
          |     for i, j in T.grid(4, 4):    # <-- here
          | …

          hint: put the statement into a block
        """,
    )
