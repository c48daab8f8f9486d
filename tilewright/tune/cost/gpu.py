"""The cost model of GPUs: cycles of a kernel from the counts of its work.

    a thread block   steps of a reduction, each as long as the slowest of arithmetic, shared memory, copies from the
                     L2 cache and the latency of these copies; then the epilogue
    an SM            rounds of thread blocks; several at the same time share it
    the GPU          at least as long as DRAM takes for what must be read once; and, for split-K, a second kernel

Rules count the work of their kernels with the figures of the machine (`target/gpu_machine.py`); nothing here knows a
rule. A count is a number, or an array with one entry for each candidate. The counts of a table are those of `Counts`
and these:

    before      cycles of kernels that run before this one: they transpose its operands
    launches    kernels that the host launches; 1 if it is absent
    left        seconds of the kernels of the stages that are left to other rules
    prior       what time is multiplied with where rules are compared: what this model does not know yet
    margin      cycles that are added there
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ...target.gpu_machine import GpuMachine
from .table import Array, Table

__all__ = [
    "Counts",
    "best_row",
    "bound_of",
    "counts_of",
    "cycles_of",
    "evaluate",
    "seconds",
    "seconds_of",
    "stacked",
]

Count = Any  # a number, or an array of numbers


@dataclass(frozen=True, slots=True)
class Counts:
    """The work of a kernel. Cycles of a step are those of all thread blocks that share an SM."""

    rounds: Count = 1  # thread blocks, or groups that run at the same time, of the busiest SM
    steps: Count = 1
    compute: Count = 0.0  # cycles of a step: arithmetic
    shared: Count = 0.0  # … accesses to shared memory
    l2: Count = 0.0  # … copies from global memory, mostly from the L2 cache
    latency: Count = 0.0  # … at least the latency of a copy
    overhead: Count = 0.0  # … overhead that nothing hides
    ends: Count = 0.0  # cycles of a round before its first step and after its last: the epilogue
    launch: Count = 0.0  # cycles
    dram: Count = 0.0  # bytes that are read from DRAM once
    dram_rate: Count = 1.0  # fraction of the bandwidth that is reached
    dram_launch: Count = 0.0
    split: Count = 0.0  # bytes of partial sums that split-K writes and reads; 0 without split-K
    split_rate: Count = 1.0
    split_launch: Count = 0.0
    # What a kernel does and occupies, for `explain()`:
    flop: Count = 0  # operations; 0: those of the stage
    blocks: Count = 0  # thread blocks in all
    at_once: Count = 1  # thread blocks that an SM holds at the same time
    threads: Count = 0  # threads of a block
    registers: Count = 0  # estimated registers of a thread
    shared_bytes: Count = 0  # shared memory of a block
    l2_bytes: Count = 0  # bytes that all steps copy from global memory


_NAMES = tuple(f.name for f in fields(Counts))


def stacked(kernels: Sequence[Counts]) -> dict[str, Array]:
    """The counts of several kernels, as the counts of a table with a row for each."""
    return {name: np.array([float(getattr(c, name)) for c in kernels]) for name in _NAMES}


def counts_of(c: Counts) -> dict[str, Count]:
    """Counts that are arrays, or the same for all rows, as the counts of a table."""
    return {name: getattr(c, name) for name in _NAMES}


# ---------------------------------------------------------------------------- tables
def evaluate(table: Table, gpu: GpuMachine) -> dict[str, Array]:
    """The seconds of each row, and the seconds that each cause takes."""
    c = Counts(**{n: table.count(n) for n in _NAMES if n in table.counts or n == "compute"})
    hertz, before, left = gpu.clock * 1e9, table.count("before"), table.count("left")
    launches = table.count("launches") if "launches" in table.counts else np.ones(len(table))
    prior = np.where(table.count("prior") > 0, table.count("prior"), 1.0)
    own = cycles_of(c, gpu) / hertz + launches * gpu.tile.launch_seconds + before / hertz
    steps = c.rounds * c.steps / hertz
    return {
        "seconds": (own + left) * prior + table.count("margin") / hertz,
        "for arithmetic": steps * c.compute,
        "for shared memory": steps * c.shared,
        "for the L2 cache": steps * c.l2,
        "for the latency of copies": steps * c.latency,
        "for DRAM": c.dram / (gpu.bandwidth * c.dram_rate) * 1e-9 + c.dram_launch / hertz,
        "for the epilogue": c.rounds * c.ends / hertz,
        "for launches": c.launch / hertz + launches * gpu.tile.launch_seconds,
        "for split-K": np.zeros(len(table)) + _split_cycles(c, gpu) / hertz,
        "for transposing": before / hertz,
        "for other kernels": left,
    }


def seconds(table: Table, gpu: GpuMachine) -> Array:
    """The predicted time of each row, in seconds."""
    return evaluate(table, gpu)["seconds"]


def best_row(table: Table, gpu: GpuMachine, figures: Mapping[str, Array]) -> int:
    """The row of a table with the least time, the first of equals."""
    return int(np.argmin(figures["seconds"]))


# ---------------------------------------------------------------------------- one kernel
def cycles_of(c: Counts, gpu: GpuMachine) -> Count:
    """The estimated cycles of a kernel."""
    most = np.maximum if isinstance(c.compute, np.ndarray) else max
    step = most(most(c.compute, c.shared), most(c.l2, c.latency)) + c.overhead
    total = c.rounds * (c.steps * step + c.ends) + c.launch
    total = most(total, c.dram / (gpu.bandwidth * c.dram_rate) * gpu.clock + c.dram_launch)
    return total + _split_cycles(c, gpu)


def _split_cycles(c: Counts, gpu: GpuMachine) -> Count:
    """The cycles that split-K adds: a second kernel reads partial sums and adds them."""
    if isinstance(c.split, (int, float)) and not c.split:
        return 0.0
    return c.split_launch + c.split / (gpu.bandwidth * c.split_rate) * gpu.clock


def seconds_of(c: Counts, gpu: GpuMachine) -> Count:
    """The estimated time of a kernel, in seconds, with its launch by the host."""
    return cycles_of(c, gpu) / (gpu.clock * 1e9) + gpu.tile.launch_seconds


def bound_of(c: Counts, gpu: GpuMachine) -> str:
    """What takes most of the time of a kernel (of one candidate)."""
    steps = c.rounds * c.steps
    longest, unit = max(
        (c.compute, "arithmetic"), (c.shared, "shared memory"), (c.l2, "L2 cache"), (c.latency, "latency of copies"),
        key=lambda x: float(x[0]),
    )  # fmt: skip
    dram = c.dram / (gpu.bandwidth * c.dram_rate) * gpu.clock + c.dram_launch
    total = c.rounds * (c.steps * (longest + c.overhead) + c.ends) + c.launch
    if dram >= total:
        return "DRAM"
    parts = [
        (steps * longest, unit), (steps * c.overhead, "barriers"), (c.rounds * c.ends, "epilogue"),
        (c.launch, "launch"), (_split_cycles(c, gpu), "partial sums of split-K"),
    ]  # fmt: skip
    return max(parts, key=lambda x: float(x[0]))[1]
