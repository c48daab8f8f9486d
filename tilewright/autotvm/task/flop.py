"""The number of operations of a tensor program, counted in its expressions."""

from __future__ import annotations

import math
from typing import Any

from ...ir.errors import TVMError
from ...ir.expr import (
    BinaryOp,
    Broadcast,
    BufferLoad,
    Call,
    Cast,
    CmpOp,
    FloatImm,
    IntImm,
    Let,
    Not,
    ProducerLoad,
    Reduce,
    Select,
    StringImm,
    Var,
)
from ...ir.op import Op
from ...te.tensor import ComputeOp, ExternOp, PlaceholderOp
from ...tune.arguments import get_const_int


class FlopCalculationError(TVMError, RuntimeError):
    """The operations of a program cannot be counted."""


def _count(e: Any) -> int:
    """The operations of an expression; those of indices and of conditions are not counted."""
    if isinstance(e, (IntImm, FloatImm, StringImm, Var, ProducerLoad, BufferLoad)):
        return 0
    if isinstance(e, (BinaryOp, CmpOp)):
        return 1 + _count(e.a) + _count(e.b)
    if isinstance(e, Cast):
        return _count(e.value)
    if isinstance(e, Not):
        return 1 + _count(e.a)
    if isinstance(e, Select):
        return max(_count(e.true_value), _count(e.false_value))
    if isinstance(e, Reduce):
        points = math.prod(get_const_int(iv.dom.extent) for iv in e.axis)
        combine = sum(_count(r) for r in e.combiner.result)
        return points * (combine + sum(_count(s) for s in e.source))
    if isinstance(e, Let):
        return _count(e.value) + _count(e.body)
    if isinstance(e, Broadcast):
        return _count(e.value)
    if isinstance(e, Call):
        name = e.op.short_name if isinstance(e.op, Op) else str(e.op)
        if name == "if_then_else":
            return max(_count(a) for a in e.args[1:])
        return 1 + sum(_count(a) for a in e.args)
    raise FlopCalculationError(f"operations of {type(e).__name__} are not counted")


def compute_flop(sch: Any) -> int:
    """The operations of a te schedule, of all of its stages."""
    total, waiting, seen = 0, list(sch.outputs), set()
    while waiting:
        op = waiting.pop()
        if op in seen:
            continue
        seen.add(op)
        waiting += [t.op for t in op.input_tensors]
        if isinstance(op, ComputeOp):
            try:
                points = math.prod(get_const_int(d) for d in op.output_shape(0))
                total += points * _count(op.body[0])
            except (ValueError, FlopCalculationError) as error:
                raise FlopCalculationError(
                    f"the operations of {op.name} cannot be counted: {error}; give their number: cfg.add_flop(n)"
                ) from None
        elif isinstance(op, ExternOp):
            raise FlopCalculationError(
                f"the operations of {op.name}, an extern, cannot be counted: give their number: cfg.add_flop(n)"
            )
        elif not isinstance(op, PlaceholderOp):
            raise FlopCalculationError(f"{op.name}: operations of {type(op).__name__} are not counted")
    if total == 0:
        raise FlopCalculationError("the program computes nothing that could be counted: use cfg.add_flop(n)")
    return total
