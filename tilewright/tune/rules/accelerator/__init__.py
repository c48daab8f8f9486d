"""The rules for accelerators with engines: stages become commands of the matrix unit, of vector units and of DMA."""

from __future__ import annotations

import numpy as np

from ....target import Target
from ....target.accelerator import Accelerator
from ...cost import accelerator as accelerator_cost
from ...cost.table import Array
from ..family import Family
from ..rule import Rule
from .matrix import Matrix
from .vector import Vector

__all__ = ["ACCELERATOR", "ACCELERATORS"]

# The order breaks ties: of two rows with the same predicted time, the row of the first rule is taken.
ACCELERATOR: tuple[Rule, ...] = (Matrix(), Vector())


def _capabilities(target: Target) -> frozenset[str]:
    """The units that the chip has."""
    chip = target.accelerator
    return frozenset(
        name
        for name, units in (("matrix_unit", chip.matrix_units), ("vector_unit", chip.vector_units))
        if units
    )


def _features(chip: Accelerator) -> Array:
    sizes = [*(s.nbytes for s in chip.scopes), chip.port.bytes_per_cycle, chip.port.latency]
    return np.log2(1.0 + np.array(sizes[:5], np.float32))


ACCELERATORS = Family(
    ACCELERATOR,
    accelerator_cost,
    machine=lambda target: target.accelerator,
    capabilities=_capabilities,
    features=_features,
    doubt="its estimate has a margin",
)
