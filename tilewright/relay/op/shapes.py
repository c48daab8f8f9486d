"""Arithmetic on sizes that are integers, expressions or unknown, for type relations.

add(3, 4) = 7      mul(n, 2) = n*2      add(n, Any()) = Any()      same_size(n, 3) = None: it may be
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any as Anything
from typing import Final, NamedTuple

from ...ir import ops
from ...ir.dtype import DataType
from ...ir.expr import IntImm, PrimExpr, convert
from ..ty import Any, TensorType, TupleType
from .computes import arith
from .registry import refuse


class Assumption(NamedTuple):
    """An assumption of a relation about two sizes that it could not compare.

    They are equal; or, if `stretches`, one of them may be 1 and broadcast to the other; or, with the reason `least`,
    the first is at least as large as the second.
    """

    a: Anything
    b: Anything
    stretches: bool
    least: str = ""


_noted: Final[ContextVar[list[Assumption] | None]] = ContextVar("assumptions", default=None)


@contextmanager
def assumptions() -> Iterator[list[Assumption]]:
    """Collect the assumptions of relations meanwhile.

    with assumptions() as found:
        infer_type(add(x, y))           x: (n,), y: (m,)      found = [n and m are the same, or one is 1]

    Sizes that may broadcast are then assumed to be equal; otherwise the result of such a pair is unknown.
    """
    found: list[Assumption] = []
    token = _noted.set(found)
    try:
        yield found
    finally:
        _noted.reset(token)


def is_known(d: Anything) -> bool:
    """Whether a size is an integer."""
    return isinstance(d, int)


def _size(e: Anything) -> Anything:
    e = arith.Analyzer().simplify(e) if isinstance(e, PrimExpr) else e
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
    """Whether two sizes are equal: True, False, or None if known only at run time."""
    if is_known(a) and is_known(b):
        return bool(a == b)
    if isinstance(a, Any) or isinstance(b, Any):
        return None
    rest = sub(a, b)
    return bool(rest == 0) if is_known(rest) else None


def differ(a: Anything, b: Anything) -> bool:
    """Whether two sizes that must be equal are known to differ; if unknown, records an assumption."""
    same = same_size(a, b)
    noted = _noted.get()
    if same is None and noted is not None and not isinstance(a, Any) and not isinstance(b, Any):
        noted.append(Assumption(a, b, False))
    return same is False


def assume_inside(place: Anything, size: Anything) -> None:
    """Record the assumption that a symbolic index is between 0 and a size."""
    if not is_known(place) and not isinstance(place, Any) and not isinstance(size, Any):
        low = _work(place, 0, max, ops.max_of)
        differ(least(low, size), place)


def assume_least(size: Anything, least: Anything, why: str) -> None:
    """Record the assumption that a dynamic size is at least as large as another, with the reason."""
    noted = _noted.get()
    unknown = not is_known(size) or not is_known(least)
    if noted is not None and unknown and not isinstance(size, Any) and not isinstance(least, Any):
        noted.append(Assumption(size, least, False, why))


def stretches(a: Anything, b: Anything) -> bool:
    """Whether a size broadcasts to another; if unknown, records an assumption."""
    if (is_known(a) and a == 1) or isinstance(a, Any) or isinstance(b, Any) or same_size(a, b):
        return True
    if is_known(a) and is_known(b):
        return False
    noted = _noted.get()
    if noted is not None:
        noted.append(Assumption(a, b, True))
    return True


def unlike(a: Sequence[Anything], b: Sequence[Anything]) -> bool:
    """Whether two shapes are known to differ; as `differ`, it notes what must hold otherwise."""
    return len(a) != len(b) or any(map(differ, a, b))


def unify(a: Anything, b: Anything) -> Anything:
    """The more precise of two sizes that must be equal."""
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
            same = same_size(x, y)
            if same is False:
                raise refuse(
                    f"{names} have shapes {_text(a)} and {_text(b)}, where {x} and {y} do not broadcast"
                )
            out.append(x if same else _stretched(x, y))
    longer = a if len(a) > len(b) else b
    return (*longer[: len(longer) - short], *reversed(out))


def _stretched(x: Anything, y: Anything) -> Anything:
    """The common size of two that are equal, or one of them 1; unknown if neither is known."""
    noted = _noted.get()
    if noted is not None:
        noted.append(Assumption(x, y, True))
        return unify(x, y)
    return x if is_known(x) else y if is_known(y) else Any()


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
    """Refuse a tensor of another element type."""
    if kind.dtype != wanted:
        raise refuse(f"must be {wanted} and is {kind.dtype}; cast one of them", argument)


def need_integers(kind: TensorType, argument: str) -> None:
    """Refuse a tensor that holds no integers."""
    if not kind.dtype.is_integral or kind.dtype.is_bool:
        raise refuse(f"must hold integers and is {kind}", argument)


def need_one_of(value: str, known: Sequence[str], argument: str) -> None:
    """The value of an attribute is one of these texts."""
    if value not in known:
        *others, last = map(repr, known)
        raise refuse(f"is {value!r} and may be {', '.join(others)} or {last}", argument)


def need_fields(kind: TupleType) -> Sequence[Anything]:
    """The tensors of a tuple, which must have one at least."""
    if not kind.fields:
        raise refuse("is empty", "data")
    return kind.fields


def need_scalar(kind: TensorType, argument: str) -> None:
    """Refuse a tensor of several elements."""
    if any(differ(d, 1) for d in kind.shape):
        raise refuse(f"must be one number and is {kind}", argument)


def need_vectors(data: TensorType, axis: int, **vectors: TensorType) -> None:
    """Refuse vectors without an element for each index of a dimension of the data."""
    for name, kind in vectors.items():
        need_rank(kind, 1, name)
        if differ(kind.shape[0], data.shape[axis]):
            raise refuse(
                f"has {kind.shape[0]} elements and dimension {axis} of data {data.shape[axis]}", name
            )


def vectors(count: int) -> Anything:
    """The types of some inputs that are vectors over the axis of the data that the attributes name."""

    def types(data: TensorType, attrs: Anything) -> list[TensorType]:
        at = axis_of(attrs.axis, len(data.shape))
        return [TensorType((data.shape[at],), data.dtype)] * count

    return types


def whole_part(size: Anything, by: int, argument: str, what: str) -> Anything:
    """size / by, which must be exact."""
    if is_known(size) and size % by:
        raise refuse(f"{what} is {size} and must be a multiple of {by}", argument)
    return floordiv(size, by)


def same_rel(types: list[Anything], attrs: Anything) -> TensorType:
    """The relation of operators whose result has the type of their first input."""
    return types[0]


def axis_rel(types: list[Anything], attrs: Anything) -> TensorType:
    """`same_rel` of operators that work along an axis."""
    axis_of(attrs.axis, len(types[0].shape))
    return types[0]


def axes_rel(types: list[Anything], attrs: Anything) -> TensorType:
    """`same_rel` of operators that work along several axes."""
    axes_of(attrs.axis, len(types[0].shape))
    return types[0]
