"""Side effects of evaluating an expression."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.expr import (
    BufferLoad,
    Call,
    Div,
    FloorDiv,
    FloorMod,
    Mod,
    PrimExpr,
    ProducerLoad,
    const_value,
)
from ...ir.functor import pre_order
from ...ir.op import CallEffectKind, Op

_DIVISIONS = (FloorDiv, FloorMod, Div, Mod)


def side_effect(expr: PrimExpr) -> CallEffectKind:
    """The strongest effect that evaluating the expression has; a load is `ReadState`."""
    worst = CallEffectKind.Pure
    for e in pre_order(expr):
        if isinstance(e, (BufferLoad, ProducerLoad)):
            kind = CallEffectKind.ReadState
        elif e.__class__ is Call:
            kind = e.op.effect if isinstance(e.op, Op) else CallEffectKind.Opaque
        else:
            continue
        worst = max(worst, kind)
    return worst


def is_pure(expr: PrimExpr) -> bool:
    """Whether the value depends on variables only, and its evaluation has no effect."""
    return side_effect(expr) <= CallEffectKind.Pure


def has_effect(expr: PrimExpr) -> bool:
    """Whether evaluating the expression has an effect besides its value."""
    return side_effect(expr) > CallEffectKind.ReadState


def reads_memory(expr: PrimExpr) -> bool:
    """Whether the value depends on memory, so that a store may change it."""
    return side_effect(expr) >= CallEffectKind.ReadState


def is_division(expr: object) -> bool:
    """Whether the node is a division or remainder of integers."""
    return isinstance(expr, _DIVISIONS) and not expr.a.dtype.is_float


def can_trap(expr: PrimExpr, guarded: Callable[[Any], bool] = lambda load: False) -> bool:
    """Whether evaluating the expression speculatively might trap.

    That is: a load (the index may be out of bounds) that is not `guarded` by a predicate, an integer division whose
    divisor is not a constant other than zero, and a call of anything but an element-wise function.
    """
    for e in pre_order(expr):
        if isinstance(e, (BufferLoad, ProducerLoad)) and not guarded(e):
            return True
        if is_division(e) and not const_value(e.b):
            return True
        if e.__class__ is Call and not (isinstance(e.op, Op) and e.op.is_pure and e.op.vectorizable):
            return True
    return False
