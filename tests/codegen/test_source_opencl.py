"""OpenCL source: its text for small kernels. That it runs is tested in tests/compiler/test_opencl.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from gpu_programs import PROGRAMS, axis

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError


def source(s: Any, args: Any = None, target: str = "opencl") -> str:
    return tvm.build(s, args, target=target).imported_modules[0].get_source()


def one_thread_each(B: te.Tensor) -> te.Schedule:
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], axis("threadIdx.x"))
    return s


def test_vectors_of_opencl(expect) -> None:
    expect(
        PROGRAMS["wide_accesses"]().build("opencl").imported_modules[0].get_source(),
        """
        __kernel void default_function_kernel(__global float* restrict C, __global const float* restrict A, __global const float* restrict B) {
          const int i_outer_outer = get_group_id(0);
          const int i_outer_inner = get_local_id(0);
          const int cse_var_1 = i_outer_outer * 256 + i_outer_inner * 4;
          const float4 A_v = vload4(0, A + cse_var_1);
          const float4 B_v = vload4(0, B + cse_var_1);
          vstore4((float4)(A_v.s0 * B_v.s0 + 1.0f, A_v.s1 * B_v.s1 + 1.0f, A_v.s2 * B_v.s2 + 1.0f, A_v.s3 * B_v.s3 + 1.0f), 0, C + cse_var_1);
        }
        """,
    )


def test_local_memory_and_barriers(expect) -> None:
    expect(
        PROGRAMS["transpose"]().build("opencl").imported_modules[0].get_source(),
        """
        __kernel void main_kernel(__global const float* restrict A, __global float* restrict C) {
          __local float A_shared[272] __attribute__((aligned(16)));
          const int i_0 = get_group_id(1);
          const int j_0 = get_group_id(0);
          const int ax0 = get_local_id(1);
          const int ax1 = get_local_id(0);
          A_shared[ax0 * 17 + ax1] = A[j_0 * 1024 + ax0 * 64 + i_0 * 16 + ax1];
          barrier(CLK_LOCAL_MEM_FENCE);
          C[i_0 * 1536 + ax0 * 96 + j_0 * 16 + ax1] = A_shared[ax1 * 17 + ax0];
        }
        """,
    )


def test_a_reduction_by_threads(expect) -> None:
    expect(
        PROGRAMS["row_sum"]().build("opencl").imported_modules[0].get_source(),
        """
        __kernel void default_function_kernel(__global const float* restrict A, __global float* restrict B, int n, int m) {
          __local float B_shared[128] __attribute__((aligned(16)));
          const int i_outer = get_group_id(0);
          const int i_inner = get_local_id(1);
          const int k_inner = get_local_id(0);
          float B_rf[1];
          float B_part[1];
          const bool cse_var_1 = i_outer * 8 + i_inner < n;
          if (cse_var_1) {
            B_rf[0] = 0.0f;
          }
          for (int ax2 = 0; ax2 < ((m + 15) >> 4); ++ax2) {
            if (cse_var_1) {
              if (ax2 * 16 + k_inner < m) {
                B_rf[0] = B_rf[0] + A[(long)i_outer * (long)m * 8 + (long)i_inner * (long)m + (long)ax2 * 16 + (long)k_inner];
              }
            }
          }
          B_part[0] = 0.0f;
          if (cse_var_1) {
            B_part[0] = B_part[0] + B_rf[0];
          }
          B_shared[i_inner * 16 + k_inner] = B_part[0];
          barrier(CLK_LOCAL_MEM_FENCE);
          if (k_inner < 8) {
            B_shared[i_inner * 16 + k_inner] = B_shared[i_inner * 16 + k_inner] + B_shared[i_inner * 16 + k_inner + 8];
          }
          barrier(CLK_LOCAL_MEM_FENCE);
          if (k_inner < 4) {
            B_shared[i_inner * 16 + k_inner] = B_shared[i_inner * 16 + k_inner] + B_shared[i_inner * 16 + k_inner + 4];
          }
          barrier(CLK_LOCAL_MEM_FENCE);
          if (k_inner < 2) {
            B_shared[i_inner * 16 + k_inner] = B_shared[i_inner * 16 + k_inner] + B_shared[i_inner * 16 + k_inner + 2];
          }
          barrier(CLK_LOCAL_MEM_FENCE);
          if (k_inner < 1) {
            B_shared[i_inner * 16] = B_shared[i_inner * 16] + B_shared[i_inner * 16 + 1];
          }
          if (cse_var_1 && k_inner == 0) {
            B[i_outer * 8 + i_inner] = B_shared[i_inner * 16];
          }
        }
        """,
    )


def test_constants(expect) -> None:
    """Numbers that C has no plain literal for."""
    A = te.placeholder((8,), "float64", name="A")

    def body(i: Any) -> Any:
        low = tir.const(-(2**63), "int64") + A[i].astype("int64")
        return (
            low.astype("float64")
            + tir.const(float("inf"), "float64")
            + tir.const(1e300, "float64")
            + tir.const(0.1, "float32").astype("float64")
        )

    B = te.compute((8,), body, name="B")
    expect(
        source(one_thread_each(B), [A, B]),
        """
        #pragma OPENCL EXTENSION cl_khr_fp64 : enable
        __kernel void default_function_kernel(__global double* restrict B, __global const double* restrict A) {
          const int i = get_local_id(0);
          B[i] = (double)(long)((ulong)(long)A[i] + (ulong)(-9223372036854775807l - 1)) + (double)INFINITY + 1e+300 + 0.10000000149011612;
        }
        """,
    )


def test_bool_is_a_byte_in_memory(expect) -> None:
    A, B = te.placeholder((8,), "bool", name="A"), te.placeholder((8,), "uint16", name="B")
    C = te.compute((8,), lambda i: tir.any(tir.Not(A[i]), B[i] * B[i] < tir.const(9, "uint16")), name="C")
    s = te.create_schedule(C.op)
    s[C].bind(C.op.axis[0], axis("threadIdx.x"))
    expect(
        source(s, [A, B, C]),
        """
        __kernel void default_function_kernel(__global uchar* restrict C, __global const uchar* restrict A, __global const ushort* restrict B) {
          const int i = get_local_id(0);
          C[i] = !(A[i] != 0) || (ushort)((uint)B[i] * (uint)B[i]) < 9;
        }
        """,
    )


def test_a_binding_in_a_branch_stays_there(expect) -> None:
    """A division that must not happen where the branch is not taken."""
    A, B = te.placeholder((8,), "int32", name="A"), te.placeholder((8,), "int32", name="B")
    C = te.compute(
        (8,), lambda i: tir.if_then_else(B[i] != 0, te.floordiv(A[i], B[i]), tir.const(-1, "int32")), name="C"
    )
    s = te.create_schedule(C.op)
    s[C].bind(C.op.axis[0], axis("threadIdx.x"))
    expect(
        source(s, [A, B, C]),
        """
        __kernel void default_function_kernel(__global int* restrict C, __global const int* restrict B, __global const int* restrict A) {
          const int i = get_local_id(0);
          int choice;
          if (B[i] != 0) {
            const int a = A[i];
            const int b = B[i];
            const int safe = b == 0 || b == -1 ? 1 : b;
            const int rest = a % safe;
            choice = (int)((uint)(b == 0 || b == -1 ? (int)((uint)a * (uint)b) : a / safe) + (uint)(rest != 0 && (rest ^ b) < 0 ? -1 : 0));
          } else {
            choice = -1;
          }
          C[i] = choice;
        }
        """,
    )


def test_a_warp_cannot_be_waited_for() -> None:
    A = tir.decl_buffer((32,), name="A")
    ib = tir.ir_builder.create()
    tx = te.thread_axis("threadIdx.x")
    ib.scope_attr(tx, "thread_extent", 32)
    ib.buffer_ptr(A)[tx] = tir.const(0.0)
    ib.emit(tir.call_intrin("int32", "tir.tvm_storage_sync", "warp"))
    with pytest.raises(LoweringError, match="opencl has no barrier for a single warp"):
        source(tir.PrimFunc([A], ib.get()))


@pytest.mark.parametrize("target", ["opencl", "metal"])
def test_which_threads_of_a_warp_are_here_is_asked_in_vain(target) -> None:
    A = tir.decl_buffer((32,), "int32", name="A")
    ib = tir.ir_builder.create()
    tx = te.thread_axis("threadIdx.x")
    ib.scope_attr(tx, "thread_extent", 32)
    ib.buffer_ptr(A)[tx] = tir.tvm_warp_activemask()
    with pytest.raises(LoweringError, match=f"{target} has no mask of the active threads of a warp"):
        source(tir.PrimFunc([A], ib.get()), target=target)


def test_memory_of_a_thread_has_a_known_size() -> None:
    n = te.var("n")
    A = te.placeholder((8, n), name="A")
    B = te.compute((8, n), lambda i, j: A[i, j] * 2.0, name="B")
    C = te.compute((8, n), lambda i, j: B[i, n - 1 - j], name="C")
    s = te.create_schedule(C.op)
    s[C].bind(C.op.axis[0], axis("threadIdx.x"))
    s[B].set_scope("local")
    s[B].compute_at(s[C], C.op.axis[0])
    with pytest.raises(LoweringError, match="B is allocated inside a kernel with a size that is not known"):
        source(s, [A, C])
