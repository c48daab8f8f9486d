"""How loops are run: parallel, vectorize, unroll, bind; and annotations."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_programs import arrays, copy2d, matmul

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.stmt import ForKind
from tilewright.script import tir as T


def loops_of(func, block):
    sch = tir.Schedule(func)
    return sch, sch.get_loops(sch.get_block(block))


def test_marks(expect, agree):
    sch, (i, j) = loops_of(copy2d, "B")
    j_0, j_1 = sch.split(j, [None, 4])
    sch.parallel(i)
    sch.unroll(j_0)
    sch.vectorize(j_1)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i in T.parallel(8):
                for j_0 in T.unroll(3):
                    for j_1 in T.vectorized(4):
                        with T.block("B"):
                            vi = T.axis.spatial(8, i)
                            vj = T.axis.spatial(12, j_0 * 4 + j_1)
                            T.reads(A[vi, vj])
                            T.writes(B[vi, vj])
                            B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_bind(expect, agree):
    sch, (i, j) = loops_of(copy2d, "B")
    j_0, j_1 = sch.split(j, [None, 4])
    sch.bind(i, "blockIdx.x")
    sch.bind(j_0, te.thread_axis("vthread"))
    sch.bind(j_1, te.thread_axis("threadIdx.x"))
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i in T.thread_binding(8, thread="blockIdx.x"):
                for j_0 in T.thread_binding(3, thread="vthread"):
                    for j_1 in T.thread_binding(4, thread="threadIdx.x"):
                        with T.block("B"):
                            vi = T.axis.spatial(8, i)
                            vj = T.axis.spatial(12, j_0 * 4 + j_1)
                            T.reads(A[vi, vj])
                            T.writes(B[vi, vj])
                            B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    agree(copy2d, sch.mod["main"], *arrays(copy2d))


def test_a_mark_given_twice_is_the_same_mark():
    sch, (i, _j) = loops_of(copy2d, "B")
    sch.parallel(i)
    once = sch.mod
    sch.parallel(i)
    assert_structural_equal(sch.mod, once)


def test_the_marks_of_one_loop_exclude_each_other(expect, refused):
    sch, (_i, j) = loops_of(copy2d, "B")
    sch.vectorize(j)
    expect(
        refused(sch, lambda: sch.parallel(j)),
        """
        parallel(j): loop `j` is already marked vectorize
          at test_schedule_marks.py:LINE

          | …
          |         for j in T.vectorized(12):    # <-- here
          | …

          hint: a loop is run in one manner
        """,
    )
    expect(
        refused(sch, lambda: sch.bind(j, "threadIdx.x")),
        """
        bind(j, thread_axis='threadIdx.x'): loop `j` is already marked vectorize
          at test_schedule_marks.py:LINE

          | …
          |         for j in T.vectorized(12):    # <-- here
          | …

          hint: a loop is run in one manner
        """,
    )


@pytest.mark.parametrize("mark", ["vectorize", "parallel", "bind"])
def test_unroll_replaces_another_mark(mark):
    """An unrolled loop runs in order, as a loop without a mark does."""
    sch, (_i, j) = loops_of(copy2d, "B")
    getattr(sch, mark)(j, *(["threadIdx.x"] if mark == "bind" else []))
    sch.unroll(j)
    plain, (_i, other) = loops_of(copy2d, "B")
    plain.unroll(other)
    assert_structural_equal(sch.mod, plain.mod)


def test_reduction_loops_are_refused_with_a_hint(expect, refused):
    sch, (_i, _j, k) = loops_of(matmul, "C")
    expect(
        refused(sch, lambda: sch.parallel(k)),
        """
        parallel(k): loop `k` carries the reduction of block C
          at test_schedule_marks.py:LINE

          | …
          |     for i, j, k in T.grid(7, 6, 5):    # <-- here
          | …

          hint: use rfactor(k) first, or parallel(i)
        """,
    )
    expect(
        refused(sch, lambda: sch.vectorize(k)),
        """
        vectorize(k): loop `k` carries the reduction of block C
          at test_schedule_marks.py:LINE

          | …
          |     for i, j, k in T.grid(7, 6, 5):    # <-- here
          | …

          hint: use rfactor(k) first, or vectorize(i)
        """,
    )
    sch.unroll(k)


def test_a_reduction_loop_may_be_bound_to_threads_but_not_to_blocks(expect, refused):
    sch, (_i, _j, k) = loops_of(matmul, "C")
    expect(
        refused(sch, lambda: sch.bind(k, "blockIdx.x")),
        """
        bind(k, thread_axis='blockIdx.x'): loop `k` carries the reduction of block C
          at test_schedule_marks.py:LINE

          | …
          |     for i, j, k in T.grid(7, 6, 5):    # <-- here
          | …

          hint: use rfactor(k) first, or bind(i)
        """,
    )
    sch.bind(k, "threadIdx.x")
    assert sch.get(k).thread_binding.thread_tag == "threadIdx.x"


def test_a_fused_spatial_and_reduction_loop_is_refused(expect, refused):
    sch, (_i, j, k) = loops_of(matmul, "C")
    fused = sch.fuse(j, k)
    expect(
        refused(sch, lambda: sch.vectorize(fused)),
        """
        vectorize(j_k_fused): loop `j_k_fused` carries the reduction of block C
          at test_schedule_marks.py:LINE

          | …
          |     for i, j_k_fused in T.grid(7, 30):    # <-- here
          | …

          hint: use rfactor(j_k_fused) first, or vectorize(i)
        """,
    )


def test_a_loop_that_drives_nothing_is_refused(expect, refused):
    @T.prim_func
    def again(A: T.Buffer((4,), "int32")):
        for t, i in T.grid(3, 4):  # noqa: B007
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = vi

    sch, (t, _i) = loops_of(again, "A")
    expect(
        refused(sch, lambda: sch.parallel(t)),
        """
        parallel(t): loop `t` drives no iterator of block A, so all its iterations write the same place
          at test_schedule_marks.py:LINE

          | …
          |     for t, i in T.grid(3, 4):    # <-- here
          | …

          hint: leave loop `t` serial, or parallel(i)
        """,
    )
    expect(
        refused(sch, lambda: sch.bind(t, "threadIdx.x")),
        """
        bind(t, thread_axis='threadIdx.x'): loop `t` drives no iterator of block A, so all its iterations write the same place
          at test_schedule_marks.py:LINE

          | …
          |     for t, i in T.grid(3, 4):    # <-- here
          | …

          hint: leave loop `t` serial, or bind(i)
        """,
    )
    sch.unroll(t)


def test_a_loop_that_runs_once_may_be_anything():
    sch, (i, _j, k) = loops_of(matmul, "C")
    u = sch.add_unit_loop(i)
    sch.parallel(u)
    k_0, _k_1 = sch.split(k, [1, 5])
    sch.vectorize(k_0)
    assert [sch.get(x).kind for x in (u, k_0)] == [ForKind.PARALLEL, ForKind.VECTORIZED]


def test_iterators_that_must_run_in_order(expect, refused):
    @T.prim_func
    def ordered(A: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.scan(4, i)
                A[vi] = vi

    sch, (i,) = loops_of(ordered, "A")
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): iterator `vi` of block A must run in order
          at test_schedule_marks.py:LINE

          | …
          |     for i in range(4):    # <-- here
          | …

          hint: leave loop `i` serial
        """,
    )


@pytest.mark.parametrize("axis", ["threadIdx", "threadIdx.w", "blockIdx.1", "thread.x", "x", ""])
def test_unknown_thread_axes(axis, expect, refused):
    sch, (i, _j) = loops_of(copy2d, "B")
    expect(
        refused(sch, lambda: sch.bind(i, axis)).replace(repr(axis), "AXIS"),
        """
        bind(i, thread_axis=AXIS): there is no thread axis AXIS
          at test_schedule_marks.py:LINE

          | …
          |     for i, j in T.grid(8, 12):    # <-- here
          | …

          hint: use blockIdx.x/y/z, threadIdx.x/y/z, clusterCtaIdx.x, or vthread, vthread.x/y/z
        """,
    )


@pytest.mark.parametrize(
    "axis", ["blockIdx.x", "blockIdx.z", "threadIdx.y", "vthread", "vthread.x", "cthread"]
)
def test_known_thread_axes(axis):
    sch, (i, _j) = loops_of(copy2d, "B")
    sch.bind(i, axis)
    assert sch.get(i).thread_binding.thread_tag == axis


def test_one_axis_for_a_loop_and_one_inside_it(expect, refused):
    sch, (i, j) = loops_of(copy2d, "B")
    sch.bind(i, "threadIdx.x")
    expect(
        refused(sch, lambda: sch.bind(j, "threadIdx.x")),
        """
        bind(j, thread_axis='threadIdx.x'): loop `i` around it is bound to threadIdx.x already
          at test_schedule_marks.py:LINE

          | …
          |     for i in T.thread_binding(8, thread="threadIdx.x"):    # <-- here
          | …

          hint: bind this one to another axis
        """,
    )
    sch, (i, j) = loops_of(copy2d, "B")
    sch.bind(j, "threadIdx.x")
    expect(
        refused(sch, lambda: sch.bind(i, "threadIdx.x")),
        """
        bind(i, thread_axis='threadIdx.x'): loop `j` inside it is bound to threadIdx.x already
          at test_schedule_marks.py:LINE

          | …
          |         for j in T.thread_binding(12, thread="threadIdx.x"):    # <-- here
          | …

          hint: bind this one to another axis
        """,
    )


def test_virtual_threads_may_nest():
    sch, (i, j) = loops_of(copy2d, "B")
    sch.bind(i, "vthread")
    sch.bind(j, "vthread")


# ---------------------------------------------------------------------------- iterations that need others
@T.prim_func
def running(A: T.Buffer((9,), "int32")):
    for i in range(8):
        with T.block("A"):
            vi = T.axis.spatial(8, i)
            A[vi + 1] = A[vi] + 1


def test_a_block_that_reads_what_the_iteration_before_wrote(expect, refused):
    sch, (i,) = loops_of(running, "A")
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): an iteration of loop `i` may use elements of A that another one writes (block A)
          at test_schedule_marks.py:LINE

          | …
          |     for i in range(8):    # <-- here
          | …

          hint: leave loop `i` serial
        """,
    )
    refused(sch, lambda: sch.vectorize(i))
    refused(sch, lambda: sch.bind(i, "threadIdx.x"))
    sch.unroll(i)


def test_a_histogram_is_refused(expect, refused):
    @T.prim_func
    def histogram(X: T.Buffer((8,), "int32"), H: T.Buffer((4,), "int32")):
        for i in range(8):
            with T.block("H"):
                vi = T.axis.spatial(8, i)
                T.reads(X[vi], H[0:4])
                T.writes(H[0:4])
                H[X[vi]] = H[X[vi]] + 1

    sch, (i,) = loops_of(histogram, "H")
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): an iteration of loop `i` may use elements of H that another one writes (block H)
          at test_schedule_marks.py:LINE

          | …
          |     for i in range(8):    # <-- here
          | …

          hint: leave loop `i` serial
        """,
    )


def test_in_place_is_fine(agree):
    @T.prim_func
    def twice(A: T.Buffer((4, 8), "int32")):
        for i, j in T.grid(4, 8):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = A[vi, vj] * 2

    sch, (i, j) = loops_of(twice, "A")
    fused = sch.fuse(i, j)
    outer, inner = sch.split(fused, [None, 4])
    sch.parallel(outer)
    sch.vectorize(inner)
    agree(twice, sch.mod["main"], *arrays(twice))


@T.prim_func
def neighbours(A: T.Buffer((10,), "int32"), C: T.Buffer((10,), "int32")):
    B = T.alloc_buffer((12,), "int32")
    for i in range(10):
        with T.block("B"):
            vi = T.axis.spatial(10, i)
            B[vi + 1] = A[vi] + 1
        with T.block("C"):
            vi = T.axis.spatial(10, i)
            T.where(i > 0)
            C[vi] = B[vi] + B[vi + 1]


def test_a_consumer_of_what_other_iterations_made(expect, refused):
    sch, (i,) = loops_of(neighbours, "C")
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): an iteration of loop `i` may use elements of B that another one writes (blocks B and C)
          at test_schedule_marks.py:LINE

          | …
          |     for i in range(10):    # <-- here
          | …

          hint: leave loop `i` serial
        """,
    )


@T.prim_func
def blur(A: T.Buffer((18,), "int32"), C: T.Buffer((16,), "int32")):
    B = T.alloc_buffer((18,), "int32")
    for i in range(4):
        for j in range(6):
            with T.block("B"):
                vj = T.axis.spatial(18, i * 4 + j)
                B[vj] = A[vj] * 2
        for j in range(4):
            with T.block("C"):
                vj = T.axis.spatial(16, i * 4 + j)
                C[vj] = B[vj] + B[vj + 1] + B[vj + 2]


def test_iterations_that_make_all_they_need(agree):
    sch, (i, j) = loops_of(blur, "C")
    sch.parallel(i)
    sch.vectorize(j)
    agree(blur, tvm.lower(sch.mod)["main"], *arrays(blur))


def test_overlapping_parts_of_an_output_are_refused(expect, refused):
    @T.prim_func
    def shown(A: T.Buffer((18,), "int32"), B: T.Buffer((18,), "int32"), C: T.Buffer((16,), "int32")):
        for i in range(4):
            for j in range(6):
                with T.block("B"):
                    vj = T.axis.spatial(18, i * 4 + j)
                    B[vj] = A[vj] * 2
            for j in range(4):
                with T.block("C"):
                    vj = T.axis.spatial(16, i * 4 + j)
                    C[vj] = B[vj] + B[vj + 1] + B[vj + 2]

    sch, (i, _j) = loops_of(shown, "C")
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): an iteration of loop `i` may use elements of B that another one writes (blocks B and C)
          at test_schedule_marks.py:LINE

          | …
          |     for i in range(4):    # <-- here
          | …

          hint: leave loop `i` serial, or parallel(j)
        """,
    )


def test_parts_of_an_output_that_lie_apart():
    @T.prim_func
    def rows(A: T.Buffer((4, 8), "int32"), B: T.Buffer((4, 8), "int32"), C: T.Buffer((4,), "int32")):
        for i in range(4):
            for j in range(8):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj] * 2
            for k in range(8):
                with T.block("C"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        C[vi] = 0
                    C[vi] = C[vi] + B[vi, vk]

    sch, (i, _k) = loops_of(rows, "C")
    sch.parallel(i)
    assert sch.get(i).kind is ForKind.PARALLEL


def test_a_first_iteration_that_others_live_on_is_refused(expect, refused):
    @T.prim_func
    def primed(C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((1,), "int32")
        for i in range(8):
            with T.block("B"):
                vj = T.axis.spatial(1, 0)
                vi = T.axis.spatial(8, i)
                T.where(i < 1)
                B[vj] = vi + 5
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[0] + vi

    sch, (i,) = loops_of(primed, "C")
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): an iteration of loop `i` may use elements of B that another one writes (blocks B and C)
          at test_schedule_marks.py:LINE

          | …
          |     for i in range(8):    # <-- here
          | …

          hint: leave loop `i` serial
        """,
    )


def test_a_running_sum_is_refused(expect, refused):
    @T.prim_func
    def sums(A: T.Buffer((8,), "int32"), C: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((1,), "int32")
        for i in range(8):
            with T.block("B"):
                vi = T.axis.reduce(8, i)
                with T.init():
                    B[0] = 0
                B[0] = B[0] + A[vi]
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[0]

    sch, (i,) = loops_of(sums, "C")
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): loop `i` carries the reduction of block B
          at test_schedule_marks.py:LINE

          | …
          |     for i in range(8):    # <-- here
          | …

          hint: use rfactor(i) first
        """,
    )


def test_statements_outside_of_blocks_are_refused(expect, refused):
    @T.prim_func
    def mixed(A: T.Buffer((4,), "int32"), B: T.Buffer((1,), "int32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = vi
            B[0] = i

    sch, (i,) = loops_of(mixed, "A")
    expect(
        refused(sch, lambda: sch.parallel(i)),
        """
        parallel(i): B is used outside of blocks inside loop `i`, so the dependences between its iterations are not known
          at test_schedule_marks.py:LINE

          | …
          |     for i in range(4):    # <-- here
          | …

          hint: put the statement into a block
        """,
    )


# ---------------------------------------------------------------------------- annotations
def test_annotations_come_and_go(expect):
    sch, (i, _j) = loops_of(copy2d, "B")
    block = sch.get_block("B")
    sch.annotate(i, "pragma_auto_unroll_max_step", 16)
    sch.annotate(block, "note", "x")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i in T.serial(8, annotations={"pragma_auto_unroll_max_step": 16}):
                for j in range(12):
                    with T.block("B"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(A[vi, vj])
                        T.writes(B[vi, vj])
                        T.block_attr({"note": "x"})
                        B[vi, vj] = A[vi, vj] + T.float32(1)
        """,
    )
    sch.unannotate(i, "pragma_auto_unroll_max_step")
    sch.unannotate(block, "note")
    assert_structural_equal(sch.mod["main"], copy2d)


def test_annotations_are_given_once_and_taken_once(expect, refused):
    sch, (i, _j) = loops_of(copy2d, "B")
    sch.annotate(i, "a", 1)
    expect(
        refused(sch, lambda: sch.annotate(i, "a", 2)),
        """
        annotate(i, ann_key='a', ann_val=2): there is an annotation 'a' already
          at test_schedule_marks.py:LINE

          | …
          |     for i in T.serial(8, annotations={"a": 1}):    # <-- here
          | …

          hint: unannotate it first
        """,
    )
    expect(
        refused(sch, lambda: sch.unannotate(i, "b")),
        """
        unannotate(i, ann_key='b'): there is no annotation 'b'; there are: a
          at test_schedule_marks.py:LINE

          | …
          |     for i in T.serial(8, annotations={"a": 1}):    # <-- here
          | …
        """,
    )
    block = sch.get_block("B")
    expect(
        refused(sch, lambda: sch.unannotate(block, "b")),
        """
        unannotate(B, ann_key='b'): there is no annotation 'b'; there are: none
          at test_schedule_marks.py:LINE

          | …
          |             with T.block("B"):    # <-- here
          | …
        """,
    )


def test_annotations_may_be_numbers_texts_and_lists():
    sch, (_i, j) = loops_of(copy2d, "B")
    for n, value in enumerate([1, 2.5, "x", [1, 2], tir.const(3)]):
        sch.annotate(j, f"k{n}", value)
    assert sch.get(j).annotations["k3"] == [1, 2]


def test_vectorized_extents_need_not_be_constant_before_lowering():
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] + 1, name="B")
    sch, (i,) = loops_of(te.create_prim_func([A, B]), "B")
    sch.vectorize(i)
    assert sch.get(i).kind is ForKind.VECTORIZED


def test_bound_programs_mean_the_same(agree):
    sch, (i, j, k) = loops_of(matmul, "C")
    io, ii = sch.split(i, [None, 4])
    sch.reorder(io, j, ii, k)
    sch.bind(io, "blockIdx.x")
    sch.bind(j, "blockIdx.y")
    sch.bind(ii, "threadIdx.x")
    agree(matmul, sch.mod["main"], *arrays(matmul))
    assert np.prod([int(sch.get(x).extent) for x in (io, j, ii)]) == 48


def test_parallel_over_a_dynamic_sum_with_lanes_of_its_own() -> None:
    """The sum may have no terms, so that an iteration may not write its elements, which no other one uses either."""
    n = te.var("n")
    a = te.placeholder((24, n), name="a")
    k = te.reduce_axis((0, n), name="k")
    sch = tir.Schedule(
        te.create_prim_func([a, te.compute((4, 6), lambda i, j: te.sum(a[i * 6 + j, k], k), name="c")])
    )
    i, j, step = sch.get_loops(sch.get_block("c"))
    _, lane = sch.split(step, [None, 8])
    partial = sch.rfactor(lane, factor_axis=2)
    sch.set_scope(partial, 0, "local")
    row = sch.fuse(*sch.get_loops(sch.get_block("c"))[:2])
    sch.compute_at(partial, row)
    sch.parallel(row)
    assert sch.loop(row).kind is ForKind.PARALLEL and sch.verify()


def test_tiles_over_every_second_element_of_a_dynamic_size() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute(((n + 1) // 2,), lambda i: a[i * 2] + 1.0, name="b")
    sch = tir.Schedule(te.create_prim_func([a, te.compute(b.shape, lambda i: b[i] * 2.0, name="c")]))
    outer, _ = sch.split(sch.get_loops(sch.get_block("b"))[0], [None, 32])
    sch.reverse_compute_at(sch.get_block("c"), outer)  # every tile of c has its tile of b
    assert sch.verify()
