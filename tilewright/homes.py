"""Where higher rooms keep what a lower one finds by name.

The front door says so when the package is imported. So no room names one above it, and nothing is loaded before it is
used.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

__all__ = ["declare_homes", "home_of", "homes_of", "lazily"]

_homes: Final[dict[str, tuple[str, ...]]] = {}


def declare_homes(**homes: str | tuple[str, ...]) -> None:
    """Say which modules hold the things of a name: `declare_homes(kinds="tilewright.backends")`."""
    _homes.update({what: (where,) if isinstance(where, str) else where for what, where in homes.items()})


def homes_of(what: str) -> Iterator[ModuleType]:
    """The modules that hold the things of a name, each loaded when it is asked for."""
    return map(importlib.import_module, _homes[what])


def home_of(what: str) -> ModuleType:
    """The module that holds the things of a name, if there is but one."""
    (found,) = homes_of(what)
    return found


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names are loaded with the module of the package that has them."""

    def attribute(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(f"{package}.{names[name]}"), name)

    return attribute
