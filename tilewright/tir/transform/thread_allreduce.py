"""Allreduce over threads: through shared memory, or within warps first; then over the blocks of a cluster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.buffer import Buffer, decl_buffer
from ...ir.errors import LoweringError
from ...ir.expr import BufferLoad, Call, PrimExpr, const, const_value
from ...ir.op import Op
from ...ir.ops import add, bitwise_xor, equal, floordiv, floormod, less, mul
from ...ir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, Stmt, seq
from ..analysis.combiner import Combination, store_all
from ..analysis.regions import get_block_read_write_region

_SHUFFLE = Op.get("tir.tvm_warp_shuffle")


@dataclass(slots=True)
class Exchange:
    """The statements of an exchange, the memory that they need, and the element with the result for all threads."""

    values: list[PrimExpr]
    stmts: list[Stmt] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)


def exchange_in_shared_memory(
    held: Combination, given: list[BufferLoad], threads: list[For], others: list[For]
) -> Exchange:
    """Tree reduction: at each step the upper half of the threads hands its values to the lower half.

        thread   0  1  2  3  4  5           shared[t] = value
                 │  │  └──│──│──┐           if t < 2: shared[t] += shared[t + 4]
                 0+4 1+5 2  3                if t < 2: shared[t] += shared[t + 2]
                 0+4+2  1+5+3               if t < 1: shared[t] += shared[t + 1]
                 all                        shared[0]

    `others` are the thread axes that are not reduced: each point of them has a row of its own.
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


def exchange_by_warps(
    held: Combination, given: list[BufferLoad], threads: list[For], others: list[For], warp: int
) -> Exchange | None:
    """Combine within warps by shuffles, and across warps through shared memory; None if the threads are not aligned to
    warps.

        lane     0    1    2    3           value += shuffle(value, lane ^ 2)
                 0+2  1+3  2+0  3+1         value += shuffle(value, lane ^ 1)
                 all  all  all  all         if lane == 0: shared[warp] = value
                                            value = shared[lane % warps], and the same again

    All threads have the result, after one barrier at most. The threads that are reduced must be neighbours:
    a power of two of them, or whole warps.
    """
    if len(threads) != 1 or not _is_first(threads[0]):
        return None
    count = _size(threads[0], held)
    whole = math.prod(_size(x, held) for x in others) * count
    warps = count // warp
    if not _lie_in_warps(count, whole, warp) or not all(map(_is_shuffled, held.buffers)):
        return None
    name, at = held.buffers[0].name, threads[0].loop_var
    zero = (const(0),)
    places = [(g.buffer, zero) for g in given]
    taken = [decl_buffer((1,), b.dtype, f"{b.name}_other", scope="local") for b in held.buffers]
    mask = const((1 << min(warp, whole)) - 1, "uint32")

    def combined(lanes: int) -> list[Stmt]:
        return _butterfly(held, given, taken, at, lanes, mask, min(warp, count), warp)

    stmts = combined(min(warp, count))
    if warps <= 1:
        return Exchange(list(given), [opaque_block(f"{name}_exchange", seq(*stmts))], taken)
    row = [x.loop_var for x in others]
    rows = [_size(x, held) for x in others]
    shared = [decl_buffer((*rows, warps), b.dtype, f"{b.name}_shared", scope="shared") for b in held.buffers]
    own = (*row, floordiv(at, const(warp)))
    kept = seq(*(BufferStore(b, g, own) for b, g in zip(shared, given, strict=True)))
    first = IfThenElse(equal(floormod(at, const(warp)), const(0)), kept)
    blocks: list[Stmt] = [opaque_block(f"{name}_exchange", s) for s in (seq(*stmts), first)]
    if warps & (warps - 1) == 0:
        stmts = _stored(places, [BufferLoad(b, (*row, floormod(at, const(warps)))) for b in shared])
        stmts += combined(warps)
    else:
        stmts = _stored(places, [BufferLoad(b, (*row, const(0))) for b in shared])
        for k in range(1, warps):
            stmts.append(held.update(places, [BufferLoad(b, (*row, const(k))) for b in shared]))
    blocks.append(opaque_block(f"{name}_exchange", seq(*stmts)))
    return Exchange(list(given), blocks, [*taken, *shared])


def exchange_in_cluster(
    held: Combination,
    given: list[BufferLoad],
    inner: Exchange,
    blocks: For,
    threads: list[For],
    others: list[For],
    warp: int,
) -> Exchange:
    """Combine the results of the blocks of a cluster after the exchange `inner` among the threads of each.

        block    0      1                   if t == 0: each[block] = value        # in memory of the cluster
                 └───┬──┘                   value = each[t % 2], and shuffles     # each thread reads one of them
                 0+1   0+1                  or  value = each[0]; value += each[1]

    All threads have the result. Each block keeps its row of `each` in its own shared memory, where others read it.
    With `warp`, threads are organized in warps and read one row each.
    """
    count, name, zero = _size(blocks, held), held.buffers[0].name, (const(0),)
    if count == 1:
        return inner
    rows = [_size(x, held) for x in others]
    row = [x.loop_var for x in others]
    each = [
        decl_buffer((count, *rows), b.dtype, f"{b.name}_each", scope="shared.cluster") for b in held.buffers
    ]
    here = seq(*(BufferStore(b, v, (blocks.loop_var, *row)) for b, v in zip(each, inner.values, strict=True)))
    for x in threads:
        here = IfThenElse(equal(x.loop_var, const(0)), here)
    places = [(g.buffer, zero) for g in given]

    def line(k: PrimExpr) -> list[BufferLoad]:
        return [BufferLoad(b, (k, *row)) for b in each]

    taken: list[Buffer] = []
    size = math.prod(_size(x, held) for x in threads)
    if warp and count & (count - 1) == 0 and count <= min(warp, size):
        at = threads[0].loop_var
        taken = [decl_buffer((1,), b.dtype, f"{b.name}_other", scope="local") for b in held.buffers]
        stmts = _stored(places, line(floormod(at, const(count))))
        mask = const((1 << min(warp, size * math.prod(rows))) - 1, "uint32")
        stmts += _butterfly(held, given, taken, at, count, mask, min(warp, size), warp)
    else:
        stmts = _stored(places, line(const(0)))
        stmts += [held.update(places, line(const(k))) for k in range(1, count)]
    made = [opaque_block(f"{name}_exchange", s) for s in (here, seq(*stmts))]
    return Exchange(list(given), [*inner.stmts, *made], [*inner.buffers, *each, *taken])


def _stored(places: Sequence[tuple[Buffer, tuple[PrimExpr, ...]]], values: list[BufferLoad]) -> list[Stmt]:
    return [BufferStore(b, v, at) for (b, at), v in zip(places, values, strict=True)]


def _butterfly(
    held: Combination,
    given: list[BufferLoad],
    taken: list[Buffer],
    at: PrimExpr,
    lanes: int,
    mask: PrimExpr,
    width: int,
    warp: int,
) -> list[Stmt]:
    """Butterfly reduction of groups of `lanes` neighbours by shuffles; all of them have the result."""
    zero = (const(0),)
    places = [(g.buffer, zero) for g in given]
    stmts: list[Stmt] = []
    step = lanes // 2
    while step:
        lane = bitwise_xor(at, const(step))
        for b, g in zip(taken, given, strict=True):
            sent = Call(b.dtype, _SHUFFLE, [mask, g, lane, const(width), const(warp)])
            stmts.append(BufferStore(b, sent, zero))
        stmts.append(held.update(places, [BufferLoad(b, zero) for b in taken]))
        step //= 2
    return stmts


def _lie_in_warps(count: int, whole: int, warp: int) -> bool:
    """Whether groups of `count` threads, out of `whole`, are parts of warps or consist of whole warps."""
    aligned = count % warp == 0 and count <= warp * warp if count > warp else count & (count - 1) == 0
    return count > 1 and aligned and (whole <= warp or whole % warp == 0)


def _is_shuffled(b: Buffer) -> bool:
    return b.dtype.lanes == 1 and b.dtype.element in _SHUFFLED


# What one shuffle hands over.
_SHUFFLED = (
    "float32",
    "float64",
    "float16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "int8",
    "uint8",
    "int16",
    "uint16",
)


def _is_first(x: For) -> bool:
    return x.thread_binding is not None and x.thread_binding.thread_tag == "threadIdx.x"


def _size(x: For, held: Combination) -> int:
    value = const_value(x.extent)
    if value is None:
        raise LoweringError(
            f"{held.buffers[0].name} is reduced across the threads of loop `{x.loop_var.name}`, whose number is "
            f"{x.extent}: it must be a constant, since memory is allocated for it; split off a loop of "
            "constant extent, and bind that"
        )
    return int(value)


def opaque_block(name: str, body: Stmt) -> BlockRealize:
    """A block without iterators around a statement."""
    return BlockRealize([], True, with_regions(Block([], [], [], name, body)))


def with_regions(block: Block) -> Block:
    """The block with its read and write regions declared."""
    reads, writes = get_block_read_write_region(block, None)
    return block.replace(reads=tuple(reads), writes=tuple(writes))
