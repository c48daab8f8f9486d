"""Packages of models with open sizes and branches: programs of the virtual machine in a file."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from tvmc_models import SHAPE, expected, image, write_branch, write_small
from typer.testing import CliRunner

from tilewright.__main__ import app
from tilewright.driver import tvmc


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_small(tmp_path_factory.mktemp("open") / "open.onnx", batch="n")


@pytest.fixture(scope="module")
def package(model: Path) -> tvmc.TVMCPackage:
    return tvmc.compile(tvmc.load(model), "llvm", package_path=model.with_name("net.tar"))


@pytest.mark.slow
def test_one_package_for_all_sizes(model: Path, package: tvmc.TVMCPackage) -> None:
    assert package.executor_type == "vm"
    for size in (1, 3):
        x = np.repeat(image(), size, 0)
        found = tvmc.run(package, inputs={"data": x}).outputs["output_0"]
        np.testing.assert_allclose(found, expected(model, x), atol=1e-5)


@pytest.mark.slow
def test_a_package_is_a_library_alone(package: tvmc.TVMCPackage) -> None:
    with tarfile.open(package.package_path) as tar:
        assert tar.getnames() == ["metadata.json", "mod.so"]
    assert package.about["inputs"] == [{"name": "data", "dtype": "float32", "shape": ["n", *SHAPE[1:]]}]
    assert package.about["outputs"] == [{"name": "y", "dtype": "float32", "shape": ["n", 5]}]


@pytest.mark.slow
def test_a_package_is_opened_again(model: Path, package: tvmc.TVMCPackage) -> None:
    result = tvmc.run(
        tvmc.TVMCPackage(package.package_path), inputs={"data": image()}, benchmark=True, number=2
    )
    np.testing.assert_allclose(result.outputs["output_0"], expected(model, image()), atol=1e-5)
    assert result.times is not None and result.times.mean > 0


def test_sizes_for_what_is_filled(package: tvmc.TVMCPackage) -> None:
    result = tvmc.run(package, shape_dict={"data": [4, *SHAPE[1:]]})
    assert result.outputs["output_0"].shape == (4, 5)
    assert result.filled == ("data",)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {},
            "data: float32[?, 3, 8, 8] has dynamic sizes, so it cannot be filled: give it in inputs (--inputs)",
        ),
        ({"shape_dict": {"data": [2, 4, 8, 8]}}, "cannot have the shape [2, 4, 8, 8]"),
        ({"shape_dict": {"date": [2]}}, "no input 'date'; its inputs are data: float32[?, 3, 8, 8]"),
        ({"inputs": {"data": image()[:, :2]}}, "'data' must have shape (?, 3, 8, 8), got shape (1, 2, 8, 8)"),
        ({"inputs": {"data": image().astype("float64")}}, "must be of type float32, got float64"),
    ],
)
def test_refusals(options: dict[str, Any], reason: str, package: tvmc.TVMCPackage) -> None:
    with pytest.raises(tvmc.TVMCException) as caught:
        tvmc.run(package, **options)
    assert reason in str(caught.value)


def test_the_time_of_every_kernel(package: tvmc.TVMCPackage) -> None:
    result = tvmc.run(package, inputs={"data": np.repeat(image(), 3, 0)}, profile=True, number=2)
    assert result.profile is not None
    rows = result.profile.kernels
    assert any("conv2d" in r.name for r in rows) and all(r.seconds > 0 and r.calls == 1 for r in rows)
    assert any(r.shapes == "float32[3, 5]" for r in rows)
    told = call("run", package.package_path, "--profile", "--shapes", "data:[2,3,8,8]", "--json")
    assert told.exit_code == 0, told.output
    assert [r["kernel"] for r in json.loads(told.stdout)["profile"]] == [r.kernel for r in rows]


def test_branches(tmp_path: Path) -> None:
    path = write_branch(tmp_path / "branch.onnx")
    package = tvmc.compile(tvmc.load(path), "llvm")
    assert package.executor_type == "vm"
    for x in (np.ones((2, 3), "float32"), -np.ones((2, 3), "float32")):
        found = tvmc.run(package, inputs={"data": x}).outputs["output_0"]
        np.testing.assert_array_equal(found, expected(path, x))


@pytest.mark.slow
def test_the_machine_may_be_asked_for(tmp_path: Path) -> None:
    path = write_small(tmp_path / "small.onnx")
    package = tvmc.compile(tvmc.load(path), "llvm", use_vm=True)
    assert package.executor_type == "vm"
    found = tvmc.run(package, inputs={"data": image()}).outputs["output_0"]
    np.testing.assert_allclose(found, expected(path, image()), atol=1e-5)


@pytest.mark.slow
def test_object_files_instead_of_a_library(model: Path) -> None:
    package = tvmc.compile(tvmc.load(model), "llvm", output_format="tar")
    assert (package.lib_name, package.executor_type) == ("mod.tar", "vm")
    found = tvmc.run(package, inputs={"data": image()}).outputs["output_0"]
    np.testing.assert_allclose(found, expected(model, image()), atol=1e-5)


@pytest.mark.slow
def test_a_library_of_another_kind_is_refused(tmp_path: Path) -> None:
    path = write_small(tmp_path / "small.onnx")
    made = tvmc.compile(tvmc.load(path), "llvm", package_path=tmp_path / "net.tar")
    about = {"kind": "package", "format": 1, "library": "mod.so", "executor": "vm"}
    (tmp_path / "metadata.json").write_text(json.dumps(about))
    with tarfile.open(tmp_path / "bad.tar", "w") as tar:
        tar.add(tmp_path / "metadata.json", "metadata.json")
        tar.add(made.lib_path, "mod.so")
    with pytest.raises(tvmc.TVMCException, match=r"bad\.tar: damaged: mod\.so is not a program"):
        tvmc.run(tvmc.TVMCPackage(tmp_path / "bad.tar"), inputs={"data": image()})


# -- on the command line ------------------------------------------------------------------------
def test_compile_run_and_show(model: Path, tmp_path: Path) -> None:
    net = tmp_path / "net.tar"
    made = call("compile", model, "-o", net)
    assert made.exit_code == 0, made.output
    assert "kernels on the virtual machine for llvm" in made.stdout
    assert "  input data: float32[n, 3, 8, 8]\n  y: float32[n, 5]\n" in made.stdout
    assert call("show", net).stdout.splitlines()[1:3] == made.stdout.splitlines()[1:3]
    told = json.loads(call("show", net, "--json").stdout)
    assert told["executor"] == "vm" and told["inputs"][0]["shape"] == ["n", 3, 8, 8]

    refused = call("run", net)
    assert refused.exit_code == 1 and '--shapes "data:[8,3,8,8]"' in refused.stderr
    ran = json.loads(call("run", net, "--shapes", "data:float32[2,3,8,8]", "--json").stdout)
    assert ran["outputs"]["y"]["shape"] == [2, 5]


def test_show_names_open_sizes(model: Path) -> None:
    shown = call("show", model).stdout
    assert "float32[n, 4, 8, 8]" in shown  # in tables as well
    assert "3 kernels after fusion" in shown
