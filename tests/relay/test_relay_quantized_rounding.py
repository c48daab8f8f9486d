"""Rounding and saturation of quantized networks: bit for bit what onnxruntime computes.

Scales are powers of two, so that floats are exact and many results lie in the middle of two steps: these go to the even
one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

NAMES = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8, "float32": TensorProto.FLOAT}


def integers(rng: Any, dtype: str, *shape: int) -> Any:
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(dtype)


def compare(nodes: list[Any], constants: dict[str, Any], x: Any, out: str) -> Any:
    """The result, which onnxruntime without optimizations computes too, exactly."""
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    ends = [
        helper.make_tensor_value_info("x", NAMES[str(x.dtype)], x.shape),
        helper.make_tensor_value_info("y", NAMES[out], None),
    ]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, {"x": x})
    np.testing.assert_array_equal(tilewright.compile(model)(x), wanted)
    return wanted


def scales(rng: Any, count: int = 0) -> Any:
    steps = rng.integers(-6, 0, count) if count else rng.integers(-6, 0)
    return np.float32(2.0) ** steps.astype(np.float32) if count else np.float32(2.0**steps)


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("seed", range(3))
def test_quantize_linear(dtype: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scale, zero = scales(rng), integers(rng, dtype)
    x = (rng.integers(-900, 900, (5, 67)) / 2).astype(np.float32) * scale  # halves of steps, and far outside
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])]
    made = compare(nodes, {"s": scale, "z": zero}, x, dtype)
    info = np.iinfo(dtype)
    assert info.min in made and info.max in made


@pytest.mark.parametrize("kinds", [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8")])
@pytest.mark.parametrize("seed", range(2))
def test_products(kinds: tuple[str, str], seed: int) -> None:
    """The sums are scaled, rounded and clipped in the epilogue."""
    rng = np.random.default_rng(seed)
    first, second = kinds
    x, w = integers(rng, first, 6, 24), integers(rng, second, 24, 19)
    names = ["x", "sx", "zx", "w", "sw", "zw", "sy", "zy"]
    constants = {
        "sx": np.float32(0.5), "zx": integers(rng, first), "w": w, "sw": np.float32(2.0**-7),
        "zw": integers(rng, second), "sy": np.float32(8.0), "zy": integers(rng, first),
    }  # fmt: skip
    compare([helper.make_node("QLinearMatMul", names, ["y"])], constants, x, first)


@pytest.mark.parametrize("seed", range(2))
def test_a_network_of_several_layers(seed: int) -> None:
    """A convolution with a scale for each channel, a residual addition, a pooling, in QDQ form."""
    rng = np.random.default_rng(seed)
    n, constants = (
        helper.make_node,
        {"sx": np.float32(0.25), "zx": np.uint8(7), "sy": np.float32(4.0), "zy": np.uint8(99)},
    )
    constants |= {"w": integers(rng, "int8", 8, 8, 3, 3), "sw": scales(rng, 8), "zw": np.zeros(8, np.int8)}
    nodes = [
        n("QuantizeLinear", ["x", "sx", "zx"], ["q"]),
        n("DequantizeLinear", ["q", "sx", "zx"], ["d"]),
        n("DequantizeLinear", ["w", "sw", "zw"], ["dw"], axis=0),
        n("Conv", ["d", "dw"], ["c"], pads=[1, 1, 1, 1]),
        n("Add", ["c", "d"], ["a"]),
        n("Relu", ["a"], ["r"]),
        n("QuantizeLinear", ["r", "sy", "zy"], ["q2"]),
        n("DequantizeLinear", ["q2", "sy", "zy"], ["d2"]),
        n("MaxPool", ["d2"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        n("QuantizeLinear", ["p", "sy", "zy"], ["y"]),
    ]
    x = (rng.integers(-70, 600, (1, 8, 10, 10)) / 8).astype(np.float32)
    compare(nodes, constants, x, "uint8")
