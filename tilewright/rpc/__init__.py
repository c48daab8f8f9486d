"""Running on other machines: files are sent there, loaded, called and measured, as if they were here.

    board:  python -m tilewright.exec.rpc_server --host 0.0.0.0 --port 9090

    remote = rpc.connect("board", 9090)
    remote.upload("net.so")
    module = remote.load_module("net.so")
    a = tvm.nd.array(values, remote.cpu())
    module(a, b)

Whoever can reach a server can run any code on its machine: it listens on loopback unless told otherwise.
"""

from . import base, client, server, tracker
from .base import RPC_SESS_MASK, RPCError
from .client import LocalSession, RPCSession, TrackerSession, connect, connect_tracker
from .server import Server
from .tracker import Tracker

__all__ = [
    "RPC_SESS_MASK",
    "LocalSession",
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
