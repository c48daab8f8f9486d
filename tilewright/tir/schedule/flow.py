"""Data flow: the elements that an iteration has certainly written before a block reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer, IterMapLevel, IterSplitExpr, IterSumExpr, detect_iter_map, relax_region
from ...ir.buffer import Buffer, BufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import LE, LT, FloorDiv, FloorMod, IntImm, IterVar, PrimExpr, Range, Var, const, const_value
from ...ir.functor import pre_order, rewrite, substitute, vars_used
from ...ir.ops import (
    add,
    conjuncts,
    floordiv,
    greater_equal,
    is_one,
    less,
    less_equal,
    logical_and,
    max_of,
    min_of,
    sub,
)
from ...ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt
from ..analysis.elements import of_one_number, rejoined
from ..analysis.reductions import reduction_loops, starts_at_first
from ..renew import Substituter

if TYPE_CHECKING:
    from .schedule import Schedule

Box = list[tuple[PrimExpr, PrimExpr]]  # the first and last index along each dimension
# For each iterator the first value, the number of values, and whether they may leave its domain at either end.
Domains = Mapping[Var, tuple[PrimExpr, PrimExpr, tuple[bool, bool]]]


def loops_between(sch: Schedule, place: Stmt, b: BlockRealize) -> list[For] | None:
    """The loops from a statement (itself included) down to a block; None if a condition stands between."""
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


def made_box(sch: Schedule, place: Stmt, maker: BlockRealize, region: BufferRegion) -> Box | None:
    """The elements that a block writes, all of them, while `place` runs once; None if there is no telling."""
    loops = loops_between(sch, place, maker)
    if loops is None or leaves_out(sch, maker, region):
        return None
    doms = {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in loops}
    if any(vars_used(x.min) & doms.keys() or vars_used(x.extent) & doms.keys() for x in loops):
        return None  # a triangle, which is no box
    ana = sch.state.analyzer_at(place)
    if _may_not_run(maker, region, loops, ana):
        return None
    own = {iv.var: (iv, value) for iv, value in zip(maker.block.iter_vars, maker.iter_values, strict=True)}
    spots = _spots(region, own.keys(), ana)
    if spots is None:
        return _mapped_box(region, maker, doms, ana)
    used_values = [own[var][1] for var, _, _ in spots if var is not None]
    used = {var for var, _, _ in spots if var is not None}
    spans = box_of_values(used_values, doms, _beyond_domain(sch, maker, used, doms))
    if spans is None:
        return None
    out: Box = []
    for var, rest, extent in spots:
        low = high = rest
        if var is not None:
            iv = own[var][0]
            least, most = spans.pop(0)
            first = max_of(least, iv.dom.min)
            last = min_of(most, sub(add(iv.dom.min, iv.dom.extent), const(1, most.dtype)))
            low, high = add(first, rest), add(last, rest)
        out.append((ana.simplify(low), ana.simplify(sub(add(high, extent), const(1, high.dtype)))))
    return out


def _may_not_run(maker: BlockRealize, region: BufferRegion, loops: list[For], ana: Analyzer) -> bool:
    """Whether a loop that does not say which elements are written may have no iterations. One that carries a
    reduction may have none: then the init is what is written."""
    used = {v for r in region.region for v in vars_used(r.min)}
    pairs = zip(maker.block.iter_vars, maker.iter_values, strict=True)
    driving = {v for iv, value in pairs if iv.var in used for v in vars_used(value)}
    if maker.block.init is not None:
        driving |= {x.loop_var for x in reduction_loops(maker, loops)}
    return any(
        x.loop_var not in driving and not ana.can_prove(less(const(0, x.extent.dtype), x.extent))
        for x in loops
        if not const_value(x.extent)
    )


def _spots(
    region: BufferRegion, own: Set[Var], ana: Analyzer
) -> list[tuple[Var | None, PrimExpr, PrimExpr]] | None:
    """Each range of a region as an iterator of its own, what is added to it, and the extent."""
    spots: list[tuple[Var | None, PrimExpr, PrimExpr]] = []
    for r in region.region:
        used = vars_used(r.min) & own
        if len(used) > 1 or vars_used(r.extent) & own:
            return None
        var = next(iter(used), None)
        rest = r.min if var is None else ana.simplify(sub(r.min, var))
        if vars_used(rest) & own or any(var is not None and var is s[0] for s in spots):
            return None
        spots.append((var, rest, r.extent))
    return spots


def written_box(block: Block, region: BufferRegion) -> Box | None:
    """The elements of a region, all of them, as the iterators of a block run through their domains."""
    ana, doms = Analyzer(), {iv.var: iv.dom for iv in block.iter_vars}
    spots = _spots(region, doms.keys(), ana)
    one = const(1, "int32")
    if spots is None:
        return _filled(region, {}, doms, const(True, "bool"), ana)
    out: Box = []
    for var, rest, extent in spots:
        low = rest if var is None else add(doms[var].min, rest)
        size = extent if var is None else sub(add(doms[var].extent, extent), one)
        out.append((ana.simplify(low), ana.simplify(sub(add(low, size), one))))
    return out


def _mapped_box(
    region: BufferRegion, maker: BlockRealize, doms: Mapping[Var, Range], ana: Analyzer
) -> Box | None:
    """The box that elements at `v // 4, v % 4`, or tiles at `v * 16`, fill as the loops around the block run."""
    pairs = zip(maker.block.iter_vars, maker.iter_values, strict=True)
    return _filled(region, {iv.var: value for iv, value in pairs}, doms, maker.predicate, ana)


def _filled(
    region: BufferRegion,
    table: dict[Any, Any],
    doms: Mapping[Var, Range],
    predicate: PrimExpr,
    ana: Analyzer,
) -> Box | None:
    """The box that a region fills as variables run."""
    within, places = dict(doms), []
    for r in region.region:
        place = substitute(r.min, table)
        if not is_one(r.extent):
            if vars_used(r.extent):
                return None
            inside = Var("inside", r.min.dtype)
            within[inside] = Range.from_min_extent(const(0, r.extent.dtype), r.extent)
            place = add(place, inside)
        places.append(place)
    spans = box_of_values(places, within, predicate)
    return None if spans is None else [(ana.simplify(low), ana.simplify(high)) for low, high in spans]


def leaves_out(sch: Schedule, maker: BlockRealize, region: BufferRegion) -> bool:
    """Whether a block that runs may not write all of a region that it declares: some of it under a condition,
    or of the blocks inside none is known to write it all."""
    body, buffer, init = maker.block.body, region.buffer, maker.block.init
    if isinstance(body, BufferStore):  # of an index that is read the region is all of the dimension
        return not all(is_one(r.extent) for r in region.region)
    reducers = {iv.var for iv in maker.block.iter_vars if iv.iter_type == IterVar.CommReduce}
    chosen = any(
        vars_used(r.min) & reducers for r in region.region
    )  # then the init starts one of its elements
    if isinstance(init, BufferStore) and not chosen and _is_element(region, init):
        # It runs where all reduction iterators are at their start, to which the loops may not come.
        return not starts_at_first(maker, reduction_loops(maker, sch.state.index.loops_of(maker)))
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
    whole = [(r.min, sub(add(r.min, r.extent), const(1, r.min.dtype))) for r in region.region]
    return not any(
        covered(ana, made_box(sch, body, b, w), whole)
        for b in inside
        for w in b.block.writes
        if w.buffer is buffer
    )


def _scatters(body: Stmt, region: BufferRegion) -> bool:
    """Whether none of the stores in the body of a block is known to write all of a region, over loops of its own."""
    loops = {n.loop_var: n for n in pre_order(body) if isinstance(n, For)}
    stores = [n for n in pre_order(body) if isinstance(n, BufferStore) and n.buffer is region.buffer]
    if not stores or any(i.dtype.lanes > 1 for n in stores for i in n.indices):
        return False
    ana = Analyzer()
    for store in stores:
        seen: list[Var] = []
        for index, r in zip(store.indices, region.region, strict=True):
            used = vars_used(index) & loops.keys()
            if len(used) > 1 or (not used and not is_one(r.extent)):
                break
            for v in used:
                rest, size = ana.simplify(sub(index, v)), loops[v].extent
                if v in seen or vars_used(rest) & loops.keys() or not ana.can_prove_equal(size, r.extent):
                    break
                seen.append(v)
            else:
                continue
            break
        else:
            return False
    return True


def _is_element(region: BufferRegion, store: BufferStore) -> bool:
    """Whether a region is just what a store writes."""
    return store.buffer is region.buffer and all(
        is_one(r.extent) and structural_equal(r.min, i)
        for r, i in zip(region.region, store.indices, strict=True)
    )


def _stores(n: Stmt | None, buffer: Buffer) -> bool:
    return n is not None and any(isinstance(m, BufferStore) and m.buffer is buffer for m in pre_order(n))


def _beyond_domain(sch: Schedule, me: BlockRealize, used: set[Var], doms: Mapping[Var, Range]) -> PrimExpr:
    """What the predicate says beyond keeping the used iterators in their domains.

    Conditions on other iterators do not matter if they let some iteration through.
    """
    conditions = conjuncts(me.predicate)
    out: PrimExpr = const(True, "bool")
    if not conditions:
        return out
    driving: set[Var] = set()
    inside: PrimExpr = const(True, "bool")
    for iv, value in zip(me.block.iter_vars, me.iter_values, strict=True):
        if iv.var in used:
            driving |= vars_used(value)
            inside = logical_and(inside, greater_equal(value, iv.dom.min))
            inside = logical_and(inside, less(value, add(iv.dom.min, iv.dom.extent)))
    first: dict[Var, PrimExpr] = {v: r.min for v, r in doms.items()}
    ana = sch.state.analyzer_at(me)
    with ana.constraint_scope(inside):
        for c in conditions:
            apart = vars_used(c) <= doms.keys() and not vars_used(c) & driving
            if not ana.can_prove(c) and not (apart and ana.can_prove(substitute(c, first))):
                out = logical_and(out, c)
    return sch.state.analyzer_at(me).simplify(out)  # loops that run once go from it


def box_of_values(values: Sequence[PrimExpr], doms: Mapping[Var, Range], predicate: PrimExpr) -> Box | None:
    """The first and last of each value, if together they run through a whole box as the loops run."""
    if not any(vars_used(v) & doms.keys() for v in values):
        return None if vars_used(predicate) else [(v, v) for v in values]
    if vars_used(predicate) - doms.keys():
        return None
    found = detect_iter_map(rejoined(values), doms, predicate, IterMapLevel.Surjective)
    if found.errors or const_value(found.padding_predicate) != 0:
        return None  # with what padding adds there is more in the box than the loops come to
    out: Box = []
    for s in found.indices:
        assert isinstance(s, IterSumExpr)
        if not s.args:
            out.append((s.base, s.base))
            continue
        (part,) = s.args if len(s.args) == 1 else (None,)
        if not isinstance(part, IterSplitExpr) or not is_one(part.scale):
            return None
        out.append((s.base, sub(add(s.base, part.extent), const(1, s.base.dtype))))
    return out


def read_box(ana: Analyzer, block: Block, region: BufferRegion, domains: Domains) -> Box | None:
    """The elements, inside of the buffer, that a block reads as its iterators run through domains."""
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
    """Whether a box surely holds another."""
    if made is None or read is None or any(e.dtype.is_handle for ends in (*made, *read) for e in ends):
        return False  # there is no telling where it ends
    return all(
        ana.can_prove(less_equal(low, a)) and ana.can_prove(less_equal(b, high))
        for (low, high), (a, b) in zip(made, read, strict=True)
    )


def covers_domain(sch: Schedule, me: BlockRealize) -> bool:
    """Whether the loops around a block reach the ends of its iterators' domains, and its predicate leaves none out."""
    if not all(isinstance(c, (LT, LE)) for c in conjuncts(me.predicate)):
        return False  # it may pick some, as `i % 2 == 0` does
    doms = {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in loops_around(sch, me)}
    ana = Analyzer()
    one = const(1, "int32")
    for iv, value in zip(me.block.iter_vars, me.iter_values, strict=True):
        (found,) = relax_region(
            [Range.from_min_extent(value, const(1, value.dtype))], doms, me.predicate, analyzer=ana
        )
        end = sub(add(iv.dom.min, iv.dom.extent), one)
        if not ana.can_prove(less_equal(found.min_value, iv.dom.min)) or not ana.can_prove(
            less_equal(end, found.max_value)
        ):
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
    """The kinds of iterators that a loop drives; none if it runs the block for nothing but again."""
    out = {
        iv.iter_type
        for iv, value in zip(me.block.iter_vars, me.iter_values, strict=True)
        if loop.loop_var in vars_used(value)
    }
    if not out and loop in reduction_loops(me, [loop]):
        out.add(IterVar.CommReduce)
    return out


def points_once(sch: Schedule, me: BlockRealize, crossed: Sequence[For], nest: Sequence[For]) -> bool:
    """Whether no two iterations of some loops of a nest come to the same elements of a block.

    Two loops that drive one iterator, `for i, j in grid(4, 3): vi = i + j`, come to one element twice.
    """
    crossed = [x for x in crossed if not runs_once(sch, me, x)]
    if not crossed:
        return True
    reducing = reduction_loops(me, list(nest))
    # A loop of one iteration says nothing, and would hide that `i_1 // 9` and `(i_0*4 + i_1) % 9` are of one number.
    single = {x.loop_var: x.min for x in (*loops_around(sch, me), *nest) if is_one(x.extent)}
    values = [
        substitute(value, single)
        for iv, value in zip(me.block.iter_vars, me.iter_values, strict=True)
        if iv.iter_type != IterVar.CommReduce
    ]
    around = (*loops_around(sch, me), *nest)
    values = of_one_number(values, {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in around})
    spatial = {v for e in values for v in vars_used(e)}
    loops = [x for x in nest if (x not in reducing or x.loop_var in spatial) and not runs_once(sch, me, x)]
    # Loops around may be taken along, if no two of all their iterations come to one point: the parts of
    # a split of a fused loop, `(i_0*4 + i_1) // 9` and `(i_0*4 + i_1) % 9`, are told apart together only.
    outer = [x for x in loops_around(sch, me) if x not in nest and not runs_once(sch, me, x)]
    counters = {x.loop_var for x in (*loops_around(sch, me), *nest)}
    while True:
        doms = {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in loops}
        inside: PrimExpr = const(True, "bool")
        for c in conjuncts(substitute(me.predicate, single)):
            if doms.keys() >= vars_used(c) & counters:  # the sizes in it, `n`, are the same for all
                inside = logical_and(inside, c)
        for predicate in (const(True, "bool"), inside):
            if not detect_iter_map(values, doms, predicate, IterMapLevel.Bijective, True).errors:
                return True
        if not outer:
            return _peeled(sch, me, values, crossed, counters)
        loops.append(outer.pop(0))


def _peeled(
    sch: Schedule, me: BlockRealize, values: Sequence[PrimExpr], crossed: Sequence[For], counters: set[Var]
) -> bool:
    """Whether the values of the iterators tell the iterations of loops apart, taken off digit by digit.

    Of `i*w + (j*2 + k)`, where the predicate says `j*2 + k < w`, i is what w goes into it; the rest is
    `j*2 + k`, and so on. That needs no number for w, as with parts of a loop over `n`. A quotient and the
    remainder beside it are what was divided.
    """
    known: set[Var] = set()
    ana = sch.state.analyzer_at(me)
    with ana.constraint_scope(me.predicate):
        # What the predicate leaves one value of is known as well: `i % 2 < 1` says that it is 0.
        fixed = [c.a for c in conjuncts(me.predicate) if isinstance(c, LT) and is_one(c.b)]
        fixed = [e for e in fixed if ana.can_prove(greater_equal(e, const(0, e.dtype)))]
        rests = _undivided(ana, [*values, *fixed])
        at = 0
        while at < len(rests):
            found = _digit(ana, rests[at], counters - known)
            if found is None:
                at += 1
                continue
            digit, rest = found
            rests = [*rests[:at], rest, *rests[at + 1 :]]
            if isinstance(digit, Var):
                known.add(digit)
            else:
                rests.append(digit)
            rests = _undivided(ana, rests)
            at = 0  # what is known now may help with the others
    return all(x.loop_var in known for x in crossed)


def _undivided(ana: Analyzer, values: list[PrimExpr]) -> list[PrimExpr]:
    """Values with each pair `e // c`, `e % c` put together to `e`."""
    for r in values:
        if isinstance(r, FloorMod):
            for q in values:
                if q is not r and _is_quotient(ana, q, r):
                    return _undivided(ana, [*(v for v in values if v is not q and v is not r), r.a])
    return values


def _is_quotient(ana: Analyzer, q: PrimExpr, r: FloorMod) -> bool:
    """Whether a value is the quotient that belongs to a remainder; of `e // 4 % 5` that is `e // 20`."""
    if isinstance(r.a, FloorDiv) and isinstance(r.a.b, IntImm) and isinstance(r.b, IntImm) and r.b.value > 0:
        by = const(r.a.b.value * r.b.value, r.dtype)
        if r.a.b.value > 0 and structural_equal(q, FloorDiv(r.a.a, by)):
            return True
    return ana.can_prove_equal(q, floordiv(r.a, r.b))


def _digit(ana: Analyzer, value: PrimExpr, unknown: set[Var]) -> tuple[PrimExpr, PrimExpr] | None:
    """A counter, quotient or remainder in a value, and what is left without it, if that is too small to
    stand for another count of it."""
    for digit in pre_order(value):
        if not isinstance(digit, (Var, FloorDiv, FloorMod)) or not vars_used(digit) & unknown:
            continue
        if digit is value and not isinstance(digit, Var):
            continue  # it would be taken off for ever
        var = Var("digit", digit.dtype)
        one, zero = const(1, var.dtype), const(0, var.dtype)
        form = _with(value, digit, var)
        step = ana.simplify(sub(substitute(form, {var: add(var, one)}), form))
        if vars_used(step) & (unknown | {var}):
            continue
        rest = ana.simplify(substitute(form, {var: zero}))
        if ana.can_prove(less(rest, step)) and ana.can_prove(greater_equal(rest, zero)):
            return digit, rest
    return None


def _with(value: PrimExpr, part: PrimExpr, other: PrimExpr) -> PrimExpr:
    """A value with something else in the place of a part of it."""
    if isinstance(part, Var):
        return substitute(value, {part: other})
    same = {type(part): lambda n: other if structural_equal(n, part) else None}
    made: PrimExpr = rewrite(value, same)
    return made


def runs_once(sch: Schedule, me: BlockRealize, loop: For) -> bool:
    """Whether only one iteration of a loop gets to a block, the first."""
    size = const_value(loop.extent)
    if size is not None and (size <= 1 or loop.loop_var not in vars_used(me.predicate)):
        return size <= 1
    if size is not None and _gets_there(sch, me, loop):
        return False
    ana = sch.state.analyzer_at(me)
    with ana.constraint_scope(me.predicate):
        return ana.can_prove(less_equal(loop.loop_var, loop.min))


def _gets_there(sch: Schedule, me: BlockRealize, loop: For) -> bool:
    """Whether the second iteration of a loop gets to a block in the first ones of the others, which is soon told."""
    around = loops_around(sch, me)
    if not all(const_value(x.extent) for x in around):
        return False
    at = {x.loop_var: x.min for x in around}
    at[loop.loop_var] = add(loop.min, const(1, loop.loop_var.dtype))
    return bool(const_value(Substituter(at).visit(me.predicate)))


def runs_at_once(n: For) -> bool:
    """Whether the iterations of a loop do not wait for each other."""
    return n.kind not in (ForKind.SERIAL, ForKind.UNROLLED)


def marked_loops(sch: Schedule, n: Stmt) -> Iterable[For]:
    """The loops around a statement, itself included, whose iterations run at once."""
    for up in (n, *sch.state.index.ancestors(n)):
        if isinstance(up, For) and runs_at_once(up):
            yield up


def unmade(
    sch: Schedule,
    ana: Analyzer,
    place: Stmt,
    makers: Iterable[BlockRealize],
    buffer: Buffer,
    read: Box | None,
) -> bool:
    """Whether some of a box may not have been made by blocks while `place` ran once."""
    boxes = [made_box(sch, place, m, w) for m in makers for w in m.block.writes if w.buffer is buffer]
    return not boxes or not all(covered(ana, b, read) for b in boxes)


def check_reads_made(
    sch: Schedule, me: BlockRealize, target: For, domains: Domains, makers: Iterable[BlockRealize]
) -> Buffer | None:
    """A buffer of which a block, run at the end of an iteration of a loop, would read what is not made in it."""
    ana = sch.state.analyzer_at(target.body)
    held = list(makers)
    for region in me.block.reads:
        writers = [m for m in held if any(w.buffer is region.buffer for w in m.block.writes)]
        if writers and unmade(
            sch, ana, target.body, writers, region.buffer, read_box(ana, me.block, region, domains)
        ):
            return region.buffer
    return None
