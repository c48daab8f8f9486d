"""The programs and checks of this folder on a CUDA device, one test for each; skipped where there is none."""

from __future__ import annotations

import pytest
from cuda_checks import CHECKS
from gpu_programs import PROGRAMS

import tilewright as tvm

pytestmark = pytest.mark.skipif(not tvm.cuda(0).exist, reason="there is no CUDA device")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    PROGRAMS[name]().run("cuda", tvm.cuda(0))


@pytest.mark.parametrize("name", CHECKS)
def test_check(name: str) -> None:
    CHECKS[name](tvm.cuda(0))
