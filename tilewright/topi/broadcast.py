"""Elementwise operators of two arguments, shapes broadcast as in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import te
from ..ir import ops
from ..ir.expr import PrimExpr, convert
from ..ir.fold import int_value
from ..te.tensor import checked_shape
from .utils import (
    broadcast_indices,
    broadcast_shape,
    elementwise,
    fail,
    injective,
    same_size,
    shape_text,
    tensor_arg,
)

__all__ = [
    "add",
    "atan2",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "broadcast_to",
    "divide",
    "equal",
    "floor_divide",
    "floor_mod",
    "greater",
    "greater_equal",
    "left_shift",
    "less",
    "less_equal",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "not_equal",
    "power",
    "right_shift",
    "subtract",
    "trunc_divide",
    "trunc_mod",
]


def broadcast_to(data: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """The tensor repeated along its dimensions of size 1, and along new ones in front, to `shape`."""
    x = tensor_arg("broadcast_to", "data", data)
    target = checked_shape(shape)
    common = broadcast_shape("broadcast_to", x.shape, target)
    if len(common) != len(target) or not all(same_size(a, b) for a, b in zip(common, target)):
        raise fail(
            "broadcast_to", f"data of shape {shape_text(x.shape)} does not broadcast to {shape_text(target)}"
        )
    return injective(
        "broadcast_to", target, lambda *i: x(*broadcast_indices(x.shape, target, i)), "broadcast"
    )


def _binary(name: str, f: Callable[[Any, Any], PrimExpr], doc: str) -> Callable[[Any, Any], Any]:
    """An operator that applies `f` to pairs of elements; each argument may be a number too."""

    def build(lhs: Any, rhs: Any) -> Any:
        return elementwise(name, f, lhs, rhs)

    build.__name__ = build.__qualname__ = name
    build.__doc__ = doc
    return build


# ---------------------------------------------------------------------------- arithmetic
def _of_numbers(
    f: Callable[[Any, Any], PrimExpr], of_truths: Callable[[Any, Any], PrimExpr] | None = None
) -> Callable[[Any, Any], PrimExpr]:
    """`f` of numbers; for bool the NumPy equivalent, or a refusal."""

    def element(a: Any, b: Any) -> PrimExpr:
        a, b = ops.match(a, b)
        if not a.dtype.is_bool:
            return f(a, b)
        if of_truths is None:
            raise TypeError("both operands are bool; cast one to a number")
        return of_truths(a, b)

    return element


def _remainder(a: Any, b: Any) -> PrimExpr:
    a, b = ops.match(a, b)
    return ops.fmod(a, b) if a.dtype.is_float else ops.truncmod(a, b)


def _truncated(a: Any, b: Any) -> PrimExpr:
    a, b = ops.match(a, b)
    return ops.trunc(ops.div(a, b)) if a.dtype.is_float else ops.truncdiv(a, b)


def _power(a: Any, b: Any) -> PrimExpr:
    """Floats by the machine; integers by repeated squaring, wrapping as their multiplication does."""
    a, b = ops.match(a, b)
    constant = int_value(b) if not a.dtype.is_float else 0
    if a.dtype.is_float or (constant is not None and 0 <= constant <= 64):
        return ops.power(a, b)
    return _integer_power(a, b)


def _integer_power(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """Six bits of the exponent select among a, a², a⁴, … a³².

    From exponent 64 on only 0, 1 and -1 have a power that fits; the others give 0. Of a negative exponent only
    1 and -1 have a power that is whole.
    """
    kind = a.dtype
    one, zero = te.const(1, kind), te.const(0, kind)

    def bit(i: int) -> PrimExpr:
        shifted = ops.shift_right(b, te.const(i, kind)) if i else b
        return ops.equal(ops.bitwise_and(shifted, one), one)

    square, out = a, ops.select(bit(0), a, one)
    for i in range(1, 6):
        square = ops.mul(square, square)
        out = ops.mul(out, ops.select(bit(i), square, one))
    units = ops.select(ops.equal(a, one), one, zero)
    if kind.is_int:
        minus = te.const(-1, kind)
        units = ops.select(ops.equal(a, minus), ops.select(bit(0), minus, one), units)
    whole = ops.less(b, te.const(64, kind))
    if kind.is_int:
        whole = ops.logical_and(whole, ops.greater_equal(b, zero))
    return ops.select(whole, out, units)


add = _binary(
    "add",
    _of_numbers(ops.add, ops.logical_or),
    "`lhs + rhs`; here and below operands of two types meet in the wider one.",
)
subtract = _binary("subtract", _of_numbers(ops.sub), "`lhs - rhs`.")
multiply = _binary("multiply", _of_numbers(ops.mul, ops.logical_and), "`lhs * rhs`.")
divide = _binary(
    "divide", _of_numbers(ops.div), "`lhs / rhs`; of integers the quotient is cut towards zero, as in C."
)
trunc_divide = _binary(
    "trunc_divide", _of_numbers(_truncated), "`lhs / rhs`, with the quotient cut towards zero."
)
floor_divide = _binary("floor_divide", _of_numbers(ops.floordiv), "`lhs // rhs`: the quotient rounded down.")
mod = _binary("mod", _of_numbers(_remainder), "The remainder of `divide`, with the sign of `lhs`, as in C.")
trunc_mod = _binary(
    "trunc_mod", _of_numbers(_remainder), "The remainder of `trunc_divide`, with the sign of `lhs`."
)
floor_mod = _binary(
    "floor_mod", _of_numbers(ops.floormod), "`lhs % rhs`: the remainder with the sign of `rhs`."
)
maximum = _binary("maximum", _of_numbers(ops.max_of, ops.logical_or), "The greater of both; NaN if one is.")
minimum = _binary("minimum", _of_numbers(ops.min_of, ops.logical_and), "The lesser of both; NaN if one is.")
power = _binary(
    "power",
    _of_numbers(_power),
    "`lhs` to the power of `rhs`; integers wrap; what is not whole is 0.",
)
atan2 = _binary("atan2", ops.atan2, "The angle of the point (rhs, lhs).")
left_shift = _binary(
    "left_shift", _of_numbers(ops.shift_left), "`lhs << rhs`, for shifts below the number of bits."
)
right_shift = _binary("right_shift", _of_numbers(ops.shift_right), "`lhs >> rhs`, which keeps the sign.")

# ---------------------------------------------------------------------------- comparison
greater = _binary("greater", ops.greater, "Whether `lhs > rhs`.")
less = _binary("less", ops.less, "Whether `lhs < rhs`.")
equal = _binary("equal", ops.equal, "Whether both are equal.")
not_equal = _binary("not_equal", ops.not_equal, "Whether both differ.")
greater_equal = _binary("greater_equal", ops.greater_equal, "Whether `lhs >= rhs`.")
less_equal = _binary("less_equal", ops.less_equal, "Whether `lhs <= rhs`.")


# ---------------------------------------------------------------------------- logic and bits
def _truth(x: Any) -> PrimExpr:
    """Whether x is not zero."""
    x = convert(x)
    return x if x.dtype.is_bool else ops.not_equal(x, te.const(0, x.dtype))


def _bitwise(name: str, f: Callable[[Any, Any], PrimExpr], logical: Callable[[Any, Any], PrimExpr]) -> Any:
    """Bit by bit for integers; truth values have one bit."""

    def element(a: Any, b: Any) -> PrimExpr:
        a, b = ops.match(a, b)
        return logical(a, b) if a.dtype.is_bool else f(a, b)

    return _binary(f"bitwise_{name}", element, f"`{name}` of the bits of two integers or truth values.")


def _logical_xor(a: Any, b: Any) -> PrimExpr:
    a, b = _truth(a), _truth(b)
    return ops.logical_or(ops.logical_and(a, ops.logical_not(b)), ops.logical_and(ops.logical_not(a), b))


logical_and = _binary(
    "logical_and",
    lambda a, b: ops.logical_and(_truth(a), _truth(b)),
    "Whether both are true; a number is true if it is not 0.",
)
logical_or = _binary(
    "logical_or", lambda a, b: ops.logical_or(_truth(a), _truth(b)), "Whether at least one is true."
)
logical_xor = _binary("logical_xor", _logical_xor, "Whether exactly one is true.")
bitwise_and = _bitwise("and", ops.bitwise_and, ops.logical_and)
bitwise_or = _bitwise("or", ops.bitwise_or, ops.logical_or)
bitwise_xor = _bitwise("xor", ops.bitwise_xor, _logical_xor)


def logical_not(data: Any) -> Any:
    """Whether it is not true."""
    return elementwise("logical_not", lambda x: ops.logical_not(_truth(x)), data)


def bitwise_not(data: Any) -> Any:
    """All bits inverted; for bool, the negation."""

    def element(x: Any) -> PrimExpr:
        x = convert(x)
        if x.dtype.is_float:
            raise TypeError(f"bitwise_not of {x.dtype}: it takes integers")
        return ops.bitwise_not(x)

    return elementwise("bitwise_not", element, data)
