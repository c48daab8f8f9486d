"""Strings of ONNX models: labels, categories, and what only passes through, beside onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
import onnx
from onnx import helper
from onnx_beside import ML, by_onnxruntime, one_node

import tilewright
from tilewright import relay
from tilewright.contrib import onnx_backend
from tilewright.ir.errors import FrontendError
from tilewright.runtime.words import Numbering

STRING, INT64, FLOAT = (getattr(onnx.TensorProto, k) for k in ("STRING", "INT64", "FLOAT"))


def texts(*words: str) -> Any:
    return np.array(words, object)


def beside(model: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """The results here, which are those of onnxruntime."""
    found, wanted = list(onnx_backend.run_model(model, dict(feeds))), by_onnxruntime(model, feeds)
    for f, w in zip(found, wanted, strict=True):
        if np.asarray(w).dtype.kind in "OU":
            assert f.dtype == object and f.tolist() == np.asarray(w).tolist()
        else:
            assert f.dtype == w.dtype
            np.testing.assert_allclose(f, w, rtol=1e-5, atol=1e-5)
    return found


def lookup(attrs: Mapping[str, Any], x: Any, op: str = "LabelEncoder", version: int = 4) -> Any:
    model = one_node(op, ML, {"x": x}, attrs, version=version)
    if x.dtype == object:
        model.graph.input[0].type.tensor_type.elem_type = STRING
    return beside(model, {"x": x})[0]


@pytest.mark.slow
def test_tables_from_and_to_strings() -> None:
    words, numbers = ["b", "a", "b"], [5, 6, 7]
    x = texts("a", "b", "unknown", "")
    assert lookup({"keys_strings": words, "values_int64s": numbers}, x).tolist() == [6, 5, -1, -1]
    lookup({"keys_strings": words, "values_floats": [0.5, 1.5, 2.5], "default_float": 9.0}, x)
    lookup({"keys_strings": words, "values_strings": ["x", "a", "z"], "default_string": "?"}, x)
    attrs = {"keys_int64s": [3, 1], "values_strings": ["three", "one"]}
    assert lookup(attrs, np.array([[1, 2], [3, 3]])).tolist() == [["one", "_Unused"], ["three", "three"]]


def test_categories() -> None:
    attrs = {"cats_strings": ["b", "a"], "cats_int64s": [7, 3], "default_int64": -2, "default_string": "none"}
    lookup(attrs, texts("a", "b", "c"), "CategoryMapper", 1)
    lookup(attrs, np.array([3, 7, 8]), "CategoryMapper", 1)
    lookup({"cats_strings": ["b", "a"], "zeros": 1}, texts("a", "b", "c"), "OneHotEncoder", 1)


@pytest.mark.parametrize("op", ["LinearClassifier", "SVMClassifier", "TreeEnsembleClassifier"])
def test_labels(op: str) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((9, 2)).astype("float32")
    attrs: dict[str, Any] = {
        "LinearClassifier": {"coefficients": rng.standard_normal(6).tolist(), "intercepts": [0.1, 0.2, 0.3]},
        "SVMClassifier": {
            "kernel_type": "LINEAR", "kernel_params": [0.0, 0.0, 0.0], "vectors_per_class": [1, 1, 1],
            "support_vectors": rng.standard_normal(6).tolist(), "coefficients": rng.standard_normal(6).tolist(),
            "rho": [0.01, -0.01, 0.02],
        },
        "TreeEnsembleClassifier": {
            "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
            "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.1, 0.0, 0.0],
            "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "class_treeids": [0, 0],
            "class_nodeids": [1, 2], "class_ids": [2, 1], "class_weights": [1.0, 1.0],
        },
    }[op]  # fmt: skip
    attrs["classlabels_strings"] = ["cat", "dog", "cow"]
    model = one_node(op, ML, {"x": x}, attrs, ("label", "scores"))
    labels, _ = beside(model, {"x": x})
    assert set(labels.tolist()) <= {"cat", "dog", "cow"} and len(set(labels.tolist())) > 1


def passing() -> Any:
    """Strings that are joined with others of the model, reordered, compared and returned."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("Concat", ["x", "more"], ["all"], axis=0),
        node("Gather", ["all", "order"], ["picked"]),
        node("Equal", ["picked", "first"], ["same"]),
        node("Where", ["same", "hit", "picked"], ["shown"]),
        node("Reshape", ["shown", "two"], ["y"]),
    ]
    constants = [
        helper.make_tensor("more", STRING, [2], [b"m", "größe".encode()]),
        helper.make_tensor("first", STRING, [1], [b"m"]),
        helper.make_tensor("hit", STRING, [], [b"HIT"]),
        helper.make_tensor("order", INT64, [4], [4, 3, 0, 2]),
        helper.make_tensor("two", INT64, [2], [2, 2]),
    ]
    outputs = [info("y", STRING, [2, 2]), info("same", onnx.TensorProto.BOOL, [4])]
    graph = helper.make_graph(nodes, "g", [info("x", STRING, [3])], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_strings_pass_through() -> None:
    for words in (("a", "b", "c"), ("m", "a", "größe"), ("", "x", "m")):
        beside(passing(), {"x": texts(*words)})


def test_a_compiled_model_takes_and_returns_strings(tmp_path: Path) -> None:
    model = passing()
    x = texts("m", "new", "other")
    wanted = by_onnxruntime(model, {"x": x})
    net = tilewright.compile(model)
    assert net.strings == {"x", "y"}
    net.save(tmp_path / "net.tar")
    for made in (net, tilewright.load(tmp_path / "net.tar")):
        y, same = made(x)
        assert y.tolist() == wanted[0].tolist() and same.tolist() == wanted[1].tolist()
        assert made.run({"x": ["m", "new", "other"]})["y"].tolist() == wanted[0].tolist()
    session = tilewright.InferenceSession(model)
    assert [t.type for t in (*session.get_inputs(), *session.get_outputs())] == [
        "tensor(string)",
        "tensor(string)",
        "tensor(bool)",
    ]
    assert session.run(["y"], {"x": np.array(["m", "new", "other"])})[0].tolist() == wanted[0].tolist()


def test_operators_that_make_strings_are_refused() -> None:
    node, info = helper.make_node, helper.make_tensor_value_info
    graph = helper.make_graph(
        [node("Add", ["x", "x"], ["y"])], "g", [info("x", STRING, [3])], [info("y", STRING, [3])]
    )
    with pytest.raises(
        FrontendError, match="node Add -> y: strings are not computed with here: they only pass"
    ):
        relay.frontend.from_onnx(helper.make_model(graph))
    zipped = one_node("ZipMap", ML, {"x": np.ones((2, 2), "float32")}, {"classlabels_int64s": [0, 1]})
    with pytest.raises(FrontendError, match=r"export the scores as a tensor \(skl2onnx: options="):
        relay.frontend.from_onnx(zipped)


def test_numbers_of_strings() -> None:
    words = Numbering(("a", "b"))
    assert words.encoded([["b", b"new"], ["a", "new"]]).tolist() == [[1, 2], [0, 2]]
    assert words.decoded(np.array([2, 0])).tolist() == ["new", "a"]
    assert (
        words.encoded(np.empty((0, 2), object)).shape == words.decoded(np.empty((0, 2), int)).shape == (0, 2)
    )


@pytest.mark.parametrize("dims", [(3,), (-1, -2), ()])
def test_an_initialiser_with_another_number_of_strings_is_refused(dims: tuple[int, ...]) -> None:
    held = onnx.TensorProto(data_type=STRING, dims=dims, name="w", string_data=[b"a", b"b"])
    node = helper.make_node("Identity", ["w"], ["y"])
    y = helper.make_tensor_value_info("y", STRING, None)
    model = helper.make_model(helper.make_graph([node], "g", [], [y], [held]))
    with pytest.raises(FrontendError, match="the initialiser 'w' has 2 strings, and its shape is"):
        relay.frontend.from_onnx(model)
