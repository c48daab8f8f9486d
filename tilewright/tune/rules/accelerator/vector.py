"""Elementwise stages and poolings on a vector unit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.expr import BufferLoad, Call, Cast, PrimExpr, Select, const_value
from ....ir.op import Op
from ....ir.stmt import BufferStore
from ....target import Target
from ....target.accelerator import DRAM, Accelerator, Scope, VectorUnit
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ...cost.table import Table
from ...program.facts import Access, Axis, Facts
from ...program.stages import Stage, Stages
from ..rule import Applied, Match, Refusal, Row
from .figures import chip_figures, chip_table, held, loaded
from .steps import DMA, VECTOR, Steps
from .tiles import Moved, dims_of, is_copy, is_tiling, sizes_of_tiles, thread_axes, transfer

_MOST = 20000  # rows of a table
_VERSIONS = (1, 2)  # versions of each buffer, if there are no virtual threads
_IF = Op.get("tir.if_then_else")


@dataclass(frozen=True)
class _Found:
    """A group of stages that ends in an output: their tiles stay in the memory of a vector unit."""

    unit: VectorUnit
    scope: Scope
    outer: tuple[Axis, ...]  # axes of the output around the lanes of an element
    lanes: int  # axes of the output that are the lanes of an element
    inputs: tuple[Facts, ...]  # stages that only copy or pad an argument: transfers
    inlined: tuple[Facts, ...]  # copies that belong to such a transfer
    vectors: tuple[Facts, ...]  # stages of the vector unit, in order
    copies_out: bool  # the output is a copy of the last one
    output_bytes: int  # bytes of an element of the output in DRAM


class Vector:
    """Tiles of all stages between the inputs and an output stay on the chip; engines work side by side.

    for tiles of the output:
        a = A[tile]; b = B[tile]                    load
        c = a + b; d = max(c, 0)                    compute, vector by vector
        D[tile] = d                                 store

    wins where   there are no products, so that the DRAM port is the limit
    costs        each input is read once, each output written once
    """

    name = "vector"
    needs: frozenset[str] = frozenset({"vector_unit"})

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        chip = target.accelerator
        why = "the chip has no vector unit"
        for unit in chip.vector_units:
            found = _match(stage, chip, unit)
            if isinstance(found, _Found):
                return Match(stage, chip, found)
            why = found
        return Refusal(why, near=True)

    def table(self, match: Match, machine: Accelerator, only: Mapping[str, int] | None = None) -> Table:
        found: _Found = match.found
        columns = (*(f"tile{i}" for i in range(len(found.outer))), "threads", "axis", "versions")
        return chip_table(
            columns,
            only,
            lambda row: _is_row(row, found),
            lambda: _points(found),
            lambda points: _counts(found, machine, points),
        )

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        made = _Build(sch, match, row).run()
        tile = " x ".join(str(row.values[f"tile{i}"]) for i in range(len(match.found.outer)))
        note: dict[str, object] = {"tile": f"{tile} elements", "virtual threads": row.values["threads"]}
        table = self.table(match, match.machine, row.values)
        return Applied(note, done=tuple(made), figures=chip_figures(table, row, match.machine))


# ---------------------------------------------------------------------------- match
def _match(stage: Stage, chip: Accelerator, unit: VectorUnit) -> _Found | str:
    program, last, group = stage.program, stage.facts, stage.chain
    if not program.is_output(last):
        return "it is not the end of a group of stages"
    scope = chip.scope(unit.scope)
    assert scope is not None
    if any(not a.known for f in group for a in f.axes):
        return "a size is not constant"
    lanes, count = 1, 0
    for a in reversed(last.spatial):
        if lanes >= scope.lanes:
            break
        lanes, count = lanes * a.extent, count + 1
    if lanes != scope.lanes:
        return f"its last axes do not have the {scope.lanes} lanes of an element of {scope.name}"
    inputs, inlined, vectors = [], [], []
    for f in group:
        if f.kind not in ("injective", "reduction"):
            return f"{f.name} is not computed element by element"
        readers = program.consumers(f.rv)
        if f is not last and copies(f) and not program.producers(f.rv):
            inputs.append(f)
        elif f is not last and copies(f) and len(readers) == 1 and _only_inputs(program, f, inputs):
            before = [i for i in inputs if i.rv.key in {p.key for p in program.producers(f.rv)}]
            for i in before:
                inputs.remove(i)
                inlined.append(i)
            inputs.append(f)
        elif f is not last or not is_copy(f):
            vectors.append(f)
    for f in (*inputs, *vectors):
        if (
            f.write is not None
            and f.write.buffer is not _written(last)
            and str(f.write.buffer.dtype) != scope.dtype
        ):
            return f"{f.name} is {f.write.buffer.dtype}, and the vector unit computes with {scope.dtype}"
    for f in vectors:
        other = _other_lanes(f, count)
        if other:
            return f"{f.name} does not read {other} lane by lane"
    out = is_copy(last)
    if not out and str(_written(last).dtype) != scope.dtype:
        return f"{last.name} computes {_written(last).dtype}, and the vector unit {scope.dtype}"
    if out and not vectors and not inputs:
        return "it only copies"
    outer = tuple(last.spatial[: len(last.spatial) - count])
    nbytes = scope.lanes * _written(last).dtype.nbytes
    return _Found(unit, scope, outer, count, tuple(inputs), tuple(inlined), tuple(vectors), out, nbytes)


def _other_lanes(f: Facts, count: int) -> str:
    """The operand whose last `count` indices are not the lanes that a stage computes; empty if there is none."""
    lanes = [a.var for a in f.spatial[len(f.spatial) - count :]]  # none, if elements are scalars
    for r in f.reads:
        last = r.indices[len(r.indices) - count :]
        if len(r.indices) < count or any(i is not v for i, v in zip(last, lanes, strict=True)):
            return str(r.buffer.name)
    return ""


def _written(f: Facts) -> Any:
    assert f.write is not None
    return f.write.buffer


def copies(f: Facts) -> bool:
    """Whether a transfer can compute a stage: it copies elements, or pads them with zeros."""
    if f.kind != "injective" or not isinstance(f.block.body, BufferStore):
        return False
    value = _converted(f.block.body.value)
    if isinstance(value, Call) and value.op is _IF and const_value(value.args[2]) == 0:
        value = _converted(value.args[1])
    elif isinstance(value, Select) and const_value(value.false_value) == 0:
        value = _converted(value.true_value)
    return isinstance(value, BufferLoad)


def _converted(e: PrimExpr) -> PrimExpr:
    while isinstance(e, Cast):
        e = e.value
    return e


def _only_inputs(program: Stages, f: Facts, inputs: list[Facts]) -> bool:
    """Whether a stage reads only stages that are transfers themselves, and is their only reader."""
    known = {i.rv.key for i in inputs}
    producers = program.producers(f.rv)
    return all(p.key in known and len(program.consumers(p)) == 1 for p in producers)


# ---------------------------------------------------------------------------- counts
def _points(found: _Found) -> Any:
    """All rows: the tile of each axis, virtual threads and their axis, versions."""
    rows: list[tuple[int, ...]] = []
    for t in sizes_of_tiles(found.outer, _MOST // 8):
        rows += [(*t, 1, 0, versions) for versions in _VERSIONS]
        rows += [(*t, 2, i, 1) for i in thread_axes(found.outer, t)]
    return np.array(rows, np.int64).reshape(-1, len(found.outer) + 3)


def _is_row(row: list[int], found: _Found) -> bool:
    threads, _, versions = row[-3:]
    return is_tiling(found.outer, found.outer, row) and versions in (_VERSIONS if threads == 1 else (1,))


def _counts(found: _Found, chip: Accelerator, points: Any) -> tuple[dict[str, Any], Any]:
    """The counts of each row, and whether its tiles fit the memory of the unit."""
    unit, scope = found.unit, found.scope
    sizes = [a.extent for a in found.outer]
    spans = [points[:, i] for i in range(len(sizes))]
    threads, _, versions = points[:, len(sizes) :].T
    tiles = np.prod([np.ones(len(points)), *(n // t for n, t in zip(sizes, spans, strict=True))], axis=0)
    results = np.prod([np.ones(len(points)), *spans], axis=0)
    whole = math.prod(sizes) * scope.lanes
    vectors = results * sum(f.points / whole for f in found.vectors)
    cycles = chip.vector_cycles(unit)
    compute = sum(_vector_cycles(f, *cycles) * f.points / whole for f in found.vectors) * results
    compute = compute + 2 * len(found.vectors) * unit.depth
    out = transfer(spans, sizes, scope, chip, found.output_bytes)
    widths = [scope.lanes * _source(f, found).dtype.nbytes for f in found.inputs]
    moved = [_input(f, found, chip, spans, w) for f, w in zip(found.inputs, widths, strict=True)]
    for f, r in _arguments(found):
        moved.append(_argument(f, r, found, chip, spans))
        widths.append(scope.element_bytes)
    port, load = sum(m.port for m in moved), sum(m.engine for m in moved)
    nbytes = sum(m.elements * w for m, w in zip(moved, widths, strict=True))
    doubled = np.maximum(threads, versions)
    incoming = chip.transfer(DRAM, scope.name)
    own = incoming is not None and incoming.engine == unit.engine  # the unit waits for its own transfers …
    if own:
        compute = compute + load
    # … and for the port, while the tile before is stored.
    exposed = np.where(doubled == 2, out.port * own, out.engine + load * (not own))
    taken = np.ceil(sum(m.elements for m in moved) + results * _stages(found)) * doubled
    counts = {
        "compute": tiles * compute,
        "load": tiles * port,
        "store": tiles * out.port,
        "loading": tiles * load,
        "storing": tiles * out.engine,
        "exposed": np.maximum(0, tiles - 1) * exposed,
        "first": load * (not own),
        "last": out.engine,
        "vectors": tiles * vectors,
        loaded(scope.memory): tiles * nbytes,
        "stored bytes": tiles * results * found.output_bytes,
        held(scope.memory): taken * scope.element_bytes,
    }
    return counts, taken <= scope.elements


def _vector_cycles(f: Facts, near: float, far: float) -> float:
    """Cycles for each vector of a stage, which reads one vector or two: a reduction reads its result, too."""
    return far if len(f.reads) > 1 or f.kind == "reduction" else near


def _stages(found: _Found) -> float:
    """Elements of the vector stages for each element of the output."""
    whole = math.prod(a.extent for a in found.outer) * found.scope.lanes
    return sum(math.prod(a.extent for a in f.spatial) for f in found.vectors) / whole


def _source(f: Facts, found: _Found) -> Any:
    """The argument that a transfer reads, through the copies that are inlined into it."""
    source = f.reads[0].buffer
    for i in reversed(found.inlined):
        source = i.reads[0].buffer if _written(i) is source else source
    return source


def _input(f: Facts, found: _Found, chip: Accelerator, spans: list[Any], nbytes: int) -> Moved:
    """The transfer of a stage that copies or pads an argument, for a tile of the output."""
    scope, around = found.scope, f.spatial[: len(f.spatial) - found.lanes]
    if len(around) != len(found.outer):  # it is broadcast, or has another shape: a part of its elements
        part = np.prod(spans, axis=0) / math.prod(a.extent for a in found.outer)
        count = math.prod(a.extent for a in f.spatial) // scope.lanes
        return transfer([np.ceil(part * count)], [count], scope, chip, nbytes)
    parts = [np.ceil(t * (a.extent / o.extent)) for t, a, o in zip(spans, around, found.outer, strict=True)]
    return transfer(parts, [a.extent for a in around], scope, chip, nbytes)


def _arguments(found: _Found) -> list[tuple[Facts, Access]]:
    """The reads of arguments by vector stages, each of which is a transfer."""
    made = {_written(f) for f in (*found.inputs, *found.vectors)}
    return [(f, r) for f in found.vectors for r in f.reads if r.buffer not in made]


def _argument(f: Facts, r: Access, found: _Found, chip: Accelerator, spans: list[Any]) -> Moved:
    """The transfer of the elements of an argument that a stage reads for a tile of the output."""
    scope, around, dims = found.scope, f.spatial[: len(f.spatial) - found.lanes], dims_of(r, f.axes)
    if dims is None or len(around) != len(found.outer):  # a part of its elements
        count = math.prod(int(const_value(n) or 1) for n in r.buffer.shape) // scope.lanes
        part = np.prod(spans, axis=0) / math.prod(a.extent for a in found.outer)
        return transfer([np.ceil(part * count)], [count], scope, chip, scope.element_bytes)
    tile: dict[Any, Any] = {a.var: a.extent for a in f.axes}
    for a, o, t in zip(around, found.outer, spans, strict=True):
        tile[a.var] = np.ceil(t * (a.extent / o.extent))
    outer = len(dims.sizes) - found.lanes
    return transfer(dims.spans(tile)[:outer], dims.sizes[:outer], scope, chip, scope.element_bytes)


# ---------------------------------------------------------------------------- the schedule
class _Build(Steps):
    """The steps of a schedule for one row."""

    def __init__(self, sch: Schedule, match: Match, row: Row) -> None:
        super().__init__(sch, row.values, match.stage.program.outputs)
        self.stage, self.found = match.stage, match.found

    def run(self) -> list[object]:
        sch, found, scope = self.sch, self.found, self.found.scope.name
        for f in found.inlined:
            sch.compute_inline(f.rv)
        vectors = [f.rv for f in found.vectors]
        out = self.stage.facts.rv
        if not found.copies_out:
            out = sch.cache_write(out, 0, scope)
        at, versions = self.tile(out, len(found.outer))[-1], self.values["versions"]
        for rv in reversed(vectors):
            self._compute(rv, at, versions)
            self.load_arguments(rv, at, scope, versions)
        for f in reversed(found.inputs):
            self.place(f.rv, at, scope, DMA, versions)
        return self.keys

    def _compute(self, rv: BlockRV, at: LoopRV, versions: int) -> None:
        """A stage of the vector unit; a reduction is initialized before."""
        self.place(rv, at, self.found.scope.name, VECTOR, versions)
        if self.sch.realize(rv).block.init is not None:
            start = self.sch.decompose_reduction(rv, self.first_loop(rv, at))
            self.mark(start, at, VECTOR)
            self.keys.append(start.key)
