"""The predicted time of a row on a CPU: one model for every rule.

    cycles of a step    = max(multiply-adds, loads, operations, latency) + spills + stalls
    cycles of a tile    = steps · cycles of a step + writing it out, or its traffic, whichever is longer
    cycles of the whole = tiles · cycles of a tile / threads, and everything comes from memory at least once

What a rule counts (an absent count is 0), for a tile unless it says otherwise:

    tiles           tiles in all; a partial one counts by its cost relative to a whole one
    steps           steps of the innermost loop
    multiply_adds   vector multiply-adds of a step                operations    other vector operations of a step
    vector_loads    vector loads of a step                        scalar_loads  loads of a step that are broadcast
    registers       vector registers that a step holds            chained       1: a step waits for the one before
    stalls          cycles that a step waits for caches           finish        cycles outside the steps
    near_bytes      bytes read of the operand that is reused, and near_set, the bytes over which it is reused
    far_bytes       bytes read of the others, and far_set;        prefetched    1: all traffic is hidden
    packed          elements packed into panels, by all threads;  packed_bytes, each;  packed_cycles, each
    threads         1: all cores share the tiles;  longest: the busiest core's share of them;  launches of threads
    serial          cycles of one thread beside the tiles
    margin          launches that threads must save beyond that to be worth it; only rows of one rule are compared so
    left_operations, left_bytes, left_set, left_launches      the same of the stages that are left to other rules
    prior           a factor of the time, for effects that this model does not know yet, or cannot know (accuracy)

The constants are `machine.fit`; where one shape is slow, one of them, or a rule, is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...target.machine import CpuMachine
from .table import Array, Table

__all__ = ["best_row", "bound_of", "evaluate", "level_of", "seconds"]


def seconds(table: Table, machine: CpuMachine) -> Array:
    """The predicted time of each row, in seconds."""
    return evaluate(table, machine)["seconds"]


def best_row(table: Table, machine: CpuMachine, figures: Mapping[str, Array]) -> int:
    """The row of a table with the fewest cycles, the first of equals; with threads only if they save the margin."""
    launch = machine.launch_us * 1e3 * machine.clock
    return int(np.argmin(figures["cycles"] + table.count("margin") * table.count("threads") * launch))


def evaluate(table: Table, machine: CpuMachine) -> dict[str, Array]:
    """The cycles of each row, and their components: the cycles of a tile, and the cycles of each cause in all."""
    count, fit = table.count, machine.fit
    threads = count("threads") > 0
    cores = np.where(threads, machine.num_cores, 1)
    step = _step(table, machine)
    compute = count("steps") * step["point"] + count("finish")
    traffic = count("near_bytes") / _bandwidth(machine, count("near_set"), cores)
    traffic = traffic + count("far_bytes") / _bandwidth(machine, count("far_set"), cores)
    overlap = np.where(count("prefetched") > 0, 0.0, fit.overlap)
    whole = _together(compute, traffic, overlap) * count("tiles")
    launch = np.where(threads, machine.launch_us * 1e3 * machine.clock, 0.0)
    share = np.where(threads, count("longest"), 1.0)
    whole = whole * share + count("launches") * launch
    first = _first_touch(table, machine, cores)
    packing = _packing(table, machine, cores)
    whole = _together(whole, first, fit.overlap) + packing + count("serial")
    left = count("left_bytes") / _bandwidth(machine, count("left_set"), cores)
    left = _together(count("left_operations"), left, fit.overlap) / cores + count("left_launches") * launch
    whole = (whole + left) * np.where(count("prior") > 0, count("prior"), 1.0)
    return {
        "cycles": whole,
        "seconds": whole / (machine.clock * 1e9),
        "compute": compute,
        "traffic": traffic,
        "first_touch": first,
        "panel": count("near_set"),
        "streamed": count("far_set"),
        "units": count("units"),
        **step,
        "for arithmetic": compute * count("tiles") * share,
        "for bytes": np.maximum(traffic * count("tiles") * share, first),
        "for threads": count("launches") * launch,
        "for packing": packing + count("serial"),
        "for other stages": left,
    }


def _together(x: Array, y: Array, overlap: Array | float) -> Array:
    """The time of two activities that overlap."""
    return np.maximum(x, y) + overlap * np.minimum(x, y)


def _step(table: Table, machine: CpuMachine) -> dict[str, Array]:
    """The cycles of one step of a tile, with their components."""
    count, fit = table.count, machine.fit
    scalar, held = count("scalar_loads"), count("registers")
    fma = count("multiply_adds") / machine.fma_ports
    loads = (count("vector_loads") + fit.scalar_load * scalar) / machine.loads_per_cycle
    spills = np.maximum(0, held - machine.vector_registers) * fit.spill
    busy = np.maximum(np.maximum(fma, loads + fit.load_beside * fma), machine.fma_latency * count("chained"))
    busy = np.maximum(busy, count("operations"))
    point = busy + spills + count("stalls") + fit.broadcast * scalar
    return {"point": point, "fma": fma, "loads": loads, "registers": held, "spills": spills}


def _bandwidth(machine: CpuMachine, size: Array, cores: Array) -> Array:
    """The bandwidth of one core, in bytes in a cycle, for `size` bytes that it reads again and again."""
    caches, fill = machine.cache_sizes, machine.fit.cache_fill
    memory = np.where(
        cores > 1,
        machine.bandwidth(machine.num_cores) / machine.num_cores / machine.clock,
        machine.bandwidth(1) / machine.clock,
    )
    return np.where(
        size <= fill * caches.l1d,
        machine.l1_bandwidth,
        np.where(
            size <= fill * caches.l2,
            machine.l2_bandwidth,
            np.where(size <= fill * caches.l3 / cores, machine.l3_bandwidth, memory),
        ),
    )


def _first_touch(table: Table, machine: CpuMachine, cores: Array) -> Array:
    """The cycles for loading every operand once from its level of memory, by all cores together."""
    total = np.zeros(len(table))
    for size in table.operands:
        if size > machine.cache_sizes.l2:
            total = total + size / _bandwidth(machine, np.asarray(size) / cores, cores) / cores
    return total


def _packing(table: Table, machine: CpuMachine, cores: Array) -> Array:
    """The cycles for packing an operand into panels."""
    if "packed" not in table.counts:
        return np.zeros(len(table))
    size, each = table.count("packed"), table.count("packed_bytes")
    source = 2 * each / _bandwidth(machine, size * each, cores)
    return size * (table.count("packed_cycles") + source) / cores


# ---------------------------------------------------------------------------- for people
def level_of(machine: CpuMachine, size: float) -> str:
    """The level of memory that holds so many bytes."""
    caches = machine.cache_sizes
    for name, room in (("L1", caches.l1d), ("L2", caches.l2), ("L3", caches.l3)):
        if size <= machine.fit.cache_fill * room:
            return name
    return "memory"


def bound_of(figures: Mapping[str, float], operands: float, machine: CpuMachine) -> str:
    """What limits a row, by its components; `operands` are the bytes of all operands."""
    if figures["traffic"] > figures["compute"]:
        return level_of(machine, max(figures["panel"], figures["streamed"]))
    if figures["first_touch"] > 0.5 * figures["cycles"]:
        return "memory" if operands > machine.cache_sizes.l3 else "L3"
    return "loads from L1" if figures["loads"] > figures["fma"] else "compute"
