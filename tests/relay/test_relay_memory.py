"""The memory plan: places in one arena."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest
from how_many import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import tilewright as tvm
from tilewright import relay, te
from tilewright.relay.backend.memory_plan import ALIGNMENT, Lifetime, arena_peak, plan_arena, round_up
from tilewright.relay.backend.program import make_program, plan_scratch
from tilewright.relay.backend.scratch import Scratch
from tilewright.relay.testing import run_infer_type


def overlaps(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


@settings(max_examples=examples(200), derandomize=True, deadline=None)
@given(
    values=st.lists(
        st.tuples(st.integers(0, 1000), st.integers(0, 30), st.integers(0, 12)).map(
            lambda t: Lifetime(t[0], t[1], t[1] + t[2])
        ),
        max_size=40,
    )
)
@pytest.mark.parametrize("spread", [False, True])
def test_no_two_that_live_at_once_overlap(spread: bool, values: list[Lifetime]) -> None:
    offsets, total = plan_arena(values, spread=spread)
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


@pytest.mark.parametrize("spread", [False, True])
def test_long_programs_are_planned_quickly(spread: bool) -> None:
    start = time.process_time()
    _, total = plan_arena([Lifetime(64, i, i + 1) for i in range(20000)], spread=spread)
    assert total == 128 and time.process_time() - start < 5


def test_small_ones_move_on_through_the_room_of_large_ones() -> None:
    values = [Lifetime(64 * 16, 0, 1), *(Lifetime(64, i, i + 1) for i in range(2, 40))]
    together, total = plan_arena(values)
    apart, same = plan_arena(values, spread=True)
    assert total == same == 1024 and len(set(together)) == 2
    assert len(set(apart)) == 16 and apart[1:17] == [64 * i for i in range(16)]


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
    assert report.peak == report.inputs + report.outputs + report.arena + report.weights + report.threads
    assert "peak" in str(report) and f"{report.peak:,}" in str(report)


def test_what_a_kernel_allocates_before_its_loops_is_in_the_arena() -> None:
    m = 2048
    a = te.placeholder((m,), name="a")
    b = te.compute((m,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((m,), lambda i: b[m - 1 - i] * 2.0, name="c")
    s = te.create_schedule(c.op)
    scratch = Scratch()
    func = tvm.lower(s, [a, c], name="f")["f"]
    taken = scratch.take(func)
    assert scratch.given == [("b_scratch", 4 * m)] and scratch.inside == 0
    assert len(taken.params) == 3 and "allocate" not in str(taken)
    array = np.arange(m, dtype="float32")
    x, y, room = tvm.nd.array(array), tvm.nd.empty((m,)), tvm.nd.empty((m,))
    tvm.build(tvm.IRModule({"f": taken}), target="llvm")["f"](x, y, room)
    np.testing.assert_array_equal(y.numpy(), (array[::-1] + 1) * 2)


def test_small_memory_and_that_of_threads_stays_in_the_kernel() -> None:
    rows, columns = 64, 2048
    a = te.placeholder((rows, columns), name="a")
    b = te.compute((rows, columns), lambda i, j: a[i, j] + 1.0, name="b")
    c = te.compute((rows, columns), lambda i, j: b[i, columns - 1 - j] * 2.0, name="c")
    s = te.create_schedule(c.op)
    s[c].parallel(c.op.axis[0])
    s[b].compute_at(s[c], c.op.axis[0])
    func = tvm.lower(s, [a, c], name="f")["f"]
    scratch = Scratch()
    assert scratch.take(func) is func
    assert not scratch.given and scratch.inside == 4 * columns


@pytest.mark.slow
def test_a_model_gives_its_kernels_their_memory() -> None:
    x = relay.var("x", shape=(1, 64, 28, 28))
    rng = np.random.default_rng(0)
    y: Any = x
    for _ in range(2):
        w = relay.const(rng.standard_normal((64, 64, 3, 3)).astype("float32") * 0.05)
        y = relay.nn.relu(relay.nn.conv2d(y, w, padding=(1, 1)))
    mod = tvm.IRModule.from_expr(relay.Function([x], y))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, "llvm")
    places = [(i, a) for i, step in enumerate(lib.model.steps) for a in step.args if a.space == "scratch"]
    inside = lib.model.inside
    assert places or inside, "neither memory before the loops nor in them: the test needs another convolution"
    for i, place in places:
        others = [a for a in lib.model.steps[i].args if a.space == "arena"]
        ends = place.at + place.nbytes
        assert ends <= lib.memory_report().arena
        assert all(a.at >= ends or a.at + a.nbytes <= place.at for a in others)
    nodes = json.loads(lib.get_graph_json())["nodes"]
    assert len([n for n in nodes if n["op"] == "tvm_op"]) == len(lib.model.steps)
    array = rng.standard_normal((1, 64, 28, 28)).astype("float32")
    expected = relay.create_executor("debug", mod).evaluate()(array).numpy()
    run = lib["default"](tvm.cpu())
    run.run(x=array)
    np.testing.assert_allclose(run.get_output(0).numpy(), expected, rtol=1e-3, atol=1e-3)
    for _, work, _ in run.steps():  # one by one, as the debug executor does
        work()
    np.testing.assert_allclose(run.get_output(0).numpy(), expected, rtol=1e-3, atol=1e-3)


def test_memory_for_kernels_shares_places_with_what_does_not_live_then() -> None:
    x = relay.var("x", shape=(4, 256))
    program = make_program(
        fused(relay.Function([x], relay.nn.softmax(relay.nn.softmax(relay.nn.softmax(x)))))
    )
    before = program.arena
    plan_scratch(program, {0: [4096], 2: [64, 4096]})
    # the first and the last kernel have one tensor in the arena beside their own memory
    assert before == 2 * 4096 and program.arena == 2 * 4096 + 64
    assert program.steps[2].scratch[0].nbytes == 64 and not program.steps[1].scratch
