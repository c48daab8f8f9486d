"""Reductions taken apart: decompose_reduction, rfactor."""

from __future__ import annotations

import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_checks import keeps_meaning
from schedule_programs import copy2d, matmul
from stage_programs import argmax, batched, conv2d, matmul_relu, same, same_again

from tilewright import tir
from tilewright.ir.errors import ScheduleError
from tilewright.script import from_source
from tilewright.script import tir as T


def row_reduction(combine, init, dtype="float32"):
    """C[i] = combine over k of A[i, k], from text, for any combiner."""
    text = f"""
from tilewright.script import tir as T

@T.prim_func
def rows(A: T.Buffer((5, 10), "{dtype}"), C: T.Buffer((5,), "{dtype}")):
    for i, k in T.grid(5, 10):
        with T.block("C"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                C[vi] = {init}
            C[vi] = {combine}
"""
    return from_source(text)


COMBINERS = {
    "sum": ("C[vi] + A[vi, vk]", "T.float32(0)", "float32"),
    "sum from the right": ("A[vi, vk] + C[vi]", "T.float32(0)", "float32"),
    "sum from a start": ("C[vi] + A[vi, vk]", "A[vi, 0] * T.float32(3)", "float32"),
    "product": ("C[vi] * A[vi, vk]", "T.float32(1)", "float32"),
    "product from a start": ("C[vi] * A[vi, vk]", "T.float32(-2)", "float32"),
    "max": ("T.max(C[vi], A[vi, vk])", 'T.min_value("float32")', "float32"),
    "min": ("T.min(C[vi], A[vi, vk])", 'T.max_value("float32")', "float32"),
    "max from a start": ("T.max(C[vi], A[vi, vk])", "T.float32(3)", "float32"),
    "int sum": ("C[vi] + A[vi, vk]", "0", "int32"),
    "int product": ("C[vi] * A[vi, vk]", "1", "int32"),
    "int min": ("T.min(A[vi, vk], C[vi])", "T.int32(100)", "int32"),
}


# ---------------------------------------------------------------------------- decompose_reduction: expect
def test_init_before_the_reduction_loop(expect):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    init = sch.decompose_reduction("C", k)
    assert init.name == "C_init"
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            for i, j in T.grid(7, 6):
                with T.block("C_init"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads()
                    T.writes(C[vi, vj])
                    C[vi, vj] = T.float32(0)
                for k in range(5):
                    with T.block("C"):
                        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                        T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
                        T.writes(C[vi, vj])
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    same(matmul, sch)


def test_init_block_has_the_annotations_of_the_block():
    sch = tir.Schedule(matmul)
    sch.annotate("C", "my_note", 3)
    init = sch.decompose_reduction("C", sch.get_loops("C")[-1])
    assert dict(sch.get(init).annotations) == dict(sch.get(sch.get_block("C")).annotations) == {"my_note": 3}


def test_init_before_the_outermost_loop(expect):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.split(i, [None, 4])
    sch.decompose_reduction("C", sch.get_loops("C")[0])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            for i_0_init, i_1_init, j_init in T.grid(2, 4, 6):
                with T.block("C_init"):
                    vi = T.axis.spatial(7, i_0_init * 4 + i_1_init)
                    vj = T.axis.spatial(6, j_init)
                    T.where(i_0_init * 4 + i_1_init < 7)
                    T.reads()
                    T.writes(C[vi, vj])
                    C[vi, vj] = T.float32(0)
            for i_0, i_1, j, k in T.grid(2, 4, 6, 5):
                with T.block("C"):
                    vi = T.axis.spatial(7, i_0 * 4 + i_1)
                    vj, vk = T.axis.remap("SR", [j, k])
                    T.where(i_0 * 4 + i_1 < 7)
                    T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    same(matmul, sch)


def test_init_of_tiles_before_a_part_of_the_reduction(expect):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    io, ii = sch.split(i, [None, 4])
    ko, ki = sch.split(k, [None, 2])
    sch.reorder(io, ko, ii, j, ki)
    sch.vectorize(j)
    sch.decompose_reduction("C", ko)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            for i_0 in range(2):
                for i_1_init in range(4):
                    for j_init in T.vectorized(6):
                        with T.block("C_init"):
                            vi = T.axis.spatial(7, i_0 * 4 + i_1_init)
                            vj = T.axis.spatial(6, j_init)
                            T.where(i_0 * 4 + i_1_init < 7)
                            T.reads()
                            T.writes(C[vi, vj])
                            C[vi, vj] = T.float32(0)
                for k_0, i_1 in T.grid(3, 4):
                    for j in T.vectorized(6):
                        for k_1 in range(2):
                            with T.block("C"):
                                vi = T.axis.spatial(7, i_0 * 4 + i_1)
                                vj = T.axis.spatial(6, j)
                                vk = T.axis.reduce(5, k_0 * 2 + k_1)
                                T.where(i_0 * 4 + i_1 < 7 and k_0 * 2 + k_1 < 5)
                                T.reads(C[vi, vj], A[vi, vk], B[vk, vj])
                                T.writes(C[vi, vj])
                                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    same(matmul, sch)
    same_again(matmul, sch)


# ---------------------------------------------------------------------------- decompose_reduction: meaning
@pytest.mark.parametrize("func", [matmul, matmul_relu, batched])
@pytest.mark.parametrize("at", range(3))
def test_init_at_every_loop(func, at):
    sch = tir.Schedule(func)
    sch.decompose_reduction("C", sch.get_loops("C")[at])
    same(func, sch, build=at == 1)
    same_again(func, sch)


@pytest.mark.parametrize("at", range(4))
def test_init_of_a_convolution(at):
    sch = tir.Schedule(conv2d)
    sch.compute_at("S", sch.get_loops("Y")[1])
    sch.decompose_reduction("S", sch.get_loops("S")[at])
    same(conv2d, sch, build=at == 3)
    same_again(conv2d, sch)


@pytest.mark.parametrize("at", [0, 1])
def test_init_of_a_reduction_of_pairs(at):
    sch = tir.Schedule(argmax)
    sch.decompose_reduction("R", sch.get_loops("R")[at])
    same(argmax, sch)
    same_again(argmax, sch)


@pytest.mark.parametrize("name", sorted(COMBINERS))
def test_init_of_every_combiner(name):
    func = row_reduction(*COMBINERS[name])
    sch = tir.Schedule(func)
    i, k = sch.get_loops("C")
    sch.split(k, [None, 4])
    sch.decompose_reduction("C", i)
    same(func, sch, build=False)


def test_init_and_update_are_scheduled_apart():
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    init = sch.decompose_reduction("C", i)
    x, y = sch.get_loops(init)
    sch.vectorize(y)
    sch.parallel(x)
    sch.reorder(k, j)
    sch.vectorize(j)
    same(matmul, sch)
    same_again(matmul, sch)


# ---------------------------------------------------------------------------- decompose_reduction: refuse
def test_refuse_a_block_without_init(expect, refused):
    sch = tir.Schedule(matmul)
    block, k = sch.get_block("C"), sch.get_loops("C")[2]
    sch.decompose_reduction(block, k)
    expect(
        refused(sch, lambda: sch.decompose_reduction(block, k)),
        """
        decompose_reduction(C, loop=k): block C has no init to decompose
          at test_reduction.py:LINE

          | …
          |             with T.block("C"):    # <-- here
          | …

          hint: it was decomposed already, or the block is not a reduction
        """,
    )


def test_refuse_a_loop_of_another_block(expect, refused):
    sch = tir.Schedule(matmul_relu)
    block, i = sch.get_block("C"), sch.get_loops("D")[0]
    expect(
        refused(sch, lambda: sch.decompose_reduction(block, i)),
        """
        decompose_reduction(C, loop=i): loop `i` is not around block C
          at test_reduction.py:LINE

          | …
          |     for i, j in T.grid(7, 6):    # <-- here
          | …

          hint: the loops around it are: i, j, k
        """,
    )


def test_refuse_a_loop_inside_the_reduction(expect, refused):
    sch = tir.Schedule(matmul)
    block, (_, j, k) = sch.get_block("C"), sch.get_loops("C")
    sch.reorder(k, j)
    expect(
        refused(sch, lambda: sch.decompose_reduction(block, j)),
        """
        decompose_reduction(C, loop=j): loop `k` carries the reduction and is outside `j`: the init would run once for each of its iterations
          at test_reduction.py:LINE

          | …
          |     for i, k, j in T.grid(7, 5, 6):    # <-- here
          | …

          hint: decompose at `k` or further out
        """,
    )


def test_refuse_a_loop_that_is_both(expect, refused):
    sch = tir.Schedule(matmul)
    block, (_, j, k) = sch.get_block("C"), sch.get_loops("C")
    both = sch.fuse(j, k)
    expect(
        refused(sch, lambda: sch.decompose_reduction(block, both)),
        """
        decompose_reduction(C, loop=j_k_fused): a loop drives both spatial and reduction iterators of block C
          at test_reduction.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: apply decompose_reduction before the reduction is fused with other loops
        """,
    )


# ---------------------------------------------------------------------------- rfactor: expect
def test_partial_sums(expect):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    ko, ki = sch.split(k, [None, 1])
    partial = sch.rfactor(ko)
    assert partial.name == "C_rf"
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul(A: T.Buffer((7, 5), "float32"), B: T.Buffer((5, 6), "float32"), C: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            C_rf = T.alloc_buffer((5, 7, 6))
            for i, j, k_0, k_1 in T.grid(7, 6, 5, 1):
                with T.block("C_rf"):
                    vk_0, vi, vj = T.axis.remap("SSS", [k_0, i, j])
                    T.reads(A[vi, vk_0], B[vk_0, vj])
                    T.writes(C_rf[vk_0, vi, vj])
                    with T.init():
                        C_rf[vk_0, vi, vj] = T.float32(0)
                    C_rf[vk_0, vi, vj] = C_rf[vk_0, vi, vj] + A[vi, vk_0] * B[vk_0, vj]
            for i, j, k_0 in T.grid(7, 6, 5):
                with T.block("C"):
                    vi, vj, vk_0 = T.axis.remap("SSR", [i, j, k_0])
                    T.reads(C_rf[vk_0, vi, vj])
                    T.writes(C[vi, vj])
                    with T.init():
                        C[vi, vj] = T.float32(0)
                    C[vi, vj] = C[vi, vj] + C_rf[vk_0, vi, vj]
        """,
    )
    same(matmul, sch)


def test_partial_sums_of_a_split_that_does_not_divide(expect):
    func = row_reduction(*COMBINERS["sum"])
    sch = tir.Schedule(func)
    i, k = sch.get_loops("C")
    ko, ki = sch.split(k, [None, 4])
    sch.rfactor(ki, 1)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def rows(A: T.Buffer((5, 10), "float32"), C: T.Buffer((5,), "float32")):
            # with T.block("root"):
            C_rf = T.alloc_buffer((5, 4))
            for i, k_0, k_1 in T.grid(5, 3, 4):
                with T.block("C_rf"):
                    vk_1, vi, vk_0 = T.axis.remap("SSR", [k_1, i, k_0])
                    T.reads(A[vi, vk_0 * 4 + vk_1])
                    T.writes(C_rf[vi, vk_1])
                    with T.init():
                        C_rf[vi, vk_1] = T.float32(0)
                    if vk_0 * 4 + vk_1 < 10:
                        C_rf[vi, vk_1] = C_rf[vi, vk_1] + A[vi, vk_0 * 4 + vk_1]
            for i, k_1 in T.grid(5, 4):
                with T.block("C"):
                    vi, vk_1 = T.axis.remap("SR", [i, k_1])
                    T.reads(C_rf[vi, vk_1])
                    T.writes(C[vi])
                    with T.init():
                        C[vi] = T.float32(0)
                    C[vi] = C[vi] + C_rf[vi, vk_1]
        """,
    )
    same(func, sch)
    same_again(func, sch)


def test_a_start_counts_once(expect):
    func = row_reduction(*COMBINERS["sum from a start"])
    sch = tir.Schedule(func)
    i, k = sch.get_loops("C")
    sch.rfactor(k)
    text = sch.mod.script()
    assert "C_rf[vk, vi] = T.float32(0)" in text and "C[vi] = A[vi, 0] * T.float32(3)" in text
    same(func, sch)


# ---------------------------------------------------------------------------- rfactor: meaning
@pytest.mark.parametrize("name", sorted(COMBINERS))
@pytest.mark.parametrize("factor", [3, 5])
@pytest.mark.parametrize("part", [0, 1])
def test_every_combiner(name, factor, part):
    func = row_reduction(*COMBINERS[name])
    sch = tir.Schedule(func)
    i, k = sch.get_loops("C")
    parts = sch.split(k, [None, factor])
    sch.rfactor(parts[part])
    same(func, sch, build=factor == 3 and part == 1)
    same_again(func, sch)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("factor", [2, 3, 5, 8])
def test_every_place_of_the_new_axis(axis, factor):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.split(i, [None, 4])
    ko, ki = sch.split(k, [None, factor])
    partial = sch.rfactor(ki, axis)
    size = [str(d) for d in sch.get(partial).writes[0].buffer.shape]
    want = ["7", "6"]
    want.insert(axis if axis >= 0 else axis + 3, str(factor))
    assert size == want
    same(matmul, sch, build=False)
    same_again(matmul, sch)


def test_a_reduction_over_several_loops():
    sch = tir.Schedule(conv2d)
    *_, c, ky, kx = sch.get_loops("S")
    fused = sch.fuse(ky, kx)
    fo, fi = sch.split(fused, [None, 4])
    sch.rfactor(fo, 1)
    same(conv2d, sch)
    same_again(conv2d, sch)
    sch = tir.Schedule(conv2d)
    sch.rfactor(sch.get_loops("S")[3])
    same(conv2d, sch)


def test_logical_reductions():
    @T.prim_func
    def signs(A: T.Buffer((5, 6), "int32"), C: T.Buffer((5,), "bool"), D: T.Buffer((5,), "bool")):
        for i, k in T.grid(5, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi] = T.bool(True)
                C[vi] = C[vi] and A[vi, vk] > -7
        for i, k in T.grid(5, 6):
            with T.block("D"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    D[vi] = T.bool(False)
                D[vi] = D[vi] or A[vi, vk] > 6

    for name in "CD":
        sch = tir.Schedule(signs)
        ko, ki = sch.split(sch.get_loops(name)[1], [None, 4])
        sch.rfactor(ki)
        same(signs, sch)
        same_again(signs, sch)


def test_a_part_that_runs_once():
    sch = tir.Schedule(matmul)
    ko, ki = sch.split(sch.get_loops("C")[2], [None, 5])
    sch.rfactor(ko)
    same(matmul, sch)


def test_a_symbolic_reduction():
    @T.prim_func
    def total(a: T.handle, C: T.Buffer((1,), "float32")):
        n = T.int32()
        A = T.match_buffer(a, (n,))
        for k in range(n):
            with T.block("C"):
                vk = T.axis.reduce(n, k)
                with T.init():
                    C[0] = T.float32(0)
                C[0] = C[0] + A[vk]

    for part in (0, 1):
        sch = tir.Schedule(total)
        parts = sch.split(sch.get_loops("C")[0], [None, 4])
        sch.rfactor(parts[part])
        for n in (1, 4, 7):
            same(total, sch, n=n, build=n == 7)
        same_again(total, sch)


def test_a_dot_product_in_lanes():
    """The common use: partial sums side by side, vectorised, then added up."""
    func = row_reduction(*COMBINERS["sum"])
    sch = tir.Schedule(func)
    i, k = sch.get_loops("C")
    ko, ki = sch.split(k, [None, 4])
    partial = sch.rfactor(ki, 1)
    sch.compute_at(partial, sch.get_loops("C")[0])
    *_, lane, step = sch.get_loops(partial)
    assert str(sch.get(lane).extent) == "4"
    sch.reorder(step, lane)
    sch.vectorize(lane)
    sch.decompose_reduction(partial, step)
    same(func, sch)
    same_again(func, sch)


def test_the_parts_run_at_once():
    func = row_reduction(*COMBINERS["sum"])
    sch = tir.Schedule(func)
    ko, ki = sch.split(sch.get_loops("C")[1], [None, 4])
    partial = sch.rfactor(ko)
    loops = {x.name: x for x in sch.get_loops(partial)}
    sch.reorder(loops["k_0"], loops["i"])
    sch.parallel(loops["k_0"])
    same(func, sch)


# ---------------------------------------------------------------------------- rfactor: refuse
MARKED = '  |         with T.block("C"):    # <-- here'


def rfactor_refusal(refused, sch, loop, *args):
    return refused(sch, lambda: sch.rfactor(loop, *args))


def test_refuse_a_spatial_loop(expect, refused):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    expect(
        refused(sch, lambda: sch.rfactor(j)),
        """
        rfactor(j): loop `j` does not carry the reduction of block C
          at test_reduction.py:LINE

          | …
          |     for i, j, k in T.grid(7, 6, 5):    # <-- here
          | …

          hint: its reduction loops are: k
        """,
    )


def test_refuse_after_decompose_reduction(expect, refused):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.decompose_reduction("C", i)
    expect(
        rfactor_refusal(refused, sch, k),
        """
        rfactor(k): block C has no init: apply rfactor before decompose_reduction
          at test_reduction.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: merge_reduction undoes decompose_reduction
        """,
    )


def test_refuse_a_block_that_is_no_reduction(expect, refused):
    sch = tir.Schedule(copy2d)
    expect(
        rfactor_refusal(refused, sch, sch.get_loops("B")[0]),
        """
        rfactor(i): block B has no init: apply rfactor before decompose_reduction
          at test_reduction.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: merge_reduction undoes decompose_reduction
        """,
    )


def test_refuse_a_loop_around_several_blocks(expect, refused):
    sch = tir.Schedule(matmul_relu)
    i, j, k = sch.get_loops("C")
    sch.reverse_compute_at("D", j)
    expect(
        rfactor_refusal(refused, sch, j),
        """
        rfactor(j): loop `j` must hold exactly one block, and holds 2
          at test_reduction.py:LINE

          | …
          |     for i, j in T.grid(7, 6):    # <-- here
          | …

          hint: apply rfactor before other blocks are moved under the loop
        """,
    )
    expect(
        rfactor_refusal(refused, sch, k),
        """
        rfactor(k): loop `j` holds more than the nest of block C
          at test_reduction.py:LINE

          | …
          |     for i, j in T.grid(7, 6):    # <-- here
          | …

          hint: apply rfactor before other blocks are moved under the loop
        """,
    )


def test_pairs_get_a_place_for_each_part(expect):
    sch = tir.Schedule(argmax)
    _, k = sch.get_loops("R")
    _, ki = sch.split(k, [None, 3])
    sch.annotate("R", "tir.any_order", True)  # of equal ones any will do
    sch.rfactor(ki)
    keeps_meaning(argmax, sch)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def argmax(X: T.Buffer((5, 9), "float32"), I_1: T.Buffer((5,), "int32"), V: T.Buffer((5,), "float32")):
            # with T.block("root"):
            I_rf = T.alloc_buffer((3, 5), "int32")
            V_rf = T.alloc_buffer((3, 5))
            for i, k_0, k_1 in T.grid(5, 3, 3):
                with T.block("R_rf"):
                    vk_1, vi, vk_0 = T.axis.remap("SSR", [k_1, i, k_0])
                    T.reads(X[vi, vk_0 * 3 + vk_1])
                    T.writes(I_rf[vk_1, vi], V_rf[vk_1, vi])
                    T.block_attr({"tir.any_order": T.bool(True)})
                    with T.init():
                        I_rf[vk_1, vi] = -1
                        V_rf[vk_1, vi] = T.float32(-1000)
                    v_I_rf: T.int32 = T.Select(V_rf[vk_1, vi] >= X[vi, vk_0 * 3 + vk_1], I_rf[vk_1, vi], vk_0 * 3 + vk_1)
                    v_V_rf: T.float32 = T.Select(V_rf[vk_1, vi] >= X[vi, vk_0 * 3 + vk_1], V_rf[vk_1, vi], X[vi, vk_0 * 3 + vk_1])
                    I_rf[vk_1, vi] = v_I_rf
                    V_rf[vk_1, vi] = v_V_rf
            for i, k_1 in T.grid(5, 3):
                with T.block("R"):
                    vi, vk_1 = T.axis.remap("SR", [i, k_1])
                    T.reads(V_rf[vk_1, vi], I_rf[vk_1, vi])
                    T.writes(I_1[vi], V[vi])
                    T.block_attr({"tir.any_order": T.bool(True)})
                    with T.init():
                        I_1[vi] = -1
                        V[vi] = T.float32(-1000)
                    v_I: T.int32 = T.Select(V[vi] >= V_rf[vk_1, vi], I_1[vi], I_rf[vk_1, vi])
                    v_V: T.float32 = T.Select(V[vi] >= V_rf[vk_1, vi], V[vi], V_rf[vk_1, vi])
                    I_1[vi] = v_I
                    V[vi] = v_V
        """,
    )


@pytest.mark.parametrize(
    "combine", ["C[vi] - A[vi, vk]", "A[vi, vk] - C[vi]", "C[vi] + C[vi]", "C[vi] * T.float32(2) + A[vi, vk]"]
)
def test_refuse_what_may_not_be_regrouped(combine, expect, refused):
    sch = tir.Schedule(row_reduction(combine, "T.float32(0)"))
    text = rfactor_refusal(refused, sch, sch.get_loops("C")[1])
    assert text.splitlines()[1:] == ["  at test_reduction.py:LINE", "", "  | …", MARKED, "  | …"]
    assert text.splitlines()[0] == (
        f"rfactor(k): block C combines by `{combine}`, which is not a sum, product, min, max, all or any of the "
        "element it writes and a value: its steps may not be regrouped"
    )


def test_refuse_a_running_sum(expect, refused):
    @T.prim_func
    def running(A: T.Buffer((8,), "float32"), C: T.Buffer((9,), "float32")):
        for k in range(8):
            with T.block("C"):
                vk = T.axis.reduce(8, k)
                with T.init():
                    C[0] = T.float32(0)
                C[vk + 1] = C[vk] + A[vk]

    sch = tir.Schedule(running)
    expect(
        rfactor_refusal(refused, sch, sch.get_loops("C")[0]),
        """
        rfactor(k): block C writes other elements in a step than in its init
          at test_reduction.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_refuse_a_loop_that_is_both_spatial_and_reduction(expect, refused):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    both = sch.fuse(j, k)
    expect(
        rfactor_refusal(refused, sch, both),
        """
        rfactor(j_k_fused): loop `j_k_fused` drives both spatial and reduction iterators
          at test_reduction.py:LINE

          | …
          |     for i, j_k_fused in T.grid(7, 30):    # <-- here
          | …

          hint: apply rfactor before the reduction is fused with other loops
        """,
    )


def test_refuse_an_axis_that_there_is_not(expect, refused):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    expect(
        rfactor_refusal(refused, sch, k, 3),
        """
        rfactor(k, factor_axis=3): factor_axis=3, and the buffer has 2 dimensions
          at test_reduction.py:LINE

          | …
          |     for i, j, k in T.grid(7, 6, 5):    # <-- here
          | …
        """,
    )
    expect(
        rfactor_refusal(refused, sch, k, -4),
        """
        rfactor(k, factor_axis=-4): factor_axis=-4, and the buffer has 2 dimensions
          at test_reduction.py:LINE

          | …
          |     for i, j, k in T.grid(7, 6, 5):    # <-- here
          | …
        """,
    )


def test_refuse_an_init_of_several_stores(expect, refused):
    @T.prim_func
    def twice(A: T.Buffer((4, 6), "float32"), C: T.Buffer((4, 2), "float32")):
        for i, k in T.grid(4, 6):
            with T.block("C"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    C[vi, 0] = T.float32(0)
                    C[vi, 1] = T.float32(0)
                C[vi, 0] = C[vi, 0] + A[vi, vk]

    sch = tir.Schedule(twice)
    expect(
        rfactor_refusal(refused, sch, sch.get_loops("C")[1]),
        """
        rfactor(k): block C has an init that does more than store one value
          at test_reduction.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …
        """,
    )


def test_a_loop_that_rfactor_took_away_is_named(expect, refused):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    ko, ki = sch.split(k, [None, 2])
    sch.rfactor(ko)
    expect(
        refused(sch, lambda: sch.unroll(ki)),
        """
        unroll(k_1): loop `k_1` no longer exists: it was removed by rfactor(k_0)
          at test_reduction.py:LINE

          | …
        """,
    )


# ---------------------------------------------------------------------------- at random
@settings(max_examples=examples(30), deadline=None, derandomize=True)
@given(st.data())
def test_random_reductions_mean_the_same_or_are_refused(data):
    func, block = data.draw(st.sampled_from([(matmul, "C"), (batched, "C"), (conv2d, "S"), (argmax, "R")]))
    sch = tir.Schedule(func)
    for _ in range(data.draw(st.integers(1, 5))):
        names = [b.name for b in sch.get_child_blocks(sch.get_block("root"))]
        block = data.draw(st.sampled_from(names))
        loop = data.draw(st.sampled_from(sch.get_loops(block)))
        step = data.draw(st.sampled_from(["split", "split", "rfactor", "rfactor", "decompose", "reorder"]))
        before = sch.mod
        try:
            if step == "split":
                sch.split(loop, [None, data.draw(st.integers(2, 5))])
            elif step == "rfactor":
                sch.rfactor(loop, data.draw(st.integers(-1, 2)))
            elif step == "decompose":
                sch.decompose_reduction(block, loop)
            else:
                sch.reorder(*data.draw(st.permutations(sch.get_loops(block))))
        except ScheduleError:
            assert sch.mod is before
        if len(sch.get_loops(block)) > 8:
            break
    same(func, sch, build=False)
    same_again(func, sch)


def test_partial_sums_of_partial_sums_where_neither_split_divides():
    """The steps that count are told by a condition in the body, which the second rfactor takes along."""

    @T.prim_func
    def total(A: T.Buffer((2, 101), "float32"), B: T.Buffer((2,), "float32")):
        for i, k in T.grid(2, 101):
            with T.block("B"):
                v, r = T.axis.remap("SR", [i, k])
                with T.init():
                    B[v] = T.float32(0)
                B[v] = B[v] + A[v, r]

    sch = tir.Schedule(total)
    part, _ = sch.split(sch.get_loops("B")[1], [4, None])
    partial = sch.rfactor(part, factor_axis=0)
    _, lane = sch.split(sch.get_loops(partial)[-1], [None, 8])
    sch.rfactor(lane, factor_axis=2)
    assert sch.verify()
