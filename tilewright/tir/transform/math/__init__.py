"""Mathematical functions as vectorisable expressions.

`expand_call` turns a call of an operator into straight-line code over what every backend has in vector
form: arithmetic, fused multiply-add, square root, rounding, comparison, selection and bit operations.
Each float32 expansion is right for all arguments within MAX_ULP, and NaN, infinity and signed zero come out
as NumPy has them. float16 and bfloat16 go through float32. float64 has expansions of the commonest functions,
within MAX_ULP_DOUBLE, and calls the C library for the others.
"""

from __future__ import annotations

from ....ir.expr import Call, PrimExpr
from ....ir.op import Op
from . import exponential, logarithm, power, sigmoidal, trigonometric
from .builder import EXPANSIONS, MAX_ULP
from .double import MAX_ULP_DOUBLE

__all__ = ["EXPANSIONS", "MAX_ULP", "MAX_ULP_DOUBLE", "expand_call"]

_FAMILIES = (exponential, logarithm, power, sigmoidal, trigonometric)  # importing them fills EXPANSIONS


def expand_call(
    call: Call, *, fast_math: bool = False, has_fma: bool = True, avx512: bool = False
) -> PrimExpr | None:
    """The expansion of a call, or None if the backend has the operator itself (sqrt, floor, fma, …)."""
    if not isinstance(call.op, Op):
        return None
    expand = EXPANSIONS.get(call.op.short_name)
    if expand is None or not call.dtype.is_float:
        return None
    return expand(*call.args, fast_math=fast_math, has_fma=has_fma, avx512=avx512)
