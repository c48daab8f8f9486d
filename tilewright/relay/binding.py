"""Substitution of values for variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ir.errors import near_matches
from ..ir.module import IRModule
from .analysis import post_order
from .expr import Expr, Function, Var, as_expr
from .visitor import ExprMutator


class _Substitute(ExprMutator):
    def __init__(self, values: Mapping[Var, Any]) -> None:
        super().__init__()
        self.values = values

    def visit_var(self, var: Var) -> Any:
        return self.values.get(var, var)

    def visit_function(self, fn: Function) -> Any:
        body = self.visit(fn.body)
        params = [p for p in fn.params if p not in self.values]
        if body is fn.body and len(params) == len(fn.params):
            return fn
        return Function(params, body, None, fn.type_params, fn.attrs, fn.span)


def bind(expr: Expr, binds: Mapping[Any, Any]) -> Expr:
    """The expression with values substituted for variables, given as variables or as names of parameters."""
    values: dict[Var, Any] = {}
    for key, value in binds.items():
        if isinstance(key, str):
            named = expr.params if isinstance(expr, Function) else post_order(expr)
            found = [v for v in named if isinstance(v, Var) and v.name_hint == key]
            if not found:
                known = [v.name_hint for v in named if isinstance(v, Var)]
                raise ValueError(f"bind: there is no variable {key!r}{near_matches(key, known)}")
            key = found[0]
        values[key] = as_expr(value)
    made = _Substitute(values).visit(expr)
    return made


def bind_params_by_name(func: Function, params: Mapping[str, Any] | None) -> Function:
    """The function with arrays bound to the parameters of those names; other entries of `params` are ignored."""
    by_name: dict[str, Var | None] = {}
    for p in func.params:
        by_name[p.name_hint] = None if p.name_hint in by_name else p
    values: dict[Any, Any] = {}
    for name, value in (params or {}).items():
        if name in by_name:
            found = by_name[name]
            if found is None:
                raise ValueError(
                    f"several parameters are named {name!r}, so the one to bind is ambiguous; rename them"
                )
            values[found] = value if isinstance(value, Expr) else as_expr(value)
    return bind(func, values) if values else func  # type: ignore[return-value]


def bind_params_in_module(mod: IRModule, params: Mapping[str, Any] | None) -> IRModule:
    """The module with arrays bound to parameters of `main`."""
    if not params:
        return mod
    made = mod.clone()
    made["main"] = bind_params_by_name(mod["main"], params)
    return made
