"""What tests of operators share: long sweeps of which a few points are fast, and the ONNX reference."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sweep(values: Iterable[Any], fast: int = 1, several: bool = False) -> list[Any]:
    """Values to parametrize over; all but the first `fast` are slow. `several` names are given as tuples."""
    return [
        pytest.param(*(v if several else (v,)), marks=() if i < fast else pytest.mark.slow)
        for i, v in enumerate(values)
    ]


def onnx_run(op: str, inputs: list[Any], opset: int = 19, **attributes: Any) -> Any:
    """What the ONNX reference says of one operator; an input that is None is left out."""
    onnx = pytest.importorskip("onnx", reason="the ONNX reference is not installed")
    from onnx.reference import ReferenceEvaluator

    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    given = {n: x for n, x in zip(names, inputs) if n}
    kind = lambda x: onnx.helper.np_dtype_to_tensor_dtype(x.dtype)
    node = onnx.helper.make_node(op, names, ["y"], **attributes)
    declared = [onnx.helper.make_tensor_value_info(n, kind(x), x.shape) for n, x in given.items()]
    out = onnx.helper.make_tensor_value_info("y", kind(inputs[0]), None)
    graph = onnx.helper.make_graph([node], "g", declared, [out])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, given)[0]
