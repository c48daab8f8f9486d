"""Normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...expr import Expr
from ...op.shapes import product
from ..common.norms import grouped, over_channels, scaled, standardised
from .build import NN, R, cast, dtype_of, full, literal, rank, reshape, shape_of, sizes_of
from .table import Refusal, Site, aten, rows


# ---------------------------------------------------------------------------- batch
def _batch_norm(
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    mean: Expr | None,
    var: Expr | None,
    training: bool,
    eps: float,
) -> list[Any]:
    dtype = dtype_of(x)
    count = shape_of(x)[1]
    if training or mean is None or var is None:
        axes = [d for d in range(rank(x)) if d != 1]
        mean = R.mean(x, axes, False)
        apart = R.subtract(x, over_channels(mean, x))
        var = R.mean(R.multiply(apart, apart), axes, False)
    scale = full(1, (count,), dtype) if weight is None else cast(weight, dtype)
    shift = full(0, (count,), dtype) if bias is None else cast(bias, dtype)
    made = NN.batch_norm(x, scale, shift, cast(mean, dtype), cast(var, dtype), axis=1, epsilon=eps)[0]
    return [made, mean, R.rsqrt(R.add(var, literal(eps, dtype_of(var))))]


@aten("batch_norm", "cudnn_batch_norm", "native_batch_norm", "_native_batch_norm_legit",
      "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_functional",
      "_native_batch_norm_legit_no_training", "miopen_batch_norm",
      "_batch_norm_no_update", "_batch_norm_with_update_functional")  # fmt: skip
def batch_norm(
    n: Site,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr | None = None,
    running_var: Expr | None = None,
    training: bool | None = None,
    eps: float = 1e-5,
    epsilon: float | None = None,
    momentum: float = 0.1,
) -> Any:
    """Running statistics after a batch in training are results of the functional forms alone."""
    word = n.name.split(".")[1]
    learns = word.endswith(("no_stats", "update_functional")) if training is None else training
    learns = learns or running_mean is None
    made = _batch_norm(
        x, weight, bias, running_mean, running_var, learns, eps if epsilon is None else epsilon
    )
    if len(n.kinds) == 1:
        return made[0]
    if not learns:
        return [made[0], *[None] * (len(n.kinds) - 1)]
    if len(n.kinds) == 3 or running_mean is None or running_var is None:
        return [*made, *[None] * (len(n.kinds) - 3)]
    return [*made, *_running(x, running_mean, running_var, momentum)][: len(n.kinds)]


def _running(x: Expr, mean: Expr, var: Expr, momentum: float) -> list[Any]:
    """The running mean and variance after a batch; the variance is that of a sample."""
    sizes = sizes_of(x, "running statistics")
    axes = [d for d in range(rank(x)) if d != 1]
    count = product(sizes) // sizes[1]
    now = R.mean(x, axes, False)
    apart = R.subtract(x, over_channels(now, x))
    spread = R.sum(R.multiply(apart, apart), axes, False)
    spread = R.divide(spread, literal(float(max(count - 1, 1)), dtype_of(x)))
    new, old = literal(momentum, dtype_of(mean)), literal(1 - momentum, dtype_of(mean))
    return [
        R.add(R.multiply(kept, old), R.multiply(cast(given, dtype_of(kept)), new))
        for kept, given in ((mean, now), (var, spread))
    ]


@aten("instance_norm")
def instance_norm(
    n: Site,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    running_mean: Expr | None,
    running_var: Expr | None,
    use_input_stats: bool,
    eps: float,
) -> Expr:
    if not use_input_stats:
        return _batch_norm(x, weight, bias, running_mean, running_var, False, eps)[0]
    inner = list(range(2, rank(x)))
    return scaled(standardised(x, inner, eps)[0], weight, bias)


# ---------------------------------------------------------------------------- groups and layers
rows(
    {
        "group_norm": lambda n, x, num_groups, weight=None, bias=None, eps=1e-5: _group_norm(
            x, num_groups, weight, bias, eps
        )[0],
        "layer_norm": lambda n, x, normalized_shape, weight=None, bias=None, eps=1e-5: _layer_norm(
            x, normalized_shape, weight, bias, eps
        ),
    }
)


def _group_norm(
    x: Expr, groups: int, weight: Expr | None, bias: Expr | None, eps: float
) -> tuple[Expr, Expr, Expr]:
    parted = grouped(x, groups)
    made, middle, by = standardised(parted, range(2, rank(parted)), eps)
    return scaled(reshape(made, shape_of(x)), weight, bias), middle, by


@aten("native_group_norm")
def native_group_norm(
    n: Site,
    x: Expr,
    weight: Expr | None,
    bias: Expr | None,
    N: Any,
    C: Any,
    HxW: Any,
    group: int,
    eps: float,
) -> list[Any]:
    made, middle, by = _group_norm(x, group, weight, bias, eps)
    return [made, reshape(middle, (N, group)), reshape(by, (N, group))]


def _layer_norm(x: Expr, shape: Sequence[Any], weight: Expr | None, bias: Expr | None, eps: float) -> Expr:
    """Over the last dimensions, which become one."""
    dtype = dtype_of(x)
    width = product(shape)
    flat = x if len(shape) == 1 else reshape(x, (*shape_of(x)[: rank(x) - len(shape)], width))
    scale = full(1, (width,), dtype) if weight is None else reshape(cast(weight, dtype), (width,))
    shift = full(0, (width,), dtype) if bias is None else reshape(cast(bias, dtype), (width,))
    return reshape(NN.layer_norm(flat, scale, shift, axis=-1, epsilon=eps), shape_of(x))


@aten("native_layer_norm")
def native_layer_norm(
    n: Site, x: Expr, normalized_shape: list[Any], weight: Expr | None, bias: Expr | None, eps: float
) -> list[Any]:
    axes = list(range(rank(x) - len(normalized_shape), rank(x)))
    _, middle, by = standardised(x, axes, eps)
    return [_layer_norm(x, normalized_shape, weight, bias, eps), middle, by]


@aten("rms_norm", "_fused_rms_norm")
def rms_norm(
    n: Site, x: Expr, normalized_shape: list[Any], weight: Expr | None = None, eps: float | None = None
) -> Any:
    import torch

    dtype = dtype_of(x)
    small = torch.finfo(getattr(torch, dtype)).eps if eps is None else eps
    axes = list(range(rank(x) - len(normalized_shape), rank(x)))
    by = R.rsqrt(R.add(R.mean(R.multiply(x, x), axes, True), literal(small, dtype)))
    made = R.multiply(x, by)
    made = made if weight is None else R.multiply(made, weight)
    return made if len(n.kinds) == 1 else [made, by]


@aten("_weight_norm", "_weight_norm_interface")
def weight_norm(n: Site, v: Expr, g: Expr, dim: int = 0) -> Any:
    """A direction `v` with the length that `g` says."""
    axes = [d for d in range(rank(v)) if d != (dim % rank(v) if dim != -1 else -1)]
    length = R.sqrt(R.sum(R.multiply(v, v), axes, True))
    made = R.multiply(v, R.divide(g, length))
    return made if len(n.kinds) == 1 else [made, length]


@aten("renorm")
def renorm(n: Site, x: Expr, p: float, dim: int, maxnorm: float) -> Expr:
    if p != 2:
        raise Refusal(f"p={p} is not supported")
    axes = [d for d in range(rank(x)) if d != dim % rank(x)]
    length = R.sqrt(R.sum(R.multiply(x, x), axes, True))
    shorter = R.divide(literal(maxnorm, n.dtype), R.add(length, literal(1e-7, n.dtype)))
    by = R.where(R.greater(length, literal(maxnorm, n.dtype)), shorter, literal(1.0, n.dtype))
    return R.multiply(x, by)
