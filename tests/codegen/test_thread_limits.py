"""`config.num_threads` as a `with` form: how many threads the pool uses for calls inside."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest

import tilewright as tvm
from tilewright import config
from tilewright.script import tir as T

_seen: set[int] = set()
_came = threading.Condition()


@pytest.fixture(scope="module")
def count() -> Iterator[object]:
    """Counts the threads that a call of a parallel loop uses: each waits until all that may come have come."""
    limit = 0

    @tvm.register_func("test.thread_limits.seen", override=True)
    def seen() -> None:
        with _came:
            _seen.add(threading.get_native_id())
            _came.notify_all()
            assert _came.wait_for(lambda: len(_seen) >= limit, timeout=60)
            _came.wait_for(lambda: len(_seen) > limit, timeout=0.001)  # one too many may come a little later

    @T.prim_func
    def loop(A: T.Buffer((48,), "float32")):
        for i in T.parallel(48):
            T.evaluate(T.call_packed("test.thread_limits.seen", dtype="int32"))
            A[i] = A[i] * T.float32(2)

    f = tvm.build(loop)

    def run() -> int:
        nonlocal limit
        limit = tvm.runtime.num_threads()
        _seen.clear()
        x = np.ones(48, "float32")
        f(x)
        assert (x == 2).all()
        return len(_seen)

    yield run
    tvm.runtime.remove_global_func("test.thread_limits.seen")


@pytest.mark.slow
def test_fewer_more_and_back_again(count) -> None:
    usual = count()
    for n in (1, 3, 5, 2, 1):
        with config.num_threads.set(n):
            assert count() == n == tvm.runtime.num_threads()
    assert count() == usual


def test_the_inner_form_wins_and_the_outer_one_returns(count) -> None:
    with config.using(num_threads=3):
        with config.using(num_threads=1):
            assert count() == 1
        assert count() == 3


@pytest.mark.slow
def test_other_threads_are_not_concerned(count) -> None:
    usual = count()
    told: list[int] = []
    with config.num_threads.set(usual + 2):
        thread = threading.Thread(target=lambda: told.append(count()))
        thread.start()
        thread.join()
        assert count() == usual + 2
    assert told == [usual]


@pytest.mark.slow
def test_too_many_threads_with_limits_are_told(count) -> None:
    stop, held, refused = threading.Event(), [], []

    def hold() -> None:
        try:
            with config.num_threads.set(1):
                held.append(1)
                stop.wait(60)
        except tvm.TVMError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=hold) for _ in range(66)]
    for thread in threads:
        thread.start()
    while len(held) + len(refused) < 66:
        time.sleep(0.001)
    stop.set()
    for thread in threads:
        thread.join()
    assert len(held) == 64
    assert refused == ["config.num_threads: too many threads hold it at once; at most 64 can"] * 2
    with config.num_threads.set(1):
        assert count() == 1
