"""Locks and forks: a child of `os.fork` has the forking thread only, and must not wait for locks of the others.

held_by_forks(a, b)     what the locks guard is whole when the process is copied: a fork waits for them, in this order
new_in_child(lock)      what the lock guards is whole at any time: the child gets the lock free
cached_property         without the lock that Python before 3.12 holds while any object of the class computes its own
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["at_start_of_child", "cached_property", "held_by_forks", "new_in_child"]

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


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
