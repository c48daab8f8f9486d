"""Operators as arithmetic of simpler ones: SimplifyInference replaces them by it, and gradients go through it."""

from __future__ import annotations

from typing import Any

from ..expr import Call, Constant, Expr, Tuple, const, type_so_far
from .computes import R


def _kind(expr: Any) -> Any:
    return type_so_far(expr)


def _number(value: float, like: Any) -> Constant:
    return const(value, str(_kind(like).dtype))


def along_axis(vector: Any, axis: int, ndim: int) -> Expr:
    """A vector with dimensions of 1 after it, so that it broadcasts along one axis."""
    after = ndim - (axis % ndim) - 1
    return R.expand_dims(vector, axis=1, num_newaxis=after) if after else vector


def batch_norm(at: Call) -> Expr | None:
    """gamma / sqrt(var + eps) · x + (beta - mean · gamma / sqrt(var + eps)), and both moving averages."""
    data, gamma, beta, mean, var = at.args
    if at.attrs.get("training", False):
        return None
    ndim, axis = len(_kind(data).shape), at.attrs.axis
    one = _number(1.0, var)
    scale = R.divide(one, R.sqrt(R.add(var, _number(at.attrs.epsilon, var))))
    if at.attrs.scale:
        scale = R.multiply(scale, gamma)
    shift = R.multiply(R.negative(mean), scale)
    if at.attrs.center:
        shift = R.add(shift, beta)
    made = R.multiply(data, along_axis(scale, axis, ndim))
    return Tuple([R.add(made, along_axis(shift, axis, ndim)), mean, var])


def dropout(at: Call) -> Expr:
    """The data, and a mask of ones."""
    return Tuple([at.args[0], R.ones_like(at.args[0])])


def _normalised(data: Any, axes: tuple[int, ...], epsilon: float) -> Expr:
    """(x - mean) / sqrt(variance + eps) over some dimensions."""
    mean = R.mean(data, axis=axes, keepdims=True)
    spread = R.variance(data, axes, True, with_mean=mean)
    below = R.sqrt(R.add(spread, _number(epsilon, data)))
    return R.divide(R.subtract(data, mean), below)


def _scaled(made: Expr, at: Call, axis: int, ndim: int) -> Expr:
    if at.attrs.scale:
        made = R.multiply(made, along_axis(at.args[1], axis, ndim))
    if at.attrs.center:
        made = R.add(made, along_axis(at.args[2], axis, ndim))
    return made


def layer_norm(at: Call) -> Expr:
    """Rows normalised by their own mean and variance, scaled and shifted."""
    ndim = len(_kind(at.args[0]).shape)
    axis = at.attrs.axis % ndim
    return _scaled(_normalised(at.args[0], (axis,), at.attrs.epsilon), at, axis, ndim)


def instance_norm(at: Call) -> Expr:
    """Channels of each image normalised, scaled and shifted."""
    ndim = len(_kind(at.args[0]).shape)
    axis = at.attrs.axis % ndim
    axes = tuple(d for d in range(1, ndim) if d != axis)
    return _scaled(_normalised(at.args[0], axes, at.attrs.epsilon), at, axis, ndim)


def group_norm(at: Call) -> Expr | None:
    """Groups of channels normalised, scaled and shifted; None where a size is unknown."""
    shape = _kind(at.args[0]).shape
    if any(not isinstance(d, int) for d in shape):
        return None
    ndim, axis, groups = len(shape), at.attrs.axis % len(shape), at.attrs.num_groups
    parted = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    data = R.reshape(at.args[0], newshape=parted)
    axes = tuple(d for d in range(1, ndim + 1) if d != axis)
    made = R.reshape(_normalised(data, axes, at.attrs.epsilon), newshape=shape)
    return _scaled(made, at, axis, ndim)


def l2_normalize(at: Call) -> Expr:
    """x / sqrt(max(sum(x²), eps))."""
    data = at.args[0]
    total = R.sum(R.multiply(data, data), axis=at.attrs.axis, keepdims=True)
    return R.divide(data, R.sqrt(R.maximum(total, _number(at.attrs.eps, data))))


def unpacked(x: Any, bits: int) -> Expr:
    """Bytes as the numbers of so many bits in them, the lowest bits first, along the last axis."""
    if bits == 8:
        return x  # type: ignore[no-any-return]
    count = 8 // bits
    mask = const((1 << bits) - 1, "uint8")
    parts = [
        R.bitwise_and(R.right_shift(x, const(bits * i, "uint8")) if i else x, mask) for i in range(count)
    ]
    *lead, last = _kind(x).shape
    return R.reshape(R.stack(parts, len(lead) + 1), newshape=(*lead, last * count))


def blockwise_dense(at: Call) -> Expr:
    """The product with the weights as floats: (q - zero) * scale."""
    data, weight, scale, zero = at.args
    (rows, blocks), inner = _kind(scale).shape, _kind(data).shape[1]
    zero = R.cast(zero, dtype="float32")
    zero = R.expand_dims(zero, axis=2) if _kind(at.args[3]).shape else zero
    q = R.reshape(R.cast(unpacked(weight, at.attrs.bits), dtype="float32"), newshape=(rows, blocks, -1))
    made = R.multiply(R.subtract(q, zero), R.expand_dims(R.cast(scale, dtype="float32"), axis=2))
    flat = R.strided_slice(R.reshape(made, newshape=(rows, -1)), begin=[0], end=[inner], axes=[1])
    kind = str(_kind(data).dtype)
    return R.nn.dense(data, R.cast(flat, dtype=kind), out_dtype=at.attrs.out_dtype or kind)
