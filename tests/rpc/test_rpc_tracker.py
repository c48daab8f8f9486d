"""Trackers: no server is lost, whoever dies, and whatever strangers do."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rpc_peers import asked, children, is_closed, opened, pid_of, served, until

import tilewright as tvm
from tilewright import rpc
from tilewright.rpc import registry
from tilewright.rpc import tracker as trackers
from tilewright.rpc.access import add_listening_options


@pytest.fixture(scope="module")
def tracker() -> Iterator[rpc.Tracker]:
    with rpc.Tracker(port=0, silent=True) as made:
        yield made


@pytest.fixture(scope="module")
def server(tracker: rpc.Tracker) -> Iterator[rpc.Server]:
    with rpc.Server(port=0, key="board", tracker_addr=("127.0.0.1", tracker.port), silent=True) as made:
        yield made


@pytest.fixture
def known(tracker: rpc.Tracker, server: rpc.Server) -> Iterator[rpc.TrackerSession]:
    made = rpc.connect_tracker("127.0.0.1", tracker.port)
    until(lambda: free(made) == 1)
    yield made
    assert len(made.summary()["server_info"]) == 1
    until(lambda: free(made) == 1)
    made.close()


def queue(known: rpc.TrackerSession) -> dict[str, int]:
    return known.summary()["queue_info"].get("board", {"free": 0, "pending": 0})


def free(known: rpc.TrackerSession) -> int:
    return queue(known)["free"]


@pytest.mark.slow
def test_a_client_dies_after_it_was_told_the_place(known: rpc.TrackerSession, tracker: rpc.Tracker) -> None:
    dies = opened(tracker.port, "tracker")
    place = asked(dies, do="request", key="board")
    assert place["match"].startswith("board:") and free(known) == 0
    dies.close()
    until(lambda: free(known) == 1)


def test_a_client_dies_while_it_waits(known: rpc.TrackerSession, tracker: rpc.Tracker) -> None:
    session = known.request("board")
    dies = opened(tracker.port, "tracker")
    dies.send({"do": "request", "key": "board"})
    until(lambda: queue(known)["pending"] == 1)
    dies.close()
    until(lambda: queue(known)["pending"] == 0)
    session.close()
    assert known.request_and_run("board", lambda again: again.listdir()) == []


def test_a_client_is_killed_in_its_session(known: rpc.TrackerSession, tracker: rpc.Tracker) -> None:
    script = (
        "import os, signal; from tilewright import rpc\n"
        f"session = rpc.connect_tracker('127.0.0.1', {tracker.port}).request('board')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", script]).returncode == -signal.SIGKILL
    assert known.request_and_run("board", lambda again: again.listdir()) == []


def test_strangers_at_a_server_add_nothing(known: rpc.TrackerSession, server: rpc.Server) -> None:
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\0") * 5:
        with socket.create_connection(("127.0.0.1", server.port)) as sock:
            sock.sendall(data)
    with pytest.raises(tvm.TVMError, match="the key does not match this server"):
        served(server.port, "board")
    assert queue(known) == {"free": 1, "pending": 0} and len(known.summary()["server_info"]) == 1
    assert known.request_and_run("board", lambda session: session.listdir()) == []


def test_a_place_that_was_given_to_another_is_refused(known: rpc.TrackerSession, server: rpc.Server) -> None:
    late = opened(known._place[1], "tracker")
    place = asked(late, do="request", key="board")
    first = rpc.connect("127.0.0.1", server.port, place["match"])
    with pytest.raises(tvm.TVMError, match="another client is using this server now"):
        rpc.connect("127.0.0.1", server.port, place["match"])
    first.close()
    until(lambda: free(known) == 1)
    with pytest.raises(tvm.TVMError, match="or the tracker has since assigned the server to another client"):
        rpc.connect("127.0.0.1", server.port, place["match"])
    late.close()


@pytest.mark.slow
def test_nobody_waits_for_ever(known: rpc.TrackerSession, monkeypatch: pytest.MonkeyPatch) -> None:
    session = known.request("board")
    began = time.monotonic()
    with pytest.raises(
        tvm.TVMError, match=r"no server of the key 'board' became free in 0\.\d+ s \(1 are registered, 1 of"
    ):
        known.request("board", wait=0.3)
    assert time.monotonic() - began < 60
    session.close()


@contextlib.contextmanager
def tracking() -> Iterator[int]:
    """A tracker in a thread of this process; its port."""
    parser = argparse.ArgumentParser()
    add_listening_options(parser)
    given = parser.parse_args(["--silent"])
    given.host, given.port, given.port_end = "127.0.0.1", 0, 0
    made = trackers._Tracking(given)
    running = threading.Thread(target=made.run)
    running.start()
    try:
        yield made.port
    finally:
        made._end()
        with socket.create_connection(("127.0.0.1", made.port)):  # so that it turns
            running.join(120)
    assert not running.is_alive()


def test_a_key_that_no_server_has_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "ABSENT", 0.2)
    with tracking() as port:
        known = rpc.connect_tracker("127.0.0.1", port)
        with pytest.raises(tvm.TVMError, match=r"no server of the key 'bord' .*registered servers: none"):
            known.request("bord", wait=600)
        known.close()


@pytest.mark.parametrize(
    "message", [{}, {"do": 5}, {"do": "put"}, {"do": "request"}, {"do": "fly"}, {"do": {}}]
)
def test_a_request_that_is_none_is_told_and_the_connection_ends(
    known: rpc.TrackerSession, tracker: rpc.Tracker, message: dict[str, Any], capfd: Any
) -> None:
    bad = opened(tracker.port, "tracker")
    bad.send(message)
    assert bad.receive(20.0)[0]["error"]["kind"] == "ProtocolError"
    assert is_closed(bad)
    assert "Traceback" not in "".join(capfd.readouterr())


def test_where_there_are_too_many_those_who_want_nothing_give_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those who wait for a server; and who was sent away comes back when it asks again."""
    monkeypatch.setattr(trackers, "_MOST", 10)
    with tracking() as port, contextlib.ExitStack() as stack:
        known = rpc.connect_tracker("127.0.0.1", port)
        first = known._connection
        waits, *others = [stack.enter_context(contextlib.closing(opened(port, "tracker"))) for _ in range(2)]
        waits.send({"do": "request", "key": "board"})
        others += [stack.enter_context(contextlib.closing(opened(port, "tracker"))) for _ in range(20)]
        assert asked(others[-1], do="summary")["queue_info"] == {"board": {"free": 0, "pending": 1}}
        assert is_closed(others[0])
        assert known.summary()["queue_info"]["board"]["pending"] == 1 and known._connection is not first
        server = stack.enter_context(contextlib.closing(opened(port, "tracker")))
        asked(server, do="put", name="s", key="board", port=1, match="m", busy=False)
        assert waits.receive(20.0)[0]["ok"]["match"] == "m"
        known.close()


# ---------------------------------------------------------------------------- restarts
def restarted(tracker: rpc.Tracker) -> rpc.Tracker:
    """Another tracker at the same place, after the first was killed."""
    os.kill(pid_of(tracker), signal.SIGKILL)
    tracker._process.wait()
    return rpc.Tracker(port=tracker.port, port_end=tracker.port + 1, silent=True)


@pytest.mark.slow
def test_a_tracker_that_is_started_again_learns_of_its_servers() -> None:
    first = rpc.Tracker(port=0, silent=True)
    place = ("127.0.0.1", first.port)
    with rpc.Server(port=0, key="board", tracker_addr=place, silent=True) as server:
        known = rpc.connect_tracker(*place)
        session = known.request("board")
        with restarted(first) as second:
            until(lambda: known.summary()["server_info"])
            assert free(known) == 0  # it has a session, which has gone on
            assert session.listdir() == []
            session.close()
            until(lambda: free(known) == 1)
            with restarted(second):
                assert known.request_and_run("board", lambda again: again.listdir()) == []
                assert len(known.summary()["server_info"]) == 1
                assert server._process.poll() is None
                known.close()


@pytest.mark.slow
def test_a_server_may_be_there_before_its_tracker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as chosen:
        port = chosen.getsockname()[1]
    place = ("127.0.0.1", port)
    server = rpc.Server(port=0, key="board", tracker_addr=place, silent=True)
    with server, rpc.Tracker(port=port, port_end=port + 1, silent=True):
        known = rpc.connect_tracker(*place)
        assert known.request_and_run("board", lambda session: session.listdir()) == []


@pytest.mark.slow
def test_a_request_goes_on_when_the_tracker_is_started_again() -> None:
    first = rpc.Tracker(port=0, silent=True)
    place = ("127.0.0.1", first.port)
    known = rpc.connect_tracker(*place)
    script = (
        "from tilewright import rpc; import sys\n"
        f"known = rpc.connect_tracker('127.0.0.1', {first.port}); print('there', flush=True)\n"
        "print(known.request('board').listdir(), flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None and client.stdout.readline() == "there\n"
        until(lambda: queue(known)["pending"] == 1)
        with restarted(first), rpc.Server(port=0, key="board", tracker_addr=place, silent=True):
            assert client.stdout.readline() == "[]\n"
    known.close()


@pytest.mark.slow
def test_a_server_that_is_killed_takes_its_children_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # nobody is left to remove the files of the session
    with rpc.Tracker(port=0, silent=True) as tracker:
        place = ("127.0.0.1", tracker.port)
        server = rpc.Server(port=0, key="board", tracker_addr=place, silent=True)
        known = rpc.connect_tracker(*place)
        session = known.request("board")
        (announcer, child) = children(pid_of(server))
        os.kill(pid_of(server), signal.SIGKILL)
        until(lambda: not known.summary()["server_info"])
        until(lambda: not os.path.exists(f"/proc/{child}") and not os.path.exists(f"/proc/{announcer}"))
        with pytest.raises(tvm.TVMError, match=r"has closed the connection|connection broke"):
            session.listdir()
        server.terminate()


@pytest.mark.slow
def test_a_server_removes_what_one_before_it_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    killed = rpc.Server(port=0, silent=True)
    session = rpc.connect("127.0.0.1", killed.port)
    session.upload(bytes(100), "left")
    (child,) = children(pid_of(killed))
    os.kill(pid_of(killed), signal.SIGKILL)
    until(lambda: not os.path.exists(f"/proc/{child}"))
    (left,) = tmp_path.glob("*/left")
    foreign = tmp_path / "tilewright-session-link"
    foreign.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").mkdir()
    with rpc.Server(port=0, silent=True) as first:
        held = rpc.connect("127.0.0.1", first.port)
        assert not left.parent.exists() and foreign.is_symlink()
        held.upload(b"in use", "held")
        with rpc.Server(port=0, silent=True) as second:
            rpc.connect("127.0.0.1", second.port).close()
            assert bytes(held.download("held")) == b"in use"
        held.close()
    killed.terminate()
