"""What primitives ask about blocks: who makes what, in which order, and whether a block may be moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...ir.buffer import Buffer, BufferRegion
from ...ir.expr import IterVar, PrimExpr, Var, const
from ...ir.functor import pre_order
from ...ir.ops import add, conjuncts, greater_equal, less, logical_and
from ...ir.stmt import Block, BlockRealize, For, SeqStmt, Stmt, seq
from ..analysis.regions import get_block_read_write_region
from .primitive import refuse

if TYPE_CHECKING:
    from .schedule import Schedule

__all__ = [
    "check_dominant",
    "check_movable",
    "consumers_of",
    "enclosing_block",
    "is_output",
    "is_reduction",
    "producers_of",
    "refresh_regions",
    "remove_stmt",
    "reduction_vars",
    "scope_buffers",
]


def enclosing_block(sch: Schedule, n: Stmt) -> Block | None:
    """The block around a statement."""
    for up in sch.state.index.ancestors(n):
        if isinstance(up, Block):
            return up
    return None


def reduction_vars(block: Block) -> set[Var]:
    return {iv.var for iv in block.iter_vars if iv.iter_type == IterVar.CommReduce}


def is_reduction(block: Block) -> bool:
    """Whether it combines into what it writes."""
    return block.init is not None or bool(reduction_vars(block))


def producers_of(sch: Schedule, me: BlockRealize, buffers: set[Buffer] | None = None) -> list[BlockRealize]:
    """The blocks of the scope that write what this one reads."""
    wanted = {r.buffer for r in me.block.reads} if buffers is None else buffers
    others = [r for r in sch.siblings(me) if r is not me]
    return [r for r in others if any(w.buffer in wanted for w in r.block.writes)]


def consumers_of(sch: Schedule, me: BlockRealize) -> list[BlockRealize]:
    """The blocks of the scope that read what this one writes."""
    made = {w.buffer for w in me.block.writes}
    others = [r for r in sch.siblings(me) if r is not me]
    return [r for r in others if any(x.buffer in made for x in r.block.reads)]


def scope_buffers(sch: Schedule, me: Stmt) -> set[Buffer]:
    """The buffers that live only inside the scope around a statement."""
    outer = enclosing_block(sch, me)
    return set(outer.alloc_buffers) if outer is not None else set()


def is_output(sch: Schedule, me: BlockRealize) -> bool:
    """Whether somebody outside the scope may read what the block writes."""
    inside = scope_buffers(sch, me)
    return any(w.buffer not in inside for w in me.block.writes)


def check_dominant(sch: Schedule, me: BlockRealize) -> None:
    """Refuse if another block of the scope writes the same buffer."""
    made = {w.buffer for w in me.block.writes}
    for other in sch.siblings(me):
        if other is not me and any(w.buffer in made for w in other.block.writes):
            name = next(w.buffer.name for w in other.block.writes if w.buffer in made)
            refuse(
                f"block {other.block.name_hint} writes {name} too, so block {me.block.name_hint} "
                "alone does not say what it holds",
                at=other,
            )


def check_movable(sch: Schedule, me: BlockRealize, what: str) -> None:
    """Refuse to move a block whose points may not be computed anew or elsewhere."""
    block = me.block
    for iv in block.iter_vars:
        if iv.iter_type not in (IterVar.DataPar, IterVar.CommReduce):
            refuse(f"iterator `{iv.var.name}` of block {block.name_hint} must run in order", at=me)
    check_dominant(sch, me)
    _check_predicate(sch, me, what)
    if block.init is None and not reduction_vars(block):
        reads = {r.buffer for r in block.reads}
        for w in block.writes:
            if w.buffer in reads:
                refuse(
                    f"block {block.name_hint} reads and writes {w.buffer.name}, so {what} could change it "
                    "twice",
                    at=me,
                )


def _check_predicate(sch: Schedule, me: BlockRealize, what: str) -> None:
    """Refuse if the predicate says more than that the iterators stay in their domains."""
    conditions = conjuncts(me.predicate)
    if not conditions:
        return
    ana = sch.state.analyzer_at(me)
    inside: PrimExpr = const(True, "bool")
    for iv, value in zip(me.block.iter_vars, me.iter_values, strict=True):
        inside = logical_and(inside, greater_equal(value, iv.dom.min))
        inside = logical_and(inside, less(value, add(iv.dom.min, iv.dom.extent)))
    with ana.constraint_scope(inside):
        for c in conditions:
            if not ana.can_prove(c):
                refuse(
                    f"block {me.block.name_hint} runs only where `{c}`, which {what} would forget",
                    at=me,
                )


def refresh_regions(block: Block) -> Block:
    """The block with its reads and writes as its body has them."""
    reads, writes = get_block_read_write_region(block, None)
    return block.replace(reads=tuple(reads), writes=tuple(writes))


def remove_stmt(sch: Schedule, n: Stmt) -> None:
    """Take a statement out of the program, with the loops that hold nothing else."""
    index = sch.state.index
    parent = index.parents[n]
    while isinstance(parent, For):
        n, parent = parent, index.parents[parent]
    if isinstance(parent, SeqStmt):
        rest = seq(*[s for s in parent.seq if s is not n])
        sch.state.replace(parent, rest)
        return
    refuse("nothing would be left in its scope", at=n)


def top_level(sch: Schedule, n: Stmt, under: Stmt) -> Stmt:
    """The ancestor of `n` (or itself) that stands directly under `under`'s body."""
    index = sch.state.index
    body = under.body  # type: ignore[attr-defined]
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
    """The buffers that a statement's blocks say they touch."""
    out: set[Buffer] = set()
    for m in pre_order(n):
        if isinstance(m, BufferRegion):
            out.add(m.buffer)
    return out
