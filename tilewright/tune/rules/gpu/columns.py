"""Reductions on a GPU along a dimension that is not contiguous: sums of columns, or of a middle axis.

    thread block for 128 columns and a part of the rows           threads 32 x 8, vectors of 4 columns
        part[y, 0:128] = sum over rows y, y + 8, …                in registers, each thread its 4 columns
        partial[p, 0:128] = sum over y of part[y, 0:128]          through shared memory

Where the rows are distributed over thread blocks, a second kernel sums over the parts p in the same way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule.primitive import BlockRV
from ...cost.gpu import Counts
from ...cost.table import Array
from ...program.facts import Axis, Facts
from ...program.patterns import contiguous_axis
from ...program.stages import Stage
from ..rule import Match, Refusal
from .figures import SimpleRule, stage_counts
from .kernel import Kernel, power
from .rows import lone_reduction

__all__ = ["Columns"]

_WIDE = 16  # bytes of a vector load
_WARP = 32


class Columns(SimpleRule):
    """A thread block for neighbouring results and a part of the rows; a second kernel if all SMs need work.

    wins where   the reduction goes along a dimension that is not contiguous
    """

    name = "columns"
    needs = frozenset({"shared_memory"})
    free = False

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        why = lone_reduction(stage, target.gpu)
        if why:
            return Refusal(why)
        f, line = stage.facts, contiguous_axis(stage.facts)
        if line is None or line.reduce:
            return Refusal("it reduces along contiguous memory")
        if not all(a.known for a in f.axes):
            return Refusal("a size is not known", near=True)
        if math.prod(a.extent for a in f.reduce) <= target.gpu.columns.short:
            return Refusal("its columns are short: one thread reduces each", near=True)
        return Match(stage, target.gpu, _Sizes(f, line, target.gpu))

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        f, s = match.stage.facts, match.found
        blocks, width = np.full(len(threads), s.blocks * s.parts), s.lanes * max(1, f.bits // 8) / _WIDE
        return stage_counts([f], match.machine, blocks, min(1.0, width))

    def steps(self, k: Kernel, match: Match) -> dict[str, Any]:
        f, s, sch = match.stage.facts, match.found, k.sch
        consumer = k.fusable_consumer(f)
        loops = dict(zip([a.var for a in f.axes], sch.get_loops(f.rv), strict=True))
        others = [loops[a.var] for a in f.spatial if a is not s.line]
        sch.reorder(*others, loops[s.line.var], *[loops[a.var] for a in f.reduce])
        lines = k.fused([loops[a.var] for a in f.reduce], f.rv)
        kernel = f.rv
        if s.parts > 1:
            part, _ = sch.split(lines, [s.parts, None])
            kernel = sch.rfactor(part, factor_axis=0)
            *around, part, lines = sch.get_loops(kernel)
            sch.reorder(part, *around, lines)
            _columns(k, kernel, s.lanes, s.threads, s.high)
            _columns(k, f.rv, 1, s.threads, min(s.high, power(s.parts // 4)), consumer)
        else:
            _columns(k, f.rv, s.lanes, s.threads, s.high, consumer)
        note = {"columns": s.threads * s.lanes, "threads": s.threads * s.high, "parts": s.parts}
        return {**note, "vector": s.lanes, "kernel": kernel}


class _Sizes:
    """The threads of a block along columns and rows, the vectors of a thread, and the parts of the rows."""

    def __init__(self, f: Facts, line: Axis, gpu: GpuMachine) -> None:
        w, size = gpu.columns, math.prod(a.extent for a in f.reduce)
        self.line, self.lanes = line, _lanes(f, line)
        self.threads = min(_WARP, power(-(-line.extent // self.lanes)))
        self.high = min(w.threads // self.threads, power(size // 4))
        others = math.prod(a.extent for a in f.spatial if a is not line)
        self.blocks = others * -(-line.extent // (self.threads * self.lanes))
        self.parts = 1
        if self.blocks < w.enough_blocks:
            while (
                self.blocks * self.parts < w.busy_blocks
                and size // (2 * self.parts) >= self.high * w.rows_in_flight
            ):
                self.parts *= 2


def _lanes(f: Facts, line: Axis) -> int:
    """The width of the vectors of neighbouring results that a thread computes."""
    if f.guarded or any(r.stride(line) not in (0, 1) for r in f.accesses):
        return 1
    lanes = max(1, _WIDE * 8 // max(8, f.bits))
    while lanes > 1 and line.extent % lanes:
        lanes //= 2
    return lanes


def _columns(
    g: Kernel, rv: BlockRV, lanes: int, threads: int, high: int, consumer: BlockRV | None = None
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
