"""Symbolic sizes of programs of the virtual machine as polynomials.

s2 = s0 * 4 + s1,  s3 = s1 + 4 * s0      the same polynomial, so the same number
atoms: a size that is read from a tensor, or a quotient, a remainder, a minimum, a maximum of polynomials
"""

from __future__ import annotations

import operator
from typing import Any, Final

from .metadata import Dim

Poly = tuple[tuple[tuple[int, ...], int], ...]  # (atoms of a product, its factor), in order

ONE: Final[Poly] = (((), 1),)
LARGEST: Final = 1 << 63  # sizes are smaller
_TERMS, _DEGREE = 24, 12  # beyond these a polynomial becomes an atom


def constant(value: int) -> Poly:
    """A number."""
    return (((), value),) if value else ()


def known(poly: Poly) -> int | None:
    """The value of a constant polynomial, or None."""
    if not poly:
        return 0
    return poly[0][1] if len(poly) == 1 and not poly[0][0] else None


_FOLD: Final[dict[str, Any]] = {"//": operator.floordiv, "%": operator.mod, "min": min, "max": max}


class Sizes:
    """Makes atoms and computes with polynomials over them."""

    def __init__(self) -> None:
        self.count = 0
        self._atoms: dict[Any, int] = {}

    def fresh(self) -> Poly:
        """A new atom: an unknown non-negative number."""
        self.count += 1
        return (((self.count,), 1),)

    def _atom(self, *key: Any) -> Poly:
        """The same atom for the same operation on the same polynomials."""
        if key not in self._atoms:
            self.count += 1
            self._atoms[key] = self.count
        return (((self._atoms[key],), 1),)

    def _made(self, terms: dict[tuple[int, ...], int], *key: Any) -> Poly:
        kept = {m: f for m, f in terms.items() if f}
        if len(kept) > _TERMS or any(len(m) > _DEGREE or abs(f) >= LARGEST for m, f in kept.items()):
            return self._atom(*key)
        return tuple(sorted(kept.items()))

    def add(self, a: Poly, b: Poly, factor: int = 1) -> Poly:
        terms = dict(a)
        for m, f in b:
            terms[m] = terms.get(m, 0) + factor * f
        return self._made(terms, "+", a, b, factor)

    def multiply(self, a: Poly, b: Poly) -> Poly:
        terms: dict[tuple[int, ...], int] = {}
        for m, f in a:
            for n, g in b:
                both = tuple(sorted(m + n))
                terms[both] = terms.get(both, 0) + f * g
        return self._made(terms, "*", a, b)

    def product(self, factors: Any) -> Poly:
        """All of them multiplied."""
        out = ONE
        for p in factors:
            out = self.multiply(out, p)
        return out

    def apply(self, op: str, a: Poly, b: Poly) -> Poly:
        """An operation of dimensions."""
        if op in ("+", "-"):
            return self.add(a, b, 1 if op == "+" else -1)
        if op == "*":
            return self.multiply(a, b)
        x, y = known(a), known(b)
        if x is not None and y is not None and (y != 0 or op in ("min", "max")):
            return constant(_FOLD[op](x, y))
        return self._atom(op, a, b)

    def of(self, dim: Dim, names: dict[str, Poly]) -> Poly:
        """A dimension over sizes that have polynomials."""
        if isinstance(dim, int):
            return constant(dim)
        if isinstance(dim, str):
            return names[dim]
        return self.apply(dim[0], self.of(dim[1], names), self.of(dim[2], names))

    def replaced(self, poly: Poly, equal: dict[int, Poly]) -> Poly:
        """A polynomial with atoms replaced by what they are equal to."""
        if not equal or not any(a in equal for m, _ in poly for a in m):
            return poly
        out: Poly = ()
        for m, f in poly:
            term = constant(f)
            for a in m:
                term = self.multiply(term, equal.get(a, (((a,), 1),)))
            out = self.add(out, term)
        return out
