"""Engines of an accelerator that run side by side, in cycles: command queues, tokens and one DRAM port.

    program ──▶ fetch ──▶ queue ──▶ engine 1 ──┐ tokens ▲
                  │  └──▶ queue ──▶ engine 2 ◀─┘────────┘      each engine: one instruction at a time, in order
                  └─────▶ queue ──▶ engine 3 …
                                        └──▶ one DRAM port, which all share

The rules, which hold for every chip that is described this way:

- The fetch unit puts one instruction a cycle into the queue of its engine, in program order. A full queue stalls it.
  An instruction leaves its queue when it starts.
- An instruction starts when its engine is idle and there is a token from each engine that it waits for; it takes the
  tokens. When it is done it sends its own; where a token queue is full, its engine waits.
- A transfer occupies the DRAM port for `rows * row_cycles + ceil(bytes / bytes_per_cycle)` cycles, which begin
  `latency` cycles after the start of the instruction, or later when the port is free. So latency overlaps with the data
  of other engines.

Everything is determined by the program: where two engines want the port in the same cycle, the lower number is first.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from .errors import TVMError

EMPTY_QUEUE: Final = "empty queue"
DRAM_PORT: Final = "DRAM port"


class DeadlockError(TVMError):
    """A program whose engines wait for tokens that no engine sends."""


class Work(NamedTuple):
    """An instruction as the engines see it: the tokens that it waits for, its time, and the tokens that it sends.

    A transfer has `rows` and bytes; `cycles` are those of the engine itself, after the transfer if there is one.
    """

    engine: int
    label: str
    cycles: int = 0
    read: int = 0
    written: int = 0
    rows: int = 0
    pops: tuple[int, ...] = ()
    pushes: tuple[int, ...] = ()
    execute: Callable[[], None] | None = None


class EngineModel(NamedTuple):
    """The figures of a chip: the names of its engines, the depths of its queues and its DRAM port."""

    names: Mapping[int, str]
    command_queue_depth: int = 512
    token_queue_depth: int = 512
    bytes_per_cycle: int = 8
    latency: int = 24
    row_cycles: int = 1


class Span(NamedTuple):
    """The cycles of an instruction in the timeline, from `start` to before `end`."""

    engine: int
    instruction: int
    label: str
    start: int
    end: int


class Trace(NamedTuple):
    """The result of a run. The busy cycles and the stalls of an engine add up to `cycles`.

    `stalls[engine]` has the causes: "token from X", "token queue to X", "DRAM port", and "empty queue", which includes
    the time after the last instruction.
    """

    cycles: int
    busy: dict[int, int]
    stalls: dict[int, dict[str, int]]
    bytes_read: int
    bytes_written: int
    port_cycles: int
    timeline: list[Span]
    tokens_left: dict[tuple[int, int], int]  # by (from, to); a program that ends cleanly leaves none

    def utilisation(self, engine: int) -> float:
        """The share of the cycles in which an engine is busy."""
        return self.busy[engine] / self.cycles if self.cycles else 0.0


def simulate(works: Sequence[Work], model: EngineModel) -> Trace:
    """Run a program to its end; raises `DeadlockError` if the engines come to a halt before."""
    return _Run(works, model).run()


class _Engine:
    """The state of an engine: the instructions before it, the one that it executes, and its accounts."""

    __slots__ = ("begun", "blocked", "busy", "current", "end", "free", "queue", "stalls")

    def __init__(self) -> None:
        self.queue: deque[tuple[int, int]] = deque()  # (number of the instruction, cycle of its arrival)
        self.current = -1
        self.begun = self.end = self.free = self.busy = 0
        self.blocked = 0  # the engine whose token queue was full
        self.stalls: dict[str, int] = {}

    def stall(self, cause: str, cycles: int) -> None:
        if cycles > 0:
            self.stalls[cause] = self.stalls.get(cause, 0) + cycles


class _Run:
    """A run: events are the cycles in which an instruction ends or arrives at an idle engine."""

    def __init__(self, works: Sequence[Work], model: EngineModel) -> None:
        self.works = works
        self.model = model
        self.engines = {number: _Engine() for number in sorted(model.names)}
        self.tokens: dict[tuple[int, int], deque[int]] = {}  # (from, to) -> cycles in which they were sent
        self.events: list[int] = []
        self.fetched = self.fetch_time = 0
        self.port_free = self.port_cycles = self.read = self.written = 0
        self.timeline: list[Span] = []
        for number, work in enumerate(works):
            for engine in (work.engine, *work.pops, *work.pushes):
                if engine not in self.engines:
                    raise ValueError(
                        f"instruction {number} ({work.label}) names engine {engine}; the chip has the engines "
                        + ", ".join(f"{n} {name}" for n, name in sorted(model.names.items()))
                    )

    def run(self) -> Trace:
        self._fetch(0)
        for engine in self.engines.values():
            self._wake(engine)
        now = 0
        while self.events:
            now = heapq.heappop(self.events)
            while self.events and self.events[0] == now:
                heapq.heappop(self.events)
            self._settle(now)
        if self.fetched < len(self.works) or any(e.queue or e.current >= 0 for e in self.engines.values()):
            raise DeadlockError(self._deadlock(now))
        cycles = max((e.free for e in self.engines.values()), default=0)
        for e in self.engines.values():
            e.stall(EMPTY_QUEUE, cycles - e.free)
        return Trace(
            cycles,
            {n: e.busy for n, e in self.engines.items()},
            {n: e.stalls for n, e in self.engines.items()},
            self.read,
            self.written,
            self.port_cycles,
            self.timeline,
            {pair: len(sent) for pair, sent in self.tokens.items() if sent},
        )

    def _fetch(self, now: int) -> None:
        """Fill the queues. An instruction can be placed ahead of time: only the fetch unit fills a queue, so that a
        place that is free now is free when the instruction arrives."""
        while self.fetched < len(self.works):
            engine = self.engines[self.works[self.fetched].engine]
            if len(engine.queue) >= self.model.command_queue_depth:
                return
            self.fetch_time = max(self.fetch_time + 1, now)
            engine.queue.append((self.fetched, self.fetch_time))
            self.fetched += 1
            if len(engine.queue) == 1 and engine.current < 0:
                self._wake(engine)

    def _wake(self, engine: _Engine) -> None:
        if engine.queue and engine.current < 0:
            heapq.heappush(self.events, max(engine.queue[0][1], engine.free))

    def _settle(self, now: int) -> None:
        """All that happens in a cycle: an end may send a token that lets another engine start."""
        changed = True
        while changed:
            changed = False
            for number, engine in self.engines.items():
                if engine.current >= 0 and engine.end <= now:
                    changed |= self._retire(number, engine, now)
            for number, engine in self.engines.items():
                if engine.current < 0 and engine.queue and engine.queue[0][1] <= now:
                    changed |= self._start(number, engine, now)

    def _retire(self, number: int, engine: _Engine, now: int) -> bool:
        """End an instruction, if there is room for its tokens."""
        work = self.works[engine.current]
        for to in work.pushes:
            queue = self.tokens.setdefault((number, to), deque())
            if len(queue) + work.pushes.count(to) > self.model.token_queue_depth:
                engine.blocked = to
                return False
        for to in work.pushes:
            self.tokens[number, to].append(now)
        if now > engine.end:
            engine.stall(f"token queue to {self.model.names[engine.blocked]}", now - engine.end)
        self.timeline.append(Span(number, engine.current, work.label, engine.begun, engine.end))
        engine.current, engine.free = -1, now
        self._wake(engine)
        return True

    def _start(self, number: int, engine: _Engine, now: int) -> bool:
        """Start the next instruction, if its tokens are there."""
        index, arrival = engine.queue[0]
        work = self.works[index]
        for source in work.pops:
            if len(self.tokens.get((source, number), ())) < work.pops.count(source):
                return False
        ready = max(arrival, engine.free)
        engine.stall(EMPTY_QUEUE, arrival - engine.free)
        for source in work.pops:
            sent = self.tokens[source, number].popleft()
            engine.stall(f"token from {self.model.names[source]}", sent - ready)
            ready = max(ready, sent)
        engine.queue.popleft()
        engine.current, engine.begun = index, now
        waited = 0
        engine.end = now + work.cycles
        if work.rows:
            data = now + self.model.latency
            begin = max(data, self.port_free)
            waited = begin - data
            cycles = (
                work.rows * self.model.row_cycles - -(work.read + work.written) // self.model.bytes_per_cycle
            )
            self.port_free = begin + cycles
            self.port_cycles += cycles
            self.read += work.read
            self.written += work.written
            engine.end = self.port_free + work.cycles
            engine.stall(DRAM_PORT, waited)
        engine.busy += engine.end - now - waited
        heapq.heappush(self.events, engine.end)
        if work.execute is not None:
            work.execute()
        if self.fetched < len(self.works):
            self._fetch(now)
        return True

    def _deadlock(self, now: int) -> str:
        """The report of a deadlock: which engine waits for whose token, since when and before which instruction."""
        names, lines = self.model.names, []
        for number, engine in self.engines.items():
            if engine.current >= 0:
                lines.append(
                    f"{names[number]}: instruction {engine.current} ({self.works[engine.current].label}) has been done "
                    f"since cycle {engine.end}, and its token does not fit the full token queue to "
                    f"{names[engine.blocked]} (depth {self.model.token_queue_depth})"
                )
            elif engine.queue:
                index, arrival = engine.queue[0]
                work = self.works[index]
                missing = next(
                    s for s in work.pops if len(self.tokens.get((s, number), ())) < work.pops.count(s)
                )
                lines.append(
                    f"{names[number]}: instruction {index} ({work.label}) waits for a token from {names[missing]} "
                    f"since cycle {max(arrival, engine.free)}"
                )
            else:
                lines.append(f"{names[number]}: idle since cycle {engine.free}, its queue is empty")
        if self.fetched < len(self.works):
            work = self.works[self.fetched]
            lines.append(
                f"fetch: instruction {self.fetched} ({work.label}) waits for a place in the full command queue of "
                f"{names[work.engine]} (depth {self.model.command_queue_depth})"
            )
        lines.append(
            "each token that an instruction waits for must be sent by an instruction that can run before it; look for "
            "a push that is missing, or for two engines that wait for each other"
        )
        return "\n  ".join([f"deadlock in cycle {now}: no engine can continue", *lines])
