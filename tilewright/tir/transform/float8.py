"""Floats of eight bits in terms of float32 and integers, for backends that have none."""

from __future__ import annotations

from typing import Any

from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import (
    Add,
    Call,
    Cast,
    FloatImm,
    IntImm,
    Let,
    Mul,
    PrimExpr,
    Select,
    Sub,
    Var,
    const,
)
from ...ir.float8 import FORMS, is_float8
from ...ir.fold import odd_float32
from ...ir.function import PrimFunc
from ...ir.functor import Mutator, pre_order
from ...ir.op import Op


def compute_float8(func: PrimFunc) -> PrimFunc:
    """Compute with floats of eight bits in float32, and convert them by integer operations.

        C[i] = A[i] * B[i]      ->      C[i] = narrowed(widened(A[i]) * widened(B[i]))

    Needs: flat loops. Gives: floats of eight bits only in loads, stores, selections and reinterpretations.
    """
    kinds = {m.dtype for m in pre_order(func.body) if isinstance(m, PrimExpr)}
    if not any(is_float8(kind.element) for kind in kinds):
        return func
    return func.updated(body=_Compute().visit(func.body))


def widened(x: PrimExpr) -> PrimExpr:
    """The float32 of a float of eight bits."""
    form, lanes = FORMS[x.dtype.code], x.dtype.lanes
    u = Var("byte", DataType("uint32").with_lanes(lanes))
    a = Var("size", u.dtype)
    kind = DataType("float32").with_lanes(lanes)
    normal = _bits(kind, ops.shift_left(a, const(23 - form.mantissa, a.dtype)) + ((127 - form.bias) << 23))
    small = Mul(Cast(kind, a), const(form.least, kind))
    size: PrimExpr = Select(a < const(1 << form.mantissa, a.dtype), small, normal)
    if x.dtype.code == "float8_e5m2":
        size = Select(a >= const(0x7C, a.dtype), const(float("inf"), kind), size)
        size = Select(a > const(0x7C, a.dtype), const(float("nan"), kind), size)
    else:
        size = Select(ops.equal(a, const(0x7F, a.dtype)), const(float("nan"), kind), size)
    out = Select(u >= const(0x80, u.dtype), Sub(const(-0.0, kind), size), size)
    bits = Cast(u.dtype, _bits(DataType("uint8").with_lanes(lanes), x))
    return Let(u, bits, Let(a, ops.bitwise_and(u, const(0x7F, u.dtype)), out))


def narrowed(x: PrimExpr, kind: DataType) -> PrimExpr:
    """The nearest float of eight bits of a float32, ties to even."""
    form, lanes = FORMS[kind.code], x.dtype.lanes
    u = Var("bits", DataType("uint32").with_lanes(lanes))
    a = Var("size", u.dtype)

    def number(value: int) -> PrimExpr:
        return const(value, a.dtype)

    # a number whose ulp is the spacing of subnormal numbers: adding it rounds to them
    one = const(form.least * 2.0**23, x.dtype)
    small = Sub(_bits(a.dtype, Add(_bits(x.dtype, a), one)), _bits(a.dtype, one))
    shift = 23 - form.mantissa
    even = ops.bitwise_and(ops.shift_right(a, number(shift)), number(1))
    up = ops.shift_right(Add(Add(a, number((1 << (shift - 1)) - 1)), even), number(shift))
    normal = Sub(up, number((127 - form.bias) << form.mantissa))
    size: PrimExpr = Select(a < number(form.least_normal), small, normal)
    size = Select(a > number(form.most), number(form.beyond), size)
    size = Select(a > number(0x7F800000), number(form.nan), size)
    sign = ops.bitwise_and(ops.shift_right(u, number(24)), number(0x80))
    byte = Cast(DataType("uint8").with_lanes(lanes), ops.bitwise_or(size, sign))
    held = Let(a, ops.bitwise_and(u, const(0x7FFFFFFF, u.dtype)), _bits(kind.with_lanes(lanes), byte))
    return Let(u, _bits(u.dtype, x), held)


def _bits(kind: DataType, e: PrimExpr) -> PrimExpr:
    return Call(kind, "tir.reinterpret", (e,))


def _wide(e: PrimExpr) -> PrimExpr:
    """The value in float32, also of a value that was just narrowed: it is rounded."""
    return widened(e) if is_float8(e.dtype.element) else e


class _Compute(Mutator):
    """Widens operands and narrows results."""

    def arithmetic(self, n: Any) -> PrimExpr:
        made: Any = n.map_children(self.visit)
        if not is_float8(made.dtype.element):
            return made  # type: ignore[no-any-return]
        return narrowed(made.__class__(_wide(made.a), _wide(made.b)), made.dtype.element)

    visit_Add = visit_Sub = visit_Mul = visit_Div = visit_Mod = visit_Min = visit_Max = arithmetic

    def comparison(self, n: Any) -> PrimExpr:
        made: Any = n.map_children(self.visit)
        if not is_float8(made.a.dtype.element):
            return made  # type: ignore[no-any-return]
        return made.__class__(_wide(made.a), _wide(made.b))  # type: ignore[no-any-return]

    visit_EQ = visit_NE = visit_LT = visit_LE = visit_GT = visit_GE = comparison

    def visit_Cast(self, n: Cast) -> PrimExpr:
        made: Cast = n.map_children(self.visit)
        old, new, value = made.value.dtype, made.dtype, made.value
        if is_float8(old.element):
            value = widened(value)
        elif not is_float8(new.element):
            return made
        if not is_float8(new.element):
            return value if value.dtype is new else Cast(new, value)
        wide = DataType("float32").with_lanes(new.lanes)
        return narrowed(value if value.dtype is wide else Cast(wide, value), new.element)

    def visit_FloatImm(self, n: FloatImm) -> PrimExpr:
        if not is_float8(n.dtype):
            return n
        import ml_dtypes
        import numpy as np

        with np.errstate(over="ignore"):
            single = np.float32(odd_float32(n.value))
            byte = int(single.astype(getattr(ml_dtypes, n.dtype)).view(np.uint8))
        return _bits(n.dtype, IntImm("uint8", byte))

    def visit_Call(self, n: Call) -> PrimExpr:
        made: Call = n.map_children(self.visit)
        inside = [a for a in made.args if isinstance(a, PrimExpr) and is_float8(a.dtype.element)]
        if (
            not isinstance(made.op, Op)
            or not made.op.vectorizable
            or not (inside or is_float8(made.dtype.element))
        ):
            return made
        if made.op.short_name in ("reinterpret", "if_then_else", "likely"):
            return made
        args = tuple(_wide(a) for a in made.args)
        if not is_float8(made.dtype.element):
            return made.replace(args=args)
        wide = DataType("float32").with_lanes(made.dtype.lanes)
        return narrowed(Call(wide, made.op, args), made.dtype.element)
