"""Element by element: arithmetic, comparison, logic, bits, selection, conversion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...expr import Expr
from ..common import formulas
from .build import R, cast, dtype_of, full, is_float, is_int, literal, rank, reshape
from .table import Site, aten, rows


# ---------------------------------------------------------------------------- one argument
def _float_unary(build: Callable[[Any], Any]) -> Callable[[Site, Any], Any]:
    return lambda n, x: build(n.to(x))


_CURVES = (
    "exp log log2 log10 tan cos sin acos acosh asin asinh atan atanh cosh sinh tanh sigmoid erf sqrt rsqrt"
)
rows({_name: _float_unary(getattr(R, _name)) for _name in _CURVES.split()})


def _rounding(build: Callable[[Any], Any]) -> Callable[[Site, Any], Any]:
    return lambda n, x: build(x) if is_float(dtype_of(x)) else x


rows({_name: _rounding(getattr(R, _name)) for _name in ("floor", "ceil", "trunc")})


@aten("round")
def round_(n: Site, x: Expr, decimals: int = 0) -> Expr:
    if not is_float(n.dtype):
        return x
    by = literal(10.0**decimals, n.dtype)
    return R.round(x) if not decimals else R.divide(R.round(R.multiply(x, by)), by)


rows(
    {
        "abs": lambda n, x: R.abs(x) if n.dtype != "bool" else x,
        "neg": lambda n, x: R.negative(x),
        "sign sgn": lambda n, x: R.sign(x) if n.dtype != "bool" else x,
        "logical_not": lambda n, x: R.logical_not(cast(x, "bool")),
        "bitwise_not": lambda n, x: R.logical_not(x) if n.dtype == "bool" else R.bitwise_not(x),
        "signbit": lambda n, x: R.less(x, literal(0, dtype_of(x))),
        "reciprocal": lambda n, x: R.divide(literal(1, n.dtype), n.to(x)),
        "square": lambda n, x: R.multiply(x, x),
        "frac": lambda n, x: R.subtract(x, R.trunc(x)),
        "exp2": lambda n, x: R.exp(R.multiply(n.to(x), literal(math.log(2), n.dtype))),
        "erfc special_erfc": lambda n, x: R.subtract(literal(1, n.dtype), R.erf(n.to(x))),
    }
)


@aten("isnan", "isinf", "isfinite")
def is_special(n: Site, x: Expr) -> Expr:
    name = n.name.split(".")[1]
    if not is_float(dtype_of(x)):
        return full(name == "isfinite", n.shape, "bool")
    return getattr(R, name)(x)


@aten("alias", "clone", "detach", "contiguous", "lift_fresh_copy", "lift_fresh", "positive", "conj", "resolve_conj",
      "resolve_neg", "real", "view_of", "alias_copy", "detach_copy")  # fmt: skip
def same(n: Site, x: Expr) -> Expr:
    return x


@aten("_to_copy", "to", "type_as")
def convert(n: Site, x: Expr, dtype: Any = None, other: Any = None) -> Expr:
    """The type is named in one of several ways; that of the result says it all."""
    return cast(x, n.dtype)


rows(
    {
        "expm1 special_expm1": lambda n, x: formulas.expm1(n.to(x)),
        "log1p special_log1p": lambda n, x: formulas.log1p(n.to(x)),
        "atan2 arctan2": lambda n, x, other: formulas.atan2(n.to(x), n.to(other)),
    }
)


@aten("nan_to_num")
def nan_to_num(
    n: Site, x: Expr, nan: float | None = None, posinf: float | None = None, neginf: float | None = None
) -> Expr:
    if not is_float(n.dtype):
        return x
    import torch

    limit = torch.finfo(getattr(torch, n.dtype))
    zero = literal(0, n.dtype)
    for where, value in (
        (R.isnan(x), nan or 0.0),
        (R.logical_and(R.isinf(x), R.greater(x, zero)), limit.max if posinf is None else posinf),
        (R.logical_and(R.isinf(x), R.less(x, zero)), limit.min if neginf is None else neginf),
    ):
        x = R.where(where, literal(value, n.dtype), x)
    return x


# ---------------------------------------------------------------------------- two arguments
@aten("add")
def add(n: Site, x: Any, other: Any, alpha: Any = 1) -> Expr:
    a, b = n.to(x), _times(n, other, alpha)
    return R.logical_or(a, b) if n.dtype == "bool" else R.add(a, b)


rows(
    {
        "sub subtract": lambda n, x, other, alpha=1: R.subtract(n.to(x), _times(n, other, alpha)),
        "rsub": lambda n, x, other, alpha=1: R.subtract(n.to(other), _times(n, x, alpha)),
        "floor_divide": lambda n, x, other: _floor_divide(n, n.to(x), n.to(other)),
        "maximum fmax max.other": lambda n, x, other: R.maximum(n.to(x), n.to(other)),
        "minimum fmin min.other": lambda n, x, other: R.minimum(n.to(x), n.to(other)),
        "lerp": lambda n, x, end, weight: R.add(x, R.multiply(R.subtract(end, x), n.to(weight))),
    }
)


def _times(n: Site, other: Any, alpha: Any) -> Expr:
    if not isinstance(other, Expr):
        return n.to(other * alpha)
    return n.to(other) if alpha == 1 else R.multiply(n.to(other), n.to(alpha))


@aten("mul", "multiply")
def mul(n: Site, x: Any, other: Any) -> Expr:
    a, b = n.to(x), n.to(other)
    return R.logical_and(a, b) if n.dtype == "bool" else R.multiply(a, b)


@aten("div", "divide", "true_divide")
def div(n: Site, x: Any, other: Any, rounding_mode: str | None = None) -> Expr:
    a, b = n.to(x), n.to(other)
    if rounding_mode == "floor":
        return _floor_divide(n, a, b)
    if rounding_mode == "trunc":
        return R.trunc(R.divide(a, b)) if is_float(n.dtype) else R.trunc_divide(a, b)
    return R.divide(a, b)


def _floor_divide(n: Site, a: Expr, b: Expr) -> Expr:
    return R.floor(R.divide(a, b)) if is_float(n.dtype) else R.floor_divide(a, b)


def _rest(rounded: Any, of_whole: Any) -> Any:
    def rest(n: Site, x: Any, other: Any) -> Expr:
        a, b = n.to(x), n.to(other)
        if is_float(n.dtype):
            return R.subtract(a, R.multiply(rounded(R.divide(a, b)), b))
        return of_whole(a, b)

    return rest


rows({"remainder": _rest(R.floor, R.floor_mod), "fmod": _rest(R.trunc, R.trunc_mod)})


@aten("pow")
def pow_(n: Site, x: Any, exponent: Any) -> Expr:
    base = n.to(x)
    if isinstance(exponent, (int, float)):
        if exponent in (1, 2, 3, 4) or (exponent == 0 and is_int(n.dtype)):
            return formulas.whole_power(base, int(exponent))
        if exponent == 0.5:
            return R.sqrt(base)
        if exponent == -0.5:
            return R.rsqrt(base)
        if exponent == -1:
            return R.divide(literal(1, n.dtype), base)
        if is_int(n.dtype):
            return formulas.whole_power(base, int(exponent))
    if is_int(n.dtype):
        made = R.power(cast(base, "float64"), cast(n.to(exponent), "float64"))
        return cast(R.round(made), n.dtype)
    return R.power(base, n.to(exponent))


@aten("hypot")
def hypot(n: Site, x: Any, other: Any) -> Expr:
    a, b = n.to(x), n.to(other)
    return R.sqrt(R.add(R.multiply(a, a), R.multiply(b, b)))


@aten("copysign")
def copysign(n: Site, x: Any, other: Any) -> Expr:
    size, by = R.abs(n.to(x)), n.to(other)
    return R.where(R.less(by, literal(0, n.dtype)), R.negative(size), size)


# ---------------------------------------------------------------------------- comparison and logic
def _comparison(build: Callable[[Any, Any], Any]) -> Callable[[Site, Any, Any], Any]:
    def work(n: Site, x: Any, other: Any) -> Any:
        a, b = n.both(x, other)
        if dtype_of(a) == "bool":
            a, b = cast(a, "int8"), cast(b, "int8")
        return build(a, b)

    return work


rows(
    {
        "eq": _comparison(R.equal),
        "ne not_equal": _comparison(R.not_equal),
        "lt less": _comparison(R.less),
        "le less_equal": _comparison(R.less_equal),
        "gt greater": _comparison(R.greater),
        "ge greater_equal": _comparison(R.greater_equal),
    }
)


def _logic(name: str) -> Callable[[Site, Any, Any], Any]:
    return lambda n, x, other: getattr(R, name)(n.to(x, "bool"), n.to(other, "bool"))


rows({_name: _logic(_name) for _name in ("logical_and", "logical_or", "logical_xor")})


def _bits(name: str) -> Callable[[Site, Any, Any], Any]:
    def work(n: Site, x: Any, other: Any) -> Any:
        word = "logical" if n.dtype == "bool" else "bitwise"
        return getattr(R, f"{word}_{name}")(n.to(x), n.to(other))

    return work


rows(
    {
        "bitwise_and __and__": _bits("and"),
        "bitwise_or __or__": _bits("or"),
        "bitwise_xor __xor__": _bits("xor"),
        "bitwise_left_shift __lshift__": lambda n, x, other: R.left_shift(n.to(x), n.to(other)),
        "bitwise_right_shift __rshift__": lambda n, x, other: R.right_shift(n.to(x), n.to(other)),
        "where": lambda n, condition, x, other: R.where(cast(condition, "bool"), n.to(x), n.to(other)),
    }
)


# ---------------------------------------------------------------------------- selection


@aten("masked_fill")
def masked_fill(n: Site, x: Expr, mask: Expr, value: Any) -> Expr:
    if isinstance(value, Expr) and rank(value):
        value = reshape(value, ())
    return R.where(cast(mask, "bool"), n.to(value), x)


@aten("clamp", "clip")
def clamp(n: Site, x: Expr, min: Any = None, max: Any = None) -> Expr:
    x = n.to(x)
    plain = isinstance(min, (int, float)) and isinstance(max, (int, float)) and is_float(n.dtype)
    if plain and min <= max:
        return R.clip(x, float(min), float(max))
    if min is not None:
        x = R.maximum(x, n.to(min))
    return x if max is None else R.minimum(x, n.to(max))


rows(
    {
        "clamp_min": lambda n, x, min: R.maximum(n.to(x), n.to(min)),
        "clamp_max": lambda n, x, max: R.minimum(n.to(x), n.to(max)),
    }
)
