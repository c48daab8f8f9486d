"""Conditions that may be evaluated without branches: all of their operands, whatever the first ones are."""

from __future__ import annotations

from ...ir.equal import structural_equal
from ...ir.expr import (
    And,
    BufferLoad,
    Call,
    Div,
    FloorDiv,
    FloorMod,
    Let,
    Mod,
    Not,
    Or,
    PrimExpr,
    const_value,
)
from ...ir.functor import pre_order

__all__ = ["is_straight"]

Loads = list[BufferLoad]


def is_straight(condition: PrimExpr) -> bool:
    """Whether no operand of a condition needs the ones before it: each element that it loads is in a register, or is
    loaded by the first comparison in any case.

    Then a kernel evaluates all of it, and its loads are not divided by branches: many of them are in flight.
    """
    return isinstance(condition, (And, Or)) and _certain_loads(condition, [], True) is not None


def _certain_loads(e: PrimExpr, known: Loads, certain: bool) -> Loads | None:
    """The loads that are certain after an operand, in the order of evaluation; None if it needs a branch. The operand
    itself is evaluated in any case if it is `certain`."""
    if isinstance(e, (And, Or)):
        first = _certain_loads(e.a, known, certain)
        return None if first is None or _certain_loads(e.b, first, False) is None else first
    if isinstance(e, Not):
        return _certain_loads(e.a, known, certain)
    if any(isinstance(m, (And, Or, Let)) for m in pre_order(e)):
        return None  # inside an operand they may guard loads
    loads = [m for m in pre_order(e) if isinstance(m, BufferLoad) and m.buffer.scope() != "local"]
    if certain:
        return [*known, *loads]
    if any(isinstance(m, Call) or _may_fail(m) for m in pre_order(e)):
        return None
    return known if all(any(structural_equal(x, k) for k in known) for x in loads) else None


def _may_fail(e: object) -> bool:
    return isinstance(e, (Div, Mod, FloorDiv, FloorMod)) and not e.dtype.is_float and not const_value(e.b)
