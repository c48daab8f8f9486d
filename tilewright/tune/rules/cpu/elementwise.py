"""Blocks that only move or map elements: copies, elementwise chains, transposes."""

from __future__ import annotations

from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ...program.facts import Access, Facts, extent_of
from ...program.patterns import across_of, joined, lies_across

__all__ = [
    "given_out",
    "in_lines",
    "in_vectors",
    "past_caches",
    "pays_in_parallel",
    "schedule_copy",
    "schedule_elementwise",
]


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


def pays_in_parallel(facts: Facts, machine: CpuMachine) -> bool:
    """Whether threads gain more than it costs to start them."""
    return machine.num_cores > 1 and cycles_of(facts, machine) > 4e3 * machine.launch_us * machine.clock


def cycles_of(facts: Facts, machine: CpuMachine) -> float:
    """Estimated cycles of one core: for the arithmetic or for the traffic, whichever takes longer."""
    lanes = machine.lanes(facts.bits)
    size = sum(facts.touched(r) for r in facts.accesses)
    caches = machine.cache_sizes
    speed = machine.l2_bandwidth if size < caches.l2 else machine.l3_bandwidth
    if size > caches.l3 / 2:
        speed = machine.memory_bandwidth / machine.clock
    return max(facts.points * (facts.work + 1) / lanes, size / speed)


def schedule_elementwise(sch: Schedule, facts: Facts, machine: CpuMachine) -> dict[str, object]:
    """Vectorize along the contiguous axis and parallelize the others; use tiles for a transposed read."""
    loops = sch.get_loops(facts.rv)
    if not loops:
        return {"loops": "none: a single element"}
    lanes = facts.lanes(machine)
    across, turned = across_of(facts), _read_across(facts)
    if across is not None:
        around, note = _turned(sch, facts, loops, across, lanes, machine)
    elif turned is not None:
        around, note = _turned_first(sch, facts, loops, *turned, lanes)
    else:
        around, note = in_lines(sch, facts, loops, lanes, joined(facts))
    return {"lanes": lanes, **note, **given_out(sch, facts, around, machine)}


def given_out(sch: Schedule, facts: Facts, around: list[LoopRV], machine: CpuMachine) -> dict[str, object]:
    """Parallelize the loops around the vectors, if that pays; use non-temporal stores for a result that is larger than
    the caches."""
    threads, past = pays_in_parallel(facts, machine), past_caches(facts, machine)
    if around:
        head = around[: _enough(sch, around, machine)] if threads else around[:1]
        first = sch.fuse(*head) if len(head) > 1 else head[0]
        if threads:
            sch.parallel(first)
        if past:
            sch.annotate(first, "pragma_nontemporal", 1)
    return {"parallel": threads, **({"stores": "past the caches"} if past else {})}


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


def _read_across(facts: Facts) -> tuple[Access, int] | None:
    """The only transposed read of a stage that computes something, and the axis along which it is contiguous."""
    found = [(r, at) for r in facts.reads if (at := lies_across(facts, r)) is not None]
    if len(found) != 1 or facts.guarded or not all(a.known for a in facts.spatial):
        return None
    read, at = found[0]
    once = sum(r.buffer is read.buffer for r in facts.reads) == 1
    return found[0] if once and facts.spatial[at].extent >= 8 and facts.spatial[-1].extent >= 8 else None


def _turned_first(
    sch: Schedule, facts: Facts, loops: list[LoopRV], read: Access, across: int, lanes: int
) -> tuple[list[LoopRV], dict[str, object]]:
    """Transpose the transposed operand tile by tile in registers, and compute from there."""
    buffers = [r.buffer for r in sch.realize(facts.rv).block.reads]
    copy = sch.reindex(facts.rv, ("read", buffers.index(read.buffer)))
    sch.set_scope(copy, 0, "local")
    others = [x for i, x in enumerate(loops) if i not in (across, len(loops) - 1)]
    far, near = sch.split(loops[across], [None, lanes])
    most, line = sch.split(loops[-1], [None, lanes])
    sch.reorder(*others, far, most, near, line)
    sch.compute_at(copy, most)
    *_, turned, vector = sch.get_loops(copy)
    sch.annotate(turned, "transpose_lanes", 1)
    sch.vectorize(vector)
    sch.unroll(near)
    sch.vectorize(line)
    return [*others, far, most], {"tile": f"{read.buffer.name} {lanes} x {lanes}, turned in registers"}


def _turned(
    sch: Schedule, facts: Facts, loops: list[LoopRV], across: int, lanes: int, machine: CpuMachine
) -> tuple[list[LoopRV], dict[str, object]]:
    """Transpose tiles of lanes x lanes in registers."""
    others = [x for i, x in enumerate(loops) if i not in (across, len(loops) - 1)]
    far, near = sch.split(loops[across], [None, lanes])
    size = extent_of(sch, loops[-1])
    most, few, line = sch.split(loops[-1], [None, 4 if size is None or size >= 16 * lanes else 1, lanes])
    # Tiles follow each other along the rows that are read; a few are side by side, so that longer pieces of rows are
    # written.
    sch.reorder(*others, most, far, few, near, line)
    sch.annotate(near, "transpose_lanes", 1)
    if facts.touched(facts.reads[0]) > machine.cache_sizes.l2:
        # These are more streams than the hardware prefetcher of the CPU follows.
        sch.annotate(near, "transpose_ahead", 4)
    sch.vectorize(line)
    return [*others, most], {"tile": f"{lanes} x {lanes}, turned in registers"}


def past_caches(facts: Facts, machine: CpuMachine) -> bool:
    """Whether the result is larger than the L3 cache, so that later stages would not find it there."""
    if facts.write is None:
        return False
    return facts.touched(facts.write) > machine.cache_sizes.l3 and all(a.known for a in facts.axes)


def _enough(sch: Schedule, loops: list[LoopRV], machine: CpuMachine) -> int:
    """How many of the outermost loops together have enough iterations to give each thread several."""
    turns = 1
    for i, loop in enumerate(loops):
        turns *= extent_of(sch, loop) or machine.num_cores * 8
        if turns >= 4 * machine.num_cores:
            return i + 1
    return len(loops)
