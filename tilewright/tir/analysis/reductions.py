"""The loops of a reduction, and the position of its init."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from ...arith import Analyzer
from ...ir.buffer import MatchBufferRegion
from ...ir.expr import LE, LT, BufferLoad, IterVar, PrimExpr, Var, const
from ...ir.functor import pre_order, renew_defs_in, substitute, vars_used
from ...ir.ops import conjuncts, in_range, is_one, less_equal, logical_and, sub
from ...ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, Stmt
from .regions import get_block_read_write_region


def starts_at_first(realize: BlockRealize, loops: list[For], held: Set[Var] = frozenset()) -> bool:
    """Whether all reduction iterators have their first value in the first iteration of the loops."""
    ana = Analyzer()
    first: dict[Any, Any] = {loop.loop_var: loop.min for loop in loops}
    for iv, value in realize.bindings:
        if not iv.is_reduction:
            continue
        if vars_used(value) & held or not ana.can_prove_equal(substitute(value, first), iv.dom.min):
            return False
    # Conditions may skip the first iteration only if they skip all others.
    ana.bind_ranges({loop.loop_var: loop.dom for loop in loops})
    conditions = [c for c in conjuncts(realize.predicate) if vars_used(c) & first.keys()]
    return all(_holds_at_first(ana, c, first) for c in conditions)


def _holds_at_first(ana: Analyzer, condition: PrimExpr, first: dict[Any, Any]) -> bool:
    """Whether a condition that holds in some iteration holds in the first."""
    if isinstance(condition, (LT, LE)):  # if `i*4 + k < n` holds, so does `i*4 < n`
        far = sub(condition.a, condition.b)
        if ana.can_prove(less_equal(substitute(far, first), far)):
            return True
    with ana.constraint_scope(condition):
        return ana.can_prove(substitute(condition, first))


def reduction_loops(realize: BlockRealize, loops: list[For]) -> list[For]:
    """The loops of `loops` that drive a reduction iterator of the block, outermost first.

    A part of a split may be missing in the bindings, because the predicate holds for one iteration of it only:
    `for k_0, k_1 in grid(2, 2): vk = k_1 where k_0 * 2 + k_1 < 1`. It drives the reduction too.
    """
    used: set[Var] = set()
    spatial: set[Var] = set()
    for iv, value in realize.bindings:
        (used if iv.is_reduction else spatial).update(vars_used(value))
    conditions = [vars_used(c) for c in conjuncts(realize.predicate)]
    single = {loop.loop_var for loop in loops if is_one(loop.extent)}  # these may belong to any iterator
    more = True
    while more:
        joined = {v for c in conditions if c & used for v in c} - spatial - used - single
        more = bool(joined)
        used |= joined
    return [loop for loop in loops if loop.loop_var in used]


def _views_of_init(block: Block) -> list[MatchBufferRegion] | None:
    """The views that the `init` of a block uses; None if one of them moves with a reduction."""
    assert block.init is not None
    used = vars_used(block.init)
    touched = {n.buffer for n in pre_order(block.init) if isinstance(n, (BufferStore, BufferLoad))}
    reduced = {iv.var for iv in block.iter_vars if iv.is_reduction}
    out = []
    for match in block.match_buffers:
        facts = (match.buffer.elem_offset, *match.buffer.strides, *match.buffer.shape)
        symbols = {match.buffer.data, *(v for v in facts if isinstance(v, Var))}
        if match.buffer in touched or symbols & used:
            if vars_used(match.source) & reduced:
                return None
            out.append(match)
    return out


def init_nest(
    realize: BlockRealize, around: list[For], start: int, *, pragmas: bool = False, annotated: bool = False
) -> Stmt | None:
    """The block's `init` under copies of the loops from `around[start]` on that it needs, with `pragmas` or without.

    The block of the init has the annotations of the block that are about its init, or all of them if `annotated`.
    None if the init cannot be separated: a loop drives both spatial and reduction iterators, the bounds of a spatial
    loop depend on a reduction loop, or the init itself uses a reduction iterator.
    """
    block, loops = realize.block, around[start:]
    assert block.init is not None
    if vars_used(block.init) & {iv.var for iv in block.iter_vars if iv.is_reduction}:
        return None
    views = _views_of_init(block)
    if views is None:
        return None
    reducing = {loop.loop_var for loop in reduction_loops(realize, loops)}
    spatial: list[tuple[IterVar, PrimExpr]] = []
    needed: set[Var] = set()
    for iv, value in realize.bindings:
        if iv.is_reduction:
            continue
        used = vars_used(value)
        if used & reducing:
            return None
        needed |= used
        spatial.append((iv, value))
    predicate: PrimExpr = const(True, "bool")
    mixed = False
    for condition in conjuncts(realize.predicate):
        used = vars_used(condition)
        if used & reducing:
            mixed = mixed or bool(used & needed)
            continue
        needed |= used
        predicate = logical_and(predicate, condition)
    # A condition on both kinds was dropped: the init may run for more points, as long as they are in the domain.
    if mixed and not inside_domains(spatial, around, predicate):
        return None
    for loop in reversed(loops):
        if loop.loop_var in needed:
            needed |= vars_used(loop.min) | vars_used(loop.extent)
    if needed & reducing:  # the set of elements changes with the reduction
        return None
    copies = {loop.loop_var: loop.loop_var.copy_with_suffix("_init") for loop in loops}
    stand_alone = Block(
        [iv for iv, _ in spatial],
        [],
        block.writes,
        f"{block.name_hint}_init",
        block.init,
        match_buffers=views,
        annotations={k: v for k, v in block.annotations.items() if annotated or k.startswith("tir.init")},
        span=block.span,
    )
    reads, _ = get_block_read_write_region(stand_alone, None)
    stand_alone = stand_alone.replace(reads=tuple(reads))
    realized = BlockRealize([value for _, value in spatial], predicate, stand_alone)
    made: Stmt = substitute(renew_defs_in(realized), copies)
    for loop in reversed(loops):
        if loop.loop_var in needed:
            kind = ForKind.SERIAL if loop.kind is ForKind.PARALLEL and loop is not loops[0] else loop.kind
            low, size = substitute(loop.min, copies), substitute(loop.extent, copies)
            held = {k: v for k, v in loop.annotations.items() if pragmas and k.startswith("pragma_")}
            made = For(copies[loop.loop_var], low, size, kind, made, loop.thread_binding, held)
    return made


def inside_domains(spatial: list[tuple[IterVar, PrimExpr]], loops: list[For], predicate: PrimExpr) -> bool:
    """Whether the iterators stay in their domains in all iterations in which the predicate holds."""
    ana = Analyzer()
    ana.bind_ranges({loop.loop_var: loop.dom for loop in loops})
    with ana.constraint_scope(predicate):
        return all(ana.can_prove(in_range(value, iv.dom)) for iv, value in spatial)
