"""Whether the elements that a block writes tell its points apart, and its points the iterations of loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...arith import Analyzer, IterMapLevel, detect_iter_map
from ...ir.buffer import BufferRegion
from ...ir.expr import Add, IntImm, IterVar, Mul, PrimExpr, Range, Sub, Var, const, const_value
from ...ir.functor import vars_used
from ...ir.ops import conjuncts, is_one, less_equal, logical_and
from ...ir.stmt import Block, BlockRealize, For

__all__ = ["come_once", "untold"]


def untold(block: Block, region: BufferRegion) -> IterVar | None:
    """A spatial iterator of a block of which the elements in a region do not say the value; None if there is none.

    `B[vi, vj]` tells of both, `B[vi + vj]` and `B[X[vi]]` of neither.
    """
    spatial = [iv for iv in block.iter_vars if iv.iter_type == IterVar.DataPar and not is_one(iv.dom.extent)]
    mins = [r.min for r in region.region]
    left = [iv for iv in spatial if not any(_is_shifted(e, iv.var) for e in mins)]
    if not left:
        return None
    doms = {iv.var: iv.dom for iv in block.iter_vars}
    ends: list[PrimExpr] = []
    # A range of several elements stands for the first of them, if it is one of its own.
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
    """Whether an index is an iterator, or one plus a number."""
    return e is v or (
        isinstance(e, Add)
        and ((e.a is v and isinstance(e.b, IntImm)) or (e.b is v and isinstance(e.a, IntImm)))
    )


def _step(e: PrimExpr) -> int:
    """What an index is a multiple of, as `v*16` is of 16."""
    return e.b.value if isinstance(e, Mul) and isinstance(e.b, IntImm) else 1


def come_once(realize: BlockRealize, loops: Sequence[For], around: Sequence[For]) -> bool:
    """Whether no two iterations of loops, among those around a block, come to the same point of its iterators.

    `vi = i_0*4 + i_1`, where i_1 is below 4, tells of both loops; `vi = i + j` of neither.
    """
    left = {x.loop_var: x for x in loops}
    values = list(realize.iter_values)
    ana = Analyzer()
    for x in around:
        ana.bind_loop(x.loop_var, x.min, x.extent)
    while left:
        told = next((d for d in (_digits(v, left, ana) for v in values) if d), None)
        if told is None:
            break
        for v in told:
            del left[v]
    if not left:
        return True
    doms = {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in loops}
    for conditions in (False, True):
        for more in (False, True):  # the parts of a split of a fused loop may be told apart only together
            if more:
                doms |= {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in around}
            inside: PrimExpr = const(True, "bool")
            for c in conjuncts(realize.predicate) if conditions else ():
                if vars_used(c) <= doms.keys():
                    inside = logical_and(inside, c)
            if not detect_iter_map(values, doms, inside, IterMapLevel.Bijective).errors:
                return True
    # What the predicate lets one iteration of through needs no telling: `vk = k_1 where k_0*2 + k_1 < 1`.
    with ana.constraint_scope(realize.predicate):
        return all(ana.can_prove(less_equal(v, x.min)) for v, x in left.items())


def _digits(value: PrimExpr, loops: Mapping[Var, For], ana: Analyzer) -> list[Var]:
    """Those of the loops that a value is a number with several digits of; none if it is something else."""
    found: dict[Var, int] = {}
    stack = [(value, 1)]
    while stack:
        e, scale = stack.pop()
        if isinstance(e, (Add, Sub)):
            stack += [(e.a, scale), (e.b, scale if isinstance(e, Add) else -scale)]
        elif isinstance(e, Mul) and isinstance(e.b, IntImm):
            stack.append((e.a, scale * e.b.value))
        elif isinstance(e, Var):
            if e in loops:
                found[e] = found.get(e, 0) + scale
        elif vars_used(e) & loops.keys():
            return []
    reach: int | None = 0  # how far apart the digits below are at most
    for v, scale in sorted(found.items(), key=lambda item: abs(item[1])):
        if reach is None or abs(scale) <= reach:
            return []
        most = ana.const_int_bound(loops[v].extent).max_value  # of a triangle the longest line
        reach = None if most >= 1 << 31 else reach + abs(scale) * max(most - 1, 0)
    return list(found)
