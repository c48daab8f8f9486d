"""Running on other machines: files are sent there, loaded, called and measured, as if they were here.

    board:  python -m tilewright.exec.rpc_server --host 0.0.0.0 --port 9090 --secret-file secret

    remote = rpc.connect("board", 9090)
    remote.upload("net.so")
    module = remote.load_module("net.so")
    a = tvm.nd.array(values, remote.cpu())
    module(a, b)

Whoever has a session can run any code as the server's user. A server listens on loopback unless told otherwise, and
asks for a secret where it was given one (`access`).
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
