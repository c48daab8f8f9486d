"""The space of register tiles of a reduction block: all candidates, as arrays.

A register tile is a set of accumulators that stay in registers while the reduction runs:

                 nv vectors of the vector axis
               ┌────────┬────────┬────────┐
      t rows   │        │        │        │      for each point of the reduction:
      of other │  acc   │  acc   │  acc   │        every read that moves with the vector axis is a vector load,
      axes     │        │        │        │        every other read a broadcast,
               └────────┴────────┴────────┘        t · nv multiply-adds

The vector axis is a spatial one, or a reduction axis ("dot": each accumulator is a vector of partial sums).
Everything here is arithmetic on arrays: a candidate is a row, and nothing is scheduled or lowered for it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ....ir.buffer import Buffer
from ....ir.functor import vars_used
from ....target.machine import CpuMachine
from ...cost.table import Array
from ...program.facts import Access, Axis, Facts

__all__ = ["RegisterTile", "Share", "TileSpace", "last_part", "thread_share", "tile_spaces"]

_MAX_ROWS = 32
# Tiles of rows along a dynamic axis. Where inputs are padded, the last tile computes rows beyond the end as well.
_FEW_ROWS = (2, 4)
_FEW_POINTS = 32  # the most points of a window for those: for more, unrolled, LLVM takes too long
_WINDOW = 32  # the most points of a window that is unrolled
_WINDOW_TILE = 8  # the most accumulators with such a window: reused neighbours need registers too


@dataclass(frozen=True, slots=True)
class TileSpace:
    """The candidates for one vector axis.

    `rows` are the other spatial axes; `tiles[i, a]` is the number of values of `rows[a]` in a tile of candidate i,
    `vectors[i]` the number of vectors, `outer[i]` 1 if the loop over vectors is outside the loops over rows.
    """

    facts: Facts
    vector: Axis
    lanes: int
    dot: bool
    rows: tuple[Axis, ...]
    packed: Access | None  # the read that is packed into panels
    pack_free: bool  # it is a constant, packed at compile time
    transposes: bool  # the results are not contiguous along the vector axis
    window: bool  # the reduction is a small window, as of a depthwise convolution: it is unrolled
    tiles: Array
    vectors: Array
    outer: Array
    views: frozenset[Buffer] = frozenset()  # words that overlap: each vector of them is loaded and permuted

    def shared(self, axis: Axis) -> bool:
        """Whether all reads move with an axis: nothing is reused along it."""
        return all(r.moves(axis) for r in self.facts.reads)

    def row_order(self, first: int) -> tuple[list[int], list[int]]:
        """The loops over rows from the outside in, as numbers of `rows`: those along which nothing is reused, then the
        others, number `first` of these at the beginning. Dynamic ones come before the others."""
        order = sorted(range(len(self.rows)), key=lambda a: self.rows[a].known)
        shared = [a for a in order if self.shared(self.rows[a])]
        rest = [a for a in order if not self.shared(self.rows[a])]
        return shared, rest[first : first + 1] + rest[:first] + rest[first + 1 :]


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The only candidate of a space, and its predicted cycles. If `contrary`, producers are placed the opposite way of
    what these suggest: the tuner tries that."""

    space: TileSpace
    cycles: float
    contrary: bool = False

    @property
    def tile(self) -> list[int]:
        return [int(t) for t in self.space.tiles[0]]

    @property
    def vectors(self) -> int:
        return int(self.space.vectors[0])

    @property
    def vector_outer(self) -> bool:
        return bool(self.space.outer[0])


@dataclass(frozen=True, slots=True)
class Share:
    """The parallel loop of each candidate.

    Of the row axes along which a read is reused, number `first` is the outermost. Then the `fused` outermost loops
    around a tile are fused into one loop with `turns` iterations; the last of these costs `last` of a whole one. The
    busiest thread does the fraction `longest` of all work.
    """

    first: Array
    fused: Array
    turns: Array
    last: Array
    longest: Array


# Another order than that of the axes must reduce the work of the busiest thread below this fraction, since operands
# are laid out in the order of the axes.
_OTHER_FIRST = 0.97


def thread_share(space: TileSpace, machine: CpuMachine, cores: int) -> Share:
    """How `cores` threads share the work of each candidate."""
    least = machine.fit.partial_tile
    best = _share(space, cores, 0, least)
    if cores == 1 or space.dot:
        return best
    for first in range(1, sum(not space.shared(a) for a in space.rows)):
        other = _share(space, cores, first, least)
        better = (space.outer == 0) & (other.longest < _OTHER_FIRST * best.longest)
        best = Share(*[np.where(better, getattr(other, f), getattr(best, f)) for f in Share.__slots__])
    return best


def _share(space: TileSpace, cores: int, first: int, least: float) -> Share:
    """The share with row axis `first` outermost. A loop whose last tile is partial is not fused with others, so that
    whole tiles need no condition; a dynamic loop is not fused with those around it, so that no index is divided by its
    extent."""
    shared, rest = space.row_order(first)
    every = np.ones(len(space.vectors), dtype=bool)
    rows = [_turns(axis, space.tiles[:, a], least) for a, axis in enumerate(space.rows)]
    known = [np.full(len(every), axis.known) for axis in space.rows]
    loops: list[tuple[tuple[Array, Array], Array]] = [(rows[a], known[a]) for a in shared]
    if space.dot:
        loops += [(rows[a], known[a]) for a in rest]
    else:
        wide, outer = _turns(space.vector, space.vectors * space.lanes, least), space.outer == 1
        if rest:
            count, last = (np.where(outer, v, r) for v, r in zip(wide, rows[rest[0]], strict=True))
            fixed = np.where(outer, space.vector.known, known[rest[0]])
            loops += [((count, last), fixed), *[(rows[a], known[a] & ~outer) for a in rest[1:]]]
        else:
            loops.append((wide, (outer if shared else every) & space.vector.known))
    ones = np.ones(len(every))
    fused, turns, last, whole, open_ = ones.astype(np.int64), ones, ones, every, every
    for k, ((count, fraction), allowed) in enumerate(loops):
        # in the dot form all loops are fused
        joins = open_ & (allowed | (k == 0)) & ((whole & (fraction == 1)) | (turns == 1) | space.dot)
        fused = np.where(joins, k + 1, fused)
        last = np.where(joins, np.where(turns == 1, fraction, 1.0), last)
        turns = np.where(joins, turns * count, turns)
        whole, open_ = whole & (fraction == 1), joins
    rounds = np.ceil(turns / cores)
    alone = turns - (rounds - 1) * cores == 1  # only the partial iteration runs in the last round
    longest = (rounds - 1 + np.where(alone, last, 1.0)) / (turns - 1 + last)
    return Share(np.full(len(every), first), fused, turns, last, longest)


def _turns(axis: Axis, tile: Array, least: float) -> tuple[Array, Array]:
    """How many tiles cover an axis, and the cost of the last one as a fraction of a whole one."""
    rest = last_part(axis, tile, least)
    return -(-axis.extent // tile), np.where(rest > 0, rest, 1.0)


def last_part(axis: Axis, tile: Array, least: float) -> Array:
    """The cost of a partial tile at the end of an axis as a fraction of a whole one, 0 if there is none. The last tile
    of a dynamic axis is partial, half a tile on average."""
    rest = axis.extent % tile / tile if axis.known else np.where(tile > 1, 0.5, 0.0)
    return np.where(rest > 0, np.maximum(rest, least), 0.0)


def _row_tiles(facts: Facts, rows: tuple[Axis, ...]) -> Array:
    """All tiles of at most two axes, of at most 32 rows together.

    Along a dynamic axis every tile needs a version for the end of the axis. So only the last axis is tiled if it is
    dynamic, and that only where no size is known. Where windows overlap along a dynamic axis, there are tiles of a few
    rows, which share elements, and none of rows that share nothing: those are far apart, at addresses of their own.
    """
    found = {(1,) * len(rows)}
    points = math.prod(a.extent if a.known else _FEW_POINTS + 1 for a in facts.reduce)
    windows = [not a.known and a.extent > 1 and _slides(facts, a) for a in rows]
    known = [a.known and a.extent > 1 for a in rows]
    free = known if any(known) else [a is rows[-1] for a in rows]
    for a, axis in enumerate(rows):
        if windows[a] and points <= _FEW_POINTS:
            found.update(tuple(t if b == a else 1 for b in range(len(rows))) for t in _FEW_ROWS)
        if not free[a] or (any(windows) and all(r.moves(axis) for r in facts.reads)):
            continue
        for t in range(1, min(axis.extent, _MAX_ROWS) + 1):
            one = [1] * len(rows)
            one[a] = t
            found.add(tuple(one))
            for b, other in enumerate(rows):
                if b == a or not free[b]:
                    continue
                for u in range(2, min(other.extent, _MAX_ROWS // t, 8) + 1):
                    two = list(one)
                    two[b] = u
                    found.add(tuple(two))
    return np.array(sorted(found), dtype=np.int64).reshape(len(found), len(rows))


def tile_spaces(
    facts: Facts, machine: CpuMachine, constants: frozenset[Buffer], views: frozenset[Buffer] = frozenset()
) -> list[TileSpace]:
    """The spaces of each axis that can be the vector axis: one for each choice of the packed read.

    `constants` are packed at compile time; `views` are views of other tensors as words that overlap.
    """
    assert facts.write is not None
    out: list[TileSpace] = []
    lanes = facts.lanes(machine)
    for axis in facts.axes:
        if axis.extent == 1:
            continue
        width = lanes
        while axis.known and width > 2 and width // 2 >= axis.extent:
            width //= 2
        moving = [r for r in facts.reads if r.moves(axis)]
        if any(r.stride(axis) is None for r in moving):
            continue
        rows = tuple(a for a in facts.spatial if a is not axis)
        far = [r for r in moving if r.stride(axis) != 1 and r.buffer not in views]
        if axis.reduce:
            if far or not moving or axis.extent < width:
                continue
            spaces: list[tuple[Access | None, bool]] = [(None, False)]
            transposes = False
        else:
            across = facts.write.stride(axis)
            if across is None:
                continue
            transposes = across != 1
            packable = [r for r in moving if r.buffer not in views]
            spaces = _packings(facts, axis, packable, far, constants)
        tiles = _row_tiles(facts, rows)
        for packed, free in spaces:
            most = 1 if axis.reduce else min(8, -(-axis.extent // width))
            counts = np.arange(1, most + 1)
            orders = np.array([0, 1]) if not axis.reduce else np.array([0])
            t, v, o = _product(tiles, counts, orders)
            size = t.prod(axis=1) * v
            window = packed is None and not transposes and _is_window(facts, axis)
            keep = size <= (_WINDOW_TILE if window else 2 * machine.vector_registers)
            if window and any(a.extent > 1 for a in rows):  # else threads share the vectors
                keep &= o == 0
            if window and not axis.known and t.max(initial=1) > 1:
                keep &= v == 1
            if packed is not None and not free:
                keep &= o == 1
            out.append(
                TileSpace(
                    facts,
                    axis,
                    width,
                    axis.reduce,
                    rows,
                    packed,
                    free,
                    transposes,
                    window,
                    t[keep],
                    v[keep],
                    o[keep],
                    views,
                )
            )
    return out


def _is_window(facts: Facts, vector: Axis) -> bool:
    """Whether an element is reused only by neighbouring results, as in a depthwise convolution or a pooling."""
    if vector.reduce or any(not a.known for a in facts.reduce):
        return False
    points = int(np.prod([a.extent for a in facts.reduce], dtype=np.int64))
    moving = [r for r in facts.reads if r.moves(vector)]
    return 1 < points <= _WINDOW and all(r.moves(a) for r in moving for a in facts.spatial if a.extent > 1)


def _slides(facts: Facts, axis: Axis) -> bool:
    """Whether windows of neighbours along an axis overlap: an index moves with it and with a reduction."""
    reduced = {a.var for a in facts.reduce if a.extent > 1}
    return not axis.reduce and any(
        axis.var in names and not reduced.isdisjoint(names)
        for r in facts.reads
        for names in map(vars_used, r.indices)
    )


def _packings(
    facts: Facts, axis: Axis, moving: list[Access], far: list[Access], constants: frozenset[Buffer]
) -> list[tuple[Access | None, bool]]:
    """The choices of a read to pack into panels (None: no packing), each with whether it is a constant."""
    if len(far) > 1:
        return []
    if far:
        if far[0].dimension(axis) is None:
            return [(None, False)]  # a copy would not be contiguous either
        return [(far[0], far[0].buffer in constants)]
    # packing pays only for a read that is reused along some row axis
    others = [a for a in facts.spatial if a is not axis and a.extent > 1]
    shared = [r for r in moving if any(not r.moves(a) for a in others)]
    free = [r for r in shared if r.buffer in constants and r.dimension(axis) is not None]
    if free:
        return [(free[0], True)]
    return [(None, False)] + ([(shared[0], False)] if shared else [])


def _product(tiles: Array, counts: Array, orders: Array) -> tuple[Array, Array, Array]:
    n, c, o = len(tiles), len(counts), len(orders)
    t = np.repeat(tiles, c * o, axis=0)
    v = np.tile(np.repeat(counts, o), n)
    return t, v, np.tile(orders, n * c)
