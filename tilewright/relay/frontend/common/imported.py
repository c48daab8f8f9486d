"""What importers outside of the package take from the classic module of this name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....ir.errors import TVMError
from ....ir.module import IRModule
from ... import op as R
from ...analysis import free_vars
from ...binding import bind_params_by_name
from ...expr import Constant, Expr, Function, var
from ...transform.fold_constant import FoldConstant
from ...transform.infer_type import infer_type as typed

__all__ = [
    "fold_constant",
    "get_relay_op",
    "infer_channels",
    "infer_shape",
    "infer_type",
    "infer_value",
    "new_var",
]


def get_relay_op(op_name: str) -> Any:
    """The function that builds calls of an operator, by its name with or without `nn.` and the like."""
    for home in (R, R.nn, R.image, R.vision):
        found = getattr(home, op_name.rpartition(".")[2], None)
        if callable(found):
            return found
    raise TVMError(f"there is no operator {op_name!r} in relay")


def infer_type(node: Any, mod: IRModule | None = None) -> Any:
    """The expression with its types."""
    return typed(node, mod) if mod is not None else typed(node)


def infer_shape(inputs: Any, mod: IRModule | None = None) -> tuple[Any, ...]:
    """The sizes of a tensor."""
    kind = infer_type(inputs, mod).checked_type
    if not hasattr(kind, "shape"):
        raise TVMError(f"infer_shape: {kind} is not the type of a tensor")
    return tuple(kind.shape)


def infer_channels(inputs: Any, transpose: bool = False) -> Any:
    """The output channels of a weight: OIHW, or with `transpose` IOHW."""
    return infer_shape(inputs)[1 if transpose else 0]


def fold_constant(node: Any, mod: IRModule | None = None) -> Any:
    """The expression with all that is known computed."""
    work = mod.clone() if mod is not None else IRModule()
    work["main"] = node if isinstance(node, Function) else Function(free_vars(node), node)
    main = FoldConstant()(work)["main"]
    return main if isinstance(node, Function) else main.body


def infer_value(input_val: Any, params: Mapping[str, Any], mod: IRModule | None = None) -> Any:
    """The value of an expression whose variables are all among `params`."""
    func = bind_params_by_name(Function(free_vars(input_val), input_val), params)
    made = fold_constant(func.body, mod)
    if not isinstance(made, Constant):
        raise TVMError(
            "infer_value: the value is not known when the model is imported; it depends on its inputs"
        )
    return made.data


def new_var(name_hint: str, type_annotation: Any = None, shape: Any = None, dtype: str = "float32") -> Expr:
    """A variable."""
    return var(name_hint, type_annotation, shape, dtype)
