"""Helpers of converters: operators, types of intermediate expressions, constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....runtime.ndarray import ALIGNMENT, numpyasarray
from ... import op
from ...expr import Call, Constant, Expr, Tuple, TupleGetItem, const, set_checked_type
from ...op.registry import RelayTypeError
from ...ty import TupleType

# All constructors of operators: `R.add`, `R.nn.conv2d`.
R: Any = op


class Refusal(Exception):
    """The reason why a node cannot be imported; the importer adds the node and its location."""


# ---------------------------------------------------------------------------- types
def typed(root: Any) -> Any:
    """The expression with inferred types of its new parts: typed subexpressions are not walked again."""
    stack = [root]
    while stack:
        at = stack[-1]
        if at._checked_type is not None:
            stack.pop()
            continue
        waiting = [c for c in at.children() if c._checked_type is None]
        if waiting:
            stack += waiting
            continue
        set_checked_type(at, _kind(at))
        stack.pop()
    return root


def _kind(at: Any) -> Any:
    if isinstance(at, Tuple):
        return TupleType(tuple(f.checked_type for f in at.fields))
    if isinstance(at, TupleGetItem):
        return at.tuple_value.checked_type.fields[at.index]
    if isinstance(at, Call):
        try:
            return at.op.infer([a.checked_type for a in at.args], at.attrs)
        except RelayTypeError as error:
            raise RelayTypeError(f"{at.op.name}: {error}") from None
    from ...transform.infer_type import infer_type

    return infer_type(at).checked_type


def shape_of(e: Expr) -> tuple[Any, ...]:
    """The sizes of a tensor: integers, expressions or Any."""
    return typed(e).checked_type.shape


def is_static(e: Expr) -> bool:
    return all(isinstance(d, int) for d in shape_of(e))


def static_shape(e: Expr, what: str = "a tensor") -> tuple[int, ...]:
    """The sizes, which must all be known now."""
    found = shape_of(e)
    if not all(isinstance(d, int) for d in found):
        raise ValueError(
            f"{what} has shape {tuple(map(str, found))}, with sizes that are not known at import; give shape="
        )
    return found


def rank(e: Expr) -> int:
    return len(shape_of(e))


def dtype_of(e: Expr) -> str:
    return str(typed(e).checked_type.dtype)


# ---------------------------------------------------------------------------- constants and casts
def adopted(value: Any) -> Constant:
    """A constant on the memory of an array that nobody else holds; a copy if an NDArray cannot begin there."""
    fits = value.ctypes.data % ALIGNMENT == 0 and value.flags.c_contiguous and value.flags.writeable
    return Constant(numpyasarray(value)) if fits else constant(value)


def constant(value: Any, dtype: str | None = None) -> Constant:
    """A constant that keeps the element type of an array."""
    held = np.ascontiguousarray(value) if np.ndim(value) else np.asarray(value)
    return const(held, dtype or str(held.dtype))


def scalar(value: Any, like: Expr) -> Constant:
    """One number of the element type of `like`."""
    return const(value, dtype_of(like))


def cast(e: Expr, dtype: str) -> Expr:
    """The tensor cast to another type; unchanged if it has that type."""
    return e if dtype_of(e) == dtype else R.cast(e, dtype)


def is_float(dtype: str) -> bool:
    return "float" in dtype


def is_int(dtype: str) -> bool:
    return "int" in dtype


def literal(value: Any, dtype: str) -> Constant:
    """One number."""
    return const(value, dtype)


def full(value: Any, shape: Sequence[Any], dtype: str) -> Expr:
    """A tensor of one number."""
    return R.full(literal(value, dtype), tuple(shape), dtype)


def converted(e: Expr, dtype: str) -> Expr:
    """The tensor cast to another type; to bool, whether an element is not 0."""
    have = dtype_of(e)
    if have == dtype:
        return e
    if dtype == "bool":  # a plain cast would keep the lowest bit
        return R.not_equal(e, literal(0, have))
    return R.cast(e, dtype)


# ---------------------------------------------------------------------------- other shapes
def reshape(e: Expr, shape: Sequence[Any]) -> Expr:
    """The elements under a shape without codes."""
    if shape_of(e) == tuple(shape):
        return e
    zero = any(isinstance(d, int) and d == 0 for d in shape)
    return R.reshape(e, tuple(shape), allowzero=zero)


def permute(e: Expr, order: Sequence[int]) -> Expr:
    """The dimensions in another order."""
    wanted = [int(d) % max(rank(e), 1) for d in order]
    return e if wanted == list(range(len(wanted))) else R.transpose(e, wanted)


def take_rows(e: Expr, index: Sequence[int], axis: int) -> Expr:
    """The rows of an axis in the order of a list."""
    return R.take(e, constant(np.asarray(list(index), "int32")), axis=axis)


def scatter_rows(x: Expr, part: Expr, at: int, index: Expr, how: str, negative: bool = True) -> Expr:
    """The tensor with slices along a dimension, at indices (1, count), replaced by those of another or combined."""
    order = [at, *(d for d in range(rank(x)) if d != at)]
    made = R.scatter_nd(permute(x, order), index, permute(part, order), how, negative)
    return permute(made, [order.index(d) for d in range(rank(x))])
