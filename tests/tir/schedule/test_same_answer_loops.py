"""split and reorder refuse orders of loops that would change the answer."""

from __future__ import annotations

import pytest
from same_answer_programs import Named, first_largest, first_line, horner, least_index, on, overlap, same

from tilewright import tir
from tilewright.script import tir as T


def test_overlapping_writes_keep_their_order(expect, refused):
    sch, (i, j) = on(overlap, "B")
    of = Named(sch)
    expect(
        refused(sch, lambda: sch.reorder(j, i)),
        """
        reorder(j, i): iterations of loop `i` may write the same elements of B (block B)
          at test_same_answer_loops.py:LINE

          | …
          |     for i, j in T.grid(4, 6):    # <-- here
          | …

          hint: leave loop `i` where it is
        """,
    )
    text = refused(sch, lambda: sch.transform_block_layout(of.B, lambda i, j: (j, i)))
    assert first_line(text).endswith("iterations of loop `i` may write the same elements of B (block B)")
    _, i1 = sch.split(i, [None, 2])
    _, j1 = sch.split(j, [None, 3])
    assert "may write the same elements of B" in refused(sch, lambda: sch.reorder(j1, i1))
    same(sch)


@pytest.mark.parametrize("func", [horner, first_largest])
def test_steps_that_need_an_order_keep_it(refused, func):
    name = "B" if func is horner else "V"
    sch, (i, k) = on(func, name)
    ko, ki = sch.split(k, [None, 3])
    assert "may " in first_line(refused(sch, lambda: sch.reorder(ki, ko)))
    assert refused(sch, lambda: sch.rfactor(ki))
    sch.reorder(ko, ki, i)  # each element sees its steps in the same order
    same(sch)


def test_a_search_that_chooses_by_the_index_needs_no_order():
    sch, (i, k) = on(least_index, "V")
    ko, ki = sch.split(k, [None, 3])
    sch.reorder(ki, i, ko)
    same(sch)


def test_an_author_may_say_that_any_order_will_do():
    sch, (_, k) = on(first_largest, "V")
    sch.annotate("V", "tir.any_order", True)
    ko, ki = sch.split(k, [None, 3])
    sch.reorder(ki, ko)


def test_digits_of_a_layout_tell_iterations_apart():
    """`v0` and `v1` are spread over the digits of an index as tensor cores want them: each point has its own element."""

    @T.prim_func
    def before(A: T.Buffer((32, 16), "int32"), B: T.Buffer((32, 16), "int32")):
        for i, j in T.grid(32, 16):
            with T.block("B"):
                v0, v1 = T.axis.remap("SS", [i, j])
                B[v0 // 4 % 4 + v1 % 8 * 4, v1 // 8 * 8 + v0 // 16 * 4 + v0 % 4] = A[v0, v1]

    sch = tir.Schedule(before)
    i, j = sch.get_loops("B")
    sch.reorder(j, i)
    same(sch)


def test_digits_that_overlap_do_not(refused):
    @T.prim_func
    def before(A: T.Buffer((32, 16), "int32"), B: T.Buffer((128,), "int32")):
        for i, j in T.grid(32, 16):
            with T.block("B"):
                v0, v1 = T.axis.remap("SS", [i, j])
                B[v0 * 2 + v1 * 4] = A[v0, v1]

    sch = tir.Schedule(before)
    i, j = sch.get_loops("B")
    assert "may write the same elements of B" in refused(sch, lambda: sch.reorder(j, i))


def test_a_split_loop_makes_no_points_without_steps():
    @T.prim_func
    def to_the_end(A: T.Buffer((3, 3), "int32"), B: T.Buffer((3,), "int32")):
        for i in range(3):
            for k in range(i, i + (3 - i)):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = 0
                    B[vi] = B[vi] + A[vi, vk]

    sch, (i, _) = on(to_the_end, "B")
    i0, _ = sch.split(i, [None, 2])
    sch.split(i0, [4, None])
    same(sch)


def test_points_that_the_steps_choose_are_not_split_beyond_their_end(refused):
    @T.prim_func
    def by_step(A: T.Buffer((2,), "int32"), B: T.Buffer((2,), "int32")):
        for k in range(2):
            for i in range(k + 1):
                with T.block("B"):
                    vk, vi = T.axis.remap("RS", [k, i])
                    T.where(k < 1)
                    with T.init():
                        B[vi] = 0
                    B[vi] = B[vi] + A[vk]

    sch, (_, i) = on(by_step, "B")
    assert first_line(refused(sch, lambda: sch.split(i, [4, None]))).endswith(
        "the number of iterations of loop `i` depends on loop `k`, which carries the reduction of block B, and the init "
        "would run beyond its end"
    )


def test_a_condition_that_reads_is_asked_inside_only():
    @T.prim_func
    def read(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                T.where(A[i] > 0)
                B[vi] = A[vi]

    sch, (i,) = on(read, "B")
    sch.split(i, [None, 3])
    same(sch)


def test_a_parallel_loop_moves_outside_only_where_its_iterations_stay_apart(refused):
    @T.prim_func
    def twice(A: T.Buffer((3, 6), "int32"), B: T.Buffer((6,), "int32")):
        for k, x, i in T.grid(3, 2, 5):
            with T.block("B"):
                vk = T.axis.reduce(3, k)
                vi = T.axis.spatial(6, x + i)
                B[vi] = B[vi] + A[vk, vi]

    sch, (_, x, i) = on(twice, "B")
    sch.parallel(i)
    text = refused(sch, lambda: sch.reorder(i, x))
    assert first_line(text).startswith(
        "reorder(i, x): an iteration of loop `i` may use elements of B that another"
    )
    same(sch)
