"""Where reductions begin: the init before the outermost reduction loop, or under a guard."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Block, IfThenElse
from tilewright.script import tir as T
from tilewright.tir.transform.lower_init_block import lower_init_block

LowerInit = tir.transform.LowerInitBlock()


def lowered(func):
    made = LowerInit(tvm.IRModule({"main": func}))["main"]
    assert not [m for m in pre_order(made.body) if isinstance(m, Block) and m.init is not None]
    return made


@T.prim_func
def matmul(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6, 5), "int32"), C: T.Buffer((4, 5), "int32")):
    for i, j, k in T.grid(4, 5, 6):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = 0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def data(*shapes):
    rng = np.random.default_rng(1)
    return [rng.integers(-9, 9, s).astype("int32") for s in shapes]


MATRICES = data((4, 6), (6, 5), (4, 5))


def test_before_the_reduction_loop(expect, agree):
    made = lowered(matmul)
    expect(
        made,
        """
        @T.prim_func
        def matmul(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6, 5), "int32"), C: T.Buffer((4, 5), "int32")):
            # with T.block("root"):
            for i, j in T.grid(4, 5):
                with T.block("C_init"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads()
                    T.writes(C[vi, vj])
                    C[vi, vj] = 0
                for k in range(6):
                    with T.block("C"):
                        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                        T.reads(A[vi, vk], B[vk, vj])
                        T.writes(C[vi, vj])
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    agree(matmul, made, *MATRICES)


def test_spatial_loops_inside_are_copied(expect, agree):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)
    made = lowered(sch.mod["main"])
    expect(
        made,
        """
        @T.prim_func
        def matmul(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6, 5), "int32"), C: T.Buffer((4, 5), "int32")):
            # with T.block("root"):
            for i_init, j_init in T.grid(4, 5):
                with T.block("C_init"):
                    vi, vj = T.axis.remap("SS", [i_init, j_init])
                    T.reads()
                    T.writes(C[vi, vj])
                    C[vi, vj] = 0
            for k, i, j in T.grid(6, 4, 5):
                with T.block("C"):
                    vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    agree(matmul, made, *MATRICES)


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("tiled", [False, True])
def test_all_orders(order, tiled, agree):
    sch = tir.Schedule(matmul)
    loops = sch.get_loops("C")
    if tiled:
        parts = [sch.split(x, [None, 4]) for x in loops]
        sch.reorder(*[parts[x][0] for x in order], *[parts[x][1] for x in reversed(order)])
    else:
        sch.reorder(*[loops[x] for x in order])
    made = lowered(sch.mod["main"])
    assert '"C_init"' in made.script()
    agree(matmul, made, *MATRICES)
    agree(matmul, tvm.lower(sch.mod)["main"], *MATRICES)


def test_a_fused_spatial_and_reduction_loop_is_guarded(expect, agree):
    sch = tir.Schedule(matmul)
    _i, j, k = sch.get_loops("C")
    sch.fuse(j, k)
    made = lowered(sch.mod["main"])
    expect(
        made,
        """
        @T.prim_func
        def matmul(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6, 5), "int32"), C: T.Buffer((4, 5), "int32")):
            # with T.block("root"):
            for i, j_k_fused in T.grid(4, 30):
                with T.block("C"):
                    vi = T.axis.spatial(4, i)
                    vj = T.axis.spatial(5, j_k_fused // 6)
                    vk = T.axis.reduce(6, j_k_fused % 6)
                    T.reads(A[vi, vk], B[vk, vj])
                    T.writes(C[vi, vj])
                    if vk == 0:
                        C[vi, vj] = 0
                    C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    agree(matmul, made, *MATRICES)


def test_several_reduction_axes(agree):
    A = te.placeholder((3, 4, 5), "int32", name="A")
    k, r = te.reduce_axis((0, 4), "k"), te.reduce_axis((0, 5), "r")
    B = te.compute((3,), lambda i: te.sum(A[i, k, r], axis=[k, r]), name="B")
    func = te.create_prim_func([A, B])
    for order in itertools.permutations(range(3)):
        sch = tir.Schedule(func)
        loops = sch.get_loops("B")
        sch.reorder(*[loops[x] for x in order])
        agree(func, lowered(sch.mod["main"]), *data((3, 4, 5), (3,)))


def test_predicates_on_spatial_loops_stay_and_on_reduction_loops_go(expect, agree):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    jo, ji = sch.split(j, [None, 3])
    ko, ki = sch.split(k, [None, 4])
    sch.reorder(i, ko, jo, ki, ji)
    made = lowered(sch.mod["main"])
    expect(
        made,
        """
        @T.prim_func
        def matmul(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6, 5), "int32"), C: T.Buffer((4, 5), "int32")):
            # with T.block("root"):
            for i in range(4):
                for j_0_init, j_1_init in T.grid(2, 3):
                    with T.block("C_init"):
                        vi = T.axis.spatial(4, i)
                        vj = T.axis.spatial(5, j_0_init * 3 + j_1_init)
                        T.where(j_0_init * 3 + j_1_init < 5)
                        T.reads()
                        T.writes(C[vi, vj])
                        C[vi, vj] = 0
                for k_0, j_0, k_1, j_1 in T.grid(2, 2, 4, 3):
                    with T.block("C"):
                        vi = T.axis.spatial(4, i)
                        vj = T.axis.spatial(5, j_0 * 3 + j_1)
                        vk = T.axis.reduce(6, k_0 * 4 + k_1)
                        T.where(j_0 * 3 + j_1 < 5 and k_0 * 4 + k_1 < 6)
                        T.reads(A[vi, vk], B[vk, vj])
                        T.writes(C[vi, vj])
                        C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    agree(matmul, made, *MATRICES)


def test_marks_of_loops(expect, agree):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.reorder(k, i, j)
    sch.parallel(i)
    sch.vectorize(j)
    made = lowered(sch.mod["main"])
    expect(
        made,
        """
        @T.prim_func
        def matmul(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6, 5), "int32"), C: T.Buffer((4, 5), "int32")):
            # with T.block("root"):
            for i_init in range(4):
                for j_init in T.vectorized(5):
                    with T.block("C_init"):
                        vi, vj = T.axis.remap("SS", [i_init, j_init])
                        T.reads()
                        T.writes(C[vi, vj])
                        C[vi, vj] = 0
            for k in range(6):
                for i in T.parallel(4):
                    for j in T.vectorized(5):
                        with T.block("C"):
                            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                            T.reads(A[vi, vk], B[vk, vj])
                            T.writes(C[vi, vj])
                            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    agree(matmul, made, *MATRICES)


def test_bound_loops(expect, agree):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.reorder(i, k, j)
    sch.bind(i, "blockIdx.x")
    sch.bind(j, "threadIdx.x")
    made = lowered(sch.mod["main"])
    expect(
        made,
        """
        @T.prim_func
        def matmul(A: T.Buffer((4, 6), "int32"), B: T.Buffer((6, 5), "int32"), C: T.Buffer((4, 5), "int32")):
            # with T.block("root"):
            for i in T.thread_binding(4, thread="blockIdx.x"):
                for j_init in T.thread_binding(5, thread="threadIdx.x"):
                    with T.block("C_init"):
                        vi, vj = T.axis.remap("SS", [i, j_init])
                        T.reads()
                        T.writes(C[vi, vj])
                        C[vi, vj] = 0
                for k in range(6):
                    for j in T.thread_binding(5, thread="threadIdx.x"):
                        with T.block("C"):
                            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                            T.reads(A[vi, vk], B[vk, vj])
                            T.writes(C[vi, vj])
                            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
        """,
    )
    agree(matmul, made, *MATRICES)
    agree(matmul, tvm.lower(sch.mod)["main"], *MATRICES)


def test_a_reduction_across_threads_is_refused():
    sch = tir.Schedule(matmul)
    _, _, k = sch.get_loops("C")
    sch.bind(k, "threadIdx.x")
    with pytest.raises(LoweringError) as caught:
        lower_init_block(sch.mod["main"])
    assert str(caught.value) == (
        "block C is reduced by the threads of threadIdx.x (loop `k`): run tir.transform.UnifyThreadBinding() "
        "and LowerCrossThreadReduction() before LowerInitBlock()"
    )


def test_a_block_without_reduction_loops(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("C"):
                vi = T.axis.spatial(4, i)
                vk = T.axis.reduce(1, 0)
                with T.init():
                    C[vi] = 3
                C[vi] = C[vi] + A[vi + vk]

    made = lowered(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((4,), "int32"), C: T.Buffer((4,), "int32")):
            # with T.block("root"):
            for i in range(4):
                with T.block("C"):
                    vi = T.axis.spatial(4, i)
                    vk = T.axis.reduce(1, 0)
                    T.reads(A[vi + vk])
                    T.writes(C[vi])
                    C[vi] = 3
                    C[vi] = C[vi] + A[vi + vk]
        """,
    )
    agree(before, made, *data((4,), (4,)))


def test_a_reduction_over_the_iterator_of_an_outer_block_is_guarded(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((16,), "int32"), C: T.Buffer((1,), "int32")):
        for k0 in range(4):
            with T.block("outer"):
                vk0 = T.axis.reduce(4, k0)
                T.reads(A[vk0 * 4 : vk0 * 4 + 4], C[0])
                T.writes(C[0])
                for k1 in range(4):
                    with T.block("C"):
                        vk = T.axis.reduce(16, vk0 * 4 + k1)
                        with T.init():
                            C[0] = 0
                        C[0] = C[0] + A[vk]

    made = lowered(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((16,), "int32"), C: T.Buffer((1,), "int32")):
            # with T.block("root"):
            for k0 in range(4):
                with T.block("outer"):
                    vk0 = T.axis.reduce(4, k0)
                    T.reads(A[vk0 * 4:vk0 * 4 + 4], C[0])
                    T.writes(C[0])
                    for k1 in range(4):
                        with T.block("C"):
                            vk = T.axis.reduce(16, vk0 * 4 + k1)
                            T.reads(A[vk])
                            T.writes(C[0])
                            if vk == 0:
                                C[0] = 0
                            C[0] = C[0] + A[vk]
        """,
    )
    agree(before, made, *data((16,), (1,)))


def test_a_reduction_in_two_parts_begins_once(agree):
    @T.prim_func
    def before(A: T.Buffer((16,), "int32"), C: T.Buffer((1,), "int32")):
        for k in range(8):
            with T.block("C"):
                vk = T.axis.reduce(16, k)
                with T.init():
                    C[0] = 0
                C[0] = C[0] + A[vk]
        for k in range(8, 16):
            with T.block("C_rest"):
                vk = T.axis.reduce(16, k)
                with T.init():
                    C[0] = 0
                C[0] = C[0] + A[vk]
        with T.block("C_last"):
            vk = T.axis.reduce(16, 15)
            with T.init():
                C[0] = 0
            C[0] = C[0] + A[vk]

    agree(before, lowered(before), *data((16,), (1,)))


def test_a_condition_between_loop_and_block_is_kept(expect, agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((2,), "int32")):
        for k, i in T.grid(8, 4):
            if i < 2:
                with T.block("C"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        C[vi] = 0
                    C[vi] = C[vi] + A[vi, vk]

    made = lowered(before)
    expect(
        made,
        """
        @T.prim_func
        def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((2,), "int32")):
            # with T.block("root"):
            for k, i in T.grid(8, 4):
                if i < 2:
                    with T.block("C"):
                        vi, vk = T.axis.remap("SR", [i, k])
                        T.reads(A[vi, vk])
                        T.writes(C[vi])
                        if vk == 0:
                            C[vi] = 0
                        C[vi] = C[vi] + A[vi, vk]
        """,
    )
    agree(before, made, *data((4, 8), (2,)))


def test_a_binding_between_loop_and_block_is_kept(agree):
    @T.prim_func
    def before(A: T.Buffer((4, 8), "int32"), C: T.Buffer((4,), "int32")):
        for k, i in T.grid(8, 4):
            j: T.int32 = 3 - i
            with T.block("C"):
                vi = T.axis.spatial(4, j)
                vk = T.axis.reduce(8, k)
                with T.init():
                    C[vi] = 0
                C[vi] = C[vi] + A[vi, vk]

    agree(before, lowered(before), *data((4, 8), (4,)))


def test_an_init_that_reads_what_the_loop_writes_is_guarded(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), D: T.Buffer((1,), "int32"), C: T.Buffer((1,), "int32")):
        for k in range(8):
            with T.block("D"):
                vk = T.axis.spatial(8, k)
                D[0] = A[vk] + 1
            with T.block("C"):
                vk = T.axis.reduce(8, k)
                with T.init():
                    C[0] = D[0]
                C[0] = C[0] + A[vk]

    agree(before, lowered(before), *data((8,), (1,), (1,)))


@T.prim_func
def point_twice(A: T.Buffer((3, 4), "int32"), B: T.Buffer((4,), "int32")):
    for k, x, i in T.grid(3, 2, 3):
        with T.block("B"):
            vk = T.axis.reduce(3, k)
            vi = T.axis.spatial(4, x + i)
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + A[vk, vi]


@T.prim_func
def first_step_twice(A: T.Buffer((3, 4), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 6):
        with T.block("B"):
            vk = T.axis.reduce(3, k // 2)
            vi = T.axis.spatial(4, i)
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + A[vk, vi]


@T.prim_func
def again_for_nothing(A: T.Buffer((3, 4), "int32"), B: T.Buffer((4,), "int32")):
    for i, k, _ in T.grid(4, 3, 2):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + A[vk, vi]


@T.prim_func
def element_twice(A: T.Buffer((3, 4), "int32"), B: T.Buffer((4,), "int32")):
    for k, i in T.grid(3, 4):
        with T.block("B"):
            vk, vi = T.axis.remap("RS", [k, i])
            with T.init():
                B[vi // 2] = 0
            B[vi // 2] = B[vi // 2] + A[vk, vi]


@T.prim_func
def first_step_left_out(A: T.Buffer((3, 4), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 3):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(k >= 1)
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + A[vk, vi]


@T.prim_func
def first_step_left_out_somewhere(A: T.Buffer((3, 4), "int32"), B: T.Buffer((4,), "int32")):
    for i, k in T.grid(4, 3):
        with T.block("B"):
            vi, vk = T.axis.remap("SR", [i, k])
            T.where(k + i >= 1)
            with T.init():
                B[vi] = 0
            B[vi] = B[vi] + A[vk, vi]


@T.prim_func
def elements_by_step(A: T.Buffer((3, 4), "int32"), B: T.Buffer((4,), "int32")):
    for k in range(3):
        for i in range(k + 1):
            with T.block("B"):
                vi, vk = T.axis.remap("SR", [i, k])
                with T.init():
                    B[vi] = 0
                B[vi] = B[vi] + A[vk, vi]


@pytest.mark.parametrize(
    "before",
    [
        point_twice,
        first_step_twice,
        again_for_nothing,
        element_twice,
        first_step_left_out,
        first_step_left_out_somewhere,
        elements_by_step,
    ],
    ids=lambda f: f.attrs["global_symbol"],
)
def test_the_init_runs_as_often_as_the_first_step_does(agree, before):
    """It is what the interpreter does, and there is no other definition."""
    agree(before, lowered(before), *data((3, 4), (4,)))


@pytest.mark.parametrize("size", [12, 13])
def test_points_that_come_once_are_started_before_the_loop(size):
    """Tiles, fused loops and parts of them: the init is under no condition of the reduction."""
    a, k = te.placeholder((size, size), "int32", name="a"), te.reduce_axis((0, size), "k")
    c = te.compute((size, size), lambda i, j: te.sum(a[i, k] * a[k, j], axis=k), name="c")
    for fuse, *factors in itertools.product((False, True), (None, 4, 5), (None, 3)):
        sch = tir.Schedule(te.create_prim_func([a, c]))
        i, j, r = sch.get_loops("c")
        spatial = [sch.fuse(i, j)] if fuse else [i, j]
        parts = [list(sch.split(x, [None, factors[0]])) if factors[0] else [x] for x in spatial]
        steps = list(sch.split(r, [None, factors[1]])) if factors[1] else [r]
        sch.reorder(*steps, *(x for p in parts for x in p))
        made = lower_init_block(sch.mod["main"])
        (started,) = (m for m in pre_order(made.body) if isinstance(m, Block) and m.name_hint == "c_init")
        assert not [m for m in pre_order(started.body) if isinstance(m, IfThenElse)]


def test_other_blocks_in_the_reduction_loop(agree):
    @T.prim_func
    def before(A: T.Buffer((8,), "int32"), C: T.Buffer((1,), "int32"), D: T.Buffer((8,), "int32")):
        B = T.alloc_buffer((8,), "int32")
        for k in range(8):
            with T.block("B"):
                vk = T.axis.spatial(8, k)
                B[vk] = A[vk] * 2
            with T.block("C"):
                vk = T.axis.reduce(8, k)
                with T.init():
                    C[0] = 0
                C[0] = C[0] + B[vk]
            with T.block("D"):
                vk = T.axis.spatial(8, k)
                D[vk] = C[0]

    made = lowered(before)
    agree(before, made, *data((8,), (1,), (8,)))
    agree(before, tvm.lower(before)["before"], *data((8,), (1,), (8,)))


def test_multiple_outputs(agree):
    A = te.placeholder((4, 6), "int32", name="A")

    def better(x, y):
        take = tir.any(x[1] > y[1], tir.all(x[1] == y[1], x[0] < y[0]))
        return tir.Select(take, x[0], y[0]), tir.Select(take, x[1], y[1])

    argmax = te.comm_reducer(better, lambda i, v: (tir.const(-1, i), tir.min_value(v)), name="argmax")
    k = te.reduce_axis((0, 6), "k")
    I, V = te.compute((4,), lambda i: argmax((k, A[i, k]), axis=k), name="M")
    func = te.create_prim_func([A, I, V])
    (a,) = data((4, 6))
    i, v = np.zeros(4, "int32"), np.zeros(4, "int32")
    made = lowered(func)
    agree(func, made, a, i, v)
    tir.interpret(made, a, i, v)
    np.testing.assert_array_equal(i, a.argmax(1))


def test_symbolic_extents(expect, agree):
    n = te.var("n")
    A = te.placeholder((n, n), "int32", name="A")
    k = te.reduce_axis((0, n), "k")
    B = te.compute((n,), lambda i: te.sum(A[i, k], axis=k), name="B")
    func = te.create_prim_func([A, B])
    sch = tir.Schedule(func)
    i, kk = sch.get_loops("B")
    sch.reorder(kk, i)
    made = lowered(sch.mod["main"])
    expect(
        made,
        """
        @T.prim_func
        def main(var_A: T.handle, var_B: T.handle):
            T.func_attr({"tir.noalias": T.bool(True)})
            n = T.int32()
            A = T.match_buffer(var_A, (n, n), "int32")
            B = T.match_buffer(var_B, (n,), "int32")
            # with T.block("root"):
            for i_init in range(n):
                with T.block("B_init"):
                    v_i = T.axis.spatial(n, i_init)
                    T.reads()
                    T.writes(B[v_i])
                    B[v_i] = 0
            for k, i in T.grid(n, n):
                with T.block("B"):
                    v_i, v_k = T.axis.remap("SR", [i, k])
                    T.reads(A[v_i, v_k])
                    T.writes(B[v_i])
                    B[v_i] = B[v_i] + A[v_i, v_k]
        """,
    )
    agree(func, made, *data((5, 5), (5,)))


def test_nothing_to_do_is_the_same_object():
    @T.prim_func
    def plain(A: T.Buffer((4,), "int32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = vi

    mod = tvm.IRModule({"main": plain})
    assert LowerInit(mod)["main"] is plain
    assert LowerInit(mod) is mod
