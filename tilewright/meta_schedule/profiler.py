"""How long the parts of tuning take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar


class Profiler:
    """Adds up the time of named parts in a `with` block; `Profiler.timeit` is such a part."""

    _open: ClassVar[list[Profiler]] = []

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._began, self._total = 0.0, 0.0

    def __enter__(self) -> Profiler:
        Profiler._open.append(self)
        self._began = time.perf_counter()
        return self

    def __exit__(self, *ignored: object) -> None:
        self._total += time.perf_counter() - self._began
        Profiler._open.remove(self)

    @staticmethod
    @contextmanager
    def timeit(name: str) -> Iterator[None]:
        """Add the time of a `with` block to the innermost profiler, if there is one."""
        began = time.perf_counter()
        try:
            yield
        finally:
            if held := Profiler.current():
                held._seconds[name] = held._seconds.get(name, 0.0) + time.perf_counter() - began

    @staticmethod
    def current() -> Profiler | None:
        """The innermost profiler."""
        return Profiler._open[-1] if Profiler._open else None

    def get(self) -> dict[str, float]:
        """The seconds of each part, and of all as `Total`."""
        return {**self._seconds, "Total": self._total}

    def table(self) -> str:
        """The parts as a table, the longest first."""
        whole = self._total or sum(self._seconds.values()) or 1.0
        rows = sorted(self.get().items(), key=lambda row: -row[1])
        return "\n".join(
            f"{name:<32} {seconds:10.3f} s {100 * seconds / whole:6.1f} %" for name, seconds in rows
        )


def timed(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator that adds the time of a function to the innermost profiler."""

    def wrap(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with Profiler.timeit(name):
                return work(*args, **kwargs)

        return run

    return wrap
