"""Calls in worker processes that can be killed: a crash or a hang there does not affect this process."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any


class StatusKind(Enum):
    """The outcome of a call in a worker."""

    RUNNING = 0
    COMPLETE = 1
    EXCEPTION = 2
    TIMEOUT = 3


@dataclass(frozen=True)
class MapResult:
    """The outcome of one call: its value, or the error."""

    status: StatusKind
    value: Any


def _answer(pipe: Connection, initializer: Callable[..., Any] | None, initargs: tuple[Any, ...]) -> None:
    """The main function of a worker process: it makes one call after another, until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started it decides
    if initializer is not None:
        initializer(*initargs)
    pipe.send("ready")
    with contextlib.suppress(EOFError, OSError):
        while True:
            sent = pipe.recv_bytes()
            try:
                fn, args, kwargs = pickle.loads(sent)
                answer = (True, fn(*args, **kwargs))
            except Exception as error:
                answer = (False, error)
            try:
                pipe.send(answer)
            except Exception as error:  # what cannot be pickled
                pipe.send((False, RuntimeError(f"the answer cannot be sent: {error}")))


def _pickled(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """A call for another process; that of a function inside of a function needs cloudpickle."""
    try:
        return pickle.dumps((fn, args, kwargs))
    except (AttributeError, TypeError, pickle.PicklingError) as error:
        try:
            import cloudpickle  # type: ignore[import-untyped, import-not-found, unused-ignore]
        except ImportError:
            name = getattr(fn, "__qualname__", fn)
            raise TypeError(
                f"{name} and its arguments cannot be sent to another process: {error}; use a function of a module, or "
                "pip install cloudpickle"
            ) from None
        return bytes(cloudpickle.dumps((fn, args, kwargs)))


class _Process:
    """A process that makes calls one after another; it is started on demand, and again after it was killed."""

    def __init__(
        self, initializer: Callable[..., Any] | None, initargs: tuple[Any, ...], most_calls: int | None
    ) -> None:
        self._starts, self._most_calls = (initializer, initargs), most_calls
        self._process: Any = None
        self._pipe: Any = None
        self._calls = 0

    def call(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None
    ) -> Any:
        sent = _pickled(fn, args, kwargs)
        try:
            if self._process is None:
                self._start()
            self._pipe.send_bytes(sent)
            if not self._pipe.poll(timeout):
                self.kill()
                raise TimeoutError(f"the call has not ended after {timeout} s")
            good, value = self._pipe.recv()
        except (EOFError, ConnectionError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise
            raise RuntimeError(f"the worker process has ended before its answer came{self._how()}") from None
        self._calls += 1
        if self._most_calls and self._calls >= self._most_calls:
            self.kill()
        if not good:
            raise value
        return value

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_answer, args=(theirs, *self._starts), daemon=True)
        self._process.start()
        theirs.close()
        self._calls = 0
        self._pipe.recv()  # it is ready; the timeout of a call begins now

    def _how(self) -> str:
        process = self._process
        if process is None:
            return ""
        process.join(5)
        code = process.exitcode
        self.kill()
        return f", with exit code {code}" if code is not None else ""

    def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.join()
            self._pipe.close()


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
        count = max_workers or os.cpu_count() or 1
        self._timeout = timeout
        self._threads = ThreadPoolExecutor(count)  # each waits for one process
        self._processes = [_Process(initializer, initargs, maximum_process_uses) for _ in range(count)]
        self._idle: SimpleQueue[_Process] = SimpleQueue()
        for process in self._processes:
            self._idle.put(process)

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a call in a worker."""
        return self._threads.submit(self._run, fn, args, kwargs, self._timeout)

    def _run(
        self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], timeout: float | None
    ) -> Any:
        process = self._idle.get()
        try:
            return process.call(fn, args, kwargs, timeout)
        finally:
            self._idle.put(process)

    def map_with_error_catching(
        self, fn: Callable[[Any], Any], iterator: Iterable[Any]
    ) -> Iterator[MapResult]:
        """Run `fn` on every value. Returns the outcomes in order, including errors."""
        for future in [self.submit(fn, value) for value in iterator]:
            try:
                yield MapResult(StatusKind.COMPLETE, future.result())
            except TimeoutError as error:
                yield MapResult(StatusKind.TIMEOUT, error)
            except Exception as error:
                yield MapResult(StatusKind.EXCEPTION, error)

    def shutdown(self, wait: bool = True) -> None:
        """End the workers, after their current calls if `wait`."""
        self._threads.shutdown(wait=wait, cancel_futures=not wait)
        for process in self._processes:
            process.kill()

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
