"""Selections whose other branch must not be evaluated."""

from __future__ import annotations

from typing import Any

from ...ir.expr import BufferLoad, Call, PrimExpr, Select, const_value
from ...ir.function import PrimFunc
from ...ir.functor import contains
from ...ir.op import Op
from ...ir.ops import if_then_else
from ..analysis.analyzed import AnalyzedMutator
from ..analysis.effects import is_division


def rewrite_unsafe_select(func: PrimFunc) -> PrimFunc:
    """Turn a `Select` whose unselected operand might trap into `if_then_else`.

        Select(i < 4, A[i], 0)     ->     if_then_else(i < 4, A[i], 0)      # A has 4 elements, i < 8
        Select(i < 4, B[i], 0)     ->     Select(i < 4, B[i], 0)            # B has 8 elements

    An operand may trap if it has a load whose index may be out of bounds, an integer division whose divisor may be
    zero, or a call of anything but a mathematical function.

    Needs: flat buffers. Gives: each remaining scalar `Select` may evaluate both operands.
    """
    return _Rewrite().run(func) if contains(func.body, (Select,)) else func


class _Rewrite(AnalyzedMutator):
    def visit_Select(self, n: Select) -> PrimExpr:
        made = self.visit_children(n)
        if n.condition.dtype.is_vector:
            return made  # a selection by lane has no other form
        if self.may_trap(n.true_value) or self.may_trap(n.false_value):
            return if_then_else(made.condition, made.true_value, made.false_value)
        return made

    def may_trap(self, e: Any) -> bool:
        if isinstance(e, BufferLoad) and not self.inside(e):
            return True
        if is_division(e) and not const_value(e.b):
            bound = self.ana.const_int_bound(e.b)
            if bound.min_value <= 0 <= bound.max_value:
                return True
        if e.__class__ is Call and not (isinstance(e.op, Op) and e.op.is_pure and e.op.vectorizable):
            return True
        return any(self.may_trap(c) for c in e.children())

    def inside(self, load: BufferLoad) -> bool:
        """Whether every index is in bounds for all values of the variables."""
        shape = load.buffer.const_shape()
        if shape is None:
            return False
        for index, dim in zip(load.indices, shape, strict=True):
            if index.dtype.is_vector:
                return False
            bound = self.ana.const_int_bound(index)
            if bound.min_value < 0 or bound.max_value >= dim:
                return False
        return True
