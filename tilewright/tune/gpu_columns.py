"""Reductions on a GPU along a dimension that is not contiguous: sums of columns, or of a middle axis.

    thread block for 128 columns and a part of the rows           threads 32 x 8, vectors of 4 columns
        part[y, 0:128] = sum over rows y, y + 8, …                in registers, each thread its 4 columns
        partial[p, 0:128] = sum over y of part[y, 0:128]          through shared memory

Where the rows are distributed over thread blocks, a second kernel sums over the parts p in the same way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..tir.schedule.primitive import BlockRV
from .gpu_rows import power
from .program.facts import Axis, Facts
from .program.patterns import in_line

if TYPE_CHECKING:
    from .gpu import GpuFunction

__all__ = ["reduce_columns"]

_WIDE = 16  # bytes of a vector load
_WARP = 32


def reduce_columns(g: GpuFunction, f: Facts) -> dict[str, object]:
    """Schedule a reduction whose results are contiguous, alone: one kernel, or two if its rows are distributed over
    thread blocks."""
    line, sch, w = in_line(f), g.sch, g.target.gpu.columns
    size = math.prod(a.extent for a in f.reduce)
    if line is None or line.reduce or not all(a.known for a in f.axes) or size <= w.short:
        return g.plain(f)
    consumer = g.fusable_consumer(f)
    lanes = _lanes(f, line)
    threads = min(_WARP, power(-(-line.extent // lanes)))
    high = min(w.threads // threads, power(size // 4))
    loops = dict(zip([a.var for a in f.axes], sch.get_loops(f.rv), strict=True))
    others = [loops[a.var] for a in f.spatial if a is not line]
    sch.reorder(*others, loops[line.var], *[loops[a.var] for a in f.reduce])
    lines = g.fused([loops[a.var] for a in f.reduce], f.rv)
    blocks = math.prod(a.extent for a in f.spatial if a is not line) * -(-line.extent // (threads * lanes))
    parts, kernel = 1, f.rv
    if blocks < w.enough_blocks:
        while blocks * parts < w.busy_blocks and size // (2 * parts) >= high * w.rows_in_flight:
            parts *= 2
    if parts > 1:
        part, _ = sch.split(lines, [parts, None])
        kernel = partial = sch.rfactor(part, factor_axis=0)
        *around, part, lines = sch.get_loops(partial)
        sch.reorder(part, *around, lines)
        _columns(g, partial, lanes, threads, high)
        _columns(g, f.rv, 1, threads, min(high, power(parts // 4)), consumer)
    else:
        _columns(g, f.rv, lanes, threads, high, consumer)
    return {
        "columns": threads * lanes,
        "threads": threads * high,
        "parts": parts,
        "vector": lanes,
        "kernel": kernel,
    }


def _lanes(f: Facts, line: Axis) -> int:
    """The width of the vectors of neighbouring results that a thread computes."""
    if f.guarded or any(r.stride(line) not in (0, 1) for r in f.accesses):
        return 1
    lanes = max(1, _WIDE * 8 // max(8, f.bits))
    while lanes > 1 and line.extent % lanes:
        lanes //= 2
    return lanes


def _columns(
    g: GpuFunction, rv: BlockRV, lanes: int, threads: int, high: int, consumer: BlockRV | None = None
) -> None:
    """One kernel: a thread block for each group of columns, whose rows `high` threads share. `consumer`, the epilogue,
    takes the results from registers."""
    sch = g.sch
    _, y = sch.split(sch.get_loops(rv)[-1], [None, high])
    part = sch.rfactor(y, factor_axis=0)
    kept = consumer
    if kept is None:
        kept = sch.cache_write(rv, 0, "local")
    else:
        sch.set_scope(rv, 0, "local")
    shared = sch.cache_write(part, 0, "local")
    *around, line, last = sch.get_loops(rv)
    many, columns = sch.split(line, [None, threads * lanes])
    block = g.fused([*around, many], rv)
    each, x = sch.split(columns, [None, threads])
    sch.reverse_compute_at(kept, x, preserve_unit_loops=True)
    sch.set_scope(shared, 0, "shared")
    sch.compute_at(shared, block, preserve_unit_loops=True)
    own = sch.get_loops(shared)[1:]
    column, lane = sch.split(own[-1], [None, lanes])
    sch.compute_at(part, column, preserve_unit_loops=True)
    *_, lines = sch.get_loops(part)
    most, several = sch.split(lines, [None, g.target.gpu.columns.rows_in_flight])
    sch.unroll(several)
    if lanes > 1:
        sch.vectorize(lane)
        vector = sch.get_loops(part)[-3]
        sch.reorder(most, several, vector)
        sch.vectorize(vector)
    for loop, tag in ((own[0], "threadIdx.y"), (column, "threadIdx.x"), (x, "threadIdx.x")):
        sch.bind(loop, tag)
    if lanes <= high:
        sch.bind(each, "threadIdx.y")
    sch.unroll(last)
    sch.bind(block, "blockIdx.x")
