"""NumPy references of products, norms, losses and recurrent layers."""

from __future__ import annotations

from typing import Any

import numpy as np


def dense(
    x: Any, y: Any, bias: Any, use_bias: bool = False, use_relu: bool = False, out_dtype: Any = None
) -> Any:
    """x times the transpose of y, a bias added and negatives cut off where asked."""
    out = np.dot(x.astype(out_dtype or x.dtype), y.T.astype(out_dtype or x.dtype))
    out = out + bias if use_bias else out
    return np.maximum(out, 0) if use_relu else out


def batch_matmul(x: Any, y: Any, out_dtype: Any = None, trans_x: bool = False, trans_y: bool = True) -> Any:
    """Products of matrices, one for each batch; the second is given transposed."""
    a = x.transpose(0, 2, 1) if trans_x else x
    b = y.transpose(0, 2, 1) if trans_y else y
    return np.matmul(a.astype(out_dtype or a.dtype), b.astype(out_dtype or b.dtype))


def softmax_python(a_np: Any, axis: int = 1) -> Any:
    """exp(x) over the sum of exp(x)."""
    e = np.exp(a_np - a_np.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def log_softmax_python(a_np: Any, axis: int = 1) -> Any:
    """The logarithm of softmax."""
    moved = a_np - a_np.max(axis, keepdims=True)
    return moved - np.log(np.exp(moved).sum(axis, keepdims=True))


def layer_norm_python(data: Any, gamma: Any, beta: Any, axis: Any, epsilon: float = 1e-5) -> Any:
    """Over the axes, mean 0 and variance 1, then scaled and moved."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    wide = data.astype("float32") if data.dtype.itemsize < 4 else data
    centred = wide - wide.mean(axes, keepdims=True)
    out = centred / np.sqrt((centred**2).mean(axes, keepdims=True) + epsilon) * gamma
    return (out if beta is None else out + beta).astype(data.dtype)


def rms_norm_python(data: Any, weight: Any, axis: Any, epsilon: float = 1e-5) -> Any:
    """Over the axes, root mean square 1, then scaled; computed in float32."""
    wide = data.astype("float32")
    mean = np.square(wide).mean(axis, keepdims=True)
    return (wide * weight.astype("float32") / np.sqrt(mean + epsilon)).astype(data.dtype)


def instance_norm_python(data: Any, gamma: Any, beta: Any, axis: Any, epsilon: float = 1e-5) -> Any:
    """Over the axes, mean 0 and variance 1, then scaled and moved as arrays broadcast."""
    out = (data - data.mean(axis, keepdims=True)) / np.sqrt(data.var(axis, keepdims=True) + epsilon) * gamma
    return out if beta is None else out + beta


def group_norm_python(
    data: Any, gamma: Any, beta: Any, num_groups: int, channel_axis: int, axes: Any, epsilon: float = 1e-5
) -> Any:
    """Over groups of channels and the axes, mean 0 and variance 1, then scaled and moved; computed in float32."""
    each = data.shape[channel_axis] // num_groups
    shape = (*data.shape[:channel_axis], num_groups, each, *data.shape[channel_axis + 1 :])
    over = (channel_axis + 1, *(a if a < channel_axis else a + 1 for a in axes))
    grouped = data.reshape(shape).astype("float32")
    centred = grouped - grouped.mean(over, keepdims=True)
    out = centred / np.sqrt(grouped.var(over, keepdims=True) + epsilon)
    along = [1] * data.ndim
    along[channel_axis] = -1
    out = out.reshape(data.shape) * gamma.reshape(along)
    return (out if beta is None else out + beta.reshape(along)).astype(data.dtype)


def batch_norm(
    x: Any,
    gamma: Any,
    beta: Any,
    moving_mean: Any,
    moving_var: Any,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    training: bool = False,
    momentum: float = 0.1,
) -> list[Any]:
    """Each channel with mean 0 and variance 1, and the moving mean and variance.

    The mean and variance are those given; in training they are the data's own, towards which the given ones move.
    """
    shape = [1] * x.ndim
    shape[axis] = x.shape[axis]
    mean, var = moving_mean, moving_var
    if training:
        over = tuple(a for a in range(x.ndim) if a != axis % x.ndim)
        mean, var = x.mean(over), x.var(over)
    out = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + epsilon)
    out = out * gamma.reshape(shape) if scale else out
    out = out + beta.reshape(shape) if center else out
    if not training:
        return [out, moving_mean, moving_var]
    keep = 1 - momentum
    return [out, keep * moving_mean + momentum * mean, keep * moving_var + momentum * var]


def l2_normalize_python(a_np: Any, eps: float, axis: Any = None) -> Any:
    """The array over the root of its sum of squares along the axes."""
    return a_np / np.sqrt(np.maximum(np.square(a_np).sum(axis, keepdims=True), eps))


def lrn_python(a_np: Any, size: int, axis: int, bias: float, alpha: float, beta: float) -> Any:
    """Each element over a power of the squares around it on an axis."""
    reach, squares = size // 2, np.square(a_np)
    padded = np.pad(squares, [(reach, reach) if d == axis else (0, 0) for d in range(a_np.ndim)])
    around = sum(np.take(padded, np.arange(a_np.shape[axis]) + move, axis) for move in range(2 * reach + 1))
    return a_np / np.power(bias + alpha * around / size, beta)


def nll_loss(
    predictions: Any, targets: Any, weights: Any, reduction: str = "mean", ignore_index: int = -100
) -> Any:
    """The negated predictions of the target classes, weighted; `ignore_index` counts nothing."""
    counted = targets != ignore_index
    classes = np.where(counted, targets, 0)
    factors = np.where(counted, weights[classes], 0)
    axis = min(1, targets.ndim)  # predictions of one example have classes only
    chosen = np.take_along_axis(predictions, np.expand_dims(classes, axis), axis).squeeze(axis)
    losses = -chosen * factors
    if reduction == "none":
        return losses
    return losses.sum() / factors.sum() if reduction == "mean" else losses.sum()


def lstm_python(
    Xs: Any,
    Wi: Any,
    Wh: Any,
    Bi: Any = None,
    Bh: Any = None,
    h_init: Any = None,
    c_init: Any = None,
    proj: Any = None,
    p_i: Any = None,
    p_f: Any = None,
    p_o: Any = None,
    f_act: str = "sigmoid",
    g_act: str = "tanh",
    h_act: str = "tanh",
    reverse: bool = False,
    weight_layout: str = "IFGO",
) -> tuple[Any, Any]:
    """The states of an LSTM layer after each step: hidden and cell. The layout orders the gates."""
    acts: dict[str, Any] = {"sigmoid": lambda x: 1 / (1 + np.exp(-x)), "tanh": np.tanh}
    gate, cell, out = acts[f_act], acts[g_act], acts[h_act]
    steps, batch, _ = Xs.shape
    h = np.zeros((batch, Wh.shape[1]), "float32") if h_init is None else h_init
    c = np.zeros((batch, Wi.shape[0] // 4), "float32") if c_init is None else c_init
    hidden, cells = [], []
    for t in range(steps):
        sums = Xs[steps - t - 1 if reverse else t] @ Wi.T + h @ Wh.T
        for bias in (Bi, Bh):
            sums = sums if bias is None else sums + bias
        parts = dict(zip(weight_layout, np.split(sums, 4, 1)))
        peep = p_i is not None and p_f is not None
        i = gate(parts["I"] + (p_i * c if peep else 0))
        f = gate(parts["F"] + (p_f * c if peep else 0))
        c = f * c + i * cell(parts["G"])
        h = gate(parts["O"] + (0 if p_o is None else p_o * c)) * out(c)
        h = h if proj is None else h @ proj.T
        hidden.append(h)
        cells.append(c)
    return np.stack(hidden), np.stack(cells)
