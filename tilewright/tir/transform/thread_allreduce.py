"""How threads combine a value that each of them has: the seam for other ways than shared memory."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.buffer import Buffer, decl_buffer
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, PrimExpr, const, const_value
from ...ir.ops import add, less, mul
from ...ir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt, seq
from ..analysis.combiner import Combination, store_all
from ..analysis.regions import get_block_read_write_region

__all__ = ["Exchange", "exchange_in_shared_memory", "opaque_block", "with_regions"]


@dataclass(slots=True)
class Exchange:
    """The statements of an exchange, the memory that they need, and where all threads find the result."""

    values: list[PrimExpr]
    stmts: list[Stmt] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)


def exchange_in_shared_memory(
    held: Combination, given: list[BufferLoad], threads: list[For], others: list[For]
) -> Exchange:
    """Combine by halves: at each step the upper part of the threads hands over to the lower one.

        thread   0  1  2  3  4  5           shared[t] = value
                 │  │  └──│──│──┐           if t < 2: shared[t] += shared[t + 4]
                 0+4 1+5 2  3                if t < 2: shared[t] += shared[t + 2]
                 0+4+2  1+5+3               if t < 1: shared[t] += shared[t + 1]
                 all                        shared[0]

    `others` are the thread axes that are not reduced: each point of them has a row for itself.
    """
    sizes = [_size(x, held) for x in threads]
    rows = [_size(x, held) for x in others]
    count = 1
    at: PrimExpr = const(0)
    for x, size in zip(threads, sizes, strict=True):
        at = add(mul(at, const(size)), x.loop_var)
        count *= size
    if count == 1:
        return Exchange(list(given))
    buffers = [decl_buffer((*rows, count), b.dtype, f"{b.name}_shared", scope="shared") for b in held.buffers]
    row = [x.loop_var for x in others]
    here = [(b, (*row, at)) for b in buffers]
    stmts: list[Stmt] = [seq(*(BufferStore(b, v, i) for (b, i), v in zip(here, given, strict=True)))]
    step = 1 << (count - 1).bit_length() - 1
    active = count - step
    while step:
        upper = [BufferLoad(b, (*row, add(at, const(step)))) for b in buffers]
        mine = [BufferLoad(b, i) for b, i in here]
        body = store_all(here, held.reducer(mine, upper))
        stmts.append(IfThenElse(less(at, const(active)), body))
        step //= 2
        active = step
    name = held.buffers[0].name
    blocks: list[Stmt] = [opaque_block(f"{name}_exchange", s) for s in stmts]
    return Exchange([BufferLoad(b, (*row, const(0))) for b in buffers], blocks, buffers)


def _size(x: For, held: Combination) -> int:
    value = const_value(x.extent)
    if value is None:
        raise LoweringError(
            f"{held.buffers[0].name} is reduced by threads of loop `{x.loop_var.name}`, whose number is "
            f"{x.extent}: it must be a constant, since memory is laid out for it; split off a loop of "
            "constant extent, and bind that"
        )
    return int(value)


def opaque_block(name: str, body: Stmt) -> BlockRealize:
    """A block without iterators around a statement."""
    return BlockRealize([], True, with_regions(Block([], [], [], name, body)))


def with_regions(block: Block) -> Block:
    """The block with what it reads and writes declared."""
    reads, writes = get_block_read_write_region(block, None)
    return block.replace(reads=tuple(reads), writes=tuple(writes))
