"""The progress of a search, for a person at a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Told = Callable[[Any, Any], None]


@contextmanager
def searching(trials: int) -> Iterator[Told | None]:
    """A bar over the trials of a search; nothing if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("measuring schedules"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        row = bar.add_task("", total=trials)
        yield lambda shares, _: bar.update(
            row, completed=min(trials, sum(len(s.tuner.trials) for s in shares))
        )
