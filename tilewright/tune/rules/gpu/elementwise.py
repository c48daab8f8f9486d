"""Elementwise stages on a GPU: a thread for each contiguous vector of elements.

out[i, j] = if_then_else(j < 1000, a[i, j], b[i, j - 1000])      vectors of 4 along j: 1000 is a multiple of 4, so
                                                                 that all lanes of a vector take the same branch
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ....arith import Analyzer
from ....ir.expr import GE, GT, LE, LT, Call, PrimExpr, Var, const, const_value
from ....ir.functor import pre_order, substitute, vars_used
from ....ir.op import Op
from ....ir.ops import conjuncts, sub
from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule.primitive import LoopRV
from ...cost.gpu import Counts
from ...cost.table import Array
from ...program.facts import Axis, Facts, extent_of
from ...program.patterns import fusable_axes, transposed_axis
from ...program.stages import Stage
from ..rule import Match, Refusal
from .figures import SimpleRule, stage_counts
from .kernel import Kernel

__all__ = ["Elementwise", "by_elements", "strided_bytes"]

_ROWS_OF_BLOCKS = 65535  # limit of blockIdx.y
_WIDE = 16  # bytes of a vector load


class Elementwise(SimpleRule):
    """Threads over all elements, in vectors along the contiguous axis of the result.

    costs        a sector of DRAM for each element that is read with a stride
    """

    name = "elementwise"

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if not stage.single or stage.facts.kind != "injective":
            return Refusal("its elements are not computed one by one")
        return Match(stage, target.gpu)

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        f, gpu = match.stage.facts, match.machine
        results = max(1, math.prod(a.extent for a in f.spatial))
        blocks = np.maximum(1, -(-results // (threads * wide)))
        c = stage_counts([f], gpu, blocks, wide / max(1, 16 * 8 // max(8, f.bits)))
        return replace(c, dram=c.dram + strided_bytes(f, gpu))

    def in_vectors(self, match: Match) -> bool:
        return not strided_bytes(match.stage.facts, match.machine)

    def steps(self, k: Kernel, match: Match) -> dict[str, Any]:
        return by_elements(k, match.stage.facts)


def strided_bytes(f: Facts, gpu: GpuMachine) -> int:
    """Bytes of DRAM beside those of the elements that are read with a stride: each costs a whole sector."""
    read = [r for r in f.reads if transposed_axis(f, r) is not None]
    return sum(f.touched(r) * (gpu.sector // r.bytes - 1) for r in read)


def by_elements(g: Kernel, f: Facts) -> dict[str, Any]:
    """Schedule an elementwise stage: threads over all its elements."""
    sch, wide, w = g.sch, _width(g, f), g.target.gpu.elementwise
    threads, several = min(g.most, w.threads), 1
    # Several vectors for each thread: with less work, thread blocks could not be launched as fast as memory delivers.
    most = min(w.vectors, w.thread_bytes * 8 // (wide * f.bits))
    while several < most and f.points >= 2 * several * threads * wide * w.busy_blocks:
        several *= 2
    loops = sch.get_loops(f.rv)
    # The index of fused loops must fit into 32 bits.
    outer: list[LoopRV] = []
    while len(loops) > 1 and math.prod(extent_of(sch, x) or 1 for x in loops) >= 1 << 31:
        outer.append(loops.pop(0))
    tags = ("blockIdx.x", "blockIdx.y")
    if outer:
        count = math.prod(extent_of(sch, x) or 1 for x in outer)
        tags = tags if count > _ROWS_OF_BLOCKS else tags[::-1]
        sch.bind(g.fused(outer, f.rv), tags[0])
    g.spread(g.fused(loops, f.rv), threads, wide, tags[1] if outer else tags[0], several)
    return {"threads": threads, "vector": wide}


def _width(g: Kernel, f: Facts) -> int:
    """The width of the vectors of a thread: they are contiguous where they are written, have small strides where they
    are read, and all their lanes take the same branches."""
    if not f.axes or f.write is None:
        return 1
    last, near = f.axes[-1], g.target.gpu.elementwise.near
    if not last.known or f.write.stride(last) != 1 or any(abs(r.stride(last) or 0) > near for r in f.reads):
        return 1
    size = last.extent if f.guarded else math.prod(a.extent for a in f.spatial[-fusable_axes(f) :])
    wide = g.widest or _WIDE * 8 // max(8, f.bits)
    while wide > 1 and (size % wide or not _alike(f, last, wide)):
        wide //= 2
    return wide


def _alike(f: Facts, axis: Axis, wide: int) -> bool:
    """Whether vectors of `wide` neighbours along an axis, aligned to their width, take the same branches."""
    asked = [m.args[0] for m in pre_order(f.block.body) if _is_choice(m)]
    return all(
        axis.var not in vars_used(c) or _turns_at(c, axis.var, wide) for e in asked for c in conjuncts(e)
    )


def _is_choice(m: object) -> bool:
    return isinstance(m, Call) and isinstance(m.op, Op) and m.op.short_name == "if_then_else"


def _turns_at(c: PrimExpr, var: Var, wide: int) -> bool:
    """Whether a condition compares a variable with a constant, and changes at a multiple of `wide`."""
    if not isinstance(c, (LT, LE, GT, GE)):
        return False
    ana, room = Analyzer(), sub(c.b, c.a)
    at = [const_value(ana.simplify(substitute(room, {var: const(n, var.dtype)}))) for n in (0, 1)]
    if at[0] is None or at[1] is None or abs(at[1] - at[0]) != 1 or vars_used(room) != {var}:
        return False
    # The condition changes where `room` is 0, or one element later.
    rises, zero = at[1] > at[0], -at[0] if at[1] > at[0] else at[0]
    return (zero + (1 if rises == isinstance(c, (LT, GE)) else 0)) % wide == 0
