"""Data flow: the elements that an iteration has definitely written before a block reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer, IterMapLevel, detect_iter_map, relax_region
from ...ir.buffer import Buffer, BufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import LE, LT, IterVar, PrimExpr, Range, Var, const, const_value
from ...ir.functor import pre_order, substitute, vars_used
from ...ir.ops import (
    add,
    conjunction,
    conjuncts,
    greater_equal,
    in_range,
    is_one,
    less,
    less_equal,
    logical_and,
    max_of,
    min_of,
    sub,
)
from ...ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt
from ..analysis.elements import Box, determined, filled_box, mapped_box, unify_dividends
from ..analysis.reductions import reduction_loops, starts_at_first
from ..renew import Substituter

if TYPE_CHECKING:
    from .schedule import Schedule

# For each iterator the first value, the number of values, and whether they may leave its domain at either end.
Domains = Mapping[Var, tuple[PrimExpr, PrimExpr, tuple[bool, bool]]]


def loops_between(sch: Schedule, place: Stmt, b: BlockRealize) -> list[For] | None:
    """The loops from a statement (itself included) down to a block; None if there is a condition between them."""
    out: list[For] = []
    here: Stmt | None = b
    while here is not None:
        if isinstance(here, For):
            out.append(here)
        if here is place:
            return out[::-1]
        if here is not b and not isinstance(here, (For, SeqStmt)):
            return None
        here = sch.state.index.parents[here]
    return None


def must_write_box(sch: Schedule, place: Stmt, writer: BlockRealize, region: BufferRegion) -> Box | None:
    """The elements that a block definitely writes while `place` runs once, as a box; None if unknown."""
    loops = loops_between(sch, place, writer)
    if loops is None or may_leave_unwritten(sch, writer, region):
        return None
    doms = {x.loop_var: x.dom for x in loops}
    if any(vars_used(x.min) & doms.keys() or vars_used(x.extent) & doms.keys() for x in loops):
        return None  # a triangle, not a box
    ana = sch.state.analyzer_at(place)
    if _may_skip(writer, region, loops, ana):
        return None
    own = {iv.var: (iv, value) for iv, value in writer.bindings}
    offsets = _offsets(region, own.keys(), ana)
    if offsets is None:
        values = {var: value for var, (_, value) in own.items()}
        return _filled(region, values, doms, writer.predicate, ana)
    used_values = [own[var][1] for var, _, _ in offsets if var is not None]
    used = {var for var, _, _ in offsets if var is not None}
    spans = mapped_box(used_values, doms, _residual_predicate(sch, writer, used, doms))
    if spans is None:
        return None
    out: Box = []
    for var, rest, extent in offsets:
        low = high = rest
        if var is not None:
            iv = own[var][0]
            least, most = spans.pop(0)
            first = max_of(least, iv.dom.min)
            last = min_of(most, sub(add(iv.dom.min, iv.dom.extent), const(1, most.dtype)))
            low, high = add(first, rest), add(last, rest)
        out.append((ana.simplify(low), ana.simplify(sub(add(high, extent), const(1, high.dtype)))))
    return out


def _may_skip(writer: BlockRealize, region: BufferRegion, loops: list[For], ana: Analyzer) -> bool:
    """Whether a loop that does not select the written elements may have a trip count of 0. A reduction loop may: then
    the init is the value that is written."""
    used = {v for r in region.region for v in vars_used(r.min)}
    pairs = writer.bindings
    driving = {v for iv, value in pairs if iv.var in used for v in vars_used(value)}
    if writer.block.init is not None:
        driving |= {x.loop_var for x in reduction_loops(writer, loops)}
    return any(
        x.loop_var not in driving and not ana.can_prove(less(const(0, x.extent.dtype), x.extent))
        for x in loops
        if not const_value(x.extent)
    )


def _offsets(
    region: BufferRegion, own: Set[Var], ana: Analyzer
) -> list[tuple[Var | None, PrimExpr, PrimExpr]] | None:
    """Each range of a region as an iterator (or None), an offset, and an extent; None if it has another form, or two
    ranges use the same iterator."""
    offsets: list[tuple[Var | None, PrimExpr, PrimExpr]] = []
    for r in region.region:
        used = vars_used(r.min) & own
        if len(used) > 1 or vars_used(r.extent) & own:
            return None
        var = next(iter(used), None)
        rest = r.min if var is None else ana.simplify(sub(r.min, var))
        if vars_used(rest) & own or any(var is not None and var is s[0] for s in offsets):
            return None
        offsets.append((var, rest, r.extent))
    return offsets


def written_box(block: Block, region: BufferRegion) -> Box | None:
    """The box of elements that a region covers as the iterators of a block run through their domains; None if
    unknown."""
    ana, doms = Analyzer(), {iv.var: iv.dom for iv in block.iter_vars}
    offsets = _offsets(region, doms.keys(), ana)
    one = const(1, "int32")
    if offsets is None:
        return _filled(region, {}, doms, const(True, "bool"), ana)
    out: Box = []
    for var, rest, extent in offsets:
        low = rest if var is None else add(doms[var].min, rest)
        size = extent if var is None else sub(add(doms[var].extent, extent), one)
        out.append((ana.simplify(low), ana.simplify(sub(add(low, size), one))))
    return out


def _filled(
    region: BufferRegion,
    table: Mapping[Any, Any],
    doms: Mapping[Var, Range],
    predicate: PrimExpr,
    ana: Analyzer,
) -> Box | None:
    """The box that elements at `v // 4, v % 4`, or tiles at `v * 16`, cover as variables run through their domains."""
    if any(vars_used(r.extent) for r in region.region):
        return None
    spans = filled_box([(substitute(r.min, table), r.extent) for r in region.region], doms, predicate)
    return None if spans is None else [(ana.simplify(low), ana.simplify(high)) for low, high in spans]


def may_leave_unwritten(sch: Schedule, writer: BlockRealize, region: BufferRegion) -> bool:
    """Whether a block may leave elements of its declared write region unwritten: it writes some under a condition, or
    no block inside is known to write all of them."""
    body, buffer, init = writer.block.body, region.buffer, writer.block.init
    if isinstance(body, BufferStore):  # an index loaded from memory makes the region the whole dimension
        return not all(is_one(r.extent) for r in region.region)
    reducers = {iv.var for iv in writer.block.iter_vars if iv.is_reduction}
    # The steps then select the element, and the init writes only one of them.
    chosen = any(vars_used(r.min) & reducers for r in region.region)
    if isinstance(init, BufferStore) and not chosen and _is_element(region, init):
        # The init runs where all reduction iterators are at their first value, which the loops may not reach.
        return not starts_at_first(writer, reduction_loops(writer, sch.state.index.loops_of(writer)))
    inside = [
        b for b in sch.state.index.blocks_under(body) if any(w.buffer is buffer for w in b.block.writes)
    ]
    if not inside:
        return _scatters(body, region) or any(
            not (_stores(n.then_case, buffer) and _stores(n.else_case, buffer))
            for n in pre_order(body)
            if isinstance(n, IfThenElse) and _stores(n, buffer)
        )
    ana = sch.state.analyzer_at(body)
    return not any(
        covered(ana, must_write_box(sch, body, b, w), _whole(region))
        for b in inside
        for w in b.block.writes
        if w.buffer is buffer
    )


def _scatters(body: Stmt, region: BufferRegion) -> bool:
    """Whether no store in the body of a block is known to write all of a region over the loops of the body."""
    stores = [n for n in pre_order(body) if isinstance(n, BufferStore) and n.buffer is region.buffer]
    if not stores or any(i.dtype.is_vector for n in stores for i in n.indices):
        return False
    loops = {n.loop_var: n.dom for n in pre_order(body) if isinstance(n, For)}
    return not any(covered(Analyzer(), _stored_box(n, loops), _whole(region)) for n in stores)


def _stored_box(store: BufferStore, loops: Mapping[Var, Range]) -> Box | None:
    """The box that a store covers as loops run; None if unknown."""
    used = {v for i in store.indices for v in vars_used(i)}
    doms = {v: dom for v, dom in loops.items() if v in used}
    if any((vars_used(dom.min) | vars_used(dom.extent)) & loops.keys() for dom in doms.values()):
        return None  # a triangle, not a box
    return filled_box([(i, const(1, i.dtype)) for i in store.indices], doms, const(True, "bool"))


def _whole(region: BufferRegion) -> Box:
    """A region as a box."""
    return [(r.min, sub(add(r.min, r.extent), const(1, r.min.dtype))) for r in region.region]


def _is_element(region: BufferRegion, store: BufferStore) -> bool:
    """Whether a region is exactly the element that a store writes."""
    return store.buffer is region.buffer and all(
        is_one(r.extent) and structural_equal(r.min, i)
        for r, i in zip(region.region, store.indices, strict=True)
    )


def _stores(n: Stmt | None, buffer: Buffer) -> bool:
    return n is not None and any(isinstance(m, BufferStore) and m.buffer is buffer for m in pre_order(n))


def _residual_predicate(
    sch: Schedule, me: BlockRealize, used: set[Var], doms: Mapping[Var, Range]
) -> PrimExpr:
    """The conditions of the predicate that do more than keep the used iterators in their domains.

    Conditions on other iterators do not matter if they hold for some iteration.
    """
    conditions = conjuncts(me.predicate)
    if not conditions:
        return me.predicate
    driven = [(iv, value) for iv, value in me.bindings if iv.var in used]
    driving = {v for _, value in driven for v in vars_used(value)}
    first: dict[Var, PrimExpr] = {v: r.min for v, r in doms.items()}
    left: list[PrimExpr] = []
    ana = sch.state.analyzer_at(me)
    with ana.constraint_scope(conjunction(in_range(value, iv.dom) for iv, value in driven)):
        for c in conditions:
            apart = vars_used(c) <= doms.keys() and not vars_used(c) & driving
            if not ana.can_prove(c) and not (apart and ana.can_prove(substitute(c, first))):
                left.append(c)
    return sch.state.analyzer_at(me).simplify(conjunction(left))  # loops of one iteration vanish


def read_box(ana: Analyzer, block: Block, region: BufferRegion, domains: Domains) -> Box | None:
    """The elements within the buffer that a block reads as its iterators run through domains."""
    doms = {v: Range.from_min_extent(low, size) for v, (low, size, _) in domains.items()}
    inside: PrimExpr = const(True, "bool")
    for iv in block.iter_vars:
        below, above = domains[iv.var][2]
        if below:
            inside = logical_and(inside, greater_equal(iv.var, iv.dom.min))
        if above:
            inside = logical_and(inside, less(iv.var, add(iv.dom.min, iv.dom.extent)))
    out: Box = []
    for s, dim in zip(relax_region(list(region.region), doms, inside, ana), region.buffer.shape, strict=True):
        zero, end = const(0, dim.dtype), sub(dim, const(1, dim.dtype))
        low = max_of(s.min_value, zero) if s.has_lower_bound() else zero
        high = min_of(s.max_value, end) if s.has_upper_bound() else end
        out.append((ana.simplify(low), ana.simplify(high)))
    return out


def covered(ana: Analyzer, made: Box | None, read: Box | None) -> bool:
    """Whether the box `made` provably contains the box `read`."""
    if made is None or read is None or any(e.dtype.is_handle for ends in (*made, *read) for e in ends):
        return False  # unbounded
    return all(
        ana.can_prove(less_equal(low, a)) and ana.can_prove(less_equal(b, high))
        for (low, high), (a, b) in zip(made, read, strict=True)
    )


def covers_domain(sch: Schedule, me: BlockRealize) -> bool:
    """Whether the loops around a block reach both ends of its iterators' domains, and its predicate skips no point."""
    if not all(isinstance(c, (LT, LE)) for c in conjuncts(me.predicate)):
        return False  # it may skip points, as `i % 2 == 0` does
    doms = {x.loop_var: x.dom for x in loops_around(sch, me)}
    ana = Analyzer()

    def reaches(low: PrimExpr, high: PrimExpr, iv: IterVar) -> bool:
        end = sub(add(iv.dom.min, iv.dom.extent), const(1, "int32"))
        return ana.can_prove(less_equal(low, iv.dom.min)) and ana.can_prove(less_equal(end, high))

    for iv, value in me.bindings:
        (found,) = relax_region(
            [Range.from_min_extent(value, const(1, value.dtype))], doms, me.predicate, analyzer=ana
        )
        known = found.has_lower_bound() and found.has_upper_bound()
        if known and reaches(found.min_value, found.max_value, iv):
            continue
        # Of a fused loop of unknown size, `f // n` for f from 0 to 32 * n, the iteration map knows more.
        own = {v: doms[v] for v in vars_used(value) & doms.keys()}
        box = None if own.keys() & vars_used(me.predicate) else mapped_box([value], own, const(True, "bool"))
        if box is None or not reaches(*box[0], iv):
            return False
    return True


def loops_around(sch: Schedule, n: Stmt) -> list[For]:
    """The loops around a statement in its scope, innermost first."""
    out: list[For] = []
    for up in sch.state.index.ancestors(n):
        if isinstance(up, Block):
            break
        if isinstance(up, For):
            out.append(up)
    return out


def shared_loop(sch: Schedule, a: Stmt, b: Stmt) -> For | None:
    """The innermost loop around both statements."""
    around = set(sch.state.index.ancestors(b)) | {b}
    for up in (a, *sch.state.index.ancestors(a)):
        if isinstance(up, Block):
            return None
        if isinstance(up, For) and up in around:
            return up
    return None


def driven_kinds(me: BlockRealize, loop: For) -> set[int]:
    """The kinds of iterators that a loop drives; none if the loop only repeats the block."""
    out = {iv.iter_type for iv, value in me.bindings if loop.loop_var in vars_used(value)}
    if not out and loop in reduction_loops(me, [loop]):
        out.add(IterVar.CommReduce)
    return out


def points_injective(sch: Schedule, me: BlockRealize, crossed: Sequence[For], nest: Sequence[For]) -> bool:
    """Whether no two iterations of the loops `crossed`, of a nest, visit the same elements of a block.

    Two loops that drive one iterator, `for i, j in grid(4, 3): vi = i + j`, visit an element twice.
    """
    crossed = [x for x in crossed if not runs_once(sch, me, x)]
    if not crossed:
        return True
    reducing = reduction_loops(me, list(nest))
    # A loop of one iteration would hide that `i_1 // 9` and `(i_0*4 + i_1) % 9` divide the same number.
    around = (*loops_around(sch, me), *nest)
    single = {x.loop_var: x.min for x in around if is_one(x.extent)}
    values = [substitute(value, single) for iv, value in me.bindings if not iv.is_reduction]
    conditions = conjuncts(substitute(me.predicate, single))
    values = unify_dividends(values, {x.loop_var: x.dom for x in around})
    spatial = {v for e in values for v in vars_used(e)}
    loops = [x for x in nest if (x not in reducing or x.loop_var in spatial) and not runs_once(sch, me, x)]
    # Outer loops may be included, if no two of all their iterations visit one point: only together are the parts
    # of a split of a fused loop, `(i_0*4 + i_1) // 9` and `(i_0*4 + i_1) % 9`, injective.
    outer = [x for x in loops_around(sch, me) if x not in nest and not runs_once(sch, me, x)]
    counters = {x.loop_var for x in around}
    while True:
        doms = {x.loop_var: x.dom for x in loops}
        # The sizes in a condition, `n`, are the same for all iterations.
        inside = conjunction(c for c in conditions if doms.keys() >= vars_used(c) & counters)
        for predicate in (const(True, "bool"), inside):
            if not detect_iter_map(values, doms, predicate, IterMapLevel.Bijective, True).errors:
                return True
        if not outer:
            return _injective_by_digits(sch, me, values, crossed, counters)
        loops.append(outer.pop(0))


def _injective_by_digits(
    sch: Schedule, me: BlockRealize, values: Sequence[PrimExpr], crossed: Sequence[For], counters: set[Var]
) -> bool:
    """Whether the values of the iterators determine the iterations of loops where the predicate holds, found digit by
    digit."""
    ana = sch.state.analyzer_at(me)
    with ana.constraint_scope(me.predicate):
        # An expression for which the predicate allows one value is known as well: `i % 2 < 1` means that it is 0.
        fixed = [c.a for c in conjuncts(me.predicate) if isinstance(c, LT) and is_one(c.b)]
        fixed = [e for e in fixed if ana.can_prove(greater_equal(e, const(0, e.dtype)))]
        known = determined([*values, *fixed], counters, ana)
    return all(x.loop_var in known for x in crossed)


def runs_once(sch: Schedule, me: BlockRealize, loop: For) -> bool:
    """Whether only the first iteration of a loop reaches a block."""
    size = const_value(loop.extent)
    if size is not None and (size <= 1 or loop.loop_var not in vars_used(me.predicate)):
        return size <= 1
    if size is not None and _reaches_block(sch, me, loop):
        return False
    ana = sch.state.analyzer_at(me)
    with ana.constraint_scope(me.predicate):
        return ana.can_prove(less_equal(loop.loop_var, loop.min))


def _reaches_block(sch: Schedule, me: BlockRealize, loop: For) -> bool:
    """Whether the second iteration of a loop reaches a block in the first iterations of the others: a quick test."""
    around = loops_around(sch, me)
    if not all(const_value(x.extent) for x in around):
        return False
    at = {x.loop_var: x.min for x in around}
    at[loop.loop_var] = add(loop.min, const(1, loop.loop_var.dtype))
    return bool(const_value(Substituter(at).visit(me.predicate)))


def runs_concurrently(n: For) -> bool:
    """Whether the iterations of a loop run concurrently: parallel, vectorized, or bound to threads."""
    return n.kind not in (ForKind.SERIAL, ForKind.UNROLLED)


def concurrent_loops(sch: Schedule, n: Stmt) -> Iterable[For]:
    """The loops around a statement, itself included, whose iterations run concurrently."""
    for up in (n, *sch.state.index.ancestors(n)):
        if isinstance(up, For) and runs_concurrently(up):
            yield up


def may_read_unwritten(
    sch: Schedule,
    ana: Analyzer,
    place: Stmt,
    makers: Iterable[BlockRealize],
    buffer: Buffer,
    read: Box | None,
) -> bool:
    """Whether some elements of the box `read` may not have been written by `makers` while `place` ran once."""
    boxes = [must_write_box(sch, place, m, w) for m in makers for w in m.block.writes if w.buffer is buffer]
    return not boxes or not all(covered(ana, b, read) for b in boxes)


def unwritten_read(
    sch: Schedule, me: BlockRealize, target: For, domains: Domains, makers: Iterable[BlockRealize]
) -> Buffer | None:
    """A buffer of which a block at the end of an iteration of `target` would read elements that the iteration has not
    written; None if there is no such buffer."""
    ana = sch.state.analyzer_at(target.body)
    held = list(makers)
    for region in me.block.reads:
        writers = [m for m in held if any(w.buffer is region.buffer for w in m.block.writes)]
        if writers and may_read_unwritten(
            sch, ana, target.body, writers, region.buffer, read_box(ana, me.block, region, domains)
        ):
            return region.buffer
    return None
