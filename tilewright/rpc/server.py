"""The server: one session at a time, each in a process of its own, so that a crash ends only the session.

One thread greets all clients (`hub`), runs at most one child, and watches its client meanwhile: a session ends with its
client, at its time limit, or with the server, even in the middle of a computation.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import select
import signal
import socket
import sys
import time
import traceback
import uuid
from dataclasses import dataclass
from typing import Any, NoReturn

from .access import Access, add_listening_options, count, listening_address, seconds
from .announce import Announcer
from .base import MESSAGE, PATIENCE, Connection, ProtocolError, RPCError, error_description, listen
from .children import Child, die_with_parent
from .folders import Folder, remove_leftovers
from .hub import Hub, Peer
from .process import Process, started
from .worker import Worker

SESSION = 4 * 3600.0  # seconds that a session may last, unless the server is started with another limit
_QUEUE = 16  # clients that may wait for a session
_MOST = 512  # connections at once
_WATCH = 0.1  # seconds between two checks of the client of a session
_LONGEST_WAIT = 60.0  # longest wait of the loop for an event, in seconds


class Server(Process):
    """A server in a process of its own, at the first free port from `port` up to `port_end`.

    It runs any code that clients send. It listens at `host`; by default at an address that clients of its tracker can
    reach (which requires a secret), else on loopback. With `tracker_addr` it is registered under its `key`;
    `load_library` are libraries to load first. `access` is the shared secret and TLS. `greeting_limit` and
    `session_limit` are the timeouts of the authentication and of a session in seconds, `max_message` the largest
    message in bytes.
    """

    def __init__(
        self,
        host: str | None = None,
        port: int = 9091,
        port_end: int = 9199,
        is_proxy: bool = False,
        tracker_addr: tuple[str, int] | None = None,
        key: str = "",
        load_library: str | None = None,
        custom_addr: str | None = None,
        silent: bool = False,
        no_fork: bool = False,
        access: Access | None = None,
        greeting_limit: float = PATIENCE,
        session_limit: float = SESSION,
        max_message: int = MESSAGE,
        **_: Any,
    ) -> None:
        if is_proxy:
            raise RPCError(
                "rpc.Server(is_proxy=True): proxies are not supported; make the server itself reachable"
            )
        given = ["--port", str(port), "--port-end", str(port_end), "--key", key]
        given += ["--greeting-limit", str(greeting_limit), "--session-limit", str(session_limit)]
        given += ["--max-message", str(max_message)]
        if host is not None:
            given += ["--host", host]
        if tracker_addr is not None:
            given += ["--tracker", f"{tracker_addr[0]}:{tracker_addr[1]}"]
        if load_library:
            given += ["--load-library", load_library]
        if custom_addr:
            given += ["--custom-addr", custom_addr]
        super().__init__("rpc_server", given + ["--silent"] * silent, access)
        self.key = key


@dataclass
class _Session:
    """A running child: its client's socket, its files, and its deadline."""

    child: Child
    name: str  # the name of its client
    sock: socket.socket
    folder: Folder
    until: float

    def watch(self) -> bool:
        """Kill the child if its client is gone or its time is over; returns True when it has ended."""
        if not self.child.ended() and (_is_gone(self.sock) or time.monotonic() >= self.until):
            self.child.kill()
        return self.child.ended()

    def close(self) -> int:
        """Remove the child's processes and files; returns its exit status."""
        status = self.child.end()
        self.sock.close()
        self.folder.close()
        return status


class _Serving:
    """The loop of a server."""

    def __init__(self, given: argparse.Namespace) -> None:
        self._given, self._access = given, Access.of(given)
        self._tracker = _address(given.tracker)
        self.host = listening_address(given.host, self._tracker, self._access, given.custom_addr)
        self.closed = self._access.closed
        listening = listen(self.host, given.port, given.port_end)
        self.port: int = listening.getsockname()[1]
        self._hub = Hub(
            listening, self._access, "server", self._opened, self._heard, self._gone, _MOST, given
        )
        self._queue: dict[Peer, float] = {}  # waiting clients, with the time limits of their sessions
        self._session: _Session | None = None
        self._announcer: Announcer | None = None
        self._match, self._over = given.key, False
        self._name = uuid.uuid4().hex
        self._woken, self._wakes = socket.socketpair()
        self._woken.setblocking(False)
        self._wakes.setblocking(False)
        self._hub.watch(self._woken, self._wake)
        if given.child:
            self._hub.watch(sys.stdin, self._end)

    def run(self) -> None:
        """Serve until a signal, or until the parent process is gone."""
        remove_leftovers()
        signal.signal(signal.SIGCHLD, lambda *_: None)
        # The server ends between two steps, not in the middle of one: the signal wakes the loop.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._end)
        signal.set_wakeup_fd(self._wakes.fileno(), warn_on_full_buffer=False)
        try:
            self._offer()
            while not self._over:
                announced = self._tracker is None or self._announcer is not None
                self._hub.step(_LONGEST_WAIT if announced and self._session is None else _WATCH)
                self._attend()
        finally:
            if self._session is not None:
                self._session.close()
            if self._announcer is not None:
                self._announcer.close()

    def _end(self, *_: object) -> None:
        self._over = True

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._woken.recv(1 << 12)

    def _attend(self) -> None:
        """Check whether the session has ended, and begin the next."""
        if self._session is not None and self._session.watch():
            status = self._session.close()
            if status < 0 and status != -signal.SIGKILL and not self._given.silent:
                how = f"{self._session.name} was ended by {signal.Signals(-status).name}"
                print(f"rpc_server: the session of {how}", file=sys.stderr, flush=True)
            self._session = None
            self._offer()
        while self._queue and self._session is None and not self._over:
            peer = next(iter(self._queue))
            limit = self._queue.pop(peer)
            self._begin(peer, limit)
        if self._announcer is not None and self._announcer.child.ended():
            self._announcer.close()
            self._announcer = None
        if self._announcer is None:
            self._announce(busy=self._session is not None)

    # -- the tracker -----------------------------------------------------------------------------
    def _offer(self) -> None:
        """Announce to the tracker that this server is free."""
        if self._tracker is not None:
            self._match = f"{self._given.key}:{uuid.uuid4().hex}"
            self._announce(busy=False)

    def _announce(self, busy: bool) -> None:
        if self._tracker is None:
            return
        if self._announcer is None:
            shown = self._given.custom_addr or (None if self.host == "0.0.0.0" else self.host)
            about = {"key": self._given.key, "port": self.port, "host": shown, "name": self._name}
            try:
                self._announcer = Announcer(self._tracker, self._access, about, self._alone)
            except OSError:  # no more processes: retried later
                return
        self._announcer.announce(self._match, busy)

    # -- clients ---------------------------------------------------------------------------------
    def _opened(self, peer: Peer, message: dict[str, Any]) -> None:
        key, timeout = message.get("key"), message.get("timeout", 0)
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not 0 <= timeout < math.inf:
            raise ProtocolError("`timeout` is not a number of seconds")
        if key != self._match:
            raise RPCError(
                "the key does not match this server, or the tracker has since assigned the server to another client"
            )
        if self._tracker is not None and (self._session is not None or self._queue):
            raise RPCError("another client is using this server now")
        if len(self._queue) >= _QUEUE:
            raise RPCError(f"the server is busy, and {_QUEUE} clients are waiting already; try again later")
        peer.stage = "waiting"
        self._queue[peer] = min(timeout or math.inf, self._given.session_limit)

    def _heard(self, peer: Peer, message: dict[str, Any]) -> None:
        raise ProtocolError("no message is allowed before the session begins")

    def _gone(self, peer: Peer) -> None:
        self._queue.pop(peer, None)

    def _begin(self, peer: Peer, limit: float) -> None:
        """Serve a client, in a child."""
        if peer.unread:
            return self._hub.refuse(peer, ProtocolError("no message is allowed before the session begins"))
        self._announce(busy=True)
        sys.stdout.flush()
        sys.stderr.flush()
        folder = None
        try:
            folder = Folder()
            child = Child(os.fork())
        except OSError as error:
            if folder is not None:
                folder.close()
            self._hub.refuse(peer, RPCError(f"the server cannot begin a session now: {error}"))
            return self._offer()
        if child.pid == 0:
            self._work(peer, folder.path, limit)
        with contextlib.suppress(OSError):  # the child does it as well, to avoid a race
            os.setpgid(child.pid, child.pid)
        sock = self._hub.release(peer)
        self._session = _Session(child, peer.name, sock, folder, time.monotonic() + limit)

    def _work(self, peer: Peer, folder: str, limit: float) -> NoReturn:
        """The main function of the child."""
        status = 1
        try:
            self._alone(peer)
            if self._announcer is not None:
                self._announcer.close(child=True)
            status = _serve(Connection(peer.sock, peer.name, self._given.max_message), folder, limit)
        except SystemExit:  # raised by a function that the client called
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def _alone(self, keep: Peer | None = None) -> None:
        """Close the parent's resources, in a child."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        # Ctrl-C in a terminal ends the server, which ends its children.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._hub.abandon(keep)
        for mine in (self._woken, self._wakes, self._session and self._session.sock):
            if mine is not None:
                mine.close()
        die_with_parent()


def _address(tracker: str | None) -> tuple[str, int] | None:
    if tracker is None:
        return None
    host, _, port = tracker.rpartition(":")
    if not host or not port.isdigit():
        raise RPCError(f"--tracker {tracker!r}: it is HOST:PORT, as in --tracker tracker:9190")
    return host, int(port)


def _is_gone(sock: socket.socket) -> bool:
    """Whether the other side has closed a connection; reads nothing, as the child does that."""
    watch = select.poll()
    watch.register(sock.fileno(), getattr(select, "POLLRDHUP", select.POLLHUP))
    return bool(watch.poll(0))


def _serve(connection: Connection, folder: str, limit: float) -> int:
    """Serve one client to its end."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    worker = Worker(folder)
    try:
        connection.send({"ok": {"timeout": limit}})
        while True:
            _answer(connection, worker)
    except ProtocolError as error:
        with contextlib.suppress(RPCError):
            connection.send(error_description(error))
    except RPCError:  # the other side has gone
        pass
    return 0


def _answer(connection: Connection, worker: Worker) -> None:
    message, parts = connection.receive()
    try:
        result, back = worker.answer(message, parts)
        connection.send({"ok": result}, back)
    except Exception as error:  # any error is an answer to the request
        connection.send(error_description(error))


def main(argv: list[str] | None = None) -> None:
    """The command line of a server."""
    parser = argparse.ArgumentParser("rpc_server", description="Run programs that other machines send.")
    parser.add_argument(
        "--host",
        help="the address to listen on (default: loopback; with --tracker, the one that clients can reach)",
    )
    parser.add_argument("--port", type=int, default=9090)
    parser.add_argument("--port-end", type=int, default=9199)
    parser.add_argument("--tracker", help="HOST:PORT of the tracker that assigns this server to clients")
    parser.add_argument(
        "--key", default="", help="the key under which clients request this kind of machine from the tracker"
    )
    parser.add_argument("--custom-addr", help="the address at which other machines reach this one")
    parser.add_argument("--load-library", help="libraries to load first, separated by colons")
    parser.add_argument(
        "--session-limit", type=seconds, default=SESSION, help="the time limit of a session, in seconds"
    )
    parser.add_argument("--max-message", type=count, default=MESSAGE, help="the largest message, in bytes")
    add_listening_options(parser)
    given = parser.parse_args(argv)
    for file in (given.load_library or "").split(":"):
        if file:
            from ..runtime.module import load_module

            load_module(file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    started("rpc_server", given.child, lambda: _Serving(given)).run()
