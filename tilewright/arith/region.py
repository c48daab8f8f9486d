"""Regions of buffers: the boxes that accesses cover while loops run.

A[i * 4 + j] over j in [0, 4)   covers   A[i * 4 : i * 4 + 4]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.expr import IntImm, IterVar, PrimExpr, Range, Var, convert
from ..ir.ops import add, conjuncts, mul, sub
from .analyzer import Analyzer
from .form import MAX, MIN, Lin, expr_vars
from .int_set import End, IntervalSet, IntSet, SetEval
from .iter_expr import IterSplitExpr
from .iter_map import IterMapLevel, detect_iter_map
from .logic import NONNEG, ZERO, Cmp

__all__ = [
    "estimate_region_lower_bound",
    "estimate_region_strict_bound",
    "estimate_region_upper_bound",
    "relax_region",
]


def _ranges(region: Any) -> list[Range]:
    """The ranges of a region, which may be a `BufferRegion`."""
    return list(getattr(region, "region", region))


def estimate_region_strict_bound(
    region: Any, var_dom: Mapping[Any, Range], predicate: Any = True
) -> list[IntervalSet] | None:
    """The box that is covered exactly, or None if what is covered is no box or cannot be told."""
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
        # Steps must not be longer than what each of them covers.
        if not (ana.can_prove(p.scale >= 1) and ana.can_prove(p.scale <= r.extent)):
            return None
        last = add(s.base, mul(sub(p.extent, 1), p.scale))
        out.append(IntervalSet(s.base, ana.simplify(sub(add(last, r.extent), 1))))
    return out


def estimate_region_lower_bound(
    region: Any, var_dom: Mapping[Any, Range], predicate: Any = True
) -> list[IntervalSet] | None:
    """A box that is covered for certain, or None if none can be told."""
    return estimate_region_strict_bound(region, var_dom, predicate)


def estimate_region_upper_bound(
    region: Any, var_dom: Mapping[Any, Range], predicate: Any = True
) -> list[IntervalSet]:
    """A box that holds all that is covered, as small as can be told."""
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
    """The bounds that a predicate sets to what depends on relaxed variables."""

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

    def upper(self, form: Lin, high: End) -> End:
        """The upper end, lowered by what the predicate says."""
        loose = self._loose(form)
        if not loose.terms:
            return high
        ana = self.walk.ana
        step = loose.gcd()
        unit = Lin({a: c // step for a, c in loose.terms.items()}, 0)
        for f in self.facts:
            k = _multiple(self._loose(f), unit)
            if k < 0:  # -k * unit <= rest of the fact
                rest = f - self._loose(f)
                made = ana.div_const(rest, -k).scale(step) + (form - loose)
                high = made if high is None else ana.extreme(MIN, [high, made])
        return high

    def lower(self, form: Lin, low: End) -> End:
        """The lower end, raised by what the predicate says."""
        made = self.upper(form.scale(-1), None if low is None else low.scale(-1))
        return None if made is None else made.scale(-1)


def _multiple(a: Lin, b: Lin) -> int:
    """k with `a == k * b`, or 0."""
    if len(a.terms) != len(b.terms) or not a.terms:
        return 0
    x, c = next(iter(b.terms.items()))
    k, rest = divmod(a.terms.get(x, 0), c)
    if rest or any(a.terms.get(y) != k * d for y, d in b.terms.items()):
        return 0
    return k


def _uses(e: PrimExpr, domains: Mapping[Var, Any]) -> bool:
    return not expr_vars(e).isdisjoint(domains)
