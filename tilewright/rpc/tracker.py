"""The tracker: servers say that they are free, and those who ask get them in turn."""

from __future__ import annotations

import argparse
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

from .base import Connection, RPCError, listen
from .process import Process

__all__ = ["Tracker", "main"]


class Tracker(Process):
    """A tracker in a process of its own, at the first free port from `port` up to `port_end`."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 9190,
        port_end: int = 9299,
        silent: bool = False,
        **_: Any,
    ) -> None:
        super().__init__(
            "tilewright.exec.rpc_tracker", ["--host", host, "--port", str(port), "--port-end", str(port_end)]
        )
        self.host = host


class _State:
    """Which servers there are, which are free, and who waits for one."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._servers: dict[int, dict[str, Any]] = {}  # by their connection
        self._free: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        self._waiting: dict[str, list[tuple[int, int]]] = {}  # by what comes first: priority, then turn
        self._turn = 0

    def serve(self, connection: Connection, host: str, number: int) -> None:
        """Answer one connection to its end."""
        asks: dict[Any, Callable[..., Any]] = {
            "put": self._put,
            "request": self._request,
            "summary": self._summary,
        }
        try:
            while True:
                message, _ = connection.receive()
                ask = asks.get(message.get("do"))
                if ask is None:
                    return
                connection.send({"ok": ask(message, host, number)})
        except RPCError:
            pass
        finally:
            self._gone(number)
            connection.close()

    def _put(self, message: dict[str, Any], host: str, number: int) -> None:
        key = message["key"]
        place = {"host": message.get("host") or host, "port": message["port"], "match": message["match"]}
        with self._changed:
            self._servers[number] = {"addr": f"{place['host']}:{place['port']}", "key": f"server:{key}"}
            self._free.setdefault(key, []).append((number, place))
            self._changed.notify_all()

    def _request(self, message: dict[str, Any], host: str, number: int) -> dict[str, Any]:
        key = message["key"]
        with self._changed:
            self._turn += 1
            mine = (-int(message.get("priority", 1)), self._turn)
            waiting = self._waiting.setdefault(key, [])
            waiting.append(mine)
            try:
                while not (self._free.get(key) and min(waiting) == mine):
                    self._changed.wait()
                return self._free[key].pop(0)[1]
            finally:
                waiting.remove(mine)
                self._changed.notify_all()

    def _summary(self, message: dict[str, Any], host: str, number: int) -> dict[str, Any]:
        with self._changed:
            keys = sorted({*self._free, *self._waiting})
            return {
                "queue_info": {
                    k: {"free": len(self._free.get(k, ())), "pending": len(self._waiting.get(k, ()))}
                    for k in keys
                },
                "server_info": list(self._servers.values()),
            }

    def _gone(self, number: int) -> None:
        with self._changed:
            self._servers.pop(number, None)
            for free in self._free.values():
                free[:] = [entry for entry in free if entry[0] != number]


def _accept(listening: socket.socket) -> None:
    state, number = _State(), 0
    while True:
        sock, where = listening.accept()
        number += 1
        connection = Connection(sock, f"{where[0]}:{where[1]}")
        threading.Thread(target=state.serve, args=(connection, where[0], number), daemon=True).start()


def main(argv: list[str] | None = None) -> None:
    """The command line of a tracker."""
    parser = argparse.ArgumentParser("rpc_tracker", description="Hand servers out to those who ask.")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen; 0.0.0.0 is everywhere")
    parser.add_argument("--port", type=int, default=9190)
    parser.add_argument("--port-end", type=int, default=9299)
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    listening = listen(given.host, given.port, given.port_end)
    port = listening.getsockname()[1]
    print(port if given.child else f"listening on {given.host}:{port}", flush=True)
    accepting = threading.Thread(target=_accept, args=(listening,), daemon=True)
    accepting.start()
    try:
        if given.child:
            sys.stdin.read()  # until the process that started this one is gone
        else:
            accepting.join()
    except KeyboardInterrupt:
        pass
