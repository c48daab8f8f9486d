"""Phase 5: the search for a schedule, what it buys and what it costs."""

from __future__ import annotations

import inspect
import math
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import auto_scheduler, te

from . import kit, products
from .kit import Figures, Page

NUMBER = 5
TITLE = "the search"
QUESTION = "Why does a search often beat a schedule by hand? What does it buy, and what does it cost?"

SLOW = 256**3  # plain loops of larger products only cost time


@auto_scheduler.register_workload
def practice_matmul(rows: int, columns: int, depth: int) -> list[te.Tensor]:
    return products.matmul(rows, columns, depth)


def search(shape: Sequence[int], trials: int, folder: str) -> tuple[Any, Figures]:
    """The function that the search ends with, and every trial on the way."""
    log = str(Path(folder) / "matmul.json")
    task = auto_scheduler.SearchTask(func=practice_matmul, args=tuple(shape), target="llvm")
    options = auto_scheduler.TuningOptions(
        num_measure_trials=trials, measure_callbacks=[auto_scheduler.RecordToFile(log)], verbose=0
    )
    start = time.perf_counter()
    task.tune(options)
    took = time.perf_counter() - start
    sch, args = task.apply_best(log)
    found = []
    for _, result in auto_scheduler.load_records(log):
        ok = result.error_no == auto_scheduler.MeasureErrorNo.NO_ERROR
        found.append(float(np.mean([float(c) for c in result.costs])) if ok else None)
    built = tvm.build(sch, args, target="llvm", name="matmul")
    return built, {"wanted": trials, "seconds": took, "trials": found, "steps": str(sch.trace)}


def compared(shape: Sequence[int], trials: int, rounds: int) -> Figures:
    """A search for one shape, and what it found beside what there was without it."""
    bench = products.Bench(*shape)
    with tempfile.TemporaryDirectory() as folder:
        tuned, found = search(shape, trials, folder)
    start = time.perf_counter()
    zero = tvm.auto_schedule(products.matmul(*shape), "llvm")
    analysis = time.perf_counter() - start
    out = np.empty_like(bench.want)
    runs: dict[str, Callable[[], Any]] = {
        **({"plain loops": bench.run(products.naive(*shape))} if math.prod(shape) <= SLOW else {}),
        "by hand": bench.run(products.parallel(*shape)),
        "by analysis": bench.run(tvm.build(zero.mod, target="llvm")),
        "searched": bench.run(tuned),
    }
    times = kit.in_turns(runs, rounds, sample=0.005)
    # Not in turns with the others: the threads of its library stay awake for a while and take their cores.
    times |= kit.in_turns({"NumPy": lambda: np.matmul(bench.a, bench.b, out=out)}, rounds, sample=0.005)
    rows = [{"name": name, **times[name]} for name in times]
    return {"shape": list(shape), "search": found, "analysis": analysis, "rows": rows}


def measure(quick: bool) -> Figures:
    # The schedule by hand was written with square matrices in mind, of sizes that its tiles divide.
    shapes, trials = (
        ([(100, 100, 100)], 8) if quick else ([(1024, 1024, 1024), (200, 200, 200), (4, 512, 256)], 64)
    )
    return {
        "threads": products.threads(),
        "peak": tvm.target.Target("llvm").cpu.peak_gflops(products.threads()),
        "lines": _lines(products.registers, products.parallel),
        "tasks": [compared(shape, trials, 5 if quick else 25) for shape in shapes],
    }


def _lines(*functions: Callable[[int], Any]) -> int:
    """How many lines a person wrote."""
    return sum(len(inspect.getsource(f).splitlines()) for f in functions)


def named(task: Figures) -> str:
    return " × ".join(map(str, task["shape"]))


def best_so_far(trials: list[float | None]) -> list[float]:
    """The best of all trials up to each; those before the first right one are left out."""
    best, found = math.inf, []
    for t in trials:
        best = min(best, math.inf if t is None else t)
        if best < math.inf:
            found.append(best)
    return found


def report(figures: Figures, page: Page) -> None:
    for task in figures["tasks"]:
        found, name = task["search"], named(task)
        page.heading(f"{name}, {len(found['trials'])} trials: each a dot, the best so far a line")
        page.lines(kit.plot(found["trials"]), "cyan")
        speeds = [2 * math.prod(task["shape"]) / r["seconds"] / 1e9 for r in task["rows"]]
        page.table(
            f"C = A @ B, {name}, {figures['threads']} threads",
            ["schedule", "time", "GFLOP/s", "of peak", ""],
            [
                [
                    row["name"],
                    kit.seconds(row["seconds"]),
                    f"{speed:.1f}",
                    kit.percent(speed / figures["peak"]),
                    kit.bar(speed, max(speeds)),
                ]
                for row, speed in zip(task["rows"], speeds, strict=True)
            ],
            best=speeds.index(max(speeds)),
            left=(0, 4),
        )
    page.heading(f"What the search found for {name}, as steps that can be run again:")
    page.program("\n".join(line for line in found["steps"].splitlines() if not line.startswith("# ")))


# -- what follows --------------------------------------------------------------------------------
def pays_back(seconds: float, before: Figures, after: Figures) -> int | None:
    """After how many calls a search has saved what it cost."""
    gain = before["seconds"] - after["seconds"]
    return math.ceil(seconds / gain) if kit.clearly_faster(after, before) else None


def _bought(task: Figures, figures: Figures) -> str:
    by = {row["name"]: row for row in task["rows"]}
    hand, analysis, tuned = by["by hand"], by["by analysis"], by["searched"]
    beside = {f"the one by hand ({figures['lines']} lines)": hand, "NumPy": by["NumPy"]}
    if "plain loops" in by:
        beside["plain loops"] = by["plain loops"]
    return (
        f"{named(task)}: the schedule that the search ended with is "
        f"{kit.listed([f'{kit.verdict(tuned, other)} {name}' for name, other in beside.items()])}. Analysis had one "
        f"after {kit.seconds(task['analysis'])}, without any trial; the searched one is "
        f"{kit.verdict(tuned, analysis)} that."
    )


def _cost(task: Figures) -> str:
    found = task["search"]
    trials = found["trials"]
    right = [t for t in trials if t is not None]
    told = (
        f"It cost {kit.seconds(found['seconds'])} for {len(trials)} trials, {len(trials) / found['seconds']:.1f} in "
        f"a second, each compiled, run and compared with the reference"
    )
    if len(right) < len(trials):
        told += f"; {len(trials) - len(right)} of them failed and were left out"
    if right:
        last = best_so_far(trials)
        near = next(i for i, t in enumerate(last, len(trials) - len(last) + 1) if t <= 1.05 * last[-1])
        told += (
            f". The slowest took {kit.ratio(max(right) / min(right))} times the time of the best; after {near} of them "
            "it was within 5 % of the end"
        )
    return f"{told}. {_back(task)}"


def _back(task: Figures) -> str:
    """Whether, and when, what was saved is more than what it cost."""
    by = {row["name"]: row for row in task["rows"]}
    told = []
    for name in ("by hand", "by analysis"):
        calls = pays_back(task["search"]["seconds"], by[name], by["searched"])
        when = f"after {calls:,} calls" if calls else "never, for nothing was clearly won"
        told.append(f"beside the one {name} {when}")
    return f"It pays back {'; '.join(told)}."


def _why(figures: Figures) -> str:
    """Where the search beats the hand, and where it does not."""
    gains = {}
    for task in figures["tasks"]:
        by = {row["name"]: row for row in task["rows"]}
        gains[named(task)] = (by["searched"], by["by hand"])
    won = [name for name, (tuned, hand) in gains.items() if kit.clearly_faster(tuned, hand)]
    tiles = f"{products.ROWS} × {products.COLUMNS}"
    if not won:
        return f"The schedule by hand, in tiles of {tiles}, was good enough: the search found none clearly faster."
    told = f"The schedule by hand has tiles of {tiles} and threads along rows whatever the shape; the search decides "
    told += f"that for each shape, and won at {kit.listed(won)}"
    even = [name for name in gains if name not in won]
    return f"{told}, not at {kit.listed(even)}." if even else f"{told}."


def answer(figures: Figures) -> list[str]:
    told = [sentence for task in figures["tasks"] for sentence in (_bought(task, figures), _cost(task))]
    return [*told, _why(figures)]


if __name__ == "__main__":
    kit.main([sys.modules[__name__]])
