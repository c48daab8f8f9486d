"""The classic home of expressions: `ir.expr`, where the name `Any` is the unknown size and not the type of Python."""

from __future__ import annotations

import typing

from ..ir import expr as _expr
from ..ir.tensor_type import UnknownSize as Any

__all__ = ["Any", *_expr.__all__]


def __getattr__(name: str) -> typing.Any:
    return getattr(_expr, name)
