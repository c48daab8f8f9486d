"""The records that a compilation applies."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ..runtime.json_reader import read_json
from ..tune.records.history import History

Path = str | os.PathLike[str]


class Records(History):
    """The records of files: of `tvmc.tune` and `auto_scheduler`, and logs of `autotvm`."""

    def __init__(self, paths: Sequence[Path], machine: str | None = None) -> None:
        self.logs = [os.fspath(p) for p in paths if _is_template_log(p)]
        own = [os.fspath(p) for p in paths if os.fspath(p) not in self.logs]
        super().__init__(*own, machine=machine)
        self.names = ", ".join(os.fspath(p) for p in paths)


def records_of(given: Any, machine: str | None = None) -> History | None:
    """The history of `tuning_records`: a file, several, or a History; None for None."""
    if given is None or isinstance(given, History):
        return given
    if isinstance(given, (str, os.PathLike)):
        return Records([given], machine)
    if isinstance(given, (list, tuple)) and all(isinstance(g, (str, os.PathLike)) for g in given):
        return Records(given, machine)
    return History(given, machine=machine)


@contextmanager
def applied(given: Any) -> Iterator[None]:
    """Compile with records, and warn if none of them applies to the compiled program."""
    history = records_of(given)
    if history is None:
        yield
        return
    with ExitStack() as stack:
        logs = history.logs if isinstance(history, Records) else []
        for log in logs:
            from .. import autotvm

            stack.enter_context(autotvm.apply_history_best(log))
        stack.enter_context(history)
        yield
    if history.missed and not history.used and not logs:
        named = history.names if isinstance(history, Records) else "the records"
        warnings.warn(
            f"{named}: there is no record for this target and machine of any of the {len(history.missed)} kernels of "
            "this model, so none is applied; tune it with the same target, opt level and layout",
            RuntimeWarning,
            stacklevel=4,
        )


def _is_template_log(path: Path) -> bool:
    """Whether a file is a log of autotvm, by its first line."""
    try:
        with open(path, encoding="utf-8") as file:
            data = read_json(file.readline(), "the line", ValueError)
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and "input" in data and "config" in data
