"""FastMath: faster and less accurate mathematical functions."""

from __future__ import annotations

from typing import Any

from ..expr import Call, Function
from ..op.traits import traits_of
from .rewriting import CallRewriter, call, tensor_type, typed_pass


def fast_math(func: Function) -> Function:
    """Use the fast forms of exp, tanh, erf and softmax on float32.

    exp(%x)     ->     fast_exp(%x)
    """
    return CallRewriter(lambda op: _quicker if op.traits.fast else None).visit(func)


def _quicker(at: Call) -> Any:
    kind = tensor_type(at.args[0])
    if kind is None or kind.dtype != "float32":
        return None
    return call(traits_of(at).fast, at.args[0], **dict(at.attrs.items()))


FastMath = typed_pass(fast_math, name="FastMath", opt_level=4)
