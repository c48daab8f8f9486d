"""Gradients of functions of single elements, and of arithmetic that broadcasts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...expr import Call
from ..computes import R
from ..traits import GradientRule
from .parts import number, summed_to


def _of_one(slope: Callable[[Any, Any], Any]) -> GradientRule:
    """The rule of y = f(x), from its slope as a function of (x, y)."""
    return lambda call, grad: [grad * slope(call.args[0], call)]


def _one(x: Any) -> Any:
    return number(1.0, x)


exp = _of_one(lambda x, y: y)
log = _of_one(lambda x, y: _one(x) / x)
log2 = _of_one(lambda x, y: number(1 / math.log(2), x) / x)
log10 = _of_one(lambda x, y: number(1 / math.log(10), x) / x)
sin = _of_one(lambda x, y: R.cos(x))
cos = _of_one(lambda x, y: R.negative(R.sin(x)))
tan = _of_one(lambda x, y: _one(x) + y * y)
asin = _of_one(lambda x, y: R.rsqrt(_one(x) - x * x))
acos = _of_one(lambda x, y: R.negative(R.rsqrt(_one(x) - x * x)))
atan = _of_one(lambda x, y: _one(x) / (_one(x) + x * x))
sinh = _of_one(lambda x, y: R.cosh(x))
cosh = _of_one(lambda x, y: R.sinh(x))
tanh = _of_one(lambda x, y: _one(x) - y * y)
asinh = _of_one(lambda x, y: R.rsqrt(x * x + _one(x)))
acosh = _of_one(lambda x, y: R.rsqrt(x * x - _one(x)))
atanh = _of_one(lambda x, y: _one(x) / (_one(x) - x * x))
sigmoid = _of_one(lambda x, y: y * (_one(x) - y))
erf = _of_one(lambda x, y: number(2 / math.sqrt(math.pi), x) * R.exp(R.negative(x * x)))
sqrt = _of_one(lambda x, y: number(0.5, x) / y)
rsqrt = _of_one(lambda x, y: number(-0.5, x) * y * y * y)
abs = _of_one(lambda x, y: R.sign(x))


def negative(call: Call, grad: Any) -> list[Any]:
    return [R.negative(grad)]


def _masked(condition: Any, grad: Any) -> Any:
    """The gradient where a condition holds, else 0; also where the gradient is infinite."""
    return R.where(condition, grad, R.zeros_like(grad))


def relu(call: Call, grad: Any) -> list[Any]:
    x = call.args[0]
    return [_masked(R.greater(x, number(0, x)), grad)]


def leaky_relu(call: Call, grad: Any) -> list[Any]:
    x = call.args[0]
    return [R.where(R.greater(x, number(0, x)), grad, grad * number(call.attrs.alpha, x))]


def clip(call: Call, grad: Any) -> list[Any]:
    (x,), attrs = call.args, call.attrs
    inside = R.logical_and(
        R.greater_equal(x, number(attrs.a_min, x)), R.less_equal(x, number(attrs.a_max, x))
    )
    return [_masked(inside, grad)]


def cast(call: Call, grad: Any) -> list[Any]:
    return [R.cast(grad, str(call.args[0].checked_type.dtype)), *[None] * (len(call.args) - 1)]


# ---------------------------------------------------------------------------- two tensors
def _of_two(pair: Callable[[Any, Any, Any, Any], tuple[Any, Any]]) -> GradientRule:
    """The rule of z = f(x, y) that broadcasts, from the gradients of both in the shape of z."""

    def rule(call: Call, grad: Any) -> list[Any]:
        x, y = call.args
        made = pair(grad, x, y, call)
        return [None if g is None else summed_to(g, call, a) for g, a in zip(made, call.args, strict=True)]

    return rule


add = _of_two(lambda g, x, y, z: (g, g))
subtract = _of_two(lambda g, x, y, z: (g, R.negative(g)))
multiply = _of_two(lambda g, x, y, z: (g * y, g * x))
divide = _of_two(lambda g, x, y, z: (g / y, R.negative(g * z / y)))
mod = _of_two(lambda g, x, y, z: (g, R.negative(g * R.trunc(x / y))))
floor_mod = _of_two(lambda g, x, y, z: (g, R.negative(g * R.floor(x / y))))


def _power(g: Any, x: Any, y: Any, z: Any) -> tuple[Any, Any]:
    # A base of 0 or less has no logarithm; its power does not grow with the exponent.
    positive = R.greater(x, number(0, x))
    log = R.where(positive, R.log(R.where(positive, x, R.ones_like(x))), R.zeros_like(x))
    return g * y * R.power(x, y - _one(y)), g * z * log


power = _of_two(_power)
maximum = _of_two(
    lambda g, x, y, z: (_masked(R.greater_equal(x, y), g), _masked(R.less(x, y), g))
)  # of equal elements, the first
minimum = _of_two(lambda g, x, y, z: (_masked(R.less_equal(x, y), g), _masked(R.greater(x, y), g)))


def where(call: Call, grad: Any) -> list[Any]:
    condition, x, y = call.args
    zeros = R.zeros_like(grad)
    return [
        None,
        summed_to(R.where(condition, grad, zeros), call, x),
        summed_to(R.where(condition, zeros, grad), call, y),
    ]
