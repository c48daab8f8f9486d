"""Tensor expressions evaluated by NumPy: values beside those of the interpreter, views, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import te, tir
from tilewright.te.evaluate import Evaluation, NotEvaluated
from tilewright.tir.interpret import interpret

rng = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return rng.standard_normal(shape).astype("float32")


def both(inputs: list[te.Tensor], output: te.Tensor, *arrays: np.ndarray) -> np.ndarray:
    """What NumPy evaluates, after a comparison with the interpreter."""
    found = Evaluation(inputs, [output])(arrays)[0]
    want = np.zeros([int(d) for d in output.shape], str(output.dtype))
    interpret(te.create_prim_func([*inputs, output]), *arrays, want)
    assert found.shape == want.shape and found.dtype == want.dtype and found.flags.c_contiguous
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)
    return found


def conv(stride: int, groups: int) -> tuple[list[te.Tensor], te.Tensor]:
    X, W = te.placeholder((1, 4, 7, 6), name="X"), te.placeholder((4, 4 // groups, 3, 3), name="W")
    P = te.compute(
        (1, 4, 9, 8),
        lambda n, c, i, j: te.if_then_else(
            te.all(i >= 1, i < 8, j >= 1, j < 7), X[n, c, i - 1, j - 1], te.const(0.0)
        ),
    )
    ci, ki, kj = (te.reduce_axis((0, d)) for d in (4 // groups, 3, 3))
    shape = (1, 4, (9 - 3) // stride + 1, (8 - 3) // stride + 1)

    def at(n: Any, c: Any, i: Any, j: Any) -> Any:
        channel = ci if groups == 1 else c
        return te.sum(P[n, channel, i * stride + ki, j * stride + kj] * W[c, ci, ki, kj], axis=[ci, ki, kj])

    return [X, W], te.compute(shape, at)


@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("stride", [1, 2])
def test_convolutions(stride: int, groups: int) -> None:
    inputs, out = conv(stride, groups)
    both(inputs, out, floats(1, 4, 7, 6), floats(4, 4 // groups, 3, 3))


@pytest.mark.parametrize("order", ["ij", "ji"])
def test_products_in_both_orders(order: str) -> None:
    A, B = te.placeholder((3, 5, 4), name="A"), te.placeholder((3, 6, 4), name="B")
    k = te.reduce_axis((0, 4), "k")
    if order == "ij":
        C = te.compute((3, 5, 6), lambda b, i, j: te.sum(A[b, i, k] * B[b, j, k], axis=k))
    else:
        C = te.compute((6, 3, 5), lambda j, b, i: te.sum(A[b, i, k] * B[b, j, k], axis=k))
    both([A, B], C, floats(3, 5, 4), floats(3, 6, 4))


@pytest.mark.parametrize("reduce", [te.sum, te.max, te.min, te.prod])
@pytest.mark.parametrize("axes", [1, 2])
def test_reductions(reduce: Callable[..., Any], axes: int) -> None:
    A = te.placeholder((2, 3, 40), name="A")
    ks = [te.reduce_axis((0, d)) for d in (3, 40)][-axes:]
    if axes == 2:
        B = te.compute((2,), lambda i: reduce(A[i, ks[0], ks[1]], axis=ks))
    else:
        B = te.compute((2, 3), lambda i, j: reduce(A[i, j, ks[0]], axis=ks))
    both([A], B, floats(2, 3, 40))


def test_a_sum_of_products_to_one_number() -> None:
    A = te.placeholder((7,), name="A")
    k = te.reduce_axis((0, 7))
    both([A], te.compute((), lambda: te.sum(A[k] * A[k], axis=k)), floats(7))


def test_axes_that_only_one_factor_or_none_uses() -> None:
    A, B = te.placeholder((3, 4), name="A"), te.placeholder((3,), name="B")
    k, l, m = te.reduce_axis((0, 3)), te.reduce_axis((0, 4)), te.reduce_axis((0, 5))
    both([A, B], te.compute((2,), lambda i: te.sum(A[k, l] * B[k], axis=[k, l, m])), floats(3, 4), floats(3))


def test_boxes_and_other_conditions() -> None:
    A, B = te.placeholder((4, 5), name="A"), te.placeholder((3, 5), name="B")
    joined = te.compute((7, 5), lambda i, j: te.if_then_else(i < 4, A[i, j], B[i - 4, j]))
    a, b = floats(4, 5), floats(3, 5)
    np.testing.assert_array_equal(both([A, B], joined, a, b), np.concatenate([a, b]))
    striped = te.compute((4, 5), lambda i, j: te.if_then_else((i + j) % 2 == 0, A[i, j], te.const(0.0)))
    both([A], striped, a)


def test_gathers_and_a_step_backwards() -> None:
    A, I = te.placeholder((4, 5), name="A"), te.placeholder((3,), "int32", "I")
    both([A, I], te.compute((3, 5), lambda i, j: A[I[i], 4 - j]), floats(4, 5), np.array([3, 0, 3], "int32"))


def test_integers_divide_as_compiled_code_does() -> None:
    A = te.placeholder((6,), "int32", "A")
    a = np.array([-7, -2, -1, 0, 3, 7], "int32")
    for f in (te.floordiv, te.floormod, te.truncdiv, te.truncmod):
        both([A], te.compute((6,), lambda i, f=f: f(A[i], 3)), a)


def test_erf_of_few_and_of_many() -> None:
    for n in (5, 5000):
        A = te.placeholder((n,), name="A")
        at = np.linspace(-7, 7, n, dtype="float32")
        at[n // 2 :] *= np.float32(1e-6)
        at[:3] = np.inf, -np.inf, np.nan
        found = Evaluation([A], [te.compute((n,), lambda i, A=A: te.erf(A[i]))])([at])[0]
        want = [math.erf(v) for v in at]
        assert found.dtype == "float32"
        np.testing.assert_allclose(found, want, rtol=3e-7)


def test_what_is_exact() -> None:
    A = te.placeholder((4,), name="A")
    k = te.reduce_axis((0, 4))

    def exact(out: te.Tensor) -> bool:
        return Evaluation([A], [out]).is_exact

    assert exact(te.compute((4,), lambda i: te.sqrt(A[i]) + 1))
    assert exact(te.compute((1,), lambda i: te.max(A[k], axis=k)))
    assert not exact(te.compute((4,), lambda i: te.exp(A[i])))
    assert not exact(te.compute((1,), lambda i: te.sum(A[k], axis=k)))


def test_refusals_name_the_thing() -> None:
    n = te.var("n")
    A = te.placeholder((n,), name="A")
    with pytest.raises(NotEvaluated, match="`double`: the size of axis `i` is not known"):
        Evaluation([A], [te.compute((n,), lambda i: A[i] * 2, name="double")])
    H = te.placeholder((4,), "float16", "H")
    with pytest.raises(NotEvaluated, match="float16 is not a type that NumPy computes with"):
        Evaluation([H], [te.compute((4,), lambda i: H[i] + H[i])])
    B = te.placeholder((4,), name="B")
    with pytest.raises(NotEvaluated, match="NumPy has no counterpart of"):
        Evaluation([B], [te.compute((4,), lambda i: tir.call_pure_extern("float32", "f", B[i]))])
