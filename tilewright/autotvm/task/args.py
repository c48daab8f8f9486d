"""Arguments of templates as plain data, so that a workload can be a key and a line of JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.dtype import DataType
from ...ir.expr import FloatImm, IntImm, StringImm
from ...te import placeholder
from ...te.tensor import Tensor
from ..utils import get_const_tuple

_SKETCH = "SKETCH"


def _plain(x: Any) -> Any:
    if isinstance(x, Tensor):
        return ("TENSOR", get_const_tuple(x.shape), str(x.dtype))
    if isinstance(x, (tuple, list)):
        return tuple(_plain(a) for a in x)
    if isinstance(x, (IntImm, FloatImm, StringImm)):
        return x.value
    if isinstance(x, DataType):
        return str(x)
    if x is None or isinstance(x, (str, bool, int, float)):
        return x
    if hasattr(x, "item"):  # a number of NumPy's
        return x.item()
    raise TypeError(
        f"an argument of a template is {type(x).__name__}; it must be a number, a string, a tensor, or a list of such"
    )


def serialize_args(args: Sequence[Any]) -> tuple[Any, ...]:
    """Arguments as plain data: a tensor is ("TENSOR", shape, dtype)."""
    return tuple(_plain(a) for a in args)


def deserialize_args(args: Sequence[Any]) -> list[Any]:
    """Plain data as arguments: new placeholders for tensors, also for those in lists."""

    def restored(x: Any) -> Any:
        if isinstance(x, (tuple, list)):
            if len(x) == 3 and x[0] == "TENSOR":
                return placeholder(tuple(x[1]), dtype=x[2])
            if any(isinstance(a, (tuple, list)) and len(a) and a[0] == "TENSOR" for a in x):
                return [restored(a) for a in x]
        return x

    return [restored(a) for a in args]


def args_to_workload(args: Sequence[Any], task_name: str | None = None) -> tuple[Any, ...]:
    """The key of a template with its arguments."""
    plain = serialize_args(args)
    return plain if task_name is None else (task_name, *plain)


# ---------------------------------------------------------------------------- programs of the graph compiler
def sketch_args(key: str) -> tuple[Any, ...]:
    """The arguments of a task that stands for a program: the key of that program."""
    return ((_SKETCH, key),)


def sketch_key(workload: Sequence[Any] | None) -> str | None:
    """The key of the program that a workload stands for; None if it is a template's."""
    if workload is None or len(workload) != 2:
        return None
    last = workload[1]
    if isinstance(last, tuple) and len(last) == 2 and last[0] == _SKETCH:
        return str(last[1])
    return None
