"""The number of arithmetic operations of an expression."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..ir.errors import TVMError
from ..ir.expr import (
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
from ..ir.op import Op
from .arguments import get_const_int


class FlopCalculationError(TVMError, RuntimeError):
    """The operations of a program cannot be counted."""


def operations(e: Any, counts: Callable[[Any], int], conditions: bool = False) -> int:
    """The operations of an expression: `counts` of each operator, comparison and call in it.

    The operations of indices are not counted. Of the branches of a condition the larger one counts, and the condition
    itself if `conditions`.
    """

    def count(e: Any) -> int:
        if isinstance(e, (IntImm, FloatImm, StringImm, Var, ProducerLoad, BufferLoad)):
            return 0
        if isinstance(e, (BinaryOp, CmpOp)):
            return counts(e) + count(e.a) + count(e.b)
        if isinstance(e, (Cast, Broadcast)):
            return count(e.value)
        if isinstance(e, Not):
            return counts(e) + count(e.a)
        if isinstance(e, Select):
            return either(e.condition, e.true_value, e.false_value)
        if isinstance(e, Reduce):
            points = math.prod(get_const_int(iv.dom.extent) for iv in e.axis)
            return points * sum(map(count, (*e.combiner.result, *e.source)))
        if isinstance(e, Let):
            return count(e.value) + count(e.body)
        if isinstance(e, Call):
            name = e.op.short_name if isinstance(e.op, Op) else str(e.op)
            return either(*e.args) if name == "if_then_else" else counts(e) + sum(map(count, e.args))
        raise FlopCalculationError(f"operations of {type(e).__name__} are not counted")

    def either(condition: Any, *branches: Any) -> int:
        return (count(condition) if conditions else 0) + max(map(count, branches))

    return count(e)
