"""Element by element: arithmetic, comparison, logic, bits, selection, conversion."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...expr import Expr
from ..common import formulas
from ..common.build import R, converted, dtype_of, is_float, is_int, literal, rank, scalar
from .softmax import as_log_softmax, as_softmax
from .table import Refusal, Site, primitive, rows
from .values import Value

# ---------------------------------------------------------------------------- one argument
_CURVES = (
    "exp log tan cos sin acos acosh asin asinh atan atanh cosh sinh tanh erf sqrt rsqrt floor ceil abs sign"
)


def _curve(build: Any) -> Callable[[Site, Any], Any]:
    return lambda n, x: build(x)


rows({_name: _curve(getattr(R, _name)) for _name in _CURVES.split()})

rows(
    {
        "neg": lambda n, x: R.negative(x),
        "logistic": lambda n, x: R.sigmoid(x),
        "square": lambda n, x: R.multiply(x, x),
        "exp2": lambda n, x: R.exp(R.multiply(x, scalar(math.log(2), x))),
        "expm1": lambda n, x: formulas.expm1(x),
        "log1p": lambda n, x: formulas.log1p(x),
        "erfc": lambda n, x: R.subtract(scalar(1, x), R.erf(x)),
        "is_finite": lambda n, x: R.isfinite(x),
        "not": lambda n, x: R.logical_not(x) if n.dtype == "bool" else R.bitwise_not(x),
        "convert_element_type": lambda n, x, *, new_dtype: converted(x, n.dtype),
    }
)


@primitive("stop_gradient", "copy", "copy_p", "optimization_barrier", "sharding_constraint", "name",
           "pvary", "reshard", "layout_constraint")  # fmt: skip
def same(n: Site, *xs: Expr) -> list[Value]:
    return n.values


@primitive("device_put")
def device_put(n: Site, *xs: Expr, devices: Any, srcs: Any, copy_semantics: Any) -> list[Value]:
    """Where an array lies does not matter here."""
    return n.values


@primitive("round")
def round_(n: Site, x: Expr, *, rounding_method: Any) -> Expr:
    """To the nearest, ties to even (1) or away from 0 (0)."""
    if int(rounding_method) == 1:
        return R.round(x)
    size = R.abs(x)
    low = R.floor(size)
    up = R.greater_equal(R.subtract(size, low), scalar(0.5, x))
    return R.multiply(R.sign(x), R.where(up, R.add(low, scalar(1, x)), low))


@primitive("integer_pow")
def integer_pow(n: Site, x: Expr, *, y: int) -> Expr:
    if y >= 0:
        return formulas.whole_power(x, y)
    if not is_float(n.dtype):
        raise Refusal("whole numbers have no negative powers")
    return R.divide(scalar(1, x), formulas.whole_power(x, -y))


@primitive("cbrt")
def cbrt(n: Site, x: Expr) -> Expr:
    """|x|^(1/3) with a step of Newton's method, which makes up for the rounded exponent."""
    size = R.abs(x)
    root = R.power(size, scalar(1 / 3, x))
    safe = R.maximum(R.multiply(root, root), scalar(1e-30, x))
    better = R.subtract(root, R.divide(R.subtract(root, R.divide(size, safe)), scalar(3, x)))
    whole = R.logical_and(R.isfinite(size), R.greater(size, scalar(0, x)))
    return R.multiply(R.sign(x), R.where(whole, better, root))


@primitive("erf_inv")
def erf_inv(n: Site, x: Expr) -> Expr:
    """Giles' polynomials in w = -log(1 - x²), for w < 5 and for larger ones."""
    near = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503,
            -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
    far = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613,
           0.00943887047, 1.00167406, 2.83297682)  # fmt: skip
    w = R.negative(formulas.log1p(R.negative(R.multiply(x, x))))
    by = R.where(
        R.less(w, scalar(5, x)),
        _polynomial(R.subtract(w, scalar(2.5, x)), near),
        _polynomial(R.subtract(R.sqrt(w), scalar(3, x)), far),
    )
    edge = R.equal(R.abs(x), scalar(1, x))
    return R.where(edge, R.multiply(x, scalar(math.inf, x)), R.multiply(by, x))


def _polynomial(x: Expr, factors: tuple[float, ...]) -> Expr:
    out: Any = scalar(factors[0], x)
    for f in factors[1:]:
        out = R.add(R.multiply(out, x), scalar(f, x))
    return out


@primitive("reduce_precision")
def reduce_precision(n: Site, x: Expr, *, exponent_bits: int, mantissa_bits: int) -> Expr:
    types = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32", (11, 52): "float64"}
    found = types.get((int(exponent_bits), int(mantissa_bits)))
    if found is None:
        raise Refusal(f"floats of {exponent_bits} and {mantissa_bits} bits are not supported")
    return x if found == n.dtype else R.cast(R.cast(x, found), n.dtype)


# ---------------------------------------------------------------------------- two arguments
def _logic(arithmetic: Any, boolean: Any) -> Callable[[Site, Any, Any], Any]:
    return lambda n, a, b: (boolean if n.dtype == "bool" else arithmetic)(a, b)


rows(
    {
        "add add_any": _logic(R.add, R.logical_or),
        "mul": _logic(R.multiply, R.logical_and),
        "and": _logic(R.bitwise_and, R.logical_and),
        "or": _logic(R.bitwise_or, R.logical_or),
        "xor": _logic(R.bitwise_xor, R.logical_xor),
        "min": _logic(R.minimum, R.logical_and),
        "rem": lambda n, a, b: R.trunc_mod(a, b),
        "shift_left": lambda n, a, b: R.left_shift(a, b),
        "atan2": lambda n, a, b: formulas.atan2(a, b),
        "eq eq_to": lambda n, a, b: R.equal(*_ordered(a, b)),
        "ne": lambda n, a, b: R.not_equal(*_ordered(a, b)),
        "lt": lambda n, a, b: R.less(*_ordered(a, b)),
        "le": lambda n, a, b: R.less_equal(*_ordered(a, b)),
        "gt": lambda n, a, b: R.greater(*_ordered(a, b)),
        "ge": lambda n, a, b: R.greater_equal(*_ordered(a, b)),
        "lt_to": lambda n, a, b: _total(R.less(*_ordered(a, b)), a, b, False),
        "le_to": lambda n, a, b: _total(R.less_equal(*_ordered(a, b)), a, b, True),
        "sub": lambda n, a, b: as_log_softmax(a, b) or R.subtract(a, b),
        "shift_right_arithmetic": lambda n, a, b: _shifted(a, b, n.dtype.removeprefix("u")),
        "shift_right_logical": lambda n, a, b: _shifted(a, b, "u" + n.dtype.removeprefix("u")),
    },
    compact=True,
)


def _ordered(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    return (converted(a, "int8"), converted(b, "int8")) if dtype_of(a) == "bool" else (a, b)


def _total(smaller: Expr, a: Expr, b: Expr, equal: bool) -> Expr:
    """A comparison in which NaN is the greatest."""
    if not is_float(dtype_of(a)):
        return smaller
    last = R.isnan(b) if equal else R.logical_and(R.isnan(b), R.logical_not(R.isnan(a)))
    return R.logical_or(smaller, last)


@primitive("max", compact=True)
def max_(n: Site, a: Expr, b: Expr) -> Expr:
    if n.dtype == "bool":
        return R.logical_or(a, b)
    for known, other in ((n.known(0), b), (n.known(1), a)):
        if known is not None and rank(other) == len(n.shape) and known.size and not known.any():
            return R.nn.relu(other) if is_float(n.dtype) else R.maximum(a, b)
        if known is not None and known.size and is_float(n.dtype) and (known == -math.inf).all():
            return other  # as in softmax, where it is the initial value of the maximum
    return R.maximum(a, b)


@primitive("div", compact=True)
def div(n: Site, a: Expr, b: Expr) -> Expr:
    if is_int(n.dtype):
        return R.trunc_divide(a, b)
    return as_softmax(a, b) or R.divide(a, b)


@primitive("pow", compact=True)
def pow_(n: Site, a: Expr, b: Expr) -> Expr:
    exponent = n.known(1)
    if exponent is not None and exponent.ndim == 0:
        number = float(exponent)
        if number == int(number) and 0 <= number <= 4:
            return formulas.whole_power(a, int(number))
        if number == 0.5:
            return R.sqrt(a)
        if number == -0.5:
            return R.rsqrt(a)
    return R.power(a, converted(b, n.dtype))


def _shifted(a: Expr, b: Expr, dtype: str) -> Expr:
    """A shift to the right in a signed or in an unsigned type."""
    have = dtype_of(a)
    if have == dtype:
        return R.right_shift(a, b)
    return R.reinterpret(R.right_shift(R.reinterpret(a, dtype), R.reinterpret(b, dtype)), have)


# ---------------------------------------------------------------------------- selection
@primitive("select_n", compact=True)
def select_n(n: Site, which: Expr, *cases: Expr) -> Expr:
    if len(cases) == 1:
        return cases[0]
    if dtype_of(which) == "bool":
        return R.where(which, cases[1], cases[0])
    out = cases[-1]
    for i in reversed(range(len(cases) - 1)):
        out = R.where(R.less_equal(which, scalar(i, which)), cases[i], out)
    return out


@primitive("clamp", compact=True)
def clamp(n: Site, low: Expr, x: Expr, high: Expr) -> Expr:
    a, b = n.known(0), n.known(2)
    if (
        a is not None
        and b is not None
        and a.size == b.size == 1
        and is_float(n.dtype)
        and float(a) <= float(b)
    ):
        return R.clip(x, float(a), float(b))
    return R.minimum(R.maximum(x, low), high)


# ---------------------------------------------------------------------------- conversion


@primitive("bitcast_convert_type")
def bitcast_convert_type(n: Site, x: Expr, *, new_dtype: Any) -> Expr:
    if rank(x) != len(n.shape):
        raise Refusal(f"from {dtype_of(x)} to {n.dtype}: the types have different sizes")
    return R.reinterpret(x, n.dtype)


@primitive("population_count")
def population_count(n: Site, x: Expr) -> Expr:
    """The number of bits, added bit by bit."""
    bits = int("".join(c for c in n.dtype if c.isdigit()))
    word = "u" + n.dtype.removeprefix("u")
    at = x if dtype_of(x) == word else R.reinterpret(x, word)
    total = literal(0, word)
    for i in range(bits):
        bit = R.bitwise_and(R.right_shift(at, literal(i, word)), literal(1, word))
        total = R.add(total, bit)
    return total
