"""Data flow: the elements that an iteration has definitely written before a block reads them."""

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
from ..analysis.elements import unify_dividends, unify_remainders
from ..analysis.reductions import reduction_loops, starts_at_first
from ..renew import Substituter

if TYPE_CHECKING:
    from .schedule import Schedule

Box = list[tuple[PrimExpr, PrimExpr]]  # the first and last index along each dimension
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
    doms = {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in loops}
    if any(vars_used(x.min) & doms.keys() or vars_used(x.extent) & doms.keys() for x in loops):
        return None  # a triangle, not a box
    ana = sch.state.analyzer_at(place)
    if _may_skip(writer, region, loops, ana):
        return None
    own = {iv.var: (iv, value) for iv, value in zip(writer.block.iter_vars, writer.iter_values, strict=True)}
    offsets = _offsets(region, own.keys(), ana)
    if offsets is None:
        return _mapped_box(region, writer, doms, ana)
    used_values = [own[var][1] for var, _, _ in offsets if var is not None]
    used = {var for var, _, _ in offsets if var is not None}
    spans = box_of_values(used_values, doms, _residual_predicate(sch, writer, used, doms))
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
    pairs = zip(writer.block.iter_vars, writer.iter_values, strict=True)
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


def _mapped_box(
    region: BufferRegion, writer: BlockRealize, doms: Mapping[Var, Range], ana: Analyzer
) -> Box | None:
    """The box that elements at `v // 4, v % 4`, or tiles at `v * 16`, cover as the loops around the block run."""
    pairs = zip(writer.block.iter_vars, writer.iter_values, strict=True)
    return _filled(region, {iv.var: value for iv, value in pairs}, doms, writer.predicate, ana)


def _filled(
    region: BufferRegion,
    table: dict[Any, Any],
    doms: Mapping[Var, Range],
    predicate: PrimExpr,
    ana: Analyzer,
) -> Box | None:
    """The box that a region covers as variables run through their domains."""
    within, indices = dict(doms), []
    for r in region.region:
        index = substitute(r.min, table)
        if not is_one(r.extent):
            if vars_used(r.extent):
                return None
            inside = Var("inside", r.min.dtype)
            within[inside] = Range.from_min_extent(const(0, r.extent.dtype), r.extent)
            index = add(index, inside)
        indices.append(index)
    spans = box_of_values(indices, within, predicate)
    return None if spans is None else [(ana.simplify(low), ana.simplify(high)) for low, high in spans]


def may_leave_unwritten(sch: Schedule, writer: BlockRealize, region: BufferRegion) -> bool:
    """Whether a block may leave elements of its declared write region unwritten: it writes some under a condition, or
    no block inside is known to write all of them."""
    body, buffer, init = writer.block.body, region.buffer, writer.block.init
    if isinstance(body, BufferStore):  # an index loaded from memory makes the region the whole dimension
        return not all(is_one(r.extent) for r in region.region)
    reducers = {iv.var for iv in writer.block.iter_vars if iv.iter_type == IterVar.CommReduce}
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
    whole = [(r.min, sub(add(r.min, r.extent), const(1, r.min.dtype))) for r in region.region]
    return not any(
        covered(ana, must_write_box(sch, body, b, w), whole)
        for b in inside
        for w in b.block.writes
        if w.buffer is buffer
    )


def _scatters(body: Stmt, region: BufferRegion) -> bool:
    """Whether no store in the body of a block is known to write all of a region over the loops of the body."""
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
    return sch.state.analyzer_at(me).simplify(out)  # loops of one iteration vanish


def box_of_values(values: Sequence[PrimExpr], doms: Mapping[Var, Range], predicate: PrimExpr) -> Box | None:
    """The bounds of each value, if together they take every point of that box as the loops run; else None."""
    if not any(vars_used(v) & doms.keys() for v in values):
        return None if vars_used(predicate) else [(v, v) for v in values]
    if vars_used(predicate) - doms.keys():
        return None
    found = detect_iter_map(unify_remainders(values), doms, predicate, IterMapLevel.Surjective)
    if found.errors or const_value(found.padding_predicate) != 0:
        return None  # padding makes the box larger than the points that the loops visit
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
    doms = {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in loops_around(sch, me)}
    ana = Analyzer()
    one = const(1, "int32")
    for iv, value in zip(me.block.iter_vars, me.iter_values, strict=True):
        (found,) = relax_region(
            [Range.from_min_extent(value, const(1, value.dtype))], doms, me.predicate, analyzer=ana
        )
        if not (found.has_lower_bound() and found.has_upper_bound()):
            return False  # nothing is known of where the loops lead
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
    """The kinds of iterators that a loop drives; none if the loop only repeats the block."""
    out = {
        iv.iter_type
        for iv, value in zip(me.block.iter_vars, me.iter_values, strict=True)
        if loop.loop_var in vars_used(value)
    }
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
    single = {x.loop_var: x.min for x in (*loops_around(sch, me), *nest) if is_one(x.extent)}
    values = [
        substitute(value, single)
        for iv, value in zip(me.block.iter_vars, me.iter_values, strict=True)
        if iv.iter_type != IterVar.CommReduce
    ]
    around = (*loops_around(sch, me), *nest)
    values = unify_dividends(values, {x.loop_var: Range.from_min_extent(x.min, x.extent) for x in around})
    spatial = {v for e in values for v in vars_used(e)}
    loops = [x for x in nest if (x not in reducing or x.loop_var in spatial) and not runs_once(sch, me, x)]
    # Outer loops may be included, if no two of all their iterations visit one point: only together are the parts
    # of a split of a fused loop, `(i_0*4 + i_1) // 9` and `(i_0*4 + i_1) % 9`, injective.
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
            return _injective_by_digits(sch, me, values, crossed, counters)
        loops.append(outer.pop(0))


def _injective_by_digits(
    sch: Schedule, me: BlockRealize, values: Sequence[PrimExpr], crossed: Sequence[For], counters: set[Var]
) -> bool:
    """Whether the values of the iterators determine the iterations of loops, found digit by digit.

    Of `i*w + (j*2 + k)`, where the predicate says `j*2 + k < w`, i is the quotient by w, `j*2 + k` the remainder, and
    so on. w may be symbolic, as for the parts of a loop over `n`. A quotient and the remainder of the same division
    determine the dividend.
    """
    known: set[Var] = set()
    ana = sch.state.analyzer_at(me)
    with ana.constraint_scope(me.predicate):
        # An expression for which the predicate allows one value is known as well: `i % 2 < 1` means that it is 0.
        fixed = [c.a for c in conjuncts(me.predicate) if isinstance(c, LT) and is_one(c.b)]
        fixed = [e for e in fixed if ana.can_prove(greater_equal(e, const(0, e.dtype)))]
        rests = _merge_divmod(ana, [*values, *fixed])
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
            rests = _merge_divmod(ana, rests)
            at = 0  # the digit found may make others known
    return all(x.loop_var in known for x in crossed)


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


def _digit(ana: Analyzer, value: PrimExpr, unknown: set[Var]) -> tuple[PrimExpr, PrimExpr] | None:
    """A loop variable, quotient or remainder in a value, and the value without it, if that rest is smaller than its
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
