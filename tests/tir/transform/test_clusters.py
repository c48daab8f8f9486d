"""Reductions across the blocks of a cluster, which read each other's shared memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.errors import LoweringError

CUDA = "cuda -arch=sm_90a"


def summed(rows: int, columns: int, blocks: int, threads: int, high: int = 1, dtype: str = "float32") -> Any:
    """Row sums: `blocks` blocks of `threads` threads for a row, `high` rows for a cluster."""
    A = te.placeholder((rows, columns), dtype, name="A")
    k = te.reduce_axis((0, columns), "k")
    B = te.compute((rows,), lambda i: te.sum(A[i, k], axis=k), name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, r = sch.get_loops("B")
    part, _, tx = sch.split(r, [blocks, None, threads])
    sch.bind(part, "clusterCtaIdx.x")
    sch.bind(tx, "threadIdx.x")
    if high > 1:
        i, y = sch.split(i, [None, high])
        sch.bind(y, "threadIdx.y")
    sch.bind(i, "blockIdx.x")
    return sch


def lowered(sch: Any) -> Any:
    with tvm.target.Target(CUDA):
        return tvm.lower(sch.mod)


def kernel(sch: Any) -> Any:
    barriers = tir.transform.ThreadSync("shared.cluster")(lowered(sch))
    return tir.transform.ThreadSync("shared")(barriers)["main"]


@pytest.mark.parametrize(
    ("blocks", "threads", "high"),
    [(2, 32, 1), (8, 64, 1), (4, 16, 2), (3, 32, 1), (2, 24, 1), (8, 4, 1), (1, 32, 1)],
)
def test_blocks_agree(blocks: int, threads: int, high: int) -> None:
    func = kernel(summed(2 * high, 500, blocks, threads, high))
    a = np.random.default_rng(0).integers(-9, 9, (2 * high, 500)).astype("float32")
    out = np.full(2 * high, 77, "float32")
    tir.interpret(func, a, out)
    np.testing.assert_array_equal(out, a.sum(1))
    assert str(func).count('tvm_storage_sync("shared.cluster")') == (blocks > 1)


def test_all_threads_of_all_blocks_have_the_result() -> None:
    A = te.placeholder((2, 256), name="A")
    k = te.reduce_axis((0, 256), "k")
    S = te.compute((2,), lambda i: te.sum(A[i, k], axis=k), name="S")
    B = te.compute((2, 256), lambda i, j: A[i, j] - S[i], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, _ = sch.get_loops("B")
    sch.compute_at("S", i)
    sch.set_scope("S", 0, "local")
    for block in ("S", "B"):
        part, tx = sch.split(sch.get_loops(block)[1], [4, 64])
        sch.bind(part, "clusterCtaIdx.x")
        sch.bind(tx, "threadIdx.x")
    sch.bind(i, "blockIdx.x")
    a = np.random.default_rng(0).integers(-9, 9, (2, 256)).astype("float32")
    out = np.full((2, 256), 77, "float32")
    tir.interpret(kernel(sch), a, out)
    np.testing.assert_array_equal(out, a - a.sum(1, keepdims=True))


def test_in_a_loop_blocks_wait_before_they_write_again() -> None:
    """Four rows one after the other: nobody overwrites what others still read."""
    A = te.placeholder((4, 128), name="A")
    k = te.reduce_axis((0, 128), "k")
    B = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, r = sch.get_loops("B")
    part, _, tx = sch.split(r, [2, None, 32])
    sch.bind(part, "clusterCtaIdx.x")
    sch.bind(tx, "threadIdx.x")
    outer, _ = sch.split(i, [1, 4])
    sch.bind(outer, "blockIdx.x")
    func = kernel(sch)
    assert str(func).count('tvm_storage_sync("shared.cluster")') == 2
    a = np.random.default_rng(0).integers(-9, 9, (4, 128)).astype("float32")
    out = np.full(4, 77, "float32")
    tir.interpret(func, a, out)
    np.testing.assert_array_equal(out, a.sum(1))


@pytest.mark.parametrize("barrier", ["", 'T.tvm_storage_sync("shared")'])
def test_without_a_barrier_of_the_cluster_they_race(barrier: str) -> None:
    """That the threads of each block wait for each other does not order blocks."""
    text = kernel(summed(2, 256, 4, 32)).script()
    assert text.count('T.tvm_storage_sync("shared.cluster")') == 1
    func = tvm.script.from_source(
        text.replace('T.tvm_storage_sync("shared.cluster")', barrier or "T.evaluate(0)")
    )
    func = func["main"] if isinstance(func, tvm.IRModule) else func
    a, out = np.zeros((2, 256), "float32"), np.zeros(2, "float32")
    with pytest.raises(Exception, match=r"race: two threads access B_each\[\d\] \(shared.cluster memory\)"):
        tir.interpret(func, a, out)


def source(sch: Any) -> str:
    return str(tvm.build(sch.mod, target=CUDA).imported_modules[0].get_source())


def test_source() -> None:
    text = source(summed(6, 1024, 4, 64))
    assert "__cluster_dims__(4, 1, 1)" in text
    assert "blockIdx.x / 4" in text and "blockIdx.x % 4" in text
    body = text[text.index("main_kernel") :]
    assert body.count("tw_cluster_wait()") == 1
    assert body.count("tw_cluster_leave()") == 1 and body.rstrip().endswith("tw_cluster_end();\n}")
    assert re.search(r"tw_cluster_load\(B_each \+ \(\w+ & 3\), \(\w+ & 3\)\)", body)
    many = source(summed(6, 1024, 4, 32, 3))
    assert re.search(r"tw_cluster_load\(B_each \+ .*, .* / 3\)", many)  # three rows for each block


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "int64"])
def test_nvrtc_compiles_it(dtype: str) -> None:
    from tilewright.runtime.cuda_driver import compile_cubin

    assert len(compile_cubin(source(summed(6, 1024, 4, 64, dtype=dtype)), {"arch": "sm_90a"})) > 1000


def test_refuse_where_there_are_none() -> None:
    with pytest.raises(LoweringError) as refused:
        tvm.build(summed(6, 1024, 4, 64).mod, target="cuda -arch=sm_80")
    assert str(refused.value).startswith(
        "main_kernel: clusterCtaIdx.x has 4 blocks, and target cuda (sm_80) allows 1; split the loop"
    )
    with pytest.raises(LoweringError, match=r"allows 8; split"):
        tvm.build(summed(6, 1024, 16, 64).mod, target=CUDA)
    with pytest.raises(LoweringError, match=r"has 4 blocks, and target opencl allows 1"):
        tvm.build(summed(6, 1024, 4, 64).mod, target="opencl")


def test_refuse_a_number_of_blocks_that_is_not_known() -> None:
    n = te.var("n")
    A = te.placeholder((4, n), name="A")
    B = te.compute((4, n), lambda i, j: A[i, j] + 1.0, name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, j = sch.get_loops("B")
    sch.bind(i, "threadIdx.x")
    sch.bind(j, "clusterCtaIdx.x")
    with pytest.raises(LoweringError, match=r"a cluster has n blocks .*must be a constant; split off a loop"):
        tvm.build(sch.mod, target=CUDA)


def test_blocks_of_a_cluster_need_not_exchange_anything() -> None:
    """They are blocks: of what each computes in shared memory it has its own."""
    A = te.placeholder((8, 64), name="A")
    C = te.compute((8, 64), lambda i, j: A[i, j] * 2.0, name="C")
    B = te.compute((8, 64), lambda i, j: C[i, 63 - j], name="B")
    sch = tir.Schedule(te.create_prim_func([A, B]))
    i, j = sch.get_loops("B")
    block, rank = sch.split(i, [2, 4])
    sch.compute_at("C", rank)
    sch.set_scope("C", 0, "shared")
    sch.bind(sch.get_loops("C")[-1], "threadIdx.x")
    sch.bind(j, "threadIdx.x")
    sch.bind(block, "blockIdx.x")
    sch.bind(rank, "clusterCtaIdx.x")
    a = np.random.default_rng(0).standard_normal((8, 64)).astype("float32")
    out = np.full((8, 64), 77, "float32")
    tir.interpret(kernel(sch), a, out)
    np.testing.assert_array_equal(out, 2 * a[:, ::-1])
    assert "__shared__ __align__(16) float C[64]" in source(sch)
