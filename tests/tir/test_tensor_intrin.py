"""The table of tensor intrinsics, and those that are in it from the start."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.script import tir as T
from tilewright.tir.tensor_intrin import arm_cpu, x86
from tilewright.tir.tensor_intrin import dot_product_common as common


@T.prim_func
def add_desc(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        for i in range(4):
            with T.block("B"):
                vi = T.axis.spatial(4, i)
                B[vi] = A[vi] + T.float32(1)


@T.prim_func
def add_impl(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        for i in T.vectorized(4):
            B[i] = A[i] + T.float32(1)


@T.prim_func
def other_shape(A: T.Buffer((8,), "float32"), B: T.Buffer((4,), "float32")):
    with T.block("root"):
        T.reads(A[0:4])
        T.writes(B[0:4])
        for i in T.vectorized(4):
            B[i] = A[i] + T.float32(1)


@T.prim_func
def with_scalar(A: T.Buffer((4,), "float32"), n: T.int32):
    with T.block("root"):
        T.reads()
        T.writes(A[0:4])
        A[0] = T.Cast("float32", n)


def test_register_and_get():
    made = tir.TensorIntrin.register("test.add_4", add_desc, add_impl)
    assert tir.TensorIntrin.get("test.add_4") is made
    assert made.desc is add_desc and made.impl is add_impl
    with pytest.raises(ValueError) as caught:
        tir.TensorIntrin.register("test.add_4", add_desc, add_impl)
    assert str(caught.value) == (
        "a tensor intrinsic is registered as 'test.add_4' already; pass override=True to replace it"
    )
    again = tir.TensorIntrin.register("test.add_4", add_desc, add_impl, override=True)
    assert tir.TensorIntrin.get("test.add_4") is again is not made


def test_a_name_that_is_not_there():
    assert tir.TensorIntrin.get("dot_16x4_vni", allow_missing=True) is None
    with pytest.raises(ValueError) as caught:
        tir.TensorIntrin.get("dot_16x4_vni")
    assert str(caught.value) == (
        "no tensor intrinsic is registered as 'dot_16x4_vni'; "
        "did you mean 'dot_16x4_vnni' or 'dot_16x4_avx512'?"
    )


@pytest.mark.parametrize(
    ("desc", "impl", "error"),
    [
        (add_desc, None, "the impl of a tensor intrinsic is a PrimFunc, not NoneType"),
        (
            add_desc,
            other_shape,
            "the desc of a tensor intrinsic takes A (4) float32 in global "
            "where its impl takes A (8) float32 in global",
        ),
        (add_desc, with_scalar, "parameter n of the impl of a tensor intrinsic is not a buffer"),
    ],
)
def test_description_and_implementation_must_go_together(desc, impl, error):
    with pytest.raises((TypeError, ValueError)) as caught:
        tir.TensorIntrin.register("test.bad", desc, impl)
    assert str(caught.value) == error
    assert tir.TensorIntrin.get("test.bad", allow_missing=True) is None


def test_an_intrinsic_declared_again_keeps_its_name_and_another_one_gets_a_number():
    known_as = tir.TensorIntrin.known_as
    assert known_as("test.known", add_desc, add_impl) == "test.known"
    assert known_as("test.known", add_desc, add_impl) == "test.known"
    assert known_as("test.known", add_desc, add_desc) == "test.known_1"
    assert known_as("test.known", add_desc, add_desc) == "test.known_1"


NAMES = {
    x86.VNNI_DOT_16x4_INTRIN: "dot_16x4_vnni",
    x86.AVX512_DOT_16x4_INTRIN: "dot_16x4_avx512",
    arm_cpu.ARM_DOT_4x4_i8_NEON_INTRIN: "dot_4x4_i8i8s32_neon",
    arm_cpu.ARM_DOT_4x4_i8_SDOT_INTRIN: "dot_4x4_i8i8s32_sdot",
    arm_cpu.ARM_DOT_4x4_u8_UDOT_INTRIN: "dot_4x4_u8u8u32_udot",
    arm_cpu.ARM_DOT_4x4_u8_HDOT_INTRIN: "dot_4x4_u8u8i32_hdot",
    common.DP4A_S8S8S32_INTRIN: "dp4a_s8s8s32",
    common.DP4A_S8U8S32_INTRIN: "dp4a_s8u8s32",
    common.DP4A_U8S8S32_INTRIN: "dp4a_u8s8s32",
    common.DP4A_U8U8S32_INTRIN: "dp4a_u8u8s32",
}


@pytest.mark.parametrize(("constant", "name"), NAMES.items())
def test_the_descriptions_of_the_built_in_ones_are_dot_products(constant, name):
    assert constant == name
    desc = tir.TensorIntrin.get(name).desc
    a, b, c = (np.zeros([int(d) for d in x.shape], str(x.dtype)) for x in desc.buffer_params())
    rng = np.random.default_rng(0)
    a[:], b[:], c[:] = (rng.integers(0, 100, x.shape) for x in (a, b, c))
    want = c + (b.astype("int32") @ a.astype("int32")).astype(c.dtype)
    tir.interpret(desc, a, b, c)
    np.testing.assert_array_equal(c, want)


# ---------------------------------------------------------------------------- machine code
def packed_matmul(lanes, kinds, m=6, n=64, k=32):
    """A matrix product with B in tiles of lanes × 4, by the intrinsic's types."""
    a, b, c = kinds

    @T.prim_func
    def matmul(
        A: T.Buffer((m, k), a), B: T.Buffer((n // lanes, k // 4, lanes, 4), b), C: T.Buffer((m, n), c)
    ):
        for i, j_0, j_1, k_0, k_1 in T.grid(m, n // lanes, lanes, k // 4, 4):
            with T.block("C"):
                vi = T.axis.spatial(m, i)
                vj = T.axis.spatial(n, j_0 * lanes + j_1)
                vk = T.axis.reduce(k, k_0 * 4 + k_1)
                with T.init():
                    C[vi, vj] = T.Cast(c, 0)
                C[vi, vj] = C[vi, vj] + T.Cast(c, A[vi, vk]) * T.Cast(
                    c, B[vj // lanes, vk // 4, vj % lanes, vk % 4]
                )

    return matmul


def scheduled(name, lanes, kinds):
    sch = tir.Schedule(packed_matmul(lanes, kinds))
    block = sch.get_block("C")
    i, j_0, j_1, k_0, k_1 = sch.get_loops(block)
    sch.reorder(i, j_0, k_0, j_1, k_1)
    sch.decompose_reduction(block, k_0)
    sch.tensorize(j_1, name)
    return sch.mod


def cpu_has(flag: str) -> bool:
    info = Path("/proc/cpuinfo")
    return platform.machine() == "x86_64" and info.exists() and flag in info.read_text().split()


@pytest.mark.parametrize(
    ("name", "flag", "instruction", "most"),
    [
        ("dot_16x4_vnni", "avx512_vnni", "vpdpbusd", 127),
        # Pairs of products must fit into 16 bits: twice 63 * 127 does.
        ("dot_16x4_avx512", "avx512bw", "vpmaddubsw", 63),
    ],
)
def test_x86_dot_products_run(name, flag, instruction, most):
    if not cpu_has(flag):
        pytest.skip(f"this CPU has no {flag}")
    library = tvm.build(scheduled(name, 16, ("uint8", "int8", "int32")), target="llvm")
    assert instruction in library.get_source("asm")
    rng = np.random.default_rng(1)
    a = rng.integers(0, 2 * most + 1, (6, 32)).astype("uint8")
    b = rng.integers(-most - 1, most + 1, (64, 32)).astype("int8")
    packed = np.ascontiguousarray(b.reshape(4, 16, 8, 4).transpose(0, 2, 1, 3))
    c = tvm.nd.array(np.zeros((6, 64), "int32"))
    library(tvm.nd.array(a), tvm.nd.array(packed), c)
    np.testing.assert_array_equal(c.numpy(), a.astype("int32") @ b.astype("int32").T)


@pytest.mark.parametrize(
    ("name", "kinds", "instructions"),
    [
        ("dot_4x4_i8i8s32_neon", ("int8", "int8", "int32"), ["smull", "saddlp", "addp"]),
        ("dot_4x4_i8i8s32_sdot", ("int8", "int8", "int32"), ["sdot"]),
        ("dot_4x4_u8u8u32_udot", ("uint8", "uint8", "uint32"), ["udot"]),
        ("dot_4x4_u8u8i32_hdot", ("uint8", "uint8", "int32"), ["udot"]),
    ],
)
def test_arm_dot_products_compile_to_their_instructions(name, kinds, instructions):
    target = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon,+dotprod"
    assembly = tvm.build(scheduled(name, 4, kinds), target=target).get_source("asm")
    for instruction in instructions:
        assert f"\t{instruction}" in assembly
