"""tvmc over files of other frameworks: PyTorch's, Keras' and TensorFlow's."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilewright.driver import tvmc
from tilewright.ir.errors import FrontendError

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")


def run(loaded: tvmc.TVMCModel, *values: np.ndarray, **options: Any) -> np.ndarray:
    inputs = dict(zip(loaded.inputs(), values, strict=True))
    return tvmc.run(tvmc.compile(loaded, "llvm"), inputs=inputs, **options).outputs["output_0"]


@pytest.mark.slow
def test_pytorch_files(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    x = torch.arange(8, dtype=torch.float32).reshape(2, 4)
    with torch.no_grad():
        wanted = net(x).numpy()
    torch.jit.save(torch.jit.trace(net, x), tmp_path / "net.pt")
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net.pt2")
    with pytest.raises(FrontendError, match=r"net\.pt: a traced module has no shapes of inputs"):
        tvmc.load(tmp_path / "net.pt")
    for loaded in (tvmc.load(tmp_path / "net.pt", shape_dict={"x": (2, 4)}), tvmc.load(tmp_path / "net.pt2")):
        (name,) = loaded.inputs()
        found = tvmc.run(tvmc.compile(loaded, "llvm"), inputs={name: x.numpy()}).outputs["output_0"]
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    (tmp_path / "bad.pt").write_bytes(b"no archive")
    with pytest.raises(FrontendError, match=r"bad\.pt: is not a traced or scripted module, or a damaged one"):
        tvmc.load(tmp_path / "bad.pt", shape_dict={"x": (2, 4)})


@pytest.mark.slow
def test_a_traced_module_of_numbers_of_words(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Embedding(7, 4), torch.nn.Linear(4, 3)).eval()
    ids = torch.tensor([[1, 2, 6], [0, 5, 5]])
    torch.jit.save(torch.jit.trace(net, ids), tmp_path / "net.pt")
    loaded = tvmc.load(tmp_path / "net.pt", shape_dict={"ids": ([2, 3], "int64")})
    assert str(loaded.inputs()["ids"]) == "Tensor[(2, 3), int64]"
    np.testing.assert_allclose(run(loaded, ids.numpy()), net(ids).detach().numpy(), atol=1e-5)


@pytest.mark.slow
def test_an_exported_program_keeps_its_open_sizes_or_gets_others(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
    batch = {0: torch.export.Dim("batch", min=1, max=64)}
    path = tmp_path / "net.pt2"
    torch.export.save(torch.export.export(net, (torch.ones(2, 4),), dynamic_shapes=(batch,)), path)

    loaded = tvmc.load(path)
    package = tvmc.compile(loaded, "llvm")
    assert package.executor_type == "vm"
    (name,) = loaded.inputs()
    for size in (1, 5):
        x = torch.arange(size * 4, dtype=torch.float32).reshape(size, 4)
        found = tvmc.run(package, inputs={name: x.numpy()}).outputs["output_0"]
        np.testing.assert_allclose(found, net(x).detach().numpy(), atol=1e-5)

    fixed = tvmc.load(path, shape_dict={name: [3, 4]})
    assert str(fixed.inputs()[name]) == "Tensor[(3, 4), float32]"
    assert tvmc.compile(fixed, "llvm").executor_type == "graph"
    with pytest.raises(FrontendError, match=r"which \[3, 5\] does not fit; export it again with others"):
        tvmc.load(path, shape_dict={name: [3, 5]})
    with pytest.raises(FrontendError, match=r"there is no input 'y'; the inputs are "):
        tvmc.load(path, shape_dict={"y": [3, 4]})
    with pytest.raises(FrontendError, match=r"the types are in the file; give .* its sizes alone"):
        tvmc.load(path, shape_dict={name: ([3, 4], "float32")})


@pytest.mark.slow
def test_keras_and_tensorflow_files(tmp_path: Path) -> None:
    pytest.importorskip("tf2onnx", reason="needs tf2onnx: pip install 'tilewright[tensorflow]'")
    keras = pytest.importorskip("keras", reason="needs keras: pip install 'tilewright[tensorflow]'")
    layers = [keras.layers.Conv2D(3, 2), keras.layers.Flatten(), keras.layers.Dense(2)]
    net = keras.Sequential([keras.Input((4, 5, 2), name="x"), *layers])
    net.save(tmp_path / "net.keras")
    net.export(tmp_path / "saved", verbose=False)
    x = np.random.default_rng(1).standard_normal((3, 4, 5, 2)).astype("float32")
    for name in ("net.keras", "saved"):
        loaded = tvmc.load(tmp_path / name, shape_dict={"x": x.shape})
        np.testing.assert_allclose(run(loaded, x), np.asarray(net(x)), atol=1e-5)


@pytest.mark.parametrize("name", ["net.keras", "net.h5", "net.pb", "saved/saved_model.pb"])
def test_what_is_missing_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x")
    monkeypatch.setattr(importlib.util, "find_spec", lambda package: None if package == "tf2onnx" else 1)
    file = path.parent if "/" in name else path
    with pytest.raises(FrontendError) as caught:
        tvmc.load(file)
    assert str(caught.value) == (
        f"{file}: reading it needs the package 'tf2onnx'; pip install 'tilewright[tensorflow]'"
    )


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(FrontendError, match="is a folder, and no SavedModel of TensorFlow"):
        tvmc.load(tmp_path)
