"""Shape functions: the shapes of results that depend on values, computed before such a kernel runs.

    SHAPE_FUNCTIONS["dyn.tile"](attrs, [x, reps]) = [(4, 6)]      x: an array of (2, 3), reps: [2, 2]

A function gets the attributes (by name) and an array for each tensor among the arguments, and returns a shape for each
tensor of the result. Invalid values raise a `ShapeError` that names the argument.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from .errors import TVMError

Shape = tuple[int, ...]
ShapeFunction = Callable[[Any, list[Any]], list[Shape]]


class ShapeError(TVMError, ValueError):
    """Values from which no shape can be computed."""

    def __init__(self, reason: str, argument: str) -> None:
        super().__init__(f"{argument}: {reason}")
        self.reason, self.argument = reason, argument


def _ints(value: Any) -> list[int]:
    return [int(v) for v in value.reshape(-1)]


def _sizes(value: Any) -> Shape:
    sizes = tuple(_ints(value))
    if any(d < 0 for d in sizes):
        raise ShapeError(f"{sizes} has a size below 0", "shape")
    return sizes


def _axis(axis: int, ndim: int) -> int:
    if not -ndim <= axis < ndim:
        raise ShapeError(f"is {axis} and goes from {-ndim} to {ndim - 1}", "axis")
    return axis + ndim if axis < 0 else axis


def _reshape(attrs: Any, values: list[Any]) -> list[Shape]:
    return [_reshaped(values[0].shape, _ints(values[1]), bool(attrs.allowzero))]


def _reshaped(shape: Shape, codes: list[int], allowzero: bool) -> Shape:
    """0 keeps a dimension, -1 is inferred, -2 keeps all remaining ones, -3 merges two, -4 splits one in two."""
    out: list[int] = []
    rest = -1
    at, i = 0, 0

    def old(place: int) -> int:
        if place >= len(shape):
            raise ShapeError(f"{tuple(codes)} refers to dimension {place} of {shape}", "newshape")
        return shape[place]

    while i < len(codes):
        code = codes[i]
        i += 1
        if code > 0 or (code == 0 and allowzero):
            out.append(code)
        elif code == 0:
            out.append(old(at))
        elif code == -1:
            if rest >= 0:
                raise ShapeError(f"{tuple(codes)} has -1 twice", "newshape")
            rest = len(out)
            out.append(1)
        elif code == -2:
            out.extend(shape[at:])
            at = len(shape) - 1
        elif code == -3:
            out.append(old(at) * old(at + 1))
            at += 1
        elif code == -4 and i + 1 < len(codes):
            a, b = codes[i], codes[i + 1]
            a, b = (old(at) // max(b, 1) if a == -1 else a), (old(at) // max(a, 1) if b == -1 else b)
            if a * b != old(at):
                raise ShapeError(f"a dimension of {old(at)} cannot be split into {a} and {b}", "newshape")
            out += [a, b]
            i += 2
        else:
            raise ShapeError(f"{tuple(codes)} has {code}, which is not a valid code there", "newshape")
        at += 1
    total, known = math.prod(shape), math.prod(out)
    if rest >= 0:
        if known == 0 or total % known:
            raise ShapeError(f"{shape} cannot be reshaped to {tuple(codes)}", "newshape")
        out[rest] = total // known
    elif total != known:
        raise ShapeError(f"{shape} has {total} elements and {tuple(out)} has {known}", "newshape")
    return tuple(out)


def _squeeze(attrs: Any, values: list[Any]) -> list[Shape]:
    shape = values[0].shape
    gone = {_axis(a, len(shape)) for a in _ints(values[1])}
    for d in gone:
        if shape[d] != 1:
            raise ShapeError(f"dimension {d} of {shape} is not 1", "axis")
    return [tuple(s for d, s in enumerate(shape) if d not in gone)]


def _expand_dims(attrs: Any, values: list[Any]) -> list[Shape]:
    shape = values[0].shape
    at = _axis(_ints(values[1])[0], len(shape) + 1)
    return [(*shape[:at], *[1] * attrs.num_newaxis, *shape[at:])]


def _broadcast_to(attrs: Any, values: list[Any]) -> list[Shape]:
    shape, wanted = values[0].shape, _sizes(values[1])
    for have, want in zip(reversed(shape), reversed(wanted), strict=False):
        if have not in (1, want):
            raise ShapeError(f"{shape} does not broadcast to {wanted}", "shape")
    return [wanted]


def _tile(attrs: Any, values: list[Any]) -> list[Shape]:
    shape, reps = list(values[0].shape), list(_sizes(values[1]))
    ndim = max(len(shape), len(reps))
    shape, reps = [1] * (ndim - len(shape)) + shape, [1] * (ndim - len(reps)) + reps
    return [tuple(d * r for d, r in zip(shape, reps, strict=True))]


def _arange(attrs: Any, values: list[Any]) -> list[Shape]:
    start, stop, step = (v.reshape(-1)[0].item() for v in values)
    if step == 0:
        raise ShapeError("is 0", "step")
    return [(max(0, math.ceil((stop - start) / step)),)]


def _one_hot(attrs: Any, values: list[Any]) -> list[Shape]:
    shape, depth = values[0].shape, _sizes(values[3])[0]
    at = len(shape) if attrs.axis == -1 else _axis(attrs.axis, len(shape) + 1)
    return [(*shape[:at], depth, *shape[at:])]


def _topk(attrs: Any, values: list[Any]) -> list[Shape]:
    shape, count = values[0].shape, _ints(values[1])[0]
    at = _axis(attrs.axis, len(shape))
    count = shape[at] if count < 1 else count
    if count > shape[at]:
        raise ShapeError(f"is {count} and dimension {at} has {shape[at]} elements", "k")
    out = (*shape[:at], count, *shape[at + 1 :])
    return [out, out] if attrs.ret_type == "both" else [out]


def _strided_slice(attrs: Any, values: list[Any]) -> list[Shape]:
    shape = list(values[0].shape)
    begin, end, strides = (_ints(v) for v in values[1:])
    for d, low in enumerate(begin):
        high: int | None
        if attrs.slice_mode == "size":
            low = low + shape[d] if low < 0 else low
            high = low + end[d] if d < len(end) and end[d] >= 0 else None
            step = 1
        else:
            high, step = end[d] if d < len(end) else None, strides[d] if d < len(strides) else 1
        if step == 0:
            raise ShapeError("has a 0", "strides")
        shape[d] = len(range(*slice(low, high, step).indices(shape[d])))
    return [tuple(shape)]


def _pad(attrs: Any, values: list[Any]) -> list[Shape]:
    rows = values[1].tolist()
    out = tuple(d + int(a) + int(b) for d, (a, b) in zip(values[0].shape, rows, strict=True))
    if any(d < 0 for d in out):
        raise ShapeError(f"{rows} leaves nothing of {values[0].shape}", "pad_width")
    return [out]


def _axes(layout: str, ndim: int) -> list[str]:
    """The letters of a layout of an image, one for each dimension."""
    found: list[str] = re.findall(r"\d*([A-Za-z])", layout)
    if len(found) != ndim:
        raise ShapeError(f"has {ndim} dimensions and its layout is {layout}", "data")
    return found


def _enlarged(axes: str) -> ShapeFunction:
    def shapes(attrs: Any, values: list[Any]) -> list[Shape]:
        shape = list(values[0].shape)
        letters = _axes(attrs.layout, len(shape))
        for letter, scale in zip(axes, values[1:], strict=True):
            at = letters.index(letter)
            shape[at] = round(shape[at] * scale.reshape(-1)[0].item())
        return [tuple(shape)]

    return shapes


def _resize2d(attrs: Any, values: list[Any]) -> list[Shape]:
    shape = list(values[0].shape)
    letters = _axes(attrs.layout, len(shape))
    shape[letters.index("H")], shape[letters.index("W")] = _sizes(values[1])
    return [tuple(shape)]


def _argwhere(attrs: Any, values: list[Any]) -> list[Shape]:
    return [(int((values[0] != 0).sum()), values[0].ndim)]


SHAPE_FUNCTIONS: dict[str, ShapeFunction] = {
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
