"""Profiles of compiled models: one structure for both executors."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import config, relay
from tilewright.contrib import graph_executor
from tilewright.contrib.debugger.debug_executor import GraphModuleDebug
from tilewright.ir.span import at_node
from tilewright.runtime import Profile, profile_model
from tilewright.runtime.profiling import KernelProfile, Roof, parse_roof, roof_data

X = np.random.default_rng(0).standard_normal((4, 16)).astype("float32")


def _module(rows: Any = 4) -> tvm.IRModule:
    """Two dense layers of one shape, whose nodes have names."""
    x = relay.var("x", shape=(rows, 16))
    w = relay.const(np.ones((16, 16), "float32"))
    with at_node("node Gemm 'fc1'", path="fc1"):
        y = relay.nn.dense(x, w)
    with at_node("node Relu 'act1'", path="act1"):
        y = relay.nn.relu(y)
    with at_node("node Gemm 'fc2'", path="fc2"):
        y = relay.nn.dense(y, w)
    with at_node("node Tanh 'act2'", path="act2"):
        y = relay.tanh(y)
    return tvm.IRModule.from_expr(relay.Function([x], y))


@pytest.fixture(scope="module")
def graph() -> graph_executor.GraphModule:
    return graph_executor.GraphModule(relay.build(_module(), "llvm")["default"](tvm.cpu()))


@pytest.fixture(scope="module")
def profile(graph: graph_executor.GraphModule) -> Profile:
    return profile_model(graph, {"x": X})


def _check(profile: Profile) -> None:
    first, second = profile.kernels
    assert (first.node, first.nodes) == ("fc1", ("fc1", "act1"))
    assert second.nodes == ("fc2", "act2")
    assert first.name == "fused_nn_dense_nn_relu"
    for kernel in profile.kernels:
        assert kernel.seconds > 0 and kernel.shapes == "float32[4, 16]" and kernel.dtype == "float32"
        assert kernel.flops is not None and 2 * 4 * 16 * 16 <= kernel.flops <= 2 * 4 * 16 * 16 + 4 * 64
        assert kernel.nbytes == 4 * (2 * 4 * 16 + 16 * 16)
        assert kernel.gflops == pytest.approx(kernel.flops / kernel.seconds / 1e9)
        assert kernel.roof is not None and 0 < kernel.roof < 2
    assert profile.total == first.seconds + second.seconds
    assert profile.run_seconds is not None and profile.run_seconds > 0
    assert profile.roof is not None and profile.roof.gflops["float32"] > 0


def test_the_graph_executor(profile: Profile) -> None:
    _check(profile)


def test_the_virtual_machine() -> None:
    machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(_module(), "llvm"), tvm.cpu())
    _check(profile_model(machine, {"x": X}))
    _check(profile_model(machine.exe, {"x": X}))


@pytest.mark.slow
def test_dynamic_sizes_have_the_work_of_the_run() -> None:
    exe = relay.vm.compile(_module(relay.Any()), "llvm")
    found = profile_model(exe, {"x": X})
    _check(found)
    larger = profile_model(exe, {"x": np.tile(X, (8, 1))}).kernels[0]
    assert larger.shapes == "float32[32, 16]" and larger.flops is not None
    assert larger.flops == pytest.approx(8 * (found.kernels[0].flops or 0), abs=1024)


@pytest.mark.slow
def test_saved_programs_have_it_too(tmp_path: Path) -> None:
    lib = relay.build(_module(), "llvm")
    lib.export_library(tmp_path / "net.so")
    _check(profile_model(tvm.runtime.load_module(tmp_path / "net.so")["default"](tvm.cpu()), {"x": X}))
    exe = relay.vm.compile(_module(relay.Any()), "llvm")
    exe.export_library(tmp_path / "vm.so")
    loaded = tvm.runtime.load_module(tmp_path / "vm.so")
    _check(profile_model(tvm.runtime.vm.VirtualMachine(loaded, tvm.cpu()), {"x": X}))


def test_the_debug_executor(graph: graph_executor.GraphModule) -> None:
    debug = GraphModuleDebug(graph.module)
    _check(debug.profile(x=X, repeat=3))
    debug.run(x=X)
    assert "fc2" in debug.get_debug_result()


def test_passes_keep_the_source_of_what_they_replace() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    gamma, beta, mean, var = (relay.const(np.full(4, v, "float32")) for v in (2.0, 1.0, 0.5, 1.0))
    with at_node("node Conv 'c'", path="c"):
        y = relay.nn.conv2d(x, relay.const(np.ones((4, 3, 3, 3), "float32")))
    with at_node("node BatchNormalization 'bn'", path="bn"):
        y = relay.nn.batch_norm(y, gamma, beta, mean, var)[0]
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], y)), "llvm")
    assert [s.nodes for s in lib.model.steps] == [("c", "bn")]


def test_a_model_that_was_written_here_names_its_lines() -> None:
    x = relay.var("x", shape=(4,))
    lib = relay.build(tvm.IRModule.from_expr(relay.Function([x], relay.tanh(x))), "llvm")
    (step,) = lib.model.steps
    assert step.nodes == (
        f"test_profile.py:{test_a_model_that_was_written_here_names_its_lines.__code__.co_firstlineno + 2}",
    )


# -- forms ------------------------------------------------------------------------------------------
def test_rows(profile: Profile) -> None:
    rows = profile.rows()
    assert [r["node"] for r in rows] == ["fc1", "fc2"]
    assert sum(r["share"] for r in rows) == pytest.approx(1)
    assert rows[0]["inputs"].startswith("float32[4, 16]") and rows[0]["results"] == "float32[4, 16]"


def test_json_and_csv(profile: Profile) -> None:
    data = json.loads(profile.json())
    assert data["total"] == profile.total and data["kernels"] == profile.rows()
    read = list(csv.DictReader(io.StringIO(profile.csv())))
    assert [r["nodes"] for r in read] == ["fc1 act1", "fc2 act2"]
    assert float(read[0]["seconds"]) == profile.kernels[0].seconds
    assert Profile(()).csv().startswith("node,nodes,name")


def test_a_trace(profile: Profile) -> None:
    trace = json.loads(json.dumps(profile.trace()))
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert [e["name"] for e in events] == ["fc1", "fc2"]
    assert events[1]["ts"] == pytest.approx(events[0]["dur"])
    assert {e["pid"] for e in events} == {1} and all(e["args"]["flops"] for e in events)


def test_files(profile: Profile, tmp_path: Path) -> None:
    for name, start in (
        ("a.csv", "node,"),
        ("a.json", '{\n "model"'),
        ("a.trace.json", '{"displayTimeUnit"'),
    ):
        profile.save(tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)
    with pytest.raises(ValueError, match=r"a.txt: a profile is written to a file named \*.csv, \*.json"):
        profile.save(tmp_path / "a.txt")


def test_pandas(profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    class Pandas:
        DataFrame = staticmethod(list)

    monkeypatch.setitem(sys.modules, "pandas", Pandas)
    assert profile.to_pandas() == profile.rows()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"needs pandas: pip install pandas; rows\(\) gives the same data"):
        profile.to_pandas()


def test_the_table() -> None:
    roof = Roof("znver4", "table", 2, {"float32": 100.0}, ((float("inf"), 10.0, 15.0),))
    kernels = (
        KernelProfile("fused_a", "k0", 1e-6, "float32[4]", 1, ("n",), "", "float32", 1000, 100, 0.5e-6),
        KernelProfile("copy", "", 2e-6, "float32[4]"),
    )
    assert str(Profile(kernels, threads=2, roof=roof, run_seconds=4e-6)) == (
        "  us     %  GFLOP/s  GB/s  % roof  node  name     results\n"
        "2.00  66.7                               copy     float32[4]\n"
        "1.00  33.3      1.0   0.1      50  n     fused_a  float32[4]\n"
        "total 3.00 us in kernels; a run takes 4.00 us; 2 threads\n"
        "roof: the peak of znver4, from the table of known machines; `tilewright calibrate` measures this one"
    )
    assert "one by one, a kernel takes about 0.50 us longer than in a run" in str(
        Profile(kernels, run_seconds=2e-6)
    )
    from rich.console import Console

    console = Console(width=100, file=io.StringIO())
    console.print(Profile(kernels, roof=roof))
    assert "fused_a" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_roof() -> None:
    data = {
        "name": "cpu", "source": "calibrated", "cores": 2, "gflops": {"float32": 100.0},
        "levels": [[1000, 100.0, 200.0], [None, 10.0, 15.0]],
    }  # fmt: skip
    roof = parse_roof(data)
    assert roof is not None and parse_roof(roof_data(roof)) == roof
    assert roof.seconds(1000, 0, "float32", 1) == pytest.approx(1e-8)
    assert roof.seconds(1000, 0, "float32", 8) == pytest.approx(0.5e-8)  # there are two cores
    assert roof.seconds(0, 1000, "float32", 1) == pytest.approx(1e-8)  # in the cache
    assert roof.seconds(0, 3000, "float32", 2) == pytest.approx(2e-7)  # memory of all cores
    assert roof.seconds(10, 0, "float8", 1) is None
    with pytest.raises(ValueError, match="the roof has no memory"):
        parse_roof({**data, "levels": [[1000, 1.0, 1.0]]})


def test_threads(graph: graph_executor.GraphModule) -> None:
    with config.num_threads.set(1):
        assert profile_model(graph, {"x": X}, repeat=1).threads == 1


def test_other_things_have_no_profile() -> None:
    with pytest.raises(
        TypeError, match="profile_model takes a GraphModule, an executor, or a VirtualMachine, not int"
    ):
        profile_model(3)
