"""Damaged models: bytes flipped, fields changed. Each is imported, and runs or is refused, or ends in a FrontendError."""

from __future__ import annotations

import math
import random
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from how_many import examples

import tilewright as tvm
from tilewright import relay
from tilewright.ir.errors import FrontendError, TVMError

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

F = TensorProto.FLOAT


def node(op: str, *inputs: str, out: str = "y", **attrs: Any) -> Any:
    return helper.make_node(op, list(inputs), out.split(), **attrs)


def model_of(nodes: list[Any], shape: tuple[int, ...] = (1, 2, 6, 6), **constants: Any) -> Any:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", F, shape)],
        [helper.make_tensor_value_info("y", F, None)],
        [numpy_helper.from_array(v, n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def branch(op: str) -> Any:
    return helper.make_graph([node(op, "x", out="r")], op, [], [helper.make_tensor_value_info("r", F, None)])


def floats(*shape: int) -> Any:
    return np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape)


MODELS = {
    "convolution": model_of(
        [
            node("Conv", "x", "w", "b", out="a", strides=[2, 2], pads=[1, 1, 1, 1]),
            node("Relu", "a", out="c"),
            node("MaxPool", "c", out="d", kernel_shape=[3, 3]),
            node("Flatten", "d", out="e"),
            node("Gemm", "e", "v", transB=1),
        ],
        w=floats(3, 2, 3, 3),
        b=floats(3),
        v=floats(4, 3),
    ),
    "shapes": model_of(
        [
            node("Shape", "x", out="s"),
            node("Gather", "s", "i", out="t"),
            node("Concat", "t", "m", out="u", axis=0),
            node("Reshape", "x", "u", out="v"),
            node("Transpose", "v", out="p", perm=[1, 0]),
            node("Slice", "p", "i", "e", "i"),
        ],
        i=np.array([0]),
        m=np.array([-1]),
        e=np.array([5]),
    ),
    "recurrent": model_of(
        [node("LSTM", "x", "w", "r", hidden_size=3)], (4, 1, 2), w=floats(1, 12, 2), r=floats(1, 12, 3)
    ),
    "quantised": model_of(
        [
            node("DynamicQuantizeLinear", "x", out="q s z"),
            node("DequantizeLinear", "q", "s", "z", out="d"),
            node("Resize", "d", "", "k", out="e", mode="linear"),
            node("Softmax", "e", axis=-1),
        ],
        k=np.array([1, 1, 2, 2], np.float32),
    ),
    "branches": model_of(
        [
            node("ReduceSum", "x", out="s", keepdims=0),
            node("Greater", "s", "z", out="t"),
            node("If", "t", then_branch=branch("Exp"), else_branch=branch("Abs")),
        ],
        z=np.array(0, np.float32),
    ),
    "norm": model_of(
        [
            node("LayerNormalization", "x", "g", out="a"),
            node("Split", "a", out="b c", axis=1, num_outputs=2),
            node("MatMul", "b", "c", out="d"),
            node("Pad", "d", "p", out="e"),
            node("TopK", "e", "k", out="y i"),
        ],
        g=floats(6),
        p=np.array([0, 0, 1, 1, 0, 0, 1, 1]),
        k=np.array([2]),
    ),
}
NAMES = list(MODELS)
NUMBERS = [0, -1, 1, 2, 7, 13, 2**31, 2**32, 2**40, 2**63 - 1, -(2**63)]
OPERATORS = (
    "Relu Add Conv Reshape Concat LSTM If Loop Scan Gather TopK Resize Einsum Cast Attention Foo".split()
)


# -- damage ------------------------------------------------------------------------------------------
def flipped(model: Any, rng: random.Random) -> bytes:
    """A few bytes of the file are others."""
    data = bytearray(model.SerializeToString())
    for _ in range(rng.randint(1, 3)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


def weights_flipped(model: Any, rng: random.Random) -> bytes:
    """Bytes of the constants alone: the file stays a model."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    tensor = rng.choice(list(made.graph.initializer))
    data = bytearray(tensor.raw_data)
    data[rng.randrange(len(data))] = rng.randrange(256)
    tensor.raw_data = bytes(data)
    return made.SerializeToString()  # type: ignore[no-any-return]


def attribute(graph: Any, at: Any, rng: random.Random) -> None:
    if not at.attribute:
        return
    a = rng.choice(list(at.attribute))
    if a.ints:
        a.ints[rng.randrange(len(a.ints))] = rng.choice(NUMBERS)
    elif a.type == onnx.AttributeProto.INT:
        a.i = rng.choice(NUMBERS)
    elif a.type == onnx.AttributeProto.STRING:
        a.s = rng.choice([b"", b"\xff\xfe", b"nonsense", b"cubic"])
    else:
        a.type = rng.randrange(12)


def source(graph: Any, at: Any, rng: random.Random) -> None:
    if at.input:
        at.input[rng.randrange(len(at.input))] = rng.choice(["x", "", "y", "w", "nobody"])


def operator(graph: Any, at: Any, rng: random.Random) -> None:
    at.op_type = rng.choice(OPERATORS)


def constant(graph: Any, at: Any, rng: random.Random) -> None:
    tensor = rng.choice(list(graph.initializer))
    kind = rng.randrange(3)
    if kind == 0:
        tensor.data_type = rng.randrange(30)
    elif kind == 1 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(NUMBERS)
    else:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]


def size(graph: Any, at: Any, rng: random.Random) -> None:
    d = rng.choice(list(graph.input[0].type.tensor_type.shape.dim))
    if rng.random() < 0.5:
        d.dim_value = rng.choice(NUMBERS)
    else:
        d.dim_param = "n"


def missing(graph: Any, at: Any, rng: random.Random) -> None:
    if len(graph.node) > 1:
        del graph.node[rng.randrange(len(graph.node))]


def result(graph: Any, at: Any, rng: random.Random) -> None:
    at.output[0] = rng.choice(["x", "y", "", "a"])


FIELDS: list[Callable[[Any, Any, random.Random], None]] = [
    attribute,
    source,
    operator,
    constant,
    size,
    missing,
    result,
]


def changed(model: Any, rng: random.Random) -> bytes:
    """A field or two of the model have another value."""
    made = onnx.ModelProto.FromString(model.SerializeToString())
    for _ in range(rng.randint(1, 2)):
        rng.choice(FIELDS)(made.graph, rng.choice(list(made.graph.node)), rng)
    return made.SerializeToString()  # type: ignore[no-any-return]


KINDS = [flipped, changed, weights_flipped]


def damaged(seed: int) -> bytes:
    rng = random.Random(seed)
    return KINDS[seed // len(NAMES) % len(KINDS)](MODELS[NAMES[seed % len(NAMES)]], rng)


def imported(data: bytes) -> Any:
    """The module, or None where the model is refused; a hang would show as seconds of processor time."""
    start = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return relay.frontend.from_onnx(data)[0]
    except FrontendError as error:
        assert str(error).startswith(("model: ", "model ")), error
        return None
    finally:
        assert time.process_time() - start < 10


@pytest.mark.parametrize("name", NAMES)
def test_the_models_are_good_before(name: str) -> None:
    assert imported(MODELS[name].SerializeToString()) is not None


def test_damaged_models_are_imported_or_refused() -> None:
    found = [imported(damaged(seed)) for seed in range(300)]
    good = sum(m is not None for m in found)
    assert 60 < good < 240  # both happen


@pytest.mark.slow
def test_many_damaged_models() -> None:
    for seed in range(300, 300 + examples(3700)):
        imported(damaged(seed))


@pytest.mark.slow
def test_what_is_imported_runs_or_is_refused() -> None:
    ran, count = 0, examples(60)
    for seed in range(5000, 5000 + count):
        mod = imported(damaged(seed))
        if mod is None:
            continue
        shapes = [[d if isinstance(d, int) else 3 for d in p.checked_type.shape] for p in mod["main"].params]
        if any(math.prod(s) > 1 << 20 for s in shapes):
            continue
        args = [np.ones(s, str(p.checked_type.dtype)) for s, p in zip(shapes, mod["main"].params)]
        try:
            relay.create_executor("graph", mod, tvm.cpu(), "llvm").evaluate()(*args)
        except TVMError:
            continue
        ran += 1
    assert ran > count // 6
