"""`while_loop`: a loop over values, as a function that calls itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..absent import attributes
from .expr import Expr, Function, Let, Tuple, Var, type_so_far
from .scope_builder import ScopeBuilder


def while_loop(
    cond: Callable[..., Expr], loop_vars: Sequence[Any], loop_bodies: Callable[..., Sequence[Expr]]
) -> Expr:
    """The function of the initial values that repeats a loop and returns the last values as a tuple.

        i, y = relay.var("i", "int32"), relay.var("y", shape=(2,))
        loop = while_loop(lambda i, y: i < n, [i, y], lambda i, y: [i + one, y * y])
        last = loop(zero, x)                                        # a tuple of i and y

    The loop has variables of its own, of the types of `loop_vars`.
    """
    params = [
        Var(v.name_hint if isinstance(v, Var) else f"arg{i}", type_so_far(v), span=v.span)
        for i, v in enumerate(loop_vars)
    ]
    loop = Var("while_loop")
    sb = ScopeBuilder()
    with sb.if_scope(cond(*params)):
        sb.ret(loop(*loop_bodies(*params)))
    with sb.else_scope():
        sb.ret(Tuple(params))
    return Let(loop, Function(params, sb.get()), loop)


__getattr__ = attributes(__name__)
