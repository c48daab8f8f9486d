"""Steps that would change the result, as random schedules found them: what is said, and what is legal instead."""

from __future__ import annotations

import pytest
from schedule_programs import arrays, matmul

import tilewright as tvm
from tilewright import te, tir
from tilewright.script import tir as T


def program(*stages):
    """A chain of computes over one input; a stage is a shape and a function of the tensor before."""
    x = first = te.placeholder((6, 4), name="A")
    for i, (shape, body) in enumerate(stages):
        x = te.compute(shape, lambda *v, x=x, body=body: body(x, *v), name="BCDE"[i])
    return te.create_prim_func([first, x])


def doubled(x, *v):
    return x(*v) * 2


def said(sch, refused, step, block, *args):
    handle = sch.get_block(block)
    return refused(sch, lambda: getattr(sch, step)(handle, *args))


# ---------------------------------------------------------------------------- reverse_compute_at
def test_a_window_reaches_into_other_iterations(expect, refused):
    sch = tir.Schedule(program(((6, 4), doubled), ((5, 4), lambda x, i, j: x[i, j] + x[i + 1, j])))
    i, j = sch.get_loops("B")
    expect(
        said(sch, refused, "reverse_compute_at", "C", i),
        """
        reverse_compute_at(C, loop=i0): block C reads elements of B that an iteration of loop `i0` does not make
          at test_legality.py:LINE

          | …
          |     for i0, i1 in T.grid(6, 4):    # <-- here
          | …

          hint: choose an outer loop, or bring the producer to it with compute_at
        """,
    )


def test_an_iteration_that_a_condition_leaves_out_makes_nothing(expect, refused):
    sch = tir.Schedule(program(((6, 4), doubled), ((6, 4), doubled)))
    i, j = sch.get_loops("B")
    i0, i1 = sch.split(i, [3, None])
    i2, i3 = sch.split(i1, [None, 4])  # four iterations for two
    expect(
        said(sch, refused, "reverse_compute_at", "C", i3),
        """
        reverse_compute_at(C, loop=i0_1_1): block C reads elements of B that an iteration of loop `i0_1_1` does not make
          at test_legality.py:LINE

          | …
          |     for i0_0, i0_1_0, i0_1_1, i1 in T.grid(3, 1, 4, 4):    # <-- here
          | …

          hint: choose an outer loop, or bring the producer to it with compute_at
        """,
    )
    sch.reverse_compute_at("C", i2)
    assert sch.verify()


def test_a_part_of_a_fused_loop_is_no_box(expect, refused):
    sch = tir.Schedule(program(((6, 4), doubled), ((6, 4), doubled)))
    outer, inner = sch.split(sch.fuse(*sch.get_loops("B")), [None, 6])
    expect(
        said(sch, refused, "reverse_compute_at", "C", outer),
        """
        reverse_compute_at(C, loop=i0_i1_fused_0): block C reads elements of B that an iteration of loop `i0_i1_fused_0` does not make
          at test_legality.py:LINE

          | …
          |     for i0_i1_fused_0, i0_i1_fused_1 in T.grid(4, 6):    # <-- here
          | …

          hint: choose an outer loop, or bring the producer to it with compute_at
        """,
    )
    sch.reverse_compute_at("C", inner)
    assert sch.verify()


# ---------------------------------------------------------------------------- iterations at once
def overlapping():
    sch = tir.Schedule(
        program(((6, 4), doubled), ((5, 4), lambda x, i, j: x[i, j] + x[i + 1, j]), ((5, 4), doubled))
    )
    i, j = sch.get_loops("C")
    sch.compute_at("B", i)
    return sch, i


def test_overlapping_parts_are_fine_as_long_as_they_live_inside():
    sch, i = overlapping()
    sch.parallel(i)
    assert sch.verify()


def test_a_reader_may_not_leave_a_parallel_loop_whose_memory_it_reads(expect, refused):
    A = te.placeholder((6,), name="A")
    X = te.placeholder((5,), "int32", name="X")
    B = te.compute((6,), lambda i: A[i] * 2, name="B")
    C = te.compute((5,), lambda i: B[i] + B[i + 1], name="C")
    D = te.compute((5,), lambda i: C[X[i]], name="D")
    sch = tir.Schedule(te.create_prim_func([A, X, D]))
    (i,) = sch.get_loops("C")
    sch.compute_at("B", i)
    sch.parallel(i)
    (j,) = sch.get_loops("D")
    expect(
        said(sch, refused, "compute_at", "C", j),
        """
        compute_at(C, loop=i): iterations of loop `i` may write the same elements of B (block B)
          at test_legality.py:LINE

          | …

          hint: keep every block that uses the buffer inside loop `i`, where each iteration has a copy of its own, or apply this step before the loop is marked
        """,
    )
    expect(
        said(sch, refused, "compute_inline", "C"),
        """
        compute_inline(C): iterations of loop `i` may write the same elements of B (block B)
          at test_legality.py:LINE

          | …

          hint: keep every block that uses the buffer inside loop `i`, where each iteration has a copy of its own, or apply this step before the loop is marked
        """,
    )


def test_a_block_that_does_not_depend_on_a_parallel_loop(expect, refused):
    A = te.placeholder((6, 4), name="A")
    X = te.placeholder((4,), name="X")
    B = te.compute((6, 4), lambda i, j: A[i, j] + X[j], name="B")
    sch = tir.Schedule(te.create_prim_func([A, X, B]))
    i, j = sch.get_loops("B")
    copy = sch.cache_read("B", "X", "global")
    sch.compute_at(copy, i)
    sch.parallel(i)
    _, ax0 = sch.get_loops(copy)
    expect(
        said(sch, refused, "reverse_compute_at", "B", ax0),
        """
        reverse_compute_at(B, loop=ax0): loop `i` drives no iterator of block B, so all its iterations write the same place
          at test_legality.py:LINE

          | …

          hint: leave loop `i` serial
        """,
    )


def test_iterations_that_write_the_same(expect, refused):
    @T.prim_func
    def shifted(A: T.Buffer((8,), "int32"), B: T.Buffer((8,), "int32")):
        for i, j in T.grid(4, 5):
            with T.block("B"):
                vi = T.axis.spatial(8, i + j)
                B[vi] = A[vi]

    sch = tir.Schedule(shifted)
    i, j = sch.get_loops("B")
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): iterations of loop `i` may write the same elements of B (block B)
          at test_legality.py:LINE

          | …
          |     for i, j in T.grid(4, 5):    # <-- here
          | …

          hint: leave loop `i` serial, or parallel(j)
        """,
    )
    sch.parallel(j)


def test_parts_of_a_fused_loop_are_told_apart(agree):
    @T.prim_func
    def copied(A: T.Buffer((6, 10), "int32"), B: T.Buffer((6, 10), "int32")):
        for i, j in T.grid(6, 10):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]

    sch = tir.Schedule(copied)
    outer, inner = sch.split(sch.fuse(*sch.get_loops("B")), [None, 32])
    sch.parallel(outer)
    sch.vectorize(inner)
    assert sch.verify()


# ---------------------------------------------------------------------------- reductions
def test_loops_of_both_kinds_keep_their_order(expect, refused):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    fused = sch.fuse(j, k)
    outer, inner = sch.split(fused, [None, 4])
    expect(
        refused(sch, lambda: sch.reorder(inner, outer)),
        """
        reorder(j_k_fused_1, j_k_fused_0): loop `j_k_fused_0` drives spatial and reduction iterators of block C alike, so its order must stay
          at test_legality.py:LINE

          | …
          |     for i, j_k_fused_0, j_k_fused_1 in T.grid(7, 8, 4):    # <-- here
          | …

          hint: decompose_reduction first, or do not fuse the reduction with other loops
        """,
    )


def test_a_loop_that_computes_anew_stays_outside_of_the_reduction(expect, refused):
    k = te.reduce_axis((0, 4), "k")
    A = te.placeholder((6, 4), name="A")
    B = te.compute((6,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((3, 6), lambda i, j: B[j] + i.astype("float32"), name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    i, j = sch.get_loops("C")
    sch.compute_at("B", i)
    i, ax0, ax1 = sch.get_loops("B")
    expect(
        said(sch, refused, "decompose_reduction", "B", i),
        """
        decompose_reduction(B, loop=i): loop `i` visits elements of block B more than once, and the init must run before each visit
          at test_legality.py:LINE

          | …
          |     for i in range(3):    # <-- here
          | …

          hint: decompose at `ax1`
        """,
    )
    sch.reorder(ax1, ax0)
    sch.decompose_reduction("B", ax1)
    assert sch.verify()


def test_rfactor_where_a_condition_ties_loops_together(expect, refused):
    A = te.placeholder((4, 3), name="A")
    k = te.reduce_axis((0, 3), "k")
    B = te.compute((4, 1), lambda i, j: te.sum(A[i, j + k], axis=k), name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    fused = sch.fuse(*sch.get_loops("B"))
    a, b, c = sch.split(fused, [None, 3, 3])
    expect(
        refused(sch, lambda: sch.rfactor(c)),
        """
        rfactor(i_j_k_fused_2): the condition `(i_j_k_fused_0 * 3 + i_j_k_fused_1) * 3 + i_j_k_fused_2 < 12` uses both spatial and reduction loops
          at test_legality.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: apply rfactor before the reduction is fused with other loops, or split by a factor that divides the extent
        """,
    )


def test_rfactor_keeps_conditions_on_loops_that_drive_nothing():
    A = te.placeholder((1,), name="A")
    k = te.reduce_axis((0, 1), "k")
    B = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, k = sch.get_loops("B")
    i0, i1 = sch.split(i, [None, 2])
    k0, k1 = sch.split(k, [None, 2])
    rf = sch.rfactor(k1)
    assert sch.verify()
    (first, *_) = sch.get_loops("B")
    sch.compute_at(rf, first)
    assert sch.verify()


def test_an_init_before_loops_that_a_condition_ties_to_the_reduction(agree):
    A = te.placeholder((1,), name="A")
    k = te.reduce_axis((0, 1), "k")
    B = te.compute((1,), lambda i: te.sum(A[k], axis=k), name="B")
    func = te.create_prim_func([A, B])
    sch = tir.Schedule(func)
    i, k = sch.get_loops("B")
    k0, k1 = sch.split(k, [None, 2])
    sch.split(k0, [None, 2])
    agree(func, tvm.lower(sch.mod)["main"], *arrays(func))


# ---------------------------------------------------------------------------- inlining and copies
def test_a_consumer_with_more_points_than_its_producer(expect, refused):
    def padded(x, i, j):
        return te.if_then_else(i < 6, x[i, j], tir.const(1, "float32"))

    sch = tir.Schedule(program(((6, 4), doubled), ((8, 4), padded)))
    expect(
        said(sch, refused, "reverse_compute_inline", "C"),
        """
        reverse_compute_inline(C): block C has more points than block B along `v_i0`, and these would not be computed
          at test_legality.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: use reverse_compute_at to compute it close to its producer, or compute_inline on the producer
        """,
    )


def test_a_copy_takes_only_what_was_made(expect):
    def guarded(x, i, j):
        return te.if_then_else(i >= 1, x[i - 1, j], tir.const(3, "float32")) + x[i, j]

    sch = tir.Schedule(program(((6, 4), doubled), ((6, 4), guarded)))
    i, j = sch.get_loops("C")
    sch.compute_at("B", i)
    sch.cache_write("B", 0, "local")
    assert sch.verify()
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def main(A: T.Buffer((6, 4), "float32"), C: T.Buffer((6, 4), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            B = T.alloc_buffer((6, 4))
            B_local = T.alloc_buffer((6, 4), scope="local")
            for i0 in range(6):
                for ax0, ax1 in T.grid(2, 4):
                    with T.block("B"):
                        v_i0 = T.axis.spatial(6, i0 - 1 + ax0)
                        v_i1 = T.axis.spatial(4, ax1)
                        T.where(i0 - 1 + ax0 >= 0)
                        T.reads(A[v_i0, v_i1])
                        T.writes(B_local[v_i0, v_i1])
                        B_local[v_i0, v_i1] = A[v_i0, v_i1] * T.float32(2)
                for ax0, ax1 in T.grid(2, 4):
                    with T.block("B_local"):
                        v0 = T.axis.spatial(6, i0 - 1 + ax0)
                        v1 = T.axis.spatial(4, ax1)
                        T.where(i0 - 1 + ax0 >= 0)
                        T.reads(B_local[v0, v1])
                        T.writes(B[v0, v1])
                        B[v0, v1] = B_local[v0, v1]
                for i1 in range(4):
                    with T.block("C"):
                        v_i0, v_i1 = T.axis.remap("SS", [i0, i1])
                        T.reads(B[v_i0 - 1:v_i0 + 1, v_i1])
                        T.writes(C[v_i0, v_i1])
                        C[v_i0, v_i1] = T.if_then_else(v_i0 >= 1, B[v_i0 - 1, v_i1], T.float32(3)) + B[v_i0, v_i1]
        """,
    )


def test_what_was_made_of_a_fused_loop_cannot_be_copied(expect, refused):
    sch = tir.Schedule(program(((6, 4), doubled), ((6, 4), doubled)))
    outer, inner = sch.split(sch.fuse(*sch.get_loops("C")), [None, 6])
    sch.compute_at("B", outer)
    ax = sch.get_loops("B")[1:]
    sch.fuse(*ax)
    sch.split(sch.get_loops("B")[1], [None, 5])
    sch.cache_write("B", 0, "local")
    assert sch.verify()


def test_data_dependent_reads_take_all_of_the_dimension():
    A = te.placeholder((6,), name="A")
    X = te.placeholder((4,), "int32", name="X")
    B = te.compute((6,), lambda i: A[i] * 2, name="B")
    C = te.compute((4,), lambda i: B[X[i]], name="C")
    D = te.compute((4,), lambda i: C[i] + 1, name="D")
    sch = tir.Schedule(te.create_prim_func([A, X, D]))
    sch.compute_inline("C")
    first, second = sch.get(sch.get_block("D")).reads
    assert [r.extent.value for r in (*first.region, *second.region)] == [6, 1]
    (i,) = sch.get_loops("D")
    sch.split(i, [None, 3])
    sch.compute_at("B", sch.get_loops("D")[0])
    assert sch.verify()


def test_a_map_of_a_copy_to_indices_below_zero(expect, refused):
    sch = tir.Schedule(program(((6, 4), doubled)))
    block = sch.get_block("B")
    step = lambda: sch.reindex_cache_write(block, 0, "global", lambda i, j: (3 - i, j))
    expect(
        refused(sch, step),
        """
        reindex_cache_write(B, write_buffer_index=0, storage_scope='global', index_map=lambda i, j: (3 - i, j)): the map gives indices from -2 on, and they start at 0
          at test_legality.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_split_of_a_tile_of_another_size(factor):
    sch = tir.Schedule(program(((6, 4), doubled), ((5, 4), lambda x, i, j: x[i, j] + x[i + 1, j])))
    i, j = sch.get_loops("C")
    outer, inner = sch.split(i, [None, factor])
    sch.compute_at("B", outer)
    sch.cache_write("B", 0, "local")
    sch.cache_read("C", 0, "shared")
    sch.parallel(outer)
    assert sch.verify()
