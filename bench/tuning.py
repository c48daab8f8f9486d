"""Tuning: how fast trials are, how soon they help, and what they bring.

    python bench/tuning.py                                   all parts but the long ones (tvm, models)
    python bench/tuning.py --only throughput,scoring         some parts
    python bench/tuning.py --only curves --tables t.db       trials to quality, by cost model; the plot for the docs
    python bench/tuning.py --only quality --threads 1,2      64 trials on the workloads of cpu_kernels.py, and its peers
    python bench/tuning.py --only tvm --tvm-python P         MetaSchedule of apache-tvm beside, with as many trials
    python bench/tuning.py --only models                     ResNet-50 and MobileNetV2, 1,000 trials
    python bench/tuning.py --quick --json out.json --md out.md

throughput   measured trials in a second, each of them built, checked against the reference and timed; and the share of
             the time in which the search itself works
scoring      candidates that the search scores in a second on one core: features and prediction
curves       see tuning_curves.py
quality      the tuned schedule, the zero-trial one and the peers in turns, as in cpu_kernels.py
tvm, models  as above; long

Records go to a database (--records), so that what was tuned is not tuned again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import tuning_curves
from cpu_kernels import Bench, Row, machine_text, mean, roofs_of, time_text, versions, write_data
from rich.console import Console
from tuning_workers import SAME, share
from workers import Worker
from workloads import ALL, LISTED, Workload

from tilewright.target import CpuMachine, measure
from tilewright.tune.measure.measurer import Duel, MeasureInput, Measurer, MeasureResult
from tilewright.tune.records.database import Database
from tilewright.tune.search.cost_models import cost_model
from tilewright.tune.search.search import SearchOptions, Tuner, tune_task
from tilewright.tune.space import Sketches

PARTS = ("throughput", "scoring", "curves", "quality", "tvm", "models")
LONG = ("tvm", "models")
THROUGHPUT = {
    "matmul 1024 cubed": 8.0,
    "conv 1x1 512->128@28": 5.0,
    "conv 3x3 128@28": 5.0,
}  # trials in a second that are wanted
SCORED = 50_000  # candidates in a second
PEERS = ("numpy", "torch", "onnxruntime")
# Patience beyond the number of trials: a search that ends by itself would measure fewer than its peers.
STUBBORN = SearchOptions(patience=10_000)


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Clocked:
    """A measurer with the time that is spent in it."""

    def __init__(self, inner: Measurer) -> None:
        self.inner, self.seconds, self.trials = inner, 0.0, 0

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None = None, each: Any = None
    ) -> list[MeasureResult]:
        start = time.perf_counter()
        try:
            return self.inner.measure(inputs, incumbent, each)
        finally:
            self.seconds += time.perf_counter() - start
            self.trials += len(inputs)

    def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Duel:
        start = time.perf_counter()
        try:
            return self.inner.duel(first, second, rounds)
        finally:
            self.seconds += time.perf_counter() - start

    def close(self) -> None:
        self.inner.close()


# -- throughput ---------------------------------------------------------------------------------
def throughput(options: argparse.Namespace) -> dict[str, Any]:
    """Trials in a second of a whole search, from an empty database to the winner, on all cores."""
    rows = []
    for name, wanted in THROUGHPUT.items():
        task = tuning_curves.task_named(name, os.cpu_count() or 1)
        with Measurer() as inner, Database(":memory:") as database:
            clocked = Clocked(inner)
            start = time.perf_counter()
            inner.expect(task)
            tuner = Tuner(task, clocked, database, STUBBORN)
            while len(tuner.trials) < options.trials and tuner.step(options.trials - len(tuner.trials)):
                pass
            searched = time.perf_counter() - start
            tuner.finish()
            whole = time.perf_counter() - start
        row = {
            "workload": name,
            "trials": len(tuner.trials),
            "seconds": whole,
            "rate": len(tuner.trials) / whole,
            "rate of steps": len(tuner.trials) / searched,
            "wanted": wanted,
            "overhead": 1 - clocked.seconds / whole,
            "statuses": dict(tuner.statuses),
            "zero": tuner.zero,
            "best": tuner.best[1] if tuner.best is not None else math.nan,
        }
        rows.append(row)
        note(f"{name}: {row['rate']:.1f} trials/s, {row['overhead']:.1%} of the time is search")
    heads = [
        "workload",
        "trials",
        "seconds",
        "trials/s",
        "wanted",
        "search",
        "zero trials",
        "best",
        "results",
    ]
    cells = [
        [
            r["workload"],
            str(r["trials"]),
            f"{r['seconds']:.1f}",
            f"{r['rate']:.1f}",
            f"{r['wanted']:g}",
            f"{r['overhead']:.1%}",
            time_text(r["zero"]),
            time_text(r["best"]),
            ", ".join(f"{n} {s}" for s, n in r["statuses"].items()),
        ]
        for r in rows
    ]
    return {"rows": rows, "tables": [("Trials in a second, on all cores, outputs checked", heads, cells)]}


# -- scoring ------------------------------------------------------------------------------------
def scoring(options: argparse.Namespace) -> dict[str, Any]:
    """Candidates scored in a second on one core, by each model, after it has learned from a hundred."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cores)})
    rows = []
    try:
        for name in THROUGHPUT:
            task = tuning_curves.task_named(name, 1)
            space = Sketches(task).space
            some = space.sample(np.random.default_rng(0), 20_000)
            for model in tuning_curves.MODELS:
                made = cost_model(model, 0, task.target)
                few = space.features(some[:100])
                made.update(few, np.exp(few[:, 0]) * np.linspace(0.9, 1.3, 100))
                best = math.inf
                for _ in range(3 if options.quick else 7):
                    start = time.perf_counter()
                    made.predict(space.features(some))
                    best = min(best, time.perf_counter() - start)
                rows.append({"workload": name, "model": model, "rate": len(some) / best})
    finally:
        os.sched_setaffinity(0, cores)
    cells = [[r["workload"], tuning_curves.MODELS[r["model"]], f"{r['rate']:,.0f}"] for r in rows]
    title = f"Candidates scored in a second on one core ({SCORED:,} wanted)"
    return {"rows": rows, "tables": [(title, ["workload", "model", "candidates/s"], cells)]}


# -- curves -------------------------------------------------------------------------------------
def curves(options: argparse.Namespace) -> dict[str, Any]:
    names = tuning_curves.HELD_OUT[:2] if options.quick else tuning_curves.HELD_OUT
    picture = Path(options.plot) if options.plot else None
    count, seeds = (60, 2) if options.quick else (options.candidates, options.seeds)
    made = tuning_curves.run(options.tables, count, seeds, names, 1, options.seconds, picture, note)
    if made is None:
        return {"text": "no table is whole: give more --seconds, or call it again with the same --tables"}
    found, text = made
    rows = [
        {"workload": name, "model": model, "curves": [c.tolist() for c in each]}
        for name, models in found.found.items()
        for model, each in models.items()
    ]
    title = "Trials to reach 95% of the best known speed (median of the seeds), searches replayed on measured tables"
    return {"rows": rows, "text": f"{title}:\n\n{text}"}


# -- quality ------------------------------------------------------------------------------------
class Side:
    """One of two that are timed in the same process."""

    def __init__(self, worker: Worker, name: str) -> None:
        self.worker, self.name = worker, name

    @property
    def alive(self) -> bool:
        return self.worker.alive

    def ask(self, limit: float = 300, **question: Any) -> dict[str, Any]:
        return self.worker.ask(limit, side=self.name, **question)

    def close(self) -> None:
        if self.worker.alive:
            self.worker.close()


class Tuned(Bench):
    """The peers of cpu_kernels.py, and tilewright with and without its records, in one process."""

    both: Worker | None = None

    def _start(self, peer: str) -> Any:
        log, realtime = Path(self.options.log or os.devnull), self.options.realtime
        if peer == "tvm":
            script, python = str(Path(__file__).with_name("tvm_worker.py")), self.options.tvm_python
            return Worker(peer, self.threads, "", log, realtime, script, python=python)
        if peer not in ("tuned", "tilewright"):
            return super()._start(peer)
        if self.both is None or not self.both.alive:
            script = str(Path(__file__).with_name("tuning_workers.py"))
            self.both = Worker("tuned", self.threads, "", log, realtime, script)
        return Side(self.both, peer)


def tune(w: Workload, threads: int, trials: int, records: str, limit: float = math.inf) -> dict[str, Any]:
    """Have records of a workload; the seconds that it took, and how many were measured."""
    task, start = tuning_curves.task_named(w.name, threads), time.perf_counter()
    tune_task(task, trials=trials, database=records, options=replace(STUBBORN, limit=limit))
    seconds = time.perf_counter() - start
    with Database(records) as database:
        return {
            "seconds": seconds,
            "measured": sum(r.origin == "trial" for r in database.records(task)),
        }


def chosen(options: argparse.Namespace, pool: dict[str, Workload]) -> list[Workload]:
    wanted = [text.strip().lower() for text in options.workloads.split(",") if text.strip()]
    return [
        w for w in pool.values() if not wanted or any(t in w.name.lower() or t == w.group for t in wanted)
    ]


def compared(
    options: argparse.Namespace,
    work: Sequence[Workload],
    more: Sequence[str] = (),
    search: Callable[[Workload, int, dict[str, Worker]], dict[str, Any]] | None = None,
) -> list[tuple[Row, dict[str, Any]]]:
    """Tune each workload, then time the tuned one, the zero-trial one and the peers in turns."""
    machine: CpuMachine = measure()
    share(options.records)
    options.peers, options.measured = ["tilewright", "tuned", *PEERS, *more], False
    out: list[tuple[Row, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        folder = Path(name)
        for threads in options.threads:
            bench = Tuned(options, roofs_of(threads, machine, True), machine, folder)
            try:
                for w in work:
                    if search is None:
                        told = tune(w, threads, options.trials, options.records)
                    else:
                        told = search(w, threads, bench.workers)
                    write_data(w, folder)
                    out.append((bench.row(w), told))
                    note(" | ".join([str(threads), *quality_cells(*out[-1], options.all_peers)]))
            finally:
                bench.close()
    return out


def best_of(row: Row, peers: Sequence[str]) -> tuple[str, float] | None:
    timed = [(p, s) for p in peers if (s := row.seconds(p)) is not None]
    return min(timed, key=lambda pair: pair[1]) if timed else None


def ratios(row: Row) -> tuple[float | None, float | None]:
    """The time of the best peer, and of the zero-trial schedule, over that of the tuned one."""
    mine, zero, peer = row.entries.get("tuned"), row.entries.get("tilewright"), best_of(row, PEERS)
    to_peer = None if peer is None else row.entries[peer[0]].over(mine)
    if same_as_zero(row):
        return to_peer, 1.0
    return to_peer, None if zero is None else zero.over(mine)


def same_as_zero(row: Row) -> bool:
    """Whether the search has ended with the zero-trial schedule: two timings of it are noise."""
    return "tuned" in row.entries and row.entries["tuned"].note == SAME


def quality_cells(row: Row, told: dict[str, Any], peers: Sequence[str]) -> list[str]:
    to_peer, to_zero = ratios(row)
    best = best_of(row, PEERS)
    marks = {p: ("~" if e.disturbed else "") + ("*" if e.note else "") for p, e in row.entries.items()}
    cells = [row.workload.name, f"{row.threads}"]
    for p in ("tuned", "tilewright", *peers):
        entry = row.entries.get(p)
        cells.append(
            entry.failed[:40] if entry and entry.failed else time_text(row.seconds(p)) + marks.get(p, "")
        )
    cells += [f"{best[0]} {time_text(best[1])}" if best else "-"]
    cells += [f"{r:.2f}" if r is not None else "-" for r in (to_peer, to_zero)]
    if same_as_zero(row):
        cells[-1] = "same"
    return [*cells, f"{told['seconds']:.0f} s"]


def quality_table(
    title: str, found: list[tuple[Row, dict[str, Any]]], peers: Sequence[str]
) -> dict[str, Any]:
    """Rows, and geometric means of the ratios with the least of each."""
    heads = [
        "workload",
        "threads",
        "tuned",
        "zero trials",
        *peers,
        "best peer",
        "to best peer",
        "to zero",
        "tuning",
    ]
    cells = [quality_cells(row, told, peers) for row, told in found]
    lines = []
    for threads in dict.fromkeys(row.threads for row, _ in found):
        for what, number, least in (("the best peer", 0, 1.0), ("zero trials", 1, 0.99)):
            mine = [(r, row.workload.name) for row, _ in found if row.threads == threads
                    if (r := ratios(row)[number]) is not None]  # fmt: skip
            if not mine:
                continue
            low = [f"{name} {r:.2f}" for r, name in sorted(mine) if r < least]
            lines.append(
                f"- {threads} thread{'s' if threads > 1 else ''}, to {what}: geometric mean "
                f"{mean([r for r, _ in mine]):.2f}, least {min(mine)[0]:.2f} ({min(mine)[1]})"
                + (f"; below {least:g}: {', '.join(low)}" if low else "")
            )
    plain = [{**row.plain(), "tuning": told} for row, told in found]
    return {"rows": plain, "tables": [(title, heads, cells)], "text": "\n".join(lines) + "\n"}


def quality(options: argparse.Namespace) -> dict[str, Any]:
    groups = ("matmul", "conv", "depthwise") if not options.everything else None
    work = [w for w in chosen(options, LISTED) if groups is None or w.group in groups]
    options.all_peers = PEERS
    found = compared(options, work[:2] if options.quick else work)
    return quality_table(f"{options.trials} trials", found, PEERS)


# -- MetaSchedule -------------------------------------------------------------------------------
TVM_WORK = ("matmul 512 cubed", "matmul 1024 cubed", "matmul 128x768x768", "conv 3x3 128@28", "conv 1x1 512->128@28",
            "depthwise 3x3 144@56")  # fmt: skip


def tvm(options: argparse.Namespace) -> dict[str, Any]:
    """The same workloads with the same number of trials, in an environment that has apache-tvm."""
    if not options.tvm_python:
        return {"text": "tvm: give the Python of an environment with apache-tvm as --tvm-python"}

    def search(w: Workload, threads: int, workers: dict[str, Worker]) -> dict[str, Any]:
        its = workers["tvm"].ask(3600, do="tune", workload=w.name, trials=options.trials)
        note(f"tvm, {w.name}: {its}")
        if "seconds" not in its:
            return tune(w, threads, options.trials, options.records)
        # what is timed is what a tenth of its time finds; as many trials as it makes are another search
        ours = tune(w, threads, options.trials, options.records, its["seconds"] / 10)
        every = tune(w, threads, options.trials, f"{options.records}.all")
        note(f"tilewright, {w.name}: {every}; in a tenth of its time {ours}")
        return {**ours, "its": its, "all": every}

    work = [ALL[name] for name in TVM_WORK]
    if options.workloads:
        work = chosen(options, ALL)
    options.all_peers = (*PEERS, "tvm")
    options.records += ".tvm"  # both begin with nothing
    for kept in (options.records, f"{options.records}.all"):
        Path(kept).unlink(missing_ok=True)
    found = compared(options, work[:1] if options.quick else work, ("tvm",), search)
    made = quality_table(f"{options.trials} trials, MetaSchedule beside", found, options.all_peers)
    heads = [
        "workload",
        "threads",
        f"its {options.trials} trials",
        f"our {options.trials} trials",
        "its time over ours",
        "ours in a tenth of its time",
        "its code's time over that",
    ]
    cells = []
    for row, told in found:
        if "its" not in told:
            continue
        its, every = told["its"]["seconds"], told["all"]["seconds"]
        theirs, mine = row.seconds("tvm"), row.seconds("tuned")
        cells.append([
            row.workload.name, str(row.threads), f"{its:.0f} s", f"{every:.1f} s", f"{its / every:.1f}",
            f"{told['measured']} trials, {told['seconds']:.1f} s",
            f"{theirs / mine:.2f}" if theirs is not None and mine is not None else "-",
        ])  # fmt: skip
    made["tables"].append(("Time to tune, and what a tenth of it finds", heads, cells))
    return made


# -- models -------------------------------------------------------------------------------------
def models(options: argparse.Namespace) -> dict[str, Any]:
    """Trials shared out over all tasks of a model, then the model in turns with onnxruntime."""
    from tuning_models import compared_models

    names = ["resnet50", "mobilenetv2"]
    wanted = [t.strip() for t in options.models.split(",") if t.strip()]
    return compared_models([n for n in names if not wanted or n in wanted], options, note)


# -- the command --------------------------------------------------------------------------------
def table_text(title: str, heads: list[str], cells: list[list[str]]) -> str:
    """A table as Markdown, its columns as wide as what is in them."""
    rows = [heads, *cells]
    widths = [max(len(r[i]) for r in rows) for i in range(len(heads))]
    lines = ["| " + " | ".join(c.ljust(n) for c, n in zip(r, widths)) + " |" for r in rows]
    rule = (
        "|" + "|".join("-" * (n + 2) if i == 0 else "-" * (n + 1) + ":" for i, n in enumerate(widths)) + "|"
    )
    return "\n".join([f"{title}:", "", lines[0], rule, *lines[1:], ""])


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help=f"parts, with commas between: {', '.join(PARTS)}")
    parser.add_argument(
        "--quick", action="store_true", help="few trials, candidates and rounds: a first look"
    )
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--threads", default="1,2", help="thread counts of quality, tvm and models")
    parser.add_argument("--workloads", default="", help="texts of which a name must have one, or groups")
    parser.add_argument("--everything", action="store_true", help="quality of all groups, not products alone")
    parser.add_argument(
        "--records", default="", help="the database of what is tuned; a temporary one otherwise"
    )
    parser.add_argument(
        "--tables", default="", help="the database of the curves' tables; a temporary one otherwise"
    )
    parser.add_argument("--candidates", type=int, default=240, help="in a table of the curves")
    parser.add_argument("--seeds", type=int, default=10, help="searches of each model on each table")
    parser.add_argument("--seconds", type=float, default=1e9, help="how long tables may be measured")
    parser.add_argument("--plot", default="", help="a file for the plot of the curves (.svg)")
    parser.add_argument("--tvm-python", default="", help="the Python of an environment that has apache-tvm")
    parser.add_argument("--models", default="", help="of resnet50, mobilenetv2")
    parser.add_argument(
        "--model-trials", type=int, default=1000, help="trials of each model, over all its tasks"
    )
    parser.add_argument(
        "--folder", default="", help="where the models are kept; a temporary folder otherwise"
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--ms", type=float, default=10.0, help="milliseconds of a sample, at least")
    parser.add_argument(
        "--cap", type=float, default=4.0, help="seconds of samples of one workload by one peer"
    )
    parser.add_argument("--retries", type=int, default=2, help="how often a disturbed sample is taken again")
    parser.add_argument("--realtime", action="store_true", help="samples run ahead of all else")
    parser.add_argument("--json", default="", help="a file for everything that was measured")
    parser.add_argument("--md", default="", help="a file for the tables, in Markdown")
    parser.add_argument("--log", default="", help="a file for what the peers print")
    options = parser.parse_args(arguments)
    options.parts = [p.strip() for p in options.only.split(",") if p.strip()]
    unknown = [p for p in options.parts if p not in PARTS]
    if unknown:
        parser.error(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}")
    options.parts = options.parts or [p for p in PARTS if p not in LONG]
    options.threads = [int(t) for t in options.threads.split(",")]
    if options.quick:
        options.trials, options.rounds, options.ms = min(options.trials, 16), min(options.rounds, 3), 4.0
        options.model_trials = min(options.model_trials, 40)
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parsed(arguments)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(machine_text(), versions(), sep="\n", highlight=False, markup=False)
    report: dict[str, Any] = {
        "machine": machine_text(),
        "versions": versions(),
        "command": " ".join(sys.argv),
    }
    pages = [f"`{' '.join(['python', *sys.argv])}`, {machine_text()}; {versions()}\n"]
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        options.records = options.records or str(Path(name) / "records.db")
        options.tables = options.tables or str(Path(name) / "tables.db")
        for part in options.parts:
            start = time.perf_counter()
            made = globals()[part](options)
            report[part] = {"rows": made.get("rows", []), "seconds": time.perf_counter() - start}
            texts = [table_text(*table) for table in made.get("tables", [])] + [made.get("text", "")]
            pages.append("\n".join([f"### {part}\n", *texts]))
            console.print(pages[-1], markup=False, highlight=False, soft_wrap=True)
            if options.json:
                Path(options.json).write_text(json.dumps(report, indent=1))
            if options.md:
                Path(options.md).write_text("\n".join(pages))


if __name__ == "__main__":
    main()
