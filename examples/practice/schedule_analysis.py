"""Phase 3: schedules against each other over sizes: where tiles pay, and from which size threads do."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tvm
from tilewright import te

from . import kit, products
from .kit import Figures, Page

NUMBER = 3
TITLE = "schedules compared"
QUESTION = "From which size of the matrices on do threads help? Why not earlier?"

VARIANTS: dict[str, Callable[[int], products.Built]] = {
    "naive": products.naive,
    "tiled": products.registers,
    "parallel": products.parallel,
}
SLOW = 256  # plain loops of larger sizes only cost time


def launch(rounds: int) -> Figures:
    """What an empty parallel loop costs: one number for each thread, with threads and without."""
    n = products.threads()
    y = te.compute((n,), lambda i: i.astype("float32"), name="y")
    runs = {}
    for name in ("serial", "parallel"):
        s = te.create_schedule(y.op)
        if name == "parallel":
            s[y].parallel(y.op.axis[0])
        f = tvm.build(s, [y], name="empty")
        runs[name] = _many(f, [tvm.nd.empty((n,))])
    times = kit.in_turns(runs, rounds, sample=0)
    return {"seconds": max(0.0, (times["parallel"]["seconds"] - times["serial"]["seconds"]) / CALLS)}


CALLS = 1000


def _many(module: Any, arrays: list[Any]) -> Callable[[], Any]:
    """A thousand calls that are counted outside Python: one takes less time than to call it from here."""
    timed = module.time_evaluator(module.entry_name, tvm.cpu(), number=CALLS, repeat=1)
    return lambda: timed(*arrays)


def sized(n: int, rounds: int) -> Figures:
    """All variants at one size."""
    bench = products.Bench(n)
    names = [name for name in VARIANTS if name != "naive" or n <= SLOW]
    runs: dict[str, Callable[[], Any]] = {name: bench.run(VARIANTS[name](n)) for name in names}
    out = np.empty((n, n), "float32")
    found = kit.in_turns(runs, rounds, sample=0.005)
    # Not in turns with the others: the threads of its library stay awake for a while and take their cores.
    found |= kit.in_turns({"NumPy": lambda: np.matmul(bench.a, bench.b, out=out)}, rounds, sample=0.005)
    return {"n": n, **found}


def measure(quick: bool) -> Figures:
    sizes = [16, 32, 64, 128, 256] if quick else [16, 32, 64, 96, 128, 192, 256, 512, 1024]
    rounds = 5 if quick else 15
    return {
        "threads": products.threads(),
        "launch": launch(rounds),
        "sizes": [sized(n, rounds) for n in sizes],
    }


def report(figures: Figures, page: Page) -> None:
    threads, names = figures["threads"], (*VARIANTS, "NumPy")
    speeds = [2 * row["n"] ** 3 / row["parallel"]["seconds"] / 1e9 for row in figures["sizes"]]
    page.table(
        f"C = A @ B: what {threads} threads gain and lose",
        ["n", *names, "gain", "lost", "GFLOP/s"],
        [
            [
                row["n"],
                *(kit.seconds(row[name]["seconds"]) if name in row else "" for name in names),
                kit.ratio(gain(row)),
                kit.seconds(lost(row, threads)),
                f"{speed:.0f}",
            ]
            for row, speed in zip(figures["sizes"], speeds, strict=True)
        ],
        left=(),
    )
    page.text(
        f"Gain is tiled by parallel; lost is what parallel takes above 1/{threads} of tiled; GFLOP/s are parallel's. "
        f"An empty parallel loop costs {kit.seconds(figures['launch']['seconds'])} here."
    )


# -- what follows --------------------------------------------------------------------------------
def gain(row: Figures) -> float:
    """How many times as fast threads make it."""
    return kit.times_as_fast(row["parallel"], row["tiled"])


def pays_from(figures: Figures) -> int | None:
    """The size from which on threads are clearly faster at every size."""
    found = None
    for row in reversed(figures["sizes"]):
        if not kit.clearly_faster(row["parallel"], row["tiled"]):
            break
        found = row["n"]
    return found


def lost(row: Figures, threads: int) -> float:
    """Seconds above the equal share of the work: to start, to wake, to wait for each other."""
    return max(0.0, float(row["parallel"]["seconds"] - row["tiled"]["seconds"] / threads))


def saved(row: Figures, threads: int) -> float:
    """Seconds that threads would save if they cost nothing."""
    return float(row["tiled"]["seconds"] * (1 - 1 / threads))


def expected_from(figures: Figures) -> int | None:
    """The size from which on threads can save more than they lose at the smallest size, where they only lose."""
    threads, sizes = figures["threads"], figures["sizes"]
    fixed = lost(sizes[0], threads)
    return next((int(row["n"]) for row in sizes if saved(row, threads) > fixed), None)


def _why(figures: Figures, n: int) -> str:
    row = next(r for r in figures["sizes"] if r["n"] == n)
    threads = figures["threads"]
    return (
        f"a product of size {n} takes {kit.seconds(row['tiled']['seconds'])} on one thread, of which {threads} could "
        f"save {kit.seconds(saved(row, threads))}, and starting, waking and waiting takes "
        f"{kit.seconds(lost(row, threads))}"
    )


def _threads(figures: Figures) -> list[str]:
    threads, sizes = figures["threads"], figures["sizes"]
    first, last = sizes[0]["n"], sizes[-1]["n"]
    if threads == 1:
        return [
            "There is one thread here: a parallel loop has nothing to share out, and cannot help at any size."
        ]
    pays, expected = pays_from(figures), expected_from(figures)
    if pays is None:
        told = [
            f"Threads did not help clearly at every size up to {last} on this machine, now: {_why(figures, last)}."
        ]
        told[0] += " If the other cores are busy with something else, there is nothing to win."
    elif pays == first:
        told = [f"Threads help from the smallest size measured, {first}: {_why(figures, first)}."]
    else:
        before = max(r["n"] for r in sizes if r["n"] < pays)
        told = [f"Threads help from n = {pays} on. Below that they do not: {_why(figures, before)}."]
    if expected is not None and pays is not None and pays != first:
        fixed = kit.seconds(lost(sizes[0], threads))
        reckoned = (
            f"At n = {first} threads lose {fixed}. Were that all, they would pay from n = {expected} on"
        )
        if expected == pays:
            told.append(f"{reckoned}, which is where it was found.")
        else:
            when = "sooner" if pays > expected else "later"
            told.append(f"{reckoned}, {when} than was found: the loss is not the same at all sizes.")
    top = max(sizes, key=gain)
    told.append(
        f"The most that {threads} threads gave is {kit.ratio(gain(top))} times, at n = {top['n']}, "
        f"{kit.percent(gain(top) / threads)} of what {threads} could."
    )
    return told


def _tiles(figures: Figures) -> str:
    rows = [r for r in figures["sizes"] if "naive" in r]
    slower = [r["n"] for r in rows if not kit.clearly_faster(r["tiled"], r["naive"])]
    last = rows[-1]
    told = f"Tiles in registers at n = {last['n']}: {kit.verdict(last['tiled'], last['naive'])} plain loops"
    if slower:
        told += f"; at n = {kit.listed([str(n) for n in slower])} they were not clearly faster"
    best = figures["sizes"][-1]
    return f"{told}. At n = {best['n']} the parallel schedule is {kit.verdict(best['parallel'], best['NumPy'])} NumPy."


def answer(figures: Figures) -> list[str]:
    return [*_threads(figures), _tiles(figures)]


if __name__ == "__main__":
    kit.main([sys.modules[__name__]])
