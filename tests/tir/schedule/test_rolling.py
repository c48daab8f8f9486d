"""What neighbouring iterations share: rolling_buffer."""

from __future__ import annotations

import numpy as np
import pytest
from schedule_checks import keeps_meaning
from schedule_programs import chain

from tilewright import tir
from tilewright.script import tir as T


@T.prim_func
def pools(A: T.Buffer((12, 12), "int32"), C: T.Buffer((8, 8), "int32")):
    B = T.alloc_buffer((10, 10), "int32")
    for i, j, p, q in T.grid(10, 10, 3, 3):
        with T.block("B"):
            vi, vj, vp, vq = T.axis.remap("SSRR", [i, j, p, q])
            with T.init():
                B[vi, vj] = -100
            B[vi, vj] = T.max(B[vi, vj], A[vi + vp, vj + vq])
    for i, j, p, q in T.grid(8, 8, 3, 3):
        with T.block("C"):
            vi, vj, vp, vq = T.axis.remap("SSRR", [i, j, p, q])
            with T.init():
                C[vi, vj] = -100
            C[vi, vj] = T.max(C[vi, vj], B[vi + vp, vj + vq])


@T.prim_func
def blur(A: T.Buffer((14,), "float32"), C: T.Buffer((12,), "float32")):
    B = T.alloc_buffer((14,))
    for i in range(14):
        with T.block("B"):
            vi = T.axis.spatial(14, i)
            B[vi] = A[vi] * T.float32(2)
    for i in range(12):
        with T.block("C"):
            vi = T.axis.spatial(12, i)
            C[vi] = B[vi] + B[vi + 1] + B[vi + 2]


def tiled(rows, columns):
    """The second pool in tiles, the first computed for each of them."""
    sch = tir.Schedule(pools)
    b, c = sch.get_block("B"), sch.get_block("C")
    i, j, _, _ = sch.get_loops(c)
    i_0, i_1 = sch.split(i, [None, rows])
    j_0, j_1 = sch.split(j, [None, columns])
    sch.reorder(i_0, j_0, i_1, j_1)
    sch.compute_at(b, j_0)
    return sch, b, i_0, j_0


def test_rolling_buffer(expect):
    sch = tir.Schedule(blur)
    b, c = sch.get_block("B"), sch.get_block("C")
    outer, _ = sch.split(sch.get_loops(c)[0], [None, 4])
    sch.compute_at(b, outer)
    sch.rolling_buffer(b, 0)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def blur(A: T.Buffer((14,), "float32"), C: T.Buffer((12,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((6,))
            for i_0 in range(3):
                for ax0 in range(6):
                    with T.block("B"):
                        vi = T.axis.spatial(14, i_0 * 4 + ax0)
                        T.where(i_0 < 1 or ax0 >= 2)
                        T.reads(A[vi])
                        T.writes(B[vi % 6])
                        B[vi % 6] = A[vi] * T.float32(2)
                for i_1 in range(4):
                    with T.block("C"):
                        vi = T.axis.spatial(12, i_0 * 4 + i_1)
                        T.reads(B[0:6])
                        T.writes(C[vi])
                        C[vi] = B[vi % 6] + B[(vi + 1) % 6] + B[(vi + 2) % 6]
        """,
    )
    keeps_meaning(blur, sch)


def test_windows_in_two_dimensions(expect):
    sch, b, _, _ = tiled(4, 4)
    sch.rolling_buffer(b, 0)
    expect(
        sch.mod["main"].body.block.body,
        """
        A = T.Buffer((12, 12), "int32")
        B = T.Buffer((6, 10), "int32")
        C = T.Buffer((8, 8), "int32")
        for i_0, j_0 in T.grid(2, 2):
            for ax0, ax1, ax2, ax3 in T.grid(6, 6, 3, 3):
                with T.block("B"):
                    vi = T.axis.spatial(10, i_0 * 4 + ax0)
                    vj = T.axis.spatial(10, j_0 * 4 + ax1)
                    vp, vq = T.axis.remap("RR", [ax2, ax3])
                    T.where((i_0 < 1 or ax0 >= 2) and (j_0 < 1 or ax1 >= 2))
                    T.reads(A[vi + vp, vj + vq])
                    T.writes(B[vi % 6, vj])
                    with T.init():
                        B[vi % 6, vj] = -100
                    B[vi % 6, vj] = T.max(B[vi % 6, vj], A[vi + vp, vj + vq])
            for i_1, j_1, p, q in T.grid(4, 4, 3, 3):
                with T.block("C"):
                    vi = T.axis.spatial(8, i_0 * 4 + i_1)
                    vj = T.axis.spatial(8, j_0 * 4 + j_1)
                    vp, vq = T.axis.remap("RR", [p, q])
                    T.reads(B[(vi + vp) % 6, vj + vq])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = -100
                    C[vi, vj] = T.max(C[vi, vj], B[(vi + vp) % 6, vj + vq])
        """,
    )
    keeps_meaning(pools, sch)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (2, 8), (8, 2), (3, 5), (1, 8)])
def test_other_tiles(rows, columns):
    sch, b, _, _ = tiled(rows, columns)
    sch.rolling_buffer(b, 0)
    keeps_meaning(pools, sch)


def test_every_element_is_computed_once():
    @T.prim_func
    def counted(A: T.Buffer((14,), "float32"), N: T.Buffer((14,), "int32"), C: T.Buffer((12,), "float32")):
        B = T.alloc_buffer((14,))
        for i in range(12):
            for ax in range(3):
                with T.block("B"):
                    vi = T.axis.spatial(14, i + ax)
                    B[vi] = A[vi]
            with T.block("C"):
                vi = T.axis.spatial(12, i)
                C[vi] = B[vi] + B[vi + 1] + B[vi + 2]

    sch = tir.Schedule(counted)
    b = sch.get_block("B")
    sch.rolling_buffer(b, 0)
    runs = [(i, ax) for i in range(12) for ax in range(3) if i < 1 or ax >= 2]
    assert "T.where(i < 1 or ax >= 2)" in str(sch.mod)
    assert sorted(i + ax for i, ax in runs) == list(range(14))
    keeps_meaning(counted, sch)


def test_a_loop_around_starts_anew():
    @T.prim_func
    def twice(A: T.Buffer((6,), "float32"), C: T.Buffer((2, 4), "float32")):
        B = T.alloc_buffer((6,))
        for n, i in T.grid(2, 4):
            for ax in range(3):
                with T.block("B"):
                    vi = T.axis.spatial(6, i + ax)
                    B[vi] = A[vi] * T.float32(3)
            with T.block("C"):
                vn, vi = T.axis.remap("SS", [n, i])
                C[vn, vi] = B[vi] + B[vi + 2]

    sch = tir.Schedule(twice)
    sch.rolling_buffer(sch.get_block("B"), 0)
    keeps_meaning(twice, sch)


def test_what_comes_after_must_keep_the_order(expect, refused):
    sch, b, i_0, j_0 = tiled(4, 4)
    sch.rolling_buffer(b, 0)
    expect(
        refused(sch, lambda: sch.parallel(i_0)),
        """
        parallel(i_0): an iteration of loop `i_0` may use elements of B that another one writes (blocks B and C)
          at test_rolling.py:LINE

          | …
          |     for i_0, j_0 in T.grid(2, 2):    # <-- here
          | …

          hint: leave loop `i_0` serial, or parallel(ax1)
        """,
    )
    expect(
        refused(sch, lambda: sch.parallel(j_0)),
        """
        parallel(j_0): an iteration of loop `j_0` may use elements of B that another one writes (blocks B and C)
          at test_rolling.py:LINE

          | …
          |     for i_0, j_0 in T.grid(2, 2):    # <-- here
          | …

          hint: leave loop `j_0` serial, or parallel(ax1)
        """,
    )
    expect(
        refused(sch, lambda: sch.vectorize(j_0)),
        """
        vectorize(j_0): an iteration of loop `j_0` may use elements of B that another one writes (blocks B and C)
          at test_rolling.py:LINE

          | …
          |     for i_0, j_0 in T.grid(2, 2):    # <-- here
          | …

          hint: leave loop `j_0` serial, or vectorize(ax1)
        """,
    )
    expect(
        refused(sch, lambda: sch.reorder(j_0, i_0)),
        """
        reorder(j_0, i_0): an iteration of loop `i_0` may use elements of B that another one writes (blocks B and C)
          at test_rolling.py:LINE

          | …
          |     for i_0, j_0 in T.grid(2, 2):    # <-- here
          | …

          hint: leave loop `i_0` where it is
        """,
    )


def test_windows_that_do_not_overlap(expect, refused):
    @T.prim_func
    def apart(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(4):
            for ax in range(2):
                with T.block("B"):
                    vi = T.axis.spatial(8, i * 2 + ax)
                    B[vi] = A[vi]
            for ax in range(2):
                with T.block("C"):
                    vi = T.axis.spatial(8, i * 2 + ax)
                    C[vi] = B[vi]

    sch = tir.Schedule(apart)
    b = sch.get_block("B")
    expect(
        refused(sch, lambda: sch.rolling_buffer(b, 0)),
        """
        rolling_buffer(B, write_buffer_index=0): the windows of B in neighbouring iterations do not overlap, so nothing can be kept
          at test_rolling.py:LINE

          | …
          |     for i in range(4):    # <-- here
          | …

          hint: compute_at it under a loop in which its consumer reads a window, as a convolution does
        """,
    )


def test_a_block_that_was_not_moved(expect, refused):
    sch = tir.Schedule(blur)
    b = sch.get_block("B")
    expect(
        refused(sch, lambda: sch.rolling_buffer(b, 0)),
        """
        rolling_buffer(B, write_buffer_index=0): no loop holds block B and all that read it
          at test_rolling.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: compute_at it under a loop of its consumer first
        """,
    )


def test_a_loop_that_runs_at_once(expect, refused):
    sch, b, i_0, _j_0 = tiled(4, 4)
    sch.parallel(i_0)
    expect(
        refused(sch, lambda: sch.rolling_buffer(b, 0)),
        """
        rolling_buffer(B, write_buffer_index=0): the iterations of loop `i_0` run at once, so none can use the one before
          at test_rolling.py:LINE

          | …
          |     for i_0 in T.parallel(2):    # <-- here
          | …

          hint: roll first under a serial loop, and run a loop outside of the ring at once
        """,
    )


def test_refuse_a_parameter(expect, refused):
    sch = tir.Schedule(chain)
    d = sch.get_block("D")
    expect(
        refused(sch, lambda: sch.rolling_buffer(d, 0)),
        """
        rolling_buffer(D, write_buffer_index=0): D is a parameter of the function, of which all must be kept
          at test_rolling.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …

          hint: cache_write it first, and roll the copy
        """,
    )


def test_refuse_what_is_computed_from_what_changes(expect, refused):
    @T.prim_func
    def changing(A: T.Buffer((6,), "float32"), C: T.Buffer((4,), "float32")):
        B = T.alloc_buffer((6,))
        for i in range(4):
            for k in range(6):
                with T.block("A"):
                    vk = T.axis.spatial(6, k)
                    A[vk] = A[vk] + T.float32(1)
            for ax in range(3):
                with T.block("B"):
                    vi = T.axis.spatial(6, i + ax)
                    B[vi] = A[vi]
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                C[vi] = B[vi] + B[vi + 2]

    sch = tir.Schedule(changing)
    b = sch.get_block("B")
    expect(
        refused(sch, lambda: sch.rolling_buffer(b, 0)),
        """
        rolling_buffer(B, write_buffer_index=0): block A changes what block B reads from iteration to iteration
          at test_rolling.py:LINE

          | …
          |             with T.block("A"):    # <-- here
          | …
        """,
    )


def test_refuse_what_is_read_behind(expect, refused):
    @T.prim_func
    def behind(A: T.Buffer((8,), "float32"), C: T.Buffer((6,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(6):
            for ax in range(3):
                with T.block("B"):
                    vi = T.axis.spatial(8, i + ax)
                    B[vi] = A[vi]
            with T.block("C"):
                vi = T.axis.spatial(6, i)
                C[vi] = B[T.max(vi - 1, 0)]

    sch = tir.Schedule(behind)
    b = sch.get_block("B")
    expect(
        refused(sch, lambda: sch.rolling_buffer(b, 0)),
        """
        rolling_buffer(B, write_buffer_index=0): block C may read more of B than one iteration of loop `i` computes
          at test_rolling.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_the_ring_is_smaller():
    sch, b, _, _ = tiled(1, 8)
    sch.rolling_buffer(b, 0)
    (ring,) = sch.mod["main"].body.block.alloc_buffers
    assert np.prod([int(d) for d in ring.shape]) == 3 * 10
