"""The points of its iterators at which a block runs, their order, and whether each writes elements of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...ir.buffer import Buffer, BufferRegion
from ...ir.equal import structural_equal
from ...ir.expr import LE, LT, PrimExpr, Var, const
from ...ir.functor import pre_order, substitute, vars_used
from ...ir.ops import conjunction, conjuncts, is_one
from ...ir.stmt import BlockRealize, For
from ..analysis.combiner import steps_commute
from ..analysis.elements import is_gapless, loops_injective, mapped_box, undetermined_iterator
from ..analysis.reductions import reduction_loops, starts_at_first
from ..analysis.regions import reads_elsewhere
from .blocks import producers_of, scope_buffers
from .flow import loops_around, may_read_unwritten, points_injective
from .primitive import refuse
from .regions import touched

if TYPE_CHECKING:
    from .schedule import Schedule


def check_recomputable(sch: Schedule, me: BlockRealize, target: For, what: str) -> None:
    """Refuse if a block may not be run again under other loops, over its iterators in their order.

    Different points must write different elements, unless they are steps of a reduction whose combiner is associative
    and commutative; and the block must run at every point of a box.
    """
    block, name = me.block, me.block.name_hint
    check_distinct_writes(me, what)
    check_reads_own_element(me, what)
    _check_complete(sch, me, target)
    if block.init is not None or any(r.buffer is w.buffer for r in block.reads for w in block.writes):
        check_steps_once(sch, me, sch.state.index.loops_of(me), what)
    if not _keeps_steps(sch, me) and not steps_commute(block):
        refuse(
            f"the result of block {name} depends on the order of its reduction steps, which {what} may change",
            at=me,
            hint="keep the loops of the reduction in the order of its iterators; break ties by the index",
        )
    check_full_domain(sch, me, what)


def check_distinct_writes(me: BlockRealize, what: str) -> None:
    """Refuse if different points of a block, other than the steps of a reduction, may write the same element."""
    block, name = me.block, me.block.name_hint
    for w in block.writes:
        found = undetermined_iterator(block, w)
        if found is not None:
            refuse(
                f"points of block {name} that differ in iterator `{found.var.name}` may write the same elements of "
                f"{w.buffer.name}, and {what} could change their order",
                at=me,
                hint="let each point write elements of its own, or declare the iterator as that of a reduction",
            )
        check_fixed_element(me, w)


def check_steps_once(sch: Schedule, me: BlockRealize, nest: list[For], what: str) -> None:
    """Refuse if the loops repeat a step of a reduction, or return to an element whose reduction has ended."""
    reducing = reduction_loops(me, nest)
    inside = nest[nest.index(reducing[0]) :] if reducing else nest
    steps = [x for x in reducing if not is_one(x.extent)]
    if me.block.init is not None and not loops_injective(me, steps, nest):
        refuse(
            f"the loops of block {me.block.name_hint} may repeat a step of its reduction after the init has run again, "
            f"and {what} would count both",
            at=reducing[0],
            hint="let each iteration be a different step",
        )
    if not points_injective(sch, me, [x for x in inside if x not in reducing], inside):
        refuse(
            f"the loops inside `{inside[0].loop_var.name}` visit elements of block {me.block.name_hint} more than "
            "once, "
            f"and {what} would count their steps again",
            at=inside[0],
            hint="let each iteration write different elements",
        )


def _check_complete(sch: Schedule, me: BlockRealize, target: For) -> None:
    """Refuse if another block uses the partial result of a reduction inside a loop that carries it, or if the target is
    inside such a loop."""
    made = {w.buffer for w in me.block.writes}
    for loop in reduction_loops(me, sch.state.index.loops_of(me)):
        if loop in sch.state.index.ancestors(target) and not is_one(loop.extent):
            refuse(
                f"loop `{loop.loop_var.name}`, which carries the reduction of block {me.block.name_hint}, also "
                f"encloses loop `{target.loop_var.name}`, and each of its iterations would take all steps",
                at=loop,
                hint="choose a loop outside of it",
            )
        for other in sch.state.index.blocks_under(loop) if not is_one(loop.extent) else ():
            if other is not me and any(r.buffer in made for r in (*other.block.reads, *other.block.writes)):
                refuse(
                    f"block {other.block.name_hint} uses the partial result of block {me.block.name_hint} in an "
                    "iteration of "
                    f"loop `{loop.loop_var.name}`, which carries its reduction and would run to its end first",
                    at=other,
                    hint=f"move block {other.block.name_hint} out of the loop first",
                )


def check_reads_own_element(me: BlockRealize, what: str) -> None:
    """Refuse if a point of a block reads elements that other points of the block write."""
    for w in me.block.writes:
        if reads_elsewhere(me.block, w.buffer):
            refuse(
                f"block {me.block.name_hint} reads elements of {w.buffer.name} that other iterations of it write, and "
                f"{what} could change their order",
                at=me,
                hint="let it read a buffer that another block has written",
            )


def check_fixed_element(me: BlockRealize, region: BufferRegion) -> None:
    """Refuse if the steps of a reduction write different elements: its init writes only one of them."""
    reducing = {iv.var for iv in me.block.iter_vars if iv.is_reduction}
    moving = {v for r in region.region for v in vars_used(r.min)} & reducing
    if moving:
        refuse(
            f"reduction iterator `{min(v.name for v in moving)}` of block {me.block.name_hint} selects the element of "
            f"{region.buffer.name} that is written",
            at=me,
            hint="declare it as spatial",
        )


def _keeps_steps(sch: Schedule, me: BlockRealize) -> bool:
    """Whether the loops of a reduction are its iterators, in their order."""
    loops = reduction_loops(me, sch.state.index.loops_of(me))
    pairs = me.bindings
    return [v for iv, v in pairs if iv.is_reduction] == [x.loop_var for x in loops]


def check_full_domain(sch: Schedule, me: BlockRealize, what: str) -> None:
    """Refuse if the loops around a block skip points of the domain of its iterators, or repeat a step of a
    reduction."""
    loops = loops_around(sch, me)
    name = me.block.name_hint
    variables = {x.loop_var for x in loops}
    for x in loops:
        tied = (vars_used(x.min) | vars_used(x.extent)) & variables
        if tied and x.loop_var in _driving(me):
            refuse(
                f"the bounds of loop `{x.loop_var.name}` depend on `{min(v.name for v in tied)}`, so block {name} "
                f"skips points of its iterators at which {what} would run it",
                at=x,
                hint="give the loop its full extent, and put the condition into the value that the block stores",
            )
    check_init_runs(sch, me, what)
    if not _fills_box(me, loops):
        refuse(
            f"it cannot be proved that the loops around block {name} visit every point of its iterators, and each "
            "step of "
            f"a reduction once, as they would after {what}",
            at=me,
            hint="apply this step before the loops are transformed",
        )


def runs_full_domain(sch: Schedule, me: BlockRealize) -> bool:
    """Whether the loops around a block visit every point of a box of its iterators."""
    loops = loops_around(sch, me)
    variables = {x.loop_var for x in loops}
    driving = _driving(me)
    return not any(
        (vars_used(x.min) | vars_used(x.extent)) & variables for x in loops if x.loop_var in driving
    ) and _fills_box(me, loops)


def check_init_runs(sch: Schedule, me: BlockRealize, what: str) -> None:
    """Refuse if the init of a reduction may not run: it runs where all reduction iterators are at their first value."""
    if me.block.init is None:
        return
    loops = sch.state.index.loops_of(me)
    reducing = reduction_loops(me, loops)
    steps = {x.loop_var for x in reducing}
    for x in loops:
        tied = (vars_used(x.min) | vars_used(x.extent)) & steps
        if tied and x not in reducing and x.loop_var in _driving(me):
            refuse(
                f"the bounds of loop `{x.loop_var.name}` depend on `{min(v.name for v in tied)}`, which carries the "
                f"reduction of block {me.block.name_hint}: its init does not run for the points of later iterations, "
                f"which {what} relies on",
                at=x,
                hint="give the loop its full extent, and put the condition into the value that is combined",
            )
    spatial = {v for iv, e in me.bindings if not iv.is_reduction for v in vars_used(e)}
    if starts_at_first(me, reducing) and (not steps & spatial or _fills_box(me, loops_around(sch, me))):
        return
    refuse(
        f"the loops of block {me.block.name_hint} do not begin with the first values of its reduction iterators, where "
        f"the init runs, which {what} relies on",
        at=me,
        hint="let the loops of the reduction start at the first value of its iterators",
    )


def check_self_initialized(sch: Schedule, me: BlockRealize, buffer: Buffer, what: str) -> None:
    """Refuse if a block depends on values that a buffer held before the block."""
    block = me.block
    loads = block.init is not None and reads_elsewhere(block, buffer)
    if loads or (block.init is None and any(r.buffer is buffer for r in block.reads)):
        refuse(
            f"block {block.name_hint} also reads {buffer.name}, which {what} does not hold yet",
            at=me,
            hint="cache_inplace copies it before and back after",
        )
    check_init_runs(sch, me, what)
    for w in block.writes if block.init is not None else ():
        if w.buffer is buffer:
            check_fixed_element(me, w)
    for inner in (m for m in pre_order(block.body) if isinstance(m, BlockRealize)):
        if inner.block.init is not None and any(w.buffer is buffer for w in inner.block.writes):
            check_distinct_writes(inner, what)
            check_init_runs(sch, inner, what)


def check_unobserved(sch: Schedule, me: BlockRealize, before: For, what: str, needs: set[Buffer]) -> None:
    """Refuse if another block could observe that a part of block `me`, described by `what`, moves before a loop.

    `needs` are the buffers that this part reads.
    """
    made = {w.buffer for w in me.block.writes}
    local, order = scope_buffers(sch, me), sch.state.index.order
    nest = sch.state.index.loops_of(me)
    inside = nest[nest.index(before) + 1 :] if before in nest else []
    for other in sch.state.index.blocks_under(before):
        name = other.block.name_hint
        writes, reads = ({r.buffer for r in x} for x in (other.block.writes, other.block.reads))
        if writes & needs:
            refuse(
                f"{what} reads {min(b.name for b in writes & needs)}, which block {name} writes in loop "
                f"`{before.loop_var.name}`",
                at=other,
                hint="choose a loop further inside",
            )
        if other is me:
            for b in (w.buffer for w in me.block.writes):
                if me.block.init is not None and reads_elsewhere(me.block, b):
                    refuse(
                        f"block {name} reads elements of {b.name} other than those that it writes, and would see "
                        f"{what} too "
                        "early",
                        at=me,
                        hint="choose a loop further inside",
                    )
            continue
        early = bool(reads & made) and order.index(other) < order.index(me)
        foreign = {b for b in reads & made if b not in local or len(producers_of(sch, me, {b})) > 0}
        shared = [x for x in (before, *inside) if x is before or x in sch.state.index.ancestors(other)]
        unwritten_yet = any(not _reads_same_iteration(sch, me, other, x, b) for b in foreign for x in shared)
        if writes & made or early or unwritten_yet:
            found = min(b.name for b in (writes | reads) & made)
            refuse(
                f"block {name} also uses {found} in loop `{before.loop_var.name}`, and would see {what} too early",
                at=other,
                hint="choose a loop further inside, or move that block away first",
            )


def _reads_same_iteration(
    sch: Schedule, me: BlockRealize, reader: BlockRealize, before: For, buffer: Buffer
) -> bool:
    """Whether a block reads only elements that another one has written in the same iteration of a loop."""
    ana = sch.state.analyzer_at(before.body)
    found = touched(sch, before.body, [reader], lambda b: b.reads, {buffer})[buffer]
    return not may_read_unwritten(
        sch, ana, before.body, [me], buffer, [(s.min_value, s.max_value) for s in found]
    )


def _driving(me: BlockRealize) -> set[Var]:
    return {v for value in (*me.iter_values, me.predicate) for v in vars_used(value)}


def _fills_box(me: BlockRealize, loops: Sequence[For]) -> bool:
    """Whether the iterators take every value of a box as the loops run: each alone, or all together."""
    ranges = {x.loop_var: x.dom for x in loops}
    # Loops of one iteration do not matter.
    single = {v: r.min for v, r in ranges.items() if is_one(r.extent)}
    values = [substitute(v, single) for v in me.iter_values]
    used = [v for e in values for v in vars_used(e) & ranges.keys()]
    if len(used) == len(set(used)) and all(
        is_gapless(e, const(1, e.dtype), ranges, once=iv.is_reduction)
        for iv, e in zip(me.block.iter_vars, values, strict=True)
    ):
        return True
    doms = {v: r for v, r in ranges.items() if v in _driving(me) and v not in single}

    def shrinks(c: PrimExpr) -> bool:
        """Whether a condition is an upper bound on one iterator, which only shrinks the box."""
        below = isinstance(c, (LT, LE)) and not vars_used(c.b) & doms.keys()
        return below and any(structural_equal(c.a, v) for v in me.iter_values)  # type: ignore[attr-defined]

    conditions = [c for c in conjuncts(me.predicate) if vars_used(c) & doms.keys() and not shrinks(c)]
    return mapped_box(values, doms, conjunction(substitute(c, single) for c in conditions)) is not None
