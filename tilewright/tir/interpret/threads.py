"""Concurrency: threads of a GPU kernel, iterations of a parallel loop, and their races.

A kernel is run as one generator for each thread of a block. A thread runs until it must wait for
others (a barrier, a shuffle, a cross-thread reduction); when all wait, the requests are served:

    thread 0   ──────── S[0] = … ──┐            ┌── … = S[1] ─────▶
    thread 1   ──────── S[1] = … ──┤  barrier   ├── … = S[0] ─────▶
                    one segment    └────────────┘   the next one

Within a segment two threads must not access one location if one of them writes it. Blocks of a launch are unordered, so
between them this holds for the whole launch; those of a cluster run together, and only cluster barriers order their
accesses. Virtual threads belong to one thread: they run one after the other in each
segment and do not race with each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .report import InterpreterError, statement_text

if TYPE_CHECKING:
    from .memory import Memory

_WARP = 32
Program = Generator[Any, Any, None]


class Stamp:
    """The thread of an access (of block `rank` of its cluster) and the segment between barriers."""

    __slots__ = ("block", "cluster_epoch", "epoch", "label", "rank", "thread", "warp", "warp_epoch")

    def __init__(self, block: int, thread: int, label: str, warp: int = 0, rank: int = 0) -> None:
        self.block, self.thread, self.label, self.warp, self.rank = block, thread, label, warp, rank
        self.epoch = self.warp_epoch = self.cluster_epoch = 0

    def after(self, *, warp_only: bool, cluster: bool = False) -> Stamp:
        """The same thread after a barrier."""
        made = Stamp(self.block, self.thread, self.label, self.warp, self.rank)
        made.epoch, made.warp_epoch = self.epoch + (not warp_only), self.warp_epoch + 1
        made.cluster_epoch = self.cluster_epoch + cluster
        return made


def _at_once(a: Stamp, b: Stamp) -> bool:
    """Whether the accesses of two stamps are concurrent."""
    if a.block != b.block:
        return True
    if a.rank != b.rank:
        return a.cluster_epoch == b.cluster_epoch
    if a.thread == b.thread or a.epoch != b.epoch:
        return False
    return a.warp != b.warp or a.warp_epoch == b.warp_epoch


class Clock:
    """The current thread, and the logs since the last barrier of all threads."""

    __slots__ = ("log_type", "logs", "pending", "pending_in", "sites", "stamp")

    def __init__(self, sites: list[Any]) -> None:
        self.log_type: type[AccessLog] = AccessLog
        self.stamp: Stamp = Stamp(0, 0, "")
        self.logs: list[AccessLog] = []
        self.sites = sites  # the statement of each access that is logged
        # a read of uninitialized memory that another thread may still write
        self.pending: InterpreterError | None = None
        self.pending_in: AccessLog | None = None  # the log of the memory of that read

    def settle(self, first: int = 0) -> None:
        """End a segment: a pending read of uninitialized memory becomes an error.

        Only for memories whose logs come from `first` on: others may still be written by other threads.
        """
        if self.pending is not None and self.pending_in in self.logs[first:]:
            raise self.pending

    def forget(self) -> None:
        """All threads have synchronized: no earlier access is concurrent with a later one."""
        for log in self.logs:
            log.writes.clear()
            log.reads.clear()

    def iterations(self, name: str, start: int, stop: int) -> Iterator[int]:
        """The iterations of a parallel loop, each as a thread of its own."""
        before = self.stamp
        try:
            for i in range(start, stop):
                self.stamp = Stamp(i, 0, f"iteration {name} = {i}")
                yield i
            self.settle()
        finally:
            self.stamp = before
            self.forget()


class AccessLog:
    """For each cell of a memory: the last write, and two readers with which any later writer that races
    with a reader at all races too."""

    __slots__ = ("clock", "memory", "reads", "writes")

    def __init__(self, clock: Clock, memory: Memory) -> None:
        self.clock, self.memory = clock, memory
        self.writes: dict[int, tuple[Stamp, int, bool]] = {}
        self.reads: dict[int, tuple[Stamp, int, Stamp | None, int]] = {}
        clock.logs.append(self)

    def read(self, cell: int, site: int) -> bool:
        """Record a read; returns True, for use in a condition."""
        now = self.clock.stamp
        write = self.writes.get(cell)
        if write is not None and write[0] is not now and _at_once(write[0], now):
            self._race(cell, (write[0], write[1], "writes"), (now, site, "reads"))
        readers = self.reads.get(cell)
        if readers is None:
            self.reads[cell] = (now, site, None, 0)
        elif readers[0] is not now and readers[2] is not now and readers[0].block == now.block:
            self.reads[cell] = _with_reader(readers, now, site)
        # a reader of an earlier block races with every later writer
        return True

    def write(self, cell: int, site: int, atomic: bool = False) -> bool:
        """Record a write; two atomic writes do not race."""
        now = self.clock.stamp
        write = self.writes.get(cell)
        if write is not None and write[0] is not now and _at_once(write[0], now):
            if not (atomic and write[2]):
                self._race(cell, (write[0], write[1], "writes"), (now, site, "writes"))
        readers = self.reads.get(cell)
        if readers is not None:
            first, where, second, there = readers
            if first is not now and _at_once(first, now):
                self._race(cell, (first, where, "reads"), (now, site, "writes"))
            if second is not None and second is not now and _at_once(second, now):
                self._race(cell, (second, there, "reads"), (now, site, "writes"))
        self.writes[cell] = (now, site, atomic)
        return True

    def unwritten(self, cell: int, site: int) -> bool:
        """Record a read of an uninitialized cell: a race if another thread writes it in this segment, else an error at
        the end of the segment."""
        if self.clock.pending is None:
            from .memory import element_name

            what = f"read of {element_name(self.memory, cell)}, which nothing wrote before"
            note = f"{self.clock.stamp.label} reads it"
            self.clock.pending = InterpreterError("unwritten", f"unwritten memory: {what}", [note])
            self.clock.pending.statement = self.clock.sites[site]
            self.clock.pending_in = self
        return True

    def read_span(self, cell: int, count: int, site: int) -> bool:
        """Record a read of several cells."""
        return all(self.read(c, site) for c in range(cell, cell + count))

    def write_span(self, cell: int, count: int, site: int, atomic: bool = False) -> bool:
        """Record a write of several cells."""
        return all(self.write(c, site, atomic) for c in range(cell, cell + count))

    def _race(self, cell: int, *sides: tuple[Stamp, int, str]) -> None:
        from .memory import element_name

        notes = [
            f"{stamp.label} {does} it in: {statement_text(self.clock.sites[site])}"
            for stamp, site, does in sides
        ]
        between, why = self._between(sides[0][0].label)
        scope = "" if self.memory.scope == "global" else f" ({self.memory.scope} memory)"
        raise InterpreterError(
            "race", f"race: two {between} access {element_name(self.memory, cell)}{scope}{why}", notes
        )

    def _between(self, label: str) -> tuple[str, str]:
        """Who races, and what would have ordered them."""
        if label.startswith("iteration"):
            return "iterations of a parallel loop", ""
        return "threads", " with no barrier between"


def _with_reader(
    readers: tuple[Stamp, int, Stamp | None, int], now: Stamp, site: int
) -> tuple[Stamp, int, Stamp | None, int]:
    """The readers to keep once a thread of the same block reads too.

    Two of different warps, or two threads of one warp between the same barriers, represent all others: no later writer
    is ordered after both. Reads before the last barrier are dropped.
    """
    first, where, second, _ = readers
    if first.epoch != now.epoch and (first.rank == now.rank or first.cluster_epoch != now.cluster_epoch):
        return (now, site, None, 0)
    if second is not None and first.warp != second.warp:
        return readers
    if first.warp != now.warp:
        return (first, where, now, site)
    if first.warp_epoch != now.warp_epoch or first.thread == now.thread:
        return (now, site, None, 0)
    return readers if second is not None else (first, where, now, site)


# ---------------------------------------------------------------------------- kernels
class Thread:
    """One thread of a block: its coordinates, and the memory it shares with others."""

    __slots__ = ("at", "block", "cluster", "stamp")

    def __init__(
        self, at: dict[str, int], stamp: Stamp, block: dict[Any, Any], cluster: dict[Any, Any]
    ) -> None:
        self.at, self.stamp, self.block, self.cluster = at, stamp, block, cluster

    def shared(self, key: Any, make: Callable[..., Any], *args: Any) -> Any:
        """The memory of an allocation that the threads of the block share; the first one allocates it."""
        found = self.block.get(key)
        if found is None:
            found = self.block[key] = make(*args)
        return found

    def cluster_shared(self, key: Any, make: Callable[..., Any], *args: Any) -> Any:
        """The memory of an allocation that the blocks of a cluster share; the first thread allocates it."""
        found = self.cluster.get(key)
        if found is None:
            found = self.cluster[key] = make(*args)
        return found

    def warp_shared(self, key: int, make: Callable[..., Any], *args: Any) -> Any:
        """The memory of an allocation that the threads of a warp share."""
        return self.shared((key, self.stamp.warp), make, *args)


def _coordinates(extents: dict[str, int], prefix: str) -> list[dict[str, int]]:
    """All points of the grid or of a block, x running fastest."""
    tags = [f"{prefix}.{axis}" for axis in "zyx" if f"{prefix}.{axis}" in extents]
    points = itertools.product(*(range(extents[t]) for t in tags))
    return [dict(zip(reversed(tags), reversed(p), strict=True)) for p in points]


def _label(at: dict[str, int]) -> str:
    return "thread (" + ", ".join(f"{tag} = {value}" for tag, value in at.items()) + ")"


def launch(clock: Clock, kernel: Callable[[Thread], Program], extents: dict[str, int]) -> None:
    """Run a kernel: block by block, the threads of each in lockstep between barriers; the blocks of a cluster
    together."""
    before = clock.stamp
    inner, ranks = _coordinates(extents, "threadIdx"), _coordinates(extents, "clusterCtaIdx")
    warps = -(-len(inner) // _WARP)
    for number, block_at in enumerate(_coordinates(extents, "blockIdx")):
        cluster: dict[Any, Any] = {}
        threads = []
        for rank, rank_at in enumerate(ranks):
            shared: dict[Any, Any] = {}
            for linear, thread_at in enumerate(inner):
                at = {**block_at, **rank_at, **thread_at}
                stamp = Stamp(
                    number, rank * len(inner) + linear, _label(at), rank * warps + linear // _WARP, rank
                )
                threads.append(Thread(at, stamp, shared, cluster))
        known = len(clock.logs)
        _run_block(clock, threads, [kernel(t) for t in threads], known)
        clock.settle(known)
        del clock.logs[known:]  # those of the block's shared memory
    clock.settle()
    clock.stamp = before
    clock.forget()


class Request:
    """A request that a thread waits for. `kind` is sync, cluster-sync, warp-sync, shuffle or reduce; `site` its
    statement."""

    __slots__ = ("data", "kind", "site")

    def __init__(self, kind: str, site: int, data: Any = None) -> None:
        self.kind, self.site, self.data = kind, site, data


def _run_block(clock: Clock, threads: Sequence[Thread], programs: Sequence[Program], known: int) -> None:
    waiting: list[Request | None] = [None] * len(threads)

    def resume(i: int, value: Any) -> None:
        clock.stamp = threads[i].stamp
        waiting[i] = None
        try:
            waiting[i] = programs[i].send(value)
        except StopIteration:
            pass
        except (InterpreterError, ArithmeticError, IndexError) as error:
            # Errors that follow from an uninitialized value are not the cause: the thread stops, and the
            # others show whether one of them writes it.
            if clock.pending is None or getattr(error, "kind", "") == "race":
                raise

    for i in range(len(threads)):
        resume(i, None)
    while any(w is not None for w in waiting):
        if _answer_warps(threads, waiting, resume):
            continue
        first = waiting[0]
        if any(w is None or first is None or w.site != first.site for w in waiting):
            if clock.pending is not None:
                return  # a thread stopped because of it; the end of the segment reports it
            raise _divergence(clock, threads, waiting)
        assert first is not None
        clock.settle(known)
        if first.kind == "reduce":
            answers = _reduce(threads, waiting)
        else:
            answers = [None] * len(threads)
            for t in threads:
                t.stamp = t.stamp.after(warp_only=False, cluster=first.kind == "cluster-sync")
        for i, answer in enumerate(answers):
            resume(i, answer)


def _answer_warps(
    threads: Sequence[Thread], waiting: list[Request | None], resume: Callable[[int, Any], None]
) -> bool:
    """Serve the requests that need only the threads of a warp; returns whether there were any."""
    progress = False
    end = 0
    while end < len(threads):
        start = end
        while end < len(threads) and threads[end].stamp.warp == threads[start].stamp.warp:
            end += 1
        members = range(start, end)
        first = waiting[start]
        if first is None or first.kind not in ("warp-sync", "shuffle"):
            continue
        if any(w is None or w.site != first.site for w in (waiting[i] for i in members)):
            continue
        if first.kind == "shuffle":
            answers = _shuffle([waiting[i] for i in members])
        else:
            answers = [None] * len(members)
        for i in members:
            threads[i].stamp = threads[i].stamp.after(warp_only=True)
        for i, answer in zip(members, answers, strict=True):
            resume(i, answer)
        progress = True
    return progress


def _shuffle(requests: Sequence[Any]) -> list[Any]:
    """Each lane's value from its source lane; its own if that is outside of its segment of the warp."""
    values = [r.data[1] for r in requests]
    out = []
    for lane, request in enumerate(requests):
        how, own, by, width = request.data
        base = lane // width * width
        source = {"idx": base + by % width, "up": lane - by, "down": lane + by}[how]
        inside = base <= source < min(base + width, len(values))
        out.append(values[source] if inside else own)
    return out


def _reduce(threads: Sequence[Thread], waiting: Sequence[Any]) -> list[Any]:
    """The reduction over the threads that differ only along the reduced axes, for each of them."""
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, t in enumerate(threads):
        tags = waiting[i].data[3]
        key = tuple(v for tag, v in t.at.items() if tag not in tags)
        groups.setdefault(key, []).append(i)
    answers: list[Any] = [None] * len(threads)
    for members in groups.values():
        combine, total = waiting[members[0]].data[0], waiting[members[0]].data[4]
        for i in members:
            _, values, holds, _, _ = waiting[i].data
            if holds:
                total = combine(*total, *values)
        for i in members:
            answers[i] = total
    return answers


def _divergence(
    clock: Clock, threads: Sequence[Thread], waiting: Sequence[Request | None]
) -> InterpreterError:
    """The report of a barrier that some threads of a block reach and others do not."""
    seen: dict[Any, str] = {}
    for thread, request in zip(threads, waiting, strict=True):
        place = None if request is None else request.site
        if place not in seen:
            does = (
                "has ended" if request is None else f"waits at: {statement_text(clock.sites[request.site])}"
            )
            seen[place] = f"{thread.stamp.label} {does}"
    return InterpreterError(
        "barrier", "barrier divergence: not all threads of a block reach the same barrier", seen.values()
    )


def lockstep(programs: Sequence[Program]) -> Program:
    """Virtual threads of one thread: each runs to its next barrier, then the thread waits there once."""
    live: list[Program] = list(programs)
    answer: Any = None
    while True:
        requests: list[Any] = []
        for p in live:
            try:
                requests.append(p.send(answer))
            except StopIteration:
                requests.append(None)
        if all(r is None for r in requests):
            return
        first = requests[0]
        if any(r is None or first is None or r.site != first.site for r in requests):
            raise InterpreterError(
                "barrier", "barrier divergence: not all virtual threads reach the same barrier"
            )
        if first.kind != "sync" and first.kind != "warp-sync":
            raise InterpreterError("unsupported", f"a {first.kind} across threads inside a virtual thread")
        answer = yield first
