"""Injectivity: whether written elements determine the point of a block, and points the iterations of loops."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from ...arith import Analyzer, IterMapLevel, IterSplitExpr, detect_iter_map
from ...ir.buffer import BufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import (
    LE,
    LT,
    Add,
    And,
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
    const_value,
)
from ...ir.functor import pre_order, rewrite, substitute, vars_used
from ...ir.ops import add, conjuncts, floormod, greater_equal, is_one, less, less_equal, logical_and, mul, sub
from ...ir.stmt import Block, BlockRealize, For


def undetermined_iterator(block: Block, region: BufferRegion) -> IterVar | None:
    """A spatial iterator of a block whose value the elements of a region do not determine; None if they determine all.

    `B[vi, vj]` determines both, `B[vi + vj]`, `B[X[vi]]` and `B[vi : vi + 4]` neither.
    """
    spatial = [iv for iv in block.iter_vars if iv.iter_type == IterVar.DataPar and not is_one(iv.dom.extent)]
    single = [r.min for r in region.region if is_one(r.extent)]
    left = [iv for iv in spatial if not any(_is_shifted(e, iv.var) for e in single)]
    if not left:
        return None
    doms = {iv.var: iv.dom for iv in block.iter_vars}
    ends: list[PrimExpr] = []
    # A range of several elements is represented by its first one, if the ranges do not overlap.
    for r in region.region:
        if not vars_used(r.min) & doms.keys():
            continue
        size, step = const_value(r.extent), _step(r.min)
        if size is None or (size != 1 and step % int(size)):
            return left[0]
        ends.append(r.min)
    used = {v: dom for v, dom in doms.items() if any(v in vars_used(e) for e in ends)}
    missing = next((iv for iv in left if iv.var not in used), None)
    if missing is not None:
        return missing
    found = detect_iter_map(ends, used, const(True, "bool"), IterMapLevel.Bijective)
    return left[0] if found.errors else None


def _is_shifted(e: PrimExpr, v: Var) -> bool:
    """Whether an index is an iterator, or an iterator plus a constant."""
    return e is v or (
        isinstance(e, Add)
        and ((e.a is v and isinstance(e.b, IntImm)) or (e.b is v and isinstance(e.a, IntImm)))
    )


def _step(e: PrimExpr) -> int:
    """The constant that an index is a multiple of, 16 for `v*16`."""
    return e.b.value if isinstance(e, Mul) and isinstance(e.b, IntImm) else 1


def loops_injective(realize: BlockRealize, loops: Sequence[For], around: Sequence[For]) -> bool:
    """Whether no two iterations of `loops`, which are some of those `around` a block, visit the same point of it.

    `vi = i_0*4 + i_1`, where i_1 < 4, determines both loops; `vi = i + j` neither.
    """
    left = {x.loop_var: x for x in loops}
    values = list(realize.iter_values)
    ana = Analyzer()
    for x in around:
        ana.bind_loop(x.loop_var, x.min, x.extent)
    while left:
        known = next((d for d in (_digits(v, left, ana) for v in values) if d), None)
        if known is None:
            break
        for v in known:
            del left[v]
    if not left:
        return True
    doms = {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in loops}
    for conditions in (False, True):
        for more in (False, True):  # the parts of a split of a fused loop may be injective only together
            if more:
                doms |= {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in around}
            inside: PrimExpr = const(True, "bool")
            for c in conjuncts(realize.predicate) if conditions else ():
                if vars_used(c) <= doms.keys():
                    inside = logical_and(inside, c)
            if not detect_iter_map(values, doms, inside, IterMapLevel.Bijective).errors:
                return True
    # Loops for which the predicate holds in one iteration only do not matter: `vk = k_1 where k_0*2 + k_1 < 1`.
    with ana.constraint_scope(realize.predicate):
        return all(ana.can_prove(less_equal(v, x.min)) for v, x in left.items())


def _digits(value: PrimExpr, loops: Mapping[Var, For], ana: Analyzer) -> list[Var]:
    """The loops of which a value is a mixed-radix number; none if it has any other form."""
    found = _coefficients(value, loops.keys()) or {}
    reach: int | None = 0  # greatest value of the digits below
    for v, scale in sorted(found.items(), key=lambda item: abs(item[1])):
        if reach is None or abs(scale) <= reach:
            return []
        most = ana.const_int_bound(loops[v].extent).max_value  # the longest row of a triangle
        reach = None if most >= 1 << 31 else reach + abs(scale) * max(most - 1, 0)
    return list(found)


def _coefficients(value: PrimExpr, variables: Set[Var]) -> dict[Var, int] | None:
    """The coefficients of variables in a sum; None if it is not linear in them."""
    found: dict[Var, int] = {}
    stack = [(value, 1)]
    while stack:
        e, scale = stack.pop()
        if isinstance(e, (Add, Sub)):
            stack += [(e.a, scale), (e.b, scale if isinstance(e, Add) else -scale)]
        elif isinstance(e, Mul) and isinstance(e.b, IntImm):
            stack.append((e.a, scale * e.b.value))
        elif isinstance(e, Var):
            if e in variables:
                found[e] = found.get(e, 0) + scale
        elif vars_used(e) & variables:
            return None
    return found


def is_gapless(low: PrimExpr, size: PrimExpr, doms: Mapping[Var, Range]) -> bool:
    """Whether ranges of `size` elements from `low` on leave no gap between them as variables run through their domains.

    `i*4 + j` leaves none where j runs to 4, and `i*4` alone only if the size is 4.
    """
    scales = _coefficients(low, doms.keys())
    reach = const_value(size) or 1
    for v, scale in sorted((scales or {}).items(), key=lambda item: abs(item[1])):
        if abs(scale) > reach:
            return False
        reach += abs(scale) * ((const_value(doms[v].extent) or 1) - 1)
    return scales is not None


def unify_dividends(values: Sequence[PrimExpr], doms: Mapping[Var, Range]) -> list[PrimExpr]:
    """Values whose quotients and remainders of one number have the same dividend again.

    `(i*32 + j*2 + k) // 30`, where k < 2, was simplified to `(i*16 + j) // 15`, which hides that `% 30` has the same
    dividend.
    """
    parts = [m for v in values for m in pre_order(v) if isinstance(m, (FloorDiv, FloorMod))]
    if len(parts) < 2 or not any(isinstance(m, FloorDiv) for m in parts):
        return list(values)
    ana = Analyzer()
    for v, r in doms.items():
        ana.bind_loop(v, r.min, r.extent)

    def larger(n: FloorDiv) -> PrimExpr | None:
        step = const_value(n.b)
        for m in parts:
            times = _times(ana, m.a, n.a) if step is not None and m.a.dtype is n.a.dtype else 1
            if times > 1:
                rest = ana.simplify(sub(m.a, mul(n.a, const(times, n.dtype))))
                low, high = const(0, n.dtype), const(times, n.dtype)
                if ana.can_prove(greater_equal(rest, low)) and ana.can_prove(less(rest, high)):
                    return FloorDiv(m.a, const(int(step or 1) * times, n.dtype))
        return None

    return unify_remainders([rewrite(v, {FloorDiv: larger}) for v in values])


def unify_remainders(values: Sequence[PrimExpr]) -> list[PrimExpr]:
    """Remainders with the dividend of the matching quotient: `(i*32 + j) // 10` and `(i*2 + j) % 10` are quotient and
    remainder of `i*32 + j`."""
    quotients = [m for v in values for m in pre_order(v) if isinstance(m, FloorDiv)]
    ana = Analyzer()

    def whole(n: FloorMod) -> PrimExpr | None:
        for q in quotients:
            if q.a.dtype is n.a.dtype and ana.can_prove_equal(q.b, n.b) and not structural_equal(q.a, n.a):
                if ana.can_prove_equal(floormod(sub(q.a, n.a), n.b), const(0, n.dtype)):
                    return FloorMod(q.a, n.b)
        return None

    return [rewrite(v, {FloorMod: whole}) if quotients else v for v in values]


def _times(ana: Analyzer, large: PrimExpr, small: PrimExpr) -> int:
    """The ratio of the coefficients of a variable in two sums; 1 if it is not an integer."""
    for v in sorted(vars_used(small) & vars_used(large), key=lambda v: v.name):
        moved = {v: add(v, const(1, v.dtype))}
        far, near = (const_value(ana.simplify(sub(substitute(e, moved), e))) for e in (large, small))
        return int(far) // int(near) if far and near and int(far) % int(near) == 0 else 1
    return 1


_COUNTED = 1 << 18  # points up to which enumerating them is faster than a proof
_NUMERIC: dict[type, Callable[[Any, Any], Any]] = {
    Add: operator.add,
    Sub: operator.sub,
    Mul: operator.mul,
    FloorDiv: operator.floordiv,
    FloorMod: operator.mod,
    LT: operator.lt,
    LE: operator.le,
    And: operator.and_,
}


def evaluated(e: PrimExpr, values: Mapping[Var, Any]) -> Any:
    """An expression evaluated for arrays of values of its variables."""
    if isinstance(e, Var) and e in values:
        return values[e]
    if isinstance(e, IntImm):
        return e.value
    if e.__class__ in _NUMERIC:
        a, b = evaluated(e.a, values), evaluated(e.b, values)  # type: ignore[attr-defined]
        return _NUMERIC[e.__class__](a, b)
    raise ValueError(f"`{e}` cannot be computed for an array: it uses {sorted(v.name for v in vars_used(e))}")


Box = list[tuple[PrimExpr, PrimExpr]]


def filled_box(
    ranges: Iterable[tuple[PrimExpr, PrimExpr]], doms: Mapping[Var, Range], predicate: PrimExpr
) -> Box | None:
    """The bounds of the box that regions, given as (first element, extent) in each dimension, cover as loops run where
    a predicate holds; None if they skip a point of their bounding box.

    `W[f // 8, f % 8]` covers a box for 64 values of f, and not for 60; `W[i, i]` and `W[i*2]` do not.
    """
    values, doms = [], dict(doms)
    for low, size in ranges:
        if is_one(size):
            values.append(low)
            continue
        within = Var("within", low.dtype)
        doms[within] = Range.from_min_extent(const(0, low.dtype), size)
        values.append(add(low, within))
    try:
        return _counted(values, doms, predicate)
    except _NotCounted:
        return _mapped(unify_dividends(values, doms), doms, predicate)


def fill_box(
    ranges: Iterable[tuple[PrimExpr, PrimExpr]], doms: Mapping[Var, Range], predicate: PrimExpr
) -> bool:
    """Whether regions cover every point of their bounding box: see `filled_box`."""
    return filled_box(ranges, doms, predicate) is not None


def _mapped(values: Sequence[PrimExpr], doms: Mapping[Var, Range], predicate: PrimExpr) -> Box | None:
    """The box by the iteration map: each index is a base plus a loop of its own."""
    found = detect_iter_map(values, doms, predicate, IterMapLevel.Surjective)
    if found.errors or const_value(found.padding_predicate) != 0:
        return None
    box: Box = []
    for e in found.indices:
        if len(e.args) > 1 or not all(isinstance(a, IterSplitExpr) and is_one(a.scale) for a in e.args):
            return None
        last = sub(add(e.base, e.args[0].extent), const(1, e.dtype)) if e.args else e.base  # type: ignore[attr-defined]
        box.append((e.base, last))
    return box


class _NotCounted(Exception):
    """Sizes or expressions that are not constants, or too many points."""


def _counted(values: Sequence[PrimExpr], doms: Mapping[Var, Range], predicate: PrimExpr) -> Box | None:
    """The box by enumerating the points."""
    import numpy as np

    sizes = [const_value(r.extent) for r in doms.values()]
    if any(n is None or n < 1 for n in sizes) or math.prod(map(int, sizes)) > _COUNTED:  # type: ignore[arg-type]
        raise _NotCounted
    ana = Analyzer()
    for v, r in doms.items():
        ana.bind_loop(v, r.min, r.extent)
    first: dict[Any, Any] = {v: r.min for v, r in doms.items()}
    starts = [ana.simplify(substitute(v, first)) for v in values]
    shifts = [ana.simplify(sub(v, s)) for v, s in zip(values, starts, strict=True)]
    grid = np.indices([int(n or 1) for n in sizes])
    try:
        at = {v: i + evaluated(r.min, {}) for i, (v, r) in zip(grid, doms.items(), strict=True)}
        points = np.stack([np.broadcast_to(evaluated(s, at), grid.shape[1:]).ravel() for s in shifts])
        keep = np.broadcast_to(evaluated(predicate, at), grid.shape[1:]).ravel().astype(bool)
    except ValueError:  # other variables, or more than arithmetic
        raise _NotCounted from None
    points = points[:, keep]
    if points.shape[1] == 0:
        return None
    first_of, spans = points.min(axis=1), np.ptp(points, axis=1) + 1
    volume = math.prod(map(int, spans))
    if volume > points.shape[1]:
        return None
    seen = np.zeros(volume, bool)
    seen[np.ravel_multi_index(tuple(points - first_of[:, None]), tuple(spans))] = True
    if not seen.all():
        return None
    return [
        (add(s, const(int(low), s.dtype)), add(s, const(int(low + span - 1), s.dtype)))
        for s, low, span in zip(starts, first_of, spans, strict=True)
    ]
