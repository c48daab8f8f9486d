"""The database of measurements: SQLite, keyed by program, target and machine.

    with Database("tune.db") as db:
        db.add(Record.of(inp, result))
        best = db.best(task)

Any number of processes may write at once, and a process that is killed loses nothing that it has added. A record of
another machine never counts as one of this machine.
"""

from __future__ import annotations

import json
import math
import numbers
import os
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...files import written_whole
from ...ir.errors import TVMError
from ...ir.serialize import load_json, read_json, save_json
from ...target import Target
from ...tir.schedule.from_files import UntrustedStep, check_steps
from ..errors import RecordError
from ..measure.machines import alike, describe_machine, differences, fingerprint, record_keys, record_target
from ..measure.measurer import MeasureInput, MeasureResult, Status
from ..workload import Task
from .programs import check_program

FORMAT = "tilewright-records-1"
_WAIT = 60.0  # seconds to wait for other processes that write
_APPLICATION, _VERSION = 0x74777264, 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS machines (id TEXT PRIMARY KEY, description TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS workloads (id TEXT PRIMARY KEY, name TEXT NOT NULL, program TEXT NOT NULL,
    constants TEXT NOT NULL, sizes TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS records (uid TEXT PRIMARY KEY, workload TEXT NOT NULL, target TEXT NOT NULL,
    machine TEXT NOT NULL, origin TEXT NOT NULL, status TEXT NOT NULL, decisions TEXT, trace TEXT,
    seconds TEXT NOT NULL, noise REAL NOT NULL, ratio REAL, error TEXT NOT NULL, build_seconds REAL NOT NULL,
    seed INTEGER NOT NULL, created REAL NOT NULL, extra TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_task ON records (workload, target, machine);
"""
_PARTS = {("table", "machines"), ("table", "workloads"), ("table", "records"), ("index", "by_task")}
_COLUMNS = (
    "uid", "workload", "target", "machine", "origin", "status", "decisions", "trace", "seconds", "noise", "ratio",
    "error", "build_seconds", "seed", "created", "extra",
)  # fmt: skip
_DATA = ("decisions", "trace", "seconds", "extra")  # kept as JSON


@dataclass(frozen=True)
class Record:
    """A measured candidate.

    `origin` is "trial", or "winner" for the candidate that the final measurement against the zero-trial schedule
    chose. `extra` is data of APIs that are built on this one. A record is `trusted` if it was made in this process, or
    came from a file that its reader trusts: then any steps are allowed.
    """

    workload: str
    target: str
    machine: str
    status: str
    decisions: Any = None
    trace: Any = None
    seconds: tuple[float, ...] = ()
    noise: float = 0.0
    ratio: float | None = None
    error: str = ""
    build_seconds: float = 0.0
    seed: int = 0
    origin: str = "trial"
    created: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)
    uid: str = ""
    trusted: bool = field(default=False, compare=False)

    @staticmethod
    def of(
        inp: MeasureInput,
        result: MeasureResult,
        seed: int = 0,
        origin: str = "trial",
        extra: Mapping[str, Any] | None = None,
    ) -> Record:
        """The record of a measurement: of this machine, unless the result names another."""
        return Record(
            workload=inp.task.workload,
            target=record_target(inp.task.target),
            machine=result.machine or fingerprint(target=inp.task.target),
            status=str(result.status),
            decisions=inp.what if inp.kind == "decisions" else None,
            trace=result.trace,
            seconds=result.seconds,
            noise=result.noise,
            ratio=result.ratio,
            error=result.error,
            build_seconds=result.build_seconds,
            seed=seed,
            origin=origin,
            created=time.time(),
            extra={**_names_in_model(inp.task), **(extra or {})},
            uid=uuid.uuid4().hex,
            trusted=True,
        )

    def plain(self) -> dict[str, Any]:
        """The record in the form of files."""
        return {c: getattr(self, c) for c in _COLUMNS}

    @property
    def ok(self) -> bool:
        return self.status == Status.OK

    @property
    def time(self) -> float:
        """The time that counts; infinite if the candidate failed."""
        return self.result.time

    @property
    def score(self) -> float:
        """The time by which the search ranked the candidate."""
        return self.result.score(self.extra.get("against"))

    @property
    def result(self) -> MeasureResult:
        """The record as a result of a measurement."""
        return MeasureResult(
            Status(self.status), self.seconds, self.error, self.build_seconds, 0.0, self.ratio, self.trace
        )


def _names_in_model(task: Task) -> dict[str, list[str]]:
    """The names of a task that a record keeps, so that a person finds it by them."""
    return {"nodes": list(task.nodes), "names": list(task.names)} if task.names else {}


def best_of(records: Sequence[Record]) -> Record | None:
    """The record to build from: the last winner, else the fastest; None if no candidate could be measured."""
    good = [r for r in records if r.ok and r.seconds]
    winners = [r for r in good if r.origin == "winner"]
    return winners[-1] if winners else min(good, key=lambda r: r.time, default=None)


class Database:
    """A file of records; `":memory:"` is one in memory.

    A record of a file can change the speed of a program and nothing else: only steps that the search writes are
    allowed, and programs in the file may only compute. `trusted` allows everything, for a file from someone who may
    run code here.
    """

    def __init__(self, path: str | os.PathLike[str], trusted: bool = False) -> None:
        self.path, self.trusted = os.fspath(path), trusted
        self._stored: set[str] = set()  # tasks and machines that are already in the file
        if self.path != ":memory:" and Path(self.path).is_dir():
            raise RecordError(f"{self.path} is a folder, not a file of records")
        self.readonly = self._is_fixed()
        try:
            if self.readonly:  # no process writes to it, and SQLite's own files cannot be created next to it
                place = Path(self.path).absolute().as_uri() + "?mode=ro&immutable=1"
                self._db = sqlite3.connect(place, uri=True, isolation_level=None)
            else:
                self._db = sqlite3.connect(self.path, timeout=_WAIT, isolation_level=None)
        except sqlite3.Error as error:
            raise RecordError(
                f"{self.path}: the records cannot be opened: {error}; give a file in a folder that may be written to"
            ) from None
        try:
            self._open()
        except BaseException:
            self._db.close()
            raise

    def _is_fixed(self) -> bool:
        """Whether the file can only be read, and is complete (its write-ahead log is empty)."""
        place = Path(self.path)
        if not place.is_file() or (os.access(place, os.W_OK) and os.access(place.absolute().parent, os.W_OK)):
            return False
        rest = Path(f"{self.path}-wal")
        return not rest.exists() or not rest.stat().st_size

    def _open(self) -> None:
        with self._errors():
            self._db.execute("BEGIN")  # a consistent view: another process may be creating it
            ours = self._is_ours()
            self._db.execute("COMMIT")
            if self.readonly:
                return
            if not ours:
                with self._writing():
                    if not self._is_ours():
                        self._create()
            give_up = time.monotonic() + _WAIT
            while True:
                try:
                    self._db.execute("PRAGMA journal_mode=WAL")
                    break
                except sqlite3.OperationalError as error:
                    # others are opening it, and SQLite itself does not wait
                    if "locked" not in str(error) or time.monotonic() > give_up:
                        raise
                    time.sleep(0.01)
            self._db.execute("PRAGMA synchronous=NORMAL")

    def _is_ours(self) -> bool:
        """Whether the file holds records; False if it is empty. Other files are refused."""
        (tag,) = self._db.execute("PRAGMA application_id").fetchone()
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        tables = self._db.execute("SELECT type, name FROM sqlite_master").fetchall()
        if tables and tag != _APPLICATION:
            raise RecordError(f"{self.path}: this is a database of something else, not of tuning records")
        for kind, name in tables:  # views and triggers would run with every read or write
            if (kind, name) not in _PARTS and not str(name).startswith("sqlite_autoindex_"):
                raise RecordError(
                    f"{self.path}: a database of tuning records has no {kind} {name!r}: another program changed it"
                )
        if version > _VERSION:
            raise RecordError(
                f"{self.path}: its format is {version}, and this tilewright knows up to {_VERSION}: use a newer one"
            )
        return bool(tables)

    def _create(self) -> None:
        self._db.execute(f"PRAGMA application_id={_APPLICATION}")
        self._db.execute(f"PRAGMA user_version={_VERSION}")
        for statement in _SCHEMA.split(";"):
            if statement.strip():
                self._db.execute(statement)

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, *ignored: object) -> None:
        self.close()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn errors of SQLite into a RecordError that names the file and the remedy."""
        try:
            yield
        except sqlite3.OperationalError as error:
            hint = ""
            if "locked" in str(error):
                hint = (
                    f"; another process has been writing to it for {_WAIT:g} s: wait for that one, or end it"
                )
            elif "readonly" in str(error) or "unable to open" in str(error):
                hint = "; copy the file to where you may write"
            elif "full" in str(error) or "I/O" in str(error):
                hint = (
                    "; make room there: earlier records are kept, and a search resumes from them (--resume)"
                )
            raise RecordError(f"{self.path}: the records cannot be read or written: {error}{hint}") from None
        except (sqlite3.DatabaseError, UnicodeError) as error:
            raise RecordError(
                f"{self.path}: this is not a file of tuning records, or a damaged one: {error}"
            ) from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite itself has ended it if the disk was full
                self._db.execute("ROLLBACK")
            raise

    # -- in --------------------------------------------------------------------------------------
    def add(self, record: Record, task: Task | None = None, machine: Mapping[str, Any] | None = None) -> None:
        """Add a record; with its task, so that it can be built again from the file alone, and with the machine that
        measured it, if that is not this one."""
        with self._errors(), self._writing():
            if task is not None and task.workload not in self._stored:
                self._put_workload(workload_row(task))
            if machine is None and record.machine == fingerprint(target=record.target):
                machine = describe_machine(record.target)
            if machine is not None and record.machine not in self._stored:
                self._put_machine(record.machine, machine)
            self._put(record)
        self._stored |= {record.machine, *([task.workload] if task is not None else [])}

    def _put(self, record: Record) -> int:
        made = replace(record, uid=record.uid or uuid.uuid4().hex)
        row = [json.dumps(getattr(made, c)) if c in _DATA else getattr(made, c) for c in _COLUMNS]
        marks = ", ".join("?" * len(_COLUMNS))
        return self._db.execute(
            f"INSERT OR IGNORE INTO records ({', '.join(_COLUMNS)}) VALUES ({marks})", row
        ).rowcount

    def _put_workload(self, row: tuple[str, str, str, str, str]) -> None:
        self._db.execute("INSERT OR IGNORE INTO workloads VALUES (?, ?, ?, ?, ?)", row)

    def _put_machine(self, name: str, description: Any) -> None:
        self._db.execute(
            "INSERT OR IGNORE INTO machines VALUES (?, ?)", (name, json.dumps(description, sort_keys=True))
        )

    # -- out -------------------------------------------------------------------------------------
    def __len__(self) -> int:
        """The number of records."""
        with self._errors():
            return int(self._db.execute("SELECT count(*) FROM records").fetchone()[0])

    def __bool__(self) -> bool:
        return True  # even without records

    def records(
        self,
        task: Task | str | None = None,
        target: Any = None,
        machine: str | None = None,
        status: str | None = None,
    ) -> list[Record]:
        """The records of a task (or of the key of a workload), in the order in which they were added."""
        where, values = "1", list[str]()
        if isinstance(task, Task):
            where, values = self._under(task, machine or "any", loosely=machine is None)
        elif machine is not None:
            where, values = "machine = ?", [machine]
        given = {"workload": None if isinstance(task, Task) else task, "status": status}
        given["target"] = None if target is None else str(Target(target))
        for name, value in given.items():
            if value is not None:
                where, values = f"{where} AND {name} = ?", [*values, value]
        with self._errors():
            rows = self._db.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM records WHERE {where} ORDER BY rowid", values
            ).fetchall()
        return [self._record(row) for row in rows]

    def _under(self, task: Task, machine: str, loosely: bool) -> tuple[str, list[str]]:
        """The SQL condition for the records of a task on a machine ("any": on all), and its parameters. `loosely`: for
        any number of threads."""
        keys = record_keys(task.target, machine)
        if loosely or machine == "any":
            keys = tuple(k for k in self.keys_of(task) if machine in ("any", k[1]))
        here = " OR ".join(["(target = ? AND machine = ?)"] * len(keys)) or "0"
        return f"workload = ? AND ({here})", [task.workload, *(part for key in keys for part in key)]

    def measured(self, task: Task, machine: str) -> int:
        """The number of candidates of a task that were measured on a machine."""
        trials = (r for r in self.records(task, machine=machine) if r.origin == "trial")
        return len({repr(r.decisions) for r in trials})

    def keys_of(self, task: Task) -> list[tuple[str, str]]:
        """The targets and machines with records of a task, for any number of threads."""
        with self._errors():
            rows = self._db.execute(
                "SELECT DISTINCT target, machine FROM records WHERE workload = ?", (task.workload,)
            ).fetchall()
        return [(text, name) for text, name in rows if alike(text, task.target)]

    def _record(self, row: Iterable[Any]) -> Record:
        values = dict(zip(_COLUMNS, row, strict=True))
        where = f"{self.path}: record {values['uid']}"
        try:
            for name in _DATA:
                values[name] = _data(values[name], f"its {name}")
            return checked_record(values, self.trusted)
        except UntrustedStep as error:
            raise RecordError(f"{where}: {error}") from None
        except (ValueError, TypeError) as error:
            raise RecordError(f"{where} is damaged: {error}") from None

    def best(self, task: Task, machine: str | None = None, loosely: bool = False) -> Record | None:
        """The record to build from: the last winner, else the fastest correct one; of this machine unless one is
        named ("any": of all). `loosely` takes any number of threads if the target does not say how many."""
        where, wanted = self._under(task, machine or fingerprint(target=task.target), loosely)
        with self._errors():  # traces are long, and only that of one record is needed
            rows = self._db.execute(
                f"SELECT uid, origin, seconds FROM records WHERE {where} AND status = 'ok' ORDER BY rowid",
                wanted,
            ).fetchall()
        times = [(uid, self._time(uid, s)) for uid, _, s in rows]
        winners = [uid for uid, origin, s in rows if origin == "winner" and s != "[]"]
        fastest = min(times, key=lambda t: t[1], default=("", math.inf))
        if not winners and math.isinf(fastest[1]):
            return None
        return self._of(winners[-1] if winners else fastest[0])

    def _time(self, uid: str, seconds: str) -> float:
        try:
            return MeasureResult(Status.OK, tuple(map(float, _data(seconds, "its seconds")))).time
        except (ValueError, TypeError) as error:
            raise RecordError(f"{self.path}: record {uid} is damaged: {error}") from None

    def _of(self, uid: str) -> Record | None:
        with self._errors():
            row = self._db.execute(
                f"SELECT {', '.join(_COLUMNS)} FROM records WHERE uid = ?", (uid,)
            ).fetchone()
        return None if row is None else self._record(row)

    def elsewhere(self, task: Task) -> str:
        """A sentence on the records of a task that are not used here: of other machines, or for other numbers of
        threads; empty if there are none."""
        mine, known = describe_machine(task.target), self.machines()
        me = fingerprint(mine)
        used = {r.uid for r in self.records(task, machine=me)}
        others = [r for r in self.records(task) if r.ok and r.uid not in used]
        away, here = [r for r in others if r.machine != me], [r for r in others if r.machine == me]
        names, texts = dict.fromkeys(r.machine for r in away), dict.fromkeys(f"`{r.target}`" for r in here)
        told = [f"{name} ({differences(known.get(name, {}), mine) or 'not described'})" for name in names]
        out = []
        if away:
            out.append(
                f"{len(away)} records of {task.name} are of other machines and are not used here: {', '.join(told)}; "
                "tune here, or name the machine to use them all the same"
            )
        if here:
            out.append(
                f"{len(here)} records of {task.name} are for {', '.join(texts)} and are not used for "
                f"`{record_target(task.target)}`; tune for that too, or build for theirs"
            )
        return "; ".join(out)

    def machines(self) -> dict[str, Any]:
        """The descriptions of machines, by fingerprint."""
        with self._errors():
            rows = self._db.execute("SELECT id, description FROM machines").fetchall()
        where = f"{self.path}: the description of a machine"
        return {
            str(k): read_json(v if isinstance(v, (str, bytes)) else "", where, RecordError) for k, v in rows
        }

    def task(self, workload: str, target: Any) -> Task:
        """The task for the key of a workload, with its program from the file."""
        with self._errors():
            row = self._db.execute(
                "SELECT program, constants, sizes FROM workloads WHERE id = ?", (workload,)
            ).fetchone()
        if row is None:
            raise RecordError(f"{self.path}: there is no program of the workload {workload}")
        return read_task(f"{self.path}: workload {workload}", row, target, self.trusted)

    def tasks(self) -> list[dict[str, Any]]:
        """One entry for each program, target and machine: the number of records and the best of them."""
        out: dict[tuple[str, str, str], dict[str, Any]] = {}
        with self._errors():
            names = dict(self._db.execute("SELECT id, name FROM workloads").fetchall())
        for r in self.records():
            line = out.setdefault(
                (r.workload, r.target, r.machine),
                {
                    "name": names.get(r.workload, "?"),
                    "workload": r.workload,
                    "target": r.target,
                    "machine": r.machine,
                    "records": 0,
                    "ok": 0,
                    "best": math.inf,
                    "nodes": [],
                    "names": [],
                },
            )
            for kind in ("nodes", "names"):
                known = r.extra.get(kind)
                if isinstance(known, list):  # of a file, which may hold anything
                    line[kind] += [n for n in map(str, known) if n not in line[kind]]
            line["records"] += 1
            line["ok"] += r.ok
            line["best"] = min(line["best"], r.time)
        return list(out.values())

    def show(self) -> str:
        """`tasks` as text."""
        head = ("name", "workload", "target", "machine", "records", "ok", "best", "nodes")
        rows = [head] + [
            (
                t["name"],
                t["workload"][:12],
                t["target"],
                t["machine"],
                str(t["records"]),
                str(t["ok"]),
                f"{t['best'] * 1e6:.1f} us" if math.isfinite(t["best"]) else "-",
                ", ".join(t["nodes"]),
            )
            for t in self.tasks()
        ]
        widths = [max(len(r[i]) for r in rows) for i in range(len(head))]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)

    # -- many files --------------------------------------------------------------------------------
    def merge(self, other: str | os.PathLike[str] | Database) -> int:
        """Add the records of another file that this one does not have. Returns how many were added."""
        if not isinstance(other, Database):
            if not Path(other).exists():
                raise RecordError(f"{os.fspath(other)}: there is no such file")
            with Database(other, self.trusted) as opened:
                return self.merge(opened)
        with other._errors():
            workloads = other._db.execute("SELECT * FROM workloads").fetchall()
        return self.take(workloads, other.machines(), other.records())

    def take(self, workloads: Iterable[Any], machines: Mapping[str, Any], records: Iterable[Record]) -> int:
        """Add programs, machines and records that are not there yet. Returns how many records were added."""
        with self._errors(), self._writing():
            for row in workloads:
                self._put_workload(row)
            for name, description in machines.items():
                self._put_machine(name, description)
            return sum(self._put(r) for r in records)

    def prune(self, keep: int = 16, failed: bool = True) -> int:
        """Keep the fastest `keep` records of each task and its last winner; drop failures if `failed`. Returns how many
        records were dropped."""
        groups: dict[tuple[str, str, str], list[Record]] = {}
        for r in self.records():
            groups.setdefault((r.workload, r.target, r.machine), []).append(r)
        gone: list[str] = []
        for group in groups.values():
            trials = sorted((r for r in group if r.ok and r.origin != "winner"), key=lambda r: r.time)
            gone += [r.uid for r in trials[keep:]]
            gone += [r.uid for r in group if failed and not r.ok]
            gone += [r.uid for r in [r for r in group if r.origin == "winner"][:-1]]
        with self._errors(), self._writing():
            self._db.executemany("DELETE FROM records WHERE uid = ?", [(u,) for u in gone])
        return len(gone)

    # -- JSON lines --------------------------------------------------------------------------------
    def export_json(self, path: str | os.PathLike[str]) -> int:
        """Write everything as lines of JSON, atomically. Returns the number of records."""
        records = self.records()
        with self._errors():
            workloads = self._db.execute("SELECT * FROM workloads").fetchall()
        lines = [{"format": FORMAT}, *({"machine": k, "description": d} for k, d in self.machines().items())]
        lines += [{"workload": list(row)} for row in workloads]
        lines += [{"record": r.plain()} for r in records]
        try:
            with written_whole(path) as part, open(part, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in lines)
        except OSError as error:
            raise RecordError(
                f"{os.fspath(path)}: the records cannot be written: {error}; {self.path} has them"
            ) from None
        return len(records)

    def import_json(self, path: str | os.PathLike[str]) -> int:
        """Add the records of a file of lines, atomically. Returns how many were new."""
        from .files import take_records  # which opens databases

        return take_records(self, path)


def _data(text: Any, where: str) -> Any:
    """The value of a column that holds JSON."""
    if text is not None and not isinstance(text, (str, bytes)):
        raise ValueError(f"{where} is text, not {text!r}")
    return None if text is None else read_json(text, where, ValueError)


_TEXTS = ("uid", "workload", "target", "machine", "origin", "status", "error")
_NUMBERS = ("noise", "build_seconds", "seed", "created")


def checked_record(data: Mapping[str, Any], trusted: bool = False) -> Record:
    """Check a record from outside: its fields must have the right types, and its steps be those that the search writes.

    `trusted` allows other steps, which may do more than change the speed.
    """
    values = {c: data[c] for c in _COLUMNS}
    for name in _TEXTS:
        if not isinstance(values[name], str):
            raise ValueError(f"{name} is text, not {values[name]!r}")
    for name in _NUMBERS:
        if not _is_number(values[name]):
            raise ValueError(f"{name} is a number, not {values[name]!r}")
    if values["ratio"] is not None and not _is_number(values["ratio"]):
        raise ValueError(f"ratio is a number or nothing, not {values['ratio']!r}")
    if not isinstance(values["seconds"], (list, tuple)) or not all(map(_is_number, values["seconds"])):
        raise ValueError(f"seconds are a list of numbers, not {values['seconds']!r}")
    seconds = tuple(map(float, values["seconds"]))
    if any(s <= 0 for s in seconds):
        raise ValueError(f"times are positive numbers, not {values['seconds']}")
    Status(values["status"])
    if not isinstance(values["extra"], Mapping):
        raise ValueError(f"extra is a table, not {values['extra']!r}")
    trace, decisions = values["trace"], values["decisions"]
    if trace is not None and not (isinstance(trace, Mapping) and isinstance(trace.get("steps"), list)):
        raise ValueError("the trace has no list of steps")
    if decisions is not None and not (
        isinstance(decisions, list) and all(isinstance(d, Mapping) for d in decisions)
    ):
        raise ValueError("decisions are a list of tables")
    if trace is not None and not trusted:
        check_steps(trace["steps"], TRUSTING)
    return Record(**{**values, "seconds": seconds, "trusted": trusted})


TRUSTING = "read it in Python with trusted=True: Database(…, trusted=True), History(…, trusted=True)"


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def uid_of(data: Any) -> str:
    """The name of a record in a line of a file, for messages."""
    record = data.get("record", data) if isinstance(data, Mapping) else {}
    return str(record.get("uid", "without a name")) if isinstance(record, Mapping) else "without a name"


def checked_workload(data: Any) -> tuple[str, str, str, str, str]:
    """The row of a program in a line of a file."""
    key, title, program, constants, sizes = map(str, data)
    return key, title, program, constants, sizes


def read_task(where: str, row: Sequence[Any], target: Any, trusted: bool = False) -> Task:
    """The task of a program in a file (program, constants, sizes); it may only compute, unless it is `trusted`."""
    try:
        program, constants, sizes = (str(text) for text in row)
        mod = load_json(program)
        if not trusted:
            check_program(mod, "read the file in Python with Database(…, trusted=True)")
        names, known = read_json(constants, "its constants"), read_json(sizes, "its sizes")
        if not isinstance(names, list) or not all(isinstance(n, str) for n in names):
            raise ValueError("its constants are not a list of names")
        if not isinstance(known, dict) or not all(type(n) is int for n in known.values()):
            raise ValueError("its sizes are not a table of numbers")
        return Task(mod, Target(target), tuple(names), sizes=known)
    except (TVMError, ValueError, TypeError) as error:
        raise RecordError(f"{where}: its program cannot be used: {error}") from None


def workload_row(task: Task) -> tuple[str, str, str, str, str]:
    """The row of a task's program."""
    return (
        task.workload,
        task.name,
        save_json(task.mod),
        json.dumps(list(task.constants)),
        json.dumps(dict(task.sizes)),
    )
