"""Callbacks after each batch: they write records and show progress.

tuner.tune(…, callbacks=[autotvm.callback.progress_bar(64), autotvm.callback.log_to_file("matmul.json")])
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..measure import MeasureErrorNo, MeasureInput, MeasureResult
from ..record import encode
from ..utils import format_si_prefix
from .tuner import flops_of

Inputs = Sequence[MeasureInput]
Results = Sequence[MeasureResult]


def log_to_file(file_out: Any, protocol: str = "json") -> Callable[[Any, Inputs, Results], None]:
    """A callback that appends each record at once to a file, which is given by its path or open."""
    if isinstance(file_out, (str, os.PathLike)):
        Path(file_out).parent.mkdir(parents=True, exist_ok=True)

    def write(tuner: Any, inputs: Inputs, results: Results) -> None:
        lines = "".join(f"{encode(i, r, protocol)}\n" for i, r in zip(inputs, results, strict=True))
        if isinstance(file_out, (str, os.PathLike)):
            with open(file_out, "a", encoding="utf-8") as file:
                file.write(lines)
        else:
            file_out.write(lines)

    return write


def log_to_database(db: Any) -> Callable[[Any, Inputs, Results], None]:
    """A callback that saves each record to an autotvm.database.Database."""

    def save(tuner: Any, inputs: Inputs, results: Results) -> None:
        for inp, result in zip(inputs, results, strict=True):
            db.save(inp, result)

    return save


class Monitor:
    """Stores the speed and the time of every trial."""

    def __init__(self) -> None:
        self.scores: list[float] = []
        self.timestamps: list[float] = []

    def __call__(self, tuner: Any, inputs: Inputs, results: Results) -> None:
        for inp, result in zip(inputs, results, strict=True):
            self.scores.append(flops_of(inp, result))
            self.timestamps.append(result.timestamp)

    def reset(self) -> None:
        """Remove all trials."""
        self.scores, self.timestamps = [], []

    def trial_scores(self) -> Any:
        """The operations per second of each trial; 0 for a failure."""
        return np.array(self.scores)

    def trial_timestamps(self) -> Any:
        """The time at which each trial was measured."""
        return np.array(self.timestamps)


class _Progress:
    """A line that is overwritten on a terminal, and a line every ten seconds elsewhere."""

    def __init__(self, total: int, prefix: str, si_prefix: str, file: Any) -> None:
        format_si_prefix(0, si_prefix)
        self.total, self.prefix, self.unit, self.file = total, prefix, si_prefix, file
        self.begin = time.monotonic()
        self.done, self.current, self.best = 0, 0.0, 0.0
        self.failed: dict[str, int] = {}
        self._last_shown = 0.0

    @property
    def line(self) -> str:
        now, best = (format_si_prefix(x, self.unit) for x in (self.current, self.best))
        failures = "".join(f" | {name} {n}" for name, n in sorted(self.failed.items()))
        return (
            f"{self.prefix} Current/Best: {now:7.2f}/{best:7.2f} {self.unit}FLOPS | Progress: ({self.done}/"
            f"{self.total}) | {time.monotonic() - self.begin:.2f} s{failures}"
        )

    def __call__(self, tuner: Any, inputs: Inputs, results: Results) -> None:
        self.done += len(inputs)
        for inp, result in zip(inputs, results, strict=True):
            if result.error_no:
                name = MeasureErrorNo(result.error_no).name.lower().replace("_", " ")
                self.failed[name] = self.failed.get(name, 0) + 1
            else:
                self.current = flops_of(inp, result)
                self.best = max(self.best, self.current)
        out = self.file or sys.stdout
        if out.isatty():
            print(f"\r{self.line}", end="", file=out, flush=True)
        elif time.monotonic() - self._last_shown > 10:
            self._last_shown = time.monotonic()
            print(self.line, file=out, flush=True)

    def on_end(self) -> None:
        """Print the final line."""
        out = self.file or sys.stdout
        print(f"\r{self.line} Done." if out.isatty() else f"{self.line} Done.", file=out, flush=True)


def progress_bar(total: int, prefix: str = "", si_prefix: str = "G", file: Any = None) -> _Progress:
    """A callback that shows the speeds of the last and the best trial, and the numbers of trials and of failures.

    `total` is the number of all trials, `prefix` the beginning of the line, `si_prefix` the prefix of the unit of
    speeds (G for GFLOPS), and `file` the stream to write to, by default stdout.
    """
    return _Progress(total, prefix, si_prefix, file)
