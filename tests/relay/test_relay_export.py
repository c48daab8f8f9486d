"""Models as libraries: loaded again without the compiler, and called from C."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import needs
import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.relay.testing import mlp
from tilewright.runtime.errors import LoadError
from tilewright.runtime.model import parse_model

pytestmark = pytest.mark.needs("cc")
X = np.linspace(-1, 1, 16, dtype="float32").reshape(1, 1, 4, 4)


@pytest.fixture(scope="module")
def model() -> tuple[Any, Any]:
    mod, params = mlp.get_workload(1, image_shape=(1, 4, 4))
    lib = relay.build(mod, "llvm", params=params)
    m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    m.run(data=X)
    return lib, m.get_output(0).numpy()


def result(lib: Any) -> Any:
    m = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    m.run(data=X)
    return m.get_output(0).numpy()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["net.so", "net.tar"])
def test_a_library_holds_everything(model: Any, tmp_path: Path, name: str) -> None:
    lib, want = model
    path = lib.export_library(tmp_path / name)
    loaded = tvm.runtime.load_module(path)
    np.testing.assert_array_equal(result(loaded), want)
    assert loaded.memory_report() == lib.memory_report()
    assert loaded.get_graph_json() == lib.get_graph_json()
    for n, a in lib.get_params().items():
        np.testing.assert_array_equal(loaded.get_params()[n].numpy(), a.numpy())
    if name.endswith(".tar"):
        with tarfile.open(path) as tar:
            assert all(m.endswith(".o") for m in tar.getnames())


@pytest.mark.slow
def test_weights_beside_the_library(model: Any, tmp_path: Path) -> None:
    lib, want = model
    graph, kernels, params = lib
    path = kernels.export_library(str(tmp_path / "kernels.so"))
    also = lib.export_library(str(tmp_path / "also.so"), weights=False)
    assert Path(path).stat().st_size < lib.memory_report().weights + 60_000
    for file in (path, also):
        loaded = tvm.runtime.load_module(file)
        assert loaded.get_params() == {}
        m = graph_executor.create(graph, loaded, tvm.cpu())
        with pytest.raises(tvm.TVMError, match="6 parameters have no value"):
            m.run(data=X)
        m.load_params(relay.save_param_dict(params))
        m.run()
        np.testing.assert_array_equal(m.get_output(0).numpy(), want)


def test_loading_needs_no_compiler(model: Any, tmp_path: Path) -> None:
    lib, want = model
    lib.export_library(tmp_path / "net.so")
    np.save(tmp_path / "x.npy", X)
    program = """
import sys, numpy as np
from tilewright import runtime
from tilewright.contrib import graph_executor
m = graph_executor.GraphModule(runtime.load_module("net.so")["default"](runtime.cpu()))
m.run(data=np.load("x.npy"))
np.save("y.npy", m.get_output(0).numpy())
loaded = [n for n in sys.modules if n.startswith(("tilewright.relay", "tilewright.te", "llvmlite"))]
assert not loaded, loaded
"""
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), want)


MAIN = """
#include <stdio.h>
#include <stdlib.h>
#include "net.h"

int main(void) {
  float x[16], y[10], z[10];
  for (int i = 0; i < 16; i++) x[i] = -1 + i * (2.0 / 15);
  if (tvmgen_mlp(x, y)) { puts(__tw_last_error()); return 1; }
  uint8_t* memory = aligned_alloc(64, (TVMGEN_MLP_WORKSPACE_BYTES + 63) / 64 * 64);
  if (tvmgen_mlp_run(x, z, tvmgen_mlp_weights, memory)) return 2;
  for (int i = 0; i < 10; i++) { if (y[i] != z[i]) return 3; printf("%.9g\\n", y[i]); }
  return 0;
}
"""


@pytest.mark.slow
def test_a_c_program_runs_a_model(tmp_path: Path) -> None:
    mod, params = mlp.get_workload(1, image_shape=(1, 4, 4))
    lib = relay.build(mod, "llvm", params=params, mod_name="mlp")
    want = result(lib)
    lib.export_library(tmp_path / "net.so")
    (tmp_path / "main.c").write_text(MAIN)
    command = [needs.compiler(), "-Wall", "-Werror", "main.c", "net.so", "-o", "main", "-Wl,-rpath,$ORIGIN"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    got = np.array(done.stdout.split(), "float32")
    np.testing.assert_allclose(got, want[0], rtol=1e-5)
    assert lib["mlp"](tvm.cpu()).get_num_outputs() == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 9}, "format 9, this runtime reads 1"),
        ({"weights": -1}, "damaged.*-1 is not a size"),
        ({"params": [["p0", "float32", [1 << 40], 0]]}, "'p0' ends past the end of the weights"),
        ({"steps": [["s", "k", [["arena", 0, "float32", [1 << 30]]], [0]]]}, "outside of arena memory"),
        ({"steps": [["s", "k", [["input", 5, "float32", [1]]], [0]]]}, "outside of input memory"),
        ({"steps": [["s", "k", [["moon", 5, "float32", [1]]], [0]]]}, "'moon' is not a kind of memory"),
        ({"inputs": [["x", "float99", [1]]]}, "'float99' is unknown"),
        ({"steps": [["s", "k", [], [3]]]}, "a result that is not an argument"),
        ({"steps": [["s", "k", [], [], [1 << 40, 64]]]}, "prefetches past the end of the weights"),
    ],
)
def test_a_damaged_description_is_refused(model: Any, change: dict[str, Any], message: str) -> None:
    about = dict(model[0].inner.description["model"])
    parse_model(about, "net.so")
    if "steps" in change:
        del about["work"]  # of as many steps
    with pytest.raises(LoadError, match=message):
        parse_model({**about, **change}, "net.so")
