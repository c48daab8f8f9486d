"""Tuning, which is still to come: until then the step is there and says what it did."""

from __future__ import annotations

import warnings
from typing import Any

from .model import TVMCModel

__all__ = ["tune_model"]


def tune_model(tvmc_model: TVMCModel, target: Any, tuning_records: Any = None, **options: Any) -> None:
    """Measure nothing, say so, and return no records, with which `compile` works as without tuning.

    Programs that tune and then compile run through; what they get is the schedule of the analytical cost model.
    """
    warnings.warn(
        "tvmc.tune: measuring candidates is not there yet, so nothing was tuned; tvmc.compile takes the schedules of "
        "the analytical cost model, which need no measurement",
        stacklevel=2,
    )
