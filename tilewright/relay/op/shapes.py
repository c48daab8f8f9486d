"""Arithmetic on sizes that are integers, expressions or unknown, for type relations.

add(3, 4) = 7      mul(n, 2) = n*2      add(n, Any()) = Any()      same_size(n, 3) = None: it may be
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any as Anything

from ...arith import Analyzer
from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import IntImm, PrimExpr, convert
from ..ty import Any, TensorType
from .registry import refuse

__all__ = [
    "add",
    "axis_of",
    "axes_of",
    "broadcast",
    "ceildiv",
    "floordiv",
    "is_known",
    "least",
    "mul",
    "need_dtype",
    "need_rank",
    "product",
    "same_size",
    "sub",
    "unify",
]


def is_known(d: Anything) -> bool:
    """Whether a size is an integer."""
    return d.__class__ is int


def _size(e: Anything) -> Anything:
    e = Analyzer().simplify(e) if isinstance(e, PrimExpr) else e
    return int(e.value) if isinstance(e, IntImm) else e


def _work(
    a: Anything, b: Anything, ints: Callable[[int, int], int], exprs: Callable[[Anything, Anything], Anything]
) -> Anything:
    if isinstance(a, Any) or isinstance(b, Any):
        return Any()
    if is_known(a) and is_known(b):
        return ints(a, b)
    return _size(exprs(*ops.match(convert(a), convert(b))))


def add(a: Anything, b: Anything) -> Anything:
    return _work(a, b, lambda x, y: x + y, ops.add)


def sub(a: Anything, b: Anything) -> Anything:
    return _work(a, b, lambda x, y: x - y, ops.sub)


def mul(a: Anything, b: Anything) -> Anything:
    if (is_known(a) and a == 0) or (is_known(b) and b == 0):
        return 0
    return _work(a, b, lambda x, y: x * y, ops.mul)


def floordiv(a: Anything, b: Anything) -> Anything:
    return _work(a, b, lambda x, y: x // y, ops.floordiv)


def ceildiv(a: Anything, b: Anything) -> Anything:
    return floordiv(add(a, sub(b, 1)), b)


def least(a: Anything, b: Anything) -> Anything:
    return _work(a, b, min, ops.min_of)


def product(sizes: Iterable[Anything]) -> Anything:
    """All sizes multiplied; of none, 1. An unknown one makes the product unknown, unless there is a 0."""
    listed, out = list(sizes), 1
    if any(is_known(d) and d == 0 for d in listed):
        return 0
    for d in listed:
        out = mul(out, d)
    return out


def same_size(a: Anything, b: Anything) -> bool | None:
    """Whether two sizes are the same: True, False, or None where only the run will tell."""
    if is_known(a) and is_known(b):
        return bool(a == b)
    if isinstance(a, Any) or isinstance(b, Any):
        return None
    rest = sub(a, b)
    return bool(rest == 0) if is_known(rest) else None


def unify(a: Anything, b: Anything) -> Anything:
    """The better known of two sizes that must be the same."""
    return b if isinstance(a, Any) or (is_known(b) and not is_known(a)) else a


def broadcast(
    a: Sequence[Anything], b: Sequence[Anything], names: str = "the arguments"
) -> tuple[Anything, ...]:
    """The shape of two tensors used together, as NumPy has it."""
    out: list[Anything] = []
    short = min(len(a), len(b))
    for x, y in zip(reversed(a), reversed(b), strict=False):
        if is_known(x) and x == 1:
            out.append(y)
        elif is_known(y) and y == 1:
            out.append(x)
        elif isinstance(x, Any) or isinstance(y, Any):
            other = y if isinstance(x, Any) else x
            out.append(other if is_known(other) else Any())
        else:
            if same_size(x, y) is False:
                raise refuse(
                    f"{names} have shapes {_text(a)} and {_text(b)}, where {x} and {y} do not broadcast"
                )
            out.append(unify(x, y))
    longer = a if len(a) > len(b) else b
    return (*longer[: len(longer) - short], *reversed(out))


def _text(shape: Sequence[Anything]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def axis_of(axis: Anything, ndim: int, argument: str = "axis") -> int:
    """An axis counted from the front."""
    if not isinstance(axis, int) or not -ndim <= axis < ndim:
        raise refuse(f"is {axis} and goes from {-ndim} to {ndim - 1}", argument)
    return axis + ndim if axis < 0 else axis


def axes_of(axes: Anything, ndim: int, argument: str = "axis") -> tuple[int, ...]:
    """Axes counted from the front, each once; None is all of them."""
    if axes is None:
        return tuple(range(ndim))
    listed = [axes] if isinstance(axes, int) else list(axes)
    out = tuple(axis_of(a, ndim, argument) for a in listed)
    if len(set(out)) != len(out):
        raise refuse(f"{tuple(listed)} names a dimension twice", argument)
    return out


def need_rank(kind: TensorType, ndim: int, argument: str) -> None:
    """Refuse a tensor of another number of dimensions."""
    if len(kind.shape) != ndim:
        raise refuse(f"must have {ndim} dimensions and is {kind}", argument)


def need_dtype(kind: TensorType, wanted: DataType, argument: str) -> None:
    """Refuse a tensor of other elements."""
    if kind.dtype != wanted:
        raise refuse(f"must be {wanted} and is {kind.dtype}; cast one of them", argument)
