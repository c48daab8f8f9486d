"""The tracker: it assigns free servers to clients in turn."""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
import time
from typing import Any

from .access import Access, add_listening_options
from .base import PATIENCE, listen
from .hub import Hub, Peer
from .process import Process, started
from .registry import Answer, Registry

_MOST = 4096  # connections: servers, waiting clients, and clients that may send another request
_LONGEST_WAIT = 60.0  # longest wait of the loop for an event, in seconds


class Tracker(Process):
    """A tracker in a process of its own, at the first free port from `port` up to `port_end`.

    It listens on `host`, loopback by default; `access` is the shared secret and TLS.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9190,
        port_end: int = 9299,
        silent: bool = False,
        access: Access | None = None,
        greeting_limit: float = PATIENCE,
        **_: Any,
    ) -> None:
        given = ["--host", host, "--port", str(port), "--port-end", str(port_end)]
        given += ["--greeting-limit", str(greeting_limit)]
        super().__init__("rpc_tracker", given + ["--silent"] * silent, access)


class _Tracking:
    """The loop of a tracker."""

    def __init__(self, given: argparse.Namespace) -> None:
        access = Access.of(given)
        listening = listen(given.host, given.port, given.port_end)
        self.host, self.port, self.closed = given.host, listening.getsockname()[1], access.closed
        self._registry, self._over = Registry(), False
        self._hub = Hub(listening, access, "tracker", self._opened, self._heard, self._gone, _MOST, given)
        if given.child:
            self._hub.watch(sys.stdin, self._end)

    def run(self) -> None:
        """Serve until the parent process is gone."""
        while not self._over:
            answers, wait = self._registry.tick(time.monotonic())
            self._send_answers(answers)
            self._hub.step(min(wait, _LONGEST_WAIT))

    def _end(self) -> None:
        self._over = True

    def _opened(self, peer: Peer, message: dict[str, Any]) -> None:
        self._hub.send(peer, {"ok": None})

    def _heard(self, peer: Peer, message: dict[str, Any]) -> None:
        self._send_answers(self._registry.handle(peer, peer.host, message, time.monotonic()))
        peer.stage = self._registry.role(peer)

    def _gone(self, peer: Peer) -> None:
        self._send_answers(self._registry.disconnected(peer, time.monotonic()))

    def _send_answers(self, answers: list[Answer]) -> None:
        for peer, answer in answers:
            peer.stage = self._registry.role(peer)
            self._hub.send(peer, answer)


def main(argv: list[str] | None = None) -> None:
    """The command line of a tracker."""
    parser = argparse.ArgumentParser(
        "rpc_tracker", description="Assign servers to the clients that request them."
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="the address to listen on; 0.0.0.0 means all addresses"
    )
    parser.add_argument("--port", type=int, default=9190)
    parser.add_argument("--port-end", type=int, default=9299)
    add_listening_options(parser)
    given = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    tracking = started("rpc_tracker", given.child, lambda: _Tracking(given))
    with contextlib.suppress(KeyboardInterrupt):
        tracking.run()
