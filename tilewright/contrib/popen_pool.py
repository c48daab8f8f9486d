"""Functions in worker processes that can be stopped: a crash or a hang there does no harm here."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, TimeoutError
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["MapResult", "PopenPoolExecutor", "PopenWorker", "StatusKind"]


class StatusKind(Enum):
    """How a call in a worker ended."""

    RUNNING = 0
    COMPLETE = 1
    EXCEPTION = 2
    TIMEOUT = 3


@dataclass(frozen=True)
class MapResult:
    """The end of one call: its value, or the error that took its place."""

    status: StatusKind
    value: Any


class PopenPoolExecutor:
    """A pool of processes; a call that passes `timeout` seconds is killed with its process."""

    def __init__(
        self,
        max_workers: int | None = None,
        timeout: float | None = None,
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
        maximum_process_uses: int | None = None,
    ) -> None:
        from pebble import ProcessPool

        self._timeout = timeout
        self._pool = ProcessPool(
            max_workers=max_workers or os.cpu_count() or 1,
            max_tasks=maximum_process_uses or 0,
            initializer=initializer,
            initargs=initargs,
            context=multiprocessing.get_context("spawn"),
        )

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call in a worker."""
        future: Future[Any] = self._pool.schedule(fn, args=args, kwargs=kwargs, timeout=self._timeout)
        return future

    def map_with_error_catching(
        self, fn: Callable[[Any], Any], iterator: Iterable[Any]
    ) -> Iterator[MapResult]:
        """Run `fn` on every value and give the ends in order, errors among them."""
        for future in [self.submit(fn, value) for value in iterator]:
            try:
                yield MapResult(StatusKind.COMPLETE, future.result())
            except TimeoutError as error:
                yield MapResult(StatusKind.TIMEOUT, error)
            except Exception as error:
                yield MapResult(StatusKind.EXCEPTION, error)

    def shutdown(self, wait: bool = True) -> None:
        """End the workers; those still at work are waited for, or stopped."""
        pool: Any = self._pool
        if wait:
            pool.close()
        else:
            pool.stop()
        pool.join()

    def __enter__(self) -> PopenPoolExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()


class PopenWorker:
    """One worker process: `send` a call, `recv` its result."""

    def __init__(
        self,
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
        maximum_uses: int | None = None,
    ) -> None:
        self._pool = PopenPoolExecutor(
            1, initializer=initializer, initargs=initargs, maximum_process_uses=maximum_uses
        )
        self._waiting: Future[Any] | None = None

    def send(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Start a call; the result of the one before it must have been received."""
        if self._waiting is not None:
            raise RuntimeError("the worker is still busy: receive the result of the last call first")
        self._pool._timeout = timeout
        self._waiting = self._pool.submit(fn, *args, **(kwargs or {}))

    def recv(self) -> Any:
        """The result of the last call; its error is raised here, TimeoutError after its time."""
        if self._waiting is None:
            raise RuntimeError("there is nothing to receive: send a call first")
        waiting, self._waiting = self._waiting, None
        return waiting.result()

    def kill(self) -> None:
        """Stop the process."""
        self._waiting = None
        self._pool.shutdown(wait=False)
