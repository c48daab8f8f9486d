"""Long rows that are reduced by many thread blocks: each has a part, and other kernels combine the partial results.

row of 50257 elements            parts of 1024 elements; the last one is partial
    partial[row, p] = sum of x[row, 1024 p : 1024 (p + 1)]     a thread block for each part
    mean[row] = (sum of partial[row, 0:50]) / 50257            left to the other rules
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule import Schedule
from ...cost.gpu import Counts, seconds_of
from ...cost.table import Array
from ...program.facts import Facts
from ...program.patterns import contiguous_axis
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .figures import SimpleRule, stage_counts, stage_figures
from .kernel import Kernel
from .rows import (
    Shares,
    combines,
    fuse_reduced_axes,
    has_contiguous_axes,
    lone_reduction,
    reduce_rows,
    vector_lanes,
)

__all__ = ["RowParts"]


class _Reduction(NamedTuple):
    """The reduction of a stage: its rows, their length, and the width of vector loads along them."""

    facts: Facts
    rows: int
    length: int
    lanes: int


class RowParts(SimpleRule):
    """A thread block for each part of a row, of any length, with a condition at the end of the row.

    wins where   there are fewer rows than SMs, and `rows` finds no equal parts (their length is prime or dynamic, say)
                 or a value that is computed from the result, as a mean is, makes the stage a chain
    costs        another launch, and the partial results, written and read once more
    """

    name = "row parts"
    needs = frozenset({"shared_memory"})

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        found = [f for f in stage.chain if f.reduce]
        if len(found) != 1:
            return Refusal("it is not a single reduction")
        (f,) = found
        why = lone_reduction(Stage(stage.program, f, (f,)), target.gpu)
        if why:
            return Refusal(why)
        line = contiguous_axis(f)
        if line is None or not line.reduce:
            return Refusal("it does not reduce along contiguous memory")
        made = _reduction(f)
        if any(g.points > made.rows for g in stage.chain if g is not f):
            return Refusal("a stage of the chain has a value for each element of a row")
        why = combines(Kernel(stage), f.rv)
        if why:
            return Refusal(why, near=True)
        if list(f.axes[-len(f.reduce) :]) != f.reduce or len(f.axes) != len(f.block.iter_vars):
            return Refusal("its reduced axes are not the last ones", near=True)
        if not all(a.known for a in f.reduce[1:]):
            return Refusal("only the outermost of its reduced axes may have a dynamic size", near=True)
        if made.length < 2 * _shares(made, 0, target.gpu).size:
            return Refusal("its rows are too short for two parts", near=True)
        return Match(stage, target.gpu, made)

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        made, gpu = match.found, match.machine
        blocks = np.array([made.rows * _parts(made, int(n), gpu) for n in threads])
        widest = max(1, 16 * 8 // max(8, made.facts.bits))
        return stage_counts([made.facts], gpu, blocks, made.lanes / widest)

    def more(self, match: Match) -> dict[str, float]:
        """The time of the kernel that combines the parts, a thread block for each row; and the doubt."""
        made, gpu = match.found, match.machine
        each = sum(w.buffer.dtype.nbytes for w in made.facts.block.writes)
        read = each * made.rows * (_parts(made, 0, gpu) + 1)
        left = seconds_of(replace(stage_counts([], gpu, made.rows), dram=read), gpu)
        return {"left": float(left), "prior": gpu.rows.parts_prior}

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        k = Kernel(match.stage, row.values["threads"])
        shares = _shares(match.found, k.threads, match.machine)
        f = fuse_reduced_axes(k, match.found.facts, dynamic=True)
        results = len(f.spatial)
        part, _ = sch.split(k.fused(sch.get_loops(f.rv)[results:], f.rv), [None, shares.size])
        partial = sch.rfactor(part, factor_axis=results)
        reduce_rows(k, partial, shares, guarded=True)
        note = {"threads": shares.threads, "elements": shares.size, "vector": shares.lanes}
        figures = stage_figures(sch, [match.found.facts], partial, match.machine)
        return Applied(note, next=tuple(g.rv for g in match.stage.chain), figures=figures)


def _reduction(f: Facts) -> _Reduction:
    length, rows = (math.prod(a.extent for a in axes) for axes in (f.reduce, f.spatial))
    lanes = 1
    if all(a.known for a in f.reduce) and (len(f.reduce) == 1 or has_contiguous_axes(f)):
        axis = replace(f.reduce[-1], extent=length)
        lanes = vector_lanes(f, [axis], max((r.buffer.dtype.bits for r in f.reads), default=32))
    return _Reduction(f, rows, length, lanes)


def _shares(r: _Reduction, threads: int, gpu: GpuMachine) -> Shares:
    """The shares of the threads in a part: as many vectors as should be in flight at once, or more if there would be
    more parts than keep all SMs busy."""
    w = gpu.rows
    threads = min(threads or w.block, gpu.max_threads_per_block)
    most = max(1, 4 * w.few_rows // r.rows)
    chunks = max(w.vectors, -(-r.length // (most * threads * r.lanes)))
    return Shares(chunks, threads, r.lanes, 1)


def _parts(r: _Reduction, threads: int, gpu: GpuMachine) -> int:
    return -(-r.length // _shares(r, threads, gpu).size)
