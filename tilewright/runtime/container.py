"""The classic names of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


class _OfPython(type):
    """The metaclass of classic containers that Python's types replace: `isinstance` tests for those."""

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, cls.__dict__["python"])


class String(str, metaclass=_OfPython):
    """A string; every str is an instance."""

    python = (str,)


class ShapeTuple(tuple[int, ...], metaclass=_OfPython):
    """A shape, a tuple of integers; every tuple is an instance."""

    python = (tuple,)

    def __new__(cls, shape: Iterable[int]) -> ShapeTuple:
        return super().__new__(cls, (int(extent) for extent in shape))


class Array(list[Any], metaclass=_OfPython):
    """A list; every tuple and list is an instance."""

    python = (list, tuple)


class Map(dict[Any, Any], metaclass=_OfPython):
    """A table; every dict is an instance."""

    python = (dict,)


class ADT:
    """A value of an algebraic data type at run time: its constructor (`tag`) and its fields."""

    __slots__ = ("_fields", "tag")

    def __init__(self, tag: int, fields: Iterable[Any]) -> None:
        self.tag, self._fields = int(tag), tuple(fields)

    @property
    def fields(self) -> tuple[Any, ...]:
        return self._fields

    def __len__(self) -> int:
        return len(self._fields)

    def __getitem__(self, index: int | slice) -> Any:
        return self._fields[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._fields)

    def __repr__(self) -> str:
        return f"ADT({self.tag}, {list(self._fields)})"


class RefValue:
    """A reference at run time: `value` is the last written value."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"RefValue({self.value})"


def tuple_object(fields: Iterable[Any] | None = None) -> ADT:
    """A tuple: a value whose tag is 0."""
    return ADT(0, fields or ())
