"""Forks of a process whose other threads compile: the child must be able to compile, too."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import warnings

import pytest
from how_many import examples

from tilewright import forks

_COMPILES_AND_FORKS = """
import os, sys, threading
import numpy as np
import tilewright as tvm
from tilewright import te

def build(i):
    A = te.placeholder((64,), name="A")
    C = te.compute((64,), lambda k: te.exp(A[k]) + float(i), name="C")
    f = tvm.build(te.create_schedule(C.op), [A, C], "llvm")
    out = tvm.nd.array(np.zeros(64, "float32"))
    f(tvm.nd.array(np.zeros(64, "float32")), out)
    assert out.numpy()[0] == np.float32(1 + i)

build(0)
working = threading.Event()

def work():
    i = 0
    while True:
        i += 1
        build(i % 100)
        working.set()

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
working.wait()
for k in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            build(k)
            code = 0
        finally:
            os._exit(code)
    print(os.waitpid(child, 0)[1], flush=True)
os._exit(0)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_compiles_while_other_threads_of_the_parent_do() -> None:
    count = examples(40)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _COMPILES_AND_FORKS, str(count)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.split() == ["0"] * count, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_lock_that_another_thread_holds_is_free_in_the_child() -> None:
    lock = forks.new_in_child(threading.Lock())
    taken, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            taken.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    taken.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if lock.acquire(blocking=False) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert lock.locked()
    leave.set()
    thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_garbage_is_collected_in_the_child_though_another_thread_had_paused_it() -> None:
    from tilewright.ir.transform import pass_session

    inside, leave = threading.Event(), threading.Event()

    def compile_for_ever() -> None:
        with pass_session():
            inside.set()
            leave.wait()

    was = gc.isenabled()
    gc.enable()
    thread = threading.Thread(target=compile_for_ever)
    thread.start()
    inside.wait()
    try:
        assert not gc.isenabled()
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitpid(child, 0)[1] == 0
    finally:
        leave.set()
        thread.join()
        if not was:
            gc.disable()


def test_a_cached_property_is_computed_once() -> None:
    class Thing:
        computed = 0

        @forks.cached_property
        def value(self) -> int:
            """What it is worth."""
            self.computed += 1
            return 42

    thing = Thing()
    assert (thing.value, thing.value, thing.computed) == (42, 42, 1)
    assert Thing.value.__doc__ == "What it is worth."


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_garbage_of_the_parent_is_not_finalized_in_the_child() -> None:
    """Its finalizer may wait for threads that only the parent has, as that of a session of onnxruntime does."""

    class Session:
        def __init__(self) -> None:
            self.me, self.home = self, os.getpid()

        def __del__(self) -> None:
            if os.getpid() != self.home:
                os._exit(7)

    was = gc.isenabled()
    gc.disable()
    try:
        Session()
        assert forks.result_of_child(lambda: b"done" if gc.collect() >= 0 else b"") == b"done"
    finally:
        gc.collect()
        if was:
            gc.enable()


_INTERRUPTED_FORK = """
import os, signal, threading
from tilewright import forks

lock = threading.RLock()
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGINT))
forks.held_by_forks(lock)
try:
    WORK
    print("not interrupted")
except KeyboardInterrupt:
    print("interrupted")
taken = []
thread = threading.Thread(target=lambda: taken.append(lock.acquire(timeout=60)))
thread.start()
thread.join()
print(taken, open(f"/proc/self/task/{os.getpid()}/children").read())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc as Linux has them")
@pytest.mark.parametrize(
    ("work", "said"),
    [
        ("forks.result_of_child(lambda: b'')", "interrupted"),
        ("os.waitpid(os.fork() or os._exit(0), 0)", "not interrupted"),  # Python drops the exception, not we
    ],
)
def test_ctrl_c_in_the_midst_of_a_fork(work: str, said: str) -> None:
    program = _INTERRUPTED_FORK.replace("WORK", work)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.stdout == f"{said}\n[True] \n", done.stderr


def test_forks_of_the_compiler_give_no_warnings_about_threads() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with forks.forking():
            warnings.warn(
                "os.fork() was called. os.fork() is incompatible with JAX", RuntimeWarning, stacklevel=1
            )
            with pytest.raises(RuntimeWarning, match="something else"):
                warnings.warn("something else", RuntimeWarning, stacklevel=1)
        with pytest.raises(RuntimeWarning, match="was called"):
            warnings.warn("os.fork() was called", RuntimeWarning, stacklevel=1)
