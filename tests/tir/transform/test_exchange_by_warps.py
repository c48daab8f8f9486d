"""Reductions across threads that run in warps: shuffles first, shared memory between warps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.tir.transform.storage_rewrite import storage_rewrite

CUDA = "cuda -arch=sm_90"


def summed(rows: int, columns: int, threads: int, high: int = 1, dtype: str = "float32") -> Any:
    """Row sums: `threads` threads for a row, `high` rows for a block."""
    A = te.placeholder((rows, columns), dtype, name="A")
    k = te.reduce_axis((0, columns), "k")
    B = te.compute((rows,), lambda i: te.sum(A[i, k], axis=k), name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, r = sch.get_loops("B")
    _, tx = sch.split(r, [None, threads])
    sch.bind(tx, "threadIdx.x")
    if high > 1:
        i, y = sch.split(i, [None, high])
        sch.bind(y, "threadIdx.y")
    sch.bind(i, "blockIdx.x")
    return sch


def kernel(sch: Any) -> Any:
    with tvm.target.Target(CUDA):
        return tir.transform.ThreadSync("shared")(tvm.lower(sch.mod))["main"]


@pytest.mark.parametrize(
    ("threads", "high", "shuffles", "barriers"),
    [
        (8, 1, 3, 0),
        (32, 1, 5, 0),
        (16, 4, 4, 0),
        (64, 1, 6, 1),
        (64, 2, 6, 1),
        (96, 1, 5, 1),  # three warps: their sums are added up one by one
        (8, 3, 3, 0),
        (48, 1, 0, 5),  # neither a power of two nor whole warps
        (8, 5, 0, 3),  # the last warp would not be whole
    ],
)
def test_threads_agree(threads: int, high: int, shuffles: int, barriers: int) -> None:
    func = kernel(summed(2 * high, 200, threads, high))
    assert str(func).count("tvm_warp_shuffle") == shuffles
    assert str(func).count("tvm_storage_sync") == barriers
    a = np.random.default_rng(0).integers(-9, 9, (2 * high, 200)).astype("float32")
    out = np.full(2 * high, 77, "float32")
    tir.interpret(func, a, out)
    np.testing.assert_array_equal(out, a.sum(1))


@pytest.mark.parametrize("dtype", ["float64", "int8", "int64", "uint16"])
def test_types(dtype: str) -> None:
    func = kernel(summed(2, 64, 32, dtype=dtype))
    a = np.random.default_rng(0).integers(0, 3, (2, 64)).astype(dtype)
    out = np.full(2, 77, dtype)
    tir.interpret(func, a, out)
    np.testing.assert_array_equal(out, a.sum(1, dtype=dtype))


def test_all_threads_have_the_result() -> None:
    """Local memory of each thread: nothing has to be told to the others."""
    A = te.placeholder((2, 64), name="A")
    k = te.reduce_axis((0, 64), "k")
    S = te.compute((2,), lambda i: te.sum(A[i, k], axis=k), name="S")
    B = te.compute((2, 64), lambda i, j: A[i, j] / S[i], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, j = sch.get_loops("B")
    sch.compute_at("S", i)
    sch.set_scope("S", 0, "local")
    for loop in (j, sch.get_loops("S")[-1]):
        sch.bind(sch.split(loop, [None, 32])[1], "threadIdx.x")
    sch.bind(i, "blockIdx.x")
    func = kernel(sch)
    assert "tvm_storage_sync" not in str(func) and "shared" not in str(func)
    a = np.random.default_rng(0).random((2, 64), "float32") + 1
    out = np.full((2, 64), 77, "float32")
    tir.interpret(func, a, out)
    np.testing.assert_allclose(out, a / a.sum(1, keepdims=True), 1e-5)


def test_other_targets_use_shared_memory() -> None:
    with tvm.target.Target("opencl"):
        func = tvm.lower(summed(2, 200, 32).mod)["main"]
    assert "tvm_warp_shuffle" not in str(func)


def test_small_shared_memory_is_not_used_twice() -> None:
    """Threads that write it again would have to wait for those that read it."""
    A, B = (te.placeholder((2, 64), name=n) for n in "AB")
    k, r = te.reduce_axis((0, 64), "k"), te.reduce_axis((0, 64), "r")
    S = te.compute((2,), lambda i: te.sum(A[i, k], axis=k), name="S")
    T = te.compute((2,), lambda i: te.sum(B[i, r] * S[i], axis=r), name="T")
    sch = tir.Schedule(te.create_prim_func([A, B, T]))
    i, last = sch.get_loops("T")
    sch.compute_at("S", i)
    sch.set_scope("S", 0, "local")
    for loop in (last, sch.get_loops("S")[-1]):
        sch.bind(sch.split(loop, [None, 64])[1], "threadIdx.x")
    sch.bind(i, "blockIdx.x")
    func = kernel(sch)
    assert str(func).count("tvm_storage_sync") == 2
    assert storage_rewrite(func) is func
    a, b = np.random.default_rng(0).random((2, 2, 64), "float32")
    out = np.full(2, 77, "float32")
    tir.interpret(func, a, b, out)
    np.testing.assert_allclose(out, (b * a.sum(1, keepdims=True)).sum(1), 1e-4)
