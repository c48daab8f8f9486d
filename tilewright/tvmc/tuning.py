"""Tuning of whole models, for `tvmc.tune` and `tilewright tune`.

model ──▶ tasks (relay.backend.tasks) ──▶ tune.search.allocate ──▶ records in a database ──▶ Outcome
"""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..backends import kinds_with
from ..codegen.llvm.engine import Machine
from ..ir.transform import PassContext
from ..model.building import wants_machine
from ..relay.backend.tasks import extract
from ..relay.build_module import as_target
from ..relay.transform.infer_type import infer_module
from ..target import Target
from ..tune.errors import TuneError, causes_table
from ..tune.measure.machines import fingerprint, machine_of
from ..tune.measure.measurer import MeasureOptions, Measurer, Measures, not_here
from ..tune.records.database import Database, Record
from ..tune.records.files import is_database, take_records
from ..tune.search.allocate import Allocation, tune_tasks
from ..tune.search.search import Progress, SearchOptions, flop_of
from ..tune.workload import Task
from .errors import TVMCException
from .model import TVMCModel
from .transform import apply_graph_transforms

_LINES = (".json", ".jsonl", ".log", ".txt")  # suffixes of files of JSON lines
Found = list[tuple[Task, int]]
Told = Callable[[Sequence[Allocation], Progress], None]


def tunable(target: Any, cluster: object = None) -> Target:
    """The target to tune a model for; a target that cannot be measured is refused."""
    chosen = as_target(target)
    if chosen.is_gpu and not chosen.has("measurable"):
        able = " and ".join(kinds_with(lambda b: b.family == "gpu" and b.measurable))
        raise TVMCException(f"code for `{chosen}` cannot be measured: the GPU targets that can are {able}")
    why = None if cluster else not_here(chosen)
    if why is not None:
        raise TVMCException(
            f"code for `{chosen}` does not run on this machine{why}, so it cannot be measured here; tune there, or on "
            "other machines: --rpc-tracker HOST:PORT --rpc-key KEY, or --cluster tcp://host:8786"
        )
    if chosen.is_cpu:
        settings = chosen.llvm
        # Raises an error if LLVM does not know the CPU or a feature.
        Machine(settings.triple, settings.cpu, settings.features)
    return chosen


def model_tasks(
    model: TVMCModel,
    target: Any,
    opt_level: int = 3,
    disabled_pass: Sequence[str] = (),
    transforms: Mapping[str, Any] | None = None,
    use_vm: bool = False,
) -> Found:
    """The tasks that `tvmc.compile` looks up with the same options, with the number of calls of each.

    Those with the most arithmetic come first, as they get the trials if there are few.
    """
    chosen = as_target(target)
    with PassContext(opt_level, disabled_pass=list(disabled_pass)):
        if any((transforms or {}).values()):
            model = TVMCModel(
                apply_graph_transforms(infer_module(model.mod), transforms), model.params, model.name
            )
        machine = use_vm or wants_machine(model.mod, chosen, model.params)
        found = extract(model.mod, model.params, chosen, opt_level, vm=machine)
    return sorted(found, key=lambda f: -f[1] * flop_of(f[0]))


def chosen_tasks(wanted: str, found: Found) -> Found:
    """The tasks that are selected by number ("0,3-5"), by a part of the name or of a node's name ("conv2d,layer1"), by
    the name of a step in a profile, by the beginning of a key, or "all"."""
    if wanted.strip() in ("", "all"):
        return found
    picked: set[int] = set()
    for part in (p.strip() for p in wanted.split(",")):
        numbers = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if numbers:
            first, last = int(numbers[1]), int(numbers[2] or numbers[1])
            mine = [i for i in range(first, last + 1) if i < len(found)]
        else:
            # A step of a profile or a node is one task; as a part of a name it may be many.
            mine = [i for i, (task, _) in enumerate(found) if part != task.name and task.is_called(part)]
            mine = mine or [
                i for i, (t, _) in enumerate(found) if part and any(part in n for n in (t.name, *t.names))
            ]
        if not mine:
            raise TVMCException(
                f"--tasks {wanted}: {part!r} selects none of the {len(found)} tasks; `--tasks list` shows them"
            )
        picked |= set(mine)
    return [found[i] for i in sorted(picked)]


def measured_before(database: Database, found: Found, machine: str) -> int:
    """The number of candidates of all tasks that were measured on a machine before."""
    return sum(database.measured(task, machine) for task, _ in found)


# ---------------------------------------------------------------------------- results
@dataclass
class TaskAccount:
    """The result of a task. Times are in seconds, and infinite if nothing could be measured."""

    name: str
    workload: str
    weight: int
    trials: int = 0
    best: float = math.inf
    untuned: float = math.inf
    flop: int = 0
    record: str = ""
    failures: dict[str, int] = field(default_factory=dict)
    error: str = ""
    nodes: tuple[str, ...] = ()
    shapes: str = ""
    title: str = ""

    @property
    def speedup(self) -> float:
        return self.untuned / self.best if math.isfinite(self.best) and math.isfinite(self.untuned) else 1.0

    def plain(self) -> dict[str, Any]:
        """The result as JSON, with None for infinity."""
        data = {k: (None if v == math.inf else v) for k, v in asdict(self).items()}
        data["gflops"] = self.flop / self.best / 1e9 if math.isfinite(self.best) else None
        data["speedup"] = self.speedup
        return data


@dataclass
class Outcome:
    """The result of a search, and the file of its records."""

    model: str
    target: str
    database: str
    tasks: list[TaskAccount]
    measured: int  # in this search
    seconds: float
    causes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def measured_tasks(self) -> list[TaskAccount]:
        """The tasks with at least one measurement."""
        return [t for t in self.tasks if math.isfinite(t.best) and math.isfinite(t.untuned)]

    def time(self, tuned: bool) -> float:
        """The total time of the measured kernels, by the number of their calls."""
        return sum(t.weight * (t.best if tuned else t.untuned) for t in self.measured_tasks)

    @property
    def nothing(self) -> bool:
        """Whether no candidate of any task could be measured, now or before."""
        return all(not math.isfinite(t.best) for t in self.tasks)

    def plain(self) -> dict[str, Any]:
        """The result as JSON."""
        whole = len(self.measured_tasks) == len(self.tasks)
        return {
            "model": self.model,
            "target": self.target,
            "database": self.database,
            "measured": self.measured,
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "untuned_seconds": self.time(False) if whole else None,
            "tuned_seconds": self.time(True) if whole else None,
            "failures": [{"status": s, "cause": c, "count": n} for (s, c), n in self.causes.items()],
            "tasks": [t.plain() for t in self.tasks],
        }


def _account(
    task: Task, weight: int, share: Allocation | None, database: Database, machine: str
) -> TaskAccount:
    out = TaskAccount(task.name, task.workload, weight, flop=flop_of(task))
    out.nodes, out.shapes, out.title = task.nodes, task.shapes, task.title
    record = database.best(task, machine)
    if record is not None:
        out.best, out.record = record.time, record.uid
        out.untuned = _untuned(record, share)
    if share is not None:
        out.trials = len(share.tuner.trials)
        out.failures = {s: n for s, n in share.tuner.statuses.items() if s != "ok"}
        out.error = share.error
    return out


def _untuned(record: Record, share: Allocation | None) -> float:
    """The time of the zero-trial schedule that compares best with the time of a record."""
    if record.origin == "winner":
        if record.decisions is None:
            return record.time
        if record.ratio:
            return record.time / record.ratio
    return share.tuner.zero if share is not None else math.inf


# ---------------------------------------------------------------------------- the search
def tune_all(
    name: str,
    found: Found,
    database: Database,
    trials: int,
    *,
    resume: bool = True,
    options: SearchOptions | None = None,
    measure: MeasureOptions | Measures | None = None,
    told: Told | None = None,
) -> Outcome:
    """Tune the tasks of a model with `trials` measurements; with `resume`, those in the database are part of them.

    `told` is called after each round. An interrupt ends the search, as the outcome says, and the records are kept. If
    nothing could be measured, `TuneError` is raised, with the causes and their counts.
    """
    if not found:
        raise TuneError(f"tuning {name}: there is nothing to tune in it")
    began, shares = time.monotonic(), dict[str, Allocation]()
    with ExitStack() as stack:
        if measure is None or isinstance(measure, MeasureOptions):
            measure = stack.enter_context(Measurer(measure))
        machine = fingerprint(machine_of(measure, found[0][0].target))
        before = measured_before(database, found, machine)
        wanted = trials if resume else trials + before
        try:
            interrupted = _search(found, database, wanted, options, measure, told, shares)
        except TuneError as error:
            raise TuneError(_nothing(name, shares, str(error))) from None
    accounts = [_account(t, w, shares.get(t.workload), database, machine) for t, w in found]
    outcome = Outcome(
        name,
        str(found[0][0].target),
        database.path,
        accounts,
        measured_before(database, found, machine) - before,
        time.monotonic() - began,
        _causes(shares),
        interrupted,
    )
    if outcome.nothing and not interrupted:
        raise TuneError(_nothing(name, shares, "; ".join(a.error for a in accounts if a.error)))
    return outcome


def _search(
    found: Found,
    database: Database,
    trials: int,
    options: SearchOptions | None,
    measure: Measures,
    told: Told | None,
    shares: dict[str, Allocation],
) -> bool:
    """Search, and put the allocations of tasks into `shares` as they are known. Returns whether it was interrupted."""

    def each(all_of_them: Sequence[Allocation], progress: Progress) -> None:
        shares.update((share.tuner.task.workload, share) for share in all_of_them)
        if told is not None:
            told(all_of_them, progress)

    try:
        made = tune_tasks(
            [task for task, _ in found],
            trials,
            database,
            [float(weight) for _, weight in found],
            options=options,
            measure=measure,
            callback=each,
        )
    except KeyboardInterrupt:
        return True
    shares.update((share.tuner.task.workload, share) for share in made)
    return False


def _causes(shares: Mapping[str, Allocation]) -> Counter[tuple[str, str]]:
    out: Counter[tuple[str, str]] = Counter()
    for share in shares.values():
        out.update(share.tuner.causes)
        if share.error and not share.tuner.causes:
            out["not begun", share.error.splitlines()[0]] += 1
    return out


def _nothing(name: str, shares: Mapping[str, Allocation], said: str) -> str:
    """The text of an error if nothing could be measured, with the causes."""
    causes = _causes(shares)
    if not causes:
        return said
    tried = sum(len(s.tuner.trials) for s in shares.values())
    head = f"tuning {name}: none of {tried} candidates of {len(shares)} tasks could be measured"
    return f"{head}\n{causes_table(causes)}"


def database_for(path: str | Path) -> Database:
    """The database for the records of a search: an existing or a new file; for a file of lines, the one beside it."""
    place = Path(path)
    if place.suffix in _LINES:
        place = Path(f"{place}.db")
    if place.is_dir():
        raise TVMCException(
            f"{place}: is a folder; give the name of a file in it, such as {place / 'tune.db'}"
        )
    if not place.parent.is_dir():
        raise TVMCException(f"{place}: there is no folder {place.parent}; make it first")
    if place.is_file() and place.stat().st_size and not is_database(place):
        raise TVMCException(
            f"{place}: these are lines of JSON, not a database; `tilewright db import tune.db {place}` makes one"
        )
    made = Database(place)
    if made.readonly:
        made.close()
        raise TVMCException(
            f"{place}: the file or its folder is not writable; copy it to a writable folder, or give another file, and "
            "these records as --prior-records"
        )
    return made


@contextmanager
def kept_records(path: str | Path, prior: Sequence[Any] = ()) -> Iterator[Database]:
    """The database for the records of a search, with the records of `prior` files added.

    A file of lines (`log.json`) has a database beside it, so that nothing is lost if the search is killed, and is
    written at the end of the search.
    """
    place = Path(path)
    lines = place.suffix in _LINES
    with database_for(place) as database:
        if lines and place.is_file() and place.stat().st_size:
            take_records(database, place)
        for other in prior:
            take_records(database, other)
        try:
            yield database
        finally:
            if lines:
                database.export_json(place)
