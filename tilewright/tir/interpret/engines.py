"""Concurrency of an accelerator's engines: processes that wait for each other by tokens, their races and deadlocks.

The program is run once for each engine, as a generator that executes the commands of that engine and passes over the
others. A pop waits until there is a token:

    load     ─── A[0] = … ──push──┐                    ┌──pop── A[0] = … ───▶
    compute  ─────────────────────└─pop── … = A[0] ──push ────────────────▶

A token carries what its engine has done and seen. An access is ordered after another one if such knowledge has reached
it; two accesses to one location without such an order, of which one writes, are a race, in whatever order they
happened to run here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from .report import InterpreterError, statement_text
from .threads import AccessLog, Clock, Program


class EngineStamp:
    """An engine at a time: `time` counts its pushes, `seen` the pushes of other engines that are known to it."""

    __slots__ = ("engine", "label", "seen", "time")

    def __init__(self, engine: int, time: int, seen: dict[int, int]) -> None:
        self.engine, self.time, self.seen = engine, time, seen
        self.label = f"engine {engine}"

    def after(self, other: EngineStamp) -> bool:
        """Whether what happened at the other stamp is done."""
        return self.engine == other.engine or self.seen.get(other.engine, -1) >= other.time


class EngineLog(AccessLog):
    """For each cell of a memory: the last write, and the last read of each engine."""

    __slots__ = ()

    def read(self, cell: int, site: int) -> bool:
        now: Any = self.clock.stamp
        write: Any = self.writes.get(cell)
        if write is not None and not now.after(write[0]):
            self._race(cell, (write[0], write[1], "writes"), (now, site, "reads"))
        held: Any = self.reads.setdefault(cell, {})  # type: ignore[arg-type]
        held[now.engine] = (now, site)
        return True

    def write(self, cell: int, site: int, atomic: bool = False) -> bool:
        now: Any = self.clock.stamp
        write: Any = self.writes.get(cell)
        if write is not None and not now.after(write[0]):
            self._race(cell, (write[0], write[1], "writes"), (now, site, "writes"))
        for stamp, where in self.reads.get(cell, {}).values():  # type: ignore[call-overload, union-attr]
            if not now.after(stamp):
                self._race(cell, (stamp, where, "reads"), (now, site, "writes"))
        self.writes[cell] = (now, site, atomic)
        return True

    def _between(self, label: str) -> tuple[str, str]:
        return "engines", " with no token between"


class Engine:
    """One engine: its number, its stamp, and the memory that all engines share."""

    __slots__ = ("block", "clock", "number", "queues", "stamp")

    def __init__(
        self, clock: Clock, number: int, block: dict[Any, Any], queues: dict[Any, deque[Any]]
    ) -> None:
        self.clock, self.number, self.block, self.queues = clock, number, block, queues
        self.stamp = EngineStamp(number, 0, {})

    def shared(self, key: Any, make: Callable[..., Any], *args: Any) -> Any:
        """The memory of an allocation; the first engine allocates it."""
        found = self.block.get(key)
        if found is None:
            found = self.block[key] = make(*args)
        return found

    def push(self, target: int, site: int) -> None:
        """Push a token to another engine: all that this one has done so far is done."""
        now = self.stamp
        self.queues.setdefault((self.number, target), deque()).append(
            ({**now.seen, self.number: now.time}, site)
        )
        self.stamp = self.clock.stamp = EngineStamp(self.number, now.time + 1, now.seen)  # type: ignore[assignment]

    def take(self, source: int) -> bool:
        """Pop a token of another engine, if there is one."""
        queue = self.queues.get((source, self.number))
        if not queue:
            return False
        told, _ = queue.popleft()
        seen = dict(self.stamp.seen)
        for engine, time in told.items():
            if engine != self.number:
                seen[engine] = max(seen.get(engine, -1), time)
        self.stamp = EngineStamp(self.number, self.stamp.time, seen)
        return True


def run_engines(clock: Clock, program: Callable[[Engine], Program], numbers: Sequence[int]) -> None:
    """Run the engines side by side until all have ended."""
    before, block, queues = clock.stamp, {}, {}  # type: ignore[var-annotated]
    engines = [Engine(clock, n, block, queues) for n in numbers]
    programs = {e.number: program(e) for e in engines}
    waiting: dict[int, Any] = {}
    live = list(engines)
    while live:
        progress = False
        for e in list(live):
            request = waiting.get(e.number)
            if request is not None and not e.take(request.data):
                continue
            progress = True
            clock.stamp = e.stamp  # type: ignore[assignment]
            try:
                waiting[e.number] = programs[e.number].send(None)
            except StopIteration:
                live.remove(e)
                waiting.pop(e.number, None)
        if not progress:
            raise _deadlock(clock, live, waiting)
    clock.settle()
    clock.stamp = before
    clock.forget()
    for (source, target), queue in queues.items():
        if queue:
            raise InterpreterError(
                "token",
                f"tokens are left over: {len(queue)} from engine {source} to engine {target} that nobody pops",
                [f"the first one is pushed at: {statement_text(clock.sites[queue[0][1]])}"],
            )


def _deadlock(clock: Clock, live: Sequence[Engine], waiting: dict[int, Any]) -> InterpreterError:
    notes = []
    for e in live:
        request = waiting[e.number]
        where = statement_text(clock.sites[request.site])
        notes.append(f"engine {e.number} waits for a token of engine {request.data} at: {where}")
    return InterpreterError("deadlock", "deadlock: no engine can continue", notes)
