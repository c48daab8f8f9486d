"""Regions of buffers: the boxes that accesses cover over loops.

A[i * 4 + j] over j in [0, 4)   covers   A[i * 4 : i * 4 + 4]
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from ..ir.expr import IntImm, IterVar, PrimExpr, Range, Var, convert
from ..ir.ops import add, conjuncts, mul, sub
from .analyzer import Analyzer
from .form import MAX, MIN, SPLIT, Lin, expr_vars, of_atom
from .int_set import End, IntervalSet, IntSet, SetEval
from .iter_expr import IterSplitExpr
from .iter_map import IterMapLevel, detect_iter_map
from .logic import NONNEG, ZERO, Cmp


def _ranges(region: Any) -> list[Range]:
    """The ranges of a region, which may be a `BufferRegion`."""
    return list(getattr(region, "region", region))


def estimate_region_strict_bound(
    region: Any, var_dom: Mapping[Any, Range], predicate: Any = True
) -> list[IntervalSet] | None:
    """The box that is covered exactly, or None if the covered set is not a box or unknown."""
    ranges = _ranges(region)
    domains = {(v.var if isinstance(v, IterVar) else v): d for v, d in var_dom.items()}
    if any(_uses(r.extent, domains) for r in ranges):
        return None
    found = detect_iter_map([r.min for r in ranges], domains, predicate, IterMapLevel.Surjective)
    padding = found.padding_predicate
    if not found.indices or not (padding.__class__ is IntImm and padding.value == 0):  # type: ignore[attr-defined]
        return [] if not ranges else None
    ana = Analyzer()
    out = []
    for r, s in zip(ranges, found.indices):
        if not s.args:
            out.append(IntSet.from_min_extent(s.base, r.extent))
            continue
        (p,) = s.args
        assert isinstance(p, IterSplitExpr)
        # Strides must not exceed the range of one step.
        if not (ana.can_prove(p.scale >= 1) and ana.can_prove(p.scale <= r.extent)):
            return None
        last = add(s.base, mul(sub(p.extent, 1), p.scale))
        out.append(IntervalSet(s.base, ana.simplify(sub(add(last, r.extent), 1))))
    return out


def estimate_region_lower_bound(
    region: Any, var_dom: Mapping[Any, Range], predicate: Any = True
) -> list[IntervalSet] | None:
    """A box that is definitely covered, or None if none is known."""
    return estimate_region_strict_bound(region, var_dom, predicate)


def estimate_region_upper_bound(
    region: Any, var_dom: Mapping[Any, Range], predicate: Any = True
) -> list[IntervalSet]:
    """A box that contains every covered element, as small as can be proved."""
    return relax_region(region, var_dom, predicate)


def relax_region(
    region: Any, var_dom: Mapping[Any, Any], predicate: Any = True, analyzer: Analyzer | None = None
) -> list[IntervalSet]:
    """The region with the variables of `var_dom` relaxed to all values that `predicate` allows."""
    ana = analyzer or Analyzer()
    with ana.scope():
        walk = SetEval(ana, var_dom)
        walk.bind_domains()
        bounds = _Predicate(walk, convert(predicate))
        out = []
        for r in _ranges(region):
            first = ana.norm(r.min)
            last = (first + ana.norm(r.extent)).shift(-1)
            low, high = walk.form(first)[0], walk.form(ana.finish(last.terms, last.const))[1]
            out.append(walk.to_set((bounds.lower(first, low), bounds.upper(last, high)), r.min.dtype))
        return out


class _Predicate:
    """The bounds that a predicate sets to expressions of relaxed variables."""

    def __init__(self, walk: SetEval, predicate: PrimExpr) -> None:
        self.walk = walk
        self.facts: list[Lin] = []
        ana = walk.ana
        for c in conjuncts(predicate):
            cmp = ana.comparison(c)
            made = None if cmp is None else ana.reduced(cmp)
            if isinstance(made, Cmp) and made.op in (NONNEG, ZERO):
                self.facts.append(made.form)
                if made.op == ZERO:
                    self.facts.append(made.form.scale(-1))
        for f in self.facts:
            self._narrow(f)
        if self.facts:
            walk.narrowed = self.ends
        ana.assume(predicate)

    def _narrow(self, fact: Lin) -> None:
        """A fact about one relaxed variable narrows its domain."""
        loose = self._loose(fact)
        if len(loose.terms) != 1:
            return
        ((a, c),) = loose.terms.items()
        v = a.args[0]
        if not isinstance(v, Var) or v not in self.walk.domains or abs(c) != 1:
            return
        low, high = self.walk.domain(v)
        rest = fact - loose
        extreme = self.walk.ana.extreme
        if c > 0:
            made = rest.scale(-1)
            low = made if low is None else extreme(MAX, [low, made])
        else:
            high = rest if high is None else extreme(MIN, [high, rest])
        self.walk._ends[v] = (low, high)

    def _loose(self, form: Lin) -> Lin:
        """The terms that depend on relaxed variables."""
        held = self.walk.vars
        return Lin({a: c for a, c in form.terms.items() if not held.isdisjoint(a.vars)}, 0)

    def upper(self, form: Lin, high: End, spent: frozenset[int] = frozenset()) -> End:
        """The upper end, tightened by the predicate; each fact is used once.

        fact  63 - i * 4 - j >= 0       form  i * 4 + j + k      form = 63 + k - fact  <=  63 + k
        fact  63 - i * 4 - j >= 0       form  i                  i * 4 = 63 - j - fact <=  63 - j
        """
        loose = self._loose(form)
        if not loose.terms:
            return high
        ana = self.walk.ana
        step = loose.gcd()
        unit = Lin({a: c // step for a, c in loose.terms.items()}, 0)
        for n, f in enumerate(self.facts):
            for s, t in _weights(f, unit) if n not in spent else ():
                # t * unit <= s * f + t * unit, where terms cancel
                total = self._unfolded(f.scale(s) + unit.scale(t))
                left = self._loose(total)
                top = self.upper(total, self._top(total), spent | {n}) if left.terms else total
                if top is None:
                    continue
                made = ana.div_const(top, t).scale(step) + (form - loose)
                if high is None:
                    high = made
                elif left.terms.keys() <= unit.terms.keys():
                    high = ana.extreme(MIN, [high, made])
                elif ana.nonneg(high - made):  # the terms that the fact added may decide
                    high = made
        return high

    def _top(self, form: Lin) -> End:
        """The upper end of a form by domains alone."""
        walk = self.walk
        walk.narrowed = None
        try:
            return walk.form(form)[1]
        finally:
            walk.narrowed = self.ends

    def _unfolded(self, form: Lin) -> Lin:
        """`i // 4 * 4 - i -> -(i % 4)`: quotients cancel against their dividends."""
        ana = self.walk.ana
        for a, c in form.terms.items():
            if a.kind == SPLIT and a.args[2] is None and c % a.args[1] == 0:
                e, by = a.args[0], a.args[1]
                k = c // by
                if all(form.terms.get(x, 0) * k * m < 0 for x, m in e.terms.items()):
                    form = form - of_atom(a).scale(c) + (e - ana.mod_const(e, by)).scale(k)
        return ana.finish(form.terms, form.const)

    def ends(self, form: Lin, low: End, high: End) -> tuple[End, End]:
        """Both ends of a form, tightened by the predicate."""
        return self.lower(form, low), self.upper(form, high)

    def lower(self, form: Lin, low: End) -> End:
        """The lower end, tightened by the predicate."""
        made = self.upper(form.scale(-1), None if low is None else low.scale(-1))
        return None if made is None else made.scale(-1)


def _weights(fact: Lin, form: Lin) -> list[tuple[int, int]]:
    """The s and t, both greater than 0, for which some term is missing in `s * fact + t * form`."""
    out: dict[tuple[int, int], None] = {}
    for a, c in form.terms.items():
        d = fact.terms.get(a, 0)
        if c * d < 0:
            g = gcd(c, d)
            out[abs(c) // g, abs(d) // g] = None
    return list(out)


def _uses(e: PrimExpr, domains: Mapping[Var, Any]) -> bool:
    return not expr_vars(e).isdisjoint(domains)
