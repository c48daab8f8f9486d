"""The predicted time of a row on an accelerator with engines: one model for every rule.

    cycles = max(first + compute + exposed, load + store - last, loading + store - last + rest, storing) + last

Engines run side by side, so the longest of them counts, and the cycles that one of them must wait for another: loads
wait for the port while it stores. What a rule counts (an absent count is 0), in cycles of the chip and for the whole
stage:

    compute      cycles of the compute engine: products, vector operations, the start of each instruction
    load, store  cycles of the DRAM port
    loading, storing    cycles of the DMA engines: latency included, which data of other transfers cannot hide
    exposed      cycles that the compute engine waits for transfers into memory that has no second version
    first, last  cycles before the first product and after the last one, which nothing hides
    rest         cycles of the compute engine behind the last load
    left         seconds of the stages that are left to other rules
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ...target.accelerator import Accelerator
from .table import Array, Table

__all__ = ["best_row", "bound_of", "evaluate", "seconds"]


def evaluate(table: Table, chip: Accelerator) -> dict[str, Array]:
    """The seconds of each row, and the seconds that each cause takes."""
    count, hertz = table.count, chip.clock
    compute = count("first") + count("compute") + count("exposed")
    stored = np.maximum(0, count("store") - count("last"))  # while others use the port
    port = count("load") + stored
    engines = np.maximum(count("loading") + stored, count("storing"))
    ends = count("first") + count("last")
    cycles = np.maximum(np.maximum(compute, port), engines + count("rest")) + count("last")
    return {
        "seconds": cycles / hertz + count("left"),
        "cycles": cycles,
        "for arithmetic": count("compute") / hertz,
        "for the DRAM port": port / hertz,
        "for DMA engines": engines / hertz,
        "for transfers that nothing hides": count("exposed") / hertz,
        "for the first and the last transfer": ends / hertz,
    }


def seconds(table: Table, chip: Accelerator) -> Array:
    """The predicted time of each row, in seconds."""
    return evaluate(table, chip)["seconds"]


def best_row(table: Table, chip: Accelerator, figures: Mapping[str, Array]) -> int:
    """The row of a table with the least time, the first of equals."""
    return int(np.argmin(figures["seconds"]))


def bound_of(figures: Mapping[str, float]) -> str:
    """The cause that takes the longest."""
    causes = {k: v for k, v in figures.items() if k.startswith("for ")}
    return max(causes, key=lambda k: causes[k]).removeprefix("for ")
