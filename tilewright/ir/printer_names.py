"""Names for the things that a printed program defines: unique, valid in Python, the same every time."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Names"]

_BAD = re.compile(r"\W", re.ASCII)
_RESERVED = frozenset(
    [*keyword.kwlist, "T", "I", "range", "print", "True", "False", "None", "min", "max", "float", "int"]
)


class Names:
    """What each variable and buffer is called here. Scopes nest; a name is free again after its own."""

    def __init__(self) -> None:
        self.of: dict[Any, str] = {}
        self.taken: set[str] = set(_RESERVED)
        self.log: list[tuple[Any, str | None]] = []

    def __contains__(self, thing: Any) -> bool:
        return thing in self.of

    def define(self, thing: Any, hint: str) -> str:
        """Give `thing` the name nearest to `hint` that is not taken."""
        base = _BAD.sub("_", hint) or "v"
        if base[0].isdigit():
            base = f"v{base}"
        name, count = base, 0
        while name in self.taken:
            count += 1
            name = f"{base}_{count}"
        self.taken.add(name)
        self.of[thing] = name
        self.log.append((thing, name))
        return name

    def alias(self, thing: Any, text: str) -> None:
        """Call `thing` by an expression, such as `A.data`."""
        self.of[thing] = text
        self.log.append((thing, None))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names defined inside are forgotten at the end."""
        mark = len(self.log)
        try:
            yield
        finally:
            for thing, name in self.log[mark:]:
                self.of.pop(thing, None)
                if name is not None:
                    self.taken.discard(name)
            del self.log[mark:]
