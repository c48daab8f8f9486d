"""Dependences between the iterations of loops: whether they may run in another order, or concurrently."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from ...arith import Analyzer, IterMapLevel, detect_iter_map
from ...ir.buffer import Buffer, BufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import IterVar, PrimExpr, Range, Var, const, const_value
from ...ir.functor import pre_order, substitute, vars_used
from ...ir.ops import add, is_one, less_equal
from ...ir.stmt import Allocate, Block, BlockRealize, BufferStore, For, Stmt
from ..analysis.carried import Use, is_disjoint, reads_are_covered, uses_under
from ..analysis.combiner import steps_commute
from ..analysis.elements import determined_iterators, loops_injective
from ..analysis.reductions import reduction_loops
from .blocks import producers_of
from .flow import loops_around, may_read_unwritten, points_injective, runs_concurrently, runs_once
from .primitive import refuse
from .regions import touched

if TYPE_CHECKING:
    from .schedule import Schedule


def check_concurrent(sch: Schedule, loop: For, hint: str, only: Buffer | None = None) -> None:
    """Refuse if an iteration of the loop uses elements that another one writes, of one buffer or of all.

    Buffers that live inside the loop are private to an iteration and not shared.
    """
    ana = sch.state.analyzer_at(loop)
    for buffer, uses in uses_under(loop).items():
        if only is not None and buffer is not only:
            continue
        if uses is None:
            _refuse_bare(buffer, loop)
            continue
        if not any(u.write for u in uses):
            continue
        if lives_inside(sch, buffer, loop) and reads_are_covered(loop, uses, ana):
            continue
        if _disjoint(sch, loop, uses, ana):
            continue
        if _reduced_together(sch, loop, uses):
            continue  # a cross-thread reduction, which is allowed
        _refuse_carried(loop, buffer, uses, hint)


def _reduced_together(sch: Schedule, loop: For, uses: list[Use]) -> bool:
    """Whether the iterations of a loop are steps of a reduction whose result is used behind the loop, or nowhere (as
    that of a program is which leaves its result out of the arguments)."""
    for r in {u.realize: None for u in uses if u.write}:
        if any(iv.is_reduction for iv in _driven(loop.loop_var, r)):
            made = [w.buffer for w in r.block.writes]
            readers = sch.state.index.readers(made)
            # one inside would read the partial result
            return all(x is r for x in sch.state.index.blocks_under(loop) if x in readers)
    return False


def recheck_uses(sch: Schedule, buffer: Buffer) -> None:
    """Refuse if a step made concurrent iterations share a buffer."""
    recheck(sch, [v for v, n in sch.state.index.loops.items() if runs_concurrently(n)], buffer)


def recheck(sch: Schedule, left: Iterable[Var], only: Buffer | None = None) -> None:
    """Refuse if a step has moved memory that was private to an iteration out of a concurrent loop.

    `left` are the variables of the loops to check.
    """
    for var in left:
        loop = sch.state.index.loops.get(var)
        if loop is not None and const_value(loop.extent) != 1:
            hint = (
                f"keep every block that uses the buffer inside loop `{var.name}`, where each iteration has a copy of "
                "its own, "
                "or apply this step before the loop is marked"
            )
            check_concurrent(sch, loop, hint, only)


def check_any_order(sch: Schedule, nest: Sequence[For], new: Sequence[For] | None = None) -> None:
    """Refuse if the iterations of a nest may not run in the order of other loops, or in any order at all.

    Two iterations that use an element, one of them to write it, keep their order if the loops in which they differ
    keep theirs. Steps of an associative and commutative reduction may run in any order.
    """
    ana = sch.state.analyzer_at(nest[0])
    with ana.scope():
        ana.bind_ranges({x.loop_var: x.dom for x in nest[:-1]})
        under = {x: uses_under(x) for x in nest}
        for buffer, uses in under[nest[-1]].items():
            if uses is None:
                _refuse_bare(buffer, nest[-1])
                continue
            if not any(u.write for u in uses):
                continue
            sharing = _sharing(sch, nest, {x: under[x][buffer] or uses for x in nest}, ana)
            if new is not None and sharing == [x for x in new if x in sharing]:
                continue
            if not sharing or _combines(sch, sharing, uses):
                continue
            if lives_inside(sch, buffer, nest[0]) and reads_are_covered(nest[-1], uses, ana):
                continue
            moved = sharing if new is None else [x for x, y in zip(nest, new, strict=True) if x is not y]
            x = next((x for x in sharing if x in moved), sharing[0])
            _refuse_carried(x, buffer, uses, f"leave loop `{x.loop_var.name}` where it is")


def _sharing(sch: Schedule, nest: Sequence[For], uses: Mapping[For, list[Use]], ana: Analyzer) -> list[For]:
    """The loops of a nest in which two iterations that use the same element of a buffer may differ."""
    out: list[For] = []
    identified = _identified_jointly(nest, uses[nest[-1]])
    for x in nest:
        if (
            const_value(x.extent) == 1
            or x.loop_var in identified
            or _identifies_iteration(sch, x, uses[x], nest[0])
        ):
            continue
        # Disjointness is known only between iterations that agree in the outer loops.
        if out or not is_disjoint(x, uses[x], ana):
            out.append(x)
    return out


def _identified_jointly(nest: Sequence[For], uses: list[Use]) -> set[Var]:
    """The variables of the loops that the indices which all uses have in common identify: `B[x // 12, x % 12, …]` with
    `x = i*8 + j` identifies `i` and `j`."""
    first, *others = (u.ranges for u in uses)
    common: list[PrimExpr] = []
    for d, (low, size) in enumerate(first):
        if is_one(size) and all(
            d < len(r) and is_one(r[d][1]) and structural_equal(low, r[d][0]) for r in others
        ):
            common.append(low)
    doms = {x.loop_var: x.dom for x in nest}
    inner = {v for u in uses for v in u.inner}
    common = [e for e in common if vars_used(e) & doms.keys() and not vars_used(e) & inner]
    used = {v: r for v, r in doms.items() if any(v in vars_used(e) for e in common)}
    if not used or any((vars_used(r.min) | vars_used(r.extent)) & doms.keys() for r in used.values()):
        return set()
    found = detect_iter_map(common, used, const(True, "bool"), IterMapLevel.Bijective)
    return set() if found.errors else set(used)


def _combines(sch: Schedule, loops: Sequence[For], uses: Sequence[Use]) -> bool:
    """Whether the iterations of loops are steps of one associative and commutative reduction."""
    realize = uses[0].realize
    if any(u.realize is not realize or not u.same_place(uses[-1]) for u in uses):
        return False
    if not steps_commute(realize.block):
        return False
    if realize.block.init is None:
        return True
    if realize in sch.state.index.parents:
        nest = sch.state.index.loops_of(realize)
        if not loops_injective(realize, [x for x in loops if const_value(x.extent) != 1], nest):
            return False  # the init runs again
    kinds = [{iv.iter_type for iv in _driven(x.loop_var, realize)} for x in loops]
    reducing = set(reduction_loops(realize, list(loops)))
    return all(
        k == {IterVar.CommReduce} or (not k and x in reducing) for x, k in zip(loops, kinds, strict=True)
    )


def _disjoint(sch: Schedule, loop: For, uses: list[Use], ana: Analyzer) -> bool:
    """Whether the iterations use disjoint elements."""
    return _identifies_iteration(sch, loop, uses, loop) or is_disjoint(loop, uses, ana)


def _identifies_iteration(sch: Schedule, loop: For, uses: list[Use], outermost: For) -> bool:
    """Whether an element identifies the iteration of a loop that uses it, for any iterations of the other loops from
    `outermost` inwards."""
    if all(_predicated_to_one(sch, loop, r) for r in {u.realize for u in uses}):
        return True
    return (
        all(u.same_place(uses[0]) for u in uses)
        and all(_indices_identify(loop.loop_var, u) for u in uses)
        and all(_visits_once(sch, loop, r, outermost) for r in {u.realize for u in uses})
    )


def _visits_once(sch: Schedule, loop: For, realize: BlockRealize, outermost: For) -> bool:
    """Whether no two iterations visit the same point of a block, as those of `vi = i + j` would."""
    if realize not in sch.state.index.parents:  # a draft: only its boxes are known
        return False
    nest = sch.state.index.loops_of(realize)
    inside = nest[nest.index(outermost) :] if outermost in nest else [loop]
    driven = _driven(loop.loop_var, realize)
    if any(iv.is_reduction for iv in driven):  # a reduction iterator that selects the element
        tied = [x for x in inside if any(iv in driven for iv in _driven(x.loop_var, realize))]
        if not loops_injective(realize, [x for x in tied if const_value(x.extent) != 1], nest):
            return False
    return points_injective(sch, realize, [loop], inside)


def _predicated_to_one(sch: Schedule, loop: For, realize: BlockRealize) -> bool:
    """Whether the predicate of a block holds for one iteration of a loop only, as `i < 1` does."""
    return (
        loop.loop_var in vars_used(realize.predicate)
        and realize in sch.state.index.parents
        and runs_once(sch, realize, loop)
    )


def _indices_identify(var: Var, use: Use) -> bool:
    """Whether an element determines each iterator that the loop drives."""
    driven = {iv.var for iv in _driven(var, use.realize)}
    plain = {r.min for r in use.region.region if is_one(r.extent)}
    return bool(driven) and (driven <= plain or driven <= determined_iterators(use.block, use.region))


def _driven(var: Var, realize: BlockRealize) -> list[IterVar]:
    pairs = realize.bindings
    return [iv for iv, value in pairs if var in vars_used(value)]


def check_inputs_unchanged(sch: Schedule, me: BlockRealize, place: Stmt, what: str) -> None:
    """Refuse if a buffer that the block reads has other values at a later statement, `place`."""
    index = sch.state.index
    at = index.order.index
    mine = set(index.ancestors(me))
    path = [place, *index.ancestors(place)]
    branch = next(n for i, n in enumerate(path) if path[i + 1] in mine)
    last = at((index.blocks_under(branch) or [me])[-1])
    left = [x for x in index.ancestors(me) if isinstance(x, For) and x not in path]
    around = [x for x in index.ancestors(me) if isinstance(x, For) and x in path]
    for w in producers_of(sch, me):
        reads = {r.buffer for r in me.block.reads}
        written = [x for x in w.block.writes if x.buffer in reads]
        name = written[0].buffer.name
        if at(me) < at(w) <= last and not reads_apart(sch, me, w, around):
            refuse(
                f"block {w.block.name_hint} writes {name} after block {me.block.name_hint} has read it, "
                f"and {what} would read the new values",
                at=w,
                hint=f"choose a loop before that block, or cache_read {name} for this block first",
            )
        for x in left:
            if x in index.ancestors(w):
                _check_leaves_loop(sch, me, w, x, written)


def reads_apart(sch: Schedule, me: BlockRealize, w: BlockRealize, around: Sequence[For]) -> bool:
    """Whether in each iteration of the loops around both, one block reads no element that the other one writes, as
    a step of a scan reads the step before."""
    index = sch.state.index
    nests = [*index.ancestors(me), *index.ancestors(w)]
    inner = {x.loop_var for x in nests if isinstance(x, For) and x not in around}
    ana = Analyzer()

    def span(realize: BlockRealize, dim: Range) -> tuple[PrimExpr, PrimExpr] | None:
        table = {iv.var: value for iv, value in realize.bindings}
        low = substitute(dim.min, table)
        high = add(low, substitute(dim.extent, table))
        return None if inner & {*vars_used(low), *vars_used(high)} else (low, high)

    def disjoint(read: BufferRegion, written: BufferRegion) -> bool:
        for a, b in zip(read.region, written.region, strict=True):
            one, other = span(me, a), span(w, b)
            if one is None or other is None:
                continue
            if ana.can_prove(less_equal(one[1], other[0])) or ana.can_prove(less_equal(other[1], one[0])):
                return True
        return False

    pairs = [(r, x) for r in me.block.reads for x in w.block.writes if r.buffer is x.buffer]
    return all(disjoint(r, x) for r, x in pairs)


def check_no_later_writes(
    sch: Schedule, me: BlockRealize, maker: BlockRealize, kept: Container[Stmt] = ()
) -> None:
    """Refuse if a block may read elements that another one writes in a later iteration of a loop around both.

    Loops in `kept` are not checked.
    """
    held = {r.buffer for r in me.block.reads}
    for loop in loops_around(sch, me):
        if loop in sch.state.index.ancestors(maker) and loop not in kept:
            _check_own_iteration(sch, me, maker, loop, [w for w in maker.block.writes if w.buffer in held])


def _check_leaves_loop(
    sch: Schedule, me: BlockRealize, w: BlockRealize, loop: For, written: list[BufferRegion]
) -> None:
    """Refuse if a block may not move out of a loop in which another one writes elements that it reads."""
    name, mine, var = written[0].buffer.name, me.block.name_hint, loop.loop_var.name
    if not _writes_distinct(w, written, loop.loop_var):
        refuse(
            f"block {w.block.name_hint} writes the same elements of {name} in each iteration of loop "
            f"`{var}`, and outside of it block {mine} would read only the last values",
            at=loop,
            hint=f"leave block {mine} inside `{var}`",
        )
    _check_own_iteration(sch, me, w, loop, written)


def _check_own_iteration(
    sch: Schedule, me: BlockRealize, w: BlockRealize, loop: For, written: list[BufferRegion]
) -> None:
    """Refuse if a block may read elements that another one writes in a later iteration of a loop around both."""
    for r in written:
        if not _reads_same_iteration(sch, me, w, loop, r):
            refuse(
                f"block {me.block.name_hint} may read elements of {r.buffer.name} that block {w.block.name_hint} "
                f"writes in a later iteration of loop `{loop.loop_var.name}`, and elsewhere would read the new values",
                at=loop,
                hint=f"leave block {me.block.name_hint} where it is",
            )


def _writes_distinct(w: BlockRealize, written: list[BufferRegion], var: Var) -> bool:
    """Whether different iterations of a loop write different elements."""
    pairs = w.bindings
    driven = [iv.var for iv, value in pairs if var in vars_used(value)]
    shown = [{r.min for r in region.region} for region in written]
    return bool(driven) and all(v in mins for v in driven for mins in shown)


def _reads_same_iteration(
    sch: Schedule, me: BlockRealize, w: BlockRealize, loop: For, written: BufferRegion
) -> bool:
    """Whether each element that a block reads in an iteration is written by the other one in that iteration, or
    never."""
    ana, buffer = sch.state.analyzer_at(loop), written.buffer
    uses = [u for u in uses_under(loop).get(buffer) or () if u.realize is me or u.realize is w]
    if uses and _disjoint(sch, loop, uses, ana):
        return True
    read = touched(sch, loop.body, [me], lambda b: b.reads, {buffer})[buffer]
    ends = [(s.min_value, s.max_value) for s in read]
    return not may_read_unwritten(sch, sch.state.analyzer_at(loop.body), loop.body, [w], buffer, ends)


def lives_inside(sch: Schedule, buffer: Buffer, loop: For) -> bool:
    """Whether nothing outside of the loop uses the buffer, so that it can be allocated inside."""
    func = sch.state.func
    if any(b is buffer for b in func.buffer_map.values()):
        return False
    index = sch.state.index
    above = index.ancestors(loop)
    known = {*index.blocks_under(loop), *above}  # enclosing blocks repeat the regions of the loop
    return not any(
        region.buffer is buffer
        for scope in above
        if isinstance(scope, Block)
        for r in index.blocks_under(scope.body)
        if r not in known
        for region in (*r.block.reads, *r.block.writes)
    )


def _refuse_bare(buffer: Buffer, loop: For) -> None:
    if any(isinstance(m, Allocate) and m.buffer_var is buffer.data for m in pre_order(loop)):
        return  # each iteration has its own
    if any(isinstance(m, BufferStore) and m.buffer is buffer for m in pre_order(loop)):
        refuse(
            f"{buffer.name} is used outside of blocks inside loop `{loop.loop_var.name}`, "
            "so the dependences between its iterations are not known",
            at=loop,
            hint="put the statement into a block",
        )


def _refuse_carried(loop: For, buffer: Buffer, uses: list[Use], hint: str) -> NoReturn:
    names = list(dict.fromkeys(u.block.name_hint for u in uses))
    who = f"block {names[0]}" if len(names) == 1 else f"blocks {' and '.join(names)}"
    if len(uses) == 1:
        refuse(
            f"iterations of loop `{loop.loop_var.name}` may write the same elements of {buffer.name} ({who})",
            at=loop,
            hint=hint,
        )
    refuse(
        f"an iteration of loop `{loop.loop_var.name}` may use elements of {buffer.name} that another one "
        f"writes ({who})",
        at=loop,
        hint=hint,
    )
