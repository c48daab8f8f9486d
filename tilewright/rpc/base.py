"""The wire format: a description in JSON, and the bytes that belong to it. Nothing is pickled.

    length of the JSON (4 bytes) │ JSON with the lengths of the parts │ the parts, one after the other

Every connection, to a server or to a tracker, begins with a greeting (`access`):

    client ──▶ {"hello": 2, "to": "server", "nonce": …}
           ◀── {"hello": 2, "nonce": …, "proof": …}          the proof only where there is a secret
           ──▶ {"proof": …, "key": …, "timeout": …}          of a tracker: {"proof": …}
           ◀── {"ok": …} or {"error": {"kind": …, "text": …}}

During the greeting a message has at most `GREETING` bytes, and takes at most `PATIENCE` seconds.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Sequence
from typing import Any

from ..runtime.errors import TVMError

PROTOCOL = 2
RPC_SESS_MASK = 128  # a device's number times this is the session that it belongs to, plus one
GREETING = 1 << 16  # most bytes of a message before authentication
PATIENCE = 5.0  # timeout of a greeting, in seconds
MESSAGE = 16 << 30  # default limit of a message in a session, in bytes
_TEXT = 1 << 26  # bytes of a description in a session
_CHUNK = 1 << 20  # bytes that are allocated for a part before its data arrives
_HEAD = struct.Struct(">I")
_ALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class RPCError(TVMError):
    """An error on the other side, or of the connection."""


class ProtocolError(RPCError):
    """Bytes that are not a message of this protocol, or a message that exceeds the limit of this side."""


class BrokenError(RPCError):
    """A connection that could not be opened, or is closed: another attempt may succeed."""


class LateError(BrokenError):
    """An answer that did not come in time."""


def encoded(message: dict[str, Any], parts: Sequence[bytes | memoryview] = ()) -> bytes:
    """An encoded description, which precedes its parts on the wire."""
    text = json.dumps({**message, "parts": [len(p) for p in parts]}, separators=(",", ":")).encode()
    return _HEAD.pack(len(text)) + text


def decoded(head: bytes, text: bytes | None, most: int) -> tuple[int, dict[str, Any], list[int]]:
    """The length of a description by its first bytes and, once it has arrived, its contents and the lengths of its
    parts. Refuses anything that is not a message of this protocol, or has more than `most` bytes."""
    (length,) = _HEAD.unpack(head)
    if length > min(most, _TEXT):
        raise ProtocolError(
            f"a description of {length} bytes is announced; at most {min(most, _TEXT)} are taken"
        )
    if text is None:
        return length, {}, []
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError("the description is not valid JSON") from None
    sizes = message.pop("parts", None) if isinstance(message, dict) else None
    if not isinstance(sizes, list) or any(type(n) is not int or n < 0 for n in sizes):
        raise ProtocolError("the description does not give the lengths of its parts")
    if any(n > most for n in sizes) or length + sum(sizes) > most:
        raise ProtocolError(f"the parts that are announced are too large; at most {most} bytes are taken")
    return length, message, sizes


def error_description(error: BaseException) -> dict[str, Any]:
    """The description of an error for the other side."""
    return {"error": {"kind": type(error).__name__, "text": str(error)}}


def keep_alive(sock: socket.socket) -> None:
    """Send without delay, and notice in a minute when the machine on the other side is gone."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _ALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Connection:
    """A blocking socket for messages of at most `most` bytes."""

    def __init__(self, sock: socket.socket, name: str, most: int = GREETING) -> None:
        self._socket, self.name, self.most = sock, name, most

    def send(self, message: dict[str, Any], parts: Sequence[bytes | memoryview] = ()) -> None:
        """Send a message and the bytes that belong to it."""
        text = encoded(message, parts)
        try:
            self._socket.settimeout(None)
            self._socket.sendall(text)
            for part in parts:
                self._socket.sendall(part)
        except OSError as error:
            raise BrokenError(f"{self.name}: the connection broke while sending ({error})") from None

    def receive(self, within: float | None = None) -> tuple[dict[str, Any], list[bytes]]:
        """The next message, within a timeout in seconds (None: no limit); an RPCError if the connection ends."""
        until = None if within is None else time.monotonic() + within
        try:
            head = self._exactly(_HEAD.size, until)
            length, _, _ = decoded(head, None, self.most)
            _, message, sizes = decoded(head, self._exactly(length, until), self.most)
        except ProtocolError as error:
            raise ProtocolError(
                f"{self.name}: the other side does not use tilewright's protocol: {error}"
            ) from None
        return message, [self._exactly(n, until) for n in sizes]

    def _exactly(self, count: int, until: float | None) -> bytes:
        """Exactly `count` bytes; memory grows with the data that has arrived, not with the announced length."""
        got: list[bytearray] = []
        try:
            while (left := count - sum(map(len, got))) > 0:
                got.append(bytearray(min(left, _CHUNK << len(got))))
                self._fill(got[-1], until)
            return b"".join(got)
        except MemoryError:
            raise ProtocolError(f"{self.name}: {count} bytes are too much for the memory here") from None

    def _fill(self, got: bytearray, until: float | None) -> None:
        view, held = memoryview(got), 0
        while held < len(got):
            try:
                self._socket.settimeout(None if until is None else max(0.001, until - time.monotonic()))
                more = self._socket.recv_into(view[held:])
            except TimeoutError:
                raise LateError(f"{self.name}: no answer came in time") from None
            except OSError as error:
                raise BrokenError(f"{self.name}: the connection broke ({error})") from None
            if not more:
                raise BrokenError(f"{self.name}: the other side has closed the connection")
            held += more

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """End it."""
        self._socket.close()


def listen(host: str, port: int, port_end: int) -> socket.socket:
    """A listening socket at the first free port from `port` up to `port_end`."""
    last: OSError | None = None
    for number in range(port, max(port_end, port + 1)):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen(512)
        except OSError as error:
            made.close()
            last = error
            continue
        return made
    raise RPCError(f"{host}: no port is free from {port} up to {port_end} ({last}); give others")
