"""Contexts in which `relay.build` and `auto_schedule` apply records."""

from __future__ import annotations

import os
import warnings
from typing import Any, ClassVar

from ..tune.auto import unasked
from ..tune.errors import TuneError
from ..tune.measure.measurer import MeasureResult as Measured
from ..tune.measure.measurer import Status
from ..tune.records.database import Record
from ..tune.records.history import History
from ..tune.workload import Task
from .compute_dag import ComputeDAG
from .cost_model import XGBModel
from .loop_state import State
from .measure import MeasureInput
from .measure_record import read_records, record_of, source_of
from .relay_integration import reduces
from .search_policy import SketchPolicy
from .search_task import SearchTask, TuningOptions


class DispatchContext:
    """A context that provides states of programs in a `with` block; `current` is the innermost one."""

    current: ClassVar[DispatchContext | None] = None

    def __init__(self) -> None:
        self._outer: list[DispatchContext | None] = []

    def query(
        self,
        target: Any,
        workload_key: str,
        has_complex_op: bool = True,
        dag: ComputeDAG | None = None,
        func_name: str = "",
    ) -> State | None:
        """The best known state of a program, from this context or an outer one; None if there is none."""
        found = self._query_inside(target, workload_key, dag)
        outer = self._outer[-1] if self._outer else None
        if found is None and outer is not None:
            return outer.query(target, workload_key, has_complex_op, dag, func_name)
        return found

    def _query_inside(self, target: Any, workload_key: str, dag: ComputeDAG | None) -> State | None:
        return None

    def update(self, target: Any, workload_key: str, state: State) -> None:
        """Set the state of a program."""
        raise NotImplementedError

    def __enter__(self) -> DispatchContext:
        self._outer.append(DispatchContext.current)
        DispatchContext.current = self
        return self

    def __exit__(self, *ignored: object) -> None:
        DispatchContext.current = self._outer.pop()


class ApplyHistoryBest(DispatchContext):
    """Applies the best of `records`: files, pairs of inputs and results, or records of the engine.

    Of each file, the first `n_lines` records are read, or all. `include_compatible` includes the records of other
    machines, and `trusted` allows steps that no search writes.
    """

    def __init__(
        self,
        records: Any,
        n_lines: int | None = None,
        include_compatible: bool = False,
        trusted: bool = False,
    ) -> None:
        super().__init__()
        self._trusted = trusted
        self._machine = "any" if include_compatible else None
        self._histories: list[History] = []
        self._chosen: dict[tuple[str, str], Record] = {}  # by `update`
        self._open: list[History] = []
        self.load(records, n_lines)

    def load(self, records: Any, n_lines: int | None = None) -> None:
        """Add records."""
        if records is None:
            return
        source: Any = []
        if isinstance(records, (str, os.PathLike)):
            whole = n_lines is None or n_lines < 0
            source = (
                source_of(records, self._trusted)
                if whole
                else read_records(records, self._trusted).records[:n_lines]
            )
        else:
            for one in records:
                if isinstance(one, (str, os.PathLike)):
                    self.load(one, n_lines)
                else:
                    source.append(one if isinstance(one, Record) else record_of(*one))
        if source:
            self._histories.append(History(source, machine=self._machine, trusted=self._trusted))

    def find(self, task: Task) -> Record | None:
        """The record to apply to a task."""
        chosen = self._chosen.get((task.workload, str(task.target)))
        if chosen is not None:
            return chosen
        found = [r for r in (h.find(task) for h in self._histories) if r is not None]
        return min(found, key=lambda r: (r.origin != "winner", r.time), default=None)

    def _query_inside(self, target: Any, workload_key: str, dag: ComputeDAG | None) -> State | None:
        task = SearchTask(compute_dag=dag, workload_key=workload_key, target=target)
        record = self.find(task.task)
        return None if record is None else task.state_of(record)

    def update(self, target: Any, workload_key: str, state: State) -> None:
        task = SearchTask(compute_dag=state.compute_dag, workload_key=workload_key, target=target)
        inp = MeasureInput(task, state).candidate
        measured = Measured(Status.OK, (1e-9,), trace=state.schedule.trace.as_json())
        self._chosen[inp.task.workload, str(inp.task.target)] = Record.of(inp, measured, origin="winner")

    def __enter__(self) -> ApplyHistoryBest:
        super().__enter__()
        history = History(self.find, machine="any")  # `find` checks the machine
        history.__enter__()
        self._open.append(history)
        return self

    def __exit__(self, *ignored: object) -> None:
        self._open.pop().__exit__(*ignored)
        super().__exit__(*ignored)


class ApplyHistoryBestOrSample(ApplyHistoryBest):
    """Applies records, and tunes programs without a record with `num_measure` trials each, if that is positive.

    The results are kept as long as this object. Programs without a reduction are tuned only if
    `sample_simple_workloads`. `cost_model_file` is that of `XGBModel`.
    """

    def __init__(
        self,
        records: Any,
        sample_simple_workloads: bool = False,
        cost_model_file: str | None = None,
        num_measure: int = -1,
    ) -> None:
        self.sample_simple_workloads, self.num_measure = sample_simple_workloads, num_measure
        self._model = XGBModel(model_file=cost_model_file)
        self._tuned: dict[tuple[str, str], Record | None] = {}
        super().__init__(records)

    def find(self, task: Task) -> Record | None:
        found = super().find(task)
        if found is not None or self.num_measure <= 0 or not (self.sample_simple_workloads or reduces(task)):
            return found
        key = (task.workload, str(task.target))
        if key not in self._tuned:
            with unasked():
                self._tuned[key] = self._tune(task)
        return self._tuned[key]

    def _tune(self, task: Task) -> Record | None:
        policy = SketchPolicy(SearchTask.of(task, task.name), self._model, verbose=0)
        try:
            policy.run(TuningOptions(self.num_measure, verbose=0))
        except TuneError as error:
            warnings.warn(f"{task.name} is scheduled without trials: {error}", RuntimeWarning, stacklevel=3)
        return policy.best_record
