"""Tensor cores in CUDA: the text of kernels, whether NVRTC takes it, what schedules mean, and what is refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from tensor_core_programs import (
    AMPERE,
    AMPERE_PROGRAMS,
    BY_HAND,
    HOPPER,
    HOPPER_PROGRAMS,
    by_hand,
    by_warpgroups,
    product,
    scheduled,
)

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError
from tilewright.tir.tensor_intrin import TensorIntrin
from tilewright.tir.tensor_intrin.cuda import (
    WMMA_FILL_16x16x16_F32_INTRIN,
    WMMA_LOAD_16x16x16_F16_A_INTRIN,
    WMMA_LOAD_16x16x16_F16_B_TRANS_DYN_INTRIN,
    WMMA_STORE_16x16x16_F32_GLOBAL_INTRIN,
    WMMA_SYNC_16x16x16_f16f16f32_INTRIN,
    WMMA_SYNC_16x16x16_s8s8s32_TRANS_INTRIN,
    get_wgmma_intrin,
    get_wmma_intrin_group,
)

needs_nvrtc = pytest.mark.needs("nvrtc")


def source(sch: Any, target: str) -> str:
    return tvm.build(sch.mod, target=target).imported_modules[0].get_source()


def kernel(text: str) -> str:
    return text[text.index('extern "C"') :]


# ---------------------------------------------------------------------------- text
def test_fragments_of_a_warp(expect) -> None:
    """Loads by ldmatrix, products by mma, no barrier that is not needed."""
    expect(
        kernel(source(by_hand(16, 16, 32, 16, 16), "cuda -arch=sm_80")),
        """
        extern "C" __global__ void __launch_bounds__(32) main_kernel(const unsigned short* __restrict__ A, const unsigned short* __restrict__ B, float* __restrict__ C) {
          __shared__ __align__(16) unsigned short A_shared[640];
          __shared__ __align__(16) unsigned short B_shared[768];
          const int i0_0 = blockIdx.y;
          const int i1_0 = blockIdx.x;
          const int i0_1 = threadIdx.z;
          const int i1_1 = threadIdx.y;
          const int ax0_ax1_fused_3 = threadIdx.x;
          float C_wmma_accumulator[8];
          unsigned int A_shared_wmma_matrix_a[4];
          unsigned int B_shared_wmma_matrix_b[4];
        #pragma unroll
          for (int r = 0; r < 8; ++r) (C_wmma_accumulator)[r] = 0.0f;
          const int cse_var_1 = (ax0_ax1_fused_3 >> 1) * 24 + (ax0_ax1_fused_3 & 1) * 8;
          const int cse_var_2 = (ax0_ax1_fused_3 >> 2) * 40 + (ax0_ax1_fused_3 & 3) * 8;
          const tw_vec<unsigned short, 8> A_1_v = *(const tw_vec<unsigned short, 8>*)(A + ax0_ax1_fused_3 * 8);
          *(tw_vec<unsigned short, 8>*)(A_shared + cse_var_2) = A_1_v;
          const tw_vec<unsigned short, 8> A_1_v_1 = *(const tw_vec<unsigned short, 8>*)(A + ax0_ax1_fused_3 * 8 + 256);
          *(tw_vec<unsigned short, 8>*)(A_shared + cse_var_2 + 320) = A_1_v_1;
          const tw_vec<unsigned short, 8> B_1_v = *(const tw_vec<unsigned short, 8>*)(B + ax0_ax1_fused_3 * 8);
          *(tw_vec<unsigned short, 8>*)(B_shared + cse_var_1) = B_1_v;
          const tw_vec<unsigned short, 8> B_1_v_1 = *(const tw_vec<unsigned short, 8>*)(B + ax0_ax1_fused_3 * 8 + 256);
          *(tw_vec<unsigned short, 8>*)(B_shared + cse_var_1 + 384) = B_1_v_1;
          __syncthreads();
          for (int k_1 = 0; k_1 < 2; ++k_1) {
            tw_load_b16<true, false>(A_shared_wmma_matrix_a, A_shared + k_1 * 16, 40);
            tw_load_b16<false, false>(B_shared_wmma_matrix_b, B_shared + k_1 * 384, 24);
            tw_mma_f16_f32(C_wmma_accumulator, A_shared_wmma_matrix_a, B_shared_wmma_matrix_b);
          }
          tw_store_sums(C, C_wmma_accumulator, 16);
        }
        """,
    )


def test_a_pipeline_has_one_barrier_in_each_turn(expect) -> None:
    text = kernel(source(by_hand(32, 32, 192, 32, 32, 32, stages=3), "cuda -arch=sm_80"))
    start = text.index("  for (int k_0")
    expect(
        text[start : text.index("\n  }\n", start) + 5],
        """
        for (int k_0 = 0; k_0 < 4; ++k_0) {
            const int cse_var_17 = (k_0 + 2) % 3 * 1280 + cse_var_5 + cse_var_4;
            const int cse_var_18 = cse_var_17 + 960;
            const int cse_var_19 = cse_var_17 + 640;
            const int cse_var_20 = cse_var_17 + 320;
            tw_copy_wait<1>();
            __syncthreads();
            const int cse_var_16 = cse_var_3 + k_0 * 32 + cse_var_4;
            tw_copy_async<16>(A_shared_dyn + cse_var_17, A + cse_var_16 + 64);
            tw_copy_async<16>(A_shared_dyn + cse_var_20, A + cse_var_16 + 1600);
            tw_copy_async<16>(A_shared_dyn + cse_var_19, A + cse_var_16 + 3136);
            tw_copy_async<16>(A_shared_dyn + cse_var_18, A + cse_var_16 + 4672);
            const int cse_var_6 = k_0 * 1024 + ax0_ax1_fused_3 * 8;
            tw_copy_async<16>(B_shared_dyn + cse_var_17, B + cse_var_6 + 2048);
            tw_copy_async<16>(B_shared_dyn + cse_var_20, B + cse_var_6 + 2304);
            tw_copy_async<16>(B_shared_dyn + cse_var_19, B + cse_var_6 + 2560);
            tw_copy_async<16>(B_shared_dyn + cse_var_18, B + cse_var_6 + 2816);
            tw_copy_commit();
            for (int k_1 = 0; k_1 < 2; ++k_1) {
              const int cse_var_2 = k_0 % 3 * 1280;
        #pragma unroll
              for (int ax0_0 = 0; ax0_0 < 2; ++ax0_0) {
                tw_load_b16<true, false>(A_shared_dyn_wmma_matrix_a + ax0_0 * 4, A_shared_dyn + (cse_var_2 + ax0_0 * 640 + k_1 * 16), 40);
              }
        #pragma unroll
              for (int ax1_0 = 0; ax1_0 < 2; ++ax1_0) {
                tw_load_b16<false, false>(B_shared_dyn_wmma_matrix_b + ax1_0 * 4, B_shared_dyn + (cse_var_2 + k_1 * 640 + ax1_0 * 16), 40);
              }
        #pragma unroll
              for (int i0_2 = 0; i0_2 < 2; ++i0_2) {
        #pragma unroll
                for (int i1_2 = 0; i1_2 < 2; ++i1_2) {
                  tw_mma_f16_f32(C_wmma_accumulator + (i0_2 * 16 + i1_2 * 8), A_shared_dyn_wmma_matrix_a + i0_2 * 4, B_shared_dyn_wmma_matrix_b + i1_2 * 4);
                }
              }
            }
          }
        """,
    )


def test_one_warpgroup_fetches_and_others_multiply(expect) -> None:
    expect(
        kernel(source(by_warpgroups(64, 64, 256, 64, 64, 3), HOPPER)),
        """
        extern "C" __global__ void __launch_bounds__(256) main_kernel(const __grid_constant__ tw_tensor_map A_map, const __grid_constant__ tw_tensor_map B_map, unsigned short* __restrict__ D) {
          extern __shared__ __align__(1024) unsigned char tw_dynamic_shared[];
          unsigned short* A_shared_dyn = (unsigned short*)tw_dynamic_shared;
          unsigned short* B_shared_dyn = (unsigned short*)(tw_dynamic_shared + 24576);
          unsigned long long* barriers = (unsigned long long*)(tw_dynamic_shared + 49152);
          const int i0_0_i1_0_fused = blockIdx.x;
          const int i0_1 = threadIdx.y;
          const int ax0_0_ax0_2_ax1_1_fused = threadIdx.x;
          float C[32];
          if (ax0_0_ax0_2_ax1_1_fused == 0 && i0_1 == 0) {
            tw_barrier_init(barriers, 1);
            tw_barrier_init(barriers + 1, 1);
            tw_barrier_init(barriers + 2, 1);
            tw_barrier_init(barriers + 3, 1);
            tw_barrier_init(barriers + 4, 1);
            tw_barrier_init(barriers + 5, 1);
          }
          __syncthreads();
          if (i0_1 == 1) {
            if (ax0_0_ax0_2_ax1_1_fused == 0) {
              for (int k_0 = 0; k_0 < 4; ++k_0) {
                const int cse_var_1 = k_0 % 3;
                const int cse_var_2 = cse_var_1 * 4096;
                tw_barrier_wait(barriers + (cse_var_1 + 3), 1 - k_0 / 3);
                tw_barrier_expect(barriers + cse_var_1, 16384);
                tw_bulk_copy_2(A_shared_dyn + cse_var_2, &A_map, barriers + cse_var_1, k_0 * 64, 0);
                tw_bulk_copy_2(B_shared_dyn + cse_var_2, &B_map, barriers + cse_var_1, 0, k_0 * 64);
              }
            }
          } else {
        #pragma unroll
            for (int r = 0; r < 32; ++r) (C)[r] = 0.0f;
            for (int k_0_1 = 0; k_0_1 < 3; ++k_0_1) {
              tw_barrier_wait(barriers + k_0_1, 0);
              tw_wgmma_64_f16_01(C, A_shared_dyn + k_0_1 * 4096, B_shared_dyn + k_0_1 * 4096);
              tw_wgmma_wait<1>();
              if (k_0_1 > 0 && ax0_0_ax0_2_ax1_1_fused == 0) {
                tw_barrier_arrive(barriers + (k_0_1 + 2));
              }
            }
            tw_barrier_wait(barriers, 1);
            tw_wgmma_64_f16_01(C, A_shared_dyn, B_shared_dyn);
            tw_wgmma_wait<0>();
            if (ax0_0_ax0_2_ax1_1_fused == 0) {
              tw_barrier_arrive(barriers + 5);
              tw_barrier_arrive(barriers + 3);
            }
        #pragma unroll
            for (int ax1_0 = 0; ax1_0 < 8; ++ax1_0) {
        #pragma unroll
              for (int ax0_1 = 0; ax0_1 < 2; ++ax0_1) {
                *(ushort2*)(D + (ax0_0_ax0_2_ax1_1_fused >> 5) * 1024 + ax0_1 * 512 + ((ax0_0_ax0_2_ax1_1_fused >> 2) & 7) * 64 + ax1_0 * 8 + (ax0_0_ax0_2_ax1_1_fused & 3) * 2) = make_ushort2(tw_f2h(C[ax1_0 * 4 + ax0_1 * 2]), tw_f2h(C[ax1_0 * 4 + ax0_1 * 2 + 1]));
              }
            }
          }
        }
        """,
    )


def test_blocks_take_tiles_in_turn() -> None:
    text = kernel(source(by_warpgroups(256, 256, 256, 128, 64, 3, blocks=3), HOPPER))
    assert text.count("for (int round") == 2  # for who fetches, and for who multiplies
    assert "tw_barriers" not in text and text.count("setmaxnreg") == 2


# ---------------------------------------------------------------------------- NVRTC
def compiled(make: Any, arch: str) -> None:
    from tilewright.runtime.cuda_driver import compile_cubin

    text = make().build(f"cuda -arch={arch}").imported_modules[0].get_source()
    assert len(compile_cubin(text, {"arch": arch})) > 1000


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
@pytest.mark.parametrize("name", ["wmma", "wmma, bytes", "wmma, sums in float16"])
def test_nvrtc_takes_fragments(name: str, arch: str) -> None:
    compiled(BY_HAND[name], arch)


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["registers", "wmma, bfloat16", "mma by rules, ragged, bias", "mma by rules, bytes"]
)
def test_nvrtc_takes_pipelines(name: str) -> None:
    compiled(AMPERE_PROGRAMS[name], "sm_80")


@needs_nvrtc
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["wgmma, both turned, bfloat16", "wgmma, persistent", "wgmma by rules, parts"]
)
def test_nvrtc_takes_warpgroups(name: str) -> None:
    compiled(HOPPER_PROGRAMS[name], "sm_90a")


# ---------------------------------------------------------------------------- meaning
@pytest.mark.parametrize(
    "facts", [{}, {"trans_a": True, "kind": "bfloat16"}, {"kind": "int8", "sums": "int32"}]
)
def test_fragments_mean_the_same(facts: dict[str, Any]) -> None:
    report = by_hand(32, 16, 32, 16, 16, **facts).verify()
    assert "tensor cores" in report.kernels


def test_warpgroups_mean_the_same() -> None:
    assert by_warpgroups(64, 64, 128, 64, 64, 2, trans_b=True).verify()


@pytest.mark.parametrize(
    ("target", "sizes", "facts"),
    [
        (HOPPER, (64, 64, 128), {}),
        (HOPPER, (40, 72, 104), {"bias": True, "out": "float16"}),
        (AMPERE, (40, 72, 104), {"bias": True, "out": "float16", "trans_b": True}),
        (AMPERE, (64, 64, 32), {"batch": (2,), "trans_a": True}),
        (AMPERE, (40, 64, 70), {"kind": "int8", "sums": "int32", "trans_b": True}),
    ],
)
def test_schedules_by_rules_mean_the_same(target: str, sizes: Any, facts: dict[str, Any]) -> None:
    sch = scheduled(product(*sizes, **facts), target, "wgmma" if target == HOPPER else "mma")
    assert [r["sketch"] for r in sch.explanation.records] == ["tensor cores"]
    assert sch.verify()


# ---------------------------------------------------------------------------- rules
def chosen(target: str, *sizes: int, **facts: Any) -> dict[str, Any]:
    records = tvm.auto_schedule(product(*sizes, **facts), target).explanation.records
    return next((r for r in records if r["sketch"] == "tensor cores"), {})


@pytest.mark.slow
def test_large_products_take_large_tiles_and_small_ones_parts_of_the_sum() -> None:
    large = chosen(HOPPER, 4096, 4096, 4096, out="float16")
    assert large["tile"] == "128 x 256 x 64" and large["instructions"] == "wgmma_64x256x64_f16f16f32"
    assert "split-K" not in large
    assert chosen(HOPPER, 128, 768, 3072, out="float16")["split-K"] > 1
    assert chosen(AMPERE, 1024, 1024, 1024)["instructions"] == "wmma_sync_16x16x16_f16f16f32"


@pytest.mark.slow
def test_products_of_warps() -> None:
    """Large tiles on their way some steps ahead; before sm_80 threads wait for what they fetch. Bytes along k: others are
    turned, where that pays."""
    large = chosen(AMPERE, 4096, 4096, 4096, out="float16")
    assert int(large["tile"].split(" x ")[1]) >= 128 and large["stages"] == 4
    assert chosen("cuda -model=t4", 1024, 1024, 1024)["stages"] == 2
    bytes_along = {"kind": "int8", "sums": "int32"}
    assert chosen(AMPERE, 512, 512, 512, trans_b=True, **bytes_along)["instructions"] == (
        "wmma_sync_16x16x32_s8s8s32_trans"
    )
    assert chosen(AMPERE, 64, 64, 64, **bytes_along) == {}
    assert chosen(AMPERE, 1024, 1024, 1024, **bytes_along)["transposed"] == ["B"]


def test_rows_that_bulk_copies_cannot_take_go_to_warps() -> None:
    assert chosen(HOPPER, 64, 63, 64)["instructions"] == "wmma_sync_16x16x16_f16f16f32"


@pytest.mark.parametrize(
    ("target", "facts"),
    [
        ("cuda -arch=sm_75", {"kind": "bfloat16"}),
        (HOPPER, {"sums": "float16"}),
        (HOPPER, {"kind": "float32"}),
        ("opencl", {}),
    ],
)
def test_other_products_are_left_to_plain_tiles(target: str, facts: dict[str, Any]) -> None:
    assert chosen(target, 64, 64, 64, **facts) == {}


# ---------------------------------------------------------------------------- names and refusals
def test_classic_names() -> None:
    assert WMMA_FILL_16x16x16_F32_INTRIN == "wmma_fill_16x16x16_f32"
    assert WMMA_LOAD_16x16x16_F16_A_INTRIN == "wmma_load_16x16x16_f16_a_shared"
    assert WMMA_LOAD_16x16x16_F16_B_TRANS_DYN_INTRIN == "wmma_load_16x16x16_f16_b_trans_shared_dyn"
    assert WMMA_STORE_16x16x16_F32_GLOBAL_INTRIN == "wmma_store_16x16x16_f32_global"
    assert WMMA_SYNC_16x16x16_f16f16f32_INTRIN == "wmma_sync_16x16x16_f16f16f32"
    assert WMMA_SYNC_16x16x16_s8s8s32_TRANS_INTRIN == "wmma_sync_16x16x16_s8s8s32_trans"
    group = get_wmma_intrin_group("shared", "shared", "float16", "float32", True)
    assert group == {
        "init": "wmma_fill_16x16x16_f32",
        "load_a": "wmma_load_16x16x16_f16_a_shared",
        "load_b": "wmma_load_16x16x16_f16_b_trans_shared",
        "compute": "wmma_sync_16x16x16_f16f16f32_trans",
        "store": "wmma_store_16x16x16_f32_shared",
    }
    assert all(TensorIntrin.get(name) is not None for name in group.values())


def test_what_there_is_no_intrinsic_for() -> None:
    with pytest.raises(ValueError, match="out_dtype 'int32' is none of float16, float32"):
        get_wmma_intrin_group("shared", "shared", "float16", "int32", False)
    with pytest.raises(ValueError, match=r"load_scope 'global' is none of shared, shared\.dyn"):
        get_wmma_intrin_group("global", "shared", "float16", "float32", False)
    with pytest.raises(ValueError, match="no product of float16 with 12 columns"):
        get_wgmma_intrin(12)


def test_a_name_cannot_be_taken_twice() -> None:
    held = TensorIntrin.get(WMMA_FILL_16x16x16_F32_INTRIN)
    assert held is not None
    with pytest.raises(ValueError, match="registered as 'wmma_fill_16x16x16_f16' already"):
        TensorIntrin.register("wmma_fill_16x16x16_f16", held.desc, held.impl)


def test_sums_are_read_by_the_threads_that_hold_them() -> None:
    sch = by_hand_without_store()
    with pytest.raises(
        LoweringError, match=r"is in a register of thread .* and not always of the one that uses it"
    ):
        tvm.lower(sch.mod)


def by_hand_without_store() -> tir.Schedule:
    """Each thread reads sums of another one."""
    args = product(16, 16, 16)
    sch = tir.Schedule(te.create_prim_func(args))
    c = sch.get_block("C")
    out = sch.cache_write(c, 0, "wmma.accumulator")
    i, j, k = sch.get_loops(c)
    unit = sch.add_unit_loop(i)
    sch.bind(unit, "blockIdx.x")
    sch.reverse_compute_at(out, unit)
    sch.bind(sch.split(sch.fuse(*sch.get_loops(out)[-2:]), [None, 32])[1], "threadIdx.x")
    return sch


def lowered(mod: tvm.IRModule) -> tvm.IRModule:
    with tvm.target.Target("cuda -arch=sm_90a"):
        return tvm.lower(mod)


def test_operands_are_for_instructions_alone() -> None:
    args = product(16, 16, 16)
    sch = tir.Schedule(te.create_prim_func(args))
    c = sch.get_block("C")
    sch.cache_read(c, 0, "wmma.matrix_a")
    with pytest.raises(LoweringError, match="can be used by instructions of tensor cores alone"):
        lowered(sch.mod)


def test_a_bulk_copy_needs_somebody_who_waits() -> None:
    sch = by_warpgroups(64, 64, 128, 64, 64)
    (loop,) = [x for x in sch.get_loops(sch.get_block("C_o")) if sch.get(x).annotations]
    sch.unannotate(loop, "tilewright.specialize_warps")
    with pytest.raises(LoweringError, match=r"is in no loop that is marked 'tilewright\.specialize_warps'"):
        lowered(sch.mod)


def test_a_marked_loop_needs_a_bulk_copy() -> None:
    sch = by_hand(16, 16, 32, 16, 16)
    sch.annotate(sch.get_loops(sch.get_block("C_o"))[4], "tilewright.specialize_warps", 2)
    with pytest.raises(LoweringError, match=r"has no bulk copy in it"):
        lowered(sch.mod)


def test_a_bulk_copy_copies_as_it_is() -> None:
    A = te.placeholder((64, 64), "float32", name="A")
    B = te.compute((64, 64), lambda i, j: A[i, j] * 2.0, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    sch.annotate(sch.blockize(sch.get_loops("B")[0]), "tilewright.bulk_copy", 1)
    with pytest.raises(
        LoweringError,
        match="block B_o cannot be a bulk copy, which requires that it copies elements as they are",
    ):
        lowered(sch.mod)


def test_only_the_first_stage_can_be_asynchronous() -> None:
    sch = by_hand(16, 16, 64, 16, 16, stages=2)
    (loop,) = [x for x in sch.get_loops(sch.get_block("C_o")) if sch.get(x).annotations]
    sch.unannotate(loop, "software_pipeline_async_stages")
    sch.annotate(loop, "software_pipeline_async_stages", [1])
    with pytest.raises(LoweringError, match=r"asynchronous stages \[1\]: only stage 0 can be one"):
        tvm.lower(sch.mod)


def test_other_languages_have_no_tensor_cores() -> None:
    with pytest.raises(LoweringError, match=r"opencl: no code for `tir.tvm_"):
        tvm.build(by_hand(16, 16, 32, 16, 16).mod, target="opencl")


@pytest.mark.slow
def test_float32_takes_large_tiles() -> None:
    sch = tvm.auto_schedule(product(1024, 1024, 64, kind="float32"), AMPERE)
    (record,) = sch.explanation.records
    assert record["sketch"] == "large tile"
    text = source(sch, AMPERE)
    assert (
        text.count("__syncthreads();") == 1 and "tw_copy_async<16>" in text
    )  # the last turns are in the loop
    small = tvm.auto_schedule(product(32, 8, 64, kind="float32"), AMPERE).explanation.records
    assert [r["sketch"] for r in small] == ["shared tile"]


@pytest.mark.slow
def test_rows_of_any_length() -> None:
    """Rows that start at multiples of four bytes are loaded in pieces, whatever the tiles' numbers divide into."""
    sch = tvm.auto_schedule(product(72, 80, 70, batch=(2, 3), kind="bfloat16"), AMPERE)
    assert "tw_load_permuted" in source(sch, AMPERE)
