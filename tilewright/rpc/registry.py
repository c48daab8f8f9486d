"""The state of a tracker: the servers, those that are free, the waiting clients, and the leases.

             request              the server says so
    free ──────────────▶ leased ─────────────────────▶ busy
     ▲ ▲                   │                            │
     │ └───────────────────┘ not taken in 10 s, given   │
     │                       back, or its client is gone│
     └──────────────────────────────────────────────────┘ the server says so

Nothing here blocks or sends: answers are returned with the peers that they are for. A peer is any hashable value; a
server is registered once, as long as its connection lasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .base import ProtocolError, RPCError, error_description

LEASE = 10.0  # seconds in which a client must use its lease
ABSENT = 30.0  # seconds after which a key that no server has is an error
_LONGEST = 256  # characters of keys, names of hosts and matches

Answer = tuple[Any, dict[str, Any]]


@dataclass(eq=False)
class _Server:
    peer: Any
    name: str  # chosen by the server's process
    key: str
    host: str
    port: int
    match: str
    busy: bool
    client: Any = None  # the client of the lease, until that confirms it
    until: float = 0.0  # the end of the lease

    def free(self, now: float) -> bool:
        return not self.busy and self.until <= now


@dataclass(eq=False)
class _Waiting:
    peer: Any
    key: str
    first: tuple[float, int]  # by what comes first: priority, then turn
    until: float
    wait: float
    absent: float  # since when no server has the key


class Registry:
    """The state of a tracker; `now` is a monotonic clock in seconds."""

    def __init__(self) -> None:
        self._servers: dict[Any, _Server] = {}  # by peer, least recently leased first
        self._waiting: dict[Any, _Waiting] = {}
        self._turn = 0

    def handle(self, peer: Any, host: str, message: dict[str, Any], now: float) -> list[Answer]:
        """Handle a request; returns the answers for this peer and others."""
        asks: dict[Any, Callable[..., list[Answer]]] = {
            "put": self._put,
            "request": self._request,
            "settle": self._settle,
            "summary": self._summary,
        }
        do = message.get("do")
        ask = asks.get(do) if isinstance(do, str) else None
        if ask is None:
            raise ProtocolError(f"a tracker has no request {str(do)[:40]!r}; it has: {', '.join(asks)}")
        if peer in self._waiting:
            raise ProtocolError("one request at a time: the last one still waits for a server")
        return ask(peer, host, message, now) + self._assign(now)

    def disconnected(self, peer: Any, now: float) -> list[Answer]:
        """Handle the end of a connection: remove the server or waiting client, and end its leases."""
        self._servers.pop(peer, None)
        self._waiting.pop(peer, None)
        for server in self._servers.values():
            if server.client is peer:
                server.client, server.until = None, 0.0
        return self._assign(now)

    def role(self, peer: Any) -> str:
        """The role of a peer for `Hub`: an "idle" one may be closed if there are too many."""
        held = any(s.client is peer for s in self._servers.values())
        return "in use" if held or peer in self._servers or peer in self._waiting else "idle"

    def tick(self, now: float) -> tuple[list[Answer], float]:
        """The answers that are due, and the seconds until the next deadline."""
        for server in self._servers.values():
            if server.client is not None and server.until <= now:
                server.client = None
        answers = self._assign(now)
        for waiting in list(self._waiting.values()):
            if any(s.key == waiting.key for s in self._servers.values()):
                waiting.absent = now
            elif now >= waiting.absent + ABSENT:
                answers.append(self._give_up(waiting, self._nobody(waiting.key)))
                continue
            if now >= waiting.until:
                answers.append(self._give_up(waiting, self._all_busy(waiting)))
        moments = [s.until for s in self._servers.values() if s.until > now]
        moments += [min(w.until, w.absent + ABSENT) for w in self._waiting.values()]
        return answers, max(0.0, min(moments, default=math.inf) - now)

    # -- requests --------------------------------------------------------------------------------
    def _put(self, peer: Any, host: str, message: dict[str, Any], now: float) -> list[Answer]:
        """Register a server with its address, and whether it is free; repeated registrations update it."""
        name, key, match = (_text(message, field) for field in ("name", "key", "match"))
        stated_host = host if message.get("host") is None else _text(message, "host")
        port, busy = message.get("port"), message.get("busy")
        if type(port) is not int or not 0 < port < 1 << 16:
            raise ProtocolError("put: `port` is not the number of a port")
        if not isinstance(busy, bool):
            raise ProtocolError("put: `busy` is neither true nor false")
        for other in [p for p, s in self._servers.items() if s.name == name and p is not peer]:
            del self._servers[other]  # it reconnected before the end of its last connection was detected
        before = self._servers.get(peer)
        made = _Server(peer, name, key, stated_host, port, match, busy)
        if before is not None and before.match == match and not busy:
            made.client, made.until = before.client, before.until
        self._servers[peer] = made
        return [(peer, {"ok": None})]

    def _request(self, peer: Any, host: str, message: dict[str, Any], now: float) -> list[Answer]:
        """Queue a client for a server of a key; it is answered when one is free."""
        key, self._turn = _text(message, "key"), self._turn + 1
        priority, wait = _number(message, "priority", 1), _number(message, "wait", math.inf)
        self._waiting[peer] = _Waiting(peer, key, (-priority, self._turn), now + wait, wait, now)
        return []

    def _settle(self, peer: Any, host: str, message: dict[str, Any], now: float) -> list[Answer]:
        """Handle a client's report on its lease: used, or not reached."""
        match = _text(message, "match")
        for server in list(self._servers.values()):
            if server.client is peer and server.match == match:
                server.client = None
                if message.get("taken") is not True:
                    server.until = 0.0
                    self._servers[server.peer] = self._servers.pop(server.peer)  # others first
        return [(peer, {"ok": None})]

    def _summary(self, peer: Any, host: str, message: dict[str, Any], now: float) -> list[Answer]:
        servers = list(self._servers.values())
        keys = sorted({s.key for s in servers} | {w.key for w in self._waiting.values()})
        queues = {
            key: {
                "free": sum(s.key == key and s.free(now) for s in servers),
                "pending": sum(w.key == key for w in self._waiting.values()),
            }
            for key in keys
        }
        about = [{"addr": f"{s.host}:{s.port}", "key": f"server:{s.key}"} for s in servers]
        return [(peer, {"ok": {"queue_info": queues, "server_info": about}})]

    # -- assignment ------------------------------------------------------------------------------
    def _assign(self, now: float) -> list[Answer]:
        """Assign free servers to waiting clients, the most urgent first."""
        answers: list[Answer] = []
        if not self._waiting:
            return answers
        free: dict[str, list[_Server]] = {}
        for server in self._servers.values():
            if server.free(now):
                free.setdefault(server.key, []).append(server)
        for waiting in sorted(self._waiting.values(), key=lambda w: w.first):
            if not (there := free.get(waiting.key)):
                continue
            server = there.pop(0)
            server.client, server.until = waiting.peer, now + LEASE
            del self._waiting[waiting.peer]
            self._servers[server.peer] = self._servers.pop(server.peer)
            place = {"host": server.host, "port": server.port, "match": server.match}
            answers.append((waiting.peer, {"ok": place}))
        return answers

    def _give_up(self, waiting: _Waiting, why: str) -> Answer:
        del self._waiting[waiting.peer]
        return waiting.peer, error_description(RPCError(why))

    def _nobody(self, key: str) -> str:
        there = ", ".join(sorted({repr(s.key) for s in self._servers.values()})) or "none"
        return (
            f"no server of the key {key!r} has registered in {ABSENT:g} s (keys of registered servers: {there}); start "
            f"one: python -m tilewright.exec.rpc_server --tracker HOST:PORT --key {key}"
        )

    def _all_busy(self, waiting: _Waiting) -> str:
        mine = [s for s in self._servers.values() if s.key == waiting.key]
        return (
            f"no server of the key {waiting.key!r} became free in {waiting.wait:g} s ({len(mine)} are registered, "
            f"{sum(s.busy for s in mine)} of them busy); request(…, wait=SECONDS) waits longer"
        )


def _text(message: dict[str, Any], field: str) -> str:
    value = message.get(field)
    if not isinstance(value, str) or len(value) > _LONGEST or not value.isprintable():
        raise ProtocolError(f"{message['do']}: `{field}` is not a text of at most {_LONGEST} characters")
    return value


def _number(message: dict[str, Any], field: str, default: float) -> float:
    value = message.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < 1e12:
        raise ProtocolError(f"{message['do']}: `{field}` is not a number")
    return value
