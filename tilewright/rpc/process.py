"""Servers and trackers run in processes of their own, which end with the one that started them."""

from __future__ import annotations

import atexit
import subprocess
import sys
from typing import Any

from .base import RPCError

__all__ = ["Process"]


class Process:
    """A process that has said at which port it listens."""

    def __init__(self, module: str, arguments: list[str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, "--child"],
            stdin=subprocess.PIPE,  # closed when this process ends, however it does
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.strip().isdigit():
            self.terminate()
            raise RPCError(f"{module}: it did not start; what it said stands above")
        self.port = int(line)
        atexit.register(self.terminate)

    def terminate(self) -> None:
        """End it."""
        atexit.unregister(self.terminate)
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.terminate()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        self.terminate()
