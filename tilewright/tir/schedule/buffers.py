"""Queries about buffers: lookup, the allocating block, replacement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.buffer import Buffer, MatchBufferRegion
from ...ir.expr import BufferLoad, Call
from ...ir.functor import pre_order, substitute
from ...ir.op import Op
from ...ir.stmt import Block, BlockRealize, BufferStore
from .primitive import Form, refuse

if TYPE_CHECKING:
    from .schedule import Schedule

_ADDRESS_OF = Op.get("tir.address_of")


def chosen_buffer(me: BlockRealize, which: Any) -> tuple[str, int, Buffer]:
    """The buffer that `("read" | "write", index)`, a name, or an index among the writes stands for."""
    block = me.block
    sides = {"read": block.reads, "write": block.writes}
    if isinstance(which, str):
        for side in ("write", "read"):
            for i, r in enumerate(sides[side]):
                if r.buffer.name == which:
                    return side, i, r.buffer
        known = ", ".join(dict.fromkeys(r.buffer.name for r in (*block.writes, *block.reads)))
        refuse(f"block {block.name_hint} uses no buffer named {which!r}; it uses {known or 'none'}", at=me)
    side, index = ("write", which) if isinstance(which, int) else _pair(which)
    if side not in sides or not isinstance(index, int) or not 0 <= index < len(sides[side]):
        refuse(
            f"the buffer is given as {which!r}, and block {block.name_hint} has "
            f"{len(block.reads)} reads and {len(block.writes)} writes",
            at=me,
            hint='give ("read", index), ("write", index) or the name of the buffer',
        )
    return side, index, sides[side][index].buffer


def _pair(which: Any) -> tuple[Any, Any]:
    return (which[0], which[1]) if isinstance(which, (tuple, list)) and len(which) == 2 else ("", None)


def named_buffer(sch: Schedule, block: Any, which: Any) -> Any:
    """A buffer given as itself, as the pair that names it in a trace; other forms as they are."""
    if not isinstance(which, Buffer):
        return which
    found = sch.realize(block).block
    for side, regions in (("write", found.writes), ("read", found.reads)):
        for i, r in enumerate(regions):
            if r.buffer is which:
                return side, i
    return which.name


def position_among(side: str) -> Form:
    """The form of a buffer given as itself: its position among the `reads` or the `writes` of the block."""

    def position(sch: Schedule, block: Any, which: Any) -> Any:
        found = sch.state.index.blocks.get(block.key)
        if isinstance(which, Buffer) and found is not None:
            for i, region in enumerate(getattr(found.block, side)):
                if region.buffer is which:
                    return i
        return which

    return position


def holder_of(sch: Schedule, buffer: Buffer) -> Block | None:
    """The block that allocates a buffer; None for a parameter of the function."""
    for r in sch.state.index.order:
        if any(b is buffer for b in r.block.alloc_buffers):
            return r.block
    return None


def check_plain_accesses(sch: Schedule, me: BlockRealize, buffer: Buffer, what: str) -> None:
    """Refuse if the buffer is used in a way that does not go through its indices, element by element."""
    name = buffer.name
    if buffer.strides:
        refuse(f"{name} has strides of its own, which {what} would lose", at=me)
    for n in pre_order(sch.state.func.body):
        if isinstance(n, MatchBufferRegion) and n.source.buffer is buffer:
            refuse(f"a region of {name} is seen as {n.buffer.name} by match_buffer", at=me)
        elif points_to(n, buffer):
            refuse(f"a pointer to {name} is passed on, so it is not known which elements are used", at=me)
        elif isinstance(n, (BufferLoad, BufferStore)):
            if n.buffer is buffer and any(i.dtype.is_vector for i in n.indices):
                refuse(f"{name} is used by vectors already", at=me)
            if n.buffer is not buffer and n.buffer.data is buffer.data:
                refuse(f"the memory of {name} is seen as {n.buffer.name} too", at=me)


def points_to(n: object, buffer: Buffer) -> bool:
    """Whether a node is the pointer of a buffer, or the address of one of its elements."""
    if isinstance(n, Call) and n.op is _ADDRESS_OF:
        return isinstance(n.args[0], BufferLoad) and n.args[0].buffer is buffer
    return n is buffer.data


def swap_buffer(sch: Schedule, old: Buffer, new: Buffer) -> None:
    """Put a buffer in the place of another in all of the program, where indices stay as they are."""
    sch.state.replace_func(substitute(sch.state.func, {}, {old: new}))
