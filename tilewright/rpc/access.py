"""Access control: a shared secret, TLS, and the address that a server listens on.

The secret itself is never sent. Each side proves that it has it, by an HMAC over the nonces of both:

    proof = HMAC-SHA256(secret, [protocol, who proves it, to what, the client's nonce, the server's nonce])

A secret authenticates both sides. It does not protect the traffic from being read or changed: TLS does.
"""

from __future__ import annotations

import argparse
import hashlib
import hmac
import ipaddress
import json
import math
import os
import secrets
import socket
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeGuard

from .base import PATIENCE, PROTOCOL, BrokenError, Connection, ProtocolError, RPCError, keep_alive

if TYPE_CHECKING:
    import ssl

_SECRET, _SECRET_FILE = "TILEWRIGHT_RPC_SECRET", "TILEWRIGHT_RPC_SECRET_FILE"
_TLS = {
    "tls_cert": "TILEWRIGHT_RPC_TLS_CERT",
    "tls_key": "TILEWRIGHT_RPC_TLS_KEY",
    "tls_ca": "TILEWRIGHT_RPC_TLS_CA",
}
_SHORTEST = 16  # least bytes of a secret
_NONCE = 64  # characters of a nonce


@dataclass(frozen=True)
class Access:
    """The credentials of a process, and those that it requires of others.

    `secret` is shared by all. `tls_cert` and `tls_key` are the files of this side's certificate and its key, `tls_ca`
    is that of the authority which must have signed the others': with it, clients must show a certificate too. "system"
    stands for the authorities that this machine trusts. Defaults come from the environment variables
    TILEWRIGHT_RPC_SECRET_FILE (or TILEWRIGHT_RPC_SECRET), TILEWRIGHT_RPC_TLS_CERT, TILEWRIGHT_RPC_TLS_KEY and
    TILEWRIGHT_RPC_TLS_CA.
    """

    secret: bytes | str = field(default=b"", repr=False)
    tls_cert: str = ""
    tls_key: str = ""
    tls_ca: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.secret, str):
            object.__setattr__(self, "secret", self.secret.encode())
        if 0 < len(self.secret) < _SHORTEST:
            raise RPCError(
                f"the secret has {len(self.secret)} bytes, and needs {_SHORTEST} so that it cannot be guessed; "
                'make one: python -c "import secrets; print(secrets.token_hex(32))"'
            )
        if bool(self.tls_cert) != bool(self.tls_key):
            raise RPCError("TLS needs a certificate and its key: give both --tls-cert and --tls-key")

    @staticmethod
    def of(given: argparse.Namespace | None = None) -> Access:
        """The access of command-line options, with defaults from environment variables."""
        file = getattr(given, "secret_file", None) or os.environ.get(_SECRET_FILE, "")
        secret = _secret_in(file) if file else os.environ.get(_SECRET, "").strip().encode()
        tls = {
            name: getattr(given, name, None) or os.environ.get(variable, "")
            for name, variable in _TLS.items()
        }
        return Access(secret, **tls)

    def environment(self) -> dict[str, str]:
        """Environment variables that pass this access to a child process."""
        unset = {_SECRET_FILE: "", _SECRET: os.fsdecode(self.secret)}
        return unset | {variable: getattr(self, name) for name, variable in _TLS.items()}

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return bool(self.tls_cert or self.tls_ca)

    @property
    def closed(self) -> bool:
        """Whether clients must authenticate."""
        return bool(self.secret or (self.tls_ca and self.tls_ca != "system"))

    def proof(self, who: str, service: str, client: str, server: str) -> str:
        """The proof, for two nonces, that a side has the secret."""
        said = json.dumps(["tilewright", PROTOCOL, who, service, client, server]).encode()
        assert isinstance(self.secret, bytes)
        return hmac.new(self.secret, said, hashlib.sha256).hexdigest()

    def proves(self, proof: Any, who: str, service: str, client: str, server: str) -> bool:
        """Whether a proof is valid."""
        mine = self.proof(who, service, client, server).encode()
        return isinstance(proof, str) and hmac.compare_digest(proof.encode("utf-8", "replace"), mine)

    def context(self, listening: bool) -> ssl.SSLContext | None:
        """The TLS context of the side that listens or the one that connects; None without TLS."""
        if not self.tls:
            return None
        import ssl

        if listening and not self.tls_cert:
            raise RPCError("a server with TLS needs a certificate of its own: --tls-cert and --tls-key")
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if listening else ssl.PROTOCOL_TLS_CLIENT)
        try:
            if self.tls_cert:
                made.load_cert_chain(self.tls_cert, self.tls_key)
            if self.tls_ca and self.tls_ca != "system":
                made.load_verify_locations(self.tls_ca)
                # a certificate of the fleet's own authority is accepted at any address
                made.check_hostname = False
                made.verify_mode = ssl.CERT_REQUIRED
            elif not listening:
                made.load_default_certs()
        except OSError as error:
            files = ", ".join(f for f in (self.tls_cert, self.tls_key, self.tls_ca) if f)
            raise RPCError(f"TLS cannot be used with {files}: {error}") from None
        return made

    def connect(self, host: str, port: int, timeout: float = 60.0) -> Connection:
        """A connection, with TLS if configured, before the greeting."""
        try:
            sock = socket.create_connection((host, port), timeout)
        except OSError as error:
            raise BrokenError(
                f"{host}:{port}: no connection ({error}); is a server running there? "
                "python -m tilewright.exec.rpc_server"
            ) from None
        keep_alive(sock)
        context = self.context(listening=False)
        if context is not None:
            sock.settimeout(PATIENCE)
            try:
                sock = context.wrap_socket(sock, server_hostname=host)
            except OSError as error:
                sock.close()
                raise RPCError(
                    f"{host}:{port}: no TLS connection ({error}); is TLS used there, "
                    "and was its certificate signed by this side's --tls-ca?"
                ) from None
        return Connection(sock, f"{host}:{port}")


def _secret_in(file: str) -> bytes:
    try:
        mode = os.stat(file).st_mode
        with open(file, "rb") as opened:
            secret = opened.read(1 << 16).strip()
    except OSError as error:
        raise RPCError(f"{file}: the secret cannot be read ({error})") from None
    if stat.S_ISREG(mode) and mode & 0o007:
        raise RPCError(f"{file}: every user of this machine can read the secret; chmod 600 {file}")
    if not secret:
        raise RPCError(f"{file}: the file is empty, and should hold the secret")
    return secret


def new_nonce() -> str:
    """A new nonce."""
    return secrets.token_hex(_NONCE // 2)


def is_nonce(said: Any) -> TypeGuard[str]:
    return isinstance(said, str) and len(said) == _NONCE


def greeted(connection: Connection, access: Access, service: str, **what: Any) -> Connection:
    """Greet a "server" or a "tracker": authenticate both sides, then send the request."""
    mine = new_nonce()
    try:
        connection.send({"hello": PROTOCOL, "to": service, "nonce": mine})
        answer = connection.receive(PATIENCE)[0]
        failed(answer, connection.name)
        theirs = answer.get("nonce")
        if answer.get("hello") != PROTOCOL or not is_nonce(theirs):
            raise ProtocolError(
                f"{connection.name}: the other side is not tilewright, or has another version"
            )
        if not access.secret and "proof" in answer:
            raise RPCError(
                f"{connection.name}: the other side requires a secret; set {_SECRET_FILE} to the file that contains it"
            )
        if access.secret:
            if not access.proves(answer.get("proof"), "server", service, mine, theirs):
                how = "has another secret" if "proof" in answer else "has no secret"
                raise RPCError(
                    f"{connection.name}: the {service} there {how}, and so may be an impostor; start it with the same "
                    "--secret-file"
                )
            what["proof"] = access.proof("client", service, mine, theirs)
        connection.send(what)
    except BaseException:
        connection.close()
        raise
    return connection


def answered(answer: dict[str, Any], name: str) -> Any:
    """The answer of the other side; raises the error that it reports."""
    failed(answer, name)
    if "ok" not in answer:
        raise ProtocolError(f"{name}: its reply is not a valid answer")
    return answer["ok"]


def failed(answer: dict[str, Any], name: str) -> None:
    """Raise the error that the other side reports."""
    if "error" not in answer:
        return
    about = answer["error"] if isinstance(answer["error"], dict) else {"text": answer["error"]}
    kind = "" if about.get("kind") in (None, "RPCError") else f"{about['kind']}: "
    raise RPCError(f"{name}: {kind}{about.get('text')}")


# ---------------------------------------------------------------------------- command lines
def add_listening_options(parser: argparse.ArgumentParser) -> None:
    """The options of everything that listens."""
    parser.add_argument("--greeting-limit", type=seconds, default=PATIENCE, help="seconds for a greeting")
    parser.add_argument("--silent", action="store_true", help="do not print refused connections")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    add_options(parser)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of everything that connects."""
    parser.add_argument("--secret-file", help=f"a file with the secret that all share (or {_SECRET_FILE})")
    parser.add_argument("--tls-cert", help=f"this side's certificate: use TLS (or {_TLS['tls_cert']})")
    parser.add_argument("--tls-key", help=f"the key of the certificate (or {_TLS['tls_key']})")
    parser.add_argument(
        "--tls-ca", help=f"who must have signed the others' certificates (or {_TLS['tls_ca']})"
    )


def seconds(text: str) -> float:
    """A number of seconds above 0, for `argparse`."""
    value = float(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def count(text: str) -> int:
    """A number above 0, for `argparse`."""
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return value


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listening_address(
    host: str | None, tracker: tuple[str, int] | None, access: Access, custom: str | None
) -> str:
    """The address to listen on: the given one, else the one that clients of its tracker can reach, else loopback."""
    if host is not None:
        if tracker is not None and custom is None and is_loopback(host) and not is_loopback(tracker[0]):
            raise RPCError(
                f"--host {host}: clients of the tracker at {tracker[0]} could not reach this server there; "
                "omit --host, or give the address that others can reach with --custom-addr"
            )
        return host
    if tracker is None or is_loopback(tracker[0]):
        return "127.0.0.1"
    if not access.closed:
        raise RPCError(
            f"--tracker {tracker[0]}:{tracker[1]}: other machines could reach this server, and could run any "
            "code as its user: give the secret that all share (--secret-file FILE), or say where to listen without one "
            "(--host 0.0.0.0)"
        )
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:  # nothing is sent
            probe.connect(tracker)
            return str(probe.getsockname()[0])
    except OSError as error:
        raise RPCError(
            f"--tracker {tracker[0]}:{tracker[1]}: the tracker cannot be reached ({error})"
        ) from None
