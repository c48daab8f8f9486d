"""Quantised models of ONNX (QuantizeLinear and DequantizeLinear around real operators), beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")


class _Model:
    """A network that grows node by node."""

    def __init__(self, kind: str, seed: int = 1) -> None:
        self.kind, self.rng = kind, np.random.default_rng(seed)
        self.zero = np.array(120 if kind == "uint8" else -5, kind)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def const(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def node(self, op: str, *inputs: str, **attrs: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, list(inputs), [name], **attrs))
        return name

    def held(self, x: str, scale: float) -> str:
        s, z = self.const(np.float32(scale)), self.const(self.zero)
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, s, z), s, z)

    def weight(self, values: Any, scale: Any) -> str:
        zero = self.const(np.zeros(np.shape(scale), values.dtype))
        axis = {"axis": 0} if np.shape(scale) else {}
        return self.node("DequantizeLinear", self.const(values), self.const(np.float32(scale)), zero, **axis)

    def conv(
        self, x: str, scale: float, channels: int, taken: int, size: int, each: bool, groups: int = 1
    ) -> str:
        w = self.rng.integers(-127, 128, (channels, taken // groups, size, size)).astype("int8")
        ws = self.rng.random(channels) * 0.01 + 0.001 if each else 0.005
        b = self.rng.integers(-500, 500, channels).astype("int32")
        given = [x, self.weight(w, ws), self.weight(b, np.float32(ws) * np.float32(scale))]
        return self.node("Conv", *given, pads=[size // 2] * 4, kernel_shape=[size, size], group=groups)

    def made(self, result: str, count: int) -> Any:
        value = onnx.helper.make_tensor_value_info
        real = onnx.TensorProto.FLOAT
        self.nodes.append(onnx.helper.make_node("Identity", [result], ["out"]))
        graph = onnx.helper.make_graph(
            self.nodes,
            "qdq",
            [value("x", real, [1, 3, 12, 12])],
            [value("out", real, [1, count])],
            self.constants,
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
        model.ir_version = 9
        onnx.checker.check_model(model)
        return model


STEP = 0.05


def network(kind: str, each: bool) -> Any:
    """Convolutions with biases, relu, clip, a sum, pooling, products with matrices in both orders."""
    m = _Model(kind)
    a = m.held(m.node("Relu", m.conv(m.held("x", 0.03), 0.03, 8, 3, 3, each)), 0.05)
    b = m.conv(a, 0.05, 8, 8, 3, each, groups=8)
    b = m.held(m.node("Clip", b, m.const(np.float32(0)), m.const(np.float32(6))), 0.02)
    b = m.held(m.conv(b, 0.02, 8, 8, 1, each), 0.04)
    y = m.held(m.node("Add", b, a), 0.05)
    y = m.held(m.node("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2]), 0.05)
    y = m.held(m.node("Flatten", m.node("GlobalAveragePool", y)), 0.02)
    w = m.weight(m.rng.integers(-127, 128, (8, 10)).astype("int8"), 0.01)
    y = m.held(m.node("MatMul", y, w), 0.03)
    w = m.weight(m.rng.integers(-127, 128, (6, 10)).astype("int8"), m.rng.random(6) * 0.01 + 0.001)
    return m.made(m.held(m.node("Gemm", y, w, transB=1), STEP), 6)


def check(model: Any, *passes: list[str]) -> None:
    """Within a step of what onnxruntime computes, with the passes left out and without."""
    array = np.random.default_rng(5).standard_normal((1, 3, 12, 12)).astype("float32")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": array})
    mod, params = relay.frontend.from_onnx(model)
    for left_out in passes:
        with tvm.transform.PassContext(opt_level=3, disabled_pass=left_out):
            run = relay.create_executor("graph", mod, params=params).evaluate()
            made = run(array).numpy()
        assert np.abs(made - expected).max() <= STEP * 1.01, left_out


@pytest.mark.slow
def test_one_convolution_within_a_step_of_onnxruntime() -> None:
    m = _Model("uint8")
    y = m.held(m.conv(m.held("x", 0.03), 0.03, 8, 3, 3, True), 0.05)
    check(m.made(m.held(m.node("Flatten", m.node("GlobalAveragePool", y)), STEP), 8), [])


@pytest.mark.sample(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "each"), [("uint8", True), ("int8", True), ("uint8", False), ("int8", False)]
)
def test_within_a_step_of_onnxruntime(kind: str, each: bool) -> None:
    check(network(kind, each), [], ["FakeQuantizationToInteger"])
