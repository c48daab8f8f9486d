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


def test_the_layout_comes_first(expect, told) -> None:
    _, B, C = chain()
    s = te.create_schedule(C.op)
    s[B].split(B.op.axis[0], factor=2)
    with pytest.raises(tir.ScheduleError) as caught:
        s[B].transform_layout(lambda i, j: [j, i])
    expect(
        told(caught),
        """
        s[B].transform_layout: the stage already has a schedule
          at test_te_layout.py:LINE

          hint: call transform_layout first, then split, reorder and mark the new axes
        """,
    )


@pytest.mark.parametrize("mapping", [lambda i, j: [j, i], lambda i, j: [i // 4, j, i % 4]])
def test_a_reduction_in_another_layout(mapping) -> None:
    A, B = te.placeholder((8, 6), name="A"), te.placeholder((6, 5), name="B")
    k = te.reduce_axis((0, 6), "k")
    R = te.compute((8, 5), lambda i, j: te.sum(A[i, k] * B[k, j], axis=k), name="R")
    D = te.compute((8, 5), lambda i, j: R[i, j] + 1.0, name="D")
    s = te.create_schedule(D.op)
    axes = s[R].transform_layout(mapping)
    s[R].reorder(R.op.reduce_axis[0], *axes)
    s[R].unroll(axes[-1])
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 5, (8, 6)).astype("float32"), rng.integers(0, 5, (6, 5)).astype("float32")
    got = np.zeros((8, 5), "float32")
    tvm.build(s, [A, B, D])(a, b, got)
    np.testing.assert_array_equal(got, a @ b + 1)
    shape = [str(d) for d in s.to_prim_func([A, B, D]).body.block.alloc_buffers[0].shape]
    assert shape == [str(axis.dom.extent) for axis in axes]


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
