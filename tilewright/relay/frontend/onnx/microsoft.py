"""The fused operators of com.microsoft that exported models use most."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common.activations import gelu_of
from ..common.build import permute
from ..common.matrices import matmul
from ..common.norms import standardised
from .build import R, cast, constant, dtype_of, rank, scalar, shape_of, typed
from .context import Node, Value, converter, find_converter, rows
from .math import swish_of
from .nn import conv_windows, convolve, gemm, group_count
from .norm import inverse_of, rms_of
from .rnn import QUANTIZED, recurrent

MS = "com.microsoft"


@converter("FusedMatMul", "TransposeMatMul", domain=MS)
def fused_matmul(n: Node) -> Any:
    a, b = (
        _turned(n[i], n.attr(f"transBatch{s}", 0), n.attr(f"trans{s}", 0)) for i, s in ((0, "A"), (1, "B"))
    )
    made = matmul(a, b)
    alpha = n.attr("alpha", 1.0)
    return made if alpha == 1.0 else R.multiply(made, scalar(alpha, made))


def _turned(x: Any, batch: Any, last: Any) -> Any:
    """Matrices whose first dimension goes behind those of the batch, and whose last two change places, if asked."""
    if rank(x) < 2:
        return x
    order = list(range(rank(x)))
    if batch:
        order = [*order[1:-1], 0, order[-1]]
    return permute(x, [*order[:-2], order[-1], order[-2]] if last else order)


rows(
    {
        "Gelu": lambda n: gelu_of(n[0]),
        "QuickGelu": lambda n: swish_of(n[0], n.attr("alpha", 1.702)),
        "BiasGelu": lambda n: gelu_of(R.add(n[0], n[1])),
        "FastGelu": lambda n: gelu_of(R.add(n[0], n[1]) if n.has(1) else n[0], "tanh"),
        "LayerNormalization": lambda n: layer_norm_of(n[0], n[1], n.get(2), n.attr("epsilon", 1e-5)),
    },
    domain=MS,
)


def layer_norm_of(x: Any, gamma: Any, beta: Any, epsilon: float) -> Any:
    """The last dimension normalised."""
    size = shape_of(x)[-1]
    if beta is None:
        beta = constant(np.zeros(size, np.float32)) if dtype_of(x) == "float32" else scalar(0, x)
    if dtype_of(x) == "float32" and rank(beta) == 1:
        return R.nn.layer_norm(x, gamma, beta, axis=rank(x) - 1, epsilon=epsilon)
    made, _, _ = standardised(cast(x, "float32"), [rank(x) - 1], epsilon)
    return R.add(R.multiply(cast(made, dtype_of(x)), gamma), beta)


@converter("SimplifiedLayerNormalization", domain=MS)
@converter("SimplifiedLayerNormalization")
def simplified_layer_norm(n: Node) -> Any:
    axes = list(range(n.axis(-1), n.rank(0)))
    made = rms_of(n[0], n[1], axes, n.attr("epsilon", 1e-5))
    return [made, inverse_of(n[0], axes, n.attr("epsilon", 1e-5))] if len(n.outputs) > 1 else made


def _skipped(n: Node, bias: int) -> Any:
    total = R.add(n[0], n[1])
    return R.add(total, n[bias]) if n.has(bias) else total


@converter("SkipLayerNormalization", domain=MS)
def skip_layer_norm(n: Node) -> Any:
    total = _skipped(n, 4)
    return [layer_norm_of(total, n[2], n.get(3), n.attr("epsilon", 1e-12)), None, None, total]


@converter("SkipSimplifiedLayerNormalization", domain=MS)
def skip_simplified_layer_norm(n: Node) -> Any:
    total = _skipped(n, 3)
    return [rms_of(total, n[2], [rank(total) - 1], n.attr("epsilon", 1e-12)), None, None, total]


@converter("EmbedLayerNormalization", domain=MS)
def embed_layer_norm(n: Node) -> Any:
    words = R.take(n[2], n[0], axis=0, mode="fast")
    batch, length = n.shape(0)
    if n.has(8):
        place = R.take(n[3], n[8], axis=0, mode="fast")
    else:
        place = R.expand_dims(R.strided_slice(n[3], [0], [length], axes=[0]), 0)
    total = R.add(words, place)
    if n.has(1) and n.has(4):
        total = R.add(total, R.take(n[4], n[1], axis=0, mode="fast"))
    made = layer_norm_of(total, n[5], n[6], n.attr("epsilon", 1e-12))
    mask = R.sum(cast(n[7], "int32"), axis=[1]) if n.has(7) else R.zeros([batch], "int32")
    return [made, mask, total]


@converter("DynamicQuantizeLSTM", domain=MS)
def dynamic_quantize_lstm(n: Node) -> Any:
    """An LSTM whose weights are integers; inputs and states are rounded to 8 bits before each product.

    Where the length is known only when it runs, they keep their precision.
    """
    parts = []
    for weight, scale, zero in ((1, 8, 9), (2, 10, 11)):
        wide = cast(n[weight], "float32")
        factor, point = n[scale], cast(n[zero], "float32")
        if rank(factor) == 1:
            factor, point = (R.expand_dims(v, 1, 2) for v in (factor, point))
        elif rank(factor) == 2:
            factor, point = (R.expand_dims(v, 1) for v in (factor, point))
        parts.append(Value(typed(R.transpose(R.multiply(R.subtract(wide, point), factor), [0, 2, 1]))))
    inner = Node(n.importer, n.proto, [n.inputs[0], *parts, *n.inputs[3:8]], n.opset)
    inner.op_type = "LSTM"
    inner.attrs[QUANTIZED] = 1
    return recurrent(inner)


@converter("FusedConv", domain=MS)
def fused_conv(n: Node) -> Any:
    made = convolve(n[0], n[1], conv_windows(n), group_count(n, n.shape(0)[1]))
    if n.has(2):
        made = R.nn.bias_add(made, n[2])
    if n.has(3):
        made = R.add(made, n[3])
    return activated(n, made, n.attr("activation", ""))


@converter("NhwcConv", domain=MS)
def nhwc_conv(n: Node) -> Any:
    """A convolution whose channels are the last dimension, of its weight as well."""
    inner = Node(n.importer, n.proto, [_channels_first(n[0]), _channels_first(n[1])], n.opset)
    made = convolve(inner[0], inner[1], conv_windows(inner), group_count(n, inner.shape(0)[1]))
    if n.has(2):
        made = R.nn.bias_add(made, n[2])
    return _channels_last(made)


def _channels_first(x: Any) -> Value:
    return Value(typed(R.transpose(x, [0, rank(x) - 1, *range(1, rank(x) - 1)])))


def _channels_last(x: Any) -> Any:
    return R.transpose(x, [0, *range(2, rank(x)), 1])


@converter("FusedGemm", domain=MS)
def fused_gemm(n: Node) -> Any:
    return activated(n, gemm(n), n.attr("activation", ""))


# The attributes of an activation, in the order of `activation_params`.
_ACTIVATIONS: dict[str, tuple[str, ...]] = {
    "Relu": (), "Tanh": (), "Sigmoid": (), "Softplus": (), "Softsign": (), "LeakyRelu": ("alpha",), "Elu": ("alpha",),
    "ThresholdedRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Selu": ("alpha", "gamma"),
}  # fmt: skip


def activated(n: Node, x: Any, name: str) -> Any:
    """The activation that is fused with a node: the operator of the standard of that name."""
    params = list(n.attr("activation_params", []))
    if name in ("", "None"):
        return x
    if name == "Clip" and len(params) == 2:
        return R.clip(x, params[0], params[1])
    if name not in _ACTIVATIONS:
        raise n.refuse(f"activation {name!r} is not supported")
    fields = _ACTIVATIONS[name]
    named = dict(zip(fields, params))
    given = {f: n.attr(f"activation_{f}", named.get(f)) for f in fields}
    inner = Node(n.importer, n.proto, [Value(typed(x))], 21)
    inner.attrs = {f: v for f, v in given.items() if v is not None}
    return _called(inner, name, 21)


# ---------------------------------------------------------------------------- operators of the standard
def _standard(n: Node, op_type: str, opset: int, first: Value | None = None) -> Any:
    """The same operator of the standard, in an opset, where that has its attributes and inputs."""
    inputs = n.inputs if first is None else [first, *n.inputs[1:]]
    return _called(Node(n.importer, n.proto, inputs, opset), op_type, opset)


def _called(inner: Node, op_type: str, opset: int) -> Any:
    """What the converter of an operator of the standard makes of a node."""
    inner.op_type = op_type
    work = find_converter("", op_type, opset)
    assert work is not None, op_type
    return work(inner)


rows(
    {
        "QuantizeLinear": lambda n: _standard(n, "QuantizeLinear", 19),
        "DequantizeLinear": lambda n: _standard(n, "DequantizeLinear", 19),
        "GridSample": lambda n: _standard(n, "GridSample", 16),
        "Pad": lambda n: _standard(n, "Pad", 13),
        "GatherND": lambda n: _standard(n, "GatherND", 11),
        "Range": lambda n: _standard(n, "Range", 11),
        "Trilu": lambda n: _standard(n, "Trilu", 14),
        "NhwcMaxPool": lambda n: _channels_last(_standard(n, "MaxPool", 12, _channels_first(n[0]))),
        "ExpandDims": lambda n: R.expand_dims(n[0], n.front(n.ints(1)[0], n.rank(0) + 1)),
        "MatMulInteger16": lambda n: matmul(n[0], n[1], "int32"),
    },
    domain=MS,
)


@converter("QLinearConv", domain=MS)
def qlinear_conv(n: Node) -> Any:
    if not n.flag("channels_last", 0):
        return _standard(n, "QLinearConv", 10)
    return _channels_last(_standard(n, "QLinearConv", 10, _channels_first(n[0])))


@converter("CDist", domain=MS)
def cdist(n: Node) -> Any:
    """The distance of each row of one matrix from each of another, or its square."""
    metric = n.attr("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        raise n.refuse(f"metric {metric!r} is not supported")
    apart = R.subtract(R.expand_dims(n[0], 1), R.expand_dims(n[1], 0))
    made = R.sum(R.multiply(apart, apart), axis=[2])
    return R.sqrt(made) if metric == "euclidean" else made
