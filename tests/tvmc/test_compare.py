"""`tilewright bench` and `tilewright check`: a model beside onnxruntime."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tilewright.__main__ import app
from tilewright.tvmc.compare import compared, given_inputs
from tilewright.tvmc.errors import TVMCException

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture
def net(tmp_path: Path) -> Path:
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = h.make_graph(
        [
            h.make_node("MatMul", ["x", "w"], ["y"], name="product"),
            h.make_node("Exp", ["y"], ["z"], name="exp"),
        ],
        "net",
        [h.make_tensor_value_info("x", kind, ["batch", 4])],
        [h.make_tensor_value_info("z", kind, ["batch", 3])],
        [onnx.numpy_helper.from_array(np.linspace(-1, 1, 12, dtype="float32").reshape(4, 3), "w")],
    )
    path = tmp_path / "net.onnx"
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9), str(path))
    return path


def command(*words: Any) -> Any:
    return CliRunner().invoke(app, [str(w) for w in words])


@pytest.mark.slow
def test_bench_has_times_and_errors(net: Path) -> None:
    done = command("bench", net, "--shapes", "x:[2,4]", "--repeat", 2, "--json", "--threads", 1)
    assert done.exit_code == 0, done.output
    ours, theirs = json.loads(done.stdout)["engines"]
    assert (ours["engine"], ours["ratio"], theirs["engine"]) == ("tilewright", 1.0, "onnxruntime")
    assert theirs["median_seconds"] > 0 and theirs["relative_error"] < 1e-5


@pytest.mark.slow
def test_bench_works_alone_without_onnxruntime(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.tvmc.compare.find_spec", lambda name: None)
    done = command("bench", net, "--shapes", "x:[2,4]", "--repeat", 1, "--threads", 1)
    assert done.exit_code == 0 and "onnxruntime is not installed, so tilewright is timed alone" in done.output


@pytest.mark.slow
def test_check_names_the_first_node_that_differs(net: Path) -> None:
    done = command("check", net, "--shapes", "x:[2,4]")
    assert done.exit_code == 0 and done.stdout.startswith("z: largest error")
    done = command("check", net, "--shapes", "x:[2,4]", "--tolerance", -1, "--json")
    assert done.exit_code == 1 and "1 of 1 results differ from onnxruntime's" in done.output
    first = json.loads(done.stdout[: done.stdout.rindex("}") + 1].split("\n}\n")[0] + "\n}")["first"]
    assert (first["node"], first["op"]) == ("product", "MatMul")


@pytest.mark.slow
def test_a_model_runs_without_a_package(net: Path) -> None:
    done = command("run", net, "--shapes", "x:[2,4]", "--fill-mode", "zeros")
    assert done.exit_code == 0 and "z: float32[2, 3], from 1 to 1" in done.stdout


def test_dynamic_inputs_need_sizes(net: Path) -> None:
    with pytest.raises(
        TVMCException, match=r"dynamic shape \[batch, 4\]: give sizes, --shapes \"x:\[1, 4\]\""
    ):
        given_inputs(net, None, "", "random")
    assert given_inputs(net, None, "x:[3,4]", "ones")["x"].shape == (3, 4)
    done = command("bench", net, "--against", "cublas")
    assert done.exit_code == 1 and "--against cublas: known are onnxruntime, openvino" in done.output


def test_errors_of_arrays() -> None:
    a = np.array([1.0, np.nan, np.inf, 4.0], "float32")
    assert compared(a, a)["error"] == 0
    b = a.copy()
    b[3] = 2
    assert compared(b, a) == {"error": 2.0, "relative": 0.5, "at": [3]}
    b[1] = 0
    assert compared(b, a)["error"] == np.inf
    assert compared(np.zeros(2), np.zeros(3))["why"] == "shape [2]"
