"""The work of `tilewright tune` and `tilewright db train`."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .command_line import INTERRUPTED, TERMINATED, Desk, Terminated

if TYPE_CHECKING:
    from ..tune.records.database import Database
    from .app import DbTrain, Tune
    from .tuning import Found, Outcome

_NAMES = ("auto", "trees", "analytical", "random")


def tune_command(desk: Desk, settings: Tune) -> None:
    """Import a model, extract its tasks, tune them, and report."""
    model, prior = settings.model, settings.prior or ()
    if model is None:
        return _train_instead(desk, settings)
    from ..relay.build_module import as_target
    from ..tune.records.files import open_records
    from . import load
    from .autotuner import estimated_latency, is_heavy, left_tasks, with_hardware
    from .compiler import target_of
    from .shape_parser import parse_shape_string
    from .tuning import chosen_tasks, database_for, kept_records, tunable

    # Wrong options are reported before the work begins.
    given = parse_shape_string(settings.shapes) if settings.shapes else None
    abroad = _tracker(settings)
    chosen, extra = target_of(settings.target)
    target = with_hardware(chosen if extra else settings.target, settings.hardware())
    tunable(target, settings.cluster or abroad)
    _check_model(settings.cost_model)
    listing = settings.tasks.strip() == "list"
    if not listing:
        for source in prior:
            open_records(source).close()
        database_for(settings.database).close()
    desk.note(f"importing {model}")
    loaded = load(model, settings.model_format or None, given)
    found = left_tasks(loaded, as_target(target), settings.opt_level, settings.transforms(), extra)
    if not settings.include_simple_tasks:
        found = [f for f in found if is_heavy(f)] or found
    if listing:
        return _list(desk, loaded.name, found)
    found = chosen_tasks(settings.tasks, found)
    with _ended_as_interrupted() as ended, kept_records(settings.database, prior) as database:
        outcome = _tune(desk, loaded.name, found, database, settings, str(target))
    named = settings.target if extra else str(target)
    again = f"--target {named!r} " if named != "llvm" else ""
    use = f"tilewright compile {model} {again}--tuning-records {settings.database}"
    latency = [estimated_latency(outcome)] if settings.log_estimated_latency else []
    desk.result(outcome.plain(), "\n".join([*_account(outcome), *latency, f"compile with them: {use}"]))
    if outcome.interrupted:
        desk.note(
            f"interrupted: {settings.database} keeps what was measured; the same command with --resume goes on"
        )
        raise SystemExit(TERMINATED if ended else INTERRUPTED)


def _tracker(settings: Tune) -> Any:
    """The tracker of --rpc-tracker and --rpc-key; None without them."""
    from .autotuner import tracker_of
    from .tracker import tracker_host_port_from_cli

    host, port = tracker_host_port_from_cli(settings.tracker)
    return tracker_of(host, port or 0, settings.key or None)


@contextmanager
def _ended_as_interrupted() -> Iterator[list[int]]:
    """Treat SIGTERM, which batch systems send, as an interrupt: processes end, and the records are kept. The list gets
    the signal."""
    ended: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield ended  # only the main thread handles signals
        return

    def interrupt(number: int, _: object) -> None:
        ended.append(number)
        raise Terminated

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield ended
    finally:
        signal.signal(signal.SIGTERM, before)


def _tune(desk: Desk, name: str, found: Found, database: Database, settings: Tune, target: str) -> Outcome:
    from ..relay.build_module import as_target
    from ..tune.measure.machines import fingerprint, machine_of
    from ..tune.measure.measurer import MeasureOptions
    from ..tune.search.search import SearchOptions
    from .autotuner import measurer_for, model_of, patient, timing_of
    from .tune_display import ModelDisplay
    from .tuning import measured_before, tune_all

    model = model_of(settings.tuner) if settings.tuner else settings.cost_model
    options = SearchOptions(seed=settings.seed, model=model, min_gain=settings.min_gain, limit=settings.limit)
    options = patient(options, settings.early_stopping or None)
    measure = MeasureOptions(
        builders=settings.parallel or None,
        run_limit=settings.timeout,
        timing=timing_of(settings.repeat or None, settings.min_repeat_ms),
        seed=settings.seed,
        reproducers=f"{database.path}.wrong",
    )
    with measurer_for(measure, _tracker(settings) or settings.cluster or None, as_target(target)) as measurer:
        before = measured_before(database, found, fingerprint(machine_of(measurer, target)))
        count = f"{len(found)} task{'s' * (len(found) != 1)}"
        desk.note(f"tuning {count} of {name} for {target} into {settings.database}")
        if told := _what_is_there(before, len(database), settings):
            desk.note(told)
        if settings.trials < len(found):
            desk.note(
                f"{settings.trials} trials do not suffice for all tasks: those with the most arithmetic get them"
            )
        with ModelDisplay(found, quiet=desk.quiet) as display:
            return tune_all(
                name,
                found,
                database,
                settings.trials,
                resume=settings.resume,
                options=options,
                measure=measurer,
                told=display,
            )


def _what_is_there(before: int, every: int, settings: Tune) -> str:
    """A note on existing measurements, of these tasks and in total."""
    if not before:
        others = f": the {every} records of {settings.database} are of other tasks, targets or machines"
        return f"there is nothing to resume yet{others if every else ''}" if settings.resume else ""
    here = f"{settings.database} has {before} measurements of them, which are kept and learned from"
    if not settings.resume:
        return f"{here}; {settings.trials} more are made (--resume: {settings.trials} with those)"
    left = max(0, settings.trials - before)
    return f"{here}; up to {left} more are made" if left else f"{here}; that is all that was asked for"


def _check_model(name: str) -> None:
    from .errors import TVMCException

    if name in _NAMES:
        return
    if not name.endswith((".json", ".ubj")):
        raise TVMCException(
            f"--model {name}: a cost model is one of {', '.join(_NAMES)}, or a file (.json, .ubj) that "
            "`tilewright db train` wrote"
        )
    if not Path(name).is_file():
        raise TVMCException(
            f"--model {name}: there is no such file; `tilewright db train tune.db -o {name}` makes it"
        )


# -- what is printed ------------------------------------------------------------------------------
def _list(desk: Desk, name: str, found: Found) -> None:
    """List the tasks, with their numbers for `--tasks`."""
    from ..tune.search.search import flop_of

    data: list[dict[str, Any]] = [
        {
            "number": i,
            "name": t.name,
            "nodes": list(t.nodes),
            "names": list(t.names),
            "shapes": t.shapes,
            "workload": t.workload,
            "weight": w,
            "flop": flop_of(t),
        }
        for i, (t, w) in enumerate(found)
    ]
    widest = max((len(t.title) for t, _ in found), default=0)
    lines = [f"{name}: {len(found)} tasks"]
    lines += [
        f"{i:4d}  {t.title:{widest}}  {w} x {flop_of(t) / 1e6:.2f} MFLOP  {t.workload[:12]}  {t.shapes}"
        for i, (t, w) in enumerate(found)
    ]
    desk.result({"model": name, "tasks": data}, "\n".join(lines))


def _account(outcome: Outcome) -> list[str]:
    """The result as text, with the slowest tasks first."""
    from ..tune.search.display import time_text

    before, after, some = outcome.time(False), outcome.time(True), len(outcome.measured_tasks)
    head = f"{outcome.model}: {outcome.measured} measured in {outcome.seconds:.1f} s"
    if some:
        what = "its kernels" if some == len(outcome.tasks) else f"{some} of its {len(outcome.tasks)} kernels"
        head += f"; {what} take {time_text(after)}, untuned {time_text(before)}: {before / after:.2f} times as fast"
    lines = [head]
    widest = max(len(t.title) for t in outcome.tasks)
    for t in sorted(outcome.tasks, key=lambda t: -t.weight * t.best if math.isfinite(t.best) else 1.0):
        speed = "nothing measured"
        if math.isfinite(t.best):
            speed = (
                f"{time_text(t.best):>9}  {t.flop / t.best / 1e9:7.1f} GFLOP/s  {t.speedup:5.2f} x untuned"
            )
        failed = ", ".join(f"{status} {n}" for status, n in sorted(t.failures.items()))
        why = t.error.splitlines()[0] if t.error else failed
        lines.append(f"  {t.title:{widest}}  {t.weight:3d} x {speed}  {t.trials} trials  {why}".rstrip())
    return lines


# -- training -------------------------------------------------------------------------------------
def _train_instead(desk: Desk, settings: Tune) -> None:
    """Without a model to tune, `--model FILE` is the cost model to train."""
    from .errors import TVMCException

    if not settings.cost_model.endswith((".json", ".ubj")):
        raise TVMCException(
            "give the model to tune: tilewright tune net.onnx --db tune.db; or the file for a cost model to train from "
            "the database: tilewright tune --model model.json --db tune.db"
        )
    _train(desk, settings.database, Path(settings.cost_model))


def train_command(desk: Desk, given: DbTrain) -> None:
    """Train a cost model on the records of a file."""
    _train(desk, given.path, given.output)


def _train(desk: Desk, path: Path, output: Path) -> None:
    from ..tune.records.files import open_records
    from ..tune.search.pretrain import samples_of, train_model
    from .compiler import check_path
    from .errors import TVMCException

    if output.suffix not in (".json", ".ubj"):
        raise TVMCException(f"{output}: a cost model is a file named *.json or *.ubj")
    check_path(output)
    with open_records(path) as database:
        train_model(database, output)
        used = samples_of(database)
    count = sum(len(s.seconds) for s in used)
    data: dict[str, Any] = {"model": str(output), "database": str(path), "tasks": len(used), "records": count}
    data["bytes"] = output.stat().st_size
    use = f"tilewright tune net.onnx --model {output}"
    desk.result(data, f"{output}: trained on {count} measurements of {len(used)} tasks; use it: {use}")
