"""Iteration maps: indices as fusions and splits of loop iterators, and the sets that they cover.

i in [0, 8), j in [0, 4):   (i * 4 + j) // 2   is the split  [2, 16)  of the fused iterator of extent 32
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ..ir.dtype import BOOL, DataType
from ..ir.expr import (
    Add,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Mul,
    PrimExpr,
    Range,
    Sub,
    Var,
    const,
    convert,
)
from ..ir.ops import conjuncts, greater_equal, logical_or
from .analyzer import Analyzer
from .form import MIN, PROD, SPLIT, SYMDIV, SYMMOD, VAR, Atom, DoesNotFit, Lin, constant, is_index, of_atom
from .iter_expr import IterMark, IterSplitExpr, IterSumExpr, normalize_iter_map_to_expr
from .logic import NONNEG, Cmp


class IterMapLevel(IntEnum):
    """The required property of a map: bijective, surjective, or none."""

    Bijective = 0
    Surjective = 1
    NoCheck = 3

    @staticmethod
    def from_str(name: str) -> IterMapLevel:
        names = {"bijective": 0, "surjective": 1, "nocheck": 3}
        if name.lower() not in names:
            raise ValueError(f"no check level is named {name!r}; known are {', '.join(names)}")
        return IterMapLevel(names[name.lower()])

    @staticmethod
    def of(level: IterMapLevel | int | str) -> IterMapLevel:
        """The level that a caller gives as one, or by its name."""
        return IterMapLevel.from_str(level) if isinstance(level, str) else IterMapLevel(level)


class IterMapResult(NamedTuple):
    """The result: one sum for each index, or none and the reasons."""

    indices: list[IterSumExpr]
    errors: list[str]
    padding_predicate: PrimExpr


class Mark:
    """An iterator from 0 to `extent`: a variable less its minimum, or splits fused into one."""

    __slots__ = ("extent", "parts", "real", "shift", "var")

    def __init__(self, var: Var | None, parts: tuple[Split, ...], extent: Lin, shift: Lin) -> None:
        self.var, self.parts, self.extent, self.shift = var, parts, extent, shift
        self.real = extent  # the extent before padding


class Split:
    """`((mark // lower) % extent) * scale`."""

    __slots__ = ("extent", "lower", "mark", "scale")

    def __init__(self, mark: Mark, lower: Lin, extent: Lin, scale: Lin) -> None:
        self.mark, self.lower, self.extent, self.scale = mark, lower, extent, scale

    @property
    def key(self) -> Any:
        return (id(self.mark), self.lower.key, self.extent.key, self.scale.key)

    def scaled(self, scale: Lin) -> Split:
        return Split(self.mark, self.lower, self.extent, scale)


class Sum:
    """Splits and a base."""

    __slots__ = ("base", "parts")

    def __init__(self, parts: list[Split], base: Lin) -> None:
        self.parts, self.base = parts, base


def _is_whole(p: Split) -> bool:
    return p.mark.var is not None and p.lower.key == ONE.key and p.extent.key == p.mark.extent.key


class NotAffine(Exception):
    """An index that is not an affine map of iterators; the message is the reason."""


ONE = constant(1)
ZERO = constant(0)


class Mapper:
    """Rewrites indices as sums of splits."""

    def __init__(self, iters: Mapping[Var, Range], padding: bool, trivial: bool) -> None:
        self.ana = Analyzer()
        self.padding = padding
        self.marks: dict[Var, Mark] = {}
        self.fused: dict[Any, Mark] = {}
        self.bounded: list[tuple[frozenset[Any], Sum, Mark, Lin]] = []  # sums that predicates bound
        self.padded: dict[int, Mark] = {}
        ana = self.ana
        for v, dom in iters.items():
            low, extent = ana.norm(dom.min), ana.norm(dom.extent)
            if trivial and not extent.terms and extent.const == 1:
                ana.bind(v, dom.min)
                continue
            self.marks[v] = Mark(v, (), extent, low)
            if extent.terms or extent.const != 1:
                ana.bind_range(v, dom)
        self.vars = frozenset(self.marks)

    # -- sums ------------------------------------------------------------------------------
    def free(self, form: Lin) -> bool:
        return all(self.vars.isdisjoint(a.vars) for a in form.terms)

    def sum(self, form: Lin) -> Sum:
        """The form as splits and a base."""
        parts: list[Split] = []
        base = constant(form.const)
        for a, c in form.terms.items():
            if self.vars.isdisjoint(a.vars):
                base = base + Lin({a: c}, 0)
                continue
            made = self.atom(a)
            for p in made.parts:
                parts.append(p.scaled(p.scale.scale(c)))
            base = base + made.base.scale(c)
        return Sum(self._collected(parts), base)

    def index(self, e: PrimExpr, as_written: bool) -> Sum:
        """An index as splits and a base, from its normal form or (first) as it is written.

        The normal form is more precise, but turns `(x * 4 + y) % 3` into `(x + y) % 3`, which is not a split.
        """
        ways = [self.written, lambda e: self.sum(self.ana.norm(e))]
        for way in ways if as_written else reversed(ways):
            try:
                s = way(e)
                if not s.parts:
                    return s
                one, base = self.fuse(s)
                return Sum([one], base)
            except NotAffine as failed:
                why = failed
        raise why

    def written(self, e: Any) -> Sum:
        """The expression as it is written, operator by operator."""
        cls = e.__class__
        if cls is Add or cls is Sub:
            a, b = self.written(e.a), self.written(e.b)
            sign = 1 if cls is Add else -1
            moved = [p.scaled(p.scale.scale(sign)) for p in b.parts]
            return Sum(self._collected([*a.parts, *moved]), a.base + b.base.scale(sign))
        if cls in (Mul, FloorDiv, FloorMod):
            a, b = self.written(e.a), self.written(e.b)
            if cls is Mul and b.parts:
                a, b = b, a
            if not b.parts and (b.base.terms or b.base.const):
                if not a.parts:
                    return Sum([], self.ana.norm(e))
                if cls is Mul:
                    mul = self.ana.mul
                    return Sum([p.scaled(mul(p.scale, b.base)) for p in a.parts], mul(a.base, b.base))
                return (self.divided if cls is FloorDiv else self.remainder)(a, b.base)
        return self.sum(self.ana.norm(e))

    def _collected(self, parts: list[Split]) -> list[Split]:
        """Splits that differ in scale only, added up."""
        out: dict[Any, Split] = {}
        for p in parts:
            key = (id(p.mark), p.lower.key, p.extent.key)
            old = out.get(key)
            out[key] = p if old is None else p.scaled(old.scale + p.scale)
        return [p for p in out.values() if p.scale.terms or p.scale.const]

    def atom(self, a: Atom) -> Sum:
        kind, args = a.kind, a.args
        if kind == VAR:
            mark = self.marks[args[0]]
            return Sum([Split(mark, ONE, mark.extent, ONE)], mark.shift)
        if kind == PROD:
            loose = [f for f in args if not self.vars.isdisjoint(f.vars)]
            if len(loose) == 1:
                by = of_atom(self.ana.forms.prod([f for f in args if f is not loose[0]]))
                made = self.atom(loose[0])
                mul = self.ana.mul
                return Sum([p.scaled(mul(p.scale, by)) for p in made.parts], mul(made.base, by))
            raise NotAffine(f"{self.text(a)} multiplies iterators with each other")
        if kind == SPLIT:
            e, lower, upper = args
            made = self.sum(e)
            if lower != 1:
                made = self.divided(made, constant(lower))
            return made if upper is None else self.remainder(made, constant(upper // lower))
        if kind in (SYMDIV, SYMMOD) and self.free(args[1]):
            made = self.sum(args[0])
            return self.divided(made, args[1]) if kind == SYMDIV else self.remainder(made, args[1])
        raise NotAffine(f"{self.text(a)} is not a sum, quotient or remainder of iterators")

    def text(self, a: Atom) -> str:
        return str(self.ana.forms.expr(a))

    # -- fusion ----------------------------------------------------------------------------
    def chain(self, parts: list[Split]) -> list[Split] | None:
        """The splits from the innermost to the outermost, each scale the product of the scale and extent before it."""
        left = list(parts)
        mul = self.ana.mul
        for first in sorted(parts, key=lambda p: (bool(p.scale.terms), p.scale.const)):
            rest = [p for p in left if p is not first]
            out, want = [first], mul(first.scale, first.extent)
            while rest:
                fits = [p for p in rest if p.scale.key == want.key]
                if not fits:
                    break
                # Of two that fit, one has a single value and goes first.
                nxt = min(fits, key=lambda p: p.extent.key != ONE.key)
                out.append(nxt)
                rest.remove(nxt)
                want = mul(nxt.scale, nxt.extent)
            if not rest:
                return out
        return None

    def fuse(self, s: Sum) -> tuple[Split, Lin]:
        """One split for the fusion of all, and its base."""
        for keys, bound, mark, low in self.bounded:
            found = self._match(s, keys, bound)
            if found is not None:
                scale, rest = found
                base = s.base + self.ana.mul(low - bound.base, scale)
                one = Split(mark, ONE, mark.extent, scale)
                return (one, base) if not rest else self.fuse(Sum([*rest, one], base))
        if len(s.parts) == 1:
            return s.parts[0], s.base
        if not s.parts:
            raise NotAffine("an index without iterators")
        ordered = self.chain(s.parts)
        if ordered is None:
            raise NotAffine("iterators overlap or leave gaps: their scales do not follow from their extents")
        return Split(*self._fused(ordered)), s.base

    def _fused(self, ordered: list[Split]) -> tuple[Mark, Lin, Lin, Lin]:
        scale = ordered[0].scale
        extent, parts = ONE, []
        for p in ordered:
            parts.append(p.scaled(extent))
            extent = self.ana.mul(extent, p.extent)
        key = tuple(p.key for p in parts)
        mark = self.fused.get(key)
        if mark is None:
            mark = self.fused[key] = Mark(None, tuple(reversed(parts)), extent, ZERO)
        return mark, ONE, mark.extent, scale

    def _match(self, s: Sum, keys: frozenset[Any], bound: Sum) -> tuple[Lin, list[Split]] | None:
        """Whether the sum holds a multiple of a bounded one: the multiple, and the splits beside it."""
        have = {(id(p.mark), p.lower.key, p.extent.key): p for p in s.parts}
        if not all(k in have for k in keys):
            return None
        scale: Lin | None = None
        for b in bound.parts:
            p = have[(id(b.mark), b.lower.key, b.extent.key)]
            ratio = self._exact(p.scale, b.scale)
            if ratio is None or (scale is not None and ratio.key != scale.key):
                return None
            scale = ratio
        assert scale is not None
        return scale, [p for k, p in have.items() if k not in keys]

    def _exact(self, a: Lin, b: Lin) -> Lin | None:
        """`a / b` if b divides a."""
        if not b.terms:
            if b.const == 0 or a.const % b.const or a.gcd() % b.const:
                return None
            return Lin({x: c // b.const for x, c in a.terms.items()}, a.const // b.const)
        quotient, rest = self.ana._long_division(a, b)
        return quotient if not rest.terms and rest.const == 0 else None

    # -- division --------------------------------------------------------------------------
    def _aligned(self, s: Sum, d: Lin) -> tuple[Split, Lin, Lin]:
        """The sum as `scale * (split + base)` where scale divides d; d in units of the scale."""
        one, base = self.fuse(s)
        scale = one.scale
        if self.ana.bound(scale)[0] <= 0:
            raise NotAffine("a quotient of iterators that run backwards")
        units = self._exact(d, scale)
        if units is None:
            raise NotAffine("a divisor that is not a multiple of the scale of its dividend")
        start = self._exact(base, scale)
        if start is None:
            raise NotAffine("a base that is not a multiple of the scale of the iterators")
        return one.scaled(ONE), start, units

    def divided(self, s: Sum, d: Lin) -> Sum:
        """`sum // d`."""
        whole = [self._exact(p.scale, d) for p in s.parts]
        if all(w is not None for w in whole):
            parts = [p.scaled(w) for p, w in zip(s.parts, whole) if w is not None]
            return Sum(parts, self.ana.div(s.base, d))
        one, start, d = self._aligned(s, d)
        if start.terms or start.const:
            skip = self._exact(start, d)
            if skip is None:
                raise NotAffine("iterators that do not start at a multiple of their divisor")
        else:
            skip = ZERO
        if self.ana.known_le(one.extent, d):
            return Sum([], skip)
        one = self.pad(one, d)
        count = self._exact(one.extent, d)
        assert count is not None
        return Sum([Split(one.mark, self.ana.mul(one.lower, d), count, ONE)], skip)

    def remainder(self, s: Sum, m: Lin) -> Sum:
        """`sum % m`."""
        if all(self._exact(p.scale, m) is not None for p in s.parts):
            return Sum([], self.ana.mod(s.base, m))
        one, base = self.fuse(s)
        scale = one.scale
        one, start, units = self._aligned(Sum([one], base), m)
        if (start.terms or start.const) and self._exact(start, units) is None:
            raise NotAffine("iterators that do not start at a multiple of their divisor")
        if self.ana.known_le(one.extent, units):
            return Sum([one.scaled(scale)], ZERO)
        one = self.pad(one, units)
        return Sum([Split(one.mark, one.lower, units, scale)], ZERO)

    def pad(self, one: Split, d: Lin) -> Split:
        """The split with an extent that d divides, padded if that is needed and allowed."""
        if self._exact(one.extent, d) is not None:
            return one
        ana, mark = self.ana, one.mark
        if not self.padding or ana.mul(one.lower, one.extent).key != mark.extent.key:
            raise NotAffine("an extent that is not a multiple of its divisor")
        extent = ana.mul(ana.div((one.extent + d).shift(-1), d), d)
        mark.extent = ana.mul(extent, one.lower)
        self.padded[id(mark)] = mark
        return Split(mark, one.lower, extent, one.scale)

    # -- predicates ------------------------------------------------------------------------
    def constrain(self, predicate: PrimExpr) -> None:
        """Apply the bounds of a predicate to sums of iterators, the smallest sums first."""
        found: list[tuple[int, Cmp]] = []
        for c in conjuncts(predicate):
            cmp = self.ana.comparison(c)
            if cmp is None or cmp.op != NONNEG:
                raise NotAffine(f"the predicate {c} is not a bound of iterators")
            made = self.ana.reduced(cmp)
            if made is False:
                raise NotAffine(f"the predicate {c} never holds")
            if made is True or self.ana.decide(made) is True:  # type: ignore[arg-type]
                continue
            assert isinstance(made, Cmp)
            found.append((len([a for a in made.form.terms if not self.vars.isdisjoint(a.vars)]), made))
        for _, cmp in sorted(found, key=lambda f: f[0]):
            self._bound(cmp.form)

    def _bound(self, form: Lin) -> None:
        """Apply `form >= 0`."""
        inner = {a: c for a, c in form.terms.items() if not self.vars.isdisjoint(a.vars)}
        outer = Lin({a: c for a, c in form.terms.items() if a not in inner}, form.const)
        if not inner:
            return  # it says nothing about iterators
        upper = all(c < 0 for c in inner.values())
        s = self.sum(Lin(inner, 0).scale(-1 if upper else 1))
        one, base = self.fuse(s)
        if one.scale.key != ONE.key or one.lower.key != ONE.key or one.extent.key != one.mark.extent.key:
            raise NotAffine("a predicate that bounds part of an iterator")
        ana, mark = self.ana, one.mark
        if upper:  # mark + base <= outer
            extent = (outer - base).shift(1)
            if ana.known_le(mark.extent, extent):
                return
            if not ana.known_le(extent, mark.extent):
                extent = ana.extreme(MIN, [extent, mark.extent])
            low = ZERO
        else:  # mark + base >= -outer
            low = outer.scale(-1) - base
            if ana.known_le(low, ZERO):
                return
            if not ana.nonneg(low):
                raise NotAffine("a lower bound of unknown sign")
            extent = mark.extent - low
        made = Mark(mark.var, mark.parts, extent, mark.shift + low)
        if mark.var is not None and not mark.parts:
            self.marks[mark.var] = made
            self._rebind(mark, made)
        else:
            parts = list(mark.parts)
            keys = frozenset((id(p.mark), p.lower.key, p.extent.key) for p in parts)
            self.bounded.insert(0, (keys, Sum(parts, ZERO), made, made.shift))

    def _rebind(self, old: Mark, new: Mark) -> None:
        var = old.var
        assert var is not None
        dtype = var.dtype
        build = self.ana.forms.build
        self.ana.bind(var, Range.from_min_extent(build(new.shift, dtype), build(new.extent, dtype)))

    # -- coverage --------------------------------------------------------------------------
    def joined(self, sums: Sequence[Sum]) -> list[Sum]:
        """The sums with splits of the parts of a fused iterator, that with the most parts, as splits of it.

        Beside `(x*8 + y) // 6`, whose fused iterator is `f = x*8 + y`, the sums `x*2 + y // 4` and `y % 4 * 5 + z` are
        `f // 4` and `f % 4 * 5 + z`.
        """
        fused = [m for m in self.fused.values() if all(map(_is_whole, m.parts))]
        for longest in sorted(fused, key=lambda m: -len(m.parts))[:1]:
            by = {id(p.mark): p.scale for p in longest.parts}
            memo: dict[int, Split] = {}
            sums = [Sum([self._of_fused(p, longest, by, memo) for p in s.parts], s.base) for s in sums]
        return list(sums)

    def _of_fused(self, p: Split, longest: Mark, by: dict[int, Lin], memo: dict[int, Split]) -> Split:
        mul = self.ana.mul
        if id(p.mark) in by:
            return Split(longest, mul(p.lower, by[id(p.mark)]), p.extent, p.scale)
        if p.mark is longest or not p.mark.parts:
            return p
        whole = memo.get(id(p.mark))
        if whole is None:
            parts: list[Split] = []
            for q in (self._of_fused(q, longest, by, memo) for q in p.mark.parts):
                outer = parts[-1] if parts else None
                if outer and outer.mark is q.mark and outer.lower.key == mul(q.lower, q.extent).key:
                    parts[-1] = Split(q.mark, q.lower, mul(outer.extent, q.extent), q.scale)
                else:
                    parts.append(q)
            if len(parts) > 1:
                mark, lower, extent, _ = self._fused(list(reversed(parts)))
                parts = [Split(mark, lower, extent, ONE)]
            (whole,) = parts
            memo[id(p.mark)] = whole
        return Split(whole.mark, mul(whole.lower, p.lower), p.extent, p.scale)

    def checked(self, sums: list[Sum], level: IterMapLevel) -> list[Sum]:
        """The sums, with parts of fused iterators joined if they pass the check only then."""
        try:
            self.check(sums, level)
            return sums
        except NotAffine:
            made = [] if self.bounded or self.padded else self.joined(sums)
            if not made:
                raise
        self.check(made, level)
        return made

    def check(self, sums: Sequence[Sum], level: IterMapLevel) -> None:
        """Whether the splits of each mark are adjacent, and (for bijective) cover all of it."""
        splits: dict[int, list[Split]] = {}
        marks: dict[int, Mark] = {}
        seen: set[Var] = set()

        def add(parts: Iterable[Split]) -> None:
            for p in parts:
                splits.setdefault(id(p.mark), []).append(p)
                marks[id(p.mark)] = p.mark

        for s in sums:
            add(s.parts)
        done: set[int] = set()
        while True:
            # A fused mark first: its parts count as used once, however many splits it has.
            ready = [k for k in marks if k not in done and not self._inside_other(k, marks, done)]
            if not ready:
                break
            for k in ready:
                done.add(k)
                mark = marks[k]
                self._check_mark(mark, splits[k], level)
                if mark.parts:
                    add(mark.parts)
                elif mark.var is not None:
                    seen.add(mark.var)
        if level == IterMapLevel.Bijective:
            for v, mark in self.marks.items():
                if v not in seen and mark.extent.key != ONE.key:
                    raise NotAffine(f"iterator {v.name} is not used, so the map is not bijective")

    @staticmethod
    def _inside_other(k: int, marks: dict[int, Mark], done: set[int]) -> bool:
        return any(id(p.mark) == k for n, m in marks.items() if n not in done for p in m.parts)

    def _check_mark(self, mark: Mark, splits: list[Split], level: IterMapLevel) -> None:
        left, want = list(splits), ONE
        mul = self.ana.mul
        while left:
            nxt = next((p for p in left if p.lower.key == want.key), None)
            if nxt is None:
                if level == IterMapLevel.Bijective:
                    raise NotAffine("part of an iterator is not used, so the map is not bijective")
                above = [p for p in left if self._exact(p.lower, want) is not None]
                if not above:
                    raise NotAffine("splits of one iterator overlap")
                nxt = min(above, key=lambda p: (len(p.lower.terms), p.lower.const))
            left.remove(nxt)
            want = mul(nxt.lower, nxt.extent)
        if level == IterMapLevel.Bijective:
            if want.key != mark.extent.key:
                raise NotAffine("part of an iterator is not used, so the map is not bijective")
        elif self._exact(mark.extent, want) is None:
            raise NotAffine("splits that do not divide the extent of their iterator")

    # -- results ---------------------------------------------------------------------------
    def to_mark(self, mark: Mark, dtype: DataType, memo: dict[int, IterMark]) -> IterMark:
        made = memo.get(id(mark))
        if made is None:
            build = self.ana.forms.build
            source: PrimExpr
            if mark.var is not None:
                source = build(of_atom(self.ana.forms.var(mark.var)) - mark.shift, dtype)
            else:
                parts = [self.to_split(p, dtype, memo) for p in mark.parts]
                source = IterSumExpr(tuple(parts), build(mark.shift.scale(-1), dtype))
            made = memo[id(mark)] = IterMark(source, build(mark.extent, dtype))
        return made

    def to_split(self, p: Split, dtype: DataType, memo: dict[int, IterMark]) -> IterSplitExpr:
        build = self.ana.forms.build
        return IterSplitExpr(
            self.to_mark(p.mark, dtype, memo),
            build(p.lower, dtype),
            build(p.extent, dtype),
            build(p.scale, dtype),
        )

    def to_sum(self, s: Sum, dtype: DataType, memo: dict[int, IterMark]) -> IterSumExpr:
        parts = [self.to_split(p, dtype, memo) for p in s.parts]
        return IterSumExpr(tuple(parts), self.ana.forms.build(s.base, dtype))

    def padding_predicate(self, sums: Sequence[Sum], memo: dict[int, IterMark]) -> PrimExpr:
        """The condition of the iterations that padding added."""
        out: PrimExpr = IntImm(BOOL, 0)
        splits: dict[int, dict[Any, Split]] = {}
        stack = [p for s in sums for p in s.parts]
        while stack:
            p = stack.pop()
            splits.setdefault(id(p.mark), {})[p.lower.key] = p
            stack.extend(p.mark.parts)
        for k, mark in self.padded.items():
            used = dict(sorted(splits.get(k, {}).items(), reverse=True, key=lambda t: t[0][0]))
            if not used:
                continue
            dtype = next(iter(self.marks)).dtype
            parts = [self.to_split(p.scaled(p.lower), dtype, memo) for p in used.values()]
            value = normalize_iter_map_to_expr(IterSumExpr(tuple(parts), const(0, dtype)))
            out = logical_or(out, greater_equal(value, self.ana.forms.build(mark.real, dtype)))
        return out


def as_iters(input_iters: Mapping[Any, Range]) -> dict[Var, Range]:
    return {(v.var if isinstance(v, IterVar) else v): dom for v, dom in input_iters.items()}


def detect_iter_map(
    indices: Iterable[Any],
    input_iters: Mapping[Any, Range],
    predicate: Any = True,
    check_level: IterMapLevel | str = IterMapLevel.Surjective,
    require_bijective: bool = False,
    simplify_trivial_iterators: bool = True,
) -> IterMapResult:
    """Indices as sums of splits of iterators, each fused to a single one; none if that cannot be done."""
    level = IterMapLevel.Bijective if require_bijective else IterMapLevel.of(check_level)
    try:
        mapper, sums, dtypes = map_indices(indices, input_iters, predicate, level, simplify_trivial_iterators)
        memo: dict[int, IterMark] = {}
        made = [mapper.to_sum(s, d, memo) for s, d in zip(sums, dtypes)]
        return IterMapResult(made, [], mapper.padding_predicate(sums, memo))
    except NotAffine as why:
        return IterMapResult([], [str(why)], IntImm(BOOL, 0))
    except DoesNotFit:
        return IterMapResult([], ["a factor does not fit its type"], IntImm(BOOL, 0))


def map_indices(
    indices: Iterable[Any],
    input_iters: Mapping[Any, Range],
    predicate: Any,
    level: IterMapLevel,
    trivial: bool,
) -> tuple[Mapper, list[Sum], list[DataType]]:
    """The indices as fused sums, checked."""
    exprs = [convert(e) for e in indices]
    for e in exprs:
        if not is_index(e.dtype):
            raise NotAffine(f"{e} of type {e.dtype} is not an index")
    first: Any = None
    for as_written in (False, True):
        mapper = Mapper(as_iters(input_iters), level != IterMapLevel.Bijective, trivial)
        try:
            mapper.constrain(convert(predicate))
            sums = [mapper.index(e, as_written) for e in exprs]
            if mapper.padded:
                sums = [mapper.index(e, as_written) for e in exprs]  # with all padding in place
            _used_bounds(mapper, sums)
            if level != IterMapLevel.NoCheck:
                sums = mapper.checked(sums, level)
        except NotAffine as why:
            first = first or why
            continue
        made = mapper, sums, [e.dtype for e in exprs]
        if not mapper.padded:
            return made
        first = made if not isinstance(first, tuple) else first
    if isinstance(first, tuple):
        return first
    raise first


def _used_bounds(mapper: Mapper, sums: list[Sum]) -> None:
    """A predicate on a sum ties its iterators together: they may only occur as that sum."""
    tied: dict[int, Mark] = {}
    for _, bound, mark, _ in mapper.bounded:
        for p in bound.parts:
            tied.setdefault(id(p.mark), mark)  # the last bound contains all earlier ones
    if not tied:
        return
    stack = [(p, None) for s in sums for p in s.parts]
    while stack:
        p, inside = stack.pop()
        owner = tied.get(id(p.mark))
        if owner is not None and inside is not owner:
            raise NotAffine("an iterator is used outside of the sum that the predicate bounds")
        stack.extend((q, p.mark) for q in p.mark.parts)  # type: ignore[misc]


def normalize_to_iter_sum(index: Any, input_iters: Mapping[Any, Range]) -> IterSumExpr:
    """The index as a sum of splits, the widest first, fused or not; raises ValueError if it is not one."""
    e = convert(index)
    mapper = Mapper(as_iters(input_iters), True, True)
    try:
        s = mapper.sum(mapper.ana.norm(e))
    except NotAffine as why:
        raise ValueError(f"{e} is not a sum of iterators: {why}") from None
    reach = lambda p: mapper.ana.bound(mapper.ana.mul(p.scale, p.extent))[1]
    return mapper.to_sum(Sum(sorted(s.parts, key=reach, reverse=True), s.base), e.dtype, {})


def iter_map_simplify(
    indices: Iterable[Any],
    input_iters: Mapping[Any, Range],
    predicate: Any = True,
    check_level: IterMapLevel | str = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
) -> list[PrimExpr]:
    """The indices simplified by their iteration map."""
    exprs = [convert(e) for e in indices]
    ana = Analyzer()
    for v, dom in as_iters(input_iters).items():
        ana.bind(v, dom)
    with ana.constraint_scope(predicate):
        plain = [ana.simplify(e) for e in exprs]
        found = detect_iter_map(
            plain, input_iters, predicate, check_level, simplify_trivial_iterators=simplify_trivial_iterators
        )
        if not found.indices or not _is_false(found.padding_predicate):
            return plain
        return [ana.simplify(normalize_iter_map_to_expr(s)) for s in found.indices]


def _is_false(e: PrimExpr) -> bool:
    return e.__class__ is IntImm and e.value == 0  # type: ignore[attr-defined]
