"""The work of kernels for GPUs: the tables of stages without register tiles, figures for `explain()`, and features for
a learned model."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from ....ir.stmt import ForKind
from ....target import Target
from ....target.gpu_machine import GpuMachine
from ....tir.schedule import Schedule
from ....tir.schedule.primitive import BlockRV
from ...cost.gpu import Count, Counts, bound_of, counts_of, seconds_of, stacked
from ...cost.table import Array, Table
from ...program.facts import Facts, number
from ...program.stages import Stage
from ..rule import Applied, Match, Refusal, Row
from .kernel import Kernel

__all__ = [
    "SimpleRule",
    "bytes_of",
    "gpu_features",
    "grid_of",
    "kernel_figures",
    "kernel_table",
    "machine_features",
    "operations",
    "simple_table",
    "stage_counts",
    "stage_figures",
]


# ---------------------------------------------------------------------------- stages without register tiles
class SimpleRule:
    """A rule without register tiles: its decisions are the threads of a block and the width of vectors."""

    name = ""
    sketch = ""  # the name that `explain()` gives it, if that is not the name of the rule
    needs: frozenset[str] = frozenset()
    free = True  # whether the threads of a block can be decided

    def match(self, stage: Stage, target: Target) -> Match | Refusal:
        raise NotImplementedError

    def counts(self, match: Match, threads: Array, wide: Array) -> Counts:
        """The work of the kernel, for arrays of both decisions."""
        raise NotImplementedError

    def steps(self, k: Kernel, match: Match) -> dict[str, Any] | Refusal:
        """Make the kernel. Returns the notes for `explain()`, with `kernel`, the block whose loops are its grid; a
        Refusal if it is not possible with these decisions."""
        raise NotImplementedError

    def more(self, match: Match) -> dict[str, float]:
        """Counts that are the same for all rows: margins, and the work that is left to other rules."""
        return {}

    def in_vectors(self, match: Match) -> bool:
        """Whether the width of vectors can be decided."""
        return False

    def table(self, match: Match, machine: GpuMachine, only: Mapping[str, int] | None = None) -> Table:
        def counts(threads: Array, wide: Array) -> Counts:
            return self.counts(match, threads, wide)

        vectors, more = self.in_vectors(match), self.more(match)
        return simple_table(match.stage, machine, counts, only, self.free, vectors, **more)

    def apply(self, sch: Schedule, match: Match, row: Row) -> Applied | Refusal:
        k = Kernel(match.stage, row.values["threads"], row.values["wide"])
        note = self.steps(k, match)
        if isinstance(note, Refusal):
            return note
        kernel, registers = note.pop("kernel", match.stage.facts.rv), note.get("registers", 0)
        figures = stage_figures(sch, match.stage.chain, kernel, match.machine, registers)
        return Applied(note, self.sketch, figures=figures)


_MARGINS = ("prior", "margin")
_COLUMNS = ("threads", "wide")  # 0 means that the rule chooses; that is the first row


def simple_table(
    stage: Stage,
    gpu: GpuMachine,
    counts: Callable[[Array, Array], Counts],
    only: Mapping[str, int] | None = None,
    threads: bool = True,
    vectors: bool = False,
    **more: float,
) -> Table:
    """The table of a stage whose decisions are the threads of a block and the width of vectors: the choice of the rule,
    and what a search may measure instead. `counts` takes arrays of both; `more` are counts of all rows, those left to
    other rules among them."""
    widest = max(1, 16 * 8 // max(8, stage.facts.bits))
    wide = [w for w in (1, 2, 4, 8, 16) if w <= widest] if vectors else []
    sizes = [n for n in (32, 64, 128, 256, 512, 1024) if n <= gpu.max_threads_per_block] if threads else []
    every = np.array([(0, 0), *product(sizes, [0, *wide])], np.int64)

    def made(points: Array, finer: Callable[[], Table] | None = None) -> Table:
        each = np.where(points[:, 0] == 0, gpu.elementwise.plain_threads, points[:, 0])
        taken = np.where(points[:, 1] == 0, widest, points[:, 1])
        c = counts(each, taken)
        all_counts = {**counts_of(c), "threads": each, **more}
        if "prior" not in more:
            # Of equal candidates the choice of the rule comes first.
            all_counts["prior"] = np.where(points[:, 0] == 0, 1.0, gpu.tile.rival)
        made = Table(
            _COLUMNS, points, all_counts, left=_in(more, "left"), margins=_in(more, *_MARGINS), finer=finer
        )
        return _with_features(stage, made)

    if only is not None:
        return made(every[(every == [only["threads"], only["wide"]]).all(axis=1)])
    return made(every[:1], (lambda: made(every)) if len(every) > 1 else None)


def kernel_table(
    stage: Stage,
    columns: tuple[str, ...],
    points: Sequence[Sequence[int]],
    kernels: Sequence[Counts],
    effort: Array | float = 4.0,
    finer: Callable[[], Table] | None = None,
    **more: Any,
) -> Table:
    """A table with the counts of a kernel for each row."""
    rows = np.array(points, np.int64).reshape(len(kernels), len(columns))
    counts = {**stacked(kernels), **{k: np.broadcast_to(v, (len(kernels),)) for k, v in more.items()}}
    margins = _in(more, *_MARGINS)
    return _with_features(stage, Table(columns, rows, counts, margins=margins, effort=effort, finer=finer))


def _in(counts: Mapping[str, Any], *names: str) -> tuple[str, ...]:
    return tuple(name for name in names if name in counts)


def _with_features(stage: Stage, table: Table) -> Table:
    return replace(table, shape=lambda figures: gpu_features(stage.heavy, table, figures["seconds"]))


def stage_counts(group: Sequence[Facts], gpu: GpuMachine, blocks: Count, width: Count = 1.0) -> Counts:
    """The work of a kernel for some stages without reuse, in `blocks` thread blocks; its loads have a `width` relative
    to the widest vectors. DRAM reaches its full bandwidth if all SMs load, and load wide vectors."""
    w = gpu.tile
    full = np.minimum(1.0, blocks / (w.busy_blocks * gpu.multiprocessors)) ** w.busy_exponent
    full = full * (w.scalar_rate + (1 - w.scalar_rate) * width)
    work = sum(f.points * (1 + f.work) for f in group) / (gpu.fma_per_cycle * gpu.multiprocessors)
    compute = np.full(full.shape, float(work)) if np.ndim(full) else float(work)
    return Counts(compute=compute, dram=bytes_of(group), dram_rate=full, blocks=blocks)


def bytes_of(group: Sequence[Facts]) -> int:
    """The bytes that one kernel for some stages reads and writes; those between the stages stay inside."""
    if len(group) == 1:
        return sum(group[0].touched(r) for r in group[0].accesses)
    inside = {f.write.buffer for f in group[:-1] if f.write is not None}
    most: dict[Any, int] = {}
    for f in group:
        for r in f.accesses:
            if r.buffer not in inside:
                most[r.buffer] = max(most.get(r.buffer, 0), f.touched(r))
    return sum(most.values())


def operations(group: Sequence[Facts]) -> int:
    """Operations of some stages: a multiply-add counts as two, an elementwise stage by its work in additions."""
    return sum(f.points * (2 if f.reduce else max(1, f.work)) for f in group)


# ---------------------------------------------------------------------------- for `explain()`
def kernel_figures(c: Counts, flop: int, moved: int, gpu: GpuMachine, before: float = 0.0) -> dict[str, Any]:
    """The figures of a kernel; `before` are cycles of kernels that transpose its operands."""
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
    """The figures of a kernel for some stages that hardly reuse their operands, with its grid."""
    blocks, threads = grid_of(sch, rv)
    resident = max(1, min(gpu.limits.blocks, gpu.limits.threads // max(1, threads)))
    if registers:
        resident = max(1, min(resident, gpu.limits.registers // (registers * max(1, threads))))
    at_once = max(1, min(resident, -(-blocks // gpu.multiprocessors)))
    c = stage_counts(group, gpu, blocks or gpu.multiprocessors)
    c = replace(c, blocks=blocks, at_once=at_once, threads=threads, registers=registers)
    return kernel_figures(c, operations(group), bytes_of(group), gpu)


def grid_of(sch: Schedule, rv: BlockRV) -> tuple[int, int]:
    """The thread blocks of the kernel that a block is in, those of a likely size where it is dynamic, and the threads
    of each, from the loops around it. (Nothing is added to the trace.)"""
    sizes = {"blockIdx": 1, "threadIdx": 1, "clusterCtaIdx": 1}
    for loop in sch.state.index.loops_of(sch.realize(rv)):
        if loop.kind is ForKind.THREAD_BINDING and loop.thread_binding is not None:
            axis = loop.thread_binding.thread_tag.split(".")[0]
            if axis in sizes:
                sizes[axis] *= number(loop.extent)
    return sizes["blockIdx"] * sizes["clusterCtaIdx"], sizes["threadIdx"]


# ---------------------------------------------------------------------------- for learned models
_WORK = (
    "rounds", "steps", "compute", "shared", "l2", "latency", "overhead", "ends", "dram", "dram_rate", "split", "blocks",
    "at_once", "threads", "registers", "shared_bytes", "l2_bytes", "before",
)  # fmt: skip
_DECIDED = (
    "rows", "columns", "depth", "stages", "parts", "high", "wide", "own_high", "own_wide", "groups_high", "groups_wide",
    "fetch", "unroll", "lanes", "threads", "per_processor",
)  # fmt: skip


def gpu_features(f: Facts, table: Table, seconds: Array) -> Array:
    """The features of each row for a learned model: its time, its counts and decisions, and the sizes of the stage. The
    columns are the same for all rules."""
    nothing = np.zeros(len(table))
    work = [table.count(n) for n in _WORK]
    made = [table.column(n) if n in table.columns else nothing for n in _DECIDED]
    step = 1.0 + table.count("compute")
    ratios = [(1.0 + table.count(n)) / step for n in ("shared", "l2", "latency")]
    read = sum(f.touched(r) for r in f.reads)
    written = f.touched(f.write) if f.write is not None else 0
    spatial, reduced = math.prod(a.extent for a in f.spatial), math.prod(a.extent for a in f.reduce)
    sizes = [np.full(len(table), x) for x in (spatial, reduced, read, written, f.work, len(f.reads))]
    columns = np.stack([seconds * 1e9, *work, *made, *sizes], axis=1).astype(np.float64)
    logs = np.log2(1.0 + np.maximum(columns, 0.0))
    return np.concatenate([logs, np.log2(np.stack(ratios, axis=1))], axis=1).astype(np.float32)


def machine_features(gpu: GpuMachine) -> Array:
    """The features of a GPU for a learned model."""
    sizes = [gpu.max_threads_per_block, gpu.shared_memory_per_block, gpu.dynamic_shared_memory_per_block]
    rates = [gpu.multiprocessors, gpu.l2_cache, gpu.bandwidth, gpu.fma_per_cycle]
    return np.array([*(math.log2(1 + x) for x in (*sizes, *rates)), gpu.clock], np.float32)
