"""Steps inside blocks that hold blocks, and beside loops whose iterations run at once, as random schedules found them."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.script import tir as T
from tilewright.tir.transform.plan_allocations import plan_buffer_allocation


def computed(shape, *stages):
    """A chain of computes over one input; a stage is a shape and a function of the tensor before."""
    x = first = te.placeholder(shape, name="A")
    for i, (size, body) in enumerate(stages):
        x = te.compute(size, lambda *v, x=x, body=body: body(x, *v), name="BCDE"[i])
    return te.create_prim_func([first, x])


def doubled(x, *v):
    return x(*v) * 2


def said(sch, refused, step, block, *args):
    """What is said to a step on a block, given by name, or on a loop."""
    handle = sch.get_block(block) if isinstance(block, str) else block
    return refused(sch, lambda: getattr(sch, step)(handle, *args))


def declared(sch, block):
    found = sch.get(sch.get_block(block))
    return f"reads {_shown(found.reads)}, writes {_shown(found.writes)}"


def _shown(regions):
    ranges = [", ".join(f"{x.min}:{x.min + x.extent}" for x in r.region) for r in regions]
    return ", ".join(f"{r.buffer.name}[{text}]" for r, text in zip(regions, ranges, strict=True))


def keeps(sch):
    """The program means the same, and its blocks touch no more than they declare."""
    assert sch.verify()
    func = sch.origin["main"]
    rng = np.random.default_rng(0)
    given = [
        rng.integers(-9, 9, [int(d) for d in b.shape]).astype(str(b.dtype)) for b in func.buffer_params()
    ]
    tir.interpret(plan_buffer_allocation(sch.mod["main"]), *given, check_regions=True)


# ---------------------------------------------------------------------------- what a block declares
def test_a_copy_of_an_input_may_be_larger_than_what_the_block_around_read(expect):
    """Nobody writes A, so the block may as well read all of it."""
    sch = tir.Schedule(computed((12, 5), ((11, 5), lambda x, i, j: x[i, j] + x[i + 1, j])))
    copy = sch.cache_read("B", 0, "global")
    i, j = sch.get_loops("B")
    sch.compute_at(copy, j)
    sch.blockize(j)
    expect(declared(sch, "A_global_B_o"), "reads A[v_i0:v_i0 + 2, 0:5], writes B[v_i0:v_i0 + 1, 0:5]")
    sch.reindex(copy, ("read", 0))
    expect(declared(sch, "A_global_B_o"), "reads A[0:12, 0:5], writes B[v_i0:v_i0 + 1, 0:5]")
    keeps(sch)


def test_a_guarded_read_outside_of_the_buffer_does_not_bound_its_copy(expect):
    padded = ((3, 6), lambda x, i, j: tir.if_then_else(i < 1, x[i, j], tir.const(1, "float32")))
    sch = tir.Schedule(computed((1, 6), padded))
    sch.blockize(sch.get_loops("B")[1])
    expect(declared(sch, "B_o"), "reads A[v_i0_o:v_i0_o + 1, 0:6], writes B[v_i0_o:v_i0_o + 1, 0:6]")
    sch.cache_read("B", 0, "global")
    expect(declared(sch, "B_o"), "reads A[0:1, 0:6], writes B[v_i0_o:v_i0_o + 1, 0:6]")
    keeps(sch)


def test_a_block_moved_to_its_reader_may_run_for_more(expect):
    """Where it is read at no point of one iterator, all of it is computed."""
    sch = tir.Schedule(computed((3, 4), ((3, 4), doubled)))
    i, j = sch.get_loops("B")
    sch.blockize(j)
    copy = sch.cache_read("B", 0, "global")
    sch.transform_layout(copy, ("write", 0), lambda i, j: j * 3 + i)
    expect(declared(sch, "B_o"), "reads A[v_i0_o:v_i0_o + 1, 0:4], writes B[v_i0_o:v_i0_o + 1, 0:4]")
    sch.compute_at(copy, sch.get_loops("B")[0])
    expect(declared(sch, "B_o"), "reads A[0:3, 0:4], writes B[v_i0_o:v_i0_o + 1, 0:4]")
    keeps(sch)


def test_what_is_made_meanwhile_may_not_be_copied_whole(expect, refused):
    @T.prim_func
    def rows(A: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
        B = T.alloc_buffer((5, 4))
        for i in range(4):
            for j in range(4):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    B[vi, vj] = A[vi, vj]
            with T.block("C_o"):
                v = T.axis.spatial(4, i)
                T.reads(B[v, 0:4])
                T.writes(C[v, 0:4])
                for j in range(4):
                    with T.block("C"):
                        vi = T.axis.spatial(4, v)
                        vj = T.axis.spatial(4, j)
                        T.where(j < 4)
                        C[vi, vj] = B[vi, vj] + T.if_then_else(vi > 9, B[4, vj], T.float32(0))

    sch = tir.Schedule(rows)
    expect(
        said(sch, refused, "cache_read", "C", "B", "local"),
        """
        cache_read(C, read_buffer_index='B', storage_scope='local'): the copy would read more of B than block C_o says it reads, which may not be written yet
          at test_legality_nested.py:LINE

          | …

          hint: take this step before blockize, or copy what the block itself reads
        """,
    )


def test_a_reader_that_does_not_run_asks_for_nothing_that_is_not_there():
    """Where B is left out, the copy of the copy must not read what the first copy left out as well."""
    sch = tir.Schedule(computed((2, 1), ((2, 1), lambda x, i, j: x[1 - i, j]), ((2, 1), doubled)))
    i, j = sch.get_loops("C")
    sch.compute_at("B", j, preserve_unit_loops=True)
    sch.split(i, [None, 2, 2])
    sch.blockize(j)
    sch.cache_read("B", 0, "global")
    copy = sch.cache_read("B", 0, "global")
    sch.compute_at(copy, j)
    keeps(sch)


# ---------------------------------------------------------------------------- what is written for certain
def test_what_is_written_under_a_condition_only_has_no_copy(expect, refused):
    """The copy would put what is not a value into the rest."""
    sch = tir.Schedule(computed((6,), ((6,), doubled), ((6,), doubled)))
    sch.transform_layout("B", ("write", 0), lambda i: (i // 4, i % 4), 0)
    sch.blockize(sch.get_loops("B_pad")[0])
    expect(
        said(sch, refused, "cache_write", "B_pad", 0, "local"),
        """
        cache_write(B_pad, write_buffer_index=0, storage_scope='local'): it is not known which elements of B have been written where they would be copied
          at test_legality_nested.py:LINE

          | …
          |         for ax0, ax1 in T.grid(2, 4):    # <-- here
          | …

          hint: copy B where all of it has been written: for a reader behind the loops that make it
        """,
    )


def test_a_block_of_blocks_that_leaves_gaps_has_no_copy(expect, refused):
    @T.prim_func
    def gaps(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for o in range(2):
            with T.block("B_o"):
                v = T.axis.spatial(2, o)
                T.reads(A[v * 4 : v * 4 + 3])
                T.writes(B[v * 4 : v * 4 + 3])
                for i in range(2):
                    with T.block("B"):
                        vi = T.axis.spatial(2, i)
                        B[v * 4 + vi * 2] = A[v * 4 + vi * 2]

    sch = tir.Schedule(gaps)
    expect(
        said(sch, refused, "cache_write", "B_o", 0, "local"),
        """
        cache_write(B_o, write_buffer_index=0, storage_scope='local'): it is not known which elements of B have been written where they would be copied
          at test_legality_nested.py:LINE

          | …
          |     for o in range(2):    # <-- here
          | …

          hint: copy B where all of it has been written: for a reader behind the loops that make it
        """,
    )


def test_a_copy_starts_where_what_was_written_starts():
    """The second tile lies behind the end: nothing was written there, and the copy must not take the first one's."""

    @T.prim_func
    def tiles(A: T.Buffer((1,), "float32"), C: T.Buffer((1,), "float32")):
        for o in range(2):
            with T.block("C_o"):
                v = T.axis.spatial(2, o)
                T.reads(A[v * 2 : v * 2 + 2])
                T.writes(C[v * 2 : v * 2 + 2])
                for i in range(2):
                    with T.block("C"):
                        vi = T.axis.spatial(1, v * 2 + i)
                        T.where(v * 2 + i < 1)
                        C[vi] = A[vi]

    sch = tir.Schedule(tiles)
    sch.cache_write("C", 0, "local")
    keeps(sch)


def test_a_layout_that_is_filled_has_a_copy():
    sch = tir.Schedule(computed((8,), ((8,), doubled), ((8,), doubled)))
    sch.transform_layout("B", ("write", 0), lambda i: (i // 4, i % 4))
    sch.cache_write("B", 0, "local")
    keeps(sch)


def test_a_block_that_writes_what_it_reads_has_no_copy_to_start_from(expect, refused):
    sch = tir.Schedule(computed((2, 3), ((2, 3), doubled), ((2, 1), lambda x, i, j: x[i, j * 2])))
    i, j = sch.get_loops("C")
    sch.compute_at("B", i)
    first, second = sch.loop_partition(i, [1, None])
    both = sch.blockize(second)
    assert sch.get(both).name_hint == "B_i01_C_i01_o"
    expect(
        said(sch, refused, "cache_inplace", both, "B", "local"),
        """
        cache_inplace(B_i01_C_i01_o, read_buffer_index='B', storage_scope='local'): it is not known which elements of B have been written where they would be copied
          at test_legality_nested.py:LINE

          | …
          |     with T.block("B_i01_C_i01_o"):    # <-- here
          | …

          hint: copy B where all of it has been written: for a reader behind the loops that make it
        """,
    )


def test_a_block_that_goes_on_from_another_has_a_copy():
    k = te.reduce_axis((0, 4), "k")
    A = te.placeholder((6, 4), name="A")
    B = te.compute((6,), lambda i: te.sum(A[i, k], axis=k), name="B")
    C = te.compute((6,), lambda i: B[i] * 2, name="C")
    sch = tir.Schedule(te.create_prim_func([A, C]))
    sch.decompose_reduction("B", sch.get_loops("B")[0])
    sch.cache_inplace("B", "B", "local")
    keeps(sch)


def test_a_layout_that_has_padding_has_no_copy_while_it_is_made(expect, refused):
    """The third element starts a tile of two, of which the second is never written."""
    A = te.placeholder((2, 3), name="A")
    B = te.compute((2, 3), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((2, 3), lambda i, j: B[i, j] * 2, name="C")
    D = te.compute((2, 3), lambda i, j: B[i, j] * 3, name="D")
    sch = tir.Schedule(te.create_prim_func([A, C, D]))
    sch.reverse_compute_at("C", sch.get_loops("B")[0])
    sch.transform_layout("B", ("write", 0), lambda i, j: (j // 2, i, j % 2), 0)
    expect(
        said(sch, refused, "cache_read", "C", 0, "local"),
        """
        cache_read(C, read_buffer_index=0, storage_scope='local'): it is not known which elements of B have been written where they would be copied
          at test_legality_nested.py:LINE

          | …
          |         for j in range(3):    # <-- here
          | …

          hint: copy B where all of it has been written: for a reader behind the loops that make it
        """,
    )


def test_the_padding_of_an_iterator_that_chooses_no_element(expect, refused):
    sch = tir.Schedule(computed((8, 1), ((8, 1), doubled), ((8, 1), doubled)))
    sch.transform_layout("B", ("write", 0), lambda i, j: (j, i))
    expect(
        said(sch, refused, "pad_einsum", "B", [5, 5]),
        """
        pad_einsum(B, padding=[5, 5]): iterator `v_i1` does not say which element of B is written, and its padding would write the same one again
          at test_legality_nested.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: leave the padding of `v_i1` at 1
        """,
    )
    sch.pad_einsum("B", [5, 1])
    keeps(sch)


# ---------------------------------------------------------------------------- blockize
@pytest.mark.parametrize("place", [lambda i: i * 2, lambda i: 8 - i, lambda i: i * 2 + 1])
def test_blockize_of_a_stride_counts_the_steps(place):
    """The iterator of the block around runs through a domain without gaps."""
    sch = tir.Schedule(computed((9, 3), ((9, 3), doubled), ((4, 3), lambda x, i, j: x[place(i), j])))
    i, j = sch.get_loops("C")
    sch.compute_at("B", i)
    made = sch.blockize(sch.get_loops("B")[1])
    assert str(sch.realize(made).iter_values[0]) == "i0"
    sch.compute_at(made, j)  # its domain is what there is of it
    keeps(sch)


# ---------------------------------------------------------------------------- iterations at once
def test_pieces_of_a_loop_share_what_was_one_iterations_own(expect, refused):
    sch = tir.Schedule(computed((6,), ((6,), doubled), ((4,), lambda x, i: x[i] + x[i + 2])))
    outer, inner = sch.split(sch.get_loops("C")[0], [2, 2])
    sch.compute_at("B", inner)
    sch.parallel(inner)
    assert sch.verify()
    expect(
        said(sch, refused, "loop_partition", outer, [1, None]),
        """
        loop_partition(i0_0, factors=[1, None]): an iteration of loop `i0_1` may use elements of B that another one writes (blocks B_i0_00 and C_i0_00)
          at test_legality_nested.py:LINE

          | …

          hint: keep every block that uses the buffer inside loop `i0_1`, where each iteration has a copy of its own, or apply this step before the loop is marked
        """,
    )


def test_memory_of_a_parallel_iteration_stays_its_own_when_its_loops_are_split():
    """That a read is covered can be seen before the last split and not after it."""
    sch = tir.Schedule(computed((9,), ((9,), lambda x, i: x[8 - i])))
    copy = sch.cache_read("B", 0, "global")
    outer, middle, inner = sch.split(sch.get_loops("B")[0], [None, 2, 2])
    sch.parallel(outer)
    sch.compute_at(copy, middle)
    sch.split(inner, [None, 2, 2])
    keeps(sch)


def test_a_part_that_runs_once_may_be_marked():
    """Only index < 1 of the four: the loop stands in the predicate and drives no iterator."""
    sch = tir.Schedule(computed((6,), ((6,), doubled)))
    outer, inner = sch.split(sch.get_loops("B")[0], [2, 4])
    first, second = sch.split(inner, [None, 4])
    again, once = sch.split(first, [1, 4])
    sch.parallel(once)
    keeps(sch)


@pytest.mark.parametrize("order", ["nparts last", "nparts first", "thrice"])
def test_parts_of_a_loop_over_a_symbol_are_told_apart(order):
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    B = te.compute((n,), lambda i: A[i] * 2, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    (i,) = sch.get_loops("B")
    if order == "nparts last":
        outer, inner = sch.split(i, [None, 32])
        loops = [*sch.split(outer, [4, None]), inner]
    elif order == "nparts first":
        outer, inner = sch.split(i, [3, None])
        loops = [outer, *sch.split(inner, [None, 2])]
    else:
        outer, inner = sch.split(i, [3, None])
        first, second = sch.split(inner, [4, None])
        loops = [outer, first, *sch.split(second, [None, 2])]
    for x in loops:
        one = sch.copy()
        one.parallel(x)
        assert one.verify()


def test_parts_of_a_fused_loop_fused_again_are_told_apart():
    """A quotient and a remainder of one sum are that sum."""
    sch = tir.Schedule(computed((2, 8, 7), ((2, 8, 7), doubled)))
    i, j, k = sch.get_loops("B")
    outer, inner = sch.split(sch.fuse(i, j), [None, 3])
    sch.fuse(inner, k)
    sch.parallel(outer)
    keeps(sch)


def test_a_remainder_is_a_digit_of_a_sum():
    """`e // 7` and `e % 7 * 2 + j` are e and j, whatever number of values e has."""
    n = te.var("n")
    A = te.placeholder((n, 13), name="A")
    B = te.compute((n, 13), lambda i, j: A[i, j] * 2, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, j = sch.get_loops("B")
    outer, inner = sch.split(j, [None, 2])
    first, second = sch.split(sch.fuse(i, outer), [3, None])
    for x in (first, second, inner):
        one = sch.copy()
        one.parallel(x)
        assert one.verify()


@pytest.mark.parametrize("size, apart", [(42, True), (49, False)])
def test_digits_of_two_iterators_share_an_index(size, apart):
    """`g * 6 + e // 7` tells g and `e // 7` apart if the latter stays below 6, and not if it reaches 6."""

    @T.prim_func
    def grouped(A: T.Buffer((3, size)), B: T.Buffer((3 * 6 + 1, 7))):
        for g, e in T.grid(3, size):
            with T.block("B"):
                vg, ve = T.axis.remap("SS", [g, e])
                B[vg * 6 + ve // 7, ve % 7] = A[vg, ve] * T.float32(2)

    sch = tir.Schedule(grouped)
    for loop in sch.get_loops("B") if apart else ():
        one = sch.copy()
        one.parallel(loop)
        assert one.verify()
    if not apart:
        with pytest.raises(tir.ScheduleError, match="may write the same elements of B"):
            sch.parallel(sch.get_loops("B")[0])


def test_what_the_predicate_leaves_one_value_of_is_known():
    """Of the fused loop only the even iterations run, and `i // 2` tells these apart."""
    sch = tir.Schedule(computed((2,), ((2,), doubled)))
    outer, inner = sch.split(sch.get_loops("B")[0], [2, None], preserve_unit_iters=False)
    first, second = sch.split(inner, [2, None])
    sch.parallel(sch.fuse(outer, first))
    keeps(sch)


def test_parts_that_overlap_are_not_told_apart(expect, refused):
    @T.prim_func
    def over(a: T.handle, b: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n,))
        B = T.match_buffer(b, (n,))
        for i, j in T.grid(4, (n + 3) // 4 + 1):
            with T.block("B"):
                vi = T.axis.spatial(n, i * ((n + 3) // 4) + j)
                T.where(i * ((n + 3) // 4) + j < n)
                B[vi] = A[vi] + T.float32(1)

    sch = tir.Schedule(over)
    i, j = sch.get_loops("B")
    expect(
        said(sch, refused, "parallel", i),
        """
        parallel(i): iterations of loop `i` may write the same elements of B (block B)
          at test_legality_nested.py:LINE

          | …
          |     for i, j in T.grid(4, (n + 3) // 4 + 1):    # <-- here
          | …

          hint: leave loop `i` serial, or parallel(j)
        """,
    )
