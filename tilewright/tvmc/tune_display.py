"""The progress of tuning a model: a table on a terminal, a line for each batch elsewhere.

48/64  fused_nn_conv2d_nn_relu  best 0.41 ms, 212.2 GFLOP/s, 90% of peak, 1.08 times as fast as untuned
       model 3.20 ms (untuned 3.61 ms)  8.3 trials/s, 2 s left  crash 1
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..tune.search.allocate import Allocation
from ..tune.search.display import Display, failures_text, speed_text, time_text
from ..tune.search.search import Progress
from .tuning import Found


class ModelDisplay(Display):
    """Shows the progress of a model, as `told` of `tune_all`; nothing if it is `quiet`."""

    _live = {"renderable": "getting ready", "transient": True}

    def __init__(self, found: Found, file: Any = None, live: bool | None = None, quiet: bool = False) -> None:
        super().__init__(file, False if quiet else live)
        self.quiet = quiet
        self._weights = {task.workload: weight for task, weight in found}
        self._began = time.monotonic()
        self._first: int | None = None  # trials of earlier searches

    def __call__(self, *told: Any) -> None:
        if self.quiet:
            return
        shares: Sequence[Allocation]
        progress: Progress
        shares, progress = told
        if self._first is None:
            self._first = sum(len(s.tuner.trials) for s in shares) - progress.measured
        self._rows[progress.task.workload] = progress
        if self._screen is not None:
            self._screen.update(self._table(shares))
        else:
            print(self._line(shares, progress), file=self.file, flush=True)

    # -- all of it -------------------------------------------------------------------------------
    def _state(self, shares: Sequence[Allocation], wanted: int) -> list[str]:
        """The model as a whole: its time, the pace, what failed."""
        done = sum(len(s.tuner.trials) for s in shares)
        rate = (done - (self._first or 0)) / max(1e-9, time.monotonic() - self._began)
        now, before = self._time(shares, True), self._time(shares, False)
        out = []
        if math.isfinite(now):
            out.append(f"model {time_text(now)} (untuned {time_text(before)})")
        if rate > 0:
            out.append(f"{rate:.1f} trials/s, at most {max(0, wanted - done) / rate:.0f} s left")
        failures = sum((Counter(s.tuner.statuses) for s in shares), Counter())
        if failed := failures_text(failures):
            out.append(failed)
        return out

    def _time(self, shares: Sequence[Allocation], tuned: bool) -> float:
        total = 0.0
        for s in shares:
            best = s.tuner.best
            seconds = math.inf if best is None else best[1] if tuned else s.tuner.zero
            total += self._weights.get(s.tuner.task.workload, 1) * seconds
        return total

    def _line(self, shares: Sequence[Allocation], p: Progress) -> str:
        done = sum(len(s.tuner.trials) for s in shares)
        return "  ".join([f"{done}/{p.wanted}", p.task.title, speed_text(p), *self._state(shares, p.wanted)])

    def _table(self, shares: Sequence[Allocation]) -> Any:
        """The tasks that take the most of the model's time, as many as there is room for."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        done, wanted = sum(len(s.tuner.trials) for s in shares), max(p.wanted for p in self._rows.values())
        room = max(3, self._screen.console.size.height - 8)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.title = f"{done} of {wanted} trials, {len(self._rows)} of {len(shares)} tasks begun"
        table.caption = "  ".join(self._state(shares, wanted))
        for name in ("task", "calls", "trials", "share", "speed", "failures"):
            table.add_column(name, justify="left" if name in ("task", "speed", "failures") else "right")
        weighted = sorted(self._rows.items(), key=lambda kv: -_weight(kv[1], self._weights.get(kv[0], 1)))
        for key, p in weighted[:room]:
            calls, part = str(self._weights.get(key, 1)), f"{100 * p.trials / max(1, done):.0f}%"
            failed = failures_text(p.statuses)
            table.add_row(Text(p.task.title), calls, str(p.trials), part, speed_text(p), failed)
        if len(weighted) > room:
            table.add_row(f"and {len(weighted) - room} others")
        return table


def _weight(p: Progress, calls: int) -> float:
    return p.best * calls if math.isfinite(p.best) else 0.0
