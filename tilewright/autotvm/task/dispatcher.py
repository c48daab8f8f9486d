"""Contexts that choose the configuration of a template: a stack, queried from the innermost outwards.

    with apply_history_best("log.json"), target:
        s, args = matmul(512, 512, 512, "float32")          # with the best record of that workload

A context without an answer queries the next; the outermost, `FallbackContext`, always has one.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...ir.errors import TVMError
from ...target import Target
from ...tune.measure.machines import fingerprint
from ...tune.records.database import Record
from ...tune.records.history import History
from ..env import GLOBAL_SCOPE
from .args import sketch_key
from .space import FallbackConfigEntity

logger = logging.getLogger("autotvm")
Workload = tuple[Any, ...]


class DispatchContext:
    """A context that chooses configurations in a `with` block; `current` is the innermost one."""

    current: ClassVar[DispatchContext]

    def __init__(self) -> None:
        self._outer: list[DispatchContext] = []

    def query(self, target: Target | None, workload: Workload | None) -> Any:
        """The configuration for a workload, from this context or an outer one."""
        found = self._query_inside(target, workload)
        if found is None and self._outer:
            found = self._outer[-1].query(target, workload)
        return found

    def update(self, target: Target, workload: Workload, cfg: Any) -> None:
        """Set the configuration for a workload."""
        raise TVMError(f"{type(self).__name__} does not store configurations; use ApplyHistoryBest([])")

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        self._outer.append(DispatchContext.current)
        DispatchContext.current = self
        return self

    def __exit__(self, *ignored: object) -> None:
        DispatchContext.current = self._outer.pop()


class ApplyConfig(DispatchContext):
    """One configuration for every query."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self._config = config
        self.workload: Workload | None = None

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        self.workload = workload
        return self._config

    def update(self, target: Target, workload: Workload, cfg: Any) -> None:
        self.workload, self._config = workload, cfg


class ApplyFixedConfig(DispatchContext):
    """The first configuration of each task whose template is in `schedule_names`; its cost is the position there."""

    def __init__(self, tasks: Sequence[Any], schedule_names: str | Sequence[str]) -> None:
        super().__init__()
        names = [schedule_names] if isinstance(schedule_names, str) else list(schedule_names)
        self._costs = {name: i for i, name in enumerate(names)}
        self.workload: Workload | None = None
        self.tasks = list(tasks)

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        self.workload = workload
        name = workload[0] if workload else None
        if name not in self._costs:
            config = FallbackConfigEntity()
            config.cost = 100_000
            return config
        found = next((t for t in self.tasks if t.workload == workload), None)
        if found is None:
            return None
        config = found.config_space.get(0)
        config.cost = self._costs[name]
        config.is_fallback = False
        return config

    def update(self, target: Target, workload: Workload, cfg: Any) -> None:
        self.workload = workload


# ---------------------------------------------------------------------------- records
def _pairs(records: Any) -> Iterable[tuple[Any, Any]]:
    from ..record import load_from_file  # records name tasks, and tasks are made with this module

    if isinstance(records, (str, os.PathLike)):
        if not Path(records).exists():
            raise FileNotFoundError(f"there is no file of records {os.fspath(records)!r}")
        return load_from_file(records)
    if hasattr(records, "read"):
        return load_from_file(records)
    return chain.from_iterable([one] if _is_pair(one) else _pairs(one) for one in records)


def _is_pair(given: Any) -> bool:
    """Whether it is one input with its result, and not a file or a collection."""
    return isinstance(given, (tuple, list)) and len(given) == 2 and hasattr(given[1], "costs")


def _names(target: Target) -> list[str]:
    """The names under which records of a target are found: its model, if known, then its keys."""
    return [*([target.model] if target.model != "unknown" else []), *target.keys]


class ApplyHistoryBest(DispatchContext):
    """The best record of each workload and target.

    Records are a file (its path, or open), pairs of MeasureInput and MeasureResult, or several of these. In the `with`
    block, the graph compiler applies the records of extracted tasks too.
    """

    def __init__(self, records: Any = None) -> None:
        super().__init__()
        self.best_by_targetkey: dict[tuple[str, Workload], tuple[Any, Any]] = {}
        self.best_by_model: dict[tuple[str, Workload], tuple[Any, Any]] = {}
        self._best_user_defined: dict[tuple[str, Workload], Any] = {}
        self._sketched: dict[tuple[str, str], Record] = {}  # by program and target
        self._histories: list[History | None] = []
        if records is not None:
            self.load(records)

    def load(self, records: Any) -> None:
        """Add records."""
        count, here, others = 0, {fingerprint()}, set()
        for inp, result in _pairs(records):
            count += 1
            if result.error_no == 0:
                self._take(inp, result)
                others.add(inp.config.machine)
                here.add(fingerprint(target=inp.target))
        others -= {None, *here}
        if others:
            logger.warning(
                "some records are of other machines (%s), whose times do not compare with those of this one (%s): "
                "tune here",
                ", ".join(sorted(others)),
                ", ".join(sorted(here)),
            )
        logger.debug("%d records were loaded", count)
        if self._histories and self._histories[-1] is None:
            self._histories[-1] = self._ask_here()

    def _take(self, inp: Any, result: Any) -> None:
        workload, time = inp.task.workload, float(np.mean(result.costs))
        record = engine_record(inp, result)
        if record is not None:
            key = (record.workload, record.target)
            if key not in self._sketched or time < self._sketched[key].time:
                self._sketched[key] = record
        for name in _names(inp.target):
            table = self.best_by_model if name == inp.target.model else self.best_by_targetkey
            known = table.get((name, workload))
            if known is None or time < float(np.mean(known[1].costs)):
                table[name, workload] = (inp, result)

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        if target is None:
            raise TVMError(
                "the best record depends on the target, and none is set: `with tvm.target.Target(…):` around it"
            )
        if workload is None:
            return None
        for place in ((name, workload) for name in _names(target)):
            if place in self._best_user_defined:
                return self._best_user_defined[place]
            found = self.best_by_model.get(place) or self.best_by_targetkey.get(place)
            if found is not None:
                return found[0].config
        return None

    def update(self, target: Target, workload: Workload, cfg: Any) -> None:
        cfg.is_fallback = False
        for name in _names(target):
            self._best_user_defined[name, workload] = cfg

    # -- programs of the graph compiler ------------------------------------------------------------
    def _record(self, task: Any) -> Record | None:
        """The best record of a program, for the engine's scheduler."""
        return self._sketched.get((task.workload, str(task.target)))

    def _ask_here(self) -> History | None:
        """Open a history for the engine's scheduler, unless there is no record for it: queries take time."""
        return History(self._record).__enter__() if self._sketched else None

    def __enter__(self) -> Any:
        self._histories.append(self._ask_here())
        return super().__enter__()

    def __exit__(self, *ignored: object) -> None:
        super().__exit__(*ignored)
        history = self._histories.pop()
        if history is not None:
            history.__exit__(*ignored)


def engine_record(inp: Any, result: Any) -> Record | None:
    """The record of a program of the graph compiler, for the engine's scheduler; None for a template's record."""
    key = sketch_key(inp.task.workload)
    if key is None:
        return None
    return Record(
        workload=key,
        target=str(inp.target),
        machine=inp.config.machine or fingerprint(target=inp.target),
        status="ok",
        decisions=[inp.config[name].val for name in inp.config],
        seconds=tuple(float(c) for c in result.costs),
        created=float(result.timestamp),
        uid=f"autotvm {inp.config.index}",
    )


class ApplyGraphBest(DispatchContext):
    """The records of a graph, as a graph tuner writes them: one for each node, in the order of compilation."""

    def __init__(self, records: Any) -> None:
        super().__init__()
        pairs = list(_pairs(records))
        self._records = pairs
        self._next = 0
        self._known: dict[tuple[str, Workload | None], Any] = {}
        self._history = ApplyHistoryBest(pairs)

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        key = (str(target), workload)
        if key in self._known:
            return self._known[key]
        for inp, _ in self._records[self._next :]:
            if inp.task.workload == workload:
                self._next += 1
                self._known[key] = inp.config
                return inp.config
        return None

    def update(self, target: Target, workload: Workload, cfg: Any) -> None:
        self._known[str(target), workload] = cfg

    def __enter__(self) -> Any:
        self._history.__enter__()
        return super().__enter__()

    def __exit__(self, *ignored: object) -> None:
        super().__exit__(*ignored)
        self._history.__exit__(*ignored)


# ---------------------------------------------------------------------------- the outermost
class FallbackContext(DispatchContext):
    """The outermost context: a configuration with the first candidate of each knob, which a template may change."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: dict[tuple[str, Workload | None], Any] = {}
        self.messages: set[str] = set()

    def _query_inside(self, target: Target | None, workload: Workload | None) -> Any:
        key = (str(target), workload)
        if key in self.memory:
            return self.memory[key]
        message = (
            f"no record for target={target}, workload={workload}: a fallback configuration is used, which may be much "
            "slower than a tuned one"
        )
        if not GLOBAL_SCOPE.silent and message not in self.messages:
            self.messages.add(message)
            logger.warning("%s", message)
        config = FallbackConfigEntity()
        if workload is not None:
            self.memory[key] = config
        return config

    def clear_cache(self, target: Target, workload: Workload) -> None:
        """Remove the cached configuration of a workload."""
        self.memory.pop((str(target), workload), None)

    def update(self, target: Target, workload: Workload, cfg: Any) -> None:
        self.memory[str(target), workload] = cfg


def clear_fallback_cache(target: Target, workload: Workload) -> None:
    """Remove the cached configuration of a workload in the innermost context, if it is the fallback."""
    if isinstance(DispatchContext.current, FallbackContext):
        DispatchContext.current.clear_cache(target, workload)


def apply_history_best(records: Any = None) -> ApplyHistoryBest:
    """A `with` block in which templates and the graph compiler use the best of some records."""
    return ApplyHistoryBest(records)


DispatchContext.current = FallbackContext()
