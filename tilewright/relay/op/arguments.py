"""What operators are given: lists, constants, and what the program computes."""

from __future__ import annotations

from typing import Any

from ..expr import Constant, Expr, as_expr

__all__ = ["static", "tensors"]


def static(value: Any, what: str) -> Any:
    """Integers that the program knows: a constant as a tuple, a list as it is."""
    if isinstance(value, Constant):
        return tuple(int(v) for v in value.numpy().reshape(-1)) if value.data.shape else int(value.numpy())
    if isinstance(value, Expr):
        raise TypeError(f"{what} is computed by the program and must be known here")
    return value


def tensors(data: Any) -> Any:
    """A tuple expression from a list of expressions or from one that is a tuple already."""
    return data if isinstance(data, Expr) else as_expr(list(data))
