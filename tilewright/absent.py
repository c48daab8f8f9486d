"""Names of the classic API that tilewright does not have: one table, with why and what to use instead.

A program imports such names at its top. It must not fail there, but where it uses one:

    from tilewright import relay              # works
    class Mine(relay.Pattern): …              # works
    relay.Match(x, [])                        # UnsupportedError: relay.Match is not part of tilewright: …

`TABLE` is the data. A module finds its absent names by `__getattr__ = attributes(__name__)`; `absent(path)` is a single
one. Modules that are absent as a whole are made by an import hook. To build what is absent, write it and take its name
out of the table: a test compares the two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any, Final

from .absent_names import TABLE
from .runtime.errors import UnsupportedError

__all__ = ["TABLE", "Absent", "absent", "attributes", "names", "text_of"]

_PACKAGE: Final = __name__.partition(".")[0] + "."
_ALL: Final = ".*"  # behind the name of a module: all that is below it


class Absent(type):
    """The type of the placeholders: these are classes, so that programs can subclass them and ask isinstance."""

    path: str
    text: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(cls.text)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _placeholder(f"{cls.path}.{name}", cls.text.replace(cls.path, f"{cls.path}.{name}", 1))

    def __repr__(cls) -> str:
        return f"<{cls.text}>"


def _by_path() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for homes, listed, why, instead in TABLE:
        for home in homes.split() or [""]:
            found |= {f"{home}.{name}".removeprefix("."): (why, instead) for name in listed.split()}
    return found


_entries: Final = _by_path()
_made: Final[dict[str, Absent]] = {}


def names() -> list[str]:
    """The paths of all absent names; that of a module which is absent as a whole ends with `.*`."""
    return list(_entries)


def _is_module(path: str) -> bool:
    """Whether a path is a module that is absent as a whole, or below one."""
    while path:
        if path + _ALL in _entries:
            return True
        path = path.rpartition(".")[0]
    return False


def text_of(path: str) -> str | None:
    """What is said of an absent name when a program uses it; None for a name that is not in the table."""
    entry, above = _entries.get(path), path
    while entry is None and above:
        entry = _entries.get(above + _ALL)
        above = above.rpartition(".")[0]
    if entry is None:
        return None
    why, instead = entry
    return f"{path} is not part of tilewright: {why}; {instead}"


def _placeholder(path: str, text: str) -> Absent:
    found = _made.get(path)
    if found is None:
        name = path.rpartition(".")[2]
        found = _made[path] = Absent(name, (), {"path": path, "text": text, "__doc__": text})
    return found


def absent(path: str) -> Absent:
    """What stands for a name of the table: a class that says why it is absent when it is called."""
    text = text_of(path)
    if text is None:
        raise AttributeError(f"{path} is not in the table of absent names")
    return _placeholder(path, text)


def attributes(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module, or the end of it: for its absent names, and AttributeError for all others."""
    home = module.removeprefix(_PACKAGE)

    def __getattr__(name: str) -> Any:
        path = f"{home}.{name}"
        if not name.startswith("__"):
            if path + _ALL in _entries:
                return import_module(_PACKAGE + path)
            if text_of(path) is not None:
                return absent(path)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__


class _AbsentModules(MetaPathFinder, Loader):
    """The import hook. A file comes before it, and it comes before a folder without one: what is left of a module that
    was taken out would be an empty package."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith(_PACKAGE) or not _is_module(fullname.removeprefix(_PACKAGE)):
            return None
        there = PathFinder.find_spec(fullname, path)
        return (
            None if there is not None and there.has_location else ModuleSpec(fullname, self, is_package=True)
        )

    def exec_module(self, module: ModuleType) -> None:
        module.__doc__ = text_of(module.__name__.removeprefix(_PACKAGE))
        module.__dict__["__getattr__"] = attributes(module.__name__)


if not any(isinstance(finder, _AbsentModules) for finder in sys.meta_path):
    sys.meta_path.insert(0, _AbsentModules())
