"""CanonicalizeOps: operators replaced by equivalent simpler ones."""

from __future__ import annotations

from .. import op as R
from ..expr import Call, Expr, Function
from ..op.expansions import along_axis
from .rewriting import CallRewriter, ndim_of, typed_pass


def canonicalize_ops(func: Function) -> Function:
    """Write `bias_add` as an addition.

    nn.bias_add(%x, %b)     ->      add(%x, expand_dims(%b, axis=1, num_newaxis=2))
    """
    return CallRewriter({R.nn.bias_add: _bias_add}).visit(func)


def _bias_add(at: Call) -> Expr:
    data, bias = at.args
    return R.add(data, along_axis(bias, at.attrs.axis, ndim_of(data)))


CanonicalizeOps = typed_pass(canonicalize_ops, name="CanonicalizeOps", opt_level=3)
