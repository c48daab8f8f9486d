"""Names in a printed program: unique, valid in Python, deterministic."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

_BAD = re.compile(r"\W", re.ASCII)
_RESERVED = frozenset(
    [*keyword.kwlist, "T", "I", "range", "print", "True", "False", "None", "min", "max", "float", "int"]
)


def function_names(names: Iterable[str], *prefixes: str) -> dict[str, str]:
    """Python identifiers for functions of these names: the same, or a unique one.

    "main" -> main        "a b" -> a_b        "class" -> class_1
    """
    wanted = sorted(names)
    out = {n: n for n in wanted if n not in prefixes and _stands_as_it_is(n)}
    taken = {*keyword.kwlist, *prefixes, *out}
    for n in wanted:
        if n not in out:
            out[n] = free_name(_identifier(n, "func"), taken)
            taken.add(out[n])
    return out


def _stands_as_it_is(name: str) -> bool:
    """Whether Python reads the name as it is written; it takes `ﬁ` for `fi`."""
    plain = name.isidentifier() and not keyword.iskeyword(name)
    return plain and unicodedata.normalize("NFKC", name) == name


def _identifier(hint: str, other: str) -> str:
    base = _BAD.sub("_", hint) or other
    return f"v{base}" if base[0].isdigit() else base


def free_name(base: str, taken: Container[str]) -> str:
    """`base`, or with the first number behind it that makes a name which is not taken."""
    name, count = base, 0
    while name in taken:
        count += 1
        name = f"{base}_{count}"
    return name


class Names:
    """The names of variables and buffers. Scopes nest; a name is free again after its scope."""

    def __init__(self) -> None:
        self.of: dict[Any, str] = {}
        self.taken: set[str] = set(_RESERVED)
        self.log: list[
            tuple[Any, str | None, str | None]
        ] = []  # thing, name taken, what it was called before

    def __contains__(self, thing: Any) -> bool:
        return thing in self.of

    def define(self, thing: Any, hint: str) -> str:
        """Give `thing` a unique name derived from `hint`."""
        name = free_name(_identifier(hint, "v"), self.taken)
        self.taken.add(name)
        self.log.append((thing, name, self.of.get(thing)))
        self.of[thing] = name
        return name

    def reserve(self, hint: str) -> str:
        """A name that is reserved in all scopes."""
        name = free_name(hint, self.taken)
        self.taken.add(name)
        return name

    def alias(self, thing: Any, text: str) -> None:
        """Call `thing` by an expression, such as `A.data`."""
        self.log.append((thing, None, self.of.get(thing)))
        self.of[thing] = text

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A scope: names defined inside are removed at its end."""
        mark = len(self.log)
        try:
            yield
        finally:
            for thing, name, before in reversed(self.log[mark:]):
                if before is None:
                    self.of.pop(thing, None)
                else:
                    self.of[thing] = before
                if name is not None:
                    self.taken.discard(name)
            del self.log[mark:]
