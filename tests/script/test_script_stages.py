"""Whatever a program becomes on its way to machine code reads back as it was printed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from round_trip import check, checked_passes

import tilewright as tvm
from tilewright import te


def matmul() -> tuple[Any, list[Any]]:
    A, B = te.placeholder((30, 29), name="A"), te.placeholder((29, 33), name="B")
    k = te.reduce_axis((0, 29), name="k")
    C = te.compute((30, 33), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="C")
    s = te.create_schedule(C.op)
    i, j, i_in, j_in = s[C].tile(C.op.axis[0], C.op.axis[1], 8, 8)
    k_out, k_in = s[C].split(s[C].op.reduce_axis[0], 4)
    s[C].reorder(i, j, k_out, i_in, k_in, j_in)
    s[C].parallel(i)
    s[C].unroll(k_in)
    s[C].vectorize(j_in)
    return s, [A, B, C]


def softmax() -> tuple[Any, list[Any]]:
    n = te.var("n")
    A = te.placeholder((n, 10), name="A")
    k, m = te.reduce_axis((0, 10), name="k"), te.reduce_axis((0, 10), name="m")
    top = te.compute((n,), lambda i: te.max(A[i, m], axis=m), name="top")
    e = te.compute((n, 10), lambda i, j: te.exp(A[i, j] - top[i]), name="e")
    total = te.compute((n,), lambda i: te.sum(e[i, k], axis=k), name="total")
    out = te.compute((n, 10), lambda i, j: e[i, j] / total[i], name="out")
    s = te.create_schedule(out.op)
    s[top].compute_at(s[e], e.op.axis[0])
    return s, [A, out]


def convolution() -> tuple[Any, list[Any]]:
    A, W = te.placeholder((1, 3, 9, 9), name="A"), te.placeholder((4, 3, 3, 3), name="W")
    padded = te.compute(
        (1, 3, 11, 11),
        lambda n, c, y, x: te.if_then_else(
            te.all(y >= 1, y < 10, x >= 1, x < 10), A[n, c, y - 1, x - 1], te.const(0.0, "float32")
        ),
        name="padded",
    )
    c, y, x = (te.reduce_axis((0, 3), name=v) for v in "cyx")
    out = te.compute(
        (1, 4, 9, 9),
        lambda n, o, h, w: te.sum(padded[n, c, h + y, w + x] * W[o, c, y, x], axis=[c, y, x]),
        name="out",
    )
    s = te.create_schedule(out.op)
    s[padded].compute_at(s[out], out.op.axis[2])
    return s, [A, W, out]


def argmax() -> tuple[Any, list[Any]]:
    pick = te.comm_reducer(
        lambda x, y: (te.if_then_else(x[1] >= y[1], x[0], y[0]), te.max(x[1], y[1])),
        lambda i, v: (te.const(-1, i), te.min_value(v)),
        name="pick",
    )
    A = te.placeholder((7, 11), "float16", name="A")
    k = te.reduce_axis((0, 11), name="k")
    at, best = te.compute((7,), lambda i: pick((k.var, A[i, k]), axis=k), name="best")
    return te.create_schedule(at.op), [A, at, best]


def running_sum() -> tuple[Any, list[Any]]:
    A = te.placeholder((6, 5), name="A")
    state = te.placeholder((6, 5), name="state")
    first = te.compute((1, 5), lambda _, i: A[0, i], name="first")
    step = te.compute((6, 5), lambda t, i: state[t - 1, i] + A[t, i], name="step")
    out = te.scan(first, step, state, inputs=[A])
    return te.create_schedule(out.op), [A, out]


PROGRAMS: list[Callable[[], tuple[Any, list[Any]]]] = [matmul, softmax, convolution, argmax, running_sum]


@pytest.mark.parametrize("make", PROGRAMS)
def test_building(make: Callable[[], tuple[Any, list[Any]]]) -> None:
    s, args = make()
    with checked_passes() as seen:
        tvm.build(s, args, target="llvm")
    assert {"tir.LowerOpaqueBlock", "tir.FlattenBuffer"} <= set(seen)


def test_the_check_finds_what_reads_back_as_something_else() -> None:
    from tilewright.ir import IRModule, PrimFunc
    from tilewright.ir.expr import const
    from tilewright.ir.stmt import Evaluate

    class Odd(PrimFunc):
        def script(self, **options: Any) -> str:
            return super().script(**options).replace("evaluate(1)", "evaluate(2)")

    with pytest.raises(ValueError, match="after nothing, what is printed is not what was there"):
        check(Odd([], Evaluate(const(1))), "nothing")
    check(IRModule({"main": PrimFunc([], Evaluate(const(1)))}), "nothing")
