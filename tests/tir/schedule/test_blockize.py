"""Parts of a program as one block: blockize."""

from __future__ import annotations

import json

import numpy as np
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from schedule_programs import arrays, chain, copy2d, matmul
from tensorize_programs import gemm, same_by_llvm, tiled

import tilewright as tvm
from tilewright import tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T


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


@settings(max_examples=examples(40), derandomize=True, deadline=None)
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


def test_blockize_under_rows_that_overlap(expect, agree):
    """Rows of a window are fetched again for each tap; the tile itself is cut as always."""

    @T.prim_func
    def windows(A: T.Buffer((6, 8), "float32"), B: T.Buffer((4, 8), "float32")):
        for i, r in T.grid(4, 3):
            for j in range(8):
                with T.block("B"):
                    vi, vr, vj = T.axis.remap("SRS", [i, r, j])
                    with T.init():
                        B[vi, vj] = T.float32(0)
                    B[vi, vj] = B[vi, vj] + A[vi + vr, vj]

    sch = tir.Schedule(windows)
    block = sch.get_block("B")
    fetched = sch.cache_read(block, 0, "local")
    sch.compute_at(fetched, sch.get_loops(block)[1], preserve_unit_loops=True)
    tile = sch.split(sch.get_loops(fetched)[-1], [None, 4])[1]
    outer = sch.blockize(tile)
    got = sch.get(outer)
    assert [(iv.var.name, str(iv.dom.extent)) for iv in got.iter_vars] == [("v0_o", "6"), ("v1_o", "2")]
    expect(
        sch.get(fetched),
        """
        v0_o = T.int32()
        v1_o = T.int32()
        A = T.Buffer((6, 8))
        A_local = T.Buffer((6, 8), scope="local")
        with T.block("A_local", no_realize=True):
            v0_i = T.axis.spatial(1)
            v1_i = T.axis.spatial(4)
            T.reads(A[v0_o, v1_o * 4 + v1_i])
            T.writes(A_local[v0_o, v1_o * 4 + v1_i])
            A_local[v0_o, v1_o * 4 + v1_i] = A[v0_o, v1_o * 4 + v1_i]
        """,
    )
    agree(windows, sch.mod["main"], *arrays(windows))
    same_by_llvm(windows, sch.mod)


def test_blockize_refuses_a_tile_that_is_cut(expect, refused):
    sch = tir.Schedule(copy2d)
    i, j = sch.get_loops(sch.get_block("B"))
    j_0, j_1 = sch.split(j, [None, 5])
    expect(
        refused(sch, lambda: sch.blockize(j_1)),
        """
        blockize(j_1): the iterators of block B (vi = i, vj = j_0 * 5 + j_1 where j_0 * 5 + j_1 < 12) do not fall into a part over `j_1` and a part over the loops outside
          at test_blockize.py:LINE

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
          at test_blockize.py:LINE

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
        blockize(i): a statement under it is in no block
          at test_blockize.py:LINE

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
        blockize([B, D]): block C is between the blocks
          at test_blockize.py:LINE

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
          at test_blockize.py:LINE

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
          at test_blockize.py:LINE

          | …
          |             with T.block("B"):    # <-- here
          | …

          hint: decompose_reduction(B, k) first
        """,
    )


def test_blockize_of_blocks_is_done_again_from_json():
    sch = tir.Schedule(chain)
    sch.blockize(["C", "D"])
    again = tir.Schedule(chain)
    type(sch.trace).apply_json_to_schedule(json.dumps(sch.trace.as_json()), again, trusted=True)
    assert_structural_equal(again.mod, sch.mod)


def test_a_matrix_product_without_tiles_is_one_block(agree):
    sch = tir.Schedule(matmul)
    i, j, k = sch.get_loops("C")
    sch.blockize(i)
    agree(matmul, sch.mod["main"], *arrays(matmul))
    same_by_llvm(matmul, sch.mod)
