"""Random tensor expressions give the same in the interpreter and as machine code, scheduled or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_programs import Program, programs, schedules

import tilewright as tvm
from tilewright import te
from tilewright.script import from_source
from tilewright.tir.interpret import interpret

EXAMPLES = examples(60)
COMMON: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": [
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
}
TOLERANCE = {"float16": 2e-2, "bfloat16": 5e-2, "float32": 1e-4, "float64": 1e-10}


def expected(program: Program, seed: int) -> list[np.ndarray]:
    arrays = program.arrays(seed)
    interpret(te.create_prim_func(program.args()), *arrays)
    return arrays


def compare(got: np.ndarray, want: np.ndarray, dtype: str) -> None:
    if dtype in TOLERANCE:
        tol = TOLERANCE[dtype]
        np.testing.assert_allclose(got.astype("float64"), want.astype("float64"), rtol=tol, atol=tol)
    else:
        np.testing.assert_array_equal(got, want)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, **COMMON)
@given(programs(), st.integers(0, 3))
def test_plain_loops_agree_with_the_interpreter(program: Program, seed: int) -> None:
    want = expected(program, seed)
    got = program.arrays(seed)
    tvm.build(te.create_schedule(program.output.op), program.args(), "llvm")(*got)
    compare(got[-1], want[-1], program.output.dtype)


@pytest.mark.slow
@settings(max_examples=EXAMPLES, **COMMON)
@given(st.data(), st.integers(0, 3))
def test_schedules_agree_with_the_interpreter(data: Any, seed: int) -> None:
    program = data.draw(programs())
    schedule = data.draw(schedules(program))
    want = expected(program, seed)
    got = program.arrays(seed)
    tvm.build(schedule.to_prim_func(program.args()), target="llvm")(*got)
    compare(got[-1], want[-1], program.output.dtype)


@settings(max_examples=max(1, EXAMPLES // 2), **COMMON)
@given(st.data(), st.integers(0, 3))
def test_lowering_keeps_the_meaning(data: Any, seed: int) -> None:
    program = data.draw(programs())
    schedule = data.draw(schedules(program))
    want = expected(program, seed)
    got = program.arrays(seed)
    lowered = tvm.lower(schedule.to_prim_func(program.args()))
    interpret(lowered["main"], *got)
    compare(got[-1], want[-1], program.output.dtype)


@tvm.instrument.pass_instrument
class _ReadsBack:
    """After each pass the program is printed and read back."""

    def run_after_pass(self, mod: Any, info: Any) -> None:
        back = from_source(mod.script())
        tvm.ir.assert_structural_equal(back, mod)


@settings(max_examples=max(1, EXAMPLES // 4), **COMMON)
@given(st.data())
def test_every_stage_of_lowering_reads_back(data: Any) -> None:
    program = data.draw(programs())
    schedule = data.draw(schedules(program))
    function = schedule.to_prim_func(program.args())
    with tvm.transform.PassContext(instruments=[_ReadsBack()]):
        tvm.lower(function)
