"""Callbacks after each batch of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class MeasureCallback:
    """Called after each batch; those of TVM do what tuning does in any case."""

    def apply(
        self,
        task_scheduler: Any,
        task_id: int,
        measure_candidates: Sequence[Any],
        builder_results: Sequence[Any],
        runner_results: Sequence[Any],
    ) -> None:
        """Take the measurements of a batch."""

    @staticmethod
    def create(kind: Any = "default") -> list[MeasureCallback]:
        """Callbacks by name: default, add_to_database, remove_build_artifact or update_cost_model."""
        if isinstance(kind, MeasureCallback):
            return [kind]
        if not isinstance(kind, str):
            return [each for one in kind for each in MeasureCallback.create(one)]
        made: dict[str, list[MeasureCallback]] = {
            "default": [AddToDatabase(), RemoveBuildArtifact(), UpdateCostModel()],
            "add_to_database": [AddToDatabase()],
            "remove_build_artifact": [RemoveBuildArtifact()],
            "update_cost_model": [UpdateCostModel()],
        }
        if kind not in made:
            raise ValueError(f"there is no callback {kind!r}; there are {', '.join(made)}")
        return made[kind]


class PyMeasureCallback(MeasureCallback):
    """A callback of your own: override `apply`."""


class AddToDatabase(MeasureCallback):
    """Records are added at once, by the search."""


class RemoveBuildArtifact(MeasureCallback):
    """Files of candidates are removed at once, by the search."""


class UpdateCostModel(MeasureCallback):
    """The cost model learns after each batch, in the search."""


create = MeasureCallback.create
