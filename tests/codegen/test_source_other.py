"""Sources for HIP and Metal, whose devices are elsewhere: their text alone is tested."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from gpu_programs import PROGRAMS

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError


def source(name: str, target: str) -> str:
    return PROGRAMS[name]().build(target).imported_modules[0].get_source()


def test_hip(expect) -> None:
    expect(
        source("float16_wide", "rocm"),
        """
        template <typename T, int N> struct __align__(sizeof(T) * N) tw_vec { T v[N]; };
        static __device__ __forceinline__ float tw_h2f(unsigned short x) { return (float)__builtin_bit_cast(_Float16, x); }
        static __device__ __forceinline__ unsigned short tw_max_float16(unsigned short a, unsigned short b) { const float x = tw_h2f(a), y = tw_h2f(b); return x > y || x != x ? a : b; }
        extern "C" __global__ void __launch_bounds__(32) default_function_kernel(unsigned short* __restrict__ C, const unsigned short* __restrict__ A) {
          const int i_outer_outer = blockIdx.x;
          const int i_outer_inner = threadIdx.x;
          const int cse_var_1 = i_outer_outer * 256 + i_outer_inner * 8;
          const tw_vec<unsigned short, 8> A_v = *(const tw_vec<unsigned short, 8>*)(A + cse_var_1);
          *(tw_vec<unsigned short, 8>*)(C + cse_var_1) = tw_vec<unsigned short, 8>{{tw_max_float16(A_v.v[0], (unsigned short)0x0), tw_max_float16(A_v.v[1], (unsigned short)0x0), tw_max_float16(A_v.v[2], (unsigned short)0x0), tw_max_float16(A_v.v[3], (unsigned short)0x0), tw_max_float16(A_v.v[4], (unsigned short)0x0), tw_max_float16(A_v.v[5], (unsigned short)0x0), tw_max_float16(A_v.v[6], (unsigned short)0x0), tw_max_float16(A_v.v[7], (unsigned short)0x0)}};
        }
        """,
    )


def test_metal(expect) -> None:
    expect(
        source("transpose", "metal"),
        """
        #include <metal_stdlib>
        using namespace metal;
        kernel void main_kernel(device const float* A [[buffer(0)]], device float* C [[buffer(1)]], uint3 blockIdx [[threadgroup_position_in_grid]], uint3 threadIdx [[thread_position_in_threadgroup]]) {
          threadgroup float A_shared[272] __attribute__((aligned(16)));
          const int i_0 = blockIdx.y;
          const int j_0 = blockIdx.x;
          const int ax0 = threadIdx.y;
          const int ax1 = threadIdx.x;
          A_shared[ax0 * 17 + ax1] = A[j_0 * 1024 + ax0 * 64 + i_0 * 16 + ax1];
          threadgroup_barrier(mem_flags::mem_threadgroup);
          C[i_0 * 1536 + ax0 * 96 + j_0 * 16 + ax1] = A_shared[ax1 * 17 + ax0];
        }
        """,
    )


def test_numbers_of_a_metal_kernel_are_buffers(expect) -> None:
    expect(
        source("vector_add", "metal"),
        """
        #include <metal_stdlib>
        using namespace metal;
        kernel void default_function_kernel(device float* C [[buffer(0)]], device const float* A [[buffer(1)]], device const float* B [[buffer(2)]], constant int& n [[buffer(3)]], uint3 blockIdx [[threadgroup_position_in_grid]], uint3 threadIdx [[thread_position_in_threadgroup]]) {
          const int i_outer = blockIdx.x;
          const int i_inner = threadIdx.x;
          if (i_outer * 64 + i_inner < n) {
            C[i_outer * 64 + i_inner] = A[i_outer * 64 + i_inner] + B[i_outer * 64 + i_inner];
          }
        }
        """,
    )


@pytest.mark.slow
@pytest.mark.parametrize("target", ["rocm", "metal"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_program_has_a_text(name: str, target: str) -> None:
    if target == "metal" and name == "functions":  # it has no erf
        with pytest.raises(LoweringError, match="metal has no function erf of float32"):
            source(name, target)
    else:
        assert "kernel" in source(name, target)


def test_there_is_no_device_to_run_it_on() -> None:
    mod = PROGRAMS["vector_add"]().build("metal")
    assert tvm.metal(0).exist is False
    with pytest.raises(ValueError, match=r"must be on device metal, got an array on cpu\(0\)"):
        mod(*[tvm.nd.empty((4,))] * 3)


@pytest.mark.parametrize(
    ("target", "kind", "text"),
    [
        ("metal", "int32", "atomic_fetch_add_explicit((device atomic_int*)(A), 1, memory_order_relaxed);"),
        (
            "metal",
            "float32",
            "atomic_fetch_add_explicit((device atomic_float*)(A), 1.0f, memory_order_relaxed);",
        ),
        ("rocm", "float32", "atomicAdd(A, 1.0f);"),
    ],
)
def test_atomic_additions(target, kind, text) -> None:
    A = tir.decl_buffer((1,), kind, name="A")
    ib = tir.ir_builder.create()
    ib.scope_attr(te.thread_axis("threadIdx.x"), "thread_extent", 32)
    ib.emit(tir.atomic_add(tir.address_of(A[0]), tir.const(1, kind)))
    func = tir.PrimFunc([A], ib.get())
    assert text in tvm.build(func, target=target).imported_modules[0].get_source()


def test_metal_adds_no_long_numbers_atomically() -> None:
    A = tir.decl_buffer((1,), "int64", name="A")
    ib = tir.ir_builder.create()
    ib.scope_attr(te.thread_axis("threadIdx.x"), "thread_extent", 32)
    ib.emit(tir.atomic_add(tir.address_of(A[0]), tir.const(1, "int64")))
    with pytest.raises(LoweringError, match="metal has no atomic addition of int64"):
        tvm.build(tir.PrimFunc([A], ib.get()), target="metal")
