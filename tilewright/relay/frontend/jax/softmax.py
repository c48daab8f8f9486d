"""Softmax and its logarithm, which JAX writes as their parts.

exp(x - max(x)) / sum(exp(x - max(x)))             ->   softmax(x)
(x - max(x)) - log(sum(exp(x - max(x))))           ->   log_softmax(x)
"""

from __future__ import annotations

from typing import Any

from ...expr import Call, Expr
from ..common.build import R, dtype_of, shape_of

_SAME = ("expand_dims", "reshape", "broadcast_to")


def as_softmax(a: Any, b: Any) -> Expr | None:
    """a / b as a softmax, if it is one."""
    if not _is(a, "exp"):
        return None
    total = _reduced(b, "sum")
    if total is None or total.args[0] is not a:
        return None
    return _softmax(R.nn.softmax, a.args[0], total, b)


def as_log_softmax(a: Any, b: Any) -> Expr | None:
    """a - b as the logarithm of a softmax, if it is one."""
    inner = b
    while _is(inner, *_SAME):
        inner = inner.args[0]
    if not _is(inner, "log"):
        return None
    total = _reduced(inner.args[0], "sum")
    if total is None or not _is(total.args[0], "exp") or total.args[0].args[0] is not a:
        return None
    return _softmax(R.nn.log_softmax, a, total, b)


def _softmax(build: Any, shifted: Any, total: Call, kept: Expr) -> Expr | None:
    """`build` of x along the axis of a sum, for `shifted` = x - max(x); `kept` is the sum as it is combined with it."""
    axis = _axis(total)
    if axis is None or not _is(shifted, "subtract") or dtype_of(shifted) not in ("float32", "float64"):
        return None
    x, low = shifted.args
    top = _reduced(low, "max")
    if top is None or top.args[0] is not x or _axis(top) != axis:
        return None
    wanted = [str(1 if d == axis else s) for d, s in enumerate(shape_of(x))]
    fits = all([str(s) for s in shape_of(e)] == wanted for e in (low, kept))
    return build(x, axis) if fits else None


def _reduced(e: Any, name: str) -> Any:
    """The reduction that an expression is, apart from dimensions of size 1."""
    while _is(e, *_SAME):
        e = e.args[0]
    return e if _is(e, name) else None


def _axis(reduction: Any) -> int | None:
    found = list(reduction.attrs.axis or ())
    return int(found[0]) if len(found) == 1 else None


def _is(e: Any, *names: str) -> Any:
    return isinstance(e, Call) and getattr(e.op, "name", "") in names
