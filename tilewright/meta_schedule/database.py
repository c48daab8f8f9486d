"""Databases of records, kept by the engine's (`tune.records`): in memory, or in two files of JSON lines.

with ms.database.JSONDatabase(work_dir="logs") as database:
    lib = relay.build(mod, "llvm", params=params)        # each kernel with a record is built from it
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from ..ir.errors import UnsupportedError
from ..ir.module import IRModule
from ..ir.serialize import load_json, save_json
from ..target import Target
from ..tir.schedule import Schedule
from ..tir.schedule.trace import Trace
from ..tune.measure.machines import fingerprint, record_target
from ..tune.measure.measurer import Status
from ..tune.records import database as engine
from ..tune.records.database import Record, workload_row
from ..tune.records.files import read_lines
from ..tune.records.history import History
from ..tune.search.search import apply_record
from ..tune.workload import Task, task_of
from .arg_info import ArgInfo, TensorInfo
from .decided import decided
from .search_strategy import MeasureCandidate


class Workload:
    """A program to be tuned: a module of one function."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod

    def task(self, target: Any = "llvm") -> Task:
        """The task of the engine."""
        return task_of(self.mod, target)

    @property
    def key(self) -> str:
        """The key of the program: equal for structurally equal ones."""
        return self.task().workload

    def as_json(self) -> list[str]:
        return [self.key, save_json(self.mod)]

    @staticmethod
    def from_json(json_obj: Sequence[str]) -> Workload:
        """The inverse of `as_json`."""
        return Workload(load_json(json_obj[1]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workload) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class TuningRecord:
    """A measured schedule of a workload: the steps, the seconds of its runs, the target and the parameters."""

    def __init__(
        self,
        trace: Trace,
        workload: Workload,
        run_secs: Sequence[Any] | None = None,
        target: Any = None,
        args_info: Sequence[TensorInfo] | None = None,
    ) -> None:
        self.trace, self.workload = trace, workload
        self.run_secs = None if run_secs is None else [float(getattr(s, "value", s)) for s in run_secs]
        self.target = None if target is None else Target(target)
        self.args_info = None if args_info is None else list(args_info)

    def as_measure_candidate(self) -> MeasureCandidate:
        """The schedule, to be measured again."""
        sch = Schedule(self.workload.mod)
        self.trace.apply_to_schedule(sch, remove_postproc=False)
        return MeasureCandidate(sch, self.args_info or ArgInfo.from_entry_func(self.workload.mod))

    def is_valid(self) -> bool:
        """Whether it was measured."""
        return bool(self.run_secs)

    def as_json(self) -> list[Any]:
        args = None if self.args_info is None else [a.as_json() for a in self.args_info]
        return [
            decided(self.trace.as_json()),
            self.run_secs,
            None if self.target is None else str(self.target),
            args,
        ]

    @staticmethod
    def from_json(json_obj: Sequence[Any], workload: Workload) -> TuningRecord:
        """The inverse of `as_json`."""
        trace, run_secs, target, args = json_obj
        sch = Schedule(workload.mod)
        Trace.apply_json_to_schedule(trace, sch)
        infos = None if args is None else [TensorInfo.from_json(a) for a in args]
        return TuningRecord(sch.trace, workload, run_secs, target, infos)

    def engine_record(self, target: Any = None) -> Record:
        """The record of the engine."""
        chosen = self.target if target is None else Target(target)
        if chosen is None:
            raise ValueError("a TuningRecord without a target cannot be kept: TuningRecord(…, target=…)")
        task = self.workload.task(chosen)
        return Record(
            workload=task.workload,
            target=record_target(task.target),
            machine=fingerprint(target=task.target),
            status=str(Status.OK if self.run_secs else Status.RUN_ERROR),
            trace=decided(self.trace.as_json()),
            seconds=tuple(self.run_secs or ()),
            origin="by hand",
            created=time.time(),
            extra={"face": "meta_schedule"},
            trusted=True,
        )


class Store(engine.Database):
    """The records of the engine in memory; `told` is called with each that is added."""

    def __init__(self, told: Callable[[Record, Task | None], None] | None = None) -> None:
        super().__init__(":memory:")
        self._told = told

    def add(self, record: Record, task: Task | None = None, machine: Mapping[str, Any] | None = None) -> None:
        super().add(record, task, machine)
        if self._told is not None:
            self._told(record, task)


class Database:
    """Records of tuning, asked by `relay.build` and `tilewright.auto_schedule` in a `with` block."""

    _entered: ClassVar[list[Database]] = []

    def __init__(self, module_equality: str = "structural") -> None:
        if module_equality != "structural":
            raise UnsupportedError(
                f"module_equality={module_equality!r}: programs are compared by structure, and without the values of "
                'constants, which are parameters here; use "structural"'
            )
        self.store = Store(self._written)
        self._workloads: dict[str, Workload] = {}

    def _written(self, record: Record, task: Task | None) -> None:
        """Note that a record was added by the search or by hand."""
        if task is not None:
            self._workloads.setdefault(task.workload, Workload(task.mod))

    # -- in ----------------------------------------------------------------------------------------
    def has_workload(self, mod: IRModule) -> bool:
        return Workload(mod).key in self._workloads

    def commit_workload(self, mod: IRModule) -> Workload:
        """Keep a program; returns the one that is kept for equal ones."""
        made = Workload(mod)
        return self._workloads.setdefault(made.key, made)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        """Keep a record."""
        made = record.engine_record()
        self.store.add(made, record.workload.task(record.target))

    # -- out ---------------------------------------------------------------------------------------
    def get_top_k(self, workload: Workload, top_k: int) -> list[TuningRecord]:
        """The fastest records of a workload, for all targets, the fastest first."""
        good = [r for r in self.store.records(workload.key) if r.ok and r.seconds]
        return [self._record(r) for r in sorted(good, key=lambda r: r.time)[: max(0, top_k)]]

    def get_all_tuning_records(self) -> list[TuningRecord]:
        """All records that were measured, in order."""
        return [self._record(r) for r in self.store.records() if r.seconds]

    def __len__(self) -> int:
        return len(self.get_all_tuning_records())

    def __bool__(self) -> bool:
        return True  # even without records

    def _record(self, record: Record) -> TuningRecord:
        workload = self._workloads[record.workload]
        sch = apply_record(workload.task(record.target), record)
        return TuningRecord(
            sch.trace, workload, record.seconds, record.target, ArgInfo.from_entry_func(workload.mod)
        )

    def best(self, task: Task) -> Record | None:
        """The engine's record to build a task from: the last winner, else the fastest."""
        return self.store.best(task)

    # -- questions -----------------------------------------------------------------------------------
    def query_tuning_record(
        self, mod: IRModule, target: Any, workload_name: str | None = None
    ) -> TuningRecord | None:
        """The best record of a program for a target; `workload_name` is not needed."""
        found = self.best(task_of(mod, target))
        return None if found is None else self._record(found)

    def query_schedule(self, mod: IRModule, target: Any, workload_name: str | None = None) -> Schedule | None:
        """The schedule of the best record."""
        task = task_of(mod, target)
        found = self.best(task)
        return None if found is None else apply_record(task, found)

    def query_ir_module(
        self, mod: IRModule, target: Any, workload_name: str | None = None
    ) -> IRModule | None:
        """The scheduled program of the best record."""
        found = self.query_schedule(mod, target, workload_name)
        return None if found is None else found.mod

    def query(
        self, mod: IRModule, target: Any, *, workload_name: str | None = None, kind: str = "schedule"
    ) -> Any:
        """One of the three questions: "schedule", "record" or "ir_module"."""
        asked: dict[str, Any] = {
            "schedule": self.query_schedule, "record": self.query_tuning_record, "ir_module": self.query_ir_module,
        }  # fmt: skip
        if kind not in asked:
            raise ValueError(f"kind is one of {', '.join(asked)}, not {kind!r}")
        return asked[kind](mod, target, workload_name)

    def dump_pruned(self, destination: Database) -> None:
        """Commit the best record of each workload and target to another database."""
        for key, workload in self._workloads.items():
            for target in dict.fromkeys(r.target for r in self.store.records(key)):
                found = self.best(workload.task(target))
                if found is not None:
                    destination.store.add(found, workload.task(target))

    # -- contexts ------------------------------------------------------------------------------------
    def __enter__(self) -> Database:
        self._history = History(self.best).__enter__()
        Database._entered.append(self)
        return self

    def __exit__(self, *ignored: object) -> None:
        Database._entered.remove(self)
        self._history.__exit__(*ignored)

    @staticmethod
    def current() -> Database | None:
        """The innermost database whose `with` block this is."""
        return Database._entered[-1] if Database._entered else None

    @staticmethod
    def create(kind: Any = "json", *args: Any, **kwargs: Any) -> Database:
        """A database by its kind: json, memory, union, ordered_union, or a function of a schedule."""
        if isinstance(kind, Database):
            return kind
        if callable(kind):
            return ScheduleFnDatabase(kind, *args, **kwargs)
        made: dict[str, type[Database]] = {
            "json": JSONDatabase,
            "memory": MemoryDatabase,
            "union": UnionDatabase,
            "ordered_union": OrderedUnionDatabase,
        }
        if kind not in made:
            raise ValueError(f"there is no database of kind {kind!r}; there are {', '.join(made)}")
        return made[kind](*args, **kwargs)


class MemoryDatabase(Database):
    """Records in memory."""


class JSONDatabase(Database):
    """Records in a file of JSON lines, and their programs in another. Each is written at once."""

    def __init__(
        self,
        path_workload: str | None = None,
        path_tuning_record: str | None = None,
        *,
        work_dir: str | os.PathLike[str] | None = None,
        allow_missing: bool = True,
        module_equality: str = "structural",
    ) -> None:
        super().__init__(module_equality)
        folder = Path(work_dir) if work_dir is not None else Path()
        if work_dir is None and (path_workload is None or path_tuning_record is None):
            raise ValueError("JSONDatabase takes work_dir=, or path_workload= and path_tuning_record=")
        self.path_workload = str(path_workload or folder / "database_workload.json")
        self.path_tuning_record = str(path_tuning_record or folder / "database_tuning_record.json")
        missing = [p for p in (self.path_workload, self.path_tuning_record) if not Path(p).exists()]
        if missing and not allow_missing:
            raise FileNotFoundError(f"{missing[0]}: there is no such file of records")
        self._files = False  # whether records are written: not those that are read
        for path in (self.path_workload, self.path_tuning_record):
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            if Path(path).exists() and Path(path).stat().st_size:
                self._read(path)
        self._files = True

    def _read(self, path: str) -> None:
        lines = read_lines(path)
        self.store.take(lines.workloads, lines.machines, lines.records)
        for key, _, program, *_ in lines.workloads:
            self._workloads.setdefault(key, Workload(load_json(program)))

    def _append(self, path: str, line: Mapping[str, Any]) -> None:
        if self._files:
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    def commit_workload(self, mod: IRModule) -> Workload:
        known = self.has_workload(mod)
        made = super().commit_workload(mod)
        if not known:
            self._append(self.path_workload, {"workload": workload_row(made.task())})
        return made

    def _written(self, record: Record, task: Task | None) -> None:
        if task is not None and task.workload not in self._workloads:
            self._append(self.path_workload, {"workload": workload_row(task)})
        super()._written(record, task)
        self._append(self.path_tuning_record, {"record": record.plain()})


class UnionDatabase(Database):
    """The best record of several databases."""

    def __init__(self, *databases: Database) -> None:
        super().__init__()
        self.databases = databases

    def best(self, task: Task) -> Record | None:
        found = [r for r in (db.best(task) for db in self.databases) if r is not None]
        return min(found, key=lambda r: r.time, default=None)

    def _record(self, record: Record) -> TuningRecord:
        for each in self.databases:
            self._workloads |= each._workloads
        return super()._record(record)

    def commit_tuning_record(self, record: TuningRecord) -> None:
        raise UnsupportedError(f"{type(self).__name__} keeps no records: commit to one of its databases")


class OrderedUnionDatabase(UnionDatabase):
    """The record of the first of several databases that has one."""

    def best(self, task: Task) -> Record | None:
        return next((r for r in (db.best(task) for db in self.databases) if r is not None), None)


class ScheduleFnDatabase(Database):
    """The schedules that a function makes: it is given a tir.Schedule, and returns whether it has scheduled it."""

    def __init__(self, schedule_fn: Callable[[Schedule], bool], module_equality: str = "structural") -> None:
        super().__init__(module_equality)
        self.schedule_fn = schedule_fn

    def best(self, task: Task) -> Record | None:
        sch = Schedule(task.mod)
        if not self.schedule_fn(sch):
            return None
        self._workloads.setdefault(task.workload, Workload(task.mod))
        made = TuningRecord(sch.trace, Workload(task.mod), [1e-9], task.target)
        return made.engine_record(task.target)


class PyDatabase(Database):
    """A database of your own: override `get_top_k`, `commit_workload`, `commit_tuning_record` and `has_workload`."""

    def best(self, task: Task) -> Record | None:
        top = self.get_top_k(Workload(task.mod), 1)
        return top[0].engine_record(task.target) if top else None


create = Database.create
