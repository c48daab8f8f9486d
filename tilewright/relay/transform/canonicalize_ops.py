"""CanonicalizeOps: operators replaced by equivalent simpler ones."""

from __future__ import annotations

from typing import Any

from .. import op as R
from ..expr import Call, Expr, Function
from .rewriting import CallRewriter, ndim_of, typed_pass


def along_axis(vector: Any, axis: int, ndim: int) -> Expr:
    """A vector with dimensions of 1 after it, so that it broadcasts along one axis."""
    after = ndim - (axis % ndim) - 1
    return R.expand_dims(vector, axis=1, num_newaxis=after) if after else vector


def canonicalize_ops(func: Function) -> Function:
    """Write `bias_add` as an addition.

    nn.bias_add(%x, %b)     ->      add(%x, expand_dims(%b, axis=1, num_newaxis=2))
    """
    return CallRewriter({R.nn.bias_add: _bias_add}).visit(func)


def _bias_add(at: Call) -> Expr:
    data, bias = at.args
    return R.add(data, along_axis(bias, at.attrs.axis, ndim_of(data)))


CanonicalizeOps = typed_pass(canonicalize_ops, name="CanonicalizeOps", opt_level=3)
