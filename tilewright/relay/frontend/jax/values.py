"""Values of a jaxpr: arrays that are known at import, and expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...expr import Expr
from ..common.build import constant, dtype_of, full, literal, rank, shape_of


class Value:
    """A tensor: its elements if they are known at import, and an expression, made where it is needed.

    `narrow` is the expression before its dimensions of size 1 were repeated, if that is how it was made.
    """

    __slots__ = ("_expr", "known", "narrow")

    def __init__(self, expr: Expr | None = None, known: Any = None, narrow: Expr | None = None) -> None:
        self._expr, self.known, self.narrow = expr, known, narrow

    @property
    def expr(self) -> Expr:
        if self._expr is None:
            array = self.known
            if array.size > 1 and is_uniform(array):
                self._expr = full(array.flat[0], array.shape, str(array.dtype))
            else:
                self._expr = constant(array)
        return self._expr

    @property
    def shape(self) -> tuple[Any, ...]:
        return self.known.shape if self.known is not None else shape_of(self.expr)

    @property
    def dtype(self) -> str:
        return str(self.known.dtype) if self.known is not None else dtype_of(self.expr)

    def compact(self) -> Expr:
        """The expression without repeated elements: for operators that broadcast."""
        if self.known is not None and self.known.ndim and self.known.size and is_uniform(self.known):
            return literal(self.known.flat[0], str(self.known.dtype))
        return self.expr if self.narrow is None else self.narrow


def is_uniform(array: Any) -> bool:
    """Whether an array is a view of one element."""
    return all(step == 0 or size == 1 for step, size in zip(array.strides, array.shape, strict=True))


def compacted(values: Sequence[Value], shape: Sequence[Any]) -> list[Expr]:
    """Operands without repeated elements, if their broadcast still has the shape of the result."""
    found = [v.compact() for v in values]
    wide = [shape_of(e) for e in found if rank(e) == len(shape)]
    whole = all(_is_one(d) or any(not _is_one(s[i]) for s in wide) for i, d in enumerate(shape))
    return found if whole else [v.expr for v in values]


def _is_one(size: Any) -> bool:
    return isinstance(size, int) and size == 1


def array_of(value: Any, dtype: Any = None) -> Any:
    """An array of JAX, or a number, as an array of NumPy."""
    return np.asarray(value, dtype)
