"""The GPU programs of the seed documents on an OpenCL device: by default the processor itself, through PoCL."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from seed_programs import SEEDS

import tilewright as tvm

DEV = tvm.opencl(0)
# One of each kind, for where compiling all of them takes too long.
# in test_model_programs, where PyTorch is loaded anyway, and in test_tuning_programs
ELSEWHERE = ("model_of_pytorch", "tune_a_product")
QUICK = ("build_and_execute", "typical_schedule_fetching_together", "my_add")


@pytest.mark.needs("opencl")
@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in SEEDS if n not in ELSEWHERE],
)
def test_program(name: str) -> None:
    SEEDS[name]("opencl", DEV)
