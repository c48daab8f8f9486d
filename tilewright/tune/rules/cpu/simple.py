"""Helpers of the rules without register tiles: the vector width, threads, and the table of both."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ...cost.table import Array, Table
from ...program.facts import Access, Axis, Facts, extent_of, facts_of
from ...program.patterns import reuses
from ...program.stages import Stage
from ..features import simple_features
from ..rule import Match, Row

__all__ = [
    "Way",
    "Work",
    "bytes_of",
    "gather_stalls",
    "given_out",
    "in_lines",
    "in_vectors",
    "left_beside",
    "past_caches",
    "row_end",
    "schedule_copy",
    "simple_table",
    "way_of",
]

_BITS = (128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Way:
    """A row of such a table, for a machine: the bits of a vector, and whether threads share the work."""

    machine: CpuMachine
    bits: int
    parallel: bool

    def lanes(self, bits: int) -> int:
        """How many values of `bits` bits a vector holds."""
        return max(1, self.bits // bits)


def way_of(match: Match, row: Row) -> Way:
    return Way(match.machine, row.values["bits"], bool(row.values["threads"]))


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a stage, for any vector width."""

    operations: float  # operations on single elements
    bits: int  # width of an element
    bytes: float  # bytes that are loaded from memory or stored to it
    held: float = 0.0  # bytes that are read again, from a set of `held_set` bytes
    held_set: float = 0.0
    units: float = math.inf  # iterations that threads can share
    stalls: float = 0.0  # cycles of stalls, in all
    serial: float = 0.0  # cycles of one thread at the end
    prefetched: bool = True  # everything is read in order, so that the hardware fetches it ahead
    left_operations: float = 0.0  # operations of the stages that are left to other rules
    left_bytes: float = 0.0
    left_launches: float = 0.0
    prior: float = 1.0


def simple_table(
    match: Match,
    machine: CpuMachine,
    work: Work,
    only: Mapping[str, int] | None = None,
    shares: Sequence[int] = (0, 1),
) -> Table:
    """The widths of vectors, without and with threads. The preferred width comes first: it is the first of equals."""
    preferred, fit, cores = machine.preferred_vector_bits, machine.fit, machine.num_cores
    bits = [preferred, *(b for b in _BITS if b <= machine.vector_bits and b != preferred)]
    points = np.array([(b, t) for b in bits for t in (shares if cores > 1 else (0,))], np.int64)
    if only is not None:
        points = points[(points == [only["bits"], only["threads"]]).all(axis=1)]
    lanes = np.maximum(1, np.minimum(points[:, 0], preferred) // work.bits)
    counts = {
        "tiles": np.ones(len(points)),
        "steps": 1.0 / lanes,
        "operations": np.full(len(points), work.operations),
        "finish": np.full(len(points), work.stalls),
        "near_bytes": np.full(len(points), work.held),
        "near_set": np.full(len(points), work.held_set),
        "far_bytes": np.full(len(points), work.bytes),
        # all threads together read it once, each a part
        "far_set": work.bytes / np.where(points[:, 1] > 0, cores, 1),
        "threads": points[:, 1],
        "longest": np.full(len(points), _longest(work.units, cores)),
        "serial": np.full(len(points), work.serial),
        "prefetched": np.full(len(points), float(work.prefetched)),
        "launches": np.ones(len(points)),
        "margin": np.full(len(points), fit.parallel_margin * (1 - 1 / cores) - 1),
    }
    left = []
    if work.left_operations or work.left_bytes:
        counts["left_operations"] = work.left_operations / lanes
        counts["left_launches"] = np.full(len(points), work.left_launches)
        counts["left_bytes"] = np.full(len(points), work.left_bytes)
        counts["left_set"] = work.left_bytes / np.where(points[:, 1] > 0, cores, 1)
        left += ["left_operations", "left_bytes", "left_set", "left_launches"]
    if work.prior != 1.0:
        counts["prior"] = np.full(len(points), work.prior)
        left.append("prior")
    heavy = match.stage.heavy

    def shape(figures: Mapping[str, Array]) -> Array:
        return simple_features(heavy, points, figures["cycles"] / (machine.clock * 1e9), points[:, 1])

    return Table(("bits", "threads"), points, counts, left=tuple(left), shape=shape)


def _longest(units: float, cores: int) -> float:
    """The busiest core's share of some units of work."""
    return 1 / cores if math.isinf(units) else math.ceil(units / cores) / max(1.0, units)


def left_beside(stage: Stage) -> dict[str, float]:
    """The work of the stages that a register tile would compute on the way: producers, and the epilogue."""
    program, f = stage.program, stage.facts
    if not reuses(f):
        return {}
    consumer = program.fusable_consumer(f)
    others = [*program.own_producers(f, None), *([] if consumer is None else [consumer])]
    left = [facts_of(program.sch, rv) for rv in others]
    return {
        "left_operations": float(sum(g.points * (g.work + 1) for g in left)),
        "left_bytes": float(sum(bytes_of(g) for g in left)),
        "left_launches": float(len(left)),
    }


def bytes_of(f: Facts) -> int:
    """The bytes that a stage touches."""
    return sum(f.touched(r) for r in f.accesses)


def row_end(f: Facts, machine: CpuMachine) -> float:
    """The cycles at the end of a row of a reduction. Sums over the lanes of a vector overlap with the next row, unless
    a row is a single vector, or several operands are loaded for it."""
    lanes, fit = machine.lanes(f.bits), machine.fit
    short = math.prod(a.extent for a in f.reduce) <= lanes or reuses(f)
    return fit.row_entry + (fit.lane_sum * lanes if short else 0.0)


def gather_stalls(f: Facts, axis: Axis, machine: CpuMachine, but: Sequence[Access] = ()) -> float:
    """The cycles that vectors along an axis lose because their elements are not contiguous."""
    lanes, fit, lost = machine.lanes(f.bits), machine.fit, 0.0
    for r in f.accesses:
        step = r.stride(axis)
        if r.moves(axis) and not any(r is b for b in but) and not r.runs(axis, lanes):
            lost += fit.pair_load if step in (2, -2) else fit.gather_lane * lanes
    return lost * f.points / lanes


# ---------------------------------------------------------------------------- steps
def in_vectors(sch: Schedule, loop: LoopRV, lanes: int) -> None:
    """Vectorize a loop, all of it if it is short."""
    size = extent_of(sch, loop)
    if size is None or size > lanes:
        _, within = sch.split(loop, [None, lanes])
        sch.vectorize(within)
    elif size > 1:
        sch.vectorize(loop)


def schedule_copy(sch: Schedule, block: BlockRV, lanes: int, skip: int) -> None:
    """Vectorize the last loop of a block, if the block has more than `skip` loops."""
    loops = sch.get_loops(block)[skip:]
    if loops:
        in_vectors(sch, loops[-1], lanes)


def in_lines(
    sch: Schedule, facts: Facts, loops: list[LoopRV], lanes: int, count: int = 1
) -> tuple[list[LoopRV], dict[str, object]]:
    """Fuse the last `count` loops, vectorize along them and unroll a few vectors; return the loops around those."""
    outer, inner = loops[:-count], loops[-count:]
    line = sch.fuse(*inner) if len(inner) > 1 else inner[0]
    size = extent_of(sch, line)
    unroll = 4 if facts.work <= 16 else 1
    if size is not None and size < 2 * lanes * unroll:
        unroll = 1
    if size is not None and size <= lanes:
        if size > 1:
            sch.vectorize(line)
        return outer, {}
    if unroll > 1:
        most, several, within = sch.split(line, [None, unroll, lanes])
        sch.unroll(several)
    else:
        most, within = sch.split(line, [None, lanes])
    sch.vectorize(within)
    return [*outer, most], {"unrolled": unroll}


def given_out(sch: Schedule, facts: Facts, around: list[LoopRV], way: Way) -> dict[str, object]:
    """Parallelize the loops around the vectors, if threads share them; use non-temporal stores for a result that is
    larger than the caches."""
    threads, past = way.parallel, past_caches(facts, way.machine)
    if around:
        head = around[: _enough(sch, around, way.machine)] if threads else around[:1]
        first = sch.fuse(*head) if len(head) > 1 else head[0]
        if threads:
            sch.parallel(first)
        if past:
            sch.annotate(first, "pragma_nontemporal", 1)
    return {"parallel": threads, **({"stores": "past the caches"} if past else {})}


def _enough(sch: Schedule, loops: list[LoopRV], machine: CpuMachine) -> int:
    """How many of the outermost loops together have enough iterations to give each thread several."""
    turns = 1
    for i, loop in enumerate(loops):
        turns *= extent_of(sch, loop) or machine.num_cores * 8
        if turns >= 4 * machine.num_cores:
            return i + 1
    return len(loops)


def past_caches(facts: Facts, machine: CpuMachine) -> bool:
    """Whether the result is larger than the L3 cache, so that later stages would not find it there."""
    if facts.write is None:
        return False
    return facts.touched(facts.write) > machine.cache_sizes.l3 and all(a.known for a in facts.axes)
