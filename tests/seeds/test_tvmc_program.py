"""The program of a seed document that drives a model from file to result, with only its import line changed."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.tune.records.database import Database

onnx = pytest.importorskip("onnx")

PROGRAM = """
from tilewright.driver import tvmc

#Step 1: Load
model = tvmc.load('resnet50-v2-7.onnx', shape_dict={'data':[1, 3, 224, 224]})

#Step 1.5: Optional Tune
tuning_records = tvmc.tune(model, target="llvm")

#Step 2: Compile
package = tvmc.compile(model, target="llvm", tuning_records = tuning_records)

#Step 3: Run
result = tvmc.run(package, device="cpu")

print(result)
"""


def _write(path: Path, nodes: list[Any], weights: dict[str, np.ndarray]) -> None:
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, ["N", 3, 224, 224])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(w.astype(np.float32), name) for name, w in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def write_residual(path: Path) -> None:
    """The beginning and end of a residual network, with one block between: small, and of all its parts."""
    from onnx.helper import make_node as node

    rng = np.random.default_rng(zlib.crc32(b"resnet"))
    weights = {
        "stem": rng.standard_normal((8, 3, 7, 7)) * 0.1,
        "conv": rng.standard_normal((8, 8, 3, 3)) * 0.1,
        "dense": rng.standard_normal((10, 8)),
        "bias": rng.standard_normal(10),
    }
    for i, name in enumerate(("scale", "shift", "mean", "var")):
        weights[name] = np.abs(rng.standard_normal(8)) + (i == 3)
    nodes = [
        node("Conv", ["data", "stem"], ["a"], strides=[2, 2], pads=[3, 3, 3, 3]),
        node("BatchNormalization", ["a", "scale", "shift", "mean", "var"], ["b"]),
        node("Relu", ["b"], ["c"]),
        node("MaxPool", ["c"], ["d"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["d", "conv"], ["e"], pads=[1, 1, 1, 1]),
        node("Add", ["d", "e"], ["f"]),
        node("Relu", ["f"], ["g"]),
        node("GlobalAveragePool", ["g"], ["h"]),
        node("Flatten", ["h"], ["i"]),
        node("Gemm", ["i", "dense", "bias"], ["out"], transB=1),
    ]
    _write(path, nodes, weights)


def _run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], trials: int
) -> tuple[dict[str, Any], str]:
    """Run the program, with few trials; every kernel that was tuned is built by what was measured."""
    from tilewright.driver.tvmc import autotuner
    from tilewright.driver.tvmc import history as histories

    built: list[Any] = []
    inner = histories.records_of
    monkeypatch.setattr(autotuner, "DEFAULT_TRIALS", trials)
    monkeypatch.setattr(autotuner, "chosen_tasks", lambda wanted, found: found[-4:])  # of 40 the lightest
    monkeypatch.setattr(histories, "records_of", lambda *a: (built.append(inner(*a)), built[-1])[1])
    scope: dict[str, Any] = {}
    exec(PROGRAM, scope)
    (history,) = built
    with Database(scope["tuning_records"]) as database:
        measured = {r.workload for r in database.records() if r.ok}
    assert measured and set(history.used) == measured
    return scope, capsys.readouterr().out


@pytest.mark.slow
def test_load_compile_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """003_6d17afb3b306fbc9: Demo, on a model of the same input in place of the one that is downloaded."""
    from onnx.reference import ReferenceEvaluator

    from tilewright.tvmc.runner import generate_tensor_data

    monkeypatch.chdir(tmp_path)
    write_residual(tmp_path / "resnet50-v2-7.onnx")
    scope, printed = _run(monkeypatch, capsys, 8)
    assert printed.startswith("out: float32[1, 10], from ")
    x = generate_tensor_data((1, 3, 224, 224), "float32")
    (wanted,) = ReferenceEvaluator("resnet50-v2-7.onnx").run(None, {"data": x})
    np.testing.assert_allclose(scope["result"].get_output("output_0"), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.long
@pytest.mark.slow
def test_load_compile_run_of_resnet_50(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """003_6d17afb3b306fbc9: Demo, on the structure of ResNet-50 in the onnx package."""
    from onnx import helper

    light = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
    found = onnx.load(light)
    for node in found.graph.node:  # the demo's model names its input otherwise
        for i, name in enumerate(node.input):
            if name == "gpu_0/data_0":
                node.input[i] = "data"
    kept = [i for i in found.graph.input if i.name != "gpu_0/data_0"]
    del found.graph.input[:]
    found.graph.input.extend(
        [helper.make_tensor_value_info("data", 1, [1, 3, 224, 224]), *kept],
    )
    monkeypatch.chdir(tmp_path)
    onnx.save(found, "resnet50-v2-7.onnx")
    scope, printed = _run(monkeypatch, capsys, 2)
    assert printed.startswith("gpu_0/softmax_1: float32[1, 1000], from ")
    scores = scope["result"].get_output("output_0")
    np.testing.assert_allclose(scores.sum(), 1.0, rtol=1e-4)  # a softmax ends it
