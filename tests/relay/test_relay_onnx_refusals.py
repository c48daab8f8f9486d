"""Models that cannot be imported: every one ends in a FrontendError that names the file, the node and the reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import FrontendError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

F = TensorProto.FLOAT


def model_of(nodes: list[Any], shape: Any = (1, 2, 4, 4), constants: dict[str, Any] | None = None) -> Any:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", F, shape)],
        [helper.make_tensor_value_info("y", F, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def refusal(model: Any, **options: Any) -> str:
    with pytest.raises(FrontendError) as error:
        relay.frontend.from_onnx(model, **options)
    return str(error.value)


def node(op: str, *inputs: str, out: str = "y", **attrs: Any) -> Any:
    return helper.make_node(op, list(inputs), [out], **attrs)


def test_all_missing_operators_are_listed_at_once() -> None:
    inner = helper.make_graph(
        [node("Foo", "x", out="r")], "side", [], [helper.make_tensor_value_info("r", F, None)]
    )
    nodes = [
        node("Foo", "x", out="a", name="first"),
        node("Relu", "a", out="b"),
        node("Bar", "b", out="c", domain="mine"),
        node("If", "t", then_branch=inner, else_branch=inner),
    ]
    text = refusal(model_of(nodes, constants={"t": np.array(True)}))
    assert text == (
        "net: 4 nodes of 2 operators cannot be imported (opset 21):\n"
        "  Foo x3: 'first', 'r' in graph 'side'\n"
        "  mine.Bar x1: 'c'"
    )


def test_a_truncated_file(tmp_path: Any) -> None:
    path = tmp_path / "net.onnx"
    whole = model_of([node("Relu", "x")]).SerializeToString()
    path.write_bytes(whole[: len(whole) // 2])
    assert refusal(path).startswith(f"{path}: is not an ONNX model, or a damaged one")
    path.write_bytes(b"")
    assert refusal(path) == f"{path}: is not an ONNX model: it has no graph (0 bytes)"
    assert "cannot be read" in refusal(tmp_path / "none.onnx")


def test_every_cut_of_a_file_is_refused_or_read() -> None:
    whole = model_of([node("Conv", "x", "w", name="c")], constants={"w": np.ones((3, 2, 3, 3), np.float32)})
    data = whole.SerializeToString()
    for size in range(0, len(data), 7):
        try:
            relay.frontend.from_onnx(data[:size])
        except FrontendError:
            continue


def test_a_cycle() -> None:
    nodes = [node("Add", "x", "b", out="a"), node("Relu", "a", out="b"), node("Relu", "b")]
    text = refusal(model_of(nodes))
    assert text == "net: the graph has a cycle through Add -> a, Relu -> b, Relu -> y"


def test_a_careless_order_is_put_right() -> None:
    mod, _ = relay.frontend.from_onnx(model_of([node("Exp", "a"), node("Relu", "x", out="a")]))
    assert mod["main"].body.op.name == "exp"


def test_a_missing_initialiser() -> None:
    assert refusal(model_of([node("Add", "x", "w", name="sum")])) == (
        "net: node Add 'sum' reads 'w', which is neither an input, an initialiser nor the output of a node before it"
    )


def test_two_writers_of_one_name() -> None:
    text = refusal(model_of([node("Relu", "x", out="a"), node("Exp", "x", out="a"), node("Abs", "a")]))
    assert text == "net: two nodes write 'a': Relu -> a and Exp -> a"


WEIGHT = {"w": np.ones((3, 2, 3, 3), np.float32)}


@pytest.mark.parametrize(
    ("attrs", "reason"),
    [
        ({"strides": [0, 1]}, "strides [0, 1] must lie between 1 and 2^31"),
        ({"strides": [-1, 1]}, "strides [-1, 1] must lie between 1 and 2^31"),
        ({"dilations": [1, 2**32]}, f"dilations [1, {2**32}] must lie between 1 and 2^31"),
        ({"strides": [1]}, "strides [1] must have 2 numbers"),
        ({"pads": [1, 1]}, "pads [1, 1] must be 4 numbers of reasonable size"),
        ({"pads": [-1, 0, 0, 0]}, "pads [-1, 0, 0, 0] must not be negative"),
        ({"group": 0}, "group 0 does not divide 2 channels"),
        ({"kernel_shape": [5, 5]}, "kernel_shape [5, 5] differs from the weight's [3, 3]"),
        ({"auto_pad": "SOME"}, "auto_pad 'SOME' is unknown"),
    ],
)
def test_absurd_attributes(attrs: dict[str, Any], reason: str) -> None:
    text = refusal(model_of([node("Conv", "x", "w", name="conv1", **attrs)], constants=WEIGHT))
    assert text == f"net: node Conv 'conv1': {reason}"


@pytest.mark.parametrize("value", [0, -1, 2**32, 2**63 - 1])
@pytest.mark.parametrize("key", ["strides", "dilations", "kernel_shape"])
@pytest.mark.parametrize("op", ["MaxPool", "AveragePool", "ConvTranspose", "Conv"])
def test_absurd_windows(op: str, key: str, value: int) -> None:
    weight = ["w"] if op.startswith("Conv") else []
    attrs = {"kernel_shape": [3, 3], key: [3, value]}
    constants = {"w": np.ones((2, 2, 3, 3), np.float32)}
    text = refusal(model_of([node(op, "x", *weight, name="it", **attrs)], constants=constants))
    assert text.startswith(f"net: node {op} 'it': {key} [3, {value}] ")


def test_what_a_converter_falls_over_is_said_with_its_inputs() -> None:
    constants = {"w": np.ones((1, 12, 2), np.float32), "r": np.ones((1, 12, 3), np.float32)}
    lstm = node("LSTM", "x", "w", "r", hidden_size=3, name="rnn")
    assert refusal(model_of([lstm], constants=constants)) == (
        "net: node LSTM 'rnn': its inputs (float32 [1, 2, 4, 4], float32 [1, 12, 2], float32 [1, 12, 3]) or attributes "
        "are invalid for the operator (ValueError: too many values to unpack (expected 3))"
    )


def of_two_branches(first: Any, second: Any) -> Any:
    sides = [
        helper.make_graph([made], side, [], [helper.make_tensor_value_info("r", F, None)])
        for side, made in (("yes", first), ("no", second))
    ]
    nodes = [
        node("ReduceSum", "x", out="s", keepdims=0),
        node("Greater", "s", "zero", out="t"),
        node("If", "t", then_branch=sides[0], else_branch=sides[1], name="if"),
    ]
    constants = {"zero": np.array(0, np.float32), "w": np.ones((3, 4), np.float32)}
    return model_of(nodes, shape=("n", "k"), constants=constants)


def test_a_branch_that_is_broken() -> None:
    model = of_two_branches(node("Relu", "x", out="r"), node("Add", "x", "nobody", out="r", name="sum"))
    for options in ({}, {"shape": {"x": (2, 3)}}):
        assert refusal(model, **options).startswith(
            "net: graph 'no' of node If 'if': node Add 'sum' reads 'nobody', which is neither an input"
        )


def test_a_branch_that_does_not_fit_the_sizes_given() -> None:
    model = of_two_branches(node("Relu", "x", out="r"), node("MatMul", "w", "x", out="r", name="product"))
    with pytest.warns(UserWarning, match="If 'if': one branch is invalid and returns NaN: net: graph 'no'"):
        mod, _ = relay.frontend.from_onnx(model, shape={"x": (3, 4)})
    run = relay.create_executor("vm", mod, tvm.cpu(), "llvm").evaluate()
    np.testing.assert_array_equal(run(np.ones((3, 4), np.float32)).numpy(), np.ones((3, 4)))
    assert np.isnan(run(-np.ones((3, 4), np.float32)).numpy()).all()


def test_shapes_that_do_not_fit() -> None:
    weight = {"w": np.ones((3, 5, 3, 3), np.float32)}
    text = refusal(model_of([node("Conv", "x", "w", name="conv1")], constants=weight))
    assert text.startswith("net: node Conv 'conv1': nn.conv2d: ")
    text = refusal(model_of([node("Reshape", "x", "s")], constants={"s": np.array([5, 7])}))
    assert text.startswith("net: node Reshape -> y: reshape: ")


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (lambda: [node("Transpose", "x", perm=[0, 0, 1, 2])], "transpose"),
        (lambda: [node("Softmax", "x", axis=9)], "axis 9 does not exist in a tensor of 4 dimensions"),
        (lambda: [node("Concat", "x", "x", axis=2**40)], f"axis {2**40} does not exist"),
        (lambda: [node("MaxPool", "x", kernel_shape=[0, 3])], "kernel_shape [0, 3] must be positive"),
        (lambda: [node("MaxPool", "x")], "kernel_shape is missing"),
        (lambda: [node("DepthToSpace", "x", blocksize=-3)], "blocksize -3 does not divide 2 channels"),
        (lambda: [node("Relu")], "input 0 is missing"),
        (lambda: [node("LRN", "x", size=2**40)], f"size is {2**40}"),
        (lambda: [node("Cast", "x", to=99)], "tensors of element type 99 are not supported"),
        (lambda: [node("Cast", "x", to=8)], "tensors of string are not supported"),
    ],
)
def test_nodes_that_mean_nothing(made: Any, reason: str) -> None:
    text = refusal(model_of(made()))
    assert text.startswith("net: node ") and reason in text


def test_3000_nested_functions() -> None:
    version = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    model = model_of([node("f0", "x", domain="mine")])
    model.opset_import.append(helper.make_opsetid("mine", 1))
    for i in range(3000):
        inner = node(f"f{i + 1}", "a", out="b", domain="mine") if i < 2999 else node("Relu", "a", out="b")
        model.functions.append(helper.make_function("mine", f"f{i}", ["a"], ["b"], [inner], version))
    text = refusal(model)
    assert text.startswith("net: function f0: function f1: … 60 more …: function f62: function f63: ")
    assert text.endswith("functions and graphs nest deeper than 64")


def test_branches_within_functions_within_each_other() -> None:
    """Functions hide a depth that protobuf would refuse: each adds two levels."""
    version = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    out = [helper.make_tensor_value_info("r", F, None)]
    model = model_of([node("f0", "x", domain="mine")])
    model.opset_import.append(helper.make_opsetid("mine", 1))
    for i in range(40):
        # Relu in the one branch, the next function in the other: 40 of them are not many nodes.
        inner = node(f"f{i + 1}", "a", out="r", domain="mine") if i < 39 else node("Exp", "a", out="r")
        last = node("Relu", "a", out="r")
        sides = [helper.make_graph([made], "side", [], out) for made in (inner, last)]
        nodes = [
            node("ReduceSum", "a", out="s", keepdims=0),
            node("Cast", "s", out="t", to=9),
            node("If", "t", out="b", then_branch=sides[0], else_branch=sides[1]),
        ]
        model.functions.append(helper.make_function("mine", f"f{i}", ["a"], ["b"], nodes, version))
    assert refusal(model).endswith("functions and graphs nest deeper than 64")


def test_functions_that_double_40_times() -> None:
    version = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    model = model_of([node("f0", "x", domain="mine")])
    model.opset_import.append(helper.make_opsetid("mine", 1))
    for i in range(40):
        name, domain = (f"f{i + 1}", "mine") if i < 39 else ("Relu", "")
        twice = [node(name, "a", out="m", domain=domain), node(name, "m", out="b", domain=domain)]
        model.functions.append(helper.make_function("mine", f"f{i}", ["a"], ["b"], twice, version))
    assert refusal(model) == (
        "net: the functions of the model call each other so often that it has more than 250000 nodes when they are "
        "inlined"
    )


def test_a_function_that_calls_itself() -> None:
    version = [helper.make_opsetid("", 21), helper.make_opsetid("mine", 1)]
    model = model_of([node("f", "x", domain="mine")])
    model.opset_import.append(helper.make_opsetid("mine", 1))
    model.functions.append(
        helper.make_function("mine", "f", ["a"], ["b"], [node("f", "a", out="b", domain="mine")], version)
    )
    assert refusal(model).endswith("functions and graphs nest deeper than 64")


def external(location: str, **facts: Any) -> Any:
    model = model_of([node("Add", "x", "w")], shape=(4,))
    tensor = model.graph.initializer.add(name="w", data_type=F, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **facts}.items():
        tensor.external_data.add(key=key, value=str(value))
    return model


@pytest.mark.parametrize("place", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", "", "link.bin"])
def test_external_data_outside_the_folder(tmp_path: Any, place: str) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    path = folder / "net.onnx"
    path.write_bytes(external(place).SerializeToString())
    assert refusal(path) == (
        f"{path}: an initialiser: tensor 'w' names {place!r}, which is outside the model's folder {folder.resolve()}"
    )


def test_external_data_inside_the_folder(tmp_path: Any) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    path = tmp_path / "net.onnx"
    path.write_bytes(external("w.bin", offset=8, length=16).SerializeToString())
    mod, params = relay.frontend.from_onnx(path, freeze_params=False)
    np.testing.assert_array_equal(params["w"].numpy(), [2, 3, 4, 5])
    path.write_bytes(external("w.bin", offset=16, length=16).SerializeToString())
    assert refusal(path).endswith("tensor 'w': 'w.bin' has no bytes 16 to 32")
    assert "import the model by its path" in refusal(external("w.bin"))


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"offset": -4}, "bytes -4 to"),
        ({"offset": 2**62}, "bytes"),
        ({"length": 2**62}, "bytes"),
        ({"length": -1}, "bytes"),
        ({"offset": "many"}, "many"),
    ],
)
def test_external_data_with_absurd_places(tmp_path: Any, facts: dict[str, Any], reason: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64))
    path = tmp_path / "net.onnx"
    path.write_bytes(external("w.bin", **facts).SerializeToString())
    text = refusal(path)
    assert text.startswith(f"{path}: an initialiser: tensor 'w'") and reason in text


def test_external_data_that_is_a_folder_or_missing(tmp_path: Any) -> None:
    (tmp_path / "sub").mkdir()
    path = tmp_path / "net.onnx"
    for place in ("sub", "none.bin"):
        path.write_bytes(external(place).SerializeToString())
        text = refusal(path)
        assert text.startswith(f"{path}: an initialiser: tensor 'w'") and place in text


def test_a_tensor_with_too_few_bytes() -> None:
    model = model_of([node("Add", "x", "w")], shape=(4,))
    model.graph.initializer.add(name="w", data_type=F, dims=[4], raw_data=bytes(7))
    assert refusal(model).startswith("net: an initialiser: tensor 'w' of shape [4] is damaged: ")
    model.graph.initializer[0].dims[:] = [2**40, 2**40]
    assert "elements" in refusal(model)


def test_a_value_that_only_the_run_tells() -> None:
    model = model_of([node("Cast", "x", to=7, out="s"), node("Unsqueeze", "x", "s", name="r")], shape=(2,))
    assert refusal(model) == (
        "net: node Unsqueeze 'r': input 1 ('s') must be known at import, since shapes depend on it. Make it an "
        "initialiser or a Constant"
    )


def test_what_is_no_model() -> None:
    assert refusal(3) == "from_onnx takes a ModelProto, bytes or a path, not int"


# -- names, dimensions, loops that are too long to be written out -----------------------------------------
def _graph(inputs: list[str], names: list[str], shape: tuple[int, ...] = (2,)) -> Any:
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in inputs],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.full(shape, i, np.float32), n) for i, n in enumerate(names)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("inputs", "names", "reason"),
    [
        (["x", "x"], ["w"], "net: several inputs have the name 'x': rename all but one"),
        (["x"], ["w", "w"], "net: several initialisers have the name 'w': rename all but one"),
    ],
)
def test_doubled_names(inputs: list[str], names: list[str], reason: str) -> None:
    with pytest.raises(FrontendError) as error:
        relay.frontend.from_onnx(_graph(inputs, names))
    assert str(error.value) == reason


def test_an_initialiser_is_the_default_of_an_input() -> None:
    mod, _ = relay.frontend.from_onnx(_graph(["x", "w"], ["w"]))
    assert [p.name_hint for p in mod["main"].params] == ["x"]


def test_too_many_dimensions() -> None:
    with pytest.raises(FrontendError, match="input 'x' has 100 dimensions, and 32 are the most"):
        relay.frontend.from_onnx(_graph(["x", "w"], [], (1,) * 100))
    model = _graph(["x"], ["w"])
    model.graph.initializer[0].dims[:] = [1] * 100
    with pytest.raises(FrontendError, match="tensor 'w' has 100 dimensions, and 32 are the most"):
        relay.frontend.from_onnx(model)
    model = _graph(["x"], ["w"])
    model.graph.node[0].CopyFrom(helper.make_node("Reshape", ["x", "s"], ["y"]))
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.array([2] + [1] * 1999), "s"))
    with pytest.raises(FrontendError, match="2000 dimensions"):
        relay.frontend.from_onnx(model)


def test_external_data_with_a_null_in_its_name(tmp_path: Any) -> None:
    model = _graph(["x"], ["w"])
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="w\0.bin")
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(FrontendError, match=r"tensor 'w' names 'w\\x00.bin', which is not a valid file name"):
        relay.frontend.from_onnx(str(tmp_path / "net.onnx"))


LOOP = """<ir_version: 8, opset_import: ["" : 17]>
net (float[3] x) => (float[3] y) <int64 n = {%d}, bool c = {1}> {
  y = Loop(n, c, x) <body = b (int64 i, bool g, float[3] s) => (bool go, float[3] t) {
    go = Identity(g)  f = Cast <to=1> (i)  m = Mul(s, x)  t = Add(m, f) }>
}"""


@pytest.mark.slow
@pytest.mark.parametrize("turns", [3000, 100_000])
def test_a_long_loop_is_a_loop_of_the_virtual_machine(turns: int) -> None:
    mod, _ = relay.frontend.from_onnx(onnx.parser.parse_model(LOOP % turns))
    with pytest.raises(
        tvm.TVMError, match=r"%loop is a loop, .* which relay\.build cannot compile; use the virtual machine"
    ):
        relay.build(mod, "llvm")
    found = tvm.runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), tvm.cpu())
    if turns == 3000:
        x = np.array([0.5, -0.25, 0], np.float32)
        wanted = x
        for i in range(turns):
            wanted = wanted * x + np.float32(i)
        np.testing.assert_allclose(found.run(x).numpy(), wanted, rtol=1e-5)


def test_a_flag_that_is_neither_0_nor_1() -> None:
    model = model_of([node("ReduceSum", "x", keepdims=2)], shape=(2, 3))
    assert refusal(model) == "net: node ReduceSum -> y: the attribute keepdims is 2, and can only be 0 or 1"
