"""Graph functions as models of ONNX: the reverse of `relay.frontend.from_onnx`, for the operators that it knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ...ir.errors import BuildError
from ..expr import Call, Constant, Function, Tuple, TupleGetItem, Var
from ..ty import TupleType, tensor_fields
from ..visitor import in_order

OPSET: Final = 17
_IR_VERSION: Final = 8  # that of ONNX 1.12, which has the operator set

# operators that differ in their name only
_SAME: Final = {
    "add": "Add", "subtract": "Sub", "multiply": "Mul", "divide": "Div", "power": "Pow", "maximum": "Max",
    "minimum": "Min", "nn.relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "exp": "Exp", "log": "Log",
    "sqrt": "Sqrt", "erf": "Erf", "negative": "Neg", "abs": "Abs", "nn.global_avg_pool2d": "GlobalAveragePool",
    "nn.global_max_pool2d": "GlobalMaxPool", "round": "Round", "floor": "Floor", "ceil": "Ceil", "sin": "Sin",
    "cos": "Cos", "tan": "Tan", "greater": "Greater", "less": "Less", "equal": "Equal", "copy": "Identity",
    "greater_equal": "GreaterOrEqual", "less_equal": "LessOrEqual", "logical_and": "And", "logical_or": "Or",
    "logical_not": "Not", "where": "Where",
}  # fmt: skip


class _Graph:
    """The nodes and constants of a model, with the names of values."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.names: dict[Any, list[str]] = {}
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = self.fresh()
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(self, op: str, inputs: Sequence[str], **attrs: Any) -> str:
        from onnx import helper

        name = self.fresh()
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attrs))
        return name


Convert = Callable[[_Graph, Call, list[str]], str | list[str]]  # the name of a value, or those of a tuple
_CONVERT: Final[dict[str, Convert]] = {}


def _for(*names: str) -> Callable[[Convert], Convert]:
    def register(work: Convert) -> Convert:
        _CONVERT.update(dict.fromkeys(names, work))
        return work

    return register


def _need(e: Call, **wanted: str) -> None:
    """Refuse a layout that ONNX does not have."""
    for name, layout in wanted.items():
        if getattr(e.attrs, name) != layout:
            raise BuildError(
                f"onnx: {e.op.name} has {name}={getattr(e.attrs, name)!r}, and ONNX has {layout!r}; "
                "relay.transform.ConvertLayout changes the model"
            )


@_for("nn.conv2d", "nn.conv2d_transpose")
def _conv(g: _Graph, e: Call, x: list[str]) -> str:
    back = e.op.name == "nn.conv2d_transpose"
    _need(e, data_layout="NCHW", kernel_layout="IOHW" if back else "OIHW")
    a, kernel = e.attrs, e.args[1].checked_type.shape
    more = {"output_padding": list(a.output_padding)} if back else {}
    return g.node(
        "ConvTranspose" if back else "Conv", x, strides=list(a.strides), pads=list(a.padding),
        dilations=list(a.dilation), group=a.groups, kernel_shape=list(kernel[2:]), **more,
    )  # fmt: skip


@_for("nn.max_pool2d", "nn.avg_pool2d")
def _pool(g: _Graph, e: Call, x: list[str]) -> str:
    _need(e, layout="NCHW")
    a = e.attrs
    about = {
        "kernel_shape": list(a.pool_size), "strides": list(a.strides), "pads": list(a.padding),
        "ceil_mode": int(a.ceil_mode),
    }  # fmt: skip
    if e.op.name == "nn.max_pool2d":
        return g.node("MaxPool", x, dilations=list(a.dilation), **about)
    if any(d != 1 for d in a.dilation):
        raise BuildError("onnx: nn.avg_pool2d with dilation has no operator in this version of ONNX")
    return g.node("AveragePool", x, count_include_pad=int(a.count_include_pad), **about)


_CONVERT.update(
    {
        "cast": lambda g, e, x: g.node("Cast", x, to=_onnx_type(str(e.checked_type.dtype))),
        "concatenate": lambda g, e, x: g.node("Concat", x, axis=e.attrs.axis),
        "nn.dense": lambda g, e, x: g.node("MatMul", [x[0], g.node("Transpose", [x[1]], perm=[1, 0])]),
        "nn.leaky_relu": lambda g, e, x: g.node("LeakyRelu", x, alpha=float(e.attrs.alpha)),
        "nn.log_softmax": lambda g, e, x: g.node("LogSoftmax", x, axis=e.attrs.axis),
        "nn.softmax": lambda g, e, x: g.node("Softmax", x, axis=e.attrs.axis),
        "not_equal": lambda g, e, x: g.node("Not", [g.node("Equal", x)]),
    }
)


@_for("nn.batch_matmul")
def _batch_matmul(g: _Graph, e: Call, x: list[str]) -> str:
    turned = (e.attrs.transpose_a, e.attrs.transpose_b)
    return g.node(
        "MatMul",
        [g.node("Transpose", [n], perm=[0, 2, 1]) if t else n for n, t in zip(x, turned, strict=True)],
    )


@_for("nn.bias_add")
def _bias_add(g: _Graph, e: Call, x: list[str]) -> str:
    rank = len(e.checked_type.shape)
    shape = [-1, *(1 for _ in range(rank - 1 - e.attrs.axis % rank))]
    return g.node("Add", [x[0], g.node("Reshape", [x[1], g.constant(np.array(shape, np.int64))])])


@_for("clip")
def _clip(g: _Graph, e: Call, x: list[str]) -> str:
    kind = str(e.checked_type.dtype)
    return g.node("Clip", [*x, *(g.constant(np.array(v, kind)) for v in (e.attrs.a_min, e.attrs.a_max))])


@_for("reshape", "squeeze", "expand_dims", "nn.batch_flatten")
def _reshape(g: _Graph, e: Call, x: list[str]) -> str:
    shape = np.array(e.checked_type.shape, np.int64)
    return g.node("Reshape", [x[0], g.constant(shape)], allowzero=1)


@_for("transpose")
def _transpose(g: _Graph, e: Call, x: list[str]) -> str:
    rank = len(e.checked_type.shape)
    axes = e.attrs.axes or tuple(reversed(range(rank)))
    return g.node("Transpose", x, perm=[a % rank for a in axes])


@_for("mean", "sum", "max", "min")
def _reduce(g: _Graph, e: Call, x: list[str]) -> str:
    axes = None if e.attrs.axis is None else [int(a) for a in e.attrs.axis]
    if e.attrs.exclude:
        rank = len(e.args[0].checked_type.shape)
        axes = sorted({*range(rank)} - {a % rank for a in axes or ()})
    keep = int(e.attrs.keepdims)
    if e.op.name == "sum":
        given = [] if axes is None else [g.constant(np.array(axes, np.int64))]
        return g.node("ReduceSum", [*x, *given], keepdims=keep)
    more = {} if axes is None else {"axes": axes}
    return g.node(f"Reduce{e.op.name.capitalize()}", x, keepdims=keep, **more)


@_for("nn.batch_norm")
def _batch_norm(g: _Graph, e: Call, x: list[str]) -> list[str]:
    if e.attrs.axis != 1:
        raise BuildError(f"onnx: nn.batch_norm has axis={e.attrs.axis}, and ONNX has the channels at axis 1")
    one = np.ones(e.args[1].checked_type.shape, str(e.args[1].checked_type.dtype))
    scale = x[1] if e.attrs.scale else g.constant(one)
    shift = x[2] if e.attrs.center else g.constant(0 * one)
    return [
        g.node("BatchNormalization", [x[0], scale, shift, *x[3:]], epsilon=float(e.attrs.epsilon)),
        *x[3:],
    ]


@_for("nn.dropout")
def _dropout(g: _Graph, e: Call, x: list[str]) -> list[str]:
    made = g.node("Identity", x)  # when a model is run
    return [made] * len(tensor_fields(e.checked_type))


@_for("nn.pad")
def _pad(g: _Graph, e: Call, x: list[str]) -> str:
    pads = np.array([p[side] for side in (0, 1) for p in e.attrs.pad_width], np.int64)
    return g.node("Pad", [x[0], g.constant(pads), *x[1:]], mode=str(e.attrs.pad_mode))


@_for("nn.lrn")
def _lrn(g: _Graph, e: Call, x: list[str]) -> str:
    a = e.attrs
    if a.axis != 1:
        raise BuildError(f"onnx: nn.lrn has axis={a.axis}, and ONNX has the channels at axis 1")
    return g.node("LRN", x, alpha=float(a.alpha), beta=float(a.beta), bias=float(a.bias), size=int(a.size))


@_for("zeros_like", "ones_like")
def _like(g: _Graph, e: Call, x: list[str]) -> str:
    make = np.zeros if e.op.name == "zeros_like" else np.ones
    return g.constant(make(e.checked_type.shape, str(e.checked_type.dtype)))


@_for("take")
def _take(g: _Graph, e: Call, x: list[str]) -> str:
    if e.attrs.axis is None or e.attrs.batch_dims:
        raise BuildError("onnx: take of all elements, or of each part of a batch, has no operator in ONNX")
    if e.attrs.mode != "fast" and not isinstance(e.args[1], Constant):
        size = e.args[0].checked_type.shape[e.attrs.axis]
        kind = str(e.args[1].checked_type.dtype)
        if e.attrs.mode == "wrap":
            x = [x[0], g.node("Mod", [x[1], g.constant(np.array(size, kind))])]
        else:
            x = [x[0], g.node("Clip", [x[1], *(g.constant(np.array(v, kind)) for v in (0, size - 1))])]
    return g.node("Gather", x, axis=int(e.attrs.axis))


@_for("split")
def _split(g: _Graph, e: Call, x: list[str]) -> list[str]:
    from onnx import helper

    axis = int(e.attrs.axis)
    sizes = np.array([f.shape[axis] for f in tensor_fields(e.checked_type)], np.int64)
    names = [g.fresh() for _ in sizes]
    g.nodes.append(helper.make_node("Split", [x[0], g.constant(sizes)], names, axis=axis))
    return names


@_for("strided_slice")
def _slice(g: _Graph, e: Call, x: list[str]) -> str:
    shape, out, a = e.args[0].checked_type.shape, e.checked_type.shape, e.attrs
    axes = [int(i) for i in a.axes] if a.axes is not None else list(range(len(a.begin)))
    steps = [int(s) for s in a.strides or ()] if a.slice_mode != "size" else []
    rows = []
    for i, axis in enumerate(axes):
        step = 1 if not steps else steps[i] if i < len(steps) else steps[0] if len(steps) == 1 else 1
        begin, size = int(a.begin[i]), int(shape[axis])
        begin = min(max(begin + size if begin < 0 else begin, 0), size - (step < 0))
        end = begin + step * int(out[axis])
        rows.append((begin, end if end >= 0 else -size - 1, axis, step))
    columns = [g.constant(np.array(c, np.int64)) for c in zip(*rows, strict=True)]
    return g.node("Slice", [x[0], *columns])


@_for("argmax", "argmin")
def _arg(g: _Graph, e: Call, x: list[str]) -> str:
    if e.attrs.axis is None or len(e.attrs.axis) != 1 or e.attrs.exclude:
        raise BuildError(f"onnx: {e.op.name} over several axes has no operator in ONNX")
    made = g.node(
        "ArgMax" if e.op.name == "argmax" else "ArgMin", x, axis=int(e.attrs.axis[0]), keepdims=int(e.attrs.keepdims),
        select_last_index=int(e.attrs.select_last_index),
    )  # fmt: skip
    return g.node("Cast", [made], to=_onnx_type(str(e.checked_type.dtype)))


def _onnx_type(dtype: str) -> int:
    from onnx import helper

    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


def onnx_model(fn: Function, name: str) -> Any:
    """The model of a typed graph function; its inputs and results are named `input0`, `output0`, …"""
    try:
        from onnx import helper
    except ImportError:
        raise BuildError(
            "a model of ONNX is made with the package onnx, which is not installed: pip install onnx"
        ) from None
    g = _Graph()
    ins = []
    for i, p in enumerate(fn.params):
        g.names[p] = [f"input{i}"]
        if isinstance(p.checked_type, TupleType):
            raise BuildError(
                f"onnx: the parameter %{p.name_hint} of {name} is a tuple; a model takes tensors"
            )
        ins.append(_value_info(f"input{i}", p.checked_type))
    for e in in_order(fn.body, _operands):
        if e not in g.names:
            g.names[e] = _converted(g, e)
    outs = []
    for i, (kind, value) in enumerate(
        zip(tensor_fields(fn.checked_type.ret_type), g.names[fn.body], strict=True)
    ):
        g.nodes.append(helper.make_node("Identity", [value], [f"output{i}"]))
        outs.append(_value_info(f"output{i}", kind))
    graph = helper.make_graph(g.nodes, name, ins, outs, g.constants)
    return helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=_IR_VERSION,
        producer_name="tilewright",
    )


def _value_info(name: str, kind: Any) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, _onnx_type(str(kind.dtype)), [int(d) for d in kind.shape])


def _operands(e: Any) -> list[Any]:
    if isinstance(e, Call):
        return list(e.args)
    return list(e.children()) if isinstance(e, (Tuple, TupleGetItem)) else []


def _converted(g: _Graph, e: Any) -> list[str]:
    """The names of the tensors of an expression."""
    if isinstance(e, Constant):
        return [g.constant(e.numpy())]
    if isinstance(e, Tuple):
        return [n for f in e.fields for n in g.names[f]]
    if isinstance(e, TupleGetItem):
        return [g.names[e.tuple_value][e.index]]
    if isinstance(e, Call) and isinstance(e.op, Function):
        inner = dict(zip(e.op.params, (g.names[a] for a in e.args), strict=True))
        g.names.update(inner)
        for x in in_order(e.op.body, _operands):
            if x not in g.names:
                g.names[x] = _converted(g, x)
        return g.names[e.op.body]
    if isinstance(e, Var):
        raise BuildError(f"onnx: %{e.name_hint} is not a parameter of the function")
    name = e.op.name if isinstance(e, Call) and hasattr(e.op, "name") else type(e).__name__
    given = [n for a in e.args for n in g.names[a]] if isinstance(e, Call) else []
    if name in _CONVERT:
        made = _CONVERT[name](g, e, given)
        return [made] if isinstance(made, str) else made
    if name in _SAME:
        return [g.node(_SAME[name], given)]
    raise BuildError(
        f"onnx: there is no operator of ONNX for {name} here; those known are {', '.join(known_operators())}"
    )


def known_operators() -> list[str]:
    """The names of the operators that can be converted."""
    return sorted({*_CONVERT, *_SAME})
