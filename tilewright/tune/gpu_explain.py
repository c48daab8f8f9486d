"""Why a kernel of a GPU is as it is: its figures, what bounds it, and the best rival.

figures     operations, bytes of DRAM and of the L2 cache, registers, occupancy, predicted time, what takes most of it
rival       the best other kind of kernel for the stage, with its predicted time
refused     the kinds that cannot compute the stage on this target, each with its reason
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..ir.errors import ScheduleError
from ..ir.expr import const_value
from ..ir.stmt import ForKind
from ..target.gpu_machine import GpuMachine
from ..tir.schedule import Schedule
from ..tir.schedule.primitive import BlockRV
from .cost.gpu import Counts, bound_of, seconds_of
from .gpu_space import bytes_of, stage_counts
from .program.facts import Facts

__all__ = [
    "Grid",
    "Rival",
    "grid_of",
    "kernel_figures",
    "lost",
    "operations",
    "simple_rivals",
    "stage_figures",
]


@dataclass(frozen=True, slots=True)
class Rival:
    """Another way to compute a stage: how `explain()` calls it, and the predicted seconds."""

    kind: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Grid:
    """The thread blocks of a kernel, and the threads of each."""

    blocks: int
    threads: int


def grid_of(sch: Schedule, rv: BlockRV) -> Grid:
    """The grid of the kernel that a block is in, from the loops around it. (Nothing is added to the trace.)"""
    sizes = {"blockIdx": 1, "threadIdx": 1, "clusterCtaIdx": 1}
    for loop in sch.state.index.loops_of(sch.realize(rv)):
        if loop.kind is ForKind.THREAD_BINDING and loop.thread_binding is not None:
            axis = loop.thread_binding.thread_tag.split(".")[0]
            if axis in sizes:
                sizes[axis] *= int(const_value(loop.extent) or 1)
    return Grid(sizes["blockIdx"] * sizes["clusterCtaIdx"], sizes["threadIdx"])


def kernel_figures(c: Counts, flop: int, moved: int, gpu: GpuMachine, before: float = 0.0) -> dict[str, Any]:
    """The figures of a kernel with counts of its own; `before` are cycles of kernels that transpose its operands."""
    seconds = float(seconds_of(c, gpu)) + before / (gpu.clock * 1e9)
    warps = int(c.at_once) * -(-int(c.threads) // 32)
    return {
        "flop": flop,
        "dram_bytes": moved,
        **({"l2_bytes": int(c.l2_bytes)} if c.l2_bytes else {}),
        "intensity": round(flop / max(1, moved), 2),
        "blocks": int(c.blocks),
        "blocks_per_sm": int(c.at_once),
        "warps_per_sm": warps,
        "warps_there": gpu.limits.threads // 32,
        **({"registers": int(c.registers)} if c.registers else {}),
        **({"shared_bytes": int(c.shared_bytes)} if c.shared_bytes else {}),
        "bound": bound_of(c, gpu),
        "predicted_us": round(seconds * 1e6, 2),
        "predicted_gflops": round(flop / max(seconds, 1e-12) / 1e9, 1),
    }


def stage_figures(
    sch: Schedule, group: Sequence[Facts], rv: BlockRV, gpu: GpuMachine, registers: int = 0
) -> dict[str, Any]:
    """The figures of a kernel for some stages that hardly reuse what they read."""
    try:
        grid = grid_of(sch, rv)
    except ScheduleError:  # the block is gone: it was split in two, or inlined
        grid = Grid(0, 0)
    held = max(1, min(gpu.limits.blocks, gpu.limits.threads // max(1, grid.threads)))
    if registers:
        held = max(1, min(held, gpu.limits.registers // (registers * max(1, grid.threads))))
    at_once = max(1, min(held, -(-grid.blocks // gpu.multiprocessors)))
    c = stage_counts(group, gpu, grid.blocks or gpu.multiprocessors)
    c = Counts(
        compute=c.compute, dram=c.dram, dram_rate=c.dram_rate, blocks=grid.blocks, at_once=at_once,
        threads=grid.threads, registers=registers,
    )  # fmt: skip
    return kernel_figures(c, operations(group), bytes_of(group), gpu)


def operations(group: Sequence[Facts]) -> int:
    """Operations of some stages: a multiply-add counts as two, an elementwise stage by its work in additions."""
    return sum(f.points * (2 if f.reduce else max(1, f.work)) for f in group)


def simple_rivals(kind: str, group: Sequence[Facts], gpu: GpuMachine) -> list[Rival]:
    """The other ways to compute stages that are no tile."""
    last = group[-1]
    results = max(1, math.prod(a.extent for a in last.spatial))
    if len(group) > 1:
        each = [float(seconds_of(stage_counts([f], gpu, _blocks(f, gpu)), gpu)) for f in group]
        return [Rival("a kernel for each stage", sum(each))]
    if kind == "transpose":  # each element that is read costs a whole sector
        c = stage_counts(group, gpu, _blocks(last, gpu))
        strided = sum(last.touched(r) * (gpu.sector // max(1, r.bytes) - 1) for r in last.reads)
        c = Counts(compute=c.compute, dram=c.dram + strided, dram_rate=c.dram_rate)
        return [Rival("elementwise, with strided reads", float(seconds_of(c, gpu)))]
    if kind in ("rows", "columns"):
        c = stage_counts(group, gpu, -(-results // gpu.elementwise.plain_threads))
        return [Rival("a thread for each result", float(seconds_of(c, gpu)))]
    return []


def _blocks(f: Facts, gpu: GpuMachine) -> int:
    """About how many thread blocks a kernel for one stage has: one for each row of a reduction."""
    results = math.prod(a.extent for a in f.spatial)
    return max(1, results if f.reduce else results // gpu.elementwise.threads)


def lost(rivals: Sequence[Rival], refused: Mapping[str, str], seconds: float, order: str) -> dict[str, Any]:
    """What `explain()` says of the kinds that were not taken. `order` says why an estimate that is lower lost."""
    out: dict[str, Any] = {}
    if rivals:
        best = min(rivals, key=lambda r: r.seconds)
        times = best.seconds / max(seconds, 1e-12)
        slower = times > 0.995  # two digits are shown
        why = f"{times:.2f} times as long" if slower else f"{times:.2f} of the time, but {order}"
        out["rival"] = {"kind": best.kind, "predicted_us": round(best.seconds * 1e6, 2), "because": why}
    if refused:
        out["refused"] = dict(refused)
    return out
