"""SplitArgs: a concatenation of very many tensors as a tree of concatenations."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from ...ir.errors import TVMError
from .. import op as R
from ..expr import Call, Expr, Function, Tuple, Var
from .infer_type import infer_type
from .rewriting import CallRewriter, call, type_of, typed_pass

_MANY = 256  # most operands of one kernel; compile time grows faster than their number


def split_args(func: Function, max_function_args: int = 0) -> Function:
    """Split concatenations where a kernel can take only a limited number of arguments.

        concatenate((a, b, c, d))     ->     concatenate((concatenate((a, b)), concatenate((c, d))))

    0 is no limit. One argument of the kernel is its result.
    """
    if max_function_args == 0:
        return func
    if max_function_args < 3:
        raise TVMError(
            f"SplitArgs: a concatenation has two operands and a result; {max_function_args} arguments are too few"
        )
    return CallRewriter({R.concatenate: lambda at: _split(at, max_function_args - 1)}).visit(func)


def _split(at: Call, most: int) -> Expr | None:
    parts = at.args[0]
    if not isinstance(parts, Tuple) or len(parts.fields) <= most:
        return None
    row: list[Expr] = list(parts.fields)
    while len(row) > most:
        groups = [row[i : i + most] for i in range(0, len(row), most)]
        row = [R.concatenate(Tuple(g), axis=at.attrs.axis) if len(g) > 1 else g[0] for g in groups]
    return R.concatenate(Tuple(row), axis=at.attrs.axis)


def short_joins(func: Function) -> Function:
    """Split a concatenation of very many tensors into several kernels, and one that concatenates their results.

        concatenate((a, b, …, z))     ->     concatenate((%f(a, b, …), %f(…), …))     with %f = fn (…, Primitive=1)

    They are primitive functions already, so fusion does not merge them again. Equal ones are compiled once.
    """
    made = CallRewriter({R.concatenate: _shortened, R.stack: _shortened}).visit(func)
    return func if made is func else infer_type(made)


def _shortened(at: Call) -> Expr | None:
    parts = at.args[0]
    if not isinstance(parts, Tuple) or len(parts.fields) <= _MANY:
        return None
    row = parts.fields
    wide = isqrt(len(row) - 1) + 1
    joined = [_kernel(at, row[i : i + wide]) for i in range(0, len(row), wide)]
    return R.concatenate(Tuple(joined), axis=at.attrs.axis)


def _kernel(at: Call, row: Sequence[Expr]) -> Expr:
    params = [Var(f"p{i}", type_of(e)) for i, e in enumerate(row)]
    fn = Function(params, call(at.op.name, Tuple(params), axis=at.attrs.axis))
    return Call(fn.with_attr("Primitive", 1), row)


SplitArgs = typed_pass(split_args, name="SplitArgs", opt_level=1)
