"""DynamicToStatic: operators with computed shapes that are constants."""

from __future__ import annotations

from typing import Any, Final

from ...ir.op import graph_operators
from ..expr import Call, Constant, Expr, Function
from ..op.registry import RelayOp
from .fold_constant import fold_constant
from .infer_type import infer_type
from .rewriting import CallRewriter, typed_pass

ROUNDS: Final = 16


def dynamic_to_static(func: Function) -> Function:
    """Use the operator that takes its shape as an attribute, where the shape is known.

        %0 = shape_of(%x);
        dyn.reshape(%y, %0)        ->      reshape(%y, newshape=[2, 3])

    One known shape may make others known, so this is iterated to a fixed point.
    """
    rules = {op: _static for name, op in graph_operators.items() if name.startswith("dyn.")}
    for _ in range(ROUNDS):
        typed = infer_type(fold_constant(func))
        made: Any = CallRewriter(rules).visit(typed)
        if made is typed:
            return typed
        func = infer_type(made)
    return func


def _values(constant: Constant) -> Any:
    values = constant.numpy()
    return values.item() if not values.shape else values.tolist()


def _static(at: Call) -> Expr | None:
    """The call of the operator without `dyn`, its shapes as attributes, if all of them are constants."""
    found = graph_operators.get(at.op.name.removeprefix("dyn."))
    if not isinstance(found, RelayOp) or found.inputs is None:
        return None
    args: list[Any] = []
    attrs = {k: v for k, v in at.attrs.items() if k in found.spec}
    for name, value in zip(at.op.inputs, at.args, strict=False):
        if name in found.spec and name not in found.inputs:
            if not isinstance(value, Constant):
                return None
            given = _values(value)
            scalar = found.spec[name].kind in ("integer", "number")
            attrs[name] = given[0] if scalar and isinstance(given, list) and len(given) == 1 else given
        else:
            args.append(value)
    return found(*args, **attrs)


DynamicToStatic = typed_pass(dynamic_to_static, name="DynamicToStatic", opt_level=3)
