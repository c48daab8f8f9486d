"""What a tracker knows, without connections: time is a number here."""

from __future__ import annotations

import pytest

from tilewright.rpc.base import ProtocolError
from tilewright.rpc.registry import ABSENT, LEASE, Registry


def put(
    registry: Registry, peer: str, busy: bool = False, match: str = "m", now: float = 0.0, **more: object
):
    message = {
        "do": "put",
        "name": peer,
        "key": "k",
        "port": 9090,
        "match": match,
        "busy": busy,
        "host": None,
    }
    return registry.handle(peer, "10.0.0.1", {**message, **more}, now)


def request(registry: Registry, peer: str, now: float = 0.0, **more: object):
    return registry.handle(peer, "10.0.0.2", {"do": "request", "key": "k", **more}, now)


def queue(registry: Registry, now: float) -> dict[str, int]:
    ((_, answer),) = registry.handle("asks", "10.0.0.2", {"do": "summary"}, now)
    return answer["ok"]["queue_info"]["k"]


PLACE = {"ok": {"host": "10.0.0.1", "port": 9090, "match": "m"}}


def test_a_server_that_nobody_takes_is_free_again() -> None:
    registry = Registry()
    put(registry, "server")
    assert request(registry, "first") == [("first", PLACE)]
    assert queue(registry, 1.0) == {"free": 0, "pending": 0}
    assert request(registry, "second", 1.0) == []
    assert registry.tick(2.0) == ([], LEASE - 2.0)
    assert registry.tick(LEASE) == ([("second", PLACE)], LEASE)


def test_a_client_that_is_gone_gets_nothing_and_keeps_nothing() -> None:
    registry = Registry()
    put(registry, "server")
    request(registry, "holds")
    request(registry, "waits")
    request(registry, "waits too")
    assert registry.disconnected("waits", 1.0) == []
    assert registry.disconnected("holds", 1.0) == [("waits too", PLACE)]
    assert registry.disconnected("waits too", 1.0) == []
    assert queue(registry, 1.0) == {"free": 1, "pending": 0}


def test_a_server_that_is_taken_stays_so_without_the_client() -> None:
    registry = Registry()
    put(registry, "server")
    request(registry, "client")
    registry.handle("client", "", {"do": "settle", "match": "m", "taken": True}, 0.1)
    registry.disconnected("client", 0.2)
    assert queue(registry, 0.3)["free"] == 0
    put(registry, "server", busy=True, now=0.4)
    registry.tick(2 * LEASE)
    assert queue(registry, 2 * LEASE)["free"] == 0
    put(registry, "server", match="next", now=2 * LEASE)
    assert queue(registry, 2 * LEASE)["free"] == 1


def test_a_server_that_was_not_reached_comes_last() -> None:
    registry = Registry()
    put(registry, "broken", match="b")
    put(registry, "sound", match="s")
    ((_, first),) = request(registry, "client")
    assert first["ok"]["match"] == "b"
    registry.handle("client", "", {"do": "settle", "match": "b", "taken": False}, 0.1)
    ((_, second),) = request(registry, "client")
    assert second["ok"]["match"] == "s"


def test_a_server_is_known_once() -> None:
    registry = Registry()
    for _ in range(13):
        put(registry, "server")
    put(registry, "server again", name="server")  # over another connection
    assert queue(registry, 0.0) == {"free": 1, "pending": 0}
    registry.disconnected("server", 1.0)  # the end of the first is seen late
    assert queue(registry, 0.0) == {"free": 1, "pending": 0}


def test_the_most_urgent_is_first_and_then_who_came_first() -> None:
    registry = Registry()
    for name, priority in (("a", 1), ("b", 2), ("c", 2)):
        request(registry, name, priority=priority)
    assert [put(registry, f"s{i}")[-1][0] for i in range(3)] == ["b", "c", "a"]


def test_who_waits_is_told_when_there_is_no_hope() -> None:
    registry = Registry()
    put(registry, "other", key="another")
    request(registry, "client", wait=600)
    assert registry.tick(1.0) == ([], ABSENT - 1.0)
    (((peer, answer),), _) = registry.tick(ABSENT)
    assert peer == "client" and answer["error"]["text"] == (
        "no server of the key 'k' has registered in 30 s (keys of registered servers: 'another'); start one: "
        "python -m tilewright.exec.rpc_server --tracker HOST:PORT --key k"
    )
    put(registry, "server", busy=True)
    request(registry, "client", 100.0, wait=50)
    (((_, answer),), _) = registry.tick(150.0)
    assert answer["error"]["text"] == (
        "no server of the key 'k' became free in 50 s (1 are registered, 1 of them busy); request(…, wait=SECONDS) "
        "waits longer"
    )
    assert queue(registry, 150.0)["pending"] == 0


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({}, "a tracker has no request 'None'; it has: put, request, settle, summary"),
        ({"do": ["put"]}, r"a tracker has no request"),
        ({"do": "request"}, "request: `key` is not a text of at most 256 characters"),
        ({"do": "request", "key": "k" * 257}, "request: `key` is not a text of at most 256 characters"),
        ({"do": "request", "key": "k", "priority": "high"}, "request: `priority` is not a number"),
        ({"do": "request", "key": "k", "wait": float("nan")}, "request: `wait` is not a number"),
        ({"do": "settle", "match": 7}, "settle: `match` is not a text"),
        ({"do": "put", "name": "n", "key": "k", "match": "m"}, "put: `port` is not the number of a port"),
        (
            {"do": "put", "name": "n", "key": "k", "match": "m", "port": True, "busy": False},
            "put: `port` is not",
        ),
        (
            {"do": "put", "name": "n", "key": "k", "match": "m", "port": 1, "busy": 0},
            "put: `busy` is neither",
        ),
        (
            {"do": "put", "name": "n", "key": "k", "match": "m", "port": 1, "busy": False, "host": {}},
            "put: `host` is not a text",
        ),
    ],
)
def test_what_is_not_a_request_is_refused_by_name(message: dict[str, object], why: str) -> None:
    registry = Registry()
    with pytest.raises(ProtocolError, match=why):
        registry.handle("peer", "10.0.0.1", message, 0.0)
    assert registry.handle("peer", "", {"do": "summary"}, 0.0)[0][1]["ok"]["server_info"] == []


def test_one_request_at_a_time() -> None:
    registry = Registry()
    request(registry, "client")
    with pytest.raises(ProtocolError, match="the last one still waits"):
        request(registry, "client")
