"""Every type of elements in source code: programs run on an OpenCL device, and NVRTC takes them for three generations."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from gpu_programs import axis
from type_programs import TYPE_PROGRAMS

import tilewright as tvm
from tilewright import te, tir

QUICK = ("float8_e5m2 of float32", "dp4a, uint8 by int8")
# Others are in tests/driver/test_opencl.py, or differ from these in nothing but a name.
ALIKE = ("uint8", "int16", "int32", "uint32", "float16", "float32", "int8, one by one", "float16, one by one")
NAMES = [
    n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in TYPE_PROGRAMS if n not in ALIKE
]


@pytest.mark.needs("opencl")
@pytest.mark.parametrize("name", NAMES)
def test_types_on_a_device(name: str) -> None:
    TYPE_PROGRAMS[name]().run("opencl", tvm.opencl(0))


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("float8_e4m3fn, one by one", "sm_75"),
        pytest.param("float8_e5m2, one by one", "sm_90a", marks=pytest.mark.slow),
        pytest.param("dp4a, uint8 by int8", "sm_75", marks=pytest.mark.slow),
        pytest.param("dp4a, int8 by uint8", "sm_80", marks=pytest.mark.slow),
    ],
)
def test_nvrtc_takes_them(name: str, arch: str) -> None:
    from tilewright.runtime.cuda_driver import compile_cubin

    source = TYPE_PROGRAMS[name]().build(f"cuda -arch={arch}").imported_modules[0].get_source()
    assert compile_cubin(source, {"arch": arch})[:4] == b"\x7fELF"


def kernel(kind: str, target: str) -> str:
    """The source of `B = A + A`."""
    A = te.placeholder((8,), kind, name="A")
    B = te.compute((8,), lambda i: A[i] + A[i], name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], axis("threadIdx.x"))
    return tvm.build(s, [A, B], target=target).imported_modules[0].get_source()


def test_float8_in_hip(expect: Any) -> None:
    expect(
        kernel("float8_e4m3fn", "rocm"),
        """
        static __device__ __forceinline__ float tw_e4m3fn_to_float(unsigned char x) {
          unsigned int a = (unsigned int)x & 0x7fu;
          float r = a == 0x7fu ? __builtin_nanf("") : a < 8u ? (float)a * 0.001953125f : __uint_as_float((a << 20) + 0x3c000000u);
          return x & 0x80 ? -r : r;
        }
        static __device__ __forceinline__ unsigned char tw_float_to_e4m3fn(float x) {
          unsigned int u = __float_as_uint(x), a = u & 0x7fffffffu, r;
          if (a > 0x7f800000u) r = 0x7fu;
          else if (a > 0x43e80000u) r = 0x7fu;
          else if (a < 0x3c800000u) r = __float_as_uint(__uint_as_float(a) + 16384.0f) - __float_as_uint(16384.0f);
          else r = ((a + 0x7ffffu + (a >> 20 & 1u)) >> 20) - 960u;
          return (unsigned char)(r | (u >> 24 & 0x80u));
        }
        extern "C" __global__ void __launch_bounds__(8) default_function_kernel(unsigned char* __restrict__ B, const unsigned char* __restrict__ A) {
          const int i = threadIdx.x;
          B[i] = tw_float_to_e4m3fn(tw_e4m3fn_to_float(A[i]) + tw_e4m3fn_to_float(A[i]));
        }
        """,
    )


def test_float8_in_metal(expect: Any) -> None:
    expect(
        kernel("float8_e5m2", "metal"),
        """
        #include <metal_stdlib>
        using namespace metal;
        static inline float tw_e5m2_to_float(uchar x) {
          uint a = (uint)x & 0x7fu;
          float r = a >= 0x7cu ? (a > 0x7cu ? NAN : INFINITY) : a < 4u ? (float)a * 1.52587890625e-05f : as_type<float>((a << 21) + 0x38000000u);
          return x & 0x80 ? -r : r;
        }
        static inline uchar tw_float_to_e5m2(float x) {
          uint u = as_type<uint>(x), a = u & 0x7fffffffu, r;
          if (a > 0x7f800000u) r = 0x7eu;
          else if (a > 0x476fffffu) r = 0x7cu;
          else if (a < 0x38800000u) r = as_type<uint>(as_type<float>(a) + 128.0f) - as_type<uint>(128.0f);
          else r = ((a + 0xfffffu + (a >> 21 & 1u)) >> 21) - 448u;
          return (uchar)(r | (u >> 24 & 0x80u));
        }
        kernel void default_function_kernel(device uchar* B [[buffer(0)]], device const uchar* A [[buffer(1)]], uint3 blockIdx [[threadgroup_position_in_grid]], uint3 threadIdx [[thread_position_in_threadgroup]]) {
          const int i = threadIdx.x;
          B[i] = tw_float_to_e5m2(tw_e5m2_to_float(A[i]) + tw_e5m2_to_float(A[i]));
        }
        """,
    )


def test_bytes_of_either_sign_in_opencl() -> None:
    """Without an instruction for it, the bytes are taken apart."""
    A, B = tir.decl_buffer((4,), "uint8", name="A"), tir.decl_buffer((4,), "int8", name="B")
    C = tir.decl_buffer((1,), "int32", name="C")
    ib = tir.ir_builder.create()
    ib.scope_attr(te.thread_axis("threadIdx.x"), "thread_extent", 1)
    product = tir.dp4a(A.vload([0], "uint8x4"), B.vload([0], "int8x4"))
    ib.emit(tir.BufferStore(C, product, [0]))
    text = tvm.build(tir.PrimFunc([A, B, C], ib.get()), target="opencl").imported_modules[0].get_source()
    assert "c += (uchar)(a >> i) * (char)(b >> i);" in text
