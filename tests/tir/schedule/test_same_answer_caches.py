"""cache_read, cache_write, cache_inplace, reindex and padding refuse copies that would change the answer."""

from __future__ import annotations

import pytest
from same_answer_programs import (
    Named,
    diagonal,
    first_line,
    late,
    on,
    read_first,
    same,
    scattered,
    sometimes,
    strided,
)

from tilewright.script import tir as T


def test_the_reader_of_a_cache_comes_after_its_writer(expect, refused):
    sch, _ = on(read_first, "B")
    of = Named(sch)
    expect(
        refused(sch, lambda: sch.cache_write(of.B, 0, "global", consumer_blocks=[of.C])),
        """
        cache_write(B, write_buffer_index=0, storage_scope='global', consumer_blocks=[C]): block C reads B before block B writes it, so the other memory does not hold it yet
          at test_same_answer_caches.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: leave block C out of consumer_blocks: it reads B itself
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
          at test_same_answer_caches.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: leave block C out of consumer_blocks: it reads B itself
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
        "cache_write(B, write_buffer_index=0, storage_scope='global'): it is not known which elements of B have been "
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
        cache_read(C, read_buffer_index=0, storage_scope='global'): block B writes B in loop `i`, in which block C reads it, and the copy is outside that loop
          at test_same_answer_caches.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: cache_inplace is for what is read and written in turn; or move the writer out of the loop
        """,
    )


def test_a_reduction_that_goes_on_is_not_cached(refused):
    sch, _ = on(late, "B")
    of = Named(sch)
    why = "the loops of block B do not begin with the first values of its reduction iterators, where the init runs, which "
    text = refused(sch, lambda: sch.cache_write(of.B, 0, "global"))
    assert first_line(text).endswith(f": {why}the other memory relies on")
    text = refused(sch, lambda: sch.reindex(of.B, ("write", 0)))
    assert first_line(text).endswith(f": {why}the copy relies on")


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
    assert "it is not known which elements of B" in refused(sch, lambda: sch.cache_read(of.C, 0, "global"))


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
    assert "reduction iterator `vi` of block B selects the element of B that is written" in why


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
    assert first_line(text).endswith("block B also reads B, which the other memory does not hold yet")


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
        "pad_einsum(B, padding=[4, 4]): the elements of B that block B writes are not a box, and a box is copied back from "
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
    assert "it is not known which elements of W have been written" in first_line(text)


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
        assert "it is not known which elements of B have been written" in first_line(text)
    else:
        sch.cache_write(of.B, 0, "global")
        same(sch)
