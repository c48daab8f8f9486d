"""Conversions to narrow floats through float32 without double rounding (round to odd)."""

from __future__ import annotations

from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import Cast, Let, Mul, PrimExpr, Select, Sub, Var, const
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order

_EXACT = 24  # bits of an integer that a float32 holds exactly
_STEP = 14  # bits removed at a time: a number of more than _EXACT bits keeps enough to round from


def round_once(func: PrimFunc) -> PrimFunc:
    """Convert wide numbers to floats of 16 and 8 bits through float32, rounded to odd there.

        A[i] = float16(B[i])       ->      A[i] = float16(odd(B[i]))           B of type float64
        A[i] = bfloat16(B[i])      ->      A[i] = bfloat16(odd(B[i]))          B of type float64, int32, …

    `odd(x)` is x if that is a float32, else the one of its two float32 neighbours whose last bit is set: so it is never
    half way between two narrow numbers unless x is. All integers in the range of float16 and float8 are exact in
    float32.
    Needs: flat loops.
    """
    if not any(isinstance(m, Cast) and _rounds_twice(m) for m in pre_order(func.body)):
        return func
    return func.replace(body=_RoundOnce().visit(func.body))


def _rounds_twice(n: Cast) -> bool:
    old, new = n.value.dtype, n.dtype
    if not new.is_float or new.bits >= 32:
        return False
    return (old.is_float and old.bits == 64) or (
        new.code == "bfloat" and old.is_integral and old.bits > _EXACT
    )


class _RoundOnce(Mutator):
    def visit_Cast(self, n: Cast) -> PrimExpr:
        made: Cast = n.map_children(self.visit)
        if not _rounds_twice(made):
            return made
        odd = _odd_of_float if made.value.dtype.is_float else _odd_of_integer
        return made.replace(value=odd(made.value))


def _odd_of_float(x: PrimExpr) -> PrimExpr:
    """The nearest float32; where that is not x, one step towards 0 if it is larger, and the last bit set."""
    single = DataType("float32").with_lanes(x.dtype.lanes)
    unsigned = DataType("uint32").with_lanes(x.dtype.lanes)
    whole, near = Var("x", x.dtype), Var("near", single)
    back, bits = Cast(x.dtype, near), ops.reinterpret(unsigned, near)
    beyond = Cast(unsigned, ops.greater(ops.fabs(back), ops.fabs(whole)))
    odd = ops.bitwise_or(Sub(bits, beyond), const(1, unsigned))
    made = Select(ops.equal(back, whole), near, ops.reinterpret(single, odd))
    return Let(whole, x, Let(near, Cast(single, whole), made))


def _odd_of_integer(x: PrimExpr) -> PrimExpr:
    """The leading bits of the magnitude with a sticky last bit, times a power of two."""
    lanes = x.dtype.lanes
    single, unsigned = (
        DataType("float32").with_lanes(lanes),
        DataType(f"uint{x.dtype.bits}").with_lanes(lanes),
    )
    whole = Var("x", x.dtype)
    bound: list[tuple[Var, PrimExpr]] = [(whole, x)]
    scale: PrimExpr = const(1.0, single)
    size: PrimExpr = whole
    if x.dtype.is_int:
        size = Cast(unsigned, whole)
        size = Select(ops.less(whole, const(0, x.dtype)), Sub(const(0, unsigned), size), size)
    for _ in range(1 if x.dtype.bits <= 32 else 3):
        bound.append((Var("size", unsigned), size))
        held = bound[-1][0]
        more = ops.greater_equal(held, const(1 << _EXACT, unsigned))
        rest = ops.not_equal(ops.bitwise_and(held, const((1 << _STEP) - 1, unsigned)), const(0, unsigned))
        shifted = ops.bitwise_or(ops.shift_right(held, const(_STEP, unsigned)), Cast(unsigned, rest))
        size = Select(more, shifted, held)
        scale = Select(more, Mul(scale, const(float(1 << _STEP), single)), scale)
    out: PrimExpr = Mul(Cast(single, size), scale)
    if x.dtype.is_int:
        out = Select(ops.less(whole, const(0, x.dtype)), Sub(const(-0.0, single), out), out)
    for var, value in reversed(bound):
        out = Let(var, value, out)
    return out
