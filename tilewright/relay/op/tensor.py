"""Operators element by element: unary, binary with broadcasting, comparison, logic, selection, creation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.dtype import DataType
from ..expr import Call, Expr, const
from ..ty import TensorType, Type
from . import dyn
from .computes import topi
from .registry import Dtype, OpPattern, Place, Shape, Tensor, dtype, given, named, operator, refuse
from .shapes import broadcast, need_dtype

__all__ = [
    "abs",
    "acos",
    "acosh",
    "add",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cast",
    "cast_like",
    "ceil",
    "clip",
    "copy",
    "cos",
    "cosh",
    "divide",
    "equal",
    "erf",
    "exp",
    "fast_erf",
    "fast_exp",
    "fast_tanh",
    "floor",
    "floor_divide",
    "floor_mod",
    "full",
    "full_like",
    "greater",
    "greater_equal",
    "isfinite",
    "isinf",
    "isnan",
    "left_shift",
    "less",
    "less_equal",
    "log",
    "log10",
    "log2",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "ndarray_size",
    "negative",
    "not_equal",
    "ones",
    "ones_like",
    "power",
    "reinterpret",
    "right_shift",
    "round",
    "rsqrt",
    "shape_of",
    "sigmoid",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "subtract",
    "tan",
    "tanh",
    "trunc",
    "trunc_divide",
    "trunc_mod",
    "where",
    "zeros",
    "zeros_like",
]

# ---------------------------------------------------------------------------- unary
BOOL = DataType("bool")


def _same_rel(types: list[Any], attrs: Any) -> Type:
    return types[0]  # type: ignore[no-any-return]


def _bool_rel(types: list[Any], attrs: Any) -> Type:
    return TensorType(types[0].shape, BOOL)


def _unary(
    name: str, doc: str, rel: Callable[..., Type] = _same_rel, topi_name: str = ""
) -> Callable[[Any], Call]:
    """An operator of one argument."""

    def build(data: Tensor) -> Call: ...

    return operator(
        name,
        rel=rel,
        compute=lambda attrs, ins, out: [getattr(topi, topi_name or name)(ins[0])],
        pattern=OpPattern.ELEMWISE,
    )(named(build, name, __name__, doc))


exp = _unary("exp", "e to the power of each element.")
log = _unary("log", "The natural logarithm.")
log2 = _unary("log2", "The logarithm to base 2.")
log10 = _unary("log10", "The logarithm to base 10.")
tan = _unary("tan", "The tangent.")
cos = _unary("cos", "The cosine.")
sin = _unary("sin", "The sine.")
acos = _unary("acos", "The angle of a cosine.")
acosh = _unary("acosh", "The inverse of cosh.")
asin = _unary("asin", "The angle of a sine.")
asinh = _unary("asinh", "The inverse of sinh.")
atan = _unary("atan", "The angle of a tangent.")
atanh = _unary("atanh", "The inverse of tanh.")
cosh = _unary("cosh", "The hyperbolic cosine.")
sinh = _unary("sinh", "The hyperbolic sine.")
tanh = _unary("tanh", "The hyperbolic tangent.")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)).")
erf = _unary("erf", "The error function.")
sqrt = _unary("sqrt", "The square root.")
rsqrt = _unary("rsqrt", "1 / sqrt(x).")
floor = _unary("floor", "The greatest integer not above.")
ceil = _unary("ceil", "The least integer not below.")
trunc = _unary("trunc", "The integer part.")
round = _unary("round", "The nearest integer, halves to the even one.")
abs = _unary("abs", "The absolute value.")
sign = _unary("sign", "-1, 0 or 1.")
negative = _unary("negative", "The elements with the other sign.")
copy = _unary("copy", "The same elements in memory of their own.", topi_name="identity")
logical_not = _unary("logical_not", "Whether each element is false.")
bitwise_not = _unary("bitwise_not", "Each bit turned over.")
isnan = _unary("isnan", "Whether each element is NaN.", _bool_rel)
isfinite = _unary("isfinite", "Whether each element is finite.", _bool_rel)
isinf = _unary("isinf", "Whether each element is infinite.", _bool_rel)
fast_exp = _unary("fast_exp", "exp, quicker and less exact.")
fast_tanh = _unary("fast_tanh", "tanh, quicker and less exact.")
fast_erf = _unary("fast_erf", "erf, quicker and less exact.")


# ---------------------------------------------------------------------------- binary
def _broadcast_rel(types: list[Any], attrs: Any) -> Type:
    lhs, rhs = types
    need_dtype(rhs, lhs.dtype, "rhs")
    if lhs.shape == rhs.shape and all(d.__class__ is int for d in lhs.shape):
        return lhs  # type: ignore[no-any-return]
    return TensorType(broadcast(lhs.shape, rhs.shape), lhs.dtype)


def _compare_rel(types: list[Any], attrs: Any) -> Type:
    lhs, rhs = types
    need_dtype(rhs, lhs.dtype, "rhs")
    return TensorType(broadcast(lhs.shape, rhs.shape), BOOL)


def _divisor(types: list[Any], attrs: Any) -> list[Place]:
    return [Place(1, "divisor")] if types[1].dtype.is_integral else []


def _binary(
    name: str, doc: str, rel: Callable[..., Type] = _broadcast_rel, divides: bool = False
) -> Callable[[Any, Any], Call]:
    """An operator of two arguments that broadcast."""

    def build(lhs: Tensor, rhs: Tensor) -> Call: ...

    return operator(
        name,
        rel=rel,
        compute=lambda attrs, ins, out: [getattr(topi, name)(ins[0], ins[1])],
        pattern=OpPattern.BROADCAST,
        places=_divisor if divides else None,
    )(named(build, name, __name__, doc))


add = _binary("add", "lhs + rhs.")
subtract = _binary("subtract", "lhs - rhs.")
multiply = _binary("multiply", "lhs * rhs.")
divide = _binary("divide", "lhs / rhs; integers are rounded towards 0.", divides=True)
floor_divide = _binary("floor_divide", "lhs / rhs rounded down.", divides=True)
trunc_divide = _binary("trunc_divide", "lhs / rhs rounded towards 0.", divides=True)
mod = _binary("mod", "The remainder with the sign of lhs.", divides=True)
floor_mod = _binary("floor_mod", "The remainder with the sign of rhs.", divides=True)
trunc_mod = _binary("trunc_mod", "The remainder with the sign of lhs.", divides=True)
power = _binary("power", "lhs to the power of rhs.")
maximum = _binary("maximum", "The greater one.")
minimum = _binary("minimum", "The smaller one.")
left_shift = _binary("left_shift", "The bits of lhs moved up by rhs.")
right_shift = _binary("right_shift", "The bits of lhs moved down by rhs.")
logical_and = _binary("logical_and", "Whether both are true.")
logical_or = _binary("logical_or", "Whether one is true.")
logical_xor = _binary("logical_xor", "Whether just one is true.")
bitwise_and = _binary("bitwise_and", "The bits that both have.")
bitwise_or = _binary("bitwise_or", "The bits that one has.")
bitwise_xor = _binary("bitwise_xor", "The bits that just one has.")
equal = _binary("equal", "lhs == rhs.", _compare_rel)
not_equal = _binary("not_equal", "lhs != rhs.", _compare_rel)
less = _binary("less", "lhs < rhs.", _compare_rel)
less_equal = _binary("less_equal", "lhs <= rhs.", _compare_rel)
greater = _binary("greater", "lhs > rhs.", _compare_rel)
greater_equal = _binary("greater_equal", "lhs >= rhs.", _compare_rel)


# ---------------------------------------------------------------------------- with attributes


@operator(
    "clip",
    rel=_same_rel,
    compute=lambda attrs, ins, out: [topi.clip(ins[0], attrs.a_min, attrs.a_max)],
    pattern=OpPattern.ELEMWISE,
)
def clip(a: Tensor, a_min: float, a_max: float) -> Call:
    """The elements kept between two bounds."""


def _cast_rel(types: list[Any], attrs: Any) -> Type:
    return TensorType(types[0].shape, attrs.dtype)


@operator(
    "cast",
    rel=_cast_rel,
    compute=lambda attrs, ins, out: [topi.cast(ins[0], attrs.dtype)],
    pattern=OpPattern.ELEMWISE,
)
def cast(data: Tensor, dtype: Dtype) -> Call:
    """The elements converted to another type."""


@operator(
    "cast_like",
    rel=lambda types, attrs: TensorType(types[0].shape, types[1].dtype),
    compute=lambda attrs, ins, out: [topi.cast(ins[0], out.dtype)],
    pattern=OpPattern.ELEMWISE,
)
def cast_like(data: Tensor, dtype_like: Tensor) -> Call:
    """The elements converted to the type of another tensor's."""


@operator(
    "reinterpret",
    rel=_cast_rel,
    compute=lambda attrs, ins, out: [topi.reinterpret(ins[0], attrs.dtype)],
    pattern=OpPattern.ELEMWISE,
)
def reinterpret(data: Tensor, dtype: Dtype) -> Call:
    """The bits of the elements read as another type of the same size."""


def _where_rel(types: list[Any], attrs: Any) -> Type:
    condition, x, y = types
    need_dtype(y, x.dtype, "y")
    return TensorType(broadcast(condition.shape, broadcast(x.shape, y.shape, "x and y")), x.dtype)


@operator(
    "where",
    rel=_where_rel,
    compute=lambda attrs, ins, out: [topi.where(*ins)],
    pattern=OpPattern.BROADCAST,
)
def where(condition: Tensor, x: Tensor, y: Tensor) -> Call:
    """`x` where the condition holds, else `y`; all three broadcast."""


# ---------------------------------------------------------------------------- creation
def _filled(name: str, value: float, dynamic: Callable[..., Call]) -> Callable[[Any, Any], Call]:
    def build(shape: Shape, dtype: Dtype) -> Call: ...

    return operator(
        name,
        attrs={"dtype": dtype("float32")},
        rel=lambda types, attrs: TensorType(attrs.shape, attrs.dtype),
        compute=lambda attrs, ins, out: [topi.full(out.shape, out.dtype, value)],
        pattern=OpPattern.ELEMWISE,
        dynamic=dynamic,
    )(named(build, name, __name__, f"A tensor of {name}."))


zeros, ones = _filled("zeros", 0, dyn.zeros), _filled("ones", 1, dyn.ones)


def _like(name: str, value: float) -> Callable[[Any], Call]:
    def build(data: Tensor) -> Call: ...

    return operator(
        name,
        rel=_same_rel,
        compute=lambda attrs, ins, out: [topi.full_like(ins[0], value)],
        pattern=OpPattern.ELEMWISE,
    )(named(build, name, __name__, f"A tensor of the shape and type of `data`, filled with {value}."))


zeros_like, ones_like = _like("zeros_like", 0), _like("ones_like", 1)


def _full_rel(types: list[Any], attrs: Any) -> Type:
    if types[0].shape:
        raise refuse(f"must have no dimensions and is {types[0]}", "fill_value")
    return TensorType(attrs.shape, attrs.dtype or types[0].dtype)


@operator(
    "full",
    rel=_full_rel,
    compute=lambda attrs, ins, out: [topi.full(out.shape, out.dtype, ins[0]())],
    pattern=OpPattern.ELEMWISE,
    dynamic=dyn.full,
)
def full(fill_value: Tensor, shape: Shape = (), dtype: Dtype = "") -> Call:
    """A tensor filled with one value, itself a tensor without dimensions."""
    return given(fill_value=fill_value if isinstance(fill_value, Expr) else const(fill_value, dtype or None))


def _full_like_rel(types: list[Any], attrs: Any) -> Type:
    if types[1].shape:
        raise refuse(f"must have no dimensions and is {types[1]}", "fill_value")
    return types[0]  # type: ignore[no-any-return]


@operator(
    "full_like",
    rel=_full_like_rel,
    compute=lambda attrs, ins, out: [topi.full_like(ins[0], ins[1]())],
    pattern=OpPattern.ELEMWISE,
)
def full_like(data: Tensor, fill_value: Tensor) -> Call:
    """A tensor of the shape and type of `data`, filled with one value."""


def _shape_rel(types: list[Any], attrs: Any) -> Type:
    return TensorType((len(types[0].shape),), attrs.dtype)


@operator(
    "shape_of",
    rel=_shape_rel,
    compute=lambda attrs, ins, out: [topi.shape(ins[0], attrs.dtype)],
    pattern=OpPattern.OPAQUE,
)
def shape_of(data: Tensor, dtype: Dtype = "int32") -> Call:
    """The sizes of a tensor, as a tensor."""


@operator(
    "ndarray_size",
    rel=lambda types, attrs: TensorType((), attrs.dtype),
    compute=lambda attrs, ins, out: [topi.ndarray_size(ins[0], attrs.dtype)],
    pattern=OpPattern.OPAQUE,
)
def ndarray_size(data: Tensor, dtype: Dtype = "int32") -> Call:
    """The number of elements of a tensor, as a tensor without dimensions."""
