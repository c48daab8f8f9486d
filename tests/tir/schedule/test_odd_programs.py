"""Refusals of blocks that store several values, nothing at their iterators, or stand under loops that do nothing."""

from __future__ import annotations

from tilewright import tir
from tilewright.script import tir as T


def said(refused, func, step, *more, block="B"):
    """What is said to a step on a block of a program."""
    sch = tir.Schedule(func)
    rv = sch.get_block(block)
    return refused(sch, lambda: getattr(sch, step)(rv, *more))


@T.prim_func
def two_stores(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]
            C[vi] = A[vi]


@T.prim_func
def goes_on(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = B[vi] + A[vi]


@T.prim_func
def two_inits(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 4):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = T.float32(1)
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def both_ways(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32")):
    for i, j in T.grid(4, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * A[vj, vi]


@T.prim_func
def padded_twice(A: T.Buffer((4,), "float32"), B: T.Buffer((6,), "float32"), C: T.Buffer((6,), "float32")):
    for i in range(6):
        with T.block("B"):
            vi = T.axis.spatial(6, i)
            B[vi] = T.if_then_else(vi >= 1 and vi < 5, A[vi - 1], T.float32(0))
            C[vi] = T.float32(0)


@T.prim_func
def again(A: T.Buffer((4,), "float32"), B: T.Buffer((6,), "float32")):
    for i, j in T.grid(6, 3):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi] = T.if_then_else(vi >= 1 and vi < 5, A[vi - 1], T.float32(0))


@T.prim_func
def single(A: T.Buffer((1,), "float32"), B: T.Buffer((1,), "float32")):
    with T.block("B"):
        B[0] = A[0]


@T.prim_func
def idle(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for _, i in T.grid(3, 4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]


@T.prim_func
def unread(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,))
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = A[vi]
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = A[vi]


@T.prim_func
def scanned(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("B"):
            vi = T.axis.scan(4, i)
            B[vi] = A[vi]


@T.prim_func
def every_second(A: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((8,))
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi * 2] = A[vi]
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi] = B[vi * 2]


@T.prim_func
def chosen(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4,), "float32")):
    for i, k in T.grid(4, 4):
        if A[0, 0] > T.float32(0):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = T.float32(0)
                B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def mixed(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4,), "float32")):
    for i, k, g in T.grid(2, 2, 4):
        with T.block("B"):
            vi = T.axis.spatial(4, i * 2 + g // 2)
            vk = T.axis.reduce(4, k * 2 + g % 2)
            with T.init():
                B[vi] = T.float32(0)
            B[vi] = B[vi] + A[vi, vk]


@T.prim_func
def says_more(A: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32"), C: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,))
    for i in range(4):
        with T.block("D"):
            vi = T.axis.spatial(4, i)
            T.reads(A[vi])
            T.writes(D[vi], B[vi])
            D[vi] = A[vi]
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            C[vi] = B[vi]


@T.prim_func
def begins_with_itself(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4,), "float32")):
    for i in range(4):
        with T.block("start"):
            vi = T.axis.spatial(4, i)
            B[vi] = B[vi] * T.float32(0)
    for i, k in T.grid(4, 4):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            B[vi] = B[vi] + A[vi, vk]


def test_padding_of_two_stores(expect, refused):
    expect(
        said(refused, two_stores, "pad_einsum", [2]),
        """
        pad_einsum(B, padding=[2]): block B does more than store one value
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_padding_of_what_goes_on(expect, refused):
    expect(
        said(refused, goes_on, "pad_einsum", [3]),
        """
        pad_einsum(B, padding=[3]): block B also reads B, which the padded buffer does not hold yet
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: cache_inplace copies it before and back after
        """,
    )


def test_padding_of_two_inits(expect, refused):
    expect(
        said(refused, two_inits, "pad_einsum", [3, 3]),
        """
        pad_einsum(B, padding=[3, 3]): the init of block B does more than store one value
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_padding_of_two_places(expect, refused):
    expect(
        said(refused, both_ways, "pad_einsum", [3, 3]),
        """
        pad_einsum(B, padding=[3, 3]): block B uses A at several places
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_padding_of_a_scan(expect, refused):
    expect(
        said(refused, scanned, "pad_einsum", [3]),
        """
        pad_einsum(B, padding=[3]): iterator `vi` of block B must run in order
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_reindexed_stores(expect, refused):
    expect(
        said(refused, two_stores, "reindex", ("write", 0)),
        """
        reindex(B, buffer=['write', 0]): block B does more than store one value
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_a_block_without_loops_has_no_other_iterators(expect, refused):
    expect(
        said(refused, single, "transform_block_layout", lambda: ()),
        """
        transform_block_layout(B, index_map=lambda : ()): block B has no loops
          at test_odd_programs.py:LINE

          | …
          |     with T.block("B"):    # <-- here
          | …
        """,
    )


def test_a_loop_that_drives_nothing(expect, refused):
    expect(
        said(refused, idle, "transform_block_layout", lambda i: [i // 2, i % 2]),
        """
        transform_block_layout(B, index_map=lambda i: (i // 2, i % 2)): loop `_` drives no iterator of block B
          at test_odd_programs.py:LINE

          | …
          |     for _, i in T.grid(3, 4):    # <-- here
          | …

          hint: transform_block_layout before the block is moved under the loop
        """,
    )


def test_a_ring_that_nobody_reads(expect, refused):
    expect(
        said(refused, unread, "rolling_buffer", 0),
        """
        rolling_buffer(B, write_buffer_index=0): nothing reads the buffer that block B writes
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_two_stores_are_no_padding(expect, refused):
    sch = tir.Schedule(padded_twice)
    rv, loop = sch.get_block("B"), sch.get_loops("B")[0]
    expect(
        refused(sch, lambda: sch.decompose_padding(rv, loop)),
        """
        decompose_padding(B, loop=i): block B does more than store one value
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_padding_written_again(expect, refused):
    sch = tir.Schedule(again)
    rv, loop = sch.get_block("B"), sch.get_loops("B")[0]
    expect(
        refused(sch, lambda: sch.decompose_padding(rv, loop)),
        """
        decompose_padding(B, loop=i): points of block B that differ in iterator `vj` may write the same elements of B, and filling before the loop could change their order
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: let each point write elements of its own, or declare the iterator as that of a reduction
        """,
    )


def test_a_ring_of_every_second_element(expect, refused):
    expect(
        said(refused, every_second, "rolling_buffer", 0),
        """
        rolling_buffer(B, write_buffer_index=0): block B does not write B at its iterators
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_partial_sums_under_a_condition(expect, refused):
    sch = tir.Schedule(chosen)
    loop = sch.get_loops("B")[1]
    expect(
        refused(sch, lambda: sch.rfactor(loop, 0)),
        """
        rfactor(k): loop `k` holds more than block B
          at test_odd_programs.py:LINE

          | …
          |     for i, k in T.grid(4, 4):    # <-- here
          | …

          hint: apply rfactor before other blocks are moved under the loop
        """,
    )


def test_a_loop_of_both_kinds_in_a_block(expect, refused):
    sch = tir.Schedule(mixed)
    loop = sch.get_loops("B")[2]
    expect(
        refused(sch, lambda: sch.blockize(loop)),
        """
        blockize(g): a loop drives both spatial and reduction iterators of block B
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: blockize before the reduction is fused with other loops
        """,
    )


def test_a_producer_that_says_more_than_it_does(expect, refused):
    expect(
        said(refused, says_more, "reverse_compute_inline"),
        """
        reverse_compute_inline(B): block B does not read D
          at test_odd_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


def test_a_start_that_reads_the_sum(expect, refused):
    sch = tir.Schedule(begins_with_itself)
    start, update = sch.get_block("start"), sch.get_block("B")
    expect(
        refused(sch, lambda: sch.merge_reduction(start, update)),
        """
        merge_reduction(start, update_block=B): block start reads a buffer that block B writes
          at test_odd_programs.py:LINE

          | …
          |         with T.block("start"):    # <-- here
          | …
        """,
    )
