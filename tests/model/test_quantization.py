"""`tilewright.quantize`: networks of 8-bit integers, what they compute here and in onnxruntime, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import relay
from tilewright.relay.build_module import optimize
from tilewright.runtime.errors import TVMError

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

RNG = np.random.default_rng(5)


def network(*nodes: Any, x: list[int], y: list[int], weights: dict[str, Any], opset: int = 17) -> Any:
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)],
        [numpy_helper.from_array(np.asarray(v, np.float32), k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def normal(*shape: int, by: float = 1.0) -> Any:
    return (RNG.standard_normal(shape) * by).astype(np.float32)


def convolutions() -> Any:
    """A convolution with a batch norm, a pooling, two branches of a residual addition, a concatenation, a Gemm."""
    n = helper.make_node
    weights = {
        "w0": normal(8, 3, 3, 3, by=0.3), "gamma": 1 + normal(8, by=0.1), "beta": normal(8, by=0.1),
        "mean": normal(8, by=0.1), "variance": 1 + np.abs(normal(8, by=0.1)),
        "w1": normal(8, 8, 3, 3, by=0.15), "b1": normal(8, by=0.1), "w2": normal(8, 8, 1, 1, by=0.4),
        "w3": normal(16, 1, 3, 3, by=0.4), "w4": normal(10, 16, by=0.3), "b4": normal(10),
    }  # fmt: skip
    return network(
        n("Conv", ["x", "w0"], ["c0"], name="first", pads=[1, 1, 1, 1]),
        n("BatchNormalization", ["c0", "gamma", "beta", "mean", "variance"], ["n0"]),
        n("Relu", ["n0"], ["r0"]),
        n("MaxPool", ["r0"], ["p0"], kernel_shape=[2, 2], strides=[2, 2]),
        n("Conv", ["p0", "w1", "b1"], ["c1"], name="branch", pads=[1, 1, 1, 1]),
        n("Conv", ["p0", "w2"], ["c2"], name="shortcut"),
        n("Add", ["c1", "c2"], ["sum"], name="residual"),
        n("Relu", ["sum"], ["r1"]),
        n("Concat", ["r1", "p0"], ["both"], axis=1),
        n("Conv", ["both", "w3"], ["c3"], name="depthwise", group=16, strides=[2, 2]),
        n("GlobalAveragePool", ["c3"], ["pooled"]),
        n("Flatten", ["pooled"], ["flat"]),
        n("Gemm", ["flat", "w4", "b4"], ["y"], name="last", transB=1),
        x=[2, 3, 16, 16],
        y=[2, 10],
        weights=weights,
    )


def layers(opset: int = 17) -> Any:
    """Matrix products of activations with weights and with each other, and a Gemm."""
    n = helper.make_node
    return network(
        n("MatMul", ["x", "w"], ["q"], name="queries"),
        n("Transpose", ["x"], ["xt"], perm=[0, 2, 1]),
        n("MatMul", ["q", "xt"], ["scores"], name="scores"),
        n("Softmax", ["scores"], ["shares"], axis=-1),
        n("MatMul", ["shares", "x"], ["mixed"], name="values"),
        n("Reshape", ["mixed", "rows"], ["flat"]),
        n("Gemm", ["flat", "v", "b"], ["y"], name="out"),
        x=[2, 12, 32],
        y=[24, 24],
        weights={"w": normal(32, 32, by=0.04), "v": normal(32, 24, by=0.2), "b": normal(24)},
        opset=opset,
    )


def with_rows(model: Any) -> Any:
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 32], np.int64), "rows"))
    return model


NETWORKS = {"convolutions": convolutions(), "layers": with_rows(layers())}


def samples(model: Any, count: int = 4) -> list[dict[str, Any]]:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal(shape).astype(np.float32)} for _ in range(count)]


def in_onnxruntime(model: Any, x: Any, level: Any = None) -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = level or ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, x)[0]


def products_of(model: Any) -> list[list[str]]:
    """The types of the operands of the products after the passes over graphs."""
    mod, params = relay.frontend.from_onnx(model)
    mod, _ = optimize(mod, "llvm", params)
    calls = [e for e in relay.analysis.post_order(mod["main"]) if isinstance(e, relay.Call)]
    names = ("nn.conv2d", "nn.dense", "nn.batch_matmul", "nn.matmul")
    return [[str(a.checked_type.dtype) for a in c.args[:2]] for c in calls if c.op.name in names]


@pytest.mark.parametrize("calibration", ["percentile", "max", "entropy"])
@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.slow
def test_quantized_networks(name: str, calibration: str, activations: str, per_channel: bool) -> None:
    """They compute nearly what the floats do, and what onnxruntime makes of the same file; all products are integers."""
    model = NETWORKS[name]
    data = samples(model)
    made = tilewright.quantize(
        model, data, calibration=calibration, activations=activations, per_channel=per_channel
    )
    onnx.checker.check_model(made.model, full_check=True)
    net = tilewright.compile(made.model)
    assert [o.name for o in net.outputs] == ["y"]
    found, wanted, exact = (
        net(data[0]["x"]),
        in_onnxruntime(made.model, data[0]),
        in_onnxruntime(model, data[0]),
    )
    scale = np.abs(exact).max()
    # a number in the middle between two steps may go to either, and the layers after it follow
    np.testing.assert_allclose(found, wanted, atol=0.02 * scale)
    if calibration != "entropy":  # a few thousand values are too few for a distribution
        np.testing.assert_allclose(found, exact, atol=0.05 * scale)
        assert made.outputs[0].decibels > 25
    kinds = products_of(made.model)
    assert len(kinds) == 5 if name == "convolutions" else 4
    assert all(k in ("uint8", "int8") for operands in kinds for k in operands)


@pytest.mark.slow
def test_the_report_has_each_layer() -> None:
    made = tilewright.quantize(NETWORKS["convolutions"], samples(NETWORKS["convolutions"]))
    assert [x.name for x in made.layers] == ["first", "branch", "shortcut", "depthwise", "last"]
    assert all(x.decibels > 20 for x in made.layers)
    assert made.layers[0].low < 0 < made.layers[0].high and made.layers[1].low == 0
    text = str(made)
    assert "first" in text and "result y" in text and "4 samples (percentile)" in text


@pytest.mark.slow
def test_batch_norms_are_folded_and_shared_tensors_are_quantized_once() -> None:
    made = tilewright.quantize(NETWORKS["convolutions"], samples(NETWORKS["convolutions"])).model
    names = [n.op_type for n in made.graph.node]
    assert "BatchNormalization" not in names
    # x, r0 and p0 (moved, one scale), one operand of the addition, r1 and both (joined), flat and what it is moved from
    scales = {n.input[1] for n in made.graph.node if n.op_type == "QuantizeLinear"}
    values = {
        n: numpy_helper.to_array(i).item() for n in scales for i in made.graph.initializer if i.name == n
    }
    assert values["r0.scale"] == values["p0.scale"] == values["both.scale"] == values["r1.scale"]
    assert ("c1.scale" in scales) != ("c2.scale" in scales)


def test_dynamic_quantization_needs_no_data() -> None:
    model = NETWORKS["layers"]
    made = tilewright.quantize(model, calibration="dynamic")
    data = samples(model)[0]
    found, wanted, exact = (
        tilewright.compile(made.model)(data["x"]), in_onnxruntime(made.model, data), in_onnxruntime(model, data)
    )  # fmt: skip
    np.testing.assert_allclose(found, wanted, atol=0.01 * np.abs(exact).max())
    np.testing.assert_allclose(found, exact, atol=0.05 * np.abs(exact).max())
    assert sorted(products_of(made.model)).count(["uint8", "int8"]) == 2
    checked = tilewright.quantize(model, [data], calibration="dynamic")
    assert checked.outputs[0].decibels > 25 and "when it runs" in str(checked)


@pytest.mark.parametrize(("bits", "decibels"), [(4, 15), (8, 40)])
@pytest.mark.slow
def test_weights_only(bits: int, decibels: int) -> None:
    """It needs no data, blocks may be longer than a row, and onnxruntime computes the same."""
    n = helper.make_node
    weights = {"w0": normal(48, 40, by=0.2), "w1": normal(10, 40, by=0.2), "b1": normal(10)}
    nodes = [
        n("MatMul", ["x", "w0"], ["h"]),
        n("Relu", ["h"], ["r"]),
        n("Gemm", ["r", "w1", "b1"], ["y"], transB=1),
    ]
    model = network(*nodes, x=[3, 48], y=[3, 10], weights=weights)
    data = {"x": normal(3, 48)}
    made = tilewright.quantize(model, data, weights_only=bits, block=16)
    assert [x.op_type for x in made.model.graph.node] == ["MatMulNBits", "Relu", "MatMulNBits", "Add"]
    assert f"weights of {bits} bits" in str(made) and made.outputs[0].decibels > decibels
    found, wanted = tilewright.compile(made.model)(data["x"]), in_onnxruntime(made.model, data)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
    again = tilewright.quantize(model, weights_only=bits, block=16)
    assert again.model.SerializeToString() == made.model.SerializeToString()


def test_data_of_weights_only_may_be_rounded() -> None:
    """The report has the noise of it where the processor multiplies bytes; the result is close in any case."""
    weights = {"w0": normal(64, 40, by=0.2)}
    model = network(helper.make_node("MatMul", ["x", "w0"], ["y"]), x=[3, 64], y=[3, 40], weights=weights)
    data = {"x": normal(3, 64)}
    made = tilewright.quantize(model, data, weights_only=8, data_bits=8)
    (node,) = made.model.graph.node
    assert {a.name: a.i for a in node.attribute}["accuracy_level"] == 4
    assert made.outputs[0].decibels > 35


@pytest.mark.slow
def test_what_is_skipped_stays_float() -> None:
    model = NETWORKS["convolutions"]
    made = tilewright.quantize(model, samples(model), skip=["first", "Gemm"])
    kinds = products_of(made.model)
    assert kinds.count(["float32", "float32"]) == 2 and len(kinds) == 5


@pytest.mark.slow
def test_an_old_model_is_converted() -> None:
    n = helper.make_node
    model = network(
        n("Conv", ["x", "w"], ["c"]), n("Relu", ["c"], ["y"]), x=[1, 3, 8, 8], y=[1, 4, 6, 6],
        weights={"w": normal(4, 3, 3, 3)}, opset=9,
    )  # fmt: skip
    made = tilewright.quantize(model, samples(model))
    assert made.model.opset_import[0].version >= 13
    assert made.outputs[0].decibels > 25


@pytest.mark.slow
def test_a_file_is_read_and_written(tmp_path: Any) -> None:
    model = NETWORKS["convolutions"]
    onnx.save(model, tmp_path / "net.onnx")
    made = tilewright.quantize(tmp_path / "net.onnx", samples(model), compare=False)
    path = made.save(tmp_path / "small.onnx")
    assert path.stat().st_size == made.bytes_after
    x = samples(model)[0]["x"]
    np.testing.assert_array_equal(tilewright.compile(path)(x), tilewright.compile(made.model)(x))
    assert made.layers == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"data": None}, "chooses ranges by values: give data"),
        ({"data": []}, "data is empty"),
        ({"data": [{"z": 1}]}, r"sample 0 is \['z'\]; each sample maps the inputs \['x'\] to arrays"),
        ({"data": [[1]]}, "sample 0 is list"),
        ({"calibration": "mean"}, "it is one of percentile, max, entropy, dynamic"),
        ({"activations": "int4"}, "they are uint8 or int8"),
        ({"weights_only": 3}, "weights_only=3: weights have 4 or 8 bits"),
        ({"data_bits": 8}, "data_bits=8: it is 8, with weights_only, or 0 for float data"),
        ({"weights_only": 4, "block": 20}, "block=20: blocks have 16, 32, 64, 128 or 256 weights"),
        ({"weights_only": 4, "skip": ["Gemm"]}, "there is no MatMul or Gemm with constant float32 weights"),
        ({"skip": ["nothing"]}, "skip='nothing': no node and no operator"),
        ({"skip": ["Conv", "Gemm"]}, "no node can be quantized"),
        ({"model": "nowhere.onnx"}, "there is no such file"),
        ({"model": 3}, "give the path of an ONNX file or a ModelProto"),
        ({"data": [{"x": np.full((2, 3, 16, 16), np.nan, np.float32)}]}, "contains an infinity or NaN"),
    ],
)
def test_refusals(change: dict[str, Any], why: str) -> None:
    model = NETWORKS["convolutions"]
    given = {"model": model, "data": samples(model, 1), **change}
    with pytest.raises((TVMError, ValueError, TypeError), match=why):
        tilewright.quantize(**given)
