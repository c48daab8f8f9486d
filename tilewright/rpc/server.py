"""The server: one session at a time, each in a process of its own, so that a crash ends only the session."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
import uuid
from typing import Any

from .base import PROTOCOL, Connection, RPCError, listen
from .process import Process
from .worker import Worker

__all__ = ["Server", "main"]


class Server(Process):
    """A server in a process of its own, at the first free port from `port` up to `port_end`.

    It runs what it is sent: it listens on loopback unless `host` says otherwise. With `tracker_addr` it is found by its
    `key`; `load_library` are files that are loaded first, so that their functions are there.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9091,
        port_end: int = 9199,
        is_proxy: bool = False,
        tracker_addr: tuple[str, int] | None = None,
        key: str = "",
        load_library: str | None = None,
        custom_addr: str | None = None,
        silent: bool = False,
        no_fork: bool = False,
        **_: Any,
    ) -> None:
        if is_proxy:
            raise RPCError(
                "rpc.Server(is_proxy=True): there are no proxies; let the server be reached itself"
            )
        given = ["--host", host, "--port", str(port), "--port-end", str(port_end), "--key", key]
        if tracker_addr is not None:
            given += ["--tracker", f"{tracker_addr[0]}:{tracker_addr[1]}"]
        if load_library:
            given += ["--load-library", load_library]
        if custom_addr:
            given += ["--custom-addr", custom_addr]
        super().__init__("tilewright.exec.rpc_server", given)
        self.host, self.key = host, key


class _Serving:
    """The loop of a server."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        self._listening = listen(given.host, given.port, given.port_end)
        self.port: int = self._listening.getsockname()[1]
        self._watched = [sys.stdin] if given.child else []
        self._tracker: Connection | None = None
        self._match = given.key

    def run(self) -> None:
        """Take sessions, one after the other, until the process that started this one is gone."""
        while True:
            self._offer()
            ready = select.select([self._listening, *self._watched], [], [])[0]
            if self._listening not in ready:
                return
            sock, where = self._listening.accept()
            connection = Connection(sock, f"{where[0]}:{where[1]}")
            child = os.fork()
            if child == 0:
                self._listening.close()
                os._exit(_session(connection, self._match))
            connection.close()
            if not self._ended(child):
                return

    def _offer(self) -> None:
        """Tell the tracker that this server is free, for the next who asks."""
        if self._given.tracker is None:
            return
        host, _, port = self._given.tracker.rpartition(":")
        if self._tracker is None:
            self._tracker = Connection.to(host, int(port))
        self._match = f"{self._given.key}:{uuid.uuid4().hex}"
        named = self._given.custom_addr or None
        offer = {"do": "put", "key": self._given.key, "port": self.port, "match": self._match, "host": named}
        self._tracker.send(offer)
        self._tracker.receive()

    def _ended(self, child: int) -> bool:
        """Wait for a session; False when this process has to end before it. However it ends, the session does not
        outlive it."""
        over = False
        try:
            while not over:
                over = os.waitpid(child, os.WNOHANG)[0] != 0
                if not over and select.select(self._watched, [], [], 0.02)[0]:
                    return False
            return True
        finally:
            if not over:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)


def _session(connection: Connection, match: str) -> int:
    """Serve one connection to its end."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        hello, _ = connection.receive()
        if hello.get("hello") != PROTOCOL or hello.get("key") != match:
            why = (
                "the key is not that of this server" if hello.get("hello") == PROTOCOL else "another version"
            )
            connection.send({"error": {"kind": "RPCError", "text": why}})
            return 1
        if hello.get("timeout"):
            signal.setitimer(signal.ITIMER_REAL, float(hello["timeout"]))
        connection.send({"ok": None})
        worker = Worker()
        try:
            while True:
                _answer(connection, worker)
        finally:
            worker.close()
    except RPCError:  # the other side has gone
        return 0


def _answer(connection: Connection, worker: Worker) -> None:
    message, parts = connection.receive()
    try:
        result, back = worker.answer(message, parts)
    except Exception as error:  # whatever it is, it is about the request
        connection.send({"error": {"kind": type(error).__name__, "text": str(error)}})
        return
    connection.send({"ok": result}, back)


def main(argv: list[str] | None = None) -> None:
    """The command line of a server."""
    parser = argparse.ArgumentParser("rpc_server", description="Run what is sent from other machines.")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; 0.0.0.0 is everywhere")
    parser.add_argument("--port", type=int, default=9090)
    parser.add_argument("--port-end", type=int, default=9199)
    parser.add_argument("--tracker", help="HOST:PORT of the tracker that hands this server out")
    parser.add_argument("--key", default="", help="what sort of machine this is, for the tracker")
    parser.add_argument("--custom-addr", help="under which name others reach this machine")
    parser.add_argument("--load-library", help="libraries to load first, with colons between")
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    for file in (given.load_library or "").split(":"):
        if file:
            from ..runtime.module import load_module

            load_module(file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    serving = _Serving(given)
    print(serving.port if given.child else f"listening on {given.host}:{serving.port}", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        serving.run()
