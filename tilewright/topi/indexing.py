"""Operators whose indices are data: take, gather, one_hot, masks, where positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import te
from ..ir import ops
from ..ir.dtype import INT32
from ..ir.expr import PrimExpr, const_value, convert
from ..te.tensor import checked_shape
from ..tir import ir_builder
from . import tag
from .checks import is_checked
from .math import cast
from .transform import flatten
from .utils import (
    as_place,
    beside,
    broadcast_indices,
    broadcast_shape,
    clamped,
    dtype_of,
    equal_const_int,
    extern,
    fail,
    injective,
    int_list,
    is_empty_shape,
    normalize_axis,
    prod,
    same_size,
    shape_text,
    shown,
    static_int,
    tensor_arg,
)
from .utils import unravel_index as _unravel

__all__ = [
    "adv_index",
    "argwhere",
    "gather",
    "gather_nd",
    "matrix_set_diag",
    "one_hot",
    "sequence_mask",
    "take",
    "unravel_index",
]


def index_tensor(name: str, argument: str, value: Any) -> te.Tensor:
    """A tensor of integers."""
    x = tensor_arg(name, argument, value)
    if not x.dtype.is_integral or x.dtype.is_bool:
        raise fail(name, f"{argument} is {x.dtype} and must have integers", "cast it")
    return x


def from_front(index: PrimExpr, size: Any) -> PrimExpr:
    """The non-negative form of an index, which counts from the end if it is negative; it may be out of bounds."""
    if index.dtype.is_uint:
        return index
    return ops.select(ops.less(index, te.const(0, index.dtype)), ops.add(index, size), index)


def if_any(sizes: Sequence[Any], value: PrimExpr, *indices: te.Tensor | None) -> PrimExpr:
    """A value read along some dimensions by indices, or 0 if a dimension is empty, which a symbolic size may be;
    checked indices fail instead."""
    if indices and all(i is not None and is_checked(i) for i in indices):
        return value
    opens = [ops.greater(s, 0) for s in sizes if const_value(convert(s)) is None]
    return ops.if_then_else(ops.all(*opens), value, te.const(0, value.dtype)) if opens else value


def held(index: PrimExpr, size: Any) -> PrimExpr:
    """An index that counts from the end if it is negative, clamped to the dimension."""
    return clamped(from_front(index, size), size)


# ---------------------------------------------------------------------------- take and gather
def taken(mode: str, index: PrimExpr, size: Any) -> PrimExpr:
    """The element of a dimension of `size` that an index selects, by mode."""
    if mode == "wrap":
        return as_place(ops.floormod(index, beside(index, size)), size)
    return held(index, size) if mode == "fast" else clamped(index, size)


def take(a: te.Tensor, indices: Any, axis: Any = None, batch_dims: int = 0, mode: str = "clip") -> te.Tensor:
    """The slices of `a` along `axis` (or of its elements laid in a row) that `indices` names.

    An out-of-bounds index is clamped (clip), wraps around (wrap) or gives NaN (nan). With mode "fast" a negative index
    counts from the end, and out-of-bounds indices must not occur; they are clamped. The first `batch_dims` dimensions
    are common to both.
    """
    x = tensor_arg("take", "a", a)
    if mode not in ("clip", "wrap", "fast", "nan"):
        raise fail("take", f"mode is {shown(mode)} and may be 'clip', 'wrap', 'fast' or 'nan'")
    if mode == "nan" and not x.dtype.is_float:
        raise fail("take", f"mode 'nan' needs floats and a is {x.dtype}")
    if axis is None:
        x, axis = flatten(x) if x.ndim != 1 else x, 0
    d = normalize_axis("take", axis, x.ndim)
    chosen = index_tensor("take", "indices", indices) if isinstance(indices, te.Tensor) else None
    single = None if chosen is not None else convert(int_list("take", "indices", indices)[0])
    ndim = chosen.ndim if chosen is not None else 0
    batch = static_int("take", "batch_dims", batch_dims)
    batch = batch + ndim if batch < 0 else batch
    if not 0 <= batch <= min(d, ndim):
        raise fail("take", f"batch_dims is {batch}, with axis {d} and indices of {ndim} dimensions")
    own = chosen.shape[batch:] if chosen is not None else ()
    size = x.shape[d]
    shape = [*x.shape[:d], *own, *x.shape[d + 1 :]]
    if equal_const_int(size, 0) and not is_empty_shape(shape):
        raise fail("take", f"axis {d} of {shape_text(x.shape)} has no elements to take")

    def element(*i: Any) -> PrimExpr:
        inside = i[d : d + len(own)]
        index = chosen(*i[:batch], *inside) if chosen is not None else single
        assert index is not None
        rest = (*i[:d],), (*i[d + len(own) :],)
        value = if_any([size], x(*rest[0], taken(mode, index, size), *rest[1]), chosen)
        if mode != "nan":
            return value
        good = ops.logical_and(ops.greater_equal(index, 0), ops.less(index, size))
        return ops.if_then_else(good, value, te.const(float("nan"), x.dtype))

    if is_empty_shape(shape):
        return injective("take", shape, lambda *i: te.const(0, x.dtype))
    return injective("take", shape, element)


def gather(data: te.Tensor, axis: int, indices: te.Tensor) -> te.Tensor:
    """out[i, j, k] = data[indices[i, j, k], j, k] for axis 0: indexing along `axis`.

    The result has the shape of `indices`; a negative index counts from the end.
    """
    x, chosen = tensor_arg("gather", "data", data), index_tensor("gather", "indices", indices)
    d = normalize_axis("gather", axis, x.ndim)
    if chosen.ndim != x.ndim:
        raise fail("gather", f"indices has {chosen.ndim} dimensions and data has {x.ndim}")
    if is_empty_shape(chosen.shape):
        return injective("gather", chosen.shape, lambda *i: te.const(0, x.dtype))
    return injective(
        "gather",
        chosen.shape,
        lambda *i: if_any([x.shape[d]], x(*i[:d], held(chosen(*i), x.shape[d]), *i[d + 1 :]), chosen),
    )


def gather_nd(a: te.Tensor, indices: te.Tensor, batch_dims: int = 0) -> te.Tensor:
    """The slices of `a` at the points whose coordinates are indices[0], indices[1], …

    The first `batch_dims` coordinates are the place in the result; negative ones count from the end.
    """
    x, points = tensor_arg("gather_nd", "a", a), tensor_arg("gather_nd", "indices", indices)
    points = index_tensor("gather_nd", "indices", cast(points, "int32") if points.dtype.is_float else points)
    if points.ndim < 1:
        raise fail("gather_nd", "indices has no dimensions; its first one counts the coordinates")
    count = static_int("gather_nd", "the first dimension of indices", points.shape[0])
    batch = static_int("gather_nd", "batch_dims", batch_dims)
    if not 0 <= batch <= points.ndim - 1 or batch + count > x.ndim:
        raise fail(
            "gather_nd",
            f"indices of shape {shape_text(points.shape)} with batch_dims {batch} name more dimensions than "
            f"a of shape {shape_text(x.shape)} has",
        )
    shape = [*points.shape[1:], *x.shape[batch + count :]]
    lead = points.ndim - 1

    def element(*i: Any) -> PrimExpr:
        at = i[:lead]
        place = [held(points(c, *at), x.shape[batch + c]) for c in range(count)]
        return if_any(x.shape[batch : batch + count], x(*at[:batch], *place, *i[lead:]), points)

    if is_empty_shape(shape):
        return injective("gather_nd", shape, lambda *i: te.const(0, x.dtype))
    return injective("gather_nd", shape, element)


def adv_index(data: te.Tensor, indices: Sequence[te.Tensor]) -> te.Tensor:
    """`data[indices[0], indices[1], …]`: the indices broadcast and read the leading dimensions."""
    x = tensor_arg("adv_index", "data", data)
    points = [index_tensor("adv_index", f"indices[{i}]", t) for i, t in enumerate(indices)]
    if not 1 <= len(points) <= x.ndim:
        raise fail("adv_index", f"there are {len(points)} indices for {x.ndim} dimensions")
    common = broadcast_shape("adv_index", *(t.shape for t in points))
    shape = [*common, *x.shape[len(points) :]]

    def element(*i: Any) -> PrimExpr:
        at = i[: len(common)]
        place = [held(t(*broadcast_indices(t.shape, common, at)), x.shape[d]) for d, t in enumerate(points)]
        return if_any(x.shape[: len(points)], x(*place, *i[len(common) :]), *points)

    if is_empty_shape(shape):
        return injective("adv_index", shape, lambda *i: te.const(0, x.dtype))
    return injective("adv_index", shape, element)


# ---------------------------------------------------------------------------- masks and marks
def _value(kind: Any, value: Any) -> PrimExpr:
    return te.const(value, kind) if isinstance(value, (int, float)) else ops.cast(kind, value)


def one_hot(
    indices: te.Tensor, on_value: Any, off_value: Any, depth: Any, axis: int, dtype: str
) -> te.Tensor:
    """A new dimension of size `depth` with `on_value` at the index and `off_value` elsewhere."""
    x, kind = index_tensor("one_hot", "indices", indices), dtype_of("one_hot", dtype)
    d = normalize_axis("one_hot", axis, x.ndim + 1)
    size = int_list("one_hot", "depth", depth)[0]
    on, off = _value(kind, on_value), _value(kind, off_value)

    def element(*i: Any) -> PrimExpr:
        return ops.select(ops.equal(x(*i[:d], *i[d + 1 :]), i[d]), on, off)

    return injective("one_hot", [*x.shape[:d], size, *x.shape[d:]], element)


def sequence_mask(data: te.Tensor, valid_length: te.Tensor, mask_value: Any = 0, axis: int = 0) -> te.Tensor:
    """The data with `mask_value` from `valid_length[b]` on along `axis`, 0 or 1; the other one is the batch."""
    x = tensor_arg("sequence_mask", "data", data)
    lengths = tensor_arg("sequence_mask", "valid_length", valid_length)
    if x.ndim < 2 or axis not in (0, 1):
        raise fail("sequence_mask", f"axis is {axis} and data has {x.ndim} dimensions; time is 0 or 1 of two")
    if lengths.ndim != 1 or not same_size(lengths.shape[0], x.shape[1 - axis]):
        raise fail("sequence_mask", f"valid_length must be a list of {x.shape[1 - axis]} lengths")
    mask = _value(x.dtype, mask_value)

    def element(*i: Any) -> PrimExpr:
        return ops.select(
            ops.greater_equal(ops.cast(lengths.dtype, i[axis]), lengths(i[1 - axis])), mask, x(*i)
        )

    return injective("sequence_mask", x.shape, element)


def matrix_set_diag(data: te.Tensor, diagonal: te.Tensor, k: Any = 0, align: str = "RIGHT_LEFT") -> te.Tensor:
    """Matrices with new values on diagonal `k`, or on those from k[0] to k[1], the uppermost first.

    Diagonals shorter than the others are padded: `align` is the alignment of those above and below the main one.
    """
    x, new = tensor_arg("matrix_set_diag", "data", data), tensor_arg("matrix_set_diag", "diagonal", diagonal)
    bounds = [static_int("matrix_set_diag", "k", v) for v in (k if isinstance(k, (tuple, list)) else (k, k))]
    low, high = bounds[0], bounds[-1]
    sides = align.split("_")
    if len(sides) != 2 or not {*sides} <= {"LEFT", "RIGHT"}:
        raise fail("matrix_set_diag", f"align is {shown(align)}, say 'RIGHT_LEFT'")
    if x.ndim < 2 or low > high or new.ndim != x.ndim - (1 if low == high else 0):
        raise fail(
            "matrix_set_diag",
            f"data {shape_text(x.shape)}, diagonal {shape_text(new.shape)} and k {shown(k)} do not go together",
        )
    rows, columns, longest = x.shape[-2], x.shape[-1], new.shape[-1]

    def element(*i: Any) -> PrimExpr:
        batch, row, column = i[:-2], i[-2], i[-1]
        offset = ops.sub(column, row)
        above = ops.greater_equal(offset, 0)
        place = ops.select(above, row, column)
        size = ops.select(
            above, ops.min_of(rows, ops.sub(columns, offset)), ops.min_of(ops.add(rows, offset), columns)
        )
        gap = ops.sub(longest, size)
        moved = [ops.add(place, gap) if side == "RIGHT" else place for side in sides]
        place = ops.select(above, moved[0], moved[1]) if low != high else place
        at = [*batch, place] if low == high else [*batch, ops.sub(high, offset), place]
        inside = ops.logical_and(ops.greater_equal(offset, low), ops.less_equal(offset, high))
        return ops.if_then_else(inside, new(*at), x(*i))

    return injective("matrix_set_diag", x.shape, element)


def unravel_index(indices: te.Tensor, shape: Any) -> te.Tensor:
    """The coordinates of positions in a tensor of `shape` (a list, or a tensor of its sizes), along a new axis 0."""
    x = index_tensor("unravel_index", "indices", indices)
    if isinstance(shape, te.Tensor):
        sizes_of = shape
        count = static_int("unravel_index", "the length of shape", sizes_of.shape[0])
        dims: list[Any] = [ops.cast(x.dtype, sizes_of(d)) for d in range(count)]
    else:
        dims = int_list("unravel_index", "shape", shape)
    if not dims:
        raise fail("unravel_index", "shape has no dimensions")

    def element(c: Any, *i: Any) -> PrimExpr:
        places = _unravel(x(*i), dims)
        out = places[-1]
        for d in reversed(range(len(places) - 1)):
            out = ops.select(ops.equal(c, d), places[d], out)
        return ops.cast(x.dtype, out)

    return injective("unravel_index", [len(dims), *x.shape], element, tag.INJECTIVE)


def argwhere(output_shape: Any, condition: te.Tensor) -> te.Tensor:
    """The coordinates of the elements that are not zero, one row each, in order, as int32.

    `output_shape` is the number of rows and coordinates of the result; unused rows are zero.
    """
    x = tensor_arg("argwhere", "condition", condition)
    room = output_shape.shape if isinstance(output_shape, te.Tensor) else output_shape
    shape = checked_shape(room)
    if len(shape) != 2 or not equal_const_int(shape[1], x.ndim):
        raise fail(
            "argwhere", f"output_shape is {shape_text(shape)} and must be (rows, {x.ndim}) for this condition"
        )
    if is_empty_shape(x.shape) or is_empty_shape(shape):
        return injective("argwhere", shape, lambda *i: te.const(0, INT32))
    total = prod(x.shape)

    def build(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        source, result = ib.buffer_ptr(ins[0], (total,)), ib.buffer_ptr(outs[0])
        found = ib.allocate("int32", (1,), "found", scope="local")
        found[0] = 0
        with ib.for_range(0, total, "i") as i:
            value = source[i]
            holds = value if value.dtype.is_bool else ops.not_equal(value, te.const(0, value.dtype))
            with ib.if_scope(ops.logical_and(holds, ops.less(found[0], shape[0]))):
                for c, place in enumerate(_unravel(i, x.shape)):
                    result[found[0], c] = ops.cast(INT32, place)
                found[0] = found[0] + 1
        with ib.for_range(0, ops.sub(shape[0], found[0]), "rest") as rest:
            for c in range(x.ndim):
                result[found[0] + rest, c] = 0
        return ib.get()

    return extern("argwhere", [shape], [x], build, [INT32])[0]
