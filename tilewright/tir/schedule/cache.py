"""Primitives that stage data through other memory: cache_read, cache_write, set_scope, storage_align."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ...arith import int_set
from ...ir.buffer import Buffer, BufferRegion, decl_buffer
from ...ir.expr import LE, LT, BufferLoad, Call, IterVar, PrimExpr, Range, Var, const, const_value
from ...ir.functor import rewrite, substitute, vars_used
from ...ir.op import Op
from ...ir.ops import (
    add,
    conjuncts,
    greater_equal,
    is_one,
    less,
    less_equal,
    logical_and,
    max_of,
    min_of,
    sub,
)
from ...ir.printer_names import free_name
from ...ir.stmt import Block, BlockRealize, BufferStore, IfThenElse, SeqStmt, Stmt
from ...ir.types import PointerType, PrimType
from ..analysis.elements import Box, filled_box
from .blocks import (
    DEFINITIONS,
    check_dominant,
    check_no_pointer,
    consumers_of,
    declare_reads,
    enclosing_block,
    insert_beside,
    producers_of,
    scope_buffers,
)
from .buffers import holder_of, position_among, swap_buffer
from .dependence import recheck_uses
from .flow import covered, covers_domain, may_read_unwritten, must_write_box, shared_loop
from .nests import loop_nest
from .points import check_self_initialized
from .primitive import BlockRV, primitive, refuse
from .regions import box, last_of, touched, unclipped

if TYPE_CHECKING:
    from .schedule import Schedule

_IF_THEN_ELSE = Op.get("tir.if_then_else")

SCOPES = (
    "global",
    "shared",
    "shared.dyn",
    "local",
    "warp",
    "wmma",
    "wgmma",
    "texture",
    "m16n8k8",
    "vtcm",
    "global.",
)


def _region(
    regions: tuple[BufferRegion, ...], which: int | str | Buffer, me: BlockRealize, what: str
) -> Buffer:
    """One of the buffers that a block reads or writes, given by its position, its name or itself."""
    names = [r.buffer.name for r in regions]
    if isinstance(which, Buffer):
        if not any(r.buffer is which for r in regions):
            refuse(f"block {me.block.name_hint} does not {what} {which.name}", at=me)
        return which
    if isinstance(which, str):
        if which not in names:
            refuse(
                f"block {me.block.name_hint} does not {what} {which!r}; it {what}s {', '.join(names)}", at=me
            )
        return regions[names.index(which)].buffer
    if not 0 <= which < len(regions):
        refuse(
            f"block {me.block.name_hint} {what}s {len(regions)} regions, and {which} is none of them", at=me
        )
    return regions[which].buffer


def _check_scope(scope: str, me: Stmt) -> None:
    if not scope or not any(scope == s or scope.startswith(s + ".") for s in SCOPES):
        refuse(f"there is no memory named {scope!r}", at=me, hint=f"known are {', '.join(SCOPES[:5])}")


def copy_nest(
    sch: Schedule,
    place: Stmt,
    source: Buffer,
    target: Buffer,
    region: Sequence[Range],
    name: str,
    lasts: Sequence[PrimExpr | None] = (),
) -> tuple[Stmt, Block]:
    """A block that copies a region of a buffer, with its loops; no index goes beyond that of `lasts`."""
    _check_known_at(sch, place, source, [*(e for r in region for e in (r.min, r.extent)), *lasts])
    ana = sch.state.analyzer_at(place)
    loops = [Var(f"ax{i}", r.extent.dtype) for i, r in enumerate(region)]
    iters = [
        IterVar(Range.from_min_extent(const(0, d.dtype), d), Var(f"v{i}", d.dtype), IterVar.DataPar)
        for i, d in enumerate(source.shape)
    ]
    indices: list[PrimExpr] = [iv.var for iv in iters]
    block = Block(
        iters,
        [BufferRegion.point(source, indices)],
        [BufferRegion.point(target, indices)],
        name,
        BufferStore(target, BufferLoad(source, tuple(indices)), indices),
    )
    values = [add(r.min, v) for r, v in zip(region, loops, strict=True)]
    predicate: PrimExpr = const(True, "bool")
    for r, value, dim in zip(region, values, source.shape, strict=True):
        if not ana.can_prove(greater_equal(r.min, const(0, dim.dtype))):
            predicate = logical_and(predicate, greater_equal(value, const(0, dim.dtype)))
        if not ana.can_prove(less_equal(add(r.min, r.extent), dim)):
            predicate = logical_and(predicate, less(value, dim))
    for last, value, r in zip(lasts, values, region, strict=False):
        end = add(r.min, sub(r.extent, const(1, r.extent.dtype)))
        if last is not None and not ana.can_prove(less_equal(end, last)):
            predicate = logical_and(predicate, less_equal(value, last))
    return loop_nest(loops, [r.extent for r in region], BlockRealize(values, predicate, block)), block


def _check_known_at(sch: Schedule, place: Stmt, buffer: Buffer, bounds: list[PrimExpr | None]) -> None:
    """Refuse if the bounds of a copy use a loop that is not around it: a blockized block may use a loop directly."""
    around = sch.state.index.ancestors(place)
    used = {v for e in bounds if e is not None for v in vars_used(e)}
    for v in sorted(used, key=lambda v: v.name):
        loop = sch.state.index.loops.get(v)
        if loop is not None and loop not in around:
            refuse(
                f"which elements of {buffer.name} are copied depends on loop `{v.name}`, which is not around the copy",
                at=loop,
                hint="bind the loop to an iterator of the block first",
            )


def _name(sch: Schedule, base: str) -> str:
    """A block name that is not taken."""
    return free_name(base, {r.block.name_hint for r in sch.state.index.order})


def _cached(buffer: Buffer, scope: str) -> Buffer:
    suffix = scope.replace(".", "_")
    return decl_buffer(buffer.shape, buffer.dtype, f"{buffer.name}_{suffix}", scope=scope)


@primitive
def cache_read(
    sch: Schedule,
    block: BlockRV | str,
    read_buffer_index: int | str | Buffer,
    storage_scope: str,
    consumer_blocks: Sequence[BlockRV | str] | None = None,
) -> BlockRV:
    """Copy a buffer that a block reads into memory of `storage_scope`, and let the block read the copy.

    for i in range(8):                        for i in range(8):
        C[i] = A[i] + 1               ->          A_shared[i] = A[i]
                                              for i in range(8):
                                                  C[i] = A_shared[i] + 1

    `read_buffer_index` is the position of the buffer among the block's reads, its name, or the buffer itself.
    `consumer_blocks` are the blocks that read the copy, `block` alone by default. Returns the copying block.
    """
    me = sch.realize(block)
    _check_scope(storage_scope, me)
    buffer = _region(me.block.reads, read_buffer_index, me, "read")
    order = {r: i for i, r in enumerate(sch.state.index.order)}
    chosen = sorted([sch.realize(b) for b in consumer_blocks or ()] or [me], key=order.__getitem__)
    for r in chosen:
        _check_reader(sch, r, me, buffer)
    makers = []
    for maker in producers_of(sch, chosen[0], {buffer}):  # the block itself may be one of them
        if order[maker] < order[chosen[0]]:
            makers.append(maker)
        elif order[maker] < order[chosen[-1]]:
            refuse(
                f"block {maker.block.name_hint} writes {buffer.name} between its readers, "
                "so one copy does not do for all of them",
                at=maker,
                hint="take two copies, with consumer_blocks: one for the readers before it, one for those after",
            )
    cached = _cached(buffer, storage_scope)
    scope = enclosing_block(sch, me)
    assert scope is not None
    anchor, region, lasts = _copied(sch, buffer, makers, chosen)
    _check_fresh(sch, anchor, buffer, chosen)
    nest, copy = copy_nest(sch, anchor, buffer, cached, region, _name(sch, cached.name), lasts)
    insert_beside(sch, anchor, nest, before=not makers)
    redirect(sch, scope, {r.block.key for r in chosen}, buffer, cached)
    declare_reads(sch, scope.key, buffer)
    if makers:
        recheck_uses(sch, buffer)  # the copy may run in iterations that the readers leave out
    return BlockRV(copy.key, copy.name_hint)


def _check_fresh(sch: Schedule, anchor: Stmt, buffer: Buffer, readers: list[BlockRealize]) -> None:
    """Refuse if a block writes the buffer again in a loop in which it is read, but not copied."""
    index = sch.state.index
    copied_in = set(index.ancestors(anchor))
    for w in producers_of(sch, readers[0], {buffer}):
        for r in readers:
            loop = shared_loop(sch, w, r)
            if loop is not None and loop not in copied_in:
                refuse(
                    f"block {w.block.name_hint} writes {buffer.name} in loop `{loop.loop_var.name}`, in which "
                    f"block {r.block.name_hint} reads it, and the copy is outside that loop",
                    at=w,
                    hint="cache_inplace is for what is read and written in turn; or move the writer out of the loop",
                )


def _check_reader(sch: Schedule, r: BlockRealize, me: BlockRealize, buffer: Buffer) -> None:
    name = r.block.name_hint
    if enclosing_block(sch, r) is not enclosing_block(sch, me):
        refuse(f"block {name} is not in the scope of block {me.block.name_hint}", at=r)
    if not any(x.buffer is buffer for x in r.block.reads):
        refuse(f"block {name} does not read {buffer.name}", at=r)
    if any(w.buffer is buffer for w in r.block.writes):
        refuse(
            f"block {name} writes {buffer.name} too, and the copy would take its writes",
            at=r,
            hint="cache_inplace copies it before and back after",
        )
    check_no_pointer(r, buffer, "its reads cannot be redirected to the copy")


def _copied(
    sch: Schedule, buffer: Buffer, makers: list[BlockRealize], readers: list[BlockRealize]
) -> tuple[Stmt, list[Range], list[PrimExpr | None]]:
    """The statement beside which a buffer is copied, the region of the copy, and its last elements.

    A buffer is copied after the last block that writes it, in as few loops as keep the copy before its readers; a
    buffer that no block writes is copied before all of its readers.
    """
    index = sch.state.index
    anchor = _branch(sch, makers[-1], readers) if makers else _branch(sch, readers[0], ())
    around = index.parents[anchor]
    assert around is not None
    given = buffer not in scope_buffers(sch, readers[0])  # it may hold what none of the blocks has made
    if not given and not makers:
        refuse_unknown(buffer, anchor)
    if given and holder_of(sch, buffer) is not None and not all(_reads_box(r, buffer) for r in readers):
        refuse_unknown(buffer, anchor)  # memory of a block around
    if not all(around in index.ancestors(r) for r in readers):
        # Some read it when the loops around are done: the copy grows as the buffer does.
        if given:
            refuse_unknown(buffer, anchor)
        for m in makers:
            if around not in index.ancestors(m):
                refuse(
                    f"block {m.block.name_hint} makes a part of {buffer.name} elsewhere, "
                    "which would not be copied",
                    at=m,
                    hint=f"cache_write block {m.block.name_hint}, or bring both makers under one loop",
                )
        return _of_made(sch, anchor, around, makers, buffer)
    sets = unclipped(touched(sch, around, readers, lambda b: b.reads, {buffer})[buffer], buffer)
    region = box(sch, anchor, buffer, sets)
    lasts = last_of(sets, region)
    shared = [m for m in makers if shared_loop(sch, m, around) is not None]
    if shared and not _is_made(sch, anchor, around, shared, buffer, region, lasts):
        if given:
            return anchor, region, lasts  # all of it holds something
        if len(shared) < len(makers) or not all(reads_under_condition(r, buffer) for r in readers):
            refuse_unknown(buffer, anchor)
        return _of_made(sch, anchor, around, shared, buffer)
    if (
        len(makers) == 1
        and not given
        and not shared
        and not _is_made(sch, anchor, around, makers, buffer, region, lasts)
    ):
        whole = _of_made(sch, anchor, around, makers, buffer)
        if _is_made(sch, anchor, around, makers, buffer, *whole[1:]):
            return whole  # the readers' box has more than was ever made
        if not covers_domain(sch, makers[0]):
            refuse_unknown(buffer, anchor)
    if len(makers) > 1 and not given and not shared:
        if not any(_is_made(sch, anchor, around, [m], buffer, region, lasts) for m in makers):
            refuse_unknown(buffer, anchor)
    return anchor, region, lasts


def _reads_box(reader: BlockRealize, buffer: Buffer) -> bool:
    """Whether a block provably reads every element of the bounding box of its reads of a buffer."""
    cuts = all(isinstance(c, (LT, LE)) for c in conjuncts(reader.predicate))
    doms = {iv.var: iv.dom for iv in reader.block.iter_vars}
    for r in reader.block.reads:
        if r.buffer is buffer:
            used = set().union(*(vars_used(x.min) for x in r.region))
            one = const(1, r.region[0].extent.dtype)
            ranges = [(x.min, x.extent if const_value(x.extent) else one) for x in r.region]
            if filled_box(ranges, {v: d for v, d in doms.items() if v in used}, const(True, "bool")) is None:
                return False
    return cuts and not reads_under_condition(reader.replace(predicate=const(True, "bool")), buffer)


def reads_under_condition(reader: BlockRealize, buffer: Buffer) -> bool:
    """Whether a block reads a buffer only where a condition holds, so that its region may be more than is read."""
    if not is_one(reader.predicate):
        return True
    stack: list[Any] = [reader.block.body, reader.block.init]
    while stack:
        n = stack.pop()
        if n is None or isinstance(n, IfThenElse) or (isinstance(n, Call) and n.op is _IF_THEN_ELSE):
            continue
        if isinstance(n, BufferLoad) and n.buffer is buffer:
            return False
        stack.extend(n.children())
    return True


def _is_made(
    sch: Schedule,
    anchor: Stmt,
    around: Stmt,
    makers: list[BlockRealize],
    buffer: Buffer,
    region: Sequence[Range],
    lasts: Sequence[PrimExpr | None],
) -> bool:
    """Whether the whole region has been written where it is copied; elements outside the buffer do not count."""
    ana = sch.state.analyzer_at(anchor)
    return not may_read_unwritten(sch, ana, around, makers, buffer, _read(buffer, region, lasts))


def _read(buffer: Buffer, region: Sequence[Range], lasts: Sequence[PrimExpr | None]) -> Box:
    """The elements that a copy of a region reads; elements outside the buffer do not count."""
    read: Box = []
    for r, last, dim in zip(region, lasts, buffer.shape, strict=True):
        one = const(1, dim.dtype)
        end = sub(add(r.min, r.extent), one) if last is None else last
        read.append((max_of(r.min, const(0, dim.dtype)), min_of(end, sub(dim, one))))
    return read


def refuse_unknown(buffer: Buffer, anchor: Stmt) -> NoReturn:
    refuse(
        f"it is not known which elements of {buffer.name} have been written where they would be copied",
        at=anchor,
        hint=f"copy {buffer.name} where all of it has been written: for a reader behind the loops that make it",
    )


def _of_made(
    sch: Schedule, anchor: Stmt, around: Stmt, makers: list[BlockRealize], buffer: Buffer
) -> tuple[Stmt, list[Range], list[PrimExpr | None]]:
    """The region of a buffer that blocks have written before a statement, which must be known exactly."""
    ana = sch.state.analyzer_at(anchor)
    regions = [(m, w) for m in makers for w in m.block.writes if w.buffer is buffer]
    boxes = [must_write_box(sch, around, m, w) for m, w in regions]
    found = boxes[0]
    if found is None or any(not covered(ana, found, b) or not covered(ana, b, found) for b in boxes):
        refuse_unknown(buffer, anchor)
    sets = unclipped([int_set.IntervalSet(low, high) for low, high in found], buffer)
    region = box(sch, anchor, buffer, sets, from_first=True)
    return anchor, region, last_of(sets, region)


@primitive
def cache_write(
    sch: Schedule,
    block: BlockRV | str,
    write_buffer_index: int | str | Buffer,
    storage_scope: str,
    consumer_blocks: Sequence[BlockRV | str] | None = None,
) -> BlockRV:
    """Let a block write to memory of `storage_scope`, and copy the result from there.

    for i in range(8):                        for i in range(8):
        C[i] = A[i] + 1               ->          C_local[i] = A[i] + 1
                                              for i in range(8):
                                                  C[i] = C_local[i]

    `write_buffer_index` is the position of the buffer among the block's writes, its name, or the buffer itself.
    `consumer_blocks` are blocks that read the memory of `storage_scope` too. Returns the copying block.
    """
    me = sch.realize(block)
    _check_scope(storage_scope, me)
    buffer = _region(me.block.writes, write_buffer_index, me, "write")
    check_dominant(sch, me)
    check_self_initialized(sch, me, buffer, "the other memory")
    keys = {me.block.key}
    for r in map(sch.realize, consumer_blocks or ()):
        _check_reader(sch, r, me, buffer)
        _check_reads_written(sch, r, me, buffer)
        keys.add(r.block.key)
    check_no_pointer(me, buffer, "its writes cannot be redirected to other memory")
    cached = _cached(buffer, storage_scope)
    scope = enclosing_block(sch, me)
    assert scope is not None
    anchor = _branch(sch, me, consumers_of(sch, me))
    _, region, lasts = _of_made(sch, anchor, anchor, [me], buffer)
    nest, copy = copy_nest(sch, anchor, cached, buffer, region, _name(sch, cached.name), lasts)
    insert_beside(sch, anchor, nest, before=False)
    redirect(sch, scope, keys, buffer, cached)
    return BlockRV(copy.key, copy.name_hint)


def _check_reads_written(sch: Schedule, r: BlockRealize, me: BlockRealize, buffer: Buffer) -> None:
    """Refuse if a block, given the memory that another one writes to, would find less in it than it reads."""
    order, name = sch.state.index.order, r.block.name_hint
    if order.index(r) < order.index(me):
        refuse(
            f"block {name} reads {buffer.name} before block {me.block.name_hint} writes it, so the other memory "
            "does not hold it yet",
            at=r,
            hint=f"leave block {name} out of consumer_blocks: it reads {buffer.name} itself",
        )
    anchor = _branch(sch, me, [r])
    around = sch.state.index.parents[anchor]
    assert around is not None
    sets = unclipped(touched(sch, around, [r], lambda b: b.reads, {buffer})[buffer], buffer)
    region = box(sch, anchor, buffer, sets)
    if not _is_made(sch, anchor, around, [me], buffer, region, last_of(sets, region)):
        refuse(
            f"block {name} may read elements of {buffer.name} that block {me.block.name_hint} does not write, and the "
            "other memory does not hold these",
            at=r,
            hint=f"leave block {name} out of consumer_blocks: it reads {buffer.name} itself",
        )


def _branch(sch: Schedule, n: BlockRealize, others: Sequence[BlockRealize]) -> Stmt:
    """The largest statement around a block that holds none of the others: a place beside it sees them all."""
    index = sch.state.index
    held = {a for other in others for a in (other, *index.ancestors(other))}
    here: Stmt = n
    while True:
        parent = index.parents[here]
        if parent is None or isinstance(parent, (Block, *DEFINITIONS)):
            return here
        if parent in held and isinstance(parent, SeqStmt):
            return here
        if isinstance(parent, SeqStmt) and isinstance(index.parents[parent], (Block, *DEFINITIONS)):
            return here
        here = parent


def redirect(sch: Schedule, scope: Block, keys: Container[object], old: Buffer, new: Buffer) -> None:
    """Allocate a buffer in a scope, and let blocks access it in place of another one at the same indices."""
    held = sch.state.index.blocks[scope.key].block
    body = rewrite(held.body, {Block: lambda n: substitute(n, {}, {old: new}) if n.key in keys else None})
    sch.state.replace(held, held.replace(body=body, alloc_buffers=(*held.alloc_buffers, new)))
    recheck_uses(sch, new)


@primitive(buffer_index=position_among("writes"))
def set_scope(
    sch: Schedule, block: BlockRV | str, buffer_index: int | str | Buffer, storage_scope: str
) -> None:
    """Allocate the buffer that a block writes in memory of `storage_scope`.

    B = alloc_buffer((8,))        ->        B = alloc_buffer((8,), scope="shared")
    """
    me = sch.realize(block)
    _check_scope(storage_scope, me)
    buffer = _region(me.block.writes, buffer_index, me, "write")
    if buffer.scope() == storage_scope:
        return
    data = Var(buffer.data.name, PointerType(PrimType(buffer.dtype), storage_scope))
    _check_allocated(sch, me, buffer)
    swap_buffer(sch, buffer, buffer.replace(data=data))


@primitive
def storage_align(
    sch: Schedule, block: BlockRV | str, buffer_index: int, axis: int, factor: int, offset: int
) -> None:
    """Pad the stride of dimension `axis` to k * `factor` + `offset` elements, to avoid bank conflicts.

    B = alloc_buffer((8, 32))     ->        the stride of rows of B is 33 (axis=0, factor=32, offset=1)

    `buffer_index` is the position of the buffer among the block's writes.
    """
    me = sch.realize(block)
    buffer = _region(me.block.writes, buffer_index, me, "write")
    _check_allocated(sch, me, buffer)
    ndim = len(buffer.shape)
    where = axis + ndim if axis < 0 else axis
    if not 0 <= where < ndim - 1:
        refuse(f"axis={axis}: only the stride of a dimension before the last of {ndim} can be changed", at=me)
    if factor < 1:
        refuse(f"factor={factor}: it must be at least 1", at=me)
    held = dict(me.block.annotations)
    entries = [tuple(e) for e in held.get("buffer_dim_align", [])]
    entries = [e for e in entries if e[:2] != (buffer_index, where)]
    held["buffer_dim_align"] = [*map(list, entries), [buffer_index, where, factor, offset]]
    sch.state.replace(me.block, me.block.replace(annotations=held))


def _check_allocated(sch: Schedule, me: BlockRealize, buffer: Buffer) -> None:
    if holder_of(sch, buffer) is None:
        refuse(
            f"{buffer.name} is a parameter of the function: who calls it decides where it lies",
            at=me,
            hint="cache_read or cache_write it first, and take the copy",
        )
