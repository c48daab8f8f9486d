"""Files of records other than databases: lines of JSON."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...ir.serialize import read_json
from ...tir.schedule.from_files import UntrustedStep
from ..errors import RecordError
from .database import FORMAT, Database, Record, checked_record, checked_workload, uid_of

_SQLITE = b"SQLite format 3\0"


@dataclass
class Lines:
    """The contents of a file: records, programs (as the rows of a database) and machines."""

    records: list[Record] = field(default_factory=list)
    workloads: list[tuple[str, str, str, str, str]] = field(default_factory=list)
    machines: Mapping[str, Any] = field(default_factory=dict)


def is_database(path: str | os.PathLike[str]) -> bool:
    """Whether an existing file is a database; otherwise it is lines of JSON. Other files are refused."""
    name = os.fspath(path)
    if Path(path).is_dir():
        raise RecordError(f"{name} is a folder, not a file of records")
    try:
        with open(path, "rb") as file:
            head = file.read(len(_SQLITE))
    except FileNotFoundError:
        raise RecordError(
            f"{name}: there is no such file; `tilewright tune MODEL --db {name}` makes one"
        ) from None
    except OSError as error:
        raise RecordError(f"{name}: the records cannot be read: {error.strerror or error}") from None
    if head == _SQLITE:
        return True
    if not head:
        raise RecordError(f"{name}: the file is empty: nothing was tuned into it")
    if head.lstrip()[:1] not in (b"{", b"#"):  # lines may begin with a comment
        raise RecordError(
            f"{name}: this is neither a database of tuning records nor lines of JSON; `tilewright tune` makes the one, "
            "`tilewright db export` the other"
        )
    return False


def read_lines(
    path: str | os.PathLike[str], trusted: bool = False, other: Callable[[str], bool] | None = None
) -> Lines:
    """Read records, one on each line. A truncated last line, of a process that was killed, is left out.

    `trusted` allows steps that no search writes, as for `Database`. `other` may take lines of another form: it says
    whether it has.
    """
    name, out = os.fspath(path), Lines()
    machines: dict[str, Any] = {}
    out.machines = machines
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{name}: the records cannot be read: {error}") from None
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        data: Any = None
        try:
            if other is not None and other(line):
                continue
            data = read_json(line, "the line", ValueError)
            _take(data, out, machines, trusted)
        except UntrustedStep as error:
            raise RecordError(f"{name}, line {number}, record {uid_of(data)}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if data is None and number == len(lines) and number > 1:  # a truncated last line
                warnings.warn(
                    f"{name}, line {number}: the line was cut off while it was written; what is before it is read",
                    RuntimeWarning,
                    stacklevel=3,
                )
                break
            raise RecordError(f"{name}, line {number}: this is not a tuning record: {error}") from None
    return out


def read_record(line: str) -> tuple[Record, tuple[str, str, str, str, str] | None]:
    """The record of one line, and the row of its program if the line contains it."""
    data: Any = None
    try:
        data = read_json(line, "the line", ValueError)
        if not isinstance(data, Mapping):
            raise ValueError("a line is an object of JSON")
        record = checked_record(data.get("record", data))
        row = checked_workload(data["workload"]) if isinstance(data.get("workload"), list) else None
    except UntrustedStep as error:
        raise RecordError(f"record {uid_of(data)}: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise RecordError(f"this is not a line of a tuning record: {error}") from None
    return record, row


def open_records(path: str | os.PathLike[str], trusted: bool = False) -> Database:
    """Open an existing file of records to read it: a database, or lines of JSON as a database in memory."""
    if is_database(path):
        return Database(path, trusted)
    held = Database(":memory:", trusted)
    take_records(held, path)
    held.path = os.fspath(path)
    return held


def take_records(database: Database, path: str | os.PathLike[str]) -> int:
    """Add the records of a file, a database or lines of JSON. Returns how many were new."""
    if is_database(path):
        return database.merge(path)
    lines = read_lines(path, database.trusted)
    return database.take(lines.workloads, lines.machines, lines.records)


def _take(data: Any, out: Lines, machines: dict[str, Any], trusted: bool) -> None:
    if not isinstance(data, Mapping):
        raise ValueError("a line is an object of JSON")
    if "input" in data and "config" in data:
        raise ValueError("it is one of autotvm's logs: `with autotvm.apply_history_best(file):` applies it")
    if "i" in data and "r" in data:
        raise ValueError(
            "it is one of the logs of TVM's auto_scheduler: auto_scheduler.load_records and SearchTask.apply_best read "
            "it, for programs that are registered with @auto_scheduler.register_workload"
        )
    known = False
    if "format" in data:
        if data["format"] != FORMAT:
            raise ValueError(f"the format is {data['format']!r}, and this tilewright knows {FORMAT!r}")
        known = True
    if "machine" in data and "description" in data:
        machines[str(data["machine"])] = data["description"]
        known = True
    if "workload" in data:
        out.workloads.append(checked_workload(data["workload"]))
        known = True
    if "record" in data:
        out.records.append(checked_record(data["record"], trusted))
        known = True
    if not known:
        raise ValueError("it names no record")
