"""CUDA source: its text for small kernels, and whether NVRTC takes it for three generations of GPUs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import needs
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from gpu_programs import PROGRAMS, QUICK, asynchronous_copies, axis, flat

import tilewright as tvm
from tilewright import te, tir
from tilewright.compiler.lower import lower_kernels
from tilewright.ir.errors import LoweringError

ARCHITECTURES = ("sm_75", "sm_80", "sm_90a")


needs_nvrtc = pytest.mark.needs("nvrtc")


def source(s: Any, args: Any = None, target: str = "cuda") -> str:
    return tvm.build(s, args, target=target).imported_modules[0].get_source()


def compiled(text: str, arch: str = "sm_80") -> bytes:
    from tilewright.runtime.cuda_driver import compile_cubin

    return compile_cubin(text, {"arch": arch})


# ---------------------------------------------------------------------------- text
def test_vector_add(expect) -> None:
    n = te.var("n")
    A, B = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((n,), lambda i: A[i] + B[i], name="C")
    s = te.create_schedule(C.op)
    flat(s, C)
    expect(
        source(s, [A, B, C]),
        """
        extern "C" __global__ void __launch_bounds__(64) default_function_kernel(float* __restrict__ C, const float* __restrict__ A, const float* __restrict__ B, int n) {
          const int i_outer = blockIdx.x;
          const int i_inner = threadIdx.x;
          if (i_outer * 64 + i_inner < n) {
            C[i_outer * 64 + i_inner] = A[i_outer * 64 + i_inner] + B[i_outer * 64 + i_inner];
          }
        }
        """,
    )


def test_wide_loads_and_stores(expect) -> None:
    """A copy of sixteen bytes; eight of them where the start is not a multiple of sixteen."""
    A = te.placeholder((1026,), name="A")
    B = te.compute((1024,), lambda i: A[i], name="B")
    C = te.compute((1024,), lambda i: A[i + 2] * B[i], name="C")
    s = te.create_schedule(C.op)
    for stage in (B, C):
        outer, lane = s[stage].split(stage.op.axis[0], factor=4)
        s[stage].bind(outer, axis("threadIdx.x"))
        s[stage].vectorize(lane)
    expect(
        source(s, [A, C]),
        """
        extern "C" __global__ void __launch_bounds__(256) default_function_kernel(float* __restrict__ B, const float* __restrict__ A) {
          const int i_outer = threadIdx.x;
          const float4 A_v = *(const float4*)(A + i_outer * 4);
          *(float4*)(B + i_outer * 4) = A_v;
        }

        extern "C" __global__ void __launch_bounds__(256) default_function_kernel_1(float* __restrict__ C, const float* __restrict__ A, const float* __restrict__ B) {
          const int i_outer = threadIdx.x;
          const float2 A_v = *(const float2*)(A + i_outer * 4 + 2);
          const float2 A_v_1 = *(const float2*)(A + i_outer * 4 + 4);
          const float4 B_v = *(const float4*)(B + i_outer * 4);
          *(float4*)(C + i_outer * 4) = make_float4(A_v.x * B_v.x, A_v.y * B_v.y, A_v_1.x * B_v.z, A_v_1.y * B_v.w);
        }
        """,
    )


def test_shared_memory_and_barriers(expect) -> None:
    A = te.placeholder((64,), "int32", name="A")
    B = te.compute((64,), lambda i: A[63 - i] + A[i], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    (i,) = sch.get_loops("B")
    unit = sch.add_unit_loop(i)
    sch.bind(unit, "blockIdx.x")
    copy = sch.cache_read("B", 0, "shared")
    sch.compute_at(copy, unit)
    sch.bind(sch.get_loops(copy)[-1], "threadIdx.x")
    sch.bind(i, "threadIdx.x")
    expect(
        source(sch),
        """
        extern "C" __global__ void __launch_bounds__(64) main_kernel(const int* __restrict__ A, int* __restrict__ B) {
          __shared__ __align__(16) int A_shared[64];
          const int u = blockIdx.x;
          const int ax0 = threadIdx.x;
          A_shared[ax0] = A[ax0];
          __syncthreads();
          B[ax0] = (int)((unsigned int)A_shared[63 - ax0] + (unsigned int)A_shared[ax0]);
        }
        """,
    )


def test_halves_are_computed_in_float(expect) -> None:
    A = te.placeholder((64,), "float16", name="A")
    B = te.compute((64,), lambda i: A[i] * tir.const(1.5, "float16"), name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], axis("threadIdx.x"))
    expect(
        source(s, [A, B]),
        """
        static __device__ __forceinline__ float tw_h2f(unsigned short x) {
          float r;
          asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
          return r;
        }
        static __device__ __forceinline__ unsigned short tw_f2h(float x) {
          unsigned short r;
          asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
          return r;
        }
        extern "C" __global__ void __launch_bounds__(64) default_function_kernel(unsigned short* __restrict__ B, const unsigned short* __restrict__ A) {
          const int i = threadIdx.x;
          B[i] = tw_f2h(tw_h2f(A[i]) * 1.5f);
        }
        """,
    )


def test_large_indices_are_computed_in_64_bits(expect) -> None:
    n, m = te.var("n"), te.var("m")
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] + A[0, j], name="B")
    s = te.create_schedule(B.op)
    s[B].bind(B.op.axis[0], axis("blockIdx.x"))
    s[B].bind(B.op.axis[1], axis("threadIdx.x"))
    expect(
        source(s, [A, B]),
        """
        extern "C" __global__ void default_function_kernel(float* __restrict__ B, const float* __restrict__ A, int n, int m) {
          const int i = blockIdx.x;
          const int j = threadIdx.x;
          B[(long long)i * (long long)m + (long long)j] = A[(long long)i * (long long)m + (long long)j] + A[j];
        }
        """,
    )


def test_a_branch_reads_only_where_it_is_taken(expect) -> None:
    A = te.placeholder((60,), name="A")
    B = te.compute((64,), lambda i: tir.if_then_else(i < 60, A[i], tir.const(float("-inf"))), name="B")
    s = te.create_schedule(B.op)
    outer, lane = s[B].split(B.op.axis[0], factor=4)
    s[B].bind(outer, axis("threadIdx.x"))
    s[B].vectorize(lane)
    expect(
        source(s, [A, B]),
        """
        extern "C" __global__ void __launch_bounds__(16) default_function_kernel(float* __restrict__ B, const float* __restrict__ A) {
          const int i_outer = threadIdx.x;
          float choice_0, choice_1, choice_2, choice_3;
          if (i_outer < 15) {
            const float4 A_v = *(const float4*)(A + i_outer * 4);
            choice_0 = A_v.x;
            choice_1 = A_v.y;
            choice_2 = A_v.z;
            choice_3 = A_v.w;
          } else {
            choice_0 = -__int_as_float(0x7f800000);
            choice_1 = -__int_as_float(0x7f800000);
            choice_2 = -__int_as_float(0x7f800000);
            choice_3 = -__int_as_float(0x7f800000);
          }
          *(float4*)(B + i_outer * 4) = make_float4(choice_0, choice_1, choice_2, choice_3);
        }
        """,
    )


def test_registers_are_unrolled(expect) -> None:
    A = te.placeholder((32, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    B = te.compute((32, 4), lambda i, j: te.sum(A[i, k] * (j + 1).astype("float32"), axis=k), name="B")
    s = te.create_schedule(B.op)
    BL = s.cache_write(B, "local")
    s[B].bind(B.op.axis[0], axis("threadIdx.x"))
    s[BL].compute_at(s[B], B.op.axis[0])
    s[BL].reorder(BL.op.reduce_axis[0], BL.op.axis[1])
    expect(
        source(s, [A, B]),
        """
        extern "C" __global__ void __launch_bounds__(32) default_function_kernel(const float* __restrict__ A, float* __restrict__ B) {
          const int ax0 = threadIdx.x;
          float B_local[4];
        #pragma unroll
          for (int ax1_init = 0; ax1_init < 4; ++ax1_init) {
            B_local[ax1_init] = 0.0f;
          }
          for (int ax2 = 0; ax2 < 8; ++ax2) {
        #pragma unroll
            for (int ax1 = 0; ax1 < 4; ++ax1) {
              B_local[ax1] = B_local[ax1] + A[ax0 * 8 + ax2] * (float)(ax1 + 1);
            }
          }
        #pragma unroll
          for (int ax1_1 = 0; ax1_1 < 4; ++ax1_1) {
            B[ax0 * 4 + ax1_1] = B_local[ax1_1];
          }
        }
        """,
    )


def large_shared(size: int) -> tir.Schedule:
    A = te.placeholder((size,), name="A")
    B = te.compute((size,), lambda i: A[size - 1 - i], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    (i,) = sch.get_loops("B")
    unit = sch.add_unit_loop(i)
    sch.bind(unit, "blockIdx.x")
    copy = sch.cache_read("B", 0, "shared")
    sch.compute_at(copy, unit)
    for loop in (sch.get_loops(copy)[-1], i):
        sch.bind(sch.split(loop, [None, 256])[1], "threadIdx.x")
    return sch


def test_more_shared_memory_than_may_be_declared_is_asked_for_at_the_launch(expect) -> None:
    mod = tvm.build(large_shared(25600), target="cuda -arch=sm_80")
    expect(
        mod.imported_modules[0].get_source(),
        """
        extern "C" __global__ void __launch_bounds__(256) main_kernel(const float* __restrict__ A, float* __restrict__ B) {
          extern __shared__ __align__(1024) unsigned char tw_dynamic_shared[];
          float* A_shared = (float*)tw_dynamic_shared;
          const int u = blockIdx.x;
          const int ax0_1 = threadIdx.x;
          for (int ax0_0 = 0; ax0_0 < 100; ++ax0_0) {
            A_shared[ax0_0 * 256 + ax0_1] = A[ax0_0 * 256 + ax0_1];
          }
          __syncthreads();
          for (int i_0 = 0; i_0 < 100; ++i_0) {
            B[i_0 * 256 + ax0_1] = A_shared[25599 - i_0 * 256 - ax0_1];
          }
        }
        """,
    )
    assert mod.description["programs"]["main"]["body"] == [
        ["launch", "main_kernel", ["A", "B"], [1, 1, 1], [256, 1, 1], 102400]
    ]
    with pytest.raises(LoweringError) as caught:
        tvm.build(large_shared(102400), target="cuda -arch=sm_80")
    assert str(caught.value) == (
        "main_kernel: a block uses 409600 bytes of dynamic shared memory, and target cuda (sm_80) "
        "allows 166912; make the tiles that are cached in it smaller"
    )


def test_a_jetson_allows_less() -> None:
    A = te.placeholder((4096,), name="A")
    B = te.compute((4096,), lambda i: A[i] + 1.0, name="B")
    s = te.create_schedule(B.op)
    flat(s, B, 2048)
    with pytest.raises(
        LoweringError, match=r"threadIdx.x has 2048 threads, and target cuda \(sm_53\) allows 1024"
    ):
        tvm.build(s, [A, B], target="cuda -model=jetson-nano")


# ---------------------------------------------------------------------------- NVRTC
CASES = [(name, arch) for name in PROGRAMS for arch in ARCHITECTURES]


@needs_nvrtc
@pytest.mark.parametrize(
    ("name", "arch"),
    [c if c[0] in QUICK and c[1] == "sm_80" else pytest.param(*c, marks=pytest.mark.slow) for c in CASES],
)
def test_nvrtc_compiles(name: str, arch: str) -> None:
    program = PROGRAMS[name]()
    assert compiled(source(program.schedule, program.args, f"cuda -arch={arch}"), arch)[:4] == b"\x7fELF"


@needs_nvrtc
def test_shuffles_atomics_and_reinterpretation_compile() -> None:
    A, B = tir.decl_buffer((32,), name="A"), tir.decl_buffer((32,), "int32", name="B")
    ib = tir.ir_builder.create()
    tx = te.thread_axis("threadIdx.x")
    ib.scope_attr(tx, "thread_extent", 32)
    a, b = ib.buffer_ptr(A), ib.buffer_ptr(B)
    mask = tir.const(0xFFFFFFFF, "uint32")
    x = tir.call_intrin("float32", "tir.tvm_warp_shuffle_up", mask, a[tx], 1, 32, 32)
    b[tx] = tir.reinterpret("int32", x) + tir.popcount(b[tx]) + tir.clz(b[tx])
    ib.emit(tir.call_intrin("float32", "tir.atomic_add", tir.address_of(A[0]), x))
    ib.emit(tir.call_intrin("int32", "tir.tvm_storage_sync", "warp"))
    text = source(tir.PrimFunc([A, B], ib.get()))
    for word in (
        "__shfl_up_sync(4294967295u, A[",
        "__float_as_int(",
        "__popc(",
        "__clz(",
        "atomicAdd(A, ",
        "__syncwarp();",
    ):
        assert word in text, text
    for arch in ARCHITECTURES:
        compiled(text, arch)


@needs_nvrtc
def test_ptx_is_a_source_too() -> None:
    program = PROGRAMS["vector_add"]()
    inner = program.build("cuda -arch=sm_80").imported_modules[0]
    assert ".target sm_80" in inner.get_source(
        "ptx"
    ) and ".entry default_function_kernel(" in inner.get_source("ptx")


@needs_nvrtc
def test_a_program_that_does_not_compile_is_shown(tmp_path) -> None:
    with pytest.raises(
        tvm.error.TVMError, match=r"(?s)NVRTC cannot compile a program for sm_80:.*   1 nonsense"
    ):
        compiled("nonsense")


@needs_nvrtc
def test_an_architecture_that_nvrtc_does_not_know_is_named() -> None:
    with pytest.raises(
        tvm.TVMError, match=r"NVRTC [\d.]+ does not compile for sm_30, only for sm_\d+, .*; install one"
    ):
        compiled(PROGRAMS["vector_add"]().build("cuda").imported_modules[0].get_source(), "sm_30")


@needs_nvrtc
def test_saved_as_ptx_and_machine_code(tmp_path) -> None:
    inner = PROGRAMS["vector_add"]().build("cuda -arch=sm_80").imported_modules[0]
    for suffix in ("cu", "ptx", "cubin"):
        inner.save(tmp_path / f"x.{suffix}")
    assert (tmp_path / "x.cu").read_text() == inner.get_source()
    assert ".entry" in (tmp_path / "x.ptx").read_text()
    assert (tmp_path / "x.cubin").read_bytes()[:4] == b"\x7fELF"


# ---------------------------------------------------------------------------- functions of the user's
@pytest.fixture
def registered():
    """Registers functions, and takes them back."""
    names = []

    def register(name: str, f: Any) -> None:
        tvm.register_func(name, f, override=True)
        names.append(name)

    yield register
    for name in names:
        tvm.runtime.remove_global_func(name)


def test_the_source_can_be_changed_and_compiled_by_others(registered, tmp_path) -> None:
    seen = []

    def compiled_elsewhere(code: str, target: Any) -> bytes:
        seen.append((code, str(target.kind)))
        return b".version 8.0\n.entry default_function_kernel"

    registered("tvm_callback_cuda_postproc", lambda code, target: f"// looked at\n{code}")
    registered("tvm_callback_cuda_compile", compiled_elsewhere)
    inner = PROGRAMS["vector_add"]().build("cuda -arch=sm_80").imported_modules[0]
    assert inner.get_source().startswith("// looked at\n") and seen == [(inner.get_source(), "cuda")]
    assert inner.get_source("ptx") == ".version 8.0\n.entry default_function_kernel"
    inner.save(tmp_path / "x.ptx")
    loaded = tvm.runtime.load_module(tmp_path / "x.ptx")
    with pytest.raises(tvm.TVMError, match=r"default_function_kernel is PTX here, not machine code"):
        loaded.save(tmp_path / "x.cubin")


def test_machine_code_has_no_ptx(registered) -> None:
    registered("tvm_callback_cuda_compile", lambda code, target: b"\x7fELF")
    inner = PROGRAMS["vector_add"]().build("cuda -arch=sm_80").imported_modules[0]
    with pytest.raises(tvm.TVMError, match="default_function_kernel is machine code here, and has no PTX"):
        inner.get_source("ptx")


@pytest.mark.skipif(tvm.cuda(0).exist, reason="there is a CUDA device")
def test_without_a_device_the_reason_is_told() -> None:
    assert tvm.cuda(0).exist is False
    with pytest.raises(
        ValueError, match=r"device cuda\(0\) is not available in this process: .*; available are: cpu"
    ):
        tvm.nd.empty((1,), "float32", tvm.cuda(0))


# ---------------------------------------------------------------------------- instructions of NVIDIA's
def test_asynchronous_copies(expect) -> None:
    program = asynchronous_copies()
    text = source(program.schedule)
    expect(
        text[text.index("extern") :],
        """
        extern "C" __global__ void __launch_bounds__(64) main_kernel(float* A, float* B) {
          __shared__ __align__(16) float S[256];
          const int tx = threadIdx.x;
          tw_copy_async<16>(S + tx * 4, A + tx * 4);
          tw_copy_commit();
          tw_copy_wait<0>();
          __syncthreads();
          for (int i = 0; i < 4; ++i) {
            B[tx * 4 + i] = S[255 - tx * 4 - i];
          }
        }
        """,
    )
    if needs.found("nvrtc"):
        for arch in ARCHITECTURES:
            compiled(text, arch)
    got = [program.arrays[0].copy(), program.result * 0]
    tir.interpret(lower_kernels(tvm.IRModule({"main": program.schedule}))["main"], *got)  # with the barrier
    assert (got[1] == program.result).all()


def test_refused_copies() -> None:
    A = tir.decl_buffer((32,), name="A")
    ib = tir.ir_builder.create()
    tx = te.thread_axis("threadIdx.x")
    ib.scope_attr(tx, "thread_extent", 32)
    ib.emit(tir.call_intrin("float32", "tir.ptx_cp_async", A.data, tx, A.data, tx, 12))
    func = tir.PrimFunc([A], ib.get())
    with pytest.raises(LoweringError, match="an asynchronous copy moves 4, 8 or 16 bytes at once, not 12"):
        source(func)
    with pytest.raises(
        LoweringError, match=r"opencl: no code for `tir.ptx_cp_async`|opencl has no function ptx_cp_async"
    ):
        source(func, target="opencl")
