"""Work in the background: worker processes, and a thread that takes what they make. Both end with this process."""

from __future__ import annotations

import atexit
import os
import threading
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from .te_compiler import Workers

T = TypeVar("T")

_running: WeakSet[Background[Any]] = WeakSet()


class Background(ABC, Generic[T]):
    """A result that workers and a thread make while the program goes on."""

    def __init__(self, workers: Workers, name: str) -> None:
        self.workers = workers
        self.result: T | None = None
        self.error: BaseException | None = None
        self.over = threading.Event()
        self.process = os.getpid()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        _running.add(self)

    def start(self) -> None:
        self._thread.start()

    @abstractmethod
    def made(self) -> T:
        """The result; called in the thread."""

    def _work(self) -> None:
        try:
            self.result = self.made()
        except BaseException as error:  # raised in the thread that waits
            self.error = error
        finally:
            self.over.set()

    def stop(self) -> None:
        """End it; for the end of this process. A fork of it leaves the workers alone."""
        if os.getpid() != self.process:
            return
        self.workers.kill()
        if self._thread.is_alive():
            self._thread.join(5)

    def wait(self) -> T:
        self.over.wait()
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result


def running(kind: type[Background[Any]]) -> bool:
    """Whether this process has work of a kind in the background."""
    me = os.getpid()
    return any(isinstance(b, kind) and b.process == me and not b.over.is_set() for b in list(_running))


@atexit.register
def _stop() -> None:
    for each in list(_running):
        if not each.over.is_set():
            each.stop()
