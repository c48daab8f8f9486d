"""Clients as nobody should write them, and a look at processes from outside."""

from __future__ import annotations

import json
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tilewright import rpc
from tilewright.rpc.access import failed, greeted
from tilewright.rpc.base import BrokenError, Connection

OPEN = rpc.Access()
SECRET = rpc.Access("correct horse battery staple")


def until(seen: Callable[[], Any], seconds: float = 120.0) -> Any:
    """What a function gives as soon as it is true."""
    end = time.monotonic() + seconds
    while not (found := seen()):
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.01)
    return found


def framed(text: bytes, length: int | None = None) -> bytes:
    return struct.pack(">I", len(text) if length is None else length) + text


def said(port: int, data: bytes, wait: float = 60.0) -> bytes:
    """All that is answered to some bytes, up to the end of the connection."""
    with socket.create_connection(("127.0.0.1", port), wait) as sock:
        sock.settimeout(wait)
        answer = bytearray()
        try:
            sock.sendall(data)
            while more := sock.recv(1 << 16):
                answer += more
        except ConnectionError:
            pass
        return bytes(answer)


def refusal(answer: bytes) -> dict[str, str]:
    """The error that was told last."""
    message: dict[str, Any] = {}
    while len(answer) >= 4:
        (length,) = struct.unpack(">I", answer[:4])
        message, answer = json.loads(answer[4 : 4 + length]), answer[4 + length :]
    error: dict[str, str] = message.get("error", {})
    return error


def opened(port: int, service: str, access: rpc.Access = OPEN, **what: Any) -> Connection:
    """A connection that is greeted as it should be, and may say what it likes."""
    made = greeted(access.connect("127.0.0.1", port), access, service, **what)
    failed(made.receive(10.0)[0], made.name)
    made.most = 1 << 30
    return made


def is_read(connection: Connection) -> bool:
    """Whether the peer has read all that was sent: no byte waits in either socket's queue."""
    mine, theirs = connection._socket.getsockname()[1], connection._socket.getpeername()[1]
    waiting = {}
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        local, remote, _, queues = line.split()[1:5]
        waiting[int(local[-4:], 16), int(remote[-4:], 16)] = queues.split(":")
    return int(waiting[mine, theirs][0], 16) == 0 == int(waiting[theirs, mine][1], 16)


def asked(connection: Connection, **message: Any) -> Any:
    connection.send(message)
    answer = connection.receive(20.0)[0]
    failed(answer, connection.name)
    return answer["ok"]


def is_closed(connection: Connection, seconds: float = 20.0) -> bool:
    """Whether the other side ends a connection."""
    try:
        connection.receive(seconds)
    except BrokenError as error:
        return "in time" not in str(error)
    return False


def served(port: int, key: str = "", access: rpc.Access = OPEN) -> bool:
    """Whether an honest client gets a session."""
    session = rpc.connect("127.0.0.1", port, key, access=access, wait=20.0)
    try:
        return session.listdir() == []
    finally:
        session.close()


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def memory(pid: int) -> int:
    """MiB that a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))


def pid_of(process: rpc.Server | rpc.Tracker) -> int:
    return int(process._process.pid)
