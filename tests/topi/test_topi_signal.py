"""Fourier transforms, sparse points and boxes of anchors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay, te, topi
from tilewright.ir.errors import TensorExpressionError


def test_fourier_transforms(check: Callable[..., None]) -> None:
    rng = np.random.default_rng(0)
    re, im = (rng.random((2, 7)) for _ in range(2))
    a, b = te.placeholder((2, 7), "float64"), te.placeholder((2, 7), "float64")
    there, back = np.fft.fft(re + 1j * im), np.fft.ifft(re + 1j * im)
    feed = {a: re, b: im}
    check(topi.dft(a, b, False), feed, [there.real, there.imag])
    check(topi.dft(a, b, True), feed, [back.real, back.imag])
    with pytest.raises(TensorExpressionError, match="must be alike"):
        topi.dft(a, te.placeholder((7,), "float64"))


@pytest.mark.parametrize("normalized", [False, True])
def test_short_transforms_in_graphs(normalized: bool) -> None:
    x, window = np.random.rand(2, 10).astype("float32"), np.array([1.0, 0.5], "float32")
    data = relay.var("data", shape=x.shape)
    made = relay.stft(data, 4, 3, 2, relay.const(window), normalized, onesided=True)
    got = relay.create_executor("graph").evaluate(relay.Function([data], made))(x).numpy()
    full = np.array([0, 1.0, 0.5, 0])
    parts = np.stack([np.fft.rfft(x[:, i : i + 4] * full) for i in (0, 3, 6)], 2)
    parts = parts / 2 if normalized else parts
    np.testing.assert_allclose(got, np.stack([parts.real, parts.imag], -1), 1e-4, 1e-5)


def test_points_in_another_shape(check: Callable[..., None]) -> None:
    points = np.array([[0, 1, 2], [1, 0, 3], [1, 2, 0]])
    old, new = np.array([2, 3, 4]), np.array([6, -1])
    names = [te.placeholder(v.shape, "int64") for v in (points, old, new)]
    flat = np.ravel_multi_index(points.T, old)
    made = topi.sparse_reshape(*names, (3, 2), (2,))
    check(made, dict(zip(names, (points, old, new))), [np.stack(np.unravel_index(flat, (6, 4)), 1), [6, 4]])


def test_empty_rows_are_filled(check: Callable[..., None]) -> None:
    points, values = np.array([[1, 3], [1, 0], [3, 2]]), np.array([5, 6, 7])
    shape, default = np.array([5, 4]), np.array([9])
    arrays = (points, values, shape, default)
    names = [te.placeholder(v.shape, "int64") for v in arrays]
    wanted = [[[0, 0], [1, 3], [1, 0], [2, 0], [3, 2], [4, 0]], [9, 5, 6, 9, 7, 9], [1, 0, 1, 0, 1]]
    made = topi.sparse_fill_empty_rows(*names, (6, 2), (6,), (5,))
    check(made, dict(zip(names, arrays)), [wanted[0], wanted[1], np.array(wanted[2], bool)])


def test_boxes_of_anchors() -> None:
    """One anchor of 16 by 16: two cells that do not overlap, in order of their scores."""
    scores = np.array([[[[0.1, 0.1]], [[0.6, 0.9]]]], "float32")
    args = [np.zeros((1, 4, 1, 2), "float32"), np.array([[16, 32, 1]], "float32")]
    names = [relay.var(f"v{i}", shape=a.shape) for i, a in enumerate((scores, *args))]
    made = relay.vision.proposal(*names, (1.0,), (1.0,), 16, 0.7, -1, 3, 1, False)
    func = relay.Function(names, made)
    got = relay.create_executor("graph").evaluate(func)(scores, *args).numpy()
    right, left = [0, 16, 0, 31, 15], [0, 0, 0, 15, 15]
    np.testing.assert_allclose(got, [right, left, right])
    with pytest.raises(TensorExpressionError, match="2 and 4 channels for each of 2 anchors"):
        topi.vision.proposal(
            *map(te.placeholder, [(1, 2, 1, 2), (1, 4, 1, 2), (1, 3)]), (1, 2), (1,), 16, 0, 1, 1, 1, False
        )


def test_pixels_are_dealt_out(check: Callable[..., None]) -> None:
    x = np.random.rand(2, 8, 4, 6).astype("float32")
    a = te.placeholder(x.shape)
    check(topi.vision.reorg(a, 2), {a: x}, topi.testing.reorg_python(x, 2))
    made = relay.transform.infer_type(relay.vision.yolo_reorg(relay.var("x", shape=x.shape), 2))
    assert made.checked_type == relay.TensorType((2, 32, 2, 3))
    assert tvm.relay.op.get("vision.yolo_reorg").num_inputs == 1
    mod = tvm.IRModule.from_expr(made)
    got = relay.create_executor("graph", mod, target="llvm").evaluate()(x).numpy()
    np.testing.assert_array_equal(got, topi.testing.reorg_python(x, 2))
