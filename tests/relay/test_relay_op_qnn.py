"""Quantised operators: types, values against the real numbers they stand for, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright import relay, te
from tilewright.ir import assert_structural_equal
from tilewright.relay.testing import run_infer_type

qnn = relay.qnn.op


def var(name: str, *shape: Any, dtype: str = "int8") -> Any:
    return relay.var(name, shape=shape, dtype=dtype)


def type_of(expr: Any) -> Any:
    return run_infer_type(expr).checked_type


def quantised(x: Any, scale: float, zero: int, dtype: str = "int8") -> Any:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    return np.clip(np.round(x / scale) + zero, low, high).astype(dtype)


def test_conversions(run_graph: Any, rng: Any) -> None:
    x = rng.uniform(-2, 2, (2, 3)).astype("float32")
    q = rng.integers(-100, 100, (2, 3)).astype("int32")
    v, i = var("x", 2, 3, dtype="float32"), var("q", 2, 3, dtype="int32")
    scales, zeros = np.array([0.5, 0.25, 0.1], "float32"), np.array([0, 1, -2], "int32")
    code = relay.const(1)  # int8
    pairs = [
        (qnn.quantize(v, 0.02, 3), quantised(x, 0.02, 3)),
        (qnn.quantize(v, 0.02, 130, out_dtype="uint8"), quantised(x, 0.02, 130, "uint8")),
        (qnn.quantize(v, relay.const(scales), relay.const(zeros), axis=1), quantised(x, scales, zeros)),
        (qnn.dequantize(i, 0.5, 3), (q - 3) * np.float32(0.5)),
        (qnn.dequantize(i, relay.const(scales), relay.const(zeros), axis=-1), (q - zeros) * scales),
        (qnn.requantize(i, 0.5, 3, 0.25, -1), np.clip((q - 3) * 2 - 1, -128, 127)),
        (qnn.simulated_quantize(v, 0.02, 3), quantised(x, 0.02, 3).astype("float32")),
        (qnn.simulated_quantize(v, 0.02, 3, out_dtype=code), quantised(x, 0.02, 3).astype("float32")),
        (qnn.simulated_quantize(v, 0.02, 3, out_dtype="disable"), x),
        (qnn.simulated_dequantize(v, 0.5, 3), (x - 3) * np.float32(0.5)),
    ]
    pairs = [(run_infer_type(e), want) for e, want in pairs]
    got = run_graph(relay.Tuple([e for e, _ in pairs]), x=x, q=q)
    for (call, want), y in zip(pairs, got, strict=True):
        np.testing.assert_allclose(y, want, rtol=1e-5, err_msg=call.op.name)
        assert str(y.dtype) == call.checked_type.dtype


def test_rounding_is_configured() -> None:
    i = var("q", 2, dtype="int32")
    assert qnn.requantize(i, 0.5, 0, 1.0, 0).attrs.rounding == "UPWARD"
    with qnn.requantize_config(rounding="TONEAREST"):
        assert qnn.requantize(i, 0.5, 0, 1.0, 0).attrs.rounding == "TONEAREST"
        assert qnn.requantize(i, 0.5, 0, 1.0, 0, rounding="UPWARD").attrs.rounding == "UPWARD"
    assert qnn.requantize(i, 0.5, 0, 1.0, 0).attrs.rounding == "UPWARD"


@pytest.mark.slow
def test_products(run_graph: Any, rng: Any) -> None:
    torch = pytest.importorskip("torch")
    f = torch.nn.functional
    x = rng.integers(-128, 128, (1, 2, 5, 5)).astype("int8")
    w = rng.integers(-128, 128, (3, 2, 3, 3)).astype("int8")
    d = rng.integers(0, 256, (4, 8)).astype("uint8")
    k = rng.integers(-128, 128, (3, 8)).astype("int8")
    zeros = np.array([1, -2, 3], "int32")
    v, vw, vd, vk = var("x", 1, 2, 5, 5), var("w", 3, 2, 3, 3), var("d", 4, 8, dtype="uint8"), var("k", 3, 8)
    data, weight = torch.tensor(x).double() - 5, torch.tensor(w).double()
    calls = [
        qnn.conv2d(v, vw, 5, relay.const(zeros), 0.5, 0.25, (3, 3), 3, padding=1),
        qnn.conv2d_transpose(v, relay.transpose(vw, (1, 0, 2, 3)), 5, -4, 0.5, 0.25, strides=2),
        qnn.dense(vd, vk, 128, relay.const(zeros), 0.5, 0.25),
        qnn.contrib_dense_pack(vd, relay.layout_transform(vk, "NC", "NC3n4c"), 128, 2, 0.5, 0.25, "NC3n4c"),
        qnn.batch_matmul(relay.expand_dims(vd, 0), relay.expand_dims(vk, 0), 128, 2, 0.5, 0.25),
    ]
    wide, narrow = d.astype("int32") - 128, k.astype("int32")
    turned = torch.tensor(w.transpose(1, 0, 2, 3)).double() + 4
    wants = [
        f.conv2d(data, weight - torch.tensor(zeros).double().reshape(3, 1, 1, 1), padding=1).numpy(),
        f.conv_transpose2d(data, turned, stride=2).numpy(),
        wide @ (narrow - zeros[:, None]).T,
        wide @ (narrow - 2).T,
        (wide @ (narrow - 2).T)[None],
    ]
    got = run_graph(relay.Tuple(calls), x=x, w=w, d=d, k=k)
    for call, want, y in zip(calls, wants, got, strict=True):
        assert y.dtype == np.int32
        np.testing.assert_array_equal(y, want.astype("int32"), err_msg=call.op.name)


def _soft(x: Any) -> Any:
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


@pytest.mark.slow
def test_through_real_numbers(run_graph: Any, rng: Any) -> None:
    q = rng.integers(1, 100, (2, 4)).astype("int8")
    p = rng.integers(-100, 100, (2, 4)).astype("int8")
    v, u = var("q", 2, 4), var("p", 2, 4)
    x, y = q * 0.0625, (p - 2) * 0.125
    erf = np.vectorize(__import__("math").erf)
    one = (0.0625, 0, 0.05, 1)
    pairs = [
        (qnn.add(v, u, 0.0625, 0, 0.125, 2, 0.2, 1), quantised(x + y, 0.2, 1)),
        (qnn.subtract(v, u, 0.0625, 0, 0.125, 2, 0.2, 1), quantised(x - y, 0.2, 1)),
        (qnn.mul(v, u, 0.0625, 0, 0.125, 2, 0.5, 1), quantised(x * y, 0.5, 1)),
        (qnn.tanh(v, *one), quantised(np.tanh(x), 0.05, 1)),
        (qnn.exp(v, 0.0625, 0, 5.0, 1), quantised(np.exp(x), 5.0, 1)),
        (qnn.sqrt(v, *one), quantised(np.sqrt(x), 0.05, 1)),
        (qnn.rsqrt(v, *one), quantised(1 / np.sqrt(x), 0.05, 1)),
        (qnn.erf(v, *one), quantised(erf(x), 0.05, 1)),
        (qnn.sigmoid(u, 0.125, 2, 0.05, 1), quantised(1 / (1 + np.exp(-y)), 0.05, 1)),
        (qnn.hardswish(u, 0.125, 2, 0.05, 1), quantised(y * np.clip(y + 3, 0, 6) / 6, 0.05, 1)),
        (qnn.log(v, *one), quantised(np.log(x), 0.05, 1)),
        (qnn.abs(u, 0.125, 2, 0.25, 1), quantised(np.abs(y), 0.25, 1)),
        (qnn.leaky_relu(u, 0.1, 0.125, 2, 0.2, 1), quantised(np.where(y > 0, y, 0.1 * y), 0.2, 1)),
        (qnn.softmax(v, 0.0625, 0, 1 / 256, -128), quantised(_soft(x), 1 / 256, -128)),
        (
            qnn.avg_pool2d(relay.reshape(v, (1, 1, 2, 4)), 0.0625, 0, 0.125, 3, (2, 2), (2, 2)),
            quantised(x.reshape(1, 1, 1, 2, 2, 2).mean((3, 5)), 0.125, 3),
        ),
        (
            qnn.concatenate([v, u], [0.0625, 0.125], [0, 2], 0.125, -1, 1),
            np.concatenate([np.floor(x / 0.125 + 0.5) - 1, p - 3], 1).clip(-128, 127),
        ),
    ]
    got = run_graph(relay.Tuple([e for e, _ in pairs]), q=q, p=p)
    for (call, want), z in zip(pairs, got, strict=True):
        # A step more or less: the real numbers here are of 64 bits, and of 32 in the program.
        np.testing.assert_allclose(
            z.astype(int).reshape(-1), want.astype(int).reshape(-1), atol=1, err_msg=call.op.name
        )


def test_symbolic_and_unknown_sizes() -> None:
    n, a = te.size_var("n"), relay.Any()
    assert type_of(qnn.quantize(var("x", n, a, dtype="float32"), 0.5, 0)) == relay.TensorType((n, a), "int8")
    made = type_of(qnn.conv2d(var("x", n, 3, a, a), var("w", 8, 3, 3, 3), 0, 0, 0.5, 0.5, (3, 3), 8))
    assert made == relay.TensorType((n, 8, a, a), "int32")
    assert type_of(qnn.dense(var("x", a, 4), var("w", 5, 4), 0, 0, 0.5, 0.5)).shape == (a, 5)


def test_text_goes_there_and_back() -> None:
    x = var("x", 2, 3, dtype="float32")
    mod = relay.transform.InferType()(relay.IRModule.from_expr(relay.Function([x], qnn.quantize(x, 0.5, 1))))
    assert "qnn.quantize(%x" in mod.astext()
    assert_structural_equal(relay.transform.InferType()(relay.fromtext(mod.astext())), mod)


REFUSALS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: qnn.quantize(var("x", 2, 3), 0.5, 0),
        "data: must hold real numbers and is Tensor[(2, 3), int8]",
    ),
    (
        lambda: qnn.quantize(var("x", 2, 3, dtype="float32"), relay.const([0.5, 0.5]), 0),
        "output_scale: has 2 elements for 3 channels",
    ),
    (
        lambda: qnn.dequantize(var("x", 2), 0.5, relay.const(0.5)),
        "input_zero_point: must be int32 and is float32",
    ),
    (lambda: qnn.requantize(var("x", 2), 0.5, 0, 0.5, 0, rounding="DOWN"), "rounding: is 'DOWN'"),
    (
        lambda: qnn.conv2d(var("x", 1, 3, 8, 8), var("w", 8, 3, 3, 3, dtype="int32"), 0, 0, 0.5, 0.5),
        "weight: must hold integers of 8 or 16 bits",
    ),
    (
        lambda: qnn.dense(var("x", 2, 3), var("w", 4, 5), 0, 0, 0.5, 0.5),
        "weight: is Tensor[(4, 5), int8] and data is",
    ),
    (lambda: qnn.add(var("x", 2), var("y", 3), *[0.5, 0] * 3), "have shapes (2,) and (3,)"),
    (lambda: qnn.concatenate([var("x", 2)], [0.5, 0.5], [0], 0.5, 0, 0), "data: has 1 tensors, 2 scales"),
]


@pytest.mark.parametrize(("build", "reason"), REFUSALS)
def test_refusals(build: Any, reason: str) -> None:
    with pytest.raises(relay.RelayTypeError) as caught:
        run_infer_type(build())
    assert reason in str(caught.value)
