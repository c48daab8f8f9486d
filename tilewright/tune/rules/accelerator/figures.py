"""The figures of a row for `explain()`, and its features for a learned model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ....target.accelerator import Accelerator
from ...cost.accelerator import bound_of
from ...cost.table import Array, Table
from ..rule import Row

__all__ = ["chip_figures", "chip_table", "features", "held", "loaded"]

# Counts that no time depends on, by memory: bytes of DRAM that are loaded into it, and bytes of it that tiles take.
_LOADED, _HELD = "bytes into ", "bytes held in "


def loaded(memory: str) -> str:
    """The name of the count of the bytes of DRAM that are loaded into a memory."""
    return _LOADED + memory


def held(memory: str) -> str:
    """The name of the count of the bytes of a memory that tiles take."""
    return _HELD + memory


def chip_table(
    columns: tuple[str, ...],
    only: Mapping[str, int] | None,
    is_row: Callable[[list[int]], bool],
    points: Callable[[], Array],
    counts: Callable[[Array], tuple[dict[str, Any], Any]],
) -> Table:
    """The rows of `points` whose tiles fit the memories of the chip; with `only`, the row with these decisions, if it
    is one. `counts` gives the counts of rows, and whether they fit."""
    if only is not None:
        row = [int(only[c]) for c in columns]
        found = np.array([row] if is_row(row) else [], np.int64).reshape(-1, len(columns))
        return Table(columns, found, counts(found)[0], shape=features)
    found = points()
    counted, fits = counts(found)
    kept = {k: np.broadcast_to(v, fits.shape)[fits] for k, v in counted.items()}
    return Table(columns, found[fits], kept, shape=features)


def chip_figures(table: Table, row: Row, chip: Accelerator) -> dict[str, Any]:
    """The figures of the only row of a table."""

    def by_memory(prefix: str) -> dict[str, int]:
        return {k.removeprefix(prefix): int(table.count(k)[0]) for k in table.counts if k.startswith(prefix)}

    sizes = {s.memory: s.nbytes for s in chip.scopes}
    cycles = row.figures["cycles"]
    return {
        "work": {name: int(table.count(name)[0]) for name in ("products", "vectors") if name in table.counts},
        "loaded_bytes": by_memory(_LOADED),
        "stored_bytes": int(table.count("stored bytes")[0]),
        "held_bytes": {memory: [used, sizes[memory]] for memory, used in by_memory(_HELD).items()},
        "cycles": round(cycles),
        "busy": round(float(table.count("compute")[0]) / max(cycles, 1), 3),
        "bound": bound_of(row.figures),
        "predicted_us": round(row.own * 1e6, 2),
    }


def features(figures: Mapping[str, Array]) -> Array:
    """The columns of a learned model: the predicted cycles of a row, and the share of each cause in its time."""
    causes = [v / np.maximum(figures["seconds"], 1e-12) for k, v in figures.items() if k.startswith("for ")]
    return np.stack([np.log2(1.0 + figures["cycles"]), *causes], axis=1).astype(np.float32)
