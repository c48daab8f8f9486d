"""Locks and forks: a child of `os.fork` has the forking thread only, and must not wait for locks of the others.

held_by_forks(a, b)     what the locks guard is whole when the process is copied: a fork waits for them, in this order
new_in_child(lock)      what the lock guards is whole at any time: the child gets the lock free
cached_property         without the lock that Python before 3.12 holds while any object of the class computes its own
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = [
    "at_start_of_child",
    "cached_property",
    "held_by_forks",
    "is_interruptible",
    "new_in_child",
    "result_of_child",
]

_Lock = TypeVar("_Lock")
_Value = TypeVar("_Value")

_held: list[Any] = []
_renewed: weakref.WeakSet[Any] = weakref.WeakSet()
_started: list[Callable[[], None]] = []


def held_by_forks(*locks: Any) -> None:
    """Let forks take these locks, outer ones first, and give them back in the parent and in the child."""
    _held.extend(lock for lock in locks if lock not in _held)


def new_in_child(lock: _Lock) -> _Lock:
    """The lock, which is free in the child of a fork whoever holds it in the parent."""
    _renewed.add(lock)
    return lock


def at_start_of_child(function: Callable[[], None]) -> Callable[[], None]:
    """Have a function called in the child of a fork, where no thread but the forking one is left."""
    _started.append(function)
    return function


def _before() -> None:
    for lock in _held:
        lock.__enter__()


def _after() -> None:
    for lock in reversed(_held):
        lock.__exit__(None, None, None)


def _in_child() -> None:
    _after()
    for lock in list(_renewed):
        lock._at_fork_reinit()
    for function in _started:
        function()


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


def result_of_child(work: Callable[[], bytes]) -> bytes | int:
    """What a function gives in a child of this process, or the signal or code that the child ended with.

    Python handles signals between its own instructions only. What takes long in C can be interrupted there: whoever
    waits for the child gets the signal, and the child is killed.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            gc.freeze()  # finalizers of what was garbage at the fork may wait for threads that are not here
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
            os.close(reading)
            with open(writing, "wb") as pipe:
                pipe.write(work())
            code = 0
        finally:
            os._exit(code)
    try:
        os.close(writing)
        with open(reading, "rb") as pipe:
            data = pipe.read()
    except BaseException:
        os.kill(child, signal.SIGKILL)
        raise
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return data if status == 0 else status


def is_interruptible() -> bool:
    """Whether a signal would interrupt this thread, and a child could do its work."""
    return (
        sys.platform == "linux"
        and threading.current_thread() is threading.main_thread()
        and multiprocessing.parent_process() is None
    )


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
