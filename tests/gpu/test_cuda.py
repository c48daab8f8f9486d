"""The programs and checks of this folder on a CUDA device, one test for each; skipped where there is none."""

from __future__ import annotations

import cuda_models  # noqa: F401  (its checks join the others)
import pytest
from cuda_checks import CHECKS
from gpu_programs import PROGRAMS
from tensor_core_programs import AMPERE_PROGRAMS, BY_HAND, HOPPER_PROGRAMS

import tilewright as tvm

pytestmark = pytest.mark.skipif(not tvm.cuda(0).exist, reason="there is no CUDA device")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    PROGRAMS[name]().run("cuda", tvm.cuda(0))


@pytest.mark.parametrize("name", [*BY_HAND, *AMPERE_PROGRAMS, *HOPPER_PROGRAMS])
def test_tensor_cores(name: str) -> None:
    major = int(str(tvm.cuda(0).compute_version).split(".")[0])
    if (name in AMPERE_PROGRAMS and major < 8) or (name in HOPPER_PROGRAMS and major != 9):
        pytest.skip("the device has no such instructions")
    {**BY_HAND, **AMPERE_PROGRAMS, **HOPPER_PROGRAMS}[name]().run("cuda", tvm.cuda(0))


@pytest.mark.parametrize("name", CHECKS)
def test_check(name: str) -> None:
    CHECKS[name](tvm.cuda(0))
