"""Proofs that a form is not negative: a short search for known facts that add up to it.

To show `g >= 0`, take a fact `f >= 0` that shares an atom with g and the sign of its coefficient, subtract
the multiple of f that removes the atom, and continue with the remainder, until its bounds suffice.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .bounds import Bounds
from .form import MAX, MIN, PROD, SELECT, SPLIT, SYMDIV, SYMMOD, VAR, Atom, Lin, of_atom

_FUEL = 48
_DEPTH = 5


class Prover(Bounds):
    """Order between forms."""

    def nonneg(self, form: Lin) -> bool:
        """Whether the form is known not to be negative."""
        if self.bound(form)[0] >= 0:
            return True
        if not self._worth_a_search(form):
            return False
        known = self._proofs.get(form.key)
        if known is None:
            known = self._proofs[form.key] = self._search(form, _DEPTH, [_FUEL], set())
        return known

    def known_le(self, a: Lin, b: Lin) -> bool:
        """Whether `a <= b` is known."""
        return self.nonneg(b - a)

    def _worth_a_search(self, form: Lin) -> bool:
        about = self.about
        return any(a.kind != VAR or a in about for a in form.terms)

    def _search(self, form: Lin, depth: int, fuel: list[int], seen: set[Any]) -> bool:
        form = form.divide(form.gcd())
        if self.bound(form)[0] >= 0:
            return True
        if depth == 0 or fuel[0] <= 0 or form.key in seen or len(form.terms) > 12:
            return False
        seen.add(form.key)
        fuel[0] -= 1
        for a, c in form.terms.items():
            cases = _cases(a, c)
            if cases:
                rest = form.without(a)
                return all(self._search(rest + e.scale(c), depth - 1, fuel, seen) for e in cases)
        for a, c in form.terms.items():
            if a.kind == SYMDIV and c in (1, -1) and self._search_quotient(form, a, depth, fuel, seen):
                return True
            for fact in self._facts_on(a):
                k = fact.terms.get(a, 0)
                if k * c > 0:
                    # a whole number above -1 is not negative: k times it may be k - 1 short of that
                    left = form.scale(abs(k)).shift(abs(k) - 1) - fact.scale(abs(c))
                    if self._search(left, depth - 1, fuel, seen):
                        return True
        return False

    def _search_quotient(self, form: Lin, a: Atom, depth: int, fuel: list[int], seen: set[Any]) -> bool:
        """Bounds of a quotient by a size, from bounds of what it divides.

        x // n <= g   if   x < (g + 1) * n          -g <= x // n   if   -g * n <= x
        """
        x, by = a.args
        size, rest, c = by.single(), form.without(a), form.terms[a]
        if size is None or self.bound(by)[0] < 0:  # it divides, so it is not 0
            return False
        if any(t.kind == PROD for t in rest.terms):
            return False
        need = (
            self._times_atom(rest.shift(1), size) - x.shift(1) if c < 0 else self._times_atom(rest, size) + x
        )
        return self._search(need, depth - 1, fuel, seen)

    def _facts_on(self, a: Atom) -> Iterator[Lin]:
        """Forms known not to be negative in which the atom occurs."""
        yield from self.about.get(a, ())
        kind, args = a.kind, a.args
        if kind == SPLIT:
            e, lower, upper = args
            if upper is None:
                left = e - Lin({a: lower}, 0)
                yield left
                yield left.scale(-1).shift(lower - 1)
            elif self.bound(e)[0] >= 0:
                yield e - Lin({a: lower}, 0)
        elif kind in (MIN, MAX):
            for e in args:
                yield (e - of_atom(a)).scale(1 if kind == MIN else -1)
        elif kind == SYMMOD:
            if self.bound(args[1])[0] >= 0:  # it divides, so it is not 0
                yield (args[1] - of_atom(a)).shift(-1)
                if self.bound(args[0])[0] >= 0:
                    yield args[0] - of_atom(a)
        elif kind == PROD:
            yield from self._product_facts(a)

    def _product_facts(self, a: Atom) -> Iterator[Lin]:
        factors = a.args
        for n, f in enumerate(factors):
            others = [*factors[:n], *factors[n + 1 :]]
            rest = self.forms.prod(others)
            if f.kind == SYMDIV and self.bound(f.args[1])[0] > 0 and f.args[1].single() is rest:
                left = f.args[0] - of_atom(a)
                yield left
                yield left.scale(-1) + f.args[1].shift(-1)
            if self.atom_bound(rest)[0] < 0:
                continue
            low, high = self.atom_bound(f)
            if low > -(1 << 62):
                yield of_atom(a) - of_atom(rest).scale(low)
            if high < 1 << 62:
                yield of_atom(rest).scale(high) - of_atom(a)
            for fact in self._facts_on(f):
                if f in fact.terms and all(x.kind != PROD for x in fact.terms):
                    yield self._times_atom(fact, rest)

    def _times_atom(self, form: Lin, by: Atom) -> Lin:
        terms: dict[Atom, int] = {}
        for a, c in form.terms.items():
            p = self.forms.prod([a, by])
            terms[p] = terms.get(p, 0) + c
        if form.const:
            terms[by] = terms.get(by, 0) + form.const
        return Lin({a: c for a, c in terms.items() if c}, 0)


def _cases(a: Atom, c: int) -> tuple[Lin, ...]:
    """The forms that a term may equal, all of which must be checked."""
    if a.kind == SELECT:
        return (a.args[1], a.args[2])
    if (a.kind == MIN and c > 0) or (a.kind == MAX and c < 0):
        return a.args
    return ()
