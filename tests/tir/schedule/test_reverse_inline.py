"""Blocks dissolved in their producer: reverse_compute_inline."""

from __future__ import annotations

import pytest
from schedule_programs import chain, matmul
from stage_programs import backwards, conv2d, front, matmul_relu, padded, same, same_again

from tilewright import tir
from tilewright.script import tir as T


def said(sch, refused, step, block):
    handle = sch.get_block(block)
    return refused(sch, lambda: getattr(sch, step)(handle))


# ---------------------------------------------------------------------------- reverse_compute_inline: expect
def test_back_into_the_producer(expect):
    @T.prim_func
    def two(A: T.Buffer((3, 4), "float32"), C: T.Buffer((4, 3), "float32")):
        B = T.alloc_buffer((3, 4))
        for i, j in T.grid(3, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j in T.grid(4, 3):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vj, vi] + B[vj, vi] * B[vj, vi]

    sch = tir.Schedule(two)
    sch.reverse_compute_inline("C")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def two(A: T.Buffer((3, 4), "float32"), C: T.Buffer((4, 3), "float32")):
            # with T.block("root"):
            for i, j in T.grid(3, 4):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vi, vj])
                    T.writes(C[vj, vi])
                    C[vj, vi] = A[vi, vj] * T.float32(2) + A[vi, vj] * T.float32(2) * (A[vi, vj] * T.float32(2))
        """,
    )
    same(two, sch)
    same_again(two, sch)


def test_elements_read_in_another_order(expect):
    @T.prim_func
    def reshaped(
        A: T.Buffer((32, 4), "float32"),
        B: T.Buffer((4, 8, 1), "float32"),
        D: T.Buffer((1, 4, 8, 4), "float32"),
    ):
        C = T.alloc_buffer((32, 4))
        for i, j in T.grid(32, 4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j, k, l in T.grid(1, 4, 8, 4):
            with T.block("D"):
                vi, vj, vk, vl = T.axis.remap("SSSS", [i, j, k, l])
                D[vi, vj, vk, vl] = C[vj * 8 + vk, vl] + B[vj, vk, vi]

    sch = tir.Schedule(reshaped)
    sch.reverse_compute_inline("D")
    sch.verify()
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def reshaped(A: T.Buffer((32, 4), "float32"), B: T.Buffer((4, 8, 1), "float32"), D: T.Buffer((1, 4, 8, 4), "float32")):
            # with T.block("root"):
            for i, j in T.grid(32, 4):
                with T.block("C"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vi, vj], B[vi // 8, vi % 8, 0])
                    T.writes(D[0, vi // 8, vi % 8, vj])
                    D[0, vi // 8, vi % 8, vj] = A[vi, vj] * T.float32(2) + B[vi // 8, vi % 8, 0]
        """,
    )


@pytest.mark.parametrize("size", [24, 32])
def test_another_order_of_some_elements(size):
    """A reader of the first rows alone: the others are left out by a condition."""

    @T.prim_func
    def reshaped(A: T.Buffer((32, 4), "float32"), D: T.Buffer((size // 8, 8, 4), "float32")):
        C = T.alloc_buffer((32, 4))
        for i, j in T.grid(32, 4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = A[vi, vj] * T.float32(2)
        for i, j, k in T.grid(size // 8, 8, 4):
            with T.block("D"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                D[vi, vj, vk] = C[vi * 8 + vj, vk] + T.float32(1)

    sch = tir.Schedule(reshaped)
    sch.reverse_compute_inline("D")
    sch.verify()
    assert ("T.where" in sch.mod.script()) == (size < 32)


@pytest.mark.parametrize("size", [29, 32])
def test_tiles_read_row_by_row(size):
    """A reader by `//` and `%`, also where the last tile is not read as a whole."""

    @T.prim_func
    def untiled(A: T.Buffer((32, 4), "float32"), D: T.Buffer((size, 4), "float32")):
        C = T.alloc_buffer((4, 8, 4))
        for i, j, k in T.grid(4, 8, 4):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSS", [i, j, k])
                C[vi, vj, vk] = A[vi * 8 + vj, vk] * T.float32(2)
        for i, j in T.grid(size, 4):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = C[vi // 8, vi % 8, vj] + T.float32(1)

    sch = tir.Schedule(untiled)
    sch.reverse_compute_inline("D")
    sch.verify()
    assert ("T.where(i * 8 + j < 29)" in sch.mod.script()) == (size == 29)
    assert "T.where" not in sch.mod.script() or size == 29


def test_a_consumer_of_fewer_elements_becomes_a_condition(expect):
    sch = tir.Schedule(front)
    sch.reverse_compute_inline("C")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def front(A: T.Buffer((10,), "float32"), C: T.Buffer((6,), "float32")):
            # with T.block("root"):
            for i in range(10):
                with T.block("B"):
                    vi = T.axis.spatial(10, i)
                    T.where(i < 6)
                    T.reads(A[vi])
                    T.writes(C[vi])
                    C[vi] = A[vi] * T.float32(2)
        """,
    )
    same(front, sch)
    same_again(front, sch)


@pytest.mark.parametrize("factor", [None, 3, 4])
def test_back_into_tiles(factor):
    sch = tir.Schedule(front)
    if factor:
        outer, inner = sch.split(sch.get_loops("B")[0], [None, factor])
        sch.reorder(inner, outer)
    sch.reverse_compute_inline("C")
    same(front, sch)
    same_again(front, sch)


def test_the_end_of_a_chain_of_three():
    @T.prim_func
    def line(a: T.handle, d: T.handle):
        n = T.int32()
        A = T.match_buffer(a, (n, 4))
        D = T.match_buffer(d, (n, 4))
        B = T.alloc_buffer((n, 4))
        C = T.alloc_buffer((n, 4))
        for i, j in T.grid(n, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj] + T.float32(1)
        for i, j in T.grid(n, 4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.max(B[vi, vj], T.float32(0))
        for i, j in T.grid(n, 4):
            with T.block("D"):
                vi, vj = T.axis.remap("SS", [i, j])
                D[vi, vj] = C[vi, vj] * T.float32(2)

    for order in ("CD", "DC"):
        sch = tir.Schedule(line)
        for name in order:
            sch.reverse_compute_inline(name)
        assert [b.name for b in sch.get_child_blocks(sch.get_block("root"))] == ["B"]
        for n in (0, 1, 5):
            same(line, sch, n=n, build=n == 5)
        same_again(line, sch)


# ---------------------------------------------------------------------------- reverse_compute_inline: refuse
def test_refuse_back_into_a_reduction(expect, refused):
    sch = tir.Schedule(matmul_relu)
    block = sch.get_block("D")
    expect(
        refused(sch, lambda: sch.reverse_compute_inline(block)),
        """
        reverse_compute_inline(D): block C is a reduction: its elements are not complete when written
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: use reverse_compute_at to apply the block after the reduction
        """,
    )


def test_refuse_a_reduction_back_into_its_producer(expect, refused):
    sch = tir.Schedule(conv2d)
    expect(
        said(sch, refused, "reverse_compute_inline", "S"),
        """
        reverse_compute_inline(S): block S is a reduction
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("S"):    # <-- here
          | …

          hint: use reverse_compute_at to compute it close to its producer, or compute_inline on the producer
        """,
    )


def test_refuse_no_producer_and_several(expect, refused):
    expect(
        said(tir.Schedule(backwards), refused, "reverse_compute_inline", "B"),
        """
        reverse_compute_inline(B): block B must read what exactly one block makes, and the blocks are: none
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: no block computes the inputs of the function, so it stays where it is
        """,
    )
    expect(
        said(tir.Schedule(chain), refused, "reverse_compute_inline", "D"),
        """
        reverse_compute_inline(D): block D must read what exactly one block makes, and the blocks are: B, C
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …

          hint: use reverse_compute_at to compute it close to its producer, or compute_inline on the producer
        """,
    )


def test_refuse_a_producer_with_other_readers(expect, refused):
    expect(
        said(tir.Schedule(chain), refused, "reverse_compute_inline", "C"),
        """
        reverse_compute_inline(C): block D reads B too
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …

          hint: use reverse_compute_at to compute it close to its producer, or compute_inline on the producer
        """,
    )


def test_refuse_a_producer_that_is_an_output(expect, refused):
    @T.prim_func
    def both(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi]

    expect(
        said(tir.Schedule(both), refused, "reverse_compute_inline", "C"),
        """
        reverse_compute_inline(C): B is an output of its scope, which must be stored
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: use reverse_compute_at to compute it close to its producer, or compute_inline on the producer
        """,
    )


def test_refuse_a_read_that_cannot_be_traced_back(expect, refused):
    expect(
        said(tir.Schedule(backwards), refused, "reverse_compute_inline", "C"),
        """
        reverse_compute_inline(C): it reads B at `7 - vi`, which is not one iterator of block C: an element cannot be traced back to the point that makes it
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: use reverse_compute_at to compute it close to its producer, or compute_inline on the producer
        """,
    )
    expect(
        said(tir.Schedule(padded), refused, "reverse_compute_inline", "C"),
        """
        reverse_compute_inline(C): block C has more points than block B along `vi - 1`, and these would not be computed
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: use reverse_compute_at to compute it close to its producer, or compute_inline on the producer
        """,
    )


def test_refuse_reads_at_several_places(expect, refused):
    @T.prim_func
    def both_ways(A: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
        B = T.alloc_buffer((4, 4))
        for i, j in T.grid(4, 4):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]
        for i, j in T.grid(4, 4):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi, vj] + B[vj, vi]

    expect(
        said(tir.Schedule(both_ways), refused, "reverse_compute_inline", "C"),
        """
        reverse_compute_inline(C): block C reads B at several places
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: use reverse_compute_at to compute it close to its producer, or compute_inline on the producer
        """,
    )


def test_refuse_a_reader_with_more_iterators(expect, refused):
    @T.prim_func
    def broadcast(A: T.Buffer((4,), "float32"), C: T.Buffer((4, 3), "float32")):
        B = T.alloc_buffer((4,))
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi]
        for i, j in T.grid(4, 3):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = B[vi]

    expect(
        said(tir.Schedule(broadcast), refused, "reverse_compute_inline", "C"),
        """
        reverse_compute_inline(C): iterator `vj` of block C is not an index of B
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: use reverse_compute_at to compute it close to its producer, or compute_inline on the producer
        """,
    )


def test_refuse_a_condition_that_picks_points(expect, refused):
    @T.prim_func
    def picked(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                T.where(i < 5)
                C[vi] = B[vi]

    expect(
        said(tir.Schedule(picked), refused, "reverse_compute_inline", "C"),
        """
        reverse_compute_inline(C): block C runs only where `i < 5`, which its producer would forget
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_refuse_the_only_block(refused, expect):
    expect(
        said(tir.Schedule(matmul), refused, "compute_inline", "C"),
        """
        compute_inline(C): block C is a reduction, which takes many steps for one element
          at test_reverse_inline.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: use compute_at to compute it close to its consumer
        """,
    )
