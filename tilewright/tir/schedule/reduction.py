"""Primitives over reductions: decompose_reduction, merge_reduction, rfactor, cascade_reduction."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer
from ...ir.buffer import Buffer, decl_buffer
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, IterVar, PrimExpr, Var, const_value
from ...ir.functor import pre_order, renew_defs_in, substitute, vars_used
from ...ir.ops import conjunction, conjuncts, is_one, is_zero, logical_and, sub
from ...ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt, seq
from ..analysis.combiner import (
    ANY_ORDER,
    Combination,
    NotACombination,
    combination_of,
    guarded_step,
    steps_commute,
)
from ..analysis.elements import Box
from ..analysis.reductions import init_nest, inside_domains, reduction_loops
from .blocks import (
    check_dominant,
    enclosing_block,
    insert_beside,
    refresh_regions,
    remove_stmt,
)
from .dependence import recheck_uses
from .flow import covers_domain, driven_kinds, must_write_box, points_injective, shared_loop
from .points import (
    check_distinct_writes,
    check_init_runs,
    check_reads_own_element,
    check_self_initialized,
    check_steps_once,
    check_unobserved,
)
from .primitive import BlockRV, LoopRV, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule


@primitive
def decompose_reduction(sch: Schedule, block: BlockRV | str, loop: LoopRV) -> BlockRV:
    """Move the init of a reduction into a loop nest of its own before `loop`, and return the init block.

    for i in range(n):                        for i in range(n):
        for k in range(m):                        C[i] = 0
            with block("C"):           ->         for k in range(m):
                with init(): C[i] = 0                 C[i] += A[i, k]
                C[i] += A[i, k]
    """
    me, before = sch.realize(block), sch.loop(loop)
    name = me.block.name_hint
    if me.block.init is None:
        refuse(
            f"block {name} has no init to decompose",
            at=me,
            hint="it was decomposed already, or the block is not a reduction",
        )
    nest = sch.state.index.loops_of(me)
    if before not in nest:
        refuse(
            f"loop `{before.loop_var.name}` is not around block {name}",
            at=before,
            hint=f"the loops around it are: {_names(nest)}" if nest else "it has no loops",
        )
    reducing = reduction_loops(me, nest)
    at = nest.index(before)
    for x in reducing:
        if nest.index(x) < at:
            refuse(
                f"loop `{x.loop_var.name}` carries the reduction and is outside `{before.loop_var.name}`: "
                "the init would run once for each of its iterations",
                at=x,
                hint=f"decompose at `{reducing[0].loop_var.name}` or further out",
            )
    crossed = [x for x in nest[at:] if x not in reducing]
    if not points_injective(sch, me, crossed, nest[at:]):
        refuse(
            f"loop `{before.loop_var.name}` visits elements of block {name} more than once, "
            "and the init must run before each visit",
            at=before,
            hint=f"decompose at `{(reducing[0] if reducing else nest[-1]).loop_var.name}`",
        )
    _check_init_moves(sch, me, before, nest[at:], reducing)
    made = init_nest(me, nest, at, annotated=True)
    if made is None:
        refuse(
            f"a loop drives both spatial and reduction iterators of block {name}",
            at=me,
            hint="apply decompose_reduction before the reduction is fused with other loops",
        )
    inner = next(m for m in pre_order(made) if isinstance(m, Block))
    bare = refresh_regions(me.block.replace(init=None))
    made_here = {w.buffer for w in bare.writes}
    reads = sorted(bare.reads, key=lambda r: r.buffer not in made_here)  # first what it goes on with
    sch.state.replace(me.block, bare.replace(reads=tuple(reads)))
    insert_beside(sch, sch.loop(loop), made, before=True)
    return BlockRV(inner.key, inner.name_hint)


def _check_init_moves(
    sch: Schedule, me: BlockRealize, before: For, inside: list[For], reducing: list[For]
) -> None:
    """Refuse if the init would run for other elements, or another block could observe that it runs earlier."""
    block, name = me.block, me.block.name_hint
    assert block.init is not None
    check_init_runs(sch, me, "decompose_reduction")
    check_steps_once(sch, me, sch.state.index.loops_of(me), "decompose_reduction")
    check_distinct_writes(me, "decompose_reduction")
    steps = {iv.var for iv in block.iter_vars if iv.is_reduction} & vars_used(block.init)
    if steps:
        refuse(
            f"the init of block {name} uses reduction iterator `{min(v.name for v in steps)}`, which has no value "
            "outside the reduction",
            at=me,
            hint="let the init use spatial iterators only",
        )
    inner = {x.loop_var for x in inside}
    reduced = {x.loop_var for x in reducing}
    for x in inside:
        tied = (vars_used(x.min) | vars_used(x.extent)) & inner
        if tied & reduced and x not in reducing:
            refuse(
                f"the bounds of loop `{x.loop_var.name}` depend on `{min(v.name for v in tied & reduced)}`, which "
                "carries the reduction, so the elements that the init must write are not known",
                at=x,
                hint=f"decompose at `{x.loop_var.name}`",
            )
    needs = {m.buffer for m in pre_order(block.init) if isinstance(m, BufferLoad)}
    check_unobserved(sch, me, before, f"the init of block {name}", needs)


@primitive
def merge_reduction(sch: Schedule, init_block: BlockRV | str, update_block: BlockRV | str) -> None:
    """Make `init_block` the init of the reduction `update_block` again: the inverse of decompose_reduction.

    for i in range(n):                        for i in range(n):
        C[i] = 0                                  for k in range(m):
        for k in range(m):             ->             with block("C"):
            C[i] += A[i, k]                               with init(): C[i] = 0
                                                          C[i] += A[i, k]
    """
    start, me = sch.realize(init_block), sch.realize(update_block)
    name, first = me.block.name_hint, start.block.name_hint
    if not any(iv.is_reduction for iv in me.block.iter_vars):
        refuse(f"block {name} has no reduction iterator", at=me, hint="pass the init block first")
    if me.block.init is not None:
        refuse(
            f"block {name} has an init already", at=me, hint="only a reduction without an init can get one"
        )
    if start is me:
        refuse(f"block {name} cannot be its own init", at=me, hint="pass the init block first")
    if enclosing_block(sch, start) is not enclosing_block(sch, me):
        refuse(
            f"blocks {first} and {name} are in different scopes",
            at=start,
            hint="both must be in the same block",
        )
    check_reads_own_element(me, "merging them")
    init = _as_init(start, me)
    common = shared_loop(sch, start, me)
    nest = sch.state.index.loops_of(me)
    at = nest.index(common) + 1 if common is not None else 0
    merged = me.replace(block=refresh_regions(me.block.replace(init=init)))
    _check_start(sch, start, me, merged, nest, at)
    _check_between(sch, start, me, nest[at])
    sch.state.replace(me.block, merged.block)
    remove_stmt(sch, sch.realize(init_block))
    sch.forget(start.block.key, f"merge_reduction({first}, {name})")


def _as_init(start: BlockRealize, me: BlockRealize) -> Stmt:
    """The value that a block stores, in the iterators of the block that continues the reduction."""
    name, first = me.block.name_hint, start.block.name_hint
    stores = list(start.block.body.seq) if isinstance(start.block.body, SeqStmt) else [start.block.body]
    held = {m.buffer: m.indices for m in pre_order(me.block.body) if isinstance(m, BufferStore)}
    spatial = {iv.var for iv in me.block.iter_vars if iv.iter_type == IterVar.DataPar}
    table: dict[Var, PrimExpr] = {}
    for n in stores:
        if not isinstance(n, BufferStore) or start.block.init is not None:
            refuse(
                f"block {first} does more than store values",
                at=start,
                hint=f"it must store the initial values of block {name}",
            )
        if n.buffer not in held:
            refuse(f"block {first} writes {n.buffer.name}, which block {name} does not reduce into", at=start)
        for mine, theirs in zip(n.indices, held[n.buffer], strict=True):
            known = table.setdefault(mine, theirs) if isinstance(mine, Var) else mine
            if not structural_equal(known, theirs) or not vars_used(theirs) <= spatial:
                refuse(
                    f"block {first} writes {n.buffer.name} at `{mine}` and block {name} at `{theirs}`, so "
                    "initial values cannot be matched with results",
                    at=start,
                )
    if {n.buffer for n in stores if isinstance(n, BufferStore)} != held.keys():
        refuse(f"block {first} does not initialize every buffer that block {name} writes", at=start)
    own = {iv.var for iv in start.block.iter_vars}
    made = seq(*(substitute(n, table) for n in stores))
    if vars_used(made) & own:
        refuse(f"block {first} has iterators that do not select the element that is written", at=start)
    return made


def _check_start(
    sch: Schedule, start: BlockRealize, me: BlockRealize, merged: BlockRealize, nest: list[For], at: int
) -> None:
    """Refuse unless the update reduces exactly the initialized elements, each once and from its first step."""
    name, first = me.block.name_hint, start.block.name_hint
    reducing = reduction_loops(me, nest)
    outside = next((x for x in reducing if nest.index(x) < at), None)
    if outside is not None:
        refuse(
            f"loop `{outside.loop_var.name}` carries the reduction of block {name} and repeats its init in each "
            "iteration",
            at=outside,
            hint=f"block {first} must be outside `{outside.loop_var.name}`",
        )
    crossed = nest[at : nest.index(reducing[0])] if reducing else nest[at:]
    place = nest[at - 1].body if at else enclosing_block(sch, me)
    here = place.body if isinstance(place, Block) else place
    assert here is not None
    ana = sch.state.analyzer_at(here)
    same = all(
        _same_box(must_write_box(sch, here, start, w), must_write_box(sch, here, me, x), ana)
        for w in start.block.writes
        for x in me.block.writes
        if w.buffer is x.buffer
    )
    alone = at < len(nest) and points_injective(sch, me, crossed, nest[at:])
    if not same or not alone or init_nest(merged, nest, at) is None or not covers_domain(sch, me):
        refuse(
            f"it cannot be proved that block {first} initializes exactly the elements that block {name} reduces into, "
            "each once",
            at=start,
            hint="merge the blocks before their loops are split, fused or cut",
        )


def _same_box(a: Box | None, b: Box | None, ana: Analyzer) -> bool:
    return (
        a is not None
        and b is not None
        and all(
            ana.can_prove_equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True)
        )
    )


def _check_between(sch: Schedule, start: BlockRealize, me: BlockRealize, below: For) -> None:
    """Refuse if a block reads the initial values before the reduction, or writes a buffer that the init reads."""
    order = sch.state.index.order
    if order.index(start) > order.index(me):
        refuse(f"block {start.block.name_hint} comes after block {me.block.name_hint}", at=start)
    made = {w.buffer for w in start.block.writes}
    needs = {r.buffer for r in start.block.reads}
    if needs & {w.buffer for w in me.block.writes}:
        refuse(
            f"block {start.block.name_hint} reads a buffer that block {me.block.name_hint} writes", at=start
        )
    for other in sch.siblings(me):
        if other is start or other is me:
            continue
        between = order.index(start) < order.index(other) < order.index(me)
        inside = below in sch.state.index.ancestors(other)
        writes = {w.buffer for w in other.block.writes}
        uses = writes | {r.buffer for r in other.block.reads}
        found = (writes & made) | ((uses & made) | (writes & needs) if between or inside else set())
        if found:
            refuse(
                f"block {other.block.name_hint} also uses {min(b.name for b in found)}, between the start of the "
                "reduction and its end"
                if between or inside
                else f"block {other.block.name_hint} also writes {min(b.name for b in found)}",
                at=other,
                hint=f"move block {other.block.name_hint} away first",
            )


def _names(loops: list[For]) -> str:
    return ", ".join(x.loop_var.name for x in loops)


def _combination(me: BlockRealize) -> Combination:
    """The combiner, operands and accumulators of a reduction, without the condition on its steps."""
    made = {w.buffer for w in me.block.writes}
    if any(isinstance(m, BufferLoad) and m.buffer in made for m in pre_order(guarded_step(me.block)[0])):
        refuse(
            f"the condition on the steps of block {me.block.name_hint} depends on the partial result",
            at=me,
            hint="let the condition read a buffer that another block has written",
        )
    try:
        held = combination_of(me.block.replace(body=guarded_step(me.block)[1]))
    except NotACombination as why:
        refuse(f"block {me.block.name_hint} {why}", at=me)
    return dataclasses.replace(held, indices=_steady_indices(me, held))


def _steady_indices(me: BlockRealize, held: Combination) -> tuple[PrimExpr, ...]:
    """The indices of the accumulator of a reduction, without reduction iterators: 0 for `C[max(k - 1, 0)]` with k in
    range(2)."""
    steps = {iv.var for iv in me.block.iter_vars if iv.is_reduction}
    region = next(w.region for w in me.block.writes if w.buffer is held.buffers[0])
    single = all(is_one(r.extent) for r in region)
    indices = tuple(r.min for r in region) if single else held.indices
    used = {v for e in (*indices, *held.start) for v in vars_used(e)} & steps
    if used:
        refuse(
            f"reduction iterator `{min(v.name for v in used)}` of block {me.block.name_hint} selects the element that "
            "the init writes, or its value",
            at=me,
            hint="let the init use spatial iterators only",
        )
    return indices


@primitive
def rfactor(sch: Schedule, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
    """Let each iteration of a reduction loop reduce into an element of its own, and combine the partial results.

    for i, k0, k1 in grid(n, a, b):           for k0, i, k1 in grid(a, n, b):
        C[i] += A[i, k0 * b + k1]      ->         C_rf[k0, i] += A[i, k0 * b + k1]
                                              for i, k0 in grid(n, a):
                                                  C[i] += C_rf[k0, i]

    `factor_axis` is the position of the new dimension in the partial results. A block that reduces several values at
    once (a maximum and its index) has partial results for each of them. Returns the block of the partial results.
    """
    n = sch.loop(loop)
    me, nest = _reduction_in(sch, n, "rfactor")
    _check_alone(me, nest, "rfactor")
    _check_carries(me, nest, n)
    check_dominant(sch, me)
    check_distinct_writes(me, "rfactor")
    held = _combination(me)
    check_reads_own_element(me, "rfactor")
    check_init_runs(sch, me, "rfactor")
    _check_loops(me, nest, nest, "rfactor")
    check_steps_once(sch, me, nest, "rfactor")
    outermost = n in reduction_loops(me, nest)[:1]
    if not outermost and not steps_commute(me.block):
        refuse(
            f"the result of block {me.block.name_hint} depends on the order of its reduction steps, and those of loop "
            f"`{n.loop_var.name}` would run after those of the loops outside it",
            at=n,
            hint=f"rfactor the outermost loop of the reduction, {_names(reduction_loops(me, nest)[:1])}; or declare "
            "with "
            f'T.block_attr({{"{ANY_ORDER}": True}}) that any order is correct',
        )
    ndim = len(held.buffers[0].shape)
    axis = factor_axis if factor_axis >= 0 else factor_axis + ndim + 1
    if not 0 <= axis <= ndim:
        refuse(f"factor_axis={factor_axis}, and the buffer has {ndim} dimensions", at=n)
    return _rfactor(sch, me, nest, n, held, axis)


def _reduction_in(sch: Schedule, n: For, what: str) -> tuple[BlockRealize, list[For]]:
    """The only reduction inside a loop, which must have its init, and all loops around it."""
    inside = sch.state.index.blocks_under(n)
    if len(inside) != 1:
        refuse(
            f"loop `{n.loop_var.name}` must hold exactly one block, and holds {len(inside)}",
            at=n,
            hint=f"apply {what} before other blocks are moved under the loop",
        )
    me = inside[0]
    if me.block.init is None:
        refuse(
            f"block {me.block.name_hint} has no init: apply {what} before decompose_reduction",
            at=me,
            hint="merge_reduction undoes decompose_reduction",
        )
    nest = sch.state.index.loops_of(me)
    if nest[-1].body is not me:
        refuse(
            f"loop `{nest[-1].loop_var.name}` holds more than block {me.block.name_hint}",
            at=nest[-1],
            hint=f"apply {what} before other blocks are moved under the loop",
        )
    return me, nest


def _check_alone(me: BlockRealize, loops: list[For], what: str) -> None:
    """Refuse if a loop holds more than the next one."""
    for outer, inner in zip(loops, loops[1:], strict=False):
        if outer.body is not inner:
            refuse(
                f"loop `{outer.loop_var.name}` holds more than the nest of block {me.block.name_hint}",
                at=outer,
                hint=f"apply {what} before other blocks are moved under the loop",
            )


def _check_carries(me: BlockRealize, nest: list[For], n: For) -> None:
    if n not in reduction_loops(me, nest) and not _is_unit(me, n):
        refuse(
            f"loop `{n.loop_var.name}` does not carry the reduction of block {me.block.name_hint}",
            at=n,
            hint=f"its reduction loops are: {_names(reduction_loops(me, nest))}",
        )


def _is_unit(me: BlockRealize, n: For) -> bool:
    """Whether a loop runs once and drives no iterator, as a part of a split may."""
    return const_value(n.extent) == 1 and not any(n.loop_var in vars_used(v) for v in me.iter_values)


def _check_loops(me: BlockRealize, nest: list[For], below: list[For], what: str) -> None:
    """Refuse loops that drive both spatial and reduction iterators or whose bounds depend on another loop, and
    conditions that use both kinds among the loops `below`."""
    own = {x.loop_var for x in nest}
    for x in nest:
        tied = (vars_used(x.min) | vars_used(x.extent)) & own
        if tied:
            refuse(
                f"the bounds of loop `{x.loop_var.name}` depend on `{min(v.name for v in tied)}`, so the partial "
                "results do not form a rectangular buffer",
                at=x,
                hint="give the loop its full extent, and put the condition into the value that is combined",
            )
    for x in nest:
        if len(driven_kinds(me, x)) > 1:
            refuse(
                f"loop `{x.loop_var.name}` drives both spatial and reduction iterators",
                at=x,
                hint=f"apply {what} before the reduction is fused with other loops",
            )
    reducing = {x.loop_var for x in reduction_loops(me, nest)}
    spatial = {v for iv, e in me.bindings if not iv.is_reduction for v in vars_used(e)}
    spatial &= {x.loop_var for x in below}
    for condition in conjuncts(me.predicate):
        if vars_used(condition) & reducing and vars_used(condition) & spatial:
            refuse(
                f"the condition `{condition}` uses both spatial and reduction loops",
                at=me,
                hint=f"apply {what} before the reduction is fused with other loops, or split by a factor that divides "
                "the extent",
            )


def _rfactor(
    sch: Schedule,
    me: BlockRealize,
    nest: list[For],
    factor: For,
    held: Combination,
    axis: int,
) -> BlockRV:
    partials = []
    for b in held.buffers:
        shape = list(b.shape)
        shape.insert(axis, factor.extent)
        partials.append(decl_buffer(shape, b.dtype, f"{b.name}_rf", scope=b.scope()))
    first = _partial_block(me, nest, factor, held, partials, axis)
    second = _combining_block(me, nest, factor, held, partials, axis)
    old = nest[0]
    insert_beside(sch, old, first, before=True)
    sch.state.replace(old, second)
    _allocate(sch, second, partials)
    made = next(m for m in pre_order(first) if isinstance(m, Block))
    for x in nest:
        if x.loop_var not in sch.state.index.loops:
            sch.forget(x.loop_var, f"rfactor({factor.loop_var.name})")
    for b in partials:
        recheck_uses(sch, b)
    return BlockRV(made.key, made.name_hint)


def _allocate(sch: Schedule, place: Stmt, buffers: list[Buffer]) -> None:
    """Allocate buffers in the scope of a statement."""
    scope = enclosing_block(sch, place)
    assert scope is not None
    sch.state.replace(scope, scope.replace(alloc_buffers=(*scope.alloc_buffers, *buffers)))


def _init(held: Combination) -> Stmt:
    """The stores of the initial values of a reduction."""
    return _stores(held.buffers, held.indices, held.start)


def _stores(buffers: Sequence[Buffer], place: Sequence[PrimExpr], values: Sequence[PrimExpr]) -> Stmt:
    return seq(*(BufferStore(b, e, place) for b, e in zip(buffers, values, strict=True)))


def _combined(held: Combination, partials: list[Buffer], place: Sequence[PrimExpr]) -> Stmt:
    """The step that combines the partial results at a place."""
    results = [(b, held.indices) for b in held.buffers]
    return held.update(results, [BufferLoad(b, tuple(place)) for b in partials])


def _spatial_predicate(me: BlockRealize, nest: list[For], first: dict[Var, PrimExpr]) -> PrimExpr:
    """The conditions of a block that do not use its reduction loops among those of a nest, at the first iteration of
    other loops."""
    reducing = {x.loop_var for x in reduction_loops(me, nest)}
    return conjunction(substitute(c, first) for c in conjuncts(me.predicate) if not vars_used(c) & reducing)


def _under_copies(body: Stmt, loops: list[For]) -> Stmt:
    """A statement under copies of loops, with variables of their own."""
    copies = {x.loop_var: x.loop_var.copy_with_suffix("") for x in loops}
    out = substitute(body, copies)
    for x in reversed(loops):
        out = x.replace(loop_var=copies[x.loop_var], body=out)
    return out


def _from_zero(own: Var, factor: For) -> PrimExpr:
    """The index of an iteration in the partial results, which start at 0."""
    return own if is_zero(factor.min) else sub(own, factor.min)


def _partial_block(
    me: BlockRealize,
    nest: list[For],
    factor: For,
    held: Combination,
    partials: list[Buffer],
    axis: int,
) -> Stmt:
    """The nest that reduces into one element for each iteration of the factored loop."""
    block = me.block
    own = Var(f"v{factor.loop_var.name}", factor.loop_var.dtype)
    iters = [IterVar(factor.dom, own, IterVar.DataPar)]
    values: list[PrimExpr] = [factor.loop_var]
    # Every reduction loop becomes an iterator of the new block: the factored one spatial, the others not.
    loop_iters: dict[Var, PrimExpr] = {factor.loop_var: own}
    table: dict[Var, PrimExpr] = {}

    def add_steps(loops: Iterable[For]) -> None:
        for x in loops:
            if x.loop_var not in loop_iters:
                loop_iters[x.loop_var] = v = Var(f"v{x.loop_var.name}", x.loop_var.dtype)
                iters.append(IterVar(x.dom, v, IterVar.CommReduce))
                values.append(x.loop_var)

    for iv, value in me.bindings:
        if iv.is_reduction:
            add_steps(x for x in nest if x.loop_var in vars_used(value))
            table[iv.var] = substitute(value, loop_iters)
        else:
            iters.append(iv)
            values.append(value)
    add_steps(reduction_loops(me, nest))  # a loop may be used in a condition only
    place = [substitute(i, table) for i in held.indices]
    place.insert(axis, _from_zero(own, factor))
    places = [(b, place) for b in partials]
    body = held.update(places, [substitute(v, table) for v in held.values])
    # A condition on reduction loops selects steps: it goes into the body, so that it moves with the block.
    reducing = {x.loop_var for x in reduction_loops(me, nest)}
    only: dict[Var, PrimExpr] = {x.loop_var: x.min for x in nest if is_one(x.extent)}
    inside = conjunction(
        substitute(c, {**only, **loop_iters}) for c in conjuncts(me.predicate) if vars_used(c) & reducing
    )
    chosen = substitute(guarded_step(block)[0], table)
    # A condition that loads data is evaluated only for steps in bounds.
    reads = any(isinstance(m, BufferLoad) for m in pre_order(chosen))
    counts = logical_and(inside, chosen) if reads else logical_and(chosen, inside)
    if not is_one(counts):
        body = IfThenElse(counts, body)
    init = _stores(partials, place, held.reducer.identity_element)
    made = refresh_regions(
        Block(iters, (), (), f"{block.name_hint}_rf", body, init, annotations=block.annotations)
    )
    realized = BlockRealize(values, _spatial_predicate(me, nest, {}), made)
    return _under_copies(renew_defs_in(realized), nest)


def _combining_block(
    me: BlockRealize,
    nest: list[For],
    factor: For,
    held: Combination,
    partials: list[Buffer],
    axis: int,
) -> Stmt:
    """The nest that combines the partial results; it keeps the block's name and identity."""
    block = me.block
    spatial = [(iv, value) for iv, value in me.bindings if not iv.is_reduction]
    own = Var(f"v{factor.loop_var.name}", factor.loop_var.dtype)
    iters = [iv for iv, _ in spatial]
    iters.append(IterVar(factor.dom, own, IterVar.CommReduce))
    place = list(held.indices)
    place.insert(axis, _from_zero(own, factor))
    body = _combined(held, partials, place)
    made = refresh_regions(
        Block(iters, (), (), block.name_hint, body, _init(held), annotations=block.annotations, key=block.key)
    )
    first = {} if factor in reduction_loops(me, nest) else {factor.loop_var: factor.min}
    predicate = _spatial_predicate(me, nest, first)
    needed = {v for e in (predicate, *(value for _, value in spatial)) for v in vars_used(e)}
    out: Stmt = BlockRealize([*[value for _, value in spatial], factor.loop_var], predicate, made)
    out = factor.replace(kind=ForKind.SERIAL, thread_binding=None, body=out)
    return _with_body([x for x in nest if x.loop_var in needed and x is not factor], out)


@primitive
def cascade_reduction(sch: Schedule, loop: LoopRV) -> BlockRV:
    """Let each iteration of a reduction loop reduce into an element of its own, combined at the end of the iteration.

    for k0 in range(a):                       for k0 in range(a):
        for k1, i in grid(b, n):       ->         for k1, i in grid(b, n):
            C[i] += A[i, k0 * b + k1]                 C_part[k0, i] += A[i, k0 * b + k1]
                                                  for i in range(n):
                                                      C[i] += C_part[k0, i]

    Unlike rfactor it keeps the loops, so it can come after all other steps. Partial results live for one iteration
    only: lowering shrinks their buffer to the region of one iteration. Sums become more accurate: chains of a + b
    additions in place of a * b. Returns the block that reduces within an iteration.
    """
    n = sch.loop(loop)
    me, nest = _reduction_in(sch, n, "cascade_reduction")
    name = me.block.name_hint
    below = nest[nest.index(n) :]
    _check_alone(me, below, "cascade_reduction")
    _check_carries(me, nest, n)
    if n.kind is not ForKind.SERIAL:
        refuse(
            f"loop `{n.loop_var.name}` is marked {n.kind.name.lower()}, and its iterations must run in sequence",
            at=n,
            hint="split the loop, and cascade the outer part",
        )
    check_dominant(sch, me)
    check_distinct_writes(me, "cascade_reduction")
    for w in me.block.writes:
        check_self_initialized(sch, me, w.buffer, "cascade_reduction")
    if me.block.init is not None and any(isinstance(m, BufferLoad) for m in pre_order(me.block.init)):
        refuse(
            f"the init of block {name} reads a buffer, and would be evaluated again in each iteration",
            at=me,
            hint="move the init out first with decompose_reduction, or let it store a constant",
        )
    held = _combination(me)
    _check_loops(me, nest, below, "cascade_reduction")
    check_steps_once(sch, me, nest, "cascade_reduction")
    return _cascade(sch, me, nest, nest.index(n), held)


def _cascade(sch: Schedule, me: BlockRealize, nest: list[For], at: int, held: Combination) -> BlockRV:
    block, reducing = me.block, reduction_loops(me, nest)
    around = [x for x in reducing if x in nest[: at + 1]] or [nest[at]]
    partials = [
        decl_buffer([*(x.extent for x in around), *b.shape], b.dtype, f"{b.name}_part", scope=b.scope())
        for b in held.buffers
    ]
    # Every reduction loop becomes an iterator of the partial block. An outer one is spatial there, since the partial
    # block starts again in each of its iterations, and is a reduction iterator of the combining block too.
    own = {x.loop_var: Var(f"v{x.loop_var.name}", x.loop_var.dtype) for x in (*around, *reducing)}
    domains = [(x, x.dom) for x in dict.fromkeys((*around, *reducing))]
    spatial = [(iv, value) for iv, value in me.bindings if not iv.is_reduction]
    table = {iv.var: substitute(value, own) for iv, value in me.bindings if iv.is_reduction}
    place = [*(sub(own[x.loop_var], x.min) for x in around), *held.indices]
    counts, _ = guarded_step(block)
    body = held.update([(b, place) for b in partials], [substitute(v, table) for v in held.values])
    if not is_one(counts):
        body = IfThenElse(substitute(counts, table), body)
    inside = [
        (IterVar(dom, own[x.loop_var], IterVar.DataPar if x in around else IterVar.CommReduce), x.loop_var)
        for x, dom in domains
    ]
    part = refresh_regions(
        Block(
            [*(iv for iv, _ in spatial), *(iv for iv, _ in inside)],
            (),
            (),
            f"{block.name_hint}_part",
            body,
            _stores(partials, place, held.reducer.identity_element),
            annotations=_aligned_further(block.annotations, len(around)),
        )
    )
    made = renew_defs_in(
        BlockRealize([*(v for _, v in spatial), *(v for _, v in inside)], me.predicate, part)
    )
    whole = refresh_regions(
        Block(
            [
                *(iv for iv, _ in spatial),
                *(IterVar(dom, own[x.loop_var], IterVar.CommReduce) for x, dom in domains if x in around),
            ],
            (),
            (),
            block.name_hint,
            _combined(held, partials, place),
            _init(held) if block.init is not None else None,
            annotations=block.annotations,
            key=block.key,
        )
    )
    after = _combined_after(me, whole, nest, at, spatial, around)
    sch.state.replace(nest[at].body, seq(_with_body(nest[at + 1 :], made), after))
    _allocate(sch, sch.loop(LoopRV(nest[at].loop_var)), partials)
    check_init_runs(sch, sch.state.index.blocks[made.block.key], "cascade_reduction")
    return BlockRV(made.block.key, part.name_hint)


def _aligned_further(annotations: Mapping[str, Any], dims: int) -> dict[str, Any]:
    """The annotations of a block whose buffers get `dims` more leading dimensions."""
    entries = annotations.get("buffer_dim_align")
    if not entries:
        return dict(annotations)
    return {**annotations, "buffer_dim_align": [[b, int(axis) + dims, f, o] for b, axis, f, o in entries]}


def _combined_after(
    me: BlockRealize,
    whole: Block,
    nest: list[For],
    at: int,
    spatial: list[tuple[IterVar, PrimExpr]],
    around: list[For],
) -> Stmt:
    """The nest that combines the partial results of an iteration of `nest[at]`, over the loops that select results."""
    # A loop of one iteration becomes a reduction iterator; conditions on those do not apply to an init.
    carried = reduction_loops(me, nest)
    predicate = _spatial_predicate(
        me, nest[at + 1 :], {x.loop_var: x.min for x in around if x not in carried}
    )
    if not inside_domains(spatial, nest, predicate):
        refuse(
            f"the conditions of block {me.block.name_hint} that do not use its reduction loops do not bound its "
            "results",
            at=me,
            hint="apply cascade_reduction before the reduction is fused with other loops",
        )
    values = [*(value for _, value in spatial), *(x.loop_var for x in around)]
    needed = {v for e in (predicate, *(value for _, value in spatial)) for v in vars_used(e)}
    loops = [x.replace(annotations={}) for x in nest[at + 1 :] if x.loop_var in needed]
    return _under_copies(BlockRealize(values, predicate, whole), loops)


def _with_body(loops: list[For], body: Stmt) -> Stmt:
    for x in reversed(loops):
        body = x.replace(body=body)
    return body
