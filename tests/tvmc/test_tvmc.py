"""tvmc in Python: load, compile, run; package files; what is refused and how."""

from __future__ import annotations

import argparse
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from tilewright.driver.tvmc.runner import generate_tensor_data, load_inputs
from tilewright.driver.tvmc.shape_parser import parse_shape_string
from tvmc_models import SHAPE, expected, image, write_small

import tilewright as tvm
from tilewright import relay
from tilewright.driver import tvmc
from tilewright.ir.errors import FrontendError


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("tvmc") / "small.onnx")


@pytest.fixture(scope="module")
def model(model_path: Path) -> tvmc.TVMCModel:
    return tvmc.load(model_path)


@pytest.fixture(scope="module")
def package(model: tvmc.TVMCModel, tmp_path_factory: pytest.TempPathFactory) -> tvmc.TVMCPackage:
    return tvmc.compile(model, "llvm", package_path=tmp_path_factory.mktemp("tvmc") / "net.tar")


# -- load ---------------------------------------------------------------------------------------
def test_a_model_has_its_program_and_parameters(model: tvmc.TVMCModel) -> None:
    assert sorted(model.params) == ["conv.w", "fc.b", "fc.w"]
    assert list(model.inputs()) == ["data"]
    assert "nn.conv2d" in model.summary()
    assert repr(model) == "TVMCModel(small: (data: Tensor[(1, 3, 8, 8), float32]), 3 parameters)"


def test_shapes_may_be_given(tmp_path: Path) -> None:
    path = write_small(tmp_path / "open.onnx", batch="n")
    found = tvmc.load(path, shape_dict={"data": [2, *SHAPE[1:]]}).inputs()
    assert str(found["data"]) == "Tensor[(2, 3, 8, 8), float32]"


def test_a_saved_model_is_the_same_model(
    model: tvmc.TVMCModel, package: tvmc.TVMCPackage, tmp_path: Path
) -> None:
    model.save(tmp_path / "saved.tar")
    again = tvmc.load(tmp_path / "saved.tar")
    assert tvm.ir.structural_equal(again.mod, model.mod)
    assert again.name == "small"
    for name, value in model.params.items():
        np.testing.assert_array_equal(again.params[name].numpy(), value.numpy())
    assert tvmc.TVMCModel(model_path=tmp_path / "saved.tar").name == "small"
    with pytest.raises(tvmc.TVMCException, match="takes a module, or model_path"):
        tvmc.TVMCModel()
    with pytest.raises(
        tvmc.TVMCException, match=r"saved\.tar: is a model, and a package is needed here; compile"
    ):
        tvmc.TVMCPackage(tmp_path / "saved.tar")
    with pytest.raises(
        tvmc.TVMCException, match=r"net\.tar: is a package, and a model is needed here; .*run"
    ):
        tvmc.load(package.package_path)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("no.onnx", None, "no.onnx: there is no such file"),
        ("net.tflite", b"x", "net.tflite: .tflite files are read through ONNX: python -m tf2onnx.convert"),
        ("net.model", b"x", "net.model: its suffix is not that of a model"),
        ("bad.onnx", b"\xff" * 40, "bad.onnx: is not an ONNX model, or a damaged one"),
        ("bad.tar", b"\xff" * 40, "bad.tar: is neither a package nor a saved model of tilewright"),
    ],
)
def test_what_cannot_be_loaded(name: str, content: bytes | None, reason: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(tvm.TVMError) as caught:
        tvmc.load(tmp_path / name)
    assert reason in str(caught.value)


def test_an_unknown_operator_is_named(tmp_path: Path) -> None:
    path = write_small(tmp_path / "odd.onnx", operator="Wobble")
    with pytest.raises(FrontendError, match=r"odd\.onnx: 1 node(.|\n)*Wobble x1: 'bend'"):
        tvmc.load(path)


def test_an_unknown_format_is_refused(model_path: Path) -> None:
    with pytest.raises(FrontendError, match="no model format 'caffe'; known are onnx, pytorch"):
        tvmc.load(model_path, model_format="caffe")


# -- compile and run ----------------------------------------------------------------------------
def test_the_answers_are_those_of_the_model(model_path: Path, package: tvmc.TVMCPackage) -> None:
    result = tvmc.run(package, device="cpu", inputs={"data": image()})
    np.testing.assert_allclose(result.get_output("output_0"), expected(model_path, image()), atol=1e-5)
    assert result.filled == ()
    assert result.times == []
    assert result.format_times() == "no times were measured; run with benchmark=True"


@pytest.mark.slow
def test_a_package_without_a_path_lives_with_its_object(model_path: Path, model: tvmc.TVMCModel) -> None:
    made = tvmc.compile(model, target="llvm", output_format="tar")
    assert made.lib_name == "mod.tar"
    x = image()
    np.testing.assert_allclose(
        tvmc.run(made, inputs={"data": x}).outputs["output_0"], expected(model_path, x), atol=1e-5
    )
    folder = Path(made.package_path).parent
    del made
    assert not folder.exists()


def test_a_package_has_library_graph_and_parameters(package: tvmc.TVMCPackage) -> None:
    with tarfile.open(package.package_path) as tar:
        assert tar.getnames() == ["metadata.json", "mod.so", "mod.json", "mod.params"]
    assert json.loads(package.graph)["nodes"][0]["name"] == "data"
    assert package.about["inputs"] == [{"name": "data", "dtype": "float32", "shape": list(SHAPE)}]
    assert package.about["outputs"] == [{"name": "y", "dtype": "float32", "shape": [1, 5]}]
    assert package.target.startswith("llvm")
    assert relay.load_param_dict(package.params)


def test_times_and_profile(package: tvmc.TVMCPackage) -> None:
    result = tvmc.run(package, benchmark=True, repeat=3, number=2, profile=True, fill_mode="ones")
    assert result.times is not None and len(result.times.results) == 3
    assert "mean" in result.format_times()
    assert result.profile is not None
    assert result.profile.kernels[0].name.startswith("fused_nn_conv2d")
    text = str(result)
    assert text.startswith("y: float32[1, 5], from ")
    assert "fused_nn_conv2d" in text
    assert result.filled == ("data",)


def test_results_go_to_a_file_and_inputs_come_from_one(
    model_path: Path, package: tvmc.TVMCPackage, tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", data=image())
    tvmc.run(package, inputs=tmp_path / "in.npz").save(tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as file:
        np.testing.assert_allclose(file["output_0"], expected(model_path, image()), atol=1e-5)


@pytest.mark.slow
def test_another_layout_inside(model_path: Path, model: tvmc.TVMCModel) -> None:
    made = tvmc.compile(model, "llvm", desired_layout="NHWC", runtime=relay.backend.Runtime("cpp"))
    assert "layout_transform" in made.graph
    found = tvmc.run(made, inputs={"data": image()}).outputs["output_0"]
    np.testing.assert_allclose(found, expected(model_path, image()), atol=1e-5)


@pytest.mark.slow
def test_passes_can_be_left_out(model_path: Path, model: tvmc.TVMCModel) -> None:
    made = tvmc.compile(model, "llvm", opt_level=0, disabled_pass=["FuseOps"])
    found = tvmc.run(made, inputs={"data": image()}).outputs["output_0"]
    np.testing.assert_allclose(found, expected(model_path, image()), atol=1e-5)


Refused = Callable[[Any, Any], Any]


@pytest.mark.parametrize(
    ("work", "reason"),
    [
        (
            lambda m, p: tvmc.compile(m, "llvm", output_format="mlf"),
            "output_format='mlf': the Model Library Format is for microcontrollers",
        ),
        (lambda m, p: tvmc.compile(m, "llvm", tuning_records="r.json"), "r.json: there is no such file"),
        (lambda m, p: tvmc.compile(m, "llvm", desired_layout="XYZ"), "it is a layout such as NCHW, NHWC"),
        (
            lambda m, p: tvmc.compile(m, "llvm", package_path="/nowhere/net.tar"),
            "there is no folder /nowhere",
        ),
        (lambda m, p: tvmc.compile(m, "metal"), "llvm, opencl; 'metal' is not supported yet"),
        (
            lambda m, p: tvmc.compile(m, "llvm -mtriple=wasm32-unknown-unknown"),
            "and there are none for WebAssembly",
        ),
        (lambda m, p: tvmc.run(p, device="cuda"), "device='cuda': the package is compiled for the CPU"),
        (lambda m, p: tvmc.run(p, device="toaster"), "unknown device 'toaster'"),
        (lambda m, p: tvmc.run(p, hostname="127.0.0.1", port=1), "127.0.0.1:1: no connection"),
        (
            lambda m, p: tvmc.run(p, hostname="pi", profile=True),
            "profiles are not supported on remote machines",
        ),
        (lambda m, p: tvmc.run(p, inputs={"date": image()}), "no input 'date'; its inputs are data: float32"),
        (lambda m, p: tvmc.run(p, inputs={"data": image()[:, :2]}), "'data' must have shape (1, 3, 8, 8)"),
        (lambda m, p: tvmc.run(p, inputs={"data": image().astype("complex64")}), "must be of type float32"),
        (lambda m, p: tvmc.run(p, fill_mode="noise"), "it must be one of random, zeros, ones"),
        (lambda m, p: tvmc.run(p, repeat=0), "repeat=0, number=10: both must be at least 1"),
        (lambda m, p: tvmc.run(m), "tvmc.run takes the TVMCPackage of tvmc.compile, not TVMCModel"),
        (lambda m, p: tvmc.run(p).get_output("z"), "there is no result 'z'; there are y"),
    ],
)
def test_refusals(work: Refused, reason: str, model: tvmc.TVMCModel, package: tvmc.TVMCPackage) -> None:
    with pytest.raises(tvm.TVMError) as caught:
        work(model, package)
    assert reason in str(caught.value)


# -- package files from elsewhere -----------------------------------------------------------------
def packed(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w") as tar:
        for info, data in members:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def member(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[Any, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info, data


ABOUT = json.dumps({"kind": "package", "format": 1, "library": "mod.so"}).encode()
HEAD = member("metadata.json", ABOUT)


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ([HEAD, member("../evil.so", b"x")], "the member '../evil.so' does not belong in a package"),
        ([HEAD, member("/etc/evil", b"x")], "the member '/etc/evil' does not belong"),
        (
            [HEAD, member("mod.so", kind=tarfile.SYMTYPE, link="/etc/passwd")],
            "the member 'mod.so' does not belong",
        ),
        ([HEAD, member("mod.so", kind=tarfile.FIFOTYPE)], "the member 'mod.so' does not belong"),
        ([HEAD, member("mod.so", b"x"), member("mod.so", b"y")], "'mod.so' appears twice"),
        ([HEAD, member("mod.so", b"x")], "damaged: it lacks mod.json, mod.params"),
        ([member("mod.so", b"x"), HEAD], "it does not begin with metadata.json"),
        ([member("metadata.json", b"{")], "metadata.json: this is not JSON"),
        ([member("metadata.json", b"[]")], "is neither a package nor a saved model"),
        (
            [member("metadata.json", b'{"kind": "package", "format": 9}')],
            "has format 9, and this version reads 1",
        ),
        (
            [member("metadata.json", b'{"kind": "package", "format": 1, "library": "../mod.so"}')],
            "damaged: it lacks ../mod.so",
        ),
        (
            [member("metadata.json", b'{"kind": "package", "format": 1, "executor": "rocket"}')],
            "it requires the executor 'rocket', which is unknown",
        ),
        ([], "is neither a package nor a saved model"),
    ],
)
def test_foreign_packages_are_refused(members: list[Any], reason: str, tmp_path: Path) -> None:
    path = packed(tmp_path / "bad.tar", members)
    with pytest.raises(tvmc.TVMCException) as caught:
        tvmc.TVMCPackage(path)
    assert reason in str(caught.value)
    assert str(path) in str(caught.value)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad.tar"]


def test_a_truncated_package_is_refused(package: tvmc.TVMCPackage, tmp_path: Path) -> None:
    data = Path(package.package_path).read_bytes()
    for size in (0, 100, 700, len(data) // 2):
        (tmp_path / "cut.tar").write_bytes(data[:size])
        with pytest.raises(tvmc.TVMCException, match=r"cut\.tar: "):
            tvmc.TVMCPackage(tmp_path / "cut.tar")


def test_a_library_that_is_none_is_refused(tmp_path: Path) -> None:
    files = [HEAD, member("mod.so", b"no code"), member("mod.json", b"{}"), member("mod.params", b"\0" * 8)]
    opened = tvmc.TVMCPackage(packed(tmp_path / "bad.tar", files))
    with pytest.raises(tvm.TVMError, match=r"mod\.so"):
        tvmc.run(opened)


def test_a_package_for_another_processor_is_refused(package: tvmc.TVMCPackage, tmp_path: Path) -> None:
    about = dict(package.about, features=[*package.about["features"], "avx9000"])
    files = {
        n: Path(package.lib_path).with_name(n).read_bytes() for n in ("mod.so", "mod.json", "mod.params")
    }
    head = member("metadata.json", json.dumps(about).encode())
    path = packed(tmp_path / "far.tar", [head, *(member(n, data) for n, data in files.items())])
    with pytest.raises(
        tvmc.TVMCException,
        match=r"far\.tar: it was compiled for llvm.* with avx9000, which this machine lacks",
    ):
        tvmc.run(tvmc.TVMCPackage(path))


# -- inputs -------------------------------------------------------------------------------------
def test_inputs_that_are_no_arrays_by_name(tmp_path: Path) -> None:
    np.save(tmp_path / "one.npy", image())
    (tmp_path / "text.npz").write_text("hello")
    np.savez(tmp_path / "objects.npz", data=np.array([{}], dtype=object))
    with pytest.raises(tvmc.TVMCException, match=r"one\.npy: it has one array without a name"):
        load_inputs(tmp_path / "one.npy")
    for name in ("text.npz", "objects.npz"):
        with pytest.raises(tvmc.TVMCException, match=f"{name}: it is not an .npz file of plain arrays"):
            load_inputs(tmp_path / name)
    with pytest.raises(tvmc.TVMCException, match=r"none\.npz: cannot be read: No such file"):
        load_inputs(tmp_path / "none.npz")


def test_filled_inputs_are_the_same_every_time() -> None:
    a, b = (generate_tensor_data((4, 5), "float32") for _ in range(2))
    np.testing.assert_array_equal(a, b)
    assert a.dtype == np.float32 and a.std() > 0.1
    assert set(generate_tensor_data((50,), "int64").tolist()) == {0, 1}
    assert generate_tensor_data((2,), "bool", "ones").tolist() == [True, True]
    assert generate_tensor_data((2,), "float16", "zeros").dtype == np.float16


# -- shapes -------------------------------------------------------------------------------------
def test_shapes_as_text() -> None:
    assert parse_shape_string("data:[1,3,224,224]") == {"data": [1, 3, 224, 224]}
    assert parse_shape_string(" a/b.c:0:[ 1, 2 ]  mask:[7],s:[]") == {"a/b.c:0": [1, 2], "mask": [7], "s": []}
    (n, three) = parse_shape_string("x:[-1,3]")["x"]
    assert isinstance(n, relay.Any) and three == 3
    assert str([n, three]) == "[T.Any(), 3]"
    assert parse_shape_string("ids:int64[1,8] x:[2]") == {"ids": ([1, 8], "int64"), "x": [2]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "there is no shape in it"),
        ("data", "'data' is not a shape"),
        ("data:[1,3", "'data:[1,3' is not a shape"),
        ("data:[1,x]", "'x' is not a size"),
        ("data:[1,-2]", "'-2' is not a size"),
        ("data:[1,]", "'' is not a size"),
        ("a:[1] a:[2]", "'a' appears twice"),
        ("a:[1] tail", "'tail' is not a shape"),
        ("a:int3[1]", "'int3' is not a type of elements"),
    ],
)
def test_shapes_that_are_none(text: str, reason: str) -> None:
    with pytest.raises(tvmc.TVMCException) as caught:
        parse_shape_string(text)
    assert isinstance(caught.value, argparse.ArgumentTypeError)  # what parsers of command lines expect
    assert reason in str(caught.value)
