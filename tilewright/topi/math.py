"""Elementwise operators of one argument."""

from __future__ import annotations

import math as _math
from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir import ops
from ..ir.dtype import FLOAT32, INT32, DataType
from ..ir.expr import PrimExpr, convert
from .utils import (
    dtype_of,
    elementwise,
    fail,
    injective,
    static_int,
    tensor_arg,
)

__all__ = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cast",
    "ceil",
    "ceil_log2",
    "clip",
    "cos",
    "cosh",
    "elemwise_sum",
    "erf",
    "exp",
    "fast_erf",
    "fast_exp",
    "fast_tanh",
    "fixed_point_multiply",
    "fixed_point_multiply_per_axis",
    "floor",
    "identity",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "negative",
    "reinterpret",
    "round",
    "rsqrt",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
    "trunc",
]


def _unary(name: str, f: Callable[[Any], PrimExpr], doc: str) -> Callable[[Any], Any]:
    """An operator that applies `f` to each element of its argument, which may be a number too."""

    def build(x: Any) -> Any:
        return elementwise(name, f, x)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = doc
    return build


def _sign(x: Any) -> PrimExpr:
    x = convert(x)
    zero, one = te.const(0, x.dtype), te.const(1, x.dtype)
    if not (x.dtype.is_float or x.dtype.is_int):
        return ops.select(ops.greater(x, zero), one, zero)
    below = ops.select(ops.less(x, zero), te.const(-1, x.dtype), zero)
    known = ops.select(ops.greater(x, zero), one, below)
    return ops.select(ops.isnan(x), x, known) if x.dtype.is_float else known


def _negative(x: Any) -> PrimExpr:
    x = convert(x)
    if x.dtype.is_bool:
        raise TypeError("bool has no negative; use logical_not, or cast it to a number")
    return ops.neg(x)


identity = _unary("identity", convert, "The tensor itself, copied.")
negative = _unary("negative", _negative, "`-x`.")
exp = _unary("exp", ops.exp, "e to the power of x; integers count as float32, here and in all of its kind.")
erf = _unary("erf", ops.erf, "The error function.")
tanh = _unary("tanh", ops.tanh, "The hyperbolic tangent.")
tan = _unary("tan", ops.tan, "The tangent.")
cos = _unary("cos", ops.cos, "The cosine.")
cosh = _unary("cosh", ops.cosh, "The hyperbolic cosine.")
sin = _unary("sin", ops.sin, "The sine.")
sinh = _unary("sinh", ops.sinh, "The hyperbolic sine.")
acos = _unary("acos", ops.acos, "The arc cosine.")
acosh = _unary("acosh", ops.acosh, "The inverse hyperbolic cosine.")
asin = _unary("asin", ops.asin, "The arc sine.")
asinh = _unary("asinh", ops.asinh, "The inverse hyperbolic sine.")
atan = _unary("atan", ops.atan, "The arc tangent.")
atanh = _unary("atanh", ops.atanh, "The inverse hyperbolic tangent.")
floor = _unary("floor", ops.floor, "The greatest integer not above x, in the type of x.")
ceil = _unary("ceil", ops.ceil, "The least integer not below x, in the type of x.")
trunc = _unary("trunc", ops.trunc, "x without its fraction.")
round = _unary("round", ops.round, "The nearest integer, ties to even.")
abs = _unary("abs", ops.abs, "The absolute value.")
sign = _unary("sign", _sign, "-1, 0 or 1 as x is below, at or above zero; NaN stays.")
isnan = _unary("isnan", ops.isnan, "Whether x is not a number.")
isfinite = _unary("isfinite", ops.isfinite, "Whether x is a number and not infinite.")
isinf = _unary("isinf", ops.isinf, "Whether x is infinite.")
log = _unary("log", ops.log, "The natural logarithm.")
log2 = _unary("log2", ops.log2, "The logarithm to base 2.")
log10 = _unary("log10", ops.log10, "The logarithm to base 10.")
log1p = _unary("log1p", ops.log1p, "log(1 + x), exact near 0.")
sqrt = _unary("sqrt", ops.sqrt, "The square root.")
rsqrt = _unary("rsqrt", ops.rsqrt, "One over the square root.")
sigmoid = _unary("sigmoid", ops.sigmoid, "1 / (1 + exp(-x)).")


# ---------------------------------------------------------------------------- with parameters
def clip(x: Any, a_min: Any, a_max: Any) -> Any:
    """x, but not below `a_min` and not above `a_max`; NaN stays."""

    def bounded(v: Any, low: Any, high: Any) -> PrimExpr:
        v = convert(v)
        kind = v.dtype
        return ops.max_of(ops.min_of(v, _bound(high, kind)), _bound(low, kind))

    return elementwise("clip", bounded, x, a_min, a_max)


def _bound(value: Any, kind: DataType) -> PrimExpr:
    """A bound in the type of the data, clamped to the range of the type."""
    if isinstance(value, (int, float)) and kind.is_integral:
        if _math.isnan(value):
            raise ValueError(f"a bound is NaN and the tensor is {kind}")
        value = int(max(min(value, kind.high), kind.low))
    return te.const(value, kind) if isinstance(value, (int, float)) else ops.cast(kind, value)


def cast(x: Any, dtype: str, span: Any = None) -> Any:
    """Each element converted to `dtype`; floats lose their fraction on the way to integers."""
    kind = dtype_of("cast", dtype)
    if isinstance(x, te.Tensor) and x.dtype is kind:
        return x
    return elementwise("cast", lambda v: ops.cast(kind, v), x)


def reinterpret(x: Any, dtype: str) -> Any:
    """The bits of each element as another type of the same size."""
    kind = dtype_of("reinterpret", dtype)
    return elementwise("reinterpret", lambda v: ops.reinterpret(kind, v), x)


def elemwise_sum(xs: Sequence[Any]) -> Any:
    """The sum of several tensors of one shape."""
    operands = [tensor_arg("elemwise_sum", f"xs[{i}]", x) for i, x in enumerate(xs)]
    if not operands:
        raise fail("elemwise_sum", "xs is empty, so the shape is not known")

    def total(*values: Any) -> PrimExpr:
        out = values[0]
        for v in values[1:]:
            out = ops.add(out, v)
        return convert(out)

    return elementwise("elemwise_sum", total, *operands)


def ceil_log2(x: Any) -> Any:
    """The least n with 2 to the power of n not below x, in the type of x."""

    def element(v: Any) -> PrimExpr:
        v = convert(v)
        if v.dtype.is_float:
            return ops.ceil(ops.log2(v))
        bits = ops.clz(ops.sub(v, te.const(1, v.dtype)))
        held = ops.cast(v.dtype, ops.sub(te.const(v.dtype.bits, INT32), bits))
        return ops.select(ops.less_equal(v, te.const(1, v.dtype)), te.const(0, v.dtype), held)

    return elementwise("ceil_log2", element, x)


# ---------------------------------------------------------------------------- fixed point
def _scaled(x: Any, multiplier: Any, left: Any, right: Any) -> PrimExpr:
    """round(x · 2^left · multiplier · 2^(-31 - right)), halves upwards, in the type of x."""
    wide = DataType("int64")
    product = ops.mul(ops.shift_left(ops.cast(wide, x), ops.cast(wide, left)), ops.cast(wide, multiplier))
    total = ops.add(ops.cast(wide, right), te.const(31, wide))
    half = ops.shift_left(te.const(1, wide), ops.sub(total, te.const(1, wide)))
    return ops.cast(convert(x).dtype, ops.shift_right(ops.add(product, half), total))


def fixed_point_multiply(x: Any, multiplier: Any, shift: Any) -> Any:
    """x times the number `multiplier · 2^(shift - 31)`, rounded to the nearest, halves upwards."""
    m = static_int("fixed_point_multiply", "multiplier", multiplier)
    s = static_int("fixed_point_multiply", "shift", shift)
    if not -31 <= s <= 31:
        raise fail("fixed_point_multiply", f"shift is {s} and goes from -31 to 31")
    return elementwise("fixed_point_multiply", lambda v: _scaled(v, m, max(s, 0), max(-s, 0)), x)


def fixed_point_multiply_per_axis(
    x: te.Tensor,
    y: te.Tensor,
    lshift: te.Tensor,
    rshift: te.Tensor,
    is_lshift_required: bool,
    is_rshift_required: bool,
    axes: Any,
) -> te.Tensor:
    """`fixed_point_multiply` with a multiplier and shifts for each point of `axes`."""
    from .utils import normalize_axes

    data = tensor_arg("fixed_point_multiply_per_axis", "x", x)
    own = normalize_axes("fixed_point_multiply_per_axis", axes, data.ndim, "axes")

    def element(*at: Any) -> PrimExpr:
        place = [at[a] for a in own]
        left = lshift(*place) if is_lshift_required else 0
        right = rshift(*place) if is_rshift_required else 0
        return _scaled(data(*at), y(*place), left, right)

    return injective("fixed_point_multiply_per_axis", data.shape, element, "broadcast")


# ---------------------------------------------------------------------------- approximations
def _polynomial(x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
    """c0 + c1·x + c2·x² + … from the inside out."""
    out: PrimExpr = te.const(coefficients[-1], x.dtype)
    for c in reversed(coefficients[:-1]):
        out = ops.add(ops.mul(out, x), te.const(c, x.dtype))
    return out


def _quick_exp(x: PrimExpr) -> PrimExpr:
    """exp of a float32: 2^n · e^r with |r| at most half of log 2, where seven terms of the series do."""
    x = ops.max_of(ops.min_of(x, te.const(88.3, FLOAT32)), te.const(-87.3, FLOAT32))
    n = ops.floor(ops.add(ops.mul(x, te.const(_math.log2(_math.e), FLOAT32)), te.const(0.5, FLOAT32)))
    # log 2 in two parts, the first exact in few bits, so that n times it is exact.
    r = ops.sub(x, ops.mul(n, te.const(0.693359375, FLOAT32)))
    r = ops.sub(r, ops.mul(n, te.const(_math.log(2) - 0.693359375, FLOAT32)))
    power = ops.shift_left(ops.add(ops.cast(INT32, n), te.const(127, INT32)), te.const(23, INT32))
    series = _polynomial(r, [1 / _math.factorial(i) for i in range(7)])
    return ops.mul(series, ops.reinterpret(FLOAT32, power))


def _quick_tanh(x: PrimExpr) -> PrimExpr:
    """Near zero a continued fraction; further out 1 - 2 / (e^2x + 1)."""
    square = ops.mul(x, x)
    above = ops.mul(x, _polynomial(square, [10395, 1260, 21]))
    below = _polynomial(square, [10395, 4725, 210, 1])
    one = te.const(1, FLOAT32)
    grown = _quick_exp(ops.mul(x, te.const(2, FLOAT32)))
    far = ops.sub(one, ops.div(te.const(2, FLOAT32), ops.add(grown, one)))
    return ops.select(ops.less(ops.abs(x), one), ops.div(above, below), far)


def _quick_erf(x: PrimExpr) -> PrimExpr:
    """Near zero the series; further out 1 - t·p(t)·e^(-x²) with t = 1 / (1 + 0.3275911·|x|)."""
    one, size = te.const(1, FLOAT32), ops.abs(x)
    t = ops.div(one, ops.add(one, ops.mul(size, te.const(0.3275911, FLOAT32))))
    tail = ops.mul(t, _polynomial(t, [0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429]))
    far = ops.sub(one, ops.mul(tail, _quick_exp(ops.neg(ops.mul(x, x)))))
    signed = ops.select(ops.less(x, te.const(0, FLOAT32)), ops.neg(far), far)
    scale = 2 / _math.sqrt(_math.pi)
    terms = [scale * (-1) ** i / (_math.factorial(i) * (2 * i + 1)) for i in range(6)]
    near = ops.mul(x, _polynomial(ops.mul(x, x), terms))
    return ops.select(ops.less(size, te.const(0.5, FLOAT32)), near, signed)


def _fast(
    name: str, quick: Callable[[PrimExpr], PrimExpr], exact: Callable[[Any], PrimExpr], doc: str
) -> Any:
    """A cheap form for float32; other types have the exact one."""

    def element(x: Any) -> PrimExpr:
        x = convert(x)
        return quick(x) if x.dtype is FLOAT32 else exact(x)

    return _unary(name, element, doc)


fast_exp = _fast(
    "fast_exp", _quick_exp, ops.exp, "exp within 1e-6 of its value; at the ends of float32 it stops."
)
fast_tanh = _fast("fast_tanh", _quick_tanh, ops.tanh, "tanh within 2e-6.")
fast_erf = _fast("fast_erf", _quick_erf, ops.erf, "The error function within 1e-6.")
