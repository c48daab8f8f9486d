"""Child processes of a server."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys


class Child:
    """A process that this one has forked; it may lead a group, of what it has started itself."""

    def __init__(self, pid: int) -> None:
        self.pid, self._status = pid, None if pid else 0

    def ended(self) -> bool:
        """Whether it has ended."""
        return self._wait(os.WNOHANG)

    def kill(self) -> None:
        """Have it ended at once, with its group; that of a child which has ended may still be there."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> int:
        """Kill it, and wait for it: its exit status, or below 0 the signal that has ended it."""
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
    """Have the system end this process with its parent, however that ends; where there is such a thing."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
