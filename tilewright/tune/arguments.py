"""Arguments of templates and workloads as plain data, which can be part of a key and of a line of JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..ir.dtype import DataType
from ..ir.expr import FloatImm, IntImm, StringImm, Var, const_value
from ..te import placeholder
from ..te.tensor import Tensor


def get_const_int(expr: Any) -> int:
    """The value of a constant integer; ValueError for any other expression."""
    value = expr if isinstance(expr, int) else const_value(expr)
    if value is None:
        raise ValueError(f"a constant is expected, not `{expr}`")
    return int(value)


def get_const_tuple(shape: Iterable[Any]) -> tuple[int, ...]:
    """The values of constant sizes; ValueError if a size is dynamic."""
    return tuple(get_const_int(d) for d in shape)


def serialize_args(args: Iterable[Any]) -> tuple[Any, ...]:
    """Arguments as plain data: a tensor is ("TENSOR", shape, dtype), a variable ("VAR", name, dtype)."""
    return tuple(_plain(a) for a in args)


def _plain(x: Any) -> Any:
    if isinstance(x, Tensor):
        return ("TENSOR", get_const_tuple(x.shape), str(x.dtype))
    if isinstance(x, Var):
        return ("VAR", x.name, str(x.dtype))
    if isinstance(x, (tuple, list)):
        return serialize_args(x)
    if isinstance(x, (IntImm, FloatImm, StringImm)):
        return x.value
    if isinstance(x, DataType):
        return str(x)
    if x is None or isinstance(x, (str, bool, int, float)):
        return x
    if hasattr(x, "item"):  # a NumPy scalar
        return x.item()
    raise TypeError(
        f"an argument of a template or a workload is a {type(x).__name__}; it must be a number, a string, a tensor, or "
        "a list of them"
    )


def deserialize_args(args: Iterable[Any]) -> list[Any]:
    """The inverse of `serialize_args`: tensors, also those in lists, become new placeholders, variables new ones."""

    def restored(x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            if len(x) == 3 and x[0] == "TENSOR":
                return placeholder(tuple(x[1]), dtype=x[2])
            if len(x) == 3 and x[0] == "VAR":
                return Var(x[1], x[2])
            if any(isinstance(a, (tuple, list)) and len(a) and a[0] == "TENSOR" for a in x):
                return [restored(a) for a in x]
        return x

    return [restored(a) for a in args]
