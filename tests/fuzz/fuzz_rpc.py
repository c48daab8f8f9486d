"""RPC servers and trackers, live ones on loopback."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import socket
import struct
import tempfile
import time
from typing import Any

from fuzz import fuzzer
from fuzz.damage import damaged
from tilewright import rpc
from tilewright.rpc.access import failed, greeted
from tilewright.rpc.base import PROTOCOL, BrokenError, Connection, ProtocolError, RPCError

_HERE = "127.0.0.1"
_OPEN, _SECRET = rpc.Access(), rpc.Access("a secret of the fuzzer")


class _Live:
    """A tracker and a server of it, and both again with a secret; what they print is kept."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, as long as the servers
        before = os.dup(2)
        os.dup2(self._log.fileno(), 2)
        try:
            self.pairs = [(access, *self._pair(access)) for access in (_OPEN, _SECRET)]
        finally:
            os.dup2(before, 2)
            os.close(before)

    def printed(self) -> str:
        """What they have printed since the last time."""
        text = os.pread(self._log.fileno(), 1 << 20, 0).decode(errors="replace")
        os.ftruncate(self._log.fileno(), 0)
        os.lseek(self._log.fileno(), 0, os.SEEK_SET)
        return text

    def _pair(self, access: rpc.Access) -> tuple[rpc.Tracker, rpc.Server, rpc.Server]:
        tracker = rpc.Tracker(port=0, access=access)
        tracked = rpc.Server(port=0, key="fuzz", tracker_addr=(_HERE, tracker.port), access=access)
        return tracker, tracked, rpc.Server(port=0, access=access, max_message=1 << 20)


@functools.cache
def _live() -> _Live:
    return _Live()


@fuzzer("rpc", seconds=60, short=40)
def hostile(rng: random.Random) -> str:
    """Whatever bytes and messages they are sent, servers and trackers serve an honest client afterwards."""
    live = _live()
    access, tracker, tracked, server = rng.choice(live.pairs)
    outcome = rng.choice((_bytes, _bytes, _to_tracker, _to_server, _to_server))(
        rng, access, tracker, tracked, server
    )
    _honest(access, tracker, server)
    text = live.printed()
    if "Traceback" in text or "was ended by" in text:
        raise AssertionError(f"a server has printed: {text[-3000:]}")
    return outcome


def _honest(access: rpc.Access, tracker: rpc.Tracker, server: rpc.Server) -> None:
    session = rpc.connect(_HERE, server.port, access=access, wait=20)
    assert session.listdir() == []
    session.close()
    known = rpc.connect_tracker(_HERE, tracker.port, access=access)
    until = time.monotonic() + 30
    while any(s["key"] != "server:fuzz" for s in known.summary()["server_info"]):
        assert time.monotonic() < until, "a false server is still known"
        time.sleep(0.01)
    assert known.request("fuzz", wait=30).listdir() == []
    known.close()


# ---------------------------------------------------------------------------- bytes
def _bytes(
    rng: random.Random, access: rpc.Access, tracker: rpc.Tracker, tracked: rpc.Server, server: rpc.Server
) -> str:
    """A greeting that is damaged, or no greeting at all."""
    service, port = rng.choice((("tracker", tracker.port), ("server", tracked.port), ("server", server.port)))
    hello = {"hello": PROTOCOL, "to": service, "nonce": f"{rng.getrandbits(256):064x}"}
    match rng.randrange(4):
        case 0:
            data = rng.randbytes(rng.choice((1, 4, 100, 70000)))
        case 1:
            data = _frame(_changed(rng, hello), rng)
        case 2:
            data = damaged(rng, _frame(hello) + _frame({"proof": "0" * 64, "key": ""}))
        case _:
            data = _frame(hello) + _frame(_changed(rng, {"proof": "0" * 64, "key": "", "timeout": 0}), rng)
            data += _frame(_changed(rng, _put(rng)), rng)
    with socket.create_connection((_HERE, port), 10) as sock:
        try:
            sock.sendall(data)
            if rng.random() < 0.5:
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(1 << 16):
                    pass
                return "bytes, to their end"
        except OSError:
            return "bytes, refused"
    return "bytes, and gone"


def _frame(message: Any, rng: random.Random | None = None) -> bytes:
    if isinstance(message, dict):
        message = {"parts": [], **message}
    text = json.dumps(message).encode()
    length = len(text) if rng is None or rng.random() < 0.8 else rng.choice((0, 1, len(text) + 9, 1 << 31))
    return struct.pack(">I", length) + text


# ---------------------------------------------------------------------------- well-formed messages
_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**62, 2**63, -(2**70), 10**300, 0.5, -1e308, float("nan"), float("inf"),
    "", "x", "data", "../x", "/etc/passwd", "\0", "\ud800", "x" * 300, "__class__", "float32", "int9", "handle",
    [], [0], [1, 0], [4], [-1, 4], [2**40, 2**40], [[]], {}, {"array": 1}, {"object": 1}, {"copy": 0}, {"bytes": 5},
    {"list": [{"list": []}]}, {"device": [1, 0]}, {"device": [99, -1]},
    {"array": 1, "shape": [2**33], "dtype": "float64"}, {"array": 1, "shape": [-4], "dtype": "int8"},
    {"copy": 0, "shape": [4], "dtype": "int8"}, {"copy": 9, "shape": [4], "dtype": "int8"},
)  # fmt: skip


def _changed(rng: random.Random, message: dict[str, Any]) -> Any:
    """A message with fields that are not as they should be."""
    message = dict(message)
    for _ in range(rng.choice((0, 1, 1, 2))):
        field = rng.choice([*message, "parts", "drop"])
        if rng.random() < 0.2:
            message.pop(field, None)
        else:
            message[field] = rng.choice(_VALUES)
    return message if rng.random() < 0.97 else rng.choice(_VALUES)


def _put(rng: random.Random) -> dict[str, Any]:
    name = rng.choice(("a", "b"))
    return {"do": "put", "name": name, "key": "false", "port": 9, "match": "m", "busy": False, "host": None}


def _to_tracker(
    rng: random.Random, access: rpc.Access, tracker: rpc.Tracker, tracked: rpc.Server, server: rpc.Server
) -> str:
    link = greeted(access.connect(_HERE, tracker.port), access, "tracker")
    requests: tuple[dict[str, Any], ...] = (
        _put(rng),
        {"do": "summary"},
        {"do": "request", "key": rng.choice(("false", "fuzz", "none")), "priority": 1, "wait": 0.01},
        {"do": "settle", "match": "m", "taken": rng.choice((True, False))},
    )
    return "tracker, " + _exchange(rng, link, requests)


def _to_server(
    rng: random.Random, access: rpc.Access, tracker: rpc.Tracker, tracked: rpc.Server, server: rpc.Server
) -> str:
    link = greeted(access.connect(_HERE, server.port), access, "server", key="", timeout=rng.choice((0, 5)))
    device = [1, 0]
    requests: tuple[dict[str, Any], ...] = (
        {"do": "upload", "name": "data", "parts": [4]},
        {"do": "download", "name": "data"},
        {"do": "remove", "name": "data"},
        {"do": "list"},
        {"do": "count", "kind": 1},
        {"do": "attribute", "device": device, "name": "exist"},
        {"do": "sync", "device": device},
        {"do": "allocate", "nbytes": 64, "device": device},
        {"do": "allocate", "nbytes": 64, "device": device},
        {"do": "write", "array": 1, "parts": [rng.choice((4, 64))]},
        {"do": "read", "array": 1, "nbytes": 64},
        {"do": "copy", "array": 1, "to": 2},
        {"do": "load", "name": "data"},
        {"do": "global", "name": "no.such"},
        {"do": "member", "object": 1, "member": "main"},
        {"do": "call", "object": 1, "member": None, "args": [], "names": [], "named": []},
        {"do": "time", "object": 1, "member": None, "device": device, "options": {"number": 1}, "args": []},
    )
    return "session, " + _exchange(rng, link, requests)


def _exchange(rng: random.Random, link: Connection, requests: tuple[dict[str, Any], ...]) -> str:
    """Some messages and their answers, until the other side has enough of it."""
    told = 0
    try:
        failed(link.receive(20)[0], link.name)
        link.most = 1 << 26
        for _ in range(rng.randrange(1, 9)):
            message = _changed(rng, rng.choice(requests))
            data = _frame(message, rng)
            if rng.random() < 0.1:
                data = damaged(rng, data)
            with contextlib.suppress(OSError):
                link._socket.sendall(data)
            if isinstance(message, dict) and message.get("parts") in ([4], [64]):
                with contextlib.suppress(OSError):
                    link._socket.sendall(bytes(message["parts"][0]))
            if rng.random() < 0.1:
                return "left"
            answer = link.receive(0.3)[0]
            told += "error" in answer
    except BrokenError as error:
        return "waits for more" if "in time" in str(error) else "ended"
    except ProtocolError:
        raise  # servers speak the protocol, whatever they are told
    except RPCError:
        return "refused"
    finally:
        link.close()
    return "errors told" if told else "answered"
