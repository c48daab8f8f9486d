"""Quantised operators against NumPy and PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tilewright import te, topi
from tilewright.ir.errors import TensorExpressionError

RNG = np.random.default_rng(6)


def few(fast: int, cases: Any, several: bool = False) -> list[Any]:
    """The cases, of which all but the first are left to the slow run; `several` arguments each, or one."""
    marks = [()] * fast + [pytest.mark.slow] * len(cases)
    return [pytest.param(*(c if several else (c,)), marks=m) for c, m in zip(cases, marks)]


def tensor(x: np.ndarray, name: str) -> te.Tensor:
    return te.placeholder(x.shape, str(x.dtype), name)


def rounded(x: np.ndarray, rounding: str) -> np.ndarray:
    if rounding == "UPWARD":
        return np.floor(x + 0.5)
    if rounding == "TONEAREST":
        return np.sign(x) * np.floor(np.abs(x) + 0.5)
    return np.round(x)


def limits(dtype: str) -> tuple[int, int]:
    return np.iinfo(dtype).min, np.iinfo(dtype).max


# ---------------------------------------------------------------------------- quantize and dequantize
@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST", "TONEAREST_EVEN"])
@pytest.mark.parametrize(
    ("dtype", "zero"), few(1, [("int8", 3), ("uint8", 128), ("int32", 0), ("int16", -7)], True)
)
def test_quantize(check, dtype, zero, rounding) -> None:
    # Multiples of an eighth with a scale of a quarter: every middle between two integers is met.
    x = np.concatenate([np.arange(-41, 41) / 8, [1e4, -1e4, 0]]).astype("float32")
    t = tensor(x, "x")
    wanted = np.clip(rounded(x / 0.25, rounding) + zero, *limits(dtype)).astype(dtype)
    check(topi.nn.quantize(t, 0.25, zero, out_dtype=dtype, rounding=rounding), {t: x}, wanted)


def test_there_and_back_is_what_torch_does(check) -> None:
    x = RNG.standard_normal((4, 5)).astype("float32") * 3
    wanted = torch.fake_quantize_per_tensor_affine(torch.tensor(x), 0.05, 7, -128, 127).numpy()
    t = tensor(x, "x")
    check(topi.nn.dequantize(topi.nn.quantize(t, 0.05, 7), 0.05, 7), {t: x}, wanted)


def test_quantize_saturates_to_int32(check) -> None:
    x = np.array([3e9, -3e9, 5], "float32")
    t = tensor(x, "x")
    check(topi.nn.quantize(t, 1.0, 0, out_dtype="int32"), {t: x}, np.array([2**31 - 1, -(2**31), 5], "int32"))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_per_channel(check, axis) -> None:
    x = RNG.standard_normal((2, 3, 4)).astype("float32") * 9
    n = x.shape[axis]
    s, z = (RNG.random(n) + 0.1).astype("float32"), RNG.integers(-5, 5, n).astype("int32")
    shape = [1, 1, 1]
    shape[axis] = n
    wanted = np.clip(np.round(x / s.reshape(shape)) + z.reshape(shape), -128, 127).astype("int8")
    tx, ts, tz, tq = tensor(x, "x"), tensor(s, "s"), tensor(z, "z"), tensor(wanted, "q")
    check(topi.nn.quantize(tx, ts, tz, axis), {tx: x, ts: s, tz: z}, wanted)
    back = (wanted.astype("float32") - z.reshape(shape)) * s.reshape(shape)
    check(topi.nn.dequantize(tq, ts, tz, axis), {tq: wanted, ts: s, tz: z}, back)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32"])
def test_dequantize(check, dtype) -> None:
    q = RNG.integers(0, 100, (3, 4)).astype(dtype)
    t = tensor(q, "q")
    check(topi.nn.dequantize(t, 0.5, 10), {t: q}, (q.astype("float32") - 10) * 0.5)
    s = te.placeholder((), "float32", "s")
    check(topi.nn.dequantize(t, s, 10), {t: q, s: np.float32(2)}, (q.astype("float32") - 10) * 2)


# ---------------------------------------------------------------------------- requantize
@pytest.mark.parametrize("compute", few(2, ["int64", "float64", "float32", None]))
@pytest.mark.parametrize("rounding", ["UPWARD", "TONEAREST"])
def test_requantize(check, compute, rounding) -> None:
    x = RNG.integers(-2000, 2000, (50,)).astype("int32")
    x[:4] = 2, -2, 6, -6  # middles of two integers at a quarter
    t = tensor(x, "x")
    out = topi.nn.requantize(t, 0.5, 0, 2.0, 3, rounding=rounding, compute_dtype=compute)
    check(out, {t: x}, np.clip(rounded(x / 4, rounding) + 3, -128, 127).astype("int8"))


def test_requantize_large_values_are_exact(check) -> None:
    x = np.array([2**31 - 1, -(2**31), 2**30 + 1, -5, 0], "int32")
    t = tensor(x, "x")
    out = topi.nn.requantize(t, 3.0, 0, 4.0, 0, out_dtype="int32")
    check(out, {t: x}, np.array([(3 * int(v) * 2 + 4) // 8 for v in x], "int32"))


def test_requantize_widens_and_changes_zero(check) -> None:
    x = np.arange(-128, 128).astype("int8")
    t = tensor(x, "x")
    out = topi.nn.requantize(t, 1.0, -128, 1.0, 0, out_dtype="uint8")
    check(out, {t: x}, np.arange(256).astype("uint8"))
    # A step above one: multiply by more than one.
    out = topi.nn.requantize(t, 1.0, 0, 0.25, 0, out_dtype="int16")
    check(out, {t: x}, x.astype("int16") * 4)


def test_requantize_per_channel(check) -> None:
    x = RNG.integers(-1000, 1000, (2, 3, 5)).astype("int32")
    s, z = np.array([0.5, 0.125, 2], "float32"), 4
    tx, ts = tensor(x, "x"), tensor(s, "s")
    out = topi.nn.requantize(tx, ts, 0, 4.0, z, axis=1, rounding="TONEAREST_EVEN", out_dtype="uint8")
    wanted = np.clip(np.round(x * (s.reshape(1, 3, 1) / 4)) + z, 0, 255).astype("uint8")
    check(out, {tx: x, ts: s}, wanted)


# ---------------------------------------------------------------------------- products
@pytest.mark.parametrize(("a", "b"), few(1, [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")], True))
@pytest.mark.parametrize(("za", "zb"), [(0, 0), (5, 0), (7, 3)])
def test_dense(check, a, b, za, zb) -> None:
    x = RNG.integers(*limits(a), (3, 11), endpoint=True).astype(a)
    w = RNG.integers(*limits(b), (4, 11), endpoint=True).astype(b)
    tx, tw = tensor(x, "x"), tensor(w, "w")
    out = topi.nn.qnn_dense(tx, tw, za, zb, 0.1, 0.2, 4)
    assert out.dtype == "int32"
    check(out, {tx: x, tw: w}, (x.astype("int32") - za) @ (w.astype("int32") - zb).T)


def test_dense_with_zero_points_of_the_program(check) -> None:
    x = RNG.integers(0, 255, (3, 5)).astype("uint8")
    w = RNG.integers(-128, 127, (4, 5)).astype("int8")
    z, zw = np.int32(131), np.array([1, -2, 3, 0], "int32")
    tx, tw, tz, tzw = tensor(x, "x"), tensor(w, "w"), te.placeholder((), "int32", "z"), tensor(zw, "zw")
    wanted = (x.astype("int32") - z) @ (w.astype("int32") - zw[:, None]).T
    check(topi.nn.qnn_dense(tx, tw, tz, tzw), {tx: x, tw: w, tz: z, tzw: zw}, wanted)


def test_batch_matmul(check) -> None:
    x, y = RNG.integers(0, 255, (2, 3, 5)).astype("uint8"), RNG.integers(-128, 127, (2, 4, 5)).astype("int8")
    tx, ty = tensor(x, "x"), tensor(y, "y")
    wanted = (x.astype("int32") - 9) @ (y.astype("int32") + 3).transpose(0, 2, 1)
    check(topi.nn.qnn_batch_matmul(tx, ty, 9, -3), {tx: x, ty: y}, wanted)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    few(1, [(2, (0, 1, 2, 1), 1, 2), (1, 1, 1, 1), (1, 0, 2, 4)], True),
)
@pytest.mark.parametrize("last", [False, True])
def test_conv2d(check, stride, padding, dilation, groups, last) -> None:
    x = RNG.integers(0, 255, (1, 4, 7, 6)).astype("uint8")
    w = RNG.integers(-128, 127, (8, 4 // groups, 3, 3)).astype("int8")
    za, zb = 130, RNG.integers(-4, 4, 8).astype("int32")
    sides = (padding,) * 4 if isinstance(padding, int) else padding
    real = np.pad(x.astype("float64") - za, [(0, 0), (0, 0), (sides[0], sides[2]), (sides[1], sides[3])])
    kernel = w.astype("float64") - zb.reshape(8, 1, 1, 1)
    wanted = F.conv2d(torch.tensor(real), torch.tensor(kernel), None, stride, 0, dilation, groups).numpy()
    layouts = ("NCHW", "OIHW")
    if last:
        x, w = np.ascontiguousarray(x.transpose(0, 2, 3, 1)), np.ascontiguousarray(w.transpose(2, 3, 1, 0))
        wanted, layouts = wanted.transpose(0, 2, 3, 1), ("NHWC", "HWIO")
    tx, tw, tz = tensor(x, "x"), tensor(w, "w"), tensor(zb, "z")
    out = topi.nn.qnn_conv2d(
        tx, tw, za, tz, strides=stride, padding=padding, dilation=dilation, groups=groups,
        data_layout=layouts[0], kernel_layout=layouts[1],
    )  # fmt: skip
    check(out, {tx: x, tw: w, tz: zb}, wanted.astype("int32"))


def test_zero_points_of_zero_add_no_stage() -> None:
    x, w = te.placeholder((1, 4, 6, 6), "int8", "x"), te.placeholder((8, 4, 3, 3), "int8", "w")
    out = topi.nn.qnn_conv2d(x, w, 0, 0, 1.0, 1.0)
    assert out.op.input_tensors == (x, w)
    moved = topi.nn.qnn_conv2d(x, w, 1, 0, 1.0, 1.0)
    assert [t.dtype for t in moved.op.input_tensors] == ["int16", "int8"]


# ---------------------------------------------------------------------------- simulation
@pytest.mark.parametrize("kind", few(2, ["disable", "int8", "uint8", "int32"]))
def test_simulated(check, kind) -> None:
    x = RNG.standard_normal((3, 4)).astype("float32") * 60
    s, z = np.array([0.5, 0.25, 1, 2], "float32"), np.array([0, 3, -2, 1], "int32")
    code = topi.nn.qnn.SQNN_DTYPE_TO_CODE[kind]
    tx, ts, tz, tc = tensor(x, "x"), tensor(s, "s"), tensor(z, "z"), te.placeholder((), "int32", "code")
    quantised = x if kind == "disable" else np.clip(np.round(x / s) + z, *limits(kind)).astype("float32")
    feed = {tx: x, tc: np.int32(code), ts: s, tz: z}
    check(topi.nn.simulated_quantize(tx, tc, ts, tz), feed, quantised)
    back = x if kind == "disable" else (x - z) * s
    check(topi.nn.simulated_dequantize(tx, tc, ts, tz), feed, back.astype("float32"))
    if kind != "disable":
        fixed = topi.nn.simulated_quantize(tx, kind, ts, tz)
        check(fixed, {tx: x, ts: s, tz: z}, quantised)
    assert topi.nn.qnn.SQNN_CODE_TO_DTYPE[code] == kind


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: topi.nn.quantize(t, 1.0, 0, rounding="DOWN"), "rounding is 'DOWN'"),
        (
            lambda t: topi.nn.quantize(t, te.placeholder((5,)), 0),
            "output_scale has 5 elements and dimension -1",
        ),
        (lambda t: topi.nn.quantize(t, "x", 0), "output_scale is 'x'"),
        (lambda t: topi.nn.requantize(t, 1.0, 0, 1.0, 0, compute_dtype="int8"), "compute_dtype is 'int8'"),
        (
            lambda t: topi.nn.requantize(t, te.placeholder((3,)), 0, 1.0, 0, compute_dtype="int64"),
            "needs scales",
        ),
        (lambda t: topi.nn.qnn_dense(t, t, 1, 1), "must be an integer of 8 or 16 bits"),
        (lambda t: topi.nn.simulated_quantize(t, "int4", 1.0, 0), "the type is 'int4'"),
    ],
)
def test_refusals(call, message) -> None:
    with pytest.raises(TensorExpressionError, match=message):
        call(te.placeholder((2, 3), name="x"))
