"""Data staged under other indices: reindex, reindex_cache_read, reindex_cache_write, cache_inplace."""

from __future__ import annotations

import pytest
from schedule_checks import keeps_meaning
from schedule_programs import chain, matmul

from tilewright import tir
from tilewright.script import tir as T


def on(func, block):
    sch = tir.Schedule(func)
    return sch, sch.get_block(block)


@T.prim_func
def conv(A: T.Buffer((10,), "float32"), W: T.Buffer((3,), "float32"), C: T.Buffer((8,), "float32")):
    for i, k in T.grid(8, 3):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = T.float32(0)
            C[vi] = C[vi] + A[vi + vk] * W[vk]


@T.prim_func
def spread(A: T.Buffer((4,), "float32"), C: T.Buffer((8,), "float32")):
    for i in range(4):
        with T.block("C"):
            vi = T.axis.spatial(4, i)
            C[vi * 2 + 1] = A[vi]


# ---------------------------------------------------------------------------- reindex
def test_reindex_what_is_read(expect):
    sch, c = on(conv, "C")
    made = sch.reindex(c, ("read", 0))
    assert made.name == "A_reindex"
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def conv(A: T.Buffer((10,), "float32"), W: T.Buffer((3,), "float32"), C: T.Buffer((8,), "float32")):
            # with T.block("root"):
            A_reindex = T.alloc_buffer((8, 3))
            for ax0, ax1 in T.grid(8, 3):
                with T.block("A_reindex"):
                    v0, v1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(A[v0 + v1])
                    T.writes(A_reindex[v0, v1])
                    A_reindex[v0, v1] = A[v0 + v1]
            for i, k in T.grid(8, 3):
                with T.block("C"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    T.reads(A_reindex[vi, vk], W[vk])
                    T.writes(C[vi])
                    with T.init():
                        C[vi] = T.float32(0)
                    C[vi] = C[vi] + A_reindex[vi, vk] * W[vk]
        """,
    )
    keeps_meaning(conv, sch)


def test_reindex_what_is_written(expect):
    sch, c = on(spread, "C")
    sch.reindex(c, ("write", 0))
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def spread(A: T.Buffer((4,), "float32"), C: T.Buffer((8,), "float32")):
            # with T.block("root"):
            C_reindex = T.alloc_buffer((4,))
            for i in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(4, i)
                    T.reads(A[vi])
                    T.writes(C_reindex[vi])
                    C_reindex[vi] = A[vi]
            for ax0 in range(4):
                with T.block("C_reindex"):
                    v0 = T.axis.spatial(4, ax0)
                    T.reads(C_reindex[v0])
                    T.writes(C[v0 * 2 + 1])
                    C[v0 * 2 + 1] = C_reindex[v0]
        """,
    )
    keeps_meaning(spread, sch)


def test_reindex_of_all_of_a_matmul():
    sch, c = on(matmul, "C")
    for buffer in [("read", 0), "B", sch.get(c).writes[0].buffer]:
        sch.reindex(c, buffer)
    made = [b.name for b in sch.mod["main"].body.block.alloc_buffers]
    assert made == ["A_reindex", "B_reindex", "C_reindex"]
    keeps_meaning(matmul, sch)


def test_reindex_between_blocks():
    sch, c = on(chain, "C")
    sch.reindex(c, ("read", 0))
    sch.reindex(c, ("write", 0))
    keeps_meaning(chain, sch)


def test_reindex_after_splits():
    sch, c = on(matmul, "C")
    i, _j, _k = sch.get_loops(c)
    sch.split(i, [None, 4])
    sch.reindex(c, ("read", 0))
    sch.reindex(c, ("write", 0))
    keeps_meaning(matmul, sch)


def test_several_places(expect, refused):
    @T.prim_func
    def sums(A: T.Buffer((9,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = A[vi] + A[vi + 1]

    sch, c = on(sums, "C")
    expect(
        refused(sch, lambda: sch.reindex(c, ("read", 0))),
        """
        reindex(C, buffer=['read', 0]): block C uses A at several places
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: cache_read copies all that it reads
        """,
    )


def test_a_guarded_read(expect, refused):
    @T.prim_func
    def guarded(A: T.Buffer((6,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = T.if_then_else(vi >= 1 and vi < 7, A[vi - 1], T.float32(0))

    sch, c = on(guarded, "C")
    expect(
        refused(sch, lambda: sch.reindex(c, ("read", 0))),
        """
        reindex(C, buffer=['read', 0]): `vi - 1` may lie outside of A, which block C reads only under a condition
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_what_is_made_in_the_same_nest(expect, refused):
    sch, b = on(chain, "B")
    c = sch.get_block("C")
    sch.reverse_compute_at(c, sch.get_loops(b)[0])
    expect(
        refused(sch, lambda: sch.reindex(c, ("read", 0))),
        """
        reindex(C, buffer=['read', 0]): block B makes B in the same loop nest, so it is not complete before
          at test_reindex.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: do this before the blocks are moved together
        """,
    )
    expect(
        refused(sch, lambda: sch.reindex(b, ("write", 0))),
        """
        reindex(B, buffer=['write', 0]): block C reads B in the same loop nest, before the copy
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: do this before the blocks are moved together
        """,
    )


def test_indices_that_are_data(expect, refused):
    @T.prim_func
    def gather(A: T.Buffer((8,), "float32"), N: T.Buffer((8,), "int32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = A[N[vi]]

    sch, c = on(gather, "C")
    expect(
        refused(sch, lambda: sch.reindex(c, "A")),
        """
        reindex(C, buffer='A'): block C uses A at `N[vi]`, which is not a point of its iterators
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_an_element_that_several_points_write(expect, refused):
    @T.prim_func
    def halves(A: T.Buffer((8,), "float32"), C: T.Buffer((4,), "float32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi // 2] = A[vi]

    sch, c = on(halves, "C")
    expect(
        refused(sch, lambda: sch.reindex(c, ("write", 0))),
        """
        reindex(C, buffer=['write', 0]): several points of block C write one element of C: lambda vi: (vi // 2,) maps several values of `vi` to the same index
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_a_block_that_goes_on(expect, refused):
    sch, c = on(matmul, "C")
    sch.decompose_reduction(c, sch.get_loops(c)[2])
    expect(
        refused(sch, lambda: sch.reindex(c, ("write", 0))),
        """
        reindex(C, buffer=['write', 0]): block C_init also writes C, so block C alone does not define it and is no complete block
          at test_reindex.py:LINE

          | …
          |         with T.block("C_init"):    # <-- here
          | …

          hint: apply this step before decompose_reduction or loop_partition splits the block
        """,
    )


def test_a_buffer_that_is_read_and_written(expect, refused):
    sch, a = on(inplace, "A")
    expect(
        refused(sch, lambda: sch.reindex(a, ("read", 0))),
        """
        reindex(A, buffer=['read', 0]): block A writes A too
          at test_reindex.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: cache_inplace takes care of both
        """,
    )
    expect(
        refused(sch, lambda: sch.reindex(a, ("write", 0))),
        """
        reindex(A, buffer=['write', 0]): block A also reads A, which the copy does not hold yet
          at test_reindex.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: cache_inplace copies it before and back after
        """,
    )


def test_a_predicate_that_leaves_points_out(expect, refused):
    @T.prim_func
    def some(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                T.where(i % 2 == 0)
                C[vi] = A[vi]

    sch, c = on(some, "C")
    expect(
        refused(sch, lambda: sch.reindex(c, ("write", 0))),
        """
        reindex(C, buffer=['write', 0]): block C runs only where `i % 2 == 0`, which the copy would forget
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_loops_that_leave_points_out(expect, refused):
    @T.prim_func
    def some(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        for i in range(6):
            with T.block("C"):
                vi = T.axis.spatial(8, i + 1)
                C[vi] = A[vi]

    sch, c = on(some, "C")
    expect(
        refused(sch, lambda: sch.reindex(c, ("write", 0))),
        """
        reindex(C, buffer=['write', 0]): the loops may leave out values of iterator `vi` of block C, which the copy would write to C
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: do this before the blocks are moved
        """,
    )
    sch.reindex(c, ("read", 0))
    keeps_meaning(some, sch)


# ---------------------------------------------------------------------------- reindex_cache_read and _write
def test_reindex_cache(expect):
    sch, c = on(matmul, "C")
    read = sch.reindex_cache_read(c, 1, "shared", lambda i, j, k: (j, k))
    write = sch.reindex_cache_write(c, 0, "local", lambda i, j, k: (j // 2, i, j % 2))
    assert (read.name, write.name) == ("B_shared", "C_local")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            B_shared = T.alloc_buffer((6, 5), scope="shared")
            C_local = T.alloc_buffer((3, 7, 2), scope="local")
            for ax0, ax1 in T.grid(6, 5):
                with T.block("B_shared"):
                    v0, v1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(B[v1, v0])
                    T.writes(B_shared[v0, v1])
                    B_shared[v0, v1] = B[v1, v0]
            for i, j, k in T.grid(7, 6, 5):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(A[vi, vk], B_shared[vj, vk])
                    T.writes(C_local[vj // 2, vi, vj % 2])
                    with T.init():
                        C_local[vj // 2, vi, vj % 2] = T.float32(0)
                    C_local[vj // 2, vi, vj % 2] = C_local[vj // 2, vi, vj % 2] + A[vi, vk] * B_shared[vj, vk]
            for ax0, ax1 in T.grid(7, 6):
                with T.block("C_local"):
                    v0, v1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(C_local[v1 // 2, v0, v1 % 2])
                    T.writes(C[v0, v1])
                    C[v0, v1] = C_local[v1 // 2, v0, v1 % 2]
        """,
    )
    keeps_meaning(matmul, sch)


def test_reindex_cache_with_more_iterators_than_the_buffer_has():
    sch, c = on(matmul, "C")
    sch.reindex_cache_read(c, 1, "shared", lambda *v: (v[0], v[1] // 2, v[2], v[1] % 2))
    assert 'B_shared = T.alloc_buffer((7, 3, 5, 2), scope="shared")' in str(sch.mod)
    keeps_meaning(matmul, sch)


def test_holes_in_the_copy(expect, refused):
    sch, c = on(matmul, "C")
    expect(
        refused(sch, lambda: sch.reindex_cache_read(c, 0, "shared", lambda i, j, k: (i // 4, k, i % 4))),
        """
        reindex_cache_read(C, read_buffer_index=0, storage_scope='shared', index_map=lambda i, j, k: (i // 4, k, i % 4)): the map leaves places of the copy empty (those where `axis0 * 4 + axis2 >= 7`), which later steps would copy along
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: choose factors that divide the iterators
        """,
    )


def test_points_for_which_nothing_was_made(expect, refused):
    sch, b = on(chain, "C")
    i = sch.get_loops(b)[0]
    parts = sch.loop_partition(i, [4, None])
    piece = sch.get_child_blocks(parts[1])[0]
    sch.cache_read(piece, 0, "local")
    expect(
        refused(sch, lambda: sch.reindex(piece, ("read", 0))),
        """
        reindex(C_i1, buffer=['read', 0]): the loops may leave out values of iterator `vi` of block C_i1, for which B_local may hold nothing
          at test_reindex.py:LINE

          | …
          |         with T.block("C_i1"):    # <-- here
          | …

          hint: do this before the blocks are moved
        """,
    )


def test_places_must_not_be_shared(expect, refused):
    sch, c = on(matmul, "C")
    expect(
        refused(sch, lambda: sch.reindex_cache_read(c, 0, "shared", lambda i, j, k: (k,))),
        """
        reindex_cache_read(C, read_buffer_index=0, storage_scope='shared', index_map=lambda i, j, k: (k,)): lambda vi, vk: (vk,) maps several values of `vi` to the same index, so elements of A would share a place
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: let the map tell all iterators apart that choose the element
        """,
    )


def test_arguments_of_reindex_cache(expect, refused):
    sch, c = on(matmul, "C")
    expect(
        refused(sch, lambda: sch.reindex_cache_read(c, 0, "attic", lambda i, j, k: (i, k))),
        """
        reindex_cache_read(C, read_buffer_index=0, storage_scope='attic', index_map=lambda i, j, k: (i, k)): there is no memory named 'attic'
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: known are global, shared, shared.dyn, local, warp
        """,
    )
    expect(
        refused(sch, lambda: sch.reindex_cache_read(c, 0, "shared", lambda i, k: (i, k))),
        """
        reindex_cache_read(C, read_buffer_index=0, storage_scope='shared', index_map=lambda i, k: (i, k)): the map takes 2 indices, and block C has 3 iterators
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.reindex_cache_read(c, 5, "shared", lambda i, j, k: (i, k))),
        """
        reindex_cache_read(C, read_buffer_index=5, storage_scope='shared', index_map=lambda i, j, k: (i, k)): the buffer is given as ('read', 5), and block C has 2 reads and 1 writes
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: give ("read", index), ("write", index) or the name of the buffer
        """,
    )
    expect(
        refused(sch, lambda: sch.reindex_cache_write(c, 0, "local", lambda i, j, k: (i, j, k))),
        """
        reindex_cache_write(C, write_buffer_index=0, storage_scope='local', index_map=lambda i, j, k: (i, j, k)): iterator `vk` of block C, which chooses the element, is not spatial
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


# ---------------------------------------------------------------------------- cache_inplace
@T.prim_func
def inplace(A: T.Buffer((8,), "float32")):
    for i in range(6):
        with T.block("A"):
            vi = T.axis.spatial(8, i + 1)
            A[vi] = A[vi] + T.float32(1)


def test_cache_inplace(expect):
    sch, a = on(inplace, "A")
    load, store = sch.cache_inplace(a, 0, "local")
    assert (load.name, store.name) == ("A_local", "A_local_1")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def inplace(A: T.Buffer((8,), "float32")):
            # with T.block("root"):
            A_local = T.alloc_buffer((8,), scope="local")
            for ax0 in range(6):
                with T.block("A_local"):
                    v0 = T.axis.spatial(8, 1 + ax0)
                    T.reads(A[v0])
                    T.writes(A_local[v0])
                    A_local[v0] = A[v0]
            for i in range(6):
                with T.block("A"):
                    vi = T.axis.spatial(8, i + 1)
                    T.reads(A_local[vi])
                    T.writes(A_local[vi])
                    A_local[vi] = A_local[vi] + T.float32(1)
            for ax0 in range(6):
                with T.block("A_local_1"):
                    v0 = T.axis.spatial(8, 1 + ax0)
                    T.reads(A_local[v0])
                    T.writes(A[v0])
                    A[v0] = A_local[v0]
        """,
    )
    keeps_meaning(inplace, sch)


@pytest.mark.parametrize("which", ["A", 0])
def test_cache_inplace_of_elements_that_follow_from_others(which):
    @T.prim_func
    def running(A: T.Buffer((9,), "float32")):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.scan(8, i)
                A[vi + 1] = A[vi] + A[vi + 1]

    sch, a = on(running, "A")
    sch.cache_inplace(a, which, "global")
    keeps_meaning(running, sch)


def test_only_read_or_only_written(expect, refused):
    sch, c = on(matmul, "C")
    expect(
        refused(sch, lambda: sch.cache_inplace(c, 0, "local")),
        """
        cache_inplace(C, read_buffer_index=0, storage_scope='local'): block C does not write A
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: cache_read and cache_write are for what is only read or only written
        """,
    )
    expect(
        refused(sch, lambda: sch.cache_inplace(c, "C", "local")),
        """
        cache_inplace(C, read_buffer_index='C', storage_scope='local'): block C does not read C
          at test_reindex.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: cache_read and cache_write are for what is only read or only written
        """,
    )


def test_another_user_in_the_same_nest(expect, refused):
    @T.prim_func
    def two(A: T.Buffer((8,), "float32"), B: T.Buffer((8,), "float32")):
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                A[vi] = A[vi] + T.float32(1)
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi]

    sch, a = on(two, "A")
    expect(
        refused(sch, lambda: sch.cache_inplace(a, 0, "local")),
        """
        cache_inplace(A, read_buffer_index=0, storage_scope='local'): block B uses A in the same loop nest
          at test_reindex.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: move block B out of the nest first
        """,
    )


def test_cache_inplace_refuses_a_block_that_hands_out_the_pointer(refused):
    """The call would still work on A, and the copies would move nothing."""

    @T.prim_func
    def called(A: T.Buffer((8,), "int32")):
        for _ in range(1):
            with T.block("call"):
                T.reads(A[0:8])
                T.writes(A[0:8])
                T.evaluate(T.call_extern("", "work_on", A.data))

    sch, call = on(called, "call")
    text = refused(sch, lambda: sch.cache_inplace(call, 0, "local"))
    assert "block call uses A through a pointer, so its accesses cannot be redirected to the copy" in text
