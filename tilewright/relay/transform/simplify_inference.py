"""SimplifyInference: training-only operators are removed, and normalizations become arithmetic that fuses."""

from __future__ import annotations

from typing import Any

from .. import op as R
from ..expr import Call, Expr, Function, Tuple
from .canonicalize_ops import along_axis
from .rewriting import CallRewriter, ndim_of, scalar_like, static_shape, typed_pass


def simplify_inference(func: Function) -> Function:
    """Expand normalizations into arithmetic and remove dropout.

    nn.batch_norm(%x, %gamma, %beta, %mean, %var).0
        ->   %s = gamma / sqrt(var + eps);  add(multiply(%x, %s), beta - mean * %s)
    nn.dropout(%x).0    ->   %x
    nn.layer_norm, nn.instance_norm, nn.group_norm   ->   (x - mean) / sqrt(variance + eps) * gamma + beta
    nn.l2_normalize     ->   x / sqrt(max(sum(x * x), eps))
    """
    return CallRewriter(_RULES).visit(func)


def _batch_norm(at: Call) -> Expr | None:
    data, gamma, beta, mean, var = at.args
    if at.attrs.get("training", False):
        return None
    ndim, axis = ndim_of(data), at.attrs.axis
    one = scalar_like(1.0, var)
    scale = R.divide(one, R.sqrt(R.add(var, scalar_like(at.attrs.epsilon, var))))
    if at.attrs.scale:
        scale = R.multiply(scale, gamma)
    shift = R.multiply(R.negative(mean), scale)
    if at.attrs.center:
        shift = R.add(shift, beta)
    made = R.multiply(data, along_axis(scale, axis, ndim))
    return Tuple([R.add(made, along_axis(shift, axis, ndim)), mean, var])


def _dropout(at: Call) -> Expr:
    return Tuple([at.args[0], R.ones_like(at.args[0])])


def _normalised(data: Any, axes: tuple[int, ...], epsilon: float) -> Expr:
    """(x - mean) / sqrt(variance + eps) over some dimensions."""
    mean = R.mean(data, axis=axes, keepdims=True)
    spread = R.variance(data, axes, True, with_mean=mean)
    below = R.sqrt(R.add(spread, scalar_like(epsilon, data)))
    return R.divide(R.subtract(data, mean), below)


def _scaled(made: Expr, at: Call, axis: int, ndim: int) -> Expr:
    if at.attrs.scale:
        made = R.multiply(made, along_axis(at.args[1], axis, ndim))
    if at.attrs.center:
        made = R.add(made, along_axis(at.args[2], axis, ndim))
    return made


def _layer_norm(at: Call) -> Expr:
    ndim = ndim_of(at.args[0])
    axis = at.attrs.axis % ndim
    return _scaled(_normalised(at.args[0], (axis,), at.attrs.epsilon), at, axis, ndim)


def _instance_norm(at: Call) -> Expr:
    ndim = ndim_of(at.args[0])
    axis = at.attrs.axis % ndim
    axes = tuple(d for d in range(1, ndim) if d != axis)
    return _scaled(_normalised(at.args[0], axes, at.attrs.epsilon), at, axis, ndim)


def _group_norm(at: Call) -> Expr | None:
    shape = static_shape(at.args[0])
    if shape is None:
        return None
    ndim, axis, groups = len(shape), at.attrs.axis % len(shape), at.attrs.num_groups
    parted = (*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :])
    data = R.reshape(at.args[0], newshape=parted)
    axes = tuple(d for d in range(1, ndim + 1) if d != axis)
    made = R.reshape(_normalised(data, axes, at.attrs.epsilon), newshape=shape)
    return _scaled(made, at, axis, ndim)


def _l2_normalize(at: Call) -> Expr:
    data = at.args[0]
    total = R.sum(R.multiply(data, data), axis=at.attrs.axis, keepdims=True)
    return R.divide(data, R.sqrt(R.maximum(total, scalar_like(at.attrs.eps, data))))


_RULES = {
    R.nn.batch_norm: _batch_norm,
    R.nn.dropout_raw: _dropout,
    R.nn.layer_norm: _layer_norm,
    R.nn.instance_norm: _instance_norm,
    R.nn.group_norm: _group_norm,
    R.nn.l2_normalize: _l2_normalize,
}

SimplifyInference = typed_pass(simplify_inference, name="SimplifyInference", opt_level=0)
