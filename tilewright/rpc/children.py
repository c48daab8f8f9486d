"""Child processes of a server."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys


class Child:
    """A forked process; it may lead a process group."""

    def __init__(self, pid: int) -> None:
        self.pid, self._status = pid, None if pid else 0

    def ended(self) -> bool:
        """Whether it has ended."""
        return self._wait(os.WNOHANG)

    def kill(self) -> None:
        """Kill the child with its group, which may outlive it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill and reap the child; returns its exit status, or the negative number of the signal that ended it."""
        self.kill()
        self._wait(0)
        return self._status or 0

    def _wait(self, how: int) -> bool:
        if self._status is None:
            pid, status = os.waitpid(self.pid, how)
            if pid:
                self._status = os.waitstatus_to_exitcode(status)
        return self._status is not None


def die_with_parent() -> None:
    """Have the system kill this process with its parent, where that is supported."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
