"""Convolutions by tensor cores: that they compute the same, which instructions they get, and which they do not."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from tensor_core_programs import (
    AMPERE,
    HOPPER,
    HOPPER_PROGRAMS,
    channels_first,
    convolution,
    product,
    scheduled,
)

import tilewright as tvm
from tilewright import te, topi
from tilewright.ir.functor import pre_order
from tilewright.tir.transform.inject_software_pipeline import BY_REGISTERS


def record(args: list[te.Tensor], target: str, rule: str = "") -> dict[str, Any]:
    """What was decided for the convolution."""
    records = scheduled(args, target, rule).explanation.records
    return next(r for r in records if r["stage"].startswith(("conv", "group", "depthwise")))


FEW = [
    (HOPPER, (1, 6, 5, 64), 64, (3, 3), {"padding": 1, "fused": True}),
    (AMPERE, (1, 5, 6, 16), 64, (3, 3), {"padding": 1, "fused": True}),
]
MANY = [
    (HOPPER, (2, 7, 9, 64), 64, (3, 2), {"strides": (2, 1), "padding": (1, 0), "turned": True}),
    (HOPPER, (1, 7, 7, 40), 48, (3, 3), {"dilation": 2}),  # channels are padded
    (HOPPER, (1, 4, 4, 256), 64, (3, 3), {"padding": 1, "fused": True}),  # parts of the sum
    (HOPPER, (2, 8, 4, 64), 64, (1, 1), {}),
    (HOPPER, (2, 5, 5, 24), 64, (1, 1), {"strides": 2, "kind": "bfloat16"}),
    (HOPPER, (1, 9, 9, 3), 64, (7, 7), {"strides": 2, "padding": 3}),  # three channels: by warps
    (AMPERE, (1, 6, 7, 20), 70, (3, 2), {"dilation": (1, 2), "turned": True}),
]


def check(target: str, data: Any, filters: int, window: Any, facts: dict[str, Any]) -> None:
    rule = "wgmma" if target == HOPPER and data[-1] % 8 == 0 else "mma"
    sch = scheduled(convolution(data, filters, window, **facts), target, rule)
    (made,) = [r for r in sch.explanation.records if r["sketch"] != "inline"]
    assert made["sketch"] == "tensor cores"
    assert made["instructions"].startswith("wgmma" if rule == "wgmma" else "wmma")
    assert sch.verify()


@pytest.mark.slow
@pytest.mark.parametrize("case", FEW, ids=str)
def test_they_mean_the_same(case: Any) -> None:
    check(*case)


@pytest.mark.slow
@pytest.mark.parametrize("case", MANY, ids=str)
def test_more_of_them_mean_the_same(case: Any) -> None:
    check(*case)


def test_parts_of_the_sum_are_whole_lines_of_windows() -> None:
    """9 x 8 lines in parts of equal size: no window has elements more, that could be 0."""
    made = record(convolution((1, 7, 7, 512), 512, (3, 3), padding=1), HOPPER, "wgmma")
    assert 9 * 8 % made["split-K"] == 0


@pytest.mark.slow
def test_data_that_is_computed_first_is_not_looked_through() -> None:
    x = te.placeholder((1, 6, 6, 64), "float16", name="x")
    w = te.placeholder((3, 3, 64, 64), "float16", name="w")
    y = topi.nn.conv2d(topi.nn.relu(x), w, 1, 1, 1, "NHWC", "HWIO", "float32")
    sch = scheduled([x, w, y], HOPPER, "wgmma")
    assert [r["sketch"] for r in sch.explanation.records][-2:] == ["tensor cores", "elementwise"]
    assert "tw_walk_4" in tvm.build(sch.mod, target=HOPPER).imported_modules[0].get_source()


@pytest.mark.parametrize("target", [HOPPER, "cuda -arch=sm_75", "opencl"])
@pytest.mark.parametrize("what", ["groups", "channels first", "float32"])
def test_others_are_left_to_plain_tiles(target: str, what: str) -> None:
    if what == "channels first" and target == HOPPER:
        pytest.skip("the rule `gathered mma` takes it")
    kind = "float32" if what == "float32" else "float16"
    shape = (1, 16, 6, 6) if what == "channels first" else (1, 6, 6, 16)
    x = te.placeholder(shape, kind, name="x")
    groups = 2 if what == "groups" else 1
    w = te.placeholder((16, 16, 3, 3) if "first" in what else (3, 3, 16 // groups, 16), kind, name="w")
    layouts = ("NCHW", "OIHW") if "first" in what else ("NHWC", "HWIO")
    y = topi.nn.conv2d(x, w, 1, 1, 1, *layouts, "float32", groups)
    assert record([x, w, y], target)["sketch"] != "tensor cores"


@pytest.mark.parametrize("target", [HOPPER, AMPERE])
def test_channels_first_are_gathered(target: str) -> None:
    """Any channels: their elements pass registers, one step ahead of the products."""
    args = channels_first((1, 41, 14, 14), 61, 3, kind="bfloat16", padding=1)
    sch = scheduled(args, target)
    assert record(args, target)["rule"].startswith("gathered mma")
    loop = next(m for m in pre_order(sch.mod["main"].body) if BY_REGISTERS in getattr(m, "annotations", {}))
    assert list(loop.annotations[BY_REGISTERS]) == [0, 1]  # 41 * 9 weights of a filter are odd too


def test_short_copies_are_asynchronous_where_they_can_be() -> None:
    """Rows of 300 elements of 16 bits begin at multiples of 8 bytes, and those of 298 at multiples of 4."""
    for k, size in ((304, 16), (300, 8), (298, 4), (299, 0)):
        sch = scheduled(product(100, 100, k, out="float16", trans_b=True), AMPERE, "mma")
        text = tvm.build(sch.mod, target=AMPERE).imported_modules[0].get_source()
        assert set(re.findall(r"tw_copy(?:_or_zero)?<(\d+)>\(", text)) == ({str(size)} if size else set())
        assert ("registers[" in text) == (not size)


@pytest.mark.slow
def test_few_pixels_of_large_images_are_too_far_from_their_ends() -> None:
    """Walks turn back at most 128 elements before the end of an image: warps gather the rest."""
    assert "wmma" in record(convolution((1, 6, 400, 64), 64, (1, 200)), HOPPER)["instructions"]


@pytest.mark.needs("nvrtc")
@pytest.mark.slow
def test_nvrtc_takes_walks() -> None:
    from tilewright.runtime.cuda_driver import compile_cubin

    program = HOPPER_PROGRAMS["convolution by wgmma, parts"]()
    text = program.build("cuda -arch=sm_90a").imported_modules[0].get_source()
    assert "im2col" in text and len(compile_cubin(text, {"arch": "sm_90a"})) > 1000
