"""Where higher rooms keep what a lower one finds by name.

The front door says so when the package is imported. So no room names one above it, and nothing is loaded before it is
used.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

_homes: Final[dict[str, tuple[str, ...]]] = {}


def declare_homes(**homes: str | tuple[str, ...]) -> None:
    """Say which modules hold the things of a name: `declare_homes(kinds="tilewright.backends")`."""
    _homes.update({what: (where,) if isinstance(where, str) else where for what, where in homes.items()})


def homes_of(what: str) -> Iterator[ModuleType]:
    """The modules that hold the things of a name, each loaded when it is asked for."""
    return map(importlib.import_module, _homes.get(what, ()))


def home_of(what: str) -> ModuleType:
    """The module that holds the things of a name, if there is but one."""
    (found,) = homes_of(what)
    return found


def lazily(
    package: str,
    names: Mapping[str, str],
    modules: str = "",
    otherwise: Callable[[str], Any] | None = None,
) -> Callable[[str], Any]:
    """The `__getattr__` of a package that loads a module when one of its names is first used.

        __getattr__ = lazily(__name__, {"search": "Tuner tune_task", "worker": "run=run_worker"}, "search pool")

    `names` says which names each module has, and `modules` are modules that are themselves names of the package;
    `a=b` is `b` under the name `a`. Other names go to `otherwise`, which finds them or raises AttributeError.
    """
    homes: dict[str, tuple[str, str]] = {}
    for word in modules.split():
        name, _, own = word.partition("=")
        homes[name] = own or name, ""
    for module, words in names.items():
        for word in words.split():
            name, _, own = word.partition("=")
            homes[name] = module, own or name

    def attribute(name: str) -> Any:
        if name not in homes:
            if otherwise is not None:
                return otherwise(name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, own = homes[name]
        found: Any = importlib.import_module(f"{package}.{module}")
        value = vars(sys.modules[package])[name] = getattr(found, own) if own else found
        return value

    return attribute
