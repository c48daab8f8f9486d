"""Injectivity: whether written elements determine the point of a block, and points the iterations of loops."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from ...arith import Analyzer, IterMapLevel, IterSplitExpr, detect_iter_map
from ...ir.buffer import BufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    IterVar,
    Max,
    Min,
    Mul,
    Not,
    Or,
    PrimExpr,
    Range,
    Sub,
    Var,
    const,
    const_value,
)
from ...ir.functor import pre_order, rewrite, substitute, vars_used
from ...ir.op import Op
from ...ir.ops import (
    add,
    conjunction,
    conjuncts,
    floordiv,
    floormod,
    greater_equal,
    is_one,
    less,
    less_equal,
    mul,
    sub,
)
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
    known = determined_iterators(block, region)
    return next((iv for iv in left if iv.var not in known), None)


def _is_shifted(e: PrimExpr, v: Var) -> bool:
    """Whether an index is an iterator, or an iterator plus a constant."""
    return e is v or (
        isinstance(e, Add)
        and ((e.a is v and isinstance(e.b, IntImm)) or (e.b is v and isinstance(e.a, IntImm)))
    )


def determined_iterators(block: Block, region: BufferRegion) -> set[Var]:
    """The iterators of a block that each element of a region determines: v for `B[v // 56, v % 56]`, v and w for
    `B[v*32 + w*4 : v*32 + w*4 + 4]` if w < 8."""
    ana = Analyzer()
    doms = {iv.var: iv.dom for iv in block.iter_vars}
    values: list[PrimExpr] = []
    for r in region.region:
        index = r.min
        if not is_one(r.extent):
            within = Var("within", index.dtype)
            doms[within] = Range.from_min_extent(const(0, index.dtype), r.extent)
            index = add(index, within)
        values.append(index)
    ana.bind_ranges(doms)
    return determined(unify_dividends(values, doms), doms.keys(), ana)


def determined(values: Sequence[PrimExpr], unknown: Set[Var], ana: Analyzer) -> set[Var]:
    """The unknown variables that values determine, found digit by digit.

    Of `i*w + (j*2 + k)`, where `j*2 + k < w`, i is the quotient by w, `j*2 + k` the remainder, and so on. w may be
    symbolic. A quotient and the remainder of the same division determine the dividend.
    """
    known: set[Var] = set()
    rests = _merge_divmod(ana, list(values))
    at = 0
    while at < len(rests):
        found = _digit(ana, rests[at], unknown - known)
        if found is None:
            at += 1
            continue
        digit, rest = found
        rests = [*rests[:at], rest, *rests[at + 1 :]]
        if isinstance(digit, Var):
            known.add(digit)
        else:
            rests.append(digit)
        rests = _merge_divmod(ana, rests)
        at = 0  # the digit found may make others known
    return known


def _merge_divmod(ana: Analyzer, values: list[PrimExpr]) -> list[PrimExpr]:
    """Values with each pair `e // c`, `e % c` replaced by `e`."""
    for r in values:
        if isinstance(r, FloorMod):
            for q in values:
                if q is not r and _is_quotient(ana, q, r):
                    return _merge_divmod(ana, [*(v for v in values if v is not q and v is not r), r.a])
    return values


def _is_quotient(ana: Analyzer, q: PrimExpr, r: FloorMod) -> bool:
    """Whether a value is the quotient that belongs to a remainder: `e // 20` for `e // 4 % 5`."""
    if isinstance(r.a, FloorDiv) and isinstance(r.a.b, IntImm) and isinstance(r.b, IntImm) and r.b.value > 0:
        by = const(r.a.b.value * r.b.value, r.dtype)
        if r.a.b.value > 0 and structural_equal(q, FloorDiv(r.a.a, by)):
            return True
    return ana.can_prove_equal(q, floordiv(r.a, r.b))


def _digit(ana: Analyzer, value: PrimExpr, unknown: Set[Var]) -> tuple[PrimExpr, PrimExpr] | None:
    """A variable, quotient or remainder in a value, and the value without it, if that rest varies by less than its
    coefficient."""
    for digit in pre_order(value):
        if not isinstance(digit, (Var, FloorDiv, FloorMod)) or not vars_used(digit) & unknown:
            continue
        if digit is value and not isinstance(digit, Var):
            continue  # removing it leaves nothing to go on with
        var = Var("digit", digit.dtype)
        one, zero = const(1, var.dtype), const(0, var.dtype)
        form = _replace_part(value, digit, var)
        step = ana.simplify(sub(substitute(form, {var: add(var, one)}), form))
        if vars_used(step) & (unknown | {var}):
            continue
        rest = ana.simplify(substitute(form, {var: zero}))
        size, bound = const_value(step), ana.const_int_bound(rest)
        if size and bound.max_value - bound.min_value < abs(size):
            return digit, rest
        if ana.can_prove(less(rest, step)) and ana.can_prove(greater_equal(rest, zero)):
            return digit, rest
    return None


def _replace_part(value: PrimExpr, part: PrimExpr, other: PrimExpr) -> PrimExpr:
    """A value with `other` substituted for one of its subexpressions."""
    if isinstance(part, Var):
        return substitute(value, {part: other})
    same = {type(part): lambda n: other if structural_equal(n, part) else None}
    made: PrimExpr = rewrite(value, same)
    return made


def loops_injective(realize: BlockRealize, loops: Sequence[For], around: Sequence[For]) -> bool:
    """Whether no two iterations of `loops`, which are some of those `around` a block, visit the same point of it.

    `vi = i_0*4 + i_1`, where i_1 < 4, determines both loops; `vi = i + j` neither.
    """
    left = {x.loop_var: x for x in loops}
    values = list(realize.iter_values)
    ana = Analyzer()
    ana.bind_ranges({x.loop_var: x.dom for x in around})
    while left:
        known = next((d for d in (_digits(v, left, ana) for v in values) if d), None)
        if known is None:
            break
        for v in known:
            del left[v]
    if not left:
        return True
    doms = {x.loop_var: x.dom for x in loops}
    for conditions in ([], conjuncts(realize.predicate)):
        for more in (False, True):  # the parts of a split of a fused loop may be injective only together
            if more:
                doms |= {x.loop_var: x.dom for x in around}
            inside = conjunction(c for c in conditions if vars_used(c) <= doms.keys())
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


def is_gapless(low: PrimExpr, size: PrimExpr, doms: Mapping[Var, Range], once: bool = False) -> bool:
    """Whether ranges of `size` elements from `low` on leave no gap between them as variables run through their domains,
    and do not overlap if `once`.

    `i*4 + j` leaves none where j runs to 4, and `i*4` alone only if the size is 4.
    """
    scales = _coefficients(low, {v for v, r in doms.items() if not is_one(r.extent)})
    reach = const_value(size) or 1
    for v, scale in sorted((scales or {}).items(), key=lambda item: abs(item[1])):
        if (abs(scale) != reach) if once else (abs(scale) > reach):
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
    ana.bind_ranges(doms)

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
    remainder of `i*32 + j`, and so are `(i*64 + j) // 20` and `(i*2 + j // 2) % 10` of `(i*64 + j) // 2`."""
    quotients = [m for v in values for m in pre_order(v) if isinstance(m, FloorDiv)]
    ana = Analyzer()

    def whole(n: FloorMod) -> PrimExpr | None:
        for q in quotients:
            if q.a.dtype is not n.a.dtype:
                continue
            by, step = const_value(q.b), const_value(n.b)
            times = int(by // step) if by and step and by % step == 0 else 1
            if times == 1 and not ana.can_prove_equal(q.b, n.b):
                continue
            dividend = q.a if times == 1 else floordiv(q.a, const(times, n.dtype))
            if not structural_equal(dividend, n.a):
                if ana.can_prove_equal(floormod(sub(dividend, n.a), n.b), const(0, n.dtype)):
                    return FloorMod(dividend, n.b)
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
    GT: operator.gt,
    GE: operator.ge,
    EQ: operator.eq,
    NE: operator.ne,
    And: operator.and_,
    Or: operator.or_,
    Min: lambda a, b: np.minimum(a, b),
    Max: lambda a, b: np.maximum(a, b),
}
_PASSED_ON = (Op.get("tir.likely"), Op.get("tir.assume_pure"))


def evaluated(e: PrimExpr, values: Mapping[Var, Any]) -> Any:
    """An expression evaluated for arrays of values of its variables."""
    if isinstance(e, Var) and e in values:
        return values[e]
    if isinstance(e, IntImm):
        return e.value
    if e.__class__ in _NUMERIC:
        a, b = evaluated(e.a, values), evaluated(e.b, values)  # type: ignore[attr-defined]
        return _NUMERIC[e.__class__](a, b)
    if isinstance(e, Call) and e.op in _PASSED_ON:
        return evaluated(e.args[0], values)
    if isinstance(e, Not):
        return np.logical_not(evaluated(e.a, values))
    if isinstance(e, Cast) and e.dtype.is_integral and e.value.dtype.is_integral:
        return evaluated(e.value, values)
    raise ValueError(f"`{e}` cannot be computed for an array: it uses {sorted(v.name for v in vars_used(e))}")


Box = list[tuple[PrimExpr, PrimExpr]]  # the first and last index along each dimension


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
        return mapped_box(values, doms, predicate)


def mapped_box(values: Sequence[PrimExpr], doms: Mapping[Var, Range], predicate: PrimExpr) -> Box | None:
    """The bounds of each value, if together they take every point of that box as the loops run; else None.

    Found by the iteration map: each value is a base plus a loop of its own.
    """
    if not any(vars_used(v) & doms.keys() for v in values):
        return None if vars_used(predicate) else [(v, v) for v in values]
    if vars_used(predicate) - doms.keys():
        return None
    found = detect_iter_map(unify_dividends(values, doms), doms, predicate, IterMapLevel.Surjective)
    if found.errors or const_value(found.padding_predicate) != 0:
        return None  # padding makes the box larger than the points that the loops visit
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
    sizes = [const_value(r.extent) for r in doms.values()]
    if any(n is None or n < 1 for n in sizes) or math.prod(map(int, sizes)) > _COUNTED:  # type: ignore[arg-type]
        raise _NotCounted
    ana = Analyzer()
    ana.bind_ranges(doms)
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
