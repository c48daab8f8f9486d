"""The interface of rules for matrix products: a kind of kernel, with its tiles and their work."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np

from ....ir.buffer import Buffer
from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV
from ...cost.gpu import Counts
from ...cost.table import Table
from ...program.facts import Facts, facts_of, number
from ...program.patterns import reuses
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .figures import bytes_of, kernel_figures, kernel_table, operations
from .kernel import Kernel
from .product import (
    Product,
    Sketch,
    Tile,
    can_be_transposed,
    product_of,
    stored_bytes,
    transpose_cycles,
    transpose_operands,
)

__all__ = ["ProductRule", "Source", "Way", "hardly_reused", "transposed"]


@dataclass(frozen=True)
class Source:
    """The product that a stage is, or will be rewritten to. After the rewriting: its block, and the epilogue if it is
    given."""

    facts: Facts
    product: Product
    after: BlockRV | None = None
    depth: int = 16  # elements along the reduction that a step should have


@dataclass(frozen=True)
class Way:
    """A product with some operands transposed first, by separate kernels; then they are contiguous `along` the
    reduction, or else along the results."""

    product: Product
    sides: tuple[Buffer, ...] = ()
    along: bool = True


@dataclass(frozen=True)
class _Found:
    what: Any  # the result of `found`
    source: Source
    ways: tuple[Way, ...]
    whole: bool = False  # without split-K


def transposed(p: Product, sides: Sequence[Buffer]) -> Way:
    """A product whose operands are made contiguous along the reduction, which some instructions require.

    C[i, j] += A[i, k] * B[k, j]     ->     T[j, k] = B[k, j];   C[i, j] += A[i, k] * T[j, k]
    """
    return Way(replace(p, trans_a=False, trans_b=True), tuple(sides))


def hardly_reused(f: Facts, gpu: GpuMachine) -> bool:
    """Whether a block is the product of a matrix with a few vectors, also where their types differ."""
    p = product_of(f)
    if p is not None:
        return min(p.m.extent, p.n.extent) < gpu.tile.least_side
    return _serves_few(f, gpu.tile.least_side)


def _serves_few(f: Facts, few: int) -> bool:
    """Whether each element of the largest operand serves few results; no operand is read in windows."""
    if not f.reduce or f.guarded or not all(a.known for a in f.axes):
        return False
    most = 1
    for r in f.reads:
        count = math.prod(a.extent for a in f.axes if r.moves(a))
        if r.gathered or None in r.strides.values() or count > math.prod(map(number, r.buffer.shape)):
            return False
        most = max(most, count)
    return f.points < few * most


class ProductRule:
    """A kind of kernel for products. Its table has a row for each tile and each way to transpose operands first."""

    name = ""
    sketch = ""  # the name that `explain()` gives it
    needs: frozenset[str] = frozenset()
    types: tuple[str, ...] = ()  # types of the operands
    tile: ClassVar[type[Tile]] = Tile
    dynamic_rows = False  # whether the number of rows may be a dynamic size
    no_way = "it cannot copy its operands"

    # -- the description of a kind of kernel --------------------------------------------------------
    def found(self, f: Facts, target: Target) -> Any:
        """The product in a block; a Refusal if this kernel does not compute it."""
        p = product_of(f, self.dynamic_rows)
        if p is None:
            return Refusal("it is not a product of matrices")
        if hardly_reused(f, target.gpu):
            return Refusal("it is the product of a matrix with a few vectors")
        return p if p.kind in self.types else Refusal(f"it does not multiply {p.kind}")

    def source(self, stage: Stage, found: Any) -> Source | Refusal:
        """The product that is computed; nothing is scheduled."""
        consumer = stage.program.fusable_consumer(stage.facts)
        last = None if consumer is None else facts_of(stage.program.sch, consumer)
        work, stored = (last.work if last else 0), stored_bytes(last or stage.facts)
        return Source(stage.facts, replace(found, after=work, stored=stored))

    def rewritten(self, g: Kernel, f: Facts, found: Any, source: Source) -> Source | Refusal:
        """Take the steps that make a stage the product that `source` describes. Most stages are products as they
        are."""
        return source

    def refusal(self, p: Product, target: Target) -> str:
        """Why a target does not compute a product with it; empty if it does."""
        return ""

    def ways(self, p: Product, target: Target) -> list[Way]:
        return [Way(p)]

    def tiles(self, p: Product, target: Target, source: Source, finer: bool) -> Sequence[Tile]:
        """The tiles of zero-trial schedules, or all that a search may measure (`finer`)."""
        raise NotImplementedError

    def counts(self, p: Product, t: Any, gpu: GpuMachine) -> Counts:
        raise NotImplementedError

    def steps(self, *given: Any) -> Sketch:
        """The sketch that applies a tile."""
        raise NotImplementedError

    def margins(self, p: Product, target: Target) -> dict[str, float]:
        """Further counts with which the estimate competes."""
        return {}

    # -- the rule ------------------------------------------------------------------------------------
    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        if not stage.single or f.kind != "reduction" or not reuses(f):
            return Refusal("no element is reused for several results")
        what = self.found(f, target)
        if isinstance(what, Refusal):
            return what
        missing = [x for x in sorted(self.needs) if x != "shared_memory" and not target.has(x)]
        if missing:
            return Refusal(f"the target has no {', '.join(missing)}", near=True)
        source = self.source(stage, what)
        if isinstance(source, Refusal):
            return source
        why = self.refusal(source.product, target)
        if why:
            return Refusal(why, near=True)
        given = self.ways(source.product, target)
        if not given:
            return Refusal(self.no_way, near=True)
        ways = tuple(w for w in given if all(can_be_transposed(source.product, b) for b in w.sides))
        if not ways:
            return Refusal("an operand has too few rows or columns to be transposed", near=True)
        found = _Found(what, source, ways)
        whole = Match(stage, target.gpu, replace(found, whole=True))
        return Match(stage, target.gpu, found, simpler=lambda: whole)

    def table(self, match: Match, machine: GpuMachine, only: Mapping[str, int] | None = None) -> Table:
        found, target = match.found, match.stage.program.target

        def made(finer: bool) -> Table:
            rows = [
                (n, way, t)
                for n, way in enumerate(found.ways)
                for t in self.tiles(way.product, target, found.source, finer)
                if t.parts == 1 or not found.whole
            ]
            if only is not None:
                wanted = self._decided(only)
                rows = [x for x in rows if (x[0], x[2]) == wanted][:1]
            points = [(n, *astuple(t)) for n, _, t in rows]
            kernels = [self.counts(way.product, t, machine) for _, way, t in rows]
            before = [transpose_cycles(way.sides, machine) if way.sides else 0.0 for _, way, _ in rows]
            coarse = not finer and only is None
            return kernel_table(
                match.stage, self._columns(), points, kernels, _effort([t for *_, t in rows], found.source.product),
                (lambda: made(True)) if coarse else None, before=np.array(before),
                **self.margins(found.source.product, target),
            )  # fmt: skip

        return made(only is not None)

    def _columns(self) -> tuple[str, ...]:
        return ("transposed", *(x.name for x in fields(self.tile)))

    def _decided(self, values: Mapping[str, int]) -> tuple[int, Tile]:
        return int(values["transposed"]), self.tile(
            **{x.name: int(values[x.name]) for x in fields(self.tile)}
        )

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied | Refusal:
        found, gpu, k = match.found, match.machine, Kernel(match.stage)
        number, tile = self._decided(row.values)
        way: Way = found.ways[number]
        source = self.rewritten(k, match.stage.facts, found.what, found.source)
        if isinstance(source, Refusal):
            return source
        f, p = source.facts, source.product
        if way.sides:
            sides = [p.a if b is found.source.product.a else p.b for b in way.sides]
            f, made = transpose_operands(k, f, p, sides, way.along)
            p = replace(made, windows=p.windows, pieces=p.pieces, after=p.after, stored=p.stored)
        steps = self.steps(k, f, p, tile, source.after)
        note = steps.apply()
        if isinstance(note, Refusal):
            return note
        if way.sides:
            note["transposed"] = [b.name for b in sides]
        before = transpose_cycles(way.sides, gpu) if way.sides else 0.0
        group = [match.stage.facts]
        figures = kernel_figures(
            self.counts(steps.p, steps.tile, gpu), operations(group), bytes_of(group), gpu, before
        )
        return Applied(note, self.sketch, done=tuple(k.finished), figures=figures)


def _effort(tiles: Sequence[Tile], p: Product) -> Any:
    """The logarithm of the size of the code: results of a thread, and steps if threads multiply."""
    deep = [t.depth if p.kind == "float32" else 1 for t in tiles]
    each = [t.rows * t.columns / t.threads * d for t, d in zip(tiles, deep, strict=True)]
    return np.array([2.0 + 0.5 * math.log2(8 + x) for x in each])
