"""Stages without a better rule: a thread for each result, one thread for all, or loops that are parallel already."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from ....ir.stmt import For, ForKind, Stmt, stmt_list
from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule import Schedule
from ...cost.gpu import Counts
from ...cost.table import Array, Table
from ...program.facts import Facts, number
from ...program.patterns import is_pooling, reuses
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .figures import simple_table, stage_counts, stage_figures
from .kernel import Kernel
from .windows import is_depthwise

__all__ = ["ParallelLoops", "Plain", "SingleThread"]


class Plain:
    """A thread for each result, with the padding of its operands inlined.

    costs        a load for each operand of each term: nothing is kept near, and every step waits for its loads
    """

    name = "plain"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        if not stage.single:
            return Refusal("it is a chain of stages")
        spatial = [iv for iv in f.block.iter_vars if iv.iter_type == 0]
        if not spatial or len(stage.program.sch.get_loops(f.rv)) != len(f.block.iter_vars):
            return Refusal("no loop can be shared by threads", near=True)
        if is_parallel(f, target.gpu):
            return Refusal("its parallel loops become threads")
        return Match(stage, target.gpu)

    def table(self, match: Match, machine: GpuMachine, only: Mapping[str, int] | None = None) -> Table:
        f = match.stage.facts

        def counts(threads: Array, wide: Array) -> Counts:
            return _plain_counts(f, machine, threads)

        # The L1 cache serves windows of one tensor well.
        product = f.kind == "reduction" and reuses(f) and not (is_pooling(f) or is_depthwise(f))
        if not product:
            return simple_table(match.stage, machine, counts, only)
        prior, margin = machine.elementwise.plain_prior, machine.tile.margin
        return simple_table(match.stage, machine, counts, only, prior=prior, margin=margin)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        f, k = match.stage.facts, Kernel(match.stage, row.values["threads"])
        k.inline_padding(f)
        loops = zip(sch.get_loops(f.rv), f.block.iter_vars, strict=False)
        spatial = [x for x, iv in loops if iv.iter_type == 0]
        sch.reorder(*spatial)
        k.spread(k.fused(spatial, f.rv), k.most)
        return Applied({"threads": k.most}, figures=stage_figures(sch, [f], f.rv, match.machine))


def _plain_counts(f: Facts, gpu: GpuMachine, threads: Array) -> Counts:
    """Loads that are not coalesced cost a sector each. A step is a term of a reduction."""
    w, results = gpu.elementwise, max(1, math.prod(a.extent for a in f.spatial))
    blocks = np.maximum(1, -(-results // threads))
    # Loads of single elements have less in flight than those of vectors.
    busy = blocks if f.reduce else blocks / max(1, 16 * 8 // max(8, f.bits))
    c = stage_counts([f], gpu, busy, 0.0)
    last = f.spatial[-1] if f.spatial else None
    apart = [r for r in f.reads if last is not None and r.stride(last) not in (0, 1)]
    strided = sum(f.touched(r) * (gpu.sector // r.bytes - 1) for r in apart)
    terms = f.points / results
    rounds = np.maximum(1.0, blocks * threads / (gpu.multiprocessors * gpu.limits.threads))
    at_once = np.minimum(results / gpu.multiprocessors, float(gpu.limits.threads))
    loads = at_once * max(1, len(f.reads)) / w.loads_per_cycle
    return replace(
        c,
        rounds=rounds,
        steps=terms,
        compute=np.maximum(loads, c.compute / (rounds * terms)),
        latency=float(w.load_latency) if f.reduce else 0.0,
        dram=c.dram + strided,
    )


class SingleThread:
    """One thread for all results."""

    name = "single thread"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if not stage.single:
            return Refusal("it is a chain of stages")
        if is_parallel(stage.facts, target.gpu):
            return Refusal("its parallel loops become threads")
        return Match(stage, target.gpu)

    def table(self, match: Match, machine: GpuMachine, only: Mapping[str, int] | None = None) -> Table:
        f, w = match.stage.facts, machine.elementwise
        c = replace(
            stage_counts([f], machine, np.array([1.0])),
            steps=float(f.points),
            compute=np.full(1, float(w.load_latency)),
        )
        margin = machine.tile.margin
        return simple_table(match.stage, machine, lambda threads, wide: c, only, threads=False, margin=margin)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        f, k = match.stage.facts, Kernel(match.stage)
        sch.bind(k.fused([], f.rv), "blockIdx.x")
        sch.bind(sch.add_unit_loop(f.rv), "threadIdx.x")
        return Applied({"threads": 1}, "plain", figures=stage_figures(sch, [f], f.rv, match.machine))


class ParallelLoops:
    """Loops that are marked parallel, in a block that is not analyzed: lowering makes threads of them."""

    name = "parallel loops"
    needs: frozenset[str] = frozenset()

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if not stage.single or not is_parallel(stage.facts, target.gpu):
            return Refusal("it has no parallel loops of its own")
        return Match(stage, target.gpu)

    def table(self, match: Match, machine: GpuMachine, only: Mapping[str, int] | None = None) -> Table:
        c = stage_counts([match.stage.facts], machine, np.array([machine.multiprocessors]))
        return simple_table(match.stage, machine, lambda threads, wide: c, only, threads=False)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        return Applied({"because": "its parallel loops become threads"}, "as it is")


def is_parallel(f: Facts, gpu: GpuMachine) -> bool:
    """Whether a body that is not analyzed consists of parallel loops with enough iterations for threads."""
    return f.kind == "opaque" and _in_parallel(f.block.body, gpu.elementwise.parallel_iterations)


def _in_parallel(body: Stmt, least: int) -> bool:
    loops = [s for s in stmt_list(body) if isinstance(s, For) and s.kind is ForKind.PARALLEL]
    return len(loops) == len(stmt_list(body)) and all(number(s.extent) >= least for s in loops)
