"""Gradients of slices, gathers and scatters: what was read is added to, what was written is read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ....ir.errors import TVMError
from ...expr import Call, Tuple, const
from ..computes import R
from .parts import fields_of, moved, ndim, number, shape, shaped_as, sizes


def _spread(grad: Any, rows: Any, dims: tuple[int, ...], like: Any) -> Any:
    """The gradient of data of shape `dims` of which begin:end:stride was read along each dimension."""
    back, steps, widths = [], [], []
    for d, (row, size) in enumerate(zip(rows, dims, strict=True)):
        places = range(*slice(*row).indices(size))
        low, high = (min(places[0], places[-1]), max(places[0], places[-1])) if places else (0, size - 1)
        if places.step < 0:
            back.append(d)
        steps.append(abs(places.step) if len(places) > 1 else 1)
        widths.append((low, size - 1 - high) if places else (0, size))
    if back:
        grad = R.reverse(grad, axis=back)
    if any(s > 1 for s in steps):
        grad = R.nn.dilate(grad, steps)
    return R.nn.pad(grad, widths, number(0, like)) if any(map(any, widths)) else grad


def strided_slice(call: Call, grad: Any) -> list[Any]:
    from ..index import slice_rows

    dims = sizes(call)
    rows = slice_rows(call.attrs, dims)
    if 0 in shape(call):
        return [None]
    if any(v is not None and not isinstance(v, int) for row in rows for v in row):
        raise TVMError(
            f"gradient of strided_slice: begin {call.attrs.begin} and end {call.attrs.end} must be known"
        )
    return [_spread(grad, rows, dims, call.args[0])]


def slice_like(call: Call, grad: Any) -> list[Any]:
    dims = sizes(call)
    return [_spread(grad, [(0, n, 1) for n in shape(call)], dims, call.args[0]), None]


def strided_set(call: Call, grad: Any) -> list[Any]:
    _, v, begin, end, strides = call.args
    kept = R.strided_set(grad, R.zeros_like(v), begin, end, strides)
    return [kept, R.strided_slice(grad, begin, end, strides), None, None, None]


# ---------------------------------------------------------------------------- gathers
def take(call: Call, grad: Any) -> list[Any]:
    """The rows that were taken, added at their indices."""
    indices = call.args[1]
    dims, attrs = sizes(call), call.attrs
    if attrs.axis is None:
        return [R.reshape(_added(R.reshape(grad, (-1,)), indices, math.prod(dims), attrs.mode), dims), None]
    axis, rank = attrs.axis % len(dims), ndim(indices)
    batch = attrs.batch_dims + (rank if attrs.batch_dims < 0 else 0)
    size = dims[axis]
    # [batch, outer, indices, inner] -> [batch, indices, outer, inner]: the rows of one list of indices
    middle = range(axis, axis + rank - batch)
    order = [*range(batch), *middle, *range(batch, axis), *range(axis + len(middle), ndim(call))]
    rest = [*dims[batch:axis], *dims[axis + 1 :]]
    rows = R.reshape(R.transpose(grad, order), (-1, math.prod(rest)))
    lists = math.prod(dims[:batch])
    if batch:
        held = _held(indices, size, attrs.mode)
        starts = np.arange(lists).reshape(*dims[:batch], *(1,) * (rank - batch)) * size
        indices = held + const(starts, str(held_type(indices)))
        total = R.segment_sum(rows, R.reshape(indices, (-1,)), lists * size)
    else:
        total = _added(rows, indices, size, attrs.mode)
    whole = R.reshape(total, [*dims[:batch], size, *rest])
    here = [*range(batch), *range(batch + 1, axis + 1), batch, *range(axis + 1, len(dims))]
    return [R.transpose(whole, here), None]


def held_type(indices: Any) -> Any:
    return indices.checked_type.dtype


def _held(indices: Any, size: int, mode: str) -> Any:
    """Indices as positions from 0, as the mode reads them."""
    if mode == "nan":
        raise TVMError(
            "gradient of take: mode 'nan' has none where an index is out of bounds; use mode='clip'"
        )
    count = number(size, indices)
    if mode == "wrap":
        return R.floor_mod(indices, count)
    if mode == "fast":
        return R.where(R.less(indices, number(0, indices)), indices + count, indices)
    return R.clip(indices, 0, size - 1)


def _added(rows: Any, indices: Any, size: int, mode: str) -> Any:
    return R.segment_sum(rows, R.reshape(_held(indices, size, mode), (-1,)), size)


def gather(call: Call, grad: Any) -> list[Any]:
    data, indices = call.args
    attrs = call.attrs
    return [R.scatter_elements(R.zeros_like(data), indices, grad, attrs.axis, "add", attrs.negative), None]


def gather_nd(call: Call, grad: Any) -> list[Any]:
    data, indices = call.args
    batch = call.attrs.batch_dims
    points = shape(indices)[1:]
    if batch and any(not isinstance(d, int) for d in points):
        raise TVMError("gradient of gather_nd: with batch_dims the sizes of the indices must be known")
    if batch:  # batch dimension d of the points is coordinate d
        rows = np.indices(points)[:batch]
        indices = R.concatenate([const(rows, str(held_type(indices))), indices], 0)
    return [R.scatter_nd(R.zeros_like(data), indices, grad, "add"), None]


def adv_index(call: Call, grad: Any) -> list[Any]:
    data, *indices = fields_of(call.args[0])
    kinds = call.args[0].checked_type.fields[1:]
    points = shape(call)[: ndim(call) - (ndim_of(call.args[0].checked_type.fields[0]) - len(kinds))]
    kind = "int64" if any(str(k.dtype) == "int64" for k in kinds) else "int32"
    rows = [R.broadcast_to(R.cast(i, kind), points) for i in indices]
    made = R.scatter_nd(R.zeros_like(data), R.stack(rows, 0), grad, "add")
    return [[made, *[None] * len(indices)]]


def ndim_of(kind: Any) -> int:
    return len(kind.shape)


def segment_sum(call: Call, grad: Any) -> list[Any]:
    return [R.take(grad, call.args[1], axis=0), None]


def one_hot(call: Call, grad: Any) -> list[Any]:
    indices, on, off = call.args
    attrs = call.attrs
    kind = str(on.checked_type.dtype)
    marks = R.one_hot(indices, const(1, kind), const(0, kind), attrs.depth, attrs.axis, str(attrs.dtype))
    by_on = R.sum(grad * marks)
    return [None, shaped_as(R.cast(by_on, kind), on), shaped_as(R.cast(R.sum(grad) - by_on, kind), off)]


# ---------------------------------------------------------------------------- scatters
def _need(call: Call, mode: str) -> None:
    if mode not in ("update", "add"):
        raise TVMError(f"gradient of {call.op.name}: there is none for {mode!r}; use 'update' or 'add'")


def scatter_elements(call: Call, grad: Any) -> list[Any]:
    _, indices, updates = call.args
    attrs = call.attrs
    _need(call, attrs.reduction)
    by_data = grad
    if attrs.reduction == "update":
        zeros = R.zeros_like(updates)
        by_data = R.scatter_elements(grad, indices, zeros, attrs.axis, "update", attrs.negative)
    return [by_data, None, R.gather(grad, attrs.axis, indices, attrs.negative)]


def scatter_nd(call: Call, grad: Any) -> list[Any]:
    _, indices, updates = call.args
    attrs = call.attrs
    _need(call, attrs.mode)
    by_data = grad
    if attrs.mode == "update":
        by_data = R.scatter_nd(grad, indices, R.zeros_like(updates), "update", attrs.negative)
    return [by_data, None, R.gather_nd(grad, indices)]


def sparse_to_dense(call: Call, grad: Any) -> list[Any]:
    """The values are read back at their points; the default has what is left."""
    points, values, default = call.args
    rank = ndim(points)
    index = R.reshape(points, (1, -1)) if rank < 2 else R.transpose(points)
    read = R.gather_nd(grad, index)
    one = R.reshape(read, shape(values))
    return [None, one if shape(values) else R.sum(read), shaped_as(R.sum(grad) - R.sum(read), default)]


# ---------------------------------------------------------------------------- parts of sequences and matrices
def sequence_mask(call: Call, grad: Any) -> list[Any]:
    return [R.sequence_mask(grad, call.args[1], 0, call.attrs.axis), None]


def reverse_sequence(call: Call, grad: Any) -> list[Any]:
    attrs = call.attrs
    return [R.reverse_sequence(grad, call.args[1], attrs.seq_axis, attrs.batch_axis), None]


sliding_window = moved()


def matrix_set_diag(call: Call, grad: Any) -> list[Any]:
    """The diagonal is read back at the places where the operator writes its elements."""
    diagonal = call.args[1]
    dims = sizes(call, 1)
    count = math.prod(dims)
    places = R.reshape(R.arange(1, count + 1, 1, "int32"), dims)
    from_ = call.over([R.zeros(sizes(call), "int32"), places])
    total = R.segment_sum(R.reshape(grad, (-1,)), R.reshape(from_, (-1,)), count + 1)
    by_diagonal = R.reshape(R.strided_slice(total, [1], [count + 1]), dims)
    return [call.over([grad, R.zeros_like(diagonal)]), by_diagonal]


def trilu(call: Call, grad: Any) -> list[Any]:
    return [call.over([grad, call.args[1]]), None]


# ---------------------------------------------------------------------------- sorting
def sort(call: Call, grad: Any) -> list[Any]:
    data, attrs = call.args[0], call.attrs
    order = R.argsort(data, attrs.axis, attrs.is_ascend, "int32")
    return [R.scatter_elements(R.zeros_like(data), order, grad, attrs.axis, "add")]


def topk(call: Call, grad: Any) -> list[Any]:
    data, attrs = call.args[0], call.attrs
    if attrs.ret_type == "indices":
        return [None]
    values = grad[0] if isinstance(grad, Tuple) else grad
    order = R.topk(data, attrs.k, attrs.axis, "indices", attrs.is_ascend, str(attrs.dtype))
    return [R.scatter_elements(R.zeros_like(data), order, values, attrs.axis, "add")]
