"""The options of tvmc about targets, passes, layouts, types and code, in Python and on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tilewright.driver.tvmc.app import with_classic_forms
from tilewright.driver.tvmc.autotuner import left_tasks, with_hardware
from tilewright.driver.tvmc.compiler import target_of, transformed
from tilewright.driver.tvmc.composite_target import get_codegen_by_target, get_codegen_names
from tilewright.driver.tvmc.dumps import offloads
from tilewright.driver.tvmc.pass_config import load_function, parse_configs
from tilewright.driver.tvmc.pass_list import parse_pass_list_str
from tilewright.driver.tvmc.target import parse_target, target_from_cli, tokenize_target
from tilewright.driver.tvmc.tracker import tracker_host_port_from_cli
from tilewright.driver.tvmc.transform import apply_graph_transforms

import tilewright as tvm
from tilewright import relay
from tilewright.driver import tvmc


def network() -> tvmc.TVMCModel:
    x, w = relay.var("x", shape=(1, 3, 8, 8)), relay.var("w", shape=(4, 3, 3, 3))
    body = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    values = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    return tvmc.TVMCModel(tvm.IRModule.from_expr(relay.Function([x, w], body)), {"w": values})


DATA = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype("float32")


def result(package: tvmc.TVMCPackage) -> Any:
    return tvmc.run(package, "cpu", inputs={"x": DATA}).get_output("output_0")


# -- targets ------------------------------------------------------------------------------------------
def test_the_words_of_targets() -> None:
    assert tokenize_target("foo-1 -a=+x,+y --flag, bar -b='v, w'") == [
        "foo-1", "-a=+x,+y", "--flag", ",", "bar", "-b='v, w'",
    ]  # fmt: skip
    first, last = parse_target('dnnl -a="1, 2" --on, llvm -mcpu=znver4')
    assert first == {
        "name": "dnnl", "opts": {"a": "1, 2", "on": True}, "raw": 'dnnl -a="1, 2" --on', "is_tvm_target": False,
    }  # fmt: skip
    assert last["is_tvm_target"] and last["opts"] == {"mcpu": "znver4"}


def test_targets_of_the_command_line(tmp_path: Path) -> None:
    target, extra = target_from_cli("dnnl -a=1, llvm", {"llvm": {"mcpu": "znver4"}, "dnnl": {"b": "2"}})
    assert target.mcpu == "znver4" and [e["opts"] for e in extra] == [{"a": "1", "b": "2"}]
    target, extra = target_from_cli("opencl, llvm -mtriple=aarch64-linux-gnu")
    assert target.kind.name == "opencl" and "aarch64" in str(target.host) and not extra
    (tmp_path / "t.json").write_text('{"kind": "llvm", "mcpu": "znver4"}')
    assert target_from_cli(str(tmp_path / "t.json"))[0].mcpu == "znver4"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("llvm, llvm", "llvm is named twice"),
        ("cuda, opencl, llvm", "are more than a device and its host"),
        ("nonsense", "the last target must be one of"),
        ("llvm, dnnl", "the last target must be one of"),
        ("dnnl,", "a name of a target is missing"),
        ("llvm -mcpu", "'-mcpu' is not an option"),
    ],
)
def test_targets_that_are_none(text: str, why: str) -> None:
    with pytest.raises(tvmc.TVMCException, match=why):
        target_from_cli(text)


def test_code_generators_that_are_not_there() -> None:
    assert {"dnnl", "compute-library", "ethos-u"} <= set(get_codegen_names())
    with pytest.raises(tvmc.TVMCException, match="there is no code generator 'nobody'"):
        get_codegen_by_target("nobody")
    with pytest.raises(tvmc.TVMCException, match="there is no code generator 'ethos-u' here"):
        tvmc.compile(network(), "ethos-u, llvm")
    with pytest.raises(tvmc.TVMCException, match="models are compiled to machine code"):
        tvmc.compile(network(), "c")
    with pytest.raises(tvmc.TVMCException, match="the Model Library Format is for microcontrollers"):
        tvmc.compile(network(), "llvm", output_format="mlf")


def test_figures_of_the_hardware_become_options_of_the_target() -> None:
    made = with_hardware("llvm", {"num_cores": 3, "vector_unit_bytes": 32})
    assert made.attrs["num-cores"] == 3 and made.attrs["vector-width"] == 256
    assert with_hardware("llvm", None) == "llvm"
    with pytest.raises(tvmc.TVMCException, match="there is no such figure of a llvm target"):
        with_hardware("llvm", {"warp_size": 32})


# -- passes -------------------------------------------------------------------------------------------
def test_names_of_passes() -> None:
    assert parse_pass_list_str("FoldScaleAxis,FuseOps") == ["FoldScaleAxis", "FuseOps"]
    with pytest.raises(argparse.ArgumentTypeError, match=r"there is no pass Mine; there are .*FuseOps"):
        parse_pass_list_str("FuseOps,Mine")


def test_options_of_passes() -> None:
    found = parse_configs(
        [
            "tir.disable_vectorize=true",
            "tir.add_lower_pass=1,tir.transform.Simplify",
            "tir.add_lower_pass=2,tvm.tir.transform.UnrollLoop",
        ]
    )
    assert found["tir.disable_vectorize"] is True
    assert [level for level, _ in found["tir.add_lower_pass"]] == [1, 2]
    assert load_function("math.sqrt")(4) == 2
    for text, why in (
        ("tir.disable_vectorize", "it is name=value"),
        ("tir.nothing=1", "there is no option 'tir.nothing'"),
        ("tir.UnrollLoop=1", "cannot be written on the command line"),
        ("tir.disable_vectorize=maybe", "the value is a number, true or false"),
        ("tir.add_lower_pass=a,tir.transform.Simplify", "a level is a number"),
        ("tir.add_lower_pass=1,tir.transform.Nothing", "has no function 'Nothing'"),
    ):
        with pytest.raises(tvmc.TVMCException, match=why):
            parse_configs([text])


def test_addresses_of_trackers() -> None:
    assert tracker_host_port_from_cli("1.2.3.4:91") == ("1.2.3.4", 91)
    assert tracker_host_port_from_cli("board") == ("board", 9090)
    assert tracker_host_port_from_cli("") == (None, None)
    with pytest.raises(tvmc.TVMCException, match="it is HOST:PORT"):
        tracker_host_port_from_cli("board:x")


# -- graphs -------------------------------------------------------------------------------------------
def test_layouts_of_some_operators() -> None:
    text = str(
        apply_graph_transforms(
            network().mod, {"desired_layout": "NHWC:HWIO", "desired_layout_ops": ["nn.conv2d"]}
        )
    )
    assert 'data_layout="NHWC"' in text and 'kernel_layout="HWIO"' in text
    assert "NHWC" not in str(
        apply_graph_transforms(
            network().mod, {"desired_layout": "NHWC", "desired_layout_ops": ["nn.max_pool2d"]}
        )
    )
    with pytest.raises(tvmc.TVMCException, match="2 layouts for the 3 operators"):
        apply_graph_transforms(network().mod, {"desired_layout": ["NHWC", "NCHW"]})


def test_smaller_types_of_some_operators() -> None:
    wanted = {"mixed_precision": True, "mixed_precision_acc_type": "float32"}
    text = str(apply_graph_transforms(network().mod, wanted))
    assert 'out_dtype="float32"' in text and 'dtype="float16"' in text
    assert relay.op.get("nn.conv2d").get_attr("FTVMMixedPrecisionConversionType") is None
    with pytest.raises(tvmc.TVMCException, match="float16, bfloat16 or float64"):
        apply_graph_transforms(network().mod, {**wanted, "mixed_precision_calculation_type": "float8"})


# -- code ---------------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_package_with_its_code_and_its_weights_in_the_library(tmp_path: Path) -> None:
    expected = result(tvmc.compile(network(), "llvm"))
    package = tvmc.compile(
        network(),
        "llvm",
        package_path=tmp_path / "net.tar",
        executor=relay.backend.Executor("graph", {"link-params": True}),
        mod_name="mine",
        dump_code=["tir", "ll", "asm", "h"],
        dump_offloads=str(tmp_path / "offloads.txt"),
        desired_layout="NHWC",
        mixed_precision=True,
    )
    texts = {kind: (tmp_path / f"net.tar.{kind}").read_text() for kind in ("tir", "ll", "asm", "h")}
    assert "@T.prim_func" in texts["tir"] and "define" in texts["ll"] and ".text" in texts["asm"]
    assert "MINE" in texts["h"]
    lines = (tmp_path / "offloads.txt").read_text().splitlines()
    assert lines[0] == "Total number of operators and distribution by targets"
    assert "generic        <-     nn.conv2d" in lines
    assert b"conv" not in bytes(package.params or b"") and package.about["link_params"]
    np.testing.assert_allclose(result(package), expected, atol=0.05)


@pytest.mark.slow
def test_a_composite_target() -> None:
    """Operators of a code generator that is named first go to it; what is left is tuned and compiled here."""
    pytest.importorskip("onnxruntime")
    model = network()
    package = tvmc.compile(model, "onnxruntime, llvm", dump_offloads="")
    np.testing.assert_allclose(result(package), result(tvmc.compile(model, "llvm")), atol=1e-5)
    target, extra = target_of("onnxruntime, llvm")
    assert len(left_tasks(model, target, 3, {}, ())) == 1
    assert left_tasks(model, target, 3, {}, extra) == []


@pytest.mark.parametrize("options", ["-prune_subgraphs=0", "-prune_subgraphs=true -alter_layout=0"])
def test_the_operators_of_a_composite_target(options: str, tmp_path: Path) -> None:
    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(relay.nn.relu(x))))
    _, extra = target_of(f"dnnl {options}, llvm")
    made = transformed(tvmc.TVMCModel(mod, {}), {}, extra, "net").mod
    taken = [
        gv.name_hint for gv, f in made.functions.items() if f.attrs and f.attrs.get("Compiler") == "dnnl"
    ]
    assert bool(taken) == ("prune_subgraphs=0" in options)


@pytest.mark.parametrize("option", ["-nonsense=1", "-prune_subgraphs=many"])
def test_options_that_a_code_generator_does_not_take(option: str) -> None:
    takes = "dnnl takes -alter_layout=0 or 1, -prune_subgraphs=0 or 1"
    with pytest.raises(tvmc.TVMCException, match=rf"--target dnnl {option}: {takes}"):
        tvmc.compile(network(), f"dnnl {option}, llvm")


def test_offloads_of_a_code_generator() -> None:
    a = relay.var("a", shape=(4,))
    inner = relay.Function([a], relay.nn.relu(a)).with_attr("Compiler", "dnnl")
    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.Function([x], relay.exp(relay.Call(inner, [x]))))
    assert offloads(mod).splitlines()[1:] == [
        "Total: 2", "dnnl: 1", "generic: 1", "", "dnnl           <-     nn.relu", "generic        <-     exp",
    ]  # fmt: skip


def test_instruments_and_passes_that_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    seen: list[str] = []

    @tvm.instrument.pass_instrument
    class Watch:
        def run_before_pass(self, mod: Any, info: Any) -> None:
            seen.append(info.name)

    tvmc.compile(
        network(), "llvm", instruments=[Watch()], print_pass_times=True, print_ir_after=["FoldConstant"]
    )
    told = capsys.readouterr()
    assert "FoldConstant" in seen
    assert "time breakdown by pass" in told.out and "Print IR after: FoldConstant" in told.out + told.err


def test_the_text_of_a_graph_is_a_model(tmp_path: Path) -> None:
    (tmp_path / "net.relay").write_text(network().mod.astext())
    model = tvmc.load(tmp_path / "net.relay", shape_dict={"x": [1, 3, 8, 8]})
    assert list(model.inputs()) == ["x", "w"] and not model.params and model.name == "net"
    (tmp_path / "bad.relay").write_text("def @main(")
    with pytest.raises(tvm.TVMError, match="is not the text of a graph"):
        tvmc.load(tmp_path / "bad.relay")


def test_models_that_cannot_be_read_are_errors_of_tvmc(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        tvmc.load(tmp_path / "none.onnx")
    assert isinstance(caught.value, tvmc.TVMCException) and "there is no such file" in str(caught.value)
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(tvmc.TVMCException, match="its suffix is not that of a model"):
        tvmc.load(tmp_path / "a.txt")


def test_the_greatest_results() -> None:
    found = tvmc.TVMCResult({"output_0": np.array([[1.0, 5.0, 3.0], [9.0, 9.0, 9.0]])})
    assert tvmc.result_utils.get_top_results(found, 2).tolist() == [[1.0, 2.0], [5.0, 3.0]]
    with pytest.raises(tvmc.TVMCException, match="rows of classes are expected"):
        tvmc.result_utils.get_top_results(tvmc.TVMCResult({"output_0": np.zeros(3)}), 2)


# -- the command line ---------------------------------------------------------------------------------
def test_classic_forms_of_arguments() -> None:
    given = [
        "compile",
        "--desired-layout",
        "NHWC",
        "NCHW",
        "--desired-layout-ops",
        "nn.conv2d",
        "qnn.conv2d",
        "net.onnx",
    ]
    assert with_classic_forms(given) == [
        "compile", "--desired-layout", "NHWC,NCHW", "--desired-layout-ops", "nn.conv2d,qnn.conv2d", "net.onnx",
    ]  # fmt: skip
    assert with_classic_forms(["--executor-graph-link-params=1", "m"]) == [
        "--executor-graph-link-params",
        "m",
    ]
    assert with_classic_forms(["--executor-aot-link-params", "0"]) == ["--no-executor-aot-link-params"]
