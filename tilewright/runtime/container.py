"""The classic names of two plain values."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["ShapeTuple", "String"]


class String(str):
    """A string. Classic programs wrap names in it; here Python's own serves."""


class ShapeTuple(tuple[int, ...]):
    """A shape: a tuple of integers."""

    def __new__(cls, shape: Iterable[int]) -> ShapeTuple:
        return super().__new__(cls, (int(extent) for extent in shape))
