"""DivToMul: divisions by constants become products."""

from __future__ import annotations

from typing import Any

from .. import op as R
from ..expr import Call, Constant, Function, const
from .rewriting import CallRewriter, typed_pass


def div_to_mul(func: Function) -> Function:
    """Multiply by the reciprocal of a constant, which is rounded, instead of dividing floats by it.

    %x / 1.5f     ->     %x * 0.666667f
    """
    return CallRewriter({R.divide: _product}).visit(func)


def _product(at: Call) -> Any:
    by = at.args[1]
    if not isinstance(by, Constant) or not str(by.data.dtype).startswith(("float", "bfloat")):
        return None
    value = by.numpy()
    return R.multiply(at.args[0], const((1 / value).astype(value.dtype)))


DivToMul = typed_pass(div_to_mul, name="DivToMul", opt_level=0)
