"""Weights are fetched while the kernels before theirs compute: what is planned, and that results stay as they are."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.functor import pre_order
from tilewright.relay.backend.fetch_ahead import FetchAhead, plan_fetches
from tilewright.runtime.model import LINE
from tilewright.script import tir as T


def fetched(plan, slots):
    return [(at, at + stride * n) for (at, stride), n in zip(plan, slots, strict=True)]


def test_each_step_fetches_what_the_next_one_needs():
    plan = plan_fetches([(0, 640), (640, 1280), (1280, 1920)], [10, 20, 10], 1 << 20)
    assert plan == [(640, 64), (1280, 32), (0, 0)]


def test_what_one_step_has_no_slots_for_is_fetched_before():
    needs, slots = [(0, 64), (64, 128), (128, 1408)], [100, 10, 10]
    plan = plan_fetches(needs, slots, 1 << 20)
    assert plan[1] == (768, 64)
    start, end = fetched(plan, slots)[0]
    assert start == 64 and 768 <= end < 768 + 100  # the rest, and its own neighbour's, with no gap


def test_nothing_is_fetched_too_early():
    plan = plan_fetches([(0, 64), (64, 128), (128, 128 + (1 << 20))], [1 << 20, 0, 0], 4096)
    ((start, end),) = fetched(plan[:1], [1 << 20])
    assert start == 64 and end - start <= max(4096 + 64, 1 << 20)
    assert plan_fetches([(0, 64), (64, 1 << 20)], [0, 100], 4096) == [(0, 0), (0, 0)]


@T.prim_func
def product(a: T.handle, b: T.handle, c: T.handle):
    A = T.match_buffer(a, (4096,), "float32")
    B = T.match_buffer(b, (4096,), "float32")
    C = T.match_buffer(c, (64,), "float32")
    for i in T.parallel(4):
        for j in range(2):
            for k in range(32):
                C[T.ramp(i * 16, 1, 16)] = (
                    C[T.ramp(i * 16, 1, 16)]
                    + A[T.ramp(k * 16, 1, 16)] * B[T.ramp(k * 16, 1, 16)]
                    + A[T.ramp(k * 16 + 512, 1, 16)] * B[T.ramp(j * 16, 1, 16)]
                    + A[T.ramp(k * 16 + 1024, 1, 16)] * B[T.ramp(j * 16 + 64, 1, 16)]
                    + A[T.ramp(k * 16 + 2048, 1, 16)] * B[T.ramp(j * 16 + 96, 1, 16)]
                )


def places(func, stride):
    """What the hints of a function ask for, in bytes from `ahead` on, one by one."""
    (ahead,) = [b for b in func.buffer_map.values() if b.name == "ahead"]
    (number,) = [p for p in func.params if p.name == "stride"]
    found = []

    def walk(s, known):
        if isinstance(s, tvm.tir.For):
            for i in range(int(s.extent)):
                walk(s.body, {**known, s.loop_var: tvm.tir.IntImm(s.loop_var.dtype, i)})
            return
        if isinstance(s, tvm.tir.Evaluate):
            (load,) = [m for m in pre_order(s.value) if isinstance(m, tvm.tir.BufferLoad)]
            assert load.buffer is ahead
            at = tvm.tir.stmt_functor.substitute(load.indices[0], known)
            found.append(int(tvm.arith.Analyzer().simplify(at)))
        for c in s.children():
            if isinstance(c, tvm.tir.Stmt):
                walk(c, known)

    walk(func.body, {number: tvm.tir.IntImm("int64", stride)})
    return found


@pytest.mark.parametrize("vector_bits", [128, 512])
def test_slots_follow_each_other_through_all_loops(vector_bits):
    given = FetchAhead(vector_bits)
    made = given.add(product)
    assert given.slots % (4 * 2) == 0 and given.slots > 0
    assert sorted(places(made, LINE)) == [i * LINE for i in range(given.slots)]


@T.prim_func
def short(a: T.handle, n: T.int32):
    A = T.match_buffer(a, (4096,), "float32")
    for i in range(4096):
        A[i] = A[i] + T.float32(1)


def test_short_loops_have_no_slots():
    given = FetchAhead(512)
    assert given.add(short) is short and given.slots == 0


def chain(width, depth):
    rng = np.random.default_rng(0)
    x = relay.var("x", shape=(8, width))
    y = x
    for _ in range(depth):
        y = relay.nn.relu(
            relay.nn.dense(y, relay.const(rng.standard_normal((width, width), np.float32) / 16))
        )
    return tvm.IRModule.from_expr(relay.Function([x], y))


def built(mod, fetch):
    with tvm.transform.PassContext(opt_level=3, config={"tilewright.fetch_ahead": fetch}):
        return relay.build(mod, "llvm -num-cores=2")


@pytest.mark.slow
def test_models_compute_the_same_and_fetch_all_weights_but_the_first():
    mod, x = chain(512, 5), np.random.default_rng(1).standard_normal((8, 512)).astype("float32")
    results = []
    for fetch in (False, True):
        lib = built(mod, fetch)
        run = graph_executor.GraphModule(lib["default"](tvm.cpu()))
        run.set_input("x", x)
        run.run()
        results.append(run.get_output(0).numpy())
        steps = run.module.info.steps
        assert [bool(s.ahead) for s in steps] == [fetch] * len(steps)
        for step, call, _ in run.module.steps():  # one by one, too
            assert not call.run(), step.name
        np.testing.assert_array_equal(run.get_output(0).numpy(), results[-1])
    np.testing.assert_array_equal(*results)
    starts = [s.ahead[0] for s in steps if s.ahead[1]]
    assert len(starts) >= 4 and starts == sorted(starts)
