"""Random schedules for GPUs, compiled: what an OpenCL device computes is what the interpreter says, and NVRTC takes
the same kernels as CUDA.

`TILEWRIGHT_EXAMPLES=500 pytest tests/tir/schedule/test_opencl_kernels.py` runs more.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "gpu"))

from random_schedules import arrays_of, recipe_of, scheduled
from test_kernels import bind_the_rest

import tilewright as tvm
from tilewright import tir
from tilewright.ir.errors import LoweringError

EXAMPLES = int(os.environ.get("TILEWRIGHT_EXAMPLES", "40"))
DEV = tvm.opencl(0)
# as much as PoCL's device has: random schedules bind what they like
TARGET = "opencl -max_threads_per_block=4096 -max_shared_memory_per_block=262144"
needs_device = pytest.mark.needs("opencl")


def outcome(seed: int) -> str:
    """What becomes of a random schedule on the device: `agree`, or why it cannot be kernels."""
    sch, _ = scheduled(recipe_of(seed, gpu=True))
    if not bind_the_rest(sch, seed):
        return "not all blocks can be bound"
    origin = sch.origin["main"]
    try:
        mod = tvm.build(sch.mod, target=TARGET)
    except LoweringError as why:
        return str(why)
    want = arrays_of(origin)
    got = [tvm.nd.array(a, DEV) for a in want]
    tir.interpret(origin, *want)
    mod["main"](*got)
    for a, b in zip(want, got, strict=True):
        source = mod.imported_modules[0].get_source()
        np.testing.assert_array_equal(b.numpy(), a, err_msg=f"seed {seed}\n{sch.mod}\n{source}")
    return "agree"


@needs_device
@pytest.mark.parametrize("seeds", [range(5), pytest.param(range(5, EXAMPLES), marks=pytest.mark.slow)])
def test_random_schedules_on_the_device(seeds) -> None:
    told = [outcome(seed) for seed in seeds]
    assert told.count("agree") >= len(told) // 3, told


@pytest.mark.needs("nvrtc")
@pytest.mark.parametrize("seeds", [range(4), pytest.param(range(4, EXAMPLES), marks=pytest.mark.slow)])
def test_nvrtc_takes_random_schedules(seeds) -> None:
    from tilewright.runtime.cuda_driver import compile_cubin

    taken = 0
    for seed in seeds:
        sch, _ = scheduled(recipe_of(seed, gpu=True))
        if not bind_the_rest(sch, seed):
            continue
        arch = ("sm_75", "sm_80", "sm_90a")[seed % 3]
        try:
            mod = tvm.build(sch.mod, target=f"cuda -arch={arch}")
        except LoweringError:
            continue
        compile_cubin(mod.imported_modules[0].get_source(), {"arch": arch})
        taken += 1
    assert taken >= len(seeds) // 4
