"""Memory that is marked volatile: every access of the program is one of the machine code."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright.ir.errors import LoweringError
from tilewright.script import tir as T


def test_volatile_accesses_stay() -> None:
    @T.prim_func
    def f(b: T.handle, c: T.handle):
        B = T.match_buffer(b, [4])
        C = T.match_buffer(c, [4])
        a = T.allocate([4], "float32", scope="global")
        T.attr(a, "volatile_scope", 1)
        A = T.Buffer([4], data=a)
        for i in range(4):
            A[i] = C[i]
        for i in range(4):
            B[i] = A[i] + A[i]

    made = tvm.build(f, target="llvm")
    lines = made.get_source().splitlines()
    assert sum("store volatile" in line for line in lines) == 4
    assert sum("load volatile" in line for line in lines) == 8
    b, c = tvm.nd.empty((4,)), tvm.nd.array(np.arange(4, dtype="float32"))
    made(b, c)
    np.testing.assert_array_equal(b.numpy(), 2 * np.arange(4))


def test_no_masked_access_is_volatile() -> None:
    @T.prim_func
    def f(a: T.handle, b: T.handle, n: T.int32):
        A = T.match_buffer(a, [4])
        B = T.match_buffer(b, [4])
        T.attr(A.data, "volatile_scope", 1)
        B[0:4] = A.vload([T.Ramp(0, 1, 4)], predicate=T.Ramp(0, 1, 4) < T.Broadcast(n, 4))

    with pytest.raises(LoweringError, match=r"a load of \w+ has a predicate, and \w+ is volatile"):
        tvm.build(f, target="llvm")
