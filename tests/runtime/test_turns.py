"""One executor and several threads: refused, or right; never silently wrong."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.contrib.debugger import debug_executor

_REMEDY = (
    'an executor has one memory, which is for one thread at a time: make one for each thread, lib["default"](device) '
    "(they share the weights), or take turns with a lock around set_input, run and get_output"
)


@pytest.fixture(scope="module")
def lib() -> Any:
    x = relay.var("x", shape=(64, 64))
    w = relay.const(np.random.default_rng(0).random((64, 64), "float32"))
    body = relay.nn.relu(relay.nn.dense(relay.nn.dense(x, w), w)) + relay.const(1.0)
    return relay.build(tvm.IRModule.from_expr(relay.Function([x], body)), "llvm")


def executor(lib: Any) -> Any:
    return graph_executor.GraphModule(lib["default"](tvm.cpu(0)))


class Waiting:
    """A model's own call, which begins and then waits until it is told to go on."""

    def __init__(self, call: Any) -> None:
        self.call, self.begun, self.go_on = call, threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.begun.set()
        self.go_on.wait()
        self.call()


@pytest.mark.slow
@pytest.mark.parametrize(
    "create", [executor, lambda lib: debug_executor.create(lib.get_graph_json(), lib, tvm.cpu())]
)
def test_what_another_thread_runs_is_left_alone(lib: Any, create: Any) -> None:
    m = create(lib)
    m.module.run()
    before = m.get_output(0).numpy()
    slow = m.module._call = m.module._made = Waiting(m.module._call)
    thread = threading.Thread(target=m.module.run)
    thread.start()
    slow.begun.wait()
    new = np.ones((64, 64), "float32")
    for attempt in (
        m.run,
        m.module.run,
        lambda: m.set_input("x", new),
        lambda: m.run(x=new),
        lambda: m.set_input_zero_copy("x", tvm.nd.array(new)),
        lambda: m.set_output_zero_copy(0, tvm.nd.array(new)),
        lambda: m.load_params(b""),
        lambda: m.benchmark(tvm.cpu()),
    ):
        with pytest.raises(tvm.TVMError) as caught:
            attempt()
        assert str(caught.value) == f"another thread runs this executor now; {_REMEDY}"
    slow.go_on.set()
    thread.join()
    np.testing.assert_array_equal(m.get_output(0).numpy(), before)
    m.set_input("x", new)
    m.run()  # as ever


def in_a_thread(work: Any) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def test_an_input_that_another_thread_has_overwritten_is_not_run(lib: Any) -> None:
    m, ours, theirs = executor(lib), np.zeros((64, 64), "float32"), np.ones((64, 64), "float32")
    m.set_input("x", ours)
    in_a_thread(lambda: m.set_input("x", theirs))
    with pytest.raises(tvm.TVMError) as caught:
        m.run()
    assert (
        str(caught.value)
        == f"another thread has set an input after this one did, and before it ran; {_REMEDY}"
    )
    m.set_input("x", ours)
    m.run()
    np.testing.assert_array_equal(m.get_output(0).numpy(), 1)


def test_threads_may_take_turns(lib: Any) -> None:
    """One sets, another runs; or each does all of it, with a lock."""
    m, x = executor(lib), np.random.default_rng(1).random((64, 64), "float32")
    m.run(x=x)
    wanted = m.get_output(0).numpy()
    m.set_input("x", x)
    in_a_thread(m.run)
    np.testing.assert_array_equal(m.get_output(0).numpy(), wanted)
    in_a_thread(lambda: m.set_input("x", x * 0))
    in_a_thread(lambda: m.run(x=x))
    m.run()
    np.testing.assert_array_equal(m.get_output(0).numpy(), wanted)
    lock, wrong = threading.Lock(), []

    def work(scale: float) -> None:
        for _ in range(50):
            with lock:
                m.set_input("x", x * np.float32(scale))
                m.run()
                got = m.get_output(0).numpy()
            if not np.allclose(got, (wanted - 1) * scale + 1, rtol=1e-4):
                wrong.append(scale)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_run_that_fails_leaves_the_executor_as_it_was(lib: Any) -> None:
    m = executor(lib)
    m.run()
    kept, seen = m.module._call, []

    def fail() -> None:
        seen.append(1)
        raise KeyboardInterrupt

    m.module._call = fail
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            m.run()
    m.module._call = kept
    m.run()
    assert len(seen) == 2


def test_executors_of_one_library_share_its_weights(lib: Any) -> None:
    a, b = executor(lib), executor(lib)
    assert a.module._weights is b.module._weights
