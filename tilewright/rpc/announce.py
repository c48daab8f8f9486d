"""The announcer of a server to its tracker: a process of its own, which may block, as the server may not.

server ──▶ "free as MATCH" / "busy as MATCH" ──▶ announcer ──▶ tracker
                                                    └── connects again, and tells again, whenever it must
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from .access import Access, failed, greeted
from .base import BrokenError, Connection, RPCError
from .children import Child

_FIRST, _LONGEST = 0.1, 5.0  # seconds between attempts to reach a tracker, doubled each time
_ANSWER = 10.0  # timeout of an answer of the tracker, in seconds


class Announcer:
    """Announces a server to a tracker: `about` is the description that it sends each time."""

    def __init__(
        self, tracker: tuple[str, int], access: Access, about: dict[str, Any], alone: Callable[[], None]
    ) -> None:
        self._tracker, self._access, self._about = tracker, access, about
        self._state: dict[str, Any] = {}
        self._orders, theirs = socket.socketpair()
        self.child = Child(os.fork())
        if self.child.pid == 0:
            try:
                self._orders.close()
                alone()
                self._announce(theirs)
            except BaseException:
                traceback.print_exc()
                time.sleep(1.0)  # another is started in its place
            finally:
                os._exit(1)
        theirs.close()

    def announce(self, match: str, busy: bool) -> None:
        """Announce that the server is free, or busy with a session."""
        line = json.dumps({"match": match, "busy": busy}) + "\n"
        with contextlib.suppress(OSError):  # it has ended, and another is started
            self._orders.sendall(line.encode())

    def close(self, child: bool = False) -> None:
        """End the announcer, so that the tracker drops the server. A `child` of the server only closes its copies."""
        self._orders.close()
        if not child:
            self.child.end()

    # -- in its own process ----------------------------------------------------------------------
    def _announce(self, orders: socket.socket) -> None:
        """Tell the tracker the latest state, until the server is gone."""
        woken, wakes = socket.socketpair()
        wakes.setblocking(False)
        threading.Thread(target=self._read_orders, args=(orders, wakes), daemon=True).start()
        link: Connection | None = None
        pause, why = _FIRST, ""
        while True:
            wait = None if link is not None or not self._state else pause * random.uniform(0.5, 1.0)
            heard: list[Any] = [woken] if link is None else [woken, link]
            ready = select.select(heard, [], [], wait)[0]
            if woken in ready:
                woken.recv(1 << 16)
            elif ready and link is not None:  # a tracker sends nothing on its own: the connection is closed
                link.close()
                link = None
                continue
            try:
                link = link or self._open()
                link.send({"do": "put", **self._about, **self._state})
                failed(link.receive(_ANSWER)[0], link.name)
                pause, why = _FIRST, ""
            except RPCError as error:
                if link is not None:
                    link.close()
                link, pause = None, min(2 * pause, _LONGEST)
                why = self._print_reason(str(error), why, isinstance(error, BrokenError))

    def _read_orders(self, orders: socket.socket, wakes: socket.socket) -> None:
        """Read the server's messages, also while waiting for a tracker; end with the server."""
        held = b""
        while more := orders.recv(1 << 16):
            *whole, held = (held + more).split(b"\n")
            if whole:
                self._state = json.loads(whole[-1])
                with contextlib.suppress(BlockingIOError):  # there is enough to wake it
                    wakes.send(b"!")
        os._exit(0)

    def _open(self) -> Connection:
        link = greeted(self._access.connect(*self._tracker, timeout=_ANSWER), self._access, "tracker")
        failed(link.receive(_ANSWER)[0], link.name)
        link.most = 1 << 20
        return link

    def _print_reason(self, why: str, before: str, again: bool) -> str:
        """Print once why the server cannot be announced."""
        if why != before:
            what = "cannot be reached, and is tried again" if again else "refuses this server"
            print(f"rpc_server: the tracker {what}: {why}", file=sys.stderr, flush=True)
        return why
