"""Vectors of indices: ramps and broadcasts as a base and a stride."""

from __future__ import annotations

from typing import Any

from ..ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    BufferLoad,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Sub,
)
from ..ir.ops import BINARY
from .facts import BIG, Interval
from .form import MAX, MIN, DoesNotFit, Lin, constant, is_index, same
from .normal import Normalizer


class Vec:
    """The vector whose lane l is `base + l * stride`."""

    __slots__ = ("base", "lanes", "stride")

    def __init__(self, base: Lin, stride: Lin, lanes: int) -> None:
        self.base, self.stride, self.lanes = base, stride, lanes

    @property
    def uniform(self) -> bool:
        return not self.stride.terms and self.stride.const == 0


class Vectors(Normalizer):
    """Simplification of vector expressions."""

    def simp(self, e: Any) -> Any:
        if e.__class__ is BufferLoad:  # which copies of a loop's body share
            found = self._loads.get(id(e))
            if found is None:
                made = self._simp_vector(e) if e.dtype.lanes != 1 else super().simp(e)
                found = self._loads[id(e)] = (e, made)
            return found[1]
        if isinstance(e, PrimExpr) and e.dtype.lanes != 1:
            return self._simp_vector(e)
        return super().simp(e)

    def _simp_vector(self, e: Any) -> Any:
        element = e.dtype.element
        if is_index(element):
            made = self.vec(e)
            if made is not None:
                try:
                    out = self._vec_expr(made, element)
                except DoesNotFit:
                    return e
                return e if same(out, e) else out
        cls = e.__class__
        if cls in (EQ, NE, LT, LE, GT, GE):
            truth = self._vec_comparison(e)
            if truth is not None:
                return Broadcast(IntImm(element, int(truth)), e.dtype.lanes)
        made = self.simp_children(e)
        cls = made.__class__
        if cls in BINARY and made.a.__class__ is Broadcast and made.b.__class__ is Broadcast:
            if cls not in (FloorDiv, FloorMod) or not _zero(made.b.value):
                return self.simp(Broadcast(cls(made.a.value, made.b.value), e.dtype.lanes))
        if cls in (And, Or):
            return _vec_junction(made)
        if cls is Not and made.a.__class__ is Broadcast:
            return self.simp(Broadcast(Not(made.a.value), made.a.lanes))
        if cls is Select:
            c = made.condition
            if c.__class__ is Broadcast and c.value.__class__ is IntImm:
                return made.true_value if c.value.value else made.false_value
            if same(made.true_value, made.false_value):
                return made.true_value
        return made

    def vec(self, e: Any) -> Vec | None:
        """The expression as base and stride, if it is such a vector."""
        cls = e.__class__
        if cls is Broadcast:
            if is_index(e.value.dtype):
                return Vec(self.norm(e.value), constant(0), e.dtype.lanes)
            return None
        if cls is Ramp:
            if is_index(e.base.dtype):
                return Vec(self.norm(e.base), self.norm(e.stride), e.dtype.lanes)
            return None
        if cls not in (Add, Sub, Mul, FloorDiv, FloorMod, Div, Mod, Min, Max):
            return None
        a = self.vec(e.a)
        b = self.vec(e.b) if a is not None else None
        if a is None or b is None or a.lanes != b.lanes:
            return None
        if cls is Add:
            return self._make(a.base + b.base, a.stride + b.stride, a.lanes)
        if cls is Sub:
            return self._make(a.base - b.base, a.stride - b.stride, a.lanes)
        if cls is Mul:
            if not b.uniform:
                a, b = b, a
            if not b.uniform:
                return None
            return Vec(self.mul(a.base, b.base), self.mul(a.stride, b.base), a.lanes)
        if cls is Min or cls is Max:
            return self._vec_extreme(MIN if cls is Min else MAX, a, b)
        if cls is Div or cls is Mod:
            if self._lane_bound(a)[0] < 0 or self._lane_bound(b)[0] <= 0:
                return None  # rounded towards zero, which is not down
            cls = FloorDiv if cls is Div else FloorMod
        return self._vec_divmod(cls, a, b)

    def _make(self, base: Lin, stride: Lin, lanes: int) -> Vec:
        return Vec(self.finish(base.terms, base.const), self.finish(stride.terms, stride.const), lanes)

    def _vec_extreme(self, kind: int, a: Vec, b: Vec) -> Vec | None:
        if a.uniform and b.uniform:
            return Vec(self.extreme(kind, [a.base, b.base]), constant(0), a.lanes)
        low, high = self._lane_bound(Vec(a.base - b.base, a.stride - b.stride, a.lanes))
        if high <= 0:
            return a if kind == MIN else b
        if low >= 0:
            return b if kind == MIN else a
        return None

    def _lane_bound(self, v: Vec) -> Interval:
        x = self.bound(v.base)
        if v.lanes < 0 and not v.uniform:  # as many as the hardware has
            return (-BIG, BIG)
        y = self.bound(v.base + v.stride.scale(v.lanes - 1))
        return (min(x[0], y[0]), max(x[1], y[1]))

    def _vec_divmod(self, cls: type, a: Vec, b: Vec) -> Vec | None:
        if not b.uniform or (not b.base.terms and b.base.const == 0):
            return None
        d = b.base
        if any(atom.reads for atom in d.terms) or d.const < 0:
            return None  # kept as written: see `_as_written`
        if a.uniform:
            op = self.div if cls is FloorDiv else self.mod
            return Vec(op(a.base, d), constant(0), a.lanes)
        if d.terms or a.stride.terms or d.const < 0:
            return None
        c, s = d.const, a.stride.const
        if s % c == 0:
            if cls is FloorDiv:
                return Vec(self.div_const(a.base, c), constant(s // c), a.lanes)
            return Vec(self.mod_const(a.base, c), constant(0), a.lanes)
        rest = self.mod_const(a.base, c)
        low, high = self.bound(rest)
        if a.lanes > 0 and low + min(0, s * (a.lanes - 1)) >= 0 and high + max(0, s * (a.lanes - 1)) < c:
            # All lanes have the same quotient by c.
            if cls is FloorDiv:
                return Vec(self.div_const(a.base, c), constant(0), a.lanes)
            return Vec(rest, a.stride, a.lanes)
        return None

    def _vec_expr(self, v: Vec, element: Any) -> PrimExpr:
        base = self.forms.build(v.base, element)
        if v.uniform:
            return Broadcast(base, v.lanes)
        return Ramp(base, self.forms.build(v.stride, element), v.lanes)

    def _vec_comparison(self, e: Any) -> bool | None:
        """The truth of a comparison that comes out the same in each lane."""
        if not is_index(e.a.dtype.element):
            return None
        a = self.vec(e.a)
        b = self.vec(e.b) if a is not None else None
        if a is None or b is None or a.lanes != b.lanes:
            return None
        diff = Vec(a.base - b.base, a.stride - b.stride, a.lanes)
        low, high = self._lane_bound(diff)
        cls = e.__class__
        if cls is GT or cls is GE:
            low, high, cls = -high, -low, LT if cls is GT else LE
        if cls is LT or cls is LE:
            edge = -1 if cls is LT else 0
            if high <= edge:
                return True
            if low > edge:
                return False
            if diff.lanes < 0:
                return None
            ends = [diff.base, diff.base + diff.stride.scale(diff.lanes - 1)]
            sign = 1 if e.__class__ in (LT, LE) else -1
            if all(self.nonneg(x.scale(-sign).shift(edge)) for x in ends):
                return True
            return False if all(self.nonneg(x.scale(sign).shift(-edge - 1)) for x in ends) else None
        if low > 0 or high < 0:
            return cls is NE
        return cls is EQ if low == high == 0 else None

    def any_bound(self, e: PrimExpr) -> Interval:
        """The bounds of a scalar, or of all lanes of a vector."""
        if e.dtype.lanes == 1:
            return self.value_bound(e)
        if is_index(e.dtype.element):
            v = self.vec(e)
            if v is not None:
                return self._lane_bound(v)
        if e.dtype.is_float or e.dtype.is_handle or e.dtype.bits >= 64:
            return (-BIG, BIG)
        return (int(e.dtype.low), int(e.dtype.high))


def _zero(e: Any) -> bool:
    return e.__class__ is IntImm and e.value == 0


def _vec_junction(e: Any) -> Any:
    conj = e.__class__ is And
    for x, y in ((e.a, e.b), (e.b, e.a)):
        if x.__class__ is Broadcast and x.value.__class__ is IntImm:
            return y if bool(x.value.value) == conj else x
    return e
