"""Normalizations: batch, layer, instance, group, root mean square; dropout at inference."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..common.norms import grouped, over_channels, scaled, standardised
from .build import R, cast, constant, dtype_of, is_static, rank, scalar, shape_of
from .context import Node, converter


def _wide(x: Any) -> Any:
    return cast(x, "float32") if dtype_of(x) in ("float16", "bfloat16") else x


@converter("BatchNormalization")
def batch_norm(n: Node) -> Any:
    x, gamma, beta, mean, var = (n[i] for i in range(5))
    epsilon = n.attr("epsilon", 1e-5)
    if n.opset < 7 and not n.attr("is_test", 0) and len([o for o in n.outputs if o]) > 1:
        raise n.refuse("in training mode is not supported before opset 14")
    if n.attr("training_mode", 0):
        return _training_norm(n)
    if dtype_of(x) == dtype_of(gamma) == dtype_of(mean) == "float32":
        return R.nn.batch_norm(x, gamma, beta, mean, var, axis=1, epsilon=epsilon)[0]
    wide = _wide(x)
    kind = dtype_of(wide)
    gamma, beta, mean, var = (over_channels(cast(v, kind), x) for v in (gamma, beta, mean, var))
    scale = R.divide(gamma, R.sqrt(R.add(var, scalar(epsilon, var))))
    return cast(R.add(R.multiply(R.subtract(wide, mean), scale), beta), dtype_of(x))


def _training_norm(n: Node) -> Any:
    x, gamma, beta, mean, var = (n[i] for i in range(5))
    momentum = n.attr("momentum", 0.9)
    axes = [d for d in range(rank(x)) if d != 1]
    made, now, _ = standardised(x, axes, n.attr("epsilon", 1e-5))
    centred = R.subtract(x, now)
    spread = R.mean(R.multiply(centred, centred), axis=axes)
    out = scaled(made, gamma, beta)

    def mixed(old: Any, new: Any) -> Any:
        return R.add(R.multiply(old, scalar(momentum, old)), R.multiply(new, scalar(1 - momentum, new)))

    return [out, mixed(mean, R.squeeze(now, axes)), mixed(var, spread)]


@converter("LayerNormalization")
def layer_norm(n: Node) -> Any:
    axis, epsilon = n.axis(-1), n.attr("epsilon", 1e-5)
    x, scale = n[0], n[1]
    kind = dtype_of(x)
    alone = len([o for o in n.outputs if o]) == 1
    size = shape_of(x)[-1]
    if (
        alone
        and axis == rank(x) - 1
        and kind == "float32"
        and isinstance(size, int)
        and shape_of(scale) == (size,)
    ):
        beta = n[2] if n.has(2) else constant(np.zeros(size, np.float32))
        return R.nn.layer_norm(x, scale, beta, axis=axis, epsilon=epsilon)
    made, mean, inverse = standardised(_wide(x), list(range(axis, rank(x))), epsilon)
    made = R.multiply(cast(made, kind), scale)
    return [R.add(made, n[2]) if n.has(2) else made, mean, inverse]


@converter("RMSNormalization")
def rms_norm(n: Node) -> Any:
    axis, epsilon = n.axis(-1), n.attr("epsilon", 1e-5)
    return rms_of(n[0], n[1], list(range(axis, n.rank(0))), epsilon)


def rms_of(x: Any, scale: Any, axes: list[int], epsilon: float) -> Any:
    """x / sqrt(mean(x²) + ε) · scale."""
    wide = _wide(x)
    made = R.divide(wide, _root(wide, axes, epsilon))
    return R.multiply(cast(made, dtype_of(scale)), scale)


def inverse_of(x: Any, axes: list[int], epsilon: float) -> Any:
    """1 / sqrt(mean(x²) + ε)."""
    root = _root(_wide(x), axes, epsilon)
    return R.divide(scalar(1, root), root)


def _root(wide: Any, axes: list[int], epsilon: float) -> Any:
    square = R.mean(R.multiply(wide, wide), axis=axes, keepdims=True)
    return R.sqrt(R.add(square, scalar(epsilon, wide)))


@converter("InstanceNormalization")
def instance_norm(n: Node) -> Any:
    x = n[0]
    made, _, _ = standardised(_wide(x), list(range(2, rank(x))), n.attr("epsilon", 1e-5))
    return scaled(cast(made, dtype_of(x)), n[1], n[2])


@converter("GroupNormalization")
def group_norm(n: Node) -> Any:
    x, groups = n[0], int(n.attr("num_groups", 1))
    channels = shape_of(x)[1]
    if groups < 1 or not isinstance(channels, int) or channels % groups:
        raise n.refuse(f"num_groups {groups} does not divide {channels} channels")
    kind = dtype_of(x)
    parted = grouped(_wide(x), groups)
    made, _, _ = standardised(parted, list(range(2, rank(parted))), n.attr("epsilon", 1e-5))
    made = cast(made, kind)
    if n.opset < 21:  # a scale for each group, then
        return R.reshape(scaled(made, n[1], n[2]), shape_of(x))
    return scaled(R.reshape(made, shape_of(x)), n[1], n[2])


@converter("MeanVarianceNormalization")
def mean_variance_norm(n: Node) -> Any:
    x = n[0]
    axes = n.fronts(n.attr("axes", [0, 2, 3]), rank(x))
    centred = R.subtract(x, R.mean(x, axis=axes, keepdims=True))
    spread = R.sqrt(R.mean(R.multiply(centred, centred), axis=axes, keepdims=True))
    return R.divide(centred, R.add(spread, scalar(1e-9, x)))


@converter("LpNormalization")
def lp_norm(n: Node) -> Any:
    x, axis, p = n[0], n.axis(-1), int(n.attr("p", 2))
    if p == 1:
        size = R.sum(R.abs(x), axis=[axis], keepdims=True)
    elif p == 2:
        size = R.sqrt(R.sum(R.multiply(x, x), axis=[axis], keepdims=True))
    else:
        raise n.refuse(f"p is {p} and may be 1 or 2")
    return R.where(R.equal(size, scalar(0, x)), scalar(0, x), R.divide(x, size))


@converter("LRN")
def lrn(n: Node) -> Any:
    """Each element by the squares of its neighbours in the channel dimension."""
    x, size = n[0], int(n.attr("size", 0))
    if size < 1 or size >= 1 << 20:
        raise n.refuse(f"size is {size}")
    alpha, beta, bias = n.attr("alpha", 1e-4), n.attr("beta", 0.75), n.attr("bias", 1.0)
    if is_static(x) and rank(x) == 4 and size % 2:
        return R.nn.lrn(x, size=size, axis=1, bias=bias, alpha=alpha, beta=beta)
    low, high = (size - 1) // 2, size - 1 - (size - 1) // 2
    frame = [(0, 0), (low, high), *([(0, 0)] * (rank(x) - 2))]
    squares = R.nn.pad(R.multiply(x, x), frame, scalar(0, x))
    channels = shape_of(x)[1]
    total = None
    for i in range(size):
        part = R.strided_slice(squares, [i], [i + channels], axes=[1])
        total = part if total is None else R.add(total, part)
    base = R.add(scalar(bias, x), R.multiply(scalar(alpha / size, x), total))
    return R.divide(x, R.power(base, scalar(beta, x)))
