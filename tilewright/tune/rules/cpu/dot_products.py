"""Sums of products of narrow numbers by dot products of words (`pack_words`), or widened once while they are packed.

    C[m, n] += int32(A[m, k]) * int32(B[k, n])     ->     C[m, n] += dp4a(A_words[m, q], B_words[q, n])

The words are elements of 32 bits, so the other rules tile, pack and transpose them like any other product. Each form is
a rule, since the stages that it leaves differ:

    types             numbers of a step    instruction
    uint8 and int8    4                    vpdpbusd, usdot; of equal types sdot and udot
    int16             2                    vpdpwssd, vpmaddwd: also for bytes where there is no instruction for them
    bfloat16          2                    vdpbf16ps, bfdot
    float32           1                    multiply-adds: numbers of 16 bits are converted once, not in every step
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....ir.buffer import Buffer
from ....ir.equal import structural_equal
from ....ir.expr import BufferLoad
from ....ir.words import DotProduct
from ....target import Target
from ....target.dot_products import dot_products
from ....target.machine import CpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.library.words import NarrowProduct, narrow_product_of
from ...cost.table import Table
from ...program.facts import Access, Axis, Facts, facts_of
from ...program.patterns import reuses
from ...program.stages import Stage
from ..features import simple_features
from ..rule import Applied, Match, Refusal, Row

__all__ = ["DotProducts"]


@dataclass(frozen=True, slots=True)
class _Found:
    product: NarrowProduct
    axes: tuple[Axis, ...]  # whose steps can be packed


_SHARED = 8  # results of a register tile that take the same vector of words, about
_PER_WORD = {"int8": 4, "uint8": 4, "int16": 2, "bfloat16": 2, "float32": 1}


@dataclass(frozen=True, slots=True)
class DotProducts:
    """Several steps of a sum of products in one instruction, whose factors are of the types `first` and `second`.

    wins where   an element is reused: packing it takes time once
    costs        the words are written and read once more; a sum of one factor where the sign of the other is changed
    """

    first: str
    second: str
    needs: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return f"dot products of {self.first} and {self.second}" if self.per_word > 1 else "widened factors"

    @property
    def per_word(self) -> int:
        return _PER_WORD[self.first]

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        product = narrow_product_of(f.block)
        if isinstance(product, str):
            return Refusal(f"the stage {product}")
        if not target.has("dot_products"):
            return Refusal("the target's code generator has no instructions for dot products", near=True)
        if not reuses(f):
            return Refusal("no element is reused for several results", near=True)
        if self.per_word > 1 and not self._instructions(target.cpu):
            return Refusal(f"the processor has no instruction for {self.name}")
        steps = {iv.var for iv in product.steps((self.first, self.second))}
        axes = [a for a in f.reduce if a.var in steps and 2 * a.extent > self.per_word]
        if not axes:
            return Refusal("no steps of its sum can be packed into such words")
        return Match(stage, target.cpu, _Found(product, tuple(axes)))

    def _instructions(self, machine: CpuMachine) -> list[DotProduct]:
        kinds = {(self.first, self.second), (self.second, self.first)}
        return [d for d in dot_products(machine.features) if (d.a, d.b) in kinds]

    def table(self, match: Match, machine: CpuMachine, only: Mapping[str, int] | None = None) -> Table:
        """The row of the axis whose steps are packed: the dot products, which are left to other rules, and the packing.

        There is one, that of the best axis: the tables of the stages that are left depend on the axis.
        """
        f, found, constants = match.stage.facts, match.found, match.stage.program.constants
        packing = {a: self._packing(f, found.product, a, machine, constants) for a in found.axes}
        products = {a: self._products(f, a, machine) for a in found.axes}
        best = min(found.axes, key=lambda a: packing[a] + products[a])
        places = np.array([f.axes.index(best)])
        if only is not None:
            places = places[places == only["step"]]
        every = np.ones(len(places))
        counts = {
            "tiles": every,
            "finish": every * packing[best],
            "left_operations": every * products[best],
        }

        def shape(figures: Mapping[str, Any]) -> Any:
            bits = np.stack([every * machine.preferred_vector_bits, every], axis=1)
            return simple_features(f, bits, figures["cycles"] / (machine.clock * 1e9), 0 * every)

        return Table(
            ("step",), places[:, None].astype(np.int64), counts, left=("left_operations",), shape=shape
        )

    def _products(self, f: Facts, axis: Axis, machine: CpuMachine) -> float:
        """The cycles of the products."""
        words = -(-axis.extent // self.per_word)
        return f.points / axis.extent * words / (machine.fma_ports * machine.lanes(32))

    def _packing(
        self,
        f: Facts,
        product: NarrowProduct,
        axis: Axis,
        machine: CpuMachine,
        constants: frozenset[Buffer],
    ) -> float:
        """The cycles for packing the factors, and for the sums that correct their signs."""
        loads = [next(r for r in f.reads if _is(r, load)) for load in product.factors]
        step = next(iv for iv in product.block.iter_vars if iv.var is axis.var)
        sizes = [math.prod(a.extent for a in f.axes if r.moves(a)) / self.per_word for r in loads]
        cycles, lanes = 0.0, machine.lanes(32)
        for i, kind in enumerate((self.first, self.second)):
            have, contiguous = str(product.factors[i].dtype), loads[i].stride(axis) == 1
            place = product.place_of(product.factors[i], step, self.first)
            overlaps = place is not None and place.overlaps
            if overlaps and contiguous and have == kind:
                shared = any(not loads[i].moves(a) and a.extent > 1 for a in f.spatial)
                words = f.points / axis.extent * -(-axis.extent // self.per_word) / lanes
                cycles += words / (_SHARED if shared else 1) * machine.fit.overlapping_words
            elif product.factors[i].buffer not in constants and not (contiguous and have == kind):
                pieces = 1 if contiguous else self.per_word
                words = sizes[i] * (self.per_word if overlaps else 1)
                cycles += words * pieces * machine.fit.packed_vector / lanes
            signs = {have, kind} == {"int8", "uint8"}
            if signs and product.factors[1 - i].buffer not in constants:
                cycles += sizes[1 - i] / lanes
        return cycles

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        f, machine = match.stage.facts, match.machine
        step = f.axes[row.values["step"]].var
        ((_, chosen),) = [b for b in sch.realize(f.rv).bindings if b[0].var is step]
        (loop,) = [x for x in sch.get_loops(f.rv) if x.var is chosen]
        made = sch.pack_words(f.rv, loop, self.first, self.second)
        note = {
            "packed along": step.name,
            "steps": self.per_word,
            "instruction": next((d.name for d in self._instructions(machine)), "multiply-add"),
        }
        keys = tuple(b.key for b in made)
        packed = [
            b for pack in made[:2] for b in match.stage.program.own_producers(facts_of(sch, pack), None)
        ]
        # a register tile may load words from these stages, copy them into panels, or compute them in its loops
        undecided = (*keys[:2], *(b.key for b in packed))
        return Applied(note, "words", keys=keys, undecided=undecided, opened=True)


def _is(read: Access, load: BufferLoad) -> bool:
    return read.buffer is load.buffer and all(map(structural_equal, read.indices, load.indices))
