"""Classic forms of GPU programs: on an OpenCL device, or through NVRTC where only NVIDIA's have the instructions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from classic_programs import CLASSIC, CLASSIC_CUDA

import tilewright as tvm

DEV = tvm.opencl(0)


@pytest.mark.needs("opencl")
@pytest.mark.parametrize("name", CLASSIC)
def test_program(name: str) -> None:
    CLASSIC[name]().run("opencl", DEV)


@pytest.mark.slow
@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("name", CLASSIC_CUDA)
def test_instructions(name: str) -> None:
    from tilewright.runtime.cuda_driver import compile_cubin

    source = CLASSIC_CUDA[name]().build("cuda -arch=sm_75").imported_modules[0].get_source()
    for text in ("tw_load_b16<true, false>(", "tw_mma_f16_f32(", "tw_store_sums("):
        assert text in source
    compile_cubin(source, {"arch": "sm_75"})
