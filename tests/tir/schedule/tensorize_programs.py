"""A matrix product in tiles, and intrinsics for them."""

from __future__ import annotations

import numpy as np
from schedule_programs import arrays

import tilewright as tvm
from tilewright import tir
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


def register_tiles():
    """The intrinsics by name; tests may put others under these names."""
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
