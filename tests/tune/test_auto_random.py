"""Random programs, scheduled automatically for this machine and for others, compute what their plain loops do."""

from __future__ import annotations

from typing import Any

import pytest
from how_many import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tune_programs import Program, machines, programs

import tilewright as tvm
from tilewright import tir
from tilewright.target import Target
from tilewright.tir.transform.plan_allocations import plan_buffer_allocation

EXAMPLES = examples(15)
COMMON: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}


def target(figures: dict[str, Any]) -> Target:
    return Target("llvm").with_machine(figures) if figures else Target("llvm")


def check(program: Program, figures: dict[str, Any], seed: int) -> None:
    func = program.func()
    want, got = program.arrays(seed), program.arrays(seed)
    sch = tvm.auto_schedule(func, target(figures))
    with tvm.transform.PassContext(opt_level=0):  # what LLVM makes of plain loops is tested elsewhere
        tvm.build(func)(*want)
    tvm.build(sch.mod)(*got)
    program.compare(got, want)


@settings(max_examples=EXAMPLES, **COMMON)
@given(programs(), machines(), st.integers(0, 3))
def test_schedules_compute_what_plain_loops_do(program: Program, figures: dict[str, Any], seed: int) -> None:
    check(program, figures, seed)


@pytest.mark.slow
@settings(max_examples=examples(5) * EXAMPLES, **COMMON)
@given(programs(), machines(), st.integers(4, 7))
def test_many_schedules_compute_what_plain_loops_do(
    program: Program, figures: dict[str, Any], seed: int
) -> None:
    check(program, figures, seed)


@settings(max_examples=EXAMPLES, **COMMON)
@given(programs(most=3, sizes=(1, 2, 3, 5, 8, 17), elements=200), machines())
def test_small_schedules_agree_with_the_interpreter(program: Program, figures: dict[str, Any]) -> None:
    """It reports accesses out of bounds, reads of what nobody wrote and races besides."""
    func = program.func()
    sch = tvm.auto_schedule(func, target(figures))
    want, got = program.arrays(), program.arrays()
    tir.interpret(func, *want)
    # memory that is used inside a parallel loop only belongs to its iterations, as it will when it is lowered
    tir.interpret(plan_buffer_allocation(sch.mod["main"]), *got)
    program.compare(got, want)


@settings(max_examples=EXAMPLES, **COMMON)
@given(programs(), machines())
def test_schedules_are_the_same_each_time_and_their_traces_replay(
    program: Program, figures: dict[str, Any]
) -> None:
    func = program.func()
    one, two = (tvm.auto_schedule(func, target(figures)) for _ in range(2))
    assert str(one.trace) == str(two.trace)
    assert one.explanation.to_json() == two.explanation.to_json()
    again = tir.Schedule(func)
    one.trace.apply_to_schedule(again, remove_postproc=False)
    tvm.ir.assert_structural_equal(again.mod, one.mod)
