"""Results computed in other memory first: cache_write."""

from __future__ import annotations

import pytest
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
    refusal,
    same,
    same_again,
    stencil,
)

from tilewright import tir


# ---------------------------------------------------------------------------- cache_write: expect
def test_an_output_is_copied_last(expect):
    sch = tir.Schedule(backwards)
    copy = sch.cache_write("C", 0, "local")
    assert copy.name == "C_local"
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def backwards(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((8,))
            C_local = T.alloc_buffer((8,), scope="local")
            for i in range(8):
                with T.block("B"):
                    vi = T.axis.spatial(8, i)
                    T.reads(A[vi])
                    T.writes(B[vi])
                    B[vi] = A[vi] * T.float32(2)
            for i in range(8):
                with T.block("C"):
                    vi = T.axis.spatial(8, i)
                    T.reads(B[7 - vi])
                    T.writes(C_local[vi])
                    C_local[vi] = B[7 - vi]
            for ax0 in range(8):
                with T.block("C_local"):
                    v0 = T.axis.spatial(8, ax0)
                    T.reads(C_local[v0])
                    T.writes(C[v0])
                    C[v0] = C_local[v0]
        """,
    )
    same(backwards, sch)


def test_a_reduction_in_registers(expect):
    sch = tir.Schedule(matmul_relu)
    copy = sch.cache_write("C", 0, "local")
    i, j, k = sch.get_loops("C")
    sch.reverse_compute_at(copy, j)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def matmul_relu(A: T.Buffer((7, 10), "float32"), B: T.Buffer((10, 6), "float32"), D: T.Buffer((7, 6), "float32")):
            # with T.block("root"):
            C = T.alloc_buffer((7, 6))
            C_local = T.alloc_buffer((7, 6), scope="local")
            for i, j in T.grid(7, 6):
                for k in range(10):
                    with T.block("C"):
                        vi, vj, vk = T.axis.remap("SSR", [i, j, k])
                        T.reads(A[vi, vk], B[vk, vj])
                        T.writes(C_local[vi, vj])
                        with T.init():
                            C_local[vi, vj] = T.float32(0)
                        C_local[vi, vj] = C_local[vi, vj] + A[vi, vk] * B[vk, vj]
                with T.block("C_local"):
                    v0, v1 = T.axis.remap("SS", [i, j])
                    T.reads(C_local[v0, v1])
                    T.writes(C[v0, v1])
                    C[v0, v1] = C_local[v0, v1]
            for i, j in T.grid(7, 6):
                with T.block("D"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(C[vi, vj])
                    T.writes(D[vi, vj])
                    D[vi, vj] = T.max(C[vi, vj], T.float32(0))
        """,
    )
    same(matmul_relu, sch)
    same_again(matmul_relu, sch)


def test_under_a_shared_loop(expect):
    sch = tir.Schedule(levels)
    sch.cache_write("B", 0, "local")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def levels(A: T.Buffer((8, 4), "float32"), C: T.Buffer((8, 4), "float32"), D: T.Buffer((8, 4), "float32"), E: T.Buffer((8, 4), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((8, 4))
            B_local = T.alloc_buffer((8, 4), scope="local")
            for i in range(8):
                for j in range(4):
                    with T.block("B"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(A[vi, vj])
                        T.writes(B_local[vi, vj])
                        B_local[vi, vj] = A[vi, vj] * T.float32(2)
                for ax0, ax1 in T.grid(1, 4):
                    with T.block("B_local"):
                        v0 = T.axis.spatial(8, i + ax0)
                        v1 = T.axis.spatial(4, ax1)
                        T.reads(B_local[v0, v1])
                        T.writes(B[v0, v1])
                        B[v0, v1] = B_local[v0, v1]
                for j in range(4):
                    with T.block("C"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(B[vi, vj], A[vi, vj])
                        T.writes(C[vi, vj])
                        C[vi, vj] = B[vi, vj] + A[vi, vj]
                for j in range(4):
                    with T.block("D"):
                        vi, vj = T.axis.remap("SS", [i, j])
                        T.reads(B[vi, vj], A[vi, vj])
                        T.writes(D[vi, vj])
                        D[vi, vj] = B[vi, vj] + A[vi, vj] + T.float32(1)
            for i, j in T.grid(8, 4):
                with T.block("E"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(B[vi, vj], A[vi, vj])
                    T.writes(E[vi, vj])
                    E[vi, vj] = B[vi, vj] * A[vi, vj]
        """,
    )
    same(levels, sch)


def test_readers_of_the_cache(expect):
    sch = tir.Schedule(chain)
    sch.cache_write("B", 0, "local", ["D"])
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def chain(A: T.Buffer((10,), "float32"), D: T.Buffer((10,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((10,))
            C = T.alloc_buffer((10,))
            B_local = T.alloc_buffer((10,), scope="local")
            for i in range(10):
                with T.block("B"):
                    vi = T.axis.spatial(10, i)
                    T.reads(A[vi])
                    T.writes(B_local[vi])
                    B_local[vi] = A[vi] + T.float32(1)
            for ax0 in range(10):
                with T.block("B_local"):
                    v0 = T.axis.spatial(10, ax0)
                    T.reads(B_local[v0])
                    T.writes(B[v0])
                    B[v0] = B_local[v0]
            for i in range(10):
                with T.block("C"):
                    vi = T.axis.spatial(10, i)
                    T.reads(B[vi])
                    T.writes(C[vi])
                    C[vi] = B[vi] * T.float32(2)
            for i in range(10):
                with T.block("D"):
                    vi = T.axis.spatial(10, i)
                    T.reads(C[vi], B_local[vi])
                    T.writes(D[vi])
                    D[vi] = C[vi] + B_local[vi]
        """,
    )
    same(chain, sch)
    same_again(chain, sch)


# ---------------------------------------------------------------------------- cache_write: meaning
@pytest.mark.parametrize(
    ("func", "block"),
    [
        (stencil, "B"),
        (stencil, "C"),
        (blur, "D"),
        (conv2d, "P"),
        (conv2d, "S"),
        (batched, "C"),
        (levels, "C"),
    ],
)
def test_what_a_block_writes_in_other_memory(func, block):
    sch = tir.Schedule(func)
    sch.cache_write(block, 0, "local")
    same(func, sch)
    same_again(func, sch)


@pytest.mark.parametrize("reader", ["C", "D", "E"])
def test_one_reader_of_the_cache(reader):
    sch = tir.Schedule(levels)
    sch.cache_write("B", 0, "local", [reader])
    same(levels, sch)


@pytest.mark.parametrize("factor", [3, 4, 5])
def test_tiles_under_a_loop_that_consumers_share(factor):
    sch = tir.Schedule(fork)
    outer, _ = sch.split(sch.get_loops("C")[0], [None, factor])
    sch.compute_at("B", outer)
    sch.cache_write("B", 0, "local")
    sch.cache_write("D", 0, "local")
    same(fork, sch)
    same_again(fork, sch)


@pytest.mark.parametrize("index", [0, 1])
def test_one_of_two_results(index):
    sch = tir.Schedule(argmax)
    sch.cache_write("R", index, "local")
    same(argmax, sch)
    same_again(argmax, sch)


def test_a_blocked_matmul_with_a_write_cache():
    sch = tir.Schedule(matmul_relu)
    sch.reverse_compute_at("D", sch.get_loops("C")[1])
    copy = sch.cache_write("D", 0, "local")
    same(matmul_relu, sch)
    assert copy.name == "D_local"
    same_again(matmul_relu, sch)


# ---------------------------------------------------------------------------- cache_write: refuse
def test_refuse_a_buffer_of_two_blocks(expect, refused):
    sch = tir.Schedule(matmul_relu)
    sch.decompose_reduction("C", sch.get_loops("C")[2])
    expect(
        refusal(refused, sch, "cache_write", "C", 0, "local"),
        """
        cache_write(C, write_buffer_index=0, storage_scope='local'): block C_init also writes C, so block C alone does not define it and is no complete block
          at stage_programs.py:LINE

          | …
          |         with T.block("C_init"):    # <-- here
          | …

          hint: apply this step before decompose_reduction or loop_partition splits the block
        """,
    )


def test_refuse_what_the_block_does_not_write(expect, refused):
    sch = tir.Schedule(backwards)
    expect(
        refusal(refused, sch, "cache_write", "B", 1, "local"),
        """
        cache_write(B, write_buffer_index=1, storage_scope='local'): block B writes 1 regions, and 1 is none of them
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )
    expect(
        refusal(refused, sch, "cache_write", "B", "A", "local"),
        """
        cache_write(B, write_buffer_index='A', storage_scope='local'): block B does not write 'A'; it writes B
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )
    expect(
        refusal(refused, sch, "cache_write", "B", 0, ""),
        """
        cache_write(B, write_buffer_index=0, storage_scope=''): there is no memory named ''
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: known are global, shared, shared.dyn, local, warp
        """,
    )
    others = [sch.get_block("B")]
    expect(
        refusal(refused, sch, "cache_write", "C", 0, "local", others),
        """
        cache_write(C, write_buffer_index=0, storage_scope='local', consumer_blocks=[B]): block B does not read C
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )
