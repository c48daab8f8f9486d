"""Earlier measurements, applied: schedules from records in place of those of the analytical model.

    with History("tune.db") as history:
        lib = relay.build(mod, "llvm", params=params)    # each kernel with a record is built from it
    print(history.summary())

`auto_schedule` asks the innermost history first, then those around it. Records are keyed by program, target and
machine: those of another machine are not applied unless that machine is named.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from ...forks import new_in_child
from ...ir.function import PrimFunc
from ...ir.module import IRModule
from ...target import Target
from ...tir.schedule import Schedule
from ...tir.schedule.from_files import UntrustedStep
from ..auto import asked
from ..errors import RecordError
from ..explain import Explanation
from ..measure.machines import alike, describe_machine, differences, fingerprint, record_keys, record_target
from ..space import Sketches
from ..workload import Task, apply_trace
from .database import Database, Record, best_of
from .files import Lines, is_database, read_lines

Asked = Callable[[Task], Record | None]


class _Source(Protocol):
    """A source of records."""

    name: str

    def best(self, task: Task, machine: str, loosely: bool) -> Record | None:
        """The record to build a task from, of a machine or of "any"; `loosely`: for any number of threads."""

    def keys_of(self, task: Task) -> Iterable[tuple[str, str]]:
        """The targets and machines with records of a task."""

    def machines(self) -> Mapping[str, Any]:
        """The descriptions of machines by fingerprint, as far as they are known."""


class _File:
    """A database on disk, opened anew for each query: a connection belongs to one thread."""

    def __init__(self, path: str, trusted: bool = False) -> None:
        self.name, self._trusted = path, trusted
        with Database(path, trusted) as db:  # errors of the file are raised now
            db.machines()

    def best(self, task: Task, machine: str, loosely: bool) -> Record | None:
        with Database(self.name, self._trusted) as db:
            return db.best(task, machine, loosely)

    def keys_of(self, task: Task) -> Iterable[tuple[str, str]]:
        with Database(self.name, self._trusted) as db:
            return db.keys_of(task)

    def machines(self) -> Mapping[str, Any]:
        with Database(self.name, self._trusted) as db:
            return db.machines()


class _Held:
    """Records in memory."""

    def __init__(self, lines: Lines, name: str) -> None:
        self.name, self._machines = name, lines.machines
        self._records: dict[str, list[Record]] = {}
        for r in lines.records:
            if r.ok and r.seconds:
                self._records.setdefault(r.workload, []).append(r)

    def best(self, task: Task, machine: str, loosely: bool) -> Record | None:
        keys = set(record_keys(task.target, machine))
        if loosely or machine == "any":
            keys = {k for k in self.keys_of(task) if machine in ("any", k[1])}
        return best_of([r for r in self._records.get(task.workload, ()) if (r.target, r.machine) in keys])

    def keys_of(self, task: Task) -> Iterable[tuple[str, str]]:
        every = dict.fromkeys((r.target, r.machine) for r in self._records.get(task.workload, ()))
        return [k for k in every if alike(k[0], task.target)]

    def machines(self) -> Mapping[str, Any]:
        return self._machines


class _Answers:
    """A function from a task to its record."""

    def __init__(self, ask: Asked) -> None:
        self.name, self._ask = getattr(ask, "__name__", "a function"), ask

    def best(self, task: Task, machine: str, loosely: bool) -> Record | None:
        found = self._ask(task)
        return None if found is None or not found.ok or machine not in ("any", found.machine) else found

    def keys_of(self, task: Task) -> Iterable[tuple[str, str]]:
        found = self._ask(task)
        return [] if found is None or not found.ok else [(found.target, found.machine)]

    def machines(self) -> Mapping[str, Any]:
        return {}


def _source(given: Any, trusted: bool = False) -> _Source:
    if isinstance(given, Database):
        if given.path != ":memory:":
            return _File(given.path, trusted or given.trusted)
        return _Held(Lines(given.records(), [], given.machines()), "the database in memory")
    if isinstance(given, (str, os.PathLike)):
        path = os.fspath(given)
        return _File(path, trusted) if is_database(path) else _Held(read_lines(path, trusted), path)
    if isinstance(given, Record):
        given = [given]
    if callable(given):
        return _Answers(given)
    if isinstance(given, Iterable):
        records = list(given)
        wrong = next((r for r in records if not isinstance(r, Record)), None)
        if wrong is None:
            return _Held(Lines(records, [], {}), "the records given")
        given = wrong
    raise TypeError(
        "a history is made of databases, paths, lists of tune.records.Record, or functions that are given a task and "
        f"give a record; not of {type(given).__name__}"
    )


class History:
    """Records that `auto_schedule` applies within a `with` block, instead of deciding by the analytical model alone.

    Sources are databases, files (.db or JSON lines), records, or functions from a task to its record. Of several
    records of a task the last winner counts, else the fastest. `machine` names another machine, whose records are
    applied as if they were of this one; "any" takes all. `trusted` files may have steps that no search writes.
    """

    def __init__(self, *sources: Any, machine: str | None = None, trusted: bool = False) -> None:
        self._sources = [_source(s, trusted) for s in sources if s is not None]
        self._machine = machine
        self._lock = new_in_child(threading.Lock())
        self._warned: set[tuple[str, str]] = set()
        self.tasks: dict[str, Task] = {}  # tasks that callers have already made, by their keys
        self.used: dict[str, Record] = {}  # by the keys of the programs
        self.missed: dict[str, str] = {}  # the names of programs without a record, by their keys

    # -- life ------------------------------------------------------------------------------------
    def __enter__(self) -> History:
        asked.set((*asked.get(), self))
        return self

    def __exit__(self, *ignored: object) -> None:
        held = asked.get()
        if held and held[-1] is self:
            asked.set(held[:-1])

    # -- asking ----------------------------------------------------------------------------------
    def find(self, task: Task) -> Record | None:
        """The record of this machine to build a task from: the last winner, else the fastest."""
        wanted = self._machine or ("any" if _abroad(task.target) else fingerprint(target=task.target))
        found: list[Record] = []
        # whoever names a machine also takes its records for other numbers of threads
        for loosely in (False, True) if self._machine is not None else (False,):
            if not found:
                every = (source.best(task, wanted, loosely) for source in self._sources)
                found = [r for r in every if r is not None]
        if not found:
            self._tell_of_others(task)
        return min(found, key=lambda r: (r.origin != "winner", r.time), default=None)

    def _tell_of_others(self, task: Task) -> None:
        """Warn, once for each machine and number of threads, of records that exist and are not applied."""
        mine = describe_machine(task.target)
        here = fingerprint(mine)
        for source in self._sources:
            others = {(text if name == here else "", name) for text, name in source.keys_of(task)}
            with self._lock:
                new = sorted(others - self._warned)
                self._warned |= others
            for text, name in new:
                known = source.machines().get(name)
                how = differences(known, mine) if known else "which is not described"
                why = f"are of another machine and are not applied: {name} ({how or 'described alike'})"
                remedy = f"tune here, or name it: History(…, machine={name!r})"
                if text:
                    why = f"are for `{text}` and are not applied to `{record_target(task.target)}`"
                    remedy = f"tune for that too, or compile for Target({text!r})"
                warnings.warn(
                    f"{source.name}: its records of {task.name}, and perhaps of others, {why}; {remedy}",
                    RuntimeWarning,
                    stacklevel=_outside(),
                )

    def note(self, task: Task, record: Record | None) -> None:
        """Remember that a task was looked up, and its record."""
        with self._lock:
            if record is not None:
                self.used[task.workload] = record
            else:
                self.missed[task.workload] = task.name

    def summary(self) -> str:
        """How many of the programs that were compiled had records, in a sentence."""
        total = len(self.used) + len(self.missed)
        if not total:
            return "no program was looked up"
        missing = ", ".join(sorted(set(self.missed.values())))
        rest = f"; without one: {missing[:200]}" if self.missed else ""
        return f"{len(self.used)} of {total} programs were built by their records{rest}"


def _abroad(target: Target) -> bool:
    """Whether a target is for another machine, so that its records were measured there."""
    return target.is_cpu and not target.llvm.is_host


def _outside() -> int:
    """The stack level of the first caller outside of tilewright, to whom a warning is attributed."""
    import sys

    frame, level = sys._getframe(1), 1
    while frame is not None and frame.f_globals.get("__name__", "").startswith("tilewright."):
        if frame.f_back is None:
            break
        frame, level = frame.f_back, level + 1
    return level


# ---------------------------------------------------------------------------- for schedulers
def current() -> History | None:
    """The innermost history, if there is any."""
    held = asked.get()
    return held[-1] if held else None


def lookup(task: Task) -> Record | None:
    """The record of a task from the innermost history that has one."""
    held = asked.get()
    for history in reversed(held):
        record: Record | None = history.find(task)
        if record is not None:
            for each in {history, held[-1]}:  # the one that has it, and the one whose block this is
                each.note(task, record)
            return record
    if held:
        held[-1].note(task, None)
    return None


def apply_to(sch: Schedule, task: Task, record: Record, notes: Explanation) -> str:
    """Apply a record to the function that a schedule works on. Returns why it no longer applies; empty if it does.

    The schedule is unchanged if the record does not apply.
    """
    if record.workload != task.workload:
        return "it is of another program"
    try:
        trace = steps_of(task, record)
        apply_trace(task, _on(trace, sch), sch, record.trusted)
    except UntrustedStep as error:
        raise RecordError(f"record {record.uid or '(without a name)'} of {task.name}: {error}") from None
    except Exception as error:  # records come from outside: anything may be wrong with them
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"
    notes.records.append(_explained(task, record))
    return ""


def _on(trace: Any, sch: Schedule) -> Any:
    """The steps for the function that a schedule works on: a task is one function, whatever its name."""
    if not isinstance(trace, Mapping) or not isinstance(trace.get("steps"), list):
        return trace
    steps = []
    for step in trace["steps"]:
        if isinstance(step, Mapping) and step.get("step") == "work_on":
            continue
        if isinstance(step, Mapping) and "func_name" in (step.get("kwargs") or {}):
            step = {**step, "kwargs": {**step["kwargs"], "func_name": sch.func_working_on.name_hint}}
        steps.append(step)
    return {**trace, "steps": steps}


def _explained(task: Task, record: Record) -> dict[str, Any]:
    """The entry of `explain` for a function that a record was applied to."""
    time = record.time
    told = {
        "stage": task.name,
        "sketch": "by a record",
        "record": record.uid or "without a name",
        "origin": record.origin,
        "measured_us": round(time * 1e6, 3),
        "machine": record.machine,
    }
    if record.origin == "winner" and record.ratio:
        told["times_untuned"] = round(record.ratio, 3)  # relative to the zero-trial schedule
    if record.decisions is not None:
        told["decisions"] = [_short(d) for d in record.decisions]
    return told


def _short(decision: Mapping[str, Any]) -> str:
    rest = " ".join(f"{k}={v}" for k, v in decision.items() if k not in ("stage", "rule", "sketch"))
    return f"{decision.get('stage')}: {decision.get('rule', decision.get('sketch'))} {rest}"


def steps_of(task: Task, record: Record) -> Any:
    """The steps of a record, as JSON: those of its rules and rows. Records of versions that knew no rules have the
    steps themselves.

    A task may have other names for its stages than the record has: they are matched in order.
    """
    decisions = record.decisions
    if decisions is not None and all("rule" in d for d in decisions):
        unnamed = [{k: v for k, v in d.items() if k != "stage"} for d in decisions]
        return Sketches(task).apply(unnamed).trace.as_json()
    if record.trace is None:
        return Sketches(task).apply(decisions).trace.as_json()
    return record.trace


def scheduled_by_record(
    sch: Schedule,
    func: PrimFunc,
    target: Target,
    constants: Iterable[str],
    notes: Explanation,
    record: Record | None = None,
) -> bool:
    """Schedule the function that `sch` works on from its record. Returns whether there is one that applies."""
    task = Task(IRModule({sch.func_working_on.name_hint: func}), target, tuple(constants))
    found = record if record is not None else lookup(task)
    # no record, or one of the zero-trial schedule
    if found is None or (found.trace is None and found.decisions is None):
        return False
    why = apply_to(sch, task, found, notes)
    if why:
        warnings.warn(
            f"the record {found.uid or '(without a name)'} of {task.name} ({found.origin}, "
            f"{found.time * 1e6:.1f} us) does not apply any more, so it is scheduled without: {why}; tune it again",
            RuntimeWarning,
            stacklevel=_outside(),
        )
    return not why
