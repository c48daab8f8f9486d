"""The shapes of results that depend on values: what an executor asks before it runs such an operator.

    get("dyn.tile").get_attr("FShapeFunc")(attrs, [x, reps]) = [(4, 6)]      x: an array of (2, 3), reps: [2, 2]

A function gets the attributes and an array for each tensor among the arguments, and gives a shape for each tensor of
the result. Only operators whose relation leaves sizes open have one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from . import layouts
from .registry import RelayTypeError, register_op_attr
from .shapes import axis_of
from .transform import reshaped

__all__ = ["SHAPE_FUNCTIONS", "Shape"]

Shape = tuple[int, ...]


def _ints(value: Any) -> list[int]:
    return [int(v) for v in value.reshape(-1)]


def _sizes(value: Any) -> Shape:
    sizes = tuple(_ints(value))
    if any(d < 0 for d in sizes):
        raise RelayTypeError(f"{sizes} has a size below 0", "shape")
    return sizes


def _reshape(attrs: Any, values: list[Any]) -> list[Shape]:
    return [tuple(reshaped(values[0].shape, _ints(values[1]), attrs.allowzero))]


def _squeeze(attrs: Any, values: list[Any]) -> list[Shape]:
    shape = values[0].shape
    gone = {axis_of(a, len(shape)) for a in _ints(values[1])}
    for d in gone:
        if shape[d] != 1:
            raise RelayTypeError(f"dimension {d} of {shape} is not 1", "axis")
    return [tuple(s for d, s in enumerate(shape) if d not in gone)]


def _expand_dims(attrs: Any, values: list[Any]) -> list[Shape]:
    shape = values[0].shape
    at = axis_of(_ints(values[1])[0], len(shape) + 1)
    return [(*shape[:at], *[1] * attrs.num_newaxis, *shape[at:])]


def _broadcast_to(attrs: Any, values: list[Any]) -> list[Shape]:
    shape, wanted = values[0].shape, _sizes(values[1])
    for have, want in zip(reversed(shape), reversed(wanted), strict=False):
        if have not in (1, want):
            raise RelayTypeError(f"{shape} does not broadcast to {wanted}", "shape")
    return [wanted]


def _tile(attrs: Any, values: list[Any]) -> list[Shape]:
    shape, reps = list(values[0].shape), _ints(values[1])
    ndim = max(len(shape), len(reps))
    shape, reps = [1] * (ndim - len(shape)) + shape, [1] * (ndim - len(reps)) + reps
    return [tuple(d * r for d, r in zip(shape, reps, strict=True))]


def _arange(attrs: Any, values: list[Any]) -> list[Shape]:
    start, stop, step = (v.reshape(-1)[0].item() for v in values)
    if step == 0:
        raise RelayTypeError("is 0", "step")
    return [(max(0, math.ceil((stop - start) / step)),)]


def _one_hot(attrs: Any, values: list[Any]) -> list[Shape]:
    shape, depth = values[0].shape, _ints(values[3])[0]
    at = len(shape) if attrs.axis == -1 else axis_of(attrs.axis, len(shape) + 1)
    return [(*shape[:at], depth, *shape[at:])]


def _topk(attrs: Any, values: list[Any]) -> list[Shape]:
    shape, count = values[0].shape, _ints(values[1])[0]
    at = axis_of(attrs.axis, len(shape))
    count = shape[at] if count < 1 else count
    if count > shape[at]:
        raise RelayTypeError(f"is {count} and dimension {at} has {shape[at]} elements", "k")
    out = (*shape[:at], count, *shape[at + 1 :])
    return [out, out] if attrs.ret_type == "both" else [out]


def _strided_slice(attrs: Any, values: list[Any]) -> list[Shape]:
    shape = list(values[0].shape)
    begin, end, strides = (_ints(v) for v in values[1:])
    for d, low in enumerate(begin):
        if attrs.slice_mode == "size":
            low = low + shape[d] if low < 0 else low
            high = low + end[d] if d < len(end) and end[d] >= 0 else None
            step = 1
        else:
            high, step = end[d] if d < len(end) else None, strides[d] if d < len(strides) else 1
        if step == 0:
            raise RelayTypeError("has a 0", "strides")
        shape[d] = len(range(*slice(low, high, step).indices(shape[d])))
    return [tuple(shape)]


def _pad(attrs: Any, values: list[Any]) -> list[Shape]:
    rows = values[1].tolist()
    return [tuple(d + int(a) + int(b) for d, (a, b) in zip(values[0].shape, rows, strict=True))]


def _enlarged(axes: str) -> Callable[[Any, list[Any]], list[Shape]]:
    def shapes(attrs: Any, values: list[Any]) -> list[Shape]:
        named = layouts.sizes(attrs.layout, values[0].shape)
        for letter, scale in zip(axes, values[1:], strict=True):
            named[letter] = round(named[letter] * scale.reshape(-1)[0].item())
        return [tuple(layouts.shape_in(attrs.layout, named))]

    return shapes


def _resize2d(attrs: Any, values: list[Any]) -> list[Shape]:
    named = layouts.sizes(attrs.layout, values[0].shape)
    named["H"], named["W"] = _sizes(values[1])
    return [tuple(layouts.shape_in(attrs.layout, named))]


def _argwhere(attrs: Any, values: list[Any]) -> list[Shape]:
    return [(int((values[0] != 0).sum()), values[0].ndim)]


SHAPE_FUNCTIONS: dict[str, Callable[[Any, list[Any]], list[Shape]]] = {
    "argwhere": _argwhere,
    "dyn.arange": _arange,
    "dyn.broadcast_to": _broadcast_to,
    "dyn.expand_dims": _expand_dims,
    "dyn.full": lambda attrs, values: [_sizes(values[1])],
    "dyn.image.resize2d": _resize2d,
    "dyn.nn.pad": _pad,
    "dyn.nn.upsampling": _enlarged("HW"),
    "dyn.nn.upsampling3d": _enlarged("DHW"),
    "dyn.one_hot": _one_hot,
    "dyn.ones": lambda attrs, values: [_sizes(values[0])],
    "dyn.reshape": _reshape,
    "dyn.sparse_to_dense": lambda attrs, values: [_sizes(values[1])],
    "dyn.squeeze": _squeeze,
    "dyn.strided_slice": _strided_slice,
    "dyn.tile": _tile,
    "dyn.topk": _topk,
    "dyn.zeros": lambda attrs, values: [_sizes(values[0])],
}
for _name, _function in SHAPE_FUNCTIONS.items():
    register_op_attr(_name, "FShapeFunc", _function)
