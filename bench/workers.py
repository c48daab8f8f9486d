"""One process for each peer, with its own threads and memory; all but the one being timed are stopped.

The parent sends a line of JSON and gets one back:

    {"do": "prepare", "workload": name, "folder": path, "ms": 10}   ->  {"error": 1e-7, "estimate": seconds}
    {"do": "sample"}                                               ->  {"seconds": one call, "clean": true}
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
_THREADS = ("OMP", "OPENBLAS", "MKL", "NUMEXPR", "TILEWRIGHT")


# -- the parent's side ---------------------------------------------------------------------------
class Worker:
    """A peer's process as the parent sees it."""

    def __init__(
        self,
        peer: str,
        threads: int,
        figures: str,
        log: Path,
        realtime: bool,
        script: str = __file__,
        keep_memory: bool = True,
        python: str = sys.executable,
    ) -> None:
        environment = {**os.environ, **{f"{name}_NUM_THREADS": str(threads) for name in _THREADS}}
        environment |= {"PYTHONHASHSEED": "0"}
        if keep_memory:
            # Large arrays come back to the same memory, so that nobody pays for fresh pages in each call.
            environment |= {"MALLOC_MMAP_THRESHOLD_": str(4 << 30), "MALLOC_TRIM_THRESHOLD_": str(8 << 30)}
            environment |= {"MALLOC_TOP_PAD_": str(64 << 20)}
        self.peer, self.alive = peer, True
        self._log = log.open("ab")
        command = [python, script, peer, str(threads), figures, str(int(realtime))]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=environment,
            cwd=HERE,
            preexec_fn=_die_with_parent,
        )
        self.pid = self._process.pid
        self.hello = self._answer(300)
        self._stop()

    def ask(self, limit: float = 300, **question: Any) -> dict[str, Any]:
        """The answer to a question; `failed` tells why there is none."""
        if not self.alive:
            return {"failed": "its process is gone"}
        assert self._process.stdin is not None
        os.kill(self.pid, signal.SIGCONT)
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            self.alive = False
            return {"failed": "its process is gone"}
        answer = self._answer(limit)
        self._stop()
        return answer

    def _answer(self, limit: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], limit)
        line = self._process.stdout.readline() if ready else ""
        if line:
            return dict(json.loads(line))
        self.alive = False
        self._process.kill()
        code = self._process.wait()
        return {"failed": f"its process died ({code})" if ready else f"no answer in {limit:.0f} s"}

    def _stop(self) -> None:
        if self.alive:
            os.kill(self.pid, signal.SIGSTOP)

    def close(self) -> None:
        """End the process."""
        if self.alive:
            self._process.kill()
        self._process.wait()
        self.alive = False
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()


def _die_with_parent() -> None:
    """A stopped process would outlive a parent that is killed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


# -- the worker's side ---------------------------------------------------------------------------
class Stage:
    """What a worker holds: one workload made ready."""

    LONG = 0.25  # seconds; what takes longer does not hold the core

    def __init__(self, peer: str, threads: int, figures: str, realtime: bool) -> None:
        self.peer, self.threads, self.figures, self.realtime = peer, threads, figures, realtime
        self.prepared: Any = None
        self.calls, self.estimate = 1, 0.0

    def prepare(self, workload: str, folder: str, ms: float) -> dict[str, Any]:
        import numpy as np
        from peers import PEERS
        from workloads import ALL, error_of

        self.prepared = None
        w, files = ALL[workload], Path(folder)
        x = {name: np.load(files / f"{name}.npy") for name in w.inputs}
        start = time.perf_counter()
        made = PEERS[self.peer](w, x, self.threads, self.figures)
        if made is None:
            return {"absent": True}
        built = time.perf_counter() - start
        self.prepared = made
        start = time.perf_counter()
        made.run()
        first = time.perf_counter() - start
        error = error_of(made.result(), np.load(files / "reference.npy", mmap_mode="r"))
        self._calibrate(first, ms)
        return {"error": error, "estimate": self.estimate, "build": built, "note": made.note}

    def _calibrate(self, first: float, ms: float) -> None:
        self.estimate, begin, tries = first, time.perf_counter(), 0
        while tries < 200 and (tries < 2 or time.perf_counter() - begin < 0.03) and self.estimate < 1.0:
            start = time.perf_counter()
            self.prepared.run()
            self.estimate = min(self.estimate, time.perf_counter() - start)
            tries += 1
        self.calls = max(1, round(ms * 1e-3 / self.estimate))

    def sample(self) -> dict[str, Any]:
        run, short = self.prepared.run, self.estimate < self.LONG
        if short and self.realtime:
            hold_the_core(True)
        if short:  # caches, and threads that were stopped, come back to where they were
            start = time.perf_counter()
            run()
            while time.perf_counter() - start < 2e-3:
                run()
        before, start = _others(), time.perf_counter()
        for _ in range(self.calls):
            run()
        took = time.perf_counter() - start
        clean = before == 0 and _others() == 0
        if short and self.realtime:
            hold_the_core(False)
        return {"seconds": took / self.calls, "clean": clean}


def _tasks() -> list[int]:
    return [int(name) for name in os.listdir("/proc/self/task")] if sys.platform == "linux" else []


def hold_the_core(on: bool) -> None:
    """Run ahead of everything else, where that is allowed; threads started meanwhile do so too."""
    for task in _tasks():
        try:
            policy = os.SCHED_RR if on else os.SCHED_OTHER
            os.sched_setscheduler(task, policy, os.sched_param(1 if on else 0))
        except OSError:
            return


def _others() -> int:
    """How many tasks of others want a core now."""
    if sys.platform != "linux":
        return 0
    with open("/proc/stat") as file:
        running = next(int(line.split()[1]) for line in file if line.startswith("procs_running"))
    own = 0
    for task in _tasks():
        try:
            text = Path(f"/proc/self/task/{task}/stat").read_text()
        except OSError:
            continue
        own += text[text.rindex(")") + 2] == "R"
    return max(0, running - own)


def serve(peer: str, threads: int, figures: str, realtime: bool, made: type[Stage] = Stage) -> None:
    """Answer questions until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    if threads == 1 and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    stage = made(peer, threads, figures, realtime)

    def say(answer: dict[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    say({"ready": True})
    for line in sys.stdin:
        question = json.loads(line)
        try:
            say(getattr(stage, question.pop("do"))(**question))
        except Exception as error:
            traceback.print_exc()
            say({"failed": f"{type(error).__name__}: {error}"[:300]})


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "1")
