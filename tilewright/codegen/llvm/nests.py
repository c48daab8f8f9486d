"""Loops that were compiled before: programs that differ in one have the others in common."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from .linked import Unit

_MOST = 256  # that are kept


class _Stack(threading.local):
    def __init__(self) -> None:
        self.inside: list[Nests] = []


_stack = _Stack()


class Nests:
    """The code of loops by what they do. Inside of `with nests:` programs are built in parts: those loops that
    are not known are compiled, each on its own, and kept; `parts` is what the last program needs besides its own code.

    The loops' code is the same as in a program that is built whole.
    """

    def __init__(self) -> None:
        self.known: dict[str, Unit] = {}
        self.parts: tuple[Unit, ...] = ()

    @staticmethod
    def current() -> Nests | None:
        """The innermost one of this thread."""
        return _stack.inside[-1] if _stack.inside else None

    def keep(self, made: dict[str, Unit], needed: Sequence[str]) -> None:
        """Take what was compiled, and note what a program needs."""
        self.known.update(made)
        self.parts = tuple(self.known[key] for key in needed)
        while len(self.known) > _MOST:
            del self.known[next(iter(self.known))]

    def __enter__(self) -> Nests:
        _stack.inside.append(self)
        self.parts = ()
        return self

    def __exit__(self, *exc: object) -> None:
        _stack.inside.pop()
