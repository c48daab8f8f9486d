"""Tensors from nothing: arange, full, meshgrid, triangular masks."""

from __future__ import annotations

import math
from typing import Any

from .. import te
from ..ir import ops
from ..ir.expr import ExprOp, PrimExpr, convert
from ..te.tensor import checked_shape
from . import tag
from .utils import (
    dtype_of,
    fail,
    get_const_float,
    injective,
    shape_text,
    shown,
    simplify,
    static_int,
    tensor_arg,
)

__all__ = ["arange", "eye", "full", "full_like", "meshgrid", "trilu"]


def _number(value: Any) -> float | int | None:
    """The constant value, None for a symbolic expression."""
    made = simplify(value)
    if isinstance(made, ExprOp):
        try:
            number = get_const_float(made)
        except ValueError:
            return None
        return int(number) if convert(made).dtype.is_integral else number
    return made.item() if hasattr(made, "item") else made


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> te.Tensor:
    """The numbers from `start` to before `stop` in steps; with one argument, from 0 to before it."""
    kind = dtype_of("arange", dtype)
    if stop is None:
        start, stop = 0, start
    numbers = [_number(v) for v in (start, stop, step)]
    if numbers[2] == 0:
        raise fail("arange", "step is 0: it would never end")
    first, last, by = numbers
    if first is not None and last is not None and by is not None:
        count: Any = max(math.ceil((last - first) / by), 0)
        start, step = first, by
    elif by is None or not isinstance(by, int):
        raise fail("arange", f"step is {shown(step)} and must be a known integer where a bound is not known")
    else:
        span = ops.sub(stop, start) if by > 0 else ops.sub(start, stop)
        count = simplify(ops.max_of(ops.ceildiv(ops.cast("int32", span), abs(by)), 0))

    def element(i: Any) -> PrimExpr:
        if kind.is_float:
            return ops.add(ops.cast(kind, start), ops.mul(ops.cast(kind, step), ops.cast(kind, i)))
        return ops.cast(kind, ops.add(start, ops.mul(step, i)))

    return injective("arange", (count,), element)


def full(shape: Any, dtype: str, fill_value: Any) -> te.Tensor:
    """A tensor with one value everywhere."""
    kind = dtype_of("full", dtype)
    value = te.const(fill_value, kind) if isinstance(fill_value, (int, float)) else ops.cast(kind, fill_value)
    return injective("full", checked_shape(shape), lambda *i: value, tag.ELEMWISE)


def full_like(x: te.Tensor, fill_value: Any) -> te.Tensor:
    """One value everywhere, in the shape and type of `x`."""
    like = tensor_arg("full_like", "x", x)
    return full(like.shape, like.dtype, fill_value)


def eye(n: Any, m: Any = None, k: int = 0, dtype: str = "float32") -> te.Tensor:
    """Ones on diagonal `k` of a matrix, zeros elsewhere."""
    kind = dtype_of("eye", dtype)

    def element(i: Any, j: Any) -> PrimExpr:
        return ops.select(ops.equal(ops.sub(j, i), k), te.const(1, kind), te.const(0, kind))

    return injective("eye", (n, n if m is None else m), element)


def meshgrid(a_tuple: Any, indexing: str = "xy") -> list[te.Tensor]:
    """The coordinates of all points of a grid, a tensor for each axis; "xy" turns the first two around."""
    axes = [tensor_arg("meshgrid", f"axis {i}", t) for i, t in enumerate(a_tuple)]
    if indexing not in ("ij", "xy"):
        raise fail("meshgrid", f"indexing is {shown(indexing)} and may be 'ij' or 'xy'")
    for t in axes:
        if t.ndim > 1:
            raise fail("meshgrid", f"`{t.name}` has shape {shape_text(t.shape)} and must have one dimension")
    place = list(range(len(axes)))
    if indexing == "xy" and len(axes) > 1:
        place[:2] = [1, 0]
    sizes: list[Any] = [1] * len(axes)
    for t, p in zip(axes, place):
        sizes[p] = t.shape[0] if t.ndim else 1
    return [
        injective("meshgrid", sizes, lambda *i, t=t, p=p: t(i[p]) if t.ndim else t())
        for t, p in zip(axes, place)
    ]


def trilu(data: te.Tensor, k: Any = 0, upper: bool = True) -> te.Tensor:
    """The upper (or lower) triangle of the last two dimensions from diagonal `k` on, zeros elsewhere."""
    x = tensor_arg("trilu", "data", data)
    if x.ndim < 2:
        raise fail("trilu", f"data of shape {shape_text(x.shape)} has no matrices")
    if isinstance(k, te.Tensor):
        if k.ndim > 1:
            raise fail("trilu", f"k has shape {shape_text(k.shape)} and must be one number")
        offset: Any = k(*[0] * k.ndim)
    else:
        offset = k if isinstance(k, ExprOp) else static_int("trilu", "k", k)
    zero = te.const(0, x.dtype)

    def element(*i: Any) -> PrimExpr:
        diagonal = ops.sub(i[-1], i[-2])
        keep = ops.greater_equal(diagonal, offset) if upper else ops.less_equal(diagonal, offset)
        return ops.select(keep, x(*i), zero)

    return injective("trilu", x.shape, element)
