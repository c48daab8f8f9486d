"""Normalization of the arguments of constructors: lists, numbers, constants, windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..expr import Constant, Expr, as_expr, const


def is_computed(value: Any) -> bool:
    """Whether a value is computed by the program: an expression that is not a constant."""
    return isinstance(value, Expr) and not isinstance(value, Constant)


def tensors(data: Any) -> Any:
    """A tuple expression from a list of expressions or from one that is a tuple already."""
    return data if isinstance(data, Expr) else as_expr(list(data))


def float32(value: Any) -> Any:
    """A number, or a list of numbers, as a float32 constant; expressions are unchanged."""
    return value if isinstance(value, Expr) else const(value, "float32")


def int32(value: Any) -> Any:
    """An integer, or a list of integers, as an int32 constant; expressions are unchanged."""
    return value if isinstance(value, Expr) else const(value, "int32")


def numbers(value: Any) -> Any:
    """A list of numbers as a constant; expressions are unchanged."""
    return value if isinstance(value, Expr) else const(value)


def each(value: Any, count: int) -> tuple[Any, ...]:
    """One number for all spatial dimensions, or one for each."""
    given = tuple(value) if isinstance(value, Sequence) else (value,)
    if len(given) == 1:
        return given * count
    if len(given) != count:
        raise ValueError(f"{count} spatial dimensions need one number or {count}, not {given}")
    return given


def sides(padding: Any, count: int) -> tuple[Any, ...]:
    """Padding as all begins, then all ends: from one number, one per dimension, or all of them."""
    given = tuple(padding) if isinstance(padding, Sequence) else (padding,)
    if len(given) == 1:
        return given * (2 * count)
    if len(given) == count:
        return given * 2
    if len(given) != 2 * count:
        numbers = {1: "one or two", 2: "one, two or four", 3: "one, three or six"}.get(
            count, f"1, {count} or {2 * count}"
        )
        raise ValueError(f"padding is {numbers} numbers, not {given}")
    return given


def columns(rows: Any) -> tuple[list[int], list[int]]:
    """The begins and ends of each dimension, from (begin, end) pairs."""
    return [r[0] for r in rows], [r[1] for r in rows]
