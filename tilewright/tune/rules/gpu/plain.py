"""Stages without a better rule: a thread for each result, one thread for all, or loops that are parallel already."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from ....ir.stmt import For, ForKind, Stmt, stmt_list
from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule import Schedule
from ...cost.gpu import Counts, seconds_of
from ...cost.table import Array
from ...program.facts import Facts, facts_of, number
from ...program.patterns import is_pooling, reuses
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .figures import SimpleRule, stage_counts
from .kernel import Kernel
from .windows import is_depthwise

__all__ = ["ParallelLoops", "Plain", "SingleThread"]


class Plain(SimpleRule):
    """A thread for each result, with the padding of its operands inlined.

    costs        a load for each operand of each term: nothing is kept near, and every step waits for its loads
    """

    name = "plain"

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        f = stage.facts
        if not stage.single:
            return Refusal("it is a chain of stages")
        spatial = [iv for iv in f.block.iter_vars if iv.iter_type == 0]
        if not spatial or stage.program.loop_count(f.rv) != len(f.block.iter_vars):
            return Refusal("no loop can be shared by threads", near=True)
        if is_parallel(f, target.gpu):
            return Refusal("its parallel loops become threads")
        return Match(stage, target.gpu)

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        return _plain_counts(match.stage.facts, match.machine, threads)

    def more(self, match: Match) -> dict[str, float]:
        f, gpu = match.stage.facts, match.machine
        # The L1 cache serves windows of one tensor well.
        product = f.kind == "reduction" and reuses(f) and not (is_pooling(f) or is_depthwise(f))
        doubt = {"prior": gpu.elementwise.plain_prior, "margin": gpu.tile.margin} if product else {}
        consumer = match.stage.program.fusable_consumer(f) if f.reduce and f.write is not None else None
        if consumer is None:
            return doubt
        # The epilogue is a kernel of its own.
        c = facts_of(match.stage.program.sch, consumer)
        blocks = max(1, c.points // gpu.elementwise.threads)
        return {**doubt, "left": float(seconds_of(stage_counts([c], gpu, blocks), gpu))}

    def steps(self, k: Kernel, match: Match) -> dict[str, Any]:
        f, sch = match.stage.facts, k.sch
        k.inline_padding(f)
        loops = zip(sch.get_loops(f.rv), f.block.iter_vars, strict=False)
        spatial = [x for x, iv in loops if iv.iter_type == 0]
        sch.reorder(*spatial)
        k.spread(k.fused(spatial, f.rv), k.most)
        return {"threads": k.most}


def _plain_counts(f: Facts, gpu: GpuMachine, threads: Array) -> Counts:
    """Loads that are not coalesced cost a sector each. A step is a term of a reduction."""
    w, results = gpu.elementwise, max(1, math.prod(a.extent for a in f.spatial))
    blocks = np.maximum(1, -(-results // threads))
    # Loads of single elements have less in flight than those of vectors.
    busy = blocks / max(1, 16 * 8 // max(8, f.bits))
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


class SingleThread(SimpleRule):
    """One thread for all results."""

    name = "single thread"
    sketch = "plain"
    free = False

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if not stage.single:
            return Refusal("it is a chain of stages")
        if is_parallel(stage.facts, target.gpu):
            return Refusal("its parallel loops become threads")
        shared = Plain().match(stage, target)
        return Match(stage, target.gpu, shared.why if isinstance(shared, Refusal) else "")

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        f, w = match.stage.facts, match.machine.elementwise
        c = stage_counts([f], match.machine, np.ones(len(threads)))
        opaque = f.kind == "opaque"
        steps, step = (_elements(f), w.serial_access) if opaque else (f.points, w.load_latency)
        return replace(c, steps=float(steps), compute=np.full(len(threads), float(step)))

    def more(self, match: Match) -> dict[str, float]:
        return {"margin": match.machine.tile.margin}

    def steps(self, k: Kernel, match: Match) -> dict[str, Any]:
        rv = match.stage.facts.rv
        k.sch.bind(k.fused([], rv), "blockIdx.x")
        k.sch.bind(k.sch.add_unit_loop(rv), "threadIdx.x")
        return {"threads": 1, **({"instead": match.found} if match.found else {})}


class ParallelLoops(SimpleRule):
    """Loops that are marked parallel, in a block that is not analyzed: lowering makes threads of them."""

    name = "parallel loops"
    free = False

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        if not stage.single or not is_parallel(stage.facts, target.gpu):
            return Refusal("it has no parallel loops of its own")
        return Match(stage, target.gpu)

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        f, gpu = match.stage.facts, match.machine
        c = stage_counts([f], gpu, np.full(len(threads), gpu.multiprocessors))
        loops = stmt_list(f.block.body)
        iterations = max(1, *(number(s.extent) for s in loops if isinstance(s, For)))
        rounds = np.full(len(threads), max(1.0, iterations / (gpu.multiprocessors * gpu.limits.threads)))
        steps, w = _elements(f) / iterations, gpu.elementwise
        bits = max((r.buffer.dtype.bits for r in (*f.block.reads, *f.block.writes)), default=32)
        return replace(
            c,
            rounds=rounds,
            steps=steps,
            latency=w.parallel_access,
            dram=_elements(f) * max(1, bits // 8),
            dram_rate=w.parallel_rate,
        )

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied:
        return Applied({"because": "its parallel loops become threads"}, "as it is")


def _elements(f: Facts) -> int:
    """The elements that a body which is not analyzed reads and writes, once each."""
    regions = (*f.block.reads, *f.block.writes)
    return max(f.points, sum(math.prod(number(x.extent) for x in r.region) for r in regions))


def is_parallel(f: Facts, gpu: GpuMachine) -> bool:
    """Whether a body that is not analyzed consists of parallel loops with enough iterations for threads."""
    return f.kind == "opaque" and _in_parallel(f.block.body, gpu.elementwise.parallel_iterations)


def _in_parallel(body: Stmt, least: int) -> bool:
    loops = [s for s in stmt_list(body) if isinstance(s, For) and s.kind is ForKind.PARALLEL]
    return len(loops) == len(stmt_list(body)) and all(number(s.extent) >= least for s in loops)
