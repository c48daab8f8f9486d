"""The classic functions that copy an expression with some of its fields changed: doors to `expr.replace`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .expr import (
    Call,
    Constant,
    Function,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)

__all__ = [
    "CallWithFields",
    "ConstantWithFields",
    "FunctionWithFields",
    "IfWithFields",
    "LetWithFields",
    "RefCreateWithFields",
    "RefReadWithFields",
    "RefWriteWithFields",
    "TupleGetItemWithFields",
    "TupleWithFields",
    "VarWithFields",
]


def _copying(kind: type, *fields: str) -> Callable[..., Any]:
    """The function (expression, fields in order, virtual device, span) for a kind of expression."""
    order = (*fields, "virtual_device", "span")

    def copy(expr: Any, *values: Any, **named: Any) -> Any:
        if not issubclass(expr.__class__, kind):
            raise TypeError(
                f"{kind.__name__}WithFields takes a relay.{kind.__name__}, not {type(expr).__name__}"
            )
        given = dict(zip(order, values, strict=False))
        for name, value in named.items():
            given[_NAMES.get(name.removeprefix("opt_"), name.removeprefix("opt_"))] = value
        if given.pop("virtual_device", None) is not None:
            raise ValueError(
                f"{kind.__name__}WithFields: expressions have no virtual device; use relay.annotation.on_device"
            )
        span = given.pop("span", None)
        unknown = [name for name in given if name not in fields]
        if unknown:
            raise TypeError(f"{kind.__name__} has no field {unknown[0]!r}; it has {', '.join(fields)}")
        changed = {name: value for name, value in given.items() if value is not None}
        if all(value is getattr(expr, name) for name, value in changed.items()) and span is None:
            return expr
        made = expr.replace(**changed)
        if span is not None:
            made.span = span
        return made

    copy.__name__ = copy.__qualname__ = f"{kind.__name__}WithFields"
    copy.__doc__ = f"A {kind.__name__} with other {', '.join(fields)}; None keeps a field."
    return copy


_NAMES = {"ty_params": "type_params", "vid": "name_hint", "tuple": "tuple_value"}

CallWithFields = _copying(Call, "op", "args", "attrs", "type_args")
ConstantWithFields = _copying(Constant, "data")
FunctionWithFields = _copying(Function, "params", "body", "ret_type", "type_params", "attrs")
IfWithFields = _copying(If, "cond", "true_branch", "false_branch")
LetWithFields = _copying(Let, "var", "value", "body")
RefCreateWithFields = _copying(RefCreate, "value")
RefReadWithFields = _copying(RefRead, "ref")
RefWriteWithFields = _copying(RefWrite, "ref", "value")
TupleGetItemWithFields = _copying(TupleGetItem, "tuple_value", "index")
TupleWithFields = _copying(Tuple, "fields")
VarWithFields = _copying(Var, "name_hint", "type_annotation")
