"""Servers and trackers run in processes of their own, which end with the one that started them."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ..homes import home_of
from .access import Access, is_loopback
from .base import RPCError


class Process:
    """A process that has printed its address."""

    def __init__(self, program: str, arguments: list[str], access: Access | None) -> None:
        module = f"{home_of('programs').__name__}.{program}"
        more = access.environment() if access is not None else {}
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, "--child"],
            stdin=subprocess.PIPE,  # closed when this process ends, however it does
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **more},
        )
        assert self._process.stdout is not None
        host, _, port = self._process.stdout.readline().strip().partition(" ")
        if not port.isdigit():
            self.terminate()
            raise RPCError(f"{module}: the process did not start; its output is above")
        self.host, self.port = host, int(port)
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


class _Listening(Protocol):
    host: str
    port: int
    closed: bool  # whether clients must authenticate


_L = TypeVar("_L", bound=_Listening)


def started(program: str, child: bool, make: Callable[[], _L]) -> _L:
    """Start a server or tracker in its process, and print its address."""
    try:
        made = make()
    except RPCError as error:
        sys.exit(f"{program}: {error}")
    if not made.closed and not is_loopback(made.host):
        print(
            f"{program}: without a secret, anyone who can reach {made.host}:{made.port} can run any code as this user; "
            "use --secret-file FILE",
            file=sys.stderr,
            flush=True,
        )
    print(f"{made.host} {made.port}" if child else f"listening on {made.host}:{made.port}", flush=True)
    if child:
        os.dup2(2, 1)  # other output goes to stderr
    return made
