"""The programs and checks of this folder on a CUDA device, one test for each; skipped where there is none."""

from __future__ import annotations

import cuda_data  # noqa: F401  (its checks join the others)
import cuda_dynamic  # noqa: F401
import cuda_models  # noqa: F401
import pytest
from classic_programs import CLASSIC, CLASSIC_CUDA
from cuda_checks import CHECKS
from gpu_programs import PROGRAMS
from row_programs import LONG_ROW_PROGRAMS, ROW_PROGRAMS
from seed_programs import SEEDS
from tensor_core_programs import AMPERE_PROGRAMS, BY_HAND, HOPPER_PROGRAMS
from type_programs import TYPE_PROGRAMS
from warp_memory_programs import WARP_PROGRAMS

import tilewright as tvm

pytestmark = pytest.mark.needs("cuda")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    PROGRAMS[name]().run("cuda", tvm.cuda(0))


@pytest.mark.parametrize("name", TYPE_PROGRAMS)
def test_type(name: str) -> None:
    TYPE_PROGRAMS[name]().run("cuda", tvm.cuda(0))


@pytest.mark.parametrize("name", [*CLASSIC, *CLASSIC_CUDA])
def test_classic(name: str) -> None:
    {**CLASSIC, **CLASSIC_CUDA}[name]().run("cuda", tvm.cuda(0))


@pytest.mark.parametrize("name", SEEDS)
def test_seed(name: str) -> None:
    SEEDS[name]("cuda", tvm.cuda(0))


@pytest.mark.parametrize("name", ROW_PROGRAMS | LONG_ROW_PROGRAMS)
def test_rows(name: str) -> None:
    (ROW_PROGRAMS | LONG_ROW_PROGRAMS)[name].run("cuda", tvm.cuda(0))


@pytest.mark.parametrize("name", [*BY_HAND, *AMPERE_PROGRAMS, *WARP_PROGRAMS, *HOPPER_PROGRAMS])
def test_tensor_cores(name: str) -> None:
    major = int(str(tvm.cuda(0).compute_version).split(".")[0])
    if (name in {**AMPERE_PROGRAMS, **WARP_PROGRAMS} and major < 8) or (
        name in HOPPER_PROGRAMS and major != 9
    ):
        pytest.skip("the device has no such instructions")
    {**BY_HAND, **AMPERE_PROGRAMS, **WARP_PROGRAMS, **HOPPER_PROGRAMS}[name]().run("cuda", tvm.cuda(0))


@pytest.mark.parametrize("name", CHECKS)
def test_check(name: str) -> None:
    CHECKS[name](tvm.cuda(0))
