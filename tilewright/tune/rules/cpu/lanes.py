"""Vectors of partial results: a reduction along contiguous memory, in as many parts as vectors have lanes."""

from __future__ import annotations

from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ...program.facts import Facts, extent_of
from ...program.patterns import can_be_fused
from ..rule import Refusal
from .simple import Way

__all__ = ["CHAINS", "fused", "in_lanes", "lane_count", "lanes_of", "place_lanes", "vector_reduction"]

# Independent vectors of partial results, which hide the latency of an addition.
CHAINS = 4
_WIDEST = 256  # the most lanes of partial results: CHAINS vectors of bytes


def vector_reduction(
    sch: Schedule, f: Facts, way: Way, chains: int = CHAINS
) -> tuple[BlockRV | None, BlockRV]:
    """Rewrite a reduction along a contiguous axis as lanes of partial results, `chains` vectors of them, and their
    combination."""
    loops = sch.get_loops(f.rv)
    spatial = len(f.spatial)
    reduces = loops[spatial:]
    if len(reduces) > 1 and can_be_fused(f, f.reduce):
        reduces = [sch.fuse(*reduces)]
    return lanes_of(sch, f, reduces[-1], way, spatial, chains)


def lanes_of(
    sch: Schedule, f: Facts, loop: LoopRV, way: Way, spatial: int, chains: int = CHAINS
) -> tuple[BlockRV | None, BlockRV]:
    lanes = f.lanes(way)
    size = extent_of(sch, loop)
    if size is not None and size <= lanes:
        sch.annotate(loop, "reduce_lanes", 1)
        return None, f.rv
    _, lane = sch.split(loop, [None, lane_count(size, lanes, chains)])
    partial = sch.rfactor(lane, factor_axis=spatial)
    for result in range(len(f.block.writes)):
        sch.set_scope(partial, result, "local")
    return partial, f.rv


def lane_count(size: int | None, lanes: int, chains: int) -> int:
    """The lanes of partial results for a row of some size (None: dynamic): `chains` vectors unless it is short."""
    return lanes * (chains if size is None or size >= 2 * chains * lanes else 1)


def place_lanes(sch: Schedule, partial: BlockRV | None, final: BlockRV, row: LoopRV) -> Refusal | None:
    """Compute the partial results of a row in its loop, vectorized. Returns the refusal, if there is one."""
    if partial is None:
        return None
    sch.compute_at(partial, row, preserve_unit_loops=False)
    return in_lanes(sch, partial, final)


def in_lanes(sch: Schedule, partial: BlockRV, final: BlockRV) -> Refusal | None:
    """Vectorize partial results and their combination. Returns the refusal, if there is one."""
    sch.annotate(sch.get_loops(final)[-1], "reduce_lanes", 1)
    lane, *sums = sch.get_loops(partial)[len(sch.get_loops(final)) - 1 :]
    if (extent_of(sch, lane) or _WIDEST + 1) > _WIDEST:
        return Refusal("the lanes of its partial results have loops over other rows between them")
    sch.reorder(*sums, lane)
    sch.vectorize(lane)
    return None


def fused(sch: Schedule, loops: list[LoopRV]) -> LoopRV:
    return sch.fuse(*loops) if len(loops) > 1 else loops[0]


def fused_ends(sch: Schedule, loops: list[LoopRV]) -> tuple[LoopRV, LoopRV]:
    """The outermost and the innermost of some loops, of which as many are fused as possible without an index that is
    divided by a dynamic extent."""
    count = 1
    while count < len(loops) and extent_of(sch, loops[count]) is not None:
        count += 1
    first = fused(sch, loops[:count])
    return first, first if count == len(loops) else loops[-1]
