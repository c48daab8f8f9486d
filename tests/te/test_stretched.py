"""Arguments that broadcast by themselves: a symbolic dimension that is 1 when the program runs."""

import numpy as np
import pytest

import tilewright as tvm
from tilewright import te


def sizes(*names):
    return [te.size_var(n) for n in names]


@pytest.mark.parametrize("a_shape", [(2, 4), (1, 4), (2, 1), (1, 1)])
@pytest.mark.parametrize("b_shape", [(2, 4), (1, 1)])
def test_a_dimension_of_size_1_meets_any_size(a_shape, b_shape):
    m, n, p, q, r, s = sizes("m", "n", "p", "q", "r", "s")
    A, B = te.placeholder((m, n), name="A"), te.placeholder((p, q), name="B")
    C = te.compute((r, s), lambda i, j: A[i, j] * B[i, j], name="C")
    built = tvm.build(te.create_schedule(C.op), [A, B, C], "llvm")
    a, b = np.random.rand(*a_shape).astype("float32"), np.random.rand(*b_shape).astype("float32")
    c = tvm.nd.array(np.zeros((2, 4), "float32"))
    built(tvm.nd.array(a), tvm.nd.array(b), c)
    np.testing.assert_allclose(c.numpy(), np.broadcast_to(a, (2, 4)) * b, rtol=1e-6)


def test_a_reduction_over_an_axis_of_another_size():
    m, n = sizes("m", "n")
    A, B = te.placeholder((m,), name="A"), te.placeholder((n,), name="B")
    k = te.reduce_axis((0, n), name="k")
    C = te.compute((1,), lambda i: te.sum(A[k] * B[k], axis=k), name="C")
    built = tvm.build(te.create_schedule(C.op), [A, B, C], "llvm")
    a, b = np.array([3.0], "float32"), np.arange(5, dtype="float32")
    c = tvm.nd.array(np.zeros(1, "float32"))
    built(tvm.nd.array(a), tvm.nd.array(b), c)
    assert c.numpy()[0] == 30


def strides_of(args, name):
    func = tvm.lower(te.create_schedule(args[-1].op), args, simple_mode=True)["main"]
    return next(b.strides for b in func.buffer_map.values() if b.name == name)


def test_arguments_that_are_long_enough_stay_contiguous():
    (n,) = sizes("n")
    A = te.placeholder((n,), name="A")
    same = te.compute((n,), lambda i: A[i] + 1, name="C")
    assert not strides_of([A, same], "A")
    shorter = te.compute((n - 1,), lambda i: A[i] + A[i + 1], name="C")
    assert not strides_of([A, shorter], "A")


def test_a_condition_keeps_loads_inside():
    m, n = sizes("m", "n")
    A, B = te.placeholder((m,), name="A"), te.placeholder((n,), name="B")
    C = te.compute((m + n,), lambda i: tvm.tir.if_then_else(i < m, A[i], B[i - m]), name="C")
    assert not strides_of([A, B, C], "A") and not strides_of([A, B, C], "B")
