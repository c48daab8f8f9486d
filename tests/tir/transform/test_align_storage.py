"""Strides asked for by storage_align."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te, tir


def program() -> tuple[te.Schedule, list[te.Tensor], te.Tensor]:
    A = te.placeholder((4, 8, 16), name="A")
    B = te.compute((4, 8, 16), lambda i, j, k: A[i, j, k] * 2.0, name="B")
    C = te.compute((4, 8, 16), lambda i, j, k: B[i, j, k] + 1.0, name="C")
    return te.create_schedule(C.op), [A, C], B


@pytest.mark.parametrize(
    "axis, factor, offset, strides",
    [(1, 16, 1, (136, 17)), (1, 32, 0, (256, 32)), (0, 100, 4, (204, 16))],
)
def test_rows_lie_as_far_apart_as_asked(
    axis: int, factor: int, offset: int, strides: tuple[int, int]
) -> None:
    s, args, B = program()
    s[B].storage_align(B.op.axis[axis], factor, offset)
    text = tvm.lower(s, args).script()
    assert f"B_1[i * {strides[0]} + j * {strides[1]} + k]" in text
    x = np.random.default_rng(0).random((4, 8, 16), dtype=np.float32)
    got = np.zeros_like(x)
    tvm.build(s, args)(x, got)
    np.testing.assert_array_equal(got, x * 2 + 1)
    got[:] = 0
    tir.interpret(tvm.lower(s, args)["main"], x, got)
    np.testing.assert_array_equal(got, x * 2 + 1)


def test_nothing_asked_nothing_done() -> None:
    s, args, _ = program()
    func = s.to_prim_func(args)
    mod = tvm.IRModule({"main": func})
    assert tir.transform.AlignStorage()(mod) is mod
