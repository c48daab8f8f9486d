"""Gradients of operators that move elements: the same moves backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....ir.errors import TVMError
from ...expr import Call, const
from ..computes import R
from .parts import fields_of, moved, ndim, number, shape, shaped_as


def transpose(call: Call, grad: Any) -> list[Any]:
    rank, axes = ndim(call.args[0]), call.attrs.axes
    order = [a % rank for a in axes] if axes else list(reversed(range(rank)))
    return [R.transpose(grad, [order.index(d) for d in range(rank)])]


def concatenate(call: Call, grad: Any) -> list[Any]:
    axis = call.attrs.axis % ndim(call)
    lengths = [k.shape[axis] for k in call.args[0].checked_type.fields]
    if any(not isinstance(d, int) for d in lengths):
        raise TVMError(f"gradient of concatenate: the sizes {lengths} of axis {axis} must be known")
    ends = [int(v) for v in np.cumsum(lengths)]
    if len(lengths) == 1:
        return [[grad]]
    return [list(R.split(grad, ends[:-1], axis))]


def stack(call: Call, grad: Any) -> list[Any]:
    axis, count = call.attrs.axis % ndim(call), len(call.args[0].checked_type.fields)
    return [[R.squeeze(part, [axis]) for part in R.split(grad, count, axis)]]


def split(call: Call, grad: Any) -> list[Any]:
    return [R.concatenate(fields_of(grad), call.attrs.axis)]


def reverse(call: Call, grad: Any) -> list[Any]:
    return [R.reverse(grad, axis=call.attrs.axis)]


def layout_transform(call: Call, grad: Any) -> list[Any]:
    return [R.layout_transform(grad, call.attrs.dst_layout, call.attrs.src_layout)]


def depth_to_space(call: Call, grad: Any) -> list[Any]:
    attrs = call.attrs
    return [R.nn.space_to_depth(grad, attrs.block_size, attrs.layout, attrs.mode)]


def space_to_depth(call: Call, grad: Any) -> list[Any]:
    attrs = call.attrs
    return [R.nn.depth_to_space(grad, attrs.block_size, attrs.layout, attrs.mode)]


def fifo_buffer(call: Call, grad: Any) -> list[Any]:
    """The buffer moves back by the size of the data, which is what stands last."""
    data, buffer = call.args
    axis = call.attrs.axis % ndim(data)
    new, whole = shape(data)[axis], shape(buffer)[axis]
    if not isinstance(new, int) or not isinstance(whole, int):
        raise TVMError(f"gradient of nn.fifo_buffer: the sizes of axis {axis} must be known")
    last = R.strided_slice(grad, [whole - new], [whole], axes=[axis])
    rest = R.strided_slice(grad, [0], [whole - new], axes=[axis])
    widths = [(new, 0) if d == axis else (0, 0) for d in range(ndim(buffer))]
    return [last, R.nn.pad(rest, widths, number(0, buffer))]


# ---------------------------------------------------------------------------- padding
mirror_pad = moved()
batch_to_space_nd = moved()
space_to_batch_nd = moved(pad_value=0.0)


def pad(call: Call, grad: Any) -> list[Any]:
    data, value = call.args
    if call.attrs.pad_mode != "constant":
        # Positions take no padding value of floats; these modes do not read it.
        plain = call.over([data, const(0, "int32")])
        plain = Call(plain.op, plain.args, plain.attrs)
        return [mirror_pad(plain, grad)[0], None]
    widths, outer = call.attrs.pad_width, shape(call)
    if any(not isinstance(d, int) for d in outer):
        raise TVMError(f"gradient of nn.pad: the sizes of {call.checked_type} must be known")
    high = [d - after for d, (_, after) in zip(outer, widths, strict=True)]
    inner = R.strided_slice(grad, [before for before, _ in widths], high)
    return [inner, shaped_as(R.sum(grad) - R.sum(inner), value)]


def dilate(call: Call, grad: Any) -> list[Any]:
    rank = ndim(call)
    return [R.strided_slice(grad, [0] * rank, [2**31 - 1] * rank, call.attrs.strides)]


# ---------------------------------------------------------------------------- creation
def full(call: Call, grad: Any) -> list[Any]:
    value = call.args[0]
    made = R.cast(R.sum(grad), str(value.checked_type.dtype))
    return [R.reshape(made, shape(value)) if shape(value) else made, *[None] * (len(call.args) - 1)]


def full_like(call: Call, grad: Any) -> list[Any]:
    return [None, R.sum(grad)]


def arange(call: Call, grad: Any) -> list[Any]:
    """The rule of dyn.arange: start + i·step."""
    start, _, step = call.args
    kind = str(start.checked_type.dtype)
    count = (R.cast(call, kind) - start) / step
    given = R.cast(grad, kind)
    return [R.sum(given), None, R.sum(given * count)]


def meshgrid(call: Call, grad: Any) -> list[Any]:
    kinds = call.args[0].checked_type.fields
    rank, made = len(kinds), []
    for i, (part, kind) in enumerate(zip(fields_of(grad), kinds, strict=True)):
        at = 1 - i if call.attrs.indexing == "xy" and i < 2 <= rank else i
        others = [d for d in range(rank) if d != at]
        total = R.sum(part, axis=others) if others else part
        made.append(total if kind.shape else R.reshape(total, ()))
    return [made]
