"""Helpers of the converters of ONNX, besides those that all importers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.expr import PrimExpr
from ...expr import Constant, Expr, const
from ...ty import Any as AnySize
from ..common.build import (
    R,
    cast,
    constant,
    dtype_of,
    is_static,
    rank,
    scalar,
    shape_of,
    static_shape,
    take_rows,
    typed,
)

__all__ = [
    "R",
    "as_list",
    "cast",
    "constant",
    "dtype_of",
    "is_float",
    "is_static",
    "literal",
    "rank",
    "scalar",
    "shape_of",
    "static_shape",
    "take_rows",
    "typed",
]


def is_float(e: Expr) -> bool:
    return bool(typed(e).checked_type.dtype.is_float) or dtype_of(e) == "bfloat16"


def literal(values: Sequence[Any], dtype: str = "int64") -> Constant:
    return const(np.asarray(values, dtype))


def as_list(value: Any) -> list[Any]:
    """Sizes as a list: integers as Python's, expressions as they are."""
    return [
        v if isinstance(v, (PrimExpr, AnySize)) else int(v) for v in np.asarray(value).reshape(-1).tolist()
    ]
