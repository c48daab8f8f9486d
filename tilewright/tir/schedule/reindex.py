"""Primitives that stage data under other indices: reindex, reindex_cache_read/write, cache_inplace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ...arith import Analyzer, estimate_region_strict_bound
from ...ir.buffer import Buffer, BufferRegion, decl_buffer
from ...ir.equal import structural_equal
from ...ir.expr import BufferLoad, IterVar, PrimExpr, Range, const, const_value
from ...ir.functor import Mutator, pre_order, substitute, vars_used
from ...ir.ops import add, conjuncts, greater_equal, is_zero, less, logical_and, sub
from ...ir.stmt import Block, BlockRealize, BufferStore, Stmt
from .block_iters import block_map
from .blocks import (
    check_dominant,
    check_no_pointer,
    check_predicate,
    check_writes,
    consumers_of,
    declare_reads,
    enclosing_block,
    insert_beside,
    producers_of,
    top_level,
)
from .buffers import chosen_buffer, holder_of, named_buffer
from .cache import (
    _cached,
    _check_scope,
    _name,
    copy_nest,
    reads_under_condition,
    redirect,
    refuse_unknown,
)
from .dependence import recheck_uses
from .flow import may_read_unwritten
from .index_map import IndexMap
from .nests import spatial_nest
from .points import check_init_runs, check_self_initialized
from .primitive import BlockRV, primitive, refuse
from .regions import box, touched

if TYPE_CHECKING:
    from .schedule import Schedule


@primitive(buffer=named_buffer)
def reindex(sch: Schedule, block: BlockRV | str, buffer: Any) -> BlockRV:
    """Stage an operand or result of a block in a buffer whose indices are the block's iterators.

    for i, j in grid(4, 4):                       for i, j in grid(4, 4):
        B[j, i] = A[j, i] * 2             ->          A_reindex[i, j] = A[j, i]
                                                  for i, j in grid(4, 4):
                                                      B[j, i] = A_reindex[i, j] * 2
    """
    me = sch.realize(block)
    side, _, old = chosen_buffer(me, buffer)
    _check_alignment(me, side, old)
    indices = _one_access(me, old, side)
    used = [iv for iv in me.block.iter_vars if any(iv.var in vars_used(i) for i in indices)]
    shape = [iv.dom.extent for iv in used]
    for iv in used:
        if not is_zero(iv.dom.min):
            refuse(f"iterator `{iv.var.name}` of block {me.block.name_hint} does not start at 0", at=me)
    new = decl_buffer(shape, old.dtype, f"{old.name}_reindex", scope=old.scope())
    place: list[PrimExpr] = [iv.var for iv in used]
    return _stage(sch, me, side, old, new, indices, used, place)


@primitive(index_map=block_map)
def reindex_cache_read(
    sch: Schedule, block: BlockRV | str, read_buffer_index: int, storage_scope: str, index_map: Any
) -> BlockRV:
    """Copy an operand of a block into memory of `storage_scope`, at `index_map` of its iterators.

    for i, j in grid(4, 8):                       for i, j in grid(4, 8):
        B[i, j] = A[i, j] * 2             ->          A_shared[j, i] = A[i, j]     # lambda i, j: (j, i)
                                                  for i, j in grid(4, 8):
                                                      B[i, j] = A_shared[j, i] * 2
    """
    return _reindex_cache(sch, block, "read", read_buffer_index, storage_scope, index_map)


@primitive(index_map=block_map)
def reindex_cache_write(
    sch: Schedule, block: BlockRV | str, write_buffer_index: int, storage_scope: str, index_map: Any
) -> BlockRV:
    """Let a block write to memory of `storage_scope`, at `index_map` of its iterators, and copy the result from there.

    for i, j in grid(4, 8):                       for i, j in grid(4, 8):
        B[i, j] = A[i, j] * 2             ->          B_shared[j, i] = A[i, j] * 2     # lambda i, j: (j, i)
                                                  for i, j in grid(4, 8):
                                                      B[i, j] = B_shared[j, i]
    """
    return _reindex_cache(sch, block, "write", write_buffer_index, storage_scope, index_map)


def _reindex_cache(
    sch: Schedule, block: BlockRV | str, side: str, which: int, scope: str, index_map: IndexMap
) -> BlockRV:
    me = sch.realize(block)
    name, iters = me.block.name_hint, me.block.iter_vars
    _check_scope(scope, me)
    _, _, old = chosen_buffer(me, (side, which))
    _check_alignment(me, side, old)
    indices = _one_access(me, old, side)
    if len(index_map.initial_indices) != len(iters):
        refuse(
            f"the map takes {len(index_map.initial_indices)} indices, and block {name} has "
            f"{len(iters)} iterators",
            at=me,
        )
    place = index_map.map_indices([iv.var for iv in iters])
    used = [iv for iv in iters if any(iv.var in vars_used(e) for e in (*indices, *place))]
    doms = [iv.dom for iv in used]
    within = IndexMap([iv.var for iv in used], place)
    try:
        boxes = within.map_ranges(doms)
        shape = [r.min + r.extent for r in boxes]
        _, holes = within.non_surjective_inverse(doms)
    except ValueError as why:
        refuse(
            f"{why}, so elements of {old.name} would share a place",
            at=me,
            hint="let the map tell all iterators apart that choose the element",
        )
    if const_value(holes) != 0:
        refuse(
            f"the map leaves places of the copy empty (those where `{holes}`), "
            "which later steps would copy along",
            at=me,
            hint="choose factors that divide the iterators",
        )
    ana = Analyzer()
    for r in boxes:
        if not ana.can_prove(greater_equal(r.min, const(0, r.min.dtype))):
            refuse(f"the map gives indices from {ana.simplify(r.min)} on, and they start at 0", at=me)
    suffix = scope.replace(".", "_")
    new = decl_buffer([ana.simplify(d) for d in shape], old.dtype, f"{old.name}_{suffix}", scope=scope)
    return _stage(sch, me, side, old, new, indices, used, place)


def _check_alignment(me: BlockRealize, side: str, old: Buffer) -> None:
    """The strides asked for a buffer must not pass to another one whose dimensions mean something else."""
    if side == "write" and me.block.annotations.get("buffer_dim_align"):
        refuse(
            f"block {me.block.name_hint} has storage_align, which the copy of {old.name} would take on "
            "with other dimensions",
            at=me,
            hint="storage_align comes after",
        )


def _one_access(me: BlockRealize, buffer: Buffer, side: str) -> tuple[PrimExpr, ...]:
    """The indices of the buffer in a block, if they are everywhere the same points of its iterators."""
    block, name = me.block, me.block.name_hint
    if any(isinstance(n, Block) for n in pre_order(block.body)):
        refuse(f"block {name} holds blocks of its own", at=me, hint="reindex the block inside")
    kinds: tuple[type, ...] = (BufferLoad,) if side == "read" else (BufferLoad, BufferStore)
    found = [n for n in pre_order(block) if isinstance(n, kinds) and n.buffer is buffer]  # type: ignore[attr-defined]
    if not found:
        refuse(f"there is no plain access of {buffer.name} in block {name}", at=me)
    indices: tuple[PrimExpr, ...] = found[0].indices  # type: ignore[attr-defined]
    own = {iv.var for iv in block.iter_vars}
    for n in found:
        if not all(structural_equal(a, b) for a, b in zip(indices, n.indices, strict=True)):  # type: ignore[attr-defined]
            refuse(
                f"block {name} uses {buffer.name} at several places",
                at=me,
                hint="cache_read copies all that it reads",
            )
    inner = {m.loop_var for m in pre_order(block.body) if m.__class__.__name__ == "For"}  # type: ignore[attr-defined]
    for i in indices:
        if any(isinstance(m, BufferLoad) for m in pre_order(i)) or vars_used(i) & inner:
            refuse(f"block {name} uses {buffer.name} at `{i}`, which is not a point of its iterators", at=me)
    if side == "read" and any(w.buffer is buffer for w in block.writes):
        refuse(f"block {name} writes {buffer.name} too", at=me, hint="cache_inplace takes care of both")
    if not own:
        refuse(f"block {name} has no iterators", at=me)
    return indices


def _stage(
    sch: Schedule,
    me: BlockRealize,
    side: str,
    old: Buffer,
    new: Buffer,
    indices: Sequence[PrimExpr],
    used: list[IterVar],
    place: Sequence[PrimExpr],
) -> BlockRV:
    """Put `new` between a block and `old`: a copy over the iterators, and accesses redirected to it."""
    scope = enclosing_block(sch, me)
    assert scope is not None
    if side == "read":
        _check_read(sch, me, scope, old, indices, used)
    else:
        _check_write(sch, me, scope, old, indices, used)

    def copy(point: list[PrimExpr]) -> tuple[Stmt, list[BufferRegion], list[BufferRegion]]:
        table: dict[Any, Any] = dict(zip((iv.var for iv in used), point, strict=True))
        outer = [substitute(i, table) for i in indices]
        inner = [substitute(i, table) for i in place]
        ends = (old, outer), (new, inner)
        (source, at), (target, to) = ends if side == "read" else ends[::-1]
        store = BufferStore(target, BufferLoad(source, tuple(at)), to)
        return store, [BufferRegion.point(source, at)], [BufferRegion.point(target, to)]

    nest, made = spatial_nest([iv.dom for iv in used], _name(sch, new.name), copy)
    anchor = top_level(sch, me, scope)
    insert_beside(sch, anchor, nest, before=side == "read")
    found = sch.state.index.blocks[scope.key].block
    body = _Redirect(me.block.key, old, new, place).visit(found.body)
    sch.state.replace(found, found.replace(body=body, alloc_buffers=(*found.alloc_buffers, new)))
    if side == "read":
        declare_reads(sch, scope.key, old)
    else:
        recheck_uses(sch, new)
    return BlockRV(made.key, made.name_hint)


class _Redirect(Mutator):
    """Redirects the accesses of one block from one buffer to another, at one place."""

    def __init__(self, key: object, old: Buffer, new: Buffer, place: Sequence[PrimExpr]) -> None:
        self.key, self.old, self.new, self.place = key, old, new, tuple(place)
        self.on = False

    def visit_Block(self, n: Block) -> Block:
        self.on = n.key is self.key
        made: Block = n.map_children(self.visit)
        self.on = False
        return made

    def access(self, n: Any) -> Any:
        made = n.map_children(self.visit)
        if not self.on or made.buffer is not self.old:
            return made
        return made.replace(buffer=self.new, indices=self.place)

    visit_BufferLoad = visit_BufferStore = access

    def visit_BufferRegion(self, n: BufferRegion) -> BufferRegion:
        if not self.on:
            return n
        made: BufferRegion = n.map_children(self.visit)  # an index may be read from the buffer
        return BufferRegion.point(self.new, self.place) if n.buffer is self.old else made


def _loads(n: Stmt, buffer: Buffer) -> bool:
    return any(isinstance(m, BufferLoad) and m.buffer is buffer for m in pre_order(n))


def _check_read(
    sch: Schedule,
    me: BlockRealize,
    scope: Block,
    buffer: Buffer,
    indices: Sequence[PrimExpr],
    used: list[IterVar],
) -> None:
    """The copy runs before the block's nest, over all its points: the data must be there, and in bounds."""
    reducing = next((iv for iv in used if iv.is_reduction), None)
    init = me.block.init
    if reducing is not None and init is not None and _loads(init, buffer):
        refuse(
            f"the init of block {me.block.name_hint} reads {buffer.name}, for which reduction iterator "
            f"`{reducing.var.name}` has no value",
            at=me,
            hint="cache_read keeps the indices as they are",
        )
    here = top_level(sch, me, scope)
    for m in producers_of(sch, me, {buffer}):
        if top_level(sch, m, scope) is here:
            refuse(
                f"block {m.block.name_hint} makes {buffer.name} in the same loop nest, "
                "so it is not complete before",
                at=m,
                hint="do this before the blocks are moved together",
            )
    if holder_of(sch, buffer) is not None:  # a point that is left out may read what nobody made
        if reads_under_condition(me, buffer):
            read = touched(sch, here, [me], lambda b: b.reads, {buffer})[buffer]
            _check_filled(sch, me, scope, here, buffer, box(sch, here, buffer, read))
        if init is not None and not _loads(me.block.body, buffer):
            check_init_runs(sch, me, "the copy")
        check_predicate(sch, me, "the copy")
        _check_covered(sch, me, used, f"for which {buffer.name} may hold nothing")
    ana = Analyzer()
    ana.bind_ranges({iv.var: iv.dom for iv in me.block.iter_vars})
    for i, dim in zip(indices, buffer.shape, strict=True):
        if not ana.can_prove(logical_and(greater_equal(i, const(0, i.dtype)), less(i, dim))):
            refuse(
                f"`{i}` may lie outside of {buffer.name}, which block {me.block.name_hint} "
                "reads only under a condition",
                at=me,
            )


def _check_write(
    sch: Schedule,
    me: BlockRealize,
    scope: Block,
    buffer: Buffer,
    indices: Sequence[PrimExpr],
    used: list[IterVar],
) -> None:
    """The copy runs after the block's nest and writes every point: all must have been written, and once."""
    block, name = me.block, me.block.name_hint
    check_dominant(sch, me)
    check_predicate(sch, me, "the copy")
    for iv in used:
        if iv.iter_type != IterVar.DataPar:
            refuse(
                f"iterator `{iv.var.name}` of block {name}, which chooses the element, is not spatial", at=me
            )
    check_self_initialized(sch, me, buffer, "the copy")
    own = {x.loop_var for x in sch.state.index.loops_of(me)}
    if any(not vars_used(c) & own for c in conjuncts(me.predicate)):
        refuse(f"block {name} may not run at all, and the copy would write what it has not made", at=me)
    if not isinstance(block.body, BufferStore):
        refuse(f"block {name} does more than store one value", at=me)
    _check_covered(sch, me, used, f"which the copy would write to {buffer.name}")
    try:
        IndexMap([iv.var for iv in used], indices).non_surjective_inverse([iv.dom for iv in used])
    except ValueError as why:
        refuse(f"several points of block {name} write one element of {buffer.name}: {why}", at=me)
    here = top_level(sch, me, scope)
    for r in consumers_of(sch, me):
        if top_level(sch, r, scope) is here and any(x.buffer is buffer for x in r.block.reads):
            refuse(
                f"block {r.block.name_hint} reads {buffer.name} in the same loop nest, before the copy",
                at=r,
                hint="do this before the blocks are moved together",
            )


def _check_covered(sch: Schedule, me: BlockRealize, used: list[IterVar], why: str) -> None:
    """Refuse if the loops may leave out points of the iterators, which the copy runs over as well."""
    loops = {x.loop_var: x.dom for x in sch.state.index.loops_of(me)}
    values = [v for iv, v in me.bindings if iv in used]
    points = [Range.from_min_extent(v, const(1, v.dtype)) for v in values]
    found = estimate_region_strict_bound(points, loops, me.predicate)
    ana = sch.state.analyzer_at(me)
    for i, iv in enumerate(used):
        last = sub(add(iv.dom.min, iv.dom.extent), const(1, iv.dom.extent.dtype))
        if (
            found is None
            or not ana.can_prove_equal(found[i].min_value, iv.dom.min)
            or not ana.can_prove_equal(found[i].max_value, last)
        ):
            refuse(
                f"the loops may leave out values of iterator `{iv.var.name}` of block {me.block.name_hint}, "
                f"{why}",
                at=me,
                hint="do this before the blocks are moved",
            )


# ---------------------------------------------------------------------------- in place
@primitive(read_buffer_index=named_buffer)
def cache_inplace(
    sch: Schedule, block: BlockRV | str, read_buffer_index: int | str | Buffer, storage_scope: str
) -> list[BlockRV]:
    """Let a block that updates a buffer in place work on a copy in memory of `storage_scope`.

    for i in range(8):                        for i in range(8): A_local[i] = A[i]
        A[i] = A[i] + 1               ->      for i in range(8): A_local[i] = A_local[i] + 1
                                              for i in range(8): A[i] = A_local[i]
    """
    me = sch.realize(block)
    name = me.block.name_hint
    _check_scope(storage_scope, me)
    which = ("read", read_buffer_index) if isinstance(read_buffer_index, int) else read_buffer_index
    _, _, buffer = chosen_buffer(me, which)
    sides = [any(r.buffer is buffer for r in regions) for regions in (me.block.reads, me.block.writes)]
    if not all(sides):
        lacks = "write" if sides[0] else "read"
        refuse(
            f"block {name} does not {lacks} {buffer.name}",
            at=me,
            hint="cache_read and cache_write are for what is only read or only written",
        )
    check_no_pointer(me, buffer, "its accesses cannot be redirected to the copy")
    scope = enclosing_block(sch, me)
    assert scope is not None
    anchor = top_level(sch, me, scope)
    for other in sch.siblings(me):
        uses = (*other.block.reads, *other.block.writes)
        if (
            other is not me
            and any(r.buffer is buffer for r in uses)
            and top_level(sch, other, scope) is anchor
        ):
            refuse(
                f"block {other.block.name_hint} uses {buffer.name} in the same loop nest",
                at=other,
                hint=f"move block {other.block.name_hint} out of the nest first",
            )
    cached = _cached(buffer, storage_scope)
    all_used = touched(sch, anchor, [me], lambda b: (*b.reads, *b.writes), {buffer})[buffer]
    region = box(sch, anchor, buffer, all_used)
    _check_filled(sch, me, scope, anchor, buffer, region)
    before, load = copy_nest(sch, anchor, buffer, cached, region, _name(sch, cached.name))
    insert_beside(sch, anchor, before, before=True)
    after, store = copy_nest(sch, anchor, cached, buffer, region, _name(sch, cached.name))
    anchor = top_level(sch, sch.realize(block), sch.state.index.blocks[scope.key].block)
    insert_beside(sch, anchor, after, before=False)
    redirect(sch, scope, {me.block.key}, buffer, cached)
    declare_reads(sch, scope.key, buffer)
    check_writes(sch, scope.key, buffer, "the copy back")
    return [BlockRV(load.key, load.name_hint), BlockRV(store.key, store.name_hint)]


def _check_filled(
    sch: Schedule, me: BlockRealize, scope: Block, anchor: Stmt, buffer: Buffer, region: Sequence[Range]
) -> None:
    """Refuse if what is copied may never have been written: a block may write what it reads by itself."""
    if holder_of(sch, buffer) is None:
        return
    order = sch.state.index.order
    read = [(r.min, sub(add(r.min, r.extent), const(1, r.min.dtype))) for r in region]
    for m in producers_of(sch, me, {buffer}):
        if order.index(m) < order.index(me):
            place = top_level(sch, m, scope)
            if not may_read_unwritten(sch, sch.state.analyzer_at(anchor), place, [m], buffer, read):
                return
    refuse_unknown(buffer, anchor)
