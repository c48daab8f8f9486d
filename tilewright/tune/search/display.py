"""The progress of a search: a table on a terminal, lines elsewhere.

main  48/64  best 10.12 ms, 212.2 GFLOP/s, 90% of peak, 1.08 times as fast as untuned  8.3 trials/s, 2 s left  crash 1
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Self

from .allocate import Allocation
from .search import Progress


def time_text(seconds: float) -> str:
    """A time in the largest unit of which there is at least one."""
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def speed_text(p: Progress) -> str:
    """The time of the best candidate so far, its GFLOP/s, its fraction of peak, and its speedup over untuned."""
    if not math.isfinite(p.best):
        return "nothing measured yet"
    gflops = p.flop / p.best / 1e9
    told = [f"best {time_text(p.best)}", f"{gflops:.1f} GFLOP/s"]
    target = p.task.target
    peak = (
        target.cpu.peak_gflops(0) if target.is_cpu else 0.0
    )  # others have several, one for each kind of unit
    if peak > 0:
        told.append(f"{100 * gflops / peak:.0f}% of peak")
    if math.isfinite(p.zero):
        told.append(f"{p.zero / p.best:.2f} times as fast as untuned")
    return ", ".join(told)


def _pace(p: Progress) -> str:
    if p.rate <= 0:
        return ""
    left = max(0, p.wanted - p.trials) / p.rate
    return f"{p.rate:.1f} trials/s, {left:.0f} s left"


def failures_text(statuses: Mapping[str, int]) -> str:
    """The numbers of failed candidates, by status."""
    return ", ".join(f"{status} {n}" for status, n in sorted(statuses.items()) if status != "ok")


def line_of(progress: Progress) -> str:
    """The progress of a search in one line."""
    p = progress
    parts = [p.task.name, f"{p.trials}/{p.wanted}", speed_text(p), _pace(p), failures_text(p.statuses)]
    return "  ".join(part for part in parts if part)


class Display:
    """Shows the progress of one task, as `callback` of `tune_task`, or of many, as that of `tune_tasks`.

    with Display() as display: tune_task(…, callback=display)
    """

    _live: Mapping[str, Any] = {}  # arguments of rich's `Live`

    def __init__(self, file: Any = None, live: bool | None = None) -> None:
        self.file = file if file is not None else sys.stderr
        self.live = self.file.isatty() if live is None else live
        self._screen: Any = None
        self._rows: dict[str, Progress] = {}

    def __enter__(self) -> Self:
        if self.live:
            from rich.console import Console
            from rich.live import Live

            self._screen = Live(console=Console(file=self.file), refresh_per_second=4, **self._live)
            self._screen.start()
        return self

    def __exit__(self, *ignored: object) -> None:
        if self._screen is not None:
            self._screen.stop()
            self._screen = None

    def __call__(self, *told: Any) -> None:
        progress: Progress = told[-1]
        shares: Sequence[Allocation] = told[0] if len(told) == 2 else ()
        self._rows[progress.task.workload] = progress
        if self._screen is not None:
            self._screen.update(self._table(shares))
        else:
            print(line_of(progress), file=self.file, flush=True)

    def _table(self, shares: Sequence[Allocation]) -> Any:
        from rich.table import Table

        table = Table("task", "trials", "share", "speed", "pace", "failures")
        total = sum(len(s.tuner.trials) for s in shares)
        counts = {s.tuner.task.workload: len(s.tuner.trials) for s in shares}
        for key, p in self._rows.items():
            part = f"{100 * counts[key] / total:.0f}%" if total and key in counts else ""
            done, failed = f"{p.trials}/{p.wanted}", failures_text(p.statuses)
            table.add_row(p.task.name, done, part, speed_text(p), _pace(p), failed)
        return table
