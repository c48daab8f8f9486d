"""The objects that a script given as text may access while it is read: names of `T` and `I`, numbers, `extra_vars`.

A decorated function is the user's own Python and sees the names of its module. A text may come from an untrusted
source, so reading it must run only code that builds a program:

    T.exp(x) * 2, len(shape), A.shape[0]        are evaluated
    open("f"), tvm.runtime, x.__class__         are refused, with the place

An attribute is allowed by the class of its owner: each class that a script may use has a list, and everything else is
refused. The limits on the cost of reading a text are in `budget.py`.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from ...ir.buffer import Buffer
from ...ir.dtype import DataType
from ...ir.expr import IterVar, PrimExpr, Var
from ...ir.module import GlobalVar
from ...ir.node import Node
from .budget import BUILTINS, METHODS, Budget
from .namespace import Axis, Scalar

# Attributes that a text may use besides a node's fields, which are data. These methods build IR or return numbers.
_ATTRIBUTES: Final[Mapping[type, frozenset[str]]] = {
    owner: frozenset(names.split())
    for owner, names in {
        PrimExpr: "dtype astype equal same_as",
        Var: "name_hint copy_with_suffix",
        IterVar: "dtype astype equal same_as",
        Buffer: "access_ptr const_shape dense_strides ndim offset_of scope scope_name vload vstore",
        DataType: "bits element is_bool is_float is_handle is_int is_integral is_uint is_vector itemsize lanes "
        "max_value min_value nbytes type_code with_bits with_lanes",
        Scalar: "dtype",
        Axis: "spatial reduce scan opaque remap S R",
        GlobalVar: "name name_hint",
        str: " ".join(METHODS),
        int: "bit_length",
        float: "is_integer",
        tuple: "count index",
        list: "count index",
        dict: "get items keys values",
        np.ndarray: "dtype ndim shape size",
        np.generic: "dtype item",
        np.dtype: "itemsize name",
    }.items()
}
# Refused even if a caller passes them: they lead to everything that Python has loaded.
_NEVER: Final = (
    types.FrameType,
    types.TracebackType,
    types.CodeType,
    types.GeneratorType,
    types.CoroutineType,
    types.AsyncGeneratorType,
)
_DEEPEST: Final = 4  # depth to which the contents of a caller's containers count as given


class OutOfReach(Exception):
    """A text uses an object that it may not access."""


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
    """The sandbox of a text. `given` are the objects that the caller passed with it.

    Objects reachable from these, and results of the caller's functions, count as given too.
    """

    def __init__(self, given: Mapping[str, Any], length: int = 0) -> None:
        self.budget = Budget(length)
        self._given: dict[int, Any] = {}
        for value in given.values():
            self._give(value)

    def builtin(self, name: str) -> Any:
        """One of Python's built-in functions, or its replacement in a text."""
        if name not in BUILTINS:
            raise OutOfReach(name)
        return self.budget.builtin(name)

    def attribute(self, owner: Any, name: str) -> Any:
        """`owner.name`, if it is allowed."""
        if name.startswith("_") or isinstance(owner, _NEVER):
            raise OutOfReach(name)
        if name in METHODS and isinstance(owner, str):
            return self.budget.method(owner, name)
        if name in allowed(type(owner)):
            return getattr(owner, name)
        if id(owner) not in self._given or known(type(owner)):
            raise OutOfReach(name)
        found = getattr(owner, name)
        self._give(found)
        return found

    def called(self, function: Any, result: Any) -> None:
        """Record the result of a call: results of a caller's function count as given."""
        if id(function) in self._given:
            self._give(result)

    def _give(self, value: Any, depth: int = 0) -> None:
        if isinstance(value, _NEVER):
            return
        self._given[id(value)] = value
        if depth < _DEEPEST and isinstance(value, (list, tuple, set, frozenset, dict)):
            for v in value.values() if isinstance(value, dict) else value:
                self._give(v, depth + 1)


_allowed: dict[type, frozenset[str]] = {}


def known(kind: type) -> bool:
    """Whether a class has a list of allowed attributes, so that others are refused."""
    return issubclass(kind, (Node, *_ATTRIBUTES))


def allowed(kind: type) -> frozenset[str]:
    """The attributes of the objects of a class that a text may use."""
    found = _allowed.get(kind)
    if found is None:
        names = {n for owner, own in _ATTRIBUTES.items() if issubclass(kind, owner) for n in own}
        if issubclass(kind, Node):
            names.update(kind._fields)
        found = _allowed[kind] = frozenset(names)
    return found
