"""ONNX models with damaged fields: refused by a FrontendError, or compiled, with the numbers of onnxruntime."""

from __future__ import annotations

import math
import random
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import tilewright as tvm
from fuzz import fuzzer, refused
from fuzz.damage import damaged
from tilewright import config, relay
from tilewright.ir.errors import FrontendError, TVMError

_MOST = 1 << 21  # elements of all that a model may take: beyond it only the import is tried
_NUMBERS = (0, -1, 1, 2, 3, 7, 13, 64, 2**31 - 1, 2**31, 2**32, 2**40, 2**63 - 1, -(2**63))
_FLOATS = (0.0, -1.0, 0.5, 1e-5, 1e30, float("inf"), float("nan"))
_KINDS = tuple(range(24))


def _floats(*shape: int) -> Any:
    return np.linspace(-1, 1, math.prod(shape), dtype=np.float32).reshape(shape)


def _node(op: str, inputs: str, out: str = "y", **attrs: Any) -> Any:
    from onnx import helper

    return helper.make_node(op, [i if i != "-" else "" for i in inputs.split()], out.split(), **attrs)


def _model(nodes: list[Any], shape: tuple[int, ...] = (1, 2, 6, 6), **constants: Any) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _branch(op: str) -> Any:
    from onnx import TensorProto, helper

    return helper.make_graph(
        [_node(op, "x", "r")], op, [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)]
    )


def _loop() -> Any:
    import onnx

    return onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[3] x) => (float[3] y) <int64 n = {4}, bool c = {1}> {'
        "y = Loop(n, c, x) <body = b (int64 i, bool g, float[3] s) => (bool go, float[3] t) "
        "{ go = Identity(g)  t = Add(s, x) }> }"
    )


def _images() -> list[Any]:
    return [
        _model(
            [
                _node("Conv", "x w b", "a", strides=[2, 2], pads=[1, 1, 1, 1]),
                _node("Relu", "a", "c"),
                _node("MaxPool", "c", "d", kernel_shape=[3, 3]),
                _node("Flatten", "d", "e"),
                _node("Gemm", "e v", transB=1),
            ],
            w=_floats(3, 2, 3, 3), b=_floats(3), v=_floats(4, 3),
        ),
        _model(
            [
                _node("BatchNormalization", "x g b g2 g3", "a"),
                _node("LeakyRelu", "a", "c", alpha=0.1),
                _node("AveragePool", "c", "d", kernel_shape=[2, 2], strides=[2, 2]),
                _node("GlobalAveragePool", "d"),
            ],
            g=_floats(2), b=_floats(2), g2=_floats(2), g3=np.float32([1, 2]),
        ),
        _model(
            [_node("ConvTranspose", "x w", "a", strides=[2, 2], output_padding=[1, 1]), _node("Tanh", "a")],
            w=_floats(2, 3, 3, 3),
        ),
        _model(
            [
                _node("DynamicQuantizeLinear", "x", "q s z"),
                _node("DequantizeLinear", "q s z", "d"),
                _node("Resize", "d - k", "e", mode="linear"),
                _node("Softmax", "e", axis=-1),
            ],
            k=np.float32([1, 1, 2, 2]),
        ),
    ]  # fmt: skip


def _sequences() -> list[Any]:
    return [
        _model([_node("LSTM", "x w r", "s y", hidden_size=3)], (4, 1, 2), w=_floats(1, 12, 2), r=_floats(1, 12, 3)),
        _model(
            [_node("GRU", "x w r", "a y", hidden_size=3, linear_before_reset=1)],
            (4, 1, 2), w=_floats(1, 9, 2), r=_floats(1, 9, 3),
        ),
        _model(
            [
                _node("MatMul", "x w", "q"),
                _node("Transpose", "q", "k", perm=[0, 2, 1]),
                _node("MatMul", "q k", "s"),
                _node("Mul", "s f", "t"),
                _node("Softmax", "t", "p", axis=2),
                _node("MatMul", "p q"),
            ],
            (2, 5, 4), w=_floats(4, 4), f=np.float32(0.5),
        ),
        _model(
            [
                _node("LayerNormalization", "x g", "a"),
                _node("Split", "a p2", "b c", axis=1),
                _node("MatMul", "b c", "d"),
                _node("Pad", "d p", "e"),
                _node("TopK", "e k", "y i"),
            ],
            g=_floats(6), p2=np.int64([1, 1]), p=np.int64([0, 0, 1, 1, 0, 0, 1, 1]), k=np.int64([2]),
        ),
    ]  # fmt: skip


def _shapes() -> list[Any]:
    return [
        _model(
            [
                _node("Shape", "x", "s"),
                _node("Slice", "s i e", "t"),
                _node("Concat", "t m", "u", axis=0),
                _node("Reshape", "x u", "v"),
                _node("Transpose", "v", perm=[1, 0]),
            ],
            i=np.int64([0]), e=np.int64([1]), m=np.int64([-1]),
        ),
        _model(
            [
                _node("Unsqueeze", "x a", "b"),
                _node("Expand", "b s", "c"),
                _node("ReduceMean", "c", "d", axes=[0, 2], keepdims=1),
                _node("Tile", "d t", "e"),
                _node("Clip", "e l h"),
            ],
            (3, 4), a=np.int64([0]), s=np.int64([2, 3, 4]), t=np.int64([1, 2, 2]), l=np.float32(-0.5), h=np.float32(0.5),
        ),
        _model(
            [
                _node("Cast", "x", "a", to=7),
                _node("CumSum", "a ax", "b"),
                _node("ArgMax", "b", "c", axis=2, keepdims=0),
                _node("Cast", "c", to=1),
            ],
            (2, 3, 5), ax=np.int64(1),
        ),
        _model(
            [
                _node("InstanceNormalization", "x s b", "a"),
                _node("DepthToSpace", "a2", "c", blocksize=2),
                _node("Concat", "a a a a", "a2", axis=1),
                _node("Einsum", "c c", equation="bchw,bcvw->bhv"),
            ],
            s=_floats(2), b=_floats(2),
        ),
    ]  # fmt: skip


def _control() -> list[Any]:
    return [
        _model(
            [
                _node("ReduceSum", "x", "s", keepdims=0),
                _node("Greater", "s z", "t"),
                _node("If", "t", then_branch=_branch("Exp"), else_branch=_branch("Abs")),
            ],
            z=np.float32(0),
        ),
        _loop(),
    ]  # fmt: skip


def _indices() -> list[Any]:
    """Models whose indices and divisors are data."""
    return [
        _model(
            [
                _node("Cast", "x", "i", to=7),
                _node("Gather", "w i", "a", axis=0),
                _node("Cast", "a", "b", to=6),
                _node("Mod", "b d", "c"),
                _node("Cast", "c", to=1),
            ],
            (3,), w=_floats(4, 5), d=np.int32([1, 2, 3, -4, 5]),
        ),
        _model(
            [_node("GatherElements", "x i", "a", axis=1), _node("ScatterND", "a j u", "b"), _node("Neg", "b")],
            (3, 4), i=np.int64([[0, 3], [1, -4], [2, 2]]), j=np.int64([[0, 1], [2, 0]]), u=_floats(2),
        ),
        _model(
            [_node("GatherND", "x i", "a"), _node("OneHot", "j n v", "b"), _node("Div", "a b")],
            (3, 4), i=np.int64([[0], [2]]), j=np.int64([1, 3]), n=np.int64(4), v=np.float32([1, 2]),
        ),
    ]  # fmt: skip


@cache
def seeds() -> list[bytes]:
    """Good models, serialised."""
    made = [*_images(), *_sequences(), *_shapes(), *_control(), *_indices()]
    return [m.SerializeToString() for m in made]


# -- damage --------------------------------------------------------------------------------------------
def _attribute(model: Any, node: Any, rng: random.Random) -> None:
    """Another value of an attribute, or one attribute more or less."""
    if not node.attribute or rng.random() < 0.15:
        node.attribute.add(
            name=rng.choice(["axis", "alpha", "group", "pads", "mode"]), type=2, i=rng.choice(_NUMBERS)
        )
        return
    a = rng.choice(list(node.attribute))
    if a.ints:
        at = rng.randrange(len(a.ints))
        match rng.randrange(3):
            case 0:
                del a.ints[at]
            case 1:
                a.ints.append(rng.choice(_NUMBERS))
            case _:
                a.ints[at] = rng.choice(_NUMBERS)
    elif a.type == 2:
        a.i = rng.choice(_NUMBERS)
    elif a.type == 1:
        a.f = rng.choice(_FLOATS)
    elif a.type == 3:
        a.s = rng.choice(
            [b"", b"\xff\xfe", b"nonsense", b"cubic", b"nearest", b"ij,jk->ik", b"i->", b"SAME_UPPER"]
        )
    else:
        a.type = rng.randrange(12)


def _edge(model: Any, node: Any, rng: random.Random) -> None:
    """Another source of an input, or an input more or less."""
    names = ["x", "", "y", "nobody", *(o for n in model.graph.node for o in n.output)]
    names += [t.name for t in model.graph.initializer]
    if node.input and rng.random() < 0.7:
        node.input[rng.randrange(len(node.input))] = rng.choice(names)
    elif node.input and rng.random() < 0.5:
        del node.input[-1]
    else:
        node.input.append(rng.choice(names))


def _operator(model: Any, node: Any, rng: random.Random) -> None:
    node.op_type = rng.choice(
        "Relu Add Mul Sub Pow Conv Reshape Concat LSTM If Loop TopK Resize Einsum Cast Where Erf ReduceMax Squeeze Shape "
        "Attention Foo Softmax Transpose MatMul Slice Expand Equal Not Sum Mean NonZero Range Trilu Gather GatherND "
        "GatherElements ScatterElements ScatterND OneHot ReverseSequence Compress Div Mod MaxUnpool".split()
    )


def _initialiser(model: Any, node: Any, rng: random.Random) -> None:
    """Another type, shape or content of a constant."""
    if not model.graph.initializer:
        return
    t = rng.choice(list(model.graph.initializer))
    match rng.randrange(5):
        case 0:
            t.data_type = rng.choice(_KINDS)
        case 1 if t.dims:
            t.dims[rng.randrange(len(t.dims))] = rng.choice(_NUMBERS)
        case 2:
            t.dims.append(rng.choice([1, 0, 2]))
        case 3:
            data = bytearray(t.raw_data or b"\0")
            data[rng.randrange(len(data))] = rng.randrange(256)
            t.raw_data = bytes(data)
        case _:
            t.raw_data = t.raw_data[: rng.randrange(len(t.raw_data) + 1)]


def _input(model: Any, node: Any, rng: random.Random) -> None:
    """Another shape or type of the model's input."""
    kind = model.graph.input[0].type.tensor_type
    if rng.random() < 0.3 or not kind.shape.dim:
        kind.elem_type = rng.choice(_KINDS)
        return
    d = rng.choice(list(kind.shape.dim))
    match rng.randrange(4):
        case 0:
            d.dim_param = "n"
        case 1:
            kind.shape.dim.add(dim_value=rng.choice([1, 2, 0]))
        case _:
            d.dim_value = rng.choice([*_NUMBERS, 1, 2, 3, 4, 5])


def _graph(model: Any, node: Any, rng: random.Random) -> None:
    """A node more or less, another order, a doubled name, another opset."""
    nodes = model.graph.node
    match rng.randrange(6):
        case 0 if len(nodes) > 1:
            del nodes[rng.randrange(len(nodes))]
        case 1:
            nodes.add().CopyFrom(node)
        case 2:
            node.output[0] = rng.choice(["x", "y", "", "a"])
        case 3:
            model.opset_import[0].version = rng.choice([1, 7, 9, 11, 13, 15, 18, 21, 23, 99, 0])
        case 4 if model.graph.initializer:
            model.graph.initializer.add().CopyFrom(rng.choice(list(model.graph.initializer)))
        case _:
            model.graph.input.add().CopyFrom(model.graph.input[0])


_DAMAGES: tuple[Callable[[Any, Any, random.Random], None], ...] = (
    _attribute, _attribute, _edge, _operator, _initialiser, _initialiser, _input, _graph,
)  # fmt: skip


def _changed(rng: random.Random) -> bytes:
    import onnx

    data = rng.choice(seeds())
    if rng.random() < 0.2:
        return damaged(rng, data)
    model = onnx.ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        rng.choice(_DAMAGES)(model, rng.choice(list(model.graph.node)), rng)
    return model.SerializeToString()  # type: ignore[no-any-return]


# -- the attempt ---------------------------------------------------------------------------------------
@fuzzer("onnx", seconds=60, gib=4, short=8, share=5)
def onnx(rng: random.Random) -> str:
    """A damaged model is refused by a FrontendError, or compiles and runs as onnxruntime runs it."""
    data = _changed(rng)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mod, _ = relay.frontend.from_onnx(data)
    except FrontendError:
        return "refused"
    shapes = [[d if isinstance(d, int) else 3 for d in p.checked_type.shape] for p in mod["main"].params]
    if sum(map(math.prod, shapes)) > _MOST or _is_large(mod):
        return "imported"
    kinds = [str(p.checked_type.dtype) for p in mod["main"].params]
    args = [_values(rng, s, k) for s, k in zip(shapes, kinds, strict=True)]
    try:
        # Most kernels of a damaged model are those of the whole one: they are compiled once.
        with config.using(cache=True, cache_dir=_cache().name):
            machine = tvm.runtime.vm.VirtualMachine(relay.vm.compile(mod, "llvm"), tvm.cpu())
        found = machine.run(*args)
    except MemoryError:
        return "refused later"
    except TVMError as error:
        return refused(error, "refused later")
    results = [a.numpy() for a in (list(found) if hasattr(found, "tag") else [found])]
    return _compared(data, dict(zip([p.name_hint for p in mod["main"].params], args)), results)


@cache
def _cache() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fuzz-")


def _is_large(mod: Any) -> bool:
    """Whether a tensor between has more elements than an attempt should take."""
    from tilewright.relay.analysis import post_order
    from tilewright.relay.ty import tensor_fields

    for e in post_order(mod["main"]):
        for t in tensor_fields(e.checked_type) if hasattr(e, "args") else ():
            if math.prod(d for d in t.shape if isinstance(d, int)) > _MOST:
                return True
    return False


def _values(rng: random.Random, shape: list[int], kind: str) -> Any:
    made = np.random.default_rng(rng.randrange(2**32)).standard_normal(shape)
    return (made > 0 if kind == "bool" else made * 3).astype(tvm.runtime.dtypes.ELEMENTS[kind].numpy)


def _compared(data: bytes, args: dict[str, Any], results: list[Any]) -> str:
    try:
        import onnxruntime as ort
    except ImportError:
        return "ran"
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(data, settings, providers=["CPUExecutionProvider"])
        wanted = session.run(None, {i.name: args[i.name] for i in session.get_inputs()})
    except Exception:  # whatever onnxruntime's refusal is
        return "refused by onnxruntime"
    if not all(np.isfinite(np.asarray(w, np.float64)).all() for w in wanted if _is_number(w)):
        return "not finite"
    for w, r in zip(wanted, results, strict=True):
        if _is_number(w):
            scale = float(np.max(np.abs(np.asarray(w, np.float64)), initial=1.0))
            np.testing.assert_allclose(np.asarray(r, np.float64), w, rtol=2e-3, atol=2e-4 * scale)
            assert r.shape == w.shape, (r.shape, w.shape)
    return "equal"


def _is_number(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "fiub"
