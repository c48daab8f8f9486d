"""Queries about blocks: producers and consumers, their order, and whether a block may be moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...arith import Analyzer
from ...ir.buffer import Buffer, BufferRegion, MatchBufferRegion
from ...ir.expr import BufferLoad, IterVar, Range, Var, const
from ...ir.functor import pre_order
from ...ir.ops import add, conjunction, conjuncts, in_range, less_equal
from ...ir.stmt import (
    Allocate,
    AllocateConst,
    Block,
    BlockRealize,
    DeclBuffer,
    For,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
)
from ..analysis.regions import get_block_read_write_region
from .buffers import points_to
from .primitive import refuse
from .state import without_buffer

if TYPE_CHECKING:
    from .schedule import Schedule


def enclosing_block(sch: Schedule, n: Stmt) -> Block | None:
    """The block around a statement."""
    return sch.state.index.scope(n)


def reduction_vars(block: Block) -> set[Var]:
    return {iv.var for iv in block.iter_vars if iv.is_reduction}


def is_reduction(block: Block) -> bool:
    """Whether it combines into what it writes."""
    return block.init is not None or bool(reduction_vars(block))


def producers_of(sch: Schedule, me: BlockRealize, buffers: set[Buffer] | None = None) -> list[BlockRealize]:
    """The blocks of the scope that write buffers that this one reads."""
    wanted = {r.buffer for r in me.block.reads} if buffers is None else buffers
    index = sch.state.index
    scope = index.scope(me)
    return [r for r in index.writers(wanted) if r is not me and index.scope(r) is scope]


def consumers_of(sch: Schedule, me: BlockRealize) -> list[BlockRealize]:
    """The blocks of the scope that read buffers that this one writes."""
    index = sch.state.index
    scope = index.scope(me)
    readers = index.readers(w.buffer for w in me.block.writes)
    return [r for r in readers if r is not me and index.scope(r) is scope]


def scope_buffers(sch: Schedule, me: Stmt) -> set[Buffer]:
    """The buffers that live only inside the scope around a statement."""
    outer = enclosing_block(sch, me)
    return set(outer.alloc_buffers) if outer is not None else set()


def is_output(sch: Schedule, me: BlockRealize) -> bool:
    """Whether a buffer that the block writes is visible outside of its scope."""
    outer = enclosing_block(sch, me)
    inside = () if outer is None else outer.alloc_buffers
    return any(w.buffer not in inside for w in me.block.writes)


def check_dominant(sch: Schedule, me: BlockRealize) -> None:
    """Refuse if another block of the scope writes the same buffer."""
    made = {w.buffer for w in me.block.writes}
    for other in producers_of(sch, me, made):
        name = next(w.buffer.name for w in other.block.writes if w.buffer in made)
        refuse(
            f"block {other.block.name_hint} also writes {name}, so block {me.block.name_hint} "
            "alone does not define it and is no complete block",
            at=other,
            hint="apply this step before decompose_reduction or loop_partition splits the block",
        )


def check_movable(sch: Schedule, me: BlockRealize, what: str) -> None:
    """Refuse to move a block whose points may not be computed again or at another place."""
    block = me.block
    for iv in block.iter_vars:
        if iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
            refuse(f"iterator `{iv.var.name}` of block {block.name_hint} must run in order", at=me)
    check_dominant(sch, me)
    check_predicate(sch, me, what)
    if block.init is None:
        reads = {r.buffer for r in block.reads}
        for w in block.writes:
            if w.buffer in reads:
                refuse(
                    f"block {block.name_hint} reads and writes {w.buffer.name}, so {what} could change it "
                    "twice",
                    at=me,
                )


def check_predicate(sch: Schedule, me: BlockRealize, what: str) -> None:
    """Refuse if the predicate says more than that the iterators stay in their domains."""
    conditions = conjuncts(me.predicate)
    if not conditions:
        return
    ana = sch.state.analyzer_at(me)
    with ana.constraint_scope(conjunction(in_range(value, iv.dom) for iv, value in me.bindings)):
        for c in conditions:
            if not ana.can_prove(c):
                refuse(
                    f"block {me.block.name_hint} runs only where `{c}`, which {what} would forget",
                    at=me,
                )


def check_not_read_before(sch: Schedule, me: BlockRealize) -> None:
    """Refuse if an earlier block reads elements that the block overwrites, which must not happen sooner."""
    order = sch.state.index.order
    for r in consumers_of(sch, me):
        if order.index(r) < order.index(me):
            refuse(
                f"block {r.block.name_hint} reads what was there before block {me.block.name_hint} writes",
                at=r,
                hint=f"cache_read for block {r.block.name_hint} first, so that it reads a copy",
            )


def check_no_pointer(me: BlockRealize, buffer: Buffer, what: str) -> None:
    """Refuse if a block uses a buffer other than element by element."""
    for m in pre_order(me.block):
        if points_to(m, buffer) or (isinstance(m, MatchBufferRegion) and m.source.buffer is buffer):
            refuse(
                f"block {me.block.name_hint} uses {buffer.name} through a pointer, so {what}",
                at=me,
                hint="take this step before tensorize, or before the call that takes the pointer is made",
            )


def refresh_regions(block: Block) -> Block:
    """The block with its reads and writes as its body has them; those through pointers stay as they are declared."""
    reads, writes = get_block_read_write_region(block, None)
    found = {r.buffer for r in (*reads, *writes)}
    lost = {r.buffer for r in (*block.reads, *block.writes)} - found
    if lost:
        used = {b for n in pre_order(block.body) for b in lost if points_to(n, b)}
        reads = [*(r for r in block.reads if r.buffer in used), *reads]
        writes = [*(w for w in block.writes if w.buffer in used), *writes]
    return block.replace(
        reads=tuple(map(_whole_where_read, reads)), writes=tuple(map(_whole_where_read, writes))
    )


def _whole_where_read(region: BufferRegion) -> BufferRegion:
    """A region whose bounds are read from memory taken as all of the dimension."""
    ranges = []
    for r, dim in zip(region.region, region.buffer.shape, strict=True):
        read = any(isinstance(m, BufferLoad) for e in (r.min, r.extent) for m in pre_order(e))
        ranges.append(Range.from_min_extent(const(0, dim.dtype), dim) if read else r)
    return BufferRegion(region.buffer, tuple(ranges))


def declare_reads(sch: Schedule, key: object, buffer: Buffer, who: str = "the copy") -> None:
    """Extend the reads that a block and those around it declare to all that is read of a buffer inside it.

    A copy that is put into a block may read more than the block did before. Refuses if the additional elements may
    not be written yet when the block runs; a buffer that no block writes always has its elements.
    """
    made = any(w.buffer is buffer for r in sch.state.index.order for w in r.block.writes)
    while True:
        me = sch.state.index.blocks[key]
        if sch.state.index.parents[me] is None:
            return  # the root block holds everything
        block = me.block
        own = (*block.alloc_buffers, *(m.buffer for m in block.match_buffers))
        declared = next((r for r in block.reads if r.buffer is buffer), None)
        found = next((r for r in refresh_regions(block).reads if r.buffer is buffer), None)
        if buffer in own or found is None or (declared is not None and _holds(block, declared, found)):
            return
        if made:
            refuse(
                f"{who} would read more of {buffer.name} than block {block.name_hint} says it reads, "
                "which may not be written yet",
                at=me,
                hint="take this step before blockize, or copy what the block itself reads",
            )
        reads = [found if r is declared else r for r in block.reads]
        if declared is None:
            reads.append(found)
        sch.state.replace(block, block.replace(reads=tuple(reads)))
        outer = enclosing_block(sch, sch.state.index.blocks[key])
        assert outer is not None
        key = outer.key


def check_writes(sch: Schedule, key: object, buffer: Buffer, who: str) -> None:
    """Refuse if more of a buffer is written in a block now than the block, or one around it, declares."""
    me = sch.state.index.blocks[key]
    while sch.state.index.parents[me] is not None:
        block = me.block
        if buffer in (*block.alloc_buffers, *(m.buffer for m in block.match_buffers)):
            return
        declared = next((w for w in block.writes if w.buffer is buffer), None)
        found = next((w for w in refresh_regions(block).writes if w.buffer is buffer), None)
        if found is not None and (declared is None or not _holds(block, declared, found)):
            refuse(
                f"{who} would write more of {buffer.name} than block {block.name_hint} says it writes",
                at=me,
                hint="take this step before blockize",
            )
        outer = enclosing_block(sch, me)
        assert outer is not None
        me = sch.state.index.blocks[outer.key]


def _holds(block: Block, outer: BufferRegion, inner: BufferRegion) -> bool:
    """Whether a region provably contains another one, at every point of a block."""
    ana = Analyzer()
    ana.bind_ranges({iv.var: iv.dom for iv in block.iter_vars})
    return all(
        ana.can_prove(less_equal(a.min, b.min))
        and ana.can_prove(less_equal(add(b.min, b.extent), add(a.min, a.extent)))
        for a, b in zip(outer.region, inner.region, strict=True)
    )


def remove_stmt(sch: Schedule, me: BlockRealize, buffer: Buffer | None = None) -> None:
    """Remove a block from the program, with the loops that hold nothing else, and a buffer that it alone used."""
    index = sch.state.index
    n: Stmt = me
    parent = index.parents[n]
    while isinstance(parent, For):
        n, parent = parent, index.parents[parent]
    if isinstance(parent, SeqStmt):
        scope = index.scope(n)
        if len(parent.seq) > 2:
            sch.state.remove(n, buffer)
            return
        sch.state.replace(parent, seq(*[s for s in parent.seq if s is not n]))
        if buffer is not None and scope is not None:
            left = sch.state.index.blocks[scope.key].block
            sch.state.replace(left, without_buffer(left, buffer))
        return
    refuse(
        f"nothing would be left under the statement around block {me.block.name_hint}",
        at=n,
        hint="put what is around it into the block: a condition into the value that it stores",
    )


# What these define is not known outside of their bodies: a copy of it stands inside.
DEFINITIONS = (Allocate, AllocateConst, DeclBuffer, LetStmt)


def top_level(sch: Schedule, n: Stmt, under: Stmt) -> Stmt:
    """The ancestor of `n` (or itself) directly under the body of `under`, or under the definitions around that body."""
    index = sch.state.index
    body = under.body  # type: ignore[attr-defined]
    while isinstance(body, DEFINITIONS):
        body = body.body
    here: Stmt = n
    while True:
        parent = index.parents[here]
        if parent is None:
            raise AssertionError("the statement is not under the given one")
        if here is body or (isinstance(parent, SeqStmt) and parent is body):
            return here
        here = parent


def insert_beside(sch: Schedule, anchor: Stmt, new: Stmt, *, before: bool) -> None:
    """Put a statement before or after another one."""
    pair = (new, anchor) if before else (anchor, new)
    parent = sch.state.index.parents[anchor]
    if isinstance(parent, SeqStmt):
        out: list[Stmt] = []
        for s in parent.seq:
            out += pair if s is anchor else [s]
        sch.state.replace(parent, SeqStmt(tuple(out)))
    else:
        sch.state.replace(anchor, SeqStmt(pair))


def buffers_used(n: Stmt) -> set[Buffer]:
    """The buffers that the blocks in a statement declare to access."""
    out: set[Buffer] = set()
    for m in pre_order(n):
        if isinstance(m, BufferRegion):
            out.add(m.buffer)
    return out
