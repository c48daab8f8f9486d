"""The smaller and the larger of two numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ...ir.dtype import BOOL, DataType
from ...ir.expr import Broadcast, PrimExpr, const_value
from .intrinsics import intrinsic
from .types import is_small_float, reg_type

if TYPE_CHECKING:
    from .emit import FunctionEmitter

__all__ = ["clipped", "is_number", "min_max", "wants_clip"]


def min_max(f: FunctionEmitter, name: str, kind: DataType, a: str, b: str) -> str:
    """The smaller (`Min`) or larger (`Max`) of two values; NaN if one is."""
    if not kind.is_float:
        text, mask = reg_type(kind), reg_type(BOOL.with_lanes(kind.lanes))
        sign = "s" if kind.is_int else "u"
        order = "lt" if name == "Min" else "gt"
        test = f.tmp(f"icmp {sign}{order} {text} {a}, {b}")
        return f.tmp(f"select {mask} {test}, {text} {a}, {text} {b}")
    # NaN propagates, as in NumPy. Comparisons and selections would be equivalent, but LLVM's vectorizer takes time
    # exponential in the length of a chain of them. The first operand is the one that is tested for NaN on x86, and
    # the accumulator of a reduction, `max(C[i], x)`, must not wait for a test.
    return intrinsic(f, "minimum" if name == "Min" else "maximum", kind, b, a, flags="nsz")


def wants_clip(e: Any) -> bool:
    """Whether one operand is a number in a vector of, say, 7 lanes. LLVM fills it up with undefined lanes, does not see
    then that the number is not NaN, and would test both operands of its own minimum."""
    one, kind = is_number(e.a) != is_number(e.b), e.dtype
    return one and kind.is_float and not is_small_float(kind) and kind.lanes.bit_count() > 1


def is_number(e: PrimExpr) -> bool:
    """Whether an expression is a constant in all lanes, and not NaN."""
    value = const_value(e.value if isinstance(e, Broadcast) else e)
    return value is not None and not math.isnan(value)


def clipped(f: FunctionEmitter, e: Any, limit: str, x: str) -> str:
    """The smaller or larger of a number and `x`, which may be NaN: then the comparison is false."""
    text, mask = reg_type(e.dtype), reg_type(BOOL.with_lanes(e.dtype.lanes))
    order = "olt" if e.__class__.__name__ == "Min" else "ogt"
    test = f.tmp(f"fcmp {order} {text} {limit}, {x}")
    return f.tmp(f"select {mask} {test}, {text} {limit}, {text} {x}")
