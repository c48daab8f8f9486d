"""Rows, columns and transposes by rules, compiled for OpenCL and run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "gpu"))

from row_programs import ROW_PROGRAMS, ROW_QUICK

import tilewright as tvm

DEV = tvm.opencl(0)
pytestmark = pytest.mark.needs("opencl")


@pytest.mark.parametrize(
    "name", [n if n in ROW_QUICK else pytest.param(n, marks=pytest.mark.slow) for n in ROW_PROGRAMS]
)
def test_it_computes_the_same(name: str) -> None:
    ROW_PROGRAMS[name].run("opencl", DEV)
