"""Processes that may die: each is started anew for the next piece of work, and none outlives this one.

They are started by name, neither forked nor with a copy of the main program: a script may tune without a guard around
its main part, and compiled code that crashes cannot harm it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from ..errors import MachineError

_START_SECONDS = 120.0
_CHANCES = 3  # attempts to start a process
_PATIENCE = 8.0  # the limit of wall time, as a multiple of the limit of processor time
_TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Died(Exception):
    """A process ended before it answered; the text says how."""


class Overdue(Exception):
    """A process did not answer in time, and was ended."""


class Worker:
    """A process that answers one request after another.

    A limit counts processor time, so that a loaded machine makes nothing overdue. A process that only waits is overdue
    after `_PATIENCE` times the limit.
    """

    def __init__(
        self, role: str, settings: Sequence[str] = (), environment: Mapping[str, str] | None = None
    ) -> None:
        self.role, self.settings, self.environment = role, tuple(settings), dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._said: Any = None
        self.known: set[Any] = set()  # the data that the process has received since it started
        self.started = 0
        self._deadline: tuple[float, float, float] | None = None  # begin, processor time then, limit

    # -- life ------------------------------------------------------------------------------------
    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start the process if it is not running."""
        if self.alive and self._pipe is not None:
            return
        self.kill()
        try:
            self._begin()
        except OSError as error:  # no memory, no room, too many files or processes
            raise MachineError(
                f"a process that {self.role}s candidates could not be started: {error}; end others, or let fewer build"
            ) from None
        self.known = set()
        self.started += 1
        self._watch(_START_SECONDS)

    def _begin(self) -> None:
        ours, theirs = socket.socketpair()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - read when the process has died
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **self.environment}
        environment["PYTHONPATH"] = os.pathsep.join(p or os.getcwd() for p in sys.path)
        command = [
            sys.executable,
            "-m",
            "tilewright.tune.measure.worker",
            str(theirs.fileno()),
            str(os.getpid()),
            self.role,
        ]
        self._process = subprocess.Popen(
            [*command, *self.settings],
            pass_fds=(theirs.fileno(),),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        self._pipe = Connection(ours.detach())

    def greet(self) -> None:
        """Wait for the first message of a started process, which says that it is ready. Another is started if none
        comes."""
        for chance in range(_CHANCES, 0, -1):
            if "ready" in self.known:
                return
            try:
                self.start()
                self.receive()
                self.known.add("ready")
            except (Died, Overdue) as why:
                if chance == 1:
                    text = f"a process that {self.role}s candidates could not be started: {why}"
                    raise MachineError(text) from None

    def kill(self) -> None:
        """End the process and everything that it started."""
        process, self._process = self._process, None
        if self._pipe is not None:
            with contextlib.suppress(OSError):
                self._pipe.close()
            self._pipe = None
        if process is not None:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if self._said is not None:
            self._said.close()
            self._said = None
        self.known = set()

    # -- work ------------------------------------------------------------------------------------
    def send(self, message: Any, limit: float) -> None:
        """Send a request; its answer is due after `limit` seconds of work."""
        self.start()
        self.greet()
        assert self._pipe is not None
        try:
            self._pipe.send(message)
        except OSError:
            raise Died(self._obituary()) from None
        self._watch(limit)

    def receive(self) -> Any:
        """Wait for the answer; `Died` or `Overdue` if none comes."""
        assert self._pipe is not None
        while not self._ready(0.25):
            if self.overdue:
                limit = self._deadline[2] if self._deadline else 0.0
                self.kill()
                raise Overdue(f"no answer after {limit:g} s")
        try:
            return self._pipe.recv()
        except Exception:  # the end of the pipe, or garbage that broken code has written into it
            raise Died(self._obituary()) from None

    def ask(self, message: Any, limit: float) -> Any:
        self.send(message, limit)
        return self.receive()

    def _ready(self, seconds: float) -> bool:
        assert self._pipe is not None
        try:
            return self._pipe.poll(seconds)
        except OSError:
            return True

    @property
    def pipe(self) -> Connection:
        assert self._pipe is not None
        return self._pipe

    @property
    def overdue(self) -> bool:
        """Whether the answer to the last request is late."""
        if self._deadline is None:
            return False
        begin, used, limit = self._deadline
        now = time.monotonic() - begin
        if now <= limit:
            return False
        worked = self._processor_time()
        return now > _PATIENCE * limit or worked is None or worked - used > limit

    def _watch(self, limit: float) -> None:
        self._deadline = (time.monotonic(), self._processor_time() or 0.0, limit)

    def _processor_time(self) -> float | None:
        """The processor time of its busiest thread, in seconds; None if unknown."""
        if self._process is None:
            return None
        most = None
        try:
            for thread in os.listdir(f"/proc/{self._process.pid}/task"):
                with open(f"/proc/{self._process.pid}/task/{thread}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
                most = max(most or 0.0, (int(fields[11]) + int(fields[12])) / _TICKS)
        except (OSError, ValueError, IndexError):
            return most
        return most

    def _obituary(self) -> str:
        """How the process ended, and the last line of its stderr."""
        process, said = self._process, ""
        if process is None:
            return "the process is gone"
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        if self._said is not None:
            self._said.seek(0)
            said = self._said.read()[-2000:].decode(errors="replace").strip()
        code = process.returncode
        self.kill()
        if code is None:
            how = "the process broke off"
        elif code < 0:
            how = f"the process was ended by {_signal(-code)}"
        else:
            how = f"the process ended by itself with exit code {code}"
        return f"{how}: {said.splitlines()[-1]}" if said else how


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def first_ready(workers: Iterable[Worker], seconds: float) -> list[Worker]:
    """The workers that have answered within `seconds`, or else those that are overdue."""
    pending = list(workers)
    pipes = {w.pipe: w for w in pending}
    ready = [pipes[p] for p in wait(list(pipes), seconds)]  # type: ignore[index]
    return ready or [w for w in pending if w.overdue]
