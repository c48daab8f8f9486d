"""rfactor, decompose_reduction and cascade_reduction refuse what would change the answer."""

from __future__ import annotations

import pytest
from same_answer_programs import Named, first_line, late, on, same, started_again

from tilewright import te, tir
from tilewright.script import tir as T


def test_rfactor_counts_from_the_start_of_the_loop():
    @T.prim_func
    def later(A: T.Buffer((4, 6), "int32"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            for k in range(2, 6):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    vk = T.axis.reduce((2, 6), k)
                    with T.init():
                        B[vi] = 0
                    B[vi] = B[vi] + A[vi, vk]

    sch, (_, k) = on(later, "B")
    sch.rfactor(k)
    same(sch)


def test_what_a_reduction_iterator_chooses_is_no_reduction(refused):
    @T.prim_func
    def column(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6,), "int32")):
        for i, j in T.grid(4, 6):
            with T.block("B"):
                vi, vj = T.axis.remap("RR", [i, j])
                with T.init():
                    B[vj] = 0
                B[vj] = B[vj] + A[vi, vj]

    sch, (i, _) = on(column, "B")
    of = Named(sch)
    why = "reduction iterator `vj` of block B selects the element of B that is written"
    for step in (lambda: sch.rfactor(i), lambda: sch.decompose_reduction(of.B, i)):
        assert first_line(refused(sch, step)).endswith(why)


def test_what_te_calls_commutative_needs_no_order():
    pick = te.comm_reducer(
        lambda x, y: (tir.Select(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
        lambda a, b: (tir.const(-1, a), te.min_value(b)),
        name="pick",
    )
    at, value = te.placeholder((4, 6), "int32", name="at"), te.placeholder((4, 6), "int32", name="value")
    k = te.reduce_axis((0, 6), "k")
    best = te.compute((4,), lambda i: pick((at[i, k], value[i, k]), axis=k), name="best")
    sch, (_, loop) = on(te.create_prim_func([at, value, *best]), "best")
    _, ki = sch.split(loop, [None, 3])
    sch.rfactor(ki)


def test_the_init_stays_where_elements_are_started_again(expect, refused):
    sch, (i, j, _k) = on(started_again, "B")
    of = Named(sch)
    expect(
        refused(sch, lambda: sch.decompose_reduction(of.B, i)),
        """
        decompose_reduction(B, loop=i): points of block B that differ in iterator `vi` may write the same elements of B, and decompose_reduction could change their order
          at test_same_answer_reductions.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: let each point write elements of its own, or declare the iterator as that of a reduction
        """,
    )


def test_the_init_is_not_seen_sooner(expect, refused):
    @T.prim_func
    def before(A: T.Buffer((4, 6), "int32"), B: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[3 - vi]
            for k in range(6):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = 0
                    B[vi] = B[vi] + A[vi, vk]

    sch, (i, k) = on(before, "B")
    of = Named(sch)
    expect(
        refused(sch, lambda: sch.decompose_reduction(of.B, i)),
        """
        decompose_reduction(B, loop=i): block C also uses B in loop `i`, and would see the init of block B too early
          at test_same_answer_reductions.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: choose a loop further inside, or move that block away first
        """,
    )
    sch.decompose_reduction("B", k)
    same(sch)


def test_an_update_that_reads_other_elements_is_a_read(refused):
    @T.prim_func
    def crossed(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
        for i, k in T.grid(4, 4):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vi, vk] * B[vk]

    sch, (i, k) = on(crossed, "B")
    of = Named(sch)
    text = refused(sch, lambda: sch.decompose_reduction(of.B, i))
    assert first_line(text).endswith(
        "block B reads elements of B other than those that it writes, and would see the init of block B too early"
    )


def test_cascade_does_not_make_an_init_run(refused):
    sch, (_, k) = on(late, "B")
    text = refused(sch, lambda: sch.cascade_reduction(k))
    assert first_line(text).endswith("where the init runs, which cascade_reduction relies on")


def test_cascade_keeps_elements_that_a_reduction_iterator_chooses(refused):
    @T.prim_func
    def chosen(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for k in range(4):
            with T.block("B"):
                vk = T.axis.reduce(4, k)
                with T.init():
                    B[vk] = 0
                B[vk] = T.max(B[vk], A[vk])

    sch, (k,) = on(chosen, "B")
    text = refused(sch, lambda: sch.cascade_reduction(k))
    assert first_line(text).endswith(
        "reduction iterator `vk` of block B selects the element of B that is written"
    )


def test_points_that_come_twice_are_started_twice(refused):
    @T.prim_func
    def twice(A: T.Buffer((3, 4), "int32"), B: T.Buffer((4,), "int32")):
        for k, x, i in T.grid(3, 2, 3):
            with T.block("B"):
                vk = T.axis.reduce(3, k)
                vi = T.axis.spatial(4, x + i)
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vk, vi]

    sch, (k, _, _) = on(twice, "B")
    of = Named(sch)
    assert "visits elements of block B more than once" in refused(
        sch, lambda: sch.decompose_reduction(of.B, k)
    )


@pytest.mark.parametrize("step", ["rfactor", "cascade_reduction"])
def test_an_index_by_a_reduction_iterator_that_is_always_the_same(step):
    @T.prim_func
    def steady(A: T.Buffer((2,), "int32"), B: T.Buffer((2,), "int32")):
        for k in range(2):
            with T.block("B"):
                vk = T.axis.reduce(2, k)
                with T.init():
                    B[T.max(vk - 1, 0)] = 5
                B[T.max(vk - 1, 0)] = B[T.max(vk - 1, 0)] + A[vk]

    sch, (k,) = on(steady, "B")
    getattr(sch, step)(k)
    same(sch)


def test_rfactor_of_a_condition_on_a_loop_of_one_iteration():
    @T.prim_func
    def odd(A: T.Buffer((6,), "int32"), B: T.Buffer((1,), "int32")):
        for k_0, k_1, one in T.grid(2, 3, 1):
            with T.block("B"):
                vk = T.axis.reduce(6, k_0 * 3 + k_1)
                T.where(k_0 * 3 + k_1 + one * 8 < 5)
                with T.init():
                    B[0] = 0
                B[0] = B[0] + A[vk]

    sch, (_, k_1, _) = on(odd, "B")
    partial = sch.rfactor(k_1)
    sch.compute_at(partial, sch.get_loops("B")[0])
    same(sch)
