"""Layers over numbers of a few bits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tilewright import relay, te, topi
from tilewright.ir.errors import TensorExpressionError


def few(bits: int, *shape: int, dtype: str = "int16") -> np.ndarray:
    return np.random.default_rng(bits + sum(shape)).integers(0, 2**bits, shape).astype(dtype)


def signed(w: np.ndarray, bits: int) -> np.ndarray:
    """Weights whose bits are -1 and 1 instead of 0 and 1."""
    return 2 * w.astype("int64") - (2**bits - 1)


def test_bits_are_packed(check: Callable[..., None]) -> None:
    x = few(2, 3, 16, dtype="uint8")
    a = te.placeholder(x.shape, "uint8")
    wanted = np.stack([np.packbits((x >> b) & 1, axis=1) for b in range(2)], axis=1)
    check(topi.nn.bitpack(a, 2, 1, 1, "uint8"), {a: x}, wanted)
    assert topi.nn.binary_op_multiplier("uint16") == 16


@pytest.mark.parametrize("unipolar", [True, False])
def test_dense(check: Callable[..., None], unipolar: bool) -> None:
    x, w = few(2, 3, 32, dtype="uint8"), few(1, 5, 32, dtype="uint8")
    a, b = te.placeholder(x.shape, "uint8"), te.placeholder(w.shape, "uint8")
    made = topi.nn.bitserial_dense(a, b, 2, 1, "uint8", "int16", unipolar)
    wanted = x.astype("int64") @ (signed(w, 1) if unipolar else w.astype("int64")).T
    check(made, {a: x, b: w}, wanted.astype("int16"))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_conv2d(check: Callable[..., None], layout: str) -> None:
    x, w = few(2, 1, 8, 5, 5, dtype="int32"), few(2, 3, 8, 3, 3, dtype="int32")
    wanted = topi.testing.conv2d_nchw_python(x, w, 1, 1).astype("int16")
    work = topi.nn.bitserial_conv2d_nchw
    if layout == "NHWC":
        work = topi.nn.bitserial_conv2d_nhwc
        x, w, wanted = x.transpose(0, 2, 3, 1), w.transpose(2, 3, 1, 0), wanted.transpose(0, 2, 3, 1)
    x, w = np.ascontiguousarray(x), np.ascontiguousarray(w)
    a, b = te.placeholder(x.shape, "int32"), te.placeholder(w.shape, "int32")
    check(work(a, b, 1, 1, 2, 2, "uint8", "int16", False), {a: x, b: w}, wanted)


def test_signs(check: Callable[..., None]) -> None:
    rng = np.random.default_rng(3)
    x, w = (rng.choice([-1.0, 1.0], (n, 64)).astype("float32") for n in (2, 3))
    a, b = te.placeholder(x.shape), te.placeholder(w.shape)
    made = topi.nn.binary_dense(topi.nn.binarize_pack(a), topi.nn.binarize_pack(b))
    check(made, {a: x, b: w}, x @ w.T)


def test_refusals() -> None:
    a = te.placeholder((3, 12), "uint8")
    with pytest.raises(TensorExpressionError, match="must fill words of 8"):
        topi.nn.bitpack(a, 1, 1, 1, "uint8")
    with pytest.raises(TensorExpressionError, match="must be uint8, uint16, uint32 or uint64"):
        topi.nn.bitpack(a, 1, 1, 1, "float32")
    with pytest.raises(TensorExpressionError, match="as binarize_pack makes them"):
        topi.nn.binary_dense(a, a)


def test_types_in_graphs() -> None:
    x = relay.var("x", shape=(2, 32, 8, 8), dtype="int16")
    w = relay.var("w", shape=(4, 32, 3, 3), dtype="int16")
    made = relay.transform.infer_type(relay.nn.bitserial_conv2d(x, w, channels=4, padding=1))
    assert made.checked_type == relay.TensorType((2, 4, 8, 8), "int16")
    packed = relay.transform.infer_type(relay.nn.bitpack(x, bits=2, pack_axis=1, bit_axis=4))
    assert packed.checked_type == relay.TensorType((2, 1, 8, 8, 2), "uint32")
