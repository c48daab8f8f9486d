"""Where buffers lie, and how: set_scope, storage_align."""

from __future__ import annotations

import pytest
from stage_programs import backwards, blur, conv2d, matmul_relu, refusal, same, same_again

from tilewright import tir
from tilewright.ir.equal import assert_structural_equal


# ---------------------------------------------------------------------------- set_scope
def test_another_memory(expect):
    sch = tir.Schedule(backwards)
    sch.set_scope("B", 0, "shared")
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def backwards(A: T.Buffer((8,), "float32"), C: T.Buffer((8,), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((8,), scope="shared")
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
                    T.writes(C[vi])
                    C[vi] = B[7 - vi]
        """,
    )
    same(backwards, sch)
    same_again(backwards, sch)


def test_the_same_memory_changes_nothing():
    sch = tir.Schedule(backwards)
    before = sch.mod
    sch.set_scope("B", "B", "global")
    assert sch.mod is before
    sch.set_scope("B", sch.get(sch.get_block("B")).writes[0].buffer, "local")
    sch.set_scope("B", "B", "global")
    assert_structural_equal(sch.mod, before)


def test_the_memory_of_a_reduction_under_its_reader():
    sch = tir.Schedule(conv2d)
    sch.compute_at("S", sch.get_loops("Y")[1])
    sch.set_scope("S", 0, "local")
    sch.set_scope("P", "P", "global.tile")
    same(conv2d, sch)
    same_again(conv2d, sch)


def test_refuse_the_memory_of_a_parameter(expect, refused):
    sch = tir.Schedule(backwards)
    expect(
        refusal(refused, sch, "set_scope", "C", 0, "shared"),
        """
        set_scope(C, buffer_index=0, storage_scope='shared'): C is a parameter of the function: who calls it decides where it lies
          at stage_programs.py:LINE

          | …
          |         with T.block("C"):    # <-- here
          | …

          hint: cache_read or cache_write it first, and take the copy
        """,
    )
    expect(
        refusal(refused, sch, "set_scope", "B", 0, "nowhere"),
        """
        set_scope(B, buffer_index=0, storage_scope='nowhere'): there is no memory named 'nowhere'
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

          hint: known are global, shared, shared.dyn, local, warp
        """,
    )
    expect(
        refusal(refused, sch, "set_scope", "B", 1, "local"),
        """
        set_scope(B, buffer_index=1, storage_scope='local'): block B writes 1 regions, and 1 is none of them
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )


# ---------------------------------------------------------------------------- storage_align
def aligned(sch, block):
    return sch.get(sch.get_block(block)).annotations["buffer_dim_align"]


def test_a_stride(expect):
    sch = tir.Schedule(blur)
    sch.storage_align("B", 0, 0, 16, 1)
    expect(
        sch.mod["main"],
        """
        @T.prim_func
        def blur(A: T.Buffer((9, 11), "float32"), D: T.Buffer((7, 9), "float32")):
            # with T.block("root"):
            B = T.alloc_buffer((9, 9))
            for i, j in T.grid(9, 9):
                with T.block("B"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(A[vi, vj:vj + 3])
                    T.writes(B[vi, vj])
                    T.block_attr({"buffer_dim_align": [[0, 0, 16, 1]]})
                    B[vi, vj] = A[vi, vj] + A[vi, vj + 1] + A[vi, vj + 2]
            for i, j in T.grid(7, 9):
                with T.block("D"):
                    vi, vj = T.axis.remap("SS", [i, j])
                    T.reads(B[vi:vi + 3, vj])
                    T.writes(D[vi, vj])
                    D[vi, vj] = B[vi, vj] + B[vi + 1, vj] + B[vi + 2, vj]
        """,
    )
    same(blur, sch)
    same_again(blur, sch)


def test_a_later_stride_takes_the_place_of_an_earlier_one():
    sch = tir.Schedule(conv2d)
    sch.storage_align("P", 0, -2, 8, 1)
    sch.storage_align("P", 0, 0, 64, 0)
    assert aligned(sch, "P") == [[0, 1, 8, 1], [0, 0, 64, 0]]
    sch.storage_align("P", 0, 1, 4, 2)
    assert aligned(sch, "P") == [[0, 0, 64, 0], [0, 1, 4, 2]]
    same(conv2d, sch)
    same_again(conv2d, sch)


@pytest.mark.parametrize(("factor", "offset"), [(1, 0), (32, 0), (32, 1), (4, 3)])
def test_a_stride_of_a_cache_under_a_loop(factor, offset):
    sch = tir.Schedule(matmul_relu)
    copy = sch.cache_read("C", 1, "global")
    ko, ki = sch.split(sch.get_loops("C")[2], [None, 4])
    i, j, *_ = sch.get_loops("C")
    sch.reorder(ko, i, j, ki)
    sch.compute_at(copy, ko)
    sch.storage_align(copy, 0, 0, factor, offset)
    same(matmul_relu, sch)
    same_again(matmul_relu, sch)


def test_refuse_the_stride_of_a_parameter(expect, refused):
    sch = tir.Schedule(blur)
    expect(
        refusal(refused, sch, "storage_align", "D", 0, 0, 4, 0),
        """
        storage_align(D, buffer_index=0, axis=0, factor=4, offset=0): D is a parameter of the function: who calls it decides where it lies
          at stage_programs.py:LINE

          | …
          |         with T.block("D"):    # <-- here
          | …

          hint: cache_read or cache_write it first, and take the copy
        """,
    )


def test_refuse_a_stride(expect, refused):
    sch = tir.Schedule(blur)
    wrong = ((0, 1, 4, 0), (0, 2, 4, 0), (0, -1, 4, 0), (0, -3, 4, 0), (0, 0, 0, 0), (1, 0, 4, 0))
    expect(
        "\n\n".join(refusal(refused, sch, "storage_align", "B", *args) for args in wrong),
        """
        storage_align(B, buffer_index=0, axis=1, factor=4, offset=0): axis=1: only the stride of a dimension before the last of 2 can be changed
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

        storage_align(B, buffer_index=0, axis=2, factor=4, offset=0): axis=2: only the stride of a dimension before the last of 2 can be changed
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

        storage_align(B, buffer_index=0, axis=-1, factor=4, offset=0): axis=-1: only the stride of a dimension before the last of 2 can be changed
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

        storage_align(B, buffer_index=0, axis=-3, factor=4, offset=0): axis=-3: only the stride of a dimension before the last of 2 can be changed
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

        storage_align(B, buffer_index=0, axis=0, factor=0, offset=0): factor=0: it must be at least 1
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …

        storage_align(B, buffer_index=1, axis=0, factor=4, offset=0): block B writes 1 regions, and 1 is none of them
          at stage_programs.py:LINE

          | …
          |         with T.block("B"):    # <-- here
          | …
        """,
    )
