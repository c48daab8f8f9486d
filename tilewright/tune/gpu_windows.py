"""Pooling on GPUs: some neighbouring results for each thread, read where they are.

for kh, kw in grid(3, 3):                       windows overlap, but what one thread reads again its neighbours
    local[0:8] = max(local[0:8], x[…, 0:8])     have in the first cache
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..ir.errors import ScheduleError
from ..ir.expr import BufferLoad, Call, PrimExpr, const_value
from ..ir.op import Op
from ..ir.stmt import BufferStore
from .facts import Facts, facts_of

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = ["inline_padding", "is_pooling", "pool_windows"]

_BYTES = 16  # that a thread reads at once
_MOST = 64  # elements of a window
_WARP = 32


def is_pooling(f: Facts) -> bool:
    """Whether a block combines few elements of one tensor for each result."""
    return len(f.reads) == 1 and math.prod(x.extent for x in f.reduce) <= _MOST


def pool_windows(g: GpuFunction, f: Facts) -> dict[str, object]:
    """Threads over the results, vectors along those that lie in line."""
    sch, consumer = g.sch, g.fusable_consumer(f)
    inline_padding(g, f)
    f = facts_of(sch, f.rv)
    last = f.spatial[-1] if f.spatial else None
    if last is None or f.write is None or len(sch.get_loops(f.rv)) != len(f.axes):
        raise ScheduleError("there is no axis to share")
    in_line = all(r.stride(last) == 1 for r in f.accesses)
    wide = math.gcd(last.extent, _BYTES // max(r.bytes for r in f.accesses)) if in_line and last.known else 1
    count = math.prod(x.extent for x in f.spatial) // wide
    threads = g.most if count <= g.most else math.gcd(count, g.most)
    if threads < _WARP or not all(x.known for x in f.axes):
        raise ScheduleError("its results are not shared by whole warps")
    tail = consumer
    if tail is None:
        tail = sch.cache_write(f.rv, 0, "local")
    else:
        sch.set_scope(f.rv, 0, "local")
    loops = dict(zip([x.var for x in f.axes], sch.get_loops(f.rv), strict=True))
    reduces = [loops[x.var] for x in f.reduce]
    sch.reorder(*[loops[x.var] for x in f.spatial], *reduces)
    results = g.fused([loops[x.var] for x in f.spatial], f.rv)
    block, thread, vector = sch.split(results, [None, threads, wide])
    sch.reorder(block, thread, *reduces, vector)
    sch.bind(block, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    sch.reverse_compute_at(tail, thread, preserve_unit_loops=True)
    start = sch.decompose_reduction(f.rv, reduces[0])
    for rv in (f.rv, start, tail):
        sch.vectorize(sch.get_loops(rv)[-1])
    for x in reduces:
        sch.unroll(x)
    return {"threads": threads, "elements at a time": wide}


def inline_padding(g: GpuFunction, f: Facts) -> None:
    """Do what only pads what a block reads on the way."""
    for producer in g.sch.get_producers(f.rv):
        body = g.sch.get(producer).body
        alone = len(g.sch.get_consumers(producer)) == 1 and producer.key not in g.done
        if alone and isinstance(body, BufferStore) and _pads(body.value):
            g.sch.compute_inline(producer)


def _pads(e: PrimExpr) -> bool:
    """Whether a value is an element inside of some bounds, and a constant outside."""
    if not isinstance(e, Call) or not isinstance(e.op, Op) or e.op.short_name != "if_then_else":
        return False
    return isinstance(e.args[1], BufferLoad) and const_value(e.args[2]) is not None
