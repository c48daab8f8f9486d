"""Secrets, TLS, and where a server listens."""

from __future__ import annotations

import argparse
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import certificates
import pytest
from rpc_peers import OPEN, SECRET, opened, refusal, said, served, until

import tilewright as tvm
from tilewright import rpc
from tilewright.rpc import access as accesses
from tilewright.rpc.access import Access, listening_address
from tilewright.rpc.base import PROTOCOL, Connection, encoded
from tilewright.rpc.client import servers_here

OTHER = Access("another secret of enough bytes")


@pytest.fixture(scope="module")
def tracker() -> Iterator[rpc.Tracker]:
    with rpc.Tracker(port=0, access=SECRET, silent=True) as made:
        yield made


@pytest.fixture(scope="module")
def server() -> Iterator[rpc.Server]:
    with rpc.Server(port=0, access=SECRET, silent=True) as made:
        yield made


# ---------------------------------------------------------------------------- secrets
def test_who_has_the_secret_is_served(tracker: rpc.Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    place = ("127.0.0.1", tracker.port)
    with rpc.Server(port=0, key="board", tracker_addr=place, access=SECRET):
        known = rpc.connect_tracker(*place, access=SECRET)
        assert known.request_and_run("board", lambda session: session.listdir()) == []
        monkeypatch.setenv("TILEWRIGHT_RPC_SECRET", str(SECRET.secret, "ascii"))
        until(lambda: servers_here("board", *place))
        known.close()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            OPEN,
            "the other side requires a secret; set TILEWRIGHT_RPC_SECRET_FILE to the file that contains it",
        ),
        (OTHER, "there has another secret, and so may be an impostor; start it with the same --secret-file"),
    ],
)
def test_who_has_another_secret_or_none_is_not(
    server: rpc.Server, tracker: rpc.Tracker, given: Access, why: str
) -> None:
    with pytest.raises(tvm.TVMError, match=why):
        rpc.connect("127.0.0.1", server.port, access=given)
    with pytest.raises(tvm.TVMError, match=why):
        rpc.connect_tracker("127.0.0.1", tracker.port, access=given)


def test_a_false_server_is_found_out() -> None:
    with rpc.Server(port=0, silent=True) as false:
        with pytest.raises(tvm.TVMError, match="the server there has no secret, and so may be an impostor"):
            rpc.connect("127.0.0.1", false.port, access=SECRET)
        assert served(false.port)


def greeting(nonce: str, service: str) -> dict[str, Any]:
    return {"hello": PROTOCOL, "to": service, "nonce": nonce}


@pytest.mark.parametrize("proof", [None, "", "0" * 64, 7, "\ud800", "\u00e9" * 64, ["x"], {"a": 1}])
def test_a_proof_cannot_be_made_up(tracker: rpc.Tracker, proof: Any) -> None:
    put = {"do": "put", "name": "n", "key": "board", "port": 1, "match": "m", "busy": False}
    data = encoded(greeting("a" * 64, "tracker")) + encoded({"proof": proof}) + encoded(put)
    error = refusal(said(tracker.port, data))
    assert error["text"] == "the secrets of the two sides differ; use the same --secret-file on all machines"
    assert rpc.connect_tracker("127.0.0.1", tracker.port, access=SECRET).summary()["server_info"] == []


def test_a_proof_is_good_for_one_greeting_on_one_side(server: rpc.Server, tracker: rpc.Tracker) -> None:
    """Neither what was heard before, nor what the other side has just said, nor what is for another service."""
    mine = "a" * 64
    link = Connection(socket.create_connection(("127.0.0.1", server.port)), "server")
    link.send(greeting(mine, "server"))
    first = link.receive(10.0)[0]
    for proof in (
        first["proof"],  # reflected
        SECRET.proof("client", "server", mine, "b" * 64),  # of another greeting
        SECRET.proof("client", "tracker", mine, first["nonce"]),  # for another service
    ):
        link = Connection(socket.create_connection(("127.0.0.1", server.port)), "server")
        link.send(greeting(mine, "server"))
        again = link.receive(10.0)[0]
        assert again["nonce"] != first["nonce"] and again["proof"] != first["proof"]
        link.send({"proof": proof, "key": "", "timeout": 0})
        assert "the secrets of the two sides differ" in link.receive(10.0)[0]["error"]["text"]
        link.close()


def test_a_server_that_the_tracker_refuses_says_so_and_stays(tracker: rpc.Tracker, capfd: Any) -> None:
    with rpc.Server(port=0, key="false", tracker_addr=("127.0.0.1", tracker.port), access=OTHER):
        heard = ""

        def complains() -> bool:
            nonlocal heard
            heard += capfd.readouterr().err
            return "rpc_server: the tracker refuses this server: " in heard

        until(complains)
        known = rpc.connect_tracker("127.0.0.1", tracker.port, access=SECRET)
        assert known.summary()["server_info"] == []


def test_where_a_secret_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n")
    file.chmod(0o600)
    given = argparse.Namespace(secret_file=str(file))
    assert Access.of(given).secret == b"0123456789abcdef" and "0123456789" not in repr(Access.of(given))
    monkeypatch.setenv("TILEWRIGHT_RPC_SECRET_FILE", str(file))
    assert Access.of().secret == b"0123456789abcdef"
    file.chmod(0o644)
    with pytest.raises(
        tvm.TVMError, match=f"every user of this machine can read the secret; chmod 600 {file}"
    ):
        Access.of()
    file.chmod(0o600)
    file.write_text("short\n")
    with pytest.raises(tvm.TVMError, match="the secret has 5 bytes, and needs 16"):
        Access.of()
    file.write_text("\n")
    with pytest.raises(tvm.TVMError, match="the file is empty"):
        Access.of()
    file.unlink()
    with pytest.raises(tvm.TVMError, match="secret: the secret cannot be read"):
        Access.of()


def test_a_secret_is_not_on_the_command_line(server: rpc.Server) -> None:
    command = Path(f"/proc/{server._process.pid}/cmdline").read_bytes()
    assert b"correct horse" not in command


# ---------------------------------------------------------------------------- where a server listens
class Probe:
    """A socket that knows the way to every machine."""

    def __init__(self, *_: Any) -> None:
        self.connected: Any = None

    def connect(self, place: tuple[str, int]) -> None:
        self.connected = place

    def getsockname(self) -> tuple[str, int]:
        return ("192.0.2.7", 40000)

    def __enter__(self) -> Probe:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_a_server_listens_where_it_can_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """`rpc_server --tracker tracker:9190 --key rasp4` is announced under the address at which it listens."""
    monkeypatch.setattr(accesses.socket, "socket", Probe)
    there = ("tracker", 9190)
    assert listening_address(None, None, OPEN, None) == "127.0.0.1"
    assert listening_address(None, ("127.0.0.1", 9190), OPEN, None) == "127.0.0.1"
    assert listening_address(None, there, SECRET, None) == "192.0.2.7"
    assert listening_address(None, there, Access(tls_cert="c", tls_key="k", tls_ca="ca"), None) == "192.0.2.7"
    assert listening_address("0.0.0.0", there, OPEN, None) == "0.0.0.0"
    assert listening_address("127.0.0.1", there, SECRET, "gateway") == "127.0.0.1"
    with pytest.raises(tvm.TVMError) as error:
        listening_address(None, there, OPEN, None)
    assert str(error.value) == (
        "--tracker tracker:9190: other machines could reach this server, and could run any code as its user: give "
        "the secret that all share (--secret-file FILE), or say where to listen without one (--host 0.0.0.0)"
    )
    with pytest.raises(tvm.TVMError, match="clients of the tracker at tracker could not reach this server"):
        listening_address("127.0.0.1", there, SECRET, None)


def ran(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *arguments], capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_commands_refuse_in_a_sentence() -> None:
    for arguments, why in (
        (
            ("tilewright.exec.rpc_server", "--tracker", "192.0.2.1:9190"),
            "rpc_server: --tracker 192.0.2.1:9190: other",
        ),
        (
            ("tilewright.exec.rpc_server", "--tracker", "board"),
            "rpc_server: --tracker 'board': it is HOST:PORT",
        ),
        (
            ("tilewright.exec.rpc_tracker", "--secret-file", "/no/such"),
            "rpc_tracker: /no/such: the secret cannot",
        ),
        (
            ("tilewright.exec.rpc_tracker", "--tls-cert", "c.pem"),
            "rpc_tracker: TLS needs a certificate and its key",
        ),
        (
            ("tilewright.exec.query_rpc_tracker", "--port", "1"),
            "query_rpc_tracker: 127.0.0.1:1: no connection",
        ),
    ):
        result = ran(*arguments)
        assert (
            result.returncode == 1 and result.stderr.startswith(why) and len(result.stderr.splitlines()) == 1
        )


# ---------------------------------------------------------------------------- TLS
@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Access]:
    """Two authorities, each with a certificate that it has signed."""
    return {
        name: Access(SECRET.secret, *certificates.made(tmp_path_factory.mktemp(name), name))
        for name in ("fleet", "strangers")
    }


@pytest.mark.slow
def test_with_tls_both_sides_show_certificates(signed: dict[str, Access], capfd: Any) -> None:
    mine = signed["fleet"]
    with rpc.Tracker(port=0, access=mine, silent=True, greeting_limit=1.0) as tracker:
        place = ("127.0.0.1", tracker.port)
        with rpc.Server(port=0, key="board", tracker_addr=place, access=mine, silent=True):
            known = rpc.connect_tracker(*place, access=mine)
            session = known.request("board")
            data = bytes(range(256)) * 20000
            session.upload(data, "x")  # in many records
            assert session.download("x") == data
            session.close()
            without = Access(mine.secret, tls_ca=mine.tls_ca)
            for given in (signed["strangers"], without, SECRET):
                with pytest.raises(tvm.TVMError):
                    rpc.connect_tracker(*place, access=given).summary()
            with socket.create_connection(place) as silent:  # in the middle of TLS
                silent.sendall(bytes.fromhex("1603010200"))
                assert known.request_and_run("board", lambda again: again.listdir()) == []
                silent.settimeout(120)
                assert silent.recv(100) == b""
    assert "Traceback" not in "".join(capfd.readouterr())


@pytest.mark.slow
def test_strangers_to_tls_are_closed_and_others_served(signed: dict[str, Access], capfd: Any) -> None:
    """Also when there are so many that some give way, and when they reset their connections."""
    mine, rng = signed["fleet"], random.Random(0)
    with rpc.Server(port=0, access=mine, silent=True) as server:
        kept = []
        for i in range(400):
            sock = socket.create_connection(("127.0.0.1", server.port))
            sock.sendall(
                rng.choice((b"", b"\0", bytes.fromhex("1603010200010001fc0303"), rng.randbytes(3000)))
            )
            if i % 3:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                sock.close()
            else:
                kept.append(sock)
            if i % 50 == 0:
                assert served(server.port, access=mine)
        assert served(server.port, access=mine)
        for sock in kept:
            sock.close()
    assert "Traceback" not in "".join(capfd.readouterr())


def test_a_client_without_certificate_where_a_secret_is_enough(signed: dict[str, Access]) -> None:
    mine = signed["fleet"]
    with rpc.Server(port=0, silent=True, access=Access(mine.secret, mine.tls_cert, mine.tls_key)) as server:
        assert served(server.port, access=Access(mine.secret, tls_ca=mine.tls_ca))
        with pytest.raises(tvm.TVMError, match="no TLS connection"):
            rpc.connect("127.0.0.1", server.port, access=signed["strangers"])


def test_who_listens_with_tls_has_a_certificate(signed: dict[str, Access]) -> None:
    with pytest.raises(tvm.TVMError, match="needs a certificate of its own: --tls-cert and --tls-key"):
        Access(tls_ca=signed["fleet"].tls_ca).context(listening=True)
    with pytest.raises(tvm.TVMError, match=r"TLS cannot be used with .*nope"):
        Access(tls_ca="nope").context(listening=False)


@pytest.mark.slow
def test_a_plain_client_is_not_kept_by_a_server_that_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Thread(target=lambda: silent.accept()[0].sendall(b"\0"), daemon=True).start()
        with pytest.raises(tvm.TVMError, match=r"in time|closed the connection|connection broke"):
            opened(silent.getsockname()[1], "server")
