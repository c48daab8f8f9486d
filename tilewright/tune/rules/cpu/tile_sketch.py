"""Apply a register tile: from a reduction block to tiles, accumulators, packed panels and parallel loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ....ir.buffer import Buffer
from ....ir.errors import ScheduleError
from ....ir.expr import BufferLoad, Var
from ....ir.stmt import BufferStore
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ...program.facts import (
    Access,
    Facts,
    divided,
    divisions,
    extent_of,
    facts_of,
    joined,
    with_dense_results,
    with_joined_axes,
    with_split_axes,
)
from .simple import schedule_copy
from .tile_space import RegisterTile, thread_share

__all__ = ["apply_tile", "prepare_tile", "prepared_facts"]

_COPIED_ROWS = 32  # the most rows of a copy that are written without a loop


def prepare_tile(sch: Schedule, facts: Facts, consumer: BlockRV | None) -> tuple[Facts, BlockRV]:
    """Keep the results in registers, and merge axes that every access steps through with a single stride.

    `consumer` is the epilogue, if there is one. Returns the facts of the changed block, and the block that writes the
    results out.
    """
    if consumer is not None:
        sch.set_scope(facts.rv, 0, "local")
        tail = consumer
    else:
        tail = sch.cache_write(facts.rv, 0, "local")
    in_order = _in_order(facts, facts_of(sch, tail))
    parts = divisions(facts)[: len(facts.spatial)]
    if max(parts, default=1) > 1 and in_order:
        facts = _mapped(sch, facts, tail, divided(parts))
    groups = _lines(facts, facts_of(sch, tail), in_order)
    if len(groups) == len(facts.spatial):
        return facts_of(sch, facts.rv), tail
    return _mapped(sch, facts, tail, joined(groups, [a.extent for a in facts.spatial])), tail


def prepared_facts(facts: Facts, consumer: Facts | None) -> Facts:
    """The facts of a block that `prepare_tile` will lead to; nothing is scheduled."""
    made = with_dense_results(facts)
    assert made.write is not None
    tail = consumer
    if tail is None:  # a copy of the results
        tail = replace(facts, axes=tuple(facts.spatial), reads=(made.write,))
    in_order = _in_order(made, tail)
    parts = divisions(made)
    if max(parts[: len(made.spatial)], default=1) > 1 and in_order:
        made, tail = with_split_axes(made, parts), with_split_axes(tail, parts[: len(tail.axes)])
    groups = _lines(made, tail, in_order)
    count = len(made.spatial)
    if len(groups) == count:
        return made
    return with_joined_axes(made, [*groups, *([i] for i in range(count, len(made.axes)))])


def _mapped(sch: Schedule, facts: Facts, tail: BlockRV, mapping: Callable[..., list[Any]]) -> Facts:
    """Apply an index map to the axes of the block and of `tail`, and to the layout of the results between them."""
    sch.transform_block_layout(facts.rv, mapping)
    sch.transform_block_layout(tail, mapping)
    sch.transform_layout(facts.rv, ("write", 0), mapping)
    return facts_of(sch, facts.rv)


def _in_order(facts: Facts, tail: Facts) -> bool:
    """Whether the spatial axes index the results directly and in order, and `tail` has as many axes."""
    axes, write = facts.spatial, facts.write
    return (
        write is not None
        and facts.axes[: len(axes)] == tuple(axes)
        and len(write.indices) == len(axes)
        and all(i is a.var for i, a in zip(write.indices, axes, strict=True))
        and len(tail.axes) == len(axes)
    )


def _lines(facts: Facts, tail: Facts, in_order: bool) -> list[list[int]]:
    """The positions of the spatial axes, in groups that can each be merged into one axis."""
    axes, groups = facts.spatial, [[0]] if facts.spatial else []
    for k in range(1, len(axes)):
        join = (
            in_order and axes[k - 1].known and axes[k].known and axes[k].extent > 1 and axes[k - 1].extent > 1
        )
        for f in (facts, tail) if join else ():
            join = join and all(r.contiguous(f.spatial[k - 1], f.spatial[k]) for r in f.accesses)
        if join:
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def apply_tile(
    sch: Schedule,
    facts: Facts,
    best: RegisterTile,
    parallel: bool,
    tail: BlockRV,
    producers: list[BlockRV],
    machine: CpuMachine,
) -> list[BlockRV]:
    """Schedule a prepared block and `tail`, which takes its results element by element (the epilogue, or a copy).

    `producers` are stages that only this block reads. Those that are computed inside its outermost loop are returned.
    """
    if best.space.dot:
        _apply_dot(sch, facts, best, parallel, tail)
        return []
    space, block = best.space, facts.rv
    pack = _pack(sch, facts, best)
    if space.window:
        _round_up(sch, facts, best, producers)
    loops = dict(zip([a.var for a in facts.axes], sch.get_loops(block), strict=True))
    after, transposer = _transpose(sch, facts, best, tail) if space.transposes else ([tail], None)
    if len(space.rows) and space.vector.extent < best.vectors * space.lanes:
        sch.storage_align(block, 0, axis=len(space.rows) - 1, factor=space.lanes, offset=0)
    outs, inner = _split_rows(sch, best, loops)
    vectors = [None, best.vectors, space.lanes] if best.vectors > 1 else [None, space.lanes]
    vo, *vi = sch.split(loops[space.vector.var], vectors)
    around, count = _around(best, outs, vo, machine, machine.num_cores if parallel else 1)
    reduces = [loops[a.var] for a in facts.reduce]
    sch.reorder(*around, *reduces, *inner, *vi)
    around = [sch.fuse(*around[:count]) if count > 1 else around[0], *around[count:]]
    if parallel and extent_of(sch, around[0]) != 1:
        sch.parallel(around[0])
    for stage in after:
        sch.reverse_compute_at(stage, around[-1], preserve_unit_loops=True)
    for loop in (*inner, *vi[:-1]):
        sch.unroll(loop)
    sch.vectorize(vi[-1])
    if space.window:
        for loop in reduces:
            sch.unroll(loop)
    if transposer is not None:
        _finish_transpose(sch, facts, best, transposer, len(around))
    if tail is not transposer:
        _finish_tail(
            sch,
            tail,
            len(around),
            space.lanes,
            _place_of(facts.write, best) if transposer is after[-1] else None,
        )
    if pack is not None and not space.pack_free:
        sch.compute_at(pack, around[0], preserve_unit_loops=True)
        _finish_pack(sch, best, pack)
    return [p for p in producers if _attach(sch, p, best, around, space.lanes, machine)]


def _round_up(sch: Schedule, facts: Facts, best: RegisterTile, producers: list[BlockRV]) -> None:
    """Compute whole tiles of a window of dynamic size, of which only the wanted part is written out: its inputs are
    padded anyway. Otherwise each tile needs versions for the end of each axis."""
    rows = {a.var: t for a, t in zip(best.space.rows, best.tile, strict=True)}
    rows[best.space.vector.var] = best.vectors * best.space.lanes
    factors = [1 if a.known else rows.get(a.var, 1) for a in facts.axes]
    if max(factors) == 1 or isinstance(sch.attempt(partial(sch.round_up, facts.rv, factors)), ScheduleError):
        return  # its inputs are not padded
    for each in producers:  # their rows in whole vectors
        whole = [1] * (len(facts_of(sch, each).axes) - 1)
        sch.attempt(partial(sch.round_up, each, [*whole, best.space.lanes]))


def _finish_pack(sch: Schedule, best: RegisterTile, pack: BlockRV) -> None:
    """Vectorize the packing. If the panel is transposed, tiles of lanes x lanes are transposed in registers."""
    read, lanes = best.space.packed, best.space.lanes
    assert read is not None
    if read.stride(best.space.vector) == 1:
        schedule_copy(sch, pack, lanes, skip=1)
        return
    loops = sch.get_loops(pack)[1:]
    place = _place_of(read, best)
    vector, line = loops[place], loops[-1]
    others = [x for i, x in enumerate(loops) if i not in (place, len(loops) - 1)]
    most, vector = sch.split(vector, [None, lanes])
    far, line = sch.split(line, [None, lanes])
    sch.reorder(*others, most, far, line, vector)
    sch.annotate(line, "transpose_lanes", 1)
    sch.vectorize(vector)


def _place_of(access: Access | None, best: RegisterTile) -> int:
    """The dimension of an access that the vector axis indexes."""
    place = None if access is None else access.dimension(best.space.vector)
    assert place is not None
    return place


def _split_rows(
    sch: Schedule, best: RegisterTile, loops: dict[Var, LoopRV]
) -> tuple[dict[Var, LoopRV], list[LoopRV]]:
    """The loops over tiles by axis, and the loops within a tile."""
    outs: dict[Var, LoopRV] = {}
    inner: list[LoopRV] = []
    for axis, t in zip(best.space.rows, best.tile, strict=True):
        loop = loops[axis.var]
        if t == 1:
            outs[axis.var] = loop
            continue
        outs[axis.var], within = sch.split(loop, [None, t])
        inner.append(within)
    return outs, inner


def _around(
    best: RegisterTile, outs: dict[Var, LoopRV], vo: LoopRV, machine: CpuMachine, cores: int
) -> tuple[list[LoopRV], int]:
    """The loops around a tile (the axes that all reads move with, then vectors outside rows or rows outside vectors),
    and how many of the outermost ones are fused into the parallel loop."""
    share = thread_share(best.space, machine, cores)
    loops = [outs[a.var] for a in best.space.rows]
    shared, rest = ([loops[a] for a in order] for order in best.space.row_order(int(share.first[0])))
    around = [*shared, vo, *rest] if best.vector_outer else [*shared, *rest, vo]
    return around, int(share.fused[0])


def _transpose(
    sch: Schedule, facts: Facts, best: RegisterTile, tail: BlockRV
) -> tuple[list[BlockRV], BlockRV]:
    """Make the accumulators contiguous along the vector axis, and transpose each tile to the layout of the result.

    Returns the blocks after the tile, in order, and the one that transposes: `tail` itself if it is only a copy, a
    copy after `tail` if that can work on the accumulators as they are, else a copy before it.
    """
    block = sch.realize(facts.rv).block
    stage, place = facts_of(sch, tail), _place_of(facts.write, best)

    def last(*axes: Any) -> list[Any]:
        return [a for i, a in enumerate(axes) if i != place] + [axes[place]]

    body = sch.realize(tail).block.body
    if isinstance(body, BufferStore) and isinstance(body.value, BufferLoad):
        after, transposer = [tail], tail
    elif _takes_vectors(stage, block.writes[0].buffer, place):
        transposer = sch.cache_write(tail, 0, "local")
        sch.transform_layout(tail, ("write", 0), last)
        after = [tail, transposer]
    else:
        reads = sch.realize(tail).block.reads
        index = next(i for i, r in enumerate(reads) if r.buffer is block.writes[0].buffer)
        transposer = sch.cache_read(tail, index, "local")
        after = [transposer, tail]
    sch.transform_layout(facts.rv, ("write", 0), last)
    return after, transposer


def _takes_vectors(stage: Facts, results: Buffer, place: int) -> bool:
    """Whether an epilogue can work on vectors of accumulators: its other reads (a bias, say) are constant along the
    last axis, and contiguous or constant along the vector axis."""
    write = stage.write
    if write is None or not all(i is a.var for i, a in zip(write.indices, stage.axes, strict=False)):
        return False
    across, line = stage.axes[place], stage.axes[-1]
    return all(
        r.buffer is results or (not r.moves(line) and (not r.moves(across) or r.stride(across) == 1))
        for r in stage.reads
    )


def _finish_transpose(
    sch: Schedule, facts: Facts, best: RegisterTile, transposer: BlockRV, skip: int
) -> None:
    """Transpose tiles of lanes x lanes in registers."""
    lanes, place = best.space.lanes, _place_of(facts.write, best)
    loops = sch.get_loops(transposer)[skip:]
    vector, line = loops[place], loops[-1]
    others = [x for i, x in enumerate(loops) if i not in (place, len(loops) - 1)]
    outer: list[LoopRV] = []
    if (extent_of(sch, vector) or lanes + 1) > lanes:
        most, vector = sch.split(vector, [None, lanes])
        outer.append(most)
    if (extent_of(sch, line) or lanes + 1) > lanes:
        most, line = sch.split(line, [None, lanes])
        outer.append(most)
    sch.reorder(*others, *outer, vector, line)
    for loop in (*others, *outer):
        sch.unroll(loop)
    sch.annotate(vector, "transpose_lanes", 1)
    sch.vectorize(line)


def _pack(sch: Schedule, facts: Facts, best: RegisterTile) -> BlockRV | None:
    """A packed copy of `best.space.packed`, if there is one: in panels if it is a constant, else contiguous along the
    vector axis."""
    read = best.space.packed
    if read is None:
        return None
    realize = sch.realize(facts.rv)
    index = next(i for i, r in enumerate(realize.block.reads) if r.buffer is read.buffer)
    pack = sch.cache_read(facts.rv, index, "global")
    for producer in sch.get_producers(pack):
        sch.attempt(partial(sch.compute_inline, producer))  # else the panel is filled from memory
    if best.space.pack_free:
        _panels(sch, facts, best, index)
    elif read.stride(best.space.vector) != 1:
        place = _place_of(read, best)

        def across(*axes: Any) -> list[Any]:
            return [a for i, a in enumerate(axes) if i != place] + [axes[place]]

        sch.transform_layout(facts.rv, ("read", index), across)
    return pack


def _panels(sch: Schedule, facts: Facts, best: RegisterTile, index: int) -> None:
    """Lay a constant out as [panel, everything else, lane], so that a tile reads it contiguously. If the vector axis is
    a part of a dimension, as the channels of one group are, each of these parts has panels of its own."""
    read, space = best.space.packed, best.space
    assert read is not None
    width, size = best.vectors * space.lanes, space.vector.extent
    place = _place_of(read, best)

    def parts(*axes: Any) -> list[Any]:
        return [*axes[:place], axes[place] // size, axes[place] % size, *axes[place + 1 :]]

    if read.indices[place] is not space.vector.var:
        sch.transform_layout(facts.rv, ("read", index), parts)
        place += 1

    def panels(*axes: Any) -> list[Any]:
        rest = [a for i, a in enumerate(axes) if i != place]
        return [axes[place] // width, *rest, axes[place] % width]

    sch.transform_layout(facts.rv, ("read", index), panels, pad_value=0)


def _finish_tail(sch: Schedule, tail: BlockRV, skip: int, lanes: int, along: int | None = None) -> None:
    """Schedule the loops that write a tile out: vectorized along axis `along` or the last one, the rest unrolled."""
    loops = sch.get_loops(tail)[skip:]
    if not loops:
        return
    if along is not None:
        loops = [x for i, x in enumerate(loops) if i != along] + [loops[along]]
        sch.reorder(*loops)
    last = extent_of(sch, loops[-1])
    rest = loops[:-1]
    if last is not None and last > 1:
        if last > lanes:
            most, within = sch.split(loops[-1], [None, lanes])
            sch.vectorize(within)
            rest.append(most)
        else:
            sch.vectorize(loops[-1])
    for loop in rest:
        size = extent_of(sch, loop)
        if size is not None and size <= 64:
            sch.unroll(loop)


def _attach(
    sch: Schedule,
    producer: BlockRV,
    best: RegisterTile,
    around: list[LoopRV],
    lanes: int,
    machine: CpuMachine,
) -> bool:
    """Compute a producer (padding, say) in each iteration of the outermost loop. It is left as a stage of its own if
    that would repeat too much of its work, or is not possible. Returns whether it is in the loop."""
    stage = facts_of(sch, producer)
    back = sch.way_back()
    move = partial(sch.compute_at, producer, around[0], preserve_unit_loops=True)
    if isinstance(sch.attempt(move), ScheduleError):
        return False
    extents = [extent_of(sch, x) for x in sch.get_loops(producer)]
    known = [n for n in extents if n is not None]
    again = math.prod(known) / stage.points if len(known) == len(extents) else _turns(best, stage)
    extra = max(0.0, again - 1) * stage.points * (stage.work + machine.fit.repeated_copy) / lanes
    if (extra <= machine.fit.repeated_work * best.cycles) is best.contrary:
        back()
        return False
    if not (best.space.window and _whole_rows(sch, producer, stage, machine)):
        schedule_copy(sch, producer, lanes, skip=1)
    return True


def _whole_rows(sch: Schedule, producer: BlockRV, stage: Facts, machine: CpuMachine) -> bool:
    """Write each row of a copy with one masked vector, where it fits in: windows then load parts of what one store
    wrote, which need not wait until it is in the cache. Returns whether rows fit in."""
    *others, line = sch.get_loops(producer)[1:]
    counts, size = [extent_of(sch, x) for x in others], extent_of(sch, line)
    if size is None or not 1 < size <= machine.lanes(stage.bits) or "avx512bw" not in machine.features:
        return False
    if not counts or None in counts or math.prod(n or 0 for n in counts) > _COPIED_ROWS:
        return False
    whole = 1 << (size - 1).bit_length()
    sch.storage_align(producer, 0, axis=-2, factor=whole, offset=0)
    sch.set_scope(producer, 0, "local")
    if whole > size:
        _, line = sch.split(line, [None, whole])
    for loop in others:
        sch.unroll(loop)
    sch.vectorize(line)
    return True


def _turns(best: RegisterTile, stage: Facts) -> float:
    """How often a producer of dynamic size is repeated: once for each turn of a loop over vectors that its elements do
    not depend on."""
    reads = [r for r in best.space.facts.reads if stage.write and r.buffer is stage.write.buffer]
    if not best.vector_outer or any(r.moves(best.space.vector) for r in reads):
        return 1.0
    return -(-best.space.vector.extent // (best.vectors * best.space.lanes))


def _apply_dot(sch: Schedule, facts: Facts, best: RegisterTile, parallel: bool, tail: BlockRV) -> None:
    """Schedule the dot form: vectors of partial sums (rfactor over the lanes), tiles of results, and at the end a sum
    over the lanes."""
    space, block = best.space, facts.rv
    loops = dict(zip([a.var for a in facts.axes], sch.get_loops(block), strict=True))
    _, lane = sch.split(loops[space.vector.var], [None, space.lanes])
    spatial = len(facts.spatial)
    partial = sch.rfactor(lane, factor_axis=spatial)
    sch.set_scope(partial, 0, "local")
    final = sch.get_loops(block)
    by_axis = dict(zip([a.var for a in facts.spatial], final[:spatial], strict=True))
    outs, inner = _split_rows(sch, best, by_axis)
    around = [outs[a.var] for a in space.rows]
    if not around:
        around = [sch.add_unit_loop(final[spatial])]
    sch.reorder(*around, *inner, final[spatial])
    fused = sch.fuse(*around) if len(around) > 1 else around[0]
    if parallel and extent_of(sch, fused) != 1:
        sch.parallel(fused)
    sch.compute_at(partial, fused, preserve_unit_loops=True)
    lanes_loop, *own = sch.get_loops(partial)[1:]
    rows, sums = own[:spatial], own[spatial:]
    sch.reorder(*sums, *rows, lanes_loop)
    for loop in rows:
        sch.unroll(loop)
    sch.vectorize(lanes_loop)
    for loop in inner:
        sch.unroll(loop)
    sch.annotate(final[spatial], "reduce_lanes", 1)
    sch.reverse_compute_at(tail, fused, preserve_unit_loops=True)
    _finish_tail(sch, tail, 1, space.lanes)
