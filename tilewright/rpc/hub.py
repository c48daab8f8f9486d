"""A single-threaded event loop: connections are greeted, and their messages read, without blocking on any of them.

    accept ──▶ (TLS) ──▶ hello ──▶ proof ──▶ opened(peer, message) ──▶ heard(peer, message) …
       │                   └── refused, too slow, too many ──▶ closed
       └── a peer whose connection ends: gone(peer)

A silent peer costs a socket and some hundred bytes, until its timeout.
"""

from __future__ import annotations

import argparse
import contextlib
import selectors
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from .access import Access, is_nonce, new_nonce
from .base import GREETING, PROTOCOL, ProtocolError, RPCError, decoded, encoded, error_description, keep_alive

_GREETING = 256  # connections in their greeting at once; a new one evicts the oldest
_ACCEPTED = 64  # connections that are accepted in one step
_UNSENT = 1 << 22  # bytes that may wait for a peer that does not read
_SPARE = 64  # file descriptors that the process needs for other purposes
_LINES = 10  # refusals that are printed in a minute

Told = Callable[["Peer", dict[str, Any]], None]


class Peer:
    """A connection: its receive and send buffers, and the state of its greeting."""

    __slots__ = ("host", "name", "nonces", "sock", "stage", "unread", "unsent", "until")

    def __init__(self, sock: socket.socket, where: tuple[str, int], stage: str, until: float) -> None:
        self.sock, self.host, self.name = sock, where[0], f"{where[0]}:{where[1]}"
        self.stage, self.nonces = stage, ("", "")
        self.unread, self.unsent = bytearray(), bytearray()
        self.until = until

    def message(self) -> dict[str, Any] | None:
        """The next message that has arrived whole; none has parts."""
        if len(self.unread) < 4:
            return None
        head = bytes(self.unread[:4])
        length, _, _ = decoded(head, None, GREETING)
        if len(self.unread) < 4 + length:
            return None
        text = bytes(self.unread[4 : 4 + length])
        del self.unread[: 4 + length]
        _, message, sizes = decoded(head, text, GREETING)
        if sizes:
            raise ProtocolError("this message must not contain binary parts")
        return message


class Hub:
    """All connections of a process that listens, as `service`: a "server" or a "tracker"."""

    def __init__(
        self,
        listening: socket.socket,
        access: Access,
        service: str,
        opened: Told,
        heard: Told,
        gone: Callable[[Peer], None],
        most: int,
        given: argparse.Namespace,
    ) -> None:
        self._listening, self._access, self._service = listening, access, service
        self._opened, self._heard, self._gone = opened, heard, gone
        self._context, self._given = access.context(listening=True), given
        self._most = most_files(most)
        self._greeting: dict[Peer, None] = {}  # the oldest first
        self.peers: dict[Peer, None] = {}  # those that were greeted
        self._printed: list[float] = []
        self._selector = selectors.DefaultSelector()
        listening.setblocking(False)
        self._selector.register(listening, selectors.EVENT_READ)

    def watch(self, thing: Any, ready: Callable[[], None]) -> None:
        """Call a function when another file descriptor is readable."""
        self._selector.register(thing, selectors.EVENT_READ, ready)

    def step(self, wait: float) -> None:
        """Wait for events, with a timeout, and handle them."""
        if self._greeting:
            wait = min(wait, max(0.0, next(iter(self._greeting)).until - time.monotonic()))
        for key, _ in self._selector.select(wait):
            if key.fileobj is self._listening:
                self._accept()
            elif isinstance(key.data, Peer):
                self._serve(key.data)
            else:
                key.data()
        now = time.monotonic()
        while self._greeting and (oldest := next(iter(self._greeting))).until <= now:
            self.drop(oldest)

    # -- input -----------------------------------------------------------------------------------
    def _accept(self) -> None:
        for _ in range(_ACCEPTED):
            try:
                sock, where = self._listening.accept()
            except BlockingIOError:
                return
            except OSError:  # gone again, or no more files
                if not self._make_room():
                    time.sleep(0.05)
                return
            full = len(self._greeting) + len(self.peers) >= self._most
            if (full or len(self._greeting) >= _GREETING) and not self._make_room():
                sock.close()
                continue
            try:
                sock.setblocking(False)
                keep_alive(sock)
                if self._context is not None:
                    sock = self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
            except OSError:  # gone again
                sock.close()
                continue
            stage = "hello" if self._context is None else "tls"
            peer = Peer(sock, where, stage, time.monotonic() + self._given.greeting_limit)
            self._greeting[peer] = None
            self._selector.register(sock, selectors.EVENT_READ, peer)

    def _make_room(self) -> bool:
        """Close the connection that has been longest in its greeting; if there is none, the one that has been idle
        longest."""
        idle = (p for p in self.peers if p.stage == "idle")
        oldest = next(iter(self._greeting), None) or next(idle, None)
        if oldest is not None:
            self.drop(oldest)
        return oldest is not None

    def _serve(self, peer: Peer) -> None:
        if peer.sock.fileno() < 0:  # evicted in this step
            return
        try:
            if peer.stage == "tls" and not self._handshake(peer):
                return
            self._flush(peer)
            data = _received(peer.sock)
            if data == b"":
                return self.drop(peer)
            peer.unread += data or b""
            while (peer in self._greeting or peer in self.peers) and (message := peer.message()) is not None:
                self._handle(peer, message)
        except RPCError as error:
            self.refuse(peer, error)
        except OSError:
            self.drop(peer)
        except Exception:  # an internal error ends one connection, not the service
            traceback.print_exc()
            self.drop(peer)

    def _handshake(self, peer: Peer) -> bool:
        """Continue the TLS handshake; returns True when it is complete."""
        import ssl

        try:
            peer.sock.do_handshake()  # type: ignore[attr-defined]
        except ssl.SSLWantReadError:
            self._await(peer, selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._await(peer, selectors.EVENT_WRITE)
        else:
            peer.stage = "hello"
            self._await(peer, selectors.EVENT_READ)
        return peer.stage != "tls"

    def _handle(self, peer: Peer, message: dict[str, Any]) -> None:
        if peer.stage == "hello":
            self._hello(peer, message)
        elif peer.stage == "proof":
            if self._access.secret and not self._access.proves(
                message.get("proof"), "client", self._service, *peer.nonces
            ):
                raise RPCError(
                    "the secrets of the two sides differ; use the same --secret-file on all machines"
                )
            del self._greeting[peer]
            self.peers[peer] = None
            peer.stage = "idle"
            self._opened(peer, message)
        else:
            self._heard(peer, message)

    def _hello(self, peer: Peer, message: dict[str, Any]) -> None:
        if message.get("hello") != PROTOCOL:
            raise ProtocolError(
                f"no greeting of protocol {PROTOCOL}; the two sides are of different versions"
            )
        if message.get("to") != self._service:
            raise RPCError(f"here is a {self._service}, not a {str(message.get('to'))[:40]!r}")
        if not is_nonce(theirs := message.get("nonce")):
            raise ProtocolError("the greeting has no nonce")
        peer.nonces, peer.stage = (theirs, new_nonce()), "proof"
        answer = {"hello": PROTOCOL, "nonce": peer.nonces[1]}
        if self._access.secret:
            answer["proof"] = self._access.proof("server", self._service, *peer.nonces)
        self.send(peer, answer)

    # -- output ----------------------------------------------------------------------------------
    def send(self, peer: Peer, message: dict[str, Any]) -> None:
        """Send a message, as soon as the peer takes it."""
        peer.unsent += encoded(message)
        if len(peer.unsent) > _UNSENT:
            self.drop(peer)
            return
        try:
            self._flush(peer)
        except OSError:
            self.drop(peer)

    def _flush(self, peer: Peer) -> None:
        if not peer.unsent:
            return
        while peer.unsent and (sent := _sent(peer.sock, peer.unsent)):
            del peer.unsent[:sent]
        more = selectors.EVENT_WRITE if peer.unsent else 0
        self._await(peer, selectors.EVENT_READ | more)

    def _await(self, peer: Peer, events: int) -> None:
        self._selector.modify(peer.sock, events, peer)

    def refuse(self, peer: Peer, why: RPCError) -> None:
        """Send a peer the reason of a refusal, and close its connection."""
        self._print(f"{peer.name} is refused: {why}")
        self.send(peer, error_description(why))
        self.drop(peer)

    def _print(self, line: str) -> None:
        """Print a line, at a limited rate: strangers must not fill a disk."""
        now = time.monotonic()
        self._printed = [t for t in self._printed if now - t < 60.0]
        if not self._given.silent and len(self._printed) < _LINES:
            self._printed.append(now)
            print(f"rpc_{self._service}: {line}", file=sys.stderr, flush=True)

    def drop(self, peer: Peer) -> None:
        """Close a connection."""
        if self._forget(peer):
            peer.sock.close()

    def release(self, peer: Peer) -> socket.socket:
        """Detach a connection from the loop; returns its socket."""
        self._forget(peer)
        return peer.sock

    def _forget(self, peer: Peer) -> bool:
        if peer.sock.fileno() < 0:
            return False
        with contextlib.suppress(KeyError):
            self._selector.unregister(peer.sock)
        self._greeting.pop(peer, None)
        if peer in self.peers:
            del self.peers[peer]
            self._gone(peer)
        return True

    def abandon(self, keep: Peer | None = None) -> None:
        """Close a child's copies of all sockets, which are the parent's, except the one to `keep`."""
        self._selector.close()
        self._listening.close()
        for peer in (*self._greeting, *self.peers):
            if peer is not keep:
                peer.sock.close()


def _received(sock: socket.socket) -> bytes | None:
    """The bytes that can be read now: None if there are none yet, empty at the end."""
    try:
        return sock.recv(GREETING)
    except BlockingIOError:
        return None
    except OSError as error:
        if _wants(error):
            return None
        raise


def _sent(sock: socket.socket, data: bytearray) -> int:
    """The number of bytes that could be sent now."""
    try:
        return sock.send(data[:_UNSENT])
    except BlockingIOError:
        return 0
    except OSError as error:
        if _wants(error):
            return 0
        raise


def _wants(error: OSError) -> bool:
    """Whether TLS waits for the socket."""
    return type(error).__name__ in ("SSLWantReadError", "SSLWantWriteError")


def most_files(most: int) -> int:
    """The limit of open connections: the requested number, up to the system's limit of this process."""
    import resource  # there is none on some systems, whose programs may still connect to others

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most + _GREETING + _SPARE
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most_soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most_soft), hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return most if soft == resource.RLIM_INFINITY else max(8, min(most, soft - _SPARE))
