"""The classic home of the values that `create_executor("debug")` returns, and of that executor.

`ConstructorValue(tag, fields, constructor)` is a value of an algebraic data type; tensors are arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...absent import attributes
from ...runtime.container import ADT, RefValue
from .evaluate import Evaluator

__all__ = ["ConstructorValue", "Executor", "Interpreter", "RefValue"]

Executor = Evaluator


class ConstructorValue(ADT):
    """A value of an algebraic data type, with the constructor that made it."""

    __slots__ = ("constructor",)

    def __init__(self, tag: int, fields: Iterable[Any], constructor: Any = None) -> None:
        super().__init__(tag, fields)
        self.constructor = constructor


def with_constructors(value: Any, mod: Any) -> Any:
    """A result with the constructors of its data, which a module defines."""
    if not isinstance(value, ADT):
        return value
    fields = [with_constructors(v, mod) for v in value]
    if not value.tag:
        return ADT(0, fields)
    return ConstructorValue(value.tag, fields, mod.get_constructor(value.tag))


class Interpreter(Evaluator):
    """The executor of the kind "debug"."""

    def __init__(self, mod: Any, device: Any, target: Any) -> None:
        super().__init__("debug", mod, device, target, None)


__getattr__ = attributes(__name__)
