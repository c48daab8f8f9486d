"""Sums of products with quantized weights, whose scales and zero points belong to blocks of steps.

    for panel of weights in parallel:
        for rows of the data, some at a time:            wins where   the weights come from memory: they stay narrow
            for block of steps:
                for words of the block:
                    sums[tile] += x * float32(bits)      costs        a shift, a mask and a conversion for each vector
                acc[tile] += scale * (sums[tile] - zero * sum of x)
            C[tile] = epilogue(acc[tile])

The weights become floats in registers (`split_scales`, `pack_bits`). Panels of words, scales and zero points are
contiguous; those of constants are made when the program is compiled. Where the data has integers of 8 bits too, sums of
blocks are integers, of four products in an instruction (`pack_dot_bits`):

                for four steps of the block:
                    sums[tile] = dp4a(word of x, bits as bytes)
                acc[tile] += scale * scale of x * (float32(sums[tile]) - zero * sum of x)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ....ir.expr import BufferLoad, PrimExpr, Var
from ....ir.functor import pre_order, rewrite, substitute, vars_used
from ....ir.stmt import Block, BufferStore
from ....target import Target
from ....target.dot_products import multiplies_bytes
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.library.scales import (
    FewBits,
    ScaledSum,
    block_sizes,
    few_bits_of,
    scaled_sum_of,
)
from ....tir.schedule.primitive import BlockRV
from ...cost.table import Table
from ...program.facts import Axis, Facts, facts_of
from ...program.patterns import reuses
from ...program.stages import Stage
from ..features import simple_features
from ..rule import Applied, Match, Refusal, Row

__all__ = ["ScaledBlocks"]

_SPARE = 8  # registers for unpacked weights, masks and broadcast elements
_ROWS = (1, 2, 3, 4, 5, 6, 8)
_VECTORS = (1, 2, 3, 4, 6)
_WORD = 32


@dataclass(frozen=True, slots=True)
class _Found:
    sum: ScaledSum
    few: FewBits
    step: Axis
    line: Axis  # the axis along which vectors of weights lie
    weights: BlockRV | None  # the stage that makes floats of the weights
    consumer: BlockRV | None
    dot: bool = False  # the data has integers too, which are multiplied four at a time

    @property
    def together(self) -> int:
        """The steps of a multiply-add."""
        return 4 if self.dot else 1

    @property
    def per_word(self) -> int:
        """The multiply-adds of a word; as floats, integers of 8 bits are loaded as they are."""
        return _WORD // self.few.bits // self.together if self.few.bits < 8 else 1


class ScaledBlocks:
    """Tiles of rows and vectors of weights, which are unpacked in registers."""

    name = "scaled blocks"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f, program = stage.facts, stage.program
        if not stage.single or f.kind != "reduction" or not reuses(f):
            return Refusal("no element is reused for several results")
        steps = [a for a in f.reduce if a.extent > 1]
        if len(steps) != 1 or not steps[0].known:
            return Refusal("its sum has several axes, or a dynamic size")
        found = _quantized(stage, steps[0])
        if isinstance(found, str):
            return Refusal(found)
        found = replace(found, dot=_multiplies_bytes(found, target))
        consumer = program.fusable_consumer(f)
        if consumer is None:
            return Match(stage, target.cpu, found)
        plain = Match(stage, target.cpu, found)
        return Match(stage, target.cpu, replace(found, consumer=consumer), simpler=lambda: plain)

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        f, found = match.stage.facts, match.found
        rows = _rows(f, found)
        most = rows[-1].extent if rows else 1
        tiles = [r for r in _ROWS if r == 1 or r <= most] if rows else [1]
        shares = (0, 1) if machine.num_cores > 1 else (0,)
        held = [(r, v) for v in _VECTORS for r in tiles if r * v + v + _SPARE <= machine.vector_registers]
        points = np.array([(r, v, t) for t in shares for r, v in held or [(1, 1)]], np.int64)
        if only is not None:
            chosen = [only["rows"], only["vectors"], only["threads"]]
            points = points[(points == chosen).all(axis=1)]
        return _counted(match, machine, points)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        return _apply(sch, match, row)


# ---------------------------------------------------------------------------- what is computed
def _multiplies_bytes(found: _Found, target: Target) -> bool:
    """Whether the data and the weights of a sum are multiplied as bytes."""
    held, machine = found.sum, target.cpu
    if held.integers is None or found.few.signed or held.size % (_WORD // found.few.bits):
        return False
    return target.has("dot_products") and multiplies_bytes(machine.features, machine.lanes(_WORD))


def _quantized(stage: Stage, step: Axis) -> _Found | str:
    """The quantized weights of a sum, or why it has none."""
    f, program = stage.facts, stage.program
    made = None
    block = f.block
    for rv in program.producers(f.rv):
        p = facts_of(program.sch, rv)
        if p.kind != "injective" or rv.key in program.done or program.is_output(p):
            continue
        if len(program.consumers(rv)) == 1 and any(not r.buffer.dtype.is_float for r in p.reads):
            made, block = rv, _inlined(block, p.block)
            break
    (iterator,) = [iv for iv in block.iter_vars if iv.var is step.var]
    why = ""
    for size in block_sizes(block, iterator):
        scaled = scaled_sum_of(block, iterator, size)
        if isinstance(scaled, str):
            continue
        found = _in_vectors(f, scaled, step)
        if not isinstance(found, str):
            return replace(found, weights=made)
        why = why or found
    return why or "its factors have no scale for each block of steps"


def _in_vectors(f: Facts, scaled: ScaledSum, step: Axis) -> _Found | str:
    """The sum with vectors of weights, or why there are none."""
    held = f.block.replace(body=BufferStore(scaled.sum.buffers[0], scaled.quantized, scaled.sum.indices))
    few = few_bits_of(held, scaled.inside)
    if isinstance(few, str):
        return f"it {few}"
    moved = [a for a in f.spatial if a.var in vars_used(few.value) and a.extent > 1]
    if len(moved) != 1 or moved[0].var in vars_used(scaled.data):
        return "its weights move along several axes of the result, or its data moves with them"
    (line,) = moved
    if f.write is None or f.write.stride(line) != 1 or not line.known:
        return "neighbouring results have no neighbouring weights"
    if few.bits < 8 and scaled.size % (_WORD // few.bits):
        return f"blocks of {scaled.size} steps are no whole words"
    return _Found(scaled, few, step, line, None, None)


def _inlined(block: Block, producer: Block) -> Block:
    """A block with the elements of a producer as their expressions."""
    store = producer.body
    assert isinstance(store, BufferStore)
    names = [i for i in store.indices if isinstance(i, Var)]

    def element(n: BufferLoad) -> PrimExpr | None:
        if n.buffer is not store.buffer or len(names) != len(store.indices):
            return None
        return substitute(store.value, dict(zip(names, n.indices, strict=True)))

    return block.replace(body=rewrite(block.body, {BufferLoad: element}))


def _rows(f: Facts, found: _Found) -> list[Axis]:
    return [a for a in f.spatial if a is not found.line]


# ---------------------------------------------------------------------------- what it costs
def _counted(match: Match, machine: CpuMachine, points: Any) -> Table:
    f, found, fit = match.stage.facts, match.found, machine.fit
    lanes, rows = machine.lanes(32), _rows(f, found)
    tile, vectors, threads = points[:, 0], points[:, 1], points[:, 2]
    whole = math.prod(a.extent for a in rows)
    last = rows[-1].extent if rows else 1
    turns = whole // last * -(-last // tile)  # tiles of rows
    panels = -(-found.line.extent // (vectors * lanes))
    steps, size = found.step.extent, found.sum.size
    every = np.ones(len(points))
    # bytes of the weights of a panel, with their scales
    panel = vectors * lanes * (steps * found.few.bits / 8 + steps / size * _scale_bytes(found))
    data = whole * steps * (1 if found.dot else 4)
    counts = {
        "tiles": panels * turns,
        "steps": steps / found.together * every,
        "multiply_adds": tile * vectors,
        # unpacking is beside multiply-adds: together they wait for the vector units
        "operations": vectors
        * (fit.unpacked_vector * (0.5 if found.dot else 1) + tile * fit.unpacked_beside),
        "vector_loads": vectors / found.per_word,
        "scalar_loads": tile,
        "registers": tile * vectors + vectors + _SPARE,
        "finish": steps / size * (tile * vectors * fit.scaled_vector + fit.row_entry) + fit.tile_entry,
        "near_bytes": panel * (turns > 1),
        "near_set": panel,
        "far_bytes": tile * steps * (1.0 if found.dot else 4.0),
        "far_set": every * data,
        "threads": threads,
        "longest": np.ceil(panels / machine.num_cores) / panels,
        "launches": every,
        "units": panels,
        "prefetched": every,
        "prior": every * fit.narrow_gain,
        "margin": every * (fit.parallel_margin * (1 - 1 / machine.num_cores) - 1),
    }
    weights = found.line.extent * (steps * found.few.bits / 8 + steps / size * _scale_bytes(found))

    def shape(figures: Mapping[str, Any]) -> Any:
        bits = np.stack([every * machine.preferred_vector_bits, threads], axis=1)
        return simple_features(f, bits, figures["cycles"] / (machine.clock * 1e9), threads)

    operands = [weights, data, whole * found.line.extent * 4]
    return Table(
        ("rows", "vectors", "threads"), points, counts, operands=operands, margins=("prior",), shape=shape
    )


def _scale_bytes(found: _Found) -> int:
    parts = [found.sum.scale, *([found.sum.zero] if found.sum.zero is not None else [])]
    return sum(m.buffer.dtype.nbytes for e in parts for m in pre_order(e) if isinstance(m, BufferLoad))


# ---------------------------------------------------------------------------- how it is scheduled
def _apply(sch: Schedule, match: Match, row: Row) -> Applied:
    f, found, machine = match.stage.facts, match.found, match.machine
    tile, vectors, parallel = (row.values[x] for x in ("rows", "vectors", "threads"))
    lanes = machine.lanes(32)
    if found.weights is not None:
        sch.compute_inline(found.weights)
    loops = dict(zip([a.var for a in f.axes], sch.get_loops(f.rv), strict=True))
    sums, *data, whole = sch.split_scales(f.rv, loops[found.step.var], found.sum.size, found.dot)
    if found.dot:
        sch.pack_dot_bits(sums, sch.get_loops(sums)[-1])
    elif found.per_word > 1:
        sch.pack_bits(sums, sch.get_loops(sums)[-1])
    if found.consumer is None:
        tail = sch.cache_write(whole, 0, "local")
    else:
        sch.set_scope(whole, 0, "local")
        tail = found.consumer
    sch.set_scope(sums, 0, "local")
    place = f.spatial.index(found.line)
    _, *own = [iv.var for iv in sch.realize(sums).block.iter_vars]
    _panels(sch, sums, own[place], vectors * lanes)
    _panels(sch, whole, found.line.var, vectors * lanes)
    loops = dict(zip([a.var for a in f.axes], sch.get_loops(whole), strict=True))
    panel, *line = sch.split(loops[found.line.var], [None, vectors, lanes])
    rows = _rows(f, found)
    around, inner = [loops[a.var] for a in rows], []
    if rows and tile > 1:
        around[-1], within = sch.split(around[-1], [None, tile])
        inner = [within]
    sch.reorder(panel, *around, loops[found.step.var], *inner, *line)
    last = around[-1] if around else panel
    if parallel:
        sch.parallel(panel)
    for loop in (*inner, line[0]):
        sch.unroll(loop)
    sch.vectorize(line[1])
    sch.reverse_compute_at(tail, last, preserve_unit_loops=True)
    sch.compute_at(sums, loops[found.step.var], preserve_unit_loops=True)
    _finish_sums(sch, f, found, sums, 2 + len(around), lanes)
    _finish_tail(sch, tail, 1 + len(around), lanes)
    after = None if found.consumer is None else sch.realize(found.consumer).block.name_hint
    note = {
        "bits": found.few.bits,
        "data_bits": 8 if found.dot else 32,
        "block": found.sum.size,
        "rows": tile,
        "vectors": vectors,
        "parallel": bool(parallel),
        "fused_after": after,
    }
    keys = tuple(b.key for b in data)
    return Applied(note, keys=keys, undecided=keys)


def _panels(sch: Schedule, block: BlockRV, line: Var, width: int) -> None:
    """Lay what a block reads along the vectors of weights out as [panel, everything else, lane]."""
    for index, region in enumerate(sch.realize(block).block.reads):
        places = [d for d, r in enumerate(region.region) if line in vars_used(r.min)]
        if len(places) != 1 or region.buffer.scope() == "local":
            continue
        (place,) = places
        pack = sch.cache_read(block, index, "global")
        for producer in sch.get_producers(pack):
            sch.attempt(partial(sch.compute_inline, producer))

        sch.transform_layout(block, ("read", index), _in_panels(place, width), pad_value=0)


def _in_panels(place: int, width: int) -> Callable[..., list[Any]]:
    def panels(*axes: Any) -> list[Any]:
        rest = [a for i, a in enumerate(axes) if i != place]
        return [axes[place] // width, *rest, axes[place] % width]

    return panels


def _finish_sums(sch: Schedule, f: Facts, found: _Found, sums: BlockRV, skip: int, lanes: int) -> None:
    """The sums of a block of steps: words of a vector of weights, and rows that take them."""
    _, *spatial, steps = sch.get_loops(sums)[skip:]
    at = f.spatial.index(found.line)
    line, rows = spatial[at], [x for i, x in enumerate(spatial) if i != at]
    words, within = sch.split(steps, [None, max(found.per_word, _WORD // found.few.bits // found.together)])
    several, lane = sch.split(line, [None, lanes])
    sch.reorder(words, several, within, *rows, lane)
    for loop in (several, within, *rows):
        sch.unroll(loop)
    sch.vectorize(lane)


def _finish_tail(sch: Schedule, tail: BlockRV, skip: int, lanes: int) -> None:
    *rows, line = sch.get_loops(tail)[skip:]
    several, lane = sch.split(line, [None, lanes])
    for loop in (*rows, several):
        sch.unroll(loop)
    sch.vectorize(lane)
