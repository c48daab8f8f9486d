"""Trials to quality: how soon a search finds a good schedule, by what its cost model knows.

A table of each workload is measured once: some hundreds of its candidates, half of them drawn from all, the others
from what the model of the machine likes, from what it thinks bearable, and from what the shipped model likes. Then
every search is played on the table, for each model and seed, with tilewright's own search: it may only propose what
is in the table, and what it "measures" is looked up. So all searches see the same times, and a curve costs no machine
time. Random search draws from the half that was drawn from all, as it would from the whole space.

No search is given the zero-trial schedule as its first trial, which is what tilewright does outside of this benchmark.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from programs import program
from workloads import ALL

from tilewright.tune.measure.measurer import (
    Duel,
    MeasureInput,
    MeasureOptions,
    Measurer,
    MeasureResult,
    Status,
)
from tilewright.tune.records.database import Database, Record
from tilewright.tune.search.cost_models import cost_model
from tilewright.tune.search.evolution import unique_rows
from tilewright.tune.search.search import SearchOptions, Tuner
from tilewright.tune.space import Sketches
from tilewright.tune.workload import Task, task_of

Array = Any
HELD_OUT = (
    "matmul 128x768x768",
    "matmul 127x509x331",
    "matmul 12x128x64x128",
    "conv 3x3 64@56",
    "conv 1x1 512->128@28",
    "conv 7x7/2 3->64@224",
    "conv 3x3 256@14",
    "depthwise 3x3 144@56",
    "matmul 33x1025x1023",
    "conv 5x5/2 24->40@57",
    "conv 1x1 37->113@31",
    "conv 3x3/2 192->384@13",
)
MODELS = {
    "random": "random",
    "analytical": "analytical prior",
    "trees": "learned",
    "pretrained": "pretrained",
}
TRIALS = 64


def task_named(name: str, threads: int) -> Task:
    w = ALL[name]
    return task_of(program(w), f"llvm -num-cores={threads}", w.constants)


# -- tables -------------------------------------------------------------------------------------
def pool_of(space: Any, task: Task, count: int, seed: int = 0) -> tuple[Array, list[str]]:
    """The candidates of a table, and the part that each is of: every second of all; the others in turns of the best
    hundredth by the model of the machine, of its better third, and of the best hundredth by the shipped model. What has
    more than twice the code of the zero-trial schedule is left out: it takes long to build, and the search keeps away
    from it too."""
    rng = np.random.default_rng(seed)
    drawn = space.sample(rng, 30_000)
    drawn = drawn[space.effort(drawn) < 1.0 + space.effort(space.default[None])]
    drawn = unique_rows(np.concatenate([space.default[None], drawn]))
    by_machine = np.argsort(space.seconds(drawn), kind="stable")
    learned = cost_model("auto", target=task.target).predict(space.features(drawn))
    by_model = np.argsort(learned, kind="stable")
    few, third = max(count // 2, len(drawn) // 100), max(count, len(drawn) // 3)
    every, *liked = [
        list(rng.permutation(p)) for p in (by_machine, by_machine[:few], by_machine[:third], by_model[:few])
    ]
    chosen = {0: "liked"}
    while len(chosen) < min(count, len(drawn)) and every:
        chosen.setdefault(int(every.pop()), "all")
        queue = liked[len(chosen) // 2 % 3]
        if queue:
            chosen.setdefault(int(queue.pop()), "liked")
    return drawn[list(chosen)[:count]], list(chosen.values())[:count]


@dataclass(frozen=True)
class Table:
    """A workload's candidates and their times."""

    name: str
    task: Task
    rows: Array
    seconds: Array
    from_all: Array  # which of them were drawn from the whole space

    @property
    def best(self) -> float:
        return float(self.seconds.min())


def measured_table(name: str, threads: int, count: int, database: Database, end: float) -> Table | None:
    """The table of a workload, out of the database as far as it is there; None if the time is up before it is whole."""
    task = task_named(name, threads)
    space = Sketches(task).space
    rows, parts = pool_of(space, task, count)
    inputs = [MeasureInput.of(task, space.decisions(r)) for r in rows]
    part_of = dict(zip([str(inp.what) for inp in inputs], parts))
    held = [r for r in database.records(task) if space.rows(r.decisions) is not None]
    known = {str(r.decisions) for r in held}
    todo = [inp for inp in inputs if str(inp.what) not in known]
    zero = next((r.time for r in held if str(r.decisions) == str(inputs[0].what)), None)

    def keep(i: int, inp: MeasureInput, result: MeasureResult) -> None:
        nonlocal zero
        zero = zero or result.time  # it is the first of all
        database.add(Record.of(inp, result, extra={"part": part_of[str(inp.what)], "against": zero}), task)

    if todo and len(held) < count:
        with Measurer(MeasureOptions(run_limit=2.0)) as measurer:
            for start in range(0, len(todo), 16):
                if time.monotonic() > end:
                    return None
                measurer.measure(todo[start : start + 16], inputs[0] if zero else None, keep)
    good = [
        (found, r) for r in database.records(task) if r.ok and (found := space.rows(r.decisions)) is not None
    ]
    seconds = np.array([r.score for _, r in good])
    from_all = np.array([r.extra.get("part") == "all" for _, r in good])
    return Table(name, task, np.stack([found for found, _ in good]), seconds, from_all)


# -- replay -------------------------------------------------------------------------------------
class Lookup:
    """Measures by looking times up."""

    def __init__(self, table: Table, space: Any) -> None:
        self.times = {str(space.decisions(r)): float(s) for r, s in zip(table.rows, table.seconds)}
        self.default = str(space.decisions(space.default))
        self.order: list[float] = []

    def measure(
        self, inputs: Sequence[MeasureInput], incumbent: MeasureInput | None = None, each: Any = None
    ) -> list[MeasureResult]:
        out = []
        for i, inp in enumerate(inputs):
            seconds = self.times[self.default if inp.what is None else str(inp.what)]
            self.order.append(seconds)
            out.append(MeasureResult(Status.OK, (seconds,)))
            if each is not None:
                each(i, inp, out[-1])
        return out

    def duel(self, first: MeasureInput, second: MeasureInput, rounds: int = 12) -> Duel:
        raise NotImplementedError("a replay has no end that is fought for")

    def close(self) -> None:
        """There is nothing to end."""


class Replay(Tuner):
    """The search, over what is in a table."""

    rows: Array = None

    def propose(self, count: int) -> Array:
        rng = np.random.default_rng([self.options.seed, len(self.trials)])
        return self._favourites(rng, count, exclude=set())

    def _pool(self, rng: Any) -> Array:
        return self.rows[rng.permutation(len(self.rows))]  # equal scores are not decided by the table's order


def curve(table: Table, model: str, seed: int, trials: int = TRIALS) -> Array:
    """The best time so far after each trial, by the best of the table: 1 is reached when that is found."""
    epsilon = 0.0 if model == "random" else 0.1
    options = SearchOptions(seed=seed, model=model, batch=8, epsilon=epsilon)
    lookup = Lookup(table, Sketches(table.task).space)
    tuner = Replay(table.task, lookup, None, options)
    tuner.rows = table.rows[table.from_all] if model == "random" else table.rows
    while len(lookup.order) < trials and tuner.step(trials - len(lookup.order)):
        pass
    best = np.minimum.accumulate(lookup.order)
    best = np.concatenate([best, np.full(max(0, trials - len(best)), best[-1])])[:trials]
    return table.best / best


def trials_to(curve: Array, part: float) -> int:
    """The trial that first reached a part of the best speed; one more than all if none did."""
    reached = np.flatnonzero(curve >= part)
    return int(reached[0]) + 1 if len(reached) else len(curve) + 1


@dataclass
class Curves:
    """Of each workload and model, a curve for each seed."""

    found: dict[str, dict[str, list[Array]]]
    sizes: dict[str, int]

    def mean(self, model: str) -> Array:
        """Over workloads and seeds, the geometric mean of the speed reached after each trial."""
        every = [c for models in self.found.values() for c in models[model]]
        return np.exp(np.mean(np.log(np.stack(every)), axis=0))

    def median(self, name: str, model: str, part: float) -> float:
        return statistics.median(trials_to(c, part) for c in self.found[name][model])

    def overall(self, model: str, part: float) -> float:
        """The mean over workloads of the trials that it takes."""
        return statistics.fmean(
            statistics.fmean(trials_to(c, part) for c in models[model]) for models in self.found.values()
        )


def replayed(tables: Sequence[Table], seeds: int, note: Callable[[str], None]) -> Curves:
    out = Curves({}, {})
    for table in tables:
        note(f"replay: {table.name}, {len(table.rows)} candidates")
        out.sizes[table.name] = len(table.rows)
        out.found[table.name] = {m: [curve(table, m, s) for s in range(seeds)] for m in MODELS}
    return out


def markdown(curves: Curves, part: float = 0.95) -> str:
    """Trials to reach a part of the best known speed."""
    heads = ["workload", "candidates", *MODELS.values()]
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]

    def told(trials: float) -> str:
        return f"> {TRIALS}" if trials > TRIALS else f"{trials:g}"

    for name in curves.found:
        cells = [told(curves.median(name, m, part)) for m in MODELS]
        lines.append("| " + " | ".join([name, str(curves.sizes[name]), *cells]) + " |")
    for p in (part, 0.97, 0.99):
        cells = [f"{curves.overall(m, p):.1f}" for m in MODELS]
        lines.append("| " + " | ".join([f"mean, to {p:.0%}", "", *cells]) + " |")
    for n in (1, 8, 32):
        cells = [f"{curves.mean(m)[n - 1]:.3f}" for m in MODELS]
        lines.append("| " + " | ".join([f"speed after {n} trial{'s' if n > 1 else ''}", "", *cells]) + " |")
    return "\n".join(lines) + "\n"


# -- plots --------------------------------------------------------------------------------------
COLOURS = {"random": "#8a8a8a", "analytical": "#c47f17", "trees": "#2b6cb0", "pretrained": "#2f855a"}


def svg(curves: Curves, columns: int = 3) -> str:
    """The mean of all workloads, and beside it each of them: speed reached against trials."""
    panels = [("all workloads (geometric mean)", {m: curves.mean(m) for m in MODELS})]
    for name, models in curves.found.items():
        panels.append((name, {m: np.exp(np.mean(np.log(np.stack(c)), axis=0)) for m, c in models.items()}))
    wide, high = 300, 210
    rows = -(-len(panels) // columns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {columns * wide} {rows * high + 40}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{columns * wide}" height="{rows * high + 40}" fill="#ffffff"/>',
    ]
    for number, (model, label) in enumerate(MODELS.items()):
        x = 40 + 150 * number
        parts.append(f'<path d="M{x} 18h24" stroke="{COLOURS[model]}" stroke-width="2.5"/>')
        parts.append(f'<text x="{x + 30}" y="22" fill="#222222">{label}</text>')
    for number, (title, lines) in enumerate(panels):
        x, y = number % columns * wide, number // columns * high + 36
        parts.append(_panel(x, y, wide, high, title, lines))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(x: int, y: int, wide: int, high: int, title: str, lines: dict[str, Array]) -> str:
    """One plot: trials from 1 on a logarithmic axis, speed as a part of the best known from `low` up."""
    left, right, top, bottom = x + 42, x + wide - 10, y + 22, y + high - 32
    low = min(0.9, math.floor(10 * min(float(c.min()) for c in lines.values())) / 10)
    last = math.log2(len(next(iter(lines.values()))))
    across = lambda trial: left + (right - left) * math.log2(trial) / last
    up = lambda value: bottom - (bottom - top) * (value - low) / (1.0 - low)
    parts = [f'<text x="{left}" y="{y + 14}" fill="#222222" font-weight="bold">{title}</text>']
    for tick in (1, 2, 4, 8, 16, 32, 64):
        parts.append(f'<path d="M{across(tick):.1f} {top}V{bottom}" stroke="#e4e4e4"/>')
        parts.append(
            f'<text x="{across(tick):.1f}" y="{bottom + 14}" text-anchor="middle" fill="#555555">{tick}</text>'
        )
    step = 0.1 if low >= 0.5 else 0.2
    for n in range(round((1.0 - low) / step) + 1):
        value = 1.0 - n * step
        parts.append(f'<path d="M{left} {up(value):.1f}H{right}" stroke="#e4e4e4"/>')
        parts.append(
            f'<text x="{left - 5}" y="{up(value) + 4:.1f}" text-anchor="end" fill="#555555">{value:.0%}</text>'
        )
    for model, values in lines.items():
        points = " ".join(f"{across(i + 1):.1f},{up(float(v)):.1f}" for i, v in enumerate(values))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{COLOURS[model]}" stroke-width="1.8"/>'
        )
    parts.append(
        f'<text x="{(left + right) / 2:.0f}" y="{bottom + 27}" text-anchor="middle" fill="#555555">trials</text>'
    )
    return "\n".join(parts)


# -- the part of bench/tuning.py ----------------------------------------------------------------
def run(
    database: str,
    count: int,
    seeds: int,
    names: Sequence[str],
    threads: int,
    limit: float,
    picture: Path | None,
    note: Callable[[str], None],
) -> tuple[Curves, str] | None:
    """Measure the tables as far as the time goes, and play the searches on those that are whole."""
    end = time.monotonic() + limit
    tables = []
    with Database(database) as kept:
        for name in names:
            note(f"table: {name}")
            found = measured_table(name, threads, count, kept, end)
            if found is not None:
                tables.append(found)
    if not tables:
        return None
    curves = replayed(tables, seeds, note)
    if picture is not None:
        picture.parent.mkdir(parents=True, exist_ok=True)
        picture.write_text(svg(curves))
    return curves, markdown(curves)
