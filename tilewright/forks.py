"""Locks and forks: a child of `os.fork` has the forking thread only, and must not wait for locks of the others.

held_by_forks(a, b)     what the locks guard is whole when the process is copied: a fork waits for them, in this order
new_in_child(lock)      what the lock guards is whole at any time: the child gets the lock free
cached_property         without the lock that Python before 3.12 holds while any object of the class computes its own
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import multiprocessing
import os
import select
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Generic, NoReturn, TypeVar, overload

_Lock = TypeVar("_Lock")
_Value = TypeVar("_Value")

_PATIENCE = 0.1  # seconds
_CAN_FORK = hasattr(os, "register_at_fork")
_held: list[Any] = []
_renewed: weakref.WeakSet[Any] = weakref.WeakSet()
_started: list[Callable[[], None]] = []


def held_by_forks(*locks: Any) -> None:
    """Let forks take these reentrant locks, outer ones first, and give them back in the parent and in the child.

    Their own methods are called, which are C: a signal that comes meanwhile is handled after the fork. In a function of
    Python it would be handled there, and the exception that it raises would leave the locks taken for ever.
    """
    for lock in reversed(locks):
        if lock not in _held and _CAN_FORK:
            _held.append(lock)
            os.register_at_fork(
                before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
            )


def new_in_child(lock: _Lock) -> _Lock:
    """The lock, which is free in the child of a fork whoever holds it in the parent."""
    _renewed.add(lock)
    return lock


def at_start_of_child(function: Callable[[], None]) -> Callable[[], None]:
    """Have a function called in the child of a fork, where no thread but the forking one is left."""
    _started.append(function)
    return function


def _in_child() -> None:
    for lock in list(_renewed):
        lock._at_fork_reinit()
    for function in _started:
        function()


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Handle a Ctrl-C that comes meanwhile at the end; for the main thread.

    Python runs functions of its own and of others at a fork, and drops what is raised in them.
    """
    handler = signal.getsignal(signal.SIGINT)
    if not callable(handler):
        yield
        return
    # What is in front of Python's handler (see runtime/interrupts.py): a struct sigaction, with room to spare.
    libc, ours = ctypes.CDLL(None), (ctypes.c_void_p * 64)()
    libc.sigaction(signal.SIGINT, None, ours)
    seen: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *given: seen.append(given))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        libc.sigaction(signal.SIGINT, ours, None)
    if seen:
        handler(*seen[0])


class cached_property(Generic[_Value]):
    """A property that is computed once for each object, and then is a plain attribute of it."""

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[_Value]: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> _Value: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> cached_property[_Value] | _Value:
        if instance is None:
            return self
        # Where two threads compute it, both get what the first has left.
        return instance.__dict__.setdefault(self._name, self._compute(instance))  # type: ignore[no-any-return]


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Fork without the warnings of JAX and Python about threads: a child here runs the compiler only, and waits for
    no lock that a thread may have held."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield


def result_of_child(work: Callable[[], bytes]) -> bytes | int:
    """What a function gives in a child of this process, or the signal or code that the child ended with.

    Python handles signals between its own instructions only. What takes long in C can be interrupted there: whoever
    waits for the child gets the signal, and the child is killed.
    """
    reading, writing = os.pipe()
    child, status = 0, 0
    with open(reading, "rb") as source, open(writing, "wb") as sink:
        try:
            with _interrupts_wait(), forking():
                child = os.fork()
                if child == 0:
                    _write_and_exit(work, sink)
            sink.close()
            data = b"".join(iter(lambda: _read(source), b""))
        except BaseException:
            if child:
                os.kill(child, signal.SIGKILL)
            raise
        finally:
            if child:
                status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return data if status == 0 else status


def _read(source: BinaryIO) -> bytes:
    """The next bytes of a pipe.

    A signal just before a read does not end it: only its C handler has run. So no wait is long.
    """
    while not select.select([source], [], [], _PATIENCE)[0]:
        pass
    return os.read(source.fileno(), 1 << 20)


def _write_and_exit(work: Callable[[], bytes], sink: BinaryIO) -> NoReturn:
    """Be the child, to its end."""
    code = 1
    try:
        gc.freeze()  # finalizers of what was garbage at the fork may wait for threads that are not here
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
        sink.write(work())
        sink.close()
        code = 0
    finally:
        os._exit(code)


def is_interruptible() -> bool:
    """Whether a signal would interrupt this thread, and a child could do its work."""
    return (
        sys.platform == "linux"
        and threading.current_thread() is threading.main_thread()
        and multiprocessing.parent_process() is None
    )


if _CAN_FORK:
    os.register_at_fork(after_in_child=_in_child)
