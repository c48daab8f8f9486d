"""Kernels know the nodes of the model that they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay


def _nodes(mod: tvm.IRModule, params: Any) -> list[tuple[str, ...]]:
    with tvm.transform.PassContext(opt_level=3):
        return [step.nodes for step in relay.build(mod, "llvm", params=params).model.steps]


def test_onnx_nodes_by_name_or_by_their_result() -> None:
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], name="/fc/MatMul"),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Softmax", ["a"], ["y"], name="/Softmax"),
    ]
    info, array = helper.make_tensor_value_info, onnx.numpy_helper.from_array
    graph = helper.make_graph(
        nodes, "net", [info("x", 1, [2, 8])], [info("y", 1, [2, 4])],
        [array(np.ones((8, 4), "float32"), "w"), array(np.ones(4, "float32"), "b")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert _nodes(*relay.frontend.from_onnx(model)) == [("/fc/MatMul", "a"), ("/Softmax",)]


@pytest.mark.slow
def test_the_paths_of_pytorch_modules() -> None:
    torch = pytest.importorskip("torch")
    block = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    net = torch.nn.Sequential(block, torch.nn.Softmax(-1)).eval()
    exported = torch.export.export(net, (torch.ones(2, 8),))
    assert _nodes(*relay.frontend.from_exported_program(exported)) == [("0.0", "0.1"), ("1",)]
