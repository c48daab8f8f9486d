"""compute_at, reverse_compute_at, inlining, blockize and launch_around refuse moves that would change the answer."""

from __future__ import annotations

from same_answer_programs import Named, first_line, late, on, read_first, same, strided, triangle

from tilewright.script import tir as T


def test_a_triangle_stays_one(expect, refused):
    sch, (loop, _) = on(triangle, "C")
    of, (_, j) = Named(sch), sch.get_loops("D")
    expect(
        refused(sch, lambda: sch.reverse_compute_at(of.D, loop)),
        """
        reverse_compute_at(D, loop=i): the bounds of loop `j` depend on `i`, so block D skips points of its iterators at which computing it again would run it
          at test_same_answer_moves.py:LINE

          | …
          |         for j in range(i + 1):    # <-- here
          | …

          hint: give the loop its full extent, and put the condition into the value that the block stores
        """,
    )
    expect(
        refused(sch, lambda: sch.rfactor(j)),
        """
        rfactor(j): the bounds of loop `j` depend on `i`, so the partial results do not form a rectangular buffer
          at test_same_answer_moves.py:LINE

          | …
          |         for j in range(i + 1):    # <-- here
          | …

          hint: give the loop its full extent, and put the condition into the value that is combined
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
        "compute_at(D, loop=i): the bounds of loop `j` depend on `i`, so block D skips points of its iterators at "
        "which computing it again would run it"
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
        "it cannot be proved that the loops around block C visit every point of its iterators"
        in first_line(text)
    )


def test_a_consumer_of_a_stride_keeps_its_points(refused):
    sch, (loop,) = on(strided, "B")
    of = Named(sch)
    text = refused(sch, lambda: sch.reverse_compute_at(of.C, loop))
    assert "block C has points that read nothing of B" in first_line(text)


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
          at test_same_answer_moves.py:LINE

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
          at test_same_answer_moves.py:LINE

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


def test_a_block_around_does_not_make_an_init_run(refused):
    sch, (_, k) = on(late, "B")
    text = refused(sch, lambda: sch.blockize(k))
    assert first_line(text) == (
        "blockize(k): the loops of block B do not begin with the first values of its reduction iterators, where the "
        "init runs, which blockize relies on"
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


def test_threads_around_a_reduction_that_goes_on(refused):
    sch, (i, _) = on(late, "B")
    text = refused(sch, lambda: sch.launch_around(i, "threadIdx.x", 4))
    assert first_line(text).endswith("which launching threads around it relies on")


def test_a_block_is_not_inlined_ahead_of_iterations_that_read_what_was_there(refused):
    @T.prim_func
    def updated(A: T.Buffer((4, 4), "int32"), B: T.Buffer((4, 4), "int32"), C: T.Buffer((4,), "int32")):
        A_1 = T.alloc_buffer((4, 4), "int32")
        for i, j in T.grid(4, 4):
            with T.block("A_1"):
                vi, vj = T.axis.remap("SS", [i, j])
                A_1[vi, vj] = A[vj, vi]
        for i in range(4):
            for j in range(4):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A_1[vi, vj] + B[vi, vj]
            for k in range(4):
                with T.block("C"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        C[vi] = 0
                    C[vi] = C[vi] + B[vk, vi]

    sch, _ = on(updated, "B")
    of = Named(sch)
    text = refused(sch, lambda: sch.reverse_compute_inline(of.B))
    assert first_line(text).endswith("block C also uses B in loop `i`, and would see block B too early")
