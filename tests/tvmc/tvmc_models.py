"""Small ONNX models for the tests of tvmc and of the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

SHAPE = (1, 3, 8, 8)


def write_small(path: Path, batch: Any = 1, operator: str = "Relu") -> Path:
    """Convolution, activation, pooling, a dense layer; weights from a fixed seed."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(3)
    weights = {
        "conv.w": rng.standard_normal((4, 3, 3, 3)),
        "fc.w": rng.standard_normal((5, 4)),
        "fc.b": rng.standard_normal(5),
    }
    node = helper.make_node
    nodes = [
        node("Conv", ["data", "conv.w"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        node(operator, ["c"], ["r"], name="bend"),
        node("GlobalAveragePool", ["r"], ["p"]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "fc.w", "fc.b"], ["y"], transB=1, name="fc"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [batch, *SHAPE[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, 5])],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def write_branch(path: Path) -> Path:
    """relu(x) where the sum of x is above zero, else -x."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    node, info = helper.make_node, helper.make_tensor_value_info
    then, other = (
        helper.make_graph([node(op, ["data"], [op])], op, [], [info(op, TensorProto.FLOAT, [2, 3])])
        for op in ("Relu", "Neg")
    )
    nodes = [
        node("ReduceSum", ["data"], ["sum"], keepdims=0),
        node("Greater", ["sum", "zero"], ["above"]),
        node("If", ["above"], ["y"], then_branch=then, else_branch=other),
    ]
    graph = helper.make_graph(
        nodes,
        "branch",
        [info("data", TensorProto.FLOAT, [2, 3])],
        [info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.float32(0), "zero")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def expected(path: Path, x: np.ndarray) -> np.ndarray:
    """What the reference implementation in the onnx package says."""
    from onnx.reference import ReferenceEvaluator

    return np.asarray(ReferenceEvaluator(str(path)).run(None, {"data": x})[0])


def image() -> np.ndarray:
    return np.random.default_rng(5).standard_normal(SHAPE).astype(np.float32)
