"""Integer division by any divisor: by zero it gives 0, and the least integer over -1 wraps around to itself.

    q = truncdiv(a, b)      ->      safe = select(b is 0 or -1, 1, b)
                                    q = select(b is 0 or -1, a * b, truncdiv(a, safe))
    r = truncmod(a, b)      ->      r = truncmod(a, safe)

Hardware traps in both cases. Where the divisor is known to be positive, as sizes are, nothing is added.
"""

from __future__ import annotations

from ...arith import Analyzer
from ...ir import ops
from ...ir.expr import (
    Add,
    Broadcast,
    Cast,
    Div,
    FloorDiv,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    PrimExpr,
    Ramp,
    Select,
    SizeVar,
    Var,
    const,
)
from ...ir.function import PrimFunc
from ...ir.functor import pre_order


class Divisors:
    """Known facts about divisors in a function: the sizes of its arrays are not zero where an element is computed."""

    def __init__(self, func: PrimFunc, ana: Analyzer) -> None:
        self.ana = ana
        shapes = [e for b in func.buffer_map.values() for e in (*b.shape, *b.strides)]
        self.sizes = {v for e in shapes for v in pre_order(e) if isinstance(v, Var)}
        self.values: dict[Var, PrimExpr] = {}

    def is_positive(self, e: PrimExpr) -> bool:
        """Whether an integer is provably positive."""
        if isinstance(e, Broadcast):
            return self.is_positive(e.value)
        if isinstance(e, Ramp):
            return self.is_positive(e.base) and self._not_negative(e.stride)
        if e.dtype.is_vector:
            return False
        if isinstance(e, IntImm):
            return e.value > 0
        if isinstance(e, Var) and (e in self.sizes or isinstance(e, SizeVar)):
            return True
        if isinstance(e, Var) and e in self.values:
            return self.is_positive(self.values[e])
        if self.ana.const_int_bound(e).min_value > 0:
            return True
        if isinstance(e, (Mul, Min)):
            return self.is_positive(e.a) and self.is_positive(e.b)
        if isinstance(e, Max):
            return self.is_positive(e.a) or self.is_positive(e.b)
        if isinstance(e, Add):
            return (self.is_positive(e.a) and self._not_negative(e.b)) or (
                self.is_positive(e.b) and self._not_negative(e.a)
            )
        if isinstance(e, (FloorDiv, Div)):
            return self._rounds_up(e)
        if isinstance(e, Cast):
            return (
                e.value.dtype.is_integral and e.dtype.bits >= e.value.dtype.bits and self.is_positive(e.value)
            )
        return isinstance(e, Select) and self.is_positive(e.true_value) and self.is_positive(e.false_value)

    def _not_negative(self, e: PrimExpr) -> bool:
        return self.is_positive(e) or bool(self.ana.const_int_bound(e).min_value >= 0)

    def _rounds_up(self, e: FloorDiv | Div) -> bool:
        """Whether a quotient is (n + c - 1) // c of a positive n."""
        if not (isinstance(e.b, IntImm) and isinstance(e.a, Add) and isinstance(e.a.b, IntImm)):
            return False
        return e.b.value > 0 and e.a.b.value >= e.b.value - 1 and self.is_positive(e.a.a)


class Named:
    """Values that are used more than once, each bound at its first use."""

    def __init__(self) -> None:
        self.bound: list[tuple[Var, PrimExpr]] = []

    def let(self, value: PrimExpr, name: str) -> PrimExpr:
        inner = value.value if isinstance(value, Broadcast) else value
        if not inner.children():
            return value
        self.bound.append((Var(name, value.dtype), value))
        return self.bound[-1][0]

    def around(self, out: PrimExpr) -> PrimExpr:
        for var, value in reversed(self.bound):
            out = Let(var, value, out)
        return out


def _is_special(b: PrimExpr) -> PrimExpr:
    """Whether a divisor is 0, or -1 of a type with a sign."""
    zero = b.equal(const(0, b.dtype))
    return ops.logical_or(zero, b.equal(const(-1, b.dtype))) if b.dtype.is_int else zero


def safe_divisor(b: PrimExpr) -> PrimExpr:
    """The divisor, or 1 where dividing by it would trap: the remainder is then 0, as it must be."""
    return Select(_is_special(b), const(1, b.dtype), b)


def safe_quotient(a: PrimExpr, b: PrimExpr, safe: PrimExpr) -> PrimExpr:
    """The quotient rounded towards zero; division by 0 and -1 is multiplication by them."""
    return Select(_is_special(b), ops.mul(a, b), Div(a, safe))


def by_zero_or_minus_one(a: PrimExpr, divisor: int, quotient: bool) -> PrimExpr:
    """A quotient or remainder by the constant 0 or -1; -a wraps around."""
    if divisor == 0 or not quotient:
        return const(0, a.dtype)
    return ops.sub(const(0, a.dtype), a)
