"""Batch, layer, instance, group and RMS normalisation, norms of vectors, lrn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from .. import tag
from ..utils import (
    equal_const_int,
    fail,
    injective,
    is_dynamic_shape,
    normalize_axes,
    normalize_axis,
    prod,
    static_int,
)
from .stages import along, float_tensor, keep, mean_and_rstd, mean_and_variance, reduced, rstd, wide

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "l2_normalize",
    "layer_norm",
    "lp_normalize",
    "lrn",
    "mean_variance_norm",
    "rms_norm",
    "scale_shift_nchw",
    "scale_shift_nchwc",
    "scale_shift_nhwc",
]


def _affine(value: PrimExpr, gamma: te.Tensor | None, beta: te.Tensor | None, at: Sequence[Any]) -> PrimExpr:
    """value·gamma + beta at a point; what is None is left out."""
    if gamma is not None:
        value = value * ops.cast(value.dtype, gamma(*at))
    return value if beta is None else value + ops.cast(value.dtype, beta(*at))


# ---------------------------------------------------------------------------- batch
def batch_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    moving_mean: Any,
    moving_var: Any,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> list[te.Tensor]:
    """Normalise each channel: [output, moving mean, moving variance].

        (x - mean) / sqrt(variance + epsilon) · gamma + beta

    At inference mean and variance are the moving ones. In training they are the batch's, and the moving ones
    go towards them: (1 - momentum)·moving + momentum·batch.
    """
    x = float_tensor("nn.batch_norm", "data", data)
    at = normalize_axis("nn.batch_norm", 1 if axis is None else axis, len(x.shape))
    eps = 1e-5 if epsilon is None else epsilon
    given = [("gamma", gamma), ("beta", beta), ("moving_mean", moving_mean), ("moving_var", moving_var)]
    g, b, mean, var = (along("nn.batch_norm", name, t, x, [at]) for name, t in given)
    g = None if scale is False else g
    b = None if center is False else b
    if mean is None or var is None:
        raise fail("nn.batch_norm", "moving_mean or moving_var is None and must be a tensor")
    if training:
        return _batch_norm_training(x, g, b, mean, var, at, eps, 0.1 if momentum is None else momentum)

    def factor(c: Any) -> PrimExpr:
        return _affine(te.rsqrt(wide(var(c)) + te.const(eps, wide(var(c)).dtype)), g, None, (c,))

    factors = injective("nn.batch_norm", var.shape, factor, tag.ELEMWISE, "T_batch_norm_scale")

    def element(*i: Any) -> PrimExpr:
        c = (i[at],)
        return ops.cast(x.dtype, _affine((wide(x(*i)) - wide(mean(*c))) * factors(*c), None, b, c))

    out = injective("nn.batch_norm", x.shape, element, tag.BROADCAST, "T_batch_norm")
    # The outputs must not be the inputs themselves: one buffer cannot be both.
    return [out, _copy(mean, "T_batch_norm_mean"), _copy(var, "T_batch_norm_var")]


def _copy(x: te.Tensor, name: str) -> te.Tensor:
    return injective("nn.batch_norm", x.shape, lambda *i: x(*i), tag.ELEMWISE, name)


def _batch_norm_training(
    x: te.Tensor,
    gamma: te.Tensor | None,
    beta: te.Tensor | None,
    moving_mean: te.Tensor,
    moving_var: te.Tensor,
    at: int,
    epsilon: float,
    momentum: float,
) -> list[te.Tensor]:
    axes = [d for d in range(len(x.shape)) if d != at]
    mean, variance = mean_and_variance("T_batch_norm", x.shape, axes, lambda *i: wide(x(*i)))
    factor = rstd("T_batch_norm", variance, epsilon)

    def element(*i: Any) -> PrimExpr:
        c = (i[at],)
        return ops.cast(x.dtype, _affine((wide(x(*i)) - mean(*c)) * factor(*c), gamma, beta, c))

    def towards(old: te.Tensor, now: te.Tensor, name: str) -> te.Tensor:
        def moved(c: Any) -> PrimExpr:
            value = wide(old(c))
            return ops.cast(
                old.dtype,
                value * te.const(1 - momentum, value.dtype) + now(c) * te.const(momentum, value.dtype),
            )

        return injective("nn.batch_norm", old.shape, moved, tag.ELEMWISE, name)

    return [
        injective("nn.batch_norm", x.shape, element, tag.BROADCAST, "T_batch_norm"),
        towards(moving_mean, mean, "T_batch_norm_mean"),
        towards(moving_var, variance, "T_batch_norm_var"),
    ]


# ---------------------------------------------------------------------------- layer, instance, group, RMS
def _normalised(
    name: str, x: te.Tensor, gamma: Any, beta: Any, axes: Sequence[int], own: Sequence[int], epsilon: float
) -> te.Tensor:
    """Normalise over `axes`; gamma and beta belong to the axes `own`."""
    g, b = along(f"nn.{name}", "gamma", gamma, x, own), along(f"nn.{name}", "beta", beta, x, own)
    mean, scale = mean_and_rstd(f"T_{name}", x.shape, axes, lambda *i: wide(x(*i)), epsilon)

    def element(*i: Any) -> PrimExpr:
        row = keep(i, axes)
        centred = (wide(x(*i)) - mean(*row)) * scale(*row)
        return ops.cast(x.dtype, _affine(centred, g, b, [i[a] for a in own]))

    return injective(f"nn.{name}", x.shape, element, tag.INJECTIVE, f"T_{name}")


def layer_norm(data: Any, gamma: Any, beta: Any, axis: Any, epsilon: float = 1e-5) -> te.Tensor:
    """Normalise over `axis`, one or several; gamma and beta have the shape of those axes or are None."""
    x = float_tensor("nn.layer_norm", "data", data)
    axes = normalize_axes("nn.layer_norm", axis, len(x.shape))
    return _normalised("layer_norm", x, gamma, beta, axes, axes, epsilon)


def instance_norm(
    data: Any, gamma: Any, beta: Any, axis: Any, epsilon: float = 1e-5, *, channel_axis: int | None = None
) -> te.Tensor:
    """Normalise over `axis`, to which gamma and beta belong; with `channel_axis`, they belong to the channels."""
    x = float_tensor("nn.instance_norm", "data", data)
    axes = normalize_axes("nn.instance_norm", axis, len(x.shape))
    if channel_axis is None:
        return _normalised("instance_norm", x, gamma, beta, axes, axes, epsilon)
    channel = normalize_axis("nn.instance_norm", channel_axis, len(x.shape), "channel_axis")
    if channel in axes:
        raise fail("nn.instance_norm", f"channel_axis is {channel_axis}, and axis names it too")
    return _normalised("instance_norm", x, gamma, beta, axes, (channel,), epsilon)


def group_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    num_groups: int,
    channel_axis: int,
    axes: Any,
    epsilon: float = 1e-5,
) -> te.Tensor:
    """Normalise over `axes` and the channels of a group together; gamma and beta belong to the channels."""
    name = "nn.group_norm"
    x = float_tensor(name, "data", data)
    at = normalize_axis(name, channel_axis, len(x.shape), "channel_axis")
    over = normalize_axes(name, axes, len(x.shape), "axes")
    groups = static_int(name, "num_groups", num_groups)
    if at in over:
        raise fail(name, f"axes {tuple(over)} name the channel axis {at}", "leave the channels out of axes")
    channels = x.shape[at]
    if groups < 1:
        raise fail(name, f"num_groups is {groups} and must be positive")
    if not is_dynamic_shape([channels]) and not equal_const_int(ops.floormod(channels, groups), 0):
        raise fail(name, f"the {channels} channels do not make {groups} equal groups")
    g, b = along(name, "gamma", gamma, x, [at]), along(name, "beta", beta, x, [at])
    each = ops.floordiv(channels, groups)

    # The channels seen as two dimensions: the group and the place in it.
    shape = (*x.shape[:at], te.const(groups, "int32"), each, *x.shape[at + 1 :])
    inner = tuple(a if a < at else a + 1 for a in (*over, at))

    def read(*i: Any) -> PrimExpr:
        return wide(x(*i[:at], i[at] * each + i[at + 1], *i[at + 2 :]))

    mean, scale = mean_and_rstd("T_group_norm", shape, inner, read, epsilon)

    def element(*i: Any) -> PrimExpr:
        row = keep((*i[:at], ops.floordiv(i[at], each), i[at], *i[at + 1 :]), inner)
        centred = (wide(x(*i)) - mean(*row)) * scale(*row)
        return ops.cast(x.dtype, _affine(centred, g, b, [i[at]]))

    return injective(name, x.shape, element, tag.INJECTIVE, "T_group_norm")


def rms_norm(data: Any, weight: Any, axis: Any, epsilon: float = 1e-5) -> te.Tensor:
    """x / sqrt(mean(x²) + epsilon) · weight over `axis`; the weight has the shape of those axes or is None."""
    x = float_tensor("nn.rms_norm", "data", data)
    axes = normalize_axes("nn.rms_norm", axis, len(x.shape))
    w = along("nn.rms_norm", "weight", weight, x, axes)
    squares = reduced("T_rms_norm_square_sum", x.shape, axes, te.sum, lambda *i: wide(x(*i)) * wide(x(*i)))
    size = ops.cast(squares.dtype, prod(x.shape[a] for a in axes))
    mean_square = injective(
        "nn.rms_norm", squares.shape, lambda *i: squares(*i) / size, tag.ELEMWISE, "T_rms_norm_mean"
    )
    rms = rstd("T_rms_norm", mean_square, epsilon)

    def element(*i: Any) -> PrimExpr:
        return ops.cast(x.dtype, _affine(wide(x(*i)) * rms(*keep(i, axes)), w, None, [i[a] for a in axes]))

    return injective("nn.rms_norm", x.shape, element, tag.INJECTIVE, "T_rms_norm")


def mean_variance_norm(data: Any, axes: Any = (0, 2, 3), epsilon: float = 1e-9) -> te.Tensor:
    """(x - mean) / (standard deviation + epsilon) over `axes`."""
    x = float_tensor("nn.mean_variance_norm", "data", data)
    over = normalize_axes("nn.mean_variance_norm", axes, len(x.shape), "axes")
    mean, variance = mean_and_variance("T_mean_variance_norm", x.shape, over, lambda *i: wide(x(*i)))

    def element(*i: Any) -> PrimExpr:
        row = keep(i, over)
        deviation = te.sqrt(variance(*row)) + te.const(epsilon, variance.dtype)
        return ops.cast(x.dtype, (wide(x(*i)) - mean(*row)) / deviation)

    return injective("nn.mean_variance_norm", x.shape, element, tag.INJECTIVE, "T_mean_variance_norm")


# ---------------------------------------------------------------------------- norms of vectors
def l2_normalize(data: Any, eps: float, axis: Any = None) -> te.Tensor:
    """x / sqrt(max(sum(x²), eps)) over `axis`; None is all of them."""
    x = float_tensor("nn.l2_normalize", "data", data)
    axes = normalize_axes("nn.l2_normalize", axis, len(x.shape))
    squares = reduced("T_l2_square_sum", x.shape, axes, te.sum, lambda *i: wide(x(*i)) * wide(x(*i)))
    low = te.const(eps, squares.dtype)
    norm = injective(
        "nn.l2_normalize",
        squares.shape,
        lambda *i: te.rsqrt(ops.max_of(squares(*i), low)),
        tag.ELEMWISE,
        "T_l2_rnorm",
    )
    return injective(
        "nn.l2_normalize",
        x.shape,
        lambda *i: ops.cast(x.dtype, wide(x(*i)) * norm(*keep(i, axes))),
        tag.INJECTIVE,
        "T_l2_normalize",
    )


def lp_normalize(data: Any, p: float = 2, axis: Any = -1, eps: float = 1e-12) -> te.Tensor:
    """x / max(p-norm over `axis`, eps)."""
    x = float_tensor("nn.lp_normalize", "data", data)
    axes = normalize_axes("nn.lp_normalize", axis, len(x.shape))
    if p <= 0:
        raise fail("nn.lp_normalize", f"p is {p} and must be positive")

    def part(*i: Any) -> PrimExpr:
        v = wide(x(*i))
        size = te.abs(v)
        return size if p == 1 else v * v if p == 2 else te.power(size, te.const(p, v.dtype))

    total = reduced("T_lp_sum", x.shape, axes, te.sum, part)

    def root(*i: Any) -> PrimExpr:
        s = total(*i)
        norm = s if p == 1 else te.sqrt(s) if p == 2 else te.power(s, te.const(1 / p, s.dtype))
        return ops.max_of(norm, te.const(eps, s.dtype))

    norm = injective("nn.lp_normalize", total.shape, root, tag.ELEMWISE, "T_lp_norm")
    return injective(
        "nn.lp_normalize",
        x.shape,
        lambda *i: ops.cast(x.dtype, wide(x(*i)) / norm(*keep(i, axes))),
        tag.INJECTIVE,
        "T_lp_normalize",
    )


def lrn(
    data: Any, size: int, axis: int = 1, alpha: float = 1e-4, beta: float = 0.75, bias: float = 2
) -> te.Tensor:
    """Each element divided by (bias + alpha/size · the sum of squares of its neighbours along `axis`)^beta.

    Of `size` neighbours, (size - 1) // 2 stand before; beyond the ends there is nothing.
    """
    x = float_tensor("nn.lrn", "data", data)
    at = normalize_axis("nn.lrn", axis, len(x.shape))
    count = static_int("nn.lrn", "size", size)
    if count < 1:
        raise fail("nn.lrn", f"size is {count} and must be positive")
    before, end = (count - 1) // 2, x.shape[at]
    k = te.reduce_axis((0, count), "k")

    def squares(*i: Any) -> PrimExpr:
        place = i[at] + k.var - before
        v = wide(x(*i[:at], place, *i[at + 1 :]))
        inside = te.all(place >= 0, place < end)
        return te.sum(ops.if_then_else(inside, v * v, te.const(0, v.dtype)), axis=k)

    total = injective("nn.lrn", x.shape, squares, tag.COMM_REDUCE, "T_lrn_square_sum")

    def element(*i: Any) -> PrimExpr:
        s = total(*i)
        base = te.const(bias, s.dtype) + te.const(alpha / count, s.dtype) * s
        return ops.cast(x.dtype, wide(x(*i)) / te.power(base, te.const(beta, s.dtype)))

    return injective("nn.lrn", x.shape, element, tag.ELEMWISE, "T_lrn")


# ---------------------------------------------------------------------------- scale and shift
def _scale_shift(name: str, data: Any, scale: Any, shift: Any, axes: Sequence[int], ndim: int) -> te.Tensor:
    x = float_tensor(f"nn.{name}", "Input", data)
    if len(x.shape) != ndim:
        raise fail(f"nn.{name}", f"Input has {len(x.shape)} dimensions and must have {ndim}")
    g, b = along(f"nn.{name}", "Scale", scale, x, axes), along(f"nn.{name}", "Shift", shift, x, axes)
    return injective(
        f"nn.{name}",
        x.shape,
        lambda *i: _affine(x(*i), g, b, [i[a] for a in axes]),
        tag.BROADCAST,
        "ScaleShift",
    )


def scale_shift_nchw(Input: Any, Scale: Any, Shift: Any) -> te.Tensor:
    """Input·Scale + Shift with one of both for each channel, the second dimension."""
    return _scale_shift("scale_shift_nchw", Input, Scale, Shift, [1], 4)


def scale_shift_nhwc(Input: Any, Scale: Any, Shift: Any) -> te.Tensor:
    """Input·Scale + Shift with one of both for each channel, the last dimension."""
    return _scale_shift("scale_shift_nhwc", Input, Scale, Shift, [3], 4)


def scale_shift_nchwc(Input: Any, Scale: Any, Shift: Any) -> te.Tensor:
    """Input·Scale + Shift with channels in the second and the last dimension."""
    return _scale_shift("scale_shift_nchwc", Input, Scale, Shift, [1, 4], 5)
