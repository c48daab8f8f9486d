"""`tilewright quantize`: samples from files, the report, and errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tilewright.tvmc.app import app

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], name="conv"), helper.make_node("Relu", ["c"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 6, 6])],
        [numpy_helper.from_array(rng.standard_normal((4, 3, 3, 3)).astype("float32"), "w")],
    )
    path = tmp_path_factory.mktemp("quantize") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def run(*words: Any) -> Any:
    return CliRunner().invoke(app, ["quantize", *map(str, words)])


def images(count: int) -> Any:
    return np.random.default_rng(1).standard_normal((count, 1, 3, 8, 8)).astype("float32")


@pytest.mark.slow
def test_samples_of_one_file(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "samples.npz", x=images(5))
    out = tmp_path / "small.onnx"
    done = run(model, "--data", tmp_path / "samples.npz", "-o", out, "--json", "--quiet")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["samples"] == 5 and told["output"] == str(out)
    assert [x["name"] for x in told["layers"]] == ["conv"]
    assert told["outputs"][0]["decibels"] > 25
    assert {n.op_type for n in onnx.load(out).graph.node} >= {"QuantizeLinear", "DequantizeLinear"}


def test_a_folder_of_samples_and_a_name_for_the_result(model: Path, tmp_path: Path) -> None:
    for i, x in enumerate(images(3)):
        np.savez(tmp_path / f"{i}.npz", x=x)
    done = run(model, "--data", tmp_path, "--calibration", "max")
    assert done.exit_code == 0, done.output
    assert "conv" in done.stdout and "result y" in done.stdout and "3 samples (max)" in done.stdout
    assert model.with_suffix(".int8.onnx").is_file()
    assert "sample 3 of 3" in done.stderr


def test_random_samples_measure_speed_only(model: Path, tmp_path: Path) -> None:
    done = run(model, "--random", 2, "-o", tmp_path / "s.onnx", "--no-compare")
    assert done.exit_code == 0, done.output
    assert "measuring speed only" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([], "needs samples: --data FILE"),
        (["--data", "FOLDER"], "there is no .npz file in this folder"),
        (["--data", "FOLDER", "--random", "2"], "exclude each other"),
        (["--random", "2", "-o", "MODEL"], "is the model itself"),
        (["--random", "2", "--skip", "nobody"], "no node and no operator of the network has this name"),
        (["--calibration", "mean", "--random", "1"], "it is one of percentile"),
        (["--data", "BAD"], "the first dimension of its arrays must be the number of samples"),
    ],
)
def test_refusals(model: Path, tmp_path: Path, words: list[str], why: str) -> None:
    np.savez(tmp_path / "bad.npz", x=np.zeros((2, 1), "float32"), y=np.zeros(3, "float32"))
    (tmp_path / "empty").mkdir()
    places = {"FOLDER": tmp_path / "empty", "MODEL": model, "BAD": tmp_path / "bad.npz"}
    done = run(model, *(places.get(w, w) for w in words))
    assert done.exit_code != 0
    assert why in " ".join(done.stderr.split())


def test_weights_only_need_no_data(tmp_path: Path) -> None:
    w = np.random.default_rng(0).standard_normal((32, 8)).astype("float32")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [numpy_helper.from_array(w, "w")],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    done = run(path, "--weights-only", 4, "--block", 16)
    assert done.exit_code == 0, done.output
    assert "weights of 4 bits" in done.stdout
    (node,) = onnx.load(tmp_path / "net.w4.onnx").graph.node
    assert node.op_type == "MatMulNBits"
