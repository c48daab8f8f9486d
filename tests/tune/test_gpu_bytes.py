"""Products of bytes that add up in int32: by tensor cores, or by dot products of four bytes where there are none."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from tensor_core_programs import AMPERE, convolution, product, scheduled

import tilewright as tvm
from tilewright import te
from tilewright.tir.tensor_intrin.cuda import get_wmma_intrin_group

PASCAL, TURING = "cuda -arch=sm_61", "cuda -arch=sm_75"


def of_bytes(*sizes: int, **facts: Any) -> list[te.Tensor]:
    return product(*sizes, kind="int8", sums="int32", **facts)


def window(**facts: Any) -> list[te.Tensor]:
    return convolution((1, 4, 3, 12), 24, (2, 2), padding=1, kind="int8", **facts)


def record(args: list[te.Tensor], target: str, rule: str = "") -> dict[str, Any]:
    records = scheduled(args, target, rule).explanation.records
    return next(r for r in records if "instructions" in r)


@pytest.mark.parametrize("target", [TURING, AMPERE])
def test_tensor_cores_take_32_of_the_reduction(target: str) -> None:
    made = record(of_bytes(128, 64, 96, trans_b=True), target, "mma")
    assert made["sketch"] == "tensor cores" and "transposed" not in made
    assert made["instructions"] == "wmma_sync_16x16x32_s8s8s32_trans"


@pytest.mark.parametrize("target", [PASCAL, AMPERE])
def test_what_lies_across_the_reduction_is_turned(target: str) -> None:
    made = record(of_bytes(512, 512, 512, trans_a=True), target)
    assert made["transposed"] == ["A", "B"]


def test_others_take_four_bytes_at_a_time() -> None:
    sch = tvm.auto_schedule(of_bytes(128, 64, 96, trans_b=True), PASCAL)
    assert [r["sketch"] for r in sch.explanation.records] == ["dot products"]
    text = tvm.build(sch.mod, target=PASCAL).imported_modules[0].get_source()
    assert text.count("tw_dp4a(*(const int*)(") == 4 and text.count("char4*)(") == 8
    older = tvm.auto_schedule(of_bytes(128, 64, 96, trans_b=True), "cuda -arch=sm_60")
    assert [r["sketch"] for r in older.explanation.records] == ["shared tile"]


CASES = {
    "ragged": of_bytes(30, 17, 50, trans_b=True, bias=True),
    "batch": of_bytes(20, 40, 64, batch=(2,), trans_b=True),
    "convolution": window(turned=True, fused=True),
    "convolution, HWIO": window(strides=2),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target"),
    [*((n, AMPERE) for n in CASES), ("ragged", PASCAL), ("convolution, HWIO", PASCAL)],
)
def test_schedules_mean_the_same(name: str, target: str) -> None:
    sch = scheduled(CASES[name], target, "dp4a" if target == PASCAL else "mma")
    wanted = "dp4a_s8s8s32" if target == PASCAL else "wmma_sync_16x16x32_s8s8s32_trans"
    assert wanted in [r.get("instructions") for r in sch.explanation.records]
    assert sch.verify()


def test_depths_of_instructions() -> None:
    made = get_wmma_intrin_group("shared", "global", "int8", "int32", True, depth=32)
    assert made["load_b"] == "wmma_load_16x16x32_s8_b_trans_shared"
    with pytest.raises(ValueError, match="get_wmma_intrin_group: depth 8 is none of 16, 32"):
        get_wmma_intrin_group("shared", "global", "int8", "int32", True, depth=8)
    with pytest.raises(ValueError, match="get_wmma_intrin_group: depth 32 is none of 16"):
        get_wmma_intrin_group("shared", "global", "float16", "float32", True, depth=32)
    with pytest.raises(ValueError, match="out_dtype 'float16' is none of float32"):
        get_wmma_intrin_group("shared", "global", "float32", "float16", True)
