"""A cache of compiled loop nests: programs that differ in one nest share the others."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from .linked import Unit

_MOST = 256  # cached nests


class _Stack(threading.local):
    def __init__(self) -> None:
        self.inside: list[Nests] = []


_stack = _Stack()


class Nests:
    """The code of loop nests by structure. Inside `with nests:` programs are built in parts: nests that are not cached
    are compiled separately and cached; `parts` are the units that the last program needs besides its own code.

    The code of a nest is the same as in a program that is built as a whole.
    """

    def __init__(self) -> None:
        self.known: dict[str, Unit] = {}
        self.parts: tuple[Unit, ...] = ()

    @staticmethod
    def current() -> Nests | None:
        """The innermost cache of this thread."""
        return _stack.inside[-1] if _stack.inside else None

    def keep(self, made: dict[str, Unit], needed: Sequence[str]) -> None:
        """Add compiled units, and record those that a program needs."""
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
