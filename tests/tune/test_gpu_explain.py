"""What `explain()` says of kernels for GPUs: figures that agree with each other, rivals, and reasons."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.errors import ScheduleError
from tilewright.relay.backend.device_kernel import _refuse_serial
from tilewright.target import Target
from tilewright.tune.cost.gpu import Counts, bound_of, cycles_of, seconds_of
from tilewright.tune.explain import Explanation, Outcome

H200, A100, T4 = "cuda -model=h200", "cuda -arch=sm_80", "cuda -arch=sm_75"


def product(m: int, n: int, k: int, dtype: str) -> list[Any]:
    a, b = te.placeholder((m, k), dtype, name="a"), te.placeholder((n, k), dtype, name="b")
    return [a, b, topi.nn.dense(a, b, None, "int32" if dtype == "int8" else "float32")]


def rows() -> list[Any]:
    x = te.placeholder((4096, 1024), name="x")
    return [x, topi.nn.softmax(x)]


def elementwise() -> list[Any]:
    x = te.placeholder((4096, 1024), name="x")
    return [x, topi.nn.relu(x)]


def transposed() -> list[Any]:
    x = te.placeholder((4096, 1024), name="x")
    return [x, topi.transpose(x)]


def columns() -> list[Any]:
    x = te.placeholder((4096, 1024), name="x")
    return [x, topi.sum(x, axis=0)]


def convolution() -> list[Any]:
    x, w = (
        te.placeholder((8, 56, 56, 64), "float16", name="x"),
        te.placeholder((3, 3, 64, 64), "float16", name="w"),
    )
    return [x, w, topi.nn.conv2d(x, w, 1, 1, 1, "NHWC", out_dtype="float32")]


def depthwise() -> list[Any]:
    x, w = te.placeholder((8, 144, 56, 56), name="x"), te.placeholder((144, 1, 3, 3), name="w")
    return [x, w, topi.nn.depthwise_conv2d_nchw(x, w, 1, 1, 1)]


def attention() -> list[Any]:
    q, k, v = (te.placeholder((8, 16, 1024, 64), "float16", name=n) for n in "qkv")
    return [q, k, v, topi.nn.scaled_dot_product_attention(q, k, v)]


# program, target, what bounds it, the rival, and the kinds that are refused
CASES: dict[str, tuple[list[Any], str, str, str, set[str]]] = {
    "wgmma": (product(4096, 4096, 4096, "float16"), H200, "arithmetic", "mma", set()),
    "mma": (product(4096, 4096, 4096, "float16"), A100, "arithmetic", "shared tile", {"wgmma"}),
    "SIMT with TMA": (product(2048, 2048, 2048, "float32"), H200, "arithmetic", "SIMT", {"wgmma", "mma"}),
    "SIMT": (product(2048, 2048, 2048, "float32"), A100, "arithmetic", "shared tile", {"wgmma", "mma", "SIMT with TMA"}),
    "convolution": (convolution(), H200, "shared memory", "im2col mma", {"im2col lines wgmma"}),
    "attention": (attention(), H200, "arithmetic", "attention apart", set()),
    "rows": (rows(), A100, "DRAM", "row chain in shared memory", set()),
    "transpose": (transposed(), A100, "DRAM", "elementwise", set()),
    "columns": (columns(), A100, "DRAM", "plain", set()),
    "elementwise": (elementwise(), A100, "DRAM", "plain", set()),
    "windows": (depthwise(), A100, "DRAM", "plain", set()),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_winners_have_figures_and_rivals(name: str) -> None:
    args, target, bound, rival, refused = CASES[name]
    sch = tvm.auto_schedule(args, target)
    r = json.loads(sch.explanation.to_json())["stages"][-1]
    assert r["bound"] == bound and set(r.get("refused", {})) == refused and all(r.get("refused", {}).values())
    assert r.get("rival", {}).get("rule", "") == rival
    assert r["intensity"] == round(r["flop"] / r["dram_bytes"], 2)
    assert r["predicted_gflops"] == pytest.approx(r["flop"] / r["predicted_us"] / 1e3, rel=0.02)
    assert 1 <= r["blocks_per_sm"] <= r["blocks"] and 1 <= r["warps_per_sm"] <= r["warps_there"]
    # no kernel is faster than its roofline
    gpu = Target(target).gpu
    assert r["predicted_us"] * 1e-6 > 0.9 * r["dram_bytes"] / (gpu.bandwidth * 1e9)
    if rival:
        assert r["rival"]["predicted_us"] > r["predicted_us"] and r["rival"]["times"] > 1
        assert r["rival"]["why"].startswith("more for ")
    text = str(sch.explanation)
    assert all(f"\n  {word}" in text for word in ("memory ", "occupancy ", "predicted "))


def test_what_is_refused_says_why() -> None:
    sch = tvm.auto_schedule(product(64, 64, 64, "float32"), T4)
    (r,) = sch.explanation.records
    assert r["sketch"] == "shared tile"
    assert r["refused"] == {
        "wgmma": "the target has no tma, wgmma",
        "mma": "sm_75 has no `mma` for float32",
        "SIMT with TMA": "the target has no cp.async, setmaxnreg, tma",
        "SIMT": "the target has no cp.async",
    }


@pytest.mark.slow
def test_other_gpus_of_the_family_keep_what_they_can_run() -> None:
    """sm_100a has TMA, but no wgmma; sm_90 without `a` has neither wgmma nor registers that move."""
    kinds = {}
    for arch in ("sm_80", "sm_90", "sm_90a", "sm_100a"):
        (r,) = tvm.auto_schedule(
            product(2048, 2048, 2048, "float32"), f"cuda -arch={arch}"
        ).explanation.records
        kinds[arch] = r.get("copies", "")
    assert kinds == {"sm_80": "", "sm_90": "", "sm_90a": "TMA", "sm_100a": "TMA"}


# ---------------------------------------------------------------------------- the cost function
def test_one_function_adds_up_the_counts() -> None:
    gpu = Target(A100).gpu
    c = Counts(
        rounds=2,
        steps=10,
        compute=100.0,
        shared=40.0,
        l2=60.0,
        latency=50.0,
        overhead=5.0,
        ends=200.0,
        launch=500.0,
    )
    assert cycles_of(c, gpu) == 2 * (10 * 105 + 200) + 500
    assert bound_of(c, gpu) == "arithmetic"
    assert seconds_of(c, gpu) == pytest.approx(3000 / (gpu.clock * 1e9) + gpu.tile.launch_seconds)


@pytest.mark.parametrize(
    ("more", "bound"),
    [
        ({"shared": 900.0}, "shared memory"),
        ({"l2": 900.0}, "L2 cache"),
        ({"latency": 900.0}, "latency of copies"),
        ({"dram": 1e9}, "DRAM"),
        ({"ends": 9e4}, "epilogue"),
        ({"launch": 9e4}, "launch"),
        ({"overhead": 900.0}, "barriers"),
        ({"split": 1e9}, "partial sums of split-K"),
    ],
)
def test_what_takes_most_of_the_time_bounds_it(more: dict[str, float], bound: str) -> None:
    assert bound_of(Counts(**{"steps": 10, "compute": 100.0, **more}), Target(A100).gpu) == bound  # type: ignore[arg-type]


# ---------------------------------------------------------------------------- decisions
def test_decisions_are_taken_on_outcomes() -> None:
    notes = Explanation("cuda")
    notes.outcomes = [Outcome("a", 256, True, "why not"), Outcome("b", 1, False, "")]
    _refuse_serial(notes)
    notes.outcomes.append(Outcome("c", 1, False, "its loops depend on each other"))
    with pytest.raises(
        ScheduleError, match="c would be computed by one thread: its loops depend on each other"
    ):
        _refuse_serial(notes)


def test_outcomes_of_stages() -> None:
    notes = tvm.auto_schedule(rows(), A100).explanation
    assert notes.outcomes == [Outcome("T_softmax_norm", 256, True, "")]
    notes = tvm.auto_schedule(elementwise(), A100).explanation
    assert notes.outcomes == [Outcome("T_relu", 128, False, "")]
