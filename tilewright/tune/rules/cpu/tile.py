"""Register tiles: accumulators that stay in registers while a reduction runs (see tile_space.py).

    for tile of the results in parallel:
        for k:                                wins where   an element that is read serves several results
            acc[tile] += A[rows, k] * B[k, vectors]
        C[tile] = epilogue(acc[tile])         costs        loads and stalls of a step, panels that leave the caches

If the vector axis is a reduction axis, each accumulator is a vector of partial sums ("dot").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ....ir.buffer import Buffer
from ....ir.functor import vars_used
from ....target import Target
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV
from ...cost.cpu import bound_of, level_of
from ...cost.table import Array, Table, joined_tables
from ...program.facts import Axis, Facts, facts_of
from ...program.patterns import reuses
from ...program.stages import Stage
from ..features import tile_features
from ..rule import Applied, Match, Refusal, Row
from .tile_counts import tile_counts
from .tile_sketch import apply_tile, prepare_tile, prepared_facts
from .tile_space import RegisterTile, TileSpace, last_part, tile_spaces

__all__ = ["Tile", "tile_table"]

_UNROLLS = (1, 2, 4)
# Added to the predicted time of a row, as a fraction of it, for each doubling of the unrolling and for producers in the
# opposite place: of rows that are predicted alike, the simpler comes first.
_UNROLL_COST = 0.02
_CONTRARY_COST = 0.05
_END = ("vectors", "outer", "threads", "unroll", "contrary")


@dataclass(frozen=True, slots=True)
class _Found:
    """The facts that a block will have after the steps that prepare it, the epilogue, and all tiles."""

    facts: Facts
    consumer: BlockRV | None
    spaces: list[TileSpace]
    views: frozenset[Buffer]


class Tile:
    """A register tile with the epilogue of the results, or without it if a primitive refuses."""

    name = "tile"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f, program = stage.facts, stage.program
        if not stage.single or f.kind != "reduction" or not reuses(f):
            return Refusal("no element is reused for several results")
        consumer = program.fusable_consumer(f)
        fused = None if consumer is None else _matched(stage, target.cpu, consumer)
        if isinstance(fused, Match):
            return replace(fused, simpler=lambda: _matched(stage, target.cpu, None))
        return _matched(stage, target.cpu, None)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        facts, program = match.found.facts, match.stage.program
        spaces = match.found.spaces
        if only is not None:
            spaces = [one for s in spaces if (one := _restricted(s, only)) is not None]
        places = [not s.dot and bool(program.own_producers(facts, s.packed)) for s in spaces]
        return tile_table(facts, machine, spaces, only, places)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        found, program = match.found, match.stage.program
        facts, tail = prepare_tile(sch, match.stage.facts, found.consumer)
        spaces, values = tile_spaces(facts, match.machine, program.constants, found.views), row.values
        (space,) = [one for s in spaces if (one := _restricted(s, values)) is not None]
        tile = RegisterTile(space, row.seconds * match.machine.clock * 1e9, bool(values["contrary"]))
        program.load_words(facts.rv, space.packed)
        producers = program.own_producers(facts, space.packed)
        parallel = bool(values["threads"])
        fused = apply_tile(sch, facts, tile, parallel, tail, producers, match.machine)
        if values["unroll"] > 1:
            _unroll(sch, facts, values["unroll"])
        names = [sch.realize(p).block.name_hint for p in fused]
        after = None if found.consumer is None else sch.realize(found.consumer).block.name_hint
        note = _note(facts, tile, row, match.machine, after, names)
        left = tuple(p for p in producers if p not in fused)
        return Applied(note, "dot" if space.dot else "tile", beside=left)


def _matched(stage: Stage, machine: CpuMachine, consumer: BlockRV | None) -> Match | Refusal:
    program = stage.program
    facts = prepared_facts(stage.facts, None if consumer is None else facts_of(program.sch, consumer))
    views = frozenset(v.buffer for _, v in program.word_views(stage.facts.rv) if v.overlaps)
    spaces = [s for s in tile_spaces(facts, machine, program.constants, views) if len(s.vectors)]
    if not spaces:
        return Refusal("no axis can be vectorized")
    return Match(stage, machine, _Found(facts, consumer, spaces, views))


# ---------------------------------------------------------------------------- tables
def tile_table(
    facts: Facts,
    machine: CpuMachine,
    spaces: Sequence[TileSpace],
    only: Mapping[str, int] | None = None,
    places: Sequence[bool] = (),
) -> Table:
    """All tiles of all spaces, with and without threads; `places` tells which spaces have producers to place."""
    found = {id(s): p for s, p in zip(spaces, places, strict=False)}
    spaces = [s for s in spaces if len(s.vectors)]
    columns = ("vector", "packed", *(f"tile{i}" for i in range(len(facts.spatial))), *_END)
    shares: tuple[int, ...] = (0, 1) if machine.num_cores > 1 else (0,)
    if only is not None:
        shares = tuple(t for t in shares if t == only["threads"])
    parts = [
        Table(columns, _points(facts, s, columns, t), tile_counts(s, machine, bool(t)))
        for t in shares
        for s in spaces
    ]
    if not parts:
        return Table(columns, np.zeros((0, len(columns)), np.int64), {})
    if only is not None:
        parts[0].points[:, -2:] = only["unroll"], only["contrary"]
    operands = [facts.touched(r) for r in facts.accesses]
    made = replace(joined_tables(parts), operands=operands)
    return replace(made, finer=lambda: _finer(made, facts, spaces, shares, machine, found))


def _points(facts: Facts, space: TileSpace, columns: Sequence[str], threads: int) -> Array:
    """The decisions of a space: a tile of 0 stands for the vector axis, `packed` for the number of a read, from 1."""
    points = np.zeros((len(space.vectors), len(columns)), np.int64)
    points[:, 0] = _place(facts.axes, space.vector)
    points[:, 1] = 0 if space.packed is None else 1 + _place(facts.reads, space.packed)
    for i, axis in enumerate(space.rows):
        points[:, 2 + _place(facts.spatial, axis)] = space.tiles[:, i]
    points[:, -5], points[:, -4], points[:, -3], points[:, -2] = space.vectors, space.outer, threads, 1
    return points


def _place(of: Sequence[Any], one: Any) -> int:
    return next(i for i, x in enumerate(of) if x is one)


def _restricted(space: TileSpace, values: Mapping[str, int]) -> TileSpace | None:
    """The space with a single candidate; None if the decisions are for another space."""
    facts = space.facts
    packed = 0 if space.packed is None else 1 + _place(facts.reads, space.packed)
    if values["vector"] != _place(facts.axes, space.vector) or values["packed"] != packed:
        return None
    tile = [values[f"tile{_place(facts.spatial, axis)}"] for axis in space.rows]
    if min([*tile, values["vectors"]]) < 1:
        return None
    return replace(
        space,
        tiles=np.array([tile], np.int64).reshape(1, len(tile)),
        vectors=np.array([values["vectors"]]),
        outer=np.array([values["outer"]]),
    )


def _finer(
    table: Table,
    facts: Facts,
    spaces: Sequence[TileSpace],
    shares: Sequence[int],
    machine: CpuMachine,
    places: Mapping[int, bool],
) -> Table:
    """The same rows with each unrolling of the reduction; if a space has `places`, also with producers in the other."""
    blocks, chosen, points, prior, effort = [], [], [], [], []
    last, begin = facts.reduce[-1] if facts.reduce else None, 0
    for threads, space in product(shares, spaces):
        rows = np.arange(begin, begin + len(space.vectors))
        begin += len(rows)
        unrolls = _unrolls(last) if not space.dot and not space.window else [1]
        for u, contrary in product(unrolls, (0, 1) if places.get(id(space)) else (0,)):
            blocks.append((space, threads, u, contrary))
            chosen.append(rows)
            points.append(table.points[rows].copy())
            points[-1][:, -2:] = u, contrary
            prior.append(np.full(len(rows), 1 + _UNROLL_COST * math.log2(u) + _CONTRARY_COST * contrary))
            effort.append(_effort(space) + math.log2(1 + u / 4))
    at = np.concatenate(chosen)
    dearer = np.concatenate(prior) * table.count("prior")[at]
    counts = {name: table.count(name)[at] for name in table.counts}

    def shape(figures: Mapping[str, Array]) -> Array:
        out, start = [], 0
        for space, threads, u, contrary in blocks:
            part = slice(start, start := start + len(space.vectors))
            own = {k: v[part] for k, v in figures.items()}
            own["cycles"] = own["cycles"] / dearer[part]
            out.append(tile_features(space, own, machine, threads, u, contrary))
        return np.concatenate(out)

    return replace(
        table,
        points=np.concatenate(points),
        counts={**counts, "prior": dearer},
        shape=shape,
        effort=np.concatenate(effort),
        finer=None,
    )


def _effort(space: TileSpace) -> Array:
    """The estimated size of the code, as a logarithm: the accumulators of a tile, more if there is code for partial
    tiles at the end of an axis, and far more if three rows are transposed in registers: LLVM takes seconds for it."""
    code = np.maximum(8.0, space.vectors * space.tiles.prod(axis=1))
    for i, axis in enumerate(space.rows):
        tiles = space.tiles[:, i]
        code = code * np.where(last_part(axis, tiles, 0.0) > 0, 1.6, 1.0)
        if space.transposes:
            code = code * np.where(tiles == 3, 64.0, 1.0)
    return np.log2(code * np.where(last_part(space.vector, space.vectors * space.lanes, 0.0) > 0, 1.6, 1.0))


def _unrolls(axis: Axis | None) -> list[int]:
    """How many times the innermost reduction may be unrolled."""
    if axis is None or not axis.known:
        return [1]
    small = [axis.extent] if axis.extent in (3, 5) else []
    return [u for u in (*_UNROLLS, *small) if axis.extent % u == 0]


def _unroll(sch: Schedule, f: Facts, times: int) -> None:
    """Unroll the innermost loop of the reduction `times` times."""
    realize = sch.realize(f.rv)
    pairs = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    reduced = {v for iv, value in pairs if iv.iter_type == iv.CommReduce for v in vars_used(value)}
    loops = [x for x in sch.get_loops(f.rv) if x.var in reduced]
    _, inner = sch.split(loops[-1], [None, times])
    sch.unroll(inner)


# ---------------------------------------------------------------------------- for people
def _note(
    f: Facts, tile: RegisterTile, row: Row, machine: CpuMachine, after: str | None, before: list[str]
) -> dict[str, object]:
    """A register tile with the epilogue `after`; the stages `before` are computed inside its outermost loop."""
    space, figures, seconds = tile.space, row.figures, row.seconds
    operations = 2 * f.points
    touched = sum(f.touched(r) for r in f.accesses)
    return {
        "vector_axis": space.vector.var.name,
        "lanes": space.lanes,
        "tile": {a.var.name: t for a, t in zip(space.rows, tile.tile, strict=True) if t > 1},
        "vectors": tile.vectors,
        "accumulators": math.prod(tile.tile) * tile.vectors,
        "registers": int(figures["registers"]),
        "registers_there": machine.vector_registers,
        "loop_order": "vectors around rows" if tile.vector_outer else "rows around vectors",
        "packed": space.packed.buffer.name if space.packed is not None else None,
        "packed_before": space.pack_free,
        "fused_after": after,
        "fused_before": before,
        "panel_bytes": int(figures["panel"]),
        "panel_in": level_of(machine, figures["panel"]),
        "streamed_bytes": int(figures["streamed"]),
        "streamed_from": level_of(machine, figures["streamed"]),
        "parallel_units": int(figures["units"]) if row.values["threads"] else 1,
        "flop": operations,
        "intensity": round(operations / max(1, touched), 2),
        "bound": bound_of(figures, touched, machine),
        "predicted_us": round(seconds * 1e6, 2),
        "predicted_gflops": round(operations / max(seconds, 1e-12) / 1e9, 1),
        "candidates": row.candidates,
    }
