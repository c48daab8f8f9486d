"""Records in files: one in a line as JSON, or a database where the name ends in .db.

A state that was made by hand has the steps of TVM's own Ansor, and is written as a line of its logs (step_lines.py). A
state of the search is a row of tilewright's tables, and has a line of its own form. A file may have both.

    task.tune(TuningOptions(…, measure_callbacks=[RecordToFile("matmul.json")]))
    for inp, res in load_records("matmul.json"): …

Each record is written at once. The first record of a program in a file contains the program, so that all records can
be built from the file alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..ir.errors import ScheduleError, TVMError, UnsupportedError
from ..tune.errors import RecordError
from ..tune.measure.machines import alike, describe_machine, fingerprint
from ..tune.records.database import (
    FORMAT,
    Database,
    Record,
    read_task,
    workload_row,
)
from ..tune.records.files import Lines, is_database, read_lines, read_record
from ..tune.records.history import History
from ..tune.workload import Task
from .loop_state import State, UnknownState
from .measure import MeasureCallback, MeasureInput, MeasureResult
from .search_task import SearchTask
from .step_lines import ClassicRecord, can_be_written, is_classic_line, read_classic, write_classic
from .workload_registry import is_registered

_STARTS = tuple(f'{{"{key}":'.encode() for key in ("format", "machine", "workload", "record"))


# ---------------------------------------------------------------------------- out
def record_of(inp: MeasureInput, res: MeasureResult) -> Record:
    """The record of the engine for a candidate and its measurement."""
    candidate = inp.candidate
    if candidate.kind == "program":
        raise RecordError(
            f"{inp.task.workload_key}: a step of this state contains an expression of its program, and cannot be "
            "written to a file"
        )
    trace = inp.state.schedule.trace.as_json() if candidate.kind == "decisions" else candidate.what
    origin = "trial" if candidate.kind == "decisions" else "by hand"
    made = Record.of(candidate, replace(res.result, trace=trace), origin=origin, extra=_extra(inp.task))
    return replace(made, created=res.timestamp or made.created)


def _extra(task: SearchTask) -> dict[str, Any]:
    host = {} if task.target_host is None else {"target_host": str(task.target_host)}
    return {"workload_key": task.workload_key, "face": "auto_scheduler", **host}


def _line(record: Record, task: Task | None) -> str:
    data: dict[str, Any] = {"record": record.plain()}
    if task is not None:
        data["workload"] = workload_row(task)
    return json.dumps(data) + "\n"


def dump_record_to_string(inp: MeasureInput, res: MeasureResult) -> str:
    """A record as a line of JSON: that of TVM for a state that was made by hand, else one with the program."""
    if can_be_written(inp.state):
        return write_classic(inp.task, inp.state, res)
    return _line(record_of(inp, res), inp.task.task)


class RecordToFile(MeasureCallback):
    """A callback that appends measurements to a file of lines, or to a database (.db)."""

    def __init__(self, filename: str | os.PathLike[str] = "auto_scheduler_tuning.json") -> None:
        self.filename = os.fspath(filename)
        self._programs: set[str] | None = None  # the programs in the file
        Path(self.filename).parent.mkdir(parents=True, exist_ok=True)

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Write measurements."""
        for inp, res in zip(inputs, results, strict=True):
            if can_be_written(inp.state) and not self.filename.endswith(".db"):
                self._keep_classic(write_classic(inp.task, inp.state, res))
            else:
                self.keep(record_of(inp, res), inp.task.task)

    def _keep_classic(self, line: str) -> None:
        """Write a line of Ansor's logs."""
        _programs_in(self.filename)  # refuses a file of another kind
        with _appending(self.filename) as file:
            file.write(line.encode())

    def keep(self, record: Record, task: Task, machine: Mapping[str, Any] | None = None) -> None:
        """Write a record of the engine, with its program if the file lacks it, and with another machine if given."""
        if self.filename.endswith(".db"):
            with Database(self.filename) as db:
                db.add(record, task, machine)
            return
        if self._programs is None:
            self._programs = _programs_in(self.filename)
        with _appending(self.filename) as file:
            text = ""
            if not file.tell():
                self._programs = set()
                here = describe_machine(record.target)
                text = json.dumps({"format": FORMAT, "machine": fingerprint(here), "description": here})
                text += "\n"
            if machine is not None and record.machine != fingerprint(target=record.target):
                text += json.dumps({"machine": record.machine, "description": dict(machine)}) + "\n"
            text += _line(record, None if record.workload in self._programs else task)
            file.write(text.encode())
        self._programs.add(record.workload)


def _programs_in(name: str) -> set[str]:
    """The programs in a file that records are appended to; a file of another kind is refused."""
    try:
        with open(name, "rb") as file:
            start = file.readline()
    except FileNotFoundError:
        return set()
    if start and not (start.startswith(_STARTS) or (start.startswith(b'{"i":') and b'"r":' in start)):
        raise RecordError(
            f"{name}: this is not a file of records, so none are added to it; give another name"
        )
    if not start.endswith(b"\n"):  # empty, or a truncated line
        return set()
    return {row[0] for row in _split(name)[0].workloads}


@contextlib.contextmanager
def _appending(name: str) -> Iterator[Any]:
    """A file opened for appending, locked against other processes. A truncated last line is removed."""
    with open(name, "ab+") as file:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # released when it is closed
        size = file.seek(0, os.SEEK_END)
        while size and file.seek(size - 1) >= 0 and file.read(1) != b"\n":
            size -= 1
        file.truncate(size)
        file.seek(0, os.SEEK_END)
        yield file
        file.flush()


def save_records(
    filename: str | os.PathLike[str], inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]
) -> None:
    """Add records to a file."""
    RecordToFile(filename).callback(None, inputs, results)


# ---------------------------------------------------------------------------- in
def read_records(filename: str | os.PathLike[str], trusted: bool = False) -> Lines:
    """The contents of a file of records, which may be empty. `trusted` allows steps that no search writes."""
    if os.path.isfile(filename) and not os.path.getsize(filename):
        return Lines()
    if not is_database(filename):
        lines, classic = _split(filename, trusted)
        lines.records += _engine_records(filename, classic)
        return lines
    with Database(filename, trusted) as db:
        records = db.records()
        targets = {r.workload: r.target for r in records}
        rows = [workload_row(db.task(workload, target)) for workload, target in targets.items()]
        return Lines(records, rows, db.machines())


def _split(filename: str | os.PathLike[str], trusted: bool = False) -> tuple[Lines, list[ClassicRecord]]:
    """The contents of a file of lines: those of tilewright, and those of TVM's own Ansor."""
    classic: list[ClassicRecord] = []

    def take(line: str) -> bool:
        if not is_classic_line(line):
            return False
        classic.append(read_classic(line))
        return True

    return read_lines(filename, trusted, take), classic


def source_of(filename: str | os.PathLike[str], trusted: bool = False) -> Any:
    """A file of records in the form that a History takes: its path, or records if it has lines of Ansor's logs."""
    name = os.fspath(filename)
    if os.path.isfile(name) and not is_database(name) and _split(name, trusted)[1]:
        return read_records(name, trusted).records
    return name


def _engine_records(filename: str | os.PathLike[str], classic: Sequence[ClassicRecord]) -> list[Record]:
    """The fastest line of each program and target in Ansor's logs that can be applied, as a record of the engine.

    The programs must be registered here: a line has only their keys.
    """
    tasks: dict[tuple[str, str, str], list[ClassicRecord]] = {}
    for each in classic:
        if not each.error_no and each.costs:
            tasks.setdefault((each.workload_key, each.target, each.host), []).append(each)
    unknown = sorted({key for key, _, _ in tasks if not is_registered(key)})
    if unknown:
        warnings.warn(
            f"{os.fspath(filename)}: its records of {unknown[0]}{' and others' * (len(unknown) > 1)} are not applied, "
            "as their programs are not registered here: use @auto_scheduler.register_workload",
            RuntimeWarning,
            stacklevel=4,
        )
    out = []
    for (key, _, _), lines in tasks.items():
        if is_registered(key):
            out += _fastest(sorted(lines, key=lambda r: sum(r.costs) / len(r.costs)))
    return out


def _fastest(ranked: Sequence[ClassicRecord]) -> list[Record]:
    """The record of the first line whose steps can be applied."""
    first: TVMError | None = None
    for each in ranked:
        inp, res = classic_pair(each)
        try:
            return [record_of(inp, res)]
        except (ScheduleError, UnsupportedError) as error:
            first = first or error
    warnings.warn(
        f"no record of {ranked[0].workload_key} can be applied: {first}", RuntimeWarning, stacklevel=5
    )
    return []


def classic_pair(record: ClassicRecord) -> tuple[MeasureInput, MeasureResult]:
    """The candidate and the measurement of a line of Ansor's logs."""
    task = SearchTask.named(record)
    state: State = UnknownState(record.steps)
    if is_registered(record.workload_key):
        try:
            state = State.replayed(task.compute_dag, record.steps)
        except ScheduleError as error:
            state = UnknownState(record.steps, str(error))
    costs = () if record.error_no else record.costs
    message = f"error {record.error_no}" if record.error_no else ""
    result = MeasureResult(costs, record.error_no, message, record.all_cost, record.timestamp)
    return MeasureInput(task, state), result


class _Programs:
    """The tasks of records: from their keys if their functions are registered, else from the programs in the file."""

    def __init__(self, workloads: Sequence[Sequence[str]]) -> None:
        self._rows = {row[0]: row for row in workloads}
        self._made: dict[tuple[str, str], SearchTask] = {}

    def of(self, record: Record) -> SearchTask:
        known = (record.workload, record.target)
        if known not in self._made:
            self._made[known] = self._make(record)
        return self._made[known]

    def _make(self, record: Record) -> SearchTask:
        key = record.extra.get("workload_key")
        if isinstance(key, str) and is_registered(key):
            host = record.extra.get("target_host")
            task = SearchTask(workload_key=key, target=record.target, target_host=host)
            if task.task.workload == record.workload:
                return task
        row = self._rows.get(record.workload)
        if row is None:
            raise RecordError(
                f"the program of the record {record.uid} ({key or record.workload}) is neither with it nor registered "
                "here: register its function, or read the whole file of the record"
            )
        task = SearchTask.of(read_task(f"record {record.uid}", row[2:], record.target, record.trusted))
        if isinstance(key, str):
            task.workload_key = key
        return task


def _pair(record: Record, programs: _Programs) -> tuple[MeasureInput, MeasureResult]:
    task = programs.of(record)
    return MeasureInput(task, task.state_of(record)), MeasureResult.of(record.result, record.created)


def load_record_from_string(record: str) -> tuple[MeasureInput, MeasureResult]:
    """The record of a line."""
    if is_classic_line(record):
        return classic_pair(read_classic(record))
    made, row = read_record(record)
    return _pair(made, _Programs([row] if row is not None else []))


def _candidate(record: Record) -> tuple[str, str, str]:
    """A key that is equal for equal candidates."""
    what = record.trace if record.decisions is None else record.decisions
    return record.workload, record.target, json.dumps(what, sort_keys=True)


class RecordReader:
    """The records of a file, in order. The record of a winner is left out if it repeats that of a trial."""

    def __init__(self, filename: str | os.PathLike[str], trusted: bool = False) -> None:
        self.filename, self.trusted = os.fspath(filename), trusted

    def __iter__(self) -> Iterator[tuple[MeasureInput, MeasureResult]]:
        if os.path.isfile(self.filename) and not os.path.getsize(self.filename):
            return
        if is_database(self.filename):
            lines, classic = read_records(self.filename, self.trusted), list[ClassicRecord]()
        else:
            lines, classic = _split(self.filename, self.trusted)
        yield from map(classic_pair, classic)
        programs = _Programs(lines.workloads)
        trials = {_candidate(r) for r in lines.records if r.origin != "winner"}
        for record in lines.records:
            if record.origin != "winner" or _candidate(record) not in trials:
                yield _pair(record, programs)

    def read_lines(
        self, max_lines: int | None = None, skip_lines: int = 0
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """At most `max_lines` records after the first `skip_lines`, as lists of inputs and results."""
        end = None if max_lines is None or max_lines < 0 else skip_lines + max_lines
        found = list(self)[skip_lines:end]
        return [inp for inp, _ in found], [res for _, res in found]


def load_records(
    filename: str | os.PathLike[str], trusted: bool = False
) -> Iterator[tuple[MeasureInput, MeasureResult]]:
    """Iterate over the records of a file."""
    return iter(RecordReader(filename, trusted))


def load_best_record(
    filename: str | os.PathLike[str],
    workload_key: str | None = None,
    target: Any = None,
    include_compatible: bool = False,
    trusted: bool = False,
) -> tuple[MeasureInput | None, MeasureResult | None]:
    """The best record of a file, for a workload and a target if given; (None, None) if there is none.

    It is the last winner, else the fastest. `include_compatible` includes the records of other machines.
    """
    lines = read_records(filename, trusted)
    programs = _Programs(lines.workloads)
    tasks: dict[tuple[str, str], Record] = {}
    for r in lines.records:
        if (target is None or alike(r.target, target)) and workload_key in (
            None,
            r.extra.get("workload_key"),
        ):
            tasks.setdefault((r.workload, r.target), r)
    history = History(lines.records, machine="any" if include_compatible else None)
    found = [history.find(programs.of(r).task) for r in tasks.values()]
    best = min((r for r in found if r is not None), key=lambda r: r.time, default=None)
    return (None, None) if best is None else _pair(best, programs)


def distill_record_file(in_file: str | os.PathLike[str], out_file: str | os.PathLike[str]) -> None:
    """Write the best record of each program of a file to another file."""
    lines = read_records(in_file)
    programs = _Programs(lines.workloads)
    history, out = History(lines.records), RecordToFile(out_file)
    for r in {(r.workload, r.target): r for r in lines.records}.values():
        task = programs.of(r).task
        best = history.find(task)
        if best is not None:
            out.keep(best, task, lines.machines.get(best.machine))


# ---------------------------------------------------------------------------- while it is measured
class Journal(Database):
    """The records of a search in memory. `RecordToFile` callbacks get each record at once, others after each round."""

    def __init__(self, tasks: Sequence[SearchTask], callbacks: Sequence[Any]) -> None:
        super().__init__(":memory:")
        self._tasks = {task.task.workload: task for task in tasks}
        self._files = [c for c in callbacks if isinstance(c, RecordToFile)]
        self._others = [c for c in callbacks if not isinstance(c, RecordToFile)]
        self._waiting: list[Record] = []

    def __enter__(self) -> Journal:
        return self

    def add(self, record: Record, task: Task | None = None, machine: Mapping[str, Any] | None = None) -> None:
        known = self._tasks[record.workload]
        record = replace(record, extra={**record.extra, **_extra(known)})
        super().add(record, task, machine)
        for file in self._files:
            file.keep(record, known.task, machine)
        if record.origin != "winner":
            self._waiting.append(record)

    def preload(self, filename: str | os.PathLike[str]) -> int:
        """Load the records of these tasks from a file without calling callbacks; returns their number."""
        count = 0
        if not os.path.exists(filename):  # the first run of a program that resumes by itself
            warnings.warn(
                f"{os.fspath(filename)}: there is no such file yet, so the search starts from the beginning",
                RuntimeWarning,
                stacklevel=2,
            )
            return 0
        for record in read_records(filename).records:
            task = self._tasks.get(record.workload)
            if task is not None:
                super().add(record, task.task)
                count += 1
        return count

    def notify(self, policy: Any) -> None:
        """Call callbacks with the measurements since the last call."""
        waiting, self._waiting = self._waiting, []
        if not waiting or not self._others:
            return
        programs = _Programs([])
        programs._made.update({(r.workload, r.target): self._tasks[r.workload] for r in waiting})
        pairs = [_pair(r, programs) for r in waiting]
        for callback in self._others:
            call = getattr(callback, "callback", callback)
            call(policy, [inp for inp, _ in pairs], [res for _, res in pairs])
