"""Whole models on CPUs: tilewright without a single trial beside onnxruntime, OpenVINO, PyTorch and torch.compile.

    python bench/cpu_models.py                                  all models on 1 and 2 threads
    python bench/cpu_models.py --only "resnet,bert"             those with one of these texts in their name
    python bench/cpu_models.py --threads 1 --peers onnxruntime,torch --rounds 9
    python bench/cpu_models.py --quick --json out.json --md out.md
    python bench/cpu_models.py --only dynamic --peers onnxruntime,tilewright.recurring,tilewright.fixed
    python bench/cpu_models.py --only "hf-,pypi-" --peers onnxruntime,openvino

Models whose package is not installed are skipped by name. One image or one sequence at a time. In each round
everybody gives one sample in turn, so that drift of the machine hits all alike; the order rotates; the median over
the rounds counts. Each peer has a process of its own for each model, and those that are not being timed are
stopped. Results are checked before anything is timed. The ratio is the peer's time over tilewright's: above 1,
tilewright is faster. Compiling is import and compilation: with an empty cache (cold) and once more (warm), on as
many cores as there are threads; for onnxruntime it is making the session, for torch.compile the first call. Memory
is the most that the process held while the model ran.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cpu_kernels import OURS, Entry, colour, machine_text, mean, time_text
from model_workers import MODEL_PEERS
from models import MODELS, Absent, Model, write_model
from rich import box
from rich.console import Console
from rich.table import Table
from workers import Worker

PATIENCE = 1200  # seconds for a peer to make a model ready
# The least ratios that must be reached.
GOALS = {"torch": 1.0, "onnxruntime": 0.8}


@dataclass
class ModelEntry(Entry):
    """What one peer did on one model."""

    warm: float | None = None  # seconds to compile with a full cache
    memory: int = 0  # bytes while it ran
    compile_memory: int = 0  # bytes while it compiled

    def plain(self) -> dict[str, Any]:
        return {**vars(self), "seconds": self.seconds, "clean": sum(self.clean)}


@dataclass
class Row:
    """One model on some threads. `failed` tells why there is nothing at all, `skipped` which package is missing."""

    model: Model
    threads: int
    entries: dict[str, ModelEntry]
    failed: str = ""
    skipped: str = ""

    def seconds(self, peer: str) -> float | None:
        entry = self.entries.get(peer)
        return entry.seconds if entry is not None else None

    def ratio(self, peer: str) -> float | None:
        """The time of a peer over ours."""
        ours, theirs = self.seconds(OURS), self.seconds(peer)
        return None if ours is None or theirs is None else theirs / ours

    def plain(self) -> dict[str, Any]:
        return {
            "model": self.model.name,
            "threads": self.threads,
            "failed": self.failed,
            "skipped": self.skipped,
            "ratios": {peer: self.ratio(peer) for peer in self.entries if peer != OURS},
            "peers": {peer: entry.plain() for peer, entry in self.entries.items()},
        }


# -- measuring ----------------------------------------------------------------------------------
def measured(m: Model, threads: int, options: argparse.Namespace, folder: Path) -> Row:
    """Start everybody, make the model ready everywhere, and time it in rounds."""
    workers: dict[str, Worker] = {}
    entries: dict[str, ModelEntry] = {}
    estimates: dict[str, float] = {}
    script = str(Path(__file__).with_name("model_workers.py"))
    log = Path(options.log or os.devnull)
    try:
        for peer in options.peers:
            note(f"{m.name}, {threads} threads: {peer}")
            workers[peer] = Worker(peer, threads, "", log, options.realtime, script, keep_memory=False)
            told = workers[peer].ask(PATIENCE, do="prepare", model=m.name, folder=str(folder), ms=options.ms)
            entries[peer], estimates[peer] = entry_of(m, told)
        order = [peer for peer, entry in entries.items() if not entry.failed]
        for number in range(options.rounds):
            turn = number % max(1, len(order))
            for peer in order[turn:] + order[:turn]:
                # What takes long is sampled less often: its medians are steady anyway.
                if number < 3 or estimates[peer] * number < options.cap:
                    sample(workers[peer], entries[peer], options.retries)
    finally:
        for worker in workers.values():
            worker.close()
    return Row(m, threads, entries)


def entry_of(m: Model, told: dict[str, Any]) -> tuple[ModelEntry, float]:
    if "failed" in told:
        return ModelEntry(failed=told["failed"]), 0.0
    kept = ("error", "build", "warm", "memory", "compile_memory", "note")
    entry = ModelEntry(**{name: told[name] for name in kept})
    if not entry.error < m.tolerance:
        entry.failed = f"wrong: error {entry.error:.1e}"
    return entry, told["estimate"]


def sample(worker: Worker, entry: ModelEntry, retries: int) -> None:
    """One sample, taken again where others wanted the machine at the time."""
    found: dict[str, Any] = {}
    for _ in range(1 + retries):
        told = worker.ask(do="sample")
        if "failed" in told:
            entry.failed = told["failed"]
            return
        if not found or told["clean"]:
            found = told
        if told["clean"]:
            break
    entry.samples.append(found["seconds"])
    entry.clean.append(found["clean"])


def note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# -- telling ------------------------------------------------------------------------------------
def cell(row: Row, peer: str, text: Callable[[ModelEntry], str]) -> str:
    entry = row.entries.get(peer)
    if entry is None:
        return ""
    if entry.failed:
        return "wrong" if entry.failed.startswith("wrong") else "failed"
    return text(entry)


def latency(entry: ModelEntry) -> str:
    return time_text(entry.seconds) + ("~" if entry.disturbed else "")


def compiling(entry: ModelEntry) -> str:
    if not entry.build:
        return "-"
    return f"{entry.build:.1f} s" + (f" / {entry.warm:.2f} s" if entry.warm is not None else "")


def megabytes(entry: ModelEntry) -> str:
    return f"{entry.memory / 1e6:.0f} MB" if entry.memory else "-"


def ratio_text(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def tables(rows: list[Row], peers: list[str]) -> list[tuple[str, list[str], list[list[str]]]]:
    """Latencies with ratios, compile times, memory: each with its title, heads and cells."""
    others = [p for p in peers if p != OURS]
    rows = [r for r in rows if not r.skipped]
    titles = [r.model.title for r in rows]

    def each(text: Callable[[ModelEntry], str]) -> list[list[str]]:
        return [[t, *(cell(r, p, text) for p in peers)] for t, r in zip(titles, rows)]

    times = [[*cells, *(ratio_text(r.ratio(p)) for p in others)] for cells, r in zip(each(latency), rows)]
    return [
        ("latency", ["model", *peers, *(f"to {p}" for p in others)], times),
        ("import and compilation, cold / warm", ["model", *peers], each(compiling)),
        ("memory while it runs", ["model", *peers], each(megabytes)),
    ]


def missed(rows: list[Row]) -> list[str]:
    """The goals that are not reached. Without a result of ours nothing is reached, nor by times that were disturbed."""
    out = []
    for r in rows:
        if r.skipped:
            continue
        where = f"{r.model.name} on {r.threads}"
        entry = r.entries.get(OURS)
        if r.seconds(OURS) is None:
            out.append(f"{where}: no result ({r.failed or (entry.failed if entry else 'not run')})")
            continue
        for peer, least in GOALS.items():
            value = r.ratio(peer)
            if value is None:
                continue
            if r.entries[OURS].disturbed or r.entries[peer].disturbed:
                out.append(f"{where}: {value:.2f} of {peer}, but disturbed: measure again on a quiet machine")
            elif value < least:
                out.append(f"{where}: {value:.2f} of {peer}, wanted {least}")
    return out


def failures(rows: list[Row]) -> list[str]:
    told = [f"{r.model.name} on {r.threads}: {r.failed}" for r in rows if r.failed]
    told += [f"{r.model.name} on {r.threads}: skipped, {r.skipped}" for r in rows if r.skipped]
    return told + [
        f"{r.model.name} on {r.threads}: {peer}: {e.failed}"
        for r in rows
        for peer, e in r.entries.items()
        if e.failed
    ]


def means(rows: list[Row], peers: list[str]) -> str:
    parts = []
    for peer in peers:
        value = mean([v for r in rows if (v := r.ratio(peer)) is not None]) if peer != OURS else None
        if value is not None:
            parts.append(f"{value:.2f} of {peer}")
    return "geometric means: " + (", ".join(parts) or "none")


def threads_text(count: int) -> str:
    return f"{count} thread{'s' if count > 1 else ''}"


def show(console: Console, rows: list[Row], peers: list[str], threads: int) -> None:
    for title, heads, cells in tables(rows, peers):
        table = Table(box=box.SIMPLE_HEAD, title=f"{title}, {threads_text(threads)}")
        for number, head in enumerate(heads):
            table.add_column(head, justify="left" if number == 0 else "right", no_wrap=True)
        for row, texts in zip([r for r in rows if not r.skipped], cells):
            found = [v for p in GOALS if (v := row.ratio(p)) is not None]
            table.add_row(*texts, style=colour(min(found) if found and title == "latency" else None))
        console.print(table)
    console.print(means(rows, peers), highlight=False)
    for text in failures(rows):
        console.print(text, markup=False, highlight=False)
    short = missed(rows)
    console.print(f"{len(short)} goals are not reached" + (":" if short else ""))
    for text in short:
        console.print(f"  {text}", markup=False, highlight=False)
    if any(e.disturbed and e.samples for r in rows for e in r.entries.values()):
        console.print("~ others wanted the machine during most of the samples")


def markdown(rows: list[Row], peers: list[str], threads: int) -> str:
    lines = [f"### {threads_text(threads)}", ""]
    for title, heads, cells in tables(rows, peers):
        lines += [f"{title[0].upper()}{title[1:]}:", ""]
        lines += ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
        lines += ["| " + " | ".join(texts) + " |" for texts in cells] + [""]
    lines += [means(rows, peers)[0].upper() + means(rows, peers)[1:] + ".", ""]
    lines += [f"- {text}" for text in failures(rows)]
    short = missed(rows)
    if short:
        lines += ["", "Goals not reached:", "", *(f"- {text}" for text in short)]
    return "\n".join(lines) + "\n"


def versions(peers: list[str]) -> str:
    names = dict.fromkeys(peer.partition(".")[0] for peer in peers)
    return ", ".join(f"{name} {metadata.version(name)}" for name in names)


# -- the command --------------------------------------------------------------------------------
def _installed() -> list[str]:
    """The peers whose package is there."""
    found = [p for p in MODEL_PEERS if not p.startswith(OURS)]
    return [p for p in found if find_spec(p.partition(".")[0]) is not None]


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="texts of which a model's name must have one")
    parser.add_argument("--threads", default="1,2", help="thread counts, with commas between")
    parser.add_argument("--peers", default=",".join(_installed()))
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--ms", type=float, default=50.0, help="milliseconds of a sample, at least")
    parser.add_argument("--cap", type=float, default=5.0, help="seconds of samples of one model by one peer")
    parser.add_argument("--retries", type=int, default=2, help="how often a disturbed sample is taken again")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 10 ms: a first look")
    parser.add_argument(
        "--realtime", action="store_true", help="samples run ahead of all else, for a machine that others use"
    )
    parser.add_argument(
        "--folder", default="", help="where the models are kept; a temporary folder otherwise"
    )
    parser.add_argument("--json", default="", help="a file for everything that was measured")
    parser.add_argument("--md", default="", help="a file for the tables, in Markdown")
    parser.add_argument("--log", default="", help="a file for what the peers print")
    parser.add_argument("--list", action="store_true", help="name the models and stop")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.ms, options.retries = min(options.rounds, 3), min(options.ms, 10.0), 0
    options.peers = [OURS, *(p.strip() for p in options.peers.split(",") if p.strip() and p.strip() != OURS)]
    unknown = [p for p in options.peers if p not in MODEL_PEERS]
    if unknown:
        parser.error(f"unknown peer {unknown[0]!r}; known are {', '.join(MODEL_PEERS)}")
    options.threads = [int(t) for t in options.threads.split(",")]
    wanted = [text.strip().lower() for text in options.only.split(",") if text.strip()]
    options.models = [m for m in MODELS.values() if not wanted or any(t in m.name for t in wanted)]
    if not options.models:
        parser.error(f"no model has {options.only!r} in its name; there are {', '.join(MODELS)}")
    return options


def rows_of(m: Model, options: argparse.Namespace, folder: Path) -> list[Row]:
    """The model on each number of threads; what fails is a row that says why."""
    try:
        note(f"{m.name}: writing the model")
        write_model(m, folder)
    except Absent as error:
        return [Row(m, t, {}, skipped=str(error)) for t in options.threads]
    except Exception as error:
        first = (str(error).strip().splitlines() or [""])[0]
        return [Row(m, t, {}, f"{type(error).__name__}: {first}"[:300]) for t in options.threads]
    return [measured(m, threads, options, folder) for threads in options.threads]


def main(arguments: list[str] | None = None) -> None:
    options = parsed(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    if options.list:
        for m in options.models:
            console.print(f"{m.name:<12} {m.title}", markup=False, highlight=False)
        return
    told = versions(options.peers)
    console.print(machine_text(), told, sep="\n", highlight=False, markup=False)
    report: dict[str, Any] = {"machine": machine_text(), "versions": told, "rows": []}
    report |= {"command": " ".join(sys.argv), "when": time.strftime("%Y-%m-%d %H:%M")}
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        folder = Path(options.folder or name)
        folder.mkdir(parents=True, exist_ok=True)
        for m in options.models:
            rows += rows_of(m, options, folder)
            report["rows"] = [r.plain() for r in rows]
            if options.json:
                Path(options.json).write_text(json.dumps(report, indent=1))
    pages = [f"`{' '.join(['python', *sys.argv])}`, {machine_text()}; {told}\n"]
    for threads in options.threads:
        mine = [r for r in rows if r.threads == threads]
        show(console, mine, options.peers, threads)
        pages.append(markdown(mine, options.peers, threads))
    if options.md:
        Path(options.md).write_text("\n".join(pages))


if __name__ == "__main__":
    main()
