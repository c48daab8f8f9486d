"""Expressions in stages, and what holds for every schedule of them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir
from tilewright.ir.equal import assert_structural_equal
from tilewright.ir.errors import ScheduleError


def arrays(func, n=6):
    rng = np.random.default_rng(1)
    out = []
    for b in func.buffer_params():
        shape = [int(d) if isinstance(d, tir.IntImm) else n for d in b.shape]
        out.append(rng.integers(-8, 8, shape).astype(str(b.dtype)))
    return out


def same(s, args, *, n=6, build=True):
    """The scheduled program gives what the expressions say: in block form, lowered, and compiled."""
    plain, made = te.create_prim_func(args), s.to_prim_func(args)
    start = arrays(plain, n)
    want = [a.copy() for a in start]
    tir.interpret(plain, *want)

    def run(how):
        got = [a.copy() for a in start]
        how(*got)
        for x, y in zip(want, got, strict=True):
            np.testing.assert_array_equal(y, x, err_msg=str(made))

    run(lambda *a: tir.interpret(made, *a, check_regions=True, detect_races=False))
    run(lambda *a: tir.interpret(tvm.lower(s, args)["main"], *a))
    if build:
        run(tvm.build(s, args, target="llvm"))
    same_again(s, args)
    return made


def same_again(s, args):
    """The trace of the schedule, done on the plain program, makes the same of it."""
    made = s.to_prim_func(args)
    trace = s.trace
    plain = te.create_schedule(s.outputs).to_prim_func(args)
    first, second, third = (tir.Schedule(plain) for _ in range(3))
    trace.apply_to_schedule(first)
    exec("\n".join(trace.as_python()), {"sch": second})
    tir.schedule.Trace.apply_json_to_schedule(json.dumps(trace.as_json()), third, trusted=True)
    for again in (first, second, third):
        assert_structural_equal(again.mod["main"], made)


def matmul(m=10, n=7, k=9):
    A = te.placeholder((m, k), name="A")
    B = te.placeholder((k, n), name="B")
    r = te.reduce_axis((0, k), "k")
    C = te.compute((m, n), lambda i, j: te.sum(A[i, r] * B[r, j], axis=r), name="C")
    return A, B, C


def three(n=12, m=10):
    A = te.placeholder((n, m), name="A")
    B = te.compute((n, m), lambda i, j: A[i, j] * 2, name="B")
    C = te.compute((n, m), lambda i, j: B[i, j] + 1, name="C")
    D = te.compute((n, m), lambda i, j: C[i, j] + B[i, j], name="D")
    return A, B, C, D


def blur():
    A = te.placeholder((12, 14), name="A")
    B = te.compute((12, 12), lambda i, j: A[i, j] + A[i, j + 1] + A[i, j + 2], name="B")
    C = te.compute((10, 12), lambda i, j: B[i, j] + B[i + 1, j] + B[i + 2, j], name="C")
    return A, B, C


def blocks(func):
    sch = tir.Schedule(func)
    return [b.name for b in sch.get_child_blocks(sch.get_block("root"))]


def refusal(action):
    with pytest.raises(ScheduleError) as caught:
        action()
    return re.sub(r"(  at \S+\.py):\d+", r"\1:LINE", str(caught.value))
