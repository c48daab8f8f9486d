"""Exclusive use: the checks of an executor that several threads use at once.

    set_input, run, get_output          work on one memory: they belong to one thread, or to threads that take turns
    run while another thread runs       refused
    set_input while another runs        refused
    set_input by two, then run          refused to the one whose value is gone

A run without new inputs pays for this with two stores of an attribute.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .errors import TVMError

_REMEDY = (
    'an executor has one memory, which is for one thread at a time: make one for each thread, lib["default"](device) '
    "(they share the weights), or take turns with a lock around set_input, run and get_output"
)


class Turns(ABC):
    """An object that runs with memory of its own, and is changed between runs."""

    def __init__(self) -> None:
        self._call: Callable[[], Any] | None = (
            None  # to run; None while it runs, or when something has changed
        )
        self._stale = True  # inputs or buffers have changed
        self._made: Callable[[], Any] | None = None  # the bound call, if it is still valid
        self._setters: dict[Hashable, int] = {}  # the threads that set inputs since the last run
        self._lost: set[int] = set()  # those whose input another one has overwritten before they ran
        self._turn = threading.Lock()

    @abstractmethod
    def _bound(self) -> Callable[[], Any]:
        """The call that runs it, bound to the current buffers."""

    def _change(self) -> None:
        """Prepare for a change; refused while another thread runs."""
        if self._call is None and not self._stale:
            self._refuse("another thread runs this executor now")
        self._stale, self._call = True, None

    def _was_set(self, what: Hashable) -> None:
        """This thread has set an input."""
        me = threading.get_ident()
        if self._setters.setdefault(what, me) != me:
            self._lost.add(self._setters[what])
            self._setters[what] = me
        if self._lost:
            self._lost.discard(me)

    def _ready(self) -> Callable[[], Any]:
        """The call to run after a change."""
        with self._turn:
            if not self._stale:
                self._refuse("another thread runs this executor now")
            if self._lost and threading.get_ident() in self._lost:
                self._lost.discard(threading.get_ident())
                self._refuse("another thread has set an input after this one did, and before it ran")
            if self._made is None:
                self._made = self._bound()
            self._setters.clear()
            self._stale = False
            return self._made

    @contextmanager
    def alone(self) -> Iterator[Callable[[], Any]]:
        """Exclusive use by this thread, for running step by step or many times."""
        call = self._call
        if call is None:
            call = self._ready()
        self._call = None
        try:
            yield call
        finally:
            self._call = call

    def _refuse(self, reason: str) -> NoReturn:
        raise TVMError(f"{reason}; {_REMEDY}")
