"""Steps that would change the answer of programs that tensor expressions cannot say are refused, each with a reason."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.script import tir as T


@T.prim_func
def read_first(A: T.Buffer((12,), "int32"), B: T.Buffer((12,), "int32"), C: T.Buffer((12,), "int32")):
    for i in range(12):
        with T.block("C"):
            vi = T.axis.spatial(12, i)
            C[vi] = A[vi] + B[11 - vi]
    for i in range(12):
        with T.block("B"):
            vi = T.axis.spatial(12, i)
            B[vi] = A[11 - vi]


@T.prim_func
def strided(A: T.Buffer((8,), "int32"), B: T.Buffer((16,), "int32"), C: T.Buffer((16,), "int32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[vi * 2] = A[vi]
    for i in range(16):
        with T.block("C"):
            vi = T.axis.spatial(16, i)
            C[vi] = B[vi]


@T.prim_func
def scattered(A: T.Buffer((8,), "int32"), X: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[X[vi]] = A[vi]


@T.prim_func
def diagonal(A: T.Buffer((4,), "int32"), B: T.Buffer((4, 4), "int32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi, vi] = A[vi]


@T.prim_func
def sometimes(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            if A[vi] > 0:
                B[vi] = A[vi]


@T.prim_func
def triangle(A: T.Buffer((8, 8), "int32"), D: T.Buffer((8,), "int32")):
    C = T.alloc_buffer((8, 8), "int32")
    for i, j in T.grid(8, 8):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = A[vi, vj] * 2
    for i in range(8):
        for j in range(i + 1):
            with T.block("D"):
                vi = T.axis.spatial(8, i)
                vj = T.axis.reduce(8, j)
                with T.init():
                    D[vi] = 0
                D[vi] = D[vi] + C[vi, vj]


@T.prim_func
def overlap(A: T.Buffer((4, 6), "int32"), B: T.Buffer((9,), "int32")):
    for i, j in T.grid(4, 6):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi + vj] = A[vi, vj]


@T.prim_func
def horner(A: T.Buffer((4, 6), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 6):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] * 2 + A[vi, vk]


@T.prim_func
def first_largest(A: T.Buffer((4, 6), "int32"), I: T.Buffer((4,), "int32"), V: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 6):
        with T.block("V"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                I[vi] = -1
                V[vi] = -1000
            I[vi] = T.Select(V[vi] >= A[vi, vk], I[vi], vk)
            V[vi] = T.max(V[vi], A[vi, vk])


@T.prim_func
def least_index(A: T.Buffer((4, 6), "int32"), I: T.Buffer((4,), "int32"), V: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 6):
        with T.block("V"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                I[vi] = -1
                V[vi] = -1000
            I[vi] = T.Select(V[vi] > A[vi, vk] or (V[vi] == A[vi, vk] and I[vi] <= vk), I[vi], vk)
            V[vi] = T.max(V[vi], A[vi, vk])


@T.prim_func
def late(A: T.Buffer((4, 6), "int32"), B: T.Buffer((4,), "int32")):
    """The init never runs: the reduction iterator is nowhere at its start."""
    for i in range(4):
        for k in range(5):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(6, k + 1)
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def started_again(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6,), "int32")):
    """Each i starts all of the reductions anew."""
    for i, j, k in T.grid(4, 6, 3):
        with T.block("B"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                B[vj] = 0
            B[vj] = B[vj] + A[vi, vj]


def on(func, name):
    sch = tir.Schedule(func)
    return sch, sch.get_loops(name)


class Named:
    """The blocks of a schedule by their names, told before a step so that the trace has the step alone."""

    def __init__(self, sch):
        for block in sch.get_child_blocks(sch.get_block("root")):
            setattr(self, block.name, block)


def same(sch):
    """The schedule computes what its origin does, also where many elements are equal."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        arrays = [
            rng.integers(0, 3, [int(n) for n in b.shape]).astype("int32")
            for b in sch.origin["main"].buffer_params()
        ]
        assert sch.verify(arrays=arrays)


def first_line(text):
    return text.splitlines()[0]


# ---------------------------------------------------------------------------- memory
def test_the_reader_of_a_cache_comes_after_its_writer(expect, refused):
    sch, _ = on(read_first, "B")
    of = Named(sch)
    expect(
        refused(sch, lambda: sch.cache_write(of.B, 0, "global", consumer_blocks=[of.C])),
        """
        cache_write(B, write_buffer_index=0, storage_scope='global', consumer_blocks=[C]): block C reads B before block B writes it, so the other memory does not hold it yet
          at test_same_answer.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: leave block C away from consumer_blocks: it reads B itself
        """,
    )
    sch.cache_write("B", 0, "global")
    same(sch)


def test_the_reader_of_a_cache_finds_all_of_it_written(expect, refused):
    @T.prim_func
    def half(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi]

    sch, _ = on(half, "B")
    of = Named(sch)
    expect(
        refused(sch, lambda: sch.cache_write(of.B, 0, "global", consumer_blocks=[of.C])),
        """
        cache_write(B, write_buffer_index=0, storage_scope='global', consumer_blocks=[C]): block C may read elements of B that block B does not write, and the other memory does not hold these
          at test_same_answer.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: leave block C away from consumer_blocks: it reads B itself
        """,
    )
    sch.cache_write("B", 0, "global")
    same(sch)


@pytest.mark.parametrize("func", [strided, scattered, diagonal, sometimes])
def test_only_what_was_written_is_copied_back(refused, func):
    sch, _ = on(func, "B")
    of = Named(sch)
    text = refused(sch, lambda: sch.cache_write(of.B, 0, "global"))
    assert first_line(text) == (
        "cache_write(B, write_buffer_index=0, storage_scope='global'): there is no telling which elements of B have been "
        "written where they would be copied"
    )


def test_a_copy_is_made_anew_where_its_source_is_written_anew(expect, refused):
    @T.prim_func
    def in_turn(A: T.Buffer((8,), "int32"), B: T.Buffer((9,), "int32"), C: T.Buffer((8,), "int32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi]
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi + 1] = A[vi]

    sch, _ = on(in_turn, "C")
    of = Named(sch)
    expect(
        refused(sch, lambda: sch.cache_read(of.C, 0, "global")),
        """
        cache_read(C, read_buffer_index=0, storage_scope='global'): block B writes B in loop `i`, in which block C reads it, and the copy stands outside of that loop
          at test_same_answer.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: cache_inplace is for what is read and written in turn; or move the writer out of the loop
        """,
    )


def test_a_reduction_that_goes_on_is_not_cached(refused):
    sch, _ = on(late, "B")
    of = Named(sch)
    why = "the loops of block B do not come to the first values of its reduction iterators first, where the init runs, which "
    text = refused(sch, lambda: sch.cache_write(of.B, 0, "global"))
    assert first_line(text).endswith(f": {why}the other memory takes for granted")
    text = refused(sch, lambda: sch.reindex(of.B, ("write", 0)))
    assert first_line(text).endswith(f": {why}the copy takes for granted")


# ---------------------------------------------------------------------------- domains
def test_a_triangle_stays_one(expect, refused):
    sch, (loop, _) = on(triangle, "C")
    of, (_, j) = Named(sch), sch.get_loops("D")
    expect(
        refused(sch, lambda: sch.reverse_compute_at(of.D, loop)),
        """
        reverse_compute_at(D, loop=i): the bounds of loop `j` depend on `i`, so that block D does not run at all points of its iterators, which computing it again would make it do
          at test_same_answer.py:LINE

          | …
          |         for j in range(i + 1):    # <-- here
          | …

          hint: write the loop to its end, with the condition in the value that the block stores
        """,
    )
    expect(
        refused(sch, lambda: sch.rfactor(j)),
        """
        rfactor(j): the bounds of loop `j` depend on `i`, so that the partial results are no box of places
          at test_same_answer.py:LINE

          | …
          |         for j in range(i + 1):    # <-- here
          | …

          hint: write the loop to its end, with the condition in the value that is combined
        """,
    )


def test_compute_at_of_a_triangle(refused):
    @T.prim_func
    def summed(A: T.Buffer((8, 8), "int32"), E: T.Buffer((8,), "int32")):
        D = T.alloc_buffer((8,), "int32")
        for i in range(8):
            for j in range(i + 1):
                with T.block("D"):
                    vi = T.axis.spatial(8, i)
                    vj = T.axis.reduce(8, j)
                    with T.init():
                        D[vi] = 0
                    D[vi] = D[vi] + A[vi, vj]
        for i in range(8):
            with T.block("E"):
                vi = T.axis.spatial(8, i)
                E[vi] = D[vi]

    sch, (loop,) = on(summed, "E")
    of = Named(sch)
    text = refused(sch, lambda: sch.compute_at(of.D, loop))
    assert first_line(text) == (
        "compute_at(D, loop=i): the bounds of loop `j` depend on `i`, so that block D does not run at all points of its "
        "iterators, which computing it again would make it do"
    )


def test_points_that_the_loops_leave_out_are_not_inlined(refused):
    @T.prim_func
    def part(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((8,), "int32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] * 2
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(8, i * 2)
                C[vi] = B[vi]

    sch, _ = on(part, "C")
    of = Named(sch)
    text = refused(sch, lambda: sch.reverse_compute_inline(of.C))
    assert (
        "there is no telling that the loops around block C come to all points of its iterators"
        in first_line(text)
    )


def test_a_consumer_of_a_stride_keeps_its_points(refused):
    sch, (loop,) = on(strided, "B")
    of = Named(sch)
    text = refused(sch, lambda: sch.reverse_compute_at(of.C, loop))
    assert "block C has points that read nothing of B" in first_line(text)


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
    why = "reduction iterator `vj` of block B says which element of B is written"
    for step in (lambda: sch.rfactor(i), lambda: sch.decompose_reduction(of.B, i)):
        assert first_line(refused(sch, step)).endswith(why)


# ---------------------------------------------------------------------------- order
def test_overlapping_writes_keep_their_order(expect, refused):
    sch, (i, j) = on(overlap, "B")
    of = Named(sch)
    expect(
        refused(sch, lambda: sch.reorder(j, i)),
        """
        reorder(j, i): iterations of loop `i` may write the same elements of B (block B)
          at test_same_answer.py:LINE

          | …
          |     for i, j in T.grid(4, 6):    # <-- here
          | …

          hint: leave loop `i` where it stands
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
        decompose_reduction(B, loop=i): points of block B that differ in iterator `vi` may write the same elements of B, and taking the init out could change their order
          at test_same_answer.py:LINE

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
        decompose_reduction(B, loop=i): block C uses B in loop `i` too, and would see the init of block B sooner
          at test_same_answer.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: choose a loop further inside, or move that block away first
        """,
    )
    sch.decompose_reduction("B", k)
    same(sch)


def test_threads_around_steps_that_change_what_they_read(expect, refused):
    @T.prim_func
    def swapped(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
        for t, i in T.grid(4, 4):
            with T.block("A"):
                vt, vi = T.axis.remap("SS", [t, i])
                A[vt, vi] = B[vt, vi] - A[vi, vt]

    sch, (t, _) = on(swapped, "A")
    expect(
        refused(sch, lambda: sch.launch_around(t, "threadIdx.x", 4)),
        """
        launch_around(t, thread_axis='threadIdx.x', extent=4): block A may read elements of A that it or a later block overwrites, and the steps are taken once for each thread
          at test_same_answer.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: threads can live around the steps of a scan, each of which reads what earlier ones wrote
        """,
    )


def test_a_reader_does_not_move_behind_a_later_writer(expect, refused):
    sch, _ = on(read_first, "C")
    of = Named(sch)
    (loop,) = sch.get_loops("B")
    expect(
        refused(sch, lambda: sch.reverse_compute_at(of.C, loop)),
        """
        reverse_compute_at(C, loop=i): block B writes what block C has read before, and there it would see the new values
          at test_same_answer.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: cache_read for block C first, so that it reads a copy
        """,
    )


def test_memory_that_iterations_hand_on_stays_outside_of_blocks():
    @T.prim_func
    def handed_on(A: T.Buffer((4, 4), "int32"), C: T.Buffer((4,), "int32")):
        W = T.alloc_buffer((4,), "int32")
        for s in range(4):
            for i in range(4 - s):
                with T.block("W"):
                    vs = T.axis.spatial(4, s)
                    vi = T.axis.spatial(4, i)
                    W[vi] = A[vs, vi]
            with T.block("C"):
                vs = T.axis.spatial(4, s)
                C[vs] = W[3]

    sch, _ = on(handed_on, "C")
    sch.blockize(["W", "C"])
    same(sch)


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


# ---------------------------------------------------------------------------- blocks
def test_a_block_around_does_not_make_an_init_run(refused):
    sch, (_, k) = on(late, "B")
    text = refused(sch, lambda: sch.blockize(k))
    assert first_line(text) == (
        "blockize(k): the loops of block B do not come to the first values of its reduction iterators first, where the "
        "init runs, which blockize takes for granted"
    )


def test_memory_of_one_iteration_stays_inside_of_a_block_around():
    @T.prim_func
    def unread(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32")):
        W = T.alloc_buffer((4,), "int32")
        for i, j in T.grid(4, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                W[vi] = A[vi, vj]
                B[vi, vj] = A[vj, vi]

    sch, (_, j) = on(unread, "B")
    sch.parallel(j)
    sch.blockize(j)
    same(sch)


def test_the_iterators_of_a_block_inside_have_domains(refused):
    sch, (i, _) = on(triangle, "D")
    text = refused(sch, lambda: sch.blockize(i))
    assert first_line(text) == (
        "blockize(i): the bounds of a loop depend on `i`, so that iterator `vj_i` of the block inside would have no domain"
    )


def test_a_copy_back_inside_of_a_block_writes_what_the_block_does(refused):
    @T.prim_func
    def first_column(A: T.Buffer((4, 4), "int32")):
        for _ in range(2):
            for i in range(4):
                with T.block("A"):
                    vi = T.axis.spatial(4, i)
                    A[vi, 0] = A[3 - vi, vi] + 1

    sch, (_, i) = on(first_column, "A")
    sch.blockize(i)
    inner = sch.get_block("A")
    text = refused(sch, lambda: sch.cache_inplace(inner, 0, "global"))
    assert "the copy back would write more of A than block A_o says it writes" in first_line(text)


# ---------------------------------------------------------------------------- who writes what is copied
def test_the_block_itself_may_write_what_others_read_copies_of():
    @T.prim_func
    def in_turn(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
        for s in range(4):
            for i in range(4):
                with T.block("A"):
                    vs, vi = T.axis.remap("SS", [s, i])
                    A[vs, vi] = A[vs, 3 - vi] - B[vi]
            with T.block("B"):
                vs = T.axis.spatial(4, s)
                B[vs] = A[vs, 3]

    sch, _ = on(in_turn, "A")
    of = Named(sch)
    sch.cache_read(of.A, 0, "local", [of.B])
    same(sch)


def test_a_copy_of_what_several_blocks_make(refused):
    @T.prim_func
    def halves(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
        B = T.alloc_buffer((4,), "int32")
        for i in range(2):
            with T.block("B0"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
        for i in range(2):
            with T.block("B1"):
                vi = T.axis.spatial(4, i)
                B[vi + 1] = A[vi]
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[T.min(vi, 2)]

    sch, _ = on(halves, "C")
    of = Named(sch)
    assert "there is no telling which elements of B" in refused(
        sch, lambda: sch.cache_read(of.C, 0, "global")
    )


def test_an_init_whose_element_a_reduction_iterator_chooses_starts_one(refused):
    @T.prim_func
    def rows(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for i, k in T.grid(4, 3):
            with T.block("B"):
                vi, vk = T.axis.remap("RR", [i, k])
                with T.init():
                    B[vi] = 0
                if A[vi] > 0:
                    B[vi] = B[vi] + vk

    sch, _ = on(rows, "B")
    of = Named(sch)
    why = refused(sch, lambda: sch.cache_write(of.B, 0, "global"))
    assert "reduction iterator `vi` of block B says which element of B is written" in why


def test_an_init_that_reads_its_own_element_is_a_read(refused):
    @T.prim_func
    def on_from(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                with T.init():
                    B[vi] = B[vi]
                B[vi] = A[vi] - B[vi]

    sch, (i,) = on(on_from, "B")
    assert [r.buffer.name for r in sch.get(sch.get_block("B")).reads] == ["B", "A"]
    assert "the steps are taken once for each thread" in refused(
        sch, lambda: sch.launch_around(i, "threadIdx.x", 4)
    )


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
        "block B reads B at other places than it writes, and would see the init of block B sooner"
    )


# ---------------------------------------------------------------------------- points and steps
def test_what_a_copy_reads_of_a_parameter_may_have_been_there_before(refused):
    @T.prim_func
    def part(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
        for t in range(2):
            for i in range(3):
                with T.block("B"):
                    vt = T.axis.spatial(2, t)
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi] + vt
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi]

    sch, (t, _) = on(part, "B")
    of = Named(sch)
    assert "block C has points that read nothing of B" in refused(
        sch, lambda: sch.reverse_compute_at(of.C, t)
    )


def test_cascade_does_not_make_an_init_run(refused):
    sch, (_, k) = on(late, "B")
    text = refused(sch, lambda: sch.cascade_reduction(k))
    assert first_line(text).endswith("where the init runs, which cascade_reduction takes for granted")


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
    assert first_line(text).endswith("reduction iterator `vk` of block B says which element of B is written")


def test_threads_around_a_reduction_that_goes_on(refused):
    sch, (i, _) = on(late, "B")
    text = refused(sch, lambda: sch.launch_around(i, "threadIdx.x", 4))
    assert first_line(text).endswith("which launching threads around it takes for granted")


def test_the_memory_of_a_cache_does_not_hold_what_an_update_reads_elsewhere(refused):
    @T.prim_func
    def ahead(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
        for i, k in T.grid(4, 4):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vi, vk] * B[vk]

    sch, _ = on(ahead, "B")
    of = Named(sch)
    text = refused(sch, lambda: sch.cache_write(of.B, 0, "global"))
    assert first_line(text).endswith("block B reads B too, which the other memory does not hold yet")


# ---------------------------------------------------------------------------- padding, reindexing, regions
def test_regions_of_loops_that_depend_on_loops_that_depend_on_loops():
    @T.prim_func
    def nested(A: T.Buffer((12,), "int32"), B: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = 0
                for x in range(3):
                    for y in range(x + 1):
                        for z in range(y + 1):
                            B[vi] = B[vi] + A[vi + z]

    sch, _ = on(nested, "B")
    (region,) = (r for r in sch.get(sch.get_block("B")).reads if r.buffer.name == "A")
    assert int(region.region[0].extent) == 3
    sch.cache_read("B", "A", "global")
    same(sch)


def test_a_diagonal_is_not_padded(refused):
    @T.prim_func
    def traced(A: T.Buffer((5, 5), "int32"), B: T.Buffer((5, 5), "int32")):
        for i, k in T.grid(5, 5):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi, vi] = 0
                B[vi, vi] = B[vi, vi] + A[vi, vk]

    sch, _ = on(traced, "B")
    of = Named(sch)
    text = refused(sch, lambda: sch.pad_einsum(of.B, [4, 4]))
    assert first_line(text) == (
        "pad_einsum(B, padding=[4, 4]): the elements of B that block B writes are no box, and a box is copied back from "
        "the padded buffer"
    )


def test_padding_is_not_filled_over_what_another_point_wrote(refused):
    @T.prim_func
    def halved(A: T.Buffer((6,), "int32"), B: T.Buffer((6,), "int32")):
        for i in range(6):
            with T.block("B"):
                vi = T.axis.spatial(6, i)
                B[vi // 2] = T.if_then_else(vi >= 1 and vi < 5, A[vi - 1], 0)

    sch, (i,) = on(halved, "B")
    of = Named(sch)
    text = refused(sch, lambda: sch.decompose_padding(of.B, i))
    assert "points of block B that differ in iterator `vi` may write the same elements of B" in first_line(
        text
    )


def test_an_init_has_no_values_of_reduction_iterators(refused):
    @T.prim_func
    def from_there(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4,), "int32")):
        for i, k in T.grid(4, 4):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = A[vi, vi]
                B[vi] = B[vi] + A[vi, vi] * vk

    sch, _ = on(from_there, "B")
    of = Named(sch)
    text = refused(sch, lambda: sch.reindex_cache_read(of.B, 0, "global", lambda i, k: (i, k)))
    assert first_line(text).endswith(
        "the init of block B reads A, for which reduction iterator `vk` has no value"
    )


def test_memory_that_nobody_wrote_is_not_copied(refused):
    @T.prim_func
    def unwritten(A: T.Buffer((4,), "int32"), B: T.Buffer((4,), "int32")):
        W = T.alloc_buffer((4,), "int32")
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                if vi < 0:
                    B[vi] = W[vi] + A[vi]

    sch, _ = on(unwritten, "B")
    of = Named(sch)
    text = refused(sch, lambda: sch.cache_read(of.B, "W", "global"))
    assert "there is no telling which elements of W have been written" in first_line(text)


# ---------------------------------------------------------------------------- loops inside of blocks
@pytest.mark.parametrize("step", [1, 2])
def test_a_loop_of_the_block_fills_a_box_or_does_not(refused, step):
    @T.prim_func
    def filled(A: T.Buffer((4,), "int32"), B: T.Buffer((4, 8), "int32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                for k in range(4):
                    B[vi, k * step] = A[vi] + k

    sch, _ = on(filled, "B")
    of = Named(sch)
    if step == 2:
        text = refused(sch, lambda: sch.cache_write(of.B, 0, "global"))
        assert "there is no telling which elements of B have been written" in first_line(text)
    else:
        sch.cache_write(of.B, 0, "global")
        same(sch)


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
    assert "comes to elements of block B more than once" in refused(
        sch, lambda: sch.decompose_reduction(of.B, k)
    )
