"""What a script given as text may reach while it is read: the names of `T` and `I`, numbers, what it was given.

A decorated function is the user's own Python and sees what its module sees. A text may come from
anywhere, so reading it must not run anything else than what builds a program:

    T.exp(x) * 2, len(shape), A.shape[0]        are evaluated
    open("f"), tvm.runtime, x.__class__         are refused, with the place
"""

from __future__ import annotations

import builtins
import types
from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["Namespace", "OutOfReach", "Reach"]

_BUILTINS: Final = frozenset(
    "abs all any bool dict divmod enumerate float int len list map max min pow range reversed round set "
    "slice sorted str sum tuple zip".split()
)
# Their attributes lead to everything that Python has loaded.
_INTROSPECTIVE: Final = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
    types.FrameType,
    types.TracebackType,
    types.CodeType,
)
_FORMATS: Final = ("format", "format_map")  # their templates read attributes


class OutOfReach(Exception):
    """A text names something that is not for it."""


class Namespace:
    """Some names of a module, and no others: `label.name` in a script is `find(name)`."""

    def __init__(self, label: str, names: Callable[[str], Any] | Mapping[str, Any]) -> None:
        self.label, self.names = label, names

    def find(self, name: str) -> Any:
        if not isinstance(self.names, Mapping):
            return self.names(name)
        if name not in self.names:
            raise OutOfReach(f"{self.label}.{name}")
        return self.names[name]

    def __repr__(self) -> str:
        return self.label


class Reach:
    """The border around a text. `given` are the objects that the caller handed over with it."""

    def __init__(self, given: Mapping[str, Any]) -> None:
        self._given: dict[int, Any] = {id(v): v for v in given.values()}

    def builtin(self, name: str) -> Any:
        """One of Python's own functions."""
        if name not in _BUILTINS:
            raise OutOfReach(name)
        return getattr(builtins, name)

    def attribute(self, owner: Any, name: str) -> Any:
        """`owner.name`, if that cannot lead out."""
        if name.startswith("_") or (isinstance(owner, str) and name in _FORMATS):
            raise OutOfReach(name)
        if not isinstance(owner, _INTROSPECTIVE):
            return getattr(owner, name)
        if id(owner) not in self._given:
            raise OutOfReach(name)
        found = getattr(owner, name)
        self._given[id(found)] = found
        return found
