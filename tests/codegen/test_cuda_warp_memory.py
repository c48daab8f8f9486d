"""Products over memory of warps: which instructions the kernels have, and that NVRTC takes them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from warp_memory_programs import WARP_PROGRAMS

from tilewright import tir
from tilewright.runtime.cuda_driver import compile_ptx
from tilewright.tir.tensor_intrin import cuda

QUICK = ("warp memory", "warp memory, bytes")


def source(name: str) -> str:
    program: Any = WARP_PROGRAMS[name]()
    return str(program.build("cuda -arch=sm_80").imported_modules[0].get_source())


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in WARP_PROGRAMS]
)
def test_products_are_instructions(name: str) -> None:
    text = source(name)
    assert "warp" not in re.sub(r"\w+_warp\w*", "", text)  # it is all in registers
    ptx = compile_ptx(text, {"arch": "sm_80"}).decode()
    deep = "k32" if "bytes" in name else "k16"
    assert f"mma.sync.aligned.m16n8{deep}.row.col" in ptx and "ldmatrix.sync.aligned.m8n8.x4" in ptx
    assert ".local" not in ptx  # nothing is in memory that should be in a register


def test_each_thread_has_its_part() -> None:
    text = source("warp memory")
    sizes = dict(re.findall(r"(?:float|half|unsigned short) (\w+_warp)\[(\d+)\]", text))
    assert sizes["C_warp"] == "32"  # 32 x 32 results of a warp
    assert sizes["A_shared_warp"] == sizes["B_shared_warp"] == "16"


def test_the_intrinsics_have_their_classic_names() -> None:
    group = cuda.get_mma_intrin_group(
        "shared.dyn", "global", "float16", "float16", "float32", False, True, False
    )
    assert group == {
        "init": "mma_fill_16x16_f32",
        "load_a": "mma_ldmatrix_f16_a_dyn",
        "load_b": "mma_ldmatrix_f16_b_trans_dyn",
        "compute": "mma_f16f16f32_trans_b",
        "store": "mma_store_16x16_f32_global_",
    }
    assert cuda.MMA_i8i8i32_INTRIN == "mma_i8i8i32"  # type: ignore[attr-defined]
    assert cuda.LDMATRIX_f16_A_TRANS_INTRIN == "mma_ldmatrix_f16_a_trans"  # type: ignore[attr-defined]
    for name in group.values():
        assert tir.TensorIntrin.get(name) is not None
    with pytest.raises(ValueError, match="out_dtype 'int32' is none of float16, float32"):
        cuda.get_mma_intrin_group("shared", "global", "float16", "float16", "int32", False, False)


def test_layouts_give_each_element_a_place() -> None:
    layout, back = cuda.shared_16x16_to_ldmatrix_32x8_layout, cuda.ldmatrix_32x8_to_shared_16x16_layout
    places = {layout(i, j) for i in range(16) for j in range(16)}
    assert len(places) == 256 and all(layout(*back(*p)) == p for p in places)
    for made, rows, columns in (
        (cuda.shared_16x32_to_ldmatrix_32x16_layout, 16, 32),
        (cuda.shared_32x16_to_ldmatrix_32x16_layout, 32, 16),
    ):
        places = {made(i, j) for i in range(rows) for j in range(columns)}
        assert places == {(t, r) for t in range(32) for r in range(16)}
