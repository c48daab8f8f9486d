"""The analyzer: facts about integers, simplification and proofs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Flag, IntEnum
from typing import Any, ClassVar, NamedTuple

from ..ir.deep import deeply
from ..ir.expr import IntImm, IterVar, Range, Var, convert
from ..ir.node import Node
from .facts import BIG
from .form import Lin, is_index
from .logic import NONNEG, ZERO, Cmp
from .scalable import for_each_vscale, has_vscale
from .vector import Vectors


class _Ends(NamedTuple):
    min_value: int
    max_value: int


class ConstIntBound(_Ends):
    """The least and the greatest value that an expression can take."""

    __slots__ = ()
    POS_INF: ClassVar[int] = (1 << 63) - 1
    NEG_INF: ClassVar[int] = -((1 << 63) - 1)


class ModularSet(NamedTuple):
    """The numbers `base + k * coeff`; a coefficient of 0 means just the base."""

    coeff: int
    base: int


class ProofStrength(IntEnum):
    """The effort of a proof. Symbolic bounds are always used here; the classic API has an option for them."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class Extension(Flag):
    """Rules of the simplifier that the classic API makes an option. All of them are always used here."""

    NoExtensions = 0
    TransitivelyProveInequalities = 1
    ConvertBooleanToAndOfOrs = 2
    ApplyConstraintsToBooleanBranches = 4
    ComparisonOfProductAndSum = 8


class Analyzer(Vectors):
    """Facts about integer variables, and simplification and proof by means of them.

    Signed 32 and 64 bit arithmetic is assumed not to overflow; narrower and unsigned types wrap around.
    """

    @property
    def enabled_extensions(self) -> Extension:
        """The rules that the classic API makes an option: all of them, whatever is set."""
        return ~Extension.NoExtensions

    @enabled_extensions.setter
    def enabled_extensions(self, flags: Extension) -> None:
        Extension(flags)

    # -- facts -----------------------------------------------------------------------------
    def bind(self, var: Any, expr: Any, override: bool = False) -> None:
        """Bind a variable to an expression, or to a `Range`. Earlier facts about it are dropped."""
        v = var.var if isinstance(var, IterVar) else var
        if v in self.values or self.forms.var(v) in self.bounds or self.forms.var(v) in self.about:
            self._forget_var(v)
        if isinstance(expr, Range):
            self.bind_range(v, expr)
            return
        value = convert(expr)
        if is_index(value.dtype):
            self._set(self.values, v, self.norm(value))
        elif value.dtype.is_integral and value.dtype.lanes == 1:
            self._set(self.bounds, self.forms.var(v), self.value_bound(value))

    def bind_loop(self, var: Var, min_value: Any, extent: Any) -> None:
        """Bind a loop variable to `extent` values from `min_value` on."""
        self.bind(var, Range.from_min_extent(min_value, extent))

    def bind_ranges(self, doms: Mapping[Var, Range]) -> None:
        """Bind variables to their domains."""
        for v, dom in doms.items():
            self.bind(v, dom)

    def bind_range(self, var: Var, dom: Range) -> None:
        if isinstance(dom.min, IntImm) and isinstance(dom.extent, IntImm):
            first, size = dom.min.value, dom.extent.value
            if size > 1 or not is_index(var.dtype):  # as most loops are
                self._set(self.bounds, self.forms.var(var), (first, first + size - 1))
                return
        if not is_index(var.dtype):
            return
        low, length = self.norm(dom.min), self.norm(dom.extent)
        if not length.terms and length.const == 1:
            self._set(self.values, var, low)
            return
        atom = self.forms.var(var)
        last = (low + length).shift(-1)
        low_bound, high_bound = self.bound(low)[0], self.bound(last)[1]
        if low_bound <= high_bound:
            self._set(self.bounds, atom, (low_bound, high_bound))
        for fact in (Lin({atom: 1}, 0) - low, last - Lin({atom: 1}, 0)):
            if len(fact.terms) > 1:
                self._add_fact(fact)

    def update(self, var: Var, info: Any, override: bool = False) -> None:
        """Set a fact about a variable: a `ConstIntBound` or a `ModularSet`."""
        atom = self.forms.var(var)
        if isinstance(info, ConstIntBound):
            low = -BIG if info.min_value <= ConstIntBound.NEG_INF else info.min_value
            high = BIG if info.max_value >= ConstIntBound.POS_INF else info.max_value
            self._set(self.bounds, atom, (low, high))
        elif isinstance(info, ModularSet):
            self._set(self.residues, atom, (info.coeff, info.base))
        else:
            raise TypeError(f"update({var.name}): a ConstIntBound or a ModularSet, not {type(info).__name__}")

    @contextmanager
    def constraint_scope(self, constraint: Any) -> Iterator[None]:
        """A scope in which the condition is assumed. Its parts that read memory are ignored."""
        with self.assuming(convert(constraint), True, False):
            yield

    def copy(self) -> Analyzer:
        """An independent analyzer with the same facts."""
        made = Analyzer()
        self._copy_into(made)
        return made

    # -- questions -------------------------------------------------------------------------
    @deeply
    def const_int_bound(self, expr: Any) -> ConstIntBound:
        """The constant bounds of an expression."""
        self._memo = {}
        low, high = self.any_bound(convert(expr))
        inf = ConstIntBound.POS_INF
        return ConstIntBound(max(low, -inf), min(high, inf))

    def const_int_bound_is_bound(self, var: Var) -> bool:
        """Whether bounds of a variable are known."""
        return var in self.values or self.forms.var(var) in self.bounds

    @deeply
    def modular_set(self, expr: Any) -> ModularSet:
        """The residue class of the expression."""
        self._memo = {}
        e = convert(expr)
        if not is_index(e.dtype):
            value = e.value if e.__class__ is IntImm else None  # type: ignore[attr-defined]
            return ModularSet(1, 0) if value is None else ModularSet(0, value)
        return ModularSet(*self.residue(self.norm(e)))

    @deeply
    def simplify(self, expr: Any, steps: int = 2) -> Any:
        """The expression in normal form; the same object if it is in normal form already."""
        self._memo = {}
        e = expr if isinstance(expr, Node) else convert(expr)
        try:
            return self.simp(e)
        finally:
            self._memo = {}

    rewrite_simplify = simplify
    canonical_simplify = simplify

    def can_prove(self, cond: Any, strength: ProofStrength = ProofStrength.DEFAULT) -> bool:
        """Whether the condition provably holds here."""
        if isinstance(cond, bool):
            return cond
        made = self.simplify(cond)
        if made.__class__ is IntImm:
            return bool(made.value != 0)
        return has_vscale(made) and for_each_vscale(made, self.can_prove)

    @deeply
    def can_prove_equal(self, lhs: Any, rhs: Any) -> bool:
        """Whether both are provably equal."""
        a, b = convert(lhs), convert(rhs)
        if a is b:
            return True
        if is_index(a.dtype) and is_index(b.dtype):
            self._memo = {}
            d = self.norm(a) - self.norm(b)
            return self.decide(Cmp(ZERO, self.finish(dict(d.terms), d.const))) is True
        return self.can_prove(a.equal(b))

    def can_prove_less(self, lhs: Any, rhs: Any) -> bool:
        """Whether `lhs < rhs` provably holds."""
        return self._nonneg_difference(rhs, lhs, -1)

    def can_prove_less_equal(self, lhs: Any, rhs: Any) -> bool:
        """Whether `lhs <= rhs` provably holds."""
        return self._nonneg_difference(rhs, lhs, 0)

    def can_prove_greater_equal(self, expr: Any, lower_bound: Any) -> bool:
        """Whether `expr >= lower_bound` provably holds."""
        return self._nonneg_difference(expr, lower_bound, 0)

    @deeply
    def _nonneg_difference(self, a: Any, b: Any, shift: int) -> bool:
        x, y = convert(a), convert(b)
        if not (is_index(x.dtype) and is_index(y.dtype)):
            return self.can_prove(x > y if shift else x >= y)
        self._memo = {}
        return self.decide(Cmp(NONNEG, (self.norm(x) - self.norm(y)).shift(shift))) is True

    def equivalent(self, lhs: Any, rhs: Any) -> bool:
        """Whether both are provably equal (another name for `can_prove_equal`)."""
        return self.can_prove_equal(lhs, rhs)

    @deeply
    def int_set(self, expr: Any, dom_map: Mapping[Any, Any] | None = None) -> Any:
        """The set of values that the expression takes over the domains."""
        from .int_set import eval_set

        return eval_set(convert(expr), dom_map or {}, self)
