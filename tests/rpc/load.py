"""A load on servers and a tracker, on loopback only: `python tests/rpc/load.py --minutes 10`.

Many connections that say nothing, or nonsense; clients that die at random, in the queue, before they take their
server, or in their session; a tracker that is killed and started again every minute. It ends by itself, prints what it
has seen, and its exit status is 1 if anything was lost: a server, a request, a process, a file.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import glob
import os
import random
import selectors
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

from rpc_peers import children, framed, memory, pid_of, threads, until

from tilewright import rpc
from tilewright.rpc.base import PROTOCOL, RPCError, encoded

HERE = "127.0.0.1"
HELLO = encoded({"hello": PROTOCOL, "to": "tracker", "nonce": "0" * 64})
NOISE = (b"", b"", b"\0", b"GET / HTTP/1.1\r\n\r\n", framed(b"[" * 5000), HELLO, HELLO[:30])


class Load:
    """All that goes on at once; `seen` counts it."""

    def __init__(self, given: argparse.Namespace, folder: str) -> None:
        self.given, self.folder = given, folder
        self.rng = random.Random(given.seed)
        self.seen: collections.Counter[str] = collections.Counter()
        self.most: collections.Counter[str] = collections.Counter()  # MiB, threads, connections at once
        self.tracker = rpc.Tracker(port=0, silent=True)
        self.place = (HERE, self.tracker.port)
        self.servers = [
            rpc.Server(port=0, key="load", tracker_addr=self.place, silent=True) for _ in range(given.servers)
        ]
        self.clients: set[int] = set()
        self.selector = selectors.DefaultSelector()
        self.idle: set[socket.socket] = set()
        self.told, self.tell = os.pipe()
        os.set_blocking(self.told, False)

    def run(self) -> list[str]:
        """Let it go on for its time; what was lost."""
        end = time.monotonic() + 60 * self.given.minutes
        restart, look = time.monotonic() + self.given.restart, 0.0
        while (now := time.monotonic()) < end:
            self._reap()
            while len(self.clients) < self.given.clients:
                self._start_client()
            for _ in range(min(20, self.given.connections - len(self.idle))):
                self._connect()
            for key, _ in self.selector.select(0.05):
                self._heard(key.fileobj)  # type: ignore[arg-type]
            if now >= restart:
                restart = now + self.given.restart
                self._restart()
            if now >= look:
                look = now + 1.0
                self._look()
        return self._lost()

    # -- connections that want nothing -------------------------------------------------------------
    def _connect(self) -> None:
        port = self.rng.choice([self.tracker, *self.servers]).port
        sock = socket.socket()
        sock.setblocking(False)
        try:
            with contextlib.suppress(BlockingIOError):
                sock.connect((HERE, port))
            with contextlib.suppress(BlockingIOError):
                sock.send(self.rng.choice(NOISE))
        except OSError:  # the tracker is being started again
            sock.close()
            self.seen["connections refused while the tracker was away"] += 1
            return
        self.seen["connections opened"] += 1
        self.idle.add(sock)
        self.selector.register(sock, selectors.EVENT_READ)

    def _heard(self, sock: socket.socket) -> None:
        try:
            if sock.recv(1 << 12):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self.seen["connections ended by the other side"] += 1
        self.selector.unregister(sock)
        self.idle.discard(sock)
        sock.close()

    # -- clients -----------------------------------------------------------------------------------
    def _start_client(self) -> None:
        seed = self.rng.random()
        pid = os.fork()
        if pid == 0:
            try:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.closerange(3, self.tell)
                os.closerange(self.tell + 1, self.tell + 4096)
                self._client(random.Random(seed))
            finally:
                os._exit(1)
        self.clients.add(pid)

    def _client(self, rng: random.Random) -> None:
        """Rounds of requests, in a process; in some it dies, whatever it is doing then."""
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(rng.uniform(1.0, 2 * self.given.pause))
            dies = rng.random() < 0.3
            if dies:
                signal.setitimer(
                    signal.ITIMER_REAL, rng.choice((0.002, 0.01, 0.05, 0.5, 2.0)) * rng.random() + 1e-4
                )
            try:
                self._round(rng)
                said = "rounds of clients served"
            except Exception as error:
                said = f"LOST: a round failed: {type(error).__name__}: {error}".replace("\n", " ")
            if dies:
                os.kill(os.getpid(), signal.SIGALRM)
            os.write(self.tell, (said + "\n").encode())

    def _round(self, rng: random.Random) -> None:
        known = _patient(self.place)
        session = known.request("load", priority=rng.randrange(3), wait=60.0)
        data = rng.randbytes(rng.randrange(1 << 16))
        session.upload(data, "data")
        time.sleep(rng.uniform(0.0, 0.1))
        if session.download("data") != data or session.listdir() != ["data"]:
            raise AssertionError("another file came back")
        session.close()
        known.close()

    def _reap(self) -> None:
        for pid in list(self.clients):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                self.clients.discard(pid)
                died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM
                self.seen["clients that died" if died else "LOST: a client ended in another way"] += 1
        with contextlib.suppress(BlockingIOError):
            for line in os.read(self.told, 1 << 16).decode().splitlines():
                self.seen[line] += 1

    # -- the tracker, and what all of them hold ------------------------------------------------------
    def _restart(self) -> None:
        port = self.tracker.port
        os.kill(pid_of(self.tracker), signal.SIGKILL)
        self.tracker.terminate()
        self.tracker = rpc.Tracker(port=port, port_end=port + 1, silent=True)
        self.seen["trackers killed and started again"] += 1

    def _look(self) -> None:
        for name, process in (("tracker", self.tracker), *(("server", s) for s in self.servers)):
            if process._process.poll() is None:
                for what, value in (("MiB", memory), ("threads", threads)):
                    self.most[f"{name}, {what}"] = max(self.most[f"{name}, {what}"], value(pid_of(process)))
        self.most["connections at once"] = max(self.most["connections at once"], len(self.idle))

    def _lost(self) -> list[str]:
        """Stop everything, and see whether all is as it was."""
        for pid in self.clients:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.clients.clear()
        self._reap()
        for sock in self.idle:
            sock.close()
        lost = [f"{n} x {what}" for what, n in self.seen.items() if what.startswith("LOST")]
        lost += [
            f"{s.host}:{s.port}: the server has ended" for s in self.servers if s._process.poll() is not None
        ]
        known = rpc.connect_tracker(*self.place)
        count = len(self.servers)

        def all_free() -> bool:
            about = known.summary()
            queue = about["queue_info"].get("load")
            return len(about["server_info"]) == count and queue == {"free": count, "pending": 0}

        try:
            until(all_free, 30.0)
            sessions = [known.request("load", wait=10.0) for _ in self.servers]  # all at once
            self.seen["servers that serve at the end"] = sum(s.listdir() == [] for s in sessions)
            for session in sessions:
                session.close()
            until(all_free, 30.0)
        except (AssertionError, RPCError) as error:
            lost.append(f"{error}: {known.summary()}")
        lost += [f"process {p} was left" for s in self.servers for p in children(pid_of(s))[1:]]
        lost += [f"{f} was left" for f in glob.glob(f"{self.folder}/tilewright-session-*")]
        return lost

    def close(self) -> None:
        for process in (*self.servers, self.tracker):
            process.terminate()


def _patient(place: tuple[str, int]) -> rpc.TrackerSession:
    """A connection to a tracker that may be about to be started."""
    while True:
        try:
            return rpc.connect_tracker(*place)
        except RPCError as error:
            if (
                "no connection" not in str(error)
                and "connection broke" not in str(error)
                and "closed" not in str(error)
            ):
                raise
            time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--restart", type=float, default=60.0, help="seconds that a tracker lives")
    parser.add_argument("--pause", type=float, default=5.0, help="seconds between two rounds of a client")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        log = Path(folder) / "log"
        output = os.dup(2)
        with log.open("wb") as file:
            os.dup2(file.fileno(), 2)
        load = Load(given, folder)
        try:
            lost = load.run()
        finally:
            load.close()
            os.dup2(output, 2)
            text = log.read_text(errors="replace")
        if "Traceback" in text:
            lost.append("a traceback was printed: " + text[text.index("Traceback") :][:2000])
    for what, count in (*sorted(load.seen.items()), *sorted(load.most.items())):
        print(f"{count:>9,}  {what}")
    print("nothing was lost" if not lost else "\n".join(["LOST:", *lost]))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
