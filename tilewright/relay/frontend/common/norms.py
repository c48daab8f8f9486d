"""Normalisation by mean and variance over some dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .build import R, rank, reshape, scalar, shape_of


def standardised(x: Any, axes: Sequence[int], epsilon: float) -> tuple[Any, Any, Any]:
    """(x - mean) / sqrt(variance + ε), the mean, and 1 / sqrt(variance + ε)."""
    mean = R.mean(x, axis=list(axes), keepdims=True)
    centred = R.subtract(x, mean)
    variance = R.mean(R.multiply(centred, centred), axis=list(axes), keepdims=True)
    inverse = R.rsqrt(R.add(variance, scalar(epsilon, x)))
    return R.multiply(centred, inverse), mean, inverse


def over_channels(v: Any, like: Any) -> Any:
    """A value for each channel, dimension 1, shaped so that it broadcasts over the others."""
    return R.expand_dims(v, 1, rank(like) - 2) if rank(like) > 2 else v


def scaled(x: Any, weight: Any, bias: Any) -> Any:
    """x · weight + bias, with numbers for each channel; either may be None."""
    if weight is not None:
        x = R.multiply(x, over_channels(weight, x))
    return x if bias is None else R.add(x, over_channels(bias, x))


def grouped(x: Any, groups: int) -> Any:
    """The channels in groups: (batch, groups, channels of one, …)."""
    batch, channels, *rest = shape_of(x)
    return reshape(x, (batch, groups, channels // groups, *rest))
