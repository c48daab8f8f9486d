"""Products of matrices and convolutions on the matrix unit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from ....ir.buffer import Buffer
from ....ir.expr import Add, BufferLoad, Cast, Mul, Var
from ....ir.functor import vars_used
from ....ir.stmt import BufferStore
from ....target import Target
from ....target.accelerator import Accelerator, MatrixUnit, Scope
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV, LoopRV
from ....tir.transform.version_buffers import VERSIONS
from ...cost.table import Table
from ...program.facts import Access, Axis, Facts, facts_of
from ...program.stages import Stage, Stages
from ..rule import Applied, Match, Refusal, Row
from .figures import chip_figures, chip_table, held, loaded
from .steps import DMA, VECTOR, Steps
from .tiles import Dims, Moved, dims_of, is_copy, is_tiling, sizes_of_tiles, thread_axes, transfer

_MOST = 20000  # rows of a table
_RESIDENT = (0, 1, 2)  # the operand that is loaded for all parts of the reduction at once, if any
_VERSIONS = (1, 2, 3, 4)  # versions of a tile of an operand


@dataclass(frozen=True)
class _Found:
    """A contraction of elements: the axes around them, its operands, and the stages that follow it in the tile."""

    unit: MatrixUnit
    outer: tuple[Axis, ...]  # spatial axes around an element
    channels: tuple[Axis, ...]  # reduction axes that may be tiled
    windows: tuple[Axis, ...]  # reduction axes that move along an axis of the result
    left: Dims
    right: Dims
    buffers: tuple[Buffer, Buffer]
    copies: tuple[BlockRV | None, BlockRV | None]  # the stages that pad or copy the operands
    epilogue: tuple[Facts, ...]  # in order; the last one writes the output
    loaded: frozenset[object]  # keys of the stages that copy operands of the epilogue
    operands: int  # vectors that the epilogue reads beside the result
    operations: int  # vector operations for each element of the result
    output_bytes: int  # bytes of an element of the output in DRAM

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (*self.outer, *self.channels, *self.windows)


class Matrix:
    """Tiles of the result stay in accumulators while tiles of both operands stream by; engines work side by side.

    for thread in vthread(2):                      two tiles in flight: one is computed, the other one moves
        for tiles of the result:
            reset accumulators                                        compute
            for parts of the reduction:
                inp = A[tile]; wgt = W[tile]                          load
                acc += inp * wgt, element by element                  compute
            acc = epilogue(acc)                                       compute
            C[tile] = acc                                             store

    wins where   operands are reused: each element of a tile serves several others
    costs        tiles of A and W are loaded once for each tile of the result that they contribute to
    """

    name = "matrix"
    needs: frozenset[str] = frozenset({"matrix_unit"})

    # -- match -------------------------------------------------------------------------------------
    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        chip = target.accelerator
        why = "the chip has no matrix unit"
        for unit in chip.matrix_units:
            found = _match(stage, chip, unit)
            if isinstance(found, _Found):
                return Match(stage, chip, found)
            why = found
        return Refusal(why, near=stage.facts.kind == "reduction")

    # -- table -------------------------------------------------------------------------------------
    def table(self, match: Match, machine: Accelerator, only: Mapping[str, int] | None = None) -> Table:
        found: _Found = match.found
        names = [f"tile{i}" for i in range(len(found.outer))] + [
            f"part{i}" for i in range(len(found.channels))
        ]
        columns = (*names, "threads", "axis", "resident", "versions")
        return chip_table(
            columns,
            only,
            lambda row: _is_row(row, found),
            lambda: _points(found),
            lambda points: _counts(found, machine, points),
        )

    # -- apply -------------------------------------------------------------------------------------
    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        made = _Build(sch, match, row).run()
        values = row.values
        tile = " x ".join(str(values[f"tile{i}"]) for i in range(len(match.found.outer)))
        note: dict[str, object] = {"tile": f"{tile} elements"}
        if match.found.channels:
            parts = (str(a.extent // values[f"part{i}"]) for i, a in enumerate(match.found.channels))
            note["reduction"] = f"in {' x '.join(parts)} parts"
        note["virtual threads"] = values["threads"]
        table = self.table(match, match.machine, values)
        return Applied(note, done=tuple(made), figures=chip_figures(table, row, match.machine))


def _match(stage: Stage, chip: Accelerator, unit: MatrixUnit) -> _Found | str:
    """The contraction, or the reason why a unit cannot compute it."""
    f, program = stage.facts, stage.program
    if f.kind != "reduction" or not stage.single:
        return "it is not a contraction"
    m, n, k = unit.shape
    spatial, reduce = f.spatial, f.reduce
    if len(spatial) < 2 or not reduce or any(not a.known for a in f.axes):
        return "it has no axes of constant size for a product of matrices"
    operands = _operands(f)
    if operands is None:
        return "it is not a sum of products of two operands"
    b, o, inner = spatial[-2], spatial[-1], reduce[-1]
    if (b.extent, o.extent, inner.extent) != (m, n, k):
        sizes = f"{b.extent} x {o.extent} x {inner.extent}"
        return f"its innermost axes are {sizes}, and the unit multiplies {m} x {n} x {k}"
    left, right = _ordered(operands, b, o, inner)
    if left is None or right is None:
        return "its operands are not packed in elements of the matrix unit"
    types = (str(left.buffer.dtype), str(right.buffer.dtype), str(f.write.buffer.dtype if f.write else ""))
    wanted = tuple(chip.scope(s).dtype for s in (unit.left, unit.right, unit.result))  # type: ignore[union-attr]
    if types != wanted:
        has, does = (f"{t[0]} by {t[1]} into {t[2]}" for t in (types, wanted))
        return f"it multiplies {has}, and the unit {does}"
    outer = spatial[:-2]
    around = [*outer, *reduce[:-1]]
    dims = [dims_of(Access(r.buffer, r.indices[:-2], r.strides), around) for r in (left, right)]
    if dims[0] is None or dims[1] is None:
        return "an operand is not accessed at constant strides"
    a_dims, w_dims = (Dims(d.steps, d.sizes[: len(d.steps)]) for d in dims if d is not None)
    windows = [r for r in reduce[:-1] if _is_window(r, a_dims, outer)]
    channels = [r for r in reduce[:-1] if r not in windows]
    chain = _epilogue(program, f, chip, unit)
    if isinstance(chain, str):
        return chain
    copies = _copies(program, f, (left, right))
    if isinstance(copies, str):
        return copies
    loaded = _loaded(program, f, chain)
    if isinstance(loaded, str):
        return loaded
    last = chain[-1] if chain else f
    assert last.write is not None
    others = sum(len(_others(program, c, chain, f)) for c in chain)
    operations = sum(not is_copy(c) for c in chain)
    return _Found(
        unit, tuple(outer), tuple(channels), tuple(windows), a_dims, w_dims, (left.buffer, right.buffer), copies,
        tuple(chain), loaded, others, operations, m * n * last.write.buffer.dtype.nbytes,
    )  # fmt: skip


def _operands(f: Facts) -> tuple[Access, Access] | None:
    """The two factors of a sum of products."""
    body = f.block.body
    if not isinstance(body, BufferStore) or not isinstance(body.value, Add):
        return None
    term = body.value.b
    if not isinstance(term, Mul):
        return None
    factors = []
    for x in (term.a, term.b):
        while isinstance(x, Cast):
            x = x.value
        if not isinstance(x, BufferLoad):
            return None
        found = [r for r in f.reads if r.buffer is x.buffer and r.indices == x.indices]
        if not found:
            return None
        factors.append(found[0])
    return factors[0], factors[1]


def _ordered(
    operands: tuple[Access, Access], b: Axis, o: Axis, k: Axis
) -> tuple[Access | None, Access | None]:
    """The operand with rows of the result and the one with its columns, if they are packed in elements."""

    def ends_in(r: Access, row: Axis) -> bool:
        if len(r.indices) < 2 or r.indices[-1] is not k.var:
            return False
        return r.indices[-2] is row.var or (row.extent == 1 and not vars_used(r.indices[-2]))

    for left, right in (operands, operands[::-1]):
        if ends_in(left, b) and ends_in(right, o) and right.indices[-2] is o.var:
            return left, right
    return None, None


def _is_window(r: Axis, left: Dims, outer: list[Axis]) -> bool:
    return any(r.var in of and any(a.var in of for a in outer) for of in left.steps)


def _epilogue(program: Stages, f: Facts, chip: Accelerator, unit: MatrixUnit) -> list[Facts] | str:
    """The stages that follow element by element, up to the output."""
    chain: list[Facts] = []
    last = f
    vector = chip.unit(unit.result)
    while not program.is_output(last):
        nxt = program.fusable_consumer(last)
        if nxt is None:
            return f"the stage after {last.name} does not read its results element by element"
        last = facts_of(program.sch, nxt)
        if vector is None and not is_copy(last):
            return f"the chip has no vector unit for {last.name}"
        chain.append(last)
    return chain


def _others(program: Stages, c: Facts, chain: list[Facts], f: Facts) -> list[Access]:
    """The operands of an epilogue stage that are not results of the tile."""
    made = {s.write.buffer for s in (f, *chain) if s.write is not None}
    return [r for r in c.reads if r.buffer not in made]


def _loaded(program: Stages, f: Facts, chain: list[Facts]) -> frozenset[object] | str:
    """The keys of the stages that copy, or convert, operands of the epilogue: transfers do that."""
    own = {f.rv.key, *(c.rv.key for c in chain)}
    found: set[object] = set()
    for c in chain:
        for rv in program.producers(c.rv):
            if rv.key in own:
                continue
            p = facts_of(program.sch, rv)
            alone = len(program.consumers(rv)) == 1 and not program.producers(rv)
            if not is_copy(p) or not alone or program.is_output(p):
                return f"{p.name}, which {c.name} reads, is not a copy of an argument"
            found.add(rv.key)
    return frozenset(found)


def _copies(
    program: Stages, f: Facts, operands: tuple[Access, Access]
) -> tuple[BlockRV | None, BlockRV | None] | str:
    """The stages that pad or copy the operands, of which only this stage reads the results."""
    found: list[BlockRV | None] = [None, None]
    for rv in program.producers(f.rv):
        p = facts_of(program.sch, rv)
        which = [i for i, r in enumerate(operands) if p.write is not None and p.write.buffer is r.buffer]
        if not which or p.kind != "injective" or len(program.consumers(rv)) != 1 or program.is_output(p):
            return f"{p.name}, which it reads, is not a copy of its own"
        found[which[0]] = rv
    return found[0], found[1]


# ---------------------------------------------------------------------------- counts
def _points(found: _Found) -> Any:
    """All rows: the tile of each axis, virtual threads and their axis, the resident operand, versions."""
    rows = []
    for t in sizes_of_tiles((*found.outer, *found.channels), _MOST):
        shares = [(1, 0), *((2, i) for i in thread_axes(found.outer, t))]
        for resident, versions in product(_RESIDENT, _VERSIONS):
            rows += [(*t, *share, resident, versions) for share in shares]
    return np.array(rows, np.int64).reshape(-1, len(found.outer) + len(found.channels) + 4)


def _is_row(row: list[int], found: _Found) -> bool:
    tiled = is_tiling((*found.outer, *found.channels), found.outer, row)
    return tiled and row[-2] in _RESIDENT and row[-1] in _VERSIONS


@dataclass(frozen=True)
class _Operand:
    """The tiles of an operand in each row: the number of loads, the cost of a load, and the memory that they need."""

    loads: Any
    moved: Moved
    held: Any  # elements of all its versions
    resident: Any
    each: Any  # cycles of its engine for each product of tiles; 0 where it is resident
    threads: Any  # virtual threads with tiles of their own
    versions: Any  # versions of its tile in a thread
    ahead: Any  # products of tiles that all its versions hold operands for


class _Rows:
    """The rows of a table: the tile of each axis, and the other decisions."""

    def __init__(self, found: _Found, chip: Accelerator, points: Any) -> None:
        self.found, self.chip, self.size = found, chip, len(points)
        axes = (*found.outer, *found.channels)
        self.tile: dict[Var, Any] = {a.var: points[:, i] for i, a in enumerate(axes)}
        self.tile |= {a.var: np.full(self.size, a.extent) for a in found.windows}
        self.threads, self.axis, self.resident, self.versions = points[:, len(axes) :].T
        self.tiles = self._product([a.extent // self.tile[a.var] for a in found.outer])
        self.parts = self._product([a.extent // self.tile[a.var] for a in found.channels])
        self.products = self._product([self.tile[a.var] for a in found.axes])
        self.results = self._product([self.tile[a.var] for a in found.outer])
        self.accumulators = np.maximum(self.threads, np.minimum(self.versions, 2))  # tiles of accumulators

    def steady(
        self, left: _Operand, right: _Operand, product: Any, reset: Any, after: Any, out: Moved
    ) -> Any:
        """Cycles of the compute engine for all tiles, including those in which it waits for transfers.

            load     │ 3 │ 4 │ 5 │ 6 │░░░░░░░░░░│ 7 │ 8 │ …     ░ no version is free: products 5 and 6 are not done
            compute  │2│ │3│ │4│ │ epilogue │5│6│  │7│ │…        the products of a tile, then its epilogue

        If a product takes longer than its loads, the compute engine never waits for them. Otherwise the load engine
        sets the pace; during an epilogue it fills the free versions, and then idles until one is free again.
        """
        threads = self.threads  # their tiles follow each other: first all products, then both epilogues
        # A single tile of accumulators is stored before the next one begins; two threads end at nearly the same time.
        together = np.maximum(0, 2 * out.engine - 2 * self.results) / 2
        stored = np.where(threads == 2, together, np.where(self.accumulators == 2, 0, out.engine))
        pause = threads * (reset + after + stored)
        groups = self.tiles // threads
        count, each = threads * self.parts, left.each + right.each
        ahead = np.minimum(left.ahead, right.ahead)
        filled = np.minimum(count, ahead)
        serial = count * (product + each) + pause - np.minimum(each, pause)
        beside = np.maximum(
            # the stores of all groups but the last one take the port from loads
            np.maximum(count * product + pause, count * each + threads * out.port * (groups - 1) / groups),
            (count - filled) * each + filled * product + pause,
        )
        total = groups * np.where(ahead == 1, serial, beside) - threads * stored
        for o in (left, right):  # the next tile of a resident operand is loaded after all others
            hidden = np.where(o.versions >= 2, filled * product, 0) + pause
            late = np.maximum(0, o.moved.engine + each - hidden)
            total = total + np.where(o.resident, (o.loads - o.threads) * late, 0)
        return total

    def first(self, left: _Operand, right: _Operand) -> Any:
        """Cycles until both operands of the first product have arrived. A resident operand is loaded before the other
        one, and the first of the two for all threads at once."""
        before = np.where(
            right.resident, right.moved.engine * right.threads, left.moved.engine * left.threads
        )
        return before + np.where(right.resident, left.moved.engine, right.moved.engine)

    def _product(self, factors: list[Any]) -> Any:
        return np.prod([np.ones(self.size, np.int64), *factors], axis=0)

    def operand(self, dims: Dims, scope: Scope, number: int) -> _Operand:
        """The transfers of an operand. A resident one is loaded for all parts of the reduction at once, and once for
        each tile of the axes that move it."""
        found, resident = self.found, self.resident == number
        whole = {**self.tile, **{a.var: np.full(self.size, a.extent) for a in found.channels}}
        spans = [
            np.where(resident, x, y) for x, y in zip(dims.spans(whole), dims.spans(self.tile), strict=True)
        ]
        moved = transfer(spans, dims.sizes, scope, self.chip, scope.element_bytes)
        apart = self.threads == 2  # each thread has tiles of its own
        for i, a in enumerate(found.outer):
            apart = apart & ~((self.axis == i) & (not dims.moves(a.var)))
        own = self._product([a.extent // self.tile[a.var] for a in found.outer if dims.moves(a.var)])
        serves = np.where(apart, 1, self.threads)  # products of tiles that a load serves
        loads = np.where(resident, own, self.tiles * self.parts // serves)
        versions = np.where(apart, 1, self.versions)
        copies = np.where(apart, 2, self.versions)  # in memory: one for each thread that has its own
        each = np.where(resident, 0, moved.engine / serves)
        # all products wait for an operand that is streamed through a single copy
        ahead = np.where(resident, _MOST, np.where(copies == 1, 1, copies * serves))
        own_tiles = np.where(apart, 2, 1)
        return _Operand(loads, moved, moved.elements * copies, resident, each, own_tiles, versions, ahead)


def _counts(found: _Found, chip: Accelerator, points: Any) -> tuple[dict[str, Any], Any]:
    """The counts of each row, and whether its tiles fit the memories of the chip."""
    unit, rows = found.unit, _Rows(found, chip, points)
    inp, wgt, acc = (chip.scope(s) for s in (unit.left, unit.right, unit.result))
    assert inp is not None and wgt is not None and acc is not None
    left, right = rows.operand(found.left, inp, 1), rows.operand(found.right, wgt, 2)
    accumulators = rows.results * (1 + found.operands) * rows.accumulators
    fits = (left.held <= inp.elements) & (right.held <= wgt.elements) & (accumulators <= acc.elements)
    vector = chip.unit(unit.result)
    reset = rows.results + unit.depth
    after = np.zeros(rows.size)
    if vector is not None:
        near, far = chip.vector_cycles(vector)
        after = rows.results * (found.operations * near + found.operands * (far - near))
        after = after + found.operations * vector.depth
    out = transfer(
        [rows.tile[a.var] for a in found.outer],
        [a.extent for a in found.outer],
        acc,
        chip,
        found.output_bytes,
    )
    other = rows.results * found.operands * np.ceil(acc.element_bytes / chip.port.bytes_per_cycle)
    product = rows.products + unit.depth
    compute = rows.tiles * (rows.parts * product + reset + after)
    counts = {
        "compute": compute,
        "load": left.loads * left.moved.port + right.loads * right.moved.port + rows.tiles * other,
        "store": rows.tiles * out.port,
        "loading": left.loads * left.moved.engine + right.loads * right.moved.engine,
        "storing": rows.tiles * out.engine,
        "exposed": rows.steady(left, right, product, reset, after, out) - compute,
        "first": np.maximum(0, rows.first(left, right) - reset),
        "last": out.engine + np.where(rows.threads == 2, np.maximum(0, out.engine - rows.results), 0),
        "rest": rows.threads * (product + after),
        "products": rows.tiles * rows.parts * rows.products,
        "vectors": rows.tiles * rows.results * found.operations,
        loaded(inp.memory): left.loads * left.moved.elements * inp.element_bytes,
        loaded(wgt.memory): right.loads * right.moved.elements * wgt.element_bytes,
        loaded(acc.memory): rows.tiles * rows.results * found.operands * acc.element_bytes,
        "stored bytes": rows.tiles * rows.results * found.output_bytes,
        held(inp.memory): left.held * inp.element_bytes,
        held(wgt.memory): right.held * wgt.element_bytes,
        held(acc.memory): accumulators * acc.element_bytes,
    }
    return counts, fits


# ---------------------------------------------------------------------------- the schedule
class _Build(Steps):
    """The steps of a schedule for one row."""

    def __init__(self, sch: Schedule, match: Match, row: Row) -> None:
        super().__init__(sch, row.values, match.stage.program.outputs)
        self.stage, self.found = match.stage, match.found
        self.unit: MatrixUnit = match.found.unit

    def run(self) -> list[object]:
        sch, found, unit, f = self.sch, self.found, self.unit, self.stage.facts
        vectors = [c.rv for c in found.epilogue]
        product = f.rv
        last = found.epilogue[-1] if found.epilogue else f
        if found.epilogue and is_copy(last):
            out = vectors.pop()
        else:
            out = last.rv
            made = sch.cache_write(out, 0, unit.result)
            # the cached stage computes, and the new one copies to the output
            if found.epilogue:
                vectors[-1], out = out, made
            else:
                product, out = out, made
        outer = self.tile(out, len(found.outer), self._order())
        at, versions = outer[-1], self._versions(self.values["threads"] == 2, 2)
        for c in reversed(vectors):
            self.place(c, at, unit.result, VECTOR, versions)
            for rv in sch.get_producers(c):
                if rv.key in found.loaded:
                    self.place(rv, at, unit.result, DMA, versions)
            self.load_arguments(c, at, unit.result, versions)
        sch.compute_at(product, at, preserve_unit_loops=True)
        sch.set_scope(product, 0, unit.result)
        part = self._tile_product(product, len(outer))
        self._load(product, part, outer)
        start = sch.decompose_reduction(product, part)
        if versions > 1:
            self.mark(start, at, VERSIONS, versions)
        self.keys += [product.key, start.key]
        sch.tensorize(sch.get_loops(start)[-2], unit.reset)
        sch.tensorize(sch.get_loops(product)[-3], unit.update)
        return self.keys

    def _order(self) -> list[int]:
        """The order of the loops over tiles: those that move the resident operand are outside."""
        found, resident = self.found, self.values["resident"]
        numbers = list(range(len(found.outer)))
        if resident == 0:
            return numbers
        dims = found.left if resident == 1 else found.right
        return sorted(numbers, key=lambda i: not dims.moves(found.outer[i].var))

    def _tile_product(self, product: BlockRV, depth: int) -> LoopRV:
        """Parts of the reduction around the products of a tile. Returns the loop over parts."""
        sch, found = self.sch, self.found
        loops = sch.get_loops(product)[depth:]
        count = len(found.outer)
        spatial, (b, o), reduce = loops[:count], loops[count : count + 2], loops[count + 2 :]
        names = [a.var for a in self.stage.facts.reduce]
        by_axis = dict(zip(names, reduce, strict=True))
        parts, inner = [], []
        for i, a in enumerate(found.channels):
            outside, inside = sch.split(by_axis[a.var], [None, self.values[f"part{i}"]])
            parts.append(outside)
            inner.append(inside)
        windows = [by_axis[a.var] for a in found.windows]
        ordered = [*parts, *spatial[:-1], *inner, *windows, *spatial[-1:], b, o, reduce[-1]]
        sch.reorder(*ordered)
        if not parts:
            return sch.add_unit_loop(ordered[0])
        if len(parts) > 1:
            return sch.fuse(*parts)
        return parts[0]

    def _load(self, product: BlockRV, part: LoopRV, outer: list[LoopRV]) -> None:
        """Transfers of the operands into the memories of the matrix unit."""
        sch, found, unit = self.sch, self.found, self.unit
        for number, (dims, scope) in enumerate(((found.left, unit.left), (found.right, unit.right)), 1):
            at = part
            if self.values["resident"] == number:
                at = self._resident_at(dims, outer)
            block = found.copies[number - 1]
            if block is None:
                block = sch.cache_read(product, self._buffer_index(product, scope), scope)
            self.place(block, at, scope, DMA, self._versions(self._moves_with_threads(dims)))

    def _buffer_index(self, product: BlockRV, scope: str) -> int:
        """The position, among the reads of the block, of the operand for a memory of the unit."""
        wanted = self.found.buffers[0 if scope == self.unit.left else 1]
        reads = self.sch.realize(product).block.reads
        return next(i for i, r in enumerate(reads) if r.buffer is wanted)

    def _resident_at(self, dims: Dims, outer: list[LoopRV]) -> LoopRV:
        """The innermost loop over tiles that moves a resident operand."""
        order = self._order()
        moving = [n for n, i in enumerate(order) if dims.moves(self.found.outer[i].var)]
        threads = len(outer) - len(order)
        return outer[threads + moving[-1]] if moving else outer[0]

    def _versions(self, own: bool, most: int = _VERSIONS[-1]) -> int:
        """The versions of a stage's buffer: one if each virtual thread has its `own`. Accumulators have two at `most`:
        one is stored while the other one is computed."""
        return 1 if own else min(self.values["versions"], most)

    def _moves_with_threads(self, dims: Dims) -> bool:
        return self.values["threads"] == 2 and dims.moves(self.found.outer[self.values["axis"]].var)
