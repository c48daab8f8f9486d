"""Helpers of the converters of ONNX, besides those that all importers share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....ir.expr import PrimExpr
from ...expr import Constant, Expr, const
from ...ty import Any as AnySize
from ..common.build import R as R
from ..common.build import cast as cast
from ..common.build import constant as constant
from ..common.build import dtype_of as dtype_of
from ..common.build import is_static as is_static
from ..common.build import rank as rank
from ..common.build import scalar as scalar
from ..common.build import shape_of as shape_of
from ..common.build import static_shape as static_shape
from ..common.build import take_rows as take_rows
from ..common.build import typed as typed


def is_float(e: Expr) -> bool:
    return bool(typed(e).checked_type.dtype.is_float) or dtype_of(e) == "bfloat16"


def literal(values: Sequence[Any], dtype: str = "int64") -> Constant:
    return const(np.asarray(values, dtype), dtype)


def as_list(value: Any) -> list[Any]:
    """Sizes as a list: integers as Python's, expressions as they are."""
    return [
        v if isinstance(v, (PrimExpr, AnySize)) else int(v) for v in np.asarray(value).reshape(-1).tolist()
    ]
