"""Primitives over reductions: decompose_reduction, rfactor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.buffer import Buffer, decl_buffer
from ...ir.expr import BufferLoad, IterVar, PrimExpr, Range, Var, const, const_value
from ...ir.functor import pre_order, renew_defs_in, substitute, vars_used
from ...ir.ops import conjuncts, is_one, logical_and
from ...ir.stmt import Block, BlockRealize, BufferStore, For, ForKind, IfThenElse, Stmt, seq
from ..analysis.combiner import Combination, NotACombination, combination_of
from ..transform.lower_init_block import init_nest, reduction_loops
from .blocks import check_dominant, enclosing_block, insert_beside, refresh_regions
from .flow import points_once
from .primitive import BlockRV, LoopRV, primitive, refuse

if TYPE_CHECKING:
    from .schedule import Schedule

__all__ = ["decompose_reduction", "rfactor"]


@primitive
def decompose_reduction(sch: Schedule, block: BlockRV, loop: LoopRV) -> BlockRV:
    """Give the initialisation of a reduction a nest of its own before a loop.

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
            f"block {name} has no init to take out",
            at=me,
            hint="it was taken out already, or the block is no reduction",
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
    crossed = nest[at : nest.index(reducing[0])] if reducing else nest[at:]
    if not points_once(sch, me, crossed, nest[at:]):
        refuse(
            f"loop `{before.loop_var.name}` comes to elements of block {name} more than once, "
            "and each time the reduction has to start anew",
            at=before,
            hint=f"decompose at `{(reducing[0] if reducing else nest[-1]).loop_var.name}`",
        )
    made = init_nest(me, nest, at)
    if made is None:
        refuse(
            f"a loop drives both spatial and reduction iterators of block {name}",
            at=me,
            hint="decompose_reduction comes before the reduction is fused with other loops",
        )
    assert made is not None
    inner = next(m for m in pre_order(made) if isinstance(m, Block))
    bare = refresh_regions(me.block.replace(init=None))
    sch.state.replace(me.block, bare)
    insert_beside(sch, sch.loop(loop), made, before=True)
    return BlockRV(inner.key, inner.name_hint)


def _names(loops: list[For]) -> str:
    return ", ".join(x.loop_var.name for x in loops)


def _combination(me: BlockRealize) -> Combination:
    """A reduction's steps taken apart; a condition that says which of them count is left aside."""
    try:
        return combination_of(me.block.replace(body=_guarded(me.block)[1]))
    except NotACombination as why:
        refuse(f"block {me.block.name_hint} {why}", at=me)
        raise


def _guarded(block: Block) -> tuple[PrimExpr, Stmt]:
    """The condition under which a step counts, as rfactor leaves it, and the step."""
    body = block.body
    if isinstance(body, IfThenElse) and body.else_case is None:
        return body.condition, body.then_case
    return const(True, "bool"), body


@primitive
def rfactor(sch: Schedule, loop: LoopRV, factor_axis: int = 0) -> BlockRV:
    """Let each iteration of a reduction loop reduce into a place of its own, and combine these after.

    for i, k0, k1 in grid(n, a, b):           for k0, i, k1 in grid(a, n, b):
        C[i] += A[i, k0 * b + k1]      ->         C_rf[k0, i] += A[i, k0 * b + k1]
                                              for i, k0 in grid(n, a):
                                                  C[i] += C_rf[k0, i]

    A block that reduces several values at once (the largest and where it is) gets a place for each.
    """
    n = sch.loop(loop)
    inside = sch.state.index.blocks_under(n)
    if len(inside) != 1:
        refuse(
            f"loop `{n.loop_var.name}` must hold exactly one block, and holds {len(inside)}",
            at=n,
            hint="take rfactor before other blocks are moved under the loop",
        )
    me = inside[0]
    block, name = me.block, me.block.name_hint
    if block.init is None:
        refuse(
            f"block {name} has no init: rfactor comes before decompose_reduction",
            at=me,
            hint="merge_reduction puts back an init that was taken out",
        )
    nest = sch.state.index.loops_of(me)
    for outer, inner in zip(nest, nest[1:], strict=False):
        if outer.body is not inner:
            refuse(
                f"loop `{outer.loop_var.name}` holds more than the nest of block {name}",
                at=outer,
                hint="take rfactor before other blocks are moved under the loop",
            )
    if nest[-1].body is not me:
        refuse(
            f"loop `{nest[-1].loop_var.name}` holds more than block {name}",
            at=nest[-1],
            hint="take rfactor before other blocks are moved under the loop",
        )
    if n not in reduction_loops(me, nest) and not _is_unit(me, n):
        refuse(
            f"loop `{n.loop_var.name}` does not carry the reduction of block {name}",
            at=n,
            hint=f"those that do are: {_names(reduction_loops(me, nest))}",
        )
    check_dominant(sch, me)
    held = _combination(me)
    _check_loops(me, nest)
    ndim = len(held.buffers[0].shape)
    axis = factor_axis if factor_axis >= 0 else factor_axis + ndim + 1
    if not 0 <= axis <= ndim:
        refuse(f"factor_axis={factor_axis}, and the buffer has {ndim} dimensions", at=n)
    return _rfactor(sch, me, nest, n, held, axis)


def _is_unit(me: BlockRealize, n: For) -> bool:
    """Whether a loop runs once and drives nothing, as a part of a split may."""
    return const_value(n.extent) == 1 and not any(n.loop_var in vars_used(v) for v in me.iter_values)


def _check_loops(me: BlockRealize, nest: list[For]) -> None:
    """Each loop must drive spatial iterators or reduction ones, not both."""
    for x in nest:
        kinds = {
            iv.iter_type
            for iv, value in zip(me.block.iter_vars, me.iter_values, strict=True)
            if x.loop_var in vars_used(value)
        }
        if len(kinds) > 1:
            refuse(
                f"loop `{x.loop_var.name}` drives both spatial and reduction iterators",
                at=x,
                hint="rfactor comes before the reduction is fused with other loops",
            )
    reducing = {x.loop_var for x in reduction_loops(me, nest)}
    spatial: set[Var] = set()
    for iv, value in zip(me.block.iter_vars, me.iter_values, strict=True):
        if iv.iter_type != IterVar.CommReduce:
            spatial |= vars_used(value)
    for condition in conjuncts(me.predicate):
        if vars_used(condition) & reducing and vars_used(condition) & spatial:
            refuse(
                f"the condition `{condition}` ties spatial and reduction loops together",
                at=me,
                hint="rfactor comes before the reduction is fused with other loops, or split by a factor that divides",
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
    scope = enclosing_block(sch, second)
    assert scope is not None
    sch.state.replace(scope, scope.replace(alloc_buffers=(*scope.alloc_buffers, *partials)))
    made = next(m for m in pre_order(first) if isinstance(m, Block))
    for x in nest:
        if x.loop_var not in sch.state.index.loops:
            sch.forget(LoopRV(x.loop_var), f"rfactor({factor.loop_var.name})")
    return BlockRV(made.key, made.name_hint)


def _partial_block(
    me: BlockRealize,
    nest: list[For],
    factor: For,
    held: Combination,
    partials: list[Buffer],
    axis: int,
) -> Stmt:
    """The nest that reduces into one place for each iteration of the factored loop."""
    block = me.block
    own = Var(f"v{factor.loop_var.name}", factor.loop_var.dtype)
    iters = [IterVar(Range.from_min_extent(factor.min, factor.extent), own, IterVar.DataPar)]
    values: list[PrimExpr] = [factor.loop_var]
    # Every reduction loop becomes an iterator of the new block: the factored one spatial, the others not.
    loop_iters: dict[Var, PrimExpr] = {factor.loop_var: own}
    table: dict[Var, PrimExpr] = {}
    for iv, value in zip(block.iter_vars, me.iter_values, strict=True):
        if iv.iter_type == IterVar.CommReduce:
            for x in nest:
                if x.loop_var in vars_used(value) and x.loop_var not in loop_iters:
                    v = Var(f"v{x.loop_var.name}", x.loop_var.dtype)
                    loop_iters[x.loop_var] = v
                    iters.append(IterVar(Range.from_min_extent(x.min, x.extent), v, IterVar.CommReduce))
                    values.append(x.loop_var)
            table[iv.var] = substitute(value, loop_iters)
        else:
            iters.append(iv)
            values.append(value)
    for x in reduction_loops(me, nest):
        if x.loop_var not in loop_iters:  # it is in a condition only
            v = Var(f"v{x.loop_var.name}", x.loop_var.dtype)
            loop_iters[x.loop_var] = v
            iters.append(IterVar(Range.from_min_extent(x.min, x.extent), v, IterVar.CommReduce))
            values.append(x.loop_var)
    place = [substitute(i, table) for i in held.indices]
    place.insert(axis, own)
    places = [(b, place) for b in partials]
    body = held.update(places, [substitute(v, table) for v in held.values])
    # A condition on the reduction says which steps count: it stands inside, to go where the block goes.
    reducing = {x.loop_var for x in reduction_loops(me, nest)}
    counts = substitute(_guarded(block)[0], table)
    predicate: PrimExpr = const(True, "bool")
    for condition in conjuncts(me.predicate):
        if vars_used(condition) & reducing:
            counts = logical_and(counts, substitute(condition, loop_iters))
        else:
            predicate = logical_and(predicate, condition)
    if not is_one(counts):
        body = IfThenElse(counts, body)
    init = seq(
        *(BufferStore(b, e, place) for b, e in zip(partials, held.reducer.identity_element, strict=True))
    )
    made = refresh_regions(
        Block(iters, (), (), f"{block.name_hint}_rf", body, init, annotations=block.annotations)
    )
    out: Stmt = BlockRealize(values, predicate, made)
    copies: dict[Var, PrimExpr] = {x.loop_var: x.loop_var.copy_with_suffix("") for x in nest}
    out = renew_defs_in(substitute(out, copies))
    for x in reversed(nest):
        var = copies[x.loop_var]
        assert isinstance(var, Var)
        out = For(var, x.min, x.extent, x.kind, out, x.thread_binding, x.annotations)
    return out


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
    spatial = [
        (iv, value)
        for iv, value in zip(block.iter_vars, me.iter_values, strict=True)
        if iv.iter_type != IterVar.CommReduce
    ]
    own = Var(f"v{factor.loop_var.name}", factor.loop_var.dtype)
    iters = [iv for iv, _ in spatial]
    iters.append(IterVar(Range.from_min_extent(factor.min, factor.extent), own, IterVar.CommReduce))
    place = list(held.indices)
    place.insert(axis, own)
    body = held.update(
        [(b, held.indices) for b in held.buffers], [BufferLoad(b, tuple(place)) for b in partials]
    )
    made = refresh_regions(
        Block(iters, (), (), block.name_hint, body, block.init, annotations=block.annotations, key=block.key)
    )
    needed: set[Var] = {factor.loop_var}
    for _, value in spatial:
        needed |= vars_used(value)
    predicate: PrimExpr = const(True, "bool")
    reducing = {x.loop_var for x in reduction_loops(me, nest)}
    first: dict[Var, PrimExpr] = {} if factor.loop_var in reducing else {factor.loop_var: factor.min}
    for condition in conjuncts(me.predicate):
        if not vars_used(condition) & reducing:
            condition = substitute(condition, first)
            needed |= vars_used(condition)
            predicate = logical_and(predicate, condition)
    out: Stmt = BlockRealize([*[value for _, value in spatial], factor.loop_var], predicate, made)
    keep = [x for x in nest if x.loop_var in needed and x is not factor]
    for x in (*[factor], *reversed(keep)):
        kind = x.kind if x is not factor else ForKind.SERIAL
        binding = x.thread_binding if x is not factor else None
        out = For(x.loop_var, x.min, x.extent, kind, out, binding, x.annotations)
    return out
