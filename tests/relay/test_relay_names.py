"""Names of inputs and results: any text that a model may hold, kept by importers, executors, libraries and packages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tvm
from tilewright import relay
from tilewright.contrib import graph_executor
from tilewright.ir.errors import TVMError
from tilewright.relay.interface import OUTPUT_NAMES, interface_of
from tilewright.runtime.model import TensorSpec
from tilewright.runtime.profiler import profile_model

NAMES = [
    (["0", "1"], "2"),
    (["a b", "c/d:0"], "probs"),
    (["%x", "@y"], "é"),
    (['x"y', "new\nline"], "o"),
    (["in", "def"], "for"),
    (["x", "weights"], "workspace"),
    (["self", "args"], "key"),
]


def add_model(inputs: list[str], output: str, rows: int | str = 4) -> onnx.ModelProto:
    nodes = [helper.make_node("Add", inputs, ["t"]), helper.make_node("Relu", ["t"], [output])]
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [rows, 3]) for n in (*inputs, output)]
    graph = helper.make_graph(nodes, "g", infos[:-1], infos[-1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(("inputs", "output"), NAMES)
def test_any_name_works(inputs: list[str], output: str, tmp_path: Path) -> None:
    arrays = [np.full((4, 3), i - 0.5, "float32") for i in range(2)]
    mod, params = relay.frontend.from_onnx(add_model(inputs, output))
    lib = relay.build(mod, "llvm", params=params)
    path = tmp_path / "net.tar"
    lib.export_library(path)
    for each in (lib, tvm.runtime.load_module(path)):
        made = graph_executor.GraphModule(each["default"](tvm.cpu()))
        for name, value in zip(inputs, arrays, strict=True):
            made.set_input(name, value)
        made.run()
        np.testing.assert_array_equal(made.get_output(output).numpy(), np.maximum(sum(arrays), 0))
        assert made.get_output_index(output) == 0


@pytest.mark.parametrize(("inputs", "output"), NAMES)
def test_any_name_works_on_the_virtual_machine(inputs: list[str], output: str) -> None:
    arrays = [np.full((4, 3), i - 0.5, "float32") for i in range(2)]
    mod, _ = relay.frontend.from_onnx(add_model(inputs, output, "n"))
    exe = relay.vm.compile(mod, "llvm")
    assert exe.program.interface == (
        tuple(TensorSpec(name, "float32", ("n", 3)) for name in inputs),
        (TensorSpec(output, "float32", ("n", 3)),),
    )
    machine = relay.vm.VirtualMachine(exe, tvm.cpu())
    result = machine.invoke("main", **dict(zip(inputs, arrays, strict=True)))
    np.testing.assert_array_equal(result.numpy(), np.maximum(sum(arrays), 0))


@pytest.mark.parametrize("rows", [4, "n"])
def test_a_profile_and_a_call_by_name_take_any_name(rows: int | str) -> None:
    """Names of the parameters of our own functions are names of inputs too."""
    model = add_model(["key", "func_name"], "o", rows)
    x = np.ones((4, 3), "float32")
    given = {"key": x, "func_name": x}
    net = tvm.compile(model)
    assert [row["results"] for row in net.profile(x, x).rows()] == ["float32[4, 3]"]
    runner = net.runner if rows == 4 else relay.vm.compile(relay.frontend.from_onnx(model)[0], "llvm")
    assert len(profile_model(runner, given).rows()) == 1
    made = tvm.compile(add_model(["self", "number"], "o", rows))(self=x, number=x)
    assert made.tolist() == (x + x).tolist()


def test_the_interface_is_saved_with_a_program(tmp_path: Path) -> None:
    mod, _ = relay.frontend.from_onnx(add_model(["a", "b"], "c", "n"))
    exe = relay.vm.compile(mod, "llvm")
    code, lib = exe.save()
    assert relay.vm.Executable.load_exec(code, lib).program.interface == exe.program.interface


def test_output_names_are_an_attribute_that_text_and_passes_keep() -> None:
    mod, _ = relay.frontend.from_onnx(add_model(["a", "b"], "c"))
    assert list(mod["main"].attrs[OUTPUT_NAMES]) == ["c"]
    again = relay.fromtext(mod.astext())
    assert list(again["main"].attrs[OUTPUT_NAMES]) == ["c"]
    optimized, _ = relay.optimize(mod, "llvm")
    assert list(optimized["main"].attrs[OUTPUT_NAMES]) == ["c"]


def test_results_without_names_are_numbered() -> None:
    x = relay.var("x", shape=(2,))
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Tuple([x, relay.exp(x)])))
    assert [t.name for t in interface_of(mod)[1]] == ["output_0", "output_1"]


def test_a_result_that_is_an_input_keeps_its_name() -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, [3]) for n in ("y", "x")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    mod, _ = relay.frontend.from_onnx(model)
    made = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    made.set_input("x", np.array([-1, 0, 2], "float32"))
    made.run()
    assert made.get_output("x").numpy().tolist() == [-1, 0, 2]
    assert made.get_output("y").numpy().tolist() == [0, 0, 2]


def test_an_unknown_result_is_refused_with_the_known_ones() -> None:
    mod, _ = relay.frontend.from_onnx(add_model(["a", "b"], "c"))
    made = graph_executor.GraphModule(relay.build(mod, "llvm")["default"](tvm.cpu()))
    with pytest.raises(TVMError, match=r"no result 'scores'; its results are c: float32\[4, 3\]"):
        made.get_output("scores")


def test_results_of_torch_modules_are_named_by_their_keys() -> None:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x):  # type: ignore[no-untyped-def]
            return {"logits": x + 1, "past": (x * 2, x * 3)}

    program = torch.export.export(Net(), (torch.ones(2),))
    mod, _ = relay.frontend.from_exported_program(program)
    assert list(mod["main"].attrs[OUTPUT_NAMES]) == ["logits", "past.0", "past.1"]
