"""Names of the classic API whose part of the house is not built yet.

A program imports such names at its top; it must not fail there, but where it uses one:

    from tilewright import relay              # works
    class Mine(relay.ExprMutator): …          # works
    relay.var("x")                            # UnsupportedError: relay.var: the graph compiler is not …

A placeholder package is one call of `announce`. When the part is built, its files take the place of the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from .ir.errors import UnsupportedError

__all__ = ["announce"]

_PACKAGE = __name__.partition(".")[0] + "."
_made: dict[str, Later] = {}


class Later(type):
    """The type of placeholders: classes, so that programs can subclass them and ask isinstance."""

    path: str
    reason: str

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        raise UnsupportedError(f"{cls.path}: {cls.reason}")

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _placeholder(f"{cls.path}.{name}", cls.reason)

    def __repr__(cls) -> str:
        return f"<{cls.path}: not supported yet>"


def _placeholder(path: str, reason: str) -> Later:
    found = _made.get(path)
    if found is None:
        name = path.rpartition(".")[2]
        found = _made[path] = Later(
            name, (), {"path": path, "reason": reason, "__doc__": f"{path}: {reason}"}
        )
    return found


def _attributes(module: str, reason: str) -> Callable[[str], Any]:
    def __getattr__(name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return _placeholder(f"{module.removeprefix(_PACKAGE)}.{name}", reason)

    return __getattr__


def announce(module: str, reason: str, modules: Sequence[str] = ()) -> Callable[[str], Any]:
    """The `__getattr__` of a placeholder module, whose submodules are made known to `import` as well.

    `reason` says what is missing and what to do instead; `modules` are paths below `module`.
    """
    for path in modules:
        name = f"{module}.{path}"
        made = ModuleType(name, f"Not there yet: {reason}")
        made.__dict__.update(__getattr__=_attributes(name, reason), __path__=[])
        sys.modules[name] = made
        above, _, last = name.rpartition(".")
        setattr(sys.modules[above], last, made)
    return _attributes(module, reason)
