"""What the phases share: times taken in turns, figures as text, and the command line.

A phase is a module with a title, a question and three functions. `measure(quick)` runs things and gives figures,
plain data as JSON has it. `report(figures, page)` shows them. `answer(figures)` says what follows from them: it sees
nothing but the figures, so that other figures give other sentences.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

Figures = dict[str, Any]
CLEAR = 0.05  # differences below this part are taken for noise, whatever the samples say


class Phase(Protocol):
    """One step of the course."""

    NUMBER: int
    TITLE: str
    QUESTION: str

    def measure(self, quick: bool) -> Figures: ...
    def report(self, figures: Figures, page: Page) -> None: ...
    def answer(self, figures: Figures) -> list[str]: ...


# -- times ---------------------------------------------------------------------------------------
def mean(run: Callable[[], Any], calls: int = 1) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def in_turns(
    runs: Mapping[str, Callable[[], Any]], rounds: int = 7, sample: float = 0.01, most: float = 0.25
) -> dict[str, Figures]:
    """The time of each: samples are taken in turns, so that a drift of the machine hits all alike.

    A sample is the mean of as many calls as fill `sample` seconds. The first call of each only warms up, unless it
    takes longer than `most`: then it and one more are all there is.
    """
    calls: dict[str, int] = {}
    found: dict[str, list[float]] = {name: [] for name in runs}
    for name, run in runs.items():
        first = mean(run)
        if first > most:
            found[name] = [first]
        else:
            calls[name] = max(1, min(10_000, round(sample / max(mean(run), 1e-7))))
    for turn in range(rounds):
        for name, run in runs.items():
            if turn == 0 or name in calls:
                found[name].append(mean(run, calls.get(name, 1)))
    return {name: timing(samples) for name, samples in found.items()}


def timing(samples: Sequence[float]) -> Figures:
    """The median of the faster half, since what disturbs a program never makes it faster; and all samples."""
    order = sorted(samples)
    return {"seconds": statistics.median(order[: (len(order) + 1) // 2]), "samples": list(samples)}


def times_as_fast(a: Figures, b: Figures) -> float:
    """How many times as fast as `b` `a` is."""
    return float(b["seconds"] / a["seconds"])


def clearly_faster(a: Figures, b: Figures) -> bool:
    """Whether `a` is faster than `b` by more than chance: of all pairs of samples it wins nine in ten."""
    pairs = [x < y for x in a["samples"] for y in b["samples"]]
    return times_as_fast(a, b) > 1 + CLEAR and sum(pairs) >= 0.9 * len(pairs)


def verdict(a: Figures, b: Figures) -> str:
    """`a` beside `b`, in words."""
    if clearly_faster(a, b):
        return f"{ratio(times_as_fast(a, b))} times as fast as"
    if clearly_faster(b, a):
        return f"slower, by {ratio(times_as_fast(b, a))} times, than"
    return "no faster, within the noise, than"


# -- figures as text -----------------------------------------------------------------------------
def seconds(value: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.3g} {unit}" if value * scale < 1000 else f"{value * scale:.0f} {unit}"
    return f"{value * 1e9:.0f} ns"


def size(value: float) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}" if value < 1000 * scale else f"{value / scale:.0f} {unit}"
    return f"{value:.0f} B"


def ratio(value: float) -> str:
    return f"{value:.0f}" if value >= 20 else f"{value:.1f}" if value >= 3 else f"{value:.2f}"


def count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.1 or part == 0 else f"{100 * part:.2g} %"


def listed(names: Sequence[str]) -> str:
    """a, b and c"""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def bar(value: float, most: float, width: int = 12) -> str:
    """A bar in eighths of a character."""
    eighths = round(8 * width * value / most) if most > 0 else 0
    full, rest = divmod(max(eighths, 1 if value > 0 else 0), 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")


def log_bar(value: float, least: float, most: float, width: int = 12) -> str:
    """A bar of the logarithm: each part of it that is twice as long is a square."""
    span = math.log(most / least) if most > least else 1.0
    return bar(0.06 + 0.94 * math.log(value / least) / span, 1.0, width)


def plot(values: Sequence[float | None], height: int = 10, width: int = 56) -> list[str]:
    """Times over trials as lines of text, the fastest at the bottom: each trial a dot, the best so far a line.

    The scale is logarithmic. A trial that failed has no dot.
    """
    known = [v for v in values if v is not None]
    low, high = min(known), max(known)
    span = math.log(high / low) or 1.0

    def row(value: float) -> int:
        return min(height - 1, int(math.log(high / value) / span * height))

    grid = [[" "] * width for _ in range(height)]
    best, last = math.inf, -1
    for x in range(width):
        first, end = x * len(values) // width, (x + 1) * len(values) // width
        here = [v for v in values[first : max(end, first + 1)] if v is not None]
        for v in here if end > first else ():
            grid[row(v)][x] = "•"
        best = min([best, *here])
        if best < math.inf:
            now = row(best)
            for y in range(last + 1, now) if 0 <= last < now else ():
                grid[y][x] = "┃"
            grid[now][x] = "┗" if 0 <= last < now else "━"
            if 0 <= last < now:
                grid[last][x] = "┓"
            last = now
    labels = {0: seconds(high), height - 1: seconds(low)}
    lines = [f"{labels.get(y, ''):>9} ┤{''.join(line).rstrip()}" for y, line in enumerate(grid)]
    return [*lines, f"{'':>10}└{'─' * width}", f"{'trial':>9}  1{len(values):>{width - 1}}"]


# -- pages ---------------------------------------------------------------------------------------
class Page:
    """Where a phase shows its figures: colours on a terminal, plain text elsewhere."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def head(self, phase: Phase) -> None:
        question = Text(phase.QUESTION, style="italic")
        title = f"[bold]Phase {phase.NUMBER}: {phase.TITLE}[/bold]"
        self.console.print(Panel(question, title=title, title_align="left", border_style="cyan"))

    def text(self, words: str) -> None:
        self.console.print(Padding(Text(words), (0, 0, 1, 2), expand=False))

    def heading(self, words: str) -> None:
        self.console.print(Padding(Text(words, style="bold"), (0, 0, 0, 1), expand=False))

    def program(self, source: str) -> None:
        """A program without its head."""
        lines = [line for line in source.splitlines() if line and not line.startswith("# from ")]
        code = "\n".join(lines)
        shown: Any = Text(code)
        if self.console.is_terminal:
            shown = Syntax(code, "python", background_color="default", word_wrap=True)
        self.console.print(Padding(shown, (0, 0, 1, 4), expand=False))

    def lines(self, lines: Sequence[str], style: str = "") -> None:
        self.console.print(
            Padding(Group(*(Text(line, style, no_wrap=True) for line in lines)), (0, 0, 1, 2), expand=False)
        )

    def table(
        self,
        title: str,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        best: int | None = None,
        left: Sequence[int] = (0,),
    ) -> None:
        """A table; the columns in `left` are text, the others are numbers. The best row is green."""
        made = Table(
            title=title,
            title_justify="left",
            title_style="bold",
            header_style="cyan",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        for i, name in enumerate(columns):
            made.add_column(name, justify="left" if i in left else "right", no_wrap=True)
        for i, row in enumerate(rows):
            made.add_row(*(Text(str(cell)) for cell in row), style="bold green" if i == best else "")
        self.console.print(Padding(made, (0, 0, 1, 1), expand=False))

    def answer(self, sentences: Sequence[str]) -> None:
        points = Group(*(Text(f"• {sentence}") for sentence in sentences))
        self.console.print(
            Panel(points, title="What the figures say", title_align="left", border_style="green")
        )

    @contextmanager
    def busy(self, what: str) -> Iterator[None]:
        if self.console.is_terminal:
            with self.console.status(what):
                yield
        else:
            yield


# -- the command line ----------------------------------------------------------------------------
def arguments(what: str, phases: Sequence[Phase]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--quick", action="store_true", help="small sizes, few trials: seconds, not minutes")
    parser.add_argument(
        "--json", action="store_true", help="the figures and the answers as JSON, nothing else"
    )
    if len(phases) > 1:
        numbers = [phase.NUMBER for phase in phases]
        parser.add_argument(
            "--phase",
            type=int,
            action="append",
            choices=numbers,
            metavar="N",
            help="this one only; may be given again",
        )
    return parser


def main(phases: Sequence[Phase], what: str | None = None, given: Sequence[str] | None = None) -> None:
    """Run some phases and show what they found."""
    options = arguments(what or phases[0].TITLE, phases).parse_args(given)
    wanted = getattr(options, "phase", None) or [phase.NUMBER for phase in phases]
    page = Page(Console(stderr=options.json))
    found: dict[str, dict[str, Any]] = {}
    for phase in (p for p in phases if p.NUMBER in wanted):
        name = str(phase.NUMBER)
        if not options.json:
            page.head(phase)
        start = time.perf_counter()
        with page.busy(f"phase {name}: measuring"):
            figures = phase.measure(options.quick)
        found[name] = {"title": phase.TITLE, "question": phase.QUESTION, "figures": figures}
        found[name]["answer"] = phase.answer(figures)
        found[name]["seconds"] = time.perf_counter() - start
        if not options.json:
            phase.report(figures, page)
            page.answer(found[name]["answer"])
            page.text(f"Phase {name} took {seconds(found[name]['seconds'])}.")
    if options.json:
        print(json.dumps(found, indent=1, ensure_ascii=False))
