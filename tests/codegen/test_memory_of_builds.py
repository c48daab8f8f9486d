"""What stays behind of builds: nothing that grows with their number."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te
from tilewright.runtime.jit import _Linker

_BUILDS = """
import gc, sys
import numpy as np
import tilewright as tvm
from tilewright import te

a, b = (tvm.nd.array(np.zeros(8, "float32")) for _ in range(2))

def build(i):
    A = te.placeholder((8,), name="A")
    C = te.compute((8,), lambda k: A[k] + float(i % 7), name="C")
    f = tvm.build(te.create_schedule(C.op), [A, C], "llvm")
    f(a, b)
    assert b.numpy()[0] == i % 7

def resident():
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

def builds(count):
    for i in range(count):
        build(i)
        if i % 20 == 0:
            gc.collect()  # or garbage that waits for Python is measured

builds(100)
before = resident()
builds(int(sys.argv[1]))
print((resident() - before) // int(sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the memory of a process is read from /proc")
@pytest.mark.long
@pytest.mark.slow
def test_a_build_that_is_gone_leaves_no_memory_behind() -> None:
    """It was 66 KiB in LLVM's passes, and 9 KiB in its linker."""
    done = subprocess.run([sys.executable, "-c", _BUILDS, "300"], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 5 * 1024


def _adding(amount: int) -> Any:
    A = te.placeholder((8,), name="A")
    C = te.compute((8,), lambda k: A[k] + float(amount), name="C")
    return tvm.build(te.create_schedule(C.op), [A, C], "llvm").entry_func


@pytest.mark.slow
def test_code_lives_for_as_long_as_its_functions() -> None:
    """A linker serves some libraries and then another takes over; what the old ones linked stays."""
    a, b = (tvm.nd.array(np.zeros(8, "float32")) for _ in range(2))
    kept = []
    for i in range(2 * _Linker._SERVES + 3):
        function = _adding(i)
        if i % 5 == 0:
            kept.append((i, function))
    gc.collect()
    for i, function in kept:
        function(a, b)
        assert b.numpy()[0] == i
