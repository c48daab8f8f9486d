"""Integer sets with symbolic bounds, and the value sets of expressions over domains.

eval_set(i * 4 + j, {j: Range(0, 4)})   is   [i * 4, i * 4 + 3]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..ir.expr import IntImm, IterVar, PrimExpr, Ramp, Range, Var, const, const_value, convert
from ..ir.ops import add, sub
from .form import (
    CAST,
    MAX,
    MIN,
    PROD,
    SELECT,
    SPLIT,
    SYMDIV,
    SYMMOD,
    VAR,
    Atom,
    DoesNotFit,
    Lin,
    constant,
    expr_vars,
    is_index,
    of_atom,
)

if TYPE_CHECKING:
    from .analyzer import Analyzer

# The ends of unbounded sets. They are variables so that they can be used as expressions.
_POS: Final = Var("pos_inf", "handle")
_NEG: Final = Var("neg_inf", "handle")


def pos_inf() -> Var:
    """The symbol for positive infinity."""
    return _POS


def neg_inf() -> Var:
    """The symbol for negative infinity."""
    return _NEG


class IntSet:
    """A set of integers."""

    __slots__ = ()

    @property
    def min_value(self) -> PrimExpr:
        raise NotImplementedError

    @property
    def max_value(self) -> PrimExpr:
        raise NotImplementedError

    def is_nothing(self) -> bool:
        """Whether the set is known to be empty."""
        return False

    def is_everything(self) -> bool:
        """Whether it is the set of all integers."""
        return False

    @staticmethod
    def single_point(point: Any) -> IntervalSet:
        """The set of one number."""
        e = convert(point)
        return IntervalSet(e, e)

    @staticmethod
    def vector(vec: Any) -> IntervalSet:
        """The set of the lanes of a vector."""
        e: Any = convert(vec)
        if e.__class__ is Ramp:
            return eval_set(e, {})
        return IntSet.single_point(e.value if e.dtype.lanes > 1 and hasattr(e, "value") else e)

    @staticmethod
    def everything() -> IntervalSet:
        """All integers."""
        return IntervalSet(_NEG, _POS)

    @staticmethod
    def nothing() -> IntervalSet:
        """The empty set."""
        return IntervalSet(_POS, _NEG)

    @staticmethod
    def interval(min_value: Any, max_value: Any) -> IntervalSet:
        """All numbers from one end to the other, both included."""
        return IntervalSet(min_value, max_value)

    @staticmethod
    def from_range(dom: Range) -> IntervalSet:
        """The numbers of a range."""
        return IntervalSet.from_min_extent(dom.min, dom.extent)

    @staticmethod
    def from_min_extent(min_value: Any, extent: Any) -> IntervalSet:
        low, size = convert(min_value), convert(extent)
        if size.__class__.__name__ == "IntImm" and size.value == 1:  # type: ignore[attr-defined]
            return IntervalSet(low, low)
        return IntervalSet(low, _simplify(sub(add(low, size), 1)))


class IntervalSet(IntSet):
    """The integers from `min_value` to `max_value`, both included."""

    __slots__ = ("_max", "_min")

    def __init__(self, min_value: Any, max_value: Any) -> None:
        self._min, self._max = convert(min_value), convert(max_value)

    @property
    def min_value(self) -> PrimExpr:
        return self._min

    @property
    def max_value(self) -> PrimExpr:
        return self._max

    def min(self) -> PrimExpr:
        return self._min

    def max(self) -> PrimExpr:
        return self._max

    def is_nothing(self) -> bool:
        if self._min is _POS or self._max is _NEG:
            return True
        a, b = self._min, self._max
        return isinstance(a, IntImm) and isinstance(b, IntImm) and a.value > b.value

    def is_everything(self) -> bool:
        return self._min is _NEG and self._max is _POS

    def is_single_point(self) -> bool:
        """Whether its bounds are structurally equal, so that it holds one number."""
        from .form import same

        return same(self._min, self._max)

    def has_lower_bound(self) -> bool:
        return self._min is not _NEG

    def has_upper_bound(self) -> bool:
        return self._max is not _POS

    def as_range(self) -> Range | None:
        """The set as a range, or None if it has no ends, or more elements than its type can count."""
        if self._min is _NEG or self._max is _POS or self.is_nothing():
            return None
        if self._min is self._max:
            return Range.from_min_extent(self._min, const(1, self._min.dtype))
        low, high = (const_value(_simplify(e)) for e in (self._min, self._max))
        kind = self._min.dtype
        if low is not None and (low < kind.low // 4 or (high is not None and high - low >= kind.high)):
            return None  # only its type is known
        return Range.from_min_extent(self._min, _simplify(add(sub(self._max, self._min), 1)))

    def cover_range(self, dom: Range) -> Range:
        """A range that contains the set: `dom` if the set is unbounded."""
        return self.as_range() or dom

    def __repr__(self) -> str:
        return f"IntervalSet[{self._min}, {self._max}]"


def _simplify(e: PrimExpr) -> PrimExpr:
    from .analyzer import Analyzer

    return Analyzer().simplify(e)  # type: ignore[no-any-return]


# ---------------------------------------------------------------------------- evaluation
End = Lin | None  # None is infinity
Ends = tuple[End, End]


def _domain_vars(dom: Any) -> set[Var]:
    ends = (dom.min, dom.extent) if isinstance(dom, Range) else (dom.min_value, dom.max_value)
    return {v for e in ends for v in expr_vars(e)}


def _plus(x: End, y: End) -> End:
    return None if x is None or y is None else x + y


class SetEval:
    """Forms evaluated over the domains of some variables."""

    def __init__(self, analyzer: Analyzer, dom_map: Mapping[Any, Any]) -> None:
        self.ana = analyzer
        self.domains: dict[Var, Any] = {}
        for v, dom in dom_map.items():
            self.domains[v.var if isinstance(v, IterVar) else v] = dom
        self.layers = self._layers()
        self.vars = frozenset(self.domains)
        self._ends: dict[Var, Ends] = {}
        self.narrowed: Callable[[Lin, End, End], Ends] | None = (
            None  # tighter ends from other facts about a form
        )

    def _layers(self) -> list[frozenset[Var]]:
        """The variables in the order of relaxation: those that other domains depend on come last."""
        held = {v: _domain_vars(dom) for v, dom in self.domains.items()}
        if all(not d.intersection(held) for d in held.values()):
            return [frozenset(held)] if held else []
        out: list[frozenset[Var]] = []
        left = dict(held)
        while left:
            used = {v for d in left.values() for v in d}
            layer = frozenset(v for v in left if v not in used) or frozenset(left)
            out.append(layer)
            left = {v: d for v, d in left.items() if v not in layer}
        return out

    def bind_domains(self) -> None:
        """Bind the domains in the analyzer that it does not know, for smaller forms."""
        ana = self.ana
        for v, dom in self.domains.items():
            atom = ana.forms.var(v)
            if atom in ana.bounds or v in ana.values or not is_index(v.dtype):
                continue
            if isinstance(dom, Range):
                ana.bind_range(v, dom)
            elif isinstance(dom, IntervalSet) and dom.as_range() is not None:
                ana.bind_range(v, dom.as_range())  # type: ignore[arg-type]

    def domain(self, v: Var) -> Ends:
        found = self._ends.get(v)
        if found is None:
            dom, ana = self.domains[v], self.ana
            if isinstance(dom, Range):
                low = ana.norm(dom.min)
                found = (low, (low + ana.norm(dom.extent)).shift(-1))
            else:
                found = (
                    None if dom.min_value is _NEG else ana.norm(dom.min_value),
                    None if dom.max_value is _POS else ana.norm(dom.max_value),
                )
            self._ends[v] = found
        return found

    def free(self, form: Lin) -> bool:
        """Whether no variable with a domain occurs in the form."""
        return all(self.vars.isdisjoint(a.vars) for a in form.terms)

    def form(self, form: Lin) -> Ends:
        """The ends of a form, free of the variables that have domains."""
        low: End = form
        high: End = form
        whole = self.vars
        for layer in self.layers:
            self.vars = layer
            if low is high and low is not None:
                low, high = self._once(low)
            else:
                low = None if low is None else self._once(low)[0]
                high = None if high is None else self._once(high)[1]
        self.vars = whole
        if low is not None and not self.free(low):
            low = None
        if high is not None and not self.free(high):
            high = None
        return low, high

    def _once(self, form: Lin) -> Ends:
        low: End = constant(form.const)
        high: End = low
        x: End
        y: End
        for a, c in form.terms.items():
            if self.vars.isdisjoint(a.vars):
                x = y = Lin({a: c}, 0)
            else:
                x, y = [None if e is None else e.scale(c) for e in self.atom(a)]
                if c < 0:
                    x, y = y, x
            low, high = _plus(low, x), _plus(high, y)
        finish = self.ana.finish
        return (
            None if low is None else finish(low.terms, low.const),
            None if high is None else finish(high.terms, high.const),
        )

    def atom(self, a: Atom) -> Ends:
        if a.kind == VAR:
            return self.domain(a.args[0])
        low, high = self._inner(a)
        least, most = self.ana.atom_bound(a)
        if low is None and least > a.dtype.low:
            low = constant(least)
        if high is None and most < a.dtype.high:
            high = constant(most)
        return low, high

    def _inner(self, a: Atom) -> Ends:
        kind, args, ana = a.kind, a.args, self.ana
        if kind == SPLIT:
            return self._split(*args)
        if kind == PROD:
            return self._product(a)
        if kind in (MIN, MAX):
            ends = [self._once(x) for x in args]
            return self._extreme(kind, [e[0] for e in ends], MIN), self._extreme(
                kind, [e[1] for e in ends], MAX
            )
        if kind == SELECT:
            ends = [self._once(args[1]), self._once(args[2])]
            return self._extreme(MIN, [e[0] for e in ends], MIN), self._extreme(
                MAX, [e[1] for e in ends], MAX
            )
        if kind == CAST:
            low, high = self._once(args[0])
            return self._cast(a, low), self._cast(a, high)
        if kind == SYMDIV and self.free(args[1]) and ana.bound(args[1])[0] > 0:
            low, high = self._once(args[0])
            return (
                None if low is None else ana.div(low, args[1]),
                None if high is None else ana.div(high, args[1]),
            )
        if kind == SYMMOD and ana.bound(args[1])[0] > 0:
            return constant(0), self._once(args[1].shift(-1))[1]
        return None, None

    def _cast(self, a: Atom, e: End) -> End:
        if e is None:
            return None
        return of_atom(self.ana.forms.cast(a.dtype, e)) if e.terms else e

    def _extreme(self, kind: int, ends: list[End], side: int) -> End:
        """The minimum or maximum of some ends, with infinite ones."""
        finite = [e for e in ends if e is not None]
        if len(finite) < len(ends) and (kind == side or not finite):
            return None
        return self.ana.extreme(kind, finite)

    def _split(self, e: Lin, lower: int, upper: int | None) -> Ends:
        low, high = self._once(e)
        if self.narrowed is not None:
            low, high = self.narrowed(e, low, high)
        div, mod = self.ana.div_const, self.ana.mod_const
        if upper is None:
            return (
                None if low is None else div(low, lower),
                None if high is None else div(high, lower),
            )
        if low is not None and high is not None and div(low, upper).key == div(high, upper).key:
            return div(mod(low, upper), lower), div(mod(high, upper), lower)
        return constant(0), constant(upper // lower - 1)

    def _product(self, a: Atom) -> Ends:
        ana = self.ana
        fixed = [f for f in a.args if self.vars.isdisjoint(f.vars)]
        loose = [f for f in a.args if not self.vars.isdisjoint(f.vars)]
        low: End = constant(1)
        high: End = low
        for n, f in enumerate(loose):
            x, y = self.atom(f)
            if n and (x is None or not ana.nonneg(x) or low is None or not ana.nonneg(low)):
                return None, None
            if n == 0:
                low, high = x, y
            else:
                low = None if low is None or x is None else ana.mul(low, x)
                high = None if high is None or y is None else ana.mul(high, y)
        if fixed:
            by = of_atom(ana.forms.prod(fixed))
            if ana.nonneg(by.scale(-1)):
                low, high = high, low
            elif not ana.nonneg(by):
                return None, None
            low = None if low is None else ana.mul(low, by)
            high = None if high is None else ana.mul(high, by)
        return low, high

    def to_set(self, ends: Ends, dtype: Any) -> IntervalSet:
        build = self.ana.forms.build
        low, high = ends
        try:
            x = _NEG if low is None else build(low, dtype)
            y = _POS if high is None else x if low is not None and low.key == high.key else build(high, dtype)
        except DoesNotFit:
            return IntSet.everything()
        return IntervalSet(x, y)


def eval_set(expr: Any, dom_map: Mapping[Any, Any], analyzer: Analyzer | None = None) -> IntervalSet:
    """The set of values of an expression while variables range over domains.

    The ends are in terms of the variables that have no domain.
    """
    from .analyzer import Analyzer

    if isinstance(expr, Range):
        low = eval_set(expr.min, dom_map, analyzer)
        high = eval_set(sub(add(expr.min, expr.extent), 1), dom_map, analyzer)
        return IntervalSet(low.min_value, high.max_value)
    e = convert(expr)
    ana = analyzer or Analyzer()
    element = e.dtype.element
    if not is_index(element):
        return IntSet.single_point(e) if not _mentions(e, dom_map) else IntSet.everything()
    with ana.scope():
        walk = SetEval(ana, _needed(e, dom_map))
        walk.bind_domains()
        if e.dtype.is_vector:
            v = ana.vec(e)
            if v is None or (v.lanes < 0 and not v.uniform):  # as many lanes as the hardware has
                return IntSet.everything()
            first, last = walk.form(v.base), walk.form(v.base + v.stride.scale(v.lanes - 1))
            ends = (
                walk._extreme(MIN, [first[0], last[0]], MIN),
                walk._extreme(MAX, [first[1], last[1]], MAX),
            )
            return walk.to_set(ends, element)
        return walk.to_set(walk.form(ana.norm(e)), element)


def _needed(e: PrimExpr, dom_map: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The domains that an expression depends on: of its variables, and of those in their domains."""
    if len(dom_map) < 3:
        return dom_map
    held = {v.var if isinstance(v, IterVar) else v: v for v in dom_map}
    out: set[Any] = set()
    waiting = [v for v in expr_vars(e) if v in held]
    while waiting:
        v = waiting.pop()
        key = held[v]
        if key not in out:
            out.add(key)
            waiting.extend(w for w in _domain_vars(dom_map[key]) if w in held)
    return {key: dom_map[key] for key in dom_map if key in out}  # in the order given, not in that of a set


def _mentions(e: PrimExpr, dom_map: Mapping[Any, Any]) -> bool:
    held = {v.var if isinstance(v, IterVar) else v for v in dom_map}
    return not held.isdisjoint(expr_vars(e))


# ---------------------------------------------------------------------------- sets of sets
def union(sets: Iterable[IntSet], analyzer: Analyzer | None = None) -> IntervalSet:
    """The smallest interval that contains all of the sets."""
    return _combine(sets, MIN, MAX, analyzer)


def intersect(sets: Iterable[IntSet], analyzer: Analyzer | None = None) -> IntervalSet:
    """The intersection of the sets."""
    return _combine(sets, MAX, MIN, analyzer)


def _combine(sets: Iterable[IntSet], low_kind: int, high_kind: int, analyzer: Analyzer | None) -> IntervalSet:
    from .analyzer import Analyzer

    items = list(sets)
    joining = low_kind == MIN
    if any(s.is_nothing() for s in items):
        if not joining:
            return IntSet.nothing()
        items = [s for s in items if not s.is_nothing()]
    if not items:
        return IntSet.nothing() if joining else IntSet.everything()
    if len(items) == 1:
        return IntervalSet(items[0].min_value, items[0].max_value)
    walk = SetEval(analyzer or Analyzer(), {})
    norm = walk.ana.norm
    lows = [None if s.min_value is _NEG else norm(s.min_value) for s in items]
    highs = [None if s.max_value is _POS else norm(s.max_value) for s in items]
    dtypes = [e.dtype for s in items for e in (s.min_value, s.max_value) if e is not _NEG and e is not _POS]
    if not dtypes:
        return IntSet.everything()
    low, high = walk._extreme(low_kind, lows, MIN), walk._extreme(high_kind, highs, MAX)
    made = walk.to_set((low, high), dtypes[0])
    if not joining and low is not None and high is not None and walk.ana.bound(high - low)[1] < 0:
        return IntSet.nothing()
    return made


def union_lower_bound(sets: Iterable[IntSet], analyzer: Analyzer | None = None) -> IntervalSet:
    """An interval inside the union: adjoining sets are joined, those disjoint from the first are dropped."""
    from .analyzer import Analyzer

    ana = analyzer or Analyzer()
    out: IntervalSet | None = None
    for s in sets:
        if s.is_nothing():
            continue
        if out is None:
            out = IntervalSet(s.min_value, s.max_value)
        elif _touch(ana, s, out) and _touch(ana, out, s):
            out = union([out, s], ana)
    return IntSet.nothing() if out is None else out


def _touch(ana: Analyzer, upper: IntSet, lower: IntSet) -> bool:
    """Whether there is no gap between the end of `lower` and the start of `upper`."""
    if upper.min_value is _NEG or lower.max_value is _POS:
        return True
    if upper.min_value is _POS or lower.max_value is _NEG:
        return False
    return ana.can_prove_less_equal(upper.min_value, add(lower.max_value, 1))


def region_union(regions: Iterable[Iterable[Range]], analyzer: Analyzer | None = None) -> list[Range]:
    """For each dimension, the smallest range that contains those of all regions."""
    columns = list(zip(*[list(r) for r in regions], strict=True))
    out = []
    for dims in columns:
        made = union([IntSet.from_range(d) for d in dims], analyzer).as_range()
        out.append(dims[0] if made is None else made)
    return out
