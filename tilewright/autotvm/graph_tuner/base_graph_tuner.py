"""Graph tuners, which choose the schedules of a whole graph together.

In the classic stack, the layout of a template (NCHW8c, NCHW16c) is part of its configuration, kernels with different
layouts need a transformation between them, and dynamic programming finds the best combination:

    conv (16c) ──transform──▶ conv (8c)         against          conv (8c) ─────▶ conv (8c)

Here kernels exchange arrays in the layout of the model and pack operands inside, which is part of the measured time.
The edges of the graph cost nothing, so the best record of each node is the best for the graph.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.errors import TVMError
from ...target import Target
from ..measure import MeasureInput, MeasureResult
from ..record import encode, load_from_file
from ..task.relay_integration import extract_from_program, operators_of

logger = logging.getLogger("autotvm")
Pair = tuple[MeasureInput, MeasureResult]


class BaseGraphTuner:
    """Chooses the best record of each kernel of a graph.

    `records` are a file, or pairs of inputs and results, of programs with one of `target_ops` for `target`. With
    `params`, which must be those of the tuned model, `run` checks that every kernel has a record. `max_sch_num`,
    `dtype`, `verbose`, `log_file` and `log_level` change nothing.
    """

    def __init__(
        self,
        graph: Any,
        input_shapes: Mapping[str, Sequence[int]],
        records: Any,
        target_ops: Sequence[Any],
        target: Any,
        max_sch_num: int = 20,
        dtype: str = "float32",
        verbose: bool = True,
        log_file: str | None = None,
        log_level: int = logging.DEBUG,
        name: str = "graph_tuner",
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.graph, self.input_shapes, self.params = graph, dict(input_shapes), params
        self.target, self.name = Target(target), name
        self.target_ops = [str(getattr(op, "name", op)) for op in target_ops]
        self._records = self._of_ops(records)
        self._chosen: list[Pair] = []

    def _of_ops(self, records: Any) -> list[Pair]:
        """The successful records for the target, of programs with one of the operators."""
        pairs: Iterable[Pair] = (
            load_from_file(records) if isinstance(records, (str, os.PathLike)) else records
        )
        return [
            (inp, result)
            for inp, result in pairs
            if result.error_no == 0
            and inp.target == self.target
            and (not self.target_ops or operators_of(inp.task.name) & set(self.target_ops))
        ]

    def benchmark_layout_transform(self, *args: Any, **kwargs: Any) -> None:
        """Measure layout transformations between kernels, of which there are none."""
        logger.info("kernels exchange arrays in the model's layout: there are no transformations to measure")

    def run(self, **kwargs: Any) -> None:
        """Choose the records."""
        best: dict[tuple[Any, ...], Pair] = {}
        for inp, result in self._records:
            known = best.get(inp.task.workload)
            if known is None or np.mean(result.costs) < np.mean(known[1].costs):
                best[inp.task.workload] = (inp, result)
        order = list(best)
        if self.params is not None:
            ops = self.target_ops or None
            order = [t.workload for t in extract_from_program(self.graph, self.params, self.target, ops=ops)]
            missing = [str(w[0]) for w in order if w not in best]
            if missing:
                raise TVMError(
                    f"{self.name}: there is no record of {', '.join(missing)} for `{self.target}`: tune them first"
                )
        if not order:
            raise TVMError(
                f"{self.name}: none of the records is of {', '.join(self.target_ops)} for `{self.target}`"
            )
        self._chosen = [best[w] for w in order]

    def get_optimal_records(self) -> list[Pair]:
        """The chosen record of each kernel."""
        if not self._chosen:
            raise TVMError(f"{self.name}: no records are chosen before run()")
        return list(self._chosen)

    def write_opt_sch2record_file(
        self, record_file: str | os.PathLike[str] = "graph_opt_schedule.log"
    ) -> None:
        """Write the chosen records, for `autotvm.apply_graph_best`."""
        with open(record_file, "w", encoding="utf-8") as file:
            file.writelines(f"{encode(*pair)}\n" for pair in self.get_optimal_records())


class DPTuner(BaseGraphTuner):
    """Dynamic programming in the classic stack; here, the best record of each kernel."""


class PBQPTuner(BaseGraphTuner):
    """A boolean quadratic program in the classic stack; here, the best record of each kernel."""
