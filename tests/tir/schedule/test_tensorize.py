"""Parts of a program handed to the hardware: tensorize."""

from __future__ import annotations

import ctypes
import json
import subprocess

import numpy as np
import pytest
from schedule_programs import arrays
from tensorize_programs import fill_desc, gemm, register_tiles, same_by_llvm, tiled

import tilewright as tvm
from tilewright import tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.script import tir as T


@pytest.fixture(autouse=True)
def intrinsics():
    register_tiles()


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


def test_counts_are_compared_by_value():
    """`(vo*8 + i) % 8` is the description's `i % 8`, and its tile of 4 would not be."""

    @T.prim_func
    def unpack(P: T.Buffer((16,), "int32"), Q: T.Buffer((128,), "int32")):
        for i in range(128):
            with T.block("Q"):
                vi = T.axis.spatial(128, i)
                Q[vi] = T.shift_right(P[vi // 8], vi % 8 * 4)

    @T.prim_func
    def desc(p: T.handle, q: T.handle):
        P = T.match_buffer(p, (1,), "int32", offset_factor=1)
        Q = T.match_buffer(q, (8,), "int32", offset_factor=1)
        with T.block("root"):
            T.reads(P[0:1])
            T.writes(Q[0:8])
            for i in range(8):
                with T.block("Q"):
                    vi = T.axis.spatial(8, i)
                    Q[vi] = T.shift_right(P[vi // 8], vi % 8 * 4)

    tir.TensorIntrin.register("test.unpack", desc, desc, override=True)
    sch = tir.Schedule(unpack)
    _, inner = sch.split(sch.get_loops("Q")[0], [None, 8])
    sch.tensorize(inner, "test.unpack")
    assert sch.verify()
    shifted = tir.Schedule(unpack)
    _, inner = shifted.split(shifted.get_loops("Q")[0], [None, 4])
    with pytest.raises(tir.ScheduleError, match="does not do what"):
        shifted.tensorize(inner, "test.unpack")


# ---------------------------------------------------------------------------- trace
def test_the_trace_is_done_again_from_json():
    sch, block, (i_0, j_0, k_0, i_1, j_1, k_1) = tiled()
    init = sch.decompose_reduction(block, k_0)
    outer = sch.blockize(sch.get_loops(init)[2], preserve_unit_iters=False)
    sch.tensorize(outer, "test.fill")
    sch.tensorize(i_1, "test.tile")
    again = tir.Schedule(gemm)
    type(sch.trace).apply_json_to_schedule(json.dumps(sch.trace.as_json()), again, trusted=True)
    assert_structural_equal(again.mod, sch.mod)
    text = str(sch.trace)
    assert "b2 = sch.blockize(target=l11, preserve_unit_iters=False)" in text
    assert "sch.tensorize(block_or_loop=b2, tensor_intrin='test.fill')" in text
