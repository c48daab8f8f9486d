"""Addresses of RPC trackers on the command line: `--rpc-tracker board:9190`."""

from __future__ import annotations

from .errors import TVMCException

_PORT = 9090


def tracker_host_port_from_cli(rpc_tracker_str: str | None) -> tuple[str | None, int | None]:
    """The host and the port of HOST:PORT; the port is 9090 if there is none, and both are None without a text."""
    if not rpc_tracker_str:
        return None, None
    host, sign, port = rpc_tracker_str.rpartition(":")
    if not sign:
        return rpc_tracker_str, _PORT
    if not host or not port.isdigit():
        raise TVMCException(
            f"--rpc-tracker {rpc_tracker_str!r}: it is HOST:PORT, as in --rpc-tracker board:9190"
        )
    return host, int(port)
