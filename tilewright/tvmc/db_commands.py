"""The work of `tilewright db` and `tilewright replay`: files of records, and single records."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .command_line import FAILED, Desk
from .errors import TVMCException

if TYPE_CHECKING:
    from ..tune.records.database import Database, Record
    from .app import DbBest, DbExport, DbImport, DbMerge, DbPrune, DbShow, Replay


def _existing(path: Path) -> Database:
    """An existing database; a file of lines is refused."""
    from ..tune.records.database import Database
    from ..tune.records.files import is_database

    if not is_database(path):
        raise TVMCException(
            f"{path}: these are lines of JSON, not a database; `tilewright db import NEW.db {path}` makes one of them"
        )
    return Database(path)


# -- files ------------------------------------------------------------------------------------------
def merge_command(desk: Desk, given: DbMerge) -> None:
    """Merge the records of other files into a database."""
    _merge(desk, given.into, given.sources)


def import_command(desk: Desk, given: DbImport) -> None:
    """Merge the records of a file of lines into a database."""
    _merge(desk, given.into, [given.source])


def _merge(desk: Desk, into: Path, sources: Sequence[Path]) -> None:
    from ..tune.records.files import open_records, take_records
    from .tuning import database_for

    for source in sources:
        open_records(source).close()  # a file of another kind is refused before anything is written
    with database_for(into) as database:
        new = {str(s): take_records(database, s) for s in sources}
        total = len(database.records())
    told = [f"{n} new records from {s}" for s, n in new.items()]
    data = {"database": str(into), "new": new, "records": total}
    desk.result(data, f"{into}: {', '.join(told)}; {total} in all")


def export_command(desk: Desk, given: DbExport) -> None:
    """Write all records as lines of JSON."""
    from .compiler import check_path

    output = given.output
    check_path(output)
    with _existing(given.path) as database:
        count = database.export_json(output)
    desk.result({"file": str(output), "records": count}, f"{output}: {count} records of {given.path}", output)


def prune_command(desk: Desk, given: DbPrune) -> None:
    """Keep only the fastest records of each task."""
    path = given.path
    with _existing(path) as database:
        gone = database.prune(given.keep, failed=not given.keep_failed)
        left = len(database.records())
    desk.result(
        {"database": str(path), "gone": gone, "left": left}, f"{path}: {gone} records gone, {left} left"
    )


# -- looking ----------------------------------------------------------------------------------------
def show_command(desk: Desk, given: DbShow) -> None:
    """List the tasks of a file, or the records of one task."""
    from ..tune.records.files import open_records

    path = given.path
    with open_records(path) as database:
        tasks = database.tasks()
        if not tasks:
            raise TVMCException(
                f"{path}: it holds no record yet; `tilewright tune MODEL --db {path}` fills it"
            )
        if given.task:
            return _show_records(desk, database, _of_task(path, tasks, given.task), given.limit)
        machines = database.machines()
        text = "\n".join([database.show(), *_machines(machines)])
    data = {"database": str(path), "tasks": [_plain(t) for t in tasks], "machines": machines}
    desk.result(data, text)


def _plain(line: dict[str, Any]) -> dict[str, Any]:
    return {k: (None if v == math.inf else v) for k, v in line.items()}


def _machines(machines: Any) -> list[str]:
    from ..tune.measure.machines import fingerprint

    out = []
    for name, m in machines.items():
        gpu = m.get("gpu")
        what = f"{gpu} ({m['kind']})" if gpu else f"{m.get('cpu')}, {m.get('cores')} cores"
        here = fingerprint(target=m.get("kind"))
        out.append(f"machine {name}: {what}{' (this one)' if name == here else ''}")
    return out


def _of_task(path: Path, tasks: Sequence[dict[str, Any]], wanted: str) -> list[dict[str, Any]]:
    """The entries of a task, by its name, one of its names in a model, or the beginning of its key."""
    found = [t for t in tasks if _is_called(t, wanted)]
    if not found:
        known = ", ".join(sorted({t["name"] for t in tasks})[:8])
        raise TVMCException(f"{path}: there is no task {wanted!r}; there are: {known}")
    return found


def _is_called(line: dict[str, Any], name: str) -> bool:
    return name in (line["name"], *line["names"]) or bool(name and line["workload"].startswith(name))


def _show_records(desk: Desk, database: Database, lines: Sequence[dict[str, Any]], limit: int) -> None:
    records: list[Record] = []
    for line in lines:
        records += database.records(line["workload"], line["target"], line["machine"])
    records.sort(key=lambda r: r.time)
    rows: list[tuple[str, ...]] = [
        ("record", "time", "noise", "origin", "status", "decisions, or what was said")
    ]
    rows += [_row(r) for r in records[: limit or None]]
    widths = [max(len(r[i]) for r in rows) for i in range(5)]
    text = [
        "  ".join([*(c.ljust(w) for c, w in zip(r[:5], widths, strict=True)), r[5]]).rstrip() for r in rows
    ]
    if limit and len(records) > limit:
        text.append(f"and {len(records) - limit} others (--limit 0: all)")
    desk.result({"records": [_data(r) for r in records[: limit or None]]}, "\n".join(text))


def _row(r: Record) -> tuple[str, ...]:
    what = r.error.splitlines()[0] if r.error else ""
    if r.ok:
        what = "; ".join(_decided(d) for d in r.decisions) if r.decisions else "the zero-trial schedule"
    time = f"{r.time * 1e6:.2f} us" if r.ok else "-"
    return (r.uid[:12], time, f"{100 * r.noise:.0f}%", r.origin, r.status, what)


def _decided(decision: dict[str, Any]) -> str:
    return " ".join(f"{k}={v}" for k, v in decision.items() if k not in ("stage", "sketch"))


def _data(r: Record) -> dict[str, Any]:
    data = r.plain()
    return {**{k: v for k, v in data.items() if k != "trace"}, "time": r.time if r.ok else None}


def best_command(desk: Desk, given: DbBest) -> None:
    """List the record of each task that a build would apply."""
    from ..tune.measure.machines import fingerprint, record_keys
    from ..tune.records.database import best_of
    from ..tune.records.files import open_records
    from ..tune.search.display import time_text

    def is_here(line: dict[str, Any]) -> bool:
        own = fingerprint(target=line["target"])
        return (line["target"], line["machine"]) in record_keys(line["target"], own)

    path, here = given.path, fingerprint()
    with open_records(path) as database:
        tasks = database.tasks()
        lines = _of_task(path, tasks, given.task) if given.task else tasks
        mine = [t for t in lines if given.every_machine or is_here(t)]
        if not mine:
            others = "; --all shows those of others" if lines else ""
            raise TVMCException(f"{path}: it holds no record of this machine ({here}){others}")
        out, text = [], []
        widest = max(len(t["name"]) for t in mine)
        for t in mine:
            best = best_of(database.records(t["workload"], t["target"], t["machine"]))
            if best is None:
                text.append(f"{t['name']:{widest}}  none of {t['records']} could be measured")
                continue
            out.append({**_data(best), "name": t["name"]})
            where = "" if is_here(t) else f"  on {t['machine']}"
            text.append(
                f"{t['name']:{widest}}  {time_text(best.time):>9}  {best.uid[:12]}  {best.origin}  {t['target']}{where}"
            )
    desk.result({"database": str(path), "best": out}, "\n".join(text))


# -- replay -----------------------------------------------------------------------------------------
def replay_command(desk: Desk, given: Replay) -> None:
    """Rebuild the schedule of a record, check and time it, and compare the time with the recorded one."""
    from ..tune.measure.machines import describe_machine, differences, fingerprint
    from ..tune.measure.measurer import MeasureInput, MeasureOptions, Measurer
    from ..tune.search.display import time_text
    from ..tune.search.search import apply_record

    path = given.path
    text = sys.stdin.read() if given.wanted == "-" else given.wanted
    database, record = _given(text, path) if text.lstrip().startswith("{") else _named(text, path)
    with database:
        task = database.task(record.workload, record.target)
        made = database.machines().get(record.machine)
    if task.workload != record.workload:
        raise TVMCException(f"{path}: record {record.uid}: its program is not the one that was measured")
    if record.machine != fingerprint(target=record.target):
        how = differences(made, describe_machine(record.target)) if made else "not described"
        desk.note(f"it was measured on another machine: {record.machine} ({how})")
    try:
        sch = apply_record(task, record)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise TVMCException(f"record {record.uid} is damaged: {type(error).__name__}: {error}") from None
    program, steps = sch.mod.script(), str(sch.trace)
    with Measurer(MeasureOptions(builders=1, run_limit=given.timeout, seed=record.seed)) as measurer:
        result = measurer.measure([MeasureInput.of(task, sch.trace.as_json())])[0]
    then = record.time if record.ok else None
    now = result.time if result.ok else None
    data = {
        "record": record.uid,
        "task": task.name,
        "target": record.target,
        "recorded": {"status": record.status, "seconds": then, "error": record.error},
        "now": {"status": str(result.status), "seconds": now, "error": result.error},
        "trace": sch.trace.as_json(),
        "script": program,
    }
    told = [f"record {record.uid} of {task.name} for {record.target} ({record.origin}, seed {record.seed})"]
    told.append(f"  then  {time_text(then) if then else f'{record.status}: {record.error}'}")
    right = f"{time_text(now)}, and the result is right" if now else f"{result.status}: {result.error}"
    told.append(f"  now   {right}")
    if then and now:
        told.append(f"  now takes {now / then:.2f} times as long as then")
    told += ["", steps] + (["", program] if given.script else [])
    desk.result(data, "\n".join(told))
    if not result.ok:
        raise SystemExit(FAILED)


def _given(line: str, path: Path) -> tuple[Database, Record]:
    """The record of a line of JSON, whose program is in the line or in a file."""
    from ..tune.records.database import Database
    from ..tune.records.files import open_records, read_record

    record, row = read_record(line)
    if row is None:
        return open_records(path), record
    held = Database(":memory:")
    held.take([row], {}, [record])
    return held, record


def _named(name: str, path: Path) -> tuple[Database, Record]:
    """A record by the beginning of its id, or the best record of a task by the name of the task."""
    from ..tune.records.database import best_of
    from ..tune.records.files import open_records

    database = open_records(path)
    records = database.records()
    found = [r for r in records if r.uid.startswith(name)]
    if not found:
        lines = {t["workload"]: t for t in database.tasks() if _is_called(t, name)}
        if len(lines) > 1:
            some = "\n".join(
                f"  {key[:12]}  {t['name']}  {', '.join(t['nodes'])}".rstrip() for key, t in lines.items()
            )
            raise TVMCException(
                f"{path}: {len(lines)} tasks are named {name!r}; give the node or the key of one:\n{some}"
            )
        best = best_of([r for r in records if r.workload in lines])
        found = [] if best is None else [best]
    if not found:
        raise TVMCException(
            f"{path}: there is no record {name!r}, and no record of a task or node of that name; "
            f"`tilewright db show {path}` lists the tasks, and with `--task NAME` the ids of their records"
        )
    if len(found) > 1:
        some = ", ".join(r.uid[:12] for r in found[:4])
        raise TVMCException(f"{path}: {len(found)} records begin with {name!r}: {some}; give more of it")
    return database, found[0]
