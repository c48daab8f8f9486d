"""Kernels on CPUs: tilewright without a single trial beside NumPy, PyTorch eager and onnxruntime.

    python bench/cpu_kernels.py                                  all listed workloads on 1 and 2 threads
    python bench/cpu_kernels.py --workloads "matmul,conv 3x3"    those with one of these texts in their name
    python bench/cpu_kernels.py --threads 1 --peers torch,onnxruntime --rounds 9
    python bench/cpu_kernels.py --shapes extra                   primes and skinny ones; `all` for both lists
    python bench/cpu_kernels.py --quick --json out.json --md out.md

In each round everybody gives one sample in turn, so that drift of the machine hits all alike; the order
rotates; the median over the rounds counts. Each peer has a process of its own, and those that are not being
timed are stopped. Results are checked against float64 before anything is timed. The ratio is the time of the
best peer over tilewright's: above 1, tilewright is faster. Roofs are measured at the start of the run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from peers import PEERS
from rich import box
from rich.console import Console
from rich.table import Table
from workers import Worker, hold_the_core
from workloads import ALL, EXTRA, LISTED, Workload

from tilewright.target import CpuMachine, measure
from tilewright.target.machine import text_of_figures
from tilewright.target.measure import stream
from tilewright.target.probes import Memory, best, probes

OURS = "tilewright"
TOLERANCE = 2e-4


# -- roofs --------------------------------------------------------------------------------------
@dataclass
class Roofs:
    """What the machine reaches with some threads: GFLOP/s, and GB/s by pattern and place."""

    threads: int
    gflops: dict[str, float]  # by bits of a vector
    memory: dict[str, float]  # by pattern; "_past" goes past the caches
    caches: dict[str, float]  # GB/s read from L1, L2, L3

    def of(self, w: Workload, machine: CpuMachine) -> tuple[float, str]:
        """The roof of a workload, and what it is."""
        if not w.bound_by_memory:
            return max(self.gflops.values()), "fma"
        sizes = machine.cache_sizes
        for name, size in (("L2", sizes.l2 * self.threads), ("L3", sizes.l3)):
            if w.bytes <= 0.75 * size:
                return self.caches[name], name
        forms = {"read": ("load",), "copy": ("copy", "copy_past"), "triad": ("triad", "triad_past")}
        return max(self.memory[form] for form in forms[w.traffic]), "memory"


def roofs_of(threads: int, machine: CpuMachine, quick: bool) -> Roofs:
    run, rounds = probes(), 20 if quick else 60
    turns = 20_000 if threads == 1 else 80_000

    def peak(bits: int) -> float:
        took = best(lambda: run.multiply(bits, turns, threads), rounds)
        return threads * turns * 48 * 2 * bits / 32 / took / 1e9

    gflops = {str(bits): peak(bits) for bits in run.widths}
    pieces = [Memory(256 << 20) for _ in range(3)]
    forms = {"load": 1, "copy": 2, "copy_past": 2, "triad": 3, "triad_past": 3}
    passes = 2 if quick else 4
    memory = {
        form: max(stream(run, form, bits, pieces[:count], threads, passes) for bits in run.widths[-2:])
        for form, count in forms.items()
    }
    caches = {
        name: threads * machine.clock * speed
        for name, speed in (
            ("L1", machine.l1_bandwidth),
            ("L2", machine.l2_bandwidth),
            ("L3", machine.l3_bandwidth),
        )
    }
    return Roofs(threads, gflops, memory, caches)


# -- results ------------------------------------------------------------------------------------
@dataclass
class Entry:
    """What one peer did on one workload."""

    samples: list[float] = field(default_factory=list)
    clean: list[bool] = field(default_factory=list)
    error: float = 0.0
    build: float = 0.0
    note: str = ""
    failed: str = ""

    @property
    def seconds(self) -> float | None:
        """The median, of the samples that nobody disturbed where there are some."""
        good = [s for s, clean in zip(self.samples, self.clean) if clean]
        use = self.samples if self.disturbed else good
        return statistics.median(use) if use and not self.failed else None

    @property
    def disturbed(self) -> bool:
        """Whether too few samples had the machine to themselves."""
        return sum(self.clean) < min(3, max(1, len(self.samples)))

    def over(self, other: Entry | None) -> float | None:
        """The time over another's: the median of the rounds, in each of which the machine was the same for both."""
        if other is None or self.failed or other.failed or not self.samples or not other.samples:
            return None
        pairs = list(zip(self.samples, other.samples, self.clean, other.clean))
        quiet = [a / b for a, b, *clean in pairs if all(clean)]
        return statistics.median(quiet if len(quiet) >= 3 else [a / b for a, b, *_ in pairs])


@dataclass
class Row:
    """One workload on some threads."""

    workload: Workload
    threads: int
    entries: dict[str, Entry]
    roof: float
    roof_name: str

    def seconds(self, peer: str) -> float | None:
        entry = self.entries.get(peer)
        return entry.seconds if entry is not None else None

    @property
    def best_peer(self) -> tuple[str, float] | None:
        timed = [(p, s) for p in self.entries if p != OURS and (s := self.seconds(p)) is not None]
        return min(timed, key=lambda pair: pair[1]) if timed else None

    @property
    def ratio(self) -> float | None:
        """The time of the best peer over ours."""
        ours, peer = self.seconds(OURS), self.best_peer
        return None if ours is None or peer is None else peer[1] / ours

    def ratio_to(self, peer: str) -> float | None:
        ours, theirs = self.seconds(OURS), self.seconds(peer)
        return None if ours is None or theirs is None else theirs / ours

    def speed(self, peer: str = OURS) -> float | None:
        """GFLOP/s, or GB/s of what memory bounds."""
        seconds = self.seconds(peer)
        if seconds is None:
            return None
        return (self.workload.bytes if self.workload.bound_by_memory else self.workload.flops) / seconds / 1e9

    @property
    def share(self) -> float | None:
        speed = self.speed()
        return None if speed is None else speed / self.roof

    def plain(self) -> dict[str, Any]:
        """The row as data."""
        peers = {
            name: {
                "seconds": e.seconds,
                "samples": e.samples,
                "clean": sum(e.clean),
                "error": e.error,
                "build": e.build,
                "note": e.note,
                "failed": e.failed,
            }
            for name, e in self.entries.items()
        }
        w = self.workload
        return {
            "workload": w.name,
            "group": w.group,
            "extra": w.extra,
            "threads": self.threads,
            "flops": w.flops,
            "bytes": w.bytes,
            "ratio": self.ratio,
            "roof": self.roof,
            "roof_name": self.roof_name,
            "share": self.share,
            "peers": peers,
        }


def mean(values: list[float]) -> float | None:
    """The geometric mean."""
    return math.exp(statistics.fmean(map(math.log, values))) if values else None


# -- measuring ----------------------------------------------------------------------------------
class Bench:
    """The processes of one thread count, and the rounds that they are put through."""

    def __init__(self, options: argparse.Namespace, roofs: Roofs, machine: CpuMachine, folder: Path) -> None:
        self.options, self.threads, self.machine, self.folder = options, roofs.threads, machine, folder
        self.roofs, self.rows = roofs, list[Row]()
        self.workers = {peer: self._start(peer) for peer in options.peers}

    def _start(self, peer: str) -> Worker:
        o = self.options
        figures = text_of_figures(self.machine.figures()) if o.measured else ""
        return Worker(peer, self.threads, figures, Path(o.log or os.devnull), o.realtime)

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()

    def row(self, w: Workload) -> Row:
        """Prepare a workload everywhere, and time it in rounds."""
        entries: dict[str, Entry] = {}
        estimates: dict[str, float] = {}
        for peer in self.workers:
            found = self._prepare(peer, w)
            if found is not None:
                entries[peer], estimates[peer] = found
        order = [peer for peer, entry in entries.items() if not entry.failed]
        for number in range(self.options.rounds):
            turn = number % max(1, len(order))
            for peer in order[turn:] + order[:turn]:
                # What takes long is sampled less often: its medians are steady anyway.
                if number == 0 or estimates[peer] * number < self.options.cap:
                    self._sample(peer, entries[peer])
        return Row(w, self.threads, entries, *self.roofs.of(w, self.machine))

    def _prepare(self, peer: str, w: Workload) -> tuple[Entry, float] | None:
        if not self.workers[peer].alive:
            self.workers[peer].close()
            self.workers[peer] = self._start(peer)
        told = self.workers[peer].ask(
            do="prepare", workload=w.name, folder=str(self.folder), ms=self.options.ms
        )
        if told.get("absent"):
            return None
        if "failed" in told:
            return Entry(failed=told["failed"]), 0.0
        entry = Entry(error=told["error"], build=told["build"], note=told["note"])
        if not entry.error < TOLERANCE:
            entry.failed = f"wrong: error {entry.error:.1e}"
        return entry, told["estimate"]

    def _sample(self, peer: str, entry: Entry) -> None:
        """One sample, taken again where others wanted the machine at the time."""
        found: dict[str, Any] = {}
        for _ in range(1 + self.options.retries):
            told = self.workers[peer].ask(do="sample")
            if "failed" in told:
                entry.failed = told["failed"]
                return
            if not found or told["clean"]:
                found = told
            if told["clean"]:
                break
        entry.samples.append(found["seconds"])
        entry.clean.append(found["clean"])


def write_data(w: Workload, folder: Path) -> None:
    """The inputs and the reference, where every process finds them."""
    for old in folder.glob("*.npy"):
        old.unlink()
    data = w.data()
    for name, value in data.items():
        np.save(folder / f"{name}.npy", value)
    np.save(folder / "reference.npy", w.reference(data))


# -- telling ------------------------------------------------------------------------------------
def time_text(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{seconds * 1e3:.2f} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.1f} us"


def cells(row: Row, peers: list[str]) -> list[str]:
    """A row as text: name, times, best peer, ratio, speed, share of the roof."""
    w, texts = row.workload, [row.workload.name + (" (extra)" if row.workload.extra else "")]
    for peer in peers:
        entry = row.entries.get(peer)
        if entry is None:
            texts.append("")
        elif entry.failed:
            texts.append("wrong" if entry.failed.startswith("wrong") else "failed")
        else:
            marks = ("*" if entry.note else "") + ("~" if entry.disturbed else "")
            texts.append(time_text(entry.seconds) + marks)
    best_peer, ratio, speed, share = row.best_peer, row.ratio, row.speed(), row.share
    unit = "GB/s" if w.bound_by_memory else "GF/s"
    return [
        *texts,
        best_peer[0] if best_peer else "-",
        f"{ratio:.2f}" if ratio is not None else "-",
        f"{speed:.1f} {unit}" if speed is not None else "-",
        f"{100 * share:.0f}% {row.roof_name}" if share is not None else "-",
    ]


def heads(peers: list[str]) -> list[str]:
    return ["workload", *peers, "best peer", "ratio", "speed", "of roof"]


def roofs_text(r: Roofs) -> str:
    flops = ", ".join(f"{value:.1f} at {bits} bits" for bits, value in r.gflops.items())
    memory = ", ".join(f"{form} {value:.1f}" for form, value in r.memory.items())
    caches = ", ".join(f"{name} {value:.0f}" for name, value in r.caches.items())
    return f"roofs: {flops} GFLOP/s; memory {memory} GB/s; read from {caches} GB/s"


def summaries(rows: list[Row], peers: list[str]) -> list[tuple[str, str]]:
    """Geometric means of the ratios by group, and the least of them."""
    out = []
    named = dict.fromkeys((r.workload.group, r.workload.extra) for r in rows)
    for group, extra in named:
        mine = [r for r in rows if (r.workload.group, r.workload.extra) == (group, extra)]
        ratios = [(r.ratio, r.workload.name) for r in mine if r.ratio is not None]
        if not ratios:
            continue
        least, name = min(ratios)
        lacking = len(mine) - len(ratios)
        text = f"to the best peer {mean([ratio for ratio, _ in ratios]):.2f}"
        for peer in peers:
            given = [r for row in mine if (r := row.ratio_to(peer)) is not None]
            if peer != OURS and given:
                text += f", to {peer} {mean(given):.2f}"
        text += f"; least {least:.2f} ({name})" + (f"; {lacking} of {len(mine)} missing" if lacking else "")
        out.append((group + (" (extra)" if extra else ""), text))
    return out


# What must be reached: the least ratio to the best peer, to PyTorch, or share of the roof.
GOALS: dict[str, tuple[str, float]] = {
    "matmul": ("best", 0.9),
    "conv": ("best", 0.9),
    "depthwise": ("best", 0.9),
    "norm": ("torch", 1.5),
    "elementwise": ("torch", 1.5),
    "memory": ("roof", 0.9),
}


def missed(rows: list[Row]) -> list[str]:
    """The goals that are not reached, with what is. Without a result of ours nothing is reached."""
    out = []
    for row in rows:
        by, least = GOALS.get(row.workload.group, ("", 0.0))
        if row.seconds(OURS) is None:
            entry = row.entries.get(OURS)
            out.append(f"{row.workload.name}: no result ({entry.failed if entry else 'nothing to run'})")
            continue
        value = {"best": row.ratio, "torch": row.ratio_to("torch"), "roof": row.share}.get(by)
        if value is not None and value < least:
            to = {"best": "the best peer", "torch": "torch", "roof": f"the roof ({row.roof_name})"}[by]
            out.append(f"{row.workload.name}: {value:.2f} of {to}, wanted {least}")
    for group, extra in dict.fromkeys((r.workload.group, r.workload.extra) for r in rows):
        mine = [r for r in rows if (r.workload.group, r.workload.extra) == (group, extra)]
        value = mean([r.ratio for r in mine if r.ratio is not None])
        if GOALS.get(group, ("",))[0] == "best" and value is not None and value < 1.0:
            name = group + (" (extra)" if extra else "")
            out.append(f"{name}: {value:.2f} of the best peer in the geometric mean, wanted 1.0")
    return out


def colour(ratio: float | None) -> str:
    return "" if ratio is None else "green" if ratio >= 1.0 else "yellow" if ratio >= 0.9 else "red"


def show(console: Console, rows: list[Row], peers: list[str], roofs: Roofs) -> None:
    table = Table(box=box.SIMPLE_HEAD, title=f"{roofs.threads} thread{'s' if roofs.threads > 1 else ''}")
    for number, head in enumerate(heads(peers)):
        table.add_column(head, justify="left" if number == 0 else "right", no_wrap=True)
    group = None
    for row in rows:
        if group is not None and row.workload.group != group:
            table.add_section()
        group = row.workload.group
        table.add_row(*cells(row, peers), style=colour(row.ratio))
    console.print(table)
    console.print(roofs_text(roofs))
    if any(e.disturbed and e.samples for r in rows for e in r.entries.values()):
        console.print("~ others wanted the machine during most of the samples")
    for name, text in summaries(rows, peers):
        console.print(f"{name:<22} {text}")
    short = missed(rows)
    console.print(f"{len(short)} goals are not reached" + (":" if short else ""))
    for text in short:
        console.print(f"  {text}", markup=False, highlight=False)
    told = {f"{r.workload.name}: {p} {e.failed}" for r in rows for p, e in r.entries.items() if e.failed}
    notes = {f"{p}: {e.note}" for r in rows for p, e in r.entries.items() if e.note}
    for text in [*sorted(told), *(f"* {note}" for note in sorted(notes))]:
        console.print(text, markup=False)


def markdown(rows: list[Row], peers: list[str], roofs: Roofs) -> str:
    lines = [f"### {roofs.threads} thread{'s' if roofs.threads > 1 else ''}", "", roofs_text(roofs), ""]
    lines += ["| " + " | ".join(heads(peers)) + " |", "|---" + "|---:" * (len(peers) + 4) + "|"]
    lines += ["| " + " | ".join(cells(row, peers)) + " |" for row in rows]
    lines += ["", "Geometric means of the ratios:", ""]
    lines += [f"- {name}: {text}" for name, text in summaries(rows, peers)]
    short = missed(rows)
    if short:
        lines += ["", "Goals not reached:", "", *(f"- {text}" for text in short)]
    return "\n".join(lines) + "\n"


def machine_text() -> str:
    """The machine in a line."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":", 1)[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{model}, {os.cpu_count()} CPUs, {system}"


def versions() -> str:
    """Who is measured."""
    return ", ".join(f"{name} {metadata.version(name)}" for name in PEERS)


# -- the command --------------------------------------------------------------------------------
def chosen(options: argparse.Namespace) -> list[Workload]:
    pool = {"listed": LISTED, "extra": EXTRA, "all": ALL}[options.shapes]
    wanted = [text.strip().lower() for text in options.workloads.split(",") if text.strip()]
    found = [
        w for w in pool.values() if not wanted or any(t in w.name.lower() or t == w.group for t in wanted)
    ]
    if not found:
        sys.exit(f"no workload has {options.workloads!r} in its name; --list shows them all")
    return found


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1,2", help="thread counts, with commas between")
    parser.add_argument("--workloads", default="", help="texts of which a name must have one, or groups")
    parser.add_argument("--peers", default=",".join(p for p in PEERS if p != OURS))
    parser.add_argument("--shapes", choices=("listed", "extra", "all"), default="listed")
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--ms", type=float, default=10.0, help="milliseconds of a sample, at least")
    parser.add_argument(
        "--cap", type=float, default=4.0, help="seconds of samples of one workload by one peer"
    )
    parser.add_argument("--retries", type=int, default=2, help="how often a disturbed sample is taken again")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 4 ms: a first look")
    parser.add_argument("--measured", action="store_true", help="tilewright gets the measured figures")
    parser.add_argument(
        "--realtime", action="store_true", help="samples run ahead of all else, for a machine that others use"
    )
    parser.add_argument("--json", default="", help="a file for everything that was measured")
    parser.add_argument("--md", default="", help="a file for the tables, in Markdown")
    parser.add_argument("--log", default="", help="a file for what the peers print")
    parser.add_argument("--list", action="store_true", help="name the workloads and stop")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.ms, options.retries = min(options.rounds, 3), min(options.ms, 4.0), 1
    options.peers = [OURS, *(p.strip() for p in options.peers.split(",") if p.strip() and p.strip() != OURS)]
    unknown = [p for p in options.peers if p not in PEERS]
    if unknown:
        parser.error(f"unknown peer {unknown[0]!r}; known are {', '.join(PEERS)}")
    options.threads = [int(t) for t in options.threads.split(",")]
    return options


def main(arguments: list[str] | None = None) -> None:
    options, console = parsed(arguments), Console(width=None if sys.stdout.isatty() else 160)
    work = chosen(options)
    if options.list:
        for w in work:
            console.print(f"{w.group:<12} {w.name}", markup=False, highlight=False)
        return
    hold_the_core(options.realtime)
    machine = measure(force=True)
    roofs = [roofs_of(threads, machine, options.quick) for threads in options.threads]
    hold_the_core(False)
    console.print(machine_text(), machine.table(), versions(), sep="\n", highlight=False, markup=False)
    report: dict[str, Any] = {
        "machine": machine_text(),
        "figures": machine.figures(),
        "rows": [],
        "roofs": [],
    }
    report |= {"command": " ".join(sys.argv), "versions": versions(), "when": time.strftime("%Y-%m-%d %H:%M")}
    pages = [
        f"`{' '.join(['python', *sys.argv])}`, {machine_text()}; {versions()}\n\n```\n{machine.table()}\n```\n"
    ]
    benches: list[Bench] = []
    with tempfile.TemporaryDirectory(prefix="tilewright-bench-") as name:
        folder = Path(name)
        report["roofs"] = [vars(r) for r in roofs]
        try:
            benches += [Bench(options, r, machine, folder) for r in roofs]
            for w in work:
                write_data(w, folder)
                for bench in benches:
                    bench.rows.append(bench.row(w))
                    report["rows"].append(bench.rows[-1].plain())
                    print(
                        " | ".join([f"{bench.threads}", *cells(bench.rows[-1], options.peers)]),
                        file=sys.stderr,
                    )
                if options.json:
                    Path(options.json).write_text(json.dumps(report, indent=1))
        finally:
            for bench in benches:
                bench.close()
    for bench in benches:
        show(console, bench.rows, options.peers, bench.roofs)
        pages.append(markdown(bench.rows, options.peers, bench.roofs))
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1))
    if options.md:
        Path(options.md).write_text("\n".join(pages))


if __name__ == "__main__":
    main()
