"""What goes over the wire: a description in JSON, and the bytes that belong to it. Nothing is pickled.

length of the JSON (4 bytes) │ JSON with the lengths of the parts │ the parts, one after the other
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Sequence
from typing import Any

from ..runtime.errors import TVMError

__all__ = ["PROTOCOL", "RPC_SESS_MASK", "Connection", "RPCError", "listen"]

PROTOCOL = 1
RPC_SESS_MASK = 128  # a device's number times this is the session that it belongs to, plus one
_LENGTH = struct.Struct(">I")
_MOST = 1 << 26  # bytes of a description; more is not one of ours


class RPCError(TVMError):
    """Something went wrong on the other side, or on the way to it."""


class Connection:
    """A socket that carries messages."""

    def __init__(self, sock: socket.socket, name: str) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self.name = sock, name

    @staticmethod
    def to(host: str, port: int, timeout: float = 60.0, patience: float | None = None) -> Connection:
        """A connection to a server; `timeout` is for making it, `patience` for each answer (None: for ever)."""
        try:
            made = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise RPCError(
                f"{host}:{port}: no connection ({error}); is a server running there? "
                "python -m tilewright.exec.rpc_server"
            ) from None
        made.settimeout(patience)
        return Connection(made, f"{host}:{port}")

    def send(self, message: dict[str, Any], parts: Sequence[bytes | memoryview] = ()) -> None:
        """Send a message and the bytes that belong to it."""
        text = json.dumps({**message, "parts": [len(p) for p in parts]}, separators=(",", ":")).encode()
        try:
            self._socket.sendall(_LENGTH.pack(len(text)) + text)
            for part in parts:
                self._socket.sendall(part)
        except OSError as error:
            raise RPCError(f"{self.name}: the connection broke while sending ({error})") from None

    def receive(self) -> tuple[dict[str, Any], list[bytes]]:
        """The next message; an RPCError when there will be none."""
        (length,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if length > _MOST:
            raise RPCError(f"{self.name}: what answers there is not tilewright's")
        try:
            message = json.loads(self._exactly(length))
            sizes = [int(n) for n in message["parts"]]
        except (ValueError, KeyError, TypeError):
            raise RPCError(f"{self.name}: what answers there is not tilewright's") from None
        return message, [self._exactly(n) for n in sizes]

    def _exactly(self, count: int) -> bytes:
        got, held = bytearray(count), 0
        view = memoryview(got)
        while held < count:
            try:
                more = self._socket.recv_into(view[held:])
            except OSError as error:
                raise RPCError(f"{self.name}: the connection broke ({error})") from None
            if not more:
                raise RPCError(f"{self.name}: the other side has closed the connection")
            held += more
        return bytes(got)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        """End it."""
        self._socket.close()


def listen(host: str, port: int, port_end: int) -> socket.socket:
    """A socket that waits for others, at the first free port from `port` up to `port_end`."""
    last: OSError | None = None
    for number in range(port, max(port_end, port + 1)):
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            made.bind((host, number))
            made.listen(16)
        except OSError as error:
            made.close()
            last = error
            continue
        return made
    raise RPCError(f"{host}: no port is free from {port} up to {port_end} ({last}); give others")
