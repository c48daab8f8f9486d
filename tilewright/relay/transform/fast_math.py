"""FastMath: functions in their quicker and less exact form."""

from __future__ import annotations

from typing import Any, Final

from ...ir.op import graph_operators
from ..expr import Call, Function
from .rewriting import CallRewriter, call, name_of, tensor_type, typed_pass

__all__ = ["FastMath", "fast_math"]

_FAST: Final = {
    "exp": "fast_exp",
    "tanh": "fast_tanh",
    "erf": "fast_erf",
    "nn.softmax": "nn.fast_softmax",
}


def fast_math(func: Function) -> Function:
    """Take the quicker form of exp, tanh, erf and softmax on float32.

    exp(%x)     ->     fast_exp(%x)
    """
    return CallRewriter(dict.fromkeys(_FAST, _quicker)).visit(func)  # type: ignore[no-any-return]


def _quicker(at: Call) -> Any:
    kind, fast = tensor_type(at.args[0]), _FAST[name_of(at)]
    if kind is None or kind.dtype != "float32" or fast not in graph_operators:
        return None
    return call(fast, at.args[0], **dict(at.attrs.items()))


FastMath = typed_pass(fast_math, name="FastMath", opt_level=4)
