"""Servers in the hands of the careless and the hostile: whatever they send, the next client is served."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rpc_peers import (
    asked,
    children,
    framed,
    is_closed,
    is_read,
    memory,
    opened,
    pid_of,
    refusal,
    said,
    served,
    threads,
    until,
)

import tilewright as tvm
from tilewright import rpc
from tilewright.rpc.base import PROTOCOL, Connection, LateError
from tilewright.script import tir as T

HELLO = {"hello": PROTOCOL, "nonce": "0" * 64, "parts": []}


@pytest.fixture(scope="module")
def server() -> Iterator[rpc.Server]:
    with rpc.Server(port=0, greeting_limit=0.5, silent=True) as made:
        yield made


@pytest.fixture(scope="module")
def tracker() -> Iterator[rpc.Tracker]:
    with rpc.Tracker(port=0, greeting_limit=0.5, silent=True) as made:
        yield made


@pytest.fixture(params=["server", "tracker"])
def listener(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


def honest(listener: rpc.Server | rpc.Tracker) -> bool:
    if isinstance(listener, rpc.Server):
        return served(listener.port)
    return rpc.connect_tracker("127.0.0.1", listener.port).summary()["server_info"] == []


def described(**message: Any) -> bytes:
    return framed(json.dumps(message).encode())


STREAMS = {
    "nothing of ours": b"\0\1\2" * 50,
    "HTTP": b"GET / HTTP/1.1\r\nHost: board\r\n\r\n",
    "the beginning of TLS": bytes.fromhex("16030100c5010000c10303") + bytes(186),
    "a description of 4 GiB": framed(b"", 0xFFFFFFFF),
    "a description above the limit": framed(b"", (1 << 16) + 1),
    "parts of 8 GiB": described(**{**HELLO, "parts": [8 << 30]}),
    "parts of a negative length": described(**{**HELLO, "parts": [-5]}),
    "parts of 2^62 bytes": described(**{**HELLO, "parts": [1 << 62]}),
    "many parts": described(**{**HELLO, "parts": [60000] * 1000}),
    "lengths that are not numbers": described(**{**HELLO, "parts": ["8", None, 1.5, True]}),
    "no lengths": described(hello=PROTOCOL),
    "brackets": framed(b"[" * 60000),
    "nested": framed(b'{"parts":' + b"[" * 30000 + b"]" * 30000 + b"}"),
    "not UTF-8": framed(b'{"hello": "\xff\xfe"}'),
    "a number without end": framed(b'{"parts": [' + b"9" * 60000 + b"]}"),
    "a list": framed(b"[1, 2]"),
    "no nonce": described(hello=PROTOCOL, to="server", parts=[]),
    "another version": described(**{**HELLO, "hello": 1}),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_what_is_not_a_greeting_is_refused_by_name(kind: str, listener: Any, capfd: Any) -> None:
    service = "server" if isinstance(listener, rpc.Server) else "tracker"
    data = STREAMS[kind].replace(b'"server"', f'"{service}"'.encode())
    error = refusal(said(listener.port, data))
    assert error["kind"] in ("ProtocolError", "RPCError") and error["text"]
    assert honest(listener)
    assert memory(pid_of(listener)) < 200
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_refusal_is_printed_without_a_traceback(capfd: Any) -> None:
    with rpc.Server(port=0) as made:
        for _ in range(30):
            said(made.port, STREAMS["brackets"])
        assert served(made.port)
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 10  # strangers do not fill a disk
    assert all(" is refused: the description is not valid JSON" in line for line in lines)


@pytest.mark.slow
def test_silence_is_not_waited_for(listener: Any) -> None:
    """The time of one is up after the limit, and meanwhile others are served."""
    silent = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(20)]
    for sock in silent[::2]:
        sock.sendall(b"\0")
    began = time.monotonic()
    assert honest(listener) and time.monotonic() - began < 20 * 0.5  # which one after the other would take
    for sock in silent:
        sock.settimeout(120)
        assert sock.recv(1) == b""
        sock.close()


def test_many_connections_cost_sockets_only(listener: Any) -> None:
    """The oldest that have not greeted give way, so that somebody who does is always heard."""
    pid, before = pid_of(listener), threads(pid_of(listener))
    idle = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(500)]
    try:
        assert honest(listener)
        assert threads(pid) == before and memory(pid) < 200
    finally:
        for sock in idle:
            sock.close()


@pytest.mark.slow
def test_clients_that_were_greeted_may_stay(tracker: rpc.Tracker) -> None:
    kept, before = rpc.connect_tracker("127.0.0.1", tracker.port), threads(pid_of(tracker))
    idle = [opened(tracker.port, "tracker") for _ in range(600)]
    assert kept.summary() and all(asked(c, do="summary") for c in idle[::100])
    assert threads(pid_of(tracker)) == before
    for connection in idle:
        connection.close()


# ---------------------------------------------------------------------------- in a session
def test_a_message_in_a_session_has_limits() -> None:
    with rpc.Server(port=0, silent=True, max_message=1 << 20) as made:
        session = opened(made.port, "server", key="", timeout=0)
        session.send({"do": "upload", "name": "x"}, [bytes(1000)])
        assert "ok" in session.receive(20.0)[0]
        session._socket.sendall(described(do="upload", name="x", drop=[], parts=[(1 << 20) + 1]))
        error = session.receive(20.0)[0]["error"]
        assert error["kind"] == "ProtocolError" and "at most 1048576 bytes are taken" in error["text"]
        assert is_closed(session) and served(made.port)


def test_memory_grows_with_what_has_arrived(server: rpc.Server) -> None:
    session = opened(server.port, "server", key="", timeout=0)
    session._socket.sendall(described(do="upload", name="x", drop=[], parts=[8 << 30]) + bytes(1 << 20))
    (child,) = until(lambda: children(pid_of(server)))
    until(lambda: is_read(session))
    assert memory(child) < 200
    session.close()
    assert served(server.port)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({}, "there is no request None"),
        ({"do": "answer"}, "there is no request 'answer'"),
        ({"do": "upload"}, "the request 'upload' lacks `name`"),
        ({"do": "call", "object": 7, "drop": []}, "object 7 does not belong to this session"),
        ({"do": "allocate", "nbytes": -1, "device": [1, 0]}, ""),
        ({"do": "allocate", "nbytes": 1 << 62, "device": [1, 0]}, ""),
        ({"do": "read", "array": [], "nbytes": 0}, ""),
        ({"do": "list", "drop": 5}, ""),
        ({"do": "count", "kind": "x"}, ""),
        ({"do": ["list"]}, ""),
    ],
)
def test_a_request_that_cannot_be_met_is_told_and_the_session_goes_on(
    server: rpc.Server, message: dict[str, Any], text: str, capfd: Any
) -> None:
    session = opened(server.port, "server", key="", timeout=0)
    session.send(message)
    answer = session.receive(20.0)[0]
    assert text in answer["error"]["text"]
    assert asked(session, do="list") == []
    session.close()
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library whose function does not come back."""

    @T.prim_func
    def main(a: T.handle) -> None:
        A = T.match_buffer(a, (1,), "float32")
        for _ in T.serial(1 << 50):
            A[0] = A[0] * T.float32(0.5) + T.float32(1)

    made = tmp_path_factory.mktemp("rpc") / "endless.so"
    tvm.build(main, target="llvm").export_library(made)
    return made.read_bytes()


def at_work(port: int, library: bytes, **greeting: Any) -> Any:
    """A connection whose session computes, and would do so for years."""
    session = opened(port, "server", **{"key": "", "timeout": 0, **greeting})
    session.send({"do": "upload", "name": "endless.so"}, [library])
    session.receive(20.0)
    module = asked(session, do="load", name="endless.so")
    array = asked(session, do="allocate", nbytes=4, device=[1, 0])
    args = [{"array": array, "shape": [1], "dtype": "float32"}]
    session.send(
        {"do": "call", "object": module["object"], "member": "main", "args": args, "names": [], "named": []}
    )
    return session


def folders(pid: int) -> list[str]:
    """Where a session has its files, by what it has loaded."""
    maps = Path(f"/proc/{pid}/maps").read_text().split()
    return sorted({os.path.dirname(word) for word in maps if word.endswith("/endless.so")})


def test_a_session_ends_with_its_client(server: rpc.Server, endless: bytes) -> None:
    """Also while it computes; its process is gone, and its files."""
    session = at_work(server.port, endless)
    (child,) = children(pid_of(server))
    (folder,) = until(lambda: folders(child))
    assert os.path.exists(folder)
    session.close()
    assert served(server.port)
    until(lambda: not children(pid_of(server)))
    assert not os.path.exists(folder)


@pytest.mark.slow
def test_the_server_limits_a_session_and_the_client_may_ask_for_less(endless: bytes) -> None:
    with rpc.Server(port=0, silent=True, session_limit=1.0) as made:
        for asks in (0, 1000.0, 0.3):
            began = time.monotonic()
            session = at_work(made.port, endless, timeout=asks)
            assert is_closed(session)
            assert min(asks or 1.0, 1.0) <= time.monotonic() - began < 60
        session = rpc.connect("127.0.0.1", made.port, session_timeout=0.2)
        with pytest.raises(tvm.TVMError, match=r"the session has reached its limit of 0\.2 s"):
            until(lambda: session.listdir() is None)  # which it never is
        assert served(made.port)


def test_who_comes_while_another_is_served_waits(server: rpc.Server) -> None:
    first = rpc.connect("127.0.0.1", server.port)
    with pytest.raises(LateError, match=r"the server has been busy with another client for 0\.2 s"):
        rpc.connect("127.0.0.1", server.port, wait=0.2)
    waiting = [opened_and_waiting(server.port) for _ in range(16)]
    until(lambda: _is_full(server.port))
    for sock in waiting:
        sock.close()
    first.close()
    assert served(server.port)


def opened_and_waiting(port: int) -> Any:
    from tilewright.rpc.access import greeted

    access = rpc.Access()
    return greeted(access.connect("127.0.0.1", port), access, "server", key="", timeout=0)


def _is_full(port: int) -> bool:
    try:
        rpc.connect("127.0.0.1", port, wait=0.1)
    except LateError:
        return False
    except tvm.TVMError as error:
        return "16 clients are waiting already" in str(error)
    return False


class FalseServer(threading.Thread):
    """A server that greets as it should, and then answers what it likes."""

    def __init__(self, *answers: bytes) -> None:
        super().__init__(daemon=True)
        self._listening, self._answers = socket.create_server(("127.0.0.1", 0)), answers
        self.port = self._listening.getsockname()[1]
        self.start()

    def run(self) -> None:
        with self._listening, self._listening.accept()[0] as sock:
            link = Connection(sock, "client", 1 << 20)
            link.receive(20.0)
            link.send({"hello": PROTOCOL, "nonce": "1" * 64})
            for answer in self._answers:
                link.receive(20.0)
                sock.sendall(answer)
            with contextlib.suppress(OSError):
                sock.recv(1)  # until the client has heard it, and is gone


def test_a_client_is_safe_from_false_answers() -> None:
    ok = described(ok={"timeout": "soon"}, parts=[])
    session = rpc.connect("127.0.0.1", FalseServer(ok, described(parts=[])).port)
    with pytest.raises(rpc.ProtocolError, match="its reply is not a valid answer"):
        session.listdir()
    session.close()
    short = described(ok=None, parts=[3]) + b"abc"
    session = rpc.connect("127.0.0.1", FalseServer(ok, described(ok=1, parts=[]), short).port)
    array = tvm.nd.empty((1000,), "float32", session.cpu())
    with pytest.raises(rpc.ProtocolError, match="3 bytes arrived for an array of 4000"):
        array.numpy()
    session.close()
    for place in (None, [], {}, {"host": "x", "port": "y", "match": "z"}):
        known = rpc.connect_tracker("127.0.0.1", FalseServer(ok, described(ok=place, parts=[])).port)
        with pytest.raises(rpc.ProtocolError, match="the tracker does not say where a server is"):
            known.request("board")
        known.close()


def test_both_ends_notice_when_the_other_machine_is_gone(server: rpc.Server) -> None:
    session = opened(server.port, "server", key="", timeout=0)
    mine = session._socket.getsockname()[1]

    def timers() -> dict[int, str]:
        """What the system waits for next, by the port of an end of this connection; 02 is the time to ask."""
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        ends = [[int(row[i].split(":")[1], 16) for i in (1, 2)] + [row[5].split(":")[0]] for row in rows]
        return {end[0]: end[2] for end in ends if sorted(end[:2]) == sorted((mine, server.port))}

    until(lambda: timers() == {mine: "02", server.port: "02"})
    session.close()


@pytest.mark.slow
def test_a_client_is_safe_from_what_it_connects_to() -> None:
    """Neither a length without end nor one byte now and then keeps it."""
    for answer in (STREAMS["parts of 8 GiB"], STREAMS["brackets"], framed(b"", 1 << 20)):
        with socket.create_server(("127.0.0.1", 0)) as stranger:
            port = stranger.getsockname()[1]
            client = rpc.Access().connect("127.0.0.1", port)
            other = stranger.accept()[0]
            other.sendall(answer)
            with pytest.raises(tvm.TVMError, match="the other side does not use tilewright's protocol"):
                client.receive(20.0)
            other.close()
            client.close()
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        client = rpc.Access().connect("127.0.0.1", stranger.getsockname()[1])
        with pytest.raises(tvm.TVMError, match="no answer came in time"):
            client.receive(0.05)
        client.close()
