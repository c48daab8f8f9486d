"""The fused operators of com.microsoft that exported models use most."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..common.activations import gelu_of
from ..common.matrices import matmul
from ..common.norms import standardised
from .build import R, cast, constant, dtype_of, rank, scalar, shape_of, typed
from .context import Node, Value, converter, rows
from .math import swish_of
from .nn import conv_windows, convolve, group_count
from .norm import rms_of
from .rnn import QUANTIZED, recurrent

MS = "com.microsoft"


@converter("FusedMatMul", "TransposeMatMul", domain=MS)
def fused_matmul(n: Node) -> Any:
    a, b = n[0], n[1]
    if n.attr("transBatchA", 0) or n.attr("transBatchB", 0):
        raise n.refuse("transBatchA and transBatchB are not supported")
    a, b = (_transposed(x, n.attr(f"trans{s}", 0)) for x, s in ((a, "A"), (b, "B")))
    made = matmul(a, b)
    alpha = n.attr("alpha", 1.0)
    return made if alpha == 1.0 else R.multiply(made, scalar(alpha, made))


def _transposed(x: Any, yes: Any) -> Any:
    if not yes or rank(x) < 2:
        return x
    order = list(range(rank(x)))
    return R.transpose(x, [*order[:-2], order[-1], order[-2]])


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
    return rms_of(n[0], n[1], [n.rank(0) - 1], n.attr("epsilon", 1e-5))


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
    length = n.static(0)[1]
    if n.has(8):
        place = R.take(n[3], n[8], axis=0, mode="fast")
    else:
        place = R.expand_dims(R.strided_slice(n[3], [0], [length], axes=[0]), 0)
    total = R.add(words, place)
    if n.has(1) and n.has(4):
        total = R.add(total, R.take(n[4], n[1], axis=0, mode="fast"))
    made = layer_norm_of(total, n[5], n[6], n.attr("epsilon", 1e-12))
    mask = R.sum(cast(n[7], "int32"), axis=[1]) if n.has(7) else R.zeros([n.static(0)[0]], "int32")
    return [made, mask, total]


@converter("Attention", domain=MS)
def attention(n: Node) -> Any:
    """Self-attention with the three projections in one matrix."""
    x, w = n[0], n[1]
    heads = int(n.attr("num_heads", 0))
    if heads < 1 or n.has(4) or n.attr("do_rotary", 0):
        raise n.refuse("with a past, rotary embedding or without num_heads is not supported")
    batch, length, _ = n.static(0)
    sizes = n.attr("qkv_hidden_sizes") or [n.static(1)[1] // 3] * 3
    whole = matmul(x, w)
    if n.has(2):
        whole = R.add(whole, n[2])
    edges = np.cumsum([0, *sizes]).tolist()
    parts = []
    for i in range(3):
        part = R.strided_slice(whole, [edges[i]], [edges[i + 1]], axes=[2])
        parts.append(R.transpose(R.reshape(part, [batch, length, heads, sizes[i] // heads]), [0, 2, 1, 3]))
    q, k, v = parts
    scale = n.attr("scale", 0.0) or 1 / math.sqrt(sizes[0] // heads)
    scores = R.multiply(matmul(q, R.transpose(k, [0, 1, 3, 2])), scalar(scale, x))
    scores = _masked(n, scores, batch, length)
    made = matmul(R.nn.softmax(scores, 3), v)
    return R.reshape(R.transpose(made, [0, 2, 1, 3]), [batch, length, sizes[2]])


def _masked(n: Node, scores: Any, batch: int, length: int) -> Any:
    low = n.attr("mask_filter_value", -10000.0)
    if n.has(5):
        scores = R.add(scores, n[5])
    if n.has(3):
        mask = n[3]
        if rank(mask) == 1 and shape_of(mask)[0] == batch:
            line = constant(np.arange(length, dtype=np.int32)[None])
            mask = cast(R.less(line, R.expand_dims(cast(mask, "int32"), 1)), "int32")
        if rank(mask) == 2:
            mask = R.reshape(mask, [batch, 1, 1, length])
        elif rank(mask) == 3:
            mask = R.expand_dims(mask, 1)
        else:
            raise n.refuse(f"a mask of shape {shape_of(mask)} is not supported")
        scores = R.add(
            scores,
            R.multiply(R.subtract(scalar(1, scores), cast(mask, dtype_of(scores))), scalar(low, scores)),
        )
    if n.attr("unidirectional", 0):
        scores = R.where(constant(np.tril(np.ones((length, length), bool))), scores, scalar(low, scores))
    return scores


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


@converter("FusedGemm", domain=MS)
def fused_gemm(n: Node) -> Any:
    from .nn import gemm

    return activated(n, gemm(n), n.attr("activation", ""))


def activated(n: Node, x: Any, name: str) -> Any:
    params = list(n.attr("activation_params", []))
    if name == "Relu":
        return R.nn.relu(x)
    if name == "Tanh":
        return R.tanh(x)
    if name == "Sigmoid":
        return R.sigmoid(x)
    if name == "LeakyRelu":
        return R.nn.leaky_relu(x, n.attr("activation_alpha", params[0] if params else 0.01))
    if name == "Clip" and len(params) == 2:
        return R.clip(x, params[0], params[1])
    if name in ("", "None"):
        return x
    raise n.refuse(f"activation {name!r} is not supported")
