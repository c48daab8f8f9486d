"""ONNX models: `tilewright.compile("net.onnx")`, and `InferenceSession` beside onnxruntime's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright.runtime.errors import ArgumentTypeError, ArgumentValueError

onnx = pytest.importorskip("onnx")

RNG = np.random.default_rng(4)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


@pytest.fixture
def model() -> Any:
    """Two results named `0` and `probs`, an open batch."""
    h = onnx.helper
    nodes = [h.make_node("MatMul", ["1", "w"], ["0"]), h.make_node("Softmax", ["0"], ["probs"], axis=-1)]
    kind = onnx.TensorProto.FLOAT
    made = h.make_graph(
        nodes,
        "net",
        [h.make_tensor_value_info("1", kind, ["batch", 4])],
        [
            h.make_tensor_value_info("0", kind, ["batch", 3]),
            h.make_tensor_value_info("probs", kind, ["batch", 3]),
        ],
        [onnx.numpy_helper.from_array(np.arange(12, dtype="float32").reshape(4, 3) / 10, "w")],
    )
    return h.make_model(made, opset_imports=[h.make_opsetid("", 17)], ir_version=9)


@pytest.mark.slow
def test_a_file_a_proto_and_an_example(model: Any, tmp_path: Path) -> None:
    onnx.save(model, tmp_path / "net.onnx")
    x = floats(2, 4)
    wanted = x @ (np.arange(12, dtype="float32").reshape(4, 3) / 10)
    for net in (tilewright.compile(tmp_path / "net.onnx"), tilewright.compile(model)):
        assert net.is_dynamic and str(net.inputs[0]) == "1: float32[batch, 4]"
        np.testing.assert_allclose(net(x)["0"], wanted, rtol=1e-5, atol=1e-6)
    net = tilewright.compile(str(tmp_path / "net.onnx"), x)
    assert not net.is_dynamic and net.inputs[0].shape == (2, 4)
    np.testing.assert_allclose(net(**{"1": x})["probs"].sum(1), 1, rtol=1e-5)
    net = tilewright.compile(model, x, dynamic={"1": [0]})
    assert net.inputs[0].shape == ("batch", 4)
    with pytest.raises(ArgumentValueError, match="dimension 1 of the input '1' is 4 in the model"):
        tilewright.compile(model, x, dynamic={"1": [1]})


@pytest.mark.slow
def test_a_session_answers_as_onnxruntime_does(model: Any) -> None:
    ort = pytest.importorskip("onnxruntime")
    mine = tilewright.InferenceSession(model.SerializeToString())
    theirs = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for a, b in zip(
        mine.get_inputs() + mine.get_outputs(), theirs.get_inputs() + theirs.get_outputs(), strict=True
    ):
        assert (a.name, a.shape, a.type) == (b.name, b.shape, b.type)
    assert mine.get_providers() == theirs.get_providers()
    for n in (1, 3):
        x = floats(n, 4)
        for names in (None, ["probs"], ["probs", "0"]):
            for a, b in zip(mine.run(names, {"1": x}), theirs.run(names, {"1": x}), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_options_of_a_session(model: Any) -> None:
    options = tilewright.SessionOptions()
    options.intra_op_num_threads = 1
    session = tilewright.InferenceSession(model, options)
    assert session.run(["0"], {"1": floats(2, 4)})[0].shape == (2, 3)
    with pytest.warns(RuntimeWarning, match=r"SessionOptions\.enable_mem_pattern does nothing here"):
        options.enable_mem_pattern = False
    with pytest.raises(AttributeError, match="SessionOptions has no option 'speed'"):
        options.speed = 1
    with pytest.raises(ArgumentValueError, match="known are CPUExecutionProvider, CUDAExecutionProvider"):
        tilewright.InferenceSession(model, providers=["OtherExecutionProvider"])
    with pytest.raises(ArgumentValueError, match="there is no result 'p'; the results are 0, probs"):
        session.run(["p"], {"1": floats(2, 4)})
    with pytest.raises(ArgumentTypeError, match="was not given 1"):
        session.run(None, {})
