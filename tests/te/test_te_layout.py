"""te stages that lay their tensor out anew, or keep only a window of it."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir


def chain() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    A = te.placeholder((8, 32), name="A")
    B = te.compute((8, 32), lambda i, j: A[i, j] * 2.0, name="B")
    return A, B, te.compute((8, 32), lambda i, j: B[i, j] + 1.0, name="C")


def blur() -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    W = te.placeholder((16, 16), name="W")
    H = te.compute((16, 14), lambda i, j: W[i, j] + W[i, j + 1] + W[i, j + 2], name="H")
    return W, H, te.compute((14, 14), lambda i, j: H[i, j] + H[i + 1, j] + H[i + 2, j], name="V")


@pytest.mark.parametrize("mapping", [lambda i, j: [i, j // 8, j % 8], lambda i, j: [j, i]])
def test_another_layout_gives_the_same(mapping) -> None:
    A, B, C = chain()
    s = te.create_schedule(C.op)
    axes = s[B].transform_layout(mapping)
    s[B].vectorize(axes[-1])
    x = np.random.default_rng(0).random((8, 32), dtype=np.float32)
    got = np.zeros_like(x)
    tvm.build(s, [A, C])(x, got)
    np.testing.assert_array_equal(got, x * 2 + 1)


def test_the_layout_comes_first() -> None:
    _, B, C = chain()
    s = te.create_schedule(C.op)
    s[B].split(B.op.axis[0], factor=2)
    with pytest.raises(tir.ScheduleError, match="the stage is scheduled already"):
        s[B].transform_layout(lambda i, j: [j, i])


def test_a_reduction_keeps_its_layout() -> None:
    A = te.placeholder((8, 8), name="A")
    k = te.reduce_axis((0, 8), "k")
    R = te.compute((8,), lambda i: te.sum(A[i, k], axis=k), name="R")
    s = te.create_schedule(R.op)
    with pytest.raises(tir.ScheduleError, match="R is a reduction, whose loops cannot follow its layout"):
        s[R].transform_layout(lambda i: [i // 4, i % 4])


def test_a_rolling_buffer_holds_a_window_and_computes_each_row_once() -> None:
    W, H, V = blur()
    s = te.create_schedule(V.op)
    s[H].compute_at(s[V], V.op.axis[0])
    s[H].rolling_buffer()
    assert "(42,)" in tvm.lower(s, [W, V]).script()  # three rows of 14
    w = np.random.default_rng(0).integers(0, 9, (16, 16)).astype("float32")
    h = w[:, :-2] + w[:, 1:-1] + w[:, 2:]
    got = np.zeros((14, 14), "float32")
    for run in (tvm.build(s, [W, V]), lambda *a: tir.interpret(tvm.lower(s, [W, V])["main"], *a)):
        got[:] = 0
        run(w, got)
        np.testing.assert_array_equal(got, h[:-2] + h[1:-1] + h[2:])
