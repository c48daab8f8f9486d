"""Constant bounds and residues of forms."""

from __future__ import annotations

from math import gcd
from typing import Any

from ..ir.expr import PrimExpr, SizeVar
from .facts import BIG, Facts, Interval, Residue, clip
from .form import (
    CAST,
    MAX,
    MIN,
    OPAQUE,
    PROD,
    SELECT,
    SPLIT,
    SYMDIV,
    SYMMOD,
    TRUNCDIV,
    TRUNCMOD,
    VAR,
    Atom,
    Lin,
)


def _trunc(a: int, b: int) -> int:
    q = abs(a) // abs(b)
    return q if (a < 0) == (b < 0) else -q


def times(x: Interval, y: Interval) -> Interval:
    """The bounds of a product."""
    ends = [x[0] * y[0], x[0] * y[1], x[1] * y[0], x[1] * y[1]]
    return clip(min(ends), max(ends))


def divided(x: Interval, y: Interval, floor: bool) -> Interval:
    """The bounds of a quotient, which is 0 where the divisor is; the least number over -1 is itself."""
    divisors = []
    if y[1] >= 1:
        divisors += [max(y[0], 1), y[1]]
    if y[0] <= -1:
        divisors += [y[0], min(y[1], -1)]
    if not divisors:
        return (-BIG, BIG)
    ends = [a // b if floor else _trunc(a, b) for a in x for b in divisors]
    if y[0] <= 0 <= y[1]:
        ends.append(0)
    if y[0] <= -1 <= y[1] and x[0] <= -(1 << 31):
        ends.append(x[0])
    return clip(min(ends), max(ends))


def truncated_mod(x: Interval, y: Interval) -> Interval:
    """The bounds of a remainder that has the sign of x."""
    most = max(abs(y[0]), abs(y[1])) - 1
    return clip(max(x[0], -most) if x[0] < 0 else 0, min(x[1], most) if x[1] > 0 else 0)


def mul_residues(x: Residue, y: Residue) -> Residue:
    c = gcd(gcd(x[0] * y[0], x[0] * y[1]), x[1] * y[0])
    b = x[1] * y[1]
    return (c, b % c if c else b)


def join_residues(x: Residue, y: Residue) -> Residue:
    """The join of two residue classes: it contains both."""
    c = gcd(gcd(x[0], y[0]), x[1] - y[1])
    return (c, x[1] % c if c else x[1])


class Bounds(Facts):
    """Bounds and residues of forms, from those of variables upwards."""

    # Defined by the subclass: conversion of expressions to forms and conditions, for opaque atoms.
    def norm(self, e: PrimExpr) -> Lin:
        raise NotImplementedError

    def simp(self, e: Any) -> Any:
        raise NotImplementedError

    def bound(self, form: Lin) -> Interval:
        """The least and the greatest value that the form can take."""
        low = high = form.const
        for a, c in form.terms.items():
            x, y = self._bound_cache.get(a) or self.atom_bound(a)
            if c > 0:
                low += c * x
                high += c * y
            else:
                low += c * y
                high += c * x
        if self.sums and len(form.terms) > 1:
            g = form.gcd()
            found = self.sums.get(frozenset((a, c // g) for a, c in form.terms.items()))
            if found is not None:
                low = max(low, found[0] * g + form.const)
                high = min(high, found[1] * g + form.const)
        return clip(low, high)

    def atom_bound(self, a: Atom) -> Interval:
        found = self._bound_cache.get(a)
        if found is None:
            known = self.bounds.get(a)
            if known is None:
                found = self._atom_bound(a)
            elif a.kind == VAR:
                found = known
            else:
                low, high = self._atom_bound(a)
                found = (max(low, known[0]), min(high, known[1]))
            self._bound_cache[a] = found
        return found

    def _atom_bound(self, a: Atom) -> Interval:
        kind, args = a.kind, a.args
        if kind == VAR:
            whole = _dtype_bound(a)
            return (max(whole[0], 0), whole[1]) if args[0].__class__ is SizeVar else whole
        if kind == SPLIT:
            return self._split_bound(*args)
        if kind == PROD:
            out = self.atom_bound(args[0])
            for n, other in enumerate(args[1:], 1):
                out = times(out, self.atom_bound(other))
                if n == 1 and other is args[0]:
                    out = (max(out[0], 0), out[1])
            return out
        if kind in (MIN, MAX):
            ends = [self.bound(x) for x in args]
            pick = min if kind == MIN else max
            return (pick(e[0] for e in ends), pick(e[1] for e in ends))
        if kind == CAST:
            low, high = self.bound(args[0])
            whole = (int(a.dtype.low), int(a.dtype.high))
            return (low, high) if whole[0] <= low and high <= whole[1] else whole
        if kind == SELECT:
            x, y = self.bound(args[1]), self.bound(args[2])
            return (min(x[0], y[0]), max(x[1], y[1]))
        if kind in (SYMDIV, TRUNCDIV):
            return divided(self.bound(args[0]), self.bound(args[1]), kind == SYMDIV)
        if kind == SYMMOD:
            return self._mod_bound(self.bound(args[0]), self.bound(args[1]))
        if kind == TRUNCMOD:
            return truncated_mod(self.bound(args[0]), self.bound(args[1]))
        assert kind == OPAQUE
        whole = _dtype_bound(a)
        if a in self._asked:
            return whole
        self._asked.add(a)  # its parts may be compared with facts about the whole
        low, high = self._opaque_bound(args[0])
        self._asked.discard(a)
        return (max(low, whole[0]), min(high, whole[1]))

    def _opaque_bound(self, expr: PrimExpr) -> Interval:
        raise NotImplementedError

    def _split_bound(self, e: Lin, lower: int, upper: int | None) -> Interval:
        low, high = self.bound(e)
        if upper is None:
            return clip(low // lower, high // lower)
        if low // upper == high // upper:
            return (low % upper // lower, high % upper // lower)
        if lower == 1:
            c, b = self.residue(e)
            g = gcd(c, upper)
            return (b % g, upper - g + b % g)
        return (0, upper // lower - 1)

    @staticmethod
    def _mod_bound(x: Interval, d: Interval) -> Interval:
        if d[0] > 0:
            if x[0] >= 0:
                return (0, min(x[1], d[1] - 1)) if x[1] >= d[0] else x
            return (0, d[1] - 1)
        if d[1] < 0:
            return (d[0] + 1, 0)
        if x[0] >= 0 and d[0] >= 0:
            return (0, min(x[1], max(d[1] - 1, 0)))
        return (min(d[0] + 1, 0), max(d[1] - 1, 0))

    # -- residues --------------------------------------------------------------------------
    def residue(self, form: Lin) -> Residue:
        """The residue class of the form."""
        c, b = 0, form.const
        for a, k in form.terms.items():
            x, y = self.atom_residue(a)
            c = gcd(c, x * k)
            b += y * k
        return (c, b % c if c else b)

    def atom_residue(self, a: Atom) -> Residue:
        found = self._residue_cache.get(a)
        if found is None:
            found = self.residues.get(a)
            if found is None:
                found = self._atom_residue(a)
            self._residue_cache[a] = found
        return found

    def _atom_residue(self, a: Atom) -> Residue:
        kind, args = a.kind, a.args
        if kind == SPLIT:
            e, lower, upper = args
            c, b = self.residue(e)
            if upper is not None:
                c = gcd(c, upper)
                b = b % c
                if c == upper:
                    return (0, b // lower)
            if c % lower == 0:
                c //= lower
                return (c, b // lower % c if c else b // lower)
            return (1, 0)
        if kind == PROD:
            out = self.atom_residue(args[0])
            for other in args[1:]:
                out = mul_residues(out, self.atom_residue(other))
            return out
        if kind in (MIN, MAX):
            out = self.residue(args[0])
            for x in args[1:]:
                out = join_residues(out, self.residue(x))
            return out
        if kind == SELECT:
            return join_residues(self.residue(args[1]), self.residue(args[2]))
        if kind == CAST:
            low, high = self.bound(args[0])
            return self.residue(args[0]) if a.dtype.low <= low and high <= a.dtype.high else (1, 0)
        if kind == OPAQUE:
            return self._opaque_residue(args[0])
        return (1, 0)

    def _opaque_residue(self, expr: PrimExpr) -> Residue:
        raise NotImplementedError


def _dtype_bound(a: Atom) -> Interval:
    d = a.dtype
    return (-BIG, BIG) if d.bits >= 64 else (int(d.low), int(d.high))
