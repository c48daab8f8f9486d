"""Operators element by element: unary, binary with broadcasting, comparison, logic, selection, creation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.dtype import DataType
from ..expr import Call, Constant, Expr, as_expr, const
from ..ty import TensorType, Type
from . import dyn
from .computes import topi
from .registry import OpPattern, Place, RelayOp, anything, dtype, number, refuse, register
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
    """Register an operator of one argument and make its constructor."""
    work = getattr(topi, topi_name or name)
    op = register(
        name,
        inputs=("data",),
        rel=rel,
        compute=lambda attrs, ins, out: [work(ins[0])],
        pattern=OpPattern.ELEMWISE,
        description=doc,
    )

    def build(data: Any) -> Call:
        return op(data)

    build.__name__ = build.__qualname__ = name.rpartition(".")[2]
    build.__doc__ = doc
    return build


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
    name: str, doc: str, rel: Callable[..., Type] = _broadcast_rel, topi_name: str = "", divides: bool = False
) -> Callable[[Any, Any], Call]:
    """Register an operator of two arguments that broadcast, and make its constructor."""
    work = getattr(topi, topi_name or name)
    op = register(
        name,
        inputs=("lhs", "rhs"),
        rel=rel,
        compute=lambda attrs, ins, out: [work(ins[0], ins[1])],
        pattern=OpPattern.BROADCAST,
        description=doc,
        places=_divisor if divides else None,
    )

    def build(lhs: Any, rhs: Any) -> Call:
        return op(lhs, rhs)

    build.__name__ = build.__qualname__ = name.rpartition(".")[2]
    build.__doc__ = doc
    return build


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
_clip = register(
    "clip",
    inputs=("a",),
    attrs={"a_min": number(), "a_max": number()},
    rel=_same_rel,
    compute=lambda attrs, ins, out: [topi.clip(ins[0], attrs.a_min, attrs.a_max)],
    pattern=OpPattern.ELEMWISE,
)


def clip(a: Any, a_min: float, a_max: float) -> Call:
    """The elements kept between two bounds."""
    return _clip(a, a_min=a_min, a_max=a_max)


def _cast_rel(types: list[Any], attrs: Any) -> Type:
    return TensorType(types[0].shape, attrs.dtype)


_cast = register(
    "cast",
    inputs=("data",),
    attrs={"dtype": dtype()},
    rel=_cast_rel,
    compute=lambda attrs, ins, out: [topi.cast(ins[0], attrs.dtype)],
    pattern=OpPattern.ELEMWISE,
)


def cast(data: Any, dtype: str) -> Call:
    """The elements converted to another type."""
    return _cast(data, dtype=dtype)


_cast_like = register(
    "cast_like",
    inputs=("data", "dtype_like"),
    rel=lambda types, attrs: TensorType(types[0].shape, types[1].dtype),
    compute=lambda attrs, ins, out: [topi.cast(ins[0], out.dtype)],
    pattern=OpPattern.ELEMWISE,
)


def cast_like(data: Any, dtype_like: Any) -> Call:
    """The elements converted to the type of another tensor's."""
    return _cast_like(data, dtype_like)


_reinterpret = register(
    "reinterpret",
    inputs=("data",),
    attrs={"dtype": dtype()},
    rel=_cast_rel,
    compute=lambda attrs, ins, out: [topi.reinterpret(ins[0], attrs.dtype)],
    pattern=OpPattern.ELEMWISE,
)


def reinterpret(data: Any, dtype: str) -> Call:
    """The bits of the elements read as another type of the same size."""
    return _reinterpret(data, dtype=dtype)


def _where_rel(types: list[Any], attrs: Any) -> Type:
    condition, x, y = types
    need_dtype(y, x.dtype, "y")
    return TensorType(broadcast(condition.shape, broadcast(x.shape, y.shape, "x and y")), x.dtype)


_where = register(
    "where",
    inputs=("condition", "x", "y"),
    rel=_where_rel,
    compute=lambda attrs, ins, out: [topi.where(*ins)],
    pattern=OpPattern.BROADCAST,
)


def where(condition: Any, x: Any, y: Any) -> Call:
    """`x` where the condition holds, else `y`; all three broadcast."""
    return _where(condition, x, y)


# ---------------------------------------------------------------------------- creation
def _filled(name: str, value: float) -> RelayOp:
    return register(
        name,
        inputs=(),
        attrs={"shape": anything(), "dtype": dtype("float32")},
        rel=lambda types, attrs: TensorType(attrs.shape, attrs.dtype),
        compute=lambda attrs, ins, out: [topi.full(out.shape, out.dtype, value)],
        pattern=OpPattern.ELEMWISE,
    )


_zeros, _ones = _filled("zeros", 0), _filled("ones", 1)


def zeros(shape: Any, dtype: str) -> Call:
    """A tensor of zeros."""
    return dyn.zeros(shape, dtype) if dyn.is_computed(shape) else _zeros(shape=_shape(shape), dtype=dtype)


def ones(shape: Any, dtype: str) -> Call:
    """A tensor of ones."""
    return dyn.ones(shape, dtype) if dyn.is_computed(shape) else _ones(shape=_shape(shape), dtype=dtype)


def _shape(shape: Any) -> Any:
    if isinstance(shape, Constant):
        return tuple(int(d) for d in shape.numpy().reshape(-1))
    return (shape,) if isinstance(shape, int) else tuple(shape)


def _like(name: str, value: float) -> Callable[[Any], Call]:
    op = register(
        name,
        inputs=("data",),
        rel=_same_rel,
        compute=lambda attrs, ins, out: [topi.full_like(ins[0], value)],
        pattern=OpPattern.ELEMWISE,
    )

    def build(data: Any) -> Call:
        return op(data)

    build.__name__, build.__doc__ = name, f"A tensor of the shape and type of `data`, filled with {value}."
    return build


zeros_like, ones_like = _like("zeros_like", 0), _like("ones_like", 1)


def _full_rel(types: list[Any], attrs: Any) -> Type:
    if types[0].shape:
        raise refuse(f"must have no dimensions and is {types[0]}", "fill_value")
    return TensorType(attrs.shape, attrs.dtype or types[0].dtype)


_full = register(
    "full",
    inputs=("fill_value",),
    attrs={"shape": anything(), "dtype": dtype(None)},
    rel=_full_rel,
    compute=lambda attrs, ins, out: [topi.full(out.shape, out.dtype, ins[0]())],
    pattern=OpPattern.ELEMWISE,
)


def full(fill_value: Any, shape: Any = (), dtype: str = "") -> Call:
    """A tensor filled with one value, itself a tensor without dimensions."""
    value = fill_value if isinstance(fill_value, Expr) else const(fill_value, dtype or None)
    if dyn.is_computed(shape):
        return dyn.full(value, shape, dtype)
    return _full(value, shape=_shape(shape), dtype=dtype)


def _full_like_rel(types: list[Any], attrs: Any) -> Type:
    if types[1].shape:
        raise refuse(f"must have no dimensions and is {types[1]}", "fill_value")
    return types[0]  # type: ignore[no-any-return]


_full_like = register(
    "full_like",
    inputs=("data", "fill_value"),
    rel=_full_like_rel,
    compute=lambda attrs, ins, out: [topi.full_like(ins[0], ins[1]())],
    pattern=OpPattern.ELEMWISE,
)


def full_like(data: Any, fill_value: Any) -> Call:
    """A tensor of the shape and type of `data`, filled with one value."""
    return _full_like(data, as_expr(fill_value))


def _shape_rel(types: list[Any], attrs: Any) -> Type:
    return TensorType((len(types[0].shape),), attrs.dtype)


_shape_of = register(
    "shape_of",
    inputs=("data",),
    attrs={"dtype": dtype("int32")},
    rel=_shape_rel,
    compute=lambda attrs, ins, out: [topi.shape(ins[0], attrs.dtype)],
    pattern=OpPattern.OPAQUE,
)


def shape_of(data: Any, dtype: str = "int32") -> Call:
    """The sizes of a tensor, as a tensor."""
    return _shape_of(data, dtype=dtype)


_ndarray_size = register(
    "ndarray_size",
    inputs=("data",),
    attrs={"dtype": dtype("int32")},
    rel=lambda types, attrs: TensorType((), attrs.dtype),
    compute=lambda attrs, ins, out: [topi.ndarray_size(ins[0], attrs.dtype)],
    pattern=OpPattern.OPAQUE,
)


def ndarray_size(data: Any, dtype: str = "int32") -> Call:
    """The number of elements of a tensor, as a tensor without dimensions."""
    return _ndarray_size(data, dtype=dtype)
