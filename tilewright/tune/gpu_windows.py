"""Pooling and depthwise convolutions on GPUs: some neighbouring results for each thread, read from global memory.

for kh, kw in grid(3, 3):                       windows overlap, but elements that several threads read are in the
    local[0:8] = max(local[0:8], x[…, 0:8])     L1 cache
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..ir.errors import ScheduleError
from ..ir.expr import BufferLoad, Call, PrimExpr, const_value
from ..ir.op import Op
from ..ir.stmt import BufferStore
from .program.facts import Access, Facts, facts_of

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = ["depthwise", "inline_padding", "is_depthwise", "is_pooling", "is_contiguous", "pool_windows"]

_BYTES = 16  # bytes of a vector load
_MOST = 64  # elements of a window, at most
_WARP = 32


def is_pooling(f: Facts) -> bool:
    """Whether a block reduces a small window of one tensor for each result."""
    return len(f.reads) == 1 and math.prod(x.extent for x in f.reduce) <= _MOST


def is_depthwise(f: Facts) -> bool:
    """Whether a block is a depthwise convolution: each result is a small window of its own channel times weights, and
    neighbouring results read neighbouring elements."""
    data = _whole(f)
    if len(f.reads) != 2 or len(data) != 1 or math.prod(x.extent for x in f.reduce) > _MOST:
        return False
    near = data[0].stride(f.spatial[-1])
    return near is not None and 0 < near * data[0].bytes <= _BYTES


def _whole(f: Facts) -> list[Access]:
    """The reads whose address depends on every axis of the results."""
    return [r for r in f.reads if all(r.moves(x) for x in f.spatial if x.extent > 1)]


def is_contiguous(f: Facts) -> bool:
    """Whether a window is contiguous, as a whole image is: it is then reduced like a row."""
    return all(map(f.reads[0].in_line, f.reduce, f.reduce[1:]))


def pool_windows(g: GpuFunction, f: Facts) -> dict[str, object]:
    """Schedule a pooling: threads over the results, in vectors if they are contiguous."""
    inline_padding(g, f)
    f = facts_of(g.sch, f.rv)
    last = f.spatial[-1] if f.spatial else None
    if last is None or f.write is None:
        raise ScheduleError("there is no axis to share")
    contiguous = all(r.stride(last) == 1 for r in f.accesses)
    wide = (
        math.gcd(last.extent, _BYTES // max(r.bytes for r in f.accesses)) if contiguous and last.known else 1
    )
    return _shared(g, f, wide, 1)


def depthwise(g: GpuFunction, f: Facts) -> dict[str, object]:
    """Schedule a depthwise convolution. A thread has several results along the axis before the last, so that it reads
    weights and the overlap of windows once for all of them; fewer if there are few results.

        channels last     vectors of channels, neighbouring pixels of a row
        channels first    pixels of neighbouring rows; neighbouring pixels of a row belong to other threads
    """
    inline_padding(g, f)
    f = facts_of(g.sch, f.rv)
    last, gpu = f.spatial[-1], g.target.gpu
    (data,) = _whole(f)
    moved = [r for r in f.reads if r.moves(last)]
    wide = 1
    if all(r.stride(last) == 1 for r in moved) and not any(data.stride(k) == 1 for k in f.reduce):
        wide = math.gcd(last.extent, _BYTES // max(r.bytes for r in f.reads))
    count, busy = math.prod(x.extent for x in f.spatial), gpu.multiprocessors * gpu.windows.busy_threads
    while wide > 4 and count // wide < busy:
        wide //= 2
    before = f.spatial[-2].extent if len(f.spatial) > 1 else 1
    fits = [
        n
        for n in range(1, gpu.windows.results // wide + 1)
        if before % n == 0 and n <= gpu.windows.pixels and (n == 1 or count // (wide * n) >= busy)
    ]
    return _shared(g, f, wide, fits[-1])


def _shared(g: GpuFunction, f: Facts, wide: int, several: int) -> dict[str, object]:
    """Distribute the results over threads: `several` vectors of `wide` neighbours, along the axis before the last."""
    sch, consumer = g.sch, g.fusable_consumer(f)
    if len(sch.get_loops(f.rv)) != len(f.axes):
        raise ScheduleError("there is no axis to share")
    count = math.prod(x.extent for x in f.spatial) // (wide * several)
    threads = g.most if count <= g.most else math.gcd(count, g.most)
    if threads < _WARP:
        threads = max(n for n in range(1, g.most + 1) if count % n == 0)
    if threads < _WARP or not all(x.known for x in f.axes):
        raise ScheduleError("its results are not shared by whole warps")
    epilogue = consumer
    if epilogue is None:
        epilogue = sch.cache_write(f.rv, 0, "local")
    else:
        sch.set_scope(f.rv, 0, "local")
    loops = dict(zip([x.var for x in f.axes], sch.get_loops(f.rv), strict=True))
    reduces = [loops[x.var] for x in f.reduce]
    *around, last = (loops[x.var] for x in f.spatial)
    some = []
    if several > 1:
        pixel, own = sch.split(around[-1], [None, several])
        around, some = [*around[:-1], pixel], [own]
    sch.reorder(*around, last, *reduces, *some)
    results = g.fused([*around, last], f.rv)
    block, thread, vector = sch.split(results, [None, threads, wide])
    sch.reorder(block, thread, *reduces, *some, vector)
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.reverse_compute_at(epilogue, thread, preserve_unit_loops=True)
    start = sch.decompose_reduction(f.rv, reduces[0])
    for rv in (f.rv, start, epilogue):
        inner = sch.get_loops(rv)[2:]  # none if a single result is initialized
        if inner:
            sch.vectorize(inner[-1])
        for x in inner[:-1]:
            if rv is not f.rv or x not in reduces:
                sch.unroll(x)
    for x in reduces:
        sch.unroll(x)
    return {
        "threads": threads,
        "vector": wide,
        **({"register tile": f"{several} x {wide}"} if several > 1 else {}),
    }


def inline_padding(g: GpuFunction, f: Facts) -> None:
    """Inline the stages that only pad the operands of a block."""
    for producer in g.sch.get_producers(f.rv):
        body = g.sch.get(producer).body
        alone = len(g.sch.get_consumers(producer)) == 1 and producer.key not in g.done
        if alone and isinstance(body, BufferStore) and _pads(body.value):
            g.sch.compute_inline(producer)


def _pads(e: PrimExpr) -> bool:
    """Whether a value is padding: an element inside some bounds, and a constant outside."""
    if not isinstance(e, Call) or not isinstance(e.op, Op) or e.op.short_name != "if_then_else":
        return False
    return isinstance(e.args[1], BufferLoad) and const_value(e.args[2]) is not None
