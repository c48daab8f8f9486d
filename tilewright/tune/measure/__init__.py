"""Measurement of candidates: built in parallel, run one at a time, here or on other machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...homes import lazily

if TYPE_CHECKING:
    from .measurer import MeasureInput, MeasureOptions, Measurer, Measures, Status
    from .running import Timing

__all__ = ["MeasureInput", "MeasureOptions", "Measurer", "Measures", "Status", "Timing"]

__getattr__ = lazily(
    __name__, {"measurer": "MeasureInput MeasureOptions Measurer Measures Status", "running": "Timing"}
)
