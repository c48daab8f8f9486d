"""Parts of a program as one block, and handed to the hardware: blockize, tensorize."""

# Expected texts are as long as they are; all loops of a nest have names, used or not.
from __future__ import annotations

import ctypes
import json
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_programs import arrays, chain, copy2d, matmul

import tilewright as tvm
from tilewright import tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import LoweringError
from tilewright.ir.functor import rewrite, substitute
from tilewright.script import tir as T


@T.prim_func
def gemm(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")):
    for i, j, k in T.grid(8, 16, 12):
        with T.block("C"):
            vi, vj, vk = T.axis.remap("SSR", [i, j, k])
            with T.init():
                C[vi, vj] = T.float32(0)
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]


def tiled(m=4, n=8, k=4, func=gemm):
    """A matrix product in tiles of m × n × k, the tiles' loops inside: (schedule, block, loops)."""
    sch = tir.Schedule(func)
    block = sch.get_block("C")
    loops = sch.get_loops(block)
    parts = [sch.split(x, [None, f]) for x, f in zip(loops, (m, n, k), strict=True)]
    order = [p[0] for p in parts] + [p[1] for p in parts]
    sch.reorder(*order)
    return sch, block, order


@T.prim_func
def tile_desc(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4, 4), offset_factor=1)
    B = T.match_buffer(b, (4, 8), offset_factor=1)
    C = T.match_buffer(c, (4, 8), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:8], A[0:4, 0:4], B[0:4, 0:8])
        T.writes(C[0:4, 0:8])
        for x, y, z in T.grid(4, 8, 4):
            with T.block("update"):
                vx, vy, vz = T.axis.remap("SSR", [x, y, z])
                # The operands the other way round than in the program.
                C[vx, vy] = C[vx, vy] + B[vz, vy] * A[vx, vz]


@T.prim_func
def tile_loops(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4, 4), offset_factor=1)
    B = T.match_buffer(b, (4, 8), offset_factor=1)
    C = T.match_buffer(c, (4, 8), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:8], A[0:4, 0:4], B[0:4, 0:8])
        T.writes(C[0:4, 0:8])
        for x, z in T.grid(4, 4):
            for y in T.vectorized(8):
                C[x, y] = C[x, y] + A[x, z] * B[z, y]


@T.prim_func
def tile_call(a: T.handle, b: T.handle, c: T.handle):
    sa, sb, sc = T.int32(), T.int32(), T.int32()
    A = T.match_buffer(a, (4, 4), strides=[sa, 1], offset_factor=1)
    B = T.match_buffer(b, (4, 8), strides=[sb, 1], offset_factor=1)
    C = T.match_buffer(c, (4, 8), strides=[sc, 1], offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:8], A[0:4, 0:4], B[0:4, 0:8])
        T.writes(C[0:4, 0:8])
        T.evaluate(
            T.call_extern(
                "int32",
                "tilewright_test_tile",
                C.access_ptr("rw"),
                A.access_ptr("r"),
                B.access_ptr("r"),
                sc,
                sa,
                sb,
            )
        )


@T.prim_func
def tile_dense(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4, 4), offset_factor=1)
    B = T.match_buffer(b, (4, 8), offset_factor=1)
    C = T.match_buffer(c, (4, 8), offset_factor=1)
    with T.block("root"):
        T.reads(C[0:4, 0:8], A[0:4, 0:4], B[0:4, 0:8])
        T.writes(C[0:4, 0:8])
        T.evaluate(
            T.call_extern("int32", "dense_tile", C.access_ptr("rw"), A.access_ptr("r"), B.access_ptr("r"))
        )


@T.prim_func
def whole_desc(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4, 12), offset_factor=1)
    B = T.match_buffer(b, (12, 8), offset_factor=1)
    C = T.match_buffer(c, (4, 8), offset_factor=1)
    with T.block("root"):
        T.reads(A[0:4, 0:12], B[0:12, 0:8])
        T.writes(C[0:4, 0:8])
        for x, y, z in T.grid(4, 8, 12):
            with T.block("all"):
                vx, vy, vz = T.axis.remap("SSR", [x, y, z])
                with T.init():
                    C[vx, vy] = T.float32(0)
                C[vx, vy] = C[vx, vy] + A[vx, vz] * B[vz, vy]


@T.prim_func
def fill_desc(c: T.handle):
    C = T.match_buffer(c, (4, 8), offset_factor=1)
    with T.block("root"):
        T.reads()
        T.writes(C[0:4, 0:8])
        for x, y in T.grid(4, 8):
            with T.block("fill"):
                vx, vy = T.axis.remap("SS", [x, y])
                C[vx, vy] = T.float32(0)


@T.prim_func
def fill_impl(c: T.handle):
    C = T.match_buffer(c, (4, 8), offset_factor=1)
    with T.block("root"):
        T.reads()
        T.writes(C[0:4, 0:8])
        for x in range(4):
            C[x, 0:8] = T.broadcast(T.float32(0), 8)


@pytest.fixture(autouse=True)
def intrinsics():
    register = tir.TensorIntrin.register
    register("test.tile", tile_desc, tile_loops, override=True)
    register("test.tile_call", tile_desc, tile_call, override=True)
    register("test.tile_dense", tile_desc, tile_dense, override=True)
    register("test.whole", whole_desc, whole_desc, override=True)
    register("test.fill", fill_desc, fill_impl, override=True)


def same_by_llvm(func, mod, seed=3):
    """The compiled program leaves what the interpreter says that the original one does."""
    want = arrays(func, seed=seed)
    got = [tvm.nd.array(a) for a in want]
    tir.interpret(func, *want)
    tvm.build(mod, target="llvm")(*got)
    for x, y in zip(want, got, strict=True):
        np.testing.assert_array_equal(x, y.numpy())


# ---------------------------------------------------------------------------- blockize
def test_blockize_of_a_loop(expect, agree):
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops(sch.get_block("B"))
    j_0, j_1 = sch.split(j, [None, 4])
    made = sch.blockize(j_1)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i, j_0 in T.grid(8, 3):
                with T.block("B_o"):
                    vi_o, vj_o = T.axis.remap("SS", [i, j_0])
                    T.reads(A[vi_o, vj_o * 4:vj_o * 4 + 4])
                    T.writes(B[vi_o, vj_o * 4:vj_o * 4 + 4])
                    for j_1 in range(4):
                        with T.block("B"):
                            vi_i = T.axis.spatial(1, 0)
                            vj_i = T.axis.spatial(4, j_1)
                            T.reads(A[vi_o, vj_o * 4 + vj_i])
                            T.writes(B[vi_o, vj_o * 4 + vj_i])
                            B[vi_o, vj_o * 4 + vj_i] = A[vi_o, vj_o * 4 + vj_i] + T.float32(1)
        """,
    )
    assert sch.get(made).name_hint == "B_o"
    assert [x.name for x in sch.get_loops(made)] == ["i", "j_0"]
    assert [x.name for x in sch.get_loops("B")] == ["j_1"]
    agree(copy2d, sch.mod["main"], *arrays(copy2d))
    same_by_llvm(copy2d, sch.mod)


def test_blockize_without_unit_iterators(expect, agree):
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops(sch.get_block("B"))
    sch.blockize(j, preserve_unit_iters=False)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def copy2d(A: T.Buffer((8, 12), "float32"), B: T.Buffer((8, 12), "float32")):
            # with T.block("root"):
            for i in range(8):
                with T.block("B_o"):
                    vi_o = T.axis.spatial(8, i)
                    T.reads(A[vi_o, 0:12])
                    T.writes(B[vi_o, 0:12])
                    for j in range(12):
                        with T.block("B"):
                            vj_i = T.axis.spatial(12, j)
                            T.reads(A[vi_o, vj_i])
                            T.writes(B[vi_o, vj_i])
                            B[vi_o, vj_i] = A[vi_o, vj_i] + T.float32(1)
        """,
    )
    agree(copy2d, sch.mod["main"], *arrays(copy2d))
    same_by_llvm(copy2d, sch.mod)


def test_blockize_takes_the_init_of_a_reduction_that_goes_on_outside(expect, agree):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    sch.blockize(i_1)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def gemm(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")):
            # with T.block("root"):
            for i_0, j_0, k_0 in T.grid(2, 2, 3):
                with T.block("C_o"):
                    vi_o, vj_o, vk_o = T.axis.remap("SSR", [i_0, j_0, k_0])
                    T.reads(A[vi_o * 4:vi_o * 4 + 4, vk_o * 4:vk_o * 4 + 4], B[vk_o * 4:vk_o * 4 + 4, vj_o * 8:vj_o * 8 + 8])
                    T.writes(C[vi_o * 4:vi_o * 4 + 4, vj_o * 8:vj_o * 8 + 8])
                    with T.init():
                        for i_1_init, j_1_init in T.grid(4, 8):
                            with T.block("C_init"):
                                vi_i, vj_i = T.axis.remap("SS", [i_1_init, j_1_init])
                                T.reads()
                                T.writes(C[vi_o * 4 + vi_i, vj_o * 8 + vj_i])
                                C[vi_o * 4 + vi_i, vj_o * 8 + vj_i] = T.float32(0)
                    for i_1, j_1, k_1 in T.grid(4, 8, 4):
                        with T.block("C"):
                            vi_i, vj_i, vk_i = T.axis.remap("SSR", [i_1, j_1, k_1])
                            T.reads(C[vi_o * 4 + vi_i, vj_o * 8 + vj_i], A[vi_o * 4 + vi_i, vk_o * 4 + vk_i], B[vk_o * 4 + vk_i, vj_o * 8 + vj_i])
                            T.writes(C[vi_o * 4 + vi_i, vj_o * 8 + vj_i])
                            C[vi_o * 4 + vi_i, vj_o * 8 + vj_i] = C[vi_o * 4 + vi_i, vj_o * 8 + vj_i] + A[vi_o * 4 + vi_i, vk_o * 4 + vk_i] * B[vk_o * 4 + vk_i, vj_o * 8 + vj_i]
        """,
    )
    agree(gemm, sch.mod["main"], *arrays(gemm))
    same_by_llvm(gemm, sch.mod)


def test_blockize_leaves_the_init_of_a_reduction_that_is_all_inside(expect, agree):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    sch.reorder(i_0, j_0, i_1, j_1, k_0, k_1)
    sch.blockize(i_1, preserve_unit_iters=False)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def gemm(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")):
            # with T.block("root"):
            for i_0, j_0 in T.grid(2, 2):
                with T.block("C_o"):
                    vi_o, vj_o = T.axis.remap("SS", [i_0, j_0])
                    T.reads(A[vi_o * 4:vi_o * 4 + 4, 0:12], B[0:12, vj_o * 8:vj_o * 8 + 8])
                    T.writes(C[vi_o * 4:vi_o * 4 + 4, vj_o * 8:vj_o * 8 + 8])
                    for i_1, j_1, k_0, k_1 in T.grid(4, 8, 3, 4):
                        with T.block("C"):
                            vi_i, vj_i = T.axis.remap("SS", [i_1, j_1])
                            vk_i = T.axis.reduce(12, k_0 * 4 + k_1)
                            T.reads(A[vi_o * 4 + vi_i, vk_i], B[vk_i, vj_o * 8 + vj_i])
                            T.writes(C[vi_o * 4 + vi_i, vj_o * 8 + vj_i])
                            with T.init():
                                C[vi_o * 4 + vi_i, vj_o * 8 + vj_i] = T.float32(0)
                            C[vi_o * 4 + vi_i, vj_o * 8 + vj_i] = C[vi_o * 4 + vi_i, vj_o * 8 + vj_i] + A[vi_o * 4 + vi_i, vk_i] * B[vk_i, vj_o * 8 + vj_i]
        """,
    )
    agree(gemm, sch.mod["main"], *arrays(gemm))
    same_by_llvm(gemm, sch.mod)


def test_blockize_under_a_fused_loop(expect, agree):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    fused = sch.fuse(i_0, j_0)
    sch.blockize(i_1)
    text = sch.mod["main"].script()
    assert "vi_o = T.axis.spatial(2, i_0_j_0_fused // 2)" in text
    assert "vj_o = T.axis.spatial(2, i_0_j_0_fused % 2)" in text
    sch.parallel(fused)
    agree(gemm, sch.mod["main"], *arrays(gemm))
    same_by_llvm(gemm, sch.mod)


def test_blockize_of_blocks(expect, agree):
    sch = tir.Schedule(chain)
    made = sch.blockize(["C", "D"])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def chain(A: T.Buffer((10,), "float32"), D: T.Buffer((10,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((10,))
            for i in range(10):
                with T.block("B"):
                    vi = T.axis.spatial(10, i)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    B[vi] = A[vi] + T.float32(1)
            with T.block("C_D_o"):
                T.reads(B[0:10])
                T.writes(D[0:10])
                C = T.alloc_buffer((10,))
                for i in range(10):
                    with T.block("C"):
                        vi = T.axis.spatial(10, i)
                        T.reads(B[vi])
                        T.writes(C[vi])
                        C[vi] = B[vi] * T.float32(2)
                for i in range(10):
                    with T.block("D"):
                        vi = T.axis.spatial(10, i)
                        T.reads(C[vi], B[vi])
                        T.writes(D[vi])
                        D[vi] = C[vi] + B[vi]
        """,
    )
    assert sch.get_child_blocks(made)[1].name == "D"
    agree(chain, sch.mod["main"], *arrays(chain))
    same_by_llvm(chain, sch.mod)


def attached():
    """A producer in a loop of its consumer."""
    sch = tir.Schedule(chain)
    (i,) = sch.get_loops("D")
    i_0, i_1 = sch.split(i, [None, 5])
    sch.compute_at("C", i_0)
    return sch, i_0


def test_blockize_of_a_loop_that_holds_two_blocks(agree):
    sch, i_0 = attached()
    made = sch.blockize(i_0)
    assert [b.name for b in sch.get_child_blocks(made)] == ["C", "D"]
    assert sch.get_loops(made) == [] and sch.get(made).iter_vars == ()
    agree(chain, sch.mod["main"], *arrays(chain))
    same_by_llvm(chain, sch.mod)


def test_blockize_of_blocks_in_a_loop(expect, agree):
    sch, i_0 = attached()
    sch.blockize([sch.get_block("C"), sch.get_block("D")])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def chain(A: T.Buffer((10,), "float32"), D: T.Buffer((10,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((10,))
            for i in range(10):
                with T.block("B"):
                    vi = T.axis.spatial(10, i)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    B[vi] = A[vi] + T.float32(1)
            for i_0 in range(2):
                with T.block("C_D_o"):
                    v_i_0 = T.axis.spatial(2, i_0)
                    T.reads(B[v_i_0 * 5:v_i_0 * 5 + 5])
                    T.writes(D[v_i_0 * 5:v_i_0 * 5 + 5])
                    C = T.alloc_buffer((10,))
                    for ax0 in range(5):
                        with T.block("C"):
                            vi = T.axis.spatial(10, v_i_0 * 5 + ax0)
                            T.reads(B[vi])
                            T.writes(C[vi])
                            C[vi] = B[vi] * T.float32(2)
                    for i_1 in range(5):
                        with T.block("D"):
                            vi = T.axis.spatial(10, v_i_0 * 5 + i_1)
                            T.reads(C[vi], B[vi])
                            T.writes(D[vi])
                            D[vi] = C[vi] + B[vi]
        """,
    )
    agree(chain, sch.mod["main"], *arrays(chain))
    same_by_llvm(chain, sch.mod)


@settings(max_examples=40, derandomize=True, deadline=None)
@given(
    st.permutations(range(6)),
    st.sampled_from([(4, 8, 4), (2, 4, 12), (8, 16, 3), (1, 16, 1), (3, 8, 4)]),
    st.integers(0, 5),
    st.booleans(),
)
def test_blockize_anywhere_in_any_nest_refuses_or_means_the_same(order, tile, at, keep):
    sch, block, loops = tiled(*tile)
    sch.reorder(*[loops[i] for i in order])
    try:
        sch.blockize(sch.get_loops(block)[at], preserve_unit_iters=keep)
    except tir.ScheduleError as refusal:
        assert "do not fall into a part over" in str(refusal)
        return
    want, got = arrays(gemm), arrays(gemm)
    tir.interpret(gemm, *want)
    tir.interpret(sch.mod["main"], *got)
    np.testing.assert_array_equal(want[2], got[2])
    got = arrays(gemm)
    tir.interpret(tvm.lower(sch.mod)["main"], *got)
    np.testing.assert_array_equal(want[2], got[2])


def test_a_blockized_block_can_be_scheduled_on(agree):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    outer = sch.blockize(i_1)
    sch.decompose_reduction(outer, k_0)
    sch.vectorize(j_1)
    sch.parallel(i_0)
    agree(gemm, sch.mod["main"], *arrays(gemm))
    same_by_llvm(gemm, sch.mod)


def test_blockize_refuses_a_tile_that_is_cut(expect, refused):
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops(sch.get_block("B"))
    j_0, j_1 = sch.split(j, [None, 5])
    expect(
        refused(sch, lambda: sch.blockize(j_1)),
        """
        blockize(j_1): the iterators of block B (vi = i, vj = j_0 * 5 + j_1 where j_0 * 5 + j_1 < 12) do not fall into a part over `j_1` and a part over the loops outside
          at test_tensorize.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: split by a factor that divides the extent, or pad_einsum first
        """,
    )


def test_blockize_refuses_loops_inside_that_step_over_those_outside(expect, refused):
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops(sch.get_block("B"))
    j_0, j_1 = sch.split(j, [None, 4])
    sch.reorder(j_1, j_0)
    expect(
        refused(sch, lambda: sch.blockize(j_0)),
        """
        blockize(j_0): the iterators of block B (vi = i, vj = j_0 * 4 + j_1) do not fall into a part over `j_0` and a part over the loops outside
          at test_tensorize.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: let the loops outside count whole tiles of the loops inside
        """,
    )


def test_blockize_refuses_what_stands_in_no_block(expect, refused):
    @T.prim_func
    def bare(A: T.Buffer((4,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = T.float32(1)
            T.evaluate(0)

    sch = tir.Schedule(bare)
    (i,) = sch.get_loops("A")
    expect(
        refused(sch, lambda: sch.blockize(i)),
        """
        blockize(i): a statement under it stands in no block
          at test_tensorize.py:LINE

          | …
          |         T.evaluate(0)    # <-- here
          | …

          hint: put the statement into a block
        """,
    )


def test_blockize_refuses_blocks_with_another_one_between(expect, refused):
    sch = tir.Schedule(chain)
    blocks = [sch.get_block("B"), sch.get_block("D")]
    expect(
        refused(sch, lambda: sch.blockize(blocks)),
        """
        blockize([B, D]): block C stands between the blocks
          at test_tensorize.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: name block C too, or move it away
        """,
    )
    expect(
        refused(sch, lambda: sch.blockize([])),
        """
        blockize([]): there are no blocks to put into one
          at test_tensorize.py:LINE

          | …
        """,
    )


def test_blockize_of_several_refuses_an_init_under_its_reduction_loop(expect, refused):
    @T.prim_func
    def two(A: T.Buffer((4, 6), "float32"), B: T.Buffer((4,), "float32"), C: T.Buffer((6,), "float32")):
        for k in range(6):
            for i in range(4):
                with T.block("B"):
                    vi, vk = T.axis.remap("SR", [i, k])
                    with T.init():
                        B[vi] = T.float32(0)
                    B[vi] = B[vi] + A[vi, vk]
            with T.block("C"):
                vk = T.axis.spatial(6, k)
                C[vk] = T.float32(1)

    sch = tir.Schedule(two)
    blocks = [sch.get_block("B"), sch.get_block("C")]
    expect(
        refused(sch, lambda: sch.blockize(blocks)),
        """
        blockize([B, C]): loop `k` carries the reduction of block B, whose init cannot stay inside
          at test_tensorize.py:LINE

          | …
          |             with T.block("B"):    # <-- here
          | …

          hint: decompose_reduction(B, k) first
        """,
    )


# ---------------------------------------------------------------------------- tensorize
def test_tensorize_with_the_init_kept(expect, agree):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    sch.tensorize(i_1, "test.tile")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def gemm(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")):
            # with T.block("root"):
            for i_0, j_0, k_0 in T.grid(2, 2, 3):
                with T.block("C_o"):
                    vi_o, vj_o, vk_o = T.axis.remap("SSR", [i_0, j_0, k_0])
                    T.reads(A[vi_o * 4:vi_o * 4 + 4, vk_o * 4:vk_o * 4 + 4], B[vk_o * 4:vk_o * 4 + 4, vj_o * 8:vj_o * 8 + 8])
                    T.writes(C[vi_o * 4:vi_o * 4 + 4, vj_o * 8:vj_o * 8 + 8])
                    A_elem_offset = T.int32()
                    A_1 = T.match_buffer(A[vi_o * 4:vi_o * 4 + 4, vk_o * 4:vk_o * 4 + 4], (4, 4), elem_offset=A_elem_offset)
                    B_elem_offset = T.int32()
                    B_1 = T.match_buffer(B[vk_o * 4:vk_o * 4 + 4, vj_o * 8:vj_o * 8 + 8], (4, 8), elem_offset=B_elem_offset)
                    C_elem_offset = T.int32()
                    C_1 = T.match_buffer(C[vi_o * 4:vi_o * 4 + 4, vj_o * 8:vj_o * 8 + 8], (4, 8), elem_offset=C_elem_offset)
                    with T.init():
                        for i_1_init, j_1_init in T.grid(4, 8):
                            with T.block("C_init"):
                                vi_i, vj_i = T.axis.remap("SS", [i_1_init, j_1_init])
                                T.reads()
                                T.writes(C[vi_o * 4 + vi_i, vj_o * 8 + vj_i])
                                C[vi_o * 4 + vi_i, vj_o * 8 + vj_i] = T.float32(0)
                    for x, z in T.grid(4, 4):
                        for y in T.vectorized(8):
                            C_1[x, y] = C_1[x, y] + A_1[x, z] * B_1[z, y]
        """,
    )
    agree(gemm, sch.mod["main"], *arrays(gemm))
    same_by_llvm(gemm, sch.mod)


def test_tensorize_of_init_and_update(expect, agree):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    init = sch.decompose_reduction(block, k_0)
    sch.tensorize(sch.get_loops(init)[2], "test.fill")
    sch.tensorize(i_1, "test.tile")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def gemm(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")):
            # with T.block("root"):
            for i_0, j_0 in T.grid(2, 2):
                with T.block("C_init_o"):
                    vi_o, vj_o = T.axis.remap("SS", [i_0, j_0])
                    T.reads()
                    T.writes(C[vi_o * 4:vi_o * 4 + 4, vj_o * 8:vj_o * 8 + 8])
                    C_elem_offset = T.int32()
                    C_1 = T.match_buffer(C[vi_o * 4:vi_o * 4 + 4, vj_o * 8:vj_o * 8 + 8], (4, 8), elem_offset=C_elem_offset)
                    for x in range(4):
                        C_1[x, 0:8] = T.Broadcast(T.float32(0), 8)
                for k_0 in range(3):
                    with T.block("C_o"):
                        vi_o, vj_o, vk_o = T.axis.remap("SSR", [i_0, j_0, k_0])
                        T.reads(C[vi_o * 4:vi_o * 4 + 4, vj_o * 8:vj_o * 8 + 8], A[vi_o * 4:vi_o * 4 + 4, vk_o * 4:vk_o * 4 + 4], B[vk_o * 4:vk_o * 4 + 4, vj_o * 8:vj_o * 8 + 8])
                        T.writes(C[vi_o * 4:vi_o * 4 + 4, vj_o * 8:vj_o * 8 + 8])
                        A_elem_offset = T.int32()
                        A_1 = T.match_buffer(A[vi_o * 4:vi_o * 4 + 4, vk_o * 4:vk_o * 4 + 4], (4, 4), elem_offset=A_elem_offset)
                        B_elem_offset = T.int32()
                        B_1 = T.match_buffer(B[vk_o * 4:vk_o * 4 + 4, vj_o * 8:vj_o * 8 + 8], (4, 8), elem_offset=B_elem_offset)
                        C_elem_offset = T.int32()
                        C_1 = T.match_buffer(C[vi_o * 4:vi_o * 4 + 4, vj_o * 8:vj_o * 8 + 8], (4, 8), elem_offset=C_elem_offset)
                        for x, z in T.grid(4, 4):
                            for y in T.vectorized(8):
                                C_1[x, y] = C_1[x, y] + A_1[x, z] * B_1[z, y]
        """,
    )
    agree(gemm, sch.mod["main"], *arrays(gemm))
    same_by_llvm(gemm, sch.mod)


def test_tensorize_of_a_block_that_was_made_before(agree):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    by_loop = sch.copy()
    by_loop.tensorize(i_1, "test.tile")
    sch.tensorize(sch.blockize(i_1), "test.tile")
    assert_structural_equal(sch.mod, by_loop.mod)


def test_tensorize_of_a_whole_reduction(agree):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled(k=12)
    sch.tensorize(i_1, "test.whole")
    agree(gemm, sch.mod["main"], *arrays(gemm))
    same_by_llvm(gemm, sch.mod)


def test_tensorize_between_staged_buffers(agree):
    """The views are of the tiles that cache_read and cache_write make, and lie where these lie."""
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    written = sch.cache_write(block, 0, "global")
    sch.reverse_compute_at(written, j_0)
    read = sch.cache_read(block, 0, "global")
    sch.compute_at(read, k_0)
    sch.decompose_reduction(block, k_0)
    sch.tensorize(i_1, "test.tile")
    agree(gemm, sch.mod["main"], *arrays(gemm))
    same_by_llvm(gemm, sch.mod)


def test_tensorize_where_indices_have_another_type(agree):
    @T.prim_func
    def wide(
        A: T.Buffer((T.int64(8), T.int64(8)), "float32"), C: T.Buffer((T.int64(8), T.int64(8)), "float32")
    ):
        for i, j in T.grid(T.int64(8), T.int64(8)):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.float32(0)

    sch = tir.Schedule(wide)
    i, j = sch.get_loops("C")
    i_0, i_1 = sch.split(i, [None, 4])
    sch.tensorize(i_1, "test.fill")
    agree(wide, sch.mod["main"], *arrays(wide))
    same_by_llvm(wide, sch.mod)


@pytest.fixture(scope="module")
def tile_function(tmp_path_factory):
    """A C function in a library of its own, found by name in the process."""
    folder = tmp_path_factory.mktemp("tile")
    source = folder / "tile.c"
    source.write_text(
        """
        int tilewright_test_tile(float *c, const float *a, const float *b, int sc, int sa, int sb) {
            for (int i = 0; i < 4; ++i)
                for (int j = 0; j < 8; ++j)
                    for (int k = 0; k < 4; ++k)
                        c[i * sc + j] += a[i * sa + k] * b[k * sb + j];
            return 0;
        }
        """
    )
    library = folder / "tile.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)], check=True)
    return ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)


def test_tensorize_by_a_c_function(expect, tile_function):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    sch.tensorize(i_1, "test.tile_call")
    expect(
        tvm.lower(sch.mod)["main"],
        """
        @T.prim_func
        def gemm(A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")):
            C_1 = T.decl_buffer((128,), data=C.data)
            for i_0, j_0 in T.grid(2, 2):
                for i_1_init, j_1_init in T.grid(4, 8):
                    C_1[i_0 * 64 + i_1_init * 16 + j_0 * 8 + j_1_init] = T.float32(0)
                for k_0 in range(3):
                    T.call_extern("int32", "tilewright_test_tile", T.tvm_access_ptr(T.type_annotation("float32"), C.data, i_0 * 64 + j_0 * 8, 64, 3), T.tvm_access_ptr(T.type_annotation("float32"), A.data, i_0 * 48 + k_0 * 4, 48, 1), T.tvm_access_ptr(T.type_annotation("float32"), B.data, k_0 * 64 + j_0 * 8, 64, 1), 16, 12, 16)
        """,
    )
    same_by_llvm(gemm, sch.mod)


def test_tensorize_by_a_python_function(agree):
    """A call through the registry, which the interpreter follows too."""

    @T.prim_func
    def packed(c: T.handle):
        s = T.int32()
        C = T.match_buffer(c, (4, 8), strides=[s, 1], offset_factor=1)
        with T.block("root"):
            T.reads()
            T.writes(C[0:4, 0:8])
            T.evaluate(T.call_packed("tilewright.test.fill", C.access_ptr("w"), s))

    @tvm.register_func("tilewright.test.fill", override=True)
    def fill(pointer, stride):
        calls.append(stride)
        if isinstance(pointer, tvm.nd.NDArray):  # of the interpreter: all of the memory from there on
            flat = np.from_dlpack(pointer)
        else:
            flat = np.ctypeslib.as_array((ctypes.c_float * (3 * stride + 8)).from_address(pointer.value))
        for row in range(4):
            flat[row * stride : row * stride + 8] = 0

    calls: list[int] = []
    tir.TensorIntrin.register("test.fill_packed", fill_desc, packed, override=True)
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    init = sch.decompose_reduction(block, k_0)
    sch.tensorize(sch.get_loops(init)[2], "test.fill_packed")
    a, b, c = arrays(gemm)
    tir.interpret(sch.mod["main"], a, b, c)
    np.testing.assert_array_equal(c, a @ b)
    assert calls == [16] * 4
    got = tvm.nd.array(np.ones_like(c))
    tvm.build(sch.mod, target="llvm")(tvm.nd.array(a), tvm.nd.array(b), got)
    np.testing.assert_array_equal(got.numpy(), a @ b)
    assert calls == [16] * 8


# ---------------------------------------------------------------------------- refusals
def test_a_tile_of_another_size_is_refused(expect, refused):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled(k=6)
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.tile")),
        """
        tensorize(i_1, tensor_intrin='test.tile'): block C_o does not do what test.tile describes: loop `k_1` runs 6 times and the intrinsic's `z` 4
          at test_tensorize.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 2, 4, 8, 6):    # <-- here
          | …

          | block C_o                                                   | test.tile
          | for i_1, j_1, k_1 in T.grid(4, 8, 6):    # <-- here         | for x, y, z in T.grid(4, 8, 4):    # <-- here
          |     C[vi_o * 4 + i_1, vj_o * 8 + j_1] = C[vi_o * 4 + i_1,   |     C[x, y] = C[x, y] + B[z, y] * A[x, z]
          |         vj_o * 8 + j_1] + A[vi_o * 4 + i_1, vk_o * 6 + k_1] |
          |         * B[vk_o * 6 + k_1, vj_o * 8 + j_1]                 |
        """,
    )


def test_another_operation_is_refused(expect, refused):
    @T.prim_func
    def squares(
        A: T.Buffer((8, 12), "float32"), B: T.Buffer((12, 16), "float32"), C: T.Buffer((8, 16), "float32")
    ):
        for i, j, k in T.grid(8, 16, 12):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + (A[vi, vk] - B[vk, vj])

    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled(func=squares)
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.tile")),
        """
        tensorize(i_1, tensor_intrin='test.tile'): block C_o does not do what test.tile describes: `A[vi_o * 4 + i_1, vk_o * 4 + k_1] - B[vk_o * 4 + k_1, vj_o * 8 + j_1]` is not `B[z, y] * A[x, z]`
          at test_tensorize.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 3, 4, 8, 4):    # <-- here
          | …

          | block C_o                                                    | test.tile
          | for i_1, j_1, k_1 in T.grid(4, 8, 4):                        | for x, y, z in T.grid(4, 8, 4):
          |     C[vi_o * 4 + i_1, vj_o * 8 + j_1] = C[vi_o * 4 + i_1,    |     C[x, y] = C[x, y] + B[z, y] * A[x, z]    # <-- here
          |         vj_o * 8 + j_1] + (A[vi_o * 4 + i_1, vk_o * 4 + k_1] |
          |         - B[vk_o * 4 + k_1, vj_o * 8 + j_1])    # <-- here   |
        """,
    )


def test_a_transposed_operand_is_refused(expect, refused):
    @T.prim_func
    def transposed(
        A: T.Buffer((8, 12), "float32"), B: T.Buffer((16, 12), "float32"), C: T.Buffer((8, 16), "float32")
    ):
        for i, j, k in T.grid(8, 16, 12):
            with T.block("C"):
                vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                with T.init():
                    C[vi, vj] = T.float32(0)
                C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vj, vk]

    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled(func=transposed)
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.tile")),
        """
        tensorize(i_1, tensor_intrin='test.tile'): block C_o does not do what test.tile describes: `A[vi_o * 4 + i_1, vk_o * 4 + k_1]` is not `B[z, y]`: `vi_o * 4 + i_1` does not go as `z` does
          at test_tensorize.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 3, 4, 8, 4):    # <-- here
          | …

          | block C_o                                                   | test.tile
          | for i_1, j_1, k_1 in T.grid(4, 8, 4):                       | for x, y, z in T.grid(4, 8, 4):
          |     C[vi_o * 4 + i_1, vj_o * 8 + j_1] = C[vi_o * 4 + i_1,   |     C[x, y] = C[x, y] + B[z, y] * A[x, z]    # <-- here
          |         vj_o * 8 + j_1] + A[vi_o * 4 + i_1, vk_o * 4 + k_1] |
          |         * B[vj_o * 8 + j_1, vk_o * 4 + k_1]    # <-- here   |
        """,
    )


def test_another_type_is_refused(expect, refused):
    @T.prim_func
    def halves(A: T.Buffer((8, 8), "float16")):
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = T.float16(0)

    sch = tir.Schedule(halves)
    i, j = sch.get_loops("C")
    i_0, i_1 = sch.split(i, [None, 4])
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.fill")),
        """
        tensorize(i_1, tensor_intrin='test.fill'): block C_o does not do what test.fill describes: `T.float16(0)` is float16 and `T.float32(0)` is float32
          at test_tensorize.py:LINE

          | …
          |     for i_0, i_1, j in T.grid(2, 4, 8):    # <-- here
          | …

          | block C_o                                             | test.fill
          | for i_1, j in T.grid(4, 8):                           | for x, y in T.grid(4, 8):
          |     A[vi_o * 4 + i_1, j] = T.float16(0)    # <-- here |     C[x, y] = T.float32(0)    # <-- here
        """,
    )


def test_another_memory_is_refused(expect, refused):
    @T.prim_func
    def through(B: T.Buffer((4, 8), "float32")):
        A = T.alloc_buffer((4, 8), scope="shared")
        for i, j in T.grid(4, 8):
            with T.block("A"):
                vi, vj = T.axis.remap("SS", [i, j])
                A[vi, vj] = T.float32(0)
        for i, j in T.grid(4, 8):
            with T.block("B"):
                vi, vj = T.axis.remap("SS", [i, j])
                B[vi, vj] = A[vi, vj]

    sch = tir.Schedule(through)
    i, j = sch.get_loops("A")
    expect(
        refused(sch, lambda: sch.tensorize(i, "test.fill")),
        """
        tensorize(i, tensor_intrin='test.fill'): block A_o does not do what test.fill describes: `A[i, j]` is not `C[x, y]`: A lies in shared and C in global
          at test_tensorize.py:LINE

          | …
          |     for i, j in T.grid(4, 8):    # <-- here
          | …

          | block A_o                                | test.fill
          | for i, j in T.grid(4, 8):                | for x, y in T.grid(4, 8):
          |     A[i, j] = T.float32(0)    # <-- here |     C[x, y] = T.float32(0)    # <-- here
        """,
    )


def test_an_init_that_only_one_of_both_has_comes_with_a_hint(expect, refused):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled(k=12)
    tir.TensorIntrin.register("test.whole_update", *[_without_init(whole_desc)] * 2, override=True)
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.whole_update")),
        """
        tensorize(i_1, tensor_intrin='test.whole_update'): block C_o does not do what test.whole_update describes: there is a sequence of statements where the intrinsic has a store
          at test_tensorize.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 1, 4, 8, 12):    # <-- here
          | …

          | block C_o                                                 | test.whole_update
          | for i_1, j_1, k_1 in T.grid(4, 8, 12):                    | for x, y, z in T.grid(4, 8, 12):
          |     if k_1 == 0:                                          |     C[x, y] = C[x, y] + A[x, z] * B[z, y]    # <-- here
          |         C[vi_o * 4 + i_1, vj_o * 8 + j_1] = T.float32(0)  |
          |     C[vi_o * 4 + i_1, vj_o * 8 + j_1] = C[vi_o * 4 + i_1, |
          |         vj_o * 8 + j_1] + A[vi_o * 4 + i_1, k_1] * B[k_1, |
          |         vj_o * 8 + j_1]                                   |

          hint: the intrinsic does not initialise: call decompose_reduction on block C first
        """,
    )
    sch.decompose_reduction(block, k_0)
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.whole")),
        """
        tensorize(i_1, tensor_intrin='test.whole'): block C_o does not do what test.whole describes: there is a store where the intrinsic has a sequence of statements
          at test_tensorize.py:LINE

          | …
          |         for k_0, i_1, j_1, k_1 in T.grid(1, 4, 8, 12):    # <-- here
          | …

          | block C_o                                                 | test.whole
          | for i_1, j_1, k_1 in T.grid(4, 8, 12):                    | for x, y, z in T.grid(4, 8, 12):
          |     C[vi_o * 4 + i_1, vj_o * 8 + j_1] = C[vi_o * 4 + i_1, |     if z == 0:
          |         vj_o * 8 + j_1] + A[vi_o * 4 + i_1, k_1] * B[k_1, |
          |         vj_o * 8 + j_1]    # <-- here                     |
          |                                                           |         C[x, y] = T.float32(0)
          |                                                           |     C[x, y] = C[x, y] + A[x, z] * B[z, y]

          hint: the intrinsic initialises: leave the init in the block, and the whole reduction in loops inside
        """,
    )
    sch.tensorize(i_1, "test.whole_update")


def _without_init(func):
    return func.replace(body=rewrite(func.body, {tir.Block: lambda b: b.replace(init=None)}))


def test_an_intrinsic_that_wants_one_piece_of_memory_is_refused_a_tile(expect, refused):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.tile_dense")),
        """
        tensorize(i_1, tensor_intrin='test.tile_dense'): the intrinsic takes A as one piece of memory (through its pointer), and the rows of the region of A lie 12 elements apart
          at test_tensorize.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 3, 4, 8, 4):    # <-- here
          | …

          hint: stage A by cache_read, or give A strides that are variables in the impl
        """,
    )


def test_one_piece_of_memory_can_be_a_tile_that_is_staged():
    """Lowering cuts the copies of A and B to the tile, and then they lie in one piece; C does not."""
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    for operand in (0, 1):
        sch.compute_at(sch.cache_read(block, operand, "global"), k_0)
    late = sch.copy()
    written = sch.cache_write(block, 0, "global")
    sch.reverse_compute_at(written, j_0)
    sch.tensorize(i_1, "test.tile_dense")
    text = tvm.lower(sch.mod)["main"].script()
    assert "A_global, 0, 16, 1)" in text and "C_global, 0, 32, 3)" in text
    # A copy that is made far out stays as wide as it is.
    late.cache_write(block, 0, "global")
    late.tensorize(i_1, "test.tile_dense")
    with pytest.raises(LoweringError) as caught:
        tvm.lower(late.mod)
    assert str(caught.value) == (
        "block C_o uses C, a view of C_global, as one piece of memory (through its pointer), and its rows lie "
        "16 elements apart; give C strides that are variables"
    )


def test_one_name_for_two_strides_is_refused(expect, refused):
    @T.prim_func
    def shared(a: T.handle, b: T.handle, c: T.handle):
        s = T.int32()
        A = T.match_buffer(a, (4, 4), strides=[s, 1], offset_factor=1)
        B = T.match_buffer(b, (4, 8), strides=[s, 1], offset_factor=1)
        C = T.match_buffer(c, (4, 8), offset_factor=1)
        with T.block("root"):
            T.reads(C[0:4, 0:8], A[0:4, 0:4], B[0:4, 0:8])
            T.writes(C[0:4, 0:8])
            C[0, 0] = A[0, 0] * B[0, 0]

    tir.TensorIntrin.register("test.shared", tile_desc, shared, override=True)
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.shared")),
        """
        tensorize(i_1, tensor_intrin='test.shared'): the intrinsic calls two strides `s`, and one is 12, the other (of B) 16
          at test_tensorize.py:LINE

          | …
          |     for i_0, j_0, k_0, i_1, j_1, k_1 in T.grid(2, 2, 3, 4, 8, 4):    # <-- here
          | …

          hint: give each stride a variable of its own in the impl
        """,
    )


def test_a_pointer_without_an_offset_is_refused_a_region_that_has_one(expect, refused):
    @T.prim_func
    def at_zero(C: T.Buffer((4, 8), "float32")):
        with T.block("root"):
            T.reads()
            T.writes(C[0:4, 0:8])
            T.evaluate(T.call_extern("int32", "fill", C.access_ptr("w")))

    tir.TensorIntrin.register("test.at_zero", fill_desc, at_zero, override=True)

    @T.prim_func
    def fill(C: T.Buffer((8, 8), "float32")):
        for i, j in T.grid(8, 8):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.float32(0)

    sch = tir.Schedule(fill)
    i, j = sch.get_loops("C")
    i_0, i_1 = sch.split(i, [None, 4])
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "test.at_zero")),
        """
        tensorize(i_1, tensor_intrin='test.at_zero'): the intrinsic uses the pointer of C and leaves no room for an offset, and the region of C starts at vi_o * 32
          at test_tensorize.py:LINE

          | …
          |     for i_0, i_1, j in T.grid(2, 4, 8):    # <-- here
          | …

          hint: declare C with offset_factor=1 in the impl
        """,
    )


def test_alignment_and_offsets_are_held_to(expect, refused):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    init = sch.decompose_reduction(block, k_0)
    loop = sch.get_loops(init)[2]
    register = tir.TensorIntrin.register
    desc = fill_desc
    register("test.f16", desc, _fill_with(offset_factor=16), override=True)
    register("test.f8", desc, _fill_with(offset_factor=8), override=True)
    register("test.align", desc, _fill_with(align=128), override=True)
    register("test.strided", desc, _fill_with(strides=(8, 1)), override=True)
    expect(
        refused(sch, lambda: sch.tensorize(loop, "test.f16")),
        """
        tensorize(i_1_init, tensor_intrin='test.f16'): the intrinsic takes C at a multiple of 16 elements, and the region of C starts at vi_o * 64 + vj_o * 8
          at test_tensorize.py:LINE

          | …
          |         for i_1_init, j_1_init in T.grid(4, 8):    # <-- here
          | …

          hint: split by multiples of it, or pad the rows with storage_align
        """,
    )
    expect(
        refused(sch, lambda: sch.tensorize(loop, "test.align")),
        """
        tensorize(i_1_init, tensor_intrin='test.align'): the intrinsic takes C aligned to 128 bytes, and C is aligned to 64
          at test_tensorize.py:LINE

          | …
          |         for i_1_init, j_1_init in T.grid(4, 8):    # <-- here
          | …

          hint: take a copy of it with cache_read or cache_write, which is aligned
        """,
    )
    expect(
        refused(sch, lambda: sch.tensorize(loop, "test.strided")),
        """
        tensorize(i_1_init, tensor_intrin='test.strided'): the intrinsic takes C with stride 8 in dimension 0, and C has 16 there
          at test_tensorize.py:LINE

          | …
          |         for i_1_init, j_1_init in T.grid(4, 8):    # <-- here
          | …

          hint: take a copy with cache_read or cache_write, and give it these strides with storage_align
        """,
    )
    sch.tensorize(loop, "test.f8")


def _fill_with(offset_factor=0, align=0, strides=()):
    C = tir.decl_buffer(
        (4, 8), name="C", offset_factor=offset_factor or 1, data_alignment=align or -1, strides=strides
    )
    old = next(iter(fill_impl.buffer_map.values()))
    body = substitute(fill_impl.body, {}, {old: C})
    (param,) = fill_impl.params
    return fill_impl.replace(body=body, buffer_map={param: C})


def test_what_is_written_may_not_be_read_under_another_name(expect, refused):
    @T.prim_func
    def copy_desc(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        with T.block("root"):
            T.reads(A[0:4])
            T.writes(B[0:4])
            for i in range(4):
                with T.block("B"):
                    vi = T.axis.spatial(4, i)
                    B[vi] = A[vi]

    @T.prim_func
    def shift(A: T.Buffer((8,), "float32")):
        for i in range(4):
            with T.block("A"):
                vi = T.axis.spatial(4, i)
                A[vi] = A[vi + 1]

    tir.TensorIntrin.register("test.copy", copy_desc, copy_desc, override=True)
    sch = tir.Schedule(shift)
    (i,) = sch.get_loops("A")
    expect(
        refused(sch, lambda: sch.tensorize(i, "test.copy")),
        """
        tensorize(i, tensor_intrin='test.copy'): block A_o does not do what test.copy describes: B, which the intrinsic writes, and A are both A
          at test_tensorize.py:LINE

          | …
          |     for i in range(4):    # <-- here
          | …

          | block A_o                        | test.copy
          | for i in range(4):    # <-- here | for i in range(4):    # <-- here
          |     A[i] = A[i + 1]              |     B[i] = A[i]
        """,
    )


def test_a_loop_bound_to_threads_is_refused(expect, refused):
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops("B")

    @T.prim_func
    def row(A: T.Buffer((12,), "float32"), B: T.Buffer((12,), "float32")):
        with T.block("root"):
            T.reads(A[0:12])
            T.writes(B[0:12])
            for i in range(12):
                with T.block("B"):
                    vi = T.axis.spatial(12, i)
                    B[vi] = A[vi] + T.float32(1)

    tir.TensorIntrin.register("test.row", row, row, override=True)
    sch.bind(j, "threadIdx.x")
    expect(
        refused(sch, lambda: sch.tensorize(j, "test.row")),
        """
        tensorize(j, tensor_intrin='test.row'): block B_o does not do what test.row describes: loop `j` is bound to threadIdx.x and the intrinsic's `i` is not bound
          at test_tensorize.py:LINE

          | …
          |         for j in T.thread_binding(12, thread="threadIdx.x"):    # <-- here
          | …

          | block B_o                                                 | test.row
          | for j in T.thread_binding(12, thread="threadIdx.x"):    # | for i in range(12):    # <-- here
          |     <-- here                                              |
          |     B[vi_o, j] = A[vi_o, j] + T.float32(1)                |     B[i] = A[i] + T.float32(1)
        """,
    )


def test_a_name_that_is_not_registered_is_refused(expect, refused):
    known = tir.TensorIntrin.get("test.tile")
    tir.TensorIntrin.register("spelt.right", known.desc, known.impl, override=True)
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    expect(
        refused(sch, lambda: sch.tensorize(i_1, "spelt.rihgt")),
        """
        tensorize(i_1, tensor_intrin='spelt.rihgt'): no tensor intrinsic is registered as 'spelt.rihgt'; did you mean 'spelt.right'?
          at test_tensorize.py:LINE

          | …
        """,
    )


def test_handles_of_what_was_replaced_say_so(expect, refused):
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    sch.tensorize(i_1, "test.tile")
    expect(
        refused(sch, lambda: sch.unroll(j_1)),
        """
        unroll(j_1): loop `j_1` does not exist any more: it went with tensorize(i_1, …)
          at test_tensorize.py:LINE

          | …
        """,
    )
    expect(
        refused(sch, lambda: sch.get_loops(block)),
        """
        get_loops(C): block C does not exist any more: it went with tensorize(i_1, …)
          at test_tensorize.py:LINE

          | …
        """,
    )


# ---------------------------------------------------------------------------- trace
def test_the_trace_is_done_again_from_json():
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    init = sch.decompose_reduction(block, k_0)
    outer = sch.blockize(sch.get_loops(init)[2], preserve_unit_iters=False)
    sch.tensorize(outer, "test.fill")
    sch.tensorize(i_1, "test.tile")
    again = tir.Schedule(gemm)
    type(sch.trace).apply_json_to_schedule(json.dumps(sch.trace.as_json()), again)
    assert_structural_equal(again.mod, sch.mod)
    text = str(sch.trace)
    assert "b2 = sch.blockize(target=l11, preserve_unit_iters=False)" in text
    assert "sch.tensorize(block_or_loop=b2, tensor_intrin='test.fill')" in text


def test_blockize_of_blocks_is_done_again_from_json():
    sch = tir.Schedule(chain)
    sch.blockize(["C", "D"])
    again = tir.Schedule(chain)
    type(sch.trace).apply_json_to_schedule(json.dumps(sch.trace.as_json()), again)
    assert_structural_equal(again.mod, sch.mod)


def test_a_matrix_product_without_tiles_is_one_block(agree):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.blockize(i)
    agree(matmul, sch.mod["main"], *arrays(matmul))
    same_by_llvm(matmul, sch.mod)
