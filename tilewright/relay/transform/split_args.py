"""SplitArgs: a join of very many tensors as a join of joins."""

from __future__ import annotations

from ...ir.errors import TVMError
from ..expr import Call, Expr, Function, Tuple
from .rewriting import CallRewriter, call, typed_pass

__all__ = ["SplitArgs", "split_args"]


def split_args(func: Function, max_function_args: int = 0) -> Function:
    """Join tensors in parts, where a kernel can take only so many arguments.

        concatenate((a, b, c, d))     ->     concatenate((concatenate((a, b)), concatenate((c, d))))

    0 is no limit. One argument of the kernel is its result.
    """
    if max_function_args == 0:
        return func
    if max_function_args < 3:
        raise TVMError(
            f"SplitArgs: a join takes two tensors and has a result; {max_function_args} are too few"
        )
    return CallRewriter({"concatenate": lambda at: _split(at, max_function_args - 1)}).visit(func)  # type: ignore[no-any-return]


def _split(at: Call, most: int) -> Expr | None:
    parts = at.args[0]
    if not isinstance(parts, Tuple) or len(parts.fields) <= most:
        return None
    row: list[Expr] = list(parts.fields)
    while len(row) > most:
        groups = [row[i : i + most] for i in range(0, len(row), most)]
        row = [call("concatenate", Tuple(g), axis=at.attrs.axis) if len(g) > 1 else g[0] for g in groups]
    return call("concatenate", Tuple(row), axis=at.attrs.axis)


SplitArgs = typed_pass(split_args, name="SplitArgs", opt_level=1)
