"""Peaks of devices: the kernels compute what they say, and the figures are those of the work."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import rpc, te
from tilewright.contrib import peak
from tilewright.target import Target

GPU = "cuda -arch=sm_80"


def _loops(steps: int, target: str, items: int) -> tuple[Any, Any]:
    shape = (items, 1 if Target(target).is_gpu else 8, 4)
    y = te.extern(
        shape, [], lambda _, o: peak._multiply_adds(o[0], steps, Target(target)), name="y", dtype="float32"
    )
    return y, te.create_schedule(y.op)


@pytest.mark.parametrize("stride", [2, 8])
def test_bandwidth_kernel_reads_everything_once(stride: int) -> None:
    x, y, s = peak._bandwidth(32, 4, stride, "float32", 4, Target("llvm"))
    given = np.random.default_rng(0).random((32, 4), dtype="float32") + 0.5
    out = tvm.nd.empty((8, 4))
    tvm.build(s, [x, y], "llvm")(tvm.nd.array(given), out)
    rows = [[i // stride * stride * 4 + i % stride + k * stride for k in range(4)] for i in range(8)]
    np.testing.assert_allclose(out.numpy(), [given[r].prod(0) for r in rows], rtol=1e-5)
    assert sorted(i for r in rows for i in r) == list(range(32))


def test_chains_multiply_and_add() -> None:
    y, s = _loops(2, "llvm", 3)
    out = tvm.nd.array(np.full((3, 8, 4), -0.96875, "float32"))
    tvm.build(s, [y], "llvm")(out)
    a = b = np.float64(-0.96875)
    for _ in range(64):
        a = a * b + b
    np.testing.assert_allclose(out.numpy(), a, rtol=1e-5)


def test_kernels_of_gpus() -> None:
    x, y, s = peak._bandwidth(1 << 16, 32, 1024, "float32", 4, Target(GPU))
    source = tvm.build(s, [x, y], GPU).imported_modules[0].get_source()
    assert "__launch_bounds__(1024)" in source and "float4" in source
    y, s = _loops(4, GPU, 4096)
    source = tvm.build(s, [y], GPU).imported_modules[0].get_source()
    assert "__launch_bounds__(1024)" in source and "blockIdx.x" in source


@pytest.mark.slow
@pytest.mark.parametrize("far", [False, True])
def test_figures(far: bool, caplog: pytest.LogCaptureFixture) -> None:
    remote = rpc.LocalSession() if far else None
    about = (1, "llvm", None, remote, remote.cpu() if remote else tvm.cpu())
    with caplog.at_level(logging.INFO):
        found = peak.measure_bandwidth_all_types(1 << 16, 4, *about)
    assert [name for name, _ in found] == [f"float32x{n}" for n in (1, 2, 4, 8, 16)]
    assert all(0.001 < speed < 100_000 for _, speed in found)
    assert "GBPS" in caplog.text
    speed = peak.measure_compute_mad(1 << 10, 1 << 12, "int", 32, 8, "llvm", None, about[3], about[4], 1)
    assert 0.001 < speed < 100_000


def test_work_that_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With kernels that take a second, the figures are the bytes and the operations."""
    seen: list[tuple[int, ...]] = []

    def second(s: Any, tensors: Any, arrays: Any, *_: Any) -> float:
        seen.append(arrays[-1].shape)
        return 1.0

    monkeypatch.setattr(peak, "_seconds", second)
    about = (None, tvm.cpu(), 1)
    assert (
        peak.measure_bandwidth_sum(1 << 20, 8, 16, "float", 32, 4, GPU, None, *about) == 4 * (1 << 20) / 1e9
    )
    assert (
        peak.measure_compute_mad(1 << 20, 4096, "float", 32, 1, GPU, None, *about) == 4096 * (1 << 20) / 1e9
    )
    assert (
        peak.measure_compute_mad(1 << 20, 4096, "float", 64, 4, GPU, None, *about) == 4096 * (1 << 19) / 1e9
    )
    assert seen == [(32768, 4), (1 << 20, 1, 1), (1 << 19, 1, 4)]


def test_a_type_that_a_device_does_not_have() -> None:
    assert peak.measure_compute_mad(1 << 10, 64, "float", 24, 1, "llvm", None, None, tvm.cpu(), 1) == -1


def test_the_device_of_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    for name in ("measure_bandwidth_all_types", "measure_compute_all_types"):
        monkeypatch.setattr(peak, name, lambda *given: seen.append(given))
    server = rpc.Server()
    try:
        peak.measure_peak_all("llvm", None, "127.0.0.1", server.port)
    finally:
        server.terminate()
    assert [g[:3] for g in seen] == [(1 << 25, 32, 20), (1 << 21, 4096, 20)]
    assert all(g[-1].device_type % rpc.base.RPC_SESS_MASK == 1 for g in seen)
