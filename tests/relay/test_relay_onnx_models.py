"""Real models out of Python packages: imported with their dynamic sizes, and compiled against onnxruntime."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.ty import TensorType

pytest.importorskip("onnx")

# name: package, file in it, inputs (a shape, or a value that is fixed at import)
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "speech": (
        "silero_vad",
        "data/silero_vad_16k_op15.onnx",
        {"input": (1, 576), "state": (2, 1, 128), "sr": 16000},
    ),
    "speech, without branches": (
        "silero_vad",
        "data/silero_vad_openvino_16k.onnx",
        {"input": (1, 576), "state": (2, 1, 128)},
    ),
    "file types": ("magika", "models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}),
    "text upside down": (
        "rapidocr_onnxruntime",
        "models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        {"x": (1, 3, 48, 192)},
    ),
    "where text is": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx", {"x": (1, 3, 96, 128)}),
    "what text says": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx", {"x": (1, 3, 48, 160)}),
    "pitch of music": (
        "basic_pitch",
        "saved_models/icassp_2022/nmp.onnx",
        {"serving_default_input_2:0": (1, 43844, 1)},
    ),
    "detection": ("nudenet", "320n.onnx", {"images": (1, 3, 96, 96)}),
    "captcha": ("ddddocr", "common.onnx", {"input1": (1, 1, 64, 96)}),
    "captcha in 8 bits": ("ddddocr", "common_old.onnx", {"input1": (1, 1, 64, 96)}),
}


def file_of(package: str, path: str) -> Path:
    found = importlib.util.find_spec(package)
    places = list(found.submodule_search_locations or []) if found is not None else []
    for place in places:
        if (Path(place) / path).is_file():
            return Path(place) / path
    pytest.skip(f"{package} is not installed (or has no {path})")


def values_of(mod: Any, inputs: dict[str, Any]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    out = {}
    for p in mod["main"].params:
        kind = str(p.checked_type.dtype)
        shape = inputs[p.name_hint]
        drawn = rng.standard_normal(shape) * 0.5 if kind.startswith("float") else rng.integers(0, 256, shape)
        out[p.name_hint] = drawn.astype(kind)
    return out


@pytest.mark.parametrize("name", MODELS)
def test_dynamic_sizes_stay(name: str) -> None:
    package, path, inputs = MODELS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a size that a branch takes to be 1
        mod, params = relay.frontend.from_onnx(file_of(package, path))
    assert not params
    for p in mod["main"].params:
        assert isinstance(p.checked_type, TensorType)
        shape = inputs[p.name_hint] if isinstance(inputs[p.name_hint], tuple) else ()
        assert len(p.checked_type.shape) == len(shape)
        for d, size in zip(p.checked_type.shape, shape, strict=True):
            assert not isinstance(d, int) or d == size


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_it_agrees_with_onnxruntime(name: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    package, path, inputs = MODELS[name]
    model = file_of(package, path)
    shapes = {k: s if isinstance(s, tuple) else () for k, s in inputs.items()}
    mod, _ = relay.frontend.from_onnx(model, shape=shapes)
    values = values_of(mod, {k: s if isinstance(s, tuple) else () for k, s in inputs.items()})
    for k, s in inputs.items():
        if not isinstance(s, tuple):
            values[k] = np.asarray(s, np.int64)
    wanted = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(None, values)
    module = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    for p in mod["main"].params:
        module.set_input(p.name_hint, values[p.name_hint])
    module.run()
    for i, w in enumerate(wanted):
        found = module.get_output(i).numpy()
        assert found.shape == w.shape
        np.testing.assert_allclose(found, w, rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(w).max())))
