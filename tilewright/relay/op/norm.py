"""Normalisation by mean, variance or length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..expr import Call, TupleWrapper
from ..ty import TupleType, Type
from .computes import topi
from .gradients import nn as grads
from .registry import Ints, Tensor, operator, refuse
from .shapes import axes_of, axes_rel, axis_of, differ, need_rank, need_vectors, vectors, whole_part
from .traits import FOLLOW, FULL, Traits

__all__ = ["batch_norm", "group_norm", "instance_norm", "l2_normalize", "layer_norm", "lrn", "rms_norm"]


def _batch_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, gamma, beta, mean, var = types
    at = axis_of(attrs.axis, len(data.shape))
    need_vectors(data, at, gamma=gamma, beta=beta, moving_mean=mean, moving_var=var)
    return TupleType((data, mean, var))


@operator(
    "nn.batch_norm",
    traits=Traits(precision=FOLLOW, weights=vectors(4), gradient=grads.batch_norm),
    rel=_batch_norm_rel,
    compute="nn.batch_norm",
    results=3,
)
def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> TupleWrapper:
    """Each channel normalised by its moving mean and variance: (output, mean, variance)."""


def _layer_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, gamma, beta = types
    need_vectors(data, axis_of(attrs.axis, len(data.shape)), gamma=gamma, beta=beta)
    return data


@operator(
    "nn.layer_norm",
    traits=Traits(layout="axis", precision=FULL, weights=vectors(2), gradient=grads.layer_norm),
    rel=_layer_norm_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.layer_norm(ins[0], *_scales(attrs, ins), [axis_of(attrs.axis, ins[0].ndim)], attrs.epsilon)
    ],
)
def layer_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    axis: int = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Each row normalised by its own mean and variance."""


def _channel(attrs: Any, ndim: int) -> int:
    at = axis_of(attrs.axis, ndim)
    if at == 0:
        raise refuse("is 0, which is the batch", "axis")
    return at


def _scales(attrs: Any, ins: Sequence[Any]) -> tuple[Any, Any]:
    return ins[1] if attrs.scale else None, ins[2] if attrs.center else None


def _instance_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, gamma, beta = types
    need_vectors(data, _channel(attrs, len(data.shape)), gamma=gamma, beta=beta)
    return data


def _instance_norm_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    at = _channel(attrs, ins[0].ndim)
    inner = [d for d in range(1, ins[0].ndim) if d != at]
    return [topi.nn.instance_norm(ins[0], *_scales(attrs, ins), inner, attrs.epsilon, channel_axis=at)]


@operator(
    "nn.instance_norm",
    traits=Traits(precision=FULL, weights=vectors(2), gradient=grads.instance_norm),
    rel=_instance_norm_rel,
    compute=_instance_norm_compute,
)
def instance_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Each channel of each image normalised by its own mean and variance."""


def _group_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, gamma, beta = types
    at = _channel(attrs, len(data.shape))
    need_vectors(data, at, gamma=gamma, beta=beta)
    if attrs.num_groups < 1:
        raise refuse(f"is {attrs.num_groups}", "num_groups")
    whole_part(data.shape[at], attrs.num_groups, "num_groups", "the number of channels")
    return data


def _group_norm_compute(attrs: Any, ins: list[Any], out: Any) -> list[Any]:
    at = _channel(attrs, ins[0].ndim)
    inner = [d for d in range(1, ins[0].ndim) if d != at]
    return [topi.nn.group_norm(ins[0], *_scales(attrs, ins), attrs.num_groups, at, inner, attrs.epsilon)]


@operator(
    "nn.group_norm",
    traits=Traits(precision=FULL, weights=vectors(2), gradient=grads.group_norm),
    rel=_group_norm_rel,
    compute=_group_norm_compute,
)
def group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    num_groups: int,
    axis: int = 1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> Call:
    """Groups of channels of each image normalised by their own mean and variance."""


def _rms_norm_rel(types: list[Any], attrs: Any) -> Type:
    data, weight = types
    axes = sorted(axes_of(attrs.axis, len(data.shape)))
    need_rank(weight, len(axes), "weight")
    for d, size in zip(axes, weight.shape, strict=True):
        if differ(size, data.shape[d]):
            raise refuse(f"is {weight} and dimension {d} of data {data.shape[d]}", "weight")
    return data


@operator(
    "nn.rms_norm",
    traits=Traits(gradient=grads.rms_norm),
    rel=_rms_norm_rel,
    compute=lambda attrs, ins, out: [
        topi.nn.rms_norm(ins[0], ins[1], sorted(axes_of(attrs.axis, ins[0].ndim)), attrs.epsilon)
    ],
)
def rms_norm(data: Tensor, weight: Tensor, axis: Ints = (-1,), epsilon: float = 1e-5) -> Call:
    """x / sqrt(mean(x²) + epsilon) · weight."""


@operator(
    "nn.l2_normalize",
    traits=Traits(precision=FULL, gradient=grads.l2_normalize),
    rel=axes_rel,
    compute="nn.l2_normalize",
)
def l2_normalize(data: Tensor, eps: float, axis: Ints = None) -> Call:
    """x / sqrt(max(sum(x²), eps)) over some dimensions."""


def _lrn_rel(types: list[Any], attrs: Any) -> Type:
    axis_of(attrs.axis, len(types[0].shape))
    if attrs.size < 1:
        raise refuse(f"is {attrs.size}", "size")
    return types[0]


@operator("nn.lrn", traits=Traits(precision=FULL, gradient=grads.lrn), rel=_lrn_rel, compute="nn.lrn")
def lrn(
    data: Tensor, size: int = 5, axis: int = 1, bias: float = 2, alpha: float = 1e-05, beta: float = 0.75
) -> Call:
    """Each element divided by (bias + alpha/size · sum of squares of its neighbours)^beta."""
