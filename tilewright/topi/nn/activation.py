"""Activation functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ... import te
from ...ir import ops
from ...ir.expr import PrimExpr
from .. import tag
from ..utils import (
    elementwise,
    equal_const_int,
    fail,
    get_const_float,
    injective,
    is_dynamic_shape,
    normalize_axis,
    same_size,
    tensor_arg,
)

__all__ = [
    "celu",
    "dropout",
    "elu",
    "gelu",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_swish",
    "hard_tanh",
    "hardswish",
    "leaky_relu",
    "log_sigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "selu",
    "silu",
    "soft_shrink",
    "softplus",
    "softsign",
    "swish",
    "tanh_shrink",
    "thresholded_relu",
]

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946


def _number(x: PrimExpr, value: float) -> PrimExpr:
    """A constant of the type of `x`."""
    return te.const(value, x.dtype)


def _of_floats(operator_name: str, x: Any, f: Callable[[PrimExpr], PrimExpr]) -> te.Tensor:
    """`f` of each element of a float tensor; 16-bit floats are computed in 32 bits and rounded once."""
    data = tensor_arg(operator_name, "x", x)
    if not data.dtype.is_float:
        raise fail(
            operator_name, f"`{data.name}` is {data.dtype} and must be of a float type", "cast it first"
        )

    def element(v: PrimExpr) -> PrimExpr:
        if v.dtype.bits >= 32:
            return f(v)
        return ops.cast(v.dtype, f(ops.cast("float32", v)))

    return elementwise(operator_name, element, data)


def _expm1(x: PrimExpr) -> PrimExpr:
    """exp(x) - 1 for x not above 0, exact near 0: with t = tanh(x/2) it is 2t / (1 - t)."""
    t = te.tanh(x * _number(x, 0.5))
    return (t + t) / (_number(x, 1) - t)


def _clip(x: PrimExpr, low: float, high: float) -> PrimExpr:
    return ops.min_of(ops.max_of(x, _number(x, low)), _number(x, high))


def _log1p_exp(x: PrimExpr) -> PrimExpr:
    """log(1 + exp(x)) without overflow."""
    return ops.max_of(x, _number(x, 0)) + te.log1p(te.exp(-te.abs(x)))


# ---------------------------------------------------------------------------- piecewise linear
def relu(x: Any) -> te.Tensor:
    """max(x, 0), of any numbers."""
    return elementwise("relu", lambda v: ops.max_of(v, _number(v, 0)), tensor_arg("nn.relu", "x", x))


def relu6(x: Any) -> te.Tensor:
    """x within 0 and 6."""
    return elementwise("relu6", lambda v: _clip(v, 0, 6), tensor_arg("nn.relu6", "x", x))


def leaky_relu(x: Any, alpha: float) -> te.Tensor:
    """x where it is positive, alpha·x elsewhere."""
    slope = get_const_float(alpha)
    return _of_floats("leaky_relu", x, lambda v: ops.select(v > _number(v, 0), v, v * _number(v, slope)))


def prelu(x: Any, slope: Any, axis: int = 1) -> te.Tensor:
    """x where it is positive, slope·x elsewhere, with a slope for each index of `axis` or one for all."""
    data, slopes = tensor_arg("nn.prelu", "x", x), tensor_arg("nn.prelu", "slope", slope)
    if len(slopes.shape) != 1:
        raise fail("nn.prelu", f"slope has {len(slopes.shape)} dimensions and must have one")
    single = equal_const_int(slopes.shape[0], 1)
    at = 0 if single else normalize_axis("nn.prelu", axis, len(data.shape))
    if not single and not is_dynamic_shape((slopes.shape[0], data.shape[at])):
        if not same_size(slopes.shape[0], data.shape[at]):
            raise fail(
                "nn.prelu",
                f"slope has {slopes.shape[0]} elements and dimension {at} of `{data.name}` is {data.shape[at]}",
                "give one slope for each index of the axis, or one for all",
            )

    def element(*i: Any) -> PrimExpr:
        v = data(*i)
        return ops.select(v > _number(v, 0), v, v * slopes(0 if single else i[at]))

    return injective("prelu", data.shape, element, tag.BROADCAST)


def thresholded_relu(x: Any, alpha: float = 1.0) -> te.Tensor:
    """x where it is above alpha, 0 elsewhere."""
    return _of_floats("thresholded_relu", x, lambda v: ops.select(v > _number(v, alpha), v, _number(v, 0)))


def hard_sigmoid(x: Any, alpha: float = 1 / 6, beta: float = 0.5) -> te.Tensor:
    """alpha·x + beta within 0 and 1."""
    return _of_floats("hard_sigmoid", x, lambda v: _clip(v * _number(v, alpha) + _number(v, beta), 0, 1))


def hard_swish(x: Any) -> te.Tensor:
    """x times its hard sigmoid."""
    return _of_floats("hard_swish", x, lambda v: v * _clip(v + _number(v, 3), 0, 6) * _number(v, 1 / 6))


hardswish = hard_swish


def hard_tanh(x: Any, min_val: float = -1.0, max_val: float = 1.0) -> te.Tensor:
    """x within two bounds."""
    if min_val > max_val:
        raise fail("nn.hard_tanh", f"min_val {min_val} is above max_val {max_val}")
    return _of_floats("hard_tanh", x, lambda v: _clip(v, min_val, max_val))


def hard_shrink(x: Any, lambd: float = 0.5) -> te.Tensor:
    """x where it lies outside of ±lambd, 0 inside; NaN stays."""
    return _of_floats(
        "hard_shrink", x, lambda v: ops.select(te.abs(v) <= _number(v, lambd), _number(v, 0), v)
    )


def soft_shrink(x: Any, lambd: float = 0.5) -> te.Tensor:
    """x moved towards 0 by lambd."""
    return _of_floats("soft_shrink", x, lambda v: v - _clip(v, -lambd, lambd))


# ---------------------------------------------------------------------------- exponential
def elu(x: Any, alpha: float = 1.0) -> te.Tensor:
    """x where it is positive, alpha·(exp(x) - 1) elsewhere."""

    def element(v: PrimExpr) -> PrimExpr:
        below = _number(v, alpha) * _expm1(ops.min_of(v, _number(v, 0)))
        return ops.select(v > _number(v, 0), v, below)

    return _of_floats("elu", x, element)


def selu(x: Any, alpha: float = _SELU_ALPHA, gamma: float = _SELU_SCALE) -> te.Tensor:
    """gamma·elu(x, alpha): with the constants by default, activations keep mean 0 and variance 1."""

    def element(v: PrimExpr) -> PrimExpr:
        below = _number(v, gamma * alpha) * _expm1(ops.min_of(v, _number(v, 0)))
        return ops.select(v > _number(v, 0), v * _number(v, gamma), below)

    return _of_floats("selu", x, element)


def celu(x: Any, alpha: float = 1.0) -> te.Tensor:
    """x where it is positive, alpha·(exp(x/alpha) - 1) elsewhere."""
    if alpha == 0:
        raise fail("nn.celu", "alpha is 0 and divides x")

    def element(v: PrimExpr) -> PrimExpr:
        below = _number(v, alpha) * _expm1(ops.min_of(v / _number(v, alpha), _number(v, 0)))
        return ops.select(v > _number(v, 0), v, below)

    return _of_floats("celu", x, element)


def gelu(x: Any, approximate: str = "none") -> te.Tensor:
    """x times the probability that a normal variable lies below x; "tanh" is the usual approximation."""
    if approximate not in ("none", "tanh"):
        raise fail("nn.gelu", f"approximate is {approximate!r}", 'it is "none" or "tanh"')

    def exact(v: PrimExpr) -> PrimExpr:
        return _number(v, 0.5) * v * (_number(v, 1) + te.erf(v * _number(v, math.sqrt(0.5))))

    def near(v: PrimExpr) -> PrimExpr:
        inner = _number(v, math.sqrt(2 / math.pi)) * (v + _number(v, 0.044715) * v * v * v)
        return _number(v, 0.5) * v * (_number(v, 1) + te.tanh(inner))

    return _of_floats("gelu", x, exact if approximate == "none" else near)


def swish(x: Any, beta: float = 1.0) -> te.Tensor:
    """x·sigmoid(beta·x)."""
    return _of_floats("swish", x, lambda v: v * te.sigmoid(v if beta == 1 else v * _number(v, beta)))


def silu(x: Any) -> te.Tensor:
    """x·sigmoid(x)."""
    return _of_floats("silu", x, lambda v: v * te.sigmoid(v))


def mish(x: Any) -> te.Tensor:
    """x·tanh(softplus(x)).

    With n = exp(x)·(exp(x) + 2) the factor is n / (n + 2): one exponential, and no overflow once x is
    held below 20, where the factor is 1.
    """

    def element(v: PrimExpr) -> PrimExpr:
        e = te.exp(ops.min_of(v, _number(v, 20)))
        n = e * (e + _number(v, 2))
        return v * (n / (n + _number(v, 2)))

    return _of_floats("mish", x, element)


def softplus(x: Any, beta: float = 1.0, threshold: float = 20.0) -> te.Tensor:
    """log(1 + exp(beta·x)) / beta, and x itself where beta·x is above the threshold."""
    if beta == 0:
        raise fail("nn.softplus", "beta is 0 and divides the result")

    def element(v: PrimExpr) -> PrimExpr:
        scaled = v if beta == 1 else v * _number(v, beta)
        soft = _log1p_exp(scaled)
        soft = soft if beta == 1 else soft / _number(v, beta)
        return ops.select(scaled > _number(v, threshold), v, soft)

    return _of_floats("softplus", x, element)


def log_sigmoid(x: Any) -> te.Tensor:
    """log(sigmoid(x)), exact on both sides."""
    return _of_floats("log_sigmoid", x, lambda v: -_log1p_exp(-v))


def softsign(x: Any) -> te.Tensor:
    """x / (1 + |x|)."""
    return _of_floats("softsign", x, lambda v: v / (_number(v, 1) + te.abs(v)))


def tanh_shrink(x: Any) -> te.Tensor:
    """x - tanh(x)."""
    return _of_floats("tanh_shrink", x, lambda v: v - te.tanh(v))


def glu(x: Any, axis: int = -1) -> te.Tensor:
    """The first half of an axis times the sigmoid of its second half."""
    data = tensor_arg("nn.glu", "x", x)
    if not data.dtype.is_float:
        raise fail("nn.glu", f"`{data.name}` is {data.dtype} and must be of a float type", "cast it first")
    at = normalize_axis("nn.glu", axis, len(data.shape))
    size = data.shape[at]
    if not is_dynamic_shape((size,)) and not equal_const_int(ops.floormod(size, 2), 0):
        raise fail(
            "nn.glu", f"dimension {at} of `{data.name}` is {size} and must be even: it is split in two"
        )
    half = ops.floordiv(size, 2)
    wide = "float32" if data.dtype.bits < 32 else data.dtype

    def element(*i: Any) -> PrimExpr:
        first = ops.cast(wide, data(*i))
        second = ops.cast(wide, data(*i[:at], i[at] + half, *i[at + 1 :]))
        return ops.cast(data.dtype, first * te.sigmoid(second))

    return injective("glu", (*data.shape[:at], half, *data.shape[at + 1 :]), element)


def dropout(x: Any, rate: float = 0.5) -> te.Tensor:
    """Dropout at inference: the identity."""
    if not 0 <= rate <= 1:
        raise fail("nn.dropout", f"rate is {rate} and must be from 0 to 1")
    return elementwise("dropout", lambda v: v, tensor_arg("nn.dropout", "x", x))
