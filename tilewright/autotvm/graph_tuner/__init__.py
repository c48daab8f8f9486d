"""Graph tuners, which choose the schedules of a whole graph together."""

from __future__ import annotations

from typing import Any

from ..task.dispatcher import ApplyGraphBest
from .base_graph_tuner import BaseGraphTuner, DPTuner, PBQPTuner

__all__ = ["BaseGraphTuner", "DPTuner", "PBQPTuner", "apply_graph_best"]


def apply_graph_best(records: Any) -> ApplyGraphBest:
    """A `with` block in which the graph compiler applies the records that a graph tuner has written."""
    return ApplyGraphBest(records)
