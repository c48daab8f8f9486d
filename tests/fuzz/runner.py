"""Run fuzzers for some minutes: `python -m fuzz [NAME …] [--minutes M] [--workers N] [--seed S]`.

Each fuzzer gets its share of the time, the longest first. The table at the end says how often each outcome was seen; what was
found follows with the command that shows it again. The exit status is 1 if anything was found.
"""

from __future__ import annotations

import argparse
import collections
import multiprocessing as mp
import os
import resource
import signal
import time
import traceback
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

from fuzz import Fuzzer, Outcome, fuzzers

_START = 120.0  # seconds for a worker to load what it needs


def main() -> int:
    known = fuzzers()
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Try to break tilewright.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which: {', '.join(known)} (default: all)")
    parser.add_argument("--minutes", type=float, default=10, help="for all of them together")
    parser.add_argument("--attempts", type=int, help="for each of them, instead of --minutes")
    parser.add_argument(
        "--short",
        type=int,
        metavar="SHARE",
        help="one of SHARE of the attempts that each asks for in the tests",
    )
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, help="the first seed (default: another one each time)")
    args = parser.parse_args()
    if unknown := [name for name in args.names if name not in known]:
        parser.error(f"there is no fuzzer {unknown[0]!r}; there are: {', '.join(known)}")
    chosen = [known[name] for name in args.names or known]
    first = args.seed if args.seed is not None else int(time.time()) * 1000
    chosen.sort(key=lambda f: -f.share)
    seconds = args.minutes * 60 * args.workers / sum(f.share for f in chosen)
    print(f"{len(chosen)} fuzzers, {args.workers} workers, seeds from {first}", flush=True)
    waiting, running, reports = list(chosen), [], []
    try:
        while waiting or running:
            while waiting and len(running) < args.workers:
                taken = waiting.pop(0)
                attempts = -(-taken.short // args.short) if args.short else args.attempts
                running.append(_Run(taken, first, seconds * taken.share, attempts))
            for run in running[:]:
                if run.step():
                    running.remove(run)
                    reports.append(run.report)
                    print(run.report.line(), flush=True)
            time.sleep(0.01)
    except KeyboardInterrupt:
        for run in running:
            run.end()
            reports.append(run.report)
    found = [text for report in reports for text in report.found]
    total = sum(report.attempts for report in reports)
    print(f"\n{total:,} attempts, {len(found)} found")
    for text in found:
        print("\n" + text)
    return 1 if found else 0


@dataclass
class _Report:
    fuzzer: Fuzzer
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    found: list[str] = field(default_factory=list)
    seconds: float = 0.0
    attempts: int = 0

    def count(self, outcome: Outcome) -> None:
        self.attempts += 1
        self.outcomes.update([outcome] if isinstance(outcome, str) else outcome)

    def add(self, seed: int, outcome: str, text: str) -> None:
        self.count(outcome)
        again = f"python -m fuzz {self.fuzzer.name} --attempts 1 --workers 1 --seed {seed}"
        if len(self.found) < 10:
            self.found.append(f"{self.fuzzer.name}: {outcome}\n  {again}\n{text}")

    def line(self) -> str:
        counts = ", ".join(f"{n:,} {outcome}" for outcome, n in self.outcomes.most_common())
        return f"{self.fuzzer.name:24} {self.attempts:>9,} attempts in {self.seconds:6.1f} s: {counts}"


class _Run:
    """One fuzzer at work in a process, which is started anew when an attempt has ended or blocked it."""

    def __init__(self, fuzzer: Fuzzer, seed: int, seconds: float, attempts: int | None):
        self.report = _Report(fuzzer)
        self.fuzzer, self.first, self.seed, self.attempts = fuzzer, seed, seed, attempts
        self.began = time.monotonic()
        self.until = float("inf") if attempts is not None else self.began + seconds
        self._start()

    def _start(self) -> None:
        self.pipe, theirs = mp.Pipe(duplex=False)
        left = None if self.attempts is None else self.first + self.attempts
        args = (self.fuzzer.name, self.seed, left, self.until, theirs)
        # A fork has the fuzzers loaded, and this process has no other thread.
        self.process = mp.get_context("fork").Process(target=_work, args=args, daemon=True)
        self.process.start()
        theirs.close()
        self.deadline, self.ready = time.monotonic() + _START, False

    def step(self) -> bool:
        """Take what the worker has said. True when its time is up."""
        try:
            while self.pipe.poll():
                kind, seed, text = self.pipe.recv()
                if kind == "start":
                    self.seed, self.ready = seed, True
                    self.deadline = time.monotonic() + self.fuzzer.seconds
                elif kind == "end":
                    self.seed = seed + 1
                    self.report.count(text)
                elif kind == "found":
                    self.seed = seed + 1
                    self.report.add(seed, "exception", text)
                else:
                    return self.end()
        except EOFError:
            self.process.join(5)
            return self._broken(_how_ended(self.process.exitcode))
        if time.monotonic() > self.deadline:
            return self._broken(f"no end after {self.fuzzer.seconds:g} s")
        return False

    def _broken(self, how: str) -> bool:
        self.report.add(self.seed, how, "")
        self.seed += 1
        self.end()
        done = self.attempts is not None and self.seed >= self.first + self.attempts
        if done or not self.ready or time.monotonic() > self.until:
            return True
        self._start()
        return False

    def end(self) -> bool:
        if self.process.is_alive():
            self.process.kill()
        self.process.join(5)
        self.pipe.close()
        self.report.seconds = time.monotonic() - self.began
        return True


def _how_ended(code: int | None) -> str:
    return (
        f"ended by {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
    )


def _work(name: str, seed: int, last: int | None, until: float, pipe: Connection) -> None:
    """The worker: attempts from a seed on, each announced before it is made."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    chosen = fuzzers()[name]
    limit = _address_space() + int(chosen.gib * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while (last is None or seed < last) and time.monotonic() < until:
        pipe.send(("start", seed, ""))
        try:
            pipe.send(("end", seed, chosen.run(seed)))
        except BaseException:
            pipe.send(("found", seed, traceback.format_exc(limit=-12)))
        seed += 1
    pipe.send(("done", seed, ""))


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
