"""Linear equations and bounds: coefficients of variables, and the bounds that conditions set to one variable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any, NamedTuple

from ..ir.deep import deeply
from ..ir.expr import EQ, And, IntImm, IterVar, PrimExpr, Range, Var, const, convert
from ..ir.functor import substitute
from ..ir.ops import conjuncts, logical_and
from .analyzer import Analyzer
from .form import MAX, MIN, PROD, Atom, DoesNotFit, Lin, constant, dtype_of, is_index, of_atom
from .int_set import _NEG, _POS, End, IntervalSet, IntSet, SetEval, intersect
from .logic import NONNEG, NONZERO, ZERO, Cmp


def _vars(items: Iterable[Any]) -> list[Var]:
    return [v.var if isinstance(v, IterVar) else v for v in items]


def coefficients(ana: Analyzer, form: Lin, variables: Sequence[Var]) -> tuple[list[Lin], Lin] | None:
    """The coefficient of each variable and the rest, or None if the form is not linear in them."""
    held = frozenset(variables)
    out = {v: constant(0) for v in variables}
    rest = constant(form.const)
    for a, c in form.terms.items():
        used = held & a.vars
        if not used:
            rest = rest + Lin({a: c}, 0)
            continue
        made = _coefficient(ana, a, held)
        if made is None:
            return None
        v, k = made
        out[v] = out[v] + k.scale(c)
    return [out[v] for v in variables], rest


def _coefficient(ana: Analyzer, a: Atom, held: frozenset[Var]) -> tuple[Var, Lin] | None:
    if a.args[0] in held:
        return a.args[0], constant(1)
    if a.kind != PROD:
        return None
    loose = [f for f in a.args if not held.isdisjoint(f.vars)]
    if len(loose) != 1 or loose[0].args[0] not in held:
        return None
    return loose[0].args[0], of_atom(ana.forms.prod([f for f in a.args if f is not loose[0]]))


@deeply
def detect_linear_equation(expr: Any, vars: Any) -> list[PrimExpr]:
    """`[c0, c1, …, base]` with `expr == c0 * vars[0] + c1 * vars[1] + … + base`; empty if not linear."""
    e = convert(expr)
    variables = _vars(vars if isinstance(vars, (list, tuple)) else [vars])
    if not is_index(e.dtype):
        return []
    ana = Analyzer()
    found = coefficients(ana, ana.norm(e), variables)
    if found is None:
        return []
    try:
        return [ana.forms.build(x, e.dtype) for x in (*found[0], found[1])]
    except DoesNotFit:
        return []


def detect_clip_bound(expr: Any, vars: Any) -> list[PrimExpr | None]:
    """`[min0, max0, min1, max1, …]`: the constant-coefficient bounds that a conjunction sets to variables.

    A bound that is not set is None; the list is empty if a part of the condition is not a bound of them.
    """
    variables = _vars(vars if isinstance(vars, (list, tuple)) else [vars])
    ana = Analyzer()
    lows: dict[Var, Lin] = {}
    highs: dict[Var, Lin] = {}
    for c in conjuncts(convert(expr)):
        cmp = ana.comparison(c)
        made = None if cmp is None else ana.reduced(cmp)
        if not isinstance(made, Cmp) or made.op == NONZERO:
            return []
        forms = [made.form] if made.op == NONNEG else [made.form, made.form.scale(-1)]
        for form in forms:
            found = coefficients(ana, form, variables)
            used = [n for n, k in enumerate(found[0]) if k.terms or k.const] if found else []
            if found is None or len(used) != 1 or found[0][used[0]].terms:
                return []
            v, k, rest = variables[used[0]], found[0][used[0]].const, found[1]
            if k > 0:  # k * v + rest >= 0
                bound = ana.div_const(rest, k).scale(-1)
                lows[v] = ana.extreme(MAX, [lows[v], bound]) if v in lows else bound
            else:
                bound = ana.div_const(rest, -k)
                highs[v] = ana.extreme(MIN, [highs[v], bound]) if v in highs else bound
    build = ana.forms.build
    out: list[PrimExpr | None] = []
    for v in variables:
        out.append(build(lows[v], v.dtype) if v in lows else None)
        out.append(build(highs[v], v.dtype) if v in highs else None)
    return out


def deduce_bound(
    var: Any, cond: Any, hint_map: Mapping[Any, Any], relax_map: Mapping[Any, Any]
) -> IntervalSet:
    """The values of `var` for which the condition holds for all values of the variables in `relax_map`.

    `hint_map` has the ranges of variables, `var` included; it is used to determine signs. The empty set is returned if
    the condition cannot be solved.
    """
    v = _vars([var])[0]
    parts = conjuncts(convert(cond))
    if len(parts) != 1:
        return intersect([deduce_bound(v, c, hint_map, relax_map) for c in parts])
    ana = Analyzer()
    for w, dom in {**hint_map, **relax_map}.items():
        held = _vars([w])[0]
        r = dom if isinstance(dom, Range) else dom.as_range()
        if held is not v and r is not None and not _is_single(r):
            ana.bind_range(held, r)
    cmp = ana.comparison(parts[0])
    if cmp is None:
        return IntSet.nothing()
    walk = SetEval(ana, {w: d for w, d in relax_map.items() if w is not v})
    low: End = None
    high: End = None
    forms = {
        NONNEG: [cmp.form],
        ZERO: [cmp.form, cmp.form.scale(-1)],
        NONZERO: [],
    }[cmp.op]
    if not forms:
        return IntSet.nothing()
    for form in forms:
        found = coefficients(ana, form, [v])
        if found is None:
            return IntSet.nothing()
        k, rest = found[0][0], found[1]
        sign = ana._sign(k)
        if sign == 0 or ana.bound(k)[0] <= 0 <= ana.bound(k)[1] or not walk.free(k):
            return IntSet.nothing()
        least = walk.form(rest)[0]  # it must hold for all relaxed values
        if least is None:
            return IntSet.nothing()
        if sign > 0:
            made = ana.div(least, k).scale(-1)
            low = made if low is None else ana.extreme(MAX, [low, made])
        else:
            made = ana.div(least, k.scale(-1))
            high = made if high is None else ana.extreme(MIN, [high, made])
    if cmp.op == ZERO and (low is None or high is None or low.key != high.key):
        return IntSet.nothing()
    build = ana.forms.build
    return IntervalSet(
        _NEG if low is None else build(low, v.dtype), _POS if high is None else build(high, v.dtype)
    )


def _is_single(r: Range) -> bool:
    return r.extent.__class__ is IntImm and r.extent.value == 1  # type: ignore[attr-defined]


# ---------------------------------------------------------------------------- systems
class IntConstraints(NamedTuple):
    """Variables, the ranges they lie in, and relations between them."""

    variables: list[Var]
    ranges: dict[Var, Range]
    relations: list[PrimExpr]


class IntConstraintsTransform(NamedTuple):
    """A system, an equivalent one with fewer variables, and the maps between both.

    `src_to_dst` has the variables of `src` in terms of those of `dst`, and `dst_to_src` the other way round.
    """

    src: IntConstraints
    dst: IntConstraints
    src_to_dst: dict[Var, PrimExpr]
    dst_to_src: dict[Var, PrimExpr]


def solve_linear_equations(
    equations: Any, variables: Iterable[Any] | None = None, ranges: Mapping[Any, Range] | None = None
) -> IntConstraintsTransform:
    """Solve equations over the integers by eliminating one variable after the other.

        x + y == 20, x - y == 10   gives   {x: 15, y: 5}

    Only `variables` are solved for, none of them by default; others are parameters. Variables that stay free are
    renamed in `dst`; equations that cannot be used stay there as relations, and so do inequalities.
    """
    items = list(equations) if isinstance(equations, (list, tuple)) else [equations]
    parts = [c for e in items for c in conjuncts(convert(e))]
    domains = {_vars([v])[0]: d for v, d in (ranges or {}).items()}
    held = _vars(variables or ())
    src = IntConstraints(held, domains, parts)
    if not held:
        return IntConstraintsTransform(src, src, {}, {})
    ana = Analyzer()
    relations = [_relation(ana, e) for e in parts]
    system = _System(ana, [c.form for c in relations if c.op == ZERO], held)
    if not system.run():
        return IntConstraintsTransform(src, IntConstraints([], {}, [const(False)]), {}, {})
    build = ana.forms.build
    forth: dict[Var, PrimExpr] = {v: build(system.solved[v], v.dtype) for v in held}
    back: dict[Var, PrimExpr] = {v: build(form, v.dtype) for v, form in system.origin.items()}
    bounds, extra = _bounds_of(ana, system.solved, domains, set(back))
    kept: list[PrimExpr] = []
    for r in system.relations:
        dtype = dtype_of(r)
        kept.append(EQ(build(r, dtype), const(0, dtype)))
    for e, c in zip(parts, relations):
        if c.op != ZERO:
            kept.append(ana.simplify(substitute(e, forth)))
    dst = IntConstraints(list(back), bounds, [*kept, *extra])
    return IntConstraintsTransform(src, dst, forth, back)


def _relation(ana: Analyzer, e: PrimExpr) -> Cmp:
    cmp = ana.comparison(e)
    if cmp is None:
        raise ValueError(f"solve_linear_equations: {e} is not an equation or inequality of integers")
    return cmp


class _System:
    """Equations `form == 0`, solved for one variable after the other.

    `solved` has the given variables in terms of the present ones, `origin` the present in terms of the given.
    """

    def __init__(self, ana: Analyzer, equations: list[Lin], held: list[Var]) -> None:
        self.ana, self.todo = ana, equations
        self.solved = {v: of_atom(ana.forms.var(v)) for v in held}
        self.origin = dict(self.solved)
        self.relations: list[Lin] = []
        self.fresh = 0

    def run(self) -> bool:
        """Eliminate variables; returns False if the system provably has no solution."""
        while self.todo:
            eq = self.todo.pop(0)
            current = list(self.origin)
            found = coefficients(self.ana, eq, current)
            if found is None or any(k.terms for k in found[0]):
                self.relations.append(eq)
                continue
            ks = {v: k.const for v, k in zip(current, found[0]) if k.const}
            if not self._step(eq, ks, found[1]):
                return False
        return True

    def _step(self, eq: Lin, ks: dict[Var, int], rest: Lin) -> bool:
        """Use one equation with constant coefficients; False if it cannot hold."""
        if not ks:
            if rest.terms:
                self.relations.append(rest)
            return bool(rest.terms) or rest.const == 0
        g = gcd(*ks.values())
        if not rest.terms and rest.const % g:
            return False
        v = min(ks, key=lambda w: abs(ks[w]))
        k = ks[v]
        if abs(k) == g and rest.gcd() % g == 0 and rest.const % g == 0:
            atom = self.ana.forms.var(v)
            others = eq.without(atom)
            del self.origin[v]
            self._substitute(v, Lin({a: -c // k for a, c in others.terms.items()}, -others.const // k))
        elif len(ks) == 1:
            self.relations.append(eq)
        else:
            self._shrink(v, ks, eq)
        return True

    def _shrink(self, v: Var, ks: dict[Var, int], eq: Lin) -> None:
        """Substitute v so that the coefficients of the others become smaller than its own, as in Euclid's algorithm."""
        forms = self.ana.forms
        w = Var(f"n{self.fresh}", v.dtype)
        self.fresh += 1
        steps = {forms.var(u): -(c // ks[v]) for u, c in ks.items() if u is not v and c // ks[v]}
        back = self.origin.pop(v)
        for a, q in steps.items():
            back = back - self.origin[a.args[0]].scale(q)
        self.origin[w] = back
        self.todo.insert(0, eq)
        self._substitute(v, of_atom(forms.var(w)) + Lin(steps, 0))

    def _substitute(self, v: Var, value: Lin) -> None:
        atom = self.ana.forms.var(v)
        self.solved = {x: _replaced(f, atom, value) for x, f in self.solved.items()}
        self.todo = [_replaced(f, atom, value) for f in self.todo]
        self.relations = [_replaced(f, atom, value) for f in self.relations]


def _replaced(form: Lin, atom: Atom, value: Lin) -> Lin:
    c = form.terms.get(atom)
    if c is None:
        return form
    return form.without(atom) + value.scale(c)


def _bounds_of(
    ana: Analyzer, solved: dict[Var, Lin], domains: Mapping[Var, Range], free: set[Var]
) -> tuple[dict[Var, Range], list[PrimExpr]]:
    """The ranges of the free variables, and the other ranges as conditions on them."""
    bounds: dict[Var, Range] = {}
    extra: list[PrimExpr] = []
    for v, dom in domains.items():
        form = solved.get(v)
        if form is None:
            continue
        a = form.single()
        if a is not None and a.args[0] in free and a.args[0] not in bounds:
            bounds[a.args[0]] = dom
            continue
        value = ana.forms.build(form, v.dtype)
        made = ana.simplify(logical_and(value >= dom.min, value < dom.min + dom.extent))
        if not (made.__class__ is IntImm and made.value):
            extra.extend([made] if made.__class__ is not And else conjuncts(made))
    return bounds, extra
