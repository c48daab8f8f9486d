"""Remote execution: files are uploaded to another machine, loaded, called and measured there.

    board:  python -m tilewright.exec.rpc_server --host 0.0.0.0 --port 9090 --secret-file secret

    remote = rpc.connect("board", 9090)
    remote.upload("net.so")
    module = remote.load_module("net.so")
    a = tvm.nd.array(values, remote.cpu())
    module(a, b)

A client with a session can run any code as the server's user. A server listens on loopback by default, and requires the
shared secret if it has one (`access`).
"""

from . import base, client, server, tracker
from .access import Access
from .base import RPC_SESS_MASK, ProtocolError, RPCError
from .client import LocalSession, RPCSession, TrackerSession, connect, connect_tracker
from .server import Server
from .tracker import Tracker

__all__ = [
    "RPC_SESS_MASK",
    "Access",
    "LocalSession",
    "ProtocolError",
    "RPCError",
    "RPCSession",
    "Server",
    "Tracker",
    "TrackerSession",
    "base",
    "client",
    "connect",
    "connect_tracker",
    "server",
    "tracker",
]
