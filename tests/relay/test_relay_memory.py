"""The memory plan: places in one arena."""

from __future__ import annotations

import time

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import relay
from tilewright.relay.backend.memory_plan import ALIGNMENT, Lifetime, arena_peak, plan_arena, round_up
from tilewright.relay.backend.program import make_program
from tilewright.relay.testing import run_infer_type


def overlaps(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.integers(0, 30), st.integers(0, 12)).map(
            lambda t: Lifetime(t[0], t[1], t[1] + t[2])
        ),
        max_size=40,
    )
)
def test_no_two_that_live_at_once_overlap(values: list[Lifetime]) -> None:
    offsets, total = plan_arena(values)
    for i, (a, at) in enumerate(zip(values, offsets, strict=True)):
        assert at % ALIGNMENT == 0 and at + a.size <= total
        for b, there in list(zip(values, offsets, strict=True))[:i]:
            if a.size and b.size and overlaps(a, b):
                assert at + a.size <= there or there + b.size <= at
    assert arena_peak(values) <= total <= sum(round_up(v.size) for v in values)


def test_a_chain_needs_two_places() -> None:
    offsets, total = plan_arena([Lifetime(1000, i, i + 1) for i in range(10)])
    assert total == 2 * 1024 and set(offsets) == {0, 1024}


def test_the_least_hole_is_taken() -> None:
    # two long ones leave holes of 256 (between them) and more (behind); the small one takes the small hole
    values = [Lifetime(512, 0, 4), Lifetime(256, 0, 1), Lifetime(512, 0, 4), Lifetime(192, 2, 3)]
    offsets, total = plan_arena(values)
    assert total == 512 + 256 + 512
    assert offsets[3] == offsets[1]


def test_long_programs_are_planned_quickly() -> None:
    start = time.process_time()
    _, total = plan_arena([Lifetime(64, i, i + 1) for i in range(20000)])
    assert total == 128 and time.process_time() - start < 5


def fused(func: relay.Function) -> relay.Function:
    return relay.transform.FuseOps(2)(run_infer_type(tvm.IRModule.from_expr(func)))["main"]


def test_results_are_written_where_the_caller_wants_them() -> None:
    x = relay.var("x", shape=(4, 16))
    a = relay.nn.softmax(x)
    program = make_program(fused(relay.Function([x], relay.Tuple([relay.nn.softmax(a), a]))))
    assert [s.outputs[0].storage.kind for s in program.steps] == ["output", "output"]
    assert program.arena == 0


def test_a_result_that_is_an_input_or_twice_a_result_is_copied() -> None:
    x = relay.var("x", shape=(4, 16))
    a = relay.nn.softmax(x)
    program = make_program(fused(relay.Function([x], relay.Tuple([a, a, x]))))
    assert [s.name for s in program.steps] == ["fused_nn_softmax", "copy", "copy_1"]


def test_a_reshape_alone_is_no_step() -> None:
    x = relay.var("x", shape=(4, 16))
    y = relay.nn.softmax(relay.reshape(relay.nn.softmax(x), (8, 8)))
    program = make_program(fused(relay.Function([x], y)))
    assert len(program.steps) == 2 and program.arena == 4 * 16 * 4


def test_the_report() -> None:
    x = relay.var("x", shape=(4, 16))
    w = relay.const(np.ones((8, 16), "float32"))
    y = relay.nn.softmax(relay.nn.softmax(relay.nn.dense(x, w)))
    report = relay.build(tvm.IRModule.from_expr(relay.Function([x], y)), "llvm").memory_report()
    assert report.inputs == 256 and report.outputs == 128
    assert report.arena == 2 * 128 and report.weights >= 8 * 16 * 4
    assert report.peak == report.inputs + report.outputs + report.arena + report.weights
    assert "peak" in str(report) and f"{report.peak:,}" in str(report)
