"""Conditions: comparisons in normal form, conjunctions, and assumptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any, Final

from ..ir.dtype import BOOL, DataType
from ..ir.expr import EQ, GE, GT, LE, LT, NE, And, Call, FloorMod, IntImm, Mod, Not, Or, PrimExpr
from ..ir.ops import logical_and, logical_not, logical_or
from .algebra import Algebra
from .facts import BIG, Interval
from .form import (
    MAX,
    MIN,
    PROD,
    SPLIT,
    TRUNCDIV,
    Atom,
    DoesNotFit,
    Lin,
    expr_vars,
    is_index,
    reads_state,
    same,
    skey,
)

NONNEG: Final = 0  # form >= 0
ZERO: Final = 1  # form == 0
NONZERO: Final = 2  # form != 0

TRUE: Final = IntImm(BOOL, 1)
FALSE: Final = IntImm(BOOL, 0)
_NEGATED: dict[type, type] = {LT: GE, GE: LT, GT: LE, LE: GT, EQ: NE, NE: EQ}


class Cmp:
    """A comparison of a form with zero, and how it was written: strictly or not, the greater side first."""

    __slots__ = ("form", "greater_first", "op", "strict")

    def __init__(self, op: int, form: Lin, strict: bool = True, greater_first: bool = False) -> None:
        self.op, self.form, self.strict, self.greater_first = op, form, strict, greater_first

    def negated(self) -> Cmp:
        if self.op == NONNEG:
            form = self.form.scale(-1).shift(-1)
            return Cmp(NONNEG, form, not self.strict, not self.greater_first)
        return Cmp(NONZERO if self.op == ZERO else ZERO, self.form)


def flatten(e: PrimExpr, cls: type) -> list[PrimExpr]:
    """The operands that a chain of `And` (or of `Or`) joins."""
    out: list[PrimExpr] = []
    stack: list[Any] = [e]
    while stack:
        n = stack.pop()
        if isinstance(n, (And, Or)) and n.__class__ is cls:
            stack += [n.b, n.a]
        else:
            out.append(n)
    return out


def _leans_left(e: Any) -> bool:
    """Whether a chain is written `(a and b) and c`."""
    cls = e.__class__
    while e.__class__ is cls:
        if e.b.__class__ is cls:
            return False
        e = e.a
    return True


def negation(e: Any) -> PrimExpr:
    """`not e`, with the negation moved inwards."""
    cls = e.__class__
    if cls is And or cls is Or:
        join = logical_or if cls is And else logical_and
        return join(negation(e.a), negation(e.b))
    if cls in _NEGATED and not e.a.dtype.is_float:
        return _NEGATED[cls](e.a, e.b)  # type: ignore[no-any-return]
    return logical_not(e)


def unlikely(e: Any) -> PrimExpr:
    """The condition inside `likely(...)`."""
    while e.__class__ is Call and getattr(e.op, "name", "") == "tir.likely":
        e = e.args[0]
    return e  # type: ignore[no-any-return]


class Logic(Algebra):
    """Truth: simplification of conditions and assumptions."""

    # -- comparisons -----------------------------------------------------------------------
    def comparison(self, e: Any) -> Cmp | None:
        """The comparison in normal form, or None if it does not compare indices."""
        cls = e.__class__
        if cls not in _NEGATED or not is_index(e.a.dtype):
            return None
        a, b = self.norm(e.a), self.norm(e.b)
        if cls is EQ or cls is NE:
            made = Cmp(ZERO if cls is EQ else NONZERO, a - b)
        elif cls is LT or cls is LE:
            form = (b - a).shift(-1 if cls is LT else 0)
            made = Cmp(NONNEG, form, cls is LT, False)
        else:
            form = (a - b).shift(-1 if cls is GT else 0)
            made = Cmp(NONNEG, form, cls is GT, True)
        form = self.finish(made.form.terms, made.form.const)
        return Cmp(made.op, form, made.strict, made.greater_first)

    def reduced(self, c: Cmp) -> Cmp | bool:
        """The comparison divided by the common factor of its coefficients, or its truth value."""
        form = c.form
        if not form.terms:
            return (form.const >= 0, form.const == 0, form.const != 0)[c.op]
        g = form.gcd()
        if c.op != NONNEG:
            if form.const % g:
                return c.op == NONZERO
        form = form.divide(g)
        if len(form.terms) == 1 and c.op == NONNEG:
            # x // 4 < 3  ->  x < 12
            ((a, k),) = form.terms.items()
            if a.kind == SPLIT and a.args[2] is None:
                e, lower, _ = a.args
                if k > 0:
                    form = e.shift(form.const * lower)
                else:
                    form = e.scale(-1).shift(form.const * lower + lower - 1)
                return self.reduced(Cmp(NONNEG, form, c.strict, c.greater_first))
            if a.kind == TRUNCDIV and not a.args[1].terms and a.args[1].const > 0:
                # truncdiv(x, 4) > -3  ->  x > -12: both signs of x, since the quotient is odd in x
                e, d = a.args[0].scale(k), a.args[1].const
                form = e.shift(form.const * d + (d - 1 if form.const >= 0 else 0))
                return self.reduced(Cmp(NONNEG, form, c.strict, c.greater_first))
        return Cmp(c.op, form, c.strict, c.greater_first)

    def _without_fine_parts(self, c: Cmp) -> Cmp:
        """The comparison without what cannot change its truth.

        x * 8 + y < 16    ->  x < 2     where 0 <= y < 8
        min(x, 11) < 10   ->  x < 10
        """
        form = c.form
        if c.op != NONNEG:
            return c
        if len(form.terms) == 1:
            return self._without_operands(c)
        for g in sorted({abs(k) for k in form.terms.values()} - {1}, reverse=True):
            coarse = {a: k // g for a, k in form.terms.items() if k % g == 0}
            low, high = self.bound(Lin({a: k for a, k in form.terms.items() if k % g}, form.const))
            if low // g == high // g:
                return Cmp(NONNEG, Lin(coarse, low // g), c.strict, c.greater_first)
        return c

    def _without_operands(self, c: Cmp) -> Cmp:
        """A comparison of a minimum or maximum, only one operand of which can decide it, with that operand alone."""
        ((a, k),) = c.form.terms.items()
        if abs(k) != 1 or a.kind != (MIN if k < 0 else MAX):
            return c
        forms = [e.scale(k).shift(c.form.const) for e in a.args]
        left = [e for e in forms if self.bound(e)[1] >= 0]
        return Cmp(NONNEG, left[0], c.strict, c.greater_first) if len(left) == 1 else c

    def decide(self, c: Cmp) -> bool | None:
        """The truth of a comparison, if it is known."""
        form = c.form
        low, high = self.bound(form)
        if c.op == NONNEG:
            if low >= 0:
                return True
            if high < 0:
                return False
            if self.nonneg(form):
                return True
            if self.nonneg(form.scale(-1).shift(-1)):
                return False
            low, high = self._corner_bound(form)
            return True if low >= 0 else False if high < 0 else None
        equal: bool | None = None
        if low > 0 or high < 0:
            equal = False
        elif low == high:
            equal = True
        else:
            r, b = self.residue(form)
            if (b % r if r else b) != 0 or self._never_zero(form):
                equal = False
            elif self.nonneg(form):
                if self.nonneg(form.shift(-1)):
                    equal = False
                elif self.nonneg(form.scale(-1)):
                    equal = True
            elif self.nonneg(form.scale(-1).shift(-1)):
                equal = False
            if equal is None and self.nonzero and self._is_nonzero(form):
                equal = False
        if equal is None:
            return None
        return equal if c.op == ZERO else not equal

    def _corner_bound(self, form: Lin) -> Interval:
        """The bounds of a sum with one product `x * y`: those at the corners of the box of x and y."""
        products = [a for a in form.terms if a.kind == PROD]
        if len(products) != 1 or len(products[0].args) != 2 or len(form.terms) < 2:
            return (-BIG, BIG)
        x, y = products[0].args
        xs, ys = self.atom_bound(x), self.atom_bound(y)
        if x is y or max(-xs[0], -ys[0], xs[1], ys[1]) >= 1 << 62:
            return (-BIG, BIG)
        k, m, n = form.terms[products[0]], form.terms.get(x, 0), form.terms.get(y, 0)
        ends = [k * u * v + m * u + n * v for u in xs for v in ys]
        rest = {a: c for a, c in form.terms.items() if a not in (x, y, products[0])}
        low, high = self.bound(Lin(rest, form.const))
        return (low + min(ends), high + max(ends))

    def _is_nonzero(self, form: Lin) -> bool:
        """Whether the form is equal to one that is known not to be zero, as `i - k` to `j - k` where `i == j`."""
        for known in self.nonzero.values():
            for left in (form - known, form + known):
                if self.nonneg(left) and self.nonneg(left.scale(-1)):
                    return True
        return False

    def _never_zero(self, form: Lin) -> bool:
        """Whether the sum, taken modulo the factor that some coefficients share, misses zero."""
        if len(form.terms) < 2:
            return False
        for g in {abs(k) for k in form.terms.values()} - {1}:
            fine = Lin({a: k for a, k in form.terms.items() if k % g}, form.const)
            low, high = self.bound(fine)
            if low // g == high // g and low % g and high % g:
                return True
        return False

    def condition(self, c: Cmp, dtype: DataType) -> PrimExpr:
        """The comparison as an expression, with the larger part of each side where it was written."""
        form = c.form
        plus = {a: k for a, k in form.terms.items() if k > 0}
        minus = {a: -k for a, k in form.terms.items() if k < 0}
        build = self.forms.build
        if c.op != NONNEG:
            left, right = (plus, minus) if plus else (minus, plus)
            const = form.const if plus else -form.const
            cls: Any = EQ if c.op == ZERO else NE
            if not right or const <= 0:
                return cls(build(Lin(left, 0), dtype), build(Lin(right, -const), dtype))  # type: ignore[no-any-return]
            return cls(build(Lin(left, const), dtype), build(Lin(right, 0), dtype))  # type: ignore[no-any-return]
        # minus < plus + const, or minus <= plus + const
        const = form.const + (1 if c.strict else 0)
        if not plus or (const > 0 and minus):
            less, more = Lin(minus, 0), Lin(plus, const)
        else:
            less, more = Lin(minus, -const), Lin(plus, 0)
        if c.greater_first:
            cls = GT if c.strict else GE
            return cls(build(more, dtype), build(less, dtype))  # type: ignore[no-any-return]
        cls = LT if c.strict else LE
        return cls(build(less, dtype), build(more, dtype))  # type: ignore[no-any-return]

    def simp_comparison(self, e: Any) -> PrimExpr:
        c = self.comparison(e)
        if c is None:
            return self.simp_other_comparison(e)
        made = self._settled(c)
        if isinstance(made, bool):
            return TRUE if made else FALSE
        try:
            out = self.condition(made, e.a.dtype)
        except DoesNotFit:
            out = e
        out = e if same(out, e) else out
        known = self._known_truth(out)
        return out if known is None else known

    def _settled(self, c: Cmp) -> Cmp | bool:
        """The truth of a comparison, or the comparison in its simplest form."""
        made = self.reduced(c)
        if isinstance(made, bool):
            return made
        truth = self.decide(made)
        if truth is not None:
            return truth
        less = self._without_fine_parts(made)
        return made if less is made else self._settled(less)

    def simp_other_comparison(self, e: Any) -> PrimExpr:
        """Comparisons of floats, wrapping integers, truth values and vectors."""
        raise NotImplementedError

    def _known_truth(self, e: PrimExpr) -> PrimExpr | None:
        if not self.truths:
            return None
        found = self.truths.get(skey(e))
        if found is not None:
            return TRUE if found[1] else FALSE
        found = self.truths.get(skey(negation(e)))
        return None if found is None else FALSE if found[1] else TRUE

    # -- and, or, not ----------------------------------------------------------------------
    def simp_junction(self, e: Any) -> PrimExpr:
        """`And` or `Or`: each operand is simplified under the assumption of the ones before it."""
        cls = e.__class__
        conj = cls is And
        stop, skip = (0, 1) if conj else (1, 0)
        parts = flatten(e, cls)
        kept: list[PrimExpr] = []
        forms: list[Cmp | None] = []
        with self.scope():
            for p in parts:
                for made in flatten(self.simp(p), cls):
                    if made.__class__ is IntImm:
                        if made.value == stop:  # type: ignore[attr-defined]
                            return FALSE if conj else TRUE
                        if made.value == skip:  # type: ignore[attr-defined]
                            continue
                    self._keep(made, kept, forms, conj)
                    self.assume(made, conj)
        if not kept:
            return TRUE if conj else FALSE
        if len(kept) == len(parts) and all(a is b for a, b in zip(kept, parts)) and _leans_left(e):
            out = e
        else:
            out = kept[0]
            for p in kept[1:]:
                out = cls(out, p)
        held = self.truths.get(skey(out)) if self.truths else None
        return out if held is None else TRUE if held[1] else FALSE  # type: ignore[no-any-return]

    def _keep(self, e: PrimExpr, kept: list[PrimExpr], forms: list[Cmp | None], conj: bool) -> None:
        """Add an operand, replacing an earlier one that it makes redundant."""
        c = self.comparison(unlikely(e))
        if c is not None and c.op == NONNEG and c.form.terms:
            for n, other in enumerate(forms):
                if other is not None and (c.form - other.form).terms == {}:
                    # The same sum against another constant: one of the two implies the other.
                    if (c.form.const < other.form.const) == conj:
                        kept[n], forms[n] = e, c
                    return
            forms.append(c)
        else:
            forms.append(None)
        kept.append(e)

    def simp_not(self, e: Any) -> PrimExpr:
        inner = self.simp(e.a)
        made = negation(inner)
        if made.__class__ is Not:
            return e if inner is e.a else made  # type: ignore[no-any-return]
        return self.simp(made)  # type: ignore[no-any-return]

    # -- assumptions -----------------------------------------------------------------------
    @contextmanager
    def assuming(self, condition: PrimExpr, holds: bool = True, reads: bool = True) -> Iterator[None]:
        """A scope in which the condition is known to hold (or not to)."""
        with self.scope():
            self.assume(condition, holds, reads)
            yield

    def assume(self, condition: PrimExpr, holds: bool = True, reads: bool = True) -> None:
        """Assume the condition from now on.

        With `reads` off, its parts that read memory are ignored: memory may change.
        """
        e: Any = unlikely(condition)
        if e.dtype.lanes != 1:
            return
        cls = e.__class__
        if cls is Not:
            self.assume(e.a, not holds, reads)
            return
        if cls is (And if holds else Or):
            self.assume(e.a, holds, reads)
            self.assume(e.b, holds, reads)
            return
        if not reads and reads_state(e):
            return
        if cls is not IntImm:
            self._set(self.truths, skey(e), (frozenset(expr_vars(e)), holds))
        if holds and cls is EQ:
            self._assume_truncated(e)
        c = self.comparison(e)
        if c is not None:
            made = self.reduced(c if holds else c.negated())
            if isinstance(made, Cmp):
                self._assume_cmp(made)

    def _assume_truncated(self, e: EQ) -> None:
        """From `truncmod(x, c) == r`: x has the residue r, and is positive if r is."""
        if e.a.__class__ is not Mod or e.b.__class__ is not IntImm or not is_index(e.a.dtype):
            return
        x, divisor, rest = e.a.a, e.a.b, e.b.value  # type: ignore[attr-defined]
        if divisor.__class__ is not IntImm or divisor.value < 1 or abs(rest) >= divisor.value:
            return
        self.assume(EQ(FloorMod(x, divisor), IntImm(x.dtype, rest % divisor.value)))
        if rest:
            self.assume((GT if rest > 0 else LT)(x, IntImm(x.dtype, 0)))

    def _assume_cmp(self, c: Cmp) -> None:
        if c.op == NONNEG:
            self._assume_nonneg(c.form)
        elif c.op == ZERO:
            self._assume_residue(c.form)
            self._assume_nonneg(c.form)
            self._assume_nonneg(c.form.scale(-1))
        elif len(c.form.terms) == 1:
            ((a, k),) = c.form.terms.items()
            if c.form.const % k == 0:
                low, high = self.atom_bound(a)
                if low == -c.form.const // k:
                    self._tighten(a, low + 1, high)
                elif high == -c.form.const // k:
                    self._tighten(a, low, high - 1)
        else:
            self._set(self.nonzero, c.form.key, c.form)
            low, high = self.bound(c.form)
            if low == 0:
                self._assume_nonneg(c.form.shift(-1))
            elif high == 0:
                self._assume_nonneg(c.form.scale(-1).shift(-1))

    def _assume_nonneg(self, form: Lin) -> None:
        if not form.terms:
            return
        form = form.divide(form.gcd())
        if len(form.terms) > 1:
            self._add_fact(form)
        # The bound that the fact sets to each of its atoms, given the bounds of the others.
        high = form.const
        for a, k in form.terms.items():
            low_a, high_a = self.atom_bound(a)
            high += k * (high_a if k > 0 else low_a)
        if len(form.terms) > 1 and high >= 1 << 100:
            return
        for a, k in form.terms.items():
            low_a, high_a = self.atom_bound(a)
            if len(form.terms) == 1:
                rest = form.const
            else:
                rest = high - (k * high_a if k > 0 else k * low_a)
            if k > 0:
                self._tighten(a, -(rest // k), high_a)
            else:
                self._tighten(a, low_a, rest // -k)

    def _add_fact(self, form: Lin) -> None:
        for a in form.terms:
            self._set(self.about, a, (*self.about.get(a, ()), form))
        key = frozenset(form.terms.items())
        low, high = self.sums.get(key, (-BIG, BIG))
        self._set(self.sums, key, (max(low, -form.const), high))
        key = frozenset((a, -k) for a, k in form.terms.items())
        low, high = self.sums.get(key, (-BIG, BIG))
        self._set(self.sums, key, (low, min(high, form.const)))

    def _tighten(self, a: Atom, low: int, high: int) -> None:
        old = self.atom_bound(a)
        if low <= old[0] and high >= old[1]:
            return
        low, high = max(low, old[0]), min(high, old[1])
        if low > high:
            return  # a contradiction: the statement is never reached
        self._set(self.bounds, a, (low, high))
        if a.kind == SPLIT and a.args[2] is None:
            e, lower, _ = a.args
            if low > old[0]:
                self._assume_nonneg(e.shift(-low * lower))
            if high < old[1]:
                self._assume_nonneg(e.scale(-1).shift(high * lower + lower - 1))

    def _assume_residue(self, form: Lin) -> None:
        """`x % 4 == 3` says that x is 3 modulo 4."""
        if len(form.terms) != 1:
            return
        ((a, k),) = form.terms.items()
        if a.kind != SPLIT or a.args[1] != 1 or a.args[2] is None or abs(k) != 1:
            return
        e, _, m = a.args
        if len(e.terms) != 1:
            return
        ((x, c),) = e.terms.items()
        if gcd(c, m) != 1:
            return
        base = (-form.const * k - e.const) * pow(c, -1, m) % m
        old = self.atom_residue(x)
        joined = _meet((m, base), old)
        if joined is not None:
            self._set(self.residues, x, joined)


def _meet(x: tuple[int, int], y: tuple[int, int]) -> tuple[int, int] | None:
    """The intersection of two residue classes, if it is not empty."""
    (m, a), (n, b) = x, y
    if n == 0:
        return y
    g = gcd(m, n)
    if (a - b) % g:
        return None
    step = m // g * n
    return (step, (a + m * ((b - a) // g * pow(m // g, -1, n // g) % (n // g))) % step)
