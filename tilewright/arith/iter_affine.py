"""Applications of iteration maps: inverses, and division into an outer and an inner space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..ir.expr import IterVar, PrimExpr, Range, Var, const, convert
from ..ir.ops import add, conjuncts, floordiv, floormod, logical_and, mul, sub
from .analyzer import Analyzer
from .form import DoesNotFit, Lin, expr_vars
from .iter_expr import IterMark, IterSplitExpr, IterSumExpr
from .iter_map import (
    ONE,
    ZERO,
    IterMapLevel,
    Mapper,
    Mark,
    NotAffine,
    Split,
    Sum,
    map_indices,
)


def inverse_affine_iter_map(iter_map: Sequence[IterSumExpr], outputs: Sequence[Any]) -> dict[Var, PrimExpr]:
    """The iterators in terms of the indices of a bijective map.

    [l0 = i // 8, l1 = i % 8]   gives   {i: l0 * 8 + l1}
    """
    if len(iter_map) != len(outputs):
        raise ValueError(f"{len(iter_map)} indices against {len(outputs)} outputs")
    values: dict[IterMark, PrimExpr] = {}
    out: dict[Var, PrimExpr] = {}
    for s, o in zip(iter_map, outputs):
        _give(s, convert(o), values)
    done: set[IterMark] = set()
    while True:
        # A mark is ready when no mark still to be opened has it as a part.
        waiting = {p.source for m in values if m not in done for p in _parts(m)}
        ready = [m for m in values if m not in done and m not in waiting]
        if not ready:
            break
        for m in ready:
            done.add(m)
            if isinstance(m.source, IterSumExpr):
                _give(m.source, values[m], values)
            else:
                var, shift = _var_of(m.source)
                out[var] = add(values[m], shift)
    ana = Analyzer()
    for s, o in zip(iter_map, outputs):
        if isinstance(o, Var) and len(s.args) == 1:
            ana.bind(o, _range_of(s))
    return {v: ana.simplify(e) for v, e in out.items()}


def _range_of(s: IterSumExpr) -> Range:
    p: Any = s.args[0]
    return Range.from_min_extent(s.base, add(mul(sub(p.extent, 1), p.scale), 1))


def _parts(m: IterMark) -> Iterable[IterSplitExpr]:
    return m.source.args if isinstance(m.source, IterSumExpr) else ()  # type: ignore[return-value]


def _var_of(source: PrimExpr) -> tuple[Var, PrimExpr]:
    """The variable of `var - shift`, and the shift."""
    e: Any = source
    while not isinstance(e, Var):
        e = getattr(e, "a", None)
        if e is None:
            raise ValueError(f"{source} is not an iterator minus its minimum")
    return e, sub(e, source)


def _give(s: IterSumExpr, value: PrimExpr, values: dict[IterMark, PrimExpr]) -> None:
    """Distribute the value of a sum to the marks of its splits."""
    value = sub(value, s.base)
    for n, p in enumerate(s.args):
        assert isinstance(p, IterSplitExpr)
        part = floordiv(value, p.scale)
        if n or len(s.args) > 1:
            part = floormod(part, p.extent)
        part = mul(part, p.lower_factor)
        old = values.get(p.source)
        values[p.source] = part if old is None else add(old, part)


# ---------------------------------------------------------------------------- division
class _Divider:
    """Divides sums of splits into an outer part and a part over the inner iterators only.

    A sum is `outer * extent of inner + inner`.
    """

    def __init__(self, mapper: Mapper, inner: frozenset[Var]) -> None:
        self.mapper, self.inner = mapper, inner
        self.ana = mapper.ana
        self.memo: dict[int, tuple[Mark | None, Mark | None, Lin]] = {}

    def mark(self, m: Mark) -> tuple[Mark | None, Mark | None, Lin]:
        """The outer mark, the inner mark, and the extent of the inner one."""
        found = self.memo.get(id(m))
        if found is None:
            if m.var is not None:
                found = (None, m, m.extent) if m.var in self.inner else (m, None, ONE)
            else:
                outer, inner = self.parts(list(m.parts))
                if outer and inner and self._product(m.parts).key != m.extent.key:
                    raise NotAffine("a predicate couples the outer and the inner iterators")
                found = self._marks(m, outer, inner)
            self.memo[id(m)] = found
        return found

    def _product(self, parts: Iterable[Split]) -> Lin:
        out = ONE
        for p in parts:
            out = self.ana.mul(out, p.extent)
        return out

    def _marks(self, m: Mark, outer: list[Split], inner: list[Split]) -> tuple[Mark | None, Mark | None, Lin]:
        if not inner:
            return m, None, ONE
        if not outer:
            return None, m, m.extent
        size = self._product(inner)
        return (
            Mark(None, tuple(self._packed(outer)), self._product(outer), ZERO),
            Mark(None, tuple(self._packed(inner)), size, ZERO),
            size,
        )

    def _packed(self, parts: list[Split]) -> list[Split]:
        """Splits, the outermost first, with scales as if they were all there is."""
        out: list[Split] = []
        scale = ONE
        for p in reversed(parts):
            out.append(p.scaled(scale))
            scale = self.ana.mul(scale, p.extent)
        return out[::-1]

    def parts(self, parts: list[Split]) -> tuple[list[Split], list[Split]]:
        """Splits (the outermost first) parted into outer and inner ones; the inner ones must come last."""
        outer: list[Split] = []
        inner: list[Split] = []
        for p in parts:
            a, b = self.split(p)
            if a is not None:
                if inner:
                    raise NotAffine("an inner iterator is outside of an outer one")
                outer.append(a)
            if b is not None:
                inner.append(b)
        return outer, inner

    def split(self, p: Split) -> tuple[Split | None, Split | None]:
        outer, inner, size = self.mark(p.mark)
        if inner is None:
            return p, None
        if outer is None:
            return None, p
        exact, mul = self.mapper._exact, self.ana.mul
        below = exact(p.lower, size)
        if below is not None:
            return Split(outer, below, p.extent, p.scale), None
        top = mul(p.lower, p.extent)
        if exact(size, top) is not None:
            return None, Split(inner, p.lower, p.extent, p.scale)
        head, tail = exact(top, size), exact(size, p.lower)
        if head is None or tail is None:
            raise NotAffine("a split that the inner extent does not divide")
        return Split(outer, ONE, head, mul(p.scale, tail)), Split(inner, p.lower, tail, p.scale)


def subspace_divide(
    bindings: Iterable[Any],
    input_iters: Mapping[Any, Range],
    sub_iters: Iterable[Any],
    predicate: Any = True,
    check_level: IterMapLevel | str = IterMapLevel.Surjective,
    simplify_trivial_iterators: bool = True,
) -> list[list[IterMark]]:
    """Each binding as an outer and an inner iterator, the inner one over `sub_iters` only.

    binding = outer * extent of inner + inner. The last pair holds the outer and the inner predicate. The
    list is empty if the bindings cannot be divided so.
    """
    held = frozenset(v.var if isinstance(v, IterVar) else v for v in sub_iters)
    level = IterMapLevel.of(check_level)
    try:
        mapper, sums, dtypes = map_indices(
            bindings, input_iters, predicate, level, simplify_trivial_iterators
        )
        if mapper.padded:
            return []
        divider = _Divider(mapper, held)
        memo: dict[int, IterMark] = {}
        out = []
        for s, dtype in zip(sums, dtypes):
            outer, inner = divider.parts(s.parts)
            if outer and inner and s.parts[0].scale.key != ONE.key:
                raise NotAffine("a stride over outer and inner iterators")
            out.append(
                [
                    _as_mark(mapper, outer, ZERO if inner else s.base, dtype, memo, bool(inner)),
                    _as_mark(mapper, inner, s.base if inner else ZERO, dtype, memo, False),
                ]
            )
    except (NotAffine, DoesNotFit):
        return []
    outside, inside = _divide_predicate(convert(predicate), held, mapper.vars)
    zero = const(0, dtypes[0] if dtypes else "int32")
    out.append([IterMark(outside, zero), IterMark(inside, zero)])
    return out


def _as_mark(
    mapper: Mapper, parts: list[Split], base: Lin, dtype: Any, memo: dict[int, IterMark], unit: bool
) -> IterMark:
    """A sum of at most one split as a mark; `unit` takes its scale off."""
    extent = ONE
    for p in parts:
        extent = mapper.ana.mul(extent, p.extent)
    if unit and parts:
        parts = [p.scaled(q) for p, q in zip(parts, _scales(mapper, parts))]
    source = mapper.to_sum(Sum(parts, base), dtype, memo)
    return IterMark(source, mapper.ana.forms.build(extent, dtype))


def _scales(mapper: Mapper, parts: list[Split]) -> list[Lin]:
    out, scale = [], ONE
    for p in reversed(parts):
        out.append(scale)
        scale = mapper.ana.mul(scale, p.extent)
    return out[::-1]


def _divide_predicate(
    predicate: PrimExpr, held: frozenset[Var], iters: frozenset[Var]
) -> tuple[PrimExpr, PrimExpr]:
    outside: PrimExpr = const(True)
    inside: PrimExpr = const(True)
    for c in conjuncts(predicate):
        if expr_vars(c) & (iters - held):
            outside = logical_and(outside, c)
        else:
            inside = logical_and(inside, c)
    return outside, inside
