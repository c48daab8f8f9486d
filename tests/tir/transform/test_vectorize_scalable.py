"""Vectorized loops of `T.vscale() * n` iterations: scalable vectors on targets that have them, a refusal elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.errors import LoweringError
from tilewright.script import tir as T

SVE = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu -mattr=+sve")


def vectorized(func, target=SVE, **options):
    with tvm.target.Target(target), tvm.transform.PassContext(config=options):
        return tir.transform.VectorizeLoop()(tvm.IRModule({"main": func}))["main"]


@T.prim_func(private=True)
def fill(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "int32")):
    for i in range(2):
        for j in T.vectorized(T.vscale() * 4):
            A[i * (T.vscale() * 4) + j] = T.Cast("float32", B[j] * 2) + T.float32(1)


@T.prim_func(private=True)
def tail(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
    for j in T.vectorized(T.vscale() * 4):
        if j < n:
            A[j] = B[j] + T.float32(1)


def test_scalable_vectors(expect):
    expect(
        vectorized(fill),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((128,), "float32"), B: T.Buffer((128,), "int32")):
            for i in range(2):
                A[T.Ramp(i * (T.vscale() * 4), 1, T.vscale() * 4)] = T.Cast("float32xvscalex4", B[T.Ramp(0, 1, T.vscale() * 4)] * T.Broadcast(2, T.vscale() * 4)) + T.Broadcast(T.float32(1), T.vscale() * 4)
        """,
    )


def test_a_tail_is_a_mask_of_active_lanes(expect):
    expect(
        vectorized(tail),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
            A.vstore([T.Ramp(0, 1, T.vscale() * 4)], B.vload([T.Ramp(0, 1, T.vscale() * 4)], predicate=T.get_active_lane_mask("boolxvscalex4", 0, n)) + T.Broadcast(T.float32(1), T.vscale() * 4), predicate=T.get_active_lane_mask("boolxvscalex4", 0, n))
        """,
    )


def test_a_scalar_load_under_a_condition_keeps_the_condition(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
        for j in T.vectorized(T.vscale() * 4):
            if j < n:
                A[j] = B[n]

    expect(
        vectorized(before),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
            if 0 < n:
                A.vstore([T.Ramp(0, 1, T.vscale() * 4)], T.Broadcast(B[n], T.vscale() * 4), predicate=T.Ramp(0, 1, T.vscale() * 4) < T.Broadcast(n, T.vscale() * 4))
        """,
    )


def test_statements_that_are_vectors_already_stay_in_a_loop(expect):
    @T.prim_func(private=True)
    def before(A: T.Buffer((256,), "float32")):
        for j in T.vectorized(T.vscale() * 4):
            A[j * 4 : j * 4 + 4] = T.Broadcast(T.float32(1), 4)

    expect(
        vectorized(before),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((256,), "float32")):
            for j in range(T.vscale() * 4):
                A[j * 4:j * 4 + 4] = T.Broadcast(T.float32(1), 4)
        """,
    )


def test_the_option_without_predicates_makes_a_loop(expect):
    expect(
        vectorized(tail, **{"tir.enable_buffer_level_predication": False}),
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32"), n: T.int32):
            for j in range(T.vscale() * 4):
                if j < n:
                    A[j] = B[j] + T.float32(1)
        """,
    )


def test_the_target_of_the_function_or_the_region_counts():
    mod = tvm.IRModule({"main": fill.with_attr("target", SVE)})
    assert "T.Broadcast(2, T.vscale() * 4)" in tir.transform.VectorizeLoop()(mod).script()

    @T.prim_func(private=True)
    def region(A: T.Buffer((128,), "float32")):
        with T.attr(SVE, "target", 0):
            for j in T.vectorized(T.vscale() * 4):
                A[j] = T.float32(1)

    made = tir.transform.VectorizeLoop()(tvm.IRModule({"main": region})).script()
    assert "T.Broadcast(T.float32(1), T.vscale() * 4)" in made


def test_other_targets_are_refused():
    with pytest.raises(LoweringError) as caught:
        vectorized(fill, "llvm -mtriple=x86_64-linux-gnu")
    assert str(caught.value) == (
        "vectorised loop `j` has the extent `T.vscale() * 4`, which makes scalable vectors, and the target "
        "`llvm -keys=cpu -mtriple=x86_64-linux-gnu` has none: name one with SVE, such as `llvm "
        "-mtriple=aarch64-linux-gnu -mattr=+sve`, or split by a constant factor"
    )
    with pytest.raises(LoweringError, match="and no target is known"):
        tir.transform.VectorizeLoop()(tvm.IRModule({"main": fill}))
    with pytest.raises(LoweringError, match=r"T.vscale\(\) \* 4 \+ 1`, which is not constant"):

        @T.prim_func(private=True)
        def odd(A: T.Buffer((128,), "float32")):
            for j in T.vectorized(T.vscale() * 4 + 1):
                A[j] = T.float32(1)

        vectorized(odd)


@pytest.mark.parametrize("target", [None, SVE])
def test_fixed_vectors_under_masks_of_active_lanes(agree, target):
    @T.prim_func(private=True)
    def before(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
        for i in range(4):
            for j in T.vectorized(4):
                if i * 4 + j < 14:
                    A[i * 4 + j] = B[i * 4 + j] + T.float32(1)

    config = {} if target else {"tir.enable_buffer_level_predication": True}
    made = vectorized(before, target or "llvm", **config)
    assert made.script().count('T.get_active_lane_mask("boolx4", i * 4, 14)') == 2
    b = np.arange(16, dtype="float32")
    agree(before, made, np.zeros(16, "float32"), b)
    got = np.zeros(16, "float32")
    tvm.build(made.with_attr("global_symbol", "main"), target="llvm")(got, b)
    np.testing.assert_array_equal(got, np.where(b < 14, b + 1, 0))


def test_elements_that_are_vectors(expect, agree):
    @T.prim_func(private=True)
    def before(A: T.Buffer((8,), "float32x4"), B: T.Buffer((8,), "float32x4")):
        for j in T.vectorized(4):
            A[j + 1] = B[j] + T.Broadcast(T.float32(1), 4)

    made = vectorized(before, "llvm")
    expect(
        made,
        """
        @T.prim_func(private=True)
        def main(A: T.Buffer((8,), "float32x4"), B: T.Buffer((8,), "float32x4")):
            A[1:5] = B[0:4] + T.Broadcast(T.float32(1), 16)
        """,
    )
    b = np.arange(32, dtype="float32").reshape(8, 4)
    agree(before, made, np.zeros((8, 4), "float32"), b)
    got = np.zeros((8, 4), "float32")
    tvm.build(made.with_attr("global_symbol", "main"), target="llvm")(got, b)
    np.testing.assert_array_equal(got[1:5], b[:4] + 1)
