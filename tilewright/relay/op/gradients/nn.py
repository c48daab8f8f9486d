"""Gradients of activations, normalisations, losses and attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...expr import Call, Tuple, const
from .. import expansions
from ..computes import R
from ..expansions import along_axis
from ..shapes import axes_of
from .parts import ndim, number, shape, sizes, summed_but, through


def softmax(call: Call, grad: Any) -> list[Any]:
    axis = call.attrs.axis
    return [(grad - R.sum(grad * call, axis=axis, keepdims=True)) * call]


def log_softmax(call: Call, grad: Any) -> list[Any]:
    return [grad - R.exp(call) * R.sum(grad, axis=call.attrs.axis, keepdims=True)]


def prelu(call: Call, grad: Any) -> list[Any]:
    data, alpha = call.args
    rank, axis = ndim(data), call.attrs.axis
    positive = R.greater(data, number(0, data))
    zeros = R.zeros_like(grad)
    by_alpha = summed_but(R.where(positive, zeros, grad * data), axis, rank)
    return [R.where(positive, grad, grad * along_axis(alpha, axis, rank)), by_alpha]


def dropout(call: Call, grad: Any) -> list[Any]:
    return [grad[0]]


# ---------------------------------------------------------------------------- normalisation
batch_norm = through(expansions.batch_norm)
layer_norm = through(expansions.layer_norm)
instance_norm = through(expansions.instance_norm)
group_norm = through(expansions.group_norm)
l2_normalize = through(expansions.l2_normalize)


def _rms_norm(call: Call) -> Any:
    data, weight = call.args
    rank = ndim(data)
    axes = sorted(axes_of(call.attrs.axis, rank))
    squares = R.mean(data * data, axis=axes, keepdims=True)
    made = data * R.rsqrt(squares + number(call.attrs.epsilon, data))
    wide = [shape(weight)[axes.index(d)] if d in axes else 1 for d in range(rank)]
    return made * R.reshape(weight, wide)


rms_norm = through(_rms_norm)


def _lrn(call: Call) -> Any:
    data, attrs = call.args[0], call.attrs
    rank, axis = ndim(data), call.attrs.axis % ndim(data)
    before = (attrs.size - 1) // 2
    widths = [(before, attrs.size - 1 - before) if d == axis else (0, 0) for d in range(rank)]
    squares = R.nn.pad(data * data, widths, number(0, data))
    count = sizes(call)[axis]
    total: Any = None
    for k in range(attrs.size):
        part = R.strided_slice(squares, [k], [k + count], axes=[axis])
        total = part if total is None else total + part
    base = number(attrs.bias, data) + number(attrs.alpha / attrs.size, data) * total
    return data / R.power(base, number(attrs.beta, data))


lrn = through(_lrn)


# ---------------------------------------------------------------------------- losses
def _entropy(call: Call, logs: Any) -> Any:
    predictions, targets = call.args
    batch = R.cast(R.take(R.shape_of(predictions), const(0), axis=0), str(predictions.checked_type.dtype))
    size = shape(predictions)[0]
    count = number(size, predictions) if isinstance(size, int) else batch
    return R.negative(R.sum(logs * targets)) / count


cross_entropy = through(lambda call: _entropy(call, R.log(call.args[0])))
cross_entropy_with_logits = through(lambda call: _entropy(call, call.args[0]))


def _nll_loss(call: Call) -> Any:
    predictions, targets, weights = call.args
    kind, attrs = str(predictions.checked_type.dtype), call.attrs
    axis = 0 if ndim(predictions) == 1 else 1
    marks = R.one_hot(targets, const(1, kind), const(0, kind), shape(weights)[0], axis, kind)
    seen = R.cast(R.not_equal(targets, number(attrs.ignore_index, targets)), kind)
    own = R.sum(marks * along_axis(weights, axis, ndim(predictions)), axis=axis) * seen
    losses = R.negative(R.sum(marks * predictions, axis=axis) * own)
    if attrs.reduction == "none":
        return losses
    return R.sum(losses) / R.sum(own) if attrs.reduction == "mean" else R.sum(losses)


nll_loss = through(_nll_loss)


# ---------------------------------------------------------------------------- attention
def _product(a: Any, b: Any, dims: Any, transpose_b: bool) -> Any:
    """The products of the matrices in the last two dimensions."""
    flat = [R.reshape(x, (-1, *shape_now[-2:])) for x, shape_now in ((a, dims[0]), (b, dims[1]))]
    made = R.nn.batch_matmul(flat[0], flat[1], transpose_b=transpose_b)
    rows, columns = dims[0][-2], dims[1][-2 if transpose_b else -1]
    return R.reshape(made, (*dims[0][:-2], rows, columns))


def _attention(call: Call) -> Any:
    query, key, value, *mask = call.args
    attrs, q, k, v = call.attrs, sizes(call, 0), sizes(call, 1), sizes(call, 2)
    if len(q) > 2 and q[-3] != k[-3]:  # grouped queries: each head of the keys serves several
        times = q[-3] // k[-3]
        key, value = R.repeat(key, times, len(k) - 3), R.repeat(value, times, len(v) - 3)
        k, v = (*k[:-3], q[-3], *k[-2:]), (*v[:-3], q[-3], *v[-2:])
    scale = 1 / math.sqrt(q[-1]) if attrs.scale is None else attrs.scale
    scores = _product(query, key, (q, k), True) * number(scale, query)
    hidden = np.zeros((q[-2], k[-2]), bool)
    rows, columns = np.indices(hidden.shape)
    rows = rows + attrs.offset
    if attrs.is_causal:
        hidden |= columns > rows
    if attrs.window is not None:
        before, after = (*attrs.window, *attrs.window)[:2]
        hidden |= (columns < rows - before) if before >= 0 else False
        hidden |= (columns > rows + after) if after >= 0 else False
    low = number(-np.inf, query)
    if mask:
        bools = mask[0].checked_type.dtype.is_bool
        scores = R.where(mask[0], scores, low) if bools else scores + mask[0]
    if hidden.any():
        scores = R.where(const(hidden), low, scores)
    return _product(R.nn.softmax(scores, -1), value, ((*q[:-1], k[-2]), v), False)


attention = through(_attention)


def _rotary(call: Call) -> Any:
    data, cos, sin = call.args
    half, rank = shape(cos)[-1], ndim(data)
    last = [rank - 1]
    step = 2 if call.attrs.interleaved else 1
    first = (0, 2 * half if step == 2 else half), (1 if step == 2 else half, 2 * half)
    a, b = (R.strided_slice(data, [low], [high], [step], axes=last) for low, high in first)
    parts = [a * cos - b * sin, a * sin + b * cos]
    made = R.stack(parts, -1) if step == 2 else R.concatenate(parts, -1)
    if step == 2:
        made = R.reshape(made, (*shape(data)[:-1], 2 * half))
    rest = R.strided_slice(data, [2 * half], [shape(data)[-1]], axes=last)
    return made if shape(data)[-1] == 2 * half else R.concatenate([made, rest], -1)


rotary_embedding = through(_rotary)


# ---------------------------------------------------------------------------- recurrent layers
def _steps(call: Call) -> tuple[list[Any], range]:
    """The inputs of each step, times their weights, and the order of the steps, in which results are too."""
    data, weight, _, bias = call.args[:4]
    count = sizes(call)[0]
    parts = R.split(data, count, 0)
    inputs = [R.nn.bias_add(R.nn.dense(R.squeeze(x, [0]), weight), bias) for x in parts]
    return inputs, range(count)[::-1] if call.attrs.reverse else range(count)


def _lstm(call: Call) -> Any:
    weight, bias, h, c = call.args[2], call.args[4], call.args[5], call.args[6]
    inputs, order = _steps(call)
    layout = call.attrs.weight_layout
    hidden: list[Any] = []
    cells: list[Any] = []
    for t in order:
        gates = R.split(inputs[t] + R.nn.bias_add(R.nn.dense(h, weight), bias), 4, 1)
        i, f, g, o = (gates[layout.index(name)] for name in "IFGO")
        c = R.sigmoid(f) * c + R.sigmoid(i) * R.tanh(g)
        h = R.sigmoid(o) * R.tanh(c)
        hidden.append(h)
        cells.append(c)
    return Tuple([R.stack(hidden, 0), R.stack(cells, 0)])


lstm = through(_lstm)


def _gru(call: Call) -> Any:
    weight, bias, h = call.args[2], call.args[4], call.args[5]
    inputs, order = _steps(call)
    layout, one = call.attrs.weight_layout, number(1, call.args[0])
    weights, biases = R.split(weight, 3, 0), R.split(bias, 3, 0)
    made: list[Any] = []
    for t in order:
        r_in, z_in, n_in = (R.split(inputs[t], 3, 1)[layout.index(name)] for name in "RZN")

        def state(name: str, of: Any) -> Any:
            at = layout.index(name)
            return R.nn.bias_add(R.nn.dense(of, weights[at]), biases[at])

        r, z = R.sigmoid(r_in + state("R", h)), R.sigmoid(z_in + state("Z", h))
        inner = r * state("N", h) if call.attrs.linear_before_reset else state("N", r * h)
        n = R.tanh(n_in + inner)
        h = (one - z) * n + z * h
        made.append(h)
    return R.stack(made, 0)


gru = through(_gru)
