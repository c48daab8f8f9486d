"""ONNX models whose sizes are computed while they run: shapes, counts and depths that are inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx_beside import one_node, onnx

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import FrontendError

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def ints(*values: int) -> Any:
    return np.asarray(values, np.int64)


CASES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "reshape": ("Reshape", [X, ints(0, -1)], {}),
    "expand": ("Expand", [X[:, :1], ints(1, 3, 1)], {}),
    "expand to more dimensions": ("Expand", [X[0, :1], ints(5, 3, 1)], {}),
    "expand to fewer dimensions": ("Expand", [X[:, :, :1], ints(3, 4)], {}),
    "tile": ("Tile", [X, ints(2, 1, 3)], {}),
    "constant of shape": ("ConstantOfShape", [ints(2, 3)], {}),
    "range": ("Range", [np.int64(2), np.int64(11), np.int64(3)], {}),
    "range downwards": ("Range", [np.float32(2), np.float32(-3), np.float32(-0.5)], {}),
    "one-hot": ("OneHot", [ints(1, -1, 3), np.int64(5), np.float32([1, 4])], {}),
    "one-hot in front": ("OneHot", [ints(1, -1, 3), ints(5), np.float32([1, 4])], {"axis": 0}),
    "top k": ("TopK", [X, ints(2)], {}),
    "least k": ("TopK", [X, ints(1)], {"axis": 1, "largest": 0}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_size_that_is_an_input(name: str) -> None:
    op, values, attrs = CASES[name]
    inputs = {f"i{i}": np.asarray(v) for i, v in enumerate(values)}
    outputs = ("y", "z") if op == "TopK" else ("y",)
    model = one_node(op, "", inputs, attrs, outputs, opset=17)
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, inputs)
    mod, params = relay.frontend.from_onnx(model)
    run = relay.create_executor("vm", mod, tvm.cpu(), "llvm", params).evaluate()
    found = run(*inputs.values())
    for f, w in zip(found if len(outputs) > 1 else [found], wanted, strict=True):
        np.testing.assert_array_equal(f.numpy(), w)
        assert f.shape == w.shape


def test_how_many_sizes_there_are_must_be_known() -> None:
    model = one_node("Tile", "", {"x": X, "reps": ints(1, 1, 1)}, opset=17)
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_param = "n"
    with pytest.raises(FrontendError, match=r"input 1 \('reps'\) must be known at import"):
        relay.frontend.from_onnx(model)
