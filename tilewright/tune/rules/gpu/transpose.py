"""Transposes on a GPU, tile by tile through shared memory: both loads and stores are coalesced.

    thread block of 256 threads for 64 x 64 elements
        shared[i, 0:64] = x[i, 0:64]           vectors of 4 along the contiguous dimension of x
        local[4, 4]     = shared[4 i.., 4 j..] each thread a square: 4 vectors from shared memory
        y[j, 4 i..]     = local[:, j]          4 vectors along the contiguous dimension of y

If sizes are not multiples of 4, threads move single elements, through shared memory alone.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir.functor import vars_used
from ....target import Target
from ....tir.schedule.primitive import BlockRV
from ...cost.gpu import Counts
from ...cost.table import Array
from ...program.facts import Facts, facts_of, joined
from ...program.patterns import transposed_axis
from ...program.stages import Stage
from ..rule import Match, Refusal
from .figures import SimpleRule, stage_counts
from .kernel import Kernel

__all__ = ["Transpose", "transpose", "transposed_read"]

_TILE = 32  # rows and columns of a tile of single elements
_SIDES = (64, 32)  # rows and columns of a tile of squares
_SQUARE = 4  # rows and columns of the square that a thread transposes
_NEAR = 2  # adjacent squares along a row that neighbouring threads have, so that they write longer pieces


class Transpose(SimpleRule):
    """Tiles that are transposed in shared memory.

    wins where   one operand is contiguous along another axis than the result
    """

    name = "transpose"
    needs = frozenset({"shared_memory"})
    free = False

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if not stage.single or stage.facts.kind != "injective":
            return Refusal("its elements are not computed one by one")
        read = transposed_read(stage.facts)
        if read is None:
            return Refusal("not exactly one of its reads is contiguous along another axis than the result")
        return Match(stage, target.gpu, read)

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        f = match.stage.facts
        blocks = max(1, math.prod(a.extent for a in f.spatial) // _SIDES[-1] ** 2)
        return stage_counts([f], match.machine, np.full(len(threads), blocks))

    def steps(self, k: Kernel, match: Match) -> dict[str, Any]:
        return transpose(k, match.stage.facts, *match.found)


def transposed_read(f: Facts) -> tuple[int, int] | None:
    """The only transposed read of a stage, which is contiguous along another axis than the result: its position among
    the reads of the block, and the position of that axis."""
    found = [(r, at) for r in f.reads if (at := transposed_axis(f, r)) is not None]
    if len(found) != 1 or f.guarded:
        return None
    read, at = found[0]
    if sum(r.buffer is read.buffer for r in f.reads) != 1:
        return None
    return [r.buffer for r in f.block.reads].index(read.buffer), at


def transpose(g: Kernel, f: Facts, read: int, across: int) -> dict[str, Any]:
    """Transpose a tensor: its source is contiguous along axis `across`, the result along the last one."""
    copy = g.sch.cache_read(f.rv, read, "shared")
    f, across = _joined(g, facts_of(g.sch, f.rv), read, across, copy)
    axes = (f.spatial[across], f.spatial[-1])
    kind = f.block.reads[read].buffer.dtype
    tiles = math.prod(a.extent for a in f.spatial)
    contiguous = all(r.stride(axes[1]) in (0, 1) or i == read for i, r in enumerate(f.reads))
    if all(a.known and a.extent % _SQUARE == 0 for a in axes) and 8 <= kind.bits <= 32 and contiguous:
        for side in _SIDES:
            room = side * (side + _SQUARE) * kind.nbytes <= g.target.gpu.shared_memory_per_block
            enough = side == _SIDES[-1] or tiles >= g.target.gpu.transpose.busy_tiles * side * side
            if min(a.extent for a in axes) >= side and room and enough:
                return _in_squares(g, f, read, across, side, copy)
    return _by_elements(g, f, read, across, copy)


def _joined(g: Kernel, f: Facts, read: int, across: int, copy: BlockRV) -> tuple[Facts, int]:
    """Fuse axes that are contiguous with each other in all accesses, in the stage and in the copy that it reads: the
    sides of tiles are then not limited by the extent of a single axis.

        y[n, h, w, c] = x[n, c, h, w]     ->     y[n, k // 56, k % 56, c] = x_shared[n, c, k]
    """
    axes, runs = f.spatial, [[0]]
    for i in range(1, len(axes)):
        if all(r.contiguous(axes[i - 1], axes[i]) for r in f.accesses):
            runs[-1].append(i)
        else:
            runs.append([i])
    access = next(r for r in f.reads if r.buffer is f.block.reads[read].buffer)
    named = [next((i for i, a in enumerate(axes) if e is a.var), -1) for e in access.indices]
    dims = [[named.index(i) for i in run if i in named] for run in runs]
    whole = all(not d or d == list(range(d[0], d[0] + len(run))) for d, run in zip(dims, runs, strict=True))
    plain = len(axes) == len(f.block.iter_vars) and all(a.known for a in axes) and -1 not in named
    if len(runs) == len(axes) or not whole or not plain:
        return f, across
    sch, sizes = g.sch, [a.extent for a in axes]
    inside = joined(sorted(d for d in dims if d), [sizes[i] for i in named])
    sch.transform_block_layout(f.rv, joined(runs, sizes))
    sch.transform_block_layout(copy, inside)
    sch.transform_layout(copy, ("write", 0), inside)
    return facts_of(sch, f.rv), next(i for i, run in enumerate(runs) if across in run)


def _in_squares(g: Kernel, f: Facts, read: int, across: int, side: int, copy: BlockRV) -> dict[str, Any]:
    sch, count = g.sch, side // _SQUARE
    square = sch.cache_read(f.rv, read, "local")
    loops = sch.get_loops(f.rv)
    others = [x for i, x in enumerate(loops) if i not in (across, len(loops) - 1)]
    high, far, near, lane = sch.split(loops[across], [None, count // _NEAR, _NEAR, _SQUARE])
    wide, line, vector = sch.split(loops[-1], [None, count, _SQUARE])
    sch.reorder(*others, high, wide, far, line, near, lane, vector)
    block = g.fused([*others, high, wide], f.rv)
    thread = sch.fuse(far, line, near)
    sch.compute_at(square, thread, preserve_unit_loops=False)
    sch.compute_at(copy, block, preserve_unit_loops=False)
    several, share, lanes = sch.split(g.fused(sch.get_loops(copy)[1:], copy), [None, count * count, _SQUARE])
    sch.vectorize(lanes)
    sch.unroll(several)
    g.fetch_early(copy, count * count)
    sch.bind(share, "threadIdx.x")
    rows, columns = sch.get_loops(square)[2:]
    sch.unroll(rows)
    sch.vectorize(columns)
    sch.unroll(lane)
    sch.vectorize(vector)
    sch.bind(thread, "threadIdx.x")
    sch.bind(block, "blockIdx.x")
    # Rows are padded by one square, so that the squares of a column are in different banks, four side by side.
    sch.storage_align(copy, 0, axis=_line_of(f, read, across), factor=side, offset=_SQUARE)
    return {"tile": f"{side} x {side}", "register tile": f"{_SQUARE} x {_SQUARE}", "threads": count * count}


def _line_of(f: Facts, read: int, across: int) -> int:
    """The dimension of the source (from the end) along which the rows of a tile follow each other."""
    access = next(r for r in f.reads if r.buffer is f.block.reads[read].buffer)
    last = f.spatial[-1].var
    found = [i for i, e in enumerate(access.indices) if last in vars_used(e)]
    return found[0] - len(access.indices)


def _by_elements(g: Kernel, f: Facts, read: int, across: int, copy: BlockRV) -> dict[str, Any]:
    sch = g.sch
    loops = sch.get_loops(f.rv)
    others = [x for i, x in enumerate(loops) if i not in (across, len(loops) - 1)]
    tiles, high = sch.split(loops[across], [None, _TILE])
    more, wide = sch.split(loops[-1], [None, _TILE])
    sch.reorder(*others, tiles, more, high, wide)
    block = g.fused([*others, tiles, more], f.rv)
    sch.bind(block, "blockIdx.x")
    sch.compute_at(copy, block, preserve_unit_loops=False)
    for rv, own in ((copy, sch.get_loops(copy)[1:]), (f.rv, [high, wide])):
        several, thread = sch.split(g.fused(own, rv), [None, g.most])
        sch.bind(thread, "threadIdx.x")
        sch.unroll(several)
    g.fetch_early(copy, g.most)
    # Rows are padded by one element, so that the elements of a column are in different banks.
    sch.storage_align(copy, 0, axis=_line_of(f, read, across), factor=_TILE, offset=1)
    return {"tile": f"{_TILE} x {_TILE}", "threads": g.most}
