"""Rows, columns and transposes on GPUs: what the schedules compute, thread by thread, and how their kernels look."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir, topi
from tilewright.tune.rules.gpu.kernel import Kernel
from tilewright.tune.rules.gpu.rows import shares_across, shares_in_cluster, shares_of

CUDA = "cuda -arch=sm_90a"
Array = np.ndarray[Any, Any]


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def normalised(x: Array, g: Array, b: Array, axes: Any) -> Array:
    d = x - x.mean(axes, keepdims=True)
    return d / np.sqrt((d * d).mean(axes, keepdims=True) + 1e-5) * g + b


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    return topi.nn.layer_norm(x, g, b, list(range(len(x.shape) - len(g.shape), len(x.shape))))


@pytest.mark.slow
def test_rows_of_two_tensors_are_scheduled_the_same_each_time() -> None:
    """What is kept in registers comes in the order in which it is read, not in that of a set of buffers."""

    def trace() -> str:
        x, y, g, b = (
            te.placeholder(s, name=n)
            for s, n in (((128, 768), "x"), ((128, 768), "y"), ((768,), "g"), ((768,), "b"))
        )
        return str(tvm.auto_schedule([x, y, g, b, layer_norm(x + y, g, b)], CUDA).trace)

    assert len({trace() for _ in range(8)}) == 1


Case = tuple[list[tuple[int, ...]], Callable[..., Any], Callable[..., Array]]
CASES: dict[str, Case] = {
    "softmax, rows that share a block": ([(8, 64)], topi.nn.softmax, lambda x: softmax(x, 1)),
    "softmax, odd": ([(3, 71)], topi.nn.softmax, lambda x: softmax(x, 1)),
    "softmax, warps": ([(2, 1000)], topi.nn.softmax, lambda x: softmax(x, 1)),
    "softmax of columns": ([(40, 33)], lambda x: topi.nn.softmax(x, axis=0), lambda x: softmax(x, 0)),
    "softmax, middle": ([(2, 30, 8)], lambda x: topi.nn.softmax(x, axis=1), lambda x: softmax(x, 1)),
    "softmax, two inputs": (
        [(4, 64), (4, 64)],
        lambda x, y: topi.nn.softmax(x * 0.5 + y),
        lambda x, y: softmax(x * 0.5 + y, 1),
    ),
    "layernorm": ([(3, 200), (200,), (200,)], layer_norm, lambda x, g, b: normalised(x, g, b, 1)),
    "layernorm, two axes": (
        [(4, 6, 20), (6, 20), (6, 20)],
        layer_norm,
        lambda x, g, b: normalised(x, g, b, (1, 2)),
    ),
    "groups": (
        [(2, 8, 6, 6), (8,), (8,)],
        lambda x, g, b: topi.nn.group_norm(x, g, b, 2, 1, [2, 3]),
        lambda x, g, b: normalised(
            x.reshape(2, 2, 4, 36), g.reshape(2, 4, 1), b.reshape(2, 4, 1), (2, 3)
        ).reshape(x.shape),
    ),
    "instances": (
        [(2, 5, 9, 9), (5,), (5,)],
        lambda x, g, b: topi.nn.instance_norm(x, g, b, [2, 3], channel_axis=1),
        lambda x, g, b: normalised(x, g.reshape(5, 1, 1), b.reshape(5, 1, 1), (2, 3)),
    ),
    "row sums": ([(4, 320)], lambda x: topi.sum(x, axis=1), lambda x: x.sum(1)),
    "sums of products": (
        [(4, 64), (4, 64)],
        lambda x, y: topi.sum(x * y, axis=1),
        lambda x, y: (x * y).sum(1),
    ),
    "place of the largest": ([(3, 70)], lambda x: topi.argmax(x, axis=1), lambda x: x.argmax(1)),
    "column sums": ([(40, 36)], lambda x: topi.sum(x, axis=0), lambda x: x.sum(0)),
    "column sums in parts": ([(300, 8)], lambda x: topi.sum(x, axis=0), lambda x: x.sum(0)),
    "middle sums": ([(2, 40, 12)], lambda x: topi.sum(x, axis=1), lambda x: x.sum(1)),
    "sums over all but channels": (
        [(2, 6, 5, 8)],
        lambda x: topi.sum(x, axis=[0, 2, 3]),
        lambda x: x.sum((0, 2, 3)),
    ),
    "transpose in squares": ([(36, 40)], topi.transpose, lambda x: x.T),
    "transpose, odd": ([(35, 33)], topi.transpose, lambda x: x.T),
    "transpose and add": (
        [(32, 36), (36, 32)],
        lambda x, y: topi.transpose(x) * 2.0 + y,
        lambda x, y: x.T * 2 + y,
    ),
}


def scheduled(shapes: list[tuple[int, ...]], build: Any, target: str = CUDA, dtype: str = "float32") -> Any:
    args = [te.placeholder(s, dtype, name=f"x{i}") for i, s in enumerate(shapes)]
    out = build(*args)
    return tvm.auto_schedule([*args, out], target), str(out.dtype)


def computes(
    shapes: list[tuple[int, ...]], build: Any, reference: Callable[..., Array], target: str = CUDA
) -> Any:
    """Run the lowered kernel, barriers and shuffles included, thread by thread; its schedule."""
    sch, kind = scheduled(shapes, build, target)
    with tvm.target.Target(CUDA):
        mod = tir.transform.ThreadSync("shared.cluster")(tvm.lower(sch.mod))
        func = tir.transform.ThreadSync("shared")(mod)["main"]
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal(s).astype("float32") for s in shapes]
    want = reference(*arrays)
    got = np.full(want.shape, 77).astype(kind)
    tir.interpret(func, *arrays, got)
    np.testing.assert_allclose(got, want, 1e-3, 1e-4)
    return sch


@pytest.mark.parametrize("name", CASES)
def test_threads_compute_it_without_races(name: str) -> None:
    computes(*CASES[name])


CLUSTERS: dict[str, Case] = {
    "softmax": ([(2, 512)], topi.nn.softmax, lambda x: softmax(x, 1)),
    "softmax, odd": ([(2, 213)], topi.nn.softmax, lambda x: softmax(x, 1)),
    "softmax, not whole": ([(2, 700)], topi.nn.softmax, lambda x: softmax(x, 1)),
    "layernorm": ([(2, 512), (512,), (512,)], layer_norm, lambda x, g, b: normalised(x, g, b, 1)),
}


@pytest.mark.parametrize("name", CLUSTERS)
def test_clusters_share_long_rows(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are long for so few registers."""
    monkeypatch.setattr(Kernel, "limit", 32)
    sch = computes(*CLUSTERS[name], f"{CUDA} -machine=rows.held_registers:4,rows.cluster_threads:32")
    record = next(r for r in sch.explanation.records if r["sketch"] == "rows")
    assert record["cluster"] > 1 and "x0" in record["in registers"]


@pytest.mark.parametrize(("name", "kernels"), [("softmax", 3), ("layernorm", 1)])
def test_stages_of_rows_that_nothing_holds(name: str, kernels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exponentials of a softmax would have to be kept; a layer norm keeps two numbers for each row."""
    monkeypatch.setattr(Kernel, "limit", 8)
    sch = computes(*CLUSTERS[name], f"{CUDA} -machine=rows.held_registers:4,rows.shared_memory:64")
    stages = [r["stage"] for r in sch.explanation.records if r["sketch"] not in ("inline", "apart")]
    assert len(stages) == kernels and "T_softmax_exp" not in stages


def source(shapes: list[tuple[int, ...]], build: Any, dtype: str = "float32") -> str:
    sch, _ = scheduled(shapes, build, dtype=dtype)
    return str(tvm.build(sch.mod, target=CUDA).imported_modules[0].get_source())


def test_a_row_is_read_once_in_vectors_and_kept_in_registers() -> None:
    text = source([(4096, 4096)], topi.nn.softmax)
    assert text.count("*(const float4*)(x0 + ") == 2  # 512 threads, 8 elements each
    assert text.count("*(float4*)(T_softmax_norm + ") == 2
    assert not re.search(r"= x0\[", text)
    assert text.count("__syncthreads()") == 2  # one for each reduction
    assert text.count("__shfl_sync") == 2 * (5 + 4)


def test_short_rows_need_no_barrier() -> None:
    text = source([(4096, 64)], topi.nn.softmax)
    assert "__syncthreads" not in text and "__shared__" not in text


def test_two_blocks_of_long_rows_share_a_processor() -> None:
    assert "__launch_bounds__(512, 2)" in source([(4096, 16384)], topi.nn.softmax)
    assert "__launch_bounds__(512)" in source([(4096, 8192)], topi.nn.softmax)


def test_column_sums_go_along_the_lines_in_two_kernels() -> None:
    text = source([(4096, 4096)], lambda x: topi.sum(x, axis=0))
    assert text.count("__global__") == 2
    assert text.count("*(const float4*)(x0 + ") == 8  # lines that are under way at once


def test_a_transpose_reads_and_writes_vectors() -> None:
    text = source([(4096, 4096)], topi.transpose)
    assert text.count("*(const float4*)(x0 + ") == 4 and text.count("*(float4*)(T_transpose + ") == 4
    assert text.count("__syncthreads()") == 1


def rows_of(shapes: list[tuple[int, ...]], build: Any, target: str = CUDA) -> Any:
    sch, _ = scheduled(shapes, build, target)
    return next(r for r in sch.explanation.records if r["sketch"] == "rows")


def test_long_rows_have_clusters_or_are_read_again_and_few_of_them_in_parts() -> None:
    held = rows_of([(512, 1 << 17)], topi.nn.softmax)
    assert held["cluster"] == 8 and held["in registers"] == ["x0", "T_softmax_exp"]
    assert "cluster" not in rows_of([(512, 4096)], topi.nn.softmax)
    again = rows_of([(512, 1 << 17)], topi.nn.softmax, "cuda -arch=sm_80")
    assert "cluster" not in again and again["in registers"] == []
    sch, _ = scheduled([(2, 1 << 20)], lambda x: topi.sum(x, axis=1))
    assert sch.explanation.records[-1]["parts"] == 256


def test_rows_that_nothing_holds_are_read_by_a_kernel_for_each_stage() -> None:
    sch, _ = scheduled([(64, 1 << 20)], topi.nn.softmax)
    stages = [(r["stage"], r["sketch"]) for r in sch.explanation.records if r["sketch"] != "inline"]
    assert stages == [
        ("T_softmax_norm", "apart"),
        ("T_softmax_maxelem", "rows"),
        ("T_softmax_expsum", "rows"),
        ("T_softmax_norm", "elementwise"),
    ]


def test_what_is_read_once_need_not_stay_in_a_cache() -> None:
    assert source([(4096, 4096)], lambda x: topi.sum(x, axis=1)).count("__ldcs((const float4*)(x0 + ") == 2
    assert "__ldcs" not in source([(4096, 4096)], topi.nn.softmax)


def test_narrow_types() -> None:
    text = source([(64, 1024)], lambda x: topi.sum(topi.cast(x, "float32"), axis=1), "float16")
    assert "__shfl_sync" in text
    text = source([(64, 1024)], lambda x: topi.max(x, axis=1), "int8")
    assert "__shfl_sync" in text


def test_shares() -> None:
    four = shares_of(4096, 4096, 4, 1024)
    assert (four.chunks, four.threads, four.lanes, four.rows) == (2, 512, 4, 1)
    short = shares_of(64, 4096, 4, 1024)
    assert (short.chunks, short.threads, short.rows) == (1, 16, 16)
    assert shares_of(1000, 4096, 4, 1024).rows == 4  # of 64 threads each
    assert shares_of(16384, 4096, 4, 1024).threads == 512 and shares_of(32768, 4096, 4, 1024).threads == 1024
    assert shares_of(64, 3, 4, 1024).rows == 1  # three rows are not a multiple of two
    part = shares_in_cluster(65536, 4, 1024, 8)
    assert (part.blocks, part.chunks, part.threads, part.rows) == (8, 16, 128, 1)
    assert shares_in_cluster(1 << 18, 4, 1024, 8).threads == 512  # 64 elements each
    assert shares_in_cluster(65536, 4, 1024, 8, decided=256).blocks == 4
    across = shares_across(64, 4096, 1024)
    assert (across.threads, across.rows, across.tag, across.row_tag) == (4, 32, "threadIdx.y", "threadIdx.x")


@pytest.mark.slow
def test_more_elements_than_32_bits_can_count() -> None:
    """Addresses are in 64 bits, what is shared by them included; smaller ones stay in 32."""
    for build in (lambda x: x * 2.0, lambda x: topi.sum(x, axis=1), topi.transpose):
        text = source([(65536, 40000)], build)
        assert re.search(r"const long long \w+ = \(long long\)", text) and "(int)" not in text
        assert "long long" not in source([(4096, 4096)], build)
    odd = source([(60001, 40001)], lambda x: x * 2.0)
    assert "60001" not in odd and "blockIdx.y" in odd  # no loop has so many iterations
