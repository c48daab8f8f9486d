"""Planes of dynamic height and width as rows of pixels, for kernels in which no pixel depends on its neighbours.

    conv2d(x: (1, 8, h, w), weights of 1 x 1), relu     ->     over x: (1, 8, 1, h * w)

A row of h * w pixels is cut into full vectors and one tail, instead of a tail for each of h rows, and the kernel has
one dynamic size instead of two. The data is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import op as R
from ..expr import Call, Function
from ..op.registry import OpPattern, RelayOp
from ..op.shapes import mul, same_size
from ..sizes import free_sizes, sizes_in
from ..transform.rewriting import is_call
from ..ty import TensorType, TupleType, tensor_fields
from .lower import inner_order


class Plane:
    """The dynamic height and width that all large arguments of a function have in common."""

    def __init__(self, height: Any, width: Any) -> None:
        self.height, self.width = height, width
        self.pixels = mul(height, width)

    def of(self, kind: Any) -> bool:
        """Whether the last two dimensions of a type are those of the plane."""
        return (
            isinstance(kind, TensorType)
            and len(kind.shape) == 4
            and bool(same_size(kind.shape[2], self.height))
            and bool(same_size(kind.shape[3], self.width))
        )

    def flat(self, kind: Any) -> Any:
        """A type with the plane as a row of pixels."""
        if isinstance(kind, TupleType):
            return TupleType(tuple(map(self.flat, kind.fields)))
        return TensorType([*kind.shape[:2], 1, self.pixels], kind.dtype) if self.of(kind) else kind

    def whole(self, kind: TensorType) -> TensorType:
        """The inverse of `flat`."""
        flat = len(kind.shape) == 4 and same_size(kind.shape[2], 1) and same_size(kind.shape[3], self.pixels)
        return TensorType([*kind.shape[:2], self.height, self.width], kind.dtype) if flat else kind


def plane_of(fn: Function, kinds: Sequence[Any]) -> Plane | None:
    """The plane of a function's arguments, if it may become a row of pixels.

    `kinds` are the types of the arguments in the sizes of the calling function, `fn` has types of its own.
    """
    outer = [t for k in kinds for t in tensor_fields(k)]
    inner = [t for p in fn.params for t in tensor_fields(p.checked_type)]
    found = [(a, b) for a, b in zip(outer, inner, strict=True) if _is_plane(a)]
    if not found or free_sizes(fn):
        return None
    (kind, own), *_ = found
    plane, mine = Plane(*kind.shape[2:]), Plane(*own.shape[2:])
    for a, b in zip(outer, inner, strict=True):
        if plane.of(a) is not mine.of(b) or (sizes_in(tuple(a.shape[1:])) and not plane.of(a)):
            return None
    calls = [e for e in inner_order(fn) if isinstance(e, Call)]
    return plane if calls and all(_keeps_pixels(e, mine) for e in calls) else None


def _is_plane(kind: TensorType) -> bool:
    if len(kind.shape) != 4:
        return False
    height, width = kind.shape[2:]
    return bool(sizes_in((height, width))) and not same_size(height, 1) and not same_size(width, 1)


def _keeps_pixels(call: Call, plane: Plane) -> bool:
    """Whether an operator computes each pixel of its result from the same pixel of its inputs, or sums all pixels."""
    op, kind = call.op, call.checked_type
    given = [t for a in call.args for t in tensor_fields(a.checked_type)]
    planes = [plane.of(t) for t in given]
    if not any(planes):
        return not sizes_in(kind)
    if not isinstance(op, RelayOp):
        return False
    if is_call(call, R.nn.conv2d):
        return planes == [True, False] and plane.of(kind) and _is_pixelwise(call)
    if is_call(call, R.nn.global_avg_pool2d) or is_call(call, R.nn.global_max_pool2d):
        return str(call.attrs["layout"]) == "NCHW"
    if is_call(call, R.concatenate):
        return all(planes) and plane.of(kind) and int(call.attrs["axis"]) % 4 < 2
    if is_call(call, R.nn.bias_add):
        return planes[0] and int(call.attrs["axis"]) % 4 == 1
    if op.pattern > OpPattern.BROADCAST:
        return False
    single = [p or _is_single(t) for p, t in zip(planes, given, strict=True)]
    return all(single) and plane.of(kind)


def _is_single(kind: TensorType) -> bool:
    """Whether a tensor has the same value for all pixels of a plane when it is broadcast."""
    return all(same_size(d, 1) for d in kind.shape[-2:])


def _is_pixelwise(call: Call) -> bool:
    """Whether a convolution has windows of one pixel, at every pixel."""
    weights: Any = call.args[1].checked_type
    attrs = call.attrs
    plain = str(attrs["data_layout"]) == "NCHW" and str(attrs["kernel_layout"]) == "OIHW"
    steps = (*attrs["strides"], *attrs["dilation"])
    return (
        plain
        and not any(attrs["padding"])
        and all(same_size(n, 1) for n in steps)
        and all(same_size(d, 1) for d in weights.shape[2:])
    )
