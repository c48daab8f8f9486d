"""Element by element: functions of one tensor, arithmetic and comparisons that broadcast, casts, selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.dtype import DataType
from ..expr import Call
from ..ty import TensorType, Type
from .attributes import flag, ints
from .computes import topi
from .gradients import elementwise as grads
from .gradients.parts import constant, unchanged
from .registry import BROADCAST, ELEMWISE, Dtype, Ints, Place, Tensor, named, operator
from .shapes import axis_of, broadcast, need_dtype, same_rel
from .traits import FOLLOW, FULL, Traits

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
    "fixed_point_multiply",
    "fixed_point_multiply_per_axis",
    "floor",
    "floor_divide",
    "floor_mod",
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
    "negative",
    "not_equal",
    "power",
    "reinterpret",
    "right_shift",
    "round",
    "rsqrt",
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
]


INT32 = DataType("int32")


# ---------------------------------------------------------------------------- unary
BOOL = DataType("bool")


def _bool_rel(types: list[Any], attrs: Any) -> Type:
    return TensorType(types[0].shape, BOOL)


def _unary(
    name: str, doc: str, rel: Callable[..., Type] = same_rel, topi_name: str = "", **traits: Any
) -> Callable[[Any], Call]:
    """An operator of one argument."""

    def build(data: Tensor) -> Call: ...

    return operator(
        name,
        rel=rel,
        compute=topi_name or name,
        pattern=ELEMWISE,
        traits=Traits(**traits),
    )(named(build, name, __name__, doc))


exp = _unary(
    "exp",
    "e to the power of each element.",
    precision=FULL,
    quantised="qnn.exp",
    fast="fast_exp",
    gradient=grads.exp,
)
log = _unary("log", "The natural logarithm.", precision=FULL, quantised="qnn.log", gradient=grads.log)
log2 = _unary("log2", "The logarithm to base 2.", precision=FULL, gradient=grads.log2)
log10 = _unary("log10", "The logarithm to base 10.", precision=FULL, gradient=grads.log10)
tan = _unary("tan", "The tangent.", precision=FULL, gradient=grads.tan)
cos = _unary("cos", "The cosine.", precision=FULL, gradient=grads.cos)
sin = _unary("sin", "The sine.", precision=FULL, gradient=grads.sin)
acos = _unary("acos", "The angle of a cosine.", precision=FULL, gradient=grads.acos)
acosh = _unary("acosh", "The inverse of cosh.", precision=FULL, gradient=grads.acosh)
asin = _unary("asin", "The angle of a sine.", precision=FULL, gradient=grads.asin)
asinh = _unary("asinh", "The inverse of sinh.", precision=FULL, gradient=grads.asinh)
atan = _unary("atan", "The angle of a tangent.", precision=FULL, gradient=grads.atan)
atanh = _unary("atanh", "The inverse of tanh.", precision=FULL, gradient=grads.atanh)
cosh = _unary("cosh", "The hyperbolic cosine.", precision=FULL, gradient=grads.cosh)
sinh = _unary("sinh", "The hyperbolic sine.", precision=FULL, gradient=grads.sinh)
tanh = _unary(
    "tanh",
    "The hyperbolic tangent.",
    precision=FOLLOW,
    quantised="qnn.tanh",
    fast="fast_tanh",
    gradient=grads.tanh,
)
sigmoid = _unary(
    "sigmoid", "1 / (1 + exp(-x)).", precision=FOLLOW, quantised="qnn.sigmoid", gradient=grads.sigmoid
)
erf = _unary(
    "erf", "The error function.", precision=FULL, quantised="qnn.erf", fast="fast_erf", gradient=grads.erf
)
sqrt = _unary("sqrt", "The square root.", precision=FULL, quantised="qnn.sqrt", gradient=grads.sqrt)
rsqrt = _unary("rsqrt", "1 / sqrt(x).", precision=FULL, quantised="qnn.rsqrt", gradient=grads.rsqrt)
floor = _unary(
    "floor", "The greatest integer not above.", precision=FOLLOW, idempotent=True, gradient=constant
)
ceil = _unary("ceil", "The least integer not below.", precision=FOLLOW, idempotent=True, gradient=constant)
trunc = _unary("trunc", "The integer part.", precision=FOLLOW, gradient=constant)
round = _unary(
    "round",
    "The nearest integer, halves to the even one.",
    precision=FOLLOW,
    idempotent=True,
    gradient=constant,
)
abs = _unary(
    "abs", "The absolute value.", precision=FOLLOW, quantised="qnn.abs", idempotent=True, gradient=grads.abs
)
sign = _unary("sign", "-1, 0 or 1.", precision=FOLLOW, gradient=constant)
negative = _unary(
    "negative",
    "The elements with the other sign.",
    precision=FOLLOW,
    scale="linear",
    involution=True,
    gradient=grads.negative,
)
copy = _unary(
    "copy",
    "The same elements in memory of their own.",
    topi_name="identity",
    precision=FOLLOW,
    scale="linear",
    quantised="same",
    gradient=unchanged,
)
logical_not = _unary("logical_not", "Whether each element is false.", involution=True)
bitwise_not = _unary("bitwise_not", "Each bit turned over.")
isnan = _unary("isnan", "Whether each element is NaN.", _bool_rel)
isfinite = _unary("isfinite", "Whether each element is finite.", _bool_rel)
isinf = _unary("isinf", "Whether each element is infinite.", _bool_rel)
fast_exp = _unary("fast_exp", "exp, quicker and less exact.", precision=FULL, gradient=grads.exp)
fast_tanh = _unary("fast_tanh", "tanh, quicker and less exact.", precision=FOLLOW, gradient=grads.tanh)
fast_erf = _unary("fast_erf", "erf, quicker and less exact.", precision=FULL, gradient=grads.erf)


# ---------------------------------------------------------------------------- binary
def _broadcast_rel(types: list[Any], attrs: Any) -> Type:
    lhs, rhs = types
    need_dtype(rhs, lhs.dtype, "rhs")
    if lhs.shape == rhs.shape and all(isinstance(d, int) for d in lhs.shape):
        return lhs
    return TensorType(broadcast(lhs.shape, rhs.shape), lhs.dtype)


def _compare_rel(types: list[Any], attrs: Any) -> Type:
    lhs, rhs = types
    need_dtype(rhs, lhs.dtype, "rhs")
    return TensorType(broadcast(lhs.shape, rhs.shape), BOOL)


def _divisor(types: list[Any], attrs: Any) -> list[Place]:
    return [Place(1, "divisor")] if types[1].dtype.is_integral else []


def _binary(
    name: str, doc: str, rel: Callable[..., Type] = _broadcast_rel, divides: bool = False, **traits: Any
) -> Callable[[Any, Any], Call]:
    """An operator of two arguments that broadcast."""

    def build(lhs: Tensor, rhs: Tensor) -> Call: ...

    return operator(
        name,
        rel=rel,
        compute=name,
        pattern=BROADCAST,
        places=_divisor if divides else None,
        traits=Traits(**traits),
    )(named(build, name, __name__, doc))


add = _binary(
    "add", "lhs + rhs.", quantised="qnn.add", neutral=0, commutes=True, vector=("add",), gradient=grads.add
)
subtract = _binary(
    "subtract",
    "lhs - rhs.",
    quantised="qnn.subtract",
    neutral=0,
    vector=("add", "mul"),
    gradient=grads.subtract,
)
multiply = _binary(
    "multiply",
    "lhs * rhs.",
    quantised="qnn.mul",
    neutral=1,
    commutes=True,
    vector=("mul",),
    gradient=grads.multiply,
)
divide = _binary(
    "divide", "lhs / rhs; integers are rounded towards 0.", divides=True, neutral=1, gradient=grads.divide
)
floor_divide = _binary("floor_divide", "lhs / rhs rounded down.", divides=True, gradient=constant)
trunc_divide = _binary("trunc_divide", "lhs / rhs rounded towards 0.", divides=True, gradient=constant)
mod = _binary("mod", "The remainder with the sign of lhs.", divides=True, gradient=grads.mod)
floor_mod = _binary(
    "floor_mod", "The remainder with the sign of rhs.", divides=True, gradient=grads.floor_mod
)
trunc_mod = _binary("trunc_mod", "The remainder with the sign of lhs.", divides=True, gradient=grads.mod)
power = _binary("power", "lhs to the power of rhs.", precision=FULL, neutral=1, gradient=grads.power)
maximum = _binary("maximum", "The greater one.", commutes=True, vector=("max",), gradient=grads.maximum)
minimum = _binary("minimum", "The smaller one.", commutes=True, vector=("min",), gradient=grads.minimum)
left_shift = _binary("left_shift", "The bits of lhs moved up by rhs.", vector=("shift_right",))
right_shift = _binary("right_shift", "The bits of lhs moved down by rhs.", vector=("shift_right",))
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
    traits=Traits(precision=FOLLOW, vector=("min", "max"), gradient=grads.clip),
    rel=same_rel,
    compute="clip",
    pattern=ELEMWISE,
)
def clip(a: Tensor, a_min: float, a_max: float) -> Call:
    """The elements kept between two bounds."""


def _cast_rel(types: list[Any], attrs: Any) -> Type:
    return TensorType(types[0].shape, attrs.dtype)


@operator("cast", traits=Traits(gradient=grads.cast), rel=_cast_rel, compute="cast", pattern=ELEMWISE)
def cast(data: Tensor, dtype: Dtype) -> Call:
    """The elements converted to another type."""


@operator(
    "cast_like",
    traits=Traits(precision=FULL, gradient=grads.cast),
    rel=lambda types, attrs: TensorType(types[0].shape, types[1].dtype),
    compute=lambda attrs, ins, out: [topi.cast(ins[0], out.dtype)],
    pattern=ELEMWISE,
)
def cast_like(data: Tensor, dtype_like: Tensor) -> Call:
    """The elements converted to the type of another tensor's."""


@operator(
    "reinterpret", traits=Traits(precision=FULL), rel=_cast_rel, compute="reinterpret", pattern=ELEMWISE
)
def reinterpret(data: Tensor, dtype: Dtype) -> Call:
    """The bits of the elements read as another type of the same size."""


def _where_rel(types: list[Any], attrs: Any) -> Type:
    condition, x, y = types
    need_dtype(y, x.dtype, "y")
    return TensorType(broadcast(condition.shape, broadcast(x.shape, y.shape, "x and y")), x.dtype)


@operator("where", traits=Traits(gradient=grads.where), rel=_where_rel, compute="where", pattern=BROADCAST)
def where(condition: Tensor, x: Tensor, y: Tensor) -> Call:
    """`x` where the condition holds, else `y`; all three broadcast."""


# ---------------------------------------------------------------------------- fixed point
def _fixed_rel(types: list[Any], attrs: Any) -> Type:
    need_dtype(types[0], INT32, "data")
    return types[0]


@operator("fixed_point_multiply", rel=_fixed_rel, compute="fixed_point_multiply", pattern=ELEMWISE)
def fixed_point_multiply(data: Tensor, multiplier: int, shift: int) -> Call:
    """Integers times `multiplier · 2^(shift - 31)`, rounded."""


def _per_axis_rel(types: list[Any], attrs: Any) -> Type:
    for kind, name in zip(types, ("x", "y", "lshift", "rshift"), strict=True):
        need_dtype(kind, INT32, name)
    for at in attrs.axes:
        axis_of(at, len(types[0].shape), "axes")
    return types[0]


@operator(
    "fixed_point_multiply_per_axis",
    attrs={"is_lshift_required": flag(False), "is_rshift_required": flag(False), "axes": ints(())},
    rel=_per_axis_rel,
    compute="fixed_point_multiply_per_axis",
    pattern=ELEMWISE,
)
def fixed_point_multiply_per_axis(
    x: Tensor,
    y: Tensor,
    lshift: Tensor,
    rshift: Tensor,
    is_lshift_required: bool,
    is_rshift_required: bool,
    axes: Ints,
) -> Call:
    """fixed_point_multiply with a multiplier and shifts for each point of some axes."""
