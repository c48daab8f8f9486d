"""Blocks moved under loops of their consumers: compute_at."""

from __future__ import annotations

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_programs import chain
from stage_programs import (
    argmax,
    backwards,
    batched,
    blur,
    conv2d,
    fork,
    levels,
    matmul_relu,
    overwritten,
    refusal,
    same,
    same_again,
    stencil,
    symbolic_stencil,
    tiled,
    unread,
)

import tilewright as tvm
from tilewright import tir
from tilewright.ir.errors import ScheduleError
from tilewright.script import tir as T
from tilewright.tir.schedule import compute_at, dependence
from tilewright.tir.schedule.dependence import check_concurrent


# ---------------------------------------------------------------------------- compute_at: expect
def test_point_by_point(expect):
    sch = tir.Schedule(backwards)
    sch.compute_at("B", sch.get_loops("C")[0])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def backwards(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((8,))
            for i in range(8):
                with T.block("B"):
                    vi = T.axis.spatial(8, 7 - i)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    B[vi] = A[vi] * T.float32(2)
                with T.block("C"):
                    vi = T.axis.spatial(8, i)
                    T.reads(B[7 - vi])
                    T.writes(C[vi])
                    C[vi] = B[7 - vi]
        """,
    )
    same(backwards, sch)


def test_a_halo_is_guarded_at_both_borders(expect):
    sch, (outer,), _ = tiled(stencil, "C", 4)
    sch.compute_at("B", outer)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def stencil(A: T.Buffer((10,), "float32"), C: T.Buffer((10,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((10,))
            for i_0 in range(3):
                for ax0 in range(6):
                    with T.block("B"):
                        vi = T.axis.spatial(10, i_0 * 4 - 1 + ax0)
                        T.where(i_0 * 4 - 1 + ax0 >= 0 and i_0 * 4 - 1 + ax0 < 10)
                        T.reads(A[vi])
                        T.writes(B[vi])
                        B[vi] = A[vi] * T.float32(2)
                for i_1 in range(4):
                    with T.block("C"):
                        vi = T.axis.spatial(10, i_0 * 4 + i_1)
                        T.where(i_0 * 4 + i_1 < 10)
                        T.reads(B[vi - 1:vi + 2])
                        T.writes(C[vi])
                        C[vi] = T.if_then_else(vi >= 1, B[vi - 1], T.float32(0)) + B[vi] + T.if_then_else(vi < 9, B[vi + 1], T.float32(0))
        """,
    )
    same(stencil, sch)


def test_rows_that_overlap_need_no_guard(expect):
    sch = tir.Schedule(blur)
    i, j = sch.get_loops("D")
    sch.compute_at("B", i)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def blur(A: T.Buffer((9, 11), "float32"), D: T.Buffer((7, 9), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((9, 9))
            for i in range(7):
                for ax0, ax1 in T.grid(3, 9):
                    with T.block("B"):
                        vi = T.axis.spatial(9, i + ax0)
                        vj = T.axis.spatial(9, ax1)
                        T.reads(A[vi, vj:vj + 3])
                        T.writes(B[vi, vj])
                        B[vi, vj] = A[vi, vj] + A[vi, vj + 1] + A[vi, vj + 2]
                for j in range(9):
                    with T.block("D"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(B[vi:vi + 3, vj])
                        T.writes(D[vi, vj])
                        D[vi, vj] = B[vi, vj] + B[vi + 1, vj] + B[vi + 2, vj]
        """,
    )
    same(blur, sch)


def test_a_reduction_in_tiles_that_do_not_divide(expect):
    sch, (io, jo), _ = tiled(matmul_relu, "D", 4, 4)
    sch.compute_at("C", jo)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul_relu(A: T.Buffer((7, 10), "float32"), B: T.Buffer((10, 6), "float32"), D: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            C = T.alloc_buffer((7, 6))
            for i_0, j_0 in T.grid(2, 2):
                for ax0, ax1, ax2 in T.grid(4, 4, 10):
                    with T.block("C"):
                        vi = T.axis.spatial(7, i_0 * 4 + ax0)
                        vj = T.axis.spatial(6, j_0 * 4 + ax1)
                        vk = T.axis.reduce(10, ax2)
                        T.where(i_0 * 4 + ax0 < 7 and j_0 * 4 + ax1 < 6)
                        T.reads(A[vi, vk], B[vk, vj])
                        T.writes(C[vi, vj])
                        with T.init():
                            C[vi, vj] = T.float32(0)
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
                for i_1, j_1 in T.grid(4, 4):
                    with T.block("D"):
                        vi = T.axis.spatial(7, i_0 * 4 + i_1)
                        vj = T.axis.spatial(6, j_0 * 4 + j_1)
                        T.where(i_0 * 4 + i_1 < 7 and j_0 * 4 + j_1 < 6)
                        T.reads(C[vi, vj])
                        T.writes(D[vi, vj])
                        D[vi, vj] = T.max(C[vi, vj], T.float32(0))
        """,
    )
    same(matmul_relu, sch)


@pytest.mark.slow
def test_a_symbolic_halo(expect):
    sch, (outer,), _ = tiled(symbolic_stencil, "C", 4)
    sch.compute_at("B", outer)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def symbolic_stencil(a: T.handle, c: T.handle):
            n = T.int32()
            A = T.match_buffer(a, (n,))
            C = T.match_buffer(c, (n,))
            # with T.block("root"):
            B = T.alloc_buffer((n,))
            for i_0 in range((n + 3) // 4):
                for ax0 in range(5):
                    with T.block("B"):
                        vi = T.axis.spatial(n, i_0 * 4 - 1 + ax0)
                        T.where(i_0 * 4 - 1 + ax0 >= 0 and i_0 * 4 - 1 + ax0 < n)
                        T.reads(A[vi])
                        T.writes(B[vi])
                        B[vi] = A[vi] * T.float32(2)
                for i_1 in range(4):
                    with T.block("C"):
                        vi = T.axis.spatial(n, i_0 * 4 + i_1)
                        T.where(i_0 * 4 + i_1 < n)
                        T.reads(B[vi - 1:vi + 1])
                        T.writes(C[vi])
                        C[vi] = B[vi] + T.if_then_else(vi >= 1, B[vi - 1], T.float32(0))
        """,
    )
    for n in (1, 3, 4, 5, 8, 9):
        same(symbolic_stencil, sch, n=n, build=n == 5)


def test_unit_loops_may_be_kept(expect):
    sch = tir.Schedule(blur)
    i, j = sch.get_loops("D")
    sch.compute_at("B", j, preserve_unit_loops=True)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def blur(A: T.Buffer((9, 11), "float32"), D: T.Buffer((7, 9), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((9, 9))
            for i, j in T.grid(7, 9):
                for ax0, ax1 in T.grid(3, 1):
                    with T.block("B"):
                        vi = T.axis.spatial(9, i + ax0)
                        vj = T.axis.spatial(9, j + ax1)
                        T.reads(A[vi, vj:vj + 3])
                        T.writes(B[vi, vj])
                        B[vi, vj] = A[vi, vj] + A[vi, vj + 1] + A[vi, vj + 2]
                with T.block("D"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(B[vi:vi + 3, vj])
                    T.writes(D[vi, vj])
                    D[vi, vj] = B[vi, vj] + B[vi + 1, vj] + B[vi + 2, vj]
        """,
    )
    same(blur, sch)


@T.prim_func
def three(A: T.Buffer((6,), "float32"), D: T.Buffer((6,), "float32"), E: T.Buffer((6,), "float32")):
    B = T.alloc_buffer((6,))
    C = T.alloc_buffer((6,))
    for i in range(6):
        with T.block("B"):
            vi = T.axis.spatial(6, i)
            B[vi] = A[vi] + T.float32(1)
    for i in range(6):
        with T.block("C"):
            vi = T.axis.spatial(6, i)
            C[vi] = A[vi] * T.float32(2)
    for i in range(6):
        with T.block("D"):
            vi = T.axis.spatial(6, i)
            D[vi] = B[vi]
        with T.block("E"):
            vi = T.axis.spatial(6, i)
            E[vi] = B[vi] + C[vi]


@pytest.mark.parametrize(("index", "order"), [(-1, "DCE"), (-2, "CDE"), (0, "CDE"), (1, "DCE")])
def test_the_place_among_the_loops_statements(index, order):
    sch = tir.Schedule(three)
    (i,) = sch.get_loops("D")
    sch.compute_at("C", i, index=index)
    assert [b.name for b in sch.get_child_blocks(i)] == list(order)
    same(three, sch)


# ---------------------------------------------------------------------------- compute_at: meaning
@pytest.mark.parametrize("factor", [1, 2, 3, 4, 7, 10, 16])
def test_stencil_in_tiles(factor):
    sch, (outer,), (inner,) = tiled(stencil, "C", factor)
    sch.compute_at("B", outer)
    same(stencil, sch)


@pytest.mark.parametrize("factors", [(2, 3), (4, 4), (7, 2), (1, 9), (3, None)])
@pytest.mark.parametrize("at", [0, 1])
def test_blur_in_tiles(factors, at):
    sch, outer, _ = tiled(blur, "D", *factors)
    sch.compute_at("B", outer[at])
    same(blur, sch, build=False)


@pytest.mark.parametrize("at", range(6))
@pytest.mark.parametrize("factors", [(None, None, None), (2, 2, 4)])
def test_conv2d_with_padding(at, factors):
    sch, *_ = tiled(conv2d, "S", *factors)
    sch.compute_at("P", sch.get_loops("S")[at])
    same(conv2d, sch, build=at == 2)


@pytest.mark.slow
def test_conv2d_all_in_the_last_stage():
    sch, (o, y, x), _ = tiled(conv2d, "Y", 2, 2, 4)
    sch.compute_at("S", x)
    sch.compute_at("P", x)
    assert [b.name for b in sch.get_child_blocks(x)] == ["P", "S", "Y"]
    same(conv2d, sch)
    same_again(conv2d, sch)


@pytest.mark.parametrize("at", range(3))
def test_batched_matmul(at):
    sch = tir.Schedule(batched)
    sch.compute_at("C", sch.get_loops("D")[at])
    same(batched, sch)


@pytest.mark.parametrize("factor", [None, 1, 4, 5, 12])
def test_several_consumers_under_the_loop(factor):
    sch = tir.Schedule(fork)
    (i,) = sch.get_loops("C")
    if factor:
        i, _ = sch.split(i, [None, factor])
    sch.compute_at("B", i)
    same(fork, sch)


def test_a_chain_from_the_end():
    sch = tir.Schedule(chain)
    (i,) = sch.get_loops("D")
    outer, _ = sch.split(i, [None, 4])
    sch.compute_at("C", outer)
    sch.compute_at("B", outer)
    assert [b.name for b in sch.get_child_blocks(outer)] == ["B", "C", "D"]
    same(chain, sch)
    same_again(chain, sch)


@pytest.mark.parametrize("mark", ["parallel", "unroll", "vectorize"])
@pytest.mark.parametrize("first", [True, False])
def test_under_marked_loops(mark, first):
    sch, (outer,), (inner,) = tiled(stencil, "C", 4)
    loop = inner if mark == "vectorize" else outer
    if first:
        getattr(sch, mark)(loop)
    sch.compute_at("B", outer)
    if not first:
        getattr(sch, mark)(loop)
    same(stencil, sch)


def test_a_marked_loop_around_the_old_place_and_the_new_one_is_checked_once(monkeypatch):
    sch, (outer, _), _ = tiled(blur, "D", 4, 3)
    sch.compute_at("B", outer)
    sch.parallel(outer)
    checked = []

    def check(sch, loop, *rest):
        checked.append(loop.loop_var.name)
        return check_concurrent(sch, loop, *rest)

    for module in (compute_at, dependence):
        monkeypatch.setattr(module, "check_concurrent", check)
    sch.compute_at("B", sch.get_loops("D")[1])
    assert checked == ["i_0"]
    same(blur, sch)


def test_the_moved_block_can_be_scheduled_further():
    sch, (io, jo), _ = tiled(matmul_relu, "D", 4, 4)
    sch.compute_at("C", jo)
    *_, x, y, k = sch.get_loops("C")
    ko, ki = sch.split(k, [None, 4])
    sch.reorder(ko, x, ki, y)
    sch.vectorize(y)
    sch.unroll(ki)
    same(matmul_relu, sch)
    same_again(matmul_relu, sch)


@pytest.mark.parametrize("func", [stencil, blur, backwards, symbolic_stencil])
def test_trace_of_compute_at(func):
    last = "D" if func is blur else "C"
    sch, outer, _ = tiled(func, last, 3)
    sch.compute_at("B", outer[0], preserve_unit_loops=True, index=0)
    same_again(func, sch)


# ---------------------------------------------------------------------------- compute_at: refuse
def test_refuse_a_block_under_the_loop_already(expect, refused):
    sch = tir.Schedule(backwards)
    (i,) = sch.get_loops("B")
    expect(
        refusal(refused, sch, "compute_at", "B", i),
        """
        compute_at(B, loop=i): loop `i` is an ancestor of block B already
          at stage_programs.py:LINE

          | …
          |     for i in range(8):    # <-- here
          | …

          hint: choose a loop of another block
        """,
    )


def test_refuse_an_output(expect, refused):
    sch = tir.Schedule(backwards)
    (i,) = sch.get_loops("B")
    expect(
        refusal(refused, sch, "compute_at", "C", i),
        """
        compute_at(C, loop=i): block C is an output block of its scope, whose buffer must be complete
          at stage_programs.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: move its producers to it with compute_at, or it to them with reverse_compute_at
        """,
    )


def test_refuse_a_consumer_elsewhere(expect, refused):
    sch = tir.Schedule(chain)
    (i,) = sch.get_loops("C")
    expect(
        refusal(refused, sch, "compute_at", "B", i),
        """
        compute_at(B, loop=i): it requires all the consumers of B to be under loop `i`, and block D is not
          at stage_programs.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …

          hint: its consumers share no loop
        """,
    )


def test_refuse_names_the_loops_that_all_consumers_share(expect, refused):
    sch = tir.Schedule(fork)
    sch.split(sch.get_loops("C")[0], [None, 4])
    assert sch.get_loops("C")[0].name == "i_0"
    sch.add_unit_loop(sch.get_block("D"))
    (*_, u) = sch.get_loops("D")
    expect(
        refusal(refused, sch, "compute_at", "B", u),
        """
        compute_at(B, loop=u): it requires all the consumers of B to be under loop `u`, and block C is not
          at stage_programs.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: it may go under i_0, i_1
        """,
    )


def test_refuse_a_block_that_nobody_reads(expect, refused):
    sch = tir.Schedule(unread)
    (i,) = sch.get_loops("C")
    expect(
        refusal(refused, sch, "compute_at", "B", i),
        """
        compute_at(B, loop=i): nothing reads the buffer that block B writes
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: move a block that is read; this one may go to its producers with reverse_compute_at
        """,
    )


def test_refuse_inputs_that_change_in_between(expect, refused):
    sch = tir.Schedule(overwritten)
    (i,) = sch.get_loops("C")
    expect(
        refusal(refused, sch, "compute_at", "B", i),
        """
        compute_at(B, loop=i): block A writes A after block B has read it, and there it would read the new values
          at stage_programs.py:LINE

          | …
          |         with T.block("A"):    # <-- here
          | …

          hint: choose a loop before that block, or cache_read A for this block first
        """,
    )


def test_inputs_that_change_afterwards_do_not_matter():
    @T.prim_func
    def later(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
        B = T.alloc_buffer((8,))
        for i in range(8):
            with T.block("B"):
                vi = T.axis.spatial(8, i)
                B[vi] = A[vi] * T.float32(2)
        for i in range(8):
            with T.block("C"):
                vi = T.axis.spatial(8, i)
                C[vi] = B[vi]
        for i in range(8):
            with T.block("A"):
                vi = T.axis.spatial(8, i)
                A[vi] = T.float32(0)

    sch = tir.Schedule(later)
    sch.compute_at("B", sch.get_loops("C")[0])
    same(later, sch)


@T.prim_func
def reused(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
    """One element of B is written anew in each iteration."""
    B = T.alloc_buffer((1,))
    C = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            B[0] = A[vi] + T.float32(1)
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = B[0] * T.float32(2)
    for i in range(8):
        with T.block("D"):
            vi = T.axis.spatial(8, i)
            D[vi] = C[vi]


def test_refuse_inputs_that_the_old_loop_writes_again(expect, refused):
    sch = tir.Schedule(reused)
    (i,) = sch.get_loops("D")
    expect(
        refusal(refused, sch, "compute_at", "C", i),
        """
        compute_at(C, loop=i): block B writes the same elements of B in each iteration of loop `i`, and outside of it block C would read only the last values
          at stage_programs.py:LINE

          | …
          |     for i in range(8):    # <-- here
          | …

          hint: leave block C inside `i`
        """,
    )


def test_refuse_two_blocks_that_fill_one_buffer(expect, refused):
    sch = tir.Schedule(matmul_relu)
    i, j, k = sch.get_loops("C")
    sch.decompose_reduction("C", k)
    (x, y) = sch.get_loops("D")
    expect(
        refusal(refused, sch, "compute_at", "C", x),
        """
        compute_at(C, loop=i): block C_init also writes C, so block C alone does not define it and is no complete block
          at stage_programs.py:LINE

          | …
          |         with T.block("C_init"):    # <-- here
          | …

          hint: apply this step before decompose_reduction or loop_partition splits the block
        """,
    )


@T.prim_func
def picked(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
    B = T.alloc_buffer((8,))
    for i in range(8):
        with T.block("B"):
            vi = T.axis.spatial(8, i)
            T.where(i < 5)
            B[vi] = A[vi]
    for i in range(8):
        with T.block("C"):
            vi = T.axis.spatial(8, i)
            C[vi] = T.if_then_else(vi < 5, B[vi], T.float32(0))


def test_refuse_a_condition_that_picks_points(expect, refused):
    sch = tir.Schedule(picked)
    (i,) = sch.get_loops("C")
    expect(
        refusal(refused, sch, "compute_at", "B", i),
        """
        compute_at(B, loop=i): block B runs only where `i < 5`, which computing it again would forget
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


@T.prim_func
def counted(A: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
    """B is read and written by one block."""
    B = T.alloc_buffer((4,))
    for i in range(4):
        with T.block("B"):
            vi = T.axis.spatial(4, i)
            B[vi] = B[vi] + A[vi]
    for i in range(4):
        with T.block("D"):
            vi = T.axis.spatial(4, i)
            D[vi] = B[vi]


def test_refuse_a_block_that_changes_what_it_reads(expect, refused):
    sch = tir.Schedule(counted)
    (i,) = sch.get_loops("D")
    expect(
        refusal(refused, sch, "compute_at", "B", i),
        """
        compute_at(B, loop=i): block B reads and writes B, so computing it again could change it twice
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


@T.prim_func
def in_order(A: T.Buffer((4,), "float32"), D: T.Buffer((4,), "float32")):
    B = T.alloc_buffer((4,))
    for i in range(4):
        with T.block("B"):
            vi = T.axis.scan(4, i)
            B[vi] = A[vi]
    for i in range(4):
        with T.block("D"):
            vi = T.axis.spatial(4, i)
            D[vi] = B[vi]


def test_refuse_an_iterator_that_runs_in_order(expect, refused):
    sch = tir.Schedule(in_order)
    (i,) = sch.get_loops("D")
    expect(
        refusal(refused, sch, "compute_at", "B", i),
        """
        compute_at(B, loop=i): iterator `vi` of block B must run in order
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


@T.prim_func
def nested(A: T.Buffer((4, 4), "float32"), D: T.Buffer((4, 4), "float32")):
    B = T.alloc_buffer((4, 4))
    for i, j in T.grid(4, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj]
    for i in range(4):
        with T.block("D"):
            vi = T.axis.spatial(4, i)
            T.reads(B[vi, 0:4])
            T.writes(D[vi, 0:4])
            for j in range(4):
                with T.block("inner"):
                    vj = T.axis.spatial(4, j)
                    D[vi, vj] = B[vi, vj]


def test_refuse_a_loop_of_another_scope(expect, refused):
    sch = tir.Schedule(nested)
    (j,) = sch.get_loops("inner")
    expect(
        refusal(refused, sch, "compute_at", "B", j),
        """
        compute_at(B, loop=j): loop `j` is not in the same block scope as block B
          at stage_programs.py:LINE

          | …
          |             for j in range(4):    # <-- here
          | …

          hint: choose a loop of the same block: i
        """,
    )
    sch.compute_at("B", sch.get_loops("D")[0])
    same(nested, sch)


def test_refuse_an_impossible_place(expect, refused):
    sch = tir.Schedule(three)
    (i,) = sch.get_loops("D")
    expect(
        refusal(refused, sch, "compute_at", "B", i, index=1),
        """
        compute_at(B, loop=i, index=1): index=1, and it may stand at 0 to 0 among the loop's statements
          at stage_programs.py:LINE

          | …
          |     for i in range(6):    # <-- here
          | …
        """,
    )


# ---------------------------------------------------------------------------- both, at random
@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(st.data())
def test_random_moves_mean_the_same_or_are_refused(data):
    func = data.draw(
        st.sampled_from([stencil, blur, conv2d, matmul_relu, batched, fork, levels, chain, argmax])
    )
    sch = tir.Schedule(func)
    names = [b.name for b in sch.get_child_blocks(sch.get_block("root"))]
    for _ in range(data.draw(st.integers(1, 5))):
        block, other = data.draw(st.sampled_from(names)), data.draw(st.sampled_from(names))
        loops = sch.get_loops(other)
        loop = data.draw(st.sampled_from(loops))
        step = data.draw(
            st.sampled_from(["split", "split", "compute_at", "compute_at", "reverse_compute_at"])
        )
        before = sch.mod
        try:
            if step == "split":
                sch.split(loop, [None, data.draw(st.integers(2, 5))])
            else:
                getattr(sch, step)(block, loop, preserve_unit_loops=data.draw(st.booleans()))
        except ScheduleError:
            assert sch.mod is before
    same(func, sch, build=False)
    same_again(func, sch)


def test_what_is_allocated_is_what_an_iteration_needs():
    """The buffer of a moved block shrinks to the rows that are alive."""
    sch = tir.Schedule(blur)
    sch.compute_at("B", sch.get_loops("D")[0])
    sizes = [
        [int(e) for e in n.extents]
        for n in tvm.ir.functor.pre_order(tvm.lower(sch.mod)["main"].body)
        if isinstance(n, tir.Allocate)
    ]
    assert [int(np.prod(s)) for s in sizes] == [3 * 9]


# ---------------------------------------------------------------------------- compute_at: the points that are needed
@T.prim_func
def backwards_rows(X: T.Buffer((6, 4), "int32"), C: T.Buffer((6, 4), "int32")):
    B = T.alloc_buffer((6, 4), "int32")
    for i, j in T.grid(6, 4):
        with T.block("B"):
            vi, vj = T.axis.remap("SS", [i, j])
            B[5 - vi, 3 - vj] = X[vi, vj] + 1
    for i, j in T.grid(6, 4):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] * 2


@T.prim_func
def in_rows_of_tiles(X: T.Buffer((32,), "int32"), C: T.Buffer((32,), "int32")):
    B = T.alloc_buffer((32,), "int32")
    for i_0 in range(8):
        with T.block("B"):
            vio = T.axis.spatial(8, i_0)
            for i_1 in range(4):
                with T.block("B_inner"):
                    vi = T.axis.spatial(32, vio * 4 + i_1)
                    B[vi] = X[vi] + 1
    for i in range(32):
        with T.block("C"):
            vi = T.axis.spatial(32, i)
            C[vi] = B[vi] * 2


@T.prim_func
def folded(X: T.Buffer((32,), "int32"), C: T.Buffer((8, 4), "int32")):
    B = T.alloc_buffer((8, 4), "int32")
    for i in range(32):
        with T.block("B"):
            vi = T.axis.spatial(32, i)
            B[vi // 4, vi % 4] = X[vi] + 1
    for i, j in T.grid(8, 4):
        with T.block("C"):
            vi, vj = T.axis.remap("SS", [i, j])
            C[vi, vj] = B[vi, vj] * 2


@pytest.mark.parametrize(
    ("func", "factors", "extents"),
    [
        (backwards_rows, None, ["6", "4"]),
        (backwards_rows, [3, 2], ["3", "2", "4"]),
        (in_rows_of_tiles, [4, 8], ["4", "2"]),
        (in_rows_of_tiles, [3, 11], ["3", "8"]),  # a tile may meet 3 or 4 of them
        (folded, None, ["8", "4"]),
        (folded, [4, 2], ["4", "8"]),
    ],
)
def test_only_the_points_that_write_what_an_iteration_reads(func, factors, extents):
    sch = tir.Schedule(func)
    loop = sch.get_loops("C")[0]
    if factors is not None:
        loop = sch.split(loop, factors)[0]
    sch.compute_at("B", loop)
    assert [str(sch.get(x).extent) for x in sch.get_loops("B")] == extents
    same(func, sch)
    same_again(func, sch)


def test_points_outside_of_the_buffer_are_not_computed():
    """C reads the first two elements of B; its other points read none."""

    @T.prim_func
    def joined(X: T.Buffer((16,), "int32"), C: T.Buffer((1, 6), "int32")):
        B = T.alloc_buffer((16,), "int32")
        for i in range(16):
            with T.block("B"):
                vi = T.axis.spatial(16, i)
                B[vi] = X[vi] + 1
        for i, j in T.grid(1, 6):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.if_then_else(vj >= 4, B[vj - 4], 7)

    sch = tir.Schedule(joined)
    sch.compute_at("B", sch.get_loops("C")[0])
    assert [str(sch.get(x).extent) for x in sch.get_loops("B")] == ["1", "2"]
    same(joined, sch)
