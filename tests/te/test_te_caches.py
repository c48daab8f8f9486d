"""Stages of a te.Schedule in other memory: caches, scopes, strides, doubled buffers."""

from __future__ import annotations

import numpy as np
import pytest
from te_stage_programs import blocks, blur, matmul, refusal, same, three

import tilewright as tvm
from tilewright import te
from tilewright.ir.errors import ScheduleError
from tilewright.ir.functor import pre_order
from tilewright.ir.stmt import Allocate, For


# ---------------------------------------------------------------------------- caches
def test_an_input_in_other_memory(expect):
    A, B, C = matmul(4, 4, 4)
    s = te.create_schedule(C.op)
    AA = s.cache_read(A, "shared", [C])
    assert AA.op.name == "A_shared" and tuple(map(int, AA.shape)) == (4, 4)
    assert [x.op.name for x in s.stages] == ["A", "A_shared", "B", "C"]
    s[AA].compute_at(s[C], C.op.axis[0])
    expect(
        s.to_prim_func([A, B, C]),
        """
        @T.prim_func
        def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            A_shared = T.alloc_buffer((4, 4), scope="shared")
            for i in range(4):
                for ax0, ax1 in T.grid(1, 4):
                    with T.block("A_shared"):
                        v0 = T.axis.spatial(4, i + ax0)
                        v1 = T.axis.spatial(4, ax1)
                        T.reads(A[v0, v1])
                        T.writes(A_shared[v0, v1])
                        A_shared[v0, v1] = A[v0, v1]
                for j, k in T.grid(4, 4):
                    with T.block("C"):
                        v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
                        T.reads(A_shared[v_i, v_k], B[v_k, v_j])
                        T.writes(C[v_i, v_j])
                        with T.init():
                            C[v_i, v_j] = T.float32(0)
                        C[v_i, v_j] = C[v_i, v_j] + A_shared[v_i, v_k] * B[v_k, v_j]
        """,
    )
    same(s, [A, B, C])


def test_an_output_in_other_memory(expect):
    A, B, C = matmul(4, 4, 4)
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "local")
    assert CC.op.name == "C_local"
    assert [iv.var.name for iv in s[CC].op.reduce_axis] == ["k"] and not s[C].op.reduce_axis
    s[CC].compute_at(s[C], C.op.axis[1])
    expect(
        s.to_prim_func([A, B, C]),
        """
        @T.prim_func
        def main(A: T.Buffer((4, 4), "float32"), B: T.Buffer((4, 4), "float32"), C: T.Buffer((4, 4), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            # with T.block("root"):
            C_local = T.alloc_buffer((4, 4), scope="local")
            for ax0, ax1 in T.grid(4, 4):
                for ax0_1, ax1_1, ax2 in T.grid(1, 1, 4):
                    with T.block("C"):
                        v_i = T.axis.spatial(4, ax0 + ax0_1)
                        v_j = T.axis.spatial(4, ax1 + ax1_1)
                        v_k = T.axis.reduce(4, ax2)
                        T.reads(A[v_i, v_k], B[v_k, v_j])
                        T.writes(C_local[v_i, v_j])
                        with T.init():
                            C_local[v_i, v_j] = T.float32(0)
                        C_local[v_i, v_j] = C_local[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]
                with T.block("C_local"):
                    v0, v1 = T.axis.remap("SS", [ax0, ax1])
                    T.reads(C_local[v0, v1])
                    T.writes(C[v0, v1])
                    C[v0, v1] = C_local[v0, v1]
        """,
    )
    same(s, [A, B, C])


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(10, 7, 9), (8, 8, 8), (5, 13, 3)])
def test_a_blocked_matmul(sizes):
    A, B, C = matmul(*sizes)
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "local")
    AA = s.cache_read(A, "shared", [CC])
    BB = s.cache_read(B, "shared", [CC])
    AL = s.cache_read(AA, "local", [CC])
    assert AL.op.name == "A_shared_local"
    xo, yo, xi, yi = s[C].tile(*C.op.axis, 4, 4)
    s[C].vectorize(yi)
    s[CC].compute_at(s[C], yo)
    x, y = s[CC].op.axis
    (k,) = s[CC].op.reduce_axis
    ko, ki = s[CC].split(k, factor=4)
    s[CC].reorder(ko, ki, x, y)
    s[CC].vectorize(y)
    s[AL].compute_at(s[CC], ki)
    s[AA].compute_at(s[CC], ko)
    s[BB].compute_at(s[CC], ko)
    same(s, [A, B, C])


def test_the_axes_of_a_reduction_go_with_it_to_other_memory():
    """Programs split and reorder the axis that they made, on the stage that has it now."""
    A, B, C = matmul(10, 7, 9)
    (k,) = C.op.reduce_axis
    s = te.create_schedule(C.op)
    CC = s.cache_write(C, "local")
    assert s[CC].op.reduce_axis[0] is k and not s[C].op.reduce_axis
    s[CC].compute_at(s[C], C.op.axis[0])
    ko, ki = s[CC].split(k, factor=4)
    s[CC].reorder(ko, *s[CC].op.axis, ki)
    s[CC].unroll(ki)
    same(s, [A, B, C])


def test_caches_of_what_is_computed():
    A, B, C, D = three()
    s = te.create_schedule(D.op)
    BB = s.cache_read(B, "local", [C, D])
    s[BB].compute_at(s[D], D.op.axis[0])
    s[C].compute_at(s[D], D.op.axis[1])
    made = same(s, [A, D])
    assert blocks(made) == ["B", "B_local", "C", "D"]
    s = te.create_schedule(D.op)
    BW = s.cache_write(B, "local")
    s[BW].compute_at(s[B], B.op.axis[0])
    BB = s.cache_read(B, "shared", [C])
    s[BB].compute_at(s[C], C.op.axis[0])
    same(s, [A, D])


def test_a_cache_of_an_inlined_stage():
    A, B, C, D = three()
    s = te.create_schedule(D.op)
    BB = s.cache_read(B, "local", [C, D])
    s[B].compute_inline()
    s[BB].compute_at(s[D], D.op.axis[0])
    s[C].compute_inline()
    made = same(s, [A, D])
    assert blocks(made) == ["B_local", "D"]


def test_a_cache_of_what_an_inlined_stage_reads():
    A, B, C, D = three()
    s = te.create_schedule(D.op)
    AA = s.cache_read(A, "local", [B])
    s[B].compute_inline()
    s[AA].compute_at(s[D], D.op.axis[0])
    s[C].compute_inline()
    made = same(s, [A, D])
    assert blocks(made) == ["A_local", "D"]


def test_inputs_of_the_same_name_are_told_apart():
    A = te.placeholder((8,), name="A")
    B = te.placeholder((8,), name="A")
    C = te.compute((8,), lambda i: A[i] - B[7 - i], name="C")
    for tensor in (A, B):
        s = te.create_schedule(C.op)
        copy = s.cache_read(tensor, "local", [C])
        made = same(s, [A, B, C])
        assert copy.op.name == "A_local"
        first = next(n for n in pre_order(made.body) if isinstance(n, For))
        assert ("A_1[" in str(first)) == (tensor is B) or made.buffer_params()[1].name != "A_1"


def test_refuse_caches(expect, told):
    A, B, C = matmul()
    E = te.placeholder((4,), name="E")
    s = te.create_schedule(C.op)
    expect(
        refusal(lambda: s.cache_read(E, "shared", [C])),
        """
        the schedule has no stage for E
          at test_te_caches.py:LINE
        """,
    )
    expect(
        refusal(lambda: s.cache_read(A, "shared", [])),
        """
        cache_read(A): name the readers of the copy in a list of tensors
          at test_te_caches.py:LINE
        """,
    )
    expect(
        refusal(lambda: s.cache_write(A, "local")),
        """
        cache_write(A): it takes a computed tensor
          at test_te_caches.py:LINE
        """,
    )
    s[C].split(C.op.reduce_axis[0], factor=2)
    expect(
        refusal(lambda: s.cache_write(C, "local")),
        """
        cache_write(C): its stage already has a schedule
          at test_te_caches.py:LINE

          hint: call cache_write first, then schedule both stages
        """,
    )
    expect(
        refusal(lambda: te.create_schedule(C.op).cache_write([C, C], "local")),
        """
        cache_write(C): it has 1 outputs, which are computed together, and 2 are named
          at test_te_caches.py:LINE

          hint: name all of them, in a list
        """,
    )
    s = te.create_schedule(C.op)
    s.cache_read(A, "attic", [C])
    expect(
        refusal(lambda: tvm.lower(s, [A, B, C])),
        """
        cache_read(C, read_buffer_index=0, storage_scope='attic', consumer_blocks=[C]): there is no memory named 'attic'
          at test_te_caches.py:LINE

          | def main(A: T.Buffer((10, 9), "float32"), B: T.Buffer((9, 7), "float32"), C: T.Buffer((10, 7), "float32")):
          |     T.func_attr({"tir.noalias": T.bool(True)})
          |     # with T.block("root"):
          |     for i, j, k in T.grid(10, 7, 9):
          |         with T.block("C"):    # <-- here
          |             v_i, v_j, v_k = T.axis.remap("SSR", [i, j, k])
          |             T.reads(A[v_i, v_k], B[v_k, v_j])
          |             T.writes(C[v_i, v_j])
          |             with T.init():
          |                 C[v_i, v_j] = T.float32(0)
          |             C[v_i, v_j] = C[v_i, v_j] + A[v_i, v_k] * B[v_k, v_j]

          hint: known are global, shared, shared.dyn, local, warp
        """,
    )


# ---------------------------------------------------------------------------- memory
def allocations(s, args):
    return [
        (n.buffer_var.type_annotation.storage_scope, [int(e) for e in n.extents])
        for n in pre_order(tvm.lower(s, args)["main"].body)
        if isinstance(n, Allocate)
    ]


def test_the_memory_of_a_stage():
    A, B, C = blur()
    s = te.create_schedule(C.op)
    s[B].compute_at(s[C], C.op.axis[0])
    s[B].set_scope("local")
    assert s[B].scope == "local"
    assert [(scope, int(np.prod(size))) for scope, size in allocations(s, [A, C])] == [("local", 3 * 12)]
    same(s, [A, C])


def test_refuse_the_memory_of_an_output(expect):
    A, B, C = blur()
    s = te.create_schedule(C.op)
    s[C].set_scope("shared")
    expect(
        refusal(lambda: tvm.lower(s, [A, C])),
        """
        set_scope(C, buffer_index=0, storage_scope='shared'): C is a parameter of the function: who calls it decides where it lies
          at test_te_caches.py:LINE

          | def main(A: T.Buffer((12, 14), "float32"), C: T.Buffer((10, 12), "float32")):
          |     T.func_attr({"tir.noalias": T.bool(True)})
          |     # with T.block("root"):
          |     B = T.alloc_buffer((12, 12))
          |     for i, j in T.grid(12, 12):
          |         with T.block("B"):
          |             v_i, v_j = T.axis.remap("SS", [i, j])
          |             T.reads(A[v_i, v_j:v_j + 3])
          |             T.writes(B[v_i, v_j])
          |             B[v_i, v_j] = A[v_i, v_j] + A[v_i, v_j + 1] + A[v_i, v_j + 2]
          |     for i, j in T.grid(10, 12):
          |         with T.block("C"):    # <-- here
          |             v_i, v_j = T.axis.remap("SS", [i, j])
          |             T.reads(B[v_i:v_i + 3, v_j])
          |             T.writes(C[v_i, v_j])
          |             C[v_i, v_j] = B[v_i, v_j] + B[v_i + 1, v_j] + B[v_i + 2, v_j]

          hint: cache_read or cache_write it first, and take the copy
        """,
    )


def test_the_stride_of_a_stage(expect):
    A, B, C = blur()
    s = te.create_schedule(C.op)
    s[B].storage_align(B.op.axis[0], 8, 1)
    assert "buffer_dim_align" in s.to_prim_func([A, C]).script()
    same(s, [A, C])
    expect(
        refusal(lambda: s[B].storage_align(C.op.axis[0], 8, 1)),
        """
        s[B].storage_align: `i` is not an axis of B
        """,
    )


def test_a_doubled_buffer():
    A, B, C = matmul(8, 8, 8)
    s = te.create_schedule(C.op)
    AA = s.cache_read(A, "local", [C])
    (k,) = C.op.reduce_axis
    ko, ki = s[C].split(k, factor=2)
    s[C].reorder(ko, *C.op.axis, ki)
    s[AA].compute_at(s[C], ko)
    s[AA].double_buffer()
    assert '"double_buffer_scope": 0' in s.to_prim_func([A, B, C]).script()
    same(s, [A, B, C])


def test_what_a_schedule_became(expect, told):
    A, B, C = matmul()
    s = te.create_schedule(C.op)
    with pytest.raises(ScheduleError) as caught:
        _ = s.trace
    expect(
        told(caught),
        """
        the schedule has no trace before it is lowered: call tvm.lower(s, args) first
        """,
    )
    AA = s.cache_read(A, "local", [C])
    s[AA].compute_at(s[C], C.op.axis[0])
    tvm.lower(s, [A, B, C])
    assert [i.kind for i in s.trace.insts if i.kind.startswith(("cache", "compute"))] == [
        "cache_read",
        "compute_at",
    ]
