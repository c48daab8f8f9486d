"""Virtual threads of a program for CPUs: a stage inside is computed for each of them, not for all at once."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.compiler.lower import as_module


def program(tag: str, kernel: bool = False):
    a = te.placeholder((16,), name="A", dtype="float32")
    b = te.compute((16,), lambda i: a[i] * 2, name="B")
    c = te.compute((16,), lambda i: b[i] + 1, name="C")
    s = te.create_schedule(c.op)
    block, axis = s[c].split(c.op.axis[0], nparts=1)
    if kernel:
        s[c].bind(block, te.thread_axis("blockIdx.x"))
    thread, rest = s[c].split(axis, nparts=2)
    outer, _ = s[c].split(rest, factor=2)
    s[c].bind(thread, te.thread_axis(tag))
    s[b].compute_at(s[c], outer)
    return s, [a, c]


@pytest.mark.parametrize("tag", ["vthread", "cthread"])
def test_a_stage_is_computed_for_its_thread(tag, expect):
    s, args = program(tag)
    with tvm.target.Target("llvm"):
        mod = tvm.lower(s, args)
    expect(
        mod["main"],
        """
        @T.prim_func
        def main(A: T.Buffer((16,), "float32"), C: T.Buffer((16,), "float32")):
            T.func_attr({"tir.noalias": T.bool(True)})
            B = T.allocate([4], "float32", "global")
            for i_inner_inner_outer in range(4):
                B_1 = T.decl_buffer((4,), data=B)
                for ax0 in range(2):
                    B_1[ax0] = A[i_inner_inner_outer * 2 + ax0] * T.float32(2)
                    B_1[ax0 + 2] = A[i_inner_inner_outer * 2 + ax0 + 8] * T.float32(2)
                for i_inner_inner_inner in range(2):
                    C[i_inner_inner_outer * 2 + i_inner_inner_inner] = B_1[i_inner_inner_inner] + T.float32(1)
                    C[i_inner_inner_outer * 2 + i_inner_inner_inner + 8] = B_1[i_inner_inner_inner + 2] + T.float32(1)
        """,
    )
    array = np.arange(16, dtype="float32")
    got = np.zeros(16, "float32")
    tir.interpret(mod, array, got)
    np.testing.assert_array_equal(got, array * 2 + 1)


def test_memory_that_the_threads_of_a_kernel_share_holds_all_of_it():
    s, args = program("vthread", kernel=True)
    text = as_module(s, args, "main", None).script()
    assert "for ax0 in range(10):" in text  # the hull of both virtual threads, at one place
